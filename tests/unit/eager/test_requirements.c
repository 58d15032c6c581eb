/*
 * Unit tests of what an entry requires of the CPU, from the index to the load (eager/compile/get_runner.c, cache/lookup.c):
 * code for another CPU must never be opened. The library of these tests dies of SIGILL as soon as it is loaded.
 */
#include "cache/request/cpu_detect.h"
#include "tests/unit/fixtures/eager_fixture.h"

static aoticache_cache *cache;

static void begin(void)
{
    fixture_begin();
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_error error = {.message = ""};
    options.directory = in_directory("cache");
    cr_assert_eq(aoticache_cache_open(&options, &cache, &error), AOTICACHE_OK, "%s", error.message);
}

static void end(void)
{
    aoticache_cache_close(cache);
    fixture_end();
}

TestSuite(requirements, .init = begin, .fini = end, .timeout = 600);

/* Makes the library. It dies of SIGILL without using another instruction set. */
static const char *make_deadly_library(void)
{
    char command[PATH_MAX * 2 + 128];
    if (system("command -v cc >/dev/null") != 0)
        cr_skip_test("there is no C compiler");
    write_file("deadly.c",
               "__attribute__((constructor)) static void die(void) { __builtin_trap(); }\n"
               "int AOTInductorModelContainerCreateWithDevice(void) { return 1; }\n"
               "int AOTInductorModelContainerDelete(void) { return 1; }\n"
               "int AOTInductorModelContainerRun(void) { return 1; }\n"
               "int AOTInductorModelContainerGetNumInputs(void) { return 1; }\n"
               "int AOTInductorModelContainerGetNumOutputs(void) { return 1; }\n",
               0600);
    snprintf(command, sizeof command, "cc -shared -fPIC %s/deadly.c -o %s/deadly.so", test_directory, test_directory);
    cr_assert_eq(system(command), 0);
    return in_directory("deadly.so");
}

/* Returns the first feature of a list that this CPU lacks. */
static aoticache_cpu_features lacked_feature(const char **ret_name)
{
    static const char *const names[] = {"avx512_4fmaps", "avx512er", "tbm",     "xop",     "fma4", "amx_fp16",
                                        "amx_complex",   "avx10_2",  "svei8mm", "svebf16", "sve2"};
    aoticache_cpu_features features = {{0}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (aoticache_cpu_features_parse(names[i], &features, NULL) == AOTICACHE_OK &&
            !aoticache_cpu_features_include(aoticache_cpu_features_get(), &features)) {
            *ret_name = names[i];
            return features;
        }
    }
    cr_skip_test("this CPU has every feature that was tried");
    return features;
}

static aoticache_product make_product(const aoticache_file *file, aoticache_cpu_features features)
{
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = file;
    product.file_count = 1;
    product.requirements = features;
    product.producer = "test";
    return product;
}

/* The request is that of the C hook, but its entry is for another CPU. */
Test(requirements, entry_for_another_cpu_is_refused_before_it_is_opened)
{
    const char *name;
    aoticache_error error = {.message = ""};
    aoticache_hook *hook;
    aoticache_runner *runner = NULL;
    aoticache_get_runner_report report;
    aoticache_file file = {.name = "kernel.so", .path = make_deadly_library()};
    aoticache_product product = make_product(&file, lacked_feature(&name));
    cr_assert_eq(aoticache_hook_create_c(NULL, &hook, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_request *request = make_abs_request();
    cr_assert_eq(aoticache_hook_set_environment(hook, request, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_cache_put(cache, request, &product, NULL, &error), AOTICACHE_OK, "%s", error.message);

    cr_assert_eq(aoticache_get_runner(cache, NULL, request, &runner, NULL, &error), AOTICACHE_NOT_FOUND, "%s",
                 error.message);
    cr_assert_null(runner);

    /* With a hook it is a miss like any other, and both entries are kept. */
    cr_assert_eq(aoticache_get_runner(cache, hook, request, &runner, &report, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(report.source, AOTICACHE_SOURCE_COMPILED);
    aoticache_runner_unref(runner);
    cr_assert_eq(aoticache_get_runner(cache, hook, request, &runner, &report, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(report.source, AOTICACHE_SOURCE_INDEX);
    aoticache_runner_unref(runner);
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}

static aoticache_status deliver_for_another_cpu(void *user, const aoticache_request *request, const char *directory,
                                                aoticache_deliver_fn deliver_fn, void *deliver_user,
                                                aoticache_error *ret_error)
{
    const char *name;
    (void)request, (void)directory, (void)ret_error;
    aoticache_file file = {.name = "kernel.so", .path = user};
    aoticache_product product = make_product(&file, lacked_feature(&name));
    return deliver_fn(deliver_user, &product);
}

/* A hook compiles for a better machine than this one: the result may be stored for it, but never runs here. */
Test(requirements, what_a_hook_compiles_for_another_cpu_is_not_run)
{
    aoticache_callback callback = AOTICACHE_CALLBACK_INIT;
    aoticache_error error = {.message = ""};
    aoticache_hook *hook;
    aoticache_runner *runner = NULL;
    const char *name;
    lacked_feature(&name);
    callback.user = (void *)(uintptr_t)make_deadly_library();
    callback.compile = deliver_for_another_cpu;
    callback.producer = "better 1";
    cr_assert_eq(aoticache_hook_create_callback(&callback, &hook, &error), AOTICACHE_OK, "%s", error.message);
    aoticache_request *request = make_abs_request();
    aoticache_status status = aoticache_get_runner(cache, hook, request, &runner, NULL, &error);
    cr_assert_neq(status, AOTICACHE_OK);
    cr_assert_null(runner);
    cr_assert_not_null(strstr(error.message, name), "%s", error.message);
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}
