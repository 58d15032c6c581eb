/*
 * base/syscalls: every system call of this library that changes the disk.
 *
 * Private. Each function is the system call of its name, restarted on EINTR, with one addition: a hook that tests set
 * is asked first and may make the call fail (it returns an errno) or never return (it kills the process). That is how
 * tests/crash dies at every durable step and unit tests make call N fail. Without a hook the cost is one load.
 * SQLite's own calls go through its VFS; index/ connects that to the same hook (aoticache_index_syscall_hooks_install).
 */
#ifndef AOTICACHE_BASE_SYSCALLS_H
#define AOTICACHE_BASE_SYSCALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* call: "rename", "fsync", ...; path: as given to the call, or NULL if it has only a descriptor. 0 lets it happen. */
typedef int (*aoticache_syscall_hook_fn)(void *user, const char *call, const char *path);

/* Not thread-safe: set before other threads start. NULL removes the hook. */
void aoticache_syscall_hook_set(aoticache_syscall_hook_fn hook, void *user);

/* Asks the hook: 0, or -1 with errno set. For calls that are made elsewhere (SQLite's VFS). */
int aoticache_syscall_hook_ask(const char *call, const char *path);

/*
 * Returns whether a file of this process may have `end` bytes (RLIMIT_FSIZE). Making one longer kills the process (SIGXFSZ),
 * so the functions below fail with EFBIG instead.
 */
bool aoticache_syscall_is_within_limit(uint64_t end);

/*
 * openat with O_CLOEXEC added. Only for opening that may create, truncate or write. What is made here, or by mkdirat, its owner
 * may use as `mode` says, whatever the umask.
 */
int aoticache_syscall_openat(int dirfd, const char *path, int flags, mode_t mode);
/* Writes all of it: 0, or -1 with errno set. */
int aoticache_syscall_write(int fd, const void *bytes, size_t size);
int aoticache_syscall_ftruncate(int fd, off_t size);
/* posix_fallocate(3), from the beginning: 0, or -1 with errno set. */
int aoticache_syscall_allocate(int fd, off_t size);
int aoticache_syscall_fsync(int fd);
int aoticache_syscall_fchmod(int fd, mode_t mode);
/*
 * For what was just made in a cache or an index. fchmod(2) with `mode`, if it is not 0: what the umask took away, for a group
 * that shares it. fchown(2), if this is root: `owner` and `group` are those of its directory, whom root's own file would lock
 * out. Nothing is done to a file of several names, and none is given away that has something in it or that root does not own:
 * it was put there for root to find. Where it fails, the others see errors of permission, no more.
 */
void aoticache_syscall_hand_over(int fd, uid_t owner, gid_t group, mode_t mode);
int aoticache_syscall_mkdirat(int dirfd, const char *path, mode_t mode);
int aoticache_syscall_renameat(int old_dirfd, const char *old_path, int new_dirfd, const char *new_path);
int aoticache_syscall_linkat(int old_dirfd, const char *old_path, int new_dirfd, const char *new_path);
/* flags: 0 or AT_REMOVEDIR. */
int aoticache_syscall_unlinkat(int dirfd, const char *path, int flags);
/* flock(2): operation as there. */
int aoticache_syscall_flock(int fd, int operation);

#endif
