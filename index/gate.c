/*
 * index/gate: how a connection waits for the write lock, and why none waits for ever.
 *
 * SQLite's lock is not fair: who writes all the time leaves it for microseconds between two transactions, each of which
 * takes milliseconds on a slow disk, and one that tries now and then would hardly ever hit that gap. So a file beside the
 * index is locked from before a try for the write lock until that lock is had. Who waits for the lock keeps this gate shut,
 * and the one that wrote all the time must wait there.
 *
 * The gate is a courtesy, not what keeps writers apart: where it cannot be had (no room for the file, no flock, held by a
 * process that was stopped), writing goes on without it.
 */
#include "index/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "base/seam.h"

#define SHORTEST_PAUSE_NS 50000u
#define LONGEST_PAUSE_NS 500000u /* and half as much again: a try costs about 5 us */

/* ---- waiting ---- */

/* A pause that grows with the time waited, and varies, so that two do not fall into step. False: the time is over. */
static bool wait_a_little(const aoticache_index *index, uint64_t limit_ns)
{
    uint64_t now = aoticache_monotonic_ns();
    uint64_t waited = now - index->wait_begun_ns;
    if (waited >= limit_ns)
        return false;
    uint64_t pause = waited / 4;
    pause = pause < SHORTEST_PAUSE_NS ? SHORTEST_PAUSE_NS : pause > LONGEST_PAUSE_NS ? LONGEST_PAUSE_NS : pause;
    pause = pause / 2 + now % pause;
    struct timespec wanted = {.tv_nsec = (long)(pause < limit_ns - waited ? pause : limit_ns - waited)};
    nanosleep(&wanted, NULL); /* a signal merely makes the next try come sooner */
    return true;
}

int aoticache_index_wait(void *argument, int tries)
{
    aoticache_index *index = argument;
    if (tries == 0 && !index->is_in_gate)
        index->wait_begun_ns = aoticache_monotonic_ns();
    return wait_a_little(index, (uint64_t)index->wait_ms * 1000000u);
}

/* ---- the gate ---- */

/* Kept open for the connection's life. A failure is tried again by the next transaction. */
static void open_gate(aoticache_index *index)
{
    index->gate_fd = aoticache_index_vfs_create(index, "-gate", O_NONBLOCK);
}

void aoticache_index_gate_enter(aoticache_index *index)
{
    if (index->wait_ms == 0)
        return; /* whoever does not wait takes nobody's turn for long */
    index->wait_begun_ns = aoticache_monotonic_ns();
    if (index->gate_fd < 0)
        open_gate(index);
    if (index->gate_fd < 0)
        return;
    const uint64_t limit_ns = (uint64_t)index->wait_ms * 500000u; /* the other half is for the lock itself */
    do
        index->is_in_gate = aoticache_seam_flock(index->gate_fd, LOCK_EX | LOCK_NB) == 0;
    while (!index->is_in_gate && errno == EWOULDBLOCK && wait_a_little(index, limit_ns));
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

void aoticache_index_gate_close(aoticache_index *index)
{
    if (index->gate_fd >= 0)
        close(index->gate_fd);
    index->gate_fd = -1;
    index->is_in_gate = false;
}
