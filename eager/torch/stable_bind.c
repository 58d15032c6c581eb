/*
 * eager/torch/stable_bind: the functions of the stable C ABI, out of the libtorch that is in this process.
 */
#include "base/cleanup.h"
#include "base/load_gate.h"
#include "eager/torch/stable.h"
#include "loader/torch.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>

/* A library that is loaded already: this counts one more user of it, and changes nothing for the others. */
static void *open_loaded(const char *path, aoticache_error *ret_error)
{
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL)
        aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%.400s is not in this process", path);
    return handle;
}

static bool bind_one(void *handle, const char *name, void *place)
{
    void *address = dlsym(handle, name);
    memcpy(place, &address, sizeof address);
    return address != NULL;
}

/*
 * handle: never closed. Before 2.13 the boxes of optional values are freed as PyTorch's own extensions do it, by the
 * delete of the C++ runtime that libtorch uses.
 */
static aoticache_status bind_functions(void *handle, const char *path, aoticache_stable *stable,
                                       aoticache_error *ret_error)
{
    const char *missing = NULL;
#define BIND(result, name, parameters)                              \
    if (!bind_one(handle, #name, &stable->name) && missing == NULL) \
        missing = #name;
    AOTICACHE_STABLE_LIST(BIND)
#undef BIND
    bind_one(handle, "torch_exception_get_what_without_backtrace", &stable->torch_exception_get_what);
    if (!bind_one(handle, "torch_delete_stable_ivalue", &stable->torch_delete_stable_ivalue) &&
        !bind_one(handle, "_ZdlPv", &stable->operator_delete) && missing == NULL)
        missing = "torch_delete_stable_ivalue";
    if (missing == NULL)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "%.400s has no %s: operators are served in PyTorch 2.10 and later", path, missing);
}

aoticache_status aoticache_stable_bind(const char *path, const aoticache_torch *torch, aoticache_stable *ret_stable,
                                       aoticache_error *ret_error)
{
    aoticache_stable stable = {.torch = torch};
    if (path == NULL && torch->kind != AOTICACHE_TORCH_LIBTORCH)
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND,
                                   "no PyTorch is in this process (libtorch_cpu.so is not loaded): import torch first");
    if (path == NULL)
        path = torch->path;
    aoticache_load_gate_enter();
    void *handle = open_loaded(path, ret_error);
    aoticache_status status = handle != NULL ? bind_functions(handle, path, &stable, ret_error) : AOTICACHE_NOT_FOUND;
    if (status == AOTICACHE_OK)
        *ret_stable = stable;
    else if (handle != NULL)
        dlclose(handle);
    aoticache_load_gate_leave();
    return status;
}
