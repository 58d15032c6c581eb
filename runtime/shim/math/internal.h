/*
 * shim/math: what the products, convolutions and pooling share.
 *
 * Private to runtime/shim/math/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_INTERNAL_H
#define AOTICACHE_RUNTIME_SHIM_MATH_INTERNAL_H

#include "runtime/shim/tensors/convert.h"
#include "runtime/shim/tensors/cpu.h"

/*
 * ---- threads (threads.c): the thread pool of the process's OpenMP runtime ----
 *
 * Kernels that PyTorch compiles use OpenMP. A second thread pool would compete with OpenMP's for the same processors,
 * because threads of both would spin before they sleep. So the shim has no threads of its own, and OMP_NUM_THREADS or
 * omp_set_num_threads() sets the number of threads for everything.
 *
 * The runtime is the one that is loaded already, or else libgomp; it stays loaded. Without a runtime the calling thread
 * does all the work.
 */

/* Whether this process has an OpenMP runtime. Loads one if there is none yet. */
bool aoticache_shim_has_threads(void);

/*
 * How many parts may run at once on this thread's behalf. 1 inside a parallel region, where other threads are at work
 * already, and in the child of a fork that the runtime's threads do not survive (base/process/openmp_fork.h).
 */
int aoticache_shim_threads(void);

/* Whether this process is such a child. */
bool aoticache_shim_is_forked(void);

/* Into how many parts to cut `work` multiplications and additions: each has some 5 microseconds; `most` at most. */
int aoticache_shim_parts(double work, long long most);

/* Where a part of `count` things begins, and where the part before it ends: the first parts have one more. */
static inline int64_t shim_part_begin(int64_t count, int parts, int part)
{
    const int64_t more = count % parts;
    return part * (count / parts) + (part < more ? part : more);
}

/* Whether the library's OpenMP functions are those of this process's runtime, so that both share one thread pool. */
bool aoticache_shim_is_openmp_of(void *library);

/*
 * Sets how many threads the next parallel regions of the calling thread have, as omp_set_num_threads() does, and returns
 * what to set afterwards. For libraries that use OpenMP themselves.
 */
int aoticache_shim_set_threads(int threads);

/* Runs each part 0 .. parts - 1 once, on any of the threads, and returns when all are done. */
void aoticache_shim_parallel(int parts, void (*run)(void *user, int part), void *user);

/*
 * ---- images (image.c) ----
 *
 * Tensors of a batch, channels and one to three spatial dimensions, seen as three; their memory formats; and the lists
 * of numbers that describe a window (stride, padding, dilation).
 *
 * Every number in these lists and every size is below 2^31 once it has been read here, so that the arithmetic of
 * windows stays inside int64_t.
 */

#define IMAGE_AXES 3

/* An image. Dimensions that the tensor lacks come first, with size 1. Strides are in bytes. */
struct image {
    char *data;
    int64_t batch, channels;
    int64_t sizes[IMAGE_AXES];
    ptrdiff_t batch_stride, channel_stride;
    ptrdiff_t strides[IMAGE_AXES];
};

/*
 * Looks at a tensor as an image: `axes` spatial dimensions, before them the channels, and before those maybe a batch.
 */
AOTITorchError aoticache_shim_image_of(const char *function, const struct shim_tensor *tensor, int axes,
                                       struct image *ret_image);

/* As c10::is_channels_last_strides_2d and _3d (c10/core/MemoryFormat.h), for 4 and 5 dimensions; false for others. */
bool aoticache_shim_is_channels_last(const struct shim_tensor *tensor);

/* Makes a tensor of `ndim` dimensions; with channels_last, the second one is innermost. */
AOTITorchError aoticache_shim_image_empty(const char *function, int ndim, const int64_t *sizes, bool channels_last,
                                          int32_t dtype, AtenTensorHandle *ret_tensor);

/*
 * Reads a list with one number for each of `axes` spatial dimensions, or one number for all, into the last of three
 * places; the others get `filler`. Numbers below `least` are refused; the message names `what`.
 */
AOTITorchError aoticache_shim_window_read(const char *function, const char *what, const int64_t *values, int64_t count,
                                          int axes, int64_t least, int64_t filler, int64_t ret_values[IMAGE_AXES]);

/* The place of element `position` of an image of these sizes. */
void aoticache_shim_split_position(const int64_t sizes[IMAGE_AXES], int64_t position, int64_t ret_at[IMAGE_AXES]);

/*
 * The batch that matrices of two tensors of two dimensions or more have in common (linear_systems.c): *ret_ndim is that of
 * the result, with the matrices' own two; ret_batch has the sizes before these.
 */
AOTITorchError aoticache_shim_common_batch(const char *function, const struct shim_tensor *a,
                                           const struct shim_tensor *b, int *ret_ndim, int64_t *ret_batch);

/*
 * ---- products of matrices with any strides, blocked for the caches ----
 *
 * matmul_block.c has the walk over blocks, matmul_kernel.c the innermost loops for each class of numbers, blas.c large
 * products where the machine has a BLAS, matmul_vector.c products with vectors, matmul_panels.c those with the weights of frozen
 * packages and small ones, matmul.c the exported functions and their checks.
 */

/* Largest block: rows and columns of the result, and how much of the inner dimension is packed at once. */
enum { MATMUL_BLOCK_ROWS = 64, MATMUL_BLOCK_COLUMNS = 256, MATMUL_BLOCK_DEPTH = 256 };

/*
 * The arithmetic of one class of numbers. Operands are packed: `rows` (or `columns`) values of one step of the inner
 * dimension lie together, step after step.
 */
struct matmul_arithmetic {
    size_t value_bytes;
    int rows; /* of the result, that `accumulate` makes at once */
    int columns;
    /* tile[rows][columns] += a * b over `depth` steps; tile_stride in values. */
    void (*accumulate)(int64_t depth, const void *a, const void *b, void *tile, ptrdiff_t tile_stride);
    /* row = alpha * row + beta * addend; without addend (NULL) beta does not count. */
    void (*finish)(size_t count, void *row, const void *addend, double alpha, double beta);
};

/* NULL: the class is not one of numbers that can be multiplied here. */
const struct matmul_arithmetic *aoticache_shim_matmul_arithmetic(enum shim_class kind);

/* A matrix of elements in memory; strides in bytes. */
struct matmul_matrix {
    char *data;
    ptrdiff_t row_stride;
    ptrdiff_t column_stride;
};

struct matmul_problem {
    const struct matmul_arithmetic *arithmetic;
    const struct shim_dtype_access *access; /* all matrices have one dtype */
    uint32_t item_bytes;                    /* of an element of it */
    int64_t rows, columns, depth;           /* out is rows x columns, a is rows x depth */
    struct matmul_matrix a, b, addend, out; /* addend.data NULL: none */
    double alpha, beta;
    int64_t
        batches; /* of the call that this product is one of, 0 or 1: the only one; a library is chosen by all of them */
};

/* Bytes that aoticache_shim_matmul_run needs to work in, aligned to 64. */
size_t aoticache_shim_matmul_workspace_bytes(const struct matmul_problem *problem);
void aoticache_shim_matmul_run(const struct matmul_problem *problem, void *workspace);
/* Puts the addend into the result, for libraries that add to what is there. Often it is there already. */
void aoticache_shim_matmul_place_addend(const struct matmul_problem *problem);
/* The same with a workspace of its own, only where one is needed. False: out of memory. */
bool aoticache_shim_matmul(const struct matmul_problem *problem);
/* The same for up to three rows or columns (matmul_vector.c). False: nothing was written, and the blocks do it. */
bool aoticache_shim_matmul_vectors(const struct matmul_problem *problem);
/*
 * What follows a product whose columns are `count` groups of as many: a thread that has made the columns `first` to `end` of
 * each group goes on with them, while others still make theirs.
 */
struct matmul_groups {
    int64_t count;
    void (*then)(void *user, int64_t first, int64_t end);
    void *user;
};
/*
 * The same for a weight b whose elements never change, which are kept in an order of their own (matmul_panels.c): float32, alpha
 * and beta 1, an addend for each column or the result itself. groups: NULL: none. False: nothing was written, and
 * aoticache_shim_matmul() does it.
 */
bool aoticache_shim_matmul_kept(const struct matmul_problem *problem, struct shim_packed *packed,
                                const struct matmul_groups *groups);
/* The same for any b that is small, without keeping it, on processors with AVX-512; called by aoticache_shim_matmul(). */
bool aoticache_shim_matmul_panels(const struct matmul_problem *problem);
/*
 * A tile of sums to its place in the result: factors, addend, dtype; the tile's values are changed. At most
 * MATMUL_BLOCK_COLUMNS columns. tile_stride in values.
 */
void aoticache_shim_matmul_write(const struct matmul_problem *problem, char *tile, ptrdiff_t tile_stride, int64_t row,
                                 int64_t rows, int64_t column, int64_t columns);

/* The BLAS of the machine, loaded by the first call, for what else it has; NULL: none that can be used (blas.c). */
void *aoticache_shim_blas_library(void);

/* 16 rows of 16 numbers, so many apart in both places, become columns (matmul_panels.c). For processors with AVX-512. */
void aoticache_shim_transpose_16(const float *from, ptrdiff_t from_stride, float *to, ptrdiff_t to_stride);

/* ---- attention: attention.c walks over blocks of queries and tiles of keys, attention_rows.c has the softmax ---- */

/* A row of a tile of scores. Arrays have `count` values, a multiple of 16, of the class that is computed with. */
struct attention_row {
    size_t count, live; /* scores from `live` on get weight 0 */
    double scale;
    const void *mask; /* added to the scaled scores; NULL: none */
};

/*
 * Makes weights of scores: exp(score - largest). *max is the largest score so far (-INFINITY before the first tile),
 * *sum the sum of weights. Returns what earlier weights must be multiplied with.
 */
typedef double (*attention_soften)(const struct attention_row *row, void *scores, double *max, double *sum);

/* For float and double. Rows of `width` values lie close together, `stride` bytes from one to the next. */
struct attention_arithmetic {
    attention_soften soften;
    /* scores[k] = query . keys[k] */
    void (*score)(int64_t count, int64_t width, const void *query, const char *keys, ptrdiff_t stride, void *scores);
    /* sums += weights[k] * values[k] for all k */
    void (*add)(int64_t count, int64_t width, const void *weights, const char *values, ptrdiff_t stride, void *sums);
    /* The same with keys and values of bfloat16, the rest of floats; NULL for double. */
    void (*score_halves)(int64_t count, int64_t width, const void *query, const char *keys, ptrdiff_t stride,
                         void *scores);
    void (*add_halves)(int64_t count, int64_t width, const void *weights, const char *values, ptrdiff_t stride,
                       void *sums);
};
struct attention_arithmetic aoticache_shim_attention_arithmetic(enum shim_class kind);

/* ---- what is done to each element of a result, x (unary.c) ---- */

enum shim_unary_kind {
    SHIM_UNARY_NONE,
    SHIM_UNARY_RELU,
    SHIM_UNARY_LEAKY_RELU, /* scalars[0] times x below 0 */
    SHIM_UNARY_HARDTANH,   /* between scalars[0] and scalars[1] */
    SHIM_UNARY_HARDSWISH,
    SHIM_UNARY_HARDSIGMOID,
    SHIM_UNARY_SIGMOID,
    SHIM_UNARY_SWISH,
    SHIM_UNARY_TANH,
    SHIM_UNARY_GELU,
    SHIM_UNARY_GELU_TANH
};

struct shim_unary {
    enum shim_unary_kind kind;
    double scalars[2];
};

/* What PyTorch calls it, with its numbers and, of gelu, its form (fused.c). name: NULL: nothing is done. */
AOTITorchError aoticache_shim_unary_read(const char *function, const char *name, const double **scalars,
                                         int64_t scalar_count, const char *const *algorithm,
                                         struct shim_unary *ret_unary);
void aoticache_shim_unary_apply(const struct shim_unary *unary, float *x, int64_t count);

/* ---- operands of half the bits (fused_half.c) ---- */

/* bfloat16 or float16. */
bool aoticache_shim_is_half(AtenTensorHandle tensor);
/* One of these as float32, with the same order of dimensions; another handle of any other tensor; NULL for none. */
AOTITorchError aoticache_shim_widen_half(const char *function, AtenTensorHandle tensor, AtenTensorHandle *ret_wide);
/* The elements as `dtype`, with the same order of dimensions. */
AOTITorchError aoticache_shim_convert_like(const char *function, AtenTensorHandle tensor, int32_t dtype,
                                           AtenTensorHandle *ret_tensor);

/*
 * ---- convolutions ----
 *
 * onednn_convolution.c has oneDNN do it, where the machine has one. Else convolution.c gathers what the kernel sees at
 * each position of the result, and multiplies; convolution_depthwise.c does without gathering and products.
 */

struct convolution {
    struct image input, output;
    int32_t dtype;
    ptrdiff_t item_bytes;
    int axes;
    bool transposed;
    bool channels_last; /* columns hold the channels of a kernel position side by side, as the input does */
    int64_t groups;
    int64_t group_inputs, group_outputs; /* channels of one group */
    int64_t kernel[IMAGE_AXES], stride[IMAGE_AXES], padding[IMAGE_AXES], dilation[IMAGE_AXES];
    int64_t output_padding[IMAGE_AXES];
    int64_t kernel_positions;
    const struct shim_tensor *bias; /* NULL: none */

    /* Only read by oneDNN's: */
    bool adds_output; /* the sums are added to what the output has */
    struct shim_unary unary;
    struct shim_tensor *frozen_weight; /* the weight, if its elements never change; else NULL */
};

/* The lists of a call; output_padding is only read by transposed convolutions. */
struct convolution_windows {
    const int64_t *stride;
    int64_t stride_count;
    const int64_t *padding;
    int64_t padding_count;
    const int64_t *dilation;
    int64_t dilation_count;
    const int64_t *output_padding;
    int64_t output_padding_count;
};

/*
 * Convolves into a fresh tensor, or, with an addend, adds the convolution to that in place, if oneDNN can. *ret_fused tells
 * whether the addend and c->unary have been seen to; else the result is the convolution alone, in a fresh tensor.
 *
 * c: transposed, groups, bias, unary and frozen_weight are set.
 */
AOTITorchError aoticache_shim_convolve(const char *function, struct convolution *c,
                                       const struct convolution_windows *windows, AtenTensorHandle input,
                                       AtenTensorHandle weight, AtenTensorHandle addend, bool *ret_fused,
                                       AtenTensorHandle *ret_tensor);

/* False: nothing was written. */
bool aoticache_shim_onednn_convolve(const struct convolution *c, const struct image *weight);

/* Each channel has a kernel of its own, and makes one channel. False: out of memory. */
bool aoticache_shim_is_depthwise(const struct convolution *c);
bool aoticache_shim_convolve_depthwise(const struct convolution *c, const struct image *weight);

#endif
