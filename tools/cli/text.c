/*
 * tools/cli/text: memory, text that is safe to print, and JSON values. If memory is short these functions end the program
 * with a message: a tool cannot do better, and unfinished work in the cache is left as after a SIGKILL, for which the store
 * is designed.
 *
 * Descriptions, compiler messages and file names come from a directory that other users may have written: they must not
 * control the terminal. Bytes that are not printable UTF-8 become \n, \t or \xNN; so do the characters that reverse the
 * direction of text.
 */
#include "base/cleanup.h"
#include "base/names.h"
#include "tools/cli/cli.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- memory ---- */

_Noreturn void aoticache_cli_out_of_memory(void)
{
    static const char message[] = "aoticache: out of memory\n";
    ssize_t ignored = write(STDERR_FILENO, message, sizeof message - 1);
    (void)ignored;
    _exit(AOTICACHE_CLI_EXIT_FAILURE);
}

void *aoticache_cli_allocate(size_t count, size_t size)
{
    void *pointer = calloc(count > 0 ? count : 1, size > 0 ? size : 1);
    if (pointer == NULL)
        aoticache_cli_out_of_memory();
    return pointer;
}

void *aoticache_cli_resize(void *pointer, size_t count, size_t size)
{
    void *resized = reallocarray(pointer, count > 0 ? count : 1, size > 0 ? size : 1);
    if (resized == NULL)
        aoticache_cli_out_of_memory();
    return resized;
}

void *aoticache_cli_grow(void *items, size_t count, size_t size)
{
    const bool is_full = (count & (count - 1)) == 0; /* a power of two, or 0 */
    return is_full ? aoticache_cli_resize(items, count > 0 ? 2 * count : 1, size) : items;
}

char *aoticache_cli_text(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0)
        aoticache_cli_out_of_memory();
    return text;
}

/* ---- text ---- */

size_t aoticache_cli_decode_utf8(const unsigned char *bytes, uint32_t *ret_point)
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
        size_t length = aoticache_cli_decode_utf8(bytes, &point);
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

/* ---- JSON ---- */

static json_t *require_json(json_t *value)
{
    if (value == NULL)
        aoticache_cli_out_of_memory();
    return value;
}

void aoticache_cli_json_set(json_t *object, const char *name, json_t *value)
{
    if (json_object_set_new(object, name, require_json(value)) != 0)
        require_json(NULL);
}

void aoticache_cli_json_append(json_t *array, json_t *value)
{
    if (json_array_append_new(array, require_json(value)) != 0)
        require_json(NULL);
}

json_t *aoticache_cli_json_object(void)
{
    return require_json(json_object());
}

json_t *aoticache_cli_json_array(void)
{
    return require_json(json_array());
}

json_t *aoticache_cli_json_text(const char *text)
{
    if (text == NULL)
        return json_null();
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    cleanup_free char *escaped = aoticache_cli_escape(text);
    return require_json(json_string(escaped));
}

json_t *aoticache_cli_json_count(uint64_t value)
{
    return require_json(json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value));
}

json_t *aoticache_cli_json_digest(const aoticache_digest *digest)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(digest, hex);
    return aoticache_cli_json_text(hex);
}

json_t *aoticache_cli_json_number(double value)
{
    if (isnan(value))
        return aoticache_cli_json_text("NaN");
    if (isinf(value))
        return aoticache_cli_json_text(value > 0 ? "Infinity" : "-Infinity");
    return require_json(json_real(value));
}

void aoticache_cli_json_print(json_t *value)
{
    json_dumpf(value, stdout, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(value);
}
