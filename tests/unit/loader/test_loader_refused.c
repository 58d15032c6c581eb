/*
 * Refused libraries, with the messages; and damaged libraries, which must be refused or do no harm.
 */
#include "tests/unit/fixtures/emulator.h"
#include "tests/unit/fixtures/loader_fixture.h"

#include "loader/elf/elf_internal.h"
#include "loader/loader.h"

#include <sys/stat.h>
#include <sys/wait.h>

TestSuite(loader_refused, .init = fixture_setup, .fini = fixture_teardown);

Test(loader_refused, functions_that_the_shim_lacks_are_all_named)
{
    fixture_expect_refused(fixture_kernel("kernel.so", "-DMISSING"), AOTICACHE_UNSUPPORTED,
                           "3 functions that the shim does not have: aoti_torch_made_up_one, aoti_torch_made_up_two, "
                           "torch_made_up",
                           "run it in a process with PyTorch");
}

Test(loader_refused, proxy_executor_is_named)
{
    fixture_expect_refused(fixture_kernel("kernel.so", "-DPROXY"), AOTICACHE_UNSUPPORTED,
                           "1 function that the shim does not have: aoti_torch_proxy_executor_call_function",
                           "(it calls operators through PyTorch's proxy executor; it names aten::cholesky, "
                           "my_ops::sum.dim_IntList); run it");
}

Test(loader_refused, functions_that_are_operators_are_named_as_such)
{
    fixture_expect_refused(fixture_kernel("kernel.so", "-DOPERATORS"), AOTICACHE_UNSUPPORTED,
                           "does not have: aoti_torch_cpu_made_up, aoti_torch_cpu_made_up_too",
                           "(operators made_up, made_up_too); run it in a process with PyTorch");
}

Test(loader_refused, long_list_of_missing_functions_is_cut_with_a_count)
{
    char source[16384];
    size_t used = (size_t)snprintf(source, sizeof source, "%s", fixture_kernel_source);
    for (int i = 0; i < 60; i++)
        used += (size_t)snprintf(source + used, sizeof source - used,
                                 "int aoti_torch_made_up_function_%d(void);\n"
                                 "int f%d(void) { return aoti_torch_made_up_function_%d(); }\n",
                                 i, i, i);
    fixture_stub("libtorch_cpu.so");
    fixture_compile(source, "kernel.so", "-Wl,--no-as-needed -L. -l:libtorch_cpu.so");
    char path[FIXTURE_PATH_BYTES];
    fixture_path("kernel.so", path);
    fixture_expect_refused(open(path, O_RDONLY | O_CLOEXEC), AOTICACHE_UNSUPPORTED,
                           "60 functions that the shim does not have: aoti_torch_made_up_function_0, ",
                           " more; run it in a process with PyTorch");
}

Test(loader_refused, vector_functions_that_the_shim_lacks_are_named)
{
    char source[16384], path[FIXTURE_PATH_BYTES];
    snprintf(source, sizeof source,
             "%s\nfloat __attribute__((vector_size(16))) Sleef_made_upf4_u10(void), Sleef_another_one(void);\n"
             "float f(void) { return Sleef_made_upf4_u10()[0] + Sleef_another_one()[0]; }\n",
             fixture_kernel_source);
    fixture_stub("libtorch_cpu.so");
    fixture_compile(source, "kernel.so", "-Wl,--no-as-needed -L. -l:libtorch_cpu.so");
    fixture_path("kernel.so", path);
    fixture_expect_refused(open(path, O_RDONLY | O_CLOEXEC), AOTICACHE_UNSUPPORTED,
                           "2 functions that the shim does not have: Sleef_another_one, Sleef_made_upf4_u10",
                           "run it in a process with PyTorch");
}

Test(loader_refused, missing_interface_functions_are_all_named)
{
    fixture_expect_refused(fixture_kernel("kernel.so", "-DBARE"), AOTICACHE_UNSUPPORTED,
                           "AOTInductorModelContainerCreateWithDevice, AOTInductorModelContainerDelete, "
                           "AOTInductorModelContainerGetNumInputs, AOTInductorModelContainerGetNumOutputs",
                           "not an AOTInductor kernel library");
}

Test(loader_refused, cuda_library_is_refused_without_pytorch)
{
    fixture_stub("libtorch_cuda.so");
    fixture_expect_refused(fixture_kernel("kernel.so", "-Wl,--no-as-needed -L. -l:libtorch_cuda.so"),
                           AOTICACHE_UNSUPPORTED, "libtorch_cuda.so", "PyTorch");
}

Test(loader_refused, other_machine_is_refused_with_both_names)
{
    int fd = fixture_kernel("kernel.so", "");
    char path[FIXTURE_PATH_BYTES];
    fixture_path("kernel.so", path);
    close(fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    uint16_t machine = EM_RISCV;
    cr_assert_eq(pwrite(fd, &machine, sizeof machine, offsetof(Elf64_Ehdr, e_machine)), 2);
    char ours[AOTICACHE_ELF_MACHINE_BYTES];
    aoticache_elf_machine_format(aoticache_elf_host_machine(), ELFCLASS64, aoticache_elf_host_byte_order(), ours);
    fixture_expect_refused(fd, AOTICACHE_UNSUPPORTED, "machine 243", ours);
}

Test(loader_refused, unknown_symbol_gives_the_dynamic_linkers_words)
{
    fixture_expect_refused(fixture_kernel("kernel.so", "-DUNKNOWN"), AOTICACHE_LOAD_FAILED, "dynamic linker",
                           "undefined symbol: nobody_has_this");
}

Test(loader_refused, file_that_is_no_library_is_invalid)
{
    char path[FIXTURE_PATH_BYTES];
    fixture_path("text", path);
    fixture_run("echo 'just some text, long enough to be a header, but none of it is one at all' > '%s'", path);
    fixture_expect_refused(open(path, O_RDONLY | O_CLOEXEC), AOTICACHE_INVALID, "not a shared library", "ELF");
    aoticache_library *library = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_library_load_fd(-1, "x", NULL, &library, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_library_load_fd(0, NULL, NULL, &library, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_library_load_fd(0, "x", NULL, NULL, &error), AOTICACHE_INVALID);
    aoticache_library_unref(NULL);
}

/* ---- damaged libraries ---- */

typedef struct whole_file {
    uint8_t *bytes;
    size_t size;
} whole_file;

static whole_file read_whole(int fd)
{
    struct stat about;
    cr_assert_eq(fstat(fd, &about), 0);
    whole_file file = {.bytes = malloc((size_t)about.st_size), .size = (size_t)about.st_size};
    cr_assert_eq(pread(fd, file.bytes, file.size, 0), about.st_size);
    close(fd);
    return file;
}

static int file_of(const uint8_t *bytes, size_t size)
{
    char path[FIXTURE_PATH_BYTES];
    fixture_path("damaged.so", path);
    unlink(path);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, bytes, size), (ssize_t)size);
    return fd;
}

enum { REFUSED = 10, BEHAVES = 11, NO_WORDS = 12 };

/* Loads in a child, since the test looks for crashes. */
static int load_in_child(int fd)
{
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        aoticache_library *library = NULL;
        aoticache_error error = {0};
        alarm(300);
        if (aoticache_library_load_fd(fd, "damaged", NULL, &library, &error) != AOTICACHE_OK)
            _exit(strncmp(error.message, "library damaged: ", 17) == 0 && strlen(error.message) > 25 ? REFUSED
                                                                                                     : NO_WORDS);
        bool right = fixture_first_result(library) == 2.0f;
        aoticache_library_unref(library);
        _exit(right ? BEHAVES : 1);
    }
    int status = -1;
    cr_assert_eq(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static int outcome_of(const uint8_t *bytes, size_t size)
{
    int fd = file_of(bytes, size);
    int outcome = load_in_child(fd);
    close(fd);
    return outcome;
}

/* Returns the end of the segments: only tables for tools follow it. */
static size_t end_of_segments(const whole_file *file)
{
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)file->bytes;
    const Elf64_Phdr *programs = (const Elf64_Phdr *)(file->bytes + header->e_phoff);
    size_t end = 0;
    for (int i = 0; i < header->e_phnum; i++)
        if (programs[i].p_type == PT_LOAD && programs[i].p_offset + programs[i].p_filesz > end)
            end = programs[i].p_offset + programs[i].p_filesz;
    return end;
}

Test(loader_refused, library_cut_anywhere_is_refused_with_words)
{
    whole_file file = read_whole(fixture_kernel("kernel.so", ""));
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)file.bytes;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(file.bytes + header->e_shoff);
    const Elf64_Phdr *programs = (const Elf64_Phdr *)(file.bytes + header->e_phoff);
    size_t end = end_of_segments(&file), cuts = 0;
    for (int i = 0; i < 2 * (header->e_shnum + header->e_phnum); i++) {
        const Elf64_Shdr *section = &sections[i / 2 % header->e_shnum];
        const Elf64_Phdr *program = &programs[i / 2 % header->e_phnum];
        bool of_section = i < 2 * header->e_shnum;
        size_t at = of_section ? section->sh_offset + (i % 2 == 0 ? 0 : section->sh_size)
                               : program->p_offset + (i % 2 == 0 ? 0 : program->p_filesz);
        for (size_t cut = at > 0 ? at - 1 : 0; cut <= at + 1 && cut <= file.size; cut++) {
            int outcome = outcome_of(file.bytes, cut);
            cr_expect_eq(outcome, cut < end ? REFUSED : BEHAVES, "cut at %zu of %zu (segments end at %zu): %d", cut,
                         file.size, end, outcome);
            cuts++;
        }
    }
    cr_assert_gt(cuts, 100);
    free(file.bytes);
}

/*
 * Damages a field. It gets values that are too large and, if that does not make the library run or use other bytes as
 * code or data, values that are too small or point elsewhere: no check can know what bytes mean.
 */
static void damage_field(const whole_file *file, size_t offset, size_t size, bool slightly, const char *where)
{
    static const uint64_t changes[] = {UINT64_MAX, (uint64_t)1 << 44, 0, 1, 0x1000};
    uint64_t was = 0;
    memcpy(&was, file->bytes + offset, size);
    for (size_t c = 0; c < (slightly ? 5 : 2); c++) {
        uint64_t value = c == 0 || c == 2 ? changes[c] : was + changes[c];
        memcpy(file->bytes + offset, &value, size);
        int outcome = outcome_of(file->bytes, file->size);
        cr_expect(outcome == REFUSED || outcome == BEHAVES, "%s, field at %zu: 0x%llx for 0x%llx: %d", where, offset,
                  (unsigned long long)value, (unsigned long long)was, outcome);
    }
    memcpy(file->bytes + offset, &was, size);
}

Test(loader_refused, altered_file_header_is_refused_or_means_nothing)
{
    static const uint8_t sizes[] = {1, 1, 1, 1, 1, 1, 1, 1, 8, 2, 2, 4, 8, 8, 8, 4, 2, 2, 2, 2, 2, 2};
    whole_file file = read_whole(fixture_kernel("kernel.so", ""));
    size_t offset = 0;
    for (size_t i = 0; i < sizeof sizes; offset += sizes[i++])
        damage_field(&file, offset, sizes[i], true, "file header");
    cr_assert_eq(offset, sizeof(Elf64_Ehdr));
    free(file.bytes);
}

Test(loader_refused, altered_program_headers_are_refused_or_mean_nothing)
{
    SKIP_UNDER_EMULATOR(EMULATOR_COUNTS_PAGES);
    static const uint8_t sizes[] = {4, 4, 8, 8, 8, 8, 8, 8};
    whole_file file = read_whole(fixture_kernel("kernel.so", ""));
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)file.bytes;
    for (int p = 0; p < header->e_phnum; p++) {
        size_t offset = header->e_phoff + (size_t)p * sizeof(Elf64_Phdr);
        uint32_t type = ((const Elf64_Phdr *)(file.bytes + header->e_phoff))[p].p_type;
        bool slightly = type != PT_LOAD && type != PT_GNU_RELRO;
        for (size_t i = 0; i < sizeof sizes; offset += sizes[i++])
            if (type != PT_LOAD || i >= 2) /* without one of its segments it is a different library */
                damage_field(&file, offset, sizes[i], slightly, "program header");
    }
    free(file.bytes);
}

Test(loader_refused, altered_dynamic_section_is_refused_or_means_nothing)
{
    int fd = fixture_kernel("kernel.so", "");
    aoticache_elf elf;
    cr_assert_eq(aoticache_elf_open(fd, &elf, NULL), AOTICACHE_OK);
    size_t offset = elf.dynamic_offset, count = elf.dynamic_count;
    aoticache_elf_close(&elf);
    whole_file file = read_whole(fd);
    for (size_t i = 0; i < count; i++) {
        damage_field(&file, offset + i * sizeof(Elf64_Dyn), 8, false, "tag");
        damage_field(&file, offset + i * sizeof(Elf64_Dyn) + 8, 8, false, "value");
    }
    free(file.bytes);
}
