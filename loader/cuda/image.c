/*
 * loader/cuda/image: finds the images of device code in files. nvcc puts them into containers ("fat binaries"), which
 * follow each other in section .nv_fatbin of a library or are alone in a .fatbin file; a .cubin file is one image. Only
 * headers are read, never code: whether it is compressed does not matter. What images mean is in arch.c.
 *
 * The file is not trusted: every offset and count is checked against its size before it is used.
 *
 * NVIDIA documents neither container nor ELF flags; the layout here comes from <fatbinary_section.h>, as far as that
 * goes, from the EF_CUDA_* constants of LLVM, and from the output of nvcc 13.0, with which
 * tests/cli/aoticache/test_cuda_library.sh compares it.
 */
#include "base/arguments.h"
#include "loader/cuda/cuda_internal.h"

#include "base/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

enum {
    CONTAINER_MAGIC_SIZE = 16,
    ENTRY_SIZE = 48, /* the part of an entry's header that is read */
    ENTRY_PTX = 1,
    ENTRY_CUBIN = 2,
    MAX_SECTIONS = 65535,
    MAX_SECTION_NAMES = 1 << 20,
    MAX_STEPS = 1 << 20, /* limit of headers read from one file, so that a file of headers only does not take minutes */
    COMPAT_SPECIFIC = 9, /* attribute of .nv.compat */
};
#define CONTAINER_MAGIC 0xba55ed50u
#define ENTRY_IS_SPECIFIC (UINT64_C(1) << 20)
#define ENTRY_IS_FAMILY (UINT64_C(1) << 21)
#define MACHINE_CUDA 190 /* EM_CUDA, which some <elf.h> lack */

/* Reads a file from the beginning to the end. */
typedef struct reader {
    int fd;
    uint64_t size;
    uint32_t steps;
    aoticache_cuda_image_set *set;
    aoticache_error *ret_error;
} reader;

/* A range of the file, already known to be within it. */
typedef struct part {
    uint64_t offset, end;
} part;

/* Returns a number of a file; all are little-endian, whatever machine this runs on. */
static uint16_t get_16(const uint8_t *bytes)
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

static uint32_t get_32(const uint8_t *bytes)
{
    return get_16(bytes) | (uint32_t)get_16(bytes + 2) << 16;
}

static uint64_t get_64(const uint8_t *bytes)
{
    return get_32(bytes) | (uint64_t)get_32(bytes + 4) << 32;
}

static aoticache_status fail_truncated(const reader *from, const char *what, uint64_t offset, uint64_t size)
{
    return aoticache_error_set(from->ret_error, AOTICACHE_INVALID,
                               "device code: %s is %" PRIu64 " bytes at offset %" PRIu64 ", but the file has %" PRIu64
                               " bytes",
                               what, size, offset, from->size);
}

static aoticache_status read_at(const reader *from, const char *what, uint64_t offset, uint64_t size, void *buffer)
{
    if (offset > from->size || size > from->size - offset)
        return fail_truncated(from, what, offset, size);
    uint8_t *next = buffer;
    for (uint64_t done = 0; done < size;) {
        ssize_t got = pread(from->fd, next + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return aoticache_error_set_errno(from->ret_error, errno, "cannot read %s", what);
        if (got == 0)
            return fail_truncated(from, what, offset, size);
        done += (uint64_t)got;
    }
    return AOTICACHE_OK;
}

static aoticache_status count_step(reader *from)
{
    if (++from->steps <= MAX_STEPS)
        return AOTICACHE_OK;
    return aoticache_error_set(from->ret_error, AOTICACHE_INVALID, "device code: more than %d headers", MAX_STEPS);
}

static aoticache_status add_image(const reader *from, uint64_t offset, uint32_t arch, bool is_ptx, bool is_specific,
                                  bool is_family)
{
    if (arch < 10 || arch > AOTICACHE_CUDA_ARCH_MAX)
        return aoticache_error_set(from->ret_error, AOTICACHE_INVALID,
                                   "device code: the image at offset %" PRIu64 " is for architecture %" PRIu32 "; it "
                                   "must be 10 to %d",
                                   offset, arch, AOTICACHE_CUDA_ARCH_MAX);
    uint32_t bit = arch * 8 + (is_ptx ? 4 : 0) + (is_specific ? 2 : is_family ? 1 : 0);
    uint64_t mask = UINT64_C(1) << bit % 64;
    from->set->count += (from->set->bits[bit / 64] & mask) == 0;
    from->set->bits[bit / 64] |= mask;
    return AOTICACHE_OK;
}

/*
 * ---- sections of an ELF file ----
 *
 * Unlike loader/elf/, which sees what the dynamic linker sees, this code uses section headers: only they give the
 * position of device code, and .cubin files have no dynamic section.
 */

/* The section headers of a little-endian 64-bit file. */
typedef struct section_table {
    uint8_t *headers;
    char *names; /* with an added terminator at the end */
    size_t count, names_size;
} section_table;

static void section_table_free(section_table *tables)
{
    free(tables->headers);
    free(tables->names);
}
#define cleanup_section_table __attribute__((cleanup(section_table_free)))

static const uint8_t *section_at(const section_table *tables, size_t position)
{
    return tables->headers + position * sizeof(Elf64_Shdr);
}

static uint64_t section_field(const uint8_t *section, size_t field)
{
    return get_64(section + field);
}

/*
 * Reads the number of sections, and the index of the section with their names. Numbers too large for the file header
 * are in the first section's header.
 */
static aoticache_status read_section_counts(const reader *from, const uint8_t *header, uint64_t *ret_count,
                                            uint64_t *ret_names)
{
    uint8_t first[sizeof(Elf64_Shdr)];
    uint64_t count = get_16(header + offsetof(Elf64_Ehdr, e_shnum));
    uint64_t names = get_16(header + offsetof(Elf64_Ehdr, e_shstrndx));
    if (count == 0 || names == SHN_XINDEX) {
        uint64_t offset = get_64(header + offsetof(Elf64_Ehdr, e_shoff));
        aoticache_status status = read_at(from, "the first section header", offset, sizeof first, first);
        if (status != AOTICACHE_OK)
            return status;
        count = count == 0 ? section_field(first, offsetof(Elf64_Shdr, sh_size)) : count;
        names = names == SHN_XINDEX ? get_32(first + offsetof(Elf64_Shdr, sh_link)) : names;
    }
    if (count == 0 || count > MAX_SECTIONS || names >= count)
        return aoticache_error_set(from->ret_error, AOTICACHE_INVALID,
                                   "device code: %" PRIu64 " sections, with their names in section %" PRIu64, count,
                                   names);
    *ret_count = count;
    *ret_names = names;
    return AOTICACHE_OK;
}

static aoticache_status read_section_names(const reader *from, uint64_t position, section_table *tables)
{
    const uint8_t *section = section_at(tables, position);
    uint64_t size = section_field(section, offsetof(Elf64_Shdr, sh_size));
    if (size > MAX_SECTION_NAMES)
        return aoticache_error_set(from->ret_error, AOTICACHE_INVALID,
                                   "device code: the names of the sections are %" PRIu64 " bytes; at most %d are "
                                   "allowed",
                                   size, MAX_SECTION_NAMES);
    tables->names = calloc(1, (size_t)size + 1);
    if (tables->names == NULL)
        return aoticache_error_set(from->ret_error, AOTICACHE_NO_MEMORY, "out of memory for names of sections");
    tables->names_size = (size_t)size;
    uint64_t offset = section_field(section, offsetof(Elf64_Shdr, sh_offset));
    return read_at(from, "the table of section names", offset, size, tables->names);
}

/* Reads the section headers and names. A file whose sections were stripped (sstrip) gives an empty table. */
static aoticache_status read_sections(const reader *from, const uint8_t *header, section_table *ret_tables)
{
    uint64_t offset = get_64(header + offsetof(Elf64_Ehdr, e_shoff)), count = 0, names = 0;
    if (offset == 0)
        return AOTICACHE_OK;
    if (get_16(header + offsetof(Elf64_Ehdr, e_shentsize)) != sizeof(Elf64_Shdr))
        return aoticache_error_set(from->ret_error, AOTICACHE_INVALID,
                                   "device code: section headers of %u bytes; expected %zu",
                                   get_16(header + offsetof(Elf64_Ehdr, e_shentsize)), sizeof(Elf64_Shdr));
    aoticache_status status = read_section_counts(from, header, &count, &names);
    if (status != AOTICACHE_OK)
        return status;
    uint64_t bytes = count * sizeof(Elf64_Shdr);
    if (bytes > from->size)
        return fail_truncated(from, "the table of sections", offset, bytes);
    ret_tables->headers = malloc((size_t)bytes);
    if (ret_tables->headers == NULL)
        return aoticache_error_set(from->ret_error, AOTICACHE_NO_MEMORY, "out of memory for %" PRIu64 " sections",
                                   count);
    ret_tables->count = (size_t)count;
    status = read_at(from, "the table of sections", offset, bytes, ret_tables->headers);
    return status == AOTICACHE_OK ? read_section_names(from, names, ret_tables) : status;
}

/* Finds the next section of this name that has bytes in the file, from *position on. Its position is not checked. */
static bool next_section(const section_table *tables, const char *name, size_t *position, uint64_t *ret_offset,
                         uint64_t *ret_size)
{
    while (*position < tables->count) {
        const uint8_t *section = section_at(tables, (*position)++);
        uint32_t at = get_32(section + offsetof(Elf64_Shdr, sh_name));
        if (at >= tables->names_size || strcmp(tables->names + at, name) != 0 ||
            get_32(section + offsetof(Elf64_Shdr, sh_type)) == SHT_NOBITS)
            continue;
        *ret_offset = section_field(section, offsetof(Elf64_Shdr, sh_offset));
        *ret_size = section_field(section, offsetof(Elf64_Shdr, sh_size));
        return true;
    }
    return false;
}

/* ---- single images ---- */

/*
 * Reads the flags in the file header of a compiled image. Up to ABI version 7 the architecture is in bits 0 to 7, and
 * bit 11 is set for code that runs on exactly that architecture; later versions use bits 8 to 15, and bit 3.
 */
static void image_flags(const uint8_t *header, uint32_t *ret_arch, bool *ret_is_specific)
{
    uint32_t flags = get_32(header + offsetof(Elf64_Ehdr, e_flags));
    bool newer = header[EI_ABIVERSION] >= 8;
    *ret_arch = (newer ? flags >> 8 : flags) & 0xff;
    *ret_is_specific = (flags & (newer ? 0x8u : 0x800u)) != 0;
}

static bool is_image(const uint8_t *header)
{
    return memcmp(header, ELFMAG, SELFMAG) == 0 && header[EI_CLASS] == ELFCLASS64 && header[EI_DATA] == ELFDATA2LSB &&
           get_16(header + offsetof(Elf64_Ehdr, e_machine)) == MACHINE_CUDA;
}

/*
 * Reads .nv.compat: ptxas 13 leaves that bit of the flags clear and records the same fact there, as attributes of a
 * format, a number and a 16-bit value, which for format 4 is the number of bytes that follow.
 */
static aoticache_status read_compat(const reader *from, const uint8_t *header, bool *is_specific)
{
    cleanup_section_table section_table tables = {.count = 0};
    uint8_t bytes[256];
    uint64_t offset = 0, size = 0;
    size_t position = 0;
    aoticache_status status = read_sections(from, header, &tables);
    if (status != AOTICACHE_OK || !next_section(&tables, ".nv.compat", &position, &offset, &size))
        return status;
    size = size < sizeof bytes ? size : sizeof bytes;
    status = read_at(from, "section .nv.compat", offset, size, bytes);
    if (status != AOTICACHE_OK)
        return status;
    for (uint64_t at = 0; at + 4 <= size;) {
        if (bytes[at] == 2 && bytes[at + 1] == COMPAT_SPECIFIC && bytes[at + 2] == 1)
            *is_specific = true;
        at += 4 + (bytes[at] == 4 ? get_16(bytes + at + 2) : 0);
    }
    return AOTICACHE_OK;
}

static aoticache_status read_cubin(const reader *from, const uint8_t *header)
{
    uint32_t arch;
    bool is_specific;
    if (!is_image(header))
        return aoticache_error_set(from->ret_error, AOTICACHE_INVALID,
                                   "device code: the .cubin file is not 64-bit little-endian");
    image_flags(header, &arch, &is_specific);
    aoticache_status status = read_compat(from, header, &is_specific);
    return status == AOTICACHE_OK ? add_image(from, 0, arch, false, is_specific, false) : status;
}

/* ---- containers ---- */

/* Compares an image with its container's entry for it. A compressed image cannot be compared. */
static aoticache_status check_payload(const reader *from, part payload, uint32_t arch, bool *is_specific)
{
    uint8_t header[sizeof(Elf64_Ehdr)];
    uint32_t own_arch;
    bool own_specific;
    if (payload.end - payload.offset < sizeof header)
        return AOTICACHE_OK;
    aoticache_status status = read_at(from, "an image's header", payload.offset, sizeof header, header);
    if (status != AOTICACHE_OK || !is_image(header))
        return status;
    image_flags(header, &own_arch, &own_specific);
    *is_specific |= own_specific;
    if (own_arch == arch)
        return AOTICACHE_OK;
    return aoticache_error_set(from->ret_error, AOTICACHE_INVALID,
                               "device code: the image at offset %" PRIu64 " is for architecture %" PRIu32 ", but "
                               "its container says %" PRIu32,
                               payload.offset, own_arch, arch);
}

/* Reads the entry at the beginning of `entries`. *ret_end is where the next one begins. */
static aoticache_status read_entry(const reader *from, part entries, uint64_t *ret_end)
{
    uint8_t entry[ENTRY_SIZE];
    uint64_t left = entries.end - entries.offset;
    if (left < sizeof entry)
        return fail_truncated(from, "an entry of a container", entries.offset, sizeof entry);
    aoticache_status status = read_at(from, "an entry of a container", entries.offset, sizeof entry, entry);
    if (status != AOTICACHE_OK)
        return status;
    uint64_t header_size = get_32(entry + 4), payload_size = get_64(entry + 8);
    uint64_t flags = get_64(entry + 40);
    if (header_size < sizeof entry || header_size > left || payload_size > left - header_size)
        return aoticache_error_set(from->ret_error, AOTICACHE_INVALID,
                                   "device code: the entry at offset %" PRIu64 " has a header of %" PRIu64 " bytes "
                                   "and %" PRIu64 " bytes of code, but its container has %" PRIu64 " bytes left",
                                   entries.offset, header_size, payload_size, left);
    part payload = {.offset = entries.offset + header_size, .end = entries.offset + header_size + payload_size};
    uint16_t kind = get_16(entry);
    uint32_t arch = get_32(entry + 28);
    bool is_specific = (flags & ENTRY_IS_SPECIFIC) != 0;
    *ret_end = payload.end;
    if (kind == ENTRY_CUBIN)
        status = check_payload(from, payload, arch, &is_specific);
    if (status == AOTICACHE_OK && (kind == ENTRY_CUBIN || kind == ENTRY_PTX)) /* others are for linking only */
        status = add_image(from, payload.offset, arch, kind == ENTRY_PTX, is_specific, (flags & ENTRY_IS_FAMILY) != 0);
    return status;
}

static aoticache_status read_container(reader *from, part containers, uint64_t *ret_end)
{
    uint8_t header[CONTAINER_MAGIC_SIZE];
    uint64_t left = containers.end - containers.offset;
    if (left < sizeof header)
        return fail_truncated(from, "a container", containers.offset, sizeof header);
    aoticache_status status = read_at(from, "a container", containers.offset, sizeof header, header);
    if (status != AOTICACHE_OK)
        return status;
    uint64_t header_size = get_16(header + 6), size = get_64(header + 8);
    if (get_32(header) != CONTAINER_MAGIC || get_16(header + 4) != 1)
        return aoticache_error_set(from->ret_error, AOTICACHE_INVALID,
                                   "device code: the container at offset %" PRIu64 " begins with 0x%08" PRIx32 " and "
                                   "version %u; expected 0x%08x and 1",
                                   containers.offset, get_32(header), get_16(header + 4), CONTAINER_MAGIC);
    if (header_size < sizeof header || header_size > left || size > left - header_size)
        return aoticache_error_set(from->ret_error, AOTICACHE_INVALID,
                                   "device code: the container at offset %" PRIu64 " declares %" PRIu64 " and %" PRIu64
                                   " bytes, but there are %" PRIu64,
                                   containers.offset, header_size, size, left);
    part entries = {.offset = containers.offset + header_size, .end = containers.offset + header_size + size};
    *ret_end = entries.end;
    while (status == AOTICACHE_OK && entries.offset < entries.end) {
        status = count_step(from);
        if (status == AOTICACHE_OK)
            status = read_entry(from, entries, &entries.offset);
    }
    return status;
}

/* Skips the zeroes with which linkers pad sections that they join. */
static aoticache_status skip_padding(reader *from, part *containers)
{
    uint8_t bytes[64];
    uint64_t size = 0, zeroes = 0;
    aoticache_status status = AOTICACHE_OK;
    do {
        uint64_t left = containers->end - containers->offset;
        size = left < sizeof bytes ? left : sizeof bytes;
        status = count_step(from);
        if (status == AOTICACHE_OK)
            status = read_at(from, "padding", containers->offset, size, bytes);
        for (zeroes = 0; status == AOTICACHE_OK && zeroes < size && bytes[zeroes] == 0; zeroes++)
            containers->offset++;
    } while (zeroes == sizeof bytes);
    return status;
}

static aoticache_status read_containers(reader *from, uint64_t offset, uint64_t size)
{
    if (offset > from->size || size > from->size - offset)
        return fail_truncated(from, "section .nv_fatbin", offset, size);
    part containers = {.offset = offset, .end = offset + size};
    aoticache_status status = AOTICACHE_OK;
    while (status == AOTICACHE_OK && containers.offset < containers.end) {
        status = count_step(from);
        if (status == AOTICACHE_OK)
            status = read_container(from, containers, &containers.offset);
        if (status == AOTICACHE_OK)
            status = skip_padding(from, &containers);
    }
    return status;
}

/* Reads the images in a library. Device code that still has to be linked (__nv_relfatbin) cannot run and is ignored. */
static aoticache_status read_library(reader *from, const uint8_t *header)
{
    if (header[EI_CLASS] != ELFCLASS64 || header[EI_DATA] != ELFDATA2LSB)
        return AOTICACHE_OK;
    cleanup_section_table section_table tables = {.count = 0};
    uint64_t offset, size;
    size_t position = 0;
    aoticache_status status = read_sections(from, header, &tables);
    while (status == AOTICACHE_OK && next_section(&tables, ".nv_fatbin", &position, &offset, &size)) {
        status = count_step(from);
        if (status == AOTICACHE_OK)
            status = read_containers(from, offset, size);
    }
    return status;
}

aoticache_status aoticache_cuda_image_set_read(int fd, aoticache_cuda_image_set *set, aoticache_error *ret_error)
{
    struct stat about;
    uint8_t header[sizeof(Elf64_Ehdr)] = {0};
    if (fstat(fd, &about) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot examine descriptor %d", fd);
    if (!S_ISREG(about.st_mode))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "device code: not a regular file");
    reader from = {.fd = fd, .size = (uint64_t)about.st_size, .set = set, .ret_error = ret_error};
    uint64_t some = from.size < sizeof header ? from.size : sizeof header;
    aoticache_status status = read_at(&from, "the file's header", 0, some, header);
    if (status != AOTICACHE_OK)
        return status;
    if (some >= CONTAINER_MAGIC_SIZE && get_32(header) == CONTAINER_MAGIC)
        return read_containers(&from, 0, from.size);
    if (some < sizeof header || memcmp(header, ELFMAG, SELFMAG) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "device code: neither ELF nor a container: it begins with %02x %02x %02x %02x and "
                                   "has %" PRIu64 " bytes",
                                   header[0], header[1], header[2], header[3], from.size);
    if (get_16(header + offsetof(Elf64_Ehdr, e_machine)) == MACHINE_CUDA)
        return read_cubin(&from, header);
    return read_library(&from, header);
}

aoticache_status aoticache_cuda_images_read(int fd, aoticache_cuda_image *ret_images, size_t capacity,
                                            size_t *ret_count, aoticache_error *ret_error)
{
    aoticache_cuda_image_set set = {.count = 0};
    if (ret_count == NULL || (ret_images == NULL && capacity > 0))
        return AOTICACHE_REFUSE_NULL(ret_error, ret_count, ret_images);
    aoticache_status status = aoticache_cuda_image_set_read(fd, &set, ret_error);
    if (status == AOTICACHE_OK)
        *ret_count = aoticache_cuda_image_set_list(&set, ret_images, capacity);
    return status;
}
