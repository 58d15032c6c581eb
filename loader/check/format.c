/*
 * loader/check/format: writes the text form of checks. loader/check/parse.c reads it, docs/formats/checks.md describes
 * it.
 */
#include "base/names.h"
#include "loader/check/check_internal.h"

#include <stdarg.h>
#include <stdio.h>

/* A writer works like snprintf over several calls: it keeps counting when there is no space left. */
struct writer {
    char *text;
    size_t size, length;
};

static void put(struct writer *writer, const char *format, ...) AOTICACHE_PRINTF(2, 3);

static void put(struct writer *writer, const char *format, ...)
{
    size_t room = writer->length < writer->size ? writer->size - writer->length : 0;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(room > 0 ? writer->text + writer->length : NULL, room, format, arguments);
    va_end(arguments);
    writer->length += length > 0 ? (size_t)length : 0;
}

size_t aoticache_check_dim_format(const aoticache_dim *dim, char ret_text[AOTICACHE_CHECK_DIM_TEXT_BYTES])
{
    struct writer writer = {.text = ret_text, .size = AOTICACHE_CHECK_DIM_TEXT_BYTES};
    if (dim->is_free)
        put(&writer, "*");
    else if (dim->symbol_count == 0)
        put(&writer, "%lld", (long long)dim->offset);
    else if (dim->coefficient != 1)
        put(&writer, "%lld*", (long long)dim->coefficient);
    for (unsigned i = 0; i < dim->symbol_count; i++)
        put(&writer, "%ss%u", i > 0 ? "*" : "", dim->symbols[i]);
    if (dim->symbol_count > 0 && dim->offset != 0)
        put(&writer, "%+lld", (long long)dim->offset);
    return writer.length;
}

size_t aoticache_check_range_format(const aoticache_symbol *range, char ret_text[AOTICACHE_CHECK_RANGE_TEXT_BYTES])
{
    struct writer writer = {.text = ret_text, .size = AOTICACHE_CHECK_RANGE_TEXT_BYTES};
    put(&writer, "%lld..", (long long)range->min);
    if (range->max != INT64_MAX)
        put(&writer, "%lld", (long long)range->max);
    if (range->multiple_of != 1)
        put(&writer, "%%%lld", (long long)range->multiple_of);
    return writer.length;
}

const char *aoticache_check_rule_name(aoticache_stride_rule rule)
{
    switch (rule) {
    case AOTICACHE_STRIDES_CONTIGUOUS:
        return "contiguous";
    case AOTICACHE_STRIDES_CHANNELS_LAST:
        return "channels_last";
    case AOTICACHE_STRIDES_CHANNELS_LAST_3D:
        return "channels_last_3d";
    case AOTICACHE_STRIDES_FREE:
    case AOTICACHE_STRIDES_GIVEN:
        break;
    }
    return NULL;
}

static void put_dims(struct writer *writer, const aoticache_dim *dims, int64_t ndim)
{
    for (int64_t i = 0; i < ndim; i++) {
        char text[AOTICACHE_CHECK_DIM_TEXT_BYTES];
        aoticache_check_dim_format(&dims[i], text);
        put(writer, "%s%s", i > 0 ? ", " : "", text);
    }
}

/* Writes the name of a number, or `prefix` and the number if it has none. */
static void put_name(struct writer *writer, const char *name, const char *prefix, int32_t number)
{
    if (name != NULL)
        put(writer, "%s", name);
    else
        put(writer, "%s%d", prefix, (int)number);
}

static void put_shape(struct writer *writer, const aoticache_tensor_pattern *facts)
{
    const char *rule = aoticache_check_rule_name(facts->stride_rule);
    put(writer, "%s", facts->ndim < 0 ? "[..." : "[");
    put_dims(writer, facts->sizes, facts->ndim);
    put(writer, "]");
    if (facts->stride_rule == AOTICACHE_STRIDES_FREE)
        return;
    put(writer, "{%s", rule != NULL ? rule : "");
    if (facts->stride_rule == AOTICACHE_STRIDES_GIVEN)
        put_dims(writer, facts->strides, facts->ndim);
    put(writer, "}");
}

static void put_device(struct writer *writer, const aoticache_tensor_pattern *facts)
{
    if (facts->device_type < 0 && facts->device_index < 0)
        return;
    put(writer, "@");
    if (facts->device_type < 0)
        put(writer, "*");
    else
        put_name(writer, aoticache_device_type_name(facts->device_type), "device", facts->device_type);
    if (facts->device_index >= 0)
        put(writer, ":%d", (int)facts->device_index);
}

static void put_tensor(struct writer *writer, const aoticache_tensor_pattern *facts)
{
    if (facts->dtype < 0)
        put(writer, "*");
    else
        put_name(writer, aoticache_dtype_name(facts->dtype), "dtype", facts->dtype);
    put_shape(writer, facts);
    put_device(writer, facts);
    if (facts->layout >= 0) {
        put(writer, " layout=");
        put_name(writer, aoticache_layout_name(facts->layout), "layout", facts->layout);
    }
    if (facts->requires_grad >= 0)
        put(writer, " grad=%d", (int)facts->requires_grad);
    if (facts->has_key_set)
        put(writer, " keys=0x%llx", (unsigned long long)facts->dispatch_key_set);
}

static void put_symbols(struct writer *writer, const aoticache_check *check)
{
    const char *separator = "; ";
    for (uint32_t i = 0; i < check->symbol_count; i++) {
        const aoticache_symbol *range = &check->ranges[i];
        char text[AOTICACHE_CHECK_RANGE_TEXT_BYTES];
        if (range->min == 0 && range->max == INT64_MAX && range->multiple_of == 1)
            continue;
        aoticache_check_range_format(range, text);
        put(writer, "%ss%u=%s", separator, (unsigned)i, text);
        separator = ", ";
    }
}

size_t aoticache_check_format(const aoticache_check *check, char *ret_text, size_t size)
{
    struct writer writer = {.text = ret_text, .size = size};
    if (size > 0)
        ret_text[0] = '\0';
    for (uint32_t i = 0; i < check->tensor_count; i++) {
        if (i > 0)
            put(&writer, ", ");
        put_tensor(&writer, &check->patterns[i].facts);
    }
    put_symbols(&writer, check);
    return writer.length;
}
