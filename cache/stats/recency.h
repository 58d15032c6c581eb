/*
 * cache/stats/recency: which entries were used, when last, how often and what that was worth, kept in memory until somebody
 * writes it.
 *
 * Private. Not thread-safe: the cache has a mutex around it. Grows with the number of distinct entries used since the
 * last flush, which a lookup starts when there are many.
 */
#ifndef AOTICACHE_CACHE_STATS_RECENCY_H
#define AOTICACHE_CACHE_STATS_RECENCY_H

#include <stdbool.h>
#include <stddef.h>

#include "index/stats/statistics.h"

typedef struct aoticache_recency {
    aoticache_index_tally *slots; /* open addressing; entry_id 0 is free */
    size_t capacity;              /* a power of two, or 0 */
    size_t count;
} aoticache_recency;

/* Adds to an entry's tally. False where memory runs out: nothing is added. */
bool aoticache_recency_add(aoticache_recency *recency, const aoticache_index_tally *tally);
/* Moves the tallies to the front of *ret_tallies (the caller's, by free()), and leaves the table empty. */
void aoticache_recency_take(aoticache_recency *recency, aoticache_index_tally **ret_tallies, size_t *ret_count);
void aoticache_recency_free(aoticache_recency *recency);

#endif
