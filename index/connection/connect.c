/*
 * index/connection/connect: opens a connection for a path and checks that the tables are those of this library.
 *
 * A cold hit waits for this code, so an existing index is opened with only three small PRAGMAs: WAL is a property of the
 * file, statements are prepared when they are used, durability is set before the first write. The second half of the file is
 * about directories and disks that cannot be written to.
 */
#include "index/connection/connection_internal.h"
#include "base/cleanup.h"
#include "base/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define MAX_VALUE_BYTES (16 << 20) /* limits allocations for the rows of a damaged file */
#define MAX_SQL_BYTES (64 << 10)
#define SHM_BYTES (32 << 10) /* the smallest -shm file that SQLite creates */

/*
 * Creates the file. The file is private to the user: 0600, whatever the umask is, or 0660 if a group shares the directory.
 * SQLite gives the WAL and the journal the same mode and owner. The entry in the directory becomes durable with the first
 * transaction, whose journal makes SQLite sync the directory.
 */
static aoticache_status create_file(aoticache_index *index, aoticache_error *ret_error)
{
    cleanup_fd int fd = aoticache_index_vfs_create(index, "", O_EXCL);
    if (fd < 0 && errno != EEXIST)
        return aoticache_error_set_errno(ret_error, errno, "index %s: cannot create", index->path);
    return AOTICACHE_OK;
}

/* Returns SQLITE_OK with index->db set, or SQLite's result; index->db then has its messages, if SQLite made one. */
static int open_handle(aoticache_index *index, const char *name, int more_flags)
{
    int access_flag = index->read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
    aoticache_index_disconnect(index);
    return aoticache_index_vfs_connect(index, name, access_flag | SQLITE_OPEN_EXRESCODE | more_flags, &index->db);
}

static bool is_missing(const aoticache_index *index, int result)
{
    return (result & 0xff) == SQLITE_CANTOPEN && index->db != NULL && sqlite3_system_errno(index->db) == ENOENT;
}

/*
 * Returns whether SQLite opened the file for reading only because another process created it at that moment. SQLite opens
 * for reading what it cannot open for writing. If another process creates the file between these two attempts, that looks
 * like a missing write permission.
 */
static bool is_read_only_by_chance(const aoticache_index *index)
{
    return !index->read_only && sqlite3_db_readonly(index->db, "main") == 1 &&
           aoticache_index_vfs_is_writable(index, "");
}

/*
 * Opens or creates the file. The caller holds the registry's lock. Closing a descriptor of a file releases all locks that
 * the process has on that file, so no other thread may use the file that create_file closes.
 */
static aoticache_status open_or_create(aoticache_index *index, aoticache_error *ret_error)
{
    int result = open_handle(index, index->name, 0);
    if (is_missing(index, result)) {
        if (index->read_only)
            return AOTICACHE_NOT_FOUND;
        aoticache_status status = create_file(index, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        result = open_handle(index, index->name, 0);
    }
    if (result == SQLITE_OK && is_read_only_by_chance(index))
        result = open_handle(index, index->name, 0);
    return result == SQLITE_OK ? AOTICACHE_OK : aoticache_index_fail(index, result, "cannot open", ret_error);
}

/* Turns on SQLite's defences against a damaged or malicious file; none of them reads the file. */
static void configure(aoticache_index *index)
{
    sqlite3_int64 no_mmap = 0; /* a mapped file that shrinks is SIGBUS */
    index->wait_ms = index->lock_timeout_ms;
    sqlite3_busy_handler(index->db, aoticache_index_wait, index);
    sqlite3_db_config(index->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(index->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_db_config(index->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(index->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    sqlite3_limit(index->db, SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES);
    sqlite3_limit(index->db, SQLITE_LIMIT_SQL_LENGTH, MAX_SQL_BYTES);
    sqlite3_limit(index->db, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_file_control(index->db, "main", SQLITE_FCNTL_MMAP_SIZE, &no_mmap);
    sqlite3_exec(index->db, "PRAGMA cell_size_check=ON", NULL, NULL, NULL);
    /* SQLITE_TMPDIR and TMPDIR are set by the caller even if this program runs with other rights: no temporary file is made
     * there. */
    if (getauxval(AT_SECURE) != 0)
        sqlite3_exec(index->db, "PRAGMA temp_store=MEMORY", NULL, NULL, NULL);
    aoticache_index_checkpoint_prepare(index);
}

/* Returns the "file:" URI of the path, with every byte that has a meaning in a URI as %XX. NULL if memory is short. */
static char *uri_of(const char *path, const char *query)
{
    size_t size = 7 + 3 * strlen(path) + strlen(query) + 1;
    char *uri = malloc(size);
    if (uri == NULL)
        return NULL;
    char *next = stpcpy(uri, "file://");
    for (const char *from = path; *from != '\0'; from++)
        next += sprintf(next, strchr("?#%", *from) != NULL ? "%%%02X" : "%c", (unsigned char)*from);
    strcpy(next, query);
    return uri;
}

bool aoticache_index_has_wal(const aoticache_index *index)
{
    struct stat file;
    return aoticache_index_vfs_stat(index, "-wal", &file) == 0 ? file.st_size > 0 : errno != ENOENT;
}

/* Returns true also if that cannot be determined: another error exists then, and is reported. */
static bool directory_is_writable(const aoticache_index *index)
{
    return faccessat(index->directory_fd, ".", W_OK, AT_EACCESS) == 0 ||
           (errno != EACCES && errno != EPERM && errno != EROFS);
}

/* Opens the index as it is ("immutable"). There are no locks, so the WAL must be empty. */
static aoticache_status open_immutable(aoticache_index *index, aoticache_error *ret_error)
{
    cleanup_free char *uri = uri_of(index->name, "?immutable=1");
    if (uri == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "index %s: out of memory", index->path);
    aoticache_index_registry_lock();
    int result = open_handle(index, uri, SQLITE_OPEN_URI);
    aoticache_index_registry_unlock();
    if (result != SQLITE_OK)
        return aoticache_index_fail(index, result, "cannot open", ret_error);
    configure(index);
    return aoticache_index_schema_check(index, ret_error);
}

/*
 * Opens an index in a directory that this user cannot write to. Reading a WAL index needs its -shm file, which cannot be
 * created there. The WAL is empty, and no process with the same rights can change the file, so it is read as it is. Changes
 * by a more privileged user while it is open are not noticed.
 */
static aoticache_status open_in_foreign_directory(aoticache_index *index, aoticache_error *ret_error)
{
    if (aoticache_index_has_wal(index))
        return aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                   "index %s: its -wal file has changes that are not in the index yet, and its "
                                   "directory is not writable; open the index once as a user who can write to the "
                                   "directory",
                                   index->path);
    return open_immutable(index, ret_error);
}

/* ---- a full disk: there is no space for the -shm file ---- */

static bool disk_is_full(const aoticache_index *index)
{
    struct statvfs disk;
    return fstatvfs(index->directory_fd, &disk) == 0 &&
           (disk.f_bavail * disk.f_frsize < SHM_BYTES || (disk.f_files > 0 && disk.f_favail == 0));
}

/*
 * Returns true for the results that SQLite gives if it cannot create the -shm file for lack of space. ENOENT is from its
 * second attempt, which does not create the file.
 */
static bool disk_had_no_space(const aoticache_index *index)
{
    int result = sqlite3_extended_errcode(index->db);
    int cause = sqlite3_system_errno(index->db);
    return result == SQLITE_IOERR_SHMSIZE || result == SQLITE_IOERR_SHMOPEN ||
           ((result & 0xff) == SQLITE_CANTOPEN &&
            (cause == ENOSPC || cause == EDQUOT || (cause == ENOENT && disk_is_full(index))));
}

/* Returns true if the complete -shm file exists, so other processes may be writing. A failed attempt can leave a part of it. */
static bool has_shm(const aoticache_index *index)
{
    struct stat file;
    return aoticache_index_vfs_stat(index, "-shm", &file) == 0 ? file.st_size >= SHM_BYTES : errno != ENOENT;
}

/* Runs `sql` in a connection that may write, even if the index is read-only otherwise. */
static void write_once(aoticache_index *index, const char *sql)
{
    const bool read_only = index->read_only;
    index->read_only = false;
    aoticache_index_registry_lock();
    int result = open_handle(index, index->name, 0);
    aoticache_index_registry_unlock();
    if (result == SQLITE_OK) {
        configure(index);
        sqlite3_exec(index->db, sql, NULL, NULL, NULL);
    }
    aoticache_index_disconnect(index);
    index->read_only = read_only;
}

/*
 * Merges changes that a dead process left only in the WAL. It uses a connection that needs no -shm file because it excludes
 * all others. This takes no space if the database does not grow; if it fails, the WAL is unchanged.
 */
static void fold_wal(aoticache_index *index)
{
    write_once(index, "PRAGMA locking_mode = EXCLUSIVE; PRAGMA user_version; PRAGMA wal_checkpoint(TRUNCATE)");
}

/*
 * Opens the index without a -shm file. Only connections that were opened in this way have it open then, and they read it as
 * it is. A process that creates the file later, when there is space again, may write: aoticache_index_enter checks for that.
 */
static aoticache_status open_without_shm(aoticache_index *index, aoticache_error *ret_error)
{
    if (aoticache_index_has_wal(index))
        fold_wal(index);
    if (aoticache_index_has_wal(index))
        return aoticache_error_set(ret_error, AOTICACHE_IO,
                                   "index %s: its -wal file holds changes, and the disk is full: free some space",
                                   index->path);
    aoticache_status status = open_immutable(index, ret_error);
    index->is_without_shm = status == AOTICACHE_OK;
    return status;
}

bool aoticache_index_is_outdated(const aoticache_index *index)
{
    return index->is_without_shm && (has_shm(index) || aoticache_index_has_wal(index));
}

static aoticache_status connect_here(aoticache_index *index, aoticache_error *ret_error)
{
    aoticache_index_registry_lock();
    aoticache_status status = open_or_create(index, ret_error);
    aoticache_index_registry_unlock();
    if (status != AOTICACHE_OK)
        return status;
    configure(index);
    aoticache_index_journal_prepare(index);
    status = aoticache_index_schema_check(index, ret_error);
    int primary = sqlite3_errcode(index->db) & 0xff;
    bool cannot_share = primary == SQLITE_CANTOPEN || primary == SQLITE_READONLY;
    if (status != AOTICACHE_OK && cannot_share && !directory_is_writable(index))
        return open_in_foreign_directory(index, ret_error);
    if (status == AOTICACHE_OK || !disk_had_no_space(index) || has_shm(index))
        return status;
    if (index->read_only)
        return open_without_shm(index, ret_error);
    return aoticache_error_set(ret_error, AOTICACHE_IO,
                               "index %s: cannot create its -shm file: the disk is full; free some space", index->path);
}

aoticache_status aoticache_index_connect(aoticache_index *index, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_vfs_name(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    index->is_connecting = true;
    status = connect_here(index, ret_error);
    if (status != AOTICACHE_OK && index->read_only && sqlite3_extended_errcode(index->db) == SQLITE_READONLY_ROLLBACK) {
        write_once(index, "PRAGMA user_version"); /* reading undoes the change that a dead process left in a journal */
        status = connect_here(index, ret_error);
    }
    index->is_connecting = false;
    if (status != AOTICACHE_OK)
        aoticache_index_disconnect(index);
    return status;
}
