/*
 * shim/image: what convolution and pooling share: tensors of a batch, channels and one to three spatial dimensions,
 * seen as three; their memory formats; and the lists of numbers that describe a window (stride, padding, dilation).
 *
 * Every number in these lists and every size is below 2^31 once it has been read here, so that the arithmetic of
 * windows stays inside int64_t.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_IMAGE_H
#define AOTICACHE_RUNTIME_SHIM_MATH_IMAGE_H

#include "runtime/shim/tensor.h"

#define IMAGE_AXES 3

/* Dimensions that the tensor lacks are in front, with size 1. Strides in bytes. */
struct image {
    char *data;
    int64_t batch, channels;
    int64_t sizes[IMAGE_AXES];
    ptrdiff_t batch_stride, channel_stride;
    ptrdiff_t strides[IMAGE_AXES];
};

/* A tensor of `axes` spatial dimensions, after channels and, where it has that many dimensions, a batch. */
AOTITorchError aoticache_shim_image_of(const char *function, const struct shim_tensor *tensor, int axes,
                                       struct image *ret_image);

/* c10::is_channels_last_strides_2d and _3d, for 4 and 5 dimensions; others are not. Source: c10/core/MemoryFormat.h. */
bool aoticache_shim_is_channels_last(const struct shim_tensor *tensor);

/* Fresh memory for a tensor of `ndim` dimensions, the second one innermost if channels_last. */
AOTITorchError aoticache_shim_image_empty(const char *function, int ndim, const int64_t *sizes, bool channels_last,
                                          int32_t dtype, AtenTensorHandle *ret_tensor);

/*
 * A list with one number for each of `axes` spatial dimensions, or one for all, into the last places of three; the
 * others get `filler`. Numbers below `least` are refused; the message names `what`.
 */
AOTITorchError aoticache_shim_window_read(const char *function, const char *what, const int64_t *values, int64_t count,
                                          int axes, int64_t least, int64_t filler, int64_t ret_values[IMAGE_AXES]);

#endif
