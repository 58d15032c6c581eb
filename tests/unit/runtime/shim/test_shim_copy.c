/*
 * Copies of the shim: conversion of dtypes, broadcasting, strides, overlap, clones, zeroing, single values.
 */
#include <complex.h>
#include <math.h>

#include "base/names.h"
#include "tests/unit/fixtures/shim_fixture.h"

static void copy_one(int32_t to_dtype, void *to, int32_t from_dtype, void *from)
{
    AtenTensorHandle target = shim_wrap(to, to_dtype, 0, NULL, NULL);
    AtenTensorHandle source = shim_wrap(from, from_dtype, 0, NULL, NULL);
    cr_assert_eq(SHIM(aoti_torch_copy_)(target, source, 0), 0, "%s", shim_message());
    shim_delete(target);
    shim_delete(source);
}

Test(shim_copy, every_pair_of_dtypes_keeps_a_small_number)
{
#define NUMBER(upper, lower, number, bytes) number,
    static const int32_t dtypes[] = {AOTICACHE_DTYPE_LIST(NUMBER)};
#undef NUMBER
    size_t count = sizeof dtypes / sizeof dtypes[0];
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < count; j++) {
            double first = 1, last = -1; /* all dtypes have 1, also bool and e8m0 */
            _Alignas(16) char a[16] = {0}, b[16] = {0};
            if (dtypes[i] == AOTICACHE_DTYPE_FLOAT4_E2M1FN_X2 || dtypes[j] == AOTICACHE_DTYPE_FLOAT4_E2M1FN_X2)
                continue;
            copy_one(dtypes[i], a, AOTICACHE_DTYPE_FLOAT64, &first);
            copy_one(dtypes[j], b, dtypes[i], a);
            copy_one(AOTICACHE_DTYPE_FLOAT64, &last, dtypes[j], b);
            cr_assert_eq(last, 1, "%s by way of %s gives %g", aoticache_dtype_name(dtypes[i]),
                         aoticache_dtype_name(dtypes[j]), last);
        }
    }
}

Test(shim_copy, conversions_round_cut_and_saturate_as_pytorch_does)
{
    uint16_t half, brain;
    int8_t byte;
    uint8_t code;
    bool truth;
    float single = -3.99f;
    copy_one(AOTICACHE_DTYPE_INT8, &byte, AOTICACHE_DTYPE_FLOAT32, &single);
    cr_assert_eq(byte, -3);
    int32_t wide = 300;
    copy_one(AOTICACHE_DTYPE_INT8, &byte, AOTICACHE_DTYPE_INT32, &wide);
    cr_assert_eq(byte, 44);
    single = 65519.9f;
    copy_one(AOTICACHE_DTYPE_FLOAT16, &half, AOTICACHE_DTYPE_FLOAT32, &single);
    cr_assert_eq(half, 0x7bff);
    single = 65520;
    copy_one(AOTICACHE_DTYPE_FLOAT16, &half, AOTICACHE_DTYPE_FLOAT32, &single);
    cr_assert_eq(half, 0x7c00, "halfway to the next is infinite");
    single = 0x1.8p-25f;
    copy_one(AOTICACHE_DTYPE_FLOAT16, &half, AOTICACHE_DTYPE_FLOAT32, &single);
    cr_assert_eq(half, 1, "three quarters of the smallest round up");
    single = -0x1p-25f;
    copy_one(AOTICACHE_DTYPE_FLOAT16, &half, AOTICACHE_DTYPE_FLOAT32, &single);
    cr_assert_eq(half, 0x8000, "half of the smallest goes to even");
    single = 1 + 0x1p-8f;
    copy_one(AOTICACHE_DTYPE_BFLOAT16, &brain, AOTICACHE_DTYPE_FLOAT32, &single);
    cr_assert_eq(brain, 0x3f80);
    single = 1 + 0x3p-8f;
    copy_one(AOTICACHE_DTYPE_BFLOAT16, &brain, AOTICACHE_DTYPE_FLOAT32, &single);
    cr_assert_eq(brain, 0x3f82);
    single = NAN;
    copy_one(AOTICACHE_DTYPE_BOOL, &truth, AOTICACHE_DTYPE_FLOAT32, &single);
    cr_assert(truth);
    single = 464;
    copy_one(AOTICACHE_DTYPE_FLOAT8_E4M3FN, &code, AOTICACHE_DTYPE_FLOAT32, &single);
    cr_assert_eq(code, 0x7e);
    single = 465;
    copy_one(AOTICACHE_DTYPE_FLOAT8_E4M3FN, &code, AOTICACHE_DTYPE_FLOAT32, &single);
    cr_assert_eq(code, 0x7e, "too large is the largest");
    single = NAN;
    copy_one(AOTICACHE_DTYPE_FLOAT8_E4M3FN, &code, AOTICACHE_DTYPE_FLOAT32, &single);
    cr_assert_eq(code, 0x7f);
    single = INFINITY;
    copy_one(AOTICACHE_DTYPE_FLOAT8_E4M3FNUZ, &code, AOTICACHE_DTYPE_FLOAT32, &single);
    cr_assert_eq(code, 0x80, "there the only NaN");
    single = 61440;
    copy_one(AOTICACHE_DTYPE_FLOAT8_E5M2, &code, AOTICACHE_DTYPE_FLOAT32, &single);
    cr_assert_eq(code, 0x7c, "too large is infinite");
    single = -0.0f;
    copy_one(AOTICACHE_DTYPE_FLOAT8_E4M3FNUZ, &code, AOTICACHE_DTYPE_FLOAT32, &single);
    cr_assert_eq(code, 0, "there is no minus zero");
}

Test(shim_copy, whole_numbers_round_once)
{
    int64_t large = (INT64_C(1) << 53) + (INT64_C(1) << 29) + 1; /* double would round it to even, down */
    float single;
    copy_one(AOTICACHE_DTYPE_FLOAT32, &single, AOTICACHE_DTYPE_INT64, &large);
    cr_assert_eq(single, (float)large);
    uint64_t huge = UINT64_MAX;
    double real;
    copy_one(AOTICACHE_DTYPE_FLOAT64, &real, AOTICACHE_DTYPE_UINT64, &huge);
    cr_assert_eq(real, 0x1p64);
    real = 0x1.8p63;
    copy_one(AOTICACHE_DTYPE_UINT64, &huge, AOTICACHE_DTYPE_FLOAT64, &real);
    cr_assert_eq(huge, UINT64_C(3) << 62);
}

Test(shim_copy, complex_keeps_the_real_part_and_any_part_is_true)
{
    float _Complex value = 0;
    __imag__ value = 2;
    float real = -1;
    bool truth = false;
    copy_one(AOTICACHE_DTYPE_FLOAT32, &real, AOTICACHE_DTYPE_COMPLEX64, &value);
    copy_one(AOTICACHE_DTYPE_BOOL, &truth, AOTICACHE_DTYPE_COMPLEX64, &value);
    cr_assert_eq(real, 0);
    cr_assert(truth);
}

Test(shim_copy, half_survives_the_way_through_float_for_every_code)
{
    for (uint32_t code = 0; code < 65536; code++) {
        uint16_t half = (uint16_t)code, back = 0;
        float single = 0;
        copy_one(AOTICACHE_DTYPE_FLOAT32, &single, AOTICACHE_DTYPE_FLOAT16, &half);
        copy_one(AOTICACHE_DTYPE_FLOAT16, &back, AOTICACHE_DTYPE_FLOAT32, &single);
        if (isnan(single))
            cr_assert_gt(back & 0x7fff, 0x7c00);
        else
            cr_assert_eq(back, half, "%04x became %04x", half, back);
    }
}

Test(shim_copy, source_is_broadcast_through_any_strides)
{
    int32_t from[3] = {10, 20, 30};
    float to[24];
    const int64_t from_sizes[] = {3, 1}, to_sizes[] = {2, 3, 4}, to_strides[] = {1, 2, 6};
    AtenTensorHandle source = shim_wrap(from, AOTICACHE_DTYPE_INT32, 2, from_sizes, NULL);
    AtenTensorHandle target = shim_wrap(to, AOTICACHE_DTYPE_FLOAT32, 3, to_sizes, to_strides);
    cr_assert_eq(SHIM(aoti_torch_copy_)(target, source, 0), 0, "%s", shim_message());
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 3; j++)
            for (int k = 0; k < 4; k++)
                cr_assert_eq(to[i + 2 * j + 6 * k], (float)from[j]);
    SHIM_FAILS(SHIM(aoti_torch_copy_)(source, target, 0), "3 dimensions into one of 2");
    shim_delete(source);
    shim_delete(target);
}

Test(shim_copy, sizes_that_do_not_fit_are_named)
{
    float from[6] = {0}, to[8] = {0};
    const int64_t two_three[] = {2, 3}, two_four[] = {2, 4};
    AtenTensorHandle source = shim_wrap(from, 6, 2, two_three, NULL), target = shim_wrap(to, 6, 2, two_four, NULL);
    SHIM_FAILS(SHIM(aoti_torch_copy_)(target, source, 0), "size 3 into size 4 at dimension 1");
    shim_delete(source);
    shim_delete(target);
}

Test(shim_copy, overlap_is_refused_but_the_same_elements_are_not)
{
    float values[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const int64_t six[] = {6}, zero[] = {0};
    AtenTensorHandle low = shim_wrap(values, 6, 1, six, NULL), high = shim_wrap(values + 2, 6, 1, six, NULL);
    AtenTensorHandle same = shim_wrap(values, 6, 1, six, NULL), repeated = shim_wrap(values, 6, 1, six, zero);
    SHIM_FAILS(SHIM(aoti_torch_copy_)(low, high, 0), "overlap");
    SHIM_FAILS(SHIM(aoti_torch_tensor_copy_)(low, repeated), "repeats its elements");
    cr_assert_eq(SHIM(aoti_torch_copy_)(low, same, 0), 0);
    for (int i = 0; i < 8; i++)
        cr_assert_eq(values[i], (float)i);
    shim_delete(low);
    shim_delete(high);
    shim_delete(same);
    shim_delete(repeated);
}

/* Checks that a clone of a tensor with these sizes and strides has the wanted strides. */
static void check_clone_strides(int64_t ndim, const int64_t *sizes, const int64_t *strides, const int64_t *wanted)
{
    float values[256];
    int64_t *seen;
    for (int i = 0; i < 256; i++)
        values[i] = (float)i;
    AtenTensorHandle tensor = shim_wrap(values, 6, ndim, sizes, strides), clone = NULL;
    cr_assert_eq(SHIM(aoti_torch_clone)(tensor, &clone), 0, "%s", shim_message());
    cr_assert_eq(SHIM(aoti_torch_get_strides)(clone, &seen), 0);
    for (int64_t d = 0; d < ndim; d++)
        cr_assert_eq(seen[d], wanted[d], "stride %d is %lld, wanted %lld", (int)d, (long long)seen[d],
                     (long long)wanted[d]);
    const float *data = shim_data(clone);
    int64_t last_from = 0, last_to = 0;
    for (int64_t d = 0; d < ndim; d++) {
        last_from += (sizes[d] - 1) * strides[d];
        last_to += (sizes[d] - 1) * wanted[d];
    }
    cr_assert_eq(data[last_to], values[last_from]);
    cr_assert_eq(data[0], 0);
    shim_delete(tensor);
    shim_delete(clone);
}

/* The wanted strides are those of torch.empty_strided(sizes, strides).clone().stride(). */
Test(shim_copy, clone_has_pytorch_strides)
{
    check_clone_strides(2, (int64_t[]){3, 4}, (int64_t[]){1, 3}, (int64_t[]){1, 3});
    check_clone_strides(2, (int64_t[]){3, 4}, (int64_t[]){8, 2}, (int64_t[]){4, 1});
    check_clone_strides(2, (int64_t[]){3, 4}, (int64_t[]){2, 12}, (int64_t[]){1, 3});
    check_clone_strides(3, (int64_t[]){2, 3, 4}, (int64_t[]){0, 4, 1}, (int64_t[]){12, 4, 1});
    check_clone_strides(3, (int64_t[]){2, 3, 4}, (int64_t[]){2, 0, 8}, (int64_t[]){1, 2, 6});
    check_clone_strides(4, (int64_t[]){2, 3, 4, 1}, (int64_t[]){24, 1, 6, 3}, (int64_t[]){12, 1, 3, 3});
}

Test(shim_copy, clone_preserve_strides_keeps_gaps)
{
    float values[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    const int64_t sizes[] = {2, 3}, strides[] = {5, 2};
    int64_t *seen, bytes;
    AtenTensorHandle tensor = shim_wrap(values, 6, 2, sizes, strides), clone = NULL;
    cr_assert_eq(SHIM(aoti_torch_clone_preserve_strides)(tensor, &clone), 0);
    cr_assert_eq(SHIM(aoti_torch_get_strides)(clone, &seen), 0);
    cr_assert_eq(memcmp(seen, strides, sizeof strides), 0);
    cr_assert_eq(SHIM(aoti_torch_get_storage_size)(clone, &bytes), 0);
    cr_assert_eq(bytes, 40);
    cr_assert_eq(memcmp(shim_data(clone), values, 40), 0);
    shim_delete(tensor);
    shim_delete(clone);
}

Test(shim_copy, zero_touches_only_its_elements)
{
    float values[6] = {1, 1, 1, 1, 1, 1};
    const int64_t three[] = {3}, two[] = {2};
    AtenTensorHandle tensor = shim_wrap(values, 6, 1, three, two);
    cr_assert_eq(SHIM(aoti_torch_zero_)(tensor), 0);
    for (int i = 0; i < 6; i++)
        cr_assert_eq(values[i], (float)(i % 2));
    shim_delete(tensor);
}

Test(shim_copy, item_converts_or_refuses)
{
    double value = 300.7;
    const int64_t two[] = {2};
    AtenTensorHandle tensor = shim_wrap(&value, AOTICACHE_DTYPE_FLOAT64, 0, NULL, NULL);
    int64_t whole = 0;
    uint8_t byte = 0;
    float single = 0;
    uint64_t large = 0;
    bool truth = false;
    uint16_t half = 0;
    cr_assert_eq(SHIM(aoti_torch_item_int64)(tensor, &whole), 0);
    cr_assert_eq(whole, 300);
    SHIM_FAILS(SHIM(aoti_torch_item_uint8)(tensor, &byte), "does not fit");
    value = 1e300;
    SHIM_FAILS(SHIM(aoti_torch_item_float32)(tensor, &single), "does not fit");
    SHIM_FAILS(SHIM(aoti_torch_item_int64)(tensor, &whole), "does not fit");
    value = 0x1p63;
    SHIM_FAILS(SHIM(aoti_torch_item_int64)(tensor, &whole), "does not fit");
    cr_assert_eq(SHIM(aoti_torch_item_uint64)(tensor, &large), 0);
    cr_assert_eq(large, UINT64_C(1) << 63);
    value = NAN;
    SHIM_FAILS(SHIM(aoti_torch_item_int64)(tensor, &whole), "does not fit");
    cr_assert_eq(SHIM(aoti_torch_item_bool)(tensor, &truth), 0);
    cr_assert(truth);
    value = 1.5;
    cr_assert_eq(SHIM(aoti_torch_item_float16)(tensor, &half), 0);
    cr_assert_eq(half, 0x3e00);
    shim_delete(tensor);
    int64_t pair[2] = {1, 2};
    tensor = shim_wrap(pair, AOTICACHE_DTYPE_INT64, 1, two, NULL);
    SHIM_FAILS(SHIM(aoti_torch_item_int64)(tensor, &whole), "2 elements has no single value");
    shim_delete(tensor);
}

Test(shim_copy, scalars_become_tensors)
{
    AtenTensorHandle tensor = NULL;
    shim_complex128 value = {1.5, -2}, seen;
    int16_t whole = 0;
    cr_assert_eq(SHIM(aoti_torch_scalar_to_tensor_complex128)(value, &tensor), 0);
    memcpy(&seen, shim_data(tensor), sizeof seen);
    cr_assert(seen.real == 1.5 && seen.imaginary == -2);
    SHIM_FAILS(SHIM(aoti_torch_item_int16)(tensor, &whole), "does not fit");
    shim_delete(tensor);
    cr_assert_eq(SHIM(aoti_torch_scalar_to_tensor_int16)(-7, &tensor), 0);
    cr_assert_eq(SHIM(aoti_torch_item_int16)(tensor, &whole), 0);
    cr_assert_eq(whole, -7);
    shim_delete(tensor);
}
