/*
 * eager/torch/call_mode: decides when calls of the bridge do not go straight to the core. There are two cases: a kernel is on
 * trial, and its calls must be timed from their entry to their end; or PyTorch's kernel is faster for call after call, so that
 * even asking us costs more than it gains. Each mode lasts for a number of calls, so nothing needs to end it. Hits do not use
 * this file.
 */
#include "eager/torch/torch_internal.h"

/* Number of consecutive calls (of all threads) for which PyTorch's kernel must be faster before calls bypass the core. */
#define LEFT_IN_A_ROW 16
#define MOST_PASSED 4096
#define FIRST_TIMED 128 /* one trial of consecutive calls */
#define MOST_TIMED (UINT64_C(1) << 20)

static void set_call_mode(aoticache_binding_operator *op, aoticache_call_mode how, uint64_t calls)
{
    if (op->torch_registration != NULL)
        op->binding->bridge.set_call_mode(op->torch_registration, how, calls);
}

/*
 * Counts a call that was left to PyTorch's kernel. After every LEFT_IN_A_ROW such calls, checks whether other calls came
 * between them. If not, the next LEFT_IN_A_ROW calls bypass the core, then twice as many, ... up to MOST_PASSED. Calls of
 * other shapes among them lose their gain; none is slower than PyTorch's.
 */
void aoticache_binding_note_left(aoticache_binding_operator *op)
{
    uint32_t left = atomic_fetch_add_explicit(&op->fallback_wins, 1, memory_order_relaxed) + 1;
    if (left % LEFT_IN_A_ROW != 0)
        return;
    uint64_t others = aoticache_call_counts_read(op->ready) + atomic_load_explicit(&op->slow, memory_order_relaxed) +
                      atomic_load_explicit(&op->refused, memory_order_relaxed);
    uint64_t before = atomic_exchange_explicit(&op->other_calls, others, memory_order_relaxed);
    if (before != others) {
        atomic_store_explicit(&op->bypass_length, LEFT_IN_A_ROW, memory_order_relaxed);
        return;
    }
    uint32_t passing = atomic_load_explicit(&op->bypass_length, memory_order_relaxed);
    passing = passing < LEFT_IN_A_ROW ? LEFT_IN_A_ROW : passing;
    atomic_store_explicit(&op->bypass_length, passing < MOST_PASSED ? 2 * passing : passing, memory_order_relaxed);
    set_call_mode(op, AOTICACHE_BRIDGE_PASS, passing);
}

/*
 * Makes the bridge time calls, because an untimed call found a trial. If a kernel is called only rarely, its call often
 * falls outside the timed calls. So each time this happens, more calls are timed.
 */
void aoticache_binding_want_timing(aoticache_binding_operator *op)
{
    uint64_t timed = atomic_load_explicit(&op->timing, memory_order_relaxed);
    timed = timed < FIRST_TIMED ? FIRST_TIMED : timed;
    atomic_store_explicit(&op->timing, timed < MOST_TIMED ? 2 * timed : timed, memory_order_relaxed);
    set_call_mode(op, AOTICACHE_BRIDGE_TIME, timed);
}

void aoticache_binding_end_timing(aoticache_binding_operator *op)
{
    atomic_store_explicit(&op->timing, 0, memory_order_relaxed);
    set_call_mode(op, AOTICACHE_BRIDGE_SERVE, 0);
}

uint32_t aoticache_binding_num_threads(void *user)
{
    const aoticache_binding *binding = user;
    return binding->bridge.num_threads();
}
