/*
 * kernels/binary: a kernel that applies one function to the elements of two tensors of the same dtype, broadcast as in PyTorch.
 * The output has the inputs' strides if both have the same sizes and the same dense strides; otherwise it is contiguous.
 *
 * The source defines `static inline TYPE apply(TYPE x, TYPE y)` after including this file, then uses EXPORT_BINARY_KERNEL.
 */
#ifndef KERNELS_BINARY_H
#define KERNELS_BINARY_H

#include "strided.h"

#if INPUT_COUNT != 2 || !defined(ARG1_TYPE) || ARG0_DTYPE != ARG1_DTYPE
#error "AOTICACHE_UNSUPPORTED: this operator is served with two tensors of the same dtype"
#elif !INPUTS_BROADCAST
#error "AOTICACHE_UNSUPPORTED: the sizes of its two inputs cannot be broadcast, so it cannot run"
#endif

#define MAX_NDIM (ARG0_NDIM > ARG1_NDIM ? ARG0_NDIM : ARG1_NDIM)

static const int64_t arg1_sizes[] = ARG1_SIZES;
static const int64_t arg1_strides[] = ARG1_STRIDES;

static inline TYPE apply(TYPE x, TYPE y);

/* The output's sizes, and both inputs' strides for them: 0 if an input is repeated. */
struct broadcast {
    int64_t sizes[MAX_NDIM + 1], strides0[MAX_NDIM + 1], strides1[MAX_NDIM + 1];
    int64_t numel;
};

/* Adds one input; its last dimension is aligned with the output's last. */
static inline void broadcast_add(struct broadcast *all, int64_t ndim, const int64_t *sizes, const int64_t *strides,
                                 int64_t *ret_strides)
{
    for (int64_t d = 0; d < MAX_NDIM; d++) {
        int64_t own = d - (MAX_NDIM - ndim);
        ret_strides[d] = own >= 0 && sizes[own] != 1 ? strides[own] : 0;
        if (own >= 0 && sizes[own] != 1)
            all->sizes[d] = sizes[own];
    }
}

static inline void broadcast_inputs(struct broadcast *all)
{
    for (int64_t d = 0; d < MAX_NDIM; d++)
        all->sizes[d] = 1;
    broadcast_add(all, ARG0_NDIM, arg0_sizes, arg0_strides, all->strides0);
    broadcast_add(all, ARG1_NDIM, arg1_sizes, arg1_strides, all->strides1);
    all->numel = 1;
    for (int64_t d = 0; d < MAX_NDIM; d++)
        all->numel *= all->sizes[d];
}

static inline bool same_layout(void)
{
    for (int64_t d = 0; ARG0_NDIM == ARG1_NDIM && d < ARG0_NDIM; d++)
        if (arg0_sizes[d] != arg1_sizes[d] || arg0_strides[d] != arg1_strides[d])
            return false;
    return ARG0_NDIM == ARG1_NDIM && ARG0_IS_DENSE;
}

static inline void compute_dense(const TYPE *restrict x, const TYPE *restrict y, TYPE *restrict z)
{
    for (int64_t i = 0; i < ARG0_NUMEL; i++)
        z[i] = apply(x[i], y[i]);
}

/* Computes a row. Steps of 1 and 0 have separate loops, so that these are vectorized. */
static inline void compute_row(const TYPE *restrict x, int64_t step_x, const TYPE *restrict y, int64_t step_y,
                               TYPE *restrict z, int64_t length)
{
    if (step_x == 1 && step_y == 1)
        for (int64_t i = 0; i < length; i++)
            z[i] = apply(x[i], y[i]);
    else if (step_x == 1 && step_y == 0)
        for (int64_t i = 0; i < length; i++)
            z[i] = apply(x[i], y[0]);
    else
        for (int64_t i = 0; i < length; i++)
            z[i] = apply(x[i * step_x], y[i * step_y]);
}

static inline void compute_broadcast(const struct broadcast *all, const TYPE *x, const TYPE *y, TYPE *z)
{
    const int64_t last = MAX_NDIM - 1;
    const int64_t length = MAX_NDIM > 0 ? all->sizes[last] : 1;
    const int64_t step_x = MAX_NDIM > 0 ? all->strides0[last] : 0, step_y = MAX_NDIM > 0 ? all->strides1[last] : 0;
    for (int64_t row = 0; row * length < all->numel; row++)
        compute_row(x + row_offset(row, MAX_NDIM, all->sizes, all->strides0), step_x,
                    y + row_offset(row, MAX_NDIM, all->sizes, all->strides1), step_y, z + row * length, length);
}

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    struct broadcast all;
    const TYPE *x, *y;
    TYPE *z;
    broadcast_inputs(&all);
    if (aoticache_kernel_data(call, call->inputs[ARG0_INPUT], &x) != AOTICACHE_KERNEL_OK ||
        aoticache_kernel_data(call, call->inputs[ARG1_INPUT], &y) != AOTICACHE_KERNEL_OK ||
        aoticache_kernel_empty(call, 0, ARG0_DTYPE, MAX_NDIM, all.sizes, same_layout() ? arg0_strides : NULL, &z) !=
            AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    if (same_layout())
        compute_dense(x, y, z);
    else
        compute_broadcast(&all, x, y, z);
    return AOTICACHE_KERNEL_OK;
}

#define EXPORT_BINARY_KERNEL EXPORT_KERNEL(2, run)

#endif
