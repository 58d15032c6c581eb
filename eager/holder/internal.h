/*
 * eager/holder/internal: what a holder and the context of all holders are made of. A call that hits needs hot.h, which
 * includes this.
 *
 * Private to holder/ and torch/. Locks, from the outermost: holder->load_lock, holder->lock, context->lock. A call that
 * hits takes none. No lock is held while a hook compiles; load_lock is held while a library is loaded, so that it is
 * loaded once.
 */
#ifndef AOTICACHE_EAGER_HOLDER_INTERNAL_H
#define AOTICACHE_EAGER_HOLDER_INTERNAL_H

#include "base/clock.h"
#include "cache/judgements.h"
#include "cache/request/request.h"
#include "eager/epoch.h"
#include "eager/holder/holder.h"
#include "eager/holder/judge.h"
#include "eager/schema/schema.h"
#include "eager/value.h"
#include "loader/check/check.h"
#include "loader/loader.h"
#include "loader/runner/runner.h"

#include <pthread.h>

/* ---- pack.c: the metadata of a call's arguments as flat words, hashed ---- */

#define AOTICACHE_PACK_MAX_WORDS 512

/*
 * What a table is probed with. The words are for this process alone: equal words mean equal metadata, and nothing else is
 * promised about them. Data pointers and handles are not metadata.
 */
typedef struct aoticache_packed {
    uint64_t hash;
    uint32_t count;
    bool requires_grad; /* some tensor does */
    uint64_t words[AOTICACHE_PACK_MAX_WORDS];
} aoticache_packed;

/*
 * False where no kernel can take the arguments: a generator or object is among them, a layout is not strided, a dtype or
 * device type is unknown, or the words do not fit. Allocates nothing.
 */
bool aoticache_pack(const aoticache_value *arguments, size_t count, aoticache_packed *ret_packed);

/* The tensors among the arguments, in order, without absent ones: the library's inputs. False: more than `capacity`. */
bool aoticache_pack_inputs(const aoticache_value *arguments, size_t count, AtenTensorHandle *ret_inputs,
                           size_t capacity, size_t *ret_count);

/* ---- call_counts.c: how often each library was called ---- */

/*
 * Every thread counts for itself, in memory that no other thread writes, so that counting is exact and never waits for
 * another processor; a reader adds up all threads. A library has a number, by which the threads' counters are found. A
 * thread that ends leaves its counters in its slot (eager/epoch.h), where the next thread goes on. Fork: the parent takes
 * what was counted until then.
 */

/* A number whose count is 0; 0: no memory. */
uint32_t aoticache_call_counts_open(void);
/* Gives the number back: nobody may count any more. Nothing with 0. */
void aoticache_call_counts_close(uint32_t number);
/*
 * read: the uses since the number was opened. take: the uses since the last take, or since the fork that made this
 * process. Calls under way on other threads may be missing, and are in the next answer.
 */
uint64_t aoticache_call_counts_read(uint32_t number);
uint64_t aoticache_call_counts_take(uint32_t number);
/* Marks one use that was noted as taken: the lookup that led to it has counted it. */
void aoticache_call_counts_take_one(uint32_t number);

/* Counts where the thread's array of counters does not reach as far as the number. */
void aoticache_call_counts_note_slowly(uint32_t number);

/* ---- table.c: from packed metadata to the kernel that serves it ---- */

/*
 * Open addressing. Readers take no lock and write nothing; one writer at a time (holder->lock). A probe costs two or
 * three cache lines, with one entry as with a hundred thousand. A reader is inside an epoch from the probe until it has
 * done with what it got.
 */

/* The part of a known kernel that a hit reads. */
typedef struct aoticache_known_kernel_hot {
    /* NULL: calls take the slow way: it is not loaded, or is not to answer. Unloading: store NULL (seq_cst), retire, unref */
    _Atomic(aoticache_runner *) runner;
    uint32_t number;                 /* of its uses; set before a runner is */
    atomic_uint_least64_t last_tick; /* the context's clock at the last use */
    void *detail;                    /* an aoticache_verdict; in holder->misses and dynamic_requests the state */
} aoticache_known_kernel_hot;

/* Written once, then read by anybody as long as the table lives. */
typedef struct aoticache_table_entry {
    _Atomic(aoticache_known_kernel_hot *) known; /* own, or another's: a dynamic library serves many entries */
    /* here, so that a hit of an entry that was long not used waits for no other cache line */
    aoticache_known_kernel_hot own;
    uint32_t count;
    uint64_t words[];
} aoticache_table_entry;

typedef struct aoticache_table_slots aoticache_table_slots;

/* Zero it to begin. All but slots is the writer's. */
typedef struct aoticache_table {
    _Atomic(aoticache_table_slots *) slots;
    size_t used;
    struct aoticache_table_chunk *chunks; /* what entries lie in, the newest first */
} aoticache_table;

struct aoticache_table_slots {
    aoticache_retired retired;
    uint64_t mask;
    struct aoticache_table_slot {
        atomic_uint_least64_t hash;             /* of entry; 0 means nothing */
        _Atomic(aoticache_table_entry *) entry; /* NULL: free, and the end of a chain */
    } slot[];
};

/* The entry for this metadata, NULL where there is none. */
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
 * The metadata must not be there yet. known: NULL for the entry's own, which begins zeroed but for detail. Readers may
 * find the entry at once.
 */
aoticache_table_entry *aoticache_table_insert(aoticache_table *table, const aoticache_packed *packed,
                                              aoticache_known_kernel_hot *known, void *detail);
/* The same in two steps: readers find the entry from publish on, which must be the next change of the table. */
aoticache_table_entry *aoticache_table_prepare(aoticache_table *table, const aoticache_packed *packed,
                                               aoticache_known_kernel_hot *known, void *detail);
void aoticache_table_publish(aoticache_table *table, const aoticache_packed *packed, aoticache_table_entry *entry);
/* Frees slots and entries at once: nobody may be reading. */
void aoticache_table_free(aoticache_table *table);

/* ---- record.c: what a program asked for, as a list that `aoticache warm` compiles elsewhere or beforehand ---- */

/*
 * One line for each different request (docs/warm.md has the form); requests that differ in their environment alone are
 * one. A request that a line cannot have (the data of constants) makes a line that says so. Requests that the file already
 * has, also as lines of text, are not written again.
 *
 * Thread safety: add() from any thread. Any number of processes may add to one file, each line by one write. Fork safety:
 * a child goes on with a recorder of its parent, whatever the parent's threads were doing.
 */
typedef struct aoticache_recorder aoticache_recorder;

/*
 * Creates the file where it is missing.
 * Returns: OK, INVALID (not a regular file), NO_MEMORY, DENIED, IO.
 */
aoticache_status aoticache_recorder_open(const char *path, aoticache_recorder **ret_recorder,
                                         aoticache_error *ret_error);
/* NULL is allowed. No call may be using it. */
void aoticache_recorder_close(aoticache_recorder *recorder);

/* Never fails the caller: what cannot be written is left out. A recorder of NULL records nothing. Preserves errno. */
void aoticache_recorder_add(aoticache_recorder *recorder, const aoticache_request *request);

/* ---- a known kernel ---- */

typedef enum aoticache_verdict_state {
    AOTICACHE_VERDICT_OPEN = 0, /* not known: the next call asks the cache */
    AOTICACHE_VERDICT_TRIAL,    /* calls go by turns to the kernel and to the fallback */
    AOTICACHE_VERDICT_FASTER,   /* the kernel answers */
    AOTICACHE_VERDICT_SLOWER,   /* the fallback does */
} aoticache_verdict_state;

/*
 * Whether a kernel earns its place, for calls of one class of sizes: an exact kernel has one verdict, a dynamic one a
 * verdict for each class. Where the holder does not judge, every kernel answers and nothing here matters.
 */
typedef struct aoticache_verdict {
    struct aoticache_known_kernel *known;
    aoticache_known_kernel_hot *hot; /* what calls find: in the table entry of an exact kernel, own of a dynamic one */
    aoticache_known_kernel_hot own;
    atomic_int state; /* an aoticache_verdict_state; changes under context->lock */
    uint32_t size_class;
    atomic_uint threads;            /* what it was judged for: a power of two */
    atomic_int_least64_t judged_ns; /* wall clock */
    uint32_t shown;                 /* turns of the kernel under way, for which calls find it; under context->lock */
    /* Under holder->lock: */
    uint64_t kernel_ns, fallback_ns;
    bool was_slower;        /* when it was judged last, here */
    bool is_unsaved;        /* the cache does not know that yet */
    uint32_t trial_number;  /* of this verdict's trials: a call that ends late is of an earlier one */
    aoticache_trial *trial; /* NULL: there was none */
} aoticache_verdict;

/*
 * One library that the holder keeps: known from its entry in the index or from a compile, loaded when it is first hit,
 * unloaded where there is a budget. Complete before readers find it; freed with the holder.
 */
typedef struct aoticache_known_kernel {
    _Atomic(aoticache_runner *) runner; /* loaded; NULL: it is not. Changes under context->lock */
    struct aoticache_holder *holder;
    uint32_t number;   /* as hot->number: the table, and what lies in it, may be freed before the known_kernels */
    aoticache_key key; /* of what it was compiled for */
    int64_t entry_id;  /* 0: not stored. Under holder->lock, as the artifact */
    aoticache_digest artifact;
    atomic_bool gone;       /* the cache no longer has it; it is not asked for again before it is made anew */
    aoticache_check *check; /* of a dynamic library: what it serves. NULL: exact */
    uint64_t loaded_bytes;  /* under context->lock, as the links: 0 while it is not loaded */
    struct aoticache_known_kernel *loaded_next, **loaded_link;
    struct aoticache_known_kernel *next; /* of the holder's, under holder->lock */
    uint32_t verdict_count;
    aoticache_verdict verdicts[];
} aoticache_known_kernel;

/* The known of what a table entry leads to. */
static inline aoticache_known_kernel *aoticache_known_kernel_of(const aoticache_known_kernel_hot *hot)
{
    return ((const aoticache_verdict *)hot->detail)->known;
}

/* The dynamic libraries for one dynamic request, the most special first. Replaced as a whole. */
typedef struct aoticache_dynamic_list {
    aoticache_retired retired;
    size_t count;
    aoticache_known_kernel *known_kernels[];
} aoticache_dynamic_list;

/* ---- what was asked for and is not there ---- */

/* Where a miss stands; in the `detail` of an entry of holder->misses. Freed with the holder. */
typedef struct aoticache_miss_state {
    atomic_int queued; /* a background compile of it is queued or under way in the process of this number; 0: none */
    atomic_uint_least64_t retry_ns; /* monotonic: not before */
    uint32_t failures;              /* in a row, under holder->lock */
    uint32_t asked, needed;  /* how often it was asked for, and must be before it is compiled; under holder->lock */
    bool entered;            /* it was counted among the dynamic request's shapes, and recorded; under holder->lock */
    aoticache_status status; /* of the last one, under holder->lock */
    char *message;           /* likewise; NULL: none */
    struct aoticache_miss_state *next;
} aoticache_miss_state;

/*
 * Where a dynamic request stands. Calls that are alike but for the sizes of their tensors make the same dynamic request; a
 * dynamic library serves calls of one such request only, since scalars and the like are compiled in. In the `detail` of an
 * entry of holder->dynamic_requests; freed with the holder.
 */
typedef struct aoticache_dynamic_state {
    _Atomic(aoticache_dynamic_list *) list; /* NULL: none */
    uint32_t shapes;                        /* different ones that have been missed; under holder->lock, as the rest */
    bool not_dynamic;                       /* a dynamic compile failed, or its library serves one shape only */
    struct aoticache_dynamic_state *next;
} aoticache_dynamic_state;

/*
 * Everything about a missed call that outlives it: its requests, exact and dynamic, and its metadata packed. Owned by the
 * call that waits, or by the job.
 */
typedef struct aoticache_miss_request {
    aoticache_request *exact;
    aoticache_request *dynamic; /* NULL: the call has no dynamic request */
    aoticache_packed *packed;
    uint64_t elements;                      /* of the call's tensors */
    bool prefer_dynamic;                    /* compile a dynamic library */
    aoticache_dynamic_state *dynamic_state; /* NULL as dynamic */
    aoticache_miss_state *miss_state;
    uint64_t compile_ns;  /* that the compile took; 0: nothing was compiled for it */
    uint64_t substituted; /* the arguments that are substituted tensors in the place of numbers (numbers.c) */
} aoticache_miss_request;

void aoticache_miss_request_free(aoticache_miss_request *miss);

/* ---- the holder ---- */

enum aoticache_returns { AOTICACHE_RETURNS_TENSORS, AOTICACHE_RETURNS_LIST };

struct aoticache_holder {
    /* What a hit reads comes first. */
    aoticache_table table;
    aoticache_value *defaults;         /* num_arguments */
    size_t num_arguments, num_returns; /* num_returns: of TENSORS */
    enum aoticache_returns returns;
    bool serve_requires_grad;
    bool judges;                         /* kernels on trial against the fallback (verdict.c) */
    uint64_t written;                    /* bit i: libraries write to argument i; of options.in_place alone */
    atomic_uint_least64_t substitutable; /* bit i: argument i is a number that libraries take as a tensor (numbers.c) */
    uint32_t lost;   /* the number of calls left to the fallback because it is faster (call_counts.c) */
    uint64_t serial; /* of all holders of the process */
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
    struct aoticache_number *numbers; /* num_arguments; NULL: nothing is known of any */
    size_t aliases;                   /* entries of the table that a dynamic library serves */
    size_t known_count;
    uint32_t miss_count; /* miss_states */
    int64_t last_entry;  /* the highest entry of the index that is known; under lock, as the rest up to here */
    struct aoticache_holder *next, **link; /* among the context's, under context->lock */
    size_t jobs;                           /* of the queue that have a reference; under context->lock */
    bool fill_failed;                      /* a failure to read the index has been logged, and is not logged again */
    uint32_t (*num_threads)(void *user);   /* that kernels and the fallback have; NULL: as many as processors */
    void *num_threads_user;
    /* Counts: atomic, relaxed. Hits are those of the libraries (call_counts.c). */
    atomic_size_t trials;       /* under way now */
    atomic_uint_least64_t left; /* to the fallback, as `lost`, by calls that came the slow way */
    atomic_uint_least64_t loads, misses_count, compiles, compile_failures, fallbacks, queued, dropped, dynamic_refused;
};

/* So many shapes that dynamic libraries serve get an entry of their own; further ones are found by the checks. */
#define AOTICACHE_HOLDER_MAX_ALIASES 65536

/* ---- what holders share ---- */

typedef struct aoticache_job aoticache_job;

/* An operator that is called by its name (eager/call.c), with so many tensors on the holder's device. */
typedef struct aoticache_named_operator {
    char *name;
    size_t num_inputs;
    aoticache_holder *holder;
    struct aoticache_named_operator *next;
} aoticache_named_operator;

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
    bool serve_requires_grad, fail_calls, judge;
    uint64_t (*clock_ns)(void); /* for trials: aoticache_monotonic_ns(); tests have their own */
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
    pthread_cond_t changed; /* something was queued or has ended */
    aoticache_job *first, **last;
    size_t queued, running, threads, idle;
    uint64_t ended; /* jobs, whatever came of them */
    bool ending;
    int owner; /* the process: threads and jobs of a parent are not there in a child */
    /* Of aoticache_context_open() and aoticache_call(). */
    bool owns_cache_and_hook;
    pthread_mutex_t named_lock;
    aoticache_named_operator *named_operators; /* under named_lock; freed with the context */
};

/* A call's turn of a trial. Zero it to begin. */
typedef struct aoticache_timed_call {
    aoticache_verdict *verdict; /* NULL: no turn was taken. Of a holder with this serial: */
    uint64_t serial;
    uint64_t begin_ns; /* when the fallback was called, where that follows the call of the holder */
    uint32_t trial_number;
    aoticache_contender way;
    bool is_untimed; /* by the caller: it takes turns elsewhere */
    bool was_wanted; /* such a call has met a trial */
    bool is_spared;  /* a compile that the call would have begun is not worth it yet (the budget of miss.c) */
    struct aoticache_numbers *substituted; /* to be taken back before the fallback is called; NULL: none */
} aoticache_timed_call;

/* ---- numbers.c: numbers that differ from call to call ---- */

#define AOTICACHE_NUMBERS_MOST 4

/* Whether it is that of real floats of 16, 32 or 64 bits. */
bool aoticache_holder_is_floating(int32_t dtype);

typedef struct aoticache_substituted_number {
    aoticache_value *place; /* of the argument, which was a DOUBLE of this value */
    double value;
    aoticache_tensor_view view;
} aoticache_substituted_number;

/* What is substituted to one call. */
typedef struct aoticache_numbers {
    size_t count;
    uint64_t arguments;                /* bit i: argument i; stays when they are taken back */
    struct aoticache_own_numbers *own; /* what the tensors are of; NULL: of this call alone */
    aoticache_substituted_number substituted[AOTICACHE_NUMBERS_MOST];
} aoticache_numbers;

/*
 * Puts tensors, without handles, into the places of the numbers that libraries take so. False, and nothing was changed: there
 * are none, or the call has a kernel with its numbers compiled in. packed: of the arguments. Inside an epoch.
 */
bool aoticache_numbers_substitute(const aoticache_holder *holder, aoticache_value *arguments,
                                  const aoticache_packed *packed, aoticache_numbers *ret_numbers);
/*
 * What a library is to run on. consume: it will take the tensors. False: they cannot be made, and the call must not be run.
 * Inside an epoch, or after one of this thread.
 */
bool aoticache_numbers_make_tensors(aoticache_numbers *numbers, bool consume);
/* The arguments are as they were, results are left alone. consumed: a library has taken the tensors. May be called again. */
void aoticache_numbers_take_back(aoticache_numbers *numbers, bool consumed);

/*
 * A call has no kernel. True: one of its arguments has had other values before, so many that it is substituted from now on: nothing
 * is to be compiled for this call. Takes holder->lock.
 */
bool aoticache_numbers_note(aoticache_holder *holder, const aoticache_value *arguments);
/* Arguments as a stored request has them. Under holder->lock. */
void aoticache_numbers_learn(aoticache_holder *holder, const aoticache_value *arguments);
/* Whether it is a tensor that was substituted, and none of the caller's. */
bool aoticache_number_is_substituted(const aoticache_value *value);
/* Bit i: argument i is a number by the schema, and a tensor here. */
uint64_t aoticache_numbers_substituted(const aoticache_holder *holder, const aoticache_value *arguments);
/* A library that takes these could not be made. They are compiled in from now on. Takes holder->lock. */
void aoticache_numbers_give_up(aoticache_holder *holder, uint64_t substituted);
/* Whether that has happened since they were substituted: a call that has failed may have a kernel all the same. */
bool aoticache_numbers_were_given_up(const aoticache_holder *holder, const aoticache_numbers *numbers);

/* ---- run.c ---- */

/*
 * Runs a loaded library on the arguments on top of the stack. Inside an epoch. LOAD_FAILED: the library does not fit these
 * arguments (it takes another number of tensors).
 *
 * consumed: NULL: the tensors of the arguments stay the caller's. Else the library takes their handles over, each once,
 * which saves making new ones; true where that has happened, whatever came of the run.
 */
aoticache_status aoticache_holder_run(aoticache_holder *holder, aoticache_runner *runner, aoticache_stack *stack,
                                      bool *consumed, aoticache_error *ret_error);
/*
 * Calls the kernel that is ready for arguments of any kind, lists and strings too; *ret_status is what came of it. False:
 * none is ready, and aoticache_holder_call_slowly() is next, with what was packed where *ret_packs. Inside an epoch, with
 * all arguments on the stack. Tensors and numbers alone are quicker by aoticache_holder_call_hot() (hot.h).
 */
bool aoticache_holder_call_ready(aoticache_holder *holder, aoticache_stack *stack, aoticache_packed *ret_packed,
                                 bool *ret_packs, bool *consumed, aoticache_status *ret_status,
                                 aoticache_error *ret_error);
/* What a call comes to that a ready kernel answered with `status`. Outside of epochs. */
aoticache_status aoticache_holder_conclude(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                           aoticache_status status, aoticache_error *ret_error);
aoticache_status aoticache_holder_fall_back(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                            aoticache_status status, const char *why, aoticache_error *ret_error);

/* ---- writes.c: operators that write to their arguments ---- */

/* Reads from the schema which arguments are written to. Returns: OK, UNSUPPORTED (another result is a view). */
aoticache_status aoticache_holder_read_writes(aoticache_holder *holder, aoticache_error *ret_error);
/* Whether it writes to arguments without saying so in its schema: running statistics. */
bool aoticache_holder_writes_silently(const aoticache_holder *holder);
/* Whether result `index` of the schema is one of the arguments that are written to. */
bool aoticache_holder_returns_argument(const aoticache_holder *holder, size_t index);
/* How many arguments are only there to be written to, by keyword: "out". */
size_t aoticache_holder_num_outs(const aoticache_holder *holder);
/* Whether no tensor that is written to overlaps itself or any other tensor of the call. */
bool aoticache_holder_writes_are_apart(const aoticache_holder *holder, const aoticache_value *arguments);
/*
 * Has a library compiled for the next call like this one, now or in the background, as the policy says, and runs nothing:
 * the fallback has answered this call, which counts it. packed: of the arguments on the stack.
 */
void aoticache_holder_prepare(aoticache_holder *holder, aoticache_stack *stack, const aoticache_packed *packed);

/* ---- miss.c ---- */

/*
 * A call that the table does not answer. packed: NULL where the arguments cannot be a kernel's. consumed: as
 * aoticache_holder_run(). ticket: of a trial that the call meets. If it is the fallback's turn, aoticache_timed_call_end() is for
 * whoever knows when that has answered. ret_compiles: NULL, or true is written where a compile would begin now, or be
 * queued; nothing has been done or counted then, and the status is NOT_FOUND.
 */
aoticache_status aoticache_holder_call_slowly(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                              const aoticache_packed *packed, bool *consumed,
                                              aoticache_timed_call *ticket, bool *ret_compiles,
                                              aoticache_error *ret_error);

/* ---- verdict.c: whether kernels earn their place ---- */

/*
 * A new trial: after so long, and when the number of threads has changed. Calls look after every so many of them; a power
 * of two.
 */
#define AOTICACHE_VERDICT_KEEPS_NS (INT64_C(24) * 3600 * 1000000000)
#define AOTICACHE_VERDICT_LOOKS 4096

/* Returns the trial state for calls in this size class. elements: total number of elements of the call's tensors. */
aoticache_verdict *aoticache_known_kernel_verdict(aoticache_known_kernel *known, uint64_t elements);
/* Returns the total number of elements of the tensors among the arguments. */
uint64_t aoticache_count_elements(const aoticache_value *arguments, size_t count);
/* Publishes the runner if the kernel is to answer calls from now on, otherwise NULL. Under context->lock. */
void aoticache_verdict_show(aoticache_verdict *verdict);
/* Returns the state that applies now. If none is known, looks in the cache; if the cache has none either, begins a trial. */
aoticache_verdict_state aoticache_verdict_settle(aoticache_verdict *verdict);
/* Reopens the question if the result is too old or for another number of threads. Inside an epoch. */
void aoticache_verdict_look_again(const aoticache_holder *holder, const aoticache_known_kernel_hot *hot);

/* The verdict of a kernel that is loaded and on trial, for a call with this metadata; else NULL. Inside an epoch. */
aoticache_verdict *aoticache_holder_find_trial(const aoticache_holder *holder, const aoticache_packed *packed);
/*
 * Takes a turn. False: the trial has just ended. If it is the kernel's, calls find the runner until the ticket ends, so that
 * what is timed is a hit like any other.
 */
bool aoticache_timed_call_begin(aoticache_timed_call *ticket, aoticache_verdict *verdict);
/*
 * The call took so long, whichever way it went; 0: it was not what it was to be, and does not count. Nothing where no turn
 * was taken, or `holder` is another one by now. Without locks.
 */
void aoticache_timed_call_end(aoticache_timed_call *ticket, aoticache_holder *holder, uint64_t ns);

/* Whether the fallback is known to be faster for this call; counts it where it is. Inside an epoch. */
bool aoticache_holder_prefers_fallback(const aoticache_holder *holder, const aoticache_packed *packed);
/* Whether the kernel of this request has lost here, at some time, so that compiling it again is in vain. */
bool aoticache_holder_was_slower(const aoticache_holder *holder, const aoticache_request *request);
/* Hands new judgements to the cache. */
void aoticache_holder_save_judgements(aoticache_holder *holder);

/* ---- complete.c ---- */

/* Whether an argument is a tensor without strides or an int where the schema says float: what others spell out. */
bool aoticache_holder_has_short_forms(const aoticache_holder *holder, const aoticache_value *arguments);
/*
 * Calls use() with the arguments spelt out, which are borrowed during that call. The arguments
 * have passed aoticache_holder_check_arguments(). Returns what use() returns; NO_MEMORY.
 */
aoticache_status aoticache_holder_with_spelt_out(const aoticache_holder *holder, const aoticache_value *arguments,
                                                 aoticache_status (*use)(void *user, const aoticache_value *spelt,
                                                                         aoticache_error *ret_error),
                                                 void *user, aoticache_error *ret_error);

/* ---- request.c ---- */

/* Whether every argument is of a kind that the schema takes, and every view one of a tensor: OK, INVALID. */
aoticache_status aoticache_holder_check_arguments(const aoticache_holder *holder, const aoticache_value *arguments,
                                                  aoticache_error *ret_error);
/*
 * The requests for a call: the exact one, with the hook's environment, and the dynamic one where there can be one.
 * Returns: OK, INVALID, UNSUPPORTED, NO_MEMORY.
 */
aoticache_status aoticache_holder_make_miss_request(aoticache_holder *holder, const aoticache_value *arguments,
                                                    const aoticache_packed *packed, aoticache_miss_request *ret_miss,
                                                    aoticache_error *ret_error);
/* The dynamic request of a call; NULL with OK where there is none. */
aoticache_status aoticache_holder_dynamic_request(const aoticache_holder *holder, const aoticache_value *arguments,
                                                  aoticache_request **ret_request, aoticache_error *ret_error);
/* What the requests of this holder have in their environment. hook: the context's, NULL for those that no hook completes. */
aoticache_status aoticache_holder_set_environment(const aoticache_holder *holder, const aoticache_hook *hook,
                                                  aoticache_request *request, aoticache_error *ret_error);

/* ---- request_values.c ---- */

/*
 * The values of a call that makes this request. They lie in *ret_bytes, which is the caller's, by free(), also on failure.
 * NULL where no call makes it, or without memory.
 */
aoticache_value *aoticache_holder_request_values(const aoticache_holder *holder, const aoticache_request *request,
                                                 char **ret_bytes);
/* The words under which a request's arguments would be found in the table: for entries of the index. */
bool aoticache_holder_pack_request(const aoticache_holder *holder, const aoticache_request *request,
                                   aoticache_packed *ret_packed);
/* The tensors of a request as views; *ret_views is the caller's, by free(). Pointers in them are the request's. */
aoticache_status aoticache_request_views(const aoticache_request *request, aoticache_tensor_view **ret_views,
                                         size_t *ret_count, aoticache_error *ret_error);

/* ---- fill.c ---- */

/* Makes entries of the index known that are not known yet. Failures are logged. */
void aoticache_holder_fill(aoticache_holder *holder);

/* ---- known_kernel.c ---- */

/*
 * A library of the cache or of a compile becomes known, or known anew. Under holder->lock. NULL without memory.
 * know_dynamic() takes the check over.
 */
aoticache_known_kernel *aoticache_holder_know_exact(aoticache_holder *holder, const aoticache_packed *packed,
                                                    const aoticache_key *key, const aoticache_digest *artifact,
                                                    int64_t entry_id);
aoticache_known_kernel *aoticache_holder_know_dynamic(aoticache_holder *holder, aoticache_dynamic_state *state,
                                                      const aoticache_key *key, const aoticache_digest *artifact,
                                                      int64_t entry_id, aoticache_check *check);
/* The state of a dynamic request, made where it is new. Under holder->lock. NULL without memory. */
aoticache_dynamic_state *aoticache_holder_dynamic_state(aoticache_holder *holder, const aoticache_request *request);
/* An entry for metadata that a dynamic library serves. Takes holder->lock. */
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
/* Hands the uses of all known kernels to the cache. */
void aoticache_holder_flush(aoticache_holder *holder);

/* ---- compile.c ---- */

/*
 * Gets a library for `miss` from the cache or the hook and publishes it; keeps the failure, if it is one, in its
 * miss_state. Returns: OK; what compiling or loading returned.
 */
aoticache_status aoticache_holder_compile(aoticache_holder *holder, aoticache_miss_request *miss,
                                          aoticache_known_kernel **ret_known, aoticache_error *ret_error);
/* Kept for the calls that come before the next try, and logged where it is news. state: may be NULL. */
void aoticache_holder_note_failure(aoticache_holder *holder, aoticache_miss_state *state, aoticache_status status,
                                   const char *message);

/* Queues a background compile. True: it took `miss` over. False: the queue is full, or no thread could be had. */
bool aoticache_queue_add(aoticache_holder *holder, aoticache_miss_request *miss);
/* Drops what is queued and waits for what is under way. */
void aoticache_queue_end(aoticache_context *context);

/* "aten::abs"; the schema as PyTorch prints it. Borrowed from the holder. */
const char *aoticache_holder_op(const aoticache_holder *holder);
const char *aoticache_holder_schema(const aoticache_holder *holder);

/*
 * The request that a call with these arguments makes: metadata in the order of the schema, keyword-only arguments by
 * name; arguments that are equal to their defaults are left out, so that giving a default or not is the same request.
 * *ret_request is the caller's. Returns: OK, INVALID, UNSUPPORTED, NO_MEMORY.
 */
aoticache_status aoticache_holder_request(const aoticache_holder *holder, const aoticache_value *arguments,
                                          size_t count, aoticache_request **ret_request, aoticache_error *ret_error);

#endif
