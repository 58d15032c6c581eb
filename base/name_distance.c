/*
 * base/name_distance: see name_distance.h.
 */
#include "base/name_distance.h"

#include <stdint.h>
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
        if (least >= limit) /* it only grows from row to row */
            return SIZE_MAX;
    }
    return row[b_length];
}
