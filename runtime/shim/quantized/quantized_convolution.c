/*
 * shim/quantized/quantized_convolution: 8-bit convolutions: the inputs under the kernel at each position are gathered in a
 * row, and the rows are multiplied with the weight. oneDNN sums bytes on processors with VNNI; otherwise they are
 * widened.
 *
 * Source: onednn::qconv_pointwise and its variants (aten/src/ATen/native/quantized/cpu/qconv.cpp).
 */
#include "runtime/shim/math/onednn.h"
#include "runtime/shim/quantized/quantized.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <stdatomic.h>
#include <string.h>

enum { F32 = AOTICACHE_DTYPE_FLOAT32 };

/* Positions whose inputs are gathered together: as words, or as bytes for oneDNN, whose calls take longer. */
enum { CHUNK_OF_WORDS = 64, CHUNK_OF_BYTES = 256 };

struct convolution_job {
    const struct quantized_finish *finish;
    const char *x; /* batch x sizes x channels: int16_t without the zero point, or unchanged bytes */
    bool is_of_bytes, is_unsigned;
    int32_t zero_point;
    int64_t chunk;
    const int8_t *weight; /* outputs x kernel positions x inputs of a group; depthwise: kernel positions x outputs */
    void *result;
    char *gathered; /* chunk + 1 x depth, for each part; with bytes the last row is all ones */
    int32_t *sums;  /* chunk + 1 x outputs of a group, for each part */
    int64_t groups, group_inputs, group_outputs, channels, positions, kernel_positions;
    int64_t sizes[IMAGE_AXES], outputs[IMAGE_AXES], kernel[IMAGE_AXES];
    int64_t stride[IMAGE_AXES], padding[IMAGE_AXES], dilation[IMAGE_AXES];
    int parts;
    atomic_bool is_out_of_memory;
};

static int64_t item_bytes(const struct convolution_job *job)
{
    return job->is_of_bytes ? 1 : sizeof(int16_t);
}

/*
 * The inputs of a position of the result: its image, and the first kernel position in it, which may be in the padding.
 */
struct view {
    const char *image;
    int64_t corner[IMAGE_AXES];
};

static struct view view_of(const struct convolution_job *job, int64_t position)
{
    const int64_t image = job->outputs[0] * job->outputs[1] * job->outputs[2];
    const int64_t pixels = job->sizes[0] * job->sizes[1] * job->sizes[2];
    struct view view = {.image = job->x + position / image * pixels * job->channels * item_bytes(job)};
    aoticache_shim_split_position(job->outputs, position % image, view.corner);
    for (int axis = 0; axis < IMAGE_AXES; axis++)
        view.corner[axis] = view.corner[axis] * job->stride[axis] - job->padding[axis];
    return view;
}

/* Returns the input under a kernel position; NULL: the padding. */
static const char *input_at(const struct convolution_job *job, const struct view *view, const int64_t place[IMAGE_AXES])
{
    int64_t flat = 0;
    for (int axis = 0; axis < IMAGE_AXES; axis++) {
        const int64_t index = view->corner[axis] + place[axis] * job->dilation[axis];
        if (index < 0 || index >= job->sizes[axis])
            return NULL;
        flat = flat * job->sizes[axis] + index;
    }
    return view->image + flat * job->channels * item_bytes(job);
}

#define EACH_PLACE(job, place)                                            \
    for ((place)[0] = 0; (place)[0] < (job)->kernel[0]; (place)[0]++)     \
        for ((place)[1] = 0; (place)[1] < (job)->kernel[1]; (place)[1]++) \
            for ((place)[2] = 0; (place)[2] < (job)->kernel[2]; (place)[2]++)

static void gather(const struct convolution_job *job, int64_t first, int64_t count, int64_t group, char *to)
{
    const int64_t bytes = job->group_inputs * item_bytes(job);
    int64_t place[IMAGE_AXES];
    for (int64_t i = 0; i < count; i++) {
        const struct view view = view_of(job, first + i);
        EACH_PLACE(job, place)
        {
            const char *from = input_at(job, &view, place);
            if (from != NULL)
                memcpy(to, from + group * bytes, (size_t)bytes);
            else
                memset(to, job->is_of_bytes ? job->zero_point : 0, (size_t)bytes);
            to += bytes;
        }
    }
}

/* Computes the sums of all gathered rows, and of the row of ones after them. */
static bool sum_gathered_bytes(const struct convolution_job *job, const int8_t *weight, const char *gathered,
                               int32_t *sums)
{
    return aoticache_shim_onednn_multiply_bytes(job->chunk + 1, job->group_outputs,
                                                job->kernel_positions * job->group_inputs, job->is_unsigned, gathered,
                                                weight, sums);
}

static void convolve_depthwise(const struct convolution_job *job, int64_t position, int32_t *sums)
{
    const struct view view = view_of(job, position);
    const int8_t *w = job->weight;
    int64_t place[IMAGE_AXES];
    memset(sums, 0, (size_t)job->channels * sizeof *sums);
    EACH_PLACE(job, place)
    {
        const int16_t *x = (const int16_t *)(const void *)input_at(job, &view, place);
        for (int64_t i = 0; x != NULL && i < job->channels; i++)
            sums[i] += x[i] * w[i];
        w += job->channels;
    }
}

/* Returns whether the zero point is a byte of the input's type, so that the padding can have it. */
static bool is_byte(const struct convolution_job *job)
{
    return job->is_unsigned ? job->zero_point >= 0 && job->zero_point <= UINT8_MAX
                            : job->zero_point >= INT8_MIN && job->zero_point <= INT8_MAX;
}

static bool is_depthwise(const struct convolution_job *job)
{
    return job->group_inputs == 1 && job->group_outputs == 1;
}

static void convolve_group(struct convolution_job *job, int64_t first, int64_t count, int64_t group, char *gathered,
                           int32_t *sums)
{
    const int64_t depth = job->kernel_positions * job->group_inputs, width = job->group_outputs;
    const int8_t *weight = job->weight + group * width * depth;
    struct quantized_finish finish = *job->finish;
    gather(job, first, count, group, gathered);
    if (job->is_of_bytes) {
        uint32_t *excess = (uint32_t *)sums + job->chunk * width;
        memset(gathered + count * depth, 0, (size_t)((job->chunk - count) * depth));
        if (!sum_gathered_bytes(job, weight, gathered, sums))
            atomic_store(&job->is_out_of_memory, true);
        for (int64_t i = 0; i < width; i++)
            excess[i] *= (uint32_t)job->zero_point; /* wraps, as sums do */
        finish.excess = excess;
    } else {
        const struct quantized_product product = {count, width, depth, false, gathered, weight, sums, width};
        aoticache_shim_quantized_multiply(&product);
    }
    aoticache_shim_quantized_finish(&finish, sums, width, first, count, group * width, width, job->result);
}

static void convolve_part(void *user, int part)
{
    struct convolution_job *job = user;
    const int64_t chunks = (job->positions + job->chunk - 1) / job->chunk;
    const int64_t depth = job->kernel_positions * job->group_inputs;
    const int64_t width = is_depthwise(job) ? job->channels : job->group_outputs;
    char *gathered = job->gathered + part * (job->chunk + 1) * depth * item_bytes(job);
    int32_t *sums = job->sums + part * (job->chunk + 1) * width;
    for (int64_t chunk = chunks * part / job->parts; chunk < chunks * (part + 1) / job->parts; chunk++) {
        const int64_t first = chunk * job->chunk, left = job->positions - first;
        const int64_t count = left < job->chunk ? left : job->chunk;
        for (int64_t group = 0; group < job->groups && !is_depthwise(job); group++)
            convolve_group(job, first, count, group, gathered, sums);
        for (int64_t i = 0; i < count && is_depthwise(job); i++)
            convolve_depthwise(job, first + i, sums + i * width);
        if (is_depthwise(job))
            aoticache_shim_quantized_finish(job->finish, sums, width, first, count, 0, width, job->result);
    }
}

/* Reorders the weight: outputs x inputs of a group x kernel, contiguous. */
static void order_weight(const struct convolution_job *job, const int8_t *from, int8_t *to)
{
    const int64_t outputs = job->groups * job->group_outputs;
    for (int64_t output = 0; output < outputs; output++)
        for (int64_t input = 0; input < job->group_inputs; input++)
            for (int64_t place = 0; place < job->kernel_positions; place++, from++)
                to[is_depthwise(job) ? place * outputs + output
                                     : (output * job->kernel_positions + place) * job->group_inputs + input] = *from;
}

/* Computes the sizes of the result, in PyTorch's order of dimensions. */
static AOTITorchError measure(const char *function, const struct convolution_windows *windows, int axes,
                              struct convolution_job *job, int64_t *ret_sizes)
{
    SHIM_TRY(aoticache_shim_window_read(function, "stride", windows->stride, windows->stride_count, axes, 1, 1,
                                        job->stride));
    SHIM_TRY(aoticache_shim_window_read(function, "padding", windows->padding, windows->padding_count, axes, 0, 0,
                                        job->padding));
    SHIM_TRY(aoticache_shim_window_read(function, "dilation", windows->dilation, windows->dilation_count, axes, 1, 1,
                                        job->dilation));
    job->kernel_positions = 1;
    for (int axis = 0; axis < IMAGE_AXES; axis++) {
        int64_t reach = job->dilation[axis] * (job->kernel[axis] - 1) + 1;
        int64_t room = job->sizes[axis] + 2 * job->padding[axis] - reach;
        if (job->kernel[axis] < 1 || room < 0)
            return aoticache_shim_fail("%s: a kernel of %lld, with padding and dilation, does not fit into an input "
                                       "of %lld",
                                       function, (long long)job->kernel[axis], (long long)job->sizes[axis]);
        job->outputs[axis] = room / job->stride[axis] + 1;
        job->positions *= job->outputs[axis];
        job->kernel_positions *= job->kernel[axis];
        if (axis >= IMAGE_AXES - axes)
            ret_sizes[2 + axis - (IMAGE_AXES - axes)] = job->outputs[axis];
    }
    return SHIM_SUCCESS;
}

/*
 * Describes a convolution. A packed weight of a convolution along one dimension has another dimension of size 1 before
 * that.
 */
static AOTITorchError describe(const char *function, const struct quantized_operands *o,
                               const struct convolution_windows *windows, int64_t groups, struct convolution_job *job,
                               int64_t *ret_sizes)
{
    const struct shim_tensor *x = o->x->tensor, *w = o->weight->tensor;
    const int axes = x->ndim - 2, weight_axes = w->ndim - 2;
    const bool flat = axes == 1 && weight_axes == 2 && w->sizes[2] == 1;
    if (axes < 1 || axes > IMAGE_AXES || (weight_axes != axes && !flat) || groups < 1 || w->sizes[0] % groups != 0 ||
        x->sizes[1] != w->sizes[1] * groups)
        return aoticache_shim_fail("%s: a weight of %d dimensions, %lld elements, in %lld groups does not match "
                                   "an input of %d dimensions, %lld elements",
                                   function, (int)w->ndim, (long long)w->numel, (long long)groups, (int)x->ndim,
                                   (long long)x->numel);
    *job = (struct convolution_job){.groups = groups,
                                    .group_inputs = w->sizes[1],
                                    .group_outputs = w->sizes[0] / groups,
                                    .channels = x->sizes[1],
                                    .positions = x->sizes[0],
                                    .sizes = {1, 1, 1},
                                    .kernel = {1, 1, 1}};
    for (int axis = 0; axis < axes; axis++) {
        job->sizes[IMAGE_AXES - axes + axis] = x->sizes[2 + axis];
        job->kernel[IMAGE_AXES - axes + axis] = w->sizes[w->ndim - axes + axis];
    }
    ret_sizes[0] = x->sizes[0];
    ret_sizes[1] = w->sizes[0];
    return measure(function, windows, axes, job, ret_sizes);
}

/* Allocates memory for gathered rows and sums of each part; with bytes also for the rows of ones. */
static AOTITorchError make_room(const char *function, struct convolution_job *job, AtenTensorHandle *ret_gathered,
                                AtenTensorHandle *ret_sums)
{
    const int64_t depth = job->kernel_positions * job->group_inputs;
    const int64_t width = is_depthwise(job) ? job->channels : job->group_outputs;
    const double work = (double)job->positions * (double)job->groups * (double)job->group_outputs * (double)depth;
    job->chunk = job->is_of_bytes ? CHUNK_OF_BYTES : CHUNK_OF_WORDS;
    job->parts = aoticache_shim_parts(work, (job->positions + job->chunk - 1) / job->chunk);
    const int64_t rows = (int64_t)job->parts * (job->chunk + 1);
    SHIM_TRY(aoticache_shim_make(function, 2, (const int64_t[]){is_depthwise(job) ? 0 : rows, depth},
                                 job->is_of_bytes ? AOTICACHE_DTYPE_UINT8 : AOTICACHE_DTYPE_INT16, ret_gathered));
    SHIM_TRY(aoticache_shim_make(function, 2, (const int64_t[]){rows, width}, AOTICACHE_DTYPE_INT32, ret_sums));
    job->gathered = (*ret_gathered)->tensor->data;
    job->sums = (*ret_sums)->tensor->data;
    for (int64_t row = job->chunk; job->is_of_bytes && row < rows; row += job->chunk + 1)
        memset(job->gathered + row * depth, 1, (size_t)depth);
    return SHIM_SUCCESS;
}

/* Returns the elements with the channels innermost, in `dtype`. */
static AOTITorchError read_channels_last(const char *function, AtenTensorHandle tensor, int32_t dtype,
                                         AtenTensorHandle *ret_tensor)
{
    const struct shim_tensor *t = tensor->tensor;
    cleanup_tensor AtenTensorHandle made = NULL;
    SHIM_TRY(aoticache_shim_image_empty(function, t->ndim, t->sizes, true, dtype, &made));
    SHIM_TRY(aoti_torch_copy_(made, tensor, 0));
    *ret_tensor = shim_steal(&made);
    return SHIM_SUCCESS;
}

static AOTITorchError convolve(const char *function, const struct quantized_operands *o,
                               const struct convolution_windows *windows, int64_t groups, AtenTensorHandle *ret_tensor)
{
    cleanup_tensor AtenTensorHandle x = NULL, wide = NULL, weight = NULL, ordered = NULL, scales = NULL, bias = NULL;
    cleanup_tensor AtenTensorHandle other = NULL, gathered = NULL, sums = NULL, result = NULL, converted = NULL;
    struct quantized_finish f;
    struct convolution_job job;
    int64_t sizes[2 + IMAGE_AXES];
    double x_scale = 1, x_zero_point = 0;
    SHIM_TRY(aoticache_shim_quantized_check_input(function, o, &x_scale, &x_zero_point));
    SHIM_TRY(describe(function, o, windows, groups, &job, sizes));
    const int ndim = o->x->tensor->ndim;
    const int64_t channels = sizes[1];
    SHIM_TRY(aoticache_shim_quantized_read_finish(function, o, channels, &f));
    SHIM_TRY(aoticache_shim_quantized_scales(function, o, channels, x_scale, &scales));
    SHIM_TRY(aoticache_shim_quantized_bias(function, o, channels, &bias));
    SHIM_TRY(read_channels_last(function, o->x, o->x->tensor->dtype, &x));
    SHIM_TRY(aoticache_shim_read(function, o->weight, AOTICACHE_DTYPE_INT8, &weight));
    SHIM_TRY(aoticache_shim_make(function, 1, &weight->tensor->numel, AOTICACHE_DTYPE_INT8, &ordered));
    SHIM_TRY(aoticache_shim_image_empty(function, ndim, sizes, true, aoticache_shim_quantized_room_dtype(&f), &result));
    f.scales = scales->tensor->data;
    f.bias = bias != NULL ? bias->tensor->data : NULL;
    if (f.other != QUANTIZED_OTHER_NONE) {
        if (!aoticache_shim_same_sizes(o->other->tensor, result->tensor))
            return aoticache_shim_fail("%s: the other tensor does not have the result's sizes", function);
        SHIM_TRY(read_channels_last(function, o->other, F32, &other));
        f.added = other->tensor->data;
    }
    order_weight(&job, weight->tensor->data, ordered->tensor->data);
    job.finish = &f;
    job.weight = ordered->tensor->data;
    job.result = result->tensor->data;
    job.x = x->tensor->data;
    job.is_unsigned = x->tensor->dtype == AOTICACHE_DTYPE_UINT8;
    job.zero_point = (int32_t)x_zero_point;
    job.is_of_bytes = result->tensor->numel > 0 && !is_depthwise(&job) && is_byte(&job) &&
                      aoticache_shim_onednn_prepare_bytes(CHUNK_OF_BYTES + 1, job.group_outputs,
                                                          job.kernel_positions * job.group_inputs, job.is_unsigned);
    SHIM_TRY(make_room(function, &job, &gathered, &sums));
    if (!job.is_of_bytes) {
        SHIM_TRY(aoticache_shim_make(function, 1, &x->tensor->numel, AOTICACHE_DTYPE_INT16, &wide));
        aoticache_shim_quantized_widen(x->tensor, job.zero_point, wide->tensor->data);
        job.x = wide->tensor->data;
    }
    if (result->tensor->numel > 0)
        aoticache_shim_parallel(job.parts, convolve_part, &job);
    if (atomic_load(&job.is_out_of_memory))
        return aoticache_shim_fail_memory(function, (size_t)gathered->tensor->numel);
    if (f.other == QUANTIZED_OTHER_SUM || f.dtype == aoticache_shim_quantized_room_dtype(&f))
        return f.other == QUANTIZED_OTHER_SUM ? aoticache_shim_quantized_give(function, &f, o, result, ret_tensor)
                                              : aoti_torch_new_tensor_handle(result, ret_tensor);
    SHIM_TRY(read_channels_last(function, result, f.dtype, &converted));
    *ret_tensor = shim_steal(&converted);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu__qconv_pointwise_tensor(
    AtenTensorHandle X, AtenTensorHandle act_scale, AtenTensorHandle act_zero_point, AtenTensorHandle onednn_weight,
    AtenTensorHandle weight_scales, AtenTensorHandle weight_zero_points, AtenTensorHandle *B, const int64_t *stride,
    int64_t stride_len_, const int64_t *padding, int64_t padding_len_, const int64_t *dilation, int64_t dilation_len_,
    int64_t groups, double output_scale, int64_t output_zero_point, const int32_t *output_dtype, const char *attr,
    const double **post_op_args, int64_t post_op_args_len_, const char **algorithm, AtenTensorHandle *ret0)
{
    const struct convolution_windows windows = {stride,   stride_len_,   padding, padding_len_,
                                                dilation, dilation_len_, NULL,    0};
    const struct quantized_operands o = {QUANTIZED_OPERANDS, .unary = attr,
                                         .algorithm = algorithm != NULL ? *algorithm : NULL,
                                         .unary_scalars = post_op_args, .unary_scalar_count = post_op_args_len_};
    SHIM_CHECK_RESULT(ret0);
    return convolve(__func__, &o, &windows, groups, ret0);
}

AOTITorchError aoti_torch_cpu__qconv2d_pointwise_binary_tensor(
    AtenTensorHandle X, AtenTensorHandle act_scale, AtenTensorHandle act_zero_point, AtenTensorHandle onednn_weight,
    AtenTensorHandle weight_scales, AtenTensorHandle weight_zero_points, AtenTensorHandle accum, AtenTensorHandle *B,
    const int64_t *stride_args, int64_t stride_len_, const int64_t *padding_args, int64_t padding_len_,
    const int64_t *dilation_args, int64_t dilation_len_, int64_t groups, double output_scale, int64_t output_zero_point,
    const int32_t *output_dtype, double accum_scale, int64_t accum_zero_point, const char *binary_attr, double *alpha,
    const char **unary_attr, const double **unary_scalars, int64_t unary_scalars_len_, const char **unary_algorithm,
    AtenTensorHandle *ret0)
{
    const struct convolution_windows windows = {stride_args,   stride_len_,   padding_args, padding_len_,
                                                dilation_args, dilation_len_, NULL,         0};
    const struct quantized_operands o = {QUANTIZED_OPERANDS,
                                         .other = accum,
                                         .other_scale = accum_scale,
                                         .alpha = alpha != NULL ? *alpha : 1,
                                         .other_zero_point = accum_zero_point,
                                         .binary = binary_attr,
                                         .unary = unary_attr != NULL ? *unary_attr : NULL,
                                         .algorithm = unary_algorithm != NULL ? *unary_algorithm : NULL,
                                         .unary_scalars = unary_scalars,
                                         .unary_scalar_count = unary_scalars_len_};
    SHIM_CHECK_RESULT(ret0);
    return convolve(__func__, &o, &windows, groups, ret0);
}
