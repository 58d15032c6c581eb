/*
 * shim/convolution: shared by convolution.c, which checks and multiplies, convolution_gather.c, which brings together
 * what the kernel sees at each position of the result, and convolution_depthwise.c, which does without either.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_CONVOLUTION_H
#define AOTICACHE_RUNTIME_SHIM_MATH_CONVOLUTION_H

#include "runtime/shim/math/image.h"

struct convolution {
    struct image input, output;
    int32_t dtype;
    ptrdiff_t item_bytes;
    int axes;
    bool transposed;
    bool channels_last; /* columns hold the channels of a kernel position side by side, as the input does */
    int64_t groups;
    int64_t group_inputs, group_outputs; /* channels of one group */
    int64_t kernel[IMAGE_AXES], stride[IMAGE_AXES], padding[IMAGE_AXES], dilation[IMAGE_AXES];
    int64_t output_padding[IMAGE_AXES];
    int64_t kernel_positions;
    const struct shim_tensor *bias; /* NULL: none */
};

/* The place of element `position` of an image of these sizes. */
void aoticache_shim_split_position(const int64_t sizes[IMAGE_AXES], int64_t position, int64_t ret_at[IMAGE_AXES]);

/*
 * What one group sees at `count` positions of the result from `first` on, as a matrix with a column for each position.
 * input: the group's first channel.
 *
 * planar: row by row: channels, and for each the kernel's positions.
 * channels_last: column by column: the kernel's positions, and for each the channels, which lie side by side in the
 * input too.
 */
void aoticache_shim_gather_planar(const struct convolution *c, const char *input, int64_t first, int64_t count,
                                  char *columns);
void aoticache_shim_gather_channels_last(const struct convolution *c, const char *input, int64_t first, int64_t count,
                                         char *columns);

/* Each channel has a kernel of its own, and makes one channel. False: out of memory. */
bool aoticache_shim_is_depthwise(const struct convolution *c);
bool aoticache_shim_convolve_depthwise(const struct convolution *c, const struct image *weight);

#endif
