/*
 * eager/compile/callback: the hook that calls a function of the caller.
 *
 * Owns a copy of the caller's options. hook.c checks what the function delivers, as for all hooks.
 */
#include "base/arguments.h"
#include "base/options.h"
#include "eager/compile/hook_internal.h"

#include <stdlib.h>
#include <string.h>

#define PRODUCER_BYTES 256

struct callback_state {
    aoticache_callback callback; /* its producer is not used */
    char producer[PRODUCER_BYTES];
};

static aoticache_status callback_set_environment(const aoticache_hook *hook, aoticache_request *request,
                                                 aoticache_error *ret_error)
{
    const struct callback_state *state = hook->state;
    if (state->callback.set_environment != NULL)
        return state->callback.set_environment(state->callback.user, request, ret_error);
    return aoticache_request_set_environment(request, "framework", state->producer, ret_error);
}

static aoticache_status callback_compile(aoticache_hook *hook, const aoticache_request *request, const char *directory,
                                         aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    const struct callback_state *state = hook->state;
    return state->callback.compile(state->callback.user, request, directory, deliver, deliver_user, ret_error);
}

static const char *callback_producer(const aoticache_hook *hook)
{
    return ((const struct callback_state *)hook->state)->producer;
}

static aoticache_hook_shapes callback_shapes(const aoticache_hook *hook)
{
    const struct callback_state *state = hook->state;
    return state->callback.dynamic ? AOTICACHE_HOOK_SHAPES_DYNAMIC : AOTICACHE_HOOK_SHAPES_EXACT;
}

static bool callback_takes_numbers(const aoticache_hook *hook)
{
    return ((const struct callback_state *)hook->state)->callback.numbers;
}

static void callback_free_state(aoticache_hook *hook)
{
    free(hook->state);
}

static const aoticache_hook_kind callback_kind = {
    .name = "callback",
    .set_environment = callback_set_environment,
    .compile_and_deliver = callback_compile,
    .producer = callback_producer,
    .shapes = callback_shapes,
    .takes_numbers = callback_takes_numbers,
    .free_state = callback_free_state,
};

static aoticache_status read_callback(const aoticache_callback *callback, aoticache_callback *ret_callback,
                                      aoticache_error *ret_error)
{
    aoticache_callback all;
    aoticache_status status =
        AOTICACHE_OPTIONS_READ(aoticache_callback, AOTICACHE_CALLBACK_INIT, callback, &all, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (all.compile == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "aoticache_hook_create_callback: callback.compile is NULL");
    if (all.producer == NULL || all.producer[0] == '\0' || strlen(all.producer) >= PRODUCER_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "hook callback: producer has %zu bytes; it must have 1 to %d (\"mycompiler "
                                   "1.2\")",
                                   all.producer != NULL ? strlen(all.producer) : 0, PRODUCER_BYTES - 1);
    *ret_callback = all;
    return AOTICACHE_OK;
}

aoticache_status aoticache_hook_create_callback(const aoticache_callback *callback, aoticache_hook **ret_hook,
                                                aoticache_error *ret_error)
{
    aoticache_callback all;
    aoticache_hook *hook;
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_status status = read_callback(callback, &all, ret_error);
    if (status == AOTICACHE_OK && ret_hook == NULL)
        status = AOTICACHE_REFUSE_NULL(ret_error, ret_hook);
    if (status == AOTICACHE_OK)
        status = aoticache_hook_allocate(&callback_kind, &options, all.producer, sizeof(struct callback_state), &hook,
                                         ret_error);
    if (status != AOTICACHE_OK)
        return status;
    struct callback_state *state = hook->state;
    state->callback = all;
    state->callback.producer = NULL;
    memcpy(state->producer, all.producer, strlen(all.producer) + 1);
    *ret_hook = hook;
    return AOTICACHE_OK;
}
