/*
 * shim/math/quantized_pointwise: linear layers and convolutions of 8 bits, with what follows them: another tensor, a
 * function of each element, the result's scale and zero point.
 *
 * Whole numbers are summed exactly. A sum becomes a float by the scales of both operands; bias, other tensor and function
 * are computed in float; the result is rounded to the nearest, ties to even, and saturated.
 *
 * oneDNN only sums up the products of linear layers, on processors with VNNI: its kernels for others saturate between two
 * products, and its version 2 has other rules for scales. PyTorch's own oneDNN differs from these results where it saturates so.
 *
 * Source: onednn::qlinear_pointwise, onednn::qconv_pointwise and their kin (aten/src/ATen/native/quantized/cpu/qlinear.cpp and
 * aten/src/ATen/native/quantized/cpu/qconv.cpp); what oneDNN documents of quantization.
 */
#include "runtime/shim/math/quantized.h"

#include "runtime/shim/math/onednn.h"
#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <math.h>
#include <string.h>

enum { F32 = AOTICACHE_DTYPE_FLOAT32 };
enum other { OTHER_NONE, OTHER_SUM, OTHER_ADD }; /* SUM: the result takes the other tensor's place */

/* What is done to the sums of whole numbers. */
struct finish {
    enum other other;
    float other_scale, other_zero_point, output_scale, output_zero_point;
    int32_t dtype; /* of the result */
    struct shim_unary unary;
    int64_t channels;
    const float *scales, *bias; /* one for each channel; bias: NULL: none */
    const float *added;         /* the other tensor, position by position; NULL: none */
    const uint32_t *excess;     /* of each channel's sums, which are too large by the zero point; NULL: none */
};

/* A call's arguments that linear layers and convolutions share. */
struct operands {
    AtenTensorHandle x, x_scale, x_zero_point, weight, scales, zero_points, bias, other;
    double output_scale, other_scale, alpha;
    int64_t output_zero_point, other_zero_point;
    const int32_t *output_dtype;
    const char *binary, *unary, *algorithm;
    const double **unary_scalars;
    int64_t unary_scalar_count;
};

/* Of them those that every exported function has, under these names. */
#define SHARED_OPERANDS                                                                                             \
    .x = X, .x_scale = act_scale, .x_zero_point = act_zero_point, .weight = onednn_weight, .scales = weight_scales, \
    .zero_points = weight_zero_points, .bias = shim_optional(B), .output_scale = output_scale,                      \
    .output_zero_point = output_zero_point, .output_dtype = output_dtype

/* ---- from sums to results ---- */

static float saturate(float x, float low, float high)
{
    x = rintf(x);
    return x < low ? low : x <= high ? x : high;
}

/*
 * One position: `sums` are its channels from `first` on, int32_t. The floats go to `row`, which may be where the sums are;
 * bytes go to `to`.
 */
static void finish_row(const struct finish *f, const void *sums, int64_t position, int64_t first, int64_t count,
                       float *row, char *to)
{
    const float *scales = f->scales + first;
    for (int64_t i = 0; i < count; i++) {
        uint32_t sum;
        memcpy(&sum, (const char *)sums + (size_t)i * sizeof sum, sizeof sum);
        row[i] = (float)(int32_t)(f->excess != NULL ? sum - f->excess[first + i] : sum) * scales[i];
    }
    for (int64_t i = 0; f->bias != NULL && i < count; i++)
        row[i] += f->bias[first + i];
    const float *added = f->added != NULL ? f->added + position * f->channels + first : NULL;
    for (int64_t i = 0; added != NULL && i < count; i++)
        row[i] += f->other_scale * (added[i] - f->other_zero_point);
    aoticache_shim_unary_apply(&f->unary, row, count);
    if (f->dtype != AOTICACHE_DTYPE_UINT8 && f->dtype != AOTICACHE_DTYPE_INT8)
        return;
    const bool is_unsigned = f->dtype == AOTICACHE_DTYPE_UINT8;
    const float low = is_unsigned ? 0 : INT8_MIN, high = is_unsigned ? UINT8_MAX : INT8_MAX;
    const float factor = 1 / f->output_scale;
    for (int64_t i = 0; i < count; i++)
        to[i] = (char)(int)saturate(row[i] * factor + f->output_zero_point, low, high);
}

static bool is_bytes(int32_t dtype)
{
    return dtype == AOTICACHE_DTYPE_UINT8 || dtype == AOTICACHE_DTYPE_INT8;
}

/*
 * Finishes some positions of the channels from `first` on. The sums are `stride` apart; `result` is contiguous: bytes, or
 * floats that are converted to the result's dtype at the end.
 */
static void finish_rows(const struct finish *f, int32_t *sums, int64_t stride, int64_t position, int64_t positions,
                        int64_t first, int64_t count, void *result)
{
    for (int64_t i = 0; i < positions; i++) {
        int32_t *row = sums + i * stride;
        const int64_t place = (position + i) * f->channels + first;
        if (is_bytes(f->dtype))
            finish_row(f, row, position + i, first, count, (float *)(void *)row, (char *)result + place);
        else
            finish_row(f, row, position + i, first, count, (float *)result + place, NULL);
    }
}

/* ---- arguments ---- */

static AOTITorchError fail_dtype(const char *function, const char *what, const char *wanted, int32_t dtype)
{
    return aoticache_shim_fail("%s: %s must be %s, and is %s", function, what, wanted,
                               aoticache_shim_dtype_text(dtype, (char[SHIM_DTYPE_TEXT_BYTES]){0}));
}

static AOTITorchError read_single(const char *function, const char *what, AtenTensorHandle tensor, double *ret_value)
{
    cleanup_tensor AtenTensorHandle read = NULL;
    if (!shim_is_defined(tensor))
        return aoticache_shim_fail_undefined(function, tensor);
    if (tensor->tensor->numel != 1)
        return aoticache_shim_fail("%s: %s of %lld elements; one for all inputs is supported", function, what,
                                   (long long)tensor->tensor->numel);
    SHIM_TRY(aoticache_shim_read(function, tensor, AOTICACHE_DTYPE_FLOAT64, &read));
    *ret_value = *(const double *)read->tensor->data;
    return SHIM_SUCCESS;
}

static AOTITorchError check_zero_points(const char *function, AtenTensorHandle zero_points)
{
    cleanup_tensor AtenTensorHandle read = NULL;
    if (!shim_is_defined(zero_points))
        return SHIM_SUCCESS;
    SHIM_TRY(aoticache_shim_read(function, zero_points, AOTICACHE_DTYPE_FLOAT64, &read));
    for (int64_t i = 0; i < read->tensor->numel; i++)
        if (((const double *)read->tensor->data)[i] != 0)
            return aoticache_shim_fail("%s: a weight's zero point must be 0, one is %g", function,
                                       ((const double *)read->tensor->data)[i]);
    return SHIM_SUCCESS;
}

/* The factor of each channel's sums. */
static AOTITorchError read_scales(const char *function, const struct operands *o, int64_t channels, double x_scale,
                                  AtenTensorHandle *ret_scales)
{
    cleanup_tensor AtenTensorHandle read = NULL, factors = NULL;
    if (!shim_is_defined(o->scales))
        return aoticache_shim_fail_undefined(function, o->scales);
    const int64_t count = o->scales->tensor->numel;
    if (count != 1 && count != channels)
        return aoticache_shim_fail("%s: %lld scales of a weight with %lld results", function, (long long)count,
                                   (long long)channels);
    SHIM_TRY(aoticache_shim_read(function, o->scales, F32, &read));
    SHIM_TRY(aoticache_shim_make(function, 1, &channels, F32, &factors));
    for (int64_t i = 0; i < channels; i++)
        ((float *)factors->tensor->data)[i] = (float)x_scale * ((const float *)read->tensor->data)[count == 1 ? 0 : i];
    *ret_scales = shim_steal(&factors);
    return SHIM_SUCCESS;
}

static AOTITorchError read_bias(const char *function, const struct operands *o, int64_t channels,
                                AtenTensorHandle *ret_bias)
{
    if (!shim_is_defined(o->bias))
        return SHIM_SUCCESS;
    if (o->bias->tensor->numel != channels)
        return aoticache_shim_fail("%s: a bias of %lld elements for %lld results", function,
                                   (long long)o->bias->tensor->numel, (long long)channels);
    return aoticache_shim_read(function, o->bias, F32, ret_bias);
}

static AOTITorchError read_finish(const char *function, const struct operands *o, int64_t channels,
                                  struct finish *ret_finish)
{
    struct finish *f = ret_finish;
    *f = (struct finish){.channels = channels,
                         .dtype = o->output_dtype != NULL ? *o->output_dtype : o->x->tensor->dtype};
    f->output_scale = (float)o->output_scale;
    f->output_zero_point = (float)o->output_zero_point;
    f->other_scale = (float)o->other_scale;
    f->other_zero_point = (float)o->other_zero_point;
    if (!is_bytes(f->dtype) && f->dtype != F32 && f->dtype != AOTICACHE_DTYPE_BFLOAT16 &&
        f->dtype != AOTICACHE_DTYPE_FLOAT16)
        return fail_dtype(function, "the result", "uint8, int8, float32, bfloat16 or float16", f->dtype);
    if (!is_bytes(f->dtype) && (o->output_scale != 1 || o->output_zero_point != 0))
        return aoticache_shim_fail("%s: a result of floats has scale 1 and zero point 0, these are %g and %lld",
                                   function, o->output_scale, (long long)o->output_zero_point);
    if (o->binary != NULL && strcmp(o->binary, "none") != 0) {
        if (strcmp(o->binary, "sum") != 0 && strcmp(o->binary, "add") != 0)
            return aoticache_shim_fail("%s: the result and another tensor by \"%.40s\" is not supported", function,
                                       o->binary);
        f->other = o->binary[0] == 's' ? OTHER_SUM : OTHER_ADD;
        if (f->other == OTHER_ADD) { /* the elements as they are, as in PyTorch */
            f->other_scale = 1;
            f->other_zero_point = 0;
        }
        if (!shim_is_defined(o->other))
            return aoticache_shim_fail_undefined(function, o->other);
        if (o->alpha != 1)
            return aoticache_shim_fail("%s: the other tensor times %g is not supported", function, o->alpha);
    }
    return aoticache_shim_unary_read(function, o->unary, o->unary_scalars, o->unary_scalar_count, &o->algorithm,
                                     &f->unary);
}

static AOTITorchError check_input(const char *function, const struct operands *o, double *ret_scale,
                                  double *ret_zero_point)
{
    if (!shim_is_defined(o->x))
        return aoticache_shim_fail_undefined(function, o->x);
    if (!shim_is_defined(o->weight))
        return aoticache_shim_fail_undefined(function, o->weight);
    if (!is_bytes(o->x->tensor->dtype))
        return fail_dtype(function, "the input", "uint8 or int8", o->x->tensor->dtype);
    if (o->weight->tensor->dtype != AOTICACHE_DTYPE_INT8)
        return fail_dtype(function, "the weight", "int8", o->weight->tensor->dtype);
    SHIM_TRY(read_single(function, "a scale of the input", o->x_scale, ret_scale));
    SHIM_TRY(read_single(function, "a zero point of the input", o->x_zero_point, ret_zero_point));
    if (*ret_zero_point < INT8_MIN || *ret_zero_point > UINT8_MAX)
        return aoticache_shim_fail("%s: the input's zero point is %g, -128 to 255 is possible", function,
                                   *ret_zero_point);
    return check_zero_points(function, o->zero_points);
}

/* The result, of bytes or floats, to where it belongs: a tensor of its own, or the place of the other one. */
static AOTITorchError give(const char *function, const struct finish *f, const struct operands *o,
                           AtenTensorHandle result, AtenTensorHandle *ret_tensor)
{
    if (f->other != OTHER_SUM)
        return aoticache_shim_read(function, result, f->dtype, ret_tensor);
    SHIM_TRY(aoti_torch_copy_(o->other, result, 0));
    return aoti_torch_new_tensor_handle(o->other, ret_tensor);
}

static int32_t room_dtype(const struct finish *f)
{
    return is_bytes(f->dtype) ? f->dtype : F32;
}

/* ---- linear layers ---- */

struct linear_job {
    const struct finish *finish;
    int32_t *sums;
    void *result;
    int64_t rows;
    int parts;
};

static void finish_part(void *user, int part)
{
    const struct linear_job *job = user;
    const struct finish *f = job->finish;
    const int64_t first = job->rows * part / job->parts, end = job->rows * (part + 1) / job->parts;
    finish_rows(f, job->sums + first * f->channels, f->channels, first, end - first, 0, f->channels, job->result);
}

/*
 * Sums of bytes by oneDNN; x: rows x depth, contiguous. A row of ones below the others gives what each element of a zero point
 * is too much. *ret_sums: rows + 1 x channels; NULL: oneDNN does not do it.
 */
static AOTITorchError sum_bytes(const char *function, const struct shim_tensor *x, int64_t rows, int64_t channels,
                                const int8_t *weight, int32_t zero_point, AtenTensorHandle *ret_sums)
{
    cleanup_tensor AtenTensorHandle bytes = NULL, sums = NULL;
    const int64_t depth = rows > 0 ? x->numel / rows : 0;
    *ret_sums = NULL;
    if (x->numel == 0 || !aoticache_shim_onednn_has_bytes())
        return SHIM_SUCCESS;
    SHIM_TRY(aoticache_shim_make(function, 2, (const int64_t[]){rows + 1, depth}, x->dtype, &bytes));
    SHIM_TRY(aoticache_shim_make(function, 2, (const int64_t[]){rows + 1, channels}, AOTICACHE_DTYPE_INT32, &sums));
    memcpy(bytes->tensor->data, x->data, (size_t)x->numel);
    memset((char *)bytes->tensor->data + x->numel, 1, (size_t)depth);
    if (!aoticache_shim_onednn_multiply_bytes(rows + 1, channels, depth, x->dtype == AOTICACHE_DTYPE_UINT8,
                                              bytes->tensor->data, weight, sums->tensor->data))
        return SHIM_SUCCESS;
    uint32_t *excess = (uint32_t *)sums->tensor->data + rows * channels;
    for (int64_t i = 0; i < channels; i++)
        excess[i] *= (uint32_t)zero_point; /* wraps, as sums do */
    *ret_sums = shim_steal(&sums);
    return SHIM_SUCCESS;
}

static AOTITorchError linear(const char *function, const struct operands *o, AtenTensorHandle *ret_tensor)
{
    cleanup_tensor AtenTensorHandle x = NULL, wide = NULL, weight = NULL, scales = NULL, bias = NULL, sums = NULL;
    cleanup_tensor AtenTensorHandle other = NULL, result = NULL;
    struct finish f;
    double x_scale = 1, x_zero_point = 0;
    SHIM_TRY(check_input(function, o, &x_scale, &x_zero_point));
    const struct shim_tensor *in = o->x->tensor, *w = o->weight->tensor;
    if (in->ndim < 1 || w->ndim != 2 || in->sizes[in->ndim - 1] != w->sizes[0])
        return aoticache_shim_fail("%s: a weight of %d dimensions, %lld elements, does not fit an input of %d "
                                   "dimensions, %lld elements",
                                   function, (int)w->ndim, (long long)w->numel, (int)in->ndim, (long long)in->numel);
    const int64_t depth = w->sizes[0], channels = w->sizes[1];
    int64_t sizes[SHIM_MAX_NDIM], rows = 1;
    memcpy(sizes, in->sizes, (size_t)in->ndim * sizeof *sizes);
    sizes[in->ndim - 1] = channels;
    for (int d = 0; d < in->ndim - 1; d++)
        rows *= sizes[d];
    SHIM_TRY(read_finish(function, o, channels, &f));
    SHIM_TRY(read_scales(function, o, channels, x_scale, &scales));
    SHIM_TRY(read_bias(function, o, channels, &bias));
    SHIM_TRY(aoticache_shim_read(function, o->x, in->dtype, &x));
    SHIM_TRY(aoticache_shim_quantized_rows(function, o->weight, true, &weight));
    SHIM_TRY(aoticache_shim_make(function, in->ndim, sizes, room_dtype(&f), &result));
    f.scales = scales->tensor->data;
    f.bias = bias != NULL ? bias->tensor->data : NULL;
    if (f.other != OTHER_NONE) {
        if (!aoticache_shim_same_sizes(o->other->tensor, result->tensor))
            return aoticache_shim_fail("%s: the other tensor does not have the result's sizes", function);
        SHIM_TRY(aoticache_shim_read(function, o->other, F32, &other));
        f.added = other->tensor->data;
    }
    SHIM_TRY(sum_bytes(function, x->tensor, rows, channels, weight->tensor->data, (int32_t)x_zero_point, &sums));
    if (sums != NULL) {
        f.excess = (const uint32_t *)sums->tensor->data + rows * channels;
    } else {
        SHIM_TRY(aoticache_shim_make(function, in->ndim, in->sizes, AOTICACHE_DTYPE_INT16, &wide));
        SHIM_TRY(aoticache_shim_make(function, in->ndim, sizes, AOTICACHE_DTYPE_INT32, &sums));
        aoticache_shim_quantized_widen(x->tensor, (int)x_zero_point, wide->tensor->data);
        const struct quantized_product product = {
            rows, channels, depth, false, wide->tensor->data, weight->tensor->data, sums->tensor->data, channels};
        aoticache_shim_quantized_multiply(&product);
    }
    struct linear_job job = {&f, sums->tensor->data, result->tensor->data, rows, 1};
    job.parts = aoticache_shim_parts((double)rows * (double)channels * 8, rows);
    if (result->tensor->numel > 0)
        aoticache_shim_parallel(job.parts, finish_part, &job);
    return give(function, &f, o, result, ret_tensor);
}

AOTITorchError aoti_torch_cpu__qlinear_pointwise_tensor(
    AtenTensorHandle X, AtenTensorHandle act_scale, AtenTensorHandle act_zero_point, AtenTensorHandle onednn_weight,
    AtenTensorHandle weight_scales, AtenTensorHandle weight_zero_points, AtenTensorHandle *B, double output_scale,
    int64_t output_zero_point, const int32_t *output_dtype, const char *post_op_name, const double **post_op_args,
    int64_t post_op_args_len_, const char *post_op_algorithm, AtenTensorHandle *ret0)
{
    const struct operands o = {SHARED_OPERANDS, .unary = post_op_name, .algorithm = post_op_algorithm,
                               .unary_scalars = post_op_args, .unary_scalar_count = post_op_args_len_};
    SHIM_CHECK_RESULT(ret0);
    return linear(__func__, &o, ret0);
}

AOTITorchError aoti_torch_cpu__qlinear_pointwise_binary_tensor(
    AtenTensorHandle X, AtenTensorHandle act_scale, AtenTensorHandle act_zero_point, AtenTensorHandle onednn_weight,
    AtenTensorHandle weight_scales, AtenTensorHandle weight_zero_points, AtenTensorHandle *other, AtenTensorHandle *B,
    double output_scale, int64_t output_zero_point, const int32_t *output_dtype, double other_scale,
    int64_t other_zero_point, const char *binary_post_op, double binary_alpha, const char *unary_post_op,
    const double **unary_post_op_args, int64_t unary_post_op_args_len_, const char *unary_post_op_algorithm,
    AtenTensorHandle *ret0)
{
    const struct operands o = {SHARED_OPERANDS,
                               .other = shim_optional(other),
                               .other_scale = other_scale,
                               .alpha = binary_alpha,
                               .other_zero_point = other_zero_point,
                               .binary = binary_post_op,
                               .unary = unary_post_op,
                               .algorithm = unary_post_op_algorithm,
                               .unary_scalars = unary_post_op_args,
                               .unary_scalar_count = unary_post_op_args_len_};
    SHIM_CHECK_RESULT(ret0);
    return linear(__func__, &o, ret0);
}

/* ---- convolutions ---- */

/* Positions of which the inputs are gathered at once. */
enum { CHUNK = 64 };

struct convolution_job {
    const struct finish *finish;
    const int16_t *x;     /* batch x sizes x channels, without the zero point */
    const int8_t *weight; /* outputs x kernel positions x inputs of a group; depthwise: kernel positions x outputs */
    void *result;
    int16_t *gathered; /* CHUNK x depth, for each part */
    int32_t *sums;     /* CHUNK x outputs of a group, for each part */
    int64_t groups, group_inputs, group_outputs, channels, positions, kernel_positions;
    int64_t sizes[IMAGE_AXES], outputs[IMAGE_AXES], kernel[IMAGE_AXES];
    int64_t stride[IMAGE_AXES], padding[IMAGE_AXES], dilation[IMAGE_AXES];
    int parts;
};

/* The input that a kernel's place sees at a position of the result; NULL: the padding. */
static const int16_t *input_at(const struct convolution_job *job, int64_t position, int64_t place)
{
    int64_t at[IMAGE_AXES], from[IMAGE_AXES], flat = 0, image = 1;
    for (int axis = 0; axis < IMAGE_AXES; axis++)
        image *= job->outputs[axis];
    aoticache_shim_split_position(job->outputs, position % image, at);
    aoticache_shim_split_position(job->kernel, place, from);
    for (int axis = 0; axis < IMAGE_AXES; axis++) {
        int64_t index = at[axis] * job->stride[axis] - job->padding[axis] + from[axis] * job->dilation[axis];
        if (index < 0 || index >= job->sizes[axis])
            return NULL;
        flat = flat * job->sizes[axis] + index;
    }
    return job->x + (position / image * job->sizes[0] * job->sizes[1] * job->sizes[2] + flat) * job->channels;
}

static void gather(const struct convolution_job *job, int64_t first, int64_t count, int64_t group, int16_t *to)
{
    const size_t bytes = (size_t)job->group_inputs * sizeof *to;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t place = 0; place < job->kernel_positions; place++, to += job->group_inputs) {
            const int16_t *from = input_at(job, first + i, place);
            if (from != NULL)
                memcpy(to, from + group * job->group_inputs, bytes);
            else
                memset(to, 0, bytes);
        }
    }
}

static void convolve_depthwise(const struct convolution_job *job, int64_t position, int32_t *sums)
{
    memset(sums, 0, (size_t)job->channels * sizeof *sums);
    for (int64_t place = 0; place < job->kernel_positions; place++) {
        const int16_t *x = input_at(job, position, place);
        const int8_t *w = job->weight + place * job->channels;
        for (int64_t i = 0; x != NULL && i < job->channels; i++)
            sums[i] += x[i] * w[i];
    }
}

static bool is_depthwise(const struct convolution_job *job)
{
    return job->group_inputs == 1 && job->group_outputs == 1;
}

static void convolve_part(void *user, int part)
{
    const struct convolution_job *job = user;
    const int64_t chunks = (job->positions + CHUNK - 1) / CHUNK, depth = job->kernel_positions * job->group_inputs;
    const int64_t width = is_depthwise(job) ? job->channels : job->group_outputs;
    int16_t *gathered = job->gathered + part * CHUNK * depth;
    int32_t *sums = job->sums + part * CHUNK * width;
    for (int64_t chunk = chunks * part / job->parts; chunk < chunks * (part + 1) / job->parts; chunk++) {
        const int64_t first = chunk * CHUNK, count = first + CHUNK < job->positions ? CHUNK : job->positions - first;
        if (is_depthwise(job)) {
            for (int64_t i = 0; i < count; i++)
                convolve_depthwise(job, first + i, sums + i * width);
            finish_rows(job->finish, sums, width, first, count, 0, width, job->result);
            continue;
        }
        for (int64_t group = 0; group < job->groups; group++) {
            gather(job, first, count, group, gathered);
            const struct quantized_product product = {
                count, width, depth, false, gathered, job->weight + group * width * depth, sums, width};
            aoticache_shim_quantized_multiply(&product);
            finish_rows(job->finish, sums, width, first, count, group * width, width, job->result);
        }
    }
}

/* weight: outputs x inputs of a group x kernel, contiguous. */
static void order_weight(const struct convolution_job *job, const int8_t *from, int8_t *to)
{
    const int64_t outputs = job->groups * job->group_outputs;
    for (int64_t output = 0; output < outputs; output++)
        for (int64_t input = 0; input < job->group_inputs; input++)
            for (int64_t place = 0; place < job->kernel_positions; place++, from++)
                to[is_depthwise(job) ? place * outputs + output
                                     : (output * job->kernel_positions + place) * job->group_inputs + input] = *from;
}

/* Sizes of the result, PyTorch's order of dimensions. */
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
            return aoticache_shim_fail("%s: a kernel of %lld, with padding and dilation, does not fit an input of %lld",
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
 * The dimensions of a convolution. A packed weight of a convolution along one dimension has another one, of size 1, before
 * that one.
 */
static AOTITorchError describe(const char *function, const struct operands *o,
                               const struct convolution_windows *windows, int64_t groups, struct convolution_job *job,
                               int64_t *ret_sizes)
{
    const struct shim_tensor *x = o->x->tensor, *w = o->weight->tensor;
    const int axes = x->ndim - 2, weight_axes = w->ndim - 2;
    const bool flat = axes == 1 && weight_axes == 2 && w->sizes[2] == 1;
    if (axes < 1 || axes > IMAGE_AXES || (weight_axes != axes && !flat) || groups < 1 || w->sizes[0] % groups != 0 ||
        x->sizes[1] != w->sizes[1] * groups)
        return aoticache_shim_fail("%s: a weight of %d dimensions, %lld elements, in %lld groups does not fit an input "
                                   "of %d dimensions, %lld elements",
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

/* Memory for what a part gathers and sums. */
static AOTITorchError make_room(const char *function, struct convolution_job *job, AtenTensorHandle *ret_gathered,
                                AtenTensorHandle *ret_sums)
{
    const int64_t depth = job->kernel_positions * job->group_inputs;
    const int64_t width = is_depthwise(job) ? job->channels : job->group_outputs;
    const double work = (double)job->positions * (double)job->groups * (double)job->group_outputs * (double)depth;
    job->parts = aoticache_shim_parts(work, (job->positions + CHUNK - 1) / CHUNK);
    const int64_t rows = (int64_t)job->parts * CHUNK;
    SHIM_TRY(aoticache_shim_make(function, 2, (const int64_t[]){is_depthwise(job) ? 0 : rows, depth},
                                 AOTICACHE_DTYPE_INT16, ret_gathered));
    SHIM_TRY(aoticache_shim_make(function, 2, (const int64_t[]){rows, width}, AOTICACHE_DTYPE_INT32, ret_sums));
    job->gathered = (*ret_gathered)->tensor->data;
    job->sums = (*ret_sums)->tensor->data;
    return SHIM_SUCCESS;
}

/* The elements with the channels innermost, in `dtype`. */
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

static AOTITorchError convolve(const char *function, const struct operands *o,
                               const struct convolution_windows *windows, int64_t groups, AtenTensorHandle *ret_tensor)
{
    cleanup_tensor AtenTensorHandle x = NULL, wide = NULL, weight = NULL, ordered = NULL, scales = NULL, bias = NULL;
    cleanup_tensor AtenTensorHandle other = NULL, gathered = NULL, sums = NULL, result = NULL, converted = NULL;
    struct finish f;
    struct convolution_job job;
    int64_t sizes[2 + IMAGE_AXES];
    double x_scale = 1, x_zero_point = 0;
    SHIM_TRY(check_input(function, o, &x_scale, &x_zero_point));
    SHIM_TRY(describe(function, o, windows, groups, &job, sizes));
    const int ndim = o->x->tensor->ndim;
    const int64_t channels = sizes[1];
    SHIM_TRY(read_finish(function, o, channels, &f));
    SHIM_TRY(read_scales(function, o, channels, x_scale, &scales));
    SHIM_TRY(read_bias(function, o, channels, &bias));
    SHIM_TRY(read_channels_last(function, o->x, o->x->tensor->dtype, &x));
    SHIM_TRY(aoticache_shim_make(function, 1, &x->tensor->numel, AOTICACHE_DTYPE_INT16, &wide));
    SHIM_TRY(aoticache_shim_read(function, o->weight, AOTICACHE_DTYPE_INT8, &weight));
    SHIM_TRY(aoticache_shim_make(function, 1, &weight->tensor->numel, AOTICACHE_DTYPE_INT8, &ordered));
    SHIM_TRY(aoticache_shim_image_empty(function, ndim, sizes, true, room_dtype(&f), &result));
    f.scales = scales->tensor->data;
    f.bias = bias != NULL ? bias->tensor->data : NULL;
    if (f.other != OTHER_NONE) {
        if (!aoticache_shim_same_sizes(o->other->tensor, result->tensor))
            return aoticache_shim_fail("%s: the other tensor does not have the result's sizes", function);
        SHIM_TRY(read_channels_last(function, o->other, F32, &other));
        f.added = other->tensor->data;
    }
    SHIM_TRY(make_room(function, &job, &gathered, &sums));
    aoticache_shim_quantized_widen(x->tensor, (int)x_zero_point, wide->tensor->data);
    order_weight(&job, weight->tensor->data, ordered->tensor->data);
    job.finish = &f;
    job.x = wide->tensor->data;
    job.weight = ordered->tensor->data;
    job.result = result->tensor->data;
    if (result->tensor->numel > 0)
        aoticache_shim_parallel(job.parts, convolve_part, &job);
    if (f.other == OTHER_SUM || f.dtype == room_dtype(&f))
        return f.other == OTHER_SUM ? give(function, &f, o, result, ret_tensor)
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
    const struct operands o = {SHARED_OPERANDS, .unary = attr, .algorithm = algorithm != NULL ? *algorithm : NULL,
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
    const struct operands o = {SHARED_OPERANDS,
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
