/*
 * shim/indexing/index: elements at positions that several index tensors name together: index (reading), index_put
 * (writing).
 *
 * Source: aten/src/ATen/native/IndexingUtils.h and TensorAdvancedIndexing.cpp. Indices are broadcast to each other.
 * Their dimensions replace the indexed dimensions: at the position of the first if these are neighbours, otherwise in
 * front.
 */
#include "runtime/shim/indexing/indexing_internal.h"

#include "runtime/shim/operators.h"

#include <string.h>

struct indexing {
    int count; /* dimensions of self that have an index */
    int dims[SHIM_MAX_NDIM];
    AtenTensorHandle places[SHIM_MAX_NDIM]; /* int64, contiguous, not expanded */
    AtenTensorHandle joined;                /* if there are several indices: the positions that they name together */
    int ndim;                               /* number of dimensions of the indices, broadcast */
    int64_t sizes[SHIM_MAX_NDIM];
    int result_ndim, first; /* first: the indices' first dimension in the result */
    int64_t result_sizes[SHIM_MAX_NDIM];
    int rest[SHIM_MAX_NDIM]; /* for each dimension of the result, that of self; -1: one of the indices */
};

static void indexing_close(struct indexing *indexing)
{
    for (int i = 0; i < indexing->count; i++)
        aoticache_shim_handle_cleanup(&indexing->places[i]);
    aoticache_shim_handle_cleanup(&indexing->joined);
}

#define cleanup_indexing __attribute__((cleanup(indexing_close)))

static AOTITorchError broadcast_index(const char *function, struct indexing *indexing, const struct shim_tensor *index)
{
    int ndim = index->ndim > indexing->ndim ? index->ndim : indexing->ndim;
    int64_t sizes[SHIM_MAX_NDIM];
    for (int d = 0; d < ndim; d++) {
        int old_at = d - (ndim - indexing->ndim), new_at = d - (ndim - index->ndim);
        int64_t old_size = old_at < 0 ? 1 : indexing->sizes[old_at], new_size = new_at < 0 ? 1 : index->sizes[new_at];
        if (old_size != new_size && old_size != 1 && new_size != 1)
            return aoticache_shim_fail("%s: indices of sizes %lld and %lld cannot be broadcast together", function,
                                       (long long)old_size, (long long)new_size);
        sizes[d] = old_size == 1 ? new_size : old_size;
    }
    memcpy(indexing->sizes, sizes, (size_t)ndim * sizeof *sizes);
    indexing->ndim = ndim;
    return SHIM_SUCCESS;
}

/* Adds a mask, which counts as one index for each of its dimensions: the positions at which it is true. */
static AOTITorchError add_mask(const char *function, struct indexing *indexing, const struct shim_tensor *self,
                               AtenTensorHandle mask, int dim)
{
    cleanup_tensor AtenTensorHandle places = NULL;
    const struct shim_tensor *tensor = mask->tensor;
    if (dim + tensor->ndim > self->ndim || tensor->ndim < 1)
        return aoticache_shim_fail("%s: a mask of %d dimensions does not fit at dimension %d of %d", function,
                                   (int)tensor->ndim, dim, (int)self->ndim);
    for (int d = 0; d < tensor->ndim; d++)
        if (tensor->sizes[d] != self->sizes[dim + d])
            return aoticache_shim_fail("%s: a mask of size %lld does not match a dimension of size %lld", function,
                                       (long long)tensor->sizes[d], (long long)self->sizes[dim + d]);
    SHIM_TRY(aoti_torch_cpu_nonzero(mask, &places));
    for (int d = 0; d < tensor->ndim; d++) {
        const struct shim_tensor *all = places->tensor;
        SHIM_TRY(aoticache_shim_tensor_view(function, all, AOTICACHE_DTYPE_INT64, 1, all->sizes, all->strides,
                                            d * all->strides[1], &indexing->places[indexing->count]));
        indexing->dims[indexing->count++] = dim + d;
    }
    return SHIM_SUCCESS;
}

static AOTITorchError add_index(const char *function, struct indexing *indexing, const struct shim_tensor *self,
                                AtenTensorHandle index, int *dim)
{
    int32_t dtype = index->tensor->dtype;
    if (dtype == AOTICACHE_DTYPE_BOOL || dtype == AOTICACHE_DTYPE_UINT8) {
        SHIM_TRY(add_mask(function, indexing, self, index, *dim));
        *dim += index->tensor->ndim;
        return SHIM_SUCCESS;
    }
    if (!aoticache_shim_is_integral(dtype))
        return aoticache_shim_fail_dtype(function, dtype);
    if (*dim >= self->ndim)
        return aoticache_shim_fail("%s: more indices than the %d dimensions", function, (int)self->ndim);
    SHIM_TRY(aoti_torch_new_tensor_handle(index, &indexing->places[indexing->count]));
    indexing->dims[indexing->count++] = (*dim)++;
    return SHIM_SUCCESS;
}

/* Turns an index into numbers that are within the dimension. */
static AOTITorchError finish_index(const char *function, struct indexing *indexing, const struct shim_tensor *self,
                                   int i)
{
    cleanup_tensor AtenTensorHandle numbers = NULL;
    int64_t size = self->sizes[indexing->dims[i]], number;
    SHIM_TRY(aoticache_shim_read(function, indexing->places[i], AOTICACHE_DTYPE_INT64, &numbers));
    if (!aoticache_shim_index_check(numbers->tensor, -size, size - 1, &number))
        return aoticache_shim_fail("%s: index %lld is outside dimension %d of size %lld", function, (long long)number,
                                   indexing->dims[i], (long long)size);
    aoti_torch_delete_tensor_object(indexing->places[i]);
    indexing->places[i] = shim_steal(&numbers);
    return SHIM_SUCCESS;
}

static AOTITorchError shape_result(const char *function, struct indexing *indexing, const struct shim_tensor *self)
{
    bool neighbours = true, indexed[SHIM_MAX_NDIM] = {false};
    for (int i = 0; i < indexing->count; i++) {
        indexed[indexing->dims[i]] = true;
        neighbours = neighbours && (i == 0 || indexing->dims[i] == indexing->dims[i - 1] + 1);
    }
    indexing->first = neighbours && indexing->count > 0 ? indexing->dims[0] : 0;
    if (self->ndim - indexing->count + indexing->ndim > SHIM_MAX_NDIM)
        return aoticache_shim_fail("%s: the result has more than %d dimensions", function, SHIM_MAX_NDIM);
    int at = 0;
    for (int d = 0; d <= self->ndim; d++) {
        if (at == indexing->first && indexing->ndim > 0)
            for (int k = 0; k < indexing->ndim; k++) {
                indexing->result_sizes[at] = indexing->sizes[k];
                indexing->rest[at++] = -1;
            }
        if (d < self->ndim && !indexed[d]) {
            indexing->result_sizes[at] = self->sizes[d];
            indexing->rest[at++] = d;
        }
    }
    indexing->result_ndim = at;
    return SHIM_SUCCESS;
}

/* Opens the indices. An element of `indices` may be NULL if a dimension has none. */
static AOTITorchError indexing_open(const char *function, const struct shim_tensor *self,
                                    const AtenTensorHandle *indices, int64_t count, struct indexing *indexing)
{
    int dim = 0;
    if (count < 0 || count > self->ndim)
        return aoticache_shim_fail("%s: %lld indices for %d dimensions", function, (long long)count, (int)self->ndim);
    for (int64_t i = 0; i < count; i++)
        if (indices[i] == NULL || indices[i]->tensor == NULL)
            dim++;
        else
            SHIM_TRY(add_index(function, indexing, self, indices[i], &dim));
    for (int i = 0; i < indexing->count; i++)
        SHIM_TRY(broadcast_index(function, indexing, indexing->places[i]->tensor));
    for (int i = 0; i < indexing->count; i++)
        SHIM_TRY(finish_index(function, indexing, self, i));
    return shape_result(function, indexing, self);
}

/* Joins several indices into one, which counts elements from self's first one. */
static AOTITorchError join_indices(const char *function, struct indexing *indexing, const struct shim_tensor *self)
{
    cleanup_tensor AtenTensorHandle expanded = NULL;
    SHIM_TRY(aoticache_shim_make(function, indexing->ndim, indexing->sizes, AOTICACHE_DTYPE_INT64, &indexing->joined));
    SHIM_TRY(aoticache_shim_make(function, indexing->ndim, indexing->sizes, AOTICACHE_DTYPE_INT64, &expanded));
    SHIM_TRY(aoti_torch_zero_(indexing->joined));
    int64_t *all = indexing->joined->tensor->data;
    const int64_t *number = expanded->tensor->data;
    for (int i = 0; i < indexing->count; i++) {
        const int64_t size = self->sizes[indexing->dims[i]], stride = self->strides[indexing->dims[i]];
        SHIM_TRY(aoti_torch_copy_(expanded, indexing->places[i], 0));
        for (int64_t k = 0; k < expanded->tensor->numel; k++)
            all[k] += (number[k] + (number[k] < 0 ? size : 0)) * stride;
    }
    return SHIM_SUCCESS;
}

/* Returns the stride, in bytes, of dimension `d` of a tensor that is broadcast to `ndim` dimensions. */
static ptrdiff_t broadcast_stride(const struct shim_tensor *tensor, int ndim, int d)
{
    const int at = d - (ndim - tensor->ndim);
    return at < 0 || tensor->sizes[at] == 1 ? 0 : (ptrdiff_t)tensor->strides[at] * tensor->item_bytes;
}

/* Describes the result's dimensions for a walk, first those of the indices; `values` are broadcast to them. */
static void add_dims(const struct indexing *indexing, const struct shim_tensor *self, const struct shim_tensor *values,
                     bool is_index, struct shim_walk *walk)
{
    for (int d = 0; d < indexing->result_ndim; d++) {
        const int rest = indexing->rest[d];
        if ((rest < 0) != is_index)
            continue;
        walk->dims[walk->ndim++] = (struct shim_walk_dim){
            .size = indexing->result_sizes[d],
            .place = is_index ? 0 : (ptrdiff_t)self->strides[rest] * self->item_bytes,
            .value = broadcast_stride(values, indexing->result_ndim, d),
            .is_apart = !is_index,
        };
    }
}

/* Walks over the elements that the indices name. `self` and `values` have the dtype that `combine` is for. */
static AOTITorchError walk_indices(const char *function, struct indexing *indexing, const struct shim_tensor *self,
                                   const struct shim_tensor *values, shim_combine combine)
{
    static const int64_t first = 0; /* without an index everything is one block */
    struct shim_walk walk = {.combine = combine, .index = &first, .places = self->data, .values = values->data};
    add_dims(indexing, self, values, true, &walk);
    walk.index_ndim = walk.ndim;
    add_dims(indexing, self, values, false, &walk);
    if (indexing->count > 1)
        SHIM_TRY(join_indices(function, indexing, self));
    if (indexing->count > 0) {
        const struct shim_tensor *index = (indexing->count > 1 ? indexing->joined : indexing->places[0])->tensor;
        const bool is_joined = indexing->count > 1;
        walk.index = index->data;
        walk.size = is_joined ? 0 : self->sizes[indexing->dims[0]];
        walk.scale = (is_joined ? 1 : (ptrdiff_t)self->strides[indexing->dims[0]]) * self->item_bytes;
        for (int d = 0; d < walk.index_ndim; d++)
            walk.dims[d].index = index->strides[d];
    }
    aoticache_shim_walk(&walk);
    return SHIM_SUCCESS;
}

/* Checks that `values` has the result's sizes or can be broadcast to them. */
static AOTITorchError check_values(const char *function, const struct indexing *indexing,
                                   const struct shim_tensor *values)
{
    const int missing = indexing->result_ndim - values->ndim;
    if (missing < 0)
        return aoticache_shim_fail("%s: values of %d dimensions for a result of %d", function, (int)values->ndim,
                                   indexing->result_ndim);
    for (int d = 0; d < values->ndim; d++)
        if (values->sizes[d] != 1 && values->sizes[d] != indexing->result_sizes[missing + d])
            return aoticache_shim_fail("%s: values of size %lld at dimension %d; the result has %lld", function,
                                       (long long)values->sizes[d], missing + d,
                                       (long long)indexing->result_sizes[missing + d]);
    return SHIM_SUCCESS;
}

/* Collects optional indices; each is a pointer to a handle, or NULL. */
static AOTITorchError gather_handles(const char *function, const AtenTensorHandle **indices, int64_t count,
                                     AtenTensorHandle *ret_handles)
{
    if (count < 0 || count > SHIM_MAX_NDIM || (count > 0 && indices == NULL))
        return aoticache_shim_fail("%s: %lld indices", function, (long long)count);
    for (int64_t i = 0; i < count; i++)
        ret_handles[i] = shim_optional(indices[i]);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_index_Tensor(AtenTensorHandle self, const AtenTensorHandle **indices, int64_t num_indices,
                                           AtenTensorHandle *ret_0)
{
    cleanup_indexing struct indexing indexing = {0};
    cleanup_tensor AtenTensorHandle result = NULL;
    AtenTensorHandle handles[SHIM_MAX_NDIM];
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(gather_handles(__func__, indices, num_indices, handles));
    SHIM_TRY(indexing_open(__func__, self->tensor, handles, num_indices, &indexing));
    SHIM_TRY(aoticache_shim_make(__func__, indexing.result_ndim, indexing.result_sizes, self->tensor->dtype, &result));
    SHIM_TRY(walk_indices(__func__, &indexing, self->tensor, result->tensor,
                          aoticache_shim_combine_take(self->tensor->item_bytes)));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

static AOTITorchError put_values(const char *function, AtenTensorHandle out, AtenTensorHandle self,
                                 const AtenTensorHandle *indices, int64_t count, AtenTensorHandle values,
                                 bool accumulate)
{
    cleanup_indexing struct indexing indexing = {0};
    cleanup_tensor AtenTensorHandle result = NULL, source = NULL;
    AtenTensorHandle operands[SHIM_MAX_NDIM + 1];
    const enum shim_reduce reduce = accumulate ? SHIM_REDUCE_SUM : SHIM_REDUCE_NONE;
    shim_combine combine;
    if (!shim_is_defined(self) || !shim_is_defined(values))
        return aoticache_shim_fail_undefined(function, shim_is_defined(self) ? values : self);
    if (!shim_is_defined(out))
        return aoticache_shim_fail_undefined(function, out);
    if (values->tensor->dtype != self->tensor->dtype)
        return aoticache_shim_fail("%s: the tensors must have the same dtype", function);
    const int32_t dtype = aoticache_shim_combine_dtype(reduce, self->tensor->dtype);
    SHIM_TRY(aoticache_shim_combine_select(function, reduce, dtype, &combine));
    SHIM_TRY(indexing_open(function, self->tensor, indices, count, &indexing));
    SHIM_TRY(check_values(function, &indexing, values->tensor));
    if (values->tensor->dtype == dtype)
        SHIM_TRY(aoti_torch_new_tensor_handle(values, &source));
    else
        SHIM_TRY(aoticache_shim_read(function, values, dtype, &source));
    memcpy(operands, indexing.places, (size_t)indexing.count * sizeof *operands);
    operands[indexing.count] = source;
    SHIM_TRY(aoticache_shim_result_open(function, out, self, dtype, operands, indexing.count + 1, &result));
    SHIM_TRY(walk_indices(function, &indexing, result->tensor, source->tensor, combine));
    return aoticache_shim_write_out(function, out, result);
}

AOTITorchError aoti_torch_cpu_index_put(AtenTensorHandle self, const AtenTensorHandle **indices, int64_t num_indices,
                                        AtenTensorHandle values, int32_t accumulate, AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle result = NULL;
    AtenTensorHandle handles[SHIM_MAX_NDIM];
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(gather_handles(__func__, indices, num_indices, handles));
    SHIM_TRY(aoticache_shim_make_like(__func__, self, self->tensor->dtype, &result));
    SHIM_TRY(put_values(__func__, result, self, handles, num_indices, values, accumulate != 0));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_index_put_out(AtenTensorHandle out, AtenTensorHandle self, const AtenTensorHandle *indices,
                                        uint32_t num_indices, AtenTensorHandle values, bool accumulate)
{
    if (num_indices > SHIM_MAX_NDIM || (num_indices > 0 && indices == NULL))
        return aoticache_shim_fail("%s: %lu indices", __func__, (unsigned long)num_indices);
    return put_values(__func__, out, self, indices, num_indices, values, accumulate);
}
