/*
 * shim/elementwise/distance_rows: the inner loops of distance.c, for many rows at a time.
 *
 * Rows are stored in panels of `columns` rows, with the elements of one position next to each other. So each row is one
 * vector lane, and nothing is added across a vector.
 *
 * Private to runtime/shim/elementwise/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_DISTANCE_ROWS_H
#define AOTICACHE_RUNTIME_SHIM_MATH_DISTANCE_ROWS_H

#include "runtime/shim/math/math_internal.h"

/*
 * Computes totals[k], the distance between `row` and row k of the panel, which has `columns` rows of `width` elements.
 */
typedef void (*distance_total)(int64_t width, const void *row, const void *panel, void *totals);

/* The functions for float or double. */
struct distance_rows {
    int columns; /* rows of a panel */
    distance_total differences, sums, squares;
    distance_total largest, largest_or_nan; /* if a difference is NaN: the largest of the others, or NaN */
    /* Returns the sum of the elements' squares. */
    double (*square_sum)(int64_t width, const void *row);
    /* Computes values = sqrt(values + addend), and 0 if the sum is negative. */
    void (*root)(int64_t count, double addend, void *values);
};

/* Returns the functions. kind: SHIM_CLASS_FLOAT or SHIM_CLASS_DOUBLE. */
const struct distance_rows *aoticache_shim_distance_rows(enum shim_class kind);

#endif
