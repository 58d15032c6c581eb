/*
 * cache/stats/count: what one cache counts in memory until it is flushed: counters, latencies, used entries, and sums of
 * requests without an entry. Nothing here uses the index.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/names.h"
#include "cache/cache_internal.h"

/* Names of operators, devices and environments that await their flush. Further names count as "(other)". */
#define MAX_NAMES 3072

/* ---- recency ---- */

static const aoticache_hash_map_type tally_type = {.item_size = sizeof(aoticache_index_tally),
                                                   .key_size = sizeof(int64_t)}; /* entry_id */
_Static_assert(offsetof(aoticache_index_tally, entry_id) == 0, "a tally begins with its key");

bool aoticache_recency_add(aoticache_recency *recency, const aoticache_index_tally *tally)
{
    bool is_new;
    aoticache_index_tally *sum =
        tally->entry_id != 0 ? aoticache_hash_map_add(&recency->by_entry, &tally_type, &tally->entry_id, &is_new)
                             : NULL;
    if (sum == NULL)
        return false;
    sum->uses += tally->uses;
    sum->hits += tally->hits;
    sum->misses += tally->misses;
    sum->compiles += tally->compiles;
    sum->compile_ns += tally->compile_ns;
    sum->saved_ns += tally->saved_ns;
    if (tally->last_used_ns > sum->last_used_ns)
        sum->last_used_ns = tally->last_used_ns;
    return true;
}

static void recency_free(aoticache_recency *recency)
{
    aoticache_hash_map_free(&recency->by_entry);
}

void aoticache_recency_take(aoticache_recency *recency, aoticache_index_tally **ret_tallies, size_t *ret_count)
{
    *ret_tallies = recency->by_entry.items;
    *ret_count = recency->by_entry.count;
    recency->by_entry.items = NULL;
    recency_free(recency);
}

/* ---- counts that are not flushed ---- */

void aoticache_unflushed_init(aoticache_unflushed *unflushed)
{
    pthread_mutex_init(&unflushed->mutex, NULL);
    atomic_init(&unflushed->flushed_ns, aoticache_monotonic_ns());
    unflushed->flush_after_ns = AOTICACHE_FLUSH_AFTER_NS;
}

void aoticache_unflushed_clear(aoticache_unflushed *unflushed)
{
    recency_free(&unflushed->recency);
    aoticache_index_sums_free(&unflushed->sums);
    aoticache_hash_map_free(&unflushed->spared);
    aoticache_hash_map_free(&unflushed->damaged);
    for (size_t i = 0; i < AOTICACHE_LATENCY_COUNT; i++)
        free(atomic_load(&unflushed->histograms[i]));
    pthread_mutex_destroy(&unflushed->mutex);
}

void aoticache_unflushed_reset_after_fork(aoticache_unflushed *unflushed)
{
    /* Another thread of the parent may have held the mutex at the fork. No thread of the child does. */
    pthread_mutex_init(&unflushed->mutex, NULL);
    for (size_t i = 0; i < AOTICACHE_COUNTER_COUNT; i++)
        atomic_store(&unflushed->counters[i], 0);
    for (size_t i = 0; i < AOTICACHE_LATENCY_COUNT; i++) {
        aoticache_histogram *histogram = atomic_load(&unflushed->histograms[i]);
        if (histogram != NULL)
            aoticache_histogram_clear(histogram);
    }
    /* These are not freed: a thread of the parent may have been changing them at the fork. */
    unflushed->recency = (aoticache_recency){.by_entry = {.count = 0}};
    unflushed->sums = (aoticache_index_sums){.by_name = {.count = 0}};
    unflushed->spared = (aoticache_hash_map){.count = 0};
    unflushed->damaged = (aoticache_hash_map){.count = 0};
}

/* ---- counting ---- */

void aoticache_cache_count(aoticache_cache *cache, aoticache_counter counter, uint64_t value)
{
    atomic_fetch_add_explicit(&cache->unflushed.counters[counter], value, memory_order_relaxed);
}

const char *aoticache_cache_counter_name(aoticache_counter counter)
{
    static const char *const names[] = {
#define COUNTER_NAME(name, text) #name,
        AOTICACHE_COUNTER_LIST(COUNTER_NAME)
#undef COUNTER_NAME
    };
    return names[counter];
}

/* Returns NULL if memory is short. */
static aoticache_histogram *histogram_of(aoticache_unflushed *unflushed, aoticache_latency_kind kind)
{
    aoticache_histogram *histogram = atomic_load_explicit(&unflushed->histograms[kind], memory_order_acquire);
    if (histogram != NULL)
        return histogram;
    aoticache_histogram *made = calloc(1, sizeof *made);
    if (made != NULL && !atomic_compare_exchange_strong(&unflushed->histograms[kind], &histogram, made))
        free(made); /* another thread was first, and `histogram` is now its histogram */
    return histogram != NULL ? histogram : made;
}

void aoticache_cache_note_latency(aoticache_cache *cache, aoticache_latency_kind kind, uint64_t ns)
{
    aoticache_histogram *histogram = histogram_of(&cache->unflushed, kind);
    if (histogram != NULL) /* if memory is short, it is not counted */
        aoticache_histogram_note(histogram, ns);
}

static const aoticache_hash_map_type digests_type = {.item_size = sizeof(aoticache_digest),
                                                     .key_size = sizeof(aoticache_digest)};

/* Adds a digest to a set. Returns false if it is in the set, or memory is short. */
static bool add_digest(aoticache_unflushed *unflushed, aoticache_hash_map *set, const aoticache_digest *digest)
{
    bool is_new;
    pthread_mutex_lock(&unflushed->mutex);
    void *added = aoticache_hash_map_add(set, &digests_type, digest, &is_new);
    pthread_mutex_unlock(&unflushed->mutex);
    return added != NULL && is_new;
}

uint64_t aoticache_cache_spare(aoticache_cache *cache, const aoticache_digest *artifact, uint64_t compile_ns)
{
    return add_digest(&cache->unflushed, &cache->unflushed.spared, artifact) ? compile_ns : 0;
}

void aoticache_cache_note_damaged(aoticache_cache *cache, const aoticache_digest *object)
{
    if (add_digest(&cache->unflushed, &cache->unflushed.damaged, object))
        aoticache_cache_count(cache, AOTICACHE_COUNTER_damaged, 1);
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
    pthread_mutex_lock(&cache->unflushed.mutex);
    aoticache_recency_add(&cache->unflushed.recency, &tally);
    pthread_mutex_unlock(&cache->unflushed.mutex);
}

/* Writes "pytorch 2.13.0"; a version that is a digest is left out: it means nothing to users, and every source has another. */
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
    aoticache_index_sums *sums = &cache->unflushed.sums;
    if (cache->directory->read_only)
        return;
    if (request != NULL) {
        format_environment(request, environment, sizeof environment);
        aoticache_device_format(aoticache_request_device(request), device);
    }
    pthread_mutex_lock(&cache->unflushed.mutex);
    bool is_known = request != NULL && sums->by_name.count < MAX_NAMES;
    aoticache_index_sums_add(sums, is_known ? aoticache_request_op(request) : NULL, is_known ? device : NULL,
                             is_known ? environment : NULL, group, NULL);
    pthread_mutex_unlock(&cache->unflushed.mutex);
}

void aoticache_cache_add_unflushed(aoticache_cache *cache, aoticache_counters *counters)
{
#define ADD_COUNTER(name, text) \
    counters->name += atomic_load_explicit(&cache->unflushed.counters[AOTICACHE_COUNTER_##name], memory_order_relaxed);
    AOTICACHE_COUNTER_LIST(ADD_COUNTER)
#undef ADD_COUNTER
}
