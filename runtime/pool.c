/*
 * runtime/pool: takes and gives back models, one or all of them.
 *
 * The pool is also the shared lock. A run therefore costs two atomic operations on one cache line; a read-write lock
 * and a mutex around a list would cost six on two.
 *
 *   - A model is a bit of a 64-bit word (1: free). A compare-and-swap that clears a bit takes a model; an atomic OR that
 *     sets the bit gives it back. Bit 63 says that a writer wants, or has, all models: no bit is cleared then. Bit 62
 *     says that a thread sleeps until a bit is set.
 *   - There are up to 16 words, each on a cache line of its own, and the models are distributed among them. A thread
 *     begins at a word that depends on the address of its stack, so that concurrent threads seldom use the same word.
 *   - A thread takes the mutex and sleeps on the condition only if it finds no model, or bit 63. A thread that gives a
 *     model back sees bits 62 and 63 in the same operation that sets its own bit. If one of them is set, it wakes the
 *     sleepers under the mutex, so that no wake-up is lost.
 *   - No thread starves. Bit 63 keeps new runs out until the writer has finished; the runs that it kept out proceed
 *     before the next writer sets its bit.
 */
#include "runtime/runtime_internal.h"

#include <stdlib.h>

#define TAKEN_BY_WRITER (UINT64_C(1) << 63)
#define HAS_SLEEPERS (UINT64_C(1) << 62)
#define MODELS (HAS_SLEEPERS - 1)

enum { MAX_SHARDS = 16, BITS_PER_SHARD = 60 };
_Static_assert(MAX_SHARDS *BITS_PER_SHARD == AOTICACHE_POOL_MAX_MODELS, "every model has a bit");

/* Model m is bit m / num_shards of word m % num_shards. */
static size_t model_number(const aoticache_pool *pool, size_t shard, unsigned bit)
{
    return bit * pool->num_shards + shard;
}

static AOTIRuntimeError allocate_events(aoticache_pool *pool)
{
    if (pool->device->event_create == NULL)
        return AOTICACHE_KERNEL_OK;
    pool->events = calloc(pool->num_models, sizeof *pool->events);
    pool->pending = calloc(pool->num_models, sizeof *pool->pending);
    if (pool->events == NULL || pool->pending == NULL)
        return aoticache_message_set("out of memory for the events of %zu models", pool->num_models);
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError aoticache_pool_create(size_t num_models, const aoticache_device_functions *device,
                                       aoticache_pool **ret_pool)
{
    aoticache_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return aoticache_message_set("out of memory for a pool of models");
    pool->device = device;
    pool->num_models = num_models < AOTICACHE_POOL_MAX_MODELS ? num_models : AOTICACHE_POOL_MAX_MODELS;
    pool->num_shards = pool->num_models < MAX_SHARDS ? pool->num_models : MAX_SHARDS;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->changed, NULL);
    pool->shards = aligned_alloc(_Alignof(aoticache_pool_shard), pool->num_shards * sizeof *pool->shards);
    if (pool->shards == NULL || allocate_events(pool) != AOTICACHE_KERNEL_OK) {
        aoticache_pool_free(pool);
        return aoticache_message_set("out of memory for a pool of %zu models", num_models);
    }
    for (size_t i = 0; i < pool->num_shards; i++) {
        size_t count = (pool->num_models - i + pool->num_shards - 1) / pool->num_shards;
        pool->shards[i].all = (UINT64_C(1) << count) - 1;
        atomic_init(&pool->shards[i].word, pool->shards[i].all);
    }
    *ret_pool = pool;
    return AOTICACHE_KERNEL_OK;
}

void aoticache_pool_free(aoticache_pool *pool)
{
    if (pool == NULL)
        return;
    for (; pool->num_pending > 0; pool->num_pending--, pool->first_pending++)
        (void)pool->device->event_wait(pool->events[pool->pending[pool->first_pending % pool->num_models]]);
    for (size_t i = 0; pool->events != NULL && i < pool->num_models; i++)
        if (pool->events[i] != NULL)
            pool->device->event_free(pool->events[i]);
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->lock);
    free(pool->events);
    free(pool->pending);
    free(pool->shards);
    free(pool);
}

/* ---- taking one ---- */

static bool claim_in_shard(aoticache_pool_shard *shard, unsigned *ret_bit)
{
    uint64_t seen = atomic_load_explicit(&shard->word, memory_order_relaxed);
    while ((seen & TAKEN_BY_WRITER) == 0 && (seen & MODELS) != 0) {
        /* The lowest bit that is set is a free model. */
        if (atomic_compare_exchange_weak_explicit(&shard->word, &seen, seen & (seen - 1), memory_order_acquire,
                                                  memory_order_relaxed)) {
            *ret_bit = (unsigned)__builtin_ctzll(seen);
            return true;
        }
    }
    return false;
}

static bool claim_model(aoticache_pool *pool, size_t *ret_model)
{
    /* Stacks are more than 64 KiB apart; the multiplication spreads that over all bits. */
    uint64_t place = ((uint64_t)(uintptr_t)__builtin_frame_address(0) >> 16) * UINT64_C(0x9e3779b97f4a7c15);
    size_t shard = (size_t)(((place >> 32) * pool->num_shards) >> 32);
    unsigned bit;
    for (size_t tried = 0; tried < pool->num_shards; tried++) {
        if (claim_in_shard(&pool->shards[shard], &bit)) {
            *ret_model = model_number(pool, shard, bit);
            return true;
        }
        if (++shard == pool->num_shards)
            shard = 0;
    }
    return false;
}

/* Sets one of the two high bits in every word. */
static void set_everywhere(aoticache_pool *pool, uint64_t bit)
{
    for (size_t i = 0; i < pool->num_shards; i++)
        atomic_fetch_or_explicit(&pool->shards[i].word, bit, memory_order_acq_rel);
}

static void clear_everywhere(aoticache_pool *pool, uint64_t bit)
{
    for (size_t i = 0; i < pool->num_shards; i++)
        atomic_fetch_and_explicit(&pool->shards[i].word, ~bit, memory_order_acq_rel);
}

static void wake_all(aoticache_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
}

static uint64_t mark_free(aoticache_pool *pool, size_t model)
{
    return atomic_fetch_or_explicit(&pool->shards[model % pool->num_shards].word,
                                    UINT64_C(1) << (model / pool->num_shards), memory_order_release);
}

/*
 * Waits for the model that has been pending longest. The caller holds the lock, which is released while the device
 * works.
 */
static AOTIRuntimeError reclaim_first(aoticache_pool *pool)
{
    size_t model = pool->pending[pool->first_pending];
    pool->first_pending = (pool->first_pending + 1) % pool->num_models;
    pool->num_pending--;
    pthread_mutex_unlock(&pool->lock);
    AOTIRuntimeError status = pool->device->event_wait(pool->events[model]);
    pthread_mutex_lock(&pool->lock);
    mark_free(pool, model);
    pthread_cond_broadcast(&pool->changed);
    return status;
}

/*
 * Frees the pending models whose runs have ended; true if there are any. The caller holds the lock. A failure is
 * reported to the thread that waits for the model.
 */
static bool reclaim_finished(aoticache_pool *pool)
{
    size_t kept = 0, count = pool->num_pending;
    for (size_t i = 0; i < count; i++) {
        size_t model = pool->pending[(pool->first_pending + i) % pool->num_models];
        bool done = false;
        if (pool->device->event_query(pool->events[model], &done) == AOTICACHE_KERNEL_OK && done)
            mark_free(pool, model);
        else
            pool->pending[(pool->first_pending + kept++) % pool->num_models] = model;
    }
    pool->num_pending = kept;
    if (kept == count)
        return false;
    pthread_cond_broadcast(&pool->changed);
    return true;
}

static bool writer_has_all(const aoticache_pool *pool)
{
    return (atomic_load_explicit(&pool->shards[0].word, memory_order_relaxed) & TAKEN_BY_WRITER) != 0;
}

/*
 * Waits until the writer has finished. The caller holds the lock. The next writer waits for the threads that leave
 * here.
 */
static void wait_for_writer(aoticache_pool *pool)
{
    pool->kept_out++;
    while (writer_has_all(pool))
        pthread_cond_wait(&pool->changed, &pool->lock);
    pool->kept_out--;
    if (pool->owed > 0 && --pool->owed == 0)
        pthread_cond_broadcast(&pool->changed);
}

static __attribute__((noinline)) AOTIRuntimeError take_slowly(aoticache_pool *pool, size_t *ret_model)
{
    AOTIRuntimeError status = AOTICACHE_KERNEL_OK;
    pthread_mutex_lock(&pool->lock);
    pool->waiting++;
    set_everywhere(pool, HAS_SLEEPERS);
    while (status == AOTICACHE_KERNEL_OK) {
        if (writer_has_all(pool))
            wait_for_writer(pool);
        /* From here to the wait, the lock is held: so neither a writer nor the waking of sleepers can intervene. */
        if (claim_model(pool, ret_model))
            break;
        if (pool->num_pending == 0)
            pthread_cond_wait(&pool->changed, &pool->lock);
        else if (!reclaim_finished(pool))
            status = reclaim_first(pool);
    }
    if (--pool->waiting == 0)
        clear_everywhere(pool, HAS_SLEEPERS);
    pthread_mutex_unlock(&pool->lock);
    return status;
}

AOTIRuntimeError aoticache_pool_take(aoticache_pool *pool, size_t *ret_model)
{
    if (claim_model(pool, ret_model))
        return AOTICACHE_KERNEL_OK;
    return take_slowly(pool, ret_model);
}

/* ---- giving back ---- */

void aoticache_pool_give_back(aoticache_pool *pool, size_t model)
{
    if ((mark_free(pool, model) & (TAKEN_BY_WRITER | HAS_SLEEPERS)) != 0)
        wake_all(pool);
}

static AOTIRuntimeError record_event(aoticache_pool *pool, size_t model, AOTInductorStreamHandle stream)
{
    if (pool->events[model] == NULL && pool->device->event_create(&pool->events[model]) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    return pool->device->event_record(pool->events[model], stream);
}

AOTIRuntimeError aoticache_pool_give_back_after(aoticache_pool *pool, size_t model, AOTInductorStreamHandle stream)
{
    AOTIRuntimeError status = AOTICACHE_KERNEL_OK;
    if (pool->events != NULL)
        status = record_event(pool, model, stream);
    if (pool->events == NULL || status != AOTICACHE_KERNEL_OK) {
        aoticache_pool_give_back(pool, model);
        return status;
    }
    pthread_mutex_lock(&pool->lock);
    pool->pending[(pool->first_pending + pool->num_pending++) % pool->num_models] = model;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError aoticache_pool_finish(aoticache_pool *pool, size_t model, AOTInductorStreamHandle stream)
{
    if (pool->events == NULL)
        return AOTICACHE_KERNEL_OK;
    AOTIRuntimeError status = record_event(pool, model, stream);
    return status != AOTICACHE_KERNEL_OK ? status : pool->device->event_wait(pool->events[model]);
}

/* ---- taking all of them ---- */

static bool are_all_free(aoticache_pool *pool)
{
    for (size_t i = 0; i < pool->num_shards; i++) {
        uint64_t word = atomic_load_explicit(&pool->shards[i].word, memory_order_acquire);
        if ((word & MODELS) != pool->shards[i].all)
            return false;
    }
    return true;
}

void aoticache_pool_lock_all(aoticache_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    while (pool->owed > 0)
        pthread_cond_wait(&pool->changed, &pool->lock);
    set_everywhere(pool, TAKEN_BY_WRITER);
    while (!are_all_free(pool)) {
        /*
         * A run that failed on the device has reported that to its host; the constants that it read are free
         * nevertheless.
         */
        if (pool->num_pending > 0)
            (void)reclaim_first(pool);
        else
            pthread_cond_wait(&pool->changed, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
}

void aoticache_pool_unlock_all(aoticache_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->owed = pool->kept_out;
    clear_everywhere(pool, TAKEN_BY_WRITER);
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
}
