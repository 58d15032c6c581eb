/*
 * shim/order/index: elements at places that several tensors of indices name together: index (reading), index_put
 * (writing).
 *
 * Source: aten/src/ATen/native/IndexingUtils.h and TensorAdvancedIndexing.cpp. Indices broadcast among each other; the
 * dimensions they stand for give way to theirs, at the first's place where they are neighbours, else in front.
 */
#include "runtime/shim/order/internal.h"

#include "runtime/shim/operators.h"

#include <string.h>

struct indexing {
    int count; /* dimensions of self that have an index */
    int dims[SHIM_MAX_NDIM];
    AtenTensorHandle places[SHIM_MAX_NDIM]; /* int64, expanded to `sizes`, contiguous */
    int ndim;                               /* of the indices, broadcast */
    int64_t sizes[SHIM_MAX_NDIM];
    int result_ndim, first; /* `first`: where the indices' dimensions begin in the result */
    int64_t result_sizes[SHIM_MAX_NDIM];
    int rest[SHIM_MAX_NDIM]; /* the result's other dimensions: those of self; -1: of the indices */
};

static void indexing_close(struct indexing *indexing)
{
    for (int i = 0; i < indexing->count; i++)
        aoticache_shim_handle_cleanup(&indexing->places[i]);
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
            return aoticache_shim_fail("%s: indices of sizes %lld and %lld do not go together", function,
                                       (long long)old_size, (long long)new_size);
        sizes[d] = old_size == 1 ? new_size : old_size;
    }
    memcpy(indexing->sizes, sizes, (size_t)ndim * sizeof *sizes);
    indexing->ndim = ndim;
    return SHIM_SUCCESS;
}

/* A mask counts as one index for each of its dimensions: the places where it is true. */
static AOTITorchError add_mask(const char *function, struct indexing *indexing, const struct shim_tensor *self,
                               AtenTensorHandle mask, int dim)
{
    cleanup_tensor AtenTensorHandle places = NULL;
    const struct shim_tensor *tensor = mask->tensor;
    if (dim + tensor->ndim > self->ndim || tensor->ndim < 1)
        return aoticache_shim_fail("%s: a mask of %d dimensions from dimension %d of %d on", function,
                                   (int)tensor->ndim, dim, (int)self->ndim);
    for (int d = 0; d < tensor->ndim; d++)
        if (tensor->sizes[d] != self->sizes[dim + d])
            return aoticache_shim_fail("%s: a mask of size %lld for a dimension of size %lld", function,
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

/* Expands an index, counts it from the beginning of the dimension and checks that it lies within. */
static AOTITorchError finish_index(const char *function, struct indexing *indexing, const struct shim_tensor *self,
                                   int i)
{
    cleanup_tensor AtenTensorHandle made = NULL;
    int64_t size = self->sizes[indexing->dims[i]];
    SHIM_TRY(aoticache_shim_make(function, indexing->ndim, indexing->sizes, AOTICACHE_DTYPE_INT64, &made));
    SHIM_TRY(aoti_torch_copy_(made, indexing->places[i], 0));
    int64_t *place = made->tensor->data;
    for (int64_t k = 0; k < made->tensor->numel; k++) {
        if (place[k] < -size || place[k] >= size)
            return aoticache_shim_fail("%s: index %lld is outside dimension %d of size %lld", function,
                                       (long long)place[k], indexing->dims[i], (long long)size);
        place[k] += place[k] < 0 ? size : 0;
    }
    aoti_torch_delete_tensor_object(indexing->places[i]);
    indexing->places[i] = shim_steal(&made);
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

/* `indices` may be NULL where a dimension has none. */
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

/* Returns the place in a contiguous self of element `position` of the result. */
static int64_t place_in_self(const struct indexing *indexing, const struct shim_tensor *self, int64_t position)
{
    int64_t at[SHIM_MAX_NDIM] = {0}, index_at = 0, index_step = 1, place = 0;
    for (int d = indexing->result_ndim - 1; d >= 0; d--) {
        int64_t coordinate = position % indexing->result_sizes[d];
        position /= indexing->result_sizes[d];
        if (indexing->rest[d] >= 0) {
            at[indexing->rest[d]] = coordinate;
        } else {
            index_at += coordinate * index_step;
            index_step *= indexing->result_sizes[d];
        }
    }
    for (int i = 0; i < indexing->count; i++)
        at[indexing->dims[i]] = ((const int64_t *)indexing->places[i]->tensor->data)[index_at];
    for (int d = 0; d < self->ndim; d++)
        place = place * self->sizes[d] + at[d];
    return place;
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
    cleanup_tensor AtenTensorHandle values = NULL, result = NULL;
    AtenTensorHandle handles[SHIM_MAX_NDIM];
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(gather_handles(__func__, indices, num_indices, handles));
    SHIM_TRY(indexing_open(__func__, self->tensor, handles, num_indices, &indexing));
    SHIM_TRY(aoticache_shim_read(__func__, self, self->tensor->dtype, &values));
    SHIM_TRY(aoticache_shim_make(__func__, indexing.result_ndim, indexing.result_sizes, self->tensor->dtype, &result));
    uint32_t bytes = self->tensor->item_bytes;
    for (int64_t i = 0; i < result->tensor->numel; i++)
        memcpy((char *)result->tensor->data + (size_t)i * bytes,
               (char *)values->tensor->data + (size_t)place_in_self(&indexing, values->tensor, i) * bytes, bytes);
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

/* Makes a contiguous copy of self, in self's work dtype, with the values put in. */
static AOTITorchError put_values(const char *function, AtenTensorHandle self, const AtenTensorHandle *indices,
                                 int64_t count, AtenTensorHandle values, bool accumulate, AtenTensorHandle *ret_values)
{
    cleanup_indexing struct indexing indexing = {0};
    cleanup_tensor AtenTensorHandle work = NULL, source = NULL;
    if (!shim_is_defined(self) || !shim_is_defined(values))
        return aoticache_shim_fail_undefined(function, shim_is_defined(self) ? values : self);
    int32_t dtype = self->tensor->dtype;
    const struct shim_combiner combiner = {accumulate ? SHIM_REDUCE_SUM : SHIM_REDUCE_NONE, dtype,
                                           aoticache_shim_work_dtype(dtype)};
    if (values->tensor->dtype != dtype)
        return aoticache_shim_fail("%s: tensors of one dtype are needed", function);
    SHIM_TRY(indexing_open(function, self->tensor, indices, count, &indexing));
    SHIM_TRY(aoticache_shim_read_copy(function, self, combiner.work, &work));
    SHIM_TRY(aoticache_shim_make(function, indexing.result_ndim, indexing.result_sizes, combiner.work, &source));
    SHIM_TRY(aoti_torch_copy_(source, values, 0)); /* broadcast */
    for (int64_t i = 0; i < source->tensor->numel; i++)
        aoticache_shim_combine(&combiner, work->tensor->data, place_in_self(&indexing, work->tensor, i),
                               source->tensor->data, i);
    *ret_values = shim_steal(&work);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_index_put(AtenTensorHandle self, const AtenTensorHandle **indices, int64_t num_indices,
                                        AtenTensorHandle values, int32_t accumulate, AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle work = NULL, result = NULL;
    AtenTensorHandle handles[SHIM_MAX_NDIM];
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(gather_handles(__func__, indices, num_indices, handles));
    SHIM_TRY(put_values(__func__, self, handles, num_indices, values, accumulate != 0, &work));
    SHIM_TRY(aoticache_shim_make_like(__func__, self, self->tensor->dtype, &result));
    SHIM_TRY(aoti_torch_copy_(result, work, 0));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_index_put_out(AtenTensorHandle out, AtenTensorHandle self, const AtenTensorHandle *indices,
                                        uint32_t num_indices, AtenTensorHandle values, bool accumulate)
{
    cleanup_tensor AtenTensorHandle work = NULL;
    if (num_indices > SHIM_MAX_NDIM || (num_indices > 0 && indices == NULL))
        return aoticache_shim_fail("%s: %lu indices", __func__, (unsigned long)num_indices);
    SHIM_TRY(put_values(__func__, self, indices, num_indices, values, accumulate, &work));
    return aoticache_shim_write_out(__func__, out, work);
}
