/*
 * eager/dispatch/schema/types: types: words, tuples, "Dict(str, t)", "Future(t)", classes, and the suffixes "[]", "?" and
 * "[2]".
 *
 * Source: torch/csrc/jit/frontend/schema_type_parser.cpp (2.13).
 */
#include "base/text/name_distance.h"
#include "eager/dispatch/schema/schema_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct base_type {
    const char *word;
    aoticache_type type;
    bool is_int_inside; /* inside a tuple, a dict, ... it is an int */
} base_type;

#define BASE(text, type_kind) {.word = text, .type = {.kind = AOTICACHE_TYPE_##type_kind, .fixed_size = -1}}
#define BASE_INT(text, type_kind) \
    {.word = text, .type = {.kind = AOTICACHE_TYPE_##type_kind, .fixed_size = -1}, .is_int_inside = true}
#define BASE_OTHER(text) {.word = text, .type = {.kind = AOTICACHE_TYPE_OTHER, .name = text, .fixed_size = -1}}

/* Without SymFloat and Dimname, which PyTorch does not accept in schemas either. */
static const base_type base_types[] = {
    BASE("int", INT),
    BASE_INT("SymInt", SYM_INT),
    BASE("float", FLOAT),
    BASE("bool", BOOL),
    BASE("Scalar", NUMBER),
    BASE("str", STRING),
    BASE_INT("ScalarType", DTYPE),
    BASE_INT("Layout", LAYOUT),
    BASE_INT("MemoryFormat", MEMORY_FORMAT),
    BASE("Device", DEVICE),
    BASE("Generator", GENERATOR),
    BASE("complex", COMPLEX),
    BASE("Any", ANY),
    BASE("SymBool", SYM_BOOL),
    BASE("Storage", STORAGE),
    BASE("Stream", STREAM),
    BASE("QScheme", QSCHEME),
    BASE("DeviceIndex", INT),
    BASE("ConstQuantizerPtr", INT),
    BASE_OTHER("Quantizer"),
    BASE_OTHER("Capsule"),
    BASE_OTHER("AnyClassType"),
    BASE_OTHER("AnyEnumType"),
};

static const aoticache_type tensor_type = {.kind = AOTICACHE_TYPE_TENSOR, .fixed_size = -1};
static const aoticache_type none_type = {.kind = AOTICACHE_TYPE_NONE, .fixed_size = -1};
static const aoticache_type int_type = {.kind = AOTICACHE_TYPE_INT, .fixed_size = -1};

/* Makes a type. elements: copied. */
static bool make_type(schema_parser *parser, aoticache_type_kind kind, const aoticache_type *const *elements,
                      size_t count, const aoticache_type **ret_type)
{
    aoticache_type *type = aoticache_schema_take(parser, sizeof *type);
    const aoticache_type **copy = aoticache_schema_take(parser, count * sizeof *copy);
    if (type == NULL || copy == NULL)
        return false;
    if (count > 0)
        memcpy(copy, elements, count * sizeof *copy);
    *type = (aoticache_type){.kind = kind, .fixed_size = -1, .element_count = count, .elements = copy};
    *ret_type = type;
    return true;
}

static bool make_named(schema_parser *parser, aoticache_type_kind kind, const char *name,
                       const aoticache_type **ret_type)
{
    aoticache_type *type = aoticache_schema_take(parser, sizeof *type);
    if (type == NULL || name == NULL)
        return false;
    *type = (aoticache_type){.kind = kind, .name = name, .fixed_size = -1};
    *ret_type = type;
    return true;
}

static bool schema_make_optional(schema_parser *parser, const aoticache_type **type)
{
    if ((*type)->kind == AOTICACHE_TYPE_OPTIONAL)
        return true;
    if ((*type)->kind == AOTICACHE_TYPE_NONE)
        return aoticache_schema_refuse_at(parser, parser->token, "NoneType cannot be optional: None is its only value");
    return make_type(parser, AOTICACHE_TYPE_OPTIONAL, type, 1, type);
}

static bool make_list(schema_parser *parser, int32_t fixed_size, const aoticache_type **type)
{
    const aoticache_type *list;
    if (!make_type(parser, AOTICACHE_TYPE_LIST, type, 1, &list))
        return false;
    ((aoticache_type *)list)->fixed_size = fixed_size; /* created above, in our memory */
    *type = list;
    return true;
}

/* ---- types of several parts ---- */

/* The members that have been read. They are copied into the schema when their number is known. */
typedef struct type_items {
    const aoticache_type **items, *few[8];
    size_t count, capacity;
} type_items;

static bool add_item(schema_parser *parser, type_items *list, const aoticache_type *type)
{
    if (list->count == list->capacity) {
        const aoticache_type **more =
            realloc(list->items == list->few ? NULL : list->items, 2 * list->capacity * sizeof *more);
        if (more == NULL)
            return aoticache_schema_out_of_memory(parser);
        if (list->items == list->few)
            memcpy(more, list->few, sizeof list->few);
        list->items = more;
        list->capacity *= 2;
    }
    list->items[list->count++] = type;
    return true;
}

static bool parse_items(schema_parser *parser, type_items *list)
{
    do {
        const aoticache_type *item;
        schema_annotation ignored; /* PyTorch keeps no annotations inside these types */
        if (!aoticache_schema_parse_type(parser, true, &item, &ignored) || !add_item(parser, list, item))
            return false;
    } while (aoticache_schema_accept(parser, ','));
    return aoticache_schema_expect(parser, ')', "',' or ')'");
}

/* Parses a tuple or a union; the opening bracket is the next token. */
static bool parse_sequence(schema_parser *parser, bool is_union, const aoticache_type **ret_type)
{
    type_items list = {.capacity = sizeof list.few / sizeof *list.few};
    schema_token token = parser->token;
    list.items = list.few;
    if (!aoticache_schema_expect(parser, '(', "'('"))
        return false;
    bool done = !is_union && aoticache_schema_accept(parser, ')') ? true : parse_items(parser, &list);
    if (done)
        done = is_union ? aoticache_schema_make_union(parser, token, list.items, list.count, ret_type)
                        : make_type(parser, AOTICACHE_TYPE_TUPLE, list.items, list.count, ret_type);
    if (list.items != list.few)
        free(list.items);
    return done;
}

/* Parses "(t)" after Future, RRef, Await. */
static bool parse_wrapped(schema_parser *parser, aoticache_type_kind kind, const aoticache_type **ret_type)
{
    const aoticache_type *inner;
    schema_annotation ignored;
    return aoticache_schema_expect(parser, '(', "'('") && aoticache_schema_parse_type(parser, true, &inner, &ignored) &&
           aoticache_schema_expect(parser, ')', "')'") && make_type(parser, kind, &inner, 1, ret_type);
}

static bool can_be_key(aoticache_type_kind kind)
{
    return kind == AOTICACHE_TYPE_STRING || kind == AOTICACHE_TYPE_INT || kind == AOTICACHE_TYPE_FLOAT ||
           kind == AOTICACHE_TYPE_COMPLEX || kind == AOTICACHE_TYPE_TENSOR || kind == AOTICACHE_TYPE_BOOL ||
           kind == AOTICACHE_TYPE_DEVICE || kind == AOTICACHE_TYPE_ANY;
}

static bool parse_dict(schema_parser *parser, const aoticache_type **ret_type)
{
    const aoticache_type *parts[2];
    schema_annotation ignored;
    if (!aoticache_schema_expect(parser, '(', "'('"))
        return false;
    schema_token key = parser->token;
    if (!aoticache_schema_parse_type(parser, true, &parts[0], &ignored))
        return false;
    if (!can_be_key(parts[0]->kind)) {
        char text[128];
        aoticache_type_format(parts[0], text, sizeof text);
        return aoticache_schema_refuse_at(parser, key,
                                          "the keys of a Dict cannot be %s: str, int, float, complex, bool, "
                                          "Tensor, Device or Any",
                                          text);
    }
    return aoticache_schema_expect(parser, ',', "','") &&
           aoticache_schema_parse_type(parser, true, &parts[1], &ignored) &&
           aoticache_schema_expect(parser, ')', "')'") && make_type(parser, AOTICACHE_TYPE_DICT, parts, 2, ret_type);
}

/* Parses "__torch__.torch.classes.space.Name"; the first word has been read. Does not check whether the class exists. */
static bool parse_class(schema_parser *parser, const aoticache_type **ret_type)
{
    static const char *const fixed[] = {"torch", "classes", NULL, NULL};
    char name[512] = "__torch__";
    size_t length = strlen(name);
    schema_token start = parser->token;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        if (!aoticache_schema_expect(parser, '.', "'.' in the name of a class"))
            return false;
        schema_token part = parser->token;
        if (fixed[i] != NULL && !aoticache_schema_token_is(parser, part, fixed[i]))
            return aoticache_schema_refuse(parser, "a class such as \"__torch__.torch.classes.space.Name\"");
        if (!aoticache_schema_expect(parser, TOKEN_WORD, "a part of a class's name"))
            return false;
        if (part.length + 2 > sizeof name - length)
            return aoticache_schema_refuse_at(parser, start, "the name of the class is longer than %zu bytes",
                                              sizeof name - 1);
        name[length++] = '.';
        memcpy(name + length, parser->lexer.text + part.begin, part.length);
        length += part.length;
    }
    return make_named(parser, AOTICACHE_TYPE_CLASS, aoticache_schema_copy(parser, name, length), ret_type);
}

/* ---- one type ---- */

const char *aoticache_schema_nearest_type(const char *name)
{
    static const char *const constructed[] = {"Tensor", "Dict", "Union", "Future", "RRef", "Await"};
    enum { WORDS = sizeof base_types / sizeof *base_types, CONSTRUCTED = sizeof constructed / sizeof *constructed };
    const char *names[WORDS + CONSTRUCTED];
    for (size_t i = 0; i < WORDS; i++)
        names[i] = base_types[i].word;
    for (size_t i = 0; i < CONSTRUCTED; i++)
        names[WORDS + i] = constructed[i];
    return aoticache_nearest_name(name, names, WORDS + CONSTRUCTED);
}

static bool refuse_word(schema_parser *parser, schema_token token)
{
    char name[101];
    snprintf(name, sizeof name, "%.*s", token.length > 100 ? 100 : (int)token.length, parser->lexer.text + token.begin);
    char hint[AOTICACHE_HINT_BYTES];
    aoticache_write_hint(aoticache_schema_nearest_type(name), hint);
    return aoticache_schema_refuse_at(parser, token, "unknown type '%s'%s", name, hint);
}

/*
 * Parses a word that is a type by itself. A word that begins with a lower-case letter and is not a type is a type variable,
 * which the definition of an operator must not have: "tensor x" is an error there.
 */
static bool parse_word(schema_parser *parser, bool nested, const aoticache_type **ret_type)
{
    schema_token token = parser->token;
    const char *text = parser->lexer.text + token.begin;
    if (token.kind == TOKEN_NONE || token.kind == TOKEN_NONE_TYPE) {
        aoticache_schema_advance(parser);
        *ret_type = &none_type;
        return true;
    }
    if (token.kind != TOKEN_WORD)
        return aoticache_schema_refuse(parser, "a type");
    for (size_t i = 0; i < sizeof base_types / sizeof *base_types; i++)
        if (base_types[i].word[0] == text[0] && aoticache_schema_token_is(parser, token, base_types[i].word)) {
            aoticache_schema_advance(parser);
            *ret_type = nested && base_types[i].is_int_inside ? &int_type : &base_types[i].type;
            return true;
        }
    if (text[0] < 'a' || text[0] > 'z' || parser->is_definition)
        return refuse_word(parser, token);
    aoticache_schema_advance(parser);
    return make_named(parser, AOTICACHE_TYPE_VARIABLE, aoticache_schema_copy_token(parser, token), ret_type);
}

/* Parses types that consist of a word and arguments. */
static bool parse_constructed(schema_parser *parser, aoticache_type_kind kind, const aoticache_type **ret_type)
{
    aoticache_schema_advance(parser);
    if (kind == AOTICACHE_TYPE_DICT)
        return parse_dict(parser, ret_type);
    if (kind == AOTICACHE_TYPE_CLASS)
        return parse_class(parser, ret_type);
    if (kind == AOTICACHE_TYPE_UNION)
        return parse_sequence(parser, true, ret_type);
    return parse_wrapped(parser, kind, ret_type);
}

static bool parse_plain(schema_parser *parser, bool nested, const aoticache_type **ret_type,
                        const aoticache_alias **ret_alias)
{
    static const struct {
        const char *word;
        aoticache_type_kind kind;
        bool annotated;
    } constructed[] = {{"Dict", AOTICACHE_TYPE_DICT, true},   {"__torch__", AOTICACHE_TYPE_CLASS, false},
                       {"Union", AOTICACHE_TYPE_UNION, true}, {"Future", AOTICACHE_TYPE_FUTURE, false},
                       {"RRef", AOTICACHE_TYPE_RREF, false},  {"Await", AOTICACHE_TYPE_AWAIT, false}};
    *ret_alias = NULL;
    if (parser->token.kind == '(')
        return parse_sequence(parser, false, ret_type);
    if (aoticache_schema_token_is(parser, parser->token, "Tensor")) {
        aoticache_schema_advance(parser);
        *ret_type = &tensor_type;
        return aoticache_schema_parse_alias(parser, ret_alias);
    }
    for (size_t i = 0; i < sizeof constructed / sizeof *constructed; i++)
        if (aoticache_schema_token_is(parser, parser->token, constructed[i].word))
            return parse_constructed(parser, constructed[i].kind, ret_type) &&
                   (!constructed[i].annotated || aoticache_schema_parse_alias(parser, ret_alias));
    return parse_word(parser, nested, ret_type) && aoticache_schema_parse_alias(parser, ret_alias);
}

/* Accepts "[]". Returns false for "[2]", which is parsed elsewhere. */
static bool accept_list_suffix(schema_parser *parser)
{
    if (parser->token.kind != '[')
        return false;
    schema_lexer ahead = parser->lexer;
    schema_token next = aoticache_schema_lexer_next(&ahead);
    if (next.kind != ']')
        return false;
    parser->lexer = ahead;
    aoticache_schema_advance(parser);
    return true;
}

bool aoticache_schema_parse_type(schema_parser *parser, bool nested, const aoticache_type **ret_type,
                                 schema_annotation *ret_annotation)
{
    const aoticache_type *type = NULL;
    schema_annotation annotation = {0};
    schema_token start = parser->token;
    uint32_t depth = parser->depth++;
    if (depth >= SCHEMA_MAX_DEPTH)
        return aoticache_schema_refuse_at(parser, start, "types are nested deeper than %u", SCHEMA_MAX_DEPTH);
    if (!parse_plain(parser, nested, &type, &annotation.outer))
        return false;
    for (;;) {
        if (parser->token.kind == '?') {
            if (!schema_make_optional(parser, &type))
                return false;
            aoticache_schema_advance(parser);
            continue;
        }
        if (!accept_list_suffix(parser))
            break;
        if (++parser->depth > SCHEMA_MAX_DEPTH)
            return aoticache_schema_refuse_at(parser, start, "types are nested deeper than %u", SCHEMA_MAX_DEPTH);
        if (!make_list(parser, -1, &type) || !aoticache_schema_wrap_alias(parser, &annotation))
            return false;
    }
    parser->depth = depth;
    *ret_type = type;
    *ret_annotation = annotation;
    return true;
}

/* Reads the leading decimal digits of a number: 2 for "2" and, as in PyTorch, 1 for "1.5". */
static bool read_size(schema_parser *parser, int32_t *ret_size)
{
    schema_token token = parser->token;
    const char *text = parser->lexer.text + token.begin;
    int64_t size = 0;
    if (!aoticache_schema_expect(parser, TOKEN_NUMBER, "a length or ']'"))
        return false;
    if (text[0] == '.')
        return aoticache_schema_refuse_at(parser, token, "the length of a list must be an integer");
    for (size_t i = 0; text[i] >= '0' && text[i] <= '9'; i++)
        if ((size = size * 10 + (text[i] - '0')) > INT32_MAX)
            return aoticache_schema_refuse_at(parser, token, "the length of a list must be at most %d", INT32_MAX);
    *ret_size = (int32_t)size;
    return true;
}

bool aoticache_schema_parse_fixed_list(schema_parser *parser, const aoticache_type **type,
                                       schema_annotation *annotation)
{
    int32_t size = 0;
    if (!aoticache_schema_accept(parser, '['))
        return true;
    if (!read_size(parser, &size) || !aoticache_schema_expect(parser, ']', "']'") || !make_list(parser, size, type) ||
        !aoticache_schema_wrap_alias(parser, annotation))
        return false;
    return !aoticache_schema_accept(parser, '?') || schema_make_optional(parser, type);
}
