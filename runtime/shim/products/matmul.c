/*
 * shim/products/matmul: the exported matrix multiplications: mm, addmm, bmm, baddbmm, each into an existing tensor; addmv
 * and addbmm, each into a new one.
 *
 * Source: at::mm_out and the others (aten/src/ATen/native/LinearAlgebra.cpp, Blas.cpp). The target must have the right
 * sizes; it is never resized, since generated code allocates what it needs.
 */
#include "runtime/shim/math/math_internal.h"

#include "runtime/shim/operators.h"

#include <stdatomic.h>

/* The operands of one call; addend is NULL if there is none. */
struct product {
    struct shim_tensor *out, *addend, *a, *b;
    double beta, alpha;
    int ndim; /* 2, or 3 with a batch in front */
};

static bool is_multiplied(int32_t dtype)
{
    switch (dtype) {
    case AOTICACHE_DTYPE_UINT8:
    case AOTICACHE_DTYPE_INT8:
    case AOTICACHE_DTYPE_INT16:
    case AOTICACHE_DTYPE_INT32:
    case AOTICACHE_DTYPE_INT64:
    case AOTICACHE_DTYPE_FLOAT16:
    case AOTICACHE_DTYPE_BFLOAT16:
    case AOTICACHE_DTYPE_FLOAT32:
    case AOTICACHE_DTYPE_FLOAT64:
    case AOTICACHE_DTYPE_COMPLEX64:
    case AOTICACHE_DTYPE_COMPLEX128:
        return true;
    default:
        return false;
    }
}

static AOTITorchError check_dtypes(const char *function, const struct product *product)
{
    char first[SHIM_DTYPE_TEXT_BYTES], second[SHIM_DTYPE_TEXT_BYTES];
    int32_t dtype = product->out->dtype;
    const struct shim_tensor *others[] = {product->a, product->b, product->addend};
    for (int i = 0; i < 3; i++)
        if (others[i] != NULL && others[i]->dtype != dtype)
            return aoticache_shim_fail("%s: the operands must have the same dtype; these are %s and %s", function,
                                       aoticache_shim_dtype_text(dtype, first),
                                       aoticache_shim_dtype_text(others[i]->dtype, second));
    if (!is_multiplied(dtype))
        return aoticache_shim_fail("%s: multiplication of %s is not supported", function,
                                   aoticache_shim_dtype_text(dtype, first));
    return SHIM_SUCCESS;
}

static AOTITorchError check_sizes(const char *function, const struct product *product)
{
    const struct shim_tensor *out = product->out, *a = product->a, *b = product->b;
    int ndim = product->ndim;
    if (a->ndim != ndim || b->ndim != ndim || out->ndim != ndim)
        return aoticache_shim_fail("%s: tensors must have %d dimensions; these have %d, %d and %d (the result)",
                                   function, ndim, (int)a->ndim, (int)b->ndim, (int)out->ndim);
    if (ndim == 3 && (a->sizes[0] != b->sizes[0] || a->sizes[0] != out->sizes[0]))
        return aoticache_shim_fail("%s: batches of %lld, %lld and %lld (the result) do not match", function,
                                   (long long)a->sizes[0], (long long)b->sizes[0], (long long)out->sizes[0]);
    const int64_t *a_size = a->sizes + ndim - 2, *b_size = b->sizes + ndim - 2, *out_size = out->sizes + ndim - 2;
    if (a_size[1] != b_size[0] || a_size[0] != out_size[0] || b_size[1] != out_size[1])
        return aoticache_shim_fail("%s: %lld x %lld times %lld x %lld into %lld x %lld", function, (long long)a_size[0],
                                   (long long)a_size[1], (long long)b_size[0], (long long)b_size[1],
                                   (long long)out_size[0], (long long)out_size[1]);
    return SHIM_SUCCESS;
}

static AOTITorchError check_target(const char *function, const struct product *product)
{
    const struct shim_tensor *out = product->out;
    for (int d = 0; d < out->ndim; d++)
        if (out->strides[d] == 0 && out->sizes[d] > 1)
            return aoticache_shim_fail("%s: dimension %d of the result repeats its elements (stride 0, size %lld)",
                                       function, d, (long long)out->sizes[d]);
    if (aoticache_shim_overlap(out, product->a) || aoticache_shim_overlap(out, product->b))
        return aoticache_shim_fail("%s: the result overlaps an operand in memory", function);
    return SHIM_SUCCESS;
}

/* Returns the last two dimensions of a tensor as a matrix. */
static struct matmul_matrix matrix_of(const struct shim_tensor *tensor)
{
    const int64_t *strides = tensor->strides + tensor->ndim - 2;
    return (struct matmul_matrix){tensor->data, (ptrdiff_t)strides[0] * tensor->item_bytes,
                                  (ptrdiff_t)strides[1] * tensor->item_bytes};
}

/* Returns the addend's byte strides (batch, rows, columns) when it is broadcast to the result's sizes. */
static AOTITorchError addend_strides(const char *function, const struct product *product, ptrdiff_t ret_strides[3])
{
    const struct shim_tensor *addend = product->addend, *out = product->out;
    for (int i = 0; i < 3; i++)
        ret_strides[i] = 0;
    if (addend->ndim > out->ndim)
        return aoticache_shim_fail("%s: an addend of %d dimensions for a result of %d", function, (int)addend->ndim,
                                   (int)out->ndim);
    for (int d = 0; d < addend->ndim; d++) {
        int at = d + out->ndim - addend->ndim;
        if (addend->sizes[d] != out->sizes[at] && addend->sizes[d] != 1)
            return aoticache_shim_fail("%s: an addend of size %lld for a result of size %lld at dimension %d", function,
                                       (long long)addend->sizes[d], (long long)out->sizes[at], at);
        if (addend->sizes[d] != 1)
            ret_strides[at + 3 - out->ndim] = (ptrdiff_t)addend->strides[d] * addend->item_bytes;
    }
    return SHIM_SUCCESS;
}

/* Matrices of one shape, one after the other in memory. */
struct batches {
    const struct matmul_problem *first;
    ptrdiff_t a_step, b_step, out_step, addend_step; /* in bytes */
    int64_t count;
    int parts;
    atomic_bool is_out_of_memory;
};

static void run_part(void *user, int part)
{
    struct batches *batches = user;
    for (int64_t i = batches->count * part / batches->parts; i < batches->count * (part + 1) / batches->parts; i++) {
        struct matmul_problem problem = *batches->first;
        problem.a.data += i * batches->a_step;
        problem.b.data += i * batches->b_step;
        problem.out.data += i * batches->out_step;
        if (problem.addend.data != NULL)
            problem.addend.data += i * batches->addend_step;
        if (!aoticache_shim_matmul(&problem))
            atomic_store(&batches->is_out_of_memory, true);
    }
}

static ptrdiff_t batch_step(const struct shim_tensor *tensor)
{
    return tensor->ndim == 3 ? (ptrdiff_t)tensor->strides[0] * tensor->item_bytes : 0;
}

/* Runs the batches. The threads divide the batches if there are enough, otherwise each matrix. */
static AOTITorchError run_batches(const char *function, const struct product *product, struct matmul_problem *problem,
                                  ptrdiff_t addend_step)
{
    struct batches batches = {.first = problem,
                              .a_step = batch_step(product->a),
                              .b_step = batch_step(product->b),
                              .out_step = batch_step(product->out),
                              .addend_step = addend_step,
                              .count = product->ndim == 3 ? product->out->sizes[0] : 1};
    const double work = (double)problem->rows * (double)problem->columns * (double)problem->depth;
    problem->batches = batches.count;
    batches.parts = aoticache_shim_parts(work * (double)batches.count, batches.count);
    if (batches.count < 2 * batches.parts)
        batches.parts = 1;
    aoticache_shim_parallel(batches.parts, run_part, &batches);
    return atomic_load(&batches.is_out_of_memory)
               ? aoticache_shim_fail_memory(function, aoticache_shim_matmul_workspace_bytes(problem))
               : SHIM_SUCCESS;
}

static AOTITorchError multiply(const char *function, const struct product *product)
{
    ptrdiff_t addend_step[3] = {0};
    if (check_dtypes(function, product) != SHIM_SUCCESS || check_sizes(function, product) != SHIM_SUCCESS ||
        check_target(function, product) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    if (product->addend != NULL && addend_strides(function, product, addend_step) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    if (product->out->numel == 0)
        return SHIM_SUCCESS;
    const struct shim_dtype_access *access = aoticache_shim_dtype_access(product->out->dtype);
    struct matmul_problem problem = {
        .arithmetic = aoticache_shim_matmul_arithmetic((enum shim_class)access->load_class),
        .access = access,
        .item_bytes = product->out->item_bytes,
        .rows = product->out->sizes[product->ndim - 2],
        .columns = product->out->sizes[product->ndim - 1],
        .depth = product->a->sizes[product->ndim - 1],
        .a = matrix_of(product->a),
        .b = matrix_of(product->b),
        .out = matrix_of(product->out),
        .alpha = product->alpha,
        .beta = product->beta,
    };
    /* With beta 0 the addend is not read: a NaN in it must not reach the result. */
    if (product->addend != NULL && product->beta != 0)
        problem.addend = (struct matmul_matrix){product->addend->data, addend_step[1], addend_step[2]};
    return run_batches(function, product, &problem, addend_step[0]);
}

static AOTITorchError product_out(const char *function, int ndim, AtenTensorHandle out, AtenTensorHandle a,
                                  AtenTensorHandle b)
{
    const AtenTensorHandle operands[] = {out, a, b};
    for (int i = 0; i < 3; i++)
        if (!shim_is_defined(operands[i]))
            return aoticache_shim_fail_undefined(function, operands[i]);
    struct product product = {out->tensor, NULL, a->tensor, b->tensor, 0, 1, ndim};
    return multiply(function, &product);
}

static AOTITorchError sum_out(const char *function, int ndim, AtenTensorHandle out, AtenTensorHandle addend,
                              AtenTensorHandle a, AtenTensorHandle b, double beta, double alpha)
{
    const AtenTensorHandle operands[] = {out, addend, a, b};
    for (int i = 0; i < 4; i++)
        if (!shim_is_defined(operands[i]))
            return aoticache_shim_fail_undefined(function, operands[i]);
    struct product product = {out->tensor, addend->tensor, a->tensor, b->tensor, beta, alpha, ndim};
    return multiply(function, &product);
}

AOTITorchError aoti_torch_cpu_mm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2)
{
    return product_out(__func__, 2, out, self, mat2);
}

AOTITorchError aoti_torch_cpu_bmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2)
{
    return product_out(__func__, 3, out, self, mat2);
}

AOTITorchError aoti_torch_cpu_addmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat1,
                                        AtenTensorHandle mat2, double beta, double alpha)
{
    return sum_out(__func__, 2, out, self, mat1, mat2, beta, alpha);
}

AOTITorchError aoti_torch_cpu_baddbmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle batch1,
                                          AtenTensorHandle batch2, double beta, double alpha)
{
    return sum_out(__func__, 3, out, self, batch1, batch2, beta, alpha);
}

AOTITorchError aoti_torch_mm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2)
{
    return product_out(__func__, 2, out, self, mat2);
}

AOTITorchError aoti_torch_bmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2)
{
    return product_out(__func__, 3, out, self, mat2);
}

AOTITorchError aoti_torch_addmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat1,
                                    AtenTensorHandle mat2, float beta, float alpha)
{
    return sum_out(__func__, 2, out, self, mat1, mat2, beta, alpha);
}

/* ---- into a new tensor ---- */

/* Makes a tensor over another one's memory, for the duration of a call; strides in elements. */
static void view_matrix(struct shim_tensor *view, const struct shim_tensor *tensor, ptrdiff_t offset, int64_t rows,
                        int64_t row_stride, int64_t columns, int64_t column_stride)
{
    *view = (struct shim_tensor){
        .dtype = tensor->dtype, .ndim = 2, .item_bytes = tensor->item_bytes, .numel = rows * columns};
    view->data = (char *)tensor->data + offset * (ptrdiff_t)tensor->item_bytes;
    view->sizes = view->inline_dims;
    view->strides = view->inline_dims + SHIM_INLINE_NDIM;
    view->sizes[0] = rows;
    view->sizes[1] = columns;
    view->strides[0] = row_stride;
    view->strides[1] = column_stride;
}

static AOTITorchError finish_new(AOTITorchError status, AtenTensorHandle out, AtenTensorHandle *ret_tensor)
{
    if (status == SHIM_SUCCESS)
        *ret_tensor = out;
    else
        aoti_torch_delete_tensor_object(out);
    return status;
}

AOTITorchError aoti_torch_cpu_addmv(AtenTensorHandle self, AtenTensorHandle mat, AtenTensorHandle vec, double beta,
                                    double alpha, AtenTensorHandle *ret_tensor)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_TENSOR(mat);
    SHIM_CHECK_TENSOR(vec);
    SHIM_CHECK_RESULT(ret_tensor);
    const struct shim_tensor *addend = self->tensor, *vector = vec->tensor;
    if (addend->ndim > 1 || mat->tensor->ndim != 2 || vector->ndim != 1)
        return aoticache_shim_fail("%s: a vector, a matrix and a vector are needed; these have %d, %d and %d "
                                   "dimensions",
                                   __func__, (int)addend->ndim, (int)mat->tensor->ndim, (int)vector->ndim);
    const int64_t rows = mat->tensor->sizes[0], stride = 1, length = addend->ndim == 1 ? addend->sizes[0] : 1;
    AtenTensorHandle out;
    if (aoticache_shim_tensor_empty(__func__, 1, &rows, &stride, mat->tensor->dtype, &out) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    struct shim_tensor column, addend_column, out_column;
    view_matrix(&column, vector, 0, vector->sizes[0], vector->strides[0], 1, 1);
    view_matrix(&addend_column, addend, 0, length, addend->ndim == 1 ? addend->strides[0] : 1, 1, 1);
    view_matrix(&out_column, out->tensor, 0, rows, 1, 1, 1);
    const struct product product = {&out_column, &addend_column, mat->tensor, &column, beta, alpha, 2};
    return finish_new(multiply(__func__, &product), out, ret_tensor);
}

/* Computes out = beta * addend, the result of a sum over no matrices. */
static AOTITorchError scale_addend(const char *function, struct shim_tensor *out, struct shim_tensor *addend,
                                   double beta)
{
    struct shim_tensor left, right;
    view_matrix(&left, out, 0, out->sizes[0], 1, 0, 1);
    view_matrix(&right, out, 0, 0, 1, out->sizes[1], 1);
    const struct product product = {out, addend, &left, &right, beta, 1, 2};
    return multiply(function, &product);
}

static AOTITorchError sum_batches(const char *function, struct shim_tensor *out, struct shim_tensor *addend,
                                  const struct shim_tensor *a, const struct shim_tensor *b, double beta, double alpha)
{
    if (a->sizes[0] == 0)
        return scale_addend(function, out, addend, beta);
    for (int64_t i = 0; i < a->sizes[0]; i++) {
        struct shim_tensor left, right;
        view_matrix(&left, a, i * a->strides[0], a->sizes[1], a->strides[1], a->sizes[2], a->strides[2]);
        view_matrix(&right, b, i * b->strides[0], b->sizes[1], b->strides[1], b->sizes[2], b->strides[2]);
        const struct product product = {out, i == 0 ? addend : out, &left, &right, i == 0 ? beta : 1, alpha, 2};
        if (multiply(function, &product) != SHIM_SUCCESS)
            return SHIM_FAILURE;
    }
    return SHIM_SUCCESS;
}

AOTITorchError aoti_torch_cpu_addbmm(AtenTensorHandle self, AtenTensorHandle batch1, AtenTensorHandle batch2,
                                     double beta, double alpha, AtenTensorHandle *ret_tensor)
{
    SHIM_CHECK_TENSOR(self);
    SHIM_CHECK_TENSOR(batch1);
    SHIM_CHECK_TENSOR(batch2);
    SHIM_CHECK_RESULT(ret_tensor);
    const struct shim_tensor *a = batch1->tensor, *b = batch2->tensor;
    if (a->ndim != 3 || b->ndim != 3 || a->sizes[0] != b->sizes[0])
        return aoticache_shim_fail("%s: two batches with the same number of matrices are needed; these have %d "
                                   "and %d dimensions",
                                   __func__, (int)a->ndim, (int)b->ndim);
    const int64_t sizes[] = {a->sizes[1], b->sizes[2]}, strides[] = {b->sizes[2] > 1 ? b->sizes[2] : 1, 1};
    AtenTensorHandle out;
    if (aoticache_shim_tensor_empty(__func__, 2, sizes, strides, a->dtype, &out) != SHIM_SUCCESS)
        return SHIM_FAILURE;
    return finish_new(sum_batches(__func__, out->tensor, self->tensor, a, b, beta, alpha), out, ret_tensor);
}

/* ---- batches of matrices ---- */

AOTITorchError aoticache_shim_common_batch(const char *function, const struct shim_tensor *a,
                                           const struct shim_tensor *b, int *ret_ndim, int64_t *ret_batch)
{
    int ndim = (a->ndim > b->ndim ? a->ndim : b->ndim) - 2;
    for (int d = 0; d < ndim; d++) {
        int a_at = d - (ndim + 2 - a->ndim), b_at = d - (ndim + 2 - b->ndim);
        int64_t a_size = a_at < 0 ? 1 : a->sizes[a_at], b_size = b_at < 0 ? 1 : b->sizes[b_at];
        if (a_size != b_size && a_size != 1 && b_size != 1)
            return aoticache_shim_fail("%s: batches of %lld and %lld do not match", function, (long long)a_size,
                                       (long long)b_size);
        ret_batch[d] = a_size == 1 ? b_size : a_size;
    }
    *ret_ndim = ndim + 2;
    return SHIM_SUCCESS;
}
