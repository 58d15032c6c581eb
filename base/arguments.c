/*
 * base/arguments: builds the error for a NULL argument.
 */
#include "base/arguments.h"

#include <string.h>

/* Finds the name at `position` in a list separated by commas. */
static const char *find_name(const char *names, size_t position, int *ret_length)
{
    const char *begin = names;
    for (size_t i = 0; i < position; i++)
        begin = strchr(begin, ',') + 1;
    const char *end = begin + strcspn(begin, ",");
    for (const char *c = begin; c < end; c++)
        if (*c == ' ' || *c == '>' || *c == '.')
            begin = c + 1;
    *ret_length = (int)(end - begin);
    return begin;
}

aoticache_status aoticache_arguments_refuse_null(aoticache_error *ret_error, const char *function, const char *names,
                                                 const bool *there, size_t count)
{
    size_t position = 0;
    while (position + 1 < count && there[position])
        position++;
    int length;
    const char *name = find_name(names, position, &length);
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: %.*s is NULL", function, length, name);
}
