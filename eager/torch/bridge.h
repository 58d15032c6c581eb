/*
 * eager/torch/bridge: the interface between the core of the binding and the bridge (eager/torch/bridge.cpp). The bridge is
 * compiled on the user's machine against the headers of its PyTorch, cached as an entry, and opened by the core
 * (aoticache_binding_options.bridge). It links none of our libraries: all functions that it calls are in the struct that it gets.
 *
 * The bridge registers a kernel for an operator and a dispatch key, and keeps PyTorch's own kernel for them. A call:
 * 1. The bridge turns the arguments on PyTorch's stack, which are all arguments of the schema in order, into values, on its own
 *    stack and without copies: a tensor's view points at the sizes and strides inside of PyTorch's tensor; its handle is the
 *    at::Tensor* of the argument itself, borrowed.
 * 2. It calls host->attempt() and acts on the result:
 *    SERVED: it takes its arguments off PyTorch's stack and moves the results there.
 *    FALLBACK: it calls PyTorch's kernel with the original arguments and the original key set.
 *    FAILED: it throws error.message (as TORCH_CHECK does), and drops the arguments.
 *    FALLBACK_FIRST: the kernel would have to be compiled. It calls PyTorch's kernel first. If that throws, the call throws
 *    (host->refuse() counts it, and nothing is compiled for calls that PyTorch refuses). Otherwise it calls host->call(); if
 *    that returns FALLBACK, the call returns PyTorch's results.
 *    For an operator that writes to its arguments, SERVED means that the arguments have been written to, and that the stack has
 *    the results that are not arguments. After FALLBACK_FIRST the bridge then calls host->prepare() instead of host->call(),
 *    with the arguments as PyTorch's kernel left them: it may have resized some, and they must not be written to twice.
 * 3. Calls that no compiled kernel can serve go to PyTorch's kernel without host->attempt(); host->refuse() counts them. These
 *    are calls with a tensor that is undefined although the schema says Tensor, not strided, without storage, lazily conjugated
 *    or negated (is_conj(), is_neg()), a zero tensor (_is_zerotensor()), with symbolic sizes, of a dtype that is not in base.h,
 *    or with the Python key (a subclass that got below its own dispatch); and calls with values for which eager/value.h has no
 *    kind: symbolic numbers, Scalars above INT64_MAX, lists of more than 8 KiB.
 *
 * In the views of such calls requires_grad is false and dispatch_key_set is 0: autograd and the other keys have been handled
 * above the kernel. This also lets one entry of the cache serve the bridge and `aoticache warm`. A Scalar is INT, DOUBLE, BOOL
 * or COMPLEX, depending on its value; SymInt is INT; an absent optional argument is NONE.
 *
 * Exceptions never leave a function of this interface, in either direction. Thread safety: all functions from any thread.
 *
 * Users include <aoticache/torch.h>.
 */
#ifndef AOTICACHE_EAGER_TORCH_BRIDGE_H
#define AOTICACHE_EAGER_TORCH_BRIDGE_H

#include "base/base.h"
#include "eager/value.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Increased with every change here, in value.h or in tensor_view.h that breaks a bridge compiled earlier. */
#define AOTICACHE_BRIDGE_ABI 5u

typedef enum aoticache_bridge_result {
    AOTICACHE_BRIDGE_SERVED = 0,         /* results on the stack: OUTPUT or OUTPUT_LIST, owned by the bridge */
    AOTICACHE_BRIDGE_FALLBACK = 1,       /* PyTorch's kernel must answer; the stack is unchanged */
    AOTICACHE_BRIDGE_FAILED = 2,         /* an exception with error's message; the stack is unchanged */
    AOTICACHE_BRIDGE_FALLBACK_FIRST = 3, /* attempt(): PyTorch's kernel answers first; the stack is unchanged */
} aoticache_bridge_result;

/* How the bridge handles an operator's calls. */
typedef enum aoticache_call_mode {
    AOTICACHE_BRIDGE_SERVE = 0, /* host->attempt() */
    AOTICACHE_BRIDGE_TIME = 1,  /* host->turn() chooses the kernel, and whether the call is timed */
    AOTICACHE_BRIDGE_PASS = 2,  /* PyTorch's kernel, without asking the host */
} aoticache_call_mode;

/* Which kernel runs in a call of an operator with kernels on trial. */
typedef enum aoticache_bridge_turn {
    AOTICACHE_BRIDGE_NO_TURN = 0,        /* host->attempt(), untimed */
    AOTICACHE_BRIDGE_KERNELS_TURN = 1,   /* host->attempt() */
    AOTICACHE_BRIDGE_FALLBACKS_TURN = 2, /* PyTorch's kernel */
} aoticache_bridge_turn;

/* Settings of the process that change an operator's results and differ from PyTorch's defaults. */
typedef enum aoticache_bridge_setting {
    AOTICACHE_BRIDGE_DEFAULT_DTYPE = 1, /* set_default_dtype() of another dtype than float32 */
    AOTICACHE_BRIDGE_DETERMINISTIC = 2, /* use_deterministic_algorithms(), also with warn_only */
} aoticache_bridge_setting;

/* How every call reads these settings: two calls of a few instructions. */
typedef struct aoticache_bridge_settings {
    const void *context;                           /* at::globalContext() */
    bool (*is_deterministic)(const void *context); /* at::Context::deterministicAlgorithms() */
    int8_t (*default_dtype)(void);                 /* c10::get_default_dtype_as_scalartype() */
} aoticache_bridge_settings;

typedef struct aoticache_bridge_timed_call {
    uint64_t words[8]; /* used by the core only */
} aoticache_bridge_timed_call;

typedef struct aoticache_bridge_host {
    size_t size;
    uint32_t abi; /* AOTICACHE_BRIDGE_ABI */
    /*
     * Serves a call, or returns FALLBACK.
     * op:      as enable() got it. It stays valid as long as the process lives. After disable() the call returns FALLBACK.
     * key_set: of the call, PyTorch's raw representation.
     * wrapped: bit i: argument i is a tensor that is a wrapped number (TensorImpl::is_wrapped_number()), or a list that
     *          contains one; bit 63 stands for all arguments from the 64th on.
     * stack:   exactly the arguments, with space for the results.
     * Results: an OUTPUT is an at::Tensor* made with new: the bridge moves from it, then deletes it. It frees the array of an
     *          OUTPUT_LIST with free().
     */
    aoticache_bridge_result (*call)(void *op, uint64_t key_set, uint64_t wrapped, aoticache_stack *stack,
                                    aoticache_error *error);
    /* Counts a call that the bridge sent to PyTorch's kernel without asking. */
    void (*refuse)(void *op);
    /*
     * Works as call(), but compiles nothing, also not in the background. If call() would: returns FALLBACK_FIRST and counts
     * nothing.
     */
    aoticache_bridge_result (*attempt)(void *op, uint64_t key_set, uint64_t wrapped, aoticache_stack *stack,
                                       aoticache_error *error);
    uint64_t (*clock_ns)(void);
    /*
     * Chooses, before a call that may be timed, what the call does. The stack is not changed. Unless the result is NO_TURN,
     * the bridge then times the whole call, from its beginning to its end, as if it had not asked, and calls end(): with
     * ns 0 if host->attempt() did not return SERVED or anything has thrown.
     */
    aoticache_bridge_turn (*turn)(void *op, uint64_t wrapped, aoticache_stack *stack,
                                  aoticache_bridge_timed_call *timed);
    void (*end)(void *op, aoticache_bridge_timed_call *timed, uint64_t ns);
    /* Reports bypassed calls, after all of them or when the operator is disabled; until then bypassed_now() returns them. */
    void (*passed)(void *op, uint64_t calls);
    /* Counts a call that PyTorch's kernel has answered, and has a kernel compiled for later calls like it. Runs no kernel. */
    void (*prepare)(void *op, uint64_t wrapped, aoticache_stack *stack);
} aoticache_bridge_host;

typedef struct aoticache_bridge {
    size_t size;
    uint32_t abi;
    const char *torch_version; /* the version it was compiled against, "2.13.0"; static */
    /*
     * Registers a kernel for `dispatch_key` ("CPU") of the operator `name` ("aten::add") with `overload` ("Tensor", ""
     * for none), which must have `schema`, as PyTorch prints it. op: is passed to host->call().
     * ret_registration: for disable().
     * Returns: OK; NOT_FOUND (no such operator); INVALID (another schema: both; an unknown key; it is enabled already);
     * UNSUPPORTED (PyTorch has no kernel for that key to fall back to; or the schema has an argument that this
     * bridge cannot convert, named, or more than 32 arguments); LOAD_FAILED (PyTorch threw: its message); NO_MEMORY. On
     * failure, one line is in `message`.
     */
    aoticache_status (*enable)(const char *name, const char *overload, const char *schema, const char *dispatch_key,
                               void *op, void **ret_registration, char *message, size_t message_size);
    /*
     * Sends calls that begin afterwards to PyTorch's kernel without asking the host. The torch_registration stays in PyTorch's
     * table, because PyTorch cannot remove one while calls run (it changes the entry in place). The next enable() of that
     * operator and key uses it again. Each one keeps a few hundred bytes until the process ends.
     */
    void (*disable)(void *torch_registration);
    /*
     * Sets the mode of approximately the next `calls` calls; later ones use host->call() again. Any thread may call it, also
     * inside a call. Costs served calls nothing.
     */
    void (*set_call_mode)(void *torch_registration, aoticache_call_mode how, uint64_t calls);
    /* Returns the number of bypassed calls that were not yet reported to host->passed(). */
    uint64_t (*bypassed_now)(void *torch_registration);
    /* Returns the number of threads that PyTorch's operators use: at::get_num_threads(). */
    uint32_t (*num_threads)(void);
    aoticache_bridge_settings settings;
    /*
     * The same functions as in aoticache_kernel_host (runtime/kernel.h); plain kernels call them. A tensor is created as
     * PyTorch's own kernels do it, without the dispatcher.
     */
    int32_t (*get_data_ptr)(struct AtenTensorOpaque *tensor, void **ret_data);
    int32_t (*empty_strided)(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                             struct AtenTensorOpaque **ret_tensor, void **ret_data);
} aoticache_bridge;

/*
 * The only function that the bridge exports. host: borrowed as long as the process lives. ret_bridge: the caller sets its size;
 * the function fills in the rest.
 * Returns: OK; UNSUPPORTED (another abi, or the PyTorch of this process is not the one it was compiled against: both).
 */
#define AOTICACHE_BRIDGE_OPEN "aoticache_bridge_open"
typedef aoticache_status (*aoticache_bridge_open_fn)(const aoticache_bridge_host *host, aoticache_bridge *ret_bridge,
                                                     char *message, size_t message_size);

#ifdef __cplusplus
}
#endif
#endif
