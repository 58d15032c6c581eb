/*
 * loader/cuda/cuda: the GPUs of this machine, and whether a library can run on one.
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
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_LOADER_CUDA_CUDA_H
#define AOTICACHE_LOADER_CUDA_CUDA_H

#include "loader/loader.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the driver reports. It is queried once, for all devices; results, failures included, are kept. */
typedef struct aoticache_cuda {
    int32_t driver_version;  /* CUDA's version, 1000 * major + 10 * minor: 12040 */
    int32_t device_count;    /* 0 and more */
    const char *driver_path; /* the file that libcuda.so.1 was loaded from */
} aoticache_cuda;

/*
 * Queries the driver.
 * Returns: OK (even if there is no device); NOT_FOUND (no driver; unlike elsewhere, with a message); UNSUPPORTED (the
 * driver lacks a function, or cannot start: the message has the driver's text); INVALID; NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_cuda_get(const aoticache_cuda **ret_cuda, aoticache_error *ret_error);

typedef struct aoticache_cuda_device {
    char name[128];
    int32_t major, minor; /* compute capability */
    uint64_t memory_bytes;
    char arch[16]; /* "sm_90" */
} aoticache_cuda_device;

/*
 * Reads the properties of one device. index: -1 for the first.
 * Returns: OK; NOT_FOUND, with a message (no driver; no such device: the message has the number of devices);
 * UNSUPPORTED (the driver does not work, or cannot read this device); INVALID; NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_cuda_device_read(int32_t index, aoticache_cuda_device *ret_device,
                                                          aoticache_error *ret_error);

/* ---- what device code a file has ---- */

/* One image of device code. */
typedef struct aoticache_cuda_image {
    int32_t major, minor; /* the architecture that it was compiled for */
    bool is_ptx;          /* compiled by the driver: runs on every later architecture too */
    bool is_specific;     /* "sm_90a": runs on exactly that one */
    bool is_family;       /* "sm_100f": runs on that family */
} aoticache_cuda_image;

#define AOTICACHE_CUDA_IMAGE_MAX 64

/*
 * Lists the images in a shared library (section .nv_fatbin, which .nvFatBinSegment points into), a .cubin or a .fatbin
 * file. They are in order of architecture, compiled code before PTX; each kind of image is listed once, even if the
 * file has many. Device code that is still to be linked, and intermediate code for the linker, cannot run and are left
 * out. The file is untrusted.
 *
 * A .cubin for a family ("sm_100f") looks like one for its first architecture ("sm_100"); both run on the same devices.
 *
 * ret_images: may be NULL if capacity is 0.
 * ret_count:  the number of images; at most `capacity` are written.
 * Returns: OK (0 images: no device code), INVALID (damaged, or neither kind of file; the message has the position), IO,
 * NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_cuda_images_read(int fd, aoticache_cuda_image *ret_images, size_t capacity,
                                                          size_t *ret_count, aoticache_error *ret_error);

/* Writes "sm_90", "compute_80" or "sm_90a". */
AOTICACHE_API void aoticache_cuda_image_format(const aoticache_cuda_image *image, char ret_text[16]);

#ifdef __cplusplus
}
#endif
#endif
