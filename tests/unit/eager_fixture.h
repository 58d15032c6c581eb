/*
 * What the tests of eager/ share: a directory per test, requests, scripts, and a deliver function that examines what a
 * hook made.
 */
#ifndef TESTS_UNIT_EAGER_FIXTURE_H
#define TESTS_UNIT_EAGER_FIXTURE_H

#include "cache/request/cpu_detect.h"
#include "eager/compile/compile.h"
#include "loader/runner/create.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "own_directory.h"

static char test_directory[256];

/* Returns the build directory of this test, which is laid out like an installation. */
static inline const char *fixture_build(void)
{
    static char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    cr_assert_gt(length, 0);
    path[length] = '\0';
    for (int level = 0; level < 3; level++)
        *strrchr(path, '/') = '\0';
    return path;
}

static inline void fixture_set_home(void)
{
    setenv("AOTICACHE_HOME", fixture_build(), 0);
}

/* Returns a kernel library, aten::abs of float32, for hooks that only pretend to compile one. */
static inline const char *fixture_library(void)
{
    static char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/tests/hosts/pointwise.so", fixture_build());
    return path;
}

static inline void fixture_begin(void)
{
    own_directory_make(test_directory, sizeof test_directory);
    fixture_set_home();
    char path[sizeof test_directory + 16];
    snprintf(path, sizeof path, "%s/library.so", test_directory);
    cr_assert_eq(symlink(fixture_library(), path), 0);
}

/* Creates the library, in a script whose $directory is a directory of the test. */
#define FIXTURE_MAKE_KERNEL "cp \"$directory/../library.so\" \"$directory/kernel.so\"\n"

static inline void fixture_end(void)
{
    own_directory_remove(test_directory);
}

/* Returns a path below the test's directory; static storage for eight paths, then reused. */
static inline const char *in_directory(const char *name)
{
    static char paths[8][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, PATH_MAX, "%s/%s", test_directory, name);
    return path;
}

static inline const char *make_directory(const char *name)
{
    const char *path = in_directory(name);
    cr_assert_eq(mkdir(path, 0700), 0, "%s: %s", path, strerror(errno));
    return path;
}

static inline const char *write_file(const char *name, const char *text, mode_t mode)
{
    const char *path = in_directory(name);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    fputs(text, file);
    fclose(file);
    cr_assert_eq(chmod(path, mode), 0);
    return path;
}

static inline const char *write_script(const char *name, const char *text)
{
    return write_file(name, text, 0700);
}

static inline char *read_text(const char *path)
{
    static char text[65536];
    FILE *file = fopen(path, "r");
    size_t size = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    text[size] = '\0';
    if (file != NULL)
        fclose(file);
    return text;
}

static inline aoticache_request *make_request(const char *op)
{
    aoticache_request *request;
    aoticache_error error = {.message = ""};
    aoticache_device cpu = AOTICACHE_DEVICE_CPU;
    cr_assert_eq(aoticache_request_create(op, cpu, &request, &error), AOTICACHE_OK, "%s", error.message);
    return request;
}

static inline void add_tensor(aoticache_request *request, int32_t dtype, uint32_t ndim, const int64_t *sizes,
                              const int64_t *strides)
{
    aoticache_error error = {.message = ""};
    aoticache_tensor_metadata metadata = {
        .dtype = dtype, .device = AOTICACHE_DEVICE_CPU, .ndim = ndim, .sizes = sizes, .strides = strides};
    cr_assert_eq(aoticache_request_add_tensor(request, NULL, &metadata, &error), AOTICACHE_OK, "%s", error.message);
}

/* Makes a request: aten::abs of one float32 tensor of 2 by 3. */
static inline aoticache_request *make_abs_request(void)
{
    aoticache_request *request = make_request("aten::abs");
    add_tensor(request, AOTICACHE_DTYPE_FLOAT32, 2, (const int64_t[]){2, 3}, NULL);
    return request;
}

/* A copy of what a hook delivered. */
struct delivery {
    int calls;
    size_t file_count;
    char name[64], path[PATH_MAX], producer[256], requirements[1024];
    aoticache_cpu_features features;
    uint64_t compile_ns;
};

static inline aoticache_status deliver(void *user, const aoticache_product *product)
{
    struct delivery *delivery = user;
    delivery->calls++;
    delivery->file_count = product->file_count;
    delivery->compile_ns = product->compile_ns;
    delivery->features = product->requirements;
    snprintf(delivery->name, sizeof delivery->name, "%s", product->files[0].name);
    snprintf(delivery->path, sizeof delivery->path, "%s", product->files[0].path);
    snprintf(delivery->producer, sizeof delivery->producer, "%s", product->producer);
    aoticache_cpu_features_format(&product->requirements, delivery->requirements, sizeof delivery->requirements);
    return AOTICACHE_OK;
}

static inline void sleep_ms(long milliseconds)
{
    struct timespec pause = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* Returns whether a process is running; a zombie does not count. */
static inline bool is_running(pid_t pid)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    const char *read = fgets(line, sizeof line, file);
    fclose(file);
    const char *state = read != NULL ? strrchr(line, ')') : NULL;
    return state != NULL && strlen(state) > 2 && state[2] != 'Z' && state[2] != 'X';
}

/* Returns whether it ends by itself. That takes moments, but machines stall at times. */
static inline bool is_gone_soon(pid_t pid)
{
    for (int i = 0; i < 1500 && is_running(pid); i++)
        sleep_ms(20);
    return !is_running(pid);
}

/* Makes a runner for the library in a file. */
static inline aoticache_runner *fixture_load_runner(const char *path)
{
    aoticache_library *library;
    aoticache_runner *runner;
    aoticache_error error = {.message = ""};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    cr_assert_eq(aoticache_library_load_fd(fd, path, NULL, &library, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_runner_create(library, NULL, &runner, &error), AOTICACHE_OK, "%s", error.message);
    close(fd);
    aoticache_library_unref(library);
    return runner;
}

#endif
