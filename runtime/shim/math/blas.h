/*
 * shim/blas: large products by the BLAS of the machine, where it has one.
 *
 * The library (OpenBLAS unless the build says otherwise: BLAS_LIBRARY in the Makefile) is never linked. It costs
 * megabytes and starts threads when it is loaded, so that it is loaded, once, by the first product large enough to gain
 * from it, into a scope of its own: its symbols do not meet those of a PyTorch that is imported later. Without it, and
 * for small products and whole numbers, matmul_block.c does the work. It uses no threads of its own: products are split
 * among those of OpenMP (threads.h).
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_BLAS_H
#define AOTICACHE_RUNTIME_SHIM_MATH_BLAS_H

#include "runtime/shim/math/matmul.h"

/* True: the product is done. False: nothing was written, and the caller does it. Any thread, at any time. */
bool aoticache_shim_blas_run(const struct matmul_problem *problem);

#endif
