/*
 * shim/math/quantized: products in which one operand has 8 bits.
 *
 * quantized_kernel.c multiplies, quantized_products.c and quantized_int4.c have the operators that are products, quantized_linear.c and
 * quantized_convolution.c those of oneDNN, of which quantized_finish.c has the arguments and the end. Private to
 * runtime/shim/math/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_QUANTIZED_H
#define AOTICACHE_RUNTIME_SHIM_MATH_QUANTIZED_H

#include "runtime/shim/math/internal.h"

/*
 * Each row of a with each row of b: sums[row * sums_stride + column]. Rows of a and b are contiguous, and follow each other
 * in `depth` elements. Whole numbers wrap at 32 bits, as oneDNN's do.
 */
struct quantized_product {
    int64_t rows, columns, depth;
    bool floats;     /* a and the sums are float; else a is int16_t and the sums are int32_t */
    const void *a;   /* rows x depth */
    const int8_t *b; /* columns x depth */
    void *sums;
    int64_t sums_stride; /* in sums */
};

void aoticache_shim_quantized_multiply(const struct quantized_product *product);

/*
 * The elements of a tensor with 2 dimensions as rows of int8, which are its columns if `transposed`: the tensor's own
 * memory where it lies like that, or else a copy.
 */
AOTITorchError aoticache_shim_quantized_rows(const char *function, AtenTensorHandle tensor, bool transposed,
                                             AtenTensorHandle *ret_rows);

/* Fails where one of them is not there. */
AOTITorchError aoticache_shim_check_defined(const char *function, const AtenTensorHandle *tensors, int count);

/*
 * Fails unless x has what the products with weights of 8 and 4 bits take and give, float32 or the same rounded to half the
 * bits, and the scales have it, too.
 */
AOTITorchError aoticache_shim_check_activations(const char *function, const struct shim_tensor *x,
                                                const struct shim_tensor *scales);

/* A tensor of rows x depth (contiguous, int8 or uint8) as int16 without its zero point, which lies between -256 and 256. */
void aoticache_shim_quantized_widen(const struct shim_tensor *tensor, int zero_point, int16_t *to);

/* ---- linear layers and convolutions of oneDNN's quantised operators: what they share (quantized_finish.c) ---- */

enum quantized_other {
    QUANTIZED_OTHER_NONE,
    QUANTIZED_OTHER_SUM, /* the result takes the other tensor's place */
    QUANTIZED_OTHER_ADD
};

/* What is done to the sums of whole numbers. */
struct quantized_finish {
    enum quantized_other other;
    float other_scale, other_zero_point, output_scale, output_zero_point;
    int32_t dtype; /* of the result */
    struct shim_unary unary;
    int64_t channels;
    const float *scales, *bias; /* one for each channel; bias: NULL: none */
    const float *added;         /* the other tensor, position by position; NULL: none */
    const uint32_t *excess;     /* of the sums of the channels that are finished, by the zero point; NULL: none */
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

/* Of them those that every exported function has, under these names. */
#define QUANTIZED_OPERANDS                                                                                          \
    .x = X, .x_scale = act_scale, .x_zero_point = act_zero_point, .weight = onednn_weight, .scales = weight_scales, \
    .zero_points = weight_zero_points, .bias = shim_optional(B), .output_scale = output_scale,                      \
    .output_zero_point = output_zero_point, .output_dtype = output_dtype

/*
 * Finishes some positions of the channels from `first` on. The sums are `stride` apart; `result` is contiguous: bytes, or
 * floats that are converted to the result's dtype at the end.
 */
void aoticache_shim_quantized_finish(const struct quantized_finish *f, int32_t *sums, int64_t stride, int64_t position,
                                     int64_t positions, int64_t first, int64_t count, void *result);
/* The factor of each channel's sums. */
AOTITorchError aoticache_shim_quantized_scales(const char *function, const struct quantized_operands *o,
                                               int64_t channels, double x_scale, AtenTensorHandle *ret_scales);
/* NULL: none. */
AOTITorchError aoticache_shim_quantized_bias(const char *function, const struct quantized_operands *o, int64_t channels,
                                             AtenTensorHandle *ret_bias);
/* All but scales, bias and the other tensor's elements. */
AOTITorchError aoticache_shim_quantized_read_finish(const char *function, const struct quantized_operands *o,
                                                    int64_t channels, struct quantized_finish *ret_finish);
/* Input and weight; gives the scale and zero point of the input. */
AOTITorchError aoticache_shim_quantized_check_input(const char *function, const struct quantized_operands *o,
                                                    double *ret_scale, double *ret_zero_point);
/* The result, of bytes or floats, to where it belongs: a tensor of its own, or the place of the other one. */
AOTITorchError aoticache_shim_quantized_give(const char *function, const struct quantized_finish *f,
                                             const struct quantized_operands *o, AtenTensorHandle result,
                                             AtenTensorHandle *ret_tensor);
/* Of what is finished: bytes, or float32. */
int32_t aoticache_shim_quantized_room_dtype(const struct quantized_finish *f);

#endif
