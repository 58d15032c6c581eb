/*
 * Loading: which library a descriptor gives, where its aoti_torch_* functions come from, and what is refused with which
 * words. The shim is that of the build; libtorch is a stand-in.
 */
#include "loader_fixture.h"

#include "base/home.h"
#include "loader/elf.h"

#include <link.h>
#include <pthread.h>
#include <sys/stat.h>

TestSuite(loader, .init = fixture_setup, .fini = fixture_teardown);
TestSuite(torch, .init = fixture_setup, .fini = fixture_teardown);

static void expect_refused(int fd, aoticache_status expected, const char *first, const char *second)
{
    aoticache_library *library = NULL;
    aoticache_error error = {0};
    aoticache_status status = aoticache_library_load_fd(fd, "abc123", &library, &error);
    cr_assert_eq(status, expected, "%s: %s", aoticache_status_name(status), error.message);
    cr_assert_eq(error.status, expected);
    cr_assert_not_null(strstr(error.message, "abc123"), "%s", error.message);
    cr_assert_not_null(strstr(error.message, first), "%s", error.message);
    cr_assert_not_null(strstr(error.message, second), "%s", error.message);
    cr_assert_null(library);
    close(fd);
}

/* ---- with the shim ---- */

Test(loader, kernel_runs_with_the_shim)
{
    int fd = fixture_kernel("kernel.so", "");
    aoticache_library *library = fixture_load(fd);
    close(fd);
    cr_assert_eq(aoticache_library_torch_kind(library), AOTICACHE_TORCH_SHIM);
    cr_assert_str_eq(aoticache_library_name(library), "kernel");
    cr_assert(aoticache_library_exports(library, "AOTInductorModelContainerRun"));
    cr_assert(!aoticache_library_exports(library, "AOTInductorModelContainerRunSingleThreaded"));
    cr_assert(!aoticache_library_exports(library, "malloc"));
    cr_assert_eq(fixture_first_result(library), 2.0f);
    aoticache_library_unref(library);
}

Test(loader, same_descriptor_number_gives_the_new_library)
{
    int a = fixture_kernel("a.so", "-DADD=1");
    aoticache_library *first = fixture_load(a);
    int number = a;
    close(a);
    int b = fixture_kernel("b.so", "-DADD=10");
    cr_assert_eq(b, number, "the number is not used again, so this shows nothing");
    aoticache_library *second = fixture_load(b);
    close(b);
    cr_assert_eq(fixture_first_result(first), 2.0f);
    cr_assert_eq(fixture_first_result(second), 11.0f);
    aoticache_library_unref(first);
    cr_assert_eq(fixture_first_result(second), 11.0f);
    aoticache_library_unref(second);
}

/* The same through the file itself, where no copy with an inode of its own is made. */
Test(loader, same_descriptor_number_gives_the_new_library_without_copies)
{
    fixture_import_torch("libtorch_cpu.so");
    int a = fixture_kernel("a.so", "-DADD=1");
    aoticache_library *first = fixture_load(a);
    int number = a;
    close(a);
    int b = fixture_kernel("b.so", "-DADD=10");
    cr_assert_eq(b, number, "the number is not used again, so this shows nothing");
    aoticache_library *second = fixture_load(b);
    close(b);
    cr_assert_eq(fixture_first_result(first), 2.0f);
    cr_assert_eq(fixture_first_result(second), 11.0f);
    aoticache_library_unref(second);
    aoticache_library_unref(first);
}

static int count_loaded(struct dl_phdr_info *info, size_t size, void *user)
{
    (void)size;
    if (strstr(info->dlpi_name, "libtorch") != NULL || strstr(info->dlpi_name, "libc10") != NULL)
        ++*(int *)user;
    return 0;
}

static int torch_libraries_loaded(void)
{
    int count = 0;
    dl_iterate_phdr(count_loaded, &count);
    return count;
}

/* A library that ends the process when it is loaded, under PyTorch's name, where the kernel's RUNPATH points. */
Test(loader, libtorch_in_the_runpath_is_not_loaded)
{
    fixture_run("mkdir '%s/trap'", fixture_directory);
    fixture_compile("#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { abort(); }\n",
                    "trap/libtorch_cpu.so", "-Wl,-soname,libtorch_cpu.so");
    char flags[FIXTURE_PATH_BYTES];
    snprintf(flags, sizeof flags, "-Wl,--enable-new-dtags,-rpath,%s/trap", fixture_directory);
    aoticache_library *library = fixture_load(fixture_kernel("kernel.so", flags));
    cr_assert_eq(fixture_first_result(library), 2.0f);
    cr_assert_eq(torch_libraries_loaded(), 0);
    aoticache_library_unref(library);
}

Test(loader, other_torch_libraries_are_left_out)
{
    fixture_stub("libtorch.so");
    fixture_stub("libc10.so");
    fixture_stub("libtorch_cpu.so");
    static const char flags[] = "-Wl,--no-as-needed -L. -ltorch -ltorch_cpu -lc10 -Wl,-rpath,\\$ORIGIN";
    aoticache_library *library = fixture_load(fixture_kernel("kernel.so", flags));
    cr_assert_eq(fixture_first_result(library), 2.0f);
    cr_assert_eq(torch_libraries_loaded(), 0);
    aoticache_library_unref(library);
}

/* aot_inductor.link_libtorch=False: no needed library is named, as each compiler and linker here leaves it. */
Test(loader, unlinked_kernel_runs_however_it_was_linked)
{
    static const char *const compilers[] = {"gcc", "clang"};
    static const char *const flags[] = {
        "",
        "-Wl,-z,now",
        "-Wl,-z,lazy -Wl,--build-id=none",
        "-Wl,--spare-dynamic-tags=1",
        "-Wl,--spare-dynamic-tags=1 -Wl,-z,now -Wl,--hash-style=gnu -nostartfiles -fno-plt",
        "-fno-plt -Wl,-z,now -Wl,-z,noseparate-code",
        "-fuse-ld=gold",
        "-fuse-ld=gold -Wl,-z,now",
        "-fuse-ld=lld",
        "-fuse-ld=lld -Wl,-z,now",
    };
    int ran = 0;
    for (size_t c = 0; c < 2; c++)
        for (size_t f = 0; f < sizeof flags / sizeof flags[0]; f++) {
            if (!fixture_compile_with(compilers[c], fixture_kernel_source, "unlinked.so", flags[f]))
                continue; /* that compiler or linker is not here */
            char path[FIXTURE_PATH_BYTES];
            fixture_path("unlinked.so", path);
            int fd = open(path, O_RDONLY | O_CLOEXEC);
            aoticache_library *library = NULL;
            aoticache_error error = {0};
            cr_assert_eq(aoticache_library_load_fd(fd, "unlinked", &library, &error), AOTICACHE_OK, "%s %s: %s",
                         compilers[c], flags[f], error.message);
            close(fd);
            cr_assert_eq(fixture_first_result(library), 2.0f, "%s %s", compilers[c], flags[f]);
            aoticache_library_unref(library);
            ran++;
        }
    cr_assert_geq(ran, 4);
}

/* PyTorch links constants from raw binaries, for which linkers ask for executable stacks. */
Test(loader, executable_stack_is_not_granted)
{
    aoticache_library *library = fixture_load(fixture_kernel("kernel.so", "-z execstack"));
    cr_assert_eq(fixture_first_result(library), 2.0f);
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    bool seen = false;
    while (fgets(line, sizeof line, maps) != NULL)
        if (strstr(line, "[stack]") != NULL) {
            seen = true;
            cr_assert_null(strstr(line, "rwxp"), "%s", line);
        }
    fclose(maps);
    cr_assert(seen);
    aoticache_library_unref(library);
}

/* Weights are mapped from the library's own file, found by dladdr, when a container is made: for the second one too. */
Test(loader, library_finds_its_own_file_after_the_descriptor_is_closed)
{
    char path[FIXTURE_PATH_BYTES];
    close(fixture_kernel("self.so", "-DOPEN_SELF"));
    fixture_path("self.so", path);
    FILE *file = fopen(path, "ae");
    fputs("tail of the file", file);
    fclose(file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    aoticache_library *library = fixture_load(fd);
    close(fd);
    cr_assert_eq(open("/dev/null", O_RDONLY | O_CLOEXEC), fd);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    aoticache_library_unref(library);
}

static int open_descriptors(void)
{
    int count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

Test(loader, loading_and_unloading_leaves_no_descriptors_or_mappings)
{
    int fd = fixture_kernel("self.so", "");
    aoticache_library_unref(fixture_load(fd)); /* the shim comes with the first */
    int before = open_descriptors();
    for (int i = 0; i < 20; i++) {
        aoticache_library *library = fixture_load(fd);
        cr_assert_eq(fixture_first_result(library), 2.0f);
        aoticache_library_unref(library);
    }
    cr_assert_eq(open_descriptors(), before);
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    while (fgets(line, sizeof line, maps) != NULL)
        cr_assert_null(strstr(line, "aoticache-kernel"), "%s", line);
    fclose(maps);
    close(fd);
}

static void *load_and_run(void *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    aoticache_library *library = fixture_load(fd);
    close(fd);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    aoticache_library_unref(library);
    return NULL;
}

Test(loader, many_threads_load_at_once)
{
    char path[FIXTURE_PATH_BYTES];
    close(fixture_kernel("kernel.so", ""));
    fixture_path("kernel.so", path);
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, load_and_run, path), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
}

/* ---- what is refused ---- */

Test(loader, functions_that_the_shim_lacks_are_all_named)
{
    expect_refused(fixture_kernel("kernel.so", "-DMISSING"), AOTICACHE_UNSUPPORTED,
                   "3 functions that the shim does not have: aoti_torch_made_up_one, aoti_torch_made_up_two, "
                   "torch_made_up",
                   "run it in a process with PyTorch");
}

Test(loader, proxy_executor_is_named)
{
    expect_refused(fixture_kernel("kernel.so", "-DPROXY"), AOTICACHE_UNSUPPORTED,
                   "1 function that the shim does not have: aoti_torch_proxy_executor_call_function",
                   "(it calls operators through PyTorch's proxy executor; it names aten::cholesky, "
                   "my_ops::sum.dim_IntList); run it");
}

Test(loader, functions_that_are_operators_are_named_as_such)
{
    expect_refused(fixture_kernel("kernel.so", "-DOPERATORS"), AOTICACHE_UNSUPPORTED,
                   "does not have: aoti_torch_cpu_made_up, aoti_torch_cpu_made_up_too",
                   "(operators made_up, made_up_too); run it in a process with PyTorch");
}

Test(loader, long_list_of_missing_functions_is_cut_with_a_count)
{
    char source[16384];
    size_t used = (size_t)snprintf(source, sizeof source, "%s", fixture_kernel_source);
    for (int i = 0; i < 60; i++)
        used += (size_t)snprintf(source + used, sizeof source - used,
                                 "int aoti_torch_made_up_function_%d(void);\n"
                                 "int f%d(void) { return aoti_torch_made_up_function_%d(); }\n", i, i, i);
    fixture_stub("libtorch_cpu.so");
    fixture_compile(source, "kernel.so", "-Wl,--no-as-needed -L. -l:libtorch_cpu.so");
    char path[FIXTURE_PATH_BYTES];
    fixture_path("kernel.so", path);
    expect_refused(open(path, O_RDONLY | O_CLOEXEC), AOTICACHE_UNSUPPORTED,
                   "60 functions that the shim does not have: aoti_torch_made_up_function_0, ",
                   " more; run it in a process with PyTorch");
}

Test(loader, vector_functions_that_the_shim_lacks_are_named)
{
    char source[16384], path[FIXTURE_PATH_BYTES];
    snprintf(source, sizeof source,
             "%s\nfloat __attribute__((vector_size(16))) Sleef_made_upf4_u10(void), Sleef_another_one(void);\n"
             "float f(void) { return Sleef_made_upf4_u10()[0] + Sleef_another_one()[0]; }\n",
             fixture_kernel_source);
    fixture_stub("libtorch_cpu.so");
    fixture_compile(source, "kernel.so", "-Wl,--no-as-needed -L. -l:libtorch_cpu.so");
    fixture_path("kernel.so", path);
    expect_refused(open(path, O_RDONLY | O_CLOEXEC), AOTICACHE_UNSUPPORTED,
                   "2 functions that the shim does not have: Sleef_another_one, Sleef_made_upf4_u10",
                   "run it in a process with PyTorch");
}

Test(loader, missing_interface_functions_are_all_named)
{
    expect_refused(fixture_kernel("kernel.so", "-DBARE"), AOTICACHE_UNSUPPORTED,
                   "AOTInductorModelContainerCreateWithDevice, AOTInductorModelContainerDelete, "
                   "AOTInductorModelContainerGetNumInputs, AOTInductorModelContainerGetNumOutputs",
                   "no AOTInductor kernel library");
}

Test(loader, cuda_library_is_refused_without_pytorch)
{
    fixture_stub("libtorch_cuda.so");
    expect_refused(fixture_kernel("kernel.so", "-Wl,--no-as-needed -L. -l:libtorch_cuda.so"), AOTICACHE_UNSUPPORTED,
                   "libtorch_cuda.so", "PyTorch");
}

Test(loader, other_machine_is_refused_with_both_names)
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
    expect_refused(fd, AOTICACHE_UNSUPPORTED, "machine 243", ours);
}

Test(loader, unknown_symbol_gives_the_dynamic_linkers_words)
{
    expect_refused(fixture_kernel("kernel.so", "-DUNKNOWN"), AOTICACHE_LOAD_FAILED, "dynamic linker",
                   "undefined symbol: nobody_has_this");
}

Test(loader, file_that_is_no_library_is_invalid)
{
    char path[FIXTURE_PATH_BYTES];
    fixture_path("text", path);
    fixture_run("echo 'just some text, long enough to be a header, but none of it is one at all' > '%s'", path);
    expect_refused(open(path, O_RDONLY | O_CLOEXEC), AOTICACHE_INVALID, "not a shared library", "ELF");
    aoticache_library *library = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_library_load_fd(-1, "x", &library, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_library_load_fd(0, NULL, &library, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_library_load_fd(0, "x", NULL, &error), AOTICACHE_INVALID);
    aoticache_library_unref(NULL);
}

/* ---- the provider ---- */

Test(torch, shim_is_chosen_where_libtorch_is_not_loaded)
{
    const aoticache_torch *torch = NULL, *again = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_torch_get(&torch, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(torch->kind, AOTICACHE_TORCH_SHIM);
    cr_assert_not_null(strstr(torch->path, "libaoticache_torchshim.so"));
    fixture_import_torch("libtorch_cpu.so"); /* later: the choice stays */
    cr_assert_eq(aoticache_torch_get(&again, &error), AOTICACHE_OK);
    cr_assert_eq(again, torch);
}

Test(torch, absent_shim_is_reported_with_the_places)
{
    setenv("AOTICACHE_HOME", fixture_directory, 1);
    char path[PATH_MAX];
    if (aoticache_home_find("lib/libaoticache_torchshim.so", path, NULL) == AOTICACHE_OK)
        cr_skip_test("a shim is installed on this machine");
    const aoticache_torch *torch = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_torch_get(&torch, &error), AOTICACHE_LOAD_FAILED);
    cr_assert_not_null(strstr(error.message, fixture_directory), "%s", error.message);
    cr_assert_null(torch);
    /* Nothing is known to be there, so everything is missing; and later it may have been installed. */
    int fd = fixture_kernel("kernel.so", "");
    aoticache_library_description *about = NULL;
    cr_assert_eq(aoticache_library_describe(fd, &about, &error), AOTICACHE_OK);
    cr_assert_eq(about->missing_count, about->symbol_count);
    aoticache_library_description_free(about);
    cr_assert_eq(fixture_run("mkdir '%s/lib'", fixture_directory), 0);
    fixture_compile(fixture_torch_source, "lib/libaoticache_torchshim.so", "-Wl,-soname,libaoticache_torchshim.so");
    aoticache_library *library = fixture_load(fd);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    aoticache_library_unref(library);
    close(fd);
}

Test(torch, incomplete_shim_is_refused_with_what_it_lacks)
{
    setenv("AOTICACHE_HOME", fixture_directory, 1);
    cr_assert_eq(fixture_run("mkdir '%s/lib'", fixture_directory), 0);
    fixture_compile("int aoti_torch_get_dim(void *t, long *r) { return 1; }", "lib/libaoticache_torchshim.so",
                    "-Wl,-soname,libaoticache_torchshim.so");
    const aoticache_torch *torch = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_torch_get(&torch, &error), AOTICACHE_LOAD_FAILED);
    cr_assert_not_null(strstr(error.message, "lacks 13 functions: aoti_torch_abi_version, "), "%s", error.message);
}

Test(torch, libtorch_in_the_process_is_used)
{
    void *handle = fixture_import_torch("libtorch_cpu.so");
    const aoticache_torch *torch = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_torch_get(&torch, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(torch->kind, AOTICACHE_TORCH_LIBTORCH);
    void *expected = dlsym(handle, "aoti_torch_get_dim");
    cr_assert_eq(memcmp(&torch->aoti_torch_get_dim, &expected, sizeof expected), 0);
    cr_assert_null(dlsym(RTLD_DEFAULT, "aoti_torch_get_dim"), "libtorch became global");

    int fd = fixture_kernel("kernel.so", "");
    aoticache_library *library = fixture_load(fd);
    cr_assert_eq(aoticache_library_torch_kind(library), AOTICACHE_TORCH_LIBTORCH);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    aoticache_library_unref(library);
    close(fd);
}

Test(torch, unlinked_kernel_gets_the_libtorch_of_the_process)
{
    fixture_import_torch("libtorch_cpu.so");
    fixture_compile(fixture_kernel_source, "unlinked.so", "-Wl,-z,now");
    char path[FIXTURE_PATH_BYTES];
    fixture_path("unlinked.so", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    aoticache_library *library = fixture_load(fd);
    close(fd);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    cr_assert_null(dlsym(RTLD_DEFAULT, "aoti_torch_get_dim"), "libtorch became global");
    aoticache_library_unref(library);
}

/* A distribution's PyTorch has a version in its name; kernels that a wheel made name it without, and the other way. */
Test(torch, libtorch_with_another_versioned_name_is_used)
{
    fixture_import_torch("libtorch_cpu.so.2.6");
    aoticache_library *plain = fixture_load(fixture_kernel("plain.so", ""));
    cr_assert_eq(fixture_first_result(plain), 2.0f);
    fixture_stub("libtorch_cpu.so.2.5");
    fixture_compile(fixture_kernel_source, "versioned.so", "-Wl,--no-as-needed -L. -l:libtorch_cpu.so.2.5");
    char path[FIXTURE_PATH_BYTES];
    fixture_path("versioned.so", path);
    aoticache_library *versioned = fixture_load(open(path, O_RDONLY | O_CLOEXEC));
    cr_assert_eq(fixture_first_result(versioned), 2.0f);
    cr_assert_eq(torch_libraries_loaded(), 1);
    aoticache_library_unref(versioned);
    aoticache_library_unref(plain);
}

Test(torch, functions_that_libtorch_lacks_are_all_named)
{
    fixture_import_torch("libtorch_cpu.so");
    expect_refused(fixture_kernel("kernel.so", "-DMISSING"), AOTICACHE_UNSUPPORTED,
                   "3 functions that the PyTorch in this process does not have: aoti_torch_made_up_one",
                   "torch_made_up; compile it with this version of PyTorch");
}
