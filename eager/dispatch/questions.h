/*
 * eager/dispatch/questions: queries of a dispatcher beyond its public header, and registrations by the number of a key.
 *
 * Private. AOTICACHE_API makes a function visible to the tests that call it from Python; the library does not export it
 * (scripts/libaoticache.map).
 */
#ifndef AOTICACHE_EAGER_DISPATCH_QUESTIONS_H
#define AOTICACHE_EAGER_DISPATCH_QUESTIONS_H

#include "eager/dispatch/dispatcher.h"

/* Calls the kernel of exactly this key. */
AOTICACHE_API aoticache_status aoticache_operator_call_for_key(const aoticache_operator *op, aoticache_dispatch_key key,
                                                               aoticache_stack *stack, aoticache_error *ret_error);

AOTICACHE_API size_t aoticache_dispatch_mode_count(void);

/* ---- questions: those of torch._C._dispatch_* ---- */

AOTICACHE_API bool aoticache_operator_has_kernel_for_any(const aoticache_operator *op, aoticache_key_set keys);

AOTICACHE_API bool aoticache_operator_has_computed_kernel(const aoticache_operator *op, aoticache_dispatch_key key);

AOTICACHE_API bool aoticache_operator_is_fallthrough(const aoticache_operator *op, aoticache_dispatch_key key);

/* As aoticache_dispatcher_find(), also for what has kernels and no definition. */
AOTICACHE_API aoticache_status aoticache_dispatcher_find_any(aoticache_dispatcher *dispatcher, const char *name,
                                                             aoticache_operator **ret_operator,
                                                             aoticache_error *ret_error);

/* As PyTorch's _dispatch_dump; *ret_text is the caller's, by aoticache_free(). */
AOTICACHE_API aoticache_status aoticache_operator_dump(const aoticache_operator *op, char **ret_text,
                                                       aoticache_error *ret_error);

/* OK, or CORRUPT with what is wrong. */
AOTICACHE_API aoticache_status aoticache_operator_check(const aoticache_operator *op, aoticache_error *ret_error);
AOTICACHE_API aoticache_status aoticache_dispatcher_check(aoticache_dispatcher *dispatcher, aoticache_error *ret_error);

/* The dumps of dangling operators, as _dispatch_find_dangling_impls gives them. */
AOTICACHE_API aoticache_status aoticache_dispatcher_list_dangling_dumps(aoticache_dispatcher *dispatcher,
                                                                        aoticache_operator_name_fn callback, void *user,
                                                                        aoticache_error *ret_error);

/* Names of operators with a kernel registered for exactly this key; key NULL: all registrations. */
AOTICACHE_API aoticache_status aoticache_dispatcher_list_registrations(aoticache_dispatcher *dispatcher,
                                                                       const char *key,
                                                                       aoticache_operator_name_fn callback, void *user,
                                                                       aoticache_error *ret_error);

/*
 * The schema as PyTorch prints it; the caller frees *ret_text with aoticache_free(). For callers that cannot tell how
 * long the definition exists. Returns: OK, NOT_FOUND (not defined), NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_operator_schema_text(const aoticache_operator *op, char **ret_text,
                                                              aoticache_error *ret_error);

/* ---- registering by the number of a key ---- */

/*
 * As aoticache_oplib_impl() and aoticache_oplib_fallback(), for any key that has a number: PyTorch's C++ interface
 * takes some that the one by name refuses ("AutogradMTIA"). Undefined (0) stands for "no key", as its name does there.
 * Autograd and the like are taken by a fallback, too: for all their keys.
 */
AOTICACHE_API aoticache_status aoticache_oplib_impl_for_key(aoticache_oplib *oplib, const char *name,
                                                            aoticache_dispatch_key key,
                                                            const aoticache_boxed_kernel *kernel,
                                                            aoticache_error *ret_error);
AOTICACHE_API aoticache_status aoticache_oplib_fallback_for_key(aoticache_oplib *oplib, aoticache_dispatch_key key,
                                                                const aoticache_boxed_kernel *kernel,
                                                                aoticache_error *ret_error);

/* ---- what a handle is ---- */

/* "registered at FILE:LINE", as dumps show it. Borrowed. */
AOTICACHE_API const char *aoticache_computed_kernel_debug(const aoticache_computed_kernel *kernel);

/* There is nothing to call but a NOT_FOUND. */
AOTICACHE_API bool aoticache_computed_kernel_is_fallthrough(const aoticache_computed_kernel *kernel);

/* What an oplib was made with; "_" for any namespace. Borrowed. */
AOTICACHE_API aoticache_dispatcher *aoticache_oplib_dispatcher(const aoticache_oplib *oplib);
AOTICACHE_API const char *aoticache_oplib_namespace(const aoticache_oplib *oplib);
AOTICACHE_API const char *aoticache_oplib_key_name(const aoticache_oplib *oplib); /* "" for none */

/*
 * Bytes of a structure of this interface, by its name: "aoticache_error", "aoticache_tensor_view", "aoticache_value",
 * "aoticache_stack", "aoticache_boxed_kernel", "aoticache_dispatch_mode", "aoticache_call_observer",
 * "aoticache_dispatch_guard". 0 for others. A binding that declares them itself compares.
 */
AOTICACHE_API size_t aoticache_dispatch_struct_size(const char *name);

#endif
