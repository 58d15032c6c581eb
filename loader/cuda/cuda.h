/*
 * loader/cuda/cuda: the GPUs of this machine.
 *
 * The CUDA driver (libcuda.so.1) is found through the dynamic linker at run time; nothing is linked with it, so that
 * one binary serves machines with and without a GPU. Nothing here creates a context. The first call initialises the
 * driver.
 *
 * The environment variable AOTICACHE_CUDA_DRIVER names another file to open instead of libcuda.so.1. It is ignored in
 * programs with more privileges than their user.
 *
 * Thread safety: all functions may be called from any thread. Fork: the driver does not survive a fork. A child whose
 * parent has queried the driver gets the parent's results.
 *
 * Users include <aoticache/runner.h>.
 */
#ifndef AOTICACHE_LOADER_CUDA_CUDA_H
#define AOTICACHE_LOADER_CUDA_CUDA_H

#include "loader/loader.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aoticache_cuda_device {
    char name[128];
    int32_t major, minor; /* compute capability */
    uint64_t memory_bytes;
    char arch[16];       /* "sm_90" */
    const char *problem; /* why the driver cannot read the device; its other members then mean nothing. NULL: it can */
} aoticache_cuda_device;

/* What the driver reports. It is queried once, for all devices; results, failures included, are kept. */
typedef struct aoticache_cuda {
    int32_t driver_version;  /* CUDA's version, 1000 * major + 10 * minor: 12040 */
    int32_t device_count;    /* 0 and more */
    const char *driver_path; /* the file that libcuda.so.1 was loaded from */
    const aoticache_cuda_device *devices;
} aoticache_cuda;

/*
 * Queries the driver. The result lives as long as the process.
 * Returns: OK (even if there is no device); NOT_FOUND (no driver; unlike elsewhere, with a message); UNSUPPORTED (the
 * driver lacks a function, or cannot start: the message has the driver's text); INVALID; NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_cuda_get(const aoticache_cuda **ret_cuda, aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
