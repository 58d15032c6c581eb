/*
 * index/connection/internal: one open index, for the files of this directory only.
 *
 * Every public function is enter, statements, leave: enter (handle.c) takes the mutex and makes sure the connection belongs
 * to this process (fork.c); statements.c prepares a statement on first use; status.c turns SQLite's results into ours. Calls
 * go one way: handle, connect, schema and journal, statements and checkpoint, writer_queue, vfs, fork, status.
 */
#ifndef AOTICACHE_INDEX_CONNECTION_INTERNAL_H
#define AOTICACHE_INDEX_CONNECTION_INTERNAL_H

#include <pthread.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "index/connection/query_cache.h"
#include "index/connection/sql.h"
#include "index/index.h"

typedef enum aoticache_index_statement {
#define AOTICACHE_INDEX_STATEMENT_ENUM(name, sql) AOTICACHE_INDEX_SQL_##name,
    AOTICACHE_INDEX_STATEMENT_LIST(AOTICACHE_INDEX_STATEMENT_ENUM)
#undef AOTICACHE_INDEX_STATEMENT_ENUM
        AOTICACHE_INDEX_STATEMENT_COUNT
} aoticache_index_statement;

/* Short name for the enumerators. */
#define SQL(name) AOTICACHE_INDEX_SQL_##name

typedef enum aoticache_index_durability {
    AOTICACHE_INDEX_DURABILITY_UNSET, /* whatever this SQLite was built with */
    AOTICACHE_INDEX_RELAXED,          /* power loss may take the last moments, never the consistency */
    AOTICACHE_INDEX_DURABLE,          /* survives power loss once the commit has returned */
} aoticache_index_durability;

/* What a transaction adds to the totals; written by aoticache_index_end. */
typedef struct aoticache_index_change {
    int64_t entries, artifacts, objects, bytes, failures;
} aoticache_index_change;

struct aoticache_index {
    pthread_mutex_t lock; /* guards all below; SQLite's own mutexes are off (SQLITE_OPEN_NOMUTEX) */
    sqlite3 *db;          /* NULL: not needed yet, or left to the parent of a fork; opened on use */
    sqlite3_stmt *statements[AOTICACHE_INDEX_STATEMENT_COUNT];
    aoticache_index_durability durability; /* what this connection is set to */
    aoticache_index_change change;
    struct aoticache_index_sums *sums; /* of a batch of removals; NULL: each is written at once (statistics.h) */
    bool is_bulk;                      /* between bulk_begin and bulk_end: one transaction for many writes */
    aoticache_status bulk_status;      /* the first failure of one of them */
    int log_pages;                     /* as of the last commit or merge */
    bool is_collecting; /* another connection merges the log: this one does only when it is very long (checkpoint.c) */
    bool is_out_of_space; /* something has failed for lack of disk space; evict resets it */
    bool read_only;
    const char *lacks_wal; /* why this file system has none; NULL: it may have */
    bool is_group_shared;
    bool is_without_shm; /* read as it is, as the disk has no space for its -shm file (connect.c) */
    uint32_t lock_timeout_ms;
    uint32_t wait_ms;       /* how long a statement waits for a lock: lock_timeout_ms, but less for some */
    uint64_t wait_begun_ns; /* when the one that waits now began to */
    int gate_fd;            /* -1: not open (writer_queue.c) */
    bool is_in_gate;        /* it is locked: this connection writes next */
    bool is_connecting;     /* no other thread may use the connection yet */
    aoticache_logger logger;
    aoticache_index *next; /* list of fork.c */
    char *path;            /* for messages */
    aoticache_query_cache query_cache;

    /* vfs.c */
    struct aoticache_index_folder *folder; /* the index's, shared by all that are in it; NULL: not open */
    int folder_fd;                         /* directory's */
    char *name;             /* by which SQLite knows the file: in the directory's descriptor; NULL: not yet */
    char foreign_name[256]; /* what a file asked SQLite to touch, and is not the index's: "" for nothing */
    sqlite3_vfs vfs;
    sqlite3_vfs *plain_vfs; /* which it stands on */
    char vfs_name[32];
};

/* ---- vfs.c: the files that SQLite may touch for an index ---- */

#define AOTICACHE_INDEX_HOOKED_VFS "aoticache-hooked" /* syscall_hooks.c */

/* folder_fd: the directory of index->path, where the caller has it open; otherwise NULL. Returns: OK, NOT_FOUND (read_only),
 * IO, DENIED, NO_MEMORY. */
aoticache_status aoticache_index_vfs_open_folder(aoticache_index *index, const int *folder_fd,
                                                 aoticache_error *ret_error);
void aoticache_index_vfs_close_folder(aoticache_index *index);
/* Fills index->name, where it is not yet. Returns: OK, IO, DENIED, NO_MEMORY. */
aoticache_status aoticache_index_vfs_name(aoticache_index *index, aoticache_error *ret_error);
/* ---- guard.c: an open file between SQLite and its VFS ---- */

/* Bytes of a guarded file: szOsFile of the VFS. */
int aoticache_index_guard_bytes(const sqlite3_vfs *plain_vfs);
/* The xOpen of plain_vfs, with a guard around the file. */
int aoticache_index_guard_open(sqlite3_vfs *plain_vfs, const char *name, sqlite3_file *file, int flags, int *ret_flags);

/* sqlite3_open_v2, with index->name or a URI of it. NOMUTEX and NOFOLLOW are added to the flags. */
int aoticache_index_vfs_connect(aoticache_index *index, const char *name, int flags, sqlite3 **ret_db);

/* The index's file (suffix "") or one beside it ("-wal"): lstat(2), and open(2) for reading and writing with O_CREAT and
 * `flags`, with the mode and the owner that files of this directory have. -1 with errno. */
int aoticache_index_vfs_stat(const aoticache_index *index, const char *suffix, struct stat *ret_found);
/* Returns whether the file is there and may be written to. */
bool aoticache_index_vfs_is_writable(const aoticache_index *index, const char *suffix);
/* Why the file cannot be opened for writing now, whatever its rights say: an errno, 0 if it can. Not for a file that SQLite
 * locks: closing it gives this process's locks up. */
int aoticache_index_vfs_find_refusal(const aoticache_index *index, const char *suffix);
int aoticache_index_vfs_create(const aoticache_index *index, const char *suffix, int flags);
/* open(2) of what is there, and unlink(2). */
int aoticache_index_vfs_open(const aoticache_index *index, const char *suffix, int flags);
int aoticache_index_vfs_unlink(const aoticache_index *index, const char *suffix);

/* ---- fork.c: which process a connection belongs to ---- */

/*
 * To be called before anything else of SQLite, and undone by fork_leave. In the child of a fork the first call drops the
 * connections that the parent opened.
 *
 * Returns: OK, or IO in a child that was forked while another thread was inside: SQLite's own locks may be held for ever.
 */
aoticache_status aoticache_index_fork_enter(const char *path, aoticache_error *ret_error);
void aoticache_index_fork_leave(void);

/* The list of open indexes. The lock is also held while the file is created and opened (connect.c says why). */
void aoticache_index_registry_lock(void);
void aoticache_index_registry_unlock(void);
void aoticache_index_register(aoticache_index *index);
void aoticache_index_unregister(aoticache_index *index);
/* Finalizes the statements and closes the database and the gate. NULL is allowed in `db`. */
void aoticache_index_disconnect(aoticache_index *index);

/* ---- connect.c: from a path to a connection ---- */

/* Opens index->db where it is NULL, and checks or makes the tables. */
aoticache_status aoticache_index_connect(aoticache_index *index, aoticache_error *ret_error);
/* Returns whether changes may be in its WAL alone: that is there and not empty, or cannot be looked at. */
bool aoticache_index_has_wal(const aoticache_index *index);
/* Returns whether an index that is read as it is has to be opened again, as others may change it now. */
bool aoticache_index_is_outdated(const aoticache_index *index);

/* ---- handle.c: every use of an index ---- */

/* Takes the mutex, with a usable connection. On anything but OK nothing is held. */
aoticache_status aoticache_index_enter(aoticache_index *index, aoticache_error *ret_error);
void aoticache_index_leave(aoticache_index *index);
/* enter, for one statement, which is prepared. On anything but OK nothing is held. */
aoticache_status aoticache_index_enter_statement(aoticache_index *index, aoticache_index_statement which,
                                                 sqlite3_stmt **ret_statement, aoticache_error *ret_error);
/* Resets the statement and leaves. */
void aoticache_index_leave_statement(aoticache_index *index, sqlite3_stmt *statement);
/* Reads one row; false: it is damaged. *ret_continues, true before, says whether more are wanted. */
typedef bool (*aoticache_index_row_fn)(void *user, sqlite3_stmt *row, bool *ret_continues);
/* Walks through the rows of an entered statement, its bindings made, and leaves it. table: what they are, for messages. */
aoticache_status aoticache_index_walk_and_leave(aoticache_index *index, sqlite3_stmt *statement, const char *table,
                                                aoticache_index_row_fn read, void *user, aoticache_error *ret_error);
typedef aoticache_status (*aoticache_index_read_fn)(aoticache_index *index, sqlite3_stmt *row, void *result,
                                                    aoticache_error *ret_error);
/* Enters, reads the first row of a statement that takes a number or nothing, and leaves. NOT_FOUND: there is no row. */
aoticache_status aoticache_index_read_row(aoticache_index *index, aoticache_index_statement which, int64_t parameter,
                                          aoticache_index_read_fn read, void *result, aoticache_error *ret_error);
/* enter, for one write transaction, which is begun. On anything but OK nothing is held. */
aoticache_status aoticache_index_enter_write(aoticache_index *index, aoticache_index_durability durability,
                                             aoticache_error *ret_error);
/* Ends the transaction as aoticache_index_end does, and leaves. */
aoticache_status aoticache_index_leave_write(aoticache_index *index, aoticache_status status,
                                             aoticache_error *ret_error);

/* ---- writer_queue.c: the wait for the write lock ---- */

/* SQLite's busy handler; argument: the index. 0 if wait_ms are over, by the clock. */
int aoticache_index_wait(void *argument, int tries);
/*
 * Tries for the write lock until `try` gives another result than SQLITE_BUSY, or wait_ms are over: half of them at most
 * until nobody else waits for it, and then keeps others waiting. The mutex is free in the pauses, but not while the
 * connection is being made: `try` relies on nothing from before, which other threads may have changed.
 */
typedef int (*aoticache_index_write_fn)(aoticache_index *index, void *user);
int aoticache_index_writer_queue_step(aoticache_index *index, aoticache_index_write_fn try, void *user);
/* The gate alone, with the mutex: where it is not to be had, it is entered all the same. To be left. */
void aoticache_index_writer_queue_enter(aoticache_index *index);
/* Preserves errno. */
void aoticache_index_writer_queue_leave(aoticache_index *index);

/* ---- checkpoint.c ---- */

/* From here on this connection's commits merge the log into the file when it has grown. */
void aoticache_index_checkpoint_prepare(aoticache_index *index);
/* Merges the log now, as far as no reader needs it. Where it cannot be, the next commit tries again. */
void aoticache_index_merge_log(aoticache_index *index);

/* ---- schema.c, journal.c ---- */

/* Checks application_id and user_version; makes or migrates the tables where they are older than this library. */
aoticache_status aoticache_index_schema_check(aoticache_index *index, aoticache_error *ret_error);

/* UNSUPPORTED: the version is a newer library's. */
aoticache_status aoticache_index_check_version(const aoticache_index *index, int64_t version,
                                               aoticache_error *ret_error);
/*
 * A newer library may migrate the index while it is open here. UNSUPPORTED: it has. Asked in each write transaction, where a
 * statement meets tables that were changed, and before the index is called damaged: the rows would be misunderstood, and a
 * rebuilt index would be of this version, without what the newer one kept. SQLite's messages of an earlier failure are lost.
 */
aoticache_status aoticache_index_refuse_newer(aoticache_index *index, aoticache_error *ret_error);

/*
 * Why a file system (statfs f_type) is one where WAL's shared memory does not work (several machines share it), or ends
 * processes (btrfs that is full). NULL: it is none of these. Static storage.
 */
const char *aoticache_index_filesystem_lacks_wal(long type);

/*
 * Sees what file system the index is on. On a shared one an index that was in WAL mode elsewhere goes back to a rollback
 * journal, if nobody else uses it at this moment.
 */
void aoticache_index_journal_prepare(aoticache_index *index);
void aoticache_index_journal_leave_wal(aoticache_index *index);

/* Turns WAL on for a new index, where it works. Returns OK also where it does not: one log line says so. Otherwise LOCKED. */
aoticache_status aoticache_index_journal_choose(aoticache_index *index, aoticache_error *ret_error);

/* The journal mode that is set afterwards: at least 16 bytes, "" where SQLite failed. mode: NULL to ask only. */
int aoticache_index_journal_pragma(aoticache_index *index, const char *mode, char ret_mode[16]);

/* ---- statements.c: nothing that is read is trusted: a column of another type, size or sign is refused ---- */

/* The statement, reset and without bindings of interest; borrowed. To be reset by its user (sqlite3_reset). */
aoticache_status aoticache_index_prepare(aoticache_index *index, aoticache_index_statement which,
                                         sqlite3_stmt **ret_statement, aoticache_error *ret_error);

/* After a step: UNSUPPORTED if SQLite saw changed tables, and they are of a newer library. What was read counts for nothing. */
static inline aoticache_status aoticache_index_check_tables(aoticache_index *index, sqlite3_stmt *statement,
                                                            aoticache_error *ret_error)
{
    if (__builtin_expect(sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_REPREPARE, 0) == 0, 1))
        return AOTICACHE_OK;
    return aoticache_index_refuse_newer(index, ret_error);
}

/* Writes a number of the table `meta`, inside a transaction. */
aoticache_status aoticache_index_put_meta(aoticache_index *index, const char *name, int64_t value,
                                          aoticache_error *ret_error);
/* Steps a statement that gives no rows, and resets it. ret_changes: rows it changed, may be NULL. */
aoticache_status aoticache_index_execute(aoticache_index *index, sqlite3_stmt *statement, uint64_t *ret_changes,
                                         aoticache_error *ret_error);
/* Prepares and executes a statement with one digest, or none (NULL). */
aoticache_status aoticache_index_execute_digest(aoticache_index *index, aoticache_index_statement which,
                                                const aoticache_digest *digest, uint64_t *ret_changes,
                                                aoticache_error *ret_error);
/* Steps to the next row: OK, or NOT_FOUND: there is none. To be reset by its user once the row has been read. */
aoticache_status aoticache_index_fetch(aoticache_index *index, sqlite3_stmt *statement, aoticache_error *ret_error);
/* Whether the statement, given one digest, has a row: OK or NOT_FOUND. */
aoticache_status aoticache_index_probe_digest(aoticache_index *index, aoticache_index_statement which,
                                              const aoticache_digest *digest, aoticache_error *ret_error);

/* Gives the rows of a statement, its bindings made, to `read`, and resets it. table: what they are, for messages. */
aoticache_status aoticache_index_walk(aoticache_index *index, sqlite3_stmt *statement, const char *table,
                                      aoticache_index_row_fn read, void *user, aoticache_error *ret_error);

/* What makes the connection write without waiting for the disk: it may lose that, but not damage the index. */
const char *aoticache_index_relaxed_sql(aoticache_index *index);
/* A write transaction. end commits where `status` is OK, otherwise rolls back; it returns the first failure. */
aoticache_status aoticache_index_begin(aoticache_index *index, aoticache_index_durability durability,
                                       aoticache_error *ret_error);
aoticache_status aoticache_index_end(aoticache_index *index, aoticache_status status, aoticache_error *ret_error);

/* Bindings borrow what they are given until the statement is reset. They cannot fail but for memory: step notices. */
void aoticache_index_bind_digest(sqlite3_stmt *statement, int parameter, const aoticache_digest *digest);
void aoticache_index_bind_text(sqlite3_stmt *statement, int parameter, const char *text);
/* Stops at the largest number that SQLite can keep. */
void aoticache_index_bind_unsigned(sqlite3_stmt *statement, int parameter, uint64_t value);

/* Each returns false if the column is not what it should be. */
bool aoticache_index_read_blob(sqlite3_stmt *statement, int column, void *ret_bytes, size_t size);
bool aoticache_index_read_integer(sqlite3_stmt *statement, int column, int64_t *ret_value);
bool aoticache_index_read_unsigned(sqlite3_stmt *statement, int column, uint64_t *ret_value);
bool aoticache_index_read_count(sqlite3_stmt *statement, int column, uint32_t *ret_value);
/* Borrowed until the next step or reset. */
bool aoticache_index_read_text(sqlite3_stmt *statement, int column, const char **ret_text);

/* ---- objects.c ---- */

typedef struct aoticache_index_object_row {
    uint64_t bytes;
    uint64_t refs; /* how often artifacts name it */
} aoticache_index_object_row;

/* NOT_FOUND: it has no row. */
aoticache_status aoticache_index_read_object(aoticache_index *index, const aoticache_digest *digest,
                                             aoticache_index_object_row *ret_row, aoticache_error *ret_error);
/* A column with digests one behind the other; false: it is damaged. Borrowed until the next step or reset. */
bool aoticache_index_read_parts(sqlite3_stmt *statement, int column, const uint8_t **ret_digests, size_t *ret_count);

/* The objects of an artifact in their order, but those without a row: an array of the caller's, by free(). ret_entry: an
 * entry that names it; may be NULL. NOT_FOUND. */
aoticache_status aoticache_index_read_artifact(aoticache_index *index, const aoticache_digest *artifact,
                                               aoticache_index_object **ret_objects, size_t *ret_count,
                                               int64_t *ret_entry, aoticache_error *ret_error);

/* ---- status.c ---- */

/* The status for SQLite's (extended) result code. */
aoticache_status aoticache_index_status_of(int result, int system_errno);

/* "index PATH: WHAT: SQLite's text", with the status of `result`. */
aoticache_status aoticache_index_fail(aoticache_index *index, int result, const char *what, aoticache_error *ret_error);

/* CORRUPT: a row of `table` does not have the shape that the schema gives it. */
aoticache_status aoticache_index_fail_row(aoticache_index *index, const char *table, aoticache_error *ret_error);

#endif
