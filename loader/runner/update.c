/*
 * loader/runner/update: new values for constants. The caller's names and tensors are checked before they are passed to
 * the library, because PyTorch's libraries silently ignore names that they do not know and trust the rest.
 *
 * The library does not get the caller's tensors themselves. It copies as many bytes as a tensor's storage has, from the
 * tensor's first element on, and adds the offset once more: so it gets a new tensor over the same elements, whose
 * storage is only these. An update of the inactive buffer also takes the model's other values (not parameters) that are
 * not named from the active buffer, without checking that they exist; in a user-managed update the two buffers would
 * share them. So the update names these too.
 */
#include "base/arguments.h"
#include "loader/runner/runner_internal.h"
#include "loader/torch.h"

#include "base/cleanup.h"
#include "base/options.h"
#include "loader/cxx_map/cxx_map_internal.h"
#include "loader/runner/constants.h"
#include "loader/tensor.h"

#include <stdlib.h>
#include <string.h>

/* ---- the best function that the library has for new values ---- */

/*
 * Exactly one function is set. The functions for the inactive buffer need no flags: they always update that buffer completely.
 */
typedef struct update_function {
    const char *name;
    AOTIRuntimeError (*pairs)(AOTInductorModelContainerHandle, const AOTInductorConstantMapEntry *, size_t, bool, bool);
    AOTIRuntimeError (*map)(AOTInductorModelContainerHandle, AOTInductorConstantMapHandle, bool, bool);
    AOTIRuntimeError (*inactive_pairs)(AOTInductorModelContainerHandle, const AOTInductorConstantMapEntry *, size_t);
    AOTIRuntimeError (*inactive_map)(AOTInductorModelContainerHandle, AOTInductorConstantMapHandle);
} update_function;

#define TAKE_IF_THERE(field, function)                                                      \
    if (functions->function != NULL) {                                                      \
        *ret_function = (update_function){.name = #function, .field = functions->function}; \
        return true;                                                                        \
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
                                            "it always copies constants", ret_error);
    /* Without such a function, tensors are copied to the device here (make_fresh). */
    if (options->from_cpu && choose_from_cpu(functions, ret_function))
        return AOTICACHE_OK;
    if (!choose_plain(functions, options, ret_function))
        return aoticache_runner_lacks(runner, "AOTInductorModelContainerUpdateConstantBuffer(Pairs)",
                                      "its constants are fixed", ret_error);
    return AOTICACHE_OK;
}

/* Checks that the library has a function for such an update. Returns: OK, UNSUPPORTED. */
static aoticache_status check_function(const aoticache_runner *runner, const aoticache_update_options *options,
                                       aoticache_error *ret_error)
{
    update_function function;
    return choose_function(runner, options, &function, ret_error);
}

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
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a map of %zu constants", count);
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
    aoticache_runner_buffer(runner, options->inactive)->made |= status == AOTICACHE_OK;
    if (status == AOTICACHE_OK && function.map == NULL && function.inactive_map == NULL)
        code = call_with_pairs(runner, &function, options, list, count);
    else if (status == AOTICACHE_OK)
        status = hand_over_as_map(runner, &function, options, list, count, &code, ret_error);
    if (code != 0)
        status = aoticache_library_failure(runner->library, AOTICACHE_RUN_FAILED, function.name, code, ret_error);
    return status;
}

/* ---- checking the caller's list ---- */

static aoticache_status fail_unknown_name(const aoticache_runner *runner, const aoticache_constant_names *names,
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

/*
 * Stores the tensor of one pair at its constant's position. A model that uses one tensor under two names may have two
 * constants with one FQN: both get the value.
 */
static aoticache_status place_pair(const aoticache_runner *runner, const aoticache_constant_names *names, size_t found,
                                   const AOTInductorConstantMapEntry *pair, AtenTensorHandle *handles,
                                   aoticache_error *ret_error)
{
    for (size_t i = found; i < names->count && strcmp(names->names[i].name, pair->name) == 0; i++) {
        size_t position = names->names[i].position;
        if (aoticache_runner_constant_is_folded(runner, position))
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "constant \"%.200s\" of library %.200s is computed by folding and cannot be set",
                                       pair->name, runner->library->name);
        if (handles[position] != NULL)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "constant \"%.200s\" of library %.200s is given twice", pair->name,
                                       runner->library->name);
        handles[position] = pair->handle;
    }
    return AOTICACHE_OK;
}

/* Stores the tensor of each pair at its constant's position. handles: one element for each constant of the library. */
static aoticache_status place_pairs(const aoticache_runner *runner, const aoticache_constant_names *names,
                                    const AOTInductorConstantMapEntry *pairs, size_t num_pairs,
                                    AtenTensorHandle *handles, aoticache_error *ret_error)
{
    for (size_t i = 0; i < num_pairs; i++) {
        if (pairs[i].name == NULL || pairs[i].handle == NULL)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "pair %zu of %zu for library %.200s has no %s", i,
                                       num_pairs, runner->library->name, pairs[i].name == NULL ? "name" : "tensor");
        size_t found = aoticache_constant_names_find(names, pairs[i].name);
        aoticache_status status = found < names->count ? place_pair(runner, names, found, &pairs[i], handles, ret_error)
                                                       : fail_unknown_name(runner, names, pairs[i].name, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    return AOTICACHE_OK;
}

/* ---- one update ---- */

/* Each list has an element for every constant of the library. */
typedef struct update_plan {
    aoticache_runner *runner;
    const aoticache_update_options *options;
    AtenTensorHandle *given; /* the caller's tensors */
    AtenTensorHandle *kept;  /* for constants that are not named: the tensor in a buffer */
    AtenTensorHandle *fresh; /* new tensors over the elements of either; freed here */
    AtenTensorHandle *found; /* for listing buffers */
    AOTInductorConstantMapEntry *list;
    bool completed; /* everything that the library may take from the active buffer is in `kept` */
    bool keeps;     /* `kept` is not empty */
} update_plan;

static void plan_free(update_plan *plan)
{
    for (size_t i = 0; plan->fresh != NULL && i < plan->runner->num_constants; i++)
        if (plan->fresh[i] != NULL)
            plan->runner->torch->aoti_torch_delete_tensor_object(plan->fresh[i]);
    free(plan->given);
    free(plan->kept);
    free(plan->fresh);
    free(plan->found);
    free(plan->list);
}

static aoticache_status plan_make(aoticache_runner *runner, const aoticache_update_options *options,
                                  const AOTInductorConstantMapEntry *pairs, size_t num_pairs, update_plan *ret_plan,
                                  aoticache_error *ret_error)
{
    size_t count = runner->num_constants + 1;
    aoticache_constant_names names;
    *ret_plan = (update_plan){.runner = runner, .options = options};
    ret_plan->given = calloc(count, sizeof(AtenTensorHandle));
    ret_plan->kept = calloc(count, sizeof(AtenTensorHandle));
    ret_plan->fresh = calloc(count, sizeof(AtenTensorHandle));
    ret_plan->found = calloc(count, sizeof(AtenTensorHandle));
    ret_plan->list = calloc(count, sizeof *ret_plan->list);
    if (ret_plan->given == NULL || ret_plan->kept == NULL || ret_plan->fresh == NULL || ret_plan->found == NULL ||
        ret_plan->list == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu constants", count - 1);
    aoticache_status status = aoticache_constant_names_read(runner, options->by_fqn, &names, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = place_pairs(runner, &names, pairs, num_pairs, ret_plan->given, ret_error);
    free(names.names);
    return status;
}

/* ---- constants that are not named ---- */

/*
 * Returns whether PyTorch's libraries let an update leave the constant out: constants that tracing made, buffers of the
 * model, and empty parameters.
 */
static bool may_be_left_out(const aoticache_runner *runner, size_t position)
{
    aoticache_constant constant;
    return aoticache_runner_read_constant(runner, position, &constant, NULL) == AOTICACHE_OK &&
           (constant.type == AOTICACHE_CONSTANT_TENSOR_CONSTANT || constant.type == AOTICACHE_CONSTANT_BUFFER ||
            (constant.type == AOTICACHE_CONSTANT_PARAMETER && constant.has_bytes && constant.bytes == 0));
}

static bool is_left_out(const update_plan *plan, size_t position)
{
    return plan->given[position] == NULL && !aoticache_runner_constant_is_folded(plan->runner, position);
}

/*
 * Returns whether the update lacks a constant that it must name. The library refuses such an update itself, before it
 * changes anything.
 */
static bool lacks_what_it_must_name(const update_plan *plan)
{
    for (size_t i = 0; i < plan->runner->num_constants && !plan->options->partial; i++)
        if (is_left_out(plan, i) && !may_be_left_out(plan->runner, i))
            return true;
    return false;
}

/*
 * Keeps the value of a constant that is not named: the value in the active buffer, as PyTorch does, or else the value
 * in the inactive buffer.
 */
static aoticache_status keep_constant(update_plan *plan, size_t position, AtenTensorHandle active, AtenTensorHandle own,
                                      aoticache_error *ret_error)
{
    if (active == NULL && own == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "constant \"%.200s\" of library %.200s is not in the update and has no value "
                                   "in either buffer: include it",
                                   aoticache_runner_constant_name(plan->runner, position, false),
                                   plan->runner->library->name);
    if (plan->runner->shapes[position].opaque)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "constant \"%.200s\" of library %.200s has a custom layout, chosen by the "
                                   "compile: it cannot be copied to the inactive buffer",
                                   aoticache_runner_constant_name(plan->runner, position, false),
                                   plan->runner->library->name);
    plan->kept[position] = active != NULL ? active : own;
    plan->keeps = true;
    return AOTICACHE_OK;
}

static aoticache_status keep_others(update_plan *plan, aoticache_error *ret_error)
{
    aoticache_runner *runner = plan->runner;
    if (!plan->options->inactive || !aoticache_runner_can_list(runner) || lacks_what_it_must_name(plan))
        return AOTICACHE_OK;
    cleanup_free AtenTensorHandle *own = calloc(runner->num_constants + 1, sizeof *own);
    if (own == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %zu constants",
                                   runner->num_constants);
    aoticache_status status = aoticache_runner_list_tensors(runner, false, false, plan->found, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_runner_list_tensors(runner, true, false, own, ret_error);
    for (size_t i = 0; i < runner->num_constants && status == AOTICACHE_OK; i++)
        if (is_left_out(plan, i) && may_be_left_out(runner, i))
            status = keep_constant(plan, i, plan->found[i], own[i], ret_error);
    plan->completed = status == AOTICACHE_OK;
    return status;
}

/* ---- passing values to the library ---- */

/*
 * Returns whether a tensor must be copied to the device before the library accepts it: PyTorch before 2.13 accepts none
 * on the CPU.
 */
static bool is_for_device(const update_plan *plan, const aoticache_tensor_view *view)
{
    update_function function;
    return plan->options->from_cpu && view->device.type == AOTICACHE_DEVICE_TYPE_CPU &&
           plan->runner->backend->device_type != AOTICACHE_DEVICE_TYPE_CPU &&
           !choose_from_cpu(&plan->runner->library->functions, &function);
}

static AOTITorchError copy_to_device(const aoticache_runner *runner, AtenTensorHandle source,
                                     const aoticache_tensor_view *view, AtenTensorHandle *ret_tensor)
{
    const aoticache_torch_provider *provider;
    AtenTensorHandle made = NULL;
    if (aoticache_torch_provider_get(&provider, NULL) != AOTICACHE_OK || provider->copy == NULL)
        return 1;
    AOTITorchError code = provider->torch.aoti_torch_empty_strided(
        view->ndim, view->sizes, view->strides, view->dtype, runner->backend->device_type, runner->device_index, &made);
    if (code == 0)
        code = provider->copy(made, source, 0);
    if (code == 0)
        *ret_tensor = made;
    else if (made != NULL)
        provider->torch.aoti_torch_delete_tensor_object(made);
    return code;
}

static aoticache_status make_fresh(update_plan *plan, size_t position, aoticache_error *ret_error)
{
    AtenTensorHandle source = plan->given[position] != NULL ? plan->given[position] : plan->kept[position];
    aoticache_tensor_view view;
    aoticache_status status = aoticache_tensor_get_view(source, &view, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    bool copies = is_for_device(plan, &view);
    AOTITorchError code = copies ? copy_to_device(plan->runner, source, &view, &plan->fresh[position])
                                 : plan->runner->library->torch->aoti_torch_create_tensor_from_blob(
                                       view.data, view.ndim, view.sizes, view.strides, 0, view.dtype, view.device.type,
                                       view.device.index, &plan->fresh[position]);
    if (code == 0)
        return AOTICACHE_OK;
    return aoticache_error_set(ret_error, AOTICACHE_RUN_FAILED, "%s for constant \"%.200s\" of library %.200s",
                               copies ? "a copy to the device failed" : "aoti_torch_create_tensor_from_blob failed",
                               aoticache_runner_constant_name(plan->runner, position, false),
                               plan->runner->library->name);
}

/* Appends the constants that have a tensor to the list. tensors: by position; NULL: not in the list. */
static size_t write_list(update_plan *plan, const AtenTensorHandle *tensors, size_t used)
{
    for (size_t i = 0; i < plan->runner->num_constants; i++)
        if (tensors[i] != NULL)
            plan->list[used++] =
                (AOTInductorConstantMapEntry){aoticache_runner_constant_name(plan->runner, i, false), tensors[i]};
    return used;
}

static aoticache_status copy_values(update_plan *plan, aoticache_error *ret_error)
{
    return aoticache_runner_hand_over(plan->runner, plan->options, plan->list, write_list(plan, plan->fresh, 0),
                                      ret_error);
}

/*
 * Copies the kept constants into the inactive buffer, and then keeps that buffer's own tensors. (The library copies
 * every constant of this kind that the list does not name from the active buffer, so the list names all of them.)
 */
static aoticache_status copy_what_is_kept(update_plan *plan, aoticache_error *ret_error)
{
    aoticache_runner *runner = plan->runner;
    const aoticache_update_options copying = {.size = sizeof copying, .inactive = true, .partial = true};
    for (size_t i = 0; i < runner->num_constants; i++)
        plan->found[i] = plan->kept[i] != NULL || may_be_left_out(runner, i) ? plan->fresh[i] : NULL;
    aoticache_status status =
        aoticache_runner_hand_over(runner, &copying, plan->list, write_list(plan, plan->found, 0), ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_runner_list_tensors(runner, true, true, plan->found, ret_error);
    for (size_t i = 0; i < runner->num_constants && status == AOTICACHE_OK; i++)
        if (plan->kept[i] != NULL)
            plan->kept[i] = plan->found[i];
    return status;
}

static aoticache_status use_memory(update_plan *plan, aoticache_error *ret_error)
{
    aoticache_status status = plan->keeps ? copy_what_is_kept(plan, ret_error) : AOTICACHE_OK;
    if (status != AOTICACHE_OK)
        return status;
    size_t count = write_list(plan, plan->given, 0);
    count = write_list(plan, plan->kept, count);
    return aoticache_runner_hand_over(plan->runner, plan->options, plan->list, count, ret_error);
}

/* ---- before and after ---- */

static aoticache_status check_and_prepare(update_plan *plan, aoticache_error *ret_error)
{
    aoticache_runner *runner = plan->runner;
    aoticache_status status = aoticache_runner_learn_shapes(runner, false, ret_error);
    for (size_t i = 0; i < runner->num_constants && status == AOTICACHE_OK; i++)
        if (plan->given[i] != NULL)
            status = aoticache_runner_check_tensor(runner, i, plan->given[i], plan->options, ret_error);
    if (status == AOTICACHE_OK)
        status = keep_others(plan, ret_error);
    for (size_t i = 0; i < runner->num_constants && status == AOTICACHE_OK; i++)
        if (plan->given[i] != NULL || plan->kept[i] != NULL)
            status = make_fresh(plan, i, ret_error);
    return status;
}

static void mark_as_valued(update_plan *plan)
{
    const aoticache_update_options *options = plan->options;
    bool *stale = aoticache_runner_buffer(plan->runner, options->inactive)->stale;
    for (size_t i = 0; i < plan->runner->num_constants; i++)
        if (plan->given[i] != NULL || plan->kept[i] != NULL ||
            (options->inactive && !options->partial && !plan->completed))
            stale[i] = false;
}

/*
 * Checks constants whose sizes were unknown before the copy. A tensor of other sizes leaves the constant without a
 * value.
 */
static aoticache_status check_what_was_taken(update_plan *plan, aoticache_error *ret_error)
{
    aoticache_runner *runner = plan->runner;
    bool unknown = false;
    for (size_t i = 0; i < runner->num_constants; i++)
        unknown |= plan->given[i] != NULL && runner->shapes[i].sizes == NULL;
    if (!unknown || plan->options->user_managed || !aoticache_runner_can_list(runner))
        return AOTICACHE_OK;
    bool inactive = plan->options->inactive;
    aoticache_status first = aoticache_runner_list_tensors(runner, inactive, true, plan->found, ret_error);
    for (size_t i = 0; i < runner->num_constants && first != AOTICACHE_RUN_FAILED; i++) {
        if (plan->given[i] == NULL || plan->found[i] == NULL)
            continue;
        aoticache_status status = aoticache_runner_check_taken(runner, i, plan->given[i], plan->found[i],
                                                               first == AOTICACHE_OK ? ret_error : NULL);
        if (status != AOTICACHE_OK)
            aoticache_runner_buffer(runner, inactive)->stale[i] = true;
        if (first == AOTICACHE_OK)
            first = status;
    }
    return first;
}

static aoticache_status change_buffer(update_plan *plan, aoticache_error *ret_error)
{
    aoticache_status status = plan->options->user_managed ? use_memory(plan, ret_error) : copy_values(plan, ret_error);
    if (status == AOTICACHE_OK) {
        mark_as_valued(plan);
        status = check_what_was_taken(plan, ret_error);
    }
    /* The next run folds an active buffer again if it was changed, even if the change failed half way. */
    if (!plan->options->inactive)
        aoticache_runner_active_changed(plan->runner);
    return status;
}

static aoticache_status apply_plan(update_plan *plan, aoticache_error *ret_error)
{
    aoticache_runner_change change = aoticache_runner_change_begin(plan->runner, !plan->options->inactive);
    aoticache_status status = check_and_prepare(plan, ret_error);
    if (status == AOTICACHE_OK)
        status = change_buffer(plan, ret_error);
    aoticache_runner_change_end(&change);
    return status;
}

/* ---- the public function ---- */

static aoticache_status read_options(const aoticache_update_options *options, aoticache_update_options *ret_options,
                                     aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OPTIONS_READ(aoticache_update_options, AOTICACHE_UPDATE_OPTIONS_INIT, options,
                                                     ret_options, ret_error);
    if (status == AOTICACHE_OK && ret_options->user_managed && ret_options->from_cpu)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "user_managed and from_cpu exclude each other: user_managed makes no copy, "
                                   "from_cpu makes one");
    return status;
}

aoticache_status aoticache_runner_update_constants(aoticache_runner *runner, const aoticache_update_options *options,
                                                   const AOTInductorConstantMapEntry *pairs, size_t num_pairs,
                                                   aoticache_error *ret_error)
{
    aoticache_update_options chosen;
    update_plan plan;
    aoticache_status status = read_options(options, &chosen, ret_error);
    if (status == AOTICACHE_OK && (runner == NULL || (pairs == NULL && num_pairs > 0)))
        status = AOTICACHE_REFUSE_NULL(ret_error, runner, pairs);
    if (status == AOTICACHE_OK)
        status = check_function(runner, &chosen, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = plan_make(runner, &chosen, pairs, num_pairs, &plan, ret_error);
    if (status == AOTICACHE_OK)
        status = apply_plan(&plan, ret_error);
    plan_free(&plan);
    return status;
}
