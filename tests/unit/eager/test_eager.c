/* Unit tests of eager/compile/get_runner.c: from a request to a runner, with the hook that compiles C. */
#include "tests/unit/fixtures/eager_fixture.h"

#include "base/names.h"
#include "cache/entries.h"
#include "cache/gc/collect.h"
#include "eager/load_artifact.h"
#include "loader/tensor.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

static aoticache_cache *cache;
static aoticache_hook *hook;

static void begin(void)
{
    fixture_begin();
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_error error = {.message = ""};
    options.directory = in_directory("cache");
    cr_assert_eq(aoticache_cache_open(&options, &cache, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_hook_create_c(NULL, &hook, &error), AOTICACHE_OK, "%s", error.message);
}

static void end(void)
{
    aoticache_hook_free(hook);
    aoticache_cache_close(cache);
    fixture_end();
}

TestSuite(eager, .init = begin, .fini = end, .timeout = 600);

static aoticache_runner *get(aoticache_hook *with, aoticache_get_runner_report *report)
{
    aoticache_request *request = make_abs_request();
    aoticache_runner *runner = NULL;
    aoticache_error error = {.message = ""};
    /* A lookup without a hook asks for the kernel that the hook would make. */
    cr_assert_eq(aoticache_hook_set_environment(hook, request, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_get_runner(cache, with, request, &runner, report, &error), AOTICACHE_OK, "%s",
                 error.message);
    aoticache_request_free(request);
    return runner;
}

static void check_abs(aoticache_runner *runner)
{
    float data[6] = {-1, 2, -3, 4, -5, 6};
    AtenTensorHandle input, output;
    aoticache_tensor_view view;
    aoticache_error error = {.message = ""};
    cr_assert_eq(
        aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, 2, (const int64_t[]){2, 3}, NULL, &input, &error),
        AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_runner_run(runner, &input, 1, &output, 1, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_tensor_get_view(output, &view, NULL), AOTICACHE_OK);
    for (int i = 0; i < 6; i++)
        cr_assert_eq(((const float *)view.data)[i], (float)(i + 1));
    aoticache_tensor_free(input);
    aoticache_tensor_free(output);
}

Test(eager, get_runner_compiles_once_and_then_hits)
{
    aoticache_get_runner_report report;
    aoticache_runner *runner = get(hook, &report);
    cr_assert_eq(report.source, AOTICACHE_SOURCE_COMPILED);
    cr_assert(report.stored);
    cr_assert_gt(report.compile_ns, 0);
    cr_assert_geq(report.lookup_ns, report.compile_ns);
    cr_assert_gt(report.load_ns, 0);
    cr_assert_not(aoticache_digest_equal(&report.key, &(aoticache_key){{0}}));
    check_abs(runner);
    aoticache_runner_unref(runner);

    aoticache_get_runner_report again;
    runner = get(hook, &again);
    cr_assert_eq(again.source, AOTICACHE_SOURCE_INDEX);
    cr_assert(aoticache_digest_equal(&again.key, &report.key));
    check_abs(runner);
    aoticache_runner_unref(runner);

    runner = get(NULL, &again);
    cr_assert_eq(again.source, AOTICACHE_SOURCE_INDEX);
    check_abs(runner);
    aoticache_runner_unref(runner);
}

static aoticache_artifact *look_up(void)
{
    aoticache_request *request = make_abs_request();
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_hook_set_environment(hook, request, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_cache_lookup(cache, request, NULL, &artifact, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_request_free(request);
    return artifact;
}

static void damage_object(const aoticache_digest *digest)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES], path[PATH_MAX];
    aoticache_digest_to_hex(digest, hex);
    snprintf(path, sizeof path, "%s/objects/%.2s/%s", aoticache_cache_directory(cache), hex, hex + 2);
    cr_assert_eq(chmod(path, 0644), 0);
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    cr_assert_eq(write(fd, "another's code", 14), 14);
    close(fd);
}

/* The object is changed after it was verified and before it is loaded. */
Test(eager, object_that_changes_after_the_lookup_is_not_what_runs)
{
    const aoticache_device cpu = AOTICACHE_DEVICE_CPU;
    aoticache_error error = {.message = ""};
    aoticache_runner *runner = NULL;
    aoticache_runner_unref(get(hook, NULL));
    aoticache_artifact *artifact = look_up();
    damage_object(&aoticache_artifact_get_info(artifact)->library);
    cr_assert_eq(aoticache_artifact_load_runner(cache, artifact, cpu, false, &runner, NULL, &error), AOTICACHE_OK, "%s",
                 error.message);
    check_abs(runner);
    aoticache_runner_unref(runner);
    aoticache_artifact_unref(artifact);
}

/* Without a copy from the lookup, as for a library of many megabytes, the bytes are hashed while they are copied. */
Test(eager, object_that_changes_and_was_not_copied_is_refused)
{
    const aoticache_device cpu = AOTICACHE_DEVICE_CPU;
    aoticache_error error = {.message = ""};
    aoticache_runner *runner = NULL;
    aoticache_runner_unref(get(hook, NULL));
    aoticache_artifact *artifact = look_up();
    int copy = aoticache_artifact_take_copy(artifact);
    cr_assert_geq(copy, 0);
    cr_assert_eq(aoticache_artifact_take_copy(artifact), -1);
    close(copy);
    cr_assert_eq(aoticache_artifact_load_runner(cache, artifact, cpu, false, &runner, NULL, &error), AOTICACHE_OK, "%s",
                 error.message);
    aoticache_runner_unref(runner);
    aoticache_artifact_unref(artifact);
    artifact = look_up();
    close(aoticache_artifact_take_copy(artifact));
    damage_object(&aoticache_artifact_get_info(artifact)->library);
    aoticache_status status = aoticache_artifact_load_runner(cache, artifact, cpu, false, &runner, NULL, &error);
    cr_assert(status == AOTICACHE_CORRUPT || status == AOTICACHE_INVALID, "%s", error.message);
    aoticache_artifact_unref(artifact);
}

Test(eager, lookup_without_a_hook_misses_and_compiles_nothing)
{
    aoticache_request *request = make_abs_request();
    aoticache_runner *runner = NULL;
    cr_assert_eq(aoticache_get_runner(cache, NULL, request, &runner, NULL, NULL), AOTICACHE_NOT_FOUND);
    cr_assert_null(runner);
    aoticache_request_free(request);
}

Test(eager, runner_protects_its_artifact_from_collection)
{
    aoticache_get_runner_report report;
    aoticache_runner *runner = get(hook, &report);
    aoticache_collect_options options = AOTICACHE_COLLECT_OPTIONS_INIT;
    aoticache_collect_report collected;
    aoticache_error error = {.message = ""};
    options.max_bytes = 1;
    cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, NULL, &collected, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(collected.entries_removed, 0);
    cr_assert_eq(collected.held, 1);
    check_abs(runner);
    aoticache_runner_unref(runner);
    cr_assert_eq(aoticache_cache_collect(cache, &options, NULL, NULL, &collected, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(collected.entries_removed, 1);
}

Test(eager, unsupported_operators_are_told)
{
    aoticache_request *request = make_request("aten::svd");
    aoticache_runner *runner = NULL;
    aoticache_error error;
    cr_assert_eq(aoticache_get_runner(cache, hook, request, &runner, NULL, &error), AOTICACHE_UNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "aten_svd.c"), "%s", error.message);
    cr_assert_null(runner);
    aoticache_request_free(request);
}

Test(eager, what_cannot_be_loaded_is_an_error)
{
    aoticache_request *request = make_request("aten::not_a_library");
    const char *path = write_file("kernel.so", "these are no bytes of a library", 0600);
    aoticache_file file = {.name = "kernel.so", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    aoticache_error error = {.message = ""};
    product.files = &file;
    product.file_count = 1;
    product.producer = "test";
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_runner *runner = NULL;
    aoticache_status status = aoticache_get_runner(cache, NULL, request, &runner, NULL, &error);
    cr_assert_neq(status, AOTICACHE_OK);
    cr_assert_neq(status, AOTICACHE_NOT_FOUND);
    cr_assert_null(runner);
    aoticache_request_free(request);
}

Test(eager, null_arguments_are_invalid)
{
    aoticache_request *request = make_abs_request();
    aoticache_runner *runner = NULL;
    cr_assert_eq(aoticache_get_runner(NULL, hook, request, &runner, NULL, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_get_runner(cache, hook, NULL, &runner, NULL, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_get_runner(cache, hook, request, NULL, NULL, NULL), AOTICACHE_INVALID);
    aoticache_request_free(request);
}
