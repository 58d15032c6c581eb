/*
 * shim/pooling/pooling_rows: the largest elements and the sums of many windows at a time, from elements that are
 * contiguous in channels or along a row.
 *
 * A window is first reduced to one row, the largest of each column, then to one element. So a window of 9 by 9 takes 18
 * steps instead of 81. On x86-64 the functions are also compiled for AVX2 and AVX-512.
 */
#include "runtime/shim/pooling/pooling_rows.h"

#include <math.h>
#include <string.h>

/* Vectors of one register: GCC 12 compares vectors of two registers element by element. */
#define DEFINE_TYPES(suffix, bytes)                                            \
    typedef float floats##suffix __attribute__((vector_size(bytes)));          \
    typedef int32_t ints##suffix __attribute__((vector_size(bytes)));          \
    typedef double doubles##suffix __attribute__((vector_size(bytes)));        \
    typedef int64_t longs##suffix __attribute__((vector_size(bytes)));         \
    typedef float half_floats##suffix __attribute__((vector_size(bytes / 2))); \
    typedef int32_t half_ints##suffix __attribute__((vector_size(bytes / 2)));

/* As in PyTorch the first of equal elements is taken, but the last NaN, in the order of rows and columns. */
#define DEFINE_MAX(name, type, integer, vector, integers, attribute)                                                  \
    static attribute void max_row_##name(size_t count, const void *values, int64_t row, void *best, void *best_row)   \
    {                                                                                                                 \
        enum { LANES = sizeof(vector) / sizeof(type) };                                                               \
        const type *v = values;                                                                                       \
        type *b = best;                                                                                               \
        integer *rows = best_row;                                                                                     \
        const integers this_row = (integers){0} + (integer)row;                                                       \
        size_t i = 0;                                                                                                 \
        for (; i + LANES <= count; i += LANES) {                                                                      \
            vector x, y;                                                                                              \
            integers r;                                                                                               \
            memcpy(&x, v + i, sizeof x);                                                                              \
            memcpy(&y, b + i, sizeof y);                                                                              \
            memcpy(&r, rows + i, sizeof r);                                                                           \
            const integers taken = (integers)(x > y) | (integers)(x != x);                                            \
            y = (vector)((taken & (integers)x) | (~taken & (integers)y));                                             \
            r = (taken & this_row) | (~taken & r);                                                                    \
            memcpy(b + i, &y, sizeof y);                                                                              \
            memcpy(rows + i, &r, sizeof r);                                                                           \
        }                                                                                                             \
        for (; i < count; i++) {                                                                                      \
            if (v[i] > b[i] || isnan(v[i])) {                                                                         \
                b[i] = v[i];                                                                                          \
                rows[i] = (integer)row;                                                                               \
            }                                                                                                         \
        }                                                                                                             \
    }                                                                                                                 \
    static attribute void max_columns_##name(size_t count, const struct pooling_windows *windows, const void *values, \
                                             const void *rows, void *best, void *best_row, void *best_column)         \
    {                                                                                                                 \
        enum { LANES = sizeof(vector) / sizeof(type) };                                                               \
        const type *v = values;                                                                                       \
        const integer *from = rows;                                                                                   \
        const ptrdiff_t step = windows->step;                                                                         \
        const integer growth = (integer)windows->growth, column_step = (integer)windows->column_step;                 \
        size_t i = 0;                                                                                                 \
        integers column;                                                                                              \
        for (int lane = 0; lane < LANES; lane++)                                                                      \
            column[lane] = (integer)windows->first + (integer)lane * growth;                                          \
        for (; i + LANES <= count; i += LANES, column += (integer)LANES * growth) {                                   \
            vector x, y;                                                                                              \
            integers r, s, c = column;                                                                                \
            memcpy(&y, v + i, sizeof y);                                                                              \
            memcpy(&r, from + i, sizeof r);                                                                           \
            for (int64_t k = 1; k < windows->columns; k++) {                                                          \
                memcpy(&x, v + (ptrdiff_t)i + k * step, sizeof x);                                                    \
                memcpy(&s, from + (ptrdiff_t)i + k * step, sizeof s);                                                 \
                const integers taken = (integers)(x > y) | ((integers)(x == y) & (s < r)) |                           \
                                       ((integers)(x != x) & ((integers)(y == y) | (s >= r)));                        \
                y = (vector)((taken & (integers)x) | (~taken & (integers)y));                                         \
                r = (taken & s) | (~taken & r);                                                                       \
                c = (taken & (column + (integer)k * column_step)) | (~taken & c);                                     \
            }                                                                                                         \
            memcpy((type *)best + i, &y, sizeof y);                                                                   \
            memcpy((integer *)best_row + i, &r, sizeof r);                                                            \
            memcpy((integer *)best_column + i, &c, sizeof c);                                                         \
        }                                                                                                             \
        for (; i < count; i++) {                                                                                      \
            const integer own = (integer)windows->first + (integer)i * growth;                                        \
            type y = v[i];                                                                                            \
            integer r = from[i], c = own;                                                                             \
            for (int64_t k = 1; k < windows->columns; k++) {                                                          \
                const type x = v[(ptrdiff_t)i + k * step];                                                            \
                const integer s = from[(ptrdiff_t)i + k * step];                                                      \
                if (x > y || (isnan(x) ? !isnan(y) || s >= r : !(x < y) && !isnan(y) && s < r)) {                     \
                    y = x;                                                                                            \
                    r = s;                                                                                            \
                    c = own + (integer)k * column_step;                                                               \
                }                                                                                                     \
            }                                                                                                         \
            ((type *)best)[i] = y;                                                                                    \
            ((integer *)best_row)[i] = r;                                                                             \
            ((integer *)best_column)[i] = c;                                                                          \
        }                                                                                                             \
    }

#define DEFINE_PLACES(name, integer, integers, longs, attribute)                                                      \
    static attribute void number_places_##name(size_t count, const void *rows, const void *columns, int64_t width,    \
                                               int64_t *ret_places)                                                   \
    {                                                                                                                 \
        enum { LANES = sizeof(longs) / sizeof(int64_t) };                                                             \
        const integer *r = rows, *c = columns;                                                                        \
        size_t i = 0;                                                                                                 \
        for (; i + LANES <= count; i += LANES) {                                                                      \
            integers row, column;                                                                                     \
            memcpy(&row, r + i, sizeof row);                                                                          \
            memcpy(&column, c + i, sizeof column);                                                                    \
            const longs place = __builtin_convertvector(row, longs) * width + __builtin_convertvector(column, longs); \
            memcpy(ret_places + i, &place, sizeof place);                                                             \
        }                                                                                                             \
        for (; i < count; i++)                                                                                        \
            ret_places[i] = (int64_t)r[i] * width + (int64_t)c[i];                                                    \
    }

/* Sums are double for any element type, and rounded once. */
#define DEFINE_SUMS(name, type, vector, doubles, attribute)                                                  \
    static attribute void add_row_##name(size_t count, const void *values, double *sums)                     \
    {                                                                                                        \
        enum { LANES = sizeof(doubles) / sizeof(double) };                                                   \
        const type *v = values;                                                                              \
        size_t i = 0;                                                                                        \
        for (; i + LANES <= count; i += LANES) {                                                             \
            vector x;                                                                                        \
            doubles sum;                                                                                     \
            memcpy(&x, v + i, sizeof x);                                                                     \
            memcpy(&sum, sums + i, sizeof sum);                                                              \
            sum += __builtin_convertvector(x, doubles);                                                      \
            memcpy(sums + i, &sum, sizeof sum);                                                              \
        }                                                                                                    \
        for (; i < count; i++)                                                                               \
            sums[i] += (double)v[i];                                                                         \
    }                                                                                                        \
    static attribute void mean_columns_##name(size_t count, int64_t columns, ptrdiff_t step, double divisor, \
                                              const double *sums, void *means)                               \
    {                                                                                                        \
        enum { LANES = sizeof(doubles) / sizeof(double) };                                                   \
        type *to = means;                                                                                    \
        size_t i = 0;                                                                                        \
        for (; i + LANES <= count; i += LANES) {                                                             \
            doubles sum, x;                                                                                  \
            memcpy(&sum, sums + i, sizeof sum);                                                              \
            for (int64_t k = 1; k < columns; k++) {                                                          \
                memcpy(&x, sums + (ptrdiff_t)i + k * step, sizeof x);                                        \
                sum += x;                                                                                    \
            }                                                                                                \
            const vector mean = __builtin_convertvector(sum / divisor, vector);                              \
            memcpy(to + i, &mean, sizeof mean);                                                              \
        }                                                                                                    \
        for (; i < count; i++) {                                                                             \
            double sum = sums[i];                                                                            \
            for (int64_t k = 1; k < columns; k++)                                                            \
                sum += sums[(ptrdiff_t)i + k * step];                                                        \
            to[i] = (type)(sum / divisor);                                                                   \
        }                                                                                                    \
    }

#define DEFINE(suffix, bytes, attribute)                                                                      \
    DEFINE_TYPES(suffix, bytes)                                                                               \
    DEFINE_MAX(floats##suffix, float, int32_t, floats##suffix, ints##suffix, attribute)                       \
    DEFINE_MAX(doubles##suffix, double, int64_t, doubles##suffix, longs##suffix, attribute)                   \
    DEFINE_PLACES(floats##suffix, int32_t, half_ints##suffix, longs##suffix, attribute)                       \
    DEFINE_PLACES(doubles##suffix, int64_t, longs##suffix, longs##suffix, attribute)                          \
    DEFINE_SUMS(floats##suffix, float, half_floats##suffix, doubles##suffix, attribute)                       \
    DEFINE_SUMS(doubles##suffix, double, doubles##suffix, doubles##suffix, attribute)                         \
    static const struct pooling_rows steps##suffix[2] = {                                                     \
        {sizeof(float), max_row_floats##suffix, max_columns_floats##suffix, number_places_floats##suffix,     \
         add_row_floats##suffix, mean_columns_floats##suffix},                                                \
        {sizeof(double), max_row_doubles##suffix, max_columns_doubles##suffix, number_places_doubles##suffix, \
         add_row_doubles##suffix, mean_columns_doubles##suffix}};

DEFINE(_any, 16, )
#ifdef __x86_64__
DEFINE(_avx2, 32, __attribute__((target("avx2,fma"))))
DEFINE(_avx512, 64, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))))
#endif

const struct pooling_rows *aoticache_shim_pooling_rows(enum shim_class kind)
{
    const int place = kind == SHIM_CLASS_DOUBLE;
#ifdef __x86_64__
    if (shim_has_avx512())
        return &steps_avx512[place];
    if (shim_has_avx2())
        return &steps_avx2[place];
#endif
    return &steps_any[place];
}
