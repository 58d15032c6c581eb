/*
 * index/connection/status: converts SQLite's result codes to statuses of this library, with one line that names the file.
 */
#include "index/connection/connection_internal.h"

#include <errno.h>
#include <string.h>

/* Returns the status of a failed open, for which SQLite says only "cannot open": the cause is in errno. */
static aoticache_status status_of_open(int result, int system_errno)
{
    if (result == SQLITE_CANTOPEN_SYMLINK)
        return AOTICACHE_DENIED;
    switch (system_errno) {
    case EACCES:
    case EPERM:
    case ELOOP:
    case EROFS:
        return AOTICACHE_DENIED;
    case ENOMEM:
        return AOTICACHE_NO_MEMORY;
    default:
        return AOTICACHE_IO;
    }
}

aoticache_status aoticache_index_status_of(int result, int system_errno)
{
    if (result == SQLITE_IOERR_NOMEM)
        return AOTICACHE_NO_MEMORY;
    switch (result & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return AOTICACHE_OK;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL: /* gave up after many tries to get a read mark of the WAL */
        return AOTICACHE_LOCKED;
    case SQLITE_NOMEM:
        return AOTICACHE_NO_MEMORY;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return AOTICACHE_DENIED;
    case SQLITE_CANTOPEN:
        return status_of_open(result, system_errno);
    case SQLITE_IOERR:
        return system_errno == EACCES || system_errno == EPERM ? AOTICACHE_DENIED : AOTICACHE_IO;
    /* The statements are fixed and the tables strict, so this means that the file does not match the schema. */
    case SQLITE_ERROR:
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_SCHEMA:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_FORMAT:
    case SQLITE_TOOBIG:
        return AOTICACHE_CORRUPT;
    default:
        return AOTICACHE_IO;
    }
}

/* Returns whether space is missing. SQLite reports FULL only for a write, and never for a quota. */
static bool is_lack_of_space(int primary, int system_errno)
{
    return (primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN) &&
           (system_errno == ENOSPC || system_errno == EDQUOT);
}

/*
 * Returns whether SQLite failed only because it could open just the log for reading: if it cannot open the log for writing,
 * for whatever reason, it opens it for reading, and reports the index as read-only at the next write. True means that access
 * rights are not the reason; the next attempt may succeed.
 */
static bool is_read_only_by_accident(const aoticache_index *index, int result)
{
    return result == SQLITE_READONLY && !index->read_only && aoticache_index_vfs_is_writable(index, "") &&
           aoticache_index_vfs_is_writable(index, "-wal");
}

/* Returns the errno of a failure, or 0. SQLite forgets it if it rolled back after a commit that failed. */
static int find_cause(aoticache_index *index, int result)
{
    const int cause = index->db == NULL ? 0 : sqlite3_system_errno(index->db), io_errno = index->io_errno;
    index->io_errno = 0;
    return cause == 0 && index->db != NULL && (result & 0xff) == SQLITE_IOERR ? io_errno : cause;
}

aoticache_status aoticache_index_fail(aoticache_index *index, int result, const char *what, aoticache_error *ret_error)
{
    int system_errno = find_cause(index, result);
    aoticache_status status = aoticache_index_status_of(result, system_errno);
    const char *text = index->db == NULL ? sqlite3_errstr(result) : sqlite3_errmsg(index->db);
    int primary = result & 0xff;
    if (index->foreign_name[0] != '\0')
        return aoticache_error_set(
            ret_error, AOTICACHE_CORRUPT,
            "index %s: a file next to it names %s, which is not a file of the index: remove the forged file",
            index->path, index->foreign_name);
    if (is_read_only_by_accident(index, result)) {
        char buffer[128];
        const int refusal = aoticache_index_vfs_find_refusal(index, "-wal");
        return aoticache_error_set(ret_error, AOTICACHE_IO, "index %s: %s: its log cannot be opened for writing%s%s",
                                   index->path, what, refusal != 0 ? ": " : "",
                                   refusal != 0 ? strerror_r(refusal, buffer, sizeof buffer) : "");
    }
    if (result == SQLITE_READONLY_ROLLBACK)
        return aoticache_error_set(ret_error, status,
                                   "index %s: %s: a process that ended left an incomplete change in its journal; run "
                                   "'aoticache verify' as a user who may write to the index",
                                   index->path, what);
    if (primary == SQLITE_FULL || is_lack_of_space(primary, system_errno))
        index->is_out_of_space = true;
    if (system_errno != 0 && (primary == SQLITE_CANTOPEN || primary == SQLITE_IOERR)) {
        char buffer[128];
        return aoticache_error_set(ret_error, status, "index %s: %s: %s: %s", index->path, what, text,
                                   strerror_r(system_errno, buffer, sizeof buffer));
    }
    return aoticache_error_set(ret_error, status, "index %s: %s: %s", index->path, what, text);
}

aoticache_status aoticache_index_fail_row(aoticache_index *index, const char *table, aoticache_error *ret_error)
{
    const int result = sqlite3_errcode(index->db); /* a value that could not be read does not mean a damaged row */
    if ((result & 0xff) == SQLITE_NOMEM || (result & 0xff) == SQLITE_IOERR)
        return aoticache_index_fail(index, result, table, ret_error);
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                               "index %s: a row of table '%s' has a value of the wrong type or size", index->path,
                               table);
}
