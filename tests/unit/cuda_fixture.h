/*
 * tests/unit/cuda_fixture: files with device code, byte by byte as nvcc 13 writes them, and a fake CUDA driver. No
 * toolkit and no device is needed.
 */
#ifndef AOTICACHE_TESTS_CUDA_FIXTURE_H
#define AOTICACHE_TESTS_CUDA_FIXTURE_H

#include "loader_fixture.h"

#include "loader/cuda/cuda.h"

#include <elf.h>
#include <sys/mman.h>

enum { PTX = 1, CUBIN = 2, SPECIFIC = 1 << 20, FAMILY = 1 << 21, COMPRESSED = 1 << 15 };

typedef struct file_bytes {
    uint8_t bytes[8192];
    size_t size;
} file_bytes;

FIXTURE_FUNCTION void put(file_bytes *file, size_t at, size_t width, uint64_t value)
{
    cr_assert_leq(at + width, sizeof file->bytes);
    for (size_t i = 0; i < width; i++)
        file->bytes[at + i] = (uint8_t)(i < 8 ? value >> 8 * i : 0);
    file->size = at + width > file->size ? at + width : file->size;
}

/*
 * Writes a compiled image, which is only an ELF header. abi 7: architecture in bits 0 to 7 of the flags; abi 8: 8 to
 * 15.
 */
FIXTURE_FUNCTION void put_cubin(file_bytes *file, size_t at, uint8_t abi, uint32_t flags)
{
    put(file, at, 4, 0x464c457f);
    put(file, at + EI_CLASS, 1, ELFCLASS64);
    put(file, at + EI_DATA, 1, ELFDATA2LSB);
    put(file, at + EI_ABIVERSION, 1, abi);
    put(file, at + 18, 2, 190);
    put(file, at + 48, 4, flags);
    put(file, at + 62, 2, 0);
}

/* Appends an empty container to the file. Returns its offset. */
FIXTURE_FUNCTION size_t put_container(file_bytes *file)
{
    size_t at = file->size;
    put(file, at, 4, 0xba55ed50);
    put(file, at + 4, 2, 1);
    put(file, at + 6, 2, 16);
    put(file, at + 8, 8, 0);
    return at;
}

/* Appends an entry to the last container, with 64 bytes of code. Returns the offset of its header. */
FIXTURE_FUNCTION size_t put_entry(file_bytes *file, size_t container, uint16_t kind, uint32_t arch, uint64_t flags)
{
    size_t at = file->size;
    put(file, at, 2, kind);
    put(file, at + 2, 2, 0x101);
    put(file, at + 4, 4, 64);
    put(file, at + 8, 8, 64);
    put(file, at + 28, 4, arch);
    put(file, at + 40, 8, flags);
    put(file, at + 127, 1, 0);
    if (kind == CUBIN && (flags & COMPRESSED) == 0)
        put_cubin(file, at + 64, 8, arch << 8);
    put(file, container + 8, 8, file->size - container - 16);
    return at;
}

/* Writes a shared library with only the sections "", .shstrtab and .nv_fatbin; the container's entries follow it. */
FIXTURE_FUNCTION size_t put_library(file_bytes *file)
{
    static const char names[] = "\0.shstrtab\0.nv_fatbin";
    put(file, 0, 4, 0x464c457f);
    put(file, EI_CLASS, 1, ELFCLASS64);
    put(file, EI_DATA, 1, ELFDATA2LSB);
    put(file, 16, 2, ET_DYN);
    put(file, 18, 2, EM_X86_64);
    put(file, 40, 8, 64); /* e_shoff */
    put(file, 58, 2, sizeof(Elf64_Shdr));
    put(file, 60, 2, 3);
    put(file, 62, 2, 1);
    put(file, 64 + 3 * 64 - 1, 1, 0);
    size_t names_at = file->size;
    for (size_t i = 0; i < sizeof names; i++)
        put(file, names_at + i, 1, (uint8_t)names[i]);
    put(file, 128, 4, 1);
    put(file, 132, 4, SHT_STRTAB);
    put(file, 128 + 24, 8, names_at);
    put(file, 128 + 32, 8, sizeof names);
    put(file, 192, 4, 11);
    put(file, 196, 4, SHT_PROGBITS);
    put(file, (file->size + 7) / 8 * 8 - 1, 1, 0);
    put(file, 192 + 24, 8, file->size);
    return file->size;
}

FIXTURE_FUNCTION void end_library(file_bytes *file, size_t section)
{
    put(file, 192 + 32, 8, file->size - section);
}

FIXTURE_FUNCTION int file_open(const file_bytes *file)
{
    int fd = memfd_create("device code", MFD_CLOEXEC);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, file->bytes, file->size), (ssize_t)file->size);
    return fd;
}

FIXTURE_FUNCTION void file_write(const file_bytes *file, const char *name)
{
    char path[FIXTURE_PATH_BYTES];
    fixture_path(name, path);
    FILE *out = fopen(path, "we");
    cr_assert_not_null(out);
    cr_assert_eq(fwrite(file->bytes, 1, file->size, out), file->size);
    fclose(out);
}

/* ---- the driver ---- */

static const char fixture_driver_source[] =
    "#include <stddef.h>\n#include <string.h>\n"
    "#ifndef INIT\n#define INIT 0\n#endif\n#ifndef VERSION\n#define VERSION 12040\n#endif\n"
    "#ifndef COUNT\n#define COUNT 2\n#endif\n#ifndef BROKEN\n#define BROKEN -1\n#endif\n"
    "static const int major[] = {9, 7}, minor[] = {0, 5};\n"
    "static const char *const names[] = {\"Stand-in H\", \"Stand-in T\"};\n"
    "int cuInit(unsigned flags) { return flags != 0 ? 1 : INIT; }\n"
    "int cuDriverGetVersion(int *ret) { *ret = VERSION; return 0; }\n"
    "int cuDeviceGetCount(int *ret) { *ret = COUNT; return 0; }\n"
    "int cuDeviceGet(int *ret, int i) { *ret = i + 10; return 0; }\n"
    "int cuDeviceGetName(char *to, int size, int d)\n"
    "{ if (d - 10 == BROKEN) return 999; strncpy(to, names[d - 10], size); return 0; }\n"
    "int cuDeviceGetAttribute(int *ret, int a, int d)\n"
    "{ *ret = a == 75 ? major[d - 10] : a == 76 ? minor[d - 10] : -1; return 0; }\n"
    "#ifndef OLD\n"
    "int cuDeviceTotalMem_v2(size_t *ret, int d) { *ret = (size_t)(d - 9) << 32; return 0; }\n"
    "int cuGetErrorString(int code, const char **ret) { *ret = \"words of the driver\"; return code == 0; }\n"
    "#endif\n";

/* Sets the path of this process's driver, at which there is no file until fixture_driver(). */
FIXTURE_FUNCTION void fixture_no_driver(void)
{
    char path[FIXTURE_PATH_BYTES];
    fixture_path("libcuda.so.1", path);
    setenv("AOTICACHE_CUDA_DRIVER", path, 1);
}

/* Compiles the driver of this process. */
FIXTURE_FUNCTION void fixture_driver(const char *flags)
{
    fixture_compile(fixture_driver_source, "libcuda.so.1", flags);
    fixture_no_driver();
}

#endif
