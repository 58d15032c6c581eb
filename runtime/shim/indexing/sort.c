/*
 * shim/indexing/sort: order along one dimension: sort, topk, kthvalue, median, mode. Lanes are divided among the
 * threads; each thread reads the keys of one lane at a time (keys.h). Sorting uses the bytes of keys, kthvalue and
 * median find the key at a rank, topk keeps the first keys found up to now.
 *
 * Source: aten/src/ATen/native/Sorting.cpp and TensorCompare.cpp. NaN is larger than every number. All sorting here is
 * stable, which PyTorch promises only for some functions. If PyTorch does not specify which of several equal elements
 * is returned, results may have another index.
 */
#include "runtime/shim/math/math_internal.h"
#include "runtime/shim/operators.h"
#include "runtime/shim/indexing/keys.h"
#include "runtime/shim/indexing/named.h"
#include "runtime/shim/tensors/elements.h"
#include "runtime/shim/tensors/free_lists.h"

#include <string.h>

struct order;

/*
 * The function for one lane. first, to: positions of its first element and its first result; memory: the part's memory.
 */
typedef void (*order_lane)(const struct order *order, int64_t first, int64_t to, void *memory);

/* A call: the lanes of a tensor, and the wanted result for each. */
struct order {
    AtenTensorHandle source, values, places; /* contiguous */
    struct shim_lanes lanes;
    struct shim_keys keys;
    int64_t kept; /* the number of elements of a lane in the results */
    order_lane run;
    int64_t room; /* items that a lane needs, and the same number of spare ones */
    int64_t rank; /* rank of the wanted element, unless it is the median */
    bool is_median, skip_nan;
    int parts;
    char *memory; /* `step` bytes for each part */
    size_t step;
};

static AOTITorchError order_open(const char *function, AtenTensorHandle self, int dim, bool descending,
                                 struct order *ret_order)
{
    if (!aoticache_shim_keys_of(self->tensor->dtype, descending, &ret_order->keys))
        return aoticache_shim_fail_dtype(function, self->tensor->dtype);
    ret_order->lanes = aoticache_shim_lanes(self->tensor, dim);
    return aoticache_shim_read(function, self, self->tensor->dtype, &ret_order->source);
}

static void order_close(struct order *order)
{
    aoticache_shim_handle_cleanup(&order->source);
    aoticache_shim_handle_cleanup(&order->values);
    aoticache_shim_handle_cleanup(&order->places);
}

#define cleanup_order __attribute__((cleanup(order_close)))

static AOTITorchError make_results(const char *function, struct order *order, int64_t ndim, const int64_t *sizes)
{
    SHIM_TRY(aoticache_shim_make(function, ndim, sizes, order->source->tensor->dtype, &order->values));
    return aoticache_shim_make(function, ndim, sizes, AOTICACHE_DTYPE_INT64, &order->places);
}

static void run_part(void *user, int part)
{
    const struct order *order = user;
    const struct shim_lanes lanes = order->lanes;
    const int64_t count = lanes.outer * lanes.inner;
    const int64_t end = shim_part_begin(count, order->parts, part + 1);
    for (int64_t lane = shim_part_begin(count, order->parts, part); lane < end; lane++) {
        const int64_t outer = lane / lanes.inner, inner = lane % lanes.inner;
        order->run(order, outer * lanes.length * lanes.inner + inner, outer * order->kept * lanes.inner + inner,
                   order->memory + (size_t)part * order->step);
    }
}

/* Runs `run` on every lane. work: the cost of an element, in multiplications. */
static AOTITorchError run_lanes(const char *function, struct order *order, double work)
{
    const struct shim_lanes lanes = order->lanes;
    size_t all, bytes;
    if (order->values->tensor->numel == 0)
        return SHIM_SUCCESS;
    order->parts = aoticache_shim_parts((double)order->source->tensor->numel * work, lanes.outer * lanes.inner);
    if (__builtin_mul_overflow((size_t)order->room, 2 * sizeof(struct shim_key_item), &order->step) ||
        __builtin_mul_overflow(order->step, (size_t)order->parts, &all))
        return aoticache_shim_fail_memory(function, SIZE_MAX);
    order->memory = aoticache_shim_large_take(all, &bytes);
    if (order->memory == NULL)
        return aoticache_shim_fail_memory(function, all);
    aoticache_shim_parallel(order->parts, run_part, order);
    aoticache_shim_large_give(order->memory, bytes);
    return SHIM_SUCCESS;
}

/* ---- functions for one lane ---- */

static inline __attribute__((always_inline)) void take_items(const struct order *order, int64_t first, int64_t to,
                                                             const struct shim_key_item *items, int64_t count,
                                                             size_t bytes)
{
    const int64_t step = order->lanes.inner;
    const char *source = (const char *)order->source->tensor->data + (size_t)first * bytes;
    char *values = (char *)order->values->tensor->data + (size_t)to * bytes;
    int64_t *places = (int64_t *)order->places->tensor->data + to;
    for (int64_t i = 0; i < count; i++) {
        memcpy(values + (size_t)(i * step) * bytes, source + (size_t)(items[i].place * step) * bytes, bytes);
        places[i * step] = items[i].place;
    }
}

/* Writes the results of a lane: the elements of these items. */
static void take(const struct order *order, int64_t first, int64_t to, const struct shim_key_item *items, int64_t count)
{
    switch (order->source->tensor->item_bytes) {
    case 1:
        take_items(order, first, to, items, count, 1);
        break;
    case 2:
        take_items(order, first, to, items, count, 2);
        break;
    case 4:
        take_items(order, first, to, items, count, 4);
        break;
    default:
        take_items(order, first, to, items, count, 8);
    }
}

/* Reads keys of a lane from its element `begin` on. */
static void read_keys(const struct order *order, int64_t first, int64_t begin, int64_t count, uint64_t *ret_keys)
{
    const ptrdiff_t item_bytes = (ptrdiff_t)order->source->tensor->item_bytes, step = order->lanes.inner;
    aoticache_shim_keys_read(&order->keys, count,
                             (const char *)order->source->tensor->data + (first + begin * step) * item_bytes,
                             step * item_bytes, ret_keys);
}

/* Keys that are processed together. */
enum { CHUNK = 4 * SHIM_KEY_BLOCK };

static int64_t chunk_of(const struct order *order, int64_t begin)
{
    return order->lanes.length - begin < CHUNK ? order->lanes.length - begin : CHUNK;
}

static struct shim_key_item *sorted_items(const struct order *order, int64_t first, void *memory)
{
    struct shim_key_item *const items = memory;
    uint64_t keys[CHUNK];
    for (int64_t begin = 0; begin < order->lanes.length; begin += CHUNK) {
        const int64_t count = chunk_of(order, begin);
        read_keys(order, first, begin, count, keys);
        for (int64_t i = 0; i < count; i++)
            items[begin + i] = (struct shim_key_item){keys[i], begin + i};
    }
    aoticache_shim_items_sort(items, items + order->room, order->lanes.length);
    return items;
}

static void sort_lane(const struct order *order, int64_t first, int64_t to, void *memory)
{
    take(order, first, to, sorted_items(order, first, memory), order->kept);
}

/*
 * Collects the first `kept` of a lane. When the memory is full, only the first `kept` of the collected items stay. From
 * then on only keys below the largest of these are collected: equal ones come later in the order.
 */
static void top_lane(const struct order *order, int64_t first, int64_t to, void *memory)
{
    struct shim_key_item *const items = memory, *const spare = items + order->room;
    int64_t held = 0;
    uint64_t keys[CHUNK], most = UINT64_MAX;
    for (int64_t begin = 0; begin < order->lanes.length; begin += CHUNK) {
        const int64_t count = chunk_of(order, begin);
        read_keys(order, first, begin, count, keys);
        for (int64_t i = 0; i < count; i++) {
            if (keys[i] > most)
                continue;
            items[held++] = (struct shim_key_item){keys[i], begin + i};
            if (held < order->room)
                continue;
            aoticache_shim_items_sort(items, spare, held);
            held = order->kept;
            most = items[held - 1].key - 1; /* wraps below 0, then everything is collected: sorting drops it */
        }
    }
    aoticache_shim_items_sort(items, spare, held);
    take(order, first, to, items, order->kept);
}

/* Takes the most frequent element, the smallest if there are several, with its last position. */
static void mode_lane(const struct order *order, int64_t first, int64_t to, void *memory)
{
    const struct shim_key_item *const items = sorted_items(order, first, memory);
    int64_t best = 0, best_count = 0, begin = 0;
    for (int64_t i = 1; i <= order->lanes.length; i++) {
        if (i < order->lanes.length && items[i].key == items[begin].key)
            continue;
        if (i - begin > best_count) {
            best_count = i - begin;
            best = i - 1;
        }
        begin = i;
    }
    take(order, first, to, &items[best], 1);
}

/*
 * Returns the rank of the lower of the two middle elements. If the lane has a NaN, returns the rank of the first NaN
 * instead; with skip_nan, only if the lane has nothing but NaN. NaN is last.
 */
static int64_t rank_of_median(const struct order *order, const uint64_t *keys)
{
    int64_t numbers = order->lanes.length;
    for (int64_t i = 0; order->keys.has_nan && i < order->lanes.length; i++)
        numbers -= keys[i] == order->keys.nan;
    if (numbers == 0 || (!order->skip_nan && numbers < order->lanes.length))
        return numbers;
    return (numbers - 1) / 2;
}

/* Takes the element at a rank: among equal ones the one that sorting would put there. */
static void rank_lane(const struct order *order, int64_t first, int64_t to, void *memory)
{
    uint64_t *const keys = memory, *const spare = keys + 2 * order->room;
    int64_t equals, place = 0;
    read_keys(order, first, 0, order->lanes.length, keys);
    const int64_t rank = order->is_median ? rank_of_median(order, keys) : order->rank;
    const uint64_t key = aoticache_shim_keys_select(keys, spare, order->lanes.length, rank, &equals);
    while (keys[place] != key || equals-- > 0)
        place++;
    take(order, first, to, &(struct shim_key_item){key, place}, 1);
}

/* Costs of an element; a multiplication costs 1. */
enum { SORT_WORK = 250, RANK_WORK = 80, TOP_WORK = 30 };

/* ---- the first elements of every lane ---- */

/* Sorts the first `kept` of every lane. */
static AOTITorchError sort_first(const char *function, AtenTensorHandle self, int dim, int64_t kept, bool descending,
                                 AtenTensorHandle *ret_values, AtenTensorHandle *ret_places)
{
    cleanup_order struct order order = {.kept = kept};
    int64_t sizes[SHIM_MAX_NDIM];
    const struct shim_tensor *tensor = self->tensor;
    SHIM_TRY(order_open(function, self, dim, descending, &order));
    for (int d = 0; d < tensor->ndim; d++)
        sizes[d] = d == dim ? kept : tensor->sizes[d];
    SHIM_TRY(make_results(function, &order, tensor->ndim, sizes));
    const bool few = kept < order.lanes.length / 4;
    order.run = few ? top_lane : sort_lane;
    order.room = few ? 2 * kept + 1 : order.lanes.length;
    SHIM_TRY(run_lanes(function, &order, few ? TOP_WORK : SORT_WORK));
    *ret_values = shim_steal(&order.values);
    *ret_places = shim_steal(&order.places);
    return SHIM_SUCCESS;
}

/* Gives a contiguous tensor, which it takes over, the order that self's dimensions have in memory. */
static AOTITorchError lay_out_like(const char *function, AtenTensorHandle self, AtenTensorHandle *contiguous,
                                   AtenTensorHandle *ret_tensor)
{
    cleanup_tensor AtenTensorHandle made = NULL;
    const struct shim_tensor *tensor = (*contiguous)->tensor;
    int64_t strides[SHIM_MAX_NDIM];
    aoticache_shim_dense_strides(self->tensor, strides);
    if (memcmp(strides, tensor->strides, (size_t)tensor->ndim * sizeof *strides) != 0) {
        SHIM_TRY(aoticache_shim_make_like(function, self, tensor->dtype, &made));
        SHIM_TRY(aoti_torch_copy_(made, *contiguous, 0));
    }
    *ret_tensor = made != NULL ? shim_steal(&made) : shim_steal(contiguous);
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
    SHIM_TRY(lay_out_like(function, self, &sorted, &values));
    SHIM_TRY(lay_out_like(function, self, &from, &places));
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
    (void)stable; /* sorting is always stable */
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_CHECK_RESULT(ret_1);
    return sort_all(__func__, self, dim, descending != 0, ret_0, ret_1);
}

AOTITorchError aoti_torch_cpu_topk(AtenTensorHandle self, int64_t k, int64_t dim, int32_t largest, int32_t sorted,
                                   AtenTensorHandle *ret_0, AtenTensorHandle *ret_1)
{
    int at;
    (void)sorted; /* unsorted results may be in any order, so they are returned sorted too */
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_CHECK_RESULT(ret_1);
    SHIM_TRY(aoticache_shim_wrap_dimension(__func__, self->tensor->ndim, dim, &at));
    int64_t length = self->tensor->ndim > 0 ? self->tensor->sizes[at] : 1;
    if (k < 0 || k > length)
        return aoticache_shim_fail("%s: cannot select the first %lld of %lld elements", __func__, (long long)k,
                                   (long long)length);
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

/*
 * Returns the number of items that take the memory of a lane's keys in whole blocks. A part has space for two such
 * lists.
 */
static int64_t room_for_keys(int64_t length)
{
    return (length / SHIM_KEY_BLOCK + 1) * (SHIM_KEY_BLOCK / 2);
}

/* Reduces lanes. order: `run` and the fields that it needs are set. */
static AOTITorchError reduce_lanes(const char *function, AtenTensorHandle self, int dim, bool keepdim,
                                   struct order *order, AtenTensorHandle *ret_values, AtenTensorHandle *ret_places)
{
    int64_t sizes[SHIM_MAX_NDIM];
    SHIM_TRY(order_open(function, self, dim, false, order));
    const int64_t ndim = reduced_sizes(self->tensor, dim, keepdim, sizes);
    SHIM_TRY(make_results(function, order, ndim, sizes));
    if (order->lanes.length == 0 && order->values->tensor->numel > 0)
        return aoticache_shim_fail("%s: dimension %d has no elements to choose from", function, dim);
    order->kept = 1;
    const bool by_rank = order->run == rank_lane;
    order->room = by_rank ? room_for_keys(order->lanes.length) : order->lanes.length;
    SHIM_TRY(run_lanes(function, order, by_rank ? RANK_WORK : SORT_WORK));
    *ret_values = shim_steal(&order->values);
    *ret_places = shim_steal(&order->places);
    return SHIM_SUCCESS;
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
        return aoticache_shim_fail("%s: cannot select element %lld of %lld", __func__, (long long)k, (long long)length);
    cleanup_order struct order order = {.run = rank_lane, .rank = k - 1};
    return reduce_lanes(__func__, self, at, keepdim != 0, &order, ret_0, ret_1);
}

AOTITorchError aoti_torch_cpu_mode(AtenTensorHandle self, int64_t dim, int32_t keepdim, AtenTensorHandle *ret_0,
                                   AtenTensorHandle *ret_1)
{
    int at;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_CHECK_RESULT(ret_1);
    SHIM_TRY(aoticache_shim_wrap_dimension(__func__, self->tensor->ndim, dim, &at));
    cleanup_order struct order order = {.run = mode_lane};
    return reduce_lanes(__func__, self, at, keepdim != 0, &order, ret_0, ret_1);
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
    cleanup_order struct order order = {.run = rank_lane, .is_median = true, .skip_nan = skip_nan};
    return reduce_lanes(function, a[0].tensor, at, a[2].integer != 0, &order, &ret[0], &ret[1]);
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
    cleanup_tensor AtenTensorHandle flat = NULL, contiguous = NULL, places = NULL;
    cleanup_order struct order order = {.run = rank_lane, .is_median = true, .skip_nan = skip_nan};
    const struct shim_tensor *tensor = self->tensor;
    const int64_t stride = 1;
    if (tensor->numel == 0)
        return aoticache_shim_fail("%s: the median of an empty tensor is not supported", function);
    SHIM_TRY(aoticache_shim_read(function, self, tensor->dtype, &contiguous));
    SHIM_TRY(aoticache_shim_tensor_view(function, contiguous->tensor, tensor->dtype, 1, &tensor->numel, &stride,
                                        contiguous->tensor->offset, &flat));
    return reduce_lanes(function, flat, 0, false, &order, ret_tensor, &places);
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
