/*
 * Requests as lines of text and of JSON: written lines are parsed to the same encoding, wrong ones are refused with the
 * column, and the parser does nothing else with any text.
 */
#include "cache/eager_face.h"
#include "cache/request/request.h"
#include "cache/request/text.h"
#include "tests/unit/fixtures/locale_fixture.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const aoticache_device cpu = {AOTICACHE_DEVICE_TYPE_CPU, -1};

static aoticache_request *parse(const char *text)
{
    aoticache_request *request = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_request_parse(text, AOTICACHE_REQUEST_TEXT, &request, &error), AOTICACHE_OK, "%s: %s", text,
                 error.message);
    return request;
}

static char *write_text(const aoticache_request *request)
{
    char *text = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_request_write(request, AOTICACHE_REQUEST_TEXT, &text, &error), AOTICACHE_OK, "%s",
                 error.message);
    return text;
}

static bool equal(const aoticache_request *a, const aoticache_request *b)
{
    uint8_t *left = NULL, *right = NULL;
    size_t left_size = 0, right_size = 0;
    cr_assert_eq(aoticache_request_encode(a, &left, &left_size, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_encode(b, &right, &right_size, NULL), AOTICACHE_OK);
    bool result = left_size == right_size && memcmp(left, right, left_size) == 0;
    free(left);
    free(right);
    return result;
}

/* Checks the same request as a line of JSON. */
static void expect_json_back(const aoticache_request *request)
{
    char *line = NULL;
    aoticache_request *again = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_request_write(request, AOTICACHE_REQUEST_JSON, &line, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_null(strchr(line, '\n'), "%s", line);
    cr_assert_eq(aoticache_request_parse(line, AOTICACHE_REQUEST_JSON, &again, &error), AOTICACHE_OK, "%s: %s", line,
                 error.message);
    cr_assert(equal(request, again), "%s", line);
    aoticache_request_free(again);
    free(line);
}

static void refused(const char *text, size_t column, const char *reason)
{
    char prefix[32];
    aoticache_request *request = NULL;
    aoticache_error error = {.message = ""};
    snprintf(prefix, sizeof prefix, "column %zu: ", column);
    cr_expect_eq(aoticache_request_parse(text, AOTICACHE_REQUEST_TEXT, &request, &error), AOTICACHE_INVALID, "%s",
                 text);
    cr_expect_null(request);
    cr_expect_eq(strncmp(error.message, prefix, strlen(prefix)), 0, "%s: %s", text, error.message);
    cr_expect_not_null(strstr(error.message, reason), "%s: %s", text, error.message);
}

/* ---- single lines ---- */

Test(request_text, line_of_the_header_is_the_request)
{
    aoticache_request *request = parse("aten::add.Tensor(float32[2, 3], float32[2, 3], alpha=1) on cpu");
    cr_assert_str_eq(aoticache_request_op(request), "aten::add.Tensor");
    cr_assert_eq(aoticache_request_argument_count(request), 3);
    const aoticache_argument *tensor = aoticache_request_argument(request, 1);
    cr_assert_eq(tensor->kind, AOTICACHE_ARGUMENT_TENSOR);
    cr_assert_eq(tensor->value.tensor.metadata.dtype, AOTICACHE_DTYPE_FLOAT32);
    cr_assert_eq(tensor->value.tensor.metadata.ndim, 2);
    cr_assert_eq(tensor->value.tensor.metadata.sizes[1], 3);
    cr_assert_eq(tensor->value.tensor.metadata.strides[0], 3);
    const aoticache_argument *alpha = aoticache_request_argument(request, 2);
    cr_assert_str_eq(alpha->name, "alpha");
    cr_assert_eq(alpha->kind, AOTICACHE_ARGUMENT_INT);
    cr_assert_eq(alpha->value.int_value, 1);
    aoticache_request_free(request);
}

Test(request_text, what_people_write_is_taken_too)
{
    static const char *const same[] = {
        "test::op(float32[2, 3]{1, 2}, k=[1, 2], s=2.0) on cpu",
        "test::op(float32[2,3]{1,2},k=[1,2],s=2.0)",
        "  test::op ( float32[ 2 , 3 ]{ 1 , 2 } , k = [ 1 , 2 ] , s = 2. )  \r\n",
        "test::op(float32[2, 3]{1, 2}, k=[1, 2], s=2e0) on cpu:0",
    };
    aoticache_request *first = parse(same[0]);
    for (size_t i = 1; i < sizeof same / sizeof same[0]; i++) {
        aoticache_request *other = parse(same[i]);
        cr_expect(equal(first, other), "%s", same[i]);
        aoticache_request_free(other);
    }
    aoticache_request_free(first);
}

Test(request_text, every_kind_comes_back_as_it_was)
{
    static const char *const lines[] = {
        "test::nothing() on cpu",
        "test::words(none, true, false, float32, bool, strided, _mkldnn, channels_last, cpu, cuda:3, meta) on cpu",
        "test::lists([], [none, 1], [float32[2], none], [\"a\", \"b, ]\"], x=[cuda, cpu]) on cuda:1",
        "test::ints(-9223372036854775808, 9223372036854775807, 0) on cpu",
        "test::doubles(-0.0, 1e+22, 0.30000000000000004, 4.94065645841247e-324, inf, -inf, nan) on cpu",
        "test::complex(1.0+2.5j, -1.0-2.0j, 0.0+nanj, nan-0.0j, inf-infj, 1e+22-1e-05j) on cpu",
        "test::strings(\"\", \"a \\\"b\\\" \\\\ \\n \\t \\x01 \\x7f \\u0085 \\u2028\", \") on cuda\", \"\xc3\xa9\") on cpu",
        "test::tensors(int64[], bool[2, 0, 3], float32[2, 3]{1, 2}@cpu requires_grad) on cuda",
        "test::layouts(float16[2] sparse_csr, float16[2]@cpu _mkldnn requires_grad) on cuda:1",
        "test::tensors(float32[4]@meta sparse_coo requires_grad, a=int8[1]@cpu) on cuda",
        "test::names(none=none, on=1, cpu=cpu, key_sets=2, inf=inf, true=false) on cpu",
        "test::keys(float32[2], [float32[3], int64[]]) on cpu key_sets 0x8001",
        "test::keys(float32[2], [float32[3], none]) on cpu key_sets 0x8001, 0xffffffffffffffff",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        aoticache_request *request = parse(lines[i]);
        char *text = write_text(request);
        cr_expect_str_eq(text, lines[i]);
        expect_json_back(request);
        free(text);
        aoticache_request_free(request);
    }
}

Test(request_text, key_sets_reach_their_tensors)
{
    aoticache_request *request = parse("test::keys(float32[2], 1, [float32[3]]) on cpu key_sets 0x8001, 0x0");
    cr_assert_eq(aoticache_request_argument(request, 0)->value.tensor.metadata.dispatch_key_set, 0x8001);
    const aoticache_argument *list = aoticache_request_argument(request, 2);
    cr_assert_eq(list->value.list.items[0].value.tensor.metadata.dispatch_key_set, 0);
    aoticache_request_free(request);
}

Test(request_text, constants_are_refused_both_ways)
{
    refused("test::w(const float32[2]#1a2b3c4d) on cpu", 9, "constant");
    refused("test::w(float32[2]#1a2b3c4d) on cpu", 19, "constant");
    aoticache_request *request = NULL;
    const int64_t size = 2;
    const aoticache_digest digest = {{1}};
    aoticache_tensor_metadata metadata = {.dtype = AOTICACHE_DTYPE_FLOAT32, .device = cpu, .ndim = 1, .sizes = &size};
    char *text = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_request_create("test::w", cpu, &request, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_int(request, NULL, 1, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_begin_list(request, NULL, NULL), AOTICACHE_OK);
    cr_expect_eq(aoticache_request_write(request, AOTICACHE_REQUEST_TEXT, &text, NULL), AOTICACHE_INVALID);
    cr_expect_eq(aoticache_request_write(request, AOTICACHE_REQUEST_JSON, &text, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_request_add_constant(request, NULL, &metadata, NULL, &digest, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_end_list(request, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_write(request, AOTICACHE_REQUEST_TEXT, &text, &error), AOTICACHE_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, "argument 1 is a constant"), "%s", error.message);
    cr_expect_null(text);
    aoticache_request_free(request);
}

Test(request_text, what_is_wrong_is_told_with_its_column)
{
    refused("", 1, "operator");
    refused("abs(float32[2])", 1, "namespace::name");
    refused("aten::abs", 10, "'('");
    refused("aten::abs(", 11, "argument");
    refused("aten::abs(float32[2, 3]", 24, "')'");
    refused("aten::abs(float32[2, 3])) on cpu", 25, "found ')'");
    refused("aten::abs(float32[2,]) on cpu", 21, "number");
    refused("aten::abs(float32[-2]) on cpu", 19, "integers of 0 or more");
    refused("aten::abs(float32[2.5]) on cpu", 19, "integers");
    refused("aten::abs(float32[2, 3]{1}) on cpu", 24, "1 strides for 2 sizes");
    refused("aten::abs(float31[2]) on cpu", 11, "unknown name 'float31'; did you mean float32?");
    refused("aten::abs(flot32[2]) on cpu", 11, "unknown name 'flot32'; did you mean float32?");
    refused("aten::abs(float[2]) on cpu", 11, "unknown name 'float'; did you mean float32?");
    refused("aten::to(float32[2], memory_format=chanels_last) on cpu", 36, "did you mean channels_last?");
    refused("aten::to(float32[2], xyzzy) on cpu", 22, "expected an argument: a tensor such as float32[2, 3]");
    refused("aten::abs(float32[2] nowhere) on cpu", 22, "found 'nowhere'");
    refused("aten::abs(float32[2]@here) on cpu", 22, "device");
    refused("aten::abs(float32[2]) on here", 26, "device");
    refused("aten::abs(float32[2]) on cpu:1", 1, "cpu");
    refused("aten::abs(float32[2]) at cpu", 23, "end of the line");
    refused("aten::abs(9223372036854775808)", 11, "not a 64-bit integer");
    refused("aten::abs(1e999)", 11, "double");
    refused("aten::abs(1.5k)", 14, "','");
    refused("aten::abs(1.0+2.0)", 18, "'j'");
    refused("aten::abs(\"abc)", 11, "unterminated string");
    refused("aten::abs(\"a\\q\")", 13, "escape");
    refused("aten::abs(\"a\\x00\")", 13, "character 0");
    refused("aten::abs(\"a\\x4\")", 13, "2 hexadecimal");
    refused("aten::abs(\"a\xff\")", 11, "UTF-8");
    refused("aten::abs([[1]])", 12, "list");
    refused("aten::abs(a=1, 2)", 16, "keyword");
    refused("aten::abs(a=1, a=2)", 18, "a was already added");
    refused("aten::abs(float32[2]) on cpu key_sets", 38, "key set");
    refused("aten::abs(float32[2]) on cpu key_sets 8001", 39, "0x10001");
    refused("aten::abs(float32[2]) on cpu key_sets 0x1, 0x2", 22, "2 key sets for 1");
    refused("aten::abs(float32[9223372036854775807, 2])", 11, "2^63-1");
    cr_expect_eq(aoticache_request_parse(NULL, AOTICACHE_REQUEST_TEXT, &(aoticache_request *){NULL}, NULL),
                 AOTICACHE_INVALID);
}

/* ---- JSON ---- */

static aoticache_request *parse_json(const char *line)
{
    aoticache_request *request = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_request_parse(line, AOTICACHE_REQUEST_JSON, &request, &error), AOTICACHE_OK, "%s: %s", line,
                 error.message);
    return request;
}

Test(request_json, what_may_be_left_out_has_its_default)
{
    aoticache_request *request =
        parse_json("{\"operator\":\"a::b\",\"arguments\":[{\"kind\":\"tensor\",\"dtype\":"
                   "\"float32\",\"sizes\":[2,3]},{\"kind\":\"int\",\"value\":7,\"name\":\"k\"}]}\n");
    aoticache_request *same = parse("a::b(float32[2, 3], k=7) on cpu");
    cr_expect(equal(request, same));
    aoticache_request_free(request);
    aoticache_request_free(same);
    request = parse_json(
        " { \"device\" : \"cuda:1\", \"arguments\" : [ {\"sizes\":[4], \"dtype\":\"int8\",\"kind\":\"tensor\"} ], "
        "\"operator\" : \"a::b\" } ");
    same = parse("a::b(int8[4]) on cuda:1");
    cr_expect(equal(request, same), "a tensor is on the device of its request");
    aoticache_request_free(request);
    aoticache_request_free(same);
}

Test(request_json, constants_are_written_and_not_read)
{
    aoticache_request *request = NULL, *again = NULL;
    const int64_t size = 2;
    const float data[2] = {1, 2};
    char *line = NULL;
    aoticache_error error = {.message = ""};
    aoticache_tensor_metadata metadata = {.dtype = AOTICACHE_DTYPE_FLOAT32, .device = cpu, .ndim = 1, .sizes = &size};
    cr_assert_eq(aoticache_request_create("a::w", cpu, &request, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_constant(request, NULL, &metadata, data, NULL, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_write(request, AOTICACHE_REQUEST_JSON, &line, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_expect_not_null(strstr(line, "\"data_digest\":\""), "%s", line);
    cr_expect_eq(aoticache_request_parse(line, AOTICACHE_REQUEST_JSON, &again, &error), AOTICACHE_INVALID);
    cr_expect_str_eq(error.message, "argument 0: a constant, whose data a line cannot hold");
    cr_expect_null(again);
    free(line);
    aoticache_request_free(request);
}

#define CALL(argument) "{\"operator\":\"a::b\",\"arguments\":[" argument "]}"
#define TENSOR(members) CALL("{\"kind\":\"tensor\",\"dtype\":\"float32\",\"sizes\":[2,3]" members "}")

Test(request_json, what_is_wrong_is_told)
{
    static const struct {
        const char *line, *reason;
    } cases[] = {
        {"", "column 0: "},
        {"{\"operator\":\"a::b\",", "column 19: "},
        {"[]", "not a JSON object"},
        {"{\"arguments\":[]}", "\"operator\" is not"},
        {"{\"operator\":\"a::b\"}", "\"arguments\" is not a list"},
        {"{\"operator\":\"a::b\",\"operator\":\"a::c\",\"arguments\":[]}", "duplicate"},
        {"{\"operator\":\"a::b\",\"argument\":[],\"arguments\":[]}", "unknown member \"argument\""},
        {"{\"operator\":\"ab\",\"arguments\":[]}", "namespace::name"},
        {"{\"operator\":\"a::b\",\"device\":\"cpx\",\"arguments\":[]}", "\"device\" is not"},
        {CALL("7"), "argument 0: \"kind\" is not"},
        {CALL("{\"kind\":\"tensr\"}"), "argument 0: \"kind\" is not"},
        {CALL("{\"kind\":\"none\"},{\"kind\":\"int\",\"value\":1.5}"), "argument 1: \"value\" is not an integer"},
        {CALL("{\"kind\":\"int\",\"value\":9223372036854775808}"), "column "},
        {CALL("{\"kind\":\"bool\",\"value\":1}"), "true or false"},
        {CALL("{\"kind\":\"double\",\"value\":\"Inf\"}"), "a number"},
        {CALL("{\"kind\":\"complex\",\"value\":[1]}"), "two numbers"},
        {CALL("{\"kind\":\"string\",\"value\":null}"), "text"},
        {CALL("{\"kind\":\"device\"}"), "a device"},
        {CALL("{\"kind\":\"dtype\",\"value\":\"float33\"}"), "a dtype such as float32; did you mean float32?"},
        {CALL("{\"kind\":\"layout\",\"value\":\"stridded\"}"), "a layout such as strided; did you mean strided?"},
        {CALL("{\"kind\":\"tensor\",\"dtype\":\"flot64\",\"sizes\":[3]}"), "did you mean float64?"},
        {CALL("{\"kind\":\"layout\",\"value\":\"round\"}"), "a layout"},
        {CALL("{\"kind\":\"memory_format\",\"value\":\"x\"}"), "a memory format"},
        {CALL("{\"kind\":\"none\",\"value\":1}"), "unknown member \"value\""},
        {CALL("{\"kind\":\"none\",\"name\":1}"), "\"name\" is not text"},
        {CALL("{\"kind\":\"list\",\"items\":7}"), "\"items\" is not"},
        {CALL("{\"kind\":\"list\",\"items\":[{\"kind\":\"list\",\"items\":[]}]}"), "is allowed here"},
        {CALL("{\"kind\":\"list\",\"items\":[{\"kind\":\"int\"}]}"), "an integer"},
        {TENSOR(",\"strides\":[1]"), "one integer for each size"},
        {TENSOR(",\"strides\":[1,\"2\"]"), "one integer for each size"},
        {TENSOR(",\"device\":7"), "\"device\" is not"},
        {TENSOR(",\"layout\":\"round\""), "\"layout\" is not"},
        {TENSOR(",\"requires_grad\":1"), "\"requires_grad\" is not"},
        {TENSOR(",\"require_grad\":true"), "unknown member \"require_grad\""},
        {TENSOR(",\"dispatch_key_set\":32769"), "0x8001"},
        {TENSOR(",\"dispatch_key_set\":\"0x\""), "0x8001"},
        {TENSOR(",\"dispatch_key_set\":\"0x12345678123456781\""), "0x8001"},
        {CALL("{\"kind\":\"tensor\",\"dtype\":\"float32\",\"sizes\":[-1]}"), "argument 0: "},
        {CALL("{\"kind\":\"tensor\",\"dtype\":\"float32\",\"sizes\":7}"), "\"sizes\" is not"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        aoticache_request *request = NULL;
        aoticache_error error = {.message = ""};
        cr_expect_eq(aoticache_request_parse(cases[i].line, AOTICACHE_REQUEST_JSON, &request, &error),
                     AOTICACHE_INVALID, "%s", cases[i].line);
        cr_expect_null(request);
        cr_expect_not_null(strstr(error.message, cases[i].reason), "%s: %s", cases[i].line, error.message);
    }
}

Test(request_text, numbers_are_read_alike_in_every_locale)
{
    if (!use_decimal_comma())
        cr_skip_test("no locale with a decimal comma is installed, and none can be made: install the package locales");
    aoticache_request *request = parse("test::op(1234.5)");
    cr_assert_float_eq(aoticache_request_argument(request, 0)->value.double_value, 1234.5, 0.0);
    aoticache_request_free(request);
}

/* ---- random requests ---- */

static uint64_t random_state = 1;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static uint64_t below(uint64_t limit)
{
    return next_random() % limit;
}

static double random_double(void)
{
    double value;
    uint64_t bits = next_random();
    if (below(2) == 0)
        return (double)(int64_t)below(2000) / 8 - 100;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void random_string(char ret_text[64])
{
    static const char *const pieces[] = {"a",
                                         "Z",
                                         " ",
                                         "\"",
                                         "\\",
                                         "\n",
                                         "\t",
                                         "\x01",
                                         "\x7f",
                                         "\xc2\x80",
                                         "\xc2\x9f",
                                         "\xc3\xa9",
                                         "\xe2\x80\xa8",
                                         "\xe2\x80\xaa",
                                         "\xf0\x9f\x98\x80",
                                         ")",
                                         " on ",
                                         "]",
                                         ","};
    size_t count = below(8);
    ret_text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        strcat(ret_text, pieces[below(sizeof pieces / sizeof pieces[0])]);
}

static const aoticache_device devices[] = {{AOTICACHE_DEVICE_TYPE_CPU, -1},  {AOTICACHE_DEVICE_TYPE_CUDA, -1},
                                           {AOTICACHE_DEVICE_TYPE_CUDA, 0},  {AOTICACHE_DEVICE_TYPE_CUDA, 9999},
                                           {AOTICACHE_DEVICE_TYPE_META, -1}, {AOTICACHE_DEVICE_TYPE_PRIVATEUSE1, 2}};

static void add_random_tensor(aoticache_request *request, const char *name)
{
    static const int32_t dtypes[] = {
#define NUMBER(upper, lower, number, bytes) number,
        AOTICACHE_DTYPE_LIST(NUMBER)
#undef NUMBER
    };
    int64_t sizes[6], strides[6];
    for (size_t i = 0; i < 6; i++) {
        sizes[i] = (int64_t)below(5);
        strides[i] = (int64_t)below(100);
    }
    aoticache_tensor_metadata metadata = {
        .dtype = dtypes[below(sizeof dtypes / sizeof dtypes[0])],
        .layout = below(4) > 0 ? 0 : (int32_t)below(8),
        .device = devices[below(6)],
        .requires_grad = below(4) == 0,
        .dispatch_key_set = below(8) == 0 ? next_random() : 0x8001,
        .ndim = (uint32_t)below(7),
        .sizes = sizes,
        .strides = below(2) == 0 ? strides : NULL,
    };
    cr_assert_eq(aoticache_request_add_tensor(request, name, &metadata, NULL), AOTICACHE_OK);
}

static void add_random(aoticache_request *request, const char *name, bool may_be_list)
{
    static const int32_t dtypes[] = {0, 4, 6, 11, 15, 45};
    char text[64];
    switch (below(may_be_list ? 12 : 11)) {
    case 0:
        aoticache_request_add_none(request, name, NULL);
        break;
    case 1:
        aoticache_request_add_int(request, name, (int64_t)(next_random() >> below(64)), NULL);
        break;
    case 2:
        aoticache_request_add_double(request, name, random_double(), NULL);
        break;
    case 3:
        aoticache_request_add_bool(request, name, below(2) == 0, NULL);
        break;
    case 4:
        aoticache_request_add_complex(request, name, random_double(), random_double(), NULL);
        break;
    case 5:
        random_string(text);
        cr_assert_eq(aoticache_request_add_string(request, name, text, NULL), AOTICACHE_OK);
        break;
    case 6:
        aoticache_request_add_device(request, name, devices[below(6)], NULL);
        break;
    case 7:
        aoticache_request_add_dtype(request, name, dtypes[below(6)], NULL);
        break;
    case 8:
        aoticache_request_add_layout(request, name, (int32_t)below(8), NULL);
        break;
    case 9:
        aoticache_request_add_memory_format(request, name, (int32_t)below(4), NULL);
        break;
    case 10:
        add_random_tensor(request, name);
        break;
    default:
        aoticache_request_begin_list(request, name, NULL);
        for (uint64_t left = below(5); left > 0; left--)
            add_random(request, NULL, false);
        aoticache_request_end_list(request, NULL);
    }
}

static aoticache_request *random_request(void)
{
    aoticache_request *request = NULL;
    static const char *const ops[] = {"aten::add.Tensor", "a::b", "_x1::y_2.z3"};
    char name[32] = "";
    size_t count = below(8), keywords = below(4);
    cr_assert_eq(aoticache_request_create(ops[below(3)], devices[below(6)], &request, NULL), AOTICACHE_OK);
    for (size_t i = 0; i < count; i++) {
        if (i + keywords >= count)
            snprintf(name, sizeof name, "%s%zu", below(2) == 0 ? "none" : "_k", i);
        add_random(request, name, true);
    }
    cr_assert_eq(aoticache_request_argument_count(request), count);
    return request;
}

Test(request_text, random_requests_come_back)
{
    for (uint64_t seed = 1; seed < 4; seed++) {
        random_state = seed;
        for (int i = 0; i < 4000; i++) {
            aoticache_request *request = random_request();
            char *text = write_text(request);
            aoticache_request *again = parse(text);
            cr_assert(equal(request, again), "%s", text);
            aoticache_request_free(again);
            expect_json_back(request);
            aoticache_request_free(request);
            free(text);
        }
    }
}

/* Changes, removes or doubles one byte, or cuts off the end. */
static void mutate(char *text)
{
    static const char bytes[] = "()[]{},=\"\\@#+-.:0x9ej \t\nnon\x01\xff";
    size_t length = strlen(text), at = length > 0 ? below(length) : 0;
    switch (below(4)) {
    case 0:
        text[at] = bytes[below(sizeof bytes - 1)];
        break;
    case 1:
        memmove(text + at, text + at + (length > 0), length - at + (length == 0));
        break;
    case 2:
        memmove(text + at + 1, text + at, length - at + 1);
        break;
    default:
        text[at] = '\0';
    }
}

Test(request_text, mutants_are_refused_or_read_as_something_else)
{
    size_t refusals = 0, accepted = 0;
    random_state = 99;
    for (int i = 0; i < 3000; i++) {
        aoticache_request *request = random_request(), *other = NULL;
        char *text = write_text(request);
        size_t size = strlen(text) + 8;
        for (int mutant = 0; mutant < 8; mutant++) {
            char *changed = calloc(1, size);
            aoticache_error error = {.message = ""};
            strcpy(changed, text);
            for (uint64_t times = 1 + below(3); times > 0; times--)
                mutate(changed);
            aoticache_status status = aoticache_request_parse(changed, AOTICACHE_REQUEST_TEXT, &other, &error);
            cr_assert(status == AOTICACHE_OK || status == AOTICACHE_INVALID);
            if (status == AOTICACHE_OK) {
                char *written = write_text(other);
                aoticache_request *again = parse(written);
                cr_assert(equal(other, again), "%s", written);
                aoticache_request_free(again);
                aoticache_request_free(other);
                free(written);
                accepted++;
            } else {
                cr_assert_eq(strncmp(error.message, "column ", 7), 0, "%s", error.message);
                refusals++;
            }
            free(changed);
        }
        free(text);
        aoticache_request_free(request);
    }
    cr_assert_gt(refusals, 5000);
    cr_assert_gt(accepted, 500);
}
