/*
 * base/text/name_distance: how far apart two names are, for "did you mean".
 *
 * Private to the library and its tools.
 */
#ifndef AOTICACHE_BASE_NAME_DISTANCE_H
#define AOTICACHE_BASE_NAME_DISTANCE_H

#include "base/base.h"

/* Names of this length or less are compared; longer ones are near nothing. */
#define AOTICACHE_NAME_DISTANCE_LONGEST 255

/*
 * Insertions, deletions and replacements that make one of the other (Levenshtein); SIZE_MAX if a name is too long, or
 * where it turns out to be `limit` or more before the end. ignore_case: of ASCII letters.
 */
size_t aoticache_name_distance(const char *a, const char *b, size_t limit, bool ignore_case);

/* Returns the nearest of `count` names to what somebody wrote, upper and lower case alike; NULL if none is near. */
const char *aoticache_nearest_name(const char *written, const char *const *names, size_t count);

/*
 * The same among the names of dtypes; for PyTorch's other names ("float", "long") it returns the dtype that they stand for.
 * The second looks among all words that can be an argument of a request: layouts, memory formats and devices, too.
 */
const char *aoticache_nearest_dtype(const char *written);
const char *aoticache_nearest_argument_word(const char *written);

/* Writes "; did you mean NAME?", or "" if nothing is near, which NULL says. */
#define AOTICACHE_HINT_BYTES 320
void aoticache_write_hint(const char *nearest, char ret_hint[AOTICACHE_HINT_BYTES]);

#define AOTICACHE_NOT_NEAR SIZE_MAX

/*
 * How near an operator that there is lies to what somebody wrote: "aten::ad" may stand for "aten::add.Tensor", and
 * "aten::add.tensor", too, but "aten::sub" does not stand for "aten::sum": in so short a name another letter is another
 * operator. The smaller the nearer, 0 for the same but for the overload; AOTICACHE_NOT_NEAR: it may not stand for it.
 */
size_t aoticache_operator_distance(const char *written, const char *known);

#endif
