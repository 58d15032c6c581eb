/*
 * eager/dispatch/dispatch_plan: what a call needs of a schema, precomputed: which arguments' tensors give the key set,
 * which kinds of values each argument takes, and the defaults.
 */
#include "eager/dispatch/default_values.h"
#include "eager/dispatch/dispatcher_state.h"

#include <stdlib.h>

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

/* Tensor, Tensor?, Tensor[], Tensor?[]: no others, not even Tensor[]? (DispatchKeyExtractor.h). */
static bool is_dispatched(const aoticache_type *type)
{
    if (type->kind == AOTICACHE_TYPE_LIST)
        return is_tensor(type->elements[0]) || is_optional_tensor(type->elements[0]);
    return is_tensor(type) || is_optional_tensor(type);
}

static uint32_t accepted_in_list(const aoticache_type *element)
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

static uint32_t accepted(const aoticache_type *type)
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
        return BIT(NONE) | accepted(type->elements[0]);
    case AOTICACHE_TYPE_LIST:
        return accepted_in_list(type->elements[0]);
    case AOTICACHE_TYPE_ANY:
    case AOTICACHE_TYPE_VARIABLE:
    case AOTICACHE_TYPE_UNION:
        return ANY_VALUE;
    default:
        return BIT(OTHER) | BIT(STRING) | BIT(INT); /* objects of the binding; names and numbers where it has such */
    }
}

aoticache_status aoticache_op_plan_create(aoticache_schema *schema, aoticache_op_plan **ret_plan,
                                          aoticache_error *ret_error)
{
    size_t count = aoticache_schema_num_arguments(schema);
    if (count > AOTICACHE_DISPATCH_MAX_ARGUMENTS)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s has %zu arguments: %d are the most that an "
                                   "operator "
                                   "may have", aoticache_schema_full_name(schema), count,
                                   AOTICACHE_DISPATCH_MAX_ARGUMENTS);
    aoticache_op_plan *plan = calloc(1, sizeof *plan + count * sizeof plan->accepted[0]);
    aoticache_value *defaults = aoticache_default_values_create(schema);
    if (plan == NULL || defaults == NULL) {
        free(plan);
        aoticache_default_values_free(defaults, count);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: no memory for its definition",
                                   aoticache_schema_full_name(schema));
    }
    plan->schema = schema;
    plan->count = (uint32_t)count;
    plan->is_vararg = aoticache_schema_is_vararg(schema);
    plan->defaults = defaults;
    for (size_t i = 0; i < count; i++) {
        const aoticache_type *type = aoticache_schema_argument_at(schema, i)->type;
        plan->accepted[i] = plan->is_vararg ? ANY_VALUE : accepted(type);
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
