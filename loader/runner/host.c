/*
 * loader/runner/host (hot.h): the functions that plain kernels get of the process that runs them (runtime/kernel.h). Those of the
 * provider of aoti_torch_*, until somebody brings nearer ones.
 */
#include "loader/runner/internal.h"

_Atomic(const aoticache_kernel_host *) aoticache_runner_host;

static const aoticache_torch *provider; /* set before host_of_provider is published */

static AOTITorchError provider_get_data_ptr(AtenTensorHandle tensor, void **ret_data)
{
    return provider->aoti_torch_get_data_ptr(tensor, ret_data);
}

enum { MAX_NDIM = 64 };

/* As PyTorch counts: a dimension of size 0 is taken for 1. False: the sizes make more elements than 64 bits count. */
static bool fill_contiguous(int64_t ndim, const int64_t *sizes, int64_t *ret_strides)
{
    int64_t stride = 1;
    for (int64_t d = ndim - 1; d >= 0; d--) {
        ret_strides[d] = stride;
        if (__builtin_mul_overflow(stride, sizes[d] > 1 ? sizes[d] : 1, &stride))
            return false;
    }
    return true;
}

static AOTITorchError provider_empty_strided(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                                             AtenTensorHandle *ret_tensor, void **ret_data)
{
    int64_t contiguous[MAX_NDIM];
    AtenTensorHandle made;
    if (strides == NULL) {
        if (ndim < 0 || ndim > MAX_NDIM || !fill_contiguous(ndim, sizes, contiguous))
            return 1;
        strides = contiguous;
    }
    AOTITorchError code = provider->aoti_torch_empty_strided(ndim, sizes, strides, dtype, AOTICACHE_DEVICE_TYPE_CPU, -1,
                                                             &made);
    if (code != 0)
        return code;
    code = provider->aoti_torch_get_data_ptr(made, ret_data);
    if (code == 0)
        *ret_tensor = made;
    else
        provider->aoti_torch_delete_tensor_object(made);
    return code;
}

static const aoticache_kernel_host host_of_provider = {.get_data_ptr = provider_get_data_ptr,
                                                       .empty_strided = provider_empty_strided};

void aoticache_runner_prepare_host(const aoticache_torch *torch)
{
    const aoticache_kernel_host *none = NULL;
    if (atomic_load(&aoticache_runner_host) != NULL)
        return;
    __atomic_store_n(&provider, torch, __ATOMIC_RELAXED); /* the process has one; others store the same */
    atomic_compare_exchange_strong(&aoticache_runner_host, &none, &host_of_provider);
}

void aoticache_runner_set_host(const aoticache_kernel_host *host)
{
    atomic_store(&aoticache_runner_host, host);
}
