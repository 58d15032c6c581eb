/*
 * loader/runner/buffers: folds, swaps, frees and lists the two buffers of constants; and keeps changes from colliding
 * with runs.
 */
#include "base/arguments.h"
#include "loader/runner/runner_internal.h"

#include "base/cleanup.h"
#include "base/options.h"
#include "loader/runner/constants.h"

#include <stdlib.h>

/* ---- changes and runs ---- */

/*
 * Begins a change. A change of the inactive buffer can proceed in parallel with runs in the pool, except runs that may
 * still fold: folding, and completing an inactive buffer, read the active one.
 */
aoticache_runner_change aoticache_runner_change_begin(aoticache_runner *runner, bool active)
{
    aoticache_run_lock *lock = &runner->run_lock;
    pthread_mutex_lock(&lock->changes);
    aoticache_run_lock_register(lock);
    aoticache_runner_change change = {runner, active || !aoticache_run_lock_is_settled(lock)};
    if (change.alone)
        aoticache_run_lock_enter_exclusive(lock);
    return change;
}

void aoticache_runner_change_end(aoticache_runner_change *change)
{
    aoticache_run_lock *lock = &change->runner->run_lock;
    if (change->alone)
        aoticache_run_lock_leave_exclusive(lock);
    aoticache_run_lock_unregister(lock);
    pthread_mutex_unlock(&lock->changes);
}

void aoticache_runner_active_changed(aoticache_runner *runner)
{
    aoticache_run_lock_set_settled(&runner->run_lock, false);
    aoticache_runner_find_missing(runner);
}

/* ---- folding, swapping, freeing ---- */

/*
 * Swaps the buffers twice, so that all models use the active buffer again. PyTorch's folding of the inactive buffer
 * points a model at it meanwhile, and leaves it so on failure: the model would then run on the wrong constants.
 * Swapping points all models at the active buffer; swapping twice changes nothing else.
 */
static void point_models_at_active(const aoticache_runner *runner)
{
    const aoticache_library_functions *functions = &runner->library->functions;
    if (functions->AOTInductorModelContainerSwapConstantBuffer == NULL)
        return;
    functions->AOTInductorModelContainerSwapConstantBuffer(runner->container);
    functions->AOTInductorModelContainerSwapConstantBuffer(runner->container);
}

/*
 * Checks that the active buffer has all constants that tracing made. PyTorch's folding of the inactive buffer copies
 * them from there without a check.
 */
static aoticache_status check_traced(aoticache_runner *runner, aoticache_error *ret_error)
{
    aoticache_constant constant;
    if (!aoticache_runner_can_list(runner))
        return AOTICACHE_OK;
    cleanup_free AtenTensorHandle *tensors = NULL;
    aoticache_status status = aoticache_runner_read_tensors(runner, false, false, &tensors, ret_error);
    for (size_t i = 0; i < runner->num_constants && status == AOTICACHE_OK; i++) {
        status = aoticache_runner_read_constant(runner, i, &constant, ret_error);
        if (status == AOTICACHE_OK && tensors[i] == NULL && constant.type == AOTICACHE_CONSTANT_TENSOR_CONSTANT)
            status = aoticache_error_set(ret_error, AOTICACHE_RUN_FAILED,
                                         "constant \"%.200s\" of library %.200s has no value in the active buffer, and "
                                         "folding the other buffer copies it from there",
                                         constant.name, runner->library->name);
    }
    return status;
}

static aoticache_status fold_buffer(aoticache_runner *runner, bool inactive, const aoticache_run_options *options,
                                    aoticache_error *ret_error)
{
    size_t missing = aoticache_runner_first_missing(runner, inactive);
    if (missing < runner->num_constants)
        return aoticache_runner_fail_missing(runner, missing, ret_error);
    aoticache_status status = inactive ? check_traced(runner, ret_error) : AOTICACHE_OK;
    if (status != AOTICACHE_OK)
        return status;
    aoticache_runner_buffer(runner, inactive)->folded = true;
    aoticache_runner_buffer(runner, inactive)->made = true;
    AOTIRuntimeError code = runner->library->functions.AOTInductorModelContainerRunConstantFolding(
        runner->container, inactive, options->stream, options->proxy_executor);
    return code == 0 ? AOTICACHE_OK
                     : aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED,
                                                 "AOTInductorModelContainerRunConstantFolding", code, ret_error);
}

/*
 * Folds the inactive buffer while runs proceed. Folding takes a model, as a run does; with only one model none would be
 * left for runs.
 */
static aoticache_status fold_beside_runs(aoticache_runner *runner, const aoticache_run_options *options,
                                         aoticache_error *ret_error)
{
    bool alone = runner->run_lock.limit == 1;
    aoticache_runner_change change = aoticache_runner_change_begin(runner, alone);
    bool takes_place = !change.alone;
    if (takes_place)
        aoticache_run_lock_enter_shared(&runner->run_lock);
    aoticache_status status = fold_buffer(runner, true, options, ret_error);
    if (takes_place)
        aoticache_run_lock_leave_shared(&runner->run_lock);
    if (status != AOTICACHE_OK && takes_place) {
        aoticache_run_lock_enter_exclusive(&runner->run_lock);
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
        aoticache_run_lock_set_settled(&runner->run_lock, false);
    aoticache_runner_change_end(&change);
    return status;
}

aoticache_status aoticache_runner_fold_constants(aoticache_runner *runner, bool inactive,
                                                 const aoticache_run_options *options, aoticache_error *ret_error)
{
    aoticache_run_options chosen;
    aoticache_status status =
        AOTICACHE_OPTIONS_READ(aoticache_run_options, AOTICACHE_RUN_OPTIONS_INIT, options, &chosen, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (runner == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, runner);
    if (runner->library->functions.AOTInductorModelContainerRunConstantFolding == NULL)
        return aoticache_runner_lacks(runner, "AOTInductorModelContainerRunConstantFolding",
                                      "it does not fold constants", ret_error);
    if (chosen.stream == NULL)
        chosen.stream = aoticache_runner_stream(runner);
    if (chosen.proxy_executor == NULL)
        chosen.proxy_executor = runner->hot.proxy_executor;
    return inactive ? fold_beside_runs(runner, &chosen, ret_error) : fold_active(runner, &chosen, ret_error);
}

aoticache_status aoticache_runner_swap_constants(aoticache_runner *runner, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    if (runner == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, runner);
    const aoticache_library_functions *functions = &runner->library->functions;
    if (functions->AOTInductorModelContainerSwapConstantBuffer == NULL)
        return aoticache_runner_lacks(runner, "AOTInductorModelContainerSwapConstantBuffer", "it has only one buffer",
                                      ret_error);
    aoticache_runner_change change = aoticache_runner_change_begin(runner, true);
    AOTIRuntimeError code = functions->AOTInductorModelContainerSwapConstantBuffer(runner->container);
    if (code != 0) {
        status = aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED,
                                           "AOTInductorModelContainerSwapConstantBuffer", code, ret_error);
    } else {
        runner->active = 1 - runner->active;
        aoticache_runner_buffer(runner, false)->folded = true; /* the next run folds it */
        aoticache_runner_buffer(runner, false)->made = true;
    }
    aoticache_runner_active_changed(runner);
    aoticache_runner_change_end(&change);
    return status;
}

/*
 * Frees the inactive buffer. PyTorch's function leaves the entries of folded constants in its map, without tensors; the
 * next change of the buffer reads them and ends the process. So a buffer that was folded keeps its memory.
 */
static aoticache_status free_inactive(aoticache_runner *runner, aoticache_error *ret_error)
{
    const aoticache_constant_buffer *buffer = aoticache_runner_buffer(runner, true);
    if (!buffer->made || (runner->has_folded && buffer->folded))
        return AOTICACHE_OK;
    AOTIRuntimeError code =
        runner->library->functions.AOTInductorModelContainerFreeInactiveConstantBuffer(runner->container);
    return code == 0
               ? AOTICACHE_OK
               : aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED,
                                           "AOTInductorModelContainerFreeInactiveConstantBuffer", code, ret_error);
}

aoticache_status aoticache_runner_free_inactive_constants(aoticache_runner *runner, aoticache_error *ret_error)
{
    if (runner == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, runner);
    if (runner->library->functions.AOTInductorModelContainerFreeInactiveConstantBuffer == NULL)
        return aoticache_runner_lacks(runner, "AOTInductorModelContainerFreeInactiveConstantBuffer",
                                      "it does not free the memory of its inactive buffer", ret_error);
    aoticache_runner_change change = aoticache_runner_change_begin(runner, false);
    /* Read the shapes first, from tensors that may be gone afterwards. */
    aoticache_status status = aoticache_runner_learn_shapes(runner, false, ret_error);
    if (status == AOTICACHE_OK)
        status = free_inactive(runner, ret_error);
    if (status == AOTICACHE_OK)
        aoticache_runner_set_stale(runner, true, true);
    aoticache_runner_change_end(&change);
    return status;
}

/* ---- listing ---- */

static aoticache_status list_values(aoticache_runner *runner, bool inactive, aoticache_constant_fn callback, void *user,
                                    aoticache_error *ret_error)
{
    cleanup_free AtenTensorHandle *tensors = NULL;
    aoticache_status status = aoticache_runner_read_tensors(runner, inactive, false, &tensors, ret_error);
    bool go_on = status == AOTICACHE_OK;
    for (size_t i = 0; i < runner->num_constants && go_on; i++)
        if (tensors[i] != NULL)
            go_on = callback(user, aoticache_runner_constant_name(runner, i, true), tensors[i]);
    return status;
}

aoticache_status aoticache_runner_extract_constants(aoticache_runner *runner, bool inactive,
                                                    aoticache_constant_fn callback, void *user,
                                                    aoticache_error *ret_error)
{
    if (runner == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, runner, callback);
    if (!aoticache_runner_can_list(runner))
        return aoticache_runner_lacks(runner, "AOTInductorModelContainerExtractConstantsMap(Entries)",
                                      "it does not expose its constants", ret_error);
    aoticache_runner_change change = aoticache_runner_change_begin(runner, false);
    aoticache_status status = list_values(runner, inactive, callback, user, ret_error);
    aoticache_runner_change_end(&change);
    return status;
}
