/*
 * runtime/interface: the exported AOTInductor functions.
 *
 * Every function first clears the thread's message, so that AOTInductorGetLastError() is about the last call. Exported
 * functions never call one another: in a host that loads several libraries globally they would call those of the first
 * library.
 *
 * Source: torch/csrc/inductor/aoti_runtime/interface.h.
 */
#include "runtime/runtime_internal.h"

#include "runtime/update.h"

#include <stdlib.h>

/* Begins every function. Returns NULL, with a message, if the handle is NULL. */
static aoticache_container *begin_call(AOTInductorModelContainerHandle handle)
{
    aoticache_message_clear();
    if (handle == NULL)
        aoticache_message_set("the container is NULL");
    return (aoticache_container *)handle;
}

static AOTIRuntimeError fail_without_place(const char *what)
{
    return aoticache_message_set("the output pointer for the %s is NULL", what);
}

static AOTIRuntimeError create_container(AOTInductorModelContainerHandle *ret_container, size_t num_models,
                                         const char *device, const char *directory)
{
    aoticache_container *container;
    aoticache_message_clear();
    if (ret_container == NULL)
        return fail_without_place("container");
    if (aoticache_container_create(aoticache_kernel_described(), num_models, device, directory, true, &container) !=
        AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    *ret_container = (AOTInductorModelContainerHandle)container;
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError AOTInductorModelContainerCreate(AOTInductorModelContainerHandle *ret_container, size_t num_models,
                                                 bool is_cpu, const char *cubin_dir)
{
    return create_container(ret_container, num_models, is_cpu ? "cpu" : "cuda", cubin_dir);
}

AOTIRuntimeError AOTInductorModelContainerCreateWithDevice(AOTInductorModelContainerHandle *ret_container,
                                                           size_t num_models, const char *device, const char *cubin_dir)
{
    return create_container(ret_container, num_models, device, cubin_dir);
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
    return aoticache_container_run(begin_call(container), inputs, num_inputs, outputs, num_outputs, stream,
                                   proxy_executor, false);
}

AOTIRuntimeError AOTInductorModelContainerRunSingleThreaded(AOTInductorModelContainerHandle container,
                                                            AtenTensorHandle *inputs, size_t num_inputs,
                                                            AtenTensorHandle *outputs, size_t num_outputs,
                                                            AOTInductorStreamHandle stream,
                                                            AOTIProxyExecutorHandle proxy_executor)
{
    return aoticache_container_run(begin_call(container), inputs, num_inputs, outputs, num_outputs, stream,
                                   proxy_executor, true);
}

const aoticache_kernel *aoticache_plain_kernel_v3(AOTInductorModelContainerHandle handle)
{
    const aoticache_container *container = (const aoticache_container *)handle;
    bool plain = container != NULL && container->kernel->plain && container->kernel->num_constants == 0 &&
                 container->device.type == AOTICACHE_DEVICE_TYPE_CPU;
    return plain ? container->kernel : NULL;
}

AOTIRuntimeError AOTInductorModelContainerGetNumInputs(AOTInductorModelContainerHandle handle, size_t *ret_num_inputs)
{
    const aoticache_container *container = begin_call(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    if (ret_num_inputs == NULL)
        return fail_without_place("number of inputs");
    *ret_num_inputs = container->kernel->num_inputs;
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError AOTInductorModelContainerGetNumOutputs(AOTInductorModelContainerHandle handle, size_t *ret_num_outputs)
{
    const aoticache_container *container = begin_call(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    if (ret_num_outputs == NULL)
        return fail_without_place("number of outputs");
    *ret_num_outputs = container->kernel->num_outputs;
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError get_name(const char *what, const char *const *names, size_t count, size_t position,
                                 const char **ret_name)
{
    if (ret_name == NULL)
        return fail_without_place("name");
    if (position >= count)
        return aoticache_message_set("there is no %s %zu: the kernel has %zu", what, position, count);
    *ret_name = names[position];
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError AOTInductorModelContainerGetInputName(AOTInductorModelContainerHandle handle, size_t position,
                                                       const char **ret_name)
{
    const aoticache_container *container = begin_call(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    return get_name("input", container->kernel->input_names, container->kernel->num_inputs, position, ret_name);
}

AOTIRuntimeError AOTInductorModelContainerGetOutputName(AOTInductorModelContainerHandle handle, size_t position,
                                                        const char **ret_name)
{
    const aoticache_container *container = begin_call(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    return get_name("output", container->kernel->output_names, container->kernel->num_outputs, position, ret_name);
}

AOTIRuntimeError AOTInductorModelContainerGetCallSpec(AOTInductorModelContainerHandle handle, const char **ret_in_spec,
                                                      const char **ret_out_spec)
{
    const aoticache_container *container = begin_call(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    if (ret_in_spec == NULL || ret_out_spec == NULL)
        return fail_without_place("call specification");
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

/* ---- properties of constants ---- */

AOTIRuntimeError AOTInductorModelContainerGetNumConstants(AOTInductorModelContainerHandle handle,
                                                          size_t *ret_num_constants)
{
    const aoticache_container *container = begin_call(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    if (ret_num_constants == NULL)
        return fail_without_place("number of constants");
    *ret_num_constants = container->kernel->num_constants;
    return AOTICACHE_KERNEL_OK;
}

/* Finds a constant by its position. NULL, with a message, if there is none. */
static const aoticache_kernel_constant *find_constant(AOTInductorModelContainerHandle handle, size_t position,
                                                      const void *ret_place)
{
    const aoticache_container *container = begin_call(handle);
    if (container == NULL)
        return NULL;
    if (ret_place == NULL) {
        fail_without_place("result");
        return NULL;
    }
    if (position >= container->kernel->num_constants) {
        aoticache_message_set("there is no constant %zu: the kernel has %zu", position,
                              container->kernel->num_constants);
        return NULL;
    }
    return &container->kernel->constants[position];
}

/* Functions that return one field of a constant. */
#define DEFINE_CONSTANT_QUERY(name, type, field)                                                        \
    AOTIRuntimeError AOTInductorModelContainerGetConstant##name(AOTInductorModelContainerHandle handle, \
                                                                size_t position, type *ret_value)       \
    {                                                                                                   \
        const aoticache_kernel_constant *constant = find_constant(handle, position, ret_value);         \
        if (constant == NULL)                                                                           \
            return AOTICACHE_KERNEL_FAILURE;                                                            \
        *ret_value = constant->field;                                                                   \
        return AOTICACHE_KERNEL_OK;                                                                     \
    }

DEFINE_CONSTANT_QUERY(Name, const char *, name)
DEFINE_CONSTANT_QUERY(OriginalFQN, const char *, original_fqn)
DEFINE_CONSTANT_QUERY(FromFolded, bool, from_folded)
DEFINE_CONSTANT_QUERY(Type, int32_t, type)
DEFINE_CONSTANT_QUERY(Dtype, int32_t, dtype)
DEFINE_CONSTANT_QUERY(DataSize, size_t, data_size)

/*
 * ---- changing constants ----
 *
 * The forms that take a std::unordered_map are exported by constant_map.cpp, over runtime/update.h.
 */

typedef AOTInductorModelContainerHandle container_handle;

AOTIRuntimeError aoticache_update_fail(const char *message)
{
    return aoticache_message_set("%s", message);
}

AOTIRuntimeError aoticache_update_constants(container_handle handle, const AOTInductorConstantMapEntry *pairs,
                                            size_t num_pairs, unsigned flags)
{
    aoticache_container *container = begin_call(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    return aoticache_update_apply(container, pairs, num_pairs, flags, false);
}

static unsigned flags_of(bool use_inactive, bool validate_full_update)
{
    return (use_inactive ? AOTICACHE_UPDATE_INACTIVE : 0u) | (validate_full_update ? AOTICACHE_UPDATE_VALIDATE : 0u);
}

AOTIRuntimeError AOTInductorModelContainerUpdateConstantBufferPairs(container_handle handle,
                                                                    const AOTInductorConstantMapEntry *pairs,
                                                                    size_t num_pairs, bool use_inactive,
                                                                    bool validate_full_update)
{
    return aoticache_update_constants(handle, pairs, num_pairs, flags_of(use_inactive, validate_full_update));
}

AOTIRuntimeError AOTInductorModelContainerUpdateInactiveConstantBufferPairs(container_handle handle,
                                                                            const AOTInductorConstantMapEntry *pairs,
                                                                            size_t num_pairs)
{
    return aoticache_update_constants(handle, pairs, num_pairs, flags_of(true, true));
}

AOTIRuntimeError AOTInductorModelContainerUpdateUserManagedConstantBufferPairs(container_handle handle,
                                                                               const AOTInductorConstantMapEntry *pairs,
                                                                               size_t num_pairs, bool use_inactive,
                                                                               bool validate_full_update)
{
    return aoticache_update_constants(handle, pairs, num_pairs,
                                      flags_of(use_inactive, validate_full_update) | AOTICACHE_UPDATE_USER_MANAGED);
}

AOTIRuntimeError AOTInductorModelContainerUpdateConstantBufferFromCpuPairs(container_handle handle,
                                                                           const AOTInductorConstantMapEntry *pairs,
                                                                           size_t num_pairs, bool use_inactive,
                                                                           bool validate_full_update)
{
    return aoticache_update_constants(handle, pairs, num_pairs,
                                      flags_of(use_inactive, validate_full_update) | AOTICACHE_UPDATE_FROM_CPU);
}

AOTIRuntimeError AOTInductorModelContainerRunConstantFolding(container_handle handle, bool use_inactive,
                                                             AOTInductorStreamHandle stream,
                                                             AOTIProxyExecutorHandle proxy_executor)
{
    aoticache_container *container = begin_call(handle);
    return container == NULL ? AOTICACHE_KERNEL_FAILURE
                             : aoticache_container_fold(container, use_inactive, stream, proxy_executor);
}

AOTIRuntimeError AOTInductorModelContainerSwapConstantBuffer(container_handle handle)
{
    aoticache_container *container = begin_call(handle);
    return container == NULL ? AOTICACHE_KERNEL_FAILURE : aoticache_container_swap(container);
}

AOTIRuntimeError AOTInductorModelContainerFreeInactiveConstantBuffer(container_handle handle)
{
    aoticache_container *container = begin_call(handle);
    return container == NULL ? AOTICACHE_KERNEL_FAILURE : aoticache_container_free_inactive(container);
}

/* ---- listing ---- */

static size_t list_constants(aoticache_container *container, bool use_inactive)
{
    const aoticache_kernel *kernel = container->kernel;
    const aoticache_buffer *buffer = use_inactive ? aoticache_container_inactive(container) : container->active;
    size_t count = 0;
    for (size_t i = 0; i < kernel->num_constants; i++)
        if (!kernel->constants[i].from_folded && buffer->constants[i] != NULL)
            container->extracted[count++] =
                (AOTInductorConstantMapEntry){kernel->constants[i].original_fqn, buffer->constants[i]};
    return count;
}

AOTIRuntimeError aoticache_update_extract(container_handle handle, bool use_inactive,
                                          const AOTInductorConstantMapEntry **ret_entries, size_t *ret_num_entries)
{
    aoticache_container *container = begin_call(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    if (ret_entries == NULL || ret_num_entries == NULL)
        return fail_without_place("entries");
    AOTIRuntimeError status = AOTICACHE_KERNEL_OK;
    pthread_mutex_lock(&container->writers);
    if (container->extracted == NULL)
        container->extracted = calloc(container->kernel->num_constants + 1, sizeof *container->extracted);
    if (container->extracted != NULL) {
        *ret_num_entries = list_constants(container, use_inactive);
        *ret_entries = container->extracted;
    } else {
        status = aoticache_message_set("out of memory for %zu constants", container->kernel->num_constants);
    }
    pthread_mutex_unlock(&container->writers);
    return status;
}

AOTIRuntimeError AOTInductorModelContainerExtractConstantsMapEntries(container_handle handle,
                                                                     const AOTInductorConstantMapEntry **ret_entries,
                                                                     size_t *ret_num_entries, bool use_inactive)
{
    return aoticache_update_extract(handle, use_inactive, ret_entries, ret_num_entries);
}

/* ---- one blob ---- */

/*
 * Uses PyTorch's messages and results: its libraries with embedded weights report no size, and silently ignore a blob.
 */
AOTIRuntimeError AOTInductorModelContainerGetConstantsBlobSize(container_handle handle, uint64_t *ret_bytes)
{
    const aoticache_container *container = begin_call(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    if (ret_bytes == NULL)
        return fail_without_place("size of the blob");
    if (container->kernel->weights == AOTICACHE_KERNEL_WEIGHTS_EMBEDDED)
        return aoticache_message_set("constant blob size is only available for mmap'd weights");
    *ret_bytes = container->blob_bytes;
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError AOTInductorModelUpdateConstantsFromBlob(container_handle handle, const uint8_t *weights)
{
    aoticache_container *container = begin_call(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    if (container->kernel->weights == AOTICACHE_KERNEL_WEIGHTS_EMBEDDED)
        return AOTICACHE_KERNEL_OK;
    return aoticache_update_from_blob(container, weights);
}

/*
 * ---- models without a container ----
 *
 * Such a model is a container with one model, hidden from the host. Constants are given at its creation or later, and
 * the model then owns their handles.
 */

/* Returns the container. NULL, with a message, if the handle is NULL. */
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
        return fail_without_place("model");
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
        return aoticache_message_set("update_constants_map: the number of pairs is %d", (int)num_pairs);
    return set_constants(model, pairs, (size_t)num_pairs);
}

/*
 * Runs a model. The arrays have as many elements as the kernel has inputs and outputs; the interface does not pass
 * their numbers.
 */
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
        return fail_without_place("number of outputs");
    *ret_num_outputs = model->kernel->num_outputs;
    return AOTICACHE_KERNEL_OK;
}

/* ---- runs on descriptors ---- */

static AOTIRuntimeError check_descriptors(const aoticache_kernel *kernel, int32_t num_inputs,
                                          const AOTInductorArrayRefTensor *inputs, int32_t num_outputs,
                                          const AOTInductorArrayRefTensor *outputs)
{
    if (kernel->run_arrayref == NULL)
        return aoticache_message_set("this kernel does not run on descriptors: it has no run_arrayref function");
    if (num_inputs < 0 || (size_t)num_inputs != kernel->num_inputs)
        return aoticache_message_set("expected inputs vector size to be %zu, but got %d", kernel->num_inputs,
                                     (int)num_inputs);
    if (num_outputs < 0 || (size_t)num_outputs != kernel->num_outputs)
        return aoticache_message_set("expected outputs vector size to be %zu, but got %d", kernel->num_outputs,
                                     (int)num_outputs);
    if ((num_inputs > 0 && inputs == NULL) || (num_outputs > 0 && outputs == NULL))
        return aoticache_message_set("the descriptors of %d inputs or %d outputs are NULL", (int)num_inputs,
                                     (int)num_outputs);
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError run_descriptors(aoticache_container *model, const AOTInductorArrayRefTensor *inputs,
                                        AOTInductorArrayRefTensor *outputs)
{
    aoticache_kernel_call call = {
        .kernel = model->kernel, .device_index = model->device.index, .device_type = model->device.type};
    if (aoticache_container_enter(model, NULL, NULL, &call.model) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    bool gradients = aoti_torch_grad_mode_is_enabled();
    aoti_torch_grad_mode_set_enabled(false);
    call.constants = model->active->constants;
    AOTIRuntimeError status = model->kernel->run_arrayref(&call, inputs, outputs);
    status = aoticache_message_of_status(status, "the kernel");
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
