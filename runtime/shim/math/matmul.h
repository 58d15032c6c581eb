/*
 * shim/matmul: products of matrices with any strides, blocked for the caches.
 *
 * matmul.c has the exported functions and their checks, matmul_block.c the walk over blocks, matmul_kernel.c the
 * innermost loops for each class of numbers, blas.c large products where the machine has a BLAS.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_MATMUL_H
#define AOTICACHE_RUNTIME_SHIM_MATH_MATMUL_H

#include "runtime/shim/convert.h"

/* Largest block: rows and columns of the result, and how much of the inner dimension is packed at once. */
enum { MATMUL_BLOCK_ROWS = 64, MATMUL_BLOCK_COLUMNS = 256, MATMUL_BLOCK_DEPTH = 256 };

/*
 * The arithmetic of one class of numbers. Operands are packed: `rows` (or `columns`) values of one step of the inner
 * dimension lie together, step after step.
 */
struct matmul_arithmetic {
    size_t value_bytes;
    int rows;    /* of the result, that `accumulate` makes at once */
    int columns;
    /* tile[rows][columns] += a * b over `depth` steps; tile_stride in values. */
    void (*accumulate)(int64_t depth, const void *a, const void *b, void *tile, ptrdiff_t tile_stride);
    /* row = alpha * row + beta * addend; without addend (NULL) beta does not count. */
    void (*finish)(size_t count, void *row, const void *addend, double alpha, double beta);
};

/* NULL: the class is not one of numbers that can be multiplied here. */
const struct matmul_arithmetic *aoticache_shim_matmul_arithmetic(enum shim_class kind);

/* A matrix of elements in memory; strides in bytes. */
struct matmul_matrix {
    char *data;
    ptrdiff_t row_stride;
    ptrdiff_t column_stride;
};

struct matmul_problem {
    const struct matmul_arithmetic *arithmetic;
    const struct shim_dtype_access *access; /* all matrices have one dtype */
    uint32_t item_bytes;                    /* of an element of it */
    int64_t rows, columns, depth;           /* out is rows x columns, a is rows x depth */
    struct matmul_matrix a, b, addend, out; /* addend.data NULL: none */
    double alpha, beta;
};

/* Bytes that aoticache_shim_matmul_run needs to work in, aligned to 64. */
size_t aoticache_shim_matmul_workspace_bytes(const struct matmul_problem *problem);
void aoticache_shim_matmul_run(const struct matmul_problem *problem, void *workspace);
/* The same with a workspace of its own, only where one is needed. False: out of memory. */
bool aoticache_shim_matmul(const struct matmul_problem *problem);
/*
 * A tile of sums to its place in the result: factors, addend, dtype; the tile's values are changed. At most
 * MATMUL_BLOCK_COLUMNS columns. tile_stride in values.
 */
void aoticache_shim_matmul_write(const struct matmul_problem *problem, char *tile, ptrdiff_t tile_stride, int64_t row,
                                 int64_t rows, int64_t column, int64_t columns);

#endif
