/*
 * shim/math/vector_math: the mathematical functions on vectors that generated kernels import from libtorch_cpu.so,
 * which exports those of the SLEEF library (sleef.org): Sleef_expf16_u10() is exp() of 16 floats within 1.0 units in
 * the last place.
 *
 * If the machine has SLEEF, it is loaded by the first of these calls, never linked, and each function calls the one of
 * the same name. Otherwise, and if SLEEF lacks a function, the C library's function of one number is called lane by
 * lane: four to twelve times slower, and for doubles one unit or, for a few such as tanh(), two off. Either way the
 * results equal PyTorch's except for the last bits, and are always the same within a process. Widths: 128 bits
 * everywhere, 256 and 512 on x86-64, for libraries that need AVX2 or AVX-512 themselves (not in a build with Clang:
 * wide_vectors.h says why).
 */
#include "base/base.h"
#include "base/process/fork_guard.h"
#include "runtime/shim/math/wide_vectors.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#ifndef AOTICACHE_SLEEF_LIBRARY
#define AOTICACHE_SLEEF_LIBRARY ""
#endif

#define MATH_EXPORT __attribute__((visibility("default")))

typedef float floats_4 __attribute__((vector_size(16)));
typedef double doubles_2 __attribute__((vector_size(16)));
typedef float floats_8 __attribute__((vector_size(32)));
typedef double doubles_4 __attribute__((vector_size(32)));
typedef float floats_16 __attribute__((vector_size(64)));
typedef double doubles_8 __attribute__((vector_size(64)));

/* Computes lgamma(). The C library's lgamma() stores the sign in a variable that all threads share. */
static double log_gamma(double x)
{
    int sign;
    return lgamma_r(x, &sign);
}

/* Uses the C library's function of double, rounded: its function of float is off by more than a unit. */
#define DEFINE_ROUNDED(function)             \
    static float function##_rounded(float x) \
    {                                        \
        return (float)function((double)x);   \
    }
DEFINE_ROUNDED(acosh)
DEFINE_ROUNDED(asinh)
DEFINE_ROUNDED(atanh)
DEFINE_ROUNDED(cosh)
DEFINE_ROUNDED(erfc)
DEFINE_ROUNDED(log10)
DEFINE_ROUNDED(log_gamma)
DEFINE_ROUNDED(sinh)
DEFINE_ROUNDED(tanh)

/* ---- the choice of a function ---- */

static void *sleef;
static pthread_once_t sleef_once = PTHREAD_ONCE_INIT;

static void load_sleef(void)
{
    if (AOTICACHE_SLEEF_LIBRARY[0] != '\0')
        sleef = dlopen(AOTICACHE_SLEEF_LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

/*
 * Writes the library's function of that name, or else `plain`, to *chosen. Threads that call this at the same time find
 * the same one.
 */
static __attribute__((cold, noinline)) void *choose_function(_Atomic(void *) *chosen, const char *symbol, void *plain)
{
    aoticache_fork_guard_enter();
    pthread_once(&sleef_once, load_sleef);
    void *function = sleef != NULL ? dlsym(sleef, symbol) : NULL;
    aoticache_fork_guard_leave();
    if (function == NULL)
        function = plain;
    atomic_store_explicit(chosen, function, memory_order_release);
    return function;
}

/*
 * Defines the exported function for a plain one: once the choice is made, it jumps to the chosen function and leaves
 * the vectors in their registers. A function pointer is converted to void * and back; C does not define that, but POSIX
 * requires it for dlsym().
 */
#define DEFINE_EXPORT(symbol, result, parameters, arguments, attribute)                                      \
    MATH_EXPORT attribute result symbol parameters;                                                          \
    MATH_EXPORT attribute result symbol parameters                                                           \
    {                                                                                                        \
        static _Atomic(void *) chosen;                                                                       \
        union {                                                                                              \
            void *pointer;                                                                                   \
            result(*function) parameters;                                                                    \
        } way = {atomic_load_explicit(&chosen, memory_order_acquire)}, plain = {.function = symbol##_plain}; \
        if (__builtin_expect(way.pointer == NULL, 0))                                                        \
            way.pointer = choose_function(&chosen, #symbol, plain.pointer);                                  \
        return way.function arguments;                                                                       \
    }

#define DEFINE_UNARY(symbol, vector, lanes, function, attribute) \
    static attribute vector symbol##_plain(vector x)             \
    {                                                            \
        for (int i = 0; i < (lanes); i++)                        \
            x[i] = function(x[i]);                               \
        return x;                                                \
    }                                                            \
    DEFINE_EXPORT(symbol, vector, (vector x), (x), attribute)

#define DEFINE_BINARY(symbol, vector, lanes, function, attribute) \
    static attribute vector symbol##_plain(vector x, vector y)    \
    {                                                             \
        for (int i = 0; i < (lanes); i++)                         \
            x[i] = function(x[i], y[i]);                          \
        return x;                                                 \
    }                                                             \
    DEFINE_EXPORT(symbol, vector, (vector x, vector y), (x, y), attribute)

/*
 * There are two results, the sines and then the cosines. Vectors of 128 bits are in two registers if the ABI allows it,
 * others in memory.
 */
#define DEFINE_SINCOS(symbol, vector, lanes, sine, cosine, attribute) \
    struct symbol##_result {                                          \
        vector sines, cosines;                                        \
    };                                                                \
    static attribute struct symbol##_result symbol##_plain(vector x)  \
    {                                                                 \
        struct symbol##_result result;                                \
        for (int i = 0; i < (lanes); i++) {                           \
            result.sines[i] = sine(x[i]);                             \
            result.cosines[i] = cosine(x[i]);                         \
        }                                                             \
        return result;                                                \
    }                                                                 \
    DEFINE_EXPORT(symbol, struct symbol##_result, (vector x), (x), attribute)

/* name, suffix, function of float, function of double */
#define UNARY_LIST(X, ...)                                     \
    X(acos, _u10, acosf, acos, __VA_ARGS__)                    \
    X(acosh, _u10, acosh_rounded, acosh, __VA_ARGS__)          \
    X(asin, _u10, asinf, asin, __VA_ARGS__)                    \
    X(asinh, _u10, asinh_rounded, asinh, __VA_ARGS__)          \
    X(atan, _u10, atanf, atan, __VA_ARGS__)                    \
    X(atanh, _u10, atanh_rounded, atanh, __VA_ARGS__)          \
    X(cos, _u10, cosf, cos, __VA_ARGS__)                       \
    X(cos, _u35, cosf, cos, __VA_ARGS__)                       \
    X(cosh, _u10, cosh_rounded, cosh, __VA_ARGS__)             \
    X(erf, _u10, erff, erf, __VA_ARGS__)                       \
    X(erfc, _u15, erfc_rounded, erfc, __VA_ARGS__)             \
    X(exp, _u10, expf, exp, __VA_ARGS__)                       \
    X(exp2, _u10, exp2f, exp2, __VA_ARGS__)                    \
    X(expm1, _u10, expm1f, expm1, __VA_ARGS__)                 \
    X(lgamma, _u10, log_gamma_rounded, log_gamma, __VA_ARGS__) \
    X(log, _u10, logf, log, __VA_ARGS__)                       \
    X(log10, _u10, log10_rounded, log10, __VA_ARGS__)          \
    X(log1p, _u10, log1pf, log1p, __VA_ARGS__)                 \
    X(log2, _u10, log2f, log2, __VA_ARGS__)                    \
    X(sin, _u10, sinf, sin, __VA_ARGS__)                       \
    X(sin, _u35, sinf, sin, __VA_ARGS__)                       \
    X(sinh, _u10, sinh_rounded, sinh, __VA_ARGS__)             \
    X(tan, _u10, tanf, tan, __VA_ARGS__)                       \
    X(tanh, _u10, tanh_rounded, tanh, __VA_ARGS__)
#define BINARY_LIST(X, ...)                            \
    X(atan2, _u10, atan2f, atan2, __VA_ARGS__)         \
    X(copysign, , copysignf, copysign, __VA_ARGS__)    \
    X(fmod, , fmodf, fmod, __VA_ARGS__)                \
    X(hypot, _u05, hypotf, hypot, __VA_ARGS__)         \
    X(nextafter, , nextafterf, nextafter, __VA_ARGS__) \
    X(pow, _u10, powf, pow, __VA_ARGS__)

/* Both precisions of one width, such as Sleef_expf16_u10 and Sleef_expd8_u10. */
#define UNARY_OF_WIDTH(name, suffix, of_float, of_double, float_lanes, double_lanes, attribute)                \
    DEFINE_UNARY(Sleef_##name##f##float_lanes##suffix, floats_##float_lanes, float_lanes, of_float, attribute) \
    DEFINE_UNARY(Sleef_##name##d##double_lanes##suffix, doubles_##double_lanes, double_lanes, of_double, attribute)
#define BINARY_OF_WIDTH(name, suffix, of_float, of_double, float_lanes, double_lanes, attribute)                \
    DEFINE_BINARY(Sleef_##name##f##float_lanes##suffix, floats_##float_lanes, float_lanes, of_float, attribute) \
    DEFINE_BINARY(Sleef_##name##d##double_lanes##suffix, doubles_##double_lanes, double_lanes, of_double, attribute)
#define SINCOS_OF_WIDTH(float_lanes, double_lanes, attribute)                                                 \
    DEFINE_SINCOS(Sleef_sincosf##float_lanes##_u10, floats_##float_lanes, float_lanes, sinf, cosf, attribute) \
    DEFINE_SINCOS(Sleef_sincosd##double_lanes##_u10, doubles_##double_lanes, double_lanes, sin, cos, attribute)

UNARY_LIST(UNARY_OF_WIDTH, 4, 2, )
BINARY_LIST(BINARY_OF_WIDTH, 4, 2, )
SINCOS_OF_WIDTH(4, 2, )

#ifdef SHIM_WIDE_VECTORS
#define WITH_AVX __attribute__((target("avx2,fma")))
#define WITH_AVX512 __attribute__((target("avx512f")))
UNARY_LIST(UNARY_OF_WIDTH, 8, 4, WITH_AVX)
BINARY_LIST(BINARY_OF_WIDTH, 8, 4, WITH_AVX)
SINCOS_OF_WIDTH(8, 4, WITH_AVX)
UNARY_LIST(UNARY_OF_WIDTH, 16, 8, WITH_AVX512)
BINARY_LIST(BINARY_OF_WIDTH, 16, 8, WITH_AVX512)
SINCOS_OF_WIDTH(16, 8, WITH_AVX512)
#endif
