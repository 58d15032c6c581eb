/*
 * eager/dispatch/dispatcher: operators, their kernels for each dispatch key, and calls. The counterpart of
 * c10::Dispatcher and torch::Library (ATen/core/dispatch/Dispatcher.h, OperatorEntry.h, torch/library.h,
 * torch/csrc/utils/python_dispatch.cpp, PyTorch 2.13), as a C library of its own: it stands on base/ alone.
 *
 * A library of operators ("oplib") holds registrations; freeing it takes them back, and those they had replaced come
 * back.
 *
 * Ownership: what a function is given is copied, unless it says otherwise; a text that it gives is the caller's where it
 * is an output (by aoticache_free()), and borrowed where it is a result.
 *
 * Results: NOT_FOUND has a message here. INVALID is a mistake in what was given alone; EXISTS (there is one already) and
 * MISMATCH (it does not fit what is there) depend on what is registered.
 *
 * Thread safety: all functions from any thread. Calls take no lock, allocate nothing, and never wait for registrations;
 * a kernel may be running when its registration is taken back: what a call may be reading is freed when no call can be
 * reading it, and a kernel's destructor is called then, by the thread that took it back or by the call that ends last,
 * without any lock held. Registrations of one dispatcher are serialised. Handles of operators stay valid as long as the
 * dispatcher. Fork: a child may call, and register where no other thread of the parent was registering.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_EAGER_DISPATCH_DISPATCHER_H
#define AOTICACHE_EAGER_DISPATCH_DISPATCHER_H

#include "eager/dispatch/dispatch_key.h"
#include "eager/schema/schema.h"
#include "eager/value.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aoticache_dispatcher aoticache_dispatcher;
typedef struct aoticache_oplib aoticache_oplib;
typedef struct aoticache_operator aoticache_operator;
typedef struct aoticache_computed_kernel aoticache_computed_kernel;

/* Returns: OK, NO_MEMORY. */
AOTICACHE_API aoticache_status aoticache_dispatcher_create(aoticache_dispatcher **ret_dispatcher,
                                                           aoticache_error *ret_error);
/* All oplibs must be gone and no call under way. NULL is allowed. */
AOTICACHE_API void aoticache_dispatcher_free(aoticache_dispatcher *dispatcher);
/* The process's own, made at the first call, never freed. NULL without memory. */
AOTICACHE_API aoticache_dispatcher *aoticache_dispatcher_get(void);

/* ---- kernels ---- */

/*
 * A boxed kernel: takes its operator's arguments off the stack and puts the results on, or leaves the stack and returns
 * an error. keys: of the call, as redispatching wants them.
 */
typedef aoticache_status (*aoticache_boxed_fn)(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                               aoticache_stack *stack, aoticache_error *ret_error);

/*
 * Copied at the registration: the structure and its texts. user is borrowed: as long as the registration stands and
 * calls of it are under way, which is until release.
 */
typedef struct aoticache_boxed_kernel {
    size_t size;
    aoticache_boxed_fn call; /* NULL: fallthrough: the call goes on to the next key */
    void *user;
    void (*release)(void *user); /* when no call can be using it any longer; may be NULL */
    const char *signature; /* "(Tensor _0) -> Tensor _0": of a typed kernel, compared with the schema; NULL: any */
    const char *debug;     /* for dumps; NULL: "registered at FILE:LINE" of the oplib */
    bool wants_previous;   /* it calls aoticache_operator_call_previous() */
} aoticache_boxed_kernel;

#define AOTICACHE_BOXED_KERNEL_INIT AOTICACHE_SIZED_INIT(aoticache_boxed_kernel)

/* ---- oplibs ---- */

typedef enum aoticache_oplib_kind {
    AOTICACHE_OPLIB_DEF = 0,      /* defines operators of a namespace: one such library for each namespace */
    AOTICACHE_OPLIB_IMPL = 1,     /* only kernels */
    AOTICACHE_OPLIB_FRAGMENT = 2, /* defines operators, any number of libraries */
} aoticache_oplib_kind;

typedef enum aoticache_alias_analysis {
    AOTICACHE_ALIAS_DEFAULT = 0, /* not said: FROM_SCHEMA for what has a signature, CONSERVATIVE else */
    AOTICACHE_ALIAS_CONSERVATIVE = 1,
    AOTICACHE_ALIAS_FROM_SCHEMA = 2,
    AOTICACHE_ALIAS_PURE_FUNCTION = 3,
    AOTICACHE_ALIAS_UNSAID = 4, /* CONSERVATIVE, which dumps mark as "(default)" */
} aoticache_alias_analysis;

/*
 * namespace_name: "aten"; "_" for IMPL of any namespace (fallbacks). key: for impl and fallback that name none; NULL:
 * none.
 * file, line: where the caller stands, for dumps and messages.
 * Copied: all texts. The oplib has to go before the dispatcher.
 * Returns: OK; INVALID (an unknown kind or key); EXISTS (a second DEF of the namespace: both places are named); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_oplib_create(aoticache_dispatcher *dispatcher, aoticache_oplib_kind kind,
                                                      const char *namespace_name, const char *key, const char *file,
                                                      uint32_t line, aoticache_oplib **ret_oplib,
                                                      aoticache_error *ret_error);
/* Takes all its registrations back, the newest first. NULL is allowed. */
AOTICACHE_API void aoticache_oplib_free(aoticache_oplib *oplib);
/* Takes its registrations back, a DEF's namespace with them, and may be used again. */
AOTICACHE_API void aoticache_oplib_reset(aoticache_oplib *oplib);

/*
 * Defines an operator. schema: "add.Tensor(Tensor a, Tensor b) -> Tensor", with or without the namespace; at most 64
 * arguments. Copied. Returns: OK; INVALID (malformed: position and expectation; in an IMPL oplib; another namespace);
 * EXISTS (defined before: both places); MISMATCH (typed kernels that are there do not fit); NO_MEMORY. Nothing is left
 * of what fails.
 */
AOTICACHE_API aoticache_status aoticache_oplib_def(aoticache_oplib *oplib, const char *schema,
                                                   aoticache_alias_analysis alias, aoticache_error *ret_error);
/*
 * With a kernel at once: def_name_t_t and def_schema_t_t of the Python bindings. schema: also a name alone
 * ("add.Tensor"): then the signature is the kernel's, which is a typed one. key NULL: CompositeImplicitAutograd. Both
 * or neither: PyTorch leaves the definition where the kernel does not fit. Returns: as the two.
 */
AOTICACHE_API aoticache_status aoticache_oplib_def_kernel(aoticache_oplib *oplib, const char *schema,
                                                          aoticache_alias_analysis alias, const char *key,
                                                          const aoticache_boxed_kernel *kernel,
                                                          aoticache_error *ret_error);
/*
 * A kernel of an operator, which need not be defined yet. name: as aoticache_dispatcher_find() reads it, with or without
 * the namespace. key: NULL, "" or "Undefined": the oplib's, else
 * CompositeImplicitAutograd. A kernel for the same operator and key replaces the one before until it is taken back.
 * Returns: OK; INVALID (an unknown key, another than the oplib's, another namespace, a malformed name or signature);
 * MISMATCH (a signature that does not fit the definition or the operator's other typed kernels); NO_MEMORY. On failure
 * release is not called.
 */
AOTICACHE_API aoticache_status aoticache_oplib_impl(aoticache_oplib *oplib, const char *name, const char *key,
                                                    const aoticache_boxed_kernel *kernel, aoticache_error *ret_error);
/*
 * For all operators that have no kernel for this key. oplib: of kind IMPL, namespace "_". key: NULL: the oplib's; an
 * alias ("Autograd"): for all keys that it stands for, or none of them where one has a fallback already: PyTorch keeps
 * those before it.
 * Returns: OK; INVALID (an unknown key or none, another oplib); EXISTS (there is one: both places); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_oplib_fallback(aoticache_oplib *oplib, const char *key,
                                                        const aoticache_boxed_kernel *kernel,
                                                        aoticache_error *ret_error);

/* ---- operators and calls ---- */

/*
 * name: "aten::add.Tensor", as PyTorch reads names: blanks and comments may stand between its parts. With ret_error NULL
 * an absent name costs a look into a hash table; the text of the error costs a search through all names for the
 * nearest, without a lock held.
 * Returns: OK; NOT_FOUND (not defined, or only dangling kernels); INVALID (no name: "aten::add.", "x::y::z").
 */
AOTICACHE_API aoticache_status aoticache_dispatcher_find(aoticache_dispatcher *dispatcher, const char *name,
                                                         aoticache_operator **ret_operator, aoticache_error *ret_error);
AOTICACHE_API const char *aoticache_operator_name(const aoticache_operator *op);
/* NULL where it is not defined (any longer). Borrowed: as long as the definition stands. The name: as the dispatcher. */
AOTICACHE_API const aoticache_schema *aoticache_operator_schema(const aoticache_operator *op);

/*
 * The key set of a call: of the tensors among the arguments, with this thread's, without what falls through. A tensor
 * whose view has no dispatch_key_set counts with its device's key. A new thread's calls have keys that only
 * fallthroughs are meant for: aoticache_oplib_fall_through_usual(). 0 where the operator is not defined or arguments
 * are missing.
 */
AOTICACHE_API aoticache_key_set aoticache_operator_key_set(const aoticache_operator *op, const aoticache_stack *stack);
/*
 * The keys that a tensor counts with (torch._C._dispatch_keys): those that its view says, else its device's; of NULL, an
 * undefined tensor, AutogradOther and ADInplaceOrView.
 */
AOTICACHE_API aoticache_key_set aoticache_tensor_view_key_set(const aoticache_tensor_view *tensor);
/*
 * Calls the kernel for the highest key of the arguments. All arguments are on the stack
 * (aoticache_operator_push_arguments() fills in the rest). NONE for a plain Tensor is an undefined tensor, as in
 * PyTorch: it counts with AutogradOther and ADInplaceOrView, and the kernel is given a TENSOR whose view is NULL.
 * Returns: OK; INVALID (too few arguments, a value that the schema does not take: argument and both types); NOT_FOUND
 * (no kernel for the key: the key and what there is are named); what the kernel returned.
 */
AOTICACHE_API aoticache_status aoticache_operator_call(const aoticache_operator *op, aoticache_stack *stack,
                                                       aoticache_error *ret_error);
AOTICACHE_API aoticache_status aoticache_operator_redispatch(const aoticache_operator *op, aoticache_key_set keys,
                                                             aoticache_stack *stack, aoticache_error *ret_error);
/*
 * Puts arguments in the schema's order: `positional` of them are on the stack already; names and values are keyword
 * arguments; the rest are defaults. Values are put on as they are, pointers in them stay the caller's; lists and strings
 * of defaults belong to the definition, as long as it stands. INVALID: an unknown name, one given
 * twice, one missing.
 */
AOTICACHE_API aoticache_status aoticache_operator_push_arguments(const aoticache_operator *op, size_t positional,
                                                                 const char *const *names,
                                                                 const aoticache_value *values, size_t keyword_count,
                                                                 aoticache_stack *stack, aoticache_error *ret_error);

/*
 * Sees calls of this thread where PyTorch's modes do, at the Python key: after the kernels for autograd, functorch and
 * whatever else is above it, before those for BackendSelect and the backends. While a thread has modes, the key sets of
 * its calls have Python, unless it is excluded or falls through for the operator; what kernels above redispatch reaches
 * the modes by it, too, and a kernel that the operator itself has for Python comes before them.
 * A mode may answer (OK), pass on to the next one below, the kernel in the end (UNSUPPORTED: what is below Python is
 * given the key set without it), or fail the call. keys: of the call, with Python. While it runs, keys above Python are
 * excluded: what it calls begins below them.
 */
typedef struct aoticache_dispatch_mode {
    aoticache_boxed_fn call;
    void *user;
} aoticache_dispatch_mode;
/*
 * A stack for each thread, of copies; user is borrowed. A mode is off while it runs, so what it calls goes to the one
 * below. What it pushes and does not pop goes when it returns. INVALID: more than 64.
 */
AOTICACHE_API aoticache_status aoticache_dispatch_mode_push(const aoticache_dispatch_mode *mode,
                                                            aoticache_error *ret_error);
AOTICACHE_API void aoticache_dispatch_mode_pop(void);

/*
 * Before and after every kernel of every thread: for profilers. before's result is given to after. One at a time, a copy;
 * NULL: off. user is borrowed; calls that are under way may still use what is taken off.
 */
typedef struct aoticache_call_observer {
    void *(*before)(void *user, const aoticache_operator *op, aoticache_key_set keys, const aoticache_stack *stack);
    void (*after)(void *user, void *token, const aoticache_operator *op, aoticache_status status);
    void *user;
} aoticache_call_observer;
AOTICACHE_API aoticache_status aoticache_dispatcher_observe(aoticache_dispatcher *dispatcher,
                                                            const aoticache_call_observer *observer,
                                                            aoticache_error *ret_error);

/*
 * Where warnings go; copied, NULL: nowhere, as at the beginning. There is one: a kernel that takes the place of another
 * of the same operator and key, but for Meta, where PyTorch does not warn either (it warns of the first alone in a
 * process). Called by the thread that registers, without a lock held.
 */
AOTICACHE_API void aoticache_dispatcher_set_logger(aoticache_dispatcher *dispatcher, const aoticache_logger *logger);

/* ---- questions: those of torch._C._dispatch_* ---- */

/* Whether there is a definition or a kernel of this name; false for what is no name. */
AOTICACHE_API bool aoticache_dispatcher_has_kernel(aoticache_dispatcher *dispatcher, const char *name);
AOTICACHE_API bool aoticache_operator_has_kernel_for_key(const aoticache_operator *op, aoticache_dispatch_key key);
AOTICACHE_API bool aoticache_dispatcher_has_fallback(aoticache_dispatcher *dispatcher, aoticache_dispatch_key key);

/* As PyTorch's _dispatch_dump_table; *ret_text is the caller's, by aoticache_free(). */
AOTICACHE_API aoticache_status aoticache_operator_dump_table(const aoticache_operator *op, char **ret_text,
                                                             aoticache_error *ret_error);
/*
 * Names, sorted; borrowed for the call, as all that callbacks are given. Return false to stop; may ask and register.
 * dangling: with kernels, without a definition.
 */
typedef bool (*aoticache_operator_name_fn)(void *user, const char *text);
AOTICACHE_API aoticache_status aoticache_dispatcher_list(aoticache_dispatcher *dispatcher, bool dangling,
                                                         aoticache_operator_name_fn callback, void *user,
                                                         aoticache_error *ret_error);

/*
 * Fallthrough fallbacks for the keys that every call of a thread has from the start (BackendSelect, ADInplaceOrView)
 * and for all autograd keys: what a host wants that has kernels for devices alone. oplib: of kind IMPL, namespace "_".
 */
AOTICACHE_API aoticache_status aoticache_oplib_fall_through_usual(aoticache_oplib *oplib, aoticache_error *ret_error);

/* ---- kernels that stand before others ---- */

/*
 * For a kernel with wants_previous, from inside its call: calls what its operator would have for its key, were it and
 * what is newer for that key not there. key, user: what it is registered for and with. Other registrations may come and
 * go meanwhile.
 * Returns: as aoticache_operator_call(), which a fallthrough below it gives NOT_FOUND.
 */
AOTICACHE_API aoticache_status aoticache_operator_call_previous(const aoticache_operator *op,
                                                                aoticache_dispatch_key key, const void *user,
                                                                aoticache_key_set keys, aoticache_stack *stack,
                                                                aoticache_error *ret_error);
/*
 * The kernel that an operator's table has for a runtime key at this moment (torch.library.get_kernel(),
 * _dispatch_get_computed_kernel_for_dispatch_key): for a kernel that is then registered over it and calls it. What is
 * registered later changes nothing; once the kernel itself is taken back, calls of it give NOT_FOUND.
 * ret_kernel: by aoticache_computed_kernel_free(), before the dispatcher goes.
 * Returns: OK; NOT_FOUND (the key has none); INVALID (an alias or no key; ambiguous for AutogradOther); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_operator_get_computed_kernel(const aoticache_operator *op,
                                                                      aoticache_dispatch_key key,
                                                                      aoticache_computed_kernel **ret_kernel,
                                                                      aoticache_error *ret_error);
/* As aoticache_operator_redispatch(): arguments are not checked, the key set is the caller's. */
AOTICACHE_API aoticache_status aoticache_computed_kernel_call(const aoticache_computed_kernel *kernel,
                                                              aoticache_key_set keys, aoticache_stack *stack,
                                                              aoticache_error *ret_error);
/* No call through this handle may be under way. NULL is allowed. */
AOTICACHE_API void aoticache_computed_kernel_free(aoticache_computed_kernel *kernel);

#ifdef __cplusplus
}
#endif
#endif
