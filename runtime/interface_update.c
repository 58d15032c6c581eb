/*
 * runtime/interface_update: the exported functions that change, list, fold and swap constants. The forms that take a
 * std::unordered_map are exported by the C++ file, over runtime/update.h.
 */
#include "runtime/update.h"

#include <stdlib.h>

#include "runtime/interface.h"

typedef AOTInductorModelContainerHandle container_handle;

AOTIRuntimeError aoticache_update_fail(const char *message)
{
    return aoticache_message_set("%s", message);
}

AOTIRuntimeError aoticache_update_constants(container_handle handle, const AOTInductorConstantMapEntry *pairs,
                                            size_t num_pairs, unsigned flags)
{
    aoticache_container *container = aoticache_interface_container(handle);
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
    aoticache_container *container = aoticache_interface_container(handle);
    return container == NULL ? AOTICACHE_KERNEL_FAILURE
                             : aoticache_container_fold(container, use_inactive, stream, proxy_executor);
}

AOTIRuntimeError AOTInductorModelContainerSwapConstantBuffer(container_handle handle)
{
    aoticache_container *container = aoticache_interface_container(handle);
    return container == NULL ? AOTICACHE_KERNEL_FAILURE : aoticache_container_swap(container);
}

AOTIRuntimeError AOTInductorModelContainerFreeInactiveConstantBuffer(container_handle handle)
{
    aoticache_container *container = aoticache_interface_container(handle);
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
    aoticache_container *container = aoticache_interface_container(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    if (ret_entries == NULL || ret_num_entries == NULL)
        return aoticache_interface_fail_result("entries");
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

/* PyTorch's words and results: its libraries with embedded weights have no size, and take no blob without saying so. */
AOTIRuntimeError AOTInductorModelContainerGetConstantsBlobSize(container_handle handle, uint64_t *ret_bytes)
{
    const aoticache_container *container = aoticache_interface_container(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    if (ret_bytes == NULL)
        return aoticache_interface_fail_result("size of the blob");
    if (container->kernel->weights == AOTICACHE_KERNEL_WEIGHTS_EMBEDDED)
        return aoticache_message_set("constant blob size is only available for mmap'd weights");
    *ret_bytes = container->blob_bytes;
    return AOTICACHE_KERNEL_OK;
}

AOTIRuntimeError AOTInductorModelUpdateConstantsFromBlob(container_handle handle, const uint8_t *weights)
{
    aoticache_container *container = aoticache_interface_container(handle);
    if (container == NULL)
        return AOTICACHE_KERNEL_FAILURE;
    if (container->kernel->weights == AOTICACHE_KERNEL_WEIGHTS_EMBEDDED)
        return AOTICACHE_KERNEL_OK;
    return aoticache_update_from_blob(container, weights);
}
