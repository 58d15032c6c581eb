/*
 * eager/holder/call_counts: counts how often each library was called: the numbers of the libraries, the sum over the threads'
 * counters, and the part of each count that was taken.
 */
#include "eager/holder/holder_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 64

typedef struct number_state {
    uint64_t taken;
    uint64_t more; /* counts of threads that had no memory for their own counter */
    uint32_t next; /* next free number; 0: the last */
} number_state;

/* Held while a thread's counters move to a larger array, so that a reader sees one or the other. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static number_state *numbers; /* 0 means none */
static uint32_t number_count, number_capacity, first_free;

static uint64_t add_up(uint32_t number)
{
    uint64_t sum = numbers[number].more;
    for (const aoticache_epoch_slot *slot = aoticache_epoch_slots(); slot != NULL; slot = slot->next)
        if (number < slot->uses_count)
            sum += atomic_load_explicit(&slot->uses[number].count, memory_order_relaxed);
    return sum;
}

/* ---- fork ---- */

static pthread_once_t handlers_once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&lock);
}

/* Marks all counts as taken: the parent takes those made before the fork. */
static void after_fork_in_child(void)
{
    for (uint32_t number = 1; number < number_count; number++)
        numbers[number].taken = add_up(number);
    pthread_mutex_unlock(&lock);
}

static void make_handlers(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* ---- numbers ---- */

static bool make_room(void)
{
    if (number_count < number_capacity)
        return true;
    uint32_t capacity = number_capacity != 0 ? number_capacity * 2 : FIRST_CAPACITY;
    number_state *more = capacity > number_capacity ? reallocarray(numbers, capacity, sizeof *more) : NULL;
    if (more == NULL)
        return false;
    numbers = more;
    number_capacity = capacity;
    number_count = number_count != 0 ? number_count : 1;
    return true;
}

uint32_t aoticache_call_counts_open(void)
{
    uint32_t number = 0;
    pthread_once(&handlers_once, make_handlers);
    pthread_mutex_lock(&lock);
    if (first_free != 0) {
        number = first_free;
        first_free = numbers[number].next;
    } else if (make_room()) {
        number = number_count++;
    }
    if (number != 0)
        numbers[number] = (number_state){.taken = 0};
    pthread_mutex_unlock(&lock);
    return number;
}

void aoticache_call_counts_close(uint32_t number)
{
    if (number == 0)
        return;
    pthread_mutex_lock(&lock);
    for (aoticache_epoch_slot *slot = aoticache_epoch_slots(); slot != NULL; slot = slot->next)
        if (number < slot->uses_count)
            atomic_store_explicit(&slot->uses[number].count, 0, memory_order_relaxed);
    numbers[number].next = first_free;
    first_free = number;
    pthread_mutex_unlock(&lock);
}

/* ---- counts ---- */

uint64_t aoticache_call_counts_read(uint32_t number)
{
    pthread_mutex_lock(&lock);
    uint64_t uses = add_up(number);
    pthread_mutex_unlock(&lock);
    return uses;
}

uint64_t aoticache_call_counts_take(uint32_t number)
{
    pthread_mutex_lock(&lock);
    uint64_t uses = add_up(number), before = numbers[number].taken;
    if (uses > before) /* otherwise one was taken separately while this function took all */
        numbers[number].taken = uses;
    pthread_mutex_unlock(&lock);
    return uses > before ? uses - before : 0;
}

void aoticache_call_counts_take_one(uint32_t number)
{
    pthread_mutex_lock(&lock);
    numbers[number].taken++;
    pthread_mutex_unlock(&lock);
}

/* Creates counters for all existing numbers. */
static bool extend_counters(aoticache_epoch_slot *slot)
{
    aoticache_use *more = calloc(number_capacity, sizeof *more);
    if (more == NULL)
        return false;
    for (uint32_t i = 0; i < slot->uses_count; i++)
        atomic_init(&more[i].count, atomic_load_explicit(&slot->uses[i].count, memory_order_relaxed));
    free(slot->uses);
    slot->uses = more;
    slot->uses_count = number_capacity;
    return true;
}

void aoticache_call_counts_note_slow_path(uint32_t number)
{
    aoticache_epoch_slot *mine = aoticache_epoch_mine;
    if (number == 0)
        return;
    pthread_mutex_lock(&lock);
    if (extend_counters(mine))
        atomic_fetch_add_explicit(&mine->uses[number].count, 1, memory_order_relaxed);
    else
        numbers[number].more++;
    pthread_mutex_unlock(&lock);
}
