/*
 * cache/store/lock: see lock.h.
 */
#include "cache/store/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/syscalls.h"

#define FIRST_PAUSE_NS 1000000u /* 1 ms */
#define LAST_PAUSE_NS 25000000u /* 25 ms */

static void pause_ns(uint64_t ns)
{
    struct timespec pause = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&pause, NULL); /* a signal merely makes the next try come sooner */
}

aoticache_status aoticache_lock_acquire(int fd, int operation, uint32_t timeout_ms, bool *ret_waited,
                                        aoticache_error *ret_error)
{
    const uint64_t begun = aoticache_monotonic_ns();
    uint64_t pause = FIRST_PAUSE_NS;
    while (aoticache_syscall_flock(fd, operation | LOCK_NB) != 0) {
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
        return aoticache_error_set(ret_error, status, "%s/%s is held by another process for more than %u ms",
                                   directory->path, name, (unsigned)timeout_ms);
    if (status == AOTICACHE_OK)
        ret_lock->fd = steal_fd(&fd);
    return status;
}

aoticache_status aoticache_lock_store(aoticache_directory *directory, bool exclusive, aoticache_lock *ret_lock,
                                      aoticache_error *ret_error)
{
    /*
     * flock is not fair: while puts overlap, an exclusive lock would never be granted. So everyone passes the gate
     * first; who waits for the store exclusively keeps the gate shut meanwhile.
     */
    const int operation = exclusive ? LOCK_EX : LOCK_SH;
    aoticache_lock gate = AOTICACHE_LOCK_INIT;
    aoticache_status status = lock_file(directory, AOTICACHE_GATE_FILE, operation, directory->lock_timeout_ms, &gate,
                                        ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = lock_file(directory, AOTICACHE_LOCK_FILE, operation, directory->lock_timeout_ms, ret_lock, ret_error);
    aoticache_lock_release(&gate);
    return status;
}

aoticache_status aoticache_lock_collector(aoticache_directory *directory, aoticache_lock *ret_lock,
                                          aoticache_error *ret_error)
{
    aoticache_status status =
        lock_file(directory, AOTICACHE_COLLECT_LOCK_FILE, LOCK_EX, 0, ret_lock, ret_error);
    if (status == AOTICACHE_LOCKED)
        return aoticache_error_set(ret_error, status, "another collection of %s is at work", directory->path);
    return status;
}

void aoticache_lock_release(aoticache_lock *lock)
{
    if (lock->fd < 0)
        return;
    int saved = errno;
    /* Said expressly: a child forked meanwhile shares the description, and closing ours alone would leave it locked. */
    flock(lock->fd, LOCK_UN);
    close(lock->fd);
    lock->fd = -1;
    errno = saved;
}
