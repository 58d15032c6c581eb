/*
 * shim/indexing: places that an index names along one dimension, and what becomes of the elements there: how values that meet
 * at one place become one (combine.c), and the walk over all places (walk.c).
 *
 * Private to runtime/shim/indexing/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_ORDER_INTERNAL_H
#define AOTICACHE_RUNTIME_SHIM_ORDER_INTERNAL_H

#include "runtime/shim/tensors/elements.h"

/* ---- combine.c ---- */

enum shim_reduce {
    SHIM_REDUCE_NONE, /* the last one stays */
    SHIM_REDUCE_SUM,
    SHIM_REDUCE_PROD,
    SHIM_REDUCE_MEAN,
    SHIM_REDUCE_AMAX,
    SHIM_REDUCE_AMIN
};

/* "sum", "prod", "mean", "amax" and "amin", and the names that they have in other operators. */
AOTITorchError aoticache_shim_reduce_parse(const char *function, const char *text, enum shim_reduce *ret_reduce);

/*
 * Blocks of elements, one for each of `count` numbers of an index. Number n stands for the place n * scale, where negative
 * ones count from `size`. The blocks have `width` elements each, here and among the values. Steps are in bytes, those of the
 * index in numbers.
 */
struct shim_line {
    int64_t count, width;
    const int64_t *index;
    ptrdiff_t index_step;
    int64_t size;
    ptrdiff_t scale;
    ptrdiff_t place_step, value_step;       /* from one number's block to the next one's */
    ptrdiff_t place_element, value_element; /* from one element of a block to the next */
};

/* Blocks one after the other. `places` and `values` may lie at any address. */
typedef void (*shim_combine)(const struct shim_line *line, char *places, char *values);

/* What elements of `dtype` are combined in; of SHIM_REDUCE_NONE the dtype itself. */
int32_t aoticache_shim_combine_dtype(enum shim_reduce reduce, int32_t dtype);
/* Each place and its value become one; the mean is a sum. `dtype` is one of aoticache_shim_combine_dtype(). */
AOTITorchError aoticache_shim_combine_select(const char *function, enum shim_reduce reduce, int32_t dtype,
                                             shim_combine *ret_combine);
/* The other way: values are what the places hold. */
shim_combine aoticache_shim_combine_take(uint32_t item_bytes);
/* A number, as `dtype`, that changes nothing it is combined with: what a place holds before anything comes to it. */
void aoticache_shim_combine_first(enum shim_reduce reduce, int32_t dtype, void *value);
/* Makes means of sums. Both tensors are of `dtype` and without gaps, in the same order; counts below 1 are 1. */
void aoticache_shim_combine_divide(int32_t dtype, int64_t count, void *sums, const void *counts);

/* ---- walk.c ---- */

/* One of several that a walk goes over. Strides of places and values in bytes, of the index in numbers. */
struct shim_walk_dim {
    int64_t size;
    ptrdiff_t index, place, value;
    bool is_apart; /* no place is one of two coordinates */
};

/*
 * All numbers of an index, in order, and a block for each: dimensions that the index does not have. Those that it has come
 * first.
 */
struct shim_walk {
    shim_combine combine;
    const int64_t *index; /* within -size .. size - 1 */
    int64_t size;
    ptrdiff_t scale; /* bytes from one place to the next */
    char *places, *values;
    int index_ndim, ndim;
    struct shim_walk_dim dims[SHIM_MAX_NDIM + 2]; /* room for what aoticache_shim_walk() adds */
};

/* Blocks are shared among the threads such that no two write to one place. */
void aoticache_shim_walk(struct shim_walk *walk);

/* Whether all numbers of a contiguous index are in lowest .. highest; else *ret_number is one that is not. */
bool aoticache_shim_index_check(const struct shim_tensor *index, int64_t lowest, int64_t highest, int64_t *ret_number);

/*
 * Self as `dtype`, where an operator changes it in places: `out` itself, after a copy, if none of the operands lies there but
 * self; else a contiguous tensor, for aoticache_shim_write_out().
 */
AOTITorchError aoticache_shim_result_open(const char *function, AtenTensorHandle out, AtenTensorHandle self,
                                          int32_t dtype, const AtenTensorHandle *operands, int count,
                                          AtenTensorHandle *ret_result);

#endif
