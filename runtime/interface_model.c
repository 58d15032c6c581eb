/*
 * runtime/interface_model: the exported functions for a model without a container, which is a container with one model
 * that the host cannot see. Constants are given at its creation or later, and then their handles are the model's.
 */
#include "runtime/interface.h"
#include "runtime/update.h"

/* NULL, with a message, where the handle is NULL. */
static aoticache_container *find_model(AOTInductorModelHandle handle)
{
    aoticache_message_clear();
    if (handle == NULL)
        aoticache_message_set("the model is NULL");
    return (aoticache_container *)handle;
}

static AOTIRuntimeError set_constants(aoticache_container *model, const AOTInductorConstantMapEntry *pairs,
                                      size_t num_pairs)
{
    return aoticache_update_apply(model, pairs, num_pairs, AOTICACHE_UPDATE_USER_MANAGED, true);
}

AOTIRuntimeError aoticache_update_create_model(AOTInductorModelHandle *ret_model,
                                               const AOTInductorConstantMapEntry *pairs, size_t num_pairs)
{
    aoticache_container *model;
    aoticache_message_clear();
    if (ret_model == NULL)
        return aoticache_interface_fail_result("model");
    bool own_weights = pairs == NULL || num_pairs == 0;
    if (aoticache_container_create(aoticache_kernel_described(), 1, "cpu", NULL, own_weights, &model) !=
        AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    if (!own_weights && set_constants(model, pairs, num_pairs) != AOTICACHE_KERNEL_OK) {
        aoticache_container_free(model);
        return AOTICACHE_KERNEL_FAILURE;
    }
    *ret_model = (AOTInductorModelHandle)model;
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError aoticache_update_model(AOTInductorModelHandle handle, const AOTInductorConstantMapEntry *pairs,
                                        size_t num_pairs)
{
    aoticache_container *model = find_model(handle);
    return model == NULL ? AOTICACHE_KERNEL_FAILURE : set_constants(model, pairs, num_pairs);
}

AOTIRuntimeError AOTInductorModelCreateV2(AOTInductorModelHandle *ret_model, const AOTInductorConstantMapEntry *pairs,
                                          size_t num_pairs)
{
    return aoticache_update_create_model(ret_model, pairs, num_pairs);
}

AOTIRuntimeError AOTInductorModelUpdateConstantsMapV2(AOTInductorModelHandle handle,
                                                      const AOTInductorConstantMapEntry *pairs, int32_t num_pairs)
{
    aoticache_container *model = find_model(handle);
    if (model == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    if (num_pairs < 0)
        return aoticache_message_set("update_constants_map: %d pairs", (int)num_pairs);
    return set_constants(model, pairs, (size_t)num_pairs);
}

/* The arrays have as many places as the kernel has inputs and outputs; nothing here says how many there are. */
AOTIRuntimeError AOTInductorModelRun(AOTInductorModelHandle handle, AtenTensorHandle *inputs, AtenTensorHandle *outputs)
{
    aoticache_container *model = find_model(handle);
    if (model == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    return aoticache_container_run(model, inputs, model->kernel->num_inputs, outputs, model->kernel->num_outputs, NULL,
                                   NULL, false);
}

AOTIRuntimeError AOTInductorModelDelete(AOTInductorModelHandle handle)
{
    aoticache_message_clear();
    aoticache_container_free((aoticache_container *)handle);
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError AOTInductorModelGetNumOutputs(AOTInductorModelHandle handle, size_t *ret_num_outputs)
{
    const aoticache_container *model = find_model(handle);
    if (model == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    if (ret_num_outputs == NULL)
        return aoticache_interface_fail_result("number of outputs");
    *ret_num_outputs = model->kernel->num_outputs;
    return AOTICACHE_KERNEL_OK;
}

/* ---- runs on descriptors ---- */

static AOTIRuntimeError check_descriptors(const aoticache_kernel *kernel, int32_t num_inputs,
                                          const AOTInductorArrayRefTensor *inputs, int32_t num_outputs,
                                          const AOTInductorArrayRefTensor *outputs)
{
    if (kernel->run_arrayref == NULL)
        return aoticache_message_set("this kernel does not run on descriptors: it has no function run_arrayref");
    if (num_inputs < 0 || (size_t)num_inputs != kernel->num_inputs)
        return aoticache_message_set("expected inputs vector size to be %zu, but got %d", kernel->num_inputs,
                                     (int)num_inputs);
    if (num_outputs < 0 || (size_t)num_outputs != kernel->num_outputs)
        return aoticache_message_set("expected outputs vector size to be %zu, but got %d", kernel->num_outputs,
                                     (int)num_outputs);
    if ((num_inputs > 0 && inputs == NULL) || (num_outputs > 0 && outputs == NULL))
        return aoticache_message_set("no descriptors of %d inputs and %d outputs", (int)num_inputs, (int)num_outputs);
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError run_descriptors(aoticache_container *model, const AOTInductorArrayRefTensor *inputs,
                                        AOTInductorArrayRefTensor *outputs)
{
    aoticache_kernel_call call = {.kernel = model->kernel, .device_index = model->device.index,
                                  .device_type = model->device.type};
    if (aoticache_container_enter(model, NULL, NULL, &call.model) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    bool gradients = aoti_torch_grad_mode_is_enabled();
    aoti_torch_grad_mode_set_enabled(false);
    call.constants = model->active->constants;
    AOTIRuntimeError status = model->kernel->run_arrayref(&call, inputs, outputs);
    status = aoticache_container_judge(status, "the kernel");
    aoti_torch_grad_mode_set_enabled(gradients);
    aoticache_pool_give_back(model->pool, call.model);
    return status;
}

AOTIRuntimeError AOTInductorModelRunMinimalArrayrefInterfaceV2(AOTInductorModelHandle handle, int32_t num_inputs,
                                                               const AOTInductorArrayRefTensor *inputs,
                                                               int32_t num_outputs, AOTInductorArrayRefTensor *outputs)
{
    aoticache_container *model = find_model(handle);
    if (model == NULL ||
        check_descriptors(model->kernel, num_inputs, inputs, num_outputs, outputs) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    return run_descriptors(model, inputs, outputs);
}
