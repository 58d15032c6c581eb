/*
 * cache/transfer/select: which entries the options of a transfer name.
 *
 * Private.
 */
#ifndef AOTICACHE_CACHE_TRANSFER_SELECT_H
#define AOTICACHE_CACHE_TRANSFER_SELECT_H

#include "cache/pins/pins.h"
#include "cache/snapshot.h"
#include "cache/transfer/transfer.h"

/*
 * Reads and checks the caller's options; NULL gives the defaults. is_import: an archive knows neither tags nor times of use.
 * Returns: OK, INVALID.
 */
aoticache_status aoticache_transfer_options_read(const aoticache_transfer_options *options, bool is_import,
                                                 aoticache_transfer_options *ret_options, aoticache_error *ret_error);

/* By what a manifest says alone. */
bool aoticache_transfer_names(const aoticache_transfer_options *options, const char *op, const char *device,
                              const aoticache_key *key);

/* The entries that all of the options name, by operator, key and artifact. As aoticache_snapshot_walk. */
aoticache_status aoticache_transfer_select(aoticache_cache *cache, const aoticache_transfer_options *options,
                                           aoticache_snapshot *ret_snapshot, aoticache_error *ret_error);

/* Marks of the keys of a selection: one call for each that has some. */
aoticache_status aoticache_transfer_list_pins(aoticache_cache *cache, const aoticache_snapshot *selection,
                                               aoticache_pins_fn callback, void *user, aoticache_error *ret_error);

#endif
