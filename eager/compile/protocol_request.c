/*
 * eager/compile/protocol_request: writes a request as a line of JSON, and the data of its constants to files.
 *
 * Reading answers is in protocol_answer.c; docs/hooks.md describes both, field by field.
 */
#include "base/cleanup.h"
#include "base/names.h"
#include "base/syscalls.h"
#include "cache/eager_face.h"
#include "cache/request/text.h"
#include "eager/compile/hook_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

/* Puts `value` into `object` and takes ownership of it. A `value` of NULL is a failure. */
static bool put_member(json_t *object, const char *name, json_t *value)
{
    return json_object_set_new(object, name, value) == 0;
}

static int constant_path(const char *directory, size_t position, char ret_path[PATH_MAX])
{
    int length = snprintf(ret_path, PATH_MAX, "%s/constant%zu.bin", directory, position);
    return length > 0 && length < PATH_MAX ? 0 : -1;
}

/* Writes operator, device and arguments as cache/request does; on failure returns NULL and sets *ret_status. */
static json_t *json_of_request(const aoticache_request *request, aoticache_status *ret_status,
                               aoticache_error *ret_error)
{
    cleanup_free char *line = NULL;
    *ret_status = aoticache_request_write(request, AOTICACHE_REQUEST_JSON, &line, ret_error);
    json_t *root = line != NULL ? json_loads(line, 0, NULL) : NULL;
    if (root == NULL && *ret_status == AOTICACHE_OK)
        *ret_status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "request: out of memory");
    return root;
}

/* Adapts an argument for hooks: the data of a constant becomes a file, and key sets, which do not affect code, are dropped. */
static aoticache_status fit_argument(json_t *json, const aoticache_argument *argument, size_t position,
                                     const char *directory)
{
    char path[PATH_MAX];
    for (size_t i = 0; argument->kind == AOTICACHE_ARGUMENT_LIST && i < argument->value.list.count; i++) {
        json_object_del(json_array_get(json_object_get(json, "items"), i), "dispatch_key_set");
        if (argument->value.list.items[i].kind == AOTICACHE_ARGUMENT_CONSTANT)
            return AOTICACHE_UNSUPPORTED; /* the argument's name becomes the file's name */
    }
    json_object_del(json, "dispatch_key_set");
    if (argument->kind != AOTICACHE_ARGUMENT_CONSTANT)
        return AOTICACHE_OK;
    json_object_del(json, "data_digest");
    return constant_path(directory, position, path) == 0 && put_member(json, "file", json_string(path))
               ? AOTICACHE_OK
               : AOTICACHE_UNSUPPORTED;
}

static aoticache_status fit_arguments(json_t *root, const aoticache_request *request, const char *directory,
                                      aoticache_error *ret_error)
{
    json_t *arguments = json_object_get(root, "arguments");
    for (size_t i = 0; i < aoticache_request_argument_count(request); i++) {
        const aoticache_argument *argument = aoticache_request_argument(request, i);
        if (fit_argument(json_array_get(arguments, i), argument, i, directory) != AOTICACHE_OK)
            return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                       "argument %zu of %s: a constant that the protocol cannot describe", i,
                                       aoticache_request_op(request));
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
    /* 17 digits restore every double. The text is ASCII, so readers need not consider encodings. */
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
    aoticache_status status;
    char *line = NULL;
    json_t *root = json_of_request(request, &status, ret_error);
    if (status == AOTICACHE_OK)
        status = fit_arguments(root, request, directory, ret_error);
    if (status != AOTICACHE_OK)
        goto out;
    status = AOTICACHE_INVALID;
    errno = 0;
    if (!put_member(root, "protocol", json_integer(AOTICACHE_PROTOCOL_VERSION)) ||
        !put_member(root, "id", json_integer((json_int_t)id)) || !put_environment(root, request) ||
        !put_member(root, "cpu_features", cpu_features != NULL ? json_string(cpu_features) : json_null()) ||
        !put_member(root, "directory", json_string(directory))) {
        if (errno == ENOMEM)
            status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "request: out of memory");
        else
            aoticache_error_set(ret_error, status, "request: \"%s\" or the environment is not UTF-8", directory);
        goto out;
    }
    line = line_of(root, ret_size);
    if (line != NULL)
        *ret_line = line;
    status =
        line != NULL ? AOTICACHE_OK : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "request: out of memory");
out:
    json_decref(root);
    return status;
}

/* ---- constants ---- */

/* Counts the bytes of a constant's data, row-major and without gaps, whatever the strides. False: the count overflows. */
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
    const void *data = argument->value.tensor.data;
    char path[PATH_MAX];
    size_t size = 0;
    if (!data_size(&argument->value.tensor.metadata, &size) || (data == NULL && size > 0) ||
        constant_path(directory, position, path) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "argument %zu of %s: a constant of %zu bytes without its data cannot be compiled",
                                   position, aoticache_request_op(request), size);
    cleanup_fd int fd = aoticache_syscall_openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (fd < 0 || aoticache_syscall_write(fd, data, size) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot write constant %s of %zu bytes", path, size);
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
