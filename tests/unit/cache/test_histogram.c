/*
 * cache/stats/histogram: buckets, percentiles, taking while other threads record; and its encoding in the index.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cache/stats/stats_internal.h"
#include "index/stats/stats_internal.h"

Test(histogram, every_value_is_in_the_bucket_that_holds_it)
{
    for (unsigned shift = 0; shift < 64; shift++) {
        for (int64_t around = -3; around <= 3; around++) {
            uint64_t value = (UINT64_C(1) << shift) + (uint64_t)around;
            size_t bucket = aoticache_histogram_bucket(value);
            cr_assert_lt(bucket, AOTICACHE_HISTOGRAM_BUCKETS);
            cr_assert(aoticache_histogram_lower(bucket) <= value && value <= aoticache_histogram_upper(bucket),
                      "%llu in %zu", (unsigned long long)value, bucket);
        }
    }
    cr_assert_eq(aoticache_histogram_bucket(UINT64_MAX), AOTICACHE_HISTOGRAM_BUCKETS - 1);
}

Test(histogram, buckets_follow_each_other_and_are_an_eighth_wide_at_most)
{
    cr_assert_eq(aoticache_histogram_lower(0), 0);
    for (size_t i = 0; i + 1 < AOTICACHE_HISTOGRAM_BUCKETS; i++) {
        uint64_t lower = aoticache_histogram_lower(i), upper = aoticache_histogram_upper(i);
        cr_assert_eq(aoticache_histogram_lower(i + 1), upper + 1);
        cr_assert_leq((upper - lower) * 8, lower, "bucket %zu", i);
    }
}

Test(histogram, percentiles_are_at_most_an_eighth_above)
{
    aoticache_histogram *histogram = calloc(1, sizeof *histogram);
    aoticache_distribution distribution;
    for (uint64_t i = 1; i <= 10000; i++)
        aoticache_histogram_note(histogram, i * 1000);
    cr_assert(aoticache_histogram_take(histogram, &distribution));
    cr_assert_not(aoticache_histogram_take(histogram, &distribution), "it was taken");
    cr_assert_eq(aoticache_distribution_count(&distribution), 10000);
    cr_assert_eq(distribution.sum, UINT64_C(50005000000));
    const double shares[] = {0.01, 0.5, 0.9, 0.99, 1};
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        double exact = shares[i] * 1e7;
        double got = (double)aoticache_distribution_percentile(&distribution, shares[i]);
        cr_assert(got >= exact && got <= exact * 1.125, "%g: %g for %g", shares[i], got, exact);
    }
    cr_assert_eq(aoticache_distribution_percentile(&distribution, 1), 10000000, "the maximum is exact");
    free(histogram);
}

Test(histogram, nothing_gives_zeros)
{
    aoticache_distribution distribution = {.sum = 0};
    cr_assert_eq(aoticache_distribution_percentile(&distribution, 0.5), 0);
    cr_assert_eq(aoticache_distribution_count(&distribution), 0);
}

Test(histogram, subtracting_leaves_what_came_after)
{
    aoticache_distribution all = {.sum = 0}, before;
    all.counts[aoticache_histogram_bucket(5000000)] = 3;
    all.sum = 15000000;
    all.maximum = 5000000;
    before = all;
    all.counts[aoticache_histogram_bucket(100)] = 4;
    all.sum += 400;
    aoticache_distribution_subtract(&all, &before);
    cr_assert_eq(aoticache_distribution_count(&all), 4);
    cr_assert_eq(all.sum, 400);
    cr_assert(all.maximum >= 100 && all.maximum <= 112, "%llu", (unsigned long long)all.maximum);
}

#define NOTES 200000

static void *note_many(void *user)
{
    for (uint64_t i = 0; i < NOTES; i++)
        aoticache_histogram_note(user, i);
    return NULL;
}

Test(histogram, nothing_is_lost_or_counted_twice_when_taken_meanwhile)
{
    aoticache_histogram *histogram = calloc(1, sizeof *histogram);
    aoticache_distribution sum = {.sum = 0}, taken;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, note_many, histogram);
    for (int i = 0; i < 500; i++) {
        if (!aoticache_histogram_take(histogram, &taken))
            continue;
        if (i % 3 == 0)
            aoticache_histogram_give_back(histogram, &taken);
        else
            aoticache_distribution_add(&sum, &taken);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    if (aoticache_histogram_take(histogram, &taken))
        aoticache_distribution_add(&sum, &taken);
    cr_assert_eq(aoticache_distribution_count(&sum), 3 * NOTES);
    cr_assert_eq(sum.sum, UINT64_C(3) * NOTES * (NOTES - 1) / 2);
    cr_assert_eq(sum.maximum, NOTES - 1);
    free(histogram);
}

Test(histogram, bytes_give_the_counts_back)
{
    uint64_t counts[AOTICACHE_INDEX_BUCKETS] = {0}, back[AOTICACHE_INDEX_BUCKETS] = {0};
    uint8_t bytes[AOTICACHE_INDEX_VECTOR_BYTES];
    cr_assert_eq(aoticache_index_vector_encode(counts, bytes), 0);
    for (int i = 0; i < AOTICACHE_INDEX_BUCKETS; i++)
        counts[i] = i % 3 == 0 ? UINT64_MAX >> (i % 64) : 0;
    size_t size = aoticache_index_vector_encode(counts, bytes);
    cr_assert(aoticache_index_vector_add(bytes, size, back));
    cr_assert_eq(memcmp(counts, back, sizeof counts), 0);
    for (int i = 0; i < AOTICACHE_INDEX_BUCKETS; i++)
        counts[i] = UINT64_MAX;
    size = aoticache_index_vector_encode(counts, bytes);
    cr_assert_leq(size, sizeof bytes);
}

Test(histogram, damaged_bytes_are_refused)
{
    static const uint8_t far[] = {0xff, 0x7f, 1}, open[] = {1},
                         endless[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80};
    uint64_t counts[AOTICACHE_INDEX_BUCKETS] = {0};
    cr_assert_not(aoticache_index_vector_add(far, sizeof far, counts));
    cr_assert_not(aoticache_index_vector_add(open, sizeof open, counts));
    cr_assert_not(aoticache_index_vector_add(endless, sizeof endless, counts));
    uint8_t many[3 * AOTICACHE_INDEX_BUCKETS];
    for (size_t i = 0; i < sizeof many; i++)
        many[i] = i % 2 == 0 ? 0 : 1;
    cr_assert_not(aoticache_index_vector_add(many, sizeof many, counts), "more buckets than there are");
}
