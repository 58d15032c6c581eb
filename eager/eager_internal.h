/*
 * eager/eager_internal: creates a runner from a verified artifact. Used by holder/ and package/.
 *
 * Private to eager/. Everything here is in get_runner.c, except the functions of hooks.
 */
#ifndef AOTICACHE_EAGER_INTERNAL_H
#define AOTICACHE_EAGER_INTERNAL_H

#include "cache/cache.h"
#include "eager/eager.h"
#include "loader/runner/runner.h"

/*
 * Loads the artifact's library and creates a runner, which holds a reference to the artifact. Then closes the artifact's
 * descriptors, because nothing needs them once the container exists. The load counts in the statistics of `cache`, if that
 * is not NULL.
 *
 * private_copy: as in aoticache_load_options. ret_load_ns: the time that the load took; may be NULL.
 * Returns: OK; any error of loading a library.
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
 * Tells the cache, before it looks up libraries that are to be loaded, whether to copy them while it verifies them. It does
 * not copy them in a process with PyTorch, which loads the files themselves. private_copy: as above.
 */
void aoticache_artifact_choose_copies(aoticache_cache *cache, bool private_copy);

/*
 * Sets "gpu_arch" of a request for a CUDA device to the architecture of its device, unless it is set already (by a caller
 * that asks for a GPU of another machine). Machine code for a GPU depends on the architecture; without this pair, machines
 * with different GPUs would share keys. Part of aoticache_hook_set_environment(); call it for requests that no hook
 * completes. In hook/hook.c.
 * Returns: OK, UNSUPPORTED (no such device here), NO_MEMORY.
 */
aoticache_status aoticache_hook_set_gpu_arch(aoticache_request *request, aoticache_error *ret_error);

/* Increased whenever the worker generates different code for the same request; part of the pair "worker" (hook/worker.c). */
#define AOTICACHE_WORKER_REVISION "3"

/* Returns whether the hook compiles dynamic libraries (docs/hooks.md). The worker does, and callbacks with `dynamic`. */
bool aoticache_hook_is_dynamic(const aoticache_hook *hook);

/* Returns whether the hook compiles libraries that take numbers at run time ("numbers", docs/hooks.md). Likewise. */
bool aoticache_hook_takes_numbers(const aoticache_hook *hook);

#endif
