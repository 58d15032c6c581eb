/*
 * base/syscalls: every system call of this library that changes the disk.
 *
 * Private. Each function does the system call of its name and restarts it on EINTR. Before that it calls a hook that tests
 * can set: the hook can make the call fail (it returns an errno) or kill the process. So tests/crash can kill a process at
 * every durable step, and unit tests can make call N fail. Without a hook the cost is one load. SQLite's own calls go
 * through its VFS; index/ connects that to the same hook (aoticache_index_syscall_hooks_install).
 */
#ifndef AOTICACHE_BASE_SYSCALLS_H
#define AOTICACHE_BASE_SYSCALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Called before each system call. call: "rename", "fsync", ...; path: as given to the call, or NULL if it has only a
 * descriptor. Returns 0 to let the call happen. */
typedef int (*aoticache_syscall_hook_fn)(void *user, const char *call, const char *path);

/* Sets the hook; NULL removes it. Not thread-safe: call it before other threads start. */
void aoticache_syscall_hook_set(aoticache_syscall_hook_fn hook, void *user);

/* Calls the hook and returns 0, or -1 with errno set. For calls that are made elsewhere (SQLite's VFS). */
int aoticache_syscall_hook_ask(const char *call, const char *path);

/*
 * Returns whether a file of this process may have `end` bytes (RLIMIT_FSIZE). Extending a file beyond the limit kills the
 * process (SIGXFSZ), so the functions below fail with EFBIG instead.
 */
bool aoticache_syscall_is_within_limit(uint64_t end);
/* Asks that limit for a write(2) of `size` bytes: returns 0, or -1 with errno EFBIG. For writes that are made elsewhere. */
int aoticache_syscall_ask_limit(int fd, uint64_t size);

/* How often an open is tried that fails with ESTALE: NFS and FUSE do, if another process replaces the file at that moment. */
#define AOTICACHE_SYSCALL_STALE_TRIES 8

/*
 * Does openat() with O_CLOEXEC added. Only for opens that may create, truncate or write. If this function or mkdirat creates
 * a file, its owner gets the permissions in `mode`, whatever the umask is.
 */
int aoticache_syscall_openat(int dirfd, const char *path, int flags, mode_t mode);
/* Writes all bytes: returns 0, or -1 with errno set. */
int aoticache_syscall_write(int fd, const void *bytes, size_t size);
int aoticache_syscall_ftruncate(int fd, off_t size);
/* Does posix_fallocate(3) from the beginning: returns 0, or -1 with errno set. */
int aoticache_syscall_allocate(int fd, off_t size);
int aoticache_syscall_fsync(int fd);
int aoticache_syscall_fchmod(int fd, mode_t mode);
/*
 * Adjusts the permissions and owner of a file that was just created in a cache or an index. If `mode` is not 0, fchmod(2)
 * restores the bits that the umask removed, for a group that shares the cache. If this process is root, fchown(2) sets
 * `owner` and `group`, which are those of the directory: a file owned by root would lock out the directory's owner. A file
 * with several names is left unchanged. The owner is not changed either if the file has contents or root does not own it:
 * another user put it there for root to find. On failure nothing is reported; other users then get permission errors.
 */
void aoticache_syscall_hand_over(int fd, uid_t owner, gid_t group, mode_t mode);
int aoticache_syscall_mkdirat(int dirfd, const char *path, mode_t mode);
int aoticache_syscall_renameat(int old_dirfd, const char *old_path, int new_dirfd, const char *new_path);
int aoticache_syscall_linkat(int old_dirfd, const char *old_path, int new_dirfd, const char *new_path);
/* Does unlinkat(2). flags: 0 or AT_REMOVEDIR. */
int aoticache_syscall_unlinkat(int dirfd, const char *path, int flags);
/* Does flock(2): `operation` as there. */
int aoticache_syscall_flock(int fd, int operation);

#endif
