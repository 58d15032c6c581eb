/*
 * shim/products/matmul_block: multiplies matrices block by block. Each block of the result is summed in a tile in the
 * class's precision over the whole inner dimension and written once, so that float16 and bfloat16 are rounded once.
 */
#include "runtime/shim/math/math_internal.h"

#include <string.h>

static int64_t at_most(int64_t value, int64_t limit)
{
    return value < limit ? value : limit;
}

static int64_t round_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* The parts of the workspace, in values. */
struct matmul_workspace {
    char *a;
    char *b;
    char *tile;
    ptrdiff_t tile_stride;
};

static size_t lay_out(const struct matmul_problem *problem, char *memory, struct matmul_workspace *ret_workspace)
{
    const struct matmul_arithmetic *arithmetic = problem->arithmetic;
    size_t rows = (size_t)round_up(at_most(problem->rows, MATMUL_BLOCK_ROWS), arithmetic->rows);
    size_t columns = (size_t)round_up(at_most(problem->columns, MATMUL_BLOCK_COLUMNS), arithmetic->columns);
    size_t depth = (size_t)at_most(problem->depth, MATMUL_BLOCK_DEPTH);
    size_t value_bytes = arithmetic->value_bytes;
    size_t a_bytes = (rows * depth * value_bytes + 63) & ~(size_t)63;
    size_t b_bytes = (columns * depth * value_bytes + 63) & ~(size_t)63;
    if (ret_workspace != NULL)
        *ret_workspace =
            (struct matmul_workspace){memory, memory + a_bytes, memory + a_bytes + b_bytes, (ptrdiff_t)columns};
    return a_bytes + b_bytes + rows * columns * value_bytes;
}

size_t aoticache_shim_matmul_workspace_bytes(const struct matmul_problem *problem)
{
    return lay_out(problem, NULL, NULL);
}

/* Writes value i of `values` to panel + i * step. */
static void scatter_values(size_t value_bytes, int64_t count, char *panel, ptrdiff_t step, const char *values)
{
    for (int64_t i = 0; i < count; i++, panel += step, values += value_bytes) {
        if (value_bytes == 4)
            memcpy(panel, values, 4);
        else if (value_bytes == 8)
            memcpy(panel, values, 8);
        else
            memcpy(panel, values, 16);
    }
}

/*
 * Packs `count` rows (of a) or columns (of b), `width` of them to a panel, over `depth` steps of the inner dimension.
 * The last panel is padded with zeros.
 */
static void pack(const struct matmul_problem *problem, int width, int64_t count, int64_t depth, const char *source,
                 ptrdiff_t lane_stride, ptrdiff_t depth_stride, char *packed)
{
    double _Complex line[MATMUL_BLOCK_DEPTH];
    size_t value_bytes = problem->arithmetic->value_bytes;
    ptrdiff_t step = (ptrdiff_t)value_bytes * width;
    for (int64_t first = 0; first < count; first += width, packed += step * depth) {
        int64_t lanes = at_most(count - first, width);
        const char *panel_source = source + first * lane_stride;
        if (lanes < width)
            memset(packed, 0, (size_t)(step * depth));
        if (depth_stride <= lane_stride) { /* elements are closer together along the inner dimension */
            for (int64_t lane = 0; lane < lanes; lane++) {
                problem->access->load((size_t)depth, line, panel_source + lane * lane_stride, depth_stride);
                scatter_values(value_bytes, depth, packed + lane * (ptrdiff_t)value_bytes, step, (const char *)line);
            }
        } else {
            for (int64_t k = 0; k < depth; k++)
                problem->access->load((size_t)lanes, packed + k * step, panel_source + k * depth_stride, lane_stride);
        }
    }
}

void aoticache_shim_matmul_write(const struct matmul_problem *problem, char *tile, ptrdiff_t tile_stride, int64_t row,
                                 int64_t rows, int64_t column, int64_t columns)
{
    double _Complex addends[MATMUL_BLOCK_COLUMNS];
    const struct matmul_matrix *addend = &problem->addend, *out = &problem->out;
    for (int64_t i = 0; i < rows; i++) {
        char *values = tile + i * tile_stride * (ptrdiff_t)problem->arithmetic->value_bytes;
        if (addend->data != NULL)
            problem->access->load((size_t)columns, addends,
                                  addend->data + (row + i) * addend->row_stride + column * addend->column_stride,
                                  addend->column_stride);
        problem->arithmetic->finish((size_t)columns, values, addend->data != NULL ? addends : NULL, problem->alpha,
                                    problem->beta);
        problem->access->store((size_t)columns, out->data + (row + i) * out->row_stride + column * out->column_stride,
                               out->column_stride, values);
    }
}

void aoticache_shim_matmul_place_addend(const struct matmul_problem *problem)
{
    const uint32_t item_bytes = problem->item_bytes;
    const struct matmul_matrix *addend = &problem->addend, *out = &problem->out;
    const struct shim_conversion same = {.item_bytes = item_bytes};
    if (addend->data == NULL || (addend->data == out->data && addend->row_stride == out->row_stride &&
                                 addend->column_stride == out->column_stride))
        return;
    for (int64_t i = 0; i < problem->rows; i++)
        aoticache_shim_convert_row(&same, (size_t)problem->columns, out->data + i * out->row_stride, out->column_stride,
                                   addend->data + i * addend->row_stride, addend->column_stride);
}

static void run_block(const struct matmul_problem *problem, const struct matmul_workspace *workspace, int64_t row,
                      int64_t rows, int64_t column, int64_t columns)
{
    const struct matmul_arithmetic *arithmetic = problem->arithmetic;
    ptrdiff_t value_bytes = (ptrdiff_t)arithmetic->value_bytes;
    memset(workspace->tile, 0, (size_t)(round_up(rows, arithmetic->rows) * workspace->tile_stride * value_bytes));
    for (int64_t k = 0; k < problem->depth; k += MATMUL_BLOCK_DEPTH) {
        int64_t depth = at_most(problem->depth - k, MATMUL_BLOCK_DEPTH);
        const struct matmul_matrix *a = &problem->a, *b = &problem->b;
        pack(problem, arithmetic->rows, rows, depth, a->data + row * a->row_stride + k * a->column_stride,
             a->row_stride, a->column_stride, workspace->a);
        pack(problem, arithmetic->columns, columns, depth, b->data + k * b->row_stride + column * b->column_stride,
             b->column_stride, b->row_stride, workspace->b);
        for (int64_t j = 0; j < columns; j += arithmetic->columns)
            for (int64_t i = 0; i < rows; i += arithmetic->rows)
                arithmetic->accumulate(
                    depth, workspace->a + i * depth * value_bytes, workspace->b + j * depth * value_bytes,
                    workspace->tile + (i * workspace->tile_stride + j) * value_bytes, workspace->tile_stride);
    }
    aoticache_shim_matmul_write(problem, workspace->tile, workspace->tile_stride, row, rows, column, columns);
}

void aoticache_shim_matmul_run(const struct matmul_problem *problem, void *workspace_memory)
{
    struct matmul_workspace workspace;
    lay_out(problem, workspace_memory, &workspace);
    for (int64_t column = 0; column < problem->columns; column += MATMUL_BLOCK_COLUMNS)
        for (int64_t row = 0; row < problem->rows; row += MATMUL_BLOCK_ROWS)
            run_block(problem, &workspace, row, at_most(problem->rows - row, MATMUL_BLOCK_ROWS), column,
                      at_most(problem->columns - column, MATMUL_BLOCK_COLUMNS));
}
