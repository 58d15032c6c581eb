/*
 * eager/dispatch/schema/schema: the contents of a parsed schema, its text, what is refused and at which position, and
 * comparisons. tests/python/dispatch/test_schemas.py compares it with PyTorch on all of PyTorch's schemas.
 */
#include "eager/dispatch/schema/schema.h"
#include "eager/dispatch/schema/schema_internal.h"

#include "tests/unit/fixtures/locale_fixture.h"

#include <criterion/criterion.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static aoticache_schema *parse(const char *text)
{
    aoticache_schema *schema = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_schema_parse(text, &schema, &error), AOTICACHE_OK, "%s: %s", text, error.message);
    return schema;
}

static void prints(const char *text, const char *wanted)
{
    char printed[512];
    aoticache_schema *schema = parse(text);
    cr_expect_eq(aoticache_schema_format(schema, printed, sizeof printed), strlen(wanted), "%s", text);
    cr_expect_str_eq(printed, wanted);
    aoticache_schema_free(schema);
}

static void refuses(const char *text, const char *message)
{
    aoticache_schema *schema = (aoticache_schema *)1;
    aoticache_error error = {.message = ""};
    cr_expect_eq(aoticache_schema_parse(text, &schema, &error), AOTICACHE_INVALID, "%s", text);
    cr_expect_str_eq(error.message, message);
    cr_expect_eq(schema, (aoticache_schema *)1, "%s: written to", text);
}

Test(schema, name_and_overload_are_read)
{
    aoticache_schema *schema = parse("aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor");
    cr_expect_str_eq(schema->name, "aten::add");
    cr_expect_str_eq(schema->overload, "Tensor");
    cr_expect_str_eq(schema->full_name, "aten::add.Tensor");
    cr_expect(schema->has_signature);
    cr_expect_eq(schema->argument_count, 3);
    cr_expect_eq(schema->return_count, 1);
    const aoticache_schema_argument *alpha = &schema->arguments[2];
    cr_expect_str_eq(alpha->name, "alpha");
    cr_expect(alpha->keyword_only);
    cr_expect_not(schema->arguments[1].keyword_only);
    cr_expect_eq(alpha->type->kind, AOTICACHE_TYPE_NUMBER);
    cr_expect_eq(alpha->default_value.kind, AOTICACHE_DEFAULT_INT);
    cr_expect_eq(alpha->default_value.int_value, 1);
    cr_expect_str_eq(schema->returns[0].name, "");
    cr_expect_not(schema->is_mutable);
    cr_expect_not(schema->has_aliasing);
    aoticache_schema_free(schema);
}

Test(schema, name_alone_is_read_by_parse_name_only)
{
    aoticache_schema *schema = NULL;
    aoticache_error error;
    cr_assert_eq(aoticache_schema_parse_name(" aten :: add . out ", &schema, &error), AOTICACHE_OK);
    cr_expect_str_eq(schema->full_name, "aten::add.out");
    cr_expect_not(schema->has_signature);
    cr_expect_eq(schema->argument_count, 0);
    char text[64];
    aoticache_schema_format(schema, text, sizeof text);
    cr_expect_str_eq(text, "aten::add.out");
    aoticache_schema_free(schema);
    cr_expect_eq(aoticache_schema_parse_name("a::b() -> ()", &schema, &error), AOTICACHE_INVALID);
    cr_expect_str_eq(error.message, "schema, column 5: expected the end of the name, found '('");
    refuses("aten::add", "schema, column 10: expected '(', found the end");
}

Test(schema, annotations_of_lists_and_elements_are_apart)
{
    aoticache_schema *schema = parse("a::b(Tensor(a!)[] x, Tensor(a)[](b -> c)? y, int[2](d) z) -> Tensor(a)");
    const aoticache_schema_argument *x = &schema->arguments[0];
    const aoticache_schema_argument *y = &schema->arguments[1];
    const aoticache_schema_argument *z = &schema->arguments[2];
    cr_assert_not_null(x->alias);
    cr_expect(x->alias->is_write);
    cr_expect_null(x->list_alias);
    cr_assert(y->alias != NULL && y->list_alias != NULL);
    cr_expect_str_eq(y->alias->before[0], "a");
    cr_expect_str_eq(y->list_alias->before[0], "b");
    cr_expect_str_eq(y->list_alias->after[0], "c");
    cr_expect_null(z->alias);
    cr_expect_str_eq(z->list_alias->before[0], "d");
    cr_expect_eq(z->type->fixed_size, 2);
    cr_expect(schema->is_mutable);
    cr_expect(schema->has_aliasing);
    aoticache_schema_free(schema);
}

Test(schema, defaults_have_their_types)
{
    aoticache_schema *schema = parse("a::b(int[3] s=2, float e=1, bool c=False, str t='\\101\"', Device d='cuda:1', "
                                     "ScalarType k=half, complex z=-2j, Tensor? n=None) -> ()");
    const aoticache_default *s = &schema->arguments[0].default_value;
    cr_assert_eq(s->kind, AOTICACHE_DEFAULT_LIST);
    cr_assert_eq(s->count, 3);
    cr_expect_eq(s->items[2].int_value, 2);
    cr_expect_eq(schema->arguments[1].default_value.kind, AOTICACHE_DEFAULT_FLOAT);
    cr_expect_eq(schema->arguments[1].default_value.float_value, 1.0);
    cr_expect_eq(schema->arguments[2].default_value.kind, AOTICACHE_DEFAULT_BOOL);
    cr_expect_str_eq(schema->arguments[3].default_value.string_value, "A\"");
    cr_expect_str_eq(schema->arguments[4].default_value.string_value, "cuda:1");
    cr_expect_eq(schema->arguments[5].default_value.int_value, AOTICACHE_DTYPE_FLOAT16);
    cr_expect_eq(schema->arguments[6].default_value.imaginary, -2.0);
    cr_expect_eq(schema->arguments[7].default_value.kind, AOTICACHE_DEFAULT_NONE);
    aoticache_schema_free(schema);
}

Test(schema, format_is_pytorchs)
{
    prints("a::b( Tensor(a! ) x , float e = 1e-05,int[2] s=[1 ,1],*,str? t='a\"')->(int)",
           "a::b(Tensor(a!) x, float e=1.0000000000000001e-05, int[2] s=1, *, str? t=\"a\\\"\") -> int");
    prints("a::b(Tensor! x, ...) -> ((int, Dict(str, t))[])",
           "a::b(Tensor($0! -> ) x, ...) -> ((int, Dict(str, t))[])");
    prints("a::b() -> ...", "a::b() -> ...");
    prints("a::b(SymInt[2] x=1) -> ()", "a::b(SymInt[2] x=[1, 1]) -> ()");
    prints("a::b(Tensor(b|a -> c|*) x) -> None", "a::b(Tensor(b|a -> c|*) x) -> NoneType");
}

Test(schema, format_cuts_like_snprintf)
{
    aoticache_schema *schema = parse("a::b(int x) -> ()");
    char text[8] = "zzzzzzz";
    cr_expect_eq(aoticache_schema_format(schema, text, 5), strlen("a::b(int x) -> ()"));
    cr_expect_str_eq(text, "a::b");
    cr_expect_eq(text[5], 'z');
    cr_expect_eq(aoticache_schema_format(schema, NULL, 0), strlen("a::b(int x) -> ()"));
    aoticache_schema_free(schema);
}

Test(schema, numbers_do_not_depend_on_the_locale)
{
    if (!use_decimal_comma())
        cr_skip_test("no locale with a decimal comma is installed, and none can be made: install the package locales");
    locale_t comma = duplocale(LC_GLOBAL_LOCALE);
    locale_t before = uselocale(comma);
    prints("a::b(float x=0.5) -> ()", "a::b(float x=0.5) -> ()");
    cr_expect_eq(uselocale((locale_t)0), comma, "the caller's locale stays");
    uselocale(before);
    freelocale(comma);
}

Test(schema, refusals_name_the_column)
{
    refuses("a::b(Tensor x; int y) -> ()", "schema, column 14: expected ',' or ')', found ';'");
    refuses("a::b(Tensr x) -> ()", "schema, column 6: unknown type 'Tensr'; did you mean Tensor?");
    refuses("a::b(ScalarType x=flot32) -> ()", "schema, column 19: unknown dtype 'flot32'; did you mean float32?");
    refuses("a::b(int x) -> int y z", "schema, column 22: expected the end of the schema, found 'z'");
    refuses("a::b(int x=9223372036854775808) -> ()",
            "schema, column 12: the number 9223372036854775808 is out of range");
    refuses("a::b(int x=1, int y) -> ()", "schema, column 15: argument 'y' has no default, but 'x' before it has");
    refuses("a::b(int[] x=[1, True]) -> ()", "schema, column 18: this element is not an integer");
    refuses("a::b.default() -> ()", "schema, column 6: 'default' cannot be the name of an overload: \"default\" means "
                                    "no overload, and a name must not begin with \"__\"");
    refuses("a::b(int x) ->\n int", "schema, column 15: expected a type, found a new line");
    refuses("", "schema, column 1: expected the name of an operator, found the end");
    refuses("a::b(\x01) -> ()", "schema, column 6: expected a type, found byte 0x01");
    cr_expect_eq(aoticache_schema_parse(NULL, NULL, NULL), AOTICACHE_INVALID);
}

Test(schema, definition_has_no_type_variables)
{
    aoticache_error error = {.message = ""};
    aoticache_schema *schema = NULL;
    static const char *const variables[] = {
        "a::b(tensor x, floot y) -> tensor", "a::b(t x) -> ()",        "a::b() -> t[]", "a::b(Future(t) x) -> ()",
        "a::b(Dict(str, t) x) -> ()",        "a::b((int, t?) x) -> ()"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        aoticache_schema_free(parse(variables[i]));
        cr_expect_eq(aoticache_schema_parse_definition(variables[i], NULL, &schema, &error), AOTICACHE_INVALID, "%s",
                     variables[i]);
    }
    aoticache_schema_parse_definition(variables[0], NULL, &schema, &error);
    cr_expect_str_eq(error.message, "schema, column 6: unknown type 'tensor'; did you mean Tensor?");
    aoticache_schema_parse_definition("a::b(Tensor x, floot y) -> ()", NULL, &schema, &error);
    cr_expect_str_eq(error.message, "schema, column 16: unknown type 'floot'; did you mean float?");
    cr_expect_eq(aoticache_schema_parse_definition("a::b(Future(Tensor) x) -> Any", NULL, &schema, &error),
                 AOTICACHE_OK);
    aoticache_schema_free(schema);
}

/* Parses a text of `size` bytes: one schema followed by comments. */
static aoticache_status parse_long(size_t size)
{
    aoticache_schema *schema = NULL;
    char *text = malloc(size + 1);
    cr_assert_not_null(text);
    memset(text, ' ', size);
    memcpy(text, "a::b() -> ()", 12);
    text[size] = '\0';
    aoticache_status status = aoticache_schema_parse(text, &schema, NULL);
    if (status == AOTICACHE_OK)
        aoticache_schema_free(schema);
    free(text);
    return status;
}

Test(schema, limits_are_kept)
{
    cr_expect_eq(parse_long(64 << 10), AOTICACHE_OK);
    cr_expect_eq(parse_long((64 << 10) + 1), AOTICACHE_INVALID);
    refuses("a::b(int[70000] x=1) -> ()", "schema, column 19: a default has more than 65536 elements");
    refuses("a::b(int[4294967296] x) -> ()", "schema, column 10: the length of a list must be at most 2147483647");
    char text[256] = "a::b(";
    for (int i = 0; i < 40; i++)
        strcat(text, "(");
    refuses(text, "schema, column 38: types are nested deeper than 32");
    strcpy(text, "a::b(int");
    for (int i = 0; i < 32; i++)
        strcat(text, "[]");
    strcat(text, " x) -> ()");
    refuses(text, "schema, column 6: types are nested deeper than 32");
}

Test(schema, many_arguments_are_held)
{
    aoticache_schema *schema = NULL;
    char *text = malloc(64 << 10), *at = text;
    cr_assert_not_null(text);
    at = stpcpy(at, "a::b(");
    for (int i = 0; i < 3000; i++)
        at += sprintf(at, "%sTensor(a)[] x%d", i > 0 ? "," : "", i);
    strcpy(at, ") -> ()");
    cr_assert_eq(aoticache_schema_parse(text, &schema, NULL), AOTICACHE_OK);
    cr_expect_eq(schema->argument_count, 3000);
    cr_expect_str_eq(schema->arguments[2999].name, "x2999");
    cr_expect_str_eq(schema->arguments[2999].alias->before[0], "a");
    aoticache_schema_free(schema);
    free(text);
}

static bool equal(const char *a_text, const char *b_text)
{
    aoticache_schema *a = parse(a_text), *b = parse(b_text);
    bool same = aoticache_schema_equal(a, b);
    aoticache_schema_free(a);
    aoticache_schema_free(b);
    return same;
}

Test(schema, equal_looks_at_everything)
{
    const char *base = "a::b.c(Tensor(a|b) x, int[2] y=1, *, float z=1.5) -> int n";
    cr_expect(equal(base, "a::b.c( Tensor(b|a) x, int[2] y=[1,1], *, float z=15e-1) -> (int n)"));
    static const char *const others[] = {"a::b.d(Tensor(a|b) x, int[2] y=1, *, float z=1.5) -> int n",
                                         "a::b.c(Tensor(a) x, int[2] y=1, *, float z=1.5) -> int n",
                                         "a::b.c(Tensor(a|b) w, int[2] y=1, *, float z=1.5) -> int n",
                                         "a::b.c(Tensor(a|b) x, int[] y=[1,1], *, float z=1.5) -> int n",
                                         "a::b.c(Tensor(a|b) x, int[2] y=2, *, float z=1.5) -> int n",
                                         "a::b.c(Tensor(a|b) x, int[2] y=1, float z=1.5) -> int n",
                                         "a::b.c(Tensor(a|b) x, int[2] y=1, *, float z) -> int n",
                                         "a::b.c(Tensor(a|b) x, int[2] y=1, *, float z=1.5) -> int",
                                         "a::b.c(Tensor(a|b!) x, int[2] y=1, *, float z=1.5) -> int n",
                                         "a::b.c(Tensor(a|b) x, int[2] y=1, *, float z=1.5) -> ..."};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        cr_expect_not(equal(base, others[i]), "%s", others[i]);
}

static aoticache_status check_same(const char *a_text, const char *b_text, aoticache_error *error)
{
    aoticache_schema *a = parse(a_text), *b = parse(b_text);
    aoticache_status status = aoticache_schema_check_same(a, b, error);
    aoticache_schema_free(a);
    aoticache_schema_free(b);
    return status;
}

Test(schema, check_same_says_what_differs)
{
    aoticache_error error = {.message = ""};
    cr_expect_eq(check_same("a::b(Tensor(a!) x, int[2] y=1) -> int", "c::d(Tensor p, int[] q) -> int n", &error),
                 AOTICACHE_OK);
    cr_expect_eq(check_same("a::b(int x) -> int", "c::d() -> int", &error), AOTICACHE_MISMATCH);
    cr_expect_str_eq(error.message, "a::b: the number of arguments differs: 1 defined, 0 implemented");
    cr_expect_eq(check_same("a::b(int x) -> int[]", "c::d(int x) -> Tensor?", &error), AOTICACHE_MISMATCH);
    cr_expect_str_eq(error.message, "a::b: the type of return 1 differs: int[] defined, Tensor? implemented");
    cr_expect_eq(check_same("a::b(...) -> ()", "c::d() -> ()", &error), AOTICACHE_MISMATCH);
}
