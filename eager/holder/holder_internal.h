/*
 * eager/holder/holder_internal: the parts of a holder and of the context of all holders. A hit needs holder_hot.h, which
 * includes this file.
 *
 * Private to holder/; torch/ has it through holder_hot.h. Locks, from the outermost: holder->load_lock, holder->lock,
 * context->lock. A hit takes none. No lock is held while a hook compiles; load_lock is held while a library is loaded, so that
 * it is loaded once.
 */
#ifndef AOTICACHE_EAGER_HOLDER_INTERNAL_H
#define AOTICACHE_EAGER_HOLDER_INTERNAL_H

#include "base/clock.h"
#include "cache/judgements.h"
#include "cache/request/request.h"
#include "eager/dispatch/schema/schema.h"
#include "eager/epoch.h"
#include "eager/holder/holder.h"
#include "eager/holder/judge.h"
#include "eager/value.h"
#include "loader/check/check.h"
#include "loader/loader.h"
#include "loader/runner/runner.h"

#include <pthread.h>

/* ---- pack.c: the metadata of a call's arguments as flat words, hashed ---- */

#define AOTICACHE_PACK_MAX_WORDS 512

/*
 * The key of a table. The words are valid in this process only: equal words mean equal metadata, and nothing else is guaranteed
 * about them. Data pointers and handles are not metadata.
 */
typedef struct aoticache_packed {
    uint64_t hash;
    uint32_t count;
    bool requires_grad; /* at least one tensor requires gradients */
    uint64_t words[AOTICACHE_PACK_MAX_WORDS];
} aoticache_packed;

/*
 * Packs arguments. Returns false if no kernel can take them: a generator or object is among them, a layout is not strided, a
 * dtype or device type is unknown, or the words do not fit. Allocates nothing.
 */
bool aoticache_pack(const aoticache_value *arguments, size_t count, aoticache_packed *ret_packed);

/* Collects the tensors among the arguments, in order, without absent ones: the library's inputs. False: more than `capacity`. */
bool aoticache_pack_inputs(const aoticache_value *arguments, size_t count, AtenTensorHandle *ret_inputs,
                           size_t capacity, size_t *ret_count);

/* ---- call_counts.c: how often each library was called ---- */

/*
 * Every thread counts separately, in memory that no other thread writes, so counting is exact and never waits for another
 * processor; a reader adds up all threads. A library has a number, which is the index of the threads' counters. A thread that
 * ends leaves its counters in its slot (eager/epoch.h), and the slot's next thread continues with them. Fork: the parent takes
 * the counts made before the fork.
 */

/* Reserves a number and sets its count to 0. Returns 0 if out of memory. */
uint32_t aoticache_call_counts_open(void);
/* Releases the number: no thread may count with it any more. Does nothing for 0. */
void aoticache_call_counts_close(uint32_t number);
/*
 * read: returns the uses since the number was opened. take: returns the uses since the last take, or since the fork that
 * created this process. Concurrent calls of other threads may be missing, and are then in the next result.
 */
uint64_t aoticache_call_counts_read(uint32_t number);
uint64_t aoticache_call_counts_take(uint32_t number);
/* Marks one noted use as taken: the lookup that led to it has counted it. */
void aoticache_call_counts_take_one(uint32_t number);

/* Counts a use if the thread's array of counters is too short for the number. */
void aoticache_call_counts_note_slow_path(uint32_t number);

/* ---- table.c: maps packed metadata to the kernel that serves it ---- */

/*
 * A hash table with open addressing. Readers take no lock and write nothing; there is one writer at a time (holder->lock). A
 * probe costs two or three cache lines, whether there are one or a hundred thousand entries. A reader is inside an epoch from
 * the probe until it has finished with the result.
 */

/* The part of a known kernel that a hit reads. */
typedef struct aoticache_known_kernel_hot {
    /* NULL: calls take the slow path: not loaded, or must not answer. Unloading: store NULL (seq_cst), retire, unref */
    _Atomic(aoticache_runner *) runner;
    uint32_t number;                 /* number of its use counter; set before a runner */
    atomic_uint_least64_t last_tick; /* the context's clock at the last use */
    void *detail;                    /* an aoticache_verdict; in holder->misses and dynamic_requests their state */
} aoticache_known_kernel_hot;

/* Written once, then read by any thread as long as the table lives. */
typedef struct aoticache_table_entry {
    _Atomic(aoticache_known_kernel_hot *) known; /* &own, or that of a dynamic library, which serves many entries */
    /* here, so that a hit of an entry that is not in the caches loads no other cache line */
    aoticache_known_kernel_hot own;
    uint32_t count;
    uint64_t words[];
} aoticache_table_entry;

typedef struct aoticache_table_slots aoticache_table_slots;

/* Initially zero. Only the writer uses the members other than slots. */
typedef struct aoticache_table {
    _Atomic(aoticache_table_slots *) slots;
    size_t used;
    struct aoticache_table_chunk *chunks; /* memory of the entries, the newest chunk first */
} aoticache_table;

struct aoticache_table_slots {
    aoticache_retired retired;
    uint64_t mask;
    struct aoticache_table_slot {
        atomic_uint_least64_t hash;             /* hash of entry; not valid while 0 */
        _Atomic(aoticache_table_entry *) entry; /* NULL: free, and the end of a chain */
    } slot[];
};

/* Returns the entry for this metadata, or NULL. */
static inline aoticache_table_entry *aoticache_table_find(const aoticache_table *table, const aoticache_packed *packed)
{
    const aoticache_table_slots *slots = atomic_load(&table->slots);
    if (slots == NULL)
        return NULL;
    for (uint64_t i = packed->hash & slots->mask;; i = (i + 1) & slots->mask) {
        aoticache_table_entry *entry = atomic_load(&slots->slot[i].entry);
        if (entry == NULL)
            return NULL;
        if (atomic_load_explicit(&slots->slot[i].hash, memory_order_relaxed) == packed->hash &&
            entry->count == packed->count &&
            __builtin_memcmp(entry->words, packed->words, packed->count * sizeof packed->words[0]) == 0)
            return entry;
    }
}

/*
 * Inserts an entry. The metadata must not be in the table yet. known: NULL for the entry's own, which is zero except for
 * detail. Readers may find the entry immediately.
 */
aoticache_table_entry *aoticache_table_insert(aoticache_table *table, const aoticache_packed *packed,
                                              aoticache_known_kernel_hot *known, void *detail);
/* Do the same in two steps: readers find the entry after publish, which must be the next change of the table. */
aoticache_table_entry *aoticache_table_prepare(aoticache_table *table, const aoticache_packed *packed,
                                               aoticache_known_kernel_hot *known, void *detail);
void aoticache_table_publish(aoticache_table *table, const aoticache_packed *packed, aoticache_table_entry *entry);
/* Frees slots and entries immediately: no thread may be reading. */
void aoticache_table_free(aoticache_table *table);

/* ---- record.c: records a program's requests, for `aoticache warm` to compile elsewhere or in advance ---- */

/*
 * One line for each different request (docs/warm.md has the form); requests that differ only in their environment count as one.
 * A request that a line cannot express (the data of constants) is replaced by a line that says so. Requests that are already in
 * the file, also as lines of text, are not written again.
 *
 * Thread safety: add() from any thread. Any number of processes may append to one file, each line with one write. Fork safety:
 * a child continues with a recorder of its parent, whatever the parent's threads were doing.
 */
typedef struct aoticache_recorder aoticache_recorder;

/*
 * Opens a recorder; creates the file if it is missing.
 * Returns: OK, INVALID (not a regular file), NO_MEMORY, DENIED, IO.
 */
aoticache_status aoticache_recorder_open(const char *path, aoticache_recorder **ret_recorder,
                                         aoticache_error *ret_error);
/* Closes a recorder. NULL is allowed. No call may be using it. */
void aoticache_recorder_close(aoticache_recorder *recorder);

/* Records a request. Errors are ignored: the line is then left out. A recorder of NULL records nothing. Preserves errno. */
void aoticache_recorder_add(aoticache_recorder *recorder, const aoticache_request *request);

/* ---- a known kernel ---- */

typedef enum aoticache_verdict_state {
    AOTICACHE_VERDICT_OPEN = 0, /* unknown: the next call looks in the cache */
    AOTICACHE_VERDICT_TRIAL,    /* calls alternate between the kernel and the fallback */
    AOTICACHE_VERDICT_FASTER,   /* the kernel answers */
    AOTICACHE_VERDICT_SLOWER,   /* the fallback answers */
} aoticache_verdict_state;

/*
 * Whether a kernel is faster than the fallback, for calls of one size class: an exact kernel has one verdict, a dynamic one
 * has a verdict for each class. If the holder makes no trials, every kernel answers and verdicts do not matter.
 */
typedef struct aoticache_verdict {
    struct aoticache_known_kernel *known;
    aoticache_known_kernel_hot *hot; /* found by calls: in an exact kernel's table entry, or `own` of a dynamic one */
    aoticache_known_kernel_hot own;
    atomic_int state; /* an aoticache_verdict_state; changes under context->lock */
    uint32_t size_class;
    atomic_uint threads;            /* the number of threads it was measured with: a power of two */
    atomic_int_least64_t judged_ns; /* wall clock */
    uint32_t shown;                 /* current turns of the kernel, during which calls find it; under context->lock */
    /* Under holder->lock: */
    uint64_t kernel_ns, fallback_ns;
    bool was_slower;        /* result of the last trial in this process */
    bool is_unsaved;        /* the result is not in the cache yet */
    uint32_t trial_number;  /* of this verdict's trials: a call that ends late belongs to an earlier one */
    aoticache_trial *trial; /* NULL: there was none */
} aoticache_verdict;

/*
 * A library that the holder knows, from its entry in the index or from a compile. It is loaded on its first hit, and unloaded
 * if there is a limit. Complete before readers find it; freed with the holder.
 */
typedef struct aoticache_known_kernel {
    _Atomic(aoticache_runner *) runner; /* NULL: not loaded. Changes under context->lock */
    struct aoticache_holder *holder;
    uint32_t number;   /* as hot->number: the table with its entries may be freed before the known_kernels */
    aoticache_key key; /* of the request it was compiled for */
    int64_t entry_id;  /* 0: not stored. Under holder->lock, as the artifact */
    aoticache_digest artifact;
    atomic_bool gone;       /* the cache no longer has it; it is not looked up again until it is rebuilt */
    aoticache_check *check; /* of a dynamic library: the calls that it serves. NULL: exact */
    uint64_t loaded_bytes;  /* under context->lock, like the links: 0 while it is not loaded */
    struct aoticache_known_kernel *loaded_next, **loaded_link;
    struct aoticache_known_kernel *next; /* list of the holder, under holder->lock */
    uint32_t verdict_count;
    aoticache_verdict verdicts[];
} aoticache_known_kernel;

/* Returns the known kernel of a table entry. */
static inline aoticache_known_kernel *aoticache_known_kernel_of(const aoticache_known_kernel_hot *hot)
{
    return ((const aoticache_verdict *)hot->detail)->known;
}

/* The dynamic libraries for one dynamic request, the most specific first. Replaced as a whole. */
typedef struct aoticache_dynamic_list {
    aoticache_retired retired;
    size_t count;
    aoticache_known_kernel *known_kernels[];
} aoticache_dynamic_list;

/* ---- missing kernels ---- */

/* The state of a miss; the `detail` of an entry of holder->misses. Freed with the holder. */
typedef struct aoticache_miss_state {
    atomic_int queued;              /* id of the process in which a background compile is queued or running; 0: none */
    atomic_uint_least64_t retry_ns; /* no retry before this time (monotonic) */
    uint32_t failures;              /* in a row, under holder->lock */
    uint32_t asked, needed;         /* requests until now, and requests needed for a compile; under holder->lock */
    bool entered;            /* it was counted as a shape of the dynamic request, and recorded; under holder->lock */
    aoticache_status status; /* of the last failure, under holder->lock */
    char *message;           /* likewise; NULL: none */
    struct aoticache_miss_state *next;
} aoticache_miss_state;

/*
 * The state of a dynamic request. Calls that differ only in the sizes of their tensors make the same dynamic request. A dynamic
 * library serves calls of one such request only, because scalars and the like are compiled in. It is the `detail` of an entry
 * of holder->dynamic_requests, and freed with the holder.
 */
typedef struct aoticache_dynamic_state {
    _Atomic(aoticache_dynamic_list *) list; /* NULL: none */
    uint32_t shapes;                        /* different shapes that missed; under holder->lock, as the rest */
    bool not_dynamic;                       /* a dynamic compile failed, or its library serves one shape only */
    struct aoticache_dynamic_state *next;
} aoticache_dynamic_state;

/*
 * Everything about a missed call that outlives it: its exact and dynamic requests, and its packed metadata. Owned by the
 * waiting call, or by the job.
 */
typedef struct aoticache_miss_request {
    aoticache_request *exact;
    aoticache_request *dynamic; /* NULL: the call has no dynamic request */
    aoticache_packed *packed;
    uint64_t elements;                      /* of the call's tensors */
    bool prefer_dynamic;                    /* compile a dynamic library */
    aoticache_dynamic_state *dynamic_state; /* NULL if `dynamic` is */
    aoticache_miss_state *miss_state;
    uint64_t compile_ns;  /* time of the compile; 0: nothing was compiled for it */
    uint64_t substituted; /* bits of the arguments that are tensors substituted for numbers (numbers.c) */
} aoticache_miss_request;

void aoticache_miss_request_free(aoticache_miss_request *miss);

/* ---- the holder ---- */

enum aoticache_returns { AOTICACHE_RETURNS_TENSORS, AOTICACHE_RETURNS_LIST };

struct aoticache_holder {
    /* Members that a hit reads come first. */
    aoticache_table table;
    aoticache_value *defaults;         /* num_arguments */
    size_t num_arguments, num_returns; /* num_returns: number of returned tensors */
    enum aoticache_returns returns;
    bool serve_requires_grad;
    bool judges;                         /* makes trials of kernels against the fallback (verdict.c) */
    uint64_t written;                    /* bit i: libraries write to argument i; only with options.in_place */
    atomic_uint_least64_t substitutable; /* bit i: argument i is a number that libraries take as a tensor (numbers.c) */
    uint32_t lost;   /* counter of calls that use the fallback because it is faster (call_counts.c) */
    uint64_t serial; /* unique among all holders of the process */
    aoticache_dynamic dynamic;
    aoticache_kernel_fn fallback;
    void *fallback_user;
    aoticache_context *context;
    atomic_size_t references;
    aoticache_schema *schema;
    char *op, *schema_text, *dispatch_key;
    aoticache_device device;
    pthread_mutex_t load_lock, lock;
    aoticache_table misses, dynamic_requests;
    aoticache_known_kernel *known_kernels;
    aoticache_miss_state *miss_states;
    aoticache_dynamic_state *dynamic_states;
    struct aoticache_number *numbers; /* num_arguments; NULL: none was seen yet */
    size_t aliases;                   /* table entries for calls that a dynamic library serves */
    size_t known_count;
    uint32_t miss_count; /* number of miss states */
    int64_t last_entry;  /* the highest known entry of the index; under lock, as the rest up to here */
    struct aoticache_holder *next, **link; /* list of the context, under context->lock */
    size_t jobs;                           /* jobs of the queue that have a reference; under context->lock */
    bool fill_failed;                      /* a failure to read the index has been logged, and is not logged again */
    uint32_t (*num_threads)(void *user);   /* threads of kernels and fallback; NULL: as many as processors */
    void *num_threads_user;
    /* Counts: atomic, relaxed. Hits are counted per library (call_counts.c). */
    atomic_size_t trials;       /* number of current trials */
    atomic_uint_least64_t left; /* as `lost`, but calls that took the slow path */
    atomic_uint_least64_t loads, misses_count, compiles, compile_failures, fallbacks, queued, dropped, dynamic_refused;
};

/* Maximum number of shapes of dynamic libraries with their own table entry; others are found by the checks. */
#define AOTICACHE_HOLDER_MAX_ALIASES 65536

/* ---- what holders share ---- */

typedef struct aoticache_job aoticache_job;

/* An operator that is called by its name (eager/holder/call.c), for this number of tensors on the holder's device. */
typedef struct aoticache_named_operator {
    char *name;
    size_t num_inputs;
    aoticache_holder *holder;
    struct aoticache_named_operator *next;
} aoticache_named_operator;

struct aoticache_context {
    /* The clock of last use, which every load advances. Hits read it, so it is far from members that every miss changes. */
    atomic_uint_least64_t tick;
    aoticache_cache *cache;
    aoticache_hook *hook;
    aoticache_miss miss;
    aoticache_dynamic dynamic;
    uint32_t dynamic_after, queue_length, max_threads;
    size_t max_loaded;
    uint64_t max_loaded_bytes;
    bool serve_requires_grad, fail_calls, judge;
    uint64_t (*clock_ns)(void); /* for trials: aoticache_monotonic_ns(); tests use their own */
    aoticache_logger logger;
    char **environment;           /* pairs: name, value, name, ...; NULL-terminated; NULL: none */
    aoticache_recorder *recorder; /* NULL: nothing is recorded */
    atomic_size_t misses_until_flush;
    pthread_mutex_t lock;
    aoticache_holder *holders;
    aoticache_known_kernel *loaded;
    size_t loaded_count;
    uint64_t loaded_bytes;
    /* The queue of background compiles. */
    pthread_cond_t changed; /* a job was queued or has ended */
    aoticache_job *first, **last;
    size_t queued, running, threads, idle;
    uint64_t ended; /* jobs, successful or not */
    bool ending;
    int owner; /* the process: threads and jobs of a parent do not exist in a child */
    /* For aoticache_context_open() and aoticache_call(). */
    bool owns_cache_and_hook;
    bool has_default_hook; /* the caller of aoticache_context_open() gave none */
    pthread_mutex_t named_lock;
    aoticache_named_operator *named_operators; /* under named_lock; freed with the context */
};

/* A timed call of a trial. Initially zero. */
typedef struct aoticache_timed_call {
    aoticache_verdict *verdict; /* NULL: no turn was taken. The holder has this serial: */
    uint64_t serial;
    uint64_t begin_ns; /* when the fallback was called, if that follows the call of the holder */
    uint32_t trial_number;
    aoticache_contender contender;
    bool is_untimed;                       /* the caller does not time it: it takes turns elsewhere */
    bool was_wanted;                       /* an untimed call found a trial */
    bool is_deferred;                      /* the compile for this call was deferred (the budget of miss.c) */
    struct aoticache_numbers *substituted; /* to be undone before the fallback is called; NULL: none */
} aoticache_timed_call;

/* ---- numbers.c: numbers that differ from call to call ---- */

#define AOTICACHE_NUMBERS_MOST 4

/* Returns whether the dtype is a real float of 16, 32 or 64 bits. */
bool aoticache_holder_is_floating(int32_t dtype);

typedef struct aoticache_substituted_number {
    aoticache_value *place; /* the argument, which was a DOUBLE of this value */
    double value;
    aoticache_tensor_view view;
} aoticache_substituted_number;

/* The substitutions of one call. */
typedef struct aoticache_numbers {
    size_t count;
    uint64_t arguments;                /* bit i: argument i was substituted; stays set when that is undone */
    struct aoticache_own_numbers *own; /* owns the tensors; NULL: they belong to this call alone */
    aoticache_substituted_number substituted[AOTICACHE_NUMBERS_MOST];
} aoticache_numbers;

/*
 * Replaces the numbers that libraries take as tensors by tensors without handles. Returns false, and changes nothing, if there
 * are none, or if the call has a kernel with its numbers compiled in. packed: of the arguments. Inside an epoch.
 */
bool aoticache_numbers_substitute(const aoticache_holder *holder, aoticache_value *arguments,
                                  const aoticache_packed *packed, aoticache_numbers *ret_numbers);
/*
 * Creates the tensors for a library. False: they cannot be created, and the call must not be run. Inside an epoch, or after
 * one of this thread.
 */
bool aoticache_numbers_make_tensors(aoticache_numbers *numbers);
/* Restores the arguments; does not touch results. May be called repeatedly. */
void aoticache_numbers_take_back(aoticache_numbers *numbers);

/*
 * Notes the numbers of a call without a kernel. Returns true if an argument has now had enough different values to be
 * substituted from now on: nothing must be compiled for this call. Takes holder->lock.
 */
bool aoticache_numbers_note(aoticache_holder *holder, const aoticache_value *arguments);
/* Notes the arguments of a stored request. Under holder->lock. */
void aoticache_numbers_learn(aoticache_holder *holder, const aoticache_value *arguments);
/* Returns whether it is a substituted tensor, not one of the caller. */
bool aoticache_number_is_substituted(const aoticache_value *value);
/* Returns bit i if argument i is a number in the schema and a tensor here. */
uint64_t aoticache_numbers_substituted(const aoticache_holder *holder, const aoticache_value *arguments);
/* Notes that a library that takes these could not be compiled: they are compiled in from now on. Takes holder->lock. */
void aoticache_numbers_give_up(aoticache_holder *holder, uint64_t substituted);
/* Returns whether that has happened since they were substituted: then a failed call may have a kernel after all. */
bool aoticache_numbers_were_given_up(const aoticache_holder *holder, const aoticache_numbers *numbers);

/* ---- holder_run.c ---- */

/*
 * Runs a loaded library on the arguments on top of the stack. Inside an epoch. LOAD_FAILED: the library does not fit these
 * arguments (it takes another number of tensors).
 */
aoticache_status aoticache_holder_run(aoticache_holder *holder, aoticache_runner *runner, aoticache_stack *stack,
                                      aoticache_error *ret_error);
/*
 * Calls the kernel that is ready for arguments of any kind, including lists and strings; *ret_status is its status. False: none
 * is ready, and aoticache_holder_call_slow_path() must be called, with the packed arguments if *ret_packs. Inside an epoch,
 * with all arguments on the stack. For tensors and numbers only, aoticache_holder_call_hot() (holder_hot.h) is faster.
 */
bool aoticache_holder_call_ready(aoticache_holder *holder, aoticache_stack *stack, aoticache_packed *ret_packed,
                                 bool *ret_packs, aoticache_status *ret_status, aoticache_error *ret_error);
/* Completes a call that a ready kernel answered with `status`, and returns the call's status. Outside of epochs. */
aoticache_status aoticache_holder_conclude(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                           aoticache_status status, aoticache_error *ret_error);
aoticache_status aoticache_holder_fall_back(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                            aoticache_status status, const char *why, aoticache_error *ret_error);

/* ---- writes.c: operators that write to their arguments ---- */

/* Reads from the schema which arguments are written to. Returns: OK, UNSUPPORTED (another result is a view). */
aoticache_status aoticache_holder_read_writes(aoticache_holder *holder, aoticache_error *ret_error);
/* Returns whether the operator writes to arguments that its schema does not mark: running statistics. */
bool aoticache_holder_writes_silently(const aoticache_holder *holder);
/* Returns whether result `index` of the schema is one of the arguments that are written to. */
bool aoticache_holder_returns_argument(const aoticache_holder *holder, size_t index);
/* Returns the number of keyword arguments that are only written to: "out". */
size_t aoticache_holder_num_outs(const aoticache_holder *holder);
/* Returns whether no tensor that is written to overlaps itself or any other tensor of the call. */
bool aoticache_holder_writes_are_apart(const aoticache_holder *holder, const aoticache_value *arguments);
/*
 * Has a library compiled for later calls like this one, now or in the background, according to the policy, and runs nothing:
 * the fallback has answered this call. Counts the call. packed: of the arguments on the stack.
 */
void aoticache_holder_prepare(aoticache_holder *holder, aoticache_stack *stack, const aoticache_packed *packed);

/* ---- miss.c ---- */

/*
 * Answers a call that the table does not answer.
 *
 * packed:       NULL if no kernel can take the arguments.
 * timed:        the call's part in a trial; may be NULL. If it is the fallback's turn, the code that knows when the fallback
 * has
 *               answered must call aoticache_timed_call_end().
 * ret_compiles: NULL, or set to true if a compile would now begin or be queued; then nothing has been done or counted, and the
 *               status is NOT_FOUND.
 */
aoticache_status aoticache_holder_call_slow_path(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                                 const aoticache_packed *packed, aoticache_timed_call *timed,
                                                 bool *ret_compiles, aoticache_error *ret_error);

/* ---- verdict.c: whether kernels are faster than the fallback ---- */

/*
 * A new trial begins after this time, and when the number of threads has changed. Calls check this once every
 * AOTICACHE_VERDICT_LOOKS calls, a power of two.
 */
#define AOTICACHE_VERDICT_KEEPS_NS (INT64_C(24) * 3600 * 1000000000)
#define AOTICACHE_VERDICT_LOOKS 4096

/* Returns the trial state for calls in this size class. elements: total number of elements of the call's tensors. */
aoticache_verdict *aoticache_known_kernel_verdict(aoticache_known_kernel *known, uint64_t elements);
/* Returns the total number of elements of the tensors among the arguments. */
uint64_t aoticache_count_elements(const aoticache_value *arguments, size_t count);
/* Publishes the runner if the kernel must answer calls from now on, otherwise NULL. Under context->lock. */
void aoticache_verdict_show(aoticache_verdict *verdict);
/* Returns the state that applies now. If none is known, looks in the cache; if the cache has none either, begins a trial. */
aoticache_verdict_state aoticache_verdict_settle(aoticache_verdict *verdict);
/* Discards the result if it is too old or for another number of threads. Inside an epoch. */
void aoticache_verdict_look_again(const aoticache_holder *holder, const aoticache_known_kernel_hot *hot);

/* Returns the verdict of a loaded kernel on trial for a call with this metadata, or NULL. Inside an epoch. */
aoticache_verdict *aoticache_holder_find_trial(const aoticache_holder *holder, const aoticache_packed *packed);
/*
 * Takes a turn. False: the trial has just ended. If it is the kernel's turn, calls find the runner until the timed call ends,
 * so that a hit like any other is timed.
 */
bool aoticache_timed_call_begin(aoticache_timed_call *timed, aoticache_verdict *verdict);
/*
 * Notes the time of the call, of the kernel or the fallback; 0: the call did not go as planned, and does not count. Does
 * nothing if no turn was taken, or if `holder` is a different one by now. Without locks.
 */
void aoticache_timed_call_end(aoticache_timed_call *timed, aoticache_holder *holder, uint64_t ns);

/* Returns whether the fallback is known to be faster for this call, and then counts the call. Inside an epoch. */
bool aoticache_holder_prefers_fallback(const aoticache_holder *holder, const aoticache_packed *packed);
/* Returns whether the kernel of this request was once slower here: then compiling it again is useless. */
bool aoticache_holder_was_slower(const aoticache_holder *holder, const aoticache_request *request);
/* Stores new timing results in the cache. */
void aoticache_holder_save_judgements(aoticache_holder *holder);

/* ---- complete.c ---- */

/* Returns whether an argument has a short form: a tensor without strides, or an int for a float of the schema. */
bool aoticache_holder_has_short_forms(const aoticache_holder *holder, const aoticache_value *arguments);
/*
 * Calls use() with the arguments in full form, which are borrowed during that call. The arguments must have passed
 * aoticache_holder_check_arguments(). Returns what use() returns; NO_MEMORY.
 */
aoticache_status aoticache_holder_with_spelt_out(const aoticache_holder *holder, const aoticache_value *arguments,
                                                 aoticache_status (*use)(void *user, const aoticache_value *spelt,
                                                                         aoticache_error *ret_error),
                                                 void *user, aoticache_error *ret_error);

/* ---- request.c ---- */

/* Checks that the schema accepts every argument, and that every view describes a tensor. Returns: OK, INVALID. */
aoticache_status aoticache_holder_check_arguments(const aoticache_holder *holder, const aoticache_value *arguments,
                                                  aoticache_error *ret_error);
/*
 * Makes the requests for a call: the exact one, with the hook's environment, and the dynamic one if there is one.
 * Returns: OK, INVALID, UNSUPPORTED, NO_MEMORY.
 */
aoticache_status aoticache_holder_make_miss_request(aoticache_holder *holder, const aoticache_value *arguments,
                                                    const aoticache_packed *packed, aoticache_miss_request *ret_miss,
                                                    aoticache_error *ret_error);
/* Makes the dynamic request of a call; NULL with OK if there is none. */
aoticache_status aoticache_holder_dynamic_request(const aoticache_holder *holder, const aoticache_value *arguments,
                                                  aoticache_request **ret_request, aoticache_error *ret_error);
/* Sets the environment of this holder's requests. hook: the context's; NULL for requests that no hook completes. */
aoticache_status aoticache_holder_set_environment(const aoticache_holder *holder, const aoticache_hook *hook,
                                                  aoticache_request *request, aoticache_error *ret_error);

/* ---- request_values.c ---- */

/*
 * Returns the values of a call that makes this request. They are in *ret_bytes, which the caller frees with free(), also on
 * failure. NULL if no call makes it, or without memory.
 */
aoticache_value *aoticache_holder_request_values(const aoticache_holder *holder, const aoticache_request *request,
                                                 char **ret_bytes);
/* Packs the arguments of a request (an entry of the index) into the words of the table's keys. */
bool aoticache_holder_pack_request(const aoticache_holder *holder, const aoticache_request *request,
                                   aoticache_packed *ret_packed);
/* Returns a request's tensors as views; the caller frees *ret_views with free(). The request owns the pointers in them. */
aoticache_status aoticache_request_views(const aoticache_request *request, aoticache_tensor_view **ret_views,
                                         size_t *ret_count, aoticache_error *ret_error);

/* ---- fill.c ---- */

/* Adds new entries of the index to the table. Failures are logged. */
void aoticache_holder_fill(aoticache_holder *holder);

/* ---- known_kernel.c ---- */

/*
 * Make a library of the cache or of a compile known, or update it. Under holder->lock. NULL without memory.
 * know_dynamic() takes ownership of the check.
 */
aoticache_known_kernel *aoticache_holder_know_exact(aoticache_holder *holder, const aoticache_packed *packed,
                                                    const aoticache_key *key, const aoticache_digest *artifact,
                                                    int64_t entry_id);
aoticache_known_kernel *aoticache_holder_know_dynamic(aoticache_holder *holder, aoticache_dynamic_state *state,
                                                      const aoticache_key *key, const aoticache_digest *artifact,
                                                      int64_t entry_id, aoticache_check *check);
/* Returns the state of a dynamic request; creates it if it is new. Under holder->lock. NULL without memory. */
aoticache_dynamic_state *aoticache_holder_dynamic_state(aoticache_holder *holder, const aoticache_request *request);
/* Adds a table entry for metadata that a dynamic library serves. Takes holder->lock. */
void aoticache_holder_add_alias(aoticache_holder *holder, const aoticache_packed *packed, aoticache_verdict *verdict);

/*
 * Returns the runner of a library, and loads it if it is not loaded. Takes load_lock. Inside an epoch: the runner stays until
 * that is left. ret_is_counted: whether a lookup was made to load it, which has counted the call as a hit.
 */
aoticache_status aoticache_known_kernel_load(aoticache_known_kernel *known, aoticache_runner **ret_runner,
                                             bool *ret_is_counted, aoticache_error *ret_error);
/* Takes the artifact of a compile, loads it, and makes it known for `miss`. Takes load_lock. */
aoticache_status aoticache_holder_adopt(aoticache_holder *holder, const aoticache_miss_request *miss,
                                        aoticache_artifact *artifact, aoticache_known_kernel **ret_known,
                                        aoticache_error *ret_error);
/* Unloads all that the holder has loaded; it must not be in use. */
void aoticache_holder_unload_all(aoticache_holder *holder);
/* Reports the uses of all known kernels to the cache. */
void aoticache_holder_flush(aoticache_holder *holder);

/* ---- holder_compile.c ---- */

/*
 * Gets a library for `miss` from the cache or the hook and publishes it; keeps the failure, if it is one, in its
 * miss_state. Returns: OK; what compiling or loading returned.
 */
aoticache_status aoticache_holder_compile(aoticache_holder *holder, aoticache_miss_request *miss,
                                          aoticache_known_kernel **ret_known, aoticache_error *ret_error);
/* Keeps a failure for calls before the next try, and logs it if it is new. state: may be NULL. */
void aoticache_holder_note_failure(aoticache_holder *holder, aoticache_miss_state *state, aoticache_status status,
                                   const char *message);

/* Queues a background compile. True: it owns `miss` now. False: the queue is full, or no thread could be started. */
bool aoticache_queue_add(aoticache_holder *holder, aoticache_miss_request *miss);
/* Drops queued compiles and waits for running ones. */
void aoticache_queue_end(aoticache_context *context);

/* Returns the schema as PyTorch prints it. Borrowed from the holder. */
const char *aoticache_holder_schema(const aoticache_holder *holder);

/*
 * Makes the request of a call with these arguments: metadata in the order of the schema, keyword-only arguments by name.
 * Arguments that are equal to their defaults are left out, so that passing a default or not is the same request. The caller
 * frees *ret_request with aoticache_request_free(). Returns: OK, INVALID, UNSUPPORTED, NO_MEMORY.
 */
aoticache_status aoticache_holder_request(const aoticache_holder *holder, const aoticache_value *arguments,
                                          size_t count, aoticache_request **ret_request, aoticache_error *ret_error);

#endif
