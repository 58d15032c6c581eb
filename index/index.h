/*
 * index: maps keys to artifacts. One SQLite file, shared by all processes that use a cache directory.
 *
 * Only this directory includes sqlite3.h. Private to the library (cache/ uses it). The index is not authoritative: it can be
 * rebuilt from the manifests.
 *
 * Thread safety: one aoticache_index may be used from many threads (a mutex inside). Fork safety: a child that uses an
 * index which its parent opened opens its own connection on first use and leaves the parent's alone. In a child that was
 * forked while another thread was inside a function of this header, all of them return IO: SQLite's own locks may be held
 * forever in it. Durability: a transaction that returned OK survives power loss (synchronous=EXTRA); recency and counters
 * are written without waiting for the disk. Files: the index and the files next to it (-wal, -shm, -journal by SQLite, -gate
 * by connection/writer_queue.c, -uses by stats/pending.c, -answers by query_cache/query_cache.c) have mode 0600 (0660 if it
 * is shared) and, if root creates them, the owner of their directory; none may be a link. No other file is touched, even if
 * one of these names it: a journal that names one is CORRUPT (connection/vfs.c).
 */
#ifndef AOTICACHE_INDEX_INDEX_H
#define AOTICACHE_INDEX_INDEX_H

#include "base/base.h"

/* The version of the tables, PRAGMA user_version. */
#define AOTICACHE_INDEX_VERSION 1

typedef struct aoticache_index aoticache_index;

typedef struct aoticache_index_options {
    const char *path;
    bool read_only;
    uint32_t lock_timeout_ms; /* waiting processes go before one that has just written (connection/writer_queue.c) */
    aoticache_logger logger;  /* if WAL is not possible (network file systems) it receives one line */
    bool is_group_shared;     /* new files have mode 0660, for the group of their directory */
    /* The directory of `path`, if the caller has opened and checked it: then `path`, except its last component, is only for
     * messages. Borrowed for the call. NULL: it is opened by its name. */
    const int *directory_fd;
} aoticache_index_options;

/*
 * Opens or creates an index. It uses WAL if the file system
 * supports it (which is detected), otherwise a rollback journal. An index in a directory without write permission is read as
 * it is. An index that may only be read opens without read_only too: writing then returns DENIED. If the query cache is of
 * the index's current state, no connection is made (query_cache/query_cache.h): the first use that needs one makes it.
 *
 * Returns: OK, IO, NO_MEMORY, LOCKED, DENIED, CORRUPT (not a database, damaged, or another application's application_id),
 * UNSUPPORTED (another version of the tables), NOT_FOUND (read_only and no file).
 */
aoticache_status aoticache_index_open(const aoticache_index_options *options, aoticache_index **ret_index,
                                      aoticache_error *ret_error);
void aoticache_index_close(aoticache_index *index);
/*
 * Prepares for the end of a process that does not close the index: closes the connection if there is a log, so that, if no
 * other process has the index open, the log is merged and the next process need not read it. Also writes the query cache.
 * The next use connects again.
 */
void aoticache_index_at_exit(aoticache_index *index);

/* Connects SQLite's own writes, syncs, truncates and deletes to base/syscalls. Affects the whole process: for tests only. */
void aoticache_index_syscall_hooks_install(void);

#define AOTICACHE_INDEX_REQUIREMENT_BYTES 16

/* Only what a lookup needs: fixed size, no allocation. */
typedef struct aoticache_index_hit {
    int64_t entry_id;
    aoticache_digest artifact; /* the manifest */
    aoticache_digest library;
    uint64_t library_bytes;
    uint64_t content_offset; /* where the library begins in the manifest's object; 0: it is a separate object */
    uint32_t file_count;     /* files of the artifact; 1: only the library, and the manifest need not be read */
    uint64_t compile_ns;
    uint8_t requirements[AOTICACHE_INDEX_REQUIREMENT_BYTES]; /* little-endian words of aoticache_cpu_features */
} aoticache_index_hit;

/*
 * Finds all entries of a key, including those with a guard, the most demanding first (more requirement bits, then newer), at
 * most `capacity`.
 * ret_hits: filled on OK; *ret_count: the total number (may be more than capacity).
 * Returns: OK, NOT_FOUND (none), IO, CORRUPT, LOCKED, NO_MEMORY.
 */
aoticache_status aoticache_index_lookup(aoticache_index *index, const aoticache_digest *key,
                                        aoticache_index_hit *ret_hits, size_t capacity, size_t *ret_count,
                                        aoticache_error *ret_error);

/* Reads one entry by its number. Returns: OK, NOT_FOUND, IO, CORRUPT, LOCKED, NO_MEMORY. */
aoticache_status aoticache_index_lookup_entry(aoticache_index *index, int64_t entry_id, aoticache_index_hit *ret_hit,
                                              aoticache_error *ret_error);
/* Reads the guard of an entry, "" if it is exact; the caller frees *ret_guard with free(). Returns as lookup_entry. */
aoticache_status aoticache_index_read_guard(aoticache_index *index, int64_t entry_id, char **ret_guard,
                                            aoticache_error *ret_error);

typedef struct aoticache_index_object {
    aoticache_digest digest;
    uint64_t bytes;
} aoticache_index_object;

/*
 * One entry with everything that the index stores of it. Strings are UTF-8, at most 1 MiB each. guard may be NULL in put,
 * which means ""; list gives "". An encoding of more than AOTICACHE_INDEX_MAX_ENCODING_BYTES is not stored.
 */
typedef struct aoticache_index_entry {
    int64_t entry_id; /* ignored by put */
    aoticache_digest key;
    aoticache_digest artifact;
    aoticache_digest library;
    const aoticache_index_object *objects; /* all of the artifact: manifest first, library second */
    size_t object_count;     /* put: at least one, including the library, unless there is a content_offset */
    uint64_t content_offset; /* put only, as in aoticache_index_hit: the library is the rest of the manifest's object */
    uint32_t file_count;
    uint8_t requirements[AOTICACHE_INDEX_REQUIREMENT_BYTES];
    const char *guard;
    const char *op;
    const char *device;
    const char *description;
    const char *producer;
    uint64_t compile_ns;
    int64_t created_ns;
    /* list only: */
    int64_t last_used_ns;
    uint64_t uses;
    uint64_t bytes;
    /* put only: */
    const uint8_t *encoding; /* of the request; NULL: not known */
    size_t encoding_size;
} aoticache_index_entry;

#define AOTICACHE_INDEX_MAX_ENCODING_BYTES (64 << 10)

/*
 * Records an entry, its artifact and its objects in one durable transaction, and forgets a failure of the key. An entry with
 * the same key, requirements and guard is replaced, under a new entry_id, which the caller gets. `objects` need not be
 * recorded before. Returns, as all functions that write: OK, INVALID, LOCKED, IO (a full disk), DENIED (read-only), CORRUPT,
 * NO_MEMORY.
 */
aoticache_status aoticache_index_put(aoticache_index *index, const aoticache_index_entry *entry, int64_t *ret_entry_id,
                                     aoticache_error *ret_error);
/* Checks whether there is an entry that this one would replace: OK or NOT_FOUND. */
aoticache_status aoticache_index_has_same(aoticache_index *index, const aoticache_index_entry *entry,
                                          aoticache_error *ret_error);

/*
 * Groups many puts in one durable transaction: between begin and end no other process can write, and if a put fails, end
 * fails and undoes all of them. For an index that no other process uses yet.
 */
aoticache_status aoticache_index_bulk_begin(aoticache_index *index, aoticache_error *ret_error);
/* Ends the transaction. status: of the puts; any other status than OK rolls all of them back and is returned. */
aoticache_status aoticache_index_bulk_end(aoticache_index *index, aoticache_status status, aoticache_error *ret_error);

/* ---- many entries at once, for imports from another cache ---- */

/* Gives the `position`th entry, borrowed until the next call. OK, or a status that ends the batch. */
typedef aoticache_status (*aoticache_index_next_entry_fn)(void *user, size_t position, aoticache_index_entry *ret_entry,
                                                          aoticache_error *ret_error);

/*
 * Records `count` entries, each as aoticache_index_put() and immediately visible; all are durable when this returns OK.
 * Their objects must be durable before. On a failure some may be recorded, and may or may not survive a power loss.
 *
 * Uses a separate connection: puts of other threads still wait for the disk.
 * ret_entry_ids: `count` numbers. Returns: as aoticache_index_put(), and what `next` returns.
 */
aoticache_status aoticache_index_put_batch(const aoticache_index_options *options, size_t count,
                                           aoticache_index_next_entry_fn next, void *user, int64_t *ret_entry_ids,
                                           aoticache_error *ret_error);

/*
 * Each removes entries in one durable transaction; *ret_removed (may be NULL) may be 0, also if the digest is NULL.
 * remove_object removes every entry whose artifact contains the object (it was found damaged). The same transaction deletes
 * rows of artifacts and objects that no entry needs any longer ("unreferenced" below means "has no row"), and records the
 * objects whose files are waiting for removal (eviction/eviction.h).
 */
aoticache_status aoticache_index_remove_key(aoticache_index *index, const aoticache_digest *key, uint64_t *ret_removed,
                                            aoticache_error *ret_error);
aoticache_status aoticache_index_remove_object(aoticache_index *index, const aoticache_digest *object,
                                               uint64_t *ret_removed, aoticache_error *ret_error);
aoticache_status aoticache_index_remove_entry(aoticache_index *index, int64_t entry_id, uint64_t *ret_removed,
                                              aoticache_error *ret_error);

/* Return false to stop. Pointers are borrowed during the call. The callback must not use the index. */
typedef bool (*aoticache_index_entry_fn)(void *user, const aoticache_index_entry *entry);

/* An entry, to continue a listing after it. */
typedef struct aoticache_index_place {
    const char *op;
    int64_t entry_id;
} aoticache_index_place;

#define AOTICACHE_INDEX_ALL SIZE_MAX

/*
 * Lists entries by operator, those of one operator by their number, that is in the order in which they were stored (objects
 * and object_count are not filled in).
 *
 * op:    only this operator; NULL: all.
 * after: only entries after this one; NULL: from the beginning. It need not exist any longer.
 * limit: the maximum number. One call is one read transaction, which prevents merging the log.
 */
aoticache_status aoticache_index_list(aoticache_index *index, const char *op, const aoticache_index_place *after,
                                      size_t limit, aoticache_index_entry_fn callback, void *user,
                                      aoticache_error *ret_error);

typedef enum aoticache_index_extreme {
    AOTICACHE_INDEX_LARGEST, /* reads all artifacts */
    AOTICACHE_INDEX_COLDEST,
} aoticache_index_extreme;

/* Lists the first `limit` entries at one end, as aoticache_index_list() gives them. */
aoticache_status aoticache_index_list_extreme(aoticache_index *index, aoticache_index_extreme which, size_t limit,
                                              aoticache_index_entry_fn callback, void *user,
                                              aoticache_error *ret_error);

/* An entry as a holder's table needs it, with its request. Pointers are borrowed during the callback. */
typedef struct aoticache_index_stored {
    int64_t entry_id;
    aoticache_digest key;
    aoticache_digest artifact;
    int64_t rank; /* bits in requirements */
    int64_t created_ns;
    uint64_t compile_ns;
    uint8_t requirements[AOTICACHE_INDEX_REQUIREMENT_BYTES];
    const char *guard;
    const uint8_t *encoding; /* of the request */
    size_t encoding_size;    /* 0: not stored here, but in the manifest */
} aoticache_index_stored;

/* Like aoticache_index_entry_fn. */
typedef bool (*aoticache_index_stored_fn)(void *user, const aoticache_index_stored *stored);

/*
 * Lists entries of an operator with numbers above after_entry, in the order of their numbers, at most `limit`: a caller with
 * many entries calls it repeatedly, starting at the last entry, so that no other process waits long.
 */
aoticache_status aoticache_index_list_stored(aoticache_index *index, const char *op, int64_t after_entry, size_t limit,
                                             aoticache_index_stored_fn callback, void *user,
                                             aoticache_error *ret_error);

/* Gives the objects of an artifact as an array, which the caller frees with free(). NOT_FOUND. */
aoticache_status aoticache_index_artifact_objects(aoticache_index *index, const aoticache_digest *artifact,
                                                  aoticache_index_object **ret_objects, size_t *ret_count,
                                                  aoticache_error *ret_error);

typedef bool (*aoticache_index_object_fn)(void *user, const aoticache_digest *digest, uint64_t bytes);
/* Checks whether an entry names the object: OK or NOT_FOUND. */
aoticache_status aoticache_index_has_object(aoticache_index *index, const aoticache_digest *digest,
                                            aoticache_error *ret_error);

/* ---- failures ---- */

typedef struct aoticache_index_failure {
    aoticache_digest key;
    const char *op;
    const char *description;
    const char *message;
    int64_t failed_ns;
    int64_t retry_ns;
    uint32_t count;       /* list only: how many times in a row */
    int64_t delay_ns;     /* put only, if not 0: retry_ns is then failed_ns + delay_ns, twice that after each further */
    int64_t max_delay_ns; /* failure, at most failed_ns + max_delay_ns */
} aoticache_index_failure;

/* Records a failure; one of the same key is replaced, and counted. */
aoticache_status aoticache_index_put_failure(aoticache_index *index, const aoticache_index_failure *failure,
                                             aoticache_error *ret_error);
/*
 * Returns OK if a failure with failed_ns <= now_ns < retry_ns is recorded, otherwise NOT_FOUND. The caller frees
 * *ret_message with free().
 */
aoticache_status aoticache_index_lookup_failure(aoticache_index *index, const aoticache_digest *key, int64_t now_ns,
                                                char **ret_message, aoticache_error *ret_error);
/* Deletes failures. key NULL: failures with retry_ns <= before_ns; INT64_MAX for all. */
aoticache_status aoticache_index_forget_failures(aoticache_index *index, const aoticache_digest *key, int64_t before_ns,
                                                 aoticache_error *ret_error);
typedef bool (*aoticache_index_failure_fn)(void *user, const aoticache_index_failure *failure);
aoticache_status aoticache_index_list_failures(aoticache_index *index, aoticache_index_failure_fn callback, void *user,
                                               aoticache_error *ret_error);

/* ---- recency and counters, in batches ---- */

typedef struct aoticache_index_use {
    int64_t entry_id;
    int64_t last_used_ns;
    uint64_t uses; /* added */
} aoticache_index_use;

typedef struct aoticache_index_count {
    const char *name;
    uint64_t value; /* added */
} aoticache_index_count;

/* Adds both in one transaction. Uses of entries that are gone are ignored. */
aoticache_status aoticache_index_flush(aoticache_index *index, const aoticache_index_use *uses, size_t use_count,
                                       const aoticache_index_count *counts, size_t count_count,
                                       aoticache_error *ret_error);

typedef bool (*aoticache_index_count_fn)(void *user, const char *name, uint64_t value);

typedef struct aoticache_index_totals {
    uint64_t entries, artifacts, objects, bytes, failures;
    int64_t created_ns; /* when the index was made */
} aoticache_index_totals;
/* Reads the totals in constant time: every transaction updates them. */
aoticache_status aoticache_index_read_totals(aoticache_index *index, aoticache_index_totals *ret_totals,
                                             aoticache_error *ret_error);

#endif
