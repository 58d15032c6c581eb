/*
 * cache/request/text: reads a request from a line written by line.c: everything except the environment.
 *
 * The line is that of format.c followed by the dispatch key sets. The parser accepts printed lines and those that a user
 * would write: blanks between words, "on DEVICE" left out for the CPU. text_scan.c reads numbers and strings; the functions
 * that append the parts check them.
 */
#include "base/array.h"
#include "base/names.h"
#include "base/text/name_distance.h"
#include "cache/request/request_internal.h"

#include <stdlib.h>
#include <string.h>

#define KEY_SETS "key_sets"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* ---- tensors ---- */

/* Reads "[2, 3]" or "{1, 2}" from the opening bracket on. */
static aoticache_status read_extents(struct text_parser *parser, char close, int64_t ret_extents[AOTICACHE_MAX_DIMS],
                                     uint32_t *ret_count)
{
    uint32_t count = 0;
    parser->at++;
    if (aoticache_text_accept(parser, close)) {
        *ret_count = 0;
        return AOTICACHE_OK;
    }
    do {
        struct text_number number;
        aoticache_text_skip_blanks(parser);
        const char *start = parser->at;
        if (count == AOTICACHE_MAX_DIMS)
            return aoticache_text_refuse(parser, start, "a tensor has at most %d dimensions", AOTICACHE_MAX_DIMS);
        aoticache_status status = aoticache_text_read_number(parser, &number);
        if (status != AOTICACHE_OK)
            return status;
        if (!number.is_int || number.int_value < 0)
            return aoticache_text_refuse(parser, start, "sizes and strides are integers of 0 or more");
        ret_extents[count++] = number.int_value;
    } while (aoticache_text_accept(parser, ','));
    if (!aoticache_text_accept(parser, close))
        return aoticache_text_expected(parser, close == ']' ? "',' or ']'" : "',' or '}'");
    *ret_count = count;
    return AOTICACHE_OK;
}

/* Reads "cpu", "cuda:1". */
static aoticache_status read_device(struct text_parser *parser, aoticache_device *ret_device)
{
    char name[AOTICACHE_DEVICE_TEXT_BYTES];
    size_t length = aoticache_text_word_length(parser->at);
    if (length > 0 && parser->at[length] == ':')
        length += 1 + strspn(parser->at + length + 1, "0123456789");
    if (length == 0 || length >= sizeof name)
        return aoticache_text_expected(parser, "a device such as cpu or cuda:0");
    memcpy(name, parser->at, length);
    name[length] = '\0';
    if (aoticache_device_parse(name, ret_device) != AOTICACHE_OK)
        return aoticache_text_expected(parser, "a device such as cpu or cuda:0");
    parser->at += length;
    return AOTICACHE_OK;
}

/* Reads the optional part after sizes and strides: "@cuda:1 sparse_csr requires_grad". */
static aoticache_status read_tensor_end(struct text_parser *parser, aoticache_tensor_metadata *metadata)
{
    aoticache_status status = AOTICACHE_OK;
    metadata->device = parser->device;
    if (*parser->at == '#')
        return aoticache_text_refuse(parser, parser->at,
                                     "a digest is only allowed for a constant, and a line of text cannot contain a "
                                     "constant's data");
    if (*parser->at == '@') {
        parser->at++;
        status = read_device(parser, &metadata->device);
    }
    const char *before = parser->at;
    aoticache_text_skip_blanks(parser);
    char name[REQUEST_MAX_NAME_BYTES + 1];
    size_t length = aoticache_text_word_length(parser->at);
    if (length > 0 && aoticache_text_copy_name(parser, length, name) &&
        aoticache_layout_parse(name, &metadata->layout) == AOTICACHE_OK)
        parser->at += length;
    else
        parser->at = before;
    metadata->requires_grad = aoticache_text_accept_word(parser, "requires_grad");
    return status;
}

/* Reads a tensor from the '[' after the dtype on. */
static aoticache_status add_tensor(struct text_parser *parser, const char *name, int32_t dtype, const char *start)
{
    int64_t sizes[AOTICACHE_MAX_DIMS], strides[AOTICACHE_MAX_DIMS];
    aoticache_tensor_metadata metadata = {.dtype = dtype, .layout = AOTICACHE_LAYOUT_STRIDED, .sizes = sizes};
    uint32_t stride_count = 0;
    aoticache_status status = read_extents(parser, ']', sizes, &metadata.ndim);
    const char *braces = parser->at;
    if (status == AOTICACHE_OK && *braces == '{') {
        status = read_extents(parser, '}', strides, &stride_count);
        metadata.strides = strides;
        if (status == AOTICACHE_OK && stride_count != metadata.ndim)
            return aoticache_text_refuse(parser, braces, "%u strides for %u sizes", (unsigned)stride_count,
                                         (unsigned)metadata.ndim);
    }
    if (status == AOTICACHE_OK)
        status = read_tensor_end(parser, &metadata);
    if (status != AOTICACHE_OK)
        return status;
    size_t position = parser->tensor_count++;
    if (parser->key_set_count == 1)
        metadata.dispatch_key_set = parser->key_sets[0];
    else if (position < parser->key_set_count)
        metadata.dispatch_key_set = parser->key_sets[position];
    aoticache_error error = {.message = ""};
    status = aoticache_request_add_tensor(parser->request, name, &metadata, &error);
    return aoticache_text_located(parser, start, status, &error);
}

/* ---- arguments ---- */

static aoticache_status refuse_word(struct text_parser *parser, const char *start)
{
    parser->at = start;
    if (aoticache_text_is_word(start, "const"))
        return aoticache_text_refuse(parser, start,
                                     "a constant is not allowed: a line of text cannot contain its data");
    char word[REQUEST_MAX_NAME_BYTES + 1];
    const char *nearest = NULL;
    if (aoticache_text_copy_name(parser, aoticache_text_word_length(start), word))
        nearest = aoticache_nearest_argument_word(word);
    if (nearest != NULL)
        return aoticache_text_refuse(parser, start, "unknown name '%.64s'; did you mean %s?", word, nearest);
    return aoticache_text_expected(parser, "an argument: a tensor such as float32[2, 3], a number, \"text\", true, "
                                           "false, none, a list, a dtype, layout, memory format or device");
}

/* Reads a word with its own meaning: none, true, a dtype, a tensor, a layout, a memory format, a device. */
static aoticache_status add_word(struct text_parser *parser, const char *name)
{
    const char *start = parser->at;
    char word[REQUEST_MAX_NAME_BYTES + 1];
    size_t length = aoticache_text_word_length(start);
    int32_t number;
    aoticache_device device;
    aoticache_error error = {.message = ""};
    aoticache_request *request = parser->request;
    aoticache_status status;
    if (!aoticache_text_copy_name(parser, length, word))
        return refuse_word(parser, start);
    parser->at += length;
    if (strcmp(word, "none") == 0) {
        status = aoticache_request_add_none(request, name, &error);
    } else if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0) {
        status = aoticache_request_add_bool(request, name, word[0] == 't', &error);
    } else if (aoticache_dtype_parse(word, &number) == AOTICACHE_OK) {
        if (*parser->at == '[')
            return add_tensor(parser, name, number, start);
        status = aoticache_request_add_dtype(request, name, number, &error);
    } else if (aoticache_layout_parse(word, &number) == AOTICACHE_OK) {
        status = aoticache_request_add_layout(request, name, number, &error);
    } else if (aoticache_memory_format_parse(word, &number) == AOTICACHE_OK) {
        status = aoticache_request_add_memory_format(request, name, number, &error);
    } else {
        parser->at = start;
        struct text_parser quiet = *parser;
        quiet.error = NULL;
        if (read_device(&quiet, &device) != AOTICACHE_OK)
            return refuse_word(parser, start);
        parser->at = quiet.at;
        status = aoticache_request_add_device(request, name, device, &error);
    }
    return aoticache_text_located(parser, start, status, &error);
}

/* Reads anything except a list. */
static aoticache_status add_item(struct text_parser *parser, const char *name)
{
    bool is_int;
    aoticache_text_skip_blanks(parser);
    if (*parser->at == '"')
        return aoticache_text_add_string(parser, name);
    if (*parser->at == '-' || aoticache_text_number_length(parser->at, &is_int) > 0 || is_digit(*parser->at))
        return aoticache_text_add_number(parser, name);
    if (is_letter(*parser->at))
        return add_word(parser, name);
    if (*parser->at == '[')
        return aoticache_text_refuse(parser, parser->at, "a list cannot be in a list");
    return aoticache_text_expected(parser, "an argument");
}

static aoticache_status add_list(struct text_parser *parser, const char *name)
{
    const char *start = parser->at++;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_request_begin_list(parser->request, name, &error);
    if (status != AOTICACHE_OK)
        return aoticache_text_located(parser, start, status, &error);
    if (!aoticache_text_accept(parser, ']')) {
        do
            status = add_item(parser, NULL);
        while (status == AOTICACHE_OK && aoticache_text_accept(parser, ','));
        if (status != AOTICACHE_OK)
            return status;
        if (!aoticache_text_accept(parser, ']'))
            return aoticache_text_expected(parser, "',' or ']'");
    }
    return aoticache_text_located(parser, start, aoticache_request_end_list(parser->request, &error), &error);
}

/* Reads "NAME=" or nothing. */
static aoticache_status read_keyword(struct text_parser *parser, char ret_name[REQUEST_MAX_NAME_BYTES + 1])
{
    aoticache_text_skip_blanks(parser);
    size_t length = is_letter(*parser->at) ? aoticache_text_word_length(parser->at) : 0;
    const char *equals = parser->at + length + strspn(parser->at + length, " \t");
    ret_name[0] = '\0';
    if (length == 0 || *equals != '=')
        return AOTICACHE_OK;
    if (!aoticache_text_copy_name(parser, length, ret_name))
        return aoticache_text_refuse(parser, parser->at, "the keyword has %zu bytes, at most %d are allowed", length,
                                     REQUEST_MAX_NAME_BYTES);
    parser->at = equals + 1;
    return AOTICACHE_OK;
}

static aoticache_status read_arguments(struct text_parser *parser)
{
    char name[REQUEST_MAX_NAME_BYTES + 1];
    aoticache_status status = AOTICACHE_OK;
    if (!aoticache_text_accept(parser, ')')) {
        do {
            status = read_keyword(parser, name);
            aoticache_text_skip_blanks(parser);
            if (status == AOTICACHE_OK)
                status = *parser->at == '[' ? add_list(parser, name) : add_item(parser, name);
        } while (status == AOTICACHE_OK && aoticache_text_accept(parser, ','));
        if (status != AOTICACHE_OK)
            return status;
        if (!aoticache_text_accept(parser, ')'))
            return aoticache_text_expected(parser, "',' or ')'");
    }
    if (parser->at != parser->close + 1)
        return aoticache_text_expected(parser, "\"on DEVICE\" or the end of the line");
    if (parser->key_set_count > 1 && parser->key_set_count != parser->tensor_count)
        return aoticache_text_refuse(parser, parser->at, "%zu key sets for %zu tensors", parser->key_set_count,
                                     parser->tensor_count);
    return AOTICACHE_OK;
}

/* ---- the line ---- */

/* Reads "key_sets 0x10001, 0x10001". */
static aoticache_status read_key_sets(struct text_parser *parser)
{
    do {
        aoticache_text_skip_blanks(parser);
        size_t digits = strncmp(parser->at, "0x", 2) == 0 ? strspn(parser->at + 2, "0123456789abcdefABCDEF") : 0;
        if (digits == 0 || digits > 16)
            return aoticache_text_expected(parser, "a key set such as 0x10001");
        if (parser->key_set_count == REQUEST_MAX_ARGUMENTS)
            return aoticache_text_refuse(parser, parser->at, "more than %d key sets", REQUEST_MAX_ARGUMENTS);
        if (!AOTICACHE_ARRAY_RESERVE(parser->key_sets, parser->key_set_capacity, parser->key_set_count + 1))
            return aoticache_error_set(parser->error, AOTICACHE_NO_MEMORY, "request text: out of memory");
        parser->key_sets[parser->key_set_count++] = strtoull(parser->at + 2, NULL, 16);
        parser->at += 2 + digits;
    } while (aoticache_text_accept(parser, ','));
    return AOTICACHE_OK;
}

/* Reads the part after the arguments first: it has the device of tensors that name none. */
static aoticache_status read_end(struct text_parser *parser)
{
    aoticache_status status = AOTICACHE_OK;
    parser->at = parser->close + 1;
    if (aoticache_text_accept_word(parser, "on")) {
        aoticache_text_skip_blanks(parser);
        status = read_device(parser, &parser->device);
    }
    if (status == AOTICACHE_OK && aoticache_text_accept_word(parser, KEY_SETS))
        status = read_key_sets(parser);
    parser->at += strspn(parser->at, " \t\r\n");
    if (status == AOTICACHE_OK && *parser->at != '\0')
        return aoticache_text_expected(parser, "the end of the line");
    return status;
}

static aoticache_status read_operator(struct text_parser *parser)
{
    char op[REQUEST_MAX_OP_BYTES + 1];
    aoticache_text_skip_blanks(parser);
    const char *start = parser->at;
    size_t length = strcspn(start, "( \t\r\n");
    if (length == 0 || length > REQUEST_MAX_OP_BYTES)
        return aoticache_text_refuse(
            parser, start, "expected an operator such as aten::add.Tensor, of at most %d bytes", REQUEST_MAX_OP_BYTES);
    memcpy(op, start, length);
    op[length] = '\0';
    parser->at += length;
    if (!aoticache_text_accept(parser, '('))
        return aoticache_text_expected(parser, "'(' after the operator");
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_request_create(op, parser->device, &parser->request, &error);
    return aoticache_text_located(parser, start, status, &error);
}

aoticache_status aoticache_request_parse_text(const char *line, aoticache_request **ret_request,
                                              aoticache_error *ret_error)
{
    struct text_parser parser = {
        .text = line,
        .at = line,
        .close = strrchr(line, ')'),
        .device = AOTICACHE_DEVICE_CPU,
        .locale = newlocale(LC_ALL_MASK, "C", (locale_t)0),
        .error = ret_error,
    };
    aoticache_status status = AOTICACHE_OK;
    if (parser.locale == (locale_t)0)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "request text: out of memory");
    if (parser.close != NULL) /* otherwise reading the arguments reports the error and its position */
        status = read_end(&parser);
    parser.at = line;
    if (status == AOTICACHE_OK)
        status = read_operator(&parser);
    if (status == AOTICACHE_OK)
        status = read_arguments(&parser);
    if (status == AOTICACHE_OK)
        *ret_request = parser.request;
    else
        aoticache_request_free(parser.request);
    free(parser.key_sets);
    freelocale(parser.locale);
    return status;
}
