/*
 * loader/elf/layout: refuses what the dynamic linker would accept and then crash on: segments that are not in the file
 * (reading them is a bus error), that overlap or do not fit their alignment, and tables that are in no segment. It
 * maps, relocates and runs constructors by these numbers alone, and checks hardly any of them (glibc elf/dl-load.c).
 * Code and data are not examined: the digest shows that nobody has altered them.
 */
#include "loader/elf/elf_internal.h"

#include <inttypes.h>

#ifndef DT_RELR /* glibc before 2.36 */
#define DT_RELRSZ 35
#define DT_RELR 36
#endif

static aoticache_status fail_outside(const aoticache_elf *elf, const char *what, uint64_t first, uint64_t bytes,
                                     aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                               "not a whole shared library: %s is %" PRIu64 " bytes at address 0x%" PRIx64
                               ", outside the segments of the file of %" PRIu64 " bytes",
                               what, bytes, first, elf->file_size);
}

static aoticache_status check_segment(const aoticache_elf *elf, size_t index, uint64_t previous_end,
                                      aoticache_error *ret_error)
{
    const Elf64_Phdr *segment = &elf->programs[index];
    uint64_t end;
    if (segment->p_offset > elf->file_size || segment->p_filesz > elf->file_size - segment->p_offset)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "not a whole shared library: segment %zu is %" PRIu64 " bytes at offset %" PRIu64
                                   ", but the file has %" PRIu64 " bytes",
                                   index, segment->p_filesz, segment->p_offset, elf->file_size);
    if (segment->p_memsz < segment->p_filesz || __builtin_add_overflow(segment->p_vaddr, segment->p_memsz, &end) ||
        end > (uint64_t)1 << 47 || segment->p_vaddr < previous_end)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "not a shared library: segment %zu has %" PRIu64 " bytes at address 0x%" PRIx64 ", "
                                   "of which %" PRIu64 " are in the file, and the previous segment ends at 0x%" PRIx64,
                                   index, segment->p_memsz, segment->p_vaddr, segment->p_filesz, previous_end);
    uint64_t align = segment->p_align > 1 ? segment->p_align : 1;
    if ((align & (align - 1)) != 0 || align > (uint64_t)1 << 32 ||
        ((segment->p_vaddr - segment->p_offset) & (align - 1)) != 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "not a shared library: segment %zu at address 0x%" PRIx64 " and offset %" PRIu64
                                   " is not aligned to %" PRIu64,
                                   index, segment->p_vaddr, segment->p_offset, segment->p_align);
    return AOTICACHE_OK;
}

static aoticache_status check_segments(const aoticache_elf *elf, aoticache_error *ret_error)
{
    uint64_t previous_end = 0;
    for (size_t i = 0; i < elf->program_count; i++) {
        if (elf->programs[i].p_type != PT_LOAD)
            continue;
        aoticache_status status = check_segment(elf, i, previous_end, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        previous_end = elf->programs[i].p_vaddr + elf->programs[i].p_memsz;
    }
    return AOTICACHE_OK;
}

/*
 * Returns whether one segment with these permissions has the whole range in memory. (Bytes that are not in the file are
 * zero in memory.)
 */
static bool in_segment(const aoticache_elf *elf, uint64_t first, uint64_t bytes, uint32_t flags)
{
    for (size_t i = 0; i < elf->program_count; i++) {
        const Elf64_Phdr *segment = &elf->programs[i];
        if (segment->p_type == PT_LOAD && (segment->p_flags & flags) == flags && first >= segment->p_vaddr &&
            first - segment->p_vaddr <= segment->p_memsz && bytes <= segment->p_memsz - (first - segment->p_vaddr))
            return true;
    }
    return false;
}

/* Checks the parts of segments that the dynamic linker writes to, copies or protects. */
static aoticache_status check_parts(const aoticache_elf *elf, aoticache_error *ret_error)
{
    for (size_t i = 0; i < elf->program_count; i++) {
        const Elf64_Phdr *part = &elf->programs[i];
        /* Some linkers round the end of the protected part up to the largest possible page. */
        uint64_t whole_pages = part->p_memsz > 65535 ? part->p_memsz - 65535 : 0;
        if (part->p_type == PT_GNU_RELRO && !in_segment(elf, part->p_vaddr, whole_pages, PF_W))
            return fail_outside(elf, "the part to be protected", part->p_vaddr, part->p_memsz, ret_error);
        if (part->p_type == PT_DYNAMIC && !in_segment(elf, part->p_vaddr, part->p_memsz, PF_R))
            return fail_outside(elf, "the dynamic section", part->p_vaddr, part->p_memsz, ret_error);
        if (part->p_type != PT_TLS)
            continue;
        uint64_t align = part->p_align > 1 ? part->p_align : 1;
        if (part->p_filesz > part->p_memsz || part->p_memsz > (uint64_t)1 << 40 || (align & (align - 1)) != 0 ||
            align > 65536 || (part->p_filesz > 0 && !in_segment(elf, part->p_vaddr, part->p_filesz, PF_R)))
            return fail_outside(elf, "the template of thread-local variables", part->p_vaddr, part->p_filesz,
                                ret_error);
    }
    return AOTICACHE_OK;
}

/* A table of the dynamic section: its address, its size, and the size of one entry. */
typedef struct dynamic_table {
    int64_t address_tag, size_tag; /* DT_NULL: only the address is checked */
    uint32_t entry_bytes;
    uint32_t flags;
    const char *what;
} dynamic_table;

static const dynamic_table tables[] = {
    {DT_RELA, DT_RELASZ, sizeof(Elf64_Rela), PF_R, "the relocation table"},
    {DT_JMPREL, DT_PLTRELSZ, sizeof(Elf64_Rela), PF_R, "the relocation table of functions"},
    {DT_RELR, DT_RELRSZ, sizeof(Elf64_Xword), PF_R, "the table of relative relocations"},
    {DT_INIT_ARRAY, DT_INIT_ARRAYSZ, sizeof(Elf64_Addr), PF_R, "the table of constructors"},
    {DT_FINI_ARRAY, DT_FINI_ARRAYSZ, sizeof(Elf64_Addr), PF_R, "the table of destructors"},
    {DT_INIT, DT_NULL, 1, PF_X, "the constructor"},
    {DT_FINI, DT_NULL, 1, PF_X, "the destructor"},
    {DT_HASH, DT_NULL, 8, PF_R, "the symbol hash table"},
    {DT_GNU_HASH, DT_NULL, 16, PF_R, "the symbol hash table"},
    {DT_SYMTAB, DT_NULL, sizeof(Elf64_Sym), PF_R, "the symbol table"},
    {DT_STRTAB, DT_STRSZ, 1, PF_R, "the string table"},
    {DT_PLTGOT, DT_NULL, 1, PF_R, "the table of functions' addresses"},
    {DT_VERSYM, DT_NULL, sizeof(Elf64_Half), PF_R, "the table of symbol versions"},
    {DT_VERNEED, DT_NULL, sizeof(Elf64_Verneed), PF_R, "the table of needed versions"},
    {DT_VERDEF, DT_NULL, sizeof(Elf64_Verdef), PF_R, "the table of defined versions"},
};

static bool find_value(const aoticache_elf *elf, int64_t tag, uint64_t *ret_value)
{
    bool found = false;
    for (size_t i = 0; i < elf->dynamic_count; i++)
        if (elf->dynamic[i].d_tag == tag) {
            *ret_value = elf->dynamic[i].d_un.d_val;
            found = true;
        }
    return found;
}

/*
 * Checks that the tables are in segments. The dynamic linker does not notice a size that is not a multiple of an entry,
 * and reads past the end.
 */
static aoticache_status check_tables(const aoticache_elf *elf, aoticache_error *ret_error)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        const dynamic_table *table = &tables[i];
        uint64_t address = 0, bytes = table->entry_bytes;
        bool has_size = table->size_tag != DT_NULL && find_value(elf, table->size_tag, &bytes);
        bool has_address = find_value(elf, table->address_tag, &address);
        if ((has_size && bytes == 0) || (!has_size && !has_address))
            continue;
        if (has_address && table->size_tag != DT_NULL && !has_size)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "not a whole shared library: the length of %s is missing", table->what);
        if (!has_address || bytes % table->entry_bytes != 0 || !in_segment(elf, address, bytes, table->flags))
            return fail_outside(elf, table->what, address, bytes, ret_error);
    }
    return AOTICACHE_OK;
}

/* Checks entries that name strings, and those that can have only one value. */
static aoticache_status check_entry(const aoticache_elf *elf, const Elf64_Dyn *entry, uint64_t strings_size,
                                    aoticache_error *ret_error)
{
    uint64_t value = entry->d_un.d_val, only = value;
    switch (entry->d_tag) {
    case DT_NEEDED:
    case DT_SONAME:
    case DT_RPATH:
    case DT_RUNPATH:
        if (value >= strings_size)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "not a whole shared library: a name is at %" PRIu64 " of %" PRIu64
                                       " bytes of strings",
                                       value, strings_size);
        break;
    case DT_PLTREL:
        only = DT_RELA;
        break;
    case DT_RELAENT:
        only = sizeof(Elf64_Rela);
        break;
    case DT_RELACOUNT:
        find_value(elf, DT_RELASZ, &only);
        only = value <= only / sizeof(Elf64_Rela) ? value : only / sizeof(Elf64_Rela);
        break;
    case DT_VERNEEDNUM: /* each has some bytes in the file */
    case DT_VERDEFNUM:
        only = value <= elf->file_size / sizeof(Elf64_Verneed) ? value : elf->file_size / sizeof(Elf64_Verneed);
        break;
    default:
        break;
    }
    if (value != only)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "not a shared library: entry 0x%" PRIx64 " of its dynamic section is %" PRIu64 "; "
                                   "expected %" PRIu64,
                                   (uint64_t)entry->d_tag, value, only);
    return AOTICACHE_OK;
}

static aoticache_status check_entries(const aoticache_elf *elf, aoticache_error *ret_error)
{
    uint64_t strings_size = 0, ignored;
    bool versions = find_value(elf, DT_VERNEED, &ignored) || find_value(elf, DT_VERDEF, &ignored);
    find_value(elf, DT_STRSZ, &strings_size);
    for (size_t i = 0; i < elf->dynamic_count; i++) {
        aoticache_status status = check_entry(elf, &elf->dynamic[i], strings_size, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    if (!find_value(elf, DT_SYMTAB, &ignored) || !find_value(elf, DT_STRTAB, &ignored) ||
        versions != find_value(elf, DT_VERSYM, &ignored) ||
        find_value(elf, DT_JMPREL, &ignored) != find_value(elf, DT_PLTREL, &ignored) ||
        find_value(elf, DT_RELA, &ignored) != find_value(elf, DT_RELAENT, &ignored))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "not a whole shared library: its dynamic section lacks the symbols, their "
                                   "versions, or the kind of its relocations");
    return AOTICACHE_OK;
}

aoticache_status aoticache_elf_check_layout(const aoticache_elf *elf, aoticache_error *ret_error)
{
    aoticache_status status = check_segments(elf, ret_error);
    if (status == AOTICACHE_OK)
        status = check_parts(elf, ret_error);
    if (status == AOTICACHE_OK)
        status = check_tables(elf, ret_error);
    if (status == AOTICACHE_OK)
        status = check_entries(elf, ret_error);
    return status;
}
