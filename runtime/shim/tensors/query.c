/*
 * shim/tensors/query: what a tensor looks like. Every pointer given out is borrowed from the tensor.
 */
#include "runtime/shim/tensors/tensor.h"
#include "runtime/shim/torch_abi.h"

AOTITorchError aoti_torch_get_data_ptr(AtenTensorHandle tensor, void **ret_data)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_data);
    *ret_data = tensor->tensor->data;
    return SHIM_SUCCESS;
}

AOTITorchError torch_get_mutable_data_ptr(AtenTensorHandle tensor, void **ret_data)
{
    return aoti_torch_get_data_ptr(tensor, ret_data);
}

AOTITorchError torch_get_const_data_ptr(AtenTensorHandle tensor, const void **ret_data)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_data);
    *ret_data = tensor->tensor->data;
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_get_storage_size(AtenTensorHandle tensor, int64_t *ret_bytes)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_bytes);
    *ret_bytes = (int64_t)tensor->tensor->storage->bytes;
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_get_storage_numel(AtenTensorHandle tensor, int64_t *ret_numel)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_numel);
    size_t bytes = tensor->tensor->storage->bytes;
    uint32_t item_bytes = tensor->tensor->item_bytes;
    if (bytes % item_bytes != 0)
        return aoticache_shim_fail("%s: a storage of %zu bytes does not hold a whole number of elements of %u bytes",
                                   __func__, bytes, (unsigned)item_bytes);
    *ret_numel = (int64_t)(bytes / item_bytes);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_get_dim(AtenTensorHandle tensor, int64_t *ret_ndim)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_ndim);
    *ret_ndim = tensor->tensor->ndim;
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_get_numel(AtenTensorHandle tensor, int64_t *ret_numel)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_numel);
    *ret_numel = tensor->tensor->numel;
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_get_sizes(AtenTensorHandle tensor, int64_t **ret_sizes)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_sizes);
    *ret_sizes = tensor->tensor->sizes;
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_get_strides(AtenTensorHandle tensor, int64_t **ret_strides)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_strides);
    *ret_strides = tensor->tensor->strides;
    return SHIM_SUCCESS;
}

/* Dimensions count from the end too: -1 is the last. */
static AOTITorchError get_dimension(const char *function, const struct shim_tensor *tensor, const int64_t *values,
                                    int64_t d, int64_t *ret_value)
{
    if (d < -(int64_t)tensor->ndim || d >= tensor->ndim)
        return aoticache_shim_fail("%s: dimension %lld of a tensor with %d", function, (long long)d,
                                   (int)tensor->ndim);
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

AOTITorchError aoti_torch_get_dtype(AtenTensorHandle tensor, int32_t *ret_dtype)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_dtype);
    *ret_dtype = tensor->tensor->dtype;
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_get_device_type(AtenTensorHandle tensor, int32_t *ret_device_type)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_device_type);
    *ret_device_type = AOTICACHE_DEVICE_TYPE_CPU;
    return SHIM_SUCCESS;
}

/* PyTorch's CPU tensors have none: -1. */
AOTITorchError aoti_torch_get_device_index(AtenTensorHandle tensor, int32_t *ret_device_index)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_device_index);
    *ret_device_index = -1;
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_get_layout(AtenTensorHandle tensor, int32_t *ret_layout)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_layout);
    *ret_layout = AOTICACHE_LAYOUT_STRIDED;
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_get_storage_offset(AtenTensorHandle tensor, int64_t *ret_offset)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_offset);
    *ret_offset = tensor->tensor->offset;
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_is_contiguous(AtenTensorHandle tensor, bool *ret_is_contiguous)
{
    SHIM_CHECK_TENSOR(tensor);
    SHIM_CHECK_RESULT(ret_is_contiguous);
    *ret_is_contiguous = aoticache_shim_is_contiguous(tensor->tensor);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_is_defined(AtenTensorHandle tensor, bool *ret_is_defined)
{
    SHIM_CHECK_RESULT(ret_is_defined);
    *ret_is_defined = shim_is_defined(tensor);
    return SHIM_SUCCESS;
}
