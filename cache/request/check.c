/*
 * cache/request/check: checks the operator names, keywords, texts, devices and tensors of a request.
 *
 * Implements the rules of docs/formats/key.md for single parts, with their error messages. The rules between arguments
 * (order, lists, limits of the whole) are in add.c.
 */
#include "base/names.h"
#include "cache/request/request_internal.h"

#include <stdio.h>
#include <string.h>

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns how many of the characters from `text` on are letters, digits or '_'. */
static size_t word_length(const char *text)
{
    size_t length = 0;
    while (is_letter(text[length]) || is_digit(text[length]))
        length++;
    return length;
}

/* Reports the position of the wrong byte of a name; the name itself may contain anything and is not repeated. */
static bool refuse_byte(char *ret_reason, const char *what, const char *text, size_t position, const char *expected)
{
    unsigned char byte = (unsigned char)text[position];
    if (byte == '\0')
        snprintf(ret_reason, REQUEST_REASON_BYTES, "%s ends after %zu bytes; expected %s", what, position, expected);
    else if (byte > ' ' && byte < 0x7f)
        snprintf(ret_reason, REQUEST_REASON_BYTES, "%s has '%c' at byte %zu; expected %s", what, byte, position,
                 expected);
    else
        snprintf(ret_reason, REQUEST_REASON_BYTES, "%s has byte 0x%02x at byte %zu; expected %s", what, byte, position,
                 expected);
    return false;
}

static bool refuse_length(char *ret_reason, const char *what, size_t length, size_t limit)
{
    snprintf(ret_reason, REQUEST_REASON_BYTES, "%s has %zu bytes; at most %zu are allowed", what, length, limit);
    return false;
}

bool aoticache_request_check_op(const char *op, char ret_reason[REQUEST_REASON_BYTES])
{
    size_t length = strnlen(op, REQUEST_MAX_OP_BYTES + 1);
    if (length > REQUEST_MAX_OP_BYTES)
        return refuse_length(ret_reason, "the operator's name", strlen(op), REQUEST_MAX_OP_BYTES);
    size_t at = word_length(op);
    if (at == 0 || strncmp(op + at, "::", 2) != 0)
        return refuse_byte(ret_reason, "the operator's name", op, at, "\"namespace::name\"");
    size_t name = word_length(op + at + 2);
    at += 2 + name;
    if (name == 0)
        return refuse_byte(ret_reason, "the operator's name", op, at, "a name");
    if (op[at] == '.') {
        const char *overload = op + at + 1;
        size_t overload_length = word_length(overload);
        if (overload_length == 0)
            return refuse_byte(ret_reason, "the operator's name", op, at + 1, "an overload");
        if (strcmp(overload, "default") == 0) {
            snprintf(ret_reason, REQUEST_REASON_BYTES, "the overload \"default\" is written without it: %.*s", (int)at,
                     op);
            return false;
        }
        at += 1 + overload_length;
    }
    if (op[at] != '\0')
        return refuse_byte(ret_reason, "the operator's name", op, at, "a letter, a digit, '_' or the end");
    return true;
}

bool aoticache_request_check_keyword(const char *name, char ret_reason[REQUEST_REASON_BYTES])
{
    size_t length = strnlen(name, REQUEST_MAX_NAME_BYTES + 1);
    if (length > REQUEST_MAX_NAME_BYTES)
        return refuse_length(ret_reason, "the keyword", strlen(name), REQUEST_MAX_NAME_BYTES);
    if (!is_letter(name[0]))
        return refuse_byte(ret_reason, "the keyword", name, 0, "a letter or '_'");
    size_t at = word_length(name);
    if (name[at] != '\0')
        return refuse_byte(ret_reason, "the keyword", name, at, "a letter, a digit or '_'");
    return true;
}

bool aoticache_request_check_environment(const char *name, const char *value, char ret_reason[REQUEST_REASON_BYTES])
{
    const char *what = "the environment's name";
    size_t length = strnlen(name, REQUEST_MAX_ENVIRONMENT_NAME_BYTES + 1);
    if (length > REQUEST_MAX_ENVIRONMENT_NAME_BYTES)
        return refuse_length(ret_reason, what, strlen(name), REQUEST_MAX_ENVIRONMENT_NAME_BYTES);
    size_t at = 0;
    while (is_letter(name[at]) || is_digit(name[at]) || name[at] == '.' || name[at] == '-')
        at++;
    if (at == 0 || name[at] != '\0')
        return refuse_byte(ret_reason, what, name, at, "a letter, a digit, '_', '.' or '-'");
    size_t value_length = strlen(value);
    if (value_length > REQUEST_MAX_ENVIRONMENT_VALUE_BYTES) {
        snprintf(ret_reason, REQUEST_REASON_BYTES,
                 "the environment's value of %s has %zu bytes; at most %d are allowed", name, value_length,
                 REQUEST_MAX_ENVIRONMENT_VALUE_BYTES);
        return false;
    }
    if (!aoticache_request_is_utf8(value, value_length)) {
        snprintf(ret_reason, REQUEST_REASON_BYTES, "the environment's value of %s is not UTF-8", name);
        return false;
    }
    return true;
}

bool aoticache_request_check_string(const char *value, char ret_reason[REQUEST_REASON_BYTES])
{
    size_t length = strlen(value);
    if (length > REQUEST_MAX_STRING_BYTES)
        return refuse_length(ret_reason, "the string", length, REQUEST_MAX_STRING_BYTES);
    if (!aoticache_request_is_utf8(value, length)) {
        snprintf(ret_reason, REQUEST_REASON_BYTES, "the string is not UTF-8");
        return false;
    }
    return true;
}

bool aoticache_request_check_device(aoticache_device *device, char ret_reason[REQUEST_REASON_BYTES])
{
    const char *name = aoticache_device_type_name(device->type);
    if (name == NULL) {
        snprintf(ret_reason, REQUEST_REASON_BYTES, "unknown device type %d", (int)device->type);
        return false;
    }
    bool is_cpu = device->type == AOTICACHE_DEVICE_TYPE_CPU;
    int limit = is_cpu ? 0 : REQUEST_MAX_DEVICE_INDEX;
    if (device->index < -1 || device->index > limit) {
        snprintf(ret_reason, REQUEST_REASON_BYTES, "device %s has index %d; it must be from -1 to %d", name,
                 (int)device->index, limit);
        return false;
    }
    if (is_cpu) /* there is one CPU: "cpu:0" is "cpu" */
        device->index = -1;
    return true;
}

static bool refuse_dimension(char *ret_reason, const char *what, uint32_t dimension, int64_t value)
{
    snprintf(ret_reason, REQUEST_REASON_BYTES, "%s of dimension %u is %lld; it must not be negative", what,
             (unsigned)dimension, (long long)value);
    return false;
}

/* Computes the bytes of a contiguous tensor, sizes of 0 counted as 1 so that the strides fit too. */
static bool check_sizes(const aoticache_tensor_metadata *metadata, int64_t element_size, char *ret_reason)
{
    int64_t bytes = element_size;
    for (uint32_t i = 0; i < metadata->ndim; i++) {
        int64_t size = metadata->sizes[i];
        if (size < 0)
            return refuse_dimension(ret_reason, "the size", i, size);
        if (__builtin_mul_overflow(bytes, size > 1 ? size : 1, &bytes)) {
            snprintf(ret_reason, REQUEST_REASON_BYTES, "the tensor has more than 2^63-1 bytes");
            return false;
        }
    }
    return true;
}

/* Computes the bytes from the first to the last element. */
static bool check_strides(const aoticache_tensor_metadata *metadata, int64_t element_size, char *ret_reason)
{
    int64_t span = 1;
    bool overflow = false;
    for (uint32_t i = 0; i < metadata->ndim; i++) {
        int64_t steps = metadata->sizes[i] > 1 ? metadata->sizes[i] - 1 : 0;
        int64_t stride = metadata->strides[i], distance = 0;
        if (stride < 0)
            return refuse_dimension(ret_reason, "the stride", i, stride);
        overflow = overflow || __builtin_mul_overflow(steps, stride, &distance) ||
                   __builtin_add_overflow(span, distance, &span);
    }
    if (overflow || __builtin_mul_overflow(span, element_size, &span)) {
        snprintf(ret_reason, REQUEST_REASON_BYTES, "the tensor's strides span more than 2^63-1 bytes");
        return false;
    }
    return true;
}

bool aoticache_request_check_metadata(aoticache_tensor_metadata *metadata, char ret_reason[REQUEST_REASON_BYTES])
{
    int64_t element_size = (int64_t)aoticache_dtype_size(metadata->dtype);
    if (element_size == 0) {
        snprintf(ret_reason, REQUEST_REASON_BYTES, "unknown dtype %d", (int)metadata->dtype);
        return false;
    }
    if (aoticache_layout_name(metadata->layout) == NULL) {
        snprintf(ret_reason, REQUEST_REASON_BYTES, "unknown layout %d", (int)metadata->layout);
        return false;
    }
    if (!aoticache_request_check_device(&metadata->device, ret_reason))
        return false;
    if (metadata->ndim > AOTICACHE_MAX_DIMS) {
        snprintf(ret_reason, REQUEST_REASON_BYTES, "the tensor has %u dimensions; at most %d are allowed",
                 (unsigned)metadata->ndim, AOTICACHE_MAX_DIMS);
        return false;
    }
    if (metadata->ndim > 0 && metadata->sizes == NULL) {
        snprintf(ret_reason, REQUEST_REASON_BYTES, "the tensor has %u dimensions but no sizes",
                 (unsigned)metadata->ndim);
        return false;
    }
    if (!check_sizes(metadata, element_size, ret_reason))
        return false;
    return metadata->strides == NULL || check_strides(metadata, element_size, ret_reason);
}

void aoticache_request_contiguous_strides(uint32_t ndim, const int64_t *sizes, int64_t *ret_strides)
{
    int64_t stride = 1;
    for (uint32_t i = ndim; i-- > 0;) {
        ret_strides[i] = stride;
        stride *= sizes[i] > 1 ? sizes[i] : 1;
    }
}

/* Returns the length of the well-formed sequence at `text`, 0 if there is none (Unicode, table 3-7). */
static size_t utf8_sequence(const unsigned char *text, size_t left)
{
    unsigned char first = text[0];
    if (first < 0x80)
        return first != 0;
    size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || length > left)
        return 0;
    unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (text[1] < low || text[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

bool aoticache_request_is_utf8(const char *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        size_t length = utf8_sequence((const unsigned char *)text + at, size - at);
        if (length == 0)
            return false;
        at += length;
    }
    return true;
}
