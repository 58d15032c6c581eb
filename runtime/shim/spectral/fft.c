/*
 * shim/spectral/fft: Fourier transforms along one or several dimensions: complex to complex, real to complex, complex to
 * real.
 *
 * Source: aten/src/ATen/native/SpectralOps.cpp and mkl/SpectralOps.cpp for meanings, and torch/_meta_registrations.py
 * for the strides of results, on which generated code relies: dimensions that are not transformed are outermost, by
 * falling stride of the input, then come the transformed ones. Everything is computed in double. pocketfft transforms
 * the rows.
 */
#include "runtime/shim/math/math_internal.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"
#include "third_party/pocketfft/pocketfft.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* A pair of doubles, as in pocketfft. */
struct fft_number {
    double re, im;
};

/* ---- tensors ---- */

enum { NORMALIZE_NOT, NORMALIZE_BY_ROOT, NORMALIZE_BY_COUNT };

/* Transformed dimensions, counted from 0, in the given order. */
struct transform {
    int count;
    int dims[SHIM_MAX_NDIM];
};

static AOTITorchError read_dims(const char *function, const struct shim_tensor *tensor, const int64_t *dim,
                                int64_t num_dim, struct transform *ret_transform)
{
    bool taken[SHIM_MAX_NDIM] = {false};
    if (num_dim < 0 || num_dim > tensor->ndim || (num_dim > 0 && dim == NULL))
        return aoticache_shim_fail("%s: %lld dimensions for a tensor with %d", function, (long long)num_dim,
                                   (int)tensor->ndim);
    ret_transform->count = (int)num_dim;
    for (int64_t i = 0; i < num_dim; i++) {
        int at = 0;
        SHIM_TRY(aoticache_shim_wrap_dimension(function, tensor->ndim, dim[i], &at));
        if (taken[at])
            return aoticache_shim_fail("%s: dimension %d is given twice", function, at);
        if (tensor->sizes[at] < 1)
            return aoticache_shim_fail("%s: dimension %d has no elements to transform", function, at);
        taken[at] = true;
        ret_transform->dims[i] = at;
    }
    return SHIM_SUCCESS;
}

/* Sorts dimensions by falling stride; the sort is stable. */
static void sort_by_stride(const struct shim_tensor *tensor, int *dims, int count)
{
    for (int i = 1; i < count; i++) {
        int moving = dims[i], at = i;
        for (; at > 0 && tensor->strides[dims[at - 1]] < tensor->strides[moving]; at--)
            dims[at] = dims[at - 1];
        dims[at] = moving;
    }
}

static AOTITorchError make_result(const char *function, const struct shim_tensor *self,
                                  const struct transform *transform, int sorted, const int64_t *sizes, int32_t dtype,
                                  AtenTensorHandle *ret_tensor)
{
    int order[SHIM_MAX_NDIM], count = 0;
    int64_t strides[SHIM_MAX_NDIM], stride = 1;
    for (int d = 0; d < self->ndim; d++) {
        bool transformed = false;
        for (int i = 0; i < transform->count; i++)
            transformed |= transform->dims[i] == d;
        if (!transformed)
            order[count++] = d;
    }
    sort_by_stride(self, order, count);
    for (int i = 0; i < transform->count; i++)
        order[count + i] = transform->dims[i];
    sort_by_stride(self, order + count, sorted);
    for (int i = self->ndim - 1; i >= 0; i--) {
        strides[order[i]] = stride;
        stride *= sizes[order[i]] > 0 ? sizes[order[i]] : 1;
    }
    return aoticache_shim_tensor_empty(function, self->ndim, sizes, strides, dtype, ret_tensor);
}

/* Adjacent lanes that are transformed together: this many numbers share a cache line. */
enum { LANES_TOGETHER = 4 };

struct lanes_job {
    cfft_plan plan;
    struct fft_number *data, *rows; /* rows: LANES_TOGETHER for each part */
    struct shim_lanes lanes;
    int64_t groups; /* of adjacent lanes */
    bool forward;
    _Atomic int64_t next;
    atomic_bool is_out_of_memory;
};

static int transform_row(const struct lanes_job *job, struct fft_number *row)
{
    return job->forward ? cfft_forward(job->plan, &row->re, 1) : cfft_backward(job->plan, &row->re, 1);
}

/* Transforms a group through copies with contiguous numbers. */
static bool transform_group(const struct lanes_job *job, struct fft_number *first, int64_t count,
                            struct fft_number *rows)
{
    const int64_t length = job->lanes.length, step = job->lanes.inner;
    for (int64_t i = 0; i < length; i++)
        for (int64_t lane = 0; lane < count; lane++)
            rows[lane * length + i] = first[i * step + lane];
    for (int64_t lane = 0; lane < count; lane++)
        if (transform_row(job, rows + lane * length) != 0)
            return false;
    for (int64_t i = 0; i < length; i++)
        for (int64_t lane = 0; lane < count; lane++)
            first[i * step + lane] = rows[lane * length + i];
    return true;
}

static void transform_groups(void *user, int part)
{
    struct lanes_job *job = user;
    const struct shim_lanes *lanes = &job->lanes;
    struct fft_number *rows = job->rows + (int64_t)part * LANES_TOGETHER * lanes->length;
    for (int64_t next; (next = atomic_fetch_add(&job->next, 1)) < lanes->outer * job->groups;) {
        const int64_t inner = next % job->groups * LANES_TOGETHER, left = lanes->inner - inner;
        struct fft_number *first = job->data + next / job->groups * lanes->length * lanes->inner + inner;
        bool is_done = lanes->inner == 1
                           ? transform_row(job, first) == 0
                           : transform_group(job, first, left < LANES_TOGETHER ? left : LANES_TOGETHER, rows);
        if (!is_done)
            atomic_store(&job->is_out_of_memory, true);
    }
}

/* Transforms along one dimension of a contiguous tensor of complex128, without a factor. */
static AOTITorchError transform_dim(const char *function, AtenTensorHandle values, int dim, bool forward)
{
    struct lanes_job job = {
        .data = values->tensor->data, .lanes = aoticache_shim_lanes(values->tensor, dim), .forward = forward};
    const int64_t length = job.lanes.length;
    if (values->tensor->numel == 0 || length == 1)
        return SHIM_SUCCESS;
    job.groups = (job.lanes.inner + LANES_TOGETHER - 1) / LANES_TOGETHER;
    const double work = 4 * (double)values->tensor->numel * log2((double)length);
    const int parts = aoticache_shim_parts(work, job.lanes.outer * job.groups);
    const size_t row_bytes = (size_t)length * sizeof *job.rows;
    size_t bytes = (size_t)parts * LANES_TOGETHER * row_bytes;
    job.plan = make_cfft_plan((size_t)length);
    job.rows = aoticache_shim_large_take(bytes, &bytes);
    bool is_ready = job.plan != NULL && job.rows != NULL;
    if (is_ready)
        aoticache_shim_parallel(parts, transform_groups, &job);
    if (job.plan != NULL)
        destroy_cfft_plan(job.plan);
    aoticache_shim_large_give(job.rows, bytes);
    return is_ready && !atomic_load(&job.is_out_of_memory) ? SHIM_SUCCESS
                                                           : aoticache_shim_fail_memory(function, row_bytes);
}

static AOTITorchError scale(const char *function, AtenTensorHandle values, double count, int64_t normalization)
{
    double factor = 1;
    if (normalization < NORMALIZE_NOT || normalization > NORMALIZE_BY_COUNT)
        return aoticache_shim_fail("%s: normalization %lld is not one of 0 to 2", function, (long long)normalization);
    if (normalization != NORMALIZE_NOT)
        factor = normalization == NORMALIZE_BY_ROOT ? 1 / sqrt(count) : 1 / count;
    struct fft_number *data = values->tensor->data;
    for (int64_t i = 0; factor != 1 && i < values->tensor->numel; i++) {
        data[i].re *= factor;
        data[i].im *= factor;
    }
    return SHIM_SUCCESS;
}

static double signal_count(const struct transform *transform, const int64_t *sizes)
{
    double count = 1;
    for (int i = 0; i < transform->count; i++)
        count *= (double)sizes[transform->dims[i]];
    return count;
}

AOTITorchError aoti_torch_cpu__fft_c2c(AtenTensorHandle self, const int64_t *dim, int64_t num_dim,
                                       int64_t normalization, int32_t forward, AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle values = NULL, result = NULL;
    struct transform transform;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    const struct shim_tensor *tensor = self->tensor;
    if (!aoticache_shim_is_complex(tensor->dtype))
        return aoticache_shim_fail_dtype(__func__, tensor->dtype);
    if (num_dim == 0)
        return aoti_torch_clone(self, ret_0);
    SHIM_TRY(read_dims(__func__, tensor, dim, num_dim, &transform));
    SHIM_TRY(make_result(__func__, tensor, &transform, transform.count, tensor->sizes, tensor->dtype, &result));
    SHIM_TRY(aoticache_shim_read_copy(__func__, self, AOTICACHE_DTYPE_COMPLEX128, &values));
    for (int i = 0; i < transform.count; i++)
        SHIM_TRY(transform_dim(__func__, values, transform.dims[i], forward != 0));
    SHIM_TRY(scale(__func__, values, signal_count(&transform, tensor->sizes), normalization));
    SHIM_TRY(aoti_torch_copy_(result, values, 0));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

static int32_t complex_of(int32_t dtype)
{
    return dtype == AOTICACHE_DTYPE_FLOAT64   ? AOTICACHE_DTYPE_COMPLEX128
           : dtype == AOTICACHE_DTYPE_FLOAT16 ? AOTICACHE_DTYPE_COMPLEX32
                                              : AOTICACHE_DTYPE_COMPLEX64;
}

AOTITorchError aoti_torch_cpu__fft_r2c(AtenTensorHandle self, const int64_t *dim, int64_t num_dim,
                                       int64_t normalization, int32_t onesided, AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle values = NULL, kept = NULL, result = NULL;
    struct transform transform;
    int64_t sizes[SHIM_MAX_NDIM];
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    const struct shim_tensor *tensor = self->tensor;
    if (tensor->dtype != AOTICACHE_DTYPE_FLOAT32 && tensor->dtype != AOTICACHE_DTYPE_FLOAT64 &&
        tensor->dtype != AOTICACHE_DTYPE_FLOAT16)
        return aoticache_shim_fail_dtype(__func__, tensor->dtype);
    SHIM_TRY(read_dims(__func__, tensor, dim, num_dim, &transform));
    if (transform.count == 0)
        return aoticache_shim_fail("%s: no dimension is given", __func__);
    int last = transform.dims[transform.count - 1];
    memcpy(sizes, tensor->sizes, (size_t)tensor->ndim * sizeof *sizes);
    if (onesided != 0)
        sizes[last] = sizes[last] / 2 + 1;
    SHIM_TRY(make_result(__func__, tensor, &transform, transform.count - 1, sizes, complex_of(tensor->dtype), &result));
    SHIM_TRY(aoticache_shim_read_copy(__func__, self, AOTICACHE_DTYPE_COMPLEX128, &values));
    for (int i = transform.count - 1; i >= 0; i--)
        SHIM_TRY(transform_dim(__func__, values, transform.dims[i], true));
    SHIM_TRY(scale(__func__, values, signal_count(&transform, tensor->sizes), normalization));
    SHIM_TRY(aoti_torch_cpu_narrow(values, last, 0, sizes[last], &kept));
    SHIM_TRY(aoti_torch_copy_(result, kept, 0));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

/* Completes a symmetric lane from its first half: the rest is the conjugate, in reverse. */
static void unfold_lane(const struct fft_number *half, int64_t half_length, struct fft_number *whole, int64_t length,
                        int64_t step)
{
    for (int64_t k = 0; k < length; k++) {
        int64_t from = k <= length / 2 ? k : length - k;
        struct fft_number value = {0, 0};
        if (from < half_length)
            value = half[from * step];
        if (k > length / 2)
            value.im = -value.im;
        whole[k * step] = value;
    }
    whole[0].im = 0;
    if (length % 2 == 0)
        whole[length / 2 * step].im = 0;
}

static AOTITorchError unfold(const char *function, AtenTensorHandle half, int dim, int64_t length,
                             AtenTensorHandle *ret_whole)
{
    int64_t sizes[SHIM_MAX_NDIM];
    memcpy(sizes, half->tensor->sizes, (size_t)half->tensor->ndim * sizeof *sizes);
    sizes[dim] = length;
    SHIM_TRY(aoticache_shim_make(function, half->tensor->ndim, sizes, AOTICACHE_DTYPE_COMPLEX128, ret_whole));
    struct shim_lanes lanes = aoticache_shim_lanes(half->tensor, dim);
    const struct fft_number *from = half->tensor->data;
    struct fft_number *to = (*ret_whole)->tensor->data;
    for (int64_t outer = 0; outer < lanes.outer && half->tensor->numel > 0; outer++)
        for (int64_t inner = 0; inner < lanes.inner; inner++)
            unfold_lane(from + outer * lanes.length * lanes.inner + inner, lanes.length,
                        to + outer * length * lanes.inner + inner, length, lanes.inner);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu__fft_c2r(AtenTensorHandle self, const int64_t *dim, int64_t num_dim,
                                       int64_t normalization, int64_t last_size, AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle values = NULL, whole = NULL, result = NULL, parts = NULL, real = NULL;
    struct transform transform;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    const struct shim_tensor *tensor = self->tensor;
    if (!aoticache_shim_is_complex(tensor->dtype))
        return aoticache_shim_fail_dtype(__func__, tensor->dtype);
    SHIM_TRY(read_dims(__func__, tensor, dim, num_dim, &transform));
    if (transform.count == 0 || last_size < 1)
        return aoticache_shim_fail("%s: %d dimensions, the last of %lld", __func__, transform.count,
                                   (long long)last_size);
    int last = transform.dims[transform.count - 1];
    SHIM_TRY(aoticache_shim_read_copy(__func__, self, AOTICACHE_DTYPE_COMPLEX128, &values));
    for (int i = 0; i < transform.count - 1; i++)
        SHIM_TRY(transform_dim(__func__, values, transform.dims[i], false));
    SHIM_TRY(unfold(__func__, values, last, last_size, &whole));
    SHIM_TRY(transform_dim(__func__, whole, last, false));
    SHIM_TRY(scale(__func__, whole, signal_count(&transform, whole->tensor->sizes), normalization));
    /* The result has the part's dtype. Its strides follow from transforming only the last dimension. */
    struct transform only_last = {1, {last}};
    int32_t dtype = tensor->dtype == AOTICACHE_DTYPE_COMPLEX128  ? AOTICACHE_DTYPE_FLOAT64
                    : tensor->dtype == AOTICACHE_DTYPE_COMPLEX64 ? AOTICACHE_DTYPE_FLOAT32
                                                                 : AOTICACHE_DTYPE_FLOAT16;
    SHIM_TRY(make_result(__func__, transform.count > 1 ? values->tensor : tensor, &only_last, 1, whole->tensor->sizes,
                         dtype, &result));
    SHIM_TRY(aoti_torch_cpu_view_as_real(whole, &parts));
    SHIM_TRY(aoticache_shim_tensor_view(__func__, parts->tensor, AOTICACHE_DTYPE_FLOAT64, tensor->ndim,
                                        parts->tensor->sizes, parts->tensor->strides, 0, &real));
    SHIM_TRY(aoti_torch_copy_(result, real, 0));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}
