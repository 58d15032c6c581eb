/*
 * loader/runner_missing: constants without a value. A library whose weights lie elsewhere begins without any, and the
 * inactive buffer of every library is empty until it is updated in full; PyTorch's libraries do not look before they
 * run, and end the process. So the runner does, after whatever changes the active buffer, and keeps runs off the fast
 * path for as long as something is missing: complete containers pay nothing.
 *
 * A library that lists its constants in no other way than as a C++ map, or not at all, is trusted.
 */
#include "loader/runner_state.h"

#include <string.h>

/* The entries are in the order of the constants. */
static size_t find_first_missing(const aoticache_runner *runner, const AOTInductorConstantMapEntry *entries,
                                 size_t num_entries)
{
    size_t used = 0;
    for (size_t i = 0; i < runner->num_constants; i++) {
        if (aoticache_runner_constant_is_folded(runner, i))
            continue;
        if (used == num_entries || entries[used].name == NULL ||
            strcmp(entries[used].name, aoticache_runner_constant_name(runner, i, true)) != 0)
            return i;
        used++;
    }
    return runner->num_constants;
}

static size_t count_own_constants(const aoticache_runner *runner)
{
    size_t count = 0;
    for (size_t i = 0; i < runner->num_constants; i++)
        count += !aoticache_runner_constant_is_folded(runner, i);
    return count;
}

size_t aoticache_runner_first_missing(const aoticache_runner *runner, bool inactive)
{
    const AOTInductorConstantMapEntry *entries = NULL;
    size_t num_entries = 0;
    /* PyTorch leaves the tensors of a buffer that was freed where they were, over memory that is gone. */
    if (inactive ? runner->inactive_is_freed : runner->active_is_freed)
        return find_first_missing(runner, NULL, 0);
    if (runner->library->functions.AOTInductorModelContainerExtractConstantsMapEntries == NULL ||
        runner->library->functions.AOTInductorModelContainerExtractConstantsMapEntries(runner->container, &entries,
                                                                                       &num_entries, inactive) != 0 ||
        num_entries >= count_own_constants(runner))
        return runner->num_constants;
    return find_first_missing(runner, entries, num_entries);
}

void aoticache_runner_find_missing(aoticache_runner *runner)
{
    bool complete = runner->first_missing == runner->num_constants;
    runner->first_missing = aoticache_runner_first_missing(runner, false);
    if (complete && runner->first_missing < runner->num_constants)
        aoticache_run_gate_block_single(&runner->gate);
    if (!complete && runner->first_missing == runner->num_constants)
        aoticache_run_gate_unblock_single(&runner->gate);
}

aoticache_status aoticache_runner_say_missing(const aoticache_runner *runner, size_t position,
                                              aoticache_error *ret_error)
{
    const char *name = aoticache_runner_constant_name(runner, position, false);
    return aoticache_error_set(ret_error, AOTICACHE_RUN_FAILED,
                               "constant \"%.200s\" of library %.200s has no value: update all of them in full first",
                               name, runner->library->name);
}
