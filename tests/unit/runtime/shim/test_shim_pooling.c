/*
 * Pooling of the shim on small tensors with obvious results, and refused operands. tests/python/shim/test_shim_blas.py
 * compares all kinds, dtypes and memory formats with PyTorch.
 */
#include <math.h>

#include "runtime/shim/operators.h"
#include "tests/unit/fixtures/shim_fixture.h"

static const int64_t four[] = {1, 1, 4, 4};
static const int64_t two[] = {2, 2}, one[] = {1, 1}, zero[] = {0, 0}, three[] = {3, 3};

/* Makes a tensor of 0 to 15, by rows. */
static AtenTensorHandle counted(float values[16])
{
    for (int i = 0; i < 16; i++)
        values[i] = (float)i;
    return shim_wrap(values, 6, 4, four, NULL);
}

Test(shim_pooling, max_gives_elements_and_their_positions)
{
    float values[16];
    AtenTensorHandle x = counted(values), result, indices;
    values[5] = NAN;
    cr_assert_eq(
        SHIM(aoti_torch_cpu_max_pool2d_with_indices)(x, two, 2, NULL, 0, zero, 2, one, 2, 0, &result, &indices), 0,
        "%s", shim_message());
    const float *largest = shim_data(result);
    const int64_t *positions = shim_data(indices);
    cr_assert(isnan(largest[0]) && largest[1] == 7 && largest[2] == 13 && largest[3] == 15);
    cr_assert(positions[0] == 5 && positions[1] == 7 && positions[2] == 13 && positions[3] == 15);
    shim_delete(x);
    shim_delete(result);
    shim_delete(indices);
}

Test(shim_pooling, dilated_max_skips_elements)
{
    float values[16];
    AtenTensorHandle x = counted(values), result, indices;
    cr_assert_eq(SHIM(aoti_torch_cpu_max_pool2d_with_indices)(x, two, 2, one, 2, one, 2, two, 2, 0, &result, &indices),
                 0, "%s", shim_message());
    const float *largest = shim_data(result);
    cr_assert(largest[0] == 5 && largest[1] == 6 && largest[15] == 10, "%g %g %g", largest[0], largest[1], largest[15]);
    shim_delete(x);
    shim_delete(result);
    shim_delete(indices);
}

Test(shim_pooling, mean_with_padding_counts_it_or_not)
{
    float values[16];
    int64_t divisor = 2;
    AtenTensorHandle x = counted(values), result;
    for (int counts = 0; counts < 2; counts++) {
        cr_assert_eq(SHIM(aoti_torch_cpu_avg_pool2d)(x, three, 2, two, 2, one, 2, 0, counts, NULL, &result), 0);
        cr_assert_float_eq(*(float *)shim_data(result), counts ? 10 / 9.0 : 2.5, 1e-6);
        shim_delete(result);
    }
    cr_assert_eq(SHIM(aoti_torch_cpu_avg_pool2d)(x, two, 2, NULL, 0, zero, 2, 0, 1, &divisor, &result), 0);
    cr_assert_eq(*(float *)shim_data(result), 5);
    shim_delete(result);
    shim_delete(x);
}

Test(shim_pooling, adaptive_windows_cover_everything)
{
    float values[16];
    AtenTensorHandle x = counted(values), result, indices;
    cr_assert_eq(SHIM(aoti_torch_cpu__adaptive_avg_pool2d)(x, three, 2, &result), 0, "%s", shim_message());
    cr_assert_eq(*(float *)shim_data(result), 2.5f);
    shim_delete(result);
    cr_assert_eq(SHIM(aoti_torch_cpu_adaptive_max_pool2d)(x, three, 2, &result, &indices), 0, "%s", shim_message());
    cr_assert(((float *)shim_data(result))[8] == 15 && ((int64_t *)shim_data(indices))[8] == 15);
    shim_delete(result);
    shim_delete(indices);
    shim_delete(x);
}

Test(shim_pooling, fractional_windows_follow_the_samples)
{
    float values[16], samples[] = {0.5f, 0.5f};
    const int64_t sample_sizes[] = {1, 1, 2};
    AtenTensorHandle x = counted(values), random_samples = shim_wrap(samples, 6, 3, sample_sizes, NULL);
    AtenTensorHandle result = NULL, indices = NULL;
    cr_assert_eq(SHIM(aoti_torch_cpu_fractional_max_pool2d)(x, two, 2, two, 2, random_samples, &result, &indices), 0,
                 "%s", shim_message());
    cr_assert_eq(((float *)shim_data(result))[3], 15);
    shim_delete(result);
    shim_delete(indices);
    result = indices = NULL;
    samples[0] = 1e9f;
    SHIM_FAILS(SHIM(aoti_torch_cpu_fractional_max_pool2d)(x, two, 2, three, 2, random_samples, &result, &indices),
               "a random sample is 1e+09");
    samples[0] = NAN;
    SHIM_FAILS(SHIM(aoti_torch_cpu_fractional_max_pool2d)(x, two, 2, three, 2, random_samples, &result, &indices),
               "a random sample is nan");
    cr_assert(result == NULL && indices == NULL);
    shim_delete(x);
    shim_delete(random_samples);
}

Test(shim_pooling, what_does_not_fit_is_named)
{
    float values[16];
    const int64_t nine[] = {9, 9};
    int64_t nothing = 0;
    AtenTensorHandle x = counted(values), whole = shim_wrap(values, 3, 4, four, NULL), result = NULL, indices = NULL;
    __typeof__(&aoti_torch_cpu_avg_pool2d) mean = SHIM(aoti_torch_cpu_avg_pool2d);
    SHIM_FAILS(mean(x, nine, 2, NULL, 0, zero, 2, 0, 1, NULL, &result), "a window of 9 does not fit into 4");
    SHIM_FAILS(mean(x, two, 2, NULL, 0, two, 2, 0, 1, NULL, &result), "padding 2 is more than half");
    SHIM_FAILS(mean(x, two, 2, zero, 2, zero, 2, 0, 1, NULL, &result), "stride is 0");
    SHIM_FAILS(mean(x, two, 2, NULL, 0, zero, 2, 0, 1, &nothing, &result), "divisor_override is 0");
    SHIM_FAILS(mean(whole, two, 2, NULL, 0, zero, 2, 0, 1, NULL, &result), "pooling of int32 is not supported");
    SHIM_FAILS(SHIM(aoti_torch_cpu_avg_pool3d)(whole, two, 2, NULL, 0, zero, 2, 0, 1, NULL, &result),
               "is not supported");
    SHIM_FAILS(SHIM(aoti_torch_cpu__adaptive_avg_pool2d)(NULL, two, 2, &result), "NULL");
    SHIM_FAILS(SHIM(aoti_torch_cpu_adaptive_max_pool2d)(x, two, 2, &result, NULL), "a pointer for the results is NULL");
    cr_assert(result == NULL && indices == NULL);
    shim_delete(x);
    shim_delete(whole);
}
