/*
 * shim/indexing/scatter: writes elements of a source to positions that an index names along one dimension: scatter,
 * scatter_reduce, index_reduce.
 *
 * Source: aten/src/ATen/native/TensorAdvancedIndexing.cpp and cpu/ScatterGatherKernel.cpp. `out` may be `self`.
 */
#include "runtime/shim/indexing/indexing_internal.h"

#include "runtime/shim/operators.h"

#include <string.h>

struct scatter {
    const char *function;
    int dim;
    enum shim_reduce reduce;
    bool include_self;
    int32_t dtype; /* of `result` and `source`, used for computing */
    AtenTensorHandle result;
    AtenTensorHandle source; /* of the index's sizes, or larger; or a single number for all */
    AtenTensorHandle index;  /* contiguous int64, with size 1 if all numbers along a dimension are the same */
};

static void scatter_close(struct scatter *scatter)
{
    aoticache_shim_handle_cleanup(&scatter->result);
    aoticache_shim_handle_cleanup(&scatter->source);
    aoticache_shim_handle_cleanup(&scatter->index);
}

#define cleanup_scatter __attribute__((cleanup(scatter_close)))

static int64_t size_at(const struct shim_tensor *tensor, int d)
{
    return tensor->ndim > 0 ? tensor->sizes[d] : 1;
}

/* Returns the stride in bytes. */
static ptrdiff_t stride_at(const struct shim_tensor *tensor, int d)
{
    return tensor->ndim > 0 ? (ptrdiff_t)tensor->strides[d] * tensor->item_bytes : 0;
}

static AOTITorchError check_sizes(const char *function, int dim, const struct shim_tensor *self,
                                  const struct shim_tensor *index, const struct shim_tensor *source)
{
    int ndim = self->ndim > 0 ? self->ndim : 1;
    int index_ndim = index->ndim > 0 ? index->ndim : 1, source_ndim = source->ndim > 0 ? source->ndim : 1;
    bool one_value = source->numel == 1 && source->ndim == 0;
    if (index_ndim != ndim || (!one_value && source_ndim != ndim))
        return aoticache_shim_fail("%s: an index of %d and a source of %d dimensions for a tensor of %d", function,
                                   (int)index->ndim, (int)source->ndim, (int)self->ndim);
    for (int d = 0; d < ndim; d++) {
        if (d != dim && size_at(index, d) > size_at(self, d))
            return aoticache_shim_fail("%s: an index of size %lld at dimension %d, but the tensor has %lld", function,
                                       (long long)size_at(index, d), d, (long long)size_at(self, d));
        if (!one_value && size_at(index, d) > size_at(source, d))
            return aoticache_shim_fail("%s: an index of size %lld at dimension %d, but the source has %lld", function,
                                       (long long)size_at(index, d), d, (long long)size_at(source, d));
    }
    return SHIM_SUCCESS;
}

/* Reads the index, without the repetitions of an expanded one, and checks it. */
static AOTITorchError read_index(struct scatter *scatter, const struct shim_tensor *self, AtenTensorHandle index)
{
    cleanup_tensor AtenTensorHandle view = NULL;
    int64_t sizes[SHIM_MAX_NDIM], number, size = size_at(self, scatter->dim);
    const struct shim_tensor *given = index->tensor;
    for (int d = 0; d < given->ndim; d++)
        sizes[d] = given->strides[d] == 0 && given->sizes[d] > 0 ? 1 : given->sizes[d];
    SHIM_TRY(aoticache_shim_tensor_view(scatter->function, given, given->dtype, given->ndim, sizes, given->strides,
                                        given->offset, &view));
    SHIM_TRY(aoticache_shim_read(scatter->function, view, AOTICACHE_DTYPE_INT64, &scatter->index));
    if (!aoticache_shim_index_check(scatter->index->tensor, 0, size - 1, &number))
        return aoticache_shim_fail("%s: index %lld is outside dimension %d of size %lld", scatter->function,
                                   (long long)number, scatter->dim, (long long)size);
    return SHIM_SUCCESS;
}

/* Appends the dimensions in which the index varies, or those in which it is constant. */
static void add_dims(const struct scatter *scatter, const struct shim_tensor *index, const struct shim_tensor *result,
                     const struct shim_tensor *source, bool is_index, struct shim_walk *walk)
{
    const struct shim_tensor *numbers = scatter->index->tensor;
    for (int d = 0; d < index->ndim; d++) {
        const bool has_numbers = d == scatter->dim || numbers->sizes[d] > 1;
        if (has_numbers == is_index)
            walk->dims[walk->ndim++] = (struct shim_walk_dim){
                .size = index->sizes[d],
                .index = numbers->sizes[d] > 1 ? numbers->strides[d] : 0,
                .place = d == scatter->dim ? 0 : stride_at(result, d),
                .value = source->ndim > 0 ? stride_at(source, d) : 0,
                .is_apart = d != scatter->dim,
            };
    }
}

/* Combines the elements of `result` with those of `source`, both of scatter->dtype. */
static AOTITorchError combine(const struct scatter *scatter, enum shim_reduce reduce, const struct shim_tensor *index,
                              const struct shim_tensor *result, const struct shim_tensor *source)
{
    struct shim_walk walk = {
        .index = scatter->index->tensor->data,
        .scale = stride_at(result, scatter->dim),
        .places = result->data,
        .values = source->data,
    };
    SHIM_TRY(aoticache_shim_combine_select(scatter->function, reduce, scatter->dtype, &walk.combine));
    add_dims(scatter, index, result, source, true, &walk);
    walk.index_ndim = walk.ndim;
    add_dims(scatter, index, result, source, false, &walk);
    aoticache_shim_walk(&walk);
    return SHIM_SUCCESS;
}

/* Makes the content of a position before anything is combined with it. */
static AOTITorchError make_first(const struct scatter *scatter, enum shim_reduce reduce, AtenTensorHandle *ret_number)
{
    SHIM_TRY(aoticache_shim_make(scatter->function, 0, NULL, scatter->dtype, ret_number));
    aoticache_shim_combine_first(reduce, scatter->dtype, (*ret_number)->tensor->data);
    return SHIM_SUCCESS;
}

/* Divides the sums by the number of elements that were added at each position, with or without self's own. */
static AOTITorchError divide(const struct scatter *scatter, const struct shim_tensor *index)
{
    cleanup_tensor AtenTensorHandle counts = NULL, first = NULL, one = NULL;
    SHIM_TRY(make_first(scatter, SHIM_REDUCE_PROD, &one));
    SHIM_TRY(make_first(scatter, SHIM_REDUCE_SUM, &first));
    SHIM_TRY(aoticache_shim_make_like(scatter->function, scatter->result, scatter->dtype, &counts));
    SHIM_TRY(aoti_torch_copy_(counts, scatter->include_self ? one : first, 0));
    SHIM_TRY(combine(scatter, SHIM_REDUCE_SUM, index, counts->tensor, one->tensor));
    aoticache_shim_combine_divide(scatter->dtype, counts->tensor->numel, scatter->result->tensor->data,
                                  counts->tensor->data);
    return SHIM_SUCCESS;
}

static AOTITorchError combine_all(const struct scatter *scatter, const struct shim_tensor *index)
{
    cleanup_tensor AtenTensorHandle first = NULL;
    const struct shim_tensor *result = scatter->result->tensor;
    if (!scatter->include_self) {
        SHIM_TRY(make_first(scatter, scatter->reduce, &first));
        SHIM_TRY(combine(scatter, SHIM_REDUCE_NONE, index, result, first->tensor));
    }
    SHIM_TRY(combine(scatter, scatter->reduce, index, result, scatter->source->tensor));
    return scatter->reduce == SHIM_REDUCE_MEAN ? divide(scatter, index) : SHIM_SUCCESS;
}

static AOTITorchError scatter_out(const char *function, AtenTensorHandle out, AtenTensorHandle self, int64_t dim,
                                  AtenTensorHandle index, AtenTensorHandle source, enum shim_reduce reduce,
                                  bool include_self)
{
    cleanup_scatter struct scatter scatter = {.function = function, .reduce = reduce, .include_self = include_self};
    const AtenTensorHandle all[] = {out, self, index, source};
    for (int i = 0; i < 4; i++)
        if (!shim_is_defined(all[i]))
            return aoticache_shim_fail_undefined(function, all[i]);
    if (out->tensor->dtype != self->tensor->dtype || source->tensor->dtype != self->tensor->dtype)
        return aoticache_shim_fail("%s: the tensors must have the same dtype", function);
    if (index->tensor->dtype != AOTICACHE_DTYPE_INT64 && index->tensor->dtype != AOTICACHE_DTYPE_INT32)
        return aoticache_shim_fail("%s: the index must be int64", function);
    SHIM_TRY(aoticache_shim_wrap_dimension(function, self->tensor->ndim, dim, &scatter.dim));
    if (index->tensor->numel > 0)
        SHIM_TRY(check_sizes(function, scatter.dim, self->tensor, index->tensor, source->tensor));
    scatter.dtype = aoticache_shim_combine_dtype(reduce, self->tensor->dtype);
    SHIM_TRY(read_index(&scatter, self->tensor, index));
    if (source->tensor->dtype == scatter.dtype)
        SHIM_TRY(aoti_torch_new_tensor_handle(source, &scatter.source));
    else
        SHIM_TRY(aoticache_shim_read(function, source, scatter.dtype, &scatter.source));
    const AtenTensorHandle operands[] = {scatter.index, scatter.source};
    SHIM_TRY(aoticache_shim_result_open(function, out, self, scatter.dtype, operands, 2, &scatter.result));
    if (index->tensor->numel > 0)
        SHIM_TRY(combine_all(&scatter, index->tensor));
    return aoticache_shim_write_out(function, out, scatter.result);
}

AOTITorchError aoti_torch_cpu_scatter_src_out(AtenTensorHandle out, AtenTensorHandle self, int64_t dim,
                                              AtenTensorHandle index, AtenTensorHandle src)
{
    return scatter_out(__func__, out, self, dim, index, src, SHIM_REDUCE_NONE, true);
}

AOTITorchError aoti_torch_scatter_out(AtenTensorHandle out, AtenTensorHandle self, int64_t dim, AtenTensorHandle index,
                                      AtenTensorHandle src)
{
    return scatter_out(__func__, out, self, dim, index, src, SHIM_REDUCE_NONE, true);
}

AOTITorchError aoti_torch_cpu_scatter_value_out(AtenTensorHandle out, AtenTensorHandle self, int64_t dim,
                                                AtenTensorHandle index, double value)
{
    cleanup_tensor AtenTensorHandle number = NULL, source = NULL;
    SHIM_CHECK_TENSOR(self);
    SHIM_TRY(aoticache_shim_make(__func__, 0, NULL, AOTICACHE_DTYPE_FLOAT64, &number));
    *(double *)number->tensor->data = value;
    SHIM_TRY(aoticache_shim_read(__func__, number, self->tensor->dtype, &source));
    return scatter_out(__func__, out, self, dim, index, source, SHIM_REDUCE_NONE, true);
}

static AOTITorchError scatter_reduce(const char *function, AtenTensorHandle out, AtenTensorHandle self, int64_t dim,
                                     AtenTensorHandle index, AtenTensorHandle src, const char *reduce,
                                     bool include_self)
{
    enum shim_reduce kind;
    SHIM_TRY(aoticache_shim_reduce_parse(function, reduce, &kind));
    return scatter_out(function, out, self, dim, index, src, kind, include_self);
}

AOTITorchError aoti_torch_cpu_scatter_reduce_two_out(AtenTensorHandle out, AtenTensorHandle self, int64_t dim,
                                                     AtenTensorHandle index, AtenTensorHandle src, const char *reduce,
                                                     int32_t include_self)
{
    return scatter_reduce(__func__, out, self, dim, index, src, reduce, include_self != 0);
}

AOTITorchError aoti_torch_scatter_reduce_out(AtenTensorHandle out, AtenTensorHandle self, int64_t dim,
                                             AtenTensorHandle index, AtenTensorHandle src, const char *reduce,
                                             int32_t include_self)
{
    return scatter_reduce(__func__, out, self, dim, index, src, reduce, include_self != 0);
}

/* Repeats an index of one dimension over the sizes of the source, so that whole slices are written to its positions. */
static AOTITorchError spread_index(const char *function, AtenTensorHandle index, const struct shim_tensor *source,
                                   int dim, AtenTensorHandle *ret_index)
{
    cleanup_tensor AtenTensorHandle places = NULL;
    int64_t sizes[SHIM_MAX_NDIM], strides[SHIM_MAX_NDIM];
    SHIM_TRY(aoticache_shim_read(function, index, AOTICACHE_DTYPE_INT64, &places));
    if (places->tensor->ndim > 1 || places->tensor->numel != size_at(source, dim))
        return aoticache_shim_fail("%s: an index of %lld elements for a source of size %lld", function,
                                   (long long)places->tensor->numel, (long long)size_at(source, dim));
    for (int d = 0; d < source->ndim; d++) {
        sizes[d] = source->sizes[d];
        strides[d] = d == dim;
    }
    return aoticache_shim_tensor_view(function, places->tensor, AOTICACHE_DTYPE_INT64, source->ndim, sizes, strides,
                                      places->tensor->offset, ret_index);
}

AOTITorchError aoti_torch_cpu_index_reduce(AtenTensorHandle self, int64_t dim, AtenTensorHandle index,
                                           AtenTensorHandle source, const char *reduce, int32_t include_self,
                                           AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle places = NULL, result = NULL;
    enum shim_reduce kind;
    int at;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_TENSOR(index);
    SHIM_CHECK_TENSOR(source);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(aoticache_shim_reduce_parse(__func__, reduce, &kind));
    SHIM_TRY(aoticache_shim_wrap_dimension(__func__, source->tensor->ndim, dim, &at));
    if (self->tensor->dtype != source->tensor->dtype)
        return aoticache_shim_fail("%s: the tensors must have the same dtype", __func__);
    SHIM_TRY(spread_index(__func__, index, source->tensor, at, &places));
    SHIM_TRY(aoticache_shim_make(__func__, self->tensor->ndim, self->tensor->sizes, self->tensor->dtype, &result));
    SHIM_TRY(scatter_out(__func__, result, self, dim, places, source, kind, include_self != 0));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}
