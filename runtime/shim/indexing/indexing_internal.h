/*
 * shim/indexing: positions that an index names along one dimension, and operations on the elements there: combining
 * several values at one position (combine.c), and walking all positions (walk.c).
 *
 * Private to runtime/shim/indexing/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_INDEXING_INTERNAL_H
#define AOTICACHE_RUNTIME_SHIM_INDEXING_INTERNAL_H

#include "runtime/shim/tensors/elements.h"

/* ---- combine.c ---- */

enum shim_reduce {
    SHIM_REDUCE_NONE, /* keeps the last value */
    SHIM_REDUCE_SUM,
    SHIM_REDUCE_PROD,
    SHIM_REDUCE_MEAN,
    SHIM_REDUCE_AMAX,
    SHIM_REDUCE_AMIN
};

/* Parses "sum", "prod", "mean", "amax" and "amin", and their names in other operators. */
AOTITorchError aoticache_shim_reduce_parse(const char *function, const char *text, enum shim_reduce *ret_reduce);

/*
 * Blocks of elements, one for each of `count` numbers of an index. Number n selects the position n * scale in bytes;
 * negative numbers count from `size`. Each block has `width` elements, both at the position and in the values. Steps
 * are in bytes, index_step in numbers.
 */
struct shim_line {
    int64_t count, width;
    const int64_t *index;
    ptrdiff_t index_step;
    int64_t size;
    ptrdiff_t scale;
    ptrdiff_t place_step, value_step;       /* from the block of one number to that of the next */
    ptrdiff_t place_element, value_element; /* from one element of a block to the next */
};

/* Processes the blocks in order. `places` and `values` may be unaligned. */
typedef void (*shim_combine)(const struct shim_line *line, char *places, char *values);

/* Returns the dtype in which elements of `dtype` are combined; for SHIM_REDUCE_NONE the dtype itself. */
int32_t aoticache_shim_combine_dtype(enum shim_reduce reduce, int32_t dtype);
/*
 * Selects the function that combines each position with its value; for the mean it sums. `dtype` is a result of
 * aoticache_shim_combine_dtype().
 */
AOTITorchError aoticache_shim_combine_select(const char *function, enum shim_reduce reduce, int32_t dtype,
                                             shim_combine *ret_combine);
/* Returns the function for the opposite direction: it copies the positions to the values. */
shim_combine aoticache_shim_combine_take(uint32_t item_bytes);
/*
 * Writes the neutral element of the reduction, as `dtype`: the content of a position before anything is combined with
 * it.
 */
void aoticache_shim_combine_first(enum shim_reduce reduce, int32_t dtype, void *value);
/*
 * Divides sums by counts to get means. Both tensors are of `dtype`, without gaps and in the same order; counts below 1
 * count as 1.
 */
void aoticache_shim_combine_divide(int32_t dtype, int64_t count, void *sums, const void *counts);

/* ---- walk.c ---- */

/* One dimension of a walk. Strides of `places` and `values` in bytes, of the index in numbers. */
struct shim_walk_dim {
    int64_t size;
    ptrdiff_t index, place, value;
    bool is_apart; /* different coordinates never have the same position */
};

/*
 * A walk over all numbers of an index, in order, with a block for each: the dimensions that the index does not have.
 * The dimensions of the index come first.
 */
struct shim_walk {
    shim_combine combine;
    const int64_t *index; /* within -size .. size - 1 */
    int64_t size;
    ptrdiff_t scale; /* bytes from one position to the next */
    char *places, *values;
    int index_ndim, ndim;
    struct shim_walk_dim dims[SHIM_MAX_NDIM + 2]; /* with space for those that aoticache_shim_walk() adds */
};

/* Walks. Blocks are divided among the threads so that no two threads write to the same position. */
void aoticache_shim_walk(struct shim_walk *walk);

/*
 * Returns whether all numbers of a contiguous index are in lowest .. highest; if not, *ret_number is one that is
 * outside.
 */
bool aoticache_shim_index_check(const struct shim_tensor *index, int64_t lowest, int64_t highest, int64_t *ret_number);

/*
 * Opens a copy of self, as `dtype`, that an operator can change: `out` itself if no operand except self overlaps it;
 * otherwise a contiguous tensor, for aoticache_shim_write_out().
 */
AOTITorchError aoticache_shim_result_open(const char *function, AtenTensorHandle out, AtenTensorHandle self,
                                          int32_t dtype, const AtenTensorHandle *operands, int count,
                                          AtenTensorHandle *ret_result);

#endif
