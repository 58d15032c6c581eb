/*
 * cache/request/cpu_list: every CPU feature that has a bit: its number, its name, and how it is detected.
 *
 * Private to cache/request/cpu.c, cpu_detect.c, the manifest and tests. Numbers are part of the format on disk: fixed, never
 * reused. x86-64 has 0 to 87, aarch64 has 88 to 127; unlisted numbers are free. Names are those of /proc/cpuinfo if it has
 * one.
 *
 * Some names exist on both architectures ("aes", "sm3"): which bit such a name means depends on the architecture for which
 * it is read.
 */
#ifndef AOTICACHE_CACHE_REQUEST_CPU_LIST_H
#define AOTICACHE_CACHE_REQUEST_CPU_LIST_H

#include "cache/request/cpu.h"

#define AOTICACHE_CPU_FEATURE_BITS (64 * AOTICACHE_CPU_FEATURE_WORDS)

/*
 * bit, name, CPUID register (leaf and output), bit in it, state that the operating system must have enabled. avx10_1 and
 * avx10_2 are versions and not bits of a register: cpu_detect.c handles them, and FSGSBASE, separately.
 */
#define AOTICACHE_CPU_X86_LIST(X)                                           \
    X(0, pni, 1_ECX, 0, NONE)                                               \
    X(1, ssse3, 1_ECX, 9, NONE)                                             \
    X(2, sse4_1, 1_ECX, 19, NONE)                                           \
    X(3, sse4_2, 1_ECX, 20, NONE)                                           \
    X(4, popcnt, 1_ECX, 23, NONE)                                           \
    X(5, cx16, 1_ECX, 13, NONE)                                             \
    X(6, lahf_lm, 80000001_ECX, 0, NONE)                                    \
    X(7, movbe, 1_ECX, 22, NONE)                                            \
    X(8, avx, 1_ECX, 28, YMM)                                               \
    X(9, avx2, 7_EBX, 5, YMM)                                               \
    X(10, fma, 1_ECX, 12, YMM)                                              \
    X(11, f16c, 1_ECX, 29, YMM)                                             \
    X(12, bmi1, 7_EBX, 3, NONE)                                             \
    X(13, bmi2, 7_EBX, 8, NONE)                                             \
    X(14, abm, 80000001_ECX, 5, NONE)                                       \
    X(15, xsave, 1_ECX, 26, XSAVE)                                          \
    X(16, aes, 1_ECX, 25, NONE)                                             \
    X(17, pclmulqdq, 1_ECX, 1, NONE)                                        \
    X(18, sha_ni, 7_EBX, 29, NONE)                                          \
    X(19, adx, 7_EBX, 19, NONE)                                             \
    X(20, rdrand, 1_ECX, 30, NONE)                                          \
    X(21, rdseed, 7_EBX, 18, NONE)                                          \
    X(22, fsgsbase, 7_EBX, 0, FSGSBASE)                                     \
    X(23, 3dnowprefetch, 80000001_ECX, 8, NONE)                             \
    X(24, gfni, 7_ECX, 8, NONE)                                             \
    X(25, vaes, 7_ECX, 9, YMM)                                              \
    X(26, vpclmulqdq, 7_ECX, 10, YMM)                                       \
    X(27, avx_vnni, 7_1_EAX, 4, YMM)                                        \
    X(28, avx_ifma, 7_1_EAX, 23, YMM)                                       \
    X(29, avx_vnni_int8, 7_1_EDX, 4, YMM)                                   \
    X(30, avx_ne_convert, 7_1_EDX, 5, YMM)                                  \
    X(31, avx_vnni_int16, 7_1_EDX, 10, YMM)                                 \
    X(32, avx512f, 7_EBX, 16, ZMM)                                          \
    X(33, avx512cd, 7_EBX, 28, ZMM)                                         \
    X(34, avx512dq, 7_EBX, 17, ZMM)                                         \
    X(35, avx512bw, 7_EBX, 30, ZMM)                                         \
    X(36, avx512vl, 7_EBX, 31, ZMM)                                         \
    X(37, avx512ifma, 7_EBX, 21, ZMM)                                       \
    X(38, avx512vbmi, 7_ECX, 1, ZMM)                                        \
    X(39, avx512_vbmi2, 7_ECX, 6, ZMM)                                      \
    X(40, avx512_vnni, 7_ECX, 11, ZMM)                                      \
    X(41, avx512_bitalg, 7_ECX, 12, ZMM)                                    \
    X(42, avx512_vpopcntdq, 7_ECX, 14, ZMM)                                 \
    X(43, avx512_bf16, 7_1_EAX, 5, ZMM)                                     \
    X(44, avx512_fp16, 7_EDX, 23, ZMM)                                      \
    X(45, avx512_vp2intersect, 7_EDX, 8, ZMM)                               \
    X(46, avx512er, 7_EBX, 27, ZMM)                                         \
    X(47, avx512pf, 7_EBX, 26, ZMM)                                         \
    X(48, avx512_4vnniw, 7_EDX, 2, ZMM)                                     \
    X(49, avx512_4fmaps, 7_EDX, 3, ZMM)                                     \
    X(50, amx_tile, 7_EDX, 24, TILE)                                        \
    X(51, amx_int8, 7_EDX, 25, TILE)                                        \
    X(52, amx_bf16, 7_EDX, 22, TILE)                                        \
    X(53, amx_fp16, 7_1_EAX, 21, TILE)                                      \
    X(54, amx_complex, 7_1_EDX, 8, TILE)                                    \
    X(55, sha512, 7_1_EAX, 0, YMM)                                          \
    X(56, sm3, 7_1_EAX, 1, YMM)                                             \
    X(57, sm4, 7_1_EAX, 2, YMM)                                             \
    X(58, cmpccxadd, 7_1_EAX, 7, NONE)                                      \
    X(59, sse4a, 80000001_ECX, 6, NONE)                                     \
    X(60, fma4, 80000001_ECX, 16, YMM)                                      \
    X(61, xop, 80000001_ECX, 11, YMM)                                       \
    X(62, tbm, 80000001_ECX, 21, NONE)                                      \
    X(63, lwp, 80000001_ECX, 15, LWP)                                       \
    X(64, xsaveopt, D_1_EAX, 0, XSAVE)                                      \
    X(65, xsavec, D_1_EAX, 1, XSAVE)                                        \
    X(66, sgx, 7_EBX, 2, NONE)                                              \
    X(67, clflushopt, 7_EBX, 23, NONE)                                      \
    X(68, clwb, 7_EBX, 24, NONE)                                            \
    X(69, clzero, 80000008_EBX, 0, NONE)                                    \
    X(70, rdpid, 7_ECX, 22, NONE)                                           \
    X(71, prefetchwt1, 7_ECX, 0, NONE)                                      \
    X(72, pku, 7_ECX, 4, NONE) /* OSPKE: PKU that the system has enabled */ \
    X(73, rtm, 7_EBX, 11, NONE)                                             \
    X(74, movdiri, 7_ECX, 27, NONE)                                         \
    X(75, movdir64b, 7_ECX, 28, NONE)                                       \
    X(76, waitpkg, 7_ECX, 5, NONE)                                          \
    X(78, serialize, 7_EDX, 14, NONE)                                       \
    X(79, raoint, 7_1_EAX, 3, NONE)                                         \
    X(80, ptwrite, 14_EBX, 4, NONE)                                         \
    X(81, tsxldtrk, 7_EDX, 16, NONE)                                        \
    X(82, enqcmd, 7_ECX, 29, NONE)                                          \
    X(83, uintr, 7_EDX, 5, NONE)                                            \
    X(84, mwaitx, 80000001_ECX, 29, NONE)                                   \
    X(85, apx_f, 7_1_EDX, 21, APX)                                          \
    X(86, avx10_1, NOWHERE, 0, ZMM)                                         \
    X(87, avx10_2, NOWHERE, 0, ZMM)

/*
 * bit, name, word of the auxiliary vector (1: AT_HWCAP, 2: AT_HWCAP2), bit in it.
 *
 * Sources: the names are those of "Features" in /proc/cpuinfo (hwcap_str of arch/arm64/kernel/cpuinfo.c in Linux); the bits
 * are HWCAP_* and HWCAP2_* of asm/hwcap.h, which Documentation/arch/arm64/elf_hwcaps.rst describes. The names of GCC and
 * Clang (-march=armv8-a+dotprod: GCC's manual, "AArch64 Options") are in the aliases of cpu.c. So NEON is asimd, dotprod is
 * asimddp, fp16 is fphp and asimdhp; i8mm, bf16, sve and sve2 have one name everywhere.
 */
#define AOTICACHE_CPU_AARCH64_LIST(X) \
    X(88, fp, 1, 0)                   \
    X(89, asimd, 1, 1)                \
    X(90, aes, 1, 3)                  \
    X(91, pmull, 1, 4)                \
    X(92, sha1, 1, 5)                 \
    X(93, sha2, 1, 6)                 \
    X(94, crc32, 1, 7)                \
    X(95, atomics, 1, 8)              \
    X(96, fphp, 1, 9)                 \
    X(97, asimdhp, 1, 10)             \
    X(98, asimdrdm, 1, 12)            \
    X(99, jscvt, 1, 13)               \
    X(100, fcma, 1, 14)               \
    X(101, lrcpc, 1, 15)              \
    X(102, sha3, 1, 17)               \
    X(103, sm3, 1, 18)                \
    X(104, sm4, 1, 19)                \
    X(105, asimddp, 1, 20)            \
    X(106, sha512, 1, 21)             \
    X(107, sve, 1, 22)                \
    X(108, asimdfhm, 1, 23)           \
    X(109, ilrcpc, 1, 26)             \
    X(110, flagm, 1, 27)              \
    X(111, sb, 1, 29)                 \
    X(112, sve2, 2, 1)                \
    X(113, sveaes, 2, 2)              \
    X(114, svepmull, 2, 3)            \
    X(115, svebitperm, 2, 4)          \
    X(116, svesha3, 2, 5)             \
    X(117, svesm4, 2, 6)              \
    X(118, flagm2, 2, 7)              \
    X(119, frint, 2, 8)               \
    X(120, svei8mm, 2, 9)             \
    X(121, svef32mm, 2, 10)           \
    X(122, svef64mm, 2, 11)           \
    X(123, svebf16, 2, 12)            \
    X(124, i8mm, 2, 13)               \
    X(125, bf16, 2, 14)               \
    X(126, rng, 2, 16)                \
    X(127, sme, 2, 23)

/* Detects the features of this machine (cpu_detect.c). */
void aoticache_cpu_detect(aoticache_cpu_features *ret_features);

/*
 * Like aoticache_cpu_features_parse(), for names meant for `arch` ("x86_64", "aarch64"): a name that exists on both
 * architectures means the one of `arch`.
 */
aoticache_status aoticache_cpu_features_parse_for(const char *arch, const char *text,
                                                  aoticache_cpu_features *ret_features, aoticache_error *ret_error);

#define AOTICACHE_CPU_FEATURE_NAME_BYTES 32

/* Writes the name that parse_for(arch) reads as exactly this bit: its name, or "bit77" if that name means another bit or
 * there is none. */
void aoticache_cpu_feature_name_for(const char *arch, unsigned bit, char ret_name[AOTICACHE_CPU_FEATURE_NAME_BYTES]);

static inline bool aoticache_cpu_features_has(const aoticache_cpu_features *features, unsigned bit)
{
    return features->words[bit / 64] >> bit % 64 & 1;
}

static inline void aoticache_cpu_features_add(aoticache_cpu_features *features, unsigned bit)
{
    features->words[bit / 64] |= UINT64_C(1) << bit % 64;
}

#endif
