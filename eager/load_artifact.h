/*
 * eager/load_artifact: from a verified artifact of the cache to a loaded library and its runner. Knows nothing of hooks.
 *
 * Private to eager/.
 */
#ifndef AOTICACHE_EAGER_LOAD_ARTIFACT_H
#define AOTICACHE_EAGER_LOAD_ARTIFACT_H

#include "cache/cache.h"
#include "loader/loader.h"
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

#endif
