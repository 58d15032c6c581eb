/*
 * Output of compilers with -dM -E, reduced to lines about the processor; the first three are those of GCC 12.2 for
 * aarch64, with -march=armv8.2-a+crypto+fp16+dotprod, with -march=armv8.6-a+crypto+sve2+sve2-aes and without an option.
 * Each with the features that the macros stand for.
 */
#ifndef AOTICACHE_TESTS_COMPILER_MACROS_H
#define AOTICACHE_TESTS_COMPILER_MACROS_H

#define AARCH64_MACROS                                 \
    "#define __ARM_ARCH 8\n"                           \
    "#define __ARM_ARCH_8A 1\n"                        \
    "#define __ARM_ARCH_ISA_A64 1\n"                   \
    "#define __ARM_ARCH_PROFILE 65\n"                  \
    "#define __ARM_FEATURE_AES 1\n"                    \
    "#define __ARM_FEATURE_ATOMICS 1\n"                \
    "#define __ARM_FEATURE_CLZ 1\n"                    \
    "#define __ARM_FEATURE_CRC32 1\n"                  \
    "#define __ARM_FEATURE_CRYPTO 1\n"                 \
    "#define __ARM_FEATURE_DOTPROD 1\n"                \
    "#define __ARM_FEATURE_FMA 1\n"                    \
    "#define __ARM_FEATURE_FP16_SCALAR_ARITHMETIC 1\n" \
    "#define __ARM_FEATURE_FP16_VECTOR_ARITHMETIC 1\n" \
    "#define __ARM_FEATURE_IDIV 1\n"                   \
    "#define __ARM_FEATURE_NUMERIC_MAXMIN 1\n"         \
    "#define __ARM_FEATURE_QRDMX 1\n"                  \
    "#define __ARM_FEATURE_SHA2 1\n"                   \
    "#define __ARM_FEATURE_UNALIGNED 1\n"              \
    "#define __FP_FAST_FMA 1\n"                        \
    "#define __FP_FAST_FMAF 1\n"                       \
    "#define __FP_FAST_FMAF32 1\n"                     \
    "#define __FP_FAST_FMAF32x 1\n"                    \
    "#define __FP_FAST_FMAF64 1\n"                     \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_1 1\n"   \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_16 1\n"  \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_2 1\n"   \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_4 1\n"   \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_8 1\n"   \
    "#define __aarch64__ 1\n"
#define AARCH64_FEATURES "atomics,crc32,aes,pmull,sha1,sha2,fphp,asimdhp,asimdrdm,asimddp"

#define AARCH64_SVE2_MACROS                            \
    "#define __ARM_64BIT_STATE 1\n"                    \
    "#define __ARM_ALIGN_MAX_PWR 28\n"                 \
    "#define __ARM_ALIGN_MAX_STACK_PWR 16\n"           \
    "#define __ARM_ARCH 8\n"                           \
    "#define __ARM_ARCH_8A 1\n"                        \
    "#define __ARM_ARCH_ISA_A64 1\n"                   \
    "#define __ARM_ARCH_PROFILE 65\n"                  \
    "#define __ARM_FEATURE_AES 1\n"                    \
    "#define __ARM_FEATURE_ATOMICS 1\n"                \
    "#define __ARM_FEATURE_BF16_SCALAR_ARITHMETIC 1\n" \
    "#define __ARM_FEATURE_BF16_VECTOR_ARITHMETIC 1\n" \
    "#define __ARM_FEATURE_CLZ 1\n"                    \
    "#define __ARM_FEATURE_COMPLEX 1\n"                \
    "#define __ARM_FEATURE_CRC32 1\n"                  \
    "#define __ARM_FEATURE_CRYPTO 1\n"                 \
    "#define __ARM_FEATURE_DOTPROD 1\n"                \
    "#define __ARM_FEATURE_FMA 1\n"                    \
    "#define __ARM_FEATURE_FP16_FML 1\n"               \
    "#define __ARM_FEATURE_FP16_SCALAR_ARITHMETIC 1\n" \
    "#define __ARM_FEATURE_FP16_VECTOR_ARITHMETIC 1\n" \
    "#define __ARM_FEATURE_FRINT 1\n"                  \
    "#define __ARM_FEATURE_IDIV 1\n"                   \
    "#define __ARM_FEATURE_JCVT 1\n"                   \
    "#define __ARM_FEATURE_MATMUL_INT8 1\n"            \
    "#define __ARM_FEATURE_NUMERIC_MAXMIN 1\n"         \
    "#define __ARM_FEATURE_QRDMX 1\n"                  \
    "#define __ARM_FEATURE_SHA2 1\n"                   \
    "#define __ARM_FEATURE_SVE 1\n"                    \
    "#define __ARM_FEATURE_SVE2 1\n"                   \
    "#define __ARM_FEATURE_SVE2_AES 1\n"               \
    "#define __ARM_FEATURE_SVE_BITS 0\n"               \
    "#define __ARM_FEATURE_SVE_MATMUL_INT8 1\n"        \
    "#define __ARM_FEATURE_SVE_VECTOR_OPERATORS 1\n"   \
    "#define __ARM_FEATURE_UNALIGNED 1\n"              \
    "#define __ARM_FP 14\n"                            \
    "#define __ARM_FP16_ARGS 1\n"                      \
    "#define __ARM_FP16_FORMAT_IEEE 1\n"               \
    "#define __ARM_NEON 1\n"                           \
    "#define __ARM_PCS_AAPCS64 1\n"                    \
    "#define __ARM_SIZEOF_MINIMAL_ENUM 4\n"            \
    "#define __ARM_SIZEOF_WCHAR_T 4\n"                 \
    "#define __aarch64__ 1\n"
#define AARCH64_SVE2_FEATURES                                                                                                 \
    "atomics,crc32,aes,pmull,sha1,sha2,fphp,asimdhp,asimdrdm,asimddp,asimdfhm,jscvt,fcma,lrcpc,frint,ilrcpc,flagm,bf16,i8mm," \
    "sve,svei8mm,sve2,sveaes,svepmull"

#define AARCH64_PLAIN_MACROS                          \
    "#define __ARM_ARCH 8\n"                          \
    "#define __ARM_ARCH_8A 1\n"                       \
    "#define __ARM_ARCH_ISA_A64 1\n"                  \
    "#define __ARM_ARCH_PROFILE 65\n"                 \
    "#define __ARM_FEATURE_CLZ 1\n"                   \
    "#define __ARM_FEATURE_FMA 1\n"                   \
    "#define __ARM_FEATURE_IDIV 1\n"                  \
    "#define __ARM_FEATURE_NUMERIC_MAXMIN 1\n"        \
    "#define __ARM_FEATURE_UNALIGNED 1\n"             \
    "#define __FP_FAST_FMA 1\n"                       \
    "#define __FP_FAST_FMAF 1\n"                      \
    "#define __FP_FAST_FMAF32 1\n"                    \
    "#define __FP_FAST_FMAF32x 1\n"                   \
    "#define __FP_FAST_FMAF64 1\n"                    \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_1 1\n"  \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_16 1\n" \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_2 1\n"  \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_4 1\n"  \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_8 1\n"  \
    "#define __aarch64__ 1\n"

/* The macros for x86-64. */
#define X86_64_MACROS                                 \
    "#define __x86_64__ 1\n"                          \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_16 1\n" \
    "#define __AES__ 1\n"                             \
    "#define __ARM_FEATURE_CRC32 1\n"
#define X86_64_FEATURES "cx16,aes"

#endif
