/*
 * loader/runner/hand_over: the best function that a library has for new values, and the call of it.
 */
#include "loader/runner/internal.h"

#include "loader/cxx_map/internal.h"

/* ---- which function ---- */

/* Exactly one is set. Those for the inactive buffer alone take everything for granted: inactive, in full. */
typedef struct update_function {
    const char *name;
    AOTIRuntimeError (*pairs)(AOTInductorModelContainerHandle, const AOTInductorConstantMapEntry *, size_t, bool, bool);
    AOTIRuntimeError (*map)(AOTInductorModelContainerHandle, AOTInductorConstantMapHandle, bool, bool);
    AOTIRuntimeError (*inactive_pairs)(AOTInductorModelContainerHandle, const AOTInductorConstantMapEntry *, size_t);
    AOTIRuntimeError (*inactive_map)(AOTInductorModelContainerHandle, AOTInductorConstantMapHandle);
} update_function;

#define TAKE_IF_THERE(field, function)                         \
    if (functions->function != NULL) {                         \
        *ret_function = (update_function){.name = #function, .field = functions->function}; \
        return true;                                           \
    }

static bool choose_user_managed(const aoticache_library_functions *functions, update_function *ret_function)
{
    TAKE_IF_THERE(pairs, AOTInductorModelContainerUpdateUserManagedConstantBufferPairs)
    TAKE_IF_THERE(map, AOTInductorModelContainerUpdateUserManagedConstantBuffer)
    return false;
}

static bool choose_from_cpu(const aoticache_library_functions *functions, update_function *ret_function)
{
    TAKE_IF_THERE(pairs, AOTInductorModelContainerUpdateConstantBufferFromCpuPairs)
    TAKE_IF_THERE(map, AOTInductorModelContainerUpdateConstantBufferFromCpu)
    return false;
}

static bool choose_plain(const aoticache_library_functions *functions, const aoticache_update_options *options,
                         update_function *ret_function)
{
    TAKE_IF_THERE(pairs, AOTInductorModelContainerUpdateConstantBufferPairs)
    TAKE_IF_THERE(map, AOTInductorModelContainerUpdateConstantBuffer)
    if (!options->inactive || options->partial)
        return false;
    TAKE_IF_THERE(inactive_pairs, AOTInductorModelContainerUpdateInactiveConstantBufferPairs)
    TAKE_IF_THERE(inactive_map, AOTInductorModelContainerUpdateInactiveConstantBuffer)
    return false;
}

static aoticache_status choose_function(const aoticache_runner *runner, const aoticache_update_options *options,
                                        update_function *ret_function, aoticache_error *ret_error)
{
    const aoticache_library_functions *functions = &runner->library->functions;
    if (options->user_managed)
        return choose_user_managed(functions, ret_function)
                   ? AOTICACHE_OK
                   : aoticache_runner_lacks(runner, "AOTInductorModelContainerUpdateUserManagedConstantBuffer(Pairs)",
                                            "it copies constants always", ret_error);
    if (options->from_cpu && choose_from_cpu(functions, ret_function))
        return AOTICACHE_OK;
    /* Where the container is on the CPU there is nothing to copy from one device to the other. */
    if (options->from_cpu && runner->backend->device_type != AOTICACHE_DEVICE_TYPE_CPU)
        return aoticache_runner_lacks(runner, "AOTInductorModelContainerUpdateConstantBufferFromCpu(Pairs)",
                                      "copy the tensors to its device first", ret_error);
    if (!choose_plain(functions, options, ret_function))
        return aoticache_runner_lacks(runner, "AOTInductorModelContainerUpdateConstantBuffer(Pairs)",
                                      "its constants are fixed", ret_error);
    return AOTICACHE_OK;
}

aoticache_status aoticache_runner_can_hand_over(const aoticache_runner *runner, const aoticache_update_options *options,
                                                aoticache_error *ret_error)
{
    update_function function;
    return choose_function(runner, options, &function, ret_error);
}

/* ---- calling it ---- */

static AOTIRuntimeError call_with_pairs(const aoticache_runner *runner, const update_function *function,
                                        const aoticache_update_options *options,
                                        const AOTInductorConstantMapEntry *pairs, size_t num_pairs)
{
    if (function->pairs != NULL)
        return function->pairs(runner->container, pairs, num_pairs, options->inactive, !options->partial);
    return function->inactive_pairs(runner->container, pairs, num_pairs);
}

static AOTIRuntimeError call_with_map(const aoticache_runner *runner, const update_function *function,
                                      const aoticache_update_options *options, AOTInductorConstantMapHandle map)
{
    if (function->map != NULL)
        return function->map(runner->container, map, options->inactive, !options->partial);
    return function->inactive_map(runner->container, map);
}

static aoticache_status hand_over_as_map(const aoticache_runner *runner, const update_function *function,
                                         const aoticache_update_options *options,
                                         const AOTInductorConstantMapEntry *list, size_t count,
                                         AOTIRuntimeError *ret_code, aoticache_error *ret_error)
{
    const aoticache_cxx_map_functions *maps;
    aoticache_status status = aoticache_cxx_map_functions_get(&maps, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    AOTInductorConstantMapHandle map = maps->new_map(list, count);
    if (map == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "no memory for a map of %zu constants", count);
    *ret_code = call_with_map(runner, function, options, map);
    maps->free_map(map);
    return AOTICACHE_OK;
}

aoticache_status aoticache_runner_hand_over(aoticache_runner *runner, const aoticache_update_options *options,
                                            const AOTInductorConstantMapEntry *list, size_t count,
                                            aoticache_error *ret_error)
{
    update_function function;
    AOTIRuntimeError code = 0;
    aoticache_status status = choose_function(runner, options, &function, ret_error);
    if (status == AOTICACHE_OK && function.map == NULL && function.inactive_map == NULL)
        code = call_with_pairs(runner, &function, options, list, count);
    else if (status == AOTICACHE_OK)
        status = hand_over_as_map(runner, &function, options, list, count, &code, ret_error);
    if (code != 0)
        status = aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED, function.name, code, ret_error);
    return status;
}
