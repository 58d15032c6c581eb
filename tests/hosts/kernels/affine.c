/*
 * The model Affine of tests/python/loader/host_models.py as a kernel library in C: a linear layer, times a buffer, plus
 * a constant that tracing found; and the sum of the input. Names, sizes, types and call specification are those that
 * PyTorch gives its library of that model.
 */
#include "runtime/kernel.h"

#include "call_spec.h"

enum { ROWS = 2, IN = 4, OUT = 12, PADDED = 16 };

/* Padded to 64 bytes, as PyTorch counts them. */
_Alignas(64) static const float weight_data[OUT * IN] = {
    -5, -4, -3, -2, -1, 0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18,
    19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42};
_Alignas(64) static const float bias_data[PADDED] = {-7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4};
_Alignas(64) static const float scale_data[PADDED] = {-3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8};
_Alignas(64) static const float traced_data[PADDED] = {0, 1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 121};

static const int64_t x_sizes[] = {ROWS, IN}, x_strides[] = {IN, 1};
static const int64_t weight_sizes[] = {OUT, IN}, vector_sizes[] = {OUT}, one[] = {1};
static const int64_t y_sizes[] = {ROWS, OUT};

enum { WEIGHT, BIAS, SCALE, TRACED, CONSTANTS };

static float multiply(const float *x, const float *weight)
{
    float sum = 0;
    for (int i = 0; i < IN; i++)
        sum += x[i] * weight[i];
    return sum;
}

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    const float *x, *constants[CONSTANTS];
    float *y, *sum;
    if (aoticache_kernel_check_input(call, 0, AOTICACHE_DTYPE_FLOAT32, 2, x_sizes, x_strides) != 0 ||
        aoticache_kernel_data(call, call->inputs[0], &x) != 0 ||
        aoticache_kernel_empty(call, 0, AOTICACHE_DTYPE_FLOAT32, 2, y_sizes, NULL, &y) != 0 ||
        aoticache_kernel_empty(call, 1, AOTICACHE_DTYPE_FLOAT32, 0, NULL, NULL, &sum) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    for (int i = 0; i < CONSTANTS; i++)
        if (aoticache_kernel_data(call, call->constants[i], &constants[i]) != 0)
            return AOTICACHE_KERNEL_FAILURE;
    for (int row = 0; row < ROWS; row++)
        for (int o = 0; o < OUT; o++)
            y[row * OUT + o] =
                (multiply(x + row * IN, constants[WEIGHT] + o * IN) + constants[BIAS][o]) * constants[SCALE][o] +
                constants[TRACED][o];
    *sum = 0;
    for (int i = 0; i < ROWS * IN; i++)
        *sum += x[i];
    return AOTICACHE_KERNEL_OK;
}

#define VECTOR(label, fqn, kind, bytes)        \
    {.name = label,                            \
     .original_fqn = fqn,                      \
     .dtype = AOTICACHE_DTYPE_FLOAT32,         \
     .ndim = 1,                                \
     .sizes = vector_sizes,                    \
     .strides = one,                           \
     .data_size = sizeof(bytes),               \
     .type = AOTICACHE_KERNEL_CONSTANT_##kind, \
     .data = bytes}
static const aoticache_kernel_constant constants[CONSTANTS] = {
    {.name = "fc_weight",
     .original_fqn = "fc.weight",
     .dtype = AOTICACHE_DTYPE_FLOAT32,
     .ndim = 2,
     .sizes = weight_sizes,
     .strides = x_strides,
     .data_size = sizeof weight_data,
     .type = AOTICACHE_KERNEL_CONSTANT_PARAMETER,
     .data = weight_data},
    VECTOR("fc_bias", "fc.bias", PARAMETER, bias_data),
    VECTOR("scale", "scale", BUFFER, scale_data),
    VECTOR("_tensor_constant0", "_tensor_constant0", TENSOR, traced_data),
};
static const char *const inputs[] = {"arg3_1"}, *const outputs[] = {"output0", "output1"};
static const aoticache_kernel kernel = {
    .size = sizeof kernel,
    .device = "cpu",
    .num_inputs = 1,
    .input_names = inputs,
    .num_outputs = 2,
    .output_names = outputs,
    .num_constants = CONSTANTS,
    .constants = constants,
    .in_spec = CALL_SPEC_ONE_INPUT,
    .out_spec = CALL_SPEC_TWO_OUTPUTS,
    .run = run,
};
AOTICACHE_KERNEL_EXPORT(kernel)
