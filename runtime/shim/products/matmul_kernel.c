/*
 * shim/products/matmul_kernel: the innermost loops, for float, double, integers and both complex classes.
 *
 * The real ones are written with the compiler's vector types; on x86-64 they are also compiled for AVX2, which is used
 * if the processor has it.
 */
#include "runtime/shim/math/math_internal.h"

#include <complex.h>
#include <string.h>

#if defined(__x86_64__)
#define MATMUL_AVX2 1
#endif

/* Integers wrap around, so their arithmetic is unsigned, also for signed dtypes. */
typedef float vector_float __attribute__((vector_size(32)));
typedef double vector_double __attribute__((vector_size(32)));
typedef uint64_t vector_int __attribute__((vector_size(32)));

/* A block has four rows and two vectors of columns: eight sums, which stay in registers. */
#define DEFINE_REAL(name, type, vector)                                                                       \
    static inline __attribute__((always_inline)) void sum_##name(int64_t depth, const type *a, const type *b, \
                                                                 type *tile, ptrdiff_t stride)                \
    {                                                                                                         \
        enum { LANES = sizeof(vector) / sizeof(type) };                                                       \
        vector sums[4][2];                                                                                    \
        for (int row = 0; row < 4; row++)                                                                     \
            memcpy(sums[row], tile + row * stride, sizeof sums[row]);                                         \
        vector s00 = sums[0][0], s01 = sums[0][1], s10 = sums[1][0], s11 = sums[1][1];                        \
        vector s20 = sums[2][0], s21 = sums[2][1], s30 = sums[3][0], s31 = sums[3][1];                        \
        for (int64_t k = 0; k < depth; k++, a += 4, b += 2 * LANES) {                                         \
            vector b0, b1;                                                                                    \
            memcpy(&b0, b, sizeof b0);                                                                        \
            memcpy(&b1, b + LANES, sizeof b1);                                                                \
            s00 += a[0] * b0;                                                                                 \
            s01 += a[0] * b1;                                                                                 \
            s10 += a[1] * b0;                                                                                 \
            s11 += a[1] * b1;                                                                                 \
            s20 += a[2] * b0;                                                                                 \
            s21 += a[2] * b1;                                                                                 \
            s30 += a[3] * b0;                                                                                 \
            s31 += a[3] * b1;                                                                                 \
        }                                                                                                     \
        vector result[4][2] = {{s00, s01}, {s10, s11}, {s20, s21}, {s30, s31}};                               \
        for (int row = 0; row < 4; row++)                                                                     \
            memcpy(tile + row * stride, result[row], sizeof result[row]);                                     \
    }                                                                                                         \
    static void accumulate_##name(int64_t depth, const void *a, const void *b, void *tile, ptrdiff_t stride)  \
    {                                                                                                         \
        sum_##name(depth, a, b, tile, stride);                                                                \
    }

DEFINE_REAL(floats, float, vector_float)
DEFINE_REAL(doubles, double, vector_double)
DEFINE_REAL(ints, uint64_t, vector_int)

#ifdef MATMUL_AVX2
__attribute__((target("avx2,fma"))) static void accumulate_floats_avx2(int64_t depth, const void *a, const void *b,
                                                                       void *tile, ptrdiff_t stride)
{
    sum_floats(depth, a, b, tile, stride);
}

__attribute__((target("avx2,fma"))) static void accumulate_doubles_avx2(int64_t depth, const void *a, const void *b,
                                                                        void *tile, ptrdiff_t stride)
{
    sum_doubles(depth, a, b, tile, stride);
}
#endif

/* Complex numbers are multiplied by parts: C's own multiplication calls a function that repairs infinities. */
#define DEFINE_COMPLEX(name, type)                                                                              \
    static void accumulate_##name(int64_t depth, const void *a_values, const void *b_values, void *tile_values, \
                                  ptrdiff_t stride)                                                             \
    {                                                                                                           \
        enum { ROWS = 2, COLUMNS = 4 };                                                                         \
        const type *a = a_values, *b = b_values;                                                                \
        type *tile = tile_values;                                                                               \
        type real[ROWS][COLUMNS] = {{0}}, imaginary[ROWS][COLUMNS] = {{0}};                                     \
        for (int64_t k = 0; k < depth; k++, a += 2 * ROWS, b += 2 * COLUMNS) {                                  \
            for (int row = 0; row < ROWS; row++) {                                                              \
                for (int column = 0; column < COLUMNS; column++) {                                              \
                    real[row][column] += a[2 * row] * b[2 * column] - a[2 * row + 1] * b[2 * column + 1];       \
                    imaginary[row][column] += a[2 * row] * b[2 * column + 1] + a[2 * row + 1] * b[2 * column];  \
                }                                                                                               \
            }                                                                                                   \
        }                                                                                                       \
        for (int row = 0; row < ROWS; row++) {                                                                  \
            for (int column = 0; column < COLUMNS; column++) {                                                  \
                tile[2 * (row * stride + column)] += real[row][column];                                         \
                tile[2 * (row * stride + column) + 1] += imaginary[row][column];                                \
            }                                                                                                   \
        }                                                                                                       \
    }

DEFINE_COMPLEX(complexes64, float)
DEFINE_COMPLEX(complexes128, double)

/* `parts` numbers make a value; alpha and beta are real, and integers for integers. */
#define DEFINE_FINISH(name, type, factor_type, parts)                                                               \
    static void finish_##name(size_t count, void *row_values, const void *addend_values, double alpha, double beta) \
    {                                                                                                               \
        type *row = row_values;                                                                                     \
        const type *addend = addend_values;                                                                         \
        type row_factor = (type)(factor_type)alpha, addend_factor = (type)(factor_type)beta;                        \
        for (size_t i = 0; i < (parts) * count; i++)                                                                \
            row[i] = addend == NULL ? row_factor * row[i] : row_factor * row[i] + addend_factor * addend[i];        \
    }

DEFINE_FINISH(floats, float, float, 1)
DEFINE_FINISH(doubles, double, double, 1)
DEFINE_FINISH(ints, uint64_t, int64_t, 1)
DEFINE_FINISH(complexes64, float, float, 2)
DEFINE_FINISH(complexes128, double, double, 2)

#define ARITHMETIC(type, lanes, variant, kind) {sizeof(type), 4, lanes, accumulate_##variant, finish_##kind}

static const struct matmul_arithmetic portable[] = {
    [SHIM_CLASS_INT] = ARITHMETIC(uint64_t, 8, ints, ints),
    [SHIM_CLASS_FLOAT] = ARITHMETIC(float, 16, floats, floats),
    [SHIM_CLASS_DOUBLE] = ARITHMETIC(double, 8, doubles, doubles),
    [SHIM_CLASS_COMPLEX64] = {sizeof(float _Complex), 2, 4, accumulate_complexes64, finish_complexes64},
    [SHIM_CLASS_COMPLEX128] = {sizeof(double _Complex), 2, 4, accumulate_complexes128, finish_complexes128},
};

#ifdef MATMUL_AVX2
static const struct matmul_arithmetic with_avx2[] = {
    [SHIM_CLASS_FLOAT] = ARITHMETIC(float, 16, floats_avx2, floats),
    [SHIM_CLASS_DOUBLE] = ARITHMETIC(double, 8, doubles_avx2, doubles),
};
#endif

const struct matmul_arithmetic *aoticache_shim_matmul_arithmetic(enum shim_class kind)
{
#ifdef MATMUL_AVX2
    if ((kind == SHIM_CLASS_FLOAT || kind == SHIM_CLASS_DOUBLE) && shim_has_avx2())
        return &with_avx2[kind];
#endif
    if (kind >= sizeof portable / sizeof portable[0] || portable[kind].accumulate == NULL)
        return NULL;
    return &portable[kind];
}
