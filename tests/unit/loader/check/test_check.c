/*
 * Making checks, and what passes them. A random test compares with the simple evaluation below.
 */
#include "check_fixture.h"
#include "loader/eager_face.h"

#include <limits.h>

TestSuite(check, .timeout = 300);

static bool one_passes(const char *text, int64_t ndim, const int64_t *sizes, const int64_t *strides)
{
    aoticache_check *check = must_parse(text);
    aoticache_tensor_view view = make_view(ndim, sizes, strides);
    bool passes = aoticache_check_passes(check, &view, 1);
    aoticache_check_free(check);
    return passes;
}

static bool two_pass(const char *text, int64_t a, int64_t b)
{
    aoticache_check *check = must_parse(text);
    aoticache_tensor_view views[2] = {make_view(1, &a, NUMBERS(1)), make_view(1, &b, NUMBERS(1))};
    bool passes = aoticache_check_passes(check, views, 2);
    aoticache_check_free(check);
    return passes;
}

static aoticache_check *make_exact(const aoticache_tensor_view *views, size_t count)
{
    aoticache_check *check = NULL;
    cr_assert_eq(aoticache_check_create_exact(views, count, &check, NULL), AOTICACHE_OK);
    return check;
}

/* ---- exact ---- */

Test(check, exact_refuses_each_property_that_differs)
{
    aoticache_tensor_view view = make_view(2, NUMBERS(2, 3), NUMBERS(3, 1));
    view.dispatch_key_set = 0x8000000000000001;
    aoticache_check *check = make_exact(&view, 1);
    cr_expect(aoticache_check_passes(check, &view, 1));
    cr_expect_eq(aoticache_check_num_tensors(check), 1);
#define REFUSES(field, other)                                              \
    do {                                                                   \
        aoticache_tensor_view changed = view;                              \
        changed.field = other;                                             \
        cr_expect_not(aoticache_check_passes(check, &changed, 1), #field); \
    } while (0)
    REFUSES(dtype, AOTICACHE_DTYPE_FLOAT64);
    REFUSES(dtype, -1);
    REFUSES(device.type, AOTICACHE_DEVICE_TYPE_CUDA);
    REFUSES(device.index, 1);
    REFUSES(layout, AOTICACHE_LAYOUT_SPARSE_COO);
    REFUSES(requires_grad, true);
    REFUSES(dispatch_key_set, 1);
    REFUSES(dispatch_key_set, 0x8000000000000000);
    REFUSES(ndim, 1);
    REFUSES(ndim, 3);
    REFUSES(sizes, NUMBERS(2, 4));
    REFUSES(sizes, NUMBERS(1, 3));
    REFUSES(strides, NUMBERS(1, 2));
    aoticache_check_free(check);
}

Test(check, exact_ignores_data_and_number_of_elements)
{
    aoticache_tensor_view view = make_view(1, NUMBERS(2), NUMBERS(1)), other = view;
    int byte;
    aoticache_check *check = make_exact(&view, 1);
    other.data = &byte;
    other.numel = 99;
    cr_expect(aoticache_check_passes(check, &other, 1));
    aoticache_check_free(check);
}

Test(check, exact_compares_strides_of_dimensions_of_size_one_too)
{
    aoticache_tensor_view view = make_view(2, NUMBERS(1, 3), NUMBERS(3, 1));
    aoticache_check *check = make_exact(&view, 1);
    view.strides = NUMBERS(1, 1);
    cr_expect_not(aoticache_check_passes(check, &view, 1));
    aoticache_check_free(check);
}

Test(check, no_index_and_index_zero_of_the_cpu_are_the_same)
{
    for (int32_t index = -1; index <= 0; index++) {
        aoticache_tensor_view view = make_view(0, NULL, NULL);
        view.device.index = index;
        aoticache_check *check = make_exact(&view, 1);
        view.device.index = -1 - index;
        cr_expect(aoticache_check_passes(check, &view, 1));
        aoticache_check_free(check);
    }
    aoticache_check *check = must_parse("*[...]@*:0");
    aoticache_tensor_view view = make_view(0, NULL, NULL);
    cr_expect(aoticache_check_passes(check, &view, 1));
    view.device.type = AOTICACHE_DEVICE_TYPE_CUDA;
    cr_expect_not(aoticache_check_passes(check, &view, 1), "index -1 of others is no index");
    aoticache_check_free(check);
}

Test(check, exact_leaves_the_index_of_a_device_without_one_free)
{
    aoticache_tensor_view view = make_view(0, NULL, NULL);
    view.device = (aoticache_device){AOTICACHE_DEVICE_TYPE_META, -1};
    aoticache_check *check = make_exact(&view, 1);
    cr_expect(aoticache_check_passes(check, &view, 1));
    view.device.index = 0;
    cr_expect(aoticache_check_passes(check, &view, 1));
    view.device.type = AOTICACHE_DEVICE_TYPE_CPU;
    cr_expect_not(aoticache_check_passes(check, &view, 1));
    aoticache_check_free(check);
}

Test(check, another_number_of_tensors_does_not_pass)
{
    aoticache_tensor_view views[2] = {make_view(0, NULL, NULL), make_view(0, NULL, NULL)};
    aoticache_check *check = make_exact(views, 1), *none = make_exact(NULL, 0);
    cr_expect_not(aoticache_check_passes(check, views, 0));
    cr_expect_not(aoticache_check_passes(check, views, 2));
    cr_expect(aoticache_check_passes(none, NULL, 0));
    cr_expect_not(aoticache_check_passes(none, views, 1));
    aoticache_check_free(check);
    aoticache_check_free(none);
    aoticache_check_free(NULL);
}

Test(check, exact_refuses_what_no_tensor_is)
{
    aoticache_check *check = NULL;
    aoticache_error error;
    aoticache_tensor_view view = make_view(65, NUMBERS(1), NUMBERS(1));
    cr_expect_eq(aoticache_check_create_exact(&view, 1, &check, &error), AOTICACHE_INVALID);
    cr_expect_str_eq(error.message, "tensor 0: number of dimensions is 65; it must be in 0..64");
    view = make_view(1, NUMBERS(1), NULL);
    cr_expect_eq(aoticache_check_create_exact(&view, 1, &check, &error), AOTICACHE_INVALID);
    cr_expect_str_eq(error.message, "tensor 0: 1 dimensions without strides");
    view = make_view(1, NUMBERS(-1), NUMBERS(1));
    cr_expect_eq(aoticache_check_create_exact(&view, 1, &check, &error), AOTICACHE_INVALID);
    view = make_view(0, NULL, NULL);
    view.dtype = -1;
    cr_expect_eq(aoticache_check_create_exact(&view, 1, &check, &error), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_check_create_exact(&view, AOTICACHE_CHECK_MAX_TENSORS + 1, &check, &error),
                 AOTICACHE_INVALID);
    cr_expect_null(check);
}

/* ---- symbols ---- */

Test(check, symbol_makes_dimensions_equal)
{
    cr_expect(two_pass("*[s0], *[s0]", 3, 3));
    cr_expect_not(two_pass("*[s0], *[s0]", 3, 4));
    cr_expect(two_pass("*[s0], *[s1]", 3, 4));
}

Test(check, symbol_keeps_to_its_range_and_multiple)
{
    cr_expect_not(one_passes("*[s0]; s0=2..8", 1, NUMBERS(1), NUMBERS(1)));
    cr_expect(one_passes("*[s0]; s0=2..8", 1, NUMBERS(2), NUMBERS(1)));
    cr_expect(one_passes("*[s0]; s0=2..8", 1, NUMBERS(8), NUMBERS(1)));
    cr_expect_not(one_passes("*[s0]; s0=2..8", 1, NUMBERS(9), NUMBERS(1)));
    cr_expect_not(one_passes("*[s0]", 1, NUMBERS(-1), NUMBERS(1)));
    cr_expect_not(one_passes("*[s0]; s0=5..", 1, NUMBERS(INT64_MIN), NUMBERS(1)));
    for (int64_t size = 0; size < 100; size++) {
        cr_expect_eq(one_passes("*[s0]; s0=0..%8", 1, &size, NUMBERS(1)), size % 8 == 0);
        cr_expect_eq(one_passes("*[s0]; s0=0..%3", 1, &size, NUMBERS(1)), size % 3 == 0);
        cr_expect_eq(one_passes("*[s0]; s0=0..%12", 1, &size, NUMBERS(1)), size % 12 == 0);
    }
}

Test(check, symbol_is_found_behind_coefficient_and_offset)
{
    cr_expect(two_pass("*[4*s0+1], *[s0]", 13, 3));
    cr_expect_not(two_pass("*[4*s0+1], *[s0]", 12, 3));
    cr_expect_not(two_pass("*[4*s0+1], *[s0]", 13, 4));
    cr_expect(two_pass("*[s0-2], *[s0]", 1, 3));
    cr_expect_not(two_pass("*[2*s0+4], *[*]", 2, 0), "s0 would be -1");
}

Test(check, product_may_come_before_its_symbols)
{
    cr_expect(one_passes("*[s0*s1, s0, s1]", 3, NUMBERS(6, 2, 3), NUMBERS(6, 3, 1)));
    cr_expect_not(one_passes("*[s0*s1, s0, s1]", 3, NUMBERS(5, 2, 3), NUMBERS(6, 3, 1)));
    cr_expect(two_pass("*[s0*s0+1], *[s0]", 10, 3));
    cr_expect_not(two_pass("*[s0*s0+1], *[s0]", 9, 3));
}

Test(check, stride_can_give_a_symbol_its_value)
{
    cr_expect(one_passes("*[4, 3]{s0, 1}; s0=3..%2", 2, NUMBERS(4, 3), NUMBERS(8, 1)));
    cr_expect_not(one_passes("*[4, 3]{s0, 1}; s0=3..%2", 2, NUMBERS(4, 3), NUMBERS(7, 1)));
    cr_expect(one_passes("*[s0, s1]{s1, *}", 2, NUMBERS(4, 3), NUMBERS(3, 77)));
}

Test(check, product_beyond_64_bits_does_not_pass)
{
    int64_t half = (int64_t)1 << 32;
    cr_expect_not(one_passes("*[s0, s1, s0*s1]", 3, (const int64_t[]){half, half, 0}, NUMBERS(0, 0, 0)));
    cr_expect_not(one_passes("*[s0, 3*s0+1]", 2, NUMBERS(INT64_MAX, INT64_MAX - 1), NUMBERS(0, 0)));
    cr_expect_not(one_passes("*[s0, s0+1]", 2, NUMBERS(INT64_MAX, INT64_MIN), NUMBERS(0, 0)));
    cr_expect_not(one_passes("*[s0-9223372036854775807]", 1, NUMBERS(INT64_MAX), NUMBERS(0)));
    cr_expect_not(one_passes("*[2*s0+1]", 1, NUMBERS(INT64_MIN), NUMBERS(0)));
}

Test(check, all_64_symbols_can_be_used)
{
    char text[1024];
    int64_t sizes[64], strides[64] = {0};
    size_t length = (size_t)snprintf(text, sizeof text, "*[s0");
    for (int i = 1; i < 64; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, ", s%d", i);
    snprintf(text + length, sizeof text - length, "], *[s63]");
    for (int i = 0; i < 64; i++)
        sizes[i] = i;
    aoticache_check *check = must_parse(text);
    aoticache_tensor_view views[2] = {make_view(64, sizes, strides), make_view(1, NUMBERS(63), NUMBERS(1))};
    cr_expect(aoticache_check_passes(check, views, 2));
    views[1].sizes = NUMBERS(62);
    cr_expect_not(aoticache_check_passes(check, views, 2));
    aoticache_check_free(check);
}

/* ---- memory formats ---- */

Test(check, contiguous_looks_at_what_matters)
{
    cr_expect(one_passes("*[...]{contiguous}", 2, NUMBERS(2, 3), NUMBERS(3, 1)));
    cr_expect_not(one_passes("*[...]{contiguous}", 2, NUMBERS(2, 3), NUMBERS(1, 2)));
    cr_expect(one_passes("*[...]{contiguous}", 3, NUMBERS(2, 1, 3), NUMBERS(3, 99, 1)));
    cr_expect(one_passes("*[...]{contiguous}", 2, NUMBERS(0, 3), NUMBERS(7, 7)));
    cr_expect(one_passes("*[...]{contiguous}", 0, NULL, NULL));
    int64_t huge = (int64_t)1 << 40;
    cr_expect_not(one_passes("*[...]{contiguous}", 2, (const int64_t[]){huge, huge}, (const int64_t[]){huge, 1}));
}

Test(check, channels_last_fixes_the_number_of_dimensions)
{
    aoticache_tensor_pattern pattern = AOTICACHE_TENSOR_PATTERN_INIT;
    aoticache_check *check = NULL;
    char text[128];
    pattern.stride_rule = AOTICACHE_STRIDES_CHANNELS_LAST_3D;
    cr_assert_eq(aoticache_check_create(&pattern, 1, NULL, 0, &check, NULL), AOTICACHE_OK);
    aoticache_check_format(check, text, sizeof text);
    cr_expect_str_eq(text, "*[*, *, *, *, *]{channels_last_3d}");
    aoticache_tensor_view view = make_view(4, NUMBERS(2, 3, 4, 5), NUMBERS(60, 1, 15, 3));
    cr_expect_not(aoticache_check_passes(check, &view, 1));
    cr_expect(one_passes("*[*, *, *, *]{channels_last}", 4, NUMBERS(2, 3, 4, 5), NUMBERS(60, 1, 15, 3)));
    cr_expect_not(one_passes("*[*, *, *, *]{channels_last}", 4, NUMBERS(2, 3, 4, 5), NUMBERS(60, 20, 5, 1)));
    aoticache_check_free(check);
}

/* ---- what create() refuses ---- */

static void expect_refused(aoticache_tensor_pattern pattern, const aoticache_symbol *symbols, size_t symbol_count,
                           const char *message)
{
    aoticache_check *check = NULL;
    aoticache_error error = {.message = ""};
    cr_expect_eq(aoticache_check_create(&pattern, 1, symbols, symbol_count, &check, &error), AOTICACHE_INVALID);
    cr_expect_null(check);
    cr_expect_not_null(strstr(error.message, message), "\"%s\" is not in \"%s\"", message, error.message);
}

Test(check, create_refuses_patterns_that_cannot_be)
{
    aoticache_tensor_pattern base = AOTICACHE_TENSOR_PATTERN_INIT, pattern = base;
    pattern.ndim = 65;
    expect_refused(pattern, NULL, 0, "number of dimensions is 65; it must be in -1..64");
    pattern = base;
    pattern.requires_grad = 2;
    expect_refused(pattern, NULL, 0, "requires_grad 2");
    pattern = base;
    pattern.dtype = -2;
    expect_refused(pattern, NULL, 0, "dtype -2");
    pattern = base;
    pattern.stride_rule = (aoticache_stride_rule)9;
    expect_refused(pattern, NULL, 0, "unknown stride rule 9");
    pattern.stride_rule = AOTICACHE_STRIDES_GIVEN;
    expect_refused(pattern, NULL, 0, "fixed strides require a fixed number of dimensions");
    pattern.ndim = 2;
    expect_refused(pattern, NULL, 0, "fixed strides require an array");
    pattern.stride_rule = AOTICACHE_STRIDES_CHANNELS_LAST;
    expect_refused(pattern, NULL, 0, "tensor 0: channels_last is for 4 dimensions, but there are 2");
}

Test(check, create_refuses_sizes_that_cannot_be)
{
    aoticache_symbol symbol = AOTICACHE_SYMBOL_INIT;
    aoticache_dim dim = {.offset = -1};
    aoticache_tensor_pattern pattern = AOTICACHE_TENSOR_PATTERN_INIT;
    pattern.ndim = 1;
    pattern.sizes = &dim;
    expect_refused(pattern, NULL, 0, "tensor 0: size of dimension 0 is a constant that is negative or too large");
    dim = (aoticache_dim){.coefficient = INT64_MAX, .offset = 1};
    expect_refused(pattern, NULL, 0, "too large");
    dim = (aoticache_dim){.symbol_count = 5, .coefficient = 1};
    expect_refused(pattern, &symbol, 1, "more symbols than 4");
    dim = (aoticache_dim){.symbol_count = 1};
    expect_refused(pattern, &symbol, 1, "a coefficient below 1");
    dim = (aoticache_dim){.symbol_count = 1, .symbols = {1}, .coefficient = 1};
    expect_refused(pattern, &symbol, 1, "an undefined symbol");
    dim = (aoticache_dim){.symbol_count = 2, .coefficient = 1};
    expect_refused(pattern, &symbol, 1, "symbol s0 never occurs alone");
}

Test(check, create_refuses_symbols_without_values)
{
    aoticache_dim dim = {.symbol_count = 1, .coefficient = 1};
    aoticache_tensor_pattern pattern = AOTICACHE_TENSOR_PATTERN_INIT;
    pattern.ndim = 1;
    pattern.sizes = &dim;
    expect_refused(pattern, &(aoticache_symbol){.min = 5, .max = 4}, 1, "symbol s0: empty range");
    expect_refused(pattern, &(aoticache_symbol){.min = 5, .max = 7, .multiple_of = 4}, 1, "no multiple of 4 in 5..7");
    expect_refused(pattern, &(aoticache_symbol){.min = -1, .max = 7}, 1, "minimum -1");
    expect_refused(pattern, &(aoticache_symbol){.max = 7, .multiple_of = -2}, 1, "multiple -2");
    expect_refused(pattern, &(aoticache_symbol){.max = 7}, 65, "at most 1024 and 64 are allowed");
}

/* ---- against a plain evaluation ---- */

static bool evaluate_dim(const aoticache_dim *dim, const int64_t *values, int64_t number)
{
    int64_t product = dim->coefficient;
    if (dim->symbol_count == 0)
        return number == dim->coefficient + dim->offset;
    for (unsigned i = 0; i < dim->symbol_count; i++)
        product *= values[dim->symbols[i]];
    return number == product + dim->offset;
}

/* Binds symbols, in order, in the first round; compares in the second. Numbers are small, so nothing overflows. */
static bool dims_hold(const struct random_check *random, const aoticache_dim *dims, const int64_t *numbers,
                      int64_t ndim, int64_t *values, bool bind)
{
    for (int64_t i = 0; i < ndim; i++) {
        unsigned symbol = dims[i].symbols[0];
        if (dims[i].is_free)
            continue;
        if (bind && dims[i].symbol_count == 1 && values[symbol] == -1) {
            const aoticache_symbol *range = &random->symbols[symbol];
            int64_t value = (numbers[i] - dims[i].offset) / dims[i].coefficient;
            if (value < range->min || value > range->max || value % range->multiple_of != 0)
                return false;
            values[symbol] = value;
        }
        if (!bind && !evaluate_dim(&dims[i], values, numbers[i]))
            return false;
    }
    return true;
}

static bool strides_hold(const aoticache_tensor_view *view, aoticache_stride_rule rule)
{
    static const int orders[5][5] = {{0}, {0}, {4, 3, 2, 1, 0}, {1, 3, 2, 0}, {1, 4, 3, 2, 0}};
    int64_t stride = 1, numel = 1;
    for (int64_t i = 0; i < view->ndim; i++)
        numel *= view->sizes[i];
    if (rule == AOTICACHE_STRIDES_FREE || rule == AOTICACHE_STRIDES_GIVEN ||
        (rule == AOTICACHE_STRIDES_CONTIGUOUS && numel == 0))
        return true;
    for (int64_t i = 0; i < view->ndim; i++) {
        int64_t d = orders[rule][rule == AOTICACHE_STRIDES_CONTIGUOUS ? i + 5 - view->ndim : i];
        if (view->sizes[d] != 1 && view->strides[d] != stride)
            return false;
        stride *= view->sizes[d];
    }
    return true;
}

static bool evaluate_plainly(const struct random_check *random, const aoticache_tensor_view *views)
{
    int64_t values[RANDOM_SYMBOLS] = {-1, -1, -1};
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < random->tensor_count; i++) {
            const aoticache_tensor_pattern *p = &random->patterns[i];
            const aoticache_tensor_view *v = &views[i];
            int32_t index = v->device.type == 0 && v->device.index == -1 ? 0 : v->device.index;
            if ((p->dtype >= 0 && p->dtype != v->dtype) || (p->layout >= 0 && p->layout != v->layout) ||
                (p->device_type >= 0 && p->device_type != v->device.type) ||
                (p->device_index >= 0 && p->device_index != index) ||
                (p->requires_grad >= 0 && p->requires_grad != v->requires_grad) ||
                (p->has_key_set && p->dispatch_key_set != v->dispatch_key_set) ||
                (p->ndim >= 0 && p->ndim != v->ndim) || !strides_hold(v, p->stride_rule))
                return false;
            if (p->ndim >= 0 && !dims_hold(random, p->sizes, v->sizes, v->ndim, values, round == 0))
                return false;
            if (p->stride_rule == AOTICACHE_STRIDES_GIVEN &&
                !dims_hold(random, p->strides, v->strides, v->ndim, values, round == 0))
                return false;
        }
    }
    return true;
}

/* Makes tensors that pass most of a check: its facts, and sizes from one choice of values for the symbols. */
static void likely_views(uint64_t *state, const struct random_check *random, aoticache_tensor_view *views,
                         int64_t numbers[][2][RANDOM_NDIM])
{
    int64_t values[RANDOM_SYMBOLS];
    for (size_t i = 0; i < random->symbol_count; i++)
        values[i] = random->symbols[i].multiple_of * below(state, 5);
    for (size_t i = 0; i < random->tensor_count; i++) {
        const aoticache_tensor_pattern *p = &random->patterns[i];
        int64_t stride = 1;
        views[i] = make_view(p->ndim >= 0 ? p->ndim : below(state, RANDOM_NDIM + 1), numbers[i][0], numbers[i][1]);
        views[i].dtype = p->dtype >= 0 ? p->dtype : 6;
        views[i].layout = p->layout >= 0 ? p->layout : 0;
        views[i].device = (aoticache_device){p->device_type >= 0 ? p->device_type : 0, p->device_index};
        views[i].requires_grad = p->requires_grad > 0;
        views[i].dispatch_key_set = p->dispatch_key_set;
        for (int64_t d = views[i].ndim - 1; d >= 0; d--) {
            const aoticache_dim *dims[2] = {&p->sizes[d], &p->strides[d]};
            for (int kind = 0; kind < 2; kind++) {
                int64_t product = dims[kind]->is_free ? below(state, 4) : dims[kind]->coefficient;
                for (unsigned s = 0; s < dims[kind]->symbol_count; s++)
                    product *= values[dims[kind]->symbols[s]];
                numbers[i][kind][d] = product + dims[kind]->offset;
            }
            if (p->stride_rule != AOTICACHE_STRIDES_GIVEN)
                numbers[i][1][d] = stride;
            stride *= numbers[i][0][d];
        }
    }
    if (below(state, 2) && views[0].ndim > 0)
        numbers[0][below(state, 2)][below(state, (unsigned)views[0].ndim)]++;
    if (below(state, 8) == 0)
        views[random->tensor_count - 1].requires_grad ^= true;
}

Test(check, random_checks_decide_as_a_plain_evaluation_does_and_explain_agrees)
{
    uint64_t state = 20;
    unsigned passed = 0, failed = 0;
    for (int round = 0; round < 20000; round++) {
        struct random_check random;
        aoticache_tensor_view views[RANDOM_TENSORS];
        int64_t numbers[RANDOM_TENSORS][2][RANDOM_NDIM] = {0};
        aoticache_error error = {.message = ""};
        aoticache_check *check = make_random(&state, &random);
        likely_views(&state, &random, views, numbers);
        bool expected = evaluate_plainly(&random, views);
        bool is = aoticache_check_passes(check, views, random.tensor_count);
        bool explained = aoticache_check_explain(check, views, random.tensor_count, NULL, &error) == AOTICACHE_OK;
        if (is != expected || explained != expected) {
            char text[1024];
            aoticache_check_format(check, text, sizeof text);
            cr_assert_fail("round %d: %s: passes %d, explain says %d (%s), expected %d", round, text, is, explained,
                           error.message, expected);
        }
        passed += expected;
        failed += !expected;
        aoticache_check_free(check);
    }
    cr_expect_gt(passed, 1000, "%u passed", passed);
    cr_expect_gt(failed, 1000, "%u failed", failed);
}
