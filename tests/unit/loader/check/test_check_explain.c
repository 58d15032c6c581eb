/* The message of a failing check: the first property that differs, with both values. */
#include "check_fixture.h"

TestSuite(check_explain, .timeout = 300);

static void expect(const char *text, const aoticache_tensor_view *views, size_t count, const char *message)
{
    aoticache_check *check = must_parse(text);
    aoticache_error error = {.message = "untouched"};
    aoticache_status status = aoticache_check_explain(check, views, count, NULL, &error);
    cr_expect_str_eq(error.message, message);
    cr_expect_eq(status, strcmp(message, "untouched") == 0 ? AOTICACHE_OK : AOTICACHE_INVALID);
    cr_expect_eq(aoticache_check_passes(check, views, count), status == AOTICACHE_OK);
    aoticache_check_free(check);
}

Test(check_explain, passing_leaves_the_error_untouched)
{
    aoticache_tensor_view view = make_view(1, NUMBERS(3), NUMBERS(1));
    expect("float32[s0]{contiguous}", &view, 1, "untouched");
    expect("", NULL, 0, "untouched");
}

Test(check_explain, facts_are_named_as_pytorch_names_them)
{
    aoticache_tensor_view view = make_view(2, NUMBERS(3, 4), NUMBERS(4, 1));
    view.dispatch_key_set = 0x12;
    expect("float64[...]", &view, 1, "argument 0: dtype is float32, and must be float64");
    expect("dtype12[...]", &view, 1, "argument 0: dtype is float32, and must be 12");
    expect("*[...]@cuda:1", &view, 1, "argument 0: device is cpu, and must be cuda:1");
    expect("*[...]@cpu:1", &view, 1, "argument 0: device index is -1, and must be 1");
    expect("*[...] layout=sparse_coo", &view, 1, "argument 0: layout is strided, and must be sparse_coo");
    expect("*[...] grad=1", &view, 1, "argument 0: requires_grad is 0, and must be 1");
    expect("*[...] keys=0x13", &view, 1, "argument 0: dispatch key set is 0x12, and must be 0x13");
    expect("*[*, *, *]", &view, 1, "argument 0: number of dimensions is 2, and must be 3");
    expect("*[...], *[...]", &view, 1, "there are 1 arguments, but there must be 2");
}

Test(check_explain, sizes_and_strides_show_where_their_symbols_come_from)
{
    aoticache_tensor_view views[2] = {make_view(1, NUMBERS(3), NUMBERS(1)),
                                      make_view(3, NUMBERS(5, 8, 7), NUMBERS(56, 7, 1))};
    expect("*[3], *[8, 8, 7]", views, 2, "argument 1: size of dimension 0 is 5, and must be 8");
    expect("*[s0], *[*, *, 2*s0]", views, 2,
           "argument 1: size of dimension 2 is 7, and must be 2*s0 = 6 (s0 is 3, from size 0 of argument 0)");
    expect("*[s0], *[s1, s0*s0, s0*s1]{*, *, *}", views, 2,
           "argument 1: size of dimension 1 is 8, and must be s0*s0 = 9 (s0 is 3, from size 0 of argument 0)");
    expect("*[s0*s1], *[s0, *, *]{s1, *, *}", views, 2,
           "argument 0: size of dimension 0 is 3, and must be s0*s1 = 280 (s0 is 5, from size 0 of argument 1; "
           "s1 is 56, from stride 0 of argument 1)");
    expect("*[3]{2}, *[...]", views, 2, "argument 0: stride of dimension 0 is 1, and must be 2");
    views[0].sizes = NUMBERS(INT64_MAX);
    expect("*[s0], *[2*s0, *, *]", views, 2,
           "argument 1: size of dimension 0 is 5, and must be 2*s0 = more than fits into 64 bits (s0 is "
           "9223372036854775807, from size 0 of argument 0)");
}

Test(check_explain, ranges_are_shown)
{
    aoticache_tensor_view view = make_view(1, NUMBERS(7), NUMBERS(1));
    expect("*[s0]; s0=8..128", &view, 1, "argument 0: size of dimension 0 is 7, and must be s0 with s0 in 8..128");
    expect("*[s0]; s0=2..%8", &view, 1,
           "argument 0: size of dimension 0 is 7, and must be s0 with s0 in 2.. and a multiple of 8");
    expect("*[4*s0+1]", &view, 1, "argument 0: size of dimension 0 is 7, and must be 4*s0+1 with s0 in 0..");
}

Test(check_explain, memory_formats_show_the_stride_they_want)
{
    aoticache_tensor_view view = make_view(4, NUMBERS(2, 3, 4, 5), NUMBERS(60, 20, 5, 1));
    expect("*[...]{contiguous}", &view, 1, "untouched");
    expect("*[*, *, *, *]{channels_last}", &view, 1,
           "argument 0: stride of dimension 1 is 20, and must be 1 (channels_last)");
    view.strides = NUMBERS(60, 1, 15, 3);
    expect("*[*, *, *, *]{channels_last}", &view, 1, "untouched");
    expect("*[...]{contiguous}", &view, 1, "argument 0: stride of dimension 3 is 3, and must be 1 (contiguous)");
    view = make_view(2, NUMBERS(1 << 30, (int64_t)1 << 40), NUMBERS((int64_t)1 << 40, 1));
    expect("*[...]{contiguous}", &view, 1,
           "argument 0: its number of elements does not fit into 64 bits, but must (contiguous)");
}

Test(check_explain, names_of_arguments_are_shown)
{
    aoticache_tensor_view views[2] = {make_view(0, NULL, NULL), make_view(0, NULL, NULL)};
    const char *names[2] = {"input", NULL};
    aoticache_error error;
    aoticache_check *check = must_parse("float64[], *[...]");
    cr_expect_eq(aoticache_check_explain(check, views, 2, names, &error), AOTICACHE_INVALID);
    cr_expect_str_eq(error.message, "argument 0 (input): dtype is float32, and must be float64");
    aoticache_check_free(check);
    check = must_parse("*[...], float64[]");
    cr_expect_eq(aoticache_check_explain(check, views, 2, names, &error), AOTICACHE_INVALID);
    cr_expect_str_eq(error.message, "argument 1: dtype is float32, and must be float64");
    aoticache_check_free(check);
}

Test(check_explain, view_without_sizes_is_named)
{
    aoticache_tensor_view view = make_view(2, NULL, NUMBERS(1, 1));
    aoticache_check *check = must_parse("*[*, *]");
    aoticache_error error;
    cr_expect_eq(aoticache_check_explain(check, &view, 1, NULL, &error), AOTICACHE_INVALID);
    cr_expect_str_eq(error.message, "argument 0: 2 dimensions without sizes");
    aoticache_check_free(check);
}

/* Tests the table of docs/formats/checks.md. */
Test(check_explain, example_of_the_manual_is_true)
{
    static const char text[] = "float32[s0, s1]{contiguous}@cpu, float32[64, s1]{s1, 1}@cpu, float32[64]@cpu; "
                               "s0=2..128, s1=8..%8";
    aoticache_tensor_view views[3] = {make_view(2, NUMBERS(5, 16), NUMBERS(16, 1)),
                                      make_view(2, NUMBERS(64, 16), NUMBERS(16, 1)),
                                      make_view(1, NUMBERS(64), NUMBERS(2))};
    expect(text, views, 3, "untouched");
    views[0].sizes = NUMBERS(1, 16);
    expect(text, views, 3, "argument 0: size of dimension 0 is 1, and must be s0 with s0 in 2..128");
    views[0].sizes = NUMBERS(5, 12);
    expect(text, views, 3, "argument 0: size of dimension 1 is 12, and must be s1 with s1 in 8.. and a multiple of 8");
    views[0] = make_view(2, NUMBERS(5, 16), NUMBERS(1, 5));
    expect(text, views, 3, "argument 0: stride of dimension 1 is 5, and must be 1 (contiguous)");
    views[0].strides = NUMBERS(16, 1);
    views[1] = make_view(2, NUMBERS(64, 24), NUMBERS(24, 1));
    expect(text, views, 3,
           "argument 1: size of dimension 1 is 24, and must be s1 = 16 (s1 is 16, from size 1 of argument 0)");
}
