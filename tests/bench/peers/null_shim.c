/*
 * A provider of aoti_torch_* that does nothing: every tensor is one of two static ones with static memory. A library
 * that runs over it spends its time only in its own code; bench_kernel subtracts that from a run over the real shim.
 *
 * Works for one kind of library: float32[2, 3] in, float32[2, 3] out, no constants.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tensor {
    float *data;
} tensor;

static float memory[2][64];
static tensor input = {memory[0]};
static tensor output = {memory[1]};
static int64_t sizes[] = {2, 3};
static int64_t strides[] = {3, 1};
static bool grad_mode = true;

#define NULL_SHIM __attribute__((visibility("default")))
#define CONSTANT_FUNCTION(type, name, value) \
    NULL_SHIM type name(void);               \
    NULL_SHIM type name(void)                \
    {                                        \
        return value;                        \
    }
#define FUNCTION(name, parameters, body) \
    NULL_SHIM int32_t name parameters;   \
    NULL_SHIM int32_t name parameters    \
    {                                    \
        body;                            \
        return 0;                        \
    }

CONSTANT_FUNCTION(int32_t, aoti_torch_device_type_cpu, 0)
CONSTANT_FUNCTION(int32_t, aoti_torch_device_type_cuda, 1)
CONSTANT_FUNCTION(int32_t, aoti_torch_dtype_float32, 6)
CONSTANT_FUNCTION(int32_t, aoti_torch_layout_strided, 0)
CONSTANT_FUNCTION(uint64_t, aoti_torch_abi_version, 0)
CONSTANT_FUNCTION(bool, aoti_torch_grad_mode_is_enabled, grad_mode)

NULL_SHIM void aoti_torch_grad_mode_set_enabled(bool enabled);
NULL_SHIM void aoti_torch_grad_mode_set_enabled(bool enabled)
{
    grad_mode = enabled;
}

FUNCTION(aoti_torch_delete_tensor_object, (tensor * t), (void)t)
FUNCTION(aoti_torch_new_tensor_handle, (tensor * t, tensor **ret), *ret = t)
FUNCTION(aoti_torch_clone, (tensor * t, tensor **ret), *ret = t)
FUNCTION(aoti_torch_copy_, (tensor * t, tensor *source, int32_t non_blocking), (void)t; (void)source;
         (void)non_blocking)
FUNCTION(aoti_torch_get_data_ptr, (tensor * t, void **ret), *ret = t->data)
FUNCTION(aoti_torch_get_device_type, (tensor * t, int32_t *ret), (void)t; *ret = 0)
FUNCTION(aoti_torch_get_dim, (tensor * t, int64_t *ret), (void)t; *ret = 2)
FUNCTION(aoti_torch_get_dtype, (tensor * t, int32_t *ret), (void)t; *ret = 6)
FUNCTION(aoti_torch_get_numel, (tensor * t, int64_t *ret), (void)t; *ret = 6)
FUNCTION(aoti_torch_get_sizes, (tensor * t, int64_t **ret), (void)t; *ret = sizes)
FUNCTION(aoti_torch_get_strides, (tensor * t, int64_t **ret), (void)t; *ret = strides)
FUNCTION(aoti_torch_get_storage_offset, (tensor * t, int64_t *ret), (void)t; *ret = 0)
FUNCTION(aoti_torch_get_storage_size, (tensor * t, int64_t *ret), (void)t; *ret = 24)
FUNCTION(aoti_torch_create_tensor_from_blob,
         (void *data, int64_t ndim, const int64_t *s, const int64_t *st, int64_t offset, int32_t dtype, int32_t device,
          int32_t index, tensor **ret),
         (void)data;
         (void)ndim; (void)s; (void)st; (void)offset; (void)dtype; (void)device; (void)index; *ret = &input)
FUNCTION(aoti_torch_create_tensor_from_blob_v2,
         (void *data, int64_t ndim, const int64_t *s, const int64_t *st, int64_t offset, int32_t dtype, int32_t device,
          int32_t index, tensor **ret, int32_t layout, const uint8_t *metadata, int64_t metadata_size),
         (void)data;
         (void)ndim; (void)s; (void)st; (void)offset; (void)dtype; (void)device; (void)index; (void)layout;
         (void)metadata; (void)metadata_size; *ret = &input)
FUNCTION(aoti_torch_empty_strided,
         (int64_t ndim, const int64_t *s, const int64_t *st, int32_t dtype, int32_t device, int32_t index,
          tensor **ret),
         (void)ndim;
         (void)s; (void)st; (void)dtype; (void)device; (void)index; *ret = &output)
