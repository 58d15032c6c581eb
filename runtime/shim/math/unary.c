/*
 * shim/math/unary: elementwise functions after a convolution or a linear layer of a frozen package, in float, a vector
 * at a time.
 *
 * The exponentials and related functions come from vector_math.c. On x86-64 the functions are also compiled for AVX2
 * and AVX-512. GELU's error function is within 1.5e-7 (Abramowitz and Stegun, Handbook of Mathematical Functions,
 * 7.1.26), as in PyTorch's vector code; SLEEF's is within a unit in the last place, a precision that GELU does not
 * preserve, and takes nearly five times as long.
 */
#include "runtime/shim/math/math_internal.h"
#include "runtime/shim/math/wide_vectors.h"

#include <string.h>

typedef float floats_4 __attribute__((vector_size(16)));
typedef int32_t ints_4 __attribute__((vector_size(16)));

floats_4 Sleef_expf4_u10(floats_4 x);
floats_4 Sleef_tanhf4_u10(floats_4 x);

/* A NaN is neither below nor above any limit, so it stays NaN. */
#define DEFINE_UNARY(name, vector, integers, exponential, hyperbolic, attribute)                                  \
    static inline attribute vector name##_select(integers which, vector yes, vector no)                           \
    {                                                                                                             \
        return (vector)((which & (integers)yes) | (~which & (integers)no));                                       \
    }                                                                                                             \
    static inline attribute vector name##_clamp(vector x, float low, float high)                                  \
    {                                                                                                             \
        const vector none = {0};                                                                                  \
        x = name##_select(x < low, none + low, x);                                                                \
        return name##_select(x > high, none + high, x);                                                           \
    }                                                                                                             \
    static inline attribute vector name##_erf(vector x)                                                           \
    {                                                                                                             \
        const vector size = name##_select(x < 0, -x, x), t = 1 / (1 + 0.3275911F * size);                         \
        const vector sum =                                                                                        \
            ((((1.061405429F * t - 1.453152027F) * t + 1.421413741F) * t - 0.284496736F) * t + 0.254829592F) * t; \
        const vector erf = 1 - sum * exponential(-size * size);                                                   \
        return name##_select(x < 0, -erf, erf);                                                                   \
    }                                                                                                             \
    static inline attribute vector name##_of(const struct shim_unary *unary, vector x)                            \
    {                                                                                                             \
        const float first = (float)unary->scalars[0], second = (float)unary->scalars[1];                          \
        switch (unary->kind) {                                                                                    \
        case SHIM_UNARY_RELU:                                                                                     \
            return name##_select(x < 0, (vector){0}, x);                                                          \
        case SHIM_UNARY_LEAKY_RELU:                                                                               \
            return name##_select(x < 0, first * x, x);                                                            \
        case SHIM_UNARY_HARDTANH:                                                                                 \
            return name##_clamp(x, first, second);                                                                \
        case SHIM_UNARY_HARDSWISH:                                                                                \
            return x * name##_clamp(x + 3, 0, 6) / 6;                                                             \
        case SHIM_UNARY_HARDSIGMOID:                                                                              \
            return name##_clamp(x + 3, 0, 6) / 6;                                                                 \
        case SHIM_UNARY_SIGMOID:                                                                                  \
            return 1 / (1 + exponential(-x));                                                                     \
        case SHIM_UNARY_SWISH:                                                                                    \
            return x / (1 + exponential(-x));                                                                     \
        case SHIM_UNARY_TANH:                                                                                     \
            return hyperbolic(x);                                                                                 \
        case SHIM_UNARY_GELU:                                                                                     \
            return x / 2 * (1 + name##_erf(x * 0.70710678F));                                                     \
        case SHIM_UNARY_GELU_TANH:                                                                                \
            return x / 2 * (1 + hyperbolic(0.79788456F * (x + 0.044715F * x * x * x)));                           \
        default:                                                                                                  \
            return x;                                                                                             \
        }                                                                                                         \
    }                                                                                                             \
    static attribute void name(const struct shim_unary *unary, float *values, int64_t count)                      \
    {                                                                                                             \
        enum { LANES = sizeof(vector) / sizeof(float) };                                                          \
        vector x;                                                                                                 \
        int64_t i = 0;                                                                                            \
        for (; i + LANES <= count; i += LANES) {                                                                  \
            memcpy(&x, values + i, sizeof x);                                                                     \
            x = name##_of(unary, x);                                                                              \
            memcpy(values + i, &x, sizeof x);                                                                     \
        }                                                                                                         \
        if (i < count) {                                                                                          \
            x = (vector){0};                                                                                      \
            memcpy(&x, values + i, (size_t)(count - i) * sizeof(float));                                          \
            x = name##_of(unary, x);                                                                              \
            memcpy(values + i, &x, (size_t)(count - i) * sizeof(float));                                          \
        }                                                                                                         \
    }

DEFINE_UNARY(apply_floats, floats_4, ints_4, Sleef_expf4_u10, Sleef_tanhf4_u10, )

#ifdef SHIM_WIDE_VECTORS
typedef float floats_8 __attribute__((vector_size(32)));
typedef int32_t ints_8 __attribute__((vector_size(32)));
#define WITH_AVX2 __attribute__((target("avx2,fma")))
WITH_AVX2 floats_8 Sleef_expf8_u10(floats_8 x);
WITH_AVX2 floats_8 Sleef_tanhf8_u10(floats_8 x);
DEFINE_UNARY(apply_floats_avx2, floats_8, ints_8, Sleef_expf8_u10, Sleef_tanhf8_u10, WITH_AVX2)

typedef float floats_16 __attribute__((vector_size(64)));
typedef int32_t ints_16 __attribute__((vector_size(64)));
#define WITH_AVX512 __attribute__((target("avx512f,avx512dq,avx2,fma")))
WITH_AVX512 floats_16 Sleef_expf16_u10(floats_16 x);
WITH_AVX512 floats_16 Sleef_tanhf16_u10(floats_16 x);
DEFINE_UNARY(apply_floats_avx512, floats_16, ints_16, Sleef_expf16_u10, Sleef_tanhf16_u10, WITH_AVX512)
#endif

void aoticache_shim_unary_apply(const struct shim_unary *unary, float *values, int64_t count)
{
    if (unary->kind == SHIM_UNARY_NONE)
        return;
#ifdef SHIM_WIDE_VECTORS
    if (shim_has_avx512()) {
        apply_floats_avx512(unary, values, count);
        return;
    }
    if (shim_has_avx2()) {
        apply_floats_avx2(unary, values, count);
        return;
    }
#endif
    apply_floats(unary, values, count);
}
