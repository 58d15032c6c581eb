/*
 * cache/gc/clock: collecting under a clock that may be wrong. Ages are told by the wall clock, which people, dead
 * batteries and virtual machines set to anything.
 *
 * A last use in the future was recorded by a clock that was ahead. It counts as now, and is written so: else the entry
 * would outlive every limit.
 *
 * A clock that is ahead now makes everything look old. What the machine itself has seen tells that: every collection
 * records what the clock and the uptime were, and by how much the clock has gone on since beyond the uptime is time that
 * the machine did not see pass. Where it did not, and nearly all entries would go for that time alone, none goes for its
 * age; limits of size hold as ever, since they need the order of last use only. A machine that was off for so long looks
 * the same: then a person says that the clock is right (options.trust_clock).
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "cache/gc/collection.h"

#define MENDED_AT_ONCE 1000
#define UNSEEN_NS (INT64_C(7) * 24 * 3600 * 1000000000) /* less is a weekend, and clocks that differ a little */
#define LEAST_ENTRIES 32                               /* fewer are soon compiled again */
#define STAYING_PART 10                                /* nearly all: less than a tenth stays */

/* Names in the index. */
#define RECORDED_WALL "collected_ns"
#define RECORDED_UPTIME "collected_uptime_ns"
#define RECORDED_BOOT "collected_boot"

struct moment {
    int64_t wall_ns;
    int64_t uptime_ns; /* of the machine, suspended or not; 0: not known */
    int64_t boot;      /* a number for this start of the machine; 0: not known */
};

static bool read_text(const char *path, char *ret_text, size_t size)
{
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, ret_text, size - 1) : -1;
    ret_text[got > 0 ? got : 0] = '\0';
    return got > 0;
}

/* From the kernel's files, not by clock_gettime(): what wraps a program to show it another time leaves them alone. */
static struct moment read_moment(void)
{
    struct moment moment = {.wall_ns = aoticache_wall_ns()};
    char text[128], *end;
    if (read_text("/proc/uptime", text, sizeof text)) {
        long long seconds = strtoll(text, &end, 10);
        if (end != text && seconds > 0 && seconds < INT64_MAX / 1000000000)
            moment.uptime_ns = seconds * 1000000000;
    }
    if (read_text("/proc/sys/kernel/random/boot_id", text, sizeof text)) {
        uint64_t number = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
        for (const char *at = text; *at != '\0'; at++)
            number = (number ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
        moment.boot = (int64_t)(number >> 1);
    }
    return moment;
}

/* How far the clock has gone on beyond what the machine has seen pass. */
static int64_t unseen_ns(const struct moment *last, const struct moment *now)
{
    bool is_same_start = last->boot == now->boot && now->boot != 0;
    int64_t seen = is_same_start ? now->uptime_ns - last->uptime_ns : now->uptime_ns;
    int64_t passed = now->wall_ns - last->wall_ns;
    seen = seen > 0 ? seen : 0;
    return passed > seen ? passed - seen : 0;
}

/* The last collection; where there was none, the last use of any entry, at which some machine was there, too. */
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

/* Of the entries that are not overdue but for `unseen`: whether nearly all are, with it. */
static aoticache_status judge(aoticache_collection *collection, int64_t unseen, aoticache_error *ret_error)
{
    const uint64_t age = collection->max_age_seconds;
    uint64_t fresh = 0, staying = 0;
    if (age > (uint64_t)collection->now_ns / 1000000000)
        return AOTICACHE_OK; /* nothing can be so old */
    const int64_t due_ns = collection->now_ns - (int64_t)age * 1000000000;
    aoticache_status status =
        aoticache_index_count_used_since(collection->index, due_ns - unseen, &fresh, ret_error);
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
    /* A full disk: they are the last to go, which frees room as well. */
    return aoticache_index_is_out_of_space(collection->index) ? AOTICACHE_OK : status;
}

aoticache_status aoticache_collection_check_clock(aoticache_collection *collection, aoticache_error *ret_error)
{
    const aoticache_collect_options *options = collection->options;
    struct moment last, now = read_moment();
    aoticache_status status = AOTICACHE_OK;
    if (!options->dry_run)
        status = mend_uses(collection, ret_error);
    if (status != AOTICACHE_OK || collection->is_step || options->trust_clock || collection->max_age_seconds == UINT64_MAX)
        return status;
    status = read_last(collection->index, &last, ret_error);
    if (status != AOTICACHE_OK || unseen_ns(&last, &now) < UNSEEN_NS)
        return status;
    collection->report.previous_ns = last.wall_ns;
    collection->report.clock_ns = now.wall_ns;
    return judge(collection, unseen_ns(&last, &now), ret_error);
}

/* Without it the next collection knows less, so that a failure is nobody's business. Killed in between: the next one
 * takes the time for seen. */
void aoticache_collection_record_clock(aoticache_collection *collection)
{
    const struct moment now = read_moment();
    if (aoticache_index_write_meta(collection->index, RECORDED_WALL, now.wall_ns, NULL) == AOTICACHE_OK &&
        aoticache_index_write_meta(collection->index, RECORDED_UPTIME, now.uptime_ns, NULL) == AOTICACHE_OK)
        aoticache_index_write_meta(collection->index, RECORDED_BOOT, now.boot, NULL);
}
