/*
 * shim/math/matmul_kept: products of float matrices with a weight that never changes (a linear layer of a frozen package),
 * for processors with AVX2.
 *
 * A BLAS puts the weight into the order of its innermost loop at every call, which is a tenth to a fifth of the time where
 * the other matrix has a hundred rows. Here that is done once, by the first product, and kept with the weight. The innermost
 * loop is OpenBLAS's in kind: 6 rows by 16 columns of sums, which stay in registers. On processors with AVX-512 OpenBLAS has
 * wider ones, and the product is left to it, as it is with fewer than four rows, which read each weight once anyway.
 */
#include "runtime/shim/math/internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)

#define WITH_AVX2 __attribute__((target("avx2,fma")))

/* Sums in registers; columns of the weight that lie together. */
enum { ROWS = 6, COLUMNS = 16, LANES = 8, LEAST_ROWS = 4, MOST_ROWS_WIDE = 32 };

/*
 * Steps of the inner dimension that are summed up at once: 16 KB of a panel of the weight, half a first-level cache. Rows
 * that meet all panels before the next rows do: 240 KB, half a second-level cache.
 */
enum { BLOCK_DEPTH = 256, BLOCK_ROWS = 40 * ROWS };

typedef float vector __attribute__((vector_size(32)));

/* The weight: panels of 16 columns, each step by step of the inner dimension; the last one is filled up with zeros. */
struct kept {
    int64_t columns, depth;
    _Alignas(64) float panels[];
};

/* ---- the innermost loop ---- */

struct tile {
    const float *a, *panel, *start; /* start: 16 sums to begin with; NULL: those that `out` has */
    float *out;
    ptrdiff_t a_stride, out_stride; /* between rows, in elements */
    int64_t depth;
};

#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define BEGIN_ROW(r)                                                                    \
    vector left##r = {0}, right##r = {0};                                               \
    if (rows > r) {                                                                     \
        const float *from = t->start != NULL ? t->start : t->out + (r) * t->out_stride; \
        memcpy(&left##r, from, sizeof left##r);                                         \
        memcpy(&right##r, from + LANES, sizeof right##r);                               \
    }
#define ADD_ROW(r)                            \
    if (rows > r) {                           \
        const float x = a[(r) * t->a_stride]; \
        left##r += x * b_left;                \
        right##r += x * b_right;              \
    }
#define END_ROW(r)                                                                \
    if (rows > r) {                                                               \
        memcpy(t->out + (r) * t->out_stride, &left##r, sizeof left##r);           \
        memcpy(t->out + (r) * t->out_stride + LANES, &right##r, sizeof right##r); \
    }

/* Computes a tile of so many rows, which is a constant wherever this is called, and of 16 columns. */
static inline __attribute__((always_inline)) WITH_AVX2 void sum_rows(const int rows, const struct tile *t)
{
    const float *a = t->a, *panel = t->panel;
    EACH_ROW(BEGIN_ROW)
    for (int64_t k = 0; k < t->depth; k++, a++, panel += COLUMNS) {
        vector b_left, b_right;
        memcpy(&b_left, panel, sizeof b_left);
        memcpy(&b_right, panel + LANES, sizeof b_right);
        EACH_ROW(ADD_ROW)
    }
    EACH_ROW(END_ROW)
}

static WITH_AVX2 void sum_tile(int64_t rows, const struct tile *tile)
{
    const struct tile t = *tile; /* a copy, which nothing that is written can change */
    switch (rows) {
    case 1:
        sum_rows(1, &t);
        break;
    case 2:
        sum_rows(2, &t);
        break;
    case 3:
        sum_rows(3, &t);
        break;
    case 4:
        sum_rows(4, &t);
        break;
    case 5:
        sum_rows(5, &t);
        break;
    default:
        sum_rows(6, &t);
    }
}

/* ---- the walk ---- */

struct job {
    const struct matmul_problem *problem;
    const struct kept *kept;
    int parts;
    bool by_columns, is_added; /* is_added: to what the result has */
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A part of the last panel: its sums are made elsewhere, and the columns that there are go to their place. */
static void sum_narrow(int64_t rows, const struct tile *tile, int64_t columns)
{
    float sums[ROWS * COLUMNS] = {0};
    struct tile apart = *tile;
    apart.out = sums;
    apart.out_stride = COLUMNS;
    for (int64_t i = 0; i < rows && tile->start == NULL; i++)
        memcpy(sums + i * COLUMNS, tile->out + i * tile->out_stride, (size_t)columns * sizeof *sums);
    sum_tile(rows, &apart);
    for (int64_t i = 0; i < rows; i++)
        memcpy(tile->out + i * tile->out_stride, sums + i * COLUMNS, (size_t)columns * sizeof *sums);
}

/* Adds `depth` steps from `k` on to the rows `first` to `last` of one panel's columns. */
static void sum_panel(const struct job *job, int64_t panel, int64_t k, int64_t depth, int64_t first, int64_t last)
{
    const struct matmul_problem *p = job->problem;
    const int64_t column = panel * COLUMNS, columns = smaller(COLUMNS, p->columns - column);
    const ptrdiff_t a_stride = p->a.row_stride / (ptrdiff_t)sizeof(float);
    const ptrdiff_t out_stride = p->out.row_stride / (ptrdiff_t)sizeof(float);
    float start[COLUMNS] = {0};
    for (int64_t j = 0; j < columns && p->addend.data != NULL && k == 0 && !job->is_added; j++)
        memcpy(start + j, p->addend.data + (column + j) * p->addend.column_stride, sizeof *start);
    for (int64_t i = first; i < last; i += ROWS) {
        const struct tile tile = {.a = (const float *)(const void *)p->a.data + i * a_stride + k,
                                  .panel = job->kept->panels + panel * COLUMNS * p->depth + k * COLUMNS,
                                  .start = k == 0 && !job->is_added ? start : NULL,
                                  .out = (float *)(void *)p->out.data + i * out_stride + column,
                                  .a_stride = a_stride,
                                  .out_stride = out_stride,
                                  .depth = depth};
        if (columns == COLUMNS)
            sum_tile(smaller(ROWS, last - i), &tile);
        else
            sum_narrow(smaller(ROWS, last - i), &tile, columns);
    }
}

/* The first of `units` units of a part. */
static int64_t first_of(int64_t units, int part, int parts)
{
    return units / parts * part + smaller(units % parts, part);
}

static void run_part(void *user, int part)
{
    const struct job *job = user;
    const struct matmul_problem *p = job->problem;
    const int64_t panels = (p->columns + COLUMNS - 1) / COLUMNS, tiles = (p->rows + ROWS - 1) / ROWS;
    int64_t panel = 0, panel_end = panels, row = 0, row_end = p->rows;
    if (job->by_columns) {
        panel = first_of(panels, part, job->parts);
        panel_end = first_of(panels, part + 1, job->parts);
    } else {
        row = first_of(tiles, part, job->parts) * ROWS;
        row_end = smaller(p->rows, first_of(tiles, part + 1, job->parts) * ROWS);
    }
    for (int64_t first = row; first < row_end; first += BLOCK_ROWS)
        for (int64_t k = 0; k < p->depth || k == 0; k += BLOCK_DEPTH)
            for (int64_t j = panel; j < panel_end; j++)
                sum_panel(job, j, k, smaller(BLOCK_DEPTH, p->depth - k), first, smaller(row_end, first + BLOCK_ROWS));
}

/* ---- the weight ---- */

static struct kept *make_kept(const struct matmul_problem *problem)
{
    const int64_t columns = problem->columns, depth = problem->depth;
    const int64_t panels = (columns + COLUMNS - 1) / COLUMNS;
    size_t bytes;
    if (__builtin_mul_overflow((size_t)(panels * COLUMNS), (size_t)depth * sizeof(float), &bytes))
        return NULL;
    struct kept *kept = aligned_alloc(64, (sizeof *kept + bytes + 63) / 64 * 64);
    if (kept == NULL)
        return NULL;
    *kept = (struct kept){.columns = columns, .depth = depth};
    for (int64_t j = 0; j < panels * COLUMNS; j++) {
        float *to = kept->panels + j / COLUMNS * COLUMNS * depth + j % COLUMNS;
        const char *from = problem->b.data + j * problem->b.column_stride;
        for (int64_t k = 0; k < depth; k++, to += COLUMNS, from += problem->b.row_stride) {
            if (j < columns)
                memcpy(to, from, sizeof *to);
            else
                *to = 0;
        }
    }
    return kept;
}

/* What the first product kept; NULL: there is no memory, or another operator has kept the weight in a form of its own. */
static const struct kept *find_kept(const struct matmul_problem *problem, struct shim_packed *packed)
{
    if (!aoticache_shim_packed_claim(packed, free))
        return NULL;
    struct kept *kept = atomic_load(&packed->prepared);
    if (kept == NULL) {
        kept = make_kept(problem);
        if (kept == NULL)
            return NULL;
        kept = aoticache_shim_packed_keep(packed, kept);
    }
    return kept->columns == problem->columns && kept->depth == problem->depth ? kept : NULL;
}

/* With AVX-512 a BLAS computes twice as fast, which is worth putting the weight into order at each call for more rows. */
static bool is_worth_it(int64_t rows)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           (rows <= MOST_ROWS_WIDE || !__builtin_cpu_supports("avx512f"));
}

bool aoticache_shim_matmul_kept(const struct matmul_problem *problem, struct shim_packed *packed)
{
    const ptrdiff_t item = sizeof(float);
    const struct matmul_matrix *addend = &problem->addend, *out = &problem->out;
    bool is_added = addend->data == out->data && addend->row_stride == out->row_stride &&
                    addend->column_stride == out->column_stride;
    if (problem->rows < LEAST_ROWS || problem->a.column_stride != item || out->column_stride != item ||
        problem->a.row_stride % item != 0 || out->row_stride % item != 0 || (addend->row_stride != 0 && !is_added) ||
        problem->alpha != 1 || problem->beta != 1 || !is_worth_it(problem->rows))
        return false;
    struct job job = {.problem = problem, .kept = find_kept(problem, packed), .is_added = is_added};
    if (job.kept == NULL)
        return false;
    job.by_columns = problem->columns >= problem->rows;
    int64_t units = job.by_columns ? (problem->columns + COLUMNS - 1) / COLUMNS : (problem->rows + ROWS - 1) / ROWS;
    job.parts = aoticache_shim_parts((double)problem->rows * (double)problem->columns * (double)problem->depth, units);
    aoticache_shim_parallel(job.parts, run_part, &job);
    return true;
}

#else

bool aoticache_shim_matmul_kept(const struct matmul_problem *problem, struct shim_packed *packed)
{
    (void)problem;
    (void)packed;
    return false;
}

#endif
