/*
 * runtime/weights: weights that are not embedded: a blob at the end of the library file, or in a separate file, mapped
 * read only, so that all processes share its pages.
 *
 * At the end of a library file, all numbers little-endian (scripts/append-weights writes it):
 *
 *     library, padding to a multiple of 16384, blob, trailer:
 *     uint64 offset of the blob, uint64 bytes of the blob, uint64 zero, 8 characters "aotiwts1"
 */
#include "runtime/runtime_internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TRAILER_BYTES = 32 };
static const char trailer_mark[8] = {'a', 'o', 't', 'i', 'w', 't', 's', '1'};

typedef struct blob_place {
    uint64_t offset;
    uint64_t bytes;
} blob_place;

static AOTIRuntimeError fail_file(const char *path, const char *what)
{
    char text[128];
    return aoticache_message_set("weights: %s: %s: %s", path, what, strerror_r(errno, text, sizeof text));
}

/*
 * Returns the path of the file that this code was loaded from. The loader may name it by a descriptor, which is open
 * until then.
 */
static AOTIRuntimeError library_path(const char **ret_path)
{
    Dl_info found;
    void *here;
    const aoticache_kernel *(*described)(void) = aoticache_kernel_described;
    memcpy(&here, &described, sizeof here);
    if (dladdr(here, &found) == 0 || found.dli_fname == NULL)
        return aoticache_message_set("weights: cannot find the file of this library");
    *ret_path = found.dli_fname;
    return AOTICACHE_KERNEL_OK;
}

static uint64_t read_number(const uint8_t *bytes)
{
    uint64_t number = 0;
    for (int i = 7; i >= 0; i--)
        number = number << 8 | bytes[i];
    return number;
}

static AOTIRuntimeError find_appended(const char *path, int fd, uint64_t file_bytes, uint64_t wanted,
                                      blob_place *ret_place)
{
    uint8_t trailer[TRAILER_BYTES];
    if (file_bytes < TRAILER_BYTES ||
        pread(fd, trailer, sizeof trailer, (off_t)(file_bytes - TRAILER_BYTES)) != TRAILER_BYTES)
        return aoticache_message_set("weights: %s: %llu bytes are too few for appended weights of %llu", path,
                                     (unsigned long long)file_bytes, (unsigned long long)wanted);
    if (memcmp(trailer + TRAILER_BYTES - sizeof trailer_mark, trailer_mark, sizeof trailer_mark) != 0)
        return aoticache_message_set("weights: %s: its %llu bytes do not end with the kernel's %llu bytes of "
                                     "appended weights: the file is truncated, or scripts/append-weights was not run",
                                     path, (unsigned long long)file_bytes, (unsigned long long)wanted);
    blob_place place = {read_number(trailer), read_number(trailer + 8)};
    if (place.offset > file_bytes - TRAILER_BYTES || place.bytes != file_bytes - TRAILER_BYTES - place.offset)
        return aoticache_message_set("weights: %s: the trailer says %llu bytes at %llu, but the file has %llu", path,
                                     (unsigned long long)place.bytes, (unsigned long long)place.offset,
                                     (unsigned long long)file_bytes);
    *ret_place = place;
    return AOTICACHE_KERNEL_OK;
}

/* Maps a blob. Mappings begin at pages, blobs at any offset; data is nevertheless aligned for every element. */
static AOTIRuntimeError map_place(const char *path, int fd, blob_place place, uint64_t wanted,
                                  aoticache_weights *ret_weights)
{
    if (place.bytes != wanted)
        return aoticache_message_set("weights: %s: %llu bytes of weights, but the kernel has %llu", path,
                                     (unsigned long long)place.bytes, (unsigned long long)wanted);
    if (place.offset % AOTICACHE_DEVICE_ALIGNMENT != 0)
        return aoticache_message_set("weights: %s: the weights begin at %llu, not at a multiple of %d", path,
                                     (unsigned long long)place.offset, AOTICACHE_DEVICE_ALIGNMENT);
    size_t before = (size_t)(place.offset % (uint64_t)sysconf(_SC_PAGESIZE));
    size_t bytes = (size_t)place.bytes + before;
    void *mapping = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, (off_t)(place.offset - before));
    if (mapping == MAP_FAILED)
        return fail_file(path, "cannot be mapped");
    *ret_weights = (aoticache_weights){mapping, bytes, (const uint8_t *)mapping + before};
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError map_open_file(const aoticache_container *container, const char *path, int fd,
                                      aoticache_weights *ret_weights)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return fail_file(path, "cannot be examined");
    if (!S_ISREG(status.st_mode))
        return aoticache_message_set("weights: %s is not a regular file", path);
    uint64_t wanted = container->blob_bytes;
    blob_place place = {0, (uint64_t)status.st_size};
    if (container->kernel->weights == AOTICACHE_KERNEL_WEIGHTS_APPENDED &&
        find_appended(path, fd, place.bytes, wanted, &place) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    return map_place(path, fd, place, wanted, ret_weights);
}

/*
 * Opens directory/name and writes the path to ret_path. -1, with errno: the path is too long, or the file cannot be
 * opened.
 */
static int open_in(const char *directory, size_t length, const char *name, char ret_path[PATH_MAX])
{
    int written = snprintf(ret_path, PATH_MAX, "%.*s/%s", (int)length, directory, name);
    if (length >= PATH_MAX || written < 0 || written >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(ret_path, O_RDONLY | O_CLOEXEC);
}

/*
 * Opens the file in the host's directory, otherwise next to the library: in the real directory of its file if it was
 * loaded through a descriptor.
 */
static AOTIRuntimeError open_weights_file(const aoticache_kernel *kernel, const char *directory,
                                          char ret_path[PATH_MAX], int *ret_fd)
{
    const char *name = kernel->weights_file, *library = NULL;
    char resolved[PATH_MAX];
    int fd = -1;
    if (name[0] == '\0' || strchr(name, '/') != NULL || strcmp(name, "..") == 0)
        return aoticache_message_set("weights: \"%s\" is not the name of a file in a directory", name);
    if (directory != NULL && directory[0] != '\0')
        fd = open_in(directory, strlen(directory), name, ret_path);
    if (fd < 0) {
        if (library_path(&library) != AOTICACHE_KERNEL_OK)
            return AOTICACHE_KERNEL_FAILURE;
        const char *path = realpath(library, resolved) != NULL ? resolved : library;
        const char *end = strrchr(path, '/');
        fd = end != NULL ? open_in(path, (size_t)(end - path), name, ret_path) : open_in(".", 1, name, ret_path);
    }
    if (fd < 0)
        return fail_file(ret_path, "cannot be opened");
    *ret_fd = fd;
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError open_library(char ret_path[PATH_MAX], int *ret_fd)
{
    const char *library = NULL;
    if (library_path(&library) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    snprintf(ret_path, PATH_MAX, "%s", library);
    *ret_fd = open(ret_path, O_RDONLY | O_CLOEXEC);
    return *ret_fd < 0 ? fail_file(ret_path, "cannot be opened") : AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError aoticache_weights_map(const aoticache_container *container, const char *directory,
                                       aoticache_weights *ret_weights)
{
    const aoticache_kernel *kernel = container->kernel;
    char path[PATH_MAX];
    int fd = -1;
    bool appended = kernel->weights == AOTICACHE_KERNEL_WEIGHTS_APPENDED;
    if ((!appended && kernel->weights != AOTICACHE_KERNEL_WEIGHTS_FILE) || container->blob_bytes == 0)
        return AOTICACHE_KERNEL_OK;
    AOTIRuntimeError status = appended ? open_library(path, &fd) : open_weights_file(kernel, directory, path, &fd);
    if (status != AOTICACHE_KERNEL_OK)
        return status;
    status = map_open_file(container, path, fd, ret_weights);
    close(fd);
    return status;
}

void aoticache_weights_unmap(aoticache_weights *weights)
{
    if (weights->mapping != NULL)
        munmap(weights->mapping, weights->mapping_bytes);
    *weights = (aoticache_weights){0};
}
