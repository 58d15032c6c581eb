/*
 * eager/holder/request_values: the reverse of request.c: turns a request into the values of a call that makes it, and into its
 * tensors.
 */
#include "base/cleanup.h"
#include "eager/holder/holder_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- from a request's arguments to values ---- */

/* Memory into which the values of one request point. */
typedef struct value_space {
    char *bytes;
    size_t size, used;
} value_space;

static void *allocate_value(value_space *space, size_t bytes)
{
    bytes = (bytes + 7) & ~(size_t)7;
    if (space->size - space->used < bytes)
        return NULL;
    space->used += bytes;
    return space->bytes + space->used - bytes;
}

/* Returns a number of bytes that is enough for all values of any such request. */
static size_t bytes_for_values(const aoticache_request *request, size_t num_arguments)
{
    size_t items = num_arguments;
    for (size_t i = 0; i < aoticache_request_argument_count(request); i++) {
        const aoticache_argument *argument = aoticache_request_argument(request, i);
        items += 1 + (argument->kind == AOTICACHE_ARGUMENT_LIST ? argument->value.list.count : 0);
    }
    return items * (sizeof(aoticache_value) + sizeof(aoticache_tensor_view) + sizeof(void *) + 8) + 64;
}

static void view_of(const aoticache_tensor_metadata *metadata, aoticache_tensor_view *view)
{
    *view = (aoticache_tensor_view){.dtype = metadata->dtype,
                                    .device = metadata->device,
                                    .ndim = metadata->ndim,
                                    .sizes = metadata->sizes,
                                    .strides = metadata->strides,
                                    .layout = metadata->layout,
                                    .requires_grad = metadata->requires_grad,
                                    .dispatch_key_set = metadata->dispatch_key_set};
}

static bool single_of(const aoticache_argument *argument, value_space *space, aoticache_value *value)
{
    aoticache_tensor_view *view;
    switch (argument->kind) {
    case AOTICACHE_ARGUMENT_NONE:
        value->kind = AOTICACHE_VALUE_NONE;
        return true;
    case AOTICACHE_ARGUMENT_TENSOR:
        if ((view = allocate_value(space, sizeof *view)) == NULL)
            return false;
        view_of(&argument->value.tensor.metadata, view);
        *value = (aoticache_value){.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = view};
        return true;
    case AOTICACHE_ARGUMENT_INT:
    case AOTICACHE_ARGUMENT_DTYPE:
    case AOTICACHE_ARGUMENT_LAYOUT:
    case AOTICACHE_ARGUMENT_MEMORY_FORMAT:
        value->kind = argument->kind == AOTICACHE_ARGUMENT_INT      ? AOTICACHE_VALUE_INT
                      : argument->kind == AOTICACHE_ARGUMENT_DTYPE  ? AOTICACHE_VALUE_DTYPE
                      : argument->kind == AOTICACHE_ARGUMENT_LAYOUT ? AOTICACHE_VALUE_LAYOUT
                                                                    : AOTICACHE_VALUE_MEMORY_FORMAT;
        value->as.int_value = argument->value.int_value;
        return true;
    case AOTICACHE_ARGUMENT_DOUBLE:
        *value = (aoticache_value){.kind = AOTICACHE_VALUE_DOUBLE, .as.double_value = argument->value.double_value};
        return true;
    case AOTICACHE_ARGUMENT_BOOL:
        *value = (aoticache_value){.kind = AOTICACHE_VALUE_BOOL, .as.bool_value = argument->value.bool_value};
        return true;
    case AOTICACHE_ARGUMENT_COMPLEX:
        value->kind = AOTICACHE_VALUE_COMPLEX;
        memcpy(value->as.complex_value, argument->value.complex_value, sizeof value->as.complex_value);
        return true;
    case AOTICACHE_ARGUMENT_STRING:
        *value = (aoticache_value){.kind = AOTICACHE_VALUE_STRING, .as.string = argument->value.string_value};
        return true;
    case AOTICACHE_ARGUMENT_DEVICE:
        *value = (aoticache_value){.kind = AOTICACHE_VALUE_DEVICE, .as.device = argument->value.device_value};
        return true;
    default: /* a constant: calls have none */
        return false;
    }
}

/* Makes a list of items of 8 bytes, or of booleans. */
static bool plain_list_of(const aoticache_argument *list, int32_t kind, value_space *space, aoticache_value *value)
{
    size_t count = list->value.list.count, size = kind == AOTICACHE_VALUE_BOOL_LIST ? sizeof(bool) : 8;
    char *items = allocate_value(space, count * size + 1);
    for (size_t i = 0; items != NULL && i < count; i++) {
        const aoticache_argument *item = &list->value.list.items[i];
        bool right = kind == AOTICACHE_VALUE_INT_LIST      ? item->kind == AOTICACHE_ARGUMENT_INT
                     : kind == AOTICACHE_VALUE_DOUBLE_LIST ? item->kind == AOTICACHE_ARGUMENT_DOUBLE
                     : kind == AOTICACHE_VALUE_BOOL_LIST   ? item->kind == AOTICACHE_ARGUMENT_BOOL
                                                           : item->kind == AOTICACHE_ARGUMENT_STRING;
        if (!right)
            return false;
        const void *from = kind == AOTICACHE_VALUE_STRING_LIST ? (const void *)&item->value.string_value
                                                               : (const void *)&item->value.int_value;
        memcpy(items + i * size, from, size);
    }
    *value = (aoticache_value){.kind = kind, .count = (uint32_t)count};
    value->as.ints = (const int64_t *)(const void *)items;
    return items != NULL;
}

static bool tensor_list_of(const aoticache_argument *list, value_space *space, aoticache_value *value)
{
    size_t count = list->value.list.count;
    const aoticache_tensor_view **tensors = allocate_value(space, (count + 1) * sizeof *tensors);
    for (size_t i = 0; tensors != NULL && i < count; i++) {
        aoticache_value item = {.kind = AOTICACHE_VALUE_NONE};
        if (!single_of(&list->value.list.items[i], space, &item) ||
            (item.kind != AOTICACHE_VALUE_TENSOR && item.kind != AOTICACHE_VALUE_NONE))
            return false;
        tensors[i] = item.kind == AOTICACHE_VALUE_TENSOR ? item.as.tensor : NULL;
    }
    *value = (aoticache_value){.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = (uint32_t)count, .as.tensors = tensors};
    return tensors != NULL;
}

static bool scalar_list_of(const aoticache_argument *list, value_space *space, aoticache_value *value)
{
    size_t count = list->value.list.count;
    aoticache_value *scalars = allocate_value(space, (count + 1) * sizeof *scalars);
    for (size_t i = 0; scalars != NULL && i < count; i++) {
        scalars[i] = (aoticache_value){.kind = AOTICACHE_VALUE_NONE};
        if (!single_of(&list->value.list.items[i], space, &scalars[i]))
            return false;
    }
    *value = (aoticache_value){.kind = AOTICACHE_VALUE_SCALAR_LIST, .count = (uint32_t)count, .as.scalars = scalars};
    return scalars != NULL;
}

/* Makes a list as in a call of this schema. */
static bool list_of(const aoticache_argument *list, const aoticache_type *type, value_space *space,
                    aoticache_value *value)
{
    if (type->kind == AOTICACHE_TYPE_OPTIONAL)
        type = type->elements[0];
    if (type->kind != AOTICACHE_TYPE_LIST)
        return false;
    const aoticache_type *element = type->elements[0];
    switch (element->kind == AOTICACHE_TYPE_OPTIONAL ? element->elements[0]->kind : element->kind) {
    case AOTICACHE_TYPE_TENSOR:
        return tensor_list_of(list, space, value);
    case AOTICACHE_TYPE_INT:
    case AOTICACHE_TYPE_SYM_INT:
        return plain_list_of(list, AOTICACHE_VALUE_INT_LIST, space, value);
    case AOTICACHE_TYPE_FLOAT:
        return plain_list_of(list, AOTICACHE_VALUE_DOUBLE_LIST, space, value);
    case AOTICACHE_TYPE_BOOL:
        return plain_list_of(list, AOTICACHE_VALUE_BOOL_LIST, space, value);
    case AOTICACHE_TYPE_STRING:
        return plain_list_of(list, AOTICACHE_VALUE_STRING_LIST, space, value);
    default:
        return scalar_list_of(list, space, value);
    }
}

/* Finds the argument of the schema for one of the request, by position or by name. */
static size_t position_of(const aoticache_holder *holder, const aoticache_argument *argument, size_t position)
{
    if (argument->name[0] == '\0')
        return position;
    for (size_t i = 0; i < holder->num_arguments; i++)
        if (strcmp(holder->schema->arguments[i].name, argument->name) == 0)
            return i;
    return SIZE_MAX;
}

aoticache_value *aoticache_holder_request_values(const aoticache_holder *holder, const aoticache_request *request,
                                                 char **ret_bytes)
{
    value_space space = {.size = bytes_for_values(request, holder->num_arguments)};
    *ret_bytes = space.bytes = malloc(space.size);
    aoticache_value *values =
        space.bytes != NULL ? allocate_value(&space, (holder->num_arguments + 1) * sizeof *values) : NULL;
    if (values == NULL)
        return NULL;
    if (holder->num_arguments > 0)
        memcpy(values, holder->defaults, holder->num_arguments * sizeof *values);
    for (size_t i = 0; i < aoticache_request_argument_count(request); i++) {
        const aoticache_argument *argument = aoticache_request_argument(request, i);
        size_t position = position_of(holder, argument, i);
        if (position >= holder->num_arguments)
            return NULL;
        const aoticache_type *type = holder->schema->arguments[position].type;
        bool fits = argument->kind == AOTICACHE_ARGUMENT_LIST ? list_of(argument, type, &space, &values[position])
                                                              : single_of(argument, &space, &values[position]);
        if (!fits)
            return NULL;
    }
    return values;
}

bool aoticache_holder_pack_request(const aoticache_holder *holder, const aoticache_request *request,
                                   aoticache_packed *ret_packed)
{
    cleanup_free char *bytes = NULL;
    const aoticache_value *values = aoticache_holder_request_values(holder, request, &bytes);
    return values != NULL && aoticache_pack(values, holder->num_arguments, ret_packed);
}

/* ---- the tensors of a request ---- */

static bool is_tensor(const aoticache_argument *argument)
{
    return argument->kind == AOTICACHE_ARGUMENT_TENSOR;
}

aoticache_status aoticache_request_views(const aoticache_request *request, aoticache_tensor_view **ret_views,
                                         size_t *ret_count, aoticache_error *ret_error)
{
    size_t arguments = aoticache_request_argument_count(request), count = 0;
    for (size_t i = 0; i < arguments; i++) {
        const aoticache_argument *argument = aoticache_request_argument(request, i);
        count += is_tensor(argument);
        for (size_t k = 0; argument->kind == AOTICACHE_ARGUMENT_LIST && k < argument->value.list.count; k++)
            count += is_tensor(&argument->value.list.items[k]);
    }
    aoticache_tensor_view *views = calloc(count + 1, sizeof *views);
    if (views == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu tensors", count);
    count = 0;
    for (size_t i = 0; i < arguments; i++) {
        const aoticache_argument *argument = aoticache_request_argument(request, i);
        if (is_tensor(argument))
            view_of(&argument->value.tensor.metadata, &views[count++]);
        for (size_t k = 0; argument->kind == AOTICACHE_ARGUMENT_LIST && k < argument->value.list.count; k++)
            if (is_tensor(&argument->value.list.items[k]))
                view_of(&argument->value.list.items[k].value.tensor.metadata, &views[count++]);
    }
    *ret_views = views;
    *ret_count = count;
    return AOTICACHE_OK;
}
