/*
 * cache/verify/verify: checks whether the store is sound, and repairs it.
 *
 * Users include <aoticache/admin.h>.
 */
#ifndef AOTICACHE_CACHE_VERIFY_VERIFY_H
#define AOTICACHE_CACHE_VERIFY_VERIFY_H

#include "cache/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aoticache_verify_options {
    size_t size; /* sizeof this struct, set by the initializer */
    /* Damaged and foreign files go to quarantine/, entries that cannot be served are removed, entries of manifests that the
     * index lacks are restored; a damaged index is rebuilt from the manifests. */
    bool repair;
    /* Check only names, owners, modes and sizes, and run SQLite's quick check; no object is read, so damage that keeps the
     * size, and entries that the index lost, are not found. */
    bool quick;
    /* Continue where an earlier verification was stopped (by the time limit, the caller, a kill). Starts from the
     * beginning if there was none, if only one of the two is quick, or if only one repairs and the earlier one found
     * problems. */
    bool resume;
    uint32_t jobs;          /* objects read concurrently; 0: the number of processors that this process may use */
    uint64_t time_limit_ms; /* stop after this time; 0: no limit */
} aoticache_verify_options;

#define AOTICACHE_VERIFY_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_verify_options)

/* name, what it counts. A resumed verification has the sums of all its parts. */
#define AOTICACHE_VERIFY_COUNT_LIST(X)                                                                           \
    X(objects, "objects examined")                                                                               \
    X(bytes, "their bytes")                                                                                      \
    X(damaged, "objects whose bytes do not hash to their name, or of another size; the index, if it is damaged") \
    X(missing, "objects that an entry names but that do not exist")                                              \
    X(foreign, "files that do not belong here: symbolic links, other owners, unexpected names")                  \
    X(unindexed, "manifests without an entry")                                                                   \
    X(wrong_entries, "entries that differ from their manifest")                                                  \
    X(wrong_links, "directories in artifacts/ whose files are not those of the artifact")                        \
    X(wrong_marks, "files in marks/ that are damaged")                                                           \
    X(wrong_signatures, "signatures that are damaged, revoked or for another entry; revoked entries")            \
    X(unreferenced, "objects that no entry names: a collection removes them")                                    \
    X(repaired, "of all these: repaired")                                                                        \
    X(unreadable, "files and directories that could not be examined: no permission, or the disk fails")

typedef struct aoticache_verify_report {
    uint64_t entries; /* in the index, at the end */
#define AOTICACHE_VERIFY_FIELD(name, text) uint64_t name;
    AOTICACHE_VERIFY_COUNT_LIST(AOTICACHE_VERIFY_FIELD)
#undef AOTICACHE_VERIFY_FIELD
    uint64_t resumed_objects; /* objects that earlier parts examined */
    uint64_t resumed_bytes;
    bool is_partial; /* it was stopped before everything was examined */
} aoticache_verify_report;

/* Returns the number of problems: damaged + missing + foreign + unindexed + wrong_*. Repaired problems are included.
 * Unreadable files are not included: nothing is known about them, and a repair leaves them as they are. */
static inline uint64_t aoticache_verify_report_problems(const aoticache_verify_report *report)
{
    return report->damaged + report->missing + report->foreign + report->unindexed + report->wrong_entries +
           report->wrong_links + report->wrong_marks + report->wrong_signatures;
}

/* what: "damaged", "missing", "foreign", "unindexed", "entry", "link", "mark", "signature", "unreadable"; name: the
 * file; detail: one line. */
typedef void (*aoticache_verify_fn)(void *user, const char *what, const char *name, const char *detail);
/* done, all: objects done and in total (as far as the index knows); return false to stop. */
typedef bool (*aoticache_verify_progress_fn)(void *user, uint64_t done, uint64_t all);

/*
 * Compares all objects with their names, all entries with their manifests, the index with the store, artifacts/ with the
 * objects, marks/ with themselves, and signatures/ with the entries and with the trusted keys. options may be NULL for the
 * defaults.
 *
 * callback and progress may be NULL; both are called on the caller's thread, progress some ten times a second. Objects are
 * read by threads that live as long as the call and take no signals. Memory: some hundred bytes for each object of a few of
 * the 256 directories, whatever the total number, and forty for each manifest without an entry.
 *
 * If it is stopped, and periodically before, it records its position in the file verify.state in the cache directory (not in
 * a read-only cache); a verification that finishes removes the file. Objects stored meanwhile in a range that is already
 * done are not examined.
 *
 * Locks:   none to check; to repair, the store's lock, exclusively, for each repair.
 * Returns: OK (see the report), INVALID, IO, LOCKED, NO_MEMORY, DENIED (repair of a read-only cache).
 */
AOTICACHE_API aoticache_status aoticache_cache_verify(aoticache_cache *cache, const aoticache_verify_options *options,
                                                      aoticache_verify_fn callback,
                                                      aoticache_verify_progress_fn progress, void *user,
                                                      aoticache_verify_report *ret_report, aoticache_error *ret_error);

/*
 * Checks only the index: runs SQLite's quick check (with is_full its integrity check), and checks that its tables are
 * consistent with each other. Changes nothing.
 * Returns: OK, CORRUPT (the message says what is wrong), NOT_FOUND (the index is missing or cannot be opened), INVALID,
 * IO, LOCKED, NO_MEMORY, DENIED.
 */
AOTICACHE_API aoticache_status aoticache_cache_check_index(aoticache_cache *cache, bool is_full,
                                                           aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
