/*
 * cache/stats/internal: what one cache has counted and not flushed yet, and how the other parts of cache/ count.
 */
#ifndef AOTICACHE_CACHE_STATS_INTERNAL_H
#define AOTICACHE_CACHE_STATS_INTERNAL_H

#include <stdatomic.h>

#include "cache/stats/histogram.h"
#include "cache/stats/statistics.h"
#include "index/stats/statistics.h"

typedef struct aoticache_unflushed {
    aoticache_histogram histograms[AOTICACHE_LATENCY_COUNT];
    aoticache_index_sums sums;   /* of what happened to no entry; under the cache's recency_mutex */
    _Atomic uint64_t flushed_ns; /* monotonic: the last flush, or try of one */
    _Atomic uint64_t missed_ns;  /* the last flush for a miss, or try of one; 0: none */
    uint64_t flush_after_ns;     /* how long a process that only hits keeps its numbers to itself */
} aoticache_unflushed;

/* NULL: out of memory. */
aoticache_unflushed *aoticache_unflushed_create(void);
void aoticache_unflushed_free(aoticache_unflushed *unflushed);
/* In the child of a fork: forgets what is the parent's. */
void aoticache_unflushed_reset(aoticache_unflushed *unflushed);

void aoticache_cache_note_latency(aoticache_cache *cache, aoticache_latency_kind kind, uint64_t ns);

/* A collection has removed an entry that was last used so long ago, and with it so many bytes (0 where others share its
 * objects). Counts evicted and evicted_bytes. */
void aoticache_cache_note_eviction(aoticache_cache *cache, uint64_t age_ns, uint64_t bytes);

/* What happened to an entry, for its recency and its groups; last_used_ns is set to now. */
void aoticache_cache_note_tally(aoticache_cache *cache, aoticache_index_tally tally);
/* What happened to a request that has no entry; NULL: to one that nobody knows any more. */
void aoticache_cache_note_group(aoticache_cache *cache, const aoticache_request *request,
                                const aoticache_index_group *group);

/* For lookups that hit: flushes where it is time to, without waiting for anybody. */
void aoticache_cache_flush_if_due(aoticache_cache *cache, uint64_t now_ns);

/* At the end: waits for somebody else who writes, but not as long as somebody who stores something. */
void aoticache_cache_flush_last(aoticache_cache *cache);

/* For lookups that miss: flushes, unless one that missed has just done so or somebody else is writing; the next flush has
 * it then. */
void aoticache_cache_flush_missed(aoticache_cache *cache);

/* Reads and checks the caller's options; NULL gives the defaults. Returns: OK, INVALID. */
aoticache_status aoticache_statistics_options_read(const aoticache_statistics_options *options,
                                                   aoticache_statistics_options *ret_options, aoticache_error *ret_error);

/* Adds what this cache has counted and not flushed. */
void aoticache_cache_add_unflushed(aoticache_cache *cache, aoticache_counters *counters);

#endif
