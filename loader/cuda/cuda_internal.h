/*
 * loader/cuda: the device "cuda" for the registry of devices, the facts about a library that it needs, and the images
 * of device code in a file.
 *
 * Private to loader/.
 */
#ifndef AOTICACHE_LOADER_CUDA_INTERNAL_H
#define AOTICACHE_LOADER_CUDA_INTERNAL_H

#include "loader/cuda/cuda.h"
#include "loader/cuda/images.h"
#include "loader/elf/elf_internal.h"
#include "loader/runner/backend.h"
#include "loader/runner/runner.h"

/* ---- the device ---- */

/*
 * Returns the backend, in static storage. Its check requires a driver and a device; images in the library, or in the
 * .cubin and .fatbin files next to it, that were compiled for the device's architecture; and a driver new enough for
 * the CUDA runtime that the library needs. Its current_stream is PyTorch's if PyTorch for CUDA is in the process.
 */
const aoticache_device_backend *aoticache_cuda_backend(void);

/* The facts in a library's file that the check needs. NULL stands for a library without any of them. */
typedef struct aoticache_cuda_facts aoticache_cuda_facts;

/*
 * Reads the facts when the library is loaded. fd: its file, borrowed. needed: its DT_NEEDED names.
 * A file whose device code is damaged still loads: the damage is recorded, and the check reports it.
 * ret_facts: NULL if there are none. Returns: OK, NO_MEMORY.
 */
aoticache_status aoticache_cuda_facts_read(int fd, const aoticache_name_list *needed, aoticache_cuda_facts **ret_facts,
                                           aoticache_error *ret_error);
/* Frees the facts. NULL is allowed. */
void aoticache_cuda_facts_free(aoticache_cuda_facts *facts);

/*
 * ---- images ----
 *
 * A library may have thousands of images, one for each of its parts and architectures; only the set of architectures
 * matters.
 */

#define AOTICACHE_CUDA_ARCH_MAX 999 /* 10 * major + minor */

typedef struct aoticache_cuda_image_set {
    uint64_t bits[(AOTICACHE_CUDA_ARCH_MAX + 1) * 8 / 64]; /* eight for each architecture, by kind of image */
    size_t count;
} aoticache_cuda_image_set;

/*
 * Adds the images in a file: a shared library, a .cubin or a .fatbin file. The file is untrusted: every size is checked
 * before it is used, and all reading is done with pread.
 * Returns: as aoticache_cuda_images_read(); after a failure the set has the images found up to then.
 */
aoticache_status aoticache_cuda_image_set_read(int fd, aoticache_cuda_image_set *set, aoticache_error *ret_error);

/*
 * Lists the images in order of architecture, compiled code before PTX. Writes at most `capacity`. Returns their number.
 */
size_t aoticache_cuda_image_set_list(const aoticache_cuda_image_set *set, aoticache_cuda_image *ret_images,
                                     size_t capacity);

/* Returns whether a device can run at least one of them. */
bool aoticache_cuda_image_set_runs_on(const aoticache_cuda_image_set *set, int32_t major, int32_t minor);

/* Writes "sm_75, sm_90a, compute_90"; " and N more" replaces those that do not fit. */
void aoticache_cuda_image_set_format(const aoticache_cuda_image_set *set, char *ret_text, size_t size);

/*
 * Returns whether a device of compute capability major.minor can run the image (CUDA C++ Programming Guide, binary and
 * PTX compatibility). Compiled code, and images and PTX for a family ("f"), run on the same major version and the same
 * or a later minor version; PTX runs on every later version; specific images ("a") run on exactly their version.
 */
bool aoticache_cuda_image_runs_on(const aoticache_cuda_image *image, int32_t major, int32_t minor);

#endif
