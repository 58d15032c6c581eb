/*
 * base/options: applies one rule to all structs that begin with their own size.
 */
#include "base/options.h"

#include <string.h>

static bool is_zero(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

aoticache_status aoticache_options_read(const void *given, size_t size, const char *type, const char *initializer,
                                        void *ret_options, aoticache_error *ret_error)
{
    size_t given_size;
    if (given == NULL)
        return AOTICACHE_OK;
    memcpy(&given_size, given, sizeof given_size);
    /* A struct that begins with a size_t has at least the alignment of size_t, so its size is a multiple of it; any other
     * size would end in the middle of a member. A size far larger than any version of a struct was never initialized: the
     * memory there is not read. */
    const bool is_size = given_size >= sizeof given_size && given_size % sizeof given_size == 0 &&
                         given_size <= AOTICACHE_OPTIONS_MAX_BYTES;
    const size_t known = given_size < size ? given_size : size;
    if (!is_size || !is_zero((const char *)given + known, given_size - known))
        return aoticache_error_set(
            ret_error, AOTICACHE_INVALID, "%s.size is %zu, this library's is %zu%s; begin with %s", type, given_size,
            size, is_size ? ", and the bytes that this library does not know are not zero" : "", initializer);
    memcpy(ret_options, given, known);
    memcpy(ret_options, &size, sizeof size);
    return AOTICACHE_OK;
}
