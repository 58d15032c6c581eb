/*
 * eager/holder/arguments: whether an argument is of a kind that the schema takes.
 */
#include "eager/holder/state.h"

static const aoticache_type *strip_optional(const aoticache_type *type)
{
    return type->kind == AOTICACHE_TYPE_OPTIONAL ? type->elements[0] : type;
}

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
