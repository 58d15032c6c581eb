/*
 * eager/holder/run: one run of a library for a call: its inputs come from the stack, its results go there. And the fallback,
 * which answers in its place.
 *
 * Leaves to call.c which library, or neither.
 */
#include "base/cleanup.h"
#include "eager/holder/hot.h"

#include <stdlib.h>
#include <string.h>

/* This many tensors lie on the stack during a run; more of them are allocated. */
#define TENSORS_ON_STACK 32

/* ---- running a library ---- */

/* Takes the arguments off and puts the results on; there is room, or `outputs` is what goes to the caller as one list. */
static aoticache_status push_results(const aoticache_holder *holder, aoticache_stack *stack, AtenTensorHandle *outputs,
                                     size_t count, aoticache_error *ret_error)
{
    size_t base = stack->count - holder->num_arguments;
    if (holder->returns == AOTICACHE_RETURNS_LIST) {
        AtenTensorHandle *list = malloc((count > 0 ? count : 1) * sizeof *list);
        if (list == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: no memory for %zu outputs", holder->op,
                                       count);
        memcpy(list, outputs, count * sizeof *list);
        stack->values[base] =
            (aoticache_value){.kind = AOTICACHE_VALUE_OUTPUT_LIST, .count = (uint32_t)count, .as.outputs = list};
        stack->count = base + 1;
        return AOTICACHE_OK;
    }
    for (size_t i = 0; i < count; i++)
        stack->values[base + i] = (aoticache_value){.kind = AOTICACHE_VALUE_OUTPUT, .as.output = outputs[i]};
    stack->count = base + count;
    return AOTICACHE_OK;
}

/* Runs with arrays that are large enough. */
static aoticache_status run_with(aoticache_holder *holder, aoticache_runner *runner, aoticache_stack *stack,
                                 AtenTensorHandle *inputs, size_t capacity, AtenTensorHandle *outputs,
                                 size_t num_outputs, bool *consumed, aoticache_error *ret_error)
{
    size_t num_inputs = 0, expected = aoticache_runner_num_inputs(runner);
    const aoticache_value *arguments = stack->values + stack->count - holder->num_arguments;
    if (!aoticache_pack_inputs(arguments, holder->num_arguments, inputs, capacity, &num_inputs))
        return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED,
                                   "%s: the library takes %zu tensors, there are more", holder->op, expected);
    aoticache_status status;
    if (consumed == NULL || num_inputs != expected) { /* the latter is refused, and nothing may be taken */
        status = aoticache_runner_run(runner, inputs, num_inputs, outputs, num_outputs, ret_error);
    } else {
        *consumed = true;
        status = aoticache_runner_run_stealing(runner, inputs, num_inputs, outputs, num_outputs, ret_error);
    }
    if (__builtin_expect(status != AOTICACHE_OK, 0)) /* INVALID: the counts, which are the library's fault here */
        return status == AOTICACHE_INVALID ? AOTICACHE_LOAD_FAILED : status;
    status = push_results(holder, stack, outputs, num_outputs, ret_error);
    for (size_t i = 0; status != AOTICACHE_OK && i < num_outputs; i++)
        aoticache_tensor_free(outputs[i]);
    return status;
}

aoticache_status aoticache_holder_run(aoticache_holder *holder, aoticache_runner *runner, aoticache_stack *stack,
                                      bool *consumed, aoticache_error *ret_error)
{
    AtenTensorHandle inputs[TENSORS_ON_STACK], outputs[TENSORS_ON_STACK];
    size_t num_inputs = aoticache_runner_num_inputs(runner), num_outputs = aoticache_runner_num_outputs(runner);
    size_t results = holder->returns == AOTICACHE_RETURNS_LIST ? 1 : num_outputs;
    if (stack->count - holder->num_arguments + results > stack->capacity)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: the stack has %zu places, %zu are needed",
                                   holder->op, stack->capacity, stack->count - holder->num_arguments + results);
    if (__builtin_expect(num_inputs <= TENSORS_ON_STACK && num_outputs <= TENSORS_ON_STACK, 1))
        return run_with(holder, runner, stack, inputs, TENSORS_ON_STACK, outputs, num_outputs, consumed, ret_error);
    cleanup_free AtenTensorHandle *more = calloc(num_inputs + num_outputs + 1, sizeof *more);
    if (more == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: no memory for %zu tensors", holder->op,
                                   num_inputs + num_outputs);
    return run_with(holder, runner, stack, more, num_inputs, more + num_inputs, num_outputs, consumed, ret_error);
}

/* ---- the fallback ---- */

aoticache_status aoticache_holder_fall_back(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                            aoticache_status status, const char *why, aoticache_error *ret_error)
{
    if (holder->fallback == NULL)
        return aoticache_error_set(ret_error, status, "%s: %s; and there is no fallback", holder->op, why);
    atomic_fetch_add_explicit(&holder->fallbacks, 1, memory_order_relaxed);
    return holder->fallback(holder->fallback_user, key_set, stack, ret_error);
}

/* ---- a call whose kernel is ready ---- */

bool aoticache_holder_call_ready(aoticache_holder *holder, aoticache_stack *stack, aoticache_packed *ret_packed,
                                 bool *ret_packs, bool *consumed, aoticache_status *ret_status,
                                 aoticache_error *ret_error)
{
    *ret_packs =
        aoticache_pack(stack->values + stack->count - holder->num_arguments, holder->num_arguments, ret_packed);
    aoticache_runner *runner = *ret_packs ? aoticache_holder_find_ready(holder, ret_packed) : NULL;
    if (runner == NULL)
        return false;
    *ret_status = aoticache_holder_run(holder, runner, stack, consumed, ret_error);
    return true;
}

aoticache_status aoticache_holder_conclude(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                           aoticache_status status, aoticache_error *ret_error)
{
    if (__builtin_expect(status == AOTICACHE_LOAD_FAILED, 0) && !holder->context->fail_calls)
        return aoticache_holder_fall_back(holder, key_set, stack, status, "the library is none for these arguments",
                                          ret_error);
    return status;
}
