/*
 * The vector functions of the shim compared with the C library's functions of one number in long double: every lane is
 * within the error that the name promises, except for tanh() if the machine has no SLEEF.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/shim/math/wide_vectors.h"
#include "tests/unit/fixtures/shim_fixture.h"

typedef float floats_4 __attribute__((vector_size(16)));
typedef double doubles_2 __attribute__((vector_size(16)));

typedef floats_4 (*of_floats)(floats_4);
typedef doubles_2 (*of_doubles)(doubles_2);
typedef floats_4 (*of_two_floats)(floats_4, floats_4);

/* Returns the distance in units in the last place of the right value. */
static double error_in_units(long double right, long double seen, int mantissa_bits, int least_exponent)
{
    if (isnan(right) || isinf(right))
        return isnan(right) == isnan(seen) && (isnan(right) || right == seen) ? 0 : 1e9;
    int exponent = 0;
    frexpl(right, &exponent);
    if (exponent < least_exponent)
        exponent = least_exponent;
    return (double)(fabsl(right - seen) / ldexpl(1, exponent - mantissa_bits));
}

static void check_floats(const char *name, long double (*right)(long double), float low, float high, double units)
{
    void (*found)(void) = shim_find(name);
    of_floats function = (of_floats)found;
    for (int i = 0; i < 4000; i += 4) {
        floats_4 x;
        for (int lane = 0; lane < 4; lane++)
            x[lane] = low + (high - low) * (float)(i + lane) / 4000;
        floats_4 y = function(x);
        for (int lane = 0; lane < 4; lane++)
            cr_assert_lt(error_in_units(right((long double)x[lane]), (long double)y[lane], FLT_MANT_DIG, FLT_MIN_EXP),
                         units, "%s(%a) is %a", name, (double)x[lane], (double)y[lane]);
    }
}

static void check_doubles(const char *name, long double (*right)(long double), double low, double high, double units)
{
    void (*found)(void) = shim_find(name);
    of_doubles function = (of_doubles)found;
    for (int i = 0; i < 2000; i += 2) {
        doubles_2 x = {low + (high - low) * i / 2000, low + (high - low) * (i + 1) / 2000};
        doubles_2 y = function(x);
        for (int lane = 0; lane < 2; lane++)
            cr_assert_lt(error_in_units(right((long double)x[lane]), (long double)y[lane], DBL_MANT_DIG, DBL_MIN_EXP),
                         units, "%s(%a) is %a", name, x[lane], y[lane]);
    }
}

Test(shim_vector_math, floats_are_within_what_the_name_promises)
{
    check_floats("Sleef_expf4_u10", expl, -100, 88, 1.001);
    check_floats("Sleef_expm1f4_u10", expm1l, -20, 80, 1.001);
    check_floats("Sleef_logf4_u10", logl, 0.001f, 1000, 1.001);
    check_floats("Sleef_log1pf4_u10", log1pl, -0.9f, 1000, 1.001);
    check_floats("Sleef_tanhf4_u10", tanhl, -8, 8, 1.001);
    check_floats("Sleef_sinf4_u10", sinl, -100, 100, 1.001);
    check_floats("Sleef_cosf4_u10", cosl, -100, 100, 1.001);
    check_floats("Sleef_erff4_u10", erfl, -4, 4, 1.001);
    check_floats("Sleef_erfcf4_u15", erfcl, -4, 9, 1.501);
    check_floats("Sleef_cosf4_u35", cosl, -100, 100, 3.501);
}

/* The C library's tanh() is off by more than the name promises: without SLEEF the error is two units. */
Test(shim_vector_math, doubles_are_within_what_the_name_promises)
{
    check_doubles("Sleef_expd2_u10", expl, -700, 700, 1.001);
    check_doubles("Sleef_logd2_u10", logl, 1e-3, 1e3, 1.001);
    check_doubles("Sleef_tanhd2_u10", tanhl, -8, 8, 2.501);
    check_doubles("Sleef_erfd2_u10", erfl, -4, 4, 1.001);
}

Test(shim_vector_math, what_is_not_a_number_and_what_is_infinite_keeps_its_meaning)
{
    of_floats exponential = (of_floats)shim_find("Sleef_expf4_u10");
    of_floats logarithm = (of_floats)shim_find("Sleef_logf4_u10");
    floats_4 y = exponential((floats_4){NAN, INFINITY, -INFINITY, 0});
    cr_assert(isnan(y[0]) && y[1] == INFINITY && y[2] == 0 && y[3] == 1);
    y = logarithm((floats_4){NAN, INFINITY, 0, -1});
    cr_assert(isnan(y[0]) && y[1] == INFINITY && y[2] == -INFINITY && isnan(y[3]));
}

Test(shim_vector_math, functions_of_two_numbers)
{
    of_two_floats power = (of_two_floats)shim_find("Sleef_powf4_u10");
    of_two_floats modulo = (of_two_floats)shim_find("Sleef_fmodf4");
    floats_4 y = power((floats_4){2, 9, -2, 0}, (floats_4){10, 0.5f, 3, 0});
    cr_assert(y[0] == 1024 && y[1] == 3 && y[2] == -8 && y[3] == 1);
    y = modulo((floats_4){7, -7, 5.5f, 1}, (floats_4){3, 3, 2, 4});
    cr_assert(y[0] == 1 && y[1] == -1 && y[2] == 1.5f && y[3] == 1);
}

#ifdef SHIM_WIDE_VECTORS
typedef float floats_8 __attribute__((vector_size(32)));
typedef float floats_16 __attribute__((vector_size(64)));
struct two_floats_8 {
    floats_8 sines, cosines;
};

/*
 * Vectors are passed in registers that the other code of this file does not use: so each check is a separate function.
 */
__attribute__((target("avx2,fma"), noinline)) static void check_eight(const float *x, float *ret_sines,
                                                                      float *ret_cosines, float *ret_exponentials)
{
    floats_8 vector;
    memcpy(&vector, x, sizeof vector);
    floats_8 (*exponential)(floats_8);
    struct two_floats_8 (*sines_and_cosines)(floats_8);
    void *symbol = dlsym(shim_library(), "Sleef_expf8_u10");
    memcpy(&exponential, &symbol, sizeof symbol);
    symbol = dlsym(shim_library(), "Sleef_sincosf8_u10");
    memcpy(&sines_and_cosines, &symbol, sizeof symbol);
    floats_8 exponentials = exponential(vector);
    struct two_floats_8 both = sines_and_cosines(vector);
    memcpy(ret_exponentials, &exponentials, sizeof exponentials);
    memcpy(ret_sines, &both.sines, sizeof both.sines);
    memcpy(ret_cosines, &both.cosines, sizeof both.cosines);
}

__attribute__((target("avx512f"), noinline)) static void check_sixteen(const float *x, float *ret_exponentials)
{
    floats_16 vector, (*exponential)(floats_16);
    memcpy(&vector, x, sizeof vector);
    void *symbol = dlsym(shim_library(), "Sleef_expf16_u10");
    memcpy(&exponential, &symbol, sizeof symbol);
    vector = exponential(vector);
    memcpy(ret_exponentials, &vector, sizeof vector);
}
#endif

Test(shim_vector_math, wide_vectors_arrive_whole)
{
#ifdef SHIM_WIDE_VECTORS
    float x[16], sines[8], cosines[8], exponentials[16];
    for (int i = 0; i < 16; i++)
        x[i] = (float)i / 4 - 2;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        cr_skip_test("the processor has no AVX2");
    check_eight(x, sines, cosines, exponentials);
    for (int i = 0; i < 8; i++) {
        cr_assert_float_eq(exponentials[i], expf(x[i]), 1e-6);
        cr_assert_float_eq(sines[i], sinf(x[i]), 1e-6);
        cr_assert_float_eq(cosines[i], cosf(x[i]), 1e-6);
    }
    if (__builtin_cpu_supports("avx512f")) {
        check_sixteen(x, exponentials);
        for (int i = 0; i < 16; i++)
            cr_assert_float_eq(exponentials[i], expf(x[i]), 1e-5);
    }
#else
    cr_skip_test("no vectors of more than 128 bits on this processor, or by this compiler");
#endif
}
