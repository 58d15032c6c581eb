/*
 * loader/runner_buffers: the two buffers of constants as wholes: a blob for all of them, folding, swapping, freeing,
 * listing; and how changes keep out of the way of runs.
 */
#include "loader/runner_state.h"

#include "loader/bridge_load.h"

#include <inttypes.h>

/* ---- changes and runs ---- */

/*
 * A change of the inactive buffer goes on beside runs in the pool, but for those that may still fold: folding and the
 * filling up of an inactive buffer look at the active one.
 */
aoticache_runner_change aoticache_runner_change_begin(aoticache_runner *runner, bool active)
{
    aoticache_run_gate *gate = &runner->gate;
    pthread_mutex_lock(&gate->changes);
    aoticache_run_gate_register(gate);
    aoticache_runner_change change = {runner, active || !aoticache_run_gate_is_settled(gate)};
    if (change.alone)
        aoticache_run_gate_enter_exclusive(gate);
    return change;
}

void aoticache_runner_change_end(aoticache_runner_change *change)
{
    aoticache_run_gate *gate = &change->runner->gate;
    if (change->alone)
        aoticache_run_gate_leave_exclusive(gate);
    aoticache_run_gate_unregister(gate);
    pthread_mutex_unlock(&gate->changes);
}

void aoticache_runner_active_changed(aoticache_runner *runner)
{
    aoticache_run_gate_set_settled(&runner->gate, false);
    aoticache_runner_find_missing(runner);
}

static aoticache_status no_runner(const char *what, aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s needs a runner", what);
}

/* ---- all constants from one blob ---- */

aoticache_status aoticache_runner_constants_blob_bytes(const aoticache_runner *runner, uint64_t *ret_bytes,
                                                       aoticache_error *ret_error)
{
    uint64_t bytes = 0;
    if (runner == NULL || ret_bytes == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the size of a blob needs a runner and a place");
    const aoticache_library_functions *functions = &runner->library->functions;
    if (functions->AOTInductorModelContainerGetConstantsBlobSize == NULL)
        return aoticache_runner_lacks(runner, "AOTInductorModelContainerGetConstantsBlobSize",
                                      "it takes its constants one by one", ret_error);
    AOTIRuntimeError code = functions->AOTInductorModelContainerGetConstantsBlobSize(runner->container, &bytes);
    if (code != 0)
        return aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED,
                                         "AOTInductorModelContainerGetConstantsBlobSize", code, ret_error);
    *ret_bytes = bytes;
    return AOTICACHE_OK;
}

aoticache_status aoticache_runner_update_constants_from_blob(aoticache_runner *runner, const void *blob, uint64_t bytes,
                                                             aoticache_error *ret_error)
{
    uint64_t wanted;
    if (runner == NULL || blob == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "constants from a blob need a runner and the blob");
    const aoticache_library_functions *functions = &runner->library->functions;
    if (functions->AOTInductorModelUpdateConstantsFromBlob == NULL)
        return aoticache_runner_lacks(runner, "AOTInductorModelUpdateConstantsFromBlob",
                                      "it takes its constants one by one", ret_error);
    aoticache_status status = aoticache_runner_constants_blob_bytes(runner, &wanted, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (bytes != wanted)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "a blob of %" PRIu64 " bytes; library %.200s wants %" PRIu64, bytes,
                                   runner->library->name, wanted);
    aoticache_runner_change change = aoticache_runner_change_begin(runner, true);
    AOTIRuntimeError code = functions->AOTInductorModelUpdateConstantsFromBlob(runner->container, blob);
    if (code != 0)
        status = aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED,
                                           "AOTInductorModelUpdateConstantsFromBlob", code, ret_error);
    else
        runner->active_is_freed = false;
    aoticache_runner_active_changed(runner);
    aoticache_runner_change_end(&change);
    return status;
}

/* ---- folding, swapping, freeing ---- */

/*
 * PyTorch's folding of the inactive buffer points a model at it for that time, and leaves it so where it fails: then
 * the model would run on the wrong constants. Swapping points all models at the active buffer; twice changes nothing
 * else.
 */
static void point_models_at_active(const aoticache_runner *runner)
{
    const aoticache_library_functions *functions = &runner->library->functions;
    if (functions->AOTInductorModelContainerSwapConstantBuffer == NULL)
        return;
    functions->AOTInductorModelContainerSwapConstantBuffer(runner->container);
    functions->AOTInductorModelContainerSwapConstantBuffer(runner->container);
}

static aoticache_status fold_buffer(aoticache_runner *runner, bool inactive, const aoticache_run_options *options,
                                    aoticache_error *ret_error)
{
    size_t missing = aoticache_runner_first_missing(runner, inactive);
    if (missing < runner->num_constants)
        return aoticache_runner_say_missing(runner, missing, ret_error);
    AOTIRuntimeError code = runner->library->functions.AOTInductorModelContainerRunConstantFolding(
        runner->container, inactive, options->stream, options->proxy_executor);
    return code == 0 ? AOTICACHE_OK
                     : aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED,
                                                 "AOTInductorModelContainerRunConstantFolding", code, ret_error);
}

/* Folding the inactive buffer takes a model as a run does. With one model nothing would be left for runs. */
static aoticache_status fold_beside_runs(aoticache_runner *runner, const aoticache_run_options *options,
                                         aoticache_error *ret_error)
{
    bool alone = runner->gate.limit == 1;
    aoticache_runner_change change = aoticache_runner_change_begin(runner, alone);
    bool takes_place = !change.alone;
    if (takes_place)
        aoticache_run_gate_enter_shared(&runner->gate);
    aoticache_status status = fold_buffer(runner, true, options, ret_error);
    if (takes_place)
        aoticache_run_gate_leave_shared(&runner->gate);
    if (status != AOTICACHE_OK && takes_place) {
        aoticache_run_gate_enter_exclusive(&runner->gate);
        change.alone = true;
    }
    if (status != AOTICACHE_OK)
        point_models_at_active(runner);
    aoticache_runner_change_end(&change);
    return status;
}

static aoticache_status fold_active(aoticache_runner *runner, const aoticache_run_options *options,
                                    aoticache_error *ret_error)
{
    aoticache_runner_change change = aoticache_runner_change_begin(runner, true);
    aoticache_status status = fold_buffer(runner, false, options, ret_error);
    if (status != AOTICACHE_OK)
        aoticache_run_gate_set_settled(&runner->gate, false);
    aoticache_runner_change_end(&change);
    return status;
}

aoticache_status aoticache_runner_fold_constants(aoticache_runner *runner, bool inactive,
                                                 const aoticache_run_options *options, aoticache_error *ret_error)
{
    aoticache_run_options chosen;
    if (runner == NULL)
        return no_runner("folding", ret_error);
    aoticache_status status = aoticache_run_options_read(options, &chosen, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (runner->library->functions.AOTInductorModelContainerRunConstantFolding == NULL)
        return aoticache_runner_lacks(runner, "AOTInductorModelContainerRunConstantFolding",
                                      "it has no folding of constants", ret_error);
    if (chosen.stream == NULL)
        chosen.stream = aoticache_runner_stream(runner);
    if (chosen.proxy_executor == NULL)
        chosen.proxy_executor = runner->proxy_executor;
    return inactive ? fold_beside_runs(runner, &chosen, ret_error) : fold_active(runner, &chosen, ret_error);
}

aoticache_status aoticache_runner_swap_constants(aoticache_runner *runner, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    if (runner == NULL)
        return no_runner("swapping", ret_error);
    const aoticache_library_functions *functions = &runner->library->functions;
    if (functions->AOTInductorModelContainerSwapConstantBuffer == NULL)
        return aoticache_runner_lacks(runner, "AOTInductorModelContainerSwapConstantBuffer", "it has one buffer alone",
                                      ret_error);
    aoticache_runner_change change = aoticache_runner_change_begin(runner, true);
    AOTIRuntimeError code = functions->AOTInductorModelContainerSwapConstantBuffer(runner->container);
    if (code != 0) {
        status = aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED,
                                           "AOTInductorModelContainerSwapConstantBuffer", code, ret_error);
    } else {
        bool freed = runner->inactive_is_freed;
        runner->inactive_is_freed = runner->active_is_freed;
        runner->active_is_freed = freed;
    }
    aoticache_runner_active_changed(runner);
    aoticache_runner_change_end(&change);
    return status;
}

aoticache_status aoticache_runner_free_inactive_constants(aoticache_runner *runner, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    if (runner == NULL)
        return no_runner("freeing", ret_error);
    const aoticache_library_functions *functions = &runner->library->functions;
    if (functions->AOTInductorModelContainerFreeInactiveConstantBuffer == NULL)
        return aoticache_runner_lacks(runner, "AOTInductorModelContainerFreeInactiveConstantBuffer",
                                      "it keeps the memory of its inactive buffer", ret_error);
    aoticache_runner_change change = aoticache_runner_change_begin(runner, false);
    AOTIRuntimeError code = functions->AOTInductorModelContainerFreeInactiveConstantBuffer(runner->container);
    if (code != 0)
        status = aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED,
                                           "AOTInductorModelContainerFreeInactiveConstantBuffer", code, ret_error);
    else
        runner->inactive_is_freed = true;
    aoticache_runner_change_end(&change);
    return status;
}

/* ---- listing ---- */

static aoticache_status extract_entries(aoticache_runner *runner, bool inactive, aoticache_constant_fn callback,
                                        void *user, aoticache_error *ret_error)
{
    const AOTInductorConstantMapEntry *entries = NULL;
    size_t count = 0;
    AOTIRuntimeError code = runner->library->functions.AOTInductorModelContainerExtractConstantsMapEntries(
        runner->container, &entries, &count, inactive);
    if (code != 0)
        return aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED,
                                         "AOTInductorModelContainerExtractConstantsMapEntries", code, ret_error);
    for (size_t i = 0; i < count && callback(user, entries[i].name, entries[i].handle); i++)
        continue;
    return AOTICACHE_OK;
}

static aoticache_status extract_map(aoticache_runner *runner, bool inactive, aoticache_constant_fn callback, void *user,
                                    aoticache_error *ret_error)
{
    const aoticache_bridge *bridge;
    aoticache_status status = aoticache_bridge_get(&bridge, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    AOTInductorConstantMapHandle map = bridge->map_new(NULL, 0);
    if (map == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "no memory for a map of constants");
    AOTIRuntimeError code =
        runner->library->functions.AOTInductorModelContainerExtractConstantsMap(runner->container, map, inactive);
    if (code != 0)
        status = aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED,
                                           "AOTInductorModelContainerExtractConstantsMap", code, ret_error);
    else
        bridge->map_list(map, callback, user);
    bridge->map_free(map);
    return status;
}

aoticache_status aoticache_runner_extract_constants(aoticache_runner *runner, bool inactive,
                                                    aoticache_constant_fn callback, void *user,
                                                    aoticache_error *ret_error)
{
    if (runner == NULL || callback == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "extracting constants needs a runner and a callback");
    const aoticache_library_functions *functions = &runner->library->functions;
    bool entries = functions->AOTInductorModelContainerExtractConstantsMapEntries != NULL;
    if (!entries && functions->AOTInductorModelContainerExtractConstantsMap == NULL)
        return aoticache_runner_lacks(runner, "AOTInductorModelContainerExtractConstantsMap(Entries)",
                                      "it does not hand its constants out", ret_error);
    aoticache_runner_change change = aoticache_runner_change_begin(runner, false);
    aoticache_status status = AOTICACHE_OK;
    bool freed = inactive ? runner->inactive_is_freed : runner->active_is_freed;
    if (!freed) /* else what PyTorch lists lies over memory that is gone */
        status = entries ? extract_entries(runner, inactive, callback, user, ret_error)
                         : extract_map(runner, inactive, callback, user, ret_error);
    aoticache_runner_change_end(&change);
    return status;
}
