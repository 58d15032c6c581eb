/*
 * base/json: see json.h for what it is for.
 */
#include "base/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/*
 * Where its buffers cannot grow, jansson 2.14 reports an invalid token, or nothing, or goes on without a byte of a string.
 * malloc(3) sets errno. jansson itself sets it only at a number, to 0 or ERANGE: a failure that it has gone on after is
 * missed where a number follows.
 */
json_t *aoticache_json_parse(const char *text, size_t size, size_t flags, json_error_t *ret_error)
{
    const int saved = errno;
    errno = 0;
    json_t *value = json_loadb(text, size, flags, ret_error);
    if (errno == ENOMEM) {
        json_decref(value);
        value = NULL;
        snprintf(ret_error->text, sizeof ret_error->text, "out of memory");
        ret_error->text[sizeof ret_error->text - 1] = (char)json_error_out_of_memory; /* where json_error_code() reads it */
    }
    errno = saved;
    return value;
}

/* jansson 2.14 goes on where a buffer could not take the name of a member: the text then lacks it. */
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
