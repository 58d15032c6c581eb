/*
 * cache/gc/collect: throwing away what nobody uses: what a collection does in which order. collection.h says how.
 */
#include "cache/gc/collection.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/options.h"
#include "base/syscalls.h"
#include "cache/store/lock.h"

#define FAILURES_AT_ONCE 1000
#define CACHE_KIB (64 << 10)      /* the inner pages of all trees of a large index, and those that a round changes */
#define STEP_CACHE_KIB (16 << 10) /* the former: it is another program's memory */
#define VACUUM_STEP (UINT64_C(1) << 20)
#define QUARANTINE_SECONDS (UINT64_C(30) * 24 * 3600)

static uint64_t entries_to_go(const aoticache_collection *collection)
{
    uint64_t entries = 0, by_bytes = 0;
    if (collection->first_entries > collection->wanted_entries)
        entries = collection->first_entries - collection->wanted_entries;
    if (collection->first_bytes > collection->wanted_bytes)
        by_bytes = (uint64_t)((double)(collection->first_bytes - collection->wanted_bytes) /
                              ((double)collection->first_bytes / (double)(collection->first_entries + 1)));
    entries = entries > by_bytes ? entries : by_bytes;
    return entries > collection->report.entries_removed ? entries : collection->report.entries_removed;
}

bool aoticache_collection_goes_on(aoticache_collection *collection)
{
    const aoticache_collect_options *options = collection->options;
    if (collection->is_stopped)
        return false;
    bool stops = aoticache_monotonic_ns() >= collection->deadline_ns;
    if (!stops && options->progress != NULL)
        stops = !options->progress(collection->user, collection->report.entries_removed, entries_to_go(collection));
    if (stops)
        collection->is_stopped = collection->report.is_partial = true;
    return !stops;
}

/* ---- what it is to come to ---- */

static uint64_t wanted(uint64_t is, uint64_t high, uint64_t low)
{
    if (is <= high)
        return UINT64_MAX;
    return low != 0 && low < high ? low : high;
}

/* Bytes that have to go so that the file system has as much free as it shall. */
static uint64_t missing_room(const aoticache_collection *collection)
{
    const aoticache_collect_options *options = collection->options;
    struct statvfs filesystem;
    if ((options->min_free_bytes == 0 && options->min_free_share <= 0) ||
        fstatvfs(collection->cache->directory->fd, &filesystem) != 0)
        return 0;
    double unit = (double)filesystem.f_frsize;
    double least = options->min_free_share * (double)filesystem.f_blocks * unit;
    if ((double)options->min_free_bytes > least)
        least = (double)options->min_free_bytes;
    if (atomic_load(&collection->cache->has_given_up_reserve)) /* for a moment: its room is to be had again */
        least += (double)AOTICACHE_RESERVE_BYTES;
    double missing = least - (double)filesystem.f_bavail * unit;
    return missing > 0 ? (uint64_t)missing + 1 : 0;
}

static aoticache_status set_goal(aoticache_collection *collection, aoticache_error *ret_error)
{
    const aoticache_collect_options *options = collection->options;
    aoticache_index_totals totals;
    aoticache_status status = aoticache_index_read_totals(collection->index, &totals, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    collection->entries = collection->first_entries = totals.entries;
    collection->bytes = collection->first_bytes = totals.bytes;
    collection->report.entries_before = totals.entries;
    collection->report.bytes_before = totals.bytes;
    collection->wanted_bytes =
        options->max_bytes == 0 ? UINT64_MAX : wanted(totals.bytes, options->max_bytes, options->low_bytes);
    collection->wanted_entries =
        options->max_entries == 0 ? UINT64_MAX : wanted(totals.entries, options->max_entries, options->low_entries);
    uint64_t missing = missing_room(collection);
    uint64_t left = totals.bytes > missing ? totals.bytes - missing : 0;
    if (missing > 0 && left < collection->wanted_bytes)
        collection->wanted_bytes = left;
    return AOTICACHE_OK;
}

/* ---- the parts ---- */

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
    } while (status == AOTICACHE_OK && aoticache_collection_goes_on(collection));
    free(items);
    return status == AOTICACHE_OK ? aoticache_collection_end_round(collection, true, ret_error) : status;
}

static aoticache_status remove_failures(aoticache_collection *collection, aoticache_error *ret_error)
{
    uint64_t expired = 0, forgotten = 0;
    aoticache_status status =
        aoticache_index_count_expired(collection->index, collection->now_ns, &expired, ret_error);
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

/* Names in quarantine/ end with the time at which they came there: where that is, in `name`; NULL: it has none. */
static const char *find_time(const char *name, int64_t *ret_ns)
{
    const char *dash = strrchr(name, '-');
    char *end = NULL;
    long long ns = dash != NULL ? strtoll(dash + 1, &end, 10) : 0;
    if (ns <= 0 || end == NULL || *end != '\0')
        return NULL;
    *ret_ns = ns;
    return dash;
}

static int64_t quarantined_ns(int folder, const char *name)
{
    struct stat found;
    int64_t ns;
    if (find_time(name, &ns) != NULL)
        return ns;
    return fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) == 0 ? (int64_t)found.st_ctime * 1000000000 : INT64_MAX;
}

/* What came there in the future has come now: else it would stay until then. */
static void mend_time(const aoticache_collection *collection, int folder, const char *name)
{
    char mended[NAME_MAX + 1];
    int64_t ns;
    const char *dash = find_time(name, &ns);
    int label = dash != NULL ? (int)(dash - name) : 200;
    snprintf(mended, sizeof mended, "%.*s-%lld", label, name, (long long)collection->now_ns);
    if (!collection->options->dry_run)
        aoticache_syscall_renameat(folder, name, folder, mended);
}

void aoticache_collection_remove_quarantine(aoticache_collection *collection)
{
    uint64_t seconds = collection->options->quarantine_age_seconds;
    int fd = -1;
    if (seconds == UINT64_MAX || aoticache_directory_open_folder(collection->cache->directory, AOTICACHE_QUARANTINE, false,
                                                                 &fd, NULL) != AOTICACHE_OK)
        return;
    seconds = seconds == 0 ? QUARANTINE_SECONDS : seconds;
    cleanup_dir DIR *listing = fdopendir(fd);
    if (listing == NULL) {
        close(fd);
        return;
    }
    for (struct dirent *item; (item = readdir(listing)) != NULL;) {
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0)
            continue;
        int64_t came = quarantined_ns(dirfd(listing), item->d_name);
        if (came > collection->now_ns)
            mend_time(collection, dirfd(listing), item->d_name);
        if (came >= collection->now_ns || (uint64_t)(collection->now_ns - came) / 1000000000u < seconds)
            continue;
        if (collection->options->dry_run || aoticache_directory_remove_tree(dirfd(listing), item->d_name) == 0)
            collection->report.quarantine_removed++;
    }
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
    } while (freed > 0 && aoticache_collection_goes_on(collection));
    return AOTICACHE_OK;
}

/* What has nothing to do with limits. */
static aoticache_status tidy_up(aoticache_collection *collection, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_collection_scan(collection, ret_error);
    if (status == AOTICACHE_OK && !collection->options->dry_run)
        status = aoticache_cache_remove_leftovers(collection->cache, collection->options->scan,
                                                  &collection->report.leftovers, ret_error);
    if (status == AOTICACHE_OK)
        status = remove_failures(collection, ret_error);
    if (status == AOTICACHE_OK && collection->report.refused == 0)
        aoticache_collection_remove_quarantine(collection);
    if (status == AOTICACHE_OK && collection->options->vacuum && !collection->options->dry_run)
        status = vacuum(collection, ret_error);
    return status;
}

static aoticache_status work(aoticache_collection *collection, aoticache_error *ret_error)
{
    const bool is_dry = collection->options->dry_run, is_step = collection->is_step;
    if (!is_dry && !is_step && aoticache_collection_room(collection) < AOTICACHE_COLLECTION_BATCH)
        aoticache_collection_clear(collection); /* first, as all else may need what it frees */
    aoticache_status status = aoticache_collection_check_clock(collection, ret_error);
    if (status == AOTICACHE_OK)
        status = set_goal(collection, ret_error);
    if (status == AOTICACHE_OK && is_dry)
        status = aoticache_collection_count_waiting(collection, ret_error);
    collection->is_backlog = true;
    if (status == AOTICACHE_OK && !is_dry && !is_step)
        status = aoticache_collection_remove_waiting(collection, ret_error);
    collection->is_backlog = false;
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
    if (status == AOTICACHE_OK && collection->late_status != AOTICACHE_OK)
        status = aoticache_error_set(ret_error, collection->late_status, "%s", collection->late_error.message);
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
    collection->read_used_ns = collection->removal_id = INT64_MIN;
}

/* On the index that is there now; once more where that turned out to be damaged and was built anew. */
static aoticache_status work_on_index(aoticache_collection *collection, aoticache_error *ret_error)
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
        status = work(collection, ret_error);
        aoticache_collection_end_flights(collection);
        aoticache_index_prepare_collection(index, 0);
        free(collection->window);
        free(collection->done);
        aoticache_thread_pool_free(collection->pool);
        aoticache_collection_free_dry(collection);
    } while (aoticache_cache_recovered(cache, status, &index));
    return status;
}

aoticache_status aoticache_collection_run(aoticache_cache *cache, const aoticache_collect_options *options, bool is_step,
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
    status = work_on_index(&collection, ret_error);
    if (!is_step && !options->dry_run)
        aoticache_cache_flush(cache, NULL);
    aoticache_lock_release(&lock);
    if (status == AOTICACHE_OK && !is_step && !options->dry_run)
        aoticache_reserve_keep(cache);
    if (status == AOTICACHE_OK)
        *ret_report = collection.report;
    if (status != AOTICACHE_CORRUPT && status != AOTICACHE_LOCKED)
        return status;
    if (ret_error != NULL) /* LOCKED says that another collector is at work, nothing else */
        ret_error->status = AOTICACHE_IO;
    return AOTICACHE_IO;
}

static aoticache_status check_options(const aoticache_collect_options *options, aoticache_error *ret_error)
{
    if (options->policy != AOTICACHE_COLLECT_LRU && options->policy != AOTICACHE_COLLECT_COST)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "collect: there is no policy %d", (int)options->policy);
    if (!(options->min_free_share >= 0 && options->min_free_share < 1))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "collect: min_free_share is %g; it is a share, from 0 to less than 1",
                                   options->min_free_share);
    return AOTICACHE_OK;
}

aoticache_status aoticache_cache_collect(aoticache_cache *cache, const aoticache_collect_options *options,
                                         aoticache_entry_fn callback, void *user,
                                         aoticache_collect_report *ret_report, aoticache_error *ret_error)
{
    aoticache_collect_report report = {.entries_before = 0};
    aoticache_collect_options chosen;
    aoticache_status status = AOTICACHE_OPTIONS_READ(aoticache_collect_options, AOTICACHE_COLLECT_OPTIONS_INIT, options,
                                                     &chosen, ret_error);
    if (status == AOTICACHE_OK && cache == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_collect: cache is NULL");
    if (status == AOTICACHE_OK)
        status = check_options(&chosen, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_cache_enter(cache);
    status = aoticache_collection_run(cache, &chosen, false, callback, user, &report, ret_error);
    if (status == AOTICACHE_OK && ret_report != NULL)
        *ret_report = report;
    return status;
}
