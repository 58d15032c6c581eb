/*
 * shim/products/trilinear: sums of products of three tensors, as in torch.nn.functional.bilinear: two matrix
 * multiplications, one after the other.
 *
 * Source: at::_trilinear (aten/src/ATen/native/Linear.cpp).
 */
#include "runtime/shim/math/math_internal.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <string.h>

/*
 * The role of a dimension in the multiplication of two tensors: batch, rows (of the first tensor), columns, or depth.
 */
enum role { BATCH, ROWS, COLUMNS, DEPTH, ROLES };

/* The problem. All operands have all its dimensions, with size 1 for those that they lack. */
struct trilinear {
    const char *function;
    int ndim;
    bool summed[SHIM_MAX_NDIM];
};

static AOTITorchError read_dimensions(const struct trilinear *t, const char *what, const int64_t *dims, int64_t count,
                                      bool ret_set[SHIM_MAX_NDIM])
{
    memset(ret_set, 0, SHIM_MAX_NDIM * sizeof *ret_set);
    for (int64_t i = 0; i < count; i++) {
        int at = 0;
        SHIM_TRY(aoticache_shim_wrap_dimension(t->function, t->ndim, dims[i], &at));
        if (ret_set[at])
            return aoticache_shim_fail("%s: %s contains dimension %d twice", t->function, what, at);
        ret_set[at] = true;
    }
    return SHIM_SUCCESS;
}

/* Makes a view with a dimension of size 1 at each position in `dims`. */
static AOTITorchError insert_dimensions(const struct trilinear *t, const char *what, AtenTensorHandle tensor,
                                        const int64_t *dims, int64_t count, AtenTensorHandle *ret_view)
{
    bool inserted[SHIM_MAX_NDIM];
    int64_t sizes[SHIM_MAX_NDIM], strides[SHIM_MAX_NDIM];
    const struct shim_tensor *from = tensor->tensor;
    if (count < 0 || from->ndim + count != t->ndim)
        return aoticache_shim_fail("%s: a tensor of %d dimensions and %lld more (%s), for %d", t->function,
                                   (int)from->ndim, (long long)count, what, t->ndim);
    SHIM_TRY(read_dimensions(t, what, dims, count, inserted));
    for (int d = 0, at = 0; d < t->ndim; d++) {
        sizes[d] = inserted[d] ? 1 : from->sizes[at];
        strides[d] = inserted[d] ? 0 : from->strides[at++];
    }
    return aoticache_shim_tensor_view(t->function, from, from->dtype, t->ndim, sizes, strides, from->offset, ret_view);
}

/* Makes a view of one element along a dimension; an operand that is broadcast there does not change. */
static AOTITorchError narrow(const struct trilinear *t, AtenTensorHandle tensor, int dim, int64_t at,
                             AtenTensorHandle *ret_view)
{
    int64_t sizes[SHIM_MAX_NDIM];
    const struct shim_tensor *from = tensor->tensor;
    memcpy(sizes, from->sizes, (size_t)t->ndim * sizeof *sizes);
    sizes[dim] = 1;
    return aoticache_shim_tensor_view(t->function, from, from->dtype, t->ndim, sizes, from->strides,
                                      from->offset + (from->sizes[dim] == 1 ? 0 : at * from->strides[dim]), ret_view);
}

/* The dimensions of a multiplication, and the role of each. */
struct pairing {
    enum role roles[SHIM_MAX_NDIM];
    int64_t sizes[SHIM_MAX_NDIM];
    int64_t counts[ROLES]; /* products of sizes */
};

static AOTITorchError pair_up(const struct trilinear *t, const struct shim_tensor *a, const struct shim_tensor *b,
                              const bool summed[SHIM_MAX_NDIM], struct pairing *ret_pairing)
{
    struct pairing p = {.counts = {1, 1, 1, 1}};
    for (int d = 0; d < t->ndim; d++) {
        if (a->sizes[d] != b->sizes[d] && a->sizes[d] != 1 && b->sizes[d] != 1)
            return aoticache_shim_fail("%s: sizes %lld and %lld at dimension %d", t->function, (long long)a->sizes[d],
                                       (long long)b->sizes[d], d);
        p.sizes[d] = a->sizes[d] == 1 ? b->sizes[d] : a->sizes[d];
        p.roles[d] = summed[d] ? DEPTH : a->sizes[d] == 1 ? COLUMNS : b->sizes[d] == 1 ? ROWS : BATCH;
        if (__builtin_mul_overflow(p.counts[p.roles[d]], p.sizes[d], &p.counts[p.roles[d]]))
            return aoticache_shim_fail("%s: a result of this size does not fit into memory", t->function);
    }
    *ret_pairing = p;
    return SHIM_SUCCESS;
}

/*
 * Returns the operand as a batch of matrices whose dimensions have the roles `order`; copies if a view is not possible.
 */
static AOTITorchError gather(const struct trilinear *t, const struct pairing *p, AtenTensorHandle tensor,
                             const enum role order[3], AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle view = NULL, matrices = NULL;
    int64_t sizes[SHIM_MAX_NDIM], strides[SHIM_MAX_NDIM], shape[3], dense[3];
    const struct shim_tensor *from = tensor->tensor;
    int ndim = 0;
    for (int i = 0; i < 3; i++) {
        for (int d = 0; d < t->ndim; d++)
            if (p->roles[d] == order[i]) {
                sizes[ndim] = p->sizes[d];
                strides[ndim++] = from->sizes[d] == 1 ? 0 : from->strides[d];
            }
        shape[i] = p->counts[order[i]];
    }
    SHIM_TRY(aoticache_shim_tensor_view(t->function, from, from->dtype, ndim, sizes, strides, from->offset, &view));
    SHIM_TRY(aoticache_shim_read(t->function, view, from->dtype, &matrices));
    dense[2] = 1;
    dense[1] = shape[2];
    if (__builtin_mul_overflow(shape[1], shape[2], &dense[0]))
        return aoticache_shim_fail("%s: matrices of %lld x %lld", t->function, (long long)shape[1],
                                   (long long)shape[2]);
    return aoticache_shim_tensor_view(t->function, matrices->tensor, from->dtype, 3, shape, dense,
                                      matrices->tensor->offset, ret);
}

/* Computes the sum over `summed` of the products of two operands; the result has size 1 in these dimensions. */
static AOTITorchError multiply(const struct trilinear *t, AtenTensorHandle a, AtenTensorHandle b,
                               const bool summed[SHIM_MAX_NDIM], AtenTensorHandle *ret)
{
    static const enum role left[] = {BATCH, ROWS, DEPTH}, right[] = {BATCH, DEPTH, COLUMNS},
                           made[] = {BATCH, ROWS, COLUMNS};
    cleanup_tensor AtenTensorHandle x = NULL, y = NULL, product = NULL;
    int64_t strides[SHIM_MAX_NDIM], stride = 1;
    struct pairing p;
    SHIM_TRY(pair_up(t, a->tensor, b->tensor, summed, &p));
    SHIM_TRY(gather(t, &p, a, left, &x));
    SHIM_TRY(gather(t, &p, b, right, &y));
    SHIM_TRY(aoticache_shim_make(t->function, 3, (const int64_t[]){p.counts[BATCH], p.counts[ROWS], p.counts[COLUMNS]},
                                 a->tensor->dtype, &product));
    SHIM_TRY(aoti_torch_cpu_bmm_out(product, x, y));
    for (int i = 2; i >= 0; i--)
        for (int d = t->ndim - 1; d >= 0; d--)
            if (p.roles[d] == made[i]) {
                strides[d] = stride;
                stride *= p.sizes[d];
            } else if (p.roles[d] == DEPTH)
                strides[d] = 0;
    for (int d = 0; d < t->ndim; d++)
        p.sizes[d] = p.roles[d] == DEPTH ? 1 : p.sizes[d];
    return aoticache_shim_tensor_view(t->function, product->tensor, product->tensor->dtype, t->ndim, p.sizes, strides,
                                      product->tensor->offset, ret);
}

/* Computes the whole sum of three operands. Dimensions that the third lacks are summed before multiplying with it. */
static AOTITorchError multiply_three(const struct trilinear *t, const AtenTensorHandle operands[3],
                                     AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle pair = NULL;
    bool first[SHIM_MAX_NDIM], second[SHIM_MAX_NDIM];
    for (int d = 0; d < t->ndim; d++) {
        first[d] = t->summed[d] && operands[2]->tensor->sizes[d] == 1;
        second[d] = t->summed[d] && !first[d];
    }
    SHIM_TRY(multiply(t, operands[0], operands[1], first, &pair));
    return multiply(t, pair, operands[2], second, ret);
}

static AOTITorchError result_sizes(const struct trilinear *t, const AtenTensorHandle operands[3],
                                   int64_t ret_sizes[SHIM_MAX_NDIM])
{
    for (int d = 0; d < t->ndim; d++) {
        ret_sizes[d] = 1;
        for (int i = 0; i < 3; i++) {
            const int64_t size = operands[i]->tensor->sizes[d];
            if (size != 1 && ret_sizes[d] != 1 && size != ret_sizes[d])
                return aoticache_shim_fail("%s: sizes %lld and %lld at dimension %d", t->function,
                                           (long long)ret_sizes[d], (long long)size, d);
            ret_sizes[d] = size == 1 ? ret_sizes[d] : size;
        }
    }
    return SHIM_SUCCESS;
}

/*
 * Multiplies separately for each element of one dimension, so that the product of the first two never has to be in
 * memory as a whole.
 */
static AOTITorchError multiply_by_slices(const struct trilinear *t, const AtenTensorHandle operands[3], int unrolled,
                                         AtenTensorHandle result)
{
    for (int64_t at = 0; at < result->tensor->sizes[unrolled]; at++) {
        cleanup_tensor AtenTensorHandle a = NULL, b = NULL, c = NULL, sum = NULL, to = NULL;
        SHIM_TRY(narrow(t, operands[0], unrolled, at, &a));
        SHIM_TRY(narrow(t, operands[1], unrolled, at, &b));
        SHIM_TRY(narrow(t, operands[2], unrolled, at, &c));
        SHIM_TRY(multiply_three(t, (const AtenTensorHandle[]){a, b, c}, &sum));
        SHIM_TRY(narrow(t, result, unrolled, at, &to));
        SHIM_TRY(aoti_torch_copy_(to, sum, 0));
    }
    return SHIM_SUCCESS;
}

static AOTITorchError compute(const struct trilinear *t, const AtenTensorHandle operands[3], int unrolled,
                              AtenTensorHandle *ret)
{
    cleanup_tensor AtenTensorHandle result = NULL, sum = NULL;
    int64_t sizes[SHIM_MAX_NDIM], strides[SHIM_MAX_NDIM];
    int ndim = 0;
    SHIM_TRY(result_sizes(t, operands, sizes));
    for (int d = 0; d < t->ndim; d++)
        sizes[d] = t->summed[d] ? 1 : sizes[d];
    SHIM_TRY(aoticache_shim_make(t->function, t->ndim, sizes, operands[0]->tensor->dtype, &result));
    if (t->summed[unrolled]) {
        SHIM_TRY(multiply_three(t, operands, &sum));
        SHIM_TRY(aoti_torch_copy_(result, sum, 0));
    } else
        SHIM_TRY(multiply_by_slices(t, operands, unrolled, result));
    for (int d = 0; d < t->ndim; d++)
        if (!t->summed[d]) {
            sizes[ndim] = sizes[d];
            strides[ndim++] = result->tensor->strides[d];
        }
    return aoticache_shim_tensor_view(t->function, result->tensor, result->tensor->dtype, ndim, sizes, strides, 0, ret);
}

AOTITorchError aoti_torch_cpu__trilinear(AtenTensorHandle i1, AtenTensorHandle i2, AtenTensorHandle i3,
                                         const int64_t *expand1, int64_t expand1_len_, const int64_t *expand2,
                                         int64_t expand2_len_, const int64_t *expand3, int64_t expand3_len_,
                                         const int64_t *sumdim, int64_t sumdim_len_, int64_t unroll_dim,
                                         AtenTensorHandle *ret0)
{
    cleanup_tensor AtenTensorHandle a = NULL, b = NULL, c = NULL, result = NULL;
    struct trilinear t = {.function = __func__};
    int unrolled = 0;
    SHIM_CHECK_TENSOR(i1);
    SHIM_CHECK_TENSOR(i2);
    SHIM_CHECK_TENSOR(i3);
    SHIM_CHECK_RESULT(ret0);
    const int64_t ndim = i1->tensor->ndim + expand1_len_;
    if (expand1_len_ < 0 || ndim < 1 || ndim > SHIM_MAX_NDIM || unroll_dim < 0 || unroll_dim >= ndim)
        return aoticache_shim_fail("%s: %lld dimensions, of which %lld is to be unrolled", __func__, (long long)ndim,
                                   (long long)unroll_dim);
    if (i1->tensor->dtype != i2->tensor->dtype || i1->tensor->dtype != i3->tensor->dtype)
        return aoticache_shim_fail("%s: three tensors with the same dtype are needed", __func__);
    t.ndim = (int)ndim;
    unrolled = (int)unroll_dim;
    SHIM_TRY(read_dimensions(&t, "sumdim", sumdim, sumdim_len_, t.summed));
    SHIM_TRY(insert_dimensions(&t, "expand1", i1, expand1, expand1_len_, &a));
    SHIM_TRY(insert_dimensions(&t, "expand2", i2, expand2, expand2_len_, &b));
    SHIM_TRY(insert_dimensions(&t, "expand3", i3, expand3, expand3_len_, &c));
    SHIM_TRY(compute(&t, (const AtenTensorHandle[]){a, b, c}, unrolled, &result));
    *ret0 = shim_steal(&result);
    return SHIM_SUCCESS;
}
