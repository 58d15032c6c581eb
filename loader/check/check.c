/*
 * loader/check/check: making checks. Patterns and symbols are examined, copied in a normalised form into one block, and
 * given their roles; loader/check/check_compile.c then turns them into the form that is evaluated.
 */
#include "base/arguments.h"
#include "loader/check/check.h"

#include "base/cleanup.h"
#include "loader/check/check_internal.h"
#include "loader/eager_face.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is accepted ---- */

static aoticache_status examine_symbol(size_t index, const aoticache_symbol *symbol, aoticache_error *ret_error)
{
    int64_t multiple_of = symbol->multiple_of == 0 ? 1 : symbol->multiple_of;
    if (symbol->min < 0 || multiple_of < 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "symbol s%zu: minimum %lld and multiple %lld; neither may be negative", index,
                                   (long long)symbol->min, (long long)multiple_of);
    int64_t first = symbol->min / multiple_of + (symbol->min % multiple_of != 0);
    if (symbol->max < symbol->min || symbol->max / multiple_of < first)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "symbol s%zu: empty range: no multiple of %lld in %lld..%lld", index,
                                   (long long)multiple_of, (long long)symbol->min, (long long)symbol->max);
    return AOTICACHE_OK;
}

/* Returns what is wrong with a size or stride, as text that follows its name; NULL if nothing is. */
static const char *fault_of_dim(const aoticache_dim *dim, size_t symbol_count)
{
    int64_t constant;
    if (dim->is_free)
        return NULL;
    if (dim->symbol_count > AOTICACHE_DIM_MAX_SYMBOLS)
        return "has more symbols than 4";
    if (dim->symbol_count == 0)
        return __builtin_add_overflow(dim->coefficient, dim->offset, &constant) || constant < 0
                   ? "is a constant that is negative or too large"
                   : NULL;
    if (dim->coefficient < 1)
        return "has a coefficient below 1";
    for (unsigned i = 0; i < dim->symbol_count; i++)
        if (dim->symbols[i] >= symbol_count)
            return "names an undefined symbol";
    return NULL;
}

static aoticache_status examine_dims(size_t tensor, const char *what, const aoticache_dim *dims, int64_t ndim,
                                     size_t symbol_count, aoticache_error *ret_error)
{
    for (int64_t i = 0; i < ndim; i++) {
        const char *fault = fault_of_dim(&dims[i], symbol_count);
        if (fault != NULL)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "tensor %zu: %s of dimension %lld %s (%u symbols, coefficient %lld, offset "
                                       "%lld)",
                                       tensor, what, (long long)i, fault, dims[i].symbol_count,
                                       (long long)dims[i].coefficient, (long long)dims[i].offset);
    }
    return AOTICACHE_OK;
}

/* Returns the number of dimensions that a pattern has, its stride rule considered; -1 if it is free. */
static int64_t ndim_of(const aoticache_tensor_pattern *pattern)
{
    if (pattern->ndim == -1 && pattern->stride_rule == AOTICACHE_STRIDES_CHANNELS_LAST)
        return 4;
    if (pattern->ndim == -1 && pattern->stride_rule == AOTICACHE_STRIDES_CHANNELS_LAST_3D)
        return 5;
    return pattern->ndim;
}

static aoticache_status examine_rule(size_t index, const aoticache_tensor_pattern *pattern, aoticache_error *ret_error)
{
    int64_t ndim = ndim_of(pattern);
    switch (pattern->stride_rule) {
    case AOTICACHE_STRIDES_FREE:
    case AOTICACHE_STRIDES_CONTIGUOUS:
        return AOTICACHE_OK;
    case AOTICACHE_STRIDES_GIVEN:
        if (ndim >= 0 && (ndim == 0 || pattern->strides != NULL))
            return AOTICACHE_OK;
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "tensor %zu: fixed strides require %s", index,
                                   ndim < 0 ? "a fixed number of dimensions" : "an array of strides");
    case AOTICACHE_STRIDES_CHANNELS_LAST:
    case AOTICACHE_STRIDES_CHANNELS_LAST_3D:
        if (ndim == (pattern->stride_rule == AOTICACHE_STRIDES_CHANNELS_LAST ? 4 : 5))
            return AOTICACHE_OK;
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "tensor %zu: %s is for %d dimensions, but there are %lld", index,
                                   aoticache_check_rule_name(pattern->stride_rule),
                                   pattern->stride_rule == AOTICACHE_STRIDES_CHANNELS_LAST ? 4 : 5, (long long)ndim);
    }
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "tensor %zu: unknown stride rule %d", index,
                               (int)pattern->stride_rule);
}

static aoticache_status examine_pattern(size_t index, const aoticache_tensor_pattern *pattern, size_t symbol_count,
                                        aoticache_error *ret_error)
{
    if (pattern->dtype < -1 || pattern->layout < -1 || pattern->device_type < -1 || pattern->device_index < -1 ||
        pattern->requires_grad < -1 || pattern->requires_grad > 1)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "tensor %zu: dtype %d, layout %d, device %d:%d, requires_grad %d; the minimum "
                                   "is -1, and requires_grad is at most 1",
                                   index, pattern->dtype, pattern->layout, pattern->device_type, pattern->device_index,
                                   pattern->requires_grad);
    if (pattern->ndim < -1 || pattern->ndim > AOTICACHE_CHECK_MAX_NDIM)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "tensor %zu: number of dimensions is %lld; it must be in -1..%d", index,
                                   (long long)pattern->ndim, AOTICACHE_CHECK_MAX_NDIM);
    aoticache_status status = examine_rule(index, pattern, ret_error);
    if (status == AOTICACHE_OK && pattern->sizes != NULL)
        status = examine_dims(index, "size", pattern->sizes, pattern->ndim, symbol_count, ret_error);
    if (status == AOTICACHE_OK && pattern->stride_rule == AOTICACHE_STRIDES_GIVEN)
        status = examine_dims(index, "stride", pattern->strides, pattern->ndim, symbol_count, ret_error);
    return status;
}

static aoticache_status examine(const aoticache_tensor_pattern *patterns, size_t tensor_count,
                                const aoticache_symbol *symbols, size_t symbol_count, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    if (tensor_count > AOTICACHE_CHECK_MAX_TENSORS || symbol_count > AOTICACHE_CHECK_MAX_SYMBOLS)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%zu tensors and %zu symbols; at most %d and %d are allowed", tensor_count,
                                   symbol_count, AOTICACHE_CHECK_MAX_TENSORS, AOTICACHE_CHECK_MAX_SYMBOLS);
    if (tensor_count > 0 && patterns == NULL)
        return AOTICACHE_REFUSE_NULL_OF("aoticache_check_create", ret_error, patterns);
    if (symbol_count > 0 && symbols == NULL)
        return AOTICACHE_REFUSE_NULL_OF("aoticache_check_create", ret_error, symbols);
    for (size_t i = 0; i < symbol_count && status == AOTICACHE_OK; i++)
        status = examine_symbol(i, &symbols[i], ret_error);
    for (size_t i = 0; i < tensor_count && status == AOTICACHE_OK; i++)
        status = examine_pattern(i, &patterns[i], symbol_count, ret_error);
    return status;
}

/* ---- the block ---- */

/* Counts the sizes and given strides of all patterns. */
static size_t count_dims(const aoticache_tensor_pattern *patterns, size_t tensor_count)
{
    size_t count = 0;
    for (size_t i = 0; i < tensor_count; i++) {
        int64_t ndim = ndim_of(&patterns[i]);
        if (ndim > 0)
            count += (size_t)ndim * (patterns[i].stride_rule == AOTICACHE_STRIDES_GIVEN ? 2 : 1);
    }
    return count;
}

static void *carve_part(char **cursor, size_t bytes)
{
    void *start = *cursor;
    *cursor += (bytes + 15) & ~(size_t)15;
    return start;
}

/* Allocates the one block of a check. The arrays for dims follow the patterns; their roles are last. */
static struct aoticache_check *allocate_check(size_t tensor_count, size_t symbol_count, size_t dim_count,
                                              aoticache_dim **ret_dims, uint8_t **ret_roles)
{
    struct aoticache_check *check = NULL;
    size_t bytes = sizeof *check + tensor_count * (sizeof *check->tensors + sizeof *check->patterns) +
                   dim_count * (sizeof *check->values + sizeof *check->ops + sizeof **ret_dims + sizeof **ret_roles) +
                   symbol_count * (sizeof *check->symbols + sizeof *check->ranges) + (size_t)9 * 16;
    check = calloc(1, bytes);
    if (check == NULL)
        return NULL;
    char *cursor = (char *)check;
    carve_part(&cursor, sizeof *check);
    check->tensors = carve_part(&cursor, tensor_count * sizeof *check->tensors);
    check->values = carve_part(&cursor, dim_count * sizeof *check->values);
    check->ops = carve_part(&cursor, dim_count * sizeof *check->ops);
    check->symbols = carve_part(&cursor, symbol_count * sizeof *check->symbols);
    check->ranges = carve_part(&cursor, symbol_count * sizeof *check->ranges);
    check->patterns = carve_part(&cursor, tensor_count * sizeof *check->patterns);
    *ret_dims = carve_part(&cursor, dim_count * sizeof **ret_dims);
    *ret_roles = carve_part(&cursor, dim_count * sizeof **ret_roles);
    check->tensor_count = (uint32_t)tensor_count;
    check->symbol_count = (uint32_t)symbol_count;
    return check;
}

/*
 * Gives a dim its one normal form: a constant is an offset, symbols are in rising order, and fields that do not count
 * are zero.
 */
static aoticache_dim normalise(const aoticache_dim *dim)
{
    aoticache_dim result = {.is_free = dim->is_free};
    if (dim->is_free)
        return result;
    result.offset = dim->symbol_count == 0 ? dim->coefficient + dim->offset : dim->offset;
    result.coefficient = dim->symbol_count == 0 ? 0 : dim->coefficient;
    for (; result.symbol_count < dim->symbol_count; result.symbol_count++) {
        unsigned place = result.symbol_count;
        for (; place > 0 && result.symbols[place - 1] > dim->symbols[result.symbol_count]; place--)
            result.symbols[place] = result.symbols[place - 1];
        result.symbols[place] = dim->symbols[result.symbol_count];
    }
    return result;
}

/* Copies `ndim` sizes or strides (NULL: free ones) to *dims and advances it. */
static const aoticache_dim *copy_dims(const aoticache_dim *from, int64_t ndim, aoticache_dim **dims)
{
    aoticache_dim *start = *dims;
    for (int64_t i = 0; i < ndim; i++)
        start[i] = from == NULL ? (aoticache_dim){.is_free = true} : normalise(&from[i]);
    *dims += ndim > 0 ? ndim : 0;
    return start;
}

static void copy_pattern(const aoticache_tensor_pattern *from, struct check_pattern *to, aoticache_dim **dims,
                         uint8_t **roles)
{
    int64_t ndim = ndim_of(from);
    size_t count = ndim > 0 ? (size_t)ndim : 0;
    to->facts = *from;
    to->facts.ndim = ndim;
    to->facts.dispatch_key_set = from->has_key_set ? from->dispatch_key_set : 0;
    to->facts.sizes = copy_dims(from->ndim == -1 ? NULL : from->sizes, ndim, dims);
    to->size_roles = *roles;
    *roles += count;
    to->facts.strides = NULL;
    if (from->stride_rule == AOTICACHE_STRIDES_GIVEN) {
        to->facts.strides = copy_dims(from->strides, ndim, dims);
        to->stride_roles = *roles;
        *roles += count;
    }
}

/* ---- roles ---- */

static uint8_t role_of(const aoticache_dim *dim, uint64_t *bound)
{
    uint64_t used = 0;
    if (dim->is_free)
        return CHECK_ROLE_FREE;
    for (unsigned i = 0; i < dim->symbol_count; i++)
        used |= (uint64_t)1 << dim->symbols[i];
    if (used == 0)
        return CHECK_ROLE_CONSTANT;
    if ((used & ~*bound) == 0)
        return CHECK_ROLE_USES;
    if (dim->symbol_count > 1)
        return CHECK_ROLE_LATE;
    *bound |= used;
    return CHECK_ROLE_BINDS;
}

/* Returns the set of symbols that take their value from some size or stride. `roles` has the same order. */
static uint64_t assign_roles(const struct aoticache_check *check, uint8_t *roles)
{
    uint64_t bound = 0;
    for (uint32_t i = 0; i < check->tensor_count; i++) {
        const aoticache_tensor_pattern *facts = &check->patterns[i].facts;
        for (int64_t d = 0; d < facts->ndim; d++)
            *roles++ = role_of(&facts->sizes[d], &bound);
        for (int64_t d = 0; facts->strides != NULL && d < facts->ndim; d++)
            *roles++ = role_of(&facts->strides[d], &bound);
    }
    return bound;
}

static aoticache_status examine_bound(uint64_t bound, size_t symbol_count, aoticache_error *ret_error)
{
    for (size_t i = 0; i < symbol_count; i++)
        if ((bound >> i & 1) == 0)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "symbol s%zu never occurs alone (with a coefficient and an offset), so no size "
                                       "or stride determines its value",
                                       i);
    return AOTICACHE_OK;
}

/* ---- the interface ---- */

aoticache_status aoticache_check_create(const aoticache_tensor_pattern *patterns, size_t tensor_count,
                                        const aoticache_symbol *symbols, size_t symbol_count,
                                        aoticache_check **ret_check, aoticache_error *ret_error)
{
    aoticache_status status = examine(patterns, tensor_count, symbols, symbol_count, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_dim *dims;
    uint8_t *all_roles;
    cleanup_free struct aoticache_check *check =
        allocate_check(tensor_count, symbol_count, count_dims(patterns, tensor_count), &dims, &all_roles);
    if (check == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a check of %zu tensors",
                                   tensor_count);
    uint8_t *roles = all_roles;
    for (size_t i = 0; i < tensor_count; i++)
        copy_pattern(&patterns[i], &check->patterns[i], &dims, &roles);
    for (size_t i = 0; i < symbol_count; i++) {
        check->ranges[i] = symbols[i];
        check->ranges[i].multiple_of += symbols[i].multiple_of == 0;
    }
    status = examine_bound(assign_roles(check, all_roles), symbol_count, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_check_compile(check);
    aoticache_check_rank(check);
    *ret_check = steal_ptr(&check);
    return AOTICACHE_OK;
}

static void constants_of(const int64_t *numbers, int64_t count, aoticache_dim *ret_dims)
{
    for (int64_t i = 0; i < count; i++)
        ret_dims[i] = (aoticache_dim){.offset = numbers[i]};
}

static aoticache_tensor_pattern exact_pattern(const aoticache_tensor_view *tensor, aoticache_dim *dims)
{
    constants_of(tensor->sizes, tensor->ndim, dims);
    constants_of(tensor->strides, tensor->ndim, dims + tensor->ndim);
    return (aoticache_tensor_pattern){.dtype = tensor->dtype,
                                      .layout = tensor->layout,
                                      .device_type = tensor->device.type,
                                      .device_index = check_device_index(tensor),
                                      .requires_grad = tensor->requires_grad,
                                      .has_key_set = true,
                                      .dispatch_key_set = tensor->dispatch_key_set,
                                      .ndim = tensor->ndim,
                                      .sizes = dims,
                                      .stride_rule = AOTICACHE_STRIDES_GIVEN,
                                      .strides = dims + tensor->ndim};
}

/* Refuses -1 in fields of a tensor: in a pattern it means free, and a tensor has a definite value. */
static aoticache_status examine_view(size_t index, const aoticache_tensor_view *tensor, aoticache_error *ret_error)
{
    if (tensor->dtype < 0 || tensor->layout < 0 || tensor->device.type < 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "tensor %zu: dtype %d, layout %d, device type %d; none may be negative", index,
                                   tensor->dtype, tensor->layout, tensor->device.type);
    if (tensor->ndim < 0 || tensor->ndim > AOTICACHE_CHECK_MAX_NDIM)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "tensor %zu: number of dimensions is %lld; it must be in 0..%d", index,
                                   (long long)tensor->ndim, AOTICACHE_CHECK_MAX_NDIM);
    if (tensor->ndim > 0 && (tensor->sizes == NULL || tensor->strides == NULL))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "tensor %zu: %lld dimensions without %s", index,
                                   (long long)tensor->ndim, tensor->sizes == NULL ? "sizes" : "strides");
    return AOTICACHE_OK;
}

aoticache_status aoticache_check_create_exact(const aoticache_tensor_view *tensors, size_t tensor_count,
                                              aoticache_check **ret_check, aoticache_error *ret_error)
{
    if (tensor_count > 0 && tensors == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, tensors);
    if (tensor_count > AOTICACHE_CHECK_MAX_TENSORS)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%zu tensors; at most %d are allowed", tensor_count,
                                   AOTICACHE_CHECK_MAX_TENSORS);
    size_t dim_count = 0;
    for (size_t i = 0; i < tensor_count; i++) {
        aoticache_status status = examine_view(i, &tensors[i], ret_error);
        if (status != AOTICACHE_OK)
            return status;
        dim_count += 2 * (size_t)tensors[i].ndim;
    }
    cleanup_free aoticache_tensor_pattern *patterns = calloc(tensor_count + 1, sizeof *patterns);
    cleanup_free aoticache_dim *dims = calloc(dim_count + 1, sizeof *dims);
    if (patterns == NULL || dims == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a check of %zu tensors",
                                   tensor_count);
    aoticache_dim *next = dims;
    for (size_t i = 0; i < tensor_count; i++) {
        patterns[i] = exact_pattern(&tensors[i], next);
        next += 2 * tensors[i].ndim;
    }
    return aoticache_check_create(patterns, tensor_count, NULL, 0, ret_check, ret_error);
}

void aoticache_check_free(aoticache_check *check)
{
    free(check);
}

size_t aoticache_check_num_tensors(const aoticache_check *check)
{
    return check->tensor_count;
}
