/*
 * shim/elementwise/embedding_bag: rows of a table, summed, averaged or reduced to their largest in bags of indices.
 *
 * Source: aten/src/ATen/native/EmbeddingBag.cpp. The first result is the operator's; the other three serve its
 * gradient, which is not implemented: the bag of each index, the number of indices in each bag, the index of each
 * largest element.
 */
#include "runtime/shim/math/math_internal.h"

#include "base/names.h"
#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <math.h>
#include <string.h>

/* Rows of float tables are prefetched ROWS_AHEAD indices before they are needed. */
enum { ROWS_AHEAD = 8, CACHE_LINE = 64, FLOATS = 4 };

enum { BAG_SUM, BAG_MEAN, BAG_MAX };

struct bags {
    int64_t mode, padding, width, count;
    const struct shim_tensor *table;
    struct shim_conversion to_values; /* float or double */
    bool is_direct;                   /* rows of floats, used in place */
    int parts;
    char *rows;            /* one row of the table for each part, of width floats or doubles */
    const double *weights; /* one for each index, or NULL */
    const int64_t *indices, *offsets;
    int64_t num_indices;
    double *out;              /* for a table of doubles, otherwise NULL */
    float *floats;            /* for any other table, otherwise NULL */
    int64_t *bag_of;          /* bag of each index */
    int64_t *sizes, *largest; /* of each bag; the index of each of its elements */
};

/* ---- a table of floats ---- */

static const float *float_row(const struct bags *bags, int64_t index)
{
    return (const float *)bags->table->data + index * bags->table->strides[0];
}

/*
 * Sums the rows of indices begin to end - 1. It sums enough columns at a time to read whole cache lines of each row,
 * with the sums in registers. The processor cannot predict the addresses of the next rows, so they are prefetched.
 */
#define DEFINE_SUM(name, lanes, attribute)                                                                     \
    typedef float floats_##name __attribute__((vector_size(4 * lanes)));                                       \
    static attribute void sum_rows_##name(const struct bags *bags, int64_t begin, int64_t end, float *out)     \
    {                                                                                                          \
        const int64_t *indices = bags->indices, ahead = bags->num_indices - ROWS_AHEAD;                        \
        int64_t k = 0;                                                                                         \
        for (; k + 4 * lanes <= bags->width; k += 4 * lanes) {                                                 \
            floats_##name sum_0 = {0}, sum_1 = {0}, sum_2 = {0}, sum_3 = {0}, x_0, x_1, x_2, x_3;              \
            for (int64_t i = begin; i < end; i++) {                                                            \
                if (i < ahead)                                                                                 \
                    for (size_t at = 0; at < 4 * lanes * sizeof(float); at += CACHE_LINE)                      \
                        __builtin_prefetch((const char *)(float_row(bags, indices[i + ROWS_AHEAD]) + k) + at); \
                if (indices[i] == bags->padding)                                                               \
                    continue;                                                                                  \
                const float *row = float_row(bags, indices[i]) + k, weight = weight_of(bags, i);               \
                memcpy(&x_0, row, sizeof x_0);                                                                 \
                memcpy(&x_1, row + lanes, sizeof x_1);                                                         \
                memcpy(&x_2, row + 2 * lanes, sizeof x_2);                                                     \
                memcpy(&x_3, row + 3 * lanes, sizeof x_3);                                                     \
                sum_0 += weight * x_0;                                                                         \
                sum_1 += weight * x_1;                                                                         \
                sum_2 += weight * x_2;                                                                         \
                sum_3 += weight * x_3;                                                                         \
            }                                                                                                  \
            memcpy(out + k, &sum_0, sizeof sum_0);                                                             \
            memcpy(out + k + lanes, &sum_1, sizeof sum_1);                                                     \
            memcpy(out + k + 2 * lanes, &sum_2, sizeof sum_2);                                                 \
            memcpy(out + k + 3 * lanes, &sum_3, sizeof sum_3);                                                 \
        }                                                                                                      \
        for (; k + lanes <= bags->width; k += lanes) {                                                         \
            floats_##name sum = {0}, x;                                                                        \
            for (int64_t i = begin; i < end; i++) {                                                            \
                if (indices[i] == bags->padding)                                                               \
                    continue;                                                                                  \
                memcpy(&x, float_row(bags, indices[i]) + k, sizeof x);                                         \
                sum += weight_of(bags, i) * x;                                                                 \
            }                                                                                                  \
            memcpy(out + k, &sum, sizeof sum);                                                                 \
        }                                                                                                      \
        for (; k < bags->width; k++) {                                                                         \
            out[k] = 0;                                                                                        \
            for (int64_t i = begin; i < end; i++)                                                              \
                if (indices[i] != bags->padding)                                                               \
                    out[k] += weight_of(bags, i) * float_row(bags, indices[i])[k];                             \
        }                                                                                                      \
    }

static float weight_of(const struct bags *bags, int64_t i)
{
    return bags->weights != NULL ? (float)bags->weights[i] : 1;
}

DEFINE_SUM(any, 4, )
#ifdef __x86_64__
DEFINE_SUM(avx2, 8, __attribute__((target("avx2,fma"))))
DEFINE_SUM(avx512, 16, __attribute__((target("avx512f,avx2,fma"))))
#endif

static void sum_rows(const struct bags *bags, int64_t begin, int64_t end, float *out)
{
#ifdef __x86_64__
    if (shim_has_avx512())
        sum_rows_avx512(bags, begin, end, out);
    else if (shim_has_avx2())
        sum_rows_avx2(bags, begin, end, out);
    else
#endif
        sum_rows_any(bags, begin, end, out);
}

typedef float floats __attribute__((vector_size(4 * FLOATS)));
typedef int32_t ints __attribute__((vector_size(4 * FLOATS)));
typedef int64_t longs __attribute__((vector_size(8 * FLOATS)));

/* Takes the larger elements. first: all bits are set for the first row of a bag, otherwise none. */
static void take_larger(float *out, int64_t *largest, const float *row, int64_t index, int32_t first)
{
    floats best, x;
    longs from;
    memcpy(&best, out, sizeof best);
    memcpy(&x, row, sizeof x);
    memcpy(&from, largest, sizeof from);
    const ints is_larger = (x > best) | first;
    const longs is_from = __builtin_convertvector(is_larger, longs);
    best = (floats)((is_larger & (ints)x) | (~is_larger & (ints)best));
    from = (is_from & index) | (~is_from & from);
    memcpy(out, &best, sizeof best);
    memcpy(largest, &from, sizeof from);
}

static void take_larger_row(const struct bags *bags, int64_t bag, int64_t index, const float *row)
{
    float *out = bags->floats + bag * bags->width;
    int64_t *largest = bags->largest + bag * bags->width, k = 0;
    const bool first = bags->sizes[bag] == 0;
    for (; k + FLOATS <= bags->width; k += FLOATS)
        take_larger(out + k, largest + k, row + k, index, first ? -1 : 0);
    for (; k < bags->width; k++) {
        if (first || row[k] > out[k]) {
            out[k] = row[k];
            largest[k] = index;
        }
    }
}

static void add_float_row(const struct bags *bags, int64_t bag, float weight, const float *row)
{
    float *out = bags->floats + bag * bags->width;
    int64_t k = 0;
    floats sum, x;
    for (; k + FLOATS <= bags->width; k += FLOATS) {
        memcpy(&sum, out + k, sizeof sum);
        memcpy(&x, row + k, sizeof x);
        sum += weight * x;
        memcpy(out + k, &sum, sizeof sum);
    }
    for (; k < bags->width; k++)
        out[k] += weight * row[k];
}

/* ---- any table: its rows become floats or doubles one by one ---- */

static const void *read_row(const struct bags *bags, int part, int64_t index)
{
    const struct shim_tensor *table = bags->table;
    const int64_t size = aoticache_dtype_size(table->dtype), value_bytes = bags->floats != NULL ? 4 : 8;
    char *row = bags->rows + part * bags->width * value_bytes;
    aoticache_shim_convert_row(&bags->to_values, (size_t)bags->width, row, value_bytes,
                               (const char *)table->data + index * table->strides[0] * size, table->strides[1] * size);
    return row;
}

static void add_double_row(const struct bags *bags, int64_t bag, int64_t i, const double *row)
{
    double *out = bags->out + bag * bags->width;
    const double weight = bags->weights != NULL ? bags->weights[i] : 1;
    const bool first = bags->sizes[bag] == 0;
    for (int64_t k = 0; k < bags->width; k++) {
        if (bags->mode != BAG_MAX) {
            out[k] += weight * row[k];
        } else if (first || row[k] > out[k]) {
            out[k] = row[k];
            bags->largest[bag * bags->width + k] = bags->indices[i];
        }
    }
}

static void add_row(const struct bags *bags, int part, int64_t bag, int64_t i)
{
    const int64_t index = bags->indices[i];
    const void *row = bags->is_direct ? float_row(bags, index) : read_row(bags, part, index);
    if (bags->floats == NULL)
        add_double_row(bags, bag, i, row);
    else if (bags->mode == BAG_MAX)
        take_larger_row(bags, bag, index, row);
    else
        add_float_row(bags, bag, weight_of(bags, i), row);
}

static void divide_bag(const struct bags *bags, int64_t bag)
{
    for (int64_t k = bag * bags->width; k < (bag + 1) * bags->width; k++) {
        if (bags->floats != NULL)
            bags->floats[k] /= (float)bags->sizes[bag];
        else
            bags->out[k] /= (double)bags->sizes[bag];
    }
}

static void fill_bag(const struct bags *bags, int part, int64_t bag)
{
    const int64_t begin = bags->offsets[bag], end = bag + 1 < bags->count ? bags->offsets[bag + 1] : bags->num_indices;
    const bool is_sum_of_floats = bags->is_direct && bags->mode != BAG_MAX;
    for (int64_t i = begin; i < end; i++) {
        bags->bag_of[i] = bag;
        if (bags->indices[i] == bags->padding)
            continue;
        if (!is_sum_of_floats)
            add_row(bags, part, bag, i);
        bags->sizes[bag]++;
    }
    if (is_sum_of_floats)
        sum_rows(bags, begin, end, bags->floats + bag * bags->width);
    if (bags->mode == BAG_MEAN && bags->sizes[bag] > 0)
        divide_bag(bags, bag);
}

static void fill_part(void *user, int part)
{
    const struct bags *bags = user;
    const int64_t end = bags->count * (part + 1) / bags->parts;
    for (int64_t bag = bags->count * part / bags->parts; bag < end; bag++)
        fill_bag(bags, part, bag);
}

static AOTITorchError check_bags(const char *function, const struct bags *bags, int64_t num_offsets)
{
    const int64_t *offsets = bags->offsets, num_indices = bags->num_indices;
    if (bags->mode < BAG_SUM || bags->mode > BAG_MAX)
        return aoticache_shim_fail("%s: mode %lld is not one of 0 to 2", function, (long long)bags->mode);
    if (bags->weights != NULL && bags->mode != BAG_SUM)
        return aoticache_shim_fail("%s: weights are only supported for sums", function);
    for (int64_t i = 0; i < num_indices; i++)
        if (bags->indices[i] < 0 || bags->indices[i] >= bags->table->sizes[0])
            return aoticache_shim_fail("%s: index %lld is outside a table of %lld rows", function,
                                       (long long)bags->indices[i], (long long)bags->table->sizes[0]);
    for (int64_t i = 0; i < num_offsets; i++)
        if (offsets[i] < (i > 0 ? offsets[i - 1] : 0) || offsets[i] > num_indices || (i == 0 && offsets[i] != 0))
            return aoticache_shim_fail("%s: invalid offset %lld of bag %lld", function, (long long)offsets[i],
                                       (long long)i);
    return SHIM_SUCCESS;
}

static AOTITorchError make_zeros(const char *function, int64_t ndim, const int64_t *sizes, int32_t dtype,
                                 AtenTensorHandle *ret_tensor)
{
    SHIM_TRY(aoticache_shim_make(function, ndim, sizes, dtype, ret_tensor));
    return aoti_torch_zero_(*ret_tensor);
}

/*
 * Replaces the side results by those of PyTorch's fast path for sums, which records no bags and counts nothing:
 * `num_zeros` zeros.
 */
static AOTITorchError replace_side_results(const char *function, int64_t mode, bool quick, int64_t num_zeros,
                                           AtenTensorHandle *bag_of, AtenTensorHandle *sizes, AtenTensorHandle *largest)
{
    const int64_t none = 0;
    cleanup_tensor AtenTensorHandle no_bags = NULL, counts = NULL, others = NULL;
    if (mode == BAG_MAX)
        return SHIM_SUCCESS;
    if (mode == BAG_MEAN) {
        SHIM_TRY(aoti_torch_clone(*sizes, &others));
    } else {
        SHIM_TRY(make_zeros(function, 1, &num_zeros, AOTICACHE_DTYPE_INT64, &counts));
        SHIM_TRY(make_zeros(function, 1, &num_zeros, AOTICACHE_DTYPE_INT64, &others));
    }
    if (mode == BAG_SUM && quick)
        SHIM_TRY(make_zeros(function, 1, &none, AOTICACHE_DTYPE_INT64, &no_bags));
    AtenTensorHandle *const old[] = {bag_of, sizes, largest};
    AtenTensorHandle *const fresh[] = {&no_bags, &counts, &others};
    for (size_t i = 0; i < 3; i++)
        if (*fresh[i] != NULL) {
            AtenTensorHandle kept = *old[i];
            *old[i] = *fresh[i];
            *fresh[i] = kept; /* freed on return */
        }
    return SHIM_SUCCESS;
}

/* Returns true if PyTorch adds rows without recording bags (is_fast_path). */
static bool is_quick(const struct shim_tensor *rows, int64_t padding, const AtenTensorHandle weights)
{
    bool dtype = rows->dtype == AOTICACHE_DTYPE_FLOAT32 || rows->dtype == AOTICACHE_DTYPE_FLOAT16 ||
                 rows->dtype == AOTICACHE_DTYPE_BFLOAT16;
    return dtype && padding < 0 && rows->strides[1] == 1 && (weights == NULL || weights->tensor->strides[0] == 1);
}

/*
 * Embeds. The results are out, the bag of each index, the sizes and the largest. With `forward_only` the sizes of sums
 * have an element for each offset, also for a last one that begins no bag; otherwise one for each bag.
 */
static AOTITorchError embed(const char *function, bool forward_only, AtenTensorHandle weight, AtenTensorHandle indices,
                            AtenTensorHandle offsets, int64_t mode, AtenTensorHandle weights, bool last_offset,
                            int64_t padding, AtenTensorHandle ret_results[4])
{
    cleanup_tensor AtenTensorHandle row_of_parts = NULL, places = NULL, starts = NULL, factors = NULL, sums = NULL;
    cleanup_tensor AtenTensorHandle result = NULL, bag_of = NULL, sizes = NULL, largest = NULL;
    if (!shim_is_defined(weight) || !shim_is_defined(indices) || !shim_is_defined(offsets))
        return aoticache_shim_fail_undefined(function, NULL);
    const struct shim_tensor *rows = weight->tensor;
    if (rows->ndim != 2 || indices->tensor->ndim != 1 || offsets->tensor->ndim != 1 ||
        !aoticache_shim_is_floating(rows->dtype))
        return aoticache_shim_fail("%s: a matrix of numbers, and indices and offsets of one dimension are needed",
                                   function);
    SHIM_TRY(aoticache_shim_read(function, indices, AOTICACHE_DTYPE_INT64, &places));
    SHIM_TRY(aoticache_shim_read(function, offsets, AOTICACHE_DTYPE_INT64, &starts));
    if (weights != NULL)
        SHIM_TRY(aoticache_shim_read(function, weights, AOTICACHE_DTYPE_FLOAT64, &factors));
    int64_t num_indices = places->tensor->numel, num_offsets = starts->tensor->numel;
    int64_t count = num_offsets - (last_offset && num_offsets > 0);
    const int64_t shape[2] = {count, rows->sizes[1]};
    const int64_t shape_of_largest[2] = {mode == BAG_MAX ? count : 0, rows->sizes[1]}; /* other modes have none */
    if (factors != NULL && factors->tensor->numel != num_indices)
        return aoticache_shim_fail("%s: %lld weights for %lld indices", function, (long long)factors->tensor->numel,
                                   (long long)num_indices);
    const bool of_floats = rows->dtype != AOTICACHE_DTYPE_FLOAT64;
    const int32_t work = of_floats ? AOTICACHE_DTYPE_FLOAT32 : AOTICACHE_DTYPE_FLOAT64;
    SHIM_TRY(make_zeros(function, 2, shape, work, &sums));
    SHIM_TRY(make_zeros(function, 1, &num_indices, AOTICACHE_DTYPE_INT64, &bag_of));
    SHIM_TRY(make_zeros(function, 1, &count, AOTICACHE_DTYPE_INT64, &sizes));
    SHIM_TRY(make_zeros(function, 2, shape_of_largest, AOTICACHE_DTYPE_INT64, &largest));
    struct bags bags = {
        .mode = mode,
        .padding = padding,
        .width = shape[1],
        .count = count,
        .table = rows,
        .is_direct = rows->dtype == AOTICACHE_DTYPE_FLOAT32 && rows->strides[1] == 1,
        .weights = factors != NULL ? factors->tensor->data : NULL,
        .indices = places->tensor->data,
        .offsets = starts->tensor->data,
        .num_indices = num_indices,
        .out = of_floats ? NULL : sums->tensor->data,
        .floats = of_floats ? sums->tensor->data : NULL,
        .bag_of = bag_of->tensor->data,
        .sizes = sizes->tensor->data,
        .largest = largest->tensor->data,
    };
    if (!aoticache_shim_conversion_select(work, rows->dtype, &bags.to_values))
        return aoticache_shim_fail_dtype(function, rows->dtype);
    SHIM_TRY(check_bags(function, &bags, num_offsets));
    bags.parts = aoticache_shim_parts((double)num_indices * (double)bags.width, count);
    const int64_t row_sizes[2] = {bags.is_direct ? 0 : bags.parts, bags.width};
    SHIM_TRY(aoticache_shim_make(function, 2, row_sizes, work, &row_of_parts));
    bags.rows = row_of_parts->tensor->data;
    aoticache_shim_parallel(bags.parts, fill_part, &bags);
    SHIM_TRY(aoticache_shim_read(function, sums, rows->dtype, &result));
    SHIM_TRY(replace_side_results(function, mode, is_quick(rows, padding, weights), forward_only ? num_offsets : count,
                                  &bag_of, &sizes, &largest));
    ret_results[0] = shim_steal(&result);
    ret_results[1] = shim_steal(&bag_of);
    ret_results[2] = shim_steal(&sizes);
    ret_results[3] = shim_steal(&largest);
    return SHIM_SUCCESS;
}

/* Implements both functions, which differ only in the results for a gradient. */
static AOTITorchError embed_into(const char *function, bool forward_only, AtenTensorHandle weight,
                                 AtenTensorHandle indices, AtenTensorHandle offsets, int64_t mode,
                                 AtenTensorHandle *weights, int32_t last_offset, int64_t padding,
                                 AtenTensorHandle *const ret_results[4])
{
    AtenTensorHandle results[4] = {NULL};
    for (size_t i = 0; i < 4; i++)
        if (ret_results[i] == NULL)
            return aoticache_shim_fail("%s: a pointer for the results is NULL", function);
    SHIM_TRY(embed(function, forward_only, weight, indices, offsets, mode, shim_optional(weights), last_offset != 0,
                   padding, results));
    for (size_t i = 0; i < 4; i++)
        *ret_results[i] = results[i];
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu__embedding_bag(AtenTensorHandle weight, AtenTensorHandle indices,
                                             AtenTensorHandle offsets, int32_t scale_grad_by_freq, int64_t mode,
                                             int32_t sparse, AtenTensorHandle *per_sample_weights,
                                             int32_t include_last_offset, int64_t padding_idx, AtenTensorHandle *ret_0,
                                             AtenTensorHandle *ret_1, AtenTensorHandle *ret_2, AtenTensorHandle *ret_3)
{
    (void)scale_grad_by_freq, (void)sparse; /* for gradients only */
    return embed_into(__func__, false, weight, indices, offsets, mode, per_sample_weights, include_last_offset,
                      padding_idx, (AtenTensorHandle *const[]){ret_0, ret_1, ret_2, ret_3});
}

AOTITorchError aoti_torch_cpu__embedding_bag_forward_only(AtenTensorHandle weight, AtenTensorHandle indices,
                                                          AtenTensorHandle offsets, int32_t scale_grad_by_freq,
                                                          int64_t mode, int32_t sparse,
                                                          AtenTensorHandle *per_sample_weights,
                                                          int32_t include_last_offset, int64_t padding_idx,
                                                          AtenTensorHandle *ret_0, AtenTensorHandle *ret_1,
                                                          AtenTensorHandle *ret_2, AtenTensorHandle *ret_3)
{
    (void)scale_grad_by_freq, (void)sparse; /* for gradients only */
    return embed_into(__func__, true, weight, indices, offsets, mode, per_sample_weights, include_last_offset,
                      padding_idx, (AtenTensorHandle *const[]){ret_0, ret_1, ret_2, ret_3});
}
