/*
 * What the unit tests of kernel libraries written in C share: a library of tests/unit/kernels/, compiled with the
 * installed headers and libaoticache_runtime.a, loaded together with the shim, and its functions by name.
 */
#ifndef AOTICACHE_TESTS_KERNEL_FIXTURE_H
#define AOTICACHE_TESTS_KERNEL_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/fixtures/own_directory.h"
#include "tests/unit/fixtures/shim_fixture.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZE "-fsanitize=address,undefined"
#elif defined(__SANITIZE_THREAD__)
#define SANITIZE "-fsanitize=thread"
#else
#define SANITIZE ""
#endif

static void *library;
static char kernel_directory[128]; /* the library's directory, until kernel_remove() */

static inline void run_command(const char *command)
{
    cr_assert_eq(system(command), 0, "%s", command);
}

static inline void kernel_remove(void)
{
    own_directory_remove(kernel_directory);
}

/* Compiles a file to kernel_directory/kernel.so. */
static inline void kernel_compile_path(const char *source, const char *flags)
{
    char archive[PATH_MAX], header[PATH_MAX], command[5 * PATH_MAX];
    aoticache_error error;
    cr_assert_eq(aoticache_home_find("lib/libaoticache_runtime.a", archive, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_home_find("include/aoticache/runtime/kernel.h", header, &error), AOTICACHE_OK, "%s",
                 error.message);
    *strstr(header, "/runtime/kernel.h") = '\0';
    if (system("cc --version >/dev/null 2>&1") != 0)
        cr_skip_test("there is no C compiler");
    own_directory_make(kernel_directory, sizeof kernel_directory);
    snprintf(command, sizeof command,
             "cc -std=gnu11 -O1 -Wall -Wextra -Wpedantic -Werror -shared -fPIC -fvisibility=hidden " SANITIZE
             " %s -I%s %s %s -o %s/kernel.so",
             flags, header, source, archive, kernel_directory);
    run_command(command);
}

/* Does the same for a file in tests/unit/kernels/. */
static inline void kernel_compile(const char *source, const char *flags)
{
    char path[256];
    snprintf(path, sizeof path, "tests/unit/kernels/%s", source);
    kernel_compile_path(path, flags);
}

static inline void kernel_load(void)
{
    /* The shim defines what the library leaves undefined; it is found through the global scope. */
    void *shim = shim_library();
    char path[PATH_MAX];
    aoticache_error error;
    cr_assert_eq(aoticache_home_find("lib/libaoticache_torchshim.so", path, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(dlopen(path, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL), shim);
    snprintf(path, sizeof path, "%s/kernel.so", kernel_directory);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(library, "%s", dlerror());
}

static inline void (*kernel_find(const char *name))(void)
{
    void *symbol = dlsym(library, name);
    cr_assert_not_null(symbol, "the library does not export %s", name);
    void (*function)(void);
    memcpy(&function, &symbol, sizeof function);
    return function;
}

#define KERNEL(name) ((__typeof__(&name))kernel_find(#name))

static inline const char *last_error(void)
{
    const char *message = NULL;
    cr_assert_eq(KERNEL(AOTInductorGetLastError)(&message), 0);
    return message;
}

#define KERNEL_FAILS(call, text)                                                            \
    do {                                                                                    \
        cr_assert_neq((call), 0, "%s succeeded", #call);                                    \
        cr_assert_not_null(strstr(last_error(), text), "the message is: %s", last_error()); \
    } while (0)
#define KERNEL_WORKS(call) cr_assert_eq((call), 0, "%s: %s", #call, last_error())

static inline AOTInductorModelContainerHandle kernel_create(size_t num_models)
{
    AOTInductorModelContainerHandle container = NULL;
    KERNEL_WORKS(KERNEL(AOTInductorModelContainerCreateWithDevice)(&container, num_models, "cpu", NULL));
    return container;
}

#endif
