/*
 * eager/package/weights: the weights of a package that have a file of their own, as the constants of a runner.
 *
 * Private.
 */
#ifndef AOTICACHE_EAGER_PACKAGE_WEIGHTS_H
#define AOTICACHE_EAGER_PACKAGE_WEIGHTS_H

#include "cache/cache.h"
#include "loader/runner/runner.h"

typedef struct aoticache_package_weights {
    void *bytes; /* the file as it is mapped; NULL where there is none */
    size_t size;
    AtenTensorHandle *tensors; /* over the mapping: the constants of the runner */
    size_t tensor_count;
} aoticache_package_weights;

/* Maps what lies beside the library. Returns: OK (also where there is nothing), UNSUPPORTED (two files), IO, DENIED. */
aoticache_status aoticache_package_weights_map(const aoticache_artifact *artifact,
                                               aoticache_package_weights *ret_weights, aoticache_error *ret_error);
/*
 * Gives them to the runner, which uses them until it is gone; before its first run.
 * Returns: as aoticache_runner_update_constants_from_blob().
 */
aoticache_status aoticache_package_weights_give(aoticache_package_weights *weights, aoticache_runner *runner,
                                                aoticache_error *ret_error);
/* When the runner is gone. */
void aoticache_package_weights_unmap(aoticache_package_weights *weights);

#endif
