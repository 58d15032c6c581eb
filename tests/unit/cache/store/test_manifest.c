/*
 * Manifests: writing and parsing the JSON text, and everything that is refused in a text from a store.
 */
#include "base/digest.h"
#include "base/names.h"
#include "cache/request/cpu_list.h"
#include "cache/store/manifest.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static const aoticache_file files[] = {
    {.name = "kernel.so", .path = "/nowhere/kernel.so"},
    {.name = "weights 1.bin", .path = "/nowhere/weights"},
    {.name = "na\xc3\xafve.json", .path = "/nowhere/json"},
};
static const aoticache_digest digests[] = {{{1, 2, 3}}, {{0xff}}, {{1, 2, 3}}};
static const uint64_t sizes[] = {360000, INT64_MAX - 400000, 0};

static aoticache_request *make_request(const char *arch)
{
    aoticache_request *request = NULL;
    const int64_t extents[2] = {2, 3};
    aoticache_tensor_metadata metadata = {
        .dtype = AOTICACHE_DTYPE_FLOAT32, .device = AOTICACHE_DEVICE_CPU, .ndim = 2, .sizes = extents};
    cr_assert_eq(aoticache_request_create("aten::abs", (aoticache_device){0, 0}, &request, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_set_environment(request, "arch", arch, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_add_tensor(request, NULL, &metadata, NULL), AOTICACHE_OK);
    return request;
}

static aoticache_product make_product(void)
{
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = files;
    product.file_count = 3;
    product.producer = "pytorch 2.13.0";
    product.guard = "s0 > 1";
    product.compile_ns = INT64_MAX;
    cr_assert_eq(aoticache_cpu_features_parse_for("x86_64", "avx2,fma,bit77", &product.requirements, NULL),
                 AOTICACHE_OK);
    return product;
}

static aoticache_manifest *make(const char *arch)
{
    aoticache_request *request = make_request(arch);
    aoticache_product product = make_product();
    aoticache_manifest *manifest = NULL;
    aoticache_error error = {0};
    aoticache_status status = aoticache_manifest_create(request, &product, digests, sizes, -7, &manifest, &error);
    cr_assert_eq(status, AOTICACHE_OK, "%s", error.message);
    aoticache_request_free(request);
    return manifest;
}

static char *format(const aoticache_manifest *manifest, size_t *ret_size)
{
    char *text = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_manifest_format((aoticache_manifest *)manifest, NULL, &text, ret_size, &error), AOTICACHE_OK,
                 "%s", error.message);
    cr_assert_eq(strlen(text), *ret_size);
    return text;
}

Test(manifest, create_takes_from_request_and_product)
{
    aoticache_manifest *manifest = make("x86_64");
    aoticache_request *request = make_request("x86_64");
    aoticache_key key;
    cr_assert_eq(aoticache_request_key(request, &key, NULL), AOTICACHE_OK);
    cr_expect(aoticache_digest_equal(&key, &manifest->key));
    cr_expect_str_eq(manifest->op, "aten::abs");
    cr_expect_str_eq(manifest->device, "cpu");
    cr_expect_str_eq(manifest->description, "aten::abs(float32[2, 3]) on cpu");
    cr_expect_str_eq(manifest->producer, "pytorch 2.13.0");
    cr_expect_str_eq(manifest->guard, "s0 > 1");
    cr_expect_eq(manifest->file_count, 3);
    cr_expect_str_eq(manifest->files[1].name, "weights 1.bin");
    cr_expect_eq(manifest->files[1].bytes, sizes[1]);
    cr_expect(aoticache_digest_equal(&manifest->files[1].digest, &digests[1]));
    aoticache_request_free(request);
    aoticache_manifest_free(manifest);
    aoticache_manifest_free(NULL);
}

Test(manifest, format_is_canonical_json)
{
    aoticache_manifest *manifest = make("x86_64");
    size_t size = 0;
    char *text = format(manifest, &size);
    static const char begin[] = "{\"compile_ns\":9223372036854775807,\"created_ns\":-7,\"description\":"
                                "\"aten::abs(float32[2, 3]) on cpu\",\"device\":\"cpu\",\"encoding\":"
                                "\"616f74696361636865206b657900";
    static const char end[] =
        ",{\"bytes\":0,\"digest\":\"0102030000000000000000000000000000000000000000000000000000000000\",\"name\":"
        "\"na\xc3\xafve.json\"}],\"format\":1,\"guard\":\"s0 > 1\",\"key\":\"";
    static const char tail[] = "\",\"kind\":\"aoticache manifest\",\"op\":\"aten::abs\",\"producer\":"
                               "\"pytorch 2.13.0\",\"requirements\":[\"avx2\",\"fma\",\"bit77\"]}\n";
    cr_expect_eq(strncmp(text, begin, strlen(begin)), 0, "%s", text);
    cr_expect_not_null(strstr(text, end), "%s", text);
    cr_expect_str_eq(text + size - strlen(tail), tail);
    free(text);
    aoticache_manifest_free(manifest);
}

static void expect_same(const aoticache_manifest *a, const aoticache_manifest *b)
{
    cr_expect(aoticache_digest_equal(&a->key, &b->key));
    cr_expect_eq(a->encoding_size, b->encoding_size);
    cr_expect_arr_eq(a->encoding, b->encoding, a->encoding_size);
    cr_expect_str_eq(a->op, b->op);
    cr_expect_str_eq(a->device, b->device);
    cr_expect_str_eq(a->description, b->description);
    cr_expect_str_eq(a->producer, b->producer);
    cr_expect_arr_eq(&a->requirements, &b->requirements, sizeof a->requirements);
    cr_expect_eq(a->compile_ns, b->compile_ns);
    cr_expect_eq(a->created_ns, b->created_ns);
    cr_assert_eq(a->file_count, b->file_count);
    for (size_t i = 0; i < a->file_count; i++) {
        cr_expect_str_eq(a->files[i].name, b->files[i].name);
        cr_expect(aoticache_digest_equal(&a->files[i].digest, &b->files[i].digest));
        cr_expect_eq(a->files[i].bytes, b->files[i].bytes);
    }
}

/* Also for an architecture that is not this machine's, and with all bits: a store may have entries from elsewhere. */
Test(manifest, parse_gives_the_same_manifest)
{
    static const char *const archs[] = {"x86_64", "aarch64", "riscv64"};
    for (size_t i = 0; i < 6; i++) {
        aoticache_manifest *manifest = make(archs[i % 3]), *parsed = NULL;
        aoticache_error error = {0};
        size_t size = 0, again_size = 0;
        if (i >= 3)
            manifest->requirements = (aoticache_cpu_features){{UINT64_MAX, UINT64_MAX}};
        char *text = format(manifest, &size), *again;
        cr_assert_eq(aoticache_manifest_parse(text, size, &parsed, &error), AOTICACHE_OK, "%s", error.message);
        expect_same(manifest, parsed);
        cr_expect_str_eq(parsed->guard, "s0 > 1");
        again = format(parsed, &again_size);
        cr_expect_str_eq(text, again);
        free(text);
        free(again);
        aoticache_manifest_free(manifest);
        aoticache_manifest_free(parsed);
    }
}

Test(manifest, guard_and_producer_may_be_absent)
{
    aoticache_request *request = make_request("x86_64");
    aoticache_product product = make_product();
    aoticache_manifest *manifest = NULL, *parsed = NULL;
    size_t size = 0;
    product.guard = product.producer = NULL;
    product.file_count = 1;
    cr_assert_eq(aoticache_manifest_create(request, &product, digests, sizes, 5, &manifest, NULL), AOTICACHE_OK);
    char *text = format(manifest, &size);
    cr_expect_null(strstr(text, "guard"));
    cr_assert_eq(aoticache_manifest_parse(text, size, &parsed, NULL), AOTICACHE_OK);
    cr_expect_null(parsed->guard);
    cr_expect_str_eq(parsed->producer, "");
    free(text);
    aoticache_manifest_free(manifest);
    aoticache_manifest_free(parsed);
    aoticache_request_free(request);
}

Test(manifest, long_description_is_cut_between_characters)
{
    for (size_t shift = 0; shift < 4; shift++) {
        aoticache_request *request = make_request("x86_64");
        aoticache_product product = make_product();
        aoticache_manifest *manifest = NULL, *parsed = NULL;
        char string[6008] = "xxx";
        for (size_t i = shift; i < 6000; i += 3)
            memcpy(string + i, "\xe2\x82\xac", 4);
        cr_assert_eq(aoticache_request_add_string(request, NULL, string, NULL), AOTICACHE_OK);
        cr_assert_eq(aoticache_manifest_create(request, &product, digests, sizes, 5, &manifest, NULL), AOTICACHE_OK);
        size_t length = strlen(manifest->description), size = 0;
        cr_expect_leq(length, 4096);
        cr_expect_geq(length, 4090);
        cr_expect_str_eq(manifest->description + length - 6, "\xe2\x82\xac...");
        char *text = format(manifest, &size);
        cr_expect_eq(aoticache_manifest_parse(text, size, &parsed, NULL), AOTICACHE_OK);
        free(text);
        aoticache_manifest_free(manifest);
        aoticache_manifest_free(parsed);
        aoticache_request_free(request);
    }
}

Test(manifest, file_names_that_are_safe)
{
    static const char *const good[] = {"a", "kernel.so", ".hidden", "...", "a b", "na\xc3\xafve", "-rf"};
    static const char *const bad[] = {"", ".", "..", "a/b", "/", "/etc/passwd", "a\n", "\x1b", "a\x7f", "../x"};
    char name[300];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        cr_expect(aoticache_manifest_file_name_is_safe(good[i]), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        cr_expect_not(aoticache_manifest_file_name_is_safe(bad[i]), "%s", bad[i]);
    memset(name, 'x', sizeof name);
    name[256] = '\0';
    cr_expect_not(aoticache_manifest_file_name_is_safe(name));
    name[255] = '\0';
    cr_expect(aoticache_manifest_file_name_is_safe(name));
}

#define REFUSED_PRODUCT(part, change)                                                                                 \
    do {                                                                                                              \
        aoticache_file changed[3];                                                                                    \
        uint64_t bytes[3];                                                                                            \
        aoticache_error error = {0};                                                                                  \
        aoticache_product product = make_product();                                                                   \
        memcpy(changed, files, sizeof changed);                                                                       \
        memcpy(bytes, sizes, sizeof bytes);                                                                           \
        product.files = changed;                                                                                      \
        change;                                                                                                       \
        aoticache_status status = aoticache_manifest_create(request, &product, digests, bytes, 5, &manifest, &error); \
        cr_expect_eq(status, AOTICACHE_INVALID, "%s", part);                                                          \
        cr_expect_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);              \
        cr_expect_null(manifest);                                                                                     \
    } while (0)

Test(manifest, create_invalid_products_are_refused)
{
    aoticache_request *request = make_request("x86_64");
    aoticache_manifest *manifest = NULL;
    char long_text[2000];
    memset(long_text, 'x', sizeof long_text);
    long_text[1999] = '\0';
    REFUSED_PRODUCT("no files", product.file_count = 0);
    REFUSED_PRODUCT("no files", product.files = NULL);
    REFUSED_PRODUCT("1025 files", product.file_count = 1025);
    REFUSED_PRODUCT("compile_ns", product.compile_ns = (uint64_t)INT64_MAX + 1);
    REFUSED_PRODUCT("producer has 1999 bytes", product.producer = long_text);
    REFUSED_PRODUCT("producer", product.producer = "a\nb");
    REFUSED_PRODUCT("producer", product.producer = "\xff");
    REFUSED_PRODUCT("guard", product.guard = "\xc3");
    REFUSED_PRODUCT("name of file 1", changed[1].name = "../x");
    REFUSED_PRODUCT("name of file 2", changed[2].name = "\xff");
    REFUSED_PRODUCT("name of file 0", changed[0].name = NULL);
    REFUSED_PRODUCT("two files are named kernel.so", changed[2].name = "kernel.so");
    REFUSED_PRODUCT("more than 2^63-1 bytes", bytes[0] = 400001);
    REFUSED_PRODUCT("more than 2^63-1 bytes", bytes[2] = UINT64_MAX);
    cr_assert_eq(aoticache_request_begin_list(request, NULL, NULL), AOTICACHE_OK);
    REFUSED_PRODUCT("still open", (void)0);
    aoticache_request_free(request);
}

/* ---- texts from a store ---- */

static json_t *make_json(void)
{
    aoticache_manifest *manifest = make("x86_64");
    size_t size = 0;
    char *text = format(manifest, &size);
    json_t *object = json_loadb(text, size, 0, NULL);
    cr_assert_not_null(object);
    free(text);
    aoticache_manifest_free(manifest);
    return object;
}

/* Parses `object` and consumes it. */
static aoticache_status parse(json_t *object, aoticache_error *ret_error)
{
    aoticache_manifest *manifest = NULL;
    char *text = json_dumps(object, 0);
    json_decref(object);
    aoticache_status status = aoticache_manifest_parse(text, strlen(text), &manifest, ret_error);
    cr_expect((manifest != NULL) == (status == AOTICACHE_OK));
    free(text);
    aoticache_manifest_free(manifest);
    return status;
}

/* Checks the result of parse with one field replaced, or left out if `value` is NULL. */
static void expect_field(const char *name, json_t *value, aoticache_status expected, const char *part)
{
    json_t *object = make_json();
    aoticache_error error = {0};
    if (value != NULL)
        cr_assert_eq(json_object_set_new(object, name, value), 0);
    else
        cr_assert_eq(json_object_del(object, name), 0);
    cr_expect_eq(parse(object, &error), expected, "%s: %s", name, error.message);
    if (expected != AOTICACHE_OK)
        cr_expect_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
    cr_expect_null(strchr(error.message, '\n'));
}

/* ---- the content of the only file after the text ---- */

static const char content[] = "\n{\"a\":[0]}\0\xff\n";
#define CONTENT_SIZE (sizeof content - 1)

static aoticache_manifest *make_with_one_file(void)
{
    aoticache_request *request = make_request("x86_64");
    aoticache_product product = make_product();
    aoticache_manifest *manifest = NULL;
    aoticache_digest digest;
    const uint64_t bytes = CONTENT_SIZE;
    product.file_count = 1;
    product.guard = NULL;
    cr_assert_eq(aoticache_digest_of(content, CONTENT_SIZE, &digest), AOTICACHE_OK);
    cr_assert_eq(aoticache_manifest_create(request, &product, &digest, &bytes, 5, &manifest, NULL), AOTICACHE_OK);
    aoticache_request_free(request);
    return manifest;
}

static char *format_with_content(size_t *ret_size)
{
    aoticache_manifest *manifest = make_with_one_file();
    char *text = NULL;
    cr_assert_eq(aoticache_manifest_format(manifest, content, &text, ret_size, NULL), AOTICACHE_OK);
    cr_assert_eq(manifest->content_offset, *ret_size - CONTENT_SIZE);
    cr_assert_eq(aoticache_manifest_object_count(manifest), 0);
    aoticache_manifest_free(manifest);
    return text;
}

Test(manifest, content_follows_the_first_line)
{
    size_t size = 0;
    char *text = format_with_content(&size);
    aoticache_manifest *manifest = NULL;
    aoticache_error error = {0};
    cr_assert_eq(aoticache_manifest_parse(text, size, &manifest, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(manifest->content_offset, size - CONTENT_SIZE);
    cr_assert_eq(text + manifest->content_offset, strchr(text, '\n') + 1);
    cr_assert_arr_eq(text + manifest->content_offset, content, CONTENT_SIZE);
    cr_assert_eq(aoticache_manifest_object_count(manifest), 0);
    aoticache_manifest_free(manifest);
    free(text);
    manifest = make_with_one_file();
    cr_assert_eq(aoticache_manifest_format(manifest, NULL, &text, &size, NULL), AOTICACHE_OK);
    cr_assert_not_null(strstr(text, "\"format\":1,")); /* older libraries read this */
    cr_assert_null(strstr(text, "inline"));
    cr_assert_eq(aoticache_manifest_object_count(manifest), 1);
    aoticache_manifest_free(manifest);
    free(text);
}

/*
 * Checks the result of parse for a text in which the first `from` is replaced by `to`, with `more` bytes more (or
 * fewer).
 */
static void expect_changed(const char *from, const char *to, int more, const char *part)
{
    size_t size = 0;
    char *text = format_with_content(&size), *changed = calloc(1, size + 4096);
    char *at = memmem(text, size, from, strlen(from));
    cr_assert_not_null(at, "%s", from);
    const size_t head = (size_t)(at - text), rest = size - head - strlen(from);
    memcpy(changed, text, head);
    memcpy(changed + head, to, strlen(to));
    memcpy(changed + head + strlen(to), at + strlen(from), rest);
    aoticache_manifest *manifest = NULL;
    aoticache_error error = {0};
    const size_t changed_size = (size_t)((ptrdiff_t)(head + strlen(to) + rest) + more);
    cr_expect_eq(aoticache_manifest_parse(changed, changed_size, &manifest, &error), AOTICACHE_CORRUPT, "%s: %s", to,
                 error.message);
    cr_expect_null(manifest);
    cr_expect_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
    cr_expect_null(strchr(error.message, '\n'));
    free(changed);
    free(text);
}

Test(manifest, content_that_is_not_as_it_says_is_refused)
{
    expect_changed("{", "{", -1, "bytes follow it");
    expect_changed("{", "{", 1, "bytes follow it");
    expect_changed("{", "{", -(int)CONTENT_SIZE, "bytes follow it");
    expect_changed("{", "{", -(int)CONTENT_SIZE - 1, "exactly one line");
    expect_changed("{\"a\":[0]}", "{\"a\":[1]}", 0, "the digest of the content differs");
    expect_changed("\"bytes\":13", "\"bytes\":14", 0, "bytes follow it");
    expect_changed("\"bytes\":13", "\"bytes\":2097152", 0, "at most 1048576");
    expect_changed("\"format\":2", "\"format\":1", 0, "format 2");
    expect_changed("\"inline\":true", "\"inline\":false", 0, "bytes follow its JSON object");
    expect_changed("\"inline\":true", "\"inline\":1", 0, "\"inline\" is missing or not true or false");
    expect_changed("\"inline\":true", "\"outline\":true", 0, "bytes follow its JSON object");
    expect_changed("{\"compile_ns\"", "{\n\"compile_ns\"", 0, "exactly one line");
    expect_changed("}\n\n{", "} \n{", 0, "exactly one line");
}

Test(manifest, content_is_of_one_file_alone)
{
    json_t *object = make_json();
    aoticache_error error = {0};
    json_object_set_new(object, "format", json_integer(2));
    json_object_set_new(json_array_get(json_object_get(object, "files"), 1), "inline", json_true());
    cr_expect_eq(parse(object, &error), AOTICACHE_CORRUPT);
    cr_expect_not_null(strstr(error.message, "a single file"), "%s", error.message);
    expect_field("format", json_integer(2), AOTICACHE_OK, "");
}

Test(manifest, parse_unknown_fields_are_ignored)
{
    expect_field("zzz", json_pack("{s:[i,n]}", "later", 1), AOTICACHE_OK, "");
}

Test(manifest, parse_every_field_is_needed)
{
    static const char *const names[] = {"compile_ns", "created_ns", "description", "device",
                                        "encoding",   "files",      "format",      "key",
                                        "kind",       "op",         "producer",    "requirements"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        expect_field(names[i], NULL, AOTICACHE_CORRUPT, names[i]);
        expect_field(names[i], json_null(), AOTICACHE_CORRUPT, names[i]);
        expect_field(names[i], json_real(1.0), AOTICACHE_CORRUPT, names[i]);
        expect_field(names[i], json_object(), AOTICACHE_CORRUPT, names[i]);
    }
    expect_field("guard", NULL, AOTICACHE_OK, "");
    expect_field("guard", json_integer(1), AOTICACHE_CORRUPT, "guard");
    expect_field("output", json_string("two\nlines"), AOTICACHE_OK, "");
    expect_field("metadata", json_string("{\"a\":\"b\"}"), AOTICACHE_OK, "");
    expect_field("metadata", json_string("two\nlines"), AOTICACHE_CORRUPT, "metadata");
    expect_field("metadata", json_integer(1), AOTICACHE_CORRUPT, "metadata");
    expect_field("fallback", json_string("a header is missing"), AOTICACHE_OK, "");
    expect_field("fallback", json_string("two\nlines"), AOTICACHE_CORRUPT, "fallback");
    expect_field("fallback", json_integer(1), AOTICACHE_CORRUPT, "fallback");
    expect_field("output", json_integer(1), AOTICACHE_CORRUPT, "output");
}

Test(manifest, parse_wrong_values_are_refused)
{
    static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    expect_field("format", json_integer(3), AOTICACHE_UNSUPPORTED, "its format is 3; this library knows 2");
    expect_field("format", json_integer(0), AOTICACHE_CORRUPT, "format");
    expect_field("kind", json_string("something else"), AOTICACHE_CORRUPT, "kind");
    expect_field("key", json_string(zeros), AOTICACHE_CORRUPT, zeros);
    expect_field("key", json_string("00"), AOTICACHE_CORRUPT, "64 hexadecimal digits");
    expect_field("encoding", json_string(""), AOTICACHE_CORRUPT, "encoding");
    expect_field("encoding", json_string("616"), AOTICACHE_CORRUPT, "encoding");
    expect_field("encoding", json_string("6G"), AOTICACHE_CORRUPT, "encoding");
    expect_field("op", json_string("aten::add"), AOTICACHE_CORRUPT, "\"op\" is aten::add, the encoding says aten::abs");
    expect_field("op", json_string("aten\n"), AOTICACHE_CORRUPT, "control characters");
    expect_field("device", json_string("cuda"), AOTICACHE_CORRUPT, "\"device\" is cuda, the encoding says cpu");
    expect_field("description", json_string("\x1b[2J"), AOTICACHE_CORRUPT, "control characters");
    expect_field("compile_ns", json_integer(-1), AOTICACHE_CORRUPT, "compile_ns");
    expect_field("requirements", json_pack("[s]", "not_yet_made"), AOTICACHE_UNSUPPORTED, "not_yet_made");
    expect_field("requirements", json_pack("[s]", "x86-64-v3"), AOTICACHE_CORRUPT, "requirements");
    expect_field("requirements", json_pack("[i]", 3), AOTICACHE_CORRUPT, "requirements");
    expect_field("requirements", json_pack("[s]", ""), AOTICACHE_CORRUPT, "requirements");
}

/* The text has an invalid encoding whose digest is the key. */
Test(manifest, parse_key_of_no_encoding_is_refused)
{
    json_t *object = make_json();
    aoticache_digest digest;
    aoticache_error error = {0};
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    cr_assert_eq(aoticache_digest_of("aoticache", 9, &digest), AOTICACHE_OK);
    aoticache_digest_to_hex(&digest, hex);
    json_object_set_new(object, "encoding", json_string("616f74696361636865"));
    json_object_set_new(object, "key", json_string(hex));
    cr_expect_eq(parse(object, &error), AOTICACHE_CORRUPT);
    cr_expect_not_null(strstr(error.message, "key encoding"), "%s", error.message);
}

static json_t *one_file(const char *name, json_int_t bytes, const char *digest)
{
    return json_pack("{s:s, s:I, s:s}", "name", name, "bytes", bytes, "digest", digest);
}

Test(manifest, parse_wrong_files_are_refused)
{
    static const char d[] = "00000000000000000000000000000000000000000000000000000000000000aB";
    json_t *many = json_array();
    for (int i = 0; i < 1025; i++)
        json_array_append_new(many, json_null());
    expect_field("files", many, AOTICACHE_CORRUPT, "files");
    expect_field("files", json_array(), AOTICACHE_CORRUPT, "files");
    expect_field("files", json_pack("[o]", one_file("a", 5, d)), AOTICACHE_OK, "");
    expect_field("files", json_pack("[o]", one_file("../a", 5, d)), AOTICACHE_CORRUPT, "name of file 0");
    expect_field("files", json_pack("[o]", one_file("", 5, d)), AOTICACHE_CORRUPT, "name of file 0");
    expect_field("files", json_pack("[o]", one_file("a", -1, d)), AOTICACHE_CORRUPT, "bytes");
    expect_field("files", json_pack("[o]", one_file("a", 5, "00")), AOTICACHE_CORRUPT, "digest");
    expect_field("files", json_pack("[s]", "a"), AOTICACHE_CORRUPT, "name of file 0");
    expect_field("files", json_pack("[oo]", one_file("a", 5, d), one_file("a", 6, d)), AOTICACHE_CORRUPT,
                 "two files are named a");
    expect_field("files", json_pack("[oo]", one_file("a", INT64_MAX, d), one_file("b", 1, d)), AOTICACHE_CORRUPT,
                 "2^63-1");
}

Test(manifest, parse_what_is_no_json_object_is_refused)
{
    static const char *const texts[] = {"",
                                        "\n",
                                        "[]",
                                        "1",
                                        "{",
                                        "{}x",
                                        "{\"a\":1,\"a\":2}",
                                        "{\"a\":\"\\u0000\"}",
                                        "{\"a\":\"\xff\"}",
                                        "{\"format\":99999999999999999999}",
                                        "not JSON \n at all"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        aoticache_manifest *manifest = NULL;
        aoticache_error error = {0};
        aoticache_status status = aoticache_manifest_parse(texts[i], strlen(texts[i]), &manifest, &error);
        cr_expect_eq(status, AOTICACHE_CORRUPT, "%s", texts[i]);
        cr_expect_null(manifest);
        cr_expect_null(strchr(error.message, '\n'));
    }
}

/* The text is as after a torn write. */
Test(manifest, parse_truncated_text_is_refused)
{
    aoticache_manifest *manifest = make("x86_64"), *parsed = NULL;
    size_t size = 0;
    char *text = format(manifest, &size);
    for (size_t shorter = 0; shorter + 1 < size; shorter++) {
        char *copy = malloc(shorter + 1);
        memcpy(copy, text, shorter);
        cr_expect_eq(aoticache_manifest_parse(copy, shorter, &parsed, NULL), AOTICACHE_CORRUPT, "%zu bytes", shorter);
        free(copy);
    }
    cr_expect_null(parsed);
    cr_expect_eq(aoticache_manifest_parse(text, (36u << 20) + 1, &parsed, NULL), AOTICACHE_CORRUPT);
    free(text);
    aoticache_manifest_free(manifest);
}

static long most_kib(void)
{
    struct rusage usage;
    cr_assert_eq(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_maxrss;
}

/* The tree of such a text would take gigabytes. */
Test(manifest, parse_what_would_grow_is_refused_before)
{
    static const char *const pieces[] = {"{},", "[", "{\"a\":", "0,"};
    const size_t size = 36u << 20;
    char *text = malloc(size);
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        aoticache_manifest *parsed = NULL;
        const size_t piece = strlen(pieces[i]);
        memcpy(text, "{\"a\":[", 6);
        for (size_t at = 6; at < size; at++)
            text[at] = pieces[i][(at - 6) % piece];
        const long before = most_kib();
        cr_expect_eq(aoticache_manifest_parse(text, size, &parsed, NULL), AOTICACHE_CORRUPT, "%s", pieces[i]);
        cr_expect_lt(most_kib() - before, 50000, "%s: %ld KiB", pieces[i], most_kib() - before);
    }
    free(text);
}

/* The contents of strings are text, whatever they look like. */
Test(manifest, parse_counts_no_brackets_in_strings)
{
    aoticache_request *request = make_request("x86_64");
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    aoticache_manifest *manifest = NULL, *parsed = NULL;
    char output[60001];
    for (size_t i = 0; i + 1 < sizeof output; i++)
        output[i] = "[{,:\"\\"[i % 6];
    output[sizeof output - 1] = '\0';
    product.files = files;
    product.file_count = 3;
    product.output = output;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_manifest_create(request, &product, digests, sizes, 1, &manifest, &error), AOTICACHE_OK, "%s",
                 error.message);
    size_t size = 0;
    char *text = format(manifest, &size);
    cr_assert_eq(aoticache_manifest_parse(text, size, &parsed, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_str_eq(parsed->output, output);
    free(text);
    aoticache_manifest_free(parsed);
    aoticache_manifest_free(manifest);
    aoticache_request_free(request);
}
