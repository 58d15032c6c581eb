/*
 * cache/stats/statistics: reads the counts of all processes, and the contents of the store.
 */
#include "base/arguments.h"
#include "cache/stats/statistics.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/options.h"
#include "cache/cache_internal.h"

#define NS_PER_SECOND INT64_C(1000000000)

static uint64_t *counter_field(aoticache_counters *counters, const char *name)
{
#define COUNTER_FIELD(counter, text) \
    if (strcmp(name, #counter) == 0) \
        return &counters->counter;
    AOTICACHE_COUNTER_LIST(COUNTER_FIELD)
#undef COUNTER_FIELD
    return NULL; /* of a later program */
}

aoticache_status aoticache_statistics_options_read(const aoticache_statistics_options *options,
                                                   aoticache_statistics_options *ret_options,
                                                   aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OPTIONS_READ(aoticache_statistics_options, AOTICACHE_STATISTICS_OPTIONS_INIT,
                                                     options, ret_options, ret_error);
    if (status == AOTICACHE_OK && ret_options->since > AOTICACHE_STATISTICS_SINCE_TIME)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "aoticache_statistics_options.since is %d, which is not valid",
                                   (int)ret_options->since);
    return status;
}

/*
 * Returns where the slots that contain this second begin: longer slots are kept longer, so it depends on how long ago the
 * second was.
 */
static int64_t slot_start(int64_t seconds)
{
    const int64_t now = aoticache_wall_ns() / NS_PER_SECOND;
    int64_t length = seconds >= now - AOTICACHE_SLOT_DAY_SECONDS        ? AOTICACHE_SLOT_FINE_SECONDS
                     : seconds >= now - 31 * AOTICACHE_SLOT_DAY_SECONDS ? AOTICACHE_SLOT_HOUR_SECONDS
                                                                        : AOTICACHE_SLOT_DAY_SECONDS;
    return seconds <= 0 ? 0 : seconds - seconds % length;
}

/* ---- counters and latencies ---- */

typedef struct gathered {
    aoticache_counters counters;
    aoticache_distribution *distributions; /* AOTICACHE_LATENCY_COUNT of them */
    int64_t zero_ns;
    aoticache_index_totals totals;
} gathered;

static bool gather_count(void *user, const char *name, uint64_t value)
{
    gathered *all = user;
    uint64_t *field = counter_field(&all->counters, name);
    if (field != NULL)
        *field += value;
    return true;
}

static bool gather_histogram(void *user, const aoticache_index_histogram *histogram, bool is_less)
{
    gathered *all = user;
    aoticache_distribution more = {.sum = histogram->sum, .maximum = histogram->maximum};
    memcpy(more.counts, histogram->counts, sizeof more.counts);
    for (int i = 0; i < AOTICACHE_LATENCY_COUNT; i++) {
        if (strcmp(histogram->name, aoticache_latency_name(i)) != 0)
            continue;
        if (is_less)
            aoticache_distribution_subtract(&all->distributions[i], &more);
        else
            aoticache_distribution_add(&all->distributions[i], &more);
    }
    return true;
}

static aoticache_status gather_once(aoticache_index *index, const aoticache_statistics_options *options, gathered *all,
                                    aoticache_error *ret_error)
{
    const aoticache_index_reading reading = {.from = (aoticache_index_from)options->since,
                                             .since_seconds = slot_start(options->since_ns / NS_PER_SECOND),
                                             .until_seconds = aoticache_wall_ns() / NS_PER_SECOND,
                                             .count = gather_count,
                                             .histogram = gather_histogram,
                                             .user = all};
    all->counters = (aoticache_counters){.hits = 0};
    memset(all->distributions, 0, AOTICACHE_LATENCY_COUNT * sizeof *all->distributions);
    aoticache_status status = aoticache_index_read_statistics(index, &reading, &all->zero_ns, ret_error);
    return status == AOTICACHE_OK ? aoticache_index_read_totals(index, &all->totals, ret_error) : status;
}

/* Counts that are not flushed happened since the last flush, and therefore since any time that a caller may give. */
static aoticache_status gather_numbers(aoticache_cache *cache, const aoticache_statistics_options *options,
                                       gathered *all, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    all->distributions = calloc(AOTICACHE_LATENCY_COUNT, sizeof *all->distributions);
    if (all->distributions == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    aoticache_cache_enter(cache);
    aoticache_cache_flush_deferred(cache);
    aoticache_index *index = aoticache_cache_index(cache);
    if (index != NULL)
        do
            status = gather_once(index, options, all, ret_error);
        while (aoticache_cache_recovered(cache, status, &index));
    aoticache_cache_add_unflushed(cache, &all->counters);
    for (int i = 0; i < AOTICACHE_LATENCY_COUNT; i++) {
        const aoticache_histogram *histogram = atomic_load(&cache->unflushed.histograms[i]);
        if (histogram != NULL)
            aoticache_histogram_add_to(histogram, &all->distributions[i]);
    }
    return aoticache_cache_index_result(status, ret_error);
}

static aoticache_latency summarise(const aoticache_distribution *distribution)
{
    return (aoticache_latency){.count = aoticache_distribution_count(distribution),
                               .sum_ns = distribution->sum,
                               .p50_ns = aoticache_distribution_percentile(distribution, 0.5),
                               .p90_ns = aoticache_distribution_percentile(distribution, 0.9),
                               .p99_ns = aoticache_distribution_percentile(distribution, 0.99),
                               .max_ns = distribution->maximum};
}

static int64_t start_of_numbers(const aoticache_statistics_options *options, const gathered *all)
{
    if (options->since == AOTICACHE_STATISTICS_SINCE_ZERO && all->zero_ns != 0)
        return all->zero_ns;
    if (options->since != AOTICACHE_STATISTICS_SINCE_TIME)
        return all->totals.created_ns;
    int64_t since = slot_start(options->since_ns / NS_PER_SECOND) * NS_PER_SECOND;
    return since > all->totals.created_ns ? since : all->totals.created_ns;
}

static aoticache_statistics make_statistics(const aoticache_statistics_options *options, const gathered *all)
{
    aoticache_statistics statistics = {.counters = all->counters,
                                       .entries = all->totals.entries,
                                       .artifacts = all->totals.artifacts,
                                       .objects = all->totals.objects,
                                       .bytes = all->totals.bytes,
                                       .failures_remembered = all->totals.failures,
                                       .created_ns = all->totals.created_ns,
                                       .since_ns = start_of_numbers(options, all),
                                       .zeroed_ns = all->zero_ns};
#define SUMMARISE(name, text) statistics.latencies.name = summarise(&all->distributions[AOTICACHE_LATENCY_##name]);
    AOTICACHE_LATENCY_LIST(SUMMARISE)
#undef SUMMARISE
    return statistics;
}

aoticache_status aoticache_cache_get_statistics(aoticache_cache *cache, const aoticache_statistics_options *options,
                                                aoticache_statistics *ret_statistics, aoticache_error *ret_error)
{
    gathered all = {.distributions = NULL};
    aoticache_statistics_options chosen;
    aoticache_status status = aoticache_statistics_options_read(options, &chosen, ret_error);
    if (status == AOTICACHE_OK && (cache == NULL || ret_statistics == NULL))
        status = AOTICACHE_REFUSE_NULL(ret_error, cache, ret_statistics);
    if (status == AOTICACHE_OK)
        status = gather_numbers(cache, &chosen, &all, ret_error);
    if (status == AOTICACHE_OK)
        *ret_statistics = make_statistics(&chosen, &all);
    free(all.distributions);
    return status;
}

aoticache_status aoticache_cache_list_latency(aoticache_cache *cache, aoticache_latency_kind kind,
                                              const aoticache_statistics_options *options, aoticache_bucket_fn callback,
                                              void *user, aoticache_error *ret_error)
{
    gathered all = {.distributions = NULL};
    aoticache_statistics_options chosen;
    aoticache_status status = aoticache_statistics_options_read(options, &chosen, ret_error);
    if (status == AOTICACHE_OK && (cache == NULL || callback == NULL))
        status = AOTICACHE_REFUSE_NULL(ret_error, cache, callback);
    if (status == AOTICACHE_OK && aoticache_latency_name(kind) == NULL)
        status = aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_list_latency: unknown latency %d",
                                     (int)kind);
    if (status == AOTICACHE_OK)
        status = gather_numbers(cache, &chosen, &all, ret_error);
    bool continues = true;
    for (size_t i = 0; status == AOTICACHE_OK && continues && i < AOTICACHE_HISTOGRAM_BUCKETS; i++) {
        uint64_t count = all.distributions[kind].counts[i];
        if (count != 0)
            continues = callback(user, aoticache_histogram_lower(i), aoticache_histogram_upper(i), count);
    }
    free(all.distributions);
    return status;
}

aoticache_status aoticache_cache_zero_statistics(aoticache_cache *cache, aoticache_error *ret_error)
{
    if (cache == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache);
    aoticache_cache_enter(cache);
    aoticache_status status = aoticache_cache_check_writable(cache, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_flush(cache, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index *index = aoticache_cache_index(cache);
    do
        status = aoticache_index_zero_statistics(index, aoticache_wall_ns(), ret_error);
    while (aoticache_cache_recovered(cache, status, &index));
    return aoticache_cache_index_result(status, ret_error);
}
