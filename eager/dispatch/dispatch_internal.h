/*
 * eager/dispatch/dispatch_internal: shared by the files of the dispatcher: key sets, operators, kernels, the tables and plans
 * that calls read, oplibs, and the functions between those files.
 *
 * Private. There are two kinds of data: what calls read (tables, plans, the observer) is immutable, published by one atomic
 * pointer, and retired through eager/epoch.h; everything else is under the dispatcher's lock, which calls do not take.
 */
#ifndef AOTICACHE_EAGER_DISPATCH_INTERNAL_H
#define AOTICACHE_EAGER_DISPATCH_INTERNAL_H

#include "base/hash_map.h"
#include "eager/dispatch/dispatch_key.h"
#include "eager/dispatch/dispatcher.h"
#include "eager/epoch.h"

#include <pthread.h>
#include <stdatomic.h>

/*
 * ---- key sets, inline for calls ----
 *
 * The functions of dispatch_key.h are based on these. The layout of a set: bits 0 to 15 are backends,
 * bit 15 + n is functionality n.
 */

#define KEY_SET_BACKEND_BITS AOTICACHE_KEY_SET_BACKENDS
/* The bit of a functionality that is not Undefined. */
#define KEY_SET_BIT(functionality) (UINT64_C(1) << ((functionality) + AOTICACHE_DISPATCH_BACKENDS - 1))
#define KEY_SET_BIT_OF(name) KEY_SET_BIT(AOTICACHE_DISPATCH_KEY_##name)

/* A functionality's first entry in a table, and the bits that choose among its entries: none if it has no backends. */
typedef struct key_set_place {
    uint16_t offset, backend_mask;
} key_set_place;

/*
 * By functionality. After the last one, there are two more for the bits 62 and 63, which are not keys: they use entry 0, that
 * of Undefined.
 */
#define KEY_SET_PLACES (AOTICACHE_DISPATCH_FUNCTIONALITIES + 2)
extern const key_set_place aoticache_key_set_places[KEY_SET_PLACES] __attribute__((visibility("hidden")));

/* The key sets of this thread. */
extern __thread aoticache_dispatch_local aoticache_dispatch_thread_sets
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Returns the highest functionality; Undefined (0) if only backends are set. The bit below the lowest functionality's represents
 * Undefined, so that there always is a highest bit. */
static inline unsigned key_set_functionality(aoticache_key_set set)
{
    return 63u ^ (unsigned)__builtin_clzll((set >> (AOTICACHE_DISPATCH_BACKENDS - 1)) | 1);
}

/*
 * Returns the table index of a set, from 0 to AOTICACHE_DISPATCH_ENTRIES - 1 for any set. A functionality without backends in
 * the set has the entry of its first one.
 */
static inline int32_t key_set_entry(aoticache_key_set set)
{
    key_set_place place = aoticache_key_set_places[key_set_functionality(set)];
    return (int32_t)(place.offset + (63u ^ (unsigned)__builtin_clzll((set & place.backend_mask) | 1)));
}

/* Subtracts as c10::DispatchKeySet::operator-: backends stay. */
static inline aoticache_key_set key_set_minus(aoticache_key_set a, aoticache_key_set b)
{
    return a & (KEY_SET_BACKEND_BITS | ~b);
}

/*
 * Returns the set on which a call dispatches: the keys of all its tensors, with this thread's sets applied. mask: excludes keys
 * that fall through (c10::impl::computeDispatchKeySet).
 */
static inline aoticache_key_set key_set_of_call(aoticache_key_set tensors, aoticache_key_set mask)
{
    const aoticache_dispatch_local *local = &aoticache_dispatch_thread_sets;
    return key_set_minus(tensors | local->included, local->excluded) & mask;
}

/* ---- kernels ---- */

/* A registered kernel. Freed through `retired`, after its user's release(). */
typedef struct aoticache_op_kernel {
    aoticache_retired retired;
    struct aoticache_op_kernel *older; /* of the same operator, for any key */
    aoticache_boxed_fn call;           /* a fallthrough has one that reports an error */
    void *user;                        /* argument of call; for a fallthrough this kernel */
    void (*release)(void *user);
    void *release_user;          /* owned by the caller */
    aoticache_schema *signature; /* NULL: not typed */
    const char *debug;
    aoticache_dispatch_key key;
    bool is_fallthrough;
    bool wants_previous;
    atomic_bool is_gone;    /* removed: a holder of a reference must not call it any more */
    atomic_uint references; /* to this memory: of the registration and of computed kernels */
    char text[];            /* debug, unless static */
} aoticache_op_kernel;

/* Creates a kernel. kernel: already checked. signature: owned by the kernel on success. Returns: OK, NO_MEMORY. */
aoticache_status aoticache_op_kernel_create(const aoticache_boxed_kernel *kernel, const char *debug,
                                            aoticache_dispatch_key key, aoticache_schema *signature,
                                            aoticache_op_kernel **ret_kernel, aoticache_error *ret_error);
/* Frees a kernel that was never registered: release() is not called. NULL is allowed. */
void aoticache_op_kernel_discard(aoticache_op_kernel *kernel);
/* Drops one reference; the last one discards the kernel. */
void aoticache_op_kernel_unref(aoticache_op_kernel *kernel);
/* Retires a kernel, which must not be in any table any more, and sets is_gone. */
void aoticache_op_kernel_retire(aoticache_dispatcher *dispatcher, aoticache_op_kernel *kernel);

/* The kernel for AutogradOther if it is ambiguous which of an operator's kernels is meant. */
extern const aoticache_op_kernel aoticache_op_kernel_ambiguous;

/* ---- tables: table.c ---- */

typedef struct aoticache_op_target {
    aoticache_boxed_fn call;
    void *user;
    aoticache_dispatch_key key; /* key of the kernel's registration; -1 for kernels that report an error */
    bool is_fallback;           /* a kernel of the dispatcher, not of the operator */
    uint8_t previous;           /* target of its key without this kernel; 0 unless wants_previous */
} aoticache_op_target;

/* The table of one operator, or of all without kernels. Target 0 reports a missing kernel. */
typedef struct aoticache_op_table {
    aoticache_retired retired;
    aoticache_key_set mask;                /* keys that do not fall through */
    const aoticache_key_set *backend_mask; /* if they differ by backend: one for each; otherwise NULL */
    uint32_t target_count;
    uint8_t target_of[AOTICACHE_DISPATCH_ENTRIES];
    aoticache_op_target targets[];
} aoticache_op_table;

/* The content of a table entry, and the word for the reason in PyTorch's dumps. kernel: NULL: none. */
typedef struct aoticache_op_choice {
    const aoticache_op_kernel *kernel;
    const char *reason;
} aoticache_op_choice;

/* Chooses the kernel of each entry. With the lock. kernels: newest first. ret_choices: AOTICACHE_DISPATCH_ENTRIES of them. */
void aoticache_op_table_choose(const aoticache_dispatcher *dispatcher, const aoticache_op_kernel *kernels,
                               aoticache_op_choice *ret_choices);
/* Creates a table; NULL without memory. */
aoticache_op_table *aoticache_op_table_create(const aoticache_dispatcher *dispatcher,
                                              const aoticache_op_kernel *kernels);
/* Returns whether the tables have the same contents. */
bool aoticache_op_table_equal(const aoticache_op_table *a, const aoticache_op_table *b);
/* Returns the substitute for a table that could not be allocated after a kernel was removed. Static. */
aoticache_op_table *aoticache_op_table_exhausted(void);
/* Returns the table of operators without registrations, which fallbacks do not serve either. Static. */
aoticache_op_table *aoticache_op_table_gone(void);
/* Frees a table, except a static one. */
void aoticache_op_table_free(aoticache_op_table *table);
void aoticache_op_table_retire(aoticache_dispatcher *dispatcher, aoticache_op_table *table);

/* ---- plans: plan.c ---- */

#define AOTICACHE_DISPATCH_MAX_ARGUMENTS 64 /* PyTorch's limit */

/* The data of a schema that a call needs. */
typedef struct aoticache_op_plan {
    aoticache_retired retired;
    aoticache_schema *schema; /* owned */
    uint64_t dispatched;      /* a bit for each argument whose tensors count */
    uint32_t count;           /* number of arguments */
    bool is_vararg;
    aoticache_value *defaults; /* OTHER: none */
    uint32_t accepted[];       /* bits by kinds of values */
} aoticache_op_plan;

/* Creates a plan. schema: owned by the plan on success. Returns: OK, INVALID (too many arguments), NO_MEMORY. */
aoticache_status aoticache_op_plan_create(aoticache_schema *schema, aoticache_op_plan **ret_plan,
                                          aoticache_error *ret_error);
void aoticache_op_plan_free(aoticache_op_plan *plan);
void aoticache_op_plan_retire(aoticache_dispatcher *dispatcher, aoticache_op_plan *plan);

/* ---- operators: operator.c ---- */

/* A signature that an operator's typed kernels must have, and the kernel that had it first. */
typedef struct aoticache_op_signature {
    aoticache_schema *schema;
    char *debug;
} aoticache_op_signature;

struct aoticache_operator {
    /* read by calls */
    _Atomic(aoticache_op_table *) table;
    _Atomic(aoticache_op_plan *) plan; /* NULL: not defined */
    aoticache_dispatcher *dispatcher;
    const char *name;
    /* under the lock */
    uint64_t letters;     /* letters of the name, folded to 64 bits (names.c) */
    size_t registrations; /* definitions and kernels; with none it counts as absent */
    size_t position;      /* among the present operators */
    aoticache_op_kernel *kernels;
    char *definition_debug; /* NULL: not defined */
    int32_t alias_analysis;
    aoticache_op_signature signatures[2]; /* without and with symbolic integers */
    char text[];                          /* the name */
};

/* The warning about a kernel that replaces another, to be given after the lock is released. */
typedef struct aoticache_op_notice {
    aoticache_logger logger;
    char text[900]; /* "": no warning */
} aoticache_op_notice;

/* Prepares the warning. With the lock, before the kernel is added. */
void aoticache_operator_note_override(const aoticache_operator *op, const aoticache_op_kernel *kernel,
                                      aoticache_op_notice *ret_notice);
/* Gives the warning. Without the lock. */
void aoticache_op_notice_give(const aoticache_op_notice *notice);

/* The following need the lock. On failure they leave the operator unchanged. */
void aoticache_operator_free(aoticache_operator *op); /* no kernel and no definition may be left */
aoticache_status aoticache_operator_define(aoticache_operator *op, aoticache_op_plan *plan, const char *debug,
                                           aoticache_alias_analysis alias, aoticache_error *ret_error);
void aoticache_operator_undefine(aoticache_operator *op);
aoticache_status aoticache_operator_add_kernel(aoticache_operator *op, aoticache_op_kernel *kernel,
                                               aoticache_error *ret_error);
void aoticache_operator_remove_kernel(aoticache_operator *op, aoticache_op_kernel *kernel);
/*
 * Creates a table for the current kernels and fallbacks. Returns: OK, NO_MEMORY (the operator then has the substitute table).
 */
aoticache_status aoticache_operator_rebuild(aoticache_operator *op, aoticache_error *ret_error);

/* signature.c: checks whether a typed kernel fits the operator's other ones and its definition. */
aoticache_status aoticache_operator_check_signature(const aoticache_operator *op, const aoticache_op_kernel *kernel,
                                                    aoticache_error *ret_error);
aoticache_status aoticache_operator_check_definition(const aoticache_operator *op, const aoticache_schema *schema,
                                                     const char *debug, aoticache_error *ret_error);
/* Remembers the signature as long as the operator has registrations. Returns: OK, NO_MEMORY. */
aoticache_status aoticache_operator_keep_signature(aoticache_operator *op, const aoticache_op_kernel *kernel,
                                                   aoticache_error *ret_error);
void aoticache_operator_forget_signatures(aoticache_operator *op);
/* Parses "(Tensor _0) -> Tensor _0" as a schema. Returns: OK, INVALID, NO_MEMORY. */
aoticache_status aoticache_op_signature_parse(const char *signature, aoticache_schema **ret_schema,
                                              aoticache_error *ret_error);
/* Returns whether it takes symbolic integers. */
bool aoticache_op_signature_is_symbolic(const aoticache_schema *signature);
/* Prints it without the name, as PyTorch does; the caller frees it; NULL without memory. */
char *aoticache_op_signature_text(const aoticache_schema *schema);

/* ---- the dispatcher: dispatcher.c, names.c ---- */

/* A namespace that has a library of kind DEF (only one is allowed). */
typedef struct aoticache_op_namespace {
    struct aoticache_op_namespace *next;
    const char *debug;
    char name[];
} aoticache_op_namespace;

typedef struct aoticache_op_observation {
    aoticache_retired retired;
    aoticache_call_observer observer;
} aoticache_op_observation;

struct aoticache_dispatcher {
    /* read by calls */
    _Alignas(64) _Atomic(aoticache_op_observation *) observation;
    atomic_uint_least64_t retired_epoch; /* epoch of the last retiring; calls inside then may delay the release */
    _Atomic(aoticache_op_kernel *) fallbacks[AOTICACHE_DISPATCH_ENTRIES];
    /* under the lock */
    _Alignas(64) pthread_mutex_t lock;
    aoticache_op_table *table_without_kernels;
    /* aoticache_operator *, by name. Operators are never removed: handles stay valid, and a name that is defined again has its
     * old handle */
    aoticache_hash_map names;
    aoticache_operator **operators; /* those with registrations, unordered: for queries about all */
    size_t operator_count, operator_capacity;
    aoticache_logger logger;
    aoticache_op_namespace *namespaces;
    size_t oplib_count;
};

/* Retires memory, and makes running calls try to free it when they end. */
static inline void aoticache_dispatcher_retire(aoticache_dispatcher *dispatcher, aoticache_retired *retired,
                                               void (*release)(aoticache_retired *retired))
{
    aoticache_epoch_retire(retired, release);
    /* Calls that have begun by now may be the ones it waits for: the last of them to end frees it (operator_call.c). An epoch later than
     * its own does no harm. */
    atomic_store(&dispatcher->retired_epoch, atomic_load(&aoticache_epoch_now) - 1);
}

/* Finds or creates an operator, and reserves space for it among those with registrations. Returns: OK, NO_MEMORY. */
aoticache_status aoticache_dispatcher_take_operator(aoticache_dispatcher *dispatcher, const char *name,
                                                    aoticache_operator **ret_operator, aoticache_error *ret_error);
/* Enter adds an operator at its first registration, leave removes it after the last one. Space must have been reserved. */
void aoticache_dispatcher_enter_operator(aoticache_dispatcher *dispatcher, aoticache_operator *op);
void aoticache_dispatcher_leave_operator(aoticache_dispatcher *dispatcher, aoticache_operator *op);

/*
 * With the lock. Add: registers a kernel for all entries of its key, or for none if one of them has a fallback. Both rebuild
 * the tables of all operators.
 * Returns: OK, INVALID, NO_MEMORY: then it is in no table. After removal it is in no table either, and the caller retires it.
 */
aoticache_status aoticache_dispatcher_add_fallback(aoticache_dispatcher *dispatcher, aoticache_op_kernel *kernel,
                                                   aoticache_error *ret_error);
void aoticache_dispatcher_remove_fallback(aoticache_dispatcher *dispatcher, const aoticache_op_kernel *kernel);

static inline void aoticache_dispatcher_lock(aoticache_dispatcher *dispatcher)
{
    pthread_mutex_lock(&dispatcher->lock);
}

static inline void aoticache_dispatcher_unlock(aoticache_dispatcher *dispatcher)
{
    pthread_mutex_unlock(&dispatcher->lock);
}

/* ---- modes: thread.c ---- */

/* This thread's active modes, one bit each. */
extern __thread uint64_t aoticache_dispatch_modes_on __attribute__((tls_model("initial-exec")));

/* Calls the modes from the top. UNSUPPORTED: none answered. */
aoticache_status aoticache_dispatch_ask_modes(const aoticache_operator *op, aoticache_key_set keys,
                                              aoticache_stack *stack, aoticache_error *ret_error);

/* ---- oplibs ---- */

/* A definition (no kernel), a kernel of an operator, or a fallback (no operator). */
typedef struct aoticache_op_registration {
    aoticache_operator *op;
    aoticache_op_kernel *kernel;
} aoticache_op_registration;

/* Everything is under the dispatcher's lock, except what never changes: kind, names, key, debug. */
struct aoticache_oplib {
    aoticache_dispatcher *dispatcher;
    aoticache_oplib_kind kind;
    char *namespace_name;       /* NULL: "_" */
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
 * Parses a key. As in PyTorch, Undefined means "no key" in registrations. text: NULL and "": none. ret_key: -1: none.
 */
aoticache_status aoticache_oplib_parse_key(const char *text, aoticache_dispatch_key *ret_key,
                                           aoticache_error *ret_error);
/* Reserves space for `more` registrations, so that none of them fails. With the lock. Returns: OK, NO_MEMORY. */
aoticache_status aoticache_oplib_reserve(aoticache_oplib *oplib, size_t more, aoticache_error *ret_error);
/* Records a registration. With the lock, and with reserved space. */
void aoticache_oplib_record(aoticache_oplib *oplib, aoticache_operator *op, aoticache_op_kernel *kernel);

/* ---- oplib_kernels.c ---- */

/* Checks that a parsed name is in the oplib's namespace. Returns: OK, INVALID. */
aoticache_status aoticache_oplib_check_namespace(const aoticache_oplib *oplib, const char *full_name,
                                                 aoticache_error *ret_error);
/* Chooses the key of a kernel: `given` (-1: none), otherwise the oplib's, otherwise CompositeImplicitAutograd. */
aoticache_status aoticache_oplib_choose_key(const aoticache_oplib *oplib, const char *name,
                                            aoticache_dispatch_key given, aoticache_dispatch_key *ret_key,
                                            aoticache_error *ret_error);
/* Creates a kernel from the caller's struct. Returns: OK, INVALID (the struct, the signature), NO_MEMORY. */
aoticache_status aoticache_oplib_make_kernel(const aoticache_oplib *oplib, const aoticache_boxed_kernel *kernel,
                                             aoticache_dispatch_key key, aoticache_op_kernel **ret_kernel,
                                             aoticache_error *ret_error);

#endif
