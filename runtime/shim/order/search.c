/*
 * shim/order/search: places of values among sorted boundaries (searchsorted, bucketize), and counts in equal bins
 * (histc).
 *
 * Source: aten/src/ATen/native/Bucketization.cpp, cpu/HistogramKernel.cpp.
 */
#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <math.h>
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

/* Finds the range of the bins: the one asked for, or that of the values; never empty. */
static AOTITorchError bin_range(const char *function, const struct shim_tensor *values, double *low, double *high)
{
    const double *value = values->data;
    if (*low == *high && values->numel > 0) {
        *low = *high = value[0];
        for (int64_t i = 1; i < values->numel; i++) {
            *low = value[i] < *low ? value[i] : *low;
            *high = value[i] > *high ? value[i] : *high;
        }
    }
    if (*low == *high) {
        *low -= 1;
        *high += 1;
    }
    if (!isfinite(*low) || !isfinite(*high) || *low > *high)
        return aoticache_shim_fail("%s: bins from %g to %g", function, *low, *high);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_histc(AtenTensorHandle self, int64_t bins, double min, double max,
                                    AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle values = NULL, counts = NULL, result = NULL;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    if (bins <= 0)
        return aoticache_shim_fail("%s: %lld bins", __func__, (long long)bins);
    if (aoticache_shim_work_dtype(self->tensor->dtype) != AOTICACHE_DTYPE_FLOAT64)
        return aoticache_shim_fail_dtype(__func__, self->tensor->dtype);
    SHIM_TRY(aoticache_shim_read(__func__, self, AOTICACHE_DTYPE_FLOAT64, &values));
    SHIM_TRY(bin_range(__func__, values->tensor, &min, &max));
    SHIM_TRY(aoticache_shim_make(__func__, 1, &bins, AOTICACHE_DTYPE_FLOAT64, &counts));
    SHIM_TRY(aoti_torch_zero_(counts));
    const double *value = values->tensor->data;
    double *count = counts->tensor->data;
    for (int64_t i = 0; i < values->tensor->numel; i++) {
        if (!(value[i] >= min && value[i] <= max))
            continue;
        int64_t bin = (int64_t)((value[i] - min) / (max - min) * (double)bins);
        count[bin < bins ? bin : bins - 1]++;
    }
    SHIM_TRY(aoticache_shim_read(__func__, counts, self->tensor->dtype, &result));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

/* Edges between bins of one width, in the dtype's own arithmetic, as torch.linspace makes them. */
static void fill_edges(int32_t dtype, double low, double high, int64_t bins, double *edges)
{
    for (int64_t i = 0; i <= bins; i++) {
        if (dtype == AOTICACHE_DTYPE_FLOAT64) {
            const double step = (high - low) / (double)bins;
            edges[i] = i < (bins + 1) / 2 ? low + step * (double)i : high - step * (double)(bins - i);
        } else {
            const float step = ((float)high - (float)low) / (float)bins;
            edges[i] =
                (double)(i < (bins + 1) / 2 ? (float)low + step * (float)i : (float)high - step * (float)(bins - i));
        }
    }
}

/* The bin of a value between the first and the last edge: the last one has its upper edge too. */
static int64_t find_bin(const double *edges, int64_t bins, double value)
{
    int64_t low = 0, high = bins;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (value < edges[middle])
            high = middle;
        else
            low = middle;
    }
    return low;
}

static AOTITorchError count_values(const char *function, const struct shim_tensor *values, const double *weights,
                                   const double *edges, int64_t bins, double *counts)
{
    const double *value = values->data;
    for (int64_t i = 0; i < values->numel; i++) {
        if (isnan(value[i]))
            return aoticache_shim_fail("%s: element %lld is NaN", function, (long long)i);
        if (value[i] >= edges[0] && value[i] <= edges[bins])
            counts[find_bin(edges, bins, value[i])] += weights != NULL ? weights[i] : 1;
    }
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_histogram_bin_ct(AtenTensorHandle self, int64_t bins, const double **range,
                                               int64_t range_len_, AtenTensorHandle *weight, int32_t density,
                                               AtenTensorHandle *ret0, AtenTensorHandle *ret1)
{
    enum { F64 = AOTICACHE_DTYPE_FLOAT64 };
    cleanup_tensor AtenTensorHandle values = NULL, weights = NULL, counts = NULL, edges = NULL, result = NULL;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret0);
    SHIM_CHECK_RESULT(ret1);
    const int32_t dtype = self->tensor->dtype;
    const double *given = range != NULL ? *range : NULL;
    AtenTensorHandle scale = shim_optional(weight);
    if (dtype != F64 && dtype != AOTICACHE_DTYPE_FLOAT32)
        return aoticache_shim_fail_dtype(__func__, dtype);
    if (bins <= 0 || bins >= INT32_MAX || (given != NULL && range_len_ != 2) ||
        (shim_is_defined(scale) && scale->tensor->numel != self->tensor->numel))
        return aoticache_shim_fail("%s: %lld bins, a range of %lld numbers, or another number of weights than elements",
                                   __func__, (long long)bins, (long long)range_len_);
    SHIM_TRY(aoticache_shim_read(__func__, self, F64, &values));
    if (shim_is_defined(scale))
        SHIM_TRY(aoticache_shim_read(__func__, scale, F64, &weights));
    double low = given != NULL ? given[0] : 0, high = given != NULL ? given[1] : self->tensor->numel > 0 ? 0 : 1;
    const double *value = values->tensor->data;
    for (int64_t i = 0; given == NULL && i < values->tensor->numel; i++) {
        low = i == 0 || value[i] < low ? value[i] : low;
        high = i == 0 || value[i] > high ? value[i] : high;
    }
    if (low == high) {
        low -= 0.5;
        high += 0.5;
    }
    if (!isfinite(low) || !isfinite(high) || low > high)
        return aoticache_shim_fail("%s: bins from %g to %g", __func__, low, high);
    SHIM_TRY(aoticache_shim_make(__func__, 1, (const int64_t[]){bins + 1}, F64, &edges));
    SHIM_TRY(aoticache_shim_make(__func__, 1, &bins, F64, &counts));
    SHIM_TRY(aoti_torch_zero_(counts));
    double *count = counts->tensor->data, total = 0;
    fill_edges(dtype, low, high, bins, edges->tensor->data);
    SHIM_TRY(count_values(__func__, values->tensor, weights != NULL ? weights->tensor->data : NULL, edges->tensor->data,
                          bins, count));
    for (int64_t i = 0; i < bins; i++)
        total += count[i];
    for (int64_t i = 0; density != 0 && i < bins; i++)
        count[i] /= total * ((high - low) / (double)bins);
    SHIM_TRY(aoticache_shim_read(__func__, counts, dtype, &result));
    SHIM_TRY(aoticache_shim_read(__func__, edges, dtype, ret1));
    *ret0 = shim_steal(&result);
    return SHIM_SUCCESS;
}
