/*
 * Operators whose result's size depends on values, searches, and views.
 */
#include "runtime/shim/operators.h"
#include "tests/unit/fixtures/shim_fixture.h"

static const int64_t two_three[] = {2, 3}, two = 2, four = 4;

Test(shim_select, nonzero_lists_places_by_columns)
{
    float values[] = {0, 1, 0, 2, 0, 3};
    const int64_t wanted[] = {0, 1, 1, 1, 0, 2}; /* rows, then columns */
    AtenTensorHandle tensor = shim_wrap(values, AOTICACHE_DTYPE_FLOAT32, 2, two_three, NULL), places;
    int64_t size = 0, stride = 0;
    cr_assert_eq(SHIM(aoti_torch_cpu_nonzero)(tensor, &places), 0, "%s", shim_message());
    cr_assert_eq(SHIM(aoti_torch_get_size)(places, 0, &size), 0);
    cr_assert_eq(SHIM(aoti_torch_get_stride)(places, 1, &stride), 0);
    cr_assert(size == 3 && stride == 3);
    cr_assert_eq(memcmp(shim_data(places), wanted, sizeof wanted), 0);
    shim_delete(places);
    SHIM_FAILS(SHIM(aoti_torch_cpu_nonzero_static)(tensor, -1, 0, &places), "invalid size -1");
    shim_delete(tensor);
}

Test(shim_select, masked_scatter_needs_enough_to_give)
{
    float values[4] = {0}, given[] = {5, 6};
    bool set[] = {false, true, true, false};
    AtenTensorHandle tensor = shim_wrap(values, AOTICACHE_DTYPE_FLOAT32, 1, &four, NULL), result;
    AtenTensorHandle mask = shim_wrap(set, AOTICACHE_DTYPE_BOOL, 1, &four, NULL);
    AtenTensorHandle source = shim_wrap(given, AOTICACHE_DTYPE_FLOAT32, 1, &two, NULL);
    cr_assert_eq(SHIM(aoti_torch_cpu_masked_scatter)(tensor, mask, source, &result), 0, "%s", shim_message());
    const float *seen = shim_data(result);
    cr_assert(seen[0] == 0 && seen[1] == 5 && seen[2] == 6 && seen[3] == 0);
    shim_delete(result);
    set[3] = true;
    SHIM_FAILS(SHIM(aoti_torch_cpu_masked_scatter)(tensor, mask, source, &result),
               "selects 3 elements, but the source has");
    shim_delete(tensor);
    shim_delete(mask);
    shim_delete(source);
}

Test(shim_search, sides_differ_at_equal_boundaries)
{
    float bounds[] = {1, 2, 2, 3}, values[] = {2, 4};
    AtenTensorHandle sorted = shim_wrap(bounds, AOTICACHE_DTYPE_FLOAT32, 1, &four, NULL), places;
    AtenTensorHandle value = shim_wrap(values, AOTICACHE_DTYPE_FLOAT32, 1, &two, NULL);
    const char *left = "left", *right = "right", *wrong = "up";
    cr_assert_eq(SHIM(aoti_torch_cpu_searchsorted_Tensor)(sorted, value, 0, 0, &left, NULL, &places), 0, "%s",
                 shim_message());
    cr_assert(((int64_t *)shim_data(places))[0] == 1 && ((int64_t *)shim_data(places))[1] == 4);
    shim_delete(places);
    cr_assert_eq(SHIM(aoti_torch_cpu_searchsorted_Tensor)(sorted, value, 1, 0, &right, NULL, &places), 0, "%s",
                 shim_message());
    cr_assert_eq(((int32_t *)shim_data(places))[0], 3);
    shim_delete(places);
    SHIM_FAILS(SHIM(aoti_torch_cpu_searchsorted_Tensor)(sorted, value, 0, 1, &left, NULL, &places), "but side is left");
    SHIM_FAILS(SHIM(aoti_torch_cpu_searchsorted_Tensor)(sorted, value, 0, 0, &wrong, NULL, &places), "side 'up'");
    shim_delete(sorted);
    shim_delete(value);
}

Test(shim_search, histc_refuses_bins_that_cannot_be)
{
    float values[] = {0, 1, 1, 5};
    AtenTensorHandle tensor = shim_wrap(values, AOTICACHE_DTYPE_FLOAT32, 1, &four, NULL), counts;
    cr_assert_eq(SHIM(aoti_torch_cpu_histc)(tensor, 2, 0, 2, &counts), 0, "%s", shim_message());
    cr_assert(((float *)shim_data(counts))[0] == 1 && ((float *)shim_data(counts))[1] == 2);
    shim_delete(counts);
    SHIM_FAILS(SHIM(aoti_torch_cpu_histc)(tensor, 0, 0, 2, &counts), "0 bins");
    SHIM_FAILS(SHIM(aoti_torch_cpu_histc)(tensor, 2, 3, 2, &counts), "bins from 3 to 2");
    SHIM_FAILS(SHIM(aoti_torch_cpu_histc)(tensor, INT64_MAX, 0, 2, &counts), "bytes");
    shim_delete(tensor);
}

Test(shim_views, share_memory)
{
    float values[] = {1, 2, 3, 4, 5, 6};
    const int64_t turned[] = {1, 0}, flat[] = {-1}, odd[] = {4, -1};
    AtenTensorHandle tensor = shim_wrap(values, AOTICACHE_DTYPE_FLOAT32, 2, two_three, NULL), view;
    cr_assert_eq(SHIM(aoti_torch_cpu_permute)(tensor, turned, 2, &view), 0, "%s", shim_message());
    cr_assert_eq(shim_data(view), (void *)values);
    shim_delete(view);
    cr_assert_eq(SHIM(aoti_torch_cpu_narrow)(tensor, 1, -2, 2, &view), 0, "%s", shim_message());
    cr_assert_eq(shim_data(view), (void *)(values + 1));
    shim_delete(view);
    cr_assert_eq(SHIM(aoti_torch_cpu_reshape)(tensor, flat, 1, &view), 0, "%s", shim_message());
    cr_assert_eq(shim_data(view), (void *)values);
    shim_delete(view);
    SHIM_FAILS(SHIM(aoti_torch_cpu_reshape)(tensor, odd, 2, &view), "6 elements cannot be split into 4");
    SHIM_FAILS(SHIM(aoti_torch_cpu_narrow)(tensor, 1, 2, 2, &view), "2 elements from 2 on, but dimension 1 has 3");
    SHIM_FAILS(SHIM(aoti_torch_cpu_slice_Tensor)(tensor, 0, NULL, NULL, 0, &view), "the step is 0");
    SHIM_FAILS(SHIM(aoti_torch_cpu_view_as_complex)(tensor, &view), "size 2 and stride 1");
    shim_delete(tensor);
}

Test(shim_views, resize_keeps_what_was_there)
{
    const int64_t large[] = {2, 2, 2, 2, 1, 1, 1, 1, 1, 2}, stride = 1;
    AtenTensorHandle tensor = shim_empty(AOTICACHE_DTYPE_INT64, 1, &two, &stride), other;
    int64_t *data = shim_data(tensor), numel = 0;
    data[0] = 7;
    data[1] = 8;
    cr_assert_eq(SHIM(aoti_torch_new_tensor_handle)(tensor, &other), 0);
    cr_assert_eq(SHIM(aoti_torch_cpu_resize_)(tensor, large, 10, NULL), 0, "%s", shim_message());
    data = shim_data(tensor);
    cr_assert(data[0] == 7 && data[1] == 8);
    cr_assert_eq(SHIM(aoti_torch_get_numel)(other, &numel), 0, "both handles are of one tensor");
    cr_assert_eq(numel, 32);
    cr_assert_eq(SHIM(aoti_torch_cpu_resize_)(tensor, &two, 1, NULL), 0, "%s", shim_message());
    cr_assert_eq(((int64_t *)shim_data(tensor))[1], 8);
    SHIM_FAILS(SHIM(aoti_torch_cpu_resize_)(tensor, large, -1, NULL), "-1 dimensions");
    shim_delete(tensor);
    shim_delete(other);
}
