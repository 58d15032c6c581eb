/*
 * shim/image_abi: what matmul.c beyond torch_abi.h, convolution.c and pooling.c export, declared for C.
 *
 * Source: torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h of PyTorch 2.13. Names, types and meanings are
 * PyTorch's.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_IMAGE_ABI_H
#define AOTICACHE_RUNTIME_SHIM_MATH_IMAGE_ABI_H

#include "runtime/shim/torch_abi.h"

/* ---- matmul.c: those that make their result ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_addmv(AtenTensorHandle self, AtenTensorHandle mat, AtenTensorHandle vec,
                                                double beta, double alpha, AtenTensorHandle *ret_tensor);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_addbmm(AtenTensorHandle self, AtenTensorHandle batch1,
                                                 AtenTensorHandle batch2, double beta, double alpha,
                                                 AtenTensorHandle *ret_tensor);

/* ---- convolution.c ---- */
/* bias: NULL, or the place of the handle. */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_convolution(
    AtenTensorHandle input, AtenTensorHandle weight, AtenTensorHandle *bias, const int64_t *stride,
    int64_t stride_count, const int64_t *padding, int64_t padding_count, const int64_t *dilation, int64_t dilation_count, int32_t transposed,
    const int64_t *output_padding, int64_t output_padding_count, int64_t groups, AtenTensorHandle *ret_tensor);

/* ---- pooling.c ---- */
/* An empty stride is the kernel's size; divisor_override may be NULL. */
#define SHIM_DECLARE_POOLING(axes)                                                                                     \
    SHIM_EXPORT AOTITorchError aoti_torch_cpu_max_pool##axes##d_with_indices(                                          \
        AtenTensorHandle self, const int64_t *kernel_size, int64_t kernel_count, const int64_t *stride,                \
        int64_t stride_count, const int64_t *padding, int64_t padding_count, const int64_t *dilation,                  \
        int64_t dilation_count, int32_t ceil_mode, AtenTensorHandle *ret_output, AtenTensorHandle *ret_indices);       \
    SHIM_EXPORT AOTITorchError aoti_torch_cpu_avg_pool##axes##d(                                                       \
        AtenTensorHandle self, const int64_t *kernel_size, int64_t kernel_count, const int64_t *stride,                \
        int64_t stride_count, const int64_t *padding, int64_t padding_count, int32_t ceil_mode,                        \
        int32_t count_include_pad, int64_t *divisor_override, AtenTensorHandle *ret_output);                           \
    SHIM_EXPORT AOTITorchError aoti_torch_cpu__adaptive_avg_pool##axes##d(                                             \
        AtenTensorHandle self, const int64_t *output_size, int64_t output_size_count, AtenTensorHandle *ret_output);   \
    SHIM_EXPORT AOTITorchError aoti_torch_cpu_adaptive_max_pool##axes##d(                                              \
        AtenTensorHandle self, const int64_t *output_size, int64_t output_size_count, AtenTensorHandle *ret_output,    \
        AtenTensorHandle *ret_indices);                                                                                \
    SHIM_EXPORT AOTITorchError aoti_torch_cpu_fractional_max_pool##axes##d(                                            \
        AtenTensorHandle self, const int64_t *kernel_size, int64_t kernel_count, const int64_t *output_size,           \
        int64_t output_size_count, AtenTensorHandle random_samples, AtenTensorHandle *ret_output,                      \
        AtenTensorHandle *ret_indices);
SHIM_DECLARE_POOLING(2)
SHIM_DECLARE_POOLING(3)
#undef SHIM_DECLARE_POOLING

#endif
