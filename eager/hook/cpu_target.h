/*
 * eager/hook/cpu_target: what a C compiler may use of the CPU, and what it takes for granted.
 *
 * Private.
 */
#ifndef AOTICACHE_EAGER_HOOK_CPU_TARGET_H
#define AOTICACHE_EAGER_HOOK_CPU_TARGET_H

#include "cache/request/cpu.h"

#define AOTICACHE_CPU_TARGET_FLAGS 64

/*
 * Options for a compiler that may use these features; cpu_features as "x86-64-v3" or "avx2,fma", NULL for all of this
 * machine. Strings are static; at most AOTICACHE_CPU_TARGET_FLAGS with the NULL at the end.
 * Returns: OK; UNSUPPORTED (a feature that no option switches on; less than this machine on another architecture).
 */
aoticache_status aoticache_cpu_target_flags(const char *cpu_features,
                                            const char *ret_flags[AOTICACHE_CPU_TARGET_FLAGS],
                                            aoticache_error *ret_error);

#define AOTICACHE_COMPILER_VERSION_BYTES 64

/* What a compiler says of itself. */
typedef struct aoticache_compiler {
    aoticache_cpu_features features; /* what it takes for granted under the options it was asked with */
    char producer[AOTICACHE_COMPILER_VERSION_BYTES]; /* "cc gcc 12.2.0" */
} aoticache_compiler;

/*
 * The features that the compiler takes for granted under these options, resolved: it is asked which macros it
 * predefines. environment: of the compiler's process, NULL: the host's.
 * Returns: OK, COMPILE_FAILED (the compiler does not answer), NOT_FOUND, DENIED, NO_MEMORY, IO.
 */
aoticache_status aoticache_cpu_target_resolve(const char *program, const char *const *flags,
                                              const char *const *environment, uint64_t deadline_ns,
                                              aoticache_compiler *ret_compiler, aoticache_error *ret_error);

#define AOTICACHE_CPU_TARGET_NAMES_BYTES 2048

/*
 * In the output of `cc -dM -E`: the names of the features, "avx2,fma", and the architecture that is compiled for, which is
 * returned: the one that the macros name, else this machine's.
 */
const char *aoticache_cpu_target_names(const char *text, char ret_names[AOTICACHE_CPU_TARGET_NAMES_BYTES]);

/* The features themselves. Returns: OK, UNSUPPORTED (a compiler for another architecture), NO_MEMORY. */
aoticache_status aoticache_cpu_target_from_macros(const char *text, aoticache_cpu_features *ret_features,
                                                  aoticache_error *ret_error);

/*
 * Row `position` of the list of features; false past the end. For the test that compares it with the one of worker.py.
 */
bool aoticache_cpu_target_row(size_t position, const char **ret_arch, const char **ret_name, const char **ret_macro,
                              const char **ret_option);

#endif
