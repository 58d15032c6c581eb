/*
 * shim/math/quantized: products in which one operand has 8 bits.
 *
 * quantized_kernel.c multiplies, quantized_products.c has the operators that are products, quantized_pointwise.c the
 * linear layers and convolutions of oneDNN's quantised operators. Private to runtime/shim/math/.
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

/* A tensor of rows x depth (contiguous, int8 or uint8) as int16 without its zero point, which lies between -256 and 256. */
void aoticache_shim_quantized_widen(const struct shim_tensor *tensor, int zero_point, int16_t *to);

#endif
