/*
 * Decoding untrusted bytes: every encoding that is damaged, cut off or not canonical is refused, and what is accepted
 * encodes to the same bytes again.
 */
#include "cache/eager_face.h"
#include "cache/request/request.h"
#include "cache/request/text.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const aoticache_device cpu = {AOTICACHE_DEVICE_TYPE_CPU, -1};

static void encode(const aoticache_request *request, uint8_t **ret_bytes, size_t *ret_size)
{
    aoticache_error error = {0};
    cr_assert_eq(aoticache_request_encode(request, ret_bytes, ret_size, &error), AOTICACHE_OK, "%s", error.message);
}

/* Adds one argument of every kind except lists, without names. */
static void add_all_kinds(aoticache_request *request)
{
    const int64_t sizes[3] = {2, 3, 1}, strides[3] = {1, 2, 40};
    const aoticache_digest digest = {{1, 2, 3}};
    aoticache_tensor_metadata metadata = {.dtype = AOTICACHE_DTYPE_FLOAT32,
                                          .device = cpu,
                                          .ndim = 3,
                                          .sizes = sizes,
                                          .strides = strides,
                                          .requires_grad = true,
                                          .dispatch_key_set = UINT64_C(0x8000000000000001)};
    cr_assert_eq(aoticache_request_add_none(request, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_tensor(request, NULL, &metadata, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_constant(request, NULL, &metadata, NULL, &digest, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_int(request, NULL, -1, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_double(request, NULL, 0.0 / 0.0, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_bool(request, NULL, true, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_complex(request, NULL, 1, -2, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_string(request, NULL, "na\xc3\xafve", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_device(request, NULL, cpu, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_dtype(request, NULL, AOTICACHE_DTYPE_BOOL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_layout(request, NULL, AOTICACHE_LAYOUT_STRIDED, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_memory_format(request, NULL, AOTICACHE_MEMORY_FORMAT_PRESERVE, NULL),
                 AOTICACHE_OK);
}

static void encode_everything(uint8_t **ret_bytes, size_t *ret_size)
{
    aoticache_request *request = NULL;
    cr_assert_eq(aoticache_request_create("test::everything.all", cpu, &request, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_set_environment(request, "arch", "x86_64", NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_set_environment(request, "torch", "2.13.0", NULL), AOTICACHE_OK);
    add_all_kinds(request);
    cr_assert_eq(aoticache_request_begin_list(request, "list", NULL), AOTICACHE_OK);
    add_all_kinds(request);
    cr_assert_eq(aoticache_request_end_list(request, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_int(request, "alpha", 2, NULL), AOTICACHE_OK);
    encode(request, ret_bytes, ret_size);
    aoticache_request_free(request);
}

/* Checks that bytes are either refused as INVALID, or are exactly the encoding of the decoded request. */
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

Test(request_decode, truncated_or_longer_is_refused)
{
    uint8_t *bytes;
    size_t size;
    bool accepted;
    encode_everything(&bytes, &size);
    for (size_t shorter = 0; shorter < size; shorter++) {
        uint8_t *copy = malloc(shorter + 1); /* a separate block, so that a sanitizer sees a read past the end */
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

/* Makes one change of a kind that finds bugs: a bit, a byte, a large length, a piece copied, removed or put twice. */
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

Test(request_decode, mutated_is_refused_or_faithful)
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

/* Offsets of the fields in the encoding of one tensor argument (docs/formats/key.md, the example). */
enum {
    AT_VERSION = 14,
    AT_DEVICE_INDEX = 33,
    AT_TENSOR = 68,
    AT_REQUIRES_GRAD = AT_TENSOR + 16,
    AT_NDIM = AT_TENSOR + 25,
    AT_SIZE = AT_TENSOR + 29
};

static void refuse_changed(size_t position, uint8_t value, const char *part)
{
    const int64_t sizes[1] = {2};
    aoticache_tensor_metadata metadata = {.dtype = AOTICACHE_DTYPE_FLOAT32, .device = cpu, .ndim = 1, .sizes = sizes};
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

Test(request_decode, not_canonical_is_refused)
{
    refuse_changed(0, 'A', "does not begin with");
    refuse_changed(AT_VERSION, 2, "version 2; this library knows 1");
    refuse_changed(AT_DEVICE_INDEX, 1, "index");
    refuse_changed(AT_REQUIRES_GRAD, 2, "differs at byte 84");
    refuse_changed(AT_NDIM, 65, "65; at most 64");
    refuse_changed(AT_SIZE + 7, 0x80, "must not be negative");
    refuse_changed(AT_SIZE + 7, 0x7f, "more than 2^63-1 bytes");
    refuse_changed(AT_TENSOR - 1, 12, "bytes follow");
    refuse_changed(AT_TENSOR - 1, 13, "kind 13");
}

/* Decodes an encoding made from pieces: an environment of the given pairs, and the given arguments. */
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

#define EXPECT(expected, part, environment, arguments)                                             \
    do {                                                                                           \
        aoticache_error error = {0};                                                               \
        expect_pieces(DECODE(environment, arguments, &error), AOTICACHE_##expected, &error, part); \
    } while (0)

Test(request_decode, environment_has_one_order)
{
    EXPECT(OK, "", ARCH, NO_ARGUMENTS);
    EXPECT(OK, "", "\2\0\0\0\4\0\0\0arch\3\0\0\0x86\1\0\0\0b\0\0\0\0", NO_ARGUMENTS);
    EXPECT(INVALID, "differs at byte", "\2\0\0\0\1\0\0\0b\0\0\0\0\4\0\0\0arch\3\0\0\0x86", NO_ARGUMENTS);
    EXPECT(INVALID, "differs at byte", "\2\0\0\0\4\0\0\0arch\3\0\0\0x86\4\0\0\0arch\3\0\0\0x86", NO_ARGUMENTS);
    EXPECT(INVALID, "differs at byte", "\0\0\0\0", NO_ARGUMENTS);
    EXPECT(INVALID, "at most 255", "\0\1\0\0", NO_ARGUMENTS);
    EXPECT(INVALID, "zero byte",
           "\1\0\0\0\4\0\0\0arch\3\0\0\0x\0"
           "6",
           NO_ARGUMENTS);
}

Test(request_decode, values_have_one_form)
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
    EXPECT(INVALID, "65537; at most 65536", ARCH, "\1\0\0\0\0\0\0\0\7\1\0\1\0");
}

Test(request_decode, lists_and_names_keep_their_rules)
{
    EXPECT(OK, "", ARCH, "\1\0\0\0\0\0\0\0\x0c\0\0\0\0");
    EXPECT(OK, "", ARCH, "\1\0\0\0\1\0\0\0x\x0c\2\0\0\0\0\0");
    EXPECT(INVALID, "kind 12", ARCH, "\1\0\0\0\0\0\0\0\x0c\1\0\0\0\x0c\0\0\0\0");
    EXPECT(INVALID, "at most 65535", ARCH, "\1\0\0\0\0\0\0\0\x0c\0\0\1\0");
    EXPECT(INVALID, "at most 65535", ARCH, "\0\0\1\0");
    EXPECT(INVALID, "was already added", ARCH, "\2\0\0\0\1\0\0\0x\0\1\0\0\0x\0");
    EXPECT(INVALID, "positional", ARCH, "\2\0\0\0\1\0\0\0x\0\0\0\0\0\0");
    EXPECT(INVALID, "4294967295; at most 255", ARCH, "\1\0\0\0\xff\xff\xff\xff\0");
    EXPECT(INVALID, "1 bytes follow", ARCH, NO_ARGUMENTS "\0");
}

Test(request_decode, null_and_too_large_are_refused)
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
