/*
 * eager/holder/writes: operators that write to their arguments: which arguments those are, which results are arguments, and
 * whether the tensors of a call overlap: a compiled kernel may write in another order than it reads, so it gives the operator's
 * results only if they do not.
 */
#include "base/names.h"
#include "eager/holder/holder_internal.h"

#include <stdlib.h>
#include <string.h>

/* Operators that write to arguments that their schema does not mark: running statistics. */
static const struct {
    const char *name;
    uint64_t written;
} silent_writers[] = {
    {"aten::native_batch_norm", 1u << 3 | 1u << 4},
    {"aten::batch_norm_update_stats", 1u << 1 | 1u << 2},
};

static uint64_t silently_written(const char *op)
{
    for (size_t i = 0; i < sizeof silent_writers / sizeof silent_writers[0]; i++)
        if (strcmp(silent_writers[i].name, op) == 0)
            return silent_writers[i].written;
    return 0;
}

bool aoticache_holder_writes_silently(const aoticache_holder *holder)
{
    return silently_written(holder->op) != 0;
}

/* ---- the schema ---- */

static const aoticache_alias *alias_of(const aoticache_schema_argument *argument)
{
    return argument->alias != NULL ? argument->alias : argument->list_alias;
}

static bool is_written(const aoticache_holder *holder, size_t argument)
{
    return argument < 64 && (holder->written >> argument & 1) != 0;
}

static bool shares_a_name(const aoticache_alias *a, const aoticache_alias *b)
{
    for (size_t i = 0; i < a->before_count; i++)
        for (size_t k = 0; k < b->before_count; k++)
            if (strcmp(a->before[i], b->before[k]) == 0)
                return true;
    return false;
}

bool aoticache_holder_returns_argument(const aoticache_holder *holder, size_t index)
{
    const aoticache_alias *alias = alias_of(&holder->schema->returns[index]);
    for (size_t i = 0; alias != NULL && i < holder->num_arguments; i++) {
        const aoticache_alias *other = alias_of(&holder->schema->arguments[i]);
        if (is_written(holder, i) && other != NULL && shares_a_name(alias, other))
            return true;
    }
    return false;
}

size_t aoticache_holder_num_outs(const aoticache_holder *holder)
{
    size_t count = 0;
    for (size_t i = 0; i < holder->num_arguments; i++)
        count += is_written(holder, i) && holder->schema->arguments[i].keyword_only;
    return count;
}

aoticache_status aoticache_holder_read_writes(aoticache_holder *holder, aoticache_error *ret_error)
{
    for (size_t i = 0; i < holder->num_arguments; i++) {
        const aoticache_alias *alias = alias_of(&holder->schema->arguments[i]);
        if (alias == NULL || !alias->is_write)
            continue;
        if (i >= 64)
            return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                       "%s writes to argument %zu; only the first 64 arguments can be written to",
                                       holder->op, i);
        holder->written |= UINT64_C(1) << i;
    }
    holder->written |= silently_written(holder->op);
    for (size_t i = 0; i < holder->schema->return_count; i++)
        if (alias_of(&holder->schema->returns[i]) != NULL && !aoticache_holder_returns_argument(holder, i))
            return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                       "%s returns a view of its argument (%.400s), but a compiled kernel would "
                                       "return a copy: leave it to the framework",
                                       holder->op, holder->schema_text);
    return AOTICACHE_OK;
}

/* ---- tensors ---- */

/* The bytes from the first element to the end of the last one. */
typedef struct extent {
    uintptr_t begin, end;
} extent;

static extent extent_of(const aoticache_tensor_view *view)
{
    size_t bytes = aoticache_dtype_size(view->dtype);
    uintptr_t begin = (uintptr_t)view->data, last = begin;
    if (view->numel == 0)
        return (extent){0, 0};
    for (int64_t i = 0; i < view->ndim; i++)
        last += (uintptr_t)(view->sizes[i] - 1) * (uintptr_t)view->strides[i] * bytes;
    return (extent){begin, last + bytes};
}

static bool extents_overlap(extent a, extent b)
{
    return a.begin < b.end && b.begin < a.end;
}

/* Returns whether each element has its own memory, as far as the order of the strides shows it. */
static bool has_own_places(const aoticache_tensor_view *view)
{
    int64_t expected = 1, done = 0;
    for (int64_t i = view->ndim; i-- > 0;) { /* most are contiguous */
        if (view->sizes[i] != 1 && view->strides[i] != expected)
            break;
        expected *= view->sizes[i];
        done++;
    }
    if (done == view->ndim || view->numel < 2)
        return true;
    if (view->ndim > AOTICACHE_MAX_DIMS)
        return false;
    _Static_assert(AOTICACHE_MAX_DIMS <= 64, "a bit for each dimension");
    uint64_t used = 0;
    int64_t reach = 0; /* of the dimensions up to this one: the last element's distance from the first */
    for (int64_t n = 0; n < view->ndim; n++) {
        int64_t least = -1;
        for (int64_t i = 0; i < view->ndim; i++)
            if ((used >> i & 1) == 0 && (least < 0 || view->strides[i] < view->strides[least]))
                least = i;
        used |= UINT64_C(1) << least;
        if (view->sizes[least] == 1)
            continue;
        if (view->strides[least] <= reach)
            return false;
        reach += (view->sizes[least] - 1) * view->strides[least];
    }
    return true;
}

/* Returns the tensors of a value: none, one, or those of a list, which may be NULL. */
static uint32_t tensors_of(const aoticache_value *value, const aoticache_tensor_view *const **ret_tensors)
{
    if (value->kind == AOTICACHE_VALUE_TENSOR) {
        *ret_tensors = &value->as.tensor;
        return 1;
    }
    if (value->kind != AOTICACHE_VALUE_TENSOR_LIST)
        return 0;
    *ret_tensors = value->as.tensors;
    return value->count;
}

/* Up to this many tensors are compared pairwise. More are sorted by their beginning. */
#define FEW 8

typedef struct piece {
    extent bytes;
    bool written;
} piece;

static int by_begin(const void *a, const void *b)
{
    uintptr_t x = ((const piece *)a)->bytes.begin, y = ((const piece *)b)->bytes.begin;
    return (x > y) - (x < y);
}

static bool few_are_apart(const piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; pieces[i].written && k < count; k++)
            if (k != i && extents_overlap(pieces[i].bytes, pieces[k].bytes))
                return false;
    return true;
}

/* Returns whether no piece that is written to overlaps another one. ends: of written pieces, and of all, that begin earlier. */
static bool many_are_apart(piece *pieces, size_t count)
{
    uintptr_t written_end = 0, end = 0;
    qsort(pieces, count, sizeof *pieces, by_begin);
    for (size_t i = 0; i < count; i++) {
        const extent bytes = pieces[i].bytes;
        if (bytes.begin == bytes.end)
            continue;
        if (bytes.begin < written_end || (pieces[i].written && bytes.begin < end))
            return false;
        end = bytes.end > end ? bytes.end : end;
        if (pieces[i].written)
            written_end = bytes.end > written_end ? bytes.end : written_end;
    }
    return true;
}

bool aoticache_holder_writes_are_apart(const aoticache_holder *holder, const aoticache_value *arguments)
{
    piece pieces[AOTICACHE_PACK_MAX_WORDS / 2]; /* each tensor takes two words or more when packed */
    size_t count = 0;
    for (size_t i = 0; i < holder->num_arguments; i++) {
        const aoticache_tensor_view *const *tensors = NULL;
        uint32_t tensor_count = tensors_of(&arguments[i], &tensors);
        bool written = is_written(holder, i);
        for (uint32_t k = 0; k < tensor_count; k++) {
            const aoticache_tensor_view *view = tensors[k];
            if (view == NULL)
                continue;
            if (count == sizeof pieces / sizeof pieces[0] || (written && !has_own_places(view)))
                return false;
            pieces[count++] = (piece){extent_of(view), written};
        }
    }
    return count <= FEW ? few_are_apart(pieces, count) : many_are_apart(pieces, count);
}
