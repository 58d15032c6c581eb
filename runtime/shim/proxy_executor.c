/*
 * shim/proxy_executor: passes calls of operators that the shim lacks to the host's proxy executor
 * (runtime/proxy_executor.h).
 *
 * Source: aoti_torch_proxy_executor_call_function, torch/csrc/inductor/aoti_torch/c/shim.h.
 */
#include "runtime/proxy_executor.h"
#include "runtime/shim/tensors/tensor.h"
#include "runtime/shim/torch_abi.h"

AOTITorchError aoti_torch_proxy_executor_call_function(AOTIProxyExecutorHandle executor, int node, int int_count,
                                                       int64_t *ints, int tensor_count, AtenTensorHandle *tensors)
{
    const aoticache_proxy_call call = {.node = node,
                                       .int_count = int_count,
                                       .tensor_count = tensor_count,
                                       .ints = ints,
                                       .tensors = tensors,
                                       .assign = aoti_torch_assign_tensors};
    aoticache_error error = {.message = ""};
    if (executor == NULL)
        return aoticache_shim_fail("the runner has no proxy executor for the operators that the model calls by "
                                   "name: load the model as a package");
    if (executor->run(executor, &call, &error) != AOTICACHE_OK)
        return aoticache_shim_fail("%s", error.message);
    return SHIM_SUCCESS;
}
