/*
 * shim/indexing/walk: walks all positions that an index names, a line at a time, on all threads; also checks that the
 * index names only existing positions, and chooses where the result is computed.
 *
 * Only a dimension whose coordinates never share a position is divided among threads. So each position gets its values
 * in the order of the index, and results do not depend on the number of threads.
 */
#include "runtime/shim/indexing/indexing_internal.h"

#include "runtime/shim/math/math_internal.h"
#include "runtime/shim/operators.h"

#include <string.h>

/* Elements at most this far apart, in bytes, are one block; otherwise lines of single elements are faster. */
#define BLOCK_STRIDE 64
/* Blocks that are narrower are not divided among threads: each thread would read the whole index for a few elements. */
#define WIDTH_OF_PART 16
/*
 * The cost of a number of the index and of an element, in multiplications (aoticache_shim_parts). Less than the real
 * cost, since data that one thread has just written reaches another thread slowly.
 */
#define NUMBER_WORK 8.0
#define ELEMENT_WORK 0.5

static bool joins(const struct shim_walk_dim *outer, const struct shim_walk_dim *inner)
{
    return outer->is_apart == inner->is_apart && outer->index == inner->index * (ptrdiff_t)inner->size &&
           outer->place == inner->place * (ptrdiff_t)inner->size &&
           outer->value == inner->value * (ptrdiff_t)inner->size;
}

/*
 * Leaves out dimensions of size 1 and joins adjacent ones. The order may change only if no two coordinates share a
 * position.
 */
static int tidy(struct shim_walk_dim *dims, int count, bool may_sort)
{
    int kept = 0, joined = 0;
    for (int d = 0; d < count; d++) {
        const struct shim_walk_dim dim = dims[d];
        int at = kept;
        if (dim.size == 1)
            continue;
        for (; may_sort && at > 0 && dims[at - 1].place < dim.place; at--)
            dims[at] = dims[at - 1];
        dims[at] = dim;
        kept++;
    }
    for (int d = 1; d < kept; d++)
        if (joins(&dims[joined], &dims[d])) {
            dims[d].size *= dims[joined].size;
            dims[joined] = dims[d];
        } else
            dims[++joined] = dims[d];
    return kept > 0 ? joined + 1 : 0;
}

/*
 * Orders the dimensions: first those of blocks, then those of the index, the last of which is a line, then the width of
 * a block.
 */
static void arrange(struct shim_walk *walk)
{
    struct shim_walk_dim index[SHIM_MAX_NDIM], width = {.size = 1}, *dims = walk->dims;
    int index_ndim = tidy(dims, walk->index_ndim, false), ndim = walk->ndim - walk->index_ndim;
    memcpy(index, dims, (size_t)index_ndim * sizeof *dims);
    memmove(dims, dims + walk->index_ndim, (size_t)ndim * sizeof *dims);
    ndim = tidy(dims, ndim, true);
    if (ndim > 0 && dims[ndim - 1].place <= BLOCK_STRIDE)
        width = dims[--ndim];
    memcpy(dims + ndim, index, (size_t)index_ndim * sizeof *dims);
    ndim += index_ndim;
    if (index_ndim == 0)
        dims[ndim++] = (struct shim_walk_dim){.size = 1};
    dims[ndim++] = width;
    walk->ndim = ndim;
}

/* Advances to the next coordinates. False: these were the last ones. */
static bool advance(struct shim_walk *walk, int ndim, int64_t *at)
{
    for (int d = ndim - 1; d >= 0; d--) {
        const struct shim_walk_dim *dim = &walk->dims[d];
        const int64_t steps = at[d] + 1 < dim->size ? 1 : -at[d];
        walk->index += steps * dim->index;
        walk->places += steps * dim->place;
        walk->values += steps * dim->value;
        at[d] += steps;
        if (steps == 1)
            return true;
    }
    return false;
}

static void run_all(struct shim_walk *walk)
{
    int64_t at[SHIM_MAX_NDIM] = {0};
    const struct shim_walk_dim *along = &walk->dims[walk->ndim - 2], *width = along + 1;
    struct shim_line line = {
        .count = along->size,
        .width = width->size,
        .index_step = along->index,
        .size = walk->size,
        .scale = walk->scale,
        .place_step = along->place,
        .value_step = along->value,
        .place_element = width->place,
        .value_element = width->value,
    };
    do {
        line.index = walk->index;
        walk->combine(&line, walk->places, walk->values);
    } while (advance(walk, walk->ndim - 2, at));
}

struct shares {
    const struct shim_walk *walk;
    int dim, parts;
};

static void run_part(void *user, int part)
{
    const struct shares *shares = user;
    struct shim_walk walk = *shares->walk;
    struct shim_walk_dim *dim = &walk.dims[shares->dim];
    const int64_t first = shim_part_begin(dim->size, shares->parts, part);
    dim->size = shim_part_begin(dim->size, shares->parts, part + 1) - first;
    walk.index += first * dim->index;
    walk.places += first * dim->place;
    walk.values += first * dim->value;
    run_all(&walk);
}

/* Returns the largest dimension that can be divided among threads; -1: none. */
static int dim_to_share(const struct shim_walk *walk)
{
    int best = -1;
    for (int d = 0; d < walk->ndim; d++)
        if (walk->dims[d].is_apart && (d < walk->ndim - 1 || walk->dims[d].size >= 2 * WIDTH_OF_PART) &&
            (best < 0 || walk->dims[d].size > walk->dims[best].size))
            best = d;
    return best;
}

void aoticache_shim_walk(struct shim_walk *walk)
{
    double elements = 1;
    arrange(walk);
    for (int d = 0; d < walk->ndim; d++)
        elements *= (double)walk->dims[d].size;
    if (elements == 0)
        return;
    struct shares shares = {.walk = walk, .dim = dim_to_share(walk), .parts = 1};
    if (shares.dim >= 0)
        shares.parts =
            aoticache_shim_parts(elements * (ELEMENT_WORK + NUMBER_WORK / (double)walk->dims[walk->ndim - 1].size),
                                 walk->dims[shares.dim].size);
    if (shares.parts > 1)
        aoticache_shim_parallel(shares.parts, run_part, &shares);
    else
        run_all(walk);
}

/*
 * Returns whether a number is out of range. The last numbers, if they do not fill a vector, are not checked. A number
 * is out of range if one of its two differences is negative.
 */
#define DEFINE_OUTSIDE(name, bytes, attribute)                                                    \
    static attribute bool name(const int64_t *at, int64_t count, int64_t lowest, int64_t highest) \
    {                                                                                             \
        typedef uint64_t numbers __attribute__((vector_size(bytes)));                             \
        enum { LANES = sizeof(numbers) / sizeof(uint64_t) };                                      \
        numbers outside = {0}, some;                                                              \
        uint64_t any = 0;                                                                         \
        for (int64_t i = 0; i + LANES <= count; i += LANES) {                                     \
            memcpy(&some, at + i, sizeof some);                                                   \
            outside |= (some - (uint64_t)lowest) | ((uint64_t)highest - some);                    \
        }                                                                                         \
        for (int lane = 0; lane < LANES; lane++)                                                  \
            any |= outside[lane];                                                                 \
        return (int64_t)any < 0;                                                                  \
    }

DEFINE_OUTSIDE(any_outside, 16, )
#ifdef __x86_64__
DEFINE_OUTSIDE(any_outside_avx2, 32, __attribute__((target("avx2"))))
DEFINE_OUTSIDE(any_outside_avx512, 64, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))))
#endif

static bool has_outside(const int64_t *at, int64_t count, int64_t lowest, int64_t highest)
{
#ifdef __x86_64__
    if (shim_has_avx512())
        return any_outside_avx512(at, count, lowest, highest);
    if (shim_has_avx2())
        return any_outside_avx2(at, count, lowest, highest);
#endif
    return any_outside(at, count, lowest, highest);
}

bool aoticache_shim_index_check(const struct shim_tensor *index, int64_t lowest, int64_t highest, int64_t *ret_number)
{
    enum { MOST_LANES = 8 };
    const int64_t *at = index->data, count = index->numel, left = count % MOST_LANES;
    /* If the vectors found a number out of range, search all numbers for the first one; otherwise check only the last
     * ones, which do not fill a vector. */
    for (int64_t i = has_outside(at, count, lowest, highest) ? 0 : count - left; i < count; i++)
        if (at[i] < lowest || at[i] > highest) {
            *ret_number = at[i];
            return false;
        }
    return true;
}

static bool shares_memory(const struct shim_tensor *a, const struct shim_tensor *b)
{
    const char *a_data = a->data, *b_data = b->data;
    return a->numel > 0 && b->numel > 0 && a_data < b_data + aoticache_shim_span_bytes(b) &&
           b_data < a_data + aoticache_shim_span_bytes(a);
}

static bool is_same(const struct shim_tensor *a, const struct shim_tensor *b)
{
    return a->data == b->data && a->dtype == b->dtype && aoticache_shim_same_sizes(a, b) &&
           memcmp(a->strides, b->strides, (size_t)a->ndim * sizeof *a->strides) == 0;
}

static bool can_be_changed(const struct shim_tensor *out, const struct shim_tensor *self, int32_t dtype,
                           const AtenTensorHandle *operands, int count)
{
    if (out->dtype != dtype || !aoticache_shim_same_sizes(out, self) || !aoticache_shim_is_dense(out))
        return false;
    for (int i = 0; i < count; i++)
        if (shares_memory(out, operands[i]->tensor))
            return false;
    return is_same(out, self) || !shares_memory(out, self);
}

AOTITorchError aoticache_shim_result_open(const char *function, AtenTensorHandle out, AtenTensorHandle self,
                                          int32_t dtype, const AtenTensorHandle *operands, int count,
                                          AtenTensorHandle *ret_result)
{
    if (!can_be_changed(out->tensor, self->tensor, dtype, operands, count))
        return aoticache_shim_read_copy(function, self, dtype, ret_result);
    if (!is_same(out->tensor, self->tensor))
        SHIM_TRY(aoti_torch_copy_(out, self, 0));
    return aoti_torch_new_tensor_handle(out, ret_result);
}
