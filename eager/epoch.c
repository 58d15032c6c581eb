/*
 * eager/epoch: the per-thread slots, and the list of retired memory. Slots are never freed; a thread that ends leaves its slot to
 * a later thread.
 */
#include "eager/epoch.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

__thread aoticache_epoch_slot *aoticache_epoch_mine __attribute__((tls_model("initial-exec")));
atomic_uint_least64_t aoticache_epoch_now = 1;

static _Atomic(aoticache_epoch_slot *) slots;
static pthread_mutex_t retired_lock = PTHREAD_MUTEX_INITIALIZER;
static aoticache_retired *retired_list;
static atomic_size_t retired_count;

/* ---- slots ---- */

static pthread_key_t exit_key;
static pthread_once_t handlers_once = PTHREAD_ONCE_INIT;
static bool exit_key_made;

/* Frees the slot of a thread that has ended, for another thread. */
static void release_slot(void *slot)
{
    aoticache_epoch_slot *mine = slot;
    aoticache_epoch_mine = NULL;
    mine->depth = 0;
    atomic_store(&mine->epoch, 0);
    atomic_store(&mine->taken, false);
}

/* Takes the lock, because the list of retired memory must be consistent in the child. */
static void before_fork(void)
{
    pthread_mutex_lock(&retired_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&retired_lock);
}

/* Frees all other slots: only the thread that forked exists in the child. */
static void after_fork_in_child(void)
{
    for (aoticache_epoch_slot *slot = atomic_load(&slots); slot != NULL; slot = slot->next) {
        if (slot == aoticache_epoch_mine)
            continue;
        slot->depth = 0;
        atomic_store(&slot->epoch, 0);
        atomic_store(&slot->taken, false);
    }
    pthread_mutex_unlock(&retired_lock);
}

/* Installs the fork handlers. Without memory for them, a child frees less than it could. */
static void make_handlers(void)
{
    exit_key_made = pthread_key_create(&exit_key, release_slot) == 0;
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

aoticache_epoch_slot *aoticache_epoch_slots(void)
{
    return atomic_load(&slots);
}

static aoticache_epoch_slot *claim_free_slot(void)
{
    for (aoticache_epoch_slot *slot = atomic_load(&slots); slot != NULL; slot = slot->next) {
        bool free_now = false;
        if (atomic_compare_exchange_strong(&slot->taken, &free_now, true))
            return slot;
    }
    return NULL;
}

static aoticache_epoch_slot *add_slot(void)
{
    aoticache_epoch_slot *slot = aligned_alloc(_Alignof(aoticache_epoch_slot), sizeof *slot);
    if (slot == NULL)
        return NULL;
    atomic_init(&slot->epoch, 0);
    atomic_init(&slot->taken, true);
    slot->depth = 0;
    slot->uses = NULL;
    slot->numbers = NULL;
    slot->uses_count = slot->last_used = 0;
    slot->next = atomic_load(&slots);
    while (!atomic_compare_exchange_weak(&slots, &slot->next, slot))
        continue;
    return slot;
}

/* Runs if the library is unloaded before the threads end. */
__attribute__((destructor)) static void forget_exit_key(void)
{
    if (exit_key_made)
        pthread_key_delete(exit_key);
}

aoticache_epoch_slot *aoticache_epoch_register(void)
{
    pthread_once(&handlers_once, make_handlers);
    aoticache_epoch_slot *slot = claim_free_slot();
    if (slot == NULL)
        slot = add_slot();
    if (slot == NULL)
        return NULL;
    /* Without the key the slot is never freed: a leak of one slot, nothing worse. */
    if (exit_key_made)
        pthread_setspecific(exit_key, slot);
    aoticache_epoch_mine = slot;
    return slot;
}

/* ---- retiring ---- */

/* Returns the oldest epoch of all readers; UINT64_MAX without readers. */
static uint64_t oldest_reader(void)
{
    uint64_t oldest = UINT64_MAX;
    for (aoticache_epoch_slot *slot = atomic_load(&slots); slot != NULL; slot = slot->next) {
        uint64_t epoch = atomic_load(&slot->epoch);
        if (epoch != 0 && epoch < oldest)
            oldest = epoch;
    }
    return oldest;
}

/* Detaches from the list the memory that no thread can be reading. */
static aoticache_retired *detach_reclaimable(void)
{
    aoticache_retired *taken = NULL;
    pthread_mutex_lock(&retired_lock);
    uint64_t oldest = oldest_reader();
    for (aoticache_retired **at = &retired_list; *at != NULL;) {
        aoticache_retired *one = *at;
        if (one->epoch < oldest) {
            *at = one->next;
            one->next = taken;
            taken = one;
            atomic_fetch_sub_explicit(&retired_count, 1, memory_order_relaxed);
        } else {
            at = &one->next;
        }
    }
    pthread_mutex_unlock(&retired_lock);
    return taken;
}

static void release_all(aoticache_retired *list)
{
    while (list != NULL) {
        aoticache_retired *next = list->next;
        list->release(list);
        list = next;
    }
}

void aoticache_epoch_reclaim(void)
{
    if (atomic_load_explicit(&retired_count, memory_order_relaxed) > 0)
        release_all(detach_reclaimable());
}

/*
 * Retires memory. A reader that entered before the epoch advanced may have seen the retired memory, and has an epoch <= ours; one
 * that entered later has a greater one, and cannot have seen it.
 */
void aoticache_epoch_retire(aoticache_retired *retired, void (*release)(aoticache_retired *retired))
{
    retired->release = release;
    pthread_mutex_lock(&retired_lock);
    retired->epoch = atomic_fetch_add(&aoticache_epoch_now, 1);
    retired->next = retired_list;
    retired_list = retired;
    atomic_fetch_add_explicit(&retired_count, 1, memory_order_relaxed);
    pthread_mutex_unlock(&retired_lock);
}

static bool has_retired(uint64_t until)
{
    bool found = false;
    pthread_mutex_lock(&retired_lock);
    for (const aoticache_retired *one = retired_list; one != NULL && !found; one = one->next)
        found = one->epoch <= until;
    pthread_mutex_unlock(&retired_lock);
    return found;
}

void aoticache_epoch_synchronize(void)
{
    uint64_t until = atomic_fetch_add(&aoticache_epoch_now, 1);
    for (long wait_ns = 1000;; wait_ns = wait_ns < 1000000 ? 2 * wait_ns : wait_ns) {
        aoticache_epoch_reclaim();
        if (!has_retired(until) && oldest_reader() > until)
            return;
        nanosleep(&(struct timespec){.tv_nsec = wait_ns}, NULL);
    }
}
