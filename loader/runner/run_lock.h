/*
 * loader/runner/run_lock: who may be inside a container at one time: a single run on the fast path, runs in the pool,
 * or a change of constants. loader/runner/runner.h describes what callers see of it.
 *
 * Private. Two stages. The flag `single` is the fast path; it counts only while no thread is registered. A registered
 * thread enters the second stage, in which up to `limit` runs are inside together, or one change alone.
 *
 * The library's own locks are not relied on. PyTorch's update takes none on the active buffer; a run that fails in its
 * pool does not wake the threads that wait there; a first folding that fails in the pool keeps its model for ever; and
 * PyTorch 2.6 can lock itself up when two first runs meet (torch/csrc/inductor/aoti_runtime/model_container.h). With
 * this lock no thread waits inside the library, and the first run after a change, which folds, is alone.
 */
#ifndef AOTICACHE_LOADER_RUNNER_RUN_LOCK_H
#define AOTICACHE_LOADER_RUNNER_RUN_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct aoticache_run_lock {
    atomic_bool single;     /* a run is on the fast path */
    atomic_bool settled;    /* the active constants need no folding before a run: one succeeded since they changed */
    atomic_uint registered; /* registered threads, plus one if the fast path is never taken */
    atomic_uint inside;     /* runs in the second stage, and two flag bits */
    atomic_uint waiting;    /* runs that wait to be inside */
    atomic_uint starving; /* of these, those that have waited for some ten milliseconds: no other run overtakes them */
    unsigned limit;
    pthread_mutex_t changes; /* held while constants of either buffer are changed or listed */
} aoticache_run_lock;

/* Initialises the lock. limit: from 1 to 2^29. pool_only: try_single never succeeds. */
void aoticache_run_lock_init(aoticache_run_lock *lock, unsigned limit, bool pool_only);
void aoticache_run_lock_destroy(aoticache_run_lock *lock);

/*
 * Takes the fast path if the caller alone is inside. The exchange and the load of `registered` cannot be reordered, nor
 * can their counterparts in aoticache_run_lock_register(): of two threads that arrive at the same time at least one
 * sees the other.
 */
static inline bool aoticache_run_lock_try_single(aoticache_run_lock *lock)
{
    /* Check without writing first, so that threads that wait for the flag to be clear are not disturbed. */
    if (__builtin_expect(atomic_load_explicit(&lock->registered, memory_order_relaxed) != 0, 0) ||
        __builtin_expect(atomic_exchange_explicit(&lock->single, true, memory_order_seq_cst), 0))
        return false;
    if (__builtin_expect(atomic_load_explicit(&lock->registered, memory_order_seq_cst) == 0, 1))
        return true;
    atomic_store_explicit(&lock->single, false, memory_order_release);
    return false;
}

static inline void aoticache_run_lock_leave_single(aoticache_run_lock *lock)
{
    atomic_store_explicit(&lock->single, false, memory_order_release);
}

/* Closes the fast path for all threads until unregister; returns when no run is on it. */
void aoticache_run_lock_register(aoticache_run_lock *lock);
void aoticache_run_lock_unregister(aoticache_run_lock *lock);

/* Keeps the fast path closed until unblock, without waiting for runs on it. */
static inline void aoticache_run_lock_block_single(aoticache_run_lock *lock)
{
    atomic_fetch_add_explicit(&lock->registered, 1, memory_order_seq_cst);
}

static inline void aoticache_run_lock_unblock_single(aoticache_run_lock *lock)
{
    atomic_fetch_sub_explicit(&lock->registered, 1, memory_order_release);
}

/* Enter and leave the second stage, for registered threads. */
void aoticache_run_lock_enter_shared(aoticache_run_lock *lock);
void aoticache_run_lock_leave_shared(aoticache_run_lock *lock);
void aoticache_run_lock_enter_exclusive(aoticache_run_lock *lock);
void aoticache_run_lock_leave_exclusive(aoticache_run_lock *lock);

/* Returns whether the active constants need no folding before a run. */
static inline bool aoticache_run_lock_is_settled(aoticache_run_lock *lock)
{
    return atomic_load_explicit(&lock->settled, memory_order_relaxed);
}

static inline void aoticache_run_lock_set_settled(aoticache_run_lock *lock, bool settled)
{
    if (__builtin_expect(aoticache_run_lock_is_settled(lock) != settled, 0))
        atomic_store_explicit(&lock->settled, settled, memory_order_relaxed);
}

#endif
