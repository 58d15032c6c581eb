/*
 * cache/stats/histogram: the bucket of a duration, counting it from many threads concurrently, and percentiles of a
 * distribution.
 */
#include "cache/stats/stats_internal.h"

#include <string.h>

#define PARTS_BITS 3
#define PARTS (1u << PARTS_BITS)

size_t aoticache_histogram_bucket(uint64_t value)
{
    if (value < PARTS)
        return (size_t)value;
    unsigned exponent = 63u - (unsigned)__builtin_clzll(value);
    unsigned part = (unsigned)(value >> (exponent - PARTS_BITS)) & (PARTS - 1);
    return (exponent - PARTS_BITS + 1) * PARTS + part;
}

uint64_t aoticache_histogram_lower(size_t bucket)
{
    if (bucket < PARTS)
        return bucket;
    unsigned exponent = (unsigned)(bucket / PARTS) + PARTS_BITS - 1;
    return (UINT64_C(1) << exponent) + ((uint64_t)(bucket % PARTS) << (exponent - PARTS_BITS));
}

uint64_t aoticache_histogram_upper(size_t bucket)
{
    return bucket + 1 < AOTICACHE_HISTOGRAM_BUCKETS ? aoticache_histogram_lower(bucket + 1) - 1 : UINT64_MAX;
}

static void raise_maximum(aoticache_histogram *histogram, uint64_t value)
{
    uint64_t known = atomic_load_explicit(&histogram->maximum, memory_order_relaxed);
    while (value > known && !atomic_compare_exchange_weak_explicit(&histogram->maximum, &known, value,
                                                                   memory_order_relaxed, memory_order_relaxed)) {
    }
}

void aoticache_histogram_note(aoticache_histogram *histogram, uint64_t value)
{
    atomic_fetch_add_explicit(&histogram->counts[aoticache_histogram_bucket(value)], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->sum, value, memory_order_relaxed);
    raise_maximum(histogram, value);
    /* After the counts, so that a thread that sees this takes them. */
    atomic_fetch_add_explicit(&histogram->notes, 1, memory_order_release);
}

bool aoticache_histogram_take(aoticache_histogram *histogram, aoticache_distribution *ret_taken)
{
    if (atomic_exchange_explicit(&histogram->notes, 0, memory_order_acquire) == 0)
        return false;
    memset(ret_taken, 0, sizeof *ret_taken);
    for (size_t i = 0; i < AOTICACHE_HISTOGRAM_BUCKETS; i++)
        if (atomic_load_explicit(&histogram->counts[i], memory_order_relaxed) != 0)
            ret_taken->counts[i] = atomic_exchange_explicit(&histogram->counts[i], 0, memory_order_relaxed);
    ret_taken->sum = atomic_exchange_explicit(&histogram->sum, 0, memory_order_relaxed);
    ret_taken->maximum = atomic_exchange_explicit(&histogram->maximum, 0, memory_order_relaxed);
    return true;
}

void aoticache_histogram_give_back(aoticache_histogram *histogram, const aoticache_distribution *taken)
{
    for (size_t i = 0; i < AOTICACHE_HISTOGRAM_BUCKETS; i++)
        if (taken->counts[i] != 0)
            atomic_fetch_add_explicit(&histogram->counts[i], taken->counts[i], memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->sum, taken->sum, memory_order_relaxed);
    raise_maximum(histogram, taken->maximum);
    atomic_fetch_add_explicit(&histogram->notes, 1, memory_order_release);
}

void aoticache_histogram_add_to(const aoticache_histogram *histogram, aoticache_distribution *distribution)
{
    for (size_t i = 0; i < AOTICACHE_HISTOGRAM_BUCKETS; i++)
        distribution->counts[i] += atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
    distribution->sum += atomic_load_explicit(&histogram->sum, memory_order_relaxed);
    uint64_t maximum = atomic_load_explicit(&histogram->maximum, memory_order_relaxed);
    distribution->maximum = maximum > distribution->maximum ? maximum : distribution->maximum;
}

void aoticache_histogram_clear(aoticache_histogram *histogram)
{
    aoticache_distribution ignored;
    aoticache_histogram_take(histogram, &ignored);
}

void aoticache_distribution_add(aoticache_distribution *distribution, const aoticache_distribution *more)
{
    for (size_t i = 0; i < AOTICACHE_HISTOGRAM_CAPACITY; i++)
        distribution->counts[i] += more->counts[i];
    distribution->sum += more->sum;
    distribution->maximum = more->maximum > distribution->maximum ? more->maximum : distribution->maximum;
}

static uint64_t subtract_or_zero(uint64_t value, uint64_t less)
{
    return value > less ? value - less : 0;
}

void aoticache_distribution_subtract(aoticache_distribution *distribution, const aoticache_distribution *less)
{
    uint64_t highest = 0;
    for (size_t i = 0; i < AOTICACHE_HISTOGRAM_CAPACITY; i++) {
        distribution->counts[i] = subtract_or_zero(distribution->counts[i], less->counts[i]);
        if (distribution->counts[i] != 0)
            highest = aoticache_histogram_upper(i);
    }
    distribution->sum = subtract_or_zero(distribution->sum, less->sum);
    distribution->maximum = highest < distribution->maximum ? highest : distribution->maximum;
}

uint64_t aoticache_distribution_count(const aoticache_distribution *distribution)
{
    uint64_t count = 0;
    for (size_t i = 0; i < AOTICACHE_HISTOGRAM_CAPACITY; i++)
        count += distribution->counts[i];
    return count;
}

uint64_t aoticache_distribution_percentile(const aoticache_distribution *distribution, double share)
{
    const uint64_t count = aoticache_distribution_count(distribution);
    const double wanted = share * (double)count;
    uint64_t passed = 0;
    for (size_t i = 0; i < AOTICACHE_HISTOGRAM_BUCKETS && count > 0; i++) {
        passed += distribution->counts[i];
        if (passed > 0 && (double)passed >= wanted) {
            uint64_t upper = aoticache_histogram_upper(i);
            return upper < distribution->maximum ? upper : distribution->maximum;
        }
    }
    return distribution->maximum;
}
