/*
 * base/syscalls: system calls that change the disk, with the hook and with limits.
 */
#include "base/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static aoticache_syscall_hook_fn syscall_hook;
static void *hook_user;

void aoticache_syscall_hook_set(aoticache_syscall_hook_fn hook, void *user)
{
    hook_user = user;
    syscall_hook = hook;
}

int aoticache_syscall_hook_ask(const char *call, const char *path)
{
    if (__builtin_expect(syscall_hook == NULL, 1))
        return 0;
    int error = syscall_hook(hook_user, call, path);
    if (error == 0)
        return 0;
    errno = error;
    return -1;
}

/* Makes the call itself after the hook has allowed it, and repeats it if a signal interrupts it. */
#define HOOKED(name, path, expression)                   \
    do {                                                 \
        if (aoticache_syscall_hook_ask(name, path) != 0) \
            return -1;                                   \
        int result;                                      \
        do                                               \
            result = (expression);                       \
        while (result < 0 && errno == EINTR);            \
        return result;                                   \
    } while (0)

/* Returns whether a umask removed bits of the owner from a new file or directory, which the owner could then not open again. */
static bool lacks_owner_bits(const struct stat *made, mode_t mode)
{
    return made->st_uid == geteuid() && (made->st_mode & mode & S_IRWXU) != (mode & S_IRWXU);
}

int aoticache_syscall_openat(int dirfd, const char *path, int flags, mode_t mode)
{
    struct stat made;
    int fd, tries = 0;
    if (aoticache_syscall_hook_ask("open", path) != 0)
        return -1;
    do
        fd = openat(dirfd, path, flags | O_CLOEXEC, mode);
    while (fd < 0 && (errno == EINTR || (errno == ESTALE && ++tries < AOTICACHE_SYSCALL_STALE_TRIES)));
    if (fd >= 0 && (flags & O_CREAT) != 0 && fstat(fd, &made) == 0 && S_ISREG(made.st_mode) && made.st_size == 0 &&
        lacks_owner_bits(&made, mode))
        (void)fchmod(fd, (made.st_mode & 07777) | (mode & S_IRWXU));
    return fd;
}

bool aoticache_syscall_is_within_limit(uint64_t end)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || end <= limit.rlim_cur;
}

/* Returns the offset at which write(2) would write; -1 for a pipe and the like. */
static off_t find_write_offset(int fd)
{
    struct stat found;
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_APPEND) == 0)
        return lseek(fd, 0, SEEK_CUR);
    return fstat(fd, &found) == 0 && S_ISREG(found.st_mode) ? found.st_size : -1;
}

/* Returns 0 if a file may have this size, or -1 with errno EFBIG. */
static int ask_size(uint64_t size)
{
    if (aoticache_syscall_is_within_limit(size))
        return 0;
    errno = EFBIG;
    return -1;
}

int aoticache_syscall_ask_limit(int fd, uint64_t size)
{
    const off_t begin = find_write_offset(fd);
    return begin < 0 ? 0 : ask_size((uint64_t)begin + size);
}

int aoticache_syscall_write(int fd, const void *bytes, size_t size)
{
    const uint8_t *next = bytes;
    if (aoticache_syscall_hook_ask("write", NULL) != 0 || aoticache_syscall_ask_limit(fd, size) != 0)
        return -1;
    while (size > 0) {
        ssize_t written = write(fd, next, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -1;
        next += written;
        size -= (size_t)written;
    }
    return 0;
}

int aoticache_syscall_ftruncate(int fd, off_t size)
{
    if (size >= 0 && ask_size((uint64_t)size) != 0)
        return -1;
    HOOKED("ftruncate", NULL, ftruncate(fd, size));
}

int aoticache_syscall_allocate(int fd, off_t size)
{
    int error;
    if (aoticache_syscall_hook_ask("fallocate", NULL) != 0 || (size >= 0 && ask_size((uint64_t)size) != 0))
        return -1;
    do
        error = posix_fallocate(fd, 0, size);
    while (error == EINTR);
    errno = error != 0 ? error : errno;
    return error == 0 ? 0 : -1;
}

int aoticache_syscall_fsync(int fd)
{
    HOOKED("fsync", NULL, fsync(fd));
}

int aoticache_syscall_fchmod(int fd, mode_t mode)
{
    HOOKED("fchmod", NULL, fchmod(fd, mode));
}

static int change_owner(int fd, uid_t owner, gid_t group)
{
    HOOKED("fchown", NULL, fchown(fd, owner, group));
}

void aoticache_syscall_hand_over(int fd, uid_t owner, gid_t group, mode_t mode)
{
    const bool is_for_owner = geteuid() == 0 && owner != 0;
    struct stat made;
    if (fd < 0 || (mode == 0 && !is_for_owner) || fstat(fd, &made) != 0)
        return;
    const bool is_directory = S_ISDIR(made.st_mode), is_file = S_ISREG(made.st_mode) && made.st_nlink == 1;
    if (is_for_owner && made.st_uid == 0 && (is_directory || (is_file && made.st_size == 0)))
        (void)change_owner(fd, owner, group);
    if (mode != 0 && (is_directory || is_file))
        (void)aoticache_syscall_fchmod(fd, mode);
}

int aoticache_syscall_mkdirat(int dirfd, const char *path, mode_t mode)
{
    struct stat made;
    if (aoticache_syscall_hook_ask("mkdir", path) != 0 || mkdirat(dirfd, path, mode) != 0)
        return -1;
    if (fstatat(dirfd, path, &made, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(made.st_mode) ||
        !lacks_owner_bits(&made, mode))
        return 0;
    return fchmodat(dirfd, path, (made.st_mode & 07777) | (mode & S_IRWXU), 0);
}

int aoticache_syscall_renameat(int old_dirfd, const char *old_path, int new_dirfd, const char *new_path)
{
    HOOKED("rename", new_path, renameat(old_dirfd, old_path, new_dirfd, new_path));
}

int aoticache_syscall_linkat(int old_dirfd, const char *old_path, int new_dirfd, const char *new_path)
{
    HOOKED("link", new_path, linkat(old_dirfd, old_path, new_dirfd, new_path, 0));
}

int aoticache_syscall_unlinkat(int dirfd, const char *path, int flags)
{
    HOOKED("unlink", path, unlinkat(dirfd, path, flags));
}

int aoticache_syscall_flock(int fd, int operation)
{
    HOOKED("flock", NULL, flock(fd, operation));
}
