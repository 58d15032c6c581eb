/*
 * eager/hook/worker_pool: the worker processes of one hook in one host process, and who uses which.
 *
 * Private. What is said to a worker is in worker.c.
 */
#ifndef AOTICACHE_EAGER_HOOK_WORKER_POOL_H
#define AOTICACHE_EAGER_HOOK_WORKER_POOL_H

#include "eager/hook/process.h"

#include <stdatomic.h>

#define AOTICACHE_WORKER_POOL_MAX 1024

/* A place for one worker process; it belongs to whoever has taken it. */
typedef struct aoticache_worker {
    aoticache_process process; /* pid 0: none runs */
    uint64_t last_id;
    bool taken;
} aoticache_worker;

typedef struct aoticache_worker_pool aoticache_worker_pool;

/* The pools of a hook: that of this process, and those that it has inherited by fork(). Starts as {0}. */
typedef struct aoticache_worker_pools {
    _Atomic(aoticache_worker_pool *) current;
    size_t worker_count; /* of each pool: 1 to AOTICACHE_WORKER_POOL_MAX */
} aoticache_worker_pools;

/*
 * A worker for this thread alone until it is given back: one whose process runs, if one is free; else a place in which
 * none runs; else waits for one, without a limit: each compile has one, so the wait ends. Returns NULL when memory is
 * out. ret_pool: where it is to be given back.
 */
aoticache_worker *aoticache_worker_take(aoticache_worker_pools *pools, aoticache_worker_pool **ret_pool);
void aoticache_worker_give_back(aoticache_worker_pool *pool, aoticache_worker *worker);

/* Ends the workers of this process; of those of a process that it was forked from only our copies go. */
void aoticache_worker_pools_free(aoticache_worker_pools *pools);

#endif
