/*
 * cache/stats/flush: adds counts to the index, in one transaction, and decides when that is due. Counts that could not be
 * written are restored, so that everything is counted exactly once, whatever fails.
 *
 * Counts left at the end of a process are deferred if possible: they wait in a file until a process writes
 * (aoticache_index_defer_deltas()), so that a process that only had hits never writes to the database.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "base/arguments.h"
#include "base/log.h"
#include "cache/eager_face.h"
#include "cache/cache_internal.h"

#define FLUSH_AFTER_ENTRIES 4096
#define FLUSH_PAUSE_NS UINT64_C(100000000) /* between tries of a flush for many entries */
/* On closing: counts are not worth the whole time-out of a lock, which a stopped process may hold. */
#define LAST_WAIT_MS 1000
#define READ_WAIT_MS 100                 /* before reading: no longer than a reader would wait */
#define MISS_PAUSE_NS UINT64_C(10000000) /* between flushes for misses: other processes want to write, too */

_Static_assert((int)AOTICACHE_HISTOGRAM_CAPACITY == (int)AOTICACHE_INDEX_BUCKETS, "the index keeps all buckets");

/* Counts taken out of a cache to be written. */
typedef struct batch {
    aoticache_index_count counts[AOTICACHE_COUNTER_COUNT];
    aoticache_counter counters[AOTICACHE_COUNTER_COUNT]; /* which counter each value belongs to */
    size_t count;
    aoticache_index_tally *tallies;
    size_t tally_count;
    aoticache_index_sums sums;
    aoticache_distribution distributions[AOTICACHE_LATENCY_COUNT];
    aoticache_index_histogram histograms[AOTICACHE_LATENCY_COUNT];
    aoticache_latency_kind kinds[AOTICACHE_LATENCY_COUNT];
    size_t histogram_count;
} batch;

static void drain_counts(aoticache_cache *cache, batch *taken)
{
    for (int i = 0; i < AOTICACHE_COUNTER_COUNT; i++) {
        uint64_t value = atomic_exchange_explicit(&cache->unflushed.counters[i], 0, memory_order_relaxed);
        if (value == 0)
            continue;
        taken->counters[taken->count] = i;
        taken->counts[taken->count++] =
            (aoticache_index_count){.name = aoticache_cache_counter_name(i), .value = value};
    }
}

static void drain_histograms(aoticache_cache *cache, batch *taken)
{
    for (int i = 0; i < AOTICACHE_LATENCY_COUNT; i++) {
        aoticache_distribution *distribution = &taken->distributions[taken->histogram_count];
        aoticache_histogram *histogram = atomic_load(&cache->unflushed.histograms[i]);
        if (histogram == NULL || !aoticache_histogram_take(histogram, distribution))
            continue;
        taken->kinds[taken->histogram_count] = i;
        taken->histograms[taken->histogram_count++] = (aoticache_index_histogram){.name = aoticache_latency_name(i),
                                                                                  .sum = distribution->sum,
                                                                                  .maximum = distribution->maximum,
                                                                                  .counts = distribution->counts};
    }
}

static void drain_batch(aoticache_cache *cache, batch *taken)
{
    taken->count = taken->histogram_count = 0;
    pthread_mutex_lock(&cache->unflushed.mutex);
    aoticache_recency_take(&cache->unflushed.recency, &taken->tallies, &taken->tally_count);
    taken->sums = cache->unflushed.sums;
    cache->unflushed.sums = (aoticache_index_sums){.by_name = {.count = 0}};
    pthread_mutex_unlock(&cache->unflushed.mutex);
    drain_counts(cache, taken);
    drain_histograms(cache, taken);
}

static void return_batch(aoticache_cache *cache, const batch *taken)
{
    for (size_t i = 0; i < taken->count; i++)
        aoticache_cache_count(cache, taken->counters[i], taken->counts[i].value);
    for (size_t i = 0; i < taken->histogram_count; i++)
        aoticache_histogram_give_back(atomic_load(&cache->unflushed.histograms[taken->kinds[i]]),
                                      &taken->distributions[i]);
    pthread_mutex_lock(&cache->unflushed.mutex);
    for (size_t i = 0; i < taken->tally_count; i++)
        aoticache_recency_add(&cache->unflushed.recency, &taken->tallies[i]);
    aoticache_index_sums_merge(&cache->unflushed.sums, &taken->sums, NULL);
    pthread_mutex_unlock(&cache->unflushed.mutex);
}

static bool is_empty(const batch *taken)
{
    return taken->count == 0 && taken->tally_count == 0 && taken->histogram_count == 0 &&
           taken->sums.by_name.count == 0;
}

/* Options of a flush. */
typedef struct flush_options {
    uint32_t wait_ms;     /* for another writer */
    bool defers;          /* if possible */
    bool leaves_deferred; /* of other processes */
} flush_options;

static aoticache_status write_batch(aoticache_index *index, const batch *taken, const flush_options *how,
                                    aoticache_error *ret_error)
{
    if (is_empty(taken) && (how->defers || how->leaves_deferred || !aoticache_index_has_deferred(index)))
        return AOTICACHE_OK;
    const aoticache_index_deltas deltas = {.now_ns = aoticache_wall_ns(),
                                           .tallies = taken->tallies,
                                           .tally_count = taken->tally_count,
                                           .counts = taken->counts,
                                           .count_count = taken->count,
                                           .histograms = taken->histograms,
                                           .histogram_count = taken->histogram_count,
                                           .sums = &taken->sums,
                                           .leaves_deferred = how->leaves_deferred,
                                           .max_wait_ms = how->wait_ms};
    if (how->defers && taken->sums.by_name.count == 0 &&
        aoticache_index_defer_deltas(index, &deltas, NULL) == AOTICACHE_OK)
        return AOTICACHE_OK;
    return aoticache_index_flush_deltas(index, &deltas, how->wait_ms != 0, ret_error);
}

static aoticache_status flush(aoticache_cache *cache, const flush_options *how, aoticache_error *ret_error)
{
    aoticache_index *index = aoticache_cache_index(cache);
    if (index == NULL || cache->directory->read_only)
        return AOTICACHE_OK;
    batch taken;
    drain_batch(cache, &taken);
    aoticache_status status = write_batch(index, &taken, how, ret_error);
    if (status != AOTICACHE_OK)
        return_batch(cache, &taken);
    atomic_store_explicit(&cache->unflushed.flushed_ns, aoticache_monotonic_ns(), memory_order_relaxed);
    free(taken.tallies);
    aoticache_index_sums_free(&taken.sums);
    return status;
}

aoticache_status aoticache_cache_flush(aoticache_cache *cache, aoticache_error *ret_error)
{
    if (cache == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache);
    aoticache_cache_enter(cache);
    return flush(cache, &(flush_options){.wait_ms = UINT32_MAX}, ret_error);
}

void aoticache_cache_flush_deferred(aoticache_cache *cache)
{
    if (cache == NULL)
        return;
    aoticache_cache_enter(cache);
    aoticache_index *index = aoticache_cache_index(cache);
    if (index != NULL && aoticache_index_has_deferred(index))
        flush(cache, &(flush_options){.wait_ms = READ_WAIT_MS}, NULL);
}

void aoticache_cache_flush_last(aoticache_cache *cache)
{
    aoticache_error error = {.message = ""};
    aoticache_cache_enter(cache);
    if (flush(cache, &(flush_options){.wait_ms = LAST_WAIT_MS, .defers = true}, &error) == AOTICACHE_LOCKED)
        aoticache_log(&cache->directory->logger, AOTICACHE_LOG_INFO,
                      "%s: the statistics of this process since its last write are lost", error.message);
}

void aoticache_cache_flush_missed(aoticache_cache *cache)
{
    aoticache_unflushed *unflushed = &cache->unflushed;
    const uint64_t now_ns = aoticache_monotonic_ns();
    uint64_t missed = atomic_load_explicit(&unflushed->missed_ns, memory_order_relaxed);
    if (missed != 0 && now_ns - missed < MISS_PAUSE_NS)
        return;
    if (atomic_compare_exchange_strong_explicit(&unflushed->missed_ns, &missed, now_ns, memory_order_relaxed,
                                                memory_order_relaxed))
        flush(cache, &(flush_options){.wait_ms = 0}, NULL);
}

static bool has_many_entries(aoticache_cache *cache)
{
    pthread_mutex_lock(&cache->unflushed.mutex);
    bool many = cache->unflushed.recency.by_entry.count >= FLUSH_AFTER_ENTRIES;
    pthread_mutex_unlock(&cache->unflushed.mutex);
    return many;
}

void aoticache_cache_flush_if_due(aoticache_cache *cache, uint64_t now_ns)
{
    aoticache_unflushed *unflushed = &cache->unflushed;
    uint64_t flushed = atomic_load_explicit(&unflushed->flushed_ns, memory_order_relaxed);
    uint64_t passed = now_ns > flushed ? now_ns - flushed : 0;
    if (passed < unflushed->flush_after_ns && (passed < FLUSH_PAUSE_NS || !has_many_entries(cache)))
        return;
    /* Only one of many threads flushes. */
    if (atomic_compare_exchange_strong_explicit(&unflushed->flushed_ns, &flushed, now_ns, memory_order_relaxed,
                                                memory_order_relaxed))
        flush(cache, &(flush_options){.wait_ms = 0, .leaves_deferred = true},
              NULL); /* a hit does not wait for other processes' counts */
}

/* ---- counting by the loader and the holder ---- */

void aoticache_cache_note_load(aoticache_cache *cache, uint64_t ns)
{
    if (cache == NULL)
        return;
    aoticache_cache_enter(cache);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_loads, 1);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_load_ns, ns);
    aoticache_cache_note_latency(cache, AOTICACHE_LATENCY_load, ns);
}

/* Counts uses. Nothing is added to saved_ns: the lookup that loaded the runner saved its compile, and these calls save no
 * further one. */
void aoticache_cache_note_use(aoticache_cache *cache, int64_t entry_id, uint64_t uses)
{
    if (cache == NULL || entry_id == 0 || uses == 0)
        return;
    aoticache_cache_enter(cache);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_hits, uses);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_hits_loaded, uses);
    aoticache_cache_note_tally(cache, (aoticache_index_tally){.entry_id = entry_id, .uses = uses, .hits = uses});
}
