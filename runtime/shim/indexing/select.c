/*
 * shim/indexing/select: operators whose result's size depends on values, and operators that select elements by a mask:
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
    typedef uint8_t bytes __attribute__((vector_size(16)));
    enum { LANES = sizeof(bytes), MOST = UINT8_MAX };
    const uint8_t *set = mask->data, *end = set + mask->numel;
    int64_t count = 0;
    while (end - set >= LANES) {
        bytes counts = {0}, some;
        for (int n = 0; n < MOST && end - set >= LANES; n++, set += LANES) {
            memcpy(&some, set, sizeof some);
            counts -= (bytes)(some != 0); /* true is -1 */
        }
        for (int lane = 0; lane < LANES; lane++)
            count += counts[lane];
    }
    for (; set < end; set++)
        count += *set != 0;
    return count;
}

/*
 * Copies the elements that a mask selects, out of `count`, one after the other. It has no branches on the mask, since a
 * processor could not predict them.
 */
#define DEFINE_MASKED(bytes)                                                                  \
    static void select_##bytes(int64_t count, const uint8_t *set, const char *from, char *to) \
    {                                                                                         \
        for (const char *end = to + count * (bytes); to < end; from += (bytes), set++) {      \
            memcpy(to, from, bytes);                                                          \
            to += *set != 0 ? (bytes) : 0;                                                    \
        }                                                                                     \
    }                                                                                         \
    static void insert_##bytes(int64_t count, const uint8_t *set, const char *from, char *to) \
    {                                                                                         \
        for (const char *end = from + count * (bytes); from < end; to += (bytes), set++) {    \
            const char *source = *set != 0 ? from : to;                                       \
            char element[bytes];                                                              \
            memcpy(element, source, bytes);                                                   \
            memcpy(to, element, bytes);                                                       \
            from += *set != 0 ? (bytes) : 0;                                                  \
        }                                                                                     \
    }

DEFINE_MASKED(1)
DEFINE_MASKED(2)
DEFINE_MASKED(4)
DEFINE_MASKED(8)
DEFINE_MASKED(16)

/* The functions, indexed by the logarithm of an element's size. */
typedef void (*move_masked)(int64_t count, const uint8_t *set, const char *from, char *to);
static const move_masked selects[] = {select_1, select_2, select_4, select_8, select_16};
static const move_masked inserts[] = {insert_1, insert_2, insert_4, insert_8, insert_16};

AOTITorchError aoti_torch_cpu_masked_select(AtenTensorHandle self, AtenTensorHandle mask, AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle values = NULL, set = NULL, result = NULL;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_TENSOR(mask);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(expand_both(__func__, self, mask, &values, &set));
    int64_t count = count_set(set->tensor);
    SHIM_TRY(aoticache_shim_make(__func__, 1, &count, self->tensor->dtype, &result));
    if (count > 0)
        selects[__builtin_ctz(self->tensor->item_bytes)](count, set->tensor->data, values->tensor->data,
                                                         result->tensor->data);
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
        return aoticache_shim_fail("%s: the tensors must have the same dtype", __func__);
    SHIM_TRY(expand_both(__func__, self, mask, &result, &set));
    SHIM_TRY(aoticache_shim_read(__func__, source, source->tensor->dtype, &given));
    int64_t count = count_set(set->tensor);
    if (count > given->tensor->numel)
        return aoticache_shim_fail("%s: the mask selects %lld elements, but the source has %lld", __func__,
                                   (long long)count, (long long)given->tensor->numel);
    if (count > 0)
        inserts[__builtin_ctz(self->tensor->item_bytes)](count, set->tensor->data, given->tensor->data,
                                                         result->tensor->data);
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

/* The coordinates of elements are written row by row; the elements of a row are `dim_step` numbers apart. */
struct places {
    int64_t *to;
    int64_t row_step, dim_step, room, rows; /* room: capacity in rows; rows: rows written up to now */
};

/*
 * Finds the elements that are not zero along the last dimension, from `set` on; `at` are the coordinates of the others.
 */
static void write_lane(const struct shim_tensor *tensor, const uint8_t *set, const int64_t *at, struct places *places)
{
    const int last = tensor->ndim - 1;
    const int64_t row_step = places->row_step, room = places->room, first = places->rows;
    const int64_t length = last >= 0 ? tensor->sizes[last] : 1;
    int64_t rows = first, *to = places->to + (last >= 0 ? last * places->dim_step : 0);
    for (int64_t i = 0; i < length && rows < room; i++) {
        to[rows * row_step] = i;
        rows += set[i] != 0;
    }
    for (int d = 0; d < last; d++)
        for (int64_t row = first; row < rows; row++)
            places->to[row * row_step + d * places->dim_step] = at[d];
    places->rows = rows;
}

/* Writes a row for each element that is not zero. Unused rows may have been written to. */
static void write_places(const struct shim_tensor *tensor, struct places *places)
{
    int64_t at[SHIM_MAX_NDIM] = {0};
    const uint8_t *set = tensor->data;
    const int64_t length = tensor->ndim > 0 ? tensor->sizes[tensor->ndim - 1] : 1;
    for (const uint8_t *end = set + tensor->numel; set < end && places->rows < places->room; set += length) {
        write_lane(tensor, set, at, places);
        for (int d = tensor->ndim - 2; d >= 0 && ++at[d] == tensor->sizes[d]; d--)
            at[d] = 0;
    }
}

static AOTITorchError read_mask(const char *function, AtenTensorHandle self, AtenTensorHandle *ret_set)
{
    /* The mask is read through a copy, since a byte of bool may have any value. */
    return aoticache_shim_read_copy(function, self, AOTICACHE_DTYPE_BOOL, ret_set);
}

AOTITorchError aoti_torch_cpu_nonzero(AtenTensorHandle self, AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle set = NULL, result = NULL;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(read_mask(__func__, self, &set));
    int64_t sizes[2] = {count_set(set->tensor), self->tensor->ndim};
    const int64_t strides[2] = {1, sizes[0]}; /* a row for each dimension, as PyTorch lays it out */
    SHIM_TRY(aoticache_shim_tensor_empty(__func__, 2, sizes, strides, AOTICACHE_DTYPE_INT64, &result));
    struct places places = {.to = result->tensor->data, .row_step = 1, .dim_step = sizes[0], .room = sizes[0]};
    if (result->tensor->numel > 0)
        write_places(set->tensor, &places);
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_nonzero_static(AtenTensorHandle self, int64_t size, int64_t fill_value,
                                             AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle set = NULL, result = NULL;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    if (size < 0)
        return aoticache_shim_fail("%s: invalid size %lld", __func__, (long long)size);
    SHIM_TRY(read_mask(__func__, self, &set));
    const int64_t ndim = self->tensor->ndim, sizes[2] = {size, ndim};
    SHIM_TRY(aoticache_shim_make(__func__, 2, sizes, AOTICACHE_DTYPE_INT64, &result));
    struct places places = {.to = result->tensor->data, .row_step = ndim, .dim_step = 1, .room = size};
    if (result->tensor->numel > 0)
        write_places(set->tensor, &places);
    for (int64_t i = places.rows * ndim; i < result->tensor->numel; i++)
        places.to[i] = fill_value;
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
            return aoticache_shim_fail("%s: invalid repeat %lld at %lld", __func__, (long long)count[i], (long long)i);
    if (output_size != NULL && *output_size != total)
        return aoticache_shim_fail("%s: repeats sum to %lld elements, but output_size is %lld", __func__,
                                   (long long)total, (long long)*output_size);
    SHIM_TRY(aoticache_shim_make(__func__, 1, &total, AOTICACHE_DTYPE_INT64, &places));
    int64_t *to = places->tensor->data;
    for (int64_t i = 0; i < counts->tensor->numel; i++)
        for (int64_t n = 0; n < count[i]; n++)
            *to++ = i;
    SHIM_TRY(aoticache_shim_read(__func__, places, dtype, &result));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}
