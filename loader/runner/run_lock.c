/*
 * loader/runner/run_lock: waiting without locks: a run usually takes microseconds, so a waiter spins a little, then
 * yields, then sleeps for as long as it has waited already, a millisecond at most.
 */
#include "loader/runner/run_lock.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

/*
 * Bits of `inside`: a change is inside, or waits for runs to leave; runs that waited for a change enter before the next
 * change.
 */
#define CHANGE (1u << 31)
#define RUNS_FIRST (1u << 30)
#define RUNS (RUNS_FIRST - 1)

enum { SPINS = 300, YIELDS = 20, FIRST_SLEEP_NS = 4000, LONGEST_SLEEP_NS = 1000000 };

/* After this many rounds of waiting, some ten milliseconds, a run is starving; then it checks more often. */
enum { STARVING_ROUND = SPINS + YIELDS + 16, STARVING_SLEEP_NS = 200000 };

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void sleep_for(long ns)
{
    int saved = errno;
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
    errno = saved;
}

/* Waits a little, and longer in later rounds. *round counts the rounds, from 0. */
static void wait_a_little(unsigned *round)
{
    unsigned now = (*round)++;
    if (now < SPINS) {
        relax();
        return;
    }
    if (now < SPINS + YIELDS) {
        sched_yield();
        return;
    }
    unsigned doublings = now - SPINS - YIELDS;
    long sleep_ns = doublings < 8 ? (long)FIRST_SLEEP_NS << doublings : LONGEST_SLEEP_NS;
    sleep_for(sleep_ns < LONGEST_SLEEP_NS ? sleep_ns : LONGEST_SLEEP_NS);
}

void aoticache_run_lock_init(aoticache_run_lock *lock, unsigned limit, bool pool_only)
{
    atomic_init(&lock->single, false);
    atomic_init(&lock->settled, false);
    atomic_init(&lock->registered, pool_only ? 1 : 0);
    atomic_init(&lock->inside, 0);
    atomic_init(&lock->waiting, 0);
    atomic_init(&lock->starving, 0);
    lock->limit = limit;
    pthread_mutex_init(&lock->changes, NULL);
}

void aoticache_run_lock_destroy(aoticache_run_lock *lock)
{
    pthread_mutex_destroy(&lock->changes);
}

void aoticache_run_lock_register(aoticache_run_lock *lock)
{
    unsigned round = 0;
    atomic_fetch_add_explicit(&lock->registered, 1, memory_order_seq_cst);
    while (atomic_load_explicit(&lock->single, memory_order_seq_cst))
        wait_a_little(&round);
}

void aoticache_run_lock_unregister(aoticache_run_lock *lock)
{
    atomic_fetch_sub_explicit(&lock->registered, 1, memory_order_release);
}

static bool try_shared(aoticache_run_lock *lock, bool starving)
{
    if (!starving && atomic_load_explicit(&lock->starving, memory_order_relaxed) > 0)
        return false;
    unsigned inside = atomic_load_explicit(&lock->inside, memory_order_relaxed);
    while ((inside & CHANGE) == 0 && (inside & RUNS) < lock->limit)
        if (atomic_compare_exchange_weak_explicit(&lock->inside, &inside, (inside + 1) & ~RUNS_FIRST,
                                                  memory_order_acquire, memory_order_relaxed))
            return true;
    return false;
}

static void enter_starving(aoticache_run_lock *lock)
{
    atomic_fetch_add_explicit(&lock->starving, 1, memory_order_relaxed);
    while (!try_shared(lock, true))
        sleep_for(STARVING_SLEEP_NS);
    atomic_fetch_sub_explicit(&lock->starving, 1, memory_order_relaxed);
}

/*
 * Enters. A run that has waited long is marked as starving: otherwise other threads that run without a pause would
 * never let it in.
 */
void aoticache_run_lock_enter_shared(aoticache_run_lock *lock)
{
    if (try_shared(lock, false))
        return;
    unsigned round = 0;
    bool inside = false;
    atomic_fetch_add_explicit(&lock->waiting, 1, memory_order_relaxed);
    while (!inside && round < STARVING_ROUND) {
        wait_a_little(&round);
        inside = try_shared(lock, false);
    }
    if (!inside)
        enter_starving(lock);
    atomic_fetch_sub_explicit(&lock->waiting, 1, memory_order_relaxed);
}

void aoticache_run_lock_leave_shared(aoticache_run_lock *lock)
{
    atomic_fetch_sub_explicit(&lock->inside, 1, memory_order_release);
}

static bool try_change(aoticache_run_lock *lock)
{
    unsigned inside = atomic_load_explicit(&lock->inside, memory_order_relaxed);
    while ((inside & (CHANGE | RUNS_FIRST)) == 0)
        if (atomic_compare_exchange_weak_explicit(&lock->inside, &inside, inside | CHANGE, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

void aoticache_run_lock_enter_exclusive(aoticache_run_lock *lock)
{
    unsigned round = 0;
    while (!try_change(lock))
        wait_a_little(&round);
    round = 0;
    while ((atomic_load_explicit(&lock->inside, memory_order_acquire) & RUNS) != 0)
        wait_a_little(&round);
}

/*
 * Leaves. Only the leaving thread writes to `inside` here. A run that waits now keeps the bit set until it is inside,
 * and then clears it; without the bit, changes in quick succession would never let a sleeping run in.
 */
void aoticache_run_lock_leave_exclusive(aoticache_run_lock *lock)
{
    bool runs_wait = atomic_load_explicit(&lock->waiting, memory_order_relaxed) > 0;
    atomic_store_explicit(&lock->inside, runs_wait ? RUNS_FIRST : 0, memory_order_release);
}
