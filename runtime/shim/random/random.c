/*
 * shim/random/random: operators that fill tensors with random numbers.
 *
 * Source: aten/src/ATen/native/cpu/DistributionTemplates.h and TensorFactories.cpp: with the same seed the numbers are
 * those of PyTorch's CPU generator, in its order (that of memory), for rand, randn, randint, randperm, uniform and
 * normal. If PyTorch has Intel's MKL, it draws bernoulli and exponential numbers from it; the numbers here are those of
 * a PyTorch without MKL. A generator object cannot exist without PyTorch, so only NULL is accepted.
 */
#include "runtime/shim/random/random_internal.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <math.h>
#include <string.h>

/* The distribution to draw from, and its two parameters. */
struct drawing {
    enum { DRAW_UNIFORM, DRAW_NORMAL, DRAW_EXPONENTIAL, DRAW_BERNOULLI } kind;
    double first, second;
};

static AOTITorchError check_generator(const char *function, AtenGeneratorHandle *generator)
{
    if (generator != NULL && *generator != NULL)
        return aoticache_shim_fail("%s: a custom generator needs PyTorch in the process", function);
    return SHIM_SUCCESS;
}

/* Returns the number of bits in a number's fraction. Numbers are drawn as double for double, otherwise as float. */
static int fraction_bits(int32_t dtype)
{
    switch (dtype) {
    case AOTICACHE_DTYPE_FLOAT16:
        return 11;
    case AOTICACHE_DTYPE_BFLOAT16:
        return 8;
    case AOTICACHE_DTYPE_FLOAT64:
        return 53;
    default:
        return 24;
    }
}

static double draw(struct random_engine *engine, const struct drawing *drawing, int bits)
{
    float low = (float)drawing->first, high = (float)drawing->second;
    switch (drawing->kind) {
    case DRAW_NORMAL:
        return aoticache_shim_random_normal(engine) * drawing->second + drawing->first;
    case DRAW_EXPONENTIAL:
        return -1.0 / drawing->first * log1p(-aoticache_shim_random_double(engine));
    case DRAW_BERNOULLI:
        return aoticache_shim_random_double(engine) < drawing->first;
    default:
        if (bits > 24)
            return aoticache_shim_random_double(engine) * (drawing->second - drawing->first) + drawing->first;
        return aoticache_shim_random_float(engine, bits) * (high - low) + low;
    }
}

typedef float floats_4 __attribute__((vector_size(16)));
floats_4 Sleef_logf4_u10(floats_4 x);
floats_4 Sleef_sinf4_u10(floats_4 x);
floats_4 Sleef_cosf4_u10(floats_4 x);

/* Turns sixteen uniform numbers into normal ones: eight radii and eight angles. */
static void make_normal_float(float *values, float mean, float deviation)
{
    for (int i = 0; i < 8; i += 4) {
        floats_4 uniform, angle, radius;
        memcpy(&uniform, values + i, sizeof uniform);
        memcpy(&angle, values + i + 8, sizeof angle);
        radius = -2 * Sleef_logf4_u10(1 - uniform);
        for (int lane = 0; lane < 4; lane++)
            radius[lane] = sqrtf(radius[lane]);
        angle *= (float)(2.0 * M_PI);
        uniform = radius * Sleef_cosf4_u10(angle) * deviation + mean;
        angle = radius * Sleef_sinf4_u10(angle) * deviation + mean;
        memcpy(values + i, &uniform, sizeof uniform);
        memcpy(values + i + 8, &angle, sizeof angle);
    }
}

static void make_normal_double(double *values, double mean, double deviation)
{
    for (int i = 0; i < 8; i++) {
        double radius = sqrt(-2 * log(1 - values[i])), angle = 2.0 * M_PI * values[i + 8];
        values[i] = radius * cos(angle) * deviation + mean;
        values[i + 8] = radius * sin(angle) * deviation + mean;
    }
}

/*
 * Draws many normal numbers in groups of sixteen. If the count is not a multiple of 16, the last group is drawn again.
 */
static void fill_normal(struct random_engine *engine, const struct drawing *drawing, int32_t dtype, void *data,
                        int64_t count)
{
    double mean = drawing->first, deviation = drawing->second;
    float *floats = data;
    double *doubles = data;
    bool is_double = dtype == AOTICACHE_DTYPE_FLOAT64;
    for (int64_t i = 0; i < count; i++)
        if (is_double)
            doubles[i] = aoticache_shim_random_double(engine);
        else
            floats[i] = aoticache_shim_random_float(engine, 24);
    for (int64_t i = 0; i + 15 < count; i += 16)
        if (is_double)
            make_normal_double(doubles + i, mean, deviation);
        else
            make_normal_float(floats + i, (float)mean, (float)deviation);
    if (count % 16 == 0)
        return;
    for (int64_t i = count - 16; i < count; i++)
        if (is_double)
            doubles[i] = aoticache_shim_random_double(engine);
        else
            floats[i] = aoticache_shim_random_float(engine, 24);
    if (is_double)
        make_normal_double(doubles + count - 16, mean, deviation);
    else
        make_normal_float(floats + count - 16, (float)mean, (float)deviation);
}

/* Fills a row of as many numbers as `tensor` has elements, in float or double. */
static void fill_row(const struct drawing *drawing, const struct shim_tensor *tensor, struct shim_tensor *row)
{
    bool is_double = row->dtype == AOTICACHE_DTYPE_FLOAT64;
    int bits = fraction_bits(tensor->dtype);
    struct random_engine *engine = aoticache_shim_engine_take();
    if (drawing->kind == DRAW_NORMAL && row->numel >= 16 && aoticache_shim_is_contiguous(tensor))
        fill_normal(engine, drawing, row->dtype, row->data, row->numel);
    else
        for (int64_t i = 0; i < row->numel; i++) {
            double value = draw(engine, drawing, bits);
            if (is_double)
                ((double *)row->data)[i] = value;
            else
                ((float *)row->data)[i] = (float)value;
        }
    aoticache_shim_engine_give(engine);
}

/* Returns the elements in the order of memory: as a one-dimensional view, if possible. */
static AOTITorchError flatten(const char *function, AtenTensorHandle tensor, AtenTensorHandle *ret_flat)
{
    const int64_t stride = 1;
    if (!aoticache_shim_is_dense(tensor->tensor))
        return aoti_torch_new_tensor_handle(tensor, ret_flat);
    return aoticache_shim_tensor_view(function, tensor->tensor, tensor->tensor->dtype, 1, &tensor->tensor->numel,
                                      &stride, tensor->tensor->offset, ret_flat);
}

static AOTITorchError fill_tensor(const char *function, AtenTensorHandle tensor, const struct drawing *drawing)
{
    cleanup_tensor AtenTensorHandle row = NULL, flat = NULL;
    if (drawing->kind != DRAW_BERNOULLI && !aoticache_shim_is_floating(tensor->tensor->dtype))
        return aoticache_shim_fail_dtype(function, tensor->tensor->dtype);
    SHIM_TRY(flatten(function, tensor, &flat));
    SHIM_TRY(aoticache_shim_make(
        function, flat->tensor->ndim, flat->tensor->sizes,
        tensor->tensor->dtype == AOTICACHE_DTYPE_FLOAT64 ? AOTICACHE_DTYPE_FLOAT64 : AOTICACHE_DTYPE_FLOAT32, &row));
    fill_row(drawing, tensor->tensor, row->tensor);
    return aoti_torch_copy_(flat, row, 0);
}

/* ---- new tensors ---- */

static AOTITorchError make_new(const char *function, const int64_t *size, int64_t num_size, const int32_t *dtype,
                               int32_t default_dtype, const int32_t *device, AtenTensorHandle *ret_tensor)
{
    if (device != NULL && *device != AOTICACHE_DEVICE_TYPE_CPU)
        return aoticache_shim_fail("%s: device type %d needs PyTorch in the process", function, (int)*device);
    return aoticache_shim_make(function, num_size, size, dtype != NULL ? *dtype : default_dtype, ret_tensor);
}

static AOTITorchError draw_new(const char *function, const struct drawing *drawing, const int64_t *size,
                               int64_t num_size, const int32_t *dtype, const int32_t *device,
                               AtenTensorHandle *ret_tensor)
{
    cleanup_tensor AtenTensorHandle made = NULL;
    SHIM_TRY(make_new(function, size, num_size, dtype, AOTICACHE_DTYPE_FLOAT32, device, &made));
    SHIM_TRY(fill_tensor(function, made, drawing));
    *ret_tensor = shim_steal(&made);
    return SHIM_SUCCESS;
}

static AOTITorchError draw_like(const char *function, const struct drawing *drawing, AtenTensorHandle self,
                                const int32_t *dtype, AtenTensorHandle *ret_tensor)
{
    cleanup_tensor AtenTensorHandle made = NULL;
    if (!shim_is_defined(self))
        return aoticache_shim_fail_undefined(function, self);
    SHIM_TRY(aoticache_shim_make_like(function, self, dtype != NULL ? *dtype : self->tensor->dtype, &made));
    SHIM_TRY(fill_tensor(function, made, drawing));
    *ret_tensor = shim_steal(&made);
    return SHIM_SUCCESS;
}

static const struct drawing unit_uniform = {DRAW_UNIFORM, 0, 1}, unit_normal = {DRAW_NORMAL, 0, 1};

/* Layout and pinned memory are ignored: all memory is strided CPU memory. */
#define DEFINE_DRAWN(name, drawing)                                                                              \
    AOTITorchError aoti_torch_cpu_##name(const int64_t *size, int64_t num_size, int32_t *dtype, int32_t *layout, \
                                         int32_t *device, int32_t device_index_, int32_t *pin_memory,            \
                                         AtenTensorHandle *ret_0)                                                \
    {                                                                                                            \
        (void)layout, (void)device_index_, (void)pin_memory;                                                     \
        SHIM_CHECK_RESULT(ret_0);                                                                                \
        return draw_new(__func__, drawing, size, num_size, dtype, device, ret_0);                                \
    }                                                                                                            \
    AOTITorchError aoti_torch_cpu_##name##_generator(                                                            \
        const int64_t *size, int64_t num_size, AtenGeneratorHandle *generator, int32_t *dtype, int32_t *layout,  \
        int32_t *device, int32_t device_index_, int32_t *pin_memory, AtenTensorHandle *ret_0)                    \
    {                                                                                                            \
        (void)layout, (void)device_index_, (void)pin_memory;                                                     \
        SHIM_CHECK_RESULT(ret_0);                                                                                \
        SHIM_TRY(check_generator(__func__, generator));                                                          \
        return draw_new(__func__, drawing, size, num_size, dtype, device, ret_0);                                \
    }                                                                                                            \
    AOTITorchError aoti_torch_cpu_##name##_like(AtenTensorHandle self, int32_t *dtype, int32_t *layout,          \
                                                int32_t *device, int32_t device_index_, int32_t *pin_memory,     \
                                                int32_t *memory_format, AtenTensorHandle *ret_0)                 \
    {                                                                                                            \
        (void)layout, (void)device, (void)device_index_, (void)pin_memory, (void)memory_format;                  \
        SHIM_CHECK_RESULT(ret_0);                                                                                \
        return draw_like(__func__, drawing, self, dtype, ret_0);                                                 \
    }                                                                                                            \
    AOTITorchError aoti_torch_cpu_##name##_like_generator(                                                       \
        AtenTensorHandle self, AtenGeneratorHandle *generator, int32_t *dtype, int32_t *layout, int32_t *device, \
        int32_t device_index_, int32_t *pin_memory, int32_t *memory_format, AtenTensorHandle *ret_0)             \
    {                                                                                                            \
        (void)layout, (void)device, (void)device_index_, (void)pin_memory, (void)memory_format;                  \
        SHIM_CHECK_RESULT(ret_0);                                                                                \
        SHIM_TRY(check_generator(__func__, generator));                                                          \
        return draw_like(__func__, drawing, self, dtype, ret_0);                                                 \
    }
DEFINE_DRAWN(rand, &unit_uniform)
DEFINE_DRAWN(randn, &unit_normal)

/* ---- tensors like another ---- */

AOTITorchError aoti_torch_cpu_uniform(AtenTensorHandle self, double from, double to, AtenGeneratorHandle *generator,
                                      AtenTensorHandle *ret_0)
{
    const struct drawing drawing = {DRAW_UNIFORM, from, to};
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(check_generator(__func__, generator));
    if (!(from <= to))
        return aoticache_shim_fail("%s: invalid range from %g to %g", __func__, from, to);
    return draw_like(__func__, &drawing, self, NULL, ret_0);
}

AOTITorchError aoti_torch_cpu_normal_functional(AtenTensorHandle self, double mean, double std,
                                                AtenGeneratorHandle *generator, AtenTensorHandle *ret_0)
{
    const struct drawing drawing = {DRAW_NORMAL, mean, std};
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(check_generator(__func__, generator));
    if (!(std >= 0))
        return aoticache_shim_fail("%s: invalid standard deviation %g", __func__, std);
    return draw_like(__func__, &drawing, self, NULL, ret_0);
}

AOTITorchError aoti_torch_cpu_exponential(AtenTensorHandle self, double lambd, AtenGeneratorHandle *generator,
                                          AtenTensorHandle *ret_0)
{
    const struct drawing drawing = {DRAW_EXPONENTIAL, lambd, 0};
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(check_generator(__func__, generator));
    if (!(lambd > 0))
        return aoticache_shim_fail("%s: invalid rate %g", __func__, lambd);
    return draw_like(__func__, &drawing, self, NULL, ret_0);
}

AOTITorchError aoti_torch_cpu_bernoulli__float(AtenTensorHandle self, double p, AtenGeneratorHandle *generator)
{
    const struct drawing drawing = {DRAW_BERNOULLI, p, 0};
    SHIM_CHECK_TENSOR(self);
    SHIM_TRY(check_generator(__func__, generator));
    if (!(p >= 0 && p <= 1))
        return aoticache_shim_fail("%s: invalid probability %g", __func__, p);
    return fill_tensor(__func__, self, &drawing);
}

/* Draws each element with its own probability; `p` is broadcast. */
AOTITorchError aoti_torch_cpu_bernoulli__Tensor(AtenTensorHandle self, AtenTensorHandle p,
                                                AtenGeneratorHandle *generator)
{
    cleanup_tensor AtenTensorHandle chances = NULL;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_TENSOR(p);
    SHIM_TRY(check_generator(__func__, generator));
    if (!aoticache_shim_is_floating(p->tensor->dtype))
        return aoticache_shim_fail_dtype(__func__, p->tensor->dtype);
    SHIM_TRY(aoticache_shim_make(__func__, self->tensor->ndim, self->tensor->sizes, AOTICACHE_DTYPE_FLOAT64, &chances));
    SHIM_TRY(aoti_torch_copy_(chances, p, 0));
    double *chance = chances->tensor->data;
    for (int64_t i = 0; i < chances->tensor->numel; i++)
        if (!(chance[i] >= 0 && chance[i] <= 1))
            return aoticache_shim_fail("%s: invalid probability %g", __func__, chance[i]);
    bool is_double = p->tensor->dtype == AOTICACHE_DTYPE_FLOAT64;
    struct random_engine *engine = aoticache_shim_engine_take();
    for (int64_t i = 0; i < chances->tensor->numel; i++)
        chance[i] =
            (is_double ? aoticache_shim_random_double(engine) : aoticache_shim_random_float(engine, 24)) < chance[i];
    aoticache_shim_engine_give(engine);
    return aoti_torch_copy_(self, chances, 0);
}

/* ---- integers and permutations ---- */

/* From this range on, one draw of 32 bits would favour some values. */
static const uint64_t wide_range = UINT64_C(1) << 28;

static AOTITorchError fill_range(const char *function, AtenTensorHandle tensor, int64_t low, int64_t high)
{
    cleanup_tensor AtenTensorHandle row = NULL, flat = NULL;
    const int64_t stride = 1;
    const struct shim_tensor *to = tensor->tensor;
    if (low >= high)
        return aoticache_shim_fail("%s: invalid range from %lld to below %lld", function, (long long)low,
                                   (long long)high);
    if (aoticache_shim_is_complex(to->dtype))
        return aoticache_shim_fail_dtype(function, to->dtype);
    bool dense = aoticache_shim_is_dense(to);
    if (dense)
        SHIM_TRY(aoticache_shim_tensor_view(function, to, to->dtype, 1, &to->numel, &stride, to->offset, &flat));
    const struct shim_tensor *target = dense ? flat->tensor : to;
    SHIM_TRY(aoticache_shim_make(function, target->ndim, target->sizes, AOTICACHE_DTYPE_INT64, &row));
    uint64_t range = (uint64_t)high - (uint64_t)low;
    int64_t *values = row->tensor->data;
    struct random_engine *engine = aoticache_shim_engine_take();
    for (int64_t i = 0; i < to->numel; i++) {
        uint64_t drawn = range >= wide_range ? aoticache_shim_random_64(engine) : aoticache_shim_random_32(engine);
        values[i] = (int64_t)(drawn % range + (uint64_t)low);
    }
    aoticache_shim_engine_give(engine);
    return aoti_torch_copy_(dense ? flat : tensor, row, 0);
}

static AOTITorchError make_range(const char *function, int64_t low, int64_t high, const int64_t *size, int64_t num_size,
                                 const int32_t *dtype, const int32_t *device, AtenTensorHandle *ret_tensor)
{
    cleanup_tensor AtenTensorHandle made = NULL;
    if (device != NULL && *device != AOTICACHE_DEVICE_TYPE_CPU)
        return aoticache_shim_fail("%s: device type %d needs PyTorch in the process", function, (int)*device);
    SHIM_TRY(aoticache_shim_make(function, num_size, size, dtype != NULL ? *dtype : AOTICACHE_DTYPE_INT64, &made));
    SHIM_TRY(fill_range(function, made, low, high));
    *ret_tensor = shim_steal(&made);
    return SHIM_SUCCESS;
}

static AOTITorchError make_range_like(const char *function, AtenTensorHandle self, int64_t low, int64_t high,
                                      const int32_t *dtype, AtenTensorHandle *ret_tensor)
{
    cleanup_tensor AtenTensorHandle made = NULL;
    if (!shim_is_defined(self))
        return aoticache_shim_fail_undefined(function, self);
    SHIM_TRY(aoticache_shim_make_like(function, self, dtype != NULL ? *dtype : self->tensor->dtype, &made));
    SHIM_TRY(fill_range(function, made, low, high));
    *ret_tensor = shim_steal(&made);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_randint(int64_t high, const int64_t *size, int64_t num_size, int32_t *dtype,
                                      int32_t *layout, int32_t *device, int32_t device_index_, int32_t *pin_memory,
                                      AtenTensorHandle *ret_0)
{
    (void)layout, (void)device_index_, (void)pin_memory;
    SHIM_CHECK_RESULT(ret_0);
    return make_range(__func__, 0, high, size, num_size, dtype, device, ret_0);
}

AOTITorchError aoti_torch_cpu_randint_generator(int64_t high, const int64_t *size, int64_t num_size,
                                                AtenGeneratorHandle *generator, int32_t *dtype, int32_t *layout,
                                                int32_t *device, int32_t device_index_, int32_t *pin_memory,
                                                AtenTensorHandle *ret_0)
{
    (void)layout, (void)device_index_, (void)pin_memory;
    SHIM_CHECK_RESULT(ret_0);
    if (generator != NULL && *generator != NULL)
        return aoticache_shim_fail("%s: a custom generator needs PyTorch in the process", __func__);
    return make_range(__func__, 0, high, size, num_size, dtype, device, ret_0);
}

AOTITorchError aoti_torch_cpu_randint_low(int64_t low, int64_t high, const int64_t *size, int64_t num_size,
                                          int32_t *dtype, int32_t *layout, int32_t *device, int32_t device_index_,
                                          int32_t *pin_memory, AtenTensorHandle *ret_0)
{
    (void)layout, (void)device_index_, (void)pin_memory;
    SHIM_CHECK_RESULT(ret_0);
    return make_range(__func__, low, high, size, num_size, dtype, device, ret_0);
}

AOTITorchError aoti_torch_cpu_randint_low_out(AtenTensorHandle out, int64_t low, int64_t high, const int64_t *size,
                                              int64_t num_size)
{
    cleanup_tensor AtenTensorHandle wanted = NULL;
    SHIM_CHECK_TENSOR(out);
    SHIM_TRY(aoticache_shim_make(__func__, num_size, size, out->tensor->dtype, &wanted));
    if (!aoticache_shim_same_sizes(out->tensor, wanted->tensor))
        SHIM_TRY(aoticache_shim_resize(__func__, out, num_size, size));
    return fill_range(__func__, out, low, high);
}

AOTITorchError aoti_torch_cpu_randint_like(AtenTensorHandle self, int64_t high, int32_t *dtype, int32_t *layout,
                                           int32_t *device, int32_t device_index_, int32_t *pin_memory,
                                           int32_t *memory_format, AtenTensorHandle *ret_0)
{
    (void)layout, (void)device, (void)device_index_, (void)pin_memory, (void)memory_format;
    SHIM_CHECK_RESULT(ret_0);
    return make_range_like(__func__, self, 0, high, dtype, ret_0);
}

AOTITorchError aoti_torch_cpu_randint_like_low_dtype(AtenTensorHandle self, int64_t low, int64_t high, int32_t *dtype,
                                                     int32_t *layout, int32_t *device, int32_t device_index_,
                                                     int32_t *pin_memory, int32_t *memory_format,
                                                     AtenTensorHandle *ret_0)
{
    (void)layout, (void)device, (void)device_index_, (void)pin_memory, (void)memory_format;
    SHIM_CHECK_RESULT(ret_0);
    return make_range_like(__func__, self, low, high, dtype, ret_0);
}

AOTITorchError aoti_torch_cpu_randperm(int64_t n, int32_t *dtype, int32_t *layout, int32_t *device,
                                       int32_t device_index_, int32_t *pin_memory, AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle places = NULL, result = NULL;
    (void)layout, (void)device_index_, (void)pin_memory;
    SHIM_CHECK_RESULT(ret_0);
    if (device != NULL && *device != AOTICACHE_DEVICE_TYPE_CPU)
        return aoticache_shim_fail("%s: device type %d needs PyTorch in the process", __func__, (int)*device);
    if (n < 0)
        return aoticache_shim_fail("%s: invalid number of elements: %lld", __func__, (long long)n);
    SHIM_TRY(aoticache_shim_make(__func__, 1, &n, AOTICACHE_DTYPE_INT64, &places));
    int64_t *place = places->tensor->data;
    for (int64_t i = 0; i < n; i++)
        place[i] = i;
    struct random_engine *engine = aoticache_shim_engine_take();
    for (int64_t i = 0; i < n - 1; i++) {
        uint64_t left = (uint64_t)(n - i);
        uint64_t drawn = n < UINT32_MAX / 20 ? aoticache_shim_random_32(engine) : aoticache_shim_random_64(engine);
        int64_t other = i + (int64_t)(drawn % left), held = place[i];
        place[i] = place[other];
        place[other] = held;
    }
    aoticache_shim_engine_give(engine);
    SHIM_TRY(aoticache_shim_read(__func__, places, dtype != NULL ? *dtype : AOTICACHE_DTYPE_INT64, &result));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}
