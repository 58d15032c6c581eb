/*
 * shim/pooling/image: how convolution and pooling interpret a tensor, and the numbers that describe a window.
 */
#include "runtime/shim/math/math_internal.h"

#define IMAGE_MAX_SIZE INT32_MAX

AOTITorchError aoticache_shim_image_of(const char *function, const struct shim_tensor *tensor, int axes,
                                       struct image *ret_image)
{
    int channels = tensor->ndim - axes - 1;
    ptrdiff_t item_bytes = tensor->item_bytes;
    struct image image = {.data = tensor->data, .batch = 1, .sizes = {1, 1, 1}};
    if (channels != 0 && channels != 1)
        return aoticache_shim_fail("%s: the tensor must have %d or %d dimensions, but has %d", function, axes + 1,
                                   axes + 2, (int)tensor->ndim);
    for (int d = 0; d < tensor->ndim; d++)
        if (tensor->sizes[d] > IMAGE_MAX_SIZE)
            return aoticache_shim_fail("%s: dimension %d has size %lld; at most %d is supported", function, d,
                                       (long long)tensor->sizes[d], IMAGE_MAX_SIZE);
    if (channels == 1) {
        image.batch = tensor->sizes[0];
        image.batch_stride = (ptrdiff_t)tensor->strides[0] * item_bytes;
    }
    image.channels = tensor->sizes[channels];
    image.channel_stride = (ptrdiff_t)tensor->strides[channels] * item_bytes;
    for (int axis = 0; axis < axes; axis++) {
        image.sizes[IMAGE_AXES - axes + axis] = tensor->sizes[channels + 1 + axis];
        image.strides[IMAGE_AXES - axes + axis] = (ptrdiff_t)tensor->strides[channels + 1 + axis] * item_bytes;
    }
    *ret_image = image;
    return SHIM_SUCCESS;
}

bool aoticache_shim_is_channels_last(const struct shim_tensor *tensor)
{
    static const int orders[2][5] = {{1, 3, 2, 0}, {1, 4, 3, 2, 0}};
    if ((tensor->ndim != 4 && tensor->ndim != 5) || tensor->strides[1] == 0)
        return false;
    int64_t least = 0;
    for (int i = 0; i < tensor->ndim; i++) {
        int d = orders[tensor->ndim - 4][i];
        if (tensor->sizes[d] == 0 || tensor->strides[d] < least)
            return false;
        /* N111, and NCHW with C == 1, are both contiguous and channels last: treat them as contiguous. */
        if (d == 0 && least == tensor->strides[1])
            return false;
        least = tensor->strides[d];
        if (tensor->sizes[d] > 1 && __builtin_mul_overflow(least, tensor->sizes[d], &least))
            return false;
    }
    return true;
}

AOTITorchError aoticache_shim_image_empty(const char *function, int ndim, const int64_t *sizes, bool channels_last,
                                          int32_t dtype, AtenTensorHandle *ret_tensor)
{
    int64_t strides[SHIM_MAX_NDIM], stride = 1;
    bool overflow = false;
    if (channels_last) {
        strides[1] = 1;
        stride = sizes[1] > 1 ? sizes[1] : 1;
    }
    for (int d = ndim - 1; d >= 0; d--) {
        if (channels_last && d == 1)
            continue;
        strides[d] = stride;
        overflow |= __builtin_mul_overflow(stride, sizes[d] > 1 ? sizes[d] : 1, &stride);
    }
    if (overflow)
        return aoticache_shim_fail("%s: a result of this size does not fit into memory", function);
    return aoticache_shim_tensor_empty(function, ndim, sizes, strides, dtype, ret_tensor);
}

AOTITorchError aoticache_shim_window_read(const char *function, const char *what, const int64_t *values, int64_t count,
                                          int axes, int64_t least, int64_t filler, int64_t ret_values[IMAGE_AXES])
{
    if ((count != axes && count != 1) || values == NULL)
        return aoticache_shim_fail("%s: %s has %lld numbers; it must have 1 or %d", function, what, (long long)count,
                                   axes);
    for (int axis = 0; axis < IMAGE_AXES; axis++)
        ret_values[axis] = filler;
    for (int axis = 0; axis < axes; axis++) {
        int64_t value = values[count == 1 ? 0 : axis];
        if (value < least || value > IMAGE_MAX_SIZE)
            return aoticache_shim_fail("%s: %s is %lld; it must be %lld to %d", function, what, (long long)value,
                                       (long long)least, IMAGE_MAX_SIZE);
        ret_values[IMAGE_AXES - axes + axis] = value;
    }
    return SHIM_SUCCESS;
}

void aoticache_shim_split_position(const int64_t sizes[IMAGE_AXES], int64_t position, int64_t ret_at[IMAGE_AXES])
{
    for (int axis = IMAGE_AXES - 1; axis >= 0; axis--) {
        ret_at[axis] = position % sizes[axis];
        position /= sizes[axis];
    }
}
