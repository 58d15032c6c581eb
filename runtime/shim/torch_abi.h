/*
 * shim/torch_abi: what the shim exports in addition to the functions of runtime/abi.h, declared for C.
 *
 * Source: torch/csrc/inductor/aoti_torch/c/shim.h, shim_deprecated.h, generated/c_shim_cpu.h,
 * torch/csrc/stable/c/shim.h of PyTorch 2.13. Names, types and meanings come from PyTorch.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_TORCH_ABI_H
#define AOTICACHE_RUNTIME_SHIM_TORCH_ABI_H

#include "base/base.h"
#include "runtime/abi.h"

#define SHIM_EXPORT AOTICACHE_ABI_EXPORT

/* c10::complex<float> and c10::complex<double> as they are passed by value. */
typedef struct shim_complex64 {
    _Alignas(8) float real;
    float imaginary;
} shim_complex64;
typedef struct shim_complex128 {
    _Alignas(16) double real;
    double imaginary;
} shim_complex128;

/* ---- tensors/constants.c ---- */
#define SHIM_DECLARE_DTYPE(upper, lower, number, bytes) SHIM_EXPORT int32_t aoti_torch_dtype_##lower(void);
AOTICACHE_DTYPE_LIST(SHIM_DECLARE_DTYPE)
#define SHIM_DECLARE_LAYOUT(upper, lower, number) SHIM_EXPORT int32_t aoti_torch_layout_##lower(void);
AOTICACHE_LAYOUT_LIST(SHIM_DECLARE_LAYOUT)
#define SHIM_DECLARE_MEMORY_FORMAT(upper, lower, number) SHIM_EXPORT int32_t aoti_torch_memory_format_##lower(void);
AOTICACHE_MEMORY_FORMAT_LIST(SHIM_DECLARE_MEMORY_FORMAT)
#undef SHIM_DECLARE_DTYPE
#undef SHIM_DECLARE_LAYOUT
#undef SHIM_DECLARE_MEMORY_FORMAT
SHIM_EXPORT int32_t torch_dtype_float8_e8m0fnu(void);
SHIM_EXPORT int32_t torch_dtype_float4_e2m1fn_x2(void);
SHIM_EXPORT size_t aoti_torch_dtype_element_size(int32_t dtype);
SHIM_EXPORT int32_t aoti_torch_device_type_cpu(void);
SHIM_EXPORT int32_t aoti_torch_device_type_cuda(void);
SHIM_EXPORT int32_t aoti_torch_device_type_meta(void);
SHIM_EXPORT int32_t aoti_torch_device_type_xpu(void);
SHIM_EXPORT int32_t aoti_torch_device_type_mps(void);
SHIM_EXPORT int32_t aoti_torch_device_type_privateuse1(void);
SHIM_EXPORT bool aoti_torch_grad_mode_is_enabled(void);
SHIM_EXPORT void aoti_torch_grad_mode_set_enabled(bool enabled);
SHIM_EXPORT AOTITorchError torch_parse_device_string(const char *text, uint32_t *ret_device_type,
                                                     int32_t *ret_device_index);

/* ---- tensors/failure.c ---- */
SHIM_EXPORT void aoti_torch_check(bool condition, const char *function, const char *file, uint32_t line,
                                  const char *message);
SHIM_EXPORT void aoti_torch_warn(const char *function, const char *file, uint32_t line, const char *message);
SHIM_EXPORT const char *torch_exception_get_what(void);
SHIM_EXPORT const char *torch_exception_get_what_without_backtrace(void);

/* ---- proxy_executor.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_proxy_executor_call_function(AOTIProxyExecutorHandle executor, int node,
                                                                   int int_count, int64_t *ints, int tensor_count,
                                                                   AtenTensorHandle *tensors);

/* ---- tensors/tensor.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_empty_strided_pinned(int64_t ndim, const int64_t *sizes, const int64_t *strides,
                                                           int32_t dtype, int32_t device_type, int32_t device_index,
                                                           AtenTensorHandle *ret_tensor);
SHIM_EXPORT AOTITorchError aoti_torch_create_tensor_from_blob_v2(void *data, int64_t ndim, const int64_t *sizes,
                                                                 const int64_t *strides, int64_t storage_offset,
                                                                 int32_t dtype, int32_t device_type,
                                                                 int32_t device_index, AtenTensorHandle *ret_tensor,
                                                                 int32_t layout, const uint8_t *opaque_metadata,
                                                                 int64_t opaque_metadata_size);
SHIM_EXPORT AOTITorchError torch_from_blob(void *data, int64_t ndim, const int64_t *sizes, const int64_t *strides,
                                           int64_t storage_offset, int32_t dtype, int32_t device_type,
                                           int32_t device_index, AtenTensorHandle *ret_tensor, int32_t layout,
                                           const uint8_t *opaque_metadata, int64_t opaque_metadata_size,
                                           void (*deleter)(void *data, void *context), void *context);
SHIM_EXPORT AOTITorchError aoti_torch_new_uninitialized_tensor(AtenTensorHandle *ret_tensor);
SHIM_EXPORT AOTITorchError aoti_torch_assign_tensors(AtenTensorHandle source, AtenTensorHandle destination);
SHIM_EXPORT AOTITorchError aoti_torch_assign_tensors_out(AtenTensorHandle source, AtenTensorHandle *ret_destination);

/* ---- views/views.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch__reinterpret_tensor(AtenTensorHandle self, int64_t ndim, const int64_t *sizes,
                                                          const int64_t *strides, int64_t offset_increment,
                                                          AtenTensorHandle *ret_tensor);
SHIM_EXPORT AOTITorchError aoti_torch_as_strided(AtenTensorHandle self, const int64_t *sizes, const int64_t *strides,
                                                 AtenTensorHandle *ret_tensor);
SHIM_EXPORT AOTITorchError aoti_torch__alloc_from_pool(AtenTensorHandle self, int64_t offset_bytes, int32_t dtype,
                                                       int64_t ndim, const int64_t *sizes, const int64_t *strides,
                                                       AtenTensorHandle *ret_tensor);
SHIM_EXPORT AOTITorchError aoti_torch_view_dtype(AtenTensorHandle self, int32_t dtype, AtenTensorHandle *ret_tensor);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_view_dtype(AtenTensorHandle self, int32_t dtype,
                                                     AtenTensorHandle *ret_tensor);

/* ---- tensors/query.c ---- */
SHIM_EXPORT AOTITorchError torch_get_mutable_data_ptr(AtenTensorHandle tensor, void **ret_data);
SHIM_EXPORT AOTITorchError torch_get_const_data_ptr(AtenTensorHandle tensor, const void **ret_data);
SHIM_EXPORT AOTITorchError aoti_torch_get_storage_size(AtenTensorHandle tensor, int64_t *ret_bytes);
SHIM_EXPORT AOTITorchError aoti_torch_get_storage_numel(AtenTensorHandle tensor, int64_t *ret_numel);
SHIM_EXPORT AOTITorchError aoti_torch_get_size(AtenTensorHandle tensor, int64_t d, int64_t *ret_size);
SHIM_EXPORT AOTITorchError aoti_torch_get_stride(AtenTensorHandle tensor, int64_t d, int64_t *ret_stride);
SHIM_EXPORT AOTITorchError aoti_torch_get_layout(AtenTensorHandle tensor, int32_t *ret_layout);
SHIM_EXPORT AOTITorchError aoti_torch_is_contiguous(AtenTensorHandle tensor, bool *ret_is_contiguous);
SHIM_EXPORT AOTITorchError aoti_torch_is_defined(AtenTensorHandle tensor, bool *ret_is_defined);

/* ---- tensors/copy.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_copy_(AtenTensorHandle self, AtenTensorHandle source, int32_t non_blocking);
SHIM_EXPORT AOTITorchError aoti_torch_tensor_copy_(AtenTensorHandle source, AtenTensorHandle destination);
SHIM_EXPORT AOTITorchError aoti_torch_clone(AtenTensorHandle self, AtenTensorHandle *ret_tensor);
SHIM_EXPORT AOTITorchError aoti_torch_clone_preserve_strides(AtenTensorHandle self, AtenTensorHandle *ret_tensor);
SHIM_EXPORT AOTITorchError aoti_torch_zero_(AtenTensorHandle self);

/* ---- tensors/scalar.c: suffix, type of the value, dtype ---- */
#define SHIM_SCALAR_LIST(X)                     \
    X(float32, float, AOTICACHE_DTYPE_FLOAT32)  \
    X(float64, double, AOTICACHE_DTYPE_FLOAT64) \
    X(uint8, uint8_t, AOTICACHE_DTYPE_UINT8)    \
    X(uint16, uint16_t, AOTICACHE_DTYPE_UINT16) \
    X(uint32, uint32_t, AOTICACHE_DTYPE_UINT32) \
    X(uint64, uint64_t, AOTICACHE_DTYPE_UINT64) \
    X(int8, int8_t, AOTICACHE_DTYPE_INT8)       \
    X(int16, int16_t, AOTICACHE_DTYPE_INT16)    \
    X(int32, int32_t, AOTICACHE_DTYPE_INT32)    \
    X(int64, int64_t, AOTICACHE_DTYPE_INT64)    \
    X(bool, bool, AOTICACHE_DTYPE_BOOL)         \
    X(complex64, shim_complex64, AOTICACHE_DTYPE_COMPLEX64)
#define SHIM_DECLARE_SCALAR(name, type, dtype)                                                   \
    SHIM_EXPORT AOTITorchError aoti_torch_item_##name(AtenTensorHandle tensor, type *ret_value); \
    SHIM_EXPORT AOTITorchError aoti_torch_scalar_to_tensor_##name(type value, AtenTensorHandle *ret_tensor);
SHIM_SCALAR_LIST(SHIM_DECLARE_SCALAR)
#undef SHIM_DECLARE_SCALAR
/* Two more, which exist only in one direction; the bits of c10::Half and c10::BFloat16. */
SHIM_EXPORT AOTITorchError aoti_torch_item_float16(AtenTensorHandle tensor, uint16_t *ret_value);
SHIM_EXPORT AOTITorchError aoti_torch_item_bfloat16(AtenTensorHandle tensor, uint16_t *ret_value);
SHIM_EXPORT AOTITorchError aoti_torch_scalar_to_tensor_complex128(shim_complex128 value, AtenTensorHandle *ret_tensor);

/* ---- math/matmul.c ---- */
SHIM_EXPORT AOTITorchError aoti_torch_cpu_mm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_addmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat1,
                                                    AtenTensorHandle mat2, double beta, double alpha);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_bmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2);
SHIM_EXPORT AOTITorchError aoti_torch_cpu_baddbmm_out(AtenTensorHandle out, AtenTensorHandle self,
                                                      AtenTensorHandle batch1, AtenTensorHandle batch2, double beta,
                                                      double alpha);
/* Older names, without the device. */
SHIM_EXPORT AOTITorchError aoti_torch_mm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2);
SHIM_EXPORT AOTITorchError aoti_torch_bmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2);
SHIM_EXPORT AOTITorchError aoti_torch_addmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat1,
                                                AtenTensorHandle mat2, float beta, float alpha);

#endif
