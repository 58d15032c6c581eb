/*
 * cache/gc/collect: removes what nobody uses, until the cache is within its limits.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_CACHE_GC_COLLECT_H
#define AOTICACHE_CACHE_GC_COLLECT_H

#include "cache/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Which entries go first where a limit is exceeded, after those whose kernels were slower than the host's own on every machine
 * that judged them. Entries that are too old go in any case.
 */
typedef enum aoticache_collect_policy {
    AOTICACHE_COLLECT_LRU = 0, /* the least recently used */
    /* What is cheapest to compile again: the score is bytes x idle nanoseconds / compile nanoseconds (one millisecond at
     * least). It compares the 4096 least recently used; when a quarter of these has gone, the next 1024 join them. */
    AOTICACHE_COLLECT_COST = 1,
} aoticache_collect_policy;

/*
 * Bytes are lengths of objects, each counted once however many entries or hard links it has; not blocks of the file system,
 * and not the index. min_free_bytes and min_free_share are of the file system, for the user who collects (statvfs,
 * f_bavail); what is missing is subtracted from the bytes that the cache may have, after leftovers and all of quarantine/ have
 * gone (unless quarantine_age_seconds is UINT64_MAX).
 */
typedef struct aoticache_collect_options {
    size_t size;              /* sizeof this struct, set by the initializer */
    uint64_t max_bytes;       /* 0 or UINT64_MAX: no limit */
    uint64_t max_age_seconds; /* since last use; 0 or UINT64_MAX: no limit */
    bool dry_run;             /* the same choice and the same numbers; nothing is changed, not even what has no entry */
    uint64_t max_entries;     /* likewise */
    uint64_t low_bytes;       /* once max_bytes is crossed, collect down to this; 0, or above max_bytes: to max_bytes */
    uint64_t low_entries;     /* likewise */
    uint64_t min_free_bytes;  /* that the file system shall have free; 0: any */
    double min_free_share;    /* 0.05: a twentieth of the file system; 0: any. The larger of the two holds */
    aoticache_collect_policy policy;
    const char *const
        *keep; /* shell patterns (fnmatch(3), no flags) of operators that stay, NULL-terminated; may be NULL */
    uint64_t time_limit_ms;          /* stop after so long, with what was done, at least one batch; 0: no limit */
    uint64_t quarantine_age_seconds; /* remove what has been in quarantine/ for longer; 0: 30 days; UINT64_MAX: never */
    /* Look through the whole store for objects and directories that no entry names. Otherwise a store of more than 2000
     * objects is looked through a part at a time, for about three milliseconds; each collection goes on where the last
     * stopped. */
    bool scan;
    /* Give free pages of the index back to the file system, a megabyte at a time. An index whose tables were made before
     * version 3 gives none until it is rebuilt. */
    bool vacuum;
    /* Called between batches with the entries removed so far and an estimate of all that are to go; `user` is the
     * collection's. Return false to stop. May be NULL. */
    bool (*progress)(void *user, uint64_t done, uint64_t all);
    /* Remove entries for their age whatever the clock says. Otherwise no entry is removed for its age (report.refused) when
     * two things hold: since the last collection the clock has advanced by a week or more beyond what the machine was
     * running; and of the entries that are not overdue without that time (32 at least), less than a tenth would stay. */
    bool trust_clock;
} aoticache_collect_options;

#ifdef __cplusplus
static inline aoticache_collect_options aoticache_collect_options_init()
{
    aoticache_collect_options made = AOTICACHE_SIZED_INIT(aoticache_collect_options);
    made.max_bytes = UINT64_MAX;
    made.max_age_seconds = UINT64_MAX;
    return made;
}
#define AOTICACHE_COLLECT_OPTIONS_INIT aoticache_collect_options_init()
#else
#define AOTICACHE_COLLECT_OPTIONS_INIT \
    {.size = sizeof(aoticache_collect_options), .max_bytes = UINT64_MAX, .max_age_seconds = UINT64_MAX}
#endif

typedef struct aoticache_collect_report {
    uint64_t entries_before, bytes_before; /* what the index names, and what was found beside it */
    uint64_t entries_after,
        bytes_after; /* the same, less what this collection removed; concurrent puts are not counted */
    uint64_t entries_removed, objects_removed, bytes_removed;
    uint64_t held; /* entries that were due and stay, because a live process holds them */
    uint64_t
        leftovers; /* temporary files, leases and directories of dead processes that were removed; 0 in a dry run */
    uint64_t pinned, kept;     /* entries that were due and stay: pinned (cache/pins/pins.h); of an operator to keep */
    uint64_t failures_removed; /* remembered failures that might have been tried again */
    uint64_t quarantine_removed; /* old files of quarantine/ */
    uint64_t vacuumed_bytes;
    /* the time limit, or the caller, stopped it before it was done; or the index was replaced meanwhile */
    bool is_partial;
    /* How many entries were due for their age and stay, because the clock went from previous_ns (the last collection, or else
     * the last use of any entry) to clock_ns faster than time can have passed (options.trust_clock). If it is not 0, no file
     * of quarantine/ was removed either; all else was done. */
    uint64_t refused;
    int64_t previous_ns, clock_ns;
} aoticache_collect_report;

/*
 * Removes what an earlier collection that was killed left to remove; entries that were not used for max_age; then entries
 * by the policy until max_bytes, max_entries and the free space hold; then objects that no entry names, leftovers of dead
 * processes, remembered failures whose time is over, and old files of quarantine/. An entry goes before its objects. An
 * object that an entry names or a live process holds stays, and so does an entry that is used while it is being chosen.
 *
 * The cost depends on what is removed, not on what the cache holds; memory is bounded. Entries that are due and stay
 * (pinned, kept, held) are looked at each time.
 *
 * Safe at any time beside any number of readers, writers and collectors, and killed at any instant. callback (may be NULL)
 * sees each entry that was removed (dry_run: would be), without any lock; returning false stops the collection.
 *
 * options: NULL for the defaults. ret_report: may be NULL.
 * Locks:   the store, exclusively, and the index for writing, for about five milliseconds at a time, waiting up to the
 *          cache's lock_timeout_ms for each.
 * Returns: OK, INVALID, LOCKED (another collector is at work; without waiting), IO (also where a lock of the store or of
 *          the index could not be had in time), NO_MEMORY, DENIED (read-only, but for a dry run).
 */
AOTICACHE_API aoticache_status aoticache_cache_collect(aoticache_cache *cache, const aoticache_collect_options *options,
                                                       aoticache_entry_fn callback, void *user,
                                                       aoticache_collect_report *ret_report,
                                                       aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
