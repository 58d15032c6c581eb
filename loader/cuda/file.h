/*
 * loader/cuda/file: reading of files that are not trusted: numbers, pieces of a file, the sections of an ELF file.
 *
 * Private to the reader of device code. Unlike loader/elf, which sees what the dynamic linker sees, this one goes by
 * section headers: only they tell where device code is, and .cubin files have no dynamic section.
 */
#ifndef AOTICACHE_LOADER_CUDA_FILE_H
#define AOTICACHE_LOADER_CUDA_FILE_H

#include "base/base.h"

#include <elf.h>

typedef struct aoticache_cuda_file {
    int fd;
    uint64_t size;
} aoticache_cuda_file;

/* All of it is little-endian, on whatever machine this runs. */
static inline uint16_t aoticache_cuda_get_16(const uint8_t *bytes)
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

static inline uint32_t aoticache_cuda_get_32(const uint8_t *bytes)
{
    return aoticache_cuda_get_16(bytes) | (uint32_t)aoticache_cuda_get_16(bytes + 2) << 16;
}

static inline uint64_t aoticache_cuda_get_64(const uint8_t *bytes)
{
    return aoticache_cuda_get_32(bytes) | (uint64_t)aoticache_cuda_get_32(bytes + 4) << 32;
}

/* INVALID: this piece is not in the file. */
aoticache_status aoticache_cuda_file_truncated(const aoticache_cuda_file *file, const char *what, uint64_t offset,
                                               uint64_t size, aoticache_error *ret_error);
/* A whole piece, with pread. Returns: OK, INVALID, IO. */
aoticache_status aoticache_cuda_file_read(const aoticache_cuda_file *file, const char *what, uint64_t offset,
                                          uint64_t size, void *buffer, aoticache_error *ret_error);

/* The section headers of a little-endian 64-bit ELF file. Initialise with zeroes. */
typedef struct aoticache_cuda_sections {
    uint8_t *headers;
    char *names; /* with a terminator of our own behind them */
    size_t count, names_size;
} aoticache_cuda_sections;

/*
 * header: of the file. A file without sections (sstrip takes them out) gives none. ret_sections is to be freed after a
 * failure, too. Returns: OK, INVALID, IO, NO_MEMORY.
 */
aoticache_status aoticache_cuda_sections_read(const aoticache_cuda_file *file, const uint8_t *header,
                                              aoticache_cuda_sections *ret_sections, aoticache_error *ret_error);
void aoticache_cuda_sections_free(aoticache_cuda_sections *sections);
#define cleanup_cuda_sections __attribute__((cleanup(aoticache_cuda_sections_free)))

/* The next section of this name that has bytes in the file, from *position on; where they are is not checked. */
bool aoticache_cuda_sections_next(const aoticache_cuda_sections *sections, const char *name, size_t *position,
                                  uint64_t *ret_offset, uint64_t *ret_size);

#endif
