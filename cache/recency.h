/*
 * cache/recency: which entries were used, when last and how often, kept in memory until somebody writes it.
 *
 * Private. Not thread-safe: the cache has a mutex around it. Grows with the number of distinct entries used since the
 * last flush.
 */
#ifndef AOTICACHE_CACHE_RECENCY_H
#define AOTICACHE_CACHE_RECENCY_H

#include <stdbool.h>
#include <stddef.h>

#include "index/index.h"

typedef struct aoticache_recency {
    aoticache_index_use *slots; /* open addressing; entry_id 0 is free */
    size_t capacity;            /* a power of two, or 0 */
    size_t count;
} aoticache_recency;

/* Adds uses of an entry. Out of memory, the use is forgotten: it is a hint for the collector, no more. */
void aoticache_recency_add(aoticache_recency *recency, int64_t entry_id, int64_t last_used_ns, uint64_t uses);
/* Moves the uses to the front of *ret_uses (the caller's, by free()), and leaves the table empty. */
void aoticache_recency_take(aoticache_recency *recency, aoticache_index_use **ret_uses, size_t *ret_count);
void aoticache_recency_free(aoticache_recency *recency);

#endif
