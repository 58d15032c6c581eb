/* y = |x|, for float32 of any shape without gaps, as a kernel library in C: no constants. */
#include "runtime/kernel.h"

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    aoticache_kernel_tensor x;
    float *y;
    if (aoticache_kernel_get_tensor(call, call->inputs[0], &x) != 0 ||
        aoticache_kernel_empty_like(call, 0, call->inputs[0], &y) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    const float *from = x.data;
    for (int64_t i = 0; i < x.numel; i++)
        y[i] = from[i] < 0 ? -from[i] : from[i];
    return AOTICACHE_KERNEL_OK;
}

static const char *const inputs[] = {"x"}, *const outputs[] = {"y"};
static const aoticache_kernel kernel = {
    .size = sizeof kernel,
    .device = "cpu",
    .num_inputs = 1,
    .input_names = inputs,
    .num_outputs = 1,
    .output_names = outputs,
    .in_spec = "in",
    .out_spec = "out",
    .run = run,
    .plain = true,
};
AOTICACHE_KERNEL_EXPORT(kernel)
