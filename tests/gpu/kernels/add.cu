/*
 * A kernel library in CUDA C++, as an author writes one: the sum of two float32 vectors and a constant, on the stream
 * that the host gives. The constant is in device memory, where the container has copied it, and can be updated.
 */
#include "runtime/kernel.h"

#include <cuda_runtime.h>

__global__ static void add(const float *a, const float *b, const float *offset, float *sum, int64_t count)
{
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < count)
        sum[i] = a[i] + b[i] + *offset;
}

static AOTIRuntimeError launch(aoticache_kernel_call *call, const aoticache_kernel_tensor *a,
                               const aoticache_kernel_tensor *b, const float *offset, float *sum)
{
    const unsigned threads = 256;
    int64_t blocks = (a->numel + threads - 1) / threads;
    if (blocks > INT32_MAX)
        return aoticache_kernel_fail(call, "%lld elements are too many", (long long)a->numel);
    if (blocks > 0)
        add<<<(unsigned)blocks, threads, 0, (cudaStream_t)call->stream>>>(
            (const float *)a->data, (const float *)b->data, offset, sum, a->numel);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess)
        return aoticache_kernel_fail(call, "the kernel does not start: error %d: %s", (int)error,
                                     cudaGetErrorString(error));
    return AOTICACHE_KERNEL_OK;
}

static bool is_vector(const aoticache_kernel_tensor *tensor)
{
    return tensor->dtype == AOTICACHE_DTYPE_FLOAT32 && tensor->ndim == 1 &&
           (tensor->sizes[0] <= 1 || tensor->strides[0] == 1);
}

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    aoticache_kernel_tensor a, b;
    float *offset, *sum;
    if (aoticache_kernel_get_tensor(call, call->inputs[0], &a) != 0 ||
        aoticache_kernel_get_tensor(call, call->inputs[1], &b) != 0 ||
        aoticache_kernel_data(call, call->constants[0], &offset) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    if (!is_vector(&a) || !is_vector(&b) || a.numel != b.numel)
        return aoticache_kernel_fail(call, "the inputs are not two float32 vectors of the same size");
    if (aoticache_kernel_empty_like(call, 0, call->inputs[0], &sum) != 0)
        return AOTICACHE_KERNEL_FAILURE;
    return launch(call, &a, &b, offset, sum);
}

static const float offset_data[1] = {0.5f};
static const int64_t one[] = {1};
static const aoticache_kernel_constant constants[] = {{
    .name = "offset", .original_fqn = "offset", .dtype = AOTICACHE_DTYPE_FLOAT32, .ndim = 1, .sizes = one,
    .strides = one, .data_size = sizeof offset_data, .type = AOTICACHE_KERNEL_CONSTANT_PARAMETER, .data = offset_data,
}};
static const char *const inputs[] = {"a", "b"}, *const outputs[] = {"sum"};
static const aoticache_kernel kernel = {
    .size = sizeof kernel, .device = "cuda", .num_inputs = 2, .input_names = inputs, .num_outputs = 1,
    .output_names = outputs, .num_constants = 1, .constants = constants, .run = run,
};
AOTICACHE_KERNEL_EXPORT(kernel)
