/*
 * cache/gc/gc_internal: the state of one collection, and its remover of files; for the files of cache/gc/ only.
 *
 * Memory does not grow with what the store holds: entries are read from the index in windows, least recently used first, and
 * removed in batches, many batches to a round. A process may be killed after each step of a round:
 *
 *   1. Entries, and the objects that only they name, are removed from the index in transactions of a few milliseconds, which
 *      record the objects as waiting for removal.
 *   2. All these transactions are made durable together.
 *   3. The files are removed, with the store locked exclusively for a few milliseconds at a time. A background thread does
 *      this during the transactions of the next round.
 *   4. The records of waiting objects are removed.
 *
 * If free space or time is short, a round is one transaction, and its files are removed before the next round.
 */
#ifndef AOTICACHE_CACHE_GC_INTERNAL_H
#define AOTICACHE_CACHE_GC_INTERNAL_H

#include "base/hash_map.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "cache/gc/thread_pool.h"
#include "cache/cache_internal.h"
#include "cache/store/lock.h"
#include "index/eviction/eviction.h"

/* The longest time that other processes wait: for the store's lock, and for the index's write lock. */
#define AOTICACHE_COLLECTION_STRETCH_NS UINT64_C(5000000)
#define AOTICACHE_COLLECTION_BATCH 256
#define AOTICACHE_COLLECTION_ROUND 2048 /* entries, at most; their files are removed when the round is full */

/* An entry of the window, in the order of eviction. */
typedef struct aoticache_collection_item {
    int64_t entry_id;
    int64_t last_used_ns;
    aoticache_digest key;
    uint64_t bytes;
    uint64_t op;  /* a number for the operator */
    double score; /* the highest is removed first */
    bool is_pinned, is_kept;
    bool is_lost; /* as aoticache_index_candidate */
} aoticache_collection_item;

/*
 * Removes the files of objects that were removed from the index, with a pool of threads, either before it returns or in the
 * background. While a background removal runs, only its thread may use this struct.
 */
typedef struct aoticache_remover {
    aoticache_cache *cache;
    bool has_one_thread; /* inside a put: the program needs the processors */

    aoticache_index *index;            /* borrowed: used by the running removal */
    aoticache_index *background_index; /* a separate connection for reading; NULL: not needed yet */
    aoticache_index *background_log;   /* a connection to merge the log with; NULL: it is merged when it is very long */

    aoticache_index_removal *removals; /* what to remove */
    size_t count;
    int64_t last_id; /* number of the last listed waiting object */

    aoticache_thread_pool *pool;
    pthread_t thread;
    bool is_running;
    bool is_disk_bound; /* removing a file is mostly waiting for the disk */
    size_t chunk;       /* about as many files as fit into a stretch; 0: not known yet */

    /* Results since they were last read. */
    uint64_t objects, bytes;
    uint64_t backlog_bytes; /* of a backlog: bytes of objects that existed, whether or not they are removed by now */
    int64_t *done;          /* numbers of waiting objects that are gone */
    size_t done_count, done_capacity;
    bool index_is_replaced;  /* this remover must not remove anything more */
    aoticache_status status; /* of the background removal */
    aoticache_error error;
    aoticache_status file_status; /* a file that cannot be removed does not stop the removal of the others */
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
    bool is_step;    /* inside a put: only removes entries and their objects */
    bool is_stopped; /* by the caller, the time limit, or because the index was replaced */

    /* Entries and bytes in the index, less what was removed, and the goal; UINT64_MAX: any. */
    uint64_t entries, bytes;
    uint64_t wanted_entries, wanted_bytes;
    uint64_t first_entries, first_bytes;

    aoticache_collection_item *window;
    size_t window_capacity, window_next, window_count;
    int64_t read_used_ns, read_id;     /* position up to which the index was read */
    bool is_read;                      /* to its end, or to the first entry that is not due */
    bool is_lost_listed, is_lost_read; /* entries of slower kernels are read first, up to here: */
    aoticache_digest lost_key;
    int64_t lost_id;
    size_t seen; /* candidates that the last reading gave */

    bool is_short_of_space; /* the log is merged after each batch */
    bool has_run_out;       /* a transaction has failed for lack of space: */
    size_t batch_limit;     /* number of entries to try next */
    bool has_cleared;       /* everything that needs no index was removed to make space */
    bool has_no_quarantine; /* all of it was removed, for the requested free space */
    uint64_t found_bytes;   /* bytes that a dry run would have removed for that */

    size_t round;    /* entries removed in this round, whose files still exist */
    bool is_durable; /* everything that the index says of waiting objects is on the disk */
    aoticache_remover remover;
    int64_t *done; /* removed waiting objects: the next transaction deletes their records */
    size_t done_count, done_capacity;

    aoticache_hash_map shared; /* dry run: objects of several artifacts, and how many would be removed (evict.c) */
    aoticache_digest *waiting; /* dry run: waiting objects, sorted */
    size_t waiting_count, waiting_capacity;
} aoticache_collection;

/* ---- choose.c: the goal, and which entries are due ---- */

/* Compares the limits with the current contents. */
aoticache_status aoticache_collection_set_goal(aoticache_collection *collection, aoticache_error *ret_error);
/* Returns how many bytes must be removed so that the file system has the free space that the options require. */
uint64_t aoticache_collection_missing_space(const aoticache_collection *collection);
/* Checks the time limit and calls the caller's progress function. Returns false if the collection must stop, and sets that
 * in the report. */
bool aoticache_collection_poll(aoticache_collection *collection);
/* Sets last uses in the future to now. Drops the age limit if the clock cannot be trusted, and sets that in the report. */
aoticache_status aoticache_collection_check_clock(aoticache_collection *collection, aoticache_error *ret_error);
/* Records the clock at the end of this collection for the next one. */
void aoticache_collection_record_clock(aoticache_collection *collection);
/* Moves the next due entries to `ret_items`, at most AOTICACHE_COLLECTION_ROUND; 0: no more are due. */
aoticache_status aoticache_collection_choose(aoticache_collection *collection, aoticache_collection_item *ret_items,
                                             size_t *ret_count, aoticache_error *ret_error);

/* ---- remover.c ---- */

/* Removes the files of all waiting objects, from where the last call ended. is_backlog: an earlier collection left them, and
 * this one may stop in between. */
aoticache_status aoticache_collection_remove_files(aoticache_collection *collection, bool is_backlog,
                                                   aoticache_error *ret_error);
/* Does the same in the background, and merges the log afterwards. First finishes an earlier background removal. */
aoticache_status aoticache_collection_start_removal(aoticache_collection *collection, aoticache_error *ret_error);
/* Waits for the background removal, if there is one, takes its results and returns its status. */
aoticache_status aoticache_collection_finish_removal(aoticache_collection *collection, aoticache_error *ret_error);
/* Writes to the index which waiting objects are removed. */
aoticache_status aoticache_collection_forget_done(aoticache_collection *collection, aoticache_error *ret_error);
/* Waits for the background removal and frees the remover's resources. */
void aoticache_collection_close_remover(aoticache_collection *collection);

/* ---- leftovers.c: files without an entry ---- */

/* Searches for objects that nothing names: in a part of the store, or in all of it if it is small or options.scan is set. */
aoticache_status aoticache_collection_scan(aoticache_collection *collection, aoticache_error *ret_error);
/* Removes files of quarantine/ that were put there long enough ago. all: whatever their age, unless the options say never.
 * Then a dry run counts the bytes in found_bytes. */
void aoticache_collection_remove_quarantine(aoticache_collection *collection, bool all);

/* ---- evict.c ---- */

/* Measures the free space. Returns how many entries one transaction may remove: 1 to AOTICACHE_COLLECTION_BATCH. */
size_t aoticache_collection_measure_space(aoticache_collection *collection);
/* Releases the reserve if it is needed, merges the log and removes what can be removed without the index. */
void aoticache_collection_clear(aoticache_collection *collection);
/* Removes entries, which it may sort, and the objects that only they need, from the index; their files are removed after the
 * round. */
aoticache_status aoticache_collection_evict(aoticache_collection *collection, aoticache_collection_item *items,
                                            size_t count, aoticache_error *ret_error);
/* Ends a round. is_last: no round follows. */
aoticache_status aoticache_collection_end_round(aoticache_collection *collection, bool is_last,
                                                aoticache_error *ret_error);

/* Counts, for a dry run, what evict would do, and the objects that wait now. */
aoticache_status aoticache_collection_pretend(aoticache_collection *collection, const aoticache_collection_item *items,
                                              size_t count, aoticache_error *ret_error);
aoticache_status aoticache_collection_count_waiting(aoticache_collection *collection, aoticache_error *ret_error);
void aoticache_collection_free_dry(aoticache_collection *collection);

#endif
