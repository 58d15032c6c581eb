/*
 * shim/indexing/histogram: counts values in bins of equal width: histc, histogram, and histogramdd, whose points have a
 * number for each of several dimensions.
 *
 * Source: aten/src/ATen/native/Histogram.cpp, cpu/HistogramKernel.cpp.
 */
#include "runtime/shim/operators.h"
#include "runtime/shim/indexing/named.h"
#include "runtime/shim/tensors/elements.h"

#include <math.h>
#include <string.h>

enum { HISTOGRAM_MAX_DIMS = AOTICACHE_NAMED_MAX_RESULTS };

/* Finds the range of the bins: the requested one, or that of the values; never empty. */
static AOTITorchError bin_range(const char *function, const struct shim_tensor *values, double *low, double *high)
{
    const double *value = values->data;
    if (*low == *high && values->numel > 0) {
        *low = *high = value[0];
        for (int64_t i = 1; i < values->numel; i++) {
            *low = value[i] < *low ? value[i] : *low;
            *high = value[i] > *high ? value[i] : *high;
        }
    }
    if (*low == *high) {
        *low -= 1;
        *high += 1;
    }
    if (!isfinite(*low) || !isfinite(*high) || *low > *high)
        return aoticache_shim_fail("%s: bins from %g to %g", function, *low, *high);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_histc(AtenTensorHandle self, int64_t bins, double min, double max,
                                    AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle values = NULL, counts = NULL, result = NULL;
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    if (bins <= 0)
        return aoticache_shim_fail("%s: %lld bins", __func__, (long long)bins);
    if (aoticache_shim_work_dtype(self->tensor->dtype) != AOTICACHE_DTYPE_FLOAT64)
        return aoticache_shim_fail_dtype(__func__, self->tensor->dtype);
    SHIM_TRY(aoticache_shim_read(__func__, self, AOTICACHE_DTYPE_FLOAT64, &values));
    SHIM_TRY(bin_range(__func__, values->tensor, &min, &max));
    SHIM_TRY(aoticache_shim_make(__func__, 1, &bins, AOTICACHE_DTYPE_FLOAT64, &counts));
    SHIM_TRY(aoti_torch_zero_(counts));
    const double *value = values->tensor->data;
    double *count = counts->tensor->data;
    for (int64_t i = 0; i < values->tensor->numel; i++) {
        if (!(value[i] >= min && value[i] <= max))
            continue;
        int64_t bin = (int64_t)((value[i] - min) / (max - min) * (double)bins);
        count[bin < bins ? bin : bins - 1]++;
    }
    SHIM_TRY(aoticache_shim_read(__func__, counts, self->tensor->dtype, &result));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

/* Computes the edges of bins of equal width, in the dtype's own arithmetic, as torch.linspace does. */
static void fill_edges(int32_t dtype, double low, double high, int64_t bins, double *edges)
{
    for (int64_t i = 0; i <= bins; i++) {
        if (dtype == AOTICACHE_DTYPE_FLOAT64) {
            const double step = (high - low) / (double)bins;
            edges[i] = i < (bins + 1) / 2 ? low + step * (double)i : high - step * (double)(bins - i);
        } else {
            const float step = ((float)high - (float)low) / (float)bins;
            edges[i] =
                (double)(i < (bins + 1) / 2 ? (float)low + step * (float)i : (float)high - step * (float)(bins - i));
        }
    }
}

/* Finds the bin of a value between the first and the last edge; the last bin includes its upper edge. */
static int64_t find_bin(const double *edges, int64_t bins, double value)
{
    int64_t low = 0, high = bins;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (value < edges[middle])
            high = middle;
        else
            low = middle;
    }
    return low;
}

/* Points of `dims` numbers each, and how they are counted. */
struct histogram {
    const char *function;
    int32_t dtype;
    int64_t points, dims;
    const int64_t *bins;                        /* one per dimension */
    AtenTensorHandle values, weights;           /* float64; no weights: NULL */
    AtenTensorHandle edges[HISTOGRAM_MAX_DIMS]; /* float64, made by open_edges() */
};

static void histogram_close(struct histogram *h)
{
    aoticache_shim_handle_cleanup(&h->values);
    aoticache_shim_handle_cleanup(&h->weights);
    for (int d = 0; d < HISTOGRAM_MAX_DIMS; d++)
        aoticache_shim_handle_cleanup(&h->edges[d]);
}

#define cleanup_histogram __attribute__((cleanup(histogram_close)))

/* Finds the range of one dimension: the given one, or that of the values; never empty. */
static AOTITorchError find_range(const struct histogram *h, int64_t d, const double *given, double *ret_low,
                                 double *ret_high)
{
    const double *value = h->values->tensor->data;
    double low = given != NULL ? given[2 * d] : 0, high = given != NULL ? given[2 * d + 1] : h->points > 0 ? 0 : 1;
    for (int64_t i = 0; given == NULL && i < h->points; i++) {
        const double x = value[i * h->dims + d];
        low = i == 0 || x < low || isnan(x) ? x : low;
        high = i == 0 || x > high || isnan(x) ? x : high;
    }
    if (low == high) {
        low -= 0.5;
        high += 0.5;
    }
    if (!isfinite(low) || !isfinite(high) || low > high)
        return aoticache_shim_fail("%s: bins from %g to %g", h->function, low, high);
    *ret_low = low;
    *ret_high = high;
    return SHIM_SUCCESS;
}

static AOTITorchError open_edges(struct histogram *h, const double *given, int64_t given_count)
{
    if (given != NULL && given_count != 2 * h->dims)
        return aoticache_shim_fail("%s: a range of %lld numbers for %lld dimensions", h->function,
                                   (long long)given_count, (long long)h->dims);
    for (int64_t d = 0; d < h->dims; d++) {
        double low = 0, high = 0;
        if (h->bins[d] <= 0 || h->bins[d] >= INT32_MAX)
            return aoticache_shim_fail("%s: %lld bins", h->function, (long long)h->bins[d]);
        SHIM_TRY(find_range(h, d, given, &low, &high));
        SHIM_TRY(aoticache_shim_make(h->function, 1, (const int64_t[]){h->bins[d] + 1}, AOTICACHE_DTYPE_FLOAT64,
                                     &h->edges[d]));
        fill_edges(h->dtype, low, high, h->bins[d], h->edges[d]->tensor->data);
    }
    return SHIM_SUCCESS;
}

/*
 * Reads the points: the last dimension of `self` has the numbers of one point, or each element is a point of one
 * number.
 */
static AOTITorchError histogram_open(const char *function, AtenTensorHandle self, AtenTensorHandle weight, bool is_flat,
                                     const int64_t *bins, int64_t bin_count, struct histogram *h)
{
    enum { F64 = AOTICACHE_DTYPE_FLOAT64 };
    if (!shim_is_defined(self))
        return aoticache_shim_fail_undefined(function, self);
    const struct shim_tensor *t = self->tensor;
    if (t->dtype != F64 && t->dtype != AOTICACHE_DTYPE_FLOAT32)
        return aoticache_shim_fail_dtype(function, t->dtype);
    if (!is_flat &&
        (t->ndim < 2 || t->sizes[t->ndim - 1] != bin_count || bin_count < 1 || bin_count > HISTOGRAM_MAX_DIMS))
        return aoticache_shim_fail("%s: points of %lld numbers are needed, and at most of %d", function,
                                   (long long)bin_count, HISTOGRAM_MAX_DIMS);
    *h = (struct histogram){
        .function = function, .dtype = t->dtype, .points = 1, .dims = is_flat ? 1 : bin_count, .bins = bins};
    for (int d = 0; d < t->ndim - !is_flat; d++)
        h->points *= t->sizes[d];
    SHIM_TRY(aoticache_shim_read(function, self, F64, &h->values));
    if (!shim_is_defined(weight))
        return SHIM_SUCCESS;
    if (weight->tensor->numel != h->points)
        return aoticache_shim_fail("%s: %lld weights for %lld points", function, (long long)weight->tensor->numel,
                                   (long long)h->points);
    return aoticache_shim_read(function, weight, F64, &h->weights);
}

/* Returns the position at which a point is counted; -1: it is outside, as NaN is. */
static int64_t place_of(const struct histogram *h, const double *point)
{
    int64_t place = 0;
    for (int64_t d = 0; d < h->dims; d++) {
        const double *edges = h->edges[d]->tensor->data;
        if (!(point[d] >= edges[0] && point[d] <= edges[h->bins[d]]))
            return -1;
        place = place * h->bins[d] + find_bin(edges, h->bins[d], point[d]);
    }
    return place;
}

/* Divides by the sum of all counts and by the sizes of the bins. */
static void make_density(const struct histogram *h, struct shim_tensor *counts)
{
    double *count = counts->data, total = 0;
    for (int64_t i = 0; i < counts->numel; i++)
        total += count[i];
    for (int64_t i = 0; i < counts->numel; i++) {
        count[i] /= total;
        for (int64_t d = h->dims - 1, rest = i; d >= 0; rest /= h->bins[d--]) {
            const double *edge = (const double *)h->edges[d]->tensor->data + rest % h->bins[d];
            count[i] /= edge[1] - edge[0];
        }
    }
}

static AOTITorchError count_points(const struct histogram *h, bool density, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle counts = NULL;
    SHIM_TRY(aoticache_shim_make(h->function, h->dims, h->bins, AOTICACHE_DTYPE_FLOAT64, &counts));
    SHIM_TRY(aoti_torch_zero_(counts));
    const double *value = h->values->tensor->data, *weights = h->weights != NULL ? h->weights->tensor->data : NULL;
    double *count = counts->tensor->data;
    for (int64_t i = 0; i < h->points; i++) {
        const int64_t place = place_of(h, value + i * h->dims);
        if (place >= 0)
            count[place] += weights != NULL ? weights[i] : 1;
    }
    if (density)
        make_density(h, counts->tensor);
    return aoticache_shim_read(h->function, counts, h->dtype, ret);
}

AOTITorchError aoti_torch_cpu_histogram_bin_ct(AtenTensorHandle self, int64_t bins, const double **range,
                                               int64_t range_len_, AtenTensorHandle *weight, int32_t density,
                                               AtenTensorHandle *ret0, AtenTensorHandle *ret1)
{
    cleanup_histogram struct histogram h = {0};
    cleanup_tensor AtenTensorHandle counts = NULL;
    SHIM_CHECK_RESULT(ret0);
    SHIM_CHECK_RESULT(ret1);
    SHIM_TRY(histogram_open(__func__, self, shim_optional(weight), true, &bins, 1, &h));
    SHIM_TRY(open_edges(&h, range != NULL ? *range : NULL, range_len_));
    SHIM_TRY(count_points(&h, density != 0, &counts));
    SHIM_TRY(aoticache_shim_read(__func__, h.edges[0], h.dtype, ret1));
    *ret0 = shim_steal(&counts);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu__histogramdd_from_bin_cts(AtenTensorHandle self, const int64_t *bins, int64_t bins_len_,
                                                        const double **range, int64_t range_len_,
                                                        AtenTensorHandle *weight, int32_t density,
                                                        AtenTensorHandle *ret0)
{
    cleanup_histogram struct histogram h = {0};
    SHIM_CHECK_RESULT(ret0);
    SHIM_TRY(histogram_open(__func__, self, shim_optional(weight), false, bins, bins_len_, &h));
    SHIM_TRY(open_edges(&h, range != NULL ? *range : NULL, range_len_));
    return count_points(&h, density != 0, ret0);
}

AOTITorchError aoticache_shim_histogram_edges(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    cleanup_histogram struct histogram h = {0};
    AtenTensorHandle edges[HISTOGRAM_MAX_DIMS] = {NULL};
    SHIM_TRY(
        histogram_open("_histogramdd_bin_edges", a[0].tensor, NULL, false, a[1].integers, (int64_t)a[1].count, &h));
    SHIM_TRY(open_edges(&h, a[2].is_given ? a[2].numbers : NULL, (int64_t)a[2].count));
    for (int64_t d = 0; d < h.dims; d++)
        if (aoticache_shim_read(h.function, h.edges[d], h.dtype, &edges[d]) != SHIM_SUCCESS) {
            while (d-- > 0)
                aoticache_shim_handle_cleanup(&edges[d]);
            return SHIM_FAILURE;
        }
    memcpy(ret, edges, (size_t)h.dims * sizeof *ret);
    return SHIM_SUCCESS;
}
