/*
 * eager/compile/compile: compile hooks, and the steps from a request to a runner.
 *
 * A hook turns a request into files (cache/cache.h, aoticache_compile_fn). There are four kinds: a worker (a Python process
 * with PyTorch that stays alive), a command (any program), C source (a kernel written in C, compiled by cc), and a callback
 * (a function of the caller). Worker and command use the JSON protocol of docs/hooks.md.
 *
 * Thread safety: many threads may use one hook. A worker process serves one request at a time; other requests wait. Fork
 * safety: a child that uses a hook of its parent starts its own workers. Processes that a hook has started end when the host
 * process ends, even if it is killed.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_EAGER_COMPILE_COMPILE_H
#define AOTICACHE_EAGER_COMPILE_COMPILE_H

#include "base/base.h"
#include "cache/cache.h"
#include "loader/runner/runner.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aoticache_hook aoticache_hook;

typedef struct aoticache_hook_options {
    size_t size;
    const char *program;          /* worker: the Python; command: the program; C: the compiler. NULL: see below */
    const char *const *arguments; /* command: its arguments, NULL-terminated, without the program; otherwise NULL */
    const char *kernels;          /* C: directory of kernel sources; NULL: those installed with the library */
    /* CPU features that the code may use: "x86-64-v3", "avx2,fma"; "native": all that this machine has. NULL: the setting
     * `cpu` of the configuration, which is native by default. */
    const char *cpu_features;
    uint32_t timeout_seconds; /* of one compile; 0: 300 */
    aoticache_logger logger;
    uint64_t memory_limit_bytes; /* of data memory, for each process of a compile (RLIMIT_DATA); 0: none */
    const char *const
        *environment; /* "NAME=VALUE", NULL-terminated: all variables of the program; NULL: the host's environment */
    uint32_t workers; /* worker: maximum number of worker processes, started on demand; 0: 1 */
    /* C: directories of sources, at most 16, NULL-terminated; searched in this order, then `kernels` */
    const char *const *kernel_directories;
    /* C: returns the source of an operator's kernel ("aten::add.Tensor"), valid until the hook is freed, the same one each time;
     * NULL: the directories are searched. Called on any thread. */
    const char *(*source)(void *user, const char *op);
    void *source_user; /* the first argument of `source`; borrowed until the hook is freed */
} aoticache_hook_options;

#define AOTICACHE_HOOK_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_hook_options)

/*
 * Creates a hook that compiles in a Python process with PyTorch (a worker). The first miss starts the worker. It is started
 * again if it has died, it ends with this process, and it is killed with its whole process group if a compile exceeds the
 * time limit.
 *
 * program: NULL for $AOTICACHE_PYTHON, otherwise venv/bin/python in the directory that this library is installed in,
 * otherwise python3 of $PATH. Creating a hook determines the version of PyTorch, which is part of the environment, without
 * importing it. Only if the installed files do not give the version, a Python is started to get it, for at most 20 s.
 * timeout_seconds: time limit of one compile, including the start of the worker, from the moment a worker is assigned.
 * Returns: OK, NOT_FOUND (no Python), UNSUPPORTED (that Python has no PyTorch), DENIED, INVALID, NO_MEMORY, IO.
 */
AOTICACHE_API aoticache_status aoticache_hook_create_worker(const aoticache_hook_options *options,
                                                            aoticache_hook **ret_hook, aoticache_error *ret_error);

/*
 * Creates a hook that starts `program` (required; a path, or a name in $PATH) once per compile, with the request on its
 * standard input. The file of the program is hashed when the hook is created, because the hash is part of the environment:
 * if the program changes, create a new hook.
 * Returns: OK, INVALID, NOT_FOUND, DENIED, NO_MEMORY, IO.
 */
AOTICACHE_API aoticache_status aoticache_hook_create_command(const aoticache_hook_options *options,
                                                             aoticache_hook **ret_hook, aoticache_error *ret_error);

/*
 * Creates a hook that compiles kernels written in C, each for one combination of dtype, sizes and strides. Needs no Python.
 * program: NULL for $AOTICACHE_CC, otherwise cc. To add your own kernels to the bundled ones, give their text with `source`, or
 * name their directories in kernel_directories, and leave `kernels` NULL; the text, otherwise the first directory that has a
 * source for the operator is used. An operator without a source is UNSUPPORTED, and aoticache_hook_set_environment() reports it
 * already. The digest of the source is part of the key.
 * Returns: OK, NOT_FOUND (no compiler, no directory of kernels), UNSUPPORTED (cpu_features for which the compiler has no
 * option), DENIED, INVALID, NO_MEMORY, IO.
 */
AOTICACHE_API aoticache_status aoticache_hook_create_c(const aoticache_hook_options *options, aoticache_hook **ret_hook,
                                                       aoticache_error *ret_error);

/*
 * A function of the caller as a hook. docs/hooks.md, "A function as a hook", has an example.
 *
 * compile is called on a miss, never on a hit: on the thread of the call if calls wait (AOTICACHE_MISS_WAIT), on a
 * background thread of the context with AOTICACHE_MISS_BACKGROUND; several threads may call it concurrently for different
 * keys. No lock that calls need is held meanwhile, but the lease of the key is: do not request the same kernel inside.
 * It returns what deliver() returned, COMPILE_FAILED or UNSUPPORTED (aoticache_compile_fn in cache/cache.h).
 */
typedef struct aoticache_callback {
    size_t size;
    void *user; /* the first argument of both functions; borrowed until the hook is freed */
    aoticache_compile_fn compile;
    /*
     * Adds what the compiled files depend on to the environment of a request. NULL: only the pair "framework" is set,
     * to `producer`.
     * Called for every request that is created, on any thread: when a holder is created, and when a call misses.
     */
    aoticache_status (*set_environment)(void *user, aoticache_request *request, aoticache_error *ret_error);
    const char *producer; /* "mycompiler 1.2"; copied */
    bool dynamic;         /* serves dynamic requests (environment "shapes" is "dynamic"): the library has a guard */
    bool numbers;         /* serves requests whose environment has "numbers" (docs/hooks.md) */
} aoticache_callback;

#define AOTICACHE_CALLBACK_INIT AOTICACHE_SIZED_INIT(aoticache_callback)

/* Creates a hook that calls the callback. Returns: OK, INVALID, NO_MEMORY. */
AOTICACHE_API aoticache_status aoticache_hook_create_callback(const aoticache_callback *callback,
                                                              aoticache_hook **ret_hook, aoticache_error *ret_error);

/* Frees a hook and ends its workers. NULL is allowed. No call may be using the hook. */
AOTICACHE_API void aoticache_hook_free(aoticache_hook *hook);

/* Describes a hook. The texts are borrowed from it. */
typedef struct aoticache_hook_info {
    const char *producer; /* human-readable: "pytorch 2.13.0", "cc gcc 12.2.0" or "command PROGRAM" */
    const char *program;  /* the absolute path of the program that the hook starts; "" for a callback */
} aoticache_hook_info;
/* Returns the description of a hook; empty texts for NULL. A hook for C runs the compiler once to find out its version. */
AOTICACHE_API aoticache_hook_info aoticache_hook_get_info(const aoticache_hook *hook);

/* Adds what this hook's compiled files depend on to the environment of a request. Call it before you compute the key,
 * look up or compile. */
AOTICACHE_API aoticache_status aoticache_hook_set_environment(const aoticache_hook *hook, aoticache_request *request,
                                                              aoticache_error *ret_error);

/* Compiles a request: an aoticache_compile_fn whose user is the hook. */
AOTICACHE_API aoticache_status aoticache_hook_compile(void *hook, const aoticache_request *request,
                                                      const char *directory, aoticache_deliver_fn deliver,
                                                      void *deliver_user, aoticache_error *ret_error);

/* How a runner was obtained, and how long it took. */
typedef struct aoticache_get_runner_report {
    aoticache_source source;
    bool stored;
    aoticache_key key;
    uint64_t lookup_ns;  /* lookup, including the compile */
    uint64_t compile_ns; /* of the compile that made the library */
    uint64_t load_ns;    /* library and container */
} aoticache_get_runner_report;

/*
 * Gets a runner: looks the kernel up or compiles it, loads it and creates a runner. These are all steps of a call
 * (docs/architecture.md) before the run.
 *
 * hook: its environment is set in the request. NULL: nothing is compiled, and a miss is NOT_FOUND.
 * ret_report: may be NULL.
 * A library that is in the index but cannot be loaded here is an error, not a miss.
 */
AOTICACHE_API aoticache_status aoticache_get_runner(aoticache_cache *cache, aoticache_hook *hook,
                                                    aoticache_request *request, aoticache_runner **ret_runner,
                                                    aoticache_get_runner_report *ret_report,
                                                    aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
