/*
 * eager/torch/executor/executor: a library by which PyTorch creates a proxy executor, and which hands it out.
 *
 * A model that calls operators by name needs PyTorch's proxy executor (torch::aot_inductor::OSSProxyExecutor). PyTorch exports
 * neither its class nor a function that creates one. Only its own runner (AOTIModelContainerRunner) creates it, from the JSON file
 * next to a library, and passes it to each run of that library. This is such a library: it exports the functions that the runner
 * looks for, has no inputs, outputs or constants, and remembers the executor of its last run on this thread.
 *
 * aoticache/_models/proxy_executor.py puts a link to it next to a link to the model's JSON file, makes PyTorch load it, runs it
 * once, and gets the executor. That lives as long as PyTorch's runner. The library is loaded only in processes with PyTorch, and
 * has no dependencies.
 */
#include "runtime/abi.h"

/* Sources: torch/csrc/inductor/aoti_runner/model_container_runner.h and .cpp, PyTorch 2.13. */
#define SUCCESS 0
#define FAILURE 1

static _Thread_local AOTIProxyExecutorHandle taken;
static char container; /* something to point to */

AOTICACHE_ABI_EXPORT AOTIProxyExecutorHandle aoticache_executor_taken(void);
AOTIProxyExecutorHandle aoticache_executor_taken(void)
{
    return taken;
}

AOTIRuntimeError AOTInductorModelContainerCreateWithDevice(AOTInductorModelContainerHandle *ret_container,
                                                           size_t num_models, const char *device, const char *cubin_dir)
{
    (void)num_models, (void)device, (void)cubin_dir;
    *ret_container = (AOTInductorModelContainerHandle)&container;
    return SUCCESS;
}

AOTIRuntimeError AOTInductorModelContainerDelete(AOTInductorModelContainerHandle made)
{
    (void)made;
    return SUCCESS;
}

AOTIRuntimeError AOTInductorModelContainerGetNumOutputs(AOTInductorModelContainerHandle made, size_t *ret_num_outputs)
{
    (void)made;
    *ret_num_outputs = 0;
    return SUCCESS;
}

AOTIRuntimeError AOTInductorModelContainerGetNumConstants(AOTInductorModelContainerHandle made,
                                                          size_t *ret_num_constants)
{
    (void)made;
    *ret_num_constants = 0;
    return SUCCESS;
}

AOTIRuntimeError AOTInductorModelContainerRun(AOTInductorModelContainerHandle made, AtenTensorHandle *inputs,
                                              size_t num_inputs, AtenTensorHandle *outputs, size_t num_outputs,
                                              AOTInductorStreamHandle stream, AOTIProxyExecutorHandle proxy_executor)
{
    (void)made, (void)inputs, (void)num_inputs, (void)outputs, (void)num_outputs, (void)stream;
    taken = proxy_executor;
    return SUCCESS;
}

/* ---- functions that the runner looks for and never calls here ---- */

static __attribute__((used)) AOTIRuntimeError refuse(void)
{
    return FAILURE;
}

#ifndef __clang__ /* Clang has no such warning */
#pragma GCC diagnostic ignored "-Wattribute-alias"
#endif
#define REFUSE(name) extern __typeof__(name) name __attribute__((alias("refuse")));
REFUSE(AOTInductorModelContainerRunSingleThreaded)
REFUSE(AOTInductorModelContainerGetConstantName)
REFUSE(AOTInductorModelContainerGetConstantOriginalFQN)
REFUSE(AOTInductorModelContainerGetConstantDtype)
REFUSE(AOTInductorModelContainerExtractConstantsMap)
REFUSE(AOTInductorModelContainerUpdateUserManagedConstantBuffer)
REFUSE(AOTInductorModelContainerUpdateConstantBuffer)
REFUSE(AOTInductorModelContainerUpdateConstantBufferFromCpu)
REFUSE(AOTInductorModelContainerUpdateInactiveConstantBuffer)
REFUSE(AOTInductorModelContainerRunConstantFolding)
REFUSE(AOTInductorModelContainerSwapConstantBuffer)
REFUSE(AOTInductorModelContainerFreeInactiveConstantBuffer)
REFUSE(AOTInductorModelContainerGetCallSpec)
REFUSE(AOTInductorModelContainerGetConstantsBlobSize)
REFUSE(AOTInductorModelUpdateConstantsFromBlob)
REFUSE(AOTInductorGetLastError)
