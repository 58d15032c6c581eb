/*
 * Loading with the shim of the build: which library a descriptor loads, how the library finds its own file, and what
 * remains after unloading.
 */
#include "tests/unit/fixtures/capabilities.h"
#include "base/names.h"
#include "loader/eager_face.h"
#include "loader/loader_internal.h"
#include "loader/loader.h"
#include "tests/unit/fixtures/loader_fixture.h"

#include <pthread.h>
#include <sys/stat.h>

TestSuite(loader, .init = fixture_setup, .fini = fixture_teardown);

Test(loader, kernel_runs_with_the_shim)
{
    int fd = fixture_kernel("kernel.so", "");
    aoticache_library *library = fixture_load(fd);
    close(fd);
    cr_assert_eq(aoticache_library_get_info(library)->torch_kind, AOTICACHE_TORCH_SHIM);
    cr_assert_str_eq(aoticache_library_get_info(library)->name, "kernel");
    cr_assert(aoticache_library_exports(library, "AOTInductorModelContainerRun"));
    cr_assert(!aoticache_library_exports(library, "AOTInductorModelContainerRunSingleThreaded"));
    cr_assert(!aoticache_library_exports(library, "malloc"));
    cr_assert_eq(fixture_first_result(library), 2.0f);
    aoticache_library_unref(library);
}

Test(loader, new_tensor_has_its_own_memory_and_is_described)
{
    static const int64_t sizes[3] = {2, 0, 3}, shape[2] = {2, 3}, strides[2] = {1, 2}, negative[1] = {-1};
    AtenTensorHandle tensor = NULL, other = NULL;
    aoticache_tensor_view view;
    aoticache_error error = {.message = ""};
    cr_assert_eq(
        aoticache_tensor_new(AOTICACHE_DTYPE_INT16, AOTICACHE_DEVICE_CPU, 2, shape, NULL, &tensor, &view, &error),
        AOTICACHE_OK, "%s", error.message);
    cr_expect_eq(view.dtype, AOTICACHE_DTYPE_INT16);
    cr_expect_eq(view.device.type, AOTICACHE_DEVICE_TYPE_CPU);
    cr_expect(view.ndim == 2 && view.numel == 6);
    cr_expect(view.sizes[0] == 2 && view.sizes[1] == 3 && view.strides[0] == 3 && view.strides[1] == 1);
    memset(view.data, 1, 6 * sizeof(int16_t));
    cr_assert_eq(
        aoticache_tensor_new(AOTICACHE_DTYPE_FLOAT64, AOTICACHE_DEVICE_CPU, 2, shape, strides, &other, &view, NULL),
        AOTICACHE_OK);
    cr_expect(view.strides[0] == 1 && view.strides[1] == 2);
    aoticache_tensor_free(other);
    cr_assert_eq(aoticache_tensor_new(AOTICACHE_DTYPE_BOOL, AOTICACHE_DEVICE_CPU, 3, sizes, NULL, &other, NULL, NULL),
                 AOTICACHE_OK, "one without elements, and without a view");
    aoticache_tensor_free(other);
    aoticache_tensor_free(tensor);
    cr_expect_eq(
        aoticache_tensor_new(AOTICACHE_DTYPE_BOOL, AOTICACHE_DEVICE_CPU, 1, negative, NULL, &other, NULL, &error),
        AOTICACHE_INVALID);
    cr_expect_str_eq(error.message, "dimension 0 of a tensor has size -1");
    cr_expect_eq(aoticache_tensor_new(99, AOTICACHE_DEVICE_CPU, 1, shape, NULL, &other, NULL, NULL), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_tensor_new(AOTICACHE_DTYPE_BOOL, AOTICACHE_DEVICE_CPU, 65, shape, NULL, &other, NULL, NULL),
                 AOTICACHE_INVALID);
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

/* The same through the file itself, without a copy that has its own inode. */
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

/* A library with PyTorch's name, which ends the process when it is loaded, is in the kernel's RUNPATH. */
Test(loader, libtorch_in_the_runpath_is_not_loaded)
{
    fixture_run("mkdir '%s/trap'", fixture_directory);
    fixture_compile("#include <stdlib.h>\n__attribute__((constructor)) static void f(void) { abort(); }\n",
                    "trap/libtorch_cpu.so", "-Wl,-soname,libtorch_cpu.so");
    char flags[FIXTURE_PATH_BYTES];
    snprintf(flags, sizeof flags, "-Wl,--enable-new-dtags,-rpath,%s/trap", fixture_directory);
    aoticache_library *library = fixture_load(fixture_kernel("kernel.so", flags));
    cr_assert_eq(fixture_first_result(library), 2.0f);
    cr_assert_eq(fixture_torch_libraries(), 0);
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
    cr_assert_eq(fixture_torch_libraries(), 0);
    aoticache_library_unref(library);
}

/* aot_inductor.link_libtorch=False: no needed library is named, with each compiler and linker here. */
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
                continue; /* that compiler or linker is not installed */
            char path[FIXTURE_PATH_BYTES];
            fixture_path("unlinked.so", path);
            int fd = open(path, O_RDONLY | O_CLOEXEC);
            aoticache_library *library = NULL;
            aoticache_error error = {0};
            cr_assert_eq(aoticache_library_load_fd(fd, "unlinked", NULL, &library, &error), AOTICACHE_OK, "%s %s: %s",
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

/* Makes a kernel that reads the tail of its own file, as libraries with appended weights do. */
static void make_self_opening_kernel(char ret_path[FIXTURE_PATH_BYTES])
{
    close(fixture_kernel("self.so", "-DOPEN_SELF"));
    fixture_path("self.so", ret_path);
    FILE *file = fopen(ret_path, "ae");
    fputs("tail of the file", file);
    fclose(file);
}

/* Weights are mapped from the library's own file, found by dladdr, when a container is made: for the second one too. */
Test(loader, library_finds_its_own_file_after_the_descriptor_is_closed)
{
    char path[FIXTURE_PATH_BYTES];
    make_self_opening_kernel(path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    aoticache_library *library = fixture_load(fd);
    close(fd);
    cr_assert_eq(open("/dev/null", O_RDONLY | O_CLOEXEC), fd);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    aoticache_library_unref(library);
}

/* Others may write to this file: then the library finds a whole copy of the verified bytes, not the file. */
Test(loader, library_does_not_find_a_file_of_its_own_that_others_may_write)
{
    aoticache_load_options options = AOTICACHE_LOAD_OPTIONS_INIT;
    aoticache_library *library = NULL;
    aoticache_digest digest;
    aoticache_error error = {0};
    char path[FIXTURE_PATH_BYTES];
    make_self_opening_kernel(path);
    cr_assert_eq(chmod(path, 0664), 0);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_eq(aoticache_digest_of_fd(fd, &digest, NULL, NULL), AOTICACHE_OK);
    options.digest = &digest;
    cr_assert_eq(aoticache_library_load_fd(fd, "self", &options, &library, &error), AOTICACHE_OK, "%s", error.message);
    close(fd);
    cr_assert_eq(truncate(path, 0), 0);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    aoticache_library_unref(library);
}

/* The descriptor may come from a process with more rights: then the library finds a whole copy of its file. */
Test(loader, library_finds_its_own_file_where_it_may_not_be_opened_again)
{
    char path[FIXTURE_PATH_BYTES];
    make_self_opening_kernel(path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_eq(fchmod(fd, 0), 0);
    if (!give_up_capabilities() || open(path, O_RDONLY | O_CLOEXEC) >= 0)
        cr_skip_test("this user opens files that nobody may open");
    aoticache_library *library = fixture_load(fd);
    close(fd);
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
    aoticache_library_unref(fixture_load(fd)); /* the first one loads the shim */
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
