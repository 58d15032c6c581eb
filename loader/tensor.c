/*
 * loader/tensor: makes, describes and frees tensors through the provider of this process.
 */
#include "base/arguments.h"
#include "base/names.h"
#include "loader/loader.h"

#include <errno.h>
#include <string.h>

/* PyTorch's own limit on dimensions (c10/core/TensorImpl.h asserts it for many operations). */
#define MAX_DIMS 64

/* Counts the elements and fills in contiguous strides. Refuses sizes whose products do not fit. */
static aoticache_status complete_shape(int64_t ndim, const int64_t *sizes, const int64_t *strides, size_t item_size,
                                       int64_t *contiguous, int64_t *ret_numel, aoticache_error *ret_error)
{
    int64_t numel = 1, step = 1;
    int64_t bytes;
    for (int64_t i = ndim - 1; i >= 0; i--) {
        if (sizes[i] < 0)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "dimension %lld of a tensor has size %lld",
                                       (long long)i, (long long)sizes[i]);
        if (strides != NULL && strides[i] < 0)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "dimension %lld of a tensor has stride %lld",
                                       (long long)i, (long long)strides[i]);
        contiguous[i] = step;
        if (__builtin_mul_overflow(numel, sizes[i], &numel) ||
            __builtin_mul_overflow(step, sizes[i] > 0 ? sizes[i] : 1, &step))
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "a tensor has more than 2^63 elements");
    }
    if (__builtin_mul_overflow(numel, (int64_t)item_size, &bytes))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "a tensor has more than 2^63 bytes");
    *ret_numel = numel;
    return AOTICACHE_OK;
}

/* Checks the dtype and the sizes, counts the elements, and fills in contiguous strides if there are none. */
static aoticache_status check_shape(int32_t dtype, int64_t ndim, const int64_t *sizes, const int64_t *strides,
                                    int64_t *ret_contiguous, int64_t *ret_numel, aoticache_error *ret_error)
{
    if (ndim < 0 || ndim > MAX_DIMS)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "a tensor must have 0 to %d dimensions, not %lld",
                                   MAX_DIMS, (long long)ndim);
    size_t item_size = aoticache_dtype_size(dtype);
    if (item_size == 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "unknown dtype %d", (int)dtype);
    return complete_shape(ndim, sizes, strides, item_size, ret_contiguous, ret_numel, ret_error);
}

aoticache_status aoticache_tensor_from_blob(void *data, int32_t dtype, int64_t ndim, const int64_t *sizes,
                                            const int64_t *strides, AtenTensorHandle *ret_tensor,
                                            aoticache_error *ret_error)
{
    if (ret_tensor == NULL || (ndim > 0 && sizes == NULL))
        return AOTICACHE_REFUSE_NULL(ret_error, ret_tensor, sizes);
    int64_t contiguous[MAX_DIMS] = {0}, numel = 0;
    aoticache_status status = check_shape(dtype, ndim, sizes, strides, contiguous, &numel, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (data == NULL && numel > 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "aoticache_tensor_from_blob: data is NULL, but the tensor has %lld elements",
                                   (long long)numel);
    const aoticache_torch *torch;
    status = aoticache_torch_get(&torch, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    AtenTensorHandle tensor = NULL;
    errno = 0;
    AOTITorchError code = torch->aoti_torch_create_tensor_from_blob(
        data, ndim, sizes, strides != NULL ? strides : contiguous, 0, dtype, AOTICACHE_DEVICE_TYPE_CPU, 0, &tensor);
    if (code != 0 || tensor == NULL)
        return aoticache_error_set(ret_error, errno == ENOMEM ? AOTICACHE_NO_MEMORY : AOTICACHE_INVALID,
                                   "aoti_torch_create_tensor_from_blob returned %d", (int)code);
    *ret_tensor = tensor;
    return AOTICACHE_OK;
}

aoticache_status aoticache_tensor_new(int32_t dtype, aoticache_device device, int64_t ndim, const int64_t *sizes,
                                      const int64_t *strides, AtenTensorHandle *ret_tensor,
                                      aoticache_tensor_view *ret_view, aoticache_error *ret_error)
{
    if (ret_tensor == NULL || (ndim > 0 && sizes == NULL))
        return AOTICACHE_REFUSE_NULL(ret_error, ret_tensor, sizes);
    int64_t contiguous[MAX_DIMS] = {0}, numel = 0;
    aoticache_status status = check_shape(dtype, ndim, sizes, strides, contiguous, &numel, ret_error);
    const aoticache_torch *torch;
    if (status == AOTICACHE_OK)
        status = aoticache_torch_get(&torch, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    AtenTensorHandle tensor = NULL;
    errno = 0;
    AOTITorchError code =
        torch->aoti_torch_empty_strided(ndim, sizes, strides != NULL ? strides : contiguous, dtype, device.type,
                                        device.type == AOTICACHE_DEVICE_TYPE_CPU ? 0 : device.index, &tensor);
    if (code != 0 || tensor == NULL)
        return aoticache_error_set(ret_error, errno == ENOMEM ? AOTICACHE_NO_MEMORY : AOTICACHE_INVALID,
                                   "aoti_torch_empty_strided returned %d", (int)code);
    if (ret_view != NULL)
        status = aoticache_tensor_get_view(tensor, ret_view, ret_error);
    if (status != AOTICACHE_OK)
        aoticache_tensor_free(tensor);
    else
        *ret_tensor = tensor;
    return status;
}

void aoticache_tensor_free(AtenTensorHandle tensor)
{
    const aoticache_torch *torch;
    if (tensor != NULL && aoticache_torch_get(&torch, NULL) == AOTICACHE_OK)
        torch->aoti_torch_delete_tensor_object(tensor);
}

/* Reads a tensor. Returns the name of the function that failed, NULL if none did. */
static const char *read_view(const aoticache_torch *torch, AtenTensorHandle tensor, aoticache_tensor_view *view)
{
    int64_t *sizes = NULL, *strides = NULL;
    if (torch->aoti_torch_get_data_ptr(tensor, &view->data) != 0)
        return "aoti_torch_get_data_ptr";
    if (torch->aoti_torch_get_dtype(tensor, &view->dtype) != 0)
        return "aoti_torch_get_dtype";
    if (torch->aoti_torch_get_device_type(tensor, &view->device.type) != 0)
        return "aoti_torch_get_device_type";
    if (torch->aoti_torch_get_device_index(tensor, &view->device.index) != 0)
        return "aoti_torch_get_device_index";
    if (torch->aoti_torch_get_dim(tensor, &view->ndim) != 0)
        return "aoti_torch_get_dim";
    if (torch->aoti_torch_get_numel(tensor, &view->numel) != 0)
        return "aoti_torch_get_numel";
    if (torch->aoti_torch_get_sizes(tensor, &sizes) != 0)
        return "aoti_torch_get_sizes";
    if (torch->aoti_torch_get_strides(tensor, &strides) != 0)
        return "aoti_torch_get_strides";
    view->sizes = sizes;
    view->strides = strides;
    view->handle = tensor;
    return NULL;
}

aoticache_status aoticache_tensor_get_view(AtenTensorHandle tensor, aoticache_tensor_view *ret_view,
                                           aoticache_error *ret_error)
{
    if (tensor == NULL || ret_view == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, tensor, ret_view);
    const aoticache_torch *torch;
    aoticache_status status = aoticache_torch_get(&torch, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_tensor_view view = {0};
    const char *failed = read_view(torch, tensor, &view);
    if (failed != NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s failed for this tensor", failed);
    *ret_view = view;
    return AOTICACHE_OK;
}
