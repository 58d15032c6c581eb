/*
 * runtime/container: creates a container, and folds (before the first run, or on demand), swaps and frees its two
 * buffers. container_run.c runs, update.c changes single constants.
 */
#include "runtime/runtime_internal.h"

#include <stdlib.h>

/* Linked only into libraries that may need them (parts.c). */
#pragma weak aoticache_weights_map
#pragma weak aoticache_weights_unmap

static AOTIRuntimeError create_buffers(aoticache_container *container, const char *directory, bool load)
{
    if (aoticache_buffer_create(container, &container->buffers[0]) != AOTICACHE_KERNEL_OK ||
        aoticache_buffer_create(container, &container->buffers[1]) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    container->active = &container->buffers[0];
    container->active->state = AOTICACHE_BUFFER_INITIALIZED;
    if (!load)
        return AOTICACHE_KERNEL_OK;
    if (aoticache_weights_map != NULL &&
        aoticache_weights_map(container, directory, &container->weights) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    return aoticache_buffer_load(container, container->active);
}

static AOTIRuntimeError set_kernel_and_device(aoticache_container *container, const aoticache_kernel *kernel,
                                              size_t num_models, const char *device)
{
    if (aoticache_description_take(container, kernel) != AOTICACHE_KERNEL_OK ||
        aoticache_device_find(container->kernel->device, device, &container->device) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    return aoticache_pool_create(num_models, container->device.functions, &container->pool);
}

AOTIRuntimeError aoticache_container_create(const aoticache_kernel *kernel, size_t num_models, const char *device,
                                            const char *directory, bool load, aoticache_container **ret_container)
{
    if (num_models == 0)
        return aoticache_message_set("num_models must be positive, but got 0");
    aoticache_container *container = calloc(1, sizeof *container);
    if (container == NULL)
        return aoticache_message_set("out of memory for a container");
    pthread_mutex_init(&container->writers, NULL);
    if (set_kernel_and_device(container, kernel, num_models, device) != AOTICACHE_KERNEL_OK ||
        create_buffers(container, directory, load) != AOTICACHE_KERNEL_OK) {
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
    aoticache_pool_free(container->pool);
    for (int i = 0; i < 2; i++)
        aoticache_buffer_free(container, &container->buffers[i]);
    if (aoticache_weights_unmap != NULL)
        aoticache_weights_unmap(&container->weights);
    pthread_mutex_destroy(&container->writers);
    free(container->extracted);
    free(container->by_name);
    free(container->offsets);
    free(container);
}

/* ---- entering a run ---- */

/* Folds if needed. The caller has taken all models. The state may have changed since the caller read it. */
static AOTIRuntimeError fold_if_needed(aoticache_container *container, AOTInductorStreamHandle stream,
                                       AOTIProxyExecutorHandle proxy_executor)
{
    switch (container->active->state) {
    case AOTICACHE_BUFFER_FOLDED:
        return AOTICACHE_KERNEL_OK;
    case AOTICACHE_BUFFER_INITIALIZED:
        return aoticache_buffer_fold(container, container->active, 0, stream, proxy_executor);
    case AOTICACHE_BUFFER_NONE:
        break;
    }
    return aoticache_message_set("Unknown constant state: ConstantState::NONE: the active buffer has no constants");
}

static __attribute__((noinline)) AOTIRuntimeError fold_before_run(aoticache_container *container,
                                                                  AOTInductorStreamHandle stream,
                                                                  AOTIProxyExecutorHandle proxy_executor)
{
    pthread_mutex_lock(&container->writers);
    aoticache_pool_lock_all(container->pool);
    AOTIRuntimeError status = fold_if_needed(container, stream, proxy_executor);
    aoticache_pool_unlock_all(container->pool);
    pthread_mutex_unlock(&container->writers);
    return status;
}

AOTIRuntimeError aoticache_container_enter(aoticache_container *container, AOTInductorStreamHandle stream,
                                           AOTIProxyExecutorHandle proxy_executor, size_t *ret_model)
{
    for (;;) {
        if (aoticache_pool_take(container->pool, ret_model) != AOTICACHE_KERNEL_OK)
            return AOTICACHE_KERNEL_FAILURE;
        if (container->active->state == AOTICACHE_BUFFER_FOLDED)
            return AOTICACHE_KERNEL_OK;
        /* Do not wait while holding a model: the writer waits for all of them. */
        aoticache_pool_give_back(container->pool, *ret_model);
        if (fold_before_run(container, stream, proxy_executor) != AOTICACHE_KERNEL_OK)
            return AOTICACHE_KERNEL_FAILURE;
    }
}

/* ---- whole buffers ---- */

/*
 * After a fold of the inactive buffer, constants that tracing made are copies of the active buffer's, even if they had
 * other values: PyTorch's container treats the results of a fold as an update, and an update of the inactive buffer
 * copies them.
 */
static AOTIRuntimeError copy_traced_constants(const aoticache_container *container, aoticache_buffer *inactive)
{
    const aoticache_kernel *kernel = container->kernel;
    for (size_t i = 0; i < kernel->num_constants; i++) {
        AtenTensorHandle from = container->active->constants[i], copy;
        if (kernel->constants[i].type != AOTICACHE_KERNEL_CONSTANT_TENSOR || from == NULL)
            continue;
        if (aoti_torch_clone(from, &copy) != 0)
            return aoticache_kernel_fail_torch(NULL, kernel->constants[i].name);
        if (inactive->constants[i] != NULL)
            aoti_torch_delete_tensor_object(inactive->constants[i]);
        inactive->constants[i] = copy;
    }
    return AOTICACHE_KERNEL_OK;
}

/*
 * Folds the inactive buffer while runs continue. Folding takes a model as a run does, so that no run has the same
 * call->model.
 */
static AOTIRuntimeError fold_inactive(aoticache_container *container, AOTInductorStreamHandle stream,
                                      AOTIProxyExecutorHandle proxy_executor)
{
    size_t model;
    if (aoticache_pool_take(container->pool, &model) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    aoticache_buffer *inactive = aoticache_container_inactive(container);
    AOTIRuntimeError status = aoticache_buffer_fold(container, inactive, model, stream, proxy_executor);
    if (status == AOTICACHE_KERNEL_OK)
        status = copy_traced_constants(container, inactive);
    aoticache_pool_give_back(container->pool, model);
    return status;
}

AOTIRuntimeError aoticache_container_fold(aoticache_container *container, bool use_inactive,
                                          AOTInductorStreamHandle stream, AOTIProxyExecutorHandle proxy_executor)
{
    AOTIRuntimeError status;
    pthread_mutex_lock(&container->writers);
    if (use_inactive) {
        status = fold_inactive(container, stream, proxy_executor);
    } else {
        aoticache_pool_lock_all(container->pool);
        status = aoticache_buffer_fold(container, container->active, 0, stream, proxy_executor);
        aoticache_pool_unlock_all(container->pool);
    }
    pthread_mutex_unlock(&container->writers);
    return status;
}

AOTIRuntimeError aoticache_container_swap(aoticache_container *container)
{
    pthread_mutex_lock(&container->writers);
    aoticache_pool_lock_all(container->pool);
    container->active = aoticache_container_inactive(container);
    aoticache_pool_unlock_all(container->pool);
    pthread_mutex_unlock(&container->writers);
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError aoticache_container_free_inactive(aoticache_container *container)
{
    pthread_mutex_lock(&container->writers);
    aoticache_buffer_reset(container, aoticache_container_inactive(container));
    pthread_mutex_unlock(&container->writers);
    return AOTICACHE_KERNEL_OK;
}
