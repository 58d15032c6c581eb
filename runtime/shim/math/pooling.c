/*
 * shim/math/pooling: the largest element or the mean of windows over images and volumes: plain, adaptive and
 * fractional.
 *
 * All kinds are one walk: along each dimension every position of the result has a range of the input's; the kinds
 * differ in these ranges and in what is made of the elements.
 *
 * Source: aten/src/ATen/native/{DilatedMaxPool2d,DilatedMaxPool3d,AveragePool2d,AveragePool3d,AdaptiveMaxPooling2d,
 * AdaptiveMaxPooling3d,AdaptiveAveragePooling,AdaptiveAveragePooling3d,FractionalMaxPool2d,FractionalMaxPool3d}.cpp.
 */
#include "runtime/shim/math/internal.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/convert.h"

#include <math.h>
#include <string.h>

/* Elements start, start + step, ... below end; `full`: how many there would be with the padding. */
struct range {
    int64_t start, end, step, full;
};

struct pooling {
    const char *function;
    int axes;
    struct image input, output;
    int32_t dtype;
    char *indices;   /* int64_t, strides as the output's in elements; NULL: the mean is asked for */
    int64_t divisor; /* of the mean; 0: the number of elements */
    bool count_padding;
    struct range *ranges[IMAGE_AXES];
    double *plane;
};

struct window {
    int64_t kernel[IMAGE_AXES], stride[IMAGE_AXES], padding[IMAGE_AXES], dilation[IMAGE_AXES];
    bool ceil_mode;
};

/*
 * ---- which elements of the input belong to each position of the result, along each dimension ----
 *
 * For windows, adaptive ones, fractional ones by samples from 0 to 1; each fills p->ranges.
 *
 * Source: aten/src/ATen/native/Pool.h, AdaptivePooling.h, FractionalMaxPooling.h.
 */

static void window_ranges(const struct pooling *p, const struct window *window)
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

static void adaptive_ranges(const struct pooling *p)
{
    for (int axis = 0; axis < IMAGE_AXES; axis++) {
        int64_t size = p->input.sizes[axis], count = p->output.sizes[axis];
        for (int64_t o = 0; o < count; o++) {
            int64_t start = o * size / count, end = ((o + 1) * size + count - 1) / count;
            p->ranges[axis][o] = (struct range){start, end, 1, end - start};
        }
    }
}

/* As fractional_max_pool_generate_intervals does, in the dtype's own precision, since the fraction is cut off. */
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

static AOTITorchError fractional_ranges(const struct pooling *p, const struct window *window,
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

/*
 * ---- the largest element or the mean of each window of one plane ----
 *
 * The plane is read as double, which has all floating point numbers exactly, and the result written in its own dtype:
 * sums are rounded once.
 */

static void load_plane(const struct pooling *p, const char *data)
{
    const struct shim_dtype_access *access = aoticache_shim_dtype_access(p->dtype);
    shim_change change = aoticache_shim_class_change(SHIM_CLASS_DOUBLE, (enum shim_class)access->load_class);
    const struct image *input = &p->input;
    double *row = p->plane;
    for (int64_t depth = 0; depth < input->sizes[0]; depth++) {
        for (int64_t line = 0; line < input->sizes[1]; line++, row += input->sizes[2]) {
            const char *source = data + depth * input->strides[0] + line * input->strides[1];
            for (int64_t at = 0; at < input->sizes[2]; at += 64) {
                double values[64];
                size_t count = (size_t)(input->sizes[2] - at < 64 ? input->sizes[2] - at : 64);
                access->load(count, values, source + at * input->strides[2], input->strides[2]);
                if (change != NULL)
                    change(count, row + at, values);
                else
                    memcpy(row + at, values, count * sizeof values[0]);
            }
        }
    }
}

struct pooled {
    double value;
    int64_t index;
};

/* Finds the largest element of a window. Of several NaNs the last one counts, as in PyTorch. */
static struct pooled largest(const struct pooling *p, const struct range *depths, const struct range *rows,
                             const struct range *columns)
{
    const int64_t *sizes = p->input.sizes;
    struct pooled result = {-INFINITY, (depths->start * sizes[1] + rows->start) * sizes[2] + columns->start};
    for (int64_t d = depths->start; d < depths->end; d += depths->step) {
        for (int64_t h = rows->start; h < rows->end; h += rows->step) {
            int64_t line = (d * sizes[1] + h) * sizes[2];
            for (int64_t w = columns->start; w < columns->end; w += columns->step)
                if (p->plane[line + w] > result.value || isnan(p->plane[line + w]))
                    result = (struct pooled){p->plane[line + w], line + w};
        }
    }
    return result;
}

static struct pooled mean(const struct pooling *p, const struct range *depths, const struct range *rows,
                          const struct range *columns)
{
    const int64_t *sizes = p->input.sizes;
    struct pooled result = {0};
    int64_t count = (depths->end - depths->start) * (rows->end - rows->start) * (columns->end - columns->start);
    if (depths->end <= depths->start || rows->end <= rows->start || columns->end <= columns->start)
        return result; /* all of it is padding */
    for (int64_t d = depths->start; d < depths->end; d++)
        for (int64_t h = rows->start; h < rows->end; h++)
            for (int64_t w = columns->start; w < columns->end; w++)
                result.value += p->plane[(d * sizes[1] + h) * sizes[2] + w];
    if (p->divisor != 0)
        count = p->divisor;
    else if (p->count_padding)
        count = depths->full * rows->full * columns->full;
    result.value /= (double)count;
    return result;
}

static void store_value(const struct pooling *p, char *to, double value)
{
    const struct shim_dtype_access *access = aoticache_shim_dtype_access(p->dtype);
    float narrow = (float)value;
    access->store(1, to, 0, access->store_class == SHIM_CLASS_DOUBLE ? (const void *)&value : &narrow);
}

/* Pools one channel of one image. */
static void pool_plane(const struct pooling *p, int64_t batch, int64_t channel)
{
    const struct image *output = &p->output;
    ptrdiff_t item_bytes = (ptrdiff_t)shim_item_bytes(p->dtype);
    load_plane(p, p->input.data + batch * p->input.batch_stride + channel * p->input.channel_stride);
    for (int64_t d = 0; d < output->sizes[0]; d++) {
        for (int64_t h = 0; h < output->sizes[1]; h++) {
            for (int64_t w = 0; w < output->sizes[2]; w++) {
                ptrdiff_t at = batch * output->batch_stride + channel * output->channel_stride +
                               d * output->strides[0] + h * output->strides[1] + w * output->strides[2];
                const struct range *depths = &p->ranges[0][d], *rows = &p->ranges[1][h], *columns = &p->ranges[2][w];
                struct pooled pooled =
                    p->indices != NULL ? largest(p, depths, rows, columns) : mean(p, depths, rows, columns);
                store_value(p, output->data + at, pooled.value);
                if (p->indices != NULL)
                    memcpy(p->indices + at / item_bytes * (ptrdiff_t)sizeof pooled.index, &pooled.index,
                           sizeof pooled.index);
            }
        }
    }
}

/* ---- windows ---- */

static AOTITorchError read_window(const char *function, int axes, const int64_t *kernel, int64_t kernel_count,
                                  const int64_t *stride, int64_t stride_count, const int64_t *padding,
                                  int64_t padding_count, struct window *window)
{
    if (stride_count == 0) { /* none given: windows side by side */
        stride = kernel;
        stride_count = kernel_count;
    }
    if (aoticache_shim_window_read(function, "kernel_size", kernel, kernel_count, axes, 1, 1, window->kernel) !=
            SHIM_SUCCESS ||
        aoticache_shim_window_read(function, "stride", stride, stride_count, axes, 1, 1, window->stride) !=
            SHIM_SUCCESS ||
        aoticache_shim_window_read(function, "padding", padding, padding_count, axes, 0, 0, window->padding) !=
            SHIM_SUCCESS)
        return SHIM_FAILURE;
    for (int axis = 0; axis < IMAGE_AXES; axis++)
        if (window->padding[axis] > ((window->kernel[axis] - 1) * window->dilation[axis] + 1) / 2)
            return aoticache_shim_fail("%s: padding %lld is more than half of kernel size %lld", function,
                                       (long long)window->padding[axis], (long long)window->kernel[axis]);
    return SHIM_SUCCESS;
}

static AOTITorchError window_sizes(const struct pooling *p, const struct window *window, int64_t ret_sizes[IMAGE_AXES])
{
    for (int axis = 0; axis < IMAGE_AXES; axis++) {
        int64_t size = p->input.sizes[axis], stride = window->stride[axis], padding = window->padding[axis];
        int64_t rest = size + 2 * padding - window->dilation[axis] * (window->kernel[axis] - 1) - 1;
        int64_t steps = rest + (window->ceil_mode ? stride - 1 : 0);
        ret_sizes[axis] = steps < 0 ? 0 : steps / stride + 1;
        /* The last window begins inside the image or its padding on the left. */
        if (window->ceil_mode && (ret_sizes[axis] - 1) * stride >= size + padding)
            ret_sizes[axis]--;
        if (ret_sizes[axis] < 1)
            return aoticache_shim_fail("%s: a window of %lld does not fit into %lld elements", p->function,
                                       (long long)window->kernel[axis], (long long)size);
    }
    return SHIM_SUCCESS;
}

/* ---- one call ---- */

static AOTITorchError start_pooling(struct pooling *p, const char *function, const struct shim_tensor *input, int axes)
{
    char text[SHIM_DTYPE_TEXT_BYTES];
    p->function = function;
    p->axes = axes;
    p->dtype = input->dtype;
    if (input->dtype != AOTICACHE_DTYPE_FLOAT32 && input->dtype != AOTICACHE_DTYPE_FLOAT64 &&
        input->dtype != AOTICACHE_DTYPE_FLOAT16 && input->dtype != AOTICACHE_DTYPE_BFLOAT16)
        return aoticache_shim_fail("%s: there is no pooling of %s", function,
                                   aoticache_shim_dtype_text(input->dtype, text));
    if (aoticache_shim_image_of(function, input, axes, &p->input) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    for (int axis = 0; axis < IMAGE_AXES; axis++)
        if (p->input.sizes[axis] == 0)
            return aoticache_shim_fail("%s: there is nothing to pool, a spatial dimension has size 0", function);
    return SHIM_SUCCESS;
}

/* Allocates the memory that the walk needs, ranges and a plane, in one block at ranges[0]. */
static AOTITorchError allocate_ranges(struct pooling *p)
{
    size_t ranges = 0, plane = sizeof(double), bytes;
    bool overflow = false;
    for (int axis = 0; axis < IMAGE_AXES; axis++) {
        overflow |= __builtin_add_overflow(ranges, (size_t)p->output.sizes[axis], &ranges);
        overflow |= __builtin_mul_overflow(plane, (size_t)p->input.sizes[axis], &plane);
    }
    overflow |= __builtin_mul_overflow(ranges, sizeof(struct range), &bytes);
    overflow |= __builtin_add_overflow(bytes, plane, &bytes);
    p->ranges[0] = overflow ? NULL : malloc(bytes);
    if (p->ranges[0] == NULL)
        return aoticache_shim_fail_memory(p->function, bytes);
    p->ranges[1] = p->ranges[0] + p->output.sizes[0];
    p->ranges[2] = p->ranges[1] + p->output.sizes[1];
    p->plane = (double *)(p->ranges[2] + p->output.sizes[2]);
    return SHIM_SUCCESS;
}

/* Makes tensors for the result and, unless ret_indices is NULL, for the positions of the largest elements. */
static AOTITorchError create_results(struct pooling *p, const struct shim_tensor *input,
                                     const int64_t spatial[IMAGE_AXES], bool channels_last,
                                     AtenTensorHandle *ret_output, AtenTensorHandle *ret_indices)
{
    int64_t sizes[2 + IMAGE_AXES];
    int ndim = input->ndim, front = ndim - p->axes;
    AtenTensorHandle output, indices = NULL;
    for (int d = 0; d < ndim; d++)
        sizes[d] = d < front ? input->sizes[d] : spatial[IMAGE_AXES - p->axes + d - front];
    if (aoticache_shim_image_empty(p->function, ndim, sizes, channels_last, p->dtype, &output) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    AOTITorchError status = aoticache_shim_image_of(p->function, output->tensor, p->axes, &p->output);
    if (status == SHIM_SUCCESS && ret_indices != NULL)
        status = aoticache_shim_image_empty(p->function, ndim, sizes, channels_last, AOTICACHE_DTYPE_INT64, &indices);
    if (status != SHIM_SUCCESS) {
        aoti_torch_delete_tensor_object(output);
        return SHIM_FAILURE;
    }
    if (ret_indices != NULL) {
        p->indices = indices->tensor->data;
        *ret_indices = indices;
    }
    *ret_output = output;
    return SHIM_SUCCESS;
}

static void pool_planes(const struct pooling *p)
{
    for (int64_t batch = 0; batch < p->output.batch; batch++)
        for (int64_t channel = 0; channel < p->output.channels; channel++)
            pool_plane(p, batch, channel);
}

/* Pools a whole tensor. window NULL: adaptive. */
static AOTITorchError pool_tensor(struct pooling *p, const struct shim_tensor *input, const struct window *window,
                                  const int64_t spatial[IMAGE_AXES], bool channels_last, AtenTensorHandle *ret_output,
                                  AtenTensorHandle *ret_indices)
{
    AtenTensorHandle output, indices;
    if (create_results(p, input, spatial, channels_last, &output, ret_indices != NULL ? &indices : NULL) !=
        SHIM_SUCCESS)
        return SHIM_FAILURE;
    if (output->tensor->numel > 0) {
        if (allocate_ranges(p) != SHIM_SUCCESS) {
            aoti_torch_delete_tensor_object(output);
            if (ret_indices != NULL)
                aoti_torch_delete_tensor_object(indices);
            return SHIM_FAILURE;
        }
        if (window != NULL)
            window_ranges(p, window);
        else
            adaptive_ranges(p);
        pool_planes(p);
        free(p->ranges[0]);
    }
    *ret_output = output;
    if (ret_indices != NULL)
        *ret_indices = indices;
    return SHIM_SUCCESS;
}

static bool prefers_channels_last(const struct shim_tensor *input, int axes)
{
    return input->ndim == axes + 2 && aoticache_shim_is_channels_last(input);
}

static AOTITorchError max_pool(const char *function, int axes, AtenTensorHandle self, struct window *window,
                               const int64_t *kernel, int64_t kernel_count, const int64_t *stride, int64_t stride_count,
                               const int64_t *padding, int64_t padding_count, const int64_t *dilation,
                               int64_t dilation_count, AtenTensorHandle *ret_output, AtenTensorHandle *ret_indices)
{
    struct pooling p = {0};
    int64_t spatial[IMAGE_AXES];
    if (!shim_is_defined(self))
        return aoticache_shim_fail_undefined(function, self);
    if (ret_output == NULL || ret_indices == NULL)
        return aoticache_shim_fail("%s: no place for the results", function);
    if (start_pooling(&p, function, self->tensor, axes) != SHIM_SUCCESS ||
        aoticache_shim_window_read(function, "dilation", dilation, dilation_count, axes, 1, 1, window->dilation) !=
            SHIM_SUCCESS ||
        read_window(function, axes, kernel, kernel_count, stride, stride_count, padding, padding_count, window) !=
            SHIM_SUCCESS ||
        window_sizes(&p, window, spatial) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    return pool_tensor(&p, self->tensor, window, spatial, prefers_channels_last(self->tensor, axes), ret_output,
                       ret_indices);
}

static AOTITorchError average_pool(struct pooling *p, const char *function, int axes, AtenTensorHandle self,
                                   struct window *window, const int64_t *kernel, int64_t kernel_count,
                                   const int64_t *stride, int64_t stride_count, const int64_t *padding,
                                   int64_t padding_count, const int64_t *divisor, AtenTensorHandle *ret_output)
{
    int64_t spatial[IMAGE_AXES];
    if (!shim_is_defined(self))
        return aoticache_shim_fail_undefined(function, self);
    if (ret_output == NULL)
        return aoticache_shim_fail("%s: no place for the result", function);
    if (divisor != NULL && *divisor == 0)
        return aoticache_shim_fail("%s: divisor_override is 0", function);
    p->divisor = divisor != NULL ? *divisor : 0;
    for (int axis = 0; axis < IMAGE_AXES; axis++)
        window->dilation[axis] = 1;
    if (start_pooling(p, function, self->tensor, axes) != SHIM_SUCCESS ||
        read_window(function, axes, kernel, kernel_count, stride, stride_count, padding, padding_count, window) !=
            SHIM_SUCCESS ||
        window_sizes(p, window, spatial) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    bool channels_last = axes == 2 && prefers_channels_last(self->tensor, axes);
    return pool_tensor(p, self->tensor, window, spatial, channels_last, ret_output, NULL);
}

static AOTITorchError adaptive_pool(const char *function, int axes, AtenTensorHandle self, const int64_t *output_size,
                                    int64_t output_size_count, bool with_indices, AtenTensorHandle *ret_output,
                                    AtenTensorHandle *ret_indices)
{
    struct pooling p = {0};
    int64_t spatial[IMAGE_AXES];
    if (!shim_is_defined(self))
        return aoticache_shim_fail_undefined(function, self);
    if (ret_output == NULL || (with_indices && ret_indices == NULL))
        return aoticache_shim_fail("%s: no place for the results", function);
    if (start_pooling(&p, function, self->tensor, axes) != SHIM_SUCCESS ||
        aoticache_shim_window_read(function, "output_size", output_size, output_size_count, axes, 0, 1, spatial) !=
            SHIM_SUCCESS)
        return SHIM_FAILURE;
    bool channels_last = axes == 2 && prefers_channels_last(self->tensor, axes);
    return pool_tensor(&p, self->tensor, NULL, spatial, channels_last, ret_output, with_indices ? ret_indices : NULL);
}

/* ---- fractional: each plane has ranges of its own ---- */

/* Reads the samples of a plane, by axis. In PyTorch's two dimensions the first sample is that of the columns. */
static void read_samples(const struct pooling *p, const struct shim_tensor *samples, int64_t batch, int64_t channel,
                         double ret_samples[IMAGE_AXES])
{
    const int64_t *strides = samples->strides;
    for (int i = 0; i < p->axes; i++) {
        int axis = p->axes == 2 ? IMAGE_AXES - 1 - i : i;
        int64_t at = batch * strides[0] + channel * strides[1] + i * strides[2];
        ret_samples[axis] = p->dtype == AOTICACHE_DTYPE_FLOAT64 ? ((const double *)samples->data)[at]
                                                                : (double)((const float *)samples->data)[at];
    }
}

static AOTITorchError fractional_all(struct pooling *p, const struct window *window, const struct shim_tensor *samples)
{
    double plane_samples[IMAGE_AXES] = {0};
    p->ranges[0][0] = (struct range){0, 1, 1, 1}; /* of two dimensions the first of three is one element */
    for (int64_t batch = 0; batch < p->output.batch; batch++) {
        for (int64_t channel = 0; channel < p->output.channels; channel++) {
            read_samples(p, samples, batch, channel, plane_samples);
            if (fractional_ranges(p, window, plane_samples) != SHIM_SUCCESS)
                return SHIM_FAILURE;
            pool_plane(p, batch, channel);
        }
    }
    return SHIM_SUCCESS;
}

static AOTITorchError check_fractional(const struct pooling *p, const struct window *window,
                                       const int64_t spatial[IMAGE_AXES], const struct shim_tensor *samples)
{
    if (samples->dtype != p->dtype || (p->dtype != AOTICACHE_DTYPE_FLOAT32 && p->dtype != AOTICACHE_DTYPE_FLOAT64))
        return aoticache_shim_fail("%s: input and random samples of one dtype, float32 or float64, are needed",
                                   p->function);
    if (samples->ndim != 3 || samples->sizes[0] < p->input.batch || samples->sizes[1] < p->input.channels ||
        samples->sizes[2] != p->axes)
        return aoticache_shim_fail("%s: %lld x %lld x %d random samples are needed", p->function,
                                   (long long)p->input.batch, (long long)p->input.channels, p->axes);
    for (int axis = IMAGE_AXES - p->axes; axis < IMAGE_AXES; axis++)
        if (spatial[axis] + window->kernel[axis] - 1 > p->input.sizes[axis])
            return aoticache_shim_fail("%s: %lld windows of %lld do not fit into %lld elements", p->function,
                                       (long long)spatial[axis], (long long)window->kernel[axis],
                                       (long long)p->input.sizes[axis]);
    return SHIM_SUCCESS;
}

static AOTITorchError fractional_pool(const char *function, int axes, AtenTensorHandle self, const int64_t *kernel,
                                      int64_t kernel_count, const int64_t *output_size, int64_t output_size_count,
                                      AtenTensorHandle random_samples, AtenTensorHandle *ret_output,
                                      AtenTensorHandle *ret_indices)
{
    struct pooling p = {0};
    struct window window = {0};
    int64_t spatial[IMAGE_AXES];
    AtenTensorHandle output, indices;
    if (!shim_is_defined(self) || !shim_is_defined(random_samples))
        return aoticache_shim_fail_undefined(function, shim_is_defined(self) ? random_samples : self);
    if (ret_output == NULL || ret_indices == NULL)
        return aoticache_shim_fail("%s: no place for the results", function);
    if (start_pooling(&p, function, self->tensor, axes) != SHIM_SUCCESS ||
        aoticache_shim_window_read(function, "kernel_size", kernel, kernel_count, axes, 1, 1, window.kernel) !=
            SHIM_SUCCESS ||
        aoticache_shim_window_read(function, "output_size", output_size, output_size_count, axes, 1, 1, spatial) !=
            SHIM_SUCCESS ||
        check_fractional(&p, &window, spatial, random_samples->tensor) != SHIM_SUCCESS ||
        create_results(&p, self->tensor, spatial, false, &output, &indices) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    AOTITorchError status = SHIM_SUCCESS;
    if (output->tensor->numel > 0 && (status = allocate_ranges(&p)) == SHIM_SUCCESS)
        status = fractional_all(&p, &window, random_samples->tensor);
    free(p.ranges[0]);
    if (status != SHIM_SUCCESS) {
        aoti_torch_delete_tensor_object(output);
        aoti_torch_delete_tensor_object(indices);
        return SHIM_FAILURE;
    }
    *ret_output = output;
    *ret_indices = indices;
    return SHIM_SUCCESS;
}

/* ---- the exported functions, for two dimensions and for three ---- */

#define DEFINE_POOLING(axes)                                                                                           \
    AOTITorchError aoti_torch_cpu_max_pool##axes##d_with_indices(                                                      \
        AtenTensorHandle self, const int64_t *kernel_size, int64_t kernel_count, const int64_t *stride,                \
        int64_t stride_count, const int64_t *padding, int64_t padding_count, const int64_t *dilation,                  \
        int64_t dilation_count, int32_t ceil_mode, AtenTensorHandle *ret_output, AtenTensorHandle *ret_indices)        \
    {                                                                                                                  \
        struct window window = {.ceil_mode = ceil_mode != 0};                                                          \
        return max_pool(__func__, axes, self, &window, kernel_size, kernel_count, stride, stride_count, padding,       \
                        padding_count, dilation, dilation_count, ret_output, ret_indices);                             \
    }                                                                                                                  \
    AOTITorchError aoti_torch_cpu_avg_pool##axes##d(                                                                   \
        AtenTensorHandle self, const int64_t *kernel_size, int64_t kernel_count, const int64_t *stride,                \
        int64_t stride_count, const int64_t *padding, int64_t padding_count, int32_t ceil_mode,                        \
        int32_t count_include_pad, int64_t *divisor_override, AtenTensorHandle *ret_output)                            \
    {                                                                                                                  \
        struct pooling p = {.count_padding = count_include_pad != 0};                                                  \
        struct window window = {.ceil_mode = ceil_mode != 0};                                                          \
        return average_pool(&p, __func__, axes, self, &window, kernel_size, kernel_count, stride, stride_count,        \
                            padding, padding_count, divisor_override, ret_output);                                     \
    }                                                                                                                  \
    AOTITorchError aoti_torch_cpu__adaptive_avg_pool##axes##d(AtenTensorHandle self, const int64_t *output_size,       \
                                                              int64_t output_size_count, AtenTensorHandle *ret_output) \
    {                                                                                                                  \
        return adaptive_pool(__func__, axes, self, output_size, output_size_count, false, ret_output, NULL);           \
    }                                                                                                                  \
    AOTITorchError aoti_torch_cpu_adaptive_max_pool##axes##d(AtenTensorHandle self, const int64_t *output_size,        \
                                                             int64_t output_size_count, AtenTensorHandle *ret_output,  \
                                                             AtenTensorHandle *ret_indices)                            \
    {                                                                                                                  \
        return adaptive_pool(__func__, axes, self, output_size, output_size_count, true, ret_output, ret_indices);     \
    }                                                                                                                  \
    AOTITorchError aoti_torch_cpu_fractional_max_pool##axes##d(                                                        \
        AtenTensorHandle self, const int64_t *kernel_size, int64_t kernel_count, const int64_t *output_size,           \
        int64_t output_size_count, AtenTensorHandle random_samples, AtenTensorHandle *ret_output,                      \
        AtenTensorHandle *ret_indices)                                                                                 \
    {                                                                                                                  \
        return fractional_pool(__func__, axes, self, kernel_size, kernel_count, output_size, output_size_count,        \
                               random_samples, ret_output, ret_indices);                                               \
    }

DEFINE_POOLING(2)
DEFINE_POOLING(3)
