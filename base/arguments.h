/*
 * base/arguments: the error of a public function that was given NULL for an argument that must not be NULL. Every such error
 * has the same form and names the function and the argument: "aoticache_holder_create: context is NULL".
 */
#ifndef AOTICACHE_BASE_ARGUMENTS_H
#define AOTICACHE_BASE_ARGUMENTS_H

#include "base/base.h"

/*
 * Sets the error for the first missing argument and returns INVALID.
 *
 * function: the name of the public function.
 * names:    for example "cache, request, ret_artifact". If a name has an arrow ("options->cache"), the message names the
 *           part after it.
 * there:    for each name, whether the argument was given.
 */
aoticache_status aoticache_arguments_refuse_null(aoticache_error *ret_error, const char *function, const char *names,
                                                 const bool *there, size_t count);

/* Does the same for pointers, which are named as in the code; at least one of them is NULL. Arguments that may be NULL come
 * last. */
#define AOTICACHE_REFUSE_NULL_OF(function, ret_error, ...)                                              \
    aoticache_arguments_refuse_null((ret_error), (function), #__VA_ARGS__, (const bool[]){__VA_ARGS__}, \
                                    sizeof((const bool[]){__VA_ARGS__}))
/* For use in the public function itself. */
#define AOTICACHE_REFUSE_NULL(ret_error, ...) AOTICACHE_REFUSE_NULL_OF(__func__, ret_error, __VA_ARGS__)

#endif
