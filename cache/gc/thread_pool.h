/*
 * cache/gc/thread_pool: threads that repeatedly help one thread with work of a few milliseconds.
 *
 * Starting a thread costs more than some of a collection's pieces of work. One thread at a time uses a pool.
 */
#ifndef AOTICACHE_CACHE_GC_THREAD_POOL_H
#define AOTICACHE_CACHE_GC_THREAD_POOL_H

#include <stddef.h>

typedef struct aoticache_thread_pool aoticache_thread_pool;

/* Creates a pool without threads; NULL if memory is short. Free it only when no work is in progress; NULL is allowed. */
aoticache_thread_pool *aoticache_thread_pool_new(void);
void aoticache_thread_pool_free(aoticache_thread_pool *pool);

/*
 * Makes up to `count` of its threads call `work`, and starts missing threads as far as possible. `work` must be correct for
 * any number of threads, including none; `argument` must stay valid until aoticache_thread_pool_wait() has returned.
 */
void aoticache_thread_pool_start(aoticache_thread_pool *pool, size_t count, void (*work)(void *argument),
                                 void *argument);
/* Waits for the threads that have begun; no others begin. Does nothing if no work is in progress. */
void aoticache_thread_pool_wait(aoticache_thread_pool *pool);

#endif
