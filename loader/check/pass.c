/*
 * loader/check/pass: whether tensors pass. Nothing here allocates, locks, or depends on more than the compiled form.
 *
 * The facts of a tensor are compared without branches, so that the usual case, everything right, is a handful of loads
 * and one branch. No number in a view can make arithmetic overflow: a value that does not fit does not pass.
 */
#include "loader/check/check_internal.h"

#define INLINE static inline __attribute__((always_inline))

INLINE bool facts_hold(const struct check_tensor *wanted, const aoticache_tensor_view *tensor)
{
    uint64_t kind = (uint32_t)tensor->dtype | (uint64_t)(uint32_t)tensor->device.type << 32;
    uint64_t place = (uint32_t)check_device_index(tensor) | (uint64_t)(uint32_t)tensor->layout << 32;
    uint64_t differences = ((kind ^ wanted->kind_wanted) & wanted->kind_mask) |
                           ((place ^ wanted->place_wanted) & wanted->place_mask) |
                           ((tensor->dispatch_key_set ^ wanted->keys_wanted) & wanted->keys_mask) |
                           (((uint64_t)tensor->ndim ^ wanted->ndim_wanted) & wanted->ndim_mask) |
                           (((uint64_t)tensor->requires_grad ^ wanted->grad_wanted) & wanted->grad_mask);
    return differences == 0;
}

INLINE uint64_t run_differences(const int64_t *numbers, const int64_t *wanted, unsigned count)
{
    uint64_t differences = 0;
    for (unsigned i = 0; i < count; i++)
        differences |= (uint64_t)(numbers[i] ^ wanted[i]);
    return differences;
}

static bool bind_scaled(const struct check_symbol *symbol, const struct check_op *op, int64_t number,
                        int64_t *ret_value)
{
    int64_t scaled;
    if (__builtin_sub_overflow(number, op->offset, &scaled) || scaled % op->coefficient != 0)
        return false;
    *ret_value = scaled / op->coefficient;
    return check_symbol_takes(symbol, *ret_value);
}

INLINE bool op_holds(const struct aoticache_check *check, const struct check_op *op,
                     const aoticache_tensor_view *tensor, int64_t *values)
{
    int64_t number = (op->is_stride ? tensor->strides : tensor->sizes)[op->dimension];
    unsigned symbol = op->symbols[0];
    int64_t expected;
    switch ((enum check_op_kind)op->kind) {
    case CHECK_OP_CONSTANT:
        return number == op->offset;
    case CHECK_OP_BIND:
        values[symbol] = number;
        return check_symbol_takes(&check->symbols[symbol], number);
    case CHECK_OP_SAME:
        return number == values[symbol];
    case CHECK_OP_BIND_SCALED:
        return bind_scaled(&check->symbols[symbol], op, number, &values[symbol]);
    case CHECK_OP_PRODUCT:
        return check_evaluate(op->coefficient, op->symbols, op->symbol_count, op->offset, values, &expected) &&
               number == expected;
    }
    return false;
}

static bool has_no_elements(const aoticache_tensor_view *tensor)
{
    for (int64_t i = 0; i < tensor->ndim; i++)
        if (tensor->sizes[i] == 0)
            return true;
    return false;
}

/* PyTorch's rule (c10/core/Contiguity.h): a tensor without elements is contiguous whatever its strides are. */
static bool is_contiguous(const aoticache_tensor_view *tensor)
{
    int64_t expected = 1;
    for (int64_t i = tensor->ndim - 1; i >= 0; i--) {
        int64_t size = tensor->sizes[i];
        if (size == 1)
            continue;
        if (tensor->strides[i] != expected || __builtin_mul_overflow(expected, size, &expected))
            return has_no_elements(tensor);
    }
    return true;
}

const uint8_t *aoticache_check_channels_last_order(aoticache_stride_rule rule)
{
    static const uint8_t of_4[] = {1, 3, 2, 0}, of_5[] = {1, 4, 3, 2, 0};
    return rule == AOTICACHE_STRIDES_CHANNELS_LAST ? of_4 : rule == AOTICACHE_STRIDES_CHANNELS_LAST_3D ? of_5 : NULL;
}

/*
 * Returns whether strides are channels_last; the caller has checked the number of dimensions. Unlike for contiguous
 * tensors, PyTorch makes no exception for tensors without elements.
 */
static bool is_channels_last(const aoticache_tensor_view *tensor, aoticache_stride_rule rule)
{
    const uint8_t *order = aoticache_check_channels_last_order(rule);
    int64_t expected = 1;
    for (int64_t i = 0; i < tensor->ndim; i++) {
        int64_t size = tensor->sizes[order[i]];
        if (size == 1)
            continue;
        if (tensor->strides[order[i]] != expected || __builtin_mul_overflow(expected, size, &expected))
            return false;
    }
    return true;
}

INLINE bool tensor_holds(const struct aoticache_check *check, const struct check_tensor *wanted,
                         const aoticache_tensor_view *tensor, int64_t *values)
{
    if (!facts_hold(wanted, tensor))
        return false;
    const int64_t *run = check->values + wanted->value_begin;
    if ((run_differences(tensor->sizes, run, wanted->size_run) |
         run_differences(tensor->strides, run + wanted->size_run, wanted->stride_run)) != 0)
        return false;
    for (uint32_t i = wanted->op_begin; i < wanted->op_end; i++)
        if (!op_holds(check, &check->ops[i], tensor, values))
            return false;
    if (wanted->stride_rule == AOTICACHE_STRIDES_FREE)
        return true;
    if (wanted->stride_rule == AOTICACHE_STRIDES_CONTIGUOUS)
        return is_contiguous(tensor);
    return is_channels_last(tensor, (aoticache_stride_rule)wanted->stride_rule);
}

bool aoticache_check_passes(const aoticache_check *check, const aoticache_tensor_view *tensors, size_t tensor_count)
{
    int64_t values[AOTICACHE_CHECK_MAX_SYMBOLS];
    if (tensor_count != check->tensor_count)
        return false;
    for (size_t i = 0; i < tensor_count; i++)
        if (!tensor_holds(check, &check->tensors[i], &tensors[i], values))
            return false;
    for (uint32_t i = check->late_begin; i < check->late_end; i++)
        if (!op_holds(check, &check->ops[i], &tensors[check->ops[i].tensor], values))
            return false;
    return true;
}
