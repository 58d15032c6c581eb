/*
 * loader/tensor: tensors of the provider of aoti_torch_* functions in this process (loader/loader.h): libtorch or the shim.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_LOADER_TENSOR_H
#define AOTICACHE_LOADER_TENSOR_H

#include "base/base.h"
#include "base/tensor_view.h"
#include "runtime/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Makes a tensor over the caller's memory, on the CPU. data is borrowed until the tensor and all that share its storage
 * are gone. sizes, strides: ndim elements each, strides in elements, NULL for contiguous.
 */
AOTICACHE_API aoticache_status aoticache_tensor_from_blob(void *data, int32_t dtype, int64_t ndim, const int64_t *sizes,
                                                          const int64_t *strides, AtenTensorHandle *ret_tensor,
                                                          aoticache_error *ret_error);
/*
 * Creates a tensor with its own memory, which is not initialized: for the outputs of a fallback.
 *
 * device:   a GPU needs PyTorch in this process.
 * sizes, strides: ndim elements each, strides in elements, NULL for contiguous.
 * ret_view: describes the tensor; may be NULL. Its pointers are borrowed from the tensor.
 * Returns: OK; the caller frees the tensor with aoticache_tensor_free(). INVALID (a size, stride or dtype that does not exist, or
 * a device that the provider does not have), LOAD_FAILED (the shim is not found or incomplete), NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_tensor_new(int32_t dtype, aoticache_device device, int64_t ndim,
                                                    const int64_t *sizes, const int64_t *strides,
                                                    AtenTensorHandle *ret_tensor, aoticache_tensor_view *ret_view,
                                                    aoticache_error *ret_error);
/* Frees the handle of a tensor. NULL is allowed. */
AOTICACHE_API void aoticache_tensor_free(AtenTensorHandle tensor);

/* Describes a tensor (base/tensor_view.h); pointers are borrowed from the tensor. */
AOTICACHE_API aoticache_status aoticache_tensor_get_view(AtenTensorHandle tensor, aoticache_tensor_view *ret_view,
                                                         aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif

#endif
