/*
 * base/tensor_view: describes a tensor, whichever library owns it.
 *
 * Users include <aoticache.h>.
 */
#ifndef AOTICACHE_BASE_TENSOR_VIEW_H
#define AOTICACHE_BASE_TENSOR_VIEW_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are borrowed from the tensor. */
typedef struct aoticache_tensor_view {
    void *data; /* of the first element: the storage offset is included */
    int32_t dtype;
    aoticache_device device;
    int64_t ndim, numel;
    const int64_t *sizes;
    const int64_t *strides;
    int32_t layout;            /* aoticache_layout */
    bool requires_grad;        /* known only to bindings; aoticache_tensor_get_view() sets false and 0, because the C */
    uint64_t dispatch_key_set; /* interface of PyTorch does not provide them. PyTorch's raw representation. */
    struct AtenTensorOpaque *handle; /* an AtenTensorHandle: the tensor itself, as runners take it; borrowed */
} aoticache_tensor_view;

/* An empty view, to be filled in: the same in C and in C++. */
#define AOTICACHE_TENSOR_VIEW_INIT {NULL, 0, {0, 0}, 0, 0, NULL, NULL, 0, false, 0, NULL}

#ifdef __cplusplus
}
#endif
#endif
