/*
 * runtime/interface: the exported AOTInductor functions, but for the constants' (interface_constants.c,
 * interface_update.c) and those of models without a container (interface_model.c).
 *
 * Every function begins with the thread's message cleared, so that AOTInductorGetLastError() speaks of the last call.
 * Exported functions never call one another: a host that loads several libraries globally would make them reach into
 * the first one's.
 *
 * Source: torch/csrc/inductor/aoti_runtime/interface.h.
 */
#include "runtime/interface.h"

aoticache_container *aoticache_interface_container(AOTInductorModelContainerHandle handle)
{
    aoticache_message_clear();
    if (handle == NULL)
        aoticache_message_set("the container is NULL");
    return (aoticache_container *)handle;
}

AOTIRuntimeError aoticache_interface_fail_result(const char *what)
{
    return aoticache_message_set("no place for the %s", what);
}

static AOTIRuntimeError create(AOTInductorModelContainerHandle *ret_container, size_t num_models, const char *device,
                               const char *directory)
{
    aoticache_container *container;
    aoticache_message_clear();
    if (ret_container == NULL)
        return aoticache_interface_fail_result("container");
    if (aoticache_container_create(aoticache_kernel_described(), num_models, device, directory, true, &container) !=
        AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    *ret_container = (AOTInductorModelContainerHandle)container;
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError AOTInductorModelContainerCreate(AOTInductorModelContainerHandle *ret_container, size_t num_models,
                                                 bool is_cpu, const char *cubin_dir)
{
    return create(ret_container, num_models, is_cpu ? "cpu" : "cuda", cubin_dir);
}

AOTIRuntimeError AOTInductorModelContainerCreateWithDevice(AOTInductorModelContainerHandle *ret_container,
                                                           size_t num_models, const char *device,
                                                           const char *cubin_dir)
{
    return create(ret_container, num_models, device, cubin_dir);
}

AOTIRuntimeError AOTInductorModelContainerDelete(AOTInductorModelContainerHandle handle)
{
    aoticache_message_clear();
    aoticache_container_free((aoticache_container *)handle);
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError AOTInductorModelContainerRun(AOTInductorModelContainerHandle container, AtenTensorHandle *inputs,
                                              size_t num_inputs, AtenTensorHandle *outputs, size_t num_outputs,
                                              AOTInductorStreamHandle stream, AOTIProxyExecutorHandle proxy_executor)
{
    return aoticache_container_run(aoticache_interface_container(container), inputs, num_inputs, outputs, num_outputs,
                                   stream, proxy_executor, false);
}

AOTIRuntimeError AOTInductorModelContainerRunSingleThreaded(AOTInductorModelContainerHandle container,
                                                            AtenTensorHandle *inputs, size_t num_inputs,
                                                            AtenTensorHandle *outputs, size_t num_outputs,
                                                            AOTInductorStreamHandle stream,
                                                            AOTIProxyExecutorHandle proxy_executor)
{
    return aoticache_container_run(aoticache_interface_container(container), inputs, num_inputs, outputs, num_outputs,
                                   stream, proxy_executor, true);
}

AOTIRuntimeError AOTInductorModelContainerGetNumInputs(AOTInductorModelContainerHandle handle, size_t *ret_num_inputs)
{
    const aoticache_container *container = aoticache_interface_container(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    if (ret_num_inputs == NULL)
        return aoticache_interface_fail_result("number of inputs");
    *ret_num_inputs = container->kernel->num_inputs;
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError AOTInductorModelContainerGetNumOutputs(AOTInductorModelContainerHandle handle, size_t *ret_num_outputs)
{
    const aoticache_container *container = aoticache_interface_container(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    if (ret_num_outputs == NULL)
        return aoticache_interface_fail_result("number of outputs");
    *ret_num_outputs = container->kernel->num_outputs;
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError get_name(const char *what, const char *const *names, size_t count, size_t position,
                                 const char **ret_name)
{
    if (ret_name == NULL)
        return aoticache_interface_fail_result("name");
    if (position >= count)
        return aoticache_message_set("%s %zu of a kernel with %zu", what, position, count);
    *ret_name = names[position];
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError AOTInductorModelContainerGetInputName(AOTInductorModelContainerHandle handle, size_t position,
                                                       const char **ret_name)
{
    const aoticache_container *container = aoticache_interface_container(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    return get_name("input", container->kernel->input_names, container->kernel->num_inputs, position, ret_name);
}

AOTIRuntimeError AOTInductorModelContainerGetOutputName(AOTInductorModelContainerHandle handle, size_t position,
                                                        const char **ret_name)
{
    const aoticache_container *container = aoticache_interface_container(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    return get_name("output", container->kernel->output_names, container->kernel->num_outputs, position, ret_name);
}

AOTIRuntimeError AOTInductorModelContainerGetCallSpec(AOTInductorModelContainerHandle handle, const char **ret_in_spec,
                                                      const char **ret_out_spec)
{
    const aoticache_container *container = aoticache_interface_container(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    if (ret_in_spec == NULL || ret_out_spec == NULL)
        return aoticache_interface_fail_result("call specification");
    const aoticache_kernel *kernel = container->kernel;
    *ret_in_spec = kernel->in_spec != NULL ? kernel->in_spec : "";
    *ret_out_spec = kernel->out_spec != NULL ? kernel->out_spec : "";
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError AOTInductorGetLastError(const char **ret_message)
{
    if (ret_message == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    *ret_message = aoticache_message_get();
    return AOTICACHE_KERNEL_OK;
}

/* One of each object of the interface is enough for the linker to take the object. */
const aoticache_kernel_any_fn aoticache_kernel_interface[] = {
    (aoticache_kernel_any_fn)AOTInductorModelContainerRun,
    (aoticache_kernel_any_fn)AOTInductorModelContainerGetNumConstants,
    (aoticache_kernel_any_fn)AOTInductorModelContainerSwapConstantBuffer,
    (aoticache_kernel_any_fn)AOTInductorModelDelete,
    (aoticache_kernel_any_fn)AOTInductorModelContainerUpdateConstantBuffer,
};
