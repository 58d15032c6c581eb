/*
 * eager/torch/wrapped_numbers: whether a wrapped number promotes as any tensor of no dimension would, in these
 * arguments.
 *
 * Source: c10/core/ScalarType.h (categories), aten/src/ATen/native/TypeProperties.cpp (ResultTypeState,
 * combine_categories). Kernel libraries are compiled for tensors of no dimension: what they are given must promote as
 * those do.
 */
#include "eager/torch/binding_state.h"

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

/* The highest category of the tensors that have dimensions; -1 where none has. */
static int highest_of_tensors(const aoticache_value *value)
{
    int highest = -1;
    bool is_list = value->kind == AOTICACHE_VALUE_TENSOR_LIST;
    uint32_t count = is_list ? value->count : value->kind == AOTICACHE_VALUE_TENSOR;
    for (uint32_t i = 0; i < count; i++) {
        const aoticache_tensor_view *view = is_list ? value->as.tensors[i] : value->as.tensor;
        if (view != NULL && view->ndim > 0 && (int)category_of(view->dtype) > highest)
            highest = (int)category_of(view->dtype);
    }
    return highest;
}

bool aoticache_wrapped_numbers_do_not_matter(const aoticache_value *arguments, size_t count, uint64_t wrapped)
{
    int number = -1, tensors = -1;
    for (size_t i = 0; i < count; i++) {
        const aoticache_value *value = &arguments[i];
        int highest = highest_of_tensors(value);
        if (highest > tensors)
            tensors = highest;
        if (!is_wrapped(i, wrapped))
            continue;
        if (value->kind != AOTICACHE_VALUE_TENSOR || value->as.tensor == NULL)
            return false;
        int category = (int)category_of(value->as.tensor->dtype);
        if (category > number)
            number = category;
    }
    return tensors >= number;
}
