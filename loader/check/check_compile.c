/*
 * loader/check/check_compile: turns patterns into the form that is evaluated.
 *
 * Facts become packed words with masks. Sizes (or strides) that are all exact become a run of numbers; others become
 * operations, one for each that is not free, in the order in which symbols take their values. Operations that need a
 * symbol before it has its value are put after those of all tensors.
 */
#include "loader/check/check_internal.h"

#include <string.h>

static void pack_word(int32_t low, int32_t high, uint64_t *ret_wanted, uint64_t *ret_mask)
{
    *ret_mask = (low >= 0 ? UINT32_MAX : 0) | (high >= 0 ? (uint64_t)UINT32_MAX << 32 : 0);
    *ret_wanted = ((uint32_t)low | (uint64_t)(uint32_t)high << 32) & *ret_mask;
}

static void pack_facts(const aoticache_tensor_pattern *facts, struct check_tensor *ret_tensor)
{
    pack_word(facts->dtype, facts->device_type, &ret_tensor->kind_wanted, &ret_tensor->kind_mask);
    pack_word(facts->device_index, facts->layout, &ret_tensor->place_wanted, &ret_tensor->place_mask);
    ret_tensor->keys_wanted = facts->dispatch_key_set;
    ret_tensor->keys_mask = facts->has_key_set ? UINT64_MAX : 0;
    ret_tensor->ndim_wanted = facts->ndim >= 0 ? (uint64_t)facts->ndim : 0;
    ret_tensor->ndim_mask = facts->ndim >= 0 ? UINT64_MAX : 0;
    ret_tensor->grad_wanted = facts->requires_grad > 0;
    ret_tensor->grad_mask = facts->requires_grad >= 0;
    if (facts->stride_rule != AOTICACHE_STRIDES_GIVEN)
        ret_tensor->stride_rule = (uint8_t)facts->stride_rule;
}

static void prepare_symbol(const aoticache_symbol *range, struct check_symbol *ret_symbol)
{
    int64_t low = range->multiple_of & -range->multiple_of;
    *ret_symbol = (struct check_symbol){.min = (uint64_t)range->min,
                                        .span = (uint64_t)(range->max - range->min),
                                        .low_mask = (uint64_t)low - 1,
                                        .odd = range->multiple_of / low};
}

static bool are_all_exact(const uint8_t *roles, int64_t ndim)
{
    for (int64_t i = 0; i < ndim; i++)
        if (roles[i] != CHECK_ROLE_CONSTANT)
            return false;
    return true;
}

/* Appends the numbers; returns how many: 0 if their number is free. */
static uint8_t add_run(struct aoticache_check *check, const aoticache_dim *dims, int64_t ndim, uint32_t *value_count)
{
    for (int64_t i = 0; i < ndim; i++)
        check->values[(*value_count)++] = dims[i].offset;
    return ndim > 0 ? (uint8_t)ndim : 0;
}

static uint8_t kind_of(const aoticache_dim *dim, uint8_t role)
{
    bool is_plain = dim->symbol_count == 1 && dim->coefficient == 1 && dim->offset == 0;
    if (role == CHECK_ROLE_CONSTANT)
        return CHECK_OP_CONSTANT;
    if (role == CHECK_ROLE_BINDS)
        return is_plain ? CHECK_OP_BIND : CHECK_OP_BIND_SCALED;
    return is_plain ? CHECK_OP_SAME : CHECK_OP_PRODUCT;
}

/* Appends the operations for these sizes or strides: the late ones, or all others. */
static void add_ops(struct aoticache_check *check, uint32_t tensor, bool are_strides, bool late, uint32_t *op_count)
{
    const struct check_pattern *pattern = &check->patterns[tensor];
    const aoticache_dim *dims = are_strides ? pattern->facts.strides : pattern->facts.sizes;
    const uint8_t *roles = are_strides ? pattern->stride_roles : pattern->size_roles;
    for (int64_t i = 0; i < pattern->facts.ndim; i++) {
        if (roles[i] == CHECK_ROLE_FREE || (roles[i] == CHECK_ROLE_LATE) != late)
            continue;
        struct check_op *op = &check->ops[(*op_count)++];
        *op = (struct check_op){.kind = kind_of(&dims[i], roles[i]),
                                .symbol_count = dims[i].symbol_count,
                                .dimension = (uint8_t)i,
                                .is_stride = are_strides,
                                .tensor = tensor,
                                .coefficient = dims[i].coefficient,
                                .offset = dims[i].offset};
        memcpy(op->symbols, dims[i].symbols, sizeof op->symbols);
    }
}

static void compile_tensor(struct aoticache_check *check, uint32_t index, uint32_t *value_count, uint32_t *op_count)
{
    const struct check_pattern *pattern = &check->patterns[index];
    const aoticache_tensor_pattern *facts = &pattern->facts;
    struct check_tensor *tensor = &check->tensors[index];
    pack_facts(facts, tensor);
    tensor->value_begin = *value_count;
    tensor->op_begin = *op_count;
    if (are_all_exact(pattern->size_roles, facts->ndim))
        tensor->size_run = add_run(check, facts->sizes, facts->ndim, value_count);
    else
        add_ops(check, index, false, false, op_count);
    if (facts->strides != NULL && are_all_exact(pattern->stride_roles, facts->ndim))
        tensor->stride_run = add_run(check, facts->strides, facts->ndim, value_count);
    else if (facts->strides != NULL)
        add_ops(check, index, true, false, op_count);
    tensor->op_end = *op_count;
}

void aoticache_check_compile(struct aoticache_check *check)
{
    uint32_t value_count = 0, op_count = 0;
    for (uint32_t i = 0; i < check->symbol_count; i++)
        prepare_symbol(&check->ranges[i], &check->symbols[i]);
    for (uint32_t i = 0; i < check->tensor_count; i++)
        compile_tensor(check, i, &value_count, &op_count);
    check->late_begin = op_count;
    for (uint32_t i = 0; i < check->tensor_count; i++) {
        add_ops(check, i, false, true, &op_count);
        if (check->patterns[i].facts.strides != NULL)
            add_ops(check, i, true, true, &op_count);
    }
    check->late_end = op_count;
}
