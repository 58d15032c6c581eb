/*
 * cache/stats/statistics: counters of all processes, durations, sums by operator, device and environment, their history, and
 * the contents of the store. docs/statistics.md defines every number.
 *
 * A process counts in memory and adds its counts to the index in batches (aoticache_cache_flush()), each batch in one
 * transaction: numbers of many processes add up exactly, and a process that is killed loses at most its last batch.
 * Functions that read return what all processes have flushed, plus what this cache has not flushed yet.
 *
 * Users include <aoticache/admin.h>.
 */
#ifndef AOTICACHE_CACHE_STATS_STATISTICS_H
#define AOTICACHE_CACHE_STATS_STATISTICS_H

#include "cache/cache.h"
#include "cache/entries.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Counters: name, text. A counter has this one name in C, Python, JSON, CSV, the index and documents. Human-readable text
 * has spaces instead of the underscores, Prometheus has "aoticache_" before it and "_total" after it, and the unit "_ns" is
 * "time" and "_seconds" there (docs/statistics.md; tests/cli/stat/test_stat_names.sh compares them).
 *
 * A hit was loaded already (hits_loaded), fetched from a remote (hits_remote), or found in the index by a lookup (hits_index,
 * below). A miss has at most one reason; without one there was no entry for the key (misses_absent, below).
 */
#define AOTICACHE_COUNTER_LIST(X)                                                                                 \
    X(hits, "lookups and calls answered by an entry")                                                             \
    X(hits_dynamic, "of the hits: by a dynamic entry")                                                            \
    X(hits_loaded, "of the hits: calls answered by a loaded runner, without a lookup")                            \
    X(hits_remote, "of the hits: fetched from a remote")                                                          \
    X(misses, "lookups that found no entry")                                                                      \
    X(misses_requirement, "of the misses: there were entries, but this CPU lacks a feature that they need")       \
    X(misses_guard, "of the misses: there were entries, but no guard accepts the tensors")                        \
    X(misses_damaged, "of the misses: there was an entry, but its object was damaged")                            \
    X(misses_failed, "of the misses: a compile failed a short time ago")                                          \
    X(waits, "of the misses: answered by another process's compile")                                              \
    X(lease_waits, "requests that had to wait for another process's lease of the same key")                       \
    X(lease_wait_ns, "time spent waiting for leases")                                                             \
    X(compiles, "compiles that succeeded")                                                                        \
    X(compiles_fallback, "of the compiles: Inductor's code built PyTorch's way, because ours could not build it") \
    X(compile_failures, "compiles that failed")                                                                   \
    X(compile_ns, "time spent in compiles that succeeded")                                                        \
    X(saved_ns, "compile time saved, once for each process and artifact")                                         \
    X(lookup_ns, "time spent in lookups that hit, opening and verifying included")                                \
    X(loads, "libraries loaded")                                                                                  \
    X(load_ns, "time spent loading libraries and creating their runners")                                         \
    X(stored_bytes, "bytes written as objects")                                                                   \
    X(not_stored, "artifacts that could not be stored")                                                           \
    X(damaged, "objects found damaged and moved away")                                                            \
    X(refused_untrusted, "entries from elsewhere that were refused because no trusted key signed them")           \
    X(evicted, "entries removed by collections")                                                                  \
    X(evicted_bytes, "bytes removed by collections")                                                              \
    X(judged, "kernels compared with the host's own kernel")                                                      \
    X(judged_slower, "of the compared: the host's own kernel was at least as fast")                               \
    X(calls_lost, "calls answered by the host's own kernel because it is faster")                                 \
    X(fetched_bytes, "bytes of objects that were fetched from remotes")                                           \
    X(sent_bytes, "bytes of objects that were sent to remotes, compressed")                                       \
    X(remote_errors, "misses or compiles for which a remote failed")                                              \
    X(remote_refused, "objects and entries from remotes that were refused")                                       \
    X(remote_backoffs, "times that a remote failed and was not used for a while")

/* Numbers that are computed from the counters, and displayed like counters: name, text. aoticache_counters_NAME() returns
 * each. */
#define AOTICACHE_DERIVED_COUNTER_LIST(X)                        \
    X(hits_index, "of the hits: found in the index by a lookup") \
    X(misses_absent, "of the misses: there was no entry for the key")

typedef struct aoticache_counters {
#define AOTICACHE_COUNTER_FIELD(name, text) uint64_t name;
    AOTICACHE_COUNTER_LIST(AOTICACHE_COUNTER_FIELD)
#undef AOTICACHE_COUNTER_FIELD
} aoticache_counters;

/* Returns the hits that were found in the index: not in this process's memory, not on a remote. */
static inline uint64_t aoticache_counters_hits_index(const aoticache_counters *counters)
{
    uint64_t others = counters->hits_loaded + counters->hits_remote;
    return counters->hits > others ? counters->hits - others : 0;
}

/* Returns the misses for which there was no entry at all. */
static inline uint64_t aoticache_counters_misses_absent(const aoticache_counters *counters)
{
    uint64_t explained =
        counters->misses_requirement + counters->misses_guard + counters->misses_damaged + counters->misses_failed;
    return counters->misses > explained ? counters->misses - explained : 0;
}

/* ---- durations: name, text ---- */

#define AOTICACHE_LATENCY_LIST(X)                                               \
    X(lookup, "a lookup that hits, opening and verifying included")             \
    X(load, "loading a library and creating its runner")                        \
    X(compile, "a compile that succeeds")                                       \
    X(lease_wait, "waiting for another process's compile of the same key")      \
    X(eviction_age, "since the last use of an entry that a collection removes") \
    X(fetch, "fetching a key from a remote, with its objects")                  \
    X(send, "sending an entry to a remote")

typedef enum aoticache_latency_kind {
#define AOTICACHE_LATENCY_ENUM(name, text) AOTICACHE_LATENCY_##name,
    AOTICACHE_LATENCY_LIST(AOTICACHE_LATENCY_ENUM)
#undef AOTICACHE_LATENCY_ENUM
        AOTICACHE_LATENCY_COUNT
} aoticache_latency_kind;

/* Returns "lookup", ...; NULL for a number outside the list. */
static inline const char *aoticache_latency_name(aoticache_latency_kind kind)
{
    static const char *const names[] = {
#define AOTICACHE_LATENCY_NAME(name, text) #name,
        AOTICACHE_LATENCY_LIST(AOTICACHE_LATENCY_NAME)
#undef AOTICACHE_LATENCY_NAME
    };
    return (unsigned)kind < AOTICACHE_LATENCY_COUNT ? names[kind] : NULL;
}

/*
 * Percentiles are the upper ends of buckets, at most an eighth above the value. max_ns is exact, except for numbers since
 * they were zeroed (AOTICACHE_STATISTICS_SINCE_ZERO), where it is the upper end of a bucket too. All are 0 if count is 0.
 */
typedef struct aoticache_latency {
    uint64_t count, sum_ns;
    uint64_t p50_ns, p90_ns, p99_ns, max_ns;
} aoticache_latency;

typedef struct aoticache_latencies {
#define AOTICACHE_LATENCY_FIELD(name, text) aoticache_latency name;
    AOTICACHE_LATENCY_LIST(AOTICACHE_LATENCY_FIELD)
#undef AOTICACHE_LATENCY_FIELD
} aoticache_latencies;

typedef struct aoticache_statistics {
    aoticache_counters counters;
    uint64_t entries, artifacts, objects, bytes; /* current contents */
    uint64_t failures_remembered;                /* failed compiles that are not retried yet */
    int64_t created_ns;                          /* wall clock: when the index was created */
    int64_t since_ns;                            /* counters and latencies start here */
    int64_t zeroed_ns;                           /* when aoticache_cache_zero_statistics() was last called; 0: never */
    aoticache_latencies latencies;
} aoticache_statistics;

/* The time from which numbers are counted. */
typedef enum aoticache_statistics_since {
    AOTICACHE_STATISTICS_SINCE_CREATED = 0, /* all numbers */
    AOTICACHE_STATISTICS_SINCE_ZERO = 1,    /* since they were zeroed; all numbers if they never were */
    AOTICACHE_STATISTICS_SINCE_TIME = 2,    /* from the history: since since_ns, rounded down to its slots */
} aoticache_statistics_since;

typedef struct aoticache_statistics_options {
    size_t size;
    aoticache_statistics_since since;
    int64_t since_ns; /* wall clock; for SINCE_TIME */
} aoticache_statistics_options;

#define AOTICACHE_STATISTICS_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_statistics_options)

/*
 * Gives the numbers since a time, in constant time: only SINCE_TIME scans, and only the history. options may be NULL: all
 * numbers, since the index was created. A read-only cache without an index gives
 * zeros. Counts that another thread of this process is flushing may be missing at that moment, so a result can be lower than
 * the one before it.
 * Returns: OK, INVALID, IO, LOCKED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_cache_get_statistics(aoticache_cache *cache,
                                                              const aoticache_statistics_options *options,
                                                              aoticache_statistics *ret_statistics,
                                                              aoticache_error *ret_error);

/*
 * Makes SINCE_ZERO count from this moment on. The totals and the history are unchanged. Durable. Returns: OK, INVALID,
 * DENIED (read-only), IO, LOCKED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_cache_zero_statistics(aoticache_cache *cache, aoticache_error *ret_error);

/*
 * Lists the non-empty buckets of a histogram, the shortest first: `count` values between lower_ns and upper_ns, inclusive.
 * Return false to stop. options as above.
 */
typedef bool (*aoticache_bucket_fn)(void *user, uint64_t lower_ns, uint64_t upper_ns, uint64_t count);
AOTICACHE_API aoticache_status aoticache_cache_list_latency(aoticache_cache *cache, aoticache_latency_kind kind,
                                                            const aoticache_statistics_options *options,
                                                            aoticache_bucket_fn callback, void *user,
                                                            aoticache_error *ret_error);

/* ---- sums by operator, device, environment ---- */

typedef enum aoticache_group_kind {
    AOTICACHE_GROUP_OPERATOR = 0,
    AOTICACHE_GROUP_DEVICE = 1,
    AOTICACHE_GROUP_ENVIRONMENT = 2, /* the producer, "pytorch 2.13.0"; for a plain miss: the requesting framework */
} aoticache_group_kind;

/* Columns: name, text. */
#define AOTICACHE_GROUP_COLUMN_LIST(X)                     \
    X(hits, "lookups and calls answered")                  \
    X(misses, "lookups that found nothing")                \
    X(compiles, "compiles that succeeded")                 \
    X(compile_failures, "compiles that failed")            \
    X(compile_ns, "time spent in compiles that succeeded") \
    X(saved_ns, "compile time saved")                      \
    X(entries, "current entries")                          \
    X(bytes, "bytes of their artifacts; a shared object counts in each")

/* `name` is borrowed during the callback. "(other)" collects all names without their own row (docs/statistics.md). */
typedef struct aoticache_group {
    const char *name;
#define AOTICACHE_GROUP_FIELD(column, text) uint64_t column;
    AOTICACHE_GROUP_COLUMN_LIST(AOTICACHE_GROUP_FIELD)
#undef AOTICACHE_GROUP_FIELD
} aoticache_group;

/* Return false to stop. */
typedef bool (*aoticache_group_fn)(void *user, const aoticache_group *group);

/*
 * Lists the groups of a kind, in no particular order; a few thousand at most, whatever the number of entries. Flushes first.
 * There is no history of groups: SINCE_TIME is INVALID. options may be NULL.
 * Returns: OK, INVALID, IO, LOCKED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_cache_list_groups(aoticache_cache *cache, aoticache_group_kind kind,
                                                           const aoticache_statistics_options *options,
                                                           aoticache_group_fn callback, void *user,
                                                           aoticache_error *ret_error);

/* ---- history ---- */

/*
 * Slots of five minutes are kept for a day, slots of an hour for 31 days; of the slots of a day (UTC) the last 3653 are
 * kept, ten years of use. A number is counted in the slot in which it is flushed. `counters` are for this slot alone.
 * Slots that begin in the future, because a clock was ahead, are left out.
 */
typedef struct aoticache_slot {
    int64_t start_ns; /* wall clock */
    int64_t length_ns;
    aoticache_counters counters;
} aoticache_slot;

#define AOTICACHE_SLOT_FINE_SECONDS 300
#define AOTICACHE_SLOT_HOUR_SECONDS 3600
#define AOTICACHE_SLOT_DAY_SECONDS 86400

/* Return false to stop. */
typedef bool (*aoticache_slot_fn)(void *user, const aoticache_slot *slot);

/*
 * Lists slots since since_ns in order, without empty ones. step_seconds: one of the above. Slots of each length are
 * kept for a limited time; if since_ns is before that, the list begins with the oldest slot. Flushes first. Returns:
 * OK, INVALID, IO, LOCKED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_cache_list_history(aoticache_cache *cache, int64_t since_ns,
                                                            int64_t step_seconds, aoticache_slot_fn callback,
                                                            void *user, aoticache_error *ret_error);

/* ---- extreme entries ---- */

typedef enum aoticache_extreme {
    AOTICACHE_EXTREME_LARGEST = 0, /* reads the sizes of all artifacts: seconds at a million entries */
    AOTICACHE_EXTREME_COLDEST = 1, /* the least recently used */
} aoticache_extreme;

/* Lists the first `limit` entries. Returns: OK, INVALID, IO, LOCKED, NO_MEMORY. */
AOTICACHE_API aoticache_status aoticache_cache_list_extreme(aoticache_cache *cache, aoticache_extreme which,
                                                            size_t limit, aoticache_entry_fn callback, void *user,
                                                            aoticache_error *ret_error);

/* ---- counting ---- */

/*
 * Writes recency and counters from memory to the index, and those that ended processes have left next to the index
 * (aoticache_cache_close()). This happens automatically on misses, on every compile and put. A lookup that hits writes the
 * counts of this process if the last flush is more than 30 seconds ago or 4096 entries were used since. Such a flush never
 * waits for another writer; it is tried again 30 seconds later. A long-lived process that uses only its table of loaded
 * runners should call this function periodically.
 */
AOTICACHE_API aoticache_status aoticache_cache_flush(aoticache_cache *cache, aoticache_error *ret_error);

/*
 * Flushes if ended processes have left counts next to the index, and waits for another writer for at most 100 ms; for
 * programs that show when and how often entries were used. Functions that read statistics, and collections, do this
 * automatically; aoticache_cache_list() does not, because programs use it for lookups, too. Failures are ignored.
 */
AOTICACHE_API void aoticache_cache_flush_deferred(aoticache_cache *cache);

#ifdef __cplusplus
}
#endif
#endif
