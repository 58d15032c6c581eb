/*
 * shim/math: what matrix multiplication, convolutions and pooling share.
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

/* Returns whether this process has an OpenMP runtime. Loads one if there is none yet. */
bool aoticache_shim_has_threads(void);

/*
 * Returns how many parts may run in parallel for this thread. 1 inside a parallel region, in which other threads are
 * working already, and in the child of a fork that the runtime's threads do not survive (base/process/openmp_fork.h).
 */
int aoticache_shim_threads(void);

/* Returns whether this process is such a child. */
bool aoticache_shim_is_forked(void);

/* Returns the number of parts for `work` multiplications and additions: about 5 microseconds each; `most` at most. */
int aoticache_shim_parts(double work, long long most);

/*
 * Returns the first of `count` items that belongs to a part, which is also the end of the part before: the first parts
 * have one more.
 */
static inline int64_t shim_part_begin(int64_t count, int parts, int part)
{
    const int64_t more = count % parts;
    return part * (count / parts) + (part < more ? part : more);
}

/*
 * Returns whether the library's OpenMP functions are those of this process's runtime, so that both share one thread
 * pool.
 */
bool aoticache_shim_is_openmp_of(void *library);

/*
 * Sets how many threads the next parallel regions of the calling thread have, as omp_set_num_threads() does, and
 * returns the number to restore afterwards. For libraries that use OpenMP themselves.
 */
int aoticache_shim_set_threads(int threads);

/* Runs each part 0 .. parts - 1 once, on any of the threads, and returns when all are done. */
void aoticache_shim_parallel(int parts, void (*run)(void *user, int part), void *user);

/*
 * ---- images (image.c) ----
 *
 * Tensors with a batch, channels and one to three spatial dimensions, treated as three; their memory formats; and the
 * lists of numbers that describe a window (stride, padding, dilation).
 *
 * After reading, every number in these lists and every size is below 2^31, so that window arithmetic fits into int64_t.
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
 * Describes a tensor as an image: `axes` spatial dimensions, before them the channels, and before those maybe a batch.
 */
AOTITorchError aoticache_shim_image_of(const char *function, const struct shim_tensor *tensor, int axes,
                                       struct image *ret_image);

/*
 * Does the same as c10::is_channels_last_strides_2d and _3d (c10/core/MemoryFormat.h), for 4 and 5 dimensions; false
 * for others.
 */
bool aoticache_shim_is_channels_last(const struct shim_tensor *tensor);

/* Makes a tensor of `ndim` dimensions; with channels_last, the second one is innermost. */
AOTITorchError aoticache_shim_image_empty(const char *function, int ndim, const int64_t *sizes, bool channels_last,
                                          int32_t dtype, AtenTensorHandle *ret_tensor);

/*
 * Reads a list with one number for each of `axes` spatial dimensions, or one number for all, into the last of three
 * elements; the others get `filler`. Numbers below `least` are refused; the message names `what`.
 */
AOTITorchError aoticache_shim_window_read(const char *function, const char *what, const int64_t *values, int64_t count,
                                          int axes, int64_t least, int64_t filler, int64_t ret_values[IMAGE_AXES]);

/* Returns the coordinates of element `position` of an image of these sizes. */
void aoticache_shim_split_position(const int64_t sizes[IMAGE_AXES], int64_t position, int64_t ret_at[IMAGE_AXES]);

/*
 * Finds the common batch of the matrices of two tensors with two or more dimensions (products/matmul.c): *ret_ndim is
 * the number of dimensions of the result, the two of the matrices included; ret_batch has the sizes before these.
 */
AOTITorchError aoticache_shim_common_batch(const char *function, const struct shim_tensor *a,
                                           const struct shim_tensor *b, int *ret_ndim, int64_t *ret_batch);

/* Conjugates a contiguous run of complex numbers; does nothing to real ones (elementwise/complex.c). */
void aoticache_shim_conjugate(int32_t dtype, void *data, int64_t count);

/*
 * ---- multiplication of matrices with any strides, blocked for the caches ----
 *
 * matmul_block.c walks over blocks; matmul_kernel.c has the innermost loops for each class of numbers; blas.c
 * multiplies large matrices if the machine has a BLAS, matmul_vector.c vectors, matmul_panels.c weights of frozen
 * packages and small matrices; matmul.c has the exported functions and their checks.
 */

/* Largest block: rows and columns of the result, and the part of the inner dimension that is packed at a time. */
enum { MATMUL_BLOCK_ROWS = 64, MATMUL_BLOCK_COLUMNS = 256, MATMUL_BLOCK_DEPTH = 256 };

/*
 * The arithmetic of one class of numbers. Operands are packed: the `rows` (or `columns`) values of one step of the
 * inner dimension are next to each other, step after step.
 */
struct matmul_arithmetic {
    size_t value_bytes;
    int rows; /* rows of the result that `accumulate` computes at a time */
    int columns;
    /* tile[rows][columns] += a * b over `depth` steps; tile_stride in values. */
    void (*accumulate)(int64_t depth, const void *a, const void *b, void *tile, ptrdiff_t tile_stride);
    /* row = alpha * row + beta * addend; without addend (NULL) beta does not count. */
    void (*finish)(size_t count, void *row, const void *addend, double alpha, double beta);
};

/* Returns the arithmetic. NULL: numbers of this class cannot be multiplied here. */
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
    uint32_t item_bytes;                    /* of an element of that dtype */
    int64_t rows, columns, depth;           /* out is rows x columns, a is rows x depth */
    struct matmul_matrix a, b, addend, out; /* addend.data NULL: none */
    double alpha, beta;
    int64_t batches; /* matrices in the call, 0 or 1: only this one; the choice of a library depends on it */
};

/* Returns the bytes of workspace that aoticache_shim_matmul_run needs, aligned to 64. */
size_t aoticache_shim_matmul_workspace_bytes(const struct matmul_problem *problem);
void aoticache_shim_matmul_run(const struct matmul_problem *problem, void *workspace);
/* Copies the addend into the result, for libraries that add to the result. Often it is the result already. */
void aoticache_shim_matmul_place_addend(const struct matmul_problem *problem);
/* Multiplies, and allocates a workspace if one is needed. False: out of memory. */
bool aoticache_shim_matmul(const struct matmul_problem *problem);
/*
 * Multiplies up to three rows or columns (matmul_vector.c). False: nothing was written, and the caller must use blocks.
 */
bool aoticache_shim_matmul_vectors(const struct matmul_problem *problem);
/*
 * Work that follows a multiplication whose columns form `count` groups of the same size: a thread that has computed the
 * columns `first` to `end` of each group continues with them, while other threads still compute theirs.
 */
struct matmul_groups {
    int64_t count;
    void (*then)(void *user, int64_t first, int64_t end);
    void *user;
};
/*
 * Multiplies by a weight b whose elements never change, and keeps them reordered (matmul_panels.c): float32, alpha and
 * beta 1, an addend for each column or the result itself. groups: NULL: none. False: nothing was written, and the
 * caller must use aoticache_shim_matmul().
 */
bool aoticache_shim_matmul_kept(const struct matmul_problem *problem, struct shim_packed *packed,
                                const struct matmul_groups *groups);
/* Multiplies by any small b, without keeping it, on processors with AVX-512; called by aoticache_shim_matmul(). */
bool aoticache_shim_matmul_panels(const struct matmul_problem *problem);
/*
 * Writes a tile of sums to the result: applies factors and addend, converts the dtype; changes the tile's values. At
 * most MATMUL_BLOCK_COLUMNS columns. tile_stride in values.
 */
void aoticache_shim_matmul_write(const struct matmul_problem *problem, char *tile, ptrdiff_t tile_stride, int64_t row,
                                 int64_t rows, int64_t column, int64_t columns);

/*
 * Returns the machine's BLAS, loaded by the first call, for its other functions; NULL: none that can be used (blas.c).
 */
void *aoticache_shim_blas_library(void);

/* Transposes 16 rows of 16 numbers; strides in numbers (matmul_panels.c). For processors with AVX-512. */
void aoticache_shim_transpose_16(const float *from, ptrdiff_t from_stride, float *to, ptrdiff_t to_stride);

/* ---- attention: attention.c walks over blocks of queries and tiles of keys, attention_rows.c has the softmax ---- */

/* A row of a tile of scores. Arrays have `count` values, a multiple of 16, of the class used for computing. */
struct attention_row {
    size_t count, live; /* scores from index `live` on get weight 0 */
    double scale;
    const void *mask; /* added to the scaled scores; NULL: none */
};

/*
 * Turns scores into weights: exp(score - largest). *max is the largest score up to now (-INFINITY before the first
 * tile), *sum the sum of weights. Returns the factor for earlier weights.
 */
typedef double (*attention_soften)(const struct attention_row *row, void *scores, double *max, double *sum);

/* The functions for float or double. Rows of `width` contiguous values are `stride` bytes apart. */
struct attention_arithmetic {
    attention_soften soften;
    /* scores[k] = query . keys[k] */
    void (*score)(int64_t count, int64_t width, const void *query, const char *keys, ptrdiff_t stride, void *scores);
    /* sums += weights[k] * values[k] for all k */
    void (*add)(int64_t count, int64_t width, const void *weights, const char *values, ptrdiff_t stride, void *sums);
    /* The same with keys and values of bfloat16, everything else float; NULL for double. */
    void (*score_halves)(int64_t count, int64_t width, const void *query, const char *keys, ptrdiff_t stride,
                         void *scores);
    void (*add_halves)(int64_t count, int64_t width, const void *weights, const char *values, ptrdiff_t stride,
                       void *sums);
};
struct attention_arithmetic aoticache_shim_attention_arithmetic(enum shim_class kind);

/* ---- functions that are applied to each element of a result, x (unary.c) ---- */

enum shim_unary_kind {
    SHIM_UNARY_NONE,
    SHIM_UNARY_RELU,
    SHIM_UNARY_LEAKY_RELU, /* scalars[0] * x if x is below 0 */
    SHIM_UNARY_HARDTANH,   /* x limited to scalars[0] .. scalars[1] */
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

/* Reads PyTorch's name for the function, its numbers and, for gelu, its variant (fused.c). name: NULL: no function. */
AOTITorchError aoticache_shim_unary_read(const char *function, const char *name, const double **scalars,
                                         int64_t scalar_count, const char *const *algorithm,
                                         struct shim_unary *ret_unary);
void aoticache_shim_unary_apply(const struct shim_unary *unary, float *x, int64_t count);

/* ---- bfloat16 and float16 operands (fused_half.c) ---- */

/* Returns whether the tensor is bfloat16 or float16. */
bool aoticache_shim_is_half(AtenTensorHandle tensor);
/*
 * Returns such a tensor as float32, with the same order of dimensions; for any other tensor a new handle of it; NULL
 * for NULL.
 */
AOTITorchError aoticache_shim_widen_half(const char *function, AtenTensorHandle tensor, AtenTensorHandle *ret_wide);
/* Returns the elements as `dtype`, with the same order of dimensions. */
AOTITorchError aoticache_shim_convert_like(const char *function, AtenTensorHandle tensor, int32_t dtype,
                                           AtenTensorHandle *ret_tensor);

/*
 * ---- convolutions ----
 *
 * onednn_convolution.c uses oneDNN, if the machine has it. Otherwise convolution.c gathers the inputs under the kernel
 * at each position of the result, and multiplies matrices; convolution_depthwise.c needs neither.
 */

struct convolution {
    struct image input, output;
    int32_t dtype;
    ptrdiff_t item_bytes;
    int axes;
    bool transposed;
    bool channels_last; /* columns have the channels of a kernel position next to each other, as the input has */
    int64_t groups;
    int64_t group_inputs, group_outputs; /* channels of one group */
    int64_t kernel[IMAGE_AXES], stride[IMAGE_AXES], padding[IMAGE_AXES], dilation[IMAGE_AXES];
    int64_t output_padding[IMAGE_AXES];
    int64_t kernel_positions;
    const struct shim_tensor *bias; /* NULL: none */

    /* Only onednn_convolution.c reads the following: */
    bool adds_output; /* the sums are added to the output */
    struct shim_unary unary;
    struct shim_tensor *frozen_weight; /* the weight, if its elements never change; otherwise NULL */
};

/* The lists of a call; only transposed convolutions read output_padding. */
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
 * Convolves into a fresh tensor, or, with an addend, adds the convolution to the addend in place, if oneDNN can.
 * *ret_fused: true if the addend and c->unary were applied; otherwise the result is the convolution alone, in a fresh
 * tensor.
 *
 * c: transposed, groups, bias, unary and frozen_weight are set.
 */
AOTITorchError aoticache_shim_convolve(const char *function, struct convolution *c,
                                       const struct convolution_windows *windows, AtenTensorHandle input,
                                       AtenTensorHandle weight, AtenTensorHandle addend, bool *ret_fused,
                                       AtenTensorHandle *ret_tensor);

/* Convolves with oneDNN. False: nothing was written. */
bool aoticache_shim_onednn_convolve(const struct convolution *c, const struct image *weight);

/*
 * Tests whether each input channel has its own kernel and produces one channel, and convolves in this case. The latter
 * returns false if out of memory.
 */
bool aoticache_shim_is_depthwise(const struct convolution *c);
bool aoticache_shim_convolve_depthwise(const struct convolution *c, const struct image *weight);

#endif
