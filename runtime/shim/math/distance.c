/*
 * shim/math/distance: distances between the rows of matrices, by the p-norm: pdist (all pairs of one), cdist (of two).
 *
 * Source: aten/src/ATen/native/Distance.cpp, cpu/DistanceOpsKernel.cpp.
 */
#include "runtime/shim/math/internal.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <math.h>
#include <string.h>

static double distance(const double *a, const double *b, int64_t count, double p)
{
    double total = 0;
    for (int64_t i = 0; i < count; i++) {
        double step = fabs(a[i] - b[i]);
        if (p == 0)
            total += step != 0;
        else if (isinf(p))
            total = step > total || isnan(step) ? step : total;
        else
            total += p == 1 ? step : p == 2 ? step * step : pow(step, p);
    }
    if (p == 0 || p == 1 || isinf(p))
        return total;
    return p == 2 ? sqrt(total) : pow(total, 1 / p);
}

static AOTITorchError check_operand(const char *function, AtenTensorHandle tensor, double p)
{
    int32_t dtype = tensor->tensor->dtype;
    if (dtype != AOTICACHE_DTYPE_FLOAT32 && dtype != AOTICACHE_DTYPE_FLOAT64)
        return aoticache_shim_fail_dtype(function, dtype);
    if (!(p >= 0))
        return aoticache_shim_fail("%s: a norm of %g; it must not be negative", function, p);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu__pdist_forward(AtenTensorHandle self, double p, AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle rows = NULL, numbers = NULL, result = NULL;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(check_operand(__func__, self, p));
    if (self->tensor->ndim != 2)
        return aoticache_shim_fail("%s: a tensor of %d dimensions; it must be a matrix", __func__,
                                   (int)self->tensor->ndim);
    int64_t count = self->tensor->sizes[0], width = self->tensor->sizes[1], pairs = 0;
    if (__builtin_mul_overflow(count, count - 1, &pairs))
        return aoticache_shim_fail("%s: %lld rows are too many", __func__, (long long)count);
    pairs = count > 1 ? pairs / 2 : 0;
    SHIM_TRY(aoticache_shim_read(__func__, self, AOTICACHE_DTYPE_FLOAT64, &rows));
    SHIM_TRY(aoticache_shim_make(__func__, 1, &pairs, AOTICACHE_DTYPE_FLOAT64, &numbers));
    const double *row = rows->tensor->data;
    double *to = numbers->tensor->data;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = i + 1; j < count; j++)
            *to++ = width == 0 ? 0 : distance(row + i * width, row + j * width, width, p);
    SHIM_TRY(aoticache_shim_read(__func__, numbers, self->tensor->dtype, &result));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

/* Expands a tensor to `batch` in front of its last two dimensions, as contiguous doubles. */
static AOTITorchError expand_rows(const char *function, AtenTensorHandle tensor, int ndim, const int64_t *batch,
                                  AtenTensorHandle *ret_rows)
{
    int64_t sizes[SHIM_MAX_NDIM];
    const struct shim_tensor *from = tensor->tensor;
    memcpy(sizes, batch, (size_t)(ndim - 2) * sizeof *sizes);
    sizes[ndim - 2] = from->sizes[from->ndim - 2];
    sizes[ndim - 1] = from->sizes[from->ndim - 1];
    SHIM_TRY(aoticache_shim_make(function, ndim, sizes, AOTICACHE_DTYPE_FLOAT64, ret_rows));
    return aoti_torch_copy_(*ret_rows, tensor, 0);
}

AOTITorchError aoti_torch_cpu__cdist_forward(AtenTensorHandle x1, AtenTensorHandle x2, double p, int64_t *compute_mode,
                                             AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle a = NULL, b = NULL, numbers = NULL, result = NULL;
    int64_t sizes[SHIM_MAX_NDIM];
    int ndim = 0;
    (void)compute_mode; /* which of two ways is faster there; the distances are the same */
    SHIM_CHECK_TENSOR(x1);
    SHIM_CHECK_TENSOR(x2);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(check_operand(__func__, x1, p));
    const struct shim_tensor *first = x1->tensor, *second = x2->tensor;
    if (first->dtype != second->dtype || first->ndim < 2 || second->ndim < 2 ||
        first->sizes[first->ndim - 1] != second->sizes[second->ndim - 1])
        return aoticache_shim_fail("%s: matrices of one dtype with rows of one length are needed", __func__);
    SHIM_TRY(aoticache_shim_common_batch(__func__, first, second, &ndim, sizes));
    SHIM_TRY(expand_rows(__func__, x1, ndim, sizes, &a));
    SHIM_TRY(expand_rows(__func__, x2, ndim, sizes, &b));
    int64_t rows = first->sizes[first->ndim - 2], others = second->sizes[second->ndim - 2];
    int64_t width = first->sizes[first->ndim - 1];
    sizes[ndim - 2] = rows;
    sizes[ndim - 1] = others;
    SHIM_TRY(aoticache_shim_make(__func__, ndim, sizes, AOTICACHE_DTYPE_FLOAT64, &numbers));
    const double *from = a->tensor->data, *with = b->tensor->data;
    double *to = numbers->tensor->data;
    for (int64_t i = 0; i < numbers->tensor->numel; i++) {
        int64_t batch = i / (rows * others), row = i / others % rows, other = i % others;
        to[i] = width == 0
                    ? 0
                    : distance(from + (batch * rows + row) * width, with + (batch * others + other) * width, width, p);
    }
    SHIM_TRY(aoticache_shim_read(__func__, numbers, first->dtype, &result));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}
