/*
 * cache/enter: the start of every function of a cache: handling of forks, the index to use now, and whether the cache may be
 * written.
 */
#include <sched.h>
#include <unistd.h>

#include "cache/cache_internal.h"
#include "cache/remote/remote_internal.h"

/* The value of `pid` while a thread of a forked child resets the cache. */
#define PID_CHANGING ((pid_t) - 1)

void aoticache_cache_enter(aoticache_cache *cache)
{
    const pid_t mine = getpid();
    pid_t known = atomic_load_explicit(&cache->pid, memory_order_acquire);
    while (known != mine) {
        if (known != PID_CHANGING && atomic_compare_exchange_strong(&cache->pid, &known, PID_CHANGING)) {
            /* Another thread of the parent may have held the mutexes at the fork. No thread of the child does. */
            pthread_mutex_init(&cache->index_mutex, NULL);
            pthread_mutex_init(&cache->trust.mutex, NULL);
            aoticache_unflushed_reset_after_fork(&cache->unflushed);
            aoticache_remotes_reset_after_fork(cache->remotes);
            atomic_store_explicit(&cache->pid, mine, memory_order_release);
            return;
        }
        sched_yield();
        known = atomic_load_explicit(&cache->pid, memory_order_acquire);
    }
}

aoticache_index *aoticache_cache_index(aoticache_cache *cache)
{
    aoticache_open_index *current = atomic_load_explicit(&cache->current, memory_order_acquire);
    return current != NULL ? current->index : NULL;
}

aoticache_status aoticache_cache_check_writable(const aoticache_cache *cache, aoticache_error *ret_error)
{
    if (cache->directory->read_only)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED, "the cache %s is open for reading only",
                                   cache->directory->path);
    return AOTICACHE_OK;
}
