/*
 * cache/request/add: appending arguments to a request.
 *
 * Enforces the rules between arguments: keywords after positional arguments, each keyword once, lists that do not nest, the
 * limits of the whole request. A refused call leaves the request unchanged. The rules for one part are in check.c.
 */
#include "base/arguments.h"
#include "cache/request/internal.h"

#include "base/cleanup.h"
#include "base/digest.h"

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
        return aoticache_error_set(ret_error, status, "%s, argument %zu, item %zu: %s", request->op,
                                   request->arguments.count, request->list.count, reason);
    return aoticache_error_set(ret_error, status, "%s, argument %zu: %s", request->op, request->arguments.count,
                               reason);
}

static aoticache_status refuse_null(aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "aoticache_request_add_*: request is NULL");
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
                                        struct argument_data data, aoticache_error *ret_error)
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
    aoticache_request_vector_push(vector, view, data);
    request->item_count++;
    request->keyword_count += is_keyword;
    request->encoded_size += size;
    return AOTICACHE_OK;
}

static aoticache_status append_plain(aoticache_request *request, const char *name, aoticache_argument view,
                                     aoticache_error *ret_error)
{
    if (request == NULL)
        return refuse_null(ret_error);
    return append_argument(request, name, view, (struct argument_data){0}, ret_error);
}

/* Makes a copy that owns its sizes and strides, in one block; returns false if memory is short. */
static bool copy_metadata(const aoticache_tensor_metadata *metadata, aoticache_tensor_metadata *ret_copy)
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
    *ret_copy = *metadata;
    ret_copy->sizes = block;
    ret_copy->strides = block + ndim;
    return true;
}

static aoticache_status append_tensor(aoticache_request *request, const char *name, aoticache_argument view,
                                      const aoticache_tensor_metadata *metadata, const void *data,
                                      aoticache_error *ret_error)
{
    if (!copy_metadata(metadata, &view.value.tensor.metadata))
        return refuse(request, AOTICACHE_NO_MEMORY, ret_error, "out of memory");
    return append_argument(request, name, view, (struct argument_data){.bytes = data}, ret_error);
}

/* Checks the caller's metadata, and makes its device canonical; sizes and strides still belong to the caller. */
static aoticache_status check_metadata(const aoticache_request *request, const aoticache_tensor_metadata *metadata,
                                       aoticache_tensor_metadata *ret_checked, aoticache_error *ret_error)
{
    char reason[REQUEST_REASON_BYTES];
    if (request == NULL)
        return refuse_null(ret_error);
    if (metadata == NULL)
        return refuse(request, AOTICACHE_INVALID, ret_error, "the metadata is NULL");
    *ret_checked = *metadata;
    if (!aoticache_request_check_metadata(ret_checked, reason))
        return refuse(request, AOTICACHE_INVALID, ret_error, "%s", reason);
    return AOTICACHE_OK;
}

aoticache_status aoticache_request_add_tensor(aoticache_request *request, const char *name,
                                              const aoticache_tensor_metadata *metadata, aoticache_error *ret_error)
{
    aoticache_tensor_metadata checked;
    aoticache_status status = check_metadata(request, metadata, &checked, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return append_tensor(request, name, (aoticache_argument){.kind = AOTICACHE_ARGUMENT_TENSOR}, &checked, NULL,
                         ret_error);
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

aoticache_status aoticache_request_add_constant(aoticache_request *request, const char *name,
                                                const aoticache_tensor_metadata *metadata, const void *data,
                                                const aoticache_digest *data_digest, aoticache_error *ret_error)
{
    aoticache_tensor_metadata checked;
    aoticache_argument view = {.kind = AOTICACHE_ARGUMENT_CONSTANT};
    aoticache_status status = check_metadata(request, metadata, &checked, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (checked.layout != AOTICACHE_LAYOUT_STRIDED)
        return refuse(request, AOTICACHE_INVALID, ret_error, "a constant has layout %s, it must be strided",
                      aoticache_layout_name(checked.layout));
    if (data_digest != NULL)
        view.value.tensor.data_digest = *data_digest;
    else
        status = digest_data(request, &checked, data, &view.value.tensor.data_digest, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return append_tensor(request, name, view, &checked, data, ret_error);
}

aoticache_status aoticache_request_add_none(aoticache_request *request, const char *name, aoticache_error *ret_error)
{
    return append_plain(request, name, (aoticache_argument){.kind = AOTICACHE_ARGUMENT_NONE}, ret_error);
}

aoticache_status aoticache_request_add_int(aoticache_request *request, const char *name, int64_t value,
                                           aoticache_error *ret_error)
{
    aoticache_argument view = {.kind = AOTICACHE_ARGUMENT_INT, .value.int_value = value};
    return append_plain(request, name, view, ret_error);
}

aoticache_status aoticache_request_add_double(aoticache_request *request, const char *name, double value,
                                              aoticache_error *ret_error)
{
    aoticache_argument view = {.kind = AOTICACHE_ARGUMENT_DOUBLE};
    view.value.double_value = aoticache_request_canonical_double(value);
    return append_plain(request, name, view, ret_error);
}

aoticache_status aoticache_request_add_bool(aoticache_request *request, const char *name, bool value,
                                            aoticache_error *ret_error)
{
    aoticache_argument view = {.kind = AOTICACHE_ARGUMENT_BOOL, .value.bool_value = value};
    return append_plain(request, name, view, ret_error);
}

aoticache_status aoticache_request_add_complex(aoticache_request *request, const char *name, double real,
                                               double imaginary, aoticache_error *ret_error)
{
    aoticache_argument view = {.kind = AOTICACHE_ARGUMENT_COMPLEX};
    view.value.complex_value[0] = aoticache_request_canonical_double(real);
    view.value.complex_value[1] = aoticache_request_canonical_double(imaginary);
    return append_plain(request, name, view, ret_error);
}

aoticache_status aoticache_request_add_string(aoticache_request *request, const char *name, const char *value,
                                              aoticache_error *ret_error)
{
    char reason[REQUEST_REASON_BYTES];
    aoticache_argument view = {.kind = AOTICACHE_ARGUMENT_STRING};
    if (request == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, request);
    if (value == NULL)
        return refuse(request, AOTICACHE_INVALID, ret_error, "the string is NULL; use add_none for an absent argument");
    if (!aoticache_request_check_string(value, reason))
        return refuse(request, AOTICACHE_INVALID, ret_error, "%s", reason);
    view.value.string_value = strdup(value);
    if (view.value.string_value == NULL)
        return refuse(request, AOTICACHE_NO_MEMORY, ret_error, "out of memory");
    return append_argument(request, name, view, (struct argument_data){0}, ret_error);
}

aoticache_status aoticache_request_add_device(aoticache_request *request, const char *name, aoticache_device value,
                                              aoticache_error *ret_error)
{
    char reason[REQUEST_REASON_BYTES];
    if (request == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, request);
    if (!aoticache_request_check_device(&value, reason))
        return refuse(request, AOTICACHE_INVALID, ret_error, "%s", reason);
    aoticache_argument view = {.kind = AOTICACHE_ARGUMENT_DEVICE, .value.device_value = value};
    return append_plain(request, name, view, ret_error);
}

/* Appends a number with a meaning in PyTorch. */
static aoticache_status append_number(aoticache_request *request, const char *name, aoticache_argument_kind kind,
                                      int32_t value, const char *value_name, aoticache_error *ret_error)
{
    static const char *const kind_names[] = {
#define KIND_NAME(upper, lower, number) [number] = #lower,
        AOTICACHE_ARGUMENT_KIND_LIST(KIND_NAME)
#undef KIND_NAME
    };
    if (request == NULL)
        return refuse_null(ret_error);
    if (value_name == NULL)
        return refuse(request, AOTICACHE_INVALID, ret_error, "unknown %s %d", kind_names[kind], (int)value);
    return append_plain(request, name, (aoticache_argument){.kind = kind, .value.int_value = value}, ret_error);
}

aoticache_status aoticache_request_add_dtype(aoticache_request *request, const char *name, int32_t value,
                                             aoticache_error *ret_error)
{
    return append_number(request, name, AOTICACHE_ARGUMENT_DTYPE, value, aoticache_dtype_name(value), ret_error);
}

aoticache_status aoticache_request_add_layout(aoticache_request *request, const char *name, int32_t value,
                                              aoticache_error *ret_error)
{
    return append_number(request, name, AOTICACHE_ARGUMENT_LAYOUT, value, aoticache_layout_name(value), ret_error);
}

aoticache_status aoticache_request_add_memory_format(aoticache_request *request, const char *name, int32_t value,
                                                     aoticache_error *ret_error)
{
    return append_number(request, name, AOTICACHE_ARGUMENT_MEMORY_FORMAT, value, aoticache_memory_format_name(value),
                         ret_error);
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
    aoticache_request_vector_push(&request->arguments, view, (struct argument_data){.items = request->list.data});
    request->list = (struct argument_vector){0};
    request->list_open = false;
    return AOTICACHE_OK;
}
