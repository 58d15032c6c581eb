/*
 * eager/dispatch/schema/defaults: default values. Everything that PyTorch accepts is accepted here too, with the same value,
 * even if it is odd ("int x=1.5" is 1.5, "complex x=1.5" is 1j): a schema must mean the same on both sides.
 *
 * Source: torch/csrc/jit/frontend/function_schema_parser.cpp (2.13).
 */
#include "base/text/name_distance.h"
#include "eager/dispatch/schema/schema_internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * ---- string literals, and which of them name a device ----
 *
 * Source: torch/csrc/jit/frontend/parse_string_literal.h, c10/core/Device.cpp (2.13).
 */

/* Reads "\101"; -1: not three octal digits, or more than a byte. */
static int read_octal(const char *text, size_t size)
{
    int value = 0;
    if (size < 3)
        return -1;
    for (size_t i = 0; i < 3; i++) {
        if (text[i] < '0' || text[i] > '7')
            return -1;
        value = value * 8 + (text[i] - '0');
    }
    return value < 256 ? value : -1;
}

/* Returns the byte of an escape sequence; -1: unknown escape. */
static int read_escape(const char *text, size_t size, size_t *ret_length)
{
    static const char letters[] = "\\'\"\nabfnvt", bytes[] = "\\'\"\n\a\b\f\n\v\t";
    const char *found = strchr(letters, text[0]);
    *ret_length = found != NULL ? 1 : 3;
    return found != NULL ? bytes[found - letters] : read_octal(text, size);
}

/* Parses the contents of a string token. */
static bool parse_string(schema_parser *parser, schema_token token, const char **ret_text)
{
    const char *text = parser->lexer.text + token.begin;
    size_t quotes = token.length >= 6 && text[1] == text[0] && text[2] == text[0] ? 3 : 1;
    size_t size = token.length - 2 * quotes, written = 0, length;
    char *content = aoticache_schema_take(parser, size + 1);
    if (content == NULL)
        return false;
    text += quotes;
    for (size_t at = 0; at < size;) {
        if (text[at] != '\\') {
            content[written++] = text[at++];
            continue;
        }
        int byte = read_escape(text + at + 1, size - at - 1, &length);
        schema_token place = {.begin = token.begin + (uint32_t)(quotes + at)};
        if (byte < 0)
            return aoticache_schema_refuse_at(
                parser, place,
                "unknown escape in a string: valid are \\\\ \\' \\\" \\a \\b \\f \\n \\t \\v "
                "and three octal digits");
        if (byte == 0)
            return aoticache_schema_refuse_at(parser, place, "a string must not contain a zero byte");
        content[written++] = (char)byte;
        at += 1 + length;
    }
    content[written] = '\0';
    *ret_text = content;
    return true;
}

static bool device_is_valid(const char *text)
{
    static const char *const types[] = {"cpu",    "cuda", "ipu",  "xpu",  "mkldnn", "opengl",       "opencl",
                                        "ideep",  "hip",  "ve",   "fpga", "maia",   "xla",          "lazy",
                                        "vulkan", "mps",  "meta", "hpu",  "mtia",   "privateuseone"};
    size_t length = strcspn(text, ":");
    bool known = false;
    for (size_t i = 0; i < sizeof types / sizeof *types && !known; i++)
        known = strlen(types[i]) == length && memcmp(types[i], text, length) == 0;
    if (!known || text[length] == '\0')
        return known;
    const char *digits = text + length + 1;
    size_t count = strspn(digits, "0123456789");
    if (count == 0 || count > 3 || digits[count] != '\0' || (digits[0] == '0' && count > 1))
        return false;
    return count < 3 || memcmp(digits, "127", 3) <= 0; /* an index is a signed byte */
}

/* ---- default values ---- */

typedef struct word_number {
    const char *word;
    int64_t number;
} word_number;

static bool lookup_word(const schema_parser *parser, const word_number *words, size_t count, int64_t *ret_number)
{
    for (size_t i = 0; i < count; i++)
        if (aoticache_schema_token_is(parser, parser->token, words[i].word)) {
            *ret_number = words[i].number;
            return true;
        }
    return false;
}

/* Looks up c10::ScalarType's number by its name in torch. */
static bool lookup_dtype(const schema_parser *parser, int64_t *ret_number)
{
    static const word_number words[] = {
#define DTYPE_WORD(upper, lower, number, bytes) {#lower, number},
        AOTICACHE_DTYPE_LIST(DTYPE_WORD)
#undef DTYPE_WORD
            {"half", 5},
        {"double", 7},
        {"cfloat", 9},
        {"cdouble", 10},
        {"chalf", 8},
        {"complex", 9},
        {"int", 3},
        {"short", 2},
        {"qint8", 12},
        {"quint8", 13},
        {"qint32", 14},
        {"quint4x2", 16},
        {"quint2x4", 17},
        {"bits1x8", 18},
        {"bits2x4", 19},
        {"bits4x2", 20},
        {"bits8", 21},
        {"bits16", 22},
        {"bit", 30},
        {"uint1", 30},
        {"uint2", 31},
        {"uint3", 32},
        {"uint4", 33},
        {"uint5", 34},
        {"uint6", 35},
        {"uint7", 36},
        {"int1", 37},
        {"int2", 38},
        {"int3", 39},
        {"int4", 40},
        {"int5", 41},
        {"int6", 42},
        {"int7", 43}};
    return lookup_word(parser, words, sizeof words / sizeof *words, ret_number);
}

static bool refuse_name(schema_parser *parser, aoticache_type_kind kind)
{
    char name[101];
    const schema_token token = parser->token;
    snprintf(name, sizeof name, "%.*s", token.length > 100 ? 100 : (int)token.length, parser->lexer.text + token.begin);
    const char *nearest = kind == AOTICACHE_TYPE_DTYPE ? aoticache_nearest_dtype(name) : NULL;
    if (nearest == NULL)
        return aoticache_schema_refuse(parser, kind == AOTICACHE_TYPE_DTYPE ? "a dtype" : "a default value");
    return aoticache_schema_refuse_at(parser, token, "unknown dtype '%s'; did you mean %s?", name, nearest);
}

/* Parses the name of a number. Names of dtypes are accepted if a dtype is expected, two other names always. */
static bool parse_name(schema_parser *parser, aoticache_type_kind kind, aoticache_default *ret_value)
{
    static const word_number words[] = {
        {"float", 6}, {"long", 4}, {"strided", 0}, {"Mean", 1}, {"contiguous_format", 0}};
    int64_t number;
    if (!lookup_word(parser, words, sizeof words / sizeof *words, &number) &&
        !(kind == AOTICACHE_TYPE_DTYPE && lookup_dtype(parser, &number)))
        return refuse_name(parser, kind);
    *ret_value = (aoticache_default){.kind = AOTICACHE_DEFAULT_INT, .int_value = number};
    aoticache_schema_advance(parser);
    return true;
}

static bool refuse_range(schema_parser *parser, schema_token token)
{
    return aoticache_schema_refuse_at(parser, token, "the number %.*s is out of range",
                                      token.length > 100 ? 100 : (int)token.length, parser->lexer.text + token.begin);
}

/* Reads one number of `length` characters as std::stod() does: results outside the range of normal doubles are errors. */
static bool read_double(schema_parser *parser, schema_token token, const char *text, size_t length, double *ret_number)
{
    char copy[512], *end;
    if (length >= sizeof copy)
        return aoticache_schema_refuse_at(parser, token, "a number must not have more than %zu characters",
                                          sizeof copy - 1);
    memcpy(copy, text, length);
    copy[length] = '\0';
    errno = 0;
    double number = aoticache_schema_number_parse(copy, &end);
    if (end == copy)
        return aoticache_schema_refuse_at(parser, token, "a complex number must end in 'j'");
    if (errno == ERANGE)
        return refuse_range(parser, token);
    *ret_number = number;
    return true;
}

/* Reads an integer as std::stoll() does: its leading decimal digits. */
static bool read_int(schema_parser *parser, schema_token token, const char *text, bool negative, int64_t *ret_number)
{
    uint64_t limit = (uint64_t)INT64_MAX + negative, value = 0;
    for (size_t i = 0; text[i] >= '0' && text[i] <= '9'; i++) {
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (value > (limit - digit) / 10)
            return refuse_range(parser, token);
        value = value * 10 + digit;
    }
    *ret_number = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

static bool parse_number(schema_parser *parser, aoticache_type_kind kind, aoticache_default *ret_value)
{
    int saved = errno;
    bool negative = aoticache_schema_accept(parser, '-');
    schema_token token = parser->token;
    const char *text = parser->lexer.text + token.begin;
    aoticache_default value = {0};
    bool done;
    if (!aoticache_schema_expect(parser, TOKEN_NUMBER, "a number"))
        return false;
    if (kind == AOTICACHE_TYPE_COMPLEX || memchr(text, 'j', token.length) != NULL) {
        value.kind = AOTICACHE_DEFAULT_COMPLEX;
        done = read_double(parser, token, text, token.length - 1, &value.imaginary);
        value.imaginary = negative ? -value.imaginary : value.imaginary;
    } else if (kind == AOTICACHE_TYPE_FLOAT || memchr(text, '.', token.length) != NULL ||
               memchr(text, 'e', token.length) != NULL) {
        value.kind = AOTICACHE_DEFAULT_FLOAT;
        done = read_double(parser, token, text, token.length, &value.float_value);
        value.float_value = negative ? -value.float_value : value.float_value;
    } else {
        value.kind = AOTICACHE_DEFAULT_INT;
        done = read_int(parser, token, text, negative, &value.int_value);
    }
    errno = saved;
    *ret_value = value;
    return done;
}

static bool parse_single(schema_parser *parser, aoticache_type_kind kind, aoticache_default *ret_value)
{
    schema_token token = parser->token;
    *ret_value = (aoticache_default){0};
    switch (token.kind) {
    case TOKEN_TRUE:
    case TOKEN_FALSE:
        ret_value->kind = AOTICACHE_DEFAULT_BOOL;
        ret_value->bool_value = token.kind == TOKEN_TRUE;
        break;
    case TOKEN_NONE:
        ret_value->kind = AOTICACHE_DEFAULT_NONE;
        break;
    case TOKEN_STRING:
        ret_value->kind = AOTICACHE_DEFAULT_STRING;
        if (!parse_string(parser, token, &ret_value->string_value))
            return false;
        break;
    case TOKEN_WORD:
        return parse_name(parser, kind, ret_value);
    case TOKEN_NUMBER:
    case '-':
        return parse_number(parser, kind, ret_value);
    default:
        return aoticache_schema_refuse(parser, "a default value");
    }
    aoticache_schema_advance(parser);
    return true;
}

/* ---- lists ---- */

/* Returns the kind that a list's elements must have; ABSENT: such lists cannot have a default. */
static aoticache_default_kind element_default(aoticache_type_kind kind)
{
    switch (kind) {
    case AOTICACHE_TYPE_INT:
    case AOTICACHE_TYPE_SYM_INT:
    case AOTICACHE_TYPE_DTYPE:
    case AOTICACHE_TYPE_LAYOUT:
    case AOTICACHE_TYPE_MEMORY_FORMAT:
        return AOTICACHE_DEFAULT_INT;
    case AOTICACHE_TYPE_FLOAT:
        return AOTICACHE_DEFAULT_FLOAT;
    case AOTICACHE_TYPE_COMPLEX:
        return AOTICACHE_DEFAULT_COMPLEX;
    case AOTICACHE_TYPE_BOOL:
        return AOTICACHE_DEFAULT_BOOL;
    default:
        return AOTICACHE_DEFAULT_ABSENT;
    }
}

static bool parse_element(schema_parser *parser, aoticache_type_kind kind, aoticache_default *ret_item)
{
    static const char *const names[] = {[AOTICACHE_DEFAULT_INT] = "an integer",
                                        [AOTICACHE_DEFAULT_FLOAT] = "a float",
                                        [AOTICACHE_DEFAULT_COMPLEX] = "a complex number",
                                        [AOTICACHE_DEFAULT_BOOL] = "a bool"};
    schema_token token = parser->token;
    aoticache_default_kind wanted = element_default(kind);
    if (!parse_single(parser, kind, ret_item))
        return false;
    return ret_item->kind == wanted ||
           aoticache_schema_refuse_at(parser, token, "this element is not %s", names[wanted]);
}

/* Parses "int[2] x=1", which repeats the value for each element of the list. */
static bool parse_repeated(schema_parser *parser, const aoticache_type *list, aoticache_default *ret_value)
{
    schema_token token = parser->token;
    aoticache_default item;
    size_t count = (size_t)list->fixed_size;
    if (!parse_element(parser, list->elements[0]->kind, &item))
        return false;
    if (count > SCHEMA_MAX_REPEATED - parser->repeated)
        return aoticache_schema_refuse_at(parser, token, "a default has more than %u elements", SCHEMA_MAX_REPEATED);
    parser->repeated += count;
    aoticache_default *items = aoticache_schema_take(parser, count * sizeof *items);
    if (items == NULL)
        return false;
    for (size_t i = 0; i < count; i++)
        items[i] = item;
    *ret_value = (aoticache_default){.kind = AOTICACHE_DEFAULT_LIST, .count = count, .items = items};
    return true;
}

/* Counts how many elements can precede the closing bracket. */
static size_t count_elements(const schema_parser *parser)
{
    size_t count = 1;
    for (const char *at = parser->lexer.text + parser->token.begin; *at != '\0' && *at != ']'; at++)
        count += *at == ',';
    return count;
}

static bool parse_written_list(schema_parser *parser, aoticache_type_kind kind, aoticache_default *ret_value)
{
    size_t count = 0;
    if (!aoticache_schema_expect(parser, '[', "'['"))
        return false;
    size_t room = count_elements(parser);
    aoticache_default *items = aoticache_schema_take(parser, room * sizeof *items);
    if (items == NULL)
        return false;
    if (parser->token.kind != ']')
        do {
            if (count == room)
                return aoticache_schema_refuse(parser, "']'");
            if (!parse_element(parser, kind, &items[count++]))
                return false;
        } while (aoticache_schema_accept(parser, ','));
    *ret_value = (aoticache_default){.kind = AOTICACHE_DEFAULT_LIST, .count = count, .items = items};
    return aoticache_schema_expect(parser, ']', "',' or ']'");
}

static bool parse_list(schema_parser *parser, const aoticache_type *list, aoticache_default *ret_value)
{
    aoticache_type_kind element = list->elements[0]->kind;
    if (element_default(element) == AOTICACHE_DEFAULT_ABSENT)
        return aoticache_schema_refuse_at(parser, parser->token,
                                          "only lists of int, float, complex and bool have defaults");
    if (parser->token.kind == TOKEN_WORD)
        return aoticache_schema_refuse(parser, "a list");
    if (list->fixed_size >= 0 && parser->token.kind != '[')
        return parse_repeated(parser, list, ret_value);
    return parse_written_list(parser, element, ret_value);
}

/* ---- by type ---- */

static bool parse_none(schema_parser *parser, aoticache_default *ret_value)
{
    if (!aoticache_schema_expect(parser, TOKEN_NONE, "None"))
        return false;
    *ret_value = (aoticache_default){.kind = AOTICACHE_DEFAULT_NONE};
    return true;
}

static bool parse_device(schema_parser *parser, aoticache_default *ret_value)
{
    schema_token token = parser->token;
    const char *text;
    if (!aoticache_schema_expect(parser, TOKEN_STRING, "a device as a string, such as \"cpu\"") ||
        !parse_string(parser, token, &text))
        return false;
    if (!device_is_valid(text))
        return aoticache_schema_refuse_at(parser, token, "not a device such as \"cpu\" or \"cuda:1\"");
    *ret_value = (aoticache_default){.kind = AOTICACHE_DEFAULT_STRING, .string_value = text};
    return true;
}

static bool refuse_type(schema_parser *parser, const aoticache_type *type)
{
    char text[128];
    aoticache_type_format(type, text, sizeof text);
    return aoticache_schema_refuse_at(parser, parser->token, "an argument of type %s cannot have a default", text);
}

bool aoticache_schema_parse_default(schema_parser *parser, const aoticache_type *type, aoticache_default *ret_value)
{
    switch (type->kind) {
    case AOTICACHE_TYPE_TENSOR:
    case AOTICACHE_TYPE_GENERATOR:
        return parse_none(parser, ret_value);
    case AOTICACHE_TYPE_OTHER:
        return strcmp(type->name, "Quantizer") == 0 ? parse_none(parser, ret_value) : refuse_type(parser, type);
    case AOTICACHE_TYPE_OPTIONAL: /* a dtype inside it has a dtype's names, everything else is parsed as written */
        return parse_single(parser, type->elements[0]->kind == AOTICACHE_TYPE_DTYPE ? AOTICACHE_TYPE_DTYPE : type->kind,
                            ret_value);
    case AOTICACHE_TYPE_STRING:
    case AOTICACHE_TYPE_NUMBER:
    case AOTICACHE_TYPE_INT:
    case AOTICACHE_TYPE_SYM_INT:
    case AOTICACHE_TYPE_DTYPE:
    case AOTICACHE_TYPE_LAYOUT:
    case AOTICACHE_TYPE_MEMORY_FORMAT:
    case AOTICACHE_TYPE_BOOL:
    case AOTICACHE_TYPE_FLOAT:
    case AOTICACHE_TYPE_COMPLEX:
        return parse_single(parser, type->kind, ret_value);
    case AOTICACHE_TYPE_DEVICE:
        return parse_device(parser, ret_value);
    case AOTICACHE_TYPE_LIST:
        return parse_list(parser, type, ret_value);
    default:
        return refuse_type(parser, type);
    }
}
