/*
 * eager/torch/binding_bridge: the bridge as the core sees it: opened, and answered. What they have between them is in
 * bridge.h.
 */
#include "base/cleanup.h"
#include "base/load_gate.h"
#include "eager/torch/binding_hot.h"
#include "loader/dlopen_fd.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>

static aoticache_bridge_result answer(void *op, uint64_t key_set, uint64_t wrapped, aoticache_stack *stack,
                                      aoticache_error *error)
{
    aoticache_binding_call call;
    if (__builtin_expect(aoticache_binding_begin(op, &call) != AOTICACHE_BINDING_ENTERED, 0))
        return AOTICACHE_BRIDGE_FALLBACK;
    call.stack = *stack;
    aoticache_bridge_result result = aoticache_binding_answer(&call, key_set, wrapped, false, error);
    stack->count = call.stack.count;
    aoticache_binding_end(&call);
    return result;
}

static void refuse(void *op)
{
    aoticache_binding_call call;
    if (aoticache_binding_begin(op, &call) != AOTICACHE_BINDING_ENTERED)
        return;
    aoticache_binding_count_refused(call.op);
    aoticache_binding_end(&call);
}

static const aoticache_bridge_host host = {
    .size = sizeof host,
    .abi = AOTICACHE_BRIDGE_ABI,
    .call = answer,
    .refuse = refuse,
};

/* It is never unloaded: PyTorch may be inside it as long as the process lives. */
static aoticache_status open_library(const char *path, aoticache_bridge_open_fn *ret_open, aoticache_error *ret_error)
{
    void *handle = NULL;
    cleanup_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "bridge %.400s cannot be read: %s", path,
                                   strerror(errno));
    aoticache_status status = aoticache_dlopen_fd(fd, &handle, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    void *address = dlsym(handle, AOTICACHE_BRIDGE_OPEN);
    if (address == NULL) {
        dlclose(handle);
        return aoticache_error_set(ret_error, AOTICACHE_LOAD_FAILED, "%.400s is no bridge: it has no %s", path,
                                   AOTICACHE_BRIDGE_OPEN);
    }
    memcpy(ret_open, &address, sizeof address);
    return AOTICACHE_OK;
}

aoticache_status aoticache_binding_open_bridge(const char *path, aoticache_bridge *ret_bridge,
                                               aoticache_error *ret_error)
{
    aoticache_bridge_open_fn open_bridge = NULL;
    aoticache_bridge bridge = {.size = sizeof bridge};
    char message[sizeof ret_error->message] = "";
    aoticache_load_gate_enter();
    aoticache_status status = open_library(path, &open_bridge, ret_error);
    aoticache_load_gate_leave();
    if (status != AOTICACHE_OK)
        return status;
    status = open_bridge(&host, &bridge, message, sizeof message);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "bridge %.200s: %.600s", path, message);
    if (bridge.abi != AOTICACHE_BRIDGE_ABI || bridge.enable == NULL || bridge.disable == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "bridge %.200s has interface %u, this library %u",
                                   path, bridge.abi, AOTICACHE_BRIDGE_ABI);
    *ret_bridge = bridge;
    return AOTICACHE_OK;
}
