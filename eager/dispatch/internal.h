/*
 * eager/dispatch/internal: what the files of the dispatcher share: key sets, operators, kernels, the tables and plans that
 * calls read, oplibs, and the functions between those files.
 *
 * Private. Two worlds: what calls read (tables, plans, the observer) is immutable, published by one atomic pointer, and
 * retired through eager/epoch.h; everything else is under the dispatcher's lock, which calls do not take.
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
 * The same as the functions of dispatch_key.h, which are made of these. The layout of a set: bits 0 to 15 are backends,
 * bit 15 + n is functionality n.
 */

#define KEY_SET_BACKEND_BITS ((UINT64_C(1) << AOTICACHE_DISPATCH_BACKENDS) - 1)
/* Of a functionality that is not Undefined. */
#define KEY_SET_BIT(functionality) (UINT64_C(1) << ((functionality) + AOTICACHE_DISPATCH_BACKENDS - 1))
#define KEY_SET_BIT_OF(name) KEY_SET_BIT(AOTICACHE_DISPATCH_KEY_##name)

/* Where a functionality's places in a table begin, and which bits choose among them: none where it has no backends. */
typedef struct key_set_place {
    uint16_t offset, backend_mask;
} key_set_place;

/*
 * By functionality. Behind the last one stand two for the bits 62 and 63, which are no keys: place 0, which is
 * Undefined's.
 */
#define KEY_SET_PLACES (AOTICACHE_DISPATCH_FUNCTIONALITIES + 2)
extern const key_set_place aoticache_key_set_places[KEY_SET_PLACES] __attribute__((visibility("hidden")));

/* Of this thread. */
typedef struct dispatch_local {
    aoticache_key_set included, excluded;
} dispatch_local;
extern __thread dispatch_local aoticache_dispatch_local
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Undefined (0) where only backends are set. The bit below the lowest functionality's stands in for it, so that there
 * always is a highest bit. */
static inline unsigned key_set_functionality(aoticache_key_set set)
{
    return 63u ^ (unsigned)__builtin_clzll((set >> (AOTICACHE_DISPATCH_BACKENDS - 1)) | 1);
}

/*
 * From 0 to AOTICACHE_DISPATCH_ENTRIES - 1, whatever the set. Without backends a functionality's place is that of its
 * first.
 */
static inline int32_t key_set_entry(aoticache_key_set set)
{
    key_set_place place = aoticache_key_set_places[key_set_functionality(set)];
    return (int32_t)(place.offset + (63u ^ (unsigned)__builtin_clzll((set & place.backend_mask) | 1)));
}

/* As c10::DispatchKeySet::operator-: backends stay. */
static inline aoticache_key_set key_set_minus(aoticache_key_set a, aoticache_key_set b)
{
    return a & (KEY_SET_BACKEND_BITS | ~b);
}

/*
 * The set that a call dispatches on: of all its tensors, with this thread's. mask: without what falls through
 * (c10::impl::computeDispatchKeySet).
 */
static inline aoticache_key_set key_set_of_call(aoticache_key_set tensors, aoticache_key_set mask)
{
    const dispatch_local *local = &aoticache_dispatch_local;
    return key_set_minus(tensors | local->included, local->excluded) & mask;
}

/* ---- kernels ---- */

/* A registered kernel. Freed through retired, its user's release() before it. */
typedef struct aoticache_op_kernel {
    aoticache_retired retired;
    struct aoticache_op_kernel *older; /* of the same operator, whatever its key */
    aoticache_boxed_fn call;           /* of a fallthrough too: one that says so */
    void *user;                        /* what call is given: of a fallthrough this kernel */
    void (*release)(void *user);
    void *release_user;          /* the caller's */
    aoticache_schema *signature; /* NULL: not typed */
    const char *debug;
    aoticache_dispatch_key key;
    bool is_fallthrough;
    bool wants_previous;
    atomic_bool is_gone;    /* taken back: who still holds it calls it no longer */
    atomic_uint references; /* to this memory: the registration's and those of computed kernels */
    char text[];            /* debug, unless static */
} aoticache_op_kernel;

/* kernel: checked before. signature: taken over on success. Returns: OK, NO_MEMORY. */
aoticache_status aoticache_op_kernel_create(const aoticache_boxed_kernel *kernel, const char *debug,
                                            aoticache_dispatch_key key, aoticache_schema *signature,
                                            aoticache_op_kernel **ret_kernel, aoticache_error *ret_error);
/* One that was never registered: release() is not called. NULL is allowed. */
void aoticache_op_kernel_discard(aoticache_op_kernel *kernel);
/* Gives back one reference; with the last one it is discarded. */
void aoticache_op_kernel_unref(aoticache_op_kernel *kernel);
/* It is in no table any longer, and gone. */
void aoticache_op_kernel_retire(aoticache_dispatcher *dispatcher, aoticache_op_kernel *kernel);

/* What AutogradOther has where it is open which of an operator's kernels is meant. */
extern const aoticache_op_kernel aoticache_op_kernel_ambiguous;

/* ---- tables: table.c ---- */

typedef struct aoticache_op_target {
    aoticache_boxed_fn call;
    void *user;
    aoticache_dispatch_key key; /* that the kernel is registered for; -1 for those that report an error */
    bool is_fallback;           /* the dispatcher's, not the operator's */
    uint8_t previous;           /* the target that its key would have without it; 0 unless it wants to know */
} aoticache_op_target;

/* One operator's, or of all that have no kernels. Target 0 reports that there is no kernel. */
typedef struct aoticache_op_table {
    aoticache_retired retired;
    aoticache_key_set mask;                /* keys that do not fall through */
    const aoticache_key_set *backend_mask; /* where that differs by backend: one for each; else NULL */
    uint32_t target_count;
    uint8_t target_of[AOTICACHE_DISPATCH_ENTRIES];
    aoticache_op_target targets[];
} aoticache_op_table;

/* What a place holds, and the word that PyTorch's dumps have for the reason. kernel: NULL: nothing. */
typedef struct aoticache_op_choice {
    const aoticache_op_kernel *kernel;
    const char *reason;
} aoticache_op_choice;

/* With the lock. kernels: newest first. ret_choices: AOTICACHE_DISPATCH_ENTRIES of them. */
void aoticache_op_table_choose(const aoticache_dispatcher *dispatcher, const aoticache_op_kernel *kernels,
                               aoticache_op_choice *ret_choices);
/* NULL without memory. */
aoticache_op_table *aoticache_op_table_create(const aoticache_dispatcher *dispatcher,
                                              const aoticache_op_kernel *kernels);
/* A table with the same contents? */
bool aoticache_op_table_equal(const aoticache_op_table *a, const aoticache_op_table *b);
/* What stands in where a kernel was taken back and there was no memory for a table without it. Static. */
aoticache_op_table *aoticache_op_table_exhausted(void);
/* Of operators that have no registrations, whom fallbacks do not serve either. Static. */
aoticache_op_table *aoticache_op_table_gone(void);
/* Not the static ones: those stay. */
void aoticache_op_table_free(aoticache_op_table *table);
void aoticache_op_table_retire(aoticache_dispatcher *dispatcher, aoticache_op_table *table);

/* ---- plans: plan.c ---- */

#define AOTICACHE_DISPATCH_MAX_ARGUMENTS 64 /* PyTorch's limit */

/* What a call needs of a schema. */
typedef struct aoticache_op_plan {
    aoticache_retired retired;
    aoticache_schema *schema; /* owned */
    uint64_t dispatched;      /* a bit for each argument whose tensors count */
    uint32_t count;           /* of arguments */
    bool is_vararg;
    aoticache_value *defaults; /* OTHER: none */
    uint32_t accepted[];       /* bits by kinds of values */
} aoticache_op_plan;

/* schema: taken over on success. Returns: OK, INVALID (too many arguments), NO_MEMORY. */
aoticache_status aoticache_op_plan_create(aoticache_schema *schema, aoticache_op_plan **ret_plan,
                                          aoticache_error *ret_error);
void aoticache_op_plan_free(aoticache_op_plan *plan);
void aoticache_op_plan_retire(aoticache_dispatcher *dispatcher, aoticache_op_plan *plan);

/* ---- operators: operator.c ---- */

/* A signature that an operator's typed kernels have to have, and who had it first. */
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
    uint64_t letters;     /* that the name has, folded to 64 bits (names.c) */
    size_t registrations; /* definitions and kernels; with none it counts as not there */
    size_t position;      /* among those that are there */
    aoticache_op_kernel *kernels;
    char *definition_debug; /* NULL: not defined */
    int32_t alias_analysis;
    aoticache_op_signature signatures[2]; /* without and with symbolic integers */
    char text[];                          /* the name */
};

/* What is to be said of a kernel that takes the place of another, once the lock is given back. */
typedef struct aoticache_op_notice {
    aoticache_logger logger;
    char text[900]; /* "": nothing */
} aoticache_op_notice;

/* With the lock, before the kernel is added. */
void aoticache_operator_note_override(const aoticache_operator *op, const aoticache_op_kernel *kernel,
                                      aoticache_op_notice *ret_notice);
/* Without the lock. */
void aoticache_op_notice_give(const aoticache_op_notice *notice);

/* All with the lock held. They leave the operator as it was on failure. */
void aoticache_operator_free(aoticache_operator *op); /* no kernel and definition left */
aoticache_status aoticache_operator_define(aoticache_operator *op, aoticache_op_plan *plan, const char *debug,
                                           aoticache_alias_analysis alias, aoticache_error *ret_error);
void aoticache_operator_undefine(aoticache_operator *op);
aoticache_status aoticache_operator_add_kernel(aoticache_operator *op, aoticache_op_kernel *kernel,
                                               aoticache_error *ret_error);
void aoticache_operator_remove_kernel(aoticache_operator *op, aoticache_op_kernel *kernel);
/*
 * A table for the kernels and fallbacks of now. Returns: OK, NO_MEMORY (it has the one that stands in for lack of it).
 */
aoticache_status aoticache_operator_rebuild(aoticache_operator *op, aoticache_error *ret_error);

/* signature.c. Whether a typed kernel fits what the operator's others are, and its definition. */
aoticache_status aoticache_operator_check_signature(const aoticache_operator *op, const aoticache_op_kernel *kernel,
                                                    aoticache_error *ret_error);
aoticache_status aoticache_operator_check_definition(const aoticache_operator *op, const aoticache_schema *schema,
                                                     const char *debug, aoticache_error *ret_error);
/* Remembers it as long as the operator has registrations. Returns: OK, NO_MEMORY. */
aoticache_status aoticache_operator_keep_signature(aoticache_operator *op, const aoticache_op_kernel *kernel,
                                                   aoticache_error *ret_error);
void aoticache_operator_forget_signatures(aoticache_operator *op);
/* "(Tensor _0) -> Tensor _0" as a schema. Returns: OK, INVALID, NO_MEMORY. */
aoticache_status aoticache_op_signature_parse(const char *signature, aoticache_schema **ret_schema,
                                              aoticache_error *ret_error);
/* Whether it takes symbolic integers. */
bool aoticache_op_signature_is_symbolic(const aoticache_schema *signature);
/* Without the name, as PyTorch prints it; NULL without memory; the caller's. */
char *aoticache_op_signature_text(const aoticache_schema *schema);

/* ---- the dispatcher: dispatcher.c, names.c ---- */

/* A namespace that has its one library of kind DEF. */
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
    atomic_uint_least64_t retired_epoch; /* of what was retired last: who was inside then may be the one it waits for */
    _Atomic(aoticache_op_kernel *) fallbacks[AOTICACHE_DISPATCH_ENTRIES];
    /* under the lock */
    _Alignas(64) pthread_mutex_t lock;
    aoticache_op_table *table_without_kernels;
    /* of aoticache_operator *, by name. Nobody ever leaves: handles stay, and a name that comes back has the handle
     * that it had */
    aoticache_hash_map names;
    aoticache_operator **operators; /* those with registrations, in no order: what questions about all go through */
    size_t operator_count, operator_capacity;
    aoticache_logger logger;
    aoticache_op_namespace *namespaces;
    size_t oplib_count;
};

/* Retires, and tells calls that are under way to look after it when they end. */
static inline void aoticache_dispatcher_retire(aoticache_dispatcher *dispatcher, aoticache_retired *retired,
                                               void (*release)(aoticache_retired *retired))
{
    aoticache_epoch_retire(retired, release);
    /* Calls that began up to now may be what it waits for: the last of them to end frees it (call.c). A later
     * epoch than its own does no harm. */
    atomic_store(&dispatcher->retired_epoch, atomic_load(&aoticache_epoch_now) - 1);
}

/* Makes it where it is not there, and room for it among those with registrations. Returns: OK, NO_MEMORY. */
aoticache_status aoticache_dispatcher_take_operator(aoticache_dispatcher *dispatcher, const char *name,
                                                    aoticache_operator **ret_operator, aoticache_error *ret_error);
/* With its first registration an operator is there, with the last one it is gone. Room has been made. */
void aoticache_dispatcher_enter_operator(aoticache_dispatcher *dispatcher, aoticache_operator *op);
void aoticache_dispatcher_leave_operator(aoticache_dispatcher *dispatcher, aoticache_operator *op);

/*
 * With the lock. A kernel for all places of its key, or none where one of them has one. All operators' tables are made
 * anew.
 * Returns: OK, INVALID, NO_MEMORY: then it is in no table. Removed, it is in none either, and the caller retires it.
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

/* This thread's modes that are on, a bit each. */
extern __thread uint64_t aoticache_dispatch_modes_on __attribute__((tls_model("initial-exec")));

/* Asks the modes from the top. UNSUPPORTED: none answered. */
aoticache_status aoticache_dispatch_ask_modes(const aoticache_operator *op, aoticache_key_set keys,
                                              aoticache_stack *stack, aoticache_error *ret_error);

/* ---- oplibs ---- */

/* A definition (no kernel), a kernel of an operator, or a fallback (no operator). */
typedef struct aoticache_op_registration {
    aoticache_operator *op;
    aoticache_op_kernel *kernel;
} aoticache_op_registration;

/* All under the dispatcher's lock, but for what never changes: kind, names, key, debug. */
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
                                            aoticache_dispatch_key given, aoticache_dispatch_key *ret_key,
                                            aoticache_error *ret_error);
/* Returns: OK, INVALID (the struct, the signature), NO_MEMORY. */
aoticache_status aoticache_oplib_make_kernel(const aoticache_oplib *oplib, const aoticache_boxed_kernel *kernel,
                                             aoticache_dispatch_key key, aoticache_op_kernel **ret_kernel,
                                             aoticache_error *ret_error);

#endif
