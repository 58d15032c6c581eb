/*
 * shim/tensors/query: properties of a tensor. Every returned pointer is borrowed from the tensor.
 */
#include "runtime/shim/tensors/tensor.h"
#include "runtime/shim/torch_abi.h"

/* Defines a function that returns one property of the tensor `it`. */
#define DEFINE_QUERY(function, type, ret_value, value)                \
    AOTITorchError function(AtenTensorHandle tensor, type *ret_value) \
    {                                                                 \
        SHIM_CHECK_TENSOR(tensor);                                    \
        SHIM_CHECK_RESULT(ret_value);                                 \
        const struct shim_tensor *it = tensor->tensor;                \
        (void)it; /* unused if all tensors have the same value */     \
        *ret_value = value;                                           \
        return SHIM_SUCCESS;                                          \
    }

DEFINE_QUERY(aoti_torch_get_data_ptr, void *, ret_data, it->data)
DEFINE_QUERY(torch_get_const_data_ptr, const void *, ret_data, it->data)
DEFINE_QUERY(aoti_torch_get_storage_size, int64_t, ret_bytes, (int64_t)it->storage->bytes)
DEFINE_QUERY(aoti_torch_get_dim, int64_t, ret_ndim, it->ndim)
DEFINE_QUERY(aoti_torch_get_numel, int64_t, ret_numel, it->numel)
DEFINE_QUERY(aoti_torch_get_sizes, int64_t *, ret_sizes, it->sizes)
DEFINE_QUERY(aoti_torch_get_strides, int64_t *, ret_strides, it->strides)
DEFINE_QUERY(aoti_torch_get_dtype, int32_t, ret_dtype, it->dtype)
DEFINE_QUERY(aoti_torch_get_storage_offset, int64_t, ret_offset, it->offset)
DEFINE_QUERY(aoti_torch_is_contiguous, bool, ret_is_contiguous, aoticache_shim_is_contiguous(it))
/* All tensors here are strided ones on the CPU; as in PyTorch they have no device index. */
DEFINE_QUERY(aoti_torch_get_device_type, int32_t, ret_device_type, AOTICACHE_DEVICE_TYPE_CPU)
DEFINE_QUERY(aoti_torch_get_device_index, int32_t, ret_device_index, -1)
DEFINE_QUERY(aoti_torch_get_layout, int32_t, ret_layout,
             it->packed != NULL ? AOTICACHE_LAYOUT_MKLDNN : AOTICACHE_LAYOUT_STRIDED)

AOTITorchError torch_get_mutable_data_ptr(AtenTensorHandle tensor, void **ret_data)
{
    return aoti_torch_get_data_ptr(tensor, ret_data);
}

AOTITorchError aoti_torch_get_storage_numel(AtenTensorHandle tensor, int64_t *ret_numel)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_numel);
    size_t bytes = tensor->tensor->storage->bytes;
    uint32_t item_bytes = tensor->tensor->item_bytes;
    if (bytes % item_bytes != 0)
        return aoticache_shim_fail("%s: a storage of %zu bytes is not a multiple of the element size, %u bytes",
                                   __func__, bytes, (unsigned)item_bytes);
    *ret_numel = (int64_t)(bytes / item_bytes);
    return SHIM_SUCCESS;
}

/* Dimensions count from the end too: -1 is the last. */
static AOTITorchError get_dimension(const char *function, const struct shim_tensor *tensor, const int64_t *values,
                                    int64_t d, int64_t *ret_value)
{
    if (d < -(int64_t)tensor->ndim || d >= tensor->ndim)
        return aoticache_shim_fail("%s: dimension %lld of a tensor with %d", function, (long long)d, (int)tensor->ndim);
    *ret_value = values[d < 0 ? d + tensor->ndim : d];
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_get_size(AtenTensorHandle tensor, int64_t d, int64_t *ret_size)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_size);
    return get_dimension(__func__, tensor->tensor, tensor->tensor->sizes, d, ret_size);
}

AOTITorchError aoti_torch_get_stride(AtenTensorHandle tensor, int64_t d, int64_t *ret_stride)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_stride);
    return get_dimension(__func__, tensor->tensor, tensor->tensor->strides, d, ret_stride);
}

AOTITorchError aoti_torch_is_defined(AtenTensorHandle tensor, bool *ret_is_defined)
{
    SHIM_CHECK_RESULT(ret_is_defined);
    *ret_is_defined = shim_is_defined(tensor);
    return SHIM_SUCCESS;
}
