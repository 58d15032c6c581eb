/*
 * loader/check/explain: why tensors do not pass, as text. Walks the patterns, not through the compiled form, in
 * the order of tensors: facts, sizes, strides; properties that depend on symbols from later tensors come last.
 */
#include "base/names.h"
#include "loader/check/check_internal.h"

#include <stdarg.h>
#include <stdio.h>

struct explainer {
    const struct aoticache_check *check;
    const aoticache_tensor_view *tensors;
    const char *const *names;
    aoticache_error *ret_error;
    int64_t values[AOTICACHE_CHECK_MAX_SYMBOLS]; /* of the symbols whose defining size or stride has been reached */
};

static aoticache_status refuse_difference(const struct explainer *explainer, uint32_t tensor, const char *format, ...)
    AOTICACHE_PRINTF(3, 4);

static aoticache_status refuse_difference(const struct explainer *explainer, uint32_t tensor, const char *format, ...)
{
    const char *name = explainer->names != NULL ? explainer->names[tensor] : NULL;
    char text[AOTICACHE_ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (name == NULL)
        return aoticache_error_set(explainer->ret_error, AOTICACHE_INVALID, "argument %u: %s", (unsigned)tensor, text);
    return aoticache_error_set(explainer->ret_error, AOTICACHE_INVALID, "argument %u (%.200s): %s", (unsigned)tensor,
                               name, text);
}

/* ---- facts ---- */

static aoticache_status compare_names(const struct explainer *explainer, uint32_t tensor, const char *what,
                                      const char *(*name_of)(int32_t), int32_t is, int32_t wanted)
{
    char numbers[2][16];
    const char *names[2] = {name_of(is), name_of(wanted)};
    if (wanted < 0 || is == wanted)
        return AOTICACHE_OK;
    snprintf(numbers[0], sizeof numbers[0], "%d", (int)is);
    snprintf(numbers[1], sizeof numbers[1], "%d", (int)wanted);
    return refuse_difference(explainer, tensor, "%s is %s, and must be %s", what,
                             names[0] != NULL ? names[0] : numbers[0], names[1] != NULL ? names[1] : numbers[1]);
}

static aoticache_status explain_device(const struct explainer *explainer, uint32_t index)
{
    const aoticache_tensor_pattern *facts = &explainer->check->patterns[index].facts;
    const aoticache_tensor_view *tensor = &explainer->tensors[index];
    char is[AOTICACHE_DEVICE_TEXT_BYTES], wanted[AOTICACHE_DEVICE_TEXT_BYTES];
    if (facts->device_type >= 0 && facts->device_type != tensor->device.type) {
        aoticache_device_format(tensor->device, is);
        aoticache_device_format((aoticache_device){facts->device_type, facts->device_index}, wanted);
        return refuse_difference(explainer, index, "device is %s, and must be %s", is, wanted);
    }
    if (facts->device_index >= 0 && facts->device_index != check_device_index(tensor))
        return refuse_difference(explainer, index, "device index is %d, and must be %d", (int)tensor->device.index,
                                 (int)facts->device_index);
    return AOTICACHE_OK;
}

static aoticache_status explain_facts(const struct explainer *explainer, uint32_t index)
{
    const aoticache_tensor_pattern *facts = &explainer->check->patterns[index].facts;
    const aoticache_tensor_view *tensor = &explainer->tensors[index];
    aoticache_status status;
    status = compare_names(explainer, index, "dtype", aoticache_dtype_name, tensor->dtype, facts->dtype);
    if (status == AOTICACHE_OK)
        status = explain_device(explainer, index);
    if (status == AOTICACHE_OK)
        status = compare_names(explainer, index, "layout", aoticache_layout_name, tensor->layout, facts->layout);
    if (status != AOTICACHE_OK)
        return status;
    if (facts->requires_grad >= 0 && facts->requires_grad != tensor->requires_grad)
        return refuse_difference(explainer, index, "requires_grad is %d, and must be %d", tensor->requires_grad,
                                 (int)facts->requires_grad);
    if (facts->has_key_set && facts->dispatch_key_set != tensor->dispatch_key_set)
        return refuse_difference(explainer, index, "dispatch key set is 0x%llx, and must be 0x%llx",
                                 (unsigned long long)tensor->dispatch_key_set,
                                 (unsigned long long)facts->dispatch_key_set);
    if (facts->ndim >= 0 && facts->ndim != tensor->ndim)
        return refuse_difference(explainer, index, "number of dimensions is %lld, and must be %lld",
                                 (long long)tensor->ndim, (long long)facts->ndim);
    if (tensor->ndim > 0 && (tensor->sizes == NULL || tensor->strides == NULL))
        return refuse_difference(explainer, index, "%lld dimensions without %s", (long long)tensor->ndim,
                                 tensor->sizes == NULL ? "sizes" : "strides");
    return AOTICACHE_OK;
}

/* ---- sizes and strides ---- */

/* Writes where a symbol takes its value: "s0 is 3, from size 0 of argument 0". */
static int describe_symbol(const struct explainer *explainer, uint8_t symbol, char *text, size_t size)
{
    for (uint32_t i = 0; i < explainer->check->tensor_count; i++) {
        const struct check_pattern *pattern = &explainer->check->patterns[i];
        for (int64_t d = 0; d < 2 * pattern->facts.ndim; d++) {
            bool is_stride = d >= pattern->facts.ndim;
            int64_t place = is_stride ? d - pattern->facts.ndim : d;
            const aoticache_dim *dims = is_stride ? pattern->facts.strides : pattern->facts.sizes;
            const uint8_t *roles = is_stride ? pattern->stride_roles : pattern->size_roles;
            if (dims != NULL && roles[place] == CHECK_ROLE_BINDS && dims[place].symbols[0] == symbol)
                return snprintf(text, size, "s%u is %lld, from %s %lld of argument %u", symbol,
                                (long long)explainer->values[symbol], is_stride ? "stride" : "size", (long long)place,
                                (unsigned)i);
        }
    }
    return snprintf(text, size, "s%u", symbol);
}

static aoticache_status explain_use(const struct explainer *explainer, uint32_t tensor, const char *what,
                                    int64_t dimension, const aoticache_dim *dim, int64_t number)
{
    char form[AOTICACHE_CHECK_DIM_TEXT_BYTES], sources[AOTICACHE_DIM_MAX_SYMBOLS * 96], value[32];
    int64_t expected;
    bool fits =
        check_evaluate(dim->coefficient, dim->symbols, dim->symbol_count, dim->offset, explainer->values, &expected);
    if (fits && expected == number)
        return AOTICACHE_OK;
    aoticache_check_dim_format(dim, form);
    snprintf(value, sizeof value, "%lld", fits ? (long long)expected : 0);
    size_t length = 0;
    for (unsigned i = 0; i < dim->symbol_count; i++) {
        if (i > 0 && dim->symbols[i] == dim->symbols[i - 1])
            continue;
        length += (size_t)snprintf(sources + length, sizeof sources - length, "%s", i > 0 ? "; " : "");
        length += (size_t)describe_symbol(explainer, dim->symbols[i], sources + length, sizeof sources - length);
    }
    return refuse_difference(explainer, tensor, "%s of dimension %lld is %lld, and must be %s = %s (%s)", what,
                             (long long)dimension, (long long)number, form,
                             fits ? value : "more than fits into 64 bits", sources);
}

static aoticache_status explain_binding(struct explainer *explainer, uint32_t tensor, const char *what,
                                        int64_t dimension, const aoticache_dim *dim, int64_t number)
{
    const aoticache_symbol *range = &explainer->check->ranges[dim->symbols[0]];
    char form[AOTICACHE_CHECK_DIM_TEXT_BYTES];
    int64_t scaled = 0, value = 0;
    bool fits = !__builtin_sub_overflow(number, dim->offset, &scaled) && scaled % dim->coefficient == 0;
    if (fits) {
        value = scaled / dim->coefficient;
        explainer->values[dim->symbols[0]] = value;
        if (check_symbol_takes(&explainer->check->symbols[dim->symbols[0]], value))
            return AOTICACHE_OK;
    }
    char text[AOTICACHE_CHECK_RANGE_TEXT_BYTES], multiple[48] = "";
    aoticache_symbol bounds = {.min = range->min, .max = range->max, .multiple_of = 1};
    aoticache_check_dim_format(dim, form);
    aoticache_check_range_format(&bounds, text);
    if (range->multiple_of != 1)
        snprintf(multiple, sizeof multiple, " and a multiple of %lld", (long long)range->multiple_of);
    return refuse_difference(explainer, tensor, "%s of dimension %lld is %lld, and must be %s with s%u in %s%s", what,
                             (long long)dimension, (long long)number, form, dim->symbols[0], text, multiple);
}

static aoticache_status explain_dims(struct explainer *explainer, uint32_t index, bool are_strides, bool late)
{
    const struct check_pattern *pattern = &explainer->check->patterns[index];
    const aoticache_dim *dims = are_strides ? pattern->facts.strides : pattern->facts.sizes;
    const uint8_t *roles = are_strides ? pattern->stride_roles : pattern->size_roles;
    const int64_t *numbers = are_strides ? explainer->tensors[index].strides : explainer->tensors[index].sizes;
    const char *what = are_strides ? "stride" : "size";
    aoticache_status status = AOTICACHE_OK;
    for (int64_t i = 0; dims != NULL && i < pattern->facts.ndim && status == AOTICACHE_OK; i++) {
        if (roles[i] == CHECK_ROLE_FREE || (roles[i] == CHECK_ROLE_LATE) != late)
            continue;
        if (roles[i] == CHECK_ROLE_BINDS)
            status = explain_binding(explainer, index, what, i, &dims[i], numbers[i]);
        else if (roles[i] != CHECK_ROLE_CONSTANT)
            status = explain_use(explainer, index, what, i, &dims[i], numbers[i]);
        else if (numbers[i] != dims[i].offset)
            status = refuse_difference(explainer, index, "%s of dimension %lld is %lld, and must be %lld", what,
                                       (long long)i, (long long)numbers[i], (long long)dims[i].offset);
    }
    return status;
}

static bool has_no_elements(const aoticache_tensor_view *tensor)
{
    for (int64_t i = 0; i < tensor->ndim; i++)
        if (tensor->sizes[i] == 0)
            return true;
    return false;
}

static aoticache_status explain_rule(const struct explainer *explainer, uint32_t index)
{
    const aoticache_tensor_view *tensor = &explainer->tensors[index];
    aoticache_stride_rule rule = explainer->check->patterns[index].facts.stride_rule;
    const uint8_t *order = aoticache_check_channels_last_order(rule);
    int64_t expected = 1;
    if (aoticache_check_rule_name(rule) == NULL || (order == NULL && has_no_elements(tensor)))
        return AOTICACHE_OK;
    for (int64_t i = 0; i < tensor->ndim; i++) {
        int64_t dimension = order != NULL ? order[i] : tensor->ndim - 1 - i;
        if (tensor->sizes[dimension] == 1)
            continue;
        if (tensor->strides[dimension] != expected)
            return refuse_difference(explainer, index, "stride of dimension %lld is %lld, and must be %lld (%s)",
                                     (long long)dimension, (long long)tensor->strides[dimension], (long long)expected,
                                     aoticache_check_rule_name(rule));
        if (__builtin_mul_overflow(expected, tensor->sizes[dimension], &expected))
            return refuse_difference(explainer, index,
                                     "its number of elements does not fit into 64 bits, but must (%s)",
                                     aoticache_check_rule_name(rule));
    }
    return AOTICACHE_OK;
}

aoticache_status aoticache_check_explain(const aoticache_check *check, const aoticache_tensor_view *tensors,
                                         size_t tensor_count, const char *const *names, aoticache_error *ret_error)
{
    struct explainer explainer = {.check = check, .tensors = tensors, .names = names, .ret_error = ret_error};
    aoticache_status status = AOTICACHE_OK;
    if (tensor_count != check->tensor_count)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "there are %zu arguments, but there must be %u",
                                   tensor_count, (unsigned)check->tensor_count);
    for (uint32_t i = 0; i < check->tensor_count && status == AOTICACHE_OK; i++) {
        status = explain_facts(&explainer, i);
        if (status == AOTICACHE_OK)
            status = explain_dims(&explainer, i, false, false);
        if (status == AOTICACHE_OK)
            status = explain_dims(&explainer, i, true, false);
        if (status == AOTICACHE_OK)
            status = explain_rule(&explainer, i);
    }
    for (uint32_t i = 0; i < check->tensor_count && status == AOTICACHE_OK; i++) {
        status = explain_dims(&explainer, i, false, true);
        if (status == AOTICACHE_OK)
            status = explain_dims(&explainer, i, true, true);
    }
    return status;
}
