/*
 * index/connection/journal: chooses between WAL and a rollback journal.
 *
 * With WAL, lookups run concurrently with a writer, but its index (-shm) is memory that all processes map, so it works only
 * if they share a machine. File systems that several machines mount are recognized by their type; on others the memory is
 * mapped once as a test.
 *
 * btrfs and similar file systems write each page to a new position. If there is no space for it, or no quota, the kernel
 * ends a process that writes to mapped memory, and with WAL a lookup does that (tests/environments, btrfs_blocks). So WAL is
 * not used there, either.
 */
#include "base/clock.h"
#include "base/log.h"
#include "index/connection/connection_internal.h"

#include <string.h>
#include <sys/vfs.h>
#include <time.h>

#define SHARED_MEMORY_BYTES 32768 /* SQLite's own unit */

static const char is_shared[] = "several machines share the file system";
static const char is_copied_on_write[] = "processes that write to mapped memory are killed when a file system of this "
                                         "kind is full";

const char *aoticache_index_filesystem_lacks_wal(long type)
{
    switch ((unsigned long)type & 0xffffffffUL) {
    case 0x6969UL:     /* NFS */
    case 0xff534d42UL: /* CIFS */
    case 0xfe534d42UL: /* SMB2 */
    case 0x517bUL:     /* SMB */
    case 0x01021997UL: /* 9P */
    case 0x00c36400UL: /* Ceph */
    case 0x5346414fUL: /* AFS (OpenAFS) */
    case 0x6b414653UL: /* AFS (kAFS) */
    case 0x73757245UL: /* Coda */
    case 0x0bd00bd0UL: /* Lustre */
    case 0x47504653UL: /* GPFS */
    case 0x01161970UL: /* GFS2 */
    case 0x7461636fUL: /* OCFS2 */
    case 0x19830326UL: /* BeeGFS */
    case 0x65735546UL: /* FUSE: sshfs, GlusterFS and others, which cannot be distinguished */
        return is_shared;
    case 0x9123683eUL: /* btrfs */
    case 0xca451a4eUL: /* bcachefs */
    case 0x3434UL:     /* NILFS2 */
        return is_copied_on_write;
    default:
        return NULL;
    }
}

int aoticache_index_journal_pragma(aoticache_index *index, const char *mode, char ret_mode[16])
{
    char sql[48];
    sqlite3_stmt *statement = NULL;
    ret_mode[0] = '\0';
    sqlite3_snprintf(sizeof sql, sql, "PRAGMA journal_mode%s%s", mode == NULL ? "" : "=", mode == NULL ? "" : mode);
    int result = sqlite3_prepare_v2(index->db, sql, -1, &statement, NULL);
    if (result == SQLITE_OK)
        result = sqlite3_step(statement);
    if (result == SQLITE_ROW) {
        const char *now = (const char *)sqlite3_column_text(statement, 0);
        sqlite3_snprintf(16, ret_mode, "%s", now == NULL ? "" : now);
        result = SQLITE_OK;
    }
    int closed = sqlite3_finalize(statement);
    return result == SQLITE_OK ? closed : result;
}

/*
 * Maps the shared memory as WAL will, and unmaps it. This is done before the switch, because a file in WAL mode cannot be
 * read at all if WAL does not work. A connection that uses WAL already must not call this: it would lose its own mapping.
 */
static int probe_shared_memory(aoticache_index *index)
{
    sqlite3_file *file = NULL;
    void volatile *region = NULL;
    sqlite3_file_control(index->db, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    if (file == NULL || file->pMethods == NULL || file->pMethods->iVersion < 2 || file->pMethods->xShmMap == NULL)
        return SQLITE_NOLFS;
    int result = file->pMethods->xShmMap(file, 0, SHARED_MEMORY_BYTES, 1, &region);
    file->pMethods->xShmUnmap(file, 0);
    return result;
}

/* Switches to WAL. Switching locks the file for a moment, and SQLite does not wait for that itself: so this function does. */
static int switch_to_wal(aoticache_index *index, char ret_mode[16])
{
    uint64_t deadline = aoticache_monotonic_ns() + (uint64_t)index->lock_timeout_ms * 1000000U;
    for (;;) {
        int result = aoticache_index_journal_pragma(index, NULL, ret_mode);
        if (result == SQLITE_OK && strcmp(ret_mode, "wal") == 0)
            return SQLITE_OK; /* another process was faster */
        if (result == SQLITE_OK)
            result = probe_shared_memory(index);
        if (result == SQLITE_OK)
            result = aoticache_index_journal_pragma(index, "WAL", ret_mode);
        if ((result & 0xff) != SQLITE_BUSY || aoticache_monotonic_ns() >= deadline)
            return result;
        struct timespec pause = {.tv_nsec = 2000000};
        nanosleep(&pause, NULL);
    }
}

static void log_fallback(const aoticache_index *index, const char *why)
{
    aoticache_log(&index->logger, AOTICACHE_LOG_INFO,
                  "index %s: WAL is not used (%s); with a rollback journal, lookups wait for writers", index->path,
                  why);
}

aoticache_status aoticache_index_journal_choose(aoticache_index *index, aoticache_error *ret_error)
{
    char mode[16];
    if (index->lacks_wal != NULL) {
        log_fallback(index, index->lacks_wal);
        return AOTICACHE_OK;
    }
    int result = switch_to_wal(index, mode);
    if (aoticache_index_status_of(result, 0) == AOTICACHE_LOCKED)
        return aoticache_index_fail(index, result, "cannot set up", ret_error);
    if (strcmp(mode, "wal") != 0)
        log_fallback(index, result == SQLITE_OK ? "the file system does not support it" : sqlite3_errstr(result));
    return AOTICACHE_OK;
}

void aoticache_index_journal_leave_wal(aoticache_index *index)
{
    char mode[16];
    aoticache_index_journal_pragma(index, NULL, mode);
    if (strcmp(mode, "wal") != 0)
        return;
    aoticache_index_journal_pragma(index, "DELETE", mode);
    if (strcmp(mode, "delete") != 0)
        aoticache_log(&index->logger, AOTICACHE_LOG_WARNING,
                      "index %s: is in WAL mode and in use, and WAL is not safe here (%s): close it "
                      "in all processes once%s",
                      index->path, index->lacks_wal,
                      index->lacks_wal == is_shared ? ", or use it from one machine at a time" : "");
    else
        log_fallback(index, index->lacks_wal);
}

void aoticache_index_journal_prepare(aoticache_index *index)
{
    struct statfs filesystem;
    index->lacks_wal = fstatfs(index->directory_fd, &filesystem) == 0
                           ? aoticache_index_filesystem_lacks_wal((long)filesystem.f_type)
                           : NULL;
    if (index->lacks_wal != NULL && sqlite3_db_readonly(index->db, "main") == 0)
        aoticache_index_journal_leave_wal(index);
}
