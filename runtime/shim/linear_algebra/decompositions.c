/*
 * shim/linear_algebra/decompositions: eigenvalues, singular values and orthogonal factors of matrices, with LAPACK.
 *
 * A decomposition is not unique: another LAPACK may return vectors of the opposite sign.
 *
 * Sources: at::native::_linalg_eigh, linalg_eig, _linalg_svd, linalg_qr, linalg_pinv, geqrf, ormqr and
 * linalg_householder_product (aten/src/ATen/native/BatchLinearAlgebra.cpp).
 */
#include "runtime/shim/linear_algebra/lapack.h"

#include "runtime/shim/operators.h"

#include <complex.h>
#include <float.h>
#include <math.h>
#include <string.h>

enum { INT32 = AOTICACHE_DTYPE_INT32, LENGTH = 1 }; /* LENGTH: of a character argument, which Fortran passes last */

typedef void (*factor_qr)(const int *m, const int *n, void *a, const int *lda, void *tau, void *work,
                          const int *work_count, int *info);
typedef void (*make_q)(const int *m, const int *n, const int *k, void *a, const int *lda, const void *tau, void *work,
                       const int *work_count, int *info);
typedef void (*multiply_q)(const char *side, const char *transposed, const int *m, const int *n, const int *k,
                           const void *a, const int *lda, const void *tau, void *c, const int *ldc, void *work,
                           const int *work_count, int *info, size_t, size_t);
typedef void (*real_svd)(const char *job, const int *m, const int *n, void *a, const int *lda, void *s, void *u,
                         const int *ldu, void *vt, const int *ldvt, void *work, const int *work_count, int *indices,
                         int *info, size_t);
typedef void (*complex_svd)(const char *job, const int *m, const int *n, void *a, const int *lda, void *s, void *u,
                            const int *ldu, void *vt, const int *ldvt, void *work, const int *work_count, void *reals,
                            int *indices, int *info, size_t);
typedef void (*real_eigh)(const char *job, const char *triangle, const int *n, void *a, const int *lda, void *w,
                          void *work, const int *work_count, int *indices, const int *index_count, int *info, size_t,
                          size_t);
typedef void (*complex_eigh)(const char *job, const char *triangle, const int *n, void *a, const int *lda, void *w,
                             void *work, const int *work_count, void *reals, const int *real_count, int *indices,
                             const int *index_count, int *info, size_t, size_t);
typedef void (*real_eig)(const char *left, const char *right, const int *n, void *a, const int *lda, void *reals,
                         void *imaginaries, void *vl, const int *ldvl, void *vr, const int *ldvr, void *work,
                         const int *work_count, int *info, size_t, size_t);
typedef void (*complex_eig)(const char *left, const char *right, const int *n, void *a, const int *lda, void *w,
                            void *vl, const int *ldvl, void *vr, const int *ldvr, void *work, const int *work_count,
                            void *reals, int *info, size_t, size_t);

static int leading(int64_t rows)
{
    return rows > 1 ? (int)rows : 1;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static double real_at(int32_t real_dtype, const void *data, int64_t i)
{
    return real_dtype == AOTICACHE_DTYPE_FLOAT32 ? (double)((const float *)data)[i] : ((const double *)data)[i];
}

static bool is_complex(int32_t dtype)
{
    return aoticache_shim_is_complex(dtype);
}

/* Allocates workspace for a routine whose size query wrote the size to the first element of `answer`. */
static AOTITorchError make_work(const char *function, int32_t dtype, const void *answer, int *ret_count,
                                AtenTensorHandle *ret)
{
    const double count = real_at(aoticache_shim_real_dtype(dtype), answer, 0);
    /* A float cannot represent all integers, so one more than it says. */
    *ret_count = count < 1 ? 1 : count > 2147483000 ? 2147483000 : (int)(count * (1 + (double)FLT_EPSILON)) + 1;
    return aoticache_shim_make(function, 1, (const int64_t[]){*ret_count}, dtype, ret);
}

static AOTITorchError make_array(const char *function, int64_t count, int32_t dtype, AtenTensorHandle *ret)
{
    return aoticache_shim_make(function, 1, &count, dtype, ret);
}

static AOTITorchError check_converged(const char *function, int64_t matrix, int info)
{
    if (info == 0)
        return SHIM_SUCCESS;
    return aoticache_shim_fail("%s: matrix %lld: LAPACK does not converge, or rejects an argument (%d)", function,
                               (long long)matrix, info);
}

/* ---- QR ---- */

static AOTITorchError factor_orthogonal(const char *function, AtenTensorHandle a, AtenTensorHandle *ret_qr,
                                        AtenTensorHandle *ret_tau)
{
    cleanup_tensor AtenTensorHandle work = NULL;
    factor_qr geqrf;
    double complex answer = 0;
    int info = 0, count = -1;
    SHIM_TRY(aoticache_shim_check_matrices(function, a, false));
    const int32_t dtype = a->tensor->dtype;
    SHIM_TRY(aoticache_shim_lapack(function, LAPACK_GEQRF, dtype, &geqrf));
    SHIM_TRY(aoticache_shim_copy_columns(function, a, false, ret_qr));
    const struct matrices m = aoticache_shim_matrices(*ret_qr);
    const int rows = (int)m.rows, columns = (int)m.columns, lda = leading(rows), each = smaller(rows, columns);
    SHIM_TRY(aoticache_shim_make_each(function, *ret_qr, each, dtype, ret_tau));
    if (each == 0)
        return SHIM_SUCCESS;
    geqrf(&rows, &columns, m.data, &lda, NULL, &answer, &count, &info);
    SHIM_TRY(make_work(function, dtype, &answer, &count, &work));
    char *tau = (*ret_tau)->tensor->data;
    const size_t tau_bytes = (size_t)each * (*ret_tau)->tensor->item_bytes;
    for (int64_t i = 0; i < m.count; i++) {
        geqrf(&rows, &columns, matrix_at(&m, i), &lda, tau + (size_t)i * tau_bytes, work->tensor->data, &count, &info);
        SHIM_TRY(check_converged(function, i, info));
    }
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_geqrf(AtenTensorHandle self, AtenTensorHandle *ret0, AtenTensorHandle *ret1)
{
    cleanup_tensor AtenTensorHandle qr = NULL, tau = NULL;
    SHIM_CHECK_RESULT(ret0);
    SHIM_CHECK_RESULT(ret1);
    SHIM_TRY(factor_orthogonal(__func__, self, &qr, &tau));
    *ret0 = shim_steal(&qr);
    *ret1 = shim_steal(&tau);
    return SHIM_SUCCESS;
}

/* Makes the orthogonal matrices from reflections, in place: stored by columns, at least as many rows as columns. */
static AOTITorchError form_q(const char *function, AtenTensorHandle q, AtenTensorHandle tau)
{
    cleanup_tensor AtenTensorHandle work = NULL;
    make_q orgqr;
    double complex answer = 0;
    int info = 0, count = -1;
    const int32_t dtype = q->tensor->dtype;
    const struct matrices m = aoticache_shim_matrices(q);
    const struct shim_tensor *t = tau->tensor;
    const int rows = (int)m.rows, columns = (int)m.columns, lda = leading(rows), each = (int)t->sizes[t->ndim - 1];
    SHIM_TRY(aoticache_shim_lapack(function, LAPACK_ORGQR, dtype, &orgqr));
    if (rows == 0 || columns == 0)
        return SHIM_SUCCESS;
    orgqr(&rows, &columns, &each, m.data, &lda, t->data, &answer, &count, &info);
    SHIM_TRY(make_work(function, dtype, &answer, &count, &work));
    for (int64_t i = 0; i < m.count; i++) {
        orgqr(&rows, &columns, &each, matrix_at(&m, i), &lda, (char *)t->data + (size_t)(i * each) * t->item_bytes,
              work->tensor->data, &count, &info);
        SHIM_TRY(check_converged(function, i, info));
    }
    return SHIM_SUCCESS;
}

/*
 * Copies each matrix's first columns (upper: without elements below the diagonal) into a larger or smaller one, zeros
 * elsewhere.
 */
static AOTITorchError copy_part(const char *function, AtenTensorHandle from, int64_t rows, int64_t columns, bool upper,
                                AtenTensorHandle *ret)
{
    const struct shim_tensor *t = from->tensor;
    SHIM_TRY(aoticache_shim_make_matrices(function, t->ndim, t->sizes, rows, columns, t->dtype, true, ret));
    SHIM_TRY(aoti_torch_zero_(*ret));
    const struct matrices a = aoticache_shim_matrices(from), b = aoticache_shim_matrices(*ret);
    for (int64_t i = 0; i < a.count; i++)
        for (int64_t column = 0; column < columns && column < a.columns; column++) {
            int64_t count = rows < a.rows ? rows : a.rows;
            if (upper && column + 1 < count)
                count = column + 1;
            memcpy(matrix_at(&b, i) + (size_t)(column * b.rows) * t->item_bytes,
                   matrix_at(&a, i) + (size_t)(column * a.rows) * t->item_bytes, (size_t)count * t->item_bytes);
        }
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_qr(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    static const char function[] = "linalg.qr";
    cleanup_tensor AtenTensorHandle factors = NULL, tau = NULL, q = NULL, r = NULL;
    const char *mode = a[1].text != NULL ? a[1].text : "reduced";
    const bool complete = strcmp(mode, "complete") == 0, only_r = strcmp(mode, "r") == 0;
    if (!complete && !only_r && strcmp(mode, "reduced") != 0)
        return aoticache_shim_fail("%s: unknown mode \"%.40s\"; use reduced, complete or r", function, mode);
    SHIM_TRY(factor_orthogonal(function, a[0].tensor, &factors, &tau));
    const struct matrices m = aoticache_shim_matrices(factors);
    const int64_t each = m.rows < m.columns ? m.rows : m.columns, width = complete ? m.rows : each;
    SHIM_TRY(copy_part(function, factors, width, m.columns, true, &r));
    if (only_r) {
        SHIM_TRY(make_array(function, 0, factors->tensor->dtype, &q));
    } else {
        SHIM_TRY(copy_part(function, factors, m.rows, width, false, &q));
        SHIM_TRY(form_q(function, q, tau));
    }
    ret[0] = shim_steal(&q);
    ret[1] = shim_steal(&r);
    return SHIM_SUCCESS;
}

static AOTITorchError check_reflections(const char *function, AtenTensorHandle a, AtenTensorHandle tau)
{
    SHIM_TRY(aoticache_shim_check_matrices(function, a, false));
    if (!shim_is_defined(tau))
        return aoticache_shim_fail_undefined(function, tau);
    const struct shim_tensor *x = a->tensor, *t = tau->tensor;
    if (t->dtype != x->dtype || t->ndim != x->ndim - 1 ||
        memcmp(t->sizes, x->sizes, (size_t)(x->ndim - 2) * sizeof *t->sizes) != 0 ||
        t->sizes[t->ndim - 1] > x->sizes[x->ndim - 1] || t->sizes[t->ndim - 1] > x->sizes[x->ndim - 2])
        return aoticache_shim_fail("%s: the factors of the reflections do not match their vectors", function);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_householder_product(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    static const char function[] = "linalg.householder_product";
    cleanup_tensor AtenTensorHandle q = NULL, tau = NULL;
    SHIM_TRY(check_reflections(function, a[0].tensor, a[1].tensor));
    const struct shim_tensor *x = a[0].tensor->tensor;
    if (x->sizes[x->ndim - 2] < x->sizes[x->ndim - 1])
        return aoticache_shim_fail("%s: at least as many rows as columns are needed", function);
    SHIM_TRY(aoticache_shim_copy_columns(function, a[0].tensor, false, &q));
    SHIM_TRY(aoticache_shim_read(function, a[1].tensor, x->dtype, &tau));
    SHIM_TRY(form_q(function, q, tau));
    *ret = shim_steal(&q);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_ormqr(AtenTensorHandle self, AtenTensorHandle input2, AtenTensorHandle input3,
                                    int32_t left, int32_t transpose, AtenTensorHandle *ret0)
{
    cleanup_tensor AtenTensorHandle factors = NULL, tau = NULL, result = NULL, work = NULL;
    multiply_q ormqr;
    double complex answer = 0;
    int info = 0, count = -1;
    SHIM_CHECK_RESULT(ret0);
    SHIM_TRY(check_reflections(__func__, self, input2));
    SHIM_TRY(aoticache_shim_check_matrices(__func__, input3, false));
    const struct shim_tensor *x = self->tensor, *other = input3->tensor;
    const int32_t dtype = x->dtype;
    if (other->dtype != dtype || other->ndim != x->ndim ||
        memcmp(other->sizes, x->sizes, (size_t)(x->ndim - 2) * sizeof *x->sizes) != 0 ||
        other->sizes[x->ndim - (left != 0 ? 2 : 1)] != x->sizes[x->ndim - 2])
        return aoticache_shim_fail("%s: the matrices do not match the reflections", __func__);
    SHIM_TRY(aoticache_shim_lapack(__func__, LAPACK_ORMQR, dtype, &ormqr));
    SHIM_TRY(aoticache_shim_copy_columns(__func__, self, false, &factors));
    SHIM_TRY(aoticache_shim_read(__func__, input2, dtype, &tau));
    SHIM_TRY(aoticache_shim_copy_columns(__func__, input3, false, &result));
    const struct matrices a = aoticache_shim_matrices(factors), c = aoticache_shim_matrices(result);
    const struct shim_tensor *t = tau->tensor;
    const int rows = (int)c.rows, columns = (int)c.columns, lda = leading(a.rows), ldc = leading(rows);
    const int each = (int)t->sizes[t->ndim - 1];
    const char *side = left != 0 ? "L" : "R", *how = transpose == 0 ? "N" : is_complex(dtype) ? "C" : "T";
    if (result->tensor->numel > 0) {
        ormqr(side, how, &rows, &columns, &each, a.data, &lda, t->data, c.data, &ldc, &answer, &count, &info, LENGTH,
              LENGTH);
        SHIM_TRY(make_work(__func__, dtype, &answer, &count, &work));
        for (int64_t i = 0; i < c.count; i++) {
            ormqr(side, how, &rows, &columns, &each, matrix_at(&a, i), &lda,
                  (char *)t->data + (size_t)(i * each) * t->item_bytes, matrix_at(&c, i), &ldc, work->tensor->data,
                  &count, &info, LENGTH, LENGTH);
            SHIM_TRY(check_converged(__func__, i, info));
        }
    }
    *ret0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

/* ---- singular values ---- */

/* The workspace of a routine. */
struct room {
    AtenTensorHandle work, reals, indices;
    int work_count, real_count, index_count;
};

static void free_room(struct room *room)
{
    aoticache_shim_handle_cleanup(&room->work);
    aoticache_shim_handle_cleanup(&room->reals);
    aoticache_shim_handle_cleanup(&room->indices);
}
#define cleanup_room __attribute__((cleanup(free_room)))

struct svd {
    void *routine;
    int32_t dtype;
    char job;
    int rows, columns, lda, ldu, ldvt;
};

static int decompose(const struct svd *d, char *a, void *s, void *u, void *vt, void *work, int work_count,
                     const struct room *room)
{
    int info = 0;
    int *indices = room->indices->tensor->data;
    if (is_complex(d->dtype)) {
        complex_svd gesdd;
        memcpy(&gesdd, &d->routine, sizeof gesdd);
        gesdd(&d->job, &d->rows, &d->columns, a, &d->lda, s, u, &d->ldu, vt, &d->ldvt, work, &work_count,
              room->reals->tensor->data, indices, &info, LENGTH);
    } else {
        real_svd gesdd;
        memcpy(&gesdd, &d->routine, sizeof gesdd);
        gesdd(&d->job, &d->rows, &d->columns, a, &d->lda, s, u, &d->ldu, vt, &d->ldvt, work, &work_count, indices,
              &info, LENGTH);
    }
    return info;
}

/* Writes ones on the diagonal: the vectors of matrices without rows or columns. */
static void fill_identity(AtenTensorHandle tensor)
{
    const struct matrices m = aoticache_shim_matrices(tensor);
    const struct shim_tensor *t = tensor->tensor;
    memset(t->data, 0, (size_t)t->numel * t->item_bytes);
    for (int64_t i = 0; i < m.count; i++)
        for (int64_t k = 0; k < m.rows && k < m.columns; k++) {
            char *place = matrix_at(&m, i) + (size_t)(k * m.rows + k) * t->item_bytes;
            if (aoticache_shim_real_dtype(t->dtype) == AOTICACHE_DTYPE_FLOAT32)
                *(float *)(void *)place = 1;
            else
                *(double *)(void *)place = 1;
        }
}

/* Decomposes all matrices. U and Vh are stored by columns; both NULL if only singular values are wanted. */
static AOTITorchError decompose_all(const char *function, AtenTensorHandle a, bool full, AtenTensorHandle *ret_u,
                                    AtenTensorHandle *ret_s, AtenTensorHandle *ret_vh)
{
    cleanup_tensor AtenTensorHandle copy = NULL;
    cleanup_room struct room room = {0};
    double complex answer = 0;
    SHIM_TRY(aoticache_shim_check_matrices(function, a, false));
    const int32_t dtype = a->tensor->dtype, real = aoticache_shim_real_dtype(dtype);
    SHIM_TRY(aoticache_shim_copy_columns(function, a, false, &copy));
    const struct matrices m = aoticache_shim_matrices(copy);
    const int rows = (int)m.rows, columns = (int)m.columns, each = smaller(rows, columns);
    const int u_columns = full ? rows : each, vt_rows = full ? columns : each;
    struct svd d = {NULL,          dtype,           ret_u == NULL ? 'N' : full ? 'A' : 'S',
                    rows,          columns,         leading(rows),
                    leading(rows), leading(vt_rows)};
    SHIM_TRY(aoticache_shim_lapack(function, LAPACK_GESDD, dtype, &d.routine));
    SHIM_TRY(aoticache_shim_make_each(function, copy, each, real, ret_s));
    const struct shim_tensor *t = copy->tensor;
    struct matrices u = {0}, vt = {0};
    if (ret_u != NULL) {
        SHIM_TRY(aoticache_shim_make_matrices(function, t->ndim, t->sizes, rows, u_columns, dtype, true, ret_u));
        SHIM_TRY(aoticache_shim_make_matrices(function, t->ndim, t->sizes, vt_rows, columns, dtype, true, ret_vh));
        u = aoticache_shim_matrices(*ret_u);
        vt = aoticache_shim_matrices(*ret_vh);
        if (each == 0) {
            fill_identity(*ret_u);
            fill_identity(*ret_vh);
        }
    }
    if (each == 0)
        return SHIM_SUCCESS;
    const int64_t most = rows > columns ? rows : columns, k = each;
    SHIM_TRY(make_array(function, 8 * k, INT32, &room.indices));
    /* The size, from LAPACK's documentation, of an array for which the routine reports none. */
    const int64_t reals =
        5 * k * k + 7 * k > 2 * most * k + 2 * k * k + k ? 5 * k * k + 7 * k : 2 * most * k + 2 * k * k + k;
    SHIM_TRY(make_array(function, is_complex(dtype) ? reals : 0, real, &room.reals));
    (void)decompose(&d, m.data, NULL, NULL, NULL, &answer, -1, &room);
    SHIM_TRY(make_work(function, dtype, &answer, &room.work_count, &room.work));
    const struct shim_tensor *s = (*ret_s)->tensor;
    for (int64_t i = 0; i < m.count; i++) {
        int info = decompose(&d, matrix_at(&m, i), (char *)s->data + (size_t)(i * each) * s->item_bytes,
                             u.data != NULL ? matrix_at(&u, i) : NULL, vt.data != NULL ? matrix_at(&vt, i) : NULL,
                             room.work->tensor->data, room.work_count, &room);
        SHIM_TRY(check_converged(function, i, info));
    }
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_svd(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    static const char function[] = "linalg.svd";
    cleanup_tensor AtenTensorHandle u = NULL, s = NULL, vh = NULL;
    const bool vectors = a[2].integer != 0;
    SHIM_TRY(decompose_all(function, a[0].tensor, a[1].integer != 0, vectors ? &u : NULL, &s, vectors ? &vh : NULL));
    if (!vectors) {
        SHIM_TRY(make_array(function, 0, a[0].tensor->tensor->dtype, &u));
        SHIM_TRY(make_array(function, 0, a[0].tensor->tensor->dtype, &vh));
    }
    ret[0] = shim_steal(&u);
    ret[1] = shim_steal(&s);
    ret[2] = shim_steal(&vh);
    return SHIM_SUCCESS;
}

/* ---- pseudo-inverses ---- */

static double complex number_at(int32_t dtype, const void *data, int64_t i)
{
    if (dtype == AOTICACHE_DTYPE_COMPLEX64)
        return ((const float complex *)data)[i];
    if (dtype == AOTICACHE_DTYPE_COMPLEX128)
        return ((const double complex *)data)[i];
    return real_at(dtype, data, i);
}

static void set_number(int32_t dtype, void *data, int64_t i, double complex value)
{
    if (dtype == AOTICACHE_DTYPE_FLOAT32)
        ((float *)data)[i] = (float)creal(value);
    else if (dtype == AOTICACHE_DTYPE_FLOAT64)
        ((double *)data)[i] = creal(value);
    else if (dtype == AOTICACHE_DTYPE_COMPLEX64)
        ((float complex *)data)[i] = (float complex)value;
    else
        ((double complex *)data)[i] = value;
}

/* Copies the lower triangle, conjugated, to the upper one. */
static AOTITorchError mirror(const char *function, AtenTensorHandle a, AtenTensorHandle *ret)
{
    SHIM_TRY(aoticache_shim_check_matrices(function, a, true));
    SHIM_TRY(aoticache_shim_copy_columns(function, a, false, ret));
    const int32_t dtype = a->tensor->dtype;
    const struct matrices m = aoticache_shim_matrices(*ret);
    for (int64_t i = 0; i < m.count; i++)
        for (int64_t column = 0; column < m.columns; column++)
            for (int64_t row = 0; row < column; row++)
                set_number(dtype, matrix_at(&m, i), column * m.rows + row,
                           conj(number_at(dtype, matrix_at(&m, i), row * m.rows + column)));
    return SHIM_SUCCESS;
}

/* Reads a tolerance as one number for each matrix; NULL: none is given. */
static AOTITorchError read_tolerance(const char *function, const aoticache_named_argument *given, AtenTensorHandle s,
                                     AtenTensorHandle *ret)
{
    const struct shim_tensor *t = s->tensor;
    cleanup_tensor AtenTensorHandle made = NULL;
    if (!given->is_given)
        return SHIM_SUCCESS;
    SHIM_TRY(aoticache_shim_make(function, t->ndim - 1, t->sizes, AOTICACHE_DTYPE_FLOAT64, &made));
    SHIM_TRY(aoti_torch_copy_(made, given->tensor, 0));
    *ret = shim_steal(&made);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_pseudo_inverse(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    static const char function[] = "linalg.pinv";
    cleanup_tensor AtenTensorHandle given = NULL, u = NULL, s = NULL, vh = NULL, absolute = NULL, relative = NULL;
    cleanup_tensor AtenTensorHandle result = NULL;
    if (a[3].integer != 0)
        SHIM_TRY(mirror(function, a[0].tensor, &given));
    SHIM_TRY(decompose_all(function, given != NULL ? given : a[0].tensor, false, &u, &s, &vh));
    SHIM_TRY(read_tolerance(function, &a[1], s, &absolute));
    SHIM_TRY(read_tolerance(function, &a[2], s, &relative));
    const struct shim_tensor *t = u->tensor;
    const struct matrices left = aoticache_shim_matrices(u), right = aoticache_shim_matrices(vh);
    const int32_t dtype = t->dtype, real = aoticache_shim_real_dtype(dtype);
    SHIM_TRY(
        aoticache_shim_make_matrices(function, t->ndim, t->sizes, right.columns, left.rows, dtype, false, &result));
    const int64_t most = left.rows > right.columns ? left.rows : right.columns;
    const double usual = (double)most * (real == AOTICACHE_DTYPE_FLOAT32 ? (double)FLT_EPSILON : DBL_EPSILON);
    for (int64_t i = 0; i < left.count; i++) {
        const int64_t each = left.columns;
        const double least = absolute != NULL ? ((const double *)absolute->tensor->data)[i] : 0;
        const double part = relative != NULL ? ((const double *)relative->tensor->data)[i] : least > 0 ? 0 : usual;
        const double first = each > 0 ? real_at(real, s->tensor->data, i * each) : 0;
        const double cut = part * first > least ? part * first : least;
        for (int64_t row = 0; row < right.columns; row++)
            for (int64_t column = 0; column < left.rows; column++) {
                double complex sum = 0;
                for (int64_t k = 0; k < each; k++) {
                    double value = real_at(real, s->tensor->data, i * each + k);
                    if (value > cut)
                        sum += conj(number_at(dtype, matrix_at(&right, i), row * right.rows + k)) / value *
                               conj(number_at(dtype, matrix_at(&left, i), k * left.rows + column));
                }
                set_number(dtype, result->tensor->data, (i * right.columns + row) * left.rows + column, sum);
            }
    }
    *ret = shim_steal(&result);
    return SHIM_SUCCESS;
}

/* ---- eigenvalues ---- */

struct eigh {
    void *routine;
    int32_t dtype;
    char job, triangle;
    int n, lda;
};

static int decompose_hermitian(const struct eigh *e, void *a, void *w, void *work, void *reals, int *indices,
                               const int counts[3])
{
    int info = 0;
    if (is_complex(e->dtype)) {
        complex_eigh heevd;
        memcpy(&heevd, &e->routine, sizeof heevd);
        heevd(&e->job, &e->triangle, &e->n, a, &e->lda, w, work, &counts[0], reals, &counts[1], indices, &counts[2],
              &info, LENGTH, LENGTH);
    } else {
        real_eigh syevd;
        memcpy(&syevd, &e->routine, sizeof syevd);
        syevd(&e->job, &e->triangle, &e->n, a, &e->lda, w, work, &counts[0], indices, &counts[2], &info, LENGTH,
              LENGTH);
    }
    return info;
}

AOTITorchError aoticache_shim_eigh(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    static const char function[] = "linalg.eigh";
    cleanup_tensor AtenTensorHandle vectors = NULL, values = NULL;
    cleanup_room struct room room = {0};
    const bool wanted = a[2].integer != 0;
    double complex answer = 0;
    double real_answer = 0;
    int index_answer = 0, counts[3] = {-1, -1, -1};
    SHIM_TRY(aoticache_shim_check_matrices(function, a[0].tensor, true));
    const int32_t dtype = a[0].tensor->tensor->dtype, real = aoticache_shim_real_dtype(dtype);
    SHIM_TRY(aoticache_shim_copy_columns(function, a[0].tensor, false, &vectors));
    const struct matrices m = aoticache_shim_matrices(vectors);
    const char *triangle = a[1].text != NULL ? a[1].text : "L";
    struct eigh e = {
        NULL,        dtype,          wanted ? 'V' : 'N', triangle[0] == 'U' || triangle[0] == 'u' ? 'U' : 'L',
        (int)m.rows, leading(m.rows)};
    SHIM_TRY(aoticache_shim_lapack(function, LAPACK_HEEVD, dtype, &e.routine));
    SHIM_TRY(aoticache_shim_make_each(function, vectors, e.n, real, &values));
    (void)decompose_hermitian(&e, m.data, values->tensor->data, &answer, &real_answer, &index_answer, counts);
    SHIM_TRY(make_work(function, dtype, &answer, &counts[0], &room.work));
    SHIM_TRY(make_work(function, real, &real_answer, &counts[1], &room.reals));
    counts[2] = index_answer > 1 ? index_answer : 1;
    SHIM_TRY(make_array(function, counts[2], INT32, &room.indices));
    for (int64_t i = 0; i < m.count && e.n > 0; i++) {
        int info = decompose_hermitian(
            &e, matrix_at(&m, i), (char *)values->tensor->data + (size_t)(i * e.n) * values->tensor->item_bytes,
            room.work->tensor->data, room.reals->tensor->data, room.indices->tensor->data, counts);
        SHIM_TRY(check_converged(function, i, info));
    }
    if (!wanted) {
        aoticache_shim_handle_cleanup(&vectors);
        vectors = NULL;
        SHIM_TRY(make_array(function, 0, dtype, &vectors));
    }
    ret[0] = shim_steal(&values);
    ret[1] = shim_steal(&vectors);
    return SHIM_SUCCESS;
}

struct eig {
    void *routine;
    int32_t dtype;
    bool vectors;
    int n, lda;
};

/*
 * Computes eigenvalues: complex ones, or real parts in `first` and imaginary parts in `second`, which is workspace for
 * complex matrices.
 */
static int decompose_general(const struct eig *e, void *a, void *first, void *second, void *right, void *work,
                             int count)
{
    int info = 0;
    const int one = 1;
    const char *job = e->vectors ? "V" : "N";
    if (is_complex(e->dtype)) {
        complex_eig geev;
        memcpy(&geev, &e->routine, sizeof geev);
        geev("N", job, &e->n, a, &e->lda, first, NULL, &one, right, &e->lda, work, &count, second, &info, LENGTH,
             LENGTH);
    } else {
        real_eig geev;
        memcpy(&geev, &e->routine, sizeof geev);
        geev("N", job, &e->n, a, &e->lda, first, second, NULL, &one, right, &e->lda, work, &count, &info, LENGTH,
             LENGTH);
    }
    return info;
}

/* Writes the complex vectors: two columns of a real matrix belong to a pair of conjugate values. */
static void write_vectors(const struct eig *e, const void *imaginaries, const char *right, int32_t complex_dtype,
                          void *to, int64_t first)
{
    for (int column = 0; column < e->n; column++) {
        const double imaginary = is_complex(e->dtype) ? 0 : real_at(e->dtype, imaginaries, column);
        const int real_column = imaginary < 0 ? column - 1 : column;
        for (int row = 0; row < e->n; row++) {
            double complex x = number_at(e->dtype, right, (int64_t)real_column * e->n + row);
            if (imaginary != 0)
                x += (imaginary < 0 ? -I : I) * real_at(e->dtype, right, (int64_t)(real_column + 1) * e->n + row);
            set_number(complex_dtype, to, first + (int64_t)column * e->n + row, x);
        }
    }
}

static AOTITorchError decompose_any(const char *function, AtenTensorHandle a, bool vectors,
                                    AtenTensorHandle *ret_values, AtenTensorHandle *ret_vectors)
{
    cleanup_tensor AtenTensorHandle copy = NULL, first = NULL, second = NULL, right = NULL, work = NULL;
    double complex answer = 0;
    int count = 0;
    SHIM_TRY(aoticache_shim_check_matrices(function, a, true));
    const int32_t dtype = a->tensor->dtype, real = aoticache_shim_real_dtype(dtype);
    const int32_t wide = real == AOTICACHE_DTYPE_FLOAT32 ? AOTICACHE_DTYPE_COMPLEX64 : AOTICACHE_DTYPE_COMPLEX128;
    SHIM_TRY(aoticache_shim_copy_columns(function, a, false, &copy));
    const struct matrices m = aoticache_shim_matrices(copy);
    const struct shim_tensor *t = copy->tensor;
    struct eig e = {NULL, dtype, vectors, (int)m.rows, leading(m.rows)};
    const int64_t n = e.n;
    SHIM_TRY(aoticache_shim_lapack(function, LAPACK_GEEV, dtype, &e.routine));
    SHIM_TRY(aoticache_shim_make_each(function, copy, n, wide, ret_values));
    SHIM_TRY(aoticache_shim_make_matrices(function, t->ndim, t->sizes, n, n, wide, true, ret_vectors));
    SHIM_TRY(make_array(function, n, dtype, &first));
    SHIM_TRY(make_array(function, 2 * n, real, &second));
    SHIM_TRY(make_array(function, n * n, dtype, &right));
    void *values = first->tensor->data, *rest = second->tensor->data;
    (void)decompose_general(&e, m.data, values, rest, right->tensor->data, &answer, -1);
    SHIM_TRY(make_work(function, dtype, &answer, &count, &work));
    for (int64_t i = 0; i < m.count && n > 0; i++) {
        SHIM_TRY(check_converged(
            function, i,
            decompose_general(&e, matrix_at(&m, i), values, rest, right->tensor->data, work->tensor->data, count)));
        for (int64_t k = 0; k < n; k++)
            set_number(wide, (*ret_values)->tensor->data, i * n + k,
                       number_at(dtype, values, k) + (is_complex(dtype) ? 0 : I * real_at(real, rest, k)));
        if (vectors)
            write_vectors(&e, rest, right->tensor->data, wide, (*ret_vectors)->tensor->data, i * n * n);
    }
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_eig(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle values = NULL, vectors = NULL;
    SHIM_TRY(decompose_any("linalg.eig", a[0].tensor, true, &values, &vectors));
    ret[0] = shim_steal(&values);
    ret[1] = shim_steal(&vectors);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_eigvals(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle values = NULL, vectors = NULL;
    SHIM_TRY(decompose_any("linalg.eigvals", a[0].tensor, false, &values, &vectors));
    ret[0] = shim_steal(&values);
    return SHIM_SUCCESS;
}
