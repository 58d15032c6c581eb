/*
 * loader/elf: what the dynamic linker would see in a shared library, read from the file without loading it.
 *
 * Private. The file is untrusted: every offset and count is checked against the file's size before it is used, and all
 * reading is done with pread into memory of our own, so that a file that shrinks meanwhile gives an error, not a
 * signal.
 */
#ifndef AOTICACHE_LOADER_ELF_H
#define AOTICACHE_LOADER_ELF_H

#include "base/base.h"

#include <elf.h>

/*
 * An ELF shared library. Of one made for another class or byte order only the first three fields after file_size are
 * set (native is false): the tables are those of 64-bit ELF in this machine's byte order.
 */
typedef struct aoticache_elf {
    int fd; /* borrowed */
    uint64_t file_size;
    uint8_t elf_class;  /* ELFCLASS32, ELFCLASS64 */
    uint8_t byte_order; /* ELFDATA2LSB, ELFDATA2MSB */
    uint16_t machine;   /* EM_* */
    bool native;
    uint64_t programs_offset; /* of the program headers, in the file */
    size_t program_count;
    Elf64_Phdr *programs;
    uint64_t dynamic_offset; /* of the dynamic section, in the file */
    size_t dynamic_count;    /* entries before the first DT_NULL */
    size_t dynamic_slots;    /* entries that fit in the segment, the DT_NULLs included */
    Elf64_Dyn *dynamic;
    uint64_t strings_address; /* DT_STRTAB */
    size_t strings_size;
    char *strings; /* with a terminator of our own behind them */
    size_t symbol_count;
    Elf64_Sym *symbols; /* .dynsym, the first (null) entry included */
    uint64_t symbols_offset; /* of .dynsym, in the file */
} aoticache_elf;

/*
 * Reads the tables. ret_elf is to be closed after OK only.
 * Returns: OK, INVALID (not an ELF shared library, or a truncated or contradictory one), IO, NO_MEMORY.
 */
aoticache_status aoticache_elf_open(int fd, aoticache_elf *ret_elf, aoticache_error *ret_error);
void aoticache_elf_close(aoticache_elf *elf);

/*
 * Whether the segments are in the file and in order, and the tables that the dynamic linker reads in a segment; part of
 * aoticache_elf_open(). Returns: OK, INVALID.
 */
aoticache_status aoticache_elf_check_layout(const aoticache_elf *elf, aoticache_error *ret_error);

/* A string of the dynamic string table, borrowed; "" where the offset is outside of it. */
const char *aoticache_elf_string(const aoticache_elf *elf, uint64_t offset);

/* Where the address that this part of the file is mapped to lies; false where it is mapped nowhere. */
bool aoticache_elf_address_of(const aoticache_elf *elf, uint64_t offset, uint64_t size, uint64_t *ret_address);

/* Bytes of address space from the first address that a segment takes to the last. */
uint64_t aoticache_elf_address_bytes(const aoticache_elf *elf, uint64_t *ret_first);

/* The class, byte order and machine that this process can load. */
uint8_t aoticache_elf_host_byte_order(void);
uint16_t aoticache_elf_host_machine(void);

#define AOTICACHE_ELF_MACHINE_BYTES 48
/* "x86_64", "aarch64", "machine 243"; with ", 32-bit" and the like where that is not what the name says. */
void aoticache_elf_machine_format(uint16_t machine, uint8_t elf_class, uint8_t byte_order,
                                  char ret_text[AOTICACHE_ELF_MACHINE_BYTES]);

#endif
