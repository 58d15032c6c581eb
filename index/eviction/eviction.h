/*
 * index/eviction/eviction: what a collection asks of the index and changes in it: which entries were used least recently,
 * removing entries by the batch, and the objects whose files wait to be removed.
 *
 * Whatever function removes an entry, the same transaction records a row for each object that nothing names any longer.
 * That row goes when the file has gone: a process killed between the two leaves what the next collection needs, and nobody
 * has to search.
 */
#ifndef AOTICACHE_INDEX_EVICTION_EVICTION_H
#define AOTICACHE_INDEX_EVICTION_EVICTION_H

#include "index/index.h"

/*
 * Until the call with 0, this connection caches so many KiB in memory and merges the log only when it is very long. Another
 * connection is to merge it before that, with aoticache_index_checkpoint(), while this one writes.
 */
void aoticache_index_prepare_collection(aoticache_index *index, int cache_kib);
/* During it: merges the log now, if it has this many pages; with AOTICACHE_INDEX_LOG_PAGES the next commit would, else. */
#define AOTICACHE_INDEX_LOG_PAGES 1000
void aoticache_index_checkpoint_if_due(aoticache_index *index, int pages);

/* Sets last uses after now_ns to now_ns, of at most `limit` entries. *ret_fixed: how many it were. */
aoticache_status aoticache_index_mend_uses(aoticache_index *index, int64_t now_ns, size_t limit, uint64_t *ret_fixed,
                                           aoticache_error *ret_error);
/* How many entries were used after since_ns; when the last use of any was, 0 if there is none. */
aoticache_status aoticache_index_count_used_since(aoticache_index *index, int64_t since_ns, uint64_t *ret_count,
                                                  aoticache_error *ret_error);
aoticache_status aoticache_index_newest_use(aoticache_index *index, int64_t *ret_used_ns, aoticache_error *ret_error);

/* An entry that may go. op is borrowed during the callback. */
typedef struct aoticache_index_candidate {
    int64_t entry_id;
    int64_t last_used_ns; /* not less than when it was made */
    uint64_t bytes;       /* of its artifact */
    uint64_t compile_ns;
    const char *op;
    aoticache_digest key;
    bool is_pinned;
    bool is_lost; /* the host's own kernel was faster wherever the two were compared */
} aoticache_index_candidate;

/* Return false to stop. The callback must not use the index. */
typedef bool (*aoticache_index_candidate_fn)(void *user, const aoticache_index_candidate *candidate);

/* In the order of last use, from the one after (after_used_ns, after_id), at most `limit`. INT64_MIN and 0: from the first. */
aoticache_status aoticache_index_list_candidates(aoticache_index *index, int64_t after_used_ns, int64_t after_id,
                                                 size_t limit, aoticache_index_candidate_fn callback, void *user,
                                                 aoticache_error *ret_error);
/* Those that are lost, in the order of keys, from the one after (after_key, after_id). Zeros: from the first. */
aoticache_status aoticache_index_list_lost(aoticache_index *index, const aoticache_digest *after_key, int64_t after_id,
                                           size_t limit, aoticache_index_candidate_fn callback, void *user,
                                           aoticache_error *ret_error);

typedef struct aoticache_index_owned {
    aoticache_digest digest;
    uint64_t bytes;
    uint64_t refs; /* how often artifacts name it */
    bool is_manifest;
} aoticache_index_owned;

/* The objects of an entry: at most `capacity` are written, *ret_count is how many there are; 0: the entry is gone. */
aoticache_status aoticache_index_entry_objects(aoticache_index *index, int64_t entry_id,
                                               aoticache_index_owned *ret_owned, size_t capacity, size_t *ret_count,
                                               aoticache_error *ret_error);
/* One entry as aoticache_index_list gives it; OK without a call where it is gone. */
aoticache_status aoticache_index_read_entry(aoticache_index *index, int64_t entry_id, aoticache_index_entry_fn callback,
                                            void *user, aoticache_error *ret_error);

#define AOTICACHE_INDEX_VICTIM_OBJECTS 4

typedef struct aoticache_index_victim {
    int64_t entry_id;
    int64_t last_used_ns; /* as it was when it was chosen: an entry that was used since, or is pinned now, stays */
    aoticache_digest key;
    bool is_gone; /* set by evict */

    /* Set by look_up, which nobody has to call: with it, evict has less to read. */
    aoticache_digest artifact;
    uint32_t file_count;
    bool is_there;
    size_t object_count;                                            /* 0: not looked up, or more than `objects` holds */
    aoticache_index_object objects[AOTICACHE_INDEX_VICTIM_OBJECTS]; /* of its artifact, the manifest among them */
} aoticache_index_victim;

/* What victims (with id and key) consist of, at this moment. It does not change; whether others need it, too, does. */
aoticache_status aoticache_index_look_up(aoticache_index *index, aoticache_index_victim *victims, size_t count,
                                         aoticache_error *ret_error);

typedef struct aoticache_index_eviction {
    size_t tried;            /* of the victims, from the first on: the rest is for another transaction */
    uint64_t entries;        /* that went */
    uint64_t objects, bytes; /* that nothing names any longer */
} aoticache_index_eviction;

/*
 * Takes entries out in one transaction, for about budget_ns (one at least), and forgets removals that are done (their
 * numbers in ascending order). is_durable: waits for the disk. Without it, no file may go before
 * aoticache_index_settle().
 */
aoticache_status aoticache_index_evict(aoticache_index *index, aoticache_index_victim *victims, size_t count,
                                       const int64_t *done, size_t done_count, uint64_t budget_ns, bool is_durable,
                                       aoticache_index_eviction *ret_eviction, aoticache_error *ret_error);
/* Everything that was written before, by whomever, survives power loss once this has returned OK. */
aoticache_status aoticache_index_settle(aoticache_index *index, aoticache_error *ret_error);

typedef enum aoticache_index_removal_kind {
    AOTICACHE_INDEX_REMOVAL_FILE = 0,
    AOTICACHE_INDEX_REMOVAL_MANIFEST = 1,
    AOTICACHE_INDEX_REMOVAL_FOLDER = 2, /* a manifest whose artifact has a directory of side files */
} aoticache_index_removal_kind;

typedef struct aoticache_index_removal {
    int64_t id;
    aoticache_digest object;
    uint64_t bytes;
    aoticache_index_removal_kind kind;
    bool is_named; /* an entry has come that needs it: it stays */
} aoticache_index_removal;

/* Those after the number after_id, in order; is_named is left alone. ret_removals: room for `capacity`. */
aoticache_status aoticache_index_list_removals(aoticache_index *index, int64_t after_id,
                                               aoticache_index_removal *ret_removals, size_t capacity,
                                               size_t *ret_count, aoticache_error *ret_error);
/* Sets is_named of each. It holds as long as the store stays locked exclusively. */
aoticache_status aoticache_index_check_removals(aoticache_index *index, aoticache_index_removal *removals, size_t count,
                                                aoticache_error *ret_error);
/* Forgets removals that are done, without waiting for the disk: what comes back is found gone. */
aoticache_status aoticache_index_forget_removals(aoticache_index *index, const int64_t *done, size_t count,
                                                 aoticache_error *ret_error);

/* Forgets that an object waits; for few of them: all that wait are looked through. */
aoticache_status aoticache_index_forget_removal_of(aoticache_index *index, const aoticache_digest *object,
                                                   aoticache_error *ret_error);

/* Digests that entries name, in order, from `from` on. ret_digests: room for `capacity`. */
aoticache_status aoticache_index_objects_from(aoticache_index *index, const aoticache_digest *from,
                                              aoticache_digest *ret_digests, size_t capacity, size_t *ret_count,
                                              aoticache_error *ret_error);

/* Failures that may be tried again at now_ns, or were recorded after it. forget: at most `limit` of them go. */
aoticache_status aoticache_index_count_expired(aoticache_index *index, int64_t now_ns, uint64_t *ret_count,
                                               aoticache_error *ret_error);
aoticache_status aoticache_index_forget_expired(aoticache_index *index, int64_t now_ns, size_t limit,
                                                uint64_t *ret_forgotten, aoticache_error *ret_error);

/* A number kept under a name, 0 if there is none. Written without waiting for the disk. */
aoticache_status aoticache_index_read_meta(aoticache_index *index, const char *name, int64_t *ret_value,
                                           aoticache_error *ret_error);
aoticache_status aoticache_index_write_meta(aoticache_index *index, const char *name, int64_t value,
                                            aoticache_error *ret_error);

/*
 * Gives about `bytes` of free pages back. *ret_freed: how many bytes; 0: there are none, or the file was made by a version
 * before 3, which cannot give any back.
 */
aoticache_status aoticache_index_vacuum_step(aoticache_index *index, uint64_t bytes, uint64_t *ret_freed,
                                             aoticache_error *ret_error);
/* Merges the log into the file, as far as no reader needs it. */
void aoticache_index_checkpoint(aoticache_index *index);
/* The same, and gives the log's disk space back where no reader needs it: waits for readers for a moment only. */
void aoticache_index_truncate_log(aoticache_index *index);
/* Returns whether anything has failed for lack of free space since the last call of evict or settle began. */
bool aoticache_index_is_out_of_space(aoticache_index *index);

#endif
