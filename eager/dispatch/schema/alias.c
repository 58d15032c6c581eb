/*
 * eager/dispatch/schema/alias: annotations, "(a!)", "(a -> b|*)", "!", and the annotation of a list that follows from its
 * elements.
 */
#include "eager/dispatch/schema/schema_internal.h"

#include <stdio.h>
#include <string.h>

bool aoticache_schema_alias_has(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Counts how many names can precede the next bracket. */
static size_t count_separators(const schema_parser *parser)
{
    size_t count = 1;
    for (const char *at = parser->lexer.text + parser->token.begin; *at != '\0' && *at != ')'; at++)
        count += *at == '|';
    return count;
}

/* Parses "a|b|*": a set, so a name counts once. After a "*" only separators are allowed. */
static bool parse_set(schema_parser *parser, const char *const **ret_names, size_t *ret_count)
{
    const char **names = aoticache_schema_take(parser, count_separators(parser) * sizeof *names);
    size_t count = 0;
    if (names == NULL)
        return false;
    do {
        const char *name = NULL;
        if (aoticache_schema_accept(parser, '*'))
            name = "*";
        else if (aoticache_schema_alias_has(names, count, "*"))
            continue;
        else if (parser->token.kind != TOKEN_WORD)
            return aoticache_schema_refuse(parser, "the name of an alias set or '*'");
        else if ((name = aoticache_schema_copy_token(parser, parser->token)) != NULL)
            aoticache_schema_advance(parser);
        if (name == NULL)
            return false;
        if (!aoticache_schema_alias_has(names, count, name))
            names[count++] = name;
    } while (aoticache_schema_accept(parser, '|'));
    *ret_names = names;
    *ret_count = count;
    return true;
}

/* Makes the annotation of "!": written to, in its own set, which is empty afterwards. */
static bool make_fresh(schema_parser *parser, aoticache_alias *alias)
{
    char text[16];
    int length = snprintf(text, sizeof text, "$%u", (unsigned)parser->fresh_names++);
    const char **names = aoticache_schema_take(parser, sizeof *names);
    if (names == NULL || (names[0] = aoticache_schema_copy(parser, text, (size_t)length)) == NULL)
        return false;
    *alias = (aoticache_alias){.is_write = true, .before_count = 1, .before = names};
    return true;
}

static bool parse_bracketed(schema_parser *parser, aoticache_alias *alias)
{
    if (!parse_set(parser, &alias->before, &alias->before_count))
        return false;
    alias->is_write = aoticache_schema_accept(parser, '!');
    if (aoticache_schema_accept(parser, TOKEN_ARROW)) {
        if (!parse_set(parser, &alias->after, &alias->after_count))
            return false;
    } else {
        alias->after = alias->before;
        alias->after_count = alias->before_count;
    }
    return aoticache_schema_expect(parser, ')', "')' after an alias annotation");
}

bool aoticache_schema_parse_alias(schema_parser *parser, const aoticache_alias **ret_alias)
{
    aoticache_alias read = {0};
    bool is_fresh = parser->token.kind == '!';
    *ret_alias = NULL;
    if (!is_fresh && parser->token.kind != '(')
        return true;
    aoticache_schema_advance(parser);
    if (is_fresh ? !make_fresh(parser, &read) : !parse_bracketed(parser, &read))
        return false;
    aoticache_alias *alias = aoticache_schema_take(parser, sizeof *alias);
    if (alias == NULL)
        return false;
    *alias = read;
    *ret_alias = alias;
    return true;
}

bool aoticache_schema_wrap_alias(schema_parser *parser, schema_annotation *annotation)
{
    const aoticache_alias *list;
    if (!aoticache_schema_parse_alias(parser, &list))
        return false;
    const aoticache_alias *elements = annotation->outer;
    if (list == NULL && elements != NULL) {
        /* Without names: the list is written to if its elements are. */
        aoticache_alias *implied = aoticache_schema_take(parser, sizeof *implied);
        if (implied == NULL)
            return false;
        *implied = (aoticache_alias){.is_write = elements->is_write};
        list = implied;
    }
    *annotation = (schema_annotation){.outer = list, .inner = elements};
    return true;
}
