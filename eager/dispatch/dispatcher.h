/*
 * eager/dispatch/dispatcher: operators, their kernels for each dispatch key, and calls. The counterpart of
 * c10::Dispatcher and torch::Library (ATen/core/dispatch/Dispatcher.h, OperatorEntry.h, torch/library.h,
 * torch/csrc/utils/python_dispatch.cpp, PyTorch 2.13), as a separate C library that depends on base/ alone.
 *
 * A library of operators ("oplib") holds registrations. Freeing it removes them, and restores the registrations that they
 * had replaced.
 *
 * Ownership: arguments are copied, unless stated otherwise. The caller frees a text that it gets through an output argument
 * with aoticache_free(); a text that is a function's result is borrowed.
 *
 * Results: NOT_FOUND has a message here. INVALID is an error in the arguments alone; EXISTS (there is one already) and
 * MISMATCH (it does not fit existing registrations) depend on what is registered.
 *
 * Thread safety: all functions from any thread. Calls take no lock, allocate nothing, and never wait for registrations. A
 * kernel may be running while its registration is removed: memory that a call may be reading is freed when no call can be
 * reading it any more. The kernel's destructor is called then, without any lock held, by the thread that removed the kernel
 * or by the call that ends last. Registrations of one dispatcher are serialised. Handles of operators stay valid as long as
 * the dispatcher. Fork: a child may call; it may register if no other thread of the parent was registering.
 *
 * Users include <aoticache/dispatch.h>.
 */
#ifndef AOTICACHE_EAGER_DISPATCH_DISPATCHER_H
#define AOTICACHE_EAGER_DISPATCH_DISPATCHER_H

#include "eager/dispatch/dispatch_key.h"
#include "eager/dispatch/schema/schema.h"
#include "eager/value.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aoticache_dispatcher aoticache_dispatcher;
typedef struct aoticache_oplib aoticache_oplib;
typedef struct aoticache_operator aoticache_operator;
typedef struct aoticache_computed_kernel aoticache_computed_kernel;

/* Creates an empty dispatcher. Returns: OK, NO_MEMORY. */
AOTICACHE_API aoticache_status aoticache_dispatcher_create(aoticache_dispatcher **ret_dispatcher,
                                                           aoticache_error *ret_error);
/* Frees a dispatcher. All its oplibs must have been freed, and no call may be running. NULL is allowed. */
AOTICACHE_API void aoticache_dispatcher_free(aoticache_dispatcher *dispatcher);
/* Returns the dispatcher of the process, which the first call creates and which is never freed. NULL without memory. */
AOTICACHE_API aoticache_dispatcher *aoticache_dispatcher_get(void);

/* ---- kernels ---- */

/*
 * A boxed kernel: takes its operator's arguments off the stack and pushes the results, or leaves the stack unchanged and
 * returns an error. keys: the key set of the call, for redispatching.
 */
typedef aoticache_status (*aoticache_boxed_fn)(void *user, const aoticache_operator *op, aoticache_key_set keys,
                                               aoticache_stack *stack, aoticache_error *ret_error);

/*
 * The registration copies the structure and its texts. user is borrowed as long as the registration exists or a call of
 * it is running, which is until release is called.
 */
typedef struct aoticache_boxed_kernel {
    size_t size;
    aoticache_boxed_fn call; /* NULL: a fallthrough: the call continues with the next key */
    void *user;
    void (*release)(void *user); /* when no call can be using it any longer; may be NULL */
    const char *signature; /* "(Tensor _0) -> Tensor _0": of a typed kernel, compared with the schema; NULL: untyped */
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
    AOTICACHE_ALIAS_DEFAULT = 0, /* not specified: FROM_SCHEMA with a signature, otherwise CONSERVATIVE */
    AOTICACHE_ALIAS_CONSERVATIVE = 1,
    AOTICACHE_ALIAS_FROM_SCHEMA = 2,
    AOTICACHE_ALIAS_PURE_FUNCTION = 3,
    AOTICACHE_ALIAS_UNSAID = 4, /* CONSERVATIVE; dumps mark it as "(default)" */
} aoticache_alias_analysis;

/*
 * Creates an oplib.
 * namespace_name: "aten"; "_" for an IMPL of any namespace (fallbacks). key: used by impl and fallback calls that name none;
 * NULL: none.
 * file, line: source position of the caller, for dumps and messages.
 * All texts are copied. Free the oplib before the dispatcher.
 * Returns: OK; INVALID (an unknown kind or key); EXISTS (a second DEF of the namespace: both positions are named); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_oplib_create(aoticache_dispatcher *dispatcher, aoticache_oplib_kind kind,
                                                      const char *namespace_name, const char *key, const char *file,
                                                      uint32_t line, aoticache_oplib **ret_oplib,
                                                      aoticache_error *ret_error);
/* Removes all its registrations, the newest first, and frees it and the namespace of a DEF. NULL is allowed. */
AOTICACHE_API void aoticache_oplib_free(aoticache_oplib *oplib);

/*
 * Defines an operator. schema: "add.Tensor(Tensor a, Tensor b) -> Tensor", with or without the namespace; at most 64
 * arguments; copied. Returns: OK; INVALID (malformed: position and expectation; in an IMPL oplib; another namespace);
 * EXISTS (defined already: both positions); MISMATCH (existing typed kernels do not fit); NO_MEMORY. A failed call changes
 * nothing.
 */
AOTICACHE_API aoticache_status aoticache_oplib_def(aoticache_oplib *oplib, const char *schema,
                                                   aoticache_alias_analysis alias, aoticache_error *ret_error);
/*
 * Defines an operator together with a kernel: def_name_t_t and def_schema_t_t of the Python bindings. schema: may also be
 * just a name ("add.Tensor"): then the signature is that of the kernel, which must be typed. key NULL:
 * CompositeImplicitAutograd. Either both are registered or neither (PyTorch keeps the definition if the kernel does not fit).
 * Returns: as aoticache_oplib_def() and aoticache_oplib_impl().
 */
AOTICACHE_API aoticache_status aoticache_oplib_def_kernel(aoticache_oplib *oplib, const char *schema,
                                                          aoticache_alias_analysis alias, const char *key,
                                                          const aoticache_boxed_kernel *kernel,
                                                          aoticache_error *ret_error);
/*
 * Registers a kernel of an operator, which need not be defined yet. name: as aoticache_dispatcher_find() reads it, with or
 * without the namespace. key: NULL, "" or "Undefined": the oplib's key, otherwise CompositeImplicitAutograd. A kernel for the
 * same operator and key replaces the previous one until it is removed.
 * Returns: OK; INVALID (an unknown key, a key that differs from the oplib's, another namespace, a malformed name or signature);
 * MISMATCH (a signature that does not fit the definition or the operator's other typed kernels); NO_MEMORY. On failure
 * release is not called.
 */
AOTICACHE_API aoticache_status aoticache_oplib_impl(aoticache_oplib *oplib, const char *name, const char *key,
                                                    const aoticache_boxed_kernel *kernel, aoticache_error *ret_error);
/*
 * Registers a kernel for all operators that have none for this key. oplib: of kind IMPL, namespace "_". key: NULL: the
 * oplib's key; an alias ("Autograd"): all keys that it stands for. If one of these has a fallback already, none is registered
 * (PyTorch keeps the fallbacks that it registered before the conflict).
 * Returns: OK; INVALID (an unknown key or none, another oplib); EXISTS (there is one: both positions); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_oplib_fallback(aoticache_oplib *oplib, const char *key,
                                                        const aoticache_boxed_kernel *kernel,
                                                        aoticache_error *ret_error);

/* ---- operators and calls ---- */

/*
 * Finds an operator. name: "aten::add.Tensor", as PyTorch reads names: blanks and comments may separate its parts. With
 * ret_error NULL an absent name costs one hash table lookup. Otherwise the error text costs a search through all names for
 * the nearest one, without a lock held.
 * Returns: OK; NOT_FOUND (not defined, or only dangling kernels); INVALID (not a name: "aten::add.", "x::y::z").
 */
AOTICACHE_API aoticache_status aoticache_dispatcher_find(aoticache_dispatcher *dispatcher, const char *name,
                                                         aoticache_operator **ret_operator, aoticache_error *ret_error);
/* Returns the full name. Borrowed: valid as long as the dispatcher. */
AOTICACHE_API const char *aoticache_operator_name(const aoticache_operator *op);
/* Returns NULL if it is not defined (any longer). Borrowed: valid as long as the definition exists. */
AOTICACHE_API const aoticache_schema *aoticache_operator_schema(const aoticache_operator *op);

/*
 * Returns the key set of a call: the keys of the tensors among the arguments and of this thread, without keys that fall
 * through. A tensor whose view has no dispatch_key_set counts with its device's key. The calls of a new thread have keys that
 * are meant for fallthroughs only: see aoticache_oplib_fall_through_usual(). Returns 0 if the operator is not defined or
 * arguments are missing.
 */
AOTICACHE_API aoticache_key_set aoticache_operator_key_set(const aoticache_operator *op, const aoticache_stack *stack);
/* Returns the key of a type of device; Undefined for a type that has no tensors here. */
static inline aoticache_dispatch_key aoticache_dispatch_key_of_device_type(int32_t type)
{
    switch (type) {
    case AOTICACHE_DEVICE_TYPE_CPU:
        return AOTICACHE_DISPATCH_KEY_CPU;
    case AOTICACHE_DEVICE_TYPE_CUDA:
        return AOTICACHE_DISPATCH_KEY_CUDA;
    case AOTICACHE_DEVICE_TYPE_XPU:
        return AOTICACHE_DISPATCH_KEY_XPU;
    case AOTICACHE_DEVICE_TYPE_MPS:
        return AOTICACHE_DISPATCH_KEY_MPS;
    case AOTICACHE_DEVICE_TYPE_META:
        return AOTICACHE_DISPATCH_KEY_Meta;
    case AOTICACHE_DEVICE_TYPE_PRIVATEUSE1:
        return AOTICACHE_DISPATCH_KEY_PrivateUse1;
    default:
        return AOTICACHE_DISPATCH_KEY_Undefined;
    }
}

/*
 * Returns the keys of a tensor (torch._C._dispatch_keys): those in its view, otherwise its device's key. NULL, an undefined
 * tensor: AutogradOther and ADInplaceOrView.
 */
static inline aoticache_key_set aoticache_tensor_view_key_set(const aoticache_tensor_view *tensor)
{
    if (tensor == NULL)
        return aoticache_key_set_of_tensor(AOTICACHE_DISPATCH_KEY_Undefined, false);
    if (tensor->dispatch_key_set != 0)
        return tensor->dispatch_key_set;
    return aoticache_key_set_of(aoticache_dispatch_key_of_device_type(tensor->device.type));
}

/*
 * Calls the kernel for the highest key of the arguments. All arguments must be on the stack
 * (aoticache_operator_push_arguments() fills in the rest). NONE for a plain Tensor is an undefined tensor, as in PyTorch: it
 * has the keys AutogradOther and ADInplaceOrView, and the kernel gets a TENSOR whose view is NULL.
 * Returns: OK; INVALID (too few arguments, a value that the schema does not accept: argument and both types); NOT_FOUND
 * (no kernel for the key: the key and the existing kernels are named); what the kernel returned.
 */
AOTICACHE_API aoticache_status aoticache_operator_call(const aoticache_operator *op, aoticache_stack *stack,
                                                       aoticache_error *ret_error);
AOTICACHE_API aoticache_status aoticache_operator_redispatch(const aoticache_operator *op, aoticache_key_set keys,
                                                             aoticache_stack *stack, aoticache_error *ret_error);
/*
 * Puts arguments in the schema's order: `positional` of them are on the stack already; names and values are keyword
 * arguments; the rest are defaults. Values are pushed unchanged; the caller still owns their pointers. Lists and strings of
 * defaults belong to the definition and are valid as long as it exists. Returns: OK; INVALID (a name that is unknown or given
 * twice, an argument that is missing).
 */
AOTICACHE_API aoticache_status aoticache_operator_push_arguments(const aoticache_operator *op, size_t positional,
                                                                 const char *const *names,
                                                                 const aoticache_value *values, size_t keyword_count,
                                                                 aoticache_stack *stack, aoticache_error *ret_error);

/*
 * Intercepts calls of this thread at the Python key, as PyTorch's modes do: after the kernels for autograd, functorch and the
 * other keys above Python, before those for BackendSelect and the backends. While a thread has modes, the key sets of its
 * calls include Python, unless it is excluded or falls through for the operator. Calls that kernels above redispatch reach
 * the modes by that key too. A kernel that the operator itself has for Python runs before the modes.
 * A mode may answer (OK), forward the call to the next mode below and finally to the kernel (UNSUPPORTED: what is below Python
 * gets the key set without it), or fail the call. keys: of the call, with Python. While a mode runs, keys above Python are
 * excluded, so its own calls begin below them.
 */
typedef struct aoticache_dispatch_mode {
    aoticache_boxed_fn call;
    void *user;
} aoticache_dispatch_mode;
/*
 * Pushes a copy of a mode onto this thread's stack of modes; user is borrowed. A mode is off while it runs, so its own calls
 * go to the mode below. Modes that it pushes and does not pop are removed when it returns. INVALID: more than 64.
 */
AOTICACHE_API aoticache_status aoticache_dispatch_mode_push(const aoticache_dispatch_mode *mode,
                                                            aoticache_error *ret_error);
AOTICACHE_API void aoticache_dispatch_mode_pop(void);

/*
 * Called before and after every kernel of every thread: for profilers. The result of before is passed to after. There is one
 * observer at a time, a copy; NULL: off. user is borrowed; running calls may still use an observer that was removed.
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
 * Sets the receiver of warnings; copied. NULL: none, which is the default. There is one warning: a kernel replaces another
 * one of the same operator and key. Kernels for Meta are excepted, as in PyTorch (which warns only of the first one in a
 * process). Called by the thread that registers, without a lock held.
 */
AOTICACHE_API void aoticache_dispatcher_set_logger(aoticache_dispatcher *dispatcher, const aoticache_logger *logger);

/* ---- queries: those of torch._C._dispatch_* ---- */

/* Returns whether the operator itself has a kernel for exactly this key, which may be an alias. */
AOTICACHE_API bool aoticache_operator_has_kernel_for_key(const aoticache_operator *op, aoticache_dispatch_key key);

/* Prints the table as PyTorch's _dispatch_dump_table; the caller frees *ret_text with aoticache_free(). */
AOTICACHE_API aoticache_status aoticache_operator_dump_table(const aoticache_operator *op, char **ret_text,
                                                             aoticache_error *ret_error);
/*
 * Lists names, sorted. A callback borrows its text for the call. It may return false to stop, and may query and register.
 * dangling: list names that have kernels but no definition.
 */
typedef bool (*aoticache_operator_name_fn)(void *user, const char *text);
AOTICACHE_API aoticache_status aoticache_dispatcher_list(aoticache_dispatcher *dispatcher, bool dangling,
                                                         aoticache_operator_name_fn callback, void *user,
                                                         aoticache_error *ret_error);

/*
 * Registers fallthrough fallbacks for the keys that every call of a new thread has (BackendSelect, ADInplaceOrView) and for
 * all autograd keys: for hosts that have kernels only for devices. oplib: of kind IMPL, namespace "_".
 */
AOTICACHE_API aoticache_status aoticache_oplib_fall_through_usual(aoticache_oplib *oplib, aoticache_error *ret_error);

/* ---- kernels that replace others and call them ---- */

/*
 * For a kernel with wants_previous, from inside its call: calls the kernel that its operator would have for its key without
 * this kernel and newer ones for that key. key, user: those of its registration. Other registrations may be added and removed
 * meanwhile.
 * Returns: as aoticache_operator_call(); NOT_FOUND if the previous kernel is a fallthrough.
 */
AOTICACHE_API aoticache_status aoticache_operator_call_previous(const aoticache_operator *op,
                                                                aoticache_dispatch_key key, const void *user,
                                                                aoticache_key_set keys, aoticache_stack *stack,
                                                                aoticache_error *ret_error);
/*
 * Gets the kernel that an operator's table now has for a runtime key (torch.library.get_kernel(),
 * _dispatch_get_computed_kernel_for_dispatch_key), so that a kernel that is then registered over it can call it. Later
 * registrations do not change it; after the kernel itself is removed, calls of it return NOT_FOUND.
 * ret_kernel: the caller frees it with aoticache_computed_kernel_free(), before the dispatcher.
 * Returns: OK; NOT_FOUND (the key has none); INVALID (an alias, not a key, or ambiguous for AutogradOther); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_operator_get_computed_kernel(const aoticache_operator *op,
                                                                      aoticache_dispatch_key key,
                                                                      aoticache_computed_kernel **ret_kernel,
                                                                      aoticache_error *ret_error);
/* Calls as aoticache_operator_redispatch() does: arguments are not checked, and the caller gives the key set. */
AOTICACHE_API aoticache_status aoticache_computed_kernel_call(const aoticache_computed_kernel *kernel,
                                                              aoticache_key_set keys, aoticache_stack *stack,
                                                              aoticache_error *ret_error);
/* Frees the handle. No call through it may be running. NULL is allowed. */
AOTICACHE_API void aoticache_computed_kernel_free(aoticache_computed_kernel *kernel);

#ifdef __cplusplus
}
#endif
#endif
