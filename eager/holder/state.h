/*
 * eager/holder/state: what a holder and what all holders of a host share are made of.
 *
 * Private. Locks, from the outermost: holder->load_lock, holder->lock, eager->lock. Calls that hit take none. No lock is
 * held while a hook compiles; load_lock is held while a library is loaded, so that it is loaded once.
 */
#ifndef AOTICACHE_EAGER_HOLDER_STATE_H
#define AOTICACHE_EAGER_HOLDER_STATE_H

#include "eager/schema/schema.h"
#include "eager/holder/holder.h"
#include "eager/hook/record.h"
#include "eager/holder/table.h"
#include "eager/holder/uses.h"
#include "loader/check/check.h"

#include <pthread.h>

/* ---- one library that the holder knows ---- */

/* Complete before readers find it; freed with the holder. */
typedef struct aoticache_held {
    aoticache_unit *unit; /* in its table entry, or lone; never changes */
    aoticache_unit lone;  /* of a library for symbolic shapes, which has no entry that is its own */
    struct aoticache_holder *holder;
    uint32_t number;  /* of the unit: the table, and the unit in it, may be gone before the holder */
    int64_t entry_id; /* 0: not stored. Under holder->lock, as the artifact */
    aoticache_digest artifact;
    atomic_bool gone;      /* the cache has it no more: not to be asked for again before it was made anew */
    aoticache_check *check; /* NULL: exact */
    uint64_t loaded_bytes;  /* under eager->lock, as the links: 0 while it is not loaded */
    struct aoticache_held *loaded_next, **loaded_link;
    struct aoticache_held *next; /* of the holder's, under holder->lock */
} aoticache_held;

/* Libraries for symbolic shapes of one family, the most special first. Replaced as a whole. */
typedef struct aoticache_symbolic {
    aoticache_retired retired;
    size_t count;
    aoticache_held *held[];
} aoticache_symbolic;

/* ---- what was asked for and is not there ---- */

/* Where a miss stands; in the `detail` of an entry of holder->misses. Freed with the holder. */
typedef struct aoticache_miss_state {
    atomic_int queued; /* a background compile of it is queued or under way in the process of this number; 0: none */
    atomic_uint_least64_t retry_ns;      /* monotonic: not before */
    uint32_t failures;                   /* in a row, under holder->lock */
    aoticache_status status;             /* of the last one, under holder->lock */
    char *message;                       /* likewise; NULL: none */
    struct aoticache_miss_state *next;
} aoticache_miss_state;

/*
 * Calls that are alike but for the sizes of their tensors: a library for symbolic shapes serves calls of one family
 * only, since scalars and the like are compiled in. In the `detail` of an entry of holder->families; freed with the
 * holder.
 */
typedef struct aoticache_family {
    _Atomic(aoticache_symbolic *) symbolic; /* NULL: none */
    uint32_t shapes;  /* different ones that have been missed; under holder->lock, as the rest */
    bool not_dynamic; /* a compile for symbolic shapes failed or serves one shape only */
    struct aoticache_family *next;
} aoticache_family;

/* ---- the holder ---- */

enum aoticache_returns { AOTICACHE_RETURNS_TENSORS, AOTICACHE_RETURNS_LIST };

struct aoticache_holder {
    /* What a hit reads comes first. */
    aoticache_table table;
    aoticache_value *defaults; /* num_arguments */
    size_t num_arguments, num_returns; /* num_returns: of TENSORS */
    enum aoticache_returns returns;
    bool serve_requires_grad;
    aoticache_dynamic dynamic;
    aoticache_kernel_fn fallback;
    void *fallback_user;
    aoticache_context *eager;
    atomic_size_t references;
    aoticache_schema *schema;
    char *op, *schema_text, *dispatch_key;
    aoticache_device device;
    pthread_mutex_t load_lock, lock;
    aoticache_table misses, families;
    aoticache_held *held;
    aoticache_miss_state *miss_states;
    aoticache_family *family_states;
    size_t aliases; /* entries of the table that a library for symbolic shapes serves */
    size_t held_count;
    int64_t last_entry; /* the highest entry of the index that is known; under lock, as the rest up to here */
    struct aoticache_holder *next, **link; /* among the eager's, under eager->lock */
    size_t jobs; /* of the queue that have a reference; under eager->lock */
    bool fill_failed; /* it was said once */
    /* Counts: atomic, relaxed. Hits are those of the libraries (uses.h). */
    atomic_uint_least64_t loads, misses_count, compiles, compile_failures, fallbacks, queued, dropped;
};

/* So many shapes of libraries for symbolic ones get an entry of their own; further ones are found by the checks. */
#define AOTICACHE_HOLDER_MAX_ALIASES 65536

/* ---- what holders share ---- */

typedef struct aoticache_job aoticache_job;

struct aoticache_context {
    /* Goes on with every load: the clock of last use. Hits read it: far from what changes with every miss. */
    atomic_uint_least64_t tick;
    aoticache_cache *cache;
    aoticache_hook *hook;
    aoticache_miss miss;
    aoticache_dynamic dynamic;
    uint32_t dynamic_after, queue_length, max_threads;
    size_t max_loaded;
    uint64_t max_loaded_bytes;
    bool serve_requires_grad, fail_calls;
    aoticache_logger logger;
    char **environment; /* pairs: name, value, name, ...; NULL-terminated; NULL: none */
    struct aoticache_recorder *recorder; /* NULL: nothing is recorded */
    atomic_size_t misses_until_flush;
    pthread_mutex_t lock;
    aoticache_holder *holders;
    aoticache_held *loaded;
    size_t loaded_count;
    uint64_t loaded_bytes;
    /* The queue of background compiles. */
    pthread_cond_t changed; /* something was queued or has ended */
    aoticache_job *first, **last;
    size_t queued, running, threads, idle;
    bool ending;
    int owner; /* the process: threads and jobs of a parent are not there in a child */
};

/* ---- what a miss needs ---- */

/*
 * Everything about a call that outlives it: the request, the metadata packed, and what stands for all its shapes.
 * Owned by the call that waits, or by the job.
 */
typedef struct aoticache_wanted {
    aoticache_request *exact;
    aoticache_request *family; /* NULL: not for symbolic shapes */
    aoticache_packed *packed;
    bool prefer_dynamic; /* compile for symbolic shapes */
    aoticache_family *family_state; /* NULL as family */
    aoticache_miss_state *miss_state;
} aoticache_wanted;

struct aoticache_job {
    aoticache_holder *holder; /* a reference */
    aoticache_wanted wanted;
    aoticache_job *next;
};

void aoticache_wanted_free(aoticache_wanted *wanted);

/* request.c */

/*
 * The requests for a call: exact, with the hook's environment; and for all shapes where there can be one.
 * Returns: OK, INVALID, UNSUPPORTED, NO_MEMORY.
 */
aoticache_status aoticache_holder_make_wanted(aoticache_holder *holder, const aoticache_value *arguments,
                                              const aoticache_packed *packed, aoticache_wanted *ret_wanted,
                                              aoticache_error *ret_error);
/* The words under which a request's arguments would be found in the table: for entries of the index. */
bool aoticache_holder_pack_request(const aoticache_holder *holder, const aoticache_request *request,
                                   aoticache_packed *ret_packed);
/* The tensors of a request as views; *ret_views is the caller's, by free(). Pointers in them are the request's. */
aoticache_status aoticache_request_views(const aoticache_request *request, aoticache_tensor_view **ret_views,
                                         size_t *ret_count, aoticache_error *ret_error);
/* The request for all shapes of a call; NULL with OK where there is none. */
aoticache_status aoticache_holder_family_request(const aoticache_holder *holder, const aoticache_value *arguments,
                                                 aoticache_request **ret_request, aoticache_error *ret_error);
/* What the requests of this holder have in their environment. */
aoticache_status aoticache_holder_set_environment(const aoticache_holder *holder, aoticache_request *request,
                                                  aoticache_error *ret_error);

/* arguments.c */

/* Whether an argument is what the schema takes: OK, INVALID. */
aoticache_status aoticache_holder_check_arguments(const aoticache_holder *holder, const aoticache_value *arguments,
                                                  aoticache_error *ret_error);

/* fill.c: entries of the index that are not known yet. Failures are logged. */
void aoticache_holder_fill(aoticache_holder *holder);

/* load.c */

/* The runner of a library, loaded if it is not. Takes load_lock. In a section: what is returned stays until it is left. */
aoticache_status aoticache_held_load(aoticache_held *held, aoticache_runner **ret_runner, aoticache_error *ret_error);
/* Takes the artifact of a compile, loads it, and makes it known for `wanted`. Takes load_lock. */
aoticache_status aoticache_holder_adopt(aoticache_holder *holder, const aoticache_wanted *wanted,
                                        aoticache_artifact *artifact, aoticache_held **ret_held,
                                        aoticache_error *ret_error);
/* Unloads all that the holder has loaded; it must not be in use. */
void aoticache_holder_unload_all(aoticache_holder *holder);
/* Hands the use of all units to the cache. */
void aoticache_holder_flush(aoticache_holder *holder);

/* known.c */

/*
 * A library of the cache or of a compile becomes known, or known anew. Under holder->lock. NULL without memory.
 * know_guarded() takes the check over.
 */
aoticache_held *aoticache_holder_know_exact(aoticache_holder *holder, const aoticache_packed *packed,
                                            const aoticache_digest *artifact, int64_t entry_id);
aoticache_held *aoticache_holder_know_guarded(aoticache_holder *holder, aoticache_family *family,
                                              const aoticache_digest *artifact, int64_t entry_id,
                                              aoticache_check *check);
/* The family that a request for all shapes stands for, made where it is new. Under holder->lock. NULL without memory. */
aoticache_family *aoticache_holder_family(aoticache_holder *holder, const aoticache_request *request);
/* An entry for metadata that a library for symbolic shapes serves. Takes holder->lock. */
void aoticache_holder_add_alias(aoticache_holder *holder, const aoticache_packed *packed, aoticache_held *held);

/* ---- the hot path ---- */

/*
 * Packs, probes, compares: the runner that is ready for these arguments, else NULL. *ret_packed is valid where it returns
 * true: false where the arguments cannot be a kernel's. In a section.
 */
static inline bool aoticache_holder_probe(const aoticache_holder *holder, const aoticache_value *arguments,
                                          aoticache_packed *ret_packed, aoticache_unit **ret_unit,
                                          aoticache_runner **ret_runner)
{
    *ret_runner = NULL;
    if (__builtin_expect(!aoticache_pack(arguments, holder->num_arguments, ret_packed), 0))
        return false;
    if (__builtin_expect(ret_packed->requires_grad && !holder->serve_requires_grad, 0))
        return true;
    aoticache_table_entry *entry = aoticache_table_find(&holder->table, ret_packed);
    if (entry != NULL) {
        *ret_unit = atomic_load(&entry->unit);
        *ret_runner = atomic_load(&(*ret_unit)->runner);
    }
    return true;
}

/* In a section. */
static inline void aoticache_holder_note_use(const aoticache_holder *holder, aoticache_unit *unit)
{
    aoticache_uses_note(unit->number);
    uint64_t tick = atomic_load_explicit(&holder->eager->tick, memory_order_relaxed);
    if (atomic_load_explicit(&unit->last_tick, memory_order_relaxed) != tick)
        atomic_store_explicit(&unit->last_tick, tick, memory_order_relaxed);
}

/* compile.c */

/*
 * Gets a library for `wanted` from the cache or the hook and publishes it; keeps the failure, if it is one, in its miss_state.
 * Returns: OK; what compiling or loading returned.
 */
aoticache_status aoticache_holder_compile(aoticache_holder *holder, aoticache_wanted *wanted,
                                          aoticache_held **ret_held, aoticache_error *ret_error);
/* Kept for the calls that come before the next try, and logged where it is news. state: may be NULL. */
void aoticache_holder_note_failure(aoticache_holder *holder, aoticache_miss_state *state, aoticache_status status,
                                   const char *message);

/* miss.c */

/*
 * A call that the table does not answer. packed: NULL where the arguments cannot be a kernel's. consumed: as
 * aoticache_holder_run().
 */
aoticache_status aoticache_holder_call_slowly(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                              const aoticache_packed *packed, bool *consumed,
                                              aoticache_error *ret_error);

/* holder.c */

/*
 * Runs a loaded library on the arguments on top of the stack. In a section. LOAD_FAILED: it is none for such arguments (it
 * takes another number of tensors).
 *
 * consumed: NULL: the tensors of the arguments stay the caller's. Else the library takes their handles over, each once,
 * which saves making new ones; true where that has happened, whatever came of the run.
 */
aoticache_status aoticache_holder_run(aoticache_holder *holder, aoticache_runner *runner, aoticache_stack *stack,
                                      bool *consumed, aoticache_error *ret_error);
/*
 * A call whose kernel is ready: *ret_status is what came of it. False: it is not, and call_slowly() is next, with what was
 * packed where *ret_packs. In a section, with all arguments on the stack.
 */
bool aoticache_holder_call_ready(aoticache_holder *holder, aoticache_stack *stack, aoticache_packed *ret_packed,
                                 bool *ret_packs, bool *consumed, aoticache_status *ret_status,
                                 aoticache_error *ret_error);
/* What a call comes to that a ready kernel answered with `status`. Not in a section. */
aoticache_status aoticache_holder_conclude(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                           aoticache_status status, aoticache_error *ret_error);
aoticache_status aoticache_holder_fall_back(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                            aoticache_status status, const char *why, aoticache_error *ret_error);

/* compile_queue.c */

/* Takes `wanted` over where it returns true; false: the queue is full, or no thread could be had. */
bool aoticache_queue_add(aoticache_holder *holder, aoticache_wanted *wanted);
/* Drops what is queued and waits for what is under way. */
void aoticache_queue_end(aoticache_context *eager);

#endif
