/*
 * shim/views/views: tensors over the storage of another one: views with given sizes and strides, operators that return
 * a tensor with another shape but the same elements, and operators that change the shape of the tensor itself. reshape
 * copies if no view is possible.
 */
#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"
#include "runtime/shim/tensors/tensor.h"
#include "runtime/shim/torch_abi.h"

/* ---- by sizes and strides ---- */

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

/* Makes a view. The interface does not pass the number of dimensions: it is self's. */
AOTITorchError aoti_torch_as_strided(AtenTensorHandle self, const int64_t *sizes, const int64_t *strides,
                                     AtenTensorHandle *ret_tensor)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_tensor);
    return aoticache_shim_tensor_view(__func__, self->tensor, self->tensor->dtype, self->tensor->ndim, sizes, strides,
                                      self->tensor->offset, ret_tensor);
}

/* Makes a tensor of any dtype inside the bytes of `self`, which serves as a pool of memory. */
AOTITorchError aoti_torch__alloc_from_pool(AtenTensorHandle self, int64_t offset_bytes, int32_t dtype, int64_t ndim,
                                           const int64_t *sizes, const int64_t *strides, AtenTensorHandle *ret_tensor)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_tensor);
    uint32_t item_bytes = shim_item_bytes(dtype);
    if (item_bytes == 0)
        return aoticache_shim_fail("%s: unknown dtype %d", __func__, (int)dtype);
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
        return aoticache_shim_fail("%s: %s as %s: a dtype of another size needs PyTorch in the process", function,
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

/* ---- operators ---- */

static AOTITorchError view_of(const char *function, AtenTensorHandle self, int64_t ndim, const int64_t *sizes,
                              const int64_t *strides, int64_t offset, AtenTensorHandle *ret_tensor)
{
    return aoticache_shim_tensor_view(function, self->tensor, self->tensor->dtype, ndim, sizes, strides, offset,
                                      ret_tensor);
}

AOTITorchError aoti_torch_cpu_permute(AtenTensorHandle self, const int64_t *dims, int64_t num_dims,
                                      AtenTensorHandle *ret_0)
{
    int64_t sizes[SHIM_MAX_NDIM], strides[SHIM_MAX_NDIM];
    bool taken[SHIM_MAX_NDIM] = {false};
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    const struct shim_tensor *tensor = self->tensor;
    if (num_dims != tensor->ndim || (num_dims > 0 && dims == NULL))
        return aoticache_shim_fail("%s: %lld dimensions for a tensor with %d", __func__, (long long)num_dims,
                                   (int)tensor->ndim);
    for (int64_t i = 0; i < num_dims; i++) {
        int from;
        SHIM_TRY(aoticache_shim_wrap_dimension(__func__, tensor->ndim, dims[i], &from));
        if (taken[from])
            return aoticache_shim_fail("%s: dimension %d is given twice", __func__, from);
        taken[from] = true;
        sizes[i] = tensor->sizes[from];
        strides[i] = tensor->strides[from];
    }
    return view_of(__func__, self, num_dims, sizes, strides, tensor->offset, ret_0);
}

AOTITorchError aoti_torch_cpu_squeeze_dim(AtenTensorHandle self, int64_t dim, AtenTensorHandle *ret_0)
{
    int64_t sizes[SHIM_MAX_NDIM], strides[SHIM_MAX_NDIM];
    int ndim = 0, dropped;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    const struct shim_tensor *tensor = self->tensor;
    SHIM_TRY(aoticache_shim_wrap_dimension(__func__, tensor->ndim, dim, &dropped));
    for (int d = 0; d < tensor->ndim; d++) {
        if (d == dropped && tensor->sizes[d] == 1)
            continue;
        sizes[ndim] = tensor->sizes[d];
        strides[ndim++] = tensor->strides[d];
    }
    return view_of(__func__, self, ndim, sizes, strides, tensor->offset, ret_0);
}

static int64_t clip(int64_t value, int64_t size)
{
    if (value < 0)
        value += size;
    return value < 0 ? 0 : value > size ? size : value;
}

/* Views `count` elements of dimension `dim` from `start` on, `step` apart. */
static AOTITorchError cut_dimension(const char *function, AtenTensorHandle self, int dim, int64_t start, int64_t count,
                                    int64_t step, AtenTensorHandle *ret_tensor)
{
    int64_t sizes[SHIM_MAX_NDIM], strides[SHIM_MAX_NDIM];
    const struct shim_tensor *tensor = self->tensor;
    for (int d = 0; d < tensor->ndim; d++) {
        sizes[d] = tensor->sizes[d];
        strides[d] = tensor->strides[d];
    }
    sizes[dim] = count;
    if (__builtin_mul_overflow(strides[dim], step, &strides[dim]))
        return aoticache_shim_fail("%s: a step of %lld is too large", function, (long long)step);
    return view_of(function, self, tensor->ndim, sizes, strides, tensor->offset + start * tensor->strides[dim],
                   ret_tensor);
}

AOTITorchError aoti_torch_cpu_slice_Tensor(AtenTensorHandle self, int64_t dim, int64_t *start, int64_t *end,
                                           int64_t step, AtenTensorHandle *ret_0)
{
    int at;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    if (self->tensor->ndim == 0)
        return aoticache_shim_fail("%s: a zero-dimensional tensor cannot be sliced", __func__);
    SHIM_TRY(aoticache_shim_wrap_dimension(__func__, self->tensor->ndim, dim, &at));
    if (step <= 0)
        return aoticache_shim_fail("%s: the step is %lld; it must be positive", __func__, (long long)step);
    int64_t size = self->tensor->sizes[at];
    int64_t first = clip(start != NULL ? *start : 0, size), last = clip(end != NULL ? *end : size, size);
    int64_t span = last > first ? last - first : 0;
    return cut_dimension(__func__, self, at, first, span / step + (span % step != 0), step, ret_0);
}

static AOTITorchError narrow(const char *function, AtenTensorHandle self, int64_t dim, int64_t start, int64_t length,
                             AtenTensorHandle *ret_tensor)
{
    int at;
    if (self->tensor->ndim == 0)
        return aoticache_shim_fail("%s: a zero-dimensional tensor cannot be narrowed", function);
    SHIM_TRY(aoticache_shim_wrap_dimension(function, self->tensor->ndim, dim, &at));
    int64_t size = self->tensor->sizes[at], first = start < 0 ? start + size : start;
    if (length < 0 || first < 0 || first > size || length > size - first)
        return aoticache_shim_fail("%s: %lld elements from %lld on, but dimension %d has %lld", function,
                                   (long long)length, (long long)start, at, (long long)size);
    return cut_dimension(function, self, at, first, length, 1, ret_tensor);
}

AOTITorchError aoti_torch_cpu_narrow(AtenTensorHandle self, int64_t dim, int64_t start, int64_t length,
                                     AtenTensorHandle *ret_0)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    return narrow(__func__, self, dim, start, length, ret_0);
}

AOTITorchError aoti_torch_aten_narrow(AtenTensorHandle self, int64_t dim, int64_t start, int64_t length,
                                      AtenTensorHandle *ret_0)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    return narrow(__func__, self, dim, start, length, ret_0);
}

/* Infers a size of -1, of which there may be one, from the others. */
static AOTITorchError infer_sizes(const char *function, int64_t numel, const int64_t *shape, int64_t ndim,
                                  int64_t *ret_sizes)
{
    int64_t known = 1, open = -1;
    for (int64_t d = 0; d < ndim; d++) {
        ret_sizes[d] = shape[d];
        if (shape[d] == -1 && open < 0)
            open = d;
        else if (shape[d] < 0)
            return aoticache_shim_fail("%s: invalid size %lld of dimension %lld", function, (long long)shape[d],
                                       (long long)d);
        else if (__builtin_mul_overflow(known, shape[d], &known))
            return aoticache_shim_fail("%s: the number of elements does not fit into 64 bits", function);
    }
    if (open >= 0) {
        if (known == 0 || numel % known != 0)
            return aoticache_shim_fail("%s: %lld elements cannot be split into %lld", function, (long long)numel,
                                       (long long)known);
        ret_sizes[open] = numel / known;
    } else if (known != numel) {
        return aoticache_shim_fail("%s: a shape of %lld elements does not match a tensor of %lld", function,
                                   (long long)known, (long long)numel);
    }
    return SHIM_SUCCESS;
}

/*
 * Finds strides by which `sizes` are a view of tensor: runs of dimensions that are contiguous in memory are split
 * again, one after the other, from the last on. False: there are none.
 */
static bool view_strides(const struct shim_tensor *tensor, int64_t ndim, const int64_t *sizes, int64_t *ret_strides)
{
    int64_t at = ndim - 1, run = 1, split = 1;
    int64_t base = tensor->ndim > 0 ? tensor->strides[tensor->ndim - 1] : 1;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        run *= tensor->sizes[d];
        if (d > 0 && (tensor->sizes[d - 1] == 1 || tensor->strides[d - 1] == run * base))
            continue;
        while (at >= 0 && (split < run || sizes[at] == 1)) {
            ret_strides[at] = split * base;
            split *= sizes[at--];
        }
        if (split != run)
            return false;
        if (d > 0)
            base = tensor->strides[d - 1];
        run = split = 1;
    }
    for (; at >= 0; at--) /* sizes of a single number, and leading ones */
        ret_strides[at] = 1;
    return true;
}

AOTITorchError aoti_torch_cpu_reshape(AtenTensorHandle self, const int64_t *shape, int64_t num_shape,
                                      AtenTensorHandle *ret_0)
{
    int64_t sizes[SHIM_MAX_NDIM], strides[SHIM_MAX_NDIM];
    cleanup_tensor AtenTensorHandle made = NULL, copy = NULL;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    if (num_shape < 0 || num_shape > SHIM_MAX_NDIM || (num_shape > 0 && shape == NULL))
        return aoticache_shim_fail("%s: invalid number of dimensions: %lld", __func__, (long long)num_shape);
    SHIM_TRY(infer_sizes(__func__, self->tensor->numel, shape, num_shape, sizes));
    if (self->tensor->numel > 0 && view_strides(self->tensor, num_shape, sizes, strides))
        return view_of(__func__, self, num_shape, sizes, strides, self->tensor->offset, ret_0);
    SHIM_TRY(aoticache_shim_make(__func__, num_shape, sizes, self->tensor->dtype, &made));
    if (self->tensor->numel > 0) {
        SHIM_TRY(aoticache_shim_read_copy(__func__, self, self->tensor->dtype, &copy));
        return view_of(__func__, copy, num_shape, sizes, made->tensor->strides, 0, ret_0);
    }
    *ret_0 = shim_steal(&made);
    return SHIM_SUCCESS;
}

/* Returns the dtype of the parts of a complex number; pair_dtype() returns that of a pair of numbers. -1: none. */
static int32_t part_dtype(int32_t dtype)
{
    switch (dtype) {
    case AOTICACHE_DTYPE_COMPLEX32:
        return AOTICACHE_DTYPE_FLOAT16;
    case AOTICACHE_DTYPE_COMPLEX64:
        return AOTICACHE_DTYPE_FLOAT32;
    case AOTICACHE_DTYPE_COMPLEX128:
        return AOTICACHE_DTYPE_FLOAT64;
    default:
        return -1;
    }
}

static int32_t pair_dtype(int32_t dtype)
{
    switch (dtype) {
    case AOTICACHE_DTYPE_FLOAT16:
        return AOTICACHE_DTYPE_COMPLEX32;
    case AOTICACHE_DTYPE_FLOAT32:
        return AOTICACHE_DTYPE_COMPLEX64;
    case AOTICACHE_DTYPE_FLOAT64:
        return AOTICACHE_DTYPE_COMPLEX128;
    default:
        return -1;
    }
}

AOTITorchError aoti_torch_cpu_view_as_real(AtenTensorHandle self, AtenTensorHandle *ret_0)
{
    int64_t sizes[SHIM_MAX_NDIM + 1], strides[SHIM_MAX_NDIM + 1];
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    const struct shim_tensor *tensor = self->tensor;
    int32_t dtype = part_dtype(tensor->dtype);
    if (dtype < 0)
        return aoticache_shim_fail_dtype(__func__, tensor->dtype);
    for (int d = 0; d < tensor->ndim; d++) {
        sizes[d] = tensor->sizes[d];
        strides[d] = 2 * tensor->strides[d];
    }
    sizes[tensor->ndim] = 2;
    strides[tensor->ndim] = 1;
    return aoticache_shim_tensor_view(__func__, tensor, dtype, tensor->ndim + 1, sizes, strides, 2 * tensor->offset,
                                      ret_0);
}

AOTITorchError aoti_torch_cpu_view_as_complex(AtenTensorHandle self, AtenTensorHandle *ret_0)
{
    int64_t strides[SHIM_MAX_NDIM];
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    const struct shim_tensor *tensor = self->tensor;
    int last = tensor->ndim - 1;
    int32_t dtype = pair_dtype(tensor->dtype);
    if (dtype < 0)
        return aoticache_shim_fail_dtype(__func__, tensor->dtype);
    if (last < 0 || tensor->sizes[last] != 2 || tensor->strides[last] != 1)
        return aoticache_shim_fail("%s: the last dimension must be one of size 2 and stride 1", __func__);
    if (tensor->offset % 2 != 0)
        return aoticache_shim_fail("%s: storage offset %lld is odd", __func__, (long long)tensor->offset);
    for (int d = 0; d < last; d++) {
        if (tensor->strides[d] % 2 != 0)
            return aoticache_shim_fail("%s: stride %lld of dimension %d is odd", __func__,
                                       (long long)tensor->strides[d], d);
        strides[d] = tensor->strides[d] / 2;
    }
    return aoticache_shim_tensor_view(__func__, tensor, dtype, last, tensor->sizes, strides, tensor->offset / 2, ret_0);
}

static AOTITorchError check_format(const char *function, const int32_t *memory_format)
{
    if (memory_format != NULL && *memory_format != AOTICACHE_MEMORY_FORMAT_CONTIGUOUS &&
        *memory_format != AOTICACHE_MEMORY_FORMAT_PRESERVE)
        return aoticache_shim_fail("%s: memory format %d is not supported", function, (int)*memory_format);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_resize_(AtenTensorHandle self, const int64_t *size, int64_t num_size,
                                      int32_t *memory_format)
{
    SHIM_TRY(check_format(__func__, memory_format));
    return aoticache_shim_resize(__func__, self, num_size, size);
}

AOTITorchError aoti_torch_cpu_resize_as_(AtenTensorHandle self, AtenTensorHandle the_template, int32_t *memory_format)
{
    SHIM_CHECK_TENSOR(the_template);
    SHIM_TRY(check_format(__func__, memory_format));
    return aoticache_shim_resize(__func__, self, the_template->tensor->ndim, the_template->tensor->sizes);
}

AOTITorchError aoti_torch_cpu_set__source_Tensor(AtenTensorHandle self, AtenTensorHandle source)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_TENSOR(source);
    if (self->tensor->dtype != source->tensor->dtype)
        return aoticache_shim_fail("%s: the tensors must have the same dtype", __func__);
    return aoti_torch_assign_tensors(source, self);
}
