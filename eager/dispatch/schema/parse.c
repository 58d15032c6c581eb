/*
 * eager/dispatch/schema/parse: the declaration: name, arguments, returns; and running a parse and turning its result into one
 * block of memory. Types, annotations and default values have their own files.
 *
 * Source: torch/csrc/jit/frontend/function_schema_parser.cpp (2.13).
 */
#include "base/arguments.h"
#include "eager/dispatch/schema/schema_internal.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the name ---- */

static bool expect_word(schema_parser *parser, const char *expected, schema_token *ret_token)
{
    *ret_token = parser->token;
    return aoticache_schema_expect(parser, TOKEN_WORD, expected);
}

static bool check_overload(schema_parser *parser, schema_token overload)
{
    const char *text = parser->lexer.text + overload.begin;
    if (!aoticache_schema_token_is(parser, overload, "default") && strncmp(text, "__", 2) != 0)
        return true;
    return aoticache_schema_refuse_at(parser, overload,
                                      "'%.*s' cannot be the name of an overload: \"default\" means no overload, and "
                                      "a name must not begin with \"__\"",
                                      overload.length > 100 ? 100 : (int)overload.length, text);
}

/* Assembles "aten::add.Tensor" without the blanks that may separate its parts. */
static bool store_name(schema_parser *parser, aoticache_schema *schema, const schema_token parts[3])
{
    const char *text = parser->lexer.text;
    const char *space = parts[1].length == 0 && parser->namespace_name != NULL ? parser->namespace_name : "";
    size_t size = strlen(space) + parts[0].length + parts[1].length + parts[2].length + 4;
    char *full = aoticache_schema_take(parser, size);
    if (full == NULL)
        return false;
    int length =
        snprintf(full, size, "%s%s%.*s%s%.*s", space, *space != '\0' ? "::" : "", (int)parts[0].length,
                 text + parts[0].begin, parts[1].length > 0 ? "::" : "", (int)parts[1].length, text + parts[1].begin);
    schema->full_name = schema->name = full;
    schema->overload = "";
    if (parts[2].length == 0)
        return true;
    schema->name = aoticache_schema_copy(parser, full, (size_t)length);
    snprintf(full + length, size - (size_t)length, ".%.*s", (int)parts[2].length, text + parts[2].begin);
    schema->overload = full + length + 1;
    return schema->name != NULL;
}

static bool parse_name(schema_parser *parser, aoticache_schema *schema)
{
    schema_token parts[3] = {{0}};
    if (!expect_word(parser, "the name of an operator", &parts[0]))
        return false;
    if (aoticache_schema_accept(parser, ':') &&
        (!aoticache_schema_expect(parser, ':', "'::'") || !expect_word(parser, "a name after '::'", &parts[1])))
        return false;
    if (aoticache_schema_accept(parser, '.') &&
        (!expect_word(parser, "the name of an overload", &parts[2]) || !check_overload(parser, parts[2])))
        return false;
    return store_name(parser, schema, parts);
}

/* ---- arguments and returns ---- */

/* The arguments that have been read. They are copied into the schema when their number is known. */
typedef struct argument_list {
    aoticache_schema_argument *items, few[12];
    size_t count, capacity;
} argument_list;

static aoticache_schema_argument *add_argument(schema_parser *parser, argument_list *list)
{
    if (list->count == list->capacity) {
        bool is_first = list->items == list->few;
        aoticache_schema_argument *more = realloc(is_first ? NULL : list->items, 2 * list->capacity * sizeof *more);
        if (more == NULL) {
            aoticache_schema_out_of_memory(parser);
            return NULL;
        }
        if (is_first)
            memcpy(more, list->few, sizeof list->few);
        list->items = more;
        list->capacity *= 2;
    }
    aoticache_schema_argument *added = &list->items[list->count++];
    *added = (aoticache_schema_argument){.name = ""};
    return added;
}

/* Stores annotations. That of a list is the outer one, that of its elements the inner one. */
static void store_annotation(aoticache_schema_argument *argument, schema_annotation annotation)
{
    const aoticache_type *type = argument->type;
    if (type->kind == AOTICACHE_TYPE_OPTIONAL)
        type = type->elements[0];
    if (type->kind != AOTICACHE_TYPE_LIST) {
        argument->alias = annotation.outer;
        return;
    }
    argument->alias = annotation.inner;
    if (annotation.outer != NULL && annotation.outer->before_count > 0)
        argument->list_alias = annotation.outer;
}

static bool parse_argument(schema_parser *parser, bool is_return, aoticache_schema_argument *argument)
{
    schema_annotation annotation = {0};
    if (!aoticache_schema_parse_type(parser, false, &argument->type, &annotation) ||
        !aoticache_schema_parse_fixed_list(parser, &argument->type, &annotation))
        return false;
    store_annotation(argument, annotation);
    if (is_return && parser->token.kind != TOKEN_WORD)
        return true;
    schema_token name;
    if (!expect_word(parser, "the name of an argument", &name) ||
        (argument->name = aoticache_schema_copy_token(parser, name)) == NULL)
        return false;
    if (is_return || !aoticache_schema_accept(parser, '='))
        return true;
    return aoticache_schema_parse_default(parser, argument->type, &argument->default_value);
}

/* Checks that positional arguments after one with a default have one too; except lists, because of old schemas. */
static bool check_order(schema_parser *parser, const argument_list *list, schema_token token)
{
    const aoticache_schema_argument *last = &list->items[list->count - 1];
    if (last->default_value.kind != AOTICACHE_DEFAULT_ABSENT || last->keyword_only ||
        last->type->kind == AOTICACHE_TYPE_LIST)
        return true;
    for (size_t i = 0; i + 1 < list->count; i++)
        if (list->items[i].default_value.kind != AOTICACHE_DEFAULT_ABSENT)
            return aoticache_schema_refuse_at(parser, token,
                                              "argument '%.100s' has no default, but '%.100s' before it has",
                                              last->name, list->items[i].name);
    return true;
}

static bool parse_items(schema_parser *parser, bool is_return, argument_list *list, bool *ret_dots)
{
    bool keyword_only = false;
    do {
        if (*ret_dots)
            return aoticache_schema_refuse_at(parser, parser->token, "'...' must be the last %s",
                                              is_return ? "return" : "argument");
        if (!is_return && aoticache_schema_accept(parser, '*')) {
            keyword_only = true;
        } else if (aoticache_schema_accept(parser, TOKEN_DOTS)) {
            *ret_dots = true;
        } else {
            schema_token token = parser->token;
            aoticache_schema_argument *argument = add_argument(parser, list);
            if (argument == NULL || !parse_argument(parser, is_return, argument))
                return false;
            argument->keyword_only = keyword_only;
            if (!is_return && !check_order(parser, list, token))
                return false;
        }
    } while (aoticache_schema_accept(parser, ','));
    return true;
}

/* Parses "(...)"; a single return may have no brackets. */
static bool parse_list(schema_parser *parser, bool is_return, argument_list *list, bool *ret_dots)
{
    if (is_return && parser->token.kind != '(') {
        if (aoticache_schema_accept(parser, TOKEN_DOTS))
            return *ret_dots = true;
        aoticache_schema_argument *argument = add_argument(parser, list);
        return argument != NULL && parse_argument(parser, true, argument);
    }
    if (!aoticache_schema_expect(parser, '(', "'('"))
        return false;
    if (parser->token.kind != ')' && !parse_items(parser, is_return, list, ret_dots))
        return false;
    return aoticache_schema_expect(parser, ')', "',' or ')'");
}

static bool parse_arguments(schema_parser *parser, bool is_return, const aoticache_schema_argument **ret_arguments,
                            size_t *ret_count, bool *ret_dots)
{
    argument_list list = {.capacity = sizeof list.few / sizeof *list.few};
    aoticache_schema_argument *stored = NULL;
    list.items = list.few;
    if (parse_list(parser, is_return, &list, ret_dots) &&
        (stored = aoticache_schema_take(parser, list.count * sizeof *stored)) != NULL) {
        if (list.count > 0)
            memcpy(stored, list.items, list.count * sizeof *stored);
        *ret_arguments = stored;
        *ret_count = list.count;
    }
    if (list.items != list.few)
        free(list.items);
    return stored != NULL;
}

/* Checks as PyTorch does: a variadic schema must not have defaults. */
static bool check_defaults(schema_parser *parser, const aoticache_schema *schema, schema_token token)
{
    for (size_t i = 0; schema->is_vararg && i < schema->argument_count; i++)
        if (schema->arguments[i].default_value.kind != AOTICACHE_DEFAULT_ABSENT)
            return aoticache_schema_refuse_at(parser, token,
                                              "a schema with '...' cannot have defaults, but '%.100s' has one",
                                              schema->arguments[i].name);
    return true;
}

static bool is_written(const aoticache_alias *alias)
{
    return alias != NULL && alias->is_write;
}

static void set_summary(aoticache_schema *schema)
{
    for (size_t i = 0; i < schema->argument_count; i++)
        if (is_written(schema->arguments[i].alias) || is_written(schema->arguments[i].list_alias))
            schema->is_mutable = true;
    for (size_t i = 0; i < schema->return_count; i++)
        if (schema->returns[i].alias != NULL || schema->returns[i].list_alias != NULL)
            schema->has_aliasing = true;
}

static bool parse_signature(schema_parser *parser, aoticache_schema *schema)
{
    schema_token start = parser->token;
    schema->has_signature = true;
    if (!parse_arguments(parser, false, &schema->arguments, &schema->argument_count, &schema->is_vararg) ||
        !check_defaults(parser, schema, start) || !aoticache_schema_expect(parser, TOKEN_ARROW, "'->'") ||
        !parse_arguments(parser, true, &schema->returns, &schema->return_count, &schema->is_varret))
        return false;
    set_summary(schema);
    return true;
}

/* ---- one parse ---- */

static aoticache_schema *parse_all(schema_parser *parser, bool name_alone)
{
    aoticache_schema *schema = aoticache_schema_take(parser, sizeof *schema);
    if (schema == NULL)
        return NULL;
    memset(schema, 0, sizeof *schema);
    aoticache_schema_advance(parser);
    if (!parse_name(parser, schema) || (!name_alone && !parse_signature(parser, schema)))
        return NULL;
    aoticache_schema_accept(parser, TOKEN_NEWLINE);
    return aoticache_schema_expect(parser, TOKEN_END, name_alone ? "the end of the name" : "the end of the schema")
               ? schema
               : NULL;
}

typedef enum what_text { SCHEMA, DEFINITION, NAME } what_text;

static aoticache_schema *parse_into(schema_arena *arena, const char *text, what_text what, const char *namespace_name,
                                    aoticache_status *ret_status, aoticache_error *ret_error)
{
    schema_parser parser = {.lexer = {.text = text},
                            .arena = arena,
                            .is_definition = what == DEFINITION,
                            .namespace_name = namespace_name,
                            .error = ret_error};
    aoticache_schema *schema = parse_all(&parser, what == NAME);
    *ret_status = parser.status;
    return schema;
}

/* Parses a text. function: the public one, for the message. */
static aoticache_status parse(const char *function, const char *text, what_text what, const char *namespace_name,
                              aoticache_schema **ret_schema, aoticache_error *ret_error)
{
    alignas(max_align_t) char scratch[6144];
    schema_arena arena = {.memory = scratch, .capacity = sizeof scratch, .chunks_allowed = true};
    aoticache_status status;
    if (text == NULL || ret_schema == NULL)
        return AOTICACHE_REFUSE_NULL_OF(function, ret_error, text, ret_schema);
    size_t size = strnlen(text, SCHEMA_MAX_BYTES + 1);
    if (size > SCHEMA_MAX_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "schema, column %u: longer than %u bytes",
                                   SCHEMA_MAX_BYTES + 1, SCHEMA_MAX_BYTES);
    bool parsed = parse_into(&arena, text, what, namespace_name, &status, ret_error) != NULL;
    aoticache_schema_arena_release(&arena);
    if (!parsed)
        return status;
    schema_arena exact = {.memory = malloc(arena.total), .capacity = arena.total};
    if (exact.memory == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "schema: out of memory");
    aoticache_schema *schema = parse_into(&exact, text, what, namespace_name, &status, ret_error);
    if (schema == NULL) { /* only the argument vector takes memory in the second parse */
        free(exact.memory);
        return status;
    }
    *ret_schema = schema;
    return AOTICACHE_OK;
}

aoticache_status aoticache_schema_parse(const char *text, aoticache_schema **ret_schema, aoticache_error *ret_error)
{
    return parse(__func__, text, SCHEMA, NULL, ret_schema, ret_error);
}

aoticache_status aoticache_schema_parse_definition(const char *text, const char *namespace_name,
                                                   aoticache_schema **ret_schema, aoticache_error *ret_error)
{
    return parse(__func__, text, DEFINITION, namespace_name, ret_schema, ret_error);
}

aoticache_status aoticache_schema_parse_name(const char *text, aoticache_schema **ret_schema,
                                             aoticache_error *ret_error)
{
    return parse(__func__, text, NAME, NULL, ret_schema, ret_error);
}
