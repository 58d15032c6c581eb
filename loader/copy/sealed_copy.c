/*
 * loader/copy/sealed_copy: decides what is changed in a copy and where in the file the changes fit, and writes the
 * copy.
 *
 * The provider's name needs memory that DT_NEEDED can point to. The library's own string table cannot be made longer,
 * and its strings may share their tails with others, so nothing in it is overwritten. The name goes into bytes that
 * every linker writes and nobody reads: the address fields of the PT_GNU_STACK program header, of which only type and
 * flags have a meaning (glibc elf/dl-load.c, musl ldso/dynlink.c). Program headers are in the first segment, so they
 * are mapped; DT_NEEDED is an offset from the string table that neither glibc nor musl bounds, and may be negative.
 *
 * That header's execute flag is cleared at the same time: PyTorch links its constants from a raw binary, for which the
 * linker asks for an executable stack, and the dynamic linker would make the stacks of the whole process executable
 * (newer ones refuse instead). Kernels run no code on the stack.
 */
#include "loader/copy/copy_internal.h"

#include "base/cleanup.h"
#include "base/files/memory_file.h"
#include "base/names.h"
#include "loader/loader.h"

#include <errno.h>
#include <string.h>

/* The parts of a copy that differ from the file, apart from its symbols. */
typedef struct copy_edit {
    Elf64_Dyn *dynamic; /* as many as the file has; zeros are DT_NULL */
    bool changed;
    const char *name; /* NULL: not needed */
    size_t stack_index;
    uint64_t name_address;
} copy_edit;

/* Checks that the name fits from p_vaddr to the end of the header. Tools still see a stack of size 0 in the file. */
static aoticache_status find_room_for_name(const aoticache_elf *elf, const char *name, copy_edit *edit,
                                           aoticache_error *ret_error)
{
    _Static_assert(sizeof(Elf64_Phdr) - offsetof(Elf64_Phdr, p_vaddr) == AOTICACHE_TORCH_NEEDED_BYTES,
                   "a provider's name fits into the fields of a program header from p_vaddr on");
    for (size_t i = 0; i < elf->program_count; i++) {
        uint64_t offset = elf->programs_offset + i * sizeof(Elf64_Phdr) + offsetof(Elf64_Phdr, p_vaddr);
        if (elf->programs[i].p_type == PT_GNU_STACK &&
            aoticache_elf_address_of(elf, offset, AOTICACHE_TORCH_NEEDED_BYTES, &edit->name_address)) {
            edit->stack_index = i;
            edit->name = name;
            return AOTICACHE_OK;
        }
    }
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "it has no PT_GNU_STACK program header in its segments that could hold the "
                               "name of %s; link it without -z nognustack",
                               name);
}

static bool stack_is_executable(const aoticache_elf *elf)
{
    for (size_t i = 0; i < elf->program_count; i++)
        if (elf->programs[i].p_type == PT_GNU_STACK && (elf->programs[i].p_flags & PF_X) != 0)
            return true;
    return false;
}

/*
 * Finds a slot for one more entry: an unused one at the end, if the linker left any, or else an entry that dynamic
 * linkers do not need. DT_RELACOUNT only makes relocation faster, and DT_SYMENT is a constant that they do not read.
 */
static Elf64_Dyn *spare_entry(const aoticache_elf *elf, Elf64_Dyn *dynamic, size_t used)
{
    if (used + 1 < elf->dynamic_slots)
        return &dynamic[used];
    static const int64_t dispensable[] = {DT_RELACOUNT, DT_SYMENT};
    for (size_t t = 0; t < sizeof dispensable / sizeof dispensable[0]; t++)
        for (size_t i = 0; i < used; i++)
            if (dynamic[i].d_tag == dispensable[t])
                return &dynamic[i];
    return NULL;
}

static aoticache_status need_provider(const aoticache_elf *elf, const char *name, Elf64_Dyn *entry, copy_edit *edit,
                                      aoticache_error *ret_error)
{
    if (entry == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "its dynamic section has no space to name %s: all %zu entries are in use; link "
                                   "it with libtorch_cpu.so",
                                   name, elf->dynamic_slots);
    aoticache_status status = find_room_for_name(elf, name, edit, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *entry = (Elf64_Dyn){.d_tag = DT_NEEDED, .d_un.d_val = edit->name_address - elf->strings_address};
    edit->changed = true;
    return AOTICACHE_OK;
}

/* Copies the entries, except those that must be removed. *ret_torch is the first entry that names libtorch_cpu.so. */
static size_t copy_entries(const aoticache_elf *elf, bool shim, copy_edit *edit, Elf64_Dyn **ret_torch)
{
    size_t used = 0;
    for (size_t i = 0; i < elf->dynamic_count; i++) {
        aoticache_needed_kind kind = AOTICACHE_NEEDED_SYSTEM;
        if (elf->dynamic[i].d_tag == DT_NEEDED)
            kind = aoticache_needed_classify(aoticache_elf_string(elf, elf->dynamic[i].d_un.d_val));
        bool again = kind == AOTICACHE_NEEDED_TORCH_CPU && *ret_torch != NULL;
        if (again || (shim && kind == AOTICACHE_NEEDED_TORCH)) {
            edit->changed = true;
            continue;
        }
        if (kind == AOTICACHE_NEEDED_TORCH_CPU)
            *ret_torch = &edit->dynamic[used];
        edit->dynamic[used++] = elf->dynamic[i];
    }
    return used;
}

static aoticache_status plan_edit(const aoticache_elf *elf, const aoticache_library_names *names,
                                  const aoticache_torch_provider *provider, copy_edit *edit, aoticache_error *ret_error)
{
    Elf64_Dyn *torch = NULL;
    bool shim = provider->torch.kind == AOTICACHE_TORCH_SHIM;
    size_t used = copy_entries(elf, shim, edit, &torch);
    if (shim)
        edit->changed |= stack_is_executable(elf);
    if (torch == NULL && names->symbols.count > 0)
        return need_provider(elf, provider->needed, spare_entry(elf, edit->dynamic, used), edit, ret_error);
    if (torch != NULL && strcmp(aoticache_elf_string(elf, torch->d_un.d_val), provider->needed) != 0)
        return need_provider(elf, provider->needed, torch, edit, ret_error);
    return AOTICACHE_OK;
}

/* ---- the copy itself ---- */

static aoticache_status create_memory_file(int *ret_file, aoticache_error *ret_error)
{
    int file = aoticache_memory_file_create();
    if (file < 0 && errno == ENOSYS)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "this system does not support memfd_create");
    if (file < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot create a file in memory");
    *ret_file = file;
    return AOTICACHE_OK;
}

/*
 * Returns the offset at which the last segment ends in the file. Debugging tables, often most of the file, and weights
 * follow it.
 */
static uint64_t bytes_of_segments(const aoticache_elf *elf)
{
    uint64_t end = elf->programs_offset + elf->program_count * sizeof(Elf64_Phdr);
    for (size_t i = 0; i < elf->program_count; i++) {
        const Elf64_Phdr *program = &elf->programs[i];
        uint64_t program_end;
        if (program->p_type != PT_LOAD)
            continue;
        if (__builtin_add_overflow(program->p_offset, program->p_filesz, &program_end) || program_end > elf->file_size)
            return elf->file_size;
        end = program_end > end ? program_end : end;
    }
    return end;
}

/* Finds how many bytes of the file are copied: its segments, or the whole file. */
static aoticache_status bytes_to_copy(const aoticache_elf *elf, bool whole, bool always, uint64_t *ret_size,
                                      aoticache_error *ret_error)
{
    uint64_t size = whole ? elf->file_size : bytes_of_segments(elf);
    if (size > AOTICACHE_SEALED_COPY_MAX_BYTES)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "%s %llu bytes; at most %llu are copied into memory; run it in a process with "
                                   "PyTorch%s",
                                   whole ? "it has" : "its segments have", (unsigned long long)size,
                                   (unsigned long long)AOTICACHE_SEALED_COPY_MAX_BYTES,
                                   always ? ", without a private copy" : "");
    *ret_size = size;
    return AOTICACHE_OK;
}

/* Copies through a buffer that stays in the first-level cache, which takes half the time of sendfile (measured). */
static aoticache_status copy_bytes(const aoticache_elf *elf, uint64_t size, int copy, aoticache_error *ret_error)
{
    char buffer[16384];
    for (uint64_t offset = 0; offset < size;) {
        size_t wanted = size - offset < sizeof buffer ? (size_t)(size - offset) : sizeof buffer;
        ssize_t got = pread(elf->fd, buffer, wanted, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0)
            return aoticache_error_set(ret_error, AOTICACHE_IO,
                                       "the file shrank from %llu to %llu bytes while it was being copied",
                                       (unsigned long long)elf->file_size, (unsigned long long)offset);
        if (got < 0 || !aoticache_memory_file_write(copy, buffer, (size_t)got, offset))
            return aoticache_error_set_errno(ret_error, errno, "cannot copy %llu bytes into memory",
                                             (unsigned long long)size);
        offset += (uint64_t)got;
    }
    return AOTICACHE_OK;
}

/*
 * Removes the section headers from the file header: only tools read them, and they may be in the part that was not
 * copied.
 */
static bool write_file_header(int copy)
{
    Elf64_Ehdr header;
    for (size_t have = 0; have < sizeof header;) {
        const ssize_t got = pread(copy, (char *)&header + have, sizeof header - have, (off_t)have);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        have += (size_t)got;
    }
    header.e_shoff = 0;
    header.e_shnum = header.e_shstrndx = 0;
    return aoticache_memory_file_write(copy, &header, sizeof header, 0);
}

static bool write_stack_headers(const aoticache_elf *elf, const copy_edit *edit, int copy)
{
    for (size_t i = 0; i < elf->program_count; i++) {
        if (elf->programs[i].p_type != PT_GNU_STACK)
            continue;
        Elf64_Phdr header = elf->programs[i];
        header.p_flags &= ~(Elf64_Word)PF_X;
        if (edit->name != NULL && i == edit->stack_index)
            memcpy((char *)&header + offsetof(Elf64_Phdr, p_vaddr), edit->name, strlen(edit->name) + 1);
        if (!aoticache_memory_file_write(copy, &header, sizeof header, elf->programs_offset + i * sizeof header))
            return false;
    }
    return true;
}

typedef struct own_function {
    const char *name;
    uintptr_t address;
    bool finds_itself; /* redirected only in libraries that look for their own file */
} own_function;

/*
 * Makes the symbol one of the loader's functions instead of the C library's. A local symbol is not looked up in other
 * libraries, and an absolute one is not relocated with the library (resolve_map and SYMBOL_ADDRESS, glibc
 * elf/dl-reloc.c, sysdeps/generic/ldsodefs.h). Only this process uses the copy, so an address of this process may be in
 * it.
 */
static bool redirect(const aoticache_elf *elf, const aoticache_library_names *names, Elf64_Sym *symbol)
{
    const own_function functions[] = {
        {"__cxa_thread_atexit", (uintptr_t)aoticache_thread_exit_add, false},
        {"__cxa_thread_atexit_impl", (uintptr_t)aoticache_thread_exit_add, false},
        {"mmap", (uintptr_t)aoticache_own_mappings_map, true},
        {"mmap64", (uintptr_t)aoticache_own_mappings_map, true},
        {"munmap", (uintptr_t)aoticache_own_mappings_unmap, true},
        {"malloc", (uintptr_t)aoticache_large_malloc, false},
    };
    if (symbol->st_shndx != SHN_UNDEF)
        return false;
    const char *theirs = aoticache_elf_string(elf, symbol->st_name);
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        const own_function *own = &functions[i];
        if (theirs[0] != own->name[0] || strcmp(theirs, own->name) != 0 || (own->finds_itself && !names->finds_itself))
            continue;
        symbol->st_info = (unsigned char)ELF64_ST_INFO(STB_LOCAL, STT_FUNC);
        symbol->st_shndx = SHN_ABS;
        symbol->st_value = own->address;
        return true;
    }
    return false;
}

static bool edit_symbol(const aoticache_elf *elf, const aoticache_library_names *names, Elf64_Sym *symbol)
{
    if (ELF64_ST_BIND(symbol->st_info) == STB_GNU_UNIQUE) {
        symbol->st_info = (unsigned char)ELF64_ST_INFO(STB_GLOBAL, ELF64_ST_TYPE(symbol->st_info));
        return true;
    }
    return redirect(elf, names, symbol);
}

/* Writes the symbols in batches, and only the batches in which a symbol has changed. */
static bool write_symbols(const aoticache_elf *elf, const aoticache_library_names *names, int copy)
{
    enum { SOME = 128 };
    Elf64_Sym some[SOME];
    for (size_t first = 0; first < elf->symbol_count; first += SOME) {
        size_t count = elf->symbol_count - first < SOME ? elf->symbol_count - first : SOME;
        bool changed = false;
        memcpy(some, elf->symbols + first, count * sizeof *some);
        for (size_t i = 0; i < count; i++)
            changed |= edit_symbol(elf, names, &some[i]);
        if (changed &&
            !aoticache_memory_file_write(copy, some, count * sizeof *some, elf->symbols_offset + first * sizeof *some))
            return false;
    }
    return true;
}

/* Turns `copy`, the file in memory that the tables were read from or an empty one, into the sealed copy. */
static aoticache_status write_copy(const aoticache_elf *elf, const aoticache_library_names *names, bool whole,
                                   uint64_t size, const copy_edit *edit, int copy, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    if (copy != elf->fd)
        status = copy_bytes(elf, size, copy, ret_error);
    else if (size < elf->file_size && ftruncate(copy, (off_t)size) != 0)
        status = aoticache_error_set_errno(ret_error, errno, "cannot truncate the copy to %llu bytes",
                                           (unsigned long long)size);
    if (status != AOTICACHE_OK)
        return status;
    if (!aoticache_memory_file_write(copy, edit->dynamic, elf->dynamic_slots * sizeof *edit->dynamic,
                                     elf->dynamic_offset) ||
        !write_stack_headers(elf, edit, copy) || !write_symbols(elf, names, copy) ||
        (!whole && !write_file_header(copy)))
        return aoticache_error_set_errno(ret_error, errno, "cannot write the provider's name into the copy");
    if (!aoticache_memory_file_seal(copy))
        return aoticache_error_set_errno(ret_error, errno, "cannot seal the copy");
    return AOTICACHE_OK;
}

aoticache_status aoticache_sealed_copy_read(const aoticache_elf *elf, bool whole, const aoticache_digest *digest,
                                            int *ret_image, aoticache_error *ret_error)
{
    aoticache_digest actual;
    aoticache_memory_copy copy = {.file = -1};
    cleanup_fd int file = -1;
    aoticache_status status = bytes_to_copy(elf, whole, true, &copy.kept, ret_error);
    if (status == AOTICACHE_OK)
        status = create_memory_file(&file, ret_error);
    copy.file = file;
    if (status == AOTICACHE_OK)
        status = aoticache_digest_of_fd_copying(elf->fd, &copy, &actual, NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (copy.failed != 0)
        return aoticache_error_set_errno(ret_error, copy.failed, "cannot copy %llu bytes into memory",
                                         (unsigned long long)copy.kept);
    if (!aoticache_digest_equal(&actual, digest)) {
        char theirs[AOTICACHE_DIGEST_HEX_BYTES], wanted[AOTICACHE_DIGEST_HEX_BYTES];
        aoticache_digest_to_hex(&actual, theirs);
        aoticache_digest_to_hex(digest, wanted);
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "its bytes hash to %s, not to %s: it was changed after it was verified; look it up "
                                   "again",
                                   theirs, wanted);
    }
    *ret_image = steal_fd(&file);
    return AOTICACHE_OK;
}

aoticache_status aoticache_sealed_copy_make(const aoticache_elf *elf, const aoticache_library_names *names,
                                            const aoticache_torch_provider *provider,
                                            const aoticache_sealed_copy_options *options, int *ret_fd,
                                            aoticache_error *ret_error)
{
    cleanup_free Elf64_Dyn *dynamic = calloc(elf->dynamic_slots, sizeof *dynamic);
    uint64_t size = 0;
    if (dynamic == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu dynamic entries",
                                   elf->dynamic_slots);
    copy_edit edit = {.dynamic = dynamic};
    aoticache_status status = plan_edit(elf, names, provider, &edit, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (!edit.changed && !options->always) {
        *ret_fd = -1;
        return AOTICACHE_OK;
    }
    status = bytes_to_copy(elf, options->whole, options->always, &size, ret_error);
    cleanup_fd int created = -1;
    if (status == AOTICACHE_OK && options->image < 0)
        status = create_memory_file(&created, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    int copy = options->image >= 0 ? options->image : created;
    status = write_copy(elf, names, options->whole, size, &edit, copy, ret_error);
    if (status == AOTICACHE_OK) {
        *ret_fd = copy;
        created = -1;
    }
    return status;
}
