/*
 * index/connection/gate: how a connection waits for the write lock, and why none waits for ever.
 *
 * SQLite's lock is not fair: who writes all the time leaves it for microseconds between two transactions, each of which
 * takes milliseconds on a slow disk, and one that tries now and then would hardly ever hit that gap. So a file beside the
 * index is locked from before a try for the write lock until that lock is had. Who waits for the lock keeps this gate shut,
 * and the one that wrote all the time must wait there.
 *
 * The gate is a courtesy, not what keeps writers apart: where it cannot be had (no space for the file, no flock, held by a
 * process that was stopped), writing goes on without it.
 *
 * Who waits to write leaves the connection to other threads meanwhile: a lookup does not need that lock, and must not wait
 * for the process that has it, which may be stopped.
 */
#include "index/connection/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/syscalls.h"

#define SHORTEST_PAUSE_NS 50000u
#define LONGEST_PAUSE_NS 500000u /* and half as much again: a try costs about 5 us */

/* ---- waiting ---- */

/* A pause that grows with the time waited, and varies, so that two do not fall into step. 0: the time is over. */
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
        nanosleep(&pause, NULL); /* a signal merely makes the next try come sooner */
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
        return false;                        /* with the connection still saying what failed */
    index->wait_ms = index->lock_timeout_ms; /* theirs */
    pthread_mutex_unlock(&index->lock);
    nanosleep(&pause, NULL);
    pthread_mutex_lock(&index->lock);
    return true;
}

/* ---- the gate ---- */

/* The descriptor stays open as long as the connection. The next transaction tries again after a failure. */
static void open_gate(aoticache_index *index)
{
    index->gate_fd = aoticache_index_vfs_create(index, "-gate", O_NONBLOCK);
}

/* True if the write lock may be tried: the gate is ours, cannot be opened, or was waited for long enough. */
static bool pass_gate(aoticache_index *index, uint64_t begun_ns, uint64_t limit_ns)
{
    if (index->is_in_gate)
        return true;
    if (index->gate_fd < 0)
        open_gate(index);
    if (index->gate_fd < 0)
        return true;
    index->is_in_gate = aoticache_syscall_flock(index->gate_fd, LOCK_EX | LOCK_NB) == 0;
    return index->is_in_gate || errno != EWOULDBLOCK || aoticache_monotonic_ns() - begun_ns >= limit_ns;
}

void aoticache_index_gate_enter(aoticache_index *index)
{
    const uint64_t begun_ns = aoticache_monotonic_ns(), limit_ns = (uint64_t)index->wait_ms * 500000u;
    while (!pass_gate(index, begun_ns, limit_ns) && wait_a_little(begun_ns, limit_ns))
        ;
}

int aoticache_index_gate_step(aoticache_index *index, aoticache_index_gate_fn try, void *user)
{
    const uint32_t wait_ms = index->wait_ms;
    const uint64_t begun_ns = aoticache_monotonic_ns(), limit_ns = (uint64_t)wait_ms * 1000000u;
    int result;
    do {
        result = SQLITE_BUSY;
        index->wait_ms = 0; /* it is waited for here, not in SQLite with the connection in its hands */
        /* Half of the time is for the gate. Whoever does not wait takes nobody's turn for long. */
        if (wait_ms == 0 || pass_gate(index, begun_ns, limit_ns / 2))
            result = try(index, user);
    } while ((result & 0xff) == SQLITE_BUSY && wait_ms != 0 && wait_beside_others(index, begun_ns, limit_ns));
    aoticache_index_gate_leave(index);
    index->wait_ms = wait_ms;
    return result;
}

void aoticache_index_gate_leave(aoticache_index *index)
{
    if (!index->is_in_gate)
        return;
    int saved = errno;
    flock(index->gate_fd, LOCK_UN); /* said expressly: the child of a fork may share the description */
    index->is_in_gate = false;
    errno = saved;
}
