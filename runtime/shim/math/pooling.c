/*
 * shim/pooling: the largest element or the mean of windows over images and volumes: plain, adaptive and fractional.
 *
 * All kinds are one walk: along each dimension every position of the result has a range of the input's; the kinds
 * differ in these ranges and in what is made of the elements.
 *
 * Source: aten/src/ATen/native/{DilatedMaxPool2d,DilatedMaxPool3d,AveragePool2d,AveragePool3d,AdaptiveMaxPooling2d,
 * AdaptiveMaxPooling3d,AdaptiveAveragePooling,AdaptiveAveragePooling3d,FractionalMaxPool2d,FractionalMaxPool3d}.cpp.
 */
#include "runtime/shim/math/pooling.h"

#include "runtime/shim/math/image_abi.h"

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

static AOTITorchError begin(struct pooling *p, const char *function, const struct shim_tensor *input, int axes)
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

/* The memory that the walk needs: ranges, and a plane. One block, at ranges[0]. */
static AOTITorchError allocate(struct pooling *p)
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

/* Tensors for the result and, where ret_indices is one, for the positions of the largest elements. */
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

static void pool_all(const struct pooling *p)
{
    for (int64_t batch = 0; batch < p->output.batch; batch++)
        for (int64_t channel = 0; channel < p->output.channels; channel++)
            aoticache_shim_pool_plane(p, batch, channel);
}

/* window NULL: adaptive. */
static AOTITorchError pool(struct pooling *p, const struct shim_tensor *input, const struct window *window,
                           const int64_t spatial[IMAGE_AXES], bool channels_last, AtenTensorHandle *ret_output,
                           AtenTensorHandle *ret_indices)
{
    AtenTensorHandle output, indices;
    if (create_results(p, input, spatial, channels_last, &output, ret_indices != NULL ? &indices : NULL) !=
        SHIM_SUCCESS)
        return SHIM_FAILURE;
    if (output->tensor->numel > 0) {
        if (allocate(p) != SHIM_SUCCESS) {
            aoti_torch_delete_tensor_object(output);
            if (ret_indices != NULL)
                aoti_torch_delete_tensor_object(indices);
            return SHIM_FAILURE;
        }
        if (window != NULL)
            aoticache_shim_window_ranges(p, window);
        else
            aoticache_shim_adaptive_ranges(p);
        pool_all(p);
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
                               const int64_t *kernel, int64_t kernel_count, const int64_t *stride,
                               int64_t stride_count, const int64_t *padding, int64_t padding_count,
                               const int64_t *dilation, int64_t dilation_count, AtenTensorHandle *ret_output,
                               AtenTensorHandle *ret_indices)
{
    struct pooling p = {0};
    int64_t spatial[IMAGE_AXES];
    if (!shim_is_defined(self))
        return aoticache_shim_fail_undefined(function, self);
    if (ret_output == NULL || ret_indices == NULL)
        return aoticache_shim_fail("%s: no place for the results", function);
    if (begin(&p, function, self->tensor, axes) != SHIM_SUCCESS ||
        aoticache_shim_window_read(function, "dilation", dilation, dilation_count, axes, 1, 1, window->dilation) !=
            SHIM_SUCCESS ||
        read_window(function, axes, kernel, kernel_count, stride, stride_count, padding, padding_count, window) !=
            SHIM_SUCCESS ||
        window_sizes(&p, window, spatial) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    return pool(&p, self->tensor, window, spatial, prefers_channels_last(self->tensor, axes), ret_output, ret_indices);
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
    if (begin(p, function, self->tensor, axes) != SHIM_SUCCESS ||
        read_window(function, axes, kernel, kernel_count, stride, stride_count, padding, padding_count, window) !=
            SHIM_SUCCESS ||
        window_sizes(p, window, spatial) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    bool channels_last = axes == 2 && prefers_channels_last(self->tensor, axes);
    return pool(p, self->tensor, window, spatial, channels_last, ret_output, NULL);
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
    if (begin(&p, function, self->tensor, axes) != SHIM_SUCCESS ||
        aoticache_shim_window_read(function, "output_size", output_size, output_size_count, axes, 0, 1, spatial) !=
            SHIM_SUCCESS)
        return SHIM_FAILURE;
    bool channels_last = axes == 2 && prefers_channels_last(self->tensor, axes);
    return pool(&p, self->tensor, NULL, spatial, channels_last, ret_output, with_indices ? ret_indices : NULL);
}

/* ---- fractional: each plane has ranges of its own ---- */

/* Samples of a plane, by axis; in PyTorch's two dimensions the first is the columns'. */
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
            if (aoticache_shim_fractional_ranges(p, window, plane_samples) != SHIM_SUCCESS)
                return SHIM_FAILURE;
            aoticache_shim_pool_plane(p, batch, channel);
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
    if (begin(&p, function, self->tensor, axes) != SHIM_SUCCESS ||
        aoticache_shim_window_read(function, "kernel_size", kernel, kernel_count, axes, 1, 1, window.kernel) !=
            SHIM_SUCCESS ||
        aoticache_shim_window_read(function, "output_size", output_size, output_size_count, axes, 1, 1, spatial) !=
            SHIM_SUCCESS ||
        check_fractional(&p, &window, spatial, random_samples->tensor) != SHIM_SUCCESS ||
        create_results(&p, self->tensor, spatial, false, &output, &indices) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    AOTITorchError status = SHIM_SUCCESS;
    if (output->tensor->numel > 0 && (status = allocate(&p)) == SHIM_SUCCESS)
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
                                                              int64_t output_size_count,                               \
                                                              AtenTensorHandle *ret_output)                            \
    {                                                                                                                  \
        return adaptive_pool(__func__, axes, self, output_size, output_size_count, false, ret_output, NULL);           \
    }                                                                                                                  \
    AOTITorchError aoti_torch_cpu_adaptive_max_pool##axes##d(AtenTensorHandle self, const int64_t *output_size,        \
                                                             int64_t output_size_count,                                \
                                                             AtenTensorHandle *ret_output,                             \
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
