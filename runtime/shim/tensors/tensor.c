/*
 * shim/tensors/tensor: makes and drops storages, tensors and handles.
 */
#include "runtime/shim/tensors/tensor.h"

#include "base/names.h"
#include "runtime/shim/torch_abi.h"

#include <string.h>

/* ---- storages: the data of an owned one follows its header in one block ---- */

static enum shim_free_list list_for(size_t bytes)
{
    if (bytes <= 64)
        return bytes == 0 ? SHIM_FREE_STORAGE : SHIM_FREE_STORAGE_64;
    if (bytes <= 1024)
        return bytes <= 256 ? SHIM_FREE_STORAGE_256 : SHIM_FREE_STORAGE_1K;
    return bytes <= 4096 ? SHIM_FREE_STORAGE_4K : SHIM_FREE_NONE;
}

/* Makes owned memory, 64-byte aligned, not initialised. NULL: out of memory. */
static struct shim_storage *storage_create(size_t bytes)
{
    enum shim_free_list list = list_for(bytes);
    size_t total, block_bytes = 0;
    if (__builtin_add_overflow(bytes, SHIM_STORAGE_HEADER_BYTES, &total))
        return NULL;
    struct shim_storage *storage =
        list == SHIM_FREE_NONE ? aoticache_shim_large_take(total, &block_bytes) : shim_block_take(list);
    if (storage == NULL)
        return NULL;
    atomic_init(&storage->refs, 1);
    storage->list = list;
    storage->block_bytes = block_bytes;
    storage->data = bytes > 0 ? (char *)storage + SHIM_STORAGE_HEADER_BYTES : NULL;
    storage->bytes = bytes;
    storage->deleter = NULL;
    storage->context = NULL;
    return storage;
}

/* Wraps the caller's memory; deleter (may be NULL) is called with the last reference, not on failure. */
static struct shim_storage *storage_wrap(void *data, size_t bytes, shim_deleter deleter, void *context)
{
    struct shim_storage *storage = shim_block_take(SHIM_FREE_STORAGE);
    if (storage == NULL)
        return NULL;
    atomic_init(&storage->refs, 1);
    storage->list = SHIM_FREE_STORAGE;
    storage->data = data;
    storage->bytes = bytes;
    storage->deleter = deleter;
    storage->context = context;
    return storage;
}

static void storage_free(struct shim_storage *storage)
{
    if (storage->deleter != NULL)
        storage->deleter(storage->data, storage->context);
    if (storage->list == SHIM_FREE_NONE)
        aoticache_shim_large_give(storage, storage->block_bytes);
    else
        shim_block_give((enum shim_free_list)storage->list, storage);
}

/* ---- tensors and handles ---- */

AOTITorchError aoticache_shim_fail_undefined(const char *function, AtenTensorHandle handle)
{
    return aoticache_shim_fail("%s: the tensor is %s", function, handle == NULL ? "NULL" : "undefined");
}

static inline void unref_storage(struct shim_storage *storage)
{
    if (shim_unref(&storage->refs))
        storage_free(storage);
}

bool aoticache_shim_packed_claim(struct shim_packed *packed, void (*free_prepared)(void *))
{
    void (*claimed)(void *) = atomic_load(&packed->free_prepared);
    return claimed == free_prepared ||
           (claimed == NULL && (atomic_compare_exchange_strong(&packed->free_prepared, &claimed, free_prepared) ||
                                claimed == free_prepared));
}

void *aoticache_shim_packed_keep(struct shim_packed *packed, void *made)
{
    void *first = NULL;
    if (atomic_compare_exchange_strong(&packed->prepared, &first, made))
        return made;
    atomic_load (&packed->free_prepared)(made);
    return first;
}

void aoticache_shim_packed_clear(struct shim_packed *packed)
{
    void *prepared = atomic_exchange(&packed->prepared, NULL);
    if (prepared != NULL)
        atomic_load (&packed->free_prepared)(prepared);
}

static void tensor_free(struct shim_tensor *tensor)
{
    unref_storage(tensor->storage);
    if (__builtin_expect(tensor->packed != NULL, 0)) {
        aoticache_shim_packed_clear(tensor->packed);
        free(tensor->packed);
    }
    if (tensor->sizes != tensor->inline_dims)
        free(tensor->sizes);
    shim_block_give(SHIM_FREE_TENSOR, tensor);
}

static inline void unref_tensor(struct shim_tensor *tensor)
{
    if (tensor != NULL && shim_unref(&tensor->refs))
        tensor_free(tensor);
}

/* Sets sizes and strides. False: out of memory. */
static bool set_dimensions(struct shim_tensor *tensor, int64_t ndim, const int64_t *sizes, const int64_t *strides)
{
    tensor->ndim = (int32_t)ndim;
    tensor->sizes = tensor->inline_dims;
    if (ndim > SHIM_INLINE_NDIM) {
        tensor->sizes = malloc(2 * (size_t)ndim * sizeof *tensor->sizes);
        if (tensor->sizes == NULL)
            return false;
    }
    tensor->strides = tensor->sizes + (ndim > SHIM_INLINE_NDIM ? ndim : SHIM_INLINE_NDIM);
    for (int64_t d = 0; d < ndim; d++) {
        tensor->sizes[d] = sizes[d];
        tensor->strides[d] = strides[d];
    }
    return true;
}

static AOTITorchError fail_creation(const char *function, struct shim_storage *storage, struct shim_tensor *tensor,
                                    struct AtenTensorOpaque *handle)
{
    if (tensor != NULL)
        shim_block_give(SHIM_FREE_TENSOR, tensor);
    if (handle != NULL)
        shim_block_give(SHIM_FREE_HANDLE, handle);
    if (storage != NULL)
        unref_storage(storage);
    return aoticache_shim_fail_memory(function, sizeof *tensor);
}

/*
 * Makes a tensor over `storage`, whose reference it takes, even on failure. The shape has been measured. A NULL storage
 * means out of memory. Messages begin with `function`.
 */
static AOTITorchError create_tensor(const char *function, struct shim_storage *storage, int32_t dtype, int64_t ndim,
                                    const int64_t *sizes, const int64_t *strides, int64_t offset, int64_t numel,
                                    AtenTensorHandle *ret_handle)
{
    struct shim_tensor *tensor = shim_block_take(SHIM_FREE_TENSOR);
    struct AtenTensorOpaque *handle = shim_block_take(SHIM_FREE_HANDLE);
    if (storage == NULL || tensor == NULL || handle == NULL || !set_dimensions(tensor, ndim, sizes, strides))
        return fail_creation(function, storage, tensor, handle);
    uint32_t item_bytes = shim_item_bytes(dtype);
    atomic_init(&tensor->refs, 1);
    tensor->dtype = dtype;
    tensor->item_bytes = item_bytes;
    tensor->numel = numel;
    tensor->offset = offset;
    tensor->storage = storage;
    tensor->packed = NULL;
    /* PyTorch returns NULL for tensors without elements. */
    tensor->data = numel > 0 ? (char *)storage->data + (size_t)offset * item_bytes : NULL;
    handle->tensor = tensor;
    *ret_handle = handle;
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_tensor_view(const char *function, const struct shim_tensor *tensor, int32_t dtype,
                                          int64_t ndim, const int64_t *sizes, const int64_t *strides, int64_t offset,
                                          AtenTensorHandle *ret_handle)
{
    struct shim_extent extent;
    if (aoticache_shim_measure(function, ndim, sizes, strides, offset, shim_item_bytes(dtype), &extent) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    if (extent.storage_bytes > tensor->storage->bytes)
        return aoticache_shim_fail("%s: the view reaches to byte %zu of a storage of %zu bytes", function,
                                   extent.storage_bytes, tensor->storage->bytes);
    shim_ref(&tensor->storage->refs);
    return create_tensor(function, tensor->storage, dtype, ndim, sizes, strides, offset, extent.numel, ret_handle);
}

AOTITorchError aoticache_shim_check_options(const char *function, int32_t dtype, int32_t device_type)
{
    if (shim_item_bytes(dtype) == 0)
        return aoticache_shim_fail("%s: unknown dtype %d", function, (int)dtype);
    if (device_type != AOTICACHE_DEVICE_TYPE_CPU) {
        const char *name = aoticache_device_type_name(device_type);
        return aoticache_shim_fail("%s: device type %d (%s) needs PyTorch in the process; without it only the CPU "
                                   "is supported",
                                   function, (int)device_type, name != NULL ? name : "unknown");
    }
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_tensor_empty(const char *function, int64_t ndim, const int64_t *sizes,
                                           const int64_t *strides, int32_t dtype, AtenTensorHandle *ret_handle)
{
    struct shim_extent extent;
    if (aoticache_shim_measure(function, ndim, sizes, strides, 0, shim_item_bytes(dtype), &extent) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    struct shim_storage *storage = storage_create(extent.storage_bytes);
    if (storage == NULL)
        return aoticache_shim_fail_memory(function, extent.storage_bytes);
    return create_tensor(function, storage, dtype, ndim, sizes, strides, 0, extent.numel, ret_handle);
}

/* ---- the exported functions ---- */

AOTITorchError aoti_torch_empty_strided(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                                        int32_t device_type, int32_t device_index, AtenTensorHandle *ret_tensor)
{
    (void)device_index; /* the CPU is one device, whatever its number */
    SHIM_CHECK_RESULT(ret_tensor);
    if (aoticache_shim_check_options(__func__, dtype, device_type) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    return aoticache_shim_tensor_empty(__func__, ndim, sizes, strides, dtype, ret_tensor);
}

/* Allocates ordinary memory: no device copies from it, so it need not be pinned. */
AOTITorchError aoti_torch_empty_strided_pinned(int64_t ndim, const int64_t *sizes, const int64_t *strides,
                                               int32_t dtype, int32_t device_type, int32_t device_index,
                                               AtenTensorHandle *ret_tensor)
{
    return aoti_torch_empty_strided(ndim, sizes, strides, dtype, device_type, device_index, ret_tensor);
}

static AOTITorchError wrap_blob(const char *function, void *data, int64_t ndim, const int64_t *sizes,
                                const int64_t *strides, int64_t offset, int32_t dtype, shim_deleter deleter,
                                void *context, AtenTensorHandle *ret_tensor)
{
    struct shim_extent extent;
    uint32_t item_bytes = shim_item_bytes(dtype);
    if (aoticache_shim_measure(function, ndim, sizes, strides, offset, item_bytes, &extent) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    struct shim_storage *storage = storage_wrap(data, extent.storage_bytes, NULL, context);
    AOTITorchError status =
        create_tensor(function, storage, dtype, ndim, sizes, strides, offset, extent.numel, ret_tensor);
    if (status == SHIM_SUCCESS)
        storage->deleter = deleter; /* only now: on failure the caller keeps the memory */
    return status;
}

AOTITorchError aoti_torch_create_tensor_from_blob(void *data, int64_t ndim, const int64_t *sizes,
                                                  const int64_t *strides, int64_t storage_offset, int32_t dtype,
                                                  int32_t device_type, int32_t device_index,
                                                  AtenTensorHandle *ret_tensor)
{
    (void)device_index;
    SHIM_CHECK_RESULT(ret_tensor);
    if (aoticache_shim_check_options(__func__, dtype, device_type) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    if (data == NULL) /* as in PyTorch: constants without data are empty */
        return aoticache_shim_tensor_empty(__func__, ndim, sizes, strides, dtype, ret_tensor);
    return wrap_blob(__func__, data, ndim, sizes, strides, storage_offset, dtype, NULL, NULL, ret_tensor);
}

AOTITorchError aoticache_shim_check_layout(const char *function, int32_t layout)
{
    if (layout == AOTICACHE_LAYOUT_STRIDED)
        return SHIM_SUCCESS;
    const char *name = aoticache_layout_name(layout);
    return aoticache_shim_fail("%s: layout %d (%s) needs PyTorch in the process; without it only strided "
                               "tensors are supported",
                               function, (int)layout, name != NULL ? name : "unknown");
}

AOTITorchError torch_from_blob(void *data, int64_t ndim, const int64_t *sizes, const int64_t *strides,
                               int64_t storage_offset, int32_t dtype, int32_t device_type, int32_t device_index,
                               AtenTensorHandle *ret_tensor, int32_t layout, const uint8_t *opaque_metadata,
                               int64_t opaque_metadata_size, void (*deleter)(void *data, void *context), void *context)
{
    (void)device_index;
    (void)opaque_metadata;
    (void)opaque_metadata_size;
    SHIM_CHECK_RESULT(ret_tensor);
    if (aoticache_shim_check_layout(__func__, layout) != SHIM_SUCCESS ||
        aoticache_shim_check_options(__func__, dtype, device_type) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    if (data == NULL)
        return aoticache_shim_tensor_empty(__func__, ndim, sizes, strides, dtype, ret_tensor);
    return wrap_blob(__func__, data, ndim, sizes, strides, storage_offset, dtype, deleter, context, ret_tensor);
}

static AOTITorchError create_handle(const char *function, struct shim_tensor *tensor, AtenTensorHandle *ret_handle)
{
    struct AtenTensorOpaque *handle = shim_block_take(SHIM_FREE_HANDLE);
    if (handle == NULL)
        return aoticache_shim_fail_memory(function, sizeof *handle);
    if (tensor != NULL)
        shim_ref(&tensor->refs);
    handle->tensor = tensor;
    *ret_handle = handle;
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_new_tensor_handle(AtenTensorHandle tensor, AtenTensorHandle *ret_tensor)
{
    SHIM_CHECK_RESULT(ret_tensor);
    if (__builtin_expect(tensor == NULL, 0))
        return aoticache_shim_fail_undefined(__func__, tensor);
    return create_handle(__func__, tensor->tensor, ret_tensor);
}

AOTITorchError aoti_torch_new_uninitialized_tensor(AtenTensorHandle *ret_tensor)
{
    SHIM_CHECK_RESULT(ret_tensor);
    return create_handle(__func__, NULL, ret_tensor);
}

AOTITorchError aoti_torch_delete_tensor_object(AtenTensorHandle tensor)
{
    if (tensor == NULL)
        return SHIM_SUCCESS;
    unref_tensor(tensor->tensor);
    shim_block_give(SHIM_FREE_HANDLE, tensor);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_assign_tensors(AtenTensorHandle source, AtenTensorHandle destination)
{
    if (source == NULL || destination == NULL)
        return aoticache_shim_fail_undefined(__func__, NULL);
    struct shim_tensor *dropped = destination->tensor;
    if (source->tensor != NULL)
        shim_ref(&source->tensor->refs);
    destination->tensor = source->tensor;
    unref_tensor(dropped);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_assign_tensors_out(AtenTensorHandle source, AtenTensorHandle *ret_destination)
{
    return aoti_torch_new_tensor_handle(source, ret_destination);
}
