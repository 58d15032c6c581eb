/*
 * loader/machine: the names of the machines that ELF files are for, and which of them this one is. Part of elf.h.
 */
#include "loader/elf.h"

#include <stdio.h>

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
        {EM_X86_64, ELFCLASS64, ELFDATA2LSB, "x86_64"},    {EM_AARCH64, ELFCLASS64, ELFDATA2LSB, "aarch64"},
        {EM_386, ELFCLASS32, ELFDATA2LSB, "i386"},         {EM_ARM, ELFCLASS32, ELFDATA2LSB, "arm"},
        {EM_PPC64, ELFCLASS64, ELFDATA2LSB, "ppc64le"},    {EM_S390, ELFCLASS64, ELFDATA2MSB, "s390x"},
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
