/*
 * eager/torch/internal: what the files of the binding share: operators that are enabled, the places in PyTorch's
 * dispatcher that lead to them, and one call on its way.
 *
 * Private. A call that PyTorch has begun cannot be held back: it may reach us after its operator was taken back. So
 * what PyTorch is given (a registration, and on the stable ABI a function of the pool) is never freed and never becomes
 * another operator's; the operator itself is reached through it, inside an epoch (eager/epoch.h), and kept by a
 * reference where a call leaves the epoch before its end.
 */
#ifndef AOTICACHE_EAGER_TORCH_INTERNAL_H
#define AOTICACHE_EAGER_TORCH_INTERNAL_H

#include "eager/holder/hot.h"
#include "eager/torch/binding.h"
#include "eager/torch/bridge.h"
#include "eager/torch/stable.h"

/* ---- what lives as long as the process ---- */

/* One operator and dispatch key, on one of the two ways. */
typedef struct aoticache_registration {
    _Atomic(struct aoticache_binding_operator *) op; /* NULL: not enabled */
    char *name, *overload, *dispatch_key;
    bool is_stable;
    bool taken; /* enabled, or about to be; under the list's lock */
    struct aoticache_registration *next;
    /* Where is_stable. What follows the slot is written before PyTorch has our function, and stays as long as it has. */
    uint32_t slot; /* of the pool */
    aoticache_stable stable;
    uint64_t torch_version;
    struct AOTICacheTorchLibrary *library;  /* our function's registration; NULL: PyTorch does not have it */
    aoticache_binding_fallback_fn fallback; /* the kernel that was PyTorch's at that time */
    void *fallback_user;
} aoticache_registration;

/*
 * The registration of an operator, made where there is none yet; taken until aoticache_registration_release().
 * Returns: OK; INVALID (it is enabled, on whichever way); UNSUPPORTED (no function of the pool is left); NO_MEMORY.
 */
aoticache_status aoticache_registration_acquire(const aoticache_schema *schema, const char *dispatch_key,
                                                bool is_stable, aoticache_registration **ret_registration,
                                                aoticache_error *ret_error);
void aoticache_registration_release(aoticache_registration *registration);
/* The registration of a function of the pool. */
aoticache_registration *aoticache_registration_of_slot(uint32_t slot);

/* ---- a binding and its operators ---- */

struct aoticache_binding {
    aoticache_context *context;
    aoticache_stable stable; /* without a bridge, as the version */
    uint64_t torch_version;
    bool has_bridge;
    aoticache_bridge bridge;
    pthread_mutex_t lock;
    aoticache_binding_operator *operators; /* under the lock */
};

/* What of the arguments' data must hold for a compiled kernel (precheck.c). */
typedef struct aoticache_precheck aoticache_precheck;

struct aoticache_binding_operator {
    aoticache_holder *holder;
    /* the schema's; of an operator with a precheck, or that writes to arguments, no number that a call has */
    size_t plain_arguments;
    const aoticache_precheck *precheck; /* NULL: none */
    aoticache_bridge_settings settings; /* of PyTorch's process */
    bool asks_deterministic;            /* one of them may decide what it answers */
    aoticache_binding *binding;
    aoticache_registration *registration;
    atomic_size_t references; /* 1 while it is enabled, and one for each call that has left its epoch */
    uint32_t ready;           /* the number of its calls that hit (call_counts.c) */
    atomic_uint_least64_t slow, refused, spared;
    /* call_mode.c */
    atomic_uint fallback_wins;                /* calls for which PyTorch's kernel was faster */
    atomic_uint_least64_t other_calls;        /* the other calls, when fallback_wins was last compared with them */
    atomic_uint bypass_length;                /* how many calls the next bypass sends straight to PyTorch */
    atomic_uint_least64_t timing;             /* how many calls are timed next */
    atomic_uint_least64_t bypassed;           /* calls that went straight to PyTorch */
    atomic_uint_least64_t turns;              /* that PyTorch's kernel had in trials, without a call of the core */
    void *torch_registration;                 /* of the bridge */
    aoticache_stable_plan *plan;              /* of the stable ABI */
    aoticache_binding_operator *next, **link; /* of the binding's, under its lock */
};

/* That of the operator, or of the one that it is a form of: in place, or with "out". NULL: it needs none. */
const aoticache_precheck *aoticache_precheck_find(const aoticache_holder *holder);

/* The last reference frees it: the holder with it. */
void aoticache_binding_operator_unref(aoticache_binding_operator *op);

/* ---- one call ---- */

typedef struct aoticache_binding_call {
    aoticache_stack stack; /* first: the holder's fallback finds the call by it */
    aoticache_binding_operator *op;
    aoticache_epoch_slot *slot; /* NULL: left */
    struct aoticache_binding_call *outer;
    bool fallback_wanted, kept;
    bool consumed;               /* the tensors' handles are gone */
    aoticache_timed_call ticket; /* of the stable ABI; valid where fallback_wanted is set */
} aoticache_binding_call;

typedef enum aoticache_binding_entry {
    AOTICACHE_BINDING_ENTERED,
    AOTICACHE_BINDING_GONE,      /* the operator is not enabled any more */
    AOTICACHE_BINDING_NO_THREAD, /* no memory for the thread's state */
} aoticache_binding_entry;

/* Leaves the epoch and keeps the operator all the same: before anything of unknown length. */
void aoticache_binding_keep(aoticache_binding_call *call);
void aoticache_binding_count_refused(aoticache_binding_operator *op);
/* The call is PyTorch's kernel's, and counted so. */
aoticache_bridge_result aoticache_binding_refuse(aoticache_binding_call *call);
/*
 * Where aoticache_holder_call_hot() found nothing ready; packed: NULL where the arguments are not tensors and numbers
 * only.
 */
aoticache_bridge_result aoticache_binding_answer_slowly(aoticache_binding_call *call, uint64_t key_set,
                                                        const aoticache_packed *packed, bool consume, bool may_compile,
                                                        aoticache_error *error);
/*
 * Whether a compiled kernel may answer a call that is not plain: all arguments are there, the call does not come from a
 * kernel of its own operator, what it was given passes the operator's precheck, and tensors that are written to lie apart
 * from all others.
 */
bool aoticache_binding_admits(const aoticache_binding_call *call);
/*
 * Has a kernel compiled for calls like this one, which PyTorch's kernel has answered, and runs nothing: what such an operator
 * writes to its arguments must not be written twice. The arguments are as they are after the call.
 */
void aoticache_binding_prepare(aoticache_binding_call *call, uint64_t wrapped);
/*
 * Returns a sum of aoticache_bridge_setting: those that differ from PyTorch's defaults now, and could decide what this
 * operator answers. Asked in every call.
 */
static inline uint32_t aoticache_settings_read(const aoticache_binding_operator *op)
{
    const aoticache_bridge_settings *settings = &op->settings;
    uint32_t found = 0;
    if (__builtin_expect(op->asks_deterministic, 0) && settings->is_deterministic(settings->context))
        found = AOTICACHE_BRIDGE_DETERMINISTIC;
    return settings->default_dtype() == AOTICACHE_DTYPE_FLOAT32 ? found : found | AOTICACHE_BRIDGE_DEFAULT_DTYPE;
}
/* Returns whether use_deterministic_algorithms() may decide what an operator answers. */
bool aoticache_binding_asks_deterministic(const aoticache_holder *holder);

/*
 * Whether a compiled kernel answers as PyTorch does although settings of the process differ from PyTorch's defaults.
 * settings: a sum of aoticache_bridge_setting, not 0.
 */
bool aoticache_binding_admits_settings(const aoticache_binding_call *call, uint32_t settings);
/* What the holder's status comes to. */
aoticache_bridge_result aoticache_binding_judge(const aoticache_binding_call *call, aoticache_status status);
/* ---- call_mode.c: calls that are timed or passed on ---- */

/* A call was left to PyTorch's kernel as it is the faster one. */
void aoticache_binding_note_left(aoticache_binding_operator *op);
/* A call that is not timed has met a kernel on trial. */
void aoticache_binding_want_timing(aoticache_binding_operator *op);
/* No kernel is on trial any more. */
void aoticache_binding_end_timing(aoticache_binding_operator *op);
/* PyTorch's number of threads; user: the binding. */
uint32_t aoticache_binding_num_threads(void *user);

/* Whether this thread is inside a call of `op`. */
bool aoticache_binding_is_inside(const aoticache_binding_operator *op);
/* The holder's fallback: says that one is wanted. */
aoticache_status aoticache_binding_want_fallback(void *user, uint64_t key_set, aoticache_stack *stack,
                                                 aoticache_error *ret_error);
/* In the child of a fork: only this thread's calls are inside. */
void aoticache_binding_recount(aoticache_binding_operator *op);

/*
 * Wrapped numbers ("x + 2.0" makes a tensor of 2.0): in PyTorch's type promotion they count for less than tensors of no
 * dimension. Whether the result is all the same what they are: where a tensor that has dimensions is of their category
 * (bool, integer, floating, complex) or a higher one, or a tensor of no dimension of a higher one or of their dtype. wrapped:
 * bit i: argument i; not 0.
 */
bool aoticache_wrapped_numbers_do_not_matter(const aoticache_value *arguments, size_t count, uint64_t wrapped);

/* ---- the bridge ---- */

/* Opens the bridge of options.bridge. Returns: OK, LOAD_FAILED, UNSUPPORTED. */
aoticache_status aoticache_binding_open_bridge(const char *path, aoticache_bridge *ret_bridge,
                                               aoticache_error *ret_error);

/* ---- the stable ABI ---- */

#define AOTICACHE_STABLE_SLOTS 512

/* The functions of the pool: each calls aoticache_stable_call() with its number. */
extern const aoticache_stable_fn aoticache_stable_functions[AOTICACHE_STABLE_SLOTS];
/* Ends by throwing through aoti_torch_check() where the call fails. */
void aoticache_stable_call(uint32_t slot, uint64_t *stack, uint64_t num_inputs, uint64_t num_outputs);

/* ---- a call that hits, inline from its entry to its results ---- */

/*
 * PyTorch's own way to a kernel is long and fills the caches of the CPU: every function less on ours can be measured. What
 * is seldom is in call.c.
 */

/* The calls that this thread is inside, the innermost first. */
extern __thread aoticache_binding_call *aoticache_binding_innermost __attribute__((tls_model("initial-exec")));

/* ---- in and out ---- */

/* The call lies on its caller's stack; end() takes it off the list before that returns, which GCC cannot see. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdangling-pointer"
#endif
static inline void aoticache_binding_push(aoticache_binding_call *call)
{
    aoticache_binding_innermost = call;
}
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#pragma GCC diagnostic pop
#endif

/* ENTERED: end() must follow. ret_call: its stack is left to the caller. */
static inline aoticache_binding_entry aoticache_binding_begin(const aoticache_registration *registration,
                                                              aoticache_binding_call *ret_call)
{
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    if (__builtin_expect(slot == NULL, 0))
        return AOTICACHE_BINDING_NO_THREAD;
    aoticache_binding_operator *op = atomic_load_explicit(&registration->op, memory_order_acquire);
    if (__builtin_expect(op == NULL, 0)) {
        aoticache_epoch_leave(slot);
        return AOTICACHE_BINDING_GONE;
    }
    ret_call->op = op;
    ret_call->slot = slot;
    ret_call->outer = aoticache_binding_innermost;
    ret_call->fallback_wanted = false;
    ret_call->kept = false;
    ret_call->consumed = false;
    aoticache_binding_push(ret_call);
    return AOTICACHE_BINDING_ENTERED;
}

static inline void aoticache_binding_end(aoticache_binding_call *call)
{
    aoticache_binding_innermost = call->outer;
    if (__builtin_expect(!call->kept, 1))
        aoticache_epoch_leave(call->slot);
    else
        aoticache_binding_operator_unref(call->op);
}

/* ---- the answer ---- */

/* A kernel library may call its own operator through the dispatcher: then PyTorch's kernel is meant. */
static inline bool aoticache_binding_is_recursive(const aoticache_binding_call *call)
{
    for (const aoticache_binding_call *outer = call->outer; __builtin_expect(outer != NULL, 0); outer = outer->outer)
        if (outer->op == call->op)
            return true;
    return false;
}

/*
 * wrapped: as aoticache_bridge_host's. consume: a kernel may take the handles of the tensors (call->consumed says
 * whether it did, whatever the result). may_compile: false: FALLBACK_FIRST where the kernel would have to be compiled.
 */
static inline aoticache_bridge_result aoticache_binding_answer(aoticache_binding_call *call, uint64_t key_set,
                                                               uint64_t wrapped, bool consume, bool may_compile,
                                                               aoticache_error *error)
{
    aoticache_packed packed;
    aoticache_status status;
    bool packs;
    aoticache_binding_operator *op = call->op;
    const uint32_t settings = aoticache_settings_read(op);
    if (__builtin_expect(settings != 0, 0) && !aoticache_binding_admits_settings(call, settings))
        return aoticache_binding_refuse(call);
    if (__builtin_expect(call->stack.count != op->plain_arguments || aoticache_binding_is_recursive(call), 0) &&
        !aoticache_binding_admits(call))
        return aoticache_binding_refuse(call);
    if (wrapped != 0 && !aoticache_wrapped_numbers_do_not_matter(call->stack.values, call->stack.count, wrapped))
        return aoticache_binding_refuse(call);
    if (__builtin_expect(!aoticache_holder_call_hot(op->holder, &call->stack, 0, &packed, &packs,
                                                    consume ? &call->consumed : NULL, &status, error),
                         0))
        return aoticache_binding_answer_slowly(call, key_set, packs ? &packed : NULL, consume, may_compile, error);
    aoticache_call_counts_note(op->ready);
    if (__builtin_expect(status == AOTICACHE_OK, 1))
        return AOTICACHE_BRIDGE_SERVED;
    return aoticache_binding_judge(call, aoticache_holder_conclude(op->holder, key_set, &call->stack, status, error));
}

#endif
