/*
 * shim/failure: how functions of the shim say what went wrong.
 *
 * The interface knows only a status; the text goes to storage of the calling thread, where
 * torch_exception_get_what_without_backtrace() finds it.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_FAILURE_H
#define AOTICACHE_RUNTIME_SHIM_FAILURE_H

#include "base/base.h"
#include "runtime/abi.h"

enum { SHIM_SUCCESS = 0, SHIM_FAILURE = 1 };

#define SHIM_MESSAGE_BYTES 512

/* Keeps the text and returns SHIM_FAILURE, so that a failure is one statement. */
AOTITorchError aoticache_shim_fail(const char *format, ...) AOTICACHE_PRINTF(1, 2) __attribute__((cold));

/* "function: out of memory for BYTES bytes". */
AOTITorchError aoticache_shim_fail_memory(const char *function, size_t bytes) __attribute__((cold));

/* The dtype's name, or "dtype 99" written to `buffer`. */
#define SHIM_DTYPE_TEXT_BYTES 32
const char *aoticache_shim_dtype_text(int32_t dtype, char buffer[SHIM_DTYPE_TEXT_BYTES]);

#endif
