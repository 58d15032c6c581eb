/*
 * shim/convolution/fused: functions that Inductor calls when it compiles with `freezing`: convolutions and linear layers with
 * weights that never change (tensors/packed.c), fused with elementwise functions of the result.
 *
 * oneDNN applies most of these within its convolutions (onednn_convolution.c); the others need a second pass over the
 * result here.
 *
 * Source: mkldnn::_convolution_pointwise, mkldnn::_linear_pointwise and related functions
 * (aten/src/ATen/native/mkldnn/Conv.cpp). Computed in float32, also for bfloat16 and float16.
 */
#include "runtime/shim/math/math_internal.h"

#include "runtime/shim/math/onednn.h"
#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <string.h>

enum binary { BINARY_ADD, BINARY_SUB, BINARY_MUL };

/* ---- arguments ---- */

static const struct {
    const char *name;
    enum shim_unary_kind kind;
    int scalars;
} unary_names[] = {
    {"none", SHIM_UNARY_NONE, 0},
    {"relu", SHIM_UNARY_RELU, 0},
    {"leaky_relu", SHIM_UNARY_LEAKY_RELU, 1},
    {"hardtanh", SHIM_UNARY_HARDTANH, 2},
    {"hardswish", SHIM_UNARY_HARDSWISH, 0},
    {"hardsigmoid", SHIM_UNARY_HARDSIGMOID, 0},
    {"sigmoid", SHIM_UNARY_SIGMOID, 0},
    {"swish", SHIM_UNARY_SWISH, 0},
    {"tanh", SHIM_UNARY_TANH, 0},
    {"gelu", SHIM_UNARY_GELU, 0},
};

AOTITorchError aoticache_shim_unary_read(const char *function, const char *name, const double **scalars,
                                         int64_t scalar_count, const char *const *algorithm,
                                         struct shim_unary *ret_unary)
{
    *ret_unary = (struct shim_unary){SHIM_UNARY_NONE, {0, 0}};
    if (name == NULL)
        return SHIM_SUCCESS;
    for (size_t i = 0; i < sizeof unary_names / sizeof unary_names[0]; i++) {
        if (strcmp(name, unary_names[i].name) != 0)
            continue;
        ret_unary->kind = unary_names[i].kind;
        for (int k = 0; k < unary_names[i].scalars; k++) {
            if (scalars == NULL || k >= scalar_count || scalars[k] == NULL)
                return aoticache_shim_fail("%s: %s needs %d numbers", function, name, unary_names[i].scalars);
            ret_unary->scalars[k] = *scalars[k];
        }
        if (ret_unary->kind == SHIM_UNARY_GELU && algorithm != NULL && *algorithm != NULL &&
            strcmp(*algorithm, "tanh") == 0)
            ret_unary->kind = SHIM_UNARY_GELU_TANH;
        return SHIM_SUCCESS;
    }
    return aoticache_shim_fail("%s: post-operation \"%.40s\" is not supported", function, name);
}

static AOTITorchError read_binary(const char *function, const char *name, enum binary *ret_binary)
{
    static const char *const names[] = {[BINARY_ADD] = "add", [BINARY_SUB] = "sub", [BINARY_MUL] = "mul"};
    for (int i = 0; name != NULL && i < 3; i++) {
        if (strcmp(name, names[i]) == 0) {
            *ret_binary = (enum binary)i;
            return SHIM_SUCCESS;
        }
    }
    return aoticache_shim_fail("%s: post-operation \"%.40s\" with another tensor is not supported", function,
                               name != NULL ? name : "NULL");
}

static AOTITorchError check_float32(const char *function, const AtenTensorHandle *tensors, int count)
{
    for (int i = 0; i < count; i++) {
        if (!shim_is_defined(tensors[i]))
            return aoticache_shim_fail_undefined(function, tensors[i]);
        int32_t dtype = tensors[i]->tensor->dtype;
        if (dtype != AOTICACHE_DTYPE_FLOAT32)
            return aoticache_shim_fail("%s: only float32 is supported, not %s", function,
                                       aoticache_shim_dtype_text(dtype, (char[SHIM_DTYPE_TEXT_BYTES]){0}));
    }
    return SHIM_SUCCESS;
}

/* ---- element by element ---- */

static void apply_binary(enum binary binary, float alpha, float *x, const float *other, int64_t count)
{
    if (binary == BINARY_MUL)
        for (int64_t i = 0; i < count; i++)
            x[i] *= other[i];
    else if (alpha == 1 && binary == BINARY_ADD)
        for (int64_t i = 0; i < count; i++)
            x[i] += other[i];
    else
        for (int64_t i = 0; i < count; i++)
            x[i] += (binary == BINARY_SUB ? -alpha : alpha) * other[i];
}

struct elements {
    const struct shim_unary *unary;
    float *x;
    const float *other; /* NULL: none */
    enum binary binary;
    float alpha;
    int64_t count;
    int parts;
};

static void apply_part(void *user, int part)
{
    const struct elements *e = user;
    int64_t first = e->count / e->parts * part;
    int64_t count = part + 1 == e->parts ? e->count - first : e->count / e->parts;
    if (e->other != NULL)
        apply_binary(e->binary, e->alpha, e->x + first, e->other + first, count);
    aoticache_shim_unary_apply(e->unary, e->x + first, count);
}

/*
 * Computes result = unary(result `binary` other), for a result that has just been made. other: NULL, or of the same
 * sizes.
 */
static AOTITorchError apply(const char *function, AtenTensorHandle result, AtenTensorHandle other, enum binary binary,
                            double alpha, const struct shim_unary *unary)
{
    const struct shim_tensor *x = result->tensor;
    cleanup_tensor AtenTensorHandle alike = NULL;
    struct elements e = {.unary = unary, .x = x->data, .binary = binary, .alpha = (float)alpha, .count = x->numel};
    if (other != NULL && memcmp(other->tensor->strides, x->strides, (size_t)x->ndim * sizeof *x->strides) == 0) {
        e.other = other->tensor->data;
    } else if (other != NULL) { /* make a copy with the strides of the result */
        SHIM_TRY(aoticache_shim_tensor_empty(function, x->ndim, x->sizes, x->strides, x->dtype, &alike));
        SHIM_TRY(aoti_torch_copy_(alike, other, 0));
        e.other = alike->tensor->data;
    }
    e.parts = aoticache_shim_parts((double)e.count * (unary->kind > SHIM_UNARY_HARDSIGMOID ? 16 : 1), 64);
    if (e.count > 0)
        aoticache_shim_parallel(e.parts, apply_part, &e);
    return SHIM_SUCCESS;
}

/* ---- bfloat16 and float16 operands are computed as float32 (fused_half.c) ---- */

struct wide {
    AtenTensorHandle x, weight, bias, other;
};

static void free_wide(struct wide *wide)
{
    aoticache_shim_handle_cleanup(&wide->x);
    aoticache_shim_handle_cleanup(&wide->weight);
    aoticache_shim_handle_cleanup(&wide->bias);
    aoticache_shim_handle_cleanup(&wide->other);
}

#define cleanup_wide __attribute__((cleanup(free_wide)))

static AOTITorchError widen(const char *function, AtenTensorHandle x, AtenTensorHandle weight,
                            const AtenTensorHandle *bias, AtenTensorHandle other, struct wide *wide)
{
    if (shim_is_defined(x) && shim_is_defined(weight) && x->tensor->dtype != weight->tensor->dtype)
        return check_float32(function, (const AtenTensorHandle[]){x, weight}, 2);
    SHIM_TRY(aoticache_shim_widen_half(function, x, &wide->x));
    SHIM_TRY(aoticache_shim_widen_half(function, weight, &wide->weight));
    SHIM_TRY(aoticache_shim_widen_half(function, shim_optional(bias), &wide->bias));
    return aoticache_shim_widen_half(function, other, &wide->other);
}

/* Converts the result, whose handle it takes over, to the dtype of the input. */
static AOTITorchError narrow(const char *function, AtenTensorHandle x, AtenTensorHandle *result,
                             AtenTensorHandle *ret_tensor)
{
    if (aoticache_shim_is_half(x))
        return aoticache_shim_convert_like(function, *result, x->tensor->dtype, ret_tensor);
    *ret_tensor = shim_steal(result);
    return SHIM_SUCCESS;
}

/* ---- convolutions ---- */

static struct convolution describe(AtenTensorHandle weight, const AtenTensorHandle *bias, int64_t groups,
                                   const struct shim_unary *unary)
{
    struct convolution c = {.groups = groups, .unary = *unary};
    AtenTensorHandle given = shim_optional(bias);
    if (shim_is_defined(given))
        c.bias = given->tensor;
    if (weight->tensor->packed != NULL)
        c.frozen_weight = weight->tensor;
    return c;
}

/*
 * Convolves bfloat16, with the fused functions. addend: the convolution is added to it; NULL: none. The result is NULL
 * if oneDNN does not support all of it.
 */
static AOTITorchError convolve_bfloat16(const char *function, const struct convolution *given,
                                        const struct convolution_windows *windows, AtenTensorHandle x,
                                        AtenTensorHandle weight, AtenTensorHandle addend, AtenTensorHandle *ret_tensor)
{
    bool fused;
    struct convolution c = *given;
    cleanup_tensor AtenTensorHandle output = NULL;
    *ret_tensor = NULL;
    if (x->tensor->dtype != AOTICACHE_DTYPE_BFLOAT16 || weight->tensor->dtype != AOTICACHE_DTYPE_BFLOAT16 ||
        !aoticache_shim_onednn_has_bfloat16() || !aoticache_shim_onednn_has_unary(&given->unary))
        return SHIM_SUCCESS;
    SHIM_TRY(aoticache_shim_convolve(function, &c, windows, x, weight, addend, &fused, &output));
    if (fused || (addend == NULL && given->unary.kind == SHIM_UNARY_NONE))
        *ret_tensor = shim_steal(&output);
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise(
    AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle *B, const int64_t *padding, int64_t padding_len_,
    const int64_t *stride, int64_t stride_len_, const int64_t *dilation, int64_t dilation_len_, int64_t groups,
    const char *attr, const double **scalars, int64_t scalars_len_, const char **algorithm, AtenTensorHandle *ret0)
{
    struct shim_unary unary;
    bool fused;
    cleanup_tensor AtenTensorHandle output = NULL;
    cleanup_wide struct wide wide = {0};
    SHIM_CHECK_RESULT(ret0);
    const struct convolution_windows windows = {stride,   stride_len_,   padding, padding_len_,
                                                dilation, dilation_len_, NULL,    0};
    SHIM_TRY(aoticache_shim_unary_read(__func__, attr, scalars, scalars_len_, algorithm, &unary));
    if (aoticache_shim_is_half(X) && aoticache_shim_is_half(W)) {
        const struct convolution of_halves = describe(W, B, groups, &unary);
        SHIM_TRY(convolve_bfloat16(__func__, &of_halves, &windows, X, W, NULL, ret0));
        if (*ret0 != NULL)
            return SHIM_SUCCESS;
    }
    SHIM_TRY(widen(__func__, X, W, B, NULL, &wide));
    SHIM_TRY(check_float32(__func__, (const AtenTensorHandle[]){wide.x, wide.weight}, 2));
    struct convolution c = describe(wide.weight, &wide.bias, groups, &unary);
    SHIM_TRY(aoticache_shim_convolve(__func__, &c, &windows, wide.x, wide.weight, NULL, &fused, &output));
    if (!fused)
        SHIM_TRY(apply(__func__, output, NULL, BINARY_ADD, 1, &unary));
    return narrow(__func__, X, &output, ret0);
}

struct binary_call {
    AtenTensorHandle input, other, weight, *bias;
    const struct convolution_windows *windows;
    int64_t groups;
    const char *binary;
    const double *alpha;
    const char **unary; /* the fused function; NULL: none */
    const double **unary_scalars;
    int64_t unary_scalars_len;
    const char **unary_algorithm;
};

/* Convolves float32. in_place: the result replaces `other`. */
static AOTITorchError convolve_floats(const char *function, const struct binary_call *call, bool in_place,
                                      AtenTensorHandle *ret_tensor)
{
    bool fused;
    enum binary binary;
    struct shim_unary unary;
    cleanup_tensor AtenTensorHandle output = NULL;
    const double alpha = call->alpha != NULL ? *call->alpha : 1;
    SHIM_TRY(aoticache_shim_unary_read(function, call->unary != NULL ? *call->unary : NULL, call->unary_scalars,
                                       call->unary_scalars_len, call->unary_algorithm, &unary));
    SHIM_TRY(check_float32(function, (const AtenTensorHandle[]){call->input, call->other, call->weight}, 3));
    SHIM_TRY(read_binary(function, call->binary, &binary));
    struct convolution c = describe(call->weight, call->bias, call->groups, &unary);
    AtenTensorHandle addend = in_place && binary == BINARY_ADD && alpha == 1 ? call->other : NULL;
    if (addend == NULL)
        c.unary.kind = SHIM_UNARY_NONE;
    SHIM_TRY(aoticache_shim_convolve(function, &c, call->windows, call->input, call->weight, addend, &fused, &output));
    if (addend == NULL || !fused) {
        if (!aoticache_shim_same_sizes(output->tensor, call->other->tensor))
            return aoticache_shim_fail("%s: the other tensor does not have the result's sizes", function);
        SHIM_TRY(apply(function, output, call->other, binary, alpha, &unary));
        if (in_place) {
            SHIM_TRY(aoti_torch_copy_(call->other, output, 0));
            return aoti_torch_new_tensor_handle(call->other, ret_tensor);
        }
    }
    *ret_tensor = shim_steal(&output);
    return SHIM_SUCCESS;
}

/* Does the same for bfloat16, in place, for a sum. The result is NULL if oneDNN does not support all of it. */
static AOTITorchError add_to_bfloat16(const char *function, const struct binary_call *call,
                                      AtenTensorHandle *ret_tensor)
{
    enum binary binary;
    struct shim_unary unary;
    *ret_tensor = NULL;
    SHIM_TRY(aoticache_shim_unary_read(function, call->unary != NULL ? *call->unary : NULL, call->unary_scalars,
                                       call->unary_scalars_len, call->unary_algorithm, &unary));
    SHIM_TRY(read_binary(function, call->binary, &binary));
    if (binary != BINARY_ADD || (call->alpha != NULL && *call->alpha != 1) || !aoticache_shim_is_half(call->weight) ||
        !aoticache_shim_is_half(call->other))
        return SHIM_SUCCESS;
    const struct convolution c = describe(call->weight, call->bias, call->groups, &unary);
    return convolve_bfloat16(function, &c, call->windows, call->input, call->weight, call->other, ret_tensor);
}

static AOTITorchError convolve_binary(const char *function, const struct binary_call *call, bool in_place,
                                      AtenTensorHandle *ret_tensor)
{
    if (!aoticache_shim_is_half(call->input))
        return convolve_floats(function, call, in_place, ret_tensor);
    if (in_place) {
        SHIM_TRY(add_to_bfloat16(function, call, ret_tensor));
        if (*ret_tensor != NULL)
            return SHIM_SUCCESS;
    }
    cleanup_wide struct wide wide = {0};
    cleanup_tensor AtenTensorHandle output = NULL;
    struct binary_call floats = *call;
    SHIM_TRY(widen(function, call->input, call->weight, call->bias, call->other, &wide));
    floats.input = wide.x;
    floats.weight = wide.weight;
    floats.bias = &wide.bias;
    floats.other = wide.other;
    SHIM_TRY(convolve_floats(function, &floats, false, &output));
    if (!in_place)
        return narrow(function, call->input, &output, ret_tensor);
    SHIM_TRY(aoti_torch_copy_(call->other, output, 0));
    return aoti_torch_new_tensor_handle(call->other, ret_tensor);
}

AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise_binary(
    AtenTensorHandle X, AtenTensorHandle other, AtenTensorHandle W, AtenTensorHandle *B, const int64_t *padding,
    int64_t padding_len_, const int64_t *stride, int64_t stride_len_, const int64_t *dilation, int64_t dilation_len_,
    int64_t groups, const char *binary_attr, double *alpha, const char **unary_attr, const double **unary_scalars,
    int64_t unary_scalars_len_, const char **unary_algorithm, AtenTensorHandle *ret0)
{
    const struct convolution_windows windows = {stride,   stride_len_,   padding, padding_len_,
                                                dilation, dilation_len_, NULL,    0};
    const struct binary_call call = {X,
                                     other,
                                     W,
                                     B,
                                     &windows,
                                     groups,
                                     binary_attr,
                                     alpha,
                                     unary_attr,
                                     unary_scalars,
                                     unary_scalars_len_,
                                     unary_algorithm};
    SHIM_CHECK_RESULT(ret0);
    return convolve_binary(__func__, &call, false, ret0);
}

AOTITorchError aoti_torch_cpu_mkldnn__convolution_pointwise_binary_(
    AtenTensorHandle other, AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle *B, const int64_t *padding,
    int64_t padding_len_, const int64_t *stride, int64_t stride_len_, const int64_t *dilation, int64_t dilation_len_,
    int64_t groups, const char *binary_attr, double *alpha, const char **unary_attr, const double **unary_scalars,
    int64_t unary_scalars_len_, const char **unary_algorithm, AtenTensorHandle *ret0)
{
    const struct convolution_windows windows = {stride,   stride_len_,   padding, padding_len_,
                                                dilation, dilation_len_, NULL,    0};
    const struct binary_call call = {X,
                                     other,
                                     W,
                                     B,
                                     &windows,
                                     groups,
                                     binary_attr,
                                     alpha,
                                     unary_attr,
                                     unary_scalars,
                                     unary_scalars_len_,
                                     unary_algorithm};
    SHIM_CHECK_RESULT(ret0);
    return convolve_binary(__func__, &call, true, ret0);
}

/*
 * Reorders the weight of a transposed convolution for aten::convolution: inputs x outputs of a group x kernel. Within
 * each group a packed weight has the outputs first, another weight the inputs.
 */
static AOTITorchError turn_weight(const char *function, AtenTensorHandle weight, int64_t groups,
                                  AtenTensorHandle *ret_weight)
{
    const struct shim_tensor *w = weight->tensor;
    if (w->packed == NULL)
        return aoti_torch_new_tensor_handle(weight, ret_weight);
    if (w->ndim < 3 || w->ndim > 5 || groups < 1 || w->sizes[0] % groups != 0 || !aoticache_shim_is_contiguous(w))
        return aoticache_shim_fail("%s: a packed weight of %d dimensions for %lld groups is not supported", function,
                                   (int)w->ndim, (long long)groups);
    const int64_t outputs = w->sizes[0] / groups, inputs = w->sizes[1], kernel = w->numel / (w->sizes[0] * inputs);
    const int64_t apart_sizes[] = {groups, inputs, outputs, kernel};
    const int64_t apart_strides[] = {outputs * inputs * kernel, kernel, inputs * kernel, 1};
    int64_t sizes[5] = {groups * inputs, outputs}, strides[5] = {kernel, inputs * kernel}, stride = 1;
    for (int d = w->ndim - 1; d >= 2; stride *= sizes[d], d--) {
        sizes[d] = w->sizes[d];
        strides[d] = stride;
    }
    if (groups == 1)
        return aoticache_shim_tensor_view(function, w, w->dtype, w->ndim, sizes, strides, 0, ret_weight);
    cleanup_tensor AtenTensorHandle apart = NULL, together = NULL;
    SHIM_TRY(aoticache_shim_tensor_view(function, w, w->dtype, 4, apart_sizes, apart_strides, 0, &apart));
    SHIM_TRY(aoticache_shim_read(function, apart, w->dtype, &together));
    strides[0] = outputs * kernel;
    strides[1] = kernel;
    return aoticache_shim_tensor_view(function, together->tensor, w->dtype, w->ndim, sizes, strides, 0, ret_weight);
}

AOTITorchError aoti_torch_cpu_mkldnn__convolution_transpose_pointwise(
    AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle *B, const int64_t *padding, int64_t padding_len_,
    const int64_t *output_padding, int64_t output_padding_len_, const int64_t *stride, int64_t stride_len_,
    const int64_t *dilation, int64_t dilation_len_, int64_t groups, const char *attr, const double **scalars,
    int64_t scalars_len_, const char **algorithm, AtenTensorHandle *ret0)
{
    struct shim_unary unary;
    bool fused;
    cleanup_tensor AtenTensorHandle output = NULL, weight = NULL;
    cleanup_wide struct wide wide = {0};
    SHIM_CHECK_RESULT(ret0);
    SHIM_TRY(widen(__func__, X, W, B, NULL, &wide));
    SHIM_TRY(check_float32(__func__, (const AtenTensorHandle[]){wide.x, wide.weight}, 2));
    SHIM_TRY(aoticache_shim_unary_read(__func__, attr, scalars, scalars_len_, algorithm, &unary));
    SHIM_TRY(turn_weight(__func__, wide.weight, groups, &weight));
    struct convolution c = describe(wide.weight, &wide.bias, groups, &unary);
    c.transposed = true;
    const struct convolution_windows windows = {stride,   stride_len_,   padding,        padding_len_,
                                                dilation, dilation_len_, output_padding, output_padding_len_};
    SHIM_TRY(aoticache_shim_convolve(__func__, &c, &windows, wide.x, weight, NULL, &fused, &output));
    if (!fused)
        SHIM_TRY(apply(__func__, output, NULL, BINARY_ADD, 1, &unary));
    return narrow(__func__, X, &output, ret0);
}

/* ---- linear layers ---- */

/*
 * Computes out = x Wᵀ + bias, over the last dimension of x. to_float: the result is float32, whatever the operands are;
 * it is NULL if that is not possible.
 */
static AOTITorchError multiply(const char *function, AtenTensorHandle input, AtenTensorHandle weight,
                               const AtenTensorHandle *bias, bool to_float, AtenTensorHandle *ret_tensor)
{
    const bool widens = to_float && aoticache_shim_is_half(input);
    if (!aoticache_shim_is_half(input) || !aoticache_shim_is_half(weight) ||
        input->tensor->dtype != weight->tensor->dtype)
        SHIM_TRY(check_float32(function, (const AtenTensorHandle[]){input, weight}, 2));
    const struct shim_tensor *x = input->tensor, *w = weight->tensor, *b = NULL;
    AtenTensorHandle given = shim_optional(bias);
    if (shim_is_defined(given))
        b = given->tensor;
    if (x->ndim < 1 || w->ndim != 2 || x->sizes[x->ndim - 1] != w->sizes[1])
        return aoticache_shim_fail(
            "%s: a weight of %d dimensions, %lld elements, does not match an input of %d dimensions, %lld elements",
            function, (int)w->ndim, (long long)w->numel, (int)x->ndim, (long long)x->numel);
    if (b != NULL && (b->dtype != x->dtype || b->ndim != 1 || b->sizes[0] != w->sizes[0]))
        return aoticache_shim_fail("%s: a bias of %d dimensions, %lld elements, for %lld results", function,
                                   (int)b->ndim, (long long)b->numel, (long long)w->sizes[0]);
    int64_t sizes[SHIM_MAX_NDIM];
    memcpy(sizes, x->sizes, (size_t)x->ndim * sizeof *sizes);
    sizes[x->ndim - 1] = w->sizes[0];
    cleanup_tensor AtenTensorHandle in = NULL, out = NULL;
    SHIM_TRY(aoticache_shim_read(function, input, x->dtype, &in));
    SHIM_TRY(aoticache_shim_make(function, x->ndim, sizes, widens ? AOTICACHE_DTYPE_FLOAT32 : x->dtype, &out));
    const ptrdiff_t out_item = out->tensor->item_bytes;
    const ptrdiff_t item = x->item_bytes, depth = (ptrdiff_t)w->sizes[1], columns = (ptrdiff_t)w->sizes[0];
    const struct matmul_problem problem = {
        .arithmetic = aoticache_shim_matmul_arithmetic(SHIM_CLASS_FLOAT),
        .access = aoticache_shim_dtype_access(x->dtype),
        .item_bytes = x->item_bytes,
        .rows = columns > 0 ? out->tensor->numel / columns : 0,
        .columns = columns,
        .depth = depth,
        .alpha = 1,
        .beta = 1,
        .a = {in->tensor->data, depth * item, item},
        .b = {w->data, (ptrdiff_t)w->strides[1] * item, (ptrdiff_t)w->strides[0] * item},
        .addend = {b != NULL ? b->data : NULL, 0, b != NULL ? (ptrdiff_t)b->strides[0] * item : 0},
        .out = {out->tensor->data, columns * out_item, out_item},
    };
    if (widens && !aoticache_shim_onednn_multiply(&problem, true)) {
        *ret_tensor = NULL;
        return SHIM_SUCCESS;
    }
    bool is_done = widens || out->tensor->numel == 0 ||
                   (w->packed != NULL && aoticache_shim_matmul_kept(&problem, w->packed, NULL));
    if (!is_done && !aoticache_shim_matmul(&problem))
        return aoticache_shim_fail_memory(function, (size_t)out->tensor->numel * sizeof(float));
    *ret_tensor = shim_steal(&out);
    return SHIM_SUCCESS;
}

/* Multiplies with a float32 result: bfloat16 with oneDNN if the processor supports it, otherwise widened operands. */
static AOTITorchError multiply_in_float(const char *function, AtenTensorHandle x, AtenTensorHandle weight,
                                        const AtenTensorHandle *bias, AtenTensorHandle *ret_tensor)
{
    cleanup_wide struct wide wide = {0};
    *ret_tensor = NULL;
    if (aoticache_shim_is_half(x) && aoticache_shim_onednn_has_bfloat16())
        SHIM_TRY(multiply(function, x, weight, bias, true, ret_tensor));
    if (*ret_tensor != NULL)
        return SHIM_SUCCESS;
    SHIM_TRY(widen(function, x, weight, bias, NULL, &wide));
    return multiply(function, wide.x, wide.weight, &wide.bias, true, ret_tensor);
}

AOTITorchError aoti_torch_cpu__linear_pointwise(AtenTensorHandle X, AtenTensorHandle W, AtenTensorHandle *B,
                                                const char *attr, const double **scalars, int64_t scalars_len_,
                                                const char **algorithm, AtenTensorHandle *ret0)
{
    struct shim_unary unary;
    cleanup_tensor AtenTensorHandle output = NULL;
    SHIM_CHECK_RESULT(ret0);
    SHIM_TRY(aoticache_shim_unary_read(__func__, attr, scalars, scalars_len_, algorithm, &unary));
    if (unary.kind == SHIM_UNARY_NONE) /* bfloat16 and float16 need no copy of the weight */
        return multiply(__func__, X, W, B, false, ret0);
    SHIM_TRY(multiply_in_float(__func__, X, W, B, &output));
    SHIM_TRY(apply(__func__, output, NULL, BINARY_ADD, 1, &unary));
    return narrow(__func__, X, &output, ret0);
}

AOTITorchError aoti_torch_cpu__linear_pointwise_binary(AtenTensorHandle X, AtenTensorHandle other, AtenTensorHandle W,
                                                       AtenTensorHandle *B, const char *attr, AtenTensorHandle *ret0)
{
    const struct shim_unary none = {SHIM_UNARY_NONE, {0, 0}};
    enum binary binary;
    cleanup_tensor AtenTensorHandle output = NULL, wide_other = NULL;
    SHIM_CHECK_RESULT(ret0);
    SHIM_TRY(aoticache_shim_widen_half(__func__, other, &wide_other));
    SHIM_TRY(check_float32(__func__, &wide_other, 1));
    SHIM_TRY(read_binary(__func__, attr, &binary));
    SHIM_TRY(multiply_in_float(__func__, X, W, B, &output));
    if (!aoticache_shim_same_sizes(output->tensor, other->tensor))
        return aoticache_shim_fail("%s: the other tensor does not have the result's sizes", __func__);
    SHIM_TRY(apply(__func__, output, wide_other, binary, 1, &none));
    return narrow(__func__, X, &output, ret0);
}
