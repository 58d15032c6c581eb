/*
 * shim/math/matmul_kept: products of float matrices with a weight that never changes (a linear layer of a frozen package),
 * for processors with AVX2 or AVX-512.
 *
 * A BLAS puts the weight into the order of its innermost loop at every call, which is a tenth to a fifth of the time where
 * the other matrix has a hundred rows. Here that is done once, by the first product, and kept with the weight. The innermost
 * loop is OpenBLAS's in kind: 6 rows by 16 columns of sums, which stay in registers, or 12 by 32 with AVX-512. There oneDNN
 * is as fast where there are more rows (blas.c), and gets these.
 */
#include "runtime/shim/math/internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)

#define WITH_AVX2 __attribute__((target("avx2,fma")))
#define WITH_AVX512 __attribute__((target("avx512f,avx2,fma")))

/*
 * Steps of the inner dimension that are summed up at once: 16 or 32 KB of a panel of the weight. Rows that meet all panels
 * before the next rows do: 240 KB, half a second-level cache.
 */
enum { BLOCK_DEPTH = 256, BLOCK_ROWS = 240 };

enum { MOST_TILE_ROWS = 12, MOST_COLUMNS = 32 };

/* ---- the innermost loop ---- */

struct tile {
    const float *a, *panel, *start; /* start: a row of sums to begin with; NULL: those that `out` has */
    float *out;
    ptrdiff_t a_stride, out_stride; /* between rows, in elements */
    int64_t depth;
};

/* What a processor computes at once: sums in registers. */
struct kernel {
    int rows, columns;                                       /* columns of the weight that lie together, two vectors */
    int least_rows;                                          /* with fewer, each weight is read only once anyway */
    void (*sum_tile)(int64_t rows, const struct tile *tile); /* at most so many rows */
};

#define EACH_ROW_OF_6(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define EACH_ROW_OF_12(X) EACH_ROW_OF_6(X) X(6) X(7) X(8) X(9) X(10) X(11)
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

/* sum_<name>_rows computes a tile of so many rows, which is a constant wherever it is called, and of two vectors of columns. */
#define DEFINE_KERNEL(name, bytes, each_row, attribute)                                                       \
    static inline                                                                                             \
        __attribute__((always_inline)) attribute void sum_##name##_rows(const int rows, const struct tile *t) \
    {                                                                                                         \
        typedef float vector __attribute__((vector_size(bytes)));                                             \
        enum { LANES = sizeof(vector) / sizeof(float) };                                                      \
        const float *a = t->a, *panel = t->panel;                                                             \
        each_row(BEGIN_ROW);                                                                                  \
        for (int64_t k = 0; k < t->depth; k++, a++, panel += 2 * LANES) {                                     \
            vector b_left, b_right;                                                                           \
            memcpy(&b_left, panel, sizeof b_left);                                                            \
            memcpy(&b_right, panel + LANES, sizeof b_right);                                                  \
            each_row(ADD_ROW);                                                                                \
        }                                                                                                     \
        each_row(END_ROW);                                                                                    \
    }                                                                                                         \
    static attribute void sum_##name(int64_t rows, const struct tile *tile)                                   \
    {                                                                                                         \
        const struct tile t = *tile; /* a copy, which nothing that is written can change */                   \
        switch (rows) {                                                                                       \
            each_row(CASE_##name)                                                                             \
        }                                                                                                     \
    }
#define CASE_avx2(r)                \
    case (r) + 1:                   \
        sum_avx2_rows((r) + 1, &t); \
        break;
#define CASE_avx512(r)                \
    case (r) + 1:                     \
        sum_avx512_rows((r) + 1, &t); \
        break;

DEFINE_KERNEL(avx2, 32, EACH_ROW_OF_6, WITH_AVX2)
DEFINE_KERNEL(avx512, 64, EACH_ROW_OF_12, WITH_AVX512)

static const struct kernel kernel_avx2 = {6, 16, 4, sum_avx2}, kernel_avx512 = {12, 32, 2, sum_avx512};

/* NULL: this processor has none. */
static const struct kernel *find_kernel(void)
{
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return NULL;
    return __builtin_cpu_supports("avx512f") ? &kernel_avx512 : &kernel_avx2;
}

/* The weight: panels of the kernel's columns, each step by step of the inner dimension; the last is filled up with zeros. */
struct kept {
    int64_t columns, depth;
    const struct kernel *kernel;
    _Alignas(64) float panels[];
};

/* ---- the walk ---- */

struct job {
    const struct matmul_problem *problem;
    const struct kept *kept;
    const struct matmul_groups *groups;
    int parts;
    bool by_columns, is_added; /* is_added: to what the result has */
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A part of the last panel: its sums are made elsewhere, and the columns that there are go to their place. */
static void sum_narrow(const struct kernel *kernel, int64_t rows, const struct tile *tile, int64_t columns)
{
    float sums[MOST_TILE_ROWS * MOST_COLUMNS] = {0};
    struct tile apart = *tile;
    apart.out = sums;
    apart.out_stride = kernel->columns;
    for (int64_t i = 0; i < rows && tile->start == NULL; i++)
        memcpy(sums + i * kernel->columns, tile->out + i * tile->out_stride, (size_t)columns * sizeof *sums);
    kernel->sum_tile(rows, &apart);
    for (int64_t i = 0; i < rows; i++)
        memcpy(tile->out + i * tile->out_stride, sums + i * kernel->columns, (size_t)columns * sizeof *sums);
}

/* Adds `depth` steps from `k` on to the rows `first` to `last` of one panel's columns. */
static void sum_panel(const struct job *job, int64_t panel, int64_t k, int64_t depth, int64_t first, int64_t last)
{
    const struct matmul_problem *p = job->problem;
    const struct kernel *kernel = job->kept->kernel;
    const int64_t column = panel * kernel->columns, columns = smaller(kernel->columns, p->columns - column);
    const ptrdiff_t a_stride = p->a.row_stride / (ptrdiff_t)sizeof(float);
    const ptrdiff_t out_stride = p->out.row_stride / (ptrdiff_t)sizeof(float);
    float start[MOST_COLUMNS] = {0};
    for (int64_t j = 0; j < columns && p->addend.data != NULL && k == 0 && !job->is_added; j++)
        memcpy(start + j, p->addend.data + (column + j) * p->addend.column_stride, sizeof *start);
    for (int64_t i = first; i < last; i += kernel->rows) {
        const struct tile tile = {.a = (const float *)(const void *)p->a.data + i * a_stride + k,
                                  .panel = job->kept->panels + panel * kernel->columns * p->depth + k * kernel->columns,
                                  .start = k == 0 && !job->is_added ? start : NULL,
                                  .out = (float *)(void *)p->out.data + i * out_stride + column,
                                  .a_stride = a_stride,
                                  .out_stride = out_stride,
                                  .depth = depth};
        if (columns == kernel->columns)
            kernel->sum_tile(smaller(kernel->rows, last - i), &tile);
        else
            sum_narrow(kernel, smaller(kernel->rows, last - i), &tile, columns);
    }
}

static int64_t units_of(int64_t size, int64_t unit)
{
    return (size + unit - 1) / unit;
}

/* The first of `units` units of a part. */
static int64_t first_of(int64_t units, int part, int parts)
{
    return units / parts * part + smaller(units % parts, part);
}

static void sum_panels(const struct job *job, int64_t panel, int64_t panel_end, int64_t row, int64_t row_end)
{
    const int64_t depth = job->problem->depth;
    for (int64_t first = row; first < row_end; first += BLOCK_ROWS)
        for (int64_t k = 0; k < depth || k == 0; k += BLOCK_DEPTH)
            for (int64_t j = panel; j < panel_end; j++)
                sum_panel(job, j, k, smaller(BLOCK_DEPTH, depth - k), first, smaller(row_end, first + BLOCK_ROWS));
}

static void run_rows(const struct job *job, int part)
{
    const struct kernel *kernel = job->kept->kernel;
    const int64_t rows = job->problem->rows, tiles = units_of(rows, kernel->rows);
    sum_panels(job, 0, units_of(job->problem->columns, kernel->columns),
               first_of(tiles, part, job->parts) * kernel->rows,
               smaller(rows, first_of(tiles, part + 1, job->parts) * kernel->rows));
}

static void run_columns(const struct job *job, int part)
{
    const struct matmul_groups *groups = job->groups;
    const int64_t count = groups != NULL ? groups->count : 1, columns = job->problem->columns / count;
    const int64_t width = job->kept->kernel->columns, panels = units_of(columns, width);
    const int64_t first = first_of(panels, part, job->parts), end = first_of(panels, part + 1, job->parts);
    for (int64_t group = 0; group < count; group++)
        sum_panels(job, group * panels + first, group * panels + end, 0, job->problem->rows);
    if (groups != NULL)
        groups->then(groups->user, first * width, smaller(columns, end * width));
}

static void run_part(void *user, int part)
{
    const struct job *job = user;
    if (job->by_columns)
        run_columns(job, part);
    else
        run_rows(job, part);
}

/* ---- the weight ---- */

/* A weight that comes to its place. */
struct filling {
    const struct matmul_problem *problem;
    struct kept *kept;
    int parts;
};

/* Some steps of a panel, from `k` on. So few that their place stays in the first-level cache while its columns come. */
static void fill_steps(const struct filling *filling, int64_t panel, int64_t k, int64_t steps)
{
    const struct matmul_problem *problem = filling->problem;
    struct kept *kept = filling->kept;
    const int64_t width = kept->kernel->columns;
    for (int64_t j = 0; j < width; j++) {
        const int64_t column = panel * width + j;
        float *to = kept->panels + (panel * kept->depth + k) * width + j;
        const char *from = problem->b.data + column * problem->b.column_stride + k * problem->b.row_stride;
        for (int64_t i = 0; i < steps; i++, to += width, from += problem->b.row_stride) {
            if (column < kept->columns)
                memcpy(to, from, sizeof *to);
            else
                *to = 0;
        }
    }
}

static void fill_part(void *user, int part)
{
    enum { STEPS = 64 };
    const struct filling *filling = user;
    const struct kept *kept = filling->kept;
    const int64_t panels = units_of(kept->columns, kept->kernel->columns);
    const int64_t end = first_of(panels, part + 1, filling->parts);
    for (int64_t panel = first_of(panels, part, filling->parts); panel < end; panel++)
        for (int64_t k = 0; k < kept->depth; k += STEPS)
            fill_steps(filling, panel, k, smaller(STEPS, kept->depth - k));
}

static struct kept *make_kept(const struct matmul_problem *problem)
{
    enum { WORK = 4 }; /* of a number, in multiplications */
    const struct kernel *kernel = find_kernel();
    const int64_t columns = problem->columns, depth = problem->depth;
    const int64_t panels = units_of(columns, kernel->columns);
    size_t bytes;
    if (__builtin_mul_overflow((size_t)(panels * kernel->columns), (size_t)depth * sizeof(float), &bytes))
        return NULL;
    struct kept *kept = aligned_alloc(64, (sizeof *kept + bytes + 63) / 64 * 64);
    if (kept == NULL)
        return NULL;
    *kept = (struct kept){.columns = columns, .depth = depth, .kernel = kernel};
    struct filling filling = {problem, kept, aoticache_shim_parts(WORK * (double)columns * (double)depth, panels)};
    aoticache_shim_parallel(filling.parts, fill_part, &filling);
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

/* With AVX-512 a weight that stays in the second-level cache is worth it for more rows. */
static bool is_worth_it(const struct matmul_problem *problem)
{
    enum { CACHED_FLOATS = 256 * 1024, MOST_ROWS_CACHED = 64, MOST_ROWS = 12 };
    const struct kernel *kernel = find_kernel();
    if (kernel == NULL || problem->rows < kernel->least_rows)
        return false;
    const bool is_cached = problem->columns <= CACHED_FLOATS / (problem->depth > 0 ? problem->depth : 1);
    return kernel == &kernel_avx2 || problem->rows <= (is_cached ? MOST_ROWS_CACHED : MOST_ROWS);
}

/* Whether groups of columns can be made apart: each begins with a panel of its own. */
static bool can_group(const struct matmul_problem *problem, const struct matmul_groups *groups)
{
    const struct kernel *kernel = find_kernel();
    return kernel != NULL && problem->columns % (groups->count * kernel->columns) == 0;
}

bool aoticache_shim_matmul_kept(const struct matmul_problem *problem, struct shim_packed *packed,
                                const struct matmul_groups *groups)
{
    const ptrdiff_t item = sizeof(float);
    const struct matmul_matrix *addend = &problem->addend, *out = &problem->out;
    bool is_added = addend->data == out->data && addend->row_stride == out->row_stride &&
                    addend->column_stride == out->column_stride;
    if (problem->a.column_stride != item || out->column_stride != item || problem->a.row_stride % item != 0 ||
        out->row_stride % item != 0 || (addend->row_stride != 0 && !is_added) || problem->alpha != 1 ||
        problem->beta != 1 || !is_worth_it(problem) || (groups != NULL && !can_group(problem, groups)))
        return false;
    struct job job = {.problem = problem, .kept = find_kept(problem, packed), .groups = groups, .is_added = is_added};
    if (job.kept == NULL)
        return false;
    job.by_columns = groups != NULL || problem->columns >= problem->rows;
    const struct kernel *kernel = job.kept->kernel;
    const int64_t columns = problem->columns / (groups != NULL ? groups->count : 1);
    int64_t units = job.by_columns ? units_of(columns, kernel->columns) : units_of(problem->rows, kernel->rows);
    job.parts = aoticache_shim_parts((double)problem->rows * (double)problem->columns * (double)problem->depth, units);
    aoticache_shim_parallel(job.parts, run_part, &job);
    return true;
}

#else

bool aoticache_shim_matmul_kept(const struct matmul_problem *problem, struct shim_packed *packed,
                                const struct matmul_groups *groups)
{
    (void)problem;
    (void)packed;
    (void)groups;
    return false;
}

#endif
