/*
 * index/stats/pending: keeps the counts of ended processes in a file next to the index until a process writes to the
 * database.
 *
 * A process that only had hits would end with four waits for the disk, if no other process has the index open: the log is
 * created, written, merged and removed for one small transaction. So it appends a record to this file instead. The next
 * flush of any process adds all records in its own transaction and removes the file.
 *
 * Nothing counts twice: the file has a random number in its header, and the transaction that adds its records also writes
 * that number and where the last added record ends. If a process dies after the commit, its file's records are known to be added.
 * Nothing is lost between two processes: a process that appends holds the file's lock and checks that the file still has a
 * name, and a process that removes it holds the lock too and checks whether more than the added bytes is there. The lock is
 * held for microseconds; a process that cannot get it soon (its holder was stopped) does without: it writes to the database,
 * or leaves the file.
 */
#include "index/stats/pending.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/syscalls.h"

#define VERSION "aotcuse1"
#define HEADER_BYTES AOTICACHE_PENDING_STATS_HEADER_BYTES
#define MAX_BYTES AOTICACHE_PENDING_STATS_MAX_BYTES
#define LOCK_TRIES 20 /* a millisecond apart */

/* ---- appending ---- */

static bool lock_soon(int fd)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (aoticache_syscall_flock(fd, LOCK_EX | LOCK_NB) == 0)
            return true;
        if (errno != EWOULDBLOCK)
            return false;
        nanosleep(&pause, NULL);
    }
    return false;
}

/* Opens the file, creating it if it is missing, and locks it. -1 with errno; EMLINK: it has another name, too. */
static int open_locked(aoticache_index *index, off_t *ret_size)
{
    for (int i = 0; i < LOCK_TRIES; i++) {
        struct stat found;
        cleanup_fd int fd =
            aoticache_index_vfs_create(index, AOTICACHE_PENDING_STATS_SUFFIX, O_APPEND | O_NONBLOCK | O_NOCTTY);
        if (fd < 0 || !lock_soon(fd) || fstat(fd, &found) != 0)
            return -1;
        if (!S_ISREG(found.st_mode) || found.st_nlink > 1) {
            errno = EMLINK;
            return -1;
        }
        *ret_size = found.st_size;
        if (found.st_nlink == 1) /* otherwise it was merged and removed meanwhile */
            return steal_fd(&fd);
    }
    errno = EWOULDBLOCK;
    return -1;
}

static void make_header(uint8_t ret_header[HEADER_BYTES])
{
    uint64_t number;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number)
        number = (uint64_t)aoticache_wall_ns() * 1000003 + (uint64_t)getpid();
    memcpy(ret_header, VERSION, 8);
    memcpy(ret_header + 8, &number, sizeof number);
}

/* Appends a record. bytes: space for a header, and the record. */
static aoticache_status append(aoticache_index *index, uint8_t *bytes, size_t size, aoticache_error *ret_error)
{
    off_t before = 0;
    cleanup_fd int fd = open_locked(index, &before);
    if (fd < 0 && errno == EWOULDBLOCK)
        return aoticache_error_set(ret_error, AOTICACHE_LOCKED, "index %s: its file of pending statistics is locked",
                                   index->path);
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "index %s: cannot open its file of pending statistics",
                                         index->path);
    if (before + (off_t)size > MAX_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_LOCKED, "index %s: its file of pending statistics is full",
                                   index->path);
    if (before == 0)
        make_header(bytes);
    const size_t skipped = before == 0 ? 0 : HEADER_BYTES;
    if (aoticache_syscall_write(fd, bytes + skipped, size - skipped) == 0)
        return AOTICACHE_OK;
    const int cause = errno;
    aoticache_syscall_ftruncate(fd, before); /* if that fails, readers drop the incomplete record */
    return aoticache_error_set_errno(ret_error, cause, "index %s: cannot append to its file of pending statistics",
                                     index->path);
}

aoticache_status aoticache_index_defer_deltas(aoticache_index *index, const aoticache_index_deltas *deltas,
                                              aoticache_error *ret_error)
{
    if (index == NULL || deltas == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, deltas);
    if (deltas->sums != NULL && deltas->sums->by_name.count > 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: sums cannot be deferred", __func__);
    if (index->read_only)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED, "index %s: is open for reading only", index->path);
    cleanup_free uint8_t *bytes = malloc(MAX_BYTES);
    if (bytes == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "index %s: out of memory", index->path);
    const size_t size = aoticache_index_record_encode(deltas, bytes + HEADER_BYTES, MAX_BYTES - HEADER_BYTES);
    if (size == 0)
        return aoticache_error_set(ret_error, AOTICACHE_LOCKED,
                                   "index %s: too many changes for its file of pending statistics", index->path);
    return append(index, bytes, HEADER_BYTES + size, ret_error);
}

bool aoticache_index_has_deferred(const aoticache_index *index)
{
    struct stat found;
    return aoticache_index_vfs_stat(index, AOTICACHE_PENDING_STATS_SUFFIX, &found) == 0 && S_ISREG(found.st_mode) &&
           found.st_size > 0;
}

/* ---- merging ---- */

static aoticache_status read_meta(aoticache_index *index, const char *name, int64_t *ret_value,
                                  aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(GET_META), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_text(statement, 1, name);
    status = aoticache_index_fetch(index, statement, ret_error);
    *ret_value = status == AOTICACHE_OK ? sqlite3_column_int64(statement, 0) : 0;
    sqlite3_reset(statement);
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

/* Opens the file and reads it. Returns -1 if there is nothing to merge. */
static int open_and_read(const aoticache_index *index, uint8_t *bytes, size_t *ret_size)
{
    struct stat found;
    cleanup_fd int fd = aoticache_index_vfs_open(index, AOTICACHE_PENDING_STATS_SUFFIX, O_RDWR | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &found) != 0 || !S_ISREG(found.st_mode))
        return -1;
    const ssize_t size = pread(fd, bytes, MAX_BYTES, 0);
    if (size < 0)
        return -1;
    *ret_size = (size_t)size;
    return steal_fd(&fd);
}

/*
 * Adds the complete records from *end on, and moves *end to the end of the last one.
 *
 * What follows it may be the first part of a record that another process is writing: a reader without the lock sees a
 * write page by page. The next merge starts there.
 */
static aoticache_status merge_records(aoticache_index *index, const uint8_t *bytes, size_t size, size_t *end,
                                      int64_t now_ns, aoticache_error *ret_error)
{
    aoticache_index_record record;
    aoticache_status status = AOTICACHE_OK;
    size_t at = *end;
    while (status == AOTICACHE_OK &&
           (status = aoticache_index_record_next(bytes, size, &at, &record)) == AOTICACHE_OK) {
        *end = at;
        if (record.deltas.now_ns > now_ns) /* from a clock that was ahead */
            record.deltas.now_ns = now_ns;
        status = aoticache_index_add_deltas(index, &record.deltas, ret_error);
        aoticache_index_record_clear(&record);
    }
    if (status == AOTICACHE_NO_MEMORY)
        return aoticache_error_set(ret_error, status, "index %s: out of memory", index->path);
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

static aoticache_status merge_new(aoticache_index *index, const uint8_t *bytes, size_t size, int64_t now_ns,
                                  aoticache_error *ret_error)
{
    int64_t number, last_number = 0, merged = 0;
    memcpy(&number, bytes + 8, sizeof number);
    aoticache_status status = read_meta(index, "uses_file", &last_number, ret_error);
    if (status == AOTICACHE_OK)
        status = read_meta(index, "uses_merged", &merged, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const size_t begin = last_number == number && merged > HEADER_BYTES ? (size_t)merged : HEADER_BYTES;
    size_t end = begin;
    status = merge_records(index, bytes, size, &end, now_ns, ret_error);
    if (end == begin)
        return status;
    if (status == AOTICACHE_OK)
        status = aoticache_index_put_meta(index, "uses_file", number, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_put_meta(index, "uses_merged", (int64_t)end, ret_error);
    return status;
}

aoticache_status aoticache_pending_stats_merge(aoticache_index *index, int64_t now_ns,
                                               aoticache_pending_stats *ret_uses, aoticache_error *ret_error)
{
    size_t size = 0;
    *ret_uses = (aoticache_pending_stats){.fd = -1};
    if (!aoticache_index_has_deferred(index))
        return AOTICACHE_OK;
    cleanup_free uint8_t *bytes = malloc(MAX_BYTES);
    if (bytes == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "index %s: out of memory", index->path);
    ret_uses->fd = open_and_read(index, bytes, &size);
    ret_uses->size = (int64_t)size;
    if (ret_uses->fd < 0 || size < HEADER_BYTES || memcmp(bytes, VERSION, 8) != 0)
        return AOTICACHE_OK; /* none of its records can be found, so it is only removed */
    return merge_new(index, bytes, size, now_ns, ret_error);
}

void aoticache_pending_stats_end(aoticache_index *index, aoticache_pending_stats *uses, bool is_committed)
{
    struct stat found, named;
    cleanup_fd int fd = uses->fd;
    uses->fd = -1;
    if (fd < 0 || !is_committed || aoticache_syscall_flock(fd, LOCK_EX | LOCK_NB) != 0)
        return;
    /* Another process may have appended to it, or removed it and created another one. */
    if (fstat(fd, &found) == 0 && (found.st_size == uses->size || found.st_size > MAX_BYTES) &&
        aoticache_index_vfs_stat(index, AOTICACHE_PENDING_STATS_SUFFIX, &named) == 0 && found.st_ino == named.st_ino &&
        found.st_dev == named.st_dev)
        aoticache_index_vfs_unlink(index, AOTICACHE_PENDING_STATS_SUFFIX);
}
