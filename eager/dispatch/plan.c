/*
 * eager/dispatch/plan: the data of a schema that a call needs, precomputed: which arguments' tensors give the key set, which
 * kinds of values each argument accepts, and the defaults. Puts keyword arguments and defaults on the stack in the schema's
 * order.
 */
#include "base/arguments.h"
#include "eager/dispatch/dispatch_internal.h"
#include "eager/dispatch/eager_face.h"
#include "eager/dispatch/schema/eager_face.h"

#include <stdlib.h>
#include <string.h>

#define BIT(kind) (UINT32_C(1) << AOTICACHE_VALUE_##kind)
#define ANY_VALUE UINT32_MAX

static bool is_tensor(const aoticache_type *type)
{
    return type->kind == AOTICACHE_TYPE_TENSOR;
}

static bool is_optional_tensor(const aoticache_type *type)
{
    return type->kind == AOTICACHE_TYPE_OPTIONAL && is_tensor(type->elements[0]);
}

/*
 * Returns true for Tensor, Tensor?, Tensor[] and Tensor?[]: calls do not dispatch on other types, not even Tensor[]?
 * (DispatchKeyExtractor.h).
 */
static bool is_dispatched(const aoticache_type *type)
{
    if (type->kind == AOTICACHE_TYPE_LIST)
        return is_tensor(type->elements[0]) || is_optional_tensor(type->elements[0]);
    return is_tensor(type) || is_optional_tensor(type);
}

static uint32_t kinds_accepted_in_list(const aoticache_type *element)
{
    switch (element->kind == AOTICACHE_TYPE_OPTIONAL ? element->elements[0]->kind : element->kind) {
    case AOTICACHE_TYPE_TENSOR:
        return BIT(TENSOR_LIST);
    case AOTICACHE_TYPE_INT:
    case AOTICACHE_TYPE_SYM_INT:
        return BIT(INT_LIST);
    case AOTICACHE_TYPE_FLOAT:
    case AOTICACHE_TYPE_SYM_FLOAT:
        return BIT(DOUBLE_LIST);
    case AOTICACHE_TYPE_BOOL:
    case AOTICACHE_TYPE_SYM_BOOL:
        return BIT(BOOL_LIST);
    case AOTICACHE_TYPE_NUMBER:
    case AOTICACHE_TYPE_COMPLEX:
        return BIT(SCALAR_LIST) | BIT(INT_LIST) | BIT(DOUBLE_LIST) | BIT(BOOL_LIST);
    case AOTICACHE_TYPE_STRING:
        return BIT(STRING_LIST);
    default:
        return ANY_VALUE & ~BIT(NONE);
    }
}

static uint32_t kinds_accepted_by(const aoticache_type *type)
{
    switch (type->kind) {
    case AOTICACHE_TYPE_TENSOR:
        return BIT(TENSOR);
    case AOTICACHE_TYPE_INT:
    case AOTICACHE_TYPE_SYM_INT:
        return BIT(INT) | BIT(DTYPE) | BIT(LAYOUT) | BIT(MEMORY_FORMAT);
    case AOTICACHE_TYPE_FLOAT:
    case AOTICACHE_TYPE_SYM_FLOAT:
        return BIT(DOUBLE);
    case AOTICACHE_TYPE_BOOL:
    case AOTICACHE_TYPE_SYM_BOOL:
        return BIT(BOOL);
    case AOTICACHE_TYPE_COMPLEX:
        return BIT(COMPLEX);
    case AOTICACHE_TYPE_NUMBER:
        return BIT(INT) | BIT(DOUBLE) | BIT(BOOL) | BIT(COMPLEX);
    case AOTICACHE_TYPE_STRING:
        return BIT(STRING);
    case AOTICACHE_TYPE_DEVICE:
        return BIT(DEVICE);
    case AOTICACHE_TYPE_DTYPE:
        return BIT(DTYPE) | BIT(INT);
    case AOTICACHE_TYPE_LAYOUT:
        return BIT(LAYOUT) | BIT(INT);
    case AOTICACHE_TYPE_MEMORY_FORMAT:
        return BIT(MEMORY_FORMAT) | BIT(INT);
    case AOTICACHE_TYPE_GENERATOR:
        return BIT(GENERATOR);
    case AOTICACHE_TYPE_NONE:
        return BIT(NONE);
    case AOTICACHE_TYPE_OPTIONAL:
        return BIT(NONE) | kinds_accepted_by(type->elements[0]);
    case AOTICACHE_TYPE_LIST:
        return kinds_accepted_in_list(type->elements[0]);
    case AOTICACHE_TYPE_ANY:
    case AOTICACHE_TYPE_VARIABLE:
    case AOTICACHE_TYPE_UNION:
        return ANY_VALUE;
    default:
        return BIT(OTHER) | BIT(STRING) | BIT(INT); /* objects of the binding; names and numbers if it uses those */
    }
}

aoticache_status aoticache_op_plan_create(aoticache_schema *schema, aoticache_op_plan **ret_plan,
                                          aoticache_error *ret_error)
{
    size_t count = schema->argument_count;
    if (count > AOTICACHE_DISPATCH_MAX_ARGUMENTS)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s has %zu arguments; at most %d are allowed",
                                   schema->full_name, count, AOTICACHE_DISPATCH_MAX_ARGUMENTS);
    aoticache_op_plan *plan = calloc(1, sizeof *plan + count * sizeof plan->accepted[0]);
    aoticache_value *defaults = aoticache_default_values_create(schema);
    if (plan == NULL || defaults == NULL) {
        free(plan);
        aoticache_default_values_free(defaults, count);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for its definition",
                                   schema->full_name);
    }
    plan->schema = schema;
    plan->count = (uint32_t)count;
    plan->is_vararg = schema->is_vararg;
    plan->defaults = defaults;
    for (size_t i = 0; i < count; i++) {
        const aoticache_type *type = schema->arguments[i].type;
        plan->accepted[i] = plan->is_vararg ? ANY_VALUE : kinds_accepted_by(type);
        plan->dispatched |= (uint64_t)is_dispatched(type) << i;
    }
    *ret_plan = plan;
    return AOTICACHE_OK;
}

void aoticache_op_plan_free(aoticache_op_plan *plan)
{
    if (plan == NULL)
        return;
    aoticache_default_values_free(plan->defaults, plan->count);
    aoticache_schema_free(plan->schema);
    free(plan);
}

static void release_plan(aoticache_retired *retired)
{
    aoticache_op_plan_free((aoticache_op_plan *)(void *)((char *)retired - offsetof(aoticache_op_plan, retired)));
}

void aoticache_op_plan_retire(aoticache_dispatcher *dispatcher, aoticache_op_plan *plan)
{
    aoticache_dispatcher_retire(dispatcher, &plan->retired, release_plan);
}

/* ---- ordering arguments ---- */

static const char *name_at(const aoticache_op_plan *plan, size_t position)
{
    return plan->schema->arguments[position].name;
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

/* Assigns keyword arguments. source: for each argument the number of its keyword argument, or -1. */
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
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: argument %s is passed twice", op->name,
                                       names[k]);
        source[position] = (int32_t)k;
    }
    for (size_t i = positional; i < plan->count; i++)
        if (source[i] < 0 && plan->defaults[i].kind == AOTICACHE_VALUE_OTHER)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "%s: argument %zu (%s) is missing and has no default", op->name, i + 1,
                                       name_at(plan, i));
    return AOTICACHE_OK;
}

static aoticache_status push_arguments(const aoticache_operator *op, const aoticache_op_plan *plan, size_t positional,
                                       const char *const *names, const aoticache_value *values, size_t keyword_count,
                                       aoticache_stack *stack, aoticache_error *ret_error)
{
    int32_t source[AOTICACHE_DISPATCH_MAX_ARGUMENTS];
    if (positional > stack->count)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s: the call says that %zu arguments are on the stack, but it has %zu", op->name,
                                   positional, stack->count);
    if (positional > plan->count && plan->is_vararg && keyword_count == 0)
        return AOTICACHE_OK;
    if (positional > plan->count)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s takes %u arguments, but %zu were passed", op->name,
                                   plan->count, positional);
    if (plan->count - positional > stack->capacity - stack->count)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s: %zu more arguments, but the stack has space for %zu", op->name,
                                   plan->count - positional, stack->capacity - stack->count);
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
    if (op == NULL || stack == NULL || (keyword_count > 0 && (names == NULL || values == NULL)))
        return AOTICACHE_REFUSE_NULL(ret_error, op, stack, names, values);
    if (stack->count > stack->capacity)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: the stack has %zu values, but only space for %zu",
                                   op->name, stack->count, stack->capacity);
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    if (slot == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for this thread's first call",
                                   op->name);
    const aoticache_op_plan *plan = atomic_load_explicit(&op->plan, memory_order_acquire);
    aoticache_status status = plan != NULL
                                  ? push_arguments(op, plan, positional, names, values, keyword_count, stack, ret_error)
                                  : aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%s is not defined", op->name);
    aoticache_epoch_leave(slot);
    return status;
}
