/*
 * eager/torch/stable_call: a call that came over the stable C ABI: its values read, answered by the core or by the
 * fallback, and its results or its exception handed back. Everything of a call is given back before an exception
 * leaves it.
 */
#include "eager/torch/binding_hot.h"

#include <stdlib.h>
#include <string.h>

typedef struct stable_call {
    aoticache_binding_call core;
    aoticache_stable_arguments arguments;
    aoticache_error error;
} stable_call;

static void throw(const aoticache_stable *stable, const char *message)
{
    stable->aoti_torch_check(false, __func__, __FILE__, __LINE__, message);
}

/* ---- without the core ---- */

/*
 * The operator was taken back after PyTorch had chosen our function: its own kernel is there again, and the dispatcher
 * finds it by the name. Where this call stands among the dispatch keys is in the thread's own state.
 */
static void call_again(const aoticache_registration *registration, uint64_t *stack)
{
    const aoticache_stable *stable = &registration->stable;
    if (stable->torch_call_dispatcher(registration->name, registration->overload, stack, registration->torch_version) == 0)
        return;
    const char *what = stable->torch_exception_get_what != NULL ? stable->torch_exception_get_what() : NULL;
    throw(stable, what != NULL ? what : "the operator failed after aoticache had given it back");
}

/* The operator was retired: PyTorch still has our function, by the name it would come here again. */
static void let_through(const aoticache_registration *registration, uint64_t *stack, uint64_t num_inputs, uint64_t num_outputs)
{
    aoticache_error error;
    error.message[0] = '\0';
    if (registration->fallback(registration->fallback_user, stack, num_inputs, num_outputs, error.message, sizeof error.message) != 0)
        throw(&registration->stable, error.message);
}

static __attribute__((noinline)) void call_without_operator(const aoticache_registration *registration, uint64_t *stack,
                                                            uint64_t num_inputs, uint64_t num_outputs)
{
    if (registration->library != NULL)
        let_through(registration, stack, num_inputs, num_outputs);
    else
        call_again(registration, stack);
}

/* ---- answers ---- */

static __attribute__((noinline)) bool refuse_results(stable_call *call, uint64_t num_outputs)
{
    aoticache_error_set(&call->error, AOTICACHE_RUN_FAILED, "%s: the kernel gave %zu results, not %llu",
                        aoticache_holder_op(call->core.op->holder), call->core.stack.count,
                        (unsigned long long)num_outputs);
    aoticache_stack_drop(&call->core.stack, 0);
    return false;
}

/* False: a library that gives another number of tensors than the operator has results. */
static inline bool push_results(stable_call *call, uint64_t *stack, uint64_t num_outputs)
{
    aoticache_stack *results = &call->core.stack;
    if (__builtin_expect(results->count != num_outputs, 0))
        return refuse_results(call, num_outputs);
    for (size_t i = 0; i < results->count; i++)
        stack[i] = (uint64_t)(uintptr_t)results->values[i].as.output;
    return true;
}

/* The arguments are the fallback's from here on, the operator stays until it is back. */
static __attribute__((noinline)) bool fall_back(stable_call *call, uint64_t *stack, uint64_t num_inputs,
                                                uint64_t num_outputs)
{
    const aoticache_registration *registration = call->core.op->registration;
    call->error.message[0] = '\0';
    aoticache_binding_keep(&call->core);
    return registration->fallback(registration->fallback_user, stack, num_inputs, num_outputs, call->error.message,
                           sizeof call->error.message) == 0;
}

static __attribute__((noinline)) bool fail_or_fall_back(stable_call *call, aoticache_bridge_result result,
                                                        uint64_t *stack, uint64_t num_inputs, uint64_t num_outputs)
{
    const aoticache_binding_operator *op = call->core.op;
    if (result == AOTICACHE_BRIDGE_FALLBACK)
        return fall_back(call, stack, num_inputs, num_outputs);
    aoticache_stable_release(&op->registration->stable, op->plan, stack, call->core.consumed);
    return false;
}

/* The arguments are read; false: the call has failed, with a message. */
static inline bool answer(stable_call *call, uint64_t *stack, uint64_t num_inputs, uint64_t num_outputs)
{
    aoticache_binding_operator *op = call->core.op;
    const aoticache_stable *stable = &op->registration->stable;
    aoticache_stable_arguments *arguments = &call->arguments;
    call->core.stack.values = arguments->values;
    call->core.stack.count = arguments->count;
    call->core.stack.capacity = AOTICACHE_STABLE_MAX_ARGUMENTS;
    aoticache_bridge_result result =
        aoticache_binding_answer(&call->core, 0, arguments->wrapped, true, &call->error);
    if (op->plan->has_lists)
        aoticache_stable_drop(op->plan, arguments);
    if (__builtin_expect(result != AOTICACHE_BRIDGE_SERVED, 0))
        return fail_or_fall_back(call, result, stack, num_inputs, num_outputs);
    if (!op->plan->is_plain)
        aoticache_stable_release(stable, op->plan, stack, call->core.consumed);
    return push_results(call, stack, num_outputs);
}

static inline bool read_arguments(stable_call *call, const uint64_t *stack, uint64_t num_inputs)
{
    const aoticache_binding_operator *op = call->core.op;
    const aoticache_stable_plan *plan = op->plan;
    if (__builtin_expect(num_inputs != plan->count, 0))
        return false;
    return plan->is_plain ? aoticache_stable_read_plainly(&op->registration->stable, plan, stack, &call->arguments)
                          : aoticache_stable_read(&op->registration->stable, plan, stack, &call->arguments);
}

static inline bool serve(stable_call *call, uint64_t *stack, uint64_t num_inputs, uint64_t num_outputs)
{
    if (__builtin_expect(read_arguments(call, stack, num_inputs), 1))
        return answer(call, stack, num_inputs, num_outputs);
    aoticache_binding_count_refused(call->core.op);
    return fall_back(call, stack, num_inputs, num_outputs);
}

void aoticache_stable_call(uint32_t slot, uint64_t *stack, uint64_t num_inputs, uint64_t num_outputs)
{
    stable_call call;
    const aoticache_registration *registration = aoticache_registration_of_slot(slot);
    aoticache_binding_entry entry = aoticache_binding_begin(registration, &call.core);
    if (__builtin_expect(entry == AOTICACHE_BINDING_GONE, 0)) {
        call_without_operator(registration, stack, num_inputs, num_outputs);
        return;
    }
    if (__builtin_expect(entry == AOTICACHE_BINDING_NO_THREAD, 0))
        throw(&registration->stable, "aoticache: no memory for a thread's state"); /* without a plan the arguments leak */
    bool served = serve(&call, stack, num_inputs, num_outputs);
    aoticache_binding_end(&call.core);
    if (__builtin_expect(!served, 0))
        throw(&registration->stable, call.error.message);
}
