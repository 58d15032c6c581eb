/*
 * eager/torch/binding_hot: a call that hits, inline from its entry to its results. PyTorch's own way to a kernel is
 * long and fills the caches of the CPU: every function less on ours can be measured. What is seldom is in
 * binding_call.c.
 *
 * Private.
 */
#ifndef AOTICACHE_EAGER_TORCH_BINDING_HOT_H
#define AOTICACHE_EAGER_TORCH_BINDING_HOT_H

#include "eager/holder/hot.h"
#include "eager/torch/binding_state.h"

/* The calls that this thread is inside, the innermost first. */
extern __thread aoticache_binding_call *aoticache_binding_innermost __attribute__((tls_model("initial-exec")));

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
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    if (__builtin_expect(slot == NULL, 0))
        return AOTICACHE_BINDING_NO_THREAD;
    aoticache_binding_operator *op = atomic_load_explicit(&registration->op, memory_order_acquire);
    if (__builtin_expect(op == NULL, 0)) {
        aoticache_epoch_leave(slot);
        return AOTICACHE_BINDING_GONE;
    }
    ret_call->op = op;
    ret_call->slot = slot;
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
        aoticache_epoch_leave(call->slot);
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
    if (__builtin_expect(!aoticache_holder_call_hot(op->holder, &call->stack, 0, &packed, &packs,
                                                    consume ? &call->consumed : NULL, &status, error), 0))
        return aoticache_binding_answer_slowly(call, key_set, packs ? &packed : NULL, consume, error);
    aoticache_uses_note(op->ready);
    if (__builtin_expect(status == AOTICACHE_OK, 1))
        return AOTICACHE_BRIDGE_SERVED;
    return aoticache_binding_judge(call, aoticache_holder_conclude(op->holder, key_set, &call->stack, status, error));
}

#endif
