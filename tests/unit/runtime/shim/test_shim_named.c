/*
 * Operators called by name, with results computed by hand, and related functions; tests/python/shim/test_shim_named.py
 * compares with PyTorch.
 */
#include <math.h>

#include "runtime/named_operators.h"
#include "runtime/shim/operators.h"
#include "tests/unit/fixtures/shim_fixture.h"

enum { FLOAT = AOTICACHE_DTYPE_FLOAT32, DOUBLE = AOTICACHE_DTYPE_FLOAT64, COMPLEX = AOTICACHE_DTYPE_COMPLEX64 };

static AOTITorchError call(const char *name, const aoticache_named_argument *arguments, AtenTensorHandle *ret_results)
{
    aoticache_named_operators_fn list;
    void (*found)(void) = shim_find(AOTICACHE_NAMED_OPERATORS_SYMBOL);
    memcpy(&list, &found, sizeof list);
    for (const aoticache_named_operator *at = list(); at->schema != NULL; at++)
        if (strncmp(at->schema, name, strlen(name)) == 0 && at->schema[strlen(name)] == '(')
            return at->call(arguments, ret_results);
    cr_assert_fail("the shim has no %s", name);
    return 1;
}

static aoticache_named_argument tensor_argument(AtenTensorHandle tensor)
{
    return (aoticache_named_argument){.is_given = true, .tensor = tensor};
}

/* Compares a result and deletes it. */
static void check_floats(AtenTensorHandle result, const float *wanted, int count)
{
    const float *seen = shim_data(result);
    for (int i = 0; i < count; i++)
        cr_assert(fabsf(seen[i] - wanted[i]) < 1e-6f, "number %d is %g, not %g", i, (double)seen[i], (double)wanted[i]);
    shim_delete(result);
}

Test(shim_named, a_triangle_halves_an_image)
{
    float pixels[] = {0, 1, 2, 3};
    const int64_t sizes[] = {1, 1, 1, 4}, halves[] = {1, 2}, nothing[] = {0, 2};
    AtenTensorHandle image = shim_wrap(pixels, FLOAT, 4, sizes, NULL), result = NULL;
    aoticache_named_argument arguments[5] = {tensor_argument(image),
                                             {.is_given = true, .integers = halves, .count = 2}};
    cr_assert_eq(call("aten::_upsample_bilinear2d_aa", arguments, &result), 0, "%s", shim_message());
    /* weights 3, 3, 1 of pixels 0, 1, 2, and the same from the other end */
    check_floats(result, (const float[]){5.0f / 7, 16.0f / 7}, 2);
    arguments[1].integers = nothing;
    SHIM_FAILS(call("aten::_upsample_bilinear2d_aa", arguments, &result), "to 0 x 2");
    shim_delete(image);
}

Test(shim_named, a_scale_may_be_anything)
{
    float pixels[] = {0, 1, 2, 3};
    const int64_t sizes[] = {1, 1, 1, 4}, wanted[] = {3, 3};
    const double scales[] = {1e-320, 1e-300, 1e-9, 1e300, HUGE_VAL, NAN, -1, 0};
    AtenTensorHandle image = shim_wrap(pixels, FLOAT, 4, sizes, NULL), result = NULL;
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        const aoticache_named_argument scale = {.is_given = true, .number = scales[i]};
        const aoticache_named_argument arguments[] = {tensor_argument(image),
                                                      {.is_given = true, .integers = wanted, .count = 2},
                                                      {.is_given = true},
                                                      scale,
                                                      scale};
        cr_assert_eq(call("aten::_upsample_lanczos2d_aa", arguments, &result), 0, "%s", shim_message());
        shim_delete(result);
    }
    shim_delete(image);
}

Test(shim_named, medians_with_and_without_nan)
{
    float values[] = {3, NAN, 1, 2};
    const int64_t four = 4;
    AtenTensorHandle tensor = shim_wrap(values, FLOAT, 1, &four, NULL), results[2];
    const aoticache_named_argument arguments[3] = {tensor_argument(tensor)};
    cr_assert_eq(call("aten::nanmedian.dim", arguments, results), 0, "%s", shim_message());
    cr_assert_eq(*(int64_t *)shim_data(results[1]), 3);
    check_floats(results[0], (const float[]){2}, 1);
    shim_delete(results[1]);
    cr_assert_eq(call("aten::median.dim", arguments, results), 0, "%s", shim_message());
    cr_assert(isnan(*(float *)shim_data(results[0])) && *(int64_t *)shim_data(results[1]) == 1);
    shim_delete(results[0]);
    shim_delete(results[1]);
    shim_delete(tensor);
}

Test(shim_named, points_are_counted_between_edges)
{
    float points[] = {0, 0, 1, 1, 0.2f, 0.9f};
    const int64_t sizes[] = {3, 2}, bins[] = {2, 1};
    const double range[] = {0, 1, 0, 1}, *place = range;
    AtenTensorHandle tensor = shim_wrap(points, FLOAT, 2, sizes, NULL), edges[AOTICACHE_NAMED_MAX_RESULTS] = {NULL};
    aoticache_named_argument arguments[5] = {tensor_argument(tensor),
                                             {.is_given = true, .integers = bins, .count = 2},
                                             {.is_given = true, .numbers = range, .count = 4}};
    cr_assert_eq(call("aten::_histogramdd_bin_edges", arguments, edges), 0, "%s", shim_message());
    cr_assert_null(edges[2]);
    check_floats(edges[0], (const float[]){0, 0.5f, 1}, 3);
    check_floats(edges[1], (const float[]){0, 1}, 2);
    cr_assert_eq(SHIM(aoti_torch_cpu__histogramdd_from_bin_cts)(tensor, bins, 2, &place, 4, NULL, 0, &edges[0]), 0,
                 "%s", shim_message());
    check_floats(edges[0], (const float[]){2, 1}, 2);
    arguments[2].count = 3;
    SHIM_FAILS(call("aten::_histogramdd_bin_edges", arguments, edges), "a range of 3 numbers for 2 dimensions");
    shim_delete(tensor);
}

Test(shim_named, complex_numbers_are_divided_and_added)
{
    float a[] = {1, 1, 0, 2}, b[] = {0, 1, 0, 0};
    const int64_t two = 2;
    AtenTensorHandle x = shim_wrap(a, COMPLEX, 1, &two, NULL), y = shim_wrap(b, COMPLEX, 1, &two, NULL), result = NULL;
    AtenTensorHandle real = shim_wrap(b, FLOAT, 1, &two, NULL);
    aoticache_named_argument arguments[] = {tensor_argument(x), tensor_argument(y)};
    cr_assert_eq(call("aten::div.Tensor", arguments, &result), 0, "%s", shim_message());
    const float *seen = shim_data(result);
    cr_assert(seen[0] == 1 && seen[1] == -1 && isnan(seen[2]) && isinf(seen[3]));
    shim_delete(result);
    cr_assert_eq(SHIM(aoti_torch_cpu_add_Tensor)(x, real, 3, &result), 0, "%s", shim_message());
    check_floats(result, (const float[]){1, 1, 3, 2}, 4);
    arguments[0] = tensor_argument(real);
    SHIM_FAILS(call("aten::exp", arguments, &result), "are supported, not float32");
    shim_delete(real);
    shim_delete(y);
    shim_delete(x);
}

Test(shim_named, the_exponential_of_a_shear)
{
    double values[] = {0, 70, 0, 0};
    const int64_t sizes[] = {2, 2};
    AtenTensorHandle matrix = shim_wrap(values, DOUBLE, 2, sizes, NULL), result = NULL;
    const aoticache_named_argument argument = tensor_argument(matrix);
    cr_assert_eq(call("aten::linalg_matrix_exp", &argument, &result), 0, "%s", shim_message());
    const double *seen = shim_data(result);
    cr_assert(seen[0] == 1 && fabs(seen[1] - 70) < 1e-12 && seen[2] == 0 && seen[3] == 1);
    shim_delete(result);
    shim_delete(matrix);
}

Test(shim_named, three_tensors_are_multiplied)
{
    float a[] = {1, 2}, w[] = {1, 0, 0, 1, 1, 1, 1, 1}, b[] = {3, 4};
    const int64_t row[] = {1, 2}, weights[] = {2, 2, 2}, first[] = {1, 3}, second[] = {0}, third[] = {1, 2},
                  summed[] = {2, 3};
    AtenTensorHandle x = shim_wrap(a, FLOAT, 2, row, NULL), y = shim_wrap(b, FLOAT, 2, row, NULL), result = NULL;
    AtenTensorHandle weight = shim_wrap(w, FLOAT, 3, weights, NULL);
    cr_assert_eq(SHIM(aoti_torch_cpu__trilinear)(x, weight, y, first, 2, second, 1, third, 2, summed, 2, 1, &result), 0,
                 "%s", shim_message());
    check_floats(result, (const float[]){1 * 3 + 2 * 4, (1 + 2) * (3 + 4)}, 2);
    SHIM_FAILS(SHIM(aoti_torch_cpu__trilinear)(x, weight, y, first, 2, second, 1, third, 2, summed, 2, 9, &result),
               "of which 9");
    shim_delete(weight);
    shim_delete(y);
    shim_delete(x);
}
