/*
 * shim/math/pooling_rows: the steps of pooling.c, on elements that lie side by side.
 *
 * Private to runtime/shim/math/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_POOLING_ROWS_H
#define AOTICACHE_RUNTIME_SHIM_MATH_POOLING_ROWS_H

#include "runtime/shim/math/internal.h"

/* Windows that begin side by side: in which column the first one begins, and by how many each is behind the one before. */
struct pooling_windows {
    int64_t columns; /* of each */
    ptrdiff_t step;  /* from one of them to the next, in elements */
    int64_t first, growth, column_step;
};

/* Elements are float or double; places, of rows and columns, are int32_t for float and int64_t for double. */
struct pooling_rows {
    size_t value_bytes; /* of an element, and of a place */
    /* best = the larger of best and values; best_row = row where that was taken. */
    void (*max_row)(size_t count, const void *values, int64_t row, void *best, void *best_row);
    /*
     * Of each of `count` elements of a row and the windows->columns - 1 that follow it in steps, the largest; from which row
     * that is, by `rows`, and from which column.
     */
    void (*max_columns)(size_t count, const struct pooling_windows *windows, const void *values, const void *rows,
                        void *best, void *best_row, void *best_column);
    /* ret_places = rows * width + columns */
    void (*number_places)(size_t count, const void *rows, const void *columns, int64_t width, int64_t *ret_places);
    /* sums += values */
    void (*add_row)(size_t count, const void *values, double *sums);
    /* means = the sums of `columns` elements in steps of `step`, as for max_columns, divided. */
    void (*mean_columns)(size_t count, int64_t columns, ptrdiff_t step, double divisor, const double *sums,
                         void *means);
};

/* kind: SHIM_CLASS_FLOAT or SHIM_CLASS_DOUBLE. */
const struct pooling_rows *aoticache_shim_pooling_rows(enum shim_class kind);

#endif
