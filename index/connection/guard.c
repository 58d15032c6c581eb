/*
 * index/connection/guard: wraps each file of the index that SQLite opens, between SQLite and its own VFS. Each read and each
 * change first checks whether the descriptor still belongs to the file that was opened, and whether the file may become that
 * long.
 *
 * A program may close descriptors that it does not know (a daemon closes all) and open another file, which then gets the
 * number of the index's descriptor: SQLite would write its log into that file. And a file that grows beyond RLIMIT_FSIZE
 * kills the process (SIGXFSZ), unless the limit is checked before.
 *
 * The guard also keeps the errno of an operation that failed, which SQLite forgets when it rolls back.
 *
 * SQLite does not report the number of a descriptor. It is read from the unix VFS (struct unixFile: three pointers, then
 * `int h`), and used only if that number is a descriptor of the very file that was opened. Otherwise nothing is compared,
 * and everything else works as without the guard.
 */
#include "index/connection/connection_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/syscalls.h"

#define NUMBER_OFFSET (3 * sizeof(void *)) /* of `h` in SQLite's struct unixFile */

typedef struct guarded_file {
    sqlite3_file base;
    int number;     /* of SQLite's descriptor; -1: not known */
    int *ret_errno; /* of an operation that failed: the index's io_errno */
    bool is_probed; /* a rollback journal of which SQLite only reads whether there is something in it */
    dev_t device;
    ino_t inode;
    uint64_t plain[]; /* SQLite's own file; SQLite aligns files to 8 bytes */
} guarded_file;

static sqlite3_file *plain_of(sqlite3_file *file)
{
    return (sqlite3_file *)(void *)((guarded_file *)file)->plain;
}

int aoticache_index_guard_bytes(const sqlite3_vfs *plain_vfs)
{
    return (int)sizeof(guarded_file) + plain_vfs->szOsFile;
}

/* ---- checks before each operation ---- */

/* Returns whether the descriptor belongs to another file by now. Returns false also if that cannot be determined: the
 * descriptor is then closed, or nothing works. */
static bool is_other_file(const guarded_file *guarded, bool *ret_is_known)
{
    struct stat found;
    *ret_is_known = guarded->number < 0 || fstat(guarded->number, &found) == 0;
    return *ret_is_known && guarded->number >= 0 && (found.st_dev != guarded->device || found.st_ino != guarded->inode);
}

/* Fails with `result` unless the descriptor still belongs to the file that was opened. */
static int check_file(sqlite3_file *file, int result)
{
    guarded_file *guarded = (guarded_file *)file;
    bool is_known;
    const bool is_other = is_other_file(guarded, &is_known);
    if (is_known && !is_other)
        return SQLITE_OK;
    *guarded->ret_errno = is_known ? EBADF : errno;
    return result;
}

/* Returns SQLITE_FULL if the process's limit does not allow that length of the file. */
static int check_length(sqlite3_file *file, sqlite3_int64 end)
{
    if (aoticache_syscall_is_within_limit((uint64_t)end))
        return SQLITE_OK;
    *((guarded_file *)file)->ret_errno = EFBIG;
    return SQLITE_FULL;
}

/* Keeps the errno of a failure of SQLite's own file. Returns `result`. */
static int note_failure(sqlite3_file *file, int result)
{
    int cause = errno;
    if ((result & 0xff) != SQLITE_IOERR || result == SQLITE_IOERR_SHORT_READ)
        return result;
    plain_of(file)->pMethods->xFileControl(plain_of(file), SQLITE_FCNTL_LAST_ERRNO, &cause);
    *((guarded_file *)file)->ret_errno = cause;
    return result;
}

/* ---- the methods ---- */

static int guarded_read(sqlite3_file *file, void *bytes, int size, sqlite3_int64 offset)
{
    const guarded_file *guarded = (const guarded_file *)file;
    int result = check_file(file, SQLITE_IOERR_READ);
    if (result == SQLITE_OK)
        result = note_failure(file, plain_of(file)->pMethods->xRead(plain_of(file), bytes, size, offset));
    /* On FUSE and NFS, a file that another process has removed cannot be read. SQLite looks again after BUSY. */
    return (result & 0xff) == SQLITE_IOERR && guarded->is_probed && *guarded->ret_errno == ESTALE ? SQLITE_BUSY
                                                                                                  : result;
}

static int guarded_write(sqlite3_file *file, const void *bytes, int size, sqlite3_int64 offset)
{
    int result = check_file(file, SQLITE_IOERR_WRITE);
    if (result == SQLITE_OK)
        result = check_length(file, offset + size);
    return result != SQLITE_OK
               ? result
               : note_failure(file, plain_of(file)->pMethods->xWrite(plain_of(file), bytes, size, offset));
}

static int guarded_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    int result = check_file(file, SQLITE_IOERR_TRUNCATE);
    if (result == SQLITE_OK)
        result = check_length(file, size);
    return result != SQLITE_OK ? result : note_failure(file, plain_of(file)->pMethods->xTruncate(plain_of(file), size));
}

static int guarded_sync(sqlite3_file *file, int flags)
{
    const int result = check_file(file, SQLITE_IOERR_FSYNC);
    return result != SQLITE_OK ? result : note_failure(file, plain_of(file)->pMethods->xSync(plain_of(file), flags));
}

static int guarded_size(sqlite3_file *file, sqlite3_int64 *ret_size)
{
    const int result = check_file(file, SQLITE_IOERR_FSTAT);
    return result != SQLITE_OK ? result
                               : note_failure(file, plain_of(file)->pMethods->xFileSize(plain_of(file), ret_size));
}

static int guarded_lock(sqlite3_file *file, int level)
{
    const int result = check_file(file, SQLITE_IOERR_LOCK);
    return result != SQLITE_OK ? result : plain_of(file)->pMethods->xLock(plain_of(file), level);
}

static int guarded_unlock(sqlite3_file *file, int level)
{
    return plain_of(file)->pMethods->xUnlock(plain_of(file), level);
}

static int guarded_check_lock(sqlite3_file *file, int *ret_is_locked)
{
    return plain_of(file)->pMethods->xCheckReservedLock(plain_of(file), ret_is_locked);
}

static int guarded_control(sqlite3_file *file, int what, void *argument)
{
    return plain_of(file)->pMethods->xFileControl(plain_of(file), what, argument);
}

static int guarded_sector(sqlite3_file *file)
{
    return plain_of(file)->pMethods->xSectorSize(plain_of(file));
}

static int guarded_device(sqlite3_file *file)
{
    return plain_of(file)->pMethods->xDeviceCharacteristics(plain_of(file));
}

/* Maps the shared memory. The shared memory is a separate file, which is extended if it is too short. */
static int guarded_map_shared(sqlite3_file *file, int region, int bytes, int extends, void volatile **ret_memory)
{
    const sqlite3_int64 least = 3; /* the size to which SQLite truncates it when it opens it */
    int result = check_file(file, SQLITE_IOERR_SHMMAP);
    if (result == SQLITE_OK)
        result = check_length(file, extends ? ((sqlite3_int64)region + 1) * bytes : least);
    return result != SQLITE_OK ? result
                               : plain_of(file)->pMethods->xShmMap(plain_of(file), region, bytes, extends, ret_memory);
}

static int guarded_lock_shared(sqlite3_file *file, int first, int count, int flags)
{
    return plain_of(file)->pMethods->xShmLock(plain_of(file), first, count, flags);
}

static void guarded_barrier(sqlite3_file *file)
{
    plain_of(file)->pMethods->xShmBarrier(plain_of(file));
}

static int guarded_unmap_shared(sqlite3_file *file, int deletes)
{
    return plain_of(file)->pMethods->xShmUnmap(plain_of(file), deletes);
}

static int guarded_fetch(sqlite3_file *file, sqlite3_int64 offset, int size, void **ret_memory)
{
    return plain_of(file)->pMethods->xFetch(plain_of(file), offset, size, ret_memory);
}

static int guarded_unfetch(sqlite3_file *file, sqlite3_int64 offset, void *memory)
{
    return plain_of(file)->pMethods->xUnfetch(plain_of(file), offset, memory);
}

/* Closes the file. SQLite would close a descriptor that belongs to another file by now: it is given one of /dev/null
 * instead. */
static int guarded_close(sqlite3_file *file)
{
    guarded_file *guarded = (guarded_file *)file;
    bool is_known;
    if (is_other_file(guarded, &is_known)) {
        const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
        memcpy((char *)guarded->plain + NUMBER_OFFSET, &nothing, sizeof nothing);
    }
    const int result = plain_of(file)->pMethods->xClose(plain_of(file));
    file->pMethods = NULL;
    return result;
}

/* ---- opening ---- */

/* One table for each version of the interface, because SQLite calls the methods of that version. */
#define METHODS(version)                                                                             \
    {(version),       guarded_close,        guarded_read,   guarded_write,      guarded_truncate,    \
     guarded_sync,    guarded_size,         guarded_lock,   guarded_unlock,     guarded_check_lock,  \
     guarded_control, guarded_sector,       guarded_device, guarded_map_shared, guarded_lock_shared, \
     guarded_barrier, guarded_unmap_shared, guarded_fetch,  guarded_unfetch}

static const sqlite3_io_methods methods[] = {METHODS(1), METHODS(2), METHODS(3)};

/* Finds the number of the descriptor, and uses it only if it belongs to the file that has this name. */
static void find_number(guarded_file *guarded, const sqlite3_vfs *plain_vfs, const char *name)
{
    struct stat open_file, named_file;
    int number = -1;
    if (name == NULL || plain_vfs->szOsFile < (int)(NUMBER_OFFSET + sizeof number))
        return;
    memcpy(&number, (const char *)guarded->plain + NUMBER_OFFSET, sizeof number);
    if (number < 0 || fstat(number, &open_file) != 0 || stat(name, &named_file) != 0 ||
        open_file.st_dev != named_file.st_dev || open_file.st_ino != named_file.st_ino || !S_ISREG(open_file.st_mode))
        return;
    guarded->number = number;
    guarded->device = open_file.st_dev;
    guarded->inode = open_file.st_ino;
}

int aoticache_index_guard_open(aoticache_index *index, const char *name, sqlite3_file *file, int flags, int *ret_flags)
{
    guarded_file *guarded = (guarded_file *)file;
    sqlite3_file *plain = plain_of(file);
    plain->pMethods = NULL;
    file->pMethods = NULL;
    guarded->number = -1;
    guarded->ret_errno = &index->io_errno;
    guarded->is_probed = (flags & SQLITE_OPEN_MAIN_JOURNAL) != 0 && (flags & SQLITE_OPEN_READONLY) != 0;
    const int result = index->plain_vfs->xOpen(index->plain_vfs, name, plain, flags, ret_flags);
    if (plain->pMethods == NULL)
        return result;
    const int version = plain->pMethods->iVersion;
    file->pMethods = &methods[version < 1 ? 0 : version > 3 ? 2 : version - 1];
    if (result == SQLITE_OK) {
        const int saved = errno; /* SQLite reads its caller's errno after a failure */
        find_number(guarded, index->plain_vfs, name);
        errno = saved;
    }
    return result;
}
