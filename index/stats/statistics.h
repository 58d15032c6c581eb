/*
 * index/stats/statistics: usage data that does not belong to entries: counters, histograms, groups and their history.
 *
 * Private to index/ and cache/stats. Everything is written as deltas, each flush in one transaction, so that the numbers of
 * many processes add up. Bounds: history has slots of five minutes for a day, of an hour for 31 days and of a day for ten
 * years; slots that get too old are added to the next longer ones (history.c);
 * there are AOTICACHE_INDEX_MAX_GROUPS names of each kind of group, and one row for all others.
 */
#ifndef AOTICACHE_INDEX_STATS_STATISTICS_H
#define AOTICACHE_INDEX_STATS_STATISTICS_H

#include "base/hash_map.h"
#include "index/index.h"

struct sqlite3_stmt;

/* ---- groups: sums by operator, by device and by environment (the producer of the code) ---- */

typedef enum aoticache_index_group_kind {
    AOTICACHE_INDEX_GROUP_OPERATOR = 0,
    AOTICACHE_INDEX_GROUP_DEVICE = 1,
    AOTICACHE_INDEX_GROUP_ENVIRONMENT = 2,
    AOTICACHE_INDEX_GROUP_KINDS = 3,
} aoticache_index_group_kind;

#define AOTICACHE_INDEX_MAX_GROUPS 4096     /* names of one kind; a row is never removed, so that sums stay exact */
#define AOTICACHE_INDEX_MAX_GROUP_BYTES 256 /* of a name; longer names count as others */
/* Names without their own row: names beyond the limit, and uses of entries that were removed before they were flushed. */
#define AOTICACHE_INDEX_OTHER_GROUP "(other)"

/* Columns of a group. The last two are contents, stored with the entries themselves; the others are counted. */
/* clang-format off */
#define AOTICACHE_INDEX_GROUP_LIST(X) \
    X(hits) X(misses) X(compiles) X(failures) X(compile_ns) X(saved_ns) X(entries) X(bytes)
/* clang-format on */

typedef struct aoticache_index_group {
#define AOTICACHE_INDEX_GROUP_FIELD(name) int64_t name;
    AOTICACHE_INDEX_GROUP_LIST(AOTICACHE_INDEX_GROUP_FIELD)
#undef AOTICACHE_INDEX_GROUP_FIELD
} aoticache_index_group;

/*
 * Sums collected in memory and written together, so that a batch costs three rows per name instead of per entry. Initialize
 * with {0}; add copies the names; write must be called inside a transaction and does not change the sums; free accepts
 * half-built ones.
 */
typedef struct aoticache_index_sums {
    aoticache_hash_map by_name; /* of struct aoticache_index_sum, by kind and name */
} aoticache_index_sums;

/* Adds to the sums. A text may be NULL: counted as others. Returns: OK, NO_MEMORY. */
aoticache_status aoticache_index_sums_add(aoticache_index_sums *sums, const char *op, const char *device,
                                          const char *environment, const aoticache_index_group *group,
                                          aoticache_error *ret_error);
aoticache_status aoticache_index_sums_merge(aoticache_index_sums *sums, const aoticache_index_sums *more,
                                            aoticache_error *ret_error);
aoticache_status aoticache_index_sums_write(aoticache_index *index, const aoticache_index_sums *sums,
                                            aoticache_error *ret_error);
void aoticache_index_sums_free(aoticache_index_sums *sums);

/*
 * Adds a completely recorded entry (with artifact and objects) to `sums`, or subtracts it before any of its rows is removed:
 * count 1 or -1. For put and remove, inside their transactions. A missing entry changes nothing.
 */
aoticache_status aoticache_index_sums_add_entry(aoticache_index *index, aoticache_index_sums *sums, int64_t entry_id,
                                                int count, aoticache_error *ret_error);
/* Does the same for one entry, and writes immediately. */
aoticache_status aoticache_index_count_entry(aoticache_index *index, int64_t entry_id, int count,
                                             aoticache_error *ret_error);
/* Like sums_add_entry, for the row of a statement that gives op, device, producer and bytes. NOT_FOUND: there is none.
 * Resets it. */
aoticache_status aoticache_index_sums_add_found(aoticache_index *index, aoticache_index_sums *sums,
                                                struct sqlite3_stmt *row, int count, aoticache_error *ret_error);

/* Lists the groups of a kind, in no particular order. since_zero: less the values at aoticache_index_zero_statistics(). */
typedef bool (*aoticache_index_group_fn)(void *user, const char *name, const aoticache_index_group *group);
aoticache_status aoticache_index_list_groups(aoticache_index *index, aoticache_index_group_kind kind, bool since_zero,
                                             aoticache_index_group_fn callback, void *user, aoticache_error *ret_error);

/* ---- flushing ---- */

#define AOTICACHE_INDEX_BUCKETS 512 /* of a histogram; cache/stats/histogram.c defines their meaning */

typedef struct aoticache_index_histogram {
    const char *name;
    uint64_t sum, maximum;
    const uint64_t *counts; /* AOTICACHE_INDEX_BUCKETS of them */
} aoticache_index_histogram;

/* Counts for one entry. If it is gone, they are added to the groups of others. */
typedef struct aoticache_index_tally {
    int64_t entry_id;
    int64_t last_used_ns;
    uint64_t uses;
    uint64_t hits, misses, compiles, compile_ns, saved_ns;
} aoticache_index_tally;

typedef struct aoticache_index_deltas {
    int64_t now_ns; /* determines the slot of the history; no use is later */
    const aoticache_index_tally *tallies;
    size_t tally_count;
    const aoticache_index_count *counts;
    size_t count_count;
    const aoticache_index_histogram *histograms;
    size_t histogram_count;
    const aoticache_index_sums *sums; /* counts without an entry; may be NULL */
    bool leaves_deferred;             /* deferred counts of other processes are not added now */
    uint32_t max_wait_ms;             /* for another writing process; 0: as long as other functions wait */
} aoticache_index_deltas;

/*
 * Adds everything, including deferred counts, in one transaction that does not wait for the disk. may_wait false: LOCKED
 * immediately if another process is writing.
 */
aoticache_status aoticache_index_flush_deltas(aoticache_index *index, const aoticache_index_deltas *deltas,
                                              bool may_wait, aoticache_error *ret_error);

/*
 * Writes deltas without sums to a file next to the index, from which the next flush of any process adds them. Touches
 * neither the database nor its locks, and does not wait for the disk; a power loss may lose them.
 *
 * Returns: OK; LOCKED: the file is full, or is locked by a stopped process; INVALID, DENIED, IO, NO_MEMORY. On failure
 *          nothing is written, and the caller may flush instead.
 */
aoticache_status aoticache_index_defer_deltas(aoticache_index *index, const aoticache_index_deltas *deltas,
                                              aoticache_error *ret_error);
/* Returns whether there is such a file. */
bool aoticache_index_has_deferred(const aoticache_index *index);

/* ---- reading ---- */

typedef enum aoticache_index_from {
    AOTICACHE_INDEX_FROM_START, /* everything */
    AOTICACHE_INDEX_FROM_ZERO,  /* since aoticache_index_zero_statistics(); everything if it was never called */
    AOTICACHE_INDEX_FROM_TIME,  /* the slots of the history that begin at this second or later */
} aoticache_index_from;

typedef struct aoticache_index_reading {
    aoticache_index_from from;
    int64_t since_seconds;
    int64_t until_seconds; /* later slots do not count: a clock that was ahead made them; 0: all count */
    aoticache_index_count_fn count;
    /* Called several times for one name; histograms with is_less must be subtracted. counts as above. */
    bool (*histogram)(void *user, const aoticache_index_histogram *histogram, bool is_less);
    void *user;
} aoticache_index_reading;

/* Reads one consistent view. ret_zero_ns: when the numbers were zeroed; 0: never. */
aoticache_status aoticache_index_read_statistics(aoticache_index *index, const aoticache_index_reading *reading,
                                                 int64_t *ret_zero_ns, aoticache_error *ret_error);

/* Lists slots of `step` seconds from `since_seconds` on, in order: the non-zero counters of each slot. */
typedef bool (*aoticache_index_slot_fn)(void *user, int64_t start_seconds, const char *name, uint64_t value);
aoticache_status aoticache_index_list_history(aoticache_index *index, int64_t since_seconds, int64_t step,
                                              aoticache_index_slot_fn callback, void *user, aoticache_error *ret_error);

/* Records the current numbers, for FROM_ZERO. Durable. */
aoticache_status aoticache_index_zero_statistics(aoticache_index *index, int64_t now_ns, aoticache_error *ret_error);

/* ---- bytes used by groups of entries ---- */

typedef enum aoticache_index_usage_group {
    AOTICACHE_INDEX_USAGE_BY_OP,
    AOTICACHE_INDEX_USAGE_BY_DEVICE,
    AOTICACHE_INDEX_USAGE_BY_PRODUCER,
    AOTICACHE_INDEX_USAGE_BY_TAG, /* "" for entries without tags; an entry counts under each of its tags */
} aoticache_index_usage_group;

typedef struct aoticache_index_usage {
    const char *name;
    uint64_t entries;
    uint64_t bytes; /* of objects; each counts once in its group */
    int64_t last_used_ns;
} aoticache_index_usage;

typedef bool (*aoticache_index_usage_fn)(void *user, const aoticache_index_usage *usage);

/* Lists the largest group first. Reads all rows: seconds for a million entries. The callback must not use the index. */
aoticache_status aoticache_index_list_usage(aoticache_index *index, aoticache_index_usage_group by,
                                            aoticache_index_usage_fn callback, void *user, aoticache_error *ret_error);

#endif
