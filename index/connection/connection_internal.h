/*
 * index/connection/connection_internal: one open index, for the files of this directory only.
 *
 * Every public function consists of enter, statements, leave: enter (handle.c) takes the mutex and makes sure the connection
 * belongs to this process (fork.c); statements.c prepares a statement on first use; status.c converts SQLite's results to
 * statuses. Calls go only in this direction: handle, connect, schema and journal, statements and checkpoint, writer_queue,
 * vfs, fork, status.
 */
#ifndef AOTICACHE_INDEX_CONNECTION_INTERNAL_H
#define AOTICACHE_INDEX_CONNECTION_INTERNAL_H

#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include "index/query_cache/query_cache.h"
#include "index/connection/sql.h"
#include "index/index.h"

typedef enum aoticache_index_statement {
#define AOTICACHE_INDEX_STATEMENT_ENUM(name, sql) AOTICACHE_INDEX_SQL_##name,
    AOTICACHE_INDEX_STATEMENT_LIST(AOTICACHE_INDEX_STATEMENT_ENUM)
#undef AOTICACHE_INDEX_STATEMENT_ENUM
        AOTICACHE_INDEX_STATEMENT_COUNT
} aoticache_index_statement;

/* Short name of the enumerators. */
#define SQL(name) AOTICACHE_INDEX_SQL_##name

typedef enum aoticache_index_durability {
    AOTICACHE_INDEX_DURABILITY_UNSET, /* the default of this SQLite build */
    AOTICACHE_INDEX_RELAXED,          /* power loss may lose the most recent commits, but never consistency */
    AOTICACHE_INDEX_DURABLE,          /* survives power loss once the commit has returned */
} aoticache_index_durability;

/* Changes of the totals by a transaction; written by aoticache_index_end. */
typedef struct aoticache_index_change {
    int64_t entries, artifacts, objects, bytes, failures;
} aoticache_index_change;

struct aoticache_index {
    pthread_mutex_t lock; /* guards the members below; SQLite's own mutexes are off (SQLITE_OPEN_NOMUTEX) */
    sqlite3 *db;          /* NULL: not needed yet, or left to the parent of a fork; opened on use */
    sqlite3_stmt *statements[AOTICACHE_INDEX_STATEMENT_COUNT];
    aoticache_index_durability durability; /* current setting of this connection */
    aoticache_index_change change;
    struct aoticache_index_sums *sums; /* of a batch of removals; NULL: each is written immediately (statistics.h) */
    bool is_bulk;                      /* between bulk_begin and bulk_end: one transaction for many writes */
    aoticache_status bulk_status;      /* the first failure of one of them */
    int log_pages;                     /* as of the last commit or merge */
    bool is_collecting; /* another connection merges the log: this one does only when it is very long (checkpoint.c) */
    bool is_out_of_space; /* something has failed for lack of disk space; evict resets it */
    bool read_only;
    const char *lacks_wal; /* why this file system does not support WAL; NULL: it may support it */
    bool is_group_shared;
    bool is_without_shm; /* read without locks, because the disk has no space for its -shm file (connect.c) */
    uint32_t lock_timeout_ms;
    uint32_t wait_ms; /* how long a statement waits for a lock: lock_timeout_ms, but shorter for some statements */
    uint64_t wait_begun_ns; /* when the current wait began */
    int gate_fd;            /* -1: not open (writer_queue.c) */
    dev_t gate_device;      /* of its file: a program may close the descriptor, and open another file with its number */
    ino_t gate_inode;
    bool is_in_gate;    /* the gate is locked: this connection writes next */
    bool is_connecting; /* no other thread may use the connection yet */
    aoticache_logger logger;
    aoticache_index *next; /* list of fork.c */
    char *path;            /* for messages */
    aoticache_query_cache query_cache;

    /* vfs.c */
    struct aoticache_index_directory
        *directory;         /* the index's directory, shared by all indexes in it; NULL: not open */
    int directory_fd;       /* of the directory */
    char *name;             /* SQLite's name of the file, through the directory's descriptor; NULL: not made yet */
    char foreign_name[256]; /* the foreign file that a journal named for SQLite; "" for none */
    sqlite3_vfs vfs;
    sqlite3_vfs *plain_vfs; /* the underlying VFS */
    int io_errno;           /* of the last operation on a file that failed; 0 once it is reported */
    char vfs_name[32];
};

/* ---- vfs.c: the files that SQLite may touch for an index ---- */

#define AOTICACHE_INDEX_HOOKED_VFS "aoticache-hooked" /* syscall_hooks.c */

/* Opens the index's directory. directory_fd: the directory of index->path, if the caller has it open; otherwise NULL. Returns:
 * OK, NOT_FOUND (read_only), IO, DENIED, NO_MEMORY. */
aoticache_status aoticache_index_vfs_open_directory(aoticache_index *index, const int *directory_fd,
                                                    aoticache_error *ret_error);
void aoticache_index_vfs_close_directory(aoticache_index *index);
/* Fills in index->name if it is not set. Returns: OK, IO, DENIED, NO_MEMORY. */
aoticache_status aoticache_index_vfs_name(aoticache_index *index, aoticache_error *ret_error);
/* ---- guard.c: a wrapper around each file that SQLite opens ---- */

/* Returns the size of a guarded file: szOsFile of the VFS. */
int aoticache_index_guard_bytes(const sqlite3_vfs *plain_vfs);
/* Does the xOpen of index->plain_vfs, and wraps the file in a guard. */
int aoticache_index_guard_open(aoticache_index *index, const char *name, sqlite3_file *file, int flags, int *ret_flags);

/* Does sqlite3_open_v2, with index->name or a URI of it. NOMUTEX and NOFOLLOW are added to the flags. */
int aoticache_index_vfs_connect(aoticache_index *index, const char *name, int flags, sqlite3 **ret_db);

/* Operate on the index's file (suffix "") or one next to it ("-wal"): lstat(2), and open(2) for reading and writing with
 * O_CREAT and `flags`, with the mode and the owner for files of this directory. -1 with errno. */
int aoticache_index_vfs_stat(const aoticache_index *index, const char *suffix, struct stat *ret_found);
/* Returns whether the file exists and may be written. */
bool aoticache_index_vfs_is_writable(const aoticache_index *index, const char *suffix);
/* Returns the errno with which the file cannot be opened for writing now, whatever its permissions are; 0 if it can. Not for
 * a file that SQLite locks: closing it would release this process's locks. */
int aoticache_index_vfs_find_refusal(const aoticache_index *index, const char *suffix);
int aoticache_index_vfs_create(const aoticache_index *index, const char *suffix, int flags);
/* Do open(2) of an existing file, and unlink(2). */
int aoticache_index_vfs_open(const aoticache_index *index, const char *suffix, int flags);
int aoticache_index_vfs_unlink(const aoticache_index *index, const char *suffix);

/* ---- fork.c: which process a connection belongs to ---- */

/*
 * Must be called before anything else of SQLite, and be undone with fork_leave. In the child of a fork the first call drops
 * the connections that the parent opened.
 *
 * Returns: OK, or IO in a child that was forked while another thread was inside: SQLite's own locks may be held forever.
 */
aoticache_status aoticache_index_fork_enter(const char *path, aoticache_error *ret_error);
void aoticache_index_fork_leave(void);

/* Lock the list of open indexes. The lock is also held while the file is created and opened (connect.c says why). */
void aoticache_index_registry_lock(void);
void aoticache_index_registry_unlock(void);
void aoticache_index_register(aoticache_index *index);
void aoticache_index_unregister(aoticache_index *index);
/* Finalizes the statements and closes the database and the gate. NULL is allowed in `db`. */
void aoticache_index_disconnect(aoticache_index *index);

/* ---- connect.c: from a path to a connection ---- */

/* Opens index->db if it is NULL, and checks or creates the tables. */
aoticache_status aoticache_index_connect(aoticache_index *index, aoticache_error *ret_error);
/* Returns whether the WAL may contain changes: it exists and is not empty, or cannot be examined. */
bool aoticache_index_has_wal(const aoticache_index *index);
/* Returns whether an index that is read without locks has to be reopened, because other processes may change it now. */
bool aoticache_index_is_outdated(const aoticache_index *index);

/* ---- handle.c: every use of an index ---- */

/* Takes the mutex, with a usable connection. On failure nothing is held. */
aoticache_status aoticache_index_enter(aoticache_index *index, aoticache_error *ret_error);
void aoticache_index_leave(aoticache_index *index);
/* Enters for one statement, which is prepared. On failure nothing is held. */
aoticache_status aoticache_index_enter_statement(aoticache_index *index, aoticache_index_statement which,
                                                 sqlite3_stmt **ret_statement, aoticache_error *ret_error);
/* Resets the statement and leaves. */
void aoticache_index_leave_statement(aoticache_index *index, sqlite3_stmt *statement);
/* Reads one row; returns false if it is damaged. *ret_continues, initially true: whether more rows are wanted. */
typedef bool (*aoticache_index_row_fn)(void *user, sqlite3_stmt *row, bool *ret_continues);
/* Iterates over the rows of an entered statement whose parameters are bound, and leaves it. table: the name of the rows, for
 * messages. */
aoticache_status aoticache_index_walk_and_leave(aoticache_index *index, sqlite3_stmt *statement, const char *table,
                                                aoticache_index_row_fn read, void *user, aoticache_error *ret_error);
typedef aoticache_status (*aoticache_index_read_fn)(aoticache_index *index, sqlite3_stmt *row, void *result,
                                                    aoticache_error *ret_error);
/* Enters, reads the first row of a statement that takes a number or nothing, and leaves. NOT_FOUND: there is no row. */
aoticache_status aoticache_index_read_row(aoticache_index *index, aoticache_index_statement which, int64_t parameter,
                                          aoticache_index_read_fn read, void *result, aoticache_error *ret_error);
/* Enters for one write transaction, which is begun. On failure nothing is held. */
aoticache_status aoticache_index_enter_write(aoticache_index *index, aoticache_index_durability durability,
                                             aoticache_error *ret_error);
/* Ends the transaction as aoticache_index_end does, and leaves. */
aoticache_status aoticache_index_leave_write(aoticache_index *index, aoticache_status status,
                                             aoticache_error *ret_error);

/* ---- writer_queue.c: the wait for the write lock ---- */

/* Waits; this is SQLite's busy handler. argument: the index. Returns 0 if wait_ms have passed by the clock. */
int aoticache_index_wait(void *argument, int tries);
/*
 * Tries to get the write lock: calls `try` until it gives another result than SQLITE_BUSY, or wait_ms have passed. It waits
 * in the queue for at most half of that time, and then makes other writers wait. The mutex is released in the pauses, except
 * while the connection is being made: `try` must not rely on earlier state, which other threads may have changed.
 */
typedef int (*aoticache_index_write_fn)(aoticache_index *index, void *user);
int aoticache_index_writer_queue_step(aoticache_index *index, aoticache_index_write_fn try, void *user);
/* Enters the writer queue, with the mutex held; if the queue cannot be locked, continues all the same. Must be left. */
void aoticache_index_writer_queue_enter(aoticache_index *index);
/* Preserves errno. */
void aoticache_index_writer_queue_leave(aoticache_index *index);
/* Returns whether the program has closed the gate's descriptor, which may belong to another file now. */
static inline bool aoticache_index_gate_is_lost(const aoticache_index *index)
{
    struct stat found;
    if (index->gate_fd < 0 || fstat(index->gate_fd, &found) != 0)
        return index->gate_fd >= 0 && errno == EBADF;
    return found.st_dev != index->gate_device || found.st_ino != index->gate_inode;
}

/* ---- checkpoint.c ---- */

/* Makes this connection's commits merge the log into the file when it has grown. */
void aoticache_index_checkpoint_prepare(aoticache_index *index);
/* Merges the log now, as far as no reader needs it. If that fails, the next commit tries again. */
void aoticache_index_merge_log(aoticache_index *index);

/* ---- schema.c, journal.c ---- */

/* Checks application_id and user_version; creates the tables in an empty file. UNSUPPORTED: they have another version. */
aoticache_status aoticache_index_schema_check(aoticache_index *index, aoticache_error *ret_error);

/*
 * Returns why WAL must not be used on a file system (statfs f_type): its shared memory does not work there (several machines
 * share the file system), or it ends processes (a full btrfs). NULL: WAL may be used. Static storage.
 */
const char *aoticache_index_filesystem_lacks_wal(long type);

/*
 * Detects the file system of the index. On a shared one an index that was in WAL mode elsewhere is switched back to a
 * rollback journal, if no other process uses it at this moment.
 */
void aoticache_index_journal_prepare(aoticache_index *index);
void aoticache_index_journal_leave_wal(aoticache_index *index);

/* Turns on WAL for a new index, if it works. Returns OK also if it does not work: one log line says so. Otherwise LOCKED. */
aoticache_status aoticache_index_journal_choose(aoticache_index *index, aoticache_error *ret_error);

/* Sets the journal mode and gives the resulting mode: at least 16 bytes, "" if SQLite failed. mode: NULL to query only. */
int aoticache_index_journal_pragma(aoticache_index *index, const char *mode, char ret_mode[16]);

/* ---- statements.c: no value that is read is trusted: a column of another type, size or sign is refused ---- */

/* Gives the statement, reset, with old bindings that do not matter; borrowed. The caller resets it (sqlite3_reset). */
aoticache_status aoticache_index_prepare(aoticache_index *index, aoticache_index_statement which,
                                         sqlite3_stmt **ret_statement, aoticache_error *ret_error);

/* Writes a number to the table `meta`, inside a transaction. */
aoticache_status aoticache_index_put_meta(aoticache_index *index, const char *name, int64_t value,
                                          aoticache_error *ret_error);
/* Steps a statement without result rows, and resets it. ret_changes: number of rows changed, may be NULL. */
aoticache_status aoticache_index_execute(aoticache_index *index, sqlite3_stmt *statement, uint64_t *ret_changes,
                                         aoticache_error *ret_error);
/* Prepares and executes a statement with one digest, or none (NULL). */
aoticache_status aoticache_index_execute_digest(aoticache_index *index, aoticache_index_statement which,
                                                const aoticache_digest *digest, uint64_t *ret_changes,
                                                aoticache_error *ret_error);
/* Steps to the next row: OK, or NOT_FOUND if there is none. The caller resets the statement after reading the row. */
aoticache_status aoticache_index_fetch(aoticache_index *index, sqlite3_stmt *statement, aoticache_error *ret_error);
/* Checks whether the statement, given one digest, has a row: OK or NOT_FOUND. */
aoticache_status aoticache_index_probe_digest(aoticache_index *index, aoticache_index_statement which,
                                              const aoticache_digest *digest, aoticache_error *ret_error);

/* Passes the rows of a statement whose parameters are bound to `read`, and resets it. table: the name of the rows, for
 * messages. */
aoticache_status aoticache_index_walk(aoticache_index *index, sqlite3_stmt *statement, const char *table,
                                      aoticache_index_row_fn read, void *user, aoticache_error *ret_error);

/* Returns the SQL that makes the connection write without waiting for the disk: a power loss may lose such a write, but does
 * not damage the index. */
const char *aoticache_index_relaxed_sql(aoticache_index *index);
/* Begin and end a write transaction. end commits if `status` is OK, otherwise rolls back; it returns the first failure. */
aoticache_status aoticache_index_begin(aoticache_index *index, aoticache_index_durability durability,
                                       aoticache_error *ret_error);
aoticache_status aoticache_index_end(aoticache_index *index, aoticache_status status, aoticache_error *ret_error);

/* Bind parameters, which are borrowed until the statement is reset. They fail only if memory is short, which the next step
 * reports. */
void aoticache_index_bind_digest(sqlite3_stmt *statement, int parameter, const aoticache_digest *digest);
void aoticache_index_bind_text(sqlite3_stmt *statement, int parameter, const char *text);
/* Limits the value to the largest number that SQLite can store. */
void aoticache_index_bind_unsigned(sqlite3_stmt *statement, int parameter, uint64_t value);

/* Read a column. Each returns false if the column does not have the expected type and size. */
bool aoticache_index_read_blob(sqlite3_stmt *statement, int column, void *ret_bytes, size_t size);
bool aoticache_index_read_integer(sqlite3_stmt *statement, int column, int64_t *ret_value);
bool aoticache_index_read_unsigned(sqlite3_stmt *statement, int column, uint64_t *ret_value);
bool aoticache_index_read_count(sqlite3_stmt *statement, int column, uint32_t *ret_value);
/* Reads a text, borrowed until the next step or reset. */
bool aoticache_index_read_text(sqlite3_stmt *statement, int column, const char **ret_text);

/* ---- objects.c ---- */

typedef struct aoticache_index_object_row {
    uint64_t bytes;
    uint64_t refs; /* number of artifacts that name it */
} aoticache_index_object_row;

/* Reads an object's row. NOT_FOUND: it has none. */
aoticache_status aoticache_index_read_object(aoticache_index *index, const aoticache_digest *digest,
                                             aoticache_index_object_row *ret_row, aoticache_error *ret_error);
/* Reads a column of concatenated digests; returns false if it is damaged. Borrowed until the next step or reset. */
bool aoticache_index_read_parts(sqlite3_stmt *statement, int column, const uint8_t **ret_digests, size_t *ret_count);

/* Gives the objects of an artifact that have a row, in order, as an array that the caller frees with free(). ret_entry: an
 * entry that names the artifact; may be NULL. NOT_FOUND. */
aoticache_status aoticache_index_read_artifact(aoticache_index *index, const aoticache_digest *artifact,
                                               aoticache_index_object **ret_objects, size_t *ret_count,
                                               int64_t *ret_entry, aoticache_error *ret_error);

/* ---- status.c ---- */

/* Returns the status for SQLite's (extended) result code. */
aoticache_status aoticache_index_status_of(int result, int system_errno);

/* Writes "index PATH: WHAT: SQLite's text" and returns the status of `result`. */
aoticache_status aoticache_index_fail(aoticache_index *index, int result, const char *what, aoticache_error *ret_error);

/* Returns CORRUPT: a row of `table` does not match the schema. */
aoticache_status aoticache_index_fail_row(aoticache_index *index, const char *table, aoticache_error *ret_error);

#endif
