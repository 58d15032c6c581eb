/*
 * A kernel library for tests/race/race_container.c. Its output has all that it read of its constants: SIZE elements of
 * `weight`, SIZE of `bias`, SIZE of `doubled`, halved again, which is folded from `weight`. If these were set to one
 * value, and no run sees half of a change, all are that value. Fails if x is -1.
 */
#include "runtime/kernel.h"

enum { SIZE = 2048 };

static const float weight_data[SIZE], bias_data[SIZE];
static const int64_t size[] = {SIZE}, all[] = {3 * SIZE}, one[] = {1};

static AOTIRuntimeError fold(aoticache_kernel_call *call)
{
    const float *weight;
    float *doubled;
    if (aoticache_kernel_data(call, call->constants[0], &weight) != 0 ||
        aoticache_kernel_empty(call, 2, AOTICACHE_DTYPE_FLOAT32, 1, size, NULL, &doubled) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    for (int i = 0; i < SIZE; i++)
        doubled[i] = 2 * weight[i];
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    const float *x, *weight, *bias, *doubled;
    float *y;
    if (aoticache_kernel_data(call, call->inputs[0], &x) != 0 ||
        aoticache_kernel_data(call, call->constants[0], &weight) != 0 ||
        aoticache_kernel_data(call, call->constants[1], &bias) != 0 ||
        aoticache_kernel_data(call, call->constants[2], &doubled) != 0 ||
        aoticache_kernel_empty(call, 0, AOTICACHE_DTYPE_FLOAT32, 1, all, NULL, &y) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    if (x[0] == -1)
        return aoticache_kernel_fail(call, "x is -1, on purpose");
    for (int i = 0; i < SIZE; i++) {
        y[i] = weight[i];
        y[SIZE + i] = bias[i];
        y[2 * SIZE + i] = doubled[i] / 2;
    }
    return AOTICACHE_KERNEL_OK;
}

#define CONSTANT(its_name, kind, bytes, ...)   \
    {.name = its_name,                         \
     .original_fqn = its_name,                 \
     .dtype = AOTICACHE_DTYPE_FLOAT32,         \
     .ndim = 1,                                \
     .sizes = size,                            \
     .strides = one,                           \
     .data_size = bytes,                       \
     .type = AOTICACHE_KERNEL_CONSTANT_##kind, \
     __VA_ARGS__}
static const char *const inputs[] = {"x"}, *const outputs[] = {"y"};
static const aoticache_kernel_constant constants[] = {
    CONSTANT("weight", PARAMETER, sizeof weight_data, .data = weight_data),
    CONSTANT("bias", PARAMETER, sizeof bias_data, .data = bias_data),
    CONSTANT("doubled", FOLDED, sizeof weight_data, .from_folded = true),
};
static const aoticache_kernel kernel = {
    .size = sizeof kernel,
    .device = "cpu",
    .num_inputs = 1,
    .input_names = inputs,
    .num_outputs = 1,
    .output_names = outputs,
    .num_constants = 3,
    .constants = constants,
    .run = run,
    .fold = fold,
};
AOTICACHE_KERNEL_EXPORT(kernel)
