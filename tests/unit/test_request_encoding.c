/*
 * Encodings and keys: against the vectors that an independent program wrote from docs/key.md (tests/golden/key), back
 * and forth, and with damage. Run from the root of the repository.
 */
#include "cache/request.h"

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
    static uint8_t data[16]; /* borrowed by the request, and nothing here looks at it again */
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
        cr_expect_null(aoticache_request_constant_data(decoded, 1));
        free(bytes);
        free(again);
        aoticache_request_free(request);
        aoticache_request_free(decoded);
    }
    json_decref(file);
}

/* A request that has every kind in it. */
static void encode_everything(uint8_t **ret_bytes, size_t *ret_size)
{
    json_t *file = load_vectors(), *vector;
    size_t i;
    *ret_bytes = NULL;
    json_array_foreach(json_object_get(file, "vectors"), i, vector)
    {
        if (strcmp(json_string_value(json_object_get(vector, "name")), "lists of everything") != 0)
            continue;
        aoticache_request *request = build(vector);
        encode(request, ret_bytes, ret_size);
        aoticache_request_free(request);
    }
    json_decref(file);
    cr_assert_not_null(*ret_bytes);
}

/* Either refused as INVALID, or the very bytes that the decoded request encodes to. */
static bool decode_is_faithful(const uint8_t *bytes, size_t size, bool *ret_accepted)
{
    aoticache_request *request = NULL;
    aoticache_error error = {0};
    aoticache_status status = aoticache_request_decode(bytes, size, &request, &error);
    *ret_accepted = status == AOTICACHE_OK;
    if (status != AOTICACHE_OK)
        return status == AOTICACHE_INVALID && request == NULL && error.message[0] != '\0' &&
               strchr(error.message, '\n') == NULL;
    uint8_t *again = NULL;
    size_t again_size = 0;
    encode(request, &again, &again_size);
    bool same = again_size == size && memcmp(again, bytes, size) == 0;
    free(again);
    aoticache_request_free(request);
    return same;
}

Test(request_encoding, decode_truncated_or_longer_is_refused)
{
    uint8_t *bytes;
    size_t size;
    bool accepted;
    encode_everything(&bytes, &size);
    for (size_t shorter = 0; shorter < size; shorter++) {
        uint8_t *copy = malloc(shorter + 1); /* of its own, so that a sanitizer sees a read past the end */
        memcpy(copy, bytes, shorter);
        cr_expect(decode_is_faithful(copy, shorter, &accepted) && !accepted, "%zu bytes", shorter);
        free(copy);
    }
    bytes = realloc(bytes, size + 1);
    bytes[size] = 0;
    cr_expect(decode_is_faithful(bytes, size + 1, &accepted) && !accepted);
    free(bytes);
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* One change of a kind that finds mistakes: a bit, a byte, a large length, a piece copied, removed or put twice. */
static size_t mutate(uint8_t *bytes, size_t size, size_t capacity, uint64_t *state)
{
    size_t at = next_random(state) % size, from = next_random(state) % size;
    size_t longest = size - (at > from ? at : from), length = 1 + next_random(state) % 16;
    length = length < longest ? length : longest;
    switch (next_random(state) % 6) {
    case 0:
        bytes[at] ^= (uint8_t)(1u << next_random(state) % 8);
        return size;
    case 1:
        bytes[at] = (uint8_t)next_random(state);
        return size;
    case 2:
        memset(bytes + at, next_random(state) % 2 ? 0xff : 0, length < 4 ? length : 4);
        return size;
    case 3:
        memmove(bytes + at, bytes + from, length);
        return size;
    case 4:
        memmove(bytes + at, bytes + at + length, size - at - length);
        return size - length > 0 ? size - length : 1;
    default:
        if (size + length > capacity)
            return size;
        memmove(bytes + at + length, bytes + at, size - at);
        return size + length;
    }
}

Test(request_encoding, decode_mutated_is_refused_or_faithful)
{
    uint8_t *bytes;
    size_t size, accepted_count = 0;
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    encode_everything(&bytes, &size);
    for (int round = 0; round < 20000; round++) {
        size_t capacity = size + 64, mutated = size;
        uint8_t *copy = malloc(capacity);
        bool accepted = false;
        memcpy(copy, bytes, size);
        for (uint64_t changes = 1 + next_random(&state) % 3; changes > 0; changes--)
            mutated = mutate(copy, mutated, capacity, &state);
        uint8_t *exact = malloc(mutated);
        memcpy(exact, copy, mutated);
        cr_assert(decode_is_faithful(exact, mutated, &accepted), "round %d", round);
        accepted_count += accepted;
        free(exact);
        free(copy);
    }
    cr_expect_gt(accepted_count, 100, "nearly nothing was accepted, so nearly nothing was compared");
    cr_expect_lt(accepted_count, 19000);
    free(bytes);
}

/* The encoding of one tensor argument, and where its fields lie (docs/key.md, the example). */
enum { AT_VERSION = 14, AT_DEVICE_INDEX = 33, AT_TENSOR = 68, AT_REQUIRES_GRAD = AT_TENSOR + 16,
       AT_NDIM = AT_TENSOR + 25, AT_SIZE = AT_TENSOR + 29 };

static void refuse_changed(size_t position, uint8_t value, const char *part)
{
    const int64_t sizes[1] = {2};
    aoticache_tensor_metadata metadata = {
        .dtype = AOTICACHE_DTYPE_FLOAT32, .device = cpu, .ndim = 1, .sizes = sizes};
    aoticache_request *request = NULL, *decoded = NULL;
    aoticache_error error = {0};
    uint8_t *bytes = NULL;
    size_t size = 0;
    cr_assert_eq(aoticache_request_create("aten::abs", cpu, &request, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_set_environment(request, "arch", "x86_64", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_tensor(request, NULL, &metadata, NULL), AOTICACHE_OK);
    encode(request, &bytes, &size);
    cr_assert_eq(size, AT_SIZE + 16);
    bytes[position] = value;
    cr_expect_eq(aoticache_request_decode(bytes, size, &decoded, &error), AOTICACHE_INVALID, "byte %zu", position);
    cr_expect_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
    free(bytes);
    aoticache_request_free(request);
}

Test(request_encoding, decode_not_canonical_is_refused)
{
    refuse_changed(0, 'A', "does not begin with");
    refuse_changed(AT_VERSION, 2, "version 2, this library knows 1");
    refuse_changed(AT_DEVICE_INDEX, 1, "index");
    refuse_changed(AT_REQUIRES_GRAD, 2, "differs at byte 84");
    refuse_changed(AT_NDIM, 65, "65, at most 64");
    refuse_changed(AT_SIZE + 7, 0x80, "must not be negative");
    refuse_changed(AT_SIZE + 7, 0x7f, "more than 2^63-1 bytes");
    refuse_changed(AT_TENSOR - 1, 12, "bytes follow");
    refuse_changed(AT_TENSOR - 1, 13, "kind 13");
}

/* Pieces of text that stand for a whole encoding: an environment of the given pairs, and the given arguments. */
static aoticache_status decode_pieces(const char *environment, size_t environment_size, const char *arguments,
                                      size_t arguments_size, aoticache_error *ret_error)
{
    static const char head[] = "aoticache key\0\1\0\4\0\0\0a::b\0\0\0\0\xff\xff\xff\xff";
    uint8_t bytes[512];
    size_t size = sizeof head - 1;
    aoticache_request *request = NULL;
    memcpy(bytes, head, size);
    memcpy(bytes + size, environment, environment_size);
    size += environment_size;
    memcpy(bytes + size, arguments, arguments_size);
    size += arguments_size;
    aoticache_status status = aoticache_request_decode(bytes, size, &request, ret_error);
    aoticache_request_free(request);
    return status;
}

#define ARCH "\1\0\0\0\4\0\0\0arch\3\0\0\0x86"
#define NO_ARGUMENTS "\0\0\0\0"
#define DECODE(environment, arguments, error) \
    decode_pieces(environment, sizeof environment - 1, arguments, sizeof arguments - 1, error)

static void expect_pieces(aoticache_status status, aoticache_status expected, const aoticache_error *error,
                          const char *part)
{
    cr_expect_eq(status, expected, "%s", part);
    if (expected != AOTICACHE_OK)
        cr_expect_not_null(strstr(error->message, part), "\"%s\" is not in \"%s\"", part, error->message);
}

#define EXPECT(expected, part, environment, arguments)                                         \
    do {                                                                                       \
        aoticache_error error = {0};                                                           \
        expect_pieces(DECODE(environment, arguments, &error), AOTICACHE_##expected, &error, part); \
    } while (0)

Test(request_encoding, decode_environment_has_one_order)
{
    EXPECT(OK, "", ARCH, NO_ARGUMENTS);
    EXPECT(OK, "", "\2\0\0\0\4\0\0\0arch\3\0\0\0x86\1\0\0\0b\0\0\0\0", NO_ARGUMENTS);
    EXPECT(INVALID, "differs at byte", "\2\0\0\0\1\0\0\0b\0\0\0\0\4\0\0\0arch\3\0\0\0x86", NO_ARGUMENTS);
    EXPECT(INVALID, "differs at byte", "\2\0\0\0\4\0\0\0arch\3\0\0\0x86\4\0\0\0arch\3\0\0\0x86", NO_ARGUMENTS);
    EXPECT(INVALID, "differs at byte", "\0\0\0\0", NO_ARGUMENTS);
    EXPECT(INVALID, "at most 255", "\0\1\0\0", NO_ARGUMENTS);
    EXPECT(INVALID, "zero byte", "\1\0\0\0\4\0\0\0arch\3\0\0\0x\0" "6", NO_ARGUMENTS);
}

Test(request_encoding, decode_values_have_one_form)
{
    EXPECT(OK, "", ARCH, "\1\0\0\0\0\0\0\0\4\0\0\0\0\0\0\xf8\x7f");
    EXPECT(INVALID, "differs at byte", ARCH, "\1\0\0\0\0\0\0\0\4\1\0\0\0\0\0\xf8\x7f");
    EXPECT(INVALID, "differs at byte", ARCH, "\1\0\0\0\0\0\0\0\4\0\0\0\0\0\0\xf8\xff");
    EXPECT(OK, "", ARCH, "\1\0\0\0\0\0\0\0\5\1");
    EXPECT(INVALID, "differs at byte", ARCH, "\1\0\0\0\0\0\0\0\5\2");
    EXPECT(OK, "", ARCH, "\1\0\0\0\0\0\0\0\x8\0\0\0\0\xff\xff\xff\xff");
    EXPECT(INVALID, "differs at byte", ARCH, "\1\0\0\0\0\0\0\0\x8\0\0\0\0\0\0\0\0");
    EXPECT(INVALID, "not UTF-8", ARCH, "\1\0\0\0\0\0\0\0\7\1\0\0\0\xff");
    EXPECT(INVALID, "dtype 12", ARCH, "\1\0\0\0\0\0\0\0\x9\x0c\0\0\0");
    EXPECT(INVALID, "65537, at most 65536", ARCH, "\1\0\0\0\0\0\0\0\7\1\0\1\0");
}

Test(request_encoding, decode_lists_and_names_keep_their_rules)
{
    EXPECT(OK, "", ARCH, "\1\0\0\0\0\0\0\0\x0c\0\0\0\0");
    EXPECT(OK, "", ARCH, "\1\0\0\0\1\0\0\0x\x0c\2\0\0\0\0\0");
    EXPECT(INVALID, "kind 12", ARCH, "\1\0\0\0\0\0\0\0\x0c\1\0\0\0\x0c\0\0\0\0");
    EXPECT(INVALID, "at most 65535", ARCH, "\1\0\0\0\0\0\0\0\x0c\0\0\1\0");
    EXPECT(INVALID, "at most 65535", ARCH, "\0\0\1\0");
    EXPECT(INVALID, "is there already", ARCH, "\2\0\0\0\1\0\0\0x\0\1\0\0\0x\0");
    EXPECT(INVALID, "positional", ARCH, "\2\0\0\0\1\0\0\0x\0\0\0\0\0\0");
    EXPECT(INVALID, "4294967295, at most 255", ARCH, "\1\0\0\0\xff\xff\xff\xff\0");
    EXPECT(INVALID, "1 bytes follow", ARCH, NO_ARGUMENTS "\0");
}

Test(request_encoding, decode_null_and_too_large_are_refused)
{
    aoticache_request *request = NULL;
    aoticache_error error = {0};
    cr_expect_eq(aoticache_request_decode(NULL, 4, &request, &error), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_request_decode((const uint8_t *)"x", 1, NULL, &error), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_request_decode((const uint8_t *)"x", SIZE_MAX, &request, &error), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "at most 16777216"));
    cr_expect_eq(aoticache_request_encode(NULL, NULL, NULL, &error), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_request_key(NULL, NULL, &error), AOTICACHE_INVALID);
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
