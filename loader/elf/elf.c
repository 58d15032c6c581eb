/*
 * loader/elf/elf: the tables of a shared library. The dynamic linker finds everything by addresses (program headers,
 * then the dynamic section), never by section headers; so does this reader, so that both see the same tables. The names
 * of machines are here too.
 */
#include "loader/elf/elf_internal.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* Linkers write about a dozen; a file that claims thousands is damaged. */
#define MAX_PROGRAM_HEADERS 1024

static aoticache_status fail_truncated(const aoticache_elf *elf, const char *what, uint64_t offset, uint64_t size,
                                       aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                               "not a whole shared library: %s is %llu bytes at offset %llu, but the file has "
                               "%llu bytes",
                               what, (unsigned long long)size, (unsigned long long)offset,
                               (unsigned long long)elf->file_size);
}

aoticache_status aoticache_elf_read(const aoticache_elf *elf, const char *what, uint64_t offset, uint64_t size,
                                    void *buffer, aoticache_error *ret_error)
{
    if (offset > elf->file_size || size > elf->file_size - offset)
        return fail_truncated(elf, what, offset, size, ret_error);
    uint8_t *next = buffer;
    while (size > 0) {
        ssize_t got = pread(elf->fd, next, size, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot read %s", what);
        if (got == 0)
            return fail_truncated(elf, what, offset, size, ret_error);
        next += got;
        offset += (uint64_t)got;
        size -= (uint64_t)got;
    }
    return AOTICACHE_OK;
}

/* Finds the file's bytes from an address to the end of its segment. False: no segment has the address. */
static bool segment_from(const aoticache_elf *elf, uint64_t address, uint64_t *ret_offset, uint64_t *ret_size)
{
    for (size_t i = 0; i < elf->program_count; i++) {
        const Elf64_Phdr *program = &elf->programs[i];
        if (program->p_type != PT_LOAD || address < program->p_vaddr || address - program->p_vaddr >= program->p_filesz)
            continue;
        uint64_t inside = address - program->p_vaddr;
        if (program->p_offset > elf->file_size || inside > elf->file_size - program->p_offset)
            return false;
        uint64_t size = program->p_filesz - inside;
        uint64_t left = elf->file_size - program->p_offset - inside;
        *ret_offset = program->p_offset + inside;
        *ret_size = size < left ? size : left;
        return true;
    }
    return false;
}

bool aoticache_elf_address_of(const aoticache_elf *elf, uint64_t offset, uint64_t size, uint64_t *ret_address)
{
    for (size_t i = 0; i < elf->program_count; i++) {
        const Elf64_Phdr *program = &elf->programs[i];
        if (program->p_type != PT_LOAD || offset < program->p_offset)
            continue;
        uint64_t inside = offset - program->p_offset;
        if (inside <= program->p_filesz && size <= program->p_filesz - inside) {
            *ret_address = program->p_vaddr + inside;
            return true;
        }
    }
    return false;
}

uint64_t aoticache_elf_address_bytes(const aoticache_elf *elf, uint64_t *ret_first)
{
    uint64_t first = UINT64_MAX, end = 0;
    for (size_t i = 0; i < elf->program_count; i++) {
        const Elf64_Phdr *program = &elf->programs[i];
        if (program->p_type != PT_LOAD)
            continue;
        first = program->p_vaddr < first ? program->p_vaddr : first;
        if (program->p_vaddr + program->p_memsz > end)
            end = program->p_vaddr + program->p_memsz;
    }
    *ret_first = first;
    return end > first ? end - first : 0;
}

/*
 * Large tables are in mappings of their own: they are read once and freed, and 60 KiB left in the heap would matter for
 * the memory of a small C process. The size of the mapping, 0 for none, precedes the table.
 */
typedef struct table_head {
    _Alignas(16) size_t mapped;
} table_head;

#define MIN_MAPPED_BYTES 16384

static void *table_allocate(size_t size)
{
    const size_t needed = sizeof(table_head) + size;
    const bool is_mapped = needed >= MIN_MAPPED_BYTES;
    table_head *head =
        is_mapped ? mmap(NULL, needed, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : malloc(needed);
    if (head == MAP_FAILED || head == NULL)
        return NULL;
    head->mapped = is_mapped ? needed : 0;
    return head + 1;
}

static void table_free(void *table)
{
    if (table == NULL)
        return;
    table_head *head = (table_head *)table - 1;
    if (head->mapped > 0)
        munmap(head, head->mapped);
    else
        free(head);
}

/* Reads the table at an address into new memory, with a zero byte after it. */
static aoticache_status read_table(const aoticache_elf *elf, const char *what, uint64_t address, uint64_t size,
                                   void **ret_table, uint64_t *ret_offset, aoticache_error *ret_error)
{
    uint64_t offset = 0, available = 0;
    if (!segment_from(elf, address, &offset, &available) || size > available)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "not a whole shared library: %s (%llu bytes at address 0x%llx) is outside the "
                                   "%llu bytes of the file's segments",
                                   what, (unsigned long long)size, (unsigned long long)address,
                                   (unsigned long long)elf->file_size);
    uint8_t *table = table_allocate(size + 1);
    if (table == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %s: %llu bytes", what,
                                   (unsigned long long)size);
    aoticache_status status = aoticache_elf_read(elf, what, offset, size, table, ret_error);
    if (status != AOTICACHE_OK) {
        table_free(table);
        return status;
    }
    table[size] = 0;
    *ret_table = table;
    if (ret_offset != NULL)
        *ret_offset = offset;
    return AOTICACHE_OK;
}

static uint16_t swapped_16(uint16_t value)
{
    return (uint16_t)((value >> 8) | (value << 8));
}

static aoticache_status read_file_header(aoticache_elf *elf, Elf64_Ehdr *ret_header, aoticache_error *ret_error)
{
    /* The 32-bit header begins with the same members: identification, type, machine. */
    size_t size = elf->file_size < sizeof *ret_header ? offsetof(Elf64_Ehdr, e_version) : sizeof *ret_header;
    aoticache_status status = aoticache_elf_read(elf, "the ELF header", 0, size, ret_header, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const uint8_t *ident = ret_header->e_ident;
    if (memcmp(ident, ELFMAG, SELFMAG) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "not a shared library: it begins with %02x %02x %02x %02x; ELF files begin "
                                   "with 7f 45 4c 46",
                                   ident[0], ident[1], ident[2], ident[3]);
    elf->elf_class = ident[EI_CLASS];
    elf->byte_order = ident[EI_DATA];
    bool swapped = elf->byte_order != aoticache_elf_host_byte_order();
    elf->machine = swapped ? swapped_16(ret_header->e_machine) : ret_header->e_machine;
    uint16_t type = swapped ? swapped_16(ret_header->e_type) : ret_header->e_type;
    if (type != ET_DYN)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "not a shared library: ELF type %u; expected %u", type,
                                   ET_DYN);
    elf->native = !swapped && elf->elf_class == ELFCLASS64;
    if (elf->native && size < sizeof *ret_header)
        return fail_truncated(elf, "the ELF header", 0, sizeof *ret_header, ret_error);
    return AOTICACHE_OK;
}

static aoticache_status read_program_headers(aoticache_elf *elf, const Elf64_Ehdr *header, aoticache_error *ret_error)
{
    if (header->e_phentsize != sizeof(Elf64_Phdr) || header->e_phnum == 0 || header->e_phnum > MAX_PROGRAM_HEADERS)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "not a shared library: %u program headers of %u bytes",
                                   header->e_phnum, header->e_phentsize);
    elf->programs_offset = header->e_phoff;
    elf->program_count = header->e_phnum;
    elf->programs = calloc(elf->program_count, sizeof *elf->programs);
    if (elf->programs == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %u program headers",
                                   header->e_phnum);
    return aoticache_elf_read(elf, "the program headers", elf->programs_offset,
                              elf->program_count * sizeof *elf->programs, elf->programs, ret_error);
}

static aoticache_status read_dynamic(aoticache_elf *elf, aoticache_error *ret_error)
{
    const Elf64_Phdr *found = NULL;
    for (size_t i = 0; i < elf->program_count; i++)
        if (elf->programs[i].p_type == PT_DYNAMIC)
            found = &elf->programs[i];
    if (found == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "not a shared library: it has no dynamic section");
    elf->dynamic_slots = found->p_filesz / sizeof(Elf64_Dyn);
    aoticache_status status =
        read_table(elf, "the dynamic section", found->p_vaddr, elf->dynamic_slots * sizeof(Elf64_Dyn),
                   (void **)&elf->dynamic, &elf->dynamic_offset, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    while (elf->dynamic_count < elf->dynamic_slots && elf->dynamic[elf->dynamic_count].d_tag != DT_NULL)
        elf->dynamic_count++;
    if (elf->dynamic_count == elf->dynamic_slots)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "not a whole shared library: its dynamic section of %zu entries has no end",
                                   elf->dynamic_slots);
    return AOTICACHE_OK;
}

/*
 * Returns the value of the last entry with this tag, which is the one that the dynamic linker uses; `otherwise` if
 * there is none.
 */
static uint64_t dynamic_value(const aoticache_elf *elf, int64_t tag, uint64_t otherwise)
{
    uint64_t value = otherwise;
    for (size_t i = 0; i < elf->dynamic_count; i++)
        if (elf->dynamic[i].d_tag == tag)
            value = elf->dynamic[i].d_un.d_val;
    return value;
}

/* Finds the end of a chain of the hash table: the word of its last symbol has the lowest bit set. */
static aoticache_status end_of_chain(const aoticache_elf *elf, uint64_t offset, uint64_t available, uint64_t symbol,
                                     uint64_t *ret_end, aoticache_error *ret_error)
{
    uint32_t words[64];
    while (available >= sizeof words[0]) {
        uint64_t size = available < sizeof words ? available & ~(uint64_t)3 : sizeof words;
        aoticache_status status = aoticache_elf_read(elf, "the symbol hash table", offset, size, words, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        for (size_t i = 0; i < size / sizeof words[0]; i++, symbol++)
            if (words[i] & 1) {
                *ret_end = symbol + 1;
                return AOTICACHE_OK;
            }
        offset += size;
        available -= size;
    }
    return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                               "not a whole shared library: the symbol hash table has no end");
}

static aoticache_status highest_bucket(const aoticache_elf *elf, uint64_t offset, uint32_t count, uint32_t *ret_highest,
                                       aoticache_error *ret_error)
{
    uint32_t words[256];
    uint32_t highest = 0;
    for (uint32_t done = 0; done < count;) {
        uint32_t some = count - done < 256 ? count - done : 256;
        aoticache_status status = aoticache_elf_read(elf, "the symbol hash table", offset + (uint64_t)done * 4,
                                                     (uint64_t)some * 4, words, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        for (uint32_t i = 0; i < some; i++)
            highest = words[i] > highest ? words[i] : highest;
        done += some;
    }
    *ret_highest = highest;
    return AOTICACHE_OK;
}

/*
 * Counts the symbols with DT_GNU_HASH. They are hashed in the order of the table, so the chain of the highest bucket
 * ends with the last one.
 */
static aoticache_status count_by_gnu_hash(const aoticache_elf *elf, uint64_t address, uint64_t *ret_count,
                                          aoticache_error *ret_error)
{
    uint64_t offset = 0, available = 0;
    uint32_t head[4]; /* buckets, first hashed symbol, words of the filter, its shift */
    uint32_t highest = 0;
    if (!segment_from(elf, address, &offset, &available) || available < sizeof head)
        return fail_truncated(elf, "the symbol hash table", offset, sizeof head, ret_error);
    aoticache_status status = aoticache_elf_read(elf, "the symbol hash table", offset, sizeof head, head, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    uint64_t buckets = sizeof head + (uint64_t)head[2] * 8;
    uint64_t chains = buckets + (uint64_t)head[0] * 4;
    if (chains > available)
        return fail_truncated(elf, "the symbol hash table", offset, chains, ret_error);
    status = highest_bucket(elf, offset + buckets, head[0], &highest, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *ret_count = head[1];
    if (highest < head[1]) /* nothing is hashed, so nothing is exported */
        return AOTICACHE_OK;
    uint64_t chain = chains + (uint64_t)(highest - head[1]) * 4;
    if (chain > available)
        return fail_truncated(elf, "the symbol hash table", offset, chain, ret_error);
    return end_of_chain(elf, offset + chain, available - chain, highest, ret_count, ret_error);
}

static aoticache_status count_symbols(const aoticache_elf *elf, uint64_t symbols_address, uint64_t *ret_count,
                                      aoticache_error *ret_error)
{
    uint64_t hash = dynamic_value(elf, DT_HASH, 0);
    uint64_t gnu_hash = dynamic_value(elf, DT_GNU_HASH, 0);
    uint64_t count = 0;
    if (hash != 0) {
        uint64_t offset = 0, available = 0;
        uint32_t head[2] = {0, 0}; /* buckets, symbols */
        if (!segment_from(elf, hash, &offset, &available) || available < sizeof head)
            return fail_truncated(elf, "the symbol hash table", offset, sizeof head, ret_error);
        aoticache_status status =
            aoticache_elf_read(elf, "the symbol hash table", offset, sizeof head, head, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        count = head[1];
    } else if (gnu_hash != 0) {
        aoticache_status status = count_by_gnu_hash(elf, gnu_hash, &count, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    /* A library that exports nothing has an empty hash table; linkers put the strings directly after the symbols. */
    if (count <= 1 && elf->strings_address > symbols_address)
        count = (elf->strings_address - symbols_address) / sizeof(Elf64_Sym);
    *ret_count = count;
    return AOTICACHE_OK;
}

static aoticache_status read_symbols(aoticache_elf *elf, aoticache_error *ret_error)
{
    elf->strings_address = dynamic_value(elf, DT_STRTAB, 0);
    uint64_t strings_size = dynamic_value(elf, DT_STRSZ, 0);
    aoticache_status status = read_table(elf, "the string table", elf->strings_address, strings_size,
                                         (void **)&elf->strings, NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    elf->strings_size = (size_t)strings_size;
    uint64_t symbols_address = dynamic_value(elf, DT_SYMTAB, 0);
    uint64_t count = 0;
    status = count_symbols(elf, symbols_address, &count, ret_error);
    if (status != AOTICACHE_OK || count == 0)
        return status;
    if (count > elf->file_size / sizeof(Elf64_Sym))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "not a whole shared library: %llu symbols, but the file has %llu bytes",
                                   (unsigned long long)count, (unsigned long long)elf->file_size);
    status = read_table(elf, "the symbol table", symbols_address, count * sizeof(Elf64_Sym), (void **)&elf->symbols,
                        &elf->symbols_offset, ret_error);
    if (status == AOTICACHE_OK)
        elf->symbol_count = (size_t)count;
    return status;
}

static aoticache_status read_everything(aoticache_elf *elf, aoticache_error *ret_error)
{
    Elf64_Ehdr header = {0};
    aoticache_status status = read_file_header(elf, &header, ret_error);
    if (status == AOTICACHE_OK && elf->native)
        status = read_program_headers(elf, &header, ret_error);
    if (status == AOTICACHE_OK && elf->native)
        status = read_dynamic(elf, ret_error);
    if (status == AOTICACHE_OK && elf->native)
        status = aoticache_elf_check_layout(elf, ret_error);
    if (status == AOTICACHE_OK && elf->native)
        status = read_symbols(elf, ret_error);
    return status;
}

aoticache_status aoticache_elf_open(int fd, aoticache_elf *ret_elf, aoticache_error *ret_error)
{
    struct stat about;
    if (fstat(fd, &about) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot examine descriptor %d", fd);
    if (!S_ISREG(about.st_mode))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "not a shared library: not a regular file");
    aoticache_elf elf = {.fd = fd, .file_size = (uint64_t)about.st_size};
    aoticache_status status = read_everything(&elf, ret_error);
    if (status == AOTICACHE_OK)
        *ret_elf = elf;
    else
        aoticache_elf_close(&elf);
    return status;
}

void aoticache_elf_close(aoticache_elf *elf)
{
    free(elf->programs);
    table_free(elf->dynamic);
    table_free(elf->strings);
    table_free(elf->symbols);
    *elf = (aoticache_elf){.fd = -1};
}

const char *aoticache_elf_string(const aoticache_elf *elf, uint64_t offset)
{
    return offset < elf->strings_size ? elf->strings + offset : "";
}

/* ---- machines ---- */

uint8_t aoticache_elf_host_byte_order(void)
{
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
}

uint16_t aoticache_elf_host_machine(void)
{
#if defined(__x86_64__)
    return EM_X86_64;
#elif defined(__aarch64__)
    return EM_AARCH64;
#elif defined(__riscv)
    return EM_RISCV;
#elif defined(__powerpc64__)
    return EM_PPC64;
#elif defined(__s390x__)
    return EM_S390;
#elif defined(__loongarch__)
    return 258;
#else
    return EM_NONE;
#endif
}

void aoticache_elf_machine_format(uint16_t machine, uint8_t elf_class, uint8_t byte_order,
                                  char ret_text[AOTICACHE_ELF_MACHINE_BYTES])
{
    static const struct {
        uint16_t machine;
        uint8_t elf_class, byte_order;
        const char *name;
    } known[] = {
        {EM_X86_64, ELFCLASS64, ELFDATA2LSB, "x86_64"}, {EM_AARCH64, ELFCLASS64, ELFDATA2LSB, "aarch64"},
        {EM_386, ELFCLASS32, ELFDATA2LSB, "i386"},      {EM_ARM, ELFCLASS32, ELFDATA2LSB, "arm"},
        {EM_PPC64, ELFCLASS64, ELFDATA2LSB, "ppc64le"}, {EM_S390, ELFCLASS64, ELFDATA2MSB, "s390x"},
    };
    char name[24];
    bool usual = elf_class == ELFCLASS64 && byte_order == ELFDATA2LSB;
    snprintf(name, sizeof name, "machine %u", machine);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].machine == machine) {
            snprintf(name, sizeof name, "%s", known[i].name);
            usual = known[i].elf_class == elf_class && known[i].byte_order == byte_order;
        }
    if (usual)
        snprintf(ret_text, AOTICACHE_ELF_MACHINE_BYTES, "%s", name);
    else
        snprintf(ret_text, AOTICACHE_ELF_MACHINE_BYTES, "%s, %s-bit %s-endian", name,
                 elf_class == ELFCLASS32 ? "32" : "64", byte_order == ELFDATA2MSB ? "big" : "little");
}
