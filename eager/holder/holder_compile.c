/*
 * eager/holder/holder_compile: turns a miss into a library, a dynamic one if that is preferred and possible, otherwise an
 * exact one; remembers failed compiles; runs background compiles. miss.c decides which misses are compiled, and when.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/threads.h"
#include "cache/eager_face.h"
#include "cache/request/text.h"
#include "eager/holder/holder_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Times between two tries of a miss. ABSENT is short: nothing is compiled here, and other processes may add the kernel. */
#define RETRY_ABSENT_NS UINT64_C(1000000000)
#define RETRY_FAILED_NS UINT64_C(1000000000)
#define RETRY_FAILED_MAX_NS UINT64_C(300000000000)
#define RETRY_UNSUPPORTED_NS UINT64_C(3600000000000)

/* ---- failures ---- */

static uint64_t retry_after(aoticache_status status, uint32_t failures)
{
    if (status == AOTICACHE_UNSUPPORTED)
        return RETRY_UNSUPPORTED_NS;
    if (status == AOTICACHE_NOT_FOUND || status == AOTICACHE_LOCKED)
        return RETRY_ABSENT_NS;
    uint64_t wait_ns = RETRY_FAILED_NS << (failures < 16 ? failures : 16);
    return wait_ns < RETRY_FAILED_MAX_NS ? wait_ns : RETRY_FAILED_MAX_NS;
}

void aoticache_holder_note_failure(aoticache_holder *holder, aoticache_miss_state *state, aoticache_status status,
                                   const char *message)
{
    bool is_news = status != AOTICACHE_NOT_FOUND;
    if (state != NULL) {
        char *copy = strdup(message);
        pthread_mutex_lock(&holder->lock);
        is_news = is_news && (state->message == NULL || strcmp(state->message, message) != 0);
        free(state->message);
        state->message = copy;
        state->status = status;
        atomic_store(&state->retry_ns, aoticache_monotonic_ns() + retry_after(status, state->failures));
        state->failures++;
        pthread_mutex_unlock(&holder->lock);
    }
    if (is_news && !aoticache_compiles_are_cancelled())
        aoticache_log(&holder->context->logger,
                      status == AOTICACHE_UNSUPPORTED ? AOTICACHE_LOG_INFO : AOTICACHE_LOG_WARNING, "%s: %s",
                      holder->op, message);
}

static void forget_failures(aoticache_holder *holder, aoticache_miss_state *state)
{
    if (state == NULL)
        return;
    pthread_mutex_lock(&holder->lock);
    free(state->message);
    state->message = NULL;
    state->status = AOTICACHE_OK;
    state->failures = 0;
    atomic_store(&state->retry_ns, 0);
    pthread_mutex_unlock(&holder->lock);
}

/* ---- compiling ---- */

/* Data that accepts() and the hook need in addition to the dynamic request. */
typedef struct dynamic_compile {
    aoticache_hook *hook;
    const aoticache_request *example; /* the call's own sizes, with the environment of the dynamic request */
    const aoticache_tensor_view *views;
    size_t count;
} dynamic_compile;

static bool guard_accepts_call(void *user, const char *guard)
{
    const dynamic_compile *compile = user;
    aoticache_check *check;
    if (aoticache_check_parse(guard, &check, NULL) != AOTICACHE_OK)
        return false;
    bool passes = aoticache_check_passes(check, compile->views, compile->count);
    aoticache_check_free(check);
    return passes;
}

/* Compiles with the sizes of the call as an example; the dynamic request has only placeholders. */
static aoticache_status compile_dynamic(void *user, const aoticache_request *request, const char *directory,
                                        aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    const dynamic_compile *compile = user;
    (void)request;
    return aoticache_hook_compile(compile->hook, compile->example, directory, deliver, deliver_user, ret_error);
}

static aoticache_status make_example(const aoticache_request *exact, aoticache_request **ret_example,
                                     aoticache_error *ret_error)
{
    cleanup_free uint8_t *bytes = NULL;
    size_t size = 0;
    aoticache_status status = aoticache_request_encode(exact, &bytes, &size, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_request_decode(bytes, size, ret_example, ret_error);
    if (status == AOTICACHE_OK)
        status =
            aoticache_request_set_environment(*ret_example, AOTICACHE_SHAPES_NAME, AOTICACHE_SHAPES_DYNAMIC, ret_error);
    return status;
}

static void count_compile(aoticache_holder *holder, const aoticache_artifact *artifact)
{
    if (aoticache_artifact_get_info(artifact)->source == AOTICACHE_SOURCE_COMPILED)
        atomic_fetch_add_explicit(&holder->compiles, 1, memory_order_relaxed);
}

/* Returns OK only if the library serves the call's own shape. */
static aoticache_status get_dynamic(aoticache_holder *holder, const aoticache_miss_request *miss,
                                    aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    cleanup_free aoticache_tensor_view *views = NULL;
    aoticache_request *example = NULL;
    aoticache_artifact *artifact = NULL;
    dynamic_compile compile = {.hook = holder->context->hook};
    aoticache_status status = aoticache_request_views(miss->exact, &views, &compile.count, ret_error);
    if (status == AOTICACHE_OK)
        status = make_example(miss->exact, &example, ret_error);
    if (status == AOTICACHE_OK) {
        compile.example = example;
        compile.views = views;
        const aoticache_guard_filter filter = {guard_accepts_call, &compile};
        status = aoticache_cache_get_or_compile(holder->context->cache, miss->dynamic, &filter, compile_dynamic,
                                                &compile, &artifact, ret_error);
    }
    aoticache_request_free(example);
    if (status != AOTICACHE_OK)
        return status;
    count_compile(holder, artifact);
    if (guard_accepts_call(&compile, aoticache_artifact_get_info(artifact)->guard)) {
        *ret_artifact = artifact;
        return AOTICACHE_OK;
    }
    status = aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "%s: its shapes cannot be dynamic: %.200s",
                                 holder->op, aoticache_artifact_get_info(artifact)->guard);
    aoticache_artifact_unref(artifact);
    return status;
}

static void set_not_dynamic(aoticache_holder *holder, aoticache_dynamic_state *state)
{
    pthread_mutex_lock(&holder->lock);
    if (!state->not_dynamic)
        atomic_fetch_add_explicit(&holder->dynamic_refused, 1, memory_order_relaxed);
    state->not_dynamic = true;
    pthread_mutex_unlock(&holder->lock);
}

/* Gets an artifact. If a dynamic compile fails, the call does not fail: its exact shape is compiled, from then on always. */
static aoticache_status get_artifact(aoticache_holder *holder, const aoticache_miss_request *miss,
                                     aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    if (miss->prefer_dynamic) {
        aoticache_error error;
        aoticache_status status = get_dynamic(holder, miss, ret_artifact, &error);
        if (status == AOTICACHE_OK)
            return status;
        if (status == AOTICACHE_COMPILE_FAILED || status == AOTICACHE_UNSUPPORTED) {
            set_not_dynamic(holder, miss->dynamic_state);
            aoticache_log(&holder->context->logger, AOTICACHE_LOG_INFO, "%s: no dynamic library: %s", holder->op,
                          error.message);
        }
    }
    const aoticache_context *context = holder->context;
    aoticache_status status = aoticache_cache_get_or_compile(context->cache, miss->exact, NULL, aoticache_hook_compile,
                                                             context->hook, ret_artifact, ret_error);
    if (status == AOTICACHE_OK)
        count_compile(holder, *ret_artifact);
    return status;
}

static void log_kernel(const aoticache_holder *holder, const aoticache_miss_request *miss)
{
    if (miss->compile_ns > 0)
        aoticache_log(&holder->context->logger, AOTICACHE_LOG_INFO, "%s: compiled in %.1f s", holder->op,
                      (double)miss->compile_ns * 1e-9);
    else
        aoticache_log(&holder->context->logger, AOTICACHE_LOG_DEBUG, "%s: hit: found in the cache", holder->op);
}

aoticache_status aoticache_holder_compile(aoticache_holder *holder, aoticache_miss_request *miss,
                                          aoticache_known_kernel **ret_known, aoticache_error *ret_error)
{
    aoticache_artifact *artifact = NULL;
    aoticache_error error;
    aoticache_status status = get_artifact(holder, miss, &artifact, &error);
    if (status == AOTICACHE_OK && aoticache_artifact_get_info(artifact)->source == AOTICACHE_SOURCE_COMPILED)
        miss->compile_ns = aoticache_artifact_get_info(artifact)->compile_ns;
    if (status == AOTICACHE_COMPILE_FAILED)
        atomic_fetch_add_explicit(&holder->compile_failures, 1, memory_order_relaxed);
    if (status == AOTICACHE_OK) {
        status = aoticache_holder_adopt(holder, miss, artifact, ret_known, &error);
        if (status == AOTICACHE_LOAD_FAILED && aoticache_artifact_get_info(artifact)->guard[0] != '\0')
            set_not_dynamic(holder, miss->dynamic_state); /* the next try is exact */
    }
    aoticache_artifact_unref(artifact);
    if (status == AOTICACHE_OK) {
        forget_failures(holder, miss->miss_state);
        log_kernel(holder, miss);
        return status;
    }
    if (status == AOTICACHE_COMPILE_FAILED || status == AOTICACHE_UNSUPPORTED)
        aoticache_numbers_give_up(holder, miss->substituted);
    aoticache_holder_note_failure(holder, miss->miss_state, status, error.message);
    return aoticache_error_set(ret_error, status, "%s", error.message);
}

/* ---- background compiles: a queue of misses, and the threads that process it ---- */

/*
 * Threads are started when there is work for them and end with the context. A child after fork() has neither the threads nor
 * the jobs of its parent.
 */
struct aoticache_job {
    aoticache_holder *holder; /* a reference */
    aoticache_miss_request miss;
    aoticache_job *next;
};

static void job_free(aoticache_job *job)
{
    if (job->miss.miss_state != NULL)
        atomic_store(&job->miss.miss_state->queued, 0);
    aoticache_miss_request_free(&job->miss);
    aoticache_holder_unref(job->holder);
    free(job);
}

static void free_jobs(aoticache_job *job)
{
    for (aoticache_job *next; job != NULL; job = next) {
        next = job->next;
        job_free(job);
    }
}

/* Takes the first job off the queue. The caller holds context->lock. */
static aoticache_job *dequeue_first(aoticache_context *context)
{
    aoticache_job *job = context->first;
    context->first = job->next;
    if (context->first == NULL)
        context->last = &context->first;
    context->queued--;
    return job;
}

static void run_job(aoticache_job *job)
{
    aoticache_error error;
    aoticache_known_kernel *known = NULL;
    aoticache_status status = aoticache_holder_compile(job->holder, &job->miss, &known, &error);
    if (status == AOTICACHE_OK && known->check != NULL)
        aoticache_holder_add_alias(job->holder, job->miss.packed,
                                   aoticache_known_kernel_verdict(known, job->miss.elements));
}

/* Returns true if only jobs have references to the holder. The caller holds context->lock. */
static bool is_abandoned(const aoticache_job *job)
{
    return atomic_load(&job->holder->references) <= job->holder->jobs;
}

/* Runs jobs until none is left. The caller holds context->lock, which is released during a compile. */
static void *run_queued_jobs(void *user)
{
    aoticache_context *context = user;
    pthread_mutex_lock(&context->lock);
    while (!context->ending) {
        if (context->first == NULL) {
            context->idle++;
            pthread_cond_wait(&context->changed, &context->lock);
            context->idle--;
            continue;
        }
        aoticache_job *job = dequeue_first(context);
        bool abandoned = is_abandoned(job);
        job->holder->jobs--;
        context->running++;
        pthread_mutex_unlock(&context->lock);
        if (!abandoned && !aoticache_compiles_are_cancelled())
            run_job(job);
        job_free(job);
        aoticache_epoch_reclaim();
        pthread_mutex_lock(&context->lock);
        context->running--;
        context->ended++;
        pthread_cond_broadcast(&context->changed);
    }
    context->threads--;
    pthread_cond_broadcast(&context->changed);
    pthread_mutex_unlock(&context->lock);
    return NULL;
}

/* Starts a background thread. The caller holds context->lock. */
static bool start_thread(aoticache_context *context)
{
    pthread_t thread;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const bool started = aoticache_threads_start(&thread, 1, &attributes, run_queued_jobs, context) == 1;
    pthread_attr_destroy(&attributes);
    context->threads += started;
    return started;
}

/* Takes all jobs off the queue. The caller holds context->lock. */
static aoticache_job *dequeue_all(aoticache_context *context)
{
    aoticache_job *jobs = context->first;
    for (aoticache_job *job = jobs; job != NULL; job = job->next)
        job->holder->jobs--;
    context->first = NULL;
    context->last = &context->first;
    context->queued = 0;
    return jobs;
}

/*
 * Empties the queue that fork() copied from the parent, whose threads do not exist here. The caller frees the returned jobs and
 * holds context->lock.
 */
static aoticache_job *begin_anew_after_fork(aoticache_context *context)
{
    if (context->owner == (int)getpid())
        return NULL;
    context->owner = (int)getpid();
    context->threads = context->idle = context->running = 0;
    context->ended = 0;
    return dequeue_all(context);
}

bool aoticache_queue_add(aoticache_holder *holder, aoticache_miss_request *miss)
{
    aoticache_context *context = holder->context;
    aoticache_job *job = calloc(1, sizeof *job);
    if (job == NULL)
        return false;
    pthread_mutex_lock(&context->lock);
    aoticache_job *parents = begin_anew_after_fork(context);
    bool room = !context->ending && context->queued < context->queue_length;
    if (room && context->idle <= context->queued && context->threads < context->max_threads)
        start_thread(context);
    bool added = room && context->threads > 0;
    if (added) {
        *job = (aoticache_job){.holder = aoticache_holder_ref(holder), .miss = *miss};
        *miss = (aoticache_miss_request){.exact = NULL};
        *context->last = job;
        context->last = &job->next;
        context->queued++;
        holder->jobs++;
        pthread_cond_broadcast(&context->changed);
    }
    pthread_mutex_unlock(&context->lock);
    if (!added)
        free(job);
    free_jobs(parents);
    return added;
}

void aoticache_queue_end(aoticache_context *context)
{
    pthread_mutex_lock(&context->lock);
    aoticache_job *parents = begin_anew_after_fork(context);
    context->ending = true;
    aoticache_job *dropped = dequeue_all(context);
    pthread_cond_broadcast(&context->changed);
    while (context->threads > 0)
        pthread_cond_wait(&context->changed, &context->lock);
    pthread_mutex_unlock(&context->lock);
    free_jobs(parents);
    free_jobs(dropped);
}
