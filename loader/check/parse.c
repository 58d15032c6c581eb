/*
 * loader/check/parse: reads the text form of checks. docs/formats/checks.md has the grammar, loader/check/format.c
 * writes it.
 *
 * The text is untrusted. Every token is read by one function, which reports what was expected at which position; limits
 * are enforced while reading, so that a long text costs memory in proportion to its length at most. What the numbers
 * mean is examined by aoticache_check_create().
 */
#include "base/arguments.h"
#include "loader/check/check_internal.h"

#include "base/cleanup.h"
#include "base/names.h"
#include "base/text/name_distance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No name is longer than this, with its terminator. */
enum { WORD_BYTES = 32 };

struct parser {
    const char *text, *cursor; /* terminated */
    aoticache_error *ret_error;
    aoticache_tensor_pattern *patterns;
    size_t tensor_count, tensor_capacity;
    aoticache_dim *dims;
    size_t dim_count;
    aoticache_symbol symbols[AOTICACHE_CHECK_MAX_SYMBOLS];
    size_t symbol_count; /* 1 more than the highest seen */
    uint64_t with_range; /* symbols that have been given one */
};

/*
 * ---- tokens ----
 *
 * Spaces and tabs before a token are skipped. A function that returns false has not found its token; functions named
 * read_ have then set ret_error.
 */

/* Sets "position 9: expected a size, found 'x'", at the cursor. Returns false. */
static bool refuse_expected(const struct parser *parser, const char *what)
{
    char found[24];
    unsigned char byte = (unsigned char)*parser->cursor;
    if (byte == '\0')
        snprintf(found, sizeof found, "the end");
    else if (byte >= 0x20 && byte < 0x7f)
        snprintf(found, sizeof found, "'%c'", byte);
    else
        snprintf(found, sizeof found, "byte 0x%02x", byte);
    aoticache_error_set(parser->ret_error, AOTICACHE_INVALID, "position %zu: expected %s, found %s",
                        (size_t)(parser->cursor - parser->text) + 1, what, found);
    return false;
}

/* Skips spaces and returns the next character; 0 at the end. */
static char peek(struct parser *parser)
{
    while (*parser->cursor == ' ' || *parser->cursor == '\t')
        parser->cursor++;
    return *parser->cursor;
}

/* Takes `token` if it is next. */
static bool accept(struct parser *parser, const char *token)
{
    size_t length = strlen(token);
    peek(parser);
    if (strncmp(parser->cursor, token, length) != 0)
        return false;
    parser->cursor += length;
    return true;
}

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

static bool is_word_character(char byte)
{
    return is_digit(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
}

/* Reads decimal digits. A number above `most` is an error. */
static bool read_number(struct parser *parser, uint64_t most, const char *what, uint64_t *ret_number)
{
    uint64_t number = 0;
    peek(parser);
    const char *start = parser->cursor;
    if (!is_digit(*start))
        return refuse_expected(parser, what);
    for (; is_digit(*parser->cursor); parser->cursor++) {
        uint64_t digit = (uint64_t)(*parser->cursor - '0');
        if (digit > most || number > (most - digit) / 10) {
            char range[96];
            snprintf(range, sizeof range, "%.40s up to %llu", what, (unsigned long long)most);
            parser->cursor = start;
            return refuse_expected(parser, range);
        }
        number = number * 10 + digit;
    }
    *ret_number = number;
    return true;
}

static bool read_int(struct parser *parser, const char *what, int64_t *ret_number)
{
    uint64_t number;
    if (!read_number(parser, INT64_MAX, what, &number))
        return false;
    *ret_number = (int64_t)number;
    return true;
}

/* Reads a name, empty if there is none. A name that is too long is cut off: no known name is that long. */
static void read_word(struct parser *parser, char ret_word[WORD_BYTES])
{
    size_t length = 0;
    peek(parser);
    for (; is_word_character(*parser->cursor); parser->cursor++)
        if (length + 1 < WORD_BYTES)
            ret_word[length++] = *parser->cursor;
    ret_word[length] = '\0';
}

/* Reads the number after a prefix: "dtype12" stands for a dtype that has no name. */
static bool number_after(const char *word, const char *prefix, int32_t *ret_number)
{
    size_t length = strlen(prefix), digits = strlen(word);
    if (strncmp(word, prefix, length) != 0 || digits == length || digits > length + 9 ||
        strspn(word + length, "0123456789") != digits - length)
        return false;
    *ret_number = (int32_t)strtol(word + length, NULL, 10);
    return true;
}

/* ---- sizes and strides ---- */

static bool read_symbol(struct parser *parser, uint8_t *ret_symbol)
{
    static const char what[] = "a symbol, s0 to s63";
    uint64_t number;
    peek(parser);
    const char *start = parser->cursor;
    if (start[0] != 's' || !is_digit(start[1]))
        return refuse_expected(parser, what);
    parser->cursor++;
    if (!read_number(parser, AOTICACHE_CHECK_MAX_SYMBOLS - 1, "the number of a symbol,", &number))
        return false;
    if (number >= parser->symbol_count)
        parser->symbol_count = (size_t)number + 1;
    *ret_symbol = (uint8_t)number;
    return true;
}

static bool read_product(struct parser *parser, aoticache_dim *dim)
{
    do {
        if (dim->symbol_count == AOTICACHE_DIM_MAX_SYMBOLS)
            return refuse_expected(parser, "no more than 4 symbols in a product");
        if (!read_symbol(parser, &dim->symbols[dim->symbol_count]))
            return false;
        dim->symbol_count++;
    } while (accept(parser, "*"));
    return true;
}

static bool read_offset(struct parser *parser, aoticache_dim *dim)
{
    bool is_negative = peek(parser) == '-';
    uint64_t number;
    if (!is_negative && *parser->cursor != '+')
        return true;
    parser->cursor++;
    if (!read_number(parser, (uint64_t)INT64_MAX + is_negative, "an offset", &number))
        return false;
    dim->offset = is_negative ? (int64_t)(0 - number) : (int64_t)number;
    return true;
}

/* Reads one size or stride: "*", "8" or "4*s0*s1+1". */
static bool read_dim(struct parser *parser, const char *what, aoticache_dim *ret_dim)
{
    aoticache_dim dim = {.coefficient = 1};
    if (accept(parser, "*")) {
        *ret_dim = (aoticache_dim){.is_free = true};
        return true;
    }
    if (is_digit(*parser->cursor)) {
        const char *start = parser->cursor;
        if (!read_int(parser, what, &dim.coefficient))
            return false;
        if (!accept(parser, "*")) {
            *ret_dim = (aoticache_dim){.offset = dim.coefficient};
            return true;
        }
        if (dim.coefficient == 0) {
            parser->cursor = start;
            return refuse_expected(parser, "a coefficient of 1 or more");
        }
    } else if (*parser->cursor != 's') {
        return refuse_expected(parser, what);
    }
    if (!read_product(parser, &dim) || !read_offset(parser, &dim))
        return false;
    *ret_dim = dim;
    return true;
}

/*
 * Reads the contents of brackets, from after the opening bracket to after the closing one. Returns false after an
 * error.
 */
static bool read_dims(struct parser *parser, const char *close, const char *what, int64_t *ret_count)
{
    char separator[32];
    int64_t count = 0;
    snprintf(separator, sizeof separator, "',' or '%s'", close);
    if (accept(parser, close)) {
        *ret_count = 0;
        return true;
    }
    do {
        if (count == AOTICACHE_CHECK_MAX_NDIM)
            return refuse_expected(parser, "no more than 64 dimensions");
        if (!read_dim(parser, what, &parser->dims[parser->dim_count]))
            return false;
        parser->dim_count++;
        count++;
    } while (accept(parser, ","));
    if (!accept(parser, close))
        return refuse_expected(parser, separator);
    *ret_count = count;
    return true;
}

/* ---- tensors ---- */

static bool read_dtype(struct parser *parser, aoticache_tensor_pattern *pattern)
{
    char word[WORD_BYTES];
    if (accept(parser, "*"))
        return true;
    const char *start = parser->cursor;
    read_word(parser, word);
    if (aoticache_dtype_parse(word, &pattern->dtype) == AOTICACHE_OK || number_after(word, "dtype", &pattern->dtype))
        return true;
    parser->cursor = start;
    const char *nearest = word[0] != '\0' ? aoticache_nearest_dtype(word) : NULL;
    if (nearest == NULL)
        return refuse_expected(parser, "a dtype or '*'");
    aoticache_error_set(parser->ret_error, AOTICACHE_INVALID, "position %zu: unknown dtype '%.64s'; did you mean %s?",
                        (size_t)(start - parser->text) + 1, word, nearest);
    return false;
}

static bool read_sizes(struct parser *parser, aoticache_tensor_pattern *pattern)
{
    if (!accept(parser, "["))
        return refuse_expected(parser, "'['");
    if (accept(parser, "..."))
        return accept(parser, "]") ? true : refuse_expected(parser, "']'");
    pattern->sizes = &parser->dims[parser->dim_count];
    return read_dims(parser, "]", "a size", &pattern->ndim);
}

static bool read_format(struct parser *parser, aoticache_tensor_pattern *pattern)
{
    static const aoticache_stride_rule rules[] = {AOTICACHE_STRIDES_CONTIGUOUS, AOTICACHE_STRIDES_CHANNELS_LAST,
                                                  AOTICACHE_STRIDES_CHANNELS_LAST_3D};
    const char *start = parser->cursor;
    char word[WORD_BYTES];
    read_word(parser, word);
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (strcmp(word, aoticache_check_rule_name(rules[i])) == 0)
            pattern->stride_rule = rules[i];
    if (pattern->stride_rule == AOTICACHE_STRIDES_FREE) {
        parser->cursor = start;
        return refuse_expected(parser, "a stride or a memory format");
    }
    return accept(parser, "}") ? true : refuse_expected(parser, "'}'");
}

static bool read_strides(struct parser *parser, aoticache_tensor_pattern *pattern)
{
    int64_t count;
    if (!accept(parser, "{"))
        return true;
    if (peek(parser) == 'c')
        return read_format(parser, pattern);
    const char *start = parser->cursor;
    pattern->stride_rule = AOTICACHE_STRIDES_GIVEN;
    pattern->strides = &parser->dims[parser->dim_count];
    if (!read_dims(parser, "}", "a stride or a memory format", &count))
        return false;
    if (count == pattern->ndim)
        return true;
    char wanted[64] = "a memory format, as the sizes are free";
    if (pattern->ndim >= 0)
        snprintf(wanted, sizeof wanted, "%lld strides, one for each size", (long long)pattern->ndim);
    parser->cursor = start;
    return refuse_expected(parser, wanted);
}

static bool read_device(struct parser *parser, aoticache_tensor_pattern *pattern)
{
    char word[WORD_BYTES];
    uint64_t index;
    if (!accept(parser, "@"))
        return true;
    if (!accept(parser, "*")) {
        const char *start = parser->cursor;
        aoticache_device device;
        read_word(parser, word);
        if (aoticache_device_parse(word, &device) == AOTICACHE_OK) {
            pattern->device_type = device.type;
        } else if (!number_after(word, "device", &pattern->device_type)) {
            parser->cursor = start;
            return refuse_expected(parser, "a device type or '*'");
        }
    }
    if (!accept(parser, ":"))
        return true;
    if (!read_number(parser, INT32_MAX, "a device index", &index))
        return false;
    pattern->device_index = (int32_t)index;
    return true;
}

static bool read_layout(struct parser *parser, aoticache_tensor_pattern *pattern)
{
    char word[WORD_BYTES];
    peek(parser);
    const char *start = parser->cursor;
    read_word(parser, word);
    if (aoticache_layout_parse(word, &pattern->layout) == AOTICACHE_OK ||
        number_after(word, "layout", &pattern->layout))
        return true;
    parser->cursor = start;
    return refuse_expected(parser, "a layout");
}

static bool read_keys(struct parser *parser, aoticache_tensor_pattern *pattern)
{
    if (!accept(parser, "0x"))
        return refuse_expected(parser, "0x and hexadecimal digits");
    size_t count = strspn(parser->cursor, "0123456789abcdefABCDEF");
    if (count == 0 || count > 16)
        return refuse_expected(parser, "1 to 16 hexadecimal digits");
    pattern->has_key_set = true;
    pattern->dispatch_key_set = strtoull(parser->cursor, NULL, 16);
    parser->cursor += count;
    return true;
}

/* Reads "layout=strided", "grad=0" and "keys=0x12", each of them at most once. */
static bool read_attributes(struct parser *parser, aoticache_tensor_pattern *pattern)
{
    for (;;) {
        uint64_t grad;
        bool done;
        if (pattern->layout < 0 && accept(parser, "layout=")) {
            done = read_layout(parser, pattern);
        } else if (pattern->requires_grad < 0 && accept(parser, "grad=")) {
            done = read_number(parser, 1, "0 or 1, a number", &grad);
            pattern->requires_grad = done ? (int32_t)grad : -1;
        } else if (!pattern->has_key_set && accept(parser, "keys=")) {
            done = read_keys(parser, pattern);
        } else {
            return true;
        }
        if (!done)
            return false;
    }
}

static bool read_tensors(struct parser *parser)
{
    do {
        if (parser->tensor_count == parser->tensor_capacity)
            return refuse_expected(parser, "no more than 1024 tensors");
        aoticache_tensor_pattern *pattern = &parser->patterns[parser->tensor_count];
        *pattern = (aoticache_tensor_pattern)AOTICACHE_TENSOR_PATTERN_INIT;
        if (!read_dtype(parser, pattern) || !read_sizes(parser, pattern) || !read_strides(parser, pattern) ||
            !read_device(parser, pattern) || !read_attributes(parser, pattern))
            return false;
        parser->tensor_count++;
    } while (accept(parser, ","));
    return true;
}

/* ---- symbols ---- */

/* Reads the range of a symbol: "2..128%8". */
static bool read_range(struct parser *parser, aoticache_symbol *ret_range)
{
    aoticache_symbol range = AOTICACHE_SYMBOL_INIT;
    if (!read_int(parser, "the least value", &range.min))
        return false;
    if (!accept(parser, ".."))
        return refuse_expected(parser, "'..'");
    if (is_digit(peek(parser)) && !read_int(parser, "the greatest value", &range.max))
        return false;
    if (accept(parser, "%")) {
        peek(parser);
        const char *start = parser->cursor;
        if (!read_int(parser, "a multiple", &range.multiple_of))
            return false;
        if (range.multiple_of == 0) {
            parser->cursor = start;
            return refuse_expected(parser, "a multiple of 1 or more");
        }
    }
    *ret_range = range;
    return true;
}

static bool read_ranges(struct parser *parser)
{
    do {
        uint8_t symbol;
        peek(parser);
        const char *start = parser->cursor;
        if (!read_symbol(parser, &symbol))
            return false;
        if ((parser->with_range >> symbol & 1) != 0) {
            parser->cursor = start;
            return refuse_expected(parser, "a symbol that has no range yet");
        }
        parser->with_range |= (uint64_t)1 << symbol;
        if (!accept(parser, "="))
            return refuse_expected(parser, "'='");
        if (!read_range(parser, &parser->symbols[symbol]))
            return false;
    } while (accept(parser, ","));
    return true;
}

static bool read_check(struct parser *parser)
{
    if (peek(parser) == '\0')
        return true;
    if (!read_tensors(parser))
        return false;
    if (accept(parser, ";") && !read_ranges(parser))
        return false;
    if (peek(parser) != '\0')
        return refuse_expected(parser, parser->with_range != 0 ? "',' or the end"
                                                               : "an attribute not given yet, ',', ';' or the end");
    return true;
}

aoticache_status aoticache_check_parse(const char *text, aoticache_check **ret_check, aoticache_error *ret_error)
{
    if (text == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, text);
    /* A tensor takes 3 characters at least, n sizes or strides with their brackets and commas 2n + 1. */
    size_t length = strlen(text), tensor_capacity = length / 3 + 1, dim_capacity = length / 2 + 1;
    const size_t most_dims = (size_t)2 * AOTICACHE_CHECK_MAX_NDIM * AOTICACHE_CHECK_MAX_TENSORS;
    if (tensor_capacity > AOTICACHE_CHECK_MAX_TENSORS)
        tensor_capacity = AOTICACHE_CHECK_MAX_TENSORS;
    if (dim_capacity > most_dims)
        dim_capacity = most_dims;
    cleanup_free aoticache_tensor_pattern *patterns = calloc(tensor_capacity, sizeof *patterns);
    cleanup_free aoticache_dim *dims = calloc(dim_capacity, sizeof *dims);
    struct parser parser = {.text = text,
                            .cursor = text,
                            .ret_error = ret_error,
                            .patterns = patterns,
                            .tensor_capacity = tensor_capacity,
                            .dims = dims};
    if (patterns == NULL || dims == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a check of %zu characters",
                                   length);
    for (size_t i = 0; i < AOTICACHE_CHECK_MAX_SYMBOLS; i++)
        parser.symbols[i] = (aoticache_symbol)AOTICACHE_SYMBOL_INIT;
    if (!read_check(&parser))
        return AOTICACHE_INVALID;
    return aoticache_check_create(parser.patterns, parser.tensor_count, parser.symbols, parser.symbol_count, ret_check,
                                  ret_error);
}
