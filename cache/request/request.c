/*
 * cache/request/request: a request's memory, its creation, and its accessors.
 *
 * Arguments are appended in add.c; the environment, the rules for single parts, encoding, decoding and the human-readable
 * text have their own files.
 */
#include "base/arguments.h"
#include "cache/request/request_internal.h"

#include "base/array.h"
#include "base/cleanup.h"
#include "cache/eager_face.h"
#include "cache/request/cpu.h"
#include "cache/request/cpu_detect.h"

#include <string.h>

/* ---- memory ---- */

void aoticache_request_argument_clear(aoticache_argument *view)
{
    if (view->name[0] != '\0') /* the name of a positional argument is static */
        free((char *)view->name);
    switch (view->kind) {
    case AOTICACHE_ARGUMENT_TENSOR:
    case AOTICACHE_ARGUMENT_CONSTANT:
        free((int64_t *)view->value.tensor.metadata.sizes); /* the strides are in the same block */
        break;
    case AOTICACHE_ARGUMENT_STRING:
        free((char *)view->value.string_value);
        break;
    default: /* aoticache_request_vector_clear() frees the items of a LIST */
        break;
    }
}

/* Items of lists contain no lists, so recursion is at most two levels deep. */
void aoticache_request_vector_clear(struct argument_vector *vector)
{
    for (size_t i = 0; i < vector->count; i++) {
        aoticache_argument *view = vector->views + i;
        if (view->kind == AOTICACHE_ARGUMENT_LIST) {
            struct argument_vector items = {.views = (aoticache_argument *)view->value.list.items,
                                            .count = view->value.list.count};
            aoticache_request_vector_clear(&items);
        }
        aoticache_request_argument_clear(view);
    }
    free(vector->views);
    *vector = (struct argument_vector){0};
}

bool aoticache_request_vector_reserve(struct argument_vector *vector)
{
    return AOTICACHE_ARRAY_RESERVE(vector->views, vector->capacity, vector->count + 1);
}

static aoticache_request *request_allocate(const char *op, aoticache_device device)
{
    aoticache_request *request = calloc(1, sizeof *request);
    if (request == NULL)
        return NULL;
    request->info = (aoticache_request_info){.op = strdup(op), .device = device};
    if (request->info.op == NULL) {
        free(request);
        return NULL;
    }
    request->encoded_size = aoticache_request_encoded_base_size(op);
    return request;
}

aoticache_status aoticache_request_create(const char *op, aoticache_device device, aoticache_request **ret_request,
                                          aoticache_error *ret_error)
{
    char reason[REQUEST_REASON_BYTES];
    if (op == NULL || ret_request == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, op, ret_request);
    if (!aoticache_request_check_op(op, reason) || !aoticache_request_check_device(&device, reason))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "request: %s", reason);
    aoticache_request *request = request_allocate(op, device);
    if (request == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "request for %s: out of memory", op);
    aoticache_status status = aoticache_request_set_environment(request, "arch", aoticache_cpu_arch(), ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_request_free(request);
        return status;
    }
    *ret_request = request;
    return AOTICACHE_OK;
}

void aoticache_request_free(aoticache_request *request)
{
    if (request == NULL)
        return;
    int saved = errno;
    aoticache_request_vector_clear(&request->arguments);
    aoticache_request_vector_clear(&request->list);
    aoticache_request_environment_clear(request);
    free(request->list_name);
    free((char *)request->info.op);
    free(request);
    errno = saved;
}

/* ---- accessors ---- */

const aoticache_request_info *aoticache_request_get_info(const aoticache_request *request)
{
    return &request->info;
}

const aoticache_argument *aoticache_request_argument(const aoticache_request *request, size_t position)
{
    return position < request->arguments.count ? request->arguments.views + position : NULL;
}
