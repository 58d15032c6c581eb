/*
 * eager/holder/holder_run: one run of a library for a call: takes inputs from the stack and pushes the results. And the
 * fallback, which answers instead.
 *
 * holder_call.c and miss.c choose the library, or none.
 */
#include "base/cleanup.h"
#include "eager/holder/holder_hot.h"
#include "loader/tensor.h"

#include <stdlib.h>
#include <string.h>

/* Up to this many tensors are on the thread's stack during a run; more of them are allocated. */
#define TENSORS_ON_STACK 32

/* ---- running a library ---- */

/* Replaces the arguments with the results. There is space for them, or `outputs` is returned as one list. */
static aoticache_status push_results(const aoticache_holder *holder, aoticache_stack *stack, AtenTensorHandle *outputs,
                                     size_t count, aoticache_error *ret_error)
{
    size_t base = stack->count - holder->num_arguments;
    if (holder->returns == AOTICACHE_RETURNS_LIST) {
        AtenTensorHandle *list = malloc((count > 0 ? count : 1) * sizeof *list);
        if (list == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for %zu outputs", holder->op,
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

/* Returns whether a tensor has no handle: it is in the caller's own memory, and the provider must create a tensor for it. */
static bool lacks_handle(const AtenTensorHandle *inputs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (inputs[i] == NULL)
            return true;
    return false;
}

/* Returns the view of input `number`, in the order of aoticache_pack_inputs(). */
static const aoticache_tensor_view *view_of_input(const aoticache_value *arguments, size_t count, size_t number)
{
    for (size_t i = 0; i < count; i++) {
        const aoticache_value *value = &arguments[i];
        const bool is_list = value->kind == AOTICACHE_VALUE_TENSOR_LIST;
        const uint32_t items = is_list ? value->count : value->kind == AOTICACHE_VALUE_TENSOR;
        for (uint32_t k = 0; k < items; k++) {
            const aoticache_tensor_view *view = is_list ? value->as.tensors[k] : value->as.tensor;
            if (view != NULL && number-- == 0)
                return view;
        }
    }
    return NULL;
}

/* Creates a tensor for each input without one. *ret_own: these, at the inputs' positions; the caller frees them and the array. */
static aoticache_status make_handles(const aoticache_holder *holder, const aoticache_value *arguments,
                                     AtenTensorHandle *inputs, size_t count, AtenTensorHandle **ret_own,
                                     aoticache_error *ret_error)
{
    AtenTensorHandle *own = calloc(count, sizeof *own);
    aoticache_status status = AOTICACHE_OK;
    if (own == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for its tensors", holder->op);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        const aoticache_tensor_view *view = view_of_input(arguments, holder->num_arguments, i);
        if (inputs[i] != NULL)
            continue;
        if (view->device.type != AOTICACHE_DEVICE_TYPE_CPU)
            status = aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                         "%s: tensor %zu of its arguments has no handle and is not on the CPU",
                                         holder->op, i);
        else
            status = aoticache_tensor_from_blob(view->data, view->dtype, view->ndim, view->sizes, view->strides,
                                                &own[i], ret_error);
        inputs[i] = own[i];
    }
    *ret_own = own;
    return status;
}

static void free_handles(AtenTensorHandle *own, size_t count)
{
    for (size_t i = 0; own != NULL && i < count; i++)
        aoticache_tensor_free(own[i]);
    free(own);
}

/* Runs with arrays that are large enough. */
static aoticache_status run_with(aoticache_holder *holder, aoticache_runner *runner, aoticache_stack *stack,
                                 AtenTensorHandle *inputs, size_t capacity, AtenTensorHandle *outputs,
                                 size_t num_outputs, aoticache_error *ret_error)
{
    AtenTensorHandle *own = NULL;
    size_t num_inputs = 0, expected = aoticache_runner_hot_of(runner)->num_inputs;
    const aoticache_value *arguments = stack->values + stack->count - holder->num_arguments;
    if (!aoticache_pack_inputs(arguments, holder->num_arguments, inputs, capacity, &num_inputs))
        return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED,
                                   "%s: the library takes %zu tensors, but there are more", holder->op, expected);
    aoticache_status status = AOTICACHE_OK;
    if (__builtin_expect(lacks_handle(inputs, num_inputs), 0)) {
        status = make_handles(holder, arguments, inputs, num_inputs, &own, ret_error);
        if (status != AOTICACHE_OK) {
            free_handles(own, num_inputs);
            return status;
        }
        status = aoticache_runner_run(runner, inputs, num_inputs, outputs, num_outputs, ret_error);
        free_handles(own, num_inputs);
    } else {
        status = aoticache_runner_run(runner, inputs, num_inputs, outputs, num_outputs, ret_error);
    }
    if (__builtin_expect(status != AOTICACHE_OK, 0)) /* INVALID: wrong counts, here an error of the library */
        return status == AOTICACHE_INVALID ? AOTICACHE_LOAD_FAILED : status;
    status = push_results(holder, stack, outputs, num_outputs, ret_error);
    for (size_t i = 0; status != AOTICACHE_OK && i < num_outputs; i++)
        aoticache_tensor_free(outputs[i]);
    return status;
}

aoticache_status aoticache_holder_run(aoticache_holder *holder, aoticache_runner *runner, aoticache_stack *stack,
                                      aoticache_error *ret_error)
{
    AtenTensorHandle inputs[TENSORS_ON_STACK], outputs[TENSORS_ON_STACK];
    const aoticache_runner_hot *hot = aoticache_runner_hot_of(runner);
    size_t num_inputs = hot->num_inputs, num_outputs = hot->num_outputs;
    size_t results = holder->returns == AOTICACHE_RETURNS_LIST ? 1 : num_outputs;
    if (stack->count - holder->num_arguments + results > stack->capacity)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s: the stack has space for %zu values; %zu are needed", holder->op,
                                   stack->capacity, stack->count - holder->num_arguments + results);
    if (__builtin_expect(num_inputs <= TENSORS_ON_STACK && num_outputs <= TENSORS_ON_STACK, 1))
        return run_with(holder, runner, stack, inputs, TENSORS_ON_STACK, outputs, num_outputs, ret_error);
    cleanup_free AtenTensorHandle *more = calloc(num_inputs + num_outputs + 1, sizeof *more);
    if (more == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for %zu tensors", holder->op,
                                   num_inputs + num_outputs);
    return run_with(holder, runner, stack, more, num_inputs, more + num_inputs, num_outputs, ret_error);
}

/* ---- the fallback ---- */

aoticache_status aoticache_holder_fall_back(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                            aoticache_status status, const char *why, aoticache_error *ret_error)
{
    if (holder->fallback == NULL)
        return aoticache_error_set(ret_error, status, "%s: %s, and there is no fallback", holder->op, why);
    atomic_fetch_add_explicit(&holder->fallbacks, 1, memory_order_relaxed);
    return holder->fallback(holder->fallback_user, key_set, stack, ret_error);
}

/* ---- a call whose kernel is ready ---- */

bool aoticache_holder_call_ready(aoticache_holder *holder, aoticache_stack *stack, aoticache_packed *ret_packed,
                                 bool *ret_packs, aoticache_status *ret_status, aoticache_error *ret_error)
{
    *ret_packs =
        aoticache_pack(stack->values + stack->count - holder->num_arguments, holder->num_arguments, ret_packed);
    aoticache_runner *runner = *ret_packs ? aoticache_holder_find_ready(holder, ret_packed) : NULL;
    if (runner == NULL)
        return false;
    *ret_status = aoticache_holder_run(holder, runner, stack, ret_error);
    return true;
}

aoticache_status aoticache_holder_conclude(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                           aoticache_status status, aoticache_error *ret_error)
{
    if (__builtin_expect(status == AOTICACHE_LOAD_FAILED, 0) && !holder->context->fail_calls)
        return aoticache_holder_fall_back(holder, key_set, stack, status, "the library does not accept these arguments",
                                          ret_error);
    return status;
}
