/*
 * aten::mm(Tensor self, Tensor mat2) -> Tensor: matrix multiplication of two matrices of the same dtype; the output is
 * contiguous.
 */
#include "strided.h"

#include <string.h>

#if INPUT_COUNT != 2 || ARGUMENT_COUNT != 2 || !defined(ARG1_TYPE) || ARG0_NDIM != 2 || ARG1_NDIM != 2 || \
    ARG0_DTYPE != ARG1_DTYPE
#error "AOTICACHE_UNSUPPORTED: mm is served with two matrices of the same dtype"
#else
_Static_assert(ARG0_SIZE1 == ARG1_SIZE0, "AOTICACHE_UNSUPPORTED: its inner sizes differ, so it cannot run");

enum { ROWS = ARG0_SIZE0, INNER = ARG0_SIZE1, COLUMNS = ARG1_SIZE1, TILE = 256 };

/* Adds INNER multiples of rows of b to a tile of a row of the output, which stays in the first-level cache. */
static inline void compute_tile(const TYPE *restrict a, const TYPE *restrict b, TYPE *restrict c, int64_t first,
                                int64_t width)
{
    TYPE tile[TILE] = {0};
    for (int64_t k = 0; k < INNER; k++) {
        const TYPE factor = a[k * ARG0_STRIDE1];
        const TYPE *row = b + k * ARG1_STRIDE0 + first * ARG1_STRIDE1;
        for (int64_t j = 0; j < width; j++)
            tile[j] = (TYPE)(tile[j] + factor * row[j * ARG1_STRIDE1]);
    }
    memcpy(c + first, tile, (size_t)width * sizeof *c);
}

static AOTIRuntimeError run(aoticache_kernel_call *call)
{
    static const int64_t sizes[] = {ARG0_SIZE0, ARG1_SIZE1};
    const TYPE *a, *b;
    TYPE *c;
    if (aoticache_kernel_data(call, call->inputs[ARG0_INPUT], &a) != AOTICACHE_KERNEL_OK ||
        aoticache_kernel_data(call, call->inputs[ARG1_INPUT], &b) != AOTICACHE_KERNEL_OK ||
        aoticache_kernel_empty(call, 0, ARG0_DTYPE, 2, sizes, NULL, &c) != AOTICACHE_KERNEL_OK)
        return AOTICACHE_KERNEL_FAILURE;
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t first = 0; first < COLUMNS; first += TILE)
            compute_tile(a + i * ARG0_STRIDE0, b, c + i * COLUMNS, first,
                         COLUMNS - first < TILE ? COLUMNS - first : TILE);
    return AOTICACHE_KERNEL_OK;
}

EXPORT_KERNEL(2, run)
#endif
