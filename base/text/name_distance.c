/*
 * base/text/name_distance: the Levenshtein distance, and the nearest of several names.
 */
#include "base/text/name_distance.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static char fold(char c, bool ignore_case)
{
    return ignore_case && c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

size_t aoticache_name_distance(const char *a, const char *b, size_t limit, bool ignore_case)
{
    size_t row[AOTICACHE_NAME_DISTANCE_LONGEST + 1];
    size_t a_length = strnlen(a, sizeof row / sizeof row[0]), b_length = strnlen(b, sizeof row / sizeof row[0]);
    size_t longer = a_length > b_length ? a_length - b_length : b_length - a_length;
    if (a_length > AOTICACHE_NAME_DISTANCE_LONGEST || b_length > AOTICACHE_NAME_DISTANCE_LONGEST || longer >= limit)
        return SIZE_MAX;
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0], least = i;
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            bool same = fold(a[i - 1], ignore_case) == fold(b[j - 1], ignore_case);
            size_t replaced = diagonal + !same;
            size_t shifted = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = replaced < shifted ? replaced : shifted;
            least = row[j] < least ? row[j] : least;
        }
        if (least >= limit) /* the least value only grows from row to row */
            return SIZE_MAX;
    }
    return row[b_length];
}

/* ---- names of a list ---- */

const char *aoticache_nearest_name(const char *written, const char *const *names, size_t count)
{
    size_t least = strnlen(written, AOTICACHE_NAME_DISTANCE_LONGEST) / 3 + 1;
    const char *nearest = NULL;
    for (size_t i = 0; i < count; i++) {
        size_t found = aoticache_name_distance(written, names[i], least, true);
        if (found < least) {
            least = found;
            nearest = names[i];
        }
    }
    return nearest;
}

#define DTYPE_NAME(upper, lower, number, bytes) #lower,
#define NAME(upper, lower, number) #lower,
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

const char *aoticache_nearest_dtype(const char *written)
{
    static const char *const names[] = {AOTICACHE_DTYPE_LIST(DTYPE_NAME)};
    static const char *const others[][2] = {{"float", "float32"}, {"double", "float64"},   {"half", "float16"},
                                            {"long", "int64"},    {"int", "int32"},        {"short", "int16"},
                                            {"char", "int8"},     {"cfloat", "complex64"}, {"cdouble", "complex128"}};
    for (size_t i = 0; i < COUNT(others); i++)
        if (strcmp(written, others[i][0]) == 0)
            return others[i][1];
    return aoticache_nearest_name(written, names, COUNT(names));
}

const char *aoticache_nearest_argument_word(const char *written)
{
    static const char *const names[] = {"none", "true", "false",
                                        AOTICACHE_LAYOUT_LIST(NAME) AOTICACHE_MEMORY_FORMAT_LIST(NAME)
                                            AOTICACHE_DEVICE_TYPE_LIST(NAME)};
    if (strcmp(written, "gpu") == 0) /* not "cpu" */
        return "cuda";
    const char *dtype = aoticache_nearest_dtype(written);
    return dtype != NULL ? dtype : aoticache_nearest_name(written, names, COUNT(names));
}

void aoticache_write_hint(const char *nearest, char ret_hint[AOTICACHE_HINT_BYTES])
{
    if (nearest != NULL)
        snprintf(ret_hint, AOTICACHE_HINT_BYTES, "; did you mean %s?", nearest);
    else
        ret_hint[0] = '\0';
}

/* ---- operators ---- */

#define PART_BYTES 128

struct parts {
    char space[PART_BYTES], name[PART_BYTES], overload[PART_BYTES];
};

static void copy(char to[PART_BYTES], const char *from, size_t length)
{
    length = length < PART_BYTES ? length : PART_BYTES - 1;
    memcpy(to, from, length);
    to[length] = '\0';
}

/* Splits "namespace::name.overload"; any part may be missing. */
static void divide(const char *op, struct parts *ret_parts)
{
    const char *colons = strstr(op, "::");
    const char *name = colons != NULL ? colons + 2 : op;
    const size_t length = strcspn(name, ".");
    copy(ret_parts->space, op, colons != NULL ? (size_t)(colons - op) : 0);
    copy(ret_parts->name, name, length);
    copy(ret_parts->overload, name + length + (name[length] == '.'), strlen(name + length + (name[length] == '.')));
}

/* Returns whether two neighbouring letters are swapped: the most common typing error. */
static bool is_swapped(const char *a, const char *b)
{
    size_t i = 0;
    while (a[i] != '\0' && a[i] == b[i])
        i++;
    return a[i] != '\0' && a[i + 1] != '\0' && a[i] == b[i + 1] && a[i + 1] == b[i] &&
           strcmp(a + i + 2, b + i + 2) == 0;
}

static size_t name_slips(const char *written, const char *known)
{
    const size_t length = strlen(written), known_length = strlen(known);
    const size_t most = length < 6 ? 1 : length / 3;
    const size_t slips = is_swapped(written, known) ? 1 : aoticache_name_distance(written, known, most + 1, true);
    const bool is_short = length <= 3 && length == known_length && !is_swapped(written, known);
    return slips > most || (is_short && slips > 0) ? AOTICACHE_NOT_NEAR : slips;
}

size_t aoticache_operator_distance(const char *written, const char *known)
{
    struct parts a, b;
    divide(written, &a);
    divide(known, &b);
    const size_t name = name_slips(a.name, b.name);
    size_t space = strcmp(a.space, b.space) == 0 ? 0 : aoticache_name_distance(a.space, b.space, 3, true);
    if (a.space[0] == '\0')
        space = 1;
    if (a.name[0] == '\0' || name == AOTICACHE_NOT_NEAR || (space > 2 && name > 0))
        return AOTICACHE_NOT_NEAR;
    /* An operator of the same name in another namespace is suggested, but after those of this namespace. */
    const size_t distance = name * 4 + (space > 2 ? 3 : space) * 4;
    const size_t overload = aoticache_name_distance(a.overload, b.overload, SIZE_MAX, true);
    return distance + (a.overload[0] == '\0' ? 0 : overload > 3 ? 3 : overload);
}
