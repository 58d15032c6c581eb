/*
 * shim/order/sort: order along one dimension: sort, topk, kthvalue, median, mode.
 *
 * Source: aten/src/ATen/native/Sorting.cpp and TensorCompare.cpp. NaN is larger than every number. All sorting here is
 * stable, which PyTorch promises of some only; where it leaves open which of equal elements is meant, results may name
 * another place.
 */
#include "base/cleanup.h"
#include "runtime/shim/operators.h"
#include "runtime/shim/order/named.h"
#include "runtime/shim/tensors/elements.h"

#include <math.h>
#include <string.h>

/* A key that compares as the element does: whole numbers and doubles become int64 in order. */
struct sort_item {
    int64_t key;
    int64_t place;
};

static int64_t key_of_double(double value)
{
    int64_t bits;
    if (isnan(value))
        return INT64_MAX;
    value += 0.0; /* minus zero is zero */
    memcpy(&bits, &value, sizeof bits);
    return bits < 0 ? bits ^ INT64_MAX : bits;
}

/* Merges sorted runs of `items` by way of `spare`; equal keys keep their order. Descending is by the inverted key. */
static void merge_sort(struct sort_item *items, struct sort_item *spare, int64_t count)
{
    struct sort_item *from = items, *to = spare;
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t begin = 0; begin < count; begin += 2 * width) {
            int64_t middle = begin + width < count ? begin + width : count;
            int64_t end = middle + width < count ? middle + width : count;
            int64_t left = begin, right = middle;
            for (int64_t i = begin; i < end; i++)
                to[i] =
                    left < middle && (right >= end || from[left].key <= from[right].key) ? from[left++] : from[right++];
        }
        struct sort_item *held = from;
        from = to;
        to = held;
    }
    if (from != items)
        memcpy(items, from, (size_t)count * sizeof *items);
}

/* Lanes of a tensor, with room to sort one. */
struct sorter {
    AtenTensorHandle values; /* contiguous, int64 or double */
    bool is_double;
    struct shim_lanes lanes;
    struct sort_item *items; /* twice a lane */
};

static AOTITorchError sorter_open(const char *function, AtenTensorHandle self, int dim, struct sorter *ret_sorter)
{
    int32_t work = aoticache_shim_work_dtype(self->tensor->dtype);
    if (work == AOTICACHE_DTYPE_COMPLEX128)
        return aoticache_shim_fail_dtype(function, self->tensor->dtype);
    struct sorter sorter = {.is_double = work == AOTICACHE_DTYPE_FLOAT64};
    SHIM_TRY(aoticache_shim_read(function, self, work, &sorter.values));
    sorter.lanes = aoticache_shim_lanes(self->tensor, dim);
    size_t bytes = 0;
    if (!__builtin_mul_overflow((size_t)sorter.lanes.length + 1, 2 * sizeof *sorter.items, &bytes))
        sorter.items = malloc(bytes);
    if (sorter.items == NULL) {
        aoti_torch_delete_tensor_object(sorter.values);
        return aoticache_shim_fail_memory(function, bytes);
    }
    *ret_sorter = sorter;
    return SHIM_SUCCESS;
}

static void sorter_close(struct sorter *sorter)
{
    if (sorter->values != NULL)
        aoti_torch_delete_tensor_object(sorter->values);
    free(sorter->items);
}

#define cleanup_sorter __attribute__((cleanup(sorter_close)))

static int64_t key_at(const struct sorter *sorter, int64_t position)
{
    return sorter->is_double ? key_of_double(((const double *)sorter->values->tensor->data)[position])
                             : ((const int64_t *)sorter->values->tensor->data)[position];
}

/* Sorts the items of one lane. */
static void sort_lane(struct sorter *sorter, int64_t outer, int64_t inner, bool descending)
{
    struct shim_lanes lanes = sorter->lanes;
    for (int64_t i = 0; i < lanes.length; i++) {
        int64_t key = key_at(sorter, (outer * lanes.length + i) * lanes.inner + inner);
        sorter->items[i] = (struct sort_item){descending ? ~key : key, i};
    }
    merge_sort(sorter->items, sorter->items + lanes.length, lanes.length);
}

/* Results: elements of the tensor itself and their places. */
struct picked {
    AtenTensorHandle source, values, places;
};

static AOTITorchError picked_open(const char *function, AtenTensorHandle self, int64_t ndim, const int64_t *sizes,
                                  struct picked *ret_picked)
{
    SHIM_TRY(aoticache_shim_read(function, self, self->tensor->dtype, &ret_picked->source));
    SHIM_TRY(aoticache_shim_make(function, ndim, sizes, self->tensor->dtype, &ret_picked->values));
    return aoticache_shim_make(function, ndim, sizes, AOTICACHE_DTYPE_INT64, &ret_picked->places);
}

static void picked_close(struct picked *picked)
{
    aoticache_shim_handle_cleanup(&picked->source);
    aoticache_shim_handle_cleanup(&picked->values);
    aoticache_shim_handle_cleanup(&picked->places);
}

#define cleanup_picked __attribute__((cleanup(picked_close)))

static void pick(struct picked *picked, int64_t to, int64_t from, int64_t place)
{
    uint32_t bytes = picked->source->tensor->item_bytes;
    memcpy((char *)picked->values->tensor->data + (size_t)to * bytes,
           (char *)picked->source->tensor->data + (size_t)from * bytes, bytes);
    ((int64_t *)picked->places->tensor->data)[to] = place;
}

/* Sorts the first `kept` of every lane. */
static AOTITorchError sort_first(const char *function, AtenTensorHandle self, int dim, int64_t kept, bool descending,
                                 AtenTensorHandle *ret_values, AtenTensorHandle *ret_places)
{
    cleanup_sorter struct sorter sorter = {0};
    cleanup_picked struct picked picked = {0};
    int64_t sizes[SHIM_MAX_NDIM];
    const struct shim_tensor *tensor = self->tensor;
    SHIM_TRY(sorter_open(function, self, dim, &sorter));
    for (int d = 0; d < tensor->ndim; d++)
        sizes[d] = d == dim ? kept : tensor->sizes[d];
    SHIM_TRY(picked_open(function, self, tensor->ndim, sizes, &picked));
    struct shim_lanes lanes = sorter.lanes;
    for (int64_t outer = 0; outer < lanes.outer && picked.values->tensor->numel > 0; outer++)
        for (int64_t inner = 0; inner < lanes.inner; inner++) {
            sort_lane(&sorter, outer, inner, descending);
            for (int64_t i = 0; i < kept; i++) {
                int64_t place = sorter.items[i].place;
                pick(&picked, (outer * kept + i) * lanes.inner + inner,
                     (outer * lanes.length + place) * lanes.inner + inner, place);
            }
        }
    *ret_values = shim_steal(&picked.values);
    *ret_places = shim_steal(&picked.places);
    return SHIM_SUCCESS;
}

/* Sorts whole lanes; the result keeps the order of self's dimensions in memory. */
static AOTITorchError sort_all(const char *function, AtenTensorHandle self, int64_t dim, bool descending,
                               AtenTensorHandle *ret_values, AtenTensorHandle *ret_places)
{
    cleanup_tensor AtenTensorHandle sorted = NULL, from = NULL, values = NULL, places = NULL;
    int at = 0;
    SHIM_TRY(aoticache_shim_wrap_dimension(function, self->tensor->ndim, dim, &at));
    SHIM_TRY(sort_first(function, self, at, self->tensor->ndim > 0 ? self->tensor->sizes[at] : 1, descending, &sorted,
                        &from));
    SHIM_TRY(aoticache_shim_make_like(function, self, self->tensor->dtype, &values));
    SHIM_TRY(aoticache_shim_make_like(function, self, AOTICACHE_DTYPE_INT64, &places));
    SHIM_TRY(aoti_torch_copy_(values, sorted, 0));
    SHIM_TRY(aoti_torch_copy_(places, from, 0));
    *ret_values = shim_steal(&values);
    *ret_places = shim_steal(&places);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_sort(AtenTensorHandle self, int64_t dim, int32_t descending, AtenTensorHandle *ret_0,
                                   AtenTensorHandle *ret_1)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_CHECK_RESULT(ret_1);
    return sort_all(__func__, self, dim, descending != 0, ret_0, ret_1);
}

AOTITorchError aoti_torch_cpu_sort_stable(AtenTensorHandle self, int32_t *stable, int64_t dim, int32_t descending,
                                          AtenTensorHandle *ret_0, AtenTensorHandle *ret_1)
{
    (void)stable; /* it always is */
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_CHECK_RESULT(ret_1);
    return sort_all(__func__, self, dim, descending != 0, ret_0, ret_1);
}

AOTITorchError aoti_torch_cpu_topk(AtenTensorHandle self, int64_t k, int64_t dim, int32_t largest, int32_t sorted,
                                   AtenTensorHandle *ret_0, AtenTensorHandle *ret_1)
{
    int at;
    (void)sorted; /* unsorted ones may come in any order, so in this one too */
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_CHECK_RESULT(ret_1);
    SHIM_TRY(aoticache_shim_wrap_dimension(__func__, self->tensor->ndim, dim, &at));
    int64_t length = self->tensor->ndim > 0 ? self->tensor->sizes[at] : 1;
    if (k < 0 || k > length)
        return aoticache_shim_fail("%s: the first %lld of %lld", __func__, (long long)k, (long long)length);
    if (self->tensor->dtype == AOTICACHE_DTYPE_BOOL)
        return aoticache_shim_fail_dtype(__func__, self->tensor->dtype);
    return sort_first(__func__, self, at, k, largest != 0, ret_0, ret_1);
}

/* ---- one element of every lane ---- */

static int64_t reduced_sizes(const struct shim_tensor *tensor, int dim, bool keepdim, int64_t *ret_sizes)
{
    int64_t ndim = 0;
    for (int d = 0; d < tensor->ndim; d++)
        if (d != dim)
            ret_sizes[ndim++] = tensor->sizes[d];
        else if (keepdim)
            ret_sizes[ndim++] = 1;
    return ndim;
}

/* Returns where the wanted item lies among the sorted ones. */
typedef int64_t (*choose)(const struct sorter *sorter, int64_t argument);

static AOTITorchError reduce_sorted(const char *function, AtenTensorHandle self, int dim, bool keepdim, choose chosen,
                                    int64_t argument, AtenTensorHandle *ret_values, AtenTensorHandle *ret_places)
{
    cleanup_sorter struct sorter sorter = {0};
    cleanup_picked struct picked picked = {0};
    int64_t sizes[SHIM_MAX_NDIM];
    SHIM_TRY(sorter_open(function, self, dim, &sorter));
    int64_t ndim = reduced_sizes(self->tensor, dim, keepdim, sizes);
    SHIM_TRY(picked_open(function, self, ndim, sizes, &picked));
    struct shim_lanes lanes = sorter.lanes;
    if (lanes.length == 0 && picked.values->tensor->numel > 0)
        return aoticache_shim_fail("%s: dimension %d has no elements to choose from", function, dim);
    for (int64_t outer = 0; outer < lanes.outer && lanes.length > 0; outer++)
        for (int64_t inner = 0; inner < lanes.inner; inner++) {
            sort_lane(&sorter, outer, inner, false);
            int64_t place = sorter.items[chosen(&sorter, argument)].place;
            pick(&picked, outer * lanes.inner + inner, (outer * lanes.length + place) * lanes.inner + inner, place);
        }
    *ret_values = shim_steal(&picked.values);
    *ret_places = shim_steal(&picked.places);
    return SHIM_SUCCESS;
}

static int64_t choose_kth(const struct sorter *sorter, int64_t k)
{
    (void)sorter;
    return k - 1;
}

AOTITorchError aoti_torch_cpu_kthvalue(AtenTensorHandle self, int64_t k, int64_t dim, int32_t keepdim,
                                       AtenTensorHandle *ret_0, AtenTensorHandle *ret_1)
{
    int at;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_CHECK_RESULT(ret_1);
    SHIM_TRY(aoticache_shim_wrap_dimension(__func__, self->tensor->ndim, dim, &at));
    int64_t length = self->tensor->ndim > 0 ? self->tensor->sizes[at] : 1;
    if (k < 1 || k > length)
        return aoticache_shim_fail("%s: number %lld of %lld", __func__, (long long)k, (long long)length);
    return reduce_sorted(__func__, self, at, keepdim != 0, choose_kth, k, ret_0, ret_1);
}

/* Chooses the commonest element, the smallest of several, at the last place where it is. */
static int64_t choose_mode(const struct sorter *sorter, int64_t argument)
{
    int64_t best = 0, best_count = 0, begin = 0;
    (void)argument;
    for (int64_t i = 1; i <= sorter->lanes.length; i++) {
        if (i < sorter->lanes.length && sorter->items[i].key == sorter->items[begin].key)
            continue;
        if (i - begin > best_count) {
            best_count = i - begin;
            best = i - 1;
        }
        begin = i;
    }
    return best;
}

AOTITorchError aoti_torch_cpu_mode(AtenTensorHandle self, int64_t dim, int32_t keepdim, AtenTensorHandle *ret_0,
                                   AtenTensorHandle *ret_1)
{
    int at;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_CHECK_RESULT(ret_1);
    SHIM_TRY(aoticache_shim_wrap_dimension(__func__, self->tensor->ndim, dim, &at));
    return reduce_sorted(__func__, self, at, keepdim != 0, choose_mode, 0, ret_0, ret_1);
}

/* How many of a sorted lane are numbers: NaN is last. */
static int64_t count_numbers(const struct sorter *sorter)
{
    int64_t low = 0, high = sorter->lanes.length;
    while (sorter->is_double && low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (sorter->items[middle].key == INT64_MAX)
            high = middle;
        else
            low = middle + 1;
    }
    return sorter->is_double ? low : high;
}

/* The lower of the two in the middle; of lanes with NaN the first of these, or, if they do not count, only without numbers. */
static int64_t choose_median(const struct sorter *sorter, int64_t skip_nan)
{
    const int64_t numbers = count_numbers(sorter);
    if (numbers == 0 || (!skip_nan && numbers < sorter->lanes.length))
        return numbers;
    return (numbers - 1) / 2;
}

static AOTITorchError median_along(const char *function, bool skip_nan, const aoticache_named_argument *a,
                                   AtenTensorHandle *ret)
{
    int at;
    if (!shim_is_defined(a[0].tensor))
        return aoticache_shim_fail_undefined(function, a[0].tensor);
    if (a[0].tensor->tensor->dtype == AOTICACHE_DTYPE_BOOL)
        return aoticache_shim_fail_dtype(function, AOTICACHE_DTYPE_BOOL);
    SHIM_TRY(aoticache_shim_wrap_dimension(function, a[0].tensor->tensor->ndim, a[1].integer, &at));
    return reduce_sorted(function, a[0].tensor, at, a[2].integer != 0, choose_median, skip_nan, &ret[0], &ret[1]);
}

AOTITorchError aoticache_shim_median(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    return median_along("median", false, a, ret);
}

AOTITorchError aoticache_shim_nanmedian(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    return median_along("nanmedian", true, a, ret);
}

/* Finds the lower of the two values in the middle. A NaN makes the result NaN, or is not counted if skip_nan is set. */
static AOTITorchError median(const char *function, AtenTensorHandle self, bool skip_nan, AtenTensorHandle *ret_tensor)
{
    cleanup_tensor AtenTensorHandle flat = NULL, contiguous = NULL;
    cleanup_sorter struct sorter sorter = {0};
    cleanup_picked struct picked picked = {0};
    const struct shim_tensor *tensor = self->tensor;
    const int64_t stride = 1;
    if (tensor->numel == 0)
        return aoticache_shim_fail("%s: a tensor without elements has no median here", function);
    SHIM_TRY(aoticache_shim_read(function, self, tensor->dtype, &contiguous));
    SHIM_TRY(aoticache_shim_tensor_view(function, contiguous->tensor, tensor->dtype, 1, &tensor->numel, &stride,
                                        contiguous->tensor->offset, &flat));
    SHIM_TRY(sorter_open(function, flat, 0, &sorter));
    SHIM_TRY(picked_open(function, flat, 0, NULL, &picked));
    sort_lane(&sorter, 0, 0, false);
    pick(&picked, 0, sorter.items[choose_median(&sorter, skip_nan)].place, 0);
    *ret_tensor = shim_steal(&picked.values);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_median(AtenTensorHandle self, AtenTensorHandle *ret_0)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    return median(__func__, self, false, ret_0);
}

AOTITorchError aoti_torch_cpu_nanmedian(AtenTensorHandle self, AtenTensorHandle *ret_0)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    return median(__func__, self, true, ret_0);
}
