/*
 * Private copies: what libraries see of each other, whether they are really unloaded, and that the verified bytes run.
 */
#include "tests/unit/fixtures/loader_fixture.h"
#include "tests/unit/fixtures/emulator.h"

#include "base/digest.h"
#include "base/files/memory_file.h"
#include "base/names.h"
#include "loader/loader_internal.h"
#include "loader/loader.h"

#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

TestSuite(loader_copy, .init = fixture_setup, .fini = fixture_teardown);

/* Adds the value of a variable, which each run increments. The variable has the same name in all of them. */
static const char counting_source[] = "int same_name = ADD;\n"
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
    cr_assert_eq(aoticache_library_load_fd(fd, name, &options, &library, &error), AOTICACHE_OK, "%s", error.message);
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

/* Runs on {1, 2}: the variable is read once for each element, and the first result is 1 plus its value. */
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

Test(loader_copy, libraries_do_not_see_each_others_symbols)
{
    expect_own_variables("", false);
    expect_own_variables("-DUNIQUE", false);
    cr_assert_eq(mappings_named("aoticache-kernel"), 0);
}

static int parallel_kernel(void)
{
    if (fixture_run("echo 'int x;' | cc -fopenmp -shared -fPIC -x c - -o '%s/probe.so' 2>/dev/null",
                    fixture_directory) != 0)
        cr_skip_test("the C compiler has no OpenMP");
    return fixture_kernel("parallel.so", "-DPARALLEL -fopenmp");
}

/* libgomp would wait in the child for threads that only the parent has. */
Test(loader_copy, library_that_ran_on_several_threads_runs_on_both_sides_of_a_fork)
{
    SKIP_UNDER_EMULATOR(EMULATOR_FORKS_ONE_THREAD);
    int fd = parallel_kernel();
    aoticache_library *library = fixture_load(fd);
    for (int round = 0; round < 3; round++) {
        cr_assert_float_eq(fixture_first_result(library), 2.0F, 0.0F);
        pid_t child = fork();
        if (child == 0) {
            alarm(60); /* in case it would wait for ever */
            _exit(fixture_first_result(library) == 2.0F ? 0 : 1);
        }
        int how = 0;
        cr_assert_eq(waitpid(child, &how, 0), child);
        cr_assert_eq(how, 0, "the child ended with 0x%x", (unsigned)how);
    }
    aoticache_library_unref(library);
    close(fd);
}

/* The threads of libgomp stay for the next parallel region; if its code were unloaded they would crash. */
Test(loader_copy, library_with_threads_of_openmp_is_unloaded_under_them)
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

Test(loader_copy, private_copies_share_no_unique_symbols_and_are_unloaded)
{
    fixture_import_torch("libtorch_cpu.so");
    expect_own_variables("", false);
    cr_assert_eq(mappings_named("/a.so"), 0);
    expect_own_variables("-DUNIQUE", true);
    cr_assert_eq(mappings_named("aoticache-kernel"), 0);
    /*
     * First check that the fixture's symbol is unique: loaded from the file itself, the second library gets the first
     * one's.
     */
    aoticache_library *a = load_counting("a.so", "-DADD=10 -DUNIQUE", false);
    aoticache_library *b = load_counting("b.so", "-DADD=500 -DUNIQUE", false);
    cr_assert_eq(fixture_first_result(a), 11.0f);
    cr_assert_eq(fixture_first_result(b), 13.0f);
    aoticache_library_unref(a);
    aoticache_library_unref(b);
    cr_assert_gt(mappings_named("/a.so"), 0);
}

/*
 * C++ registers the destructors of thread-local variables, because of which glibc would keep the library while the
 * thread lives.
 */
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

Test(loader_copy, thread_local_variables_do_not_keep_a_library)
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

/* ---- the verified bytes run ---- */

static void digest_of_file(int fd, aoticache_digest *ret_digest)
{
    cr_assert_eq(aoticache_digest_of_fd(fd, ret_digest, NULL, NULL), AOTICACHE_OK);
}

/* Overwrites the bytes of `to`, which stays the same file, with those of `from`, as a second writer does. */
static void overwrite(const char *to, const char *from)
{
    char first[FIXTURE_PATH_BYTES], second[FIXTURE_PATH_BYTES];
    fixture_path(to, first);
    fixture_path(from, second);
    cr_assert_eq(fixture_run("cat '%s' > '%s'", second, first), 0);
}

Test(loader_copy, file_that_changed_after_it_was_verified_is_refused)
{
    int fd = fixture_kernel("verified.so", "-DADD=1");
    close(fixture_kernel("another.so", "-DADD=100"));
    aoticache_load_options options = AOTICACHE_LOAD_OPTIONS_INIT;
    aoticache_library *library = NULL;
    aoticache_digest digest;
    aoticache_error error = {0};
    digest_of_file(fd, &digest);
    options.digest = &digest;
    cr_assert_eq(aoticache_library_load_fd(fd, "verified", &options, &library, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    aoticache_library_unref(library);
    overwrite("verified.so", "another.so");
    library = NULL;
    cr_assert_eq(aoticache_library_load_fd(fd, "verified", &options, &library, &error), AOTICACHE_CORRUPT);
    cr_assert_null(library);
    cr_assert_not_null(strstr(error.message, "library verified: its bytes hash to "), "%s", error.message);
    cr_assert_not_null(strstr(error.message, "changed after it was verified"), "%s", error.message);
    close(fd);
}

Test(loader_copy, copy_that_was_verified_runs_whatever_became_of_the_file)
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
    cr_assert_eq(aoticache_library_load_fd(fd, "verified", &options, &library, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    aoticache_library_unref(library);
    cr_assert_eq(fcntl(copy.file, F_GETFD), -1, "the copy is still open");
    close(fd);
}

/* ---- large files, which a thread reads ahead of the hashing ---- */

enum { LARGE_BYTES = (9 << 20) + 12345 };

static int large_file(uint8_t *ret_bytes)
{
    char path[FIXTURE_PATH_BYTES];
    fixture_path("large", path);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (uint64_t i = 0, x = 1; i < LARGE_BYTES; i++, x = x * 6364136223846793005u + 1442695040888963407u)
        ret_bytes[i] = (uint8_t)(x >> 56);
    cr_assert_eq(write(fd, ret_bytes, LARGE_BYTES), LARGE_BYTES);
    return fd;
}

Test(loader_copy, large_file_is_copied_as_it_is_hashed)
{
    uint8_t *bytes = malloc(LARGE_BYTES), *copied = malloc(LARGE_BYTES);
    const uint64_t kept[] = {UINT64_MAX, LARGE_BYTES, LARGE_BYTES - 1, (5 << 20) + 3, 65536, 0};
    int fd = large_file(bytes);
    aoticache_digest wanted, digest;
    cr_assert_eq(aoticache_digest_of(bytes, LARGE_BYTES, &wanted), AOTICACHE_OK);
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        const uint64_t size = kept[i] < LARGE_BYTES ? kept[i] : LARGE_BYTES;
        aoticache_memory_copy copy = {.file = aoticache_memory_file_create(), .kept = kept[i]};
        uint64_t hashed = 0;
        cr_assert_eq(aoticache_digest_of_fd_copying(fd, &copy, &digest, &hashed, NULL), AOTICACHE_OK);
        cr_assert(aoticache_digest_equal(&digest, &wanted));
        cr_assert_eq(hashed, LARGE_BYTES);
        cr_assert_eq(copy.failed, 0);
        cr_assert_eq(pread(copy.file, copied, LARGE_BYTES, 0), (ssize_t)size);
        cr_assert_eq(memcmp(copied, bytes, size), 0);
        close(copy.file);
    }
    close(fd);
    free(bytes);
    free(copied);
}

/* The write ends at the limit of the process; the digest is of all bytes. */
Test(loader_copy, large_file_that_cannot_be_copied_is_hashed)
{
    uint8_t *bytes = malloc(LARGE_BYTES);
    int fd = large_file(bytes);
    aoticache_memory_copy copy = {.file = aoticache_memory_file_create(), .kept = UINT64_MAX};
    const struct rlimit limit = {6 << 20, RLIM_INFINITY};
    aoticache_digest wanted, digest;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(aoticache_digest_of(bytes, LARGE_BYTES, &wanted), AOTICACHE_OK);
    cr_assert_eq(aoticache_digest_of_fd_copying(fd, &copy, &digest, NULL, NULL), AOTICACHE_OK);
    cr_assert(aoticache_digest_equal(&digest, &wanted));
    cr_assert_eq(copy.failed, EFBIG);
    close(copy.file);
    close(fd);
    free(bytes);
}

Test(loader_copy, large_file_that_cannot_be_read_is_an_error)
{
    uint8_t *bytes = malloc(LARGE_BYTES);
    char path[FIXTURE_PATH_BYTES];
    close(large_file(bytes));
    fixture_path("large", path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    aoticache_memory_copy copy = {.file = aoticache_memory_file_create(), .kept = UINT64_MAX};
    aoticache_digest digest;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_digest_of_fd_copying(fd, &copy, &digest, NULL, &error), AOTICACHE_IO);
    cr_assert_not_null(strstr(error.message, "cannot read at byte 0: Bad file descriptor"), "%s", error.message);
    close(copy.file);
    close(fd);
    free(bytes);
}

Test(loader_copy, sealed_file_in_memory_is_changed_by_nobody)
{
    int file = aoticache_memory_file_create();
    cr_assert(aoticache_memory_file_write(file, "0123456789", 10, 0));
    cr_assert(aoticache_memory_file_seal(file));
    cr_assert(!aoticache_memory_file_write(file, "x", 1, 0));
    cr_assert_eq(errno, EPERM);
    cr_assert_eq(ftruncate(file, 5), -1);
    cr_assert_eq(ftruncate(file, 50), -1);
    cr_assert_eq(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
    cr_assert_eq(mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), MAP_FAILED);
    char *private = mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0), now[10];
    cr_assert_neq(private, MAP_FAILED);
    private[0] = 'x';
    cr_assert_eq(pread(file, now, 10, 0), 10);
    cr_assert_eq(memcmp(now, "0123456789", 10), 0);
    cr_assert_eq(fcntl(file, F_ADD_SEALS, F_SEAL_WRITE), -1, "seals cannot be added");
    munmap(private, 10);
    close(file);
}

/* The loader takes the copy over even if it refuses. */
Test(loader_copy, copy_is_closed_by_every_load)
{
    aoticache_load_options options = AOTICACHE_LOAD_OPTIONS_INIT;
    aoticache_library *library = NULL;
    aoticache_digest digest = {{0}};
    options.digest = &digest;
    options.copy = aoticache_memory_file_create();
    cr_assert_eq(aoticache_library_load_fd(0, "empty", &options, &library, NULL), AOTICACHE_INVALID);
    cr_assert_eq(fcntl(options.copy, F_GETFD), -1);
    options.copy = aoticache_memory_file_create();
    cr_assert_eq(aoticache_library_load_fd(-1, "empty", &options, &library, NULL), AOTICACHE_INVALID);
    cr_assert_eq(fcntl(options.copy, F_GETFD), -1);
}

/* Counts mapped copies. The file itself is loaded only if nobody else can write to it: see loader.h. */
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
    cr_assert_eq(aoticache_library_load_fd(fd, "own", &options, &library, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(fixture_first_result(library), 2.0f);
    int count = mappings_named("aoticache-kernel");
    aoticache_library_unref(library);
    close(fd);
    return count;
}

Test(loader_copy, file_that_others_may_write_is_copied_next_to_libtorch_too)
{
    fixture_import_torch("libtorch_cpu.so");
    cr_assert_eq(copies_mapped(0444, true), 0);
    cr_assert_eq(copies_mapped(0644, true), 0);
    cr_assert_gt(copies_mapped(0664, true), 0);
    cr_assert_gt(copies_mapped(0646, true), 0);
    cr_assert_eq(copies_mapped(0664, false), 0);
}
