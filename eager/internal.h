/*
 * eager/internal: from a verified artifact to a runner that keeps it: what holder/ and package/ load with.
 *
 * Private to eager/. Everything here is in get_runner.c, but for what is of hooks.
 */
#ifndef AOTICACHE_EAGER_INTERNAL_H
#define AOTICACHE_EAGER_INTERNAL_H

#include "cache/cache.h"
#include "eager/eager.h"
#include "loader/runner/runner.h"

/*
 * Loads the artifact's library and creates a runner, which holds a reference to the artifact; closes its descriptors,
 * which nothing needs once the container exists. The load counts in the statistics of `cache`, where that is not NULL.
 *
 * private_copy: as aoticache_load_options has it. ret_load_ns: the time that the load took; may be NULL.
 * Returns: OK, and what loading returns.
 */
aoticache_status aoticache_artifact_load_runner(aoticache_cache *cache, aoticache_artifact *artifact,
                                                aoticache_device device, bool private_copy,
                                                aoticache_runner **ret_runner, uint64_t *ret_load_ns,
                                                aoticache_error *ret_error);

/*
 * Loads the artifact's library from the bytes that were hashed when it was looked up, or hashes those that it loads.
 * name: for messages. private_copy, proxy_executor: as aoticache_load_options has them.
 * Returns: as aoticache_library_load_fd().
 */
aoticache_status aoticache_artifact_load_library(aoticache_artifact *artifact, const char *name, bool private_copy,
                                                 AOTIProxyExecutorHandle proxy_executor,
                                                 aoticache_library **ret_library, aoticache_error *ret_error);

/*
 * Tells the cache, before it looks up libraries that are to be loaded, whether to copy them while it verifies them: not in
 * a process with PyTorch, which loads the files themselves. private_copy: as above.
 */
void aoticache_artifact_choose_copies(aoticache_cache *cache, bool private_copy);

/*
 * Machine code for a GPU is for its architecture: without it machines with different GPUs would share keys. Sets "gpu_arch"
 * of a request for a CUDA device to its device's, unless it is set: by who asks for a GPU that is elsewhere.
 * Part of aoticache_hook_set_environment(); for requests that no hook completes. In hook/hook.c.
 * Returns: OK, UNSUPPORTED (no such device here), NO_MEMORY.
 */
aoticache_status aoticache_hook_set_gpu_arch(aoticache_request *request, aoticache_error *ret_error);

/* Raised whenever the worker makes other code of the same request; the pair "worker" of its requests (hook/worker.c says what). */
#define AOTICACHE_WORKER_REVISION "3"

/* Whether it compiles dynamic libraries (docs/hooks.md): the worker does, and callbacks that say so. */
bool aoticache_hook_is_dynamic(const aoticache_hook *hook);

/* Whether it compiles libraries that take numbers when they run ("numbers", docs/hooks.md): likewise. */
bool aoticache_hook_takes_numbers(const aoticache_hook *hook);

#endif
