/*
 * cache/request/encode: the canonical encoding of a request, and the key, which is its SHA-256.
 *
 * Defines the order and the width of everything that is encoded: docs/formats/key.md specifies it byte by byte, and
 * tests/golden/key has vectors that an independent program made from that text. All parts were checked when they were
 * added, so nothing is checked here.
 */
#include "base/arguments.h"
#include "cache/request/request_internal.h"

#include "base/cleanup.h"
#include "base/digest.h"
#include "cache/eager_face.h"

#include <endian.h>
#include <math.h>
#include <string.h>

/* Only counts if `bytes` is NULL. */
struct writer {
    uint8_t *bytes;
    size_t used;
};

static void put(struct writer *writer, const void *bytes, size_t size)
{
    if (writer->bytes != NULL)
        memcpy(writer->bytes + writer->used, bytes, size);
    writer->used += size;
}

static void put_u8(struct writer *writer, uint8_t value)
{
    put(writer, &value, sizeof value);
}

static void put_u16(struct writer *writer, uint16_t value)
{
    value = htole16(value);
    put(writer, &value, sizeof value);
}

static void put_u32(struct writer *writer, uint32_t value)
{
    value = htole32(value);
    put(writer, &value, sizeof value);
}

static void put_u64(struct writer *writer, uint64_t value)
{
    value = htole64(value);
    put(writer, &value, sizeof value);
}

static void put_double(struct writer *writer, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_u64(writer, bits);
}

static void put_text(struct writer *writer, const char *text)
{
    size_t length = strlen(text);
    put_u32(writer, (uint32_t)length);
    put(writer, text, length);
}

static void put_device(struct writer *writer, aoticache_device device)
{
    put_u32(writer, (uint32_t)device.type);
    put_u32(writer, (uint32_t)device.index);
}

static void put_metadata(struct writer *writer, const aoticache_tensor_metadata *metadata)
{
    put_u32(writer, (uint32_t)metadata->dtype);
    put_u32(writer, (uint32_t)metadata->layout);
    put_device(writer, metadata->device);
    put_u8(writer, metadata->requires_grad);
    put_u64(writer, metadata->dispatch_key_set);
    put_u32(writer, metadata->ndim);
    for (uint32_t i = 0; i < metadata->ndim; i++)
        put_u64(writer, (uint64_t)metadata->sizes[i]);
    for (uint32_t i = 0; i < metadata->ndim; i++)
        put_u64(writer, (uint64_t)metadata->strides[i]);
}

/* Writes kind and value of anything except a list. */
static void put_item(struct writer *writer, const aoticache_argument *item)
{
    put_u8(writer, (uint8_t)item->kind);
    switch (item->kind) {
    case AOTICACHE_ARGUMENT_NONE:
    case AOTICACHE_ARGUMENT_LIST:
        break;
    case AOTICACHE_ARGUMENT_TENSOR:
        put_metadata(writer, &item->value.tensor.metadata);
        break;
    case AOTICACHE_ARGUMENT_CONSTANT:
        put_metadata(writer, &item->value.tensor.metadata);
        put(writer, item->value.tensor.data_digest.bytes, AOTICACHE_DIGEST_BYTES);
        break;
    case AOTICACHE_ARGUMENT_INT:
        put_u64(writer, (uint64_t)item->value.int_value);
        break;
    case AOTICACHE_ARGUMENT_DOUBLE:
        put_double(writer, item->value.double_value);
        break;
    case AOTICACHE_ARGUMENT_BOOL:
        put_u8(writer, item->value.bool_value);
        break;
    case AOTICACHE_ARGUMENT_COMPLEX:
        put_double(writer, item->value.complex_value[0]);
        put_double(writer, item->value.complex_value[1]);
        break;
    case AOTICACHE_ARGUMENT_STRING:
        put_text(writer, item->value.string_value);
        break;
    case AOTICACHE_ARGUMENT_DEVICE:
        put_device(writer, item->value.device_value);
        break;
    case AOTICACHE_ARGUMENT_DTYPE:
    case AOTICACHE_ARGUMENT_LAYOUT:
    case AOTICACHE_ARGUMENT_MEMORY_FORMAT:
        put_u32(writer, (uint32_t)item->value.int_value);
        break;
    }
}

static void put_argument(struct writer *writer, const aoticache_argument *argument)
{
    put_text(writer, argument->name);
    put_item(writer, argument);
    if (argument->kind != AOTICACHE_ARGUMENT_LIST)
        return;
    put_u32(writer, (uint32_t)argument->value.list.count);
    for (size_t i = 0; i < argument->value.list.count; i++)
        put_item(writer, argument->value.list.items + i);
}

static void put_request(struct writer *writer, const aoticache_request *request)
{
    put(writer, REQUEST_ENCODING_MAGIC, sizeof REQUEST_ENCODING_MAGIC);
    put_u16(writer, REQUEST_ENCODING_VERSION);
    put_text(writer, request->info.op);
    put_device(writer, request->info.device);
    put_u32(writer, (uint32_t)request->info.environment_count);
    for (size_t i = 0; i < request->info.environment_count; i++) {
        put_text(writer, request->environment[i].name);
        put_text(writer, request->environment[i].value);
    }
    put_u32(writer, (uint32_t)request->arguments.count);
    for (size_t i = 0; i < request->arguments.count; i++)
        put_argument(writer, request->arguments.views + i);
}

size_t aoticache_request_encoded_argument_size(const aoticache_argument *argument)
{
    struct writer counter = {0};
    put_argument(&counter, argument);
    return counter.used;
}

size_t aoticache_request_encoded_item_size(const aoticache_argument *item)
{
    struct writer counter = {0};
    put_item(&counter, item);
    return counter.used;
}

size_t aoticache_request_encoded_pair_size(const char *name, const char *value)
{
    struct writer counter = {0};
    put_text(&counter, name);
    put_text(&counter, value);
    return counter.used;
}

size_t aoticache_request_encoded_base_size(const char *op)
{
    struct writer counter = {0};
    const aoticache_request empty = {.info = {.op = op}};
    put_request(&counter, &empty);
    return counter.used;
}

double aoticache_request_canonical_double(double value)
{
    static const uint64_t quiet_nan = UINT64_C(0x7ff8000000000000);
    if (isnan(value))
        memcpy(&value, &quiet_nan, sizeof value);
    return value;
}

aoticache_status aoticache_request_encode(const aoticache_request *request, uint8_t **ret_bytes, size_t *ret_size,
                                          aoticache_error *ret_error)
{
    if (request == NULL || ret_bytes == NULL || ret_size == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, request, ret_bytes, ret_size);
    if (request->list_open)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: argument %zu is a list that is still open",
                                   request->info.op, request->arguments.count);
    struct writer writer = {.bytes = malloc(request->encoded_size)};
    if (writer.bytes == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "%s: out of memory for an encoding of %zu bytes",
                                   request->info.op, request->encoded_size);
    put_request(&writer, request);
    *ret_bytes = writer.bytes;
    *ret_size = writer.used;
    return AOTICACHE_OK;
}

aoticache_status aoticache_request_key(const aoticache_request *request, aoticache_key *ret_key,
                                       aoticache_error *ret_error)
{
    cleanup_free uint8_t *bytes = NULL;
    size_t size = 0;
    if (ret_key == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, ret_key);
    aoticache_status status = aoticache_request_encode(request, &bytes, &size, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_digest_of(bytes, size, ret_key);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "%s: cannot compute the digest of %zu bytes", request->info.op,
                                   size);
    return AOTICACHE_OK;
}
