/*
 * loader/runner/run_lock: who may be inside a container at one time: a single run on the fast path, runs in the pool,
 * or a change of constants. loader/runner/runner.h says what callers see of it.
 *
 * Private. Two stages. The flag `single` is the fast path; it counts only as long as nobody is registered. Whoever is
 * registered goes on to the second stage, where up to `limit` runs are inside together, or one change alone.
 *
 * The library's own locks are not relied on. PyTorch's update takes none on the active buffer; a run that fails in
 * its pool does not wake those who wait there; a first folding that fails in the pool keeps its model for ever; and
 * PyTorch 2.6 can lock itself up when two first runs meet (torch/csrc/inductor/aoti_runtime/model_container.h). Here
 * nobody waits inside the library, and the first run after a change, which folds, is alone.
 */
#ifndef AOTICACHE_LOADER_RUNNER_RUN_LOCK_H
#define AOTICACHE_LOADER_RUNNER_RUN_LOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct aoticache_run_lock {
    atomic_bool single;     /* a run is on the fast path */
    atomic_bool settled;    /* the active constants need no folding before a run: one succeeded since they changed */
    atomic_uint registered; /* beyond the fast path, and one where that is never to be taken */
    atomic_uint inside;     /* runs in the second stage, and its two bits */
    atomic_uint waiting;    /* runs that would be inside */
    atomic_uint starving;   /* of these, those that have waited for some ten milliseconds: nobody overtakes them */
    unsigned limit;
    pthread_mutex_t changes; /* held by whoever changes or lists constants, in either buffer */
} aoticache_run_lock;

/* limit: from 1 to 2^29. pool_only: try_single never succeeds. */
void aoticache_run_lock_init(aoticache_run_lock *lock, unsigned limit, bool pool_only);
void aoticache_run_lock_destroy(aoticache_run_lock *lock);

/*
 * Whether the caller alone is inside. The exchange and the look at `registered` cannot change places, nor can their
 * counterparts in aoticache_run_lock_register(): of two threads that come at once at least one sees the other.
 */
static inline bool aoticache_run_lock_try_single(aoticache_run_lock *lock)
{
    /* A first look without writing, so that those who wait for the flag to be clear are not disturbed. */
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

/* Ends the fast path for everybody until unregister; returns when no run is on it. */
void aoticache_run_lock_register(aoticache_run_lock *lock);
void aoticache_run_lock_unregister(aoticache_run_lock *lock);

/* Keeps the fast path closed until unblock, without waiting for anybody. */
static inline void aoticache_run_lock_block_single(aoticache_run_lock *lock)
{
    atomic_fetch_add_explicit(&lock->registered, 1, memory_order_seq_cst);
}

static inline void aoticache_run_lock_unblock_single(aoticache_run_lock *lock)
{
    atomic_fetch_sub_explicit(&lock->registered, 1, memory_order_release);
}

/* The second stage, for those who are registered. */
void aoticache_run_lock_enter_shared(aoticache_run_lock *lock);
void aoticache_run_lock_leave_shared(aoticache_run_lock *lock);
void aoticache_run_lock_enter_exclusive(aoticache_run_lock *lock);
void aoticache_run_lock_leave_exclusive(aoticache_run_lock *lock);

/* Runs and those called by them that find the constants in order say so. */
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
