/*
 * tests/fuzz/fuzz_cuda_image: no file makes the reader of device code crash, read outside of its memory, or return
 * impossible images. The input is the whole file.
 */
#include "loader/cuda/cuda_internal.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    aoticache_cuda_image images[AOTICACHE_CUDA_IMAGE_MAX];
    aoticache_error error;
    size_t count = 0;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0)
        return 0;
    if (write(fd, bytes, size) == (ssize_t)size &&
        aoticache_cuda_images_read(fd, images, AOTICACHE_CUDA_IMAGE_MAX, &count, &error) == AOTICACHE_OK)
        for (size_t i = 0; i < count && i < AOTICACHE_CUDA_IMAGE_MAX; i++) {
            char text[16];
            aoticache_cuda_image_format(&images[i], text);
            /* Compiled code runs on the architecture that it is for. */
            if (!aoticache_cuda_image_runs_on(&images[i], images[i].major, images[i].minor))
                abort();
        }
    close(fd);
    return 0;
}
