/*
 * base/options: reads the structs that begin with their own size, by the rule that base.h states for all of them.
 *
 * Every entry point that takes such a struct reads it with these functions before it uses any member, and then uses only the
 * copy. tests/unit/base/test_options.c names all of these structs and entry points; tests/cli/building/test_options.sh
 * checks that none is missing.
 */
#ifndef AOTICACHE_BASE_OPTIONS_H
#define AOTICACHE_BASE_OPTIONS_H

#include "base/base.h"

/* No initializer sets a larger size. */
#define AOTICACHE_OPTIONS_MAX_BYTES 4096

/*
 * Copies `given` over the defaults in `*ret_options`, a struct of `size` bytes. The size member of the copy is `size`.
 * given: NULL gives the defaults. type, initializer: their names, for the message.
 * Returns: OK; INVALID (both sizes are named, *ret_options is unchanged).
 */
aoticache_status aoticache_options_read(const void *given, size_t size, const char *type, const char *initializer,
                                        void *ret_options, aoticache_error *ret_error);

/* Does the same with arguments made from the type and its initializer: ret_options need not be filled in. */
#define AOTICACHE_OPTIONS_READ(type, initializer, given, ret_options, ret_error) \
    (*(type *){ret_options} = (type)initializer,                                 \
     aoticache_options_read((const type *){given}, sizeof(type), #type, #initializer, (ret_options), (ret_error)))

#endif
