/*
 * loader/check/compare: the order in which checks are tried, specialised before general.
 *
 * Two numbers decide, computed once. Generality adds up what each property leaves open: relaxing a property never makes
 * it smaller, so a check never comes after a relaxed form of itself. If it is equal, breadth decides, which adds up how
 * many values the symbols can have.
 */
#include "loader/check/check_internal.h"
#include "loader/eager_face.h"

enum {
    OPEN_USES = 1,  /* follows from other sizes */
    OPEN_BINDS = 2, /* any value of a range */
    OPEN_FREE = 3,
    /* This is more than the sum for the sizes or strides of any tensor. */
    OPEN_ALL = OPEN_FREE * AOTICACHE_CHECK_MAX_NDIM + 1,
};

static uint64_t generality_of_role(uint8_t role)
{
    switch ((enum check_role)role) {
    case CHECK_ROLE_CONSTANT:
        return 0;
    case CHECK_ROLE_USES:
    case CHECK_ROLE_LATE:
        return OPEN_USES;
    case CHECK_ROLE_BINDS:
        return OPEN_BINDS;
    case CHECK_ROLE_FREE:
        break;
    }
    return OPEN_FREE;
}

/* Strides that a memory format gives follow from the sizes. */
static uint64_t generality_of_strides(const struct check_pattern *pattern)
{
    uint64_t sum = 0;
    if (pattern->facts.stride_rule == AOTICACHE_STRIDES_FREE)
        return OPEN_ALL;
    if (pattern->facts.stride_rule != AOTICACHE_STRIDES_GIVEN)
        return OPEN_USES * (uint64_t)(pattern->facts.ndim >= 0 ? pattern->facts.ndim : AOTICACHE_CHECK_MAX_NDIM);
    for (int64_t i = 0; i < pattern->facts.ndim; i++)
        sum += generality_of_role(pattern->stride_roles[i]);
    return sum;
}

static uint64_t generality_of(const struct check_pattern *pattern)
{
    const aoticache_tensor_pattern *facts = &pattern->facts;
    unsigned free_facts = (facts->dtype < 0) + (facts->layout < 0) + (facts->device_type < 0) +
                          (facts->device_index < 0) + (facts->requires_grad < 0) + !facts->has_key_set;
    uint64_t sum = OPEN_FREE * (uint64_t)free_facts + generality_of_strides(pattern);
    if (facts->ndim < 0)
        return sum + OPEN_ALL;
    for (int64_t i = 0; i < facts->ndim; i++)
        sum += generality_of_role(pattern->size_roles[i]);
    return sum;
}

/* Counts the values that a symbol can have if coefficient * value (+ offset) must be 0 or more and fit into 64 bits. */
static uint64_t breadth_of(const aoticache_dim *dim, const aoticache_symbol *range)
{
    uint64_t coefficient = (uint64_t)dim->coefficient, below = dim->offset < 0 ? -(uint64_t)dim->offset : 0;
    uint64_t above = dim->offset > 0 ? (uint64_t)dim->offset : 0, multiple_of = (uint64_t)range->multiple_of;
    uint64_t least = below / coefficient + (below % coefficient != 0), most = (INT64_MAX - above) / coefficient;
    uint64_t low = least > (uint64_t)range->min ? least : (uint64_t)range->min;
    uint64_t high = most < (uint64_t)range->max ? most : (uint64_t)range->max;
    uint64_t first = low / multiple_of + (low % multiple_of != 0), last = high / multiple_of;
    return last < first ? 0 : last - first + 1;
}

static void add_breadths(struct aoticache_check *check, const aoticache_dim *dims, const uint8_t *roles, int64_t ndim)
{
    for (int64_t i = 0; i < ndim; i++)
        if (roles[i] == CHECK_ROLE_BINDS)
            check->breadth += breadth_of(&dims[i], &check->ranges[dims[i].symbols[0]]);
}

void aoticache_check_rank(struct aoticache_check *check)
{
    check->generality = 0;
    check->breadth = 0;
    for (uint32_t i = 0; i < check->tensor_count; i++) {
        const struct check_pattern *pattern = &check->patterns[i];
        check->generality += generality_of(pattern);
        add_breadths(check, pattern->facts.sizes, pattern->size_roles, pattern->facts.ndim);
        if (pattern->facts.strides != NULL)
            add_breadths(check, pattern->facts.strides, pattern->stride_roles, pattern->facts.ndim);
    }
}

int aoticache_check_compare(const aoticache_check *a, const aoticache_check *b)
{
    if (a->generality != b->generality)
        return a->generality < b->generality ? -1 : 1;
    return (a->breadth > b->breadth) - (a->breadth < b->breadth);
}
