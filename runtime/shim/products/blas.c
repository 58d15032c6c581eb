/*
 * shim/products/blas: multiplies large matrices with the machine's BLAS, if it has one: directly on the operands' memory if
 * they have a layout that BLAS accepts, otherwise block by block through converted copies (16-bit numbers, strides in
 * both dimensions).
 *
 * The library (OpenBLAS unless the build says otherwise: BLAS_LIBRARY in the Makefile) is never linked. It costs
 * megabytes and starts threads when it is loaded, so it is loaded, once, by the first multiplication large enough to
 * gain from it, with local symbols: they do not collide with those of a PyTorch that is imported later. Without it, and
 * for small matrices and integers, matmul_block.c does the work. It uses no threads of its own: the work is split among
 * those of OpenMP (threads.c).
 */
#include "runtime/shim/math/onednn.h"
#include "runtime/shim/operators.h"

#include "base/process/fork_guard.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#ifndef AOTICACHE_BLAS_LIBRARY
#define AOTICACHE_BLAS_LIBRARY ""
#endif

/*
 * From this many multiplications on, all batches together, the library is used: 40 cubed, at which it is three times as
 * fast as matmul_block.c. Smaller matrices take a few microseconds either way, while loading it takes 5 milliseconds
 * and 2.5 megabytes. Below 4 rows, columns or steps both are bound by memory.
 */
enum { BLAS_MIN_PRODUCTS = 64000, BLAS_MIN_SIDE = 8 };

/* Parts of a matrix begin at multiples of this many rows or columns, and have at least as many. */
enum { PART_LINES = 16 };

/* Sizes of the blocks of converted values, in values: 14 MB of floats, less for smaller operands. */
enum { VALUES_ROWS = 512, VALUES_COLUMNS = 2048, VALUES_DEPTH = 1024 };

enum { CBLAS_ROW_MAJOR = 101, CBLAS_NO_TRANS = 111, CBLAS_TRANS = 112 };

/* A matrix in the library's form, stored by rows. */
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

typedef void (*gemm_float)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const void *a,
                           int lda, const void *b, int ldb, float beta, void *c, int ldc);
typedef void (*gemm_double)(int order, int transpose_a, int transpose_b, int m, int n, int k, double alpha,
                            const void *a, int lda, const void *b, int ldb, double beta, void *c, int ldc);
typedef void (*gemm_complex)(int order, int transpose_a, int transpose_b, int m, int n, int k, const void *alpha,
                             const void *a, int lda, const void *b, int ldb, const void *beta, void *c, int ldc);

/* The functions of the library; all are NULL if there is none. */
static struct {
    gemm_float floats;
    gemm_double doubles;
    gemm_complex complexes64, complexes128;
    void *library;
    bool uses_one_thread; /* for a part of a matrix: so matrices are split here */
    bool is_openmp;       /* would wait in the child of a fork for threads that do not exist */
} blas;
static pthread_once_t blas_once = PTHREAD_ONCE_INIT;

/* The values of openblas_get_parallel(). */
enum { PARALLEL_NONE = 0, PARALLEL_THREADS = 1, PARALLEL_OPENMP = 2 };

/*
 * Makes the library use one thread. An OpenBLAS with its own threads would have a second pool in addition to OpenMP's
 * (threads.c), so it is set to one. If other code of the process has loaded it, its number of threads is left alone. An
 * OpenBLAS built on OpenMP uses one thread inside of a parallel region, in which parts run. Nothing is known about
 * other libraries, and they are left alone.
 */
static bool make_single(void *library, bool is_ours)
{
    void *const symbols[] = {dlsym(library, "openblas_get_parallel"), dlsym(library, "openblas_set_num_threads"),
                             dlsym(library, "openblas_get_num_threads")};
    int (*get_parallel)(void), (*get_threads)(void);
    void (*set_threads)(int);
    if (symbols[0] == NULL || symbols[1] == NULL || symbols[2] == NULL || !aoticache_shim_has_threads())
        return false;
    memcpy(&get_parallel, &symbols[0], sizeof get_parallel);
    memcpy(&set_threads, &symbols[1], sizeof set_threads);
    memcpy(&get_threads, &symbols[2], sizeof get_threads);
    blas.is_openmp = get_parallel() == PARALLEL_OPENMP;
    if (blas.is_openmp)
        return true;
    if (get_parallel() == PARALLEL_THREADS && is_ours)
        set_threads(1);
    return get_parallel() == PARALLEL_NONE || get_threads() == 1;
}

static void bind_library(void)
{
    if (AOTICACHE_BLAS_LIBRARY[0] == '\0')
        return;
    void *others = dlopen(AOTICACHE_BLAS_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    void *library = others != NULL ? others : dlopen(AOTICACHE_BLAS_LIBRARY, RTLD_NOW | RTLD_LOCAL);
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
    blas.uses_one_thread = make_single(library, others == NULL);
    blas.library = library;
    memcpy(&blas.floats, &symbols[0], sizeof blas.floats);
    memcpy(&blas.doubles, &symbols[1], sizeof blas.doubles);
    memcpy(&blas.complexes64, &symbols[2], sizeof blas.complexes64);
    memcpy(&blas.complexes128, &symbols[3], sizeof blas.complexes128);
}

static void load_library(void)
{
    aoticache_fork_guard_enter();
    bind_library();
    aoticache_fork_guard_leave();
}

void *aoticache_shim_blas_library(void)
{
    pthread_once(&blas_once, load_library);
    return blas.is_openmp && aoticache_shim_is_forked() ? NULL : blas.library;
}

/* The library that multiplies in one call. */
struct multiplier {
    enum shim_class kind;
    const struct onednn_library *onednn; /* NULL: the BLAS is used */
};

/*
 * Returns oneDNN for floats on processors with AVX-512: there it takes 0.6 to 0.9 of the time of OpenBLAS 0.3.21, above
 * all if the second matrix is stored by columns, as weights are, or the first has few rows. With AVX2 both take the
 * same time.
 */
static const struct onednn_library *find_onednn(enum shim_class kind)
{
    return kind == SHIM_CLASS_FLOAT && shim_has_avx512() ? aoticache_shim_onednn() : NULL;
}

/* Finds the library. False: there is none for these numbers. */
static bool find_multiplier(enum shim_class kind, struct multiplier *ret_multiplier)
{
    if (kind < SHIM_CLASS_FLOAT || kind > SHIM_CLASS_COMPLEX128)
        return false;
    *ret_multiplier = (struct multiplier){kind, find_onednn(kind)};
    return ret_multiplier->onednn != NULL || aoticache_shim_blas_library() != NULL;
}

/* Multiplies with oneDNN. False: it had no memory, and nothing was written. */
static bool multiply_by_onednn(const struct onednn_library *onednn, const struct blas_product *product)
{
    const struct blas_operand *a = &product->a, *b = &product->b, *out = &product->out;
    return onednn->sgemm(a->transpose == CBLAS_TRANS ? 'T' : 'N', b->transpose == CBLAS_TRANS ? 'T' : 'N',
                         product->rows, product->columns, product->depth, (float)product->alpha, a->data, a->leading,
                         b->data, b->leading, (float)product->beta, out->data, out->leading) == 0;
}

/* Multiplies floats without allocating memory. */
static void multiply_plainly(const struct blas_product *product)
{
    const struct blas_operand *a = &product->a, *b = &product->b, *out = &product->out;
    const float *x = a->data, *y = b->data, alpha = (float)product->alpha, beta = (float)product->beta;
    for (ptrdiff_t i = 0; i < product->rows; i++) {
        float *row = (float *)out->data + i * out->leading;
        for (ptrdiff_t j = 0; j < product->columns; j++) {
            float sum = 0;
            for (ptrdiff_t k = 0; k < product->depth; k++)
                sum += x[a->transpose == CBLAS_TRANS ? k * a->leading + i : i * a->leading + k] *
                       y[b->transpose == CBLAS_TRANS ? j * b->leading + k : k * b->leading + j];
            row[j] = alpha * sum + (beta != 0 ? beta * row[j] : 0); /* row[j] may be NaN */
        }
    }
}

/* Calls the library. The factors of complex products are real. */
static void multiply(const struct multiplier *by, const struct blas_product *product)
{
    const enum shim_class kind = by->kind;
    if (by->onednn != NULL) {
        if (!multiply_by_onednn(by->onednn, product))
            multiply_plainly(product);
        return;
    }
    const struct blas_operand *a = &product->a, *b = &product->b, *out = &product->out;
    const float alpha_floats[2] = {(float)product->alpha, 0}, beta_floats[2] = {(float)product->beta, 0};
    const double alpha_doubles[2] = {product->alpha, 0}, beta_doubles[2] = {product->beta, 0};
    int m = product->rows, n = product->columns, k = product->depth;
    if (kind == SHIM_CLASS_FLOAT)
        blas.floats(CBLAS_ROW_MAJOR, a->transpose, b->transpose, m, n, k, alpha_floats[0], a->data, a->leading, b->data,
                    b->leading, beta_floats[0], out->data, out->leading);
    else if (kind == SHIM_CLASS_DOUBLE)
        blas.doubles(CBLAS_ROW_MAJOR, a->transpose, b->transpose, m, n, k, product->alpha, a->data, a->leading, b->data,
                     b->leading, product->beta, out->data, out->leading);
    else if (kind == SHIM_CLASS_COMPLEX64)
        blas.complexes64(CBLAS_ROW_MAJOR, a->transpose, b->transpose, m, n, k, alpha_floats, a->data, a->leading,
                         b->data, b->leading, beta_floats, out->data, out->leading);
    else
        blas.complexes128(CBLAS_ROW_MAJOR, a->transpose, b->transpose, m, n, k, alpha_doubles, a->data, a->leading,
                          b->data, b->leading, beta_doubles, out->data, out->leading);
}

/* ---- directly on the operands' memory ---- */

/*
 * Returns true if BLAS accepts lines of `length` elements that are `stride` bytes apart; a single line is always
 * accepted.
 */
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

/* Swaps the operands: (a b) transposed is b transposed times a transposed. */
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

static bool describe_product(const struct matmul_problem *problem, struct blas_product *product)
{
    ptrdiff_t item_bytes = (ptrdiff_t)problem->arithmetic->value_bytes;
    return describe_operand(&problem->a, problem->rows, problem->depth, item_bytes, &product->a) &&
           describe_operand(&problem->b, problem->depth, problem->columns, item_bytes, &product->b) &&
           describe_operand(&problem->out, problem->rows, problem->columns, item_bytes, &product->out);
}

/* Returns whether all matrices have layouts that BLAS accepts. Then parts of their rows or columns have, too. */
static bool lies_as_wanted(const struct matmul_problem *problem)
{
    struct blas_product product;
    return problem->item_bytes == problem->arithmetic->value_bytes && describe_product(problem, &product);
}

static void run_directly(const struct matmul_problem *problem, const struct multiplier *by)
{
    struct blas_product product = {.rows = (int)problem->rows,
                                   .columns = (int)problem->columns,
                                   .depth = (int)problem->depth,
                                   .alpha = problem->alpha,
                                   .beta = problem->addend.data != NULL ? problem->beta : 0};
    if (!describe_product(problem, &product))
        return;
    aoticache_shim_matmul_place_addend(problem);
    if (product.out.transpose == CBLAS_TRANS)
        transpose_product(&product);
    multiply(by, &product);
}

/* ---- through converted values ---- */

static int at_most(int64_t value, int limit)
{
    return value < limit ? (int)value : limit;
}

/* Reads a block of a matrix as values, by rows or by columns, whichever are closer together in memory. */
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

static void run_block(const struct matmul_problem *problem, const struct multiplier *by,
                      const struct values_workspace *values, int64_t row, int64_t column)
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
        multiply(by, &product);
    }
    for (int64_t j = 0; j < product.columns; j += MATMUL_BLOCK_COLUMNS)
        aoticache_shim_matmul_write(problem, values->tile + j * (ptrdiff_t)problem->arithmetic->value_bytes,
                                    product.columns, row, product.rows, column + j,
                                    at_most(product.columns - j, MATMUL_BLOCK_COLUMNS));
}

static size_t values_bytes(const struct matmul_problem *problem)
{
    size_t rows = (size_t)at_most(problem->rows, VALUES_ROWS);
    size_t columns = (size_t)at_most(problem->columns, VALUES_COLUMNS);
    size_t depth = (size_t)at_most(problem->depth, VALUES_DEPTH);
    return (rows * depth + depth * columns + rows * columns) * problem->arithmetic->value_bytes;
}

static void run_through_values(const struct matmul_problem *problem, const struct multiplier *by, char *memory)
{
    size_t rows = (size_t)at_most(problem->rows, VALUES_ROWS);
    size_t columns = (size_t)at_most(problem->columns, VALUES_COLUMNS);
    size_t depth = (size_t)at_most(problem->depth, VALUES_DEPTH), value_bytes = problem->arithmetic->value_bytes;
    struct values_workspace values = {.a = memory, .b = memory + rows * depth * value_bytes};
    values.tile = values.b + depth * columns * value_bytes;
    for (int64_t column = 0; column < problem->columns; column += VALUES_COLUMNS)
        for (int64_t row = 0; row < problem->rows; row += VALUES_ROWS)
            run_block(problem, by, &values, row, column);
}

/* ---- in parts ---- */

struct parts {
    const struct matmul_problem *problem;
    const struct multiplier *by;
    int count;
    char *memory; /* NULL: not needed; otherwise `bytes` for each part */
    size_t step;
};

/* Returns the line at which a part begins: a multiple of the lines that the library computes together. */
static int64_t first_of(int64_t size, int part, int count)
{
    return part == count ? size : size / count * part / PART_LINES * PART_LINES;
}

static void run_part(void *user, int part)
{
    const struct parts *parts = user;
    struct matmul_problem problem = *parts->problem;
    bool by_columns = problem.columns >= problem.rows;
    int64_t size = by_columns ? problem.columns : problem.rows;
    int64_t first = first_of(size, part, parts->count), end = first_of(size, part + 1, parts->count);
    if (first == end)
        return;
    *(by_columns ? &problem.columns : &problem.rows) = end - first;
    struct matmul_matrix *operand = by_columns ? &problem.b : &problem.a;
    operand->data += first * (by_columns ? operand->column_stride : operand->row_stride);
    problem.out.data += first * (by_columns ? problem.out.column_stride : problem.out.row_stride);
    if (problem.addend.data != NULL)
        problem.addend.data += first * (by_columns ? problem.addend.column_stride : problem.addend.row_stride);
    if (parts->memory == NULL)
        run_directly(&problem, parts->by);
    else
        run_through_values(&problem, parts->by, parts->memory + (size_t)part * parts->step);
}

/* Returns the bytes that the largest part needs for its values. */
static size_t part_bytes(const struct parts *parts)
{
    struct matmul_problem part = *parts->problem;
    int64_t *lines = part.columns >= part.rows ? &part.columns : &part.rows;
    if (parts->count > 1)
        *lines = at_most(*lines, (int)at_most(*lines / parts->count + 2 * parts->count + PART_LINES, INT_MAX));
    return values_bytes(&part);
}

/* Runs everything on this thread: oneDNN would use all threads of OpenMP. */
static void run_alone(struct parts *parts)
{
    int former = parts->by->onednn != NULL ? aoticache_shim_set_threads(1) : 0;
    run_part(parts, 0);
    if (parts->by->onednn != NULL)
        aoticache_shim_set_threads(former);
}

static bool run_parts(const struct matmul_problem *problem, const struct multiplier *by, bool directly)
{
    int64_t lines = problem->columns >= problem->rows ? problem->columns : problem->rows;
    double work = (double)problem->rows * (double)problem->columns * (double)problem->depth;
    struct parts parts = {.problem = problem, .by = by, .count = 1};
    if (by->onednn != NULL || blas.uses_one_thread)
        parts.count = aoticache_shim_parts(work, lines / PART_LINES);
    size_t bytes = 0;
    if (!directly) {
        parts.step = part_bytes(&parts);
        parts.memory = aoticache_shim_large_take(parts.step * (size_t)parts.count, &bytes);
        if (parts.memory == NULL) /* matmul_block.c needs less */
            return false;
    }
    if (parts.count > 1)
        aoticache_shim_parallel(parts.count, run_part, &parts);
    else
        run_alone(&parts);
    aoticache_shim_large_give(parts.memory, bytes);
    return true;
}

/* ---- before the first multiplication ---- */

void torch_aoticache_prepare_products(void)
{
    enum { ROWS = 16, SIDE = 512 }; /* sizes that matmul_panels.c does not handle */
    const struct onednn_library *onednn = find_onednn(SHIM_CLASS_FLOAT);
    if (onednn == NULL) {
        (void)aoticache_shim_blas_library();
        return;
    }
    float *values = calloc((size_t)(2 * ROWS + SIDE) * SIDE, sizeof *values);
    if (values == NULL)
        return;
    struct blas_product product = {.rows = ROWS, .columns = SIDE, .depth = SIDE, .alpha = 1};
    product.a = (struct blas_operand){values, SIDE, CBLAS_NO_TRANS};
    product.b = (struct blas_operand){values + ROWS * SIDE, SIDE, CBLAS_TRANS};
    product.out = (struct blas_operand){values + (ROWS + SIDE) * SIDE, SIDE, CBLAS_NO_TRANS};
    int former = aoticache_shim_set_threads(1);
    (void)multiply_by_onednn(onednn, &product); /* as a linear layer */
    product.b.transpose = CBLAS_NO_TRANS;
    (void)multiply_by_onednn(onednn, &product);
    aoticache_shim_set_threads(former);
    free(values);
}

/* ---- the decision ---- */

static bool is_large(const struct matmul_problem *problem)
{
    const int64_t batches = problem->batches > 1 ? problem->batches : 1;
    int64_t products, one, all;
    if (problem->rows < BLAS_MIN_SIDE || problem->columns < BLAS_MIN_SIDE || problem->depth < BLAS_MIN_SIDE)
        return false;
    return __builtin_mul_overflow(problem->rows, problem->columns, &products) ||
           __builtin_mul_overflow(products, problem->depth, &one) || __builtin_mul_overflow(one, batches, &all) ||
           all >= BLAS_MIN_PRODUCTS;
}

/* Multiplies with the library. False: nothing was written, and the caller must multiply. */
static bool run_by_library(const struct matmul_problem *problem)
{
    struct multiplier by;
    if (!is_large(problem) || problem->rows > INT_MAX || problem->columns > INT_MAX || problem->depth > INT_MAX)
        return false;
    return find_multiplier((enum shim_class)problem->access->load_class, &by) &&
           run_parts(problem, &by, lies_as_wanted(problem));
}

bool aoticache_shim_matmul(const struct matmul_problem *problem)
{
    enum { SMALL = 16384 };
    _Alignas(64) char small[SMALL];
    if (aoticache_shim_matmul_panels(problem) || aoticache_shim_onednn_multiply(problem, false) ||
        run_by_library(problem) || aoticache_shim_matmul_vectors(problem))
        return true;
    size_t bytes = aoticache_shim_matmul_workspace_bytes(problem);
    void *workspace = bytes > SMALL ? aoticache_shim_large_take(bytes, &bytes) : small;
    if (workspace == NULL)
        return false;
    aoticache_shim_matmul_run(problem, workspace);
    if (workspace != small)
        aoticache_shim_large_give(workspace, bytes);
    return true;
}
