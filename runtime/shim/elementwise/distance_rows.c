/*
 * shim/elementwise/distance_rows: inner loops of distance.c: the number of elements that differ, the sums of the differences
 * or of their squares, the largest difference; and roots. On x86-64 they are also compiled for AVX2 and AVX-512.
 */
#include "runtime/shim/elementwise/distance_rows.h"

#include <math.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define DEFINE_TYPES(suffix, bytes)                                     \
    typedef float floats##suffix __attribute__((vector_size(bytes)));   \
    typedef int32_t ints##suffix __attribute__((vector_size(bytes)));   \
    typedef double doubles##suffix __attribute__((vector_size(bytes))); \
    typedef int64_t longs##suffix __attribute__((vector_size(bytes)));

/* Vectors of a panel's row: enough to fill the time until the first vector's sum is ready for the next step. */
enum { VECTORS = 4 };

#define MAGNITUDE(vector, integers, x, bits) ((vector)((integers)(x) & ~(bits)))
#define CHOSEN(vector, integers, mask, a, b) ((vector)(((mask) & (integers)(a)) | (~(mask) & (integers)(b))))
/* Counts a difference other than 0. A NaN makes the count NaN. */
#define ADD_DIFFERENT(vector, integers, t, d, bits) \
    ((t) + CHOSEN(vector, integers, (integers)((d) > 0) | (integers)((d) < 0), one, d))
#define ADD_DISTANCE(vector, integers, t, d, bits) ((t) + MAGNITUDE(vector, integers, d, bits))
#define ADD_SQUARE(vector, integers, t, d, bits) ((t) + (d) * (d))
/* A NaN is not larger than any number; with the second macro it is larger than all. */
#define TAKE_LARGER(vector, integers, t, d, bits)                                    \
    CHOSEN(vector, integers, (integers)(MAGNITUDE(vector, integers, d, bits) > (t)), \
           MAGNITUDE(vector, integers, d, bits), t)
#define TAKE_LARGER_OR_NAN(vector, integers, t, d, bits) \
    CHOSEN(vector, integers, (integers)((d) != (d)), d, TAKE_LARGER(vector, integers, t, d, bits))

#define DEFINE_TOTAL(name, type, vector, integers, attribute, step)                             \
    static attribute void name(int64_t width, const void *row, const void *panel, void *totals) \
    {                                                                                           \
        const type *a = row;                                                                    \
        const char *b = panel;                                                                  \
        const integers bits = (integers)(-(vector){0});                                         \
        const vector zero = {0}, one = zero + 1;                                                \
        vector t0 = zero, t1 = zero, t2 = zero, t3 = zero, b0, b1, b2, b3;                      \
        for (int64_t i = 0; i < width; i++, b += VECTORS * sizeof(vector)) {                    \
            const vector x = zero + a[i];                                                       \
            memcpy(&b0, b, sizeof b0);                                                          \
            memcpy(&b1, b + sizeof b0, sizeof b0);                                              \
            memcpy(&b2, b + 2 * sizeof b0, sizeof b0);                                          \
            memcpy(&b3, b + 3 * sizeof b0, sizeof b0);                                          \
            b0 = x - b0;                                                                        \
            b1 = x - b1;                                                                        \
            b2 = x - b2;                                                                        \
            b3 = x - b3;                                                                        \
            t0 = step(vector, integers, t0, b0, bits);                                          \
            t1 = step(vector, integers, t1, b1, bits);                                          \
            t2 = step(vector, integers, t2, b2, bits);                                          \
            t3 = step(vector, integers, t3, b3, bits);                                          \
        }                                                                                       \
        const vector all[VECTORS] = {t0, t1, t2, t3};                                           \
        (void)one;                                                                              \
        (void)bits;                                                                             \
        memcpy(totals, all, sizeof all);                                                        \
    }

#define DEFINE_ROWS(name, type, vector, integers, attribute, vector_root, scalar_root)         \
    DEFINE_TOTAL(differences_##name, type, vector, integers, attribute, ADD_DIFFERENT)         \
    DEFINE_TOTAL(sums_##name, type, vector, integers, attribute, ADD_DISTANCE)                 \
    DEFINE_TOTAL(squares_##name, type, vector, integers, attribute, ADD_SQUARE)                \
    DEFINE_TOTAL(largest_##name, type, vector, integers, attribute, TAKE_LARGER)               \
    DEFINE_TOTAL(largest_or_nan_##name, type, vector, integers, attribute, TAKE_LARGER_OR_NAN) \
    static attribute double square_sum_##name(int64_t width, const void *row)                  \
    {                                                                                          \
        enum { LANES = sizeof(vector) / sizeof(type) };                                        \
        const type *a = row;                                                                   \
        vector total = {0}, x;                                                                 \
        type sum = 0;                                                                          \
        int64_t i = 0;                                                                         \
        for (; i + LANES <= width; i += LANES) {                                               \
            memcpy(&x, a + i, sizeof x);                                                       \
            total += x * x;                                                                    \
        }                                                                                      \
        for (; i < width; i++)                                                                 \
            sum += a[i] * a[i];                                                                \
        for (int lane = 0; lane < LANES; lane++)                                               \
            sum += total[lane];                                                                \
        return (double)sum;                                                                    \
    }                                                                                          \
    static attribute void root_##name(int64_t count, double addend, void *values)              \
    {                                                                                          \
        enum { LANES = sizeof(vector) / sizeof(type) };                                        \
        type *v = values;                                                                      \
        vector x;                                                                              \
        int64_t i = 0;                                                                         \
        for (; i + LANES <= count; i += LANES) {                                               \
            memcpy(&x, v + i, sizeof x);                                                       \
            x += (type)addend;                                                                 \
            x = (vector)(~(integers)(x < 0) & (integers)x);                                    \
            x = vector_root(x);                                                                \
            memcpy(v + i, &x, sizeof x);                                                       \
        }                                                                                      \
        for (; i < count; i++) {                                                               \
            const type sum = v[i] + (type)addend;                                              \
            v[i] = sum < 0 ? 0 : scalar_root(sum);                                             \
        }                                                                                      \
    }

#define DEFINE(suffix, bytes, attribute, float_root, double_root)                                                   \
    DEFINE_TYPES(suffix, bytes)                                                                                     \
    DEFINE_ROWS(float##suffix, float, floats##suffix, ints##suffix, attribute, float_root, sqrtf)                   \
    DEFINE_ROWS(double##suffix, double, doubles##suffix, longs##suffix, attribute, double_root, sqrt)               \
    static const struct distance_rows rows##suffix[2] = {                                                           \
        {VECTORS * bytes / sizeof(float), differences_float##suffix, sums_float##suffix, squares_float##suffix,     \
         largest_float##suffix, largest_or_nan_float##suffix, square_sum_float##suffix, root_float##suffix},        \
        {VECTORS * bytes / sizeof(double), differences_double##suffix, sums_double##suffix, squares_double##suffix, \
         largest_double##suffix, largest_or_nan_double##suffix, square_sum_double##suffix, root_double##suffix}};

#ifdef __x86_64__
DEFINE(_any, 16, , _mm_sqrt_ps, _mm_sqrt_pd)
DEFINE(_avx2, 32, __attribute__((target("avx2,fma"))), _mm256_sqrt_ps, _mm256_sqrt_pd)
DEFINE(_avx512, 64, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), _mm512_sqrt_ps,
       _mm512_sqrt_pd)
#else
typedef float root_floats __attribute__((vector_size(16)));
typedef double root_doubles __attribute__((vector_size(16)));

static inline root_floats root_of_floats(root_floats x)
{
    return (root_floats){sqrtf(x[0]), sqrtf(x[1]), sqrtf(x[2]), sqrtf(x[3])};
}

static inline root_doubles root_of_doubles(root_doubles x)
{
    return (root_doubles){sqrt(x[0]), sqrt(x[1])};
}

DEFINE(_any, 16, , root_of_floats, root_of_doubles)
#endif

const struct distance_rows *aoticache_shim_distance_rows(enum shim_class kind)
{
    const int place = kind == SHIM_CLASS_DOUBLE;
#ifdef __x86_64__
    if (shim_has_avx512())
        return &rows_avx512[place];
    if (shim_has_avx2())
        return &rows_avx2[place];
#endif
    return &rows_any[place];
}
