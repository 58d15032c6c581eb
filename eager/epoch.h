/*
 * eager/epoch: epoch-based reclamation, so that memory that a call may still be reading is freed only after the call has left.
 *
 * Private. A thread that enters an epoch records it in its own slot. Retired memory is freed after every thread that was
 * inside at the time of retiring has been outside. Entering costs one atomic exchange on memory that no other thread writes;
 * leaving costs one store. Entering nests. A thread may stay inside while a kernel runs. Inside, it must not wait for
 * anything that itself waits for threads to leave.
 *
 * Fork: the slots of the parent's other threads mean nothing in the child. A handler (pthread_atfork) clears them in the
 * child, in the thread that forked, because only that thread knows which slot is its own.
 */
#ifndef AOTICACHE_EAGER_EPOCH_H
#define AOTICACHE_EAGER_EPOCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One thread's uses of one library. Other threads read only the count. */
typedef struct aoticache_use {
    atomic_uint_least64_t count;
    /* Addresses that the thread's next call read last time: to prefetch, never to dereference. */
    const void *next_slot, *next_known, *next_runner, *next_code;
} aoticache_use;

/* One thread's slot, in its own cache lines. Other threads read `epoch` when they retire memory, and `uses` to add them up. */
typedef struct aoticache_epoch_slot {
    _Alignas(128) atomic_uint_least64_t epoch; /* 0: outside */
    uint32_t depth;
    atomic_bool taken;
    aoticache_use *uses; /* uses_count of them; owned by eager/holder/call_counts.c, kept as long as the slot */
    uint32_t uses_count;
    uint32_t last_used;                    /* below uses_count, or 0 */
    struct aoticache_own_numbers *numbers; /* owned by eager/holder/numbers.c, kept likewise; NULL: none yet */
    struct aoticache_epoch_slot *next;
} aoticache_epoch_slot;

extern __thread aoticache_epoch_slot *aoticache_epoch_mine __attribute__((tls_model("initial-exec")));
extern atomic_uint_least64_t aoticache_epoch_now; /* the current epoch; begins at 1 */

/* Returns all slots, of running and of ended threads: a list that only grows, at its head. */
aoticache_epoch_slot *aoticache_epoch_slots(void);

/* Takes a slot for a thread that has none yet; NULL without memory. */
aoticache_epoch_slot *aoticache_epoch_register(void);

/* Enters the epoch. NULL without memory (only on a thread's first call): then the thread is not inside. */
static inline aoticache_epoch_slot *aoticache_epoch_enter(void)
{
    aoticache_epoch_slot *slot = aoticache_epoch_mine;
    if (__builtin_expect(slot == NULL, 0) && (slot = aoticache_epoch_register()) == NULL)
        return NULL;
    /* The exchange orders this before everything that is read inside; retire() has the other half. */
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
 * Retired memory, which is passed to release() when no thread can be reading it any more. The thread that calls reclaim()
 * then releases it, without any lock, because releasing may unload a library. Before memory is retired, a seq_cst store must
 * have made it unreachable for new readers. Any number of threads may retire, also with locks held or inside an epoch.
 */
typedef struct aoticache_retired {
    struct aoticache_retired *next;
    uint64_t epoch;
    void (*release)(struct aoticache_retired *retired);
} aoticache_retired;

/* Retires memory. `retired` is a member of the memory to be released. */
void aoticache_epoch_retire(aoticache_retired *retired, void (*release)(aoticache_retired *retired));
/* Releases what can be released. Costs one load if nothing is retired. Call it without locks of the holders. */
void aoticache_epoch_reclaim(void);
/*
 * Waits until all memory retired until now is released and every thread that was inside has left. Do not call it inside an
 * epoch.
 */
void aoticache_epoch_synchronize(void);

#endif
