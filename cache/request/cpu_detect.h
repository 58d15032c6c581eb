/*
 * cache/request/cpu_detect: the features of this machine's CPU, and sets of features as text.
 *
 * Users include <aoticache/admin.h>.
 */
#ifndef AOTICACHE_CACHE_REQUEST_CPU_DETECT_H
#define AOTICACHE_CACHE_REQUEST_CPU_DETECT_H

#include "cache/request/cpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Returns the features of this machine that programs can use: CPUID, and XGETBV for those that the operating system has
 * enabled; on aarch64 those that the kernel reports (AT_HWCAP). Computed once. AMX is included if the system saves tiles; a
 * process on Linux must still request permission to use them.
 */
AOTICACHE_API const aoticache_cpu_features *aoticache_cpu_features_get(void);

/* Used instead of names in the setting `cpu` and in hook options: all features of this machine. */
#define AOTICACHE_CPU_NATIVE "native"

/* Returns "x86_64", "aarch64": the machine's architecture, as uname -m names it. Static storage. */
AOTICACHE_API const char *aoticache_cpu_arch(void);

/*
 * Writes names joined by commas in the order of their bits ("avx,avx2,fma"), "" for none; bits without a name as "bit77".
 * Returns the length of the whole text, which is truncated to `size` (as snprintf does). Features of x86-64 and of aarch64
 * have different bits, but some have the same name ("aes"): a text is meant for one architecture.
 */
AOTICACHE_API size_t aoticache_cpu_features_format(const aoticache_cpu_features *features, char *ret_text, size_t size);

/*
 * Parses such a text; spaces are allowed after commas. Names are those of /proc/cpuinfo if it has one (avx512f, bmi2, fma);
 * the spellings of GCC and Clang are understood too (sse4.1, lzcnt, pclmul, avx512vnni, amx-tile): '_', '-' and '.' inside a
 * name make no difference. "x86-64", "x86-64-v2", "-v3", "-v4" stand for the features of those levels (x86-64 psABI); on
 * aarch64 "armv8.2-a", "armv9-a" and those between for what these versions demand.
 * Features that every x86-64 has (sse2), that do nothing if missing (shstk), and that only the operating system may execute
 * (xsaves) are accepted and need no bit. A name that both architectures have means the feature of this machine.
 * Returns OK, or INVALID with the unknown name in ret_error.
 */
AOTICACHE_API aoticache_status aoticache_cpu_features_parse(const char *text, aoticache_cpu_features *ret_features,
                                                            aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif

#endif
