/*
 * eager/package/runner: from an artifact that was a package's model to a runner: library, container, and the weights that
 * weights.c maps.
 */
#include <stdlib.h>

#include "eager/internal.h"
#include "base/options.h"
#include "eager/package/source.h"
#include "eager/package/weights.h"

/* What a runner holds: the artifact's files, and its weights as they are mapped. */
struct holding {
    aoticache_artifact *artifact;
    aoticache_package_weights weights;
};

static void holding_release(void *owner)
{
    struct holding *holding = owner;
    aoticache_package_weights_unmap(&holding->weights);
    aoticache_artifact_unref(holding->artifact);
    free(holding);
}

static aoticache_status create_runner(aoticache_artifact *artifact, const char *name, const char *device,
                                      const aoticache_package_options *options, aoticache_runner **ret_runner,
                                      aoticache_error *ret_error)
{
    aoticache_library *library;
    aoticache_runner_options runner_options = AOTICACHE_RUNNER_OPTIONS_INIT;
    aoticache_status status = aoticache_artifact_load_library(artifact, name, false, &library, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    runner_options.device = options->device != NULL ? options->device : device;
    runner_options.num_models = options->num_models;
    runner_options.directory = aoticache_artifact_directory(artifact);
    runner_options.proxy_executor = options->proxy_executor;
    status = aoticache_runner_create(library, &runner_options, ret_runner, ret_error);
    aoticache_library_unref(library);
    return status;
}

/* The runner refers to the artifact from then on; on failure it is the caller's alone again with the runner's end. */
static aoticache_status give_holding(aoticache_runner *runner, aoticache_artifact *artifact,
                                     aoticache_error *ret_error)
{
    struct holding *holding = calloc(1, sizeof *holding);
    if (holding == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a package's runner");
    holding->artifact = aoticache_artifact_ref(artifact);
    aoticache_status status = aoticache_package_weights_map(holding->artifact, &holding->weights, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_runner_attach(runner, holding, holding_release, ret_error);
    if (status != AOTICACHE_OK) {
        holding_release(holding);
        return status;
    }
    if (holding->weights.bytes != NULL)
        status = aoticache_package_weights_give(&holding->weights, runner, ret_error);
    return status;
}

aoticache_status aoticache_package_make_runner(aoticache_artifact *artifact, const char *name, const char *device,
                                               const aoticache_package_options *options,
                                               aoticache_runner **ret_runner, aoticache_error *ret_error)
{
    aoticache_runner *runner = NULL;
    aoticache_status status = create_runner(artifact, name, device, options, &runner, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = give_holding(runner, artifact, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_runner_unref(runner);
        return status;
    }
    aoticache_artifact_close_files(artifact);
    *ret_runner = runner;
    return AOTICACHE_OK;
}

/* ---- options ---- */

aoticache_status aoticache_package_read_options(const aoticache_package_options *options,
                                                aoticache_package_options *ret_options, aoticache_error *ret_error)
{
    return AOTICACHE_OPTIONS_READ(aoticache_package_options, AOTICACHE_PACKAGE_OPTIONS_INIT, options, ret_options,
                                  ret_error);
}
