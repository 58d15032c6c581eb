/*
 * eager: the framework side: compile hooks, and from a request to a runner.
 *
 * A hook turns a request into files (cache/cache.h, aoticache_compile_fn). Three kinds are made here: a worker (a
 * Python process with PyTorch that stays alive), a command (any program), C source (a kernel written in C, compiled by
 * cc); a function of the caller's is a fourth. Worker and command speak the JSON of docs/hooks.md.
 *
 * Thread safety: a hook may be used from many threads; a worker process serves one request at a time, others wait their
 * turn. Fork safety: a child that uses a hook of its parent starts workers of its own. What a hook has started ends when
 * the host ends, however it ends.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_EAGER_EAGER_H
#define AOTICACHE_EAGER_EAGER_H

#include "base/base.h"
#include "cache/cache.h"
#include "loader/runner/runner.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aoticache_hook aoticache_hook;

typedef struct aoticache_hook_options {
    size_t size;
    const char *program;          /* worker: the Python; command: the program; C: the compiler. NULL: see each */
    const char *const *arguments; /* command: its arguments, NULL-terminated, without the program; else NULL */
    const char *kernels;          /* C: folder of kernel sources; NULL: the ones that come with the library */
    /* What the code may use: "x86-64-v3", "avx2,fma"; "native": all this machine has. NULL: the setting `cpu` of the
     * configuration, which is native unless somebody set it. */
    const char *cpu_features;
    uint32_t timeout_seconds; /* of one compile; 0: 300 */
    aoticache_logger logger;
    uint64_t memory_limit_bytes;    /* of data memory, for each process of a compile (RLIMIT_DATA); 0: none */
    const char *const *environment; /* "NAME=VALUE", NULL-terminated: all that the program gets; NULL: the host's */
    uint32_t workers;               /* worker: how many compile at once; started as they are needed; 0: 1 */
    /* C: folders of sources, at most 16, NULL-terminated, in which a source is looked for in this order, then in `kernels` */
    const char *const *kernel_folders;
} aoticache_hook_options;

#define AOTICACHE_HOOK_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_hook_options)

/*
 * A Python process with PyTorch, started by the first miss, started again when it has died, ended with this process,
 * killed with its whole process group when a compile takes longer than the time-out.
 *
 * program: NULL for $AOTICACHE_PYTHON, else venv/bin/python under the folder that this library is installed in, else
 * python3 of $PATH. Creating a hook finds the version of PyTorch without importing it, since that version is part of
 * the environment; a Python is only started for it, for at most 20 s, where the installed files do not tell.
 * timeout_seconds: of one compile, the start of the worker included, from the moment its turn has come.
 * Returns: OK, NOT_FOUND (no Python), UNSUPPORTED (that Python has no PyTorch), DENIED, INVALID, NO_MEMORY, IO.
 */
AOTICACHE_API aoticache_status aoticache_hook_create_worker(const aoticache_hook_options *options,
                                                            aoticache_hook **ret_hook, aoticache_error *ret_error);

/*
 * program (required; a path, or a name in $PATH) is started once per compile, with the request on its standard input.
 * Its file is hashed now, since the hash is part of the environment: after a change of the program make a new hook.
 * Returns: OK, INVALID, NOT_FOUND, DENIED, NO_MEMORY, IO.
 */
AOTICACHE_API aoticache_status aoticache_hook_create_command(const aoticache_hook_options *options,
                                                             aoticache_hook **ret_hook, aoticache_error *ret_error);

/*
 * Kernels written in C, compiled for one dtype, sizes and strides. program: NULL for $AOTICACHE_CC, else cc. No Python
 * needed. Kernels of your own beside the bundled ones: name their folders in kernel_folders and leave `kernels` NULL. The
 * first folder that has a source for the operator decides. An operator without a source is UNSUPPORTED, already in
 * aoticache_hook_set_environment().
 * Returns: OK, NOT_FOUND (no compiler, no folder of kernels), UNSUPPORTED (cpu_features that no option switches on),
 * DENIED, INVALID, NO_MEMORY, IO.
 */
AOTICACHE_API aoticache_status aoticache_hook_create_c(const aoticache_hook_options *options, aoticache_hook **ret_hook,
                                                       aoticache_error *ret_error);

/*
 * A function of the caller's as a hook. docs/hooks.md, "A function as a hook", has an example.
 *
 * compile is called on a miss, and never for a hit: on the thread of the call if misses wait (AOTICACHE_MISS_WAIT), on a
 * background thread of the context with AOTICACHE_MISS_BACKGROUND; by several threads at once for different keys. No lock
 * that a call needs is held meanwhile, but the lease of the key is: do not ask for the same kernel inside.
 * It returns what deliver() returned, COMPILE_FAILED or UNSUPPORTED (aoticache_compile_fn in cache/cache.h).
 */
typedef struct aoticache_callback {
    size_t size;
    void *user; /* the first argument of both functions; borrowed until the hook is freed */
    aoticache_compile_fn compile;
    /*
     * Puts what the products depend on into the environment of a request; may be NULL: "framework" is then `producer`. It is
     * called for every request that is made, on any thread: when a holder is created, and when a call misses.
     */
    aoticache_status (*set_environment)(void *user, aoticache_request *request, aoticache_error *ret_error);
    const char *producer; /* "mycompiler 1.2"; copied */
    bool dynamic;         /* serves dynamic requests (environment "shapes" is "dynamic"): the product has a guard */
    bool numbers;         /* serves requests whose environment has "numbers" (docs/hooks.md) */
} aoticache_callback;

#define AOTICACHE_CALLBACK_INIT AOTICACHE_SIZED_INIT(aoticache_callback)

/* Returns: OK, INVALID, NO_MEMORY. */
AOTICACHE_API aoticache_status aoticache_hook_create_callback(const aoticache_callback *callback,
                                                              aoticache_hook **ret_hook, aoticache_error *ret_error);

/* Ends the worker. NULL is allowed. No call may be using the hook. */
AOTICACHE_API void aoticache_hook_free(aoticache_hook *hook);

/* "pytorch 2.13.0", "cc gcc 12.2.0" (asks the compiler once), "command PROGRAM": for people. Borrowed from the hook. */
AOTICACHE_API const char *aoticache_hook_producer(const aoticache_hook *hook);

/* The program that it starts: an absolute path; "" where it is a function. Borrowed from the hook. */
AOTICACHE_API const char *aoticache_hook_program(const aoticache_hook *hook);

/* Puts what this hook's products depend on into the environment of a request: call it before key, lookup or compile. */
AOTICACHE_API aoticache_status aoticache_hook_set_environment(const aoticache_hook *hook, aoticache_request *request,
                                                              aoticache_error *ret_error);

/* Compiles: an aoticache_compile_fn whose user is the hook. */
AOTICACHE_API aoticache_status aoticache_hook_compile(void *hook, const aoticache_request *request,
                                                      const char *directory, aoticache_deliver_fn deliver,
                                                      void *deliver_user, aoticache_error *ret_error);

/* What it took to get a runner. */
typedef struct aoticache_get_runner_report {
    aoticache_source source;
    bool stored;
    aoticache_key key;
    uint64_t lookup_ns;  /* get or compile, compiling included */
    uint64_t compile_ns; /* when it was made */
    uint64_t load_ns;    /* library and container */
} aoticache_get_runner_report;

/*
 * Get or compile, load, create a runner: the life of a call (docs/architecture.md) up to the run.
 *
 * hook: NULL to look up only (a miss is then NOT_FOUND). The hook's environment is set in the request.
 * ret_report: may be NULL.
 * A library that the index has but that cannot be loaded here is an error, not a miss.
 */
AOTICACHE_API aoticache_status aoticache_get_runner(aoticache_cache *cache, aoticache_hook *hook,
                                                    aoticache_request *request, aoticache_runner **ret_runner,
                                                    aoticache_get_runner_report *ret_report,
                                                    aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
