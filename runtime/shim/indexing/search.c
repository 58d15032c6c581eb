/*
 * shim/indexing/search: finds positions of values among sorted boundaries (searchsorted, bucketize).
 *
 * Source: aten/src/ATen/native/Bucketization.cpp.
 */
#include "runtime/shim/math/math_internal.h"
#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <string.h>

/* Finds the positions of `values` among the `count` boundaries of one row. */
typedef void (*search_row)(const void *boundaries, int64_t count, const void *values, int64_t value_count,
                           int64_t *ret_places);

/*
 * Binary search as in PyTorch: it compares with the same boundaries, which matters if NaN is among them. It has no
 * branches, since a processor could not predict them: during the first `steps` steps boundaries are left to compare
 * with, and after them at most one is.
 *
 * is_before: whether a boundary comes before a value. NaN is above all numbers.
 */
#define DEFINE_SEARCH(name, type, is_before)                                                                   \
    static void name(const void *row, int64_t count, const void *sought, int64_t value_count, int64_t *places) \
    {                                                                                                          \
        const type *boundaries = row, *values = sought;                                                        \
        const int steps = 63 - __builtin_clzll((unsigned long long)count + 1);                                 \
        for (int64_t i = 0; i < value_count; i++) {                                                            \
            int64_t low = 0, left = count;                                                                     \
            const type value = values[i];                                                                      \
            for (int step = 0; step < steps; step++) {                                                         \
                const int64_t half = left >> 1, before = is_before(boundaries[low + half], value);             \
                low += (half + 1) & -before;                                                                   \
                left = half - (before & ~left & 1);                                                            \
            }                                                                                                  \
            const int64_t last = low - (low == count); /* read even if not needed */                           \
            places[i] = count > 0 ? low + (left & is_before(boundaries[last], value)) : 0;                     \
        }                                                                                                      \
    }
#define BELOW(boundary, value) (!((boundary) >= (value)))
#define NOT_ABOVE(boundary, value) (!((boundary) > (value)))
DEFINE_SEARCH(place_ints, int64_t, BELOW)
DEFINE_SEARCH(place_ints_right, int64_t, NOT_ABOVE)
DEFINE_SEARCH(place_floats, float, BELOW)
DEFINE_SEARCH(place_floats_right, float, NOT_ABOVE)
DEFINE_SEARCH(place_doubles, double, BELOW)
DEFINE_SEARCH(place_doubles_right, double, NOT_ABOVE)

static search_row search_of(int32_t work, bool right)
{
    if (work == AOTICACHE_DTYPE_INT64)
        return right ? place_ints_right : place_ints;
    if (work == AOTICACHE_DTYPE_FLOAT32)
        return right ? place_floats_right : place_floats;
    return right ? place_doubles_right : place_doubles;
}

/* Returns whether float32 represents elements of the dtype exactly. */
static bool is_narrow_floating(int32_t dtype)
{
    return aoticache_shim_is_floating(dtype) && dtype != AOTICACHE_DTYPE_FLOAT64;
}

/* Returns the dtype in which boundaries and values are compared. double does not represent every int64 exactly. */
static int32_t common_dtype(int32_t a, int32_t b)
{
    if (aoticache_shim_is_integral(a) && aoticache_shim_is_integral(b))
        return AOTICACHE_DTYPE_INT64;
    return is_narrow_floating(a) && is_narrow_floating(b) ? AOTICACHE_DTYPE_FLOAT32 : AOTICACHE_DTYPE_FLOAT64;
}

static AOTITorchError check_rows(const char *function, const struct shim_tensor *boundaries,
                                 const struct shim_tensor *values)
{
    if (boundaries->ndim == 0)
        return aoticache_shim_fail("%s: boundaries must have at least one dimension", function);
    if (boundaries->ndim == 1)
        return SHIM_SUCCESS;
    if (boundaries->ndim != values->ndim ||
        memcmp(boundaries->sizes, values->sizes, (size_t)(boundaries->ndim - 1) * sizeof *values->sizes) != 0)
        return aoticache_shim_fail("%s: boundaries and values must have the same sizes in all dimensions but the "
                                   "last",
                                   function);
    return SHIM_SUCCESS;
}

static AOTITorchError check_sorter(const char *function, const struct shim_tensor *sorter,
                                   const struct shim_tensor *boundaries)
{
    const int64_t *places = sorter->data;
    if (!aoticache_shim_same_sizes(sorter, boundaries))
        return aoticache_shim_fail("%s: the sorter must have the sizes of the boundaries", function);
    for (int64_t i = 0; i < sorter->numel; i++)
        if (places[i] < 0 || places[i] >= boundaries->sizes[boundaries->ndim - 1])
            return aoticache_shim_fail("%s: position %lld of the sorter is out of range", function,
                                       (long long)places[i]);
    return SHIM_SUCCESS;
}

/* Returns the boundaries of each row in the order given by the sorter. */
static AOTITorchError put_in_order(const char *function, AtenTensorHandle boundaries, AtenTensorHandle sorter,
                                   AtenTensorHandle *ret_tensor)
{
    cleanup_tensor AtenTensorHandle order = NULL, made = NULL;
    const struct shim_tensor *from = boundaries->tensor;
    SHIM_TRY(aoticache_shim_read(function, sorter, AOTICACHE_DTYPE_INT64, &order));
    SHIM_TRY(check_sorter(function, order->tensor, from));
    SHIM_TRY(aoticache_shim_make(function, from->ndim, from->sizes, from->dtype, &made));
    const int64_t *places = order->tensor->data, count = from->sizes[from->ndim - 1];
    const size_t bytes = from->item_bytes;
    for (int64_t i = 0; i < from->numel; i++)
        memcpy((char *)made->tensor->data + (size_t)i * bytes,
               (const char *)from->data + (size_t)(i / count * count + places[i]) * bytes, bytes);
    *ret_tensor = shim_steal(&made);
    return SHIM_SUCCESS;
}

/* A search; all tensors are contiguous. */
struct searched {
    const struct shim_tensor *boundaries, *values;
    int64_t *places;
    search_row run;
    int parts;
};

/* Searches for a part's values, row by row if each row has its own boundaries. */
static void run_part(void *user, int part)
{
    const struct searched *searched = user;
    const struct shim_tensor *boundaries = searched->boundaries, *values = searched->values;
    const int64_t count = boundaries->sizes[boundaries->ndim - 1];
    const int64_t length = boundaries->ndim == 1 ? values->numel : values->sizes[values->ndim - 1];
    const int64_t end = shim_part_begin(values->numel, searched->parts, part + 1);
    for (int64_t i = shim_part_begin(values->numel, searched->parts, part), some; i < end; i += some) {
        const int64_t in_row = length - i % length;
        some = in_row < end - i ? in_row : end - i;
        searched->run((const char *)boundaries->data + (size_t)(i / length * count) * boundaries->item_bytes, count,
                      (const char *)values->data + (size_t)i * values->item_bytes, some, searched->places + i);
    }
}

/* The cost of a step of the search, in multiplications. */
enum { STEP_WORK = 20 };

static AOTITorchError search(const char *function, AtenTensorHandle boundaries, AtenTensorHandle self, bool right,
                             AtenTensorHandle sorter, bool narrow, AtenTensorHandle *ret_tensor)
{
    cleanup_tensor AtenTensorHandle given = NULL, sorted = NULL, values = NULL, places = NULL;
    SHIM_TRY(check_rows(function, boundaries->tensor, self->tensor));
    const int32_t work = common_dtype(boundaries->tensor->dtype, self->tensor->dtype);
    SHIM_TRY(aoticache_shim_read(function, boundaries, work, &given));
    SHIM_TRY(aoticache_shim_read(function, self, work, &values));
    SHIM_TRY(aoticache_shim_make(function, self->tensor->ndim, self->tensor->sizes, AOTICACHE_DTYPE_INT64, &places));
    if (sorter != NULL)
        SHIM_TRY(put_in_order(function, given, sorter, &sorted));
    struct searched searched = {sorter != NULL ? sorted->tensor : given->tensor, values->tensor, places->tensor->data,
                                search_of(work, right), 1};
    if (values->tensor->numel > 0) {
        const double steps = 64 - __builtin_clzll((unsigned long long)given->tensor->numel | 1);
        searched.parts = aoticache_shim_parts((double)values->tensor->numel * steps * STEP_WORK, values->tensor->numel);
        aoticache_shim_parallel(searched.parts, run_part, &searched);
    }
    return aoticache_shim_read(function, places, narrow ? AOTICACHE_DTYPE_INT32 : AOTICACHE_DTYPE_INT64, ret_tensor);
}

/* Reads the side, which can be given by two arguments that must not contradict each other. */
static AOTITorchError parse_side(const char *function, int32_t right, const char **side, bool *ret_right)
{
    *ret_right = right != 0;
    if (side == NULL || *side == NULL)
        return SHIM_SUCCESS;
    if (strcmp(*side, "left") != 0 && strcmp(*side, "right") != 0)
        return aoticache_shim_fail("%s: side '%s' must be left or right", function, *side);
    if (right != 0 && strcmp(*side, "left") == 0)
        return aoticache_shim_fail("%s: right is true, but side is left", function);
    *ret_right = strcmp(*side, "right") == 0;
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_searchsorted_Tensor(AtenTensorHandle sorted_sequence, AtenTensorHandle self,
                                                  int32_t out_int32, int32_t right, const char **side,
                                                  AtenTensorHandle *sorter, AtenTensorHandle *ret_0)
{
    bool to_right;
    SHIM_CHECK_TENSOR(sorted_sequence);
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(parse_side(__func__, right, side, &to_right));
    return search(__func__, sorted_sequence, self, to_right, shim_optional(sorter), out_int32 != 0, ret_0);
}

AOTITorchError aoti_torch_cpu_searchsorted_Scalar(AtenTensorHandle sorted_sequence, double self, int32_t out_int32,
                                                  int32_t right, const char **side, AtenTensorHandle *sorter,
                                                  AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle value = NULL;
    bool to_right;
    SHIM_CHECK_TENSOR(sorted_sequence);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(parse_side(__func__, right, side, &to_right));
    SHIM_TRY(aoticache_shim_make(__func__, 0, NULL, AOTICACHE_DTYPE_FLOAT64, &value));
    *(double *)value->tensor->data = self;
    return search(__func__, sorted_sequence, value, to_right, shim_optional(sorter), out_int32 != 0, ret_0);
}

AOTITorchError aoti_torch_cpu_bucketize_Tensor(AtenTensorHandle self, AtenTensorHandle boundaries, int32_t out_int32,
                                               int32_t right, AtenTensorHandle *ret_0)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_TENSOR(boundaries);
    SHIM_CHECK_RESULT(ret_0);
    if (boundaries->tensor->ndim != 1)
        return aoticache_shim_fail("%s: boundaries have %d dimensions; they must have one", __func__,
                                   (int)boundaries->tensor->ndim);
    return search(__func__, boundaries, self, right != 0, NULL, out_int32 != 0, ret_0);
}
