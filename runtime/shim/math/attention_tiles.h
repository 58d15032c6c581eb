/*
 * shim/math/attention_tiles: products of bfloat16 matrices by the tiles of AMX, for attention.
 *
 * Private to runtime/shim/math/.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_ATTENTION_TILES_H
#define AOTICACHE_RUNTIME_SHIM_MATH_ATTENTION_TILES_H

#include "runtime/shim/math/internal.h"

/* Rows, columns and depth of a product are multiples of this many elements; packed blocks have so many bytes. */
enum { SHIM_TILE_SIZE = 32, SHIM_TILE_BLOCK_BYTES = 1024 };

/* Whether this processor has AMX and the kernel lets the process use it. Asks the kernel once. */
bool aoticache_shim_has_tiles(void);

/* A thread sets its tiles up before products, and gives them up afterwards. */
void aoticache_shim_tiles_begin(void);
void aoticache_shim_tiles_end(void);

/*
 * Packs a matrix of bfloat16 as the second one of a product, in blocks of 32 rows by 16 columns, or its transpose:
 * `count` rows of `width` elements that lie `stride` bytes apart. What the last blocks lack is zero.
 *
 * Of the transpose (keys, a row for each column of the product) block (k, n) is at n * blocks of the width + k, where the
 * width counts as a multiple of SHIM_TILE_SIZE; of the matrix itself (values) at k * twice those + n.
 */
void aoticache_shim_tiles_pack_keys(int64_t count, int64_t width, const char *rows, ptrdiff_t stride, char *to);
void aoticache_shim_tiles_pack_values(int64_t count, int64_t width, const char *rows, ptrdiff_t stride, char *to);

/* out = a * packed, or out += that. Strides in bytes. */
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
