/*
 * cache/store/lock: advisory locks between processes and threads, and leases.
 */
#include "cache/store/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "base/syscalls.h"
#include "base/threads.h"

#define FIRST_PAUSE_NS 1000000u /* 1 ms */
#define LAST_PAUSE_NS 25000000u /* 25 ms */
#define LEASE_SLICE_MS 100u     /* interval at which a wait for a lease checks whether compiles are cancelled */

static void pause_ns(uint64_t ns)
{
    struct timespec pause = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&pause, NULL); /* a signal only makes the next attempt earlier */
}

aoticache_status aoticache_lock_acquire(int fd, int operation, uint32_t timeout_ms, bool *ret_waited,
                                        aoticache_error *ret_error)
{
    const uint64_t begun = aoticache_monotonic_ns();
    uint64_t pause = FIRST_PAUSE_NS;
    while (aoticache_syscall_flock(fd, operation | LOCK_NB) != 0) {
        if (errno == ENOSYS || errno == EOPNOTSUPP)
            return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                       "the file system does not support locks (flock): mount it with locks (Lustre: "
                                       "-o flock), or use a directory on a local disk");
        if (errno != EWOULDBLOCK)
            return aoticache_error_set_errno(ret_error, errno, "cannot lock a file of the cache (flock)");
        if (ret_waited != NULL)
            *ret_waited = true;
        uint64_t waited = aoticache_monotonic_ns() - begun;
        uint64_t limit = (uint64_t)timeout_ms * 1000000u;
        if (timeout_ms != AOTICACHE_LOCK_NO_TIMEOUT) {
            if (waited >= limit)
                return AOTICACHE_LOCKED;
            if (pause > limit - waited)
                pause = limit - waited;
        }
        pause_ns(pause);
        pause = pause * 2 < LAST_PAUSE_NS ? pause * 2 : LAST_PAUSE_NS;
    }
    return AOTICACHE_OK;
}

static aoticache_status lock_file(aoticache_directory *directory, const char *name, int operation, uint32_t timeout_ms,
                                  aoticache_lock *ret_lock, aoticache_error *ret_error)
{
    const mode_t mode = aoticache_directory_file_mode(directory);
    cleanup_fd int fd = aoticache_syscall_openat(directory->fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, mode);
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open %s/%s", directory->path, name);
    aoticache_directory_hand_over(directory, fd, mode);
    aoticache_status status = aoticache_lock_acquire(fd, operation, timeout_ms, NULL, ret_error);
    if (status == AOTICACHE_LOCKED)
        return aoticache_error_set(ret_error, status, "timed out after %u ms: %s/%s is locked by another process",
                                   (unsigned)timeout_ms, directory->path, name);
    if (status == AOTICACHE_OK)
        ret_lock->fd = steal_fd(&fd);
    return status;
}

aoticache_status aoticache_lock_store(aoticache_directory *directory, bool exclusive, aoticache_lock *ret_lock,
                                      aoticache_error *ret_error)
{
    /*
     * flock is not fair: while puts overlap, an exclusive lock would never be granted. So every process passes the gate
     * first; a process that waits for an exclusive lock holds the gate meanwhile.
     */
    const int operation = exclusive ? LOCK_EX : LOCK_SH;
    aoticache_lock gate = AOTICACHE_LOCK_INIT;
    aoticache_status status =
        lock_file(directory, AOTICACHE_GATE_FILE, operation, directory->lock_timeout_ms, &gate, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = lock_file(directory, AOTICACHE_LOCK_FILE, operation, directory->lock_timeout_ms, ret_lock, ret_error);
    aoticache_lock_release(&gate);
    return status;
}

aoticache_status aoticache_lock_collector(aoticache_directory *directory, aoticache_lock *ret_lock,
                                          aoticache_error *ret_error)
{
    aoticache_status status = lock_file(directory, AOTICACHE_COLLECT_LOCK_FILE, LOCK_EX, 0, ret_lock, ret_error);
    if (status == AOTICACHE_LOCKED)
        return aoticache_error_set(ret_error, status, "%s: another collection is running", directory->path);
    return status;
}

void aoticache_lock_release(aoticache_lock *lock)
{
    if (lock->fd < 0)
        return;
    int saved = errno;
    /*
     * The lock is released explicitly: a child forked meanwhile shares the description, and closing only this descriptor
     * would leave it locked.
     */
    flock(lock->fd, LOCK_UN);
    close(lock->fd);
    lock->fd = -1;
    errno = saved;
}

/* ---- leases ---- */

/*
 * A child inherits open files and their locks. It would hold its parent's leases, and continue to hold them after the parent
 * dies. So the child closes these files.
 */
typedef struct held_file {
    struct held_file *next;
    int fd;
} held_file;

static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t handlers_once = PTHREAD_ONCE_INIT;
static held_file *held_files;

static void before_fork(void)
{
    pthread_mutex_lock(&held_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&held_lock);
}

static void after_fork_in_child(void)
{
    while (held_files != NULL) {
        held_file *file = held_files;
        held_files = file->next;
        close(file->fd);
        free(file);
    }
    pthread_mutex_unlock(&held_lock);
}

static void add_handlers(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static int open_lease_file(int directory_fd, const char *name, mode_t mode)
{
    held_file *file = malloc(sizeof *file);
    if (file == NULL)
        return -1;
    pthread_once(&handlers_once, add_handlers);
    pthread_mutex_lock(&held_lock);
    int fd = aoticache_syscall_openat(directory_fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, mode);
    *file = (held_file){.next = held_files, .fd = fd};
    if (fd >= 0)
        held_files = file;
    pthread_mutex_unlock(&held_lock);
    if (fd < 0) {
        int saved = errno;
        free(file);
        errno = saved;
    }
    return fd;
}

static held_file *unlink_held_file(int fd)
{
    pthread_mutex_lock(&held_lock);
    held_file **place = &held_files;
    while (*place != NULL && (*place)->fd != fd)
        place = &(*place)->next;
    held_file *file = *place;
    if (file != NULL)
        *place = file->next;
    pthread_mutex_unlock(&held_lock);
    return file;
}

static void close_lease_file(held_file *file)
{
    close(file->fd);
    free(file);
}

/*
 * Tries once with the file that currently has the name. NOT_FOUND means that it was unlinked during the wait, so its lock is
 * useless.
 */
static aoticache_status acquire_once(const aoticache_directory *directory, aoticache_lease *lease, uint32_t timeout_ms,
                                     bool *ret_contended, aoticache_error *ret_error)
{
    const mode_t mode = aoticache_directory_file_mode(directory);
    int fd = open_lease_file(lease->directory_fd, lease->name, mode);
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot create the lease %s", lease->name);
    aoticache_directory_hand_over(directory, fd, mode);
    aoticache_status status = aoticache_lock_acquire(fd, LOCK_EX, timeout_ms, ret_contended, ret_error);
    if (status == AOTICACHE_OK && !aoticache_directory_is_same(lease->directory_fd, lease->name, fd))
        status = AOTICACHE_NOT_FOUND;
    if (status == AOTICACHE_OK)
        lease->fd = fd;
    else
        close_lease_file(unlink_held_file(fd));
    return status;
}

static uint32_t remaining_ms(uint64_t begun_ns, uint32_t timeout_ms)
{
    if (timeout_ms == 0)
        return AOTICACHE_LOCK_NO_TIMEOUT;
    uint64_t passed = (aoticache_monotonic_ns() - begun_ns) / 1000000u;
    return passed < timeout_ms ? (uint32_t)(timeout_ms - passed) : 0;
}

aoticache_status aoticache_lease_acquire(aoticache_directory *directory, const aoticache_key *key, uint32_t timeout_ms,
                                         aoticache_lease *ret_lease, bool *ret_contended, aoticache_error *ret_error)
{
    aoticache_lease lease = AOTICACHE_LEASE_INIT;
    const uint64_t begun = aoticache_monotonic_ns();
    *ret_contended = false;
    aoticache_digest_to_hex(key, lease.name);
    aoticache_status status =
        aoticache_directory_open_subdirectory(directory, AOTICACHE_LEASES, true, &lease.directory_fd, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    uint32_t left_ms = remaining_ms(begun, timeout_ms);
    for (;; left_ms = remaining_ms(begun, timeout_ms)) {
        bool is_last = left_ms <= LEASE_SLICE_MS;
        status = acquire_once(directory, &lease, is_last ? left_ms : LEASE_SLICE_MS, ret_contended, ret_error);
        if (status != AOTICACHE_NOT_FOUND && (status != AOTICACHE_LOCKED || is_last))
            break;
        if (aoticache_compiles_are_cancelled()) {
            status =
                aoticache_error_set_errno(ret_error, ECANCELED, "waiting for another process's compile was cancelled");
            break;
        }
    }
    if (status == AOTICACHE_LOCKED)
        aoticache_error_set(ret_error, status,
                            "timed out after %u ms waiting for another process to compile key %.12s; raise "
                            "compile_timeout, or check that process",
                            (unsigned)timeout_ms, lease.name);
    if (status != AOTICACHE_OK) {
        close(lease.directory_fd);
        return status;
    }
    *ret_lease = lease;
    return AOTICACHE_OK;
}

void aoticache_lease_release(aoticache_lease *lease)
{
    if (lease->fd < 0)
        return;
    int saved = errno;
    held_file *file = unlink_held_file(lease->fd);
    if (file != NULL) { /* otherwise it belongs to the parent */
        /* Unlinked while still locked: a process that waits for this file sees that the name belongs to another file and
         * starts again. */
        aoticache_syscall_unlinkat(lease->directory_fd, lease->name, 0);
        flock(file->fd, LOCK_UN);
        close_lease_file(file);
    }
    close(lease->directory_fd);
    lease->fd = lease->directory_fd = -1;
    errno = saved;
}
