/*
 * shim/convolution_gather: which elements of the input a kernel sees, and copies of them in the order that the product
 * wants. A transposed convolution sees the input's elements `stride` apart with zeros between them.
 */
#include "runtime/shim/math/convolution.h"

#include <string.h>

#include "runtime/shim/convert.h"

/* Which element of the input the kernel's position `k` sees at position `out` of the result; -1: none. */
static int64_t seen_at(const struct convolution *c, int axis, int64_t out, int64_t k)
{
    int64_t shift = k * c->dilation[axis] - c->padding[axis];
    int64_t at = c->transposed ? out - shift : out * c->stride[axis] + shift;
    if (c->transposed) {
        if (at < 0 || at % c->stride[axis] != 0)
            return -1;
        at /= c->stride[axis];
    }
    return at >= 0 && at < c->input.sizes[axis] ? at : -1;
}

/* Those of `count` positions from `out` on, along the last axis, at which an element is seen. */
struct seen_run {
    int64_t first, count, step; /* positions, from `out` on */
    int64_t element, element_step;
};

static int64_t round_up_quotient(int64_t value, int64_t divisor)
{
    return value <= 0 ? 0 : (value + divisor - 1) / divisor;
}

static struct seen_run seen_along(const struct convolution *c, int64_t out, int64_t count, int64_t k)
{
    const int axis = IMAGE_AXES - 1;
    int64_t stride = c->stride[axis], shift = k * c->dilation[axis] - c->padding[axis], size = c->input.sizes[axis];
    struct seen_run run = {.step = 1, .element_step = stride};
    int64_t last; /* position at which the last element is seen, or the last before that */
    if (c->transposed) {
        run.step = stride;
        run.element_step = 1;
        run.element = round_up_quotient(out - shift, stride);
        run.first = run.element * stride + shift - out;
        last = (size - 1) * stride + shift - out;
    } else {
        run.first = round_up_quotient(-(out * stride + shift), stride);
        run.element = (out + run.first) * stride + shift;
        last = size - 1 - shift < 0 ? -1 : (size - 1 - shift) / stride - out;
    }
    if (last > count - 1)
        last = count - 1;
    run.count = last >= run.first ? (last - run.first) / run.step + 1 : 0;
    return run;
}

void aoticache_shim_split_position(const int64_t sizes[IMAGE_AXES], int64_t position, int64_t ret_at[IMAGE_AXES])
{
    for (int axis = IMAGE_AXES - 1; axis >= 0; axis--) {
        ret_at[axis] = position % sizes[axis];
        position /= sizes[axis];
    }
}

/* One channel and kernel position: what is seen at `count` positions from `first` on. */
static void gather_line(const struct convolution *c, const char *channel, const int64_t k[IMAGE_AXES], int64_t first,
                        int64_t count, char *line)
{
    const struct shim_conversion same = {.item_bytes = (uint32_t)c->item_bytes};
    const struct image *input = &c->input;
    int64_t at[IMAGE_AXES];
    aoticache_shim_split_position(c->output.sizes, first, at);
    while (count > 0) {
        int64_t length = c->output.sizes[2] - at[2];
        length = length < count ? length : count;
        int64_t depth = seen_at(c, 0, at[0], k[0]), row = seen_at(c, 1, at[1], k[1]);
        struct seen_run run = {0};
        if (depth >= 0 && row >= 0)
            run = seen_along(c, at[2], length, k[2]);
        if (run.count < length)
            memset(line, 0, (size_t)(length * c->item_bytes));
        if (run.count > 0)
            aoticache_shim_convert_row(&same, (size_t)run.count, line + run.first * c->item_bytes,
                                       run.step * c->item_bytes,
                                       channel + depth * input->strides[0] + row * input->strides[1] +
                                           run.element * input->strides[2],
                                       run.element_step * input->strides[2]);
        line += length * c->item_bytes;
        count -= length;
        at[2] = 0;
        if (++at[1] == c->output.sizes[1]) {
            at[1] = 0;
            at[0]++;
        }
    }
}

void aoticache_shim_gather_planar(const struct convolution *c, const char *input, int64_t first, int64_t count,
                                  char *columns)
{
    for (int64_t channel = 0; channel < c->group_inputs; channel++) {
        for (int64_t position = 0; position < c->kernel_positions; position++) {
            int64_t k[IMAGE_AXES];
            aoticache_shim_split_position(c->kernel, position, k);
            gather_line(c, input + channel * c->input.channel_stride, k, first, count, columns);
            columns += count * c->item_bytes;
        }
    }
}

void aoticache_shim_gather_channels_last(const struct convolution *c, const char *input, int64_t first, int64_t count,
                                         char *columns)
{
    size_t bytes = (size_t)(c->group_inputs * c->item_bytes);
    for (int64_t i = first; i < first + count; i++) {
        int64_t at[IMAGE_AXES];
        aoticache_shim_split_position(c->output.sizes, i, at);
        for (int64_t position = 0; position < c->kernel_positions; position++, columns += bytes) {
            int64_t k[IMAGE_AXES], seen[IMAGE_AXES];
            aoticache_shim_split_position(c->kernel, position, k);
            for (int axis = 0; axis < IMAGE_AXES; axis++)
                seen[axis] = seen_at(c, axis, at[axis], k[axis]);
            if (seen[0] < 0 || seen[1] < 0 || seen[2] < 0)
                memset(columns, 0, bytes);
            else
                memcpy(columns,
                       input + seen[0] * c->input.strides[0] + seen[1] * c->input.strides[1] +
                           seen[2] * c->input.strides[2],
                       bytes);
        }
    }
}
