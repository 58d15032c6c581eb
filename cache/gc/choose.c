/*
 * cache/gc/choose: the goal of a collection, and which entries are due.
 *
 * If a limit is exceeded, entries whose kernels were slower than the host's own on every machine that timed them are evicted
 * first. Then a window of the least recently used entries is read from the index and sorted, and its first entries are
 * evicted as long as they are due. With policy = cost, entries with the highest bytes x idle time / compile time come first.
 * Scoring every entry would mean reading the whole index, so only the WINDOW_COST least recently used are scored, and the
 * quarter with the highest scores is evicted before the window is refilled. This limits memory and never evicts entries that
 * were used recently.
 */
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "cache/gc/gc_internal.h"

#define WINDOW_LRU AOTICACHE_COLLECTION_ROUND
#define WINDOW_STEP 512
#define WINDOW_COST 4096
#define LEAST_COMPILE_NS 1e6 /* a compile time of zero would make the score infinite */

#define MENDED_AT_ONCE 1000
#define UNSEEN_NS (INT64_C(7) * 24 * 3600 * 1000000000) /* less is a weekend, or clocks that differ a little */
#define LEAST_ENTRIES 32                                /* fewer entries are soon recompiled */
#define STAYING_PART 10                                 /* nearly all: less than a tenth stays */

/* Names under which the index keeps the records of the last collection. */
#define RECORDED_WALL "collected_ns"
#define RECORDED_UPTIME "collected_uptime_ns"
#define RECORDED_BOOT "collected_boot"

/* ---- the goal ---- */

static uint64_t limit_of(uint64_t is, uint64_t high, uint64_t low)
{
    if (is <= high)
        return UINT64_MAX;
    return low != 0 && low < high ? low : high;
}

uint64_t aoticache_collection_missing_space(const aoticache_collection *collection)
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
    if (atomic_load(&collection->cache->has_given_up_reserve)) /* temporarily: its space will be needed again */
        least += (double)AOTICACHE_RESERVE_BYTES;
    double missing = least - (double)filesystem.f_bavail * unit - (double)collection->found_bytes;
    return missing > 0 ? (uint64_t)missing + 1 : 0;
}

aoticache_status aoticache_collection_set_goal(aoticache_collection *collection, aoticache_error *ret_error)
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
        options->max_bytes == 0 ? UINT64_MAX : limit_of(totals.bytes, options->max_bytes, options->low_bytes);
    collection->wanted_entries =
        options->max_entries == 0 ? UINT64_MAX : limit_of(totals.entries, options->max_entries, options->low_entries);
    uint64_t missing = aoticache_collection_missing_space(collection);
    uint64_t left = totals.bytes > missing ? totals.bytes - missing : 0;
    if (missing > 0 && left < collection->wanted_bytes)
        collection->wanted_bytes = left;
    return AOTICACHE_OK;
}

/* Estimates the number of entries to remove, for the caller's progress. */
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

bool aoticache_collection_poll(aoticache_collection *collection)
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

/* ---- the window ---- */

static bool is_over(const aoticache_collection *collection)
{
    return collection->bytes > collection->wanted_bytes || collection->entries > collection->wanted_entries;
}

static bool is_old(const aoticache_collection *collection, int64_t last_used_ns)
{
    uint64_t limit = collection->max_age_seconds;
    return limit != UINT64_MAX && collection->now_ns > last_used_ns &&
           (uint64_t)(collection->now_ns - last_used_ns) / 1000000000u >= limit;
}

static bool is_kept(const aoticache_collection *collection, const char *op)
{
    for (const char *const *pattern = collection->options->keep; pattern != NULL && *pattern != NULL; pattern++)
        if (fnmatch(*pattern, op, 0) == 0)
            return true;
    return false;
}

static double score_of(const aoticache_collection *collection, const aoticache_index_candidate *candidate)
{
    double age =
        collection->now_ns > candidate->last_used_ns ? (double)(collection->now_ns - candidate->last_used_ns) : 0;
    double compile = (double)candidate->compile_ns;
    if (candidate->is_lost || is_old(collection, candidate->last_used_ns))
        return HUGE_VAL;
    if (collection->options->policy != AOTICACHE_COLLECT_COST)
        return 0; /* no score: the order of last use decides */
    return (double)candidate->bytes * age / (compile > LEAST_COMPILE_NS ? compile : LEAST_COMPILE_NS);
}

/* Returns the FNV-1a hash of an operator's name. */
static uint64_t number_of(const char *op)
{
    uint64_t number = UINT64_C(0xcbf29ce484222325);
    for (; *op != '\0'; op++)
        number = (number ^ (unsigned char)*op) * UINT64_C(0x100000001b3);
    return number;
}

static void add_item(aoticache_collection *collection, const aoticache_index_candidate *candidate)
{
    collection->window[collection->window_count++] =
        (aoticache_collection_item){.entry_id = candidate->entry_id,
                                    .last_used_ns = candidate->last_used_ns,
                                    .key = candidate->key,
                                    .bytes = candidate->bytes,
                                    .op = number_of(candidate->op),
                                    .score = score_of(collection, candidate),
                                    .is_pinned = candidate->is_pinned,
                                    .is_kept = is_kept(collection, candidate->op),
                                    .is_lost = candidate->is_lost};
}

static bool add_lost(void *user, const aoticache_index_candidate *candidate)
{
    aoticache_collection *collection = user;
    collection->seen++;
    add_item(collection, candidate);
    collection->lost_key = candidate->key;
    collection->lost_id = candidate->entry_id;
    return true;
}

static bool add_candidate(void *user, const aoticache_index_candidate *candidate)
{
    aoticache_collection *collection = user;
    collection->seen++;
    if (!is_over(collection) && !is_old(collection, candidate->last_used_ns)) {
        collection->is_read = true; /* all following entries were used later */
        return false;
    }
    if (!candidate->is_lost || !collection->is_lost_listed) /* otherwise it was listed already */
        add_item(collection, candidate);
    collection->read_used_ns = candidate->last_used_ns;
    collection->read_id = candidate->entry_id;
    return true;
}

static int by_order(const void *a, const void *b)
{
    const aoticache_collection_item *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->last_used_ns != y->last_used_ns)
        return x->last_used_ns < y->last_used_ns ? -1 : 1;
    return (x->entry_id > y->entry_id) - (x->entry_id < y->entry_id);
}

static bool needs_filling(const aoticache_collection *collection)
{
    size_t left = collection->window_count - collection->window_next;
    bool by_cost = collection->options->policy == AOTICACHE_COLLECT_COST;
    return !collection->is_read && left <= (by_cost ? collection->window_capacity / 4 * 3 : 0);
}

/* Fills the window with entries of slower kernels, which nothing calls: they are removed before all others. If no limit is
 * exceeded they stay until they are old. */
static aoticache_status fill_with_lost(aoticache_collection *collection, size_t wanted, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    collection->is_lost_listed |= is_over(collection);
    if (is_over(collection))
        status = aoticache_index_list_lost(collection->index, &collection->lost_key, collection->lost_id, wanted,
                                           add_lost, collection, ret_error);
    collection->is_lost_read = collection->seen < wanted;
    return status;
}

static aoticache_status fill_window(aoticache_collection *collection, aoticache_error *ret_error)
{
    bool by_cost = collection->options->policy == AOTICACHE_COLLECT_COST;
    if (collection->window == NULL) {
        collection->window_capacity = by_cost ? WINDOW_COST : collection->is_step ? WINDOW_STEP : WINDOW_LRU;
        collection->window = calloc(collection->window_capacity, sizeof *collection->window);
        if (collection->window == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    }
    collection->window_count -= collection->window_next;
    memmove(collection->window, collection->window + collection->window_next,
            collection->window_count * sizeof *collection->window);
    collection->window_next = 0;
    size_t wanted = collection->window_capacity - collection->window_count;
    collection->seen = 0;
    if (!collection->is_lost_read)
        return fill_with_lost(collection, wanted, ret_error);
    aoticache_status status = aoticache_index_list_candidates(
        collection->index, collection->read_used_ns, collection->read_id, wanted, add_candidate, collection, ret_error);
    if (status == AOTICACHE_OK && collection->seen < wanted)
        collection->is_read = true;
    if (status == AOTICACHE_OK && by_cost)
        qsort(collection->window, collection->window_count, sizeof *collection->window, by_order);
    return status;
}

/* Sizes are those of whole artifacts, so if several entries share objects, this chooses too few entries, but never too many. */
static bool is_due(const aoticache_collection *collection, const aoticache_collection_item *item, uint64_t chosen,
                   uint64_t chosen_bytes)
{
    uint64_t bytes = collection->bytes > chosen_bytes ? collection->bytes - chosen_bytes : 0;
    uint64_t entries = collection->entries > chosen ? collection->entries - chosen : 0;
    return bytes > collection->wanted_bytes || entries > collection->wanted_entries ||
           is_old(collection, item->last_used_ns);
}

aoticache_status aoticache_collection_choose(aoticache_collection *collection, aoticache_collection_item *ret_items,
                                             size_t *ret_count, aoticache_error *ret_error)
{
    size_t count = 0;
    uint64_t bytes = 0;
    while (count < AOTICACHE_COLLECTION_ROUND) {
        if (needs_filling(collection) && count == 0) {
            aoticache_status status = fill_window(collection, ret_error);
            if (status != AOTICACHE_OK)
                return status;
        }
        if (collection->window_next == collection->window_count) {
            if (collection->is_read || count > 0)
                break;
            continue;
        }
        const aoticache_collection_item *item = &collection->window[collection->window_next];
        bool due = is_due(collection, item, count, bytes);
        if (!due && !item->is_lost) /* entries after one of a slower kernel may be older */
            break;
        collection->window_next++;
        if (!due)
            continue;
        if (item->is_pinned || item->is_kept) {
            *(item->is_pinned ? &collection->report.pinned : &collection->report.kept) += 1;
            continue;
        }
        ret_items[count++] = *item;
        bytes += item->bytes;
    }
    *ret_count = count;
    return AOTICACHE_OK;
}

/*
 * ---- the clock ----
 *
 * Ages are computed with the wall clock, which users, dead batteries and virtual machines can set to any time.
 *
 * A last use in the future was recorded by a clock that was ahead. It counts as now, and is written as now: otherwise the
 * entry would outlive every limit.
 *
 * A clock that is ahead now makes everything look old. To detect that, every collection records the clock and the uptime. If
 * the clock has advanced since then by more than the uptime, the difference is time during which the machine was not
 * running. If nearly all entries would be removed only because of that time, none is removed for its age; limits of size
 * still apply, because they need only the order of last use. A machine that was off for that long looks the same: the user
 * then has to confirm that the clock is right (options.trust_clock).
 */

struct moment {
    int64_t wall_ns;
    int64_t uptime_ns; /* of the machine, suspended or not; 0: not known */
    int64_t boot;      /* base/clock.h */
};

static bool read_text(const char *path, char *ret_text, size_t size)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, ret_text, size - 1) : -1;
    ret_text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* Reads the kernel's files instead of clock_gettime(): wrappers that show a program another time do not change them. */
static struct moment read_moment(void)
{
    struct moment moment = {.wall_ns = aoticache_wall_ns()};
    char text[128], *end;
    if (read_text("/proc/uptime", text, sizeof text)) {
        long long seconds = strtoll(text, &end, 10);
        if (end != text && seconds > 0 && seconds < INT64_MAX / 1000000000)
            moment.uptime_ns = seconds * 1000000000;
    }
    moment.boot = aoticache_boot_number();
    return moment;
}

/* Returns how far the clock has advanced beyond the time that the machine was running. */
static int64_t unseen_ns(const struct moment *last, const struct moment *now)
{
    bool is_same_start = last->boot == now->boot && now->boot != 0;
    int64_t seen = is_same_start ? now->uptime_ns - last->uptime_ns : now->uptime_ns;
    int64_t passed = now->wall_ns - last->wall_ns;
    seen = seen > 0 ? seen : 0;
    return passed > seen ? passed - seen : 0;
}

/* Gives the last collection; if there was none, the last use of any entry, because some machine was running then, too. */
static aoticache_status read_last(aoticache_index *index, struct moment *ret_last, aoticache_error *ret_error)
{
    struct moment last = {.wall_ns = 0};
    aoticache_status status = aoticache_index_read_meta(index, RECORDED_WALL, &last.wall_ns, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_read_meta(index, RECORDED_UPTIME, &last.uptime_ns, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_read_meta(index, RECORDED_BOOT, &last.boot, ret_error);
    if (status == AOTICACHE_OK && last.wall_ns == 0)
        status = aoticache_index_newest_use(index, &last.wall_ns, ret_error);
    if (status == AOTICACHE_OK)
        *ret_last = last;
    return status;
}

/* Drops the age limit if nearly all the entries that are not overdue without the time `unseen` are overdue with it. */
static aoticache_status judge_clock(aoticache_collection *collection, int64_t unseen, aoticache_error *ret_error)
{
    const uint64_t age = collection->max_age_seconds;
    uint64_t fresh = 0, staying = 0;
    if (age > (uint64_t)collection->now_ns / 1000000000)
        return AOTICACHE_OK; /* nothing can be that old */
    const int64_t due_ns = collection->now_ns - (int64_t)age * 1000000000;
    aoticache_status status = aoticache_index_count_used_since(collection->index, due_ns - unseen, &fresh, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_count_used_since(collection->index, due_ns, &staying, ret_error);
    if (status != AOTICACHE_OK || fresh < LEAST_ENTRIES || staying * STAYING_PART >= fresh)
        return status;
    collection->report.refused = fresh - staying;
    collection->max_age_seconds = UINT64_MAX;
    return AOTICACHE_OK;
}

static aoticache_status mend_uses(aoticache_collection *collection, aoticache_error *ret_error)
{
    uint64_t newer = 0;
    aoticache_status status =
        aoticache_index_count_used_since(collection->index, collection->now_ns, &newer, ret_error);
    while (status == AOTICACHE_OK && newer > 0) {
        status = aoticache_index_mend_uses(collection->index, collection->now_ns, MENDED_AT_ONCE, &newer, ret_error);
        if (newer < MENDED_AT_ONCE)
            break;
    }
    /* On a full disk this may fail: entries used in the future are then evicted last, and evictions free space as well. */
    return aoticache_index_is_out_of_space(collection->index) ? AOTICACHE_OK : status;
}

aoticache_status aoticache_collection_check_clock(aoticache_collection *collection, aoticache_error *ret_error)
{
    const aoticache_collect_options *options = collection->options;
    struct moment last, now = read_moment();
    aoticache_status status = AOTICACHE_OK;
    if (!options->dry_run)
        status = mend_uses(collection, ret_error);
    if (status != AOTICACHE_OK || collection->is_step || options->trust_clock ||
        collection->max_age_seconds == UINT64_MAX)
        return status;
    status = read_last(collection->index, &last, ret_error);
    if (status != AOTICACHE_OK || unseen_ns(&last, &now) < UNSEEN_NS)
        return status;
    collection->report.previous_ns = last.wall_ns;
    collection->report.clock_ns = now.wall_ns;
    return judge_clock(collection, unseen_ns(&last, &now), ret_error);
}

/* Records the clock. A failure is not reported: without the record the next collection merely knows less. If a process is
 * killed between the writes, the next collection trusts the time. */
void aoticache_collection_record_clock(aoticache_collection *collection)
{
    const struct moment now = read_moment();
    if (aoticache_index_write_meta(collection->index, RECORDED_WALL, now.wall_ns, NULL) == AOTICACHE_OK &&
        aoticache_index_write_meta(collection->index, RECORDED_UPTIME, now.uptime_ns, NULL) == AOTICACHE_OK)
        aoticache_index_write_meta(collection->index, RECORDED_BOOT, now.boot, NULL);
}
