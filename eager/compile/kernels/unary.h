/*
 * kernels/unary: a kernel that applies one function to each element of one tensor. The output has the input's strides if these
 * are dense; otherwise it is contiguous.
 *
 * The source defines `static inline TYPE apply(TYPE x)` after including this file, then uses EXPORT_UNARY_KERNEL.
 */
#ifndef KERNELS_UNARY_H
#define KERNELS_UNARY_H

#include "strided.h"

#if ARGUMENT_COUNT != 1
#error "AOTICACHE_UNSUPPORTED: this operator is served with one tensor and nothing else"
#endif

static inline TYPE apply(TYPE x);

#if ARG0_IS_DENSE
#define OUTPUT_STRIDES arg0_strides
static inline void compute(const TYPE *restrict x, TYPE *restrict y)
{
    for (int64_t i = 0; i < ARG0_NUMEL; i++)
        y[i] = apply(x[i]);
}
#else
#define OUTPUT_STRIDES NULL
static inline void compute(const TYPE *restrict x, TYPE *restrict y)
{
    const int64_t length = arg0_sizes[ARG0_NDIM - 1], step = arg0_strides[ARG0_NDIM - 1];
    for (int64_t row = 0; row * length < ARG0_NUMEL; row++) {
        const TYPE *from = x + row_offset(row, ARG0_NDIM, arg0_sizes, arg0_strides);
        for (int64_t i = 0; i < length; i++)
            y[row * length + i] = apply(from[i * step]);
    }
}
#endif

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    const TYPE *x;
    TYPE *y;
    if (aoticache_kernel_data(call, call->inputs[0], &x) != AOTICACHE_KERNEL_OK ||
        aoticache_kernel_empty(call, 0, ARG0_DTYPE, ARG0_NDIM, arg0_sizes, OUTPUT_STRIDES, &y) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    compute(x, y);
    return AOTICACHE_KERNEL_OK;
}

#define EXPORT_UNARY_KERNEL EXPORT_KERNEL(1, run)

#endif
