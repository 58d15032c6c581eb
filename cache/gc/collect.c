/*
 * cache/gc/collect: the order of a collection's steps, and the small collections of a cache with a budget.
 *
 * A collection removes, in this order: what can be removed without the index, if the file system is nearly full (and the reserve);
 * leftovers of dead processes and all of quarantine/, if it lacks space; files whose rows earlier collections have removed; then
 * entries until the limits are met (choose.c): first those of kernels that are slower than the host's own, then the least
 * recently used or those that cost most; at the end objects that nothing names, leftovers, expired failures and old files in
 * quarantine/.
 */
#include "base/arguments.h"
#include "cache/gc/gc_internal.h"
#include "index/entries/judgements.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/options.h"
#include "cache/entries.h"

#define JUDGEMENTS_NS (INT64_C(30) * 24 * 3600 * 1000000000)
#define FAILURES_AT_ONCE 1000
#define CACHE_KIB (64 << 10)      /* the inner pages of all trees of a large index, and those that a round changes */
#define STEP_CACHE_KIB (16 << 10) /* only the inner pages: it is another program's memory */
#define VACUUM_STEP (UINT64_C(1) << 20)

static aoticache_status remove_entries(aoticache_collection *collection, aoticache_error *ret_error)
{
    aoticache_collection_item *items = calloc(AOTICACHE_COLLECTION_ROUND, sizeof *items);
    size_t count = 0;
    aoticache_status status = AOTICACHE_OK;
    if (items == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    do {
        status = aoticache_collection_choose(collection, items, &count, ret_error);
        if (status != AOTICACHE_OK || count == 0)
            break;
        status = collection->options->dry_run ? aoticache_collection_pretend(collection, items, count, ret_error)
                                              : aoticache_collection_evict(collection, items, count, ret_error);
    } while (status == AOTICACHE_OK && aoticache_collection_poll(collection));
    free(items);
    return status == AOTICACHE_OK ? aoticache_collection_end_round(collection, true, ret_error) : status;
}

static aoticache_status remove_failures(aoticache_collection *collection, aoticache_error *ret_error)
{
    uint64_t expired = 0, forgotten = 0;
    if (!collection->options->dry_run) /* entries left in the window for longer are only scored again */
        aoticache_index_forget_judgements(collection->index, collection->now_ns - JUDGEMENTS_NS, collection->now_ns,
                                          NULL);
    aoticache_status status = aoticache_index_count_expired(collection->index, collection->now_ns, &expired, ret_error);
    if (status != AOTICACHE_OK || collection->options->dry_run) {
        collection->report.failures_removed = expired;
        return status;
    }
    while (status == AOTICACHE_OK && expired > collection->report.failures_removed) {
        status = aoticache_index_forget_expired(collection->index, collection->now_ns, FAILURES_AT_ONCE, &forgotten,
                                                ret_error);
        if (forgotten == 0)
            break;
        collection->report.failures_removed += forgotten;
    }
    return status;
}

static aoticache_status vacuum(aoticache_collection *collection, aoticache_error *ret_error)
{
    uint64_t freed = 0;
    do {
        aoticache_status status = aoticache_index_vacuum_step(collection->index, VACUUM_STEP, &freed, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        collection->report.vacuumed_bytes += freed;
        if (freed > 0)
            aoticache_index_checkpoint(collection->index); /* the file shrinks when the log is merged */
    } while (freed > 0 && aoticache_collection_poll(collection));
    return AOTICACHE_OK;
}

/* Does the removals that are independent of the limits. */
static aoticache_status tidy_up(aoticache_collection *collection, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_collection_scan(collection, ret_error);
    if (status == AOTICACHE_OK && !collection->options->dry_run)
        status = aoticache_cache_remove_leftovers(collection->cache, collection->options->scan,
                                                  &collection->report.leftovers, ret_error);
    if (status == AOTICACHE_OK)
        status = remove_failures(collection, ret_error);
    if (status == AOTICACHE_OK && collection->report.refused == 0 && !collection->has_no_quarantine)
        aoticache_collection_remove_quarantine(collection, false);
    if (status == AOTICACHE_OK && collection->options->vacuum && !collection->options->dry_run)
        status = vacuum(collection, ret_error);
    return status;
}

/* Removes files that no program can use any more before any entry, whatever their age, if the file system lacks space. */
static void free_space_first(aoticache_collection *collection)
{
    if (aoticache_collection_missing_space(collection) == 0)
        return;
    if (!collection->options->dry_run)
        aoticache_cache_remove_leftovers(collection->cache, false, &collection->report.leftovers, NULL);
    aoticache_collection_remove_quarantine(collection, true);
    collection->has_no_quarantine = true;
}

static aoticache_status collect_once(aoticache_collection *collection, aoticache_error *ret_error)
{
    const bool is_dry = collection->options->dry_run, is_step = collection->is_step;
    if (!is_dry && !is_step && aoticache_collection_measure_space(collection) < AOTICACHE_COLLECTION_BATCH)
        aoticache_collection_clear(collection); /* first, because everything else may need the freed space */
    aoticache_status status = aoticache_collection_check_clock(collection, ret_error);
    if (status == AOTICACHE_OK && !is_step)
        free_space_first(collection);
    if (status == AOTICACHE_OK)
        status = aoticache_collection_set_goal(collection, ret_error);
    if (status == AOTICACHE_OK && is_dry)
        status = aoticache_collection_count_waiting(collection, ret_error);
    if (status == AOTICACHE_OK && !is_dry && !is_step)
        status = aoticache_collection_remove_files(collection, true, ret_error);
    if (status == AOTICACHE_OK && !collection->is_stopped)
        status = remove_entries(collection, ret_error);
    if (status == AOTICACHE_OK && !is_dry)
        status = aoticache_collection_forget_done(collection, ret_error);
    if (status == AOTICACHE_OK && !is_step && !collection->is_stopped)
        status = tidy_up(collection, ret_error);
    if (status == AOTICACHE_OK && !is_dry && !is_step && collection->report.refused == 0)
        aoticache_collection_record_clock(collection);
    collection->report.entries_after = collection->report.entries_before - collection->report.entries_removed;
    collection->report.bytes_after = collection->report.bytes_before > collection->report.bytes_removed
                                         ? collection->report.bytes_before - collection->report.bytes_removed
                                         : 0;
    if (!is_dry)
        aoticache_cache_count(collection->cache, AOTICACHE_COUNTER_evicted_bytes, collection->report.bytes_removed);
    if (status == AOTICACHE_OK && collection->remover.file_status != AOTICACHE_OK)
        status = aoticache_error_set(ret_error, collection->remover.file_status, "%s",
                                     collection->remover.file_error.message);
    return status;
}

static void begin(aoticache_collection *collection)
{
    uint64_t limit_ms = collection->options->time_limit_ms, age = collection->options->max_age_seconds;
    collection->max_age_seconds = age != 0 ? age : UINT64_MAX;
    collection->begun_ns = aoticache_monotonic_ns();
    collection->now_ns = aoticache_wall_ns();
    collection->deadline_ns =
        limit_ms == 0 || limit_ms > INT64_MAX / 1000000 ? UINT64_MAX : collection->begun_ns + limit_ms * 1000000u;
    collection->read_used_ns = INT64_MIN;
    collection->remover =
        (aoticache_remover){.cache = collection->cache, .has_one_thread = collection->is_step, .last_id = INT64_MIN};
}

/* Collects with the current index, and once more if it turns out to be damaged and is rebuilt. */
static aoticache_status collect_with_index(aoticache_collection *collection, aoticache_error *ret_error)
{
    const aoticache_collection blank = *collection;
    aoticache_cache *cache = collection->cache;
    aoticache_index *index = aoticache_cache_index(cache);
    aoticache_status status = AOTICACHE_OK;
    if (index == NULL)
        return AOTICACHE_OK;
    do {
        *collection = blank;
        begin(collection);
        collection->index = index;
        aoticache_index_prepare_collection(index, collection->is_step ? STEP_CACHE_KIB : CACHE_KIB);
        status = collect_once(collection, ret_error);
        aoticache_collection_close_remover(collection);
        aoticache_index_prepare_collection(index, 0);
        free(collection->window);
        free(collection->done);
        aoticache_collection_free_dry(collection);
    } while (aoticache_cache_recovered(cache, status, &index));
    return status;
}

/* Runs a collection. is_step: only removes entries and their objects. */
static aoticache_status run_collection(aoticache_cache *cache, const aoticache_collect_options *options, bool is_step,
                                       aoticache_entry_fn callback, void *user, aoticache_collect_report *ret_report,
                                       aoticache_error *ret_error)
{
    aoticache_collection collection = {
        .cache = cache, .options = options, .callback = callback, .user = user, .is_step = is_step};
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    aoticache_status status = AOTICACHE_OK;
    if (!options->dry_run) {
        status = aoticache_cache_check_writable(cache, ret_error);
        if (status == AOTICACHE_OK)
            status = aoticache_lock_collector(cache->directory, &lock, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    aoticache_index *index = aoticache_cache_index(cache);
    aoticache_cache_refreshed(cache, &index);
    if (!is_step)
        aoticache_cache_flush(cache, NULL);
    else
        aoticache_cache_flush_deferred(cache); /* recent uses influence which entries are removed */
    status = collect_with_index(&collection, ret_error);
    if (!is_step && !options->dry_run)
        aoticache_cache_flush(cache, NULL);
    aoticache_lock_release(&lock);
    if (status == AOTICACHE_OK && !is_step && !options->dry_run)
        aoticache_reserve_keep(cache);
    if (status == AOTICACHE_OK)
        *ret_report = collection.report;
    if (status != AOTICACHE_CORRUPT && status != AOTICACHE_LOCKED)
        return status;
    if (ret_error != NULL) /* LOCKED only means that another collector is at work */
        ret_error->status = AOTICACHE_IO;
    return AOTICACHE_IO;
}

static aoticache_status check_options(const aoticache_collect_options *options, aoticache_error *ret_error)
{
    if (options->policy != AOTICACHE_COLLECT_LRU && options->policy != AOTICACHE_COLLECT_COST)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "collect: unknown policy %d", (int)options->policy);
    if (!(options->min_free_share >= 0 && options->min_free_share < 1))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "collect: min_free_share is %g; it must be at least 0 and less than 1",
                                   options->min_free_share);
    return AOTICACHE_OK;
}

aoticache_status aoticache_cache_collect(aoticache_cache *cache, const aoticache_collect_options *options,
                                         aoticache_entry_fn callback, void *user, aoticache_collect_report *ret_report,
                                         aoticache_error *ret_error)
{
    aoticache_collect_report report = {.entries_before = 0};
    aoticache_collect_options chosen;
    aoticache_status status =
        AOTICACHE_OPTIONS_READ(aoticache_collect_options, AOTICACHE_COLLECT_OPTIONS_INIT, options, &chosen, ret_error);
    if (status == AOTICACHE_OK && cache == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache);
    if (status == AOTICACHE_OK)
        status = check_options(&chosen, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_cache_enter(cache);
    status = run_collection(cache, &chosen, false, callback, user, &report, ret_error);
    if (status == AOTICACHE_OK && ret_report != NULL)
        *ret_report = report;
    return status;
}

/*
 * ---- enforcing the budget ----
 *
 * A put, or a batch of an import, that makes the store larger than the budget collects, and so does every put after it until
 * the store is below nine tenths: each for a few milliseconds beyond what the budget itself requires, so that no put waits
 * for the whole collection. Lookups never collect.
 */

#define STEP_MS 10
#define PAUSE_NS \
    UINT64_C(1000000000) /* after a step that could not free anything: all remaining entries are held, kept or pinned */

/* Returns the low watermark; 0: no limit. */
static uint64_t low_watermark(uint64_t high)
{
    return high - high / 10;
}

static bool is_above(const aoticache_index_totals *totals, uint64_t bytes, uint64_t entries)
{
    return (bytes != 0 && totals->bytes > bytes) || (entries != 0 && totals->entries > entries);
}

/* Collects down to the low watermark as far as time allows, or to the budget however long that takes. */
static aoticache_status run_step(aoticache_cache *cache, bool down_to_low, aoticache_collect_report *ret_report)
{
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    if (cache->max_bytes != 0)
        options.max_bytes = down_to_low ? low_watermark(cache->max_bytes) : cache->max_bytes;
    if (cache->max_entries != 0)
        options.max_entries = down_to_low ? low_watermark(cache->max_entries) : cache->max_entries;
    options.time_limit_ms = down_to_low ? STEP_MS : 0;
    return run_collection(cache, &options, true, NULL, NULL, ret_report, NULL);
}

static void shrink(aoticache_cache *cache, aoticache_index *index, const aoticache_index_totals *before)
{
    aoticache_collect_report report = {.entries_before = 0};
    aoticache_index_totals totals = *before;
    aoticache_status status = run_step(cache, true, &report);
    if (status == AOTICACHE_OK)
        status = aoticache_index_read_totals(index, &totals, NULL);
    /* A single artifact may be too large for the step's time. */
    if (status == AOTICACHE_OK && report.is_partial && is_above(&totals, cache->max_bytes, cache->max_entries)) {
        status = run_step(cache, false, &report);
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
