/*
 * eager/torch/torch_internal: shared by the files of the binding: enabled operators, their registrations with PyTorch's
 * dispatcher, and the state of one call.
 *
 * Private. A call that PyTorch has begun cannot be stopped: it may reach us after its operator was disabled. So a registration,
 * which the bridge has, is never freed and never reused for another operator. A call finds the operator through it, inside an
 * epoch (eager/epoch.h), and takes a reference if it leaves the epoch before its end.
 */
#ifndef AOTICACHE_EAGER_TORCH_INTERNAL_H
#define AOTICACHE_EAGER_TORCH_INTERNAL_H

#include "eager/holder/holder_hot.h"
#include "eager/torch/binding.h"
#include "eager/torch/bridge.h"

/* ---- objects that live as long as the process ---- */

/* One operator and dispatch key. */
typedef struct aoticache_registration {
    _Atomic(struct aoticache_binding_operator *) op; /* NULL: not enabled */
    char *name, *overload, *dispatch_key;
    bool taken; /* enabled, or about to be; under the list's lock */
    struct aoticache_registration *next;
} aoticache_registration;

/*
 * Returns the registration of an operator; creates it if there is none yet. It is taken until aoticache_registration_release().
 * Returns: OK; INVALID (already enabled); NO_MEMORY.
 */
aoticache_status aoticache_registration_acquire(const aoticache_schema *schema, const char *dispatch_key,
                                                aoticache_registration **ret_registration, aoticache_error *ret_error);
void aoticache_registration_release(aoticache_registration *registration);

/* ---- a binding and its operators ---- */

struct aoticache_binding {
    aoticache_context *context;
    aoticache_bridge bridge;
    pthread_mutex_t lock;
    aoticache_binding_operator *operators; /* under the lock */
};

/* Conditions on the arguments' data for using a compiled kernel (precheck.c). */
typedef struct aoticache_precheck aoticache_precheck;

struct aoticache_binding_operator {
    aoticache_holder *holder;
    /* number of the schema's arguments; a number that no call has, if there is a precheck or writing to arguments */
    size_t plain_arguments;
    const aoticache_precheck *precheck; /* NULL: none */
    aoticache_bridge_settings settings; /* of PyTorch's process */
    bool asks_deterministic;            /* one of these settings may change its results */
    aoticache_binding *binding;
    aoticache_registration *registration;
    atomic_size_t references; /* one while enabled, and one for each call that has left its epoch */
    uint32_t ready;           /* counter of its hits (call_counts.c) */
    atomic_uint_least64_t slow, refused, spared;
    /* call_mode.c */
    atomic_uint fallback_wins;                /* calls for which PyTorch's kernel was faster */
    atomic_uint_least64_t other_calls;        /* the other calls, when fallback_wins was last compared with them */
    atomic_uint bypass_length;                /* how many calls the next bypass sends straight to PyTorch */
    atomic_uint_least64_t timing;             /* how many calls are timed next */
    atomic_uint_least64_t bypassed;           /* calls that went straight to PyTorch */
    atomic_uint_least64_t turns;              /* turns of PyTorch's kernel in trials, without a call of the core */
    void *torch_registration;                 /* of the bridge */
    aoticache_binding_operator *next, **link; /* list of the binding, under its lock */
};

/* Returns the precheck of the operator (for in-place and out= variants that of the base operator); NULL if none is needed. */
const aoticache_precheck *aoticache_precheck_find(const aoticache_holder *holder);

/* Drops a reference. The last one frees the operator and its holder. */
void aoticache_binding_operator_unref(aoticache_binding_operator *op);

/* ---- one call ---- */

typedef struct aoticache_binding_call {
    aoticache_stack stack; /* must be first: the holder's fallback finds the call by it */
    aoticache_binding_operator *op;
    aoticache_epoch_slot *slot; /* NULL: not in an epoch */
    struct aoticache_binding_call *outer;
    bool fallback_wanted, kept;
} aoticache_binding_call;

void aoticache_binding_count_refused(aoticache_binding_operator *op);
/* Leaves the call to PyTorch's kernel, and counts it as refused. */
aoticache_bridge_result aoticache_binding_refuse(aoticache_binding_call *call);
/*
 * Answers a call for which aoticache_holder_call_hot() found nothing ready. packed: NULL if the arguments are not only tensors
 * and numbers.
 */
aoticache_bridge_result aoticache_binding_answer_slow_path(aoticache_binding_call *call, uint64_t key_set,
                                                           const aoticache_packed *packed, bool may_compile,
                                                           aoticache_error *error);
/*
 * Returns whether a compiled kernel may answer a call that is not plain: it has all arguments, it does not come from a kernel
 * of its own operator, its arguments pass the operator's precheck, and tensors that are written to overlap no others.
 */
bool aoticache_binding_admits(const aoticache_binding_call *call);
/*
 * Has a kernel compiled for calls like this one, which PyTorch's kernel has answered, and runs nothing: arguments must not be
 * written to twice. The arguments are in the state after the call.
 */
void aoticache_binding_prepare(aoticache_binding_call *call, uint64_t wrapped);
/*
 * Returns a sum of aoticache_bridge_setting: settings that now differ from PyTorch's defaults and could change this operator's
 * results. Called for every call.
 */
static inline uint32_t aoticache_settings_read(const aoticache_binding_operator *op)
{
    const aoticache_bridge_settings *settings = &op->settings;
    uint32_t found = 0;
    if (__builtin_expect(op->asks_deterministic, 0) && settings->is_deterministic(settings->context))
        found = AOTICACHE_BRIDGE_DETERMINISTIC;
    return settings->default_dtype() == AOTICACHE_DTYPE_FLOAT32 ? found : found | AOTICACHE_BRIDGE_DEFAULT_DTYPE;
}
/* Returns whether use_deterministic_algorithms() may change an operator's results. */
bool aoticache_binding_asks_deterministic(const aoticache_holder *holder);

/*
 * Returns whether a compiled kernel has the same results as PyTorch although settings of the process differ from PyTorch's
 * defaults.
 * settings: a sum of aoticache_bridge_setting, not 0.
 */
bool aoticache_binding_admits_settings(const aoticache_binding_call *call, uint32_t settings);
/* Converts the holder's status into a result for PyTorch. */
aoticache_bridge_result aoticache_binding_judge(const aoticache_binding_call *call, aoticache_status status);
/* ---- call_mode.c: calls that are timed or bypass the core ---- */

/* Notes that a call was left to PyTorch's kernel because that is faster. */
void aoticache_binding_note_left(aoticache_binding_operator *op);
/* Notes that an untimed call has found a kernel on trial. */
void aoticache_binding_want_timing(aoticache_binding_operator *op);
/* Ends timing: no kernel is on trial any more. */
void aoticache_binding_end_timing(aoticache_binding_operator *op);
/* Returns PyTorch's number of threads; user: the binding. */
uint32_t aoticache_binding_num_threads(void *user);

/* Returns whether this thread is inside a call of `op`. */
bool aoticache_binding_is_inside(const aoticache_binding_operator *op);
/* The holder's fallback: notes that the fallback is wanted. */
aoticache_status aoticache_binding_want_fallback(void *user, uint64_t key_set, aoticache_stack *stack,
                                                 aoticache_error *ret_error);
/* Recounts references in the child of a fork: only this thread's calls are inside. */
void aoticache_binding_recount(aoticache_binding_operator *op);

/*
 * Returns whether results do not depend on which arguments are wrapped numbers ("x + 2.0" makes a tensor of 2.0). In PyTorch's
 * type promotion they count for less than zero-dimensional tensors. It does not matter if a tensor with dimensions has their
 * category (bool, integer, floating, complex) or a higher one, or a zero-dimensional tensor has a higher one or their dtype.
 * wrapped: bit i: argument i; not 0.
 */
bool aoticache_wrapped_numbers_do_not_matter(const aoticache_value *arguments, size_t count, uint64_t wrapped);

/* ---- the bridge ---- */

/* Opens the bridge of options.bridge. Returns: OK, LOAD_FAILED, UNSUPPORTED. */
aoticache_status aoticache_binding_open_bridge(const char *path, aoticache_bridge *ret_bridge,
                                               aoticache_error *ret_error);

/* ---- a call that hits, inline from its entry to its results ---- */

/*
 * PyTorch's own path to a kernel is long and fills the caches of the CPU: every function call saved in ours is measurable. Rare
 * cases are in binding_call.c.
 */

/* The running calls of this thread, the innermost first. */
extern __thread aoticache_binding_call *aoticache_binding_innermost __attribute__((tls_model("initial-exec")));

/* ---- beginning and end ---- */

/* The call is on its caller's stack; end() removes it from the list before that returns, which GCC cannot see. */
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

/*
 * Begins a call; end() must follow. ret_call: the caller sets its stack. False: PyTorch's kernel must answer, because the
 * operator is no longer enabled, or memory for the thread's state is short.
 */
static inline bool aoticache_binding_begin(const aoticache_registration *registration, aoticache_binding_call *ret_call)
{
    aoticache_epoch_slot *slot = aoticache_epoch_enter();
    if (__builtin_expect(slot == NULL, 0))
        return false;
    aoticache_binding_operator *op = atomic_load_explicit(&registration->op, memory_order_acquire);
    if (__builtin_expect(op == NULL, 0)) {
        aoticache_epoch_leave(slot);
        return false;
    }
    ret_call->op = op;
    ret_call->slot = slot;
    ret_call->outer = aoticache_binding_innermost;
    ret_call->fallback_wanted = false;
    ret_call->kept = false;
    aoticache_binding_push(ret_call);
    return true;
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

/* Returns whether the call comes from a kernel of its own operator: then PyTorch's kernel must answer. */
static inline bool aoticache_binding_is_recursive(const aoticache_binding_call *call)
{
    for (const aoticache_binding_call *outer = call->outer; __builtin_expect(outer != NULL, 0); outer = outer->outer)
        if (outer->op == call->op)
            return true;
    return false;
}

/*
 * Answers a call. wrapped: as in aoticache_bridge_host. may_compile: false: FALLBACK_FIRST if the kernel would have to be
 * compiled.
 */
static inline aoticache_bridge_result aoticache_binding_answer(aoticache_binding_call *call, uint64_t key_set,
                                                               uint64_t wrapped, bool may_compile,
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
    if (__builtin_expect(!aoticache_holder_call_hot(op->holder, &call->stack, 0, &packed, &packs, &status, error), 0))
        return aoticache_binding_answer_slow_path(call, key_set, packs ? &packed : NULL, may_compile, error);
    aoticache_call_counts_note(op->ready);
    if (__builtin_expect(status == AOTICACHE_OK, 1))
        return AOTICACHE_BRIDGE_SERVED;
    return aoticache_binding_judge(call, aoticache_holder_conclude(op->holder, key_set, &call->stack, status, error));
}

#endif
