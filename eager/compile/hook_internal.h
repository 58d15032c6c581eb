/*
 * eager/compile/hook_internal: the interface of a kind of compile hook, and what the kinds use: the protocol, the worker's
 * Python, the target of the C compiler. Processes are in process.h.
 *
 * Private to compile/.
 */
#ifndef AOTICACHE_EAGER_COMPILE_HOOK_INTERNAL_H
#define AOTICACHE_EAGER_COMPILE_HOOK_INTERNAL_H

#include "base/clock.h"
#include "cache/cache.h"
#include "cache/request/cpu.h"
#include "cache/request/request.h"
#include "eager/compile/compile.h"
#include "eager/compile/process.h"

#include <jansson.h>
#include <limits.h>

/* ---- protocol_request.c, protocol_answer.c: the JSON protocol of hooks ---- */

/*
 * Converts a request into a line, and an answer into a product (docs/hooks.md). Answers are untrusted: sizes, types, names and
 * files are checked here. A faulty answer is CORRUPT, and the message names the hook: nothing more should then be requested
 * from that process. Callers of hooks see it as COMPILE_FAILED.
 */

#define AOTICACHE_PROTOCOL_VERSION 1
/* Maximum size of one answer. Requests have no limit, because we write them. */
#define AOTICACHE_PROTOCOL_LINE_BYTES (1024 * 1024)
#define AOTICACHE_PROTOCOL_MAX_FILES 256

/*
 * Writes the request as one line of JSON with its newline, NUL-terminated; the caller frees *ret_line with free().
 * cpu_features: what the code may use, NULL for all this machine has. directory: private, absolute.
 * Returns: OK, UNSUPPORTED (a kind of argument that JSON cannot express), INVALID, NO_MEMORY.
 */
aoticache_status aoticache_protocol_write_request(const aoticache_request *request, uint64_t id,
                                                  const char *cpu_features, const char *directory, char **ret_line,
                                                  size_t *ret_size, aoticache_error *ret_error);

/*
 * Writes the data of constant arguments to the files that the request names, in `directory`.
 * Returns: OK, INVALID (a constant came without data), IO, DENIED.
 */
aoticache_status aoticache_protocol_write_constants(const aoticache_request *request, const char *directory,
                                                    aoticache_error *ret_error);

/* The answer of a hook. It owns all its strings. */
typedef struct aoticache_answer {
    aoticache_product product; /* compile_ns is 0 if the hook did not report it */
    json_t *json;
    aoticache_file *files;
    char **paths;
    char *output; /* the compiler's output; NULL: none */
} aoticache_answer;

/*
 * Reads an answer and checks everything in it, also the files: each must be a regular file, not a symbolic link, and
 * belong to this user.
 *
 * hook: for messages. directory: base of relative paths.
 * Returns: OK; COMPILE_FAILED, UNSUPPORTED (reported by the hook); CORRUPT (the answer is wrong); NO_MEMORY.
 */
aoticache_status aoticache_protocol_read_answer(const char *bytes, size_t size, uint64_t id, const char *hook,
                                                const char *directory, aoticache_answer *ret_answer,
                                                aoticache_error *ret_error);
void aoticache_answer_free(aoticache_answer *answer);

/* The greeting of a started worker. Borrowed strings live as long as `json`, which the caller releases. */
typedef struct aoticache_hello {
    json_t *json;
    const char *producer;
    const char *python;
} aoticache_hello;

/* Reads a greeting. Returns: OK, COMPILE_FAILED (the worker reports why it cannot work), CORRUPT (not a greeting). */
aoticache_status aoticache_protocol_read_hello(const char *bytes, size_t size, const char *hook,
                                               aoticache_hello *ret_hello, aoticache_error *ret_error);

/* ---- hook.c: shared by all kinds of hooks ---- */

#define AOTICACHE_HOOK_DEFAULT_TIMEOUT_SECONDS 300

/* Whether a hook serves dynamic requests. */
typedef enum aoticache_hook_shapes {
    AOTICACHE_HOOK_SHAPES_EXACT,   /* no: it does not get dynamic requests */
    AOTICACHE_HOOK_SHAPES_UNKNOWN, /* unknown, as it is the user's program: it gets them */
    AOTICACHE_HOOK_SHAPES_DYNAMIC,
} aoticache_hook_shapes;

/* The functions and properties of a kind of hook. */
typedef struct aoticache_hook_kind {
    const char *name; /* for messages: "worker", "command", "c" */
    aoticache_status (*set_environment)(const aoticache_hook *hook, aoticache_request *request,
                                        aoticache_error *ret_error);
    /* deadline_ns: of aoticache_monotonic_ns(). ret_answer: the caller frees it. CORRUPT is reported as COMPILE_FAILED. */
    aoticache_status (*compile)(aoticache_hook *hook, const aoticache_request *request, const char *directory,
                                uint64_t deadline_ns, aoticache_answer *ret_answer, aoticache_error *ret_error);
    /* If not NULL, used instead: compiles and delivers itself, to a function that checks what it gets. */
    aoticache_status (*compile_and_deliver)(aoticache_hook *hook, const aoticache_request *request,
                                            const char *directory, aoticache_deliver_fn deliver, void *deliver_user,
                                            aoticache_error *ret_error);
    const char *(*producer)(const aoticache_hook *hook);
    aoticache_hook_shapes (*shapes)(const aoticache_hook *hook);
    bool (*takes_numbers)(const aoticache_hook *hook); /* NULL: no */
    void (*free_state)(aoticache_hook *hook);
} aoticache_hook_kind;

struct aoticache_hook {
    const aoticache_hook_kind *kind;
    char *program;               /* a path */
    char *cpu_features;          /* NULL: all of this machine */
    char **environment;          /* for its programs; NULL: the host's */
    uint64_t memory_limit_bytes; /* 0: none */
    uint32_t timeout_seconds;
    aoticache_logger logger;
    void *state; /* belongs to the kind */
};

/*
 * Creates a hook with copies of all options, and a state of `state_bytes` zero bytes, which the kind fills and its free_state
 * frees. Checks options and cpu_features. program: copied. Returns: OK, INVALID, NO_MEMORY.
 */
aoticache_status aoticache_hook_allocate(const aoticache_hook_kind *kind, const aoticache_hook_options *options,
                                         const char *program, size_t state_bytes, aoticache_hook **ret_hook,
                                         aoticache_error *ret_error);

/* Reads the caller's options; NULL gives the defaults. Returns: OK, INVALID. */
aoticache_status aoticache_hook_read_options(const aoticache_hook_options *options, aoticache_hook_options *ret_options,
                                             aoticache_error *ret_error);

/* Sets the environment and the memory limit of the hook's programs. */
void aoticache_hook_set_process_options(const aoticache_hook *hook, aoticache_process_options *options);

/*
 * Returns COMPILE_FAILED for a hook whose process failed, with the reason ("took longer than 300 s and was killed", "exited
 * with status 1") and the end of its error output. Call it after the process has ended. doing: "compiling aten::abs".
 */
aoticache_status aoticache_hook_explain(const aoticache_hook *hook, aoticache_process *process,
                                        aoticache_process_event event, const char *doing, aoticache_error *ret_error);

/* ---- python.c: the Python of the worker, and its PyTorch ---- */

#define AOTICACHE_PYTHON_VERSION_BYTES 64

typedef struct aoticache_python {
    char path[PATH_MAX];
    /*
     * PyTorch's public version, "2.13.0", without "+cpu" or "+cu130": a process with libtorch gets its version from
     * aoti_torch_abi_version(), which has no such part, and both must result in the same key.
     */
    char torch_version[AOTICACHE_PYTHON_VERSION_BYTES];
} aoticache_python;

/*
 * Finds the Python of the worker, and its PyTorch.
 *
 * program: a path or a name, or NULL for $AOTICACHE_PYTHON, otherwise venv/bin/python of the directory that this library is
 * installed in, otherwise python3 of $PATH.
 *
 * The version is read from torch/version.py in that Python's package directories. Only if there is none, or if there are
 * different versions, Python is started, for at most 20 s.
 * environment: the one that Python will be started with, which affects its package directories; NULL: the host's.
 * Returns: OK; NOT_FOUND (no Python); UNSUPPORTED (it has no PyTorch); DENIED, NO_MEMORY, IO.
 */
aoticache_status aoticache_python_find(const char *program, const char *const *environment,
                                       aoticache_python *ret_python, aoticache_error *ret_error);

/* ---- cpu_target.c: CPU features that a C compiler may use, and those that it assumes ---- */

#define AOTICACHE_CPU_TARGET_FLAGS 64

/* Options for a compiler, NULL-terminated. They may point to `march`, so the struct must not be copied. */
typedef struct aoticache_cpu_target {
    const char *flags[AOTICACHE_CPU_TARGET_FLAGS];
    char march[256];
} aoticache_cpu_target;

/*
 * Returns options for a compiler that may use these features; cpu_features as "x86-64-v3" or "avx2,fma", NULL for all of this
 * machine.
 * Returns: OK; UNSUPPORTED (a feature that no option enables, or of another architecture; fewer than this machine has on
 * architectures other than x86-64 and aarch64).
 */
aoticache_status aoticache_cpu_target_flags(const char *cpu_features, aoticache_cpu_target *ret_target,
                                            aoticache_error *ret_error);

/* Writes the option for these features of aarch64: "-march=armv8.2-a+fp16+dotprod". */
void aoticache_cpu_target_march_aarch64(const aoticache_cpu_features *features, char *ret_march, size_t size);

#define AOTICACHE_COMPILER_VERSION_BYTES 64

/* Properties of a compiler. */
typedef struct aoticache_compiler {
    aoticache_cpu_features features;                 /* what it assumes with the options it was queried with */
    char producer[AOTICACHE_COMPILER_VERSION_BYTES]; /* "cc gcc 12.2.0" */
} aoticache_compiler;

/*
 * Finds the features that the compiler assumes with these options, resolved, from the macros that it predefines.
 * environment: of the compiler's process, NULL: the host's.
 * Returns: OK, COMPILE_FAILED (the compiler does not answer), NOT_FOUND, DENIED, NO_MEMORY, IO.
 */
aoticache_status aoticache_cpu_target_resolve(const char *program, const char *const *flags,
                                              const char *const *environment, uint64_t deadline_ns,
                                              aoticache_compiler *ret_compiler, aoticache_error *ret_error);

#define AOTICACHE_CPU_TARGET_NAMES_BYTES 2048

/*
 * Extracts the names of the features, "avx2,fma", from the output of `cc -dM -E`. Returns the target architecture: the one that
 * the macros name, otherwise this machine's.
 */
const char *aoticache_cpu_target_names(const char *text, char ret_names[AOTICACHE_CPU_TARGET_NAMES_BYTES]);

/* Extracts the features themselves. Returns: OK, UNSUPPORTED (a compiler for another architecture), NO_MEMORY. */
aoticache_status aoticache_cpu_target_from_macros(const char *text, aoticache_cpu_features *ret_features,
                                                  aoticache_error *ret_error);

/*
 * Returns row `position` of the list of features; false past the end. For the test that compares it with worker.py's list.
 */
bool aoticache_cpu_target_row(size_t position, const char **ret_arch, const char **ret_name, const char **ret_macro,
                              const char **ret_option);

/* ---- request_macros.c: a request as a C header, against which a kernel is compiled ---- */

/*
 * Writes the text of the header (docs/hooks.md lists the macros); the caller frees *ret_text with free().
 * Returns: OK; UNSUPPORTED (a device, layout or constant that kernels in C do not support); NO_MEMORY.
 */
aoticache_status aoticache_request_macros(const aoticache_request *request, char **ret_text, size_t *ret_size,
                                          aoticache_error *ret_error);

#define AOTICACHE_KERNEL_FILE_BYTES 264

/* Returns the name of an operator's source file: aten_add_Tensor.c for "aten::add.Tensor". */
void aoticache_kernel_file_name(const char *op, char ret_name[AOTICACHE_KERNEL_FILE_BYTES]);

#endif
