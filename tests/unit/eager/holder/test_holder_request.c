/*
 * Unit tests of eager/holder/request.c and eager/holder/fill.c: from calls to requests, and back to the packed words of
 * a call.
 */
#include "cache/request/text.h"
#include "eager/holder/dispatch_holder.h"
#include "eager/holder/holder_internal.h"
#include "tests/unit/fixtures/holder_fixture.h"

TestSuite(holder_request, .init = fixture_begin, .fini = fixture_end, .timeout = 600);

static test_tensor *y;

/* Begins with a schema; nothing is compiled here. */
static void begin_schema(const char *schema)
{
    cache = open_cache();
    aoticache_context_options options = AOTICACHE_CONTEXT_OPTIONS_INIT;
    options.cache = cache;
    make_eager(&options);
    holder = make_holder(schema);
    x = tensor_create(2, SIZES(2, 3));
    y = tensor_create(1, SIZES(4));
}

static void end_schema(void)
{
    aoticache_holder_unref(holder);
    aoticache_context_free(eager);
    aoticache_cache_close(cache);
    tensor_free(x);
    tensor_free(y);
}

static aoticache_request *request_of(const aoticache_value *values, size_t count)
{
    aoticache_request *request = NULL;
    cr_assert_eq(aoticache_holder_request(holder, values, count, &request, &error), AOTICACHE_OK, "%s", error.message);
    return request;
}

/* Returns the text of the request; checks that the packed words of the call and of the request are the same. */
static const char *text_of(const aoticache_value *values, size_t count)
{
    static char text[1024];
    aoticache_request *request = request_of(values, count);
    aoticache_packed called, stored;
    cr_assert(aoticache_pack(values, count, &called));
    cr_assert(aoticache_holder_pack_request(holder, request, &stored));
    aoticache_request_format(request, text, sizeof text);
    cr_expect(called.hash == stored.hash && called.count == stored.count &&
                  memcmp(called.words, stored.words, called.count * sizeof(uint64_t)) == 0,
              "%s", text);
    aoticache_request_free(request);
    return text;
}

static aoticache_key key_of(const aoticache_value *values, size_t count)
{
    aoticache_key key;
    aoticache_request *request = request_of(values, count);
    cr_assert_eq(aoticache_request_key(request, &key, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_request_free(request);
    return key;
}

/* As in PyTorch, whose dispatcher makes it a float. */
Test(holder_request, int_for_a_float_is_that_float)
{
    begin_schema("test::f(Tensor self, float f, float? g, float[] l, int i) -> Tensor");
    const int64_t ints[] = {1, -2};
    const double doubles[] = {1, -2};
    aoticache_value short_forms[] = {VALUE_TENSOR(x),
                                     VALUE_INT(3),
                                     VALUE_INT(-4),
                                     {.kind = AOTICACHE_VALUE_INT_LIST, .count = 2, .as.ints = ints},
                                     VALUE_INT(5)};
    aoticache_value spelt_out[] = {VALUE_TENSOR(x),
                                   VALUE_DOUBLE(3),
                                   VALUE_DOUBLE(-4),
                                   {.kind = AOTICACHE_VALUE_DOUBLE_LIST, .count = 2, .as.doubles = doubles},
                                   VALUE_INT(5)};
    const aoticache_key key = key_of(spelt_out, 5), same = key_of(short_forms, 5);
    cr_expect(aoticache_digest_equal(&key, &same));
    cr_expect_eq(short_forms[1].kind, AOTICACHE_VALUE_INT);
    cr_expect(aoticache_holder_has_short_forms(holder, short_forms));
    cr_expect_not(aoticache_holder_has_short_forms(holder, spelt_out));
    const aoticache_value five = VALUE_DOUBLE(5);
    spelt_out[4] = five;
    aoticache_request *request = NULL;
    cr_expect_eq(aoticache_holder_request(holder, spelt_out, 5, &request, &error), AOTICACHE_INVALID);
    end_schema();
}

Test(holder_request, tensor_without_strides_is_contiguous)
{
    begin_schema("test::f(Tensor[] l, Tensor self) -> Tensor");
    const int64_t with_none[] = {2, 0, 3}, strides[] = {3, 3, 1};
    aoticache_tensor_view whole = {.dtype = AOTICACHE_DTYPE_FLOAT32,
                                   .device = AOTICACHE_DEVICE_CPU,
                                   .ndim = 3,
                                   .sizes = with_none,
                                   .strides = strides};
    aoticache_tensor_view bare = whole;
    bare.strides = NULL;
    const aoticache_tensor_view *wholes[] = {&whole, &whole}, *bares[] = {&whole, &bare};
    aoticache_value spelt_out[] = {{.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = 2, .as.tensors = wholes},
                                   {.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &whole}};
    aoticache_value short_forms[] = {{.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = 2, .as.tensors = bares},
                                     {.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &bare}};
    const aoticache_key key = key_of(spelt_out, 2), same = key_of(short_forms, 2);
    cr_expect(aoticache_digest_equal(&key, &same));
    cr_expect_null(bare.strides);
    end_schema();
}

Test(holder_request, view_of_no_tensor_is_refused)
{
    begin_schema("test::f(Tensor self, Tensor[] l) -> Tensor");
    const int64_t sizes[] = {2, 3}, negative[] = {2, -3}, strides[] = {3, 1};
    const aoticache_tensor_view whole = {.dtype = AOTICACHE_DTYPE_FLOAT32,
                                         .device = AOTICACHE_DEVICE_CPU,
                                         .ndim = 2,
                                         .sizes = sizes,
                                         .strides = strides};
    aoticache_tensor_view wrong[5] = {whole, whole, whole, whole, whole};
    static const char *const faults[] = {"layout is not a valid", "dtype is not a valid", "ndim is not",
                                         "sizes is NULL", "a size is negative"};
    wrong[0].layout = 77;
    wrong[1].dtype = 77;
    wrong[2].ndim = AOTICACHE_MAX_DIMS + 1;
    wrong[3].sizes = NULL;
    wrong[4].sizes = negative;
    for (size_t i = 0; i < 5; i++) {
        const aoticache_tensor_view *list[] = {&whole, &wrong[i]};
        aoticache_value values[] = {{.kind = AOTICACHE_VALUE_TENSOR, .as.tensor = &wrong[i]},
                                    {.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = 1, .as.tensors = list}};
        aoticache_stack both = {.values = values, .count = 2, .capacity = 2};
        for (int round = 0; round < 2; round++) { /* alone, and in a list */
            cr_expect_eq(aoticache_holder_call(holder, 0, &both, &error), AOTICACHE_INVALID, "%s", faults[i]);
            cr_expect_not_null(strstr(error.message, faults[i]), "%s", error.message);
            values[0].as.tensor = &whole;
            values[1].count = 2;
        }
    }
    end_schema();
}

Test(holder_request, kinds_of_scalars)
{
    begin_schema("test::f(Tensor self, int i, float f, bool b, complex c, Scalar s, str text, Device d, ScalarType t, "
                 "Layout l, MemoryFormat m, SymInt n) -> Tensor");
    aoticache_value values[] = {VALUE_TENSOR(x),
                                VALUE_INT(-3),
                                VALUE_DOUBLE(0.5),
                                VALUE_BOOL(true),
                                {.kind = AOTICACHE_VALUE_COMPLEX, .as.complex_value = {1, -2}},
                                VALUE_BOOL(false),
                                VALUE_STRING("mean"),
                                {.kind = AOTICACHE_VALUE_DEVICE, .as.device = {AOTICACHE_DEVICE_TYPE_CUDA, 1}},
                                {.kind = AOTICACHE_VALUE_DTYPE, .as.int_value = AOTICACHE_DTYPE_INT64},
                                {.kind = AOTICACHE_VALUE_LAYOUT, .as.int_value = 0},
                                {.kind = AOTICACHE_VALUE_MEMORY_FORMAT, .as.int_value = 2},
                                VALUE_INT(9)};
    const char *text = text_of(values, 12);
    cr_expect(strstr(text, "float32[2, 3]") && strstr(text, "-3") && strstr(text, "\"mean\"") &&
                  strstr(text, "cuda:1") && strstr(text, "int64"),
              "%s", text);
    values[5] = VALUE_INT(4);
    text_of(values, 12);
    values[5] = VALUE_DOUBLE(4);
    text_of(values, 12);
    end_schema();
}

Test(holder_request, lists_and_optionals)
{
    begin_schema("test::f(Tensor?[] t, int[] i, float[]? f, bool[] b, str[] s, Scalar[] n, Tensor? more, int? k) -> "
                 "Tensor");
    const aoticache_tensor_view *views[] = {&x->view, NULL, &y->view};
    const char *const words[] = {"a", ""};
    const aoticache_value scalars[] = {VALUE_INT(1), VALUE_DOUBLE(2.5)};
    aoticache_value values[] = {
        {.kind = AOTICACHE_VALUE_TENSOR_LIST, .count = 3, .as.tensors = views},
        {.kind = AOTICACHE_VALUE_INT_LIST, .count = 2, .as.ints = SIZES(5, 6)},
        {.kind = AOTICACHE_VALUE_DOUBLE_LIST, .count = 2, .as.doubles = (const double[]){0.5, 2}},
        {.kind = AOTICACHE_VALUE_BOOL_LIST, .count = 3, .as.bools = (const bool[]){true, false, true}},
        {.kind = AOTICACHE_VALUE_STRING_LIST, .count = 2, .as.strings = words},
        {.kind = AOTICACHE_VALUE_SCALAR_LIST, .count = 2, .as.scalars = scalars},
        VALUE_TENSOR(y),
        VALUE_INT(1)};
    text_of(values, 8);
    values[2] = values[6] = values[7] = VALUE_NONE;
    text_of(values, 8);
    values[0].count = values[1].count = values[3].count = values[4].count = values[5].count = 0;
    text_of(values, 8);
    end_schema();
}

Test(holder_request, arguments_equal_to_defaults_are_left_out)
{
    begin_schema("test::f(Tensor self, int dim=0, float[2] p=[0.5, 1.0], bool keep=False, *, int[2] stride=1, "
                 "ScalarType? dtype=None, str mode=\"sum\") -> Tensor");
    places[0] = VALUE_TENSOR(x);
    stack.count = 1;
    cr_assert_eq(aoticache_holder_push_defaults(holder, 1, &stack, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(stack.count, 7);
    cr_expect_eq(places[4].count, 2, "of a fixed size");
    cr_expect_str_eq(text_of(places, 7), "test::f(float32[2, 3]) on cpu");
    places[4] = (aoticache_value){.kind = AOTICACHE_VALUE_INT_LIST, .count = 2, .as.ints = SIZES(1, 1)};
    cr_expect_str_eq(text_of(places, 7), "test::f(float32[2, 3]) on cpu");
    places[6] = VALUE_STRING("mean");
    cr_expect_str_eq(text_of(places, 7), "test::f(float32[2, 3], mode=\"mean\") on cpu");
    places[3] = VALUE_BOOL(true); /* arguments before a positional one must be given */
    cr_expect_str_eq(text_of(places, 7), "test::f(float32[2, 3], 0, [0.5, 1.0], true, mode=\"mean\") on cpu");
    end_schema();
}

Test(holder_request, same_key_with_and_without_defaults)
{
    begin_schema(SCALE);
    aoticache_value given[] = {VALUE_TENSOR(x), VALUE_DOUBLE(2), VALUE_INT(0)};
    aoticache_request *request = request_of(given, 3), *plain = make_request("test::scale");
    add_tensor(plain, AOTICACHE_DTYPE_FLOAT32, 2, SIZES(2, 3), NULL);
    aoticache_key key, plain_key;
    aoticache_tensor_metadata same = aoticache_request_argument(request, 0)->value.tensor.metadata;
    cr_expect_eq(aoticache_request_argument_count(request), 1);
    cr_expect_eq(same.dispatch_key_set, x->view.dispatch_key_set);
    cr_assert_eq(aoticache_request_key(request, &key, &error), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_key(plain, &plain_key, &error), AOTICACHE_OK);
    if (x->view.dispatch_key_set == 0)
        cr_expect(aoticache_digest_equal(&key, &plain_key));
    aoticache_request_free(request);
    aoticache_request_free(plain);
    cr_expect_eq(aoticache_holder_request(holder, given, 2, &request, &error), AOTICACHE_INVALID);
    given[1] = (aoticache_value){.kind = AOTICACHE_VALUE_OTHER};
    cr_expect_eq(aoticache_holder_request(holder, given, 3, &request, &error), AOTICACHE_INVALID);
    end_schema();
}

Test(holder_request, requests_of_another_schema_do_not_fit)
{
    begin_schema(SCALE);
    aoticache_packed packed;
    aoticache_request *request = make_request("test::scale");
    for (int i = 0; i < 4; i++)
        add_tensor(request, AOTICACHE_DTYPE_FLOAT32, 2, SIZES(2, 3), NULL);
    cr_expect_not(aoticache_holder_pack_request(holder, request, &packed), "too many");
    aoticache_request_free(request);
    request = make_request("test::scale");
    cr_assert_eq(aoticache_request_add_int(request, "unknown", 1, &error), AOTICACHE_OK);
    cr_expect_not(aoticache_holder_pack_request(holder, request, &packed), "a keyword that there is not");
    aoticache_request_free(request);
    request = make_request("test::scale");
    cr_assert_eq(aoticache_request_begin_list(request, NULL, &error), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_end_list(request, &error), AOTICACHE_OK);
    cr_expect_not(aoticache_holder_pack_request(holder, request, &packed), "a list where none is taken");
    aoticache_request_free(request);
    request = make_request("test::scale"); /* `self` is missing */
    cr_expect_not(aoticache_holder_pack_request(holder, request, &packed));
    aoticache_request_free(request);
    end_schema();
}
