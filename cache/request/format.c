/*
 * cache/request/format: writes a request as one human-readable line.
 *
 * The environment and dispatch key sets are left out. The result is always one line: texts are escaped, and numbers look the
 * same in every locale.
 */
#include "base/names.h"
#include "cache/request/request_internal.h"
#include "cache/request/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Continues counting after the text no longer fits. */
struct text {
    char *out;
    size_t size, length;
};

static void add(struct text *text, const char *piece, size_t size)
{
    if (text->length < text->size) {
        size_t left = text->size - text->length;
        memcpy(text->out + text->length, piece, size < left ? size : left);
    }
    text->length += size;
}

static void add_text(struct text *text, const char *piece)
{
    add(text, piece, strlen(piece));
}

/* Adds a short formatted piece. */
AOTICACHE_PRINTF(2, 3)
static void add_format(struct text *text, const char *format, ...)
{
    char piece[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    add_text(text, piece);
}

/* Adds the known name, or the number. */
static void add_name(struct text *text, const char *name, int64_t number)
{
    if (name != NULL)
        add_text(text, name);
    else
        add_format(text, "%lld", (long long)number);
}

/* Replaces the locale's decimal separator, of any length, with '.'. */
static void replace_decimal_point(char *number)
{
    size_t start = strcspn(number, "0123456789");
    start += strspn(number + start, "0123456789");
    size_t end = start + strcspn(number + start, "0123456789e");
    if (end == start)
        return;
    number[start] = '.';
    memmove(number + start + 1, number + end, strlen(number + end) + 1);
}

/* Adds the shortest text that gives the value back, with a point or an exponent so that 1.0 is not read as the int 1. */
static void add_double(struct text *text, double value, const char *sign)
{
    char number[64];
    if (value != value || value - value != 0) {
        add_text(text, value != value ? sign : value < 0 ? "-" : sign);
        add_text(text, value != value ? "nan" : "inf");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, value);
        if (strtod(number, NULL) == value)
            break;
    }
    replace_decimal_point(number);
    if (number[0] != '-')
        add_text(text, sign);
    add_text(text, number);
    if (strpbrk(number, ".e") == NULL)
        add_text(text, ".0");
}

/* Escapes control characters of C0 and C1 and the two line separators of Unicode, which would break the line or control a
 * terminal. */
static size_t add_escaped_unicode(struct text *text, const unsigned char *at)
{
    if (at[0] == 0xc2 && at[1] < 0xa0) {
        add_format(text, "\\u%04x", (unsigned)at[1]);
        return 2;
    }
    if (at[0] == 0xe2 && at[1] == 0x80 && (at[2] == 0xa8 || at[2] == 0xa9)) {
        add_format(text, "\\u20%02x", at[2] - 0x80u);
        return 3;
    }
    return 0;
}

static void add_string(struct text *text, const char *value)
{
    const unsigned char *at = (const unsigned char *)value;
    add_text(text, "\"");
    while (*at != '\0') {
        size_t escaped = add_escaped_unicode(text, at);
        if (escaped > 0) {
            at += escaped;
            continue;
        }
        if (*at == '"' || *at == '\\')
            add_format(text, "\\%c", *at);
        else if (*at == '\n')
            add_text(text, "\\n");
        else if (*at == '\t')
            add_text(text, "\\t");
        else if (*at < ' ' || *at == 0x7f)
            add_format(text, "\\x%02x", (unsigned)*at);
        else
            add(text, (const char *)at, 1);
        at++;
    }
    add_text(text, "\"");
}

static void add_device(struct text *text, aoticache_device device)
{
    char name[AOTICACHE_DEVICE_TEXT_BYTES];
    aoticache_device_format(device, name);
    add_text(text, name);
}

static void add_extents(struct text *text, const char *open, const int64_t *extents, uint32_t count, const char *close)
{
    add_text(text, open);
    for (uint32_t i = 0; i < count; i++)
        add_format(text, "%s%lld", i > 0 ? ", " : "", (long long)extents[i]);
    add_text(text, close);
}

static bool is_contiguous(const aoticache_tensor_metadata *metadata)
{
    int64_t strides[AOTICACHE_MAX_DIMS];
    aoticache_request_contiguous_strides(metadata->ndim, metadata->sizes, strides);
    return metadata->ndim == 0 || memcmp(strides, metadata->strides, metadata->ndim * sizeof *strides) == 0;
}

/* Adds "const float32[3, 4]{1, 3}#1a2b3c4d@cuda:1 sparse_coo requires_grad": each part only if it is not the default. */
static void add_tensor(struct text *text, const aoticache_request *request, const aoticache_argument *argument)
{
    const aoticache_tensor_metadata *metadata = &argument->value.tensor.metadata;
    const uint8_t *digest = argument->value.tensor.data_digest.bytes;
    bool is_constant = argument->kind == AOTICACHE_ARGUMENT_CONSTANT;
    add_text(text, is_constant ? "const " : "");
    add_name(text, aoticache_dtype_name(metadata->dtype), metadata->dtype);
    add_extents(text, "[", metadata->sizes, metadata->ndim, "]");
    if (!is_contiguous(metadata))
        add_extents(text, "{", metadata->strides, metadata->ndim, "}");
    if (is_constant)
        add_format(text, "#%02x%02x%02x%02x", digest[0], digest[1], digest[2], digest[3]);
    if (metadata->device.type != request->info.device.type || metadata->device.index != request->info.device.index) {
        add_text(text, "@");
        add_device(text, metadata->device);
    }
    if (metadata->layout != AOTICACHE_LAYOUT_STRIDED) {
        add_text(text, " ");
        add_name(text, aoticache_layout_name(metadata->layout), metadata->layout);
    }
    add_text(text, metadata->requires_grad ? " requires_grad" : "");
}

/* Adds anything except a list. */
static void add_item(struct text *text, const aoticache_request *request, const aoticache_argument *item)
{
    int64_t number = item->value.int_value;
    switch (item->kind) {
    case AOTICACHE_ARGUMENT_NONE:
        add_text(text, "none");
        break;
    case AOTICACHE_ARGUMENT_TENSOR:
    case AOTICACHE_ARGUMENT_CONSTANT:
        add_tensor(text, request, item);
        break;
    case AOTICACHE_ARGUMENT_INT:
        add_format(text, "%lld", (long long)number);
        break;
    case AOTICACHE_ARGUMENT_DOUBLE:
        add_double(text, item->value.double_value, "");
        break;
    case AOTICACHE_ARGUMENT_BOOL:
        add_text(text, item->value.bool_value ? "true" : "false");
        break;
    case AOTICACHE_ARGUMENT_COMPLEX:
        add_double(text, item->value.complex_value[0], "");
        add_double(text, item->value.complex_value[1], "+");
        add_text(text, "j");
        break;
    case AOTICACHE_ARGUMENT_STRING:
        add_string(text, item->value.string_value);
        break;
    case AOTICACHE_ARGUMENT_DEVICE:
        add_device(text, item->value.device_value);
        break;
    case AOTICACHE_ARGUMENT_DTYPE:
        add_name(text, aoticache_dtype_name((int32_t)number), number);
        break;
    case AOTICACHE_ARGUMENT_LAYOUT:
        add_name(text, aoticache_layout_name((int32_t)number), number);
        break;
    case AOTICACHE_ARGUMENT_MEMORY_FORMAT:
        add_name(text, aoticache_memory_format_name((int32_t)number), number);
        break;
    case AOTICACHE_ARGUMENT_LIST:
        break;
    }
}

static void add_argument(struct text *text, const aoticache_request *request, const aoticache_argument *argument)
{
    if (argument->name[0] != '\0') {
        add_text(text, argument->name);
        add_text(text, "=");
    }
    if (argument->kind != AOTICACHE_ARGUMENT_LIST) {
        add_item(text, request, argument);
        return;
    }
    add_text(text, "[");
    for (size_t i = 0; i < argument->value.list.count; i++) {
        add_text(text, i > 0 ? ", " : "");
        add_item(text, request, argument->value.list.items + i);
    }
    add_text(text, "]");
}

size_t aoticache_request_format(const aoticache_request *request, char *ret_text, size_t size)
{
    struct text text = {.out = ret_text, .size = size};
    add_text(&text, request->info.op);
    add_text(&text, "(");
    for (size_t i = 0; i < request->arguments.count; i++) {
        add_text(&text, i > 0 ? ", " : "");
        add_argument(&text, request, request->arguments.views + i);
    }
    add_text(&text, ") on ");
    add_device(&text, request->info.device);
    if (size > 0)
        ret_text[text.length < size ? text.length : size - 1] = '\0';
    return text.length;
}
