/*
 * eager/holder/context: state shared by all holders of a host: the cache and the hook, the policy, the limit of loaded
 * libraries, the background compiles.
 */
#include "base/clock.h"
#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/options.h"
#include "base/threads.h"
#include "eager/holder/holder_internal.h"
#include "eager/load_artifact.h"
#include "cache/stats/statistics.h"

#include <string.h>
#include <unistd.h>

static void free_environment(char **environment)
{
    for (char **text = environment; text != NULL && *text != NULL; text++)
        free(*text);
    free(environment);
}

/* Copies the environment as two texts for each "name=value". */
static aoticache_status copy_environment(const char *const *from, char ***ret_environment, aoticache_error *ret_error)
{
    size_t count = 0;
    while (from != NULL && from[count] != NULL)
        count++;
    if (count == 0)
        return AOTICACHE_OK;
    char **copy = calloc(2 * count + 1, sizeof *copy);
    for (size_t i = 0; copy != NULL && i < count; i++) {
        const char *equals = strchr(from[i], '=');
        if (equals == NULL) {
            free_environment(copy);
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "environment: \"%.80s\" is not NAME=VALUE",
                                       from[i]);
        }
        copy[2 * i] = strndup(from[i], (size_t)(equals - from[i]));
        copy[2 * i + 1] = strdup(equals + 1);
        if (copy[2 * i] == NULL || copy[2 * i + 1] == NULL) {
            free(copy[2 * i]);
            copy[2 * i] = NULL;
            free_environment(copy);
            copy = NULL;
        }
    }
    if (copy == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu environment pairs", count);
    *ret_environment = copy;
    return AOTICACHE_OK;
}

static aoticache_status read_options(const aoticache_context_options *options, aoticache_context_options *ret_options,
                                     aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OPTIONS_READ(aoticache_context_options, AOTICACHE_CONTEXT_OPTIONS_INIT, options,
                                                     ret_options, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (ret_options->cache == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_context_create: options.cache is NULL");
    if (ret_options->miss < AOTICACHE_MISS_WAIT || ret_options->miss > AOTICACHE_MISS_NEVER ||
        ret_options->dynamic < AOTICACHE_DYNAMIC_NEVER || ret_options->dynamic > AOTICACHE_DYNAMIC_ALWAYS)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "context options: invalid policy: miss %d, dynamic %d",
                                   (int)ret_options->miss, (int)ret_options->dynamic);
    return AOTICACHE_OK;
}

static void init_queue(aoticache_context *context, const aoticache_context_options *options)
{
    pthread_mutex_init(&context->lock, NULL);
    pthread_mutex_init(&context->named_lock, NULL);
    aoticache_condition_init(&context->changed);
    context->last = &context->first;
    context->owner = (int)getpid();
    context->max_threads = options->threads > 0 ? options->threads : 1;
    context->queue_length = options->queue_length > 0 ? options->queue_length : 1024;
}

aoticache_status aoticache_context_create(const aoticache_context_options *options, aoticache_context **ret_context,
                                          aoticache_error *ret_error)
{
    aoticache_context_options all;
    aoticache_status status = read_options(options, &all, ret_error);
    if (status == AOTICACHE_OK && ret_context == NULL)
        status = AOTICACHE_REFUSE_NULL(ret_error, ret_context);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_context *context = calloc(1, sizeof *context);
    if (context == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a context");
    context->cache = all.cache;
    context->hook = all.hook;
    context->miss = all.miss;
    context->dynamic = all.dynamic;
    context->dynamic_after = all.dynamic_after > 0 ? all.dynamic_after : 4;
    context->max_loaded = all.max_loaded;
    context->max_loaded_bytes = all.max_loaded_bytes;
    context->serve_requires_grad = all.serve_requires_grad;
    context->fail_calls = all.fail_calls;
    context->judge = all.judge;
    context->clock_ns = aoticache_monotonic_ns;
    context->logger = all.logger;
    aoticache_artifact_choose_copies(all.cache, all.max_loaded > 0 || all.max_loaded_bytes > 0);
    init_queue(context, &all);
    status = copy_environment(all.environment, &context->environment, ret_error);
    const char *record_file = all.record_file != NULL ? all.record_file : secure_getenv("AOTICACHE_RECORD");
    if (status == AOTICACHE_OK && record_file != NULL && record_file[0] != '\0')
        status = aoticache_recorder_open(record_file, &context->recorder, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_context_free(context);
        return status;
    }
    *ret_context = context;
    return AOTICACHE_OK;
}

static void free_named_operators(aoticache_context *context)
{
    for (aoticache_named_operator *one = context->named_operators, *next; one != NULL; one = next) {
        next = one->next;
        aoticache_holder_unref(one->holder);
        free(one->name);
        free(one);
    }
}

void aoticache_context_free(aoticache_context *context)
{
    if (context == NULL)
        return;
    int saved = errno;
    free_named_operators(context);
    aoticache_queue_end(context);
    aoticache_epoch_synchronize(); /* runners that were unloaded hold artifacts of the cache */
    aoticache_recorder_close(context->recorder);
    free_environment(context->environment);
    if (context->owns_cache_and_hook) {
        aoticache_hook_free(context->hook);
        aoticache_cache_close(context->cache);
    }
    pthread_mutex_destroy(&context->named_lock);
    pthread_mutex_destroy(&context->lock);
    pthread_cond_destroy(&context->changed);
    free(context);
    errno = saved;
}

aoticache_status aoticache_context_wait(aoticache_context *context, uint32_t timeout_ms, aoticache_error *ret_error)
{
    if (context == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, context);
    struct timespec deadline = aoticache_deadline_after(timeout_ms * UINT64_C(1000000));
    int result = 0;
    pthread_mutex_lock(&context->lock);
    while (context->owner == (int)getpid() && context->queued + context->running > 0 && result == 0)
        result = timeout_ms == 0 ? pthread_cond_wait(&context->changed, &context->lock)
                                 : pthread_cond_timedwait(&context->changed, &context->lock, &deadline);
    size_t left = context->owner == (int)getpid() ? context->queued + context->running : 0;
    pthread_mutex_unlock(&context->lock);
    if (left == 0)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_LOCKED, "%zu compiles are still queued or running after %u ms",
                               left, (unsigned)timeout_ms);
}

void aoticache_context_get_compiles(aoticache_context *context, aoticache_context_compiles *ret_compiles)
{
    pthread_mutex_lock(&context->lock);
    bool is_mine = context->owner == (int)getpid(); /* otherwise they are those of a parent */
    *ret_compiles = (aoticache_context_compiles){.queued = is_mine ? context->queued : 0,
                                                 .running = is_mine ? context->running : 0,
                                                 .ended = is_mine ? context->ended : 0};
    pthread_mutex_unlock(&context->lock);
}

/* Lists the present holders, each with a reference: their locks come before context->lock. NULL: no memory. */
static aoticache_holder **list_holders(aoticache_context *context, size_t *ret_count)
{
    size_t count = 0;
    pthread_mutex_lock(&context->lock);
    for (aoticache_holder *holder = context->holders; holder != NULL; holder = holder->next)
        count++;
    aoticache_holder **list = calloc(count + 1, sizeof *list);
    count = 0;
    for (aoticache_holder *holder = context->holders; list != NULL && holder != NULL; holder = holder->next) {
        size_t references = atomic_load(&holder->references);
        while (references > 0 && !atomic_compare_exchange_weak(&holder->references, &references, references + 1))
            continue;
        if (references > 0) /* otherwise it is being freed, and flushes by itself */
            list[count++] = holder;
    }
    pthread_mutex_unlock(&context->lock);
    *ret_count = count;
    return list;
}

aoticache_status aoticache_context_flush(aoticache_context *context, aoticache_error *ret_error)
{
    size_t count = 0;
    if (context == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, context);
    cleanup_free aoticache_holder **holders = list_holders(context, &count);
    if (holders == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a list of holders");
    for (size_t i = 0; i < count; i++) {
        aoticache_holder_flush(holders[i]);
        aoticache_holder_unref(holders[i]);
    }
    return aoticache_cache_flush(context->cache, ret_error);
}
