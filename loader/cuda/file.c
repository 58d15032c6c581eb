/*
 * loader/cuda/file: see file.h. Every offset and count is checked against the file's size before it is used.
 */
#include "loader/cuda/file.h"

#include "base/cleanup.h"

#include <inttypes.h>
#include <string.h>

enum {
    MAX_SECTIONS = 65535,
    MAX_SECTION_NAMES = 1 << 20,
};

aoticache_status aoticache_cuda_file_truncated(const aoticache_cuda_file *from, const char *what, uint64_t offset,
                                               uint64_t size, aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                               "device code: %s is %" PRIu64 " bytes at offset %" PRIu64 ", the file has %" PRIu64
                               " bytes",
                               what, size, offset, from->size);
}

aoticache_status aoticache_cuda_file_read(const aoticache_cuda_file *from, const char *what, uint64_t offset,
                                          uint64_t size, void *buffer, aoticache_error *ret_error)
{
    if (offset > from->size || size > from->size - offset)
        return aoticache_cuda_file_truncated(from, what, offset, size, ret_error);
    uint8_t *next = buffer;
    for (uint64_t done = 0; done < size;) {
        ssize_t got = pread(from->fd, next + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return aoticache_error_set_errno(ret_error, errno, "reading %s", what);
        if (got == 0)
            return aoticache_cuda_file_truncated(from, what, offset, size, ret_error);
        done += (uint64_t)got;
    }
    return AOTICACHE_OK;
}

/* ---- sections ---- */

void aoticache_cuda_sections_free(aoticache_cuda_sections *tables)
{
    free(tables->headers);
    free(tables->names);
}
static const uint8_t *section_at(const aoticache_cuda_sections *tables, size_t position)
{
    return tables->headers + position * sizeof(Elf64_Shdr);
}

static uint64_t section_field(const uint8_t *section, size_t field)
{
    return aoticache_cuda_get_64(section + field);
}

/* Numbers that do not fit the file header stand in the first section's header. */
static aoticache_status read_section_counts(const aoticache_cuda_file *from, const uint8_t *header, uint64_t *ret_count,
                                            uint64_t *ret_names, aoticache_error *ret_error)
{
    uint8_t first[sizeof(Elf64_Shdr)];
    uint64_t count = aoticache_cuda_get_16(header + offsetof(Elf64_Ehdr, e_shnum));
    uint64_t names = aoticache_cuda_get_16(header + offsetof(Elf64_Ehdr, e_shstrndx));
    if (count == 0 || names == SHN_XINDEX) {
        uint64_t offset = aoticache_cuda_get_64(header + offsetof(Elf64_Ehdr, e_shoff));
        aoticache_status status =
            aoticache_cuda_file_read(from, "the first section header", offset, sizeof first, first, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        count = count == 0 ? section_field(first, offsetof(Elf64_Shdr, sh_size)) : count;
        names = names == SHN_XINDEX ? aoticache_cuda_get_32(first + offsetof(Elf64_Shdr, sh_link)) : names;
    }
    if (count == 0 || count > MAX_SECTIONS || names >= count)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "device code: %" PRIu64 " sections, with their names in section %" PRIu64, count,
                                   names);
    *ret_count = count;
    *ret_names = names;
    return AOTICACHE_OK;
}

static aoticache_status read_section_names(const aoticache_cuda_file *from, uint64_t position,
                                           aoticache_cuda_sections *tables, aoticache_error *ret_error)
{
    const uint8_t *section = section_at(tables, position);
    uint64_t size = section_field(section, offsetof(Elf64_Shdr, sh_size));
    if (size > MAX_SECTION_NAMES)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "device code: the names of the sections are %" PRIu64 " bytes, at most %d can be",
                                   size, MAX_SECTION_NAMES);
    tables->names = calloc(1, (size_t)size + 1);
    if (tables->names == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "no memory for names of sections");
    tables->names_size = (size_t)size;
    uint64_t offset = section_field(section, offsetof(Elf64_Shdr, sh_offset));
    return aoticache_cuda_file_read(from, "the table of section names", offset, size, tables->names, ret_error);
}

/* A file without sections (sstrip takes them out) gives none. */
aoticache_status aoticache_cuda_sections_read(const aoticache_cuda_file *from, const uint8_t *header,
                                              aoticache_cuda_sections *ret_tables, aoticache_error *ret_error)
{
    uint64_t offset = aoticache_cuda_get_64(header + offsetof(Elf64_Ehdr, e_shoff)), count = 0, names = 0;
    if (offset == 0)
        return AOTICACHE_OK;
    if (aoticache_cuda_get_16(header + offsetof(Elf64_Ehdr, e_shentsize)) != sizeof(Elf64_Shdr))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "device code: section headers of %u bytes, not %zu",
                                   aoticache_cuda_get_16(header + offsetof(Elf64_Ehdr, e_shentsize)),
                                   sizeof(Elf64_Shdr));
    aoticache_status status = read_section_counts(from, header, &count, &names, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    uint64_t bytes = count * sizeof(Elf64_Shdr);
    if (bytes > from->size)
        return aoticache_cuda_file_truncated(from, "the table of sections", offset, bytes, ret_error);
    ret_tables->headers = malloc((size_t)bytes);
    if (ret_tables->headers == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "no memory for %" PRIu64 " sections", count);
    ret_tables->count = (size_t)count;
    status = aoticache_cuda_file_read(from, "the table of sections", offset, bytes, ret_tables->headers, ret_error);
    return status == AOTICACHE_OK ? read_section_names(from, names, ret_tables, ret_error) : status;
}

/* The next section of this name that has bytes in the file, from *position on. */
bool aoticache_cuda_sections_next(const aoticache_cuda_sections *tables, const char *name, size_t *position,
                                  uint64_t *ret_offset, uint64_t *ret_size)
{
    while (*position < tables->count) {
        const uint8_t *section = section_at(tables, (*position)++);
        uint32_t at = aoticache_cuda_get_32(section + offsetof(Elf64_Shdr, sh_name));
        if (at >= tables->names_size || strcmp(tables->names + at, name) != 0 ||
            aoticache_cuda_get_32(section + offsetof(Elf64_Shdr, sh_type)) == SHT_NOBITS)
            continue;
        *ret_offset = section_field(section, offsetof(Elf64_Shdr, sh_offset));
        *ret_size = section_field(section, offsetof(Elf64_Shdr, sh_size));
        return true;
    }
    return false;
}
