/*
 * shim/quantized/quantized: multiplication with an 8-bit operand.
 *
 * quantized_kernel.c multiplies; quantized_products.c and quantized_int4.c have the matrix multiplication operators;
 * quantized_linear.c and quantized_convolution.c have oneDNN's operators, and quantized_finish.c reads their arguments
 * and finishes their results. Private to runtime/shim/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_QUANTIZED_H
#define AOTICACHE_RUNTIME_SHIM_MATH_QUANTIZED_H

#include "runtime/shim/math/math_internal.h"

/*
 * Multiplies each row of a with each row of b: sums[row * sums_stride + column]. Rows of a and b are contiguous,
 * `depth` elements apart. Integers wrap at 32 bits, as in oneDNN.
 */
struct quantized_product {
    int64_t rows, columns, depth;
    bool floats;     /* a and the sums are float; otherwise a is int16_t and the sums are int32_t */
    const void *a;   /* rows x depth */
    const int8_t *b; /* columns x depth */
    void *sums;
    int64_t sums_stride; /* counted in sums */
};

void aoticache_shim_quantized_multiply(const struct quantized_product *product);

/*
 * Returns the elements of a 2-dimensional tensor as rows of int8, which are its columns if `transposed`: the tensor's
 * own memory if it has that layout, otherwise a copy.
 */
AOTITorchError aoticache_shim_quantized_rows(const char *function, AtenTensorHandle tensor, bool transposed,
                                             AtenTensorHandle *ret_rows);

/* Fails if one of the tensors is undefined. */
AOTITorchError aoticache_shim_check_defined(const char *function, const AtenTensorHandle *tensors, int count);

/*
 * Fails unless x, and the scales too, have a dtype that multiplication with 8-bit and 4-bit weights takes and returns:
 * float32, bfloat16 or float16.
 */
AOTITorchError aoticache_shim_check_activations(const char *function, const struct shim_tensor *x,
                                                const struct shim_tensor *scales);

/*
 * Writes a tensor of rows x depth (contiguous, int8 or uint8) as int16, with its zero point, between -256 and 256,
 * subtracted.
 */
void aoticache_shim_quantized_widen(const struct shim_tensor *tensor, int zero_point, int16_t *to);

/* ---- linear layers and convolutions of oneDNN's quantised operators: what they share (quantized_finish.c) ---- */

enum quantized_other {
    QUANTIZED_OTHER_NONE,
    QUANTIZED_OTHER_SUM, /* the result replaces the other tensor */
    QUANTIZED_OTHER_ADD
};

/* The operations on the integer sums. */
struct quantized_finish {
    enum quantized_other other;
    float other_scale, other_zero_point, output_scale, output_zero_point;
    int32_t dtype; /* dtype of the result */
    struct shim_unary unary;
    int64_t channels;
    const float *scales, *bias; /* one for each channel; bias: NULL: none */
    const float *added;         /* elements of the other tensor, by position; NULL: none */
    const uint32_t *excess;     /* per channel, the part of its sum that is due to the zero point; NULL: none */
};

/* A call's arguments that linear layers and convolutions share. */
struct quantized_operands {
    AtenTensorHandle x, x_scale, x_zero_point, weight, scales, zero_points, bias, other;
    double output_scale, other_scale, alpha;
    int64_t output_zero_point, other_zero_point;
    const int32_t *output_dtype;
    const char *binary, *unary, *algorithm;
    const double **unary_scalars;
    int64_t unary_scalar_count;
};

/* The arguments that every exported function has, under these names. */
#define QUANTIZED_OPERANDS                                                                                          \
    .x = X, .x_scale = act_scale, .x_zero_point = act_zero_point, .weight = onednn_weight, .scales = weight_scales, \
    .zero_points = weight_zero_points, .bias = shim_optional(B), .output_scale = output_scale,                      \
    .output_zero_point = output_zero_point, .output_dtype = output_dtype

/*
 * Finishes some positions, for the channels from `first` on. The sums are `stride` apart; `result` is contiguous:
 * bytes, or floats that are converted to the result's dtype at the end.
 */
void aoticache_shim_quantized_finish(const struct quantized_finish *f, int32_t *sums, int64_t stride, int64_t position,
                                     int64_t positions, int64_t first, int64_t count, void *result);
/* Reads the factor for each channel's sums. */
AOTITorchError aoticache_shim_quantized_scales(const char *function, const struct quantized_operands *o,
                                               int64_t channels, double x_scale, AtenTensorHandle *ret_scales);
/* Reads the bias. NULL: none. */
AOTITorchError aoticache_shim_quantized_bias(const char *function, const struct quantized_operands *o, int64_t channels,
                                             AtenTensorHandle *ret_bias);
/* Reads everything except scales, bias and the other tensor's elements. */
AOTITorchError aoticache_shim_quantized_read_finish(const char *function, const struct quantized_operands *o,
                                                    int64_t channels, struct quantized_finish *ret_finish);
/* Checks input and weight; returns the scale and zero point of the input. */
AOTITorchError aoticache_shim_quantized_check_input(const char *function, const struct quantized_operands *o,
                                                    double *ret_scale, double *ret_zero_point);
/* Converts the result, of bytes or floats, and returns it: in a new tensor, or in the other tensor's memory. */
AOTITorchError aoticache_shim_quantized_give(const char *function, const struct quantized_finish *f,
                                             const struct quantized_operands *o, AtenTensorHandle result,
                                             AtenTensorHandle *ret_tensor);
/* Returns the dtype of finished elements: bytes, or float32. */
int32_t aoticache_shim_quantized_room_dtype(const struct quantized_finish *f);

#endif
