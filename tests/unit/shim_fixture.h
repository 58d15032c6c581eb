/*
 * What the unit tests of the shim share: the built libaoticache_torchshim.so, opened once, and its functions by name.
 */
#ifndef AOTICACHE_TESTS_SHIM_FIXTURE_H
#define AOTICACHE_TESTS_SHIM_FIXTURE_H

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/process/home.h"
#include "runtime/shim/torch_abi.h"

static inline void *shim_library(void)
{
    static void *library;
    char path[PATH_MAX];
    if (library != NULL)
        return library;
    aoticache_error error;
    if (aoticache_home_find("lib/libaoticache_torchshim.so", path, &error) != AOTICACHE_OK) {
        cr_assert_eq(access("build/lib/libaoticache_torchshim.so", R_OK), 0, "%s", error.message);
        strcpy(path, "build/lib/libaoticache_torchshim.so");
    }
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(library, "%s", dlerror());
    return library;
}

static inline void (*shim_find(const char *name))(void)
{
    void *symbol = dlsym(shim_library(), name);
    cr_assert_not_null(symbol, "the shim does not export %s", name);
    void (*function)(void);
    memcpy(&function, &symbol, sizeof function);
    return function;
}

/* SHIM(aoti_torch_clone)(tensor, &clone) */
#define SHIM(name) ((__typeof__(&name))shim_find(#name))

static inline const char *shim_message(void)
{
    return SHIM(torch_exception_get_what_without_backtrace)();
}

/* Makes a tensor, contiguous or with `strides`, over memory of the test. */
static inline AtenTensorHandle shim_wrap(void *data, int32_t dtype, int64_t ndim, const int64_t *sizes,
                                         const int64_t *strides)
{
    int64_t contiguous[64], stride = 1;
    for (int64_t d = ndim - 1; d >= 0; d--) {
        contiguous[d] = stride;
        stride *= sizes[d];
    }
    AtenTensorHandle tensor = NULL;
    cr_assert_eq(SHIM(aoti_torch_create_tensor_from_blob)(data, ndim, sizes, strides != NULL ? strides : contiguous, 0,
                                                          dtype, 0, -1, &tensor),
                 0, "%s", shim_message());
    return tensor;
}

static inline AtenTensorHandle shim_empty(int32_t dtype, int64_t ndim, const int64_t *sizes, const int64_t *strides)
{
    AtenTensorHandle tensor = NULL;
    cr_assert_eq(SHIM(aoti_torch_empty_strided)(ndim, sizes, strides, dtype, 0, 0, &tensor), 0, "%s", shim_message());
    return tensor;
}

static inline void *shim_data(AtenTensorHandle tensor)
{
    void *data = NULL;
    cr_assert_eq(SHIM(aoti_torch_get_data_ptr)(tensor, &data), 0, "%s", shim_message());
    return data;
}

static inline void shim_delete(AtenTensorHandle tensor)
{
    cr_assert_eq(SHIM(aoti_torch_delete_tensor_object)(tensor), 0, "%s", shim_message());
}

/* A macro so that a failure names the test's line. */
#define SHIM_FAILS(call, text)                                                                  \
    do {                                                                                        \
        cr_assert_neq((call), 0, "%s succeeded", #call);                                        \
        cr_assert_not_null(strstr(shim_message(), text), "the message is: %s", shim_message()); \
    } while (0)

#endif
