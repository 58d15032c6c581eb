/*
 * shim/indexing/unique: the distinct elements of a tensor, sorted or in their order, with the position of each element
 * among them and the number of times that each occurs.
 *
 * Sources: at::native::_unique2_cpu, unique_consecutive_cpu (aten/src/ATen/native/Unique.cpp). As there, no NaN equals
 * another; sorted, NaN comes last.
 */
#include "runtime/shim/indexing/named.h"

#include "runtime/shim/tensors/elements.h"

#include <stdlib.h>

enum { I64 = AOTICACHE_DTYPE_INT64, F64 = AOTICACHE_DTYPE_FLOAT64 };

struct item {
    union {
        int64_t integer;
        double number;
    } value;
    int64_t place;
};

static int compare_places(const struct item *a, const struct item *b)
{
    return (a->place > b->place) - (a->place < b->place);
}

static int compare_integers(const void *first, const void *second)
{
    const struct item *a = first, *b = second;
    int order = (a->value.integer > b->value.integer) - (a->value.integer < b->value.integer);
    return order != 0 ? order : compare_places(a, b);
}

static int compare_numbers(const void *first, const void *second)
{
    const struct item *a = first, *b = second;
    const double x = a->value.number, y = b->value.number;
    int order = (x > y) - (x < y);
    if (x != x || y != y)
        order = (x != x) - (y != y);
    return order != 0 ? order : compare_places(a, b);
}

struct unique {
    int32_t dtype;    /* I64 or F64: of the items' values */
    int64_t count;    /* of distinct elements */
    int64_t *inverse; /* for each element; NULL: not wanted */
    int64_t *counts;  /* with space for one count per element */
};

/* Joins items of equal value, and moves the results to the front. */
static void join(struct unique *u, struct item *items, int64_t total)
{
    for (int64_t i = 0; i < total; i++) {
        const struct item *last = u->count > 0 ? &items[u->count - 1] : NULL;
        const bool equal = last != NULL && (u->dtype == I64 ? last->value.integer == items[i].value.integer
                                                            : last->value.number == items[i].value.number);
        if (!equal) {
            u->counts[u->count] = 0;
            items[u->count].value = items[i].value;
            u->count++;
        }
        u->counts[u->count - 1]++;
        if (u->inverse != NULL)
            u->inverse[items[i].place] = u->count - 1;
    }
}

static AOTITorchError make_or_none(const char *function, bool wanted, int64_t ndim, const int64_t *sizes,
                                   AtenTensorHandle *ret)
{
    return wanted ? aoticache_shim_make(function, ndim, sizes, I64, ret)
                  : aoticache_shim_make(function, 1, (const int64_t[]){0}, I64, ret);
}

static AOTITorchError find_unique(const char *function, AtenTensorHandle self, bool sorts, bool wants_inverse,
                                  bool wants_counts, AtenTensorHandle ret[3])
{
    cleanup_tensor AtenTensorHandle given = NULL, room = NULL, values = NULL, result = NULL, inverse = NULL;
    cleanup_tensor AtenTensorHandle counts = NULL, items = NULL;
    if (!shim_is_defined(self))
        return aoticache_shim_fail_undefined(function, self);
    const struct shim_tensor *t = self->tensor;
    struct unique u = {.dtype = aoticache_shim_work_dtype(t->dtype)};
    if (u.dtype != I64 && u.dtype != F64)
        return aoticache_shim_fail_dtype(function, t->dtype);
    const int64_t total = t->numel, bytes = total * (int64_t)sizeof(struct item);
    SHIM_TRY(aoticache_shim_read(function, self, u.dtype, &given));
    SHIM_TRY(aoticache_shim_make(function, 1, &bytes, AOTICACHE_DTYPE_UINT8, &items));
    SHIM_TRY(aoticache_shim_make(function, 1, &total, I64, &room));
    SHIM_TRY(make_or_none(function, wants_inverse, t->ndim, t->sizes, &inverse));
    struct item *item = items->tensor->data;
    u.counts = room->tensor->data;
    u.inverse = wants_inverse ? inverse->tensor->data : NULL;
    for (int64_t i = 0; i < total; i++) {
        item[i].place = i;
        if (u.dtype == I64)
            item[i].value.integer = ((const int64_t *)given->tensor->data)[i];
        else
            item[i].value.number = ((const double *)given->tensor->data)[i];
    }
    if (sorts && total > 1)
        qsort(item, (size_t)total, sizeof *item, u.dtype == I64 ? compare_integers : compare_numbers);
    join(&u, item, total);
    SHIM_TRY(aoticache_shim_make(function, 1, &u.count, u.dtype, &values));
    SHIM_TRY(make_or_none(function, wants_counts, 1, &u.count, &counts));
    for (int64_t i = 0; i < u.count; i++) {
        if (u.dtype == I64)
            ((int64_t *)values->tensor->data)[i] = item[i].value.integer;
        else
            ((double *)values->tensor->data)[i] = item[i].value.number;
        if (wants_counts)
            ((int64_t *)counts->tensor->data)[i] = u.counts[i];
    }
    SHIM_TRY(aoticache_shim_read(function, values, t->dtype, &result));
    ret[0] = shim_steal(&result);
    ret[1] = shim_steal(&inverse);
    ret[2] = shim_steal(&counts);
    return SHIM_SUCCESS;
}

AOTITorchError aoticache_shim_unique(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    /* PyTorch always sorts on the CPU, even if not requested. */
    return find_unique("unique", a[0].tensor, true, a[2].integer != 0, a[3].integer != 0, ret);
}

AOTITorchError aoticache_shim_unique_consecutive(const aoticache_named_argument *a, AtenTensorHandle *ret)
{
    if (a[3].is_given)
        return aoticache_shim_fail("unique_consecutive: dim is not supported");
    return find_unique("unique_consecutive", a[0].tensor, false, a[1].integer != 0, a[2].integer != 0, ret);
}
