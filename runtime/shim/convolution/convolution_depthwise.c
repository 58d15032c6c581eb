/*
 * shim/convolution/convolution_depthwise: convolutions in which each channel has its own kernel. As matrix multiplications
 * they would have one row each, and gathering the inputs would be most of the work. Here a row of the result is the sum
 * of rows of the input, each times one element of the kernel; and if the channels are contiguous, all channels of one
 * position are summed together.
 */
#include "runtime/shim/math/math_internal.h"

#include "runtime/shim/tensors/convert.h"

#include <stdatomic.h>
#include <string.h>

/* The planes of the result (a channel of one image each), or its rows. Each worker takes the next one. */
struct planes {
    const struct convolution *c;
    const struct image *weight;
    const struct shim_dtype_access *access;
    char *memory; /* rows of values, `step` bytes for each worker */
    size_t step, value_bytes;
    _Atomic int64_t next;
};

/* sums[i] += weight * row[i * step]; sums[i] += weights[i] * row[i]; in lanes that the compiler turns into vectors. */
#define DEFINE_ADD(name, type)                                                                           \
    static void add_##name(int64_t count, void *sums, const void *row, int64_t step, const void *weight) \
    {                                                                                                    \
        enum { LANES = 32 / sizeof(type) };                                                              \
        typedef type lanes __attribute__((vector_size(32)));                                             \
        type *to = sums;                                                                                 \
        const type *from = row, factor = *(const type *)weight;                                          \
        int64_t i = 0;                                                                                   \
        for (; step == 1 && i + LANES <= count; i += LANES) {                                            \
            lanes sum, some;                                                                             \
            memcpy(&sum, to + i, sizeof sum);                                                            \
            memcpy(&some, from + i, sizeof some);                                                        \
            sum += factor * some;                                                                        \
            memcpy(to + i, &sum, sizeof sum);                                                            \
        }                                                                                                \
        for (; i < count; i++)                                                                           \
            to[i] += factor * from[i * step];                                                            \
    }                                                                                                    \
    static void add_products_##name(int64_t count, void *sums, const void *row, const void *weights)     \
    {                                                                                                    \
        enum { LANES = 32 / sizeof(type) };                                                              \
        typedef type lanes __attribute__((vector_size(32)));                                             \
        type *to = sums;                                                                                 \
        const type *from = row, *factors = weights;                                                      \
        int64_t i = 0;                                                                                   \
        for (; i + LANES <= count; i += LANES) {                                                         \
            lanes sum, some, factor;                                                                     \
            memcpy(&sum, to + i, sizeof sum);                                                            \
            memcpy(&some, from + i, sizeof some);                                                        \
            memcpy(&factor, factors + i, sizeof factor);                                                 \
            sum += factor * some;                                                                        \
            memcpy(to + i, &sum, sizeof sum);                                                            \
        }                                                                                                \
        for (; i < count; i++)                                                                           \
            to[i] += factors[i] * from[i];                                                               \
    }                                                                                                    \
    static void add_to_all_##name(int64_t count, void *sums, const void *addend)                         \
    {                                                                                                    \
        for (int64_t i = 0; i < count; i++)                                                              \
            ((type *)sums)[i] += *(const type *)addend;                                                  \
    }

DEFINE_ADD(floats, float)
DEFINE_ADD(doubles, double)

/* Adds one row of the input, multiplied by one row of the kernel. */
static void add_row(const struct planes *planes, const char *kernel_row, const char *row, char *sums)
{
    const struct convolution *c = planes->c;
    const int64_t stride = c->stride[2], size = c->input.sizes[2], count = c->output.sizes[2];
    for (int64_t k = 0; k < c->kernel[2]; k++, kernel_row += planes->value_bytes) {
        int64_t shift = k * c->dilation[2] - c->padding[2];
        int64_t first = shift < 0 ? (-shift + stride - 1) / stride : 0;
        int64_t end = size - 1 - shift < 0 ? 0 : (size - 1 - shift) / stride + 1;
        end = end < count ? end : count;
        if (first >= end)
            continue;
        char *to = sums + first * (int64_t)planes->value_bytes;
        const char *from = row + (first * stride + shift) * (int64_t)planes->value_bytes;
        if (planes->access->load_class == SHIM_CLASS_DOUBLE)
            add_doubles(end - first, to, from, stride, kernel_row);
        else
            add_floats(end - first, to, from, stride, kernel_row);
    }
}

/* Returns the position of the input under kernel position `k` at `out`, or -1. */
static int64_t seen_at(const struct convolution *c, int axis, int64_t out, int64_t k)
{
    int64_t at = out * c->stride[axis] + k * c->dilation[axis] - c->padding[axis];
    return at >= 0 && at < c->input.sizes[axis] ? at : -1;
}

static void make_row(const struct planes *planes, const char *input, int64_t z, int64_t y, char *row, char *sums,
                     const char *kernel)
{
    const struct convolution *c = planes->c;
    const ptrdiff_t value_bytes = (ptrdiff_t)planes->value_bytes; /* rows that are values already need no conversion */
    bool is_row = c->item_bytes == value_bytes && c->input.strides[2] == value_bytes;
    memset(sums, 0, (size_t)c->output.sizes[2] * planes->value_bytes);
    for (int64_t k = 0; k < c->kernel[0] * c->kernel[1]; k++) {
        int64_t in_z = seen_at(c, 0, z, k / c->kernel[1]), in_y = seen_at(c, 1, y, k % c->kernel[1]);
        if (in_z < 0 || in_y < 0)
            continue;
        const char *source = input + in_z * c->input.strides[0] + in_y * c->input.strides[1];
        if (!is_row) {
            planes->access->load((size_t)c->input.sizes[2], row, source, c->input.strides[2]);
            source = row;
        }
        add_row(planes, kernel + (size_t)(k * c->kernel[2]) * planes->value_bytes, source, sums);
    }
}

static void load_kernel(const struct planes *planes, int64_t channel, char *kernel)
{
    const struct image *weight = planes->weight;
    const char *source = weight->data + channel * weight->batch_stride;
    const int64_t *sizes = planes->c->kernel;
    for (int64_t k = 0; k < sizes[0] * sizes[1]; k++, kernel += (size_t)sizes[2] * planes->value_bytes)
        planes->access->load((size_t)sizes[2], kernel,
                             source + k / sizes[1] * weight->strides[0] + k % sizes[1] * weight->strides[1],
                             weight->strides[2]);
}

static void add_bias(const struct planes *planes, int64_t channel, char *sums)
{
    const struct convolution *c = planes->c;
    double value;
    if (c->bias == NULL)
        return;
    planes->access->load(1, &value, (const char *)c->bias->data + channel * c->bias->strides[0] * c->item_bytes, 0);
    if (planes->access->load_class == SHIM_CLASS_DOUBLE)
        add_to_all_doubles(c->output.sizes[2], sums, &value);
    else
        add_to_all_floats(c->output.sizes[2], sums, &value);
}

static void make_plane(const struct planes *planes, int64_t plane, char *kernel, char *row, char *sums)
{
    const struct convolution *c = planes->c;
    int64_t batch = plane / c->groups, channel = plane % c->groups;
    const char *input = c->input.data + batch * c->input.batch_stride + channel * c->input.channel_stride;
    char *output = c->output.data + batch * c->output.batch_stride + channel * c->output.channel_stride;
    load_kernel(planes, channel, kernel);
    for (int64_t i = 0; i < c->output.sizes[0] * c->output.sizes[1]; i++) {
        int64_t z = i / c->output.sizes[1], y = i % c->output.sizes[1];
        make_row(planes, input, z, y, row, sums, kernel);
        add_bias(planes, channel, sums);
        planes->access->store((size_t)c->output.sizes[2], output + z * c->output.strides[0] + y * c->output.strides[1],
                              c->output.strides[2], sums);
    }
}

static void make_planes(void *user, int worker)
{
    struct planes *planes = user;
    const struct convolution *c = planes->c;
    char *kernel = planes->memory + (size_t)worker * planes->step;
    char *row = kernel + (size_t)c->kernel_positions * planes->value_bytes;
    char *sums = row + (size_t)c->input.sizes[2] * planes->value_bytes;
    for (int64_t plane; (plane = atomic_fetch_add(&planes->next, 1)) < c->output.batch * c->groups;)
        make_plane(planes, plane, kernel, row, sums);
}

static double count_work(const struct convolution *c)
{
    double work = (double)c->output.batch * (double)c->groups * (double)c->kernel_positions;
    for (int axis = 0; axis < IMAGE_AXES; axis++)
        work *= (double)c->output.sizes[axis];
    return work;
}

static bool convolve_planes(struct planes *planes)
{
    const struct convolution *c = planes->c;
    int workers = aoticache_shim_parts(count_work(c), c->output.batch * c->groups);
    planes->step = (size_t)(c->kernel_positions + c->input.sizes[2] + c->output.sizes[2]) * planes->value_bytes;
    planes->step = (planes->step + 63) & ~(size_t)63;
    size_t bytes;
    planes->memory = aoticache_shim_large_take(planes->step * (size_t)workers, &bytes);
    if (planes->memory == NULL)
        return false;
    aoticache_shim_parallel(workers, make_planes, planes);
    aoticache_shim_large_give(planes->memory, bytes);
    return true;
}

/* ---- contiguous channels: sums of all of them, position by position ---- */

/* Fills the beginning of the memory: the kernel, position by position with all channels of each, and the bias. */
static void arrange_kernel(struct planes *planes)
{
    const struct convolution *c = planes->c;
    const struct image *weight = planes->weight;
    char *to = planes->memory;
    for (int64_t k = 0; k < c->kernel_positions; k++, to += (size_t)c->groups * planes->value_bytes) {
        int64_t at[IMAGE_AXES];
        aoticache_shim_split_position(c->kernel, k, at);
        planes->access->load((size_t)c->groups, to,
                             weight->data + at[0] * weight->strides[0] + at[1] * weight->strides[1] +
                                 at[2] * weight->strides[2],
                             weight->batch_stride);
    }
    memset(to, 0, (size_t)c->groups * planes->value_bytes);
    if (c->bias != NULL)
        planes->access->load((size_t)c->groups, to, c->bias->data, (ptrdiff_t)c->bias->strides[0] * c->item_bytes);
}

static void add_position(const struct planes *planes, const char *input, int64_t k, char *row, char *sums)
{
    const struct convolution *c = planes->c;
    bool is_row = c->item_bytes == (ptrdiff_t)planes->value_bytes;
    const char *kernel = planes->memory + (size_t)(k * c->groups) * planes->value_bytes;
    if (!is_row)
        planes->access->load((size_t)c->groups, row, input, c->item_bytes);
    if (planes->access->load_class == SHIM_CLASS_DOUBLE)
        add_products_doubles(c->groups, sums, is_row ? input : row, kernel);
    else
        add_products_floats(c->groups, sums, is_row ? input : row, kernel);
}

static void make_position(const struct planes *planes, const char *input, const int64_t at[IMAGE_AXES], char *row,
                          char *sums)
{
    const struct convolution *c = planes->c;
    const size_t bytes = (size_t)c->groups * planes->value_bytes;
    const int64_t *kernel = c->kernel;
    memcpy(sums, planes->memory + (size_t)c->kernel_positions * bytes, bytes);
    for (int64_t plane = 0; plane < kernel[0] * kernel[1]; plane++) {
        int64_t z = seen_at(c, 0, at[0], plane / kernel[1]), y = seen_at(c, 1, at[1], plane % kernel[1]);
        for (int64_t k = 0; z >= 0 && y >= 0 && k < kernel[2]; k++) {
            int64_t x = seen_at(c, 2, at[2], k);
            ptrdiff_t offset = z * c->input.strides[0] + y * c->input.strides[1] + x * c->input.strides[2];
            if (x >= 0)
                add_position(planes, input + offset, plane * kernel[2] + k, row, sums);
        }
    }
}

/* Makes one row of the result at a time; `next` counts rows here. */
static void make_rows(void *user, int worker)
{
    struct planes *planes = user;
    const struct convolution *c = planes->c;
    const struct image *output = &c->output;
    const size_t bytes = (size_t)c->groups * planes->value_bytes;
    char *row = planes->memory + (size_t)(c->kernel_positions + 1) * bytes + (size_t)worker * planes->step;
    char *sums = row + bytes;
    const int64_t rows = output->sizes[0] * output->sizes[1];
    for (int64_t next; (next = atomic_fetch_add(&planes->next, 1)) < output->batch * rows;) {
        const char *input = c->input.data + next / rows * c->input.batch_stride;
        int64_t at[IMAGE_AXES] = {next % rows / output->sizes[1], next % rows % output->sizes[1], 0};
        char *to =
            output->data + next / rows * output->batch_stride + at[0] * output->strides[0] + at[1] * output->strides[1];
        for (; at[2] < output->sizes[2]; at[2]++) {
            make_position(planes, input, at, row, sums);
            planes->access->store((size_t)c->groups, to + at[2] * output->strides[2], output->channel_stride, sums);
        }
    }
}

static bool convolve_rows(struct planes *planes)
{
    const struct convolution *c = planes->c;
    const size_t bytes = (size_t)c->groups * planes->value_bytes;
    int workers = aoticache_shim_parts(count_work(c), c->output.batch * c->output.sizes[0] * c->output.sizes[1]);
    planes->step = (2 * bytes + 63) & ~(size_t)63;
    size_t block_bytes = (size_t)(c->kernel_positions + 1) * bytes + (size_t)workers * planes->step;
    planes->memory = aoticache_shim_large_take(block_bytes, &block_bytes);
    if (planes->memory == NULL)
        return false;
    arrange_kernel(planes);
    aoticache_shim_parallel(workers, make_rows, planes);
    aoticache_shim_large_give(planes->memory, block_bytes);
    return true;
}

/* ---- choice ---- */

bool aoticache_shim_is_depthwise(const struct convolution *c)
{
    return !c->transposed && c->groups > 1 && c->group_inputs == 1 && c->group_outputs == 1;
}

bool aoticache_shim_convolve_depthwise(const struct convolution *c, const struct image *weight)
{
    struct planes planes = {.c = c, .weight = weight, .access = aoticache_shim_dtype_access(c->dtype)};
    planes.value_bytes = planes.access->load_class == SHIM_CLASS_DOUBLE ? sizeof(double) : sizeof(float);
    return c->input.channel_stride == c->item_bytes ? convolve_rows(&planes) : convolve_planes(&planes);
}
