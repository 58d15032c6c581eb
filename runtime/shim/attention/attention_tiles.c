/*
 * shim/attention/attention_tiles: multiplies bfloat16 matrices with AMX tiles: 16 rows of 32 elements by 32 rows of 16, in
 * float. Two tiles of the first matrix are multiplied with two of the second together, so that each load serves two
 * multiplications.
 *
 * Source of the instructions and the layout: Intel 64 and IA-32 Architectures Software Developer's Manual, TDPBF16PS.
 */
#include "runtime/shim/attention/attention_tiles.h"

#include <string.h>

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WITH_AMX __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl")))
#define WITH_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

enum { ASK_FOR_STATE = 0x1023, TILE_DATA = 18 }; /* arch_prctl: ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 }; /* bits of CPUID 7, EDX */
enum { BLOCK_ROWS = 16, PAIR_BYTES = 4 };

static pthread_once_t tiles_once = PTHREAD_ONCE_INIT;
static bool has_tiles;

static void look_for_tiles(void)
{
    unsigned eax, ebx, ecx, edx;
    if (shim_has_avx512() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & AMX_BF16) && (edx & AMX_TILE))
        has_tiles = syscall(SYS_arch_prctl, ASK_FOR_STATE, TILE_DATA) == 0;
}

bool aoticache_shim_has_tiles(void)
{
    pthread_once(&tiles_once, look_for_tiles);
    return has_tiles;
}

WITH_AMX void aoticache_shim_tiles_begin(void)
{
    /* Palette 1; all eight tiles have 16 rows of 64 bytes. */
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        config.row_bytes[i] = BLOCK_ROWS * PAIR_BYTES;
        config.rows[i] = BLOCK_ROWS;
    }
    __asm__ volatile("" : : "r"(&config) : "memory"); /* GCC assumes that only the first bytes are read */
    _tile_loadconfig(&config);
}

WITH_AMX void aoticache_shim_tiles_end(void)
{
    _tile_release();
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t blocks_of(int64_t width)
{
    return (width + SHIM_TILE_SIZE - 1) / SHIM_TILE_SIZE;
}

void aoticache_shim_tiles_pack_keys(int64_t count, int64_t width, const char *rows, ptrdiff_t stride, char *to)
{
    const int64_t padded = blocks_of(count) * SHIM_TILE_SIZE;
    float block[BLOCK_ROWS][BLOCK_ROWS]; /* each number is a pair of elements, which stay together */
    for (int64_t first = 0; first < padded; first += BLOCK_ROWS) {
        for (int64_t k = 0; k < width; k += SHIM_TILE_SIZE, to += SHIM_TILE_BLOCK_BYTES) {
            const size_t bytes = (size_t)smaller(SHIM_TILE_SIZE, width - k) * sizeof(uint16_t);
            if (first + BLOCK_ROWS > count || bytes < sizeof block[0])
                memset(block, 0, sizeof block);
            for (int64_t i = 0; i < BLOCK_ROWS && first + i < count; i++)
                memcpy(block[i], rows + (first + i) * stride + k * (ptrdiff_t)sizeof(uint16_t), bytes);
            aoticache_shim_transpose_16(block[0], BLOCK_ROWS, (float *)(void *)to, BLOCK_ROWS);
        }
    }
}

/* Interleaves two rows, element by element. */
static WITH_AVX512 void interleave(const uint16_t *even, const uint16_t *odd, char *to)
{
    const __m512i low = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)even));
    const __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)odd));
    _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
}

void aoticache_shim_tiles_pack_values(int64_t count, int64_t width, const char *rows, ptrdiff_t stride, char *to)
{
    const int64_t padded = blocks_of(count) * SHIM_TILE_SIZE, padded_width = blocks_of(width) * SHIM_TILE_SIZE;
    for (int64_t first = 0; first < padded; first += SHIM_TILE_SIZE) {
        for (int64_t n = 0; n < padded_width; n += BLOCK_ROWS) {
            const size_t bytes = n < width ? (size_t)smaller(BLOCK_ROWS, width - n) * sizeof(uint16_t) : 0;
            for (int64_t i = first; i < first + SHIM_TILE_SIZE; i += 2, to += BLOCK_ROWS * PAIR_BYTES) {
                uint16_t pair[2][BLOCK_ROWS] = {{0}};
                for (int64_t j = 0; j < 2 && i + j < count; j++)
                    memcpy(pair[j], rows + (i + j) * stride + n * (ptrdiff_t)sizeof(uint16_t), bytes);
                interleave(pair[0], pair[1], to);
            }
        }
    }
}

/* Computes 32 rows by 32 columns of the result. */
static WITH_AMX void multiply_block(const struct shim_tile_product *p, const char *a, const char *packed, char *out)
{
    char *lower = out + BLOCK_ROWS * p->out_stride;
    const ptrdiff_t right = BLOCK_ROWS * (ptrdiff_t)sizeof(float);
    if (p->adds) {
        _tile_loadd(0, out, p->out_stride);
        _tile_loadd(1, out + right, p->out_stride);
        _tile_loadd(2, lower, p->out_stride);
        _tile_loadd(3, lower + right, p->out_stride);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < p->depth;
         k += SHIM_TILE_SIZE, packed += p->k_stride, a += SHIM_TILE_SIZE * sizeof(uint16_t)) {
        _tile_loadd(4, a, p->a_stride);
        _tile_loadd(5, a + BLOCK_ROWS * p->a_stride, p->a_stride);
        _tile_loadd(6, packed, BLOCK_ROWS * PAIR_BYTES);
        _tile_loadd(7, packed + p->n_stride, BLOCK_ROWS * PAIR_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, out, p->out_stride);
    _tile_stored(1, out + right, p->out_stride);
    _tile_stored(2, lower, p->out_stride);
    _tile_stored(3, lower + right, p->out_stride);
}

void aoticache_shim_tiles_multiply(const struct shim_tile_product *p)
{
    for (int64_t column = 0; column < p->columns; column += SHIM_TILE_SIZE)
        for (int64_t row = 0; row < p->rows; row += SHIM_TILE_SIZE)
            multiply_block(p, (const char *)p->a + row * p->a_stride, p->packed + column / BLOCK_ROWS * p->n_stride,
                           (char *)p->out + row * p->out_stride + column * (ptrdiff_t)sizeof(float));
}

#else

bool aoticache_shim_has_tiles(void)
{
    return false;
}

void aoticache_shim_tiles_begin(void) {}
void aoticache_shim_tiles_end(void) {}

void aoticache_shim_tiles_pack_keys(int64_t count, int64_t width, const char *rows, ptrdiff_t stride, char *to)
{
    (void)count, (void)width, (void)rows, (void)stride, (void)to;
}

void aoticache_shim_tiles_pack_values(int64_t count, int64_t width, const char *rows, ptrdiff_t stride, char *to)
{
    (void)count, (void)width, (void)rows, (void)stride, (void)to;
}

void aoticache_shim_tiles_multiply(const struct shim_tile_product *product)
{
    (void)product;
}

#endif
