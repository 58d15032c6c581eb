/*
 * index/connection/vfs: restricts what SQLite does in the file system for an index: it may only open, look for and delete
 * the files of that index in the directory that was opened for it.
 *
 * There are two reasons for that. First, a rollback journal may name a "super-journal" (https://sqlite.org/fileformat.html,
 * section 3): SQLite, rolling back, opens that file and deletes it, so a user who can put a journal next to an index could
 * have any file deleted that the next reader may delete. Journals of this library never name one, because no database is
 * ever attached. Second, SQLite opens by path what its caller has checked by descriptor: a user who may rename one of the
 * directories above could replace it in between.
 *
 * So each index has its own VFS, which differs from the ordinary one only in names: it allows three names, in the
 * directory's descriptor (/proc/self/fd), and records any other name that a file requests. The files that it opens are
 * guarded (guard.c). It is registered only while a connection is opened: SQLite finds it by name then and keeps the address.
 */
#include "index/connection/connection_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/syscalls.h"

/* Finds the system's VFS. All processes must use the same locks, whatever VFS is the program's default. Tests wrap this one. */
static sqlite3_vfs *find_plain(void)
{
    sqlite3_vfs *found = sqlite3_vfs_find(AOTICACHE_INDEX_HOOKED_VFS);
    if (found == NULL)
        found = sqlite3_vfs_find("unix");
    return found != NULL ? found : sqlite3_vfs_find(NULL);
}

static aoticache_index *index_of(sqlite3_vfs *vfs)
{
    return vfs->pAppData;
}

/* Returns the index's own name in its directory. */
static const char *file_of(const aoticache_index *index)
{
    const char *slash = strrchr(index->path, '/');
    return slash == NULL ? index->path : slash + 1;
}

/* Returns true if the name is the index's name with this suffix. */
static bool has_suffix(const aoticache_index *index, const char *name, const char *suffix)
{
    const size_t length = strlen(index->name);
    return strncmp(name, index->name, length) == 0 && strcmp(name + length, suffix) == 0;
}

static bool is_side_file(const aoticache_index *index, const char *name)
{
    return has_suffix(index, name, "-journal") || has_suffix(index, name, "-wal");
}

/* Records the first foreign file; aoticache_index_fail() reports it. */
static void note_foreign(aoticache_index *index, const char *name)
{
    char *copy = index->foreign_name;
    if (copy[0] != '\0')
        return;
    snprintf(copy, sizeof index->foreign_name, "%s", name);
    for (; *copy != '\0'; copy++)
        *copy = (unsigned char)*copy < ' ' || *copy == 0x7f ? '?' : *copy; /* messages are one line */
}

/* Checks that it is a regular file. Opening a FIFO would wait forever, and SQLite's own refusal of links gives no cause. */
static int check_type(const aoticache_index *index, const char *name)
{
    struct stat found;
    if (fstatat(index->directory_fd, strrchr(name, '/') + 1, &found, AT_SYMLINK_NOFOLLOW) != 0 ||
        S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))
        return SQLITE_OK;
    errno = S_ISLNK(found.st_mode) ? ELOOP : EPERM;
    return S_ISLNK(found.st_mode) ? SQLITE_CANTOPEN_SYMLINK : SQLITE_CANTOPEN;
}

/*
 * Opens or creates a file, or finds the cause of the failure. If SQLite cannot create a file it then opens it for reading,
 * and reports the cause that the file does not exist. So this determines the cause again: a file that can be created now
 * exists for another attempt.
 */
static int create_or_explain(aoticache_index *index, const char *name, sqlite3_file *file, int flags, int *ret_flags)
{
    const int fd = aoticache_index_vfs_create(index, strrchr(name, '/') + 1 + strlen(file_of(index)), O_CLOEXEC);
    if (fd < 0)
        return SQLITE_CANTOPEN;
    close(fd);
    return aoticache_index_guard_open(index, name, file, flags, ret_flags);
}

static int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *ret_flags)
{
    aoticache_index *index = index_of(vfs);
    int result = SQLITE_OK;
    file->pMethods = NULL;
    if (name != NULL) { /* otherwise a temporary file: SQLite generates a name */
        if (has_suffix(index, name, "") || is_side_file(index, name)) {
            result = check_type(index, name);
        } else {
            note_foreign(index, name);
            errno = EPERM;
            result = SQLITE_CANTOPEN;
        }
    }
    if (result != SQLITE_OK)
        return result;
    result = aoticache_index_guard_open(index, name, file, flags, ret_flags);
    if ((result & 0xff) == SQLITE_CANTOPEN && errno == ENOENT && (flags & SQLITE_OPEN_CREATE) != 0 && name != NULL &&
        is_side_file(index, name))
        result = create_or_explain(index, name, file, flags, ret_flags);
    return result;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int syncs_directory)
{
    aoticache_index *index = index_of(vfs);
    if (is_side_file(index, name)) {
        const int result = index->plain_vfs->xDelete(index->plain_vfs, name, syncs_directory);
        if ((result & 0xff) == SQLITE_IOERR)
            index->io_errno = errno;
        return result;
    }
    note_foreign(index, name);
    errno = EPERM;
    return SQLITE_IOERR_DELETE;
}

static int vfs_access(sqlite3_vfs *vfs, const char *name, int flags, int *ret_is_so)
{
    aoticache_index *index = index_of(vfs);
    if (has_suffix(index, name, "") || is_side_file(index, name))
        return index->plain_vfs->xAccess(index->plain_vfs, name, flags, ret_is_so);
    note_foreign(index, name);
    *ret_is_so = 0;
    return SQLITE_CORRUPT;
}

/* Returns the name unchanged: resolving it would turn the descriptor into a path again. */
static int vfs_full_name(sqlite3_vfs *vfs, const char *name, int size, char *ret_name)
{
    (void)vfs;
    return snprintf(ret_name, (size_t)size, "%s", name) < size ? SQLITE_OK : SQLITE_CANTOPEN;
}

/* ---- the directory ---- */

/*
 * All indexes of this process in one directory share its descriptor. SQLite keeps one record of a file's shared memory for all
 * connections, under the name that the first of them had, and deletes the file by that name when the last one closes. With a
 * descriptor for each index, the number in that name could mean another directory by then.
 */
struct aoticache_index_directory {
    int fd;
    unsigned users;
    dev_t device;
    ino_t inode;
    struct aoticache_index_directory *next;
};

static struct aoticache_index_directory *directories; /* guarded by the registry's lock */

/* Takes ownership of fd if it returns a directory. */
static struct aoticache_index_directory *share_directory(int *fd)
{
    struct stat found;
    struct aoticache_index_directory *directory = directories;
    if (fstat(*fd, &found) != 0)
        return NULL;
    while (directory != NULL && (directory->device != found.st_dev || directory->inode != found.st_ino))
        directory = directory->next;
    if (directory == NULL) {
        directory = calloc(1, sizeof *directory);
        if (directory == NULL)
            return NULL;
        *directory = (struct aoticache_index_directory){
            .fd = steal_fd(fd), .device = found.st_dev, .inode = found.st_ino, .next = directories};
        directories = directory;
    }
    directory->users++;
    return directory;
}

void aoticache_index_vfs_close_directory(aoticache_index *index)
{
    struct aoticache_index_directory *directory = index->directory;
    if (directory == NULL)
        return;
    aoticache_index_registry_lock();
    index->directory = NULL;
    if (--directory->users == 0) {
        struct aoticache_index_directory **link = &directories;
        while (*link != directory)
            link = &(*link)->next;
        *link = directory->next;
        close(directory->fd);
        free(directory);
    }
    aoticache_index_registry_unlock();
}

/* Returns the directory part of the index's path; the caller frees it with free(). */
static char *directory_path(const aoticache_index *index)
{
    const char *file = file_of(index);
    return file == index->path ? strdup(".") : strndup(index->path, (size_t)(file - index->path));
}

/* Makes "/proc/self/fd/N/FILE". Without /proc it is the real path, which is as safe if no other user may rename directories. */
aoticache_status aoticache_index_vfs_name(aoticache_index *index, aoticache_error *ret_error)
{
    char by_descriptor[64];
    struct stat found;
    char *name = NULL;
    if (index->name != NULL)
        return AOTICACHE_OK;
    snprintf(by_descriptor, sizeof by_descriptor, "/proc/self/fd/%d", index->directory_fd);
    const bool has_proc = stat(by_descriptor, &found) == 0 && found.st_dev == index->directory->device &&
                          found.st_ino == index->directory->inode;
    cleanup_free char *path = has_proc ? NULL : directory_path(index);
    cleanup_free char *real = path == NULL ? NULL : realpath(path, NULL);
    if ((!has_proc && real == NULL) || asprintf(&name, "%s/%s",
                                                has_proc                 ? by_descriptor
                                                : strcmp(real, "/") == 0 ? ""
                                                                         : real,
                                                file_of(index)) < 0)
        return aoticache_error_set_errno(ret_error, errno, "index %s: cannot determine the path of its directory",
                                         index->path);
    index->name = name;
    return AOTICACHE_OK;
}

aoticache_status aoticache_index_vfs_open_directory(aoticache_index *index, const int *directory_fd,
                                                    aoticache_error *ret_error)
{
    cleanup_free char *path = directory_path(index);
    if (path == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "index %s: out of memory", index->path);
    /* Links on the way to the directory are followed: a home directory that is a link is common. */
    cleanup_fd int fd =
        directory_fd != NULL ? fcntl(*directory_fd, F_DUPFD_CLOEXEC, 0) : open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && index->read_only)
        return AOTICACHE_NOT_FOUND;
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "index %s: cannot open its directory", index->path);
    aoticache_index_registry_lock();
    index->directory = share_directory(&fd);
    aoticache_index_registry_unlock();
    if (index->directory == NULL)
        return aoticache_error_set_errno(ret_error, errno, "index %s: cannot open its directory", index->path);
    index->directory_fd = index->directory->fd;
    return AOTICACHE_OK;
}

/* Writes the index's own file name with a suffix. Returns false if it is too long. */
static bool name_of(const aoticache_index *index, const char *suffix, char ret_file[NAME_MAX + 1])
{
    int length = snprintf(ret_file, NAME_MAX + 1, "%s%s", file_of(index), suffix);
    errno = ENAMETOOLONG;
    return length <= NAME_MAX;
}

int aoticache_index_vfs_stat(const aoticache_index *index, const char *suffix, struct stat *ret_found)
{
    char file[NAME_MAX + 1];
    return name_of(index, suffix, file) ? fstatat(index->directory_fd, file, ret_found, AT_SYMLINK_NOFOLLOW) : -1;
}

bool aoticache_index_vfs_is_writable(const aoticache_index *index, const char *suffix)
{
    char file[NAME_MAX + 1];
    return name_of(index, suffix, file) && faccessat(index->directory_fd, file, W_OK, AT_EACCESS) == 0;
}

int aoticache_index_vfs_find_refusal(const aoticache_index *index, const char *suffix)
{
    char file[NAME_MAX + 1];
    if (!name_of(index, suffix, file))
        return 0;
    cleanup_fd int fd = openat(index->directory_fd, file, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? errno : 0;
}

int aoticache_index_vfs_create(const aoticache_index *index, const char *suffix, int flags)
{
    const mode_t mode = index->is_group_shared ? 0660 : 0600;
    char file[NAME_MAX + 1];
    struct stat directory;
    int fd = name_of(index, suffix, file)
                 ? aoticache_syscall_openat(index->directory_fd, file, flags | O_RDWR | O_CREAT | O_NOFOLLOW, mode)
                 : -1;
    if (fd >= 0 && fstat(index->directory_fd, &directory) == 0)
        aoticache_syscall_hand_over(fd, directory.st_uid, directory.st_gid, index->is_group_shared ? mode : 0);
    return fd;
}

int aoticache_index_vfs_open(const aoticache_index *index, const char *suffix, int flags)
{
    char file[NAME_MAX + 1];
    return name_of(index, suffix, file) ? openat(index->directory_fd, file, flags | O_NOFOLLOW | O_CLOEXEC) : -1;
}

int aoticache_index_vfs_unlink(const aoticache_index *index, const char *suffix)
{
    char file[NAME_MAX + 1];
    return name_of(index, suffix, file) ? aoticache_syscall_unlinkat(index->directory_fd, file, 0) : -1;
}

/* ---- opening ---- */

int aoticache_index_vfs_connect(aoticache_index *index, const char *name, int flags, sqlite3 **ret_db)
{
    index->plain_vfs = find_plain();
    if (index->plain_vfs == NULL)
        return SQLITE_NOTFOUND;
    if (index->vfs.zName == NULL) {
        index->vfs = *index->plain_vfs;
        snprintf(index->vfs_name, sizeof index->vfs_name, "aoticache-%p", (void *)index);
        index->vfs.zName = index->vfs_name;
        index->vfs.pNext = NULL;
        index->vfs.pAppData = index;
        index->vfs.szOsFile = aoticache_index_guard_bytes(index->plain_vfs);
        index->vfs.xOpen = vfs_open;
        index->vfs.xDelete = vfs_delete;
        index->vfs.xAccess = vfs_access;
        index->vfs.xFullPathname = vfs_full_name;
    }
    int result = sqlite3_vfs_register(&index->vfs, 0);
    if (result != SQLITE_OK)
        return result;
    index->foreign_name[0] = '\0';
    result = sqlite3_open_v2(name, ret_db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, index->vfs_name);
    sqlite3_vfs_unregister(&index->vfs);
    return result;
}
