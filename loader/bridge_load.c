/*
 * loader/bridge_load: see bridge_load.h. As with the shim, whoever comes first publishes it without a lock, and a
 * failure is not kept.
 */
#include "loader/bridge_load.h"

#include "base/cleanup.h"
#include "base/home.h"
#include "base/load_gate.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>

#define BRIDGE_FILE "lib/libaoticache_cxxbridge.so"

static _Atomic(aoticache_bridge *) loaded;

static aoticache_status bind(void *handle, const char *path, aoticache_bridge *ret_bridge, aoticache_error *ret_error)
{
    const struct {
        const char *name;
        void *place;
    } functions[] = {
        {"aoticache_bridge_map_new", &ret_bridge->map_new},
        {"aoticache_bridge_map_free", &ret_bridge->map_free},
        {"aoticache_bridge_map_list", &ret_bridge->map_list},
    };
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *address = dlsym(handle, functions[i].name);
        if (address == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "%.200s lacks %s", path, functions[i].name);
        memcpy(functions[i].place, &address, sizeof address);
    }
    return AOTICACHE_OK;
}

static aoticache_status load(aoticache_bridge *ret_bridge, aoticache_error *ret_error)
{
    char path[PATH_MAX];
    aoticache_error detail;
    if (aoticache_home_find(BRIDGE_FILE, path, &detail) != AOTICACHE_OK)
        return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED,
                                   "this library takes its constants as a C++ map alone, which needs a file: %s",
                                   detail.message);
    /* Maps that it made may be alive when the last library goes: it stays. */
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle == NULL) {
        const char *message = dlerror();
        return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "the dynamic linker refuses the bridge: %s",
                                   message != NULL ? message : path);
    }
    aoticache_status status = bind(handle, path, ret_bridge, ret_error);
    if (status != AOTICACHE_OK)
        dlclose(handle);
    return status;
}

aoticache_status aoticache_bridge_get(const aoticache_bridge **ret_bridge, aoticache_error *ret_error)
{
    aoticache_bridge *bridge = atomic_load_explicit(&loaded, memory_order_acquire);
    if (bridge == NULL) {
        cleanup_free aoticache_bridge *mine = calloc(1, sizeof *mine);
        if (mine == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "no memory for the bridge");
        aoticache_load_gate_enter();
        aoticache_status status = load(mine, ret_error);
        aoticache_load_gate_leave();
        if (status != AOTICACHE_OK)
            return status;
        if (atomic_compare_exchange_strong(&loaded, &bridge, mine))
            bridge = steal_ptr(&mine);
    }
    *ret_bridge = bridge;
    return AOTICACHE_OK;
}
