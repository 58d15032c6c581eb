/*
 * cache/stats/stats_internal: counts of one cache that are not flushed yet, and the functions through which the other parts of
 * cache/ count.
 */
#ifndef AOTICACHE_CACHE_STATS_INTERNAL_H
#define AOTICACHE_CACHE_STATS_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/hash_map.h"
#include "cache/stats/statistics.h"
#include "index/stats/statistics.h"

/* ---- histograms (histogram.c) ---- */

/*
 * The distribution of durations, in a few kilobytes and without locks. Buckets grow with the value: 0 to 7 ns have one each,
 * then every power of two is divided into 8, so the width of a bucket is at most an eighth of its values (as HDR histograms
 * with one significant digit). Notes are atomic additions from any thread; a distribution is a plain copy for one thread.
 */
#define AOTICACHE_HISTOGRAM_BUCKETS 496  /* for all of 64 bits */
#define AOTICACHE_HISTOGRAM_CAPACITY 512 /* capacity in the index; the last ones stay 0 */

typedef struct aoticache_histogram {
    _Atomic uint64_t counts[AOTICACHE_HISTOGRAM_BUCKETS];
    _Atomic uint64_t sum, maximum;
    _Atomic uint64_t notes; /* since the last take; 0: nothing to take */
} aoticache_histogram;

typedef struct aoticache_distribution {
    uint64_t counts[AOTICACHE_HISTOGRAM_CAPACITY];
    uint64_t sum, maximum;
} aoticache_distribution;

size_t aoticache_histogram_bucket(uint64_t value);
/* Return the smallest and the largest value of a bucket. */
uint64_t aoticache_histogram_lower(size_t bucket);
uint64_t aoticache_histogram_upper(size_t bucket);

void aoticache_histogram_note(aoticache_histogram *histogram, uint64_t value);
/* Moves the notes into `ret_taken`, which it overwrites. Returns false if there were none. */
bool aoticache_histogram_take(aoticache_histogram *histogram, aoticache_distribution *ret_taken);
/* Adds back what was taken. */
void aoticache_histogram_give_back(aoticache_histogram *histogram, const aoticache_distribution *taken);
/* Adds the current notes, without taking them. */
void aoticache_histogram_add_to(const aoticache_histogram *histogram, aoticache_distribution *distribution);
void aoticache_histogram_clear(aoticache_histogram *histogram);

void aoticache_distribution_add(aoticache_distribution *distribution, const aoticache_distribution *more);
/* Subtracts; the maximum becomes the largest value that the remaining notes can have. */
void aoticache_distribution_subtract(aoticache_distribution *distribution, const aoticache_distribution *less);
uint64_t aoticache_distribution_count(const aoticache_distribution *distribution);
/* Returns the least value that `share` (0 to 1) of all values do not exceed, as the upper end of its bucket; 0 if there are
 * no values. */
uint64_t aoticache_distribution_percentile(const aoticache_distribution *distribution, double share);

/* ---- recency (count.c) ---- */

/*
 * Which entries were used, when last, how often, and the time saved by that. Grows with the number of distinct entries used
 * since the last flush, which a lookup starts when there are many.
 */
typedef struct aoticache_recency {
    aoticache_hash_map by_entry; /* of aoticache_index_tally, by entry_id */
} aoticache_recency;

/* Adds to an entry's tally. Returns false, and adds nothing, if memory is short. */
bool aoticache_recency_add(aoticache_recency *recency, const aoticache_index_tally *tally);
/* Moves the tallies to the caller, which frees them with free(). */
void aoticache_recency_take(aoticache_recency *recency, aoticache_index_tally **ret_tallies, size_t *ret_count);

/* ---- counted and not flushed (count.c) ---- */

typedef enum aoticache_counter {
#define AOTICACHE_COUNTER_ENUM(name, text) AOTICACHE_COUNTER_##name,
    AOTICACHE_COUNTER_LIST(AOTICACHE_COUNTER_ENUM)
#undef AOTICACHE_COUNTER_ENUM
        AOTICACHE_COUNTER_COUNT
} aoticache_counter;

#define AOTICACHE_FLUSH_AFTER_NS UINT64_C(30000000000)

typedef struct aoticache_unflushed {
    _Atomic uint64_t counters[AOTICACHE_COUNTER_COUNT];
    _Atomic(aoticache_histogram *)
        histograms[AOTICACHE_LATENCY_COUNT]; /* NULL until the first note: most kinds have none */
    pthread_mutex_t mutex;                   /* protects the members from recency to damaged */
    aoticache_recency recency;
    aoticache_index_sums sums;   /* of requests that have no entry */
    aoticache_hash_map spared;   /* digests of artifacts that this process has put, or whose compile was saved */
    aoticache_hash_map damaged;  /* digests of damaged objects that stay, because the cache is read-only */
    _Atomic uint64_t flushed_ns; /* monotonic: the last flush or attempt */
    _Atomic uint64_t missed_ns;  /* monotonic: the last flush for a miss, or attempt; 0: none */
    uint64_t flush_after_ns;     /* AOTICACHE_FLUSH_AFTER_NS; set by tests */
} aoticache_unflushed;

/* Initializes the counts. `unflushed` must be zeroed. */
void aoticache_unflushed_init(aoticache_unflushed *unflushed);
void aoticache_unflushed_clear(aoticache_unflushed *unflushed);
/* Discards, in the child of a fork, the counts of the parent, which the parent itself will flush. */
void aoticache_unflushed_reset_after_fork(aoticache_unflushed *unflushed);

void aoticache_cache_count(aoticache_cache *cache, aoticache_counter counter, uint64_t value);
const char *aoticache_cache_counter_name(aoticache_counter counter);
void aoticache_cache_note_latency(aoticache_cache *cache, aoticache_latency_kind kind, uint64_t ns);
/*
 * Notes that the process has this artifact. Returns how much of its compile time the cache has saved: all of it if the
 * process gets it for the first time, and 0 afterwards, because the process would have kept a kernel that it compiled. A put
 * calls this too, and ignores the result.
 */
uint64_t aoticache_cache_spare(aoticache_cache *cache, const aoticache_digest *artifact, uint64_t compile_ns);

/* Counts a damaged object that is not removed, once in this process. */
void aoticache_cache_note_damaged(aoticache_cache *cache, const aoticache_digest *object);

/* Notes that a collection removed an entry that was last used `age_ns` ago, and `bytes` with it (0 if others share its
 * objects). Counts evicted and evicted_bytes. */
void aoticache_cache_note_eviction(aoticache_cache *cache, uint64_t age_ns, uint64_t bytes);

/* Adds to an entry's recency and its groups. Sets last_used_ns to now. */
void aoticache_cache_note_tally(aoticache_cache *cache, aoticache_index_tally tally);
/* Adds to the groups of a request that has no entry. request: NULL if it is no longer known. */
void aoticache_cache_note_group(aoticache_cache *cache, const aoticache_request *request,
                                const aoticache_index_group *group);

/* Adds the counts of this cache that are not flushed. */
void aoticache_cache_add_unflushed(aoticache_cache *cache, aoticache_counters *counters);

/* ---- flushing (flush.c) ---- */

/* Flushes if it is due, and never waits for another writer; for lookups that hit. */
void aoticache_cache_flush_if_due(aoticache_cache *cache, uint64_t now_ns);

/* Flushes, unless a miss has just done so or another process is writing; for lookups that miss. The counts then wait for the
 * next flush. */
void aoticache_cache_flush_missed(aoticache_cache *cache);

/* Called on closing: leaves the counts for the next flush of another process. If that is not possible, waits for another
 * writer, but not as long as a put does. */
void aoticache_cache_flush_last(aoticache_cache *cache);

/* ---- reading (statistics.c) ---- */

/* Reads and checks the caller's options; NULL gives the defaults. Returns: OK, INVALID. */
aoticache_status aoticache_statistics_options_read(const aoticache_statistics_options *options,
                                                   aoticache_statistics_options *ret_options,
                                                   aoticache_error *ret_error);

#endif
