/*
 * shim/products/matmul_panels: multiplies float matrices, the second of which is stored in panels, in the order of the
 * innermost loop, on processors with AVX2 or AVX-512.
 *
 * A weight that never changes (a linear layer of a frozen package) is reordered once, by the first multiplication, and
 * kept: reordering takes a tenth to a fifth of the time of multiplying a hundred rows. The innermost loop is like
 * OpenBLAS's: 6 rows by 16 columns of sums, which stay in registers, or 14 by 32 with AVX-512. With AVX-512 oneDNN is
 * as fast for more rows, and is used for these (blas.c).
 *
 * With AVX-512 other matrices are put into panels too, one panel after the other, if they fit into the second-level
 * cache. That is as fast as oneDNN, which generates code for 25 milliseconds at the first such multiplication.
 */
#include "runtime/shim/math/math_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)

#include <immintrin.h>

#define WITH_AVX2 __attribute__((target("avx2,fma")))
#define WITH_AVX512 __attribute__((target("avx512f,avx2,fma")))

/*
 * BLOCK_DEPTH: steps of the inner dimension that are summed together: 16 or 32 KB of a panel of the weight. BLOCK_ROWS:
 * rows that are multiplied with all panels before the next rows are: 240 KB, half a second-level cache.
 */
enum { BLOCK_DEPTH = 256, BLOCK_ROWS = 240 };

enum { MOST_TILE_ROWS = 14, MOST_COLUMNS = 32 };

/* ---- the innermost loop ---- */

struct tile {
    const float *a, *panel, *start; /* start: a row of initial sums; NULL: those in `out` */
    float *out;
    ptrdiff_t a_stride, out_stride; /* between rows, in elements */
    int64_t depth;
};

/* The size of a tile, whose sums stay in registers. */
struct kernel {
    int rows, columns;                                       /* columns of the weight in a panel, two vectors */
    int least_rows;                                          /* with fewer, each weight is read only once anyway */
    void (*sum_tile)(int64_t rows, const struct tile *tile); /* at most kernel.rows rows */
};

#define EACH_ROW_OF_6(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define EACH_ROW_OF_14(X) EACH_ROW_OF_6(X) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)
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

/* sum_<name>_rows computes a tile of `rows` rows, a constant in every call, and two vectors of columns. */
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
        const struct tile t = *tile; /* a copy, which cannot alias written memory */                          \
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
DEFINE_KERNEL(avx512, 64, EACH_ROW_OF_14, WITH_AVX512)

static const struct kernel kernel_avx2 = {6, 16, 4, sum_avx2}, kernel_avx512 = {14, 32, 2, sum_avx512};

/* Returns the kernel. NULL: this processor has none. */
static const struct kernel *find_kernel(void)
{
    if (!shim_has_avx2())
        return NULL;
    return shim_has_avx512() ? &kernel_avx512 : &kernel_avx2;
}

/* The weight: panels of the kernel's columns, each in steps of the inner dimension; the last is padded with zeros. */
struct kept {
    int64_t columns, depth;
    const struct kernel *kernel;
    _Alignas(64) float panels[];
};

/* ---- a panel ---- */

WITH_AVX512 void aoticache_shim_transpose_16(const float *from, ptrdiff_t from_stride, float *to, ptrdiff_t to_stride)
{
    __m512 a[16], b[16];
    for (int i = 0; i < 16; i++)
        a[i] = _mm512_loadu_ps(from + i * from_stride);
    for (int i = 0; i < 16; i += 2) { /* pairs */
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) { /* fours: each quarter of a vector has a column of four rows */
        for (int half = 0; half < 2; half++) {
            const __m512d low = _mm512_castps_pd(b[i + half]), high = _mm512_castps_pd(b[i + half + 2]);
            a[i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            a[i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    }
    for (int i = 0; i < 4; i++) { /* join quarters: of eight rows, then of sixteen */
        const __m512 even_low = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
        const __m512 odd_low = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd);
        const __m512 even_high = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
        const __m512 odd_high = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd);
        _mm512_storeu_ps(to + i * to_stride, _mm512_shuffle_f32x4(even_low, even_high, 0x88));
        _mm512_storeu_ps(to + (i + 4) * to_stride, _mm512_shuffle_f32x4(odd_low, odd_high, 0x88));
        _mm512_storeu_ps(to + (i + 8) * to_stride, _mm512_shuffle_f32x4(even_low, even_high, 0xdd));
        _mm512_storeu_ps(to + (i + 12) * to_stride, _mm512_shuffle_f32x4(odd_low, odd_high, 0xdd));
    }
}

/* Fills `steps` steps of `columns` columns, one by one. */
static void fill_plainly(const struct matmul_matrix *b, int64_t columns, int64_t steps, float *to, int64_t width)
{
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < steps; i++)
            memcpy(to + i * width + j, b->data + j * b->column_stride + i * b->row_stride, sizeof *to);
}

/*
 * Fills a panel with `width` columns from `column` on, step by step from `k` on, padded with zeros. It handles few
 * steps at a time, so that the written memory stays in the first-level cache until all columns are written.
 */
static void fill_panel(const struct matmul_problem *problem, int64_t width, int64_t column, int64_t k, int64_t steps,
                       float *panel)
{
    enum { BLOCK = 16, FEW_STEPS = 64 };
    const struct matmul_matrix *b = &problem->b;
    const ptrdiff_t item = sizeof(float);
    const int64_t columns = width < problem->columns - column ? width : problem->columns - column;
    const bool is_turned = b->row_stride == item && width % (2 * BLOCK) == 0; /* as wide as panels for AVX-512 */
    for (int64_t i = 0, count; i < steps; i += count, panel += count * width) {
        const struct matmul_matrix from = {b->data + (k + i) * b->row_stride + column * b->column_stride, b->row_stride,
                                           b->column_stride};
        count = steps - i < FEW_STEPS ? steps - i : FEW_STEPS;
        if (columns < width)
            memset(panel, 0, (size_t)(count * width) * sizeof *panel);
        if (b->column_stride == item) {
            for (int64_t step = 0; step < count; step++)
                memcpy(panel + step * width, from.data + step * b->row_stride, (size_t)columns * sizeof *panel);
        } else if (is_turned && columns == width && count >= BLOCK) {
            count -= count % BLOCK;
            for (int64_t step = 0; step < count; step += BLOCK)
                for (int64_t j = 0; j < width; j += BLOCK)
                    aoticache_shim_transpose_16((const float *)(const void *)from.data + step +
                                                    j * b->column_stride / item,
                                                b->column_stride / item, panel + step * width + j, width);
        } else {
            fill_plainly(&from, columns, count, panel, width);
        }
    }
}

/* ---- the walk ---- */

struct job {
    const struct matmul_problem *problem;
    const struct kernel *kernel;
    const float *panels; /* NULL: each thread makes the panels that it needs */
    const struct matmul_groups *groups;
    int parts;
    bool by_columns, is_added; /* is_added: sums are added to the result */
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Sums a part of the last panel in a temporary tile, and copies the existing columns to the result. */
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

static int64_t units_of(int64_t size, int64_t unit)
{
    return (size + unit - 1) / unit;
}

/* Adds `depth` steps of a panel, from `k` on, to the rows `first` to `last` of its columns. */
static void sum_panel(const struct job *job, const float *panel, int64_t column, int64_t k, int64_t depth,
                      int64_t first, int64_t last)
{
    const struct matmul_problem *p = job->problem;
    const struct kernel *kernel = job->kernel;
    const int64_t columns = smaller(kernel->columns, p->columns - column);
    const int64_t rows =
        units_of(last - first, units_of(last - first, kernel->rows)); /* tiles of nearly equal height */
    const ptrdiff_t a_stride = p->a.row_stride / (ptrdiff_t)sizeof(float);
    const ptrdiff_t out_stride = p->out.row_stride / (ptrdiff_t)sizeof(float);
    float start[MOST_COLUMNS] = {0};
    for (int64_t j = 0; j < columns && p->addend.data != NULL && k == 0 && !job->is_added; j++)
        memcpy(start + j, p->addend.data + (column + j) * p->addend.column_stride, sizeof *start);
    for (int64_t i = first; i < last; i += rows) {
        const struct tile tile = {.a = (const float *)(const void *)p->a.data + i * a_stride + k,
                                  .panel = panel,
                                  .start = k == 0 && !job->is_added ? start : NULL,
                                  .out = (float *)(void *)p->out.data + i * out_stride + column,
                                  .a_stride = a_stride,
                                  .out_stride = out_stride,
                                  .depth = depth};
        if (columns == kernel->columns)
            kernel->sum_tile(smaller(rows, last - i), &tile);
        else
            sum_narrow(kernel, smaller(rows, last - i), &tile, columns);
    }
}

/* Returns the first unit of a part, of `units`. */
static int64_t first_of(int64_t units, int part, int parts)
{
    return units / parts * part + smaller(units % parts, part);
}

static void sum_panels(const struct job *job, int64_t panel, int64_t panel_end, int64_t row, int64_t row_end)
{
    _Alignas(64) float made[BLOCK_DEPTH * MOST_COLUMNS];
    const int64_t depth = job->problem->depth, width = job->kernel->columns;
    for (int64_t first = row; first < row_end; first += BLOCK_ROWS) {
        for (int64_t k = 0; k < depth || k == 0; k += BLOCK_DEPTH) {
            const int64_t steps = smaller(BLOCK_DEPTH, depth - k), last = smaller(row_end, first + BLOCK_ROWS);
            for (int64_t j = panel; j < panel_end; j++) {
                if (job->panels == NULL)
                    fill_panel(job->problem, width, j * width, k, steps, made);
                sum_panel(job, job->panels != NULL ? job->panels + (j * depth + k) * width : made, j * width, k, steps,
                          first, last);
            }
        }
    }
}

static void run_rows(const struct job *job, int part)
{
    const struct kernel *kernel = job->kernel;
    const int64_t rows = job->problem->rows, tiles = units_of(rows, kernel->rows);
    sum_panels(job, 0, units_of(job->problem->columns, kernel->columns),
               first_of(tiles, part, job->parts) * kernel->rows,
               smaller(rows, first_of(tiles, part + 1, job->parts) * kernel->rows));
}

static void run_columns(const struct job *job, int part)
{
    const struct matmul_groups *groups = job->groups;
    const int64_t count = groups != NULL ? groups->count : 1, columns = job->problem->columns / count;
    const int64_t width = job->kernel->columns, panels = units_of(columns, width);
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

/* A weight that is being reordered. */
struct filling {
    const struct matmul_problem *problem;
    struct kept *kept;
    int parts;
};

static void fill_part(void *user, int part)
{
    const struct filling *filling = user;
    struct kept *kept = filling->kept;
    const int64_t width = kept->kernel->columns, panels = units_of(kept->columns, width);
    const int64_t end = first_of(panels, part + 1, filling->parts);
    for (int64_t panel = first_of(panels, part, filling->parts); panel < end; panel++)
        fill_panel(filling->problem, width, panel * width, 0, kept->depth, kept->panels + panel * width * kept->depth);
}

static struct kept *make_kept(const struct matmul_problem *problem)
{
    enum { WORK = 4 }; /* the cost of a number, in multiplications */
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

/*
 * Returns the weight that the first multiplication kept; NULL: out of memory, or another operator keeps the weight in
 * another form.
 */
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

/* ---- which matrices ---- */

/* Returns whether the second matrix has at most `numbers` numbers. */
static bool is_small(const struct matmul_problem *problem, int64_t numbers)
{
    return problem->columns <= numbers / (problem->depth > 0 ? problem->depth : 1);
}

static bool is_added(const struct matmul_problem *problem)
{
    const struct matmul_matrix *addend = &problem->addend, *out = &problem->out;
    return addend->data == out->data && addend->row_stride == out->row_stride &&
           addend->column_stride == out->column_stride;
}

/* Returns whether the innermost loop supports the layout and the sums. */
static bool is_possible(const struct matmul_problem *problem)
{
    const ptrdiff_t item = sizeof(float);
    const struct matmul_matrix *addend = &problem->addend, *out = &problem->out;
    return problem->access->load_class == SHIM_CLASS_FLOAT && problem->item_bytes == sizeof(float) &&
           problem->a.column_stride == item && out->column_stride == item && problem->a.row_stride % item == 0 &&
           out->row_stride % item == 0 && problem->b.column_stride % item == 0 && problem->alpha == 1 &&
           (addend->data == NULL || (problem->beta == 1 && (addend->row_stride == 0 || is_added(problem))));
}

/*
 * Returns whether keeping the weight pays off. With AVX-512 a weight that fits into the second-level cache does for
 * more rows.
 */
static bool is_worth_keeping(const struct kernel *kernel, const struct matmul_problem *problem)
{
    enum { CACHED = 256 * 1024, MOST_ROWS_CACHED = 64, MOST_ROWS = 12 };
    return problem->rows >= kernel->least_rows &&
           (kernel == &kernel_avx2 || problem->rows <= (is_small(problem, CACHED) ? MOST_ROWS_CACHED : MOST_ROWS));
}

static void run(struct job *job)
{
    const struct matmul_problem *problem = job->problem;
    job->is_added = is_added(problem);
    job->by_columns = job->groups != NULL || problem->columns >= problem->rows;
    const int64_t columns = problem->columns / (job->groups != NULL ? job->groups->count : 1);
    int64_t units =
        job->by_columns ? units_of(columns, job->kernel->columns) : units_of(problem->rows, job->kernel->rows);
    job->parts = aoticache_shim_parts((double)problem->rows * (double)problem->columns * (double)problem->depth, units);
    aoticache_shim_parallel(job->parts, run_part, job);
}

bool aoticache_shim_matmul_kept(const struct matmul_problem *problem, struct shim_packed *packed,
                                const struct matmul_groups *groups)
{
    struct job job = {.problem = problem, .kernel = find_kernel(), .groups = groups};
    if (job.kernel == NULL || !is_possible(problem) || !is_worth_keeping(job.kernel, problem) ||
        (groups != NULL && problem->columns % (groups->count * job.kernel->columns) != 0)) /* one group per panel */
        return false;
    const struct kept *kept = find_kept(problem, packed);
    if (kept == NULL)
        return false;
    job.panels = kept->panels;
    run(&job);
    return true;
}

bool aoticache_shim_matmul_panels(const struct matmul_problem *problem)
{
    enum { LEAST_ROWS = 8, LEAST_COLUMNS = 16, MOST_NUMBERS = 64 * 1024 };
    struct job job = {.problem = problem, .kernel = find_kernel()};
    if (job.kernel != &kernel_avx512 || problem->rows < LEAST_ROWS || problem->columns < LEAST_COLUMNS ||
        !is_small(problem, MOST_NUMBERS) || !is_possible(problem))
        return false;
    run(&job);
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

bool aoticache_shim_matmul_panels(const struct matmul_problem *problem)
{
    (void)problem;
    return false;
}

#endif
