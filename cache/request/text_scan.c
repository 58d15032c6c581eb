/*
 * cache/request/text_scan: the small parts of a request as text: blanks, words, numbers, strings; and the messages that
 * say in which column something else was expected.
 */
#include "base/cleanup.h"
#include "cache/request/request_internal.h"

#include <stdarg.h>
#include <string.h>

/* ---- reading ---- */

aoticache_status aoticache_text_refuse(const struct text_parser *parser, const char *at, const char *format, ...)
{
    char reason[REQUEST_REASON_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    return aoticache_error_set(parser->error, AOTICACHE_INVALID, "column %zu: %s", (size_t)(at - parser->text) + 1,
                               reason);
}

/* Adds to the message what is there instead, after blanks. */
aoticache_status aoticache_text_expected(const struct text_parser *parser, const char *what)
{
    const char *at = parser->at + strspn(parser->at, " \t");
    size_t length = strcspn(at, ",)]}= \t\r\n");
    if (*at == '\0' || *at == '\n' || *at == '\r')
        return aoticache_text_refuse(parser, at, "expected %s; the line ends here", what);
    length = length > 0 ? length : 1;
    return aoticache_text_refuse(parser, at, "expected %s, found '%.*s'", what, (int)(length < 40 ? length : 40), at);
}

/* Reports a failed call of a request function for the part of the text that begins at `at`: puts the column of `at`
 * before its message. */
aoticache_status aoticache_text_located(const struct text_parser *parser, const char *at, aoticache_status status,
                                        const aoticache_error *error)
{
    if (status == AOTICACHE_OK)
        return AOTICACHE_OK;
    return aoticache_error_set(parser->error, status, "column %zu: %.900s", (size_t)(at - parser->text) + 1,
                               error->message);
}

void aoticache_text_skip_blanks(struct text_parser *parser)
{
    parser->at += strspn(parser->at, " \t");
}

/* Takes the character, after blanks, if it is there. */
bool aoticache_text_accept(struct text_parser *parser, char wanted)
{
    const char *before = parser->at;
    aoticache_text_skip_blanks(parser);
    if (*parser->at == wanted) {
        parser->at++;
        return true;
    }
    parser->at = before;
    return false;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

size_t aoticache_text_word_length(const char *text)
{
    size_t length = 0;
    while (is_letter(text[length]) || is_digit(text[length]))
        length++;
    return length;
}

bool aoticache_text_is_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    return strncmp(text, word, length) == 0 && aoticache_text_word_length(text) == length;
}

/* Takes the word, after blanks, if it is there. */
bool aoticache_text_accept_word(struct text_parser *parser, const char *word)
{
    const char *before = parser->at;
    aoticache_text_skip_blanks(parser);
    if (aoticache_text_is_word(parser->at, word)) {
        parser->at += strlen(word);
        return true;
    }
    parser->at = before;
    return false;
}

/* Copies the next `length` bytes; returns false if they are too many for a name. */
bool aoticache_text_copy_name(const struct text_parser *parser, size_t length,
                              char ret_name[REQUEST_MAX_NAME_BYTES + 1])
{
    if (length > REQUEST_MAX_NAME_BYTES)
        return false;
    memcpy(ret_name, parser->at, length);
    ret_name[length] = '\0';
    return true;
}

/* ---- numbers ---- */

/* Returns the length of "12", "1.5", "1e+22", "inf" or "nan" at the start of `text`, after an optional '-'; 0 if there is no
 * number. */
size_t aoticache_text_number_length(const char *text, bool *ret_is_int)
{
    size_t sign = text[0] == '-', at = sign;
    *ret_is_int = false;
    static const char *const names[] = {"inf", "nan", "infj", "nanj"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (aoticache_text_is_word(text + at, names[i]))
            return at + 3;
    if (!is_digit(text[at]))
        return 0;
    at += strspn(text + at, "0123456789");
    *ret_is_int = true;
    if (text[at] == '.') {
        *ret_is_int = false;
        at += 1 + strspn(text + at + 1, "0123456789");
    }
    size_t exponent = at + (text[at] == 'e' || text[at] == 'E');
    if (exponent > at) {
        exponent += text[exponent] == '+' || text[exponent] == '-';
        if (!is_digit(text[exponent]))
            return 0;
        *ret_is_int = false;
        at = exponent + strspn(text + exponent, "0123456789");
    }
    return at;
}

aoticache_status aoticache_text_read_number(struct text_parser *parser, struct text_number *ret_number)
{
    struct text_number number = {0};
    const char *start = parser->at;
    size_t length = aoticache_text_number_length(start, &number.is_int);
    if (length == 0)
        return aoticache_text_expected(parser, "a number");
    errno = 0;
    if (number.is_int)
        number.int_value = strtoll(start, NULL, 10);
    if (number.is_int && errno == ERANGE)
        return aoticache_text_refuse(parser, start,
                                     "%.*s is not a 64-bit integer; a floating-point number needs a decimal point",
                                     (int)(length < 40 ? length : 40), start);
    number.double_value = strtod_l(start, NULL, parser->locale);
    bool is_word = is_letter(start[start[0] == '-']);
    if (!is_word && number.double_value - number.double_value != 0)
        return aoticache_text_refuse(parser, start, "%.*s is too large for a double", (int)(length < 40 ? length : 40),
                                     start);
    parser->at += length;
    *ret_number = number;
    return AOTICACHE_OK;
}

/* Appends an int, a double, or "RE+IMj". */
aoticache_status aoticache_text_add_number(struct text_parser *parser, const char *name)
{
    const char *start = parser->at;
    struct text_number real, imaginary;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_text_read_number(parser, &real);
    if (status != AOTICACHE_OK)
        return status;
    if (*parser->at != '+' && *parser->at != '-') {
        status = real.is_int ? aoticache_request_add_int(parser->request, name, real.int_value, &error)
                             : aoticache_request_add_double(parser->request, name, real.double_value, &error);
        return aoticache_text_located(parser, start, status, &error);
    }
    parser->at += *parser->at == '+';
    if (*parser->at == '-' && parser->at[-1] == '+')
        return aoticache_text_expected(parser, "the imaginary part");
    status = aoticache_text_read_number(parser, &imaginary);
    if (status != AOTICACHE_OK)
        return status;
    if (*parser->at != 'j')
        return aoticache_text_expected(parser, "'j' after the imaginary part");
    parser->at++;
    status = aoticache_request_add_complex(parser->request, name, real.double_value, imaginary.double_value, &error);
    return aoticache_text_located(parser, start, status, &error);
}

/* ---- strings ---- */

/* Writes a character of at most 16 bits as UTF-8. */
static size_t put_utf8(unsigned character, char *out)
{
    if (character < 0x80) {
        out[0] = (char)character;
        return 1;
    }
    if (character < 0x800) {
        out[0] = (char)(0xc0 | character >> 6);
        out[1] = (char)(0x80 | (character & 0x3f));
        return 2;
    }
    out[0] = (char)(0xe0 | character >> 12);
    out[1] = (char)(0x80 | (character >> 6 & 0x3f));
    out[2] = (char)(0x80 | (character & 0x3f));
    return 3;
}

/* Reads \xNN with `digits` 2, \uNNNN with 4; the result is never longer than the escape. */
static aoticache_status read_hex_escape(struct text_parser *parser, size_t digits, char **out)
{
    char hex[5] = "";
    const char *start = parser->at + 2;
    if (strspn(start, "0123456789abcdefABCDEF") < digits)
        return aoticache_text_refuse(parser, parser->at, "expected %zu hexadecimal digits after \\%c", digits,
                                     parser->at[1]);
    memcpy(hex, start, digits);
    unsigned character = (unsigned)strtoul(hex, NULL, 16);
    if (character == 0)
        return aoticache_text_refuse(parser, parser->at, "a string cannot contain the character 0");
    *out += put_utf8(character, *out);
    parser->at += 2 + digits;
    return AOTICACHE_OK;
}

static aoticache_status read_escape(struct text_parser *parser, char **out)
{
    char c = parser->at[1];
    if (c == 'x' || c == 'u')
        return read_hex_escape(parser, c == 'x' ? 2 : 4, out);
    if (c != '"' && c != '\\' && c != 'n' && c != 't')
        return aoticache_text_refuse(parser, parser->at,
                                     "unknown escape; valid are \\\" \\\\ \\n \\t \\xNN and \\uNNNN");
    *(*out)++ = c == 'n' ? '\n' : c == 't' ? '\t' : c;
    parser->at += 2;
    return AOTICACHE_OK;
}

aoticache_status aoticache_text_add_string(struct text_parser *parser, const char *name)
{
    const char *start = parser->at++, *end = parser->at;
    while (*end != '"' && *end != '\0')
        end += *end == '\\' && end[1] != '\0' ? 2 : 1;
    if (*end == '\0')
        return aoticache_text_refuse(parser, start, "unterminated string");
    cleanup_free char *value = malloc((size_t)(end - start));
    char *out = value;
    if (value == NULL)
        return aoticache_error_set(parser->error, AOTICACHE_NO_MEMORY, "request text: out of memory");
    while (parser->at < end) {
        if (*parser->at != '\\') {
            *out++ = *parser->at++;
            continue;
        }
        aoticache_status status = read_escape(parser, &out);
        if (status != AOTICACHE_OK)
            return status;
    }
    parser->at++;
    *out = '\0';
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_request_add_string(parser->request, name, value, &error);
    return aoticache_text_located(parser, start, status, &error);
}
