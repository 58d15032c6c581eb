/* Sum and greatest element, for float32 of any shape without gaps, as a kernel library in C: two results. */
#include "runtime/kernel.h"

#include <math.h>

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    aoticache_kernel_tensor x;
    float *sum, *greatest;
    if (aoticache_kernel_get_tensor(call, call->inputs[0], &x) != 0 ||
        aoticache_kernel_empty(call, 0, AOTICACHE_DTYPE_FLOAT32, 0, NULL, NULL, &sum) != 0 ||
        aoticache_kernel_empty(call, 1, AOTICACHE_DTYPE_FLOAT32, 0, NULL, NULL, &greatest) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    const float *from = x.data;
    *sum = 0;
    *greatest = -INFINITY;
    for (int64_t i = 0; i < x.numel; i++) {
        *sum += from[i];
        *greatest = from[i] > *greatest ? from[i] : *greatest;
    }
    return AOTICACHE_KERNEL_OK;
}

static const char *const inputs[] = {"x"}, *const outputs[] = {"sum", "greatest"};
static const aoticache_kernel kernel = {
    .size = sizeof kernel,
    .device = "cpu",
    .num_inputs = 1,
    .input_names = inputs,
    .num_outputs = 2,
    .output_names = outputs,
    .run = run,
};
AOTICACHE_KERNEL_EXPORT(kernel)
