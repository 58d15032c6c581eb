/*
 * runtime/update_blob: all constants of the active buffer at once, from one blob of the host's.
 */
#include <stdlib.h>

#include "runtime/container.h"

static AOTIRuntimeError create_tensors(const aoticache_container *container, AtenTensorHandle *tensors)
{
    const aoticache_kernel *kernel = container->kernel;
    for (size_t i = 0; i < kernel->num_constants; i++) {
        const aoticache_kernel_constant *constant = &kernel->constants[i];
        if (!constant->from_folded &&
            aoticache_buffer_slot_tensor(container, container->active, i, constant->strides, constant->storage_offset,
                                         &tensors[i]) != AOTICACHE_KERNEL_OK)
            return AOTICACHE_KERNEL_FAILURE;
    }
    return AOTICACHE_KERNEL_OK;
}

/* With all models taken. What was there before is left in `tensors`. */
static AOTIRuntimeError exchange(aoticache_container *container, const uint8_t *weights, AtenTensorHandle *tensors)
{
    aoticache_buffer *buffer = container->active;
    buffer->state = AOTICACHE_BUFFER_INITIALIZED;
    if (container->blob_bytes > 0 &&
        container->device.functions->copy_in(buffer->blob, weights, container->blob_bytes) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    for (size_t i = 0; i < container->kernel->num_constants; i++) {
        AtenTensorHandle before = buffer->constants[i];
        if (tensors[i] == NULL)
            continue;
        buffer->constants[i] = tensors[i];
        tensors[i] = before;
    }
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError replace_all(aoticache_container *container, const uint8_t *weights, AtenTensorHandle *tensors)
{
    if (aoticache_buffer_need_blob(container, container->active) != AOTICACHE_KERNEL_OK ||
        create_tensors(container, tensors) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    aoticache_pool_lock_all(container->pool);
    AOTIRuntimeError status = exchange(container, weights, tensors);
    aoticache_pool_unlock_all(container->pool);
    return status;
}

AOTIRuntimeError aoticache_update_from_blob(aoticache_container *container, const uint8_t *weights)
{
    size_t count = container->kernel->num_constants;
    if (weights == NULL)
        return aoticache_message_set("there is no blob of weights; %zu bytes are expected", container->blob_bytes);
    AtenTensorHandle *tensors = calloc(count + 1, sizeof(AtenTensorHandle));
    if (tensors == NULL)
        return aoticache_message_set("out of memory for %zu constants", count);
    pthread_mutex_lock(&container->writers);
    AOTIRuntimeError status = replace_all(container, weights, tensors);
    pthread_mutex_unlock(&container->writers);
    for (size_t i = 0; i < count; i++)
        if (tensors[i] != NULL)
            aoti_torch_delete_tensor_object(tensors[i]);
    free(tensors);
    return status;
}
