/*
 * shim/attention/attention_tiles: matrix multiplication of bfloat16 with AMX tiles, for attention.
 *
 * Private to runtime/shim/attention/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_ATTENTION_TILES_H
#define AOTICACHE_RUNTIME_SHIM_MATH_ATTENTION_TILES_H

#include "runtime/shim/math/math_internal.h"

/*
 * Rows, columns and depth are multiples of SHIM_TILE_SIZE elements; packed blocks have SHIM_TILE_BLOCK_BYTES.
 */
enum { SHIM_TILE_SIZE = 32, SHIM_TILE_BLOCK_BYTES = 1024 };

/* Returns whether this processor has AMX and the kernel lets the process use it. Asks the kernel once. */
bool aoticache_shim_has_tiles(void);

/* Set up and release the calling thread's tiles, before and after multiplications. */
void aoticache_shim_tiles_begin(void);
void aoticache_shim_tiles_end(void);

/*
 * Pack a matrix of bfloat16 (values), or its transpose (keys), as the second operand, in blocks of 32 rows by 16
 * columns. The matrix has `count` rows of `width` elements that are `stride` bytes apart. The last blocks are padded
 * with zeros.
 *
 * In the transpose (keys, one row for each column of the result) block (k, n) has the position n * w + k, where w is
 * width / SHIM_TILE_SIZE, rounded up. In the matrix itself (values) it has the position k * 2 * w + n.
 */
void aoticache_shim_tiles_pack_keys(int64_t count, int64_t width, const char *rows, ptrdiff_t stride, char *to);
void aoticache_shim_tiles_pack_values(int64_t count, int64_t width, const char *rows, ptrdiff_t stride, char *to);

/* out = a * packed, or out += a * packed if `adds`. Strides in bytes. */
struct shim_tile_product {
    int64_t rows, columns, depth;
    const void *a; /* bfloat16 */
    ptrdiff_t a_stride;
    const char *packed;
    ptrdiff_t k_stride, n_stride; /* from one block to the next */
    float *out;
    ptrdiff_t out_stride;
    bool adds;
};
void aoticache_shim_tiles_multiply(const struct shim_tile_product *product);

#endif
