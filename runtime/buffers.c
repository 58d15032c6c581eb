/*
 * runtime/buffers: one buffer of constants: tensors over the library's own weights or over slots in a blob, and the
 * folding of the rest.
 *
 * On the CPU the library's own weights are used in place, in read-only pages that all processes share.
 */
#include "runtime/runtime_internal.h"

#include <stdlib.h>

AOTIRuntimeError aoticache_buffer_create(const aoticache_container *container, aoticache_buffer *buffer)
{
    size_t count = container->kernel->num_constants;
    /* Allocate at least one, so that NULL means failure. */
    buffer->constants = calloc(count + 1, sizeof *buffer->constants);
    if (buffer->constants == NULL)
        return aoticache_message_set("out of memory for %zu constants", count);
    buffer->state = AOTICACHE_BUFFER_NONE;
    return AOTICACHE_KERNEL_OK;
}

static void free_tensors(AtenTensorHandle *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (tensors[i] != NULL)
            aoti_torch_delete_tensor_object(tensors[i]);
        tensors[i] = NULL;
    }
}

void aoticache_buffer_reset(const aoticache_container *container, aoticache_buffer *buffer)
{
    free_tensors(buffer->constants, container->kernel->num_constants);
    if (buffer->blob != NULL)
        container->device.functions->free(buffer->blob);
    buffer->blob = NULL;
    buffer->state = AOTICACHE_BUFFER_NONE;
}

void aoticache_buffer_free(const aoticache_container *container, aoticache_buffer *buffer)
{
    if (buffer->constants == NULL)
        return;
    aoticache_buffer_reset(container, buffer);
    free(buffer->constants);
    buffer->constants = NULL;
}

AOTIRuntimeError aoticache_buffer_need_blob(const aoticache_container *container, aoticache_buffer *buffer)
{
    void *blob;
    if (buffer->blob != NULL || container->blob_bytes == 0)
        return AOTICACHE_KERNEL_OK;
    if (container->device.functions->allocate(container->blob_bytes, &blob) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    buffer->blob = blob;
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError create_tensor(const aoticache_container *container, size_t position, const void *data,
                                      const int64_t *strides, int64_t storage_offset, AtenTensorHandle *ret_tensor)
{
    const aoticache_kernel_constant *constant = &container->kernel->constants[position];
    if (aoti_torch_create_tensor_from_blob((void *)(uintptr_t)data, constant->ndim, constant->sizes, strides,
                                           storage_offset, constant->dtype, container->device.type,
                                           container->device.index, ret_tensor) != 0)
        return aoticache_kernel_fail_torch(NULL, constant->name);
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError aoticache_buffer_slot_tensor(const aoticache_container *container, const aoticache_buffer *buffer,
                                              size_t position, const int64_t *strides, int64_t storage_offset,
                                              AtenTensorHandle *ret_tensor)
{
    const uint8_t *place = buffer->blob != NULL ? buffer->blob + container->offsets[position] : NULL;
    return create_tensor(container, position, place, strides, storage_offset, ret_tensor);
}

/* Returns the library's own weights for a constant. NULL: they come from elsewhere. */
static const void *find_own_weights(const aoticache_container *container, size_t position)
{
    if (container->kernel->constants[position].data != NULL)
        return container->kernel->constants[position].data;
    return container->weights.data != NULL ? container->weights.data + container->offsets[position] : NULL;
}

static AOTIRuntimeError load_constant(const aoticache_container *container, aoticache_buffer *buffer, size_t position,
                                      const void *data)
{
    const aoticache_kernel_constant *constant = &container->kernel->constants[position];
    if (container->device.type != AOTICACHE_DEVICE_TYPE_CPU) {
        if (aoticache_buffer_need_blob(container, buffer) != AOTICACHE_KERNEL_OK)
            return AOTICACHE_KERNEL_FAILURE;
        void *place = buffer->blob != NULL ? buffer->blob + container->offsets[position] : NULL;
        if (constant->data_size > 0 &&
            container->device.functions->copy_in(place, data, constant->data_size) != AOTICACHE_KERNEL_OK)
            return AOTICACHE_KERNEL_FAILURE;
        data = place;
    }
    return create_tensor(container, position, data, constant->strides, constant->storage_offset,
                         &buffer->constants[position]);
}

AOTIRuntimeError aoticache_buffer_load(const aoticache_container *container, aoticache_buffer *buffer)
{
    const aoticache_kernel *kernel = container->kernel;
    for (size_t i = 0; i < kernel->num_constants; i++) {
        const void *data = find_own_weights(container, i);
        if (kernel->constants[i].from_folded || (data == NULL && kernel->constants[i].data_size > 0))
            continue;
        if (load_constant(container, buffer, i, data) != AOTICACHE_KERNEL_OK)
            return AOTICACHE_KERNEL_FAILURE;
    }
    return AOTICACHE_KERNEL_OK;
}

/* ---- folding ---- */

/* Stores the results of a fold: exactly the folded constants, all of them. */
static AOTIRuntimeError store_folded(const aoticache_container *container, aoticache_buffer *buffer,
                                     AtenTensorHandle *made)
{
    const aoticache_kernel *kernel = container->kernel;
    for (size_t i = 0; i < kernel->num_constants; i++) {
        if (kernel->constants[i].from_folded && made[i] == NULL)
            return aoticache_message_set("folding did not produce constant %s", kernel->constants[i].name);
        if (!kernel->constants[i].from_folded && made[i] != NULL)
            return aoticache_message_set("folding produced constant %s, which is not a folded constant",
                                         kernel->constants[i].name);
    }
    for (size_t i = 0; i < kernel->num_constants; i++) {
        if (made[i] == NULL)
            continue;
        AtenTensorHandle before = buffer->constants[i];
        buffer->constants[i] = made[i];
        made[i] = before;
    }
    return AOTICACHE_KERNEL_OK;
}

/*
 * Makes the list of constants for the function that folds: those that it makes are NULL, even if an earlier fold made
 * them.
 */
static AtenTensorHandle *hide_folded(const aoticache_container *container, const aoticache_buffer *buffer)
{
    const aoticache_kernel *kernel = container->kernel;
    AtenTensorHandle *given = calloc(kernel->num_constants + 1, sizeof(AtenTensorHandle));
    for (size_t i = 0; given != NULL && i < kernel->num_constants; i++)
        given[i] = kernel->constants[i].from_folded ? NULL : buffer->constants[i];
    return given;
}

static AOTIRuntimeError call_fold(const aoticache_container *container, aoticache_kernel_call *call)
{
    bool gradients = aoti_torch_grad_mode_is_enabled();
    aoti_torch_grad_mode_set_enabled(false);
    AOTIRuntimeError status = container->kernel->fold(call);
    aoti_torch_grad_mode_set_enabled(gradients);
    status = aoticache_message_of_status(status, "folding the constants");
    if (status == AOTICACHE_KERNEL_OK)
        status = aoticache_pool_finish(container->pool, call->model, call->stream);
    return status;
}

static AOTIRuntimeError fold_constants(const aoticache_container *container, aoticache_buffer *buffer, size_t model,
                                       AOTInductorStreamHandle stream, AOTIProxyExecutorHandle proxy_executor)
{
    size_t count = container->kernel->num_constants;
    AtenTensorHandle *made = calloc(count + 1, sizeof(AtenTensorHandle));
    AtenTensorHandle *given = hide_folded(container, buffer);
    AOTIRuntimeError status;
    if (made != NULL && given != NULL) {
        aoticache_kernel_call call = {.kernel = container->kernel,
                                      .outputs = made,
                                      .constants = given,
                                      .stream = stream,
                                      .proxy_executor = proxy_executor,
                                      .device_index = container->device.index,
                                      .device_type = container->device.type,
                                      .model = model};
        status = call_fold(container, &call);
        if (status == AOTICACHE_KERNEL_OK)
            status = store_folded(container, buffer, made);
        free_tensors(made, count);
    } else {
        status = aoticache_message_set("out of memory for folding %zu constants", count);
    }
    free(made);
    free(given);
    return status;
}

/* Checks that every constant that is not made by folding has a value. */
static AOTIRuntimeError check_complete(const aoticache_container *container, const aoticache_buffer *buffer)
{
    for (size_t i = 0; i < container->kernel->num_constants; i++)
        if (buffer->constants[i] == NULL && !container->kernel->constants[i].from_folded)
            return aoticache_message_set("constant %s has no data: its weights are not part of this library, and no "
                                         "update has set them",
                                         container->kernel->constants[i].name);
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError aoticache_buffer_fold(const aoticache_container *container, aoticache_buffer *buffer, size_t model,
                                       AOTInductorStreamHandle stream, AOTIProxyExecutorHandle proxy_executor)
{
    AOTIRuntimeError status = check_complete(container, buffer);
    if (status == AOTICACHE_KERNEL_OK && container->kernel->fold != NULL)
        status = fold_constants(container, buffer, model, stream, proxy_executor);
    if (status == AOTICACHE_KERNEL_OK)
        buffer->state = AOTICACHE_BUFFER_FOLDED;
    return status;
}
