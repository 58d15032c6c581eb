/*
 * eager/holder_arguments: the schema's side of a call: the values of its defaults, and whether an argument is of a kind that
 * the schema takes.
 */
#include "eager/holder_state.h"

#include <stdlib.h>
#include <string.h>

/* ---- defaults ---- */

static const aoticache_type *strip_optional(const aoticache_type *type)
{
    return type->kind == AOTICACHE_TYPE_OPTIONAL ? type->elements[0] : type;
}

/* A list of the default's items, or of one value as often as a fixed size says ("int[2] stride=1"). */
static bool default_list(const aoticache_type *type, const aoticache_default *value, aoticache_value *ret_value)
{
    const aoticache_type *element = strip_optional(type->elements[0]);
    bool single = value->kind != AOTICACHE_DEFAULT_LIST;
    size_t count = single ? (size_t)(type->fixed_size > 0 ? type->fixed_size : 1) : value->count;
    bool ints = element->kind == AOTICACHE_TYPE_INT || element->kind == AOTICACHE_TYPE_SYM_INT;
    size_t size = element->kind == AOTICACHE_TYPE_BOOL ? sizeof(bool) : 8;
    if (!ints && element->kind != AOTICACHE_TYPE_FLOAT && element->kind != AOTICACHE_TYPE_BOOL)
        return false;
    char *items = calloc(count + 1, size);
    if (items == NULL)
        return false;
    for (size_t i = 0; i < count; i++) {
        const aoticache_default *item = single ? value : &value->items[i];
        double number = item->kind == AOTICACHE_DEFAULT_FLOAT ? item->float_value : (double)item->int_value;
        const void *bytes = ints ? (const void *)&item->int_value : (const void *)&number;
        memcpy(items + i * size, size == sizeof(bool) ? (const void *)&item->bool_value : bytes, size);
    }
    *ret_value = (aoticache_value){.count = (uint32_t)count,
                                   .kind = ints ? AOTICACHE_VALUE_INT_LIST
                                           : size == 8 ? AOTICACHE_VALUE_DOUBLE_LIST : AOTICACHE_VALUE_BOOL_LIST};
    ret_value->as.ints = (const int64_t *)(const void *)items;
    return true;
}

/* Of a type that is no list. */
static aoticache_value default_single(const aoticache_type *type, const aoticache_default *value)
{
    aoticache_value made = {.kind = AOTICACHE_VALUE_OTHER};
    switch (value->kind) {
    case AOTICACHE_DEFAULT_INT:
        made.kind = type->kind == AOTICACHE_TYPE_DTYPE           ? AOTICACHE_VALUE_DTYPE
                    : type->kind == AOTICACHE_TYPE_LAYOUT        ? AOTICACHE_VALUE_LAYOUT
                    : type->kind == AOTICACHE_TYPE_MEMORY_FORMAT ? AOTICACHE_VALUE_MEMORY_FORMAT
                                                                 : AOTICACHE_VALUE_INT;
        made.as.int_value = value->int_value;
        if (type->kind == AOTICACHE_TYPE_FLOAT)
            made = (aoticache_value){.kind = AOTICACHE_VALUE_DOUBLE, .as.double_value = (double)value->int_value};
        break;
    case AOTICACHE_DEFAULT_FLOAT:
        made.kind = AOTICACHE_VALUE_DOUBLE;
        made.as.double_value = value->float_value;
        break;
    case AOTICACHE_DEFAULT_COMPLEX:
        made.kind = AOTICACHE_VALUE_COMPLEX;
        made.as.complex_value[0] = value->float_value;
        made.as.complex_value[1] = value->imaginary;
        break;
    case AOTICACHE_DEFAULT_BOOL:
        made.kind = AOTICACHE_VALUE_BOOL;
        made.as.bool_value = value->bool_value;
        break;
    case AOTICACHE_DEFAULT_STRING:
        made.kind = AOTICACHE_VALUE_STRING;
        made.as.string = value->string_value;
        break;
    default:
        break;
    }
    return made;
}

aoticache_value *aoticache_defaults_create(const aoticache_schema *schema)
{
    size_t count = aoticache_schema_num_arguments(schema);
    aoticache_value *defaults = calloc(count + 1, sizeof *defaults);
    for (size_t i = 0; defaults != NULL && i < count; i++) {
        const aoticache_schema_argument *argument = aoticache_schema_argument_at(schema, i);
        const aoticache_type *type = strip_optional(argument->type);
        defaults[i] = (aoticache_value){.kind = AOTICACHE_VALUE_OTHER};
        if (argument->default_value.kind == AOTICACHE_DEFAULT_NONE)
            defaults[i].kind = AOTICACHE_VALUE_NONE;
        else if (argument->default_value.kind != AOTICACHE_DEFAULT_ABSENT && type->kind == AOTICACHE_TYPE_LIST)
            default_list(type, &argument->default_value, &defaults[i]);
        else if (argument->default_value.kind != AOTICACHE_DEFAULT_ABSENT)
            defaults[i] = default_single(type, &argument->default_value);
    }
    return defaults;
}

void aoticache_defaults_free(aoticache_value *defaults, size_t count)
{
    for (size_t i = 0; defaults != NULL && i < count; i++)
        if (defaults[i].kind == AOTICACHE_VALUE_INT_LIST || defaults[i].kind == AOTICACHE_VALUE_DOUBLE_LIST ||
            defaults[i].kind == AOTICACHE_VALUE_BOOL_LIST)
            free((void *)(uintptr_t)defaults[i].as.ints);
    free(defaults);
}

/* ---- what the schema takes ---- */

static bool list_takes(const aoticache_type *element, int32_t kind)
{
    switch (strip_optional(element)->kind) {
    case AOTICACHE_TYPE_TENSOR:
        return kind == AOTICACHE_VALUE_TENSOR_LIST;
    case AOTICACHE_TYPE_INT:
    case AOTICACHE_TYPE_SYM_INT:
        return kind == AOTICACHE_VALUE_INT_LIST;
    case AOTICACHE_TYPE_FLOAT:
        return kind == AOTICACHE_VALUE_DOUBLE_LIST;
    case AOTICACHE_TYPE_BOOL:
        return kind == AOTICACHE_VALUE_BOOL_LIST;
    case AOTICACHE_TYPE_NUMBER:
        return kind == AOTICACHE_VALUE_SCALAR_LIST || kind == AOTICACHE_VALUE_INT_LIST ||
               kind == AOTICACHE_VALUE_DOUBLE_LIST;
    case AOTICACHE_TYPE_STRING:
        return kind == AOTICACHE_VALUE_STRING_LIST;
    default:
        return kind == AOTICACHE_VALUE_OTHER;
    }
}

static bool type_takes(const aoticache_type *type, int32_t kind)
{
    switch (type->kind) {
    case AOTICACHE_TYPE_OPTIONAL:
        return kind == AOTICACHE_VALUE_NONE || type_takes(type->elements[0], kind);
    case AOTICACHE_TYPE_LIST:
        return list_takes(type->elements[0], kind);
    case AOTICACHE_TYPE_TENSOR:
        return kind == AOTICACHE_VALUE_TENSOR;
    case AOTICACHE_TYPE_INT:
    case AOTICACHE_TYPE_SYM_INT:
        return kind == AOTICACHE_VALUE_INT;
    case AOTICACHE_TYPE_FLOAT:
    case AOTICACHE_TYPE_SYM_FLOAT:
        return kind == AOTICACHE_VALUE_DOUBLE;
    case AOTICACHE_TYPE_BOOL:
    case AOTICACHE_TYPE_SYM_BOOL:
        return kind == AOTICACHE_VALUE_BOOL;
    case AOTICACHE_TYPE_COMPLEX:
        return kind == AOTICACHE_VALUE_COMPLEX;
    case AOTICACHE_TYPE_NUMBER:
        return kind == AOTICACHE_VALUE_INT || kind == AOTICACHE_VALUE_DOUBLE || kind == AOTICACHE_VALUE_BOOL ||
               kind == AOTICACHE_VALUE_COMPLEX;
    case AOTICACHE_TYPE_STRING:
        return kind == AOTICACHE_VALUE_STRING;
    case AOTICACHE_TYPE_DEVICE:
        return kind == AOTICACHE_VALUE_DEVICE;
    case AOTICACHE_TYPE_DTYPE:
        return kind == AOTICACHE_VALUE_DTYPE;
    case AOTICACHE_TYPE_LAYOUT:
        return kind == AOTICACHE_VALUE_LAYOUT;
    case AOTICACHE_TYPE_MEMORY_FORMAT:
        return kind == AOTICACHE_VALUE_MEMORY_FORMAT;
    default:
        return kind == AOTICACHE_VALUE_GENERATOR || kind == AOTICACHE_VALUE_OTHER;
    }
}

/* A tensor that must be there and is not, by itself or in a list. */
static bool lacks_tensor(const aoticache_type *type, const aoticache_value *value)
{
    if (value->kind == AOTICACHE_VALUE_TENSOR)
        return value->as.tensor == NULL;
    type = strip_optional(type);
    if (value->kind != AOTICACHE_VALUE_TENSOR_LIST || type->kind != AOTICACHE_TYPE_LIST ||
        type->elements[0]->kind == AOTICACHE_TYPE_OPTIONAL)
        return false;
    for (uint32_t i = 0; i < value->count; i++)
        if (value->as.tensors[i] == NULL)
            return true;
    return false;
}

aoticache_status aoticache_holder_check_arguments(const aoticache_holder *holder, const aoticache_value *arguments,
                                                  aoticache_error *ret_error)
{
    for (size_t i = 0; i < holder->num_arguments; i++) {
        const aoticache_schema_argument *argument = aoticache_schema_argument_at(holder->schema, i);
        bool lacks = lacks_tensor(argument->type, &arguments[i]);
        if (!lacks && type_takes(argument->type, arguments[i].kind))
            continue;
        char text[96];
        aoticache_type_format(argument->type, text, sizeof text);
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: argument %zu (%s) is %s%s, the schema says %s",
                                   holder->op, i, argument->name, aoticache_value_kind_name(arguments[i].kind),
                                   lacks ? " without a tensor" : "", text);
    }
    return AOTICACHE_OK;
}
