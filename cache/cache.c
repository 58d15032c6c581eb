/*
 * cache/cache: opening and closing, and what every operation needs: the index, surviving a fork. Counting is in
 * cache/stats/flush.c.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "cache/config/internal.h"
#include "base/options.h"
#include "cache/state.h"
#include "cache/stats/internal.h"

/* `pid` while a thread of a forked child is setting things right. */
#define PID_CHANGING ((pid_t)-1)

static void reset_after_fork(aoticache_cache *cache)
{
    /* Another thread of the parent may have held these at the fork; nobody in the child does. */
    pthread_mutex_init(&cache->index_mutex, NULL);
    pthread_mutex_init(&cache->recency_mutex, NULL);
    /* Not freed: the parent's thread may have been inside. */
    cache->recency = (aoticache_recency){.slots = NULL};
    aoticache_unflushed_reset(cache->unflushed);
    for (size_t i = 0; i < AOTICACHE_COUNTER_COUNT; i++)
        atomic_store(&cache->counters[i], 0);
}

void aoticache_cache_enter(aoticache_cache *cache)
{
    const pid_t mine = getpid();
    pid_t known = atomic_load_explicit(&cache->pid, memory_order_acquire);
    while (known != mine) {
        if (known != PID_CHANGING && atomic_compare_exchange_strong(&cache->pid, &known, PID_CHANGING)) {
            reset_after_fork(cache);
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

aoticache_status aoticache_cache_open(const aoticache_cache_options *options, aoticache_cache **ret_cache,
                                      aoticache_error *ret_error)
{
    aoticache_cache_options completed;
    aoticache_status status = AOTICACHE_OPTIONS_READ(aoticache_cache_options, AOTICACHE_CACHE_OPTIONS_INIT, options,
                                                     &completed, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (ret_cache == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_open: ret_cache is NULL");
    cleanup_config aoticache_config *config = NULL;
    status = aoticache_config_complete(&completed, &config, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    options = &completed;
    aoticache_cache *cache = calloc(1, sizeof *cache);
    if (cache != NULL)
        cache->unflushed = aoticache_unflushed_create();
    if (cache == NULL || cache->unflushed == NULL) {
        free(cache);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    }
    pthread_mutex_init(&cache->index_mutex, NULL);
    pthread_mutex_init(&cache->recency_mutex, NULL);
    atomic_init(&cache->pid, getpid());
    cache->max_bytes = options->max_bytes != UINT64_MAX ? options->max_bytes : 0;
    cache->may_use_reserve = options->may_use_reserve;
    cache->max_entries = options->max_entries != UINT64_MAX ? options->max_entries : 0;
    cache->compile_timeout_ms = options->compile_timeout_ms;
    cache->failure_ttl_seconds = options->failure_ttl_seconds;
    cache->failure_max_ttl_seconds = options->failure_max_ttl_seconds > options->failure_ttl_seconds
                                         ? options->failure_max_ttl_seconds
                                         : options->failure_ttl_seconds;
    status = aoticache_directory_open(options, &cache->directory, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_open_index(cache, ret_error);
    if (status != AOTICACHE_OK)
        aoticache_cache_close(cache);
    else
        *ret_cache = cache;
    return status;
}

void aoticache_cache_close(aoticache_cache *cache)
{
    if (cache == NULL)
        return;
    int saved = errno;
    aoticache_cache_flush_last(cache);
    for (aoticache_open_index *opened = atomic_load(&cache->current); opened != NULL;) {
        aoticache_open_index *older = opened->older;
        aoticache_index_close(opened->index);
        free(opened);
        opened = older;
    }
    aoticache_directory_close(cache->directory);
    aoticache_recency_free(&cache->recency);
    aoticache_unflushed_free(cache->unflushed);
    pthread_mutex_destroy(&cache->index_mutex);
    pthread_mutex_destroy(&cache->recency_mutex);
    free(cache);
    errno = saved;
}

const char *aoticache_cache_directory(const aoticache_cache *cache)
{
    return cache != NULL ? cache->directory->path : NULL;
}

void aoticache_cache_copy_libraries(aoticache_cache *cache, bool copy)
{
    if (cache != NULL)
        atomic_store_explicit(&cache->directory->no_copies, !copy, memory_order_relaxed);
}

bool aoticache_cache_is_read_only(const aoticache_cache *cache)
{
    return cache != NULL && cache->directory->read_only;
}

aoticache_status aoticache_cache_check_writable(const aoticache_cache *cache, aoticache_error *ret_error)
{
    if (cache->directory->read_only)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED, "the cache %s is open for reading only",
                                   cache->directory->path);
    return AOTICACHE_OK;
}
