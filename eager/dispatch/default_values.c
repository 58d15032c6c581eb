/*
 * eager/dispatch/default_values: converts the defaults of a schema into values for a stack.
 */
#include "base/names.h"
#include "eager/dispatch/eager_face.h"

#include <stdlib.h>
#include <string.h>

static const aoticache_type *strip_optional(const aoticache_type *type)
{
    return type->kind == AOTICACHE_TYPE_OPTIONAL ? type->elements[0] : type;
}

static aoticache_value value_of_int(const aoticache_type *type, int64_t number)
{
    aoticache_value value = {.kind = AOTICACHE_VALUE_INT};
    value.as.int_value = number;
    switch (type->kind) {
    case AOTICACHE_TYPE_DTYPE:
        value.kind = AOTICACHE_VALUE_DTYPE;
        break;
    case AOTICACHE_TYPE_LAYOUT:
        value.kind = AOTICACHE_VALUE_LAYOUT;
        break;
    case AOTICACHE_TYPE_MEMORY_FORMAT:
        value.kind = AOTICACHE_VALUE_MEMORY_FORMAT;
        break;
    case AOTICACHE_TYPE_FLOAT:
    case AOTICACHE_TYPE_SYM_FLOAT:
        value = (aoticache_value){.kind = AOTICACHE_VALUE_DOUBLE, .as.double_value = (double)number};
        break;
    default:
        break;
    }
    return value;
}

static aoticache_value value_of_string(const aoticache_type *type, const char *text)
{
    aoticache_value value = {.kind = AOTICACHE_VALUE_STRING};
    value.as.string = text;
    if (type->kind == AOTICACHE_TYPE_DEVICE) {
        value.kind = AOTICACHE_VALUE_DEVICE;
        if (aoticache_device_parse(text, &value.as.device) != AOTICACHE_OK)
            value.kind = AOTICACHE_VALUE_OTHER;
    }
    return value;
}

/* Returns the value for a type that is not a list. OTHER: it has no value. */
static aoticache_value value_of_single(const aoticache_type *type, const aoticache_default *from)
{
    aoticache_value value = {.kind = AOTICACHE_VALUE_OTHER};
    switch (from->kind) {
    case AOTICACHE_DEFAULT_NONE:
        value.kind = AOTICACHE_VALUE_NONE;
        break;
    case AOTICACHE_DEFAULT_INT:
        return value_of_int(type, from->int_value);
    case AOTICACHE_DEFAULT_FLOAT:
        value.kind = AOTICACHE_VALUE_DOUBLE;
        value.as.double_value = from->float_value;
        break;
    case AOTICACHE_DEFAULT_COMPLEX:
        value.kind = AOTICACHE_VALUE_COMPLEX;
        value.as.complex_value[0] = from->float_value;
        value.as.complex_value[1] = from->imaginary;
        break;
    case AOTICACHE_DEFAULT_BOOL:
        value.kind = AOTICACHE_VALUE_BOOL;
        value.as.bool_value = from->bool_value;
        break;
    case AOTICACHE_DEFAULT_STRING:
        return value_of_string(type, from->string_value);
    default:
        break;
    }
    return value;
}

/* ---- lists ---- */

typedef struct list_kind {
    aoticache_value_kind kind;
    size_t size;
} list_kind;

static list_kind kind_of_list(const aoticache_type *element)
{
    switch (element->kind) {
    case AOTICACHE_TYPE_INT:
    case AOTICACHE_TYPE_SYM_INT:
        return (list_kind){AOTICACHE_VALUE_INT_LIST, sizeof(int64_t)};
    case AOTICACHE_TYPE_FLOAT:
    case AOTICACHE_TYPE_SYM_FLOAT:
        return (list_kind){AOTICACHE_VALUE_DOUBLE_LIST, sizeof(double)};
    case AOTICACHE_TYPE_BOOL:
    case AOTICACHE_TYPE_SYM_BOOL:
        return (list_kind){AOTICACHE_VALUE_BOOL_LIST, sizeof(bool)};
    case AOTICACHE_TYPE_STRING:
        return (list_kind){AOTICACHE_VALUE_STRING_LIST, sizeof(const char *)};
    case AOTICACHE_TYPE_TENSOR:
        return (list_kind){AOTICACHE_VALUE_TENSOR_LIST, sizeof(void *)};
    default:
        return (list_kind){AOTICACHE_VALUE_SCALAR_LIST, sizeof(aoticache_value)};
    }
}

static void put_item(list_kind list, char *at, const aoticache_value *item)
{
    switch (list.kind) {
    case AOTICACHE_VALUE_INT_LIST:
        memcpy(at, &item->as.int_value, list.size);
        break;
    case AOTICACHE_VALUE_DOUBLE_LIST:
        memcpy(at, &item->as.double_value, list.size);
        break;
    case AOTICACHE_VALUE_BOOL_LIST:
        memcpy(at, &item->as.bool_value, list.size);
        break;
    case AOTICACHE_VALUE_STRING_LIST:
        memcpy(at, &item->as.string, list.size);
        break;
    case AOTICACHE_VALUE_SCALAR_LIST:
        memcpy(at, item, list.size);
        break;
    default:
        break; /* tensors: defaults have none */
    }
}

/*
 * Makes the list of the default's items, or of one value repeated to a fixed size ("int[2] stride=1"). False: no memory.
 */
static bool make_list(const aoticache_type *type, const aoticache_default *from, aoticache_value *ret_value)
{
    const aoticache_type *element = strip_optional(type->elements[0]);
    list_kind list = kind_of_list(element);
    bool single = from->kind != AOTICACHE_DEFAULT_LIST;
    size_t count = single ? (size_t)(type->fixed_size > 0 ? type->fixed_size : 1) : from->count;
    char *items = calloc(count + 1, list.size);
    if (items == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        aoticache_value item = value_of_single(element, single ? from : &from->items[i]);
        put_item(list, items + i * list.size, &item);
    }
    *ret_value = (aoticache_value){.kind = list.kind, .count = (uint32_t)count};
    ret_value->as.object = items;
    return true;
}

/* ---- all arguments ---- */

static bool make_default(const aoticache_schema_argument *argument, aoticache_value *ret_value)
{
    const aoticache_type *type = strip_optional(argument->type);
    const aoticache_default *from = &argument->default_value;
    *ret_value = (aoticache_value){.kind = AOTICACHE_VALUE_OTHER};
    if (from->kind == AOTICACHE_DEFAULT_ABSENT)
        return true;
    if (from->kind != AOTICACHE_DEFAULT_NONE && type->kind == AOTICACHE_TYPE_LIST)
        return make_list(type, from, ret_value);
    *ret_value = value_of_single(type, from);
    return true;
}

aoticache_value *aoticache_default_values_create(const aoticache_schema *schema)
{
    size_t count = schema->argument_count;
    aoticache_value *defaults = calloc(count + 1, sizeof *defaults);
    for (size_t i = 0; defaults != NULL && i < count; i++) {
        if (!make_default(&schema->arguments[i], &defaults[i])) {
            aoticache_default_values_free(defaults, i);
            return NULL;
        }
    }
    return defaults;
}

void aoticache_default_values_free(aoticache_value *defaults, size_t count)
{
    for (size_t i = 0; defaults != NULL && i < count; i++) {
        switch (defaults[i].kind) {
        case AOTICACHE_VALUE_INT_LIST:
        case AOTICACHE_VALUE_DOUBLE_LIST:
        case AOTICACHE_VALUE_BOOL_LIST:
        case AOTICACHE_VALUE_STRING_LIST:
        case AOTICACHE_VALUE_TENSOR_LIST:
        case AOTICACHE_VALUE_SCALAR_LIST:
            free(defaults[i].as.object);
            break;
        default:
            break;
        }
    }
    free(defaults);
}
