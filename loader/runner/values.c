/*
 * loader/runner/values: which constants have a value in which buffer, and their tensors.
 *
 * A library whose weights are elsewhere begins without any, and the inactive buffer of every library is empty until it
 * is updated. PyTorch's libraries do not check this before they run, and end the process. So the runner checks after
 * every change of the active buffer, and keeps runs off the fast path as long as a value is missing: complete
 * containers pay nothing. PyTorch also keeps the tensors of a freed buffer, over memory that is gone: the runner itself
 * records which of them were replaced since.
 *
 * A library that lists its constants only as a C++ map, or not at all, is trusted before it runs.
 */
#include "loader/runner/runner_internal.h"

#include "base/cleanup.h"
#include "loader/cxx_map/cxx_map_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- the tensors of a buffer ---- */

bool aoticache_runner_can_list(const aoticache_runner *runner)
{
    const aoticache_library_functions *functions = &runner->library->functions;
    return functions->AOTInductorModelContainerExtractConstantsMapEntries != NULL ||
           functions->AOTInductorModelContainerExtractConstantsMap != NULL;
}

/* Stores the entries by position. They are in the order of the constants, and have the model's names. */
static void place_entries(const aoticache_runner *runner, const AOTInductorConstantMapEntry *entries,
                          size_t num_entries, AtenTensorHandle *tensors)
{
    size_t used = 0;
    for (size_t i = 0; i < runner->num_constants && used < num_entries; i++)
        if (!aoticache_runner_constant_is_folded(runner, i) && entries[used].name != NULL &&
            strcmp(entries[used].name, aoticache_runner_constant_name(runner, i, true)) == 0)
            tensors[i] = entries[used++].handle;
}

static aoticache_status list_entries(const aoticache_runner *runner, bool inactive, AtenTensorHandle *tensors,
                                     aoticache_error *ret_error)
{
    const AOTInductorConstantMapEntry *entries = NULL;
    size_t count = 0;
    AOTIRuntimeError code = runner->library->functions.AOTInductorModelContainerExtractConstantsMapEntries(
        runner->container, &entries, &count, inactive);
    if (code != 0)
        return aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED,
                                         "AOTInductorModelContainerExtractConstantsMapEntries", code, ret_error);
    place_entries(runner, entries, count, tensors);
    return AOTICACHE_OK;
}

typedef struct map_places {
    const aoticache_runner *runner;
    aoticache_constant_names names;
    AtenTensorHandle *tensors;
} map_places;

static bool place_from_map(void *user, const char *original_fqn, AtenTensorHandle tensor)
{
    map_places *places = user;
    const aoticache_constant_names *names = &places->names;
    for (size_t i = aoticache_constant_names_find(names, original_fqn);
         i < names->count && strcmp(names->names[i].name, original_fqn) == 0; i++)
        if (!aoticache_runner_constant_is_folded(places->runner, names->names[i].position))
            places->tensors[names->names[i].position] = tensor;
    return true;
}

static aoticache_status list_map(const aoticache_runner *runner, bool inactive, AtenTensorHandle *tensors,
                                 aoticache_error *ret_error)
{
    const aoticache_cxx_map_functions *maps;
    map_places places = {.runner = runner, .tensors = tensors};
    aoticache_status status = aoticache_cxx_map_functions_get(&maps, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_constant_names_read(runner, true, &places.names, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    AOTInductorConstantMapHandle map = maps->new_map(NULL, 0);
    AOTIRuntimeError code = 0;
    if (map == NULL)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a map of constants");
    else
        code =
            runner->library->functions.AOTInductorModelContainerExtractConstantsMap(runner->container, map, inactive);
    if (code != 0)
        status = aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED,
                                           "AOTInductorModelContainerExtractConstantsMap", code, ret_error);
    else if (map != NULL)
        maps->list_map(map, place_from_map, &places);
    if (map != NULL)
        maps->free_map(map);
    free(places.names.names);
    return status;
}

aoticache_status aoticache_runner_list_tensors(const aoticache_runner *runner, bool inactive, bool stale_too,
                                               AtenTensorHandle *tensors, aoticache_error *ret_error)
{
    memset(tensors, 0, runner->num_constants * sizeof *tensors);
    if (!runner->buffers[inactive ? 1 - runner->active : runner->active].made)
        return AOTICACHE_OK;
    aoticache_status status = runner->library->functions.AOTInductorModelContainerExtractConstantsMapEntries != NULL
                                  ? list_entries(runner, inactive, tensors, ret_error)
                                  : list_map(runner, inactive, tensors, ret_error);
    for (size_t i = 0; i < runner->num_constants && !stale_too; i++)
        if (aoticache_runner_is_stale(runner, inactive, i))
            tensors[i] = NULL;
    return status;
}

aoticache_status aoticache_runner_read_tensors(const aoticache_runner *runner, bool inactive, bool stale_too,
                                               AtenTensorHandle **ret_tensors, aoticache_error *ret_error)
{
    cleanup_free AtenTensorHandle *tensors = calloc(runner->num_constants + 1, sizeof *tensors);
    if (tensors == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu constants",
                                   runner->num_constants);
    aoticache_status status = aoticache_runner_list_tensors(runner, inactive, stale_too, tensors, ret_error);
    if (status == AOTICACHE_OK)
        *ret_tensors = steal_ptr(&tensors);
    return status;
}

/* ---- missing values ---- */

/* Returns the first missing constant, for libraries that list their constants as a map, or not at all. */
static size_t first_missing_of_map(const aoticache_runner *runner, bool inactive)
{
    cleanup_free AtenTensorHandle *tensors = NULL;
    bool listed = aoticache_runner_can_list(runner) &&
                  aoticache_runner_read_tensors(runner, inactive, true, &tensors, NULL) == AOTICACHE_OK;
    for (size_t i = 0; i < runner->num_constants; i++)
        if (!aoticache_runner_constant_is_folded(runner, i) &&
            (aoticache_runner_is_stale(runner, inactive, i) || (listed && tensors[i] == NULL)))
            return i;
    return runner->num_constants;
}

size_t aoticache_runner_first_missing(const aoticache_runner *runner, bool inactive)
{
    const AOTInductorConstantMapEntry *entries = NULL;
    size_t count = 0, used = 0;
    if (runner->library->functions.AOTInductorModelContainerExtractConstantsMapEntries == NULL)
        return first_missing_of_map(runner, inactive);
    bool listed = runner->library->functions.AOTInductorModelContainerExtractConstantsMapEntries(
                      runner->container, &entries, &count, inactive) == 0;
    for (size_t i = 0; i < runner->num_constants; i++) {
        if (aoticache_runner_constant_is_folded(runner, i))
            continue;
        if (aoticache_runner_is_stale(runner, inactive, i))
            return i;
        if (listed && (used == count || entries[used].name == NULL ||
                       strcmp(entries[used].name, aoticache_runner_constant_name(runner, i, true)) != 0))
            return i;
        used++;
    }
    return runner->num_constants;
}

void aoticache_runner_find_missing(aoticache_runner *runner)
{
    bool complete = runner->first_missing == runner->num_constants;
    runner->first_missing = aoticache_runner_first_missing(runner, false);
    if (complete && runner->first_missing < runner->num_constants)
        aoticache_run_lock_block_single(&runner->run_lock);
    if (!complete && runner->first_missing == runner->num_constants)
        aoticache_run_lock_unblock_single(&runner->run_lock);
}

aoticache_status aoticache_runner_fail_missing(const aoticache_runner *runner, size_t position,
                                               aoticache_error *ret_error)
{
    const char *name = aoticache_runner_constant_name(runner, position, false);
    return aoticache_error_set(ret_error, AOTICACHE_RUN_FAILED,
                               "constant \"%.200s\" of library %.200s has no value: update it first", name,
                               runner->library->name);
}

void aoticache_runner_set_stale(aoticache_runner *runner, bool inactive, bool stale)
{
    for (size_t i = 0; i < runner->num_constants; i++)
        aoticache_runner_buffer(runner, inactive)->stale[i] = stale;
}
