/*
 * cache/snapshot: a copy of entries, so that callers' callbacks run without any lock being held.
 *
 * Private.
 */
#ifndef AOTICACHE_CACHE_SNAPSHOT_H
#define AOTICACHE_CACHE_SNAPSHOT_H

#include "cache/state.h"

typedef struct aoticache_snapshot_entry {
    aoticache_entry entry; /* its strings point into `texts` */
    int64_t entry_id;
    char *texts;
} aoticache_snapshot_entry;

typedef struct aoticache_snapshot {
    aoticache_snapshot_entry *entries;
    size_t count, capacity;
} aoticache_snapshot;

/* One entry. to->texts is the caller's, by free(). False: out of memory, and nothing was written. */
bool aoticache_snapshot_copy(const aoticache_index_entry *from, aoticache_snapshot_entry *to);

/* op: only this operator, NULL for all. As aoticache_index_list; an index that is not there has no entries. */
aoticache_status aoticache_snapshot_take(aoticache_cache *cache, aoticache_index_order order, const char *op,
                                         aoticache_snapshot *ret_snapshot, aoticache_error *ret_error);
void aoticache_snapshot_free(aoticache_snapshot *snapshot);

#endif
