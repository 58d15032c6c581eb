/*
 * Fourier transforms: results that are known without another implementation, for lengths of every kind.
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/shim/operators.h"
#include "tests/unit/fixtures/shim_fixture.h"

/* 1: nothing to do; 2 to 32: factors; 37, 1021: primes by Bluestein; 2 * 1021: with a large factor. */
static const int64_t lengths[] = {1, 2, 3, 5, 8, 12, 31, 32, 37, 210, 1021, 2042};

static AtenTensorHandle signal_of(int64_t length, double *values)
{
    for (int64_t i = 0; i < 2 * length; i++)
        values[i] = sin((double)(i * i % 97)) + (double)(i % 5);
    return shim_wrap(values, AOTICACHE_DTYPE_COMPLEX128, 1, &length, NULL);
}

Test(shim_fft, back_and_forth_is_where_it_began)
{
    const int64_t dim = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int64_t length = lengths[i];
        double *values = calloc(2 * (size_t)length, sizeof *values);
        AtenTensorHandle tensor = signal_of(length, values), there, back;
        cr_assert_eq(SHIM(aoti_torch_cpu__fft_c2c)(tensor, &dim, 1, 0, 1, &there), 0, "%s", shim_message());
        cr_assert_eq(SHIM(aoti_torch_cpu__fft_c2c)(there, &dim, 1, 2, 0, &back), 0, "%s", shim_message());
        const double *seen = shim_data(back), *spectrum = shim_data(there);
        double sum = 0;
        for (int64_t k = 0; k < 2 * length; k++)
            cr_assert_float_eq(seen[k], values[k], 1e-9, "length %lld, part %lld", (long long)length, (long long)k);
        for (int64_t k = 0; k < length; k++)
            sum += values[2 * k];
        cr_assert_float_eq(spectrum[0], sum, 1e-8, "the first number is the sum");
        shim_delete(there);
        shim_delete(back);
        shim_delete(tensor);
        free(values);
    }
}

Test(shim_fft, one_wave_is_one_number)
{
    double wave[24];
    const int64_t length = 24, dim = 0;
    int64_t size = 0;
    for (int i = 0; i < 24; i++)
        wave[i] = cos(2 * M_PI * 3 * i / 24);
    AtenTensorHandle tensor = shim_wrap(wave, AOTICACHE_DTYPE_FLOAT64, 1, &length, NULL), half, real;
    cr_assert_eq(SHIM(aoti_torch_cpu__fft_r2c)(tensor, &dim, 1, 0, 1, &half), 0, "%s", shim_message());
    cr_assert_eq(SHIM(aoti_torch_get_size)(half, 0, &size), 0);
    cr_assert_eq(size, 13);
    const double *seen = shim_data(half);
    for (int k = 0; k < 13; k++) {
        cr_assert_float_eq(seen[2 * k], k == 3 ? 12.0 : 0.0, 1e-12);
        cr_assert_float_eq(seen[2 * k + 1], 0.0, 1e-12);
    }
    cr_assert_eq(SHIM(aoti_torch_cpu__fft_c2r)(half, &dim, 1, 2, 24, &real), 0, "%s", shim_message());
    for (int i = 0; i < 24; i++)
        cr_assert_float_eq(((double *)shim_data(real))[i], wave[i], 1e-12);
    shim_delete(half);
    shim_delete(real);
    shim_delete(tensor);
}

Test(shim_fft, wrong_arguments_are_refused)
{
    float values[6] = {0};
    const int64_t sizes[] = {2, 3}, twice[] = {1, 1}, far[] = {2}, none[] = {0, 3}, dim = 0;
    AtenTensorHandle tensor = shim_wrap(values, AOTICACHE_DTYPE_FLOAT32, 2, sizes, NULL), result = NULL;
    AtenTensorHandle empty = shim_empty(AOTICACHE_DTYPE_FLOAT32, 2, none, sizes);
    SHIM_FAILS(SHIM(aoti_torch_cpu__fft_r2c)(tensor, twice, 2, 0, 1, &result), "dimension 1 is given twice");
    SHIM_FAILS(SHIM(aoti_torch_cpu__fft_r2c)(tensor, far, 1, 0, 1, &result), "dimension 2 of a tensor with 2");
    SHIM_FAILS(SHIM(aoti_torch_cpu__fft_r2c)(tensor, far, 3, 0, 1, &result), "3 dimensions for a tensor with 2");
    SHIM_FAILS(SHIM(aoti_torch_cpu__fft_r2c)(tensor, &dim, 1, 7, 1, &result), "normalization 7");
    SHIM_FAILS(SHIM(aoti_torch_cpu__fft_r2c)(empty, &dim, 1, 0, 1, &result), "no elements to transform");
    SHIM_FAILS(SHIM(aoti_torch_cpu__fft_c2c)(tensor, &dim, 1, 0, 1, &result), "not supported for float32");
    cr_assert_null(result);
    shim_delete(tensor);
    shim_delete(empty);
}
