/*
 * shim/products/onednn_matmul: matrix multiplication of bfloat16 and of bytes with oneDNN, on processors with AVX-512.
 *
 * oneDNN uses the processor's tiles (AMX) or its instructions for bfloat16 and bytes (VNNI), if there are any: they
 * take a fifth to a thirtieth of the time of float or 16-bit multiplication. Its code for one shape takes 0.3 to 0.7
 * milliseconds to generate and is kept. Float matrices use its dnnl_sgemm() (blas.c), which is as fast, and faster if a
 * weight is stored by rows.
 */
#include "runtime/shim/math/onednn.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Fewer multiplications than these take a few microseconds either way. */
#define MIN_PRODUCTS 64000.0

/* out = a b + bias, or out += a b. Strides of matrices in bytes. */
struct product {
    int64_t rows, columns, depth;
    int a_type, b_type, bias_type, out_type;
    bool adds_output;
    struct matmul_matrix a, b, out;
    void *bias; /* a row; NULL: none */
};

/* A prepared multiplication. */
struct prepared {
    struct onednn_prepared common;
    struct onednn_step step;
    void *a, *b, *bias, *out; /* descriptors; bias may be NULL */
};

static void free_prepared(const struct onednn_library *onednn, struct onednn_prepared *common)
{
    struct prepared *p = (struct prepared *)common;
    aoticache_shim_onednn_free_step(onednn, &p->step);
    aoticache_shim_onednn_describe_free(p->a);
    aoticache_shim_onednn_describe_free(p->b);
    aoticache_shim_onednn_describe_free(p->bias);
    aoticache_shim_onednn_describe_free(p->out);
    free(p);
}

/* ---- which matrices ---- */

bool aoticache_shim_onednn_has_bfloat16(void)
{
    return shim_has_avx512() && aoticache_shim_onednn() != NULL;
}

bool aoticache_shim_onednn_has_bytes(void)
{
    /* Without VNNI two products of bytes are summed in 16 bits, and saturate. */
    return shim_has_avx512_vnni() && aoticache_shim_onednn() != NULL;
}

static ptrdiff_t bytes_of(int type)
{
    return type == ONEDNN_BFLOAT16 ? 2 : type == ONEDNN_INT8 || type == ONEDNN_UINT8 ? 1 : 4;
}

static bool lies_by_rows(const struct matmul_matrix *matrix, int64_t rows, int64_t columns, ptrdiff_t item)
{
    return matrix->column_stride == item &&
           (rows == 1 || (matrix->row_stride >= columns * item && matrix->row_stride % item == 0));
}

static bool lies_by_lines(const struct matmul_matrix *matrix, int64_t rows, int64_t columns, int type)
{
    const struct matmul_matrix turned = {matrix->data, matrix->column_stride, matrix->row_stride};
    return lies_by_rows(matrix, rows, columns, bytes_of(type)) || lies_by_rows(&turned, columns, rows, bytes_of(type));
}

static bool is_taken(const struct product *p)
{
    return p->rows < INT_MAX && p->columns < INT_MAX && p->depth < INT_MAX &&
           lies_by_rows(&p->out, p->rows, p->columns, bytes_of(p->out_type)) &&
           lies_by_lines(&p->a, p->rows, p->depth, p->a_type) && lies_by_lines(&p->b, p->depth, p->columns, p->b_type);
}

/* ---- making ---- */

/* Describes a matrix. The stride of a single row or column is arbitrary: it gets the most general one. */
static void *describe(const struct matmul_matrix *matrix, int64_t rows, int64_t columns, int type)
{
    const ptrdiff_t item = bytes_of(type);
    const int64_t sizes[] = {rows, columns};
    const bool by_rows = lies_by_rows(matrix, rows, columns, item);
    int64_t strides[] = {matrix->row_stride / item, matrix->column_stride / item};
    if (by_rows && rows == 1)
        strides[0] = columns;
    if (!by_rows && columns == 1)
        strides[1] = rows;
    return aoticache_shim_onednn_describe(2, sizes, type, strides);
}

static bool make(const struct onednn_library *onednn, const struct product *product, struct prepared *p)
{
    const struct matmul_matrix bias = {product->bias, 0, bytes_of(product->bias_type)};
    void *attributes = aoticache_shim_onednn_make_attributes(onednn, product->adds_output, NULL), *operation = NULL;
    p->a = describe(&product->a, product->rows, product->depth, product->a_type);
    p->b = describe(&product->b, product->depth, product->columns, product->b_type);
    p->out = describe(&product->out, product->rows, product->columns, product->out_type);
    if (product->bias != NULL)
        p->bias = describe(&bias, 1, product->columns, product->bias_type);
    bool made = attributes != NULL && p->a != NULL && p->b != NULL && p->out != NULL &&
                (product->bias == NULL || p->bias != NULL) &&
                aoticache_shim_onednn_describe_matmul(p->a, p->b, p->bias, p->out, attributes, &operation);
    if (made) {
        made = aoticache_shim_onednn_is_fast(onednn, operation);
        if (made)
            made = aoticache_shim_onednn_make_step(onednn, operation, &p->common, &p->step);
        else
            onednn->primitive_desc_destroy(operation);
    }
    if (attributes != NULL)
        onednn->primitive_attr_destroy(attributes);
    return made;
}

static struct prepared *prepare(const struct onednn_library *onednn, const struct product *product,
                                const struct onednn_key *key)
{
    struct prepared *p = (struct prepared *)aoticache_shim_onednn_begin(sizeof *p, key, free_prepared);
    if (p == NULL)
        return NULL;
    p->common.usable = make(onednn, product, p);
    return p;
}

static struct onednn_key key_of(const struct product *p, int threads)
{
    const int64_t numbers[] = {
        ONEDNN_KEY_MATMUL, threads,         p->rows,         p->columns,         p->depth,        p->a_type,
        p->b_type,         p->out_type,     p->a.row_stride, p->a.column_stride, p->b.row_stride, p->b.column_stride,
        p->out.row_stride, p->bias != NULL, p->adds_output};
    struct onednn_key key = {0};
    memcpy(key.numbers, numbers, sizeof numbers);
    return key;
}

/* ---- running ---- */

static bool run(const struct onednn_library *onednn, const struct prepared *p, const struct product *product)
{
    static const int names[] = {ONEDNN_SOURCE, ONEDNN_WEIGHTS, ONEDNN_DESTINATION, ONEDNN_BIAS};
    const void *const descriptors[] = {p->a, p->b, p->out, p->bias};
    void *const data[] = {product->a.data, product->b.data, product->out.data, product->bias};
    void *stream = NULL;
    size_t bytes = p->common.scratch_bytes;
    char *scratch = bytes > 0 ? aoticache_shim_large_take(bytes, &bytes) : NULL;
    bool done = (scratch != NULL || bytes == 0) && onednn->stream_create(&stream, onednn->engine, 1) == 0 &&
                aoticache_shim_onednn_run_step(onednn, &p->step, stream, scratch, p->bias != NULL ? 4 : 3, names,
                                               descriptors, data) &&
                onednn->stream_wait(stream) == 0;
    if (stream != NULL)
        onednn->stream_destroy(stream);
    aoticache_shim_large_give(scratch, bytes);
    return done;
}

/* Finds or prepares one, and adds a reference. NULL: oneDNN does not support it, or out of memory. */
static struct prepared *find_or_prepare(const struct onednn_library *onednn, const struct product *product, int threads)
{
    struct onednn_key key = key_of(product, threads);
    struct prepared *p = (struct prepared *)aoticache_shim_onednn_find(&key);
    if (p == NULL && (p = prepare(onednn, product, &key)) != NULL)
        aoticache_shim_onednn_keep(onednn, &p->common);
    if (p == NULL || p->common.usable)
        return p;
    aoticache_shim_onednn_unref(onednn, &p->common);
    return NULL;
}

/* Multiplies. problem: its addend is copied into the result first; NULL: none. */
static bool multiply(const struct product *product, const struct matmul_problem *problem)
{
    const struct onednn_library *onednn = aoticache_shim_onednn();
    if (onednn == NULL)
        return false;
    const double products = (double)product->rows * (double)product->columns * (double)product->depth;
    int threads = aoticache_shim_parts(products, INT_MAX), former = aoticache_shim_set_threads(threads);
    struct prepared *p = find_or_prepare(onednn, product, threads);
    bool done = p != NULL;
    if (done && problem != NULL)
        aoticache_shim_matmul_place_addend(problem);
    done = done && run(onednn, p, product);
    aoticache_shim_set_threads(former);
    aoticache_shim_onednn_unref(onednn, p != NULL ? &p->common : NULL);
    return done;
}

bool aoticache_shim_onednn_multiply(const struct matmul_problem *problem, bool to_float)
{
    const double products = (double)problem->rows * (double)problem->columns * (double)problem->depth;
    const bool is_bias =
        problem->addend.row_stride == 0 && problem->addend.column_stride == (ptrdiff_t)problem->item_bytes;
    const bool has_addend = problem->addend.data != NULL && !is_bias;
    const struct product product = {.rows = problem->rows,
                                    .columns = problem->columns,
                                    .depth = problem->depth,
                                    .a_type = ONEDNN_BFLOAT16,
                                    .b_type = ONEDNN_BFLOAT16,
                                    .bias_type = ONEDNN_BFLOAT16,
                                    .out_type = to_float ? ONEDNN_FLOAT32 : ONEDNN_BFLOAT16,
                                    .adds_output = has_addend,
                                    .a = problem->a,
                                    .b = problem->b,
                                    .out = problem->out,
                                    .bias = is_bias ? problem->addend.data : NULL};
    return problem->access == aoticache_shim_dtype_access(AOTICACHE_DTYPE_BFLOAT16) &&
           products * (problem->batches > 1 ? (double)problem->batches : 1) >= MIN_PRODUCTS && problem->alpha == 1 &&
           (problem->addend.data == NULL || problem->beta == 1) && is_taken(&product) && shim_has_avx512() &&
           multiply(&product, has_addend ? problem : NULL);
}

static struct product product_of_bytes(int64_t rows, int64_t columns, int64_t depth, bool is_unsigned, const void *a,
                                       const int8_t *b, int32_t *sums)
{
    return (struct product){.rows = rows,
                            .columns = columns,
                            .depth = depth,
                            .a_type = is_unsigned ? ONEDNN_UINT8 : ONEDNN_INT8,
                            .b_type = ONEDNN_INT8,
                            .out_type = ONEDNN_INT32,
                            .a = {(char *)(uintptr_t)a, depth, 1},
                            .b = {(char *)(uintptr_t)b, 1, depth},
                            .out = {(char *)sums, columns * (ptrdiff_t)sizeof *sums, sizeof *sums}};
}

static bool is_taken_of_bytes(const struct product *p)
{
    return (double)p->rows * (double)p->columns * (double)p->depth >= MIN_PRODUCTS && is_taken(p) &&
           shim_has_avx512_vnni();
}

bool aoticache_shim_onednn_multiply_bytes(int64_t rows, int64_t columns, int64_t depth, bool is_unsigned, const void *a,
                                          const int8_t *b, int32_t *sums)
{
    const struct product product = product_of_bytes(rows, columns, depth, is_unsigned, a, b, sums);
    return is_taken_of_bytes(&product) && multiply(&product, NULL);
}

bool aoticache_shim_onednn_prepare_bytes(int64_t rows, int64_t columns, int64_t depth, bool is_unsigned)
{
    const struct product product = product_of_bytes(rows, columns, depth, is_unsigned, NULL, NULL, NULL);
    const struct onednn_library *onednn = is_taken_of_bytes(&product) ? aoticache_shim_onednn() : NULL;
    if (onednn == NULL)
        return false;
    int former = aoticache_shim_set_threads(1);
    struct prepared *p = find_or_prepare(onednn, &product, 1);
    aoticache_shim_set_threads(former);
    aoticache_shim_onednn_unref(onednn, p != NULL ? &p->common : NULL);
    return p != NULL;
}
