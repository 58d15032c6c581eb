/*
 * shim/order/scan: what accumulates along one dimension: cumsum, cumprod, cummax, cummin, logcumsumexp.
 *
 * Source: aten/src/ATen/native/ReduceOps.cpp and cpu/ReduceOpsKernel.cpp. Sums and products of float accumulate in
 * double, as there.
 */
#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <complex.h>
#include <math.h>

typedef double _Complex complex_double;

/* One lane: `length` numbers that lie `step` apart. */
#define DEFINE_ACCUMULATE(name, type, first, operation)        \
    static void name(void *lane, int64_t length, int64_t step) \
    {                                                          \
        type *values = lane, total = first;                    \
        for (int64_t i = 0; i < length; i++, values += step)   \
            *values = total = total operation * values;        \
    }
#define DEFINE_ACCUMULATE_WRAPPING(name, first, operation)     \
    static void name(void *lane, int64_t length, int64_t step) \
    {                                                          \
        int64_t *values = lane;                                \
        uint64_t total = first;                                \
        for (int64_t i = 0; i < length; i++, values += step) { \
            total = total operation(uint64_t) * values;        \
            *values = (int64_t)total;                          \
        }                                                      \
    }
DEFINE_ACCUMULATE_WRAPPING(sum_int, 0, +)
DEFINE_ACCUMULATE_WRAPPING(multiply_int, 1, *)
DEFINE_ACCUMULATE(sum_double, double, 0, +)
DEFINE_ACCUMULATE(multiply_double, double, 1, *)
DEFINE_ACCUMULATE(sum_complex, complex_double, 0, +)
DEFINE_ACCUMULATE(multiply_complex, complex_double, 1, *)

/* Computes log(exp(a) + exp(b)) without leaving the range of double. */
static double log_add_exp(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    double smaller = a < b ? a : b, larger = a < b ? b : a;
    if (smaller == larger && isinf(larger))
        return larger;
    return larger + log1p(exp(smaller - larger));
}

static void log_sum(void *lane, int64_t length, int64_t step)
{
    double *values = lane, total = -INFINITY;
    for (int64_t i = 0; i < length; i++, values += step)
        *values = total = i == 0 ? *values : log_add_exp(total, *values);
}

typedef void (*accumulate)(void *lane, int64_t length, int64_t step);

/* The functions for int64, double and complex double; NULL if there is none. */
struct accumulation {
    accumulate of_int, of_double, of_complex;
};

static AOTITorchError scan(const char *function, const struct accumulation *accumulation, AtenTensorHandle self,
                           int64_t dim, int32_t dtype, AtenTensorHandle *ret_tensor)
{
    cleanup_tensor AtenTensorHandle input = NULL, values = NULL, result = NULL;
    int at;
    int32_t work = aoticache_shim_work_dtype(dtype);
    SHIM_TRY(aoticache_shim_wrap_dimension(function, self->tensor->ndim, dim, &at));
    accumulate run = work == AOTICACHE_DTYPE_INT64     ? accumulation->of_int
                     : work == AOTICACHE_DTYPE_FLOAT64 ? accumulation->of_double
                                                       : accumulation->of_complex;
    if (run == NULL)
        return aoticache_shim_fail_dtype(function, dtype);
    /* The elements are converted to `dtype` first: 1.5 as int64 counts 1. */
    SHIM_TRY(aoticache_shim_read(function, self, dtype, &input));
    SHIM_TRY(aoticache_shim_read_copy(function, input, work, &values));
    struct shim_lanes lanes = aoticache_shim_lanes(values->tensor, at);
    char *data = values->tensor->data;
    for (int64_t outer = 0; outer < lanes.outer && values->tensor->numel > 0; outer++)
        for (int64_t inner = 0; inner < lanes.inner; inner++)
            run(data + (size_t)(outer * lanes.length * lanes.inner + inner) * values->tensor->item_bytes, lanes.length,
                lanes.inner);
    SHIM_TRY(aoticache_shim_make(function, self->tensor->ndim, self->tensor->sizes, dtype, &result));
    SHIM_TRY(aoti_torch_copy_(result, values, 0));
    *ret_tensor = shim_steal(&result);
    return SHIM_SUCCESS;
}

/* Whole numbers add up as int64 unless something else is asked for. */
static int32_t sum_dtype(const int32_t *asked, int32_t dtype)
{
    if (asked != NULL)
        return *asked;
    return aoticache_shim_is_integral(dtype) ? AOTICACHE_DTYPE_INT64 : dtype;
}

AOTITorchError aoti_torch_cpu_cumsum(AtenTensorHandle self, int64_t dim, int32_t *dtype, AtenTensorHandle *ret_0)
{
    static const struct accumulation sums = {sum_int, sum_double, sum_complex};
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    return scan(__func__, &sums, self, dim, sum_dtype(dtype, self->tensor->dtype), ret_0);
}

AOTITorchError aoti_torch_cpu_cumprod(AtenTensorHandle self, int64_t dim, int32_t *dtype, AtenTensorHandle *ret_0)
{
    static const struct accumulation products = {multiply_int, multiply_double, multiply_complex};
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    return scan(__func__, &products, self, dim, sum_dtype(dtype, self->tensor->dtype), ret_0);
}

AOTITorchError aoti_torch_cpu_logcumsumexp(AtenTensorHandle self, int64_t dim, AtenTensorHandle *ret_0)
{
    static const struct accumulation sums = {NULL, log_sum, NULL};
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    return scan(__func__, &sums, self, dim, self->tensor->dtype, ret_0);
}

/* ---- the largest or smallest so far, and where it is: of equal ones the last; NaN is beyond all ---- */

#define DEFINE_EXTREME(name, type, is_nan)                                                             \
    static void name(type *values, int64_t *places, int64_t length, int64_t step, bool largest)        \
    {                                                                                                  \
        type best = *values;                                                                           \
        int64_t place = 0;                                                                             \
        for (int64_t i = 0; i < length; i++, values += step, places += step) {                         \
            if (is_nan(*values) || (!is_nan(best) && (largest ? *values >= best : *values <= best))) { \
                best = *values;                                                                        \
                place = i;                                                                             \
            }                                                                                          \
            *values = best;                                                                            \
            *places = place;                                                                           \
        }                                                                                              \
    }
#define NEVER(value) ((void)(value), false)
DEFINE_EXTREME(extreme_int, int64_t, NEVER)
DEFINE_EXTREME(extreme_double, double, isnan)

static AOTITorchError scan_extreme(const char *function, AtenTensorHandle self, int64_t dim, bool largest,
                                   AtenTensorHandle *ret_values, AtenTensorHandle *ret_places)
{
    cleanup_tensor AtenTensorHandle values = NULL, places = NULL, result = NULL;
    int at;
    const struct shim_tensor *tensor = self->tensor;
    int32_t work = aoticache_shim_work_dtype(tensor->dtype);
    SHIM_TRY(aoticache_shim_wrap_dimension(function, tensor->ndim, dim, &at));
    if (work == AOTICACHE_DTYPE_COMPLEX128)
        return aoticache_shim_fail_dtype(function, tensor->dtype);
    SHIM_TRY(aoticache_shim_read_copy(function, self, work, &values));
    SHIM_TRY(aoticache_shim_make(function, tensor->ndim, tensor->sizes, AOTICACHE_DTYPE_INT64, &places));
    SHIM_TRY(aoticache_shim_make(function, tensor->ndim, tensor->sizes, tensor->dtype, &result));
    struct shim_lanes lanes = aoticache_shim_lanes(values->tensor, at);
    int64_t *place = places->tensor->data;
    for (int64_t outer = 0; outer < lanes.outer && tensor->numel > 0; outer++)
        for (int64_t inner = 0; inner < lanes.inner; inner++) {
            int64_t first = outer * lanes.length * lanes.inner + inner;
            if (work == AOTICACHE_DTYPE_INT64)
                extreme_int((int64_t *)values->tensor->data + first, place + first, lanes.length, lanes.inner, largest);
            else
                extreme_double((double *)values->tensor->data + first, place + first, lanes.length, lanes.inner,
                               largest);
        }
    SHIM_TRY(aoti_torch_copy_(result, values, 0));
    *ret_values = shim_steal(&result);
    *ret_places = shim_steal(&places);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_cummax(AtenTensorHandle self, int64_t dim, AtenTensorHandle *ret_0,
                                     AtenTensorHandle *ret_1)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_CHECK_RESULT(ret_1);
    return scan_extreme(__func__, self, dim, true, ret_0, ret_1);
}

AOTITorchError aoti_torch_cpu_cummin(AtenTensorHandle self, int64_t dim, AtenTensorHandle *ret_0,
                                     AtenTensorHandle *ret_1)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_CHECK_RESULT(ret_1);
    return scan_extreme(__func__, self, dim, false, ret_0, ret_1);
}
