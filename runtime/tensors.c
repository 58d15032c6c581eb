/*
 * runtime/tensors: functions with which a kernel reads inputs and makes outputs (runtime/kernel.h).
 */
#include "runtime/runtime_internal.h"

AOTIRuntimeError aoticache_kernel_get_tensor(aoticache_kernel_call *call, AtenTensorHandle tensor,
                                             aoticache_kernel_tensor *ret_tensor)
{
    aoticache_kernel_tensor seen;
    int64_t *sizes, *strides;
    if (aoti_torch_get_data_ptr(tensor, &seen.data) != 0 || aoti_torch_get_dtype(tensor, &seen.dtype) != 0 ||
        aoti_torch_get_dim(tensor, &seen.ndim) != 0 || aoti_torch_get_numel(tensor, &seen.numel) != 0 ||
        aoti_torch_get_sizes(tensor, &sizes) != 0 || aoti_torch_get_strides(tensor, &strides) != 0)
        return aoticache_kernel_fail_torch(call, "reading a tensor");
    seen.sizes = sizes;
    seen.strides = strides;
    *ret_tensor = seen;
    return AOTICACHE_KERNEL_OK;
}

static AOTIRuntimeError fail_dimension(aoticache_kernel_call *call, size_t position, const char *what, int64_t d,
                                       int64_t seen, int64_t wanted)
{
    return aoticache_kernel_fail(call, "input %zu (%s): %s %lld of dimension %lld; this kernel is for %lld", position,
                                 call->kernel->input_names[position], what, (long long)seen, (long long)d,
                                 (long long)wanted);
}

AOTIRuntimeError aoticache_kernel_check_input(aoticache_kernel_call *call, size_t position, int32_t dtype, int64_t ndim,
                                              const int64_t *sizes, const int64_t *strides)
{
    aoticache_kernel_tensor seen;
    if (aoticache_kernel_get_tensor(call, call->inputs[position], &seen) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    const char *name = call->kernel->input_names[position];
    if (seen.dtype != dtype)
        return aoticache_kernel_fail(call, "input %zu (%s): dtype %d (%s); this kernel is for %d (%s)", position, name,
                                     (int)seen.dtype, aoticache_description_dtype_name(seen.dtype), (int)dtype,
                                     aoticache_description_dtype_name(dtype));
    if (seen.ndim != ndim)
        return aoticache_kernel_fail(call, "input %zu (%s): %lld dimensions; this kernel is for %lld", position, name,
                                     (long long)seen.ndim, (long long)ndim);
    for (int64_t d = 0; d < ndim; d++) {
        if (seen.sizes[d] != sizes[d])
            return fail_dimension(call, position, "size", d, seen.sizes[d], sizes[d]);
        if (strides != NULL && seen.numel != 0 && sizes[d] > 1 && seen.strides[d] != strides[d])
            return fail_dimension(call, position, "stride", d, seen.strides[d], strides[d]);
    }
    return AOTICACHE_KERNEL_OK;
}

enum { MAX_NDIM = 64 };

/*
 * Computes contiguous strides as PyTorch does: a size of 0 counts as 1. False: the number of elements does not fit into
 * 64 bits.
 */
static bool contiguous_strides(int64_t ndim, const int64_t *sizes, int64_t ret_strides[MAX_NDIM])
{
    int64_t stride = 1;
    for (int64_t d = ndim - 1; d >= 0; d--) {
        ret_strides[d] = stride;
        if (__builtin_mul_overflow(stride, sizes[d] > 1 ? sizes[d] : 1, &stride))
            return false;
    }
    return true;
}

AOTIRuntimeError aoticache_kernel_empty_strided(aoticache_kernel_call *call, size_t position, int32_t dtype,
                                                int64_t ndim, const int64_t *sizes, const int64_t *strides,
                                                void **ret_data)
{
    int64_t contiguous[MAX_NDIM];
    AtenTensorHandle tensor;
    if (ndim < 0 || ndim > MAX_NDIM)
        return aoticache_kernel_fail(call, "output %zu: %lld dimensions; 0 to %d are allowed", position,
                                     (long long)ndim, (int)MAX_NDIM);
    if (strides == NULL) {
        if (!contiguous_strides(ndim, sizes, contiguous))
            return aoticache_kernel_fail(call, "output %zu: the number of elements does not fit into 64 bits",
                                         position);
        strides = contiguous;
    }
    if (aoti_torch_empty_strided(ndim, sizes, strides, dtype, call->device_type, call->device_index, &tensor) != 0)
        return aoticache_kernel_fail_torch(call, "aoti_torch_empty_strided");
    /* Set already: the kernel replaces it. */
    if (call->outputs[position] != NULL)
        aoti_torch_delete_tensor_object(call->outputs[position]);
    call->outputs[position] = tensor;
    if (ret_data == NULL)
        return AOTICACHE_KERNEL_OK;
    return aoticache_kernel_data_of(call, tensor, ret_data);
}

AOTIRuntimeError aoticache_kernel_empty_as(aoticache_kernel_call *call, size_t position, AtenTensorHandle like,
                                           void **ret_data)
{
    aoticache_kernel_tensor seen;
    if (aoticache_kernel_get_tensor(call, like, &seen) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    return aoticache_kernel_empty_by_host(call, position, seen.dtype, seen.ndim, seen.sizes, seen.strides, ret_data);
}
