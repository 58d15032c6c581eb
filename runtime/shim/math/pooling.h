/*
 * shim/pooling: what pooling.c (the functions and their checks), pooling_ranges.c (where windows lie) and
 * pooling_plane.c (what is made of their elements) share.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_POOLING_H
#define AOTICACHE_RUNTIME_SHIM_MATH_POOLING_H

#include "runtime/shim/math/image.h"

/* Elements start, start + step, ... below end; `full`: how many there would be with the padding. */
struct range {
    int64_t start, end, step, full;
};

struct pooling {
    const char *function;
    int axes;
    struct image input, output;
    int32_t dtype;
    char *indices;             /* int64_t, strides as the output's in elements; NULL: the mean is asked for */
    int64_t divisor;           /* of the mean; 0: the number of elements */
    bool count_padding;
    struct range *ranges[IMAGE_AXES];
    double *plane;
};

struct window {
    int64_t kernel[IMAGE_AXES], stride[IMAGE_AXES], padding[IMAGE_AXES], dilation[IMAGE_AXES];
    bool ceil_mode;
};

/* Fill p->ranges for all positions of the result: of windows, adaptive ones, fractional ones by samples from 0 to 1. */
void aoticache_shim_window_ranges(const struct pooling *p, const struct window *window);
void aoticache_shim_adaptive_ranges(const struct pooling *p);
AOTITorchError aoticache_shim_fractional_ranges(const struct pooling *p, const struct window *window,
                                                const double samples[IMAGE_AXES]);

/* One channel of one image. */
void aoticache_shim_pool_plane(const struct pooling *p, int64_t batch, int64_t channel);

#endif
