/*
 * shim/linear_algebra/lapack: finds LAPACK's routines when the first is needed, and has code that their callers share.
 */
#include "runtime/shim/linear_algebra/lapack.h"

#include "base/process/fork_guard.h"
#include "runtime/shim/operators.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const char lapack_library[] = "liblapack.so.3";

/* For real and for complex numbers. */
static const char *const names[LAPACK_ROUTINES][2] = {
    [LAPACK_GETRF] = {"getrf", "getrf"}, [LAPACK_GETRS] = {"getrs", "getrs"}, [LAPACK_POTRF] = {"potrf", "potrf"},
    [LAPACK_POTRS] = {"potrs", "potrs"}, [LAPACK_POTRI] = {"potri", "potri"}, [LAPACK_SYTRF] = {"sytrf", "sytrf"},
    [LAPACK_SYTRS] = {"sytrs", "sytrs"}, [LAPACK_HETRF] = {"sytrf", "hetrf"}, [LAPACK_HETRS] = {"sytrs", "hetrs"},
    [LAPACK_TRSM] = {"trsm", "trsm"},    [LAPACK_GEQRF] = {"geqrf", "geqrf"}, [LAPACK_ORGQR] = {"orgqr", "ungqr"},
    [LAPACK_ORMQR] = {"ormqr", "unmqr"}, [LAPACK_GESDD] = {"gesdd", "gesdd"}, [LAPACK_HEEVD] = {"syevd", "heevd"},
    [LAPACK_GEEV] = {"geev", "geev"},
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void *library;

static void load_library(void)
{
    library = aoticache_shim_blas_library();
    if (library != NULL && dlsym(library, "sgetrf_") != NULL)
        return;
    aoticache_fork_guard_enter();
    library = dlopen(lapack_library, RTLD_NOW | RTLD_LOCAL);
    aoticache_fork_guard_leave();
}

AOTITorchError aoticache_shim_lapack(const char *function, enum lapack_routine routine, int32_t dtype,
                                     void *ret_routine)
{
    static const char letters[] = {'s', 'd', 'c', 'z'};
    int kind = dtype == AOTICACHE_DTYPE_FLOAT32     ? 0
               : dtype == AOTICACHE_DTYPE_FLOAT64   ? 1
               : dtype == AOTICACHE_DTYPE_COMPLEX64 ? 2
                                                    : 3;
    char name[16];
    pthread_once(&once, load_library);
    if (library == NULL)
        return aoticache_shim_fail("%s: linear algebra needs LAPACK, which is neither in this machine's BLAS nor "
                                   "in %s: install OpenBLAS or LAPACK, or run the model in a process with PyTorch",
                                   function, lapack_library);
    snprintf(name, sizeof name, "%c%s_", letters[kind], names[routine][kind / 2]);
    void *symbol = dlsym(library, name);
    if (symbol == NULL)
        return aoticache_shim_fail("%s: this machine's LAPACK has no %s", function, name);
    memcpy(ret_routine, &symbol, sizeof symbol);
    return SHIM_SUCCESS;
}

/* ---- batches of matrices ---- */

struct matrices aoticache_shim_matrices(AtenTensorHandle tensor)
{
    const struct shim_tensor *t = tensor->tensor;
    struct matrices m = {1, t->sizes[t->ndim - 2], t->sizes[t->ndim - 1], 0, t->data};
    for (int d = 0; d < t->ndim - 2; d++)
        m.count *= t->sizes[d];
    m.bytes = (size_t)(m.rows * m.columns) * t->item_bytes;
    return m;
}

AOTITorchError aoticache_shim_check_matrices(const char *function, AtenTensorHandle tensor, bool square)
{
    char text[SHIM_DTYPE_TEXT_BYTES];
    if (!shim_is_defined(tensor))
        return aoticache_shim_fail_undefined(function, tensor);
    const struct shim_tensor *t = tensor->tensor;
    if (t->dtype != AOTICACHE_DTYPE_FLOAT32 && t->dtype != AOTICACHE_DTYPE_FLOAT64 &&
        t->dtype != AOTICACHE_DTYPE_COMPLEX64 && t->dtype != AOTICACHE_DTYPE_COMPLEX128)
        return aoticache_shim_fail("%s: float32, float64, complex64 or complex128 is needed, not %s", function,
                                   aoticache_shim_dtype_text(t->dtype, text));
    if (t->ndim < 2)
        return aoticache_shim_fail("%s: matrices are needed; this tensor has %d dimensions", function, (int)t->ndim);
    const int64_t rows = t->sizes[t->ndim - 2], columns = t->sizes[t->ndim - 1];
    if (rows > INT_MAX || columns > INT_MAX || (square && rows != columns))
        return aoticache_shim_fail("%s: %s are needed; these have %lld rows and %lld columns", function,
                                   square ? "square matrices" : "smaller matrices", (long long)rows,
                                   (long long)columns);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_make_matrices(const char *function, int ndim, const int64_t *batch, int64_t rows,
                                            int64_t columns, int32_t dtype, bool by_columns, AtenTensorHandle *ret)
{
    int64_t sizes[SHIM_MAX_NDIM], strides[SHIM_MAX_NDIM], stride = 1;
    memcpy(sizes, batch, (size_t)(ndim - 2) * sizeof *sizes);
    sizes[ndim - 2] = rows;
    sizes[ndim - 1] = columns;
    for (int d = ndim - 1; d >= 0; d--) {
        strides[d] = stride;
        if (__builtin_mul_overflow(stride, sizes[d] > 1 ? sizes[d] : 1, &stride))
            return aoticache_shim_fail("%s: a result of this size does not fit into memory", function);
    }
    if (by_columns) {
        strides[ndim - 2] = 1;
        strides[ndim - 1] = rows > 1 ? rows : 1;
    }
    return aoticache_shim_tensor_empty(function, ndim, sizes, strides, dtype, ret);
}

/* Makes a view of the tensor with its last two dimensions exchanged. */
static AOTITorchError transpose(const char *function, AtenTensorHandle tensor, AtenTensorHandle *ret_view)
{
    const struct shim_tensor *t = tensor->tensor;
    int64_t sizes[SHIM_MAX_NDIM], strides[SHIM_MAX_NDIM];
    memcpy(sizes, t->sizes, (size_t)t->ndim * sizeof *sizes);
    memcpy(strides, t->strides, (size_t)t->ndim * sizeof *strides);
    sizes[t->ndim - 2] = t->sizes[t->ndim - 1];
    sizes[t->ndim - 1] = t->sizes[t->ndim - 2];
    strides[t->ndim - 2] = t->strides[t->ndim - 1];
    strides[t->ndim - 1] = t->strides[t->ndim - 2];
    return aoticache_shim_tensor_view(function, t, t->dtype, t->ndim, sizes, strides, t->offset, ret_view);
}

AOTITorchError aoticache_shim_copy_columns(const char *function, AtenTensorHandle tensor, bool transposed,
                                           AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle view = NULL, made = NULL;
    const struct shim_tensor *t = tensor->tensor;
    if (transposed) {
        SHIM_TRY(transpose(function, tensor, &view));
        t = view->tensor;
    }
    SHIM_TRY(aoticache_shim_make_matrices(function, t->ndim, t->sizes, t->sizes[t->ndim - 2], t->sizes[t->ndim - 1],
                                          t->dtype, true, &made));
    SHIM_TRY(aoti_torch_copy_(made, transposed ? view : tensor, 0));
    *ret = shim_steal(&made);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_make_each(const char *function, AtenTensorHandle matrices, int64_t extra, int32_t dtype,
                                        AtenTensorHandle *ret)
{
    const struct shim_tensor *t = matrices->tensor;
    int64_t sizes[SHIM_MAX_NDIM];
    int ndim = t->ndim - 2;
    memcpy(sizes, t->sizes, (size_t)ndim * sizeof *sizes);
    if (extra >= 0)
        sizes[ndim++] = extra;
    SHIM_TRY(aoticache_shim_make(function, ndim, sizes, dtype, ret));
    return aoti_torch_zero_(*ret);
}

int32_t aoticache_shim_real_dtype(int32_t dtype)
{
    return dtype == AOTICACHE_DTYPE_COMPLEX64    ? AOTICACHE_DTYPE_FLOAT32
           : dtype == AOTICACHE_DTYPE_COMPLEX128 ? AOTICACHE_DTYPE_FLOAT64
                                                 : dtype;
}
