/*
 * runtime/pool: the models of a container and the lock around its constants, in one.
 *
 * Private. A model is the right to run: num_models of them exist, a run takes one, and whoever needs the constants to
 * stand still (folding, swapping, changing the active buffer) takes all, which is the exclusive lock. Shared lock and
 * pool being one thing, a run costs two atomic operations on one cache line, where a read-write lock and a mutex around
 * a list cost six on two:
 *
 *   - Models are bits of 64-bit words (1: free). Taking one is a compare-and-swap that clears a bit, giving it back an
 *     atomic or that sets it. Bit 63 says that someone wants or has all: no bit is cleared then. Bit 62 says that
 *     someone sleeps until a bit is set.
 *   - There are up to 16 words, each on a cache line of its own, with the models dealt out among them. A thread begins
 *     at a word chosen by where its stack lies, so that threads that run at once seldom meet.
 *   - Only who finds no model, or bit 63, takes the mutex and sleeps on the condition. Who gives a model back looks at
 *     bits 62 and 63 of the very operation that set its bit, and, where one is there, wakes the sleepers under the
 *     mutex; so none sleeps through it.
 *   - Nobody starves: bit 63 keeps new runs out until the writer has had its turn, and the runs that it kept out get
 *     theirs before the next writer's bit is set.
 *
 * Where runs go on after their function has returned (CUDA), a model that is given back is pending until its event has
 * come: it is reclaimed by who finds no other one, and by the writer, for whom constants stand still only when the
 * device has ended with them.
 */
#ifndef AOTICACHE_RUNTIME_POOL_H
#define AOTICACHE_RUNTIME_POOL_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/device.h"

/* What is asked for above this is not needed: a run occupies a thread. */
#define AOTICACHE_POOL_MAX_MODELS 960

typedef struct aoticache_pool_shard {
    _Alignas(64) _Atomic uint64_t word;
    uint64_t all; /* the bits of the models that it has */
} aoticache_pool_shard;

typedef struct aoticache_pool {
    aoticache_pool_shard *shards;
    size_t num_shards;
    size_t num_models;
    const aoticache_device_functions *device;
    pthread_mutex_t lock; /* for all that follows, and for sleeping */
    pthread_cond_t changed;
    size_t waiting;  /* sleep, or are about to, until a model is free */
    size_t kept_out; /* of these, by bit 63 */
    size_t owed;     /* kept out by the last writer, and not yet let in */
    void **events;   /* one per model, made when first needed; NULL on a device without */
    size_t *pending; /* a ring of num_models */
    size_t first_pending;
    size_t num_pending;
} aoticache_pool;

AOTIRuntimeError aoticache_pool_create(size_t num_models, const aoticache_device_functions *device,
                                       aoticache_pool **ret_pool);
/* Nobody may be using it. Waits for pending models. NULL is allowed. */
void aoticache_pool_free(aoticache_pool *pool);

/*
 * Takes a model, waiting for one. Fails only where the device reports that an earlier run failed; the model of that
 * run is free again then.
 */
AOTIRuntimeError aoticache_pool_take(aoticache_pool *pool, size_t *ret_model);
/* Gives it back free: nothing of it is still running. */
void aoticache_pool_give_back(aoticache_pool *pool, size_t model);
/* Gives it back when what was put on the stream has ended: at once on the CPU. */
AOTIRuntimeError aoticache_pool_give_back_after(aoticache_pool *pool, size_t model, AOTInductorStreamHandle stream);
/* Waits until what was put on the stream has ended. */
AOTIRuntimeError aoticache_pool_finish(aoticache_pool *pool, size_t model, AOTInductorStreamHandle stream);

/* All models at once. One thread at a time may ask for it: callers hold the container's mutex. */
void aoticache_pool_lock_all(aoticache_pool *pool);
void aoticache_pool_unlock_all(aoticache_pool *pool);

#endif
