/*
 * base/text/name_distance: computes how similar two names are, for "did you mean".
 *
 * Private to the library and its tools.
 */
#ifndef AOTICACHE_BASE_NAME_DISTANCE_H
#define AOTICACHE_BASE_NAME_DISTANCE_H

#include "base/base.h"

/* Names up to this length are compared; a longer name is not near any other. */
#define AOTICACHE_NAME_DISTANCE_LONGEST 255

/*
 * Returns the number of insertions, deletions and replacements that change one name into the other (Levenshtein distance);
 * SIZE_MAX if a name is too long, or if the distance is at least `limit`, in which case the computation may stop early.
 * ignore_case: of ASCII letters.
 */
size_t aoticache_name_distance(const char *a, const char *b, size_t limit, bool ignore_case);

/* Returns that of `count` names which is nearest to what a user wrote, ignoring case; NULL if none is near. */
const char *aoticache_nearest_name(const char *written, const char *const *names, size_t count);

/*
 * Does the same among the names of dtypes; for PyTorch's other names ("float", "long") it returns the dtype that they stand
 * for. The second function searches all words that can be an argument of a request: layouts, memory formats and devices,
 * too.
 */
const char *aoticache_nearest_dtype(const char *written);
const char *aoticache_nearest_argument_word(const char *written);

/* Writes "; did you mean NAME?", or "" if `name` is NULL because none is near. */
#define AOTICACHE_HINT_BYTES 320
void aoticache_write_hint(const char *nearest, char ret_hint[AOTICACHE_HINT_BYTES]);

#define AOTICACHE_NOT_NEAR SIZE_MAX

/*
 * Returns how near a known operator is to what a user wrote: "aten::ad" may stand for "aten::add.Tensor", and
 * "aten::add.tensor", too. "aten::sub" does not stand for "aten::sum": in such a short name another letter means another
 * operator. Smaller is nearer, and 0 means equal except for the overload. AOTICACHE_NOT_NEAR: it cannot stand for it.
 */
size_t aoticache_operator_distance(const char *written, const char *known);

#endif
