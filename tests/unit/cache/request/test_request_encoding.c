/*
 * Encodings and keys: compared with the vectors that an independent program wrote from docs/formats/key.md
 * (tests/golden/key), and round trips. Damage is in test_request_decode.c. Run from the root of the repository.
 */
#include "base/names.h"
#include "cache/eager_face.h"
#include "cache/request/request.h"
#include "cache/request/text.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VECTORS "tests/golden/key/vectors.json"

static const aoticache_device cpu = {AOTICACHE_DEVICE_TYPE_CPU, -1};

/* ---- from the vectors' calls to a request ---- */

static aoticache_device device_of(const json_t *value)
{
    return (aoticache_device){(int32_t)json_integer_value(json_array_get(value, 0)),
                              (int32_t)json_integer_value(json_array_get(value, 1))};
}

static double double_of(const json_t *value)
{
    double result;
    uint64_t bits = strtoull(json_string_value(value), NULL, 16);
    memcpy(&result, &bits, sizeof result);
    return result;
}

static size_t bytes_of(const char *hex, uint8_t *ret_bytes)
{
    size_t count = strlen(hex) / 2;
    for (size_t i = 0; i < count; i++) {
        unsigned value;
        cr_assert_eq(sscanf(hex + 2 * i, "%2x", &value), 1);
        ret_bytes[i] = (uint8_t)value;
    }
    return count;
}

static const int64_t *extents_of(const json_t *value, int64_t *storage)
{
    if (!json_is_array(value))
        return NULL;
    for (size_t i = 0; i < json_array_size(value); i++)
        storage[i] = json_integer_value(json_array_get(value, i));
    return storage;
}

static aoticache_status add_tensor(aoticache_request *request, const char *name, const json_t *value, bool is_constant)
{
    static uint8_t data[16]; /* borrowed by the request, and never read here */
    int64_t sizes[AOTICACHE_MAX_DIMS], strides[AOTICACHE_MAX_DIMS];
    const char *key_set = json_string_value(json_object_get(value, "dispatch_key_set"));
    aoticache_tensor_metadata metadata = {
        .dtype = (int32_t)json_integer_value(json_object_get(value, "dtype")),
        .layout = (int32_t)json_integer_value(json_object_get(value, "layout")),
        .device = device_of(json_object_get(value, "device")),
        .requires_grad = json_is_true(json_object_get(value, "requires_grad")),
        .dispatch_key_set = key_set != NULL ? strtoull(key_set, NULL, 16) : 0,
        .ndim = (uint32_t)json_array_size(json_object_get(value, "sizes")),
        .sizes = extents_of(json_object_get(value, "sizes"), sizes),
        .strides = extents_of(json_object_get(value, "strides"), strides),
    };
    if (!is_constant)
        return aoticache_request_add_tensor(request, name, &metadata, NULL);
    bytes_of(json_string_value(json_object_get(value, "data")), data);
    return aoticache_request_add_constant(request, name, &metadata, data, NULL, NULL);
}

static aoticache_status add_number(aoticache_request *request, const char *function, const char *name, int32_t value)
{
    if (strcmp(function, "add_dtype") == 0)
        return aoticache_request_add_dtype(request, name, value, NULL);
    if (strcmp(function, "add_layout") == 0)
        return aoticache_request_add_layout(request, name, value, NULL);
    if (strcmp(function, "add_memory_format") == 0)
        return aoticache_request_add_memory_format(request, name, value, NULL);
    cr_assert_fail("%s is no function of a request", function);
    return AOTICACHE_INVALID;
}

static aoticache_status add_scalar(aoticache_request *request, const char *function, const char *name,
                                   const json_t *value)
{
    if (strcmp(function, "add_none") == 0)
        return aoticache_request_add_none(request, name, NULL);
    if (strcmp(function, "add_int") == 0)
        return aoticache_request_add_int(request, name, strtoll(json_string_value(value), NULL, 16), NULL);
    if (strcmp(function, "add_double") == 0)
        return aoticache_request_add_double(request, name, double_of(value), NULL);
    if (strcmp(function, "add_bool") == 0)
        return aoticache_request_add_bool(request, name, json_is_true(value), NULL);
    if (strcmp(function, "add_complex") == 0)
        return aoticache_request_add_complex(request, name, double_of(json_array_get(value, 0)),
                                             double_of(json_array_get(value, 1)), NULL);
    if (strcmp(function, "add_string") == 0)
        return aoticache_request_add_string(request, name, json_string_value(value), NULL);
    if (strcmp(function, "add_device") == 0)
        return aoticache_request_add_device(request, name, device_of(value), NULL);
    return add_number(request, function, name, (int32_t)json_integer_value(value));
}

static aoticache_status call(aoticache_request *request, const char *function, const char *name, const json_t *value)
{
    if (strcmp(function, "set_environment") == 0)
        return aoticache_request_set_environment(request, name, json_string_value(value), NULL);
    if (strcmp(function, "begin_list") == 0)
        return aoticache_request_begin_list(request, name, NULL);
    if (strcmp(function, "end_list") == 0)
        return aoticache_request_end_list(request, NULL);
    if (strcmp(function, "add_tensor") == 0)
        return add_tensor(request, name, value, false);
    if (strcmp(function, "add_constant") == 0)
        return add_tensor(request, name, value, true);
    return add_scalar(request, function, name, value);
}

static aoticache_request *build(const json_t *vector)
{
    aoticache_request *request = NULL;
    const json_t *calls = json_object_get(vector, "calls");
    cr_assert_eq(aoticache_request_create(json_string_value(json_object_get(vector, "op")),
                                          device_of(json_object_get(vector, "device")), &request, NULL),
                 AOTICACHE_OK);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *one = json_array_get(calls, i);
        const char *function = json_string_value(json_array_get(one, 0));
        aoticache_status status =
            call(request, function, json_string_value(json_array_get(one, 1)), json_array_get(one, 2));
        cr_assert_eq(status, AOTICACHE_OK, "%s: call %zu", json_string_value(json_object_get(vector, "name")), i);
    }
    return request;
}

static json_t *load_vectors(void)
{
    json_error_t error;
    json_t *file = json_load_file(VECTORS, JSON_REJECT_DUPLICATES, &error);
    cr_assert_not_null(file, "%s, line %d: %s (run from the root of the repository)", VECTORS, error.line, error.text);
    cr_assert_eq(json_integer_value(json_object_get(file, "version")), 1);
    cr_assert_gt(json_array_size(json_object_get(file, "vectors")), 10);
    return file;
}

/* ---- the tests ---- */

static void encode(const aoticache_request *request, uint8_t **ret_bytes, size_t *ret_size)
{
    aoticache_error error = {0};
    cr_assert_eq(aoticache_request_encode(request, ret_bytes, ret_size, &error), AOTICACHE_OK, "%s", error.message);
}

static void compare(const json_t *vector)
{
    const char *name = json_string_value(json_object_get(vector, "name"));
    const char *expected = json_string_value(json_object_get(vector, "encoding"));
    aoticache_request *request = build(vector);
    uint8_t *bytes = NULL, *wanted = malloc(strlen(expected) / 2);
    size_t size = 0, wanted_size = bytes_of(expected, wanted);
    aoticache_key key;
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    encode(request, &bytes, &size);
    cr_expect(size == wanted_size && memcmp(bytes, wanted, size) == 0, "%s: encoding", name);
    cr_assert_eq(aoticache_request_key(request, &key, NULL), AOTICACHE_OK);
    aoticache_digest_to_hex(&key, hex);
    cr_expect_str_eq(hex, json_string_value(json_object_get(vector, "key")), "%s: key", name);
    free(bytes);
    free(wanted);
    aoticache_request_free(request);
}

Test(request_encoding, golden_vectors_are_met)
{
    json_t *file = load_vectors();
    size_t i;
    json_t *vector;
    json_array_foreach(json_object_get(file, "vectors"), i, vector) compare(vector);
    json_decref(file);
}

Test(request_encoding, decode_gives_the_same_request)
{
    json_t *file = load_vectors();
    size_t i;
    json_t *vector;
    json_array_foreach(json_object_get(file, "vectors"), i, vector)
    {
        aoticache_request *request = build(vector), *decoded = NULL;
        uint8_t *bytes = NULL, *again = NULL;
        size_t size = 0, again_size = 0;
        char text[4096], decoded_text[4096];
        aoticache_error error = {0};
        encode(request, &bytes, &size);
        cr_assert_eq(aoticache_request_decode(bytes, size, &decoded, &error), AOTICACHE_OK, "%s", error.message);
        encode(decoded, &again, &again_size);
        cr_expect(size == again_size && memcmp(bytes, again, size) == 0);
        aoticache_request_format(request, text, sizeof text);
        aoticache_request_format(decoded, decoded_text, sizeof decoded_text);
        cr_expect_str_eq(text, decoded_text);
        const aoticache_argument *argument;
        for (size_t k = 0; (argument = aoticache_request_argument(decoded, k)) != NULL; k++)
            if (argument->kind == AOTICACHE_ARGUMENT_CONSTANT)
                cr_expect_null(argument->value.tensor.data);
        free(bytes);
        free(again);
        aoticache_request_free(request);
        aoticache_request_free(decoded);
    }
    json_decref(file);
}

static aoticache_key key_of(int position, int64_t value)
{
    aoticache_request *request = NULL;
    int64_t sizes[2] = {2, 3}, strides[2] = {3, 1};
    aoticache_tensor_metadata metadata = {
        .dtype = AOTICACHE_DTYPE_FLOAT32, .device = cpu, .ndim = 2, .sizes = sizes, .strides = strides};
    aoticache_key key;
    sizes[0] = position == 1 ? value : sizes[0];
    strides[0] = position == 2 ? value : strides[0];
    metadata.dtype = position == 3 ? (int32_t)value : metadata.dtype;
    metadata.requires_grad = position == 4;
    metadata.dispatch_key_set = position == 5 ? (uint64_t)value : 0;
    metadata.strides = position == 6 ? NULL : strides;
    cr_assert_eq(aoticache_request_create(position == 7 ? "a::c" : "a::b", cpu, &request, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_tensor(request, position == 8 ? "x" : NULL, &metadata, NULL), AOTICACHE_OK);
    if (position == 9)
        cr_assert_eq(aoticache_request_add_none(request, NULL, NULL), AOTICACHE_OK);
    if (position == 10)
        cr_assert_eq(aoticache_request_set_environment(request, "x", "", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_key(request, &key, NULL), AOTICACHE_OK);
    aoticache_request_free(request);
    return key;
}

Test(request_encoding, key_differs_where_requests_do)
{
    static const int64_t values[] = {0, 4, 4, AOTICACHE_DTYPE_INT32, 1, 1, 0, 0, 0, 0, 0};
    aoticache_key keys[11];
    for (int i = 0; i <= 10; i++)
        keys[i] = key_of(i, values[i]);
    cr_expect(aoticache_digest_equal(&keys[0], &keys[6]), "absent strides are the contiguous ones");
    for (int i = 0; i <= 10; i++)
        for (int j = 0; j < i; j++)
            cr_expect(aoticache_digest_equal(&keys[i], &keys[j]) == (i == 6 && j == 0), "%d and %d", i, j);
}
