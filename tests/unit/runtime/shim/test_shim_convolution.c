/*
 * Convolutions of the shim compared with plain loops, and refused operands. tests/python/shim/test_shim_blas.py
 * compares all shapes, dtypes and memory formats with PyTorch.
 */
#include "runtime/shim/operators.h"
#include "tests/unit/fixtures/shim_fixture.h"

static AtenTensorHandle convolve(AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle *bias, int axes,
                                 int64_t stride, int64_t padding, int64_t dilation, bool transposed, int64_t groups)
{
    const int64_t strides[] = {stride, stride, stride}, paddings[] = {padding, padding, padding};
    const int64_t dilations[] = {dilation, dilation, dilation}, none[] = {0, 0, 0};
    AtenTensorHandle result = NULL;
    cr_assert_eq(SHIM(aoti_torch_cpu_convolution)(input, weight, bias, strides, axes, paddings, axes, dilations, axes,
                                                  transposed, none, axes, groups, &result),
                 0, "%s", shim_message());
    return result;
}

/* Returns an element of a contiguous image, 0 outside. */
static float pixel(const float *image, int channel, int row, int column, int size)
{
    if (row < 0 || column < 0 || row >= size || column >= size)
        return 0;
    return image[(channel * size + row) * size + column];
}

Test(shim_convolution, two_dimensions_with_stride_padding_dilation_and_bias)
{
    enum { SIZE = 9, INPUTS = 3, OUTPUTS = 2, KERNEL = 3 };
    const int64_t input_sizes[] = {1, INPUTS, SIZE, SIZE}, weight_sizes[] = {OUTPUTS, INPUTS, KERNEL, KERNEL};
    const int64_t bias_sizes[] = {OUTPUTS}, result_sizes[] = {1, OUTPUTS, 4, 4};
    float image[INPUTS * SIZE * SIZE], weight[OUTPUTS * INPUTS * KERNEL * KERNEL], bias[OUTPUTS] = {10, -10};
    for (int i = 0; i < INPUTS * SIZE * SIZE; i++)
        image[i] = (float)(i % 11) - 5;
    for (int i = 0; i < OUTPUTS * INPUTS * KERNEL * KERNEL; i++)
        weight[i] = (float)(i % 5) - 2;
    AtenTensorHandle x = shim_wrap(image, 6, 4, input_sizes, NULL), w = shim_wrap(weight, 6, 4, weight_sizes, NULL);
    AtenTensorHandle b = shim_wrap(bias, 6, 1, bias_sizes, NULL);
    AtenTensorHandle result = convolve(x, w, &b, 2, 2, 1, 2, false, 1);
    int64_t *sizes;
    cr_assert_eq(SHIM(aoti_torch_get_sizes)(result, &sizes), 0);
    cr_assert_eq(memcmp(sizes, result_sizes, sizeof result_sizes), 0);
    const float *values = shim_data(result);
    for (int o = 0; o < OUTPUTS; o++) {
        for (int i = 0; i < 16; i++) {
            float sum = bias[o];
            for (int k = 0; k < INPUTS * KERNEL * KERNEL; k++)
                sum += weight[o * INPUTS * KERNEL * KERNEL + k] *
                       pixel(image, k / 9, i / 4 * 2 - 1 + k / 3 % 3 * 2, i % 4 * 2 - 1 + k % 3 * 2, SIZE);
            cr_assert_eq(values[o * 16 + i], sum);
        }
    }
    shim_delete(x);
    shim_delete(w);
    shim_delete(b);
    shim_delete(result);
}

Test(shim_convolution, transposed_spreads_each_element)
{
    float line[] = {1, 2, 3}, kernel[] = {1, 10, 100};
    const int64_t sizes[] = {1, 1, 3};
    static const float wanted[] = {1, 10, 102, 20, 203, 30, 300};
    AtenTensorHandle x = shim_wrap(line, 6, 3, sizes, NULL), w = shim_wrap(kernel, 6, 3, sizes, NULL);
    AtenTensorHandle result = convolve(x, w, NULL, 1, 2, 0, 1, true, 1);
    cr_assert_eq(memcmp(shim_data(result), wanted, sizeof wanted), 0);
    shim_delete(x);
    shim_delete(w);
    shim_delete(result);
}

Test(shim_convolution, groups_do_not_mix_in_channels_last_either)
{
    float image[2 * 2 * 2 * 2], kernel[] = {1, 10, 100, 1000};
    const int64_t sizes[] = {1, 4, 2, 2}, strides[] = {16, 1, 8, 4}, weight_sizes[] = {2, 2, 1, 1};
    for (int i = 0; i < 16; i++)
        image[i] = (float)(i % 4 + 1); /* channel c is c + 1 everywhere */
    AtenTensorHandle x = shim_wrap(image, 6, 4, sizes, strides), w = shim_wrap(kernel, 6, 4, weight_sizes, NULL);
    AtenTensorHandle result = convolve(x, w, NULL, 2, 1, 0, 1, false, 2);
    int64_t *result_strides;
    cr_assert_eq(SHIM(aoti_torch_get_strides)(result, &result_strides), 0);
    cr_assert(result_strides[1] == 1 && result_strides[3] == 2, "the result is in the input's memory format");
    const float *values = shim_data(result);
    for (int i = 0; i < 4; i++)
        cr_assert(values[2 * i] == 21 && values[2 * i + 1] == 4300, "%g %g", values[2 * i], values[2 * i + 1]);
    shim_delete(x);
    shim_delete(w);
    shim_delete(result);
}

Test(shim_convolution, no_channels_leave_the_bias)
{
    float none[1], bias[] = {3}, *values;
    const int64_t input_sizes[] = {1, 0, 4}, weight_sizes[] = {1, 0, 2}, bias_sizes[] = {1};
    AtenTensorHandle x = shim_wrap(none, 6, 3, input_sizes, NULL), w = shim_wrap(none, 6, 3, weight_sizes, NULL);
    AtenTensorHandle b = shim_wrap(bias, 6, 1, bias_sizes, NULL);
    AtenTensorHandle result = convolve(x, w, &b, 1, 1, 0, 1, false, 1);
    values = shim_data(result);
    cr_assert(values[0] == 3 && values[2] == 3);
    shim_delete(x);
    shim_delete(w);
    shim_delete(b);
    shim_delete(result);
}

Test(shim_convolution, what_does_not_fit_is_named)
{
    float values[64] = {0};
    const int64_t sizes[] = {1, 2, 3}, weight_sizes[] = {2, 2, 3}, flat_sizes[] = {2, 3}, bias_sizes[] = {3};
    const int64_t one = 1, zero = 0, many = 5, huge = INT64_MAX, negative = -1, two[] = {1, 1};
    AtenTensorHandle x = shim_wrap(values, 6, 3, sizes, NULL), w = shim_wrap(values, 6, 3, weight_sizes, NULL);
    AtenTensorHandle flat = shim_wrap(values, 6, 2, flat_sizes, NULL), bias = shim_wrap(values, 6, 1, bias_sizes, NULL);
    AtenTensorHandle whole = shim_wrap(values, 3, 3, sizes, NULL), result = NULL;
    __typeof__(&aoti_torch_cpu_convolution) call = SHIM(aoti_torch_cpu_convolution);
    SHIM_FAILS(call(flat, w, NULL, &one, 1, &zero, 1, &one, 1, 0, &zero, 1, 1, &result), "3, 4 or 5 dimensions");
    SHIM_FAILS(call(x, w, NULL, &one, 1, &zero, 1, &one, 1, 0, &zero, 1, 2, &result), "do not take 2 channels");
    SHIM_FAILS(call(x, w, NULL, &one, 1, &zero, 1, &one, 1, 0, &zero, 1, 0, &result), "0 groups");
    SHIM_FAILS(call(x, w, NULL, &zero, 1, &zero, 1, &one, 1, 0, &zero, 1, 1, &result), "stride is 0");
    SHIM_FAILS(call(x, w, NULL, two, 2, &zero, 1, &one, 1, 0, &zero, 1, 1, &result), "stride has 2 numbers");
    SHIM_FAILS(call(x, w, NULL, &one, 1, &negative, 1, &one, 1, 0, &zero, 1, 1, &result), "padding is -1");
    SHIM_FAILS(call(x, w, NULL, &one, 1, &huge, 1, &one, 1, 0, &zero, 1, 1, &result), "padding is 9223372036854775807");
    SHIM_FAILS(call(x, w, NULL, &one, 1, &zero, 1, &many, 1, 0, &zero, 1, 1, &result),
               "spans 11 elements is larger than 3");
    SHIM_FAILS(call(x, w, &bias, &one, 1, &zero, 1, &one, 1, 0, &zero, 1, 1, &result), "3 elements, for 2 channels");
    SHIM_FAILS(call(x, w, NULL, &one, 1, &zero, 1, &one, 1, 1, &one, 1, 1, &result),
               "output_padding 1 must be below stride 1");
    SHIM_FAILS(call(whole, w, NULL, &one, 1, &zero, 1, &one, 1, 0, &zero, 1, 1, &result),
               "convolution of int32 is not supported");
    SHIM_FAILS(call(x, NULL, NULL, &one, 1, &zero, 1, &one, 1, 0, &zero, 1, 1, &result), "NULL");
    cr_assert_null(result);
    shim_delete(x);
    shim_delete(w);
    shim_delete(flat);
    shim_delete(bias);
    shim_delete(whole);
}
