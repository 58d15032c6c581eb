/*
 * eager/hook/protocol_request: a request as a line of JSON, and the data of its constants as files.
 *
 * Reading answers is in protocol_answer.c; docs/hooks.md describes both, field by field.
 */
#include "base/cleanup.h"
#include "base/syscalls.h"
#include "eager/hook/internal.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <string.h>

/* Puts `value`, which is taken, into `object`; NULL is passed on as failure. */
static bool put_member(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0;
}

/* JSON has no numbers for these three; every NaN is alike, as in the key. */
static json_t *json_of_double(double value)
{
    if (isnan(value))
        return json_string("nan");
    if (isinf(value))
        return json_string(value > 0 ? "inf" : "-inf");
    return json_real(value);
}

static json_t *json_of_complex(const double value[2])
{
    json_t *pair = json_array();
    if (pair != NULL && (json_array_append_new(pair, json_of_double(value[0])) != 0 ||
                         json_array_append_new(pair, json_of_double(value[1])) != 0)) {
        json_decref(pair);
        return NULL;
    }
    return pair;
}

static json_t *json_of_sizes(const int64_t *values, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; array != NULL && i < count; i++) {
        if (json_array_append_new(array, json_integer(values[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *json_of_device(aoticache_device device)
{
    char text[AOTICACHE_DEVICE_TEXT_BYTES];
    aoticache_device_format(device, text);
    return json_string(text);
}

/* A number outside its list has no name; json_string(NULL) is NULL, and the caller then says UNSUPPORTED. */
static bool put_metadata(json_t *object, const aoticache_tensor_metadata *metadata)
{
    return put_member(object, "dtype", json_string(aoticache_dtype_name(metadata->dtype))) &&
           put_member(object, "sizes", json_of_sizes(metadata->sizes, metadata->ndim)) &&
           put_member(object, "strides", json_of_sizes(metadata->strides, metadata->ndim)) &&
           put_member(object, "device", json_of_device(metadata->device)) &&
           put_member(object, "layout", json_string(aoticache_layout_name(metadata->layout))) &&
           put_member(object, "requires_grad", json_boolean(metadata->requires_grad));
}

static int constant_path(const char *directory, size_t position, char ret_path[PATH_MAX])
{
    int length = snprintf(ret_path, PATH_MAX, "%s/constant%zu.bin", directory, position);
    return length > 0 && length < PATH_MAX ? 0 : -1;
}

static bool put_constant(json_t *object, const aoticache_argument *argument, size_t position, const char *directory)
{
    char path[PATH_MAX];
    return constant_path(directory, position, path) == 0 &&
           put_metadata(object, &argument->value.tensor.metadata) && put_member(object, "file", json_string(path));
}

static const char *kind_name(aoticache_argument_kind kind)
{
    switch (kind) {
#define KIND_NAME(upper, lower, number) \
    case AOTICACHE_ARGUMENT_##upper:    \
        return #lower;
        AOTICACHE_ARGUMENT_KIND_LIST(KIND_NAME)
#undef KIND_NAME
    }
    return NULL;
}

/* The value of an argument that is no tensor and no list. */
static json_t *json_of_value(const aoticache_argument *argument)
{
    switch (argument->kind) {
    case AOTICACHE_ARGUMENT_INT:
        return json_integer(argument->value.int_value);
    case AOTICACHE_ARGUMENT_DOUBLE:
        return json_of_double(argument->value.double_value);
    case AOTICACHE_ARGUMENT_BOOL:
        return json_boolean(argument->value.bool_value);
    case AOTICACHE_ARGUMENT_COMPLEX:
        return json_of_complex(argument->value.complex_value);
    case AOTICACHE_ARGUMENT_STRING:
        return json_string(argument->value.string_value);
    case AOTICACHE_ARGUMENT_DEVICE:
        return json_of_device(argument->value.device_value);
    case AOTICACHE_ARGUMENT_DTYPE:
        return json_string(aoticache_dtype_name((int32_t)argument->value.int_value));
    case AOTICACHE_ARGUMENT_LAYOUT:
        return json_string(aoticache_layout_name((int32_t)argument->value.int_value));
    case AOTICACHE_ARGUMENT_MEMORY_FORMAT:
        return json_string(aoticache_memory_format_name((int32_t)argument->value.int_value));
    default:
        return NULL;
    }
}

/* Items of lists: everything but constants (their data is known by the argument's position) and lists. */
static json_t *json_of_item(const aoticache_argument *item)
{
    json_t *object = json_object();
    if (object == NULL)
        return NULL;
    bool fine = put_member(object, "kind", json_string(kind_name(item->kind)));
    if (item->kind == AOTICACHE_ARGUMENT_TENSOR)
        fine = fine && put_metadata(object, &item->value.tensor.metadata);
    else if (item->kind != AOTICACHE_ARGUMENT_NONE)
        fine = fine && put_member(object, "value", json_of_value(item));
    if (fine)
        return object;
    json_decref(object);
    return NULL;
}

static json_t *json_of_items(const aoticache_argument *argument)
{
    json_t *array = json_array();
    for (size_t i = 0; array != NULL && i < argument->value.list.count; i++) {
        if (json_array_append_new(array, json_of_item(&argument->value.list.items[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *json_of_argument(const aoticache_argument *argument, size_t position, const char *directory)
{
    json_t *object;
    if (argument->kind == AOTICACHE_ARGUMENT_LIST) {
        object = json_object();
        if (object != NULL && (!put_member(object, "kind", json_string("list")) ||
                               !put_member(object, "items", json_of_items(argument)))) {
            json_decref(object);
            return NULL;
        }
    } else if (argument->kind == AOTICACHE_ARGUMENT_CONSTANT) {
        object = json_object();
        if (object != NULL && (!put_member(object, "kind", json_string("constant")) ||
                               !put_constant(object, argument, position, directory))) {
            json_decref(object);
            return NULL;
        }
    } else {
        object = json_of_item(argument);
    }
    if (object != NULL && !put_member(object, "name", json_string(argument->name))) {
        json_decref(object);
        return NULL;
    }
    return object;
}

static aoticache_status put_arguments(json_t *root, const aoticache_request *request, const char *directory,
                                      aoticache_error *ret_error)
{
    json_t *array = json_array();
    if (!put_member(root, "arguments", array))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "request: out of memory");
    size_t count = aoticache_request_argument_count(request);
    for (size_t i = 0; i < count; i++) {
        const aoticache_argument *argument = aoticache_request_argument(request, i);
        if (json_array_append_new(array, json_of_argument(argument, i, directory)) != 0)
            return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                       "argument %zu of %s: a %s that hooks cannot be told of", i,
                                       aoticache_request_op(request), kind_name(argument->kind));
    }
    return AOTICACHE_OK;
}

static bool put_environment(json_t *root, const aoticache_request *request)
{
    json_t *object = json_object();
    if (!put_member(root, "environment", object))
        return false;
    size_t count = aoticache_request_environment_count(request);
    for (size_t i = 0; i < count; i++) {
        const char *name, *value;
        aoticache_request_environment_at(request, i, &name, &value);
        if (!put_member(object, name, json_string(value)))
            return false;
    }
    return true;
}

static char *line_of(const json_t *root, size_t *ret_size)
{
    /* 17 digits bring back every double; ASCII only, so that no reader has to care for encodings. */
    const size_t flags = JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(17);
    size_t size = json_dumpb(root, NULL, 0, flags);
    char *line = size == 0 ? NULL : malloc(size + 2);
    if (line == NULL || json_dumpb(root, line, size, flags) != size) {
        free(line);
        return NULL;
    }
    line[size] = '\n';
    line[size + 1] = '\0';
    *ret_size = size + 1;
    return line;
}

aoticache_status aoticache_protocol_write_request(const aoticache_request *request, uint64_t id,
                                                  const char *cpu_features, const char *directory, char **ret_line,
                                                  size_t *ret_size, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_NO_MEMORY;
    char *line = NULL;
    json_t *root = json_object();
    if (root == NULL || !put_member(root, "protocol", json_integer(AOTICACHE_PROTOCOL_VERSION)) ||
        !put_member(root, "id", json_integer((json_int_t)id)) ||
        !put_member(root, "operator", json_string(aoticache_request_op(request))) ||
        !put_member(root, "device", json_of_device(aoticache_request_device(request)))) {
        aoticache_error_set(ret_error, status, "request: out of memory");
        goto out;
    }
    status = put_arguments(root, request, directory, ret_error);
    if (status != AOTICACHE_OK)
        goto out;
    status = AOTICACHE_INVALID;
    if (!put_environment(root, request) ||
        !put_member(root, "cpu_features", cpu_features != NULL ? json_string(cpu_features) : json_null()) ||
        !put_member(root, "directory", json_string(directory))) {
        aoticache_error_set(ret_error, status, "request: \"%s\" or the environment is not UTF-8", directory);
        goto out;
    }
    line = line_of(root, ret_size);
    if (line != NULL)
        *ret_line = line;
    status = line != NULL ? AOTICACHE_OK
                          : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "request: out of memory");
out:
    json_decref(root);
    return status;
}

/* ---- constants ---- */

/* Bytes of a constant's data; false where that overflows. Row-major and without gaps, whatever the strides. */
static bool data_size(const aoticache_tensor_metadata *metadata, size_t *ret_size)
{
    size_t size = aoticache_dtype_size(metadata->dtype);
    for (uint32_t i = 0; i < metadata->ndim; i++)
        if (metadata->sizes[i] < 0 || __builtin_mul_overflow(size, (size_t)metadata->sizes[i], &size))
            return false;
    *ret_size = size;
    return true;
}

static aoticache_status write_constant(const aoticache_request *request, size_t position, const char *directory,
                                       aoticache_error *ret_error)
{
    const aoticache_argument *argument = aoticache_request_argument(request, position);
    const void *data = aoticache_request_constant_data(request, position);
    char path[PATH_MAX];
    size_t size = 0;
    if (!data_size(&argument->value.tensor.metadata, &size) || (data == NULL && size > 0) ||
        constant_path(directory, position, path) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "argument %zu of %s: a constant of %zu bytes without its data cannot be compiled",
                                   position, aoticache_request_op(request), size);
    cleanup_fd int fd = aoticache_syscall_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0 || aoticache_syscall_write(fd, data, size) != 0)
        return aoticache_error_set_errno(ret_error, errno, "constant %s of %zu bytes cannot be written", path, size);
    return AOTICACHE_OK;
}

aoticache_status aoticache_protocol_write_constants(const aoticache_request *request, const char *directory,
                                                    aoticache_error *ret_error)
{
    size_t count = aoticache_request_argument_count(request);
    for (size_t i = 0; i < count; i++) {
        if (aoticache_request_argument(request, i)->kind != AOTICACHE_ARGUMENT_CONSTANT)
            continue;
        aoticache_status status = write_constant(request, i, directory, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    return AOTICACHE_OK;
}
