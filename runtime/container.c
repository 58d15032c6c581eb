/*
 * runtime/container: creating a container from a description that is checked first, and running it.
 */
#include "runtime/container.h"

#include <stdlib.h>
#include <string.h>

static AOTIRuntimeError check_names(const char *what, size_t count, const char *const *names)
{
    if (count > 0 && names == NULL)
        return aoticache_message_set("the kernel's description has %zu %ss, but no names", count, what);
    for (size_t i = 0; i < count; i++)
        if (names[i] == NULL)
            return aoticache_message_set("the kernel's description has no name for %s %zu", what, i);
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError check_constants(const aoticache_kernel *kernel)
{
    if (kernel->num_constants > 0 && kernel->constants == NULL)
        return aoticache_message_set("the kernel's description has %zu constants, but no list of them",
                                     kernel->num_constants);
    for (size_t i = 0; i < kernel->num_constants; i++) {
        const aoticache_kernel_constant *constant = &kernel->constants[i];
        if (constant->name == NULL || constant->original_fqn == NULL)
            return aoticache_message_set("the kernel's description has no name for constant %zu", i);
        if (constant->from_folded && kernel->fold == NULL)
            return aoticache_message_set("constant %s is folded, but the kernel has no function that folds",
                                         constant->name);
    }
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError check_description(const aoticache_kernel *kernel)
{
    if (kernel->size != sizeof *kernel)
        return aoticache_message_set("the kernel's description has %zu bytes, this runtime's has %zu", kernel->size,
                                     sizeof *kernel);
    if (kernel->device == NULL || kernel->run == NULL)
        return aoticache_message_set("the kernel's description has no %s",
                                     kernel->device == NULL ? "device" : "run function");
    if (check_names("input", kernel->num_inputs, kernel->input_names) != AOTICACHE_KERNEL_OK ||
        check_names("output", kernel->num_outputs, kernel->output_names) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    return check_constants(kernel);
}

/* "cpu" for "cpu"; "cpu:N" too, the number means nothing there. */
static AOTIRuntimeError check_device(const aoticache_kernel *kernel, const char *device)
{
    if (strcmp(kernel->device, "cpu") != 0)
        return aoticache_message_set("the kernel's description says device %s; this runtime knows cpu", kernel->device);
    if (device == NULL)
        return aoticache_message_set("no device is given; this kernel is for %s", kernel->device);
    size_t digits = strncmp(device, "cpu:", 4) == 0 ? strspn(device + 4, "0123456789") : 0;
    if (strcmp(device, "cpu") != 0 && (digits == 0 || device[4 + digits] != '\0'))
        return aoticache_message_set("device %s is asked for; this kernel is for %s", device, kernel->device);
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError aoticache_container_create(const aoticache_kernel *kernel, size_t num_models, const char *device,
                                            aoticache_container **ret_container)
{
    if (num_models == 0)
        return aoticache_message_set("num_models must be positive, but got 0");
    if (check_description(kernel) != AOTICACHE_KERNEL_OK || check_device(kernel, device) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    aoticache_container *container = calloc(1, sizeof *container);
    if (container == NULL)
        return aoticache_message_set("out of memory for a container");
    container->kernel = kernel;
    container->num_models = num_models;
    container->device_type = AOTICACHE_DEVICE_TYPE_CPU;
    container->device_index = -1;
    pthread_mutex_init(&container->fold_lock, NULL);
    if (aoticache_constants_create(container) != AOTICACHE_KERNEL_OK) {
        aoticache_container_free(container);
        return AOTICACHE_KERNEL_FAILURE;
    }
    *ret_container = container;
    return AOTICACHE_KERNEL_OK;
}

void aoticache_container_free(aoticache_container *container)
{
    if (container == NULL)
        return;
    aoticache_constants_free(container);
    pthread_mutex_destroy(&container->fold_lock);
    free(container);
}

/* ---- running ---- */

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
        return aoticache_message_set("no place for %zu outputs", num_outputs);
    for (size_t i = 0; i < num_inputs; i++)
        if (inputs[i] == NULL)
            return aoticache_message_set("input %zu (%s) is NULL", i, kernel->input_names[i]);
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError check_made(const aoticache_kernel_call *call)
{
    for (size_t i = 0; i < call->kernel->num_outputs; i++)
        if (call->outputs[i] == NULL)
            return aoticache_message_set("the kernel did not make output %zu (%s)", i, call->kernel->output_names[i]);
    return AOTICACHE_KERNEL_OK;
}

/* Outputs are collected apart from the host's array, so that a run that fails leaves it as it was. */
static AOTIRuntimeError run_kernel(aoticache_container *container, aoticache_kernel_call *call)
{
    AOTIRuntimeError status = aoticache_constants_prepare(container, call->stream, call->proxy_executor);
    if (status != AOTICACHE_KERNEL_OK)
        return status;
    status = container->kernel->run(call);
    if (status == AOTICACHE_KERNEL_OK)
        return check_made(call);
    if (aoticache_message_get()[0] == '\0')
        aoticache_message_set("the kernel failed with status %d", (int)status);
    return AOTICACHE_KERNEL_FAILURE;
}

static AOTIRuntimeError run_without_gradients(aoticache_container *container, aoticache_kernel_call *call)
{
    bool gradients = aoti_torch_grad_mode_is_enabled();
    aoti_torch_grad_mode_set_enabled(false);
    AOTIRuntimeError status = run_kernel(container, call);
    aoti_torch_grad_mode_set_enabled(gradients);
    return status;
}

static AOTIRuntimeError run_checked(aoticache_container *container, aoticache_kernel_call *call,
                                    AtenTensorHandle *outputs)
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
    AOTIRuntimeError status = run_without_gradients(container, call);
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
                                         AOTIProxyExecutorHandle proxy_executor)
{
    AOTIRuntimeError status = AOTICACHE_KERNEL_FAILURE;
    if (inputs == NULL)
        num_inputs = 0;
    if (container != NULL)
        status = check_call(container->kernel, inputs, num_inputs, outputs, num_outputs);
    if (status == AOTICACHE_KERNEL_OK) {
        aoticache_kernel_call call = {.kernel = container->kernel, .inputs = inputs, .constants = container->constants,
                                      .stream = stream, .proxy_executor = proxy_executor,
                                      .device_index = container->device_index};
        status = run_checked(container, &call, outputs);
    }
    free_handles(inputs, num_inputs);
    return status;
}
