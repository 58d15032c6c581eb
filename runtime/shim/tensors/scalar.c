/*
 * shim/tensors/scalar: single elements: a number out of a tensor, a tensor out of a number.
 *
 * Works as at::Tensor::item() followed by c10::Scalar::to<T>(): a value that does not fit is an error, never a wrapped
 * number; a fraction is cut off.
 */
#include "runtime/shim/tensors/convert.h"
#include "runtime/shim/tensors/small_float.h"
#include "runtime/shim/torch_abi.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* An element as it was read: the class determines the valid member. */
struct scalar {
    enum shim_class kind;
    union {
        int64_t as_int;
        uint64_t as_uint;
        double as_double;
        double as_complex[2];
        double _Complex aligned;
    } value;
};

static AOTITorchError read_item(const char *function, AtenTensorHandle handle, struct scalar *ret_scalar)
{
    SHIM_CHECK_TENSOR(handle);
    SHIM_CHECK_RESULT(ret_scalar);
    const struct shim_tensor *tensor = handle->tensor;
    if (tensor->numel != 1)
        return aoticache_shim_fail("%s: a tensor of %lld elements has no single value", function,
                                   (long long)tensor->numel);
    const struct shim_dtype_access *access = aoticache_shim_dtype_access(tensor->dtype);
    if (access == NULL) {
        char text[SHIM_DTYPE_TEXT_BYTES];
        return aoticache_shim_fail("%s: elements of %s cannot be read as a number", function,
                                   aoticache_shim_dtype_text(tensor->dtype, text));
    }
    enum shim_class kind = (enum shim_class)access->load_class;
    double _Complex loaded;
    access->load(1, &loaded, tensor->data, 0);
    if (kind == SHIM_CLASS_FLOAT)
        kind = SHIM_CLASS_DOUBLE;
    if (kind == SHIM_CLASS_COMPLEX64)
        kind = SHIM_CLASS_COMPLEX128;
    shim_change widen = aoticache_shim_class_change(kind, (enum shim_class)access->load_class);
    ret_scalar->kind = kind;
    if (widen != NULL)
        widen(1, &ret_scalar->value, &loaded);
    else
        memcpy(&ret_scalar->value, &loaded, sizeof loaded);
    return SHIM_SUCCESS;
}

static AOTITorchError fail_range(const char *function)
{
    return aoticache_shim_fail("%s: the value does not fit into the requested type", function);
}

/* Reads an item of any class as a double; an imaginary part that is not zero does not fit. */
static AOTITorchError item_as_double(const char *function, AtenTensorHandle handle, double *ret_value)
{
    struct scalar scalar = {0};
    if (read_item(function, handle, &scalar) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    switch (scalar.kind) {
    case SHIM_CLASS_INT:
        *ret_value = (double)scalar.value.as_int;
        return SHIM_SUCCESS;
    case SHIM_CLASS_UINT:
        *ret_value = (double)scalar.value.as_uint;
        return SHIM_SUCCESS;
    case SHIM_CLASS_COMPLEX128:
        if (scalar.value.as_complex[1] != 0)
            return fail_range(function);
        *ret_value = scalar.value.as_complex[0];
        return SHIM_SUCCESS;
    default:
        *ret_value = scalar.value.as_double;
        return SHIM_SUCCESS;
    }
}

/*
 * Reads an item of any class as an integer between minimum and maximum; a negative one may wrap into an unsigned type,
 * as in PyTorch.
 */
static AOTITorchError item_as_int(const char *function, AtenTensorHandle handle, int64_t minimum, uint64_t maximum,
                                  uint64_t *ret_value)
{
    struct scalar scalar = {0};
    if (read_item(function, handle, &scalar) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    if (scalar.kind == SHIM_CLASS_UINT) {
        if (scalar.value.as_uint > maximum)
            return fail_range(function);
        *ret_value = scalar.value.as_uint;
        return SHIM_SUCCESS;
    }
    if (scalar.kind == SHIM_CLASS_INT) {
        int64_t value = scalar.value.as_int;
        bool fits =
            value >= 0 ? (uint64_t)value <= maximum : (minimum < 0 ? value >= minimum : 0 - (uint64_t)value <= maximum);
        if (!fits)
            return fail_range(function);
        *ret_value = (uint64_t)value;
        return SHIM_SUCCESS;
    }
    double value = scalar.value.as_double; /* also the real part of a complex one */
    if (scalar.kind == SHIM_CLASS_COMPLEX128 && scalar.value.as_complex[1] != 0)
        return fail_range(function);
    /* (double)maximum may round up to a power of two that no longer fits: then the value must be below it. */
    if (!(value >= (double)minimum && value < (double)maximum + (maximum < (UINT64_C(1) << 53) ? 1.0 : 0.0)))
        return fail_range(function);
    *ret_value = value < 0 ? (uint64_t)(int64_t)value : (uint64_t)value;
    return SHIM_SUCCESS;
}

#define DEFINE_INT_ITEM(name, type, minimum, maximum)                                \
    AOTITorchError aoti_torch_item_##name(AtenTensorHandle tensor, type *ret_value)  \
    {                                                                                \
        uint64_t value = 0;                                                          \
        SHIM_CHECK_RESULT(ret_value);                                                \
        if (item_as_int(__func__, tensor, minimum, maximum, &value) != SHIM_SUCCESS) \
            return SHIM_FAILURE;                                                     \
        *ret_value = (type)value;                                                    \
        return SHIM_SUCCESS;                                                         \
    }
DEFINE_INT_ITEM(uint8, uint8_t, 0, UINT8_MAX)
DEFINE_INT_ITEM(uint16, uint16_t, 0, UINT16_MAX)
DEFINE_INT_ITEM(uint32, uint32_t, 0, UINT32_MAX)
DEFINE_INT_ITEM(uint64, uint64_t, 0, UINT64_MAX)
DEFINE_INT_ITEM(int8, int8_t, INT8_MIN, INT8_MAX)
DEFINE_INT_ITEM(int16, int16_t, INT16_MIN, INT16_MAX)
DEFINE_INT_ITEM(int32, int32_t, INT32_MIN, INT32_MAX)
DEFINE_INT_ITEM(int64, int64_t, INT64_MIN, INT64_MAX)

AOTITorchError aoti_torch_item_bool(AtenTensorHandle tensor, bool *ret_value)
{
    struct scalar scalar = {0};
    SHIM_CHECK_RESULT(ret_value);
    if (read_item(__func__, tensor, &scalar) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    switch (scalar.kind) {
    case SHIM_CLASS_INT:
    case SHIM_CLASS_UINT:
        *ret_value = scalar.value.as_uint != 0;
        break;
    case SHIM_CLASS_COMPLEX128:
        *ret_value = scalar.value.as_complex[0] != 0 || scalar.value.as_complex[1] != 0;
        break;
    default:
        *ret_value = scalar.value.as_double != 0;
        break;
    }
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_item_float64(AtenTensorHandle tensor, double *ret_value)
{
    SHIM_CHECK_RESULT(ret_value);
    return item_as_double(__func__, tensor, ret_value);
}

/* Reads an item as float. A finite value larger than the type's largest does not fit; infinity and NaN do. */
static AOTITorchError item_as_float(const char *function, AtenTensorHandle tensor, double largest, float *ret_value)
{
    double value = 0;
    if (item_as_double(function, tensor, &value) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    if (isfinite(value) && fabs(value) > largest)
        return fail_range(function);
    *ret_value = (float)value;
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_item_float32(AtenTensorHandle tensor, float *ret_value)
{
    SHIM_CHECK_RESULT(ret_value);
    return item_as_float(__func__, tensor, FLT_MAX, ret_value);
}

AOTITorchError aoti_torch_item_float16(AtenTensorHandle tensor, uint16_t *ret_value)
{
    float value = 0;
    SHIM_CHECK_RESULT(ret_value);
    if (item_as_float(__func__, tensor, 65504.0, &value) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    *ret_value = float16_of_float(value);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_item_bfloat16(AtenTensorHandle tensor, uint16_t *ret_value)
{
    float value = 0;
    SHIM_CHECK_RESULT(ret_value);
    if (item_as_float(__func__, tensor, 0x1.fep127, &value) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    *ret_value = bfloat16_of_float(value);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_item_complex64(AtenTensorHandle tensor, shim_complex64 *ret_value)
{
    struct scalar scalar = {0};
    double real = 0;
    SHIM_CHECK_RESULT(ret_value);
    if (read_item(__func__, tensor, &scalar) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    if (scalar.kind == SHIM_CLASS_COMPLEX128) {
        *ret_value = (shim_complex64){(float)scalar.value.as_complex[0], (float)scalar.value.as_complex[1]};
        return SHIM_SUCCESS;
    }
    if (item_as_double(__func__, tensor, &real) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    *ret_value = (shim_complex64){(float)real, 0};
    return SHIM_SUCCESS;
}

/* ---- zero-dimensional tensors ---- */

static AOTITorchError tensor_of(const char *function, int32_t dtype, const void *value, AtenTensorHandle *ret_tensor)
{
    SHIM_CHECK_RESULT(ret_tensor);
    AtenTensorHandle tensor;
    if (aoticache_shim_tensor_empty(function, 0, NULL, NULL, dtype, &tensor) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    memcpy(tensor->tensor->data, value, tensor->tensor->item_bytes);
    *ret_tensor = tensor;
    return SHIM_SUCCESS;
}

#define DEFINE_SCALAR_TO_TENSOR(name, type, dtype)                                              \
    AOTITorchError aoti_torch_scalar_to_tensor_##name(type value, AtenTensorHandle *ret_tensor) \
    {                                                                                           \
        return tensor_of(__func__, dtype, &value, ret_tensor);                                  \
    }
SHIM_SCALAR_LIST(DEFINE_SCALAR_TO_TENSOR)

AOTITorchError aoti_torch_scalar_to_tensor_complex128(shim_complex128 value, AtenTensorHandle *ret_tensor)
{
    return tensor_of(__func__, AOTICACHE_DTYPE_COMPLEX128, &value, ret_tensor);
}
