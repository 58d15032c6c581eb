/*
 * shim/tensors/cpu: which extensions of the processor may be used.
 *
 * glibc has queried the processor at program start, and its result is used. GCC's builtins would query again at every
 * load of the shim: 0.1 ms in a virtual machine, in which the hypervisor handles the query. They are used if glibc is
 * older than 2.34.
 *
 * Private to runtime/shim/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_TENSORS_CPU_H
#define AOTICACHE_RUNTIME_SHIM_TENSORS_CPU_H

#include <stdbool.h>
#include <stdlib.h>

#if defined(__x86_64__) && __GLIBC_PREREQ(2, 34)
#include <sys/platform/x86.h>

/*
 * Does what x86_cpu_active() does, without its shift of a signed 1 by 31 bits. feature: x86_cpu_AVX2, ...: a bit of a
 * leaf's four registers.
 */
static inline bool shim_cpu_has(unsigned feature)
{
    const struct cpuid_feature *leaf = __x86_get_cpuid_feature_leaf(feature / 128);
    return (leaf->active_array[feature / 32 % 4] >> feature % 32 & 1) != 0;
}

#define SHIM_CPU_HAS(its_name, name) shim_cpu_has(x86_cpu_##name)
#elif defined(__x86_64__)
#define SHIM_CPU_HAS(its_name, name) __builtin_cpu_supports(its_name)
#else
#define SHIM_CPU_HAS(its_name, name) false
#endif

/* Returns whether there is AVX2 with its fused multiplications. */
static inline bool shim_has_avx2(void)
{
    return SHIM_CPU_HAS("avx2", AVX2) && SHIM_CPU_HAS("fma", FMA);
}

/* Returns whether there is the AVX-512 subset of all server processors, for which the loops are compiled. */
static inline bool shim_has_avx512(void)
{
    return SHIM_CPU_HAS("avx512f", AVX512F) && SHIM_CPU_HAS("avx512bw", AVX512BW) &&
           SHIM_CPU_HAS("avx512dq", AVX512DQ) && SHIM_CPU_HAS("avx512vl", AVX512VL);
}

/* Returns whether there are 32-bit sums of products of bytes in AVX-512 vectors. */
static inline bool shim_has_avx512_vnni(void)
{
    return shim_has_avx512() && SHIM_CPU_HAS("avx512vnni", AVX512_VNNI);
}

#endif
