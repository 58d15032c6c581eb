/*
 * tools/cli/escape: text that others wrote, made safe to print.
 *
 * Descriptions, compiler messages and file names come from a directory that others may have written: a terminal must
 * not obey them. What is not printable UTF-8 becomes \n, \t or \xNN; so do the marks that reverse the direction of
 * text.
 */
#include "tools/cli/cli.h"

#include <stdlib.h>
#include <string.h>

/* Length of the UTF-8 sequence at `bytes` and its code point; 0 where there is none (overlong, surrogate, cut off). */
static size_t decode(const unsigned char *bytes, uint32_t *ret_point)
{
    if (bytes[0] < 0x80) {
        *ret_point = bytes[0];
        return 1;
    }
    size_t length = bytes[0] >= 0xf0 && bytes[0] < 0xf5 ? 4 : bytes[0] >= 0xe0 ? 3 : bytes[0] >= 0xc2 ? 2 : 0;
    if (length == 0 || bytes[0] >= 0xf5)
        return 0;
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t point = bytes[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
        point = point << 6 | (bytes[i] & 0x3f);
    }
    if (point < smallest[length] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
        return 0;
    *ret_point = point;
    return length;
}

static bool is_unsafe(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x200e || point == 0x200f ||
           (point >= 0x2028 && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069) || point == 0xfeff;
}

static char *append_escaped(char *end, const unsigned char *bytes, size_t length)
{
    if (length == 1 && (*bytes == '\n' || *bytes == '\t')) {
        *end++ = '\\';
        *end++ = *bytes == '\n' ? 'n' : 't';
        return end;
    }
    for (size_t i = 0; i < length; i++)
        end += sprintf(end, "\\x%02x", bytes[i]);
    return end;
}

static char *escape(const char *text, const char *kept)
{
    const unsigned char *bytes = (const unsigned char *)text;
    char *escaped = aoticache_cli_allocate(strlen(text) * 4 + 1, 1);
    char *end = escaped;
    while (*bytes != '\0') {
        uint32_t point = 0;
        size_t length = decode(bytes, &point);
        bool keep = length > 0 && (!is_unsafe(point) || (point < 0x80 && strchr(kept, (int)point) != NULL));
        if (length == 0)
            length = 1;
        if (keep) {
            memcpy(end, bytes, length);
            end += length;
        } else {
            end = append_escaped(end, bytes, length);
        }
        bytes += length;
    }
    *end = '\0';
    return escaped;
}

char *aoticache_cli_escape(const char *text)
{
    return escape(text, "");
}

char *aoticache_cli_escape_lines(const char *text)
{
    return escape(text, "\n\t");
}

size_t aoticache_cli_columns(const char *text)
{
    size_t columns = 0;
    for (; *text != '\0'; text++)
        columns += ((unsigned char)*text & 0xc0) != 0x80;
    return columns;
}
