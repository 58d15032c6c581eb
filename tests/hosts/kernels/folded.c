/*
 * The model Folded of tests/python/loader/host_models.py, compiled with constant folding at run time, as a kernel
 * library in C: y = x * weight + (weight * shift + shift), of which the part in parentheses is folded, and a copy of
 * weight with it, as PyTorch does.
 */
#include "runtime/kernel.h"

#include "call_spec.h"

enum { ROWS = 2, SIZE = 12, PADDED = 16 };

_Alignas(64) static const float weight_data[PADDED] = {-4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
_Alignas(64) static const float shift_data[PADDED] = {-9, -7, -5, -3, -1, 1, 3, 5, 7, 9, 11, 13};

static const int64_t x_sizes[] = {ROWS, SIZE}, x_strides[] = {SIZE, 1}, vector_sizes[] = {SIZE}, one[] = {1};

enum { WEIGHT, SHIFT, FOLDED_WEIGHT, FOLDED_ADD, CONSTANTS };

static AOTIRuntimeError fold(aoticache_kernel_call *call)
{
    const float *weight, *shift;
    float *folded_weight, *folded_add;
    if (aoticache_kernel_data(call, call->constants[WEIGHT], &weight) != 0 ||
        aoticache_kernel_data(call, call->constants[SHIFT], &shift) != 0 ||
        aoticache_kernel_empty(call, FOLDED_WEIGHT, AOTICACHE_DTYPE_FLOAT32, 1, vector_sizes, NULL, &folded_weight) !=
            0 ||
        aoticache_kernel_empty(call, FOLDED_ADD, AOTICACHE_DTYPE_FLOAT32, 1, vector_sizes, NULL, &folded_add) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    for (int i = 0; i < SIZE; i++) {
        folded_weight[i] = weight[i];
        folded_add[i] = weight[i] * shift[i] + shift[i];
    }
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    const float *x, *weight, *add;
    float *y;
    if (aoticache_kernel_check_input(call, 0, AOTICACHE_DTYPE_FLOAT32, 2, x_sizes, x_strides) != 0 ||
        aoticache_kernel_data(call, call->inputs[0], &x) != 0 ||
        aoticache_kernel_data(call, call->constants[FOLDED_WEIGHT], &weight) != 0 ||
        aoticache_kernel_data(call, call->constants[FOLDED_ADD], &add) != 0 ||
        aoticache_kernel_empty_like(call, 0, call->inputs[0], &y) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    for (int i = 0; i < ROWS * SIZE; i++)
        y[i] = x[i] * weight[i % SIZE] + add[i % SIZE];
    return AOTICACHE_KERNEL_OK;
}

#define VECTOR(label, kind, bytes)                                                        \
    {.name = label,                                                                       \
     .original_fqn = label,                                                               \
     .dtype = AOTICACHE_DTYPE_FLOAT32,                                                    \
     .ndim = 1,                                                                           \
     .sizes = vector_sizes,                                                               \
     .strides = one,                                                                      \
     .data_size = PADDED * sizeof(float),                                                 \
     .type = AOTICACHE_KERNEL_CONSTANT_##kind,                                            \
     .from_folded = AOTICACHE_KERNEL_CONSTANT_##kind == AOTICACHE_KERNEL_CONSTANT_FOLDED, \
     .data = bytes}
static const aoticache_kernel_constant constants[CONSTANTS] = {
    VECTOR("weight", PARAMETER, weight_data),
    VECTOR("shift", BUFFER, shift_data),
    VECTOR("_FOLDED_CONST_weight", FOLDED, NULL),
    VECTOR("_FOLDED_CONST_add", FOLDED, NULL),
};
static const char *const inputs[] = {"arg2_1"}, *const outputs[] = {"output0"};
static const aoticache_kernel kernel = {
    .size = sizeof kernel,
    .device = "cpu",
    .num_inputs = 1,
    .input_names = inputs,
    .num_outputs = 1,
    .output_names = outputs,
    .num_constants = CONSTANTS,
    .constants = constants,
    .in_spec = CALL_SPEC_ONE_INPUT,
    .out_spec = CALL_SPEC_ONE_OUTPUT,
    .run = run,
    .fold = fold,
};
AOTICACHE_KERNEL_EXPORT(kernel)
