/*
 * base/seam: see seam.h.
 */
#include "base/seam.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static aoticache_seam_fn seam_hook;
static void *seam_user;

void aoticache_seam_set(aoticache_seam_fn hook, void *user)
{
    seam_user = user;
    seam_hook = hook;
}

int aoticache_seam_ask(const char *call, const char *path)
{
    if (__builtin_expect(seam_hook == NULL, 1))
        return 0;
    int error = seam_hook(seam_user, call, path);
    if (error == 0)
        return 0;
    errno = error;
    return -1;
}

/* The call itself, after the hook has let it pass, again as long as a signal interrupts it. */
#define SEAM(name, path, expression)                     \
    do {                                                 \
        if (aoticache_seam_ask(name, path) != 0)         \
            return -1;                                   \
        int result;                                      \
        do                                               \
            result = (expression);                       \
        while (result < 0 && errno == EINTR);            \
        return result;                                   \
    } while (0)

int aoticache_seam_openat(int dirfd, const char *path, int flags, mode_t mode)
{
    SEAM("open", path, openat(dirfd, path, flags | O_CLOEXEC, mode));
}

int aoticache_seam_write(int fd, const void *bytes, size_t size)
{
    const uint8_t *next = bytes;
    if (aoticache_seam_ask("write", NULL) != 0)
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

int aoticache_seam_ftruncate(int fd, off_t size)
{
    SEAM("ftruncate", NULL, ftruncate(fd, size));
}

int aoticache_seam_allocate(int fd, off_t size)
{
    int error;
    if (aoticache_seam_ask("fallocate", NULL) != 0)
        return -1;
    do
        error = posix_fallocate(fd, 0, size);
    while (error == EINTR);
    errno = error != 0 ? error : errno;
    return error == 0 ? 0 : -1;
}

int aoticache_seam_fsync(int fd)
{
    SEAM("fsync", NULL, fsync(fd));
}

int aoticache_seam_fchmod(int fd, mode_t mode)
{
    SEAM("fchmod", NULL, fchmod(fd, mode));
}

static int give(int fd, uid_t owner, gid_t group)
{
    SEAM("fchown", NULL, fchown(fd, owner, group));
}

void aoticache_seam_hand_over(int fd, uid_t owner, gid_t group, mode_t mode)
{
    const bool is_for_owner = geteuid() == 0 && owner != 0;
    struct stat made;
    if (fd < 0 || (mode == 0 && !is_for_owner) || fstat(fd, &made) != 0)
        return;
    const bool is_folder = S_ISDIR(made.st_mode), is_file = S_ISREG(made.st_mode) && made.st_nlink == 1;
    if (is_for_owner && made.st_uid == 0 && (is_folder || (is_file && made.st_size == 0)))
        (void)give(fd, owner, group);
    if (mode != 0 && (is_folder || is_file))
        (void)aoticache_seam_fchmod(fd, mode);
}

int aoticache_seam_mkdirat(int dirfd, const char *path, mode_t mode)
{
    SEAM("mkdir", path, mkdirat(dirfd, path, mode));
}

int aoticache_seam_renameat(int old_dirfd, const char *old_path, int new_dirfd, const char *new_path)
{
    SEAM("rename", new_path, renameat(old_dirfd, old_path, new_dirfd, new_path));
}

int aoticache_seam_linkat(int old_dirfd, const char *old_path, int new_dirfd, const char *new_path)
{
    SEAM("link", new_path, linkat(old_dirfd, old_path, new_dirfd, new_path, 0));
}

int aoticache_seam_unlinkat(int dirfd, const char *path, int flags)
{
    SEAM("unlink", path, unlinkat(dirfd, path, flags));
}

int aoticache_seam_flock(int fd, int operation)
{
    SEAM("flock", NULL, flock(fd, operation));
}
