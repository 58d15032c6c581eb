/*
 * shim/math/fft: Fourier transforms along one or several dimensions: complex, of real numbers, to real numbers.
 *
 * Source: aten/src/ATen/native/SpectralOps.cpp and mkl/SpectralOps.cpp for meanings, and torch/_meta_registrations.py
 * for the strides of results, which generated code relies on: dimensions that are not transformed lie outside, by
 * falling stride of the input, then the transformed ones. All is computed in double.
 */
#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * ---- the transform of one row of complex numbers, of any length ----
 *
 * Lengths whose prime factors are small go by Cooley and Tukey's recursion, a factor at a time. Others become, by
 * Bluestein's identity 2jk = j^2 + k^2 - (j - k)^2, a convolution of a length that is a power of two.
 */

enum { LARGEST_FACTOR = 31 };

struct fft_number {
    double re, im;
};

struct fft_plan {
    int64_t length;
    struct fft_number *roots;   /* exp(-2 pi i k / length) */
    struct fft_number *scratch; /* of `length` */
    /* Bluestein: */
    struct fft_plan *inner;    /* NULL: the length has small factors */
    struct fft_number *chirp;  /* exp(-pi i k^2 / length) */
    struct fft_number *filter; /* the transform of the chirp's conjugate, of inner's length */
    struct fft_number *padded; /* of inner's length */
};

/* A plan by Bluestein's identity has another plan inside. */

/* Plans transforms of rows of `length` >= 1. NULL: out of memory. One plan serves one thread at a time. */
static struct fft_plan *plan_create(int64_t length);
static void plan_free(struct fft_plan *plan);
/* Transforms `row` in place, without a factor; forward has the exponent's sign negative. */
static void plan_run(struct fft_plan *plan, struct fft_number *row, bool forward);

static struct fft_number multiply(struct fft_number a, struct fft_number b)
{
    return (struct fft_number){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

static struct fft_number add(struct fft_number a, struct fft_number b)
{
    return (struct fft_number){a.re + b.re, a.im + b.im};
}

/* Returns exp(-2 pi i numerator / denominator). */
static struct fft_number root_of_unity(int64_t numerator, int64_t denominator)
{
    double angle = 2.0 * M_PI * ((double)numerator / (double)denominator);
    return (struct fft_number){cos(angle), -sin(angle)};
}

static int64_t smallest_factor(int64_t number)
{
    for (int64_t factor = 2; factor <= LARGEST_FACTOR; factor++)
        if (number % factor == 0)
            return factor;
    return number;
}

static bool has_small_factors(int64_t number)
{
    while (number > 1) {
        int64_t factor = smallest_factor(number);
        if (factor > LARGEST_FACTOR)
            return false;
        number /= factor;
    }
    return true;
}

/* Joins `factor` transforms of `part` numbers each (butterflies). */
static void join(const struct fft_plan *plan, int64_t factor, int64_t part, struct fft_number *out)
{
    struct fft_number turned[LARGEST_FACTOR];
    int64_t step = plan->length / (factor * part);
    for (int64_t k = 0; k < part; k++) {
        for (int64_t r = 0; r < factor; r++)
            turned[r] = multiply(out[r * part + k], plan->roots[r * k * step]);
        for (int64_t q = 0; q < factor; q++) {
            struct fft_number sum = turned[0];
            for (int64_t r = 1; r < factor; r++)
                sum = add(sum, multiply(turned[r], plan->roots[r * q % factor * part * step]));
            out[q * part + k] = sum;
        }
    }
}

static void join_pairs(const struct fft_plan *plan, int64_t part, struct fft_number *out)
{
    int64_t step = plan->length / (2 * part);
    for (int64_t k = 0; k < part; k++) {
        struct fft_number a = out[k], b = multiply(out[part + k], plan->roots[k * step]);
        out[k] = add(a, b);
        out[part + k] = (struct fft_number){a.re - b.re, a.im - b.im};
    }
}

/* Writes the transform of `length` numbers of `in` that lie `stride` apart to `out`. */
static void recurse(const struct fft_plan *plan, int64_t length, int64_t stride, const struct fft_number *in,
                    struct fft_number *out)
{
    if (length == 1) {
        *out = *in;
        return;
    }
    int64_t factor = smallest_factor(length), part = length / factor;
    for (int64_t r = 0; r < factor; r++)
        recurse(plan, part, stride * factor, in + r * stride, out + r * part);
    if (factor == 2)
        join_pairs(plan, part, out);
    else
        join(plan, factor, part, out);
}

static void conjugate(struct fft_number *row, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        row[i].im = -row[i].im;
}

static void run_forward(struct fft_plan *plan, struct fft_number *row);

static void run_bluestein(struct fft_plan *plan, struct fft_number *row)
{
    int64_t length = plan->length, padded_length = plan->inner->length;
    struct fft_number *padded = plan->padded;
    memset(padded, 0, (size_t)padded_length * sizeof *padded);
    for (int64_t i = 0; i < length; i++)
        padded[i] = multiply(row[i], plan->chirp[i]);
    run_forward(plan->inner, padded);
    for (int64_t i = 0; i < padded_length; i++)
        padded[i] = multiply(padded[i], plan->filter[i]);
    plan_run(plan->inner, padded, false);
    for (int64_t i = 0; i < length; i++) {
        struct fft_number value = multiply(padded[i], plan->chirp[i]);
        row[i] = (struct fft_number){value.re / (double)padded_length, value.im / (double)padded_length};
    }
}

static void run_forward(struct fft_plan *plan, struct fft_number *row)
{
    if (plan->inner != NULL) {
        run_bluestein(plan, row);
        return;
    }
    recurse(plan, plan->length, 1, row, plan->scratch);
    memcpy(row, plan->scratch, (size_t)plan->length * sizeof *row);
}

static void plan_run(struct fft_plan *plan, struct fft_number *row, bool forward)
{
    if (!forward)
        conjugate(row, plan->length);
    run_forward(plan, row);
    if (!forward)
        conjugate(row, plan->length);
}

static bool prepare_factors(struct fft_plan *plan)
{
    plan->roots = calloc((size_t)plan->length, sizeof *plan->roots);
    plan->scratch = calloc((size_t)plan->length, sizeof *plan->scratch);
    if (plan->roots == NULL || plan->scratch == NULL)
        return false;
    for (int64_t k = 0; k < plan->length; k++)
        plan->roots[k] = root_of_unity(k, plan->length);
    return true;
}

static bool prepare_bluestein(struct fft_plan *plan)
{
    int64_t length = plan->length, padded = 1;
    if (length > INT64_MAX / 8)
        return false;
    while (padded < 2 * length - 1)
        padded *= 2;
    plan->chirp = calloc((size_t)length, sizeof *plan->chirp);
    plan->filter = calloc((size_t)padded, sizeof *plan->filter);
    plan->padded = calloc((size_t)padded, sizeof *plan->padded);
    plan->inner = plan_create(padded);
    if (plan->chirp == NULL || plan->filter == NULL || plan->padded == NULL || plan->inner == NULL)
        return false;
    int64_t square = 0; /* k * k mod 2 * length: an exact angle for long rows too */
    for (int64_t k = 0; k < length; k++) {
        plan->chirp[k] = root_of_unity(square, 2 * length);
        square = (square + 2 * k + 1) % (2 * length);
        struct fft_number value = {plan->chirp[k].re, -plan->chirp[k].im};
        plan->filter[k] = value;
        plan->filter[(padded - k) % padded] = value;
    }
    run_forward(plan->inner, plan->filter);
    return true;
}

static struct fft_plan *plan_create(int64_t length)
{
    struct fft_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL)
        return NULL;
    plan->length = length;
    if (!(has_small_factors(length) ? prepare_factors(plan) : prepare_bluestein(plan))) {
        plan_free(plan);
        return NULL;
    }
    return plan;
}

static void plan_free(struct fft_plan *plan)
{
    if (plan == NULL)
        return;
    plan_free(plan->inner);
    free(plan->roots);
    free(plan->scratch);
    free(plan->chirp);
    free(plan->filter);
    free(plan->padded);
    free(plan);
}

/* ---- tensors ---- */

enum { NORMALIZE_NOT, NORMALIZE_BY_ROOT, NORMALIZE_BY_COUNT };

/* Dimensions that are transformed, counted from 0, in the order they are given. */
struct transform {
    int count;
    int dims[SHIM_MAX_NDIM];
};

static AOTITorchError read_dims(const char *function, const struct shim_tensor *tensor, const int64_t *dim,
                                int64_t num_dim, struct transform *ret_transform)
{
    bool taken[SHIM_MAX_NDIM] = {false};
    if (num_dim < 0 || num_dim > tensor->ndim || (num_dim > 0 && dim == NULL))
        return aoticache_shim_fail("%s: %lld dimensions of a tensor with %d", function, (long long)num_dim,
                                   (int)tensor->ndim);
    ret_transform->count = (int)num_dim;
    for (int64_t i = 0; i < num_dim; i++) {
        int at = 0;
        SHIM_TRY(aoticache_shim_wrap_dimension(function, tensor->ndim, dim[i], &at));
        if (taken[at])
            return aoticache_shim_fail("%s: dimension %d is named twice", function, at);
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

static void transform_lane(struct fft_plan *plan, struct fft_number *lane, int64_t length, int64_t step,
                           struct fft_number *row, bool forward)
{
    for (int64_t i = 0; i < length; i++)
        row[i] = lane[i * step];
    plan_run(plan, row, forward);
    for (int64_t i = 0; i < length; i++)
        lane[i * step] = row[i];
}

/* Transforms along one dimension of a contiguous tensor of complex128. */
static AOTITorchError transform_dim(const char *function, AtenTensorHandle values, int dim, bool forward)
{
    struct shim_lanes lanes = aoticache_shim_lanes(values->tensor, dim);
    struct fft_number *data = values->tensor->data;
    if (values->tensor->numel == 0 || lanes.length == 1)
        return SHIM_SUCCESS;
    struct fft_plan *plan = plan_create(lanes.length);
    struct fft_number *row = calloc((size_t)lanes.length, sizeof *row);
    bool ready = plan != NULL && row != NULL;
    for (int64_t outer = 0; outer < lanes.outer && ready; outer++)
        for (int64_t inner = 0; inner < lanes.inner; inner++)
            transform_lane(plan, data + outer * lanes.length * lanes.inner + inner, lanes.length, lanes.inner, row,
                           forward);
    free(row);
    plan_free(plan);
    return ready ? SHIM_SUCCESS : aoticache_shim_fail_memory(function, (size_t)lanes.length * sizeof *row);
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
        return aoticache_shim_fail("%s: no dimension is named", __func__);
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

/* Completes a symmetric lane of which half is given: the rest is the conjugate, from the end. */
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
    /* The result has the part's dtype. Its strides follow from the transform of the last dimension alone. */
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
