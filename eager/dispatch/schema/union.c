/*
 * eager/dispatch/schema/union: "Union(int, str)" in the form that PyTorch uses: flat, ordered by the numbers of its type
 * kinds, without members that another member covers. No operator of PyTorch has a union; docs/formats/schemas.md describes the
 * limits.
 *
 * Source: aten/src/ATen/core/union_type.cpp (2.13).
 */
#include "eager/dispatch/schema/schema_internal.h"

#include <stdlib.h>
#include <string.h>

static const aoticache_type number_type = {.kind = AOTICACHE_TYPE_NUMBER, .fixed_size = -1};
static const aoticache_type none_type = {.kind = AOTICACHE_TYPE_NONE, .fixed_size = -1};

/* Ranks kinds in PyTorch's order (ATen/core/jit_type_base.h). */
static int rank_of(const aoticache_type *type)
{
    static const uint8_t ranks[] = {
        [AOTICACHE_TYPE_ANY] = 0,        [AOTICACHE_TYPE_TENSOR] = 3,   [AOTICACHE_TYPE_STORAGE] = 4,
        [AOTICACHE_TYPE_TUPLE] = 5,      [AOTICACHE_TYPE_LIST] = 6,     [AOTICACHE_TYPE_DICT] = 7,
        [AOTICACHE_TYPE_NUMBER] = 8,     [AOTICACHE_TYPE_FLOAT] = 9,    [AOTICACHE_TYPE_COMPLEX] = 10,
        [AOTICACHE_TYPE_FUTURE] = 11,    [AOTICACHE_TYPE_AWAIT] = 12,   [AOTICACHE_TYPE_RREF] = 13,
        [AOTICACHE_TYPE_INT] = 14,       [AOTICACHE_TYPE_NONE] = 15,    [AOTICACHE_TYPE_STRING] = 16,
        [AOTICACHE_TYPE_GENERATOR] = 17, [AOTICACHE_TYPE_BOOL] = 19,    [AOTICACHE_TYPE_VARIABLE] = 21,
        [AOTICACHE_TYPE_DEVICE] = 22,    [AOTICACHE_TYPE_STREAM] = 23,  [AOTICACHE_TYPE_CLASS] = 25,
        [AOTICACHE_TYPE_QSCHEME] = 29,   [AOTICACHE_TYPE_SYM_BOOL] = 38};
    if (type->kind == AOTICACHE_TYPE_OTHER)
        return strcmp(type->name, "Quantizer") == 0     ? 18
               : strcmp(type->name, "Capsule") == 0     ? 27
               : strcmp(type->name, "AnyEnumType") == 0 ? 2
                                                        : 35;
    return (size_t)type->kind < sizeof ranks ? ranks[type->kind] : 39;
}

static int compare_types(const void *left, const void *right)
{
    const aoticache_type *a = *(const aoticache_type *const *)left, *b = *(const aoticache_type *const *)right;
    char a_text[256], b_text[256];
    int difference = rank_of(a) - rank_of(b);
    if (difference != 0)
        return difference;
    aoticache_type_format(a, a_text, sizeof a_text);
    aoticache_type_format(b, b_text, sizeof b_text);
    return strcmp(a_text, b_text);
}

static bool type_covers(const aoticache_type *a, const aoticache_type *b)
{
    if (a->kind == AOTICACHE_TYPE_ANY || (a->kind == AOTICACHE_TYPE_VARIABLE && b->kind == AOTICACHE_TYPE_VARIABLE))
        return true;
    if (a->kind == AOTICACHE_TYPE_NUMBER)
        return b->kind == AOTICACHE_TYPE_NUMBER || b->kind == AOTICACHE_TYPE_INT || b->kind == AOTICACHE_TYPE_FLOAT ||
               b->kind == AOTICACHE_TYPE_COMPLEX;
    return aoticache_type_equal(a, b);
}

/* Collects members of members, and NONE for an optional one. `flat` has space for twice as many as the text can name. */
static size_t flatten(const aoticache_type *const *items, size_t count, const aoticache_type **flat, size_t filled)
{
    for (size_t i = 0; i < count; i++) {
        if (items[i]->kind == AOTICACHE_TYPE_UNION || items[i]->kind == AOTICACHE_TYPE_OPTIONAL)
            filled = flatten(items[i]->elements, items[i]->element_count, flat, filled);
        else
            flat[filled++] = items[i];
        if (items[i]->kind == AOTICACHE_TYPE_OPTIONAL)
            flat[filled++] = &none_type;
    }
    return filled;
}

static size_t count_flat(const aoticache_type *const *items, size_t count)
{
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        bool holds = items[i]->kind == AOTICACHE_TYPE_UNION || items[i]->kind == AOTICACHE_TYPE_OPTIONAL;
        total += holds ? 1 + count_flat(items[i]->elements, items[i]->element_count) : 1;
    }
    return total;
}

static bool has_kind(const aoticache_type *const *items, size_t count, aoticache_type_kind kind)
{
    for (size_t i = 0; i < count; i++)
        if (items[i]->kind == kind)
            return true;
    return false;
}

/* Keeps members that no other member covers, in order. */
static size_t drop_covered(const aoticache_type **items, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        bool covered = false;
        for (size_t j = 0; j < kept && !covered; j++)
            covered = type_covers(items[j], items[i]);
        if (!covered)
            items[kept++] = items[i];
    }
    return kept;
}

bool aoticache_schema_make_union(schema_parser *parser, schema_token token, const aoticache_type **items, size_t count,
                                 const aoticache_type **ret_type)
{
    size_t total = count_flat(items, count);
    if (total > 64)
        return aoticache_schema_refuse_at(parser, token, "a union has more than 64 types");
    const aoticache_type **members = aoticache_schema_take(parser, (total + 1) * sizeof *members);
    aoticache_type *type = aoticache_schema_take(parser, sizeof *type);
    if (members == NULL || type == NULL)
        return false;
    size_t filled = flatten(items, count, members, 0);
    if (has_kind(members, filled, AOTICACHE_TYPE_INT) && has_kind(members, filled, AOTICACHE_TYPE_FLOAT) &&
        has_kind(members, filled, AOTICACHE_TYPE_COMPLEX))
        members[filled++] = &number_type;
    qsort(members, filled, sizeof *members, compare_types);
    size_t kept = drop_covered(members, filled);
    if (kept == 1 && members[0]->kind != AOTICACHE_TYPE_NUMBER)
        return aoticache_schema_refuse_at(parser, token, "a union needs two different types");
    *type =
        (aoticache_type){.kind = AOTICACHE_TYPE_UNION, .fixed_size = -1, .element_count = kept, .elements = members};
    if (kept == 2 && has_kind(members, kept, AOTICACHE_TYPE_NONE)) {
        type->kind = AOTICACHE_TYPE_OPTIONAL;
        type->element_count = 1;
        if (members[0]->kind == AOTICACHE_TYPE_NONE)
            members[0] = members[1];
    }
    *ret_type = type;
    return true;
}
