/* Specialised before general: aoticache_check_compare() is a total preorder in which a relaxed check comes later. */
#include "check_fixture.h"
#include "loader/eager_face.h"

TestSuite(check_order, .timeout = 300);

static int compare(const char *a, const char *b)
{
    aoticache_check *first = must_parse(a), *second = must_parse(b);
    int order = aoticache_check_compare(first, second);
    cr_expect_eq(aoticache_check_compare(second, first), -order, "%s / %s", a, b);
    aoticache_check_free(first);
    aoticache_check_free(second);
    return order < 0 ? -1 : order > 0;
}

Test(check_order, exact_comes_before_symbolic_before_free)
{
    cr_expect_eq(compare("*[8]", "*[s0]"), -1);
    cr_expect_eq(compare("*[s0]", "*[*]"), -1);
    cr_expect_eq(compare("*[*]", "*[...]"), -1);
    cr_expect_eq(compare("*[...]", "*[...]"), 0);
    cr_expect_eq(compare("float32[8]", "*[8]"), -1);
    cr_expect_eq(compare("*[8]@cpu", "*[8]"), -1);
    cr_expect_eq(compare("*[8]@cuda:1", "*[8]@cuda"), -1);
    cr_expect_eq(compare("*[8] layout=strided", "*[8]"), -1);
    cr_expect_eq(compare("*[8] grad=0", "*[8]"), -1);
    cr_expect_eq(compare("*[8] keys=0x1", "*[8]"), -1);
    cr_expect_eq(compare("*[2, 3]{3, 1}", "*[2, 3]{contiguous}"), -1);
    cr_expect_eq(compare("*[2, 3]{contiguous}", "*[2, 3]"), -1);
}

Test(check_order, dependent_comes_before_independent)
{
    cr_expect_eq(compare("*[s0, s0]", "*[s0, s1]"), -1);
    cr_expect_eq(compare("*[s0, 4*s0]", "*[s0, s1]"), -1);
    cr_expect_eq(compare("*[s0, s1, s0*s1]", "*[s0, s1, s2]"), -1);
}

Test(check_order, narrow_comes_before_wide)
{
    cr_expect_eq(compare("*[s0]; s0=2..8", "*[s0]; s0=2..9"), -1);
    cr_expect_eq(compare("*[s0]; s0=2..", "*[s0]; s0=1.."), -1);
    cr_expect_eq(compare("*[s0]; s0=0..%8", "*[s0]; s0=0..%4"), -1);
    cr_expect_eq(compare("*[4*s0]", "*[2*s0]"), -1);
    cr_expect_eq(compare("*[s0, s1]; s0=2..", "*[s0, s1]; s0=0.."), -1);
    cr_expect_eq(compare("*[s0-9223372036854775808]", "*[s0]"), -1);
    cr_expect_eq(compare("*[9223372036854775807*s0+9223372036854775807]", "*[s0]; s0=0..1"), -1);
}

/* Relaxes one property a little; false if there was nothing to relax. */
static bool relax(uint64_t *state, struct random_check *random)
{
    size_t index = below(state, (unsigned)random->tensor_count);
    aoticache_tensor_pattern *pattern = &random->patterns[index];
    aoticache_symbol *symbol = &random->symbols[below(state, (unsigned)random->symbol_count)];
    aoticache_dim *dims = below(state, 2) ? random->sizes[index] : random->strides[index];
    switch (below(state, 10)) {
    case 0:
        pattern->dtype = -1;
        return true;
    case 1:
        pattern->device_index = -1;
        return true;
    case 2:
        pattern->has_key_set = false;
        return true;
    case 3:
        pattern->requires_grad = -1;
        return true;
    case 4:
        pattern->stride_rule = AOTICACHE_STRIDES_FREE;
        return true;
    case 5:
        if (pattern->stride_rule == AOTICACHE_STRIDES_FREE || pattern->stride_rule == AOTICACHE_STRIDES_CONTIGUOUS)
            pattern->ndim = -1;
        return pattern->ndim == -1;
    case 6:
        symbol->max = symbol->max < INT64_MAX - 10 ? symbol->max + below(state, 10) : symbol->max;
        return true;
    case 7:
        symbol->multiple_of = 1;
        return true;
    case 8:
        symbol->min = 0;
        return true;
    default:
        dims[below(state, RANDOM_NDIM)] = (aoticache_dim){.is_free = true};
        return true;
    }
}

Test(check_order, relaxed_checks_do_not_come_earlier)
{
    uint64_t state = 99;
    unsigned compared = 0, strictly = 0;
    for (int round = 0; round < 20000; round++) {
        struct random_check random, wide;
        aoticache_check *narrow_check = make_random(&state, &random), *wide_check = NULL;
        wide = random;
        point_at_arrays(&wide);
        for (unsigned i = below(&state, 4); i < 4; i++)
            relax(&state, &wide);
        /* Relaxing a size can leave a symbol without a size that defines it: then it is not a valid check. */
        if (aoticache_check_create(wide.patterns, wide.tensor_count, wide.symbols, wide.symbol_count, &wide_check,
                                   NULL) == AOTICACHE_OK) {
            int order = aoticache_check_compare(narrow_check, wide_check);
            cr_assert_leq(order, 0, "round %d", round);
            compared++;
            strictly += order < 0;
        }
        aoticache_check_free(narrow_check);
        aoticache_check_free(wide_check);
    }
    cr_expect_gt(compared, 5000, "%u", compared);
    cr_expect_gt(strictly, 3000, "%u", strictly);
}

static int sign(int number)
{
    return (number > 0) - (number < 0);
}

Test(check_order, is_a_total_preorder)
{
    enum { COUNT = 60 };
    uint64_t state = 3;
    aoticache_check *checks[COUNT];
    struct random_check random;
    for (int i = 0; i < COUNT; i++)
        checks[i] = make_random(&state, &random);
    for (int a = 0; a < COUNT; a++) {
        for (int b = 0; b < COUNT; b++) {
            int ab = aoticache_check_compare(checks[a], checks[b]);
            cr_assert_eq(sign(ab), -sign(aoticache_check_compare(checks[b], checks[a])));
            for (int c = 0; c < COUNT; c++) {
                int bc = aoticache_check_compare(checks[b], checks[c]);
                int ac = aoticache_check_compare(checks[a], checks[c]);
                cr_assert(ab > 0 || bc > 0 || ac <= 0, "not transitive");
                cr_assert(ab != 0 || sign(ac) == sign(bc), "what is equal must compare equally");
            }
        }
    }
    for (int i = 0; i < COUNT; i++)
        aoticache_check_free(checks[i]);
}
