/*
 * eager/dispatch/schema/format: prints schemas and types as PyTorch does; the text can be parsed again.
 *
 * Source: ATen/core/function_schema.h, ATen/core/alias_info.h, ATen/core/ivalue.cpp (2.13).
 */
#include "eager/dispatch/schema/schema.h"

#include "eager/dispatch/schema/schema_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A writer counts all characters, and writes those that fit. */
typedef struct text_writer {
    char *text;
    size_t size, length;
} text_writer;

static void put_bytes(text_writer *writer, const char *bytes, size_t count)
{
    if (writer->length < writer->size) {
        size_t room = writer->size - writer->length;
        memcpy(writer->text + writer->length, bytes, count < room ? count : room);
    }
    writer->length += count;
}

static void put(text_writer *writer, const char *text)
{
    put_bytes(writer, text, strlen(text));
}

static size_t terminate_text(text_writer *writer)
{
    if (writer->size > 0)
        writer->text[writer->length < writer->size ? writer->length : writer->size - 1] = '\0';
    return writer->length;
}

/* ---- types ---- */

static const char *const type_words[] = {
    [AOTICACHE_TYPE_TENSOR] = "Tensor",       [AOTICACHE_TYPE_INT] = "int",
    [AOTICACHE_TYPE_SYM_INT] = "SymInt",      [AOTICACHE_TYPE_FLOAT] = "float",
    [AOTICACHE_TYPE_SYM_FLOAT] = "SymFloat",  [AOTICACHE_TYPE_BOOL] = "bool",
    [AOTICACHE_TYPE_SYM_BOOL] = "SymBool",    [AOTICACHE_TYPE_COMPLEX] = "complex",
    [AOTICACHE_TYPE_NUMBER] = "Scalar",       [AOTICACHE_TYPE_STRING] = "str",
    [AOTICACHE_TYPE_DEVICE] = "Device",       [AOTICACHE_TYPE_DTYPE] = "ScalarType",
    [AOTICACHE_TYPE_LAYOUT] = "Layout",       [AOTICACHE_TYPE_MEMORY_FORMAT] = "MemoryFormat",
    [AOTICACHE_TYPE_GENERATOR] = "Generator", [AOTICACHE_TYPE_STORAGE] = "Storage",
    [AOTICACHE_TYPE_STREAM] = "Stream",       [AOTICACHE_TYPE_QSCHEME] = "QScheme",
    [AOTICACHE_TYPE_DIMNAME] = "Dimname",     [AOTICACHE_TYPE_ANY] = "Any",
    [AOTICACHE_TYPE_NONE] = "NoneType",       [AOTICACHE_TYPE_TUPLE] = "",
    [AOTICACHE_TYPE_DICT] = "Dict",           [AOTICACHE_TYPE_FUTURE] = "Future",
    [AOTICACHE_TYPE_RREF] = "RRef",           [AOTICACHE_TYPE_AWAIT] = "Await",
    [AOTICACHE_TYPE_UNION] = "Union",         [AOTICACHE_TYPE_OTHER] = NULL,
};

static void put_length(text_writer *writer, int32_t fixed_size)
{
    char number[16] = "";
    if (fixed_size >= 0)
        snprintf(number, sizeof number, "%" PRId32, fixed_size);
    put(writer, "[");
    put(writer, number);
    put(writer, "]");
}

static void put_type(text_writer *writer, const aoticache_type *type)
{
    const char *word = type->name != NULL ? type->name : type_words[type->kind];
    if (type->kind == AOTICACHE_TYPE_LIST || type->kind == AOTICACHE_TYPE_OPTIONAL) {
        put_type(writer, type->elements[0]);
        if (type->kind == AOTICACHE_TYPE_LIST)
            put_length(writer, type->fixed_size);
        else
            put(writer, "?");
        return;
    }
    put(writer, word != NULL ? word : "?");
    if (type->element_count == 0 && type->kind != AOTICACHE_TYPE_TUPLE)
        return;
    put(writer, "(");
    for (size_t i = 0; i < type->element_count; i++) {
        put(writer, i > 0 ? ", " : "");
        put_type(writer, type->elements[i]);
    }
    put(writer, ")");
}

/* ---- annotations ---- */

static void put_set(text_writer *writer, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        put(writer, i > 0 ? "|" : "");
        put(writer, names[i]);
    }
}

static bool same_set(const aoticache_alias *alias)
{
    if (alias->before_count != alias->after_count)
        return false;
    for (size_t i = 0; i < alias->before_count; i++)
        if (!aoticache_schema_alias_has(alias->after, alias->after_count, alias->before[i]))
            return false;
    return true;
}

static void put_alias(text_writer *writer, const aoticache_alias *alias)
{
    put(writer, "(");
    put_set(writer, alias->before, alias->before_count);
    put(writer, alias->is_write ? "!" : "");
    if (!same_set(alias)) {
        put(writer, " -> ");
        put_set(writer, alias->after, alias->after_count);
    }
    put(writer, ")");
}

/* ---- default values ---- */

static void put_int(text_writer *writer, int64_t number)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, number);
    put(writer, text);
}

/* Writes "1." for an integer that fits 64 bits, otherwise seventeen digits. */
static void put_double(text_writer *writer, double number)
{
    char text[64];
    if (number >= -0x1p63 && number < 0x1p63 && (double)(int64_t)number == number) {
        put_int(writer, (int64_t)number);
        put(writer, ".");
        return;
    }
    aoticache_schema_number_format(number, text, sizeof text);
    put(writer, text);
}

static void put_quoted(text_writer *writer, const char *text)
{
    static const char bytes[] = "\\'\"\a\b\f\n\r\t\v", letters[] = "\\'\"abfnrtv";
    put(writer, "\"");
    for (; *text != '\0'; text++) {
        const char *found = strchr(bytes, *text);
        unsigned char byte = (unsigned char)*text;
        char escape[8] = {*text, '\0'};
        if (found != NULL)
            snprintf(escape, sizeof escape, "\\%c", letters[found - bytes]);
        else if (byte < ' ' || byte >= 0x7f)
            snprintf(escape, sizeof escape, "\\%03o", (unsigned)byte);
        put(writer, escape);
    }
    put(writer, "\"");
}

static void put_value(text_writer *writer, const aoticache_default *value)
{
    switch (value->kind) {
    case AOTICACHE_DEFAULT_ABSENT:
        break;
    case AOTICACHE_DEFAULT_NONE:
        put(writer, "None");
        break;
    case AOTICACHE_DEFAULT_INT:
        put_int(writer, value->int_value);
        break;
    case AOTICACHE_DEFAULT_FLOAT:
        put_double(writer, value->float_value);
        break;
    case AOTICACHE_DEFAULT_COMPLEX:
        put_double(writer, value->float_value);
        put(writer, value->imaginary < 0 ? "" : "+");
        put_double(writer, value->imaginary);
        put(writer, "j");
        break;
    case AOTICACHE_DEFAULT_BOOL:
        put(writer, value->bool_value ? "True" : "False");
        break;
    case AOTICACHE_DEFAULT_STRING:
        put(writer, value->string_value);
        break;
    case AOTICACHE_DEFAULT_LIST:
        put(writer, "[");
        for (size_t i = 0; i < value->count; i++) {
            put(writer, i > 0 ? ", " : "");
            put_value(writer, &value->items[i]);
        }
        put(writer, "]");
        break;
    }
}

static bool is_repeated(const aoticache_default *list)
{
    for (size_t i = 1; i < list->count; i++)
        if (list->items[i].int_value != list->items[0].int_value)
            return false;
    return list->count > 1;
}

/* Writes quotes only if the type is string, and one number for a list of equal ones only if it is int. */
static void put_default(text_writer *writer, const aoticache_type *type, const aoticache_default *value)
{
    const aoticache_type *plain = type->kind == AOTICACHE_TYPE_OPTIONAL ? type->elements[0] : type;
    put(writer, "=");
    if (value->kind == AOTICACHE_DEFAULT_STRING && plain->kind == AOTICACHE_TYPE_STRING)
        put_quoted(writer, value->string_value);
    else if (value->kind == AOTICACHE_DEFAULT_LIST && type->kind == AOTICACHE_TYPE_LIST &&
             type->elements[0]->kind == AOTICACHE_TYPE_INT && is_repeated(value))
        put_value(writer, &value->items[0]);
    else
        put_value(writer, value);
}

/* ---- the whole schema ---- */

/* Writes an argument. Its annotation precedes the "?" of the whole argument, that of elements the "[]". */
static void put_argument(text_writer *writer, const aoticache_schema_argument *argument)
{
    const aoticache_type *type = argument->type;
    if (type->kind == AOTICACHE_TYPE_OPTIONAL)
        type = type->elements[0];
    bool is_list = type->kind == AOTICACHE_TYPE_LIST;
    put_type(writer, is_list ? type->elements[0] : type);
    if (argument->alias != NULL)
        put_alias(writer, argument->alias);
    if (is_list)
        put_length(writer, type->fixed_size);
    if (argument->list_alias != NULL)
        put_alias(writer, argument->list_alias);
    if (argument->type->kind == AOTICACHE_TYPE_OPTIONAL)
        put(writer, "?");
    if (argument->name[0] != '\0') {
        put(writer, " ");
        put(writer, argument->name);
    }
    if (argument->default_value.kind != AOTICACHE_DEFAULT_ABSENT)
        put_default(writer, argument->type, &argument->default_value);
}

static void put_arguments(text_writer *writer, const aoticache_schema *schema)
{
    bool keyword_only = false;
    put(writer, "(");
    for (size_t i = 0; i < schema->argument_count; i++) {
        put(writer, i > 0 ? ", " : "");
        if (schema->arguments[i].keyword_only && !keyword_only) {
            put(writer, "*, ");
            keyword_only = true;
        }
        put_argument(writer, &schema->arguments[i]);
    }
    if (schema->is_vararg)
        put(writer, schema->argument_count > 0 ? ", ..." : "...");
    put(writer, ")");
}

/* Returns true if the text of an argument of this type begins with a bracket. */
static bool begins_with_bracket(const aoticache_type *type)
{
    while (type->kind == AOTICACHE_TYPE_LIST || type->kind == AOTICACHE_TYPE_OPTIONAL)
        type = type->elements[0];
    return type->kind == AOTICACHE_TYPE_TUPLE;
}

/* Writes the returns. One return has no brackets, unless it would be read as a list of returns. */
static void put_returns(text_writer *writer, const aoticache_schema *schema)
{
    size_t items = schema->return_count + schema->is_varret;
    bool brackets = items != 1 || (schema->return_count == 1 && begins_with_bracket(schema->returns[0].type));
    put(writer, brackets ? " -> (" : " -> ");
    for (size_t i = 0; i < schema->return_count; i++) {
        put(writer, i > 0 ? ", " : "");
        put_argument(writer, &schema->returns[i]);
    }
    if (schema->is_varret)
        put(writer, schema->return_count > 0 ? ", ..." : "...");
    put(writer, brackets ? ")" : "");
}

size_t aoticache_schema_format(const aoticache_schema *schema, char *ret_text, size_t size)
{
    text_writer writer = {.text = ret_text, .size = size};
    put(&writer, schema->full_name);
    if (schema->has_signature) {
        put_arguments(&writer, schema);
        put_returns(&writer, schema);
    }
    return terminate_text(&writer);
}

size_t aoticache_type_format(const aoticache_type *type, char *ret_text, size_t size)
{
    text_writer writer = {.text = ret_text, .size = size};
    put_type(&writer, type);
    return terminate_text(&writer);
}
