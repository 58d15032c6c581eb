/*
 * shim/linear_algebra/lapack: linear algebra with the machine's LAPACK: the one in OpenBLAS, which blas.c loads, or else a
 * separate library.
 *
 * lapack.c finds the routines and has code that their callers share; linear_systems.c has factors and solutions,
 * decompositions.c eigenvalues, singular values and orthogonal factors. Private to runtime/shim/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_LAPACK_H
#define AOTICACHE_RUNTIME_SHIM_MATH_LAPACK_H

#include "runtime/named_operators.h"
#include "runtime/shim/math/math_internal.h"
#include "runtime/shim/tensors/elements.h"

/*
 * Each has the same parameters for all four dtypes, since Fortran takes addresses, except gesdd, heevd and geev, which
 * have one more array for complex numbers.
 */
enum lapack_routine {
    LAPACK_GETRF,
    LAPACK_GETRS,
    LAPACK_POTRF,
    LAPACK_POTRS,
    LAPACK_POTRI,
    LAPACK_SYTRF,
    LAPACK_SYTRS,
    LAPACK_HETRF,
    LAPACK_HETRS,
    LAPACK_TRSM, /* from BLAS */
    LAPACK_GEQRF,
    LAPACK_ORGQR,
    LAPACK_ORMQR,
    LAPACK_GESDD,
    LAPACK_HEEVD,
    LAPACK_GEEV,
    LAPACK_ROUTINES
};

/* Finds a routine for matrices of `dtype`: float32, float64, complex64 or complex128. ret_routine: a pointer to a function. */
AOTITorchError aoticache_shim_lapack(const char *function, enum lapack_routine routine, int32_t dtype,
                                     void *ret_routine);

/* ---- batches of matrices ---- */

/* The last two dimensions of a tensor, whose matrices follow each other without gaps. */
struct matrices {
    int64_t count, rows, columns;
    size_t bytes; /* of one matrix */
    char *data;
};
struct matrices aoticache_shim_matrices(AtenTensorHandle tensor);
static inline char *matrix_at(const struct matrices *m, int64_t i)
{
    return m->data + (size_t)i * m->bytes;
}

/* Fails unless the tensor is a batch of matrices of a dtype that LAPACK has, and, if `square`, of square matrices. */
AOTITorchError aoticache_shim_check_matrices(const char *function, AtenTensorHandle tensor, bool square);

/*
 * Allocates a batch of matrices of rows x columns, stored by columns or by rows. ndim: of the result, so that the batch
 * has ndim - 2 sizes.
 */
AOTITorchError aoticache_shim_make_matrices(const char *function, int ndim, const int64_t *batch, int64_t rows,
                                            int64_t columns, int32_t dtype, bool by_columns, AtenTensorHandle *ret);
/* Copies a tensor, storing matrices by columns; with `transposed`, copies each matrix's transpose. */
AOTITorchError aoticache_shim_copy_columns(const char *function, AtenTensorHandle tensor, bool transposed,
                                           AtenTensorHandle *ret);
/*
 * Makes a tensor with one element for each matrix of a batch, or, if `extra` is not -1, `extra` elements in one more
 * dimension.
 */
AOTITorchError aoticache_shim_make_each(const char *function, AtenTensorHandle matrices, int64_t extra, int32_t dtype,
                                        AtenTensorHandle *ret);
/* Returns float32 for complex64, float64 for complex128, and a real dtype itself. */
int32_t aoticache_shim_real_dtype(int32_t dtype);

/* Operators that are called by name. */
#define LAPACK_OPERATOR(name) \
    AOTITorchError aoticache_shim_##name(const aoticache_named_argument *a, AtenTensorHandle *ret)
LAPACK_OPERATOR(lu_factor);
LAPACK_OPERATOR(lu_solve);
LAPACK_OPERATOR(lu);
LAPACK_OPERATOR(solve);
LAPACK_OPERATOR(determinant);
LAPACK_OPERATOR(log_determinant);
LAPACK_OPERATOR(inverse);
LAPACK_OPERATOR(cholesky_factor);
LAPACK_OPERATOR(cholesky);
LAPACK_OPERATOR(ldl_factor);
LAPACK_OPERATOR(ldl_solve);
LAPACK_OPERATOR(solve_triangular);
LAPACK_OPERATOR(check_errors);
LAPACK_OPERATOR(eigh);
LAPACK_OPERATOR(eig);
LAPACK_OPERATOR(eigvals);
LAPACK_OPERATOR(svd);
LAPACK_OPERATOR(qr);
LAPACK_OPERATOR(householder_product);
LAPACK_OPERATOR(pseudo_inverse);

#endif
