/*
 * loader/runner/create: a runner for a library that the caller has loaded, and the names of its inputs and outputs.
 *
 * Users include <aoticache/runner.h>.
 */
#ifndef AOTICACHE_LOADER_RUNNER_CREATE_H
#define AOTICACHE_LOADER_RUNNER_CREATE_H

#include "loader/loader.h"
#include "loader/runner/runner.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aoticache_runner_options {
    size_t size;
    const char *device;    /* NULL: "cpu". "cuda", "cuda:1", or the device of a registered backend */
    size_t num_models;     /* number of threads that can run concurrently (others wait); 0: 1; 4096 at most */
    const char *directory; /* of side files (cubins); NULL: none */
    AOTIProxyExecutorHandle proxy_executor; /* for runs and folding that name none; borrowed as long as the runner */
    bool pool_only;                         /* never take the fast path */
} aoticache_runner_options;

#define AOTICACHE_RUNNER_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_runner_options)

/*
 * Creates a container on a device. Holds a reference to the library.
 *
 * Source: AOTInductorModelContainerCreateWithDevice (AOTInductorModelContainerCreate if a library has only that).
 * Returns: OK; LOAD_FAILED (with the library's own message); UNSUPPORTED (the device cannot run this library: there is
 * no such GPU, the kernels are for another architecture, or the driver is too old; the message names both sides);
 * INVALID (an unknown device, with a list of those that are known; too many models); NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_runner_create(aoticache_library *library,
                                                       const aoticache_runner_options *options,
                                                       aoticache_runner **ret_runner, aoticache_error *ret_error);

/*
 * Returns the name of an input or of an output, borrowed from the library; NULL past the end, or if the library has no
 * names.
 */
AOTICACHE_API const char *aoticache_runner_tensor_name(const aoticache_runner *runner, bool output, size_t position);

/*
 * Returns two JSON texts that describe how inputs and outputs make up the arguments and results of the Python function
 * (serialized TreeSpecs of torch.utils._pytree). They are borrowed from the library; "" if it has none.
 * Source: AOTInductorModelContainerGetCallSpec. Returns: OK, UNSUPPORTED (not exported), RUN_FAILED.
 */
AOTICACHE_API aoticache_status aoticache_runner_call_spec(const aoticache_runner *runner, const char **ret_in_spec,
                                                          const char **ret_out_spec, aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif

#endif
