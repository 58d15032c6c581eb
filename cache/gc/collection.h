/*
 * cache/gc/collection: one collection at work, for the files of cache/gc/ only.
 *
 * Nothing of it grows with what the store holds: entries come from the index by the window, least recently used first,
 * and go by the batch, many batches to a round. The steps of a round, each of which may be the last before the process is
 * killed: entries and what they alone named leave the index in transactions of a few milliseconds, which record the
 * objects as waiting; these are made durable, all at once; then, with the store locked exclusively for a stretch of a few
 * milliseconds at a time, the files go, beside the transactions of the next round; then the records. Where room or time is
 * short, a round is one transaction, and its files go before the next.
 */
#ifndef AOTICACHE_CACHE_GC_COLLECTION_H
#define AOTICACHE_CACHE_GC_COLLECTION_H

#include "cache/store/lock.h"
#include "cache/internal.h"
#include "cache/gc/collect.h"
#include "cache/gc/thread_pool.h"
#include "index/eviction/eviction.h"

/* How long others may have to wait: for the store's lock, and for the index's write lock. */
#define AOTICACHE_COLLECTION_STRETCH_NS UINT64_C(5000000)
#define AOTICACHE_COLLECTION_BATCH 256
#define AOTICACHE_COLLECTION_ROUND 2048 /* entries, at most; their files wait until it is full */

/* An entry of the window, in the order in which they go. */
typedef struct aoticache_collection_item {
    int64_t entry_id;
    int64_t last_used_ns;
    aoticache_digest key;
    uint64_t bytes;
    uint64_t op;  /* a number for it */
    double score; /* the higher, the sooner */
    bool is_pinned, is_kept;
} aoticache_collection_item;

typedef struct aoticache_collection {
    aoticache_cache *cache;
    aoticache_index *index;
    const aoticache_collect_options *options;
    aoticache_entry_fn callback;
    void *user;
    aoticache_collect_report report;
    uint64_t begun_ns; /* monotonic */
    int64_t now_ns;    /* wall clock */
    uint64_t max_age_seconds; /* UINT64_MAX: ages do not matter */
    uint64_t deadline_ns;
    bool is_stopped;   /* the caller, the time limit, or: */
    bool is_replaced;  /* the index is another one now */
    bool is_step;      /* nothing but entries and their objects */
    bool is_scarce;    /* little is free: the log is merged after each batch */
    bool is_cleared;   /* what needs no index has gone */
    bool is_waiting;   /* removing files is waiting for the disk rather than work */
    size_t chunk;      /* as many as the last one came to, more or less; 0: there was none */
    bool has_failed;   /* for want of room: */
    size_t most;       /* the batch that is tried next */
    aoticache_status late_status; /* a file that cannot be removed does not keep the others from going */
    aoticache_error late_error;

    /* What the index says, less what has gone, and what it is to come to; UINT64_MAX: any. */
    uint64_t entries, bytes;
    uint64_t wanted_entries, wanted_bytes;
    uint64_t first_entries, first_bytes;

    aoticache_collection_item *window;
    size_t window_capacity, window_next, window_count;
    int64_t read_used_ns, read_id; /* where the index was read to */
    bool is_read;                  /* to its end, or to where nothing is due */

    size_t round;       /* entries that have gone, and their files have not */
    bool is_backlog;    /* what waits was left by a collection before this one */
    bool is_durable;    /* on disk is all that the index says of what waits */
    int64_t removal_id; /* up to which waiting objects were dealt with */
    struct aoticache_collection_flight *flight; /* what removes the files of the last round; NULL: there is none yet */
    aoticache_thread_pool *pool; /* removes files */
    int64_t *done;      /* of these: gone */
    size_t done_count, done_capacity;

    struct aoticache_collection_shared *shared; /* dry run: what several have, and how many of these would go */
    size_t shared_capacity, shared_count;
    aoticache_digest *waiting; /* dry run: sorted */
    size_t waiting_count;
} aoticache_collection;

/* False where the collection has to end: notes why in the report. Asks the clock and the caller. */
bool aoticache_collection_goes_on(aoticache_collection *collection);

/* ---- choose.c ---- */

/* Moves the next entries that are due to `ret_items`, at most AOTICACHE_COLLECTION_ROUND; 0: nothing is due any more. */
aoticache_status aoticache_collection_choose(aoticache_collection *collection, aoticache_collection_item *ret_items,
                                             size_t *ret_count, aoticache_error *ret_error);

/* ---- evict.c ---- */

/* Takes entries out, which it may sort, with what they alone need; their files go after the round, beside the next one. */
aoticache_status aoticache_collection_evict(aoticache_collection *collection, aoticache_collection_item *items,
                                            size_t count, aoticache_error *ret_error);
/* is_last: no round comes after it. */
aoticache_status aoticache_collection_end_round(aoticache_collection *collection, bool is_last, aoticache_error *ret_error);

/* ---- free_space.c ---- */

/* How many entries may go in one transaction, by what is free and what has failed: 1 to AOTICACHE_COLLECTION_BATCH. */
size_t aoticache_collection_room(aoticache_collection *collection);
/* To be called when a batch and its files have gone: merges the log where little is free. */
void aoticache_collection_settle(aoticache_collection *collection);
/* After a batch of `tried` entries has failed: whether that was for want of room and another try makes sense. */
bool aoticache_collection_retries(aoticache_collection *collection, size_t tried);
/* Gives up the reserve where it is needed, merges the log and removes what can go without the index: leftovers, old
 * quarantine. */
void aoticache_collection_clear(aoticache_collection *collection);

/* ---- files.c ---- */

#define AOTICACHE_COLLECTION_CHUNK 192 /* about as many as go in a stretch */

/*
 * Removes files, at most AOTICACHE_COLLECTION_CHUNK, with the store locked and by several threads, until end_ns or a little
 * later. Returns how many it came to, from the first on and at least one, and notes what came of each.
 */
size_t aoticache_collection_remove_chunk(aoticache_collection *collection, const aoticache_index_removal *removals,
                                         size_t count, uint64_t end_ns);
/* A removal is not to come again. */
void aoticache_collection_note_done(aoticache_collection *collection, int64_t id);

/* ---- waiting.c ---- */

/* Removes the files of all objects that wait for it, from where the last call ended. */
aoticache_status aoticache_collection_remove_waiting(aoticache_collection *collection, aoticache_error *ret_error);
/* The files of a list, in the order in which they are best removed, which the list has afterwards. */
aoticache_status aoticache_collection_remove_listed(aoticache_collection *collection, aoticache_index_removal *removals,
                                                    size_t count, aoticache_error *ret_error);
/* No file may go before it is on disk that no entry needs it. */
aoticache_status aoticache_collection_make_durable(aoticache_collection *collection, aoticache_error *ret_error);
/* Writes which of them are gone. */
aoticache_status aoticache_collection_forget_done(aoticache_collection *collection, aoticache_error *ret_error);
/* For a dry run: adds those that wait now to what there is before, and to what would go. */
aoticache_status aoticache_collection_count_waiting(aoticache_collection *collection, aoticache_error *ret_error);

/* ---- background_removal.c ---- */

/* As remove_waiting, beside what the caller does until land. One at a time: it lands the one before. */
aoticache_status aoticache_collection_take_off(aoticache_collection *collection, aoticache_error *ret_error);
/* Waits for it, if there is one. What it says is of the files. */
aoticache_status aoticache_collection_land(aoticache_collection *collection, aoticache_error *ret_error);
/* The same, and no other will be: for the end of a collection, whatever has happened. */
void aoticache_collection_end_flights(aoticache_collection *collection);

/* ---- scan.c ---- */

/* Looks for objects that nothing names: in a part of the store, or all of it where it is small or options.scan is set. */
aoticache_status aoticache_collection_scan(aoticache_collection *collection, aoticache_error *ret_error);

/* ---- clock.c ---- */

/* Mends last uses in the future; takes the limit of age away where the clock cannot be believed, and notes that. */
aoticache_status aoticache_collection_check_clock(aoticache_collection *collection, aoticache_error *ret_error);
/* For the next collection: what the clock says at the end of this one. */
void aoticache_collection_record_clock(aoticache_collection *collection);

/* ---- dry_run.c: what would happen ---- */

aoticache_status aoticache_collection_pretend(aoticache_collection *collection, const aoticache_collection_item *items,
                                              size_t count, aoticache_error *ret_error);
void aoticache_collection_free_dry(aoticache_collection *collection);

/* ---- collect.c ---- */

/* Files that were put aside, damaged, and are old enough. */
void aoticache_collection_remove_quarantine(aoticache_collection *collection);

/* A collection with these options, and nothing but entries and their objects where is_step is set. */
aoticache_status aoticache_collection_run(aoticache_cache *cache, const aoticache_collect_options *options, bool is_step,
                                          aoticache_entry_fn callback, void *user, aoticache_collect_report *ret_report,
                                          aoticache_error *ret_error);

#endif
