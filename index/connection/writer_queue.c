/*
 * index/connection/writer_queue: how a connection waits for the write lock, so that none waits forever.
 *
 * SQLite's lock is not fair. A process that writes continuously leaves it free for microseconds between two transactions, each
 * of which takes milliseconds on a slow disk, so a process that tries periodically would hardly ever find it free. Therefore a
 * connection locks a file next to the index (the gate, `-gate`) before it tries for the write lock, until it has that lock. A
 * process waiting for the write lock holds the gate, so a process that writes continuously must wait for it.
 *
 * The gate is advisory: SQLite's lock keeps writers apart. If the gate cannot be locked (no space for the file, no flock, a
 * stopped process holds it), writing continues without it.
 *
 * A thread that waits to write releases the connection to other threads meanwhile: a lookup does not need that lock, and
 * must not wait for the process that has it, which may be stopped.
 */
#include "index/connection/connection_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/syscalls.h"

#define SHORTEST_PAUSE_NS 50000u
#define LONGEST_PAUSE_NS 500000u /* longest pause, plus up to half as much: an attempt costs about 5 us */

/* ---- waiting ---- */

/* Returns a pause that grows with the time waited, and varies, so that two processes do not synchronize. 0: the time is
 * over. */
static long next_pause_ns(uint64_t begun_ns, uint64_t limit_ns)
{
    uint64_t now = aoticache_monotonic_ns();
    uint64_t waited = now - begun_ns;
    if (waited >= limit_ns)
        return 0;
    uint64_t pause = waited / 4;
    pause = pause < SHORTEST_PAUSE_NS ? SHORTEST_PAUSE_NS : pause > LONGEST_PAUSE_NS ? LONGEST_PAUSE_NS : pause;
    pause = pause / 2 + now % pause;
    return (long)(pause < limit_ns - waited ? pause : limit_ns - waited);
}

static bool wait_a_little(uint64_t begun_ns, uint64_t limit_ns)
{
    const struct timespec pause = {.tv_nsec = next_pause_ns(begun_ns, limit_ns)};
    if (pause.tv_nsec > 0)
        nanosleep(&pause, NULL); /* a signal only makes the next attempt earlier */
    return pause.tv_nsec > 0;
}

int aoticache_index_wait(void *argument, int tries)
{
    aoticache_index *index = argument;
    if (tries == 0)
        index->wait_begun_ns = aoticache_monotonic_ns();
    return wait_a_little(index->wait_begun_ns, (uint64_t)index->wait_ms * 1000000u);
}

/* Waits between two statements. Other threads may use the connection meanwhile, unless it is still connecting. */
static bool wait_beside_others(aoticache_index *index, uint64_t begun_ns, uint64_t limit_ns)
{
    if (index->is_connecting)
        return wait_a_little(begun_ns, limit_ns);
    const struct timespec pause = {.tv_nsec = next_pause_ns(begun_ns, limit_ns)};
    if (pause.tv_nsec == 0)
        return false;                        /* the connection still has the message of the failure */
    index->wait_ms = index->lock_timeout_ms; /* set by other threads */
    pthread_mutex_unlock(&index->lock);
    nanosleep(&pause, NULL);
    pthread_mutex_lock(&index->lock);
    return true;
}

/* ---- the gate ---- */

/* Opens the gate. The descriptor stays open as long as the connection. The next transaction tries again after a failure. */
static void open_gate(aoticache_index *index)
{
    struct stat found;
    index->gate_fd = aoticache_index_vfs_create(index, "-gate", O_NONBLOCK);
    if (index->gate_fd < 0)
        return;
    if (fstat(index->gate_fd, &found) != 0) {
        close(index->gate_fd);
        index->gate_fd = -1;
        return;
    }
    index->gate_device = found.st_dev;
    index->gate_inode = found.st_ino;
}

/* Returns true if the write lock may be tried: the gate is locked by this connection, cannot be opened, or was waited for
 * long enough. */
static bool pass_gate(aoticache_index *index, uint64_t begun_ns, uint64_t limit_ns)
{
    if (index->is_in_gate)
        return true;
    if (aoticache_index_gate_is_lost(index))
        index->gate_fd = -1;
    if (index->gate_fd < 0)
        open_gate(index);
    if (index->gate_fd < 0)
        return true;
    index->is_in_gate = aoticache_syscall_flock(index->gate_fd, LOCK_EX | LOCK_NB) == 0;
    return index->is_in_gate || errno != EWOULDBLOCK || aoticache_monotonic_ns() - begun_ns >= limit_ns;
}

void aoticache_index_writer_queue_enter(aoticache_index *index)
{
    const uint64_t begun_ns = aoticache_monotonic_ns(), limit_ns = (uint64_t)index->wait_ms * 500000u;
    while (!pass_gate(index, begun_ns, limit_ns) && wait_a_little(begun_ns, limit_ns))
        ;
}

int aoticache_index_writer_queue_step(aoticache_index *index, aoticache_index_write_fn try, void *user)
{
    const uint32_t wait_ms = index->wait_ms;
    const uint64_t begun_ns = aoticache_monotonic_ns(), limit_ns = (uint64_t)wait_ms * 1000000u;
    int result;
    do {
        result = SQLITE_BUSY;
        index->wait_ms = 0; /* this function waits, not SQLite while it holds the connection */
        /* Wait for the gate for at most half of the time limit. A caller with no time to wait skips the gate, and does
         * not hold up others for long. */
        if (wait_ms == 0 || pass_gate(index, begun_ns, limit_ns / 2))
            result = try(index, user);
    } while ((result & 0xff) == SQLITE_BUSY && wait_ms != 0 && wait_beside_others(index, begun_ns, limit_ns));
    aoticache_index_writer_queue_leave(index);
    index->wait_ms = wait_ms;
    return result;
}

void aoticache_index_writer_queue_leave(aoticache_index *index)
{
    if (!index->is_in_gate)
        return;
    int saved = errno;
    if (!aoticache_index_gate_is_lost(index))
        flock(index->gate_fd, LOCK_UN); /* explicitly: the child of a fork may share the description */
    index->is_in_gate = false;
    errno = saved;
}
