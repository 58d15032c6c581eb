/*
 * shim/fft_plan: the discrete Fourier transform of one row of complex numbers, of any length, in double.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_FFT_PLAN_H
#define AOTICACHE_RUNTIME_SHIM_MATH_FFT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

struct fft_number {
    double re, im;
};

struct fft_plan;

/* For rows of `length` >= 1. NULL: out of memory. One plan serves one thread at a time. */
struct fft_plan *aoticache_shim_fft_plan_create(int64_t length);
void aoticache_shim_fft_plan_free(struct fft_plan *plan);
/* Transforms `row` in place, without a factor; forward has the exponent's sign negative. */
void aoticache_shim_fft_run(struct fft_plan *plan, struct fft_number *row, bool forward);

#endif
