/*
 * shim/quantized/quantized_int4: multiplication with a 4-bit weight that has a scale and a zero for each result and group of
 * inputs.
 *
 * PyTorch packs the weight in blocks of results, in an order that depends on the processor; on processors with AVX2 or
 * AVX-512 it is the order of the loops here. A few rows, as when text is generated token by token, are multiplied with
 * weights in registers. For more rows a block is first converted to floats, few enough inputs at a time to stay in the
 * second-level cache.
 *
 * Sources: _weight_int4pack_mm_cpu (aten/src/ATen/native/LinearAlgebra.cpp), aten/src/ATen/native/cpu/int4mm_kernel.cpp.
 */
#include "runtime/shim/quantized/quantized.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <stdatomic.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { MOST_BLOCK = 64, PLAIN_BLOCK = 32, AT_ONCE = 512, FEW_ROWS = 8 };

struct int4_job {
    const uint8_t *bytes;    /* results / 2 x depth, in blocks of results */
    const float *x, *scales; /* rows x depth; depth / group x results x (scale, zero) */
    float *out;              /* rows x results */
    char *unpacked;          /* AT_ONCE x MOST_BLOCK floats for each part */
    int64_t rows, depth, results, group, block;
    int parts;
    const struct int4_loops *loops; /* NULL: none for this processor */
    atomic_bool out_of_memory;
};

/* The loops for a processor, for whole blocks. */
struct int4_loops {
    int64_t block;
    /* Writes weights of a block, for inputs `from` to `end` - 1, as rows of floats. */
    void (*unpack)(const struct int4_job *job, int64_t first, int64_t from, int64_t end, float *to);
    /* Computes the results of a block, for some rows from `row` on; returns the number of rows. */
    int64_t (*multiply)(const struct int4_job *job, int64_t first, int64_t row);
};

static const float *scales_of(const struct int4_job *job, int64_t input, int64_t result)
{
    return job->scales + (input / job->group * job->results + result) * 2;
}

static int64_t end_of_group(const struct int4_job *job, int64_t input, int64_t end)
{
    const int64_t next = (input / job->group + 1) * job->group;
    return next < end ? next : end;
}

/* Returns the bytes of a block's results at one input. */
static const uint8_t *bytes_at(const struct int4_job *job, int64_t first, int64_t width, int64_t input)
{
    return job->bytes + first * job->depth / 2 + input * (width / 2);
}

#ifdef __x86_64__

/* ---- loops ---- */

#define WITH_AVX2 __attribute__((target("avx2,fma")))
#define WITH_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define INLINE static inline __attribute__((always_inline))

/* Unpacks a block's weights at one input, four vectors: the low halves of all bytes, then the high ones. */
INLINE WITH_AVX512 void weights_avx512(const uint8_t *bytes, __m512 ret[4])
{
    const __m512 values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i low = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)bytes));
    const __m512i high = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(bytes + 16)));
    ret[0] = _mm512_permutexvar_ps(low, values); /* the lowest four bits select the value */
    ret[1] = _mm512_permutexvar_ps(high, values);
    ret[2] = _mm512_permutexvar_ps(_mm512_srli_epi32(low, 4), values);
    ret[3] = _mm512_permutexvar_ps(_mm512_srli_epi32(high, 4), values);
}

INLINE WITH_AVX2 void weights_avx2(const uint8_t *bytes, __m256 ret[4])
{
    const __m256i mask = _mm256_set1_epi32(15), eight = _mm256_set1_epi32(8);
    const __m256i low = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)bytes));
    const __m256i high = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(bytes + 8)));
    ret[0] = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_and_si256(low, mask), eight));
    ret[1] = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_and_si256(high, mask), eight));
    ret[2] = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(low, 4), eight));
    ret[3] = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(high, 4), eight));
}

/* Splits pairs of scale and zero into a vector of each. */
INLINE WITH_AVX512 void pairs_avx512(const float *pairs, __m512 *ret_scale, __m512 *ret_zero)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512 a = _mm512_loadu_ps(pairs), b = _mm512_loadu_ps(pairs + 16);
    *ret_scale = _mm512_permutex2var_ps(a, even, b);
    *ret_zero = _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
}

INLINE WITH_AVX2 void pairs_avx2(const float *pairs, __m256 *ret_scale, __m256 *ret_zero)
{
    const __m256 a = _mm256_loadu_ps(pairs), b = _mm256_loadu_ps(pairs + 8);
    const __m256d scale = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88));
    const __m256d zero = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd));
    *ret_scale = _mm256_castpd_ps(_mm256_permute4x64_pd(scale, 0xd8));
    *ret_zero = _mm256_castpd_ps(_mm256_permute4x64_pd(zero, 0xd8));
}

#define EACH_VECTOR(X) X(0) X(1) X(2) X(3)
#define EACH_SUM_OF_ROW(X, r) X(r, 0) X(r, 1) X(r, 2) X(r, 3)
#define EACH_SUM(X) EACH_SUM_OF_ROW(X, 0) EACH_SUM_OF_ROW(X, 1) EACH_SUM_OF_ROW(X, 2) EACH_SUM_OF_ROW(X, 3)
#define SCALE(v) const vector w##v = weights[v] * scale##v + zero##v;
#define STORE(v) memcpy(to + (v) * LANES, &w##v, sizeof w##v);
#define BEGIN_SUM(r, v) vector sum##r##v = {0};
#define ADD(r, v) \
    if (rows > r) \
        sum##r##v += x[(r) * job->depth + k] * w##v;
#define END_SUM(r, v) \
    if (rows > r)     \
        memcpy(out + (r) * job->results + (v) * LANES, &sum##r##v, sizeof sum##r##v);

#define DEFINE_LOOPS(name, vector_type, most_rows, attribute)                                                          \
    static attribute void unpack_##name(const struct int4_job *job, int64_t first, int64_t from_input, int64_t end,    \
                                        float *to)                                                                     \
    {                                                                                                                  \
        typedef vector_type vector;                                                                                    \
        enum { LANES = sizeof(vector) / sizeof(float) };                                                               \
        for (int64_t k = from_input; k < end;) {                                                                       \
            vector scale0, scale1, scale2, scale3, zero0, zero1, zero2, zero3, weights[4];                             \
            const float *from = scales_of(job, k, first);                                                              \
            EACH_VECTOR(READ_PAIRS_##name)                                                                             \
            for (const int64_t group_end = end_of_group(job, k, end); k < group_end; k++, to += 4 * LANES) {           \
                weights_##name(bytes_at(job, first, 4 * LANES, k), weights);                                           \
                EACH_VECTOR(SCALE)                                                                                     \
                EACH_VECTOR(STORE)                                                                                     \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
    INLINE attribute void multiply_rows_##name(const int rows, const struct int4_job *job, int64_t first, int64_t row) \
    {                                                                                                                  \
        typedef vector_type vector;                                                                                    \
        enum { LANES = sizeof(vector) / sizeof(float) };                                                               \
        const float *x = job->x + row * job->depth;                                                                    \
        float *out = job->out + row * job->results + first;                                                            \
        EACH_SUM(BEGIN_SUM)                                                                                            \
        for (int64_t k = 0; k < job->depth;) {                                                                         \
            vector scale0, scale1, scale2, scale3, zero0, zero1, zero2, zero3, weights[4];                             \
            const float *from = scales_of(job, k, first);                                                              \
            EACH_VECTOR(READ_PAIRS_##name)                                                                             \
            for (const int64_t group_end = end_of_group(job, k, job->depth); k < group_end; k++) {                     \
                weights_##name(bytes_at(job, first, 4 * LANES, k), weights);                                           \
                EACH_VECTOR(SCALE)                                                                                     \
                EACH_SUM(ADD)                                                                                          \
            }                                                                                                          \
        }                                                                                                              \
        EACH_SUM(END_SUM)                                                                                              \
    }                                                                                                                  \
    static attribute int64_t multiply_##name(const struct int4_job *job, int64_t first, int64_t row)                   \
    {                                                                                                                  \
        if (most_rows == 4 && job->rows - row >= 4) {                                                                  \
            multiply_rows_##name(4, job, first, row);                                                                  \
            return 4;                                                                                                  \
        }                                                                                                              \
        multiply_rows_##name(1, job, first, row);                                                                      \
        return 1;                                                                                                      \
    }                                                                                                                  \
    static const struct int4_loops loops_##name = {4 * sizeof(vector_type) / sizeof(float), unpack_##name,             \
                                                   multiply_##name};
#define READ_PAIRS_avx512(v) pairs_avx512(from + (v) * 2 * LANES, &scale##v, &zero##v);
#define READ_PAIRS_avx2(v) pairs_avx2(from + (v) * 2 * LANES, &scale##v, &zero##v);

DEFINE_LOOPS(avx512, __m512, 4, WITH_AVX512)
DEFINE_LOOPS(avx2, __m256, 1, WITH_AVX2) /* AVX2 has half as many registers */

static const struct int4_loops *find_loops(void)
{
    if (!shim_has_avx2())
        return NULL;
    return shim_has_avx512() ? &loops_avx512 : &loops_avx2;
}
#else
static const struct int4_loops *find_loops(void)
{
    return NULL;
}
#endif

/* ---- blocks ---- */

/* Unpacks the last block, if it is not a whole one, and all blocks if there are no loops: neighbours share a byte. */
static void unpack_plainly(const struct int4_job *job, int64_t first, int64_t width, int64_t from, int64_t end,
                           float *to)
{
    for (int64_t k = from; k < end; k++, to += width) {
        const uint8_t *bytes = bytes_at(job, first, width, k);
        const float *scales = scales_of(job, k, first);
        for (int64_t i = 0; i < width; i++) {
            const int weight = (i % 2 != 0 ? bytes[i / 2] >> 4 : bytes[i / 2] & 15) - 8;
            to[i] = (float)weight * scales[2 * i] + scales[2 * i + 1];
        }
    }
}

/* Multiplies with unpacked weights. False: out of memory. */
static bool multiply_unpacked(const struct int4_job *job, int64_t first, int64_t width, float *unpacked)
{
    const ptrdiff_t item = sizeof(float);
    struct matmul_problem problem = {.arithmetic = aoticache_shim_matmul_arithmetic(SHIM_CLASS_FLOAT),
                                     .access = aoticache_shim_dtype_access(AOTICACHE_DTYPE_FLOAT32),
                                     .item_bytes = sizeof(float),
                                     .rows = job->rows,
                                     .columns = width,
                                     .alpha = 1,
                                     .beta = 1,
                                     .b = {(char *)unpacked, width * item, item},
                                     .out = {(char *)(job->out + first), job->results * item, item}};
    for (int64_t k = 0; k < job->depth; k += AT_ONCE) {
        const int64_t end = k + AT_ONCE < job->depth ? k + AT_ONCE : job->depth;
        if (job->loops != NULL && width == job->block)
            job->loops->unpack(job, first, k, end, unpacked);
        else
            unpack_plainly(job, first, width, k, end, unpacked);
        problem.depth = end - k;
        problem.a = (struct matmul_matrix){(char *)(job->x + k), job->depth * item, item};
        if (k > 0)
            problem.addend = problem.out;
        if (!aoticache_shim_matmul(&problem))
            return false;
    }
    return true;
}

static void multiply_part(void *user, int part)
{
    struct int4_job *job = user;
    const int64_t blocks = (job->results + job->block - 1) / job->block, end = blocks * (part + 1) / job->parts;
    float *unpacked = (float *)(void *)job->unpacked + (int64_t)part * AT_ONCE * MOST_BLOCK;
    for (int64_t i = blocks * part / job->parts; i < end; i++) {
        const int64_t first = i * job->block, rest = job->results - first;
        const int64_t width = rest < job->block ? rest : job->block;
        if (job->loops != NULL && width == job->block && job->rows <= FEW_ROWS) {
            for (int64_t row = 0; row < job->rows;)
                row += job->loops->multiply(job, first, row);
        } else if (!multiply_unpacked(job, first, width, unpacked)) {
            atomic_store(&job->out_of_memory, true);
        }
    }
}

AOTITorchError aoti_torch_cpu__weight_int4pack_mm_cpu_tensor(AtenTensorHandle X, AtenTensorHandle w,
                                                             AtenTensorHandle qGroupSize,
                                                             AtenTensorHandle qScaleAndZeros, AtenTensorHandle *ret0)
{
    cleanup_tensor AtenTensorHandle left = NULL, bytes = NULL, factors = NULL, out = NULL, room = NULL;
    int64_t group = 0;
    SHIM_CHECK_RESULT(ret0);
    SHIM_TRY(aoticache_shim_check_defined(__func__, (const AtenTensorHandle[]){X, w, qGroupSize, qScaleAndZeros}, 4));
    SHIM_TRY(aoti_torch_item_int64(qGroupSize, &group));
    const struct shim_tensor *x = X->tensor, *packed = w->tensor, *s = qScaleAndZeros->tensor;
    SHIM_TRY(aoticache_shim_check_activations(__func__, x, s));
    if (packed->dtype != AOTICACHE_DTYPE_UINT8 || x->ndim != 2 || packed->ndim != 2 ||
        packed->sizes[1] * 2 != x->sizes[1] || packed->sizes[0] % 16 != 0)
        return aoticache_shim_fail("%s: a packed weight of uint8 is needed: a multiple of 16 rows, half the "
                                   "inputs as columns",
                                   __func__);
    const int64_t rows = x->sizes[0], results = packed->sizes[0], depth = x->sizes[1], sizes[] = {rows, results};
    if (group < 1 || depth % group != 0 || s->ndim != 3 || s->sizes[0] != depth / group || s->sizes[1] != results ||
        s->sizes[2] != 2)
        return aoticache_shim_fail("%s: scales of %lld / %lld x %lld x 2 are needed", __func__, (long long)depth,
                                   (long long)group, (long long)results);
    SHIM_TRY(aoticache_shim_read(__func__, X, AOTICACHE_DTYPE_FLOAT32, &left));
    SHIM_TRY(aoticache_shim_read(__func__, w, AOTICACHE_DTYPE_UINT8, &bytes));
    SHIM_TRY(aoticache_shim_read(__func__, qScaleAndZeros, AOTICACHE_DTYPE_FLOAT32, &factors));
    SHIM_TRY(aoticache_shim_make(__func__, 2, sizes, AOTICACHE_DTYPE_FLOAT32, &out));
    struct int4_job job = {.bytes = bytes->tensor->data,
                           .x = left->tensor->data,
                           .scales = factors->tensor->data,
                           .out = out->tensor->data,
                           .rows = rows,
                           .depth = depth,
                           .results = results,
                           .group = group,
                           .loops = find_loops()};
    job.block = job.loops != NULL ? job.loops->block : PLAIN_BLOCK;
    job.parts = aoticache_shim_parts((double)(rows + 4) * (double)results * (double)depth, results / 16);
    SHIM_TRY(aoticache_shim_make(__func__, 2, (const int64_t[]){job.parts, AT_ONCE * MOST_BLOCK},
                                 AOTICACHE_DTYPE_FLOAT32, &room));
    job.unpacked = room->tensor->data;
    if (depth == 0)
        SHIM_TRY(aoti_torch_zero_(out));
    else
        aoticache_shim_parallel(job.parts, multiply_part, &job);
    if (atomic_load(&job.out_of_memory))
        return aoticache_shim_fail_memory(__func__, (size_t)(rows * results) * sizeof(float));
    return aoticache_shim_read(__func__, out, x->dtype, ret0);
}
