/*
 * loader/runner/host (runner_hot.h): the functions that plain kernels get from the process that runs them (runtime/kernel.h).
 * They are the functions of the provider of aoti_torch_*, until aoticache_runner_set_host() sets cheaper ones.
 */
#include "loader/loader.h"
#include "loader/runner/runner_internal.h"

_Atomic(const aoticache_kernel_host *) aoticache_runner_host;

static const aoticache_torch *provider; /* set before host_of_provider is published */

static AOTITorchError provider_get_data_ptr(AtenTensorHandle tensor, void **ret_data)
{
    return provider->aoti_torch_get_data_ptr(tensor, ret_data);
}

static AOTITorchError provider_empty_strided(int64_t ndim, const int64_t *sizes, const int64_t *strides, int32_t dtype,
                                             AtenTensorHandle *ret_tensor, void **ret_data)
{
    AtenTensorHandle made;
    AOTITorchError code =
        provider->aoti_torch_empty_strided(ndim, sizes, strides, dtype, AOTICACHE_DEVICE_TYPE_CPU, -1, &made);
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
    __atomic_store_n(&provider, torch, __ATOMIC_RELAXED); /* the process has one provider; all threads store the same */
    atomic_compare_exchange_strong(&aoticache_runner_host, &none, &host_of_provider);
}

void aoticache_runner_set_host(const aoticache_kernel_host *host)
{
    atomic_store(&aoticache_runner_host, host);
}
