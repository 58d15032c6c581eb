/*
 * shim/linear_algebra/linear_systems: factors of matrices (LU, Cholesky, LDL) and solutions computed with them, with LAPACK.
 *
 * Matrices are stored by columns, as in PyTorch's results; a right operand that is stored by rows is solved as its
 * transpose.
 *
 * Sources: at::native::linalg_lu_factor_ex, _linalg_solve_ex, linalg_lu_solve, _linalg_det, linalg_cholesky_ex,
 * linalg_ldl_factor_ex, linalg_solve_triangular and the older functions next to them
 * (aten/src/ATen/native/BatchLinearAlgebra.cpp).
 */
#include "runtime/shim/linear_algebra/lapack.h"

#include "runtime/shim/operators.h"

#include <complex.h>
#include <math.h>
#include <string.h>

enum { INT32 = AOTICACHE_DTYPE_INT32, LENGTH = 1 }; /* LENGTH: of a character argument, which Fortran passes last */

typedef void (*factor_lu)(const int *m, const int *n, void *a, const int *lda, int *pivots, int *info);
typedef void (*solve_lu)(const char *transposed, const int *n, const int *columns, const void *a, const int *lda,
                         const int *pivots, void *b, const int *ldb, int *info, size_t);
typedef void (*factor_cholesky)(const char *triangle, const int *n, void *a, const int *lda, int *info, size_t);
typedef void (*solve_cholesky)(const char *triangle, const int *n, const int *columns, const void *a, const int *lda,
                               void *b, const int *ldb, int *info, size_t);
typedef void (*factor_ldl)(const char *triangle, const int *n, void *a, const int *lda, int *pivots, void *work,
                           const int *work_count, int *info, size_t);
typedef void (*solve_ldl)(const char *triangle, const int *n, const int *columns, const void *a, const int *lda,
                          const int *pivots, void *b, const int *ldb, int *info, size_t);
typedef void (*solve_by_triangle)(const char *side, const char *triangle, const char *transposed, const char *unit,
                                  const int *m, const int *n, const void *alpha, const void *a, const int *lda, void *b,
                                  const int *ldb, size_t, size_t, size_t, size_t);

static int leading(int64_t rows)
{
    return rows > 1 ? (int)rows : 1;
}

/* ---- elements ---- */

static double complex element(int32_t dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case AOTICACHE_DTYPE_FLOAT32:
        return (double)((const float *)data)[i];
    case AOTICACHE_DTYPE_FLOAT64:
        return ((const double *)data)[i];
    case AOTICACHE_DTYPE_COMPLEX64:
        return ((const float complex *)data)[i];
    default:
        return ((const double complex *)data)[i];
    }
}

static void set_element(int32_t dtype, void *data, int64_t i, double complex value)
{
    switch (dtype) {
    case AOTICACHE_DTYPE_FLOAT32:
        ((float *)data)[i] = (float)creal(value);
        break;
    case AOTICACHE_DTYPE_FLOAT64:
        ((double *)data)[i] = creal(value);
        break;
    case AOTICACHE_DTYPE_COMPLEX64:
        ((float complex *)data)[i] = (float complex)value;
        break;
    default:
        ((double complex *)data)[i] = value;
    }
}

/* Sets the elements above (or below) the diagonal to zero. */
static void clear_triangle(int32_t dtype, const struct matrices *m, bool above)
{
    for (int64_t i = 0; i < m->count; i++)
        for (int64_t column = 0; column < m->columns; column++)
            for (int64_t row = above ? 0 : column + 1; row < (above ? column : m->rows) && row < m->rows; row++)
                set_element(dtype, matrix_at(m, i), column * m->rows + row, 0);
}

/* ---- failures ---- */

static AOTITorchError report(const char *operator_name, const char *text, int64_t count, const int *info)
{
    for (int64_t i = 0; i < count; i++) {
        if (info[i] == 0)
            continue;
        if (info[i] < 0)
            return aoticache_shim_fail("%.80s: LAPACK rejects argument %d", operator_name, -info[i]);
        return aoticache_shim_fail("%.80s: matrix %lld %s (%d)", operator_name, (long long)i, text, info[i]);
    }
    return SHIM_SUCCESS;
}

static const char singular[] = "is singular: this element of its factor's diagonal is 0";
static const char indefinite[] = "is not positive-definite: the leading minor of this order is not";

/* ---- operands of one batch ---- */

/* Makes a copy for each matrix of the batch. */
static AOTITorchError expand(const char *function, AtenTensorHandle tensor, int ndim, const int64_t *batch,
                             bool by_columns, AtenTensorHandle *ret)
{
    const struct shim_tensor *t = tensor->tensor;
    cleanup_tensor AtenTensorHandle made = NULL;
    SHIM_TRY(aoticache_shim_make_matrices(function, ndim, batch, t->sizes[t->ndim - 2], t->sizes[t->ndim - 1], t->dtype,
                                          by_columns, &made));
    SHIM_TRY(aoti_torch_copy_(made, tensor, 0));
    *ret = shim_steal(&made);
    return SHIM_SUCCESS;
}

/* Does the same for both operands of a solution. */
static AOTITorchError expand_pair(const char *function, AtenTensorHandle a, AtenTensorHandle b, bool b_by_columns,
                                  AtenTensorHandle *ret_a, AtenTensorHandle *ret_b)
{
    int64_t batch[SHIM_MAX_NDIM];
    int ndim = 0;
    SHIM_TRY(aoticache_shim_common_batch(function, a->tensor, b->tensor, &ndim, batch));
    SHIM_TRY(expand(function, a, ndim, batch, true, ret_a));
    return expand(function, b, ndim, batch, b_by_columns, ret_b);
}

static AOTITorchError expand_pivots(const char *function, AtenTensorHandle pivots, const struct shim_tensor *matrices,
                                    AtenTensorHandle *ret)
{
    const int64_t count = matrices->sizes[matrices->ndim - 1];
    int64_t sizes[SHIM_MAX_NDIM];
    cleanup_tensor AtenTensorHandle made = NULL;
    if (!shim_is_defined(pivots))
        return aoticache_shim_fail_undefined(function, pivots);
    const struct shim_tensor *p = pivots->tensor;
    if (p->dtype != INT32 || p->ndim < 1 || p->sizes[p->ndim - 1] != count)
        return aoticache_shim_fail("%s: %lld pivots of int32 are needed for each matrix", function, (long long)count);
    memcpy(sizes, matrices->sizes, (size_t)(matrices->ndim - 1) * sizeof *sizes); /* matrices are square */
    SHIM_TRY(aoticache_shim_make(function, matrices->ndim - 1, sizes, INT32, &made));
    SHIM_TRY(aoti_torch_copy_(made, pivots, 0));
    for (int64_t i = 0; i < made->tensor->numel; i++) { /* LAPACK would exchange any rows, even invalid ones */
        int32_t pivot = ((const int32_t *)made->tensor->data)[i];
        if (pivot == 0 || pivot > count || pivot < -count)
            return aoticache_shim_fail("%s: a pivot is %d, but there are %lld rows", function, (int)pivot,
                                       (long long)count);
    }
    *ret = shim_steal(&made);
    return SHIM_SUCCESS;
}

/*
 * Checks the operands of a solution: b may have more or fewer matrices than a, and has as many rows (or columns, if it
 * is on the left) as a.
 */
static AOTITorchError check_pair(const char *function, AtenTensorHandle a, AtenTensorHandle b, bool left)
{
    SHIM_TRY(aoticache_shim_check_matrices(function, a, true));
    SHIM_TRY(aoticache_shim_check_matrices(function, b, false));
    const struct shim_tensor *x = a->tensor, *y = b->tensor;
    if (x->dtype != y->dtype || y->sizes[y->ndim - (left ? 2 : 1)] != x->sizes[x->ndim - 1])
        return aoticache_shim_fail("%s: matrices with the same dtype are needed, the second with %lld %s", function,
                                   (long long)x->sizes[x->ndim - 1], left ? "rows" : "columns");
    return SHIM_SUCCESS;
}

/* ---- LU ---- */

static AOTITorchError factor(const char *function, AtenTensorHandle a, bool transposed, AtenTensorHandle *ret_lu,
                             AtenTensorHandle *ret_pivots, AtenTensorHandle *ret_info)
{
    factor_lu getrf;
    SHIM_TRY(aoticache_shim_check_matrices(function, a, false));
    SHIM_TRY(aoticache_shim_lapack(function, LAPACK_GETRF, a->tensor->dtype, &getrf));
    SHIM_TRY(aoticache_shim_copy_columns(function, a, transposed, ret_lu));
    const struct matrices m = aoticache_shim_matrices(*ret_lu);
    const int rows = (int)m.rows, columns = (int)m.columns, lda = leading(m.rows);
    const int64_t pivots = rows < columns ? rows : columns;
    SHIM_TRY(aoticache_shim_make_each(function, *ret_lu, pivots, INT32, ret_pivots));
    SHIM_TRY(aoticache_shim_make_each(function, *ret_lu, -1, INT32, ret_info));
    int *pivot = (*ret_pivots)->tensor->data, *info = (*ret_info)->tensor->data;
    for (int64_t i = 0; i < m.count; i++) {
        getrf(&rows, &columns, matrix_at(&m, i), &lda, pivot + i * pivots, &info[i]);
        if (info[i] < 0)
            return report(function, singular, 1, &info[i]);
    }
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_lu_factor(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle lu = NULL, pivots = NULL, info = NULL;
    if (a[1].integer == 0)
        return aoticache_shim_fail("linalg.lu_factor: pivot=False is not supported on the CPU, as in PyTorch");
    SHIM_TRY(factor("linalg.lu_factor", a[0].tensor, false, &lu, &pivots, &info));
    if (a[2].integer != 0)
        SHIM_TRY(report("linalg.lu_factor", singular, info->tensor->numel, info->tensor->data));
    ret[0] = shim_steal(&lu);
    ret[1] = shim_steal(&pivots);
    ret[2] = shim_steal(&info);
    return SHIM_SUCCESS;
}

/* Solves A X = B, or X A = B; adjoint: with A's conjugate transpose. */
static AOTITorchError solve_with(const char *function, AtenTensorHandle lu, AtenTensorHandle pivots, AtenTensorHandle b,
                                 bool left, bool adjoint, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle factors = NULL, exchanges = NULL, result = NULL;
    int info = 0;
    solve_lu getrs;
    SHIM_TRY(check_pair(function, lu, b, left));
    const int32_t dtype = lu->tensor->dtype;
    SHIM_TRY(aoticache_shim_lapack(function, LAPACK_GETRS, dtype, &getrs));
    SHIM_TRY(expand_pair(function, lu, b, left, &factors, &result));
    const struct matrices m = aoticache_shim_matrices(factors), x = aoticache_shim_matrices(result);
    const int n = (int)m.rows, columns = (int)(left ? x.columns : x.rows), lda = leading(n);
    SHIM_TRY(expand_pivots(function, pivots, factors->tensor, &exchanges));
    const int32_t *pivot = exchanges->tensor->data;
    for (int64_t i = 0; i < exchanges->tensor->numel; i++)
        if (pivot[i] < 1)
            return aoticache_shim_fail("%s: invalid pivot %d", function, (int)pivot[i]);
    const bool conjugates = !left && adjoint;
    const char how = left ? (adjoint ? 'C' : 'N') : (adjoint ? 'N' : 'T');
    if (conjugates)
        aoticache_shim_conjugate(dtype, x.data, result->tensor->numel);
    for (int64_t i = 0; i < x.count; i++)
        getrs(&how, &n, &columns, matrix_at(&m, i), &lda, pivot + i * n, matrix_at(&x, i), &lda, &info, LENGTH);
    if (conjugates)
        aoticache_shim_conjugate(dtype, x.data, result->tensor->numel);
    *ret = shim_steal(&result);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_lu_solve(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    return solve_with("linalg.lu_solve", a[0].tensor, a[1].tensor, a[2].tensor, a[3].integer != 0, a[4].integer != 0,
                      ret);
}

static bool is_vector(const struct shim_tensor *a, const struct shim_tensor *b)
{
    return b->ndim == 1 ||
           (a->ndim - 1 == b->ndim && memcmp(a->sizes, b->sizes, (size_t)b->ndim * sizeof *b->sizes) == 0);
}

/* Makes a view with one more dimension of size 1 at the end, or with one less. */
static AOTITorchError reshape_last(const char *function, AtenTensorHandle tensor, int more, AtenTensorHandle *ret)
{
    const struct shim_tensor *t = tensor->tensor;
    int64_t sizes[SHIM_MAX_NDIM + 1], strides[SHIM_MAX_NDIM + 1];
    memcpy(sizes, t->sizes, (size_t)t->ndim * sizeof *sizes);
    memcpy(strides, t->strides, (size_t)t->ndim * sizeof *strides);
    sizes[t->ndim] = strides[t->ndim] = 1;
    return aoticache_shim_tensor_view(function, t, t->dtype, t->ndim + more, sizes, strides, t->offset, ret);
}

/* Returns the result without its last dimension, with PyTorch's strides. */
static AOTITorchError drop_last(const char *function, AtenTensorHandle result, bool left, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle view = NULL, made = NULL;
    SHIM_TRY(reshape_last(function, result, -1, &view));
    const struct shim_tensor *t = view->tensor;
    if (t->ndim < 2)
        SHIM_TRY(aoticache_shim_make(function, t->ndim, t->sizes, t->dtype, &made));
    else
        SHIM_TRY(aoticache_shim_make_matrices(function, t->ndim, t->sizes, t->sizes[t->ndim - 2], t->sizes[t->ndim - 1],
                                              t->dtype, left, &made));
    SHIM_TRY(aoti_torch_copy_(made, view, 0));
    *ret = shim_steal(&made);
    return SHIM_SUCCESS;
}

static AOTITorchError solve(const char *function, AtenTensorHandle a, AtenTensorHandle b, bool left, bool check,
                            AtenTensorHandle ret[4])
{
    cleanup_tensor AtenTensorHandle lu = NULL, pivots = NULL, info = NULL, result = NULL, view = NULL, dropped = NULL;
    SHIM_TRY(aoticache_shim_check_matrices(function, a, true));
    if (!shim_is_defined(b))
        return aoticache_shim_fail_undefined(function, b);
    const bool vector = is_vector(a->tensor, b->tensor);
    if (vector)
        SHIM_TRY(reshape_last(function, b, 1, &view));
    SHIM_TRY(factor(function, a, false, &lu, &pivots, &info));
    if (check)
        SHIM_TRY(report(function, singular, info->tensor->numel, info->tensor->data));
    SHIM_TRY(solve_with(function, lu, pivots, vector ? view : b, left, false, &result));
    if (vector)
        SHIM_TRY(drop_last(function, result, left, &dropped));
    ret[0] = vector ? shim_steal(&dropped) : shim_steal(&result);
    ret[1] = shim_steal(&lu);
    ret[2] = shim_steal(&pivots);
    ret[3] = shim_steal(&info);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_solve(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    return solve("linalg.solve", a[0].tensor, a[1].tensor, a[2].integer != 0, a[3].integer != 0, ret);
}

AOTITorchError aoticache_shim_inverse(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle identity = NULL, lu = NULL, pivots = NULL;
    AtenTensorHandle results[4];
    SHIM_TRY(aoticache_shim_check_matrices("linalg.inv", a[0].tensor, true));
    const struct shim_tensor *t = a[0].tensor->tensor;
    const int64_t n = t->sizes[t->ndim - 1];
    SHIM_TRY(aoticache_shim_make("linalg.inv", 2, (const int64_t[]){n, n}, t->dtype, &identity));
    SHIM_TRY(aoti_torch_zero_(identity));
    for (int64_t i = 0; i < n; i++)
        set_element(t->dtype, identity->tensor->data, i * n + i, 1);
    SHIM_TRY(solve("linalg.inv", a[0].tensor, identity, true, a[1].integer != 0, results));
    lu = results[1];
    pivots = results[2];
    ret[0] = results[0];
    ret[1] = results[3];
    return SHIM_SUCCESS;
}

/* ---- determinants ---- */

/*
 * Returns whether to factor the transpose. PyTorch does so for a real matrix that is stored by rows, to avoid a copy.
 */
static bool factors_transpose(AtenTensorHandle a)
{
    return aoticache_shim_is_contiguous(a->tensor) && !aoticache_shim_is_complex(a->tensor->dtype);
}

/* Returns the product of the diagonal; or its sign, with the logarithm of its absolute value in *ret_logarithm. */
static double complex determinant_of(int32_t dtype, const struct matrices *m, int64_t i, const int *pivots,
                                     double *ret_logarithm)
{
    double complex product = 1;
    double logarithm = 0;
    for (int64_t k = 0; k < m->rows; k++) {
        double complex x = element(dtype, matrix_at(m, i), k * m->rows + k);
        const double size = cabs(x);
        logarithm += log(size);
        if (ret_logarithm != NULL)
            x = size == 0 ? 0 : x / size;
        product *= pivots[i * m->rows + k] != k + 1 ? -x : x;
    }
    if (ret_logarithm != NULL)
        *ret_logarithm = logarithm;
    return product;
}

/* Computes determinants, or signs and logarithms if `logarithms` is a tensor. */
static void fill_determinants(AtenTensorHandle lu, AtenTensorHandle pivots, AtenTensorHandle results,
                              AtenTensorHandle logarithms)
{
    const struct matrices m = aoticache_shim_matrices(lu);
    const int32_t dtype = lu->tensor->dtype;
    for (int64_t i = 0; i < m.count; i++) {
        double logarithm = 0;
        set_element(dtype, results->tensor->data, i,
                    determinant_of(dtype, &m, i, pivots->tensor->data, logarithms != NULL ? &logarithm : NULL));
        if (logarithms != NULL)
            set_element(aoticache_shim_real_dtype(dtype), logarithms->tensor->data, i, logarithm);
    }
}

AOTITorchError aoticache_shim_determinant(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle lu = NULL, pivots = NULL, info = NULL, result = NULL;
    SHIM_TRY(aoticache_shim_check_matrices("linalg.det", a[0].tensor, true));
    SHIM_TRY(factor("linalg.det", a[0].tensor, factors_transpose(a[0].tensor), &lu, &pivots, &info));
    SHIM_TRY(aoticache_shim_make_each("linalg.det", lu, -1, lu->tensor->dtype, &result));
    fill_determinants(lu, pivots, result, NULL);
    ret[0] = shim_steal(&result);
    ret[1] = shim_steal(&lu);
    ret[2] = shim_steal(&pivots);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_log_determinant(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle lu = NULL, pivots = NULL, info = NULL, sign = NULL, logarithm = NULL;
    SHIM_TRY(aoticache_shim_check_matrices("linalg.slogdet", a[0].tensor, true));
    SHIM_TRY(factor("linalg.slogdet", a[0].tensor, factors_transpose(a[0].tensor), &lu, &pivots, &info));
    SHIM_TRY(aoticache_shim_make_each("linalg.slogdet", lu, -1, lu->tensor->dtype, &sign));
    SHIM_TRY(
        aoticache_shim_make_each("linalg.slogdet", lu, -1, aoticache_shim_real_dtype(lu->tensor->dtype), &logarithm));
    fill_determinants(lu, pivots, sign, logarithm);
    ret[0] = shim_steal(&sign);
    ret[1] = shim_steal(&logarithm);
    ret[2] = shim_steal(&lu);
    ret[3] = shim_steal(&pivots);
    return SHIM_SUCCESS;
}

/* ---- the parts of LU ---- */

/* Makes the permutation of the rows as a matrix of zeros and ones. */
static AOTITorchError unpack_pivots(const char *function, const struct matrices *m, AtenTensorHandle pivots,
                                    AtenTensorHandle permutation)
{
    const int64_t each = m->rows < m->columns ? m->rows : m->columns;
    cleanup_tensor AtenTensorHandle order = NULL;
    SHIM_TRY(aoticache_shim_make(function, 1, &m->rows, AOTICACHE_DTYPE_INT64, &order));
    int64_t *at = order->tensor->data;
    const int32_t dtype = permutation->tensor->dtype;
    SHIM_TRY(aoti_torch_zero_(permutation));
    for (int64_t i = 0; i < m->count; i++) {
        const int *pivot = (const int *)pivots->tensor->data + i * each;
        for (int64_t k = 0; k < m->rows; k++)
            at[k] = k;
        for (int64_t k = 0; k < each; k++) {
            if (pivot[k] < 1 || pivot[k] > m->rows)
                return aoticache_shim_fail("%s: a pivot is %d, but there are %lld rows", function, pivot[k],
                                           (long long)m->rows);
            int64_t other = at[pivot[k] - 1];
            at[pivot[k] - 1] = at[k];
            at[k] = other;
        }
        for (int64_t k = 0; k < m->rows; k++)
            set_element(dtype, permutation->tensor->data, (i * m->rows + at[k]) * m->rows + k, 1);
    }
    return SHIM_SUCCESS;
}

/* Splits a matrix with both factors, stored by columns, into two matrices, stored by rows. */
static void split(int32_t dtype, const struct matrices *m, char *lower, char *upper)
{
    const int64_t each = m->rows < m->columns ? m->rows : m->columns;
    for (int64_t i = 0; i < m->count; i++) {
        for (int64_t row = 0; row < m->rows; row++)
            for (int64_t k = 0; k < each; k++)
                set_element(dtype, lower, (i * m->rows + row) * each + k,
                            row > k    ? element(dtype, matrix_at(m, i), k * m->rows + row)
                            : row == k ? 1
                                       : 0);
        for (int64_t k = 0; k < each; k++)
            for (int64_t column = 0; column < m->columns; column++)
                set_element(dtype, upper, (i * each + k) * m->columns + column,
                            column >= k ? element(dtype, matrix_at(m, i), column * m->rows + k) : 0);
    }
}

static AOTITorchError unpack(const char *function, AtenTensorHandle lu, AtenTensorHandle pivots, bool data, bool order,
                             AtenTensorHandle ret[3])
{
    cleanup_tensor AtenTensorHandle copy = NULL, exchanges = NULL, p = NULL, l = NULL, u = NULL;
    SHIM_TRY(aoticache_shim_check_matrices(function, lu, false));
    SHIM_TRY(aoticache_shim_copy_columns(function, lu, false, &copy));
    const struct matrices m = aoticache_shim_matrices(copy);
    const struct shim_tensor *t = copy->tensor;
    const int64_t each = m.rows < m.columns ? m.rows : m.columns, none = 0;
    if (order) {
        if (!shim_is_defined(pivots) || pivots->tensor->dtype != INT32 || pivots->tensor->numel != m.count * each)
            return aoticache_shim_fail("%s: %lld pivots of int32 are needed for each matrix", function,
                                       (long long)each);
        SHIM_TRY(aoticache_shim_read(function, pivots, INT32, &exchanges));
        SHIM_TRY(aoticache_shim_make_matrices(function, t->ndim, t->sizes, m.rows, m.rows, t->dtype, false, &p));
        SHIM_TRY(unpack_pivots(function, &m, exchanges, p));
    } else {
        SHIM_TRY(aoticache_shim_make(function, 1, &none, t->dtype, &p));
    }
    if (data) {
        SHIM_TRY(aoticache_shim_make_matrices(function, t->ndim, t->sizes, m.rows, each, t->dtype, false, &l));
        SHIM_TRY(aoticache_shim_make_matrices(function, t->ndim, t->sizes, each, m.columns, t->dtype, false, &u));
        split(t->dtype, &m, l->tensor->data, u->tensor->data);
    } else {
        SHIM_TRY(aoticache_shim_make(function, 1, &none, t->dtype, &l));
        SHIM_TRY(aoticache_shim_make(function, 1, &none, t->dtype, &u));
    }
    ret[0] = shim_steal(&p);
    ret[1] = shim_steal(&l);
    ret[2] = shim_steal(&u);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_lu(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle lu = NULL, pivots = NULL, info = NULL;
    if (a[1].integer == 0)
        return aoticache_shim_fail("linalg.lu: pivot=False is not supported on the CPU, as in PyTorch");
    SHIM_TRY(factor("linalg.lu", a[0].tensor, false, &lu, &pivots, &info));
    return unpack("linalg.lu", lu, pivots, true, true, ret);
}

AOTITorchError aoti_torch_cpu_lu_unpack(AtenTensorHandle LU_data, AtenTensorHandle LU_pivots, int32_t unpack_data,
                                        int32_t unpack_order, AtenTensorHandle *ret0, AtenTensorHandle *ret1,
                                        AtenTensorHandle *ret2)
{
    AtenTensorHandle results[3];
    SHIM_CHECK_RESULT(ret0);
    SHIM_CHECK_RESULT(ret1);
    SHIM_CHECK_RESULT(ret2);
    SHIM_TRY(unpack(__func__, LU_data, LU_pivots, unpack_data != 0, unpack_order != 0, results));
    *ret0 = results[0];
    *ret1 = results[1];
    *ret2 = results[2];
    return SHIM_SUCCESS;
}

/* ---- Cholesky ---- */

static AOTITorchError factor_positive(const char *function, AtenTensorHandle a, bool upper,
                                      AtenTensorHandle *ret_factor, AtenTensorHandle *ret_info)
{
    factor_cholesky potrf;
    const char triangle = upper ? 'U' : 'L';
    SHIM_TRY(aoticache_shim_check_matrices(function, a, true));
    SHIM_TRY(aoticache_shim_lapack(function, LAPACK_POTRF, a->tensor->dtype, &potrf));
    SHIM_TRY(aoticache_shim_copy_columns(function, a, false, ret_factor));
    SHIM_TRY(aoticache_shim_make_each(function, *ret_factor, -1, INT32, ret_info));
    const struct matrices m = aoticache_shim_matrices(*ret_factor);
    const int n = (int)m.rows, lda = leading(n);
    int *info = (*ret_info)->tensor->data;
    for (int64_t i = 0; i < m.count; i++)
        potrf(&triangle, &n, matrix_at(&m, i), &lda, &info[i], LENGTH);
    clear_triangle(a->tensor->dtype, &m, !upper);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_cholesky_factor(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle result = NULL, info = NULL;
    SHIM_TRY(factor_positive("linalg.cholesky", a[0].tensor, a[1].integer != 0, &result, &info));
    if (a[2].integer != 0)
        SHIM_TRY(report("linalg.cholesky", indefinite, info->tensor->numel, info->tensor->data));
    ret[0] = shim_steal(&result);
    ret[1] = shim_steal(&info);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_cholesky(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle result = NULL, info = NULL;
    SHIM_TRY(factor_positive("cholesky", a[0].tensor, a[1].integer != 0, &result, &info));
    SHIM_TRY(report("cholesky", indefinite, info->tensor->numel, info->tensor->data));
    ret[0] = shim_steal(&result);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_cholesky_solve(AtenTensorHandle self, AtenTensorHandle input2, int32_t upper,
                                             AtenTensorHandle *ret0)
{
    cleanup_tensor AtenTensorHandle factors = NULL, result = NULL;
    int info = 0;
    solve_cholesky potrs;
    const char triangle = upper != 0 ? 'U' : 'L';
    SHIM_CHECK_RESULT(ret0);
    SHIM_TRY(check_pair(__func__, input2, self, true));
    SHIM_TRY(aoticache_shim_lapack(__func__, LAPACK_POTRS, self->tensor->dtype, &potrs));
    SHIM_TRY(expand_pair(__func__, input2, self, true, &factors, &result));
    const struct matrices m = aoticache_shim_matrices(factors), x = aoticache_shim_matrices(result);
    const int n = (int)m.rows, columns = (int)x.columns, lda = leading(n);
    for (int64_t i = 0; i < x.count; i++)
        potrs(&triangle, &n, &columns, matrix_at(&m, i), &lda, matrix_at(&x, i), &lda, &info, LENGTH);
    *ret0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_cholesky_inverse(AtenTensorHandle self, int32_t upper, AtenTensorHandle *ret0)
{
    cleanup_tensor AtenTensorHandle result = NULL;
    factor_cholesky potri;
    const char triangle = upper != 0 ? 'U' : 'L';
    SHIM_CHECK_RESULT(ret0);
    SHIM_TRY(aoticache_shim_check_matrices(__func__, self, true));
    SHIM_TRY(aoticache_shim_lapack(__func__, LAPACK_POTRI, self->tensor->dtype, &potri));
    SHIM_TRY(aoticache_shim_copy_columns(__func__, self, false, &result));
    const struct matrices m = aoticache_shim_matrices(result);
    const int n = (int)m.rows, lda = leading(n);
    const int32_t dtype = self->tensor->dtype;
    for (int64_t i = 0; i < m.count; i++) {
        int info = 0;
        char *x = matrix_at(&m, i);
        potri(&triangle, &n, x, &lda, &info, LENGTH);
        SHIM_TRY(report(__func__, singular, 1, &info));
        for (int64_t column = 0; column < n; column++) /* copy to the other triangle */
            for (int64_t row = column + 1; row < n; row++) {
                int64_t below = column * n + row, above = row * n + column;
                set_element(dtype, x, upper != 0 ? below : above, conj(element(dtype, x, upper != 0 ? above : below)));
            }
    }
    *ret0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

/* ---- LDL ---- */

AOTITorchError aoticache_shim_ldl_factor(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    static const char function[] = "linalg.ldl_factor";
    cleanup_tensor AtenTensorHandle result = NULL, pivots = NULL, info = NULL, work = NULL;
    factor_ldl sytrf;
    SHIM_TRY(aoticache_shim_check_matrices(function, a[0].tensor, true));
    const int32_t dtype = a[0].tensor->tensor->dtype;
    SHIM_TRY(aoticache_shim_lapack(function, a[1].integer != 0 ? LAPACK_HETRF : LAPACK_SYTRF, dtype, &sytrf));
    SHIM_TRY(aoticache_shim_copy_columns(function, a[0].tensor, false, &result));
    const struct matrices m = aoticache_shim_matrices(result);
    const int n = (int)m.rows, lda = leading(n), work_count = 64 * lda;
    clear_triangle(dtype, &m, true);
    SHIM_TRY(aoticache_shim_make_each(function, result, n, INT32, &pivots));
    SHIM_TRY(aoticache_shim_make_each(function, result, -1, INT32, &info));
    SHIM_TRY(aoticache_shim_make(function, 1, (const int64_t[]){work_count}, dtype, &work));
    int *pivot = pivots->tensor->data, *found = info->tensor->data;
    for (int64_t i = 0; i < m.count; i++)
        sytrf("L", &n, matrix_at(&m, i), &lda, pivot + i * n, work->tensor->data, &work_count, &found[i], LENGTH);
    if (a[2].integer != 0)
        SHIM_TRY(report(function, singular, info->tensor->numel, found));
    ret[0] = shim_steal(&result);
    ret[1] = shim_steal(&pivots);
    ret[2] = shim_steal(&info);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_ldl_solve(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    static const char function[] = "linalg.ldl_solve";
    cleanup_tensor AtenTensorHandle factors = NULL, pivots = NULL, result = NULL;
    int info = 0;
    solve_ldl sytrs;
    SHIM_TRY(check_pair(function, a[0].tensor, a[2].tensor, true));
    SHIM_TRY(aoticache_shim_lapack(function, a[3].integer != 0 ? LAPACK_HETRS : LAPACK_SYTRS,
                                   a[0].tensor->tensor->dtype, &sytrs));
    SHIM_TRY(expand_pair(function, a[0].tensor, a[2].tensor, true, &factors, &result));
    const struct matrices m = aoticache_shim_matrices(factors), x = aoticache_shim_matrices(result);
    const int n = (int)m.rows, columns = (int)x.columns, lda = leading(n);
    SHIM_TRY(expand_pivots(function, a[1].tensor, factors->tensor, &pivots));
    for (int64_t i = 0; i < x.count; i++)
        sytrs("L", &n, &columns, matrix_at(&m, i), &lda, (const int *)pivots->tensor->data + i * n, matrix_at(&x, i),
              &lda, &info, LENGTH);
    *ret = shim_steal(&result);
    return SHIM_SUCCESS;
}

/* ---- triangles ---- */

struct triangle {
    bool left, upper, transposed, unit;
};

static AOTITorchError solve_triangle(const char *function, AtenTensorHandle a, AtenTensorHandle b, struct triangle how,
                                     AtenTensorHandle *ret_result, AtenTensorHandle *ret_a)
{
    cleanup_tensor AtenTensorHandle factors = NULL, result = NULL;
    solve_by_triangle trsm;
    union {
        float single;
        double number;
        double complex room;
    } one;
    SHIM_TRY(check_pair(function, a, b, how.left));
    const int32_t dtype = a->tensor->dtype;
    SHIM_TRY(aoticache_shim_lapack(function, LAPACK_TRSM, dtype, &trsm));
    SHIM_TRY(expand_pair(function, a, b, true, &factors, &result));
    const struct matrices m = aoticache_shim_matrices(factors), x = aoticache_shim_matrices(result);
    const int lda = leading(m.rows), rows = (int)x.rows, columns = (int)x.columns, ldb = leading(rows);
    set_element(dtype, &one, 0, 1);
    for (int64_t i = 0; i < x.count; i++)
        trsm(how.left ? "L" : "R", how.upper ? "U" : "L", how.transposed ? "T" : "N", how.unit ? "U" : "N", &rows,
             &columns, &one, matrix_at(&m, i), &lda, matrix_at(&x, i), &ldb, LENGTH, LENGTH, LENGTH, LENGTH);
    *ret_result = shim_steal(&result);
    if (ret_a != NULL)
        *ret_a = shim_steal(&factors);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_solve_triangular(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    const struct triangle how = {a[3].integer != 0, a[2].integer != 0, false, a[4].integer != 0};
    return solve_triangle("linalg.solve_triangular", a[0].tensor, a[1].tensor, how, ret, NULL);
}

AOTITorchError aoti_torch_cpu_triangular_solve(AtenTensorHandle self, AtenTensorHandle A, int32_t upper,
                                               int32_t transpose, int32_t unitriangular, AtenTensorHandle *ret0,
                                               AtenTensorHandle *ret1)
{
    const struct triangle how = {true, upper != 0, transpose != 0, unitriangular != 0};
    SHIM_CHECK_RESULT(ret0);
    SHIM_CHECK_RESULT(ret1);
    return solve_triangle(__func__, A, self, how, ret0, ret1);
}

AOTITorchError aoticache_shim_check_errors(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle info = NULL;
    const char *name = a[1].text != NULL ? a[1].text : "linear algebra";
    (void)ret;
    SHIM_TRY(aoticache_shim_read("_linalg_check_errors", a[0].tensor, INT32, &info));
    const char *text = strstr(name, "cholesky") != NULL ? indefinite
                       : strstr(name, "eig") != NULL || strstr(name, "svd") != NULL
                           ? "has values with which the algorithm does not converge"
                           : singular;
    return report(name, text, info->tensor->numel, info->tensor->data);
}
