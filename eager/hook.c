/*
 * eager/hook: what all compile hooks share: options, the call of a compile, delivery of what it made, the end.
 *
 * The kinds are worker.c, command.c and c_source.c.
 */
#include "eager/hook.h"
#include "base/cleanup.h"

#include <string.h>

aoticache_status aoticache_hook_read_options(const aoticache_hook_options *options, aoticache_hook_options *ret_options,
                                             aoticache_error *ret_error)
{
    aoticache_hook_options all = AOTICACHE_HOOK_OPTIONS_INIT;
    if (options != NULL) {
        if (options->size < sizeof(size_t) || options->size > 4096)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "hook options: size is %zu; use %s", options->size,
                                       "AOTICACHE_HOOK_OPTIONS_INIT");
        memcpy(&all, options, options->size < sizeof all ? options->size : sizeof all);
    }
    *ret_options = all;
    return AOTICACHE_OK;
}

aoticache_status aoticache_hook_allocate(const aoticache_hook_kind *kind, const aoticache_hook_options *options,
                                         const char *program, aoticache_hook **ret_hook, aoticache_error *ret_error)
{
    aoticache_cpu_features features;
    if (options->cpu_features != NULL) {
        aoticache_status status = aoticache_cpu_features_parse(options->cpu_features, &features, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    aoticache_hook *hook = calloc(1, sizeof *hook);
    if (hook == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook: out of memory");
    hook->kind = kind;
    hook->timeout_seconds = options->timeout_seconds != 0 ? options->timeout_seconds
                                                          : AOTICACHE_HOOK_DEFAULT_TIMEOUT_SECONDS;
    hook->logger = options->logger;
    hook->program = strdup(program);
    hook->cpu_features = options->cpu_features != NULL ? strdup(options->cpu_features) : NULL;
    if (hook->program == NULL || (options->cpu_features != NULL && hook->cpu_features == NULL)) {
        aoticache_hook_free(hook);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "hook: out of memory");
    }
    *ret_hook = hook;
    return AOTICACHE_OK;
}

void aoticache_hook_free(aoticache_hook *hook)
{
    if (hook == NULL)
        return;
    int saved = errno;
    if (hook->state != NULL)
        hook->kind->free_state(hook);
    free(hook->program);
    free(hook->cpu_features);
    free(hook);
    errno = saved;
}

const char *aoticache_hook_producer(const aoticache_hook *hook)
{
    return hook != NULL ? hook->kind->producer(hook) : "";
}

aoticache_status aoticache_hook_set_environment(const aoticache_hook *hook, aoticache_request *request,
                                                aoticache_error *ret_error)
{
    if (hook == NULL || request == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "hook environment: %s is NULL",
                                   hook == NULL ? "hook" : "request");
    return hook->kind->set_environment(hook, request, ret_error);
}

static aoticache_status check_compile(const aoticache_hook *hook, const aoticache_request *request,
                                      const char *directory, aoticache_deliver_fn deliver, aoticache_error *ret_error)
{
    if (hook == NULL || request == NULL || directory == NULL || deliver == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "hook compile: an argument is NULL");
    if (directory[0] != '/')
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "hook compile: directory %s is not absolute",
                                   directory);
    return AOTICACHE_OK;
}

aoticache_status aoticache_hook_compile(void *user, const aoticache_request *request, const char *directory,
                                        aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    aoticache_hook *hook = user;
    aoticache_status status = check_compile(hook, request, directory, deliver, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_answer answer = {.product = AOTICACHE_PRODUCT_INIT};
    uint64_t start_ns = aoticache_monotonic_ns();
    uint64_t deadline_ns = start_ns + (uint64_t)hook->timeout_seconds * 1000000000;
    status = hook->kind->compile(hook, request, directory, deadline_ns, &answer, ret_error);
    if (status == AOTICACHE_CORRUPT) {
        status = AOTICACHE_COMPILE_FAILED;
        if (ret_error != NULL)
            ret_error->status = status;
    }
    if (status != AOTICACHE_OK)
        return status;
    if (answer.product.compile_ns == 0)
        answer.product.compile_ns = aoticache_monotonic_ns() - start_ns;
    if (answer.product.producer == NULL)
        answer.product.producer = aoticache_hook_producer(hook);
    status = deliver(deliver_user, &answer.product);
    aoticache_answer_free(&answer);
    return status;
}

aoticache_status aoticache_hook_explain(const aoticache_hook *hook, aoticache_process *process,
                                        aoticache_process_event event, const char *doing,
                                        aoticache_error *ret_error)
{
    char how[96];
    if (event == AOTICACHE_PROCESS_TIMEOUT)
        snprintf(how, sizeof how, "took longer than %u s and was killed", (unsigned)hook->timeout_seconds);
    else if (event == AOTICACHE_PROCESS_OVERFLOW)
        snprintf(how, sizeof how, "answered with more than %d bytes and was killed", AOTICACHE_PROTOCOL_LINE_BYTES);
    else if (event == AOTICACHE_PROCESS_FAILURE)
        snprintf(how, sizeof how, "could not be reached (errno %d)", errno);
    else
        aoticache_process_describe_end(process, how, sizeof how);
    const char *words = aoticache_process_last_words(process, AOTICACHE_ERROR_MESSAGE_BYTES - 512);
    return aoticache_error_set(ret_error, AOTICACHE_COMPILE_FAILED, "hook %s (%.160s) %s, %.120s%s%s", hook->kind->name,
                               hook->program, how, doing, words[0] != '\0' ? "; it said:\n" : "", words);
}
