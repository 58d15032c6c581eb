/*
 * shim/indexing/segment: segment_reduce: reduces each run of elements along one dimension to one element. Source:
 * aten/src/ATen/native/SegmentReduce.cpp.
 */
#include "runtime/shim/indexing/indexing_internal.h"

#include "runtime/shim/operators.h"

#include <math.h>

struct segments {
    enum shim_reduce reduce;
    shim_combine combine;
    const double *initial;
    int64_t outer, count, length, inner; /* data is outer x length x inner, the result outer x count x inner */
};

static double first_value(const struct segments *segments)
{
    if (segments->initial != NULL)
        return *segments->initial;
    switch (segments->reduce) {
    case SHIM_REDUCE_AMAX:
        return -INFINITY;
    case SHIM_REDUCE_AMIN:
        return INFINITY;
    case SHIM_REDUCE_PROD:
        return 1;
    default:
        return 0;
    }
}

static double reduce_lane(const struct segments *segments, double *values, int64_t begin, int64_t end)
{
    static const int64_t first = 0;
    double value = first_value(segments);
    const struct shim_line line = {
        .count = 1,
        .width = end - begin,
        .index = &first,
        .value_element = (ptrdiff_t)(segments->inner * (int64_t)sizeof value),
    };
    segments->combine(&line, (char *)&value, (char *)(values + begin * segments->inner));
    if (segments->reduce != SHIM_REDUCE_MEAN)
        return value;
    if (begin == end)
        return segments->initial != NULL ? value : NAN;
    return value / (double)(end - begin);
}

/* Reads the offsets of count + 1 boundaries for each outer row, from lengths or as given, and checks them. */
static AOTITorchError read_offsets(const char *function, AtenTensorHandle lengths, AtenTensorHandle offsets,
                                   int64_t data_length, AtenTensorHandle *ret_offsets)
{
    AtenTensorHandle given = lengths != NULL ? lengths : offsets;
    cleanup_tensor AtenTensorHandle numbers = NULL, made = NULL;
    int64_t sizes[SHIM_MAX_NDIM];
    if (!shim_is_defined(given) || given->tensor->ndim < 1)
        return aoticache_shim_fail("%s: lengths or offsets must have at least one dimension", function);
    SHIM_TRY(aoticache_shim_read(function, given, AOTICACHE_DTYPE_INT64, &numbers));
    const struct shim_tensor *tensor = numbers->tensor;
    int64_t given_count = tensor->sizes[tensor->ndim - 1], count = given_count + (lengths != NULL);
    if (count < 1)
        return aoticache_shim_fail("%s: no offsets are given", function);
    for (int d = 0; d < tensor->ndim; d++)
        sizes[d] = d == tensor->ndim - 1 ? count : tensor->sizes[d];
    SHIM_TRY(aoticache_shim_make(function, tensor->ndim, sizes, AOTICACHE_DTYPE_INT64, &made));
    const int64_t *from = tensor->data;
    int64_t *to = made->tensor->data;
    for (int64_t row = 0; row < made->tensor->numel / count; row++) {
        int64_t last = 0;
        for (int64_t i = 0; i < count; i++) {
            int64_t value = lengths == NULL ? from[row * given_count + i]
                            : i == 0        ? 0
                                            : from[row * given_count + i - 1];
            if (lengths != NULL && (value < 0 || __builtin_add_overflow(last, value, &value)))
                return aoticache_shim_fail("%s: a segment has a negative length", function);
            if (value < last || value > data_length)
                return aoticache_shim_fail("%s: the segments cover %lld of %lld elements", function, (long long)value,
                                           (long long)data_length);
            to[row * count + i] = last = value;
        }
    }
    *ret_offsets = shim_steal(&made);
    return SHIM_SUCCESS;
}

static void reduce_all(const struct segments *segments, double *data, const int64_t *offsets, double *result)
{
    for (int64_t outer = 0; outer < segments->outer; outer++)
        for (int64_t segment = 0; segment < segments->count; segment++) {
            const int64_t *range = offsets + outer * (segments->count + 1) + segment;
            for (int64_t inner = 0; inner < segments->inner; inner++)
                *result++ = reduce_lane(segments, data + outer * segments->length * segments->inner + inner, range[0],
                                        range[1]);
        }
}

AOTITorchError aoti_torch_cpu_segment_reduce(AtenTensorHandle data, const char *reduce, AtenTensorHandle *lengths,
                                             AtenTensorHandle *indices, AtenTensorHandle *offsets, int64_t axis,
                                             int32_t unsafe, double *initial, AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle values = NULL, bounds = NULL, numbers = NULL, result = NULL;
    struct segments segments = {.initial = initial};
    int64_t sizes[SHIM_MAX_NDIM];
    int at;
    (void)unsafe; /* checks that it would skip are always made, since they protect memory */
    SHIM_CHECK_TENSOR(data);
    SHIM_CHECK_RESULT(ret_0);
    if (shim_optional(indices) != NULL)
        return aoticache_shim_fail("%s: indices are not supported, as in PyTorch", __func__);
    if (aoticache_shim_work_dtype(data->tensor->dtype) != AOTICACHE_DTYPE_FLOAT64)
        return aoticache_shim_fail_dtype(__func__, data->tensor->dtype);
    SHIM_TRY(aoticache_shim_reduce_parse(__func__, reduce, &segments.reduce));
    SHIM_TRY(aoticache_shim_combine_select(__func__, segments.reduce, AOTICACHE_DTYPE_FLOAT64, &segments.combine));
    SHIM_TRY(aoticache_shim_wrap_dimension(__func__, data->tensor->ndim, axis, &at));
    struct shim_lanes lanes = aoticache_shim_lanes(data->tensor, at);
    SHIM_TRY(read_offsets(__func__, shim_optional(lengths), shim_optional(offsets), lanes.length, &bounds));
    const struct shim_tensor *ranges = bounds->tensor;
    segments.count = ranges->sizes[ranges->ndim - 1] - 1;
    segments.outer = lanes.outer;
    segments.length = lanes.length;
    segments.inner = lanes.inner;
    if (ranges->numel != lanes.outer * (segments.count + 1) || data->tensor->ndim == 0)
        return aoticache_shim_fail("%s: the segments' rows do not match the dimensions before %d", __func__, at);
    SHIM_TRY(aoticache_shim_read(__func__, data, AOTICACHE_DTYPE_FLOAT64, &values));
    for (int d = 0; d < data->tensor->ndim; d++)
        sizes[d] = d == at ? segments.count : data->tensor->sizes[d];
    SHIM_TRY(aoticache_shim_make(__func__, data->tensor->ndim, sizes, AOTICACHE_DTYPE_FLOAT64, &numbers));
    reduce_all(&segments, values->tensor->data, ranges->data, numbers->tensor->data);
    SHIM_TRY(aoticache_shim_read(__func__, numbers, data->tensor->dtype, &result));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}
