/*
 * eager/schema/strings: what string literals say, and which of them name a device.
 *
 * Source: torch/csrc/jit/frontend/parse_string_literal.h, c10/core/Device.cpp (2.13).
 */
#include "eager/schema/internal.h"

#include <string.h>

/* "\101"; -1: not an octal number of three digits that is a byte. */
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

/* The byte behind a backslash; -1: none of the escapes there are. */
static int read_escape(const char *text, size_t size, size_t *ret_length)
{
    static const char letters[] = "\\'\"\nabfnvt", bytes[] = "\\'\"\n\a\b\f\n\v\t";
    const char *found = strchr(letters, text[0]);
    *ret_length = found != NULL ? 1 : 3;
    return found != NULL ? bytes[found - letters] : read_octal(text, size);
}

bool aoticache_schema_parse_string(schema_parser *parser, schema_token token, const char **ret_text)
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
            return aoticache_schema_refuse_at(parser, place, "unknown escape in a string: there are \\\\ \\' \\\" \\a \\b \\f "
                                              "\\n \\t \\v and three octal digits");
        if (byte == 0)
            return aoticache_schema_refuse_at(parser, place, "a string with a zero byte");
        content[written++] = (char)byte;
        at += 1 + length;
    }
    content[written] = '\0';
    *ret_text = content;
    return true;
}

bool aoticache_schema_device_is_valid(const char *text)
{
    static const char *const types[] = {"cpu",  "cuda", "ipu",    "xpu",  "mkldnn", "opengl", "opencl",
                                        "ideep", "hip", "ve",     "fpga", "maia",   "xla",    "lazy",
                                        "vulkan", "mps", "meta",  "hpu",  "mtia",   "privateuseone"};
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
