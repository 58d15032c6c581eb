/*
 * eager/torch/bridge: what the core of the binding and the bridge (eager/torch/bridge.cpp) have between them. The
 * bridge is compiled on the user's machine against the headers of its PyTorch, cached as an entry, and opened by the
 * core (aoticache_binding_options.bridge); it links nothing of ours: all it calls is in the struct that it is given.
 *
 * The bridge registers a kernel for an operator and a dispatch key, and keeps PyTorch's own kernel for them. A call:
 * 1. It turns the arguments on PyTorch's stack, all of the schema's in their order, into values, on its own stack and
 *    without copies: a tensor's view points at the sizes and strides inside of PyTorch's tensor; its handle is the
 *    at::Tensor* of the argument itself, borrowed.
 * 2. It calls host->attempt(). On SERVED it takes its arguments off PyTorch's stack and moves the results there; on
 *    FALLBACK it calls PyTorch's kernel with the original arguments and the original key set; on FAILED it throws
 *    error.message (TORCH_CHECK's kind of exception), with the arguments dropped. On FALLBACK_FIRST the kernel would have
 *    to be compiled: it calls PyTorch's kernel, whose exception is the call's (host->refuse() counts it, and nothing is
 *    compiled for what PyTorch refuses). Where that has answered it calls host->call(), and on FALLBACK the answer is
 *    PyTorch's that it has already.
 *    Of an operator that writes to its arguments: SERVED means that they have been written to, and the stack has the results
 *    that are no arguments. After FALLBACK_FIRST it calls host->prepare() in the place of host->call(), with the arguments
 *    as they are then, since PyTorch's kernel may have resized some, and what was written must not be written again.
 * 3. Calls that cannot be a compiled kernel's go to PyTorch's kernel without host->attempt(): host->refuse() counts them.
 *    These are calls with a tensor that is undefined where the schema says Tensor, not strided, without storage, lazily
 *    conjugated or negated (is_conj(), is_neg()), a zero tensor (_is_zerotensor()), with symbolic sizes, or
 *    of a dtype that is not in base.h, or with the Python key (a subclass that got below its own dispatch); and values
 *    that no kind of eager/value.h says: symbolic numbers, Scalars above INT64_MAX, lists of more than 8 KiB.
 *
 * Of views in such calls: requires_grad is false and dispatch_key_set is 0, since autograd and all else that key sets
 * stand for has been dealt with above the kernel, and so that an entry of the cache serves the bridge, the stable C
 * ABI and `aoticache warm` alike. A Scalar is INT, DOUBLE, BOOL or COMPLEX as it is; SymInt is INT; an absent optional
 * one NONE.
 *
 * Exceptions never leave a function of this interface, in neither direction. Thread safety: everything from any thread.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_EAGER_TORCH_BRIDGE_H
#define AOTICACHE_EAGER_TORCH_BRIDGE_H

#include "base/base.h"
#include "eager/value.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with everything here and in value.h and tensor_view.h that a bridge compiled earlier would get wrong. */
#define AOTICACHE_BRIDGE_ABI 5u

typedef enum aoticache_bridge_result {
    AOTICACHE_BRIDGE_SERVED = 0,         /* the results are on the stack: OUTPUT or OUTPUT_LIST values, the bridge's */
    AOTICACHE_BRIDGE_FALLBACK = 1,       /* PyTorch's kernel is to answer; the stack is as it was */
    AOTICACHE_BRIDGE_FAILED = 2,         /* an exception with error's message; the stack is as it was */
    AOTICACHE_BRIDGE_FALLBACK_FIRST = 3, /* of attempt(): PyTorch's kernel comes first; the stack is as it was */
} aoticache_bridge_result;

/* How the bridge takes an operator's calls. */
typedef enum aoticache_call_mode {
    AOTICACHE_BRIDGE_SERVE = 0, /* host->attempt() */
    AOTICACHE_BRIDGE_TIME = 1,  /* host->turn() says which way the call goes, and whether its time is taken */
    AOTICACHE_BRIDGE_PASS = 2,  /* PyTorch's kernel, without asking */
} aoticache_call_mode;

/* What a call of an operator with kernels on trial is to do. */
typedef enum aoticache_bridge_turn {
    AOTICACHE_BRIDGE_NO_TURN = 0,        /* host->attempt(), untimed */
    AOTICACHE_BRIDGE_KERNELS_TURN = 1,   /* host->attempt() */
    AOTICACHE_BRIDGE_FALLBACKS_TURN = 2, /* PyTorch's kernel */
} aoticache_bridge_turn;

/* Settings of the process that decide what an operator answers, beside its arguments, and differ from PyTorch's defaults. */
typedef enum aoticache_bridge_setting {
    AOTICACHE_BRIDGE_DEFAULT_DTYPE = 1, /* set_default_dtype() of another dtype than float32 */
    AOTICACHE_BRIDGE_DETERMINISTIC = 2, /* use_deterministic_algorithms(), also with warn_only */
} aoticache_bridge_setting;

/* How these are asked for, in every call: two calls of a few instructions. */
typedef struct aoticache_bridge_settings {
    const void *context;                           /* at::globalContext() */
    bool (*is_deterministic)(const void *context); /* at::Context::deterministicAlgorithms() */
    int8_t (*default_dtype)(void);                 /* c10::get_default_dtype_as_scalartype() */
} aoticache_bridge_settings;

typedef struct aoticache_bridge_timed_call {
    uint64_t words[8]; /* the core's */
} aoticache_bridge_timed_call;

typedef struct aoticache_bridge_host {
    size_t size;
    uint32_t abi; /* AOTICACHE_BRIDGE_ABI */
    /*
     * op:      as enable() got it. It stays valid as long as the process lives, also after disable(): then it answers
     *          FALLBACK.
     * key_set: of the call, PyTorch's raw representation.
     * wrapped: bit i: argument i is a tensor that is a wrapped number (TensorImpl::is_wrapped_number()), or a list with one
     *          in it; of arguments from the 64th on all say so in bit 63.
     * stack:   exactly the arguments; with room for the results.
     * Results: an OUTPUT is an at::Tensor* made with new: moved from, then deleted. An OUTPUT_LIST's array is freed with
     *          free().
     */
    aoticache_bridge_result (*call)(void *op, uint64_t key_set, uint64_t wrapped, aoticache_stack *stack,
                                    aoticache_error *error);
    /* Counts a call that went to PyTorch's kernel by itself. */
    void (*refuse)(void *op);
    /* As call(), but never compiles, nor has it compiled: FALLBACK_FIRST, uncounted, where call() would. */
    aoticache_bridge_result (*attempt)(void *op, uint64_t key_set, uint64_t wrapped, aoticache_stack *stack,
                                       aoticache_error *error);
    uint64_t (*clock_ns)(void);
    /*
     * Before a call that may be timed: what it is to do. The stack is left as it is. Unless it is NO_TURN, the bridge then
     * takes the time of all that the call does from its beginning to its end as if it had not asked, and calls end(): ns 0
     * where host->attempt() did not say SERVED or something has thrown.
     */
    aoticache_bridge_turn (*turn)(void *op, uint64_t wrapped, aoticache_stack *stack,
                                  aoticache_bridge_timed_call *ticket);
    void (*end)(void *op, aoticache_bridge_timed_call *ticket, uint64_t ns);
    /* So many calls were passed on. Told once they all were, or the operator is disabled; until then bypassed_now() says it. */
    void (*passed)(void *op, uint64_t calls);
    /* Counts a call that PyTorch's kernel has answered, and has a kernel compiled for the next one like it. Runs none. */
    void (*prepare)(void *op, uint64_t wrapped, aoticache_stack *stack);
} aoticache_bridge_host;

typedef struct aoticache_bridge {
    size_t size;
    uint32_t abi;
    const char *torch_version; /* that it was compiled against, "2.13.0"; static */
    /*
     * Registers a kernel for `dispatch_key` ("CPU") behind the operator `name` ("aten::add") with `overload` ("Tensor", ""
     * for none), which must have `schema`, as PyTorch prints it. op: what host->call() is to get.
     * ret_registration: to be given to disable().
     * Returns: OK; NOT_FOUND (no such operator); INVALID (another schema: both; an unknown key; it is enabled already);
     * UNSUPPORTED (no kernel of PyTorch's for that key, which is the fallback; or the schema has what this bridge cannot
     * convert, named, or more than 32 arguments); LOAD_FAILED
     * (PyTorch threw: its message); NO_MEMORY. Where it fails, one line is in `message`.
     */
    aoticache_status (*enable)(const char *name, const char *overload, const char *schema, const char *dispatch_key,
                               void *op, void **ret_registration, char *message, size_t message_size);
    /*
     * Calls that begin afterwards go to PyTorch's kernel without asking the host. The torch_registration stays in PyTorch's
     * table, since PyTorch cannot take one back under running calls (it changes the entry in place), and is used again by
     * the next enable() of that operator and key; a few hundred bytes for each of these are kept for ever.
     */
    void (*disable)(void *torch_registration);
    /*
     * The next `calls` calls, about, are taken so, and those after them by host->call() again. Any thread may say so, also
     * inside a call. Costs calls that are served nothing.
     */
    void (*set_call_mode)(void *torch_registration, aoticache_call_mode how, uint64_t calls);
    /* Calls that were passed on and that host->passed() was not told of yet. */
    uint64_t (*bypassed_now)(void *torch_registration);
    /* That PyTorch's operators divide their work among: at::get_num_threads(). */
    uint32_t (*num_threads)(void);
    aoticache_bridge_settings settings;
    /*
     * Those of aoticache_kernel_host (runtime/kernel.h), which plain kernels then call. A tensor is made as PyTorch's own
     * kernels make theirs, without the dispatcher.
     */
    int32_t (*get_data_ptr)(struct AtenTensorOpaque *tensor, void **ret_data);
    int32_t (*empty_strided)(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                             struct AtenTensorOpaque **ret_tensor, void **ret_data);
} aoticache_bridge;

/*
 * The bridge's one exported function. host: borrowed for as long as the process lives. ret_bridge: its size is set; the rest
 * is filled in.
 * Returns: OK; UNSUPPORTED (another abi, or the PyTorch of this process is not the one it was compiled against: both).
 */
#define AOTICACHE_BRIDGE_OPEN "aoticache_bridge_open"
typedef aoticache_status (*aoticache_bridge_open_fn)(const aoticache_bridge_host *host, aoticache_bridge *ret_bridge,
                                                     char *message, size_t message_size);

#ifdef __cplusplus
}
#endif
#endif
