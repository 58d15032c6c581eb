/*
 * eager/dispatch/dispatch_arguments: keyword arguments and defaults, put on the stack in the schema's order.
 */
#include "eager/dispatch/dispatcher_state.h"

#include <string.h>

static const char *name_at(const aoticache_op_plan *plan, size_t position)
{
    return aoticache_schema_argument_at(plan->schema, position)->name;
}

static aoticache_status find_argument(const aoticache_operator *op, const aoticache_op_plan *plan, const char *name,
                                      uint32_t *ret_position, aoticache_error *ret_error)
{
    for (uint32_t i = 0; name != NULL && i < plan->count; i++) {
        if (strcmp(name_at(plan, i), name) == 0) {
            *ret_position = i;
            return AOTICACHE_OK;
        }
    }
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s has no argument %.100s", op->name,
                               name != NULL ? name : "(NULL)");
}

/* source: for each argument the number of its keyword argument, or -1. */
static aoticache_status assign(const aoticache_operator *op, const aoticache_op_plan *plan, size_t positional,
                               const char *const *names, size_t keyword_count, int32_t *source,
                               aoticache_error *ret_error)
{
    for (uint32_t i = 0; i < plan->count; i++)
        source[i] = -1;
    for (size_t k = 0; k < keyword_count; k++) {
        uint32_t position = 0;
        aoticache_status status = find_argument(op, plan, names[k], &position, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        if (position < positional || source[position] >= 0)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: argument %s is given twice", op->name,
                                       names[k]);
        source[position] = (int32_t)k;
    }
    for (size_t i = positional; i < plan->count; i++)
        if (source[i] < 0 && plan->defaults[i].kind == AOTICACHE_VALUE_OTHER)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: argument %zu (%s) is missing, and has no "
                                       "default",
                                       op->name, i + 1, name_at(plan, i));
    return AOTICACHE_OK;
}

static aoticache_status push(const aoticache_operator *op, const aoticache_op_plan *plan, size_t positional,
                             const char *const *names, const aoticache_value *values, size_t keyword_count,
                             aoticache_stack *stack, aoticache_error *ret_error)
{
    int32_t source[AOTICACHE_DISPATCH_MAX_ARGUMENTS];
    if (positional > stack->count)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: %zu arguments are said to be on the stack, which "
                                   "has %zu",
                                   op->name, positional, stack->count);
    if (positional > plan->count && plan->is_vararg && keyword_count == 0)
        return AOTICACHE_OK;
    if (positional > plan->count)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s takes %u arguments, given %zu", op->name,
                                   plan->count,
                                   positional);
    if (plan->count - positional > stack->capacity - stack->count)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: %zu more arguments, and the stack has %zu places "
                                   "left",
                                   op->name, plan->count - positional, stack->capacity - stack->count);
    aoticache_status status = assign(op, plan, positional, names, keyword_count, source, ret_error);
    for (size_t i = positional; status == AOTICACHE_OK && i < plan->count; i++)
        stack->values[stack->count++] = source[i] >= 0 ? values[source[i]] : plan->defaults[i];
    return status;
}

aoticache_status aoticache_operator_push_arguments(const aoticache_operator *op, size_t positional,
                                                   const char *const *names, const aoticache_value *values,
                                                   size_t keyword_count, aoticache_stack *stack,
                                                   aoticache_error *ret_error)
{
    if (op == NULL || stack == NULL || stack->count > stack->capacity ||
        (keyword_count > 0 && (names == NULL || values == NULL)))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "arguments need an operator, a stack, and names with "
                                   "values");
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    if (slot == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: no memory for this thread's first call",
                                   op->name);
    const aoticache_op_plan *plan = atomic_load_explicit(&op->plan, memory_order_acquire);
    aoticache_status status =
        plan != NULL ? push(op, plan, positional, names, values, keyword_count, stack, ret_error)
                     : aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%s is not defined", op->name);
    aoticache_epoch_leave(slot);
    return status;
}
