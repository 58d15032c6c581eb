/*
 * loader/runner_update: new values for constants. The caller's names are resolved and checked before the library
 * hears of them, because PyTorch's leave out silently what they do not know; then the best function that the library
 * has is called.
 */
#include "loader/runner_state.h"

#include "base/cleanup.h"
#include "loader/bridge_load.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- checking the caller's list ---- */

static aoticache_status say_unknown(const aoticache_runner *runner, const aoticache_constant_names *names,
                                    const char *name, aoticache_error *ret_error)
{
    const char *nearest = aoticache_constant_names_nearest(names, name);
    if (nearest != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "library %.200s has no constant \"%.200s\"; did you mean \"%.200s\"?",
                                   runner->library->name, name, nearest);
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "library %.200s has no constant \"%.200s\" among its %zu",
                               runner->library->name, name, runner->num_constants);
}

/* PyTorch counts the bytes of constants in multiples of this. */
enum { CONSTANT_ALIGNMENT = 64 };

/* From the first element to the last, without overflow. */
static bool count_bytes(const aoticache_tensor_view *view, uint64_t *ret_bytes)
{
    uint64_t last = 0, reach;
    if (view->numel == 0) {
        *ret_bytes = 0;
        return true;
    }
    for (int64_t d = 0; d < view->ndim; d++)
        if (view->sizes[d] < 0 || view->strides[d] < 0 ||
            __builtin_mul_overflow((uint64_t)(view->sizes[d] - 1), (uint64_t)view->strides[d], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return false;
    return !__builtin_add_overflow(last, 1, &last) &&
           !__builtin_mul_overflow(last, (uint64_t)aoticache_dtype_size(view->dtype), ret_bytes);
}

static bool has_place(uint64_t constant_bytes, uint64_t bytes)
{
    uint64_t padding = (CONSTANT_ALIGNMENT - constant_bytes % CONSTANT_ALIGNMENT) % CONSTANT_ALIGNMENT;
    return bytes <= constant_bytes || bytes - constant_bytes <= padding;
}

/* PyTorch's libraries copy what they are given, however much that is, to where the constant lies. */
static aoticache_status check_fits(const aoticache_runner *runner, size_t position, AtenTensorHandle tensor,
                                   aoticache_error *ret_error)
{
    aoticache_constant constant;
    aoticache_tensor_view view;
    uint64_t bytes = 0;
    aoticache_status status = aoticache_runner_read_constant(runner, position, &constant, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_tensor_get_view(tensor, &view, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const char *wanted = aoticache_dtype_name(constant.dtype), *given = aoticache_dtype_name(view.dtype);
    if (constant.dtype >= 0 && constant.dtype != view.dtype)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "constant \"%.200s\" of library %.200s is %s, not %s",
                                   constant.name, runner->library->name, wanted != NULL ? wanted : "of another dtype",
                                   given != NULL ? given : "of the dtype given");
    if (constant.has_bytes && (!count_bytes(&view, &bytes) || !has_place(constant.bytes, bytes)))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "constant \"%.200s\" of library %.200s has %" PRIu64 " bytes; the tensor for it "
                                   "reaches over %" PRIu64, constant.name, runner->library->name, constant.bytes,
                                   bytes);
    return AOTICACHE_OK;
}

/* A model that uses one tensor under two names may have two constants with one FQN: both get the value. */
static aoticache_status place(const aoticache_runner *runner, const aoticache_constant_names *names, size_t found,
                              const AOTInductorConstantMapEntry *pair, AtenTensorHandle *handles,
                              aoticache_error *ret_error)
{
    for (size_t i = found; i < names->count && strcmp(names->names[i].name, pair->name) == 0; i++) {
        size_t position = names->names[i].position;
        if (aoticache_runner_constant_is_folded(runner, position))
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "constant \"%.200s\" of library %.200s is made by folding and takes no value",
                                       pair->name, runner->library->name);
        if (handles[position] != NULL)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "constant \"%.200s\" of library %.200s is given twice", pair->name,
                                       runner->library->name);
        aoticache_status status = check_fits(runner, position, pair->handle, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        handles[position] = pair->handle;
    }
    return AOTICACHE_OK;
}

/* handles: one place for each constant of the library; those that are named are filled. */
static aoticache_status resolve(const aoticache_runner *runner, const aoticache_constant_names *names,
                                const AOTInductorConstantMapEntry *pairs, size_t num_pairs, AtenTensorHandle *handles,
                                aoticache_error *ret_error)
{
    for (size_t i = 0; i < num_pairs; i++) {
        if (pairs[i].name == NULL || pairs[i].handle == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "pair %zu of %zu for library %.200s has no %s", i,
                                       num_pairs, runner->library->name, pairs[i].name == NULL ? "name" : "tensor");
        size_t found = aoticache_constant_names_find(names, pairs[i].name);
        aoticache_status status = found < names->count
                                      ? place(runner, names, found, &pairs[i], handles, ret_error)
                                      : say_unknown(runner, names, pairs[i].name, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    return AOTICACHE_OK;
}

/* The list with the library's own names, in its order. The caller frees it. */
static aoticache_status list_by_names(const aoticache_runner *runner, const aoticache_constant_names *names,
                                      const AOTInductorConstantMapEntry *pairs, size_t num_pairs,
                                      AOTInductorConstantMapEntry **ret_list, size_t *ret_count,
                                      aoticache_error *ret_error)
{
    size_t count = runner->num_constants, used = 0;
    cleanup_free AtenTensorHandle *handles = calloc(count > 0 ? count : 1, sizeof *handles);
    cleanup_free AOTInductorConstantMapEntry *list = calloc(count > 0 ? count : 1, sizeof *list);
    if (handles == NULL || list == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "no memory for %zu constants", count);
    aoticache_status status = resolve(runner, names, pairs, num_pairs, handles, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        if (handles[i] != NULL)
            list[used++] = (AOTInductorConstantMapEntry){aoticache_runner_constant_name(runner, i, false), handles[i]};
    *ret_list = steal_ptr(&list);
    *ret_count = used;
    return AOTICACHE_OK;
}

static aoticache_status make_list(const aoticache_runner *runner, bool by_fqn, const AOTInductorConstantMapEntry *pairs,
                                  size_t num_pairs, AOTInductorConstantMapEntry **ret_list, size_t *ret_count,
                                  aoticache_error *ret_error)
{
    aoticache_constant_names names;
    aoticache_status status = aoticache_constant_names_read(runner, by_fqn, &names, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = list_by_names(runner, &names, pairs, num_pairs, ret_list, ret_count, ret_error);
    free(names.names);
    return status;
}

/* ---- calling ---- */

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

/* An active buffer that was changed, even where that failed half way, is folded anew by the next run. */
static aoticache_status apply(aoticache_runner *runner, const update_function *function,
                              const aoticache_update_options *options, const AOTInductorConstantMapEntry *pairs,
                              size_t num_pairs, AOTInductorConstantMapHandle map, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    aoticache_runner_change change = aoticache_runner_change_begin(runner, !options->inactive);
    AOTIRuntimeError code = map == NULL ? call_with_pairs(runner, function, options, pairs, num_pairs)
                                        : call_with_map(runner, function, options, map);
    if (code != 0)
        status = aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED, function->name, code, ret_error);
    if (code == 0 && !options->partial)
        *(options->inactive ? &runner->inactive_is_freed : &runner->active_is_freed) = false;
    if (!options->inactive)
        aoticache_runner_active_changed(runner);
    aoticache_runner_change_end(&change);
    return status;
}

static aoticache_status apply_as_map(aoticache_runner *runner, const update_function *function,
                                     const aoticache_update_options *options, const AOTInductorConstantMapEntry *pairs,
                                     size_t num_pairs, aoticache_error *ret_error)
{
    const aoticache_bridge *bridge;
    aoticache_status status = aoticache_bridge_get(&bridge, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    AOTInductorConstantMapHandle map = bridge->map_new(pairs, num_pairs);
    if (map == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "no memory for a map of %zu constants", num_pairs);
    status = apply(runner, function, options, pairs, num_pairs, map, ret_error);
    bridge->map_free(map);
    return status;
}

static aoticache_status read_options(const aoticache_update_options *options, aoticache_update_options *ret_options,
                                     aoticache_error *ret_error)
{
    *ret_options = (aoticache_update_options)AOTICACHE_UPDATE_OPTIONS_INIT;
    if (options == NULL)
        return AOTICACHE_OK;
    if (options->size < offsetof(aoticache_update_options, inactive) || options->size > sizeof *ret_options)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the options of an update have %zu bytes, not %zu",
                                   options->size, sizeof *ret_options);
    memcpy(ret_options, options, options->size);
    if (ret_options->user_managed && ret_options->from_cpu)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "an update is user_managed, which makes no copy, or from_cpu, which makes one: not "
                                   "both");
    return AOTICACHE_OK;
}

aoticache_status aoticache_runner_update_constants(aoticache_runner *runner, const aoticache_update_options *options,
                                                   const AOTInductorConstantMapEntry *pairs, size_t num_pairs,
                                                   aoticache_error *ret_error)
{
    aoticache_update_options chosen;
    update_function function;
    size_t count = 0;
    cleanup_free AOTInductorConstantMapEntry *list = NULL;
    if (runner == NULL || (pairs == NULL && num_pairs > 0))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "an update needs a runner and a list of pairs");
    aoticache_status status = read_options(options, &chosen, ret_error);
    if (status == AOTICACHE_OK)
        status = choose_function(runner, &chosen, &function, ret_error);
    if (status == AOTICACHE_OK)
        status = make_list(runner, chosen.by_fqn, pairs, num_pairs, &list, &count, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return function.map != NULL || function.inactive_map != NULL
               ? apply_as_map(runner, &function, &chosen, list, count, ret_error)
               : apply(runner, &function, &chosen, list, count, NULL, ret_error);
}
