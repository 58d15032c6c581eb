/* The kernel that costs nothing, for bench_container: its input becomes its output. */
#include "runtime/kernel.h"

/* The kernel; also called without its container. */
AOTICACHE_ABI_EXPORT AOTIRuntimeError bench_body(aoticache_kernel_call *call);
AOTICACHE_ABI_EXPORT AOTIRuntimeError bench_body(aoticache_kernel_call *call)
{
    call->outputs[0] = call->inputs[0];
    call->inputs[0] = NULL;
    return AOTICACHE_KERNEL_OK;
}

static const char *const inputs[] = {"x"}, *const outputs[] = {"y"};
static const aoticache_kernel kernel = {.size = sizeof kernel,
                                        .device = "cpu",
                                        .num_inputs = 1,
                                        .input_names = inputs,
                                        .num_outputs = 1,
                                        .output_names = outputs,
                                        .run = bench_body};
AOTICACHE_KERNEL_EXPORT(kernel)
