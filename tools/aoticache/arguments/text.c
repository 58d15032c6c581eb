/*
 * tools/aoticache/arguments/text: describes the value of one argument of a request, in more detail than the one-line
 * description of the whole request: strides, devices, the digest of constants.
 */
#include "tools/aoticache/arguments/arguments.h"

#include <inttypes.h>
#include <string.h>

static void format_tensor(const aoticache_argument *argument, char *text, size_t size)
{
    const aoticache_tensor_metadata *metadata = &argument->value.tensor.metadata;
    char device[AOTICACHE_DEVICE_TEXT_BYTES];
    const char *dtype = aoticache_dtype_name(metadata->dtype);
    aoticache_device_format(metadata->device, device);
    size_t used = (size_t)snprintf(text, size, "%s[", dtype != NULL ? dtype : "?");
    for (uint32_t i = 0; i < metadata->ndim && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i > 0 ? ", " : "", metadata->sizes[i]);
    if (used < size)
        used += (size_t)snprintf(text + used, size - used, "] strides [");
    for (uint32_t i = 0; i < metadata->ndim && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i > 0 ? ", " : "", metadata->strides[i]);
    if (used < size)
        used += (size_t)snprintf(text + used, size - used, "] on %s%s", device,
                                 metadata->requires_grad ? ", requires grad" : "");
    if (argument->kind == AOTICACHE_ARGUMENT_CONSTANT && used < size) {
        char hex[AOTICACHE_DIGEST_HEX_BYTES];
        aoticache_digest_to_hex(&argument->value.tensor.data_digest, hex);
        snprintf(text + used, size - used, ", data %.12s compiled in", hex);
    }
}

static void format_list(const aoticache_argument *argument, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "[");
    for (size_t i = 0; i < argument->value.list.count && used < size; i++) {
        if (i > 0)
            used += (size_t)snprintf(text + used, size - used, "; ");
        if (used >= size)
            return;
        aoticache_argument_format(&argument->value.list.items[i], text + used, size - used);
        used += strlen(text + used);
    }
    if (used < size)
        snprintf(text + used, size - used, "]");
}

static const char *or_unknown(const char *name)
{
    return name != NULL ? name : "unknown";
}

void aoticache_argument_format(const aoticache_argument *argument, char *ret_text, size_t size)
{
    char device[AOTICACHE_DEVICE_TEXT_BYTES];
    switch (argument->kind) {
    case AOTICACHE_ARGUMENT_NONE:
        snprintf(ret_text, size, "none");
        break;
    case AOTICACHE_ARGUMENT_TENSOR:
    case AOTICACHE_ARGUMENT_CONSTANT:
        format_tensor(argument, ret_text, size);
        break;
    case AOTICACHE_ARGUMENT_INT:
        snprintf(ret_text, size, "%" PRId64, argument->value.int_value);
        break;
    case AOTICACHE_ARGUMENT_DOUBLE:
        snprintf(ret_text, size, "%.17g", argument->value.double_value);
        break;
    case AOTICACHE_ARGUMENT_BOOL:
        snprintf(ret_text, size, "%s", argument->value.bool_value ? "true" : "false");
        break;
    case AOTICACHE_ARGUMENT_COMPLEX:
        snprintf(ret_text, size, "%.17g%+.17gj", argument->value.complex_value[0], argument->value.complex_value[1]);
        break;
    case AOTICACHE_ARGUMENT_STRING:
        snprintf(ret_text, size, "\"%s\"", argument->value.string_value);
        break;
    case AOTICACHE_ARGUMENT_DEVICE:
        aoticache_device_format(argument->value.device_value, device);
        snprintf(ret_text, size, "%s", device);
        break;
    case AOTICACHE_ARGUMENT_DTYPE:
        snprintf(ret_text, size, "%s", or_unknown(aoticache_dtype_name((int32_t)argument->value.int_value)));
        break;
    case AOTICACHE_ARGUMENT_LAYOUT:
        snprintf(ret_text, size, "%s", or_unknown(aoticache_layout_name((int32_t)argument->value.int_value)));
        break;
    case AOTICACHE_ARGUMENT_MEMORY_FORMAT:
        snprintf(ret_text, size, "%s", or_unknown(aoticache_memory_format_name((int32_t)argument->value.int_value)));
        break;
    case AOTICACHE_ARGUMENT_LIST:
        format_list(argument, ret_text, size);
        break;
    }
}
