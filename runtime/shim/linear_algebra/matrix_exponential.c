/*
 * shim/linear_algebra/matrix_exponential: the exponential of square matrices; called by name.
 *
 * exp(A) = exp(A / 2^n)^(2^n): n makes the norm at most 1, for which the Taylor polynomial of degree 19 is exact to
 * double precision. It takes seven matrix multiplications. Everything is computed in double precision, with the shim's
 * matrix multiplication.
 *
 * Source: at::linalg_matrix_exp (aten/src/ATen/native/LinearAlgebra.cpp), for arguments and results.
 */
#include "runtime/shim/math/named.h"

#include "runtime/shim/linear_algebra/lapack.h"
#include "runtime/shim/operators.h"

#include <complex.h>
#include <math.h>
#include <string.h>

/*
 * The polynomial is cut into BLOCKS parts of POWERS terms, and evaluated with Horner's rule in the matrix to the power
 * POWERS.
 */
enum { POWERS = 4, BLOCKS = 5 };

/* Square matrices of float64 or complex128, one after the other, as `wide` doubles for each element. */
struct work {
    const char *function;
    int64_t n;
    int32_t dtype;
    int wide;                                    /* 1 or 2 */
    AtenTensorHandle powers[POWERS], sum, spare; /* A, A^2, ... ; two more */
};

static void work_close(struct work *work)
{
    for (int i = 0; i < POWERS; i++)
        aoticache_shim_handle_cleanup(&work->powers[i]);
    aoticache_shim_handle_cleanup(&work->sum);
    aoticache_shim_handle_cleanup(&work->spare);
}

#define cleanup_work __attribute__((cleanup(work_close)))

static AOTITorchError work_open(const char *function, int64_t n, int32_t dtype, struct work *ret_work)
{
    const int64_t sizes[] = {n, n};
    *ret_work =
        (struct work){.function = function, .n = n, .dtype = dtype, .wide = dtype == AOTICACHE_DTYPE_FLOAT64 ? 1 : 2};
    for (int i = 0; i < POWERS; i++)
        SHIM_TRY(aoticache_shim_make(function, 2, sizes, dtype, &ret_work->powers[i]));
    SHIM_TRY(aoticache_shim_make(function, 2, sizes, dtype, &ret_work->sum));
    return aoticache_shim_make(function, 2, sizes, dtype, &ret_work->spare);
}

static double *numbers_of(AtenTensorHandle matrix)
{
    return matrix->tensor->data;
}

/* Returns the largest sum of a column's absolute values. */
static double norm_of(const struct work *work, AtenTensorHandle matrix)
{
    const double *x = numbers_of(matrix);
    double largest = 0;
    for (int64_t column = 0; column < work->n; column++) {
        double sum = 0;
        for (int64_t row = 0; row < work->n; row++) {
            const double *at = x + (row * work->n + column) * work->wide;
            sum += work->wide == 1 ? fabs(at[0]) : hypot(at[0], at[1]);
        }
        largest = sum > largest || isnan(sum) ? sum : largest;
    }
    return largest;
}

/* Computes sum += factor * matrix; a NULL matrix is the identity. */
static void add(const struct work *work, AtenTensorHandle sum, double factor, AtenTensorHandle matrix)
{
    double *to = numbers_of(sum);
    if (matrix == NULL)
        for (int64_t i = 0; i < work->n; i++)
            to[i * (work->n + 1) * work->wide] += factor;
    else
        for (int64_t i = 0; i < work->n * work->n * work->wide; i++)
            to[i] += factor * numbers_of(matrix)[i];
}

/* sum = sum * factor */
static AOTITorchError multiply(struct work *work, AtenTensorHandle factor)
{
    SHIM_TRY(aoti_torch_cpu_mm_out(work->spare, work->sum, factor));
    AtenTensorHandle held = work->sum;
    work->sum = work->spare;
    work->spare = held;
    return SHIM_SUCCESS;
}

/* Computes the sum of powers[i] / i! up to the degree, in blocks: each has the POWERS terms from POWERS * block on. */
static AOTITorchError evaluate(struct work *work)
{
    double inverse[POWERS * BLOCKS]; /* 1 / i! */
    inverse[0] = 1;
    for (int i = 1; i < POWERS * BLOCKS; i++)
        inverse[i] = inverse[i - 1] / i;
    for (int i = 1; i < POWERS; i++)
        SHIM_TRY(aoti_torch_cpu_mm_out(work->powers[i], work->powers[i - 1], work->powers[0]));
    SHIM_TRY(aoti_torch_zero_(work->sum));
    for (int block = BLOCKS - 1; block >= 0; block--) {
        if (block < BLOCKS - 1)
            SHIM_TRY(multiply(work, work->powers[POWERS - 1]));
        for (int i = POWERS - 1; i >= 0; i--)
            add(work, work->sum, inverse[block * POWERS + i], i > 0 ? work->powers[i - 1] : NULL);
    }
    return SHIM_SUCCESS;
}

/* Computes the exponential of powers[0] into sum. */
static AOTITorchError exponentiate(struct work *work)
{
    const double norm = norm_of(work, work->powers[0]);
    int halvings = 0;
    double *x = numbers_of(work->powers[0]);
    if (isfinite(norm) && norm > 1) {
        frexp(norm, &halvings);
        for (int64_t i = 0; i < work->n * work->n * work->wide; i++)
            x[i] = ldexp(x[i], -halvings);
    }
    SHIM_TRY(evaluate(work));
    if (!isfinite(norm)) /* as in PyTorch */
        for (int64_t i = 0; i < work->n * work->n * work->wide; i++)
            numbers_of(work->sum)[i] = NAN;
    for (int i = 0; i < halvings; i++)
        SHIM_TRY(multiply(work, work->sum));
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_matrix_exponential(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    static const char function[] = "linalg.matrix_exp";
    cleanup_tensor AtenTensorHandle values = NULL, result = NULL;
    cleanup_work struct work work = {0};
    SHIM_TRY(aoticache_shim_check_matrices(function, a[0].tensor, true));
    const struct shim_tensor *t = a[0].tensor->tensor;
    const int32_t dtype = aoticache_shim_work_dtype(t->dtype);
    SHIM_TRY(aoticache_shim_read_copy(function, a[0].tensor, dtype, &values));
    const struct matrices m = aoticache_shim_matrices(values);
    SHIM_TRY(work_open(function, m.rows, dtype, &work));
    for (int64_t i = 0; i < m.count && m.rows > 0; i++) {
        memcpy(work.powers[0]->tensor->data, matrix_at(&m, i), m.bytes);
        SHIM_TRY(exponentiate(&work));
        memcpy(matrix_at(&m, i), work.sum->tensor->data, m.bytes);
    }
    SHIM_TRY(aoticache_shim_read(function, values, t->dtype, &result));
    *ret = shim_steal(&result);
    return SHIM_SUCCESS;
}
