/*
 * index/eviction/eviction: what a collection reads and changes in the index: the least recently used entries, removals in
 * batches, and the objects whose files are waiting to be removed.
 *
 * Every function that removes an entry records, in the same transaction, a row for each object that nothing names any
 * longer. That row is deleted after the file: if a process is killed in between, the next collection finds the row and need
 * not search.
 */
#ifndef AOTICACHE_INDEX_EVICTION_EVICTION_H
#define AOTICACHE_INDEX_EVICTION_EVICTION_H

#include "index/index.h"

/*
 * Prepares the connection for a collection. Until the call with 0, this connection caches this many KiB in memory and merges
 * the log only when it is very long. Until then another connection must merge it, with aoticache_index_checkpoint(), while
 * this one writes.
 */
void aoticache_index_prepare_collection(aoticache_index *index, int cache_kib);
/* Merges the log now, during a collection, if it has this many pages; with AOTICACHE_INDEX_LOG_PAGES, if otherwise the next
 * commit would merge it. */
#define AOTICACHE_INDEX_LOG_PAGES 1000
void aoticache_index_checkpoint_if_due(aoticache_index *index, int pages);

/* Sets last uses after now_ns to now_ns, of at most `limit` entries. *ret_fixed: how many were changed. */
aoticache_status aoticache_index_mend_uses(aoticache_index *index, int64_t now_ns, size_t limit, uint64_t *ret_fixed,
                                           aoticache_error *ret_error);
/* Counts the entries used after since_ns, and gives the last use of any entry, 0 if there is none. */
aoticache_status aoticache_index_count_used_since(aoticache_index *index, int64_t since_ns, uint64_t *ret_count,
                                                  aoticache_error *ret_error);
aoticache_status aoticache_index_newest_use(aoticache_index *index, int64_t *ret_used_ns, aoticache_error *ret_error);

/* An entry that may be removed. op is borrowed during the callback. */
typedef struct aoticache_index_candidate {
    int64_t entry_id;
    int64_t last_used_ns; /* not before its creation */
    uint64_t bytes;       /* of its artifact */
    uint64_t compile_ns;
    const char *op;
    aoticache_digest key;
    bool is_pinned;
    bool is_lost; /* the host's own kernel was faster wherever the two were compared */
} aoticache_index_candidate;

/* Return false to stop. The callback must not use the index. */
typedef bool (*aoticache_index_candidate_fn)(void *user, const aoticache_index_candidate *candidate);

/* Lists at most `limit` entries in the order of last use, from the one after (after_used_ns, after_id). INT64_MIN and 0:
 * from the first. */
aoticache_status aoticache_index_list_candidates(aoticache_index *index, int64_t after_used_ns, int64_t after_id,
                                                 size_t limit, aoticache_index_candidate_fn callback, void *user,
                                                 aoticache_error *ret_error);
/* Lists entries with is_lost, in the order of keys, from the one after (after_key, after_id). Zeros: from the first. */
aoticache_status aoticache_index_list_lost(aoticache_index *index, const aoticache_digest *after_key, int64_t after_id,
                                           size_t limit, aoticache_index_candidate_fn callback, void *user,
                                           aoticache_error *ret_error);

typedef struct aoticache_index_owned {
    aoticache_digest digest;
    uint64_t bytes;
    uint64_t refs; /* number of artifacts that name it */
    bool is_manifest;
} aoticache_index_owned;

/* Gives the objects of an entry: at most `capacity` are written, *ret_count is the total; 0: the entry is gone. */
aoticache_status aoticache_index_entry_objects(aoticache_index *index, int64_t entry_id,
                                               aoticache_index_owned *ret_owned, size_t capacity, size_t *ret_count,
                                               aoticache_error *ret_error);
/* Reads one entry as aoticache_index_list gives it; OK without a callback if it is gone. */
aoticache_status aoticache_index_read_entry(aoticache_index *index, int64_t entry_id, aoticache_index_entry_fn callback,
                                            void *user, aoticache_error *ret_error);

#define AOTICACHE_INDEX_VICTIM_OBJECTS 4

typedef struct aoticache_index_victim {
    int64_t entry_id;
    int64_t last_used_ns; /* its value when it was chosen: an entry that was used since, or is pinned now, stays */
    aoticache_digest key;
    bool is_gone; /* set by evict */

    /* Set by look_up, which is optional: with it, evict has less to read. */
    aoticache_digest artifact;
    uint32_t file_count;
    bool is_there;
    size_t object_count; /* 0: not looked up, or more than fit into `objects` */
    aoticache_index_object objects[AOTICACHE_INDEX_VICTIM_OBJECTS]; /* of its artifact, including the manifest */
} aoticache_index_victim;

/* Finds the objects of victims (with id and key). These do not change; whether other entries need them does. */
aoticache_status aoticache_index_look_up(aoticache_index *index, aoticache_index_victim *victims, size_t count,
                                         aoticache_error *ret_error);

typedef struct aoticache_index_eviction {
    size_t tried;            /* number of victims tried, from the first: the rest is for another transaction */
    uint64_t entries;        /* removed entries */
    uint64_t objects, bytes; /* that no entry names any longer */
} aoticache_index_eviction;

/*
 * Removes entries in one transaction, for about budget_ns (at least one entry), and deletes removals that are done (their
 * numbers in ascending order). is_durable: waits for the disk. Without it, no file may be removed before
 * aoticache_index_settle().
 */
aoticache_status aoticache_index_evict(aoticache_index *index, aoticache_index_victim *victims, size_t count,
                                       const int64_t *done, size_t done_count, uint64_t budget_ns, bool is_durable,
                                       aoticache_index_eviction *ret_eviction, aoticache_error *ret_error);
/* Makes everything durable that any process wrote before: it survives power loss after this returned OK. */
aoticache_status aoticache_index_settle(aoticache_index *index, aoticache_error *ret_error);

typedef enum aoticache_index_removal_kind {
    AOTICACHE_INDEX_REMOVAL_FILE = 0,
    AOTICACHE_INDEX_REMOVAL_MANIFEST = 1,
    AOTICACHE_INDEX_REMOVAL_DIRECTORY = 2, /* a manifest whose artifact has a directory of side files */
} aoticache_index_removal_kind;

typedef struct aoticache_index_removal {
    int64_t id;
    aoticache_digest object;
    uint64_t bytes;
    aoticache_index_removal_kind kind;
    bool is_named; /* a new entry needs it: its file stays */
} aoticache_index_removal;

/* Lists removals after the number after_id, in order; is_named is left unchanged. ret_removals: space for `capacity`. */
aoticache_status aoticache_index_list_removals(aoticache_index *index, int64_t after_id,
                                               aoticache_index_removal *ret_removals, size_t capacity,
                                               size_t *ret_count, aoticache_error *ret_error);
/* Sets is_named of each. It is valid as long as the store stays locked exclusively. */
aoticache_status aoticache_index_check_removals(aoticache_index *index, aoticache_index_removal *removals, size_t count,
                                                aoticache_error *ret_error);
/* Deletes removals that are done, without waiting for the disk: if a power loss restores one, its file is found to be gone. */
aoticache_status aoticache_index_forget_removals(aoticache_index *index, const int64_t *done, size_t count,
                                                 aoticache_error *ret_error);

/* Deletes the removals of an object; for few objects: it searches all removals. */
aoticache_status aoticache_index_forget_removal_of(aoticache_index *index, const aoticache_digest *object,
                                                   aoticache_error *ret_error);

/* Lists digests that entries name, in order, starting at `from`. ret_digests: space for `capacity`. */
aoticache_status aoticache_index_objects_from(aoticache_index *index, const aoticache_digest *from,
                                              aoticache_digest *ret_digests, size_t capacity, size_t *ret_count,
                                              aoticache_error *ret_error);

/* Failures that may be retried at now_ns, or were recorded after it. forget: deletes at most `limit` of them. */
aoticache_status aoticache_index_count_expired(aoticache_index *index, int64_t now_ns, uint64_t *ret_count,
                                               aoticache_error *ret_error);
aoticache_status aoticache_index_forget_expired(aoticache_index *index, int64_t now_ns, size_t limit,
                                                uint64_t *ret_forgotten, aoticache_error *ret_error);

/* Read and write a number stored under a name, 0 if there is none; written without waiting for the disk. */
aoticache_status aoticache_index_read_meta(aoticache_index *index, const char *name, int64_t *ret_value,
                                           aoticache_error *ret_error);
aoticache_status aoticache_index_write_meta(aoticache_index *index, const char *name, int64_t value,
                                            aoticache_error *ret_error);

/*
 * Releases about `bytes` of free pages. *ret_freed: how many bytes; 0: there are none, or the file was created by a version
 * before 3 and cannot release any.
 */
aoticache_status aoticache_index_vacuum_step(aoticache_index *index, uint64_t bytes, uint64_t *ret_freed,
                                             aoticache_error *ret_error);
/* Merges the log into the file, as far as no reader needs it. */
void aoticache_index_checkpoint(aoticache_index *index);
/* Does the same, and releases the log's disk space if no reader needs it: waits for readers only for a moment. */
void aoticache_index_truncate_log(aoticache_index *index);
/* Returns whether any operation failed for lack of free space since the last call of evict or settle began. */
bool aoticache_index_is_out_of_space(aoticache_index *index);

#endif
