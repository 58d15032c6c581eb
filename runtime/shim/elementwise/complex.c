/*
 * shim/elementwise/complex: elementwise functions of complex tensors, which Inductor leaves to its host: called by name, or as
 * functions of PyTorch's interface if that has them.
 *
 * They are computed in double precision. Inductor compiles functions of real tensors itself, so real tensors occur here
 * only as one of two operands.
 *
 * Source: c10/util/complex.h, aten/src/ATen/native/cpu/UnaryOpsKernel.cpp; at::result_type for the dtype of two operands.
 */
#include "runtime/shim/math/math_internal.h"
#include "runtime/shim/math/named.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <complex.h>
#include <math.h>
#include <string.h>

typedef double complex number;

/* ---- the functions ---- */

/* Does what C11's CMPLX does, which Clang lacks with some C libraries: x + y * I would turn an infinity into a NaN. */
static number number_of(double real, double imaginary)
{
    const double parts[] = {real, imaginary};
    number made;
    memcpy(&made, parts, sizeof made);
    return made;
}

/*
 * Divides, scaled by the larger part of the divisor, so that no square overflows; divided by zero, each part is
 * infinite or NaN.
 */
static number compute_div(number a, number b)
{
    const double x = creal(b), y = cimag(b);
    if (x == 0 && y == 0)
        return number_of(creal(a) / fabs(x), cimag(a) / fabs(y));
    if (fabs(x) >= fabs(y)) {
        const double ratio = y / x, scale = 1 / (x + y * ratio);
        return number_of((creal(a) + cimag(a) * ratio) * scale, (cimag(a) - creal(a) * ratio) * scale);
    }
    const double ratio = x / y, scale = 1 / (x * ratio + y);
    return number_of((creal(a) * ratio + cimag(a)) * scale, (cimag(a) * ratio - creal(a)) * scale);
}

static number compute_mul(number a, number b, double alpha)
{
    (void)alpha;
    return number_of(creal(a) * creal(b) - cimag(a) * cimag(b), creal(a) * cimag(b) + cimag(a) * creal(b));
}

static number compute_quotient(number a, number b, double alpha)
{
    (void)alpha;
    return compute_div(a, b);
}

static number compute_add(number a, number b, double alpha)
{
    return a + alpha * b;
}

static number compute_sub(number a, number b, double alpha)
{
    return a - alpha * b;
}

static number compute_pow(number a, number b, double alpha)
{
    (void)alpha;
    return cpow(a, b);
}

static number compute_exp(number x)
{
    return cexp(x);
}

static number compute_log(number x)
{
    return clog(x);
}

static number compute_neg(number x)
{
    return -x;
}

static number compute_reciprocal(number x)
{
    return compute_div(1, x);
}

static number compute_sqrt(number x)
{
    return csqrt(x);
}

static number compute_rsqrt(number x)
{
    return compute_div(1, csqrt(x));
}

static number compute_sigmoid(number x)
{
    return compute_div(1, 1 + cexp(-x));
}

static number compute_sin(number x)
{
    return csin(x);
}

static number compute_cos(number x)
{
    return ccos(x);
}

static number compute_tan(number x)
{
    return ctan(x);
}

static number compute_sinh(number x)
{
    return csinh(x);
}

static number compute_cosh(number x)
{
    return ccosh(x);
}

static number compute_tanh(number x)
{
    return ctanh(x);
}

/* ---- operands and results ---- */

static AOTITorchError fail_real(const char *function, int32_t dtype)
{
    char text[SHIM_DTYPE_TEXT_BYTES];
    return aoticache_shim_fail("%s: only complex64 and complex128 are supported, not %s", function,
                               aoticache_shim_dtype_text(dtype, text));
}

static bool is_complex(int32_t dtype)
{
    return dtype == AOTICACHE_DTYPE_COMPLEX64 || dtype == AOTICACHE_DTYPE_COMPLEX128;
}

static bool is_wide(int32_t dtype)
{
    return dtype == AOTICACHE_DTYPE_COMPLEX128 || dtype == AOTICACHE_DTYPE_FLOAT64;
}

/* Copies a complex tensor's elements as numbers, with the same layout in memory. */
static AOTITorchError read_numbers(const char *function, AtenTensorHandle self, AtenTensorHandle *ret_values)
{
    if (!shim_is_defined(self))
        return aoticache_shim_fail_undefined(function, self);
    if (!is_complex(self->tensor->dtype))
        return fail_real(function, self->tensor->dtype);
    SHIM_TRY(aoticache_shim_make_like(function, self, AOTICACHE_DTYPE_COMPLEX128, ret_values));
    return aoti_torch_copy_(*ret_values, self, 0);
}

/* Returns the values as `dtype`, with the same layout. */
static AOTITorchError give(const char *function, AtenTensorHandle values, int32_t dtype, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle result = NULL;
    if (values->tensor->dtype == dtype)
        return aoti_torch_new_tensor_handle(values, ret);
    SHIM_TRY(aoticache_shim_make_like(function, values, dtype, &result));
    SHIM_TRY(aoti_torch_copy_(result, values, 0));
    *ret = shim_steal(&result);
    return SHIM_SUCCESS;
}

/* Computes abs or angle: the result is real. */
static AOTITorchError run_real(const char *function, double (*compute)(number), AtenTensorHandle self,
                               AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle values = NULL, real = NULL;
    SHIM_TRY(read_numbers(function, self, &values));
    SHIM_TRY(aoticache_shim_make_like(function, values, AOTICACHE_DTYPE_FLOAT64, &real));
    for (int64_t i = 0; i < values->tensor->numel; i++)
        ((double *)real->tensor->data)[i] = compute(((const number *)values->tensor->data)[i]);
    return give(function, real, is_wide(self->tensor->dtype) ? AOTICACHE_DTYPE_FLOAT64 : AOTICACHE_DTYPE_FLOAT32, ret);
}

static AOTITorchError run_unary(const char *function, number (*compute)(number), AtenTensorHandle self,
                                AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle values = NULL;
    SHIM_TRY(read_numbers(function, self, &values));
    number *value = values->tensor->data;
    for (int64_t i = 0; i < values->tensor->numel; i++)
        value[i] = compute(value[i]);
    return give(function, values, self->tensor->dtype, ret);
}

/* Finds the result's dtype. A zero-dimensional tensor does not widen one with dimensions, except one of integers. */
static AOTITorchError result_dtype(const char *function, const struct shim_tensor *a, const struct shim_tensor *b,
                                   int32_t *ret_dtype)
{
    if (!is_complex(a->dtype) && !is_complex(b->dtype))
        return fail_real(function, a->dtype);
    if (a->dtype == AOTICACHE_DTYPE_COMPLEX32 || b->dtype == AOTICACHE_DTYPE_COMPLEX32)
        return fail_real(function, AOTICACHE_DTYPE_COMPLEX32);
    bool wide = is_wide(a->dtype) || is_wide(b->dtype);
    if ((a->ndim == 0) != (b->ndim == 0)) {
        const struct shim_tensor *with = a->ndim > 0 ? a : b;
        if (!aoticache_shim_is_integral(with->dtype))
            wide = is_wide(with->dtype);
    }
    *ret_dtype = wide ? AOTICACHE_DTYPE_COMPLEX128 : AOTICACHE_DTYPE_COMPLEX64;
    return SHIM_SUCCESS;
}

/* Returns the stride of an operand along a dimension of the result; 0 if the operand repeats. */
static int64_t stride_at(const struct shim_tensor *operand, int ndim, const int64_t *sizes, int d)
{
    const int at = d - (ndim - operand->ndim);
    return at < 0 || (operand->sizes[at] == 1 && sizes[d] != 1) ? 0 : operand->strides[at];
}

/*
 * Compares dimensions. Above 0: `a` is outside `b` in memory; below 0: inside; 0: neither. The first operand in which
 * they differ decides.
 */
static int compare_dimensions(const struct shim_tensor *const operands[2], int ndim, const int64_t *sizes, int a, int b)
{
    for (int i = 0; i < 2; i++) {
        const int64_t x = stride_at(operands[i], ndim, sizes, a), y = stride_at(operands[i], ndim, sizes, b);
        if (x == 0 || y == 0)
            continue;
        if (x != y)
            return x < y ? -1 : 1;
        if (sizes[a] > sizes[b])
            return 1;
    }
    return 0;
}

/*
 * Makes the result, its dimensions in the order of the operands' as PyTorch's TensorIterator chooses it: compiled code
 * relies on that.
 */
static AOTITorchError make_result(const char *function, const struct shim_tensor *x, const struct shim_tensor *y,
                                  int ndim, const int64_t *sizes, AtenTensorHandle *ret)
{
    const struct shim_tensor *const operands[] = {x, y};
    int order[SHIM_MAX_NDIM]; /* the innermost first */
    int64_t strides[SHIM_MAX_NDIM], stride = 1;
    for (int i = 0; i < ndim; i++)
        order[i] = ndim - 1 - i;
    for (int i = 1; i < ndim; i++)
        for (int at = i, before = i - 1; before >= 0; before--) {
            const int compared = compare_dimensions(operands, ndim, sizes, order[before], order[at]);
            if (compared < 0)
                break;
            if (compared > 0) {
                const int held = order[before];
                order[before] = order[at];
                order[at] = held;
                at = before;
            }
        }
    for (int i = 0; i < ndim; i++) {
        strides[order[i]] = stride;
        if (__builtin_mul_overflow(stride, sizes[order[i]] > 1 ? sizes[order[i]] : 1, &stride))
            return aoticache_shim_fail("%s: a result of this size does not fit into memory", function);
    }
    return aoticache_shim_tensor_empty(function, ndim, sizes, strides, AOTICACHE_DTYPE_COMPLEX128, ret);
}

/* alpha: for a sum and a difference */
typedef number (*compute_pair)(number a, number b, double alpha);

static AOTITorchError run_binary(const char *function, compute_pair compute, double alpha, AtenTensorHandle a,
                                 AtenTensorHandle b, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle left = NULL, right = NULL;
    int64_t sizes[SHIM_MAX_NDIM];
    int32_t dtype = 0;
    int ndim = 0;
    if (!shim_is_defined(a) || !shim_is_defined(b))
        return aoticache_shim_fail_undefined(function, shim_is_defined(a) ? b : a);
    SHIM_TRY(result_dtype(function, a->tensor, b->tensor, &dtype));
    SHIM_TRY(aoticache_shim_broadcast(function, a->tensor, b->tensor, &ndim, sizes));
    SHIM_TRY(make_result(function, a->tensor, b->tensor, ndim, sizes, &left));
    SHIM_TRY(aoticache_shim_make_like(function, left, AOTICACHE_DTYPE_COMPLEX128, &right));
    SHIM_TRY(aoti_torch_copy_(left, a, 0));
    SHIM_TRY(aoti_torch_copy_(right, b, 0));
    number *to = left->tensor->data, *with = right->tensor->data;
    for (int64_t i = 0; i < left->tensor->numel; i++)
        to[i] = compute(to[i], with[i], alpha);
    return give(function, left, dtype, ret);
}

/* Computes with a number, which has no dtype of its own: it becomes a zero-dimensional tensor. */
static AOTITorchError run_with_number(const char *function, compute_pair compute, double alpha, AtenTensorHandle tensor,
                                      double value, bool number_first, AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle scalar = NULL;
    if (!shim_is_defined(tensor))
        return aoticache_shim_fail_undefined(function, tensor);
    if (!is_complex(tensor->tensor->dtype))
        return fail_real(function, tensor->tensor->dtype);
    const bool wide = is_wide(tensor->tensor->dtype);
    SHIM_TRY(aoticache_shim_make(function, 0, NULL, wide ? AOTICACHE_DTYPE_FLOAT64 : AOTICACHE_DTYPE_FLOAT32, &scalar));
    if (wide)
        *(double *)scalar->tensor->data = value;
    else
        *(float *)scalar->tensor->data = (float)value;
    return number_first ? run_binary(function, compute, alpha, scalar, tensor, ret)
                        : run_binary(function, compute, alpha, tensor, scalar, ret);
}

/* ---- called by name ---- */

#define DEFINE_UNARY(name)                                                                                 \
    AOTITorchError aoticache_shim_complex_##name(const aoticache_named_argument *a, AtenTensorHandle *ret) \
    {                                                                                                      \
        return run_unary(#name, compute_##name, a[0].tensor, ret);                                         \
    }
SHIM_COMPLEX_UNARY_LIST(DEFINE_UNARY)

AOTITorchError aoticache_shim_complex_div(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    return run_binary("div", compute_quotient, 1, a[0].tensor, a[1].tensor, ret);
}

AOTITorchError aoticache_shim_complex_sub(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    return run_binary("sub", compute_sub, a[2].number, a[0].tensor, a[1].tensor, ret);
}

/* ---- functions of PyTorch's interface ---- */

AOTITorchError aoti_torch_cpu_add_Tensor(AtenTensorHandle self, AtenTensorHandle other, double alpha,
                                         AtenTensorHandle *ret0)
{
    SHIM_CHECK_RESULT(ret0);
    return run_binary(__func__, compute_add, alpha, self, other, ret0);
}

AOTITorchError aoti_torch_cpu_add_Scalar(AtenTensorHandle self, double other, double alpha, AtenTensorHandle *ret0)
{
    SHIM_CHECK_RESULT(ret0);
    return run_with_number(__func__, compute_add, alpha, self, other, false, ret0);
}

AOTITorchError aoti_torch_cpu_mul_Tensor(AtenTensorHandle self, AtenTensorHandle other, AtenTensorHandle *ret0)
{
    SHIM_CHECK_RESULT(ret0);
    return run_binary(__func__, compute_mul, 1, self, other, ret0);
}

AOTITorchError aoti_torch_cpu_mul_Scalar(AtenTensorHandle self, double other, AtenTensorHandle *ret0)
{
    SHIM_CHECK_RESULT(ret0);
    return run_with_number(__func__, compute_mul, 1, self, other, false, ret0);
}

AOTITorchError aoti_torch_cpu_pow_Tensor_Tensor(AtenTensorHandle self, AtenTensorHandle exponent,
                                                AtenTensorHandle *ret0)
{
    SHIM_CHECK_RESULT(ret0);
    return run_binary(__func__, compute_pow, 1, self, exponent, ret0);
}

AOTITorchError aoti_torch_cpu_pow_Tensor_Scalar(AtenTensorHandle self, double exponent, AtenTensorHandle *ret0)
{
    SHIM_CHECK_RESULT(ret0);
    return run_with_number(__func__, compute_pow, 1, self, exponent, false, ret0);
}

AOTITorchError aoti_torch_cpu_pow_Scalar(double self, AtenTensorHandle exponent, AtenTensorHandle *ret0)
{
    SHIM_CHECK_RESULT(ret0);
    return run_with_number(__func__, compute_pow, 1, exponent, self, true, ret0);
}

AOTITorchError aoti_torch_cpu_abs(AtenTensorHandle self, AtenTensorHandle *ret0)
{
    SHIM_CHECK_RESULT(ret0);
    return run_real(__func__, cabs, self, ret0);
}

AOTITorchError aoti_torch_cpu_angle(AtenTensorHandle self, AtenTensorHandle *ret0)
{
    SHIM_CHECK_RESULT(ret0);
    return run_real(__func__, carg, self, ret0);
}

void aoticache_shim_conjugate(int32_t dtype, void *data, int64_t count)
{
    if (dtype == AOTICACHE_DTYPE_COMPLEX64)
        for (int64_t i = 0; i < count; i++)
            ((float *)data)[2 * i + 1] *= -1;
    if (dtype == AOTICACHE_DTYPE_COMPLEX128)
        for (int64_t i = 0; i < count; i++)
            ((double *)data)[2 * i + 1] *= -1;
}
