/*
 * shim/views: tensors over the storage of another one.
 */
#include "runtime/shim/tensor.h"
#include "runtime/shim/torch_abi.h"

AOTITorchError aoti_torch__reinterpret_tensor(AtenTensorHandle self, int64_t ndim, const int64_t *sizes,
                                              const int64_t *strides, int64_t offset_increment,
                                              AtenTensorHandle *ret_tensor)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_tensor);
    int64_t offset;
    if (__builtin_add_overflow(self->tensor->offset, offset_increment, &offset))
        return aoticache_shim_fail("%s: storage offset %lld plus %lld overflows", __func__,
                                   (long long)self->tensor->offset, (long long)offset_increment);
    return aoticache_shim_tensor_view(__func__, self->tensor, self->tensor->dtype, ndim, sizes, strides, offset,
                                      ret_tensor);
}

/* The interface gives no number of dimensions: it is self's. */
AOTITorchError aoti_torch_as_strided(AtenTensorHandle self, const int64_t *sizes, const int64_t *strides,
                                     AtenTensorHandle *ret_tensor)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_tensor);
    return aoticache_shim_tensor_view(__func__, self->tensor, self->tensor->dtype, self->tensor->ndim, sizes, strides,
                                      self->tensor->offset, ret_tensor);
}

/* A tensor of any dtype inside the bytes of `self`, which serves as a pool of memory. */
AOTITorchError aoti_torch__alloc_from_pool(AtenTensorHandle self, int64_t offset_bytes, int32_t dtype, int64_t ndim,
                                           const int64_t *sizes, const int64_t *strides, AtenTensorHandle *ret_tensor)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_tensor);
    uint32_t item_bytes = shim_item_bytes(dtype);
    if (item_bytes == 0)
        return aoticache_shim_fail("%s: %d is not a dtype", __func__, (int)dtype);
    if (self->tensor->offset != 0)
        return aoticache_shim_fail("%s: the pool begins at storage offset %lld; it must begin at 0", __func__,
                                   (long long)self->tensor->offset);
    if (offset_bytes < 0 || offset_bytes % item_bytes != 0)
        return aoticache_shim_fail("%s: an offset of %lld bytes is not a multiple of the %u bytes of an element",
                                   __func__, (long long)offset_bytes, (unsigned)item_bytes);
    return aoticache_shim_tensor_view(__func__, self->tensor, dtype, ndim, sizes, strides, offset_bytes / item_bytes,
                                      ret_tensor);
}

static AOTITorchError view_as_dtype(const char *function, AtenTensorHandle self, int32_t dtype,
                                    AtenTensorHandle *ret_tensor)
{
    struct shim_tensor *tensor = self->tensor;
    if (shim_item_bytes(dtype) != tensor->item_bytes) {
        char from[SHIM_DTYPE_TEXT_BYTES], to[SHIM_DTYPE_TEXT_BYTES];
        return aoticache_shim_fail("%s: %s as %s: elements of another size need PyTorch in the process", function,
                                   aoticache_shim_dtype_text(tensor->dtype, from),
                                   aoticache_shim_dtype_text(dtype, to));
    }
    return aoticache_shim_tensor_view(function, tensor, dtype, tensor->ndim, tensor->sizes, tensor->strides,
                                      tensor->offset, ret_tensor);
}

AOTITorchError aoti_torch_view_dtype(AtenTensorHandle self, int32_t dtype, AtenTensorHandle *ret_tensor)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_tensor);
    return view_as_dtype(__func__, self, dtype, ret_tensor);
}

AOTITorchError aoti_torch_cpu_view_dtype(AtenTensorHandle self, int32_t dtype, AtenTensorHandle *ret_tensor)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_tensor);
    return view_as_dtype(__func__, self, dtype, ret_tensor);
}
