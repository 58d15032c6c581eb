/*
 * shim/attention/attention_rows: the softmax of attention, a row of scores at a time, and the multiplications for one query,
 * for float and double.
 *
 * A row is processed in tiles. Each tile may raise the row's largest score; the sums of earlier tiles must then be
 * multiplied by the returned factor. The exponentials come from vector_math.c. On x86-64 the functions are also
 * compiled for AVX2 and AVX-512.
 */
#include "runtime/shim/math/math_internal.h"
#include "runtime/shim/math/wide_vectors.h"

#include <math.h>
#include <string.h>

typedef float floats_4 __attribute__((vector_size(16)));
typedef double doubles_2 __attribute__((vector_size(16)));
typedef int32_t ints_4 __attribute__((vector_size(16)));
typedef int64_t longs_2 __attribute__((vector_size(16)));
typedef uint16_t halves_4 __attribute__((vector_size(8)));
typedef uint32_t words_4 __attribute__((vector_size(16)));

floats_4 Sleef_expf4_u10(floats_4 x);
doubles_2 Sleef_expd2_u10(doubles_2 x);

/*
 * Scores after `live` get no weight. A row in which every score is -inf has the largest score -inf and the sum 0; a NaN
 * among the scores makes the sum NaN.
 */
#define DEFINE_SOFTEN(name, type, vector, integers, exponential, scalar_exponential, attribute)           \
    static attribute double name(const struct attention_row *row, void *scores, double *max, double *sum) \
    {                                                                                                     \
        enum { LANES = sizeof(vector) / sizeof(type) };                                                   \
        type *values = scores;                                                                            \
        const type *mask = row->mask, scale = (type)row->scale;                                           \
        size_t count = (row->live + LANES - 1) / LANES * LANES;                                           \
        vector largest, total = {0}, x, m;                                                                \
        for (size_t i = 0; i < count; i += LANES) {                                                       \
            memcpy(&x, values + i, sizeof x);                                                             \
            x *= scale;                                                                                   \
            if (mask != NULL) {                                                                           \
                memcpy(&m, mask + i, sizeof m);                                                           \
                x += m;                                                                                   \
            }                                                                                             \
            memcpy(values + i, &x, sizeof x);                                                             \
        }                                                                                                 \
        for (size_t i = row->live; i < count; i++)                                                        \
            values[i] = -(type)INFINITY;                                                                  \
        for (int lane = 0; lane < LANES; lane++)                                                          \
            largest[lane] = (type) * max;                                                                 \
        for (size_t i = 0; i < count; i += LANES) {                                                       \
            memcpy(&x, values + i, sizeof x);                                                             \
            integers above = x > largest;                                                                 \
            largest = (vector)((above & (integers)x) | (~above & (integers)largest));                     \
        }                                                                                                 \
        type new_max = largest[0];                                                                        \
        for (int lane = 1; lane < LANES; lane++)                                                          \
            new_max = largest[lane] > new_max ? largest[lane] : new_max;                                  \
        type shift = new_max == -(type)INFINITY ? 0 : new_max; /* -inf - -inf is NaN */                   \
        for (size_t i = 0; i < count; i += LANES) {                                                       \
            memcpy(&x, values + i, sizeof x);                                                             \
            x = exponential(x - shift);                                                                   \
            total += x;                                                                                   \
            memcpy(values + i, &x, sizeof x);                                                             \
        }                                                                                                 \
        memset(values + count, 0, (row->count - count) * sizeof *values);                                 \
        type factor = scalar_exponential((type) * max - shift);                                           \
        double tile_sum = 0;                                                                              \
        for (int lane = 0; lane < LANES; lane++)                                                          \
            tile_sum += (double)total[lane];                                                              \
        *max = (double)new_max;                                                                           \
        *sum = *sum * (double)factor + tile_sum;                                                          \
        return (double)factor;                                                                            \
    }

/* Keys and values have the type used for computing, or, for float, bfloat16. */
#define AS_IT_IS(x) x
#define READ(x, from) memcpy(&x, from, sizeof x)
#define READ_HALVES(x, from, lanes)                                               \
    do {                                                                          \
        halves_##lanes read;                                                      \
        memcpy(&read, from, sizeof read);                                         \
        x = (floats_##lanes)(__builtin_convertvector(read, words_##lanes) << 16); \
    } while (0)
#define READ_4_HALVES(x, from) READ_HALVES(x, from, 4)
#define READ_8_HALVES(x, from) READ_HALVES(x, from, 8)
#define READ_16_HALVES(x, from) READ_HALVES(x, from, 16)

static inline float float_of_half(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Computes two sums in parallel, since each addition waits for the one before. */
#define DEFINE_PRODUCTS(name, type, vector, stored, READ, VALUE, attribute)                                 \
    static attribute void score_##name(int64_t count, int64_t width, const void *query, const char *keys,   \
                                       ptrdiff_t stride, void *scores)                                      \
    {                                                                                                       \
        enum { LANES = sizeof(vector) / sizeof(type) };                                                     \
        const type *q = query;                                                                              \
        for (int64_t k = 0; k < count; k++) {                                                               \
            const stored *key = (const stored *)(const void *)(keys + k * stride);                          \
            vector sum_0 = {0}, sum_1 = {0}, x_0, x_1, y_0, y_1;                                            \
            int64_t i = 0;                                                                                  \
            for (; i + 2 * LANES <= width; i += 2 * LANES) {                                                \
                memcpy(&x_0, q + i, sizeof x_0);                                                            \
                memcpy(&x_1, q + i + LANES, sizeof x_1);                                                    \
                READ(y_0, key + i);                                                                         \
                READ(y_1, key + i + LANES);                                                                 \
                sum_0 += x_0 * y_0;                                                                         \
                sum_1 += x_1 * y_1;                                                                         \
            }                                                                                               \
            type sum = 0;                                                                                   \
            sum_0 += sum_1;                                                                                 \
            for (int lane = 0; lane < LANES; lane++)                                                        \
                sum += sum_0[lane];                                                                         \
            for (; i < width; i++)                                                                          \
                sum += q[i] * VALUE(key[i]);                                                                \
            ((type *)scores)[k] = sum;                                                                      \
        }                                                                                                   \
    }                                                                                                       \
    static attribute void add_##name(int64_t count, int64_t width, const void *weights, const char *values, \
                                     ptrdiff_t stride, void *sums)                                          \
    {                                                                                                       \
        enum { LANES = sizeof(vector) / sizeof(type) };                                                     \
        type *to = sums;                                                                                    \
        for (int64_t k = 0; k < count; k++) {                                                               \
            const stored *value = (const stored *)(const void *)(values + k * stride);                      \
            const type weight = ((const type *)weights)[k];                                                 \
            vector x, y;                                                                                    \
            int64_t i = 0;                                                                                  \
            for (; i + LANES <= width; i += LANES) {                                                        \
                memcpy(&x, to + i, sizeof x);                                                               \
                READ(y, value + i);                                                                         \
                x += weight * y;                                                                            \
                memcpy(to + i, &x, sizeof x);                                                               \
            }                                                                                               \
            for (; i < width; i++)                                                                          \
                to[i] += weight * VALUE(value[i]);                                                          \
        }                                                                                                   \
    }

DEFINE_PRODUCTS(floats, float, floats_4, float, READ, AS_IT_IS, )
DEFINE_PRODUCTS(doubles, double, doubles_2, double, READ, AS_IT_IS, )
DEFINE_PRODUCTS(halves, float, floats_4, uint16_t, READ_4_HALVES, float_of_half, )
DEFINE_SOFTEN(soften_floats, float, floats_4, ints_4, Sleef_expf4_u10, expf, )
DEFINE_SOFTEN(soften_doubles, double, doubles_2, longs_2, Sleef_expd2_u10, exp, )

#ifdef SHIM_WIDE_VECTORS
typedef float floats_8 __attribute__((vector_size(32)));
typedef double doubles_4 __attribute__((vector_size(32)));
typedef int32_t ints_8 __attribute__((vector_size(32)));
typedef int64_t longs_4 __attribute__((vector_size(32)));
typedef uint16_t halves_8 __attribute__((vector_size(16)));
typedef uint32_t words_8 __attribute__((vector_size(32)));
#define WITH_AVX2 __attribute__((target("avx2,fma")))
WITH_AVX2 floats_8 Sleef_expf8_u10(floats_8 x);
WITH_AVX2 doubles_4 Sleef_expd4_u10(doubles_4 x);
DEFINE_PRODUCTS(floats_avx2, float, floats_8, float, READ, AS_IT_IS, WITH_AVX2)
DEFINE_PRODUCTS(doubles_avx2, double, doubles_4, double, READ, AS_IT_IS, WITH_AVX2)
DEFINE_PRODUCTS(halves_avx2, float, floats_8, uint16_t, READ_8_HALVES, float_of_half, WITH_AVX2)
DEFINE_SOFTEN(soften_floats_avx2, float, floats_8, ints_8, Sleef_expf8_u10, expf, WITH_AVX2)
DEFINE_SOFTEN(soften_doubles_avx2, double, doubles_4, longs_4, Sleef_expd4_u10, exp, WITH_AVX2)

typedef float floats_16 __attribute__((vector_size(64)));
typedef int32_t ints_16 __attribute__((vector_size(64)));
typedef uint16_t halves_16 __attribute__((vector_size(32)));
typedef uint32_t words_16 __attribute__((vector_size(64)));
#define WITH_AVX512 __attribute__((target("avx512f,avx512dq,avx2,fma")))
WITH_AVX512 floats_16 Sleef_expf16_u10(floats_16 x);
DEFINE_PRODUCTS(floats_avx512, float, floats_16, float, READ, AS_IT_IS, WITH_AVX512)
DEFINE_PRODUCTS(halves_avx512, float, floats_16, uint16_t, READ_16_HALVES, float_of_half, WITH_AVX512)
DEFINE_SOFTEN(soften_floats_avx512, float, floats_16, ints_16, Sleef_expf16_u10, expf, WITH_AVX512)
#endif

struct attention_arithmetic aoticache_shim_attention_arithmetic(enum shim_class kind)
{
#ifdef SHIM_WIDE_VECTORS
    if (kind == SHIM_CLASS_FLOAT && shim_has_avx512())
        return (struct attention_arithmetic){soften_floats_avx512, score_floats_avx512, add_floats_avx512,
                                             score_halves_avx512, add_halves_avx512};
    if (shim_has_avx2())
        return kind == SHIM_CLASS_DOUBLE
                   ? (struct attention_arithmetic){soften_doubles_avx2, score_doubles_avx2, add_doubles_avx2, NULL,
                                                   NULL}
                   : (struct attention_arithmetic){soften_floats_avx2, score_floats_avx2, add_floats_avx2,
                                                   score_halves_avx2, add_halves_avx2};
#endif
    return kind == SHIM_CLASS_DOUBLE
               ? (struct attention_arithmetic){soften_doubles, score_doubles, add_doubles, NULL, NULL}
               : (struct attention_arithmetic){soften_floats, score_floats, add_floats, score_halves, add_halves};
}
