/*
 * shim/attention/attention: scaled dot-product attention, softmax(scale Q Kᵀ + mask) V, for each head of each batch.
 *
 * Source: aten::_scaled_dot_product_flash_attention_for_cpu (aten/src/ATen/native/transformers/attention.cpp). A block
 * of queries is multiplied with the keys tile by tile, and the largest score and the sum of weights of each row are
 * updated, so that memory does not grow with the product of both lengths. Float16 and bfloat16 are computed in float.
 * matmul_block.c and blas.c multiply, attention_rows.c has the softmax; blocks are divided among the threads.
 *
 * If PyTorch would read outside of its operands (the number of key heads does not divide that of the query, or values
 * are shorter than keys), the operands are refused. If it would divide by zero (no keys), the result is zeros, as it is
 * for rows whose keys are all masked.
 */
#include "runtime/shim/attention/attention_tiles.h"

#include "runtime/shim/operators.h"
#include "runtime/shim/tensors/elements.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/*
 * A block has BLOCK_QUERIES queries and a tile TILE_KEYS keys: their scores take 128 KB as floats. Rows of scores are
 * padded to whole vectors.
 */
enum { BLOCK_QUERIES = 64, TILE_KEYS = 512, PADDING = SHIM_TILE_SIZE };

/*
 * Blocks of fewer queries, and matrices with fewer multiplications, are computed row by row; blas.c does not use BLAS
 * for these either.
 */
enum { FEW_QUERIES = 4, SMALL_PRODUCTS = 64000, SMALL_WIDTH = 16 };

/* The least number of queries per head of keys for which keys are packed for tiles (attention_tiles.c). */
enum { QUERIES_FOR_TILES = 32 };

struct attention {
    const struct shim_tensor *query, *key, *value, *mask; /* mask: NULL, or with 2 or 4 dimensions */
    struct shim_tensor *out, *logsumexp;
    const struct shim_dtype_access *access, *value_access; /* of the operands; of the values used for computing */
    const struct matmul_arithmetic *arithmetic;
    struct attention_arithmetic rows;
    bool causal, is_converted; /* is_converted: operands have another dtype than that used for computing */
    bool reads_halves;         /* bfloat16 keys and values are read unconverted, for few queries */
    double scale;
    int64_t batches, heads, queries, keys, width;
    int64_t heads_per_key, blocks; /* blocks: blocks of queries in a head */
    size_t value_bytes;
    int parts;
    char *memory; /* `step` bytes for each part */
    size_t step;
    char *packed; /* keys, then values of each head of keys, `packed_bytes` each; NULL: no tiles */
    size_t packed_bytes;
    atomic_bool out_of_memory;
};

/* One block of queries, and the state of its rows. */
struct block {
    int64_t batch, head, first, rows;
    char *query, *key, *value; /* converted tiles; unused if operands need no conversion */
    char *scores, *sums_of_values, *mask;
    char *weights; /* scores as bfloat16, for tiles */
    double max[BLOCK_QUERIES], sum[BLOCK_QUERIES];
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t padded(int64_t count)
{
    return (count + PADDING - 1) / PADDING * PADDING;
}

/* Returns the number of columns of the sums of values, at least the width of a value. */
static int64_t sum_columns(const struct attention *a)
{
    return a->packed != NULL ? padded(a->width) : a->width;
}

static struct matmul_matrix matrix_of(const struct shim_tensor *tensor, int64_t batch, int64_t head)
{
    const int64_t *strides = tensor->strides;
    const ptrdiff_t item = (ptrdiff_t)tensor->item_bytes;
    return (struct matmul_matrix){(char *)tensor->data + (batch * strides[0] + head * strides[1]) * item,
                                  strides[2] * item, strides[3] * item};
}

/* Returns the rows of a head from `first` on: the memory itself, or values in `converted`. */
static struct matmul_matrix rows_of(const struct attention *a, const struct shim_tensor *tensor, int64_t batch,
                                    int64_t head, int64_t first, int64_t rows, char *converted)
{
    struct matmul_matrix matrix = matrix_of(tensor, batch, head);
    matrix.data += first * matrix.row_stride;
    if (!a->is_converted || (a->reads_halves && tensor != a->query))
        return matrix;
    const ptrdiff_t value_bytes = (ptrdiff_t)a->value_bytes, line = (ptrdiff_t)a->width * value_bytes;
    for (int64_t i = 0; i < rows; i++)
        a->access->load((size_t)a->width, converted + i * line, matrix.data + i * matrix.row_stride,
                        matrix.column_stride);
    return (struct matmul_matrix){converted, line, value_bytes};
}

/* Returns the mask's part for one row of a tile; NULL if there is no mask. */
static const void *mask_row(const struct attention *a, const struct block *block, int64_t row, int64_t first_key,
                            int64_t keys)
{
    const struct shim_tensor *mask = a->mask;
    if (mask == NULL)
        return NULL;
    const int64_t at[4] = {block->batch, block->head, block->first + row, first_key};
    int64_t offset = 0;
    int skipped = 4 - mask->ndim;
    for (int d = 0; d < mask->ndim; d++)
        if (mask->sizes[d] != 1)
            offset += at[d + skipped] * mask->strides[d];
    int last = mask->ndim - 1;
    const ptrdiff_t item = (ptrdiff_t)mask->item_bytes;
    const ptrdiff_t stride = mask->sizes[last] != 1 ? (ptrdiff_t)mask->strides[last] * item : 0;
    aoticache_shim_dtype_access(mask->dtype)
        ->load((size_t)keys, block->mask, (const char *)mask->data + offset * item, stride);
    return block->mask;
}

static void scale_values(const struct attention *a, char *values, double factor)
{
    if (factor == 1)
        return;
    if (a->value_bytes == sizeof(float))
        for (int64_t i = 0; i < a->width; i++)
            ((float *)(void *)values)[i] *= (float)factor;
    else
        for (int64_t i = 0; i < a->width; i++)
            ((double *)(void *)values)[i] *= factor;
}

/*
 * Returns true if the rows of matrices are used in place. A matrix multiplication first reorders them. With few
 * queries, as when text is generated token by token, this would cost more than the work on each key; small matrices are
 * finished before reordering would be.
 */
static bool is_direct(const struct attention *a, const struct block *block, const struct matmul_matrix *matrix,
                      int64_t keys)
{
    return matrix->column_stride == (ptrdiff_t)a->value_bytes &&
           (block->rows < FEW_QUERIES ||
            (a->width >= SMALL_WIDTH && a->width < SMALL_PRODUCTS && block->rows * keys * a->width < SMALL_PRODUCTS));
}

/* Computes scores = query keyᵀ. False: out of memory. */
static bool score_tile(const struct attention *a, const struct block *block, const struct matmul_matrix *query,
                       const struct matmul_matrix *key, int64_t keys, const struct matmul_matrix *scores)
{
    if (a->reads_halves || (is_direct(a, block, query, keys) && is_direct(a, block, key, keys))) {
        for (int64_t i = 0; i < block->rows; i++)
            (a->reads_halves ? a->rows.score_halves
                             : a->rows.score)(keys, a->width, query->data + i * query->row_stride, key->data,
                                              key->row_stride, scores->data + i * scores->row_stride);
        return true;
    }
    const struct matmul_problem problem = {.arithmetic = a->arithmetic,
                                           .access = a->value_access,
                                           .item_bytes = (uint32_t)a->value_bytes,
                                           .rows = block->rows,
                                           .columns = keys,
                                           .depth = a->width,
                                           .alpha = 1,
                                           .a = *query,
                                           .out = *scores,
                                           .b = {key->data, key->column_stride, key->row_stride}};
    return aoticache_shim_matmul(&problem);
}

/* Computes sums = weights value, added to the present sums unless the tile is the first. False: out of memory. */
static bool add_values(const struct attention *a, const struct block *block, const struct matmul_matrix *weights,
                       const struct matmul_matrix *value, int64_t keys, bool is_first)
{
    const ptrdiff_t value_bytes = (ptrdiff_t)a->value_bytes, line = (ptrdiff_t)a->width * value_bytes;
    const struct matmul_matrix sums = {block->sums_of_values, line, value_bytes};
    if (a->reads_halves || is_direct(a, block, value, keys)) {
        for (int64_t i = 0; i < block->rows; i++) {
            if (is_first)
                memset(sums.data + i * line, 0, (size_t)line);
            (a->reads_halves ? a->rows.add_halves : a->rows.add)(keys, a->width,
                                                                 weights->data + i * weights->row_stride, value->data,
                                                                 value->row_stride, sums.data + i * line);
        }
        return true;
    }
    struct matmul_problem problem = {.arithmetic = a->arithmetic,
                                     .access = a->value_access,
                                     .item_bytes = (uint32_t)a->value_bytes,
                                     .rows = block->rows,
                                     .columns = a->width,
                                     .depth = keys,
                                     .alpha = 1,
                                     .beta = 1,
                                     .a = *weights,
                                     .b = *value,
                                     .out = sums};
    if (!is_first)
        problem.addend = sums;
    return aoticache_shim_matmul(&problem);
}

/* ---- the same with AMX tiles, for keys and values that are packed already ---- */

static char *packed_at(const struct attention *a, int64_t batch, int64_t key_head)
{
    return a->packed + (size_t)(batch * a->key->sizes[1] + key_head) * 2 * a->packed_bytes;
}

/* Copies the block's rows of queries, padded with zeros. */
static void copy_queries(const struct attention *a, const struct block *block)
{
    const struct matmul_matrix query = matrix_of(a->query, block->batch, block->head);
    const ptrdiff_t item = sizeof(uint16_t), line = padded(a->width) * item;
    memset(block->query, 0, (size_t)(padded(block->rows) * line));
    for (int64_t i = 0; i < block->rows; i++)
        memcpy(block->query + i * line, query.data + (block->first + i) * query.row_stride, (size_t)(a->width * item));
}

static void score_by_tiles(const struct attention *a, const struct block *block, int64_t first_key, int64_t keys)
{
    const ptrdiff_t blocks = padded(a->width) / SHIM_TILE_SIZE * SHIM_TILE_BLOCK_BYTES;
    aoticache_shim_tiles_multiply(
        &(struct shim_tile_product){.rows = padded(block->rows),
                                    .columns = padded(keys),
                                    .depth = padded(a->width),
                                    .a = block->query,
                                    .a_stride = padded(a->width) * (ptrdiff_t)sizeof(uint16_t),
                                    .packed = packed_at(a, block->batch, block->head / a->heads_per_key) +
                                              first_key / (SHIM_TILE_SIZE / 2) * blocks,
                                    .k_stride = SHIM_TILE_BLOCK_BYTES,
                                    .n_stride = blocks,
                                    .out = (float *)(void *)block->scores,
                                    .out_stride = padded(keys) * (ptrdiff_t)sizeof(float)});
}

static void add_by_tiles(const struct attention *a, const struct block *block, int64_t first_key, int64_t keys)
{
    const ptrdiff_t line = padded(keys), blocks = 2 * padded(a->width) / SHIM_TILE_SIZE * SHIM_TILE_BLOCK_BYTES;
    for (int64_t i = 0; i < block->rows; i++)
        a->access->store((size_t)line, block->weights + i * line * (ptrdiff_t)sizeof(uint16_t), sizeof(uint16_t),
                         block->scores + i * line * (ptrdiff_t)sizeof(float));
    aoticache_shim_tiles_multiply(
        &(struct shim_tile_product){.rows = padded(block->rows),
                                    .columns = padded(a->width),
                                    .depth = line,
                                    .a = block->weights,
                                    .a_stride = line * (ptrdiff_t)sizeof(uint16_t),
                                    .packed = packed_at(a, block->batch, block->head / a->heads_per_key) +
                                              a->packed_bytes + first_key / SHIM_TILE_SIZE * blocks,
                                    .k_stride = blocks,
                                    .n_stride = SHIM_TILE_BLOCK_BYTES,
                                    .out = (float *)(void *)block->sums_of_values,
                                    .out_stride = padded(a->width) * (ptrdiff_t)sizeof(float),
                                    .adds = first_key > 0});
}

/* ---- a block ---- */

/* Adds a tile of keys to the block's rows. False: out of memory. */
static bool add_tile(const struct attention *a, struct block *block, const struct matmul_matrix *query,
                     int64_t first_key, int64_t keys)
{
    const ptrdiff_t value_bytes = (ptrdiff_t)a->value_bytes, line = sum_columns(a) * value_bytes;
    const int64_t key_head = block->head / a->heads_per_key;
    const struct matmul_matrix scores = {block->scores, (ptrdiff_t)padded(keys) * value_bytes, value_bytes};
    if (a->packed != NULL) {
        score_by_tiles(a, block, first_key, keys);
    } else {
        const struct matmul_matrix key = rows_of(a, a->key, block->batch, key_head, first_key, keys, block->key);
        if (!score_tile(a, block, query, &key, keys, &scores))
            return false;
    }
    for (int64_t i = 0; i < block->rows; i++) {
        int64_t live = a->causal ? smaller(keys, block->first + i + 1 - first_key) : keys;
        const struct attention_row row = {.count = (size_t)padded(keys),
                                          .live = (size_t)(live > 0 ? live : 0),
                                          .scale = a->scale,
                                          .mask = mask_row(a, block, i, first_key, keys)};
        double factor = a->rows.soften(&row, scores.data + i * scores.row_stride, &block->max[i], &block->sum[i]);
        if (first_key > 0)
            scale_values(a, block->sums_of_values + i * line, factor);
    }
    if (a->packed != NULL) {
        add_by_tiles(a, block, first_key, keys);
        return true;
    }
    const struct matmul_matrix value = rows_of(a, a->value, block->batch, key_head, first_key, keys, block->value);
    return add_values(a, block, &scores, &value, keys, first_key == 0);
}

static void write_block(const struct attention *a, struct block *block)
{
    const int64_t *strides = a->out->strides, *lse_strides = a->logsumexp->strides;
    const ptrdiff_t item = (ptrdiff_t)a->out->item_bytes, line = sum_columns(a) * (ptrdiff_t)a->value_bytes;
    for (int64_t i = 0; i < block->rows; i++) {
        int64_t row = block->first + i;
        char *values = block->sums_of_values + i * line;
        bool is_empty = block->sum[i] == 0;
        if (is_empty)
            memset(values, 0, (size_t)line);
        else
            scale_values(a, values, 1 / block->sum[i]);
        char *out =
            (char *)a->out->data + (block->batch * strides[0] + block->head * strides[1] + row * strides[2]) * item;
        a->access->store((size_t)a->width, out, (ptrdiff_t)strides[3] * item, values);
        int64_t at = block->batch * lse_strides[0] + block->head * lse_strides[1] + row * lse_strides[2];
        double logsumexp = is_empty ? 0 : block->max[i] + log(block->sum[i]);
        if (a->value_bytes == sizeof(float))
            ((float *)a->logsumexp->data)[at] = (float)logsumexp;
        else
            ((double *)a->logsumexp->data)[at] = logsumexp;
    }
}

static bool run_block(const struct attention *a, struct block *block)
{
    int64_t keys = a->causal ? smaller(a->keys, block->first + block->rows) : a->keys;
    struct matmul_matrix query = {0};
    if (a->packed != NULL)
        copy_queries(a, block);
    else
        query = rows_of(a, a->query, block->batch, block->head, block->first, block->rows, block->query);
    for (int64_t i = 0; i < block->rows; i++) {
        block->max[i] = -INFINITY;
        block->sum[i] = 0;
    }
    for (int64_t first = 0; first < keys; first += TILE_KEYS)
        if (!add_tile(a, block, &query, first, smaller(TILE_KEYS, keys - first)))
            return false;
    write_block(a, block);
    return true;
}

/* Divides a part's memory; returns its size in bytes. `memory` may be NULL. */
static size_t lay_out(const struct attention *a, char *memory, struct block *block)
{
    const bool by_tiles = a->packed != NULL, is_read = a->is_converted && !by_tiles && !a->reads_halves;
    const size_t block_rows = (size_t)smaller(a->queries, BLOCK_QUERIES), keys = (size_t)smaller(a->keys, TILE_KEYS);
    const size_t rows = by_tiles ? (size_t)padded((int64_t)block_rows) : block_rows;
    const size_t width = (size_t)sum_columns(a), columns = (size_t)padded((int64_t)keys);
    const size_t counts[] = {rows * columns,
                             columns,
                             rows * width,
                             a->is_converted ? rows * width : 0,
                             is_read ? keys * width : 0,
                             is_read ? keys * width : 0,
                             by_tiles ? rows * columns : 0};
    char **const places[] = {&block->scores, &block->mask,  &block->sums_of_values, &block->query,
                             &block->key,    &block->value, &block->weights};
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        *places[i] = memory != NULL ? memory + bytes : NULL;
        bytes += (counts[i] * a->value_bytes + 63) / 64 * 64;
    }
    return bytes;
}

/*
 * Runs one part. Later blocks of a causal head have more keys, so a part takes every n-th block, where n is the number of
 * parts.
 */
static void run_part(void *user, int part)
{
    struct attention *a = user;
    struct block block;
    lay_out(a, a->memory + (size_t)part * a->step, &block);
    if (a->packed != NULL)
        aoticache_shim_tiles_begin();
    for (int64_t i = part; i < a->batches * a->heads * a->blocks; i += a->parts) {
        block.first = i % a->blocks * BLOCK_QUERIES;
        block.head = i / a->blocks % a->heads;
        block.batch = i / a->blocks / a->heads;
        block.rows = smaller(BLOCK_QUERIES, a->queries - block.first);
        if (!run_block(a, &block)) {
            atomic_store(&a->out_of_memory, true);
            break;
        }
    }
    if (a->packed != NULL)
        aoticache_shim_tiles_end();
}

static void pack_part(void *user, int part)
{
    const struct attention *a = user;
    const int64_t heads = a->key->sizes[1];
    for (int64_t i = part; i < a->batches * heads; i += a->parts) {
        const int64_t batch = i / heads, head = i % heads;
        const struct matmul_matrix key = matrix_of(a->key, batch, head), value = matrix_of(a->value, batch, head);
        char *packed = packed_at(a, batch, head);
        aoticache_shim_tiles_pack_keys(a->keys, a->width, key.data, key.row_stride, packed);
        aoticache_shim_tiles_pack_values(a->keys, a->width, value.data, value.row_stride, packed + a->packed_bytes);
    }
}

/* Packs keys and values if tiles will be used; *ret_bytes is needed for giving the memory back. */
static void pack_for_tiles(struct attention *a, size_t *ret_bytes)
{
    const bool is_dense = a->query->strides[3] == 1 && a->key->strides[3] == 1 && a->value->strides[3] == 1;
    const int64_t heads = a->batches * a->key->sizes[1];
    size_t bytes;
    if (a->query->dtype != AOTICACHE_DTYPE_BFLOAT16 || !is_dense || a->reads_halves ||
        a->queries * a->heads_per_key < QUERIES_FOR_TILES || !aoticache_shim_has_tiles())
        return;
    a->packed_bytes = (size_t)padded(a->keys) * (size_t)padded(a->width) * sizeof(uint16_t);
    if (__builtin_mul_overflow(2 * a->packed_bytes, (size_t)heads, &bytes))
        return;
    a->packed = aoticache_shim_large_take(bytes, ret_bytes);
    if (a->packed == NULL)
        return;
    a->parts = aoticache_shim_parts((double)bytes, heads);
    aoticache_shim_parallel(a->parts, pack_part, a);
}

static AOTITorchError run(const char *function, struct attention *a)
{
    struct block block;
    size_t packed_bytes = 0;
    pack_for_tiles(a, &packed_bytes);
    a->blocks = (a->queries + BLOCK_QUERIES - 1) / BLOCK_QUERIES;
    double work = 2.0 * (double)a->out->numel * (double)a->keys;
    a->parts = aoticache_shim_parts(work, a->batches * a->heads * a->blocks);
    a->step = lay_out(a, NULL, &block);
    size_t bytes = (size_t)a->parts * a->step;
    a->memory = aoticache_shim_large_take(bytes, &bytes);
    if (a->memory != NULL) {
        memset(a->memory, 0, (size_t)a->parts * a->step); /* the padding of rows is read, too */
        aoticache_shim_parallel(a->parts, run_part, a);
        aoticache_shim_large_give(a->memory, bytes);
    }
    if (a->packed != NULL)
        aoticache_shim_large_give(a->packed, packed_bytes);
    return a->memory == NULL || atomic_load(&a->out_of_memory)
               ? aoticache_shim_fail_memory(function, (size_t)a->parts * a->step)
               : SHIM_SUCCESS;
}

/* ---- checks ---- */

static AOTITorchError check_operands(const char *function, const struct shim_tensor *query,
                                     const struct shim_tensor *key, const struct shim_tensor *value)
{
    char first[SHIM_DTYPE_TEXT_BYTES], second[SHIM_DTYPE_TEXT_BYTES], third[SHIM_DTYPE_TEXT_BYTES];
    if (query->ndim != 4 || key->ndim != 4 || value->ndim != 4)
        return aoticache_shim_fail("%s: query, key and value must have 4 dimensions; these have %d, %d and %d",
                                   function, (int)query->ndim, (int)key->ndim, (int)value->ndim);
    if (key->dtype != query->dtype || value->dtype != query->dtype)
        return aoticache_shim_fail("%s: query, key and value must have the same dtype; these are %s, %s and %s",
                                   function, aoticache_shim_dtype_text(query->dtype, first),
                                   aoticache_shim_dtype_text(key->dtype, second),
                                   aoticache_shim_dtype_text(value->dtype, third));
    if (query->dtype != AOTICACHE_DTYPE_FLOAT32 && query->dtype != AOTICACHE_DTYPE_FLOAT64 &&
        query->dtype != AOTICACHE_DTYPE_FLOAT16 && query->dtype != AOTICACHE_DTYPE_BFLOAT16)
        return aoticache_shim_fail_dtype(function, query->dtype);
    if (!aoticache_shim_same_sizes(key, value))
        return aoticache_shim_fail("%s: %lld x %lld x %lld x %lld keys, but %lld x %lld x %lld x %lld values", function,
                                   (long long)key->sizes[0], (long long)key->sizes[1], (long long)key->sizes[2],
                                   (long long)key->sizes[3], (long long)value->sizes[0], (long long)value->sizes[1],
                                   (long long)value->sizes[2], (long long)value->sizes[3]);
    if (key->sizes[0] != query->sizes[0] || key->sizes[3] != query->sizes[3])
        return aoticache_shim_fail("%s: queries of batch %lld and width %lld, but keys of batch %lld and width %lld",
                                   function, (long long)query->sizes[0], (long long)query->sizes[3],
                                   (long long)key->sizes[0], (long long)key->sizes[3]);
    if (query->sizes[1] > 0 && (key->sizes[1] == 0 || query->sizes[1] % key->sizes[1] != 0))
        return aoticache_shim_fail("%s: %lld heads of queries are not a multiple of %lld heads of keys", function,
                                   (long long)query->sizes[1], (long long)key->sizes[1]);
    return SHIM_SUCCESS;
}

/* Checks that a mask has the query's dtype, or float if that dtype is smaller; each size must be the scores' or 1. */
static AOTITorchError check_mask(const char *function, const struct shim_tensor *mask, const struct attention *a)
{
    char first[SHIM_DTYPE_TEXT_BYTES], second[SHIM_DTYPE_TEXT_BYTES];
    const int64_t wanted[4] = {a->batches, a->heads, a->queries, a->keys};
    if (mask->dtype != a->query->dtype && !(a->is_converted && mask->dtype == AOTICACHE_DTYPE_FLOAT32))
        return aoticache_shim_fail("%s: a mask of %s for a query of %s; the mask must have the query's dtype", function,
                                   aoticache_shim_dtype_text(mask->dtype, first),
                                   aoticache_shim_dtype_text(a->query->dtype, second));
    if (mask->ndim != 2 && mask->ndim != 4)
        return aoticache_shim_fail("%s: the mask must have 2 or 4 dimensions, but has %d", function, (int)mask->ndim);
    for (int d = 0; d < mask->ndim; d++) {
        int64_t size = wanted[d + 4 - mask->ndim];
        if (mask->sizes[d] != size && mask->sizes[d] != 1)
            return aoticache_shim_fail("%s: dimension %d of the mask has size %lld; it must be %lld or 1", function, d,
                                       (long long)mask->sizes[d], (long long)size);
    }
    return SHIM_SUCCESS;
}

static void describe(struct attention *a, const double *scale, bool causal)
{
    const struct shim_tensor *query = a->query;
    bool is_double = query->dtype == AOTICACHE_DTYPE_FLOAT64;
    enum shim_class kind = is_double ? SHIM_CLASS_DOUBLE : SHIM_CLASS_FLOAT;
    a->batches = query->sizes[0];
    a->heads = query->sizes[1];
    a->queries = query->sizes[2];
    a->width = query->sizes[3];
    a->keys = a->key->sizes[2];
    a->heads_per_key = a->heads > 0 ? a->heads / a->key->sizes[1] : 1;
    a->causal = causal;
    a->scale = scale != NULL ? *scale : 1 / sqrt((double)a->width);
    a->is_converted = !is_double && query->dtype != AOTICACHE_DTYPE_FLOAT32;
    a->access = aoticache_shim_dtype_access(query->dtype);
    a->value_access = aoticache_shim_dtype_access(is_double ? AOTICACHE_DTYPE_FLOAT64 : AOTICACHE_DTYPE_FLOAT32);
    a->arithmetic = aoticache_shim_matmul_arithmetic(kind);
    a->value_bytes = a->arithmetic->value_bytes;
    a->rows = aoticache_shim_attention_arithmetic(kind);
    a->reads_halves = query->dtype == AOTICACHE_DTYPE_BFLOAT16 && a->key->strides[3] == 1 &&
                      a->value->strides[3] == 1 && a->queries < FEW_QUERIES;
}

/* Makes the logarithms of sums, with the heads innermost in memory, as in PyTorch. */
static AOTITorchError make_logsumexp(const char *function, const struct attention *a, AtenTensorHandle *ret_tensor)
{
    const int64_t sizes[] = {a->batches, a->heads, a->queries};
    const int64_t heads = a->heads > 0 ? a->heads : 1, queries = a->queries > 0 ? a->queries : 1;
    const int64_t strides[] = {heads * queries, 1, heads};
    return aoticache_shim_tensor_empty(
        function, 3, sizes, strides,
        a->value_bytes == sizeof(float) ? AOTICACHE_DTYPE_FLOAT32 : AOTICACHE_DTYPE_FLOAT64, ret_tensor);
}

AOTITorchError aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu(
    AtenTensorHandle query, AtenTensorHandle key, AtenTensorHandle value, double dropout_p, int32_t is_causal,
    AtenTensorHandle *attn_mask, double *scale, AtenTensorHandle *ret_0, AtenTensorHandle *ret_1)
{
    cleanup_tensor AtenTensorHandle out = NULL, logsumexp = NULL;
    SHIM_CHECK_TENSOR(query);
    SHIM_CHECK_TENSOR(key);
    SHIM_CHECK_TENSOR(value);
    SHIM_CHECK_RESULT(ret_0);
    SHIM_CHECK_RESULT(ret_1);
    const AtenTensorHandle mask = shim_optional(attn_mask);
    if (dropout_p > 0)
        return aoticache_shim_fail("%s: dropout is %g; only 0 is supported, as in PyTorch", __func__, dropout_p);
    SHIM_TRY(check_operands(__func__, query->tensor, key->tensor, value->tensor));
    struct attention a = {.query = query->tensor, .key = key->tensor, .value = value->tensor};
    describe(&a, scale, is_causal != 0);
    if (shim_is_defined(mask)) {
        SHIM_TRY(check_mask(__func__, mask->tensor, &a));
        a.mask = mask->tensor;
    }
    SHIM_TRY(aoticache_shim_make_like(__func__, query, query->tensor->dtype, &out));
    SHIM_TRY(make_logsumexp(__func__, &a, &logsumexp));
    a.out = out->tensor;
    a.logsumexp = logsumexp->tensor;
    if (a.out->numel == 0 || a.keys == 0) {
        SHIM_TRY(aoti_torch_zero_(out));
        SHIM_TRY(aoti_torch_zero_(logsumexp));
    } else {
        SHIM_TRY(run(__func__, &a));
    }
    *ret_0 = shim_steal(&out);
    *ret_1 = shim_steal(&logsumexp);
    return SHIM_SUCCESS;
}
