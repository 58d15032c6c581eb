/*
 * cache/request/add: appending arguments to a request.
 *
 * Enforces the rules between arguments: keywords after positional arguments, each keyword once, lists that do not nest, the
 * limits of the whole request. A refused call leaves the request unchanged. The rules for one part are in check.c.
 */
#include "base/arguments.h"
#include "cache/request/request_internal.h"

#include "base/cleanup.h"
#include "base/digest.h"
#include "base/names.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Reports an error with the position of the argument that was to be appended. */
AOTICACHE_PRINTF(4, 5)
static aoticache_status refuse(const aoticache_request *request, aoticache_status status, aoticache_error *ret_error,
                               const char *format, ...)
{
    char reason[REQUEST_REASON_BYTES] = "";
    if (ret_error == NULL)
        return status;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    if (request->list_open)
        return aoticache_error_set(ret_error, status, "%s, argument %zu, item %zu: %s", request->info.op,
                                   request->arguments.count, request->list.count, reason);
    return aoticache_error_set(ret_error, status, "%s, argument %zu: %s", request->info.op, request->arguments.count,
                               reason);
}

static bool has_keyword(const aoticache_request *request, const char *name)
{
    const struct argument_vector *arguments = &request->arguments;
    for (size_t i = arguments->count - request->keyword_count; i < arguments->count; i++)
        if (strcmp(arguments->views[i].name, name) == 0)
            return true;
    return false;
}

static aoticache_status check_name(const aoticache_request *request, const char *name, aoticache_error *ret_error)
{
    char reason[REQUEST_REASON_BYTES];
    if (request->list_open) {
        if (name[0] != '\0')
            return refuse(request, AOTICACHE_INVALID, ret_error, "items of a list have no names");
        return AOTICACHE_OK;
    }
    if (name[0] == '\0') {
        if (request->keyword_count > 0)
            return refuse(request, AOTICACHE_INVALID, ret_error,
                          "a positional argument cannot follow a keyword argument");
        return AOTICACHE_OK;
    }
    if (!aoticache_request_check_keyword(name, reason))
        return refuse(request, AOTICACHE_INVALID, ret_error, "%s", reason);
    if (request->keyword_count >= REQUEST_MAX_KEYWORDS)
        return refuse(request, AOTICACHE_INVALID, ret_error, "there are already %d keyword arguments, the maximum",
                      REQUEST_MAX_KEYWORDS);
    if (has_keyword(request, name))
        return refuse(request, AOTICACHE_INVALID, ret_error, "keyword %s was already added", name);
    return AOTICACHE_OK;
}

static aoticache_status check_place(const aoticache_request *request, const aoticache_argument *view, size_t size,
                                    aoticache_error *ret_error)
{
    aoticache_status status = check_name(request, view->name, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (request->item_count >= REQUEST_MAX_ARGUMENTS)
        return refuse(request, AOTICACHE_INVALID, ret_error, "there are already %d arguments and items, the maximum",
                      REQUEST_MAX_ARGUMENTS);
    if (size > REQUEST_MAX_ENCODED_BYTES - request->encoded_size)
        return refuse(request, AOTICACHE_INVALID, ret_error, "the request would have %zu bytes; at most %u are allowed",
                      request->encoded_size + size, REQUEST_MAX_ENCODED_BYTES);
    return AOTICACHE_OK;
}

/* Takes ownership of what `view` owns, also on failure. The caller keeps the name. */
static aoticache_status append_argument(aoticache_request *request, const char *name, aoticache_argument view,
                                        aoticache_error *ret_error)
{
    struct argument_vector *vector = request->list_open ? &request->list : &request->arguments;
    view.name = name != NULL ? name : "";
    size_t size = request->list_open ? aoticache_request_encoded_item_size(&view)
                                     : aoticache_request_encoded_argument_size(&view);
    aoticache_status status = check_place(request, &view, size, ret_error);
    bool is_keyword = view.name[0] != '\0';
    view.name = "";
    if (status == AOTICACHE_OK && is_keyword) {
        char *copy = strdup(name);
        view.name = copy != NULL ? copy : "";
    }
    if (status == AOTICACHE_OK && (is_keyword != (view.name[0] != '\0') || !aoticache_request_vector_reserve(vector)))
        status = refuse(request, AOTICACHE_NO_MEMORY, ret_error, "out of memory");
    if (status != AOTICACHE_OK) {
        aoticache_request_argument_clear(&view);
        return status;
    }
    vector->views[vector->count++] = view;
    request->item_count++;
    request->keyword_count += is_keyword;
    request->encoded_size += size;
    request->info.argument_count = request->arguments.count;
    return AOTICACHE_OK;
}

/* ---- copies of one argument, each of which owns what it points to. Everything is checked first. ---- */

/* Replaces sizes and strides by copies in one block; returns false if memory is short. */
static bool copy_metadata(aoticache_tensor_metadata *metadata)
{
    uint32_t ndim = metadata->ndim;
    int64_t *block = calloc(ndim > 0 ? 2 * (size_t)ndim : 1, sizeof *block);
    if (block == NULL)
        return false;
    if (ndim > 0)
        memcpy(block, metadata->sizes, ndim * sizeof *block);
    if (metadata->strides == NULL)
        aoticache_request_contiguous_strides(ndim, block, block + ndim);
    else if (ndim > 0)
        memcpy(block + ndim, metadata->strides, ndim * sizeof *block);
    metadata->sizes = block;
    metadata->strides = block + ndim;
    return true;
}

/* Returns the size of valid metadata, which cannot overflow. */
static size_t data_size(const aoticache_tensor_metadata *metadata)
{
    size_t size = aoticache_dtype_size(metadata->dtype);
    for (uint32_t i = 0; i < metadata->ndim; i++)
        size *= (size_t)metadata->sizes[i];
    return size;
}

static aoticache_status digest_data(const aoticache_request *request, const aoticache_tensor_metadata *metadata,
                                    const void *data, aoticache_digest *ret_digest, aoticache_error *ret_error)
{
    size_t size = data_size(metadata);
    if (data == NULL && size > 0)
        return refuse(request, AOTICACHE_INVALID, ret_error, "a constant needs its data or the digest of its data");
    aoticache_status status = aoticache_digest_of(data != NULL ? data : "", size, ret_digest);
    if (status != AOTICACHE_OK)
        return refuse(request, status, ret_error, "cannot compute the digest of a constant's %zu bytes", size);
    return AOTICACHE_OK;
}

/* Copies a tensor or a constant; makes its device canonical. */
static aoticache_status copy_tensor(const aoticache_request *request, aoticache_argument *view,
                                    aoticache_error *ret_error)
{
    char reason[REQUEST_REASON_BYTES];
    aoticache_tensor_metadata *metadata = &view->value.tensor.metadata;
    bool is_constant = view->kind == AOTICACHE_ARGUMENT_CONSTANT;
    aoticache_status status = AOTICACHE_OK;
    if (!aoticache_request_check_metadata(metadata, reason))
        return refuse(request, AOTICACHE_INVALID, ret_error, "%s", reason);
    if (is_constant && metadata->layout != AOTICACHE_LAYOUT_STRIDED)
        return refuse(request, AOTICACHE_INVALID, ret_error, "a constant has layout %s, it must be strided",
                      aoticache_layout_name(metadata->layout));
    if (is_constant && !view->value.tensor.has_digest)
        status = digest_data(request, metadata, view->value.tensor.data, &view->value.tensor.data_digest, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    view->value.tensor.has_digest = is_constant;
    if (!is_constant)
        view->value.tensor.data = NULL;
    return copy_metadata(metadata) ? AOTICACHE_OK : refuse(request, AOTICACHE_NO_MEMORY, ret_error, "out of memory");
}

static aoticache_status copy_string(const aoticache_request *request, aoticache_argument *view,
                                    aoticache_error *ret_error)
{
    char reason[REQUEST_REASON_BYTES];
    const char *value = view->value.string_value;
    if (value == NULL)
        return refuse(request, AOTICACHE_INVALID, ret_error, "the string is NULL; use add_none for an absent argument");
    if (!aoticache_request_check_string(value, reason))
        return refuse(request, AOTICACHE_INVALID, ret_error, "%s", reason);
    view->value.string_value = strdup(value);
    return view->value.string_value != NULL ? AOTICACHE_OK
                                            : refuse(request, AOTICACHE_NO_MEMORY, ret_error, "out of memory");
}

/* Checks a number with a meaning in PyTorch. name: that of the number as a dtype, a layout or a memory format, or NULL. */
static aoticache_status check_number(const aoticache_request *request, const aoticache_argument *view,
                                     const char *(*name)(int32_t), aoticache_error *ret_error)
{
    static const char *const kind_names[] = {
#define KIND_NAME(upper, lower, number) [number] = #lower,
        AOTICACHE_ARGUMENT_KIND_LIST(KIND_NAME)
#undef KIND_NAME
    };
    int64_t value = view->value.int_value;
    if (value == (int32_t)value && name((int32_t)value) != NULL)
        return AOTICACHE_OK;
    return refuse(request, AOTICACHE_INVALID, ret_error, "unknown %s %" PRId64, kind_names[view->kind], value);
}

/* Makes what `view` points to its own, except the name. */
static aoticache_status copy_value(const aoticache_request *request, aoticache_argument *view,
                                   aoticache_error *ret_error)
{
    char reason[REQUEST_REASON_BYTES];
    double *parts = view->value.complex_value;
    switch (view->kind) {
    case AOTICACHE_ARGUMENT_NONE:
    case AOTICACHE_ARGUMENT_INT:
    case AOTICACHE_ARGUMENT_BOOL:
        return AOTICACHE_OK;
    case AOTICACHE_ARGUMENT_TENSOR:
    case AOTICACHE_ARGUMENT_CONSTANT:
        return copy_tensor(request, view, ret_error);
    case AOTICACHE_ARGUMENT_DOUBLE:
        view->value.double_value = aoticache_request_canonical_double(view->value.double_value);
        return AOTICACHE_OK;
    case AOTICACHE_ARGUMENT_COMPLEX:
        parts[0] = aoticache_request_canonical_double(parts[0]);
        parts[1] = aoticache_request_canonical_double(parts[1]);
        return AOTICACHE_OK;
    case AOTICACHE_ARGUMENT_STRING:
        return copy_string(request, view, ret_error);
    case AOTICACHE_ARGUMENT_DEVICE:
        if (!aoticache_request_check_device(&view->value.device_value, reason))
            return refuse(request, AOTICACHE_INVALID, ret_error, "%s", reason);
        return AOTICACHE_OK;
    case AOTICACHE_ARGUMENT_DTYPE:
        return check_number(request, view, aoticache_dtype_name, ret_error);
    case AOTICACHE_ARGUMENT_LAYOUT:
        return check_number(request, view, aoticache_layout_name, ret_error);
    case AOTICACHE_ARGUMENT_MEMORY_FORMAT:
        return check_number(request, view, aoticache_memory_format_name, ret_error);
    case AOTICACHE_ARGUMENT_LIST:
        return refuse(request, AOTICACHE_INVALID, ret_error, "a list cannot hold a list");
    }
    return refuse(request, AOTICACHE_INVALID, ret_error, "unknown kind of argument %d", (int)view->kind);
}

/* Appends anything except a list. */
static aoticache_status add_single(aoticache_request *request, const aoticache_argument *argument,
                                   aoticache_error *ret_error)
{
    aoticache_argument view = *argument;
    aoticache_status status = copy_value(request, &view, ret_error);
    return status == AOTICACHE_OK ? append_argument(request, argument->name, view, ret_error) : status;
}

/* ---- lists ---- */

/* Reserves the list's own bytes and its position among the arguments, so that ending it cannot fail. */
aoticache_status aoticache_request_begin_list(aoticache_request *request, const char *name, aoticache_error *ret_error)
{
    if (request == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, request);
    if (request->list_open)
        return refuse(request, AOTICACHE_INVALID, ret_error, "a list cannot hold a list");
    aoticache_argument view = {.kind = AOTICACHE_ARGUMENT_LIST, .name = name != NULL ? name : ""};
    size_t size = aoticache_request_encoded_argument_size(&view);
    aoticache_status status = check_place(request, &view, size, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    char *copy = view.name[0] != '\0' ? strdup(name) : NULL;
    if ((view.name[0] != '\0' && copy == NULL) || !aoticache_request_vector_reserve(&request->arguments)) {
        free(copy);
        return refuse(request, AOTICACHE_NO_MEMORY, ret_error, "out of memory");
    }
    request->list_name = copy;
    request->list_open = true;
    request->item_count++;
    request->encoded_size += size;
    return AOTICACHE_OK;
}

aoticache_status aoticache_request_end_list(aoticache_request *request, aoticache_error *ret_error)
{
    if (request == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, request);
    if (!request->list_open)
        return refuse(request, AOTICACHE_INVALID, ret_error, "no list is open");
    aoticache_argument view = {.kind = AOTICACHE_ARGUMENT_LIST, .name = ""};
    if (request->list_name != NULL) {
        view.name = steal_ptr(&request->list_name);
        request->keyword_count++;
    }
    view.value.list.items = request->list.views;
    view.value.list.count = request->list.count;
    request->arguments.views[request->arguments.count++] = view;
    request->info.argument_count = request->arguments.count;
    request->list = (struct argument_vector){0};
    request->list_open = false;
    return AOTICACHE_OK;
}

/* Appends a list with all its items, or nothing. The list is a copy, because it may be of this very request. */
static aoticache_status add_list(aoticache_request *request, aoticache_argument list, aoticache_error *ret_error)
{
    const size_t encoded_size = request->encoded_size, item_count = request->item_count;
    aoticache_status status = aoticache_request_begin_list(request, list.name, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (list.value.list.items == NULL && list.value.list.count > 0)
        status = refuse(request, AOTICACHE_INVALID, ret_error, "the items are NULL");
    for (size_t i = 0; status == AOTICACHE_OK && i < list.value.list.count; i++)
        status = add_single(request, &list.value.list.items[i], ret_error);
    if (status == AOTICACHE_OK)
        return aoticache_request_end_list(request, ret_error);
    aoticache_request_vector_clear(&request->list);
    free(steal_ptr(&request->list_name));
    request->list_open = false;
    request->encoded_size = encoded_size;
    request->item_count = item_count;
    return status;
}

aoticache_status aoticache_request_add(aoticache_request *request, const aoticache_argument *argument,
                                       aoticache_error *ret_error)
{
    if (request == NULL || argument == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, request, argument);
    return argument->kind == AOTICACHE_ARGUMENT_LIST ? add_list(request, *argument, ret_error)
                                                     : add_single(request, argument, ret_error);
}
