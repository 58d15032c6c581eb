/*
 * shim/products/matmul_vector: multiplies by a vector, or by up to seven of them: the other matrix is read in place, only
 * once from memory. Such multiplications are bound by memory, and packing the matrix, here or in a BLAS, would double
 * the cost.
 *
 * For float and double matrices that are contiguous in one dimension. The innermost loops are those of attention.
 */
#include "runtime/shim/math/math_internal.h"

#include <stdatomic.h>
#include <string.h>

enum { MOST_ROWS = 7, SMALL_DEPTH_BYTES = 8192, FEW_COLUMNS = 16 };

struct vectors {
    const struct matmul_problem *problem;
    struct attention_arithmetic arithmetic;
    const char *rows; /* of a, as contiguous values */
    _Atomic int64_t next;
};

/* Swaps the operands: (a b) transposed is b transposed times a transposed. */
static struct matmul_problem transpose(const struct matmul_problem *problem)
{
    struct matmul_problem turned = *problem;
    const struct matmul_matrix *from[] = {&problem->b, &problem->a, &problem->addend, &problem->out};
    struct matmul_matrix *to[] = {&turned.a, &turned.b, &turned.addend, &turned.out};
    for (int i = 0; i < 4; i++)
        *to[i] = (struct matmul_matrix){from[i]->data, from[i]->column_stride, from[i]->row_stride};
    turned.rows = problem->columns;
    turned.columns = problem->rows;
    return turned;
}

static void make_columns(void *user, int part)
{
    struct vectors *v = user;
    const struct matmul_problem *problem = v->problem;
    const ptrdiff_t value_bytes = (ptrdiff_t)problem->arithmetic->value_bytes;
    _Alignas(64) double sums[MATMUL_BLOCK_COLUMNS];
    /* Few enough columns stay in the first-level cache from one row to the next. */
    const int64_t step = problem->rows > 1 ? FEW_COLUMNS : MATMUL_BLOCK_COLUMNS;
    (void)part;
    for (int64_t first; (first = atomic_fetch_add(&v->next, step)) < problem->columns;) {
        int64_t count = problem->columns - first;
        count = count < step ? count : step;
        const char *b = problem->b.data + first * problem->b.column_stride;
        for (int64_t row = 0; row < problem->rows; row++) {
            const char *vector = v->rows + row * problem->depth * value_bytes;
            if (problem->b.row_stride == value_bytes) {
                v->arithmetic.score(count, problem->depth, vector, b, problem->b.column_stride, sums);
            } else {
                memset(sums, 0, sizeof sums);
                v->arithmetic.add(problem->depth, count, vector, b, problem->b.row_stride, sums);
            }
            aoticache_shim_matmul_write(problem, (char *)sums, MATMUL_BLOCK_COLUMNS, row, 1, first, count);
        }
    }
}

bool aoticache_shim_matmul_vectors(const struct matmul_problem *problem)
{
    _Alignas(64) char small[SMALL_DEPTH_BYTES];
    enum shim_class kind = (enum shim_class)problem->access->load_class;
    const ptrdiff_t value_bytes = (ptrdiff_t)problem->arithmetic->value_bytes;
    struct matmul_problem turned;
    if ((kind != SHIM_CLASS_FLOAT && kind != SHIM_CLASS_DOUBLE) ||
        problem->item_bytes != problem->arithmetic->value_bytes)
        return false;
    if (problem->rows > MOST_ROWS && problem->columns <= MOST_ROWS) {
        turned = transpose(problem);
        problem = &turned;
    }
    if (problem->rows > MOST_ROWS || problem->depth < 1 ||
        (problem->b.row_stride != value_bytes && problem->b.column_stride != value_bytes))
        return false;
    size_t bytes = (size_t)(problem->rows * problem->depth * value_bytes);
    char *rows = bytes <= sizeof small ? small : malloc(bytes);
    if (rows == NULL) /* matmul_block.c needs less */
        return false;
    for (int64_t row = 0; row < problem->rows; row++)
        problem->access->load((size_t)problem->depth, rows + row * problem->depth * value_bytes,
                              problem->a.data + row * problem->a.row_stride, problem->a.column_stride);
    struct vectors v = {.problem = problem, .arithmetic = aoticache_shim_attention_arithmetic(kind), .rows = rows};
    double work = (double)problem->rows * (double)problem->columns * (double)problem->depth;
    aoticache_shim_parallel(aoticache_shim_parts(work, problem->columns / MATMUL_BLOCK_COLUMNS + 1), make_columns, &v);
    if (rows != small)
        free(rows);
    return true;
}
