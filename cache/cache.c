/*
 * cache/cache: opens and closes a cache, and has the accessors of an open one.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arguments.h"
#include "base/options.h"
#include "cache/config/config_internal.h"
#include "cache/eager_face.h"
#include "cache/entries.h"
#include "cache/cache_internal.h"
#include "cache/remote/remote_internal.h"

aoticache_status aoticache_cache_open(const aoticache_cache_options *options, aoticache_cache **ret_cache,
                                      aoticache_error *ret_error)
{
    aoticache_cache_options completed;
    aoticache_status status =
        AOTICACHE_OPTIONS_READ(aoticache_cache_options, AOTICACHE_CACHE_OPTIONS_INIT, options, &completed, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (ret_cache == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, ret_cache);
    cleanup_config aoticache_config *config = NULL;
    status = aoticache_config_complete(&completed, &config, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    options = &completed;
    aoticache_cache *cache = calloc(1, sizeof *cache);
    if (cache == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    aoticache_unflushed_init(&cache->unflushed);
    pthread_mutex_init(&cache->index_mutex, NULL);
    atomic_init(&cache->pid, getpid());
    cache->max_bytes = options->max_bytes != UINT64_MAX ? options->max_bytes : 0;
    cache->may_use_reserve = options->may_use_reserve;
    cache->hash_always = options->hash_always;
    cache->max_entries = options->max_entries != UINT64_MAX ? options->max_entries : 0;
    cache->compile_timeout_ms = options->compile_timeout_ms;
    cache->failure_ttl_seconds = options->failure_ttl_seconds;
    cache->failure_max_ttl_seconds = options->failure_max_ttl_seconds > options->failure_ttl_seconds
                                         ? options->failure_max_ttl_seconds
                                         : options->failure_ttl_seconds;
    status = aoticache_trust_init(&cache->trust, options, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_directory_open(options, &cache->directory, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_cache_open_index(cache, ret_error);
    if (status == AOTICACHE_OK && options->remote != NULL)
        status = aoticache_remotes_create(options->remote, &cache->directory->logger, &cache->remotes, ret_error);
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
    aoticache_remote_miss_finish(cache);
    aoticache_cache_flush_last(cache);
    for (aoticache_open_index *opened = atomic_load(&cache->current); opened != NULL;) {
        aoticache_open_index *older = opened->older;
        aoticache_index_close(opened->index);
        free(opened);
        opened = older;
    }
    aoticache_remotes_free(cache->remotes);
    aoticache_directory_close(cache->directory);
    aoticache_trust_clear(&cache->trust);
    aoticache_unflushed_clear(&cache->unflushed);
    pthread_mutex_destroy(&cache->index_mutex);
    free(cache);
    errno = saved;
}

void aoticache_cache_at_exit(aoticache_cache *cache)
{
    if (cache == NULL)
        return;
    aoticache_remote_miss_finish(cache);
    aoticache_cache_flush_last(cache);
    aoticache_index *index = aoticache_cache_index(cache);
    if (index != NULL && !cache->directory->read_only)
        aoticache_index_at_exit(index);
}

aoticache_cache_info aoticache_cache_get_info(const aoticache_cache *cache)
{
    if (cache == NULL)
        return (aoticache_cache_info){.directory = NULL};
    return (aoticache_cache_info){.directory = cache->directory->path, .is_read_only = cache->directory->read_only};
}

void aoticache_cache_copy_libraries(aoticache_cache *cache, bool copy)
{
    if (cache != NULL)
        atomic_store_explicit(&cache->directory->no_copies, !copy, memory_order_relaxed);
}
