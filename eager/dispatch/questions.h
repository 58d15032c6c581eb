/*
 * eager/dispatch/questions: queries of a dispatcher beyond its public header, and registrations by the number of a key.
 *
 * Private. AOTICACHE_API makes a function visible to the tests that call it from Python; the library does not export it
 * (scripts/link/libaoticache.map).
 */
#ifndef AOTICACHE_EAGER_DISPATCH_QUESTIONS_H
#define AOTICACHE_EAGER_DISPATCH_QUESTIONS_H

#include "eager/dispatch/dispatcher.h"

/* Calls the kernel of exactly this key. */
AOTICACHE_API aoticache_status aoticache_operator_call_for_key(const aoticache_operator *op, aoticache_dispatch_key key,
                                                               aoticache_stack *stack, aoticache_error *ret_error);

AOTICACHE_API size_t aoticache_dispatch_mode_count(void);

/* ---- queries: those of torch._C._dispatch_* ---- */

/* Returns whether there is a definition or a kernel of this name; false for a malformed name. */
AOTICACHE_API bool aoticache_dispatcher_has_kernel(aoticache_dispatcher *dispatcher, const char *name);
AOTICACHE_API bool aoticache_dispatcher_has_fallback(aoticache_dispatcher *dispatcher, aoticache_dispatch_key key);

AOTICACHE_API bool aoticache_operator_has_kernel_for_any(const aoticache_operator *op, aoticache_key_set keys);

AOTICACHE_API bool aoticache_operator_is_fallthrough(const aoticache_operator *op, aoticache_dispatch_key key);

/* Finds as aoticache_dispatcher_find() does, and also operators that have kernels but no definition. */
AOTICACHE_API aoticache_status aoticache_dispatcher_find_any(aoticache_dispatcher *dispatcher, const char *name,
                                                             aoticache_operator **ret_operator,
                                                             aoticache_error *ret_error);

/* Prints as PyTorch's _dispatch_dump; the caller frees *ret_text with aoticache_free(). */
AOTICACHE_API aoticache_status aoticache_operator_dump(const aoticache_operator *op, char **ret_text,
                                                       aoticache_error *ret_error);

/* Check invariants. Return: OK; CORRUPT (the fault is named). */
AOTICACHE_API aoticache_status aoticache_operator_check(const aoticache_operator *op, aoticache_error *ret_error);
AOTICACHE_API aoticache_status aoticache_dispatcher_check(aoticache_dispatcher *dispatcher, aoticache_error *ret_error);

/* Lists the dumps of dangling operators, as _dispatch_find_dangling_impls does. */
AOTICACHE_API aoticache_status aoticache_dispatcher_list_dangling_dumps(aoticache_dispatcher *dispatcher,
                                                                        aoticache_operator_name_fn callback, void *user,
                                                                        aoticache_error *ret_error);

/* Lists the operators with a kernel registered for exactly this key; key NULL: all registrations. */
AOTICACHE_API aoticache_status aoticache_dispatcher_list_registrations(aoticache_dispatcher *dispatcher,
                                                                       const char *key,
                                                                       aoticache_operator_name_fn callback, void *user,
                                                                       aoticache_error *ret_error);

/* ---- registering by the number of a key ---- */

/*
 * Register as aoticache_oplib_impl() and aoticache_oplib_fallback() do, for any key that has a number: PyTorch's C++ interface
 * accepts some keys that the functions by name refuse ("AutogradMTIA"). Undefined (0) means "no key", as its name does there.
 * A fallback also accepts Autograd and the like, for all their keys.
 */
AOTICACHE_API aoticache_status aoticache_oplib_impl_for_key(aoticache_oplib *oplib, const char *name,
                                                            aoticache_dispatch_key key,
                                                            const aoticache_boxed_kernel *kernel,
                                                            aoticache_error *ret_error);
AOTICACHE_API aoticache_status aoticache_oplib_fallback_for_key(aoticache_oplib *oplib, aoticache_dispatch_key key,
                                                                const aoticache_boxed_kernel *kernel,
                                                                aoticache_error *ret_error);

/* ---- properties of a handle ---- */

/* Returns "registered at FILE:LINE", as in dumps. Borrowed. */
AOTICACHE_API const char *aoticache_computed_kernel_debug(const aoticache_computed_kernel *kernel);

/* Returns true if the handle has no kernel to call: calls return NOT_FOUND. */
AOTICACHE_API bool aoticache_computed_kernel_is_fallthrough(const aoticache_computed_kernel *kernel);

/*
 * Returns the size in bytes of the structure of this interface with this name: "aoticache_error",
 * "aoticache_tensor_view", "aoticache_value", "aoticache_stack", "aoticache_boxed_kernel", "aoticache_dispatch_mode",
 * "aoticache_call_observer", "aoticache_dispatch_local". Returns 0 for other names. A binding that declares these
 * structures itself compares the sizes.
 */
AOTICACHE_API size_t aoticache_dispatch_struct_size(const char *name);

#endif
