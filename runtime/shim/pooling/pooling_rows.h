/*
 * shim/pooling/pooling_rows: the inner loops of pooling.c, on contiguous elements.
 *
 * Private to runtime/shim/pooling/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_POOLING_ROWS_H
#define AOTICACHE_RUNTIME_SHIM_MATH_POOLING_ROWS_H

#include "runtime/shim/math/math_internal.h"

/* Windows that follow each other: the column in which the first one begins, and the distance from each to the next. */
struct pooling_windows {
    int64_t columns; /* of each window */
    ptrdiff_t step;  /* from one column to the next, in elements */
    int64_t first, growth, column_step;
};

/* Elements are float or double; indices of rows and columns are int32_t for float and int64_t for double. */
struct pooling_rows {
    size_t value_bytes; /* of an element, and of an index */
    /* best = the larger of best and values; best_row = row if values is larger. */
    void (*max_row)(size_t count, const void *values, int64_t row, void *best, void *best_row);
    /*
     * Finds the largest of each of `count` elements of a row and the windows->columns - 1 elements that follow it in
     * steps; also its row, from `rows`, and its column.
     */
    void (*max_columns)(size_t count, const struct pooling_windows *windows, const void *values, const void *rows,
                        void *best, void *best_row, void *best_column);
    /* ret_places = rows * width + columns */
    void (*number_places)(size_t count, const void *rows, const void *columns, int64_t width, int64_t *ret_places);
    /* sums += values */
    void (*add_row)(size_t count, const void *values, double *sums);
    /* means = the sums of `columns` elements in steps of `step`, as for max_columns, divided by `divisor`. */
    void (*mean_columns)(size_t count, int64_t columns, ptrdiff_t step, double divisor, const double *sums,
                         void *means);
};

/* Returns the functions. kind: SHIM_CLASS_FLOAT or SHIM_CLASS_DOUBLE. */
const struct pooling_rows *aoticache_shim_pooling_rows(enum shim_class kind);

#endif
