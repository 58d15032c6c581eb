/*
 * cache/request/decode: converts an untrusted encoding to a request.
 *
 * It calls the functions that build a request, so no rule is implemented twice. The result is encoded again and compared, so
 * an encoding that is not the canonical one of its request is refused, whatever the difference is.
 */
#include "base/arguments.h"
#include "cache/request/request_internal.h"

#include "base/cleanup.h"
#include "cache/eager_face.h"
#include "cache/request/text.h"

#include <endian.h>
#include <string.h>

struct reader {
    const uint8_t *bytes;
    size_t at, size;
    aoticache_error *error;
};

static aoticache_status refuse_short(const struct reader *reader, const char *what, size_t wanted)
{
    return aoticache_error_set(reader->error, AOTICACHE_INVALID,
                               "key encoding: %s at byte %zu needs %zu bytes; %zu remain", what, reader->at, wanted,
                               reader->size - reader->at);
}

/* Gives zeros if there are too few bytes. */
static aoticache_status get_bytes(struct reader *reader, const char *what, void *ret_bytes, size_t size)
{
    memset(ret_bytes, 0, size);
    if (size > reader->size - reader->at)
        return refuse_short(reader, what, size);
    memcpy(ret_bytes, reader->bytes + reader->at, size);
    reader->at += size;
    return AOTICACHE_OK;
}

static aoticache_status get_u32(struct reader *reader, const char *what, uint32_t *ret_value)
{
    aoticache_status status = get_bytes(reader, what, ret_value, sizeof *ret_value);
    *ret_value = le32toh(*ret_value);
    return status;
}

static aoticache_status get_i32(struct reader *reader, const char *what, int32_t *ret_value)
{
    uint32_t value = 0;
    aoticache_status status = get_u32(reader, what, &value);
    *ret_value = (int32_t)value;
    return status;
}

static aoticache_status get_u64(struct reader *reader, const char *what, uint64_t *ret_value)
{
    aoticache_status status = get_bytes(reader, what, ret_value, sizeof *ret_value);
    *ret_value = le64toh(*ret_value);
    return status;
}

static aoticache_status get_double(struct reader *reader, double *ret_value)
{
    uint64_t bits = 0;
    aoticache_status status = get_u64(reader, "a double", &bits);
    memcpy(ret_value, &bits, sizeof bits);
    return status;
}

/* Gives at most `limit`, so that a false number cannot cause large allocations or loops. */
static aoticache_status get_count(struct reader *reader, const char *what, uint32_t limit, uint32_t *ret_count)
{
    size_t start = reader->at;
    aoticache_status status = get_u32(reader, what, ret_count);
    if (status == AOTICACHE_OK && *ret_count > limit)
        status = aoticache_error_set(reader->error, AOTICACHE_INVALID,
                                     "key encoding: %s at byte %zu is %u; at most %u are allowed", what, start,
                                     (unsigned)*ret_count, (unsigned)limit);
    return status;
}

/* Reads a text. The caller frees *ret_text. Text in an encoding has no terminator and no zero byte. */
static aoticache_status get_text(struct reader *reader, const char *what, uint32_t limit, char **ret_text)
{
    uint32_t length;
    aoticache_status status = get_count(reader, what, limit, &length);
    if (status != AOTICACHE_OK)
        return status;
    if (length > reader->size - reader->at)
        return refuse_short(reader, what, length);
    const char *text = (const char *)reader->bytes + reader->at;
    if (memchr(text, '\0', length) != NULL)
        return aoticache_error_set(reader->error, AOTICACHE_INVALID, "key encoding: %s at byte %zu holds a zero byte",
                                   what, reader->at);
    *ret_text = strndup(text, length);
    if (*ret_text == NULL)
        return aoticache_error_set(reader->error, AOTICACHE_NO_MEMORY, "key encoding: out of memory");
    reader->at += length;
    return AOTICACHE_OK;
}

static aoticache_status get_device(struct reader *reader, aoticache_device *ret_device)
{
    aoticache_status status = get_i32(reader, "a device's type", &ret_device->type);
    return status == AOTICACHE_OK ? get_i32(reader, "a device's index", &ret_device->index) : status;
}

/* ---- arguments ---- */

struct tensor {
    aoticache_tensor_metadata metadata;
    int64_t sizes[AOTICACHE_MAX_DIMS], strides[AOTICACHE_MAX_DIMS];
};

static aoticache_status get_extents(struct reader *reader, const char *what, uint32_t ndim, int64_t *ret_extents)
{
    aoticache_status status = AOTICACHE_OK;
    for (uint32_t i = 0; i < ndim && status == AOTICACHE_OK; i++) {
        uint64_t value;
        status = get_u64(reader, what, &value);
        ret_extents[i] = (int64_t)value;
    }
    return status;
}

static aoticache_status get_tensor(struct reader *reader, struct tensor *ret_tensor)
{
    aoticache_tensor_metadata *metadata = &ret_tensor->metadata;
    uint8_t requires_grad = 0;
    *metadata = (aoticache_tensor_metadata){.sizes = ret_tensor->sizes, .strides = ret_tensor->strides};
    aoticache_status status = get_i32(reader, "a tensor's dtype", &metadata->dtype);
    if (status == AOTICACHE_OK)
        status = get_i32(reader, "a tensor's layout", &metadata->layout);
    if (status == AOTICACHE_OK)
        status = get_device(reader, &metadata->device);
    if (status == AOTICACHE_OK)
        status = get_bytes(reader, "a tensor's requires_grad", &requires_grad, 1);
    if (status == AOTICACHE_OK)
        status = get_u64(reader, "a tensor's dispatch key set", &metadata->dispatch_key_set);
    if (status == AOTICACHE_OK)
        status = get_count(reader, "a tensor's number of dimensions", AOTICACHE_MAX_DIMS, &metadata->ndim);
    if (status == AOTICACHE_OK)
        status = get_extents(reader, "a tensor's size", metadata->ndim, ret_tensor->sizes);
    if (status == AOTICACHE_OK)
        status = get_extents(reader, "a tensor's stride", metadata->ndim, ret_tensor->strides);
    metadata->requires_grad = requires_grad != 0;
    return status;
}

static aoticache_status decode_tensor(struct reader *reader, aoticache_request *request, const char *name,
                                      bool is_constant)
{
    struct tensor tensor;
    aoticache_digest digest;
    aoticache_status status = get_tensor(reader, &tensor);
    if (status == AOTICACHE_OK && is_constant)
        status = get_bytes(reader, "a constant's digest", digest.bytes, sizeof digest.bytes);
    if (status != AOTICACHE_OK)
        return status;
    if (is_constant)
        return aoticache_request_add_constant(request, name, &tensor.metadata, NULL, &digest, reader->error);
    return aoticache_request_add_tensor(request, name, &tensor.metadata, reader->error);
}

static aoticache_status decode_int(struct reader *reader, aoticache_request *request, const char *name)
{
    uint64_t value;
    aoticache_status status = get_u64(reader, "an int", &value);
    return status == AOTICACHE_OK ? aoticache_request_add_int(request, name, (int64_t)value, reader->error) : status;
}

static aoticache_status decode_double(struct reader *reader, aoticache_request *request, const char *name)
{
    double value;
    aoticache_status status = get_double(reader, &value);
    return status == AOTICACHE_OK ? aoticache_request_add_double(request, name, value, reader->error) : status;
}

static aoticache_status decode_bool(struct reader *reader, aoticache_request *request, const char *name)
{
    uint8_t value;
    aoticache_status status = get_bytes(reader, "a bool", &value, 1);
    return status == AOTICACHE_OK ? aoticache_request_add_bool(request, name, value != 0, reader->error) : status;
}

static aoticache_status decode_complex(struct reader *reader, aoticache_request *request, const char *name)
{
    double real, imaginary;
    aoticache_status status = get_double(reader, &real);
    if (status == AOTICACHE_OK)
        status = get_double(reader, &imaginary);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_request_add_complex(request, name, real, imaginary, reader->error);
}

static aoticache_status decode_string(struct reader *reader, aoticache_request *request, const char *name)
{
    cleanup_free char *value = NULL;
    aoticache_status status = get_text(reader, "a string", REQUEST_MAX_STRING_BYTES, &value);
    return status == AOTICACHE_OK ? aoticache_request_add_string(request, name, value, reader->error) : status;
}

static aoticache_status decode_device(struct reader *reader, aoticache_request *request, const char *name)
{
    aoticache_device value;
    aoticache_status status = get_device(reader, &value);
    return status == AOTICACHE_OK ? aoticache_request_add_device(request, name, value, reader->error) : status;
}

static aoticache_status decode_number(struct reader *reader, aoticache_request *request, const char *name, uint8_t kind)
{
    int32_t value;
    aoticache_status status = get_i32(reader, "a number", &value);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_argument argument = {.kind = kind, .name = name, .value.int_value = value};
    return aoticache_request_add(request, &argument, reader->error);
}

/* Decodes anything except a list. */
static aoticache_status decode_item(struct reader *reader, aoticache_request *request, const char *name, uint8_t kind)
{
    switch (kind) {
    case AOTICACHE_ARGUMENT_NONE:
        return aoticache_request_add_none(request, name, reader->error);
    case AOTICACHE_ARGUMENT_TENSOR:
    case AOTICACHE_ARGUMENT_CONSTANT:
        return decode_tensor(reader, request, name, kind == AOTICACHE_ARGUMENT_CONSTANT);
    case AOTICACHE_ARGUMENT_INT:
        return decode_int(reader, request, name);
    case AOTICACHE_ARGUMENT_DOUBLE:
        return decode_double(reader, request, name);
    case AOTICACHE_ARGUMENT_BOOL:
        return decode_bool(reader, request, name);
    case AOTICACHE_ARGUMENT_COMPLEX:
        return decode_complex(reader, request, name);
    case AOTICACHE_ARGUMENT_STRING:
        return decode_string(reader, request, name);
    case AOTICACHE_ARGUMENT_DEVICE:
        return decode_device(reader, request, name);
    case AOTICACHE_ARGUMENT_DTYPE:
    case AOTICACHE_ARGUMENT_LAYOUT:
    case AOTICACHE_ARGUMENT_MEMORY_FORMAT:
        return decode_number(reader, request, name, kind);
    default:
        return aoticache_error_set(reader->error, AOTICACHE_INVALID,
                                   "key encoding: kind %u at byte %zu is not allowed there", (unsigned)kind,
                                   reader->at - 1);
    }
}

static aoticache_status decode_list(struct reader *reader, aoticache_request *request, const char *name)
{
    uint32_t count;
    aoticache_status status = get_count(reader, "the number of a list's items", REQUEST_MAX_ARGUMENTS, &count);
    if (status == AOTICACHE_OK)
        status = aoticache_request_begin_list(request, name, reader->error);
    for (uint32_t i = 0; i < count && status == AOTICACHE_OK; i++) {
        uint8_t kind;
        status = get_bytes(reader, "an item's kind", &kind, 1);
        if (status == AOTICACHE_OK)
            status = decode_item(reader, request, NULL, kind);
    }
    return status == AOTICACHE_OK ? aoticache_request_end_list(request, reader->error) : status;
}

static aoticache_status decode_argument(struct reader *reader, aoticache_request *request)
{
    cleanup_free char *name = NULL;
    uint8_t kind;
    aoticache_status status = get_text(reader, "an argument's name", REQUEST_MAX_NAME_BYTES, &name);
    if (status == AOTICACHE_OK)
        status = get_bytes(reader, "an argument's kind", &kind, 1);
    if (status != AOTICACHE_OK)
        return status;
    if (kind == AOTICACHE_ARGUMENT_LIST)
        return decode_list(reader, request, name);
    return decode_item(reader, request, name, kind);
}

/* ---- the whole encoding ---- */

static aoticache_status check_beginning(struct reader *reader)
{
    char magic[sizeof REQUEST_ENCODING_MAGIC];
    uint8_t version[2];
    aoticache_status status = get_bytes(reader, "the beginning", magic, sizeof magic);
    if (status != AOTICACHE_OK)
        return status;
    if (memcmp(magic, REQUEST_ENCODING_MAGIC, sizeof magic) != 0)
        return aoticache_error_set(reader->error, AOTICACHE_INVALID, "key encoding: it does not begin with \"%s\"",
                                   REQUEST_ENCODING_MAGIC);
    status = get_bytes(reader, "the version", version, sizeof version);
    unsigned number = status == AOTICACHE_OK ? version[0] | (unsigned)version[1] << 8 : 0;
    if (status == AOTICACHE_OK && number != REQUEST_ENCODING_VERSION)
        return aoticache_error_set(reader->error, AOTICACHE_INVALID, "key encoding: version %u; this library knows %d",
                                   number, REQUEST_ENCODING_VERSION);
    return status;
}

static aoticache_status decode_head(struct reader *reader, aoticache_request **ret_request)
{
    cleanup_free char *op = NULL;
    aoticache_device device;
    aoticache_status status = get_text(reader, "the operator's name", REQUEST_MAX_OP_BYTES, &op);
    if (status == AOTICACHE_OK)
        status = get_device(reader, &device);
    return status == AOTICACHE_OK ? aoticache_request_create(op, device, ret_request, reader->error) : status;
}

static aoticache_status decode_pair(struct reader *reader, aoticache_request *request)
{
    cleanup_free char *name = NULL;
    cleanup_free char *value = NULL;
    aoticache_status status = get_text(reader, "an environment's name", REQUEST_MAX_ENVIRONMENT_NAME_BYTES, &name);
    if (status == AOTICACHE_OK)
        status = get_text(reader, "an environment's value", REQUEST_MAX_ENVIRONMENT_VALUE_BYTES, &value);
    return status == AOTICACHE_OK ? aoticache_request_set_environment(request, name, value, reader->error) : status;
}

static aoticache_status decode_body(struct reader *reader, aoticache_request *request)
{
    uint32_t count;
    aoticache_status status = get_count(reader, "the number of environment pairs", REQUEST_MAX_ENVIRONMENT, &count);
    for (uint32_t i = 0; status == AOTICACHE_OK && i < count; i++)
        status = decode_pair(reader, request);
    if (status == AOTICACHE_OK)
        status = get_count(reader, "the number of arguments", REQUEST_MAX_ARGUMENTS, &count);
    for (uint32_t i = 0; status == AOTICACHE_OK && i < count; i++)
        status = decode_argument(reader, request);
    if (status == AOTICACHE_OK && reader->at != reader->size)
        status =
            aoticache_error_set(reader->error, AOTICACHE_INVALID, "key encoding: %zu bytes follow its end at byte %zu",
                                reader->size - reader->at, reader->at);
    return status;
}

/* Detects an environment out of order, with duplicates or without "arch", "cpu:0", other NaNs, bools of 2. */
static aoticache_status check_canonical(const struct reader *reader, const aoticache_request *request)
{
    cleanup_free uint8_t *bytes = NULL;
    size_t size = 0, at = 0;
    aoticache_status status = aoticache_request_encode(request, &bytes, &size, reader->error);
    if (status != AOTICACHE_OK || (size == reader->size && memcmp(bytes, reader->bytes, size) == 0))
        return status;
    while (at < size && at < reader->size && bytes[at] == reader->bytes[at])
        at++;
    return aoticache_error_set(reader->error, AOTICACHE_INVALID,
                               "key encoding: it differs at byte %zu from the canonical encoding of the same "
                               "request",
                               at);
}

aoticache_status aoticache_request_decode(const uint8_t *bytes, size_t size, aoticache_request **ret_request,
                                          aoticache_error *ret_error)
{
    struct reader reader = {.bytes = bytes, .size = size, .error = ret_error};
    aoticache_request *request = NULL;
    if (bytes == NULL || ret_request == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, bytes, ret_request);
    if (size > REQUEST_MAX_ENCODED_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "key encoding: %zu bytes; at most %u are allowed",
                                   size, REQUEST_MAX_ENCODED_BYTES);
    aoticache_status status = check_beginning(&reader);
    if (status == AOTICACHE_OK)
        status = decode_head(&reader, &request);
    if (status == AOTICACHE_OK)
        status = decode_body(&reader, request);
    if (status == AOTICACHE_OK)
        status = check_canonical(&reader, request);
    if (status == AOTICACHE_OK)
        *ret_request = request;
    else
        aoticache_request_free(request);
    return status;
}
