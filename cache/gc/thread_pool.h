/*
 * cache/gc/thread_pool: threads that wait for work of a few milliseconds, again and again, beside the thread that has it.
 *
 * Making a thread costs more than some of the pieces of work that a collection has for it. Used by one thread at a time.
 */
#ifndef AOTICACHE_CACHE_GC_THREAD_POOL_H
#define AOTICACHE_CACHE_GC_THREAD_POOL_H

#include <stddef.h>

typedef struct aoticache_thread_pool aoticache_thread_pool;

/* A pool without threads; NULL: out of memory. aoticache_thread_pool_free() ends it, with no work under way; NULL is allowed. */
aoticache_thread_pool *aoticache_thread_pool_new(void);
void aoticache_thread_pool_free(aoticache_thread_pool *pool);

/*
 * Has up to `count` of its threads do `work`, and makes those that are lacking, as far as there can be some. `work` is to
 * be for any number of threads, none included, and `argument` to last until aoticache_thread_pool_wait() has returned.
 */
void aoticache_thread_pool_start(aoticache_thread_pool *pool, size_t count, void (*work)(void *argument), void *argument);
/* Waits for those who have begun; the others do not begin any more. Without work under way it does nothing. */
void aoticache_thread_pool_wait(aoticache_thread_pool *pool);

#endif
