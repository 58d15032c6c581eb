/*
 * loader/cuda/image: the images of device code in a file, as a set: which architectures there is code for.
 *
 * Private, beside the public functions of loader/cuda/cuda.h. A library may have thousands of images, one for each of its
 * parts and architectures; what is asked is which architectures they are of.
 */
#ifndef AOTICACHE_LOADER_CUDA_IMAGE_H
#define AOTICACHE_LOADER_CUDA_IMAGE_H

#include "loader/cuda/cuda.h"

#define AOTICACHE_CUDA_ARCH_MAX 999 /* 10 * major + minor */

typedef struct aoticache_cuda_image_set {
    uint64_t bits[(AOTICACHE_CUDA_ARCH_MAX + 1) * 8 / 64]; /* eight for each architecture, by kind of image */
    size_t count;
} aoticache_cuda_image_set;

/*
 * Adds what a file has: a shared library, a .cubin or a .fatbin file. The file is untrusted: every size is checked before
 * it is used, and all reading is done with pread.
 * Returns: as aoticache_cuda_images_read(); after a failure the set holds what was found before it.
 */
aoticache_status aoticache_cuda_image_set_read(int fd, aoticache_cuda_image_set *set, aoticache_error *ret_error);

/* In order of architecture, compiled code before PTX. At most `capacity` are written. Returns how many there are. */
size_t aoticache_cuda_image_set_list(const aoticache_cuda_image_set *set, aoticache_cuda_image *ret_images,
                                     size_t capacity);

/* Whether a device can run at least one of them. */
bool aoticache_cuda_image_set_runs_on(const aoticache_cuda_image_set *set, int32_t major, int32_t minor);

/* "sm_75, sm_90a, compute_90"; those that do not fit are left out for " and N more". */
void aoticache_cuda_image_set_format(const aoticache_cuda_image_set *set, char *ret_text, size_t size);

#endif
