/*
 * shim/tensors/constants: the numbers of dtypes, devices, layouts and memory formats, the version, the gradient mode.
 */
#include "base/names.h"
#include "runtime/shim/tensors/tensor.h"
#include "runtime/shim/torch_abi.h"

/* aoti_torch_dtype_float32() and so on. */
#define DEFINE_DTYPE(upper, lower, number, bytes) \
    int32_t aoti_torch_dtype_##lower(void)        \
    {                                             \
        return number;                            \
    }
AOTICACHE_DTYPE_LIST(DEFINE_DTYPE)
#undef DEFINE_DTYPE

int32_t torch_dtype_float8_e8m0fnu(void)
{
    return AOTICACHE_DTYPE_FLOAT8_E8M0FNU;
}

int32_t torch_dtype_float4_e2m1fn_x2(void)
{
    return AOTICACHE_DTYPE_FLOAT4_E2M1FN_X2;
}

size_t aoti_torch_dtype_element_size(int32_t dtype)
{
    return shim_item_bytes(dtype);
}

/* The last one is called "privateuseone" in the list, but the function's name is different. */
#define SHIM_DEVICE_NAME_cpu aoti_torch_device_type_cpu
#define SHIM_DEVICE_NAME_cuda aoti_torch_device_type_cuda
#define SHIM_DEVICE_NAME_xpu aoti_torch_device_type_xpu
#define SHIM_DEVICE_NAME_mps aoti_torch_device_type_mps
#define SHIM_DEVICE_NAME_meta aoti_torch_device_type_meta
#define SHIM_DEVICE_NAME_privateuseone aoti_torch_device_type_privateuse1
#define DEFINE_DEVICE_TYPE(upper, lower, number) \
    int32_t SHIM_DEVICE_NAME_##lower(void)       \
    {                                            \
        return number;                           \
    }
AOTICACHE_DEVICE_TYPE_LIST(DEFINE_DEVICE_TYPE)
#undef DEFINE_DEVICE_TYPE

/* aoti_torch_layout_strided() ... aoti_torch_layout__mkldnn(). */
#define DEFINE_LAYOUT(upper, lower, number) \
    int32_t aoti_torch_layout_##lower(void) \
    {                                       \
        return number;                      \
    }
AOTICACHE_LAYOUT_LIST(DEFINE_LAYOUT)
#undef DEFINE_LAYOUT

#define DEFINE_MEMORY_FORMAT(upper, lower, number) \
    int32_t aoti_torch_memory_format_##lower(void) \
    {                                              \
        return number;                             \
    }
AOTICACHE_MEMORY_FORMAT_LIST(DEFINE_MEMORY_FORMAT)
#undef DEFINE_MEMORY_FORMAT

/* The release whose interface this is, as PyTorch encodes it: major, minor and patch in the upper three bytes. */
uint64_t aoti_torch_abi_version(void)
{
    return (UINT64_C(2) << 56) | (UINT64_C(13) << 48);
}

/*
 * Gradient mode. Nothing here computes gradients; the mode that is set is read back, per thread, on at first.
 * Initial-exec as in free_lists.h: every run of a kernel reads it once and sets it twice.
 */
static __thread bool grad_mode_off __attribute__((tls_model("initial-exec")));

bool aoti_torch_grad_mode_is_enabled(void)
{
    return !grad_mode_off;
}

void aoti_torch_grad_mode_set_enabled(bool enabled)
{
    grad_mode_off = !enabled;
}

AOTITorchError torch_parse_device_string(const char *text, uint32_t *ret_device_type, int32_t *ret_device_index)
{
    SHIM_CHECK_RESULT(ret_device_type);
    SHIM_CHECK_RESULT(ret_device_index);
    aoticache_device device;
    if (aoticache_device_parse(text, &device) != AOTICACHE_OK)
        return aoticache_shim_fail("%s: '%s' is not a device such as \"cpu\" or \"cuda:0\"", __func__,
                                   text != NULL ? text : "NULL");
    *ret_device_type = (uint32_t)device.type;
    *ret_device_index = device.index;
    return SHIM_SUCCESS;
}
