/*
 * cache/request/environment: the environment of a request: pairs of name and value, sorted by name, each name once.
 */
#include "base/arguments.h"
#include "cache/request/request_internal.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "cache/eager_face.h"
#include "cache/request/text.h"

#include <string.h>

/* Returns the position of `name`, or the position at which to insert it. */
static size_t find_pair(const aoticache_request *request, const char *name, bool *ret_found)
{
    size_t low = 0, high = request->info.environment_count;
    *ret_found = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(request->environment[middle].name, name);
        if (order == 0) {
            *ret_found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static aoticache_status insert_pair(aoticache_request *request, size_t position, const char *name, const char *value,
                                    aoticache_error *ret_error)
{
    size_t size = request->encoded_size + aoticache_request_encoded_pair_size(name, value);
    if (request->info.environment_count >= REQUEST_MAX_ENVIRONMENT)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "environment %s: the request already has %d pairs, the maximum", name,
                                   REQUEST_MAX_ENVIRONMENT);
    if (size > REQUEST_MAX_ENCODED_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "environment %s: the request would have %zu bytes; at most %u are allowed", name,
                                   size, REQUEST_MAX_ENCODED_BYTES);
    cleanup_free char *name_copy = strdup(name);
    cleanup_free char *value_copy = strdup(value);
    if (name_copy == NULL || value_copy == NULL ||
        !AOTICACHE_ARRAY_RESERVE(request->environment, request->environment_capacity,
                                 request->info.environment_count + 1))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "environment %s: out of memory", name);
    struct environment_pair *pair = request->environment + position;
    memmove(pair + 1, pair, (request->info.environment_count - position) * sizeof *pair);
    pair->name = steal_ptr(&name_copy);
    pair->value = steal_ptr(&value_copy);
    request->info.environment_count++;
    request->encoded_size = size;
    return AOTICACHE_OK;
}

static aoticache_status replace_pair(aoticache_request *request, struct environment_pair *pair, const char *value,
                                     aoticache_error *ret_error)
{
    size_t size = request->encoded_size - strlen(pair->value) + strlen(value);
    if (size > REQUEST_MAX_ENCODED_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "environment %s: the request would have %zu bytes; at most %u are allowed",
                                   pair->name, size, REQUEST_MAX_ENCODED_BYTES);
    char *copy = strdup(value);
    if (copy == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "environment %s: out of memory", pair->name);
    free(pair->value);
    pair->value = copy;
    request->encoded_size = size;
    return AOTICACHE_OK;
}

aoticache_status aoticache_request_set_environment(aoticache_request *request, const char *name, const char *value,
                                                   aoticache_error *ret_error)
{
    char reason[REQUEST_REASON_BYTES];
    bool found;
    if (request == NULL || name == NULL || value == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, request, name, value);
    if (!aoticache_request_check_environment(name, value, reason))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s", reason);
    size_t position = find_pair(request, name, &found);
    if (found)
        return replace_pair(request, request->environment + position, value, ret_error);
    return insert_pair(request, position, name, value, ret_error);
}

const char *aoticache_request_get_environment(const aoticache_request *request, const char *name)
{
    bool found;
    size_t position = find_pair(request, name, &found);
    return found ? request->environment[position].value : NULL;
}

bool aoticache_request_is_dynamic(const aoticache_request *request)
{
    const char *shapes = aoticache_request_get_environment(request, AOTICACHE_SHAPES_NAME);
    return shapes != NULL && strcmp(shapes, AOTICACHE_SHAPES_DYNAMIC) == 0;
}

bool aoticache_request_environment_at(const aoticache_request *request, size_t position, const char **ret_name,
                                      const char **ret_value)
{
    if (position >= request->info.environment_count)
        return false;
    *ret_name = request->environment[position].name;
    *ret_value = request->environment[position].value;
    return true;
}

void aoticache_request_environment_clear(aoticache_request *request)
{
    for (size_t i = 0; i < request->info.environment_count; i++) {
        free(request->environment[i].name);
        free(request->environment[i].value);
    }
    free(request->environment);
    request->environment = NULL;
    request->info.environment_count = request->environment_capacity = 0;
}
