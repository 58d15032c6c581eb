/*
 * loader/runner/backend: kinds of devices for which runners can be created.
 *
 * Users include <aoticache/runner.h>.
 */
#ifndef AOTICACHE_LOADER_RUNNER_BACKEND_H
#define AOTICACHE_LOADER_RUNNER_BACKEND_H

#include "loader/runner/runner.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * A kind of device. "cpu" and "cuda" are registered from the beginning. This is the counterpart of PyTorch's registry
 * of runners (getAOTIModelRunnerRegistry). Functions may be NULL; they are called from any thread.
 */
typedef struct aoticache_device_backend {
    size_t size;
    const char *name;    /* the part before the ':' of device strings; letters, digits, '_' */
    int32_t device_type; /* aoticache_device_type of its tensors */
    void *user;
    /*
     * Called before a container is created. Returns OK, or UNSUPPORTED with the reason. index: -1: the string has none.
     */
    aoticache_status (*check)(void *user, const aoticache_library *library, int32_t index, const char *directory,
                              aoticache_error *ret_error);
    /* Called instead of AOTInductorModelContainerCreateWithDevice. Returns OK with a container, or the reason. */
    aoticache_status (*create)(void *user, const aoticache_library *library, const char *device, size_t num_models,
                               const char *directory, AOTInductorModelContainerHandle *ret_container,
                               aoticache_error *ret_error);
    /* Returns the stream for runs that name none. Without this function it is NULL. */
    AOTInductorStreamHandle (*current_stream)(void *user, int32_t index);
} aoticache_device_backend;

#define AOTICACHE_DEVICE_BACKEND_INIT AOTICACHE_SIZED_INIT(aoticache_device_backend)

/*
 * Registers a copy of the backend, which stays until the process ends. If the name is registered already, the new
 * backend replaces the older one for runners that are created from then on. Returns: OK, INVALID, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_device_backend_register(const aoticache_device_backend *backend,
                                                                 aoticache_error *ret_error);
/*
 * Removes the newest registration of a name; the one before it takes effect again. Runners that use the backend keep
 * using it, so what it points to must outlive them. Returns: OK, INVALID, NOT_FOUND.
 */
AOTICACHE_API aoticache_status aoticache_device_backend_unregister(const char *name, aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif

#endif
