/*
 * |x| of float32[1], as a plain kernel. It also misbehaves as kernels may, depending on x: -100 fails with a message,
 * -200 without one, -300 makes no result. NOT_PLAIN: does not promise to be plain. CONSTANT: with a constant.
 */
#include "runtime/kernel.h"

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    static const int64_t sizes[] = {1};
    const float *x;
    float *y;
    if (call->device_type != AOTICACHE_DEVICE_TYPE_CPU || call->device_index != -1 ||
        aoticache_kernel_check_input(call, 0, AOTICACHE_DTYPE_FLOAT32, 1, sizes, NULL) != 0 ||
        aoticache_kernel_data(call, call->inputs[0], &x) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    if (*x == -200)
        return 17;
    if (*x == -300)
        return AOTICACHE_KERNEL_OK;
    if (aoticache_kernel_empty_like(call, 0, call->inputs[0], &y) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    *y = *x < 0 ? -*x : *x;
    return *x == -100 ? aoticache_kernel_fail(call, "%g is refused, on purpose", (double)*x) : AOTICACHE_KERNEL_OK;
}

#ifdef CONSTANT
static const int64_t constant_sizes[] = {1};
static const float constant_data[] = {1};
static const aoticache_kernel_constant constants[] = {
    {.name = "w",
     .original_fqn = "w",
     .dtype = AOTICACHE_DTYPE_FLOAT32,
     .ndim = 1,
     .sizes = constant_sizes,
     .strides = constant_sizes,
     .data_size = sizeof constant_data,
     .data = constant_data},
};
#endif
static const char *const inputs[] = {"x"}, *const outputs[] = {"y"};
static const aoticache_kernel kernel = {
    .size = sizeof kernel,
    .device = "cpu",
    .num_inputs = 1,
    .input_names = inputs,
    .num_outputs = 1,
    .output_names = outputs,
    .run = run,
#ifdef CONSTANT
    .num_constants = 1,
    .constants = constants,
#endif
#ifndef NOT_PLAIN
    .plain = true,
#endif
};
AOTICACHE_KERNEL_EXPORT(kernel)
