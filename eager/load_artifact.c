/*
 * eager/load_artifact: loads the libraries of artifacts. Only this file loads the result of a lookup: holders, packages and
 * get_runner.c of compile/ use the functions here.
 */
#include "base/clock.h"
#include "base/names.h"
#include "cache/eager_face.h"
#include "cache/entries.h"
#include "cache/stats/statistics.h"
#include "eager/load_artifact.h"
#include "loader/eager_face.h"
#include "loader/runner/create.h"
#include "loader/torch.h"

static void artifact_release(void *artifact)
{
    aoticache_artifact_unref(artifact);
}

void aoticache_artifact_choose_copies(aoticache_cache *cache, bool private_copy)
{
    aoticache_cache_copy_libraries(cache, private_copy || !aoticache_torch_is_libtorch());
}

aoticache_status aoticache_artifact_load_library(aoticache_artifact *artifact, const char *name, bool private_copy,
                                                 AOTIProxyExecutorHandle proxy_executor,
                                                 aoticache_library **ret_library, aoticache_error *ret_error)
{
    aoticache_load_options load = AOTICACHE_LOAD_OPTIONS_INIT;
    load.private_copy = private_copy;
    load.proxy_executor = proxy_executor;
    load.digest = &aoticache_artifact_get_info(artifact)->library;
    load.copy = aoticache_artifact_take_copy(artifact);
    return aoticache_library_load_fd(aoticache_artifact_library_fd(artifact), name, &load, ret_library, ret_error);
}

static aoticache_status create_runner(aoticache_artifact *artifact, aoticache_device device, bool private_copy,
                                      aoticache_runner **ret_runner, aoticache_error *ret_error)
{
    char name[AOTICACHE_DIGEST_HEX_BYTES];
    char device_text[AOTICACHE_DEVICE_TEXT_BYTES];
    aoticache_library *library;
    aoticache_digest_to_hex(&aoticache_artifact_get_info(artifact)->library, name);
    aoticache_status status = aoticache_artifact_load_library(artifact, name, private_copy, NULL, &library, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_device_format(device, device_text);
    aoticache_runner_options options = AOTICACHE_RUNNER_OPTIONS_INIT;
    options.device = device_text;
    options.directory = aoticache_artifact_get_info(artifact)->directory;
    status = aoticache_runner_create(library, &options, ret_runner, ret_error);
    aoticache_library_unref(library);
    return status;
}

/*
 * Makes the runner hold the artifact, so that no collector removes the files next to the library (cubins are read late), and
 * the entry counts as in use as long as the runner exists.
 */
static aoticache_status attach_artifact(aoticache_runner *runner, aoticache_artifact *artifact,
                                        aoticache_error *ret_error)
{
    aoticache_status status =
        aoticache_runner_attach(runner, aoticache_artifact_ref(artifact), artifact_release, ret_error);
    if (status != AOTICACHE_OK)
        aoticache_artifact_unref(artifact);
    return status;
}

aoticache_status aoticache_artifact_load_runner(aoticache_cache *cache, aoticache_artifact *artifact,
                                                aoticache_device device, bool private_copy,
                                                aoticache_runner **ret_runner, uint64_t *ret_load_ns,
                                                aoticache_error *ret_error)
{
    const uint64_t start_ns = aoticache_monotonic_ns();
    aoticache_runner *runner = NULL;
    aoticache_status status = create_runner(artifact, device, private_copy, &runner, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = attach_artifact(runner, artifact, ret_error);
    if (status != AOTICACHE_OK) {
        aoticache_runner_unref(runner);
        return status;
    }
    aoticache_artifact_close_files(artifact);
    const uint64_t load_ns = aoticache_monotonic_ns() - start_ns;
    aoticache_cache_note_load(cache, load_ns);
    if (ret_load_ns != NULL)
        *ret_load_ns = load_ns;
    *ret_runner = runner;
    return AOTICACHE_OK;
}
