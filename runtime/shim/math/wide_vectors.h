/*
 * shim/math/wide_vectors: whether functions that take vectors of 256 and 512 bits can be defined here.
 *
 * The psABI passes such vectors in registers, and so do the kernels that call these functions. GCC does so in a
 * function with the target attribute; Clang only if the whole file is compiled for AVX-512. Otherwise Clang passes them
 * in memory.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_WIDE_VECTORS_H
#define AOTICACHE_RUNTIME_SHIM_MATH_WIDE_VECTORS_H

#if defined(__x86_64__) && (!defined(__clang__) || defined(__AVX512F__))
#define SHIM_WIDE_VECTORS 1
#endif

#endif
