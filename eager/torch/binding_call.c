/*
 * eager/torch/binding_call: a call that is not a plain hit (torch_internal.h). Calls that only PyTorch's kernel can serve are
 * refused, the others go to the holder.
 */
#include "eager/torch/torch_internal.h"

#include <stdlib.h>

__thread aoticache_binding_call *aoticache_binding_innermost __attribute__((tls_model("initial-exec")));

void aoticache_binding_operator_unref(aoticache_binding_operator *op)
{
    if (atomic_fetch_sub(&op->references, 1) != 1)
        return;
    aoticache_holder_unref(op->holder);
    aoticache_call_counts_close(op->ready);
    free(op);
}

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

/* Leaves the epoch but keeps the operator, by a reference: before anything of unknown duration. */
static void keep(aoticache_binding_call *call)
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

/* The holder's fallback: notes that our caller must call PyTorch's kernel. */
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
 * Converts the holder's status. The call fails only if the host requested that, otherwise PyTorch's kernel answers: a kernel
 * that fails has written nothing except its own results. PyTorch's kernel then raises its own exception, if the arguments are
 * invalid, or has the results. But if the kernel may have written to some arguments before it failed, the call fails.
 */
aoticache_bridge_result aoticache_binding_judge(const aoticache_binding_call *call, aoticache_status status)
{
    if (call->fallback_wanted)
        return AOTICACHE_BRIDGE_FALLBACK;
    if (status == AOTICACHE_OK)
        return AOTICACHE_BRIDGE_SERVED;
    bool is_minor = status == AOTICACHE_INVALID || status == AOTICACHE_NO_MEMORY ||
                    (status == AOTICACHE_RUN_FAILED && call->op->holder->written == 0);
    return is_minor && !call->op->holder->context->fail_calls ? AOTICACHE_BRIDGE_FALLBACK : AOTICACHE_BRIDGE_FAILED;
}

/* Answers a call without a ready kernel. packed: NULL if no kernel can take it. substituted: its substitutions, or NULL. */
static aoticache_bridge_result answer_unready(aoticache_binding_call *call, uint64_t key_set,
                                              const aoticache_packed *packed, aoticache_numbers *substituted,
                                              bool may_compile, aoticache_error *error)
{
    bool compiles = false;
    aoticache_binding_operator *op = call->op;
    if (packed != NULL && aoticache_holder_prefers_fallback(op->holder, packed)) {
        aoticache_binding_note_left(op);
        return AOTICACHE_BRIDGE_FALLBACK;
    }
    keep(call);
    /* The bridge takes the turns of trials, before it calls. */
    aoticache_timed_call timed = {.is_untimed = true, .substituted = substituted};
    aoticache_status status = aoticache_holder_call_slow_path(op->holder, key_set, &call->stack, packed, &timed,
                                                              may_compile ? NULL : &compiles, error);
    if (timed.was_wanted)
        aoticache_binding_want_timing(op);
    if (compiles)
        return AOTICACHE_BRIDGE_FALLBACK_FIRST;
    if (timed.is_deferred) { /* calls that each need another kernel are bypassed, like those with a slower kernel */
        atomic_fetch_add_explicit(&op->spared, 1, memory_order_relaxed);
        aoticache_binding_note_left(op);
        return aoticache_binding_judge(call, status);
    }
    atomic_fetch_add_explicit(&op->slow, 1, memory_order_relaxed);
    return aoticache_binding_judge(call, status);
}

/* Answers with a kernel that is ready for these arguments, of any kinds; *ret_result is its result. False: none is ready. */
static bool answer_ready(aoticache_binding_call *call, uint64_t key_set, aoticache_packed *ret_packed, bool *ret_packs,
                         aoticache_bridge_result *ret_result, aoticache_error *error)
{
    aoticache_status status;
    aoticache_binding_operator *op = call->op;
    if (!aoticache_holder_call_ready(op->holder, &call->stack, ret_packed, ret_packs, &status, error))
        return false;
    aoticache_call_counts_note(op->ready);
    status = aoticache_holder_conclude(op->holder, key_set, &call->stack, status, error);
    *ret_result = aoticache_binding_judge(call, status);
    return true;
}

/* Answers a call with substituted tensors, with a kernel that reads its numbers from them. */
static aoticache_bridge_result answer_substituted(aoticache_binding_call *call, uint64_t key_set,
                                                  aoticache_numbers *substituted, bool may_compile,
                                                  aoticache_error *error)
{
    aoticache_packed packed;
    aoticache_bridge_result result;
    bool packs;
    if (!answer_ready(call, key_set, &packed, &packs, &result, error))
        result = answer_unready(call, key_set, packs ? &packed : NULL, substituted, may_compile, error);
    aoticache_numbers_take_back(substituted);
    return result;
}

/* Answers a call. Also hits with lists and strings, and hits with changing numbers, come here. */
aoticache_bridge_result aoticache_binding_answer_slow_path(aoticache_binding_call *call, uint64_t key_set,
                                                           const aoticache_packed *packed, bool may_compile,
                                                           aoticache_error *error)
{
    aoticache_packed again;
    aoticache_numbers numbers;
    aoticache_bridge_result result;
    bool packs = true;
    if (packed == NULL && answer_ready(call, key_set, &again, &packs, &result, error))
        return result;
    if (packed == NULL && packs)
        packed = &again;
    if (packed != NULL && aoticache_numbers_substitute(call->op->holder, call->stack.values, packed, &numbers)) {
        if (aoticache_numbers_make_tensors(&numbers))
            return answer_substituted(call, key_set, &numbers, may_compile, error);
        aoticache_numbers_take_back(&numbers);
    }
    return answer_unready(call, key_set, packed, NULL, may_compile, error);
}

void aoticache_binding_prepare(aoticache_binding_call *call, uint64_t wrapped)
{
    aoticache_packed packed;
    aoticache_numbers numbers;
    aoticache_binding_operator *op = call->op;
    const aoticache_stack *stack = &call->stack;
    const uint32_t settings = aoticache_settings_read(op);
    if (!aoticache_binding_admits(call) || (settings != 0 && !aoticache_binding_admits_settings(call, settings)) ||
        (wrapped != 0 && !aoticache_wrapped_numbers_do_not_matter(stack->values, stack->count, wrapped)) ||
        !aoticache_pack(stack->values, stack->count, &packed)) {
        aoticache_binding_count_refused(op);
        return;
    }
    const bool substituted = aoticache_numbers_substitute(op->holder, stack->values, &packed, &numbers);
    const bool packs = !substituted || aoticache_pack(stack->values, stack->count, &packed);
    keep(call);
    if (packs)
        aoticache_holder_prepare(op->holder, &call->stack, &packed);
    if (substituted)
        aoticache_numbers_take_back(&numbers);
    atomic_fetch_add_explicit(&op->slow, 1, memory_order_relaxed);
}

/* ---- wrapped numbers ---- */

/*
 * The categories of dtypes, to find out whether a wrapped number promotes as a zero-dimensional tensor would.
 *
 * Source: c10/core/ScalarType.h (categories), aten/src/ATen/native/TypeProperties.cpp (ResultTypeState,
 * combine_categories). Kernel libraries are compiled for zero-dimensional tensors: their arguments must promote as those
 * do.
 */
typedef enum dtype_category {
    CATEGORY_BOOL,
    CATEGORY_INTEGER,
    CATEGORY_FLOATING,
    CATEGORY_COMPLEX,
} dtype_category;

static dtype_category category_of(int32_t dtype)
{
    switch (dtype) {
    case AOTICACHE_DTYPE_BOOL:
        return CATEGORY_BOOL;
    case AOTICACHE_DTYPE_UINT8:
    case AOTICACHE_DTYPE_INT8:
    case AOTICACHE_DTYPE_INT16:
    case AOTICACHE_DTYPE_INT32:
    case AOTICACHE_DTYPE_INT64:
    case AOTICACHE_DTYPE_UINT16:
    case AOTICACHE_DTYPE_UINT32:
    case AOTICACHE_DTYPE_UINT64:
        return CATEGORY_INTEGER;
    case AOTICACHE_DTYPE_COMPLEX32:
    case AOTICACHE_DTYPE_COMPLEX64:
    case AOTICACHE_DTYPE_COMPLEX128:
        return CATEGORY_COMPLEX;
    default:
        return CATEGORY_FLOATING;
    }
}

static bool is_wrapped(size_t argument, uint64_t wrapped)
{
    return (wrapped >> (argument < 63 ? argument : 63) & 1) != 0;
}

typedef struct promotion {
    int tensors;          /* the highest category of the tensors with dimensions; -1 if there are none */
    int scalars, numbers; /* of the other tensors, and of wrapped numbers */
    uint64_t dtypes;      /* bit i: one of these other tensors is of the dtype i */
} promotion;

static void note_tensors(const aoticache_value *value, promotion *all)
{
    bool is_list = value->kind == AOTICACHE_VALUE_TENSOR_LIST;
    uint32_t count = is_list ? value->count : value->kind == AOTICACHE_VALUE_TENSOR;
    for (uint32_t i = 0; i < count; i++) {
        const aoticache_tensor_view *view = is_list ? value->as.tensors[i] : value->as.tensor;
        if (view == NULL)
            continue;
        int *highest = view->ndim > 0 ? &all->tensors : &all->scalars, category = (int)category_of(view->dtype);
        if (category > *highest)
            *highest = category;
        if (view->ndim == 0)
            all->dtypes |= UINT64_C(1) << (view->dtype & 63);
    }
}

bool aoticache_wrapped_numbers_do_not_matter(const aoticache_value *arguments, size_t count, uint64_t wrapped)
{
    promotion all = {.tensors = -1, .scalars = -1, .numbers = -1};
    int32_t dtype = -1;
    for (size_t i = 0; i < count; i++) {
        const aoticache_value *value = &arguments[i];
        /* Arguments from 63 on share one bit, so a tensor with dimensions may have it set. */
        bool is_number = is_wrapped(i, wrapped);
        if (!is_number ||
            (value->kind == AOTICACHE_VALUE_TENSOR && value->as.tensor != NULL && value->as.tensor->ndim > 0))
            note_tensors(value, &all);
        if (!is_number)
            continue;
        if (value->kind != AOTICACHE_VALUE_TENSOR || value->as.tensor == NULL)
            return false;
        int category = (int)category_of(value->as.tensor->dtype);
        if (category > all.numbers) {
            all.numbers = category;
            dtype = value->as.tensor->dtype;
        }
    }
    /* A zero-dimensional tensor keeps its dtype next to one of a lower category, except a complex one next to a float64. */
    return all.tensors >= all.numbers || (all.scalars > all.numbers && all.scalars <= CATEGORY_FLOATING) ||
           (all.dtypes >> (dtype & 63) & 1) != 0;
}
