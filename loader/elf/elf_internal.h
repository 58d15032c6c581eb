/*
 * loader/elf: what the dynamic linker would see in a shared library, read from the file without loading it, and the
 * meaning of the names in its tables for the loader.
 *
 * Private to loader/. The file is untrusted: every offset and count is checked against the file's size before it is
 * used, and all reading is done with pread into private memory, so that a file that shrinks meanwhile causes an error,
 * not a signal. The descriptions of a file are made here too: the public one (aoticache_library_describe() of
 * loader/loader.h) and that of `aoticache inspect` (loader/elf/traits.h). The tool links all files of this directory
 * except describe.c, so they keep no state.
 */
#ifndef AOTICACHE_LOADER_ELF_INTERNAL_H
#define AOTICACHE_LOADER_ELF_INTERNAL_H

#include "base/base.h"

#include <elf.h>

/* ---- the tables of a file ---- */

/*
 * An ELF shared library. For another class or byte order only the first three fields after file_size are set (native is
 * false): the tables are those of 64-bit ELF in this machine's byte order.
 */
typedef struct aoticache_elf {
    int fd; /* borrowed */
    uint64_t file_size;
    uint8_t elf_class;  /* ELFCLASS32, ELFCLASS64 */
    uint8_t byte_order; /* ELFDATA2LSB, ELFDATA2MSB */
    uint16_t machine;   /* EM_* */
    bool native;
    uint64_t programs_offset; /* offset of the program headers in the file */
    size_t program_count;
    Elf64_Phdr *programs;
    uint64_t dynamic_offset; /* offset of the dynamic section in the file */
    size_t dynamic_count;    /* entries before the first DT_NULL */
    size_t dynamic_slots;    /* entries that fit in the segment, the DT_NULLs included */
    Elf64_Dyn *dynamic;
    uint64_t strings_address; /* DT_STRTAB */
    size_t strings_size;
    char *strings; /* with an added terminator at the end */
    size_t symbol_count;
    Elf64_Sym *symbols;      /* .dynsym, the first (null) entry included */
    uint64_t symbols_offset; /* offset of .dynsym in the file */
} aoticache_elf;

/*
 * Reads the tables. The caller closes ret_elf, after OK only.
 * Returns: OK, INVALID (not an ELF shared library, or a truncated or contradictory one), IO, NO_MEMORY.
 */
aoticache_status aoticache_elf_open(int fd, aoticache_elf *ret_elf, aoticache_error *ret_error);
void aoticache_elf_close(aoticache_elf *elf);

/*
 * Reads exactly `size` bytes of the file; `what` names them in the error. Returns: OK, INVALID (not in the file), IO.
 */
aoticache_status aoticache_elf_read(const aoticache_elf *elf, const char *what, uint64_t offset, uint64_t size,
                                    void *buffer, aoticache_error *ret_error);

/*
 * Checks that the segments are in the file and in order, and that the tables that the dynamic linker reads are in a
 * segment; part of aoticache_elf_open(). Returns: OK, INVALID.
 */
aoticache_status aoticache_elf_check_layout(const aoticache_elf *elf, aoticache_error *ret_error);

/* Returns a string of the dynamic string table, borrowed; "" if the offset is outside of it. */
const char *aoticache_elf_string(const aoticache_elf *elf, uint64_t offset);

/* Finds the address that this part of the file is mapped to; false if it is not mapped. */
bool aoticache_elf_address_of(const aoticache_elf *elf, uint64_t offset, uint64_t size, uint64_t *ret_address);

/* Returns the bytes of address space from the first address that a segment takes to the last. */
uint64_t aoticache_elf_address_bytes(const aoticache_elf *elf, uint64_t *ret_first);

/* Return the class, byte order and machine that this process can load. */
uint8_t aoticache_elf_host_byte_order(void);
uint16_t aoticache_elf_host_machine(void);

#define AOTICACHE_ELF_MACHINE_BYTES 48
/* Writes "x86_64", "aarch64" or "machine 243"; with ", 32-bit" and the like if the name does not imply it. */
void aoticache_elf_machine_format(uint16_t machine, uint8_t elf_class, uint8_t byte_order,
                                  char ret_text[AOTICACHE_ELF_MACHINE_BYTES]);

/* ---- lists of names ---- */

/* A growing list; zero it to begin. The names are borrowed; the list owns the array. */
typedef struct aoticache_name_list {
    size_t count, capacity;
    const char **names;
} aoticache_name_list;

/* Appends a name. false: out of memory, and the list is unchanged. */
bool aoticache_name_list_add(aoticache_name_list *list, const char *name);
void aoticache_name_list_sort(aoticache_name_list *list);
void aoticache_name_list_free(aoticache_name_list *list);

/* Bytes that fit into an error message next to its other text. */
#define AOTICACHE_NAME_LIST_TEXT_BYTES 640

/* Writes "a, b, c", or "a, b and 7 more" if not all fit. */
void aoticache_name_list_format(const aoticache_name_list *list, char ret_text[AOTICACHE_NAME_LIST_TEXT_BYTES]);

/* ---- what a library needs and offers ---- */

/* The meaning of a DT_NEEDED name to the loader. */
typedef enum aoticache_needed_kind {
    AOTICACHE_NEEDED_SYSTEM,     /* not part of PyTorch: left alone */
    AOTICACHE_NEEDED_TORCH_CPU,  /* libtorch_cpu.so, with or without a version: has the aoti_torch_* functions */
    AOTICACHE_NEEDED_TORCH_CUDA, /* libtorch_cuda*.so, libc10_cuda.so */
    AOTICACHE_NEEDED_TORCH,      /* libtorch.so, libc10.so: a kernel library needs nothing from them */
} aoticache_needed_kind;

aoticache_needed_kind aoticache_needed_classify(const char *name);

/* The names in an open library; all are borrowed from it. */
typedef struct aoticache_library_names {
    aoticache_name_list needed;  /* in the file's order */
    aoticache_name_list symbols; /* undefined ones that PyTorch would provide, sorted */
    aoticache_name_list exports; /* AOTInductor*, sorted */
    bool proxy_executor;         /* calls operators through PyTorch's proxy executor */
    bool cuda;
    bool finds_itself; /* imports dladdr or the like: may open its own file to map weights (USE_MMAP_SELF) */
} aoticache_library_names;

/* Reads the names. The caller frees ret_names, after OK only, before the library is closed. Returns: OK, NO_MEMORY. */
aoticache_status aoticache_library_names_read(const aoticache_elf *elf, aoticache_library_names *ret_names,
                                              aoticache_error *ret_error);
void aoticache_library_names_free(aoticache_library_names *names);
/* Returns whether the function calls operators through a proxy executor. */
bool aoticache_name_is_proxy_executor(const char *function);

/*
 * Writes the operators that a library calls through PyTorch's proxy executor, as its file names them: "aten::cholesky,
 * aten::fft_fft2". They are in the order in which they are found, each once; "" if none is named, or if the file cannot
 * be read. Cut off after a whole name.
 */
void aoticache_proxy_operators_format(const aoticache_elf *elf, char *ret_text, size_t size);

#endif
