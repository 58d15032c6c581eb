/*
 * eager/torch/binding_call: what a call does that is no plain hit (binding_hot.h): past what only PyTorch's kernel can
 * serve, to the holder, and out again.
 */
#include "eager/torch/binding_hot.h"

#include <stdlib.h>

__thread aoticache_binding_call *aoticache_binding_innermost __attribute__((tls_model("initial-exec")));

bool aoticache_binding_is_inside(const aoticache_binding_operator *op)
{
    for (const aoticache_binding_call *call = aoticache_binding_innermost; call != NULL; call = call->outer)
        if (call->op == op)
            return true;
    return false;
}

void aoticache_binding_recount(aoticache_binding_operator *op)
{
    size_t references = 1;
    for (const aoticache_binding_call *call = aoticache_binding_innermost; call != NULL; call = call->outer)
        references += call->op == op && call->kept;
    atomic_store(&op->references, references);
}

void aoticache_binding_keep(aoticache_binding_call *call)
{
    if (call->kept)
        return;
    atomic_fetch_add(&call->op->references, 1);
    call->kept = true;
    aoticache_epoch_leave(call->slot);
    call->slot = NULL;
}

void aoticache_binding_count_refused(aoticache_binding_operator *op)
{
    atomic_fetch_add_explicit(&op->refused, 1, memory_order_relaxed);
}

aoticache_bridge_result aoticache_binding_refuse(aoticache_binding_call *call)
{
    aoticache_binding_count_refused(call->op);
    return AOTICACHE_BRIDGE_FALLBACK;
}

/* What the holder calls for its fallback: it is to be called by whoever asked us. */
aoticache_status aoticache_binding_want_fallback(void *user, uint64_t key_set, aoticache_stack *stack,
                                                 aoticache_error *ret_error)
{
    (void)user;
    (void)key_set;
    (void)ret_error;
    ((aoticache_binding_call *)(void *)stack)->fallback_wanted = true;
    return AOTICACHE_OK;
}

/*
 * Of what went wrong, the failure of a kernel is the call's, and what the host asked to see; lack of memory and
 * arguments that the holder does not take are no reason to end a program that PyTorch's kernel would serve.
 */
aoticache_bridge_result aoticache_binding_judge(const aoticache_binding_call *call, aoticache_status status)
{
    if (call->fallback_wanted)
        return AOTICACHE_BRIDGE_FALLBACK;
    if (status == AOTICACHE_OK)
        return AOTICACHE_BRIDGE_SERVED;
    bool is_minor = status == AOTICACHE_INVALID || status == AOTICACHE_NO_MEMORY;
    return is_minor && !call->consumed && !call->op->holder->context->fail_calls ? AOTICACHE_BRIDGE_FALLBACK
                                                                               : AOTICACHE_BRIDGE_FAILED;
}

/* Hits of calls with lists and strings come here too. */
aoticache_bridge_result aoticache_binding_answer_slowly(aoticache_binding_call *call, uint64_t key_set,
                                                        const aoticache_packed *packed, bool consume,
                                                        aoticache_error *error)
{
    aoticache_packed again;
    aoticache_status status;
    bool packs = true, *consumed = consume ? &call->consumed : NULL;
    aoticache_binding_operator *op = call->op;
    aoticache_stack *stack = &call->stack;
    if (packed == NULL &&
        aoticache_holder_call_ready(op->holder, stack, &again, &packs, consumed, &status, error)) {
        aoticache_uses_note(op->ready);
        return aoticache_binding_judge(call, aoticache_holder_conclude(op->holder, key_set, stack, status, error));
    }
    atomic_fetch_add_explicit(&op->slow, 1, memory_order_relaxed);
    aoticache_binding_keep(call);
    if (packed == NULL && packs)
        packed = &again;
    status = aoticache_holder_call_slowly(op->holder, key_set, stack, packed, consumed, error);
    return aoticache_binding_judge(call, status);
}
