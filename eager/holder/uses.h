/*
 * eager/holder/uses: how often each library was called. Every thread counts for itself, in memory that no other thread writes, so
 * that counting is exact and costs a call no instruction that waits for another processor; who asks adds up all threads.
 *
 * Private. A library has a number, by which the threads' counters are found. A thread that ends leaves its counters in its
 * slot (eager/holder/epoch.h), where the next thread goes on. Fork: what was counted until then is the parent's to take.
 */
#ifndef AOTICACHE_EAGER_HOLDER_USES_H
#define AOTICACHE_EAGER_HOLDER_USES_H

#include "eager/holder/epoch.h"

/* A number whose count is 0; 0: no memory. */
uint32_t aoticache_uses_open(void);
/* Gives it back: nobody may count any more. Nothing with 0. */
void aoticache_uses_close(uint32_t number);
/* Since it was opened; what was counted since the last call, or since the fork that made this process. Calls under way on
 * other threads may be missing, and are in the next answer. */
uint64_t aoticache_uses_read(uint32_t number);
uint64_t aoticache_uses_take(uint32_t number);

/* Where the thread's counters do not reach so far. */
void aoticache_uses_note_slowly(uint32_t number);

/* One use; of number 0, nobody's. In a section. */
static inline void aoticache_uses_note(uint32_t number)
{
    const aoticache_epoch_slot *mine = aoticache_epoch_mine;
    if (__builtin_expect(number >= mine->uses_count, 0)) {
        aoticache_uses_note_slowly(number);
        return;
    }
    uint64_t uses = atomic_load_explicit(&mine->uses[number], memory_order_relaxed);
    atomic_store_explicit(&mine->uses[number], uses + 1, memory_order_relaxed);
}

#endif
