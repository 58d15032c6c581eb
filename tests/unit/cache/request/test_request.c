/*
 * Building requests: what is kept, what is refused, and that a refusal changes nothing. Encodings are in
 * test_request_encoding.c, the human-readable text in test_request_format.c.
 */
#include "base/digest.h"
#include "cache/eager_face.h"
#include "cache/request/cpu.h"
#include "cache/request/cpu_detect.h"
#include "cache/request/request_internal.h"
#include "cache/request/request.h"
#include "cache/request/text.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const aoticache_device cpu = {AOTICACHE_DEVICE_TYPE_CPU, -1};
static const aoticache_device cuda1 = {AOTICACHE_DEVICE_TYPE_CUDA, 1};

static aoticache_request *make(const char *op)
{
    aoticache_request *request = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_request_create(op, cpu, &request, &error), AOTICACHE_OK, "%s", error.message);
    return request;
}

static aoticache_tensor_metadata float32_matrix(const int64_t sizes[2], const int64_t *strides)
{
    return (aoticache_tensor_metadata){
        .dtype = AOTICACHE_DTYPE_FLOAT32, .device = cpu, .ndim = 2, .sizes = sizes, .strides = strides};
}

/* Checks that a call is refused with a message that contains `part`. */
#define REFUSED(part, call)                                                                              \
    do {                                                                                                 \
        aoticache_error error = {0};                                                                     \
        cr_expect_eq(call, AOTICACHE_INVALID, "accepted: %s", #call);                                    \
        cr_expect_eq(error.status, AOTICACHE_INVALID);                                                   \
        cr_expect_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message); \
        cr_expect_null(strchr(error.message, '\n'));                                                     \
    } while (0)

Test(request, create_valid_operators_are_kept)
{
    static const char *const ops[] = {"aten::abs", "aten::add.Tensor",       "_c10d_functional::all_reduce_",
                                      "a::b.c_1",  "quantized::linear_relu", "aten::__and__.Scalar"};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        aoticache_request *request = make(ops[i]);
        cr_expect_str_eq(aoticache_request_op(request), ops[i]);
        aoticache_request_free(request);
    }
}

Test(request, create_invalid_operators_are_refused)
{
    static const char *const ops[] = {"",
                                      "abs",
                                      "aten:abs",
                                      "aten::",
                                      "::abs",
                                      "aten::abs.",
                                      "aten::abs.default",
                                      "aten::abs.a.b",
                                      "aten:::abs",
                                      "aten::a::b",
                                      "aten::abs ",
                                      "at en::abs",
                                      "aten::abs\n",
                                      "aten::abs\xc3\xbc",
                                      "aten.x::abs",
                                      "aten::add.Ten-sor"};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        aoticache_request *request = NULL;
        REFUSED("", aoticache_request_create(ops[i], cpu, &request, &error));
        cr_expect_null(request, "%s", ops[i]);
    }
    aoticache_request *request = NULL;
    REFUSED("written without it: aten::abs", aoticache_request_create("aten::abs.default", cpu, &request, &error));
    REFUSED("NULL", aoticache_request_create(NULL, cpu, &request, &error));
    REFUSED("NULL", aoticache_request_create("aten::abs", cpu, NULL, &error));
}

Test(request, create_operator_of_255_bytes_is_the_longest)
{
    char op[300];
    aoticache_request *request = NULL;
    memset(op, 'x', sizeof op);
    memcpy(op, "a::", 3);
    op[256] = '\0';
    REFUSED("256 bytes; at most 255", aoticache_request_create(op, cpu, &request, &error));
    op[255] = '\0';
    aoticache_request_free(make(op));
}

Test(request, create_devices_are_checked_and_made_canonical)
{
    aoticache_request *request = NULL;
    REFUSED("device type 99", aoticache_request_create("a::b", (aoticache_device){99, -1}, &request, &error));
    REFUSED("index 1", aoticache_request_create("a::b", (aoticache_device){0, 1}, &request, &error));
    REFUSED("index -2", aoticache_request_create("a::b", (aoticache_device){1, -2}, &request, &error));
    REFUSED("index 10000", aoticache_request_create("a::b", (aoticache_device){1, 10000}, &request, &error));
    cr_assert_eq(aoticache_request_create("a::b", (aoticache_device){0, 0}, &request, NULL), AOTICACHE_OK);
    cr_expect_eq(aoticache_request_device(request).index, -1);
    aoticache_request_free(request);
    cr_assert_eq(aoticache_request_create("a::b", cuda1, &request, NULL), AOTICACHE_OK);
    cr_expect_eq(aoticache_request_device(request).index, 1);
    aoticache_request_free(request);
}

Test(request, environment_is_sorted_and_replaced)
{
    aoticache_request *request = make("aten::abs");
    const char *name, *value;
    cr_expect_str_eq(aoticache_request_get_environment(request, "arch"), aoticache_cpu_arch());
    cr_assert_eq(aoticache_request_set_environment(request, "torch", "2.12", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_set_environment(request, "abi", "1", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_set_environment(request, "torch", "2.13.0", NULL), AOTICACHE_OK);
    cr_expect_eq(aoticache_request_environment_count(request), 3);
    cr_assert(aoticache_request_environment_at(request, 0, &name, &value));
    cr_expect_str_eq(name, "abi");
    cr_expect_str_eq(value, "1");
    cr_assert(aoticache_request_environment_at(request, 2, &name, &value));
    cr_expect_str_eq(name, "torch");
    cr_expect_str_eq(value, "2.13.0");
    cr_expect_not(aoticache_request_environment_at(request, 3, &name, &value));
    cr_expect_str_eq(name, "torch", "outputs are written only on success");
    cr_expect_str_eq(value, "2.13.0");
    cr_expect_null(aoticache_request_get_environment(request, "nothing"));
    aoticache_request_free(request);
}

Test(request, environment_invalid_pairs_are_refused)
{
    aoticache_request *request = make("aten::abs");
    char text[300];
    memset(text, 'x', sizeof text);
    text[256] = '\0';
    REFUSED("256 bytes; at most 255", aoticache_request_set_environment(request, "name", text, &error));
    text[64] = '\0';
    REFUSED("64 bytes; at most 63", aoticache_request_set_environment(request, text, "", &error));
    REFUSED("the environment's name", aoticache_request_set_environment(request, "", "value", &error));
    REFUSED("'='", aoticache_request_set_environment(request, "a=b", "value", &error));
    REFUSED("0x0a", aoticache_request_set_environment(request, "a\n", "value", &error));
    REFUSED("not UTF-8", aoticache_request_set_environment(request, "a", "\xff", &error));
    REFUSED("NULL", aoticache_request_set_environment(request, NULL, "value", &error));
    REFUSED("NULL", aoticache_request_set_environment(request, "a", NULL, &error));
    REFUSED("NULL", aoticache_request_set_environment(NULL, "a", "b", &error));
    cr_expect_eq(aoticache_request_environment_count(request), 1);
    for (int i = 0; i < 254; i++) {
        snprintf(text, sizeof text, "n%d", i);
        cr_assert_eq(aoticache_request_set_environment(request, text, "", NULL), AOTICACHE_OK);
    }
    REFUSED("255 pairs", aoticache_request_set_environment(request, "more", "", &error));
    cr_expect_eq(aoticache_request_set_environment(request, "n7", "again", NULL), AOTICACHE_OK);
    aoticache_request_free(request);
}

Test(request, tensor_is_copied_with_contiguous_strides)
{
    aoticache_request *request = make("aten::abs");
    int64_t sizes[4] = {2, 0, 3, 1};
    aoticache_tensor_metadata metadata = {.dtype = AOTICACHE_DTYPE_INT64,
                                          .device = {0, 0},
                                          .ndim = 4,
                                          .sizes = sizes,
                                          .dispatch_key_set = UINT64_MAX,
                                          .requires_grad = true};
    cr_assert_eq(aoticache_request_add_tensor(request, NULL, &metadata, NULL), AOTICACHE_OK);
    memset(sizes, 0xff, sizeof sizes);
    const aoticache_argument *argument = aoticache_request_argument(request, 0);
    const aoticache_tensor_metadata *kept = &argument->value.tensor.metadata;
    const int64_t expected_sizes[4] = {2, 0, 3, 1}, expected_strides[4] = {3, 3, 1, 1};
    cr_expect_eq(argument->kind, AOTICACHE_ARGUMENT_TENSOR);
    cr_expect_str_eq(argument->name, "");
    cr_expect_arr_eq(kept->sizes, expected_sizes, sizeof expected_sizes);
    cr_expect_arr_eq(kept->strides, expected_strides, sizeof expected_strides);
    cr_expect_eq(kept->device.index, -1);
    cr_expect_eq(kept->dispatch_key_set, UINT64_MAX);
    cr_expect(kept->requires_grad);
    aoticache_request_free(request);
}

Test(request, tensor_strides_given_are_kept_exactly)
{
    aoticache_request *request = make("aten::abs");
    const int64_t sizes[2] = {1, 0}, strides[2] = {1234, 99};
    aoticache_tensor_metadata metadata = float32_matrix(sizes, strides);
    cr_assert_eq(aoticache_request_add_tensor(request, "x", &metadata, NULL), AOTICACHE_OK);
    const aoticache_argument *argument = aoticache_request_argument(request, 0);
    cr_expect_arr_eq(argument->value.tensor.metadata.strides, strides, sizeof strides);
    aoticache_request_free(request);
}

#define BAD_TENSOR(part, change)                                                                  \
    do {                                                                                          \
        aoticache_tensor_metadata metadata = float32_matrix(sizes, strides);                      \
        change;                                                                                   \
        REFUSED(part, aoticache_request_add_tensor(request, NULL, &metadata, &error));            \
        REFUSED("aten::abs, argument 0: ",                                                        \
                aoticache_request_add_constant(request, NULL, &metadata, NULL, &digest, &error)); \
    } while (0)

Test(request, tensor_invalid_metadata_is_refused)
{
    aoticache_request *request = make("aten::abs");
    const aoticache_digest digest = {{1}};
    const int64_t sizes[2] = {2, 3}, strides[2] = {3, 1};
    const int64_t symbolic[2] = {2, -1}, huge[2] = {INT64_MAX, 2}, many_bytes[2] = {INT64_MAX / 2, 1};
    const int64_t hidden[2] = {INT64_MAX, 0}, negative_stride[2] = {-3, 1};
    const int64_t huge_stride[2] = {INT64_MAX, 1}, long_stride[2] = {INT64_MAX / 4, 1};
    BAD_TENSOR("unknown dtype 12", metadata.dtype = 12);
    BAD_TENSOR("unknown dtype -1", metadata.dtype = -1);
    BAD_TENSOR("unknown layout 8", metadata.layout = 8);
    BAD_TENSOR("device type -7", metadata.device.type = -7);
    BAD_TENSOR("index 1", metadata.device.index = 1);
    BAD_TENSOR("65 dimensions; at most 64", metadata.ndim = 65);
    BAD_TENSOR("2 dimensions but no sizes", metadata.sizes = NULL);
    BAD_TENSOR("size of dimension 1 is -1", metadata.sizes = symbolic);
    BAD_TENSOR("more than 2^63-1 bytes", metadata.sizes = huge);
    BAD_TENSOR("more than 2^63-1 bytes", metadata.sizes = many_bytes);
    BAD_TENSOR("more than 2^63-1 bytes", metadata.sizes = hidden);
    BAD_TENSOR("stride of dimension 0 is -3", metadata.strides = negative_stride);
    BAD_TENSOR("span more", metadata.strides = huge_stride);
    BAD_TENSOR("span more", metadata.strides = long_stride);
    REFUSED("aoticache_request_add: argument is NULL", aoticache_request_add_tensor(request, NULL, NULL, &error));
    REFUSED("aoticache_request_add: argument is NULL",
            aoticache_request_add_constant(request, NULL, NULL, "", NULL, &error));
    REFUSED("aoticache_request_add: request is NULL", aoticache_request_add_tensor(NULL, NULL, NULL, &error));
    cr_expect_eq(aoticache_request_argument_count(request), 0);
    aoticache_request_free(request);
}

Test(request, constant_digest_is_computed_or_taken)
{
    aoticache_request *request = make("aten::linear");
    const int64_t sizes[2] = {1, 2};
    const float data[2] = {1, -2};
    aoticache_digest expected, given = {{7}};
    aoticache_tensor_metadata metadata = float32_matrix(sizes, NULL);
    cr_assert_eq(aoticache_digest_of(data, sizeof data, &expected), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_constant(request, NULL, &metadata, data, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_constant(request, NULL, &metadata, NULL, &given, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_begin_list(request, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_none(request, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_constant(request, NULL, &metadata, data, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_end_list(request, NULL), AOTICACHE_OK);
    const aoticache_argument *first = aoticache_request_argument(request, 0);
    const aoticache_argument *list = aoticache_request_argument(request, 2);
    cr_expect(aoticache_digest_equal(&first->value.tensor.data_digest, &expected));
    cr_expect(aoticache_digest_equal(&first[1].value.tensor.data_digest, &given));
    cr_expect(aoticache_digest_equal(&list->value.list.items[1].value.tensor.data_digest, &expected));
    cr_expect_eq(first->value.tensor.data, data);
    cr_expect(first->value.tensor.has_digest);
    cr_expect_null(first[1].value.tensor.data);
    cr_expect(first[1].value.tensor.has_digest);
    cr_expect_null(aoticache_request_argument(request, 3));
    cr_expect_eq(list->value.list.items[1].value.tensor.data, data);
    cr_expect_eq(list->value.list.items[0].kind, AOTICACHE_ARGUMENT_NONE);
    cr_expect_eq(list->value.list.count, 2);
    aoticache_request_free(request);
}

Test(request, constant_without_data_or_strides_is_refused)
{
    aoticache_request *request = make("aten::linear");
    const int64_t sizes[2] = {1, 2}, empty[2] = {0, 2};
    aoticache_tensor_metadata metadata = float32_matrix(sizes, NULL);
    REFUSED("data or the digest", aoticache_request_add_constant(request, NULL, &metadata, NULL, NULL, &error));
    metadata.layout = AOTICACHE_LAYOUT_SPARSE_COO;
    REFUSED("must be strided", aoticache_request_add_constant(request, NULL, &metadata, "12345678", NULL, &error));
    metadata = float32_matrix(empty, NULL);
    cr_expect_eq(aoticache_request_add_constant(request, NULL, &metadata, NULL, NULL, NULL), AOTICACHE_OK);
    aoticache_request_free(request);
}

Test(request, scalars_are_kept)
{
    aoticache_request *request = make("test::scalars");
    cr_assert_eq(aoticache_request_add_int(request, NULL, INT64_MIN, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_double(request, "", -0.0, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_complex(request, NULL, 1, -2, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_bool(request, "b", true, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_string(request, "s", "na\xc3\xafve", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_device(request, "d", (aoticache_device){0, 0}, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_memory_format(request, "m", AOTICACHE_MEMORY_FORMAT_CHANNELS_LAST, NULL),
                 AOTICACHE_OK);
    const aoticache_argument *a = aoticache_request_argument(request, 0);
    cr_expect_eq(aoticache_request_argument_count(request), 7);
    cr_expect_null(aoticache_request_argument(request, 7));
    cr_expect_eq(a[0].value.int_value, INT64_MIN);
    cr_expect(signbit(a[1].value.double_value));
    cr_expect_eq(a[2].value.complex_value[1], -2);
    cr_expect(a[3].value.bool_value);
    cr_expect_str_eq(a[3].name, "b");
    cr_expect_str_eq(a[4].value.string_value, "na\xc3\xafve");
    cr_expect_eq(a[5].value.device_value.index, -1);
    cr_expect_eq(a[6].value.int_value, 2);
    aoticache_request_free(request);
}

Test(request, scalars_invalid_values_are_refused)
{
    aoticache_request *request = make("test::scalars");
    static const char *const bad_utf8[] = {"\x80",
                                           "\xc0\x80",
                                           "\xc1\xbf",
                                           "\xc3",
                                           "\xe0\x80\x80",
                                           "\xed\xa0\x80",
                                           "\xf0\x80\x80\x80",
                                           "\xf4\x90\x80\x80",
                                           "\xf8\x88\x80\x80\x80",
                                           "a\xe2\x82"};
    for (size_t i = 0; i < sizeof bad_utf8 / sizeof bad_utf8[0]; i++)
        REFUSED("not UTF-8", aoticache_request_add_string(request, NULL, bad_utf8[i], &error));
    REFUSED("add_none", aoticache_request_add_string(request, NULL, NULL, &error));
    REFUSED("dtype 13", aoticache_request_add_dtype(request, NULL, 13, &error));
    REFUSED("layout -1", aoticache_request_add_layout(request, NULL, -1, &error));
    REFUSED("memory_format 4", aoticache_request_add_memory_format(request, NULL, 4, &error));
    REFUSED("index 2", aoticache_request_add_device(request, NULL, (aoticache_device){0, 2}, &error));
    REFUSED("request", aoticache_request_add_none(NULL, NULL, &error));
    REFUSED("request", aoticache_request_add_string(NULL, NULL, "", &error));
    REFUSED("request", aoticache_request_add_device(NULL, NULL, cpu, &error));
    REFUSED("request", aoticache_request_add_dtype(NULL, NULL, 0, &error));
    REFUSED("request", aoticache_request_begin_list(NULL, NULL, &error));
    REFUSED("request", aoticache_request_end_list(NULL, &error));
    cr_expect_eq(aoticache_request_argument_count(request), 0);
    aoticache_request_free(request);
}

Test(request, string_of_64_kib_is_the_longest)
{
    aoticache_request *request = make("test::string");
    char *text = malloc(65538);
    memset(text, 'x', 65537);
    text[65537] = '\0';
    REFUSED("65537 bytes; at most 65536", aoticache_request_add_string(request, NULL, text, &error));
    text[65536] = '\0';
    cr_expect_eq(aoticache_request_add_string(request, NULL, text, NULL), AOTICACHE_OK);
    free(text);
    aoticache_request_free(request);
}

Test(request, keywords_are_checked)
{
    aoticache_request *request = make("aten::add");
    char name[300];
    memset(name, 'x', sizeof name);
    name[256] = '\0';
    REFUSED("256 bytes", aoticache_request_add_none(request, name, &error));
    REFUSED("'1'", aoticache_request_add_none(request, "1a", &error));
    REFUSED("'='", aoticache_request_add_none(request, "a=b", &error));
    REFUSED("0x0a", aoticache_request_begin_list(request, "a\nb", &error));
    cr_assert_eq(aoticache_request_add_none(request, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_none(request, "alpha", NULL), AOTICACHE_OK);
    REFUSED("argument 2: keyword alpha was already added", aoticache_request_add_int(request, "alpha", 1, &error));
    REFUSED("argument 2: a positional argument", aoticache_request_add_int(request, NULL, 1, &error));
    REFUSED("argument 2: a positional argument", aoticache_request_begin_list(request, "", &error));
    cr_assert_eq(aoticache_request_begin_list(request, "list", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_end_list(request, NULL), AOTICACHE_OK);
    REFUSED("keyword list was already added", aoticache_request_begin_list(request, "list", &error));
    for (int i = 2; i < 255; i++) {
        snprintf(name, sizeof name, "n%d", i);
        cr_assert_eq(aoticache_request_add_none(request, name, NULL), AOTICACHE_OK);
    }
    REFUSED("255 keyword arguments", aoticache_request_add_none(request, "more", &error));
    aoticache_request_free(request);
}

Test(request, lists_have_plain_items)
{
    aoticache_request *request = make("aten::cat");
    aoticache_key key;
    REFUSED("no list is open", aoticache_request_end_list(request, &error));
    cr_assert_eq(aoticache_request_begin_list(request, NULL, NULL), AOTICACHE_OK);
    REFUSED("argument 0, item 0: a list cannot hold a list", aoticache_request_begin_list(request, NULL, &error));
    cr_assert_eq(aoticache_request_add_int(request, "", 5, NULL), AOTICACHE_OK);
    REFUSED("argument 0, item 1: items", aoticache_request_add_int(request, "x", 6, &error));
    cr_expect_eq(aoticache_request_argument_count(request), 0);
    REFUSED("argument 0 is a list that is still open", aoticache_request_key(request, &key, &error));
    cr_assert_eq(aoticache_request_end_list(request, NULL), AOTICACHE_OK);
    const aoticache_argument *list = aoticache_request_argument(request, 0);
    cr_expect_eq(list->kind, AOTICACHE_ARGUMENT_LIST);
    cr_expect_eq(list->value.list.count, 1);
    cr_expect_eq(list->value.list.items[0].value.int_value, 5);
    cr_expect_eq(aoticache_request_key(request, &key, NULL), AOTICACHE_OK);
    aoticache_request_free(request);
}

Test(request, argument_of_another_request_is_copied)
{
    aoticache_request *request = make("aten::cat"), *copy = make("aten::cat");
    const int64_t sizes[2] = {1, 2};
    const float data[2] = {1, -2};
    aoticache_tensor_metadata metadata = float32_matrix(sizes, NULL);
    aoticache_key key, copied;
    cr_assert_eq(aoticache_request_begin_list(request, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_tensor(request, NULL, &metadata, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_constant(request, NULL, &metadata, data, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_string(request, NULL, "text", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_end_list(request, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_complex(request, NULL, 1, -2, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_constant(request, NULL, &metadata, data, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_dtype(request, "dtype", 6, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_begin_list(request, "dims", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_end_list(request, NULL), AOTICACHE_OK);
    for (size_t i = 0; i < aoticache_request_argument_count(request); i++)
        cr_assert_eq(aoticache_request_add(copy, aoticache_request_argument(request, i), NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_key(request, &key, NULL), AOTICACHE_OK);
    aoticache_request_free(request);
    cr_assert_eq(aoticache_request_key(copy, &copied, NULL), AOTICACHE_OK);
    cr_expect(aoticache_digest_equal(&key, &copied));
    cr_expect_eq(aoticache_request_argument(copy, 0)->value.list.items[1].value.tensor.data, data);
    cr_expect_str_eq(aoticache_request_argument(copy, 4)->name, "dims");
    aoticache_request_free(copy);
}

Test(request, list_is_copied_within_a_request)
{
    aoticache_request *request = make("aten::cat");
    cr_assert_eq(aoticache_request_begin_list(request, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_string(request, NULL, "text", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_end_list(request, NULL), AOTICACHE_OK);
    for (size_t i = 0; i < 20; i++) /* the array of arguments grows */
        cr_assert_eq(aoticache_request_add(request, aoticache_request_argument(request, i), NULL), AOTICACHE_OK);
    cr_expect_str_eq(aoticache_request_argument(request, 20)->value.list.items[0].value.string_value, "text");
    aoticache_request_free(request);
}

Test(request, list_with_a_wrong_item_adds_nothing)
{
    aoticache_request *request = make("aten::cat"), *same = make("aten::cat");
    const aoticache_argument list = {.kind = AOTICACHE_ARGUMENT_LIST};
    const aoticache_argument items[][2] = {
        {{.kind = AOTICACHE_ARGUMENT_INT}, {.kind = AOTICACHE_ARGUMENT_STRING}},
        {{.kind = AOTICACHE_ARGUMENT_INT}, list},
        {{.kind = AOTICACHE_ARGUMENT_INT}, {.kind = AOTICACHE_ARGUMENT_INT, .name = "x"}},
        {{.kind = AOTICACHE_ARGUMENT_INT}, {.kind = (aoticache_argument_kind)13}},
        {{.kind = AOTICACHE_ARGUMENT_INT}, {.kind = AOTICACHE_ARGUMENT_DTYPE, .value.int_value = 1LL << 32}},
    };
    static const char *const reasons[] = {"the string is NULL", "a list cannot hold a list", "items of a list",
                                          "unknown kind of argument 13", "unknown dtype 4294967296"};
    aoticache_key key, expected;
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
        aoticache_argument wrong = {.kind = AOTICACHE_ARGUMENT_LIST, .name = "dims"};
        wrong.value.list.items = items[i];
        wrong.value.list.count = 2;
        char reason[128];
        snprintf(reason, sizeof reason, "argument 0, item 1: %s", reasons[i]);
        REFUSED(reason, aoticache_request_add(request, &wrong, &error));
    }
    aoticache_argument wrong = list;
    wrong.value.list.count = 1;
    REFUSED("argument 0, item 0: the items are NULL", aoticache_request_add(request, &wrong, &error));
    cr_expect_eq(aoticache_request_argument_count(request), 0);
    cr_assert_eq(aoticache_request_add(request, &list, NULL), AOTICACHE_OK);
    REFUSED("unknown kind of argument -1",
            aoticache_request_add(request, &(aoticache_argument){.kind = (aoticache_argument_kind)-1}, &error));
    cr_assert_eq(aoticache_request_begin_list(same, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_end_list(same, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_key(request, &key, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_key(same, &expected, NULL), AOTICACHE_OK);
    cr_expect(aoticache_digest_equal(&key, &expected));
    aoticache_request_free(request);
    aoticache_request_free(same);
}

Test(request, free_open_list_leaks_nothing)
{
    aoticache_request *request = make("aten::cat");
    cr_assert_eq(aoticache_request_begin_list(request, "tensors", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_string(request, NULL, "text", NULL), AOTICACHE_OK);
    aoticache_request_free(request);
    aoticache_request_free(NULL);
}

Test(request, arguments_and_items_have_a_limit)
{
    aoticache_request *request = make("test::many");
    cr_assert_eq(aoticache_request_begin_list(request, NULL, NULL), AOTICACHE_OK);
    for (int i = 0; i < 40000; i++)
        cr_assert_eq(aoticache_request_add_none(request, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_end_list(request, NULL), AOTICACHE_OK);
    for (int i = 0; i < 25534; i++)
        cr_assert_eq(aoticache_request_add_none(request, NULL, NULL), AOTICACHE_OK);
    REFUSED("65535 arguments and items", aoticache_request_add_none(request, NULL, &error));
    REFUSED("65535 arguments and items", aoticache_request_begin_list(request, NULL, &error));
    aoticache_request_free(request);
}

Test(request, encoding_has_a_limit)
{
    aoticache_request *request = make("test::large");
    char *text = malloc(65537);
    memset(text, 'x', 65536);
    text[65536] = '\0';
    for (int i = 0; i < 255; i++)
        cr_assert_eq(aoticache_request_add_string(request, NULL, text, NULL), AOTICACHE_OK);
    REFUSED("at most 16777216", aoticache_request_add_string(request, NULL, text, &error));
    text[60000] = '\0';
    cr_expect_eq(aoticache_request_add_string(request, NULL, text, NULL), AOTICACHE_OK);
    uint8_t *bytes = NULL;
    size_t size = 0;
    cr_assert_eq(aoticache_request_encode(request, &bytes, &size, NULL), AOTICACHE_OK);
    cr_expect_leq(size, 16777216);
    free(bytes);
    free(text);
    aoticache_request_free(request);
}
