/*
 * shim/tensors/shape: checks and measures sizes and strides, and has the predicates that copies need.
 *
 * Definitions follow PyTorch's (c10/core/Contiguity.h, ATen/EmptyTensor.h, ATen/ExpandUtils.h), so that a clone has the
 * strides that it has there.
 */
#include "runtime/shim/tensors/tensor.h"

static AOTITorchError check_dimensions(const char *function, int64_t ndim, const int64_t *sizes, const int64_t *strides)
{
    if (ndim < 0 || ndim > SHIM_MAX_NDIM)
        return aoticache_shim_fail("%s: %lld dimensions; 0 to %d are allowed", function, (long long)ndim,
                                   SHIM_MAX_NDIM);
    if (ndim > 0 && (sizes == NULL || strides == NULL))
        return aoticache_shim_fail("%s: %lld dimensions, but %s is NULL", function, (long long)ndim,
                                   sizes == NULL ? "sizes" : "strides");
    return SHIM_SUCCESS;
}

static AOTITorchError fail_negative(const char *function, const int64_t *sizes, const int64_t *strides, int64_t ndim)
{
    for (int64_t d = 0; d < ndim; d++) {
        if (sizes[d] < 0)
            return aoticache_shim_fail("%s: size %lld of dimension %lld is negative", function, (long long)sizes[d],
                                       (long long)d);
        if (strides[d] < 0)
            return aoticache_shim_fail("%s: stride %lld of dimension %lld is negative", function, (long long)strides[d],
                                       (long long)d);
    }
    return aoticache_shim_fail("%s: the number of bytes does not fit into 64 bits", function);
}

AOTITorchError aoticache_shim_measure(const char *function, int64_t ndim, const int64_t *sizes, const int64_t *strides,
                                      int64_t offset, size_t item_bytes, struct shim_extent *ret_extent)
{
    if (check_dimensions(function, ndim, sizes, strides) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    if (offset < 0)
        return aoticache_shim_fail("%s: storage offset %lld is negative", function, (long long)offset);
    int64_t numel = 1, last = 0, step, bytes;
    bool bad = false, empty = false;
    for (int64_t d = 0; d < ndim; d++) {
        bad |= (sizes[d] | strides[d]) < 0;
        empty |= sizes[d] == 0;
        /* A product that overflows before a size of zero is still an error, as in PyTorch. */
        bad |= __builtin_mul_overflow(numel, sizes[d], &numel);
        bad |= sizes[d] > 0 &&
               (__builtin_mul_overflow(sizes[d] - 1, strides[d], &step) || __builtin_add_overflow(last, step, &last));
    }
    if (bad)
        return fail_negative(function, sizes, strides, ndim);
    if (empty) {
        *ret_extent = (struct shim_extent){0, 0};
        return SHIM_SUCCESS;
    }
    if (__builtin_add_overflow(last, offset, &last) || __builtin_add_overflow(last, 1, &last) ||
        __builtin_mul_overflow(last, (int64_t)item_bytes, &bytes))
        return fail_negative(function, sizes, strides, ndim);
    *ret_extent = (struct shim_extent){numel, (size_t)bytes};
    return SHIM_SUCCESS;
}

bool aoticache_shim_is_contiguous(const struct shim_tensor *tensor)
{
    if (tensor->numel == 0)
        return true;
    int64_t expected = 1;
    for (int d = tensor->ndim - 1; d >= 0; d--) {
        if (tensor->sizes[d] == 1)
            continue;
        if (tensor->strides[d] != expected)
            return false;
        expected *= tensor->sizes[d];
    }
    return true;
}

/* Sorts dimensions with more than one element by falling stride. */
static int sort_by_stride(const struct shim_tensor *tensor, int ret_order[SHIM_MAX_NDIM])
{
    int count = 0;
    for (int d = 0; d < tensor->ndim; d++) {
        if (tensor->sizes[d] < 2)
            continue;
        int at = count++;
        for (; at > 0 && tensor->strides[ret_order[at - 1]] < tensor->strides[d]; at--)
            ret_order[at] = ret_order[at - 1];
        ret_order[at] = d;
    }
    return count;
}

bool aoticache_shim_is_dense(const struct shim_tensor *tensor)
{
    if (tensor->numel == 0)
        return true;
    int order[SHIM_MAX_NDIM];
    int count = sort_by_stride(tensor, order);
    int64_t expected = 1;
    for (int i = count - 1; i >= 0; i--) {
        if (tensor->strides[order[i]] != expected)
            return false;
        expected *= tensor->sizes[order[i]];
    }
    return true;
}

size_t aoticache_shim_span_bytes(const struct shim_tensor *tensor)
{
    if (tensor->numel == 0)
        return 0;
    int64_t last = 0;
    for (int d = 0; d < tensor->ndim; d++)
        last += (tensor->sizes[d] - 1) * tensor->strides[d];
    return (size_t)(last + 1) * tensor->item_bytes;
}

bool aoticache_shim_overlap(const struct shim_tensor *a, const struct shim_tensor *b)
{
    if (a->numel == 0 || b->numel == 0 || !aoticache_shim_is_dense(a) || !aoticache_shim_is_dense(b))
        return false;
    const char *a_begin = a->data, *b_begin = b->data;
    return a_begin < b_begin + aoticache_shim_span_bytes(b) && b_begin < a_begin + aoticache_shim_span_bytes(a);
}

/*
 * Compares two dimensions. 1: a is outside b in memory, -1: inside, 0: unknown (a stride of zero), the order does not
 * change.
 */
static int compare_dimensions(const struct shim_tensor *tensor, int a, int b)
{
    int64_t stride_a = tensor->strides[a], stride_b = tensor->strides[b];
    if (stride_a == 0 || stride_b == 0)
        return 0;
    if (stride_a != stride_b)
        return stride_a > stride_b ? 1 : -1;
    return tensor->sizes[a] > tensor->sizes[b] ? 1 : 0;
}

void aoticache_shim_dense_strides(const struct shim_tensor *tensor, int64_t ret_strides[SHIM_MAX_NDIM])
{
    if (aoticache_shim_is_dense(tensor)) {
        for (int d = 0; d < tensor->ndim; d++)
            ret_strides[d] = tensor->strides[d];
        return;
    }
    int order[SHIM_MAX_NDIM]; /* innermost first */
    for (int i = 0; i < tensor->ndim; i++)
        order[i] = tensor->ndim - 1 - i;
    for (int i = 1; i < tensor->ndim; i++) {
        int moving = i;
        for (int at = i - 1; at >= 0; at--) {
            int compared = compare_dimensions(tensor, order[at], order[moving]);
            if (compared < 0)
                break;
            if (compared > 0) {
                int held = order[at];
                order[at] = order[moving];
                order[moving] = held;
                moving = at;
            }
        }
    }
    int64_t stride = 1;
    for (int i = 0; i < tensor->ndim; i++) {
        ret_strides[order[i]] = stride;
        if (tensor->sizes[order[i]] > 1)
            stride *= tensor->sizes[order[i]];
    }
}
