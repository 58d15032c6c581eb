/*
 * loader/cuda: the device "cuda" as the registry of devices knows it, what it needs to know of a library, and the
 * images of device code in a file.
 *
 * Private to loader/.
 */
#ifndef AOTICACHE_LOADER_CUDA_INTERNAL_H
#define AOTICACHE_LOADER_CUDA_INTERNAL_H

#include "loader/cuda/cuda.h"
#include "loader/elf/internal.h"
#include "loader/runner/runner.h"

/* ---- the device ---- */

/*
 * check: a driver and a device, whose architecture the library's images and those of the .cubin and .fatbin files
 * beside it were compiled for, and a driver new enough for the CUDA runtime that the library needs. current_stream:
 * PyTorch's, where PyTorch for CUDA is in the process. Static storage.
 */
const aoticache_device_backend *aoticache_cuda_backend(void);

/* What concerns the check in a library's file. NULL stands for a library without any of it. */
typedef struct aoticache_cuda_facts aoticache_cuda_facts;

/*
 * Reads them when the library is loaded. fd: of its file, borrowed. needed: its DT_NEEDED names.
 * A file whose device code is damaged still loads: the damage is kept, and is the check's answer.
 * ret_facts: NULL where there is nothing. Returns: OK, NO_MEMORY.
 */
aoticache_status aoticache_cuda_facts_read(int fd, const aoticache_name_list *needed, aoticache_cuda_facts **ret_facts,
                                           aoticache_error *ret_error);
/* NULL is allowed. */
void aoticache_cuda_facts_free(aoticache_cuda_facts *facts);

/*
 * ---- images ----
 *
 * A library may have thousands of images, one for each of its parts and architectures; what is asked is which
 * architectures they are of.
 */

#define AOTICACHE_CUDA_ARCH_MAX 999 /* 10 * major + minor */

typedef struct aoticache_cuda_image_set {
    uint64_t bits[(AOTICACHE_CUDA_ARCH_MAX + 1) * 8 / 64]; /* eight for each architecture, by kind of image */
    size_t count;
} aoticache_cuda_image_set;

/*
 * Adds what a file has: a shared library, a .cubin or a .fatbin file. The file is untrusted: every size is checked
 * before it is used, and all reading is done with pread.
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

/*
 * Whether a device of compute capability major.minor can run the image (CUDA C++ Programming Guide, binary and PTX
 * compatibility). Compiled code, and images and PTX for a family ("f"), run on the same major and the same or a later
 * minor version; PTX runs on every later version; specific images ("a") run on exactly their version.
 */
bool aoticache_cuda_image_runs_on(const aoticache_cuda_image *image, int32_t major, int32_t minor);

#endif
