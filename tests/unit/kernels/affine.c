/*
 * A kernel library for test_kernel.c: y = x * weight + doubled, with `doubled` folded from `weight`. It fails on
 * purpose: with a message if x[0] is -1, without one if it is -2, with one output made if it is -3, and makes nothing
 * if it is -4. If it is -5, the input itself becomes the output.
 */
#include "runtime/kernel.h"

#ifndef WEIGHT_DATA
#define WEIGHT_DATA weight_data
#endif
#ifndef DESCRIPTION_SIZE
#define DESCRIPTION_SIZE sizeof(aoticache_kernel)
#endif
#ifndef FOLD
#define FOLD fold
#endif

static const float weight_data[3] = {2, 3, 4};
static const int64_t three[] = {3}, one[] = {1};
static int folds;

static AOTIRuntimeError fold(aoticache_kernel_call *call)
{
    const float *weight;
    float *doubled;
    folds++;
    if (aoticache_kernel_data(call, call->constants[0], &weight) != 0 ||
        aoticache_kernel_empty(call, 1, AOTICACHE_DTYPE_FLOAT32, 1, three, NULL, &doubled) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    for (int i = 0; i < 3; i++)
        doubled[i] = 2 * weight[i];
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    const float *x, *weight, *doubled;
    float *y, *count;
    if (aoticache_kernel_check_input(call, 0, AOTICACHE_DTYPE_FLOAT32, 1, three, one) != 0 ||
        aoticache_kernel_data(call, call->inputs[0], &x) != 0 ||
        aoticache_kernel_data(call, call->constants[0], &weight) != 0 ||
        aoticache_kernel_data(call, call->constants[1], &doubled) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    if (x[0] == -1)
        return aoticache_kernel_fail(call, "x[0] is %d, on purpose", -1);
    if (x[0] == -2)
        return 7;
    if (x[0] == -4)
        return AOTICACHE_KERNEL_OK;
    if (aoticache_kernel_empty(call, 1, AOTICACHE_DTYPE_FLOAT32, 0, NULL, NULL, &count) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    *count = (float)folds;
    if (x[0] == -3)
        return aoticache_kernel_fail(call, "after one output");
    if (x[0] == -5) {
        call->outputs[0] = call->inputs[0];
        call->inputs[0] = NULL;
        return AOTICACHE_KERNEL_OK;
    }
    if (aoticache_kernel_empty_like(call, 0, call->inputs[0], &y) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    for (int i = 0; i < 3; i++)
        y[i] = x[i] * weight[i] + doubled[i];
    return AOTICACHE_KERNEL_OK;
}

static const char *const inputs[] = {"x"}, *const outputs[] = {"y", "folds"};
static const aoticache_kernel_constant constants[] = {
    {.name = "L__self___weight",
     .original_fqn = "layer.weight",
     .dtype = AOTICACHE_DTYPE_FLOAT32,
     .ndim = 1,
     .sizes = three,
     .strides = one,
     .data_size = sizeof weight_data,
     .type = AOTICACHE_KERNEL_CONSTANT_PARAMETER,
     .data = WEIGHT_DATA},
    {.name = "doubled",
     .original_fqn = "",
     .dtype = AOTICACHE_DTYPE_FLOAT32,
     .ndim = 1,
     .sizes = three,
     .strides = one,
     .data_size = 12,
     .type = AOTICACHE_KERNEL_CONSTANT_FOLDED,
     .from_folded = true},
};
static const aoticache_kernel kernel = {
    .size = DESCRIPTION_SIZE,
    .device = "cpu",
    .num_inputs = 1,
    .input_names = inputs,
    .num_outputs = 2,
    .output_names = outputs,
    .num_constants = 2,
    .constants = constants,
    .in_spec = "in",
    .run = run,
    .fold = FOLD,
};
AOTICACHE_KERNEL_EXPORT(kernel)
