/*
 * shim/quantized/quantized_kernel: sums of products with int8. Up to four rows of a are multiplied with four rows of b
 * together, so that each load serves several products. On x86-64 the functions are also compiled for AVX2 and AVX-512.
 */
#include "runtime/shim/quantized/quantized.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

/*
 * Sizes of a tile of sums, and of a block of columns whose rows of b stay in the second-level cache while all rows of a
 * are processed.
 */
enum { TILE_ROWS = 4, TILE_COLUMNS = 4, BLOCK_COLUMNS = 32, BLOCK_ROWS = 64 };

/* A tile. Elements of its operands from `depth` on are not read. */
struct tile {
    int64_t depth;
    int rows;
    const void *a[TILE_ROWS];
    const int8_t *b[TILE_COLUMNS];
    union {
        int32_t ints[TILE_ROWS][TILE_COLUMNS];
        float floats[TILE_ROWS][TILE_COLUMNS];
    } sums;
};

typedef void (*tile_function)(struct tile *tile);

/* Adds the products from `first` on. Sums wrap. */
static void add_ints(struct tile *t, int64_t first)
{
    for (int row = 0; row < t->rows; row++) {
        const int16_t *a = t->a[row];
        for (int column = 0; column < TILE_COLUMNS; column++) {
            uint32_t sum = (uint32_t)t->sums.ints[row][column];
            for (int64_t i = first; i < t->depth; i++)
                sum += (uint32_t)(a[i] * t->b[column][i]);
            t->sums.ints[row][column] = (int32_t)sum;
        }
    }
}

static void add_floats(struct tile *t, int64_t first)
{
    for (int row = 0; row < t->rows; row++) {
        const float *a = t->a[row];
        for (int column = 0; column < TILE_COLUMNS; column++)
            for (int64_t i = first; i < t->depth; i++)
                t->sums.floats[row][column] += a[i] * (float)t->b[column][i];
    }
}

static void multiply_ints(struct tile *t)
{
    memset(&t->sums, 0, sizeof t->sums);
    add_ints(t, 0);
}

static void multiply_floats(struct tile *t)
{
    memset(&t->sums, 0, sizeof t->sums);
    add_floats(t, 0);
}

#ifdef __x86_64__
#define WITH_AVX2 __attribute__((target("avx2,fma")))
#define WITH_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))

WITH_AVX2 static int32_t sum_of_ints_avx2(__m256i x)
{
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return _mm_cvtsi128_si32(half);
}

WITH_AVX2 static float sum_of_floats_avx2(__m256 x)
{
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    half = _mm_add_ss(half, _mm_shuffle_ps(half, half, 1));
    return _mm_cvtss_f32(half);
}

#define LOAD_INTS(from) _mm256_loadu_si256((const __m256i *)(const void *)(from))
#define WIDEN_TO_INTS(from) _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(from)))
#define ADD_INT_PRODUCTS(x, y, sums) _mm256_add_epi32(sums, _mm256_madd_epi16(x, y))
#define WIDEN_TO_FLOATS(from) \
    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(from))))

#define LOAD_INTS_512(from) _mm512_loadu_si512(from)
#define WIDEN_TO_INTS_512(from) _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(from)))
#define ADD_INT_PRODUCTS_512(x, y, sums) _mm512_add_epi32(sums, _mm512_madd_epi16(x, y))
#define WIDEN_TO_FLOATS_512(from) \
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(from))))
#define sum_of_ints_avx512 _mm512_reduce_add_epi32
#define sum_of_floats_avx512 _mm512_reduce_add_ps

/*
 * Multiplies `step` elements at a time. Loops over rows and columns are unrolled, so that the sums stay in registers.
 */
#define DEFINE_MULTIPLY(suffix, attribute, count, kind, element, step, vector, zero, load, widen, add_products)       \
    attribute static void multiply_##kind##suffix##_##count(struct tile *t)                                           \
    {                                                                                                                 \
        vector sums[count][TILE_COLUMNS], x[count];                                                                   \
        int64_t i = 0;                                                                                                \
        _Pragma("GCC unroll 4") for (int row = 0; row < count; row++)                                                 \
            _Pragma("GCC unroll 4") for (int column = 0; column < TILE_COLUMNS; column++) sums[row][column] = zero(); \
        for (; i + (step) <= t->depth; i += (step)) {                                                                 \
            _Pragma("GCC unroll 4") for (int row = 0; row < count; row++) x[row] =                                    \
                load((const element *)t->a[row] + i);                                                                 \
            _Pragma("GCC unroll 4") for (int column = 0; column < TILE_COLUMNS; column++)                             \
            {                                                                                                         \
                const vector y = widen(t->b[column] + i);                                                             \
                _Pragma("GCC unroll 4") for (int row = 0; row < count; row++) sums[row][column] =                     \
                    add_products(x[row], y, sums[row][column]);                                                       \
            }                                                                                                         \
        }                                                                                                             \
        _Pragma("GCC unroll 4") for (int row = 0; row < count; row++)                                                 \
            _Pragma("GCC unroll 4") for (int column = 0; column < TILE_COLUMNS; column++)                             \
                t->sums.kind[row][column] = sum_of_##kind##suffix(sums[row][column]);                                 \
        add_##kind(t, i);                                                                                             \
    }
#define DEFINE_AVX2(count)                                                                                 \
    DEFINE_MULTIPLY(_avx2, WITH_AVX2, count, ints, int16_t, 16, __m256i, _mm256_setzero_si256, LOAD_INTS,  \
                    WIDEN_TO_INTS, ADD_INT_PRODUCTS)                                                       \
    DEFINE_MULTIPLY(_avx2, WITH_AVX2, count, floats, float, 8, __m256, _mm256_setzero_ps, _mm256_loadu_ps, \
                    WIDEN_TO_FLOATS, _mm256_fmadd_ps)
#define DEFINE_AVX512(count)                                                                                      \
    DEFINE_MULTIPLY(_avx512, WITH_AVX512, count, ints, int16_t, 32, __m512i, _mm512_setzero_si512, LOAD_INTS_512, \
                    WIDEN_TO_INTS_512, ADD_INT_PRODUCTS_512)                                                      \
    DEFINE_MULTIPLY(_avx512, WITH_AVX512, count, floats, float, 16, __m512, _mm512_setzero_ps, _mm512_loadu_ps,   \
                    WIDEN_TO_FLOATS_512, _mm512_fmadd_ps)
DEFINE_AVX2(1)
DEFINE_AVX2(2)
DEFINE_AVX512(1)
DEFINE_AVX512(2)
DEFINE_AVX512(4)
#endif

/* Returns the functions for tiles of 1, 2 and 4 rows; NULL: none. */
static const tile_function *choose(bool floats)
{
    static const tile_function plain[2][3] = {{multiply_ints}, {multiply_floats}};
#ifdef __x86_64__
    static const tile_function avx2[2][3] = {{multiply_ints_avx2_1, multiply_ints_avx2_2},
                                             {multiply_floats_avx2_1, multiply_floats_avx2_2}};
    static const tile_function avx512[2][3] = {
        {multiply_ints_avx512_1, multiply_ints_avx512_2, multiply_ints_avx512_4},
        {multiply_floats_avx512_1, multiply_floats_avx512_2, multiply_floats_avx512_4}};
    if (shim_has_avx512())
        return avx512[floats];
    if (shim_has_avx2())
        return avx2[floats];
#endif
    return plain[floats];
}

/* ---- all sums ---- */

struct job {
    const struct quantized_product *product;
    const tile_function *multiply;
    int64_t row_blocks, blocks;
    int parts;
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Returns the logarithm (base 2) of the rows of the largest tile that fits. */
static int choose_tile(const struct job *job, int64_t rows)
{
    return rows >= 4 && job->multiply[2] != NULL ? 2 : rows >= 2 && job->multiply[1] != NULL;
}

static void multiply_tile(const struct job *job, int size, int64_t row, int64_t column, int64_t columns)
{
    const struct quantized_product *p = job->product;
    const size_t row_bytes = (size_t)p->depth * (p->floats ? sizeof(float) : sizeof(int16_t));
    struct tile tile = {.depth = p->depth, .rows = 1 << size};
    for (int i = 0; i < tile.rows; i++)
        tile.a[i] = (const char *)p->a + (size_t)(row + i) * row_bytes;
    for (int i = 0; i < TILE_COLUMNS; i++)
        tile.b[i] = p->b + (column + (i < columns ? i : 0)) * p->depth;
    job->multiply[size](&tile);
    for (int i = 0; i < tile.rows; i++)
        memcpy((char *)p->sums + ((row + i) * p->sums_stride + column) * (ptrdiff_t)sizeof(int32_t), tile.sums.ints[i],
               (size_t)columns * sizeof(int32_t));
}

static void multiply_part(void *user, int part)
{
    const struct job *job = user;
    const struct quantized_product *p = job->product;
    for (int64_t block = job->blocks * part / job->parts; block < job->blocks * (part + 1) / job->parts; block++) {
        const int64_t first_row = block % job->row_blocks * BLOCK_ROWS, rows = smaller(first_row + BLOCK_ROWS, p->rows);
        const int64_t first = block / job->row_blocks * BLOCK_COLUMNS,
                      columns = smaller(first + BLOCK_COLUMNS, p->columns);
        for (int64_t row = first_row; row < rows;) {
            const int size = choose_tile(job, rows - row);
            for (int64_t column = first; column < columns; column += TILE_COLUMNS)
                multiply_tile(job, size, row, column, smaller(TILE_COLUMNS, columns - column));
            row += 1 << size;
        }
    }
}

void aoticache_shim_quantized_multiply(const struct quantized_product *p)
{
    struct job job = {.product = p, .multiply = choose(p->floats)};
    job.row_blocks = (p->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    job.blocks = job.row_blocks * ((p->columns + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS);
    job.parts = aoticache_shim_parts((double)p->rows * (double)p->columns * (double)p->depth, job.blocks);
    if (job.blocks > 0)
        aoticache_shim_parallel(job.parts, multiply_part, &job);
}

/* ---- operands ---- */

AOTITorchError aoticache_shim_quantized_rows(const char *function, AtenTensorHandle tensor, bool transposed,
                                             AtenTensorHandle *ret_rows)
{
    const struct shim_tensor *t = tensor->tensor;
    const int outer = transposed ? 1 : 0, inner = 1 - outer;
    const int64_t sizes[] = {t->sizes[outer], t->sizes[inner]}, strides[] = {t->strides[outer], t->strides[inner]};
    cleanup_tensor AtenTensorHandle turned = NULL;
    SHIM_TRY(aoticache_shim_tensor_view(function, t, t->dtype, 2, sizes, strides, t->offset, &turned));
    return aoticache_shim_read(function, turned, AOTICACHE_DTYPE_INT8, ret_rows);
}

void aoticache_shim_quantized_widen(const struct shim_tensor *tensor, int zero_point, int16_t *to)
{
    const int64_t count = tensor->numel;
    if (tensor->dtype == AOTICACHE_DTYPE_UINT8)
        for (int64_t i = 0; i < count; i++)
            to[i] = (int16_t)(((const uint8_t *)tensor->data)[i] - zero_point);
    else
        for (int64_t i = 0; i < count; i++)
            to[i] = (int16_t)(((const int8_t *)tensor->data)[i] - zero_point);
}
