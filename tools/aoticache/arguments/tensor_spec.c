/*
 * tools/aoticache/arguments/tensor_spec: parses DTYPE:SIZExSIZE...[@STRIDExSTRIDE...][=FILL], which describes a tensor.
 *
 * Every size, stride and product is checked here, so that the code that makes the data cannot overflow. tensor_fill.c
 * interprets the fill.
 */
#include "base/cleanup.h"
#include "tools/aoticache/arguments/arguments.h"

#include <string.h>

static aoticache_status unknown_dtype(aoticache_error *error, const char *name)
{
#define NAME(upper, lower, number, bytes) #lower,
    static const char *const names[] = {AOTICACHE_DTYPE_LIST(NAME) NULL};
#undef NAME
    const char *nearest = aoticache_cli_nearest(name, names);
    if (nearest != NULL)
        return aoticache_error_set(error, AOTICACHE_INVALID, "'%s' is not a dtype (did you mean %s?)", name, nearest);
    return aoticache_error_set(error, AOTICACHE_INVALID, "'%s' is not a dtype such as float32, int64 or bool", name);
}

/* Parses "2x3x4", from text to end, into numbers. */
static aoticache_status parse_numbers(const char *text, const char *end, const char *what, int64_t *ret_numbers,
                                      uint32_t *ret_count, aoticache_error *error)
{
    *ret_count = 0;
    while (text < end) {
        const char *stop = memchr(text, 'x', (size_t)(end - text));
        stop = stop != NULL ? stop : end;
        cleanup_free char *number = aoticache_cli_text("%.*s", (int)(stop - text), text);
        if (*ret_count == AOTICACHE_MAX_DIMS)
            return aoticache_error_set(error, AOTICACHE_INVALID, "more than %d %ss", AOTICACHE_MAX_DIMS, what);
        if (!aoticache_cli_parse_int(number, 0, INT64_MAX, &ret_numbers[*ret_count]))
            return aoticache_error_set(error, AOTICACHE_INVALID, "'%s' is not a %s: a number of 0 or more", number,
                                       what);
        ++*ret_count;
        if (stop < end && stop + 1 == end)
            return aoticache_error_set(error, AOTICACHE_INVALID, "a %s is missing after the last 'x'", what);
        text = stop < end ? stop + 1 : end;
    }
    return AOTICACHE_OK;
}

/* Computes row-major strides, as PyTorch does: a size of 0 counts as 1. */
static bool contiguous_strides(const aoticache_tensor_spec *spec, int64_t *ret_strides)
{
    int64_t stride = 1;
    for (uint32_t i = spec->ndim; i-- > 0;) {
        ret_strides[i] = stride;
        if (__builtin_mul_overflow(stride, spec->sizes[i] > 1 ? spec->sizes[i] : 1, &stride))
            return false;
    }
    return true;
}

static bool is_contiguous(const aoticache_tensor_spec *spec, const int64_t *strides)
{
    for (uint32_t i = 0; i < spec->ndim; i++)
        if (spec->sizes[i] != 1 && spec->strides[i] != strides[i])
            return spec->numel == 0;
    return true;
}

static bool count_elements(aoticache_tensor_spec *spec)
{
    uint64_t numel = 1;
    uint64_t last = 0;
    bool empty = false;
    for (uint32_t i = 0; i < spec->ndim; i++) {
        uint64_t step;
        empty |= spec->sizes[i] == 0;
        if (!empty && (__builtin_mul_overflow(numel, (uint64_t)spec->sizes[i], &numel) ||
                       __builtin_mul_overflow((uint64_t)spec->sizes[i] - 1, (uint64_t)spec->strides[i], &step) ||
                       __builtin_add_overflow(last, step, &last)))
            return false;
    }
    spec->numel = empty ? 0 : numel;
    spec->span = empty ? 0 : last + 1;
    uint64_t bytes;
    uint64_t larger = spec->span > spec->numel ? spec->span : spec->numel;
    return !__builtin_mul_overflow(larger, (uint64_t)aoticache_dtype_size(spec->dtype), &bytes) && bytes <= INT64_MAX;
}

static aoticache_status parse_dtype(const char *text, const char *end, aoticache_tensor_spec *spec,
                                    aoticache_error *error)
{
    cleanup_free char *name = aoticache_cli_text("%.*s", (int)(end - text), text);
    return aoticache_dtype_parse(name, &spec->dtype) == AOTICACHE_OK ? AOTICACHE_OK : unknown_dtype(error, name);
}

/* Parses the part between ':' and '='. */
static aoticache_status parse_shape(const char *text, const char *end, aoticache_tensor_spec *spec, int64_t *row_major,
                                    aoticache_error *error)
{
    const char *at = memchr(text, '@', (size_t)(end - text));
    const char *sizes_end = at != NULL ? at : end;
    bool scalar = sizes_end - text == 6 && memcmp(text, "scalar", 6) == 0;
    aoticache_status status =
        parse_numbers(scalar ? sizes_end : text, sizes_end, "size", spec->sizes, &spec->ndim, error);
    if (status != AOTICACHE_OK)
        return status;
    if (!contiguous_strides(spec, row_major))
        return aoticache_error_set(error, AOTICACHE_INVALID, "more elements than can be counted");
    memcpy(spec->strides, row_major, sizeof spec->strides);
    uint32_t stride_count = spec->ndim;
    if (at != NULL)
        status = parse_numbers(at + 1, end, "stride", spec->strides, &stride_count, error);
    if (status == AOTICACHE_OK && stride_count != spec->ndim)
        return aoticache_error_set(error, AOTICACHE_INVALID, "%u sizes, but %u strides", spec->ndim, stride_count);
    return status;
}

aoticache_status aoticache_tensor_spec_parse(const char *text, aoticache_tensor_spec *ret_spec,
                                             aoticache_error *ret_error)
{
    aoticache_tensor_spec spec = {.dtype = 0};
    int64_t row_major[AOTICACHE_MAX_DIMS] = {0};
    const char *colon = strchr(text, ':');
    const char *equals = strchr(text, '=');
    if (colon == NULL || (equals != NULL && equals < colon))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "not of the form DTYPE:SIZExSIZE, as float32:2x3");
    const char *end = equals != NULL ? equals : text + strlen(text);
    aoticache_status status = parse_dtype(text, colon, &spec, ret_error);
    if (status == AOTICACHE_OK)
        status = parse_shape(colon + 1, end, &spec, row_major, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (!count_elements(&spec))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "more elements than can be counted");
    spec.contiguous = is_contiguous(&spec, row_major);
    spec.fill = equals != NULL ? equals + 1 : NULL;
    *ret_spec = spec;
    return AOTICACHE_OK;
}
