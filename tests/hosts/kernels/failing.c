/* A kernel library in C that fails in every run, after it has made its result, with a message that names its input. */
#include "runtime/kernel.h"

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    if (aoticache_kernel_empty_like(call, 0, call->inputs[0], (void **)NULL) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    return aoticache_kernel_fail(call, "input %s is refused, on purpose", call->kernel->input_names[0]);
}

static const char *const inputs[] = {"x"}, *const outputs[] = {"y"};
static const aoticache_kernel kernel = {
    .size = sizeof kernel,
    .device = "cpu",
    .num_inputs = 1,
    .input_names = inputs,
    .num_outputs = 1,
    .output_names = outputs,
    .run = run,
};
AOTICACHE_KERNEL_EXPORT(kernel)
