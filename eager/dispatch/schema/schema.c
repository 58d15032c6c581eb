/*
 * eager/dispatch/schema/schema: freeing a schema; comparing two schemas: whether they are equal, and whether one can implement
 * the other.
 *
 * Source: aten/src/ATen/core/op_registration/infer_schema.cpp, c10::findSchemaDifferences (2.13).
 */
#include "base/arguments.h"
#include "eager/dispatch/schema/schema.h"

#include "eager/dispatch/schema/schema_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void aoticache_schema_free(aoticache_schema *schema)
{
    int saved = errno;
    free(schema); /* one block, the structure first */
    errno = saved;
}

/* ---- equality ---- */

static bool same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

bool aoticache_type_equal(const aoticache_type *a, const aoticache_type *b)
{
    if (a == b)
        return true;
    if (a->kind != b->kind || a->fixed_size != b->fixed_size || a->element_count != b->element_count ||
        !same_text(a->name, b->name))
        return false;
    for (size_t i = 0; i < a->element_count; i++)
        if (!aoticache_type_equal(a->elements[i], b->elements[i]))
            return false;
    return true;
}

static bool same_names(const char *const *a, size_t a_count, const char *const *b, size_t b_count)
{
    if (a_count != b_count)
        return false;
    for (size_t i = 0; i < a_count; i++)
        if (!aoticache_schema_alias_has(b, b_count, a[i]))
            return false;
    return true;
}

static bool schema_alias_equal(const aoticache_alias *a, const aoticache_alias *b)
{
    if (a == NULL || b == NULL)
        return a == b;
    return a->is_write == b->is_write && same_names(a->before, a->before_count, b->before, b->before_count) &&
           same_names(a->after, a->after_count, b->after, b->after_count);
}

static bool same_default(const aoticache_default *a, const aoticache_default *b)
{
    if (a->kind != b->kind || a->int_value != b->int_value || a->float_value != b->float_value ||
        a->imaginary != b->imaginary || a->bool_value != b->bool_value || a->count != b->count ||
        !same_text(a->string_value, b->string_value))
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!same_default(&a->items[i], &b->items[i]))
            return false;
    return true;
}

static bool same_argument(const aoticache_schema_argument *a, const aoticache_schema_argument *b)
{
    return strcmp(a->name, b->name) == 0 && a->keyword_only == b->keyword_only &&
           aoticache_type_equal(a->type, b->type) && schema_alias_equal(a->alias, b->alias) &&
           schema_alias_equal(a->list_alias, b->list_alias) && same_default(&a->default_value, &b->default_value);
}

bool aoticache_schema_equal(const aoticache_schema *a, const aoticache_schema *b)
{
    if (a == b)
        return true;
    if (strcmp(a->full_name, b->full_name) != 0 || strcmp(a->overload, b->overload) != 0 ||
        a->has_signature != b->has_signature || a->is_vararg != b->is_vararg || a->is_varret != b->is_varret ||
        a->argument_count != b->argument_count || a->return_count != b->return_count)
        return false;
    for (size_t i = 0; i < a->argument_count; i++)
        if (!same_argument(&a->arguments[i], &b->arguments[i]))
            return false;
    for (size_t i = 0; i < a->return_count; i++)
        if (!same_argument(&a->returns[i], &b->returns[i]))
            return false;
    return true;
}

/* ---- an implementation and its definition ---- */

/* Compares types. Only definitions have lengths of lists: for an implementation, "int[2]" and "int[]" are the same type. */
static bool types_match(const aoticache_type *a, const aoticache_type *b)
{
    if (a->kind != b->kind || a->element_count != b->element_count || !same_text(a->name, b->name))
        return false;
    for (size_t i = 0; i < a->element_count; i++)
        if (!types_match(a->elements[i], b->elements[i]))
            return false;
    return true;
}

static aoticache_status check_list(const aoticache_schema *a, const char *what,
                                   const aoticache_schema_argument *a_items, size_t a_count,
                                   const aoticache_schema_argument *b_items, size_t b_count, aoticache_error *ret_error)
{
    if (a_count != b_count)
        return aoticache_error_set(ret_error, AOTICACHE_MISMATCH,
                                   "%.200s: the number of %ss differs: %zu defined, %zu "
                                   "implemented",
                                   a->full_name, what, a_count, b_count);
    for (size_t i = 0; i < a_count; i++) {
        char a_text[200], b_text[200];
        if (types_match(a_items[i].type, b_items[i].type))
            continue;
        aoticache_type_format(a_items[i].type, a_text, sizeof a_text);
        aoticache_type_format(b_items[i].type, b_text, sizeof b_text);
        return aoticache_error_set(ret_error, AOTICACHE_MISMATCH,
                                   "%.200s: the type of %s %zu differs: %s defined, %s "
                                   "implemented",
                                   a->full_name, what, i + 1, a_text, b_text);
    }
    return AOTICACHE_OK;
}

aoticache_status aoticache_schema_check_same(const aoticache_schema *a, const aoticache_schema *b,
                                             aoticache_error *ret_error)
{
    if (a == NULL || b == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, a, b);
    if (!a->has_signature || !b->has_signature)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%.200s: a name without arguments and returns cannot be compared",
                                   a->has_signature ? b->full_name : a->full_name);
    if (a->is_vararg != b->is_vararg || a->is_varret != b->is_varret)
        return aoticache_error_set(ret_error, AOTICACHE_MISMATCH,
                                   "%.200s: only one of definition and implementation has '...' after its %s",
                                   a->full_name, a->is_vararg != b->is_vararg ? "arguments" : "returns");
    aoticache_status status =
        check_list(a, "argument", a->arguments, a->argument_count, b->arguments, b->argument_count, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return check_list(a, "return", a->returns, a->return_count, b->returns, b->return_count, ret_error);
}
