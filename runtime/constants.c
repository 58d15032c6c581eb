/*
 * runtime/constants: a container's constants: tensors over embedded data, and the folding of the rest before the
 * first run.
 *
 * Embedded data is used where it lies, in the library's read-only pages, which all processes share.
 */
#include <stdlib.h>

#include "runtime/container.h"

static AOTIRuntimeError create_constant(const aoticache_container *container, const aoticache_kernel_constant *constant,
                                        AtenTensorHandle *ret_tensor)
{
    if (aoti_torch_create_tensor_from_blob((void *)(uintptr_t)constant->data, constant->ndim, constant->sizes,
                                           constant->strides, constant->storage_offset, constant->dtype,
                                           container->device_type, container->device_index, ret_tensor) != 0)
        return aoticache_kernel_fail_torch(NULL, constant->name);
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError aoticache_constants_create(aoticache_container *container)
{
    const aoticache_kernel *kernel = container->kernel;
    bool foldable = false;
    if (kernel->num_constants > 0) {
        container->constants = calloc(kernel->num_constants, sizeof *container->constants);
        if (container->constants == NULL)
            return aoticache_message_set("out of memory for %zu constants", kernel->num_constants);
    }
    for (size_t i = 0; i < kernel->num_constants; i++) {
        const aoticache_kernel_constant *constant = &kernel->constants[i];
        foldable |= constant->from_folded;
        /* Without data and not empty: its weights come from elsewhere. */
        if (constant->from_folded || (constant->data == NULL && constant->data_size > 0))
            continue;
        if (create_constant(container, constant, &container->constants[i]) != AOTICACHE_KERNEL_OK)
            return AOTICACHE_KERNEL_FAILURE;
    }
    atomic_init(&container->folded, !foldable && kernel->num_constants == 0);
    return AOTICACHE_KERNEL_OK;
}

static void free_tensors(AtenTensorHandle *tensors, size_t count)
{
    for (size_t i = 0; tensors != NULL && i < count; i++)
        if (tensors[i] != NULL)
            aoti_torch_delete_tensor_object(tensors[i]);
}

void aoticache_constants_free(aoticache_container *container)
{
    free_tensors(container->constants, container->kernel->num_constants);
    free(container->constants);
}

/* Takes what a fold made: exactly the folded constants, all of them. */
static AOTIRuntimeError take_folded(aoticache_container *container, AtenTensorHandle *made)
{
    const aoticache_kernel *kernel = container->kernel;
    for (size_t i = 0; i < kernel->num_constants; i++) {
        if (kernel->constants[i].from_folded && made[i] == NULL)
            return aoticache_message_set("folding did not make constant %s", kernel->constants[i].name);
        if (!kernel->constants[i].from_folded && made[i] != NULL)
            return aoticache_message_set("folding made constant %s, which is not a folded one",
                                         kernel->constants[i].name);
    }
    for (size_t i = 0; i < kernel->num_constants; i++) {
        if (made[i] != NULL) {
            container->constants[i] = made[i];
            made[i] = NULL;
        }
    }
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError fold(aoticache_container *container, AOTInductorStreamHandle stream,
                             AOTIProxyExecutorHandle proxy_executor)
{
    const aoticache_kernel *kernel = container->kernel;
    if (kernel->fold == NULL)
        return AOTICACHE_KERNEL_OK;
    AtenTensorHandle *made = calloc(kernel->num_constants, sizeof *made);
    if (made == NULL)
        return aoticache_message_set("out of memory for %zu constants", kernel->num_constants);
    aoticache_kernel_call call = {.kernel = kernel, .outputs = made, .constants = container->constants,
                                  .stream = stream, .proxy_executor = proxy_executor,
                                  .device_index = container->device_index};
    AOTIRuntimeError status = kernel->fold(&call);
    if (status != AOTICACHE_KERNEL_OK && aoticache_message_get()[0] == '\0')
        aoticache_message_set("folding the constants failed with status %d", (int)status);
    if (status == AOTICACHE_KERNEL_OK)
        status = take_folded(container, made);
    free_tensors(made, kernel->num_constants);
    free(made);
    return status;
}

/* Of those that are not folded; folding sees to the others. */
static AOTIRuntimeError check_complete(const aoticache_container *container)
{
    for (size_t i = 0; i < container->kernel->num_constants; i++)
        if (container->constants[i] == NULL && !container->kernel->constants[i].from_folded)
            return aoticache_message_set("constant %s has no data: its weights are not part of this library",
                                         container->kernel->constants[i].name);
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError aoticache_constants_prepare(aoticache_container *container, AOTInductorStreamHandle stream,
                                             AOTIProxyExecutorHandle proxy_executor)
{
    if (atomic_load_explicit(&container->folded, memory_order_acquire))
        return AOTICACHE_KERNEL_OK;
    pthread_mutex_lock(&container->fold_lock);
    AOTIRuntimeError status = AOTICACHE_KERNEL_OK;
    if (!atomic_load_explicit(&container->folded, memory_order_relaxed)) {
        status = check_complete(container);
        if (status == AOTICACHE_KERNEL_OK)
            status = fold(container, stream, proxy_executor);
        if (status == AOTICACHE_KERNEL_OK)
            atomic_store_explicit(&container->folded, true, memory_order_release);
    }
    pthread_mutex_unlock(&container->fold_lock);
    return status;
}
