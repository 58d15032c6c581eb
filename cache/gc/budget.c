/*
 * cache/gc/budget: the cache that keeps itself small. A put, or a batch of an import, that makes the store larger
 * than the budget collects, and so does every put after it until the store is below nine tenths: each for a few
 * milliseconds beyond what the budget itself asks for, so that no put waits for all of it. Lookups never come here.
 */
#include "cache/gc/collection.h"

#define STEP_MS 10
#define PAUSE_NS UINT64_C(1000000000) /* after a step that could free nothing: all that is left is held, kept or pinned */

/* 0: no limit. */
static uint64_t low_watermark(uint64_t high)
{
    return high - high / 10;
}

static bool is_above(const aoticache_index_totals *totals, uint64_t bytes, uint64_t entries)
{
    return (bytes != 0 && totals->bytes > bytes) || (entries != 0 && totals->entries > entries);
}

/* Down to the low watermark as far as there is time, or to the budget however long that takes. */
static aoticache_status step(aoticache_cache *cache, bool down_to_low, aoticache_collect_report *ret_report)
{
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    if (cache->max_bytes != 0)
        options.max_bytes = down_to_low ? low_watermark(cache->max_bytes) : cache->max_bytes;
    if (cache->max_entries != 0)
        options.max_entries = down_to_low ? low_watermark(cache->max_entries) : cache->max_entries;
    options.time_limit_ms = down_to_low ? STEP_MS : 0;
    return aoticache_collection_run(cache, &options, true, NULL, NULL, ret_report, NULL);
}

static void shrink(aoticache_cache *cache, aoticache_index *index, const aoticache_index_totals *before)
{
    aoticache_collect_report report = {.entries_before = 0};
    aoticache_index_totals totals = *before;
    aoticache_status status = step(cache, true, &report);
    if (status == AOTICACHE_OK)
        status = aoticache_index_read_totals(index, &totals, NULL);
    /* A single artifact may have been larger than what fits into the time. */
    if (status == AOTICACHE_OK && report.is_partial && is_above(&totals, cache->max_bytes, cache->max_entries)) {
        status = step(cache, false, &report);
        if (status == AOTICACHE_OK)
            status = aoticache_index_read_totals(index, &totals, NULL);
    }
    bool is_low = !is_above(&totals, low_watermark(cache->max_bytes), low_watermark(cache->max_entries));
    atomic_store(&cache->is_shrinking, status == AOTICACHE_LOCKED || !is_low);
    if (status != AOTICACHE_LOCKED && report.entries_removed == 0)
        atomic_store(&cache->shrink_after_ns, aoticache_monotonic_ns() + PAUSE_NS);
}

void aoticache_cache_keep_budget(aoticache_cache *cache)
{
    aoticache_index *index = aoticache_cache_index(cache);
    aoticache_index_totals totals;
    if ((cache->max_bytes == 0 && cache->max_entries == 0) || index == NULL || cache->directory->read_only ||
        aoticache_monotonic_ns() < atomic_load(&cache->shrink_after_ns) ||
        aoticache_index_read_totals(index, &totals, NULL) != AOTICACHE_OK)
        return;
    bool is_shrinking = atomic_load(&cache->is_shrinking);
    uint64_t bytes = is_shrinking ? low_watermark(cache->max_bytes) : cache->max_bytes;
    uint64_t entries = is_shrinking ? low_watermark(cache->max_entries) : cache->max_entries;
    if (is_above(&totals, bytes, entries))
        shrink(cache, index, &totals);
    else
        atomic_store(&cache->is_shrinking, false);
}
