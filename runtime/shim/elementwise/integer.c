/*
 * shim/elementwise/integer: operators on integers: gcd.
 */
#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

static int64_t gcd(int64_t a, int64_t b)
{
    uint64_t x = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, y = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
    while (x != 0) {
        uint64_t rest = y % x;
        y = x;
        x = rest;
    }
    return (int64_t)y;
}

AOTITorchError aoti_torch_cpu_gcd(AtenTensorHandle self, AtenTensorHandle other, AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle a = NULL, b = NULL, result = NULL;
    int64_t sizes[SHIM_MAX_NDIM];
    int ndim = 0;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_TENSOR(other);
    SHIM_CHECK_RESULT(ret_0);
    int32_t dtype = self->tensor->dtype;
    if (dtype != other->tensor->dtype)
        return aoticache_shim_fail("%s: the operands must have the same dtype", __func__);
    if (!aoticache_shim_is_integral(dtype) || dtype == AOTICACHE_DTYPE_BOOL)
        return aoticache_shim_fail_dtype(__func__, dtype);
    SHIM_TRY(aoticache_shim_broadcast(__func__, self->tensor, other->tensor, &ndim, sizes));
    SHIM_TRY(aoticache_shim_make(__func__, ndim, sizes, AOTICACHE_DTYPE_INT64, &a));
    SHIM_TRY(aoticache_shim_make(__func__, ndim, sizes, AOTICACHE_DTYPE_INT64, &b));
    SHIM_TRY(aoti_torch_copy_(a, self, 0));
    SHIM_TRY(aoti_torch_copy_(b, other, 0));
    int64_t *to = a->tensor->data, *from = b->tensor->data;
    for (int64_t i = 0; i < a->tensor->numel; i++)
        to[i] = gcd(to[i], from[i]);
    SHIM_TRY(aoticache_shim_make(__func__, ndim, sizes, dtype, &result));
    SHIM_TRY(aoti_torch_copy_(result, a, 0));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}
