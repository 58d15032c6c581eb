/*
 * shim/tensors/elements: what operators that walk over elements have in common.
 */
#include "runtime/shim/tensors/elements.h"

#include "runtime/shim/torch_abi.h"

#include <string.h>

void aoticache_shim_handle_cleanup(AtenTensorHandle *handle)
{
    if (*handle != NULL)
        aoti_torch_delete_tensor_object(*handle);
}

bool aoticache_shim_is_complex(int32_t dtype)
{
    return dtype == AOTICACHE_DTYPE_COMPLEX32 || dtype == AOTICACHE_DTYPE_COMPLEX64 ||
           dtype == AOTICACHE_DTYPE_COMPLEX128;
}

bool aoticache_shim_is_integral(int32_t dtype)
{
    return (dtype >= AOTICACHE_DTYPE_UINT8 && dtype <= AOTICACHE_DTYPE_INT64) || dtype == AOTICACHE_DTYPE_BOOL ||
           (dtype >= AOTICACHE_DTYPE_UINT16 && dtype <= AOTICACHE_DTYPE_UINT64);
}

bool aoticache_shim_is_floating(int32_t dtype)
{
    return !aoticache_shim_is_integral(dtype) && !aoticache_shim_is_complex(dtype);
}

int32_t aoticache_shim_work_dtype(int32_t dtype)
{
    if (aoticache_shim_is_integral(dtype))
        return AOTICACHE_DTYPE_INT64;
    return aoticache_shim_is_complex(dtype) ? AOTICACHE_DTYPE_COMPLEX128 : AOTICACHE_DTYPE_FLOAT64;
}

AOTITorchError aoticache_shim_fail_dtype(const char *function, int32_t dtype)
{
    char text[SHIM_DTYPE_TEXT_BYTES];
    return aoticache_shim_fail("%s: not supported for %s", function, aoticache_shim_dtype_text(dtype, text));
}

AOTITorchError aoticache_shim_make(const char *function, int64_t ndim, const int64_t *sizes, int32_t dtype,
                                   AtenTensorHandle *ret_tensor)
{
    int64_t strides[SHIM_MAX_NDIM], stride = 1;
    if (ndim < 0 || ndim > SHIM_MAX_NDIM || (ndim > 0 && sizes == NULL))
        return aoticache_shim_fail("%s: %lld dimensions%s; 0 to %d are allowed", function, (long long)ndim,
                                   sizes == NULL ? " without sizes" : "", SHIM_MAX_NDIM);
    for (int64_t d = ndim - 1; d >= 0; d--) {
        strides[d] = stride;
        if (sizes[d] > 1 && __builtin_mul_overflow(stride, sizes[d], &stride))
            return aoticache_shim_fail("%s: the number of elements does not fit into 64 bits", function);
    }
    if (shim_item_bytes(dtype) == 0)
        return aoticache_shim_fail("%s: unknown dtype %d", function, (int)dtype);
    return aoticache_shim_tensor_empty(function, ndim, sizes, strides, dtype, ret_tensor);
}

AOTITorchError aoticache_shim_make_like(const char *function, AtenTensorHandle tensor, int32_t dtype,
                                        AtenTensorHandle *ret_tensor)
{
    int64_t strides[SHIM_MAX_NDIM];
    if (!shim_is_defined(tensor))
        return aoticache_shim_fail_undefined(function, tensor);
    if (shim_item_bytes(dtype) == 0)
        return aoticache_shim_fail("%s: unknown dtype %d", function, (int)dtype);
    aoticache_shim_dense_strides(tensor->tensor, strides);
    return aoticache_shim_tensor_empty(function, tensor->tensor->ndim, tensor->tensor->sizes, strides, dtype,
                                       ret_tensor);
}

AOTITorchError aoticache_shim_read_copy(const char *function, AtenTensorHandle tensor, int32_t dtype,
                                        AtenTensorHandle *ret_tensor)
{
    cleanup_tensor AtenTensorHandle made = NULL;
    if (!shim_is_defined(tensor))
        return aoticache_shim_fail_undefined(function, tensor);
    SHIM_TRY(aoticache_shim_make(function, tensor->tensor->ndim, tensor->tensor->sizes, dtype, &made));
    SHIM_TRY(aoti_torch_copy_(made, tensor, 0));
    *ret_tensor = shim_steal(&made);
    return SHIM_SUCCESS;
}

/* Returns whether a tensor is aligned: blobs from outside may not be, arrays of numbers must be. */
static bool is_aligned(const struct shim_tensor *tensor)
{
    return (uintptr_t)tensor->data % tensor->item_bytes == 0;
}

AOTITorchError aoticache_shim_read(const char *function, AtenTensorHandle tensor, int32_t dtype,
                                   AtenTensorHandle *ret_tensor)
{
    if (!shim_is_defined(tensor))
        return aoticache_shim_fail_undefined(function, tensor);
    if (tensor->tensor->dtype == dtype && aoticache_shim_is_contiguous(tensor->tensor) && is_aligned(tensor->tensor))
        return aoti_torch_new_tensor_handle(tensor, ret_tensor);
    return aoticache_shim_read_copy(function, tensor, dtype, ret_tensor);
}

AOTITorchError aoticache_shim_wrap_dimension(const char *function, int64_t ndim, int64_t dim, int *ret_dim)
{
    int64_t count = ndim > 0 ? ndim : 1; /* a single number has a dimension 0, as in PyTorch */
    if (dim < -count || dim >= count)
        return aoticache_shim_fail("%s: dimension %lld of a tensor with %lld", function, (long long)dim,
                                   (long long)ndim);
    *ret_dim = (int)(dim < 0 ? dim + count : dim);
    return SHIM_SUCCESS;
}

struct shim_lanes aoticache_shim_lanes(const struct shim_tensor *tensor, int dim)
{
    struct shim_lanes lanes = {1, tensor->ndim > 0 ? tensor->sizes[dim] : 1, 1};
    for (int d = 0; d < dim && d < tensor->ndim; d++)
        lanes.outer *= tensor->sizes[d];
    for (int d = dim + 1; d < tensor->ndim; d++)
        lanes.inner *= tensor->sizes[d];
    return lanes;
}

AOTITorchError aoticache_shim_broadcast(const char *function, const struct shim_tensor *a, const struct shim_tensor *b,
                                        int *ret_ndim, int64_t ret_sizes[SHIM_MAX_NDIM])
{
    int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (int d = 0; d < ndim; d++) {
        int a_at = d - (ndim - a->ndim), b_at = d - (ndim - b->ndim);
        int64_t a_size = a_at < 0 ? 1 : a->sizes[a_at], b_size = b_at < 0 ? 1 : b->sizes[b_at];
        if (a_size != b_size && a_size != 1 && b_size != 1)
            return aoticache_shim_fail("%s: sizes %lld and %lld at dimension %d do not match", function,
                                       (long long)a_size, (long long)b_size, d);
        ret_sizes[d] = a_size == 1 ? b_size : a_size;
    }
    *ret_ndim = ndim;
    return SHIM_SUCCESS;
}

bool aoticache_shim_same_sizes(const struct shim_tensor *a, const struct shim_tensor *b)
{
    return a->ndim == b->ndim && (a->ndim == 0 || memcmp(a->sizes, b->sizes, (size_t)a->ndim * sizeof *a->sizes) == 0);
}

/* Makes each of the two tensors describe what the other described; both keep their reference counts. */
static void exchange(struct shim_tensor *tensor, struct shim_tensor *made)
{
    struct shim_tensor held = *made;
    int64_t dims[2 * SHIM_INLINE_NDIM];
    bool made_inline = made->sizes == made->inline_dims, inline_dims = tensor->sizes == tensor->inline_dims;
    memcpy(dims, made->inline_dims, sizeof dims);
    made->sizes = inline_dims ? made->inline_dims : tensor->sizes;
    made->strides = inline_dims ? made->inline_dims + SHIM_INLINE_NDIM : tensor->strides;
    memcpy(made->inline_dims, tensor->inline_dims, sizeof dims);
    made->ndim = tensor->ndim;
    made->storage = tensor->storage;
    tensor->sizes = made_inline ? tensor->inline_dims : held.sizes;
    tensor->strides = made_inline ? tensor->inline_dims + SHIM_INLINE_NDIM : held.strides;
    memcpy(tensor->inline_dims, dims, sizeof dims);
    tensor->ndim = held.ndim;
    tensor->numel = held.numel;
    tensor->offset = held.offset;
    tensor->storage = held.storage;
    tensor->data = held.data;
}

AOTITorchError aoticache_shim_resize(const char *function, AtenTensorHandle handle, int64_t ndim, const int64_t *sizes)
{
    cleanup_tensor AtenTensorHandle made = NULL, view = NULL;
    if (!shim_is_defined(handle))
        return aoticache_shim_fail_undefined(function, handle);
    struct shim_tensor *tensor = handle->tensor;
    SHIM_TRY(aoticache_shim_make(function, ndim, sizes, tensor->dtype, &made));
    const struct shim_tensor *wanted = made->tensor;
    size_t bytes = wanted->numel > 0 ? ((size_t)wanted->numel + (size_t)tensor->offset) * tensor->item_bytes : 0;
    if (bytes <= tensor->storage->bytes) {
        SHIM_TRY(aoticache_shim_tensor_view(function, tensor, tensor->dtype, ndim, wanted->sizes, wanted->strides,
                                            tensor->offset, &view));
        exchange(tensor, view->tensor);
        return SHIM_SUCCESS;
    }
    /* Keep the old elements, as many as the memory has from the first one on. */
    size_t old_bytes = tensor->storage->bytes, skipped = (size_t)tensor->offset * tensor->item_bytes;
    if (tensor->data != NULL && old_bytes > skipped) {
        size_t kept = old_bytes - skipped, room = (size_t)wanted->numel * tensor->item_bytes;
        memcpy(wanted->data, tensor->data, kept < room ? kept : room);
    }
    exchange(tensor, made->tensor);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_write_out(const char *function, AtenTensorHandle out, AtenTensorHandle source)
{
    if (!shim_is_defined(out))
        return aoticache_shim_fail_undefined(function, out);
    if (!aoticache_shim_same_sizes(out->tensor, source->tensor))
        SHIM_TRY(aoticache_shim_resize(function, out, source->tensor->ndim, source->tensor->sizes));
    return aoti_torch_copy_(out, source, 0);
}
