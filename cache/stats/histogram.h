/*
 * cache/stats/histogram: how durations are distributed, in a few kilobytes, without locks.
 *
 * Private. Buckets grow with the value: 0 to 7 ns have one each, then every power of two is divided into 8, so that a
 * bucket is at most an eighth of its values wide (what HDR histograms do with one significant digit). Notes are atomic
 * additions from any thread; a distribution is a plain copy for one thread.
 */
#ifndef AOTICACHE_CACHE_STATS_HISTOGRAM_H
#define AOTICACHE_CACHE_STATS_HISTOGRAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AOTICACHE_HISTOGRAM_BUCKETS 496 /* for all of 64 bits */
#define AOTICACHE_HISTOGRAM_CAPACITY 512 /* as the index keeps them; those at the end stay 0 */

typedef struct aoticache_histogram {
    _Atomic uint64_t counts[AOTICACHE_HISTOGRAM_BUCKETS];
    _Atomic uint64_t sum, maximum;
    _Atomic uint64_t notes; /* since the last take; 0: there is nothing to take */
} aoticache_histogram;

typedef struct aoticache_distribution {
    uint64_t counts[AOTICACHE_HISTOGRAM_CAPACITY];
    uint64_t sum, maximum;
} aoticache_distribution;

size_t aoticache_histogram_bucket(uint64_t value);
/* The smallest and the largest value of a bucket. */
uint64_t aoticache_histogram_lower(size_t bucket);
uint64_t aoticache_histogram_upper(size_t bucket);

void aoticache_histogram_note(aoticache_histogram *histogram, uint64_t value);
/* Moves what was noted into `ret_taken`, which it overwrites. False where there was nothing. */
bool aoticache_histogram_take(aoticache_histogram *histogram, aoticache_distribution *ret_taken);
/* Puts back what was taken. */
void aoticache_histogram_give_back(aoticache_histogram *histogram, const aoticache_distribution *taken);
/* Adds what is noted now, and leaves it there. */
void aoticache_histogram_add_to(const aoticache_histogram *histogram, aoticache_distribution *distribution);
void aoticache_histogram_clear(aoticache_histogram *histogram);

void aoticache_distribution_add(aoticache_distribution *distribution, const aoticache_distribution *more);
/* The maximum becomes the largest value that what is left can have. */
void aoticache_distribution_subtract(aoticache_distribution *distribution, const aoticache_distribution *less);
uint64_t aoticache_distribution_count(const aoticache_distribution *distribution);
/* The least value that `share` (0 to 1) of all do not exceed, as the upper end of its bucket; 0 where there are none. */
uint64_t aoticache_distribution_percentile(const aoticache_distribution *distribution, double share);

#endif
