/*
 * shim/blas: finds the library, decides which products go to it, and how: directly on the operands' memory where they
 * lie as BLAS wants them, else block by block through values (16-bit numbers, strides in both dimensions).
 */
#include "runtime/shim/blas.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>

#include "base/load_gate.h"

#ifndef AOTICACHE_BLAS_LIBRARY
#define AOTICACHE_BLAS_LIBRARY ""
#endif

/*
 * Multiplications from which the library is asked: 40 cubed, where it is three times as fast as matmul_block.c. Smaller
 * products take a few microseconds either way, while loading it takes 5 milliseconds and 2.5 megabytes. Below 4 rows,
 * columns or steps both are bound by memory.
 */
enum { BLAS_MIN_PRODUCTS = 64000, BLAS_MIN_SIDE = 4 };

/* Blocks of the walk through values, in values: 14 MB of floats, less where the operands have less. */
enum { VALUES_ROWS = 512, VALUES_COLUMNS = 2048, VALUES_DEPTH = 1024 };

enum { CBLAS_ROW_MAJOR = 101, CBLAS_NO_TRANS = 111, CBLAS_TRANS = 112 };

/* A matrix as the library takes it, row by row. */
struct blas_operand {
    void *data;
    int leading;
    int transpose;
};

struct blas_product {
    int rows, columns, depth;
    struct blas_operand a, b, out;
    double alpha, beta;
};

typedef void (*gemm_float)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                           const void *a, int lda, const void *b, int ldb, float beta, void *c, int ldc);
typedef void (*gemm_double)(int order, int transpose_a, int transpose_b, int m, int n, int k, double alpha,
                            const void *a, int lda, const void *b, int ldb, double beta, void *c, int ldc);
typedef void (*gemm_complex)(int order, int transpose_a, int transpose_b, int m, int n, int k, const void *alpha,
                             const void *a, int lda, const void *b, int ldb, const void *beta, void *c, int ldc);

/* All NULL: there is no library. */
static struct {
    gemm_float floats;
    gemm_double doubles;
    gemm_complex complexes64, complexes128;
} blas;
static pthread_once_t blas_once = PTHREAD_ONCE_INIT;

static void bind_library(void)
{
    void *library = AOTICACHE_BLAS_LIBRARY[0] != '\0' ? dlopen(AOTICACHE_BLAS_LIBRARY, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL)
        return;
    void *const symbols[] = {dlsym(library, "cblas_sgemm"), dlsym(library, "cblas_dgemm"),
                             dlsym(library, "cblas_cgemm"), dlsym(library, "cblas_zgemm")};
    for (int i = 0; i < 4; i++) {
        if (symbols[i] == NULL) {
            dlclose(library);
            return;
        }
    }
    memcpy(&blas.floats, &symbols[0], sizeof blas.floats);
    memcpy(&blas.doubles, &symbols[1], sizeof blas.doubles);
    memcpy(&blas.complexes64, &symbols[2], sizeof blas.complexes64);
    memcpy(&blas.complexes128, &symbols[3], sizeof blas.complexes128);
}

static void load_library(void)
{
    aoticache_load_gate_enter();
    bind_library();
    aoticache_load_gate_leave();
}

/* The factors of complex products are real. */
static void multiply(enum shim_class kind, const struct blas_product *product)
{
    const struct blas_operand *a = &product->a, *b = &product->b, *out = &product->out;
    const float alpha_floats[2] = {(float)product->alpha, 0}, beta_floats[2] = {(float)product->beta, 0};
    const double alpha_doubles[2] = {product->alpha, 0}, beta_doubles[2] = {product->beta, 0};
    int m = product->rows, n = product->columns, k = product->depth;
    if (kind == SHIM_CLASS_FLOAT)
        blas.floats(CBLAS_ROW_MAJOR, a->transpose, b->transpose, m, n, k, alpha_floats[0], a->data, a->leading, b->data,
                    b->leading, beta_floats[0], out->data, out->leading);
    else if (kind == SHIM_CLASS_DOUBLE)
        blas.doubles(CBLAS_ROW_MAJOR, a->transpose, b->transpose, m, n, k, product->alpha, a->data, a->leading,
                     b->data, b->leading, product->beta, out->data, out->leading);
    else if (kind == SHIM_CLASS_COMPLEX64)
        blas.complexes64(CBLAS_ROW_MAJOR, a->transpose, b->transpose, m, n, k, alpha_floats, a->data, a->leading,
                         b->data, b->leading, beta_floats, out->data, out->leading);
    else
        blas.complexes128(CBLAS_ROW_MAJOR, a->transpose, b->transpose, m, n, k, alpha_doubles, a->data, a->leading,
                          b->data, b->leading, beta_doubles, out->data, out->leading);
}

/* ---- directly on the operands' memory ---- */

/* Whether lines of `length` elements lie `stride` bytes apart; a single line may lie anywhere. */
static bool is_leading(ptrdiff_t stride, int64_t lines, int64_t length, ptrdiff_t item_bytes, int *ret_leading)
{
    if (lines > 1 && (stride % item_bytes != 0 || stride / item_bytes < length || stride / item_bytes > INT_MAX))
        return false;
    *ret_leading = (int)(lines > 1 ? stride / item_bytes : length);
    return true;
}

static bool describe_operand(const struct matmul_matrix *matrix, int64_t rows, int64_t columns, ptrdiff_t item_bytes,
                             struct blas_operand *ret_operand)
{
    *ret_operand = (struct blas_operand){matrix->data, 1, CBLAS_NO_TRANS};
    if ((matrix->column_stride == item_bytes || columns == 1) &&
        is_leading(matrix->row_stride, rows, columns, item_bytes, &ret_operand->leading))
        return true;
    ret_operand->transpose = CBLAS_TRANS;
    return (matrix->row_stride == item_bytes || rows == 1) &&
           is_leading(matrix->column_stride, columns, rows, item_bytes, &ret_operand->leading);
}

/* The other way round: (a b) transposed is b transposed times a transposed. */
static void transpose_product(struct blas_product *product)
{
    struct blas_operand a = product->a;
    int rows = product->rows;
    product->a = product->b;
    product->b = a;
    product->a.transpose = product->a.transpose == CBLAS_TRANS ? CBLAS_NO_TRANS : CBLAS_TRANS;
    product->b.transpose = product->b.transpose == CBLAS_TRANS ? CBLAS_NO_TRANS : CBLAS_TRANS;
    product->out.transpose = CBLAS_NO_TRANS;
    product->rows = product->columns;
    product->columns = rows;
}

/* The library adds to what is there, so the addend is put there first; often it is there already. */
static void place_addend(const struct matmul_problem *problem, ptrdiff_t item_bytes)
{
    const struct matmul_matrix *addend = &problem->addend, *out = &problem->out;
    const struct shim_conversion same = {.item_bytes = (uint32_t)item_bytes};
    if (addend->data == NULL || (addend->data == out->data && addend->row_stride == out->row_stride &&
                                 addend->column_stride == out->column_stride))
        return;
    for (int64_t i = 0; i < problem->rows; i++)
        aoticache_shim_convert_row(&same, (size_t)problem->columns, out->data + i * out->row_stride, out->column_stride,
                                   addend->data + i * addend->row_stride, addend->column_stride);
}

static bool run_directly(const struct matmul_problem *problem, enum shim_class kind)
{
    ptrdiff_t item_bytes = (ptrdiff_t)problem->arithmetic->value_bytes;
    struct blas_product product = {.rows = (int)problem->rows,
                                   .columns = (int)problem->columns,
                                   .depth = (int)problem->depth,
                                   .alpha = problem->alpha,
                                   .beta = problem->addend.data != NULL ? problem->beta : 0};
    if (!describe_operand(&problem->a, problem->rows, problem->depth, item_bytes, &product.a) ||
        !describe_operand(&problem->b, problem->depth, problem->columns, item_bytes, &product.b) ||
        !describe_operand(&problem->out, problem->rows, problem->columns, item_bytes, &product.out))
        return false;
    place_addend(problem, item_bytes);
    if (product.out.transpose == CBLAS_TRANS)
        transpose_product(&product);
    multiply(kind, &product);
    return true;
}

/* ---- through values ---- */

static int at_most(int64_t value, int limit)
{
    return value < limit ? (int)value : limit;
}

/* A block of a matrix as values, line after line in the order in which its elements lie closer together. */
static struct blas_operand load_block(const struct matmul_problem *problem, const struct matmul_matrix *matrix,
                                      int64_t row, int rows, int64_t column, int columns, char *values)
{
    ptrdiff_t value_bytes = (ptrdiff_t)problem->arithmetic->value_bytes;
    const char *first = matrix->data + row * matrix->row_stride + column * matrix->column_stride;
    bool by_rows = matrix->column_stride <= matrix->row_stride;
    int lines = by_rows ? rows : columns, length = by_rows ? columns : rows;
    ptrdiff_t line_stride = by_rows ? matrix->row_stride : matrix->column_stride;
    ptrdiff_t stride = by_rows ? matrix->column_stride : matrix->row_stride;
    for (int i = 0; i < lines; i++)
        problem->access->load((size_t)length, values + i * length * value_bytes, first + i * line_stride, stride);
    return (struct blas_operand){values, length, by_rows ? CBLAS_NO_TRANS : CBLAS_TRANS};
}

struct values_workspace {
    char *a, *b, *tile;
};

static void run_block(const struct matmul_problem *problem, enum shim_class kind, const struct values_workspace *values,
                      int64_t row, int64_t column)
{
    struct blas_product product = {.rows = at_most(problem->rows - row, VALUES_ROWS),
                                   .columns = at_most(problem->columns - column, VALUES_COLUMNS),
                                   .alpha = 1};
    product.out = (struct blas_operand){values->tile, product.columns, CBLAS_NO_TRANS};
    for (int64_t k = 0; k < problem->depth; k += VALUES_DEPTH) {
        product.depth = at_most(problem->depth - k, VALUES_DEPTH);
        product.a = load_block(problem, &problem->a, row, product.rows, k, product.depth, values->a);
        product.b = load_block(problem, &problem->b, k, product.depth, column, product.columns, values->b);
        product.beta = k > 0 ? 1 : 0;
        multiply(kind, &product);
    }
    for (int64_t j = 0; j < product.columns; j += MATMUL_BLOCK_COLUMNS)
        aoticache_shim_matmul_write(problem, values->tile + j * (ptrdiff_t)problem->arithmetic->value_bytes,
                                    product.columns, row, product.rows, column + j,
                                    at_most(product.columns - j, MATMUL_BLOCK_COLUMNS));
}

static bool run_through_values(const struct matmul_problem *problem, enum shim_class kind)
{
    size_t rows = (size_t)at_most(problem->rows, VALUES_ROWS);
    size_t columns = (size_t)at_most(problem->columns, VALUES_COLUMNS);
    size_t depth = (size_t)at_most(problem->depth, VALUES_DEPTH), value_bytes = problem->arithmetic->value_bytes;
    char *memory = malloc((rows * depth + depth * columns + rows * columns) * value_bytes);
    if (memory == NULL) /* the plain walk needs less */
        return false;
    struct values_workspace values = {.a = memory, .b = memory + rows * depth * value_bytes};
    values.tile = values.b + depth * columns * value_bytes;
    for (int64_t column = 0; column < problem->columns; column += VALUES_COLUMNS)
        for (int64_t row = 0; row < problem->rows; row += VALUES_ROWS)
            run_block(problem, kind, &values, row, column);
    free(memory);
    return true;
}

/* ---- the decision ---- */

static bool is_large(const struct matmul_problem *problem)
{
    int64_t products, all;
    if (problem->rows < BLAS_MIN_SIDE || problem->columns < BLAS_MIN_SIDE || problem->depth < BLAS_MIN_SIDE)
        return false;
    return __builtin_mul_overflow(problem->rows, problem->columns, &products) ||
           __builtin_mul_overflow(products, problem->depth, &all) || all >= BLAS_MIN_PRODUCTS;
}

bool aoticache_shim_blas_run(const struct matmul_problem *problem)
{
    enum shim_class kind = (enum shim_class)problem->access->load_class;
    if (kind < SHIM_CLASS_FLOAT || kind > SHIM_CLASS_COMPLEX128 || !is_large(problem))
        return false;
    if (problem->rows > INT_MAX || problem->columns > INT_MAX || problem->depth > INT_MAX)
        return false;
    pthread_once(&blas_once, load_library);
    if (blas.floats == NULL)
        return false;
    bool as_they_are = problem->item_bytes == problem->arithmetic->value_bytes;
    return (as_they_are && run_directly(problem, kind)) || run_through_values(problem, kind);
}
