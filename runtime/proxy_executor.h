/*
 * runtime/proxy_executor: what an AOTIProxyExecutorHandle points to in a process without PyTorch: the contract between
 * the shim, which exports aoti_torch_proxy_executor_call_function(), and the host, which knows operators by name.
 *
 * In a process with PyTorch the handle is PyTorch's own torch::aot_inductor::ProxyExecutor. Private.
 */
#ifndef AOTICACHE_RUNTIME_PROXY_EXECUTOR_H
#define AOTICACHE_RUNTIME_PROXY_EXECUTOR_H

#include "base/base.h"
#include "runtime/abi.h"

/* The arguments of a call: the inputs, flattened, then a handle for each tensor among the outputs. */
typedef struct aoticache_proxy_call {
    int node;
    int int_count, tensor_count;
    const int64_t *ints;
    const AtenTensorHandle *tensors;
    /* Makes destination, a handle of an output, refer to source's tensor: aoti_torch_assign_tensors(). */
    AOTITorchError (*assign)(AtenTensorHandle source, AtenTensorHandle destination);
} aoticache_proxy_call;

struct AOTIProxyExecutorOpaque {
    /* Runs a call; called from any thread, also concurrently. */
    aoticache_status (*run)(AOTIProxyExecutorHandle executor, const aoticache_proxy_call *call,
                            aoticache_error *ret_error);
};

#endif
