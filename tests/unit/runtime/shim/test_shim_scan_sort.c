/*
 * Scans and orders of the shim along one dimension: exact small cases and refusals.
 */
#include <math.h>

#include "runtime/shim/operators.h"
#include "tests/unit/fixtures/shim_fixture.h"

static const int64_t two_three[] = {2, 3};

static AtenTensorHandle floats(float *values, int64_t ndim, const int64_t *sizes)
{
    return shim_wrap(values, AOTICACHE_DTYPE_FLOAT32, ndim, sizes, NULL);
}

Test(shim_scan, cumsum_adds_along_either_dimension)
{
    float values[] = {1, 2, 3, 4, 5, 6};
    const float rows[] = {1, 3, 6, 4, 9, 15}, columns[] = {1, 2, 3, 5, 7, 9};
    AtenTensorHandle tensor = floats(values, 2, two_three), sums;
    cr_assert_eq(SHIM(aoti_torch_cpu_cumsum)(tensor, -1, NULL, &sums), 0, "%s", shim_message());
    cr_assert_eq(memcmp(shim_data(sums), rows, sizeof rows), 0);
    shim_delete(sums);
    cr_assert_eq(SHIM(aoti_torch_cpu_cumsum)(tensor, 0, NULL, &sums), 0, "%s", shim_message());
    cr_assert_eq(memcmp(shim_data(sums), columns, sizeof columns), 0);
    shim_delete(sums);
    shim_delete(tensor);
}

Test(shim_scan, cumprod_of_whole_numbers_is_int64_and_wraps)
{
    int32_t values[] = {1 << 30, 1 << 30, 16};
    const int64_t three = 3;
    AtenTensorHandle tensor = shim_wrap(values, AOTICACHE_DTYPE_INT32, 1, &three, NULL), products;
    cr_assert_eq(SHIM(aoti_torch_cpu_cumprod)(tensor, 0, NULL, &products), 0, "%s", shim_message());
    const int64_t *seen = shim_data(products);
    cr_assert_eq(seen[1], INT64_C(1) << 60);
    cr_assert_eq(seen[2], 0);
    shim_delete(products);
    shim_delete(tensor);
}

Test(shim_scan, cummax_names_the_last_of_equals_and_stays_at_nan)
{
    float values[] = {1, 3, 3, 2, NAN, 9};
    const int64_t six = 6, places[] = {0, 1, 2, 2, 4, 4};
    AtenTensorHandle tensor = floats(values, 1, &six), largest, where;
    cr_assert_eq(SHIM(aoti_torch_cpu_cummax)(tensor, 0, &largest, &where), 0, "%s", shim_message());
    cr_assert_eq(memcmp(shim_data(where), places, sizeof places), 0);
    cr_assert(isnan(((float *)shim_data(largest))[5]));
    shim_delete(largest);
    shim_delete(where);
    shim_delete(tensor);
}

Test(shim_scan, dimension_outside_is_refused)
{
    float values[6] = {0};
    AtenTensorHandle tensor = floats(values, 2, two_three), sums = NULL;
    SHIM_FAILS(SHIM(aoti_torch_cpu_cumsum)(tensor, 2, NULL, &sums), "dimension 2 of a tensor with 2");
    SHIM_FAILS(SHIM(aoti_torch_cpu_cumsum)(NULL, 0, NULL, &sums), "the tensor is NULL");
    SHIM_FAILS(SHIM(aoti_torch_cpu_cumsum)(tensor, 0, NULL, NULL), "is NULL");
    cr_assert_null(sums);
    shim_delete(tensor);
}

Test(shim_sort, equal_elements_keep_their_order_both_ways)
{
    float values[] = {2, 1, 2, NAN, 1};
    const int64_t five = 5, up[] = {1, 4, 0, 2, 3}, down[] = {3, 0, 2, 1, 4};
    AtenTensorHandle tensor = floats(values, 1, &five), sorted, places;
    int32_t stable = 1;
    cr_assert_eq(SHIM(aoti_torch_cpu_sort_stable)(tensor, &stable, 0, 0, &sorted, &places), 0, "%s", shim_message());
    cr_assert_eq(memcmp(shim_data(places), up, sizeof up), 0);
    shim_delete(sorted);
    shim_delete(places);
    cr_assert_eq(SHIM(aoti_torch_cpu_sort_stable)(tensor, &stable, 0, 1, &sorted, &places), 0, "%s", shim_message());
    cr_assert_eq(memcmp(shim_data(places), down, sizeof down), 0);
    shim_delete(sorted);
    shim_delete(places);
    shim_delete(tensor);
}

Test(shim_sort, empty_lanes_are_sorted_to_nothing)
{
    const int64_t sizes[] = {0, 3}, strides[] = {3, 1};
    AtenTensorHandle tensor = shim_empty(AOTICACHE_DTYPE_FLOAT32, 2, sizes, strides), sorted, places;
    cr_assert_eq(SHIM(aoti_torch_cpu_sort)(tensor, 0, 0, &sorted, &places), 0, "%s", shim_message());
    shim_delete(sorted);
    shim_delete(places);
    SHIM_FAILS(SHIM(aoti_torch_cpu_median)(tensor, &sorted), "the median of an empty tensor");
    SHIM_FAILS(SHIM(aoti_torch_cpu_kthvalue)(tensor, 1, 0, 0, &sorted, &places), "element 1 of 0");
    shim_delete(tensor);
}

Test(shim_sort, topk_and_mode_and_median)
{
    int64_t values[] = {5, 1, 5, 1, 7}, *seen;
    const int64_t five = 5;
    AtenTensorHandle tensor = shim_wrap(values, AOTICACHE_DTYPE_INT64, 1, &five, NULL), picked, places;
    cr_assert_eq(SHIM(aoti_torch_cpu_topk)(tensor, 2, 0, 1, 1, &picked, &places), 0, "%s", shim_message());
    seen = shim_data(picked);
    cr_assert(seen[0] == 7 && seen[1] == 5);
    shim_delete(picked);
    shim_delete(places);
    cr_assert_eq(SHIM(aoti_torch_cpu_mode)(tensor, 0, 0, &picked, &places), 0, "%s", shim_message());
    cr_assert_eq(*(int64_t *)shim_data(picked), 1);
    cr_assert_eq(*(int64_t *)shim_data(places), 3);
    shim_delete(picked);
    shim_delete(places);
    cr_assert_eq(SHIM(aoti_torch_cpu_median)(tensor, &picked), 0, "%s", shim_message());
    cr_assert_eq(*(int64_t *)shim_data(picked), 5);
    shim_delete(picked);
    SHIM_FAILS(SHIM(aoti_torch_cpu_topk)(tensor, 6, 0, 1, 1, &picked, &places), "the first 6 of 5");
    shim_delete(tensor);
}
