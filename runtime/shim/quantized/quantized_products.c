/*
 * shim/quantized/quantized_products: multiplies matrices of which one or both have 8-bit or 4-bit elements.
 *
 * Sources: at::native::_int_mm_out_cpu, _weight_int8pack_mm_cpu
 * (aten/src/ATen/native/LinearAlgebra.cpp), _scaled_mm_out_cpu_emulated (aten/src/ATen/native/Blas.cpp).
 */
#include "runtime/shim/quantized/quantized.h"

#include "runtime/shim/math/onednn.h"
#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

enum { F32 = AOTICACHE_DTYPE_FLOAT32 };

AOTITorchError aoticache_shim_check_defined(const char *function, const AtenTensorHandle *tensors, int count)
{
    for (int i = 0; i < count; i++)
        if (!shim_is_defined(tensors[i]))
            return aoticache_shim_fail_undefined(function, tensors[i]);
    return SHIM_SUCCESS;
}

/* Checks that both matrices have the same depth: the last dimension of a, dimension `inner` of b. */
static AOTITorchError check_matrices(const char *function, const struct shim_tensor *a, const struct shim_tensor *b,
                                     int inner)
{
    if (a->ndim != 2 || b->ndim != 2)
        return aoticache_shim_fail("%s: two matrices are needed; these have %d and %d dimensions", function,
                                   (int)a->ndim, (int)b->ndim);
    if (a->sizes[1] != b->sizes[inner])
        return aoticache_shim_fail("%s: the first matrix has %lld columns, but the matching dimension of the "
                                   "second has size %lld",
                                   function, (long long)a->sizes[1], (long long)b->sizes[inner]);
    return SHIM_SUCCESS;
}

static AOTITorchError fail_pair(const char *function, const char *wanted, const struct shim_tensor *a,
                                const struct shim_tensor *b)
{
    char first[SHIM_DTYPE_TEXT_BYTES], second[SHIM_DTYPE_TEXT_BYTES];
    return aoticache_shim_fail("%s: %s; these are %s and %s", function, wanted,
                               aoticache_shim_dtype_text(a->dtype, first), aoticache_shim_dtype_text(b->dtype, second));
}

AOTITorchError aoti_torch_cpu__int_mm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2)
{
    cleanup_tensor AtenTensorHandle left = NULL, wide = NULL, right = NULL, result = NULL;
    SHIM_TRY(aoticache_shim_check_defined(__func__, (const AtenTensorHandle[]){out, self, mat2}, 3));
    const struct shim_tensor *a = self->tensor, *b = mat2->tensor;
    SHIM_TRY(check_matrices(__func__, a, b, 0));
    if ((a->dtype != AOTICACHE_DTYPE_INT8 && a->dtype != AOTICACHE_DTYPE_UINT8) || b->dtype != AOTICACHE_DTYPE_INT8)
        return fail_pair(__func__, "int8 or uint8 by int8 is needed", a, b);
    const int64_t sizes[] = {a->sizes[0], b->sizes[1]};
    if (out->tensor->dtype != AOTICACHE_DTYPE_INT32 || out->tensor->ndim != 2 || out->tensor->sizes[0] != sizes[0] ||
        out->tensor->sizes[1] != sizes[1])
        return aoticache_shim_fail("%s: the result must be int32, %lld x %lld", __func__, (long long)sizes[0],
                                   (long long)sizes[1]);
    SHIM_TRY(aoticache_shim_read(__func__, self, a->dtype, &left));
    SHIM_TRY(aoticache_shim_quantized_rows(__func__, mat2, true, &right));
    SHIM_TRY(aoticache_shim_make(__func__, 2, sizes, AOTICACHE_DTYPE_INT32, &result));
    if (aoticache_shim_onednn_multiply_bytes(sizes[0], sizes[1], a->sizes[1], a->dtype == AOTICACHE_DTYPE_UINT8,
                                             left->tensor->data, right->tensor->data, result->tensor->data))
        return aoti_torch_copy_(out, result, 0);
    SHIM_TRY(aoticache_shim_make(__func__, 2, a->sizes, AOTICACHE_DTYPE_INT16, &wide));
    aoticache_shim_quantized_widen(left->tensor, 0, wide->tensor->data);
    const struct quantized_product product = {
        sizes[0], sizes[1], a->sizes[1], false, wide->tensor->data, right->tensor->data, result->tensor->data,
        sizes[1]};
    aoticache_shim_quantized_multiply(&product);
    return aoti_torch_copy_(out, result, 0);
}

/* ---- 8-bit weights ---- */

AOTITorchError aoticache_shim_check_activations(const char *function, const struct shim_tensor *x,
                                                const struct shim_tensor *scales)
{
    const bool known = x->dtype == F32 || x->dtype == AOTICACHE_DTYPE_BFLOAT16 || x->dtype == AOTICACHE_DTYPE_FLOAT16;
    if (!known || scales->dtype != x->dtype)
        return fail_pair(function, "float32, bfloat16 or float16 and scales of the same dtype are needed", x, scales);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu__weight_int8pack_mm(AtenTensorHandle self, AtenTensorHandle mat2, AtenTensorHandle scales,
                                                  AtenTensorHandle *ret0)
{
    cleanup_tensor AtenTensorHandle left = NULL, right = NULL, factors = NULL, sums = NULL;
    SHIM_CHECK_RESULT(ret0);
    SHIM_TRY(aoticache_shim_check_defined(__func__, (const AtenTensorHandle[]){self, mat2, scales}, 3));
    const struct shim_tensor *x = self->tensor, *w = mat2->tensor, *s = scales->tensor;
    SHIM_TRY(check_matrices(__func__, x, w, 1));
    SHIM_TRY(aoticache_shim_check_activations(__func__, x, s));
    if (w->dtype != AOTICACHE_DTYPE_INT8)
        return fail_pair(__func__, "a weight of int8 is needed", x, w);
    if (s->ndim != 1 || s->numel != w->sizes[0])
        return aoticache_shim_fail("%s: %lld scales are needed, one for each result; these are %lld in %d "
                                   "dimensions",
                                   __func__, (long long)w->sizes[0], (long long)s->numel, (int)s->ndim);
    const int64_t rows = x->sizes[0], columns = w->sizes[0], sizes[] = {rows, columns};
    SHIM_TRY(aoticache_shim_read(__func__, self, F32, &left));
    SHIM_TRY(aoticache_shim_read(__func__, scales, F32, &factors));
    SHIM_TRY(aoticache_shim_quantized_rows(__func__, mat2, false, &right));
    SHIM_TRY(aoticache_shim_make(__func__, 2, sizes, F32, &sums));
    float *sum = sums->tensor->data;
    const float *factor = factors->tensor->data;
    const struct quantized_product product = {rows, columns, x->sizes[1], true, left->tensor->data, right->tensor->data,
                                              sum,  columns};
    aoticache_shim_quantized_multiply(&product);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < columns; i++)
            sum[row * columns + i] *= factor[i];
    return aoticache_shim_read(__func__, sums, x->dtype, ret0);
}

/* ---- small floats with scales ---- */

/* Returns the elements as float, times a scale: one for all, or one for each row (dimension 0) or column. */
static AOTITorchError scale(const char *function, AtenTensorHandle tensor, AtenTensorHandle scales, int dimension,
                            AtenTensorHandle *ret_scaled)
{
    cleanup_tensor AtenTensorHandle factors = NULL, scaled = NULL;
    const struct shim_tensor *t = tensor->tensor, *s = scales->tensor;
    const int64_t rows = t->sizes[0], columns = t->sizes[1];
    const bool single = s->numel == 1;
    if (s->dtype != F32 ||
        (!single && (s->ndim != 2 || s->sizes[dimension] != t->sizes[dimension] || s->sizes[1 - dimension] != 1)))
        return aoticache_shim_fail("%s: scales of float32 are needed, one, or one for each %s; these are %lld in %d "
                                   "dimensions (scales of blocks are not supported)",
                                   function, dimension == 0 ? "row" : "column", (long long)s->numel, (int)s->ndim);
    SHIM_TRY(aoticache_shim_read(function, scales, F32, &factors));
    SHIM_TRY(aoticache_shim_read_copy(function, tensor, F32, &scaled));
    const float *factor = factors->tensor->data;
    float *x = scaled->tensor->data;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++)
            x[row * columns + column] *= factor[single ? 0 : dimension == 0 ? row : column];
    *ret_scaled = shim_steal(&scaled);
    return SHIM_SUCCESS;
}

static bool is_float8(int32_t dtype)
{
    return dtype >= AOTICACHE_DTYPE_FLOAT8_E5M2 && dtype <= AOTICACHE_DTYPE_FLOAT8_E4M3FNUZ;
}

AOTITorchError aoti_torch_cpu__scaled_mm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2,
                                             AtenTensorHandle scale_a, AtenTensorHandle scale_b, AtenTensorHandle *bias,
                                             AtenTensorHandle *scale_result, int32_t *out_dtype, int32_t use_fast_accum)
{
    cleanup_tensor AtenTensorHandle left = NULL, right = NULL, result = NULL, addend = NULL;
    float divisor = 1;
    (void)out_dtype;      /* always that of `out` */
    (void)use_fast_accum; /* only for GPUs */
    SHIM_TRY(aoticache_shim_check_defined(__func__, (const AtenTensorHandle[]){out, self, mat2, scale_a, scale_b}, 5));
    const struct shim_tensor *a = self->tensor, *b = mat2->tensor;
    SHIM_TRY(check_matrices(__func__, a, b, 0));
    if (!is_float8(a->dtype) || !is_float8(b->dtype))
        return fail_pair(__func__, "matrices of float8 are needed", a, b);
    const int64_t rows = a->sizes[0], columns = b->sizes[1], depth = a->sizes[1], sizes[] = {rows, columns};
    SHIM_TRY(scale(__func__, self, scale_a, 0, &left));
    SHIM_TRY(scale(__func__, mat2, scale_b, 1, &right));
    SHIM_TRY(aoticache_shim_make(__func__, 2, sizes, F32, &result));
    AtenTensorHandle given = shim_optional(bias), last = shim_optional(scale_result);
    if (shim_is_defined(given)) {
        SHIM_TRY(aoticache_shim_read(__func__, given, F32, &addend));
        if (addend->tensor->numel != columns)
            return aoticache_shim_fail("%s: a bias of %lld elements for %lld columns", __func__,
                                       (long long)addend->tensor->numel, (long long)columns);
    }
    if (shim_is_defined(last) && is_float8(out->tensor->dtype))
        SHIM_TRY(aoti_torch_item_float32(last, &divisor));
    const ptrdiff_t item = sizeof(float);
    const struct matmul_problem problem = {
        .arithmetic = aoticache_shim_matmul_arithmetic(SHIM_CLASS_FLOAT),
        .access = aoticache_shim_dtype_access(F32),
        .item_bytes = sizeof(float),
        .rows = rows,
        .columns = columns,
        .depth = depth,
        .alpha = 1,
        .beta = 1,
        .a = {left->tensor->data, depth * item, item},
        .b = {right->tensor->data, columns * item, item},
        .addend = {addend != NULL ? addend->tensor->data : NULL, 0, item},
        .out = {result->tensor->data, columns * item, item},
    };
    if (result->tensor->numel > 0 && !aoticache_shim_matmul(&problem))
        return aoticache_shim_fail_memory(__func__, (size_t)result->tensor->numel * sizeof(float));
    float *x = result->tensor->data;
    for (int64_t i = 0; divisor != 1 && i < result->tensor->numel; i++)
        x[i] *= 1 / divisor;
    return aoticache_shim_write_out(__func__, out, result);
}

AOTITorchError aoti_torch_cpu__scaled_mm(AtenTensorHandle self, AtenTensorHandle mat2, AtenTensorHandle scale_a,
                                         AtenTensorHandle scale_b, AtenTensorHandle *bias,
                                         AtenTensorHandle *scale_result, int32_t *out_dtype, int32_t use_fast_accum,
                                         AtenTensorHandle *ret0)
{
    cleanup_tensor AtenTensorHandle out = NULL;
    SHIM_CHECK_RESULT(ret0);
    SHIM_TRY(aoticache_shim_check_defined(__func__, (const AtenTensorHandle[]){self, mat2}, 2));
    SHIM_TRY(check_matrices(__func__, self->tensor, mat2->tensor, 0));
    const int64_t sizes[] = {self->tensor->sizes[0], mat2->tensor->sizes[1]};
    SHIM_TRY(aoticache_shim_make(__func__, 2, sizes, out_dtype != NULL ? *out_dtype : self->tensor->dtype, &out));
    SHIM_TRY(aoti_torch_cpu__scaled_mm_out(out, self, mat2, scale_a, scale_b, bias, scale_result, out_dtype,
                                           use_fast_accum));
    *ret0 = shim_steal(&out);
    return SHIM_SUCCESS;
}
