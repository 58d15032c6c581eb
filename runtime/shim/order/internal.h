/*
 * shim/order: how values that meet at one place become one (combine.c): sum, prod, mean, amax, amin.
 *
 * Private to runtime/shim/order/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_ORDER_INTERNAL_H
#define AOTICACHE_RUNTIME_SHIM_ORDER_INTERNAL_H

#include "runtime/shim/tensors/elements.h"

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
 * Numbers of one dtype in their work dtype. Every step is rounded to the dtype, as if it were computed in it.
 */
struct shim_combiner {
    enum shim_reduce reduce;
    int32_t dtype, work;
};

/* What a place holds before anything comes to it. */
void aoticache_shim_combine_first(const struct shim_combiner *combiner, void *values, int64_t position);
/* values[to] and the value at source[from] become one. */
void aoticache_shim_combine(const struct shim_combiner *combiner, void *values, int64_t to, const void *source,
                            int64_t from);
/* Makes the mean of a sum of `count`. */
void aoticache_shim_combine_divide(const struct shim_combiner *combiner, void *values, int64_t position, int64_t count);

#endif
