/*
 * shim/pooling_ranges: along each dimension, which elements of the input belong to each position of the result.
 *
 * Source: aten/src/ATen/native/Pool.h, AdaptivePooling.h, FractionalMaxPooling.h.
 */
#include "runtime/shim/math/pooling.h"

void aoticache_shim_window_ranges(const struct pooling *p, const struct window *window)
{
    for (int axis = 0; axis < IMAGE_AXES; axis++) {
        int64_t size = p->input.sizes[axis], padding = window->padding[axis], step = window->dilation[axis];
        for (int64_t o = 0; o < p->output.sizes[axis]; o++) {
            int64_t start = o * window->stride[axis] - padding;
            int64_t end = start + (window->kernel[axis] - 1) * step + 1;
            int64_t padded_end = end < size + padding ? end : size + padding;
            struct range range = {start, end < size ? end : size, step, padded_end - start};
            if (start < 0)
                range.start = start + (-start + step - 1) / step * step;
            p->ranges[axis][o] = range;
        }
    }
}

void aoticache_shim_adaptive_ranges(const struct pooling *p)
{
    for (int axis = 0; axis < IMAGE_AXES; axis++) {
        int64_t size = p->input.sizes[axis], count = p->output.sizes[axis];
        for (int64_t o = 0; o < count; o++) {
            int64_t start = o * size / count, end = ((o + 1) * size + count - 1) / count;
            p->ranges[axis][o] = (struct range){start, end, 1, end - start};
        }
    }
}

/* Source: fractional_max_pool_generate_intervals; in the dtype's own precision, since the fraction is cut off. */
static int64_t fractional_start(const struct pooling *p, double sample, int64_t o, int64_t room, int64_t count)
{
    if (o == count - 1)
        return room;
    if (p->dtype == AOTICACHE_DTYPE_FLOAT64) {
        double alpha = (double)room / (double)(count - 1);
        return (int64_t)(((double)o + sample) * alpha) - (int64_t)(sample * alpha);
    }
    float alpha = (float)room / (float)(count - 1), shift = (float)sample;
    return (int64_t)(((float)o + shift) * alpha) - (int64_t)(shift * alpha);
}

AOTITorchError aoticache_shim_fractional_ranges(const struct pooling *p, const struct window *window,
                                                const double samples[IMAGE_AXES])
{
    for (int axis = IMAGE_AXES - p->axes; axis < IMAGE_AXES; axis++) {
        int64_t kernel = window->kernel[axis], count = p->output.sizes[axis], room = p->input.sizes[axis] - kernel;
        if (!(samples[axis] >= 0 && samples[axis] <= 1))
            return aoticache_shim_fail("%s: a random sample is %g, 0 to 1 is allowed", p->function, samples[axis]);
        for (int64_t o = 0; o < count; o++) {
            int64_t start = fractional_start(p, samples[axis], o, room, count);
            if (start > room) /* by rounding, in a dimension of millions */
                start = room;
            p->ranges[axis][o] = (struct range){start, start + kernel, 1, kernel};
        }
    }
    return SHIM_SUCCESS;
}
