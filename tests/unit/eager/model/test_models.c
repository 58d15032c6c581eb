/*
 * eager/model: stored models found by name and key, their weights from the cache and from .safetensors files, and false
 * lists and files. The library is tests/unit/kernels/affine.c: on {1, 1, 1} it returns three times layer.weight.
 */
#include "eager/model/model.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/names.h"
#include "cache/request/cpu_detect.h"
#include "eager/model/model_internal.h"
#include "eager/model/tensors.h"
#include "loader/tensor.h"
#include "tests/unit/fixtures/loader_fixture.h"

static aoticache_error error;
static aoticache_cache *cache;

#define HALVES "{\"name\":\"layer.weight\",\"dtype\":\"float32\",\"sizes\":[3],\"strides\":[1]"
#define STORED HALVES ",\"file\":\"weights-0000\",\"offset\":64}"
#define APART HALVES "}"
#define LIST(tensors) "{\"format\":2,\"program\":\"\",\"inputs\":{},\"tensors\":[" tensors "]}"

static void setup(void)
{
    char directory[FIXTURE_PATH_BYTES];
    fixture_setup();
    fixture_path("cache", directory);
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    options.directory = directory;
    cr_assert_eq(aoticache_cache_open(&options, &cache, &error), AOTICACHE_OK, "%s", error.message);
    close(fixture_runtime_kernel("tests/unit/kernels/affine.c", "model.so", "", NULL));
}

static void teardown(void)
{
    aoticache_cache_close(cache);
    fixture_teardown();
}

TestSuite(models, .init = setup, .fini = teardown);

static void write_bytes(const char *name, const void *bytes, size_t size)
{
    char path[FIXTURE_PATH_BYTES];
    fixture_path(name, path);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
}

/* ---- entries ---- */

typedef struct stored_as {
    const char *op, *name, *list, *framework, *arch;
    float weight;
    size_t file_bytes; /* bytes of the weights; 0: all */
    aoticache_cpu_features requirements;
} stored_as;

static aoticache_key put(stored_as as)
{
    char paths[3][FIXTURE_PATH_BYTES];
    char weights[64 + 3 * sizeof(float)] = "";
    const float values[3] = {as.weight, as.weight, as.weight};
    aoticache_request *request = NULL;
    aoticache_key key;
    memcpy(weights + 64, values, sizeof values);
    write_bytes("weights-0000", weights, as.file_bytes != 0 ? as.file_bytes : sizeof weights);
    write_bytes("weights.list", as.list, strlen(as.list));
    const char *const names[] = {"model.so", "weights.list", "weights-0000"};
    aoticache_file files[3];
    for (size_t i = 0; i < 3; i++) {
        fixture_path(names[i], paths[i]);
        files[i] = (aoticache_file){names[i], paths[i]};
    }
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = files;
    product.file_count = 3;
    product.requirements = as.requirements;
    cr_assert_eq(
        aoticache_request_create(as.op != NULL ? as.op : "aoticache::model", AOTICACHE_DEVICE_CPU, &request, &error),
        AOTICACHE_OK);
    aoticache_request_add_string(request, "name", as.name, &error);
    aoticache_request_set_environment(request, "framework", as.framework != NULL ? as.framework : "pytorch 2.13.0",
                                      &error);
    aoticache_request_set_environment(request, "arch", as.arch != NULL ? as.arch : aoticache_cpu_arch(), &error);
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_request_key(request, &key, &error), AOTICACHE_OK);
    aoticache_request_free(request);
    return key;
}

static float run(aoticache_runner *runner)
{
    float ones[3] = {1, 1, 1};
    const int64_t three = 3;
    AtenTensorHandle input = NULL, outputs[2] = {NULL};
    aoticache_tensor_view view = {0};
    cr_assert_eq(aoticache_tensor_from_blob(ones, AOTICACHE_DTYPE_FLOAT32, 1, &three, NULL, &input, &error),
                 AOTICACHE_OK);
    cr_assert_eq(aoticache_runner_run(runner, &input, 1, outputs, 2, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_tensor_free(input);
    cr_assert_eq(aoticache_tensor_get_view(outputs[0], &view, &error), AOTICACHE_OK);
    const float result = *(const float *)view.data;
    aoticache_tensor_free(outputs[0]);
    aoticache_tensor_free(outputs[1]);
    return result;
}

static void expect_weight(const char *name, const aoticache_model_options *options, float weight)
{
    aoticache_runner *runner = NULL;
    cr_assert_eq(aoticache_model_open(cache, name, options, &runner, NULL, &error), AOTICACHE_OK, "%s", error.message);
    const float result = run(runner);
    aoticache_runner_unref(runner);
    cr_assert_eq(result, 3 * weight, "%g, not three times %g", (double)result, (double)weight);
}

static void expect_refused(const char *name, const aoticache_model_options *options, aoticache_status expected,
                           const char *first, const char *second)
{
    aoticache_runner *runner = NULL;
    aoticache_status status = aoticache_model_open(cache, name, options, &runner, NULL, &error);
    cr_assert_eq(status, expected, "%d: %s", status, error.message);
    cr_assert_null(runner);
    cr_assert_not_null(strstr(error.message, first), "%s", error.message);
    cr_assert_not_null(strstr(error.message, second), "%s", error.message);
}

Test(models, a_model_is_opened_by_its_name_and_by_its_key)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_model_report report;
    aoticache_runner *runner = NULL;
    aoticache_key key = put((stored_as){.name = "one", .list = LIST(STORED), .weight = 5});
    put((stored_as){.name = "two", .list = LIST(STORED), .weight = 7});
    expect_weight("one", NULL, 5);
    expect_weight("two", NULL, 7);
    aoticache_digest_to_hex(&key, hex);
    expect_weight(hex, NULL, 5);
    hex[8] = '\0';
    expect_weight(hex, NULL, 5);
    cr_assert_eq(aoticache_model_open(cache, "one", NULL, &runner, &report, &error), AOTICACHE_OK);
    aoticache_runner_unref(runner);
    cr_assert_str_eq(report.name, "one");
    cr_assert_str_eq(report.framework, "pytorch 2.13.0");
    cr_assert_str_eq(report.device, "cpu");
    cr_assert_eq(report.tensors, 1);
    cr_assert_eq(report.missing, 0);
    cr_assert_eq(report.weight_bytes, 12);
    cr_assert_eq(memcmp(&report.key, &key, sizeof key), 0);
}

Test(models, what_is_not_there_names_what_is)
{
    expect_refused("three", NULL, AOTICACHE_NOT_FOUND, "no model named three", "which has no models");
    put((stored_as){.name = "one", .list = LIST(STORED), .weight = 5});
    put((stored_as){.name = "two", .list = LIST(STORED), .weight = 7});
    expect_refused("three", NULL, AOTICACHE_NOT_FOUND, "one", "two");
    expect_refused("0123456789", NULL, AOTICACHE_NOT_FOUND, "no model", "0123456789");
    expect_refused("on", NULL, AOTICACHE_NOT_FOUND, "no model", "one");
}

Test(models, of_one_name_the_last_stored_counts_unless_a_framework_is_named)
{
    aoticache_model_options options = AOTICACHE_MODEL_OPTIONS_INIT;
    put((stored_as){.name = "one", .list = LIST(STORED), .weight = 5, .framework = "pytorch 2.12.0"});
    put((stored_as){.name = "one", .list = LIST(STORED), .weight = 7, .framework = "pytorch 2.13.0"});
    expect_weight("one", NULL, 7);
    options.framework = "pytorch 2.12.0";
    expect_weight("one", &options, 5);
    options.framework = "pytorch 2.14.0";
    expect_refused("one", &options, AOTICACHE_UNSUPPORTED, "compiled by pytorch 2.1", "not by pytorch 2.14.0");
}

Test(models, what_this_machine_cannot_run_is_refused_with_the_reason)
{
    aoticache_model_options options = AOTICACHE_MODEL_OPTIONS_INIT;
    aoticache_cpu_features missing = {{0}};
    const char *feature = "avx512er"; /* no processor on sale has it */
    put((stored_as){.name = "foreign", .list = LIST(STORED), .arch = "riscv64"});
    expect_refused("foreign", NULL, AOTICACHE_UNSUPPORTED, "riscv64", aoticache_cpu_arch());
    cr_assert_eq(aoticache_cpu_features_parse(feature, &missing, &error), AOTICACHE_OK, "%s", error.message);
    if (!aoticache_cpu_features_include(aoticache_cpu_features_get(), &missing)) {
        put((stored_as){.name = "wide", .list = LIST(STORED), .requirements = missing});
        expect_refused("wide", NULL, AOTICACHE_UNSUPPORTED, "wide needs", feature);
    }
    put((stored_as){.name = "here", .list = LIST(STORED)});
    options.device = "cuda";
    expect_refused("here", &options, AOTICACHE_UNSUPPORTED, "compiled for", "cpu");
}

Test(models, weights_that_nobody_has_are_named)
{
    aoticache_model_options options = AOTICACHE_MODEL_OPTIONS_INIT;
    aoticache_model_report report;
    aoticache_runner *runner = NULL;
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_key key = put((stored_as){.op = "aoticache::program", .name = "graph", .list = LIST(APART)});
    aoticache_digest_to_hex(&key, hex);
    expect_refused(hex, NULL, AOTICACHE_INVALID, "1 weights have no value", "layer.weight");
    expect_refused("graph", NULL, AOTICACHE_NOT_FOUND, "no model", "graph"); /* a program has no name */
    options.partial_weights = true;
    cr_assert_eq(aoticache_model_open(cache, hex, &options, &runner, &report, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(report.missing, 1);
    aoticache_runner_unref(runner);
}

/* ---- inputs that do not fit ---- */

static aoticache_status run_with(aoticache_runner *runner, int32_t dtype, int64_t size, int64_t stride)
{
    double memory[16] = {0};
    AtenTensorHandle input = NULL, outputs[2] = {NULL};
    cr_assert_eq(aoticache_tensor_from_blob(memory, dtype, 1, &size, &stride, &input, &error), AOTICACHE_OK);
    aoticache_status status = aoticache_runner_run(runner, &input, 1, outputs, 2, &error);
    aoticache_tensor_free(input);
    aoticache_tensor_free(outputs[0]);
    aoticache_tensor_free(outputs[1]);
    return status;
}

Test(models, inputs_are_compared_with_what_the_list_says)
{
#define WITH_INPUTS \
    "{\"format\":2,\"inputs\":{\"check\":\"float32[3]{contiguous}@cpu\",\"names\":[\"x\"]},\"tensors\":[" STORED "]}"
    aoticache_runner *runner = NULL;
    put((stored_as){.name = "compared", .list = WITH_INPUTS, .weight = 5});
    cr_assert_eq(aoticache_model_open(cache, "compared", NULL, &runner, NULL, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(run_with(runner, AOTICACHE_DTYPE_FLOAT32, 3, 1), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(run_with(runner, AOTICACHE_DTYPE_FLOAT32, 2, 1), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "argument 0 (x): size of dimension 0 is 2, and must be 3"), "%s",
                       error.message);
    cr_assert_eq(run_with(runner, AOTICACHE_DTYPE_FLOAT64, 3, 1), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "dtype is float64"), "%s", error.message);
    cr_assert_eq(run_with(runner, AOTICACHE_DTYPE_FLOAT32, 3, 2), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "stride"), "%s", error.message);
    aoticache_runner_unref(runner);
}

/* ---- false lists ---- */

static void expect_corrupt(const char *list, const char *what)
{
    put((stored_as){.name = "bad", .list = list, .weight = 5});
    expect_refused("bad", NULL, AOTICACHE_CORRUPT, "", what);
}

Test(models, lists_that_lie_are_refused)
{
#define TENSOR(dtype, sizes, strides, place) \
    LIST("{\"name\":\"layer.weight\",\"dtype\":\"" dtype "\",\"sizes\":" sizes ",\"strides\":" strides place "}")
    expect_corrupt("not valid JSON", "weights.list");
    put((stored_as){.name = "older", .list = "{\"format\":1,\"tensors\":[]}", .weight = 5});
    expect_refused("older", NULL, AOTICACHE_UNSUPPORTED, "another version", "compile it again");
    expect_corrupt("{\"format\":2,\"inputs\":{\"check\":\"float32[\"},\"tensors\":[]}", "inputs");
    expect_corrupt("{\"format\":2,\"inputs\":{\"check\":\"float32[3], float32[3]\"},\"tensors\":[]}", "takes 1 inputs");
    expect_corrupt(LIST("{\"dtype\":\"float32\",\"sizes\":[3],\"strides\":[1]}"), "no name");
    expect_corrupt(TENSOR("float31", "[3]", "[1]", ""), "dtype");
    expect_corrupt(TENSOR("float32", "[3]", "[1,1]", ""), "one length");
    expect_corrupt(TENSOR("float32", "3", "[1]", ""), "one length");
    expect_corrupt(TENSOR("float32", "[-3]", "[1]", ""), "impossible");
    expect_corrupt(TENSOR("float32", "[4611686018427387904, 4]", "[4, 1]", ""), "impossible");
    expect_corrupt(TENSOR("float32", "[3]", "[1]", ",\"file\":\"../weights-0000\",\"offset\":0"), "file");
    expect_corrupt(TENSOR("float32", "[3]", "[1]", ",\"file\":\"weights-0000\",\"offset\":-4"), "file");
    expect_corrupt(TENSOR("float32", "[3]", "[1]", ",\"file\":\"weights-0000\",\"offset\":68"),
                   "layer.weight needs bytes 68 to 80");
    expect_corrupt(TENSOR("float32", "[3]", "[9223372036854775807]", ",\"file\":\"weights-0000\",\"offset\":0"), "");
    put((stored_as){.name = "short", .list = LIST(STORED), .file_bytes = 70});
    expect_refused("short", NULL, AOTICACHE_CORRUPT, "layer.weight", "weights-0000, which has 70");
    /* Consistent, but different from the library: the runner names both sides. */
    put((stored_as){.name = "other",
                    .list = TENSOR("float64", "[1]", "[1]", ",\"file\":\"weights-0000\",\"offset\":0")});
    expect_refused("other", NULL, AOTICACHE_INVALID, "weight", "float32, not float64");
}

/* ---- .safetensors ---- */

static char safetensors_path[FIXTURE_PATH_BYTES];

/* Writes a file with this header and three floats; cut: bytes that are missing at its end. */
static const aoticache_model_options *write_safetensors(const char *header, float weight, size_t cut)
{
    static aoticache_model_options options;
    static char bytes[4096];
    const float values[3] = {weight, weight, weight};
    const size_t length = strlen(header), size = 8 + length + sizeof values;
    memset(bytes, 0, sizeof bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(length >> (8 * i));
    memcpy(bytes + 8, header, length);
    memcpy(bytes + 8 + length, values, sizeof values);
    write_bytes("w.safetensors", bytes, size - cut);
    fixture_path("w.safetensors", safetensors_path);
    options = (aoticache_model_options)AOTICACHE_MODEL_OPTIONS_INIT;
    options.weights = safetensors_path;
    return &options;
}

#define GIVEN(name, dtype, shape, offsets)                                                   \
    "{\"__metadata__\":{\"a\":\"b\"},\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape \
    ",\"data_offsets\":" offsets "}}"

Test(models, a_safetensors_file_takes_the_place_of_stored_weights)
{
    put((stored_as){.name = "one", .list = LIST(STORED), .weight = 5});
    expect_weight("one", write_safetensors(GIVEN("layer.weight", "F32", "[3]", "[0,12]"), 11, 0), 11);
    /* Data at an odd address is copied. */
    expect_weight("one", write_safetensors(GIVEN("layer.weight", "F32", "[3]", "[0,12]") " ", 13, 0), 13);
    expect_weight("one", write_safetensors(GIVEN("layer.weight", "F32", "[3]", "[0,12]") "   ", 17, 0), 17);
    expect_weight("one", NULL, 5);
}

/* Runs a child that opens the model with this file, truncates the file, and runs; returns its status. */
static int end_after_truncation(const aoticache_model_options *options)
{
    int ended = 0;
    aoticache_runner *runner = NULL;
    const pid_t child = fork();
    if (child == 0) {
        if (aoticache_model_open(cache, "one", options, &runner, NULL, &error) != AOTICACHE_OK ||
            truncate(options->weights, 0) != 0)
            _exit(3);
        _exit(run(runner) == 33 ? 0 : 4);
    }
    cr_assert_eq(waitpid(child, &ended, 0), child);
    return ended;
}

Test(models, a_file_that_is_made_shorter_changes_nothing_unless_it_is_mapped)
{
    put((stored_as){.name = "one", .list = LIST(STORED), .weight = 5});
    aoticache_model_options options = *write_safetensors(GIVEN("layer.weight", "F32", "[3]", "[0,12]"), 11, 0);
    cr_expect_eq(end_after_truncation(&options), 0);
    /* The spaces put the data at a multiple of 16 in the file, so that it is used in place in the mapping. */
    static char header[200];
    snprintf(header, sizeof header, "%s", GIVEN("layer.weight", "F32", "[3]", "[0,12]"));
    while ((8 + strlen(header)) % 16 != 0)
        strcat(header, " ");
    options = *write_safetensors(header, 11, 0);
    options.map_weights = true;
    expect_weight("one", &options, 11);
    const int ended = end_after_truncation(&options);
#ifdef __SANITIZE_ADDRESS__ /* AddressSanitizer turns the signal into its own exit status */
    cr_expect(WIFEXITED(ended) && WEXITSTATUS(ended) == 1, "%x: it was not mapped", ended);
#else
    cr_expect(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGBUS, "%x: it was not mapped", ended);
#endif
}

Test(models, a_tied_weight_is_found_under_its_other_name)
{
    put((stored_as){.name = "one", .list = LIST(HALVES ",\"aliases\":[\"head.weight\"]}")});
    expect_weight("one", write_safetensors(GIVEN("head.weight", "F32", "[3]", "[0,12]"), 11, 0), 11);
}

Test(models, safetensors_files_that_do_not_fit_are_refused_with_both_sides)
{
    put((stored_as){.name = "one", .list = LIST(STORED), .weight = 5});
    expect_refused("one", write_safetensors(GIVEN("layer.weight", "F16", "[3]", "[0,6]"), 1, 0), AOTICACHE_INVALID,
                   "layer.weight is float16[3]", "float32[3]");
    expect_refused("one", write_safetensors(GIVEN("layer.weight", "F32", "[1,3]", "[0,12]"), 1, 0), AOTICACHE_INVALID,
                   "float32[1, 3]", "float32[3]");
    expect_refused("one", write_safetensors(GIVEN("layer.bias", "F32", "[3]", "[0,12]"), 1, 0), AOTICACHE_INVALID,
                   "begins with layer.bias", "the model with layer.weight");
    expect_refused("one", write_safetensors(GIVEN("layer.weight", "F32", "[3]", "[0,12]"), 1, 4), AOTICACHE_INVALID,
                   "layer.weight ends at byte 12 of 8", "truncated");
}

Test(models, safetensors_files_that_lie_are_refused)
{
    put((stored_as){.name = "one", .list = LIST(STORED), .weight = 5});
    expect_refused("one", write_safetensors(GIVEN("layer.weight", "F32", "[3]", "[0,8]"), 1, 0), AOTICACHE_INVALID,
                   "layer.weight has 8 bytes", "need 12");
    expect_refused("one", write_safetensors(GIVEN("layer.weight", "F32", "[3]", "[12,0]"), 1, 0), AOTICACHE_INVALID,
                   "layer.weight", "data_offsets");
    expect_refused("one", write_safetensors(GIVEN("layer.weight", "F32", "[3]", "[0]"), 1, 0), AOTICACHE_INVALID,
                   "layer.weight", "data_offsets");
    expect_refused("one", write_safetensors(GIVEN("layer.weight", "F32", "[9223372036854775807,9]", "[0,12]"), 1, 0),
                   AOTICACHE_INVALID, "layer.weight", "shape is impossible");
    expect_refused("one", write_safetensors(GIVEN("layer.weight", "Q4", "[3]", "[0,12]"), 1, 0), AOTICACHE_UNSUPPORTED,
                   "layer.weight", "Q4");
    expect_refused("one", write_safetensors("{\"layer.weight\":3}", 1, 0), AOTICACHE_INVALID, "layer.weight", "dtype");
    expect_refused("one", write_safetensors("[]", 1, 0), AOTICACHE_INVALID, "w.safetensors", "not a JSON object");
    write_bytes("w.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    const aoticache_model_options *options = write_safetensors("{}", 1, 0);
    write_bytes("w.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    expect_refused("one", options, AOTICACHE_INVALID, "longer than the file", "w.safetensors");
    write_bytes("w.safetensors", "", 0);
    expect_refused("one", options, AOTICACHE_INVALID, "too short", "w.safetensors");
    cr_assert_eq(unlink(safetensors_path), 0);
    expect_refused("one", options, AOTICACHE_NOT_FOUND, "no such file", "w.safetensors");
    cr_assert_eq(mkdir(safetensors_path, 0700), 0);
    expect_refused("one", options, AOTICACHE_INVALID, "not a regular file", "w.safetensors");
    expect_weight("one", NULL, 5);
}

Test(models, other_strides_than_row_major_ones_are_kept)
{
    const int64_t sizes[] = {2, 3}, column_major[] = {1, 2};
    char header[] = GIVEN("t", "F32", "[2,3]", "[0,24]"), bytes[256] = "";
    const float values[6] = {0, 1, 2, 3, 4, 5};
    aoticache_safetensors file = {.mapping = NULL};
    uint64_t span = 0;
    bytes[0] = (char)strlen(header);
    memcpy(bytes + 8, header, strlen(header));
    memcpy(bytes + 8 + strlen(header), values, sizeof values);
    cr_assert_eq(aoticache_safetensors_read("t", bytes, 8 + strlen(header) + sizeof values, &file, &error),
                 AOTICACHE_OK, "%s", error.message);
    cr_assert_not_null(aoticache_safetensors_find(&file, "t"));
    cr_assert_null(aoticache_safetensors_find(&file, "u"));
    aoticache_safetensors_close(&file);
    cr_assert(aoticache_model_span(AOTICACHE_DTYPE_FLOAT32, 2, sizes, column_major, &span));
    cr_assert_eq(span, 24);
}

struct listed {
    size_t count;
    bool is_stored;
    uint64_t bytes;
};

static bool note_tensor(void *user, const aoticache_model_tensor *tensor)
{
    struct listed *listed = user;
    cr_assert_str_eq(tensor->name, "layer.weight");
    listed->count++;
    listed->is_stored = tensor->is_stored;
    listed->bytes = tensor->bytes;
    return true;
}

Test(models, tensors_are_listed)
{
    struct listed listed = {0};
    put((stored_as){.name = "one", .list = LIST(STORED), .weight = 5});
    cr_assert_eq(aoticache_model_list_tensors(cache, "one", note_tensor, &listed, &error), AOTICACHE_OK);
    cr_assert_eq(listed.count, 1);
    cr_assert(listed.is_stored);
    cr_assert_eq(listed.bytes, 12);
    cr_assert_eq(aoticache_model_list_tensors(cache, "two", note_tensor, &listed, &error), AOTICACHE_NOT_FOUND);
}

Test(models, null_arguments_are_refused)
{
    aoticache_runner *runner = NULL;
    cr_assert_eq(aoticache_model_open(NULL, "x", NULL, &runner, NULL, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_model_open(cache, NULL, NULL, &runner, NULL, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_model_open(cache, "x", NULL, NULL, NULL, &error), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_model_list_tensors(cache, "x", NULL, NULL, &error), AOTICACHE_INVALID);
}
