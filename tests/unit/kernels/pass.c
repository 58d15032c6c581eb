/* A kernel library for test_device.c: its input becomes its output, on any device. */
#include "runtime/kernel.h"

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    if (call->device_type != AOTICACHE_DEVICE_TYPE_CUDA || call->device_index != 1)
        return aoticache_kernel_fail(call, "device %d:%d", (int)call->device_type, (int)call->device_index);
    call->outputs[0] = call->inputs[0];
    call->inputs[0] = NULL;
    return AOTICACHE_KERNEL_OK;
}

static const char *const inputs[] = {"x"}, *const outputs[] = {"y"};
static const aoticache_kernel kernel = {.size = sizeof kernel,
                                        .device = "cuda",
                                        .num_inputs = 1,
                                        .input_names = inputs,
                                        .num_outputs = 1,
                                        .output_names = outputs,
                                        .run = run};
AOTICACHE_KERNEL_EXPORT(kernel)
