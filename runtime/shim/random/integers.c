/*
 * shim/random_integers: random whole numbers and permutations. random.c says what is drawn from where.
 */
#include "runtime/shim/elements.h"
#include "runtime/shim/operators.h"
#include "runtime/shim/random/engine.h"

/* From so many values on, one draw of 32 bits would favour some of them. */
static const uint64_t wide_range = UINT64_C(1) << 28;

static AOTITorchError fill_range(const char *function, AtenTensorHandle tensor, int64_t low, int64_t high)
{
    cleanup_tensor AtenTensorHandle row = NULL, flat = NULL;
    const int64_t stride = 1;
    const struct shim_tensor *to = tensor->tensor;
    if (low >= high)
        return aoticache_shim_fail("%s: from %lld to below %lld", function, (long long)low, (long long)high);
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
        return aoticache_shim_fail("%s: a generator of its own needs PyTorch in the process", __func__);
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
        return aoticache_shim_fail("%s: %lld numbers", __func__, (long long)n);
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
