/*
 * shim/named_operators: PyTorch operators that compiled code calls by name (runtime/named_operators.h): the list of
 * all, and the operators that change a tensor's shape or type, which Inductor does not compile for complex numbers.
 */
#include "runtime/named_operators.h"

#include "runtime/shim/linear_algebra/lapack.h"
#include "runtime/shim/math/named.h"
#include "runtime/shim/operators.h"
#include "runtime/shim/indexing/named.h"
#include "runtime/shim/tensors/elements.h"

#include <math.h>
#include <string.h>

SHIM_EXPORT const aoticache_named_operator *torch_aoticache_named_operators(void);

static AOTITorchError check_tensor(const char *function, const aoticache_named_argument *argument)
{
    return shim_is_defined(argument->tensor) ? SHIM_SUCCESS : aoticache_shim_fail_undefined(function, argument->tensor);
}

/* Makes a copy with the same order of dimensions, or contiguous if the memory format requires it. */
static AOTITorchError clone(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    enum { CONTIGUOUS = 0, PRESERVE = 1 }; /* c10::MemoryFormat */
    SHIM_TRY(check_tensor("clone", &a[0]));
    const struct shim_tensor *t = a[0].tensor->tensor;
    if (a[1].is_given && a[1].integer == CONTIGUOUS)
        return aoticache_shim_read_copy("clone", a[0].tensor, t->dtype, ret);
    if (a[1].is_given && a[1].integer != PRESERVE)
        return aoticache_shim_fail("clone: unsupported memory format %lld", (long long)a[1].integer);
    cleanup_tensor AtenTensorHandle made = NULL;
    SHIM_TRY(aoticache_shim_make_like("clone", a[0].tensor, t->dtype, &made));
    SHIM_TRY(aoti_torch_copy_(made, a[0].tensor, 0));
    *ret = shim_steal(&made);
    return SHIM_SUCCESS;
}

/* Conjugates. Tensors here have no flag for being conjugated, so the result is a copy. */
static AOTITorchError conjugate(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle made = NULL;
    SHIM_TRY(check_tensor("conj", &a[0]));
    SHIM_TRY(aoticache_shim_make_like("conj", a[0].tensor, a[0].tensor->tensor->dtype, &made));
    SHIM_TRY(aoti_torch_copy_(made, a[0].tensor, 0));
    aoticache_shim_conjugate(made->tensor->dtype, made->tensor->data, made->tensor->numel);
    *ret = shim_steal(&made);
    return SHIM_SUCCESS;
}

static AOTITorchError unsqueeze(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    int64_t sizes[SHIM_MAX_NDIM + 1], strides[SHIM_MAX_NDIM + 1];
    int dim = 0;
    SHIM_TRY(check_tensor("unsqueeze", &a[0]));
    const struct shim_tensor *t = a[0].tensor->tensor;
    SHIM_TRY(aoticache_shim_wrap_dimension("unsqueeze", t->ndim + 1, a[1].integer, &dim));
    for (int d = 0; d <= t->ndim; d++) {
        sizes[d] = d == dim ? 1 : t->sizes[d - (d > dim)];
        strides[d] = d == dim ? (d < t->ndim ? t->sizes[d] * t->strides[d] : 1) : t->strides[d - (d > dim)];
    }
    return aoticache_shim_tensor_view("unsqueeze", t, t->dtype, t->ndim + 1, sizes, strides, t->offset, ret);
}

static AOTITorchError complex_of(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle result = NULL, part = NULL;
    int64_t sizes[SHIM_MAX_NDIM], strides[SHIM_MAX_NDIM];
    SHIM_TRY(check_tensor("complex", &a[0]));
    SHIM_TRY(check_tensor("complex", &a[1]));
    const struct shim_tensor *x = a[0].tensor->tensor, *y = a[1].tensor->tensor;
    if (x->dtype != y->dtype || (x->dtype != AOTICACHE_DTYPE_FLOAT32 && x->dtype != AOTICACHE_DTYPE_FLOAT64))
        return aoticache_shim_fail("complex: two tensors of float32 or float64 are needed");
    const int ndim = x->ndim > y->ndim ? x->ndim : y->ndim;
    for (int d = 0; d < ndim; d++) {
        int64_t from_x = d < ndim - x->ndim ? 1 : x->sizes[d - (ndim - x->ndim)];
        int64_t from_y = d < ndim - y->ndim ? 1 : y->sizes[d - (ndim - y->ndim)];
        sizes[d] = from_x == 1 ? from_y : from_x;
    }
    const int32_t dtype = x->dtype == AOTICACHE_DTYPE_FLOAT32 ? AOTICACHE_DTYPE_COMPLEX64 : AOTICACHE_DTYPE_COMPLEX128;
    SHIM_TRY(aoticache_shim_make("complex", ndim, sizes, dtype, &result));
    for (int d = 0; d < ndim; d++)
        strides[d] = 2 * result->tensor->strides[d];
    for (int i = 0; i < 2; i++) { /* the real and imaginary parts, as views of real numbers */
        aoticache_shim_handle_cleanup(&part);
        part = NULL;
        SHIM_TRY(aoticache_shim_tensor_view("complex", result->tensor, x->dtype, ndim, sizes, strides, i, &part));
        SHIM_TRY(aoti_torch_copy_(part, a[i].tensor, 0));
    }
    *ret = shim_steal(&result);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_polar(AtenTensorHandle abs, AtenTensorHandle angle, AtenTensorHandle *ret0)
{
    cleanup_tensor AtenTensorHandle sizes = NULL, angles = NULL, result = NULL;
    SHIM_CHECK_TENSOR(abs);
    SHIM_CHECK_TENSOR(angle);
    SHIM_CHECK_RESULT(ret0);
    if (abs->tensor->dtype != angle->tensor->dtype || !aoticache_shim_same_sizes(abs->tensor, angle->tensor) ||
        (abs->tensor->dtype != AOTICACHE_DTYPE_FLOAT32 && abs->tensor->dtype != AOTICACHE_DTYPE_FLOAT64))
        return aoticache_shim_fail("%s: two tensors of float32 or float64 with the same sizes are needed", __func__);
    const bool is_float = abs->tensor->dtype == AOTICACHE_DTYPE_FLOAT32;
    SHIM_TRY(aoticache_shim_read(__func__, abs, AOTICACHE_DTYPE_FLOAT64, &sizes));
    SHIM_TRY(aoticache_shim_read(__func__, angle, AOTICACHE_DTYPE_FLOAT64, &angles));
    SHIM_TRY(aoticache_shim_make(__func__, abs->tensor->ndim, abs->tensor->sizes,
                                 is_float ? AOTICACHE_DTYPE_COMPLEX64 : AOTICACHE_DTYPE_COMPLEX128, &result));
    const double *size = sizes->tensor->data, *turn = angles->tensor->data;
    for (int64_t i = 0; i < abs->tensor->numel; i++) {
        const double parts[] = {size[i] * cos(turn[i]), size[i] * sin(turn[i])};
        for (int part = 0; part < 2; part++)
            if (is_float)
                ((float *)result->tensor->data)[2 * i + part] = (float)parts[part];
            else
                ((double *)result->tensor->data)[2 * i + part] = parts[part];
    }
    *ret0 = shim_steal(&result);
    return SHIM_SUCCESS;
}

static AOTITorchError convert(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle made = NULL;
    SHIM_TRY(check_tensor("convert_element_type", &a[0]));
    SHIM_TRY(aoticache_shim_make_like("convert_element_type", a[0].tensor, (int32_t)a[1].integer, &made));
    SHIM_TRY(aoti_torch_copy_(made, a[0].tensor, 0));
    *ret = shim_steal(&made);
    return SHIM_SUCCESS;
}

/* Pads a tensor. Each dimension's overlap with the input is computed from both ends; padding may be negative. */
static AOTITorchError pad(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    static const char function[] = "constant_pad_nd";
    cleanup_tensor AtenTensorHandle result = NULL, from = NULL, to = NULL, value = NULL;
    int64_t sizes[SHIM_MAX_NDIM], kept[SHIM_MAX_NDIM], from_offset = 0, to_offset = 0;
    SHIM_TRY(check_tensor(function, &a[0]));
    const struct shim_tensor *t = a[0].tensor->tensor;
    if (a[1].count % 2 != 0 || a[1].count / 2 > (size_t)t->ndim)
        return aoticache_shim_fail("%s: %zu numbers for %d dimensions", function, a[1].count, (int)t->ndim);
    for (int d = 0; d < t->ndim; d++) {
        const size_t at = (size_t)(t->ndim - 1 - d) * 2;
        const int64_t before = at < a[1].count ? a[1].integers[at] : 0,
                      after = at < a[1].count ? a[1].integers[at + 1] : 0;
        sizes[d] = t->sizes[d] + before + after;
        kept[d] = t->sizes[d] + (before < 0 ? before : 0) + (after < 0 ? after : 0);
        if (before < -INT32_MAX || before > INT32_MAX || after < -INT32_MAX || after > INT32_MAX || sizes[d] < 0)
            return aoticache_shim_fail("%s: dimension %d, of size %lld, padded by %lld and %lld", function, d,
                                       (long long)t->sizes[d], (long long)before, (long long)after);
        if (kept[d] < 0)
            kept[d] = 0;
        from_offset += before < 0 ? -before * t->strides[d] : 0;
    }
    SHIM_TRY(aoticache_shim_make(function, t->ndim, sizes, t->dtype, &result));
    SHIM_TRY(a[2].number == 0 ? aoti_torch_zero_(result) : aoti_torch_scalar_to_tensor_float64(a[2].number, &value));
    if (value != NULL)
        SHIM_TRY(aoti_torch_copy_(result, value, 0));
    for (int d = 0; d < t->ndim; d++) {
        const size_t at = (size_t)(t->ndim - 1 - d) * 2;
        if (kept[d] == 0) { /* no part of the input is left */
            *ret = shim_steal(&result);
            return SHIM_SUCCESS;
        }
        to_offset += at < a[1].count && a[1].integers[at] > 0 ? a[1].integers[at] * result->tensor->strides[d] : 0;
    }
    SHIM_TRY(
        aoticache_shim_tensor_view(function, t, t->dtype, t->ndim, kept, t->strides, t->offset + from_offset, &from));
    SHIM_TRY(aoticache_shim_tensor_view(function, result->tensor, t->dtype, t->ndim, kept, result->tensor->strides,
                                        to_offset, &to));
    SHIM_TRY(aoti_torch_copy_(to, from, 0));
    *ret = shim_steal(&result);
    return SHIM_SUCCESS;
}

/* Draws numbers from the generator of all random functions. */
static AOTITorchError normal(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle empty = NULL;
    SHIM_TRY(aoticache_shim_make("normal", (int64_t)a[0].count, a[0].integers, (int32_t)a[3].integer, &empty));
    return aoti_torch_cpu_normal_functional(empty, a[1].number, a[2].number, NULL, ret);
}

static AOTITorchError fft_to_real(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    return aoti_torch_cpu__fft_c2r(a[0].tensor, a[1].integers, (int64_t)a[1].count, a[2].integer, a[3].integer, ret);
}

static AOTITorchError fft_complex(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    return aoti_torch_cpu__fft_c2c(a[0].tensor, a[1].integers, (int64_t)a[1].count, a[2].integer, (int32_t)a[3].integer,
                                   ret);
}

static AOTITorchError count_bins(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    static const char function[] = "bincount";
    cleanup_tensor AtenTensorHandle values = NULL, weights = NULL, counts = NULL;
    SHIM_TRY(check_tensor(function, &a[0]));
    const struct shim_tensor *t = a[0].tensor->tensor;
    if (t->ndim != 1 || !aoticache_shim_is_integral(t->dtype) || a[2].integer < 0)
        return aoticache_shim_fail("%s: integers in one dimension and a length that is not negative are needed",
                                   function);
    SHIM_TRY(aoticache_shim_read(function, a[0].tensor, AOTICACHE_DTYPE_INT64, &values));
    const int64_t *value = values->tensor->data;
    int64_t bins = a[2].integer;
    for (int64_t i = 0; i < t->numel; i++) {
        if (value[i] < 0 || value[i] == INT64_MAX)
            return aoticache_shim_fail("%s: element %lld is %lld", function, (long long)i, (long long)value[i]);
        bins = value[i] >= bins ? value[i] + 1 : bins;
    }
    const bool weighted = a[1].is_given && shim_is_defined(a[1].tensor);
    const int32_t dtype = !weighted                                               ? AOTICACHE_DTYPE_INT64
                          : a[1].tensor->tensor->dtype == AOTICACHE_DTYPE_FLOAT32 ? AOTICACHE_DTYPE_FLOAT32
                                                                                  : AOTICACHE_DTYPE_FLOAT64;
    if (weighted) {
        if (a[1].tensor->tensor->numel != t->numel)
            return aoticache_shim_fail("%s: a weight for each element is needed", function);
        SHIM_TRY(aoticache_shim_read(function, a[1].tensor, dtype, &weights));
    }
    SHIM_TRY(aoticache_shim_make(function, 1, &bins, dtype, &counts));
    SHIM_TRY(aoti_torch_zero_(counts));
    void *count = counts->tensor->data;
    for (int64_t i = 0; i < t->numel; i++) {
        if (dtype == AOTICACHE_DTYPE_INT64)
            ((int64_t *)count)[value[i]]++;
        else if (dtype == AOTICACHE_DTYPE_FLOAT32)
            ((float *)count)[value[i]] += ((const float *)weights->tensor->data)[i];
        else
            ((double *)count)[value[i]] += ((const double *)weights->tensor->data)[i];
    }
    *ret = shim_steal(&counts);
    return SHIM_SUCCESS;
}

/* clang-format off */
static const aoticache_named_operator operators[] = {
#ifndef AOTICACHE_WITHOUT_LINEAR_ALGEBRA /* make LINEAR_ALGEBRA=0 */
    {"aten::_linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, Tensor LU, Tensor pivots, Tensor info)", aoticache_shim_solve},
    {"aten::linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)", aoticache_shim_inverse},
    {"aten::_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)", aoticache_shim_determinant},
    {"aten::_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)", aoticache_shim_log_determinant},
    {"aten::linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots, Tensor info)", aoticache_shim_lu_factor},
    {"aten::linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False) -> Tensor", aoticache_shim_lu_solve},
    {"aten::linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)", aoticache_shim_lu},
    {"aten::linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)", aoticache_shim_cholesky_factor},
    {"aten::cholesky(Tensor self, bool upper=False) -> Tensor", aoticache_shim_cholesky},
    {"aten::linalg_ldl_factor_ex(Tensor self, *, bool hermitian=False, bool check_errors=False) -> (Tensor LD, Tensor pivots, Tensor info)", aoticache_shim_ldl_factor},
    {"aten::linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor", aoticache_shim_ldl_solve},
    {"aten::linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor", aoticache_shim_solve_triangular},
    {"aten::_linalg_check_errors(Tensor info, str api_name, *, bool is_matrix) -> ()", aoticache_shim_check_errors},
    {"aten::_linalg_eigh(Tensor A, str UPLO=\"L\", bool compute_v=True) -> (Tensor eigenvalues, Tensor eigenvectors)", aoticache_shim_eigh},
    {"aten::linalg_eig(Tensor self) -> (Tensor eigenvalues, Tensor eigenvectors)", aoticache_shim_eig},
    {"aten::_linalg_eigvals(Tensor self) -> Tensor", aoticache_shim_eigvals},
    {"aten::_linalg_svd(Tensor A, bool full_matrices=False, bool compute_uv=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)", aoticache_shim_svd},
    {"aten::linalg_qr(Tensor A, str mode=\"reduced\") -> (Tensor Q, Tensor R)", aoticache_shim_qr},
    {"aten::linalg_householder_product(Tensor input, Tensor tau) -> Tensor", aoticache_shim_householder_product},
    {"aten::linalg_pinv.atol_rtol_tensor(Tensor self, *, Tensor? atol=None, Tensor? rtol=None, bool hermitian=False) -> Tensor", aoticache_shim_pseudo_inverse},
    {"aten::linalg_matrix_exp(Tensor self) -> Tensor", aoticache_shim_matrix_exponential},
#endif
    {"aten::_fft_c2r(Tensor self, int[] dim, int normalization, SymInt last_dim_size) -> Tensor", fft_to_real},
    {"aten::_fft_c2c(Tensor self, SymInt[] dim, int normalization, bool forward) -> Tensor", fft_complex},
    {"aten::_conj(Tensor(a) self) -> Tensor(a)", conjugate},
    {"aten::_conj_physical(Tensor self) -> Tensor", conjugate},
    {"aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor", clone},
    {"aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor", pad},
    {"aten::complex(Tensor real, Tensor imag) -> Tensor", complex_of},
    {"aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)", unsqueeze},
    {"aten::bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor", count_bins},
    {"prims::convert_element_type(Tensor a, ScalarType dtype) -> Tensor", convert},
    {"prims::normal(SymInt[] shape, *, Scalar mean, Scalar std, ScalarType dtype, Device device, bool requires_grad, Generator? generator=None) -> Tensor", normal},
    {"aten::_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)", aoticache_shim_unique},
    {"aten::unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None) -> (Tensor, Tensor, Tensor)", aoticache_shim_unique_consecutive},
    {"aten::median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)", aoticache_shim_median},
    {"aten::nanmedian.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)", aoticache_shim_nanmedian},
    {"aten::_histogramdd_bin_edges(Tensor self, int[] bins, *, float[]? range=None, Tensor? weight=None, bool density=False) -> Tensor[]", aoticache_shim_histogram_edges},
    {"aten::_upsample_bilinear2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor", aoticache_shim_resize_bilinear},
    {"aten::_upsample_bicubic2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor", aoticache_shim_resize_bicubic},
    {"aten::_upsample_lanczos2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor", aoticache_shim_resize_lanczos},
#define COMPLEX_UNARY(name) {"aten::" #name "(Tensor self) -> Tensor", aoticache_shim_complex_##name},
    SHIM_COMPLEX_UNARY_LIST(COMPLEX_UNARY)
    {"aten::div.Tensor(Tensor self, Tensor other) -> Tensor", aoticache_shim_complex_div},
    {"aten::sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", aoticache_shim_complex_sub},
    {NULL, NULL},
};
/* clang-format on */

const aoticache_named_operator *torch_aoticache_named_operators(void)
{
    return operators;
}
