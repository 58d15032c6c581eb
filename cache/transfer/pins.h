/*
 * cache/transfer/pins: pins and tags that come from elsewhere, added to those that are there.
 *
 * Private to cache/transfer/.
 */
#ifndef AOTICACHE_CACHE_TRANSFER_PINS_H
#define AOTICACHE_CACHE_TRANSFER_PINS_H

#include "cache/pins/pins.h"
#include "cache/transfer/intake.h"

/*
 * Only where the key has an entry: a mark of what was not taken in is passed over. A tag that is none is refused.
 * Returns: OK, IO, DENIED, LOCKED, NO_MEMORY.
 */
aoticache_status aoticache_transfer_add_pin(aoticache_intake *intake, const aoticache_pins *mark,
                                             aoticache_error *ret_error);

#endif
