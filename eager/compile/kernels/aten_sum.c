/*
 * aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor: sum of all elements. Integers are added as int64. Floating-point
 * numbers are added by pairwise summation, as PyTorch's cascade does in its own order, so that the error grows with the logarithm
 * of the count.
 */
#include "strided.h"

#if ARGUMENT_COUNT != 1 && !(ARGUMENT_COUNT == 2 && defined(KEY_dtype_IS_NONE))
#error "AOTICACHE_UNSUPPORTED: sum is served over all elements, without a dtype"
#endif

#if ARG0_IS_FLOATING
typedef TYPE total;
#define TOTAL_DTYPE ARG0_DTYPE
#else
typedef int64_t total;
#define TOTAL_DTYPE AOTICACHE_DTYPE_INT64
#endif

enum { LANES = 16, BLOCK = 1024 };

/* Sums a block in lanes, because the compiler may not change the order of additions by itself. */
static inline total sum_block(const TYPE *x, int64_t count, int64_t step)
{
    total lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int64_t lane = 0; lane < LANES; lane++)
            lanes[lane] += (total)x[(i + lane) * step];
    for (int64_t lane = 0; i + lane < count; lane++)
        lanes[lane] += (total)x[(i + lane) * step];
    for (int64_t half = LANES / 2; half > 0; half /= 2)
        for (int64_t lane = 0; lane < half; lane++)
            lanes[lane] += lanes[lane + half];
    return lanes[0];
}

static total sum_row(const TYPE *x, int64_t count, int64_t step)
{
    if (count <= BLOCK)
        return sum_block(x, count, step);
    int64_t half = count / 2;
    return sum_row(x, half, step) + sum_row(x + half * step, count - half, step);
}

#if ARG0_IS_DENSE
static total sum_all(const TYPE *x)
{
    return sum_row(x, ARG0_NUMEL, 1);
}
#else
static total sum_rows(const TYPE *x, int64_t first, int64_t count)
{
    const int64_t last = ARG0_NDIM - 1;
    if (count == 1)
        return sum_row(x + row_offset(first, ARG0_NDIM, arg0_sizes, arg0_strides), arg0_sizes[last],
                       arg0_strides[last]);
    int64_t half = count / 2;
    return sum_rows(x, first, half) + sum_rows(x, first + half, count - half);
}

/* Sums all elements. A tensor that is not dense has elements, and so dimensions. */
static total sum_all(const TYPE *x)
{
    return sum_rows(x, 0, ARG0_NUMEL / arg0_sizes[ARG0_NDIM - 1]);
}
#endif

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    const TYPE *x;
    total *sum;
    if (aoticache_kernel_data(call, call->inputs[0], &x) != AOTICACHE_KERNEL_OK ||
        aoticache_kernel_empty(call, 0, TOTAL_DTYPE, 0, arg0_sizes, NULL, &sum) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    *sum = sum_all(x);
    return AOTICACHE_KERNEL_OK;
}

EXPORT_KERNEL(1, run)
