/*
 * cache/stats/flush: counting in memory, and adding what was counted to the index in one transaction. What could
 * not be written is taken back, so that a number is counted once, whatever fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/state.h"
#include "cache/stats/internal.h"

#define FLUSH_AFTER_NS UINT64_C(30000000000)
#define FLUSH_AFTER_ENTRIES 4096
#define FLUSH_PAUSE_NS UINT64_C(100000000) /* between tries of a flush for many entries */
#define LAST_WAIT_MS 1000 /* at the end: numbers are not worth the time-out of a lock, which a stopped process may hold */
#define MISS_PAUSE_NS UINT64_C(10000000) /* between flushes for misses: others want to write, too */
/* Names in memory that await their flush (three for each operator): more are counted as others. */
#define MAX_NAMES 3072

_Static_assert((int)AOTICACHE_HISTOGRAM_CAPACITY == (int)AOTICACHE_INDEX_BUCKETS, "the index keeps all buckets");

/* ---- what is not flushed ---- */

aoticache_unflushed *aoticache_unflushed_create(void)
{
    aoticache_unflushed *unflushed = calloc(1, sizeof *unflushed);
    if (unflushed == NULL)
        return NULL;
    atomic_init(&unflushed->flushed_ns, aoticache_monotonic_ns());
    unflushed->flush_after_ns = FLUSH_AFTER_NS;
    return unflushed;
}

void aoticache_unflushed_free(aoticache_unflushed *unflushed)
{
    if (unflushed == NULL)
        return;
    aoticache_index_sums_free(&unflushed->sums);
    free(unflushed);
}

void aoticache_unflushed_reset(aoticache_unflushed *unflushed)
{
    for (size_t i = 0; i < AOTICACHE_LATENCY_COUNT; i++)
        aoticache_histogram_clear(&unflushed->histograms[i]);
    /* Not freed: the parent's thread may have been inside. */
    unflushed->sums = (aoticache_index_sums){.slots = NULL};
}

/* ---- counting ---- */

void aoticache_cache_count(aoticache_cache *cache, aoticache_counter counter, uint64_t value)
{
    atomic_fetch_add_explicit(&cache->counters[counter], value, memory_order_relaxed);
}

const char *aoticache_cache_counter_name(aoticache_counter counter)
{
    static const char *const names[] = {
#define COUNTER_NAME(member, name, text) name,
        AOTICACHE_COUNTER_LIST(COUNTER_NAME)
#undef COUNTER_NAME
    };
    return names[counter];
}

const char *aoticache_latency_name(aoticache_latency_kind kind)
{
    static const char *const names[] = {
#define LATENCY_NAME(name, text) #name,
        AOTICACHE_LATENCY_LIST(LATENCY_NAME)
#undef LATENCY_NAME
    };
    return (unsigned)kind < AOTICACHE_LATENCY_COUNT ? names[kind] : NULL;
}

void aoticache_cache_note_latency(aoticache_cache *cache, aoticache_latency_kind kind, uint64_t ns)
{
    aoticache_histogram_note(&cache->unflushed->histograms[kind], ns);
}

void aoticache_cache_note_load(aoticache_cache *cache, uint64_t ns)
{
    if (cache == NULL)
        return;
    aoticache_cache_enter(cache);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_loads, 1);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_load_ns, ns);
    aoticache_cache_note_latency(cache, AOTICACHE_LATENCY_load, ns);
}

void aoticache_cache_note_eviction(aoticache_cache *cache, uint64_t age_ns, uint64_t bytes)
{
    aoticache_cache_count(cache, AOTICACHE_COUNTER_evicted, 1);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_evicted_bytes, bytes);
    aoticache_cache_note_latency(cache, AOTICACHE_LATENCY_eviction_age, age_ns);
}

void aoticache_cache_note_tally(aoticache_cache *cache, aoticache_index_tally tally)
{
    if (cache->directory->read_only)
        return;
    tally.last_used_ns = aoticache_wall_ns();
    pthread_mutex_lock(&cache->recency_mutex);
    aoticache_recency_add(&cache->recency, &tally);
    pthread_mutex_unlock(&cache->recency_mutex);
}

/* Nothing is added to saved_ns: the lookup that loaded the runner has saved its compile, these calls save no other. */
void aoticache_cache_note_use(aoticache_cache *cache, int64_t entry_id, uint64_t uses)
{
    if (cache == NULL || entry_id == 0 || uses == 0)
        return;
    aoticache_cache_enter(cache);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_hits, uses);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_hits_loaded, uses);
    aoticache_cache_note_tally(cache, (aoticache_index_tally){.entry_id = entry_id, .uses = uses, .hits = uses});
}

/* "pytorch 2.13.0"; a version that is a digest says nothing to people, and every source has another. */
static void format_environment(const aoticache_request *request, char *ret_text, size_t size)
{
    const char *framework = aoticache_request_get_environment(request, "framework");
    const char *version = aoticache_request_get_environment(request, "framework_version");
    bool is_readable = version != NULL && version[0] != '\0' && strlen(version) <= 32;
    snprintf(ret_text, size, "%.160s%s%s", framework != NULL ? framework : "(none)", is_readable ? " " : "",
             is_readable ? version : "");
}

void aoticache_cache_note_group(aoticache_cache *cache, const aoticache_request *request,
                                const aoticache_index_group *group)
{
    char environment[200], device[AOTICACHE_DEVICE_TEXT_BYTES];
    aoticache_index_sums *sums = &cache->unflushed->sums;
    if (cache->directory->read_only)
        return;
    if (request != NULL) {
        format_environment(request, environment, sizeof environment);
        aoticache_device_format(aoticache_request_device(request), device);
    }
    pthread_mutex_lock(&cache->recency_mutex);
    bool is_known = request != NULL && sums->count < MAX_NAMES;
    aoticache_index_sums_add(sums, is_known ? aoticache_request_op(request) : NULL, is_known ? device : NULL,
                             is_known ? environment : NULL, group, NULL);
    pthread_mutex_unlock(&cache->recency_mutex);
}

void aoticache_cache_add_unflushed(aoticache_cache *cache, aoticache_counters *counters)
{
#define ADD_COUNTER(member, name, text) \
    counters->member += atomic_load_explicit(&cache->counters[AOTICACHE_COUNTER_##member], memory_order_relaxed);
    AOTICACHE_COUNTER_LIST(ADD_COUNTER)
#undef ADD_COUNTER
}

/* ---- flushing ---- */

/* What was taken out of a cache to be written. */
typedef struct batch {
    aoticache_index_count counts[AOTICACHE_COUNTER_COUNT];
    aoticache_counter counters[AOTICACHE_COUNTER_COUNT]; /* which each of them is */
    size_t count;
    aoticache_index_tally *tallies;
    size_t tally_count;
    aoticache_index_sums sums;
    aoticache_distribution distributions[AOTICACHE_LATENCY_COUNT];
    aoticache_index_histogram histograms[AOTICACHE_LATENCY_COUNT];
    aoticache_latency_kind kinds[AOTICACHE_LATENCY_COUNT];
    size_t histogram_count;
} batch;

static void take_counts(aoticache_cache *cache, batch *taken)
{
    for (int i = 0; i < AOTICACHE_COUNTER_COUNT; i++) {
        uint64_t value = atomic_exchange_explicit(&cache->counters[i], 0, memory_order_relaxed);
        if (value == 0)
            continue;
        taken->counters[taken->count] = i;
        taken->counts[taken->count++] =
            (aoticache_index_count){.name = aoticache_cache_counter_name(i), .value = value};
    }
}

static void take_histograms(aoticache_cache *cache, batch *taken)
{
    for (int i = 0; i < AOTICACHE_LATENCY_COUNT; i++) {
        aoticache_distribution *distribution = &taken->distributions[taken->histogram_count];
        if (!aoticache_histogram_take(&cache->unflushed->histograms[i], distribution))
            continue;
        taken->kinds[taken->histogram_count] = i;
        taken->histograms[taken->histogram_count++] =
            (aoticache_index_histogram){.name = aoticache_latency_name(i),
                                        .sum = distribution->sum,
                                        .maximum = distribution->maximum,
                                        .counts = distribution->counts};
    }
}

static void take(aoticache_cache *cache, batch *taken)
{
    taken->count = taken->histogram_count = 0;
    pthread_mutex_lock(&cache->recency_mutex);
    aoticache_recency_take(&cache->recency, &taken->tallies, &taken->tally_count);
    taken->sums = cache->unflushed->sums;
    cache->unflushed->sums = (aoticache_index_sums){.slots = NULL};
    pthread_mutex_unlock(&cache->recency_mutex);
    take_counts(cache, taken);
    take_histograms(cache, taken);
}

static void give_back(aoticache_cache *cache, const batch *taken)
{
    for (size_t i = 0; i < taken->count; i++)
        aoticache_cache_count(cache, taken->counters[i], taken->counts[i].value);
    for (size_t i = 0; i < taken->histogram_count; i++)
        aoticache_histogram_give_back(&cache->unflushed->histograms[taken->kinds[i]], &taken->distributions[i]);
    pthread_mutex_lock(&cache->recency_mutex);
    for (size_t i = 0; i < taken->tally_count; i++)
        aoticache_recency_add(&cache->recency, &taken->tallies[i]);
    aoticache_index_sums_merge(&cache->unflushed->sums, &taken->sums, NULL);
    pthread_mutex_unlock(&cache->recency_mutex);
}

static aoticache_status write_batch(aoticache_index *index, const batch *taken, uint32_t wait_ms,
                                    aoticache_error *ret_error)
{
    if (taken->count == 0 && taken->tally_count == 0 && taken->histogram_count == 0 && taken->sums.count == 0)
        return AOTICACHE_OK;
    const aoticache_index_deltas deltas = {.now_ns = aoticache_wall_ns(),
                                           .tallies = taken->tallies,
                                           .tally_count = taken->tally_count,
                                           .counts = taken->counts,
                                           .count_count = taken->count,
                                           .histograms = taken->histograms,
                                           .histogram_count = taken->histogram_count,
                                           .sums = &taken->sums,
                                           .max_wait_ms = wait_ms};
    return aoticache_index_flush_deltas(index, &deltas, wait_ms != 0, ret_error);
}

static aoticache_status flush(aoticache_cache *cache, uint32_t wait_ms, aoticache_error *ret_error)
{
    aoticache_index *index = aoticache_cache_index(cache);
    if (index == NULL || cache->directory->read_only)
        return AOTICACHE_OK;
    batch taken;
    take(cache, &taken);
    aoticache_status status = write_batch(index, &taken, wait_ms, ret_error);
    if (status != AOTICACHE_OK)
        give_back(cache, &taken);
    atomic_store_explicit(&cache->unflushed->flushed_ns, aoticache_monotonic_ns(), memory_order_relaxed);
    free(taken.tallies);
    aoticache_index_sums_free(&taken.sums);
    return status;
}

aoticache_status aoticache_cache_flush(aoticache_cache *cache, aoticache_error *ret_error)
{
    if (cache == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_flush: cache is NULL");
    aoticache_cache_enter(cache);
    return flush(cache, UINT32_MAX, ret_error);
}

void aoticache_cache_flush_last(aoticache_cache *cache)
{
    aoticache_error error = {.message = ""};
    aoticache_cache_enter(cache);
    if (flush(cache, LAST_WAIT_MS, &error) == AOTICACHE_LOCKED)
        aoticache_log(&cache->directory->logger, AOTICACHE_LOG_INFO,
                      "%s: what this process counted since it last wrote is lost", error.message);
}

void aoticache_cache_flush_missed(aoticache_cache *cache)
{
    aoticache_unflushed *unflushed = cache->unflushed;
    const uint64_t now_ns = aoticache_monotonic_ns();
    uint64_t missed = atomic_load_explicit(&unflushed->missed_ns, memory_order_relaxed);
    if (missed != 0 && now_ns - missed < MISS_PAUSE_NS)
        return;
    if (atomic_compare_exchange_strong_explicit(&unflushed->missed_ns, &missed, now_ns, memory_order_relaxed,
                                                memory_order_relaxed))
        flush(cache, 0, NULL);
}

static bool has_many(aoticache_cache *cache)
{
    pthread_mutex_lock(&cache->recency_mutex);
    bool many = cache->recency.count >= FLUSH_AFTER_ENTRIES;
    pthread_mutex_unlock(&cache->recency_mutex);
    return many;
}

void aoticache_cache_flush_if_due(aoticache_cache *cache, uint64_t now_ns)
{
    aoticache_unflushed *unflushed = cache->unflushed;
    uint64_t flushed = atomic_load_explicit(&unflushed->flushed_ns, memory_order_relaxed);
    uint64_t passed = now_ns > flushed ? now_ns - flushed : 0;
    if (passed < unflushed->flush_after_ns && (passed < FLUSH_PAUSE_NS || !has_many(cache)))
        return;
    /* Of many threads one does it. */
    if (atomic_compare_exchange_strong_explicit(&unflushed->flushed_ns, &flushed, now_ns, memory_order_relaxed,
                                                memory_order_relaxed))
        flush(cache, 0, NULL);
}
