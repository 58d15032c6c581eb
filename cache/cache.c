/*
 * cache/cache: opening and closing, and what every operation needs: counters, recency, flushing them, surviving a fork.
 */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/state.h"

/* `pid` while a thread of a forked child is setting things right. */
#define PID_CHANGING ((pid_t)-1)

static void reset_after_fork(aoticache_cache *cache)
{
    /* Another thread of the parent may have held these at the fork; nobody in the child does. */
    pthread_mutex_init(&cache->index_mutex, NULL);
    pthread_mutex_init(&cache->recency_mutex, NULL);
    /* Not freed: the parent's thread may have been inside. */
    cache->recency = (aoticache_recency){.slots = NULL};
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

static aoticache_status check_options(const aoticache_cache_options *options, aoticache_error *ret_error)
{
    if (options->size < sizeof *options)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "aoticache_cache_options.size is %zu, this library's is %zu; use "
                                   "AOTICACHE_CACHE_OPTIONS_INIT",
                                   options->size, sizeof *options);
    return AOTICACHE_OK;
}

aoticache_status aoticache_cache_open(const aoticache_cache_options *options, aoticache_cache **ret_cache,
                                      aoticache_error *ret_error)
{
    static const aoticache_cache_options defaults = AOTICACHE_CACHE_OPTIONS_INIT;
    if (options == NULL)
        options = &defaults;
    if (ret_cache == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_open: ret_cache is NULL");
    aoticache_status status = check_options(options, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_cache *cache = calloc(1, sizeof *cache);
    if (cache == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    pthread_mutex_init(&cache->index_mutex, NULL);
    pthread_mutex_init(&cache->recency_mutex, NULL);
    atomic_init(&cache->pid, getpid());
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
    aoticache_cache_flush(cache, NULL);
    for (aoticache_open_index *opened = atomic_load(&cache->current); opened != NULL;) {
        aoticache_open_index *older = opened->older;
        aoticache_index_close(opened->index);
        free(opened);
        opened = older;
    }
    aoticache_directory_close(cache->directory);
    aoticache_recency_free(&cache->recency);
    pthread_mutex_destroy(&cache->index_mutex);
    pthread_mutex_destroy(&cache->recency_mutex);
    free(cache);
    errno = saved;
}

const char *aoticache_cache_directory(const aoticache_cache *cache)
{
    return cache != NULL ? cache->directory->path : NULL;
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

/* ---- counters and recency ---- */

void aoticache_cache_count(aoticache_cache *cache, aoticache_counter counter, uint64_t value)
{
    atomic_fetch_add_explicit(&cache->counters[counter], value, memory_order_relaxed);
}

const char *aoticache_cache_counter_name(aoticache_counter counter)
{
    static const char *const names[] = {
#define COUNTER_NAME(name, text) #name,
        AOTICACHE_COUNTER_LIST(COUNTER_NAME)
#undef COUNTER_NAME
    };
    return names[counter];
}

static void record_uses(aoticache_cache *cache, int64_t entry_id, uint64_t uses)
{
    if (cache->directory->read_only)
        return;
    int64_t now = aoticache_wall_ns();
    pthread_mutex_lock(&cache->recency_mutex);
    aoticache_recency_add(&cache->recency, entry_id, now, uses);
    pthread_mutex_unlock(&cache->recency_mutex);
}

void aoticache_cache_record_use(aoticache_cache *cache, int64_t entry_id)
{
    record_uses(cache, entry_id, 1);
}

/* Nothing is added to saved_ns: the lookup that loaded the runner has saved its compile, these calls save no other. */
void aoticache_cache_note_use(aoticache_cache *cache, int64_t entry_id, uint64_t uses)
{
    if (cache == NULL || entry_id == 0 || uses == 0)
        return;
    aoticache_cache_enter(cache);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_hits, uses);
    aoticache_cache_count(cache, AOTICACHE_COUNTER_hits_loaded, uses);
    record_uses(cache, entry_id, uses);
}

/* Takes the counters that are not zero out of the cache. */
static size_t take_counts(aoticache_cache *cache, aoticache_index_count counts[AOTICACHE_COUNTER_COUNT])
{
    size_t count = 0;
    for (int i = 0; i < AOTICACHE_COUNTER_COUNT; i++) {
        uint64_t value = atomic_exchange_explicit(&cache->counters[i], 0, memory_order_relaxed);
        if (value != 0)
            counts[count++] = (aoticache_index_count){.name = aoticache_cache_counter_name(i), .value = value};
    }
    return count;
}

static void give_back(aoticache_cache *cache, const aoticache_index_use *uses, size_t use_count,
                      const aoticache_index_count *counts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (int counter = 0; counter < AOTICACHE_COUNTER_COUNT; counter++)
            if (strcmp(counts[i].name, aoticache_cache_counter_name(counter)) == 0)
                aoticache_cache_count(cache, counter, counts[i].value);
    pthread_mutex_lock(&cache->recency_mutex);
    for (size_t i = 0; i < use_count; i++)
        aoticache_recency_add(&cache->recency, uses[i].entry_id, uses[i].last_used_ns, uses[i].uses);
    pthread_mutex_unlock(&cache->recency_mutex);
}

aoticache_status aoticache_cache_flush(aoticache_cache *cache, aoticache_error *ret_error)
{
    if (cache == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_cache_flush: cache is NULL");
    aoticache_cache_enter(cache);
    aoticache_index *index = aoticache_cache_index(cache);
    if (index == NULL || cache->directory->read_only)
        return AOTICACHE_OK;
    aoticache_index_count counts[AOTICACHE_COUNTER_COUNT];
    aoticache_index_use *uses = NULL;
    size_t use_count = 0;
    pthread_mutex_lock(&cache->recency_mutex);
    aoticache_recency_take(&cache->recency, &uses, &use_count);
    pthread_mutex_unlock(&cache->recency_mutex);
    size_t count = take_counts(cache, counts);
    aoticache_status status = AOTICACHE_OK;
    if (count > 0 || use_count > 0)
        status = aoticache_index_flush(index, uses, use_count, counts, count, ret_error);
    if (status != AOTICACHE_OK)
        give_back(cache, uses, use_count, counts, count);
    free(uses);
    return status;
}
