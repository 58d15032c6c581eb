/*
 * shim/math/distance_rows: the steps of distance.c, on many rows at once.
 *
 * Rows lie in panels: `columns` rows side by side, so that their elements of one place are neighbours. Then each row is a lane
 * of its own, and nothing is added across a vector.
 *
 * Private to runtime/shim/math/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_DISTANCE_ROWS_H
#define AOTICACHE_RUNTIME_SHIM_MATH_DISTANCE_ROWS_H

#include "runtime/shim/math/internal.h"

/* totals[k] = what `row` and row k of the panel have between them, of `columns` rows with `width` elements. */
typedef void (*distance_total)(int64_t width, const void *row, const void *panel, void *totals);

/* For float or double. */
struct distance_rows {
    int columns; /* of a panel */
    distance_total differences, sums, squares;
    distance_total largest, largest_or_nan; /* where one of the differences is NaN: the others' largest, or NaN */
    /* The sum of the elements' squares. */
    double (*square_sum)(int64_t width, const void *row);
    /* values = sqrt(values + addend), and 0 of what is negative. */
    void (*root)(int64_t count, double addend, void *values);
};

/* kind: SHIM_CLASS_FLOAT or SHIM_CLASS_DOUBLE. */
const struct distance_rows *aoticache_shim_distance_rows(enum shim_class kind);

#endif
