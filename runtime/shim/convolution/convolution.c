/*
 * shim/convolution/convolution: convolutions of one to three dimensions as matrix multiplications.
 *
 * The weights of a group are a matrix (output channels by channels and kernel positions); the inputs under the kernel
 * at each position of the result are gathered into the columns of another matrix, a piece of the result at a time. A
 * transposed convolution gathers too, from the input with its elements `stride` apart and zeros between them, so that
 * sums are rounded once whatever the dtype.
 *
 * Source: at::convolution (aten/src/ATen/native/Convolution.cpp).
 */
#include "runtime/shim/math/math_internal.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <stdatomic.h>
#include <string.h>

/*
 * ---- gathering: copies the elements under a kernel, in the order that the multiplication needs ----
 *
 * The elements under the kernels of one group at `count` positions of the result from `first` on become a matrix with a
 * column for each position. `input` is the group's first channel. For a transposed convolution the input's elements are
 * `stride` apart with zeros between them.
 *
 * planar: by rows: channels, and for each the kernel's positions.
 * channels_last: by columns: the kernel's positions, and for each the channels, which are contiguous in the input too.
 */

/* Returns the element of the input under position `k` of the kernel at position `out` of the result; -1: none. */
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

/* A run of positions along the last axis at which the kernel is over an element, of `count` positions from `out` on. */
struct seen_run {
    int64_t first, count, step; /* positions, relative to `out` */
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
    int64_t last; /* position over the last element, or the last before that */
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

/* Copies the elements of one channel under one kernel position at `count` positions of the result from `first` on. */
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
            aoticache_shim_convert_row(
                &same, (size_t)run.count, line + run.first * c->item_bytes, run.step * c->item_bytes,
                channel + depth * input->strides[0] + row * input->strides[1] + run.element * input->strides[2],
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

static void gather_planar(const struct convolution *c, const char *input, int64_t first, int64_t count, char *columns)
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

static void gather_channels_last(const struct convolution *c, const char *input, int64_t first, int64_t count,
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

/* ---- columns ---- */

/* This many bytes of columns are gathered at a time; a second-level cache holds about as much. */
enum { COLUMNS_BYTES = 1 << 20, COLUMNS_LEAST = 64 };

/*
 * Returns whether the input itself serves as the columns: the kernel has one element and meets each element of the
 * input once, in order.
 */
static bool is_pointwise(const struct convolution *c)
{
    const struct image *input = &c->input;
    for (int axis = 0; axis < IMAGE_AXES; axis++)
        if (c->kernel[axis] != 1 || c->stride[axis] != 1 || c->padding[axis] != 0 || c->output_padding[axis] != 0)
            return false;
    return (input->sizes[1] == 1 || input->strides[1] == input->sizes[2] * input->strides[2]) &&
           (input->sizes[0] == 1 || input->strides[0] == input->sizes[1] * input->sizes[2] * input->strides[2]);
}

/* ---- multiplication ---- */

/* Returns whether the weights have the layout that arrange_weights() would give them. */
static bool is_arranged(const struct convolution *c, const struct image *weight)
{
    ptrdiff_t channel = c->channels_last ? c->item_bytes : c->kernel_positions * c->item_bytes;
    ptrdiff_t element = c->channels_last ? c->group_inputs * c->item_bytes : c->item_bytes;
    const int64_t *k = c->kernel;
    ptrdiff_t row = c->group_inputs * c->kernel_positions * c->item_bytes;
    return !c->transposed && (weight->batch == 1 || weight->batch_stride == row) &&
           (c->group_inputs == 1 || weight->channel_stride == channel) &&
           (k[2] == 1 || weight->strides[2] == element) && (k[1] == 1 || weight->strides[1] == k[2] * element) &&
           (k[0] == 1 || weight->strides[0] == k[1] * k[2] * element);
}

/* Copies the kernel's elements for one pair of channels, `step` elements apart. */
static void arrange_kernel(const struct convolution *c, const struct image *weight, const char *source, char *to,
                           int64_t step)
{
    for (int64_t z = 0; z < c->kernel[0]; z++)
        for (int64_t y = 0; y < c->kernel[1]; y++)
            for (int64_t x = 0; x < c->kernel[2]; x++, to += step * c->item_bytes)
                memcpy(to, source + z * weight->strides[0] + y * weight->strides[1] + x * weight->strides[2],
                       (size_t)c->item_bytes);
}

/*
 * Arranges the weights as matrices, one group after the other: rows are output channels, columns are in the order of
 * gathering.
 */
static void arrange_weights(const struct convolution *c, const struct image *weight, char *matrix)
{
    int64_t channels = c->groups * (c->transposed ? c->group_inputs : c->group_outputs);
    int64_t per_group = channels / c->groups;
    int64_t depth = c->group_inputs * c->kernel_positions;
    for (int64_t first = 0; first < channels; first++) {
        for (int64_t second = 0; second < (c->transposed ? c->group_outputs : c->group_inputs); second++) {
            int64_t group = first / per_group;
            int64_t in = c->transposed ? first % per_group : second, out = c->transposed ? second : first % per_group;
            char *row = matrix + (group * c->group_outputs + out) * depth * c->item_bytes;
            const char *source = weight->data + first * weight->batch_stride + second * weight->channel_stride;
            arrange_kernel(c, weight, source, row + (c->channels_last ? in : in * c->kernel_positions) * c->item_bytes,
                           c->channels_last ? c->group_inputs : 1);
        }
    }
}

/* Multiplies for one group of one batch, from position `first` of the result on. */
static bool multiply_piece(const struct convolution *c, const char *weights, int64_t batch, int64_t group,
                           int64_t first, int64_t count, char *columns)
{
    const struct shim_dtype_access *access = aoticache_shim_dtype_access(c->dtype);
    int64_t depth = c->group_inputs * c->kernel_positions;
    char *input = c->input.data + batch * c->input.batch_stride + group * c->group_inputs * c->input.channel_stride;
    char *output =
        c->output.data + batch * c->output.batch_stride + group * c->group_outputs * c->output.channel_stride;
    struct matmul_problem problem = {
        .arithmetic = aoticache_shim_matmul_arithmetic((enum shim_class)access->load_class),
        .access = access,
        .item_bytes = (uint32_t)c->item_bytes,
        .rows = c->group_outputs,
        .columns = count,
        .depth = depth,
        .a = {(char *)weights + group * c->group_outputs * depth * c->item_bytes, depth * c->item_bytes, c->item_bytes},
        .out = {output + first * c->output.strides[2], c->output.channel_stride, c->output.strides[2]},
        .alpha = 1,
        .beta = 1,
    };
    if (c->bias != NULL) {
        ptrdiff_t stride = (ptrdiff_t)c->bias->strides[0] * c->item_bytes;
        problem.addend = (struct matmul_matrix){(char *)c->bias->data + group * c->group_outputs * stride, stride, 0};
    }
    if (columns == NULL) {
        problem.b =
            (struct matmul_matrix){input + first * c->input.strides[2], c->input.channel_stride, c->input.strides[2]};
    } else if (c->channels_last) {
        gather_channels_last(c, input, first, count, columns);
        problem.b = (struct matmul_matrix){columns, c->item_bytes, depth * c->item_bytes};
    } else {
        gather_planar(c, input, first, count, columns);
        problem.b = (struct matmul_matrix){columns, count * c->item_bytes, c->item_bytes};
    }
    return aoticache_shim_matmul(&problem);
}

/* The pieces of the result. Each worker takes the next remaining one. */
struct pieces {
    const struct convolution *c;
    const char *weights;
    int64_t positions, at_once, in_a_group, count;
    int workers;
    char *columns;       /* NULL: the input itself is the columns */
    size_t column_bytes; /* bytes for each worker */
    _Atomic int64_t next;
    atomic_bool failed;
};

static void make_pieces(void *user, int worker)
{
    struct pieces *pieces = user;
    const struct convolution *c = pieces->c;
    char *columns = pieces->columns != NULL ? pieces->columns + (size_t)worker * pieces->column_bytes : NULL;
    for (int64_t piece; (piece = atomic_fetch_add(&pieces->next, 1)) < pieces->count;) {
        int64_t plane = piece / pieces->in_a_group, first = piece % pieces->in_a_group * pieces->at_once;
        int64_t left = pieces->positions - first;
        if (!multiply_piece(c, pieces->weights, plane / c->groups, plane % c->groups, first,
                            left < pieces->at_once ? left : pieces->at_once, columns))
            atomic_store(&pieces->failed, true);
    }
}

/*
 * Cuts the result into pieces. A piece is as large as COLUMNS_BYTES allows, or smaller if a group would have fewer
 * pieces than there are threads.
 */
static void cut_into_pieces(struct pieces *pieces, bool pointwise)
{
    const struct convolution *c = pieces->c;
    int64_t depth = c->group_inputs * c->kernel_positions, planes = c->output.batch * c->groups;
    double work = (double)planes * (double)pieces->positions * (double)c->group_outputs * (double)depth;
    pieces->workers = aoticache_shim_parts(work, planes * (pieces->positions / COLUMNS_LEAST + 1));
    pieces->at_once = depth > 0 && !pointwise ? COLUMNS_BYTES / c->item_bytes / depth : pieces->positions;
    if (planes < pieces->workers && pieces->at_once > pieces->positions / pieces->workers)
        pieces->at_once = pieces->positions / pieces->workers + 1;
    if (pieces->at_once < COLUMNS_LEAST)
        pieces->at_once = COLUMNS_LEAST;
    if (pieces->at_once > pieces->positions)
        pieces->at_once = pieces->positions;
    pieces->in_a_group = pieces->at_once > 0 ? (pieces->positions + pieces->at_once - 1) / pieces->at_once : 0;
    pieces->count = planes * pieces->in_a_group;
    if (pieces->workers > pieces->count)
        pieces->workers = pieces->count > 0 ? (int)pieces->count : 1;
    pieces->column_bytes = pointwise ? 0 : ((size_t)(pieces->at_once * depth * c->item_bytes) + 63) & ~(size_t)63;
}

static AOTITorchError convolve(const char *function, const struct convolution *c, const struct image *weight)
{
    int64_t depth = c->group_inputs * c->kernel_positions;
    if (aoticache_shim_onednn_convolve(c, weight))
        return SHIM_SUCCESS;
    if (aoticache_shim_is_depthwise(c))
        return aoticache_shim_convolve_depthwise(c, weight) ? SHIM_SUCCESS : aoticache_shim_fail_memory(function, 0);
    bool arranged = is_arranged(c, weight);
    size_t weight_bytes = arranged ? 0 : (size_t)(c->groups * c->group_outputs * depth * c->item_bytes);
    weight_bytes = (weight_bytes + 63) & ~(size_t)63;
    struct pieces pieces = {.c = c, .positions = c->output.sizes[0] * c->output.sizes[1] * c->output.sizes[2]};
    cut_into_pieces(&pieces, is_pointwise(c));
    size_t bytes = weight_bytes + (size_t)pieces.workers * pieces.column_bytes;
    char *memory = aoticache_shim_large_take(bytes, &bytes);
    if (memory == NULL)
        return aoticache_shim_fail_memory(function, bytes);
    if (!arranged)
        arrange_weights(c, weight, memory);
    pieces.weights = arranged ? weight->data : memory;
    pieces.columns = is_pointwise(c) ? NULL : memory + weight_bytes;
    aoticache_shim_parallel(pieces.workers, make_pieces, &pieces);
    aoticache_shim_large_give(memory, bytes);
    return atomic_load(&pieces.failed) ? aoticache_shim_fail_memory(function, bytes) : SHIM_SUCCESS;
}

/* ---- checks ---- */

static bool is_convolved(int32_t dtype)
{
    return dtype == AOTICACHE_DTYPE_FLOAT32 || dtype == AOTICACHE_DTYPE_FLOAT64 || dtype == AOTICACHE_DTYPE_BFLOAT16 ||
           dtype == AOTICACHE_DTYPE_FLOAT16;
}

static AOTITorchError check_dtypes(const char *function, const struct shim_tensor *input,
                                   const struct shim_tensor *weight, const struct shim_tensor *bias)
{
    char first[SHIM_DTYPE_TEXT_BYTES], second[SHIM_DTYPE_TEXT_BYTES];
    const struct shim_tensor *others[] = {weight, bias};
    if (!is_convolved(input->dtype))
        return aoticache_shim_fail("%s: convolution of %s is not supported", function,
                                   aoticache_shim_dtype_text(input->dtype, first));
    for (int i = 0; i < 2; i++)
        if (others[i] != NULL && others[i]->dtype != input->dtype)
            return aoticache_shim_fail("%s: the input is %s, but the %s is %s", function,
                                       aoticache_shim_dtype_text(input->dtype, first), i == 0 ? "weight" : "bias",
                                       aoticache_shim_dtype_text(others[i]->dtype, second));
    return SHIM_SUCCESS;
}

static AOTITorchError check_channels(const char *function, struct convolution *c, const struct image *weight)
{
    int64_t first = weight->batch, second = weight->channels, channels = c->input.channels;
    if (c->groups < 1 || first < 1 || first % c->groups != 0)
        return aoticache_shim_fail("%s: a weight whose first size is %lld does not divide into %lld groups", function,
                                   (long long)first, (long long)c->groups);
    bool fits = c->transposed ? channels == first : channels % c->groups == 0 && channels / c->groups == second;
    if (!fits)
        return aoticache_shim_fail("%s: %s%lld groups and a weight of %lld x %lld do not take %lld channels", function,
                                   c->transposed ? "transposed, " : "", (long long)c->groups, (long long)first,
                                   (long long)second, (long long)channels);
    c->group_inputs = c->transposed ? first / c->groups : second;
    c->group_outputs = c->transposed ? second : first / c->groups;
    int64_t outputs = c->group_outputs * c->groups;
    if (c->bias != NULL && (c->bias->ndim != 1 || c->bias->sizes[0] != outputs))
        return aoticache_shim_fail("%s: a bias of %d dimensions, %lld elements, for %lld channels", function,
                                   (int)c->bias->ndim, (long long)c->bias->numel, (long long)outputs);
    return SHIM_SUCCESS;
}

static AOTITorchError output_sizes(const char *function, const struct convolution *c, int64_t ret_sizes[IMAGE_AXES])
{
    for (int axis = 0; axis < IMAGE_AXES; axis++) {
        int64_t size = c->input.sizes[axis], stride = c->stride[axis];
        int64_t reach = c->dilation[axis] * (c->kernel[axis] - 1) + 1, padding = 2 * c->padding[axis];
        if (c->kernel[axis] < 1)
            return aoticache_shim_fail("%s: the kernel has size %lld", function, (long long)c->kernel[axis]);
        if (!c->transposed && size + padding < reach)
            return aoticache_shim_fail("%s: a kernel that spans %lld elements is larger than %lld, the input with "
                                       "padding",
                                       function, (long long)reach, (long long)(size + padding));
        if (c->transposed && c->output_padding[axis] >= stride && c->output_padding[axis] >= c->dilation[axis])
            return aoticache_shim_fail("%s: output_padding %lld must be below stride %lld or dilation %lld", function,
                                       (long long)c->output_padding[axis], (long long)stride,
                                       (long long)c->dilation[axis]);
        ret_sizes[axis] = c->transposed ? (size - 1) * stride - padding + reach + c->output_padding[axis]
                                        : (size + padding - reach) / stride + 1;
        if (ret_sizes[axis] < 1)
            return aoticache_shim_fail("%s: the result would have size %lld", function, (long long)ret_sizes[axis]);
    }
    return SHIM_SUCCESS;
}

/*
 * Returns whether the result is channels last. As in PyTorch, one spatial dimension counts as two here, the first of
 * size 1.
 */
static bool prefers_channels_last(const struct shim_tensor *tensor)
{
    if (tensor->ndim != 3)
        return aoticache_shim_is_channels_last(tensor);
    struct shim_tensor flat = {.ndim = 4, .sizes = flat.inline_dims, .strides = flat.inline_dims + 4};
    for (int d = 0; d < 4; d++) {
        int from = d < 2 ? d : 2;
        flat.sizes[d] = d == 2 ? 1 : tensor->sizes[from];
        flat.strides[d] = tensor->strides[from];
    }
    if (__builtin_mul_overflow(tensor->sizes[2], tensor->strides[2], &flat.strides[2]))
        return false;
    return aoticache_shim_is_channels_last(&flat);
}

/*
 * Returns true if PyTorch's oneDNN supports the dtype on this processor: ideep's has_bf16_type_support(),
 * has_fp16_type_support().
 */
static bool onednn_serves(int32_t dtype)
{
#ifdef __x86_64__
    unsigned a, b, c, d;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (d & 0x30) == 0x30) /* AVX-VNNI-INT8 and AVX-NE-CONVERT */
        return true;
    if (!shim_has_avx512())
        return false;
    if (dtype == AOTICACHE_DTYPE_BFLOAT16)
        return true;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 23 & 1) != 0; /* AVX512-FP16 */
#else
    (void)dtype;
    return true;
#endif
}

/*
 * Returns whether PyTorch uses oneDNN for a float32 convolution: ConvParams::use_mkldnn(). For which weights it uses
 * other kernels also depends on the number of threads.
 */
static bool goes_to_onednn(const struct convolution *c)
{
    const int64_t *k = c->kernel, *in = c->input.sizes;
    bool moves = c->input.batch >= 16 || k[2] != 1 || aoticache_shim_threads() > 1;
    for (int axis = 0; axis < IMAGE_AXES; axis++) {
        if (c->transposed && c->output_padding[axis] >= c->stride[axis])
            return false;
        moves = moves || c->stride[axis] != 1 || c->dilation[axis] != 1;
    }
    return moves && (c->groups > 1 || (k[2] > 3 && k[1] > 3) || c->input.batch > 1 ||
                     c->input.batch * c->input.channels * in[0] * in[1] > 20480);
}

/* Returns whether PyTorch has a kernel for three spatial dimensions that writes channels last: only oneDNN's does. */
static bool has_channels_last_3d(const struct convolution *c)
{
    const int32_t dtype = c->dtype;
    static _Atomic(int) known[2]; /* for the small floats, 0: unknown yet; CPUID is slow in a virtual machine */
    if (dtype != AOTICACHE_DTYPE_BFLOAT16 && dtype != AOTICACHE_DTYPE_FLOAT16)
        return dtype == AOTICACHE_DTYPE_FLOAT32 && goes_to_onednn(c);
    _Atomic(int) *answer = &known[dtype == AOTICACHE_DTYPE_FLOAT16];
    if (atomic_load_explicit(answer, memory_order_relaxed) == 0)
        atomic_store_explicit(answer, onednn_serves(dtype) ? 1 : -1, memory_order_relaxed);
    return atomic_load_explicit(answer, memory_order_relaxed) > 0;
}

static AOTITorchError create_output(const char *function, struct convolution *c, const struct shim_tensor *input,
                                    const struct shim_tensor *weight, AtenTensorHandle *ret_output)
{
    int64_t sizes[2 + IMAGE_AXES] = {c->input.batch, c->groups * c->group_outputs}, spatial[IMAGE_AXES];
    if (output_sizes(function, c, spatial) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    for (int axis = 0; axis < c->axes; axis++)
        sizes[2 + axis] = spatial[IMAGE_AXES - c->axes + axis];
    /* PyTorch writes channels last whenever the weight has oneDNN's layout (mkldnn/Conv.cpp). */
    const bool is_frozen = c->frozen_weight != NULL && c->axes > 1;
    bool channels_last = is_frozen || prefers_channels_last(input) || prefers_channels_last(weight);
    if (c->axes == 3 && channels_last && !is_frozen && !has_channels_last_3d(c))
        channels_last = false;
    AtenTensorHandle output;
    if (aoticache_shim_image_empty(function, 2 + c->axes, sizes, channels_last, c->dtype, &output) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    if (aoticache_shim_image_of(function, output->tensor, c->axes, &c->output) != SHIM_SUCCESS) {
        aoti_torch_delete_tensor_object(output);
        return SHIM_FAILURE;
    }
    *ret_output = output;
    return SHIM_SUCCESS;
}

/* Measures the kernel. An expanded weight has more elements than memory, but the arranged weights must fit. */
static AOTITorchError measure_kernel(const char *function, struct convolution *c, const struct image *weight)
{
    int64_t bytes = COLUMNS_LEAST * c->item_bytes;
    c->kernel_positions = 1;
    for (int axis = 0; axis < IMAGE_AXES; axis++) {
        c->kernel[axis] = weight->sizes[axis];
        if (__builtin_mul_overflow(bytes, c->kernel[axis] > 1 ? c->kernel[axis] : 1, &bytes))
            return aoticache_shim_fail("%s: the kernel is too large", function);
        c->kernel_positions *= c->kernel[axis];
    }
    if (__builtin_mul_overflow(bytes, c->groups * (c->group_outputs + 1), &bytes) ||
        __builtin_mul_overflow(bytes, c->group_inputs + 1, &bytes))
        return aoticache_shim_fail("%s: the weight is too large", function);
    return SHIM_SUCCESS;
}

static AOTITorchError read_operands(const char *function, struct convolution *c, const struct shim_tensor *input,
                                    const struct shim_tensor *weight, struct image *ret_weight)
{
    if (check_dtypes(function, input, weight, c->bias) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    if (weight->ndim < 3 || weight->ndim > 5 || input->ndim != weight->ndim)
        return aoticache_shim_fail("%s: input and weight must have 3, 4 or 5 dimensions; these have %d and %d",
                                   function, (int)input->ndim, (int)weight->ndim);
    c->axes = weight->ndim - 2;
    c->dtype = input->dtype;
    c->item_bytes = input->item_bytes;
    if (aoticache_shim_image_of(function, input, c->axes, &c->input) != SHIM_SUCCESS ||
        aoticache_shim_image_of(function, weight, c->axes, ret_weight) != SHIM_SUCCESS ||
        check_channels(function, c, ret_weight) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    c->channels_last = c->input.channel_stride == c->item_bytes && c->group_inputs > 1;
    return measure_kernel(function, c, ret_weight);
}

/* Adds the convolution to `addend` in place, with oneDNN. False: nothing was written. */
static bool add_in_place(const struct convolution *c, const struct image *weight, AtenTensorHandle addend)
{
    struct convolution adding = *c;
    if (addend->tensor->dtype != c->dtype ||
        aoticache_shim_image_of("", addend->tensor, c->axes, &adding.output) != SHIM_SUCCESS ||
        adding.output.batch != c->output.batch || adding.output.channels != c->output.channels ||
        memcmp(adding.output.sizes, c->output.sizes, sizeof c->output.sizes) != 0)
        return false;
    adding.adds_output = true;
    return aoticache_shim_onednn_convolve(&adding, weight);
}

AOTITorchError aoticache_shim_convolve(const char *function, struct convolution *c,
                                       const struct convolution_windows *windows, AtenTensorHandle input,
                                       AtenTensorHandle weight, AtenTensorHandle addend, bool *ret_fused,
                                       AtenTensorHandle *ret_tensor)
{
    const struct convolution_windows *w = windows;
    struct image weight_image;
    AtenTensorHandle output;
    SHIM_TRY(read_operands(function, c, input->tensor, weight->tensor, &weight_image));
    SHIM_TRY(aoticache_shim_window_read(function, "stride", w->stride, w->stride_count, c->axes, 1, 1, c->stride));
    SHIM_TRY(aoticache_shim_window_read(function, "padding", w->padding, w->padding_count, c->axes, 0, 0, c->padding));
    SHIM_TRY(
        aoticache_shim_window_read(function, "dilation", w->dilation, w->dilation_count, c->axes, 1, 1, c->dilation));
    if (c->transposed)
        SHIM_TRY(aoticache_shim_window_read(function, "output_padding", w->output_padding, w->output_padding_count,
                                            c->axes, 0, 0, c->output_padding));
    SHIM_TRY(create_output(function, c, input->tensor, weight->tensor, &output));
    *ret_fused = false;
    if (addend != NULL && output->tensor->numel > 0 && add_in_place(c, &weight_image, addend)) {
        aoti_torch_delete_tensor_object(output);
        *ret_fused = true;
        return aoti_torch_new_tensor_handle(addend, ret_tensor);
    }
    if (addend == NULL && c->unary.kind != SHIM_UNARY_NONE && output->tensor->numel > 0)
        *ret_fused = aoticache_shim_onednn_convolve(c, &weight_image);
    c->unary.kind = SHIM_UNARY_NONE;
    if (!*ret_fused && output->tensor->numel > 0 && convolve(function, c, &weight_image) != SHIM_SUCCESS) {
        aoti_torch_delete_tensor_object(output);
        return SHIM_FAILURE;
    }
    *ret_tensor = output;
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_convolution(AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle *bias,
                                          const int64_t *stride, int64_t stride_count, const int64_t *padding,
                                          int64_t padding_count, const int64_t *dilation, int64_t dilation_count,
                                          int32_t transposed, const int64_t *output_padding,
                                          int64_t output_padding_count, int64_t groups, AtenTensorHandle *ret_tensor)
{
    SHIM_CHECK_TENSOR(input);
    SHIM_CHECK_TENSOR(weight);
    SHIM_CHECK_RESULT(ret_tensor);
    bool fused;
    struct convolution c = {.transposed = transposed != 0, .groups = groups};
    const struct convolution_windows windows = {stride,   stride_count,   padding,        padding_count,
                                                dilation, dilation_count, output_padding, output_padding_count};
    if (bias != NULL && shim_is_defined(*bias)) /* an undefined bias means none, as in PyTorch */
        c.bias = (*bias)->tensor;
    return aoticache_shim_convolve(__func__, &c, &windows, input, weight, NULL, &fused, ret_tensor);
}
