/*
 * shim/pooling/antialias: resizes images with filters that are as wide as the area that becomes one pixel; called by name.
 *
 * Rows first, then columns: a pixel is a weighted mean of those under the filter around its centre. Weights are
 * computed in the images' dtype; for bytes in double, and then converted to 16-bit integers.
 *
 * Source: aten/src/ATen/native/cpu/UpSampleKernel.cpp (filters, the pixels that they cover, weights), and at::native's
 * area_pixel_compute_scale().
 */
#include "runtime/shim/math/named.h"

#include "runtime/shim/math/math_internal.h"
#include "runtime/shim/tensors/elements.h"
#include "runtime/shim/torch_abi.h"

#include <math.h>
#include <string.h>

struct filter {
    const char *name;
    int width; /* in pixels, for an image that becomes larger */
    double (*weight)(double distance);
};

static double triangle(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* Computes R. Keys' cubic convolution with parameter -0.5. */
static double cubic(double x)
{
    x = fabs(x);
    if (x < 1)
        return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

static double sinc(double x)
{
    return x == 0 ? 1 : sin(M_PI * x) / (M_PI * x);
}

static double lanczos(double x)
{
    return fabs(x) < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static const struct filter bilinear = {"_upsample_bilinear2d_aa", 2, triangle},
                           bicubic = {"_upsample_bicubic2d_aa", 4, cubic},
                           lanczos3 = {"_upsample_lanczos2d_aa", 6, lanczos};

/* One axis: the pixels of the input for each pixel of the output, and their weights. */
struct axis {
    int64_t input, output, most; /* pixels; most: weights of one output pixel */
    int64_t *first, *count;      /* one per output pixel */
    double *weights;             /* output x most */
    int bits;                    /* for bytes: weights are integers, and a weight of 1 is 2 to this power */
};

static void axis_close(struct axis *axis)
{
    free(axis->first);
    free(axis->count);
    free(axis->weights);
}

#define cleanup_axis __attribute__((cleanup(axis_close)))

/* Rounds to the precision in which weights are computed. */
static double rounded(bool is_double, double value)
{
    return is_double ? value : (double)(float)value;
}

static double scale_of(int64_t input, int64_t output, bool corners, const aoticache_named_argument *given)
{
    if (corners)
        return output > 1 ? (double)(input - 1) / (double)(output - 1) : 0;
    return given->is_given && given->number > 0 ? 1 / given->number : (double)input / (double)output;
}

/* Returns the pixel before which a filter begins or ends; with a given scale it may be anywhere. */
static int64_t pixel_at(double position, int64_t input)
{
    return position >= (double)input ? input : position > 0 ? (int64_t)position : 0;
}

static void fill_weights(const struct filter *filter, double scale, bool is_double, struct axis *axis)
{
    const double narrowing = rounded(is_double, scale >= 1 ? 1 / scale : 1);
    const double reach = rounded(is_double, filter->width * 0.5 * (scale >= 1 ? scale : 1));
    for (int64_t i = 0; i < axis->output; i++) {
        const double center = rounded(is_double, scale * ((double)i + 0.5));
        const int64_t first = pixel_at(rounded(is_double, center - reach) + 0.5, axis->input);
        int64_t end = pixel_at(rounded(is_double, center + reach) + 0.5, axis->input);
        end = end < first ? first : end - first > axis->most ? first + axis->most : end;
        double *weights = axis->weights + i * axis->most, total = 0;
        for (int64_t j = 0; j < end - first; j++) {
            const double distance = rounded(is_double, (double)(j + first) - center) + 0.5;
            weights[j] = rounded(is_double, filter->weight(rounded(is_double, distance * narrowing)));
            total = rounded(is_double, total + weights[j]);
        }
        for (int64_t j = 0; j < end - first && total != 0; j++)
            weights[j] = rounded(is_double, weights[j] / total);
        axis->first[i] = first;
        axis->count[i] = end - first;
    }
}

/* Converts the weights to integers, as large as 16 bits allow for the largest of them. */
static void make_whole(struct axis *axis)
{
    double largest = 0;
    for (int64_t i = 0; i < axis->output; i++)
        for (int64_t j = 0; j < axis->count[i]; j++)
            largest = fmax(largest, axis->weights[i * axis->most + j]);
    for (axis->bits = 0; axis->bits < 22; axis->bits++)
        if (largest * (double)(2 << axis->bits) + 0.5 >= 1 << 15)
            break;
    for (int64_t i = 0; i < axis->output; i++)
        for (int64_t j = 0; j < axis->count[i]; j++) {
            double *weight = &axis->weights[i * axis->most + j];
            *weight = trunc(*weight * (double)(1 << axis->bits) + (*weight < 0 ? -0.5 : 0.5));
        }
}

/* Makes an axis without filtering: one whose size does not change is not filtered, whatever its scale. */
static void keep_pixels(struct axis *axis)
{
    for (int64_t i = 0; i < axis->output; i++) {
        axis->first[i] = i;
        axis->count[i] = 1;
        axis->weights[i * axis->most] = 1;
    }
}

static AOTITorchError axis_open(const struct filter *filter, int64_t input, int64_t output, double scale, int32_t dtype,
                                struct axis *ret_axis)
{
    struct axis axis = {.input = input, .output = output};
    const bool is_whole = dtype == AOTICACHE_DTYPE_UINT8, is_double = dtype != AOTICACHE_DTYPE_FLOAT32;
    size_t places = 0, bytes = 0;
    scale = rounded(is_double, scale);
    const double most = 2 * ceil(filter->width * 0.5 * (scale >= 1 ? scale : 1)) + 1;
    axis.most = most < (double)input ? (int64_t)most : input;
    if (__builtin_mul_overflow((size_t)output, (size_t)axis.most, &places) ||
        __builtin_mul_overflow(places, sizeof *axis.weights, &bytes))
        return aoticache_shim_fail("%s: resizing from %lld to %lld pixels needs too much memory", filter->name,
                                   (long long)input, (long long)output);
    axis.first = malloc((size_t)output * sizeof *axis.first);
    axis.count = malloc((size_t)output * sizeof *axis.count);
    axis.weights = malloc(bytes);
    if (axis.first == NULL || axis.count == NULL || axis.weights == NULL) {
        axis_close(&axis);
        return aoticache_shim_fail_memory(filter->name, bytes);
    }
    if (input == output)
        keep_pixels(&axis);
    else
        fill_weights(filter, scale, is_double, &axis);
    if (is_whole)
        make_whole(&axis);
    *ret_axis = axis;
    return SHIM_SUCCESS;
}

/* Resizes `runs` images of axis->input lines to axis->output lines; a line has `width` numbers. */
#define DEFINE_RESIZE(type)                                                                                     \
    static void resize_##type(const struct axis *axis, int64_t runs, int64_t width, const type *from, type *to) \
    {                                                                                                           \
        for (int64_t run = 0; run < runs; run++, from += axis->input * width)                                   \
            for (int64_t i = 0; i < axis->output; i++, to += width) {                                           \
                memset(to, 0, (size_t)width * sizeof *to);                                                      \
                for (int64_t j = 0; j < axis->count[i]; j++) {                                                  \
                    const type weight = (type)axis->weights[i * axis->most + j];                                \
                    const type *line = from + (axis->first[i] + j) * width;                                     \
                    for (int64_t x = 0; x < width; x++)                                                         \
                        to[x] += weight * line[x];                                                              \
                }                                                                                               \
            }                                                                                                   \
    }
DEFINE_RESIZE(float)
DEFINE_RESIZE(double)

/* Does the same for bytes, with integer weights: sums are rounded and clamped to 0 .. 255. */
static void resize_bytes(const struct axis *axis, int64_t runs, int64_t width, const uint8_t *from, uint8_t *to)
{
    enum { AT_ONCE = 64 };
    for (int64_t run = 0; run < runs; run++, from += axis->input * width)
        for (int64_t i = 0; i < axis->output; i++, to += width)
            for (int64_t begin = 0; begin < width; begin += AT_ONCE) {
                const int64_t count = width - begin < AT_ONCE ? width - begin : AT_ONCE;
                int64_t sums[AT_ONCE] = {0};
                for (int64_t j = 0; j < axis->count[i]; j++) {
                    const int64_t weight = (int64_t)axis->weights[i * axis->most + j];
                    const uint8_t *line = from + (axis->first[i] + j) * width + begin;
                    for (int64_t x = 0; x < count; x++)
                        sums[x] += weight * line[x];
                }
                for (int64_t x = 0; x < count; x++) {
                    const int64_t value = sums[x] < 0 ? 0 : (sums[x] + (INT64_C(1) << axis->bits) / 2) >> axis->bits;
                    to[begin + x] = (uint8_t)(value > UINT8_MAX ? UINT8_MAX : value);
                }
            }
}

static void resize(const struct axis *axis, int64_t runs, int64_t width, const struct shim_tensor *from,
                   const struct shim_tensor *to)
{
    if (from->dtype == AOTICACHE_DTYPE_UINT8)
        resize_bytes(axis, runs, width, from->data, to->data);
    else if (from->dtype == AOTICACHE_DTYPE_FLOAT64)
        resize_double(axis, runs, width, from->data, to->data);
    else
        resize_float(axis, runs, width, from->data, to->data);
}

static AOTITorchError check_image(const struct filter *filter, const aoticache_named_argument *a)
{
    if (!shim_is_defined(a[0].tensor))
        return aoticache_shim_fail_undefined(filter->name, a[0].tensor);
    const struct shim_tensor *t = a[0].tensor->tensor;
    if (t->dtype != AOTICACHE_DTYPE_FLOAT32 && t->dtype != AOTICACHE_DTYPE_FLOAT64 && t->dtype != AOTICACHE_DTYPE_UINT8)
        return aoticache_shim_fail_dtype(filter->name, t->dtype);
    if (t->ndim != 4 || a[1].count != 2)
        return aoticache_shim_fail("%s: images with four dimensions and two sizes are needed; these have %d and %zu",
                                   filter->name, (int)t->ndim, a[1].count);
    const int64_t *size = t->sizes, *wanted = a[1].integers;
    if (size[1] == 0 || size[2] == 0 || size[3] == 0 || wanted[0] <= 0 || wanted[1] <= 0)
        return aoticache_shim_fail("%s: from %lld channels of %lld x %lld pixels to %lld x %lld", filter->name,
                                   (long long)size[1], (long long)size[2], (long long)size[3], (long long)wanted[0],
                                   (long long)wanted[1]);
    return SHIM_SUCCESS;
}

static AOTITorchError resample(const struct filter *filter, const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle image = NULL, rows = NULL, whole = NULL, result = NULL;
    cleanup_axis struct axis across = {0}, down = {0};
    SHIM_TRY(check_image(filter, a));
    const struct shim_tensor *t = a[0].tensor->tensor;
    const int64_t height = a[1].integers[0], width = a[1].integers[1], planes = t->sizes[0] * t->sizes[1];
    const bool corners = a[2].integer != 0;
    const int64_t between[] = {t->sizes[0], t->sizes[1], t->sizes[2], width},
                  sizes[] = {t->sizes[0], t->sizes[1], height, width};
    SHIM_TRY(aoticache_shim_read(filter->name, a[0].tensor, t->dtype, &image));
    SHIM_TRY(aoticache_shim_make(filter->name, 4, between, t->dtype, &rows));
    SHIM_TRY(aoticache_shim_make(filter->name, 4, sizes, t->dtype, &whole));
    SHIM_TRY(axis_open(filter, t->sizes[3], width, scale_of(t->sizes[3], width, corners, &a[4]), t->dtype, &across));
    SHIM_TRY(axis_open(filter, t->sizes[2], height, scale_of(t->sizes[2], height, corners, &a[3]), t->dtype, &down));
    resize(&across, planes * t->sizes[2], 1, image->tensor, rows->tensor);
    resize(&down, planes, width, rows->tensor, whole->tensor);
    if (!aoticache_shim_is_channels_last(t)) {
        *ret = shim_steal(&whole);
        return SHIM_SUCCESS;
    }
    SHIM_TRY(aoticache_shim_image_empty(filter->name, 4, sizes, true, t->dtype, &result));
    SHIM_TRY(aoti_torch_copy_(result, whole, 0));
    *ret = shim_steal(&result);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_resize_bilinear(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    return resample(&bilinear, a, ret);
}

AOTITorchError aoticache_shim_resize_bicubic(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    return resample(&bicubic, a, ret);
}

AOTITorchError aoticache_shim_resize_lanczos(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    return resample(&lanczos3, a, ret);
}
