/*
 * What compilers say with -dM -E, shortened to lines about the processor; the first two are those of GCC 12.2 for aarch64,
 * with -march=armv8.2-a+crypto+fp16+dotprod and without an option. With it, the features that they stand for.
 */
#ifndef AOTICACHE_TESTS_COMPILER_MACROS_H
#define AOTICACHE_TESTS_COMPILER_MACROS_H

#define AARCH64_MACROS \
    "#define __ARM_ARCH 8\n" \
    "#define __ARM_ARCH_8A 1\n" \
    "#define __ARM_ARCH_ISA_A64 1\n" \
    "#define __ARM_ARCH_PROFILE 65\n" \
    "#define __ARM_FEATURE_AES 1\n" \
    "#define __ARM_FEATURE_ATOMICS 1\n" \
    "#define __ARM_FEATURE_CLZ 1\n" \
    "#define __ARM_FEATURE_CRC32 1\n" \
    "#define __ARM_FEATURE_CRYPTO 1\n" \
    "#define __ARM_FEATURE_DOTPROD 1\n" \
    "#define __ARM_FEATURE_FMA 1\n" \
    "#define __ARM_FEATURE_FP16_SCALAR_ARITHMETIC 1\n" \
    "#define __ARM_FEATURE_FP16_VECTOR_ARITHMETIC 1\n" \
    "#define __ARM_FEATURE_IDIV 1\n" \
    "#define __ARM_FEATURE_NUMERIC_MAXMIN 1\n" \
    "#define __ARM_FEATURE_QRDMX 1\n" \
    "#define __ARM_FEATURE_SHA2 1\n" \
    "#define __ARM_FEATURE_UNALIGNED 1\n" \
    "#define __FP_FAST_FMA 1\n" \
    "#define __FP_FAST_FMAF 1\n" \
    "#define __FP_FAST_FMAF32 1\n" \
    "#define __FP_FAST_FMAF32x 1\n" \
    "#define __FP_FAST_FMAF64 1\n" \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_1 1\n" \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_16 1\n" \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_2 1\n" \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_4 1\n" \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_8 1\n" \
    "#define __aarch64__ 1\n"
#define AARCH64_FEATURES "atomics,crc32,aes,sha2,fphp,asimdhp,asimdrdm,asimddp"

#define AARCH64_PLAIN_MACROS \
    "#define __ARM_ARCH 8\n" \
    "#define __ARM_ARCH_8A 1\n" \
    "#define __ARM_ARCH_ISA_A64 1\n" \
    "#define __ARM_ARCH_PROFILE 65\n" \
    "#define __ARM_FEATURE_CLZ 1\n" \
    "#define __ARM_FEATURE_FMA 1\n" \
    "#define __ARM_FEATURE_IDIV 1\n" \
    "#define __ARM_FEATURE_NUMERIC_MAXMIN 1\n" \
    "#define __ARM_FEATURE_UNALIGNED 1\n" \
    "#define __FP_FAST_FMA 1\n" \
    "#define __FP_FAST_FMAF 1\n" \
    "#define __FP_FAST_FMAF32 1\n" \
    "#define __FP_FAST_FMAF32x 1\n" \
    "#define __FP_FAST_FMAF64 1\n" \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_1 1\n" \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_16 1\n" \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_2 1\n" \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_4 1\n" \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_8 1\n" \
    "#define __aarch64__ 1\n"

/* With a macro of the other list. */
#define X86_64_MACROS \
    "#define __x86_64__ 1\n" \
    "#define __GCC_HAVE_SYNC_COMPARE_AND_SWAP_16 1\n" \
    "#define __AES__ 1\n" \
    "#define __ARM_FEATURE_CRC32 1\n"
#define X86_64_FEATURES "cx16,aes"

#endif
