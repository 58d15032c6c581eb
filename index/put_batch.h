/*
 * index/put_batch: many entries at once, for what comes in from another cache.
 *
 * Private to the library.
 */
#ifndef AOTICACHE_INDEX_PUT_BATCH_H
#define AOTICACHE_INDEX_PUT_BATCH_H

#include "index/index.h"

/* The `position`th entry, borrowed until the next one is asked for. OK, or what ends the batch. */
typedef aoticache_status (*aoticache_index_next_entry_fn)(void *user, size_t position, aoticache_index_entry *ret_entry,
                                                          aoticache_error *ret_error);

/*
 * Records `count` entries, each as aoticache_index_put() and visible at once; durable together, when this returns OK.
 * Their objects must be durable before. On a failure some may be recorded, and survive a power loss or not.
 *
 * Uses a connection of its own: other threads' puts wait for the disk as ever.
 * ret_entry_ids: `count` numbers. Returns: as aoticache_index_put(), and what `next` returns.
 */
aoticache_status aoticache_index_put_batch(const aoticache_index_options *options, size_t count,
                                           aoticache_index_next_entry_fn next, void *user, int64_t *ret_entry_ids,
                                           aoticache_error *ret_error);

#endif
