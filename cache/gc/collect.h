/*
 * cache/gc/collect: removes unused entries until the cache is within its limits.
 *
 * Users include <aoticache/admin.h>.
 */
#ifndef AOTICACHE_CACHE_GC_COLLECT_H
#define AOTICACHE_CACHE_GC_COLLECT_H

#include "cache/cache.h"
#include "cache/entries.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Which entries are removed first if a limit is exceeded, after those whose kernels were slower than the host's own on every
 * machine that timed them. Entries that are too old are removed in any case.
 */
typedef enum aoticache_collect_policy {
    AOTICACHE_COLLECT_LRU = 0, /* the least recently used */
    /* Entries that are cheap to recompile first: the score is bytes x idle nanoseconds / compile nanoseconds (at least one
     * millisecond). It compares the 4096 least recently used; after a quarter of these is removed, the next 1024 join them. */
    AOTICACHE_COLLECT_COST = 1,
} aoticache_collect_policy;

/*
 * Bytes are the lengths of objects, each counted once however many entries or hard links it has, without the index; they are
 * not file system blocks. min_free_bytes and min_free_share refer to the file system, for the user who runs the collection
 * (statvfs, f_bavail). If free space is missing, leftovers and all of quarantine/ are removed (unless quarantine_age_seconds
 * is UINT64_MAX), and what is still missing is subtracted from the bytes that the cache may have.
 */
typedef struct aoticache_collect_options {
    size_t size;              /* sizeof this struct, set by the initializer */
    uint64_t max_bytes;       /* 0 or UINT64_MAX: no limit */
    uint64_t max_age_seconds; /* since last use; 0 or UINT64_MAX: no limit */
    bool dry_run;         /* same choice and same numbers, but nothing is changed, not even objects without an entry */
    uint64_t max_entries; /* 0 or UINT64_MAX: no limit */
    uint64_t low_bytes;   /* if max_bytes is exceeded, collect down to this; 0, or above max_bytes: to max_bytes */
    uint64_t low_entries; /* the same for max_entries */
    uint64_t min_free_bytes; /* free bytes that the file system must have; 0: no minimum */
    double min_free_share;   /* 0.05: a twentieth of the file system; 0: no minimum. The larger of the two applies */
    aoticache_collect_policy policy;
    const char *const
        *keep; /* shell patterns (fnmatch(3), no flags) of operators to keep, NULL-terminated; may be NULL */
    uint64_t time_limit_ms; /* stop after this time, but complete at least one batch; 0: no limit */
    /* Remove files that have been in quarantine/ for longer than this. 0: 30 days; UINT64_MAX: never. */
    uint64_t quarantine_age_seconds;
    /* Search the whole store for objects and directories that no entry names. Otherwise a store of more than 2000 objects is
     * searched a part at a time, for about three milliseconds; each collection continues at the position of the last one. */
    bool scan;
    /* Give free pages of the index back to the file system, a megabyte at a time. An index whose tables were created before
     * version 3 gives none back until it is rebuilt. */
    bool vacuum;
    /* Called between batches with the entries removed so far and an estimate of the total to remove; `user` is the
     * argument of aoticache_cache_collect(). Return false to stop. May be NULL. */
    bool (*progress)(void *user, uint64_t done, uint64_t all);
    /* Remove entries for their age whatever the clock says. Otherwise no entry is removed for its age (report.refused) if
     * both of these are true: since the last collection the clock has advanced at least a week more than the machine
     * was running; and that extra time alone makes too old more than nine tenths of the entries that would otherwise
     * stay (if these are at least 32). */
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
    uint64_t entries_before, bytes_before; /* entries in the index and objects in the store */
    uint64_t entries_after,
        bytes_after; /* the same, less what this collection removed; concurrent puts are not counted */
    uint64_t entries_removed, objects_removed, bytes_removed;
    uint64_t held;               /* entries that were due and stay because a live process holds them */
    uint64_t leftovers;          /* removed temporary files, leases and directories of dead processes; 0 in a dry run */
    uint64_t pinned, kept;       /* entries that were due and stay: pinned (cache/pins/pins.h); matched by `keep` */
    uint64_t failures_removed;   /* remembered failures whose retry time had passed */
    uint64_t quarantine_removed; /* old files of quarantine/ */
    uint64_t vacuumed_bytes;
    /* stopped early by the time limit or the caller, or because the index was replaced meanwhile */
    bool is_partial;
    /* How many entries were due for their age and stay, because the clock went from previous_ns (the last collection, or
     * otherwise the last use of any entry) to clock_ns faster than time can have passed (options.trust_clock). If it is not
     * 0, no file of quarantine/ was removed either; everything else was done. */
    uint64_t refused;
    int64_t previous_ns, clock_ns;
} aoticache_collect_report;

/*
 * Removes in this order: what an earlier, killed collection left to remove; entries that were not used for max_age; entries
 * by the policy until max_bytes, max_entries and the free space hold; then objects that no entry names, leftovers of dead
 * processes, expired remembered failures, and old files of quarantine/. An entry is removed before its objects. An object
 * that an entry names or a live process holds stays, and so does an entry that is used while it is being chosen.
 *
 * The cost depends on what is removed, not on what the cache holds; memory is bounded. Entries that are due and stay
 * (pinned, kept, held) are examined each time.
 *
 * It is safe at any time concurrently with any number of readers, writers and collectors, and may be killed at any instant.
 * callback (may be NULL) receives each entry that was removed (dry_run: would be removed), without any lock held; returning
 * false stops the collection.
 *
 * options: NULL for the defaults. ret_report: may be NULL.
 * Locks:   the store, exclusively, and the index for writing, for about five milliseconds at a time, waiting up to the
 *          cache's lock_timeout_ms for each.
 * Returns: OK, INVALID, LOCKED (another collector is at work; this function does not wait for it), IO (also if a lock of
 *          the store or the index could not be acquired in time), NO_MEMORY, DENIED (read-only, except for a dry run).
 */
AOTICACHE_API aoticache_status aoticache_cache_collect(aoticache_cache *cache, const aoticache_collect_options *options,
                                                       aoticache_entry_fn callback, void *user,
                                                       aoticache_collect_report *ret_report,
                                                       aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
