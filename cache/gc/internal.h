/*
 * cache/gc/internal: one collection at work, and its remover of files; for the files of cache/gc/ only.
 *
 * Memory does not grow with what the store holds: entries come from the index by the window, least recently used first,
 * and are removed by the batch, many batches to a round. A process may be killed after each step of a round:
 *
 *   1. Entries, and what they alone named, leave the index in transactions of a few milliseconds, which record the objects
 *      as waiting for removal.
 *   2. These transactions are made durable, all at once.
 *   3. The files are removed, with the store locked exclusively for a few milliseconds at a time. A background thread does
 *      this during the transactions of the next round.
 *   4. The records of waiting objects are removed.
 *
 * Where free space or time is short, a round is one transaction, and its files are removed before the next one.
 */
#ifndef AOTICACHE_CACHE_GC_INTERNAL_H
#define AOTICACHE_CACHE_GC_INTERNAL_H

#include "base/hash_map.h"
#include "cache/gc/collect.h"
#include "cache/gc/thread_pool.h"
#include "cache/internal.h"
#include "cache/store/lock.h"
#include "index/eviction/eviction.h"

/* How long others may have to wait: for the store's lock, and for the index's write lock. */
#define AOTICACHE_COLLECTION_STRETCH_NS UINT64_C(5000000)
#define AOTICACHE_COLLECTION_BATCH 256
#define AOTICACHE_COLLECTION_ROUND 2048 /* entries, at most; their files wait until it is full */

/* An entry of the window, in the order of eviction. */
typedef struct aoticache_collection_item {
    int64_t entry_id;
    int64_t last_used_ns;
    aoticache_digest key;
    uint64_t bytes;
    uint64_t op;  /* a number for it */
    double score; /* the highest goes first */
    bool is_pinned, is_kept;
    bool is_lost; /* as aoticache_index_candidate */
} aoticache_collection_item;

/*
 * Removes the files of objects that have left the index, by a pool of threads, either before it returns or in the
 * background. While a background removal runs, all of it belongs to that thread.
 */
typedef struct aoticache_remover {
    aoticache_cache *cache;
    bool has_one_thread; /* inside a put: the processors are its program's */

    aoticache_index *index;            /* borrowed: what the running removal asks */
    aoticache_index *background_index; /* a connection of its own for reading; NULL: not needed yet */
    aoticache_index *background_log;   /* to merge the log with; NULL: it is merged when it is very long */

    aoticache_index_removal *removals; /* what is to go */
    size_t count;
    int64_t last_id; /* of the waiting objects that were listed so far */

    aoticache_thread_pool *pool;
    pthread_t thread;
    bool is_running;
    bool is_disk_bound; /* removing a file is mostly waiting for the disk */
    size_t chunk;       /* about as many files as fit into a stretch; 0: not known yet */

    /* Results since they were last taken. */
    uint64_t objects, bytes;
    uint64_t backlog_bytes; /* of a backlog: of what was there before, whether it is gone or not */
    int64_t *done;          /* numbers of waiting objects that are gone */
    size_t done_count, done_capacity;
    bool index_is_replaced;  /* nothing more is to be removed by this one */
    aoticache_status status; /* of the background removal */
    aoticache_error error;
    aoticache_status file_status; /* the first file that cannot be removed does not keep the others from going */
    aoticache_error file_error;
} aoticache_remover;

typedef struct aoticache_collection {
    aoticache_cache *cache;
    aoticache_index *index;
    const aoticache_collect_options *options;
    aoticache_entry_fn callback;
    void *user;
    aoticache_collect_report report;
    uint64_t begun_ns;        /* monotonic */
    int64_t now_ns;           /* wall clock */
    uint64_t max_age_seconds; /* UINT64_MAX: ages do not matter */
    uint64_t deadline_ns;
    bool is_step;    /* inside a put: removes entries and their objects, nothing else */
    bool is_stopped; /* by the caller, the time limit, or because the index was replaced */

    /* What the index holds, less what was removed, and the goal; UINT64_MAX: any. */
    uint64_t entries, bytes;
    uint64_t wanted_entries, wanted_bytes;
    uint64_t first_entries, first_bytes;

    aoticache_collection_item *window;
    size_t window_capacity, window_next, window_count;
    int64_t read_used_ns, read_id;     /* where the index was read to */
    bool is_read;                      /* to its end, or to where nothing is due */
    bool is_lost_listed, is_lost_read; /* what has lost is read first, up to here: */
    aoticache_digest lost_key;
    int64_t lost_id;
    size_t seen; /* candidates that the last reading gave */

    bool is_short_of_space; /* the log is merged after each batch */
    bool has_run_out;       /* a transaction has failed for lack of space: */
    size_t batch_limit;     /* so many entries are tried next */
    bool has_cleared;       /* what needs no index was removed to make space */
    bool has_no_quarantine; /* all of it was removed, for the free space that is asked for */
    uint64_t found_bytes;   /* of what a dry run would have removed for that */

    size_t round;    /* entries removed in this round, whose files are still there */
    bool is_durable; /* all that the index says of waiting objects is on the disk */
    aoticache_remover remover;
    int64_t *done; /* waiting objects that are gone: the next transaction forgets them */
    size_t done_count, done_capacity;

    aoticache_hash_map shared; /* dry run: objects of several artifacts, and how many of these would go (evict.c) */
    aoticache_digest *waiting; /* dry run: waiting objects, sorted */
    size_t waiting_count, waiting_capacity;
} aoticache_collection;

/* ---- choose.c: the goal, and which entries are due ---- */

/* Compares the limits with what there is. */
aoticache_status aoticache_collection_set_goal(aoticache_collection *collection, aoticache_error *ret_error);
/* Bytes that have to go so that the file system has the free space that the options ask for. */
uint64_t aoticache_collection_missing_space(const aoticache_collection *collection);
/* Asks the clock and the caller whether to go on. False: the collection is stopped, which the report says. */
bool aoticache_collection_poll(aoticache_collection *collection);
/* Sets last uses in the future to now; drops the limit of age where the clock cannot be believed, which the report says. */
aoticache_status aoticache_collection_check_clock(aoticache_collection *collection, aoticache_error *ret_error);
/* Records for the next collection what the clock says at the end of this one. */
void aoticache_collection_record_clock(aoticache_collection *collection);
/* Moves the next entries that are due to `ret_items`, at most AOTICACHE_COLLECTION_ROUND; 0: nothing is due any more. */
aoticache_status aoticache_collection_choose(aoticache_collection *collection, aoticache_collection_item *ret_items,
                                             size_t *ret_count, aoticache_error *ret_error);

/* ---- remover.c ---- */

/* Removes the files of all objects that wait for it, from where the last call ended. is_backlog: an earlier collection has
 * left them, and this one may stop in between. */
aoticache_status aoticache_collection_remove_files(aoticache_collection *collection, bool is_backlog,
                                                   aoticache_error *ret_error);
/* The same in the background, and merges the log afterwards. Finishes the background removal before it. */
aoticache_status aoticache_collection_start_removal(aoticache_collection *collection, aoticache_error *ret_error);
/* Waits for the background removal, if there is one, takes its results and returns its status. */
aoticache_status aoticache_collection_finish_removal(aoticache_collection *collection, aoticache_error *ret_error);
/* Writes to the index which of the waiting objects are gone. */
aoticache_status aoticache_collection_forget_done(aoticache_collection *collection, aoticache_error *ret_error);
/* Waits for the background removal and frees what the remover has. */
void aoticache_collection_close_remover(aoticache_collection *collection);

/* ---- leftovers.c: what no entry leads to ---- */

/* Looks for objects that nothing names: in a part of the store, or all of it where it is small or options.scan is set. */
aoticache_status aoticache_collection_scan(aoticache_collection *collection, aoticache_error *ret_error);
/* Removes damaged files that were put aside long enough ago. */
/* all: of whatever age, unless the options say never. A dry run counts the bytes in found_bytes then. */
void aoticache_collection_remove_quarantine(aoticache_collection *collection, bool all);

/* ---- evict.c ---- */

/* Measures the free space. Returns how many entries one transaction may remove: 1 to AOTICACHE_COLLECTION_BATCH. */
size_t aoticache_collection_measure_space(aoticache_collection *collection);
/* Gives up the reserve where it is needed, merges the log and removes what can go without the index. */
void aoticache_collection_clear(aoticache_collection *collection);
/* Removes entries, which it may sort, and what they alone need, from the index; their files go after the round. */
aoticache_status aoticache_collection_evict(aoticache_collection *collection, aoticache_collection_item *items,
                                            size_t count, aoticache_error *ret_error);
/* is_last: no round comes after it. */
aoticache_status aoticache_collection_end_round(aoticache_collection *collection, bool is_last,
                                                aoticache_error *ret_error);

/* For a dry run: counts what evict would do, and the objects that wait now. */
aoticache_status aoticache_collection_pretend(aoticache_collection *collection, const aoticache_collection_item *items,
                                              size_t count, aoticache_error *ret_error);
aoticache_status aoticache_collection_count_waiting(aoticache_collection *collection, aoticache_error *ret_error);
void aoticache_collection_free_dry(aoticache_collection *collection);

#endif
