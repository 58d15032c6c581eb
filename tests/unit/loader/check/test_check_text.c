/* The text form of checks: written, read, and refused with the position. */
#include "check_fixture.h"
#include "loader/eager_face.h"

#include <stdlib.h>

TestSuite(check_text, .timeout = 300);

/* Parses the first text, expects the second to be written. */
static void expect(const char *text, const char *written)
{
    char is[1024];
    aoticache_check *check = must_parse(text);
    cr_expect_eq(aoticache_check_format(check, is, sizeof is), strlen(written), "%s", text);
    cr_expect_str_eq(is, written);
    aoticache_check_free(check);
}

static void expect_refused(const char *text, const char *message)
{
    aoticache_check *check = NULL;
    aoticache_error error = {.message = ""};
    cr_expect_eq(aoticache_check_parse(text, &check, &error), AOTICACHE_INVALID, "%s", text);
    cr_expect_null(check);
    cr_expect_str_eq(error.message, message);
}

Test(check_text, written_form_is_read_and_written_the_same)
{
    static const char *const texts[] = {
        "",
        "*[...]",
        "*[]",
        "*[]{}",
        "float32[s0, 4*s1, 8]@cpu, int64[*]{*}; s0=2..128, s1=0..%8",
        "bfloat16[...]{contiguous}@cuda:1",
        "*[*, *, *, *]{channels_last}",
        "*[*, *, *, *, *]{channels_last_3d}",
        "float16[s0, s1]{s1, 1} layout=strided grad=0 keys=0x12",
        "dtype12[...]@device5 layout=layout9",
        "*[...]@*:3",
        "*[...] grad=1",
        "*[...] keys=0xffffffffffffffff",
        "*[s0-1, 3*s0*s0*s0*s0+7]",
        "*[9223372036854775807]",
        "*[s0-9223372036854775808]",
        "*[9223372036854775807*s0+9223372036854775807]",
        "*[s0]; s0=5..5%5",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        expect(texts[i], texts[i]);
}

Test(check_text, other_ways_to_write_it_are_normalised)
{
    expect("  float32 [ 4 * s1 * s0 + 1,s0,s1 ] { * , * , 1 } @ cuda : 1  grad=0 layout=strided  ;  s0 = 2 .. 8 % 2 ",
           "float32[4*s0*s1+1, s0, s1]{*, *, 1}@cuda:1 layout=strided grad=0; s0=2..8%2");
    expect("*[1*s0+0, 007, s01]; s0=0.., s1=0..9223372036854775807", "*[s0, 7, s1]");
    expect("*[]keys=0x0012", "*[] keys=0x12");
}

Test(check_text, refusal_says_where_and_what_was_expected)
{
    expect_refused("flaot32[3]", "position 1: unknown dtype 'flaot32'; did you mean float32?");
    expect_refused("*[2], double[3]", "position 7: unknown dtype 'double'; did you mean float64?");
    expect_refused("xyzzy[3]", "position 1: expected a dtype or '*', found 'x'");
    expect_refused("float32", "position 8: expected '[', found the end");
    expect_refused("float32[", "position 9: expected a size, found the end");
    expect_refused("float32[3", "position 10: expected ',' or ']', found the end");
    expect_refused("float32[3,]", "position 11: expected a size, found ']'");
    expect_refused("float32[-3]", "position 9: expected a size, found '-'");
    expect_refused("float32[x]", "position 9: expected a size, found 'x'");
    expect_refused("float32[s]", "position 9: expected a symbol, s0 to s63, found 's'");
    expect_refused("float32[s64]", "position 10: expected the number of a symbol, up to 63, found '6'");
    expect_refused("float32[0*s0]", "position 9: expected a coefficient of 1 or more, found '0'");
    expect_refused("float32[2*3]", "position 11: expected a symbol, s0 to s63, found '3'");
    expect_refused("*[s0*s0*s0*s0*s0]", "position 15: expected no more than 4 symbols in a product, found 's'");
    expect_refused("*[9223372036854775808]", "position 3: expected a size up to 9223372036854775807, found '9'");
    expect_refused("*[s0+9223372036854775808]", "position 6: expected an offset up to 9223372036854775807, found '9'");
    expect_refused("*[s0+]", "position 6: expected an offset, found ']'");
    expect_refused("*[8+1]", "position 4: expected ',' or ']', found '+'");
    expect_refused("*[....]", "position 6: expected ']', found '.'");
    expect_refused("*[2]{}", "position 6: expected 1 strides, one for each size, found '}'");
    expect_refused("*[...]{1}", "position 8: expected a memory format, as the sizes are free, found '1'");
    expect_refused("*[2]{chanels_last}", "position 6: expected a stride or a memory format, found 'c'");
    expect_refused("*[2]{contiguous", "position 16: expected '}', found the end");
    expect_refused("*[2]@gpu", "position 6: expected a device type or '*', found 'g'");
    expect_refused("*[2]@cuda:", "position 11: expected a device index, found the end");
    expect_refused("*[2]@cuda:2147483648", "position 11: expected a device index up to 2147483647, found '2'");
    expect_refused("*[2] layout=dense", "position 13: expected a layout, found 'd'");
    expect_refused("*[2] grad=2", "position 11: expected 0 or 1, a number up to 1, found '2'");
    expect_refused("*[2] keys=12", "position 11: expected 0x and hexadecimal digits, found '1'");
    expect_refused("*[2] keys=0x11111111111111111", "position 13: expected 1 to 16 hexadecimal digits, found '1'");
    expect_refused("*[2] grad=0 grad=0",
                   "position 13: expected an attribute not given yet, ',', ';' or the end, found 'g'");
    expect_refused("*[2],", "position 6: expected a dtype or '*', found the end");
    expect_refused("*[2]\n", "position 5: expected an attribute not given yet, ',', ';' or the end, found byte 0x0a");
    expect_refused("*[s0]; s0", "position 10: expected '=', found the end");
    expect_refused("*[s0]; s0=..5", "position 11: expected the least value, found '.'");
    expect_refused("*[s0]; s0=5", "position 12: expected '..', found the end");
    expect_refused("*[s0]; s0=5..%0", "position 15: expected a multiple of 1 or more, found '0'");
    expect_refused("*[s0]; s0=0.., s0=0..", "position 16: expected a symbol that has no range yet, found 's'");
    expect_refused("*[s0]; s0=0.. x", "position 15: expected ',' or the end, found 'x'");
}

Test(check_text, what_create_refuses_is_refused_in_its_words)
{
    expect_refused("*[s0]; s0=5..4", "symbol s0: empty range: no multiple of 1 in 5..4");
    expect_refused("*[2]{channels_last}", "tensor 0: channels_last is for 4 dimensions, but there are 1");
    expect_refused("*[s1]", "symbol s0 never occurs alone (with a coefficient and an offset), so no size or "
                            "stride determines its value");
}

Test(check_text, limits_are_kept_while_reading)
{
    aoticache_check *check = NULL;
    aoticache_error error;
    char *text = malloc(1025 * 5 + 1), *cursor = text;
    for (int i = 0; i < 1025; i++)
        cursor += sprintf(cursor, "%s*[]", i > 0 ? ", " : "");
    cr_expect_eq(aoticache_check_parse(text, &check, &error), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "no more than 1024 tensors"), "%s", error.message);
    text[1024 * 5 - 2] = '\0';
    cr_expect_eq(aoticache_check_parse(text, &check, NULL), AOTICACHE_OK);
    cr_expect_eq(aoticache_check_num_tensors(check), 1024);
    aoticache_check_free(check);
    cursor = text + sprintf(text, "*[1");
    for (int i = 1; i < 65; i++)
        cursor += sprintf(cursor, ",1");
    strcpy(cursor, "]");
    cr_expect_eq(aoticache_check_parse(text, &check, &error), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "no more than 64 dimensions"), "%s", error.message);
    free(text);
    cr_expect_eq(aoticache_check_parse(NULL, &check, &error), AOTICACHE_INVALID);
}

Test(check_text, format_cuts_off_and_says_the_whole_length)
{
    aoticache_check *check = must_parse("float32[s0, 8]{contiguous}@cpu; s0=2..");
    char whole[64], part[64];
    size_t length = aoticache_check_format(check, whole, sizeof whole);
    cr_assert_eq(length, strlen("float32[s0, 8]{contiguous}@cpu; s0=2.."));
    cr_expect_eq(aoticache_check_format(check, NULL, 0), length);
    for (size_t size = 1; size < length; size++) {
        memset(part, 'x', sizeof part);
        cr_expect_eq(aoticache_check_format(check, part, size), length);
        cr_expect_eq(strlen(part), size - 1);
        cr_expect_eq(strncmp(part, whole, size - 1), 0);
        cr_expect_eq(part[size], 'x');
    }
    aoticache_check_free(check);
}

Test(check_text, exact_check_survives_the_round_trip)
{
    aoticache_tensor_view view = make_view(2, NUMBERS(2, 3), NUMBERS(3, 1));
    aoticache_check *check = NULL;
    char text[256];
    view.dispatch_key_set = 0x8001;
    cr_assert_eq(aoticache_check_create_exact(&view, 1, &check, NULL), AOTICACHE_OK);
    aoticache_check_format(check, text, sizeof text);
    cr_expect_str_eq(text, "float32[2, 3]{3, 1}@cpu:0 layout=strided grad=0 keys=0x8001");
    aoticache_check_free(check);
    check = must_parse(text);
    cr_expect(aoticache_check_passes(check, &view, 1));
    aoticache_check_free(check);
}

Test(check_text, random_checks_survive_the_round_trip)
{
    uint64_t state = 7;
    for (int round = 0; round < 5000; round++) {
        struct random_check random;
        char first[1024], second[1024];
        aoticache_check *check = make_random(&state, &random);
        aoticache_check_format(check, first, sizeof first);
        aoticache_check *again = must_parse(first);
        aoticache_check_format(again, second, sizeof second);
        cr_assert_str_eq(first, second);
        cr_assert_eq(aoticache_check_compare(check, again), 0, "%s", first);
        aoticache_check_free(check);
        aoticache_check_free(again);
    }
}
