/*
 * eager/torch/binding_hot: a call that hits, inline from its entry to its results. PyTorch's own way to a kernel is
 * long and fills the caches of the CPU: every function less on ours can be measured. What is seldom is in
 * binding_call.c.
 *
 * Private.
 */
#ifndef AOTICACHE_EAGER_TORCH_BINDING_HOT_H
#define AOTICACHE_EAGER_TORCH_BINDING_HOT_H

#include "eager/holder/pack_inline.h"
#include "eager/torch/binding_state.h"

/* The calls that this thread is inside, the innermost first. */
extern __thread aoticache_binding_call *aoticache_binding_innermost __attribute__((tls_model("initial-exec")));

/* Up to so many tensors, in and out, are run inline; of calls with more it is no matter. */
#define AOTICACHE_BINDING_FEW_TENSORS 8

/* ---- in and out ---- */

/* The call lies on its caller's stack; end() takes it off the list before that returns, which GCC cannot see. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdangling-pointer"
#endif
static inline void aoticache_binding_push(aoticache_binding_call *call)
{
    aoticache_binding_innermost = call;
}
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#pragma GCC diagnostic pop
#endif

/* ENTERED: end() must follow. ret_call: its stack is left to the caller. */
static inline aoticache_binding_entry aoticache_binding_begin(const aoticache_registration *registration,
                                                              aoticache_binding_call *ret_call)
{
    aoticache_epoch_slot *section = aoticache_epoch_enter();
    if (__builtin_expect(section == NULL, 0))
        return AOTICACHE_BINDING_NO_THREAD;
    aoticache_binding_operator *op = atomic_load_explicit(&registration->op, memory_order_acquire);
    if (__builtin_expect(op == NULL, 0)) {
        aoticache_epoch_leave(section);
        return AOTICACHE_BINDING_GONE;
    }
    ret_call->op = op;
    ret_call->section = section;
    ret_call->outer = aoticache_binding_innermost;
    ret_call->fallback_wanted = false;
    ret_call->kept = false;
    ret_call->consumed = false;
    aoticache_binding_push(ret_call);
    return AOTICACHE_BINDING_ENTERED;
}

static inline void aoticache_binding_end(aoticache_binding_call *call)
{
    aoticache_binding_innermost = call->outer;
    if (__builtin_expect(!call->kept, 1))
        aoticache_epoch_leave(call->section);
    else
        aoticache_binding_operator_unref(call->op);
}

/* ---- the answer ---- */

/* A kernel library may call its own operator through the dispatcher: then PyTorch's kernel is meant. */
static inline bool aoticache_binding_is_recursive(const aoticache_binding_call *call)
{
    for (const aoticache_binding_call *outer = call->outer; __builtin_expect(outer != NULL, 0); outer = outer->outer)
        if (outer->op == call->op)
            return true;
    return false;
}

/* The runner that is ready for these arguments; NULL: none, or they have to be packed by aoticache_pack(). */
static inline aoticache_runner *aoticache_binding_probe(aoticache_holder *holder, const aoticache_stack *stack,
                                                        aoticache_packed *packed, bool *ret_packs)
{
    *ret_packs = aoticache_pack_plainly(stack->values, stack->count, packed);
    if (__builtin_expect(!*ret_packs, 0))
        return NULL;
    const aoticache_table_entry *entry = aoticache_table_find(&holder->table, packed);
    if (__builtin_expect(entry == NULL, 0))
        return NULL;
    aoticache_unit *unit = atomic_load(&entry->unit);
    aoticache_runner *runner = atomic_load(&unit->runner);
    if (__builtin_expect(runner != NULL, 1))
        aoticache_holder_note_use(holder, unit);
    return runner;
}

/* False: this is not for few tensors, and was not run. The arguments are tensors and numbers. */
static inline bool aoticache_binding_run_few(aoticache_binding_call *call, aoticache_runner *runner, bool consume,
                                             aoticache_status *ret_status, aoticache_error *error)
{
    AtenTensorHandle inputs[AOTICACHE_BINDING_FEW_TENSORS], outputs[AOTICACHE_BINDING_FEW_TENSORS];
    aoticache_stack *stack = &call->stack;
    size_t used = 0, num_outputs = aoticache_runner_num_outputs(runner);
    for (size_t i = 0; i < stack->count; i++) {
        if (stack->values[i].kind != AOTICACHE_VALUE_TENSOR)
            continue;
        if (__builtin_expect(used == AOTICACHE_BINDING_FEW_TENSORS, 0))
            return false;
        inputs[used++] = stack->values[i].as.tensor->handle;
    }
    if (__builtin_expect(used != aoticache_runner_num_inputs(runner) || num_outputs > AOTICACHE_BINDING_FEW_TENSORS ||
                             num_outputs > stack->capacity ||
                             call->op->holder->returns != AOTICACHE_RETURNS_TENSORS, 0))
        return false;
    call->consumed = consume;
    aoticache_status status = consume ? aoticache_runner_run_stealing(runner, inputs, used, outputs, num_outputs, error)
                                      : aoticache_runner_run(runner, inputs, used, outputs, num_outputs, error);
    *ret_status = status;
    if (__builtin_expect(status != AOTICACHE_OK, 0))
        return true;
    for (size_t i = 0; i < num_outputs; i++) {
        stack->values[i].kind = AOTICACHE_VALUE_OUTPUT;
        stack->values[i].as.output = outputs[i];
    }
    stack->count = num_outputs;
    return true;
}

/*
 * wrapped: as aoticache_bridge_host's. consume: a kernel may take the handles of the tensors (call->consumed says
 * whether it did, whatever the result).
 */
static inline aoticache_bridge_result aoticache_binding_answer(aoticache_binding_call *call, uint64_t key_set,
                                                               uint64_t wrapped, bool consume, aoticache_error *error)
{
    aoticache_packed packed;
    aoticache_status status;
    bool packs;
    aoticache_binding_operator *op = call->op;
    if (__builtin_expect(call->stack.count != op->holder->num_arguments || aoticache_binding_is_recursive(call), 0))
        return aoticache_binding_refuse(call);
    if (wrapped != 0 && !aoticache_wrapped_numbers_do_not_matter(call->stack.values, call->stack.count, wrapped))
        return aoticache_binding_refuse(call);
    aoticache_runner *runner = aoticache_binding_probe(op->holder, &call->stack, &packed, &packs);
    if (__builtin_expect(runner == NULL, 0))
        return aoticache_binding_answer_slowly(call, key_set, packs ? &packed : NULL, consume, error);
    aoticache_uses_note(op->ready);
    if (__builtin_expect(!aoticache_binding_run_few(call, runner, consume, &status, error), 0))
        status = aoticache_holder_run(op->holder, runner, &call->stack, consume ? &call->consumed : NULL, error);
    if (__builtin_expect(status == AOTICACHE_OK, 1))
        return AOTICACHE_BRIDGE_SERVED;
    return aoticache_binding_judge(call, aoticache_holder_conclude(op->holder, key_set, &call->stack, status, error));
}

#endif
