/*
 * kernels/strided: iterates over tensors whose sizes and strides are known when the kernel is compiled, and describes a kernel
 * with several inputs and one output.
 *
 * Sources of kernels see the request as macros (docs/hooks.md): ARG0_TYPE, ARG0_SIZES, KEY_alpha_VALUE ...
 */
#ifndef KERNELS_STRIDED_H
#define KERNELS_STRIDED_H

#include "runtime/kernel.h"

#if INPUT_COUNT < 1
#error "AOTICACHE_UNSUPPORTED: a kernel without tensors among its arguments"
#endif
#ifndef ARG0_TYPE
#error "AOTICACHE_UNSUPPORTED: served are tensors of float32, float64, uint8, int8, int16, int32 and int64"
#endif

#define TYPE ARG0_TYPE

static const int64_t arg0_sizes[] = ARG0_SIZES;
static const int64_t arg0_strides[] = ARG0_STRIDES;

/* Returns the offset of row `row`: rows are all dimensions except the last, in row-major order. */
static inline int64_t row_offset(int64_t row, int64_t ndim, const int64_t *sizes, const int64_t *strides)
{
    int64_t offset = 0;
    for (int64_t d = ndim - 2; d >= 0; d--) {
        offset += row % sizes[d] * strides[d];
        row /= sizes[d];
    }
    return offset;
}

static const char *const input_names[] = {"arg0", "arg1"};
static const char *const output_names[] = {"output"};

#define EXPORT_KERNEL(inputs, function)                                   \
    static const aoticache_kernel kernel = {.size = sizeof kernel,        \
                                            .device = "cpu",              \
                                            .num_inputs = (inputs),       \
                                            .input_names = input_names,   \
                                            .num_outputs = 1,             \
                                            .output_names = output_names, \
                                            .run = (function),            \
                                            .plain = true};               \
    AOTICACHE_KERNEL_EXPORT(kernel)

#endif
