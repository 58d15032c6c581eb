/*
 * Tensors of the shim: handles, sharing, views, queries, refusals.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

#include "runtime/shim/tensors/free_lists.h"
#include "tests/unit/fixtures/shim_fixture.h"

static const int64_t two_three[] = {2, 3}, three_one[] = {3, 1};

Test(shim_tensor, empty_strided_describes_itself)
{
    const int64_t sizes[] = {2, 3, 4}, strides[] = {12, 1, 3};
    AtenTensorHandle tensor = shim_empty(AOTICACHE_DTYPE_FLOAT64, 3, sizes, strides);
    int64_t value, *values;
    int32_t number;
    bool flag;
    cr_assert_eq(SHIM(aoti_torch_get_dim)(tensor, &value), 0);
    cr_assert_eq(value, 3);
    cr_assert_eq(SHIM(aoti_torch_get_numel)(tensor, &value), 0);
    cr_assert_eq(value, 24);
    cr_assert_eq(SHIM(aoti_torch_get_storage_size)(tensor, &value), 0);
    cr_assert_eq(value, 24 * 8);
    cr_assert_eq(SHIM(aoti_torch_get_storage_numel)(tensor, &value), 0);
    cr_assert_eq(value, 24);
    cr_assert_eq(SHIM(aoti_torch_get_storage_offset)(tensor, &value), 0);
    cr_assert_eq(value, 0);
    cr_assert_eq(SHIM(aoti_torch_get_sizes)(tensor, &values), 0);
    cr_assert_eq(memcmp(values, sizes, sizeof sizes), 0);
    cr_assert_eq(SHIM(aoti_torch_get_strides)(tensor, &values), 0);
    cr_assert_eq(memcmp(values, strides, sizeof strides), 0);
    cr_assert_eq(SHIM(aoti_torch_get_size)(tensor, -1, &value), 0);
    cr_assert_eq(value, 4);
    cr_assert_eq(SHIM(aoti_torch_get_stride)(tensor, 2, &value), 0);
    cr_assert_eq(value, 3);
    cr_assert_eq(SHIM(aoti_torch_get_dtype)(tensor, &number), 0);
    cr_assert_eq(number, AOTICACHE_DTYPE_FLOAT64);
    cr_assert_eq(SHIM(aoti_torch_get_device_type)(tensor, &number), 0);
    cr_assert_eq(number, 0);
    cr_assert_eq(SHIM(aoti_torch_get_device_index)(tensor, &number), 0);
    cr_assert_eq(number, -1);
    cr_assert_eq(SHIM(aoti_torch_get_layout)(tensor, &number), 0);
    cr_assert_eq(number, 0);
    cr_assert_eq(SHIM(aoti_torch_is_contiguous)(tensor, &flag), 0);
    cr_assert_not(flag);
    cr_assert_eq((uintptr_t)shim_data(tensor) % 64, 0, "data is 64-byte aligned");
    SHIM_FAILS(SHIM(aoti_torch_get_size)(tensor, 3, &value), "dimension 3 of a tensor with 3");
    SHIM_FAILS(SHIM(aoti_torch_get_stride)(tensor, -4, &value), "dimension -4 of a tensor with 3");
    shim_delete(tensor);
}

Test(shim_tensor, more_than_inline_dimensions_are_kept)
{
    int64_t sizes[12], strides[12], *values;
    for (int d = 0; d < 12; d++) {
        sizes[d] = 1 + d % 2;
        strides[d] = 100 - d;
    }
    AtenTensorHandle tensor = shim_empty(AOTICACHE_DTYPE_INT8, 12, sizes, strides);
    cr_assert_eq(SHIM(aoti_torch_get_sizes)(tensor, &values), 0);
    cr_assert_eq(memcmp(values, sizes, sizeof sizes), 0);
    cr_assert_eq(SHIM(aoti_torch_get_strides)(tensor, &values), 0);
    cr_assert_eq(memcmp(values, strides, sizeof strides), 0);
    shim_delete(tensor);
}

Test(shim_tensor, no_dimensions_is_one_element)
{
    AtenTensorHandle tensor = shim_empty(AOTICACHE_DTYPE_FLOAT32, 0, NULL, NULL);
    int64_t numel, *sizes;
    cr_assert_eq(SHIM(aoti_torch_get_numel)(tensor, &numel), 0);
    cr_assert_eq(numel, 1);
    cr_assert_eq(SHIM(aoti_torch_get_sizes)(tensor, &sizes), 0);
    cr_assert_not_null(sizes);
    shim_delete(tensor);
}

Test(shim_tensor, no_elements_has_no_data)
{
    const int64_t sizes[] = {4, 0, 3}, strides[] = {0, 3, 1};
    AtenTensorHandle tensor = shim_empty(AOTICACHE_DTYPE_FLOAT32, 3, sizes, strides);
    int64_t bytes;
    bool contiguous;
    cr_assert_null(shim_data(tensor));
    cr_assert_eq(SHIM(aoti_torch_get_storage_size)(tensor, &bytes), 0);
    cr_assert_eq(bytes, 0);
    cr_assert_eq(SHIM(aoti_torch_is_contiguous)(tensor, &contiguous), 0);
    cr_assert(contiguous);
    shim_delete(tensor);
}

Test(shim_tensor, bad_shapes_are_refused)
{
    const int64_t negative[] = {2, -3}, huge[] = {INT64_MAX / 2, 4}, large[] = {INT64_MAX / 4, 1}, ones[] = {1, 1};
    AtenTensorHandle tensor = NULL;
    __typeof__(&aoti_torch_empty_strided) empty = SHIM(aoti_torch_empty_strided);
    SHIM_FAILS(empty(2, negative, three_one, 6, 0, 0, &tensor), "size -3 of dimension 1 is negative");
    SHIM_FAILS(empty(2, two_three, negative, 6, 0, 0, &tensor), "stride -3 of dimension 1 is negative");
    SHIM_FAILS(empty(2, huge, ones, 6, 0, 0, &tensor), "the number of bytes does not fit into 64 bits");
    SHIM_FAILS(empty(2, large, ones, 7, 0, 0, &tensor), "the number of bytes does not fit into 64 bits");
    SHIM_FAILS(empty(-1, NULL, NULL, 6, 0, 0, &tensor), "-1 dimensions");
    SHIM_FAILS(empty(65, two_three, three_one, 6, 0, 0, &tensor), "65 dimensions; 0 to 64");
    SHIM_FAILS(empty(2, NULL, three_one, 6, 0, 0, &tensor), "sizes is NULL");
    SHIM_FAILS(empty(2, two_three, three_one, 99, 0, 0, &tensor), "unknown dtype 99");
    SHIM_FAILS(empty(2, two_three, three_one, 12, 0, 0, &tensor), "unknown dtype 12");
    SHIM_FAILS(empty(2, two_three, three_one, 6, 1, 0, &tensor), "device type 1 (cuda)");
    SHIM_FAILS(empty(2, two_three, three_one, 6, 0, 0, NULL), "is NULL");
    cr_assert_null(tensor, "a refusal writes nothing");
}

Test(shim_tensor, memory_that_cannot_be_had_is_an_error)
{
    const int64_t sizes[] = {INT64_C(1) << 50}, strides[] = {1};
    AtenTensorHandle tensor = NULL;
    /* AddressSanitizer ends the process on such a request unless configured otherwise. */
    const char *options = getenv("ASAN_OPTIONS");
#if defined(__SANITIZE_ADDRESS__)
    if (options == NULL || strstr(options, "allocator_may_return_null=1") == NULL)
        cr_skip_test("address sanitizer without allocator_may_return_null=1");
#endif
    (void)options;
    SHIM_FAILS(SHIM(aoti_torch_empty_strided)(1, sizes, strides, 6, 0, 0, &tensor), "out of memory");
    cr_assert_null(tensor);
}

Test(shim_tensor, handles_of_undefined_and_null_are_refused)
{
    AtenTensorHandle undefined = NULL, other = NULL;
    int64_t value;
    bool defined = true;
    cr_assert_eq(SHIM(aoti_torch_new_uninitialized_tensor)(&undefined), 0);
    cr_assert_eq(SHIM(aoti_torch_is_defined)(undefined, &defined), 0);
    cr_assert_not(defined);
    SHIM_FAILS(SHIM(aoti_torch_get_dim)(undefined, &value), "undefined");
    SHIM_FAILS(SHIM(aoti_torch_get_dim)(NULL, &value), "NULL");
    SHIM_FAILS(SHIM(aoti_torch_clone)(undefined, &other), "undefined");
    SHIM_FAILS(SHIM(aoti_torch_new_tensor_handle)(NULL, &other), "NULL");
    cr_assert_eq(SHIM(aoti_torch_new_tensor_handle)(undefined, &other), 0);
    shim_delete(other);
    shim_delete(undefined);
    shim_delete(NULL);
}

Test(shim_tensor, assign_tensors_makes_an_alias)
{
    AtenTensorHandle source = shim_empty(AOTICACHE_DTYPE_FLOAT32, 2, two_three, three_one);
    AtenTensorHandle target = NULL, second = NULL;
    cr_assert_eq(SHIM(aoti_torch_new_uninitialized_tensor)(&target), 0);
    cr_assert_eq(SHIM(aoti_torch_assign_tensors)(source, target), 0);
    cr_assert_eq(SHIM(aoti_torch_assign_tensors_out)(source, &second), 0);
    void *data = shim_data(source);
    shim_delete(source);
    cr_assert_eq(shim_data(target), data);
    cr_assert_eq(shim_data(second), data);
    /* Assign it to itself, as its only handle. */
    shim_delete(second);
    cr_assert_eq(SHIM(aoti_torch_assign_tensors)(target, target), 0);
    cr_assert_eq(shim_data(target), data);
    ((float *)data)[5] = 1;
    shim_delete(target);
}

Test(shim_tensor, views_keep_the_storage_and_stay_inside)
{
    float values[6] = {0, 1, 2, 3, 4, 5};
    const int64_t sizes[] = {3, 2}, strides[] = {1, 3}, row[] = {3}, one[] = {1};
    AtenTensorHandle base = shim_wrap(values, AOTICACHE_DTYPE_FLOAT32, 2, two_three, NULL), view = NULL, tail = NULL;
    cr_assert_eq(SHIM(aoti_torch__reinterpret_tensor)(base, 2, sizes, strides, 0, &view), 0);
    cr_assert_eq(SHIM(aoti_torch__reinterpret_tensor)(base, 1, row, one, 3, &tail), 0);
    shim_delete(base);
    cr_assert_eq(shim_data(view), values);
    cr_assert_eq(shim_data(tail), values + 3);
    AtenTensorHandle beyond = NULL;
    SHIM_FAILS(SHIM(aoti_torch__reinterpret_tensor)(tail, 1, row, one, 1, &beyond),
               "reaches to byte 28 of a storage of 24 bytes");
    SHIM_FAILS(SHIM(aoti_torch__reinterpret_tensor)(view, 1, row, one, -1, &beyond), "storage offset -1");
    SHIM_FAILS(SHIM(aoti_torch__reinterpret_tensor)(tail, 1, row, one, INT64_MAX, &beyond), "overflows");
    cr_assert_eq(SHIM(aoti_torch_as_strided)(view, two_three, three_one, &beyond), 0);
    shim_delete(beyond);
    shim_delete(view);
    shim_delete(tail);
}

Test(shim_tensor, alloc_from_pool_views_bytes)
{
    const int64_t bytes[] = {64}, one[] = {1}, four[] = {4};
    AtenTensorHandle pool = shim_empty(AOTICACHE_DTYPE_UINT8, 1, bytes, one), tensor = NULL;
    cr_assert_eq(SHIM(aoti_torch__alloc_from_pool)(pool, 32, AOTICACHE_DTYPE_FLOAT64, 1, four, one, &tensor), 0);
    cr_assert_eq((char *)shim_data(tensor) - (char *)shim_data(pool), 32);
    AtenTensorHandle bad = NULL;
    SHIM_FAILS(SHIM(aoti_torch__alloc_from_pool)(pool, 40, AOTICACHE_DTYPE_FLOAT64, 1, four, one, &bad),
               "byte 72 of a storage of 64");
    SHIM_FAILS(SHIM(aoti_torch__alloc_from_pool)(pool, 4, AOTICACHE_DTYPE_FLOAT64, 1, four, one, &bad),
               "not a multiple of the 8 bytes");
    shim_delete(pool);
    shim_delete(tensor);
}

static int deletions;

static void count_deletion(void *data, void *context)
{
    cr_assert_eq(data, context);
    deletions++;
}

Test(shim_tensor, blob_deleter_runs_once_with_the_last_view)
{
    float values[6] = {0};
    const int64_t bad[] = {-1, 1};
    AtenTensorHandle tensor = NULL, view = NULL;
    __typeof__(&torch_from_blob) from_blob = SHIM(torch_from_blob);
    SHIM_FAILS(from_blob(values, 2, two_three, bad, 0, 6, 0, 0, &tensor, 0, NULL, 0, count_deletion, values),
               "negative");
    cr_assert_eq(deletions, 0);
    cr_assert_eq(
        SHIM(torch_from_blob)(values, 2, two_three, three_one, 0, 6, 0, 0, &tensor, 0, NULL, 0, count_deletion, values),
        0);
    cr_assert_eq(SHIM(aoti_torch__reinterpret_tensor)(tensor, 2, two_three, three_one, 0, &view), 0);
    shim_delete(tensor);
    cr_assert_eq(deletions, 0);
    shim_delete(view);
    cr_assert_eq(deletions, 1);
}

Test(shim_tensor, other_layouts_are_refused)
{
    float values[6] = {0};
    AtenTensorHandle tensor = NULL;
    __typeof__(&aoti_torch_create_tensor_from_blob_v2) from_blob = SHIM(aoti_torch_create_tensor_from_blob_v2);
    SHIM_FAILS(from_blob(values, 2, two_three, three_one, 0, 6, 0, 0, &tensor, 1, NULL, 0), "layout 1 (sparse_coo)");
    SHIM_FAILS(from_blob(values, 2, two_three, three_one, 0, 6, 0, 0, &tensor, 3, NULL, 0), "a description of 0 bytes");
    SHIM_FAILS(SHIM(torch_from_blob)(values, 2, two_three, three_one, 0, 6, 0, 0, &tensor, 3, NULL, 0, NULL, NULL),
               "layout 3 (_mkldnn)");
}

static void *toggle_gradients(void *argument)
{
    bool *first = argument;
    *first = SHIM(aoti_torch_grad_mode_is_enabled)();
    SHIM(aoti_torch_grad_mode_set_enabled)(false);
    return NULL;
}

Test(shim_tensor, gradient_mode_is_of_the_thread)
{
    pthread_t thread;
    bool first = false;
    cr_assert(SHIM(aoti_torch_grad_mode_is_enabled)());
    cr_assert_eq(pthread_create(&thread, NULL, toggle_gradients, &first), 0);
    pthread_join(thread, NULL);
    cr_assert(first);
    cr_assert(SHIM(aoti_torch_grad_mode_is_enabled)());
    SHIM(aoti_torch_grad_mode_set_enabled)(false);
    cr_assert_not(SHIM(aoti_torch_grad_mode_is_enabled)());
}

/* ---- large blocks: a run reuses the memory of the last run's tensors ---- */

#if !defined(SHIM_FREE_LISTS_OFF) && !defined(__SANITIZE_THREAD__)

static AtenTensorHandle make_bytes(int64_t bytes)
{
    const int64_t stride = 1;
    AtenTensorHandle tensor = NULL;
    cr_assert_eq(SHIM(aoti_torch_empty_strided)(1, &bytes, &stride, AOTICACHE_DTYPE_UINT8, 0, 0, &tensor), 0);
    return tensor;
}

static void *data_of(AtenTensorHandle tensor)
{
    void *data = NULL;
    cr_assert_eq(SHIM(aoti_torch_get_data_ptr)(tensor, &data), 0);
    return data;
}

/* Returns the bytes that the C library counts as in use, in all threads. */
static size_t bytes_in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

Test(shim_tensor, a_large_block_is_used_again)
{
    enum { BYTES = 1 << 20 };
    AtenTensorHandle tensor = make_bytes(BYTES);
    void *data = data_of(tensor);
    SHIM(aoti_torch_delete_tensor_object)(tensor);
    void *other = malloc(BYTES); /* would get the block if the C library had it */
    memset(other, 1, BYTES);
    AtenTensorHandle larger = make_bytes(2 * BYTES), little = make_bytes(BYTES / 4), same = make_bytes(BYTES - 1000);
    cr_assert_neq(data_of(larger), data);
    cr_assert_neq(data_of(little), data, "a block is not given to a tensor of a quarter of its size");
    cr_assert_eq(data_of(same), data);
    cr_assert_eq((uintptr_t)data_of(larger) % 64, 0);
    memset(data_of(larger), 2, 2 * BYTES);
    memset(data, 3, BYTES - 1000);
    SHIM(aoti_torch_delete_tensor_object)(larger);
    SHIM(aoti_torch_delete_tensor_object)(little);
    SHIM(aoti_torch_delete_tensor_object)(same);
    free(other);
}

Test(shim_tensor, large_blocks_that_are_kept_have_a_limit)
{
    enum { TENSORS = 40, BYTES = 4 << 20 };
    AtenTensorHandle tensors[TENSORS], huge = make_bytes(2 * (int64_t)SHIM_LARGE_KEPT_BYTES);
    SHIM(aoti_torch_delete_tensor_object)(huge);
    const size_t before = bytes_in_use();
    for (int i = 0; i < TENSORS; i++)
        tensors[i] = make_bytes(BYTES);
    for (int i = 0; i < TENSORS; i++)
        SHIM(aoti_torch_delete_tensor_object)(tensors[i]);
    const size_t kept = bytes_in_use() - before;
    cr_assert_geq(kept, SHIM_LARGE_KEPT_BYTES - 2 * BYTES, "%zu", kept);
    cr_assert_leq(kept, SHIM_LARGE_KEPT_BYTES + (64 << 10), "%zu", kept);
}

static void *make_and_drop(void *bytes)
{
    size_t before = bytes_in_use();
    SHIM(aoti_torch_delete_tensor_object)(make_bytes(8 << 20));
    *(size_t *)bytes = bytes_in_use() - before;
    return NULL;
}

Test(shim_tensor, large_blocks_of_a_thread_end_with_it)
{
    pthread_t thread;
    size_t kept = 0;
    SHIM(aoti_torch_delete_tensor_object)(make_bytes(1)); /* makes what is made only once */
    const size_t before = bytes_in_use();
    cr_assert_eq(pthread_create(&thread, NULL, make_and_drop, &kept), 0);
    pthread_join(thread, NULL);
    cr_assert_geq(kept, 8 << 20);
    cr_assert_leq(bytes_in_use(), before + (1 << 20));
}

#endif
