/*
 * shim/tensors/copy: copies between tensors of any dtype, shape (broadcast) and strides; clones.
 *
 * Source: at::Tensor::copy_ and clone (aten/src/ATen/native/Copy.cpp, TensorFactories.cpp) for the allowed operands,
 * the strides of a clone and the overlaps that are refused.
 */
#include "runtime/shim/tensors/convert.h"
#include "runtime/shim/torch_abi.h"

#include <string.h>

/* The dimensions of a copy, outermost first, with strides in bytes. */
struct copy_plan {
    int ndim;
    int64_t sizes[SHIM_MAX_NDIM];
    ptrdiff_t to[SHIM_MAX_NDIM];
    ptrdiff_t from[SHIM_MAX_NDIM];
};

/* Keeps the dimensions sorted by falling stride of the destination, so that memory is written in order. */
static void plan_insert(struct copy_plan *plan, int64_t size, ptrdiff_t to, ptrdiff_t from)
{
    int at = plan->ndim++;
    for (; at > 0 && plan->to[at - 1] < to; at--) {
        plan->sizes[at] = plan->sizes[at - 1];
        plan->to[at] = plan->to[at - 1];
        plan->from[at] = plan->from[at - 1];
    }
    plan->sizes[at] = size;
    plan->to[at] = to;
    plan->from[at] = from;
}

/* Joins neighbours that are one run of elements on both sides. */
static void plan_join(struct copy_plan *plan)
{
    int kept = 0;
    for (int d = 1; d < plan->ndim; d++) {
        if (plan->to[kept] == plan->to[d] * plan->sizes[d] && plan->from[kept] == plan->from[d] * plan->sizes[d]) {
            plan->sizes[kept] *= plan->sizes[d];
        } else {
            kept++;
            plan->sizes[kept] = plan->sizes[d];
        }
        plan->to[kept] = plan->to[d];
        plan->from[kept] = plan->from[d];
    }
    if (plan->ndim > 0)
        plan->ndim = kept + 1;
}

/* Makes the plan. The source is broadcast: missing dimensions in front, and those of size 1, repeat. */
static AOTITorchError make_plan(const char *function, const struct shim_tensor *to, const struct shim_tensor *from,
                                struct copy_plan *ret_plan)
{
    int missing = to->ndim - from->ndim;
    if (missing < 0)
        return aoticache_shim_fail("%s: cannot copy a tensor of %d dimensions into one of %d", function,
                                   (int)from->ndim, (int)to->ndim);
    ret_plan->ndim = 0;
    for (int d = 0; d < to->ndim; d++) {
        int64_t from_size = d < missing ? 1 : from->sizes[d - missing];
        if (from_size != to->sizes[d] && from_size != 1)
            return aoticache_shim_fail("%s: cannot copy size %lld into size %lld at dimension %d", function,
                                       (long long)from_size, (long long)to->sizes[d], d);
        if (to->sizes[d] == 1)
            continue;
        ptrdiff_t from_stride = from_size == 1 ? 0 : (ptrdiff_t)from->strides[d - missing] * from->item_bytes;
        plan_insert(ret_plan, to->sizes[d], (ptrdiff_t)to->strides[d] * to->item_bytes, from_stride);
    }
    plan_join(ret_plan);
    return SHIM_SUCCESS;
}

static void run_plan(const struct copy_plan *plan, const struct shim_conversion *conversion, char *to, const char *from)
{
    if (plan->ndim == 0) {
        aoticache_shim_convert_row(conversion, 1, to, 0, from, 0);
        return;
    }
    int inner = plan->ndim - 1;
    int64_t at[SHIM_MAX_NDIM] = {0};
    for (;;) {
        aoticache_shim_convert_row(conversion, (size_t)plan->sizes[inner], to, plan->to[inner], from,
                                   plan->from[inner]);
        int d = inner - 1;
        for (; d >= 0; d--) {
            to += plan->to[d];
            from += plan->from[d];
            if (++at[d] < plan->sizes[d])
                break;
            to -= plan->to[d] * (ptrdiff_t)plan->sizes[d];
            from -= plan->from[d] * (ptrdiff_t)plan->sizes[d];
            at[d] = 0;
        }
        if (d < 0)
            return;
    }
}

static bool same_elements(const struct shim_tensor *a, const struct shim_tensor *b)
{
    return a->data == b->data && a->ndim == b->ndim && a->item_bytes == b->item_bytes &&
           memcmp(a->sizes, b->sizes, (size_t)a->ndim * sizeof *a->sizes) == 0 &&
           memcmp(a->strides, b->strides, (size_t)a->ndim * sizeof *a->strides) == 0;
}

static AOTITorchError check_overlap(const char *function, const struct shim_tensor *to, const struct shim_tensor *from)
{
    for (int d = 0; d < to->ndim; d++)
        if (to->strides[d] == 0 && to->sizes[d] > 1)
            return aoticache_shim_fail("%s: dimension %d of the target repeats its elements (stride 0, size %lld)",
                                       function, d, (long long)to->sizes[d]);
    if (from->numel > 0 && !same_elements(to, from) && aoticache_shim_overlap(to, from))
        return aoticache_shim_fail("%s: source and target overlap in memory", function);
    return SHIM_SUCCESS;
}

static AOTITorchError copy_tensor(const char *function, struct shim_tensor *to, const struct shim_tensor *from)
{
    struct copy_plan plan;
    struct shim_conversion conversion;
    if (make_plan(function, to, from, &plan) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    if (!aoticache_shim_conversion_select(to->dtype, from->dtype, &conversion)) {
        char to_text[SHIM_DTYPE_TEXT_BYTES], from_text[SHIM_DTYPE_TEXT_BYTES];
        return aoticache_shim_fail("%s: cannot convert %s to %s", function,
                                   aoticache_shim_dtype_text(from->dtype, from_text),
                                   aoticache_shim_dtype_text(to->dtype, to_text));
    }
    if (to->numel == 0)
        return SHIM_SUCCESS;
    if (check_overlap(function, to, from) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    run_plan(&plan, &conversion, to->data, from->data);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_copy_(AtenTensorHandle self, AtenTensorHandle source, int32_t non_blocking)
{
    (void)non_blocking; /* the CPU has nothing to wait for */
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_TENSOR(source);
    if (self->tensor == source->tensor)
        return SHIM_SUCCESS;
    return copy_tensor(__func__, self->tensor, source->tensor);
}

AOTITorchError aoti_torch_tensor_copy_(AtenTensorHandle source, AtenTensorHandle destination)
{
    return aoti_torch_copy_(destination, source, 0);
}

AOTITorchError aoti_torch_clone(AtenTensorHandle self, AtenTensorHandle *ret_tensor)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_tensor);
    const struct shim_tensor *tensor = self->tensor;
    int64_t strides[SHIM_MAX_NDIM];
    aoticache_shim_dense_strides(tensor, strides);
    AtenTensorHandle clone;
    if (aoticache_shim_tensor_empty(__func__, tensor->ndim, tensor->sizes, strides, tensor->dtype, &clone) !=
        SHIM_SUCCESS)
        return SHIM_FAILURE;
    if (copy_tensor(__func__, clone->tensor, tensor) != SHIM_SUCCESS) {
        aoti_torch_delete_tensor_object(clone);
        return SHIM_FAILURE;
    }
    *ret_tensor = clone;
    return SHIM_SUCCESS;
}

/* Copies the memory of the elements unchanged, gaps included. */
AOTITorchError aoti_torch_clone_preserve_strides(AtenTensorHandle self, AtenTensorHandle *ret_tensor)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_tensor);
    const struct shim_tensor *tensor = self->tensor;
    AtenTensorHandle clone;
    if (aoticache_shim_tensor_empty(__func__, tensor->ndim, tensor->sizes, tensor->strides, tensor->dtype, &clone) !=
        SHIM_SUCCESS)
        return SHIM_FAILURE;
    if (tensor->numel > 0)
        memcpy(clone->tensor->data, tensor->data, aoticache_shim_span_bytes(tensor));
    *ret_tensor = clone;
    return SHIM_SUCCESS;
}

/* In all dtypes except one zero is all zero bytes; e8m0 has no zero, and PyTorch writes the same byte. */
AOTITorchError aoti_torch_zero_(AtenTensorHandle self)
{
    SHIM_CHECK_TENSOR(self);
    struct shim_tensor *tensor = self->tensor;
    static const char zero[16];
    struct shim_tensor source = {.dtype = tensor->dtype, .item_bytes = tensor->item_bytes, .data = (void *)zero};
    struct copy_plan plan;
    struct shim_conversion conversion;
    if (tensor->numel == 0)
        return SHIM_SUCCESS;
    if (aoticache_shim_is_dense(tensor)) {
        memset(tensor->data, 0, aoticache_shim_span_bytes(tensor));
        return SHIM_SUCCESS;
    }
    if (make_plan(__func__, tensor, &source, &plan) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    aoticache_shim_conversion_select(tensor->dtype, tensor->dtype, &conversion);
    run_plan(&plan, &conversion, tensor->data, zero);
    return SHIM_SUCCESS;
}
