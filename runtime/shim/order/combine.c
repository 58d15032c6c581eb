/*
 * shim/order/combine: how values that meet at one place become one: sum, prod, mean, amax, amin.
 */
#include "runtime/shim/order/internal.h"

#include <complex.h>
#include <math.h>
#include <string.h>

AOTITorchError aoticache_shim_reduce_parse(const char *function, const char *text, enum shim_reduce *ret_reduce)
{
    static const struct {
        const char *name;
        enum shim_reduce reduce;
    } names[] = {
        {"sum", SHIM_REDUCE_SUM},       {"add", SHIM_REDUCE_SUM},   {"prod", SHIM_REDUCE_PROD},
        {"multiply", SHIM_REDUCE_PROD}, {"mean", SHIM_REDUCE_MEAN}, {"amax", SHIM_REDUCE_AMAX},
        {"max", SHIM_REDUCE_AMAX},      {"amin", SHIM_REDUCE_AMIN}, {"min", SHIM_REDUCE_AMIN},
    };
    for (size_t i = 0; text != NULL && i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, text) == 0) {
            *ret_reduce = names[i].reduce;
            return SHIM_SUCCESS;
        }
    return aoticache_shim_fail("%s: reduction '%s' is not one of sum, prod, mean, amax, amin", function,
                               text != NULL ? text : "");
}

void aoticache_shim_combine_first(const struct shim_combiner *combiner, void *values, int64_t position)
{
    bool product = combiner->reduce == SHIM_REDUCE_PROD, highest = combiner->reduce == SHIM_REDUCE_AMIN;
    bool lowest = combiner->reduce == SHIM_REDUCE_AMAX;
    if (combiner->work == AOTICACHE_DTYPE_INT64)
        ((int64_t *)values)[position] = product ? 1 : highest ? INT64_MAX : lowest ? INT64_MIN : 0;
    else if (combiner->work == AOTICACHE_DTYPE_FLOAT64)
        ((double *)values)[position] = product ? 1 : highest ? INFINITY : lowest ? -INFINITY : 0;
    else
        ((double _Complex *)values)[position] = product ? 1 : 0;
}

static double larger(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
}

static double smaller(double a, double b)
{
    return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
}

static double combine_doubles(enum shim_reduce reduce, double a, double b)
{
    switch (reduce) {
    case SHIM_REDUCE_SUM:
    case SHIM_REDUCE_MEAN:
        return a + b;
    case SHIM_REDUCE_PROD:
        return a * b;
    case SHIM_REDUCE_AMAX:
        return larger(a, b);
    case SHIM_REDUCE_AMIN:
        return smaller(a, b);
    default:
        return b;
    }
}

static int64_t combine_ints(enum shim_reduce reduce, int64_t a, int64_t b)
{
    switch (reduce) {
    case SHIM_REDUCE_SUM:
    case SHIM_REDUCE_MEAN:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case SHIM_REDUCE_PROD:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case SHIM_REDUCE_AMAX:
        return a > b ? a : b;
    case SHIM_REDUCE_AMIN:
        return a < b ? a : b;
    default:
        return b;
    }
}

/* A sum or product of two floats in double, rounded once, is what float arithmetic gives. */
static double rounded(const struct shim_combiner *combiner, double value)
{
    return combiner->dtype == AOTICACHE_DTYPE_FLOAT32 ? (double)(float)value : value;
}

void aoticache_shim_combine(const struct shim_combiner *combiner, void *values, int64_t to, const void *source,
                            int64_t from)
{
    if (combiner->work == AOTICACHE_DTYPE_INT64) {
        int64_t *all = values;
        all[to] = combine_ints(combiner->reduce, all[to], ((const int64_t *)source)[from]);
    } else if (combiner->work == AOTICACHE_DTYPE_FLOAT64) {
        double *all = values;
        all[to] = rounded(combiner, combine_doubles(combiner->reduce, all[to], ((const double *)source)[from]));
    } else {
        double _Complex *all = values, value = ((const double _Complex *)source)[from];
        if (combiner->reduce == SHIM_REDUCE_PROD)
            all[to] *= value;
        else
            all[to] = combiner->reduce == SHIM_REDUCE_NONE ? value : all[to] + value;
    }
}

void aoticache_shim_combine_divide(const struct shim_combiner *combiner, void *values, int64_t position, int64_t count)
{
    if (count < 1)
        count = 1;
    if (combiner->work == AOTICACHE_DTYPE_INT64) {
        int64_t *value = (int64_t *)values + position;
        *value = *value / count - (*value % count < 0); /* towards minus infinity */
    } else if (combiner->work == AOTICACHE_DTYPE_FLOAT64) {
        double *value = (double *)values + position;
        *value = rounded(combiner, *value / (double)count);
    } else {
        ((double _Complex *)values)[position] /= (double)count;
    }
}
