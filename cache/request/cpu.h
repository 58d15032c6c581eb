/*
 * cache/request/cpu: what a CPU can do, as named bits, and what an entry requires of it.
 *
 * A requirement is a set of resolved features ("avx2,fma"), never a word such as "native". Bit numbers are part of the
 * format on disk (docs/store.md): fixed, never reused.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_CACHE_REQUEST_CPU_H
#define AOTICACHE_CACHE_REQUEST_CPU_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AOTICACHE_CPU_FEATURE_WORDS 2

/* A set of features; bit n is bit n % 64 of words[n / 64]. All zero: any CPU of the architecture will do. */
typedef struct aoticache_cpu_features {
    uint64_t words[AOTICACHE_CPU_FEATURE_WORDS];
} aoticache_cpu_features;

/*
 * What this machine offers to programs: CPUID, and XGETBV for what the operating system has switched on; on aarch64
 * what the kernel says (AT_HWCAP). Computed once. AMX is there where the system saves tiles; a process on Linux must
 * still ask for them.
 */
AOTICACHE_API const aoticache_cpu_features *aoticache_cpu_features_get(void);

/* In place of names, where people say what code may use (the setting `cpu`, hook options): all that this machine has. */
#define AOTICACHE_CPU_NATIVE "native"

/* "x86_64", "aarch64": the machine's architecture, as uname -m names it. Static storage. */
AOTICACHE_API const char *aoticache_cpu_arch(void);

/* Returns whether `have` includes all of `required`. */
AOTICACHE_API bool aoticache_cpu_features_include(const aoticache_cpu_features *have,
                                                  const aoticache_cpu_features *required);

/* How many features are in the set: of two entries that both fit, the one with more is the more demanding. */
AOTICACHE_API unsigned aoticache_cpu_features_count(const aoticache_cpu_features *features);

/* The features of `required` that `have` lacks. */
AOTICACHE_API aoticache_cpu_features aoticache_cpu_features_lacking(const aoticache_cpu_features *have,
                                                                    const aoticache_cpu_features *required);

/*
 * Names joined by commas in the order of their bits ("avx,avx2,fma"), "" for none; bits without a name as "bit77".
 * Returns the length the whole text has; it is cut off where it is `size` or more (as snprintf does). Features of
 * x86-64 and of aarch64 have different bits, but some have the same name ("aes"): a text is meant for one architecture.
 */
AOTICACHE_API size_t aoticache_cpu_features_format(const aoticache_cpu_features *features, char *ret_text, size_t size);

/*
 * The reverse; spaces are allowed after commas. Names are those of /proc/cpuinfo where it has one (avx512f, bmi2, fma);
 * the spellings of GCC and Clang are understood too (sse4.1, lzcnt, pclmul, avx512vnni, amx-tile): '_', '-' and '.'
 * inside a name make no difference. "x86-64", "x86-64-v2", "-v3", "-v4" stand for the features of those levels (x86-64
 * psABI); on aarch64 "armv8.2-a", "armv9-a" and those between for what these versions demand.
 * What every x86-64 has (sse2), what does nothing where it is missing (shstk), and what only the operating system may
 * execute (xsaves) is understood and needs no bit. A name that both architectures have is this machine's.
 * Returns OK, or INVALID with the unknown name in ret_error.
 */
AOTICACHE_API aoticache_status aoticache_cpu_features_parse(const char *text, aoticache_cpu_features *ret_features,
                                                            aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
