/*
 * shim/order/scatter: elements of a source to places that an index names along one dimension: scatter, scatter_reduce,
 * index_reduce.
 *
 * Source: aten/src/ATen/native/TensorAdvancedIndexing.cpp and cpu/ScatterGatherKernel.cpp. All is computed in a copy
 * that is then written to `out`, so `out` may be `self`.
 */
#include "runtime/shim/order/internal.h"

#include "runtime/shim/operators.h"

struct scatter {
    struct shim_combiner combiner;
    int dim;
    bool include_self;
    AtenTensorHandle values; /* what becomes the result */
    AtenTensorHandle source; /* of index's sizes, or larger; a single number for all */
    AtenTensorHandle index;
    AtenTensorHandle counts; /* how many came to each place; NULL where nobody asks */
};

static void scatter_close(struct scatter *scatter)
{
    aoticache_shim_handle_cleanup(&scatter->values);
    aoticache_shim_handle_cleanup(&scatter->source);
    aoticache_shim_handle_cleanup(&scatter->index);
    aoticache_shim_handle_cleanup(&scatter->counts);
}

#define cleanup_scatter __attribute__((cleanup(scatter_close)))

static int64_t size_at(const struct shim_tensor *tensor, int d)
{
    return tensor->ndim > 0 ? tensor->sizes[d] : 1;
}

static AOTITorchError check_sizes(const char *function, const struct scatter *scatter)
{
    const struct shim_tensor *index = scatter->index->tensor, *self = scatter->values->tensor;
    const struct shim_tensor *source = scatter->source->tensor;
    int ndim = self->ndim > 0 ? self->ndim : 1;
    int index_ndim = index->ndim > 0 ? index->ndim : 1, source_ndim = source->ndim > 0 ? source->ndim : 1;
    bool one_value = source->numel == 1 && source->ndim == 0;
    if (index_ndim != ndim || (!one_value && source_ndim != ndim))
        return aoticache_shim_fail("%s: an index of %d and a source of %d dimensions for a tensor of %d", function,
                                   (int)index->ndim, (int)source->ndim, (int)self->ndim);
    for (int d = 0; d < ndim; d++) {
        if (d != scatter->dim && size_at(index, d) > size_at(self, d))
            return aoticache_shim_fail("%s: an index of size %lld at dimension %d, the tensor has %lld", function,
                                       (long long)size_at(index, d), d, (long long)size_at(self, d));
        if (!one_value && size_at(index, d) > size_at(source, d))
            return aoticache_shim_fail("%s: an index of size %lld at dimension %d, the source has %lld", function,
                                       (long long)size_at(index, d), d, (long long)size_at(source, d));
    }
    return SHIM_SUCCESS;
}

static AOTITorchError check_places(const char *function, const struct scatter *scatter)
{
    const struct shim_tensor *index = scatter->index->tensor;
    const int64_t *places = index->data;
    int64_t size = size_at(scatter->values->tensor, scatter->dim);
    for (int64_t i = 0; i < index->numel; i++)
        if (places[i] < 0 || places[i] >= size)
            return aoticache_shim_fail("%s: index %lld is outside dimension %d of size %lld", function,
                                       (long long)places[i], scatter->dim, (long long)size);
    return SHIM_SUCCESS;
}

/* Finds the positions in the tensor (with the index's place along `dim`) and in the source for element `i` of the index. */
static void positions(const struct scatter *scatter, int64_t i, int64_t *ret_to, int64_t *ret_from)
{
    const struct shim_tensor *index = scatter->index->tensor, *self = scatter->values->tensor;
    const struct shim_tensor *source = scatter->source->tensor;
    int64_t to = 0, from = 0, to_stride = 1, from_stride = 1, rest = i;
    for (int d = (index->ndim > 0 ? index->ndim : 1) - 1; d >= 0; d--) {
        int64_t at = rest % size_at(index, d);
        rest /= size_at(index, d);
        to += to_stride * (d == scatter->dim ? ((const int64_t *)index->data)[i] : at);
        from += from_stride * at;
        to_stride *= size_at(self, d);
        from_stride *= source->ndim > 0 ? size_at(source, d) : 1;
    }
    *ret_to = to;
    *ret_from = source->ndim == 0 ? 0 : from;
}

static void scatter_all(struct scatter *scatter)
{
    int64_t to, from;
    void *values = scatter->values->tensor->data;
    int64_t *counts = scatter->counts != NULL ? scatter->counts->tensor->data : NULL;
    int64_t numel = scatter->index->tensor->numel;
    for (int64_t i = 0; !scatter->include_self && i < numel; i++) {
        positions(scatter, i, &to, &from);
        aoticache_shim_combine_first(&scatter->combiner, values, to);
    }
    for (int64_t i = 0; i < numel; i++) {
        positions(scatter, i, &to, &from);
        aoticache_shim_combine(&scatter->combiner, values, to, scatter->source->tensor->data, from);
        if (counts != NULL)
            counts[to]++;
    }
    for (int64_t i = 0; counts != NULL && i < scatter->values->tensor->numel; i++)
        if (counts[i] > 0)
            aoticache_shim_combine_divide(&scatter->combiner, values, i, counts[i] + scatter->include_self);
}

/* Takes the references in `scatter` that are set, adds the others, and writes the result to a tensor of its own. */
static AOTITorchError scatter_run(const char *function, AtenTensorHandle self, int64_t dim, AtenTensorHandle index,
                                  AtenTensorHandle source, enum shim_reduce reduce, bool include_self,
                                  AtenTensorHandle *ret_values)
{
    cleanup_scatter struct scatter scatter = {.include_self = include_self};
    int32_t dtype = self->tensor->dtype;
    scatter.combiner = (struct shim_combiner){reduce, dtype, aoticache_shim_work_dtype(dtype)};
    if (index->tensor->dtype != AOTICACHE_DTYPE_INT64 && index->tensor->dtype != AOTICACHE_DTYPE_INT32)
        return aoticache_shim_fail("%s: the index must be int64", function);
    SHIM_TRY(aoticache_shim_wrap_dimension(function, self->tensor->ndim, dim, &scatter.dim));
    SHIM_TRY(aoticache_shim_read_copy(function, self, scatter.combiner.work, &scatter.values));
    SHIM_TRY(aoticache_shim_read(function, source, scatter.combiner.work, &scatter.source));
    SHIM_TRY(aoticache_shim_read(function, index, AOTICACHE_DTYPE_INT64, &scatter.index));
    if (index->tensor->numel > 0) {
        SHIM_TRY(check_sizes(function, &scatter));
        SHIM_TRY(check_places(function, &scatter));
    }
    if (reduce == SHIM_REDUCE_MEAN) {
        SHIM_TRY(aoticache_shim_make(function, self->tensor->ndim, self->tensor->sizes, AOTICACHE_DTYPE_INT64,
                                     &scatter.counts));
        SHIM_TRY(aoti_torch_zero_(scatter.counts));
    }
    scatter_all(&scatter);
    *ret_values = shim_steal(&scatter.values);
    return SHIM_SUCCESS;
}

static AOTITorchError scatter_out(const char *function, AtenTensorHandle out, AtenTensorHandle self, int64_t dim,
                                  AtenTensorHandle index, AtenTensorHandle source, enum shim_reduce reduce,
                                  bool include_self)
{
    cleanup_tensor AtenTensorHandle values = NULL;
    const AtenTensorHandle all[] = {out, self, index, source};
    for (int i = 0; i < 4; i++)
        if (!shim_is_defined(all[i]))
            return aoticache_shim_fail_undefined(function, all[i]);
    if (out->tensor->dtype != self->tensor->dtype || source->tensor->dtype != self->tensor->dtype)
        return aoticache_shim_fail("%s: tensors of one dtype are needed", function);
    SHIM_TRY(scatter_run(function, self, dim, index, source, reduce, include_self, &values));
    return aoticache_shim_write_out(function, out, values);
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

/* Repeats an index of one dimension over the sizes of the source, so that whole slices go where it says. */
static AOTITorchError spread_index(const char *function, AtenTensorHandle index, const struct shim_tensor *source,
                                   int dim, AtenTensorHandle *ret_index)
{
    cleanup_tensor AtenTensorHandle places = NULL, view = NULL, made = NULL;
    int64_t sizes[SHIM_MAX_NDIM], strides[SHIM_MAX_NDIM];
    SHIM_TRY(aoticache_shim_read(function, index, AOTICACHE_DTYPE_INT64, &places));
    if (places->tensor->ndim > 1 || places->tensor->numel != size_at(source, dim))
        return aoticache_shim_fail("%s: an index of %lld elements for a source of size %lld", function,
                                   (long long)places->tensor->numel, (long long)size_at(source, dim));
    for (int d = 0; d < source->ndim; d++) {
        sizes[d] = source->sizes[d];
        strides[d] = d == dim;
    }
    SHIM_TRY(aoticache_shim_tensor_view(function, places->tensor, AOTICACHE_DTYPE_INT64, source->ndim, sizes, strides,
                                        places->tensor->offset, &view));
    SHIM_TRY(aoticache_shim_make(function, source->ndim, sizes, AOTICACHE_DTYPE_INT64, &made));
    SHIM_TRY(aoti_torch_copy_(made, view, 0));
    *ret_index = shim_steal(&made);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_index_reduce(AtenTensorHandle self, int64_t dim, AtenTensorHandle index,
                                           AtenTensorHandle source, const char *reduce, int32_t include_self,
                                           AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle places = NULL, values = NULL, result = NULL;
    enum shim_reduce kind;
    int at;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_TENSOR(index);
    SHIM_CHECK_TENSOR(source);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(aoticache_shim_reduce_parse(__func__, reduce, &kind));
    SHIM_TRY(aoticache_shim_wrap_dimension(__func__, source->tensor->ndim, dim, &at));
    if (self->tensor->dtype != source->tensor->dtype)
        return aoticache_shim_fail("%s: tensors of one dtype are needed", __func__);
    SHIM_TRY(spread_index(__func__, index, source->tensor, at, &places));
    SHIM_TRY(scatter_run(__func__, self, dim, places, source, kind, include_self != 0, &values));
    SHIM_TRY(aoticache_shim_make(__func__, self->tensor->ndim, self->tensor->sizes, self->tensor->dtype, &result));
    SHIM_TRY(aoti_torch_copy_(result, values, 0));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}
