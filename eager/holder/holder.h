/*
 * eager/holder/holder: serves one operator on one device: finds its kernels, runs them, and has missing ones compiled.
 * The counterpart of PyTorch's AOTIPythonKernelHolder (torch/csrc/inductor/aoti_eager/kernel_holder.h).
 *
 * One call: the arguments' metadata is packed into a flat buffer on the stack and hashed. A table of ready runners is
 * probed, and the packed bytes are compared. This is the hot path: it takes no locks, makes no system calls and allocates
 * nothing. If the table has no match, the holder tries the dynamic runners of this operator, the most specific first, then
 * the cache. On a miss the policy decides. A dynamic library serves every shape that its guard accepts.
 *
 * Thread safety: all functions from any thread. A call never blocks on a miss, an eviction or another call; memory that a
 * call may still be reading is freed later. A holder may be unreferenced while other threads call it, if each of them has a
 * reference. Fork: the child inherits every loaded kernel. Do not fork while another thread handles a miss or calls a kernel
 * on trial, or while a background compile runs; call aoticache_context_wait() first. Queued compiles stay with the parent.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_EAGER_HOLDER_HOLDER_H
#define AOTICACHE_EAGER_HOLDER_HOLDER_H

#include "eager/compile/compile.h"
#include "eager/value.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the context: what all holders of a host share ---- */

typedef struct aoticache_context aoticache_context;

/* What a call does if its kernel is missing. */
typedef enum aoticache_miss {
    AOTICACHE_MISS_WAIT = 0,       /* it waits for the compile (or for another process's compile of the same key) */
    AOTICACHE_MISS_BACKGROUND = 1, /* the fallback answers until the library is available; no call ever waits */
    AOTICACHE_MISS_NEVER = 2,      /* nothing is compiled: the cache or the fallback answers */
} aoticache_miss;

/* When a miss is compiled as a dynamic library, which serves many shapes, instead of a library for one shape. */
typedef enum aoticache_dynamic {
    AOTICACHE_DYNAMIC_NEVER = 0,
    AOTICACHE_DYNAMIC_AFTER = 1, /* once more than dynamic_after different shapes have been requested */
    AOTICACHE_DYNAMIC_ALWAYS = 2,
} aoticache_dynamic;

typedef struct aoticache_context_options {
    size_t size;
    aoticache_cache *cache; /* borrowed */
    aoticache_hook *hook;   /* borrowed; NULL: nothing is compiled */
    aoticache_miss miss;
    aoticache_dynamic dynamic;
    uint32_t dynamic_after;    /* 0: 4 */
    uint32_t threads;          /* background threads that compile; 0: 1 */
    uint32_t queue_length;     /* maximum number of queued misses; 0: 1024. Further misses are not queued */
    size_t max_loaded;         /* runners loaded at once; 0: no limit. Least recently used ones are unloaded */
    uint64_t max_loaded_bytes; /* 0: no limit */
    bool serve_requires_grad;  /* serve tensors that require gradients too (a binding that handles them itself) */
    bool fail_calls;           /* a failed compile or load is an error of the call. false: the fallback answers */
    const char
        *record_file; /* append each different request once, for `aoticache warm`; NULL: $AOTICACHE_RECORD, if set */
    aoticache_logger logger;
    /* "framework=pytorch", ..., NULL-terminated: set in every request, after the hook's pairs. A host without a hook names
     * here whose kernels it wants (docs/formats/key.md). If it names no framework, it gets any kernel in the cache,
     * whichever framework compiled it; kernels written in C are preferred. The architecture of a GPU is added
     * automatically. Borrowed during the creation. NULL: none. */
    const char *const *environment;
    /*
     * If true, the first calls that a kernel could answer alternate between it and the fallback and are timed; after that the
     * faster one answers. A call runs one of the two, never both. The result is stored in the cache per CPU model and number of
     * threads (cache/judgements.h), and is measured again after a day. If false, the kernel answers whenever it exists.
     * There are no trials for holders without a fallback, or on devices other than the CPU, because there a call
     * returns before its work is done.
     */
    bool judge;
} aoticache_context_options;

#define AOTICACHE_CONTEXT_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_context_options)

/* Creates a context. Returns: OK, INVALID, NO_MEMORY, IO (the record file). */
AOTICACHE_API aoticache_status aoticache_context_create(const aoticache_context_options *options,
                                                        aoticache_context **ret_context, aoticache_error *ret_error);
/* Ends the background threads: waits for running compiles and drops queued ones. Unreference all holders of the context
 * first. NULL is allowed. */
AOTICACHE_API void aoticache_context_free(aoticache_context *context);

/* Waits until no compile is queued or under way. Returns: OK, LOCKED (after timeout_ms; 0: without limit). */
AOTICACHE_API aoticache_status aoticache_context_wait(aoticache_context *context, uint32_t timeout_ms,
                                                      aoticache_error *ret_error);

/* Background compiles: how many are queued and running, and how many of this process have ended, successfully or not. */
typedef struct aoticache_context_compiles {
    uint64_t queued, running, ended;
} aoticache_context_compiles;
AOTICACHE_API void aoticache_context_get_compiles(aoticache_context *context, aoticache_context_compiles *ret_compiles);

/* Reports the uses of loaded runners to the cache, and flushes the cache. Misses also do this periodically. */
AOTICACHE_API aoticache_status aoticache_context_flush(aoticache_context *context, aoticache_error *ret_error);

/* ---- one operator ---- */

typedef struct aoticache_holder aoticache_holder;

/*
 * A boxed kernel: takes all arguments of its operator off the stack and pushes its results, or leaves the stack as it is
 * and returns an error. The results are OUTPUT values; the receiver frees their tensors. Under a holder with
 * options.in_place only results that are not arguments go onto the stack: "add_(Tensor(a!) self, ...) -> Tensor(a!)" writes
 * to self and pushes nothing. key_set: the dispatch key set of the call.
 */
typedef aoticache_status (*aoticache_kernel_fn)(void *user, uint64_t key_set, aoticache_stack *stack,
                                                aoticache_error *ret_error);

typedef struct aoticache_holder_options {
    size_t size;
    const char *schema;           /* "aten::abs(Tensor self) -> Tensor" */
    const char *dispatch_key;     /* "CPU", "CUDA": informational; NULL: derived from the device */
    aoticache_device device;      /* of the kernels */
    aoticache_kernel_fn fallback; /* NULL: a call that has no kernel fails */
    void *fallback_user;
    /*
     * Accept the schema of an operator that writes to its arguments or returns views of them. This is for callback hooks
     * whose libraries do both themselves: the worker refuses such requests, and the other hooks do not support them. To
     * serve operators that write to their arguments, set in_place instead.
     */
    bool allow_mutation;
    const aoticache_dynamic *dynamic; /* this operator's policy; NULL: the context's */
    /*
     * Serve an operator that writes to its arguments ("add_", "add.out", "_foreach_add_.List") with libraries that also
     * write to them. Its results on the stack are then only those that are not arguments: none for "add_(Tensor(a!) self,
     * ...) -> Tensor(a!)". The caller must make sure that no tensor that a call writes to overlaps itself or another tensor
     * of the call. Operators that return views of arguments they do not write to are still refused.
     */
    bool in_place;
} aoticache_holder_options;

#define AOTICACHE_HOLDER_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_holder_options)

/*
 * Creates a holder and fills its table with the index's entries for the operator, device and hook. The metadata are
 * read immediately; a library is loaded at its first hit.
 *
 * context: borrowed as long as the holder lives.
 * Returns: OK; INVALID (the schema: position and what was expected); UNSUPPORTED (the operator writes to its inputs without
 * in_place, returns views of them, or takes an argument that no kernel library can take: the argument is named); NO_MEMORY.
 * An index that cannot be read is not an error; it is logged.
 */
AOTICACHE_API aoticache_status aoticache_holder_create(aoticache_context *context,
                                                       const aoticache_holder_options *options,
                                                       aoticache_holder **ret_holder, aoticache_error *ret_error);
AOTICACHE_API aoticache_holder *aoticache_holder_ref(aoticache_holder *holder);
/* Drops a reference. Queued and running background compiles keep the holder alive, but never call the fallback. NULL is allowed. */
AOTICACHE_API void aoticache_holder_unref(aoticache_holder *holder);

/*
 * Calls the operator. The arguments are those of the schema, from the top of the stack; defaults must be filled in
 * (aoticache_holder_push_defaults() in <aoticache/dispatch.h>). On OK the call replaces them with the results, OUTPUT values
 * that the caller frees; on failure the stack is unchanged. An int is accepted if the schema says float, as in PyTorch. A tensor whose strides are
 * NULL is contiguous; a tensor on the CPU whose handle is NULL is in the caller's own memory (data, dtype, ndim, sizes,
 * strides). Each of these makes a call slower than complete views do.
 *
 * These calls go to the fallback: tensors that require gradients (unless served), a generator or object among the
 * arguments, a tensor that is not strided or not on this device, metadata of more than 4 KiB, and calls that miss or whose
 * kernel cannot be compiled, loaded or run for any reason except lack of memory. If the kernel itself fails, the call fails
 * (RUN_FAILED).
 *
 * Returns: OK; INVALID (too few arguments, or a value that the schema does not accept: argument, both kinds); what the
 * fallback returned; COMPILE_FAILED, UNSUPPORTED, LOAD_FAILED, NOT_FOUND without a fallback or with fail_calls;
 * RUN_FAILED; NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_holder_call(aoticache_holder *holder, uint64_t key_set, aoticache_stack *stack,
                                                     aoticache_error *ret_error);

/*
 * Does the same without a stack: the arguments are an array, which is only read, and those from position num_arguments on have
 * their defaults. On OK ret_results has the num_results results, OUTPUT values that the caller frees; on failure nothing.
 * Also INVALID, before the call: a missing argument has no default, or the operator has another number of results.
 */
AOTICACHE_API aoticache_status aoticache_holder_call_values(aoticache_holder *holder, uint64_t key_set,
                                                            const aoticache_value *arguments, size_t num_arguments,
                                                            aoticache_value *ret_results, size_t num_results,
                                                            aoticache_error *ret_error);

typedef struct aoticache_holder_counts {
    uint64_t hits;         /* answered by a runner that was ready, or that only had to be loaded */
    uint64_t hits_dynamic; /* included in hits: answered by a dynamic library */
    uint64_t loads;        /* libraries loaded */
    uint64_t misses;       /* kernels neither known nor in the index; not counted while a failure is remembered */
    uint64_t compiles, compile_failures;
    uint64_t fallbacks;       /* calls that the fallback answered */
    uint64_t queued, dropped; /* background: misses queued; misses not queued because the queue was full */
    size_t entries;           /* known combinations of argument metadata */
    size_t libraries;         /* known libraries: fewer than entries if some serve many shapes */
    size_t loaded;
    uint64_t calls_lost;  /* included in fallbacks: calls that went there because the fallback is faster */
    size_t judged;        /* kernels with a timing result (dynamic ones: one per size class) */
    size_t judged_slower; /* included in judged: those for which the fallback is faster */
    size_t on_trial;      /* kernels that are being compared with the fallback now */
    /* Estimated time saved by hits of kernels that were measured to be faster: measured difference times hits. For a
     * dynamic kernel the smallest difference among its size classes counts. */
    uint64_t gained_ns;
    uint64_t dynamic_refused; /* dynamic libraries that could not be compiled; exact ones are compiled instead */
} aoticache_holder_counts;
AOTICACHE_API void aoticache_holder_get_counts(const aoticache_holder *holder, aoticache_holder_counts *ret_counts);

#ifdef __cplusplus
}
#endif
#endif
