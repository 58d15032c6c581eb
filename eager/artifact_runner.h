/*
 * eager/artifact_runner: from a verified artifact to a runner that keeps it.
 *
 * Private.
 */
#ifndef AOTICACHE_EAGER_ARTIFACT_RUNNER_H
#define AOTICACHE_EAGER_ARTIFACT_RUNNER_H

#include "cache/cache.h"
#include "loader/runner/runner.h"

/*
 * Loads the artifact's library and creates a runner, which holds a reference to the artifact; closes its descriptors,
 * which nothing needs once the container exists. private_copy: as aoticache_load_options has it.
 * Returns: OK, and what loading returns.
 */
aoticache_status aoticache_artifact_load_runner(aoticache_artifact *artifact, aoticache_device device,
                                                bool private_copy, aoticache_runner **ret_runner,
                                                aoticache_error *ret_error);

/*
 * Loads the artifact's library from the bytes that were hashed when it was looked up, or hashes those that it loads.
 * name: for messages. Returns: as aoticache_library_load_fd_with().
 */
aoticache_status aoticache_artifact_load_library(aoticache_artifact *artifact, const char *name, bool private_copy,
                                                 aoticache_library **ret_library, aoticache_error *ret_error);

/*
 * Before lookups whose libraries are loaded: copies are made where they are loaded, and not beside PyTorch, where files
 * themselves are. private_copy: as above.
 */
void aoticache_artifact_choose_copies(aoticache_cache *cache, bool private_copy);

#endif
