/*
 * base/process/optional_library: a library that is opened on first use, so that a process that does not need it does not
 * load it, and everything else works on a machine without it.
 *
 * The caller decides what to report if the library is missing.
 */
#ifndef AOTICACHE_BASE_OPTIONAL_LIBRARY_H
#define AOTICACHE_BASE_OPTIONAL_LIBRARY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define AOTICACHE_OPTIONAL_LIBRARY_PROBLEM_BYTES 256

/* `place` is the address of a function pointer of the right type. */
typedef struct aoticache_library_function {
    const char *name;
    void *place;
} aoticache_library_function;

/*
 * Opens the first of `names` that has all functions, and keeps it for the life of the process. Empty names are skipped.
 * After a failure each call tries again, because descriptors or memory may have been short.
 *
 * is_open:     false at first; set to true after all function pointers are set. Later calls then do nothing.
 * version:     the library and version whose functions are needed, for the message.
 * ret_problem: written if a library lacks functions, otherwise unchanged.
 *
 * Locks:   the fork guard, and one lock for all libraries.
 * Returns: whether all function pointers are set.
 */
bool aoticache_optional_library_open(atomic_bool *is_open, const char *const *names, size_t name_count,
                                     const aoticache_library_function *functions, size_t function_count,
                                     const char *version, char ret_problem[AOTICACHE_OPTIONAL_LIBRARY_PROBLEM_BYTES]);

#endif
