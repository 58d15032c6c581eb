/* Unit tests of eager/compile/protocol_request.c and eager/compile/protocol_answer.c. */
#include "base/digest.h"
#include "cache/request/cpu_detect.h"
#include "eager/compile/hook_internal.h"
#include "tests/unit/fixtures/eager_fixture.h"

#include <float.h>
#include <math.h>

TestSuite(protocol, .init = fixture_begin, .fini = fixture_end, .timeout = 300);

/* ---- requests ---- */

static json_t *write_and_parse(const aoticache_request *request, const char *cpu_features)
{
    char *line = NULL;
    size_t size = 0;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_protocol_write_request(request, 7, cpu_features, "/private", &line, &size, &error),
                 AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(size, strlen(line));
    cr_assert_eq(strchr(line, '\n'), line + size - 1, "one line, with its newline");
    json_t *root = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(root, "%s", line);
    free(line);
    return root;
}

static const char *text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text != NULL ? text : "(none)";
}

/* The argument as compact JSON with sorted names; static storage. */
static const char *argument_text(const json_t *root, size_t position)
{
    static char text[1024];
    const json_t *argument = json_array_get(json_object_get(root, "arguments"), position);
    size_t size = json_dumpb(argument, text, sizeof text - 1, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    text[size] = '\0';
    return text;
}

Test(protocol, request_has_the_documented_fields)
{
    aoticache_request *request = make_abs_request();
    cr_assert_eq(aoticache_request_set_environment(request, "framework", "pytorch", NULL), AOTICACHE_OK);
    json_t *root = write_and_parse(request, "x86-64-v3");
    cr_assert_eq(json_integer_value(json_object_get(root, "protocol")), 1);
    cr_assert_eq(json_integer_value(json_object_get(root, "id")), 7);
    cr_assert_str_eq(text_of(root, "operator"), "aten::abs");
    cr_assert_str_eq(text_of(root, "device"), "cpu");
    cr_assert_str_eq(text_of(root, "cpu_features"), "x86-64-v3");
    cr_assert_str_eq(text_of(root, "directory"), "/private");
    cr_assert_str_eq(text_of(json_object_get(root, "environment"), "framework"), "pytorch");
    cr_assert_str_eq(
        argument_text(root, 0),
        "{\"device\":\"cpu\",\"dtype\":\"float32\",\"kind\":\"tensor\",\"layout\":\"strided\",\"name\":\"\","
        "\"requires_grad\":false,\"sizes\":[2,3],\"strides\":[3,1]}");
    json_decref(root);
    root = write_and_parse(request, NULL);
    cr_assert(json_is_null(json_object_get(root, "cpu_features")));
    json_decref(root);
    aoticache_request_free(request);
}

Test(protocol, request_tells_every_kind_of_argument)
{
    aoticache_request *request = make_request("aten::all_kinds");
    const aoticache_device cuda = {.type = AOTICACHE_DEVICE_TYPE_CUDA, .index = 1};
    aoticache_request_add_none(request, NULL, NULL);
    aoticache_request_add_int(request, NULL, INT64_MIN, NULL);
    aoticache_request_add_bool(request, NULL, true, NULL);
    aoticache_request_add_complex(request, NULL, 1.5, -INFINITY, NULL);
    aoticache_request_add_string(request, NULL, "a \"b\"\n\xc3\xa4", NULL);
    aoticache_request_add_device(request, NULL, cuda, NULL);
    aoticache_request_add_dtype(request, NULL, AOTICACHE_DTYPE_BFLOAT16, NULL);
    aoticache_request_add_layout(request, NULL, AOTICACHE_LAYOUT_STRIDED, NULL);
    aoticache_request_add_memory_format(request, NULL, AOTICACHE_MEMORY_FORMAT_CHANNELS_LAST, NULL);
    aoticache_request_begin_list(request, "dims", NULL);
    aoticache_request_add_int(request, NULL, 9007199254740993, NULL);
    aoticache_request_add_none(request, NULL, NULL);
    aoticache_request_end_list(request, NULL);
    json_t *root = write_and_parse(request, NULL);
    static const char *const expected[] = {
        "{\"kind\":\"none\",\"name\":\"\"}",
        "{\"kind\":\"int\",\"name\":\"\",\"value\":-9223372036854775808}",
        "{\"kind\":\"bool\",\"name\":\"\",\"value\":true}",
        "{\"kind\":\"complex\",\"name\":\"\",\"value\":[1.5,\"-inf\"]}",
        "{\"kind\":\"string\",\"name\":\"\",\"value\":\"a \\\"b\\\"\\n\xc3\xa4\"}",
        "{\"kind\":\"device\",\"name\":\"\",\"value\":\"cuda:1\"}",
        "{\"kind\":\"dtype\",\"name\":\"\",\"value\":\"bfloat16\"}",
        "{\"kind\":\"layout\",\"name\":\"\",\"value\":\"strided\"}",
        "{\"kind\":\"memory_format\",\"name\":\"\",\"value\":\"channels_last\"}",
        ("{\"items\":[{\"kind\":\"int\",\"value\":9007199254740993},{\"kind\":\"none\"}],\"kind\":\"list\","
         "\"name\":\"dims\"}"),
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        cr_assert_str_eq(argument_text(root, i), expected[i]);
    json_decref(root);
    aoticache_request_free(request);
}

Test(protocol, request_keeps_doubles_exactly)
{
    static const double values[] = {0.1, 1.0 / 3, DBL_MIN, DBL_MAX, 5e-324, -0.0, 1e300};
    aoticache_request *request = make_request("aten::doubles");
    for (size_t i = 0; i < 7; i++)
        aoticache_request_add_double(request, NULL, values[i], NULL);
    aoticache_request_add_double(request, NULL, NAN, NULL);
    aoticache_request_add_double(request, NULL, INFINITY, NULL);
    json_t *root = write_and_parse(request, NULL);
    const json_t *arguments = json_object_get(root, "arguments");
    for (size_t i = 0; i < 7; i++) {
        double back = json_real_value(json_object_get(json_array_get(arguments, i), "value"));
        cr_assert_eq(memcmp(&back, &values[i], sizeof back), 0, "%.17g came back as %.17g", values[i], back);
    }
    cr_assert_str_eq(text_of(json_array_get(arguments, 7), "value"), "nan");
    cr_assert_str_eq(text_of(json_array_get(arguments, 8), "value"), "inf");
    json_decref(root);
    aoticache_request_free(request);
}

Test(protocol, constants_become_files_and_need_their_data)
{
    static const float data[] = {1, 2, 3, 4};
    aoticache_tensor_metadata metadata = {
        .dtype = AOTICACHE_DTYPE_FLOAT32, .device = AOTICACHE_DEVICE_CPU, .ndim = 1, .sizes = (const int64_t[]){4}};
    aoticache_request *request = make_abs_request();
    cr_assert_eq(aoticache_request_add_constant(request, NULL, &metadata, data, NULL, NULL), AOTICACHE_OK);
    json_t *root = write_and_parse(request, NULL);
    cr_assert_str_eq(text_of(json_array_get(json_object_get(root, "arguments"), 1), "file"), "/private/constant1.bin");
    json_decref(root);
    cr_assert_eq(aoticache_protocol_write_constants(request, test_directory, NULL), AOTICACHE_OK);
    cr_assert_eq(memcmp(read_text(in_directory("constant1.bin")), data, sizeof data), 0);
    /* Existing files are not overwritten: one may be a link made by somebody else. */
    cr_assert_neq(aoticache_protocol_write_constants(request, test_directory, NULL), AOTICACHE_OK);
    aoticache_request_free(request);

    aoticache_digest digest;
    aoticache_error error;
    cr_assert_eq(aoticache_digest_of(data, sizeof data, &digest), AOTICACHE_OK);
    request = make_request("aten::abs");
    cr_assert_eq(aoticache_request_add_constant(request, NULL, &metadata, NULL, &digest, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_protocol_write_constants(request, test_directory, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "argument 0"));
    aoticache_request_free(request);
}

/* ---- answers ---- */

static aoticache_status read_answer(const char *text, aoticache_answer *ret_answer, aoticache_error *error)
{
    *error = (aoticache_error){.message = ""};
    return aoticache_protocol_read_answer(text, strlen(text), 7, "tester", test_directory, ret_answer, error);
}

Test(protocol, answer_becomes_a_product)
{
    write_file("kernel.so", "code", 0600);
    write_file("side", "data", 0600);
    char text[PATH_MAX + 512];
    snprintf(text, sizeof text,
             "{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"kernel.so\",\"path\":\"kernel.so\"},"
             "{\"name\":\"x.cubin\",\"path\":\"%s/side\"}],\"requirements\":[%s],"
             "\"producer\":\"me 1\",\"compile_seconds\":1.5,\"anything\":[]}",
             test_directory, strcmp(aoticache_cpu_arch(), "x86_64") == 0 ? "\"avx2\",\"fma\"" : "\"sve\"");
    aoticache_answer answer;
    aoticache_error error;
    cr_assert_eq(read_answer(text, &answer, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(answer.product.size, sizeof answer.product);
    cr_assert_eq(answer.product.file_count, 2);
    cr_assert_str_eq(answer.product.files[0].name, "kernel.so");
    cr_assert_str_eq(answer.product.files[0].path, in_directory("kernel.so"));
    cr_assert_str_eq(answer.product.files[1].path, in_directory("side"));
    cr_assert_str_eq(answer.product.producer, "me 1");
    cr_assert_eq(answer.product.compile_ns, 1500000000);
    char names[256];
    aoticache_cpu_features_format(&answer.product.requirements, names, sizeof names);
    cr_assert_str_eq(names, strcmp(aoticache_cpu_arch(), "x86_64") == 0 ? "avx2,fma" : "sve");
    aoticache_answer_free(&answer);
}

/* How a library was built: only a build other than ours has a reason, which is kept. */
Test(protocol, answer_says_how_the_library_was_built)
{
    static const struct {
        const char *built, *fallback;
    } cases[] = {
        {"null", NULL},
        {"{\"by\":\"aoticache\"}", NULL},
        {"{\"by\":\"pytorch\",\"reason\":\"too new\"}", "too new"},
    };
    write_file("kernel.so", "code", 0600);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        aoticache_answer answer;
        aoticache_error error;
        snprintf(text, sizeof text,
                 "{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"k\",\"path\":\"kernel.so\"}],\"built\":%s}",
                 cases[i].built);
        cr_assert_eq(read_answer(text, &answer, &error), AOTICACHE_OK, "%s", error.message);
        if (cases[i].fallback == NULL)
            cr_expect_null(answer.product.fallback, "%s", cases[i].built);
        else
            cr_expect_str_eq(answer.product.fallback, cases[i].fallback);
        aoticache_answer_free(&answer);
    }
}

Test(protocol, answer_without_requirements_needs_all_of_this_machine)
{
    write_file("kernel.so", "code", 0600);
    aoticache_answer answer;
    aoticache_error error;
    cr_assert_eq(
        read_answer("{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"k\",\"path\":\"kernel.so\"}]}", &answer, &error),
        AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(memcmp(&answer.product.requirements, aoticache_cpu_features_get(), sizeof(aoticache_cpu_features)), 0);
    aoticache_answer_free(&answer);
    cr_assert_eq(read_answer("{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"k\",\"path\":\"kernel.so\"}],"
                             "\"requirements\":[]}",
                             &answer, &error),
                 AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_cpu_features_count(&answer.product.requirements), 0);
    aoticache_answer_free(&answer);
}

Test(protocol, refusals_keep_the_message_and_their_kind)
{
    aoticache_answer answer;
    aoticache_error error;
    cr_assert_eq(read_answer("{\"id\":7,\"ok\":false,\"error\":\"no such register\\nline 2\"}", &answer, &error),
                 AOTICACHE_COMPILE_FAILED);
    cr_assert_str_eq(error.message, "hook tester: no such register\nline 2");
    cr_assert_eq(read_answer("{\"id\":7,\"ok\":false,\"unsupported\":true,\"error\":\"no\"}", &answer, &error),
                 AOTICACHE_UNSUPPORTED);
    cr_assert_eq(read_answer("{\"id\":7,\"ok\":false}", &answer, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_str_eq(error.message, "hook tester: it gives no reason");
}

#define FILES "\"files\":[{\"name\":\"k\",\"path\":\"kernel.so\"}]"

/* Wrong answers, and a word that the message must have. */
static const char *const wrong_answers[][2] = {
    {"", "not valid JSON"},
    {"garbage", "not valid JSON"},
    {"{\"id\":7,\"ok\":true," FILES "} x", "not valid JSON"},
    {"{\"id\":7,\"id\":7,\"ok\":true," FILES "}", "not valid JSON"},
    {"[]", "not an object"},
    {"{\"ok\":true," FILES "}", "expected 7"},
    {"{\"id\":8,\"ok\":true," FILES "}", "id 8"},
    {"{\"id\":\"7\",\"ok\":true," FILES "}", "expected 7"},
    {"{\"id\":7," FILES "}", "\"ok\""},
    {"{\"id\":7,\"ok\":1," FILES "}", "\"ok\""},
    {"{\"id\":7,\"ok\":true}", "no \"files\""},
    {"{\"id\":7,\"ok\":true,\"files\":[]}", "no \"files\""},
    {"{\"id\":7,\"ok\":true,\"files\":{}}", "no \"files\""},
    {"{\"id\":7,\"ok\":true,\"files\":[3]}", "without \"name\""},
    {"{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"k\"}]}", "without"},
    {"{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"\",\"path\":\"kernel.so\"}]}", "single path component"},
    {"{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"..\",\"path\":\"kernel.so\"}]}", "single path component"},
    {"{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"a/b\",\"path\":\"kernel.so\"}]}", "single path component"},
    {"{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"a\\nb\",\"path\":\"kernel.so\"}]}", "single path component"},
    {"{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"a\\u0000b\",\"path\":\"kernel.so\"}]}", "not valid JSON"},
    {"{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"k\",\"path\":\"kernel.so\"},{\"name\":\"k\",\"path\":\"kernel.so\"}]}",
     "two files"},
    {"{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"k\",\"path\":\"none.so\"}]}", "none.so: No such file"},
    {"{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"k\",\"path\":\"link.so\"}]}", "symbolic link"},
    {"{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"k\",\"path\":\"folder\"}]}", "not a regular file"},
    {"{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"k\",\"path\":\"pipe\"}]}", "not a regular file"},
    {"{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"k\",\"path\":\"/dev/null\"}]}", "not a regular file"},
    {"{\"id\":7,\"ok\":true,\"files\":[{\"name\":\"k\",\"path\":\"empty\"}]}", "empty"},
    {"{\"id\":7,\"ok\":true," FILES ",\"requirements\":\"avx2\"}", "\"requirements\""},
    {"{\"id\":7,\"ok\":true," FILES ",\"requirements\":[\"native\"]}", "\"native\""},
    {"{\"id\":7,\"ok\":true," FILES ",\"requirements\":[3]}", "not a known CPU feature"},
    {"{\"id\":7,\"ok\":true," FILES ",\"producer\":3}", "\"producer\""},
    {"{\"id\":7,\"ok\":true," FILES ",\"guard\":5}", "not a string"},
    {"{\"id\":7,\"ok\":true," FILES ",\"guard\":\"\"}", "not a string"},
    {"{\"id\":7,\"ok\":true," FILES ",\"guard\":[\"*[...]\"]}", "not a string"},
    {"{\"id\":7,\"ok\":true," FILES ",\"compile_seconds\":-1}", "not a duration"},
    {"{\"id\":7,\"ok\":true," FILES ",\"compile_seconds\":\"4\"}", "not a duration"},
    {"{\"id\":7,\"ok\":true," FILES ",\"compile_seconds\":1e300}", "not a duration"},
    {"{\"id\":7,\"ok\":true," FILES ",\"built\":\"aoticache\"}", "\"built\""},
    {"{\"id\":7,\"ok\":true," FILES ",\"built\":{\"by\":\"me\"}}", "\"built\""},
    {"{\"id\":7,\"ok\":true," FILES ",\"built\":{\"by\":\"pytorch\"}}", "\"reason\""},
    {"{\"id\":7,\"ok\":true," FILES ",\"built\":{\"by\":\"pytorch\",\"reason\":\"\"}}", "\"reason\""},
    {"{\"id\":7,\"ok\":true," FILES ",\"built\":{\"by\":\"pytorch\",\"reason\":5}}", "\"reason\""},
};

Test(protocol, wrong_answers_are_refused_and_name_the_hook)
{
    write_file("kernel.so", "code", 0600);
    write_file("empty", "", 0600);
    make_directory("folder");
    cr_assert_eq(symlink("kernel.so", in_directory("link.so")), 0);
    cr_assert_eq(mkfifo(in_directory("pipe"), 0600), 0);
    for (size_t i = 0; i < sizeof wrong_answers / sizeof wrong_answers[0]; i++) {
        aoticache_answer answer;
        aoticache_error error;
        cr_assert_eq(read_answer(wrong_answers[i][0], &answer, &error), AOTICACHE_CORRUPT, "%s", wrong_answers[i][0]);
        cr_assert_eq(error.status, AOTICACHE_CORRUPT);
        cr_assert_not_null(strstr(error.message, wrong_answers[i][1]), "%s: %s", wrong_answers[i][0], error.message);
        cr_assert_not_null(strstr(error.message, "tester"), "%s", error.message);
    }
}

Test(protocol, file_of_another_user_is_refused)
{
    if (geteuid() != 0)
        cr_skip_test("giving a file away needs the superuser");
    const char *path = write_file("kernel.so", "code", 0644);
    cr_assert_eq(chown(path, 12345, (gid_t)-1), 0);
    aoticache_answer answer;
    aoticache_error error;
    cr_assert_eq(read_answer("{\"id\":7,\"ok\":true," FILES "}", &answer, &error), AOTICACHE_CORRUPT);
    cr_assert_not_null(strstr(error.message, "12345"), "%s", error.message);
}

Test(protocol, answer_beyond_a_mebibyte_is_refused)
{
    size_t size = AOTICACHE_PROTOCOL_LINE_BYTES + 1;
    char *text = malloc(size + 1);
    memset(text, ' ', size);
    text[size] = '\0';
    aoticache_answer answer;
    aoticache_error error;
    cr_assert_eq(read_answer(text, &answer, &error), AOTICACHE_CORRUPT);
    cr_assert_not_null(strstr(error.message, "1048577"));
    free(text);
}

Test(protocol, hello_is_checked)
{
    static const char *const wrong[] = {"", "hi", "{}", "{\"hello\":2,\"producer\":\"p\",\"python\":\"3\"}",
                                        "{\"hello\":1,\"python\":\"3\"}"};
    aoticache_hello hello;
    aoticache_error error;
    const char *good = "{\"hello\":1,\"producer\":\"pytorch 2.13.0\",\"python\":\"3.11.7\"}";
    cr_assert_eq(aoticache_protocol_read_hello(good, strlen(good), "worker", &hello, NULL), AOTICACHE_OK);
    cr_assert_str_eq(hello.producer, "pytorch 2.13.0");
    cr_assert_str_eq(hello.python, "3.11.7");
    json_decref(hello.json);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        cr_assert_eq(aoticache_protocol_read_hello(wrong[i], strlen(wrong[i]), "worker", &hello, NULL),
                     AOTICACHE_CORRUPT, "%s", wrong[i]);
    const char *sorry = "{\"hello\":1,\"error\":\"PyTorch cannot be imported: no numpy\"}";
    cr_assert_eq(aoticache_protocol_read_hello(sorry, strlen(sorry), "worker", &hello, &error),
                 AOTICACHE_COMPILE_FAILED);
    cr_assert_str_eq(error.message, "hook worker: PyTorch cannot be imported: no numpy");
}
