/*
 * Loading: which library a descriptor gives, where its aoti_torch_* functions come from, and what is refused with which
 * words. The shim is that of the build; libtorch is a stand-in.
 */
#include "loader_fixture.h"

#include "base/home.h"
#include "base/memory_file.h"
#include "loader/elf/internal.h"
#include "loader/internal.h"

#include <link.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

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

/* Others may write to this one: then the library finds a whole copy of what was verified, and not the file. */
Test(loader, library_does_not_find_a_file_of_its_own_that_others_may_write)
{
    aoticache_load_options options = AOTICACHE_LOAD_OPTIONS_INIT;
    aoticache_library *library = NULL;
    aoticache_digest digest;
    aoticache_error error = {0};
    char path[FIXTURE_PATH_BYTES];
    close(fixture_kernel("self.so", "-DOPEN_SELF"));
    fixture_path("self.so", path);
    FILE *file = fopen(path, "ae");
    fputs("tail of the file", file);
    fclose(file);
    cr_assert_eq(chmod(path, 0664), 0);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_eq(aoticache_digest_of_fd(fd, &digest, NULL, NULL), AOTICACHE_OK);
    options.digest = &digest;
    cr_assert_eq(aoticache_library_load_fd_with(fd, "self", &options, &library, &error), AOTICACHE_OK, "%s",
                 error.message);
    close(fd);
    cr_assert_eq(truncate(path, 0), 0);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    aoticache_library_unref(library);
}

/* A descriptor may come from somebody who may do more: then the library finds a whole copy of its file. */
Test(loader, library_finds_its_own_file_where_it_may_not_be_opened_again)
{
    char path[FIXTURE_PATH_BYTES];
    close(fixture_kernel("self.so", "-DOPEN_SELF"));
    fixture_path("self.so", path);
    FILE *file = fopen(path, "ae");
    fputs("tail of the file", file);
    fclose(file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_eq(fchmod(fd, 0), 0);
    int again = open(path, O_RDONLY | O_CLOEXEC);
    if (again >= 0)
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

/* ---- libraries among each other ---- */

/* Adds what a variable holds; each run makes it one more. The variable's name is the same in all of them. */
static const char counting_source[] =
    "int same_name = ADD;\n"
    "#ifdef UNIQUE\n__asm__(\".type same_name, @gnu_unique_object\");\n#endif\n"
    "int same_function(void) { return same_name++; }\n"
    "#undef ADD\n#define ADD same_function()\n";

static aoticache_library *load_counting(const char *name, const char *flags, bool private_copy)
{
    char source[16384], path[FIXTURE_PATH_BYTES], all_flags[256];
    aoticache_load_options options = AOTICACHE_LOAD_OPTIONS_INIT;
    aoticache_library *library = NULL;
    aoticache_error error = {0};
    options.private_copy = private_copy;
    snprintf(source, sizeof source, "%s%s", counting_source, fixture_kernel_source);
    snprintf(all_flags, sizeof all_flags, "%s -Wl,--no-as-needed -L. -l:libtorch_cpu.so", flags);
    fixture_stub("libtorch_cpu.so");
    fixture_compile(source, name, all_flags);
    fixture_path(name, path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_eq(aoticache_library_load_fd_with(fd, name, &options, &library, &error), AOTICACHE_OK, "%s",
                 error.message);
    close(fd);
    return library;
}

static int mappings_named(const char *part)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int count = 0;
    cr_assert_not_null(maps);
    while (fgets(line, sizeof line, maps) != NULL)
        count += strstr(line, part) != NULL;
    fclose(maps);
    return count;
}

/* {1, 2}: the variable is asked once for each element, and the first result is 1 and what it held. */
static void expect_own_variables(const char *flags, bool private_copy)
{
    char first[128], second[128];
    snprintf(first, sizeof first, "-DADD=10 %s", flags);
    snprintf(second, sizeof second, "-DADD=500 %s", flags);
    aoticache_library *a = load_counting("a.so", first, private_copy);
    aoticache_library *b = load_counting("b.so", second, private_copy);
    cr_assert_eq(fixture_first_result(a), 11.0f);
    cr_assert_eq(fixture_first_result(b), 501.0f);
    cr_assert_eq(fixture_first_result(a), 13.0f);
    cr_assert_eq(fixture_first_result(b), 503.0f);
    aoticache_library_unref(a);
    cr_assert_eq(fixture_first_result(b), 505.0f);
    aoticache_library_unref(b);
}

Test(loader, libraries_do_not_see_each_others_symbols)
{
    expect_own_variables("", false);
    expect_own_variables("-DUNIQUE", false);
    cr_assert_eq(mappings_named("aoticache-kernel"), 0);
}

static int parallel_kernel(void)
{
    if (fixture_run("echo 'int x;' | cc -fopenmp -shared -fPIC -x c - -o '%s/probe.so' 2>/dev/null", fixture_directory) != 0)
        cr_skip_test("the C compiler has no OpenMP");
    return fixture_kernel("parallel.so", "-DPARALLEL -fopenmp");
}

/* libgomp would wait in the child for threads that only the parent has. */
Test(loader, library_that_ran_on_several_threads_runs_on_both_sides_of_a_fork)
{
    int fd = parallel_kernel();
    aoticache_library *library = fixture_load(fd);
    for (int round = 0; round < 3; round++) {
        cr_assert_float_eq(fixture_first_result(library), 2.0F, 0.0F);
        pid_t child = fork();
        if (child == 0) {
            alarm(60); /* for what would wait for ever */
            _exit(fixture_first_result(library) == 2.0F ? 0 : 1);
        }
        int how = 0;
        cr_assert_eq(waitpid(child, &how, 0), child);
        cr_assert_eq(how, 0, "the child ended with 0x%x", (unsigned)how);
    }
    aoticache_library_unref(library);
    close(fd);
}

/* The threads of libgomp stay for the next parallel region; without its code they would run into nothing. */
Test(loader, library_with_threads_of_openmp_is_unloaded_under_them)
{
    int fd = parallel_kernel();
    for (int round = 0; round < 3; round++) {
        aoticache_library *library = fixture_load(fd);
        cr_assert_float_eq(fixture_first_result(library), 2.0F, 0.0F);
        aoticache_library_unref(library);
        usleep(30000); /* they spin for a while, then sleep */
    }
    close(fd);
}

Test(loader, private_copies_share_no_unique_symbols_and_are_unloaded)
{
    fixture_import_torch("libtorch_cpu.so");
    expect_own_variables("", false);
    cr_assert_eq(mappings_named("/a.so"), 0);
    expect_own_variables("-DUNIQUE", true);
    cr_assert_eq(mappings_named("aoticache-kernel"), 0);
    /* That the fixture's symbol is unique at all: from the file itself the second gets the first one's. */
    aoticache_library *a = load_counting("a.so", "-DADD=10 -DUNIQUE", false);
    aoticache_library *b = load_counting("b.so", "-DADD=500 -DUNIQUE", false);
    cr_assert_eq(fixture_first_result(a), 11.0f);
    cr_assert_eq(fixture_first_result(b), 13.0f);
    aoticache_library_unref(a);
    aoticache_library_unref(b);
    cr_assert_gt(mappings_named("/a.so"), 0);
}

/* C++ registers the end of thread-local variables, by which glibc would keep the library while the thread lives. */
static const char thread_local_source[] =
    "int __cxa_thread_atexit(void (*)(void *), void *, void *);\nextern void *__dso_handle;\n"
    "static __thread int registered, ended;\nstatic int *place;\nint *counter;\n"
    "static void at_end(void *p) { ended = 1; ++*counter; (void)p; }\n"
    "void set_counter(int *to) { counter = to; }\n"
    "static int note(void) { if (!registered++) __cxa_thread_atexit(at_end, &ended, &__dso_handle); return 1; }\n"
    "#define ADD note()\n";

typedef void (*set_counter_fn)(int *);

static aoticache_library *load_with_thread_locals(int *counter)
{
    char source[16384], path[FIXTURE_PATH_BYTES];
    snprintf(source, sizeof source, "%s%s", thread_local_source, fixture_kernel_source);
    fixture_stub("libtorch_cpu.so");
    if (!fixture_compile_with(NULL, source, "tls.so", "-Wl,--no-as-needed -L. -l:libtorch_cpu.so -lstdc++"))
        cr_skip_test("no C++ runtime to link with");
    fixture_path("tls.so", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    aoticache_library *library = fixture_load(fd);
    close(fd);
    set_counter_fn set = NULL;
    *(void **)&set = dlsym(library->handle, "set_counter");
    cr_assert_not_null(set);
    set(counter);
    return library;
}

static void *use_library(void *library)
{
    cr_assert_eq(fixture_first_result(library), 2.0f);
    return NULL;
}

Test(loader, thread_local_variables_do_not_keep_a_library)
{
    int ended = 0;
    pthread_t thread;
    aoticache_library *library = load_with_thread_locals(&ended);
    use_library(library);
    use_library(library);
    cr_assert_eq(pthread_create(&thread, NULL, use_library, library), 0);
    pthread_join(thread, NULL);
    cr_assert_eq(ended, 1, "a thread that ends runs its own");
    aoticache_library_unref(library);
    cr_assert_eq(ended, 2, "an unloading runs the others");
    cr_assert_eq(mappings_named("aoticache-kernel"), 0);
    library = load_with_thread_locals(&ended);
    use_library(library);
    aoticache_library_unref(library);
    cr_assert_eq(ended, 3);
    cr_assert_eq(mappings_named("aoticache-kernel"), 0);
}

/* ---- what was verified is what runs ---- */

static void digest_of_file(int fd, aoticache_digest *ret_digest)
{
    cr_assert_eq(aoticache_digest_of_fd(fd, ret_digest, NULL, NULL), AOTICACHE_OK);
}

/* The bytes of `from` in the place of those of `to`, which stays the same file: what a second writer does. */
static void overwrite(const char *to, const char *from)
{
    char first[FIXTURE_PATH_BYTES], second[FIXTURE_PATH_BYTES];
    fixture_path(to, first);
    fixture_path(from, second);
    cr_assert_eq(fixture_run("cat '%s' > '%s'", second, first), 0);
}

Test(loader, file_that_changed_after_it_was_verified_is_refused)
{
    int fd = fixture_kernel("verified.so", "-DADD=1");
    close(fixture_kernel("another.so", "-DADD=100"));
    aoticache_load_options options = AOTICACHE_LOAD_OPTIONS_INIT;
    aoticache_library *library = NULL;
    aoticache_digest digest;
    aoticache_error error = {0};
    digest_of_file(fd, &digest);
    options.digest = &digest;
    cr_assert_eq(aoticache_library_load_fd_with(fd, "verified", &options, &library, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    aoticache_library_unref(library);
    overwrite("verified.so", "another.so");
    library = NULL;
    cr_assert_eq(aoticache_library_load_fd_with(fd, "verified", &options, &library, &error), AOTICACHE_CORRUPT);
    cr_assert_null(library);
    cr_assert_not_null(strstr(error.message, "library verified: its bytes hash to "), "%s", error.message);
    cr_assert_not_null(strstr(error.message, "changed after it was verified"), "%s", error.message);
    close(fd);
}

Test(loader, copy_that_was_verified_runs_whatever_became_of_the_file)
{
    int fd = fixture_kernel("verified.so", "-DADD=1");
    close(fixture_kernel("another.so", "-DADD=100"));
    aoticache_memory_copy copy = {.file = aoticache_memory_file_create(), .kept = UINT64_MAX};
    aoticache_load_options options = AOTICACHE_LOAD_OPTIONS_INIT;
    aoticache_library *library = NULL;
    aoticache_digest digest;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_digest_of_fd_copying(fd, &copy, &digest, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(copy.failed, 0);
    overwrite("verified.so", "another.so");
    options.digest = &digest;
    options.copy = copy.file;
    cr_assert_eq(aoticache_library_load_fd_with(fd, "verified", &options, &library, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    aoticache_library_unref(library);
    cr_assert_eq(fcntl(copy.file, F_GETFD), -1, "the copy is still open");
    close(fd);
}

/* The loader takes it over also where it says no. */
Test(loader, copy_is_closed_by_every_load)
{
    aoticache_load_options options = AOTICACHE_LOAD_OPTIONS_INIT;
    aoticache_library *library = NULL;
    aoticache_digest digest = {{0}};
    options.digest = &digest;
    options.copy = aoticache_memory_file_create();
    cr_assert_eq(aoticache_library_load_fd_with(0, "empty", &options, &library, NULL), AOTICACHE_INVALID);
    cr_assert_eq(fcntl(options.copy, F_GETFD), -1);
    options.copy = aoticache_memory_file_create();
    cr_assert_eq(aoticache_library_load_fd_with(-1, "empty", &options, &library, NULL), AOTICACHE_INVALID);
    cr_assert_eq(fcntl(options.copy, F_GETFD), -1);
}

/* The file itself is loaded only where nobody else can write to it, and where it was not: see loader.h. */
static int copies_mapped(mode_t mode, bool with_digest)
{
    aoticache_load_options options = AOTICACHE_LOAD_OPTIONS_INIT;
    aoticache_library *library = NULL;
    aoticache_digest digest;
    aoticache_error error = {0};
    char path[FIXTURE_PATH_BYTES];
    fixture_stub("libtorch_cpu.so");
    fixture_compile(fixture_kernel_source, "own.so", "-Wl,--no-as-needed -L. -l:libtorch_cpu.so");
    fixture_path("own.so", path);
    cr_assert_eq(chmod(path, mode), 0);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    digest_of_file(fd, &digest);
    options.digest = with_digest ? &digest : NULL;
    cr_assert_eq(aoticache_library_load_fd_with(fd, "own", &options, &library, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    int count = mappings_named("aoticache-kernel");
    aoticache_library_unref(library);
    close(fd);
    return count;
}

Test(torch, file_that_others_may_write_is_copied_beside_libtorch_too)
{
    fixture_import_torch("libtorch_cpu.so");
    cr_assert_eq(copies_mapped(0444, true), 0);
    cr_assert_eq(copies_mapped(0644, true), 0);
    cr_assert_gt(copies_mapped(0664, true), 0);
    cr_assert_gt(copies_mapped(0646, true), 0);
    cr_assert_eq(copies_mapped(0664, false), 0);
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

/* In a child, since a crash is what is looked for. */
static int load_in_child(int fd)
{
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        aoticache_library *library = NULL;
        aoticache_error error = {0};
        alarm(300);
        if (aoticache_library_load_fd(fd, "damaged", &library, &error) != AOTICACHE_OK)
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

/* Where the last byte that segments have lies: behind it are only tables for tools. */
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

Test(loader, library_cut_anywhere_is_refused_with_words)
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
 * Each field gets values that are too large, and, where no other code or data than the library's own would then be run,
 * some that are too small or lead elsewhere: what a file's bytes mean no check can tell.
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

Test(loader, altered_file_header_is_refused_or_means_nothing)
{
    static const uint8_t sizes[] = {1, 1, 1, 1, 1, 1, 1, 1, 8, 2, 2, 4, 8, 8, 8, 4, 2, 2, 2, 2, 2, 2};
    whole_file file = read_whole(fixture_kernel("kernel.so", ""));
    size_t offset = 0;
    for (size_t i = 0; i < sizeof sizes; offset += sizes[i++])
        damage_field(&file, offset, sizes[i], true, "file header");
    cr_assert_eq(offset, sizeof(Elf64_Ehdr));
    free(file.bytes);
}

Test(loader, altered_program_headers_are_refused_or_mean_nothing)
{
    static const uint8_t sizes[] = {4, 4, 8, 8, 8, 8, 8, 8};
    whole_file file = read_whole(fixture_kernel("kernel.so", ""));
    const Elf64_Ehdr *header = (const Elf64_Ehdr *)file.bytes;
    for (int p = 0; p < header->e_phnum; p++) {
        size_t offset = header->e_phoff + (size_t)p * sizeof(Elf64_Phdr);
        uint32_t type = ((const Elf64_Phdr *)(file.bytes + header->e_phoff))[p].p_type;
        bool slightly = type != PT_LOAD && type != PT_GNU_RELRO;
        for (size_t i = 0; i < sizeof sizes; offset += sizes[i++])
            if (type != PT_LOAD || i >= 2) /* without one of its segments a library is another one */
                damage_field(&file, offset, sizes[i], slightly, "program header");
    }
    free(file.bytes);
}

Test(loader, altered_dynamic_section_is_refused_or_means_nothing)
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
