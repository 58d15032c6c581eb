/*
 * shim/pooling/pooling: computes the largest element or the mean of windows over images and volumes: plain, adaptive and
 * fractional.
 *
 * All kinds share one walk: along each dimension every position of the result has a range of input positions; the kinds
 * differ in these ranges and in the operation on the elements.
 *
 * Source: aten/src/ATen/native/{DilatedMaxPool2d,DilatedMaxPool3d,AveragePool2d,AveragePool3d,AdaptiveMaxPooling2d,
 * AdaptiveMaxPooling3d,AdaptiveAveragePooling,AdaptiveAveragePooling3d,FractionalMaxPool2d,FractionalMaxPool3d}.cpp.
 */
#include "runtime/shim/pooling/pooling_rows.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/convert.h"
#include "runtime/shim/tensors/free_lists.h"

#include <math.h>
#include <string.h>

/* Elements start, start + step, ... below end; full: the number of elements including padding. */
struct range {
    int64_t start, end, step, full;
};

struct pooling {
    const char *function;
    int axes;
    struct image input, output;
    int32_t dtype;
    char *indices;   /* int64_t, strides as the output's in elements; NULL: the mean is computed */
    int64_t divisor; /* for the mean; 0: the number of elements */
    bool count_padding;
    struct range *ranges[IMAGE_AXES];
    const struct shim_dtype_access *access;
    const struct pooling_rows *steps;
    int64_t lanes; /* channels that are processed together: all if they are contiguous, otherwise one */
    int parts;
    char *memory; /* `step` bytes for each part */
    size_t step;
};

struct window {
    int64_t kernel[IMAGE_AXES], stride[IMAGE_AXES], padding[IMAGE_AXES], dilation[IMAGE_AXES];
    bool ceil_mode;
};

/*
 * ---- which elements of the input belong to each position of the result, along each dimension ----
 *
 * One function each for windows, adaptive ranges, and fractional ranges from samples between 0 and 1; each fills
 * p->ranges.
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

/*
 * Computes as fractional_max_pool_generate_intervals does, in the dtype's own precision, since the fraction is cut off.
 */
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
            return aoticache_shim_fail("%s: a random sample is %g; it must be 0 to 1", p->function, samples[axis]);
        for (int64_t o = 0; o < count; o++) {
            int64_t start = fractional_start(p, samples[axis], o, room, count);
            if (start > room) /* due to rounding, in a dimension of millions */
                start = room;
            p->ranges[axis][o] = (struct range){start, start + kernel, 1, kernel};
        }
    }
    return SHIM_SUCCESS;
}

/*
 * ---- one row of the result ----
 *
 * A row of the input has `lanes` contiguous channels at each of its columns. First each column is reduced over the rows
 * of the windows, then the columns of each window are reduced.
 */

/* A part's memory: rows of the input, and of the result. */
struct row_memory {
    char *values, *columns, *rows;
    char *results, *result_rows, *result_columns;
};

/* Divides a part's memory; returns its size in bytes, 0 if that does not fit into size_t. `memory` may be NULL. */
static size_t lay_out(const struct pooling *p, char *memory, struct row_memory *ret_memory)
{
    /* Sums are double. */
    char **const places[] = {&ret_memory->values,  &ret_memory->columns,     &ret_memory->rows,
                             &ret_memory->results, &ret_memory->result_rows, &ret_memory->result_columns};
    size_t bytes = 0;
    for (int i = 0; i < 6; i++) {
        const int64_t columns = i < 3 ? p->input.sizes[2] : p->output.sizes[2];
        size_t part;
        *places[i] = memory != NULL ? memory + bytes : NULL;
        if (__builtin_mul_overflow((size_t)columns, (size_t)p->lanes * sizeof(double), &part) ||
            __builtin_add_overflow(bytes, (part + 63) & ~(size_t)63, &bytes))
            return 0;
    }
    return bytes;
}

/* Returns the elements of a row of the input: in the tensor itself, or read into `memory`. */
static const void *read_row(const struct pooling *p, const char *row, char *memory)
{
    const int64_t columns = p->input.sizes[2], value_bytes = (int64_t)p->steps->value_bytes;
    const ptrdiff_t stride = p->input.strides[2];
    const bool is_dense = stride == (ptrdiff_t)shim_item_bytes(p->dtype) * p->lanes;
    if (is_dense && (p->dtype == AOTICACHE_DTYPE_FLOAT32 || p->dtype == AOTICACHE_DTYPE_FLOAT64))
        return row;
    if (is_dense || p->lanes == 1) {
        p->access->load((size_t)(columns * p->lanes), memory, row, stride / p->lanes);
        return memory;
    }
    for (int64_t w = 0; w < columns; w++)
        p->access->load((size_t)p->lanes, memory + w * p->lanes * value_bytes, row + w * stride,
                        p->input.channel_stride);
    return memory;
}

static int64_t columns_of(const struct range *range)
{
    return range->end > range->start ? (range->end - range->start + range->step - 1) / range->step : 0;
}

/*
 * Returns the number of windows from `first` on with the same number of columns, each beginning one column after the
 * one before. Returns 1 if the indices of several columns would be mixed up.
 */
static int64_t windows_in_step(const struct pooling *p, int64_t first)
{
    const struct range *ranges = p->ranges[2];
    int64_t count = 1;
    if (p->indices != NULL && p->lanes > 1)
        return 1;
    while (first + count < p->output.sizes[2] && ranges[first + count].start == ranges[first].start + count &&
           columns_of(&ranges[first + count]) == columns_of(&ranges[first]) &&
           ranges[first + count].full == ranges[first].full)
        count++;
    return count;
}

static void set_columns(const struct pooling *p, const struct row_memory *memory, int64_t row)
{
    const int64_t count = p->input.sizes[2] * p->lanes;
    for (int64_t i = 0; i < count; i++) {
        if (p->steps->value_bytes == sizeof(float)) {
            ((float *)(void *)memory->columns)[i] = -INFINITY;
            ((int32_t *)(void *)memory->rows)[i] = (int32_t)row;
        } else {
            ((double *)(void *)memory->columns)[i] = -INFINITY;
            ((int64_t *)(void *)memory->rows)[i] = row;
        }
    }
}

/* Reduces the rows of the windows: to the largest element of each column, or the sum. */
static void make_columns(const struct pooling *p, const struct row_memory *memory, const char *data,
                         const struct range *depths, const struct range *rows)
{
    const struct image *input = &p->input;
    const size_t count = (size_t)(input->sizes[2] * p->lanes);
    if (p->indices != NULL)
        set_columns(p, memory, depths->start * input->sizes[1] + rows->start);
    else
        memset(memory->columns, 0, count * sizeof(double));
    for (int64_t d = depths->start; d < depths->end; d += depths->step) {
        for (int64_t h = rows->start; h < rows->end; h += rows->step) {
            const void *values = read_row(p, data + d * input->strides[0] + h * input->strides[1], memory->values);
            if (p->indices != NULL)
                p->steps->max_row(count, values, d * input->sizes[1] + h, memory->columns, memory->rows);
            else
                p->steps->add_row(count, values, (double *)(void *)memory->columns);
        }
    }
}

/* Fills the result of a window without columns, which covers only padding. */
static void fill_empty(const struct pooling *p, const struct row_memory *memory, int64_t window)
{
    const ptrdiff_t value_bytes = (ptrdiff_t)p->steps->value_bytes;
    const int64_t start = p->ranges[2][window].start;
    for (int64_t i = window * p->lanes; i < (window + 1) * p->lanes; i++) {
        memcpy(memory->results + i * value_bytes,
               value_bytes == sizeof(float) ? (const void *)&(float){p->indices != NULL ? -INFINITY : 0}
                                            : &(double){p->indices != NULL ? -INFINITY : 0},
               p->steps->value_bytes);
        memcpy(memory->result_rows + i * value_bytes, memory->rows, p->steps->value_bytes);
        memcpy(memory->result_columns + i * value_bytes,
               value_bytes == sizeof(float) ? (const void *)&(int32_t){(int32_t)start} : &start, p->steps->value_bytes);
    }
}

/* Reduces the columns of each window. */
static void make_windows(const struct pooling *p, const struct row_memory *memory, const struct range *depths,
                         const struct range *rows)
{
    const ptrdiff_t value_bytes = (ptrdiff_t)p->steps->value_bytes;
    for (int64_t w = 0, count; w < p->output.sizes[2]; w += count) {
        const struct range *range = &p->ranges[2][w];
        const int64_t columns = columns_of(range), from = range->start * p->lanes, to = w * p->lanes;
        const ptrdiff_t step = range->step * p->lanes;
        count = windows_in_step(p, w);
        const size_t lanes = (size_t)(count * p->lanes);
        if (columns == 0 || (p->indices == NULL && (columns_of(depths) == 0 || columns_of(rows) == 0))) {
            count = 1;
            fill_empty(p, memory, w);
        } else if (p->indices != NULL) {
            const struct pooling_windows windows = {columns, step, range->start, p->lanes == 1, range->step};
            p->steps->max_columns(lanes, &windows, memory->columns + from * value_bytes,
                                  memory->rows + from * value_bytes, memory->results + to * value_bytes,
                                  memory->result_rows + to * value_bytes, memory->result_columns + to * value_bytes);
        } else {
            int64_t elements = columns_of(depths) * columns_of(rows) * columns;
            if (p->divisor != 0)
                elements = p->divisor;
            else if (p->count_padding)
                elements = depths->full * rows->full * range->full;
            p->steps->mean_columns(lanes, columns, step, (double)elements,
                                   (const double *)(const void *)memory->columns + from,
                                   memory->results + to * value_bytes);
        }
    }
}

/* Stores `count` elements of the row from `from` on, `stride` bytes apart from `at` on. */
static void store_part(const struct pooling *p, const struct row_memory *memory, int64_t from, int64_t count,
                       ptrdiff_t at, ptrdiff_t stride)
{
    const ptrdiff_t item_bytes = (ptrdiff_t)shim_item_bytes(p->dtype), offset = from * (ptrdiff_t)p->steps->value_bytes;
    p->access->store((size_t)count, p->output.data + at, stride, memory->results + offset);
    if (p->indices == NULL)
        return;
    int64_t *to = (int64_t *)(void *)p->indices + at / item_bytes;
    const int64_t at_once = stride == item_bytes ? count : 1;
    for (int64_t i = 0; i < count; i += at_once) {
        const ptrdiff_t place = offset + i * (ptrdiff_t)p->steps->value_bytes;
        p->steps->number_places((size_t)at_once, memory->result_rows + place, memory->result_columns + place,
                                p->input.sizes[2], to + i * (stride / item_bytes));
    }
}

/* Stores a row. at: position of its first element, in bytes. */
static void store_row(const struct pooling *p, const struct row_memory *memory, ptrdiff_t at)
{
    const ptrdiff_t stride = p->output.strides[2], lane_stride = p->output.channel_stride;
    const int64_t columns = p->output.sizes[2];
    if (p->lanes == 1 || stride == lane_stride * p->lanes)
        store_part(p, memory, 0, columns * p->lanes, at, p->lanes == 1 ? stride : lane_stride);
    else
        for (int64_t w = 0; w < columns; w++)
            store_part(p, memory, w * p->lanes, p->lanes, at + w * stride, lane_stride);
}

/* Computes a row. channel: the first of `lanes`. d, h: the row of the result. */
static void pool_row(const struct pooling *p, const struct row_memory *memory, int64_t batch, int64_t channel,
                     int64_t d, int64_t h)
{
    const struct image *input = &p->input, *output = &p->output;
    const struct range *depths = &p->ranges[0][d], *rows = &p->ranges[1][h];
    make_columns(p, memory, input->data + batch * input->batch_stride + channel * input->channel_stride, depths, rows);
    const ptrdiff_t at = batch * output->batch_stride + channel * output->channel_stride + d * output->strides[0] +
                         h * output->strides[1];
    make_windows(p, memory, depths, rows);
    store_row(p, memory, at);
}

/* ---- windows ---- */

static AOTITorchError read_window(const char *function, int axes, const int64_t *kernel, int64_t kernel_count,
                                  const int64_t *stride, int64_t stride_count, const int64_t *padding,
                                  int64_t padding_count, struct window *window)
{
    if (stride_count == 0) { /* none given: adjacent windows */
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
        return aoticache_shim_fail("%s: pooling of %s is not supported", function,
                                   aoticache_shim_dtype_text(input->dtype, text));
    if (aoticache_shim_image_of(function, input, axes, &p->input) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    for (int axis = 0; axis < IMAGE_AXES; axis++)
        if (p->input.sizes[axis] == 0)
            return aoticache_shim_fail("%s: a spatial dimension has size 0", function);
    return SHIM_SUCCESS;
}

/*
 * Allocates the ranges, and the memory of the parts of the result, at least one. may_share: contiguous channels have
 * the same windows, and the rows may be divided among threads.
 */
static AOTITorchError start_walk(struct pooling *p, bool may_share)
{
    struct row_memory memory;
    size_t ranges = 0;
    const bool is_side_by_side = p->input.channel_stride == (ptrdiff_t)shim_item_bytes(p->dtype);
    p->access = aoticache_shim_dtype_access(p->dtype);
    p->steps = aoticache_shim_pooling_rows((enum shim_class)p->access->load_class);
    p->lanes = may_share && is_side_by_side ? p->input.channels : 1;
    if (p->input.sizes[0] * p->input.sizes[1] > INT32_MAX)
        return aoticache_shim_fail("%s: more than 2^31 rows are not supported", p->function);
    for (int axis = 0; axis < IMAGE_AXES; axis++)
        ranges += (size_t)p->output.sizes[axis];
    p->ranges[0] = malloc(ranges * sizeof(struct range));
    if (p->ranges[0] == NULL)
        return aoticache_shim_fail_memory(p->function, ranges * sizeof(struct range));
    p->ranges[1] = p->ranges[0] + p->output.sizes[0];
    p->ranges[2] = p->ranges[1] + p->output.sizes[1];
    p->step = lay_out(p, NULL, &memory);
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

/* Makes the rows of one part. */
static void run_part(void *user, int part)
{
    const struct pooling *p = user;
    const struct image *output = &p->output;
    const int64_t *sizes = output->sizes, groups = output->channels / p->lanes;
    const int64_t rows = output->batch * groups * sizes[0] * sizes[1];
    const int64_t end = shim_part_begin(rows, p->parts, part + 1);
    struct row_memory memory;
    lay_out(p, p->memory + (size_t)part * p->step, &memory);
    for (int64_t i = shim_part_begin(rows, p->parts, part); i < end; i++) {
        const int64_t group = i / (sizes[0] * sizes[1]);
        pool_row(p, &memory, group / groups, group % groups * p->lanes, i / sizes[1] % sizes[0], i % sizes[1]);
    }
}

static AOTITorchError run(struct pooling *p)
{
    size_t bytes;
    const struct image *output = &p->output;
    double work = (double)output->batch * (double)output->channels;
    for (int axis = 0; axis < IMAGE_AXES; axis++)
        work *= (double)output->sizes[axis];
    work *= (double)(p->ranges[0][0].full * p->ranges[1][0].full + p->ranges[2][0].full);
    work *= p->lanes > 1 ? 4 : 16; /* the cost of a step, in multiplications */
    p->parts =
        aoticache_shim_parts(work, output->batch * (output->channels / p->lanes) * output->sizes[0] * output->sizes[1]);
    if (p->step == 0 || __builtin_mul_overflow(p->step, (size_t)p->parts, &bytes))
        return aoticache_shim_fail_memory(p->function, SIZE_MAX);
    p->memory = aoticache_shim_large_take(bytes, &bytes);
    if (p->memory == NULL)
        return aoticache_shim_fail_memory(p->function, p->step * (size_t)p->parts);
    aoticache_shim_parallel(p->parts, run_part, p);
    aoticache_shim_large_give(p->memory, bytes);
    return SHIM_SUCCESS;
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
        AOTITorchError status = start_walk(p, true);
        if (status == SHIM_SUCCESS && window != NULL)
            window_ranges(p, window);
        else if (status == SHIM_SUCCESS)
            adaptive_ranges(p);
        if (status == SHIM_SUCCESS)
            status = run(p);
        free(p->ranges[0]);
        if (status != SHIM_SUCCESS) {
            aoti_torch_delete_tensor_object(output);
            if (ret_indices != NULL)
                aoti_torch_delete_tensor_object(indices);
            return SHIM_FAILURE;
        }
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
        return aoticache_shim_fail("%s: a pointer for the results is NULL", function);
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
        return aoticache_shim_fail("%s: the pointer for the result is NULL", function);
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
        return aoticache_shim_fail("%s: a pointer for the results is NULL", function);
    if (start_pooling(&p, function, self->tensor, axes) != SHIM_SUCCESS ||
        aoticache_shim_window_read(function, "output_size", output_size, output_size_count, axes, 0, 1, spatial) !=
            SHIM_SUCCESS)
        return SHIM_FAILURE;
    bool channels_last = axes == 2 && prefers_channels_last(self->tensor, axes);
    return pool_tensor(&p, self->tensor, NULL, spatial, channels_last, ret_output, with_indices ? ret_indices : NULL);
}

/* ---- fractional: each plane has its own ranges ---- */

/* Reads the samples of a plane, by axis. With two dimensions PyTorch's first sample is for the columns. */
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

/* Pools one channel after the other, with all memory as that of one part. */
static AOTITorchError fractional_all(struct pooling *p, const struct window *window, const struct shim_tensor *samples)
{
    double plane_samples[IMAGE_AXES] = {0};
    struct row_memory memory;
    size_t bytes;
    AOTITorchError status = SHIM_SUCCESS;
    p->memory = p->step > 0 ? aoticache_shim_large_take(p->step, &bytes) : NULL;
    if (p->memory == NULL)
        return aoticache_shim_fail_memory(p->function, p->step);
    lay_out(p, p->memory, &memory);
    p->ranges[0][0] = (struct range){0, 1, 1, 1}; /* with two dimensions, the first of three has one element */
    for (int64_t i = 0; i < p->output.batch * p->output.channels && status == SHIM_SUCCESS; i++) {
        const int64_t batch = i / p->output.channels, channel = i % p->output.channels;
        read_samples(p, samples, batch, channel, plane_samples);
        status = fractional_ranges(p, window, plane_samples);
        for (int64_t row = 0; status == SHIM_SUCCESS && row < p->output.sizes[0] * p->output.sizes[1]; row++)
            pool_row(p, &memory, batch, channel, row / p->output.sizes[1], row % p->output.sizes[1]);
    }
    aoticache_shim_large_give(p->memory, bytes);
    return status;
}

static AOTITorchError check_fractional(const struct pooling *p, const struct window *window,
                                       const int64_t spatial[IMAGE_AXES], const struct shim_tensor *samples)
{
    if (samples->dtype != p->dtype || (p->dtype != AOTICACHE_DTYPE_FLOAT32 && p->dtype != AOTICACHE_DTYPE_FLOAT64))
        return aoticache_shim_fail("%s: input and random samples must both be float32, or both float64", p->function);
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
        return aoticache_shim_fail("%s: a pointer for the results is NULL", function);
    if (start_pooling(&p, function, self->tensor, axes) != SHIM_SUCCESS ||
        aoticache_shim_window_read(function, "kernel_size", kernel, kernel_count, axes, 1, 1, window.kernel) !=
            SHIM_SUCCESS ||
        aoticache_shim_window_read(function, "output_size", output_size, output_size_count, axes, 1, 1, spatial) !=
            SHIM_SUCCESS ||
        check_fractional(&p, &window, spatial, random_samples->tensor) != SHIM_SUCCESS ||
        create_results(&p, self->tensor, spatial, false, &output, &indices) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    AOTITorchError status = SHIM_SUCCESS;
    if (output->tensor->numel > 0 && (status = start_walk(&p, false)) == SHIM_SUCCESS)
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
