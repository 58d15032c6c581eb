/*
 * shim/elementwise/distance: distances between the rows of matrices in the p-norm: pdist (all pairs of rows of one), cdist (of
 * two).
 *
 * Euclidean distances of many rows are computed with a matrix multiplication if PyTorch does so; all others from the
 * rows' differences (distance_rows.c). Rows are divided among the threads.
 *
 * Source: aten/src/ATen/native/Distance.cpp, cpu/DistanceOpsKernel.cpp.
 */
#include "runtime/shim/elementwise/distance_rows.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <math.h>
#include <string.h>

/* The cost of a vector step in multiplications (aoticache_shim_parts), and of a power in vector steps. */
#define STEP_WORK 2.0
#define POWER_WORK 200.0

/* With more rows, on either side, PyTorch multiplies matrices; with compute_mode 1 always, with 2 never. */
enum { MANY_ROWS = 25, BY_PRODUCT = 1, WITHOUT_PRODUCT = 2 };

struct distances {
    const struct distance_rows *steps;
    int32_t dtype;
    ptrdiff_t item;
    double p;
    distance_total total; /* NULL: use powers */
    int64_t batches, rows, others, width;
    bool is_pairs;      /* rows and others are the same, each pair once */
    const char *from;   /* batches x rows x width */
    const char *panels; /* batches x panel_count x width x steps->columns */
    int64_t panel_count;
    char *to;
    int parts;
};

static AOTITorchError start(const char *function, AtenTensorHandle tensor, double p, struct distances *d)
{
    int32_t dtype = tensor->tensor->dtype;
    if (dtype != AOTICACHE_DTYPE_FLOAT32 && dtype != AOTICACHE_DTYPE_FLOAT64)
        return aoticache_shim_fail_dtype(function, dtype);
    if (!(p >= 0))
        return aoticache_shim_fail("%s: the norm is %g; it must not be negative", function, p);
    d->steps = aoticache_shim_distance_rows(dtype == AOTICACHE_DTYPE_FLOAT64 ? SHIM_CLASS_DOUBLE : SHIM_CLASS_FLOAT);
    d->dtype = dtype;
    d->item = tensor->tensor->item_bytes;
    d->p = p;
    d->total = p == 0        ? d->steps->differences
               : p == 1      ? d->steps->sums
               : p == 2      ? d->steps->squares
               : !isinf(p)   ? NULL
               : d->is_pairs ? d->steps->largest_or_nan /* as in PyTorch */
                             : d->steps->largest;
    return SHIM_SUCCESS;
}

/* Copies the others to panels. The last panel is filled up with copies of its last row. */
static void fill_panel(const struct distances *d, const char *others, int64_t first, char *panel)
{
    const int columns = d->steps->columns;
    for (int column = 0; column < columns; column++) {
        const int64_t other = first + column < d->others ? first + column : d->others - 1;
        const char *row = others + other * d->width * d->item;
        char *to = panel + column * d->item;
        if (d->dtype == AOTICACHE_DTYPE_FLOAT32)
            for (int64_t i = 0; i < d->width; i++)
                ((float *)(void *)to)[i * columns] = ((const float *)(const void *)row)[i];
        else
            for (int64_t i = 0; i < d->width; i++)
                ((double *)(void *)to)[i * columns] = ((const double *)(const void *)row)[i];
    }
}

static AOTITorchError make_panels(const char *function, struct distances *d, const char *others,
                                  AtenTensorHandle *ret_panels)
{
    d->panel_count = d->others / d->steps->columns + (d->others % d->steps->columns > 0);
    const int64_t sizes[] = {d->batches, d->panel_count, d->width, d->steps->columns};
    SHIM_TRY(aoticache_shim_make(function, 4, sizes, d->dtype, ret_panels));
    char *panel = (*ret_panels)->tensor->data;
    d->panels = panel;
    for (int64_t batch = 0; batch < d->batches; batch++, others += d->others * d->width * d->item)
        for (int64_t k = 0; k < d->panel_count; k++, panel += d->width * d->steps->columns * d->item)
            fill_panel(d, others, k * d->steps->columns, panel);
    return SHIM_SUCCESS;
}

static double element(const struct distances *d, const char *values, int64_t i)
{
    return d->dtype == AOTICACHE_DTYPE_FLOAT32 ? (double)((const float *)(const void *)values)[i]
                                               : ((const double *)(const void *)values)[i];
}

/* Computes distances for any p, from one row to those of a panel. */
static void powers(const struct distances *d, const char *row, const char *panel, char *totals)
{
    const int columns = d->steps->columns;
    for (int column = 0; column < columns; column++) {
        double total = 0;
        for (int64_t i = 0; i < d->width; i++)
            total += pow(fabs(element(d, row, i) - element(d, panel, i * columns + column)), d->p);
        total = pow(total, 1 / d->p);
        if (d->dtype == AOTICACHE_DTYPE_FLOAT32)
            ((float *)(void *)totals)[column] = (float)total;
        else
            ((double *)(void *)totals)[column] = total;
    }
}

/* Writes the distances of a row to the others from `first` on, contiguously. */
static void measure_row(const struct distances *d, const char *row, const char *panels, int64_t first, char *to)
{
    _Alignas(64) char totals[4 * 64];
    const int64_t columns = d->steps->columns;
    char *const begin = to;
    for (int64_t at = first / columns * columns; at < d->others; at += columns) {
        const char *panel = panels + at * d->width * d->item;
        const int64_t skipped = at < first ? first - at : 0;
        const int64_t count = (d->others - at < columns ? d->others - at : columns) - skipped;
        if (d->total != NULL)
            d->total(d->width, row, panel, totals);
        else
            powers(d, row, panel, totals);
        memcpy(to, totals + skipped * d->item, (size_t)(count * d->item));
        to += count * d->item;
    }
    if (d->p == 2)
        d->steps->root(d->others - first, 0, begin);
}

/* Returns the number of pairs before those of a row. */
static int64_t pairs_before(const struct distances *d, int64_t row)
{
    return d->is_pairs ? row * (2 * d->rows - row - 1) / 2 : row * d->others;
}

/* Returns the first row of a part; all parts have about the same number of pairs. */
static int64_t first_row(const struct distances *d, int part)
{
    const int64_t rows = d->batches * d->rows;
    const double share = (double)pairs_before(d, rows) / d->parts * part;
    int64_t low = 0, high = rows;
    while (part < d->parts && low < high) {
        const int64_t middle = low + (high - low) / 2;
        if ((double)pairs_before(d, middle) < share)
            low = middle + 1;
        else
            high = middle;
    }
    return part < d->parts ? low : rows;
}

static void measure_part(void *user, int part)
{
    const struct distances *d = user;
    const int64_t end = first_row(d, part + 1);
    for (int64_t row = first_row(d, part); row < end; row++)
        measure_row(d, d->from + row * d->width * d->item,
                    d->panels + row / d->rows * d->panel_count * d->steps->columns * d->width * d->item,
                    d->is_pairs ? row + 1 : 0, d->to + pairs_before(d, row) * d->item);
}

static AOTITorchError measure_all(const char *function, struct distances *d, const char *others)
{
    cleanup_tensor AtenTensorHandle panels = NULL;
    SHIM_TRY(make_panels(function, d, others, &panels));
    const double steps = (double)pairs_before(d, d->batches * d->rows) * (double)d->width;
    d->parts = aoticache_shim_parts(steps * (d->total != NULL ? STEP_WORK : POWER_WORK), d->batches * d->rows);
    aoticache_shim_parallel(d->parts, measure_part, d);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu__pdist_forward(AtenTensorHandle self, double p, AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle rows = NULL, result = NULL;
    struct distances d = {.batches = 1, .is_pairs = true};
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(start(__func__, self, p, &d));
    if (self->tensor->ndim != 2)
        return aoticache_shim_fail("%s: the tensor has %d dimensions; it must be a matrix", __func__,
                                   (int)self->tensor->ndim);
    int64_t count = self->tensor->sizes[0], pairs = 0;
    if (__builtin_mul_overflow(count, 2 * count, &pairs))
        return aoticache_shim_fail("%s: too many rows: %lld", __func__, (long long)count);
    d.rows = d.others = count;
    d.width = self->tensor->sizes[1];
    pairs = pairs_before(&d, count);
    SHIM_TRY(aoticache_shim_read(__func__, self, d.dtype, &rows));
    SHIM_TRY(aoticache_shim_make(__func__, 1, &pairs, d.dtype, &result));
    d.from = rows->tensor->data;
    d.to = result->tensor->data;
    if (d.width == 0)
        SHIM_TRY(aoti_torch_zero_(result));
    else if (pairs > 0)
        SHIM_TRY(measure_all(__func__, &d, d.from));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

/* Expands a tensor to `batch` in front of its last two dimensions, contiguous. */
static AOTITorchError expand_rows(const char *function, AtenTensorHandle tensor, int ndim, const int64_t *batch,
                                  AtenTensorHandle *ret_rows)
{
    int64_t sizes[SHIM_MAX_NDIM];
    const struct shim_tensor *from = tensor->tensor;
    memcpy(sizes, batch, (size_t)(ndim - 2) * sizeof *sizes);
    sizes[ndim - 2] = from->sizes[from->ndim - 2];
    sizes[ndim - 1] = from->sizes[from->ndim - 1];
    if (from->ndim == ndim && memcmp(sizes, from->sizes, (size_t)ndim * sizeof *sizes) == 0)
        return aoticache_shim_read(function, tensor, from->dtype, ret_rows);
    SHIM_TRY(aoticache_shim_make(function, ndim, sizes, from->dtype, ret_rows));
    return aoti_torch_copy_(*ret_rows, tensor, 0);
}

/* Makes a view of a contiguous tensor as batches of matrices, or of their transposes. */
static AOTITorchError view_batches(const char *function, const struct distances *d, AtenTensorHandle tensor,
                                   int64_t rows, int64_t columns, bool is_transposed, AtenTensorHandle *ret_view)
{
    const int64_t sizes[] = {d->batches, is_transposed ? columns : rows, is_transposed ? rows : columns};
    const int64_t strides[] = {rows * columns, is_transposed ? 1 : columns, is_transposed ? columns : 1};
    return aoticache_shim_tensor_view(function, tensor->tensor, d->dtype, 3, sizes, strides, tensor->tensor->offset,
                                      ret_view);
}

/* Computes the squared lengths of the others, the same for each row. */
static AOTITorchError make_squares(const char *function, const struct distances *d, const char *others,
                                   AtenTensorHandle *ret_squares)
{
    cleanup_tensor AtenTensorHandle squares = NULL;
    const int64_t sizes[] = {d->batches, d->rows, d->others}, strides[] = {d->others, 0, 1};
    const int64_t count = d->batches * d->others;
    SHIM_TRY(aoticache_shim_make(function, 1, &count, d->dtype, &squares));
    for (int64_t k = 0; k < count; k++) {
        const double sum = d->steps->square_sum(d->width, others + k * d->width * d->item);
        if (d->dtype == AOTICACHE_DTYPE_FLOAT32)
            ((float *)squares->tensor->data)[k] = (float)sum;
        else
            ((double *)squares->tensor->data)[k] = sum;
    }
    return aoticache_shim_tensor_view(function, squares->tensor, d->dtype, 3, sizes, strides, 0, ret_squares);
}

/* Computes |a - b| of each row from |b|^2 - 2ab. */
static void finish_part(void *user, int part)
{
    const struct distances *d = user;
    const int64_t end = first_row(d, part + 1);
    for (int64_t row = first_row(d, part); row < end; row++)
        d->steps->root(d->others, d->steps->square_sum(d->width, d->from + row * d->width * d->item),
                       d->to + row * d->others * d->item);
}

static AOTITorchError measure_by_product(const char *function, struct distances *d, AtenTensorHandle rows,
                                         AtenTensorHandle others, AtenTensorHandle result)
{
    cleanup_tensor AtenTensorHandle a = NULL, b = NULL, squares = NULL, product = NULL;
    SHIM_TRY(view_batches(function, d, rows, d->rows, d->width, false, &a));
    SHIM_TRY(view_batches(function, d, others, d->others, d->width, true, &b));
    SHIM_TRY(view_batches(function, d, result, d->rows, d->others, false, &product));
    SHIM_TRY(make_squares(function, d, others->tensor->data, &squares));
    SHIM_TRY(aoti_torch_cpu_baddbmm_out(product, squares, a, b, 1, -2));
    d->parts = aoticache_shim_parts((double)result->tensor->numel * STEP_WORK, d->batches * d->rows);
    aoticache_shim_parallel(d->parts, finish_part, d);
    return SHIM_SUCCESS;
}

static bool is_product(const struct distances *d, int64_t mode)
{
    return d->p == 2 && mode != WITHOUT_PRODUCT && (mode == BY_PRODUCT || d->rows > MANY_ROWS || d->others > MANY_ROWS);
}

AOTITorchError aoti_torch_cpu__cdist_forward(AtenTensorHandle x1, AtenTensorHandle x2, double p, int64_t *compute_mode,
                                             AtenTensorHandle *ret_0)
{
    cleanup_tensor AtenTensorHandle a = NULL, b = NULL, result = NULL;
    struct distances d = {.batches = 1};
    const int64_t mode = compute_mode != NULL ? *compute_mode : 0;
    int64_t sizes[SHIM_MAX_NDIM];
    int ndim = 0;
    SHIM_CHECK_TENSOR(x1);
    SHIM_CHECK_TENSOR(x2);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_TRY(start(__func__, x1, p, &d));
    if (mode < 0 || mode > WITHOUT_PRODUCT)
        return aoticache_shim_fail("%s: compute_mode %lld is not one of 0 to 2", __func__, (long long)mode);
    const struct shim_tensor *first = x1->tensor, *second = x2->tensor;
    if (first->dtype != second->dtype || first->ndim < 2 || second->ndim < 2 ||
        first->sizes[first->ndim - 1] != second->sizes[second->ndim - 1])
        return aoticache_shim_fail("%s: two matrices with the same dtype and the same number of columns are needed",
                                   __func__);
    SHIM_TRY(aoticache_shim_common_batch(__func__, first, second, &ndim, sizes));
    SHIM_TRY(expand_rows(__func__, x1, ndim, sizes, &a));
    SHIM_TRY(expand_rows(__func__, x2, ndim, sizes, &b));
    d.rows = sizes[ndim - 2] = first->sizes[first->ndim - 2];
    d.others = sizes[ndim - 1] = second->sizes[second->ndim - 2];
    d.width = first->sizes[first->ndim - 1];
    SHIM_TRY(aoticache_shim_make(__func__, ndim, sizes, d.dtype, &result));
    d.from = a->tensor->data;
    d.to = result->tensor->data;
    for (int i = 0; i < ndim - 2; i++)
        d.batches *= sizes[i];
    if (d.width == 0)
        SHIM_TRY(aoti_torch_zero_(result));
    else if (result->tensor->numel > 0 && is_product(&d, mode))
        SHIM_TRY(measure_by_product(__func__, &d, a, b, result));
    else if (result->tensor->numel > 0)
        SHIM_TRY(measure_all(__func__, &d, b->tensor->data));
    *ret_0 = shim_steal(&result);
    return SHIM_SUCCESS;
}
