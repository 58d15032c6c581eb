/*
 * shim/order/select: operators whose result's size depends on values, and those that take elements by a mask:
 * masked_select, nonzero, masked_scatter, repeat_interleave.
 */
#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <string.h>

/* Expands `self` and `mask` to common sizes and makes them contiguous; the mask becomes bytes of 0 and 1. */
static AOTITorchError expand_both(const char *function, AtenTensorHandle self, AtenTensorHandle mask,
                                  AtenTensorHandle *ret_self, AtenTensorHandle *ret_mask)
{
    int64_t sizes[SHIM_MAX_NDIM];
    const struct shim_tensor *a = self->tensor, *b = mask->tensor;
    int ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    if (b->dtype != AOTICACHE_DTYPE_BOOL && b->dtype != AOTICACHE_DTYPE_UINT8)
        return aoticache_shim_fail("%s: the mask must be bool", function);
    for (int d = 0; d < ndim; d++) {
        int a_at = d - (ndim - a->ndim), b_at = d - (ndim - b->ndim);
        int64_t a_size = a_at < 0 ? 1 : a->sizes[a_at], b_size = b_at < 0 ? 1 : b->sizes[b_at];
        sizes[d] = a_size == 1 ? b_size : a_size;
    }
    SHIM_TRY(aoticache_shim_make(function, ndim, sizes, a->dtype, ret_self));
    SHIM_TRY(aoticache_shim_make(function, ndim, sizes, AOTICACHE_DTYPE_BOOL, ret_mask));
    SHIM_TRY(aoti_torch_copy_(*ret_self, self, 0));
    return aoti_torch_copy_(*ret_mask, mask, 0);
}

static int64_t count_set(const struct shim_tensor *mask)
{
    const uint8_t *set = mask->data;
    int64_t count = 0;
    for (int64_t i = 0; i < mask->numel; i++)
        count += set[i] != 0;
    return count;
}

AOTITorchError aoti_torch_cpu_masked_select(AtenTensorHandle self, AtenTensorHandle mask, AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle values = NULL, set = NULL, result = NULL;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_TENSOR(mask);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(expand_both(__func__, self, mask, &values, &set));
    int64_t count = count_set(set->tensor);
    SHIM_TRY(aoticache_shim_make(__func__, 1, &count, self->tensor->dtype, &result));
    uint32_t bytes = self->tensor->item_bytes;
    const uint8_t *chosen = set->tensor->data;
    char *to = result->tensor->data;
    const char *from = values->tensor->data;
    for (int64_t i = 0; i < set->tensor->numel; i++, from += bytes)
        if (chosen[i]) {
            memcpy(to, from, bytes);
            to += bytes;
        }
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_masked_scatter(AtenTensorHandle self, AtenTensorHandle mask, AtenTensorHandle source,
                                             AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle result = NULL, set = NULL, given = NULL;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_TENSOR(mask);
    SHIM_CHECK_TENSOR(source);
    SHIM_CHECK_RESULT(ret_0);
    if (self->tensor->dtype != source->tensor->dtype)
        return aoticache_shim_fail("%s: tensors of one dtype are needed", __func__);
    SHIM_TRY(expand_both(__func__, self, mask, &result, &set));
    SHIM_TRY(aoticache_shim_read(__func__, source, source->tensor->dtype, &given));
    int64_t count = count_set(set->tensor);
    if (count > given->tensor->numel)
        return aoticache_shim_fail("%s: the mask takes %lld elements, the source has %lld", __func__, (long long)count,
                                   (long long)given->tensor->numel);
    uint32_t bytes = self->tensor->item_bytes;
    const uint8_t *chosen = set->tensor->data;
    const char *from = given->tensor->data;
    char *to = result->tensor->data;
    for (int64_t i = 0; i < set->tensor->numel; i++, to += bytes)
        if (chosen[i]) {
            memcpy(to, from, bytes);
            from += bytes;
        }
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

/*
 * Writes a row of places for each element that is not zero, `room` rows at most. Rows without an element stay as they
 * are.
 */
static void write_places(const struct shim_tensor *set, int64_t room, int64_t *places)
{
    const uint8_t *chosen = set->data;
    int64_t row = 0;
    for (int64_t i = 0; i < set->numel && row < room; i++) {
        if (!chosen[i])
            continue;
        int64_t rest = i;
        for (int d = set->ndim - 1; d >= 0; d--) {
            places[row * set->ndim + d] = rest % set->sizes[d];
            rest /= set->sizes[d];
        }
        row++;
    }
}

static AOTITorchError read_mask(const char *function, AtenTensorHandle self, AtenTensorHandle *ret_set)
{
    /* The mask is read through a copy: a byte of bool may hold any value. */
    return aoticache_shim_read_copy(function, self, AOTICACHE_DTYPE_BOOL, ret_set);
}

AOTITorchError aoti_torch_cpu_nonzero(AtenTensorHandle self, AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle set = NULL, result = NULL, turned = NULL;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(read_mask(__func__, self, &set));
    int64_t sizes[2] = {count_set(set->tensor), self->tensor->ndim};
    const int64_t strides[2] = {1, sizes[0]}; /* a row for each dimension, as PyTorch lays it out */
    SHIM_TRY(aoticache_shim_make(__func__, 2, sizes, AOTICACHE_DTYPE_INT64, &result));
    if (result->tensor->numel > 0)
        write_places(set->tensor, sizes[0], result->tensor->data);
    SHIM_TRY(aoticache_shim_tensor_empty(__func__, 2, sizes, strides, AOTICACHE_DTYPE_INT64, &turned));
    SHIM_TRY(aoti_torch_copy_(turned, result, 0));
    *ret_0 = shim_steal(&turned);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_nonzero_static(AtenTensorHandle self, int64_t size, int64_t fill_value,
                                             AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle set = NULL, result = NULL;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    if (size < 0)
        return aoticache_shim_fail("%s: a size of %lld", __func__, (long long)size);
    SHIM_TRY(read_mask(__func__, self, &set));
    const int64_t sizes[2] = {size, self->tensor->ndim};
    SHIM_TRY(aoticache_shim_make(__func__, 2, sizes, AOTICACHE_DTYPE_INT64, &result));
    int64_t *places = result->tensor->data;
    for (int64_t i = 0; i < result->tensor->numel; i++)
        places[i] = fill_value;
    if (result->tensor->numel > 0)
        write_places(set->tensor, size, places);
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_repeat_interleave_Tensor(AtenTensorHandle repeats, int64_t *output_size,
                                                       AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle counts = NULL, places = NULL, result = NULL;
    SHIM_CHECK_TENSOR(repeats);
    SHIM_CHECK_RESULT(ret_0);
    int32_t dtype = repeats->tensor->dtype;
    if (repeats->tensor->ndim != 1 || (dtype != AOTICACHE_DTYPE_INT32 && dtype != AOTICACHE_DTYPE_INT64))
        return aoticache_shim_fail("%s: repeats must be int32 or int64 and have one dimension", __func__);
    SHIM_TRY(aoticache_shim_read(__func__, repeats, AOTICACHE_DTYPE_INT64, &counts));
    const int64_t *count = counts->tensor->data;
    int64_t total = 0;
    for (int64_t i = 0; i < counts->tensor->numel; i++)
        if (count[i] < 0 || __builtin_add_overflow(total, count[i], &total))
            return aoticache_shim_fail("%s: repeat %lld at %lld", __func__, (long long)count[i], (long long)i);
    if (output_size != NULL && *output_size != total)
        return aoticache_shim_fail("%s: repeats make %lld elements, %lld are announced", __func__, (long long)total,
                                   (long long)*output_size);
    SHIM_TRY(aoticache_shim_make(__func__, 1, &total, AOTICACHE_DTYPE_INT64, &places));
    int64_t *to = places->tensor->data;
    for (int64_t i = 0; i < counts->tensor->numel; i++)
        for (int64_t n = 0; n < count[i]; n++)
            *to++ = i;
    SHIM_TRY(aoticache_shim_read(__func__, places, dtype, &result));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}
