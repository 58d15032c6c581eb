/*
 * shim/math/onednn_matmul: products of bfloat16 by oneDNN, on processors with AVX-512.
 *
 * It uses the processor's tiles (AMX) or products of bfloat16, where there are some: a fifth to an eighth of the time of
 * products in float. Its code for a product of one shape takes 0.3 to 0.7 milliseconds to make and is kept. Products of float
 * are its dnnl_sgemm()'s (blas.c), which is as fast, and faster where a weight lies row by row.
 */
#include "runtime/shim/math/onednn.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Fewer multiplications than these take a few microseconds either way. */
#define MIN_PRODUCTS 64000.0

/* A product that has been made once. */
struct prepared {
    struct onednn_prepared common;
    struct onednn_step product;
    void *a, *b, *bias, *out; /* descriptors; bias may be NULL */
};

static void free_prepared(const struct onednn_library *onednn, struct onednn_prepared *common)
{
    struct prepared *p = (struct prepared *)common;
    aoticache_shim_onednn_free_step(onednn, &p->product);
    aoticache_shim_onednn_describe_free(p->a);
    aoticache_shim_onednn_describe_free(p->b);
    aoticache_shim_onednn_describe_free(p->bias);
    aoticache_shim_onednn_describe_free(p->out);
    free(p);
}

/* ---- which products ---- */

static bool has_avx512(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

bool aoticache_shim_onednn_has_bfloat16(void)
{
    return has_avx512() && aoticache_shim_onednn() != NULL;
}

/* Row by row or column by column, with no overlap. */
static bool lies_by_lines(const struct matmul_matrix *matrix, int64_t rows, int64_t columns, ptrdiff_t item)
{
    return (matrix->column_stride == item && (rows == 1 || matrix->row_stride >= columns * item) &&
            matrix->row_stride % item == 0) ||
           (matrix->row_stride == item && (columns == 1 || matrix->column_stride >= rows * item) &&
            matrix->column_stride % item == 0);
}

static bool is_taken(const struct matmul_problem *p, ptrdiff_t out_item)
{
    const ptrdiff_t item = (ptrdiff_t)p->item_bytes;
    const double products = (double)p->rows * (double)p->columns * (double)p->depth;
    return p->access == aoticache_shim_dtype_access(AOTICACHE_DTYPE_BFLOAT16) &&
           products * (p->batches > 1 ? (double)p->batches : 1) >= MIN_PRODUCTS && p->rows < INT_MAX &&
           p->columns < INT_MAX && p->depth < INT_MAX && p->alpha == 1 && (p->addend.data == NULL || p->beta == 1) &&
           p->out.column_stride == out_item && lies_by_lines(&p->out, p->rows, p->columns, out_item) &&
           lies_by_lines(&p->a, p->rows, p->depth, item) && lies_by_lines(&p->b, p->depth, p->columns, item) &&
           has_avx512();
}

/* A row that is added to all rows; any other addend is put into the result first. */
static bool is_bias(const struct matmul_problem *p)
{
    return p->addend.data != NULL && p->addend.row_stride == 0 && p->addend.column_stride == (ptrdiff_t)p->item_bytes;
}

/* ---- making ---- */

/* A single row or column may lie anywhere: it gets the stride that says least. */
static void *describe(const struct matmul_matrix *matrix, int64_t rows, int64_t columns, int type)
{
    const ptrdiff_t item = type == ONEDNN_FLOAT32 ? sizeof(float) : sizeof(uint16_t);
    const int64_t sizes[] = {rows, columns};
    const bool by_rows = matrix->column_stride == item && (rows == 1 || matrix->row_stride >= columns * item);
    int64_t strides[] = {matrix->row_stride / item, matrix->column_stride / item};
    if (by_rows && rows == 1)
        strides[0] = columns;
    if (!by_rows && columns == 1)
        strides[1] = rows;
    return aoticache_shim_onednn_describe(2, sizes, type, strides);
}

static bool make(const struct onednn_library *onednn, const struct matmul_problem *problem, int out_type,
                 struct prepared *p)
{
    const int64_t bias_sizes[] = {1, problem->columns}, bias_strides[] = {problem->columns, 1};
    const bool has_bias = is_bias(problem), adds_output = problem->addend.data != NULL && !has_bias;
    void *attributes = aoticache_shim_onednn_make_attributes(onednn, adds_output, NULL), *operation = NULL;
    p->a = describe(&problem->a, problem->rows, problem->depth, ONEDNN_BFLOAT16);
    p->b = describe(&problem->b, problem->depth, problem->columns, ONEDNN_BFLOAT16);
    p->out = describe(&problem->out, problem->rows, problem->columns, out_type);
    if (has_bias)
        p->bias = aoticache_shim_onednn_describe(2, bias_sizes, ONEDNN_BFLOAT16, bias_strides);
    bool made = attributes != NULL && p->a != NULL && p->b != NULL && p->out != NULL &&
                (!has_bias || p->bias != NULL) &&
                aoticache_shim_onednn_describe_matmul(p->a, p->b, p->bias, p->out, attributes, &operation);
    if (made) {
        made = aoticache_shim_onednn_is_fast(onednn, operation);
        if (made)
            made = aoticache_shim_onednn_make_step(onednn, operation, &p->common, &p->product);
        else
            onednn->primitive_desc_destroy(operation);
    }
    if (attributes != NULL)
        onednn->primitive_attr_destroy(attributes);
    return made;
}

static struct prepared *prepare(const struct onednn_library *onednn, const struct matmul_problem *problem, int out_type,
                                const struct onednn_key *key)
{
    struct prepared *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->common.key = *key;
    p->common.free = free_prepared;
    atomic_init(&p->common.refs, 1);
    p->common.usable = make(onednn, problem, out_type, p);
    return p;
}

static struct onednn_key key_of(const struct matmul_problem *p, int out_type, int threads)
{
    const int64_t numbers[] = {ONEDNN_KEY_MATMUL, threads,
                               out_type,          p->rows,
                               p->columns,        p->depth,
                               p->a.row_stride,   p->a.column_stride,
                               p->b.row_stride,   p->b.column_stride,
                               p->out.row_stride, p->addend.data == NULL ? 0 : is_bias(p) ? 1 : 2};
    struct onednn_key key = {0};
    memcpy(key.numbers, numbers, sizeof numbers);
    return key;
}

/* ---- running ---- */

static bool run(const struct onednn_library *onednn, const struct prepared *p, const struct matmul_problem *problem)
{
    static const int names[] = {ONEDNN_SOURCE, ONEDNN_WEIGHTS, ONEDNN_DESTINATION, ONEDNN_BIAS};
    const void *const descriptors[] = {p->a, p->b, p->out, p->bias};
    void *const data[] = {problem->a.data, problem->b.data, problem->out.data, problem->addend.data};
    void *stream = NULL;
    size_t bytes = p->common.scratch_bytes;
    char *scratch = bytes > 0 ? aoticache_shim_large_take(bytes, &bytes) : NULL;
    bool done = (scratch != NULL || bytes == 0) && onednn->stream_create(&stream, onednn->engine, 1) == 0 &&
                aoticache_shim_onednn_run_step(onednn, &p->product, stream, scratch, p->bias != NULL ? 4 : 3, names,
                                               descriptors, data) &&
                onednn->stream_wait(stream) == 0;
    if (stream != NULL)
        onednn->stream_destroy(stream);
    aoticache_shim_large_give(scratch, bytes);
    return done;
}

bool aoticache_shim_onednn_multiply(const struct matmul_problem *problem, bool to_float)
{
    if (!is_taken(problem, to_float ? (ptrdiff_t)sizeof(float) : (ptrdiff_t)problem->item_bytes))
        return false;
    const int out_type = to_float ? ONEDNN_FLOAT32 : ONEDNN_BFLOAT16;
    const struct onednn_library *onednn = aoticache_shim_onednn();
    if (onednn == NULL)
        return false;
    const double products = (double)problem->rows * (double)problem->columns * (double)problem->depth;
    int threads = aoticache_shim_parts(products, INT_MAX), former = aoticache_shim_set_threads(threads);
    struct onednn_key key = key_of(problem, out_type, threads);
    struct prepared *p = (struct prepared *)aoticache_shim_onednn_find(&key);
    if (p == NULL && (p = prepare(onednn, problem, out_type, &key)) != NULL)
        aoticache_shim_onednn_keep(onednn, &p->common);
    bool done = p != NULL && p->common.usable;
    if (done && problem->addend.data != NULL && !is_bias(problem))
        aoticache_shim_matmul_place_addend(problem);
    done = done && run(onednn, p, problem);
    aoticache_shim_set_threads(former);
    aoticache_shim_onednn_unref(onednn, p != NULL ? &p->common : NULL);
    return done;
}
