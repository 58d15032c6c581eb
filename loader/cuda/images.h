/*
 * loader/cuda/images: which device code a file has. Nothing here calls the driver.
 *
 * Private to loader/ and tools/aoticache, which links image.c and arch.c itself: the library does not export their
 * functions.
 */
#ifndef AOTICACHE_LOADER_CUDA_IMAGES_H
#define AOTICACHE_LOADER_CUDA_IMAGES_H

#include "base/base.h"

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
aoticache_status aoticache_cuda_images_read(int fd, aoticache_cuda_image *ret_images, size_t capacity,
                                            size_t *ret_count, aoticache_error *ret_error);

/* Writes "sm_90", "compute_80" or "sm_90a". */
void aoticache_cuda_image_format(const aoticache_cuda_image *image, char ret_text[16]);

#endif
