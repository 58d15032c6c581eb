/*
 * cache/gc/thread_pool: threads that help one thread with work of a few milliseconds, again and again.
 *
 * Starting a thread costs more than some of the pieces of work that a collection has. One thread at a time uses a pool.
 */
#ifndef AOTICACHE_CACHE_GC_THREAD_POOL_H
#define AOTICACHE_CACHE_GC_THREAD_POOL_H

#include <stddef.h>

typedef struct aoticache_thread_pool aoticache_thread_pool;

/* A pool without threads; NULL: out of memory. Freed with no work under way; NULL is allowed. */
aoticache_thread_pool *aoticache_thread_pool_new(void);
void aoticache_thread_pool_free(aoticache_thread_pool *pool);

/*
 * Has up to `count` of its threads call `work`, and starts those that are missing, as far as it can. `work` must be right
 * for any number of threads, none included; `argument` must last until aoticache_thread_pool_wait() has returned.
 */
void aoticache_thread_pool_start(aoticache_thread_pool *pool, size_t count, void (*work)(void *argument),
                                 void *argument);
/* Waits for the threads that have begun; the others do not begin any more. Does nothing without work under way. */
void aoticache_thread_pool_wait(aoticache_thread_pool *pool);

#endif
