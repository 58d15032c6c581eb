/*
 * The human-readable line that describes a request.
 */
#include "cache/request/request.h"
#include "cache/request/text.h"
#include "tests/unit/fixtures/locale_fixture.h"

#include <criterion/criterion.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const aoticache_device cpu = {AOTICACHE_DEVICE_TYPE_CPU, -1};

static aoticache_request *make(const char *op)
{
    aoticache_request *request = NULL;
    cr_assert_eq(aoticache_request_create(op, cpu, &request, NULL), AOTICACHE_OK);
    return request;
}

static void add_tensor(aoticache_request *request, int32_t dtype, uint32_t ndim, const int64_t *sizes,
                       const int64_t *strides)
{
    aoticache_tensor_metadata metadata = {
        .dtype = dtype, .device = cpu, .ndim = ndim, .sizes = sizes, .strides = strides};
    cr_assert_eq(aoticache_request_add_tensor(request, NULL, &metadata, NULL), AOTICACHE_OK);
}

static void expect(aoticache_request *request, const char *expected)
{
    char text[1024];
    size_t length = aoticache_request_format(request, text, sizeof text);
    cr_expect_str_eq(text, expected);
    cr_expect_eq(length, strlen(expected));
    aoticache_request_free(request);
}

Test(request_format, plain_call_looks_as_in_the_header)
{
    aoticache_request *request = make("aten::add.Tensor");
    const int64_t sizes[2] = {2, 3};
    add_tensor(request, AOTICACHE_DTYPE_FLOAT32, 2, sizes, NULL);
    add_tensor(request, AOTICACHE_DTYPE_FLOAT32, 2, sizes, NULL);
    cr_assert_eq(aoticache_request_add_int(request, "alpha", 1, NULL), AOTICACHE_OK);
    expect(request, "aten::add.Tensor(float32[2, 3], float32[2, 3], alpha=1) on cpu");
    expect(make("test::nothing"), "test::nothing() on cpu");
}

Test(request_format, tensors_show_what_is_unusual)
{
    aoticache_request *request = make("test::tensors");
    const int64_t sizes[2] = {2, 3}, transposed[2] = {1, 2}, contiguous[2] = {3, 1};
    const aoticache_digest digest = {{0x1a, 0x2b, 0x3c, 0x4d, 0x5e}};
    aoticache_tensor_metadata metadata = {.dtype = AOTICACHE_DTYPE_BFLOAT16,
                                          .device = {AOTICACHE_DEVICE_TYPE_CUDA, 1},
                                          .ndim = 2,
                                          .sizes = sizes,
                                          .strides = transposed,
                                          .requires_grad = true};
    add_tensor(request, AOTICACHE_DTYPE_INT64, 0, NULL, NULL);
    add_tensor(request, AOTICACHE_DTYPE_BOOL, 2, sizes, contiguous);
    add_tensor(request, AOTICACHE_DTYPE_FLOAT32, 2, sizes, transposed);
    cr_assert_eq(aoticache_request_add_constant(request, "w", &metadata, NULL, &digest, NULL), AOTICACHE_OK);
    metadata = (aoticache_tensor_metadata){.dtype = AOTICACHE_DTYPE_FLOAT16,
                                           .layout = AOTICACHE_LAYOUT_SPARSE_CSR,
                                           .device = cpu,
                                           .ndim = 1,
                                           .sizes = sizes};
    cr_assert_eq(aoticache_request_add_tensor(request, "s", &metadata, NULL), AOTICACHE_OK);
    expect(request, "test::tensors(int64[], bool[2, 3], float32[2, 3]{1, 2}, w=const bfloat16[2, 3]{1, 2}#1a2b3c4d"
                    "@cuda:1 requires_grad, s=float16[2] sparse_csr) on cpu");
}

Test(request_format, doubles_are_short_and_not_ints)
{
    static const double values[] = {1,    -1,  0.1,     0.1 + 0.2,           1e22, 1e300, 5e-324,
                                    -0.0, 100, 1.0 / 3, 123456789012345678.0};
    aoticache_request *request = make("test::doubles");
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        cr_assert_eq(aoticache_request_add_double(request, NULL, values[i], NULL), AOTICACHE_OK);
    aoticache_request_add_double(request, NULL, (double)INFINITY, NULL);
    aoticache_request_add_double(request, NULL, (double)-INFINITY, NULL);
    aoticache_request_add_double(request, NULL, (double)NAN, NULL);
    expect(request, "test::doubles(1.0, -1.0, 0.1, 0.30000000000000004, 1e+22, 1e+300, 4.94065645841247e-324, -0.0, "
                    "100.0, 0.3333333333333333, 1.2345678901234568e+17, inf, -inf, nan) on cpu");
}

Test(request_format, complex_numbers_have_both_parts)
{
    aoticache_request *request = make("test::complex");
    aoticache_request_add_complex(request, NULL, 1, 2.5, NULL);
    aoticache_request_add_complex(request, NULL, -1, -2, NULL);
    aoticache_request_add_complex(request, NULL, 0, (double)NAN, NULL);
    aoticache_request_add_complex(request, NULL, 0, (double)-INFINITY, NULL);
    expect(request, "test::complex(1.0+2.5j, -1.0-2.0j, 0.0+nanj, 0.0-infj) on cpu");
}

Test(request_format, doubles_have_a_point_in_every_locale)
{
    if (!use_decimal_comma())
        cr_skip_test("no locale with a decimal comma is installed, and none can be made: install the package locales");
    cr_assert_str_eq(localeconv()->decimal_point, ",");
    aoticache_request *request = make("test::doubles");
    aoticache_request_add_double(request, NULL, 1234.5, NULL);
    aoticache_request_add_double(request, NULL, -1.5e-20, NULL);
    expect(request, "test::doubles(1234.5, -1.5e-20) on cpu");
}

Test(request_format, strings_are_quoted_and_stay_on_the_line)
{
    aoticache_request *request = make("test::strings");
    aoticache_request_add_string(request, NULL, "", NULL);
    aoticache_request_add_string(request, NULL, "a\"b\\c\n\t\x1b[31m\x7f", NULL);
    aoticache_request_add_string(request, NULL, "na\xc3\xafve \xc2\x9b \xe2\x80\xa8 \xe2\x82\xac", NULL);
    expect(request, "test::strings(\"\", \"a\\\"b\\\\c\\n\\t\\x1b[31m\\x7f\", \"na\xc3\xafve \\u009b \\u2028 "
                    "\xe2\x82\xac\") on cpu");
}

Test(request_format, everything_else_is_by_name)
{
    aoticache_request *request = make("test::names");
    aoticache_request_add_none(request, NULL, NULL);
    aoticache_request_add_bool(request, NULL, true, NULL);
    aoticache_request_begin_list(request, NULL, NULL);
    aoticache_request_add_int(request, NULL, -4, NULL);
    aoticache_request_add_bool(request, NULL, false, NULL);
    aoticache_request_end_list(request, NULL);
    aoticache_request_begin_list(request, "empty", NULL);
    aoticache_request_end_list(request, NULL);
    aoticache_request_add_dtype(request, "dtype", AOTICACHE_DTYPE_FLOAT64, NULL);
    aoticache_request_add_layout(request, "layout", AOTICACHE_LAYOUT_STRIDED, NULL);
    aoticache_request_add_memory_format(request, "memory_format", AOTICACHE_MEMORY_FORMAT_PRESERVE, NULL);
    aoticache_request_add_device(request, "device", (aoticache_device){AOTICACHE_DEVICE_TYPE_CUDA, 0}, NULL);
    expect(request, "test::names(none, true, [-4, false], empty=[], dtype=float64, layout=strided, "
                    "memory_format=preserve_format, device=cuda:0) on cpu");
}

Test(request_format, cuts_off_as_snprintf_does)
{
    aoticache_request *request = make("aten::abs");
    char text[8] = "1234567";
    cr_expect_eq(aoticache_request_format(request, NULL, 0), strlen("aten::abs() on cpu"));
    cr_expect_eq(aoticache_request_format(request, text, 1), strlen("aten::abs() on cpu"));
    cr_expect_str_eq(text, "");
    cr_expect_eq(text[1], '2');
    cr_expect_eq(aoticache_request_format(request, text, sizeof text), strlen("aten::abs() on cpu"));
    cr_expect_str_eq(text, "aten::a");
    aoticache_request_free(request);
}
