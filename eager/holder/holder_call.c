/*
 * eager/holder/holder_call: the calls of an operator. A call whose kernel is ready takes the path of holder_hot.h, any other
 * that of miss.c. Before a miss, short forms of arguments are expanded, and tensors may replace numbers (numbers.c).
 */
#include "base/cleanup.h"
#include "eager/holder/holder_hot.h"

#include <stdlib.h>
#include <string.h>

/* Answers a call for which no runner is ready. substituted: NULL: no numbers are substituted. */
static aoticache_status call_unready(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                     const aoticache_packed *packed, aoticache_numbers *substituted,
                                     aoticache_error *ret_error)
{
    aoticache_timed_call timed = {.verdict = NULL, .substituted = substituted};
    aoticache_status status = aoticache_holder_call_slow_path(holder, key_set, stack, packed, &timed, NULL, ret_error);
    if (timed.verdict != NULL) {
        uint64_t ns = holder->context->clock_ns() - timed.begin_ns;
        aoticache_timed_call_end(&timed, holder, status == AOTICACHE_OK ? ns : 0);
    }
    return status;
}

/* Answers a call with substituted tensors, with a kernel that reads its numbers from them. */
static aoticache_status call_substituted(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                         aoticache_numbers *substituted, aoticache_error *ret_error)
{
    aoticache_packed packed;
    aoticache_status status = AOTICACHE_NOT_FOUND;
    bool packs = false, ready = false, left = false;
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    if (slot != NULL) {
        ready = aoticache_holder_call_ready(holder, stack, &packed, &packs, &status, ret_error);
        left = !ready && packs && aoticache_holder_prefers_fallback(holder, &packed);
        aoticache_epoch_leave(slot);
    }
    if (!ready && !left)
        status = call_unready(holder, key_set, stack, packs ? &packed : NULL, substituted, ret_error);
    aoticache_numbers_take_back(substituted);
    if (left)
        return holder->fallback(holder->fallback_user, key_set, stack, ret_error);
    return ready ? aoticache_holder_conclude(holder, key_set, stack, status, ret_error) : status;
}

/* ---- calls with short forms ---- */

/* A call whose arguments are replaced on the stack by their full forms. */
struct spelt_call {
    aoticache_holder *holder;
    uint64_t key_set;
    aoticache_stack *stack;
};

static aoticache_status call_spelt_out(void *user, const aoticache_value *spelt, aoticache_error *ret_error)
{
    const struct spelt_call *call = user;
    const size_t bytes = call->holder->num_arguments * sizeof *spelt;
    aoticache_value *arguments = call->stack->values + call->stack->count - call->holder->num_arguments;
    cleanup_free aoticache_value *given = malloc(bytes);
    if (given == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for its arguments",
                                   call->holder->op);
    memcpy(given, arguments, bytes);
    memcpy(arguments, spelt, bytes);
    aoticache_status status = aoticache_holder_call(call->holder, call->key_set, call->stack, ret_error);
    if (status != AOTICACHE_OK) /* the stack is unchanged */
        memcpy(arguments, given, bytes);
    return status;
}

/* Answers a call for which no runner is ready. Leaves the call's epoch. packed: may be NULL, as on the slow path. */
static __attribute__((noinline)) aoticache_status call_missed(aoticache_holder *holder, uint64_t key_set,
                                                              aoticache_stack *stack, const aoticache_packed *packed,
                                                              aoticache_epoch_slot *slot, aoticache_error *ret_error)
{
    aoticache_numbers numbers;
    aoticache_value *arguments = stack->values + stack->count - holder->num_arguments;
    const bool left = packed != NULL && aoticache_holder_prefers_fallback(holder, packed);
    if (!left && aoticache_holder_has_short_forms(holder, arguments)) {
        struct spelt_call call = {.holder = holder, .key_set = key_set, .stack = stack};
        aoticache_epoch_leave(slot);
        aoticache_status status = aoticache_holder_check_arguments(holder, arguments, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        return aoticache_holder_with_spelt_out(holder, arguments, call_spelt_out, &call, ret_error);
    }
    const bool substituted =
        packed != NULL && !left && aoticache_numbers_substitute(holder, arguments, packed, &numbers);
    aoticache_epoch_leave(slot);
    if (left)
        return holder->fallback(holder->fallback_user, key_set, stack, ret_error);
    if (substituted && aoticache_numbers_make_tensors(&numbers)) {
        aoticache_status status = call_substituted(holder, key_set, stack, &numbers, ret_error);
        const bool was_made = status != AOTICACHE_COMPILE_FAILED && status != AOTICACHE_UNSUPPORTED;
        if (was_made || !aoticache_numbers_were_given_up(holder, &numbers) ||
            (holder->fallback != NULL && !holder->context->fail_calls))
            return status;
    } else if (substituted) {
        aoticache_numbers_take_back(&numbers);
    }
    return call_unready(holder, key_set, stack, packed, NULL, ret_error);
}

aoticache_status aoticache_holder_call(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                       aoticache_error *ret_error)
{
    aoticache_packed packed;
    aoticache_status status;
    bool packs;
    if (__builtin_expect(stack->count < holder->num_arguments, 0))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: takes %zu arguments, but %zu are on the stack",
                                   holder->op, holder->num_arguments, stack->count);
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    if (__builtin_expect(slot == NULL, 0))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for a thread's state",
                                   holder->op);
    bool ready = aoticache_holder_call_hot(holder, stack, stack->count - holder->num_arguments, &packed, &packs,
                                           &status, ret_error);
    if (__builtin_expect(!ready && !packs, 0))
        ready = aoticache_holder_call_ready(holder, stack, &packed, &packs, &status, ret_error);
    if (__builtin_expect(!ready, 0))
        return call_missed(holder, key_set, stack, packs ? &packed : NULL, slot, ret_error);
    aoticache_epoch_leave(slot);
    return aoticache_holder_conclude(holder, key_set, stack, status, ret_error);
}
