/*
 * loader/runner/run_gate: waiting is done without locks: a run takes microseconds as a rule, so a waiter
 * spins a little, then yields, then sleeps for as long as it has waited already, a millisecond at most.
 */
#include "loader/runner/run_gate.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

/* In `inside`: a change is in, or waits for runs to leave; those who waited for a change come before the next one. */
#define CHANGE (1u << 31)
#define RUNS_FIRST (1u << 30)
#define RUNS (RUNS_FIRST - 1)

enum { SPINS = 300, YIELDS = 20, FIRST_SLEEP_NS = 4000, LONGEST_SLEEP_NS = 1000000 };

/* After so many rounds of waiting, some ten milliseconds, a run is starving; then it looks more often. */
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

/* Waits a little, and longer in later rounds. *round is 0 at first, and counts the rounds. */
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

void aoticache_run_gate_init(aoticache_run_gate *gate, unsigned limit, bool pool_only)
{
    atomic_init(&gate->single, false);
    atomic_init(&gate->settled, false);
    atomic_init(&gate->registered, pool_only ? 1 : 0);
    atomic_init(&gate->inside, 0);
    atomic_init(&gate->waiting, 0);
    atomic_init(&gate->starving, 0);
    gate->limit = limit;
    pthread_mutex_init(&gate->changes, NULL);
}

void aoticache_run_gate_destroy(aoticache_run_gate *gate)
{
    pthread_mutex_destroy(&gate->changes);
}

void aoticache_run_gate_register(aoticache_run_gate *gate)
{
    unsigned round = 0;
    atomic_fetch_add_explicit(&gate->registered, 1, memory_order_seq_cst);
    while (atomic_load_explicit(&gate->single, memory_order_seq_cst))
        wait_a_little(&round);
}

void aoticache_run_gate_unregister(aoticache_run_gate *gate)
{
    atomic_fetch_sub_explicit(&gate->registered, 1, memory_order_release);
}

static bool try_shared(aoticache_run_gate *gate, bool starving)
{
    if (!starving && atomic_load_explicit(&gate->starving, memory_order_relaxed) > 0)
        return false;
    unsigned inside = atomic_load_explicit(&gate->inside, memory_order_relaxed);
    while ((inside & CHANGE) == 0 && (inside & RUNS) < gate->limit)
        if (atomic_compare_exchange_weak_explicit(&gate->inside, &inside, (inside + 1) & ~RUNS_FIRST,
                                                  memory_order_acquire, memory_order_relaxed))
            return true;
    return false;
}

static void enter_starving(aoticache_run_gate *gate)
{
    atomic_fetch_add_explicit(&gate->starving, 1, memory_order_relaxed);
    while (!try_shared(gate, true))
        sleep_for(STARVING_SLEEP_NS);
    atomic_fetch_sub_explicit(&gate->starving, 1, memory_order_relaxed);
}

/*
 * A run that has waited long is marked as starving: other threads that run without a pause would never leave it a free
 * moment.
 */
void aoticache_run_gate_enter_shared(aoticache_run_gate *gate)
{
    if (try_shared(gate, false))
        return;
    unsigned round = 0;
    bool inside = false;
    atomic_fetch_add_explicit(&gate->waiting, 1, memory_order_relaxed);
    while (!inside && round < STARVING_ROUND) {
        wait_a_little(&round);
        inside = try_shared(gate, false);
    }
    if (!inside)
        enter_starving(gate);
    atomic_fetch_sub_explicit(&gate->waiting, 1, memory_order_relaxed);
}

void aoticache_run_gate_leave_shared(aoticache_run_gate *gate)
{
    atomic_fetch_sub_explicit(&gate->inside, 1, memory_order_release);
}

static bool try_change(aoticache_run_gate *gate)
{
    unsigned inside = atomic_load_explicit(&gate->inside, memory_order_relaxed);
    while ((inside & (CHANGE | RUNS_FIRST)) == 0)
        if (atomic_compare_exchange_weak_explicit(&gate->inside, &inside, inside | CHANGE, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
    return false;
}

void aoticache_run_gate_enter_exclusive(aoticache_run_gate *gate)
{
    unsigned round = 0;
    while (!try_change(gate))
        wait_a_little(&round);
    round = 0;
    while ((atomic_load_explicit(&gate->inside, memory_order_acquire) & RUNS) != 0)
        wait_a_little(&round);
}

/*
 * Nobody but the leaver writes to `inside` here. A run that waits now does so until it is let in, and takes the bit
 * away then; without it, changes that follow each other closely would leave no moment for a run that sleeps.
 */
void aoticache_run_gate_leave_exclusive(aoticache_run_gate *gate)
{
    bool runs_wait = atomic_load_explicit(&gate->waiting, memory_order_relaxed) > 0;
    atomic_store_explicit(&gate->inside, runs_wait ? RUNS_FIRST : 0, memory_order_release);
}
