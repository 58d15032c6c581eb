/*
 * A kernel library for test_container.c: y = x W^T + b + t, with W of 2 by 3, b of 2 (a buffer), t of 1 (made by
 * tracing), and `total`, the sum of W, folded. It reads W by its strides. Outputs: y, total, and facts about the run:
 * its model, the number of folds, the largest number of concurrent runs.
 *
 * WEIGHTS: how they are stored. x[0] == -1 fails, x[0] == -2 takes 20 ms; folding fails if W[0][0] is 666.
 */
#include <stdatomic.h>
#include <time.h>

#include "runtime/kernel.h"

#ifndef WEIGHTS
#define WEIGHTS EMBEDDED
#endif
#define WEIGHTS_NAME_(place) AOTICACHE_KERNEL_WEIGHTS_##place
#define WEIGHTS_NAME(place) WEIGHTS_NAME_(place)
#ifndef WITH_DATA
#define WITH_DATA 1
#endif
#ifndef DEVICE
#define DEVICE "cpu"
#endif

static const float weight_data[16] = {1, 2, 3, 4, 5, 6}, bias_data[16] = {10, 20}, traced_data[16] = {100};
static const int64_t weight_sizes[] = {2, 3}, weight_strides[] = {3, 1}, two[] = {2}, three[] = {3}, one[] = {1};
static atomic_int folds, running, most;

/* Returns the sum, using the strides. */
static float sum(const aoticache_kernel_tensor *weight)
{
    float total = 0;
    for (int j = 0; j < 2; j++)
        for (int k = 0; k < 3; k++)
            total += ((const float *)weight->data)[j * weight->strides[0] + k * weight->strides[1]];
    return total;
}

static AOTIRuntimeError fold(aoticache_kernel_call *call)
{
    aoticache_kernel_tensor weight;
    float *total;
    folds++;
    if (aoticache_kernel_get_tensor(call, call->constants[0], &weight) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    if (((const float *)weight.data)[0] == 666)
        return aoticache_kernel_fail(call, "the fold fails on purpose");
    if (call->constants[3] != NULL)
        return aoticache_kernel_fail(call, "a folded constant is there before it is folded");
    if (aoticache_kernel_empty(call, 3, AOTICACHE_DTYPE_FLOAT32, 1, one, NULL, &total) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    *total = sum(&weight);
    return AOTICACHE_KERNEL_OK;
}

static void compute(const aoticache_kernel_tensor *weight, const float *bias, const float *traced, const float *x,
                    float *y)
{
    for (int j = 0; j < 2; j++) {
        y[j] = bias[j] + traced[0];
        for (int k = 0; k < 3; k++)
            y[j] += x[k] * ((const float *)weight->data)[j * weight->strides[0] + k * weight->strides[1]];
    }
}

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    aoticache_kernel_tensor weight;
    const float *x, *bias, *traced, *folded;
    float *y, *total, *told;
    int now = ++running, before = most;
    while (now > before && !atomic_compare_exchange_weak(&most, &before, now))
        ;
    if (aoticache_kernel_get_tensor(call, call->constants[0], &weight) != 0 ||
        aoticache_kernel_data(call, call->inputs[0], &x) != 0 ||
        aoticache_kernel_data(call, call->constants[1], &bias) != 0 ||
        aoticache_kernel_data(call, call->constants[2], &traced) != 0 ||
        aoticache_kernel_data(call, call->constants[3], &folded) != 0 ||
        aoticache_kernel_empty(call, 0, AOTICACHE_DTYPE_FLOAT32, 1, two, NULL, &y) != 0 ||
        aoticache_kernel_empty(call, 1, AOTICACHE_DTYPE_FLOAT32, 1, one, NULL, &total) != 0 ||
        aoticache_kernel_empty(call, 2, AOTICACHE_DTYPE_FLOAT32, 1, three, NULL, &told) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    if (x[0] == -2)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    compute(&weight, bias, traced, x, y);
    *total = *folded;
    running--;
    if (x[0] == -1)
        return aoticache_kernel_fail(call, "x[0] is -1, on purpose");
    told[0] = (float)call->model;
    told[1] = (float)folds;
    told[2] = (float)most;
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError run_arrayref(aoticache_kernel_call *call, const AOTInductorArrayRefTensor *inputs,
                                     AOTInductorArrayRefTensor *outputs)
{
    aoticache_kernel_tensor weight;
    const float *bias, *traced;
    if (aoticache_kernel_get_tensor(call, call->constants[0], &weight) != 0 ||
        aoticache_kernel_data(call, call->constants[1], &bias) != 0 ||
        aoticache_kernel_data(call, call->constants[2], &traced) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    compute(&weight, bias, traced, inputs[0].data, outputs[0].data);
    return AOTICACHE_KERNEL_OK;
}

#define CONSTANT(its_name, fqn, kind, dimensions, its_sizes, its_strides, bytes, its_data) \
    {.name = its_name,                                                                     \
     .original_fqn = fqn,                                                                  \
     .dtype = AOTICACHE_DTYPE_FLOAT32,                                                     \
     .ndim = dimensions,                                                                   \
     .sizes = its_sizes,                                                                   \
     .strides = its_strides,                                                               \
     .data_size = bytes,                                                                   \
     .type = AOTICACHE_KERNEL_CONSTANT_##kind,                                             \
     .data = WITH_DATA ? (its_data) : NULL}
static const char *const inputs[] = {"x"}, *const outputs[] = {"y", "total", "told"};
static const aoticache_kernel_constant constants[] = {
    CONSTANT("weight", "layer.weight", PARAMETER, 2, weight_sizes, weight_strides, 24, weight_data),
    CONSTANT("bias", "layer.bias", BUFFER, 1, two, one, 8, bias_data),
    CONSTANT("_tensor_constant0", "_tensor_constant0", TENSOR, 1, one, one, 4, traced_data),
    {.name = "total",
     .original_fqn = "",
     .dtype = AOTICACHE_DTYPE_FLOAT32,
     .ndim = 1,
     .sizes = one,
     .strides = one,
     .data_size = 4,
     .type = AOTICACHE_KERNEL_CONSTANT_FOLDED,
     .from_folded = true},
};
static const aoticache_kernel kernel = {
    .size = sizeof kernel,
    .device = DEVICE,
    .num_inputs = 1,
    .input_names = inputs,
    .num_outputs = 3,
    .output_names = outputs,
    .num_constants = 4,
    .constants = constants,
    .run = run,
    .fold = fold,
    .weights = WEIGHTS_NAME(WEIGHTS),
    .weights_file = "weights.bin",
    .run_arrayref = run_arrayref,
};
AOTICACHE_KERNEL_EXPORT(kernel)
