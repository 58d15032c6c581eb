/* Unit tests of eager/holder/pack.c and eager/value.c: equal words if and only if equal metadata. */
#include "eager/holder/holder_internal.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(pack, .timeout = 600);

#define NUMBERS(...)  \
    (const int64_t[]) \
    {                 \
        __VA_ARGS__   \
    }

static aoticache_tensor_view make_view(int64_t ndim, const int64_t *sizes, const int64_t *strides)
{
    return (aoticache_tensor_view){.dtype = AOTICACHE_DTYPE_FLOAT32,
                                   .device = AOTICACHE_DEVICE_CPU,
                                   .ndim = ndim,
                                   .sizes = sizes,
                                   .strides = strides};
}

static bool same_words(const aoticache_value *a, size_t a_count, const aoticache_value *b, size_t b_count)
{
    aoticache_packed first, second;
    cr_assert(aoticache_pack(a, a_count, &first));
    cr_assert(aoticache_pack(b, b_count, &second));
    bool same = first.count == second.count && memcmp(first.words, second.words, first.count * sizeof(uint64_t)) == 0;
    if (same)
        cr_expect_eq(first.hash, second.hash);
    else
        cr_expect_neq(first.hash, second.hash);
    return same;
}

static bool same(aoticache_value a, aoticache_value b)
{
    return same_words(&a, 1, &b, 1);
}

static bool same_views(const aoticache_tensor_view *a, const aoticache_tensor_view *b)
{
    return same((aoticache_value){.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = a},
                (aoticache_value){.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = b});
}

Test(pack, each_property_of_a_tensor_counts)
{
    aoticache_tensor_view view = make_view(2, NUMBERS(2, 3), NUMBERS(3, 1)), copy = view;
    copy.sizes = NUMBERS(2, 3);
    copy.strides = NUMBERS(3, 1);
    copy.data = &copy;
    cr_expect(same_views(&view, &copy), "addresses are no metadata");
#define DIFFERS(field, other)                                                 \
    do {                                                                      \
        aoticache_tensor_view changed = view;                                 \
        changed.field = other;                                                \
        cr_expect_not(same_views(&view, &changed), #field " does not count"); \
    } while (0)
    DIFFERS(dtype, AOTICACHE_DTYPE_FLOAT64);
    DIFFERS(device.type, AOTICACHE_DEVICE_TYPE_CUDA);
    DIFFERS(requires_grad, true);
    DIFFERS(dispatch_key_set, 1);
    DIFFERS(dispatch_key_set, UINT64_C(1) << 63);
    DIFFERS(ndim, 1);
    DIFFERS(sizes, NUMBERS(2, 4));
    DIFFERS(sizes, NUMBERS(3, 2));
    DIFFERS(strides, NUMBERS(1, 2));
    DIFFERS(strides, NUMBERS(4, 1));
    view.device = (aoticache_device){AOTICACHE_DEVICE_TYPE_CUDA, 0};
    DIFFERS(device.index, 1);
    view.device = (aoticache_device){AOTICACHE_DEVICE_TYPE_CPU, 0};
    cr_expect(same_views(&view, &copy), "\"cpu:0\" is \"cpu\"");
}

Test(pack, strides_are_kept_where_they_do_not_follow_from_sizes)
{
    aoticache_tensor_view a = make_view(2, NUMBERS(1, 3), NUMBERS(3, 1)),
                          b = make_view(2, NUMBERS(1, 3), NUMBERS(7, 1));
    cr_expect_not(same_views(&a, &b), "as in a request: also those of dimensions of size 1");
    a = make_view(2, NUMBERS(0, 3), NUMBERS(3, 1));
    b = make_view(2, NUMBERS(0, 3), NUMBERS(3, 1));
    cr_expect(same_views(&a, &b));
    a = make_view(0, NULL, NULL);
    b = make_view(1, NUMBERS(1), NUMBERS(1));
    cr_expect_not(same_views(&a, &b));
}

Test(pack, what_cannot_be_a_kernels)
{
    aoticache_packed packed;
    aoticache_tensor_view view = make_view(1, NUMBERS(2), NUMBERS(1));
    aoticache_value value = {.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &view};
#define REFUSED(field, other)                                      \
    do {                                                           \
        aoticache_tensor_view before = view;                       \
        view.field = other;                                        \
        cr_expect_not(aoticache_pack(&value, 1, &packed), #field); \
        view = before;                                             \
    } while (0)
    REFUSED(layout, AOTICACHE_LAYOUT_SPARSE_COO);
    REFUSED(ndim, AOTICACHE_MAX_DIMS + 1);
    REFUSED(ndim, -1);
    REFUSED(dtype, 256 + AOTICACHE_DTYPE_FLOAT32);
    REFUSED(dtype, -1);
    REFUSED(device.type, 256);
    for (int bit = 31; bit <= 33; bit++) /* Conjugate, Negative, ZeroTensor */
        REFUSED(dispatch_key_set, UINT64_C(0x9400010001) | UINT64_C(1) << bit);
    value.kind = AOTICACHE_VALUE_GENERATOR;
    cr_expect_not(aoticache_pack(&value, 1, &packed));
    value.kind = AOTICACHE_VALUE_OTHER;
    cr_expect_not(aoticache_pack(&value, 1, &packed));
    value.kind = AOTICACHE_VALUE_OUTPUT;
    cr_expect_not(aoticache_pack(&value, 1, &packed));
    value.kind = 99;
    cr_expect_not(aoticache_pack(&value, 1, &packed));
}

Test(pack, scalars)
{
#define VALUE(its_kind, field, ...) ((aoticache_value){.kind = AOTICACHE_VALUE_##its_kind, .as.field = __VA_ARGS__})
    cr_expect(same(VALUE(INT, int_value, -5), VALUE(INT, int_value, -5)));
    cr_expect_not(same(VALUE(INT, int_value, 1), VALUE(INT, int_value, 2)));
    cr_expect_not(same(VALUE(INT, int_value, 1), VALUE(DOUBLE, double_value, 1)));
    cr_expect_not(same(VALUE(INT, int_value, 1), VALUE(BOOL, bool_value, true)));
    cr_expect_not(same(VALUE(INT, int_value, 6), VALUE(DTYPE, int_value, 6)));
    cr_expect_not(same(VALUE(LAYOUT, int_value, 0), VALUE(MEMORY_FORMAT, int_value, 0)));
    cr_expect_not(same(VALUE(BOOL, bool_value, false), VALUE(BOOL, bool_value, true)));
    cr_expect_not(same(VALUE(DOUBLE, double_value, 0.0), VALUE(DOUBLE, double_value, -0.0)), "as in a request");
    cr_expect(same(VALUE(DOUBLE, double_value, NAN), VALUE(DOUBLE, double_value, -NAN)), "as in a request");
    aoticache_value a = {.kind = AOTICACHE_VALUE_COMPLEX, .as.complex_value = {1, 2}}, b = a;
    cr_expect(same(a, b));
    b.as.complex_value[1] = 3;
    cr_expect_not(same(a, b));
    cr_expect_not(same(VALUE(DEVICE, device, {AOTICACHE_DEVICE_TYPE_CUDA, 0}),
                       VALUE(DEVICE, device, {AOTICACHE_DEVICE_TYPE_CUDA, 1})));
    cr_expect_not(same(VALUE(DEVICE, device, {AOTICACHE_DEVICE_TYPE_CUDA, 0}),
                       VALUE(DEVICE, device, {AOTICACHE_DEVICE_TYPE_CPU, -1})));
    cr_expect(same((aoticache_value){.kind = AOTICACHE_VALUE_NONE}, VALUE(TENSOR, tensor, NULL)), "an absent one");
}

Test(pack, strings_and_lists_do_not_run_into_each_other)
{
    cr_expect(same(VALUE(STRING, string, "mean"), VALUE(STRING, string, (char[]){"mean"})));
    cr_expect_not(same(VALUE(STRING, string, "mean"), VALUE(STRING, string, "sum")));
    cr_expect_not(same(VALUE(STRING, string, ""), VALUE(STRING, string, "a")));
    cr_expect_not(same(VALUE(STRING, string, "12345678"), VALUE(STRING, string, "123456789")));
    const char *const one[] = {"ab", "c"}, *const two[] = {"a", "bc"};
    aoticache_value a = {.kind = AOTICACHE_VALUE_STRING_LIST, .count = 2, .as.strings = one}, b = a;
    b.as.strings = two;
    cr_expect_not(same(a, b));
    a = (aoticache_value){.kind = AOTICACHE_VALUE_INT_LIST, .count = 2, .as.ints = NUMBERS(1, 2)};
    b = a;
    b.count = 1;
    cr_expect_not(same(a, b));
    b = (aoticache_value){.kind = AOTICACHE_VALUE_DOUBLE_LIST, .count = 2, .as.doubles = (const double[]){1, 2}};
    cr_expect_not(same(a, b));
    a = (aoticache_value){.kind = AOTICACHE_VALUE_BOOL_LIST, .count = 2, .as.bools = (const bool[]){true, false}};
    b = (aoticache_value){.kind = AOTICACHE_VALUE_BOOL_LIST, .count = 2, .as.bools = (const bool[]){false, true}};
    cr_expect_not(same(a, b));
    const aoticache_value scalars[] = {VALUE(INT, int_value, 1), VALUE(DOUBLE, double_value, 1)};
    a = (aoticache_value){.kind = AOTICACHE_VALUE_SCALAR_LIST, .count = 2, .as.scalars = scalars};
    b = a;
    b.as.scalars = scalars + 1;
    b.count = 1;
    cr_expect_not(same(a, b));
    aoticache_value ints[] = {{.kind = AOTICACHE_VALUE_INT_LIST, .count = 1, .as.ints = NUMBERS(1)},
                              {.kind = AOTICACHE_VALUE_INT_LIST, .count = 2, .as.ints = NUMBERS(2, 3)}};
    aoticache_value other[] = {{.kind = AOTICACHE_VALUE_INT_LIST, .count = 2, .as.ints = NUMBERS(1, 2)},
                               {.kind = AOTICACHE_VALUE_INT_LIST, .count = 1, .as.ints = NUMBERS(3)}};
    cr_expect_not(same_words(ints, 2, other, 2));
}

Test(pack, order_and_number_of_arguments_count)
{
    aoticache_tensor_view a = make_view(1, NUMBERS(2), NUMBERS(1)), b = make_view(1, NUMBERS(3), NUMBERS(1));
    aoticache_value forth[] = {VALUE(TENSOR, tensor, &a), VALUE(TENSOR, tensor, &b)};
    aoticache_value back[] = {VALUE(TENSOR, tensor, &b), VALUE(TENSOR, tensor, &a)};
    cr_expect_not(same_words(forth, 2, back, 2));
    cr_expect_not(same_words(forth, 2, forth, 1));
    const aoticache_tensor_view *views[] = {&a, NULL, &b}, *others[] = {&a, &b, NULL};
    aoticache_value list = {.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = 3, .as.tensors = views}, moved = list;
    moved.as.tensors = others;
    cr_expect_not(same(list, moved));
    moved.count = 2;
    cr_expect_not(same(list, moved));
}

Test(pack, requires_grad_of_any_tensor_is_seen)
{
    aoticache_packed packed;
    aoticache_tensor_view a = make_view(1, NUMBERS(2), NUMBERS(1)), b = a;
    b.requires_grad = true;
    const aoticache_tensor_view *views[] = {&a, NULL, &b};
    aoticache_value list = {.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = 3, .as.tensors = views};
    cr_assert(aoticache_pack(&list, 1, &packed));
    cr_expect(packed.requires_grad);
    list.count = 2;
    cr_assert(aoticache_pack(&list, 1, &packed));
    cr_expect_not(packed.requires_grad);
}

/*
 * Packs every kind at every position near the end of the buffer: it fits or is refused, and nothing is written past the
 * end.
 */
Test(pack, the_end_of_the_buffer)
{
    static int64_t ints[AOTICACHE_PACK_MAX_WORDS + 8];
    struct {
        aoticache_packed packed;
        uint64_t guard[64];
    } space;
    aoticache_tensor_view view = make_view(3, NUMBERS(2, 3, 4), NUMBERS(24, 8, 2));
    const aoticache_tensor_view *views[] = {&view, NULL};
    const aoticache_value scalars[] = {VALUE(INT, int_value, 1), VALUE(DOUBLE, double_value, 1)};
    const char *const texts[] = {"twelve bytes", ""};
    const aoticache_value values[] = {
        VALUE(TENSOR, tensor, &view),
        VALUE(INT, int_value, 1),
        VALUE(STRING, string, "twelve bytes"),
        {.kind = AOTICACHE_VALUE_NONE},
        {.kind = AOTICACHE_VALUE_COMPLEX, .as.complex_value = {1, 2}},
        {.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = 2, .as.tensors = views},
        {.kind = AOTICACHE_VALUE_SCALAR_LIST, .count = 2, .as.scalars = scalars},
        {.kind = AOTICACHE_VALUE_STRING_LIST, .count = 2, .as.strings = texts},
        {.kind = AOTICACHE_VALUE_BOOL_LIST, .count = 3, .as.bools = (const bool[]){1, 0, 1}}};
    for (size_t kind = 0; kind < sizeof values / sizeof *values; kind++)
        for (uint32_t count = AOTICACHE_PACK_MAX_WORDS - 20; count <= AOTICACHE_PACK_MAX_WORDS; count++) {
            aoticache_value both[] = {{.kind = AOTICACHE_VALUE_INT_LIST, .count = count, .as.ints = ints},
                                      values[kind]};
            memset(space.guard, 0xAB, sizeof space.guard);
            bool fits = aoticache_pack(both, 2, &space.packed);
            cr_expect(!fits || space.packed.count <= AOTICACHE_PACK_MAX_WORDS);
            cr_expect(fits || count > AOTICACHE_PACK_MAX_WORDS - 16, "value %zu after %u", kind, count);
            for (int i = 0; i < 64; i++)
                cr_assert_eq(space.guard[i], UINT64_C(0xABABABABABABABAB));
        }
}

Test(pack, inputs_are_the_tensors_in_order)
{
    aoticache_tensor_view a = make_view(0, NULL, NULL), b = a;
    a.handle = (AtenTensorHandle)(void *)&a;
    b.handle = (AtenTensorHandle)(void *)&b;
    const aoticache_tensor_view *views[] = {&b, NULL, &a};
    aoticache_value values[] = {VALUE(TENSOR, tensor, &a),
                                VALUE(INT, int_value, 3),
                                {.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = 3, .as.tensors = views},
                                {.kind = AOTICACHE_VALUE_NONE}};
    AtenTensorHandle inputs[8];
    size_t count = 0;
    cr_assert(aoticache_pack_inputs(values, 4, inputs, 8, &count));
    cr_assert_eq(count, 3);
    cr_expect(inputs[0] == a.handle && inputs[1] == b.handle && inputs[2] == a.handle);
    cr_expect_not(aoticache_pack_inputs(values, 4, inputs, 2, &count));
    cr_expect_not(aoticache_pack_inputs(values, 4, inputs, 0, &count));
    cr_expect(aoticache_pack_inputs(values, 4, inputs, 3, &count), "absent ones need no place");
}

Test(value, kinds_have_names)
{
    cr_expect_str_eq(aoticache_value_kind_name(AOTICACHE_VALUE_TENSOR_LIST), "tensor list");
    cr_expect_str_eq(aoticache_value_kind_name(99), "?");
    cr_expect_str_eq(aoticache_value_kind_name(-1), "?");
}
