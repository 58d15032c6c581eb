/*
 * cache/store/scratch: creates and removes the private directories of compiles and of artifacts that are not stored.
 */
#include "cache/store/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/syscalls.h"

void aoticache_scratch_name(aoticache_directory *directory, char *ret_name, size_t size)
{
    snprintf(ret_name, size, "%ld-%llx-%llx", (long)getpid(), (unsigned long long)aoticache_wall_ns(),
             (unsigned long long)atomic_fetch_add(&directory->serial, 1));
}

/*
 * Returns NOT_FOUND if a collector removed the new directory as a leftover before it was locked; the caller tries another
 * name.
 */
static aoticache_status create_once(aoticache_directory *directory, int tmp_fd, aoticache_scratch *ret_scratch,
                                    aoticache_error *ret_error)
{
    char name[80];
    aoticache_scratch_name(directory, name, sizeof name);
    int length =
        snprintf(ret_scratch->path, sizeof ret_scratch->path, "%s/" AOTICACHE_TMP "/%s", directory->real_path, name);
    if (length < 0 || (size_t)length >= sizeof ret_scratch->path)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: the path is too long", directory->path);
    if (aoticache_syscall_mkdirat(tmp_fd, name, aoticache_directory_subdirectory_mode(directory)) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot create %s", ret_scratch->path);
    cleanup_fd int fd = openat(tmp_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return AOTICACHE_NOT_FOUND;
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open %s", ret_scratch->path);
    aoticache_directory_hand_over(directory, fd, aoticache_directory_subdirectory_mode(directory));
    if (aoticache_syscall_flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK)
            return AOTICACHE_NOT_FOUND;
        return aoticache_error_set_errno(ret_error, errno, "cannot lock %s", ret_scratch->path);
    }
    if (!aoticache_directory_is_same(tmp_fd, name, fd))
        return AOTICACHE_NOT_FOUND;
    ret_scratch->fd = steal_fd(&fd);
    return AOTICACHE_OK;
}

#define SPACE_FOR_A_COMPILE (64u << 20)

bool aoticache_scratch_has_space(const aoticache_directory *directory)
{
    struct statvfs file_system;
    if (fstatvfs(directory->fd, &file_system) != 0)
        return true; /* then it is tried */
    return (uint64_t)file_system.f_bavail * file_system.f_frsize >= SPACE_FOR_A_COMPILE;
}

aoticache_status aoticache_scratch_create(aoticache_directory *directory, aoticache_scratch *ret_scratch,
                                          aoticache_error *ret_error)
{
    cleanup_fd int tmp_fd = -1;
    aoticache_scratch scratch = AOTICACHE_SCRATCH_INIT;
    aoticache_status status = aoticache_directory_open_subdirectory(directory, AOTICACHE_TMP, true, &tmp_fd, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    do
        status = create_once(directory, tmp_fd, &scratch, ret_error);
    while (status == AOTICACHE_NOT_FOUND);
    if (status == AOTICACHE_OK)
        *ret_scratch = scratch;
    return status;
}

aoticache_status aoticache_scratch_create_outside(aoticache_scratch *ret_scratch, aoticache_error *ret_error)
{
    const char *parent = secure_getenv("TMPDIR");
    if (parent == NULL || parent[0] != '/')
        parent = "/tmp";
    aoticache_scratch scratch = AOTICACHE_SCRATCH_INIT;
    int length = snprintf(scratch.path, sizeof scratch.path, "%s/aoticache-XXXXXX", parent);
    if (length < 0 || (size_t)length >= sizeof scratch.path)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: the path is too long", parent);
    if (aoticache_syscall_hook_ask("mkdir", scratch.path) != 0 || mkdtemp(scratch.path) == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot create a temporary directory in %s; set TMPDIR",
                                         parent);
    *ret_scratch = scratch;
    return AOTICACHE_OK;
}

void aoticache_scratch_remove(aoticache_scratch *scratch)
{
    if (scratch->path[0] == '\0')
        return;
    int saved = errno;
    /* The descriptor is used if there is one: the path names another directory if the directory was renamed meanwhile. */
    cleanup_fd int parent = scratch->fd >= 0 ? openat(scratch->fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (parent >= 0)
        aoticache_directory_remove_tree(parent, strrchr(scratch->path, '/') + 1);
    else
        aoticache_directory_remove_tree(AT_FDCWD, scratch->path);
    scratch->path[0] = '\0';
    if (scratch->fd >= 0)
        close(scratch->fd);
    scratch->fd = -1;
    errno = saved;
}
