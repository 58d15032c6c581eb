/*
 * A kernel library for the tests of the holder: computes scale * x + offset, for float32 tensors of the sizes that are
 * written into the finished file (tests/unit/fixtures/patched_kernel.h): so there is a library for each request without
 * compiling each. Inputs after the first are added. If OUTPUTS is more than one, output i is output 0 plus i. With
 * TAKES_SCALE the second input is the scale, a float64 number.
 */
#include "patched_order.h"
#include "runtime/kernel.h"

#ifdef TAKES_SCALE
#define NUMBERS 1
#else
#define NUMBERS 0
#endif
#ifndef INPUTS
#define INPUTS 1
#endif
#ifndef OUTPUTS
#define OUTPUTS 1
#endif

static const volatile patched_order order = {.magic = PATCHED_MAGIC};

static AOTIRuntimeError check_sizes(aoticache_kernel_call *call, const aoticache_kernel_tensor *x)
{
    if (order.ndim < 0) /* any sizes */
        return AOTICACHE_KERNEL_OK;
    if (order.ndim != x->ndim)
        return aoticache_kernel_fail(call, "made for %d dimensions", (int)order.ndim);
    for (int i = 0; i < order.ndim; i++)
        if (order.sizes[i] != x->sizes[i])
            return aoticache_kernel_fail(call, "made for other sizes");
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    aoticache_kernel_tensor x;
    const float *data[INPUTS];
    if (aoticache_kernel_get_tensor(call, call->inputs[0], &x) != 0 || check_sizes(call, &x) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    for (int i = 0; i < INPUTS; i++)
        if (aoticache_kernel_data(call, call->inputs[i], &data[i]) != 0)
            return AOTICACHE_KERNEL_FAILURE;
    if (x.numel > 0 && data[0][0] == -1)
        return aoticache_kernel_fail(call, "x is -1, on purpose");
    double scale = order.scale;
    const double *number;
    if (NUMBERS != 0 && aoticache_kernel_data(call, call->inputs[INPUTS], &number) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    if (NUMBERS != 0)
        scale = *number;
    for (int output = 0; output < OUTPUTS; output++) {
        float *y;
        if (aoticache_kernel_empty(call, output, AOTICACHE_DTYPE_FLOAT32, x.ndim, x.sizes, NULL, &y) != 0)
            return AOTICACHE_KERNEL_FAILURE;
        for (int64_t k = 0; k < x.numel; k++) {
            float sum = (float)scale * data[0][k] + (float)order.offset + (float)output;
            for (int i = 1; i < INPUTS; i++)
                sum += data[i][k];
            y[k] = sum;
        }
    }
    return AOTICACHE_KERNEL_OK;
}

static const char *const names[] = {"t0", "t1", "t2", "t3"};
static const aoticache_kernel kernel = {
    .size = sizeof kernel,
    .device = "cpu",
    .num_inputs = INPUTS + NUMBERS,
    .input_names = names,
    .num_outputs = OUTPUTS,
    .output_names = names,
    .run = run,
};
AOTICACHE_KERNEL_EXPORT(kernel)
