/*
 * base/text/json: texts to jansson's values and back. tests/fault/fault_store.c checks, with every allocation failing,
 * that out of memory is distinguished from invalid JSON.
 */
#include "base/text/json.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static json_t *parse(const char *text, json_error_t *error)
{
    return aoticache_json_parse(text, strlen(text), JSON_REJECT_DUPLICATES, error);
}

Test(json, objects_and_arrays_are_read_as_they_are)
{
    static const char text[] =
        "{\"a string that is longer than others\":\"\\\"\\u00e4\",\"n\":1700000000000000000,\"l\":[1,2.5,null]}";
    json_error_t error;
    json_t *value = parse(text, &error);
    cr_assert(json_is_object(value), "%s", error.text);
    cr_assert_eq(json_object_size(value), 3);
    cr_assert_str_eq(json_string_value(json_object_get(value, "a string that is longer than others")), "\"ä");
    cr_assert_eq(json_integer_value(json_object_get(value, "n")), 1700000000000000000);
    cr_assert_eq(json_array_size(json_object_get(value, "l")), 3);
    char *again = aoticache_json_write(value, JSON_COMPACT | JSON_ENSURE_ASCII);
    cr_assert_str_eq(
        again,
        "{\"a string that is longer than others\":\"\\\"\\u00E4\",\"n\":1700000000000000000,\"l\":[1,2.5,null]}");
    free(again);
    json_decref(value);
    value = parse(" [] ", &error);
    cr_assert(json_is_array(value));
    json_decref(value);
}

/* Texts that would be valid only after the character that the parser puts before a text are refused. */
Test(json, what_is_no_object_or_array_is_refused)
{
    static const char *const texts[] = {
        "",        " ",       "1",       "\"a\"", "null",     "{},{}",  "1,2",
        "],[",     "1],[2",   "{}],[{}", "{} {}", "{\"a\":1", "[1,]",   "{\"a\":1,\"a\":2}",
        "\"],[\"", "{\"a\":", "[\"",     "\"",    "[1]]",     "{}\x01", "{\"\x1b[2J"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        json_error_t error, plain;
        cr_expect_null(json_loads(texts[i], JSON_REJECT_DUPLICATES, &plain), "%s", texts[i]);
        cr_expect_null(parse(texts[i], &error), "%s", texts[i]);
        cr_expect_not(aoticache_json_is_out_of_memory(&error), "%s", texts[i]);
        for (char *at = strpbrk(plain.text, "\x01\x1b\n"); at != NULL; at = strpbrk(at, "\x01\x1b\n"))
            *at = '?'; /* a message is one line, without commands to a terminal */
        cr_expect_str_eq(error.text, plain.text, "%s", texts[i]);
        cr_expect_eq(error.column, plain.column, "%s", texts[i]);
        cr_expect_eq(error.position, plain.position, "%s", texts[i]);
    }
}
