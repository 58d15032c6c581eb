/*
 * eager/epoch: epochs, so that memory that a call may still be reading is freed only after the call has left.
 *
 * Private. Epoch-based reclamation: a thread enters an epoch and says so in a slot of its own; what is retired is freed
 * when every thread that was inside at that moment has been outside. Entering costs one atomic exchange on memory that no
 * other thread writes, leaving one store. Entering nests. A thread may stay inside as long as a kernel runs; it must not
 * wait there for anything that itself waits for threads to leave.
 *
 * Fork: slots of the parent's other threads mean nothing in the child; a handler (pthread_atfork) clears them there, in
 * the thread that forked, which alone can tell which slot is its own.
 */
#ifndef AOTICACHE_EAGER_EPOCH_H
#define AOTICACHE_EAGER_EPOCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One thread's uses of one library. Others read the count alone. */
typedef struct aoticache_use {
    atomic_uint_least64_t count;
    /* What the thread's next call read, the last time: addresses to fetch early, and never to follow. */
    const void *next_slot, *next_known, *next_runner, *next_code;
} aoticache_use;

/* One thread's. Its own cache lines: other threads read `epoch` when something is retired, and uses when they add up. */
typedef struct aoticache_epoch_slot {
    _Alignas(128) atomic_uint_least64_t epoch; /* 0: outside */
    uint32_t depth;
    atomic_bool taken;
    aoticache_use *uses; /* uses_count of them; eager/holder/call_counts.c's, as long as there is a slot */
    uint32_t uses_count;
    uint32_t last_used;                    /* below uses_count, or 0 */
    struct aoticache_own_numbers *numbers; /* eager/holder/numbers.c's, likewise; NULL: none yet */
    struct aoticache_epoch_slot *next;
} aoticache_epoch_slot;

extern __thread aoticache_epoch_slot *aoticache_epoch_mine __attribute__((tls_model("initial-exec")));
extern atomic_uint_least64_t aoticache_epoch_now; /* of now; begins at 1 */

/* All slots, of threads that live and of others: a list that only grows, at its head. */
aoticache_epoch_slot *aoticache_epoch_slots(void);

/* The slot of a thread that has none yet; NULL without memory. */
aoticache_epoch_slot *aoticache_epoch_register(void);

/* NULL without memory (a thread's first call only): then nothing was entered. */
static inline aoticache_epoch_slot *aoticache_epoch_enter(void)
{
    aoticache_epoch_slot *slot = aoticache_epoch_mine;
    if (__builtin_expect(slot == NULL, 0) && (slot = aoticache_epoch_register()) == NULL)
        return NULL;
    /* The exchange orders this against everything that is read inside; retire() has the other half. */
    if (slot->depth++ == 0)
        atomic_exchange(&slot->epoch, atomic_load_explicit(&aoticache_epoch_now, memory_order_acquire));
    return slot;
}

static inline void aoticache_epoch_leave(aoticache_epoch_slot *slot)
{
    if (--slot->depth == 0)
        atomic_store_explicit(&slot->epoch, 0, memory_order_release);
}

/*
 * What is retired is given to release() once nobody can be reading it, by whichever thread calls reclaim() then: outside
 * of all locks, since releasing may unload a library. It must be unreachable for new readers, by a seq_cst store, before
 * it is retired. Any number of threads may retire, with locks held or inside an epoch.
 */
typedef struct aoticache_retired {
    struct aoticache_retired *next;
    uint64_t epoch;
    void (*release)(struct aoticache_retired *retired);
} aoticache_retired;

/* `retired` lies in the memory that goes. */
void aoticache_epoch_retire(aoticache_retired *retired, void (*release)(aoticache_retired *retired));
/* Releases what can be released. Costs one load where nothing is retired. Without locks of the holders. */
void aoticache_epoch_reclaim(void);
/* Waits until all that was retired before is released, and every thread that was inside has left. Not inside an epoch. */
void aoticache_epoch_synchronize(void);

#endif
