/*
 * shim/quantized/quantized_linear: 8-bit linear layers. oneDNN sums the bytes on processors with VNNI; otherwise they are
 * widened.
 *
 * Source: onednn::qlinear_pointwise and its variants (aten/src/ATen/native/quantized/cpu/qlinear.cpp).
 */
#include "runtime/shim/math/onednn.h"
#include "runtime/shim/quantized/quantized.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <string.h>

enum { F32 = AOTICACHE_DTYPE_FLOAT32 };

struct linear_job {
    const struct quantized_finish *finish;
    int32_t *sums;
    void *result;
    int64_t rows;
    int parts;
};

static void finish_part(void *user, int part)
{
    const struct linear_job *job = user;
    const struct quantized_finish *f = job->finish;
    const int64_t first = job->rows * part / job->parts, end = job->rows * (part + 1) / job->parts;
    aoticache_shim_quantized_finish(f, job->sums + first * f->channels, f->channels, first, end - first, 0, f->channels,
                                    job->result);
}

/*
 * Sums bytes with oneDNN; x: rows x depth, contiguous. A row of ones after the others gives the excess of each sum per
 * unit of the zero point. *ret_sums: rows + 1 x channels; NULL: oneDNN does not support it.
 */
static AOTITorchError sum_bytes(const char *function, const struct shim_tensor *x, int64_t rows, int64_t channels,
                                const int8_t *weight, int32_t zero_point, AtenTensorHandle *ret_sums)
{
    cleanup_tensor AtenTensorHandle bytes = NULL, sums = NULL;
    const int64_t depth = rows > 0 ? x->numel / rows : 0;
    *ret_sums = NULL;
    if (x->numel == 0 || !aoticache_shim_onednn_has_bytes())
        return SHIM_SUCCESS;
    SHIM_TRY(aoticache_shim_make(function, 2, (const int64_t[]){rows + 1, depth}, x->dtype, &bytes));
    SHIM_TRY(aoticache_shim_make(function, 2, (const int64_t[]){rows + 1, channels}, AOTICACHE_DTYPE_INT32, &sums));
    memcpy(bytes->tensor->data, x->data, (size_t)x->numel);
    memset((char *)bytes->tensor->data + x->numel, 1, (size_t)depth);
    if (!aoticache_shim_onednn_multiply_bytes(rows + 1, channels, depth, x->dtype == AOTICACHE_DTYPE_UINT8,
                                              bytes->tensor->data, weight, sums->tensor->data))
        return SHIM_SUCCESS;
    uint32_t *excess = (uint32_t *)sums->tensor->data + rows * channels;
    for (int64_t i = 0; i < channels; i++)
        excess[i] *= (uint32_t)zero_point; /* wraps, as sums do */
    *ret_sums = shim_steal(&sums);
    return SHIM_SUCCESS;
}

static AOTITorchError linear(const char *function, const struct quantized_operands *o, AtenTensorHandle *ret_tensor)
{
    cleanup_tensor AtenTensorHandle x = NULL, wide = NULL, weight = NULL, scales = NULL, bias = NULL, sums = NULL;
    cleanup_tensor AtenTensorHandle other = NULL, result = NULL;
    struct quantized_finish f;
    double x_scale = 1, x_zero_point = 0;
    SHIM_TRY(aoticache_shim_quantized_check_input(function, o, &x_scale, &x_zero_point));
    const struct shim_tensor *in = o->x->tensor, *w = o->weight->tensor;
    if (in->ndim < 1 || w->ndim != 2 || in->sizes[in->ndim - 1] != w->sizes[0])
        return aoticache_shim_fail("%s: a weight of %d dimensions, %lld elements, does not match an input of %d "
                                   "dimensions, %lld elements",
                                   function, (int)w->ndim, (long long)w->numel, (int)in->ndim, (long long)in->numel);
    const int64_t depth = w->sizes[0], channels = w->sizes[1];
    int64_t sizes[SHIM_MAX_NDIM], rows = 1;
    memcpy(sizes, in->sizes, (size_t)in->ndim * sizeof *sizes);
    sizes[in->ndim - 1] = channels;
    for (int d = 0; d < in->ndim - 1; d++)
        rows *= sizes[d];
    SHIM_TRY(aoticache_shim_quantized_read_finish(function, o, channels, &f));
    SHIM_TRY(aoticache_shim_quantized_scales(function, o, channels, x_scale, &scales));
    SHIM_TRY(aoticache_shim_quantized_bias(function, o, channels, &bias));
    SHIM_TRY(aoticache_shim_read(function, o->x, in->dtype, &x));
    SHIM_TRY(aoticache_shim_quantized_rows(function, o->weight, true, &weight));
    SHIM_TRY(aoticache_shim_make(function, in->ndim, sizes, aoticache_shim_quantized_room_dtype(&f), &result));
    f.scales = scales->tensor->data;
    f.bias = bias != NULL ? bias->tensor->data : NULL;
    if (f.other != QUANTIZED_OTHER_NONE) {
        if (!aoticache_shim_same_sizes(o->other->tensor, result->tensor))
            return aoticache_shim_fail("%s: the other tensor does not have the result's sizes", function);
        SHIM_TRY(aoticache_shim_read(function, o->other, F32, &other));
        f.added = other->tensor->data;
    }
    SHIM_TRY(sum_bytes(function, x->tensor, rows, channels, weight->tensor->data, (int32_t)x_zero_point, &sums));
    if (sums != NULL) {
        f.excess = (const uint32_t *)sums->tensor->data + rows * channels;
    } else {
        SHIM_TRY(aoticache_shim_make(function, in->ndim, in->sizes, AOTICACHE_DTYPE_INT16, &wide));
        SHIM_TRY(aoticache_shim_make(function, in->ndim, sizes, AOTICACHE_DTYPE_INT32, &sums));
        aoticache_shim_quantized_widen(x->tensor, (int)x_zero_point, wide->tensor->data);
        const struct quantized_product product = {
            rows, channels, depth, false, wide->tensor->data, weight->tensor->data, sums->tensor->data, channels};
        aoticache_shim_quantized_multiply(&product);
    }
    struct linear_job job = {&f, sums->tensor->data, result->tensor->data, rows, 1};
    job.parts = aoticache_shim_parts((double)rows * (double)channels * 8, rows);
    if (result->tensor->numel > 0)
        aoticache_shim_parallel(job.parts, finish_part, &job);
    return aoticache_shim_quantized_give(function, &f, o, result, ret_tensor);
}

AOTITorchError aoti_torch_cpu__qlinear_pointwise_tensor(
    AtenTensorHandle X, AtenTensorHandle act_scale, AtenTensorHandle act_zero_point, AtenTensorHandle onednn_weight,
    AtenTensorHandle weight_scales, AtenTensorHandle weight_zero_points, AtenTensorHandle *B, double output_scale,
    int64_t output_zero_point, const int32_t *output_dtype, const char *post_op_name, const double **post_op_args,
    int64_t post_op_args_len_, const char *post_op_algorithm, AtenTensorHandle *ret0)
{
    const struct quantized_operands o = {QUANTIZED_OPERANDS, .unary = post_op_name, .algorithm = post_op_algorithm,
                                         .unary_scalars = post_op_args, .unary_scalar_count = post_op_args_len_};
    SHIM_CHECK_RESULT(ret0);
    return linear(__func__, &o, ret0);
}

AOTITorchError aoti_torch_cpu__qlinear_pointwise_binary_tensor(
    AtenTensorHandle X, AtenTensorHandle act_scale, AtenTensorHandle act_zero_point, AtenTensorHandle onednn_weight,
    AtenTensorHandle weight_scales, AtenTensorHandle weight_zero_points, AtenTensorHandle *other, AtenTensorHandle *B,
    double output_scale, int64_t output_zero_point, const int32_t *output_dtype, double other_scale,
    int64_t other_zero_point, const char *binary_post_op, double binary_alpha, const char *unary_post_op,
    const double **unary_post_op_args, int64_t unary_post_op_args_len_, const char *unary_post_op_algorithm,
    AtenTensorHandle *ret0)
{
    const struct quantized_operands o = {QUANTIZED_OPERANDS,
                                         .other = shim_optional(other),
                                         .other_scale = other_scale,
                                         .alpha = binary_alpha,
                                         .other_zero_point = other_zero_point,
                                         .binary = binary_post_op,
                                         .unary = unary_post_op,
                                         .algorithm = unary_post_op_algorithm,
                                         .unary_scalars = unary_post_op_args,
                                         .unary_scalar_count = unary_post_op_args_len_};
    SHIM_CHECK_RESULT(ret0);
    return linear(__func__, &o, ret0);
}
