/*
 * base/options: reads the structs that begin with their own size, by the rule that base.h states for all of them.
 *
 * Every entry point that takes such a struct reads it here before it looks at any member, and then uses the copy alone.
 * tests/unit/test_options.c names all of these structs and entry points; tests/cli/test_options.sh checks that none is missing.
 */
#ifndef AOTICACHE_BASE_OPTIONS_H
#define AOTICACHE_BASE_OPTIONS_H

#include "base/base.h"

/* A larger size was set by no initializer. */
#define AOTICACHE_OPTIONS_MAX_BYTES 4096

/*
 * Copies `given` over the defaults that `*ret_options` holds, whose size is `size`; the copy's own size is `size`.
 * given: NULL gives the defaults. type, initializer: their names, for the message.
 * Returns: OK; INVALID (both sizes are named, *ret_options is unchanged).
 */
aoticache_status aoticache_options_read(const void *given, size_t size, const char *type, const char *initializer,
                                        void *ret_options, aoticache_error *ret_error);

/* The same with its arguments made from the type and its initializer: ret_options need not be filled in. */
#define AOTICACHE_OPTIONS_READ(type, initializer, given, ret_options, ret_error) \
    (*(type *){ret_options} = (type)initializer,                                 \
     aoticache_options_read((const type *){given}, sizeof(type), #type, #initializer, (ret_options), (ret_error)))

#endif
