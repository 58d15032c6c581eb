/*
 * eager/dispatch/oplib_state: what the files of oplibs share: the structure, and what definitions and kernels have in
 * common.
 *
 * Private to eager/dispatch/oplib*.c.
 */
#ifndef AOTICACHE_EAGER_DISPATCH_OPLIB_STATE_H
#define AOTICACHE_EAGER_DISPATCH_OPLIB_STATE_H

#include "eager/dispatch/dispatcher_state.h"

/* A definition (no kernel), a kernel of an operator, or a fallback (no operator). */
typedef struct aoticache_op_registration {
    aoticache_operator *op;
    aoticache_op_kernel *kernel;
} aoticache_op_registration;

/* All under the dispatcher's lock, but for what never changes: kind, names, key, debug. */
struct aoticache_oplib {
    aoticache_dispatcher *dispatcher;
    aoticache_oplib_kind kind;
    char *namespace_name; /* NULL: "_" */
    aoticache_dispatch_key key; /* -1: none */
    char *debug;
    bool holds_namespace;
    aoticache_op_registration *registrations;
    size_t count, capacity;
};

/* "DEF", ... */
extern const char *const aoticache_oplib_kind_names[3];

/* ---- oplib.c ---- */

/*
 * Undefined stands for "no key" wherever one is registered for, as in PyTorch. text: NULL and "": none. ret_key: -1:
 * none.
 */
aoticache_status aoticache_oplib_parse_key(const char *text, aoticache_dispatch_key *ret_key,
                                           aoticache_error *ret_error);
/* With the lock. Room for `more` registrations, so that nothing fails after the first. Returns: OK, NO_MEMORY. */
aoticache_status aoticache_oplib_reserve(aoticache_oplib *oplib, size_t more, aoticache_error *ret_error);
/* With the lock and room for it. */
void aoticache_oplib_record(aoticache_oplib *oplib, aoticache_operator *op, aoticache_op_kernel *kernel);

/* ---- oplib_kernels.c ---- */

/* Whether a parsed name is of the oplib's namespace. Returns: OK, INVALID. */
aoticache_status aoticache_oplib_check_namespace(const aoticache_oplib *oplib, const char *full_name,
                                                 aoticache_error *ret_error);
/* The key that a kernel is registered for: `given` (-1: none), else the oplib's, else the one of all. */
aoticache_status aoticache_oplib_choose_key(const aoticache_oplib *oplib, const char *name,
                                            aoticache_dispatch_key given,
                                            aoticache_dispatch_key *ret_key, aoticache_error *ret_error);
/* Returns: OK, INVALID (the struct, the signature), NO_MEMORY. */
aoticache_status aoticache_oplib_make_kernel(const aoticache_oplib *oplib, const aoticache_boxed_kernel *kernel,
                                             aoticache_dispatch_key key, aoticache_op_kernel **ret_kernel,
                                             aoticache_error *ret_error);

#endif
