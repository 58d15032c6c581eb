/*
 * Reading a kernel library's file without loading it, and that no damaged file does harm.
 */
#include "tests/unit/fixtures/loader_fixture.h"

#include "loader/elf/elf_internal.h"
#include "loader/loader.h"

#include <errno.h>
#include <sys/stat.h>

TestSuite(elf, .init = fixture_setup, .fini = fixture_teardown);
TestSuite(describe, .init = fixture_setup, .fini = fixture_teardown);

static aoticache_library_description *describe(int fd)
{
    aoticache_library_description *description = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_library_describe(fd, &description, &error), AOTICACHE_OK, "%s", error.message);
    return description;
}

static bool has(const char **names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static bool sorted(const char **names, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (strcmp(names[i - 1], names[i]) > 0)
            return false;
    return true;
}

Test(describe, kernel_gives_its_names)
{
    int fd = fixture_kernel("kernel.so", "");
    aoticache_library_description *about = describe(fd);
    cr_assert(has(about->needed, about->needed_count, "libtorch_cpu.so"));
    cr_assert_eq(about->symbol_count, 7);
    cr_assert(has(about->symbols, about->symbol_count, "aoti_torch_empty_strided"));
    cr_assert(sorted(about->symbols, about->symbol_count));
    cr_assert_eq(about->missing_count, 0);
    cr_assert_eq(about->export_count, 8);
    cr_assert(has(about->exports, about->export_count, "AOTInductorModelContainerRun"));
    cr_assert(sorted(about->exports, about->export_count));
    cr_assert(!about->proxy_executor && !about->cuda);
    aoticache_library_description_free(about);
    close(fd);
}

Test(describe, functions_the_shim_lacks_are_missing)
{
    int fd = fixture_kernel("kernel.so", "-DMISSING");
    aoticache_library_description *about = describe(fd);
    cr_assert_eq(about->symbol_count, 10);
    cr_assert_eq(about->missing_count, 3);
    cr_assert_str_eq(about->missing[0], "aoti_torch_made_up_one");
    cr_assert_str_eq(about->missing[1], "aoti_torch_made_up_two");
    cr_assert_str_eq(about->missing[2], "torch_made_up");
    aoticache_library_description_free(about);
    close(fd);
}

Test(describe, weak_symbols_are_not_needed)
{
    fixture_compile("__attribute__((weak)) int aoti_torch_perhaps(void);\n"
                    "int f(void) { return aoti_torch_perhaps ? aoti_torch_perhaps() : 0; }\n",
                    "weak.so", "");
    char path[FIXTURE_PATH_BYTES];
    fixture_path("weak.so", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    aoticache_library_description *about = describe(fd);
    cr_assert_eq(about->symbol_count, 0);
    aoticache_library_description_free(about);
    close(fd);
}

Test(describe, proxy_executor_and_cuda_are_noticed)
{
    int fd = fixture_kernel("proxy.so", "-DPROXY");
    aoticache_library_description *about = describe(fd);
    cr_assert(about->proxy_executor && !about->cuda);
    aoticache_library_description_free(about);
    close(fd);

    fd = fixture_kernel("cuda.so", "-DCUDA_FUNCTION");
    about = describe(fd);
    cr_assert(about->cuda && !about->proxy_executor);
    aoticache_library_description_free(about);
    close(fd);
}

Test(describe, every_hash_style_gives_the_same_symbols)
{
    static const char *const styles[] = {"-Wl,--hash-style=sysv", "-Wl,--hash-style=gnu", "-Wl,--hash-style=both"};
    for (size_t i = 0; i < 3; i++) {
        int fd = fixture_kernel("kernel.so", styles[i]);
        aoticache_library_description *about = describe(fd);
        cr_assert_eq(about->symbol_count, 7, "%s: %zu symbols", styles[i], about->symbol_count);
        cr_assert_eq(about->export_count, 8, "%s: %zu exports", styles[i], about->export_count);
        aoticache_library_description_free(about);
        close(fd);
    }
}

Test(describe, library_without_exports_still_gives_its_needs)
{
    fixture_compile("int aoti_torch_made_up(void);\n"
                    "__attribute__((constructor)) static void f(void) { aoti_torch_made_up(); }\n",
                    "silent.so", "-nostdlib -Wl,--hash-style=gnu");
    char path[FIXTURE_PATH_BYTES];
    fixture_path("silent.so", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    aoticache_library_description *about = describe(fd);
    cr_assert_eq(about->export_count, 0);
    cr_assert_eq(about->symbol_count, 1);
    aoticache_library_description_free(about);
    close(fd);
}

/* ---- invalid files ---- */

static uint8_t *read_all(int fd, size_t *ret_size)
{
    struct stat about;
    cr_assert_eq(fstat(fd, &about), 0);
    uint8_t *bytes = malloc((size_t)about.st_size);
    cr_assert_eq(pread(fd, bytes, (size_t)about.st_size, 0), about.st_size);
    *ret_size = (size_t)about.st_size;
    return bytes;
}

static int file_of(const void *bytes, size_t size)
{
    char path[FIXTURE_PATH_BYTES];
    fixture_path("bytes", path);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(pwrite(fd, bytes, size, 0), (ssize_t)size);
    return fd;
}

static void expect_invalid(int fd, const char *words)
{
    aoticache_library_description *description = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_library_describe(fd, &description, &error), AOTICACHE_INVALID, "%s", error.message);
    cr_assert_not_null(strstr(error.message, words), "%s", error.message);
    cr_assert_null(description);
}

Test(describe, files_that_are_no_libraries_are_invalid)
{
    int fd = file_of("", 0);
    expect_invalid(fd, "not a whole shared library");
    close(fd);
    fd = file_of("#!/bin/sh\necho this is a script, not a library\n", 48);
    expect_invalid(fd, "23 21 2f 62");
    close(fd);
    fd = open(fixture_directory, O_RDONLY | O_CLOEXEC);
    expect_invalid(fd, "not a regular file");
    close(fd);
    char path[FIXTURE_PATH_BYTES];
    fixture_path("program", path);
    cr_assert_eq(fixture_run("cd '%s' && echo 'int main(void){return 0;}' > p.c && cc -no-pie p.c -o program",
                             fixture_directory),
                 0);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    expect_invalid(fd, "ELF type 2; expected 3");
    close(fd);
    aoticache_library_description *description = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_library_describe(9999, &description, &error), AOTICACHE_IO);
}

Test(describe, cut_library_is_invalid_at_every_length)
{
    int kernel = fixture_kernel("kernel.so", "-s");
    size_t size;
    uint8_t *bytes = read_all(kernel, &size);
    close(kernel);
    Elf64_Ehdr *header = (Elf64_Ehdr *)bytes;
    Elf64_Phdr *programs = (Elf64_Phdr *)(bytes + header->e_phoff);
    size_t needed = 0; /* everything up to the end of the dynamic section is needed */
    for (int i = 0; i < header->e_phnum; i++)
        if (programs[i].p_type == PT_DYNAMIC)
            needed = programs[i].p_offset + programs[i].p_filesz;
    cr_assert_gt(needed, 1000);
    for (size_t length = 0; length < needed; length += length < 200 ? 1 : 37) {
        int fd = file_of(bytes, length);
        aoticache_library_description *description = NULL;
        aoticache_error error = {0};
        cr_assert_eq(aoticache_library_describe(fd, &description, &error), AOTICACHE_INVALID, "%zu bytes: %s", length,
                     error.message);
        close(fd);
    }
    free(bytes);
}

Test(describe, other_machines_are_named)
{
    int kernel = fixture_kernel("kernel.so", "");
    size_t size;
    uint8_t *bytes = read_all(kernel, &size);
    close(kernel);
    Elf64_Ehdr *header = (Elf64_Ehdr *)bytes;
    header->e_machine = EM_RISCV;
    int fd = file_of(bytes, size);
    aoticache_library_description *about = describe(fd);
    cr_assert_str_eq(about->machine, "machine 243");
    aoticache_library_description_free(about);
    close(fd);

    header->e_machine = EM_AARCH64;
    fd = file_of(bytes, size);
    about = describe(fd);
    cr_assert_str_eq(about->machine, "aarch64");
    cr_assert_eq(about->symbol_count, 7);
    aoticache_library_description_free(about);
    close(fd);

    header->e_machine = EM_X86_64;
    header->e_ident[EI_CLASS] = ELFCLASS32;
    fd = file_of(bytes, size);
    about = describe(fd);
    cr_assert_str_eq(about->machine, "x86_64, 32-bit little-endian");
    cr_assert_eq(about->symbol_count, 0);
    aoticache_library_description_free(about);
    close(fd);
    free(bytes);
}

/* A small generator with a fixed seed (xorshift): the same files every time. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Returns a random offset, mostly in the tables that are read: the headers, the dynamic section, the first pages. */
static size_t random_place(uint64_t *state, const uint8_t *bytes, size_t size)
{
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)bytes;
    const Elf64_Phdr *programs = (const Elf64_Phdr *)(bytes + header->e_phoff);
    uint64_t kind = next_random(state) % 4;
    for (int i = 0; kind == 0 && i < header->e_phnum; i++)
        if (programs[i].p_type == PT_DYNAMIC)
            return programs[i].p_offset + next_random(state) % programs[i].p_filesz;
    return next_random(state) % (kind == 1 ? 64 + 56 * 12 : kind == 2 ? 4096 : size);
}

Test(elf, damaged_files_never_crash)
{
    int kernel = fixture_kernel("kernel.so", "-s");
    size_t size;
    uint8_t *bytes = read_all(kernel, &size);
    close(kernel);
    uint8_t *damaged = malloc(size);
    uint64_t state = 88172645463325252u;
    static const uint8_t edges[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    int accepted = 0, refused = 0;
    for (int round = 0; round < 4000; round++) {
        memcpy(damaged, bytes, size);
        size_t changes = 1 + next_random(&state) % 8;
        for (size_t i = 0; i < changes; i++) {
            uint64_t value = next_random(&state);
            damaged[random_place(&state, bytes, size)] = value & 256 ? edges[value % sizeof edges] : (uint8_t)value;
        }
        size_t length = next_random(&state) % 4 == 0 ? next_random(&state) % size : size;
        int fd = file_of(damaged, length);
        aoticache_library_description *description = NULL;
        aoticache_error error = {0};
        aoticache_status status = aoticache_library_describe(fd, &description, &error);
        if (status == AOTICACHE_OK) {
            accepted++;
            cr_assert(sorted(description->symbols, description->symbol_count));
            aoticache_library_description_free(description);
        } else {
            refused++;
            cr_assert(status == AOTICACHE_INVALID || status == AOTICACHE_NO_MEMORY, "%s", error.message);
            cr_assert_neq(error.message[0], '\0');
        }
        close(fd);
    }
    cr_assert(accepted > 100 && refused > 1000, "%d accepted, %d refused", accepted, refused);
    free(damaged);
    free(bytes);
}
