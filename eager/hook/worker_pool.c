/*
 * eager/hook/worker_pool: which thread has which worker process, and which process has which pool.
 *
 * A child made by fork() must not speak to its parent's workers, and the parent's lock may be held by a thread that is
 * not there: the child gets a pool of its own, and lets go of the parent's channels, so that they close when the parent
 * ends. The parent's struct stays until the hook goes, since other threads may be looking at it.
 */
#include "eager/hook/worker_pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

struct aoticache_worker_pool {
    pthread_mutex_t lock; /* of `taken`; never held during a compile */
    pthread_cond_t given_back;
    pid_t owner; /* whose children the workers are */
    aoticache_worker_pool *inherited;
    size_t count;
    aoticache_worker workers[];
};

/* ---- whose pool ---- */

static aoticache_worker_pool *pool_create(size_t count)
{
    aoticache_worker_pool *pool = calloc(1, sizeof *pool + count * sizeof pool->workers[0]);
    if (pool == NULL)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->given_back, NULL);
    pool->owner = getpid();
    pool->count = count;
    for (size_t i = 0; i < count; i++)
        pool->workers[i].process = (aoticache_process)AOTICACHE_PROCESS_INIT;
    return pool;
}

static void pool_forget(aoticache_worker_pool *pool)
{
    for (size_t i = 0; i < pool->count; i++)
        aoticache_process_forget(&pool->workers[i].process);
}

static void pool_free(aoticache_worker_pool *pool)
{
    while (pool != NULL) {
        aoticache_worker_pool *inherited = pool->inherited;
        if (pool->owner != getpid()) {
            pool_forget(pool);
        } else {
            pthread_cond_destroy(&pool->given_back);
            pthread_mutex_destroy(&pool->lock);
        }
        for (size_t i = 0; i < pool->count; i++)
            aoticache_process_free(&pool->workers[i].process);
        free(pool);
        pool = inherited;
    }
}

void aoticache_worker_pools_free(aoticache_worker_pools *pools)
{
    pool_free(atomic_load(&pools->current));
    atomic_store(&pools->current, NULL);
}

static aoticache_worker_pool *pool_of_this_process(aoticache_worker_pools *pools)
{
    aoticache_worker_pool *current = atomic_load(&pools->current);
    while (current == NULL || current->owner != getpid()) {
        aoticache_worker_pool *fresh = pool_create(pools->worker_count);
        if (fresh == NULL)
            return NULL;
        fresh->inherited = current;
        if (!atomic_compare_exchange_strong(&pools->current, &current, fresh)) {
            fresh->inherited = NULL;
            pool_free(fresh);
            continue;
        }
        if (current != NULL)
            pool_forget(current);
        return fresh;
    }
    return current;
}

/* ---- whose worker ---- */

static aoticache_worker *find_free(aoticache_worker_pool *pool)
{
    aoticache_worker *idle = NULL;
    for (size_t i = 0; i < pool->count; i++) {
        aoticache_worker *worker = &pool->workers[i];
        if (worker->taken)
            continue;
        if (worker->process.pid != 0)
            return worker;
        if (idle == NULL)
            idle = worker;
    }
    return idle;
}

aoticache_worker *aoticache_worker_take(aoticache_worker_pools *pools, aoticache_worker_pool **ret_pool)
{
    aoticache_worker_pool *pool = pool_of_this_process(pools);
    if (pool == NULL)
        return NULL;
    pthread_mutex_lock(&pool->lock);
    aoticache_worker *worker = find_free(pool);
    while (worker == NULL) {
        pthread_cond_wait(&pool->given_back, &pool->lock);
        worker = find_free(pool);
    }
    worker->taken = true;
    pthread_mutex_unlock(&pool->lock);
    *ret_pool = pool;
    return worker;
}

void aoticache_worker_give_back(aoticache_worker_pool *pool, aoticache_worker *worker)
{
    pthread_mutex_lock(&pool->lock);
    worker->taken = false;
    pthread_cond_signal(&pool->given_back);
    pthread_mutex_unlock(&pool->lock);
}
