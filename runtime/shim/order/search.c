/*
 * shim/order/search: places of values among sorted boundaries (searchsorted, bucketize).
 *
 * Source: aten/src/ATen/native/Bucketization.cpp.
 */
#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <string.h>

/* The boundaries of one row, and the values to place. Both are double, or both int64, which double does not hold exactly. */
struct row {
    const void *boundaries, *values;
    bool whole;
    const int64_t *sorter; /* NULL: boundaries lie in order */
    int64_t count;
};

/* Whether boundary `at` lies before value `i`: below it, or not above it where `right`. NaN is above all. */
static bool is_before(const struct row *row, int64_t at, int64_t i, bool right)
{
    if (row->whole) {
        int64_t boundary = ((const int64_t *)row->boundaries)[at], value = ((const int64_t *)row->values)[i];
        return right ? boundary <= value : boundary < value;
    }
    double boundary = ((const double *)row->boundaries)[at], value = ((const double *)row->values)[i];
    return right ? !(boundary > value) : !(boundary >= value);
}

static int64_t place_in(const struct row *row, int64_t i, bool right)
{
    int64_t low = 0, high = row->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (is_before(row, row->sorter != NULL ? row->sorter[middle] : middle, i, right))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static AOTITorchError check_rows(const char *function, const struct shim_tensor *boundaries,
                                 const struct shim_tensor *values)
{
    if (boundaries->ndim == 0)
        return aoticache_shim_fail("%s: boundaries need one dimension or more", function);
    if (boundaries->ndim == 1)
        return SHIM_SUCCESS;
    if (boundaries->ndim != values->ndim ||
        memcmp(boundaries->sizes, values->sizes, (size_t)(boundaries->ndim - 1) * sizeof *values->sizes) != 0)
        return aoticache_shim_fail("%s: boundaries and values must agree in all dimensions but the last", function);
    return SHIM_SUCCESS;
}

static AOTITorchError check_sorter(const char *function, const struct shim_tensor *sorter,
                                   const struct shim_tensor *boundaries)
{
    const int64_t *places = sorter->data;
    if (!aoticache_shim_same_sizes(sorter, boundaries))
        return aoticache_shim_fail("%s: the sorter must have the sizes of the boundaries", function);
    for (int64_t i = 0; i < sorter->numel; i++)
        if (places[i] < 0 || places[i] >= boundaries->sizes[boundaries->ndim - 1])
            return aoticache_shim_fail("%s: place %lld of the sorter is outside", function, (long long)places[i]);
    return SHIM_SUCCESS;
}

static AOTITorchError search(const char *function, AtenTensorHandle boundaries, AtenTensorHandle self, bool right,
                             AtenTensorHandle sorter, bool narrow, AtenTensorHandle *ret_tensor)
{
    cleanup_tensor AtenTensorHandle sorted = NULL, values = NULL, order = NULL, places = NULL, result = NULL;
    SHIM_TRY(check_rows(function, boundaries->tensor, self->tensor));
    bool whole =
        aoticache_shim_is_integral(boundaries->tensor->dtype) && aoticache_shim_is_integral(self->tensor->dtype);
    int32_t work = whole ? AOTICACHE_DTYPE_INT64 : AOTICACHE_DTYPE_FLOAT64;
    SHIM_TRY(aoticache_shim_read(function, boundaries, work, &sorted));
    SHIM_TRY(aoticache_shim_read(function, self, work, &values));
    SHIM_TRY(aoticache_shim_make(function, self->tensor->ndim, self->tensor->sizes, AOTICACHE_DTYPE_INT64, &places));
    if (sorter != NULL) {
        SHIM_TRY(aoticache_shim_read(function, sorter, AOTICACHE_DTYPE_INT64, &order));
        SHIM_TRY(check_sorter(function, order->tensor, sorted->tensor));
    }
    const struct shim_tensor *tensor = values->tensor;
    int64_t count = sorted->tensor->sizes[sorted->tensor->ndim - 1];
    int64_t row_length = tensor->ndim > 0 ? tensor->sizes[tensor->ndim - 1] : 1;
    for (int64_t i = 0; i < tensor->numel; i++) {
        int64_t first = sorted->tensor->ndim == 1 || count == 0 ? 0 : i / row_length * count;
        const struct row row = {
            .boundaries = count > 0 ? (const int64_t *)sorted->tensor->data + first : NULL, /* double is as wide */
            .values = tensor->data,
            .whole = whole,
            .sorter = order != NULL && count > 0 ? (const int64_t *)order->tensor->data + first : NULL,
            .count = count,
        };
        ((int64_t *)places->tensor->data)[i] = place_in(&row, i, right);
    }
    SHIM_TRY(aoticache_shim_read(function, places, narrow ? AOTICACHE_DTYPE_INT32 : AOTICACHE_DTYPE_INT64, &result));
    *ret_tensor = shim_steal(&result);
    return SHIM_SUCCESS;
}

/* Reads the side, which can be given in two ways that must not contradict each other. */
static AOTITorchError parse_side(const char *function, int32_t right, const char **side, bool *ret_right)
{
    *ret_right = right != 0;
    if (side == NULL || *side == NULL)
        return SHIM_SUCCESS;
    if (strcmp(*side, "left") != 0 && strcmp(*side, "right") != 0)
        return aoticache_shim_fail("%s: side '%s' is neither left nor right", function, *side);
    if (right != 0 && strcmp(*side, "left") == 0)
        return aoticache_shim_fail("%s: right is asked for, and side left", function);
    *ret_right = strcmp(*side, "right") == 0;
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_searchsorted_Tensor(AtenTensorHandle sorted_sequence, AtenTensorHandle self,
                                                  int32_t out_int32, int32_t right, const char **side,
                                                  AtenTensorHandle *sorter, AtenTensorHandle *ret_0)
{
    bool to_right;
    SHIM_CHECK_TENSOR(sorted_sequence);
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(parse_side(__func__, right, side, &to_right));
    return search(__func__, sorted_sequence, self, to_right, shim_optional(sorter), out_int32 != 0, ret_0);
}

AOTITorchError aoti_torch_cpu_searchsorted_Scalar(AtenTensorHandle sorted_sequence, double self, int32_t out_int32,
                                                  int32_t right, const char **side, AtenTensorHandle *sorter,
                                                  AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle value = NULL;
    bool to_right;
    SHIM_CHECK_TENSOR(sorted_sequence);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(parse_side(__func__, right, side, &to_right));
    SHIM_TRY(aoticache_shim_make(__func__, 0, NULL, AOTICACHE_DTYPE_FLOAT64, &value));
    *(double *)value->tensor->data = self;
    return search(__func__, sorted_sequence, value, to_right, shim_optional(sorter), out_int32 != 0, ret_0);
}

AOTITorchError aoti_torch_cpu_bucketize_Tensor(AtenTensorHandle self, AtenTensorHandle boundaries, int32_t out_int32,
                                               int32_t right, AtenTensorHandle *ret_0)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_TENSOR(boundaries);
    SHIM_CHECK_RESULT(ret_0);
    if (boundaries->tensor->ndim != 1)
        return aoticache_shim_fail("%s: boundaries of %d dimensions; it must be one", __func__,
                                   (int)boundaries->tensor->ndim);
    return search(__func__, boundaries, self, right != 0, NULL, out_int32 != 0, ret_0);
}
