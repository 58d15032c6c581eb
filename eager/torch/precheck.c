/*
 * eager/torch/precheck: the checks of arguments' data that PyTorch's kernels make and compiled kernels do not: indices within
 * the indexed tensor, integer divisors; and dtypes for which PyTorch's compiler computes other results. A call that does not
 * pass goes to PyTorch's own kernel, which raises its own exception, or handles a negative index. So nothing here defines
 * errors: a check passes only if a compiled kernel is certainly correct.
 *
 * Operators without such arguments have no precheck, and their hits do not come here (aoticache_binding_answer()).
 * The contents of another device's memory are not read, because that would wait for the device: such calls go to PyTorch.
 */
#include "eager/torch/torch_internal.h"

#include <string.h>

/* ---- operators and their checks ---- */

typedef enum precheck_kind {
    INDEX_OF_DIM,   /* `checked` indexes the dimension of `other` whose number is the argument `extra` */
    INDEX_OF_ROWS,  /* ... the first dimension of `other` */
    INDEX_OF_ALL,   /* ... all elements of `other` */
    INDEX_BELOW,    /* ... as many elements as the number `other`, or the product of the list `other` */
    INDEX_OF_EACH,  /* the list `checked` indexes the dimensions of `other`, one for each dimension */
    INDEX_OF_CLASS, /* `checked` indexes the classes of `other`, or is the number `extra` */
    NOT_OF_BYTES, /* `checked` is not of uint8, for which PyTorch's compiler returns bool as truth, and rounds means differently */
    INTEGER_DIVISOR, /* `other` is divided by `checked`; `extra`: the rounding mode, absent for a division of floats */
    FLOOR_DIVISOR,   /* ... and rounded down, or its remainder */
    EXPONENT,        /* `other` to the power of `checked` */
    CONVERSION,      /* `checked` is converted to the dtype of `other`, or the dtype `other` */
} precheck_kind;

struct aoticache_precheck {
    const char *name; /* including the overload */
    precheck_kind kind;
    int8_t checked, other, extra; /* positions of arguments; -1: none */
};

static const aoticache_precheck prechecks[] = {
    {"aten::embedding", INDEX_OF_ROWS, 1, 0, -1},
    {"aten::embedding_renorm", INDEX_OF_ROWS, 1, 0, -1},
    {"aten::_embedding_bag", INDEX_OF_ROWS, 1, 0, -1},
    {"aten::_embedding_bag_forward_only", INDEX_OF_ROWS, 1, 0, -1},
    {"aten::embedding_dense_backward", INDEX_BELOW, 1, 2, -1},
    {"aten::gather", INDEX_OF_DIM, 2, 0, 1},
    {"aten::index_select", INDEX_OF_DIM, 2, 0, 1},
    {"aten::index_add", INDEX_OF_DIM, 2, 0, 1},
    {"aten::index_copy", INDEX_OF_DIM, 2, 0, 1},
    {"aten::index_fill.int_Scalar", INDEX_OF_DIM, 2, 0, 1},
    {"aten::index_fill.int_Tensor", INDEX_OF_DIM, 2, 0, 1},
    {"aten::index_reduce", INDEX_OF_DIM, 2, 0, 1},
    {"aten::scatter.src", INDEX_OF_DIM, 2, 0, 1},
    {"aten::scatter.value", INDEX_OF_DIM, 2, 0, 1},
    {"aten::scatter.reduce", INDEX_OF_DIM, 2, 0, 1},
    {"aten::scatter.value_reduce", INDEX_OF_DIM, 2, 0, 1},
    {"aten::scatter_add", INDEX_OF_DIM, 2, 0, 1},
    {"aten::scatter_reduce.two", INDEX_OF_DIM, 2, 0, 1},
    {"aten::take", INDEX_OF_ALL, 1, 0, -1},
    {"aten::put", INDEX_OF_ALL, 1, 0, -1},
    {"aten::max_unpool2d", INDEX_BELOW, 1, 2, -1},
    {"aten::max_unpool3d", INDEX_BELOW, 1, 2, -1},
    {"aten::index.Tensor", INDEX_OF_EACH, 1, 0, -1},
    {"aten::_unsafe_index.Tensor", INDEX_OF_EACH, 1, 0, -1},
    {"aten::index_put", INDEX_OF_EACH, 1, 0, -1},
    {"aten::_unsafe_index_put", INDEX_OF_EACH, 1, 0, -1},
    {"aten::_index_put_impl", INDEX_OF_EACH, 1, 0, -1},
    {"aten::nll_loss_forward", INDEX_OF_CLASS, 1, 0, 4},
    {"aten::nll_loss2d_forward", INDEX_OF_CLASS, 1, 0, 4},
    {"aten::nll_loss_backward", INDEX_OF_CLASS, 2, 1, 5},
    {"aten::nll_loss2d_backward", INDEX_OF_CLASS, 2, 1, 5},
    {"aten::upsample_bilinear2d", NOT_OF_BYTES, 0, 0, -1},
    {"aten::any", NOT_OF_BYTES, 0, 0, -1},
    {"aten::any.dim", NOT_OF_BYTES, 0, 0, -1},
    {"aten::any.dims", NOT_OF_BYTES, 0, 0, -1},
    {"aten::all", NOT_OF_BYTES, 0, 0, -1},
    {"aten::all.dim", NOT_OF_BYTES, 0, 0, -1},
    {"aten::all.dims", NOT_OF_BYTES, 0, 0, -1},
    {"aten::div.Tensor_mode", INTEGER_DIVISOR, 1, 0, 2},
    {"aten::div.Scalar_mode", INTEGER_DIVISOR, 1, 0, 2},
    {"aten::floor_divide", FLOOR_DIVISOR, 1, 0, -1},
    {"aten::floor_divide.Scalar", FLOOR_DIVISOR, 1, 0, -1},
    {"aten::remainder.Tensor", FLOOR_DIVISOR, 1, 0, -1},
    {"aten::remainder.Scalar", FLOOR_DIVISOR, 1, 0, -1},
    {"aten::remainder.Scalar_Tensor", FLOOR_DIVISOR, 1, 0, -1},
    {"aten::fmod.Tensor", INTEGER_DIVISOR, 1, 0, -1},
    {"aten::fmod.Scalar", INTEGER_DIVISOR, 1, 0, -1},
    {"aten::pow.Tensor_Scalar", EXPONENT, 1, 0, -1},
    {"aten::copy", CONVERSION, 1, 0, -1},
    {"aten::_to_copy", CONVERSION, 0, 1, -1},
    {"aten::sum.dim_IntList", CONVERSION, 0, 3, -1}, /* before those with fewer arguments (aoticache_precheck_find()) */
    {"aten::sum", CONVERSION, 0, 1, -1},
    {"aten::nansum", CONVERSION, 0, 3, -1},
    {"aten::prod.dim_int", CONVERSION, 0, 3, -1},
    {"aten::prod", CONVERSION, 0, 1, -1},
    {"aten::cumsum", CONVERSION, 0, 2, -1},
    {"aten::cumprod", CONVERSION, 0, 2, -1},
};

/* Returns whether "aten::index_add_" or "aten::div.out_mode" is a variant of the table's operator, with any overload. */
static bool is_form_of(const char *written, const char *name)
{
    size_t length = strcspn(written, ".");
    if (length > 0 && written[length - 1] == '_')
        length--;
    return strncmp(written, name, length) == 0 && strcspn(name, ".") == length;
}

/*
 * Finds the precheck. Variants that write to their arguments have other names of overloads, and the same first arguments in
 * the same order. Overloads of one name with different checks have different numbers of arguments.
 */
const aoticache_precheck *aoticache_precheck_find(const aoticache_holder *holder)
{
    size_t num_arguments = holder->num_arguments - aoticache_holder_num_outs(holder);
    for (size_t i = 0; i < sizeof prechecks / sizeof prechecks[0]; i++) {
        const aoticache_precheck *one = &prechecks[i];
        size_t last = (size_t)(one->checked > one->other ? one->checked : one->other);
        if (one->extra > 0 && (size_t)one->extra > last)
            last = (size_t)one->extra;
        bool is_meant = holder->written == 0 ? strcmp(one->name, holder->op) == 0 : is_form_of(holder->op, one->name);
        if (is_meant && last < num_arguments)
            return one;
    }
    return NULL;
}

/* ---- the elements of a tensor ---- */

/* The integers that pass: `span` of them from `low` on, and `also`. */
typedef struct range {
    int64_t low, also;
    uint64_t span;
} range;

/* Not 0, and not -1, by which the least integer cannot be divided. */
static const range divisors = {.low = 1, .also = 1, .span = UINT64_MAX - 1};

/* Without a branch per element: almost always all pass. */
#define ROW_OF(type)                                                                                 \
    static bool row_of_##type(const char *data, int64_t count, int64_t stride, const range *allowed) \
    {                                                                                                \
        const type *element = (const type *)data;                                                    \
        const range of = *allowed;                                                                   \
        unsigned outside = 0;                                                                        \
        for (int64_t i = 0; i < count; i++) {                                                        \
            int64_t value = (int64_t)element[i * stride];                                            \
            outside |= ((uint64_t)value - (uint64_t)of.low >= of.span) & (value != of.also);         \
        }                                                                                            \
        return outside == 0;                                                                         \
    }
ROW_OF(int8_t)
ROW_OF(uint8_t)
ROW_OF(int16_t)
ROW_OF(uint16_t)
ROW_OF(int32_t)
ROW_OF(uint32_t)
ROW_OF(int64_t)

typedef bool (*row_fn)(const char *data, int64_t count, int64_t stride, const range *allowed);

/* Returns the function for a dtype. ret_bytes: of one element. NULL: not an integer dtype. */
static row_fn row_of(int32_t dtype, int64_t *ret_bytes)
{
    static const struct {
        int32_t dtype;
        int64_t bytes;
        row_fn row;
    } rows[] = {
        {AOTICACHE_DTYPE_INT64, 8, row_of_int64_t},   {AOTICACHE_DTYPE_INT32, 4, row_of_int32_t},
        {AOTICACHE_DTYPE_INT16, 2, row_of_int16_t},   {AOTICACHE_DTYPE_INT8, 1, row_of_int8_t},
        {AOTICACHE_DTYPE_UINT8, 1, row_of_uint8_t},   {AOTICACHE_DTYPE_BOOL, 1, row_of_uint8_t},
        {AOTICACHE_DTYPE_UINT16, 2, row_of_uint16_t}, {AOTICACHE_DTYPE_UINT32, 4, row_of_uint32_t},
        {AOTICACHE_DTYPE_UINT64, 8, row_of_int64_t},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].dtype != dtype)
            continue;
        *ret_bytes = rows[i].bytes;
        return rows[i].row;
    }
    return NULL;
}

static bool is_contiguous(const aoticache_tensor_view *view)
{
    int64_t expected = 1;
    for (int64_t dim = view->ndim - 1; dim >= 0; dim--) {
        if (view->sizes[dim] != 1 && view->strides[dim] != expected)
            return false;
        expected *= view->sizes[dim];
    }
    return true;
}

typedef struct walk {
    const aoticache_tensor_view *view;
    const range *allowed;
    row_fn row;
    int64_t bytes;
} walk;

static bool walk_dim(const walk *all, int64_t dim, const char *data)
{
    const aoticache_tensor_view *view = all->view;
    while (dim < view->ndim && (view->sizes[dim] == 1 || view->strides[dim] == 0)) /* the same elements again */
        dim++;
    if (dim == view->ndim)
        return all->row(data, 1, 1, all->allowed);
    if (dim == view->ndim - 1)
        return all->row(data, view->sizes[dim], view->strides[dim], all->allowed);
    for (int64_t i = 0; i < view->sizes[dim]; i++)
        if (!walk_dim(all, dim + 1, data + i * view->strides[dim] * all->bytes))
            return false;
    return true;
}

static bool is_on_cpu(const aoticache_tensor_view *view)
{
    return view->device.type == AOTICACHE_DEVICE_TYPE_CPU;
}

/* Returns whether all elements are integers in the range. */
static bool all_within(const aoticache_tensor_view *view, const range *allowed)
{
    walk all = {.view = view, .allowed = allowed};
    if (view->numel == 0)
        return true;
    all.row = is_on_cpu(view) ? row_of(view->dtype, &all.bytes) : NULL;
    if (all.row == NULL)
        return false;
    if (is_contiguous(view))
        return all.row(view->data, view->numel, 1, allowed);
    return walk_dim(&all, 0, view->data);
}

static bool all_below(const aoticache_tensor_view *view, int64_t size)
{
    range allowed = {.low = 0, .also = 0, .span = size > 0 ? (uint64_t)size : 0};
    return (size > 0 || view->numel == 0) && all_within(view, &allowed);
}

/* ---- indices ---- */

static bool is_tensor(const aoticache_value *value)
{
    return value->kind == AOTICACHE_VALUE_TENSOR;
}

/* Returns the size of a dimension; -1: there is no such dimension. */
static int64_t size_of_dim(const aoticache_tensor_view *view, int64_t dim)
{
    int64_t ndim = view->ndim > 0 ? view->ndim : 1;
    if (dim < 0)
        dim += ndim;
    if (dim < 0 || dim >= ndim)
        return -1;
    return view->ndim > 0 ? view->sizes[dim] : 1;
}

/* Returns a number, or the product of a list; -1: neither. */
static int64_t number_of(const aoticache_value *value)
{
    int64_t product = 1;
    if (value->kind == AOTICACHE_VALUE_INT)
        return value->as.int_value;
    if (value->kind != AOTICACHE_VALUE_INT_LIST)
        return -1;
    for (uint32_t i = 0; i < value->count; i++)
        if (__builtin_mul_overflow(product, value->as.ints[i], &product))
            return -1;
    return product;
}

/*
 * Checks a list of indices. A bool mask has no indices, and PyTorch's compiler turns it into a selection; masks of bytes go to
 * PyTorch.
 */
static bool passes_each(const aoticache_value *list, const aoticache_tensor_view *other)
{
    int64_t dim = 0;
    if (list->kind != AOTICACHE_VALUE_TENSOR_LIST)
        return false;
    for (uint32_t i = 0; i < list->count; i++) {
        const aoticache_tensor_view *index = list->as.tensors[i];
        if (index == NULL) {
            dim++;
        } else if (index->dtype == AOTICACHE_DTYPE_BOOL) {
            dim += index->ndim;
        } else if (index->dtype == AOTICACHE_DTYPE_UINT8 || dim >= other->ndim ||
                   !all_below(index, other->sizes[dim++])) {
            return false;
        }
    }
    return true;
}

/* Checks indices of classes. For one sample the classes are the only dimension, for several samples the second one. */
static bool passes_classes(const aoticache_tensor_view *target, const aoticache_tensor_view *other,
                           const aoticache_value *ignored)
{
    int64_t classes = size_of_dim(other, other->ndim > 1 ? 1 : 0);
    if (ignored->kind != AOTICACHE_VALUE_INT || classes <= 0)
        return false;
    range allowed = {.low = 0, .also = ignored->as.int_value, .span = (uint64_t)classes};
    return all_within(target, &allowed);
}

static bool passes_tensors(const aoticache_precheck *precheck, const aoticache_value *arguments)
{
    const aoticache_value *checked = &arguments[precheck->checked], *other = &arguments[precheck->other];
    const aoticache_value *extra = precheck->extra >= 0 ? &arguments[precheck->extra] : NULL;
    if (precheck->kind == INDEX_OF_EACH)
        return is_tensor(other) && passes_each(checked, other->as.tensor);
    if (!is_tensor(checked) || (precheck->kind != INDEX_BELOW && !is_tensor(other)))
        return false;
    switch (precheck->kind) {
    case INDEX_OF_DIM:
        return extra->kind == AOTICACHE_VALUE_INT &&
               all_below(checked->as.tensor, size_of_dim(other->as.tensor, extra->as.int_value));
    case INDEX_OF_ROWS:
        return all_below(checked->as.tensor, size_of_dim(other->as.tensor, 0));
    case INDEX_OF_ALL:
        return all_below(checked->as.tensor, other->as.tensor->numel);
    case NOT_OF_BYTES:
        return checked->as.tensor->dtype != AOTICACHE_DTYPE_UINT8;
    case INDEX_BELOW:
        return all_below(checked->as.tensor, number_of(other));
    default:
        return passes_classes(checked->as.tensor, other->as.tensor, extra);
    }
}

/* ---- divisors ---- */

static bool is_integer_dtype(int32_t dtype)
{
    int64_t bytes;
    return row_of(dtype, &bytes) != NULL;
}

static bool is_integer(const aoticache_value *value)
{
    if (is_tensor(value))
        return is_integer_dtype(value->as.tensor->dtype);
    return value->kind == AOTICACHE_VALUE_INT || value->kind == AOTICACHE_VALUE_BOOL;
}

/* Returns whether it is a tensor of 16-bit floats. */
static bool is_short_float(const aoticache_value *value)
{
    return is_tensor(value) &&
           (value->as.tensor->dtype == AOTICACHE_DTYPE_FLOAT16 || value->as.tensor->dtype == AOTICACHE_DTYPE_BFLOAT16);
}

/*
 * Checks a divisor. PyTorch rounds down carefully (1.0 // 0.1 is 9), its compiler by floor(a / b), which is 10; and remainders
 * of divisions by infinity differ. So floor divisions of floats go to PyTorch. So do truncated quotients of 16-bit floats:
 * PyTorch rounds 17.97 to 18 first.
 */
static bool passes_divisor(const aoticache_precheck *precheck, const aoticache_value *arguments)
{
    const aoticache_value *divisor = &arguments[precheck->checked];
    const aoticache_value *mode = precheck->extra >= 0 ? &arguments[precheck->extra] : NULL;
    if (mode != NULL && mode->kind == AOTICACHE_VALUE_NONE)
        return true;
    bool rounds_down =
        precheck->kind == FLOOR_DIVISOR ||
        (mode != NULL && (mode->kind != AOTICACHE_VALUE_STRING || strcmp(mode->as.string, "trunc") != 0));
    const aoticache_value *dividend = &arguments[precheck->other];
    if (!is_integer(divisor) || !is_integer(dividend))
        return !rounds_down && (mode == NULL || (!is_short_float(divisor) && !is_short_float(dividend)));
    if (is_tensor(divisor))
        return all_within(divisor->as.tensor, &divisors);
    int64_t number = divisor->kind == AOTICACHE_VALUE_INT ? divisor->as.int_value : divisor->as.bool_value;
    return number != 0 && number != -1;
}

/* Checks an exponent. For -0.5 PyTorch uses a reciprocal root (NaN of -inf, -inf of -0), its compiler pow() (0 and inf). */
static bool passes_exponent(const aoticache_value *exponent)
{
    return exponent->kind != AOTICACHE_VALUE_DOUBLE || exponent->as.double_value != -0.5;
}

/* ---- conversions ---- */

/*
 * Checks a conversion. Converting a float outside the range of the integer dtype is undefined: for int8, PyTorch's compiler
 * turns NaN into -128 and 300 into 127, PyTorch into 0 and 44. And PyTorch warns about imaginary parts that are lost.
 */
static bool passes_conversion(const aoticache_value *from, const aoticache_value *to)
{
    if (to->kind == AOTICACHE_VALUE_NONE)
        return true;
    if (!is_tensor(from) || (!is_tensor(to) && to->kind != AOTICACHE_VALUE_DTYPE))
        return false;
    int32_t old = from->as.tensor->dtype, new = is_tensor(to) ? to->as.tensor->dtype : (int32_t)to->as.int_value;
    if (aoticache_holder_is_floating(new))
        return is_integer_dtype(old) || aoticache_holder_is_floating(old);
    return old == new || (is_integer_dtype(old) && is_integer_dtype(new));
}

/* ---- settings of the process ---- */

/* Operators that PyTorch refuses, or warns about, on the CPU if only deterministic algorithms may be used. */
static const char *const nondeterministic[] = {"aten::put", "aten::max_unpool2d", "aten::max_unpool3d"};

/* Operators whose results have the default dtype unless the call names one, whatever the dtypes of their tensors. */
static const char *const of_default_dtype[] = {"aten::linspace", "aten::logspace"};

static bool is_among(const aoticache_holder *holder, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is_form_of(holder->op, names[i]))
            return true;
    return false;
}

static bool is_floating_value(const aoticache_value *value, bool *ret_has_tensor)
{
    if (value->kind == AOTICACHE_VALUE_COMPLEX)
        return false;
    const bool is_list = value->kind == AOTICACHE_VALUE_TENSOR_LIST;
    const uint32_t count = is_list ? value->count : value->kind == AOTICACHE_VALUE_TENSOR;
    for (uint32_t i = 0; i < count; i++) {
        const aoticache_tensor_view *view = is_list ? value->as.tensors[i] : value->as.tensor;
        if (view != NULL && !aoticache_holder_is_floating(view->dtype))
            return false;
        *ret_has_tensor |= view != NULL;
    }
    return true;
}

/* Returns whether all tensors are floats: then the default dtype, float32 when kernels are compiled, does not matter. */
static bool is_of_floats(const aoticache_binding_call *call)
{
    bool has_tensor = false;
    for (size_t i = 0; i < call->stack.count; i++)
        if (!is_floating_value(&call->stack.values[i], &has_tensor))
            return false;
    return has_tensor;
}

bool aoticache_binding_asks_deterministic(const aoticache_holder *holder)
{
    return holder->device.type != AOTICACHE_DEVICE_TYPE_CPU || /* for other devices these operators are not known */
           is_among(holder, nondeterministic, sizeof nondeterministic / sizeof nondeterministic[0]);
}

bool aoticache_binding_admits_settings(const aoticache_binding_call *call, uint32_t settings)
{
    const aoticache_holder *holder = call->op->holder;
    if ((settings & AOTICACHE_BRIDGE_DETERMINISTIC) != 0)
        return false; /* it is set only for operators whose results it changes */
    return (settings & AOTICACHE_BRIDGE_DEFAULT_DTYPE) == 0 ||
           (is_of_floats(call) &&
            !is_among(holder, of_default_dtype, sizeof of_default_dtype / sizeof of_default_dtype[0]));
}

/* ---- the call ---- */

bool aoticache_binding_admits(const aoticache_binding_call *call)
{
    const aoticache_binding_operator *op = call->op;
    if (call->stack.count != op->holder->num_arguments || aoticache_binding_is_recursive(call))
        return false;
    if (op->holder->written != 0 && !aoticache_holder_writes_are_apart(op->holder, call->stack.values))
        return false;
    if (op->precheck == NULL)
        return true;
    if (op->precheck->kind == EXPONENT)
        return passes_exponent(&call->stack.values[op->precheck->checked]);
    if (op->precheck->kind == CONVERSION)
        return passes_conversion(&call->stack.values[op->precheck->checked], &call->stack.values[op->precheck->other]);
    bool divides = op->precheck->kind == INTEGER_DIVISOR || op->precheck->kind == FLOOR_DIVISOR;
    return divides ? passes_divisor(op->precheck, call->stack.values)
                   : passes_tensors(op->precheck, call->stack.values);
}
