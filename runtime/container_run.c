/*
 * runtime/container_run: one run for a host: counts checked, gradients off, a model taken and given back, inputs and outputs
 * with the right owner on every path.
 */
#include "runtime/runtime_internal.h"

#include <stdlib.h>

static void free_handles(AtenTensorHandle *handles, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (handles[i] != NULL)
            aoti_torch_delete_tensor_object(handles[i]);
        handles[i] = NULL;
    }
}

static AOTIRuntimeError check_call(const aoticache_kernel *kernel, const AtenTensorHandle *inputs, size_t num_inputs,
                                   const AtenTensorHandle *outputs, size_t num_outputs)
{
    if (num_inputs != kernel->num_inputs)
        return aoticache_message_set("expected inputs vector size to be %zu, but got %zu", kernel->num_inputs,
                                     num_inputs);
    if (num_outputs != kernel->num_outputs)
        return aoticache_message_set("expected outputs vector size to be %zu, but got %zu", kernel->num_outputs,
                                     num_outputs);
    if (outputs == NULL && num_outputs > 0)
        return aoticache_message_set("the array for %zu outputs is NULL", num_outputs);
    for (size_t i = 0; i < num_inputs; i++)
        if (inputs[i] == NULL)
            return aoticache_message_set("input %zu (%s) is NULL", i, kernel->input_names[i]);
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError check_outputs(const aoticache_kernel_call *call)
{
    for (size_t i = 0; i < call->kernel->num_outputs; i++)
        if (call->outputs[i] == NULL)
            return aoticache_message_set("the kernel did not make output %zu (%s)", i, call->kernel->output_names[i]);
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError run_kernel(aoticache_container *container, aoticache_kernel_call *call)
{
    call->constants = container->active->constants;
    AOTIRuntimeError status = container->kernel->run(call);
    if (status == AOTICACHE_KERNEL_OK)
        return check_outputs(call);
    return aoticache_message_of_status(status, "the kernel");
}

static AOTIRuntimeError run_with_model(aoticache_container *container, aoticache_kernel_call *call)
{
    if (aoticache_container_enter(container, call->stream, call->proxy_executor, &call->model) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    AOTIRuntimeError status = run_kernel(container, call);
    if (status == AOTICACHE_KERNEL_OK)
        return aoticache_pool_give_back_after(container->pool, call->model, call->stream);
    aoticache_pool_give_back(container->pool, call->model);
    return status;
}

/* Runs as model 0, which no other run has: the host guarantees that it makes no other call. */
static AOTIRuntimeError run_alone(aoticache_container *container, aoticache_kernel_call *call)
{
    if (container->active->state != AOTICACHE_BUFFER_FOLDED) {
        size_t model;
        if (aoticache_container_enter(container, call->stream, call->proxy_executor, &model) != AOTICACHE_KERNEL_OK)
            return AOTICACHE_KERNEL_FAILURE;
        aoticache_pool_give_back(container->pool, model);
    }
    return run_kernel(container, call);
}

static AOTIRuntimeError run_without_gradients(aoticache_container *container, aoticache_kernel_call *call, bool alone)
{
    bool gradients = aoti_torch_grad_mode_is_enabled();
    if (gradients)
        aoti_torch_grad_mode_set_enabled(false);
    AOTIRuntimeError status = alone ? run_alone(container, call) : run_with_model(container, call);
    aoti_torch_grad_mode_set_enabled(gradients);
    return status;
}

/* Runs. Outputs are collected in a separate array, so that a run that fails does not change the host's array. */
static AOTIRuntimeError run_checked(aoticache_container *container, aoticache_kernel_call *call,
                                    AtenTensorHandle *outputs, bool alone)
{
    enum { FEW = 8 };
    AtenTensorHandle few[FEW] = {NULL};
    size_t count = container->kernel->num_outputs;
    call->outputs = few;
    if (count > FEW) {
        call->outputs = calloc(count, sizeof *call->outputs);
        if (call->outputs == NULL)
            return aoticache_message_set("out of memory for %zu outputs", count);
    }
    AOTIRuntimeError status = run_without_gradients(container, call, alone);
    if (status == AOTICACHE_KERNEL_OK) {
        for (size_t i = 0; i < count; i++)
            outputs[i] = call->outputs[i];
    } else {
        free_handles(call->outputs, count);
    }
    if (call->outputs != few)
        free(call->outputs);
    return status;
}

AOTIRuntimeError aoticache_container_run(aoticache_container *container, AtenTensorHandle *inputs, size_t num_inputs,
                                         AtenTensorHandle *outputs, size_t num_outputs, AOTInductorStreamHandle stream,
                                         AOTIProxyExecutorHandle proxy_executor, bool alone)
{
    AOTIRuntimeError status = AOTICACHE_KERNEL_FAILURE;
    if (inputs == NULL)
        num_inputs = 0;
    if (container != NULL)
        status = check_call(container->kernel, inputs, num_inputs, outputs, num_outputs);
    if (status == AOTICACHE_KERNEL_OK) {
        aoticache_kernel_call call = {.kernel = container->kernel,
                                      .inputs = inputs,
                                      .stream = stream,
                                      .proxy_executor = proxy_executor,
                                      .device_index = container->device.index,
                                      .device_type = container->device.type};
        status = run_checked(container, &call, outputs, alone);
    }
    free_handles(inputs, num_inputs);
    return status;
}
