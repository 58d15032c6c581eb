/*
 * eager/holder/compile: a miss becomes a library: for all shapes where that is wanted and can be, else for its own; and
 * what is kept of a compile that failed. Which misses come here, and when, is miss.c's.
 */
#include "base/cleanup.h"
#include "eager/holder/state.h"

#include <string.h>

/* How long a miss is not looked at again. Where nothing is compiled: soon, since others may add it. */
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
    if (is_news)
        aoticache_log(&holder->eager->logger,
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

/* What accept() and the hook need beside the request that stands for the family. */
typedef struct dynamic_compile {
    aoticache_hook *hook;
    const aoticache_request *example; /* the call's own sizes, asked for as symbolic */
    const aoticache_tensor_view *views;
    size_t count;
} dynamic_compile;

static bool accepts(void *user, const char *guard)
{
    const dynamic_compile *compile = user;
    aoticache_check *check;
    if (aoticache_check_parse(guard, &check, NULL) != AOTICACHE_OK)
        return false;
    bool passes = aoticache_check_passes(check, compile->views, compile->count);
    aoticache_check_free(check);
    return passes;
}

/* The hook sees the sizes of the call, as an example; the family has only placeholders. */
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
        status = aoticache_request_set_environment(*ret_example, AOTICACHE_SHAPES_NAME, AOTICACHE_SHAPES_DYNAMIC, ret_error);
    return status;
}

static void count_compile(aoticache_holder *holder, const aoticache_artifact *artifact)
{
    if (aoticache_artifact_source(artifact) == AOTICACHE_SOURCE_COMPILED)
        atomic_fetch_add_explicit(&holder->compiles, 1, memory_order_relaxed);
}

/* OK only where the library that came out serves the call's own shape. */
static aoticache_status get_dynamic(aoticache_holder *holder, const aoticache_wanted *wanted,
                                    aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    cleanup_free aoticache_tensor_view *views = NULL;
    aoticache_request *example = NULL;
    aoticache_artifact *artifact = NULL;
    dynamic_compile compile = {.hook = holder->eager->hook};
    aoticache_status status = aoticache_request_views(wanted->exact, &views, &compile.count, ret_error);
    if (status == AOTICACHE_OK)
        status = make_example(wanted->exact, &example, ret_error);
    if (status == AOTICACHE_OK) {
        compile.example = example;
        compile.views = views;
        status = aoticache_cache_get_or_compile_dynamic(holder->eager->cache, wanted->family, accepts, &compile,
                                                        compile_dynamic, &compile, &artifact, ret_error);
    }
    aoticache_request_free(example);
    if (status != AOTICACHE_OK)
        return status;
    count_compile(holder, artifact);
    if (accepts(&compile, aoticache_artifact_guard(artifact))) {
        *ret_artifact = artifact;
        return AOTICACHE_OK;
    }
    status = aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "%s: its shapes cannot be symbolic: %.200s",
                                 holder->op, aoticache_artifact_guard(artifact));
    aoticache_artifact_unref(artifact);
    return status;
}

static void set_not_dynamic(aoticache_holder *holder, aoticache_family *family)
{
    pthread_mutex_lock(&holder->lock);
    family->not_dynamic = true;
    pthread_mutex_unlock(&holder->lock);
}

/* A failure for symbolic shapes is none of the call: the exact shape is compiled then, and from now on. */
static aoticache_status get_artifact(aoticache_holder *holder, const aoticache_wanted *wanted,
                                     aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    if (wanted->prefer_dynamic) {
        aoticache_error error;
        aoticache_status status = get_dynamic(holder, wanted, ret_artifact, &error);
        if (status == AOTICACHE_OK)
            return status;
        if (status == AOTICACHE_COMPILE_FAILED || status == AOTICACHE_UNSUPPORTED) {
            set_not_dynamic(holder, wanted->family_state);
            aoticache_log(&holder->eager->logger, AOTICACHE_LOG_INFO, "%s: not for symbolic shapes: %s", holder->op,
                          error.message);
        }
    }
    const aoticache_context *eager = holder->eager;
    aoticache_status status = aoticache_cache_get_or_compile(eager->cache, wanted->exact, aoticache_hook_compile,
                                                             eager->hook, ret_artifact, ret_error);
    if (status == AOTICACHE_OK)
        count_compile(holder, *ret_artifact);
    return status;
}

aoticache_status aoticache_holder_compile(aoticache_holder *holder, aoticache_wanted *wanted,
                                          aoticache_held **ret_held, aoticache_error *ret_error)
{
    aoticache_artifact *artifact = NULL;
    aoticache_error error;
    aoticache_status status = get_artifact(holder, wanted, &artifact, &error);
    if (status == AOTICACHE_COMPILE_FAILED)
        atomic_fetch_add_explicit(&holder->compile_failures, 1, memory_order_relaxed);
    if (status == AOTICACHE_OK) {
        status = aoticache_holder_adopt(holder, wanted, artifact, ret_held, &error);
        if (status == AOTICACHE_LOAD_FAILED && aoticache_artifact_guard(artifact)[0] != '\0')
            set_not_dynamic(holder, wanted->family_state); /* the next try is exact */
    }
    aoticache_artifact_unref(artifact);
    if (status == AOTICACHE_OK) {
        forget_failures(holder, wanted->miss_state);
        return status;
    }
    aoticache_holder_note_failure(holder, wanted->miss_state, status, error.message);
    return aoticache_error_set(ret_error, status, "%s", error.message);
}
