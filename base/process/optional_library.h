/*
 * base/process/optional_library: a library that is opened on first use, so that a process that does not need it does not load it, and a
 * machine without it has everything else.
 *
 * Leaves to the caller what it says where the library is missing.
 */
#ifndef AOTICACHE_BASE_OPTIONAL_LIBRARY_H
#define AOTICACHE_BASE_OPTIONAL_LIBRARY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define AOTICACHE_OPTIONAL_LIBRARY_PROBLEM_BYTES 256

/* `place` is the address of a pointer to a function of the right type. */
typedef struct aoticache_library_function {
    const char *name;
    void *place;
} aoticache_library_function;

/*
 * Opens the first of `names` that has all functions, and keeps it for the life of the process. Empty names are skipped.
 * It is tried again at each call until it is there: descriptors or memory may have been short.
 *
 * is_open:     false at first; true from when all places are set, and then nothing more is done.
 * version:     the library and version whose functions are needed, for the message.
 * ret_problem: written where a library lacks functions, otherwise left as it is.
 *
 * Locks:   the load gate, which keeps forks out, and one lock for all libraries.
 * Returns: whether all places are set.
 */
bool aoticache_optional_library_open(atomic_bool *is_open, const char *const *names, size_t name_count,
                                     const aoticache_library_function *functions, size_t function_count,
                                     const char *version, char ret_problem[AOTICACHE_OPTIONAL_LIBRARY_PROBLEM_BYTES]);

#endif
