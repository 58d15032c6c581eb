/*
 * loader/elf/traits: facts in a library's file other than the names of its functions: what made it, what the dynamic
 * linker will do because of it, what is appended to it. Also finds which names another library, such as
 * libtorch_cpu.so, defines. Everything is read from the file; section headers, which only this file uses, may be
 * missing.
 */
#include "base/arguments.h"
#include "loader/elf/traits.h"

#include "base/cleanup.h"
#include "loader/elf/elf_internal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK_BYTES = 16384, LONGEST_MARK = 64, OPERATORS_BYTES = 4096, COMPILER_BYTES = 160 };

typedef struct traits_storage {
    aoticache_library_traits traits; /* first, so that the caller's pointer points to the storage too */
    aoticache_elf elf;
    char compiler[COMPILER_BYTES];
    char operators[OPERATORS_BYTES];
} traits_storage;

/* Reads bytes of the file. False: not all of them are in the file. */
static bool read_bytes(const aoticache_elf *elf, uint64_t offset, void *buffer, size_t size)
{
    return aoticache_elf_read(elf, "a part of the file", offset, size, buffer, NULL) == AOTICACHE_OK;
}

/* ---- what made it ---- */

/*
 * Names of types in PyTorch's C++ namespace are in every library that its AOTInductor makes, as run-time type
 * information; one of our messages is in every library that links runtime/, and one of wrapper.h in those that
 * eager/compile/inductor/ builds from Inductor's code.
 */
static const char pytorch_mark[] = "5torch12aot_inductor";
static const char runtime_mark[] = "the kernel did not make output %zu (%s)";
static const char inductor_mark[] = "a kernel failed inside a parallel loop";

static aoticache_library_maker find_maker(const aoticache_elf *elf)
{
    char bytes[CHUNK_BYTES];
    bool has_runtime = false, has_inductor = false;
    /* Chunks overlap, so that no marker is cut in two. */
    for (uint64_t offset = 0; offset < elf->file_size; offset += CHUNK_BYTES - LONGEST_MARK) {
        uint64_t left = elf->file_size - offset;
        size_t size = left < sizeof bytes ? (size_t)left : sizeof bytes;
        if (!read_bytes(elf, offset, bytes, size))
            break;
        if (memmem(bytes, size, pytorch_mark, sizeof pytorch_mark - 1) != NULL)
            return AOTICACHE_MAKER_PYTORCH;
        has_runtime |= memmem(bytes, size, runtime_mark, sizeof runtime_mark - 1) != NULL;
        has_inductor |= memmem(bytes, size, inductor_mark, sizeof inductor_mark - 1) != NULL;
    }
    if (!has_runtime)
        return AOTICACHE_MAKER_UNKNOWN;
    return has_inductor ? AOTICACHE_MAKER_INDUCTOR : AOTICACHE_MAKER_RUNTIME;
}

/* ---- sections ---- */

typedef struct section_table {
    uint64_t offset;
    size_t count;
    Elf64_Shdr names; /* the section with their names */
} section_table;

static bool read_section(const aoticache_elf *elf, const section_table *table, size_t position, Elf64_Shdr *ret_section)
{
    return read_bytes(elf, table->offset + position * sizeof *ret_section, ret_section, sizeof *ret_section);
}

static bool open_sections(const aoticache_elf *elf, section_table *ret_table)
{
    Elf64_Ehdr header;
    section_table table = {0};
    if (!read_bytes(elf, 0, &header, sizeof header) || header.e_shentsize != sizeof(Elf64_Shdr) ||
        header.e_shstrndx >= header.e_shnum || header.e_shoff > elf->file_size)
        return false;
    table.offset = header.e_shoff;
    table.count = header.e_shnum;
    if (!read_section(elf, &table, header.e_shstrndx, &table.names))
        return false;
    *ret_table = table;
    return true;
}

static bool is_named(const aoticache_elf *elf, const section_table *table, const Elf64_Shdr *section, const char *name)
{
    char bytes[16];
    size_t size = strlen(name) + 1;
    return size <= sizeof bytes && table->names.sh_offset <= elf->file_size &&
           read_bytes(elf, table->names.sh_offset + section->sh_name, bytes, size) && memcmp(bytes, name, size) == 0;
}

/* Reads the first string of .comment, where compilers and linkers leave their names. */
static void read_compiler(const aoticache_elf *elf, const section_table *table, char ret_text[COMPILER_BYTES])
{
    Elf64_Shdr section;
    for (size_t i = 0; i < table->count && read_section(elf, table, i, &section); i++) {
        if (section.sh_type != SHT_PROGBITS || !is_named(elf, table, &section, ".comment"))
            continue;
        size_t size = section.sh_size < COMPILER_BYTES - 1 ? (size_t)section.sh_size : COMPILER_BYTES - 1;
        if (!read_bytes(elf, section.sh_offset, ret_text, size))
            size = 0;
        ret_text[size] = '\0';
        return;
    }
}

static void raise_to(uint64_t *end, uint64_t offset, uint64_t size)
{
    if (size <= UINT64_MAX - offset && offset + size > *end)
        *end = offset + size;
}

/* Counts the bytes after everything that segments and sections describe: PyTorch appends weights there. */
static uint64_t count_appended(const aoticache_elf *elf, const section_table *table)
{
    uint64_t end = 0;
    Elf64_Shdr section;
    for (size_t i = 0; i < elf->program_count; i++)
        raise_to(&end, elf->programs[i].p_offset, elf->programs[i].p_filesz);
    if (table->count > 0)
        raise_to(&end, table->offset, table->count * sizeof(Elf64_Shdr));
    for (size_t i = 0; i < table->count && read_section(elf, table, i, &section); i++)
        if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL)
            raise_to(&end, section.sh_offset, section.sh_size);
    return end < elf->file_size ? elf->file_size - end : 0;
}

/* ---- segments and symbols ---- */

/*
 * Returns whether the library asks for an executable stack. Without a PT_GNU_STACK header it does: that is the rule on
 * older architectures.
 */
static bool wants_executable_stack(const aoticache_elf *elf)
{
    for (size_t i = 0; i < elf->program_count; i++)
        if (elf->programs[i].p_type == PT_GNU_STACK)
            return (elf->programs[i].p_flags & PF_X) != 0;
    return true;
}

static size_t count_unique(const aoticache_elf *elf)
{
    size_t count = 0;
    for (size_t i = 1; i < elf->symbol_count; i++)
        count += ELF64_ST_BIND(elf->symbols[i].st_info) == STB_GNU_UNIQUE;
    return count;
}

static const char *find_soname(const aoticache_elf *elf)
{
    for (size_t i = 0; i < elf->dynamic_count; i++)
        if (elf->dynamic[i].d_tag == DT_SONAME)
            return aoticache_elf_string(elf, elf->dynamic[i].d_un.d_val);
    return "";
}

/*
 * ---- the operators that are called through PyTorch's proxy executor ----
 *
 * The call has only a number for the operator; the table of these numbers is in a separate file. But libraries keep the
 * names of the operators that they call for profilers, as "torch.ops.aten.cholesky.default", and this code looks for
 * those. The names are only for messages, so a library may lack them.
 */

#define OPERATOR_MARK "torch.ops."

enum { LONGEST_NAME = 200 };

/*
 * Translates a name: "aten.cholesky.default" becomes "aten::cholesky", "aten.sum.dim_IntList" becomes
 * "aten::sum.dim_IntList".
 */
static bool translate_operator(const char *name, size_t length, char ret_operator[LONGEST_NAME + 2])
{
    static const char ordinary[] = ".default";
    const char *dot = memchr(name, '.', length);
    size_t space = dot != NULL ? (size_t)(dot - name) : 0;
    if (space == 0 || space + 1 == length)
        return false;
    const size_t ending = sizeof ordinary - 1;
    if (length > ending && memcmp(name + length - ending, ordinary, ending) == 0)
        length -= ending;
    snprintf(ret_operator, LONGEST_NAME + 2, "%.*s::%.*s", (int)space, name, (int)(length - space - 1), dot + 1);
    return true;
}

static bool is_listed(const char *text, const char *operator)
{
    size_t length = strlen(operator);
    for (const char *at = text; (at = strstr(at, operator)) != NULL; at += length)
        if ((at == text || at[-1] == ' ') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

/* Appends an operator. False: the text is full. */
static bool add_operator(const char *name, size_t length, char *text, size_t size)
{
    char operator[LONGEST_NAME + 2];
    size_t used = strlen(text);
    if (!translate_operator(name, length, operator) || is_listed(text, operator))
        return true;
    if (used + strlen(operator) + sizeof ", " > size)
        return false;
    snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "", operator);
    return true;
}

/* Adds the operators whose marker begins before `limit`; false: the text is full. */
static bool add_operators_in(const char *bytes, size_t size, size_t limit, char *text, size_t text_size)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
    const char *at = bytes, *end = bytes + size;
    while ((at = memmem(at, (size_t)(end - at), OPERATOR_MARK, sizeof OPERATOR_MARK - 1)) != NULL &&
           at < bytes + limit) {
        at += sizeof OPERATOR_MARK - 1;
        size_t length = 0;
        while (at + length < end && at[length] != '\0' && strchr(letters, at[length]) != NULL)
            length++;
        if (length > 0 && length <= LONGEST_NAME && !add_operator(at, length, text, text_size))
            return false;
    }
    return true;
}

void aoticache_proxy_operators_format(const aoticache_elf *elf, char *ret_text, size_t size)
{
    /*
     * Chunks overlap by the length of the longest name: a name that begins so late that it might be cut is left to the
     * next chunk.
     */
    enum { OVERLAP = sizeof OPERATOR_MARK + LONGEST_NAME };
    char bytes[CHUNK_BYTES];
    ret_text[0] = '\0';
    for (uint64_t offset = 0; offset < elf->file_size; offset += CHUNK_BYTES - OVERLAP) {
        ssize_t got = pread(elf->fd, bytes, sizeof bytes, (off_t)offset);
        if (got <= 0)
            return;
        bool is_last = offset + (uint64_t)got >= elf->file_size;
        size_t limit = is_last ? (size_t)got : (size_t)got > OVERLAP ? (size_t)got - OVERLAP : 0;
        if (!add_operators_in(bytes, (size_t)got, limit, ret_text, size))
            return;
    }
}

/* ---- the traits ---- */

static aoticache_status fill_traits(traits_storage *storage, aoticache_error *ret_error)
{
    const aoticache_elf *elf = &storage->elf;
    storage->traits =
        (aoticache_library_traits){.soname = "", .compiler = storage->compiler, .proxy_operators = storage->operators};
    if (!elf->native)
        return AOTICACHE_OK;
    uint64_t first = 0;
    aoticache_library_names names;
    aoticache_status status = aoticache_library_names_read(elf, &names, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    storage->traits.finds_itself = names.finds_itself;
    if (names.proxy_executor)
        aoticache_proxy_operators_format(elf, storage->operators, sizeof storage->operators);
    aoticache_library_names_free(&names);
    section_table table = {0};
    if (open_sections(elf, &table))
        read_compiler(elf, &table, storage->compiler);
    storage->traits.soname = find_soname(elf);
    storage->traits.maker = find_maker(elf);
    storage->traits.executable_stack = wants_executable_stack(elf);
    storage->traits.unique_symbol_count = count_unique(elf);
    storage->traits.mapped_bytes = aoticache_elf_address_bytes(elf, &first);
    storage->traits.appended_bytes = count_appended(elf, &table);
    return AOTICACHE_OK;
}

aoticache_status aoticache_library_traits_read(int fd, aoticache_library_traits **ret_traits,
                                               aoticache_error *ret_error)
{
    if (ret_traits == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, ret_traits);
    traits_storage *storage = calloc(1, sizeof *storage);
    if (storage == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for traits");
    storage->elf.fd = -1;
    aoticache_status status = aoticache_elf_open(fd, &storage->elf, ret_error);
    if (status == AOTICACHE_OK)
        status = fill_traits(storage, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_library_traits_free(&storage->traits);
        return status;
    }
    *ret_traits = &storage->traits;
    return AOTICACHE_OK;
}

void aoticache_library_traits_free(aoticache_library_traits *traits)
{
    if (traits == NULL)
        return;
    int saved = errno;
    traits_storage *storage = (traits_storage *)traits;
    aoticache_elf_close(&storage->elf);
    free(storage);
    errno = saved;
}

/* ---- names that another library defines ---- */

static int compare_names(const void *name, const void *element)
{
    return strcmp(name, *(const char *const *)element);
}

aoticache_status aoticache_library_find_symbols(int fd, const char *const *names, size_t count, bool *found,
                                                aoticache_error *ret_error)
{
    if (count > 0 && (names == NULL || found == NULL))
        return AOTICACHE_REFUSE_NULL(ret_error, names, found);
    aoticache_elf elf = {.fd = -1};
    aoticache_status status = aoticache_elf_open(fd, &elf, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    for (size_t i = 1; count > 0 && i < elf.symbol_count; i++) {
        if (elf.symbols[i].st_shndx == SHN_UNDEF || ELF64_ST_BIND(elf.symbols[i].st_info) == STB_LOCAL)
            continue;
        const char *const *name =
            bsearch(aoticache_elf_string(&elf, elf.symbols[i].st_name), names, count, sizeof *names, compare_names);
        if (name != NULL)
            found[name - names] = true;
    }
    aoticache_elf_close(&elf);
    return AOTICACHE_OK;
}
