/*
 * loader/cxx_map/load: finds and loads libaoticache_cxxbridge.so. As with the shim, the first thread publishes its
 * functions without a lock, and a failure is not remembered: the file may be installed later.
 */
#include "loader/cxx_map/cxx_map_internal.h"

#include "base/cleanup.h"
#include "base/process/home.h"
#include "base/process/fork_guard.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>

#define LIBRARY_FILE "lib/libaoticache_cxxbridge.so"

static _Atomic(aoticache_cxx_map_functions *) loaded;

static aoticache_status bind_functions(void *handle, const char *path, aoticache_cxx_map_functions *ret_functions,
                                       aoticache_error *ret_error)
{
    const struct {
        const char *name;
        void *place;
    } symbols[] = {
        {"aoticache_cxx_map_new", &ret_functions->new_map},
        {"aoticache_cxx_map_free", &ret_functions->free_map},
        {"aoticache_cxx_map_list", &ret_functions->list_map},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *address = dlsym(handle, symbols[i].name);
        if (address == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "%.200s lacks %s", path, symbols[i].name);
        memcpy(symbols[i].place, &address, sizeof address);
    }
    return AOTICACHE_OK;
}

static aoticache_status load_library(aoticache_cxx_map_functions *ret_functions, aoticache_error *ret_error)
{
    char path[PATH_MAX];
    aoticache_error detail;
    if (aoticache_home_find(LIBRARY_FILE, path, &detail) != AOTICACHE_OK)
        return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED,
                                   "this library only accepts its constants as a C++ map, and a file for that is "
                                   "missing: %s",
                                   detail.message);
    /* Maps that it made may be alive when the last kernel library is unloaded, so it is never unloaded. */
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        const char *message = dlerror();
        return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED,
                                   "the dynamic linker cannot load the library of C++ maps: %s",
                                   message != NULL ? message : path);
    }
    aoticache_status status = bind_functions(handle, path, ret_functions, ret_error);
    if (status != AOTICACHE_OK)
        dlclose(handle);
    return status;
}

aoticache_status aoticache_cxx_map_functions_get(const aoticache_cxx_map_functions **ret_functions,
                                                 aoticache_error *ret_error)
{
    aoticache_cxx_map_functions *functions = atomic_load_explicit(&loaded, memory_order_acquire);
    if (functions == NULL) {
        cleanup_free aoticache_cxx_map_functions *mine = calloc(1, sizeof *mine);
        if (mine == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the functions of C++ maps");
        aoticache_fork_guard_enter();
        aoticache_status status = load_library(mine, ret_error);
        aoticache_fork_guard_leave();
        if (status != AOTICACHE_OK)
            return status;
        if (atomic_compare_exchange_strong(&loaded, &functions, mine))
            functions = steal_ptr(&mine);
    }
    *ret_functions = functions;
    return AOTICACHE_OK;
}
