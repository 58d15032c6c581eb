/*
 * cache/store/subdirectory: files and directories inside the cache directory: opens them without following links, creates them
 * durably, checks trust, quarantines, and removes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/files/listing.h"
#include "base/syscalls.h"
#include "cache/store/directory.h"

#define AOTICACHE_SHARE_ADVICE \
    "if you trust all its writers: allow_shared = true in the configuration ('aoticache config' names the files)"

#define PATH_BYTES 256
#define MAX_DEPTH 32

/* ---- opening ---- */

/* Copies the first component of `path` and returns the rest after its slash, or NULL if it was the last; sets errno if the
 * component may not be opened. */
static const char *split_component(const char *path, char component[PATH_BYTES])
{
    size_t length = strcspn(path, "/");
    errno = 0;
    if (length == 0 || length >= PATH_BYTES || (length <= 2 && strspn(path, ".") >= length)) {
        errno = EINVAL;
        return NULL;
    }
    memcpy(component, path, length);
    component[length] = '\0';
    return path[length] == '/' ? path + length + 1 : NULL;
}

/* Kernels before 5.6 have no openat2(), so the path is opened one component at a time. */
static int open_by_component(int root_fd, const char *path, int flags)
{
    cleanup_fd int held = -1;
    int parent = root_fd;
    char component[PATH_BYTES];
    for (;;) {
        path = split_component(path, component);
        if (path == NULL)
            return errno != 0 ? -1 : openat(parent, component, flags | O_NOFOLLOW);
        int next = openat(parent, component, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0)
            return -1;
        if (held >= 0)
            close(held);
        parent = held = next;
    }
}

static int open_below(aoticache_directory *directory, const char *path, int flags)
{
    flags |= O_CLOEXEC;
    if ((flags & O_PATH) == 0) /* openat2 refuses unused flags */
        flags |= O_NONBLOCK | O_NOCTTY;
#ifdef SYS_openat2
    if (!atomic_load_explicit(&directory->no_openat2, memory_order_relaxed)) {
        struct open_how how = {.flags = (uint64_t)flags, .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
        long fd;
        do
            fd = syscall(SYS_openat2, directory->fd, path, &how, sizeof how);
        while (fd < 0 && (errno == EINTR || errno == EAGAIN)); /* EAGAIN: a rename during the path lookup */
        /* EPERM comes from sandboxes whose filter does not know the call. */
        if (fd >= 0 || (errno != ENOSYS && errno != EPERM))
            return (int)fd;
        atomic_store_explicit(&directory->no_openat2, true, memory_order_relaxed);
    }
#endif
    return open_by_component(directory->fd, path, flags);
}

int aoticache_directory_openat(aoticache_directory *directory, const char *path, int flags)
{
    int fd, tries = 0;
    do
        fd = open_below(directory, path, flags);
    while (fd < 0 && errno == ESTALE && ++tries < AOTICACHE_SYSCALL_STALE_TRIES);
    return fd;
}

aoticache_status aoticache_directory_trust(const aoticache_directory *directory, const struct stat *found, mode_t type,
                                           const char *name, aoticache_error *ret_error)
{
    if ((found->st_mode & S_IFMT) != type)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED, "%s is not a %s, but has type 0%o", name,
                                   type == S_IFDIR ? "directory" : "regular file", (unsigned)(found->st_mode & S_IFMT));
    if (directory->allow_shared)
        return AOTICACHE_OK;
    if (found->st_uid != geteuid() && found->st_uid != 0)
        return aoticache_error_set(
            ret_error, AOTICACHE_DENIED,
            "%s belongs to user %ld, but this process runs as user %ld; choose a directory of your own, "
            "or " AOTICACHE_SHARE_ADVICE,
            name, (long)found->st_uid, (long)geteuid());
    if ((found->st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                   "%s can be written by others (mode 0%o); chmod go-w %s, or " AOTICACHE_SHARE_ADVICE,
                                   name, (unsigned)(found->st_mode & 07777), name);
    return AOTICACHE_OK;
}

static aoticache_status open_existing_directory(aoticache_directory *directory, const char *path, int *ret_fd,
                                                aoticache_error *ret_error)
{
    cleanup_fd int fd = aoticache_directory_openat(directory, path, O_RDONLY | O_DIRECTORY);
    if (fd < 0 && errno == ENOENT)
        return AOTICACHE_NOT_FOUND;
    struct stat found;
    if (fd < 0 || fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open %s/%s", directory->path, path);
    aoticache_status status = aoticache_directory_trust(directory, &found, S_IFDIR, path, ret_error);
    if (status == AOTICACHE_OK)
        *ret_fd = steal_fd(&fd);
    return status;
}

mode_t aoticache_directory_file_mode(const aoticache_directory *directory)
{
    return directory->is_group_shared ? 0660 : 0600;
}

/* Returns the mode of directories. The set-group-ID bit makes everything created in the directory belong to the same group. */
mode_t aoticache_directory_subdirectory_mode(const aoticache_directory *directory)
{
    return directory->is_group_shared ? 02770 : 0700;
}

/*
 * Adjusts mode and owner. If this fails (another user's directory, a file system without modes), other users of the group
 * only get permission errors.
 */
void aoticache_directory_hand_over(const aoticache_directory *directory, int fd, mode_t mode)
{
    aoticache_syscall_hand_over(fd, directory->owner, directory->group, directory->is_group_shared ? mode : 0);
}

static bool hand_over_directory(const aoticache_directory *directory, int parent, const char *name)
{
    cleanup_fd int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    aoticache_directory_hand_over(directory, fd, aoticache_directory_subdirectory_mode(directory));
    return fd >= 0;
}

int aoticache_directory_make_subdirectory(const aoticache_directory *directory, int parent_fd, const char *name)
{
    if (aoticache_syscall_mkdirat(parent_fd, name, aoticache_directory_subdirectory_mode(directory)) != 0)
        return -1;
    bool is_ours_alone = !directory->is_group_shared && directory->owner == geteuid();
    return is_ours_alone || hand_over_directory(directory, parent_fd, name) ? 0 : -1;
}

/* Creates every missing component; each is durable before the next is created in it. */
static aoticache_status create_directory(aoticache_directory *directory, const char *path, aoticache_error *ret_error)
{
    cleanup_fd int held = -1;
    int parent = directory->fd;
    const char *rest = path;
    char component[PATH_BYTES];
    for (;;) {
        rest = split_component(rest, component);
        if (rest == NULL && errno != 0)
            break;
        if (aoticache_directory_make_subdirectory(directory, parent, component) == 0) {
            if (aoticache_syscall_fsync(parent) != 0)
                break;
        } else if (errno != EEXIST) {
            break;
        }
        if (rest == NULL)
            return AOTICACHE_OK;
        int next = openat(parent, component, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0)
            break;
        if (held >= 0)
            close(held);
        parent = held = next;
    }
    return aoticache_error_set_errno(ret_error, errno, "cannot create %s/%s", directory->path, path);
}

/*
 * Syncs the root if necessary. A directory's contents are durable only if the directory's own name in the root is. Another
 * process may have created the directory a moment ago, and not have synced the root yet: so each process syncs the root
 * once, when it first opens such a directory for writing.
 */
static aoticache_status make_name_durable(aoticache_directory *directory, const char *path, aoticache_error *ret_error)
{
    static const char *const lasting[] = {AOTICACHE_OBJECTS, AOTICACHE_SIGNATURES, AOTICACHE_PINS};
    const size_t length = strcspn(path, "/");
    for (unsigned i = 0; i < sizeof lasting / sizeof lasting[0]; i++) {
        if (strlen(lasting[i]) != length || strncmp(path, lasting[i], length) != 0 ||
            (atomic_load(&directory->durable_names) & 1u << i) != 0)
            continue;
        if (aoticache_syscall_fsync(directory->fd) != 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot make %s/%s durable", directory->path,
                                             lasting[i]);
        atomic_fetch_or(&directory->durable_names, 1u << i);
    }
    return AOTICACHE_OK;
}

aoticache_status aoticache_directory_open_subdirectory(aoticache_directory *directory, const char *path, bool create,
                                                       int *ret_fd, aoticache_error *ret_error)
{
    aoticache_status status = open_existing_directory(directory, path, ret_fd, ret_error);
    for (int attempt = 0; status == AOTICACHE_NOT_FOUND && create && attempt < 3; attempt++) {
        status = create_directory(directory, path, ret_error);
        if (status == AOTICACHE_OK)
            status = open_existing_directory(directory, path, ret_fd, ret_error);
    }
    if (status == AOTICACHE_NOT_FOUND && create)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "%s/%s disappears as soon as it is created",
                                   directory->path, path);
    if (status != AOTICACHE_OK || !create)
        return status;
    status = make_name_durable(directory, path, ret_error);
    if (status != AOTICACHE_OK) {
        close(*ret_fd);
        *ret_fd = -1;
    }
    return status;
}

aoticache_status aoticache_directory_quarantine(aoticache_directory *directory, int parent_fd, const char *name,
                                                const char *label, aoticache_error *ret_error)
{
    cleanup_fd int quarantine = -1;
    aoticache_status status =
        aoticache_directory_open_subdirectory(directory, AOTICACHE_QUARANTINE, true, &quarantine, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    char aside[PATH_BYTES];
    snprintf(aside, sizeof aside, "%.200s-%lld", label, (long long)aoticache_wall_ns());
    if (aoticache_syscall_renameat(parent_fd, name, quarantine, aside) == 0)
        return AOTICACHE_OK;
    if (errno == ENOENT)
        return AOTICACHE_NOT_FOUND;
    return aoticache_error_set_errno(ret_error, errno, "cannot move %s to %s/" AOTICACHE_QUARANTINE, name,
                                     directory->path);
}

static int remove_tree(int parent_fd, const char *name, int depth);

DIR *aoticache_directory_list(int directory_fd)
{
    return aoticache_listing_open(openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

static int remove_contents(int fd, int depth)
{
    cleanup_dir DIR *listing = aoticache_listing_open(fd);
    if (listing == NULL)
        return -1;
    int result = 0;
    for (struct dirent *item; (item = readdir(listing)) != NULL;) {
        if (strcmp(item->d_name, ".") == 0 || strcmp(item->d_name, "..") == 0)
            continue;
        if (remove_tree(dirfd(listing), item->d_name, depth + 1) != 0)
            result = -1;
    }
    return result;
}

static int remove_tree(int parent_fd, const char *name, int depth)
{
    if (depth > MAX_DEPTH) {
        errno = ELOOP;
        return -1;
    }
    if (aoticache_syscall_unlinkat(parent_fd, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -1;
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    if (remove_contents(fd, depth) != 0)
        return -1;
    return aoticache_syscall_unlinkat(parent_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -1;
}

int aoticache_directory_remove_tree(int parent_fd, const char *name)
{
    return remove_tree(parent_fd, name, 0);
}

bool aoticache_directory_is_same(int parent_fd, const char *name, int fd)
{
    struct stat open_file, named_file;
    return fstat(fd, &open_file) == 0 && fstatat(parent_fd, name, &named_file, AT_SYMLINK_NOFOLLOW) == 0 &&
           open_file.st_dev == named_file.st_dev && open_file.st_ino == named_file.st_ino;
}
