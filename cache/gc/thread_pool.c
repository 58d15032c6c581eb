/*
 * cache/gc/thread_pool: threads that wait on a condition until there is work for one more of them.
 */
#include "cache/gc/thread_pool.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/threads.h"

#define MOST 16
#define STACK_BYTES (256 * 1024)

struct aoticache_thread_pool {
    pthread_mutex_t mutex; /* protects all members except the threads, which only the caller changes */
    pthread_cond_t has_work, is_idle;
    void (*work)(void *argument);
    void *argument;
    size_t places; /* number of threads that may still begin */
    size_t busy;
    bool is_over;
    pthread_t threads[MOST];
    size_t thread_count;
};

static void *serve(void *user)
{
    aoticache_thread_pool *pool = user;
    pthread_mutex_lock(&pool->mutex);
    for (;;) {
        while (pool->places == 0 && !pool->is_over)
            pthread_cond_wait(&pool->has_work, &pool->mutex);
        if (pool->is_over)
            break;
        pool->places--;
        pool->busy++;
        pthread_mutex_unlock(&pool->mutex);
        pool->work(pool->argument); /* neither changes while a thread is busy */
        pthread_mutex_lock(&pool->mutex);
        if (--pool->busy == 0)
            pthread_cond_signal(&pool->is_idle);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

static void enlarge(aoticache_thread_pool *pool, size_t count)
{
    pthread_attr_t attributes;
    count = count < MOST ? count : MOST;
    if (count <= pool->thread_count || pthread_attr_init(&attributes) != 0)
        return;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pool->thread_count += aoticache_threads_start(pool->threads + pool->thread_count, count - pool->thread_count,
                                                  &attributes, serve, pool);
    pthread_attr_destroy(&attributes);
}

aoticache_thread_pool *aoticache_thread_pool_new(void)
{
    aoticache_thread_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return NULL;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->has_work, NULL);
    pthread_cond_init(&pool->is_idle, NULL);
    return pool;
}

void aoticache_thread_pool_free(aoticache_thread_pool *pool)
{
    if (pool == NULL)
        return;
    pthread_mutex_lock(&pool->mutex);
    pool->is_over = true;
    pthread_cond_broadcast(&pool->has_work);
    pthread_mutex_unlock(&pool->mutex);
    while (pool->thread_count > 0)
        pthread_join(pool->threads[--pool->thread_count], NULL);
    pthread_cond_destroy(&pool->is_idle);
    pthread_cond_destroy(&pool->has_work);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

void aoticache_thread_pool_start(aoticache_thread_pool *pool, size_t count, void (*work)(void *argument),
                                 void *argument)
{
    enlarge(pool, count);
    pthread_mutex_lock(&pool->mutex);
    pool->work = work;
    pool->argument = argument;
    pool->places = count < pool->thread_count ? count : pool->thread_count;
    for (size_t i = 0; i < pool->places; i++)
        pthread_cond_signal(&pool->has_work);
    pthread_mutex_unlock(&pool->mutex);
}

void aoticache_thread_pool_wait(aoticache_thread_pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    pool->places = 0;
    while (pool->busy > 0)
        pthread_cond_wait(&pool->is_idle, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}
