/*
 * base/text/json: JSON text to values and back, with reliable reports of missing memory.
 *
 * What jansson 2.14 does if malloc(3) fails: mostly it gives up, perhaps with the message for an invalid token. But if the
 * buffer of its scanner cannot grow, it drops a byte of the token and continues, and its writer continues without the name
 * of a member. malloc sets errno, and jansson itself sets errno only when it parses a number, to 0 or ERANGE. So errno
 * reveals all failures except those of the scanner's buffer. That buffer is therefore made to grow before anything else is
 * read.
 */
#include "base/text/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Put before a text so that the first token is longer than any token of the text: ["xxx",TEXT] */
#define BEFORE "[\""
#define BETWEEN "\","
#define AFTER "]"

/* Returns an upper limit for the length of a token: a string is between two quotes, any other token between a quote and the
 * next quote or an end. */
static size_t longest_token(const char *text, size_t size)
{
    size_t longest = 0;
    for (const char *from = text, *end = text + size; from < end;) {
        const char *mark = memchr(from, '"', (size_t)(end - from));
        const size_t length = (size_t)((mark != NULL ? mark : end) - from) + 2; /* including both quotes */
        longest = length > longest ? length : longest;
        from += length - 1;
    }
    return longest;
}

/*
 * Returns the length of the first token. The buffer doubles when one byte is left to a power of two. If that byte is for the
 * closing quote of the token and is dropped, the scanner looks for the quote after the end of the buffer. So the token must
 * end elsewhere: it is then one x shorter.
 */
static size_t first_token(size_t longest)
{
    const size_t with_marks = longest + 2;
    return (with_marks & (with_marks - 1)) == 0 ? longest + 1 : longest;
}

/* Returns the value of the text after the long token; NULL with errno ENOMEM if memory is short, or NULL if it is not valid
 * JSON. Takes ownership of `all`. */
static json_t *value_of(json_t *all, size_t longest)
{
    json_t *value = NULL;
    if (all != NULL && json_string_length(json_array_get(all, 0)) != longest)
        errno = ENOMEM;
    else if (json_array_size(all) == 2 &&
             (json_is_object(json_array_get(all, 1)) || json_is_array(json_array_get(all, 1))))
        value = json_incref(json_array_get(all, 1));
    json_decref(all);
    return value;
}

static void set_out_of_memory(json_error_t *error)
{
    snprintf(error->text, sizeof error->text, "out of memory");
    error->text[sizeof error->text - 1] = (char)json_error_out_of_memory; /* json_error_code() reads it there */
}

/* Replaces control characters: jansson quotes the bytes near an error unchanged, and the message must be one line without
 * commands to a terminal. */
static void make_plain(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

json_t *aoticache_json_parse(const char *text, size_t size, size_t flags, json_error_t *ret_error)
{
    const int saved = errno;
    const size_t longest = first_token(longest_token(text, size));
    const size_t before = strlen(BEFORE) + longest + strlen(BETWEEN);
    char *all = malloc(before + size + strlen(AFTER));
    json_t *value = NULL;
    if (all == NULL) {
        memset(ret_error, 0, sizeof *ret_error);
        set_out_of_memory(ret_error);
        errno = saved;
        return NULL;
    }
    memcpy(all, BEFORE, strlen(BEFORE));
    memset(all + strlen(BEFORE), 'x', longest);
    memcpy(all + strlen(BEFORE) + longest, BETWEEN, strlen(BETWEEN));
    memcpy(all + before, text, size);
    memcpy(all + before + size, AFTER, strlen(AFTER));
    errno = 0;
    value = value_of(json_loadb(all, before + size + strlen(AFTER), flags, ret_error), longest);
    if (value == NULL && errno != ENOMEM) { /* the error position in the text itself */
        json_t *sound = json_loadb(text, size, flags, ret_error);
        errno = sound != NULL ? ENOMEM : errno;
        json_decref(sound);
    }
    if (value == NULL && errno == ENOMEM)
        set_out_of_memory(ret_error);
    else if (value == NULL)
        make_plain(ret_error->text);
    free(all);
    errno = saved;
    return value;
}

char *aoticache_json_write(const json_t *value, size_t flags)
{
    const int saved = errno;
    errno = 0;
    char *text = json_dumps(value, flags);
    if (text != NULL && errno == ENOMEM) {
        free(text);
        text = NULL;
    }
    errno = saved;
    return text;
}

bool aoticache_json_is_out_of_memory(const json_error_t *error)
{
    return json_error_code(error) == json_error_out_of_memory;
}

bool aoticache_json_text_is_plain(const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++)
        if (*at < 0x20 || *at == 0x7f)
            return false;
    return true;
}
