/*
 * base/name_distance: how far apart two names are, for "did you mean".
 *
 * Private to the library.
 */
#ifndef AOTICACHE_BASE_NAME_DISTANCE_H
#define AOTICACHE_BASE_NAME_DISTANCE_H

#include <stdbool.h>
#include <stddef.h>

/* Names of this length or less are compared; longer ones are near nothing. */
#define AOTICACHE_NAME_DISTANCE_LONGEST 255

/*
 * Insertions, deletions and replacements that make one of the other (Levenshtein); SIZE_MAX where a name is too long, or
 * where it turns out to be `limit` or more before the end. ignore_case: of ASCII letters.
 */
size_t aoticache_name_distance(const char *a, const char *b, size_t limit, bool ignore_case);

#endif
