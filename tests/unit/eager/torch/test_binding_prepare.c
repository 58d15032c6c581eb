/* Unit tests of eager/torch/bridge_open.c: the bridge from the cache, with a script as compiler. */
#include "eager/torch/binding.h"
#include "tests/unit/fixtures/eager_fixture.h"

TestSuite(binding_prepare, .init = fixture_begin, .fini = fixture_end, .timeout = 300);

static aoticache_cache *cache;
static aoticache_artifact *artifact;
static aoticache_error error;
static char path[64];
static const char *source;
static const char *const environment[] = {"framework=pytorch", "framework_version=2.13.0", NULL};

/* A compiler that counts its runs in the file "runs" and whose library is its source. */
static const char compiler[] = "#!/bin/sh\n"
                               "echo run >> \"$(dirname \"$0\")/runs\"\n"
                               "[ \"$1\" = -bad ] && { echo 'error: no such header' >&2; exit 1; }\n"
                               "while [ $# -gt 3 ]; do shift; done\n"
                               "[ \"$1\" = -o ] || exit 3\n"
                               "echo 'a warning' >&2\n"
                               "cp \"$3\" \"$2\"\n";

static void begin(void)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    options.directory = in_directory("cache");
    cr_assert_eq(aoticache_cache_open(&options, &cache, &error), AOTICACHE_OK, "%s", error.message);
    source = strdup(write_file("bridge.cpp", "the source", 0600));
    write_script("compiler", compiler);
}

static void end(void)
{
    free((char *)source);
    aoticache_cache_close(cache);
}

static aoticache_status prepare(const char *option, const char *const *pairs)
{
    const char *const command[] = {in_directory("compiler"), option, NULL};
    artifact = NULL;
    error.message[0] = '\0';
    return aoticache_binding_prepare_bridge(cache, source, option != NULL ? command : NULL, pairs, path, sizeof path,
                                            &artifact, &error);
}

static size_t runs(void)
{
    return strlen(read_text(in_directory("runs"))) / strlen("run\n");
}

Test(binding_prepare, compiled_once_and_found_again)
{
    begin();
    cr_expect_eq(prepare(NULL, environment), AOTICACHE_NOT_FOUND);
    cr_expect_not_null(strstr(error.message, "no bridge"), "%s", error.message);
    cr_assert_eq(prepare("-good", environment), AOTICACHE_OK, "%s", error.message);
    cr_expect_str_eq(read_text(path), "the source");
    cr_expect_eq(aoticache_artifact_get_info(artifact)->source, AOTICACHE_SOURCE_COMPILED);
    aoticache_artifact_unref(artifact);
    cr_assert_eq(prepare("-good", environment), AOTICACHE_OK, "%s", error.message);
    cr_expect_eq(aoticache_artifact_get_info(artifact)->source, AOTICACHE_SOURCE_INDEX);
    aoticache_artifact_unref(artifact);
    cr_assert_eq(prepare(NULL, environment), AOTICACHE_OK, "%s", error.message);
    cr_expect_str_eq(read_text(path), "the source");
    aoticache_artifact_unref(artifact);
    cr_expect_eq(runs(), 1);
    end();
}

Test(binding_prepare, another_pytorch_or_source_is_another_bridge)
{
    static const char *const other[] = {"framework=pytorch", "framework_version=2.12.0", NULL};
    begin();
    cr_assert_eq(prepare("-good", environment), AOTICACHE_OK, "%s", error.message);
    aoticache_artifact_unref(artifact);
    cr_expect_eq(prepare(NULL, other), AOTICACHE_NOT_FOUND);
    write_file("bridge.cpp", "another source", 0600);
    cr_expect_eq(prepare(NULL, environment), AOTICACHE_NOT_FOUND);
    cr_assert_eq(prepare("-good", environment), AOTICACHE_OK, "%s", error.message);
    cr_expect_str_eq(read_text(path), "another source");
    aoticache_artifact_unref(artifact);
    cr_expect_eq(runs(), 2);
    end();
}

Test(binding_prepare, failure_is_remembered_with_what_the_compiler_said)
{
    begin();
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(prepare("-bad", environment), AOTICACHE_COMPILE_FAILED);
        cr_expect_not_null(strstr(error.message, "no such header"), "%s", error.message);
    }
    cr_expect_eq(runs(), 1);
    end();
}

Test(binding_prepare, compiler_that_is_not_there_is_not_remembered)
{
    begin();
    const char *const command[] = {in_directory("c++"), NULL};
    cr_expect_eq(
        aoticache_binding_prepare_bridge(cache, source, command, environment, path, sizeof path, &artifact, &error),
        AOTICACHE_UNSUPPORTED);
    cr_expect_not_null(strstr(error.message, command[0]), "%s", error.message);
    cr_assert_eq(prepare("-good", environment), AOTICACHE_OK, "%s", error.message);
    aoticache_artifact_unref(artifact);
    end();
}

Test(binding_prepare, misuse_is_invalid)
{
    static const char *const nonsense[] = {"framework", NULL};
    char small[8];
    const char *const command[] = {in_directory("compiler"), NULL}, *const nothing[] = {NULL};
    begin();
    cr_expect_eq(prepare("-good", nonsense), AOTICACHE_INVALID);
    cr_expect_not_null(strstr(error.message, "\"framework\" is not NAME=VALUE"), "%s", error.message);
    cr_expect_eq(
        aoticache_binding_prepare_bridge(cache, source, command, environment, small, sizeof small, &artifact, &error),
        AOTICACHE_INVALID);
    cr_expect_eq(aoticache_binding_prepare_bridge(cache, in_directory("none.cpp"), command, environment, path,
                                                  sizeof path, &artifact, &error),
                 AOTICACHE_IO);
    cr_expect_neq(aoticache_binding_prepare_bridge(cache, write_file("other.cpp", "x", 0600), nothing, environment,
                                                   path, sizeof path, &artifact, &error),
                  AOTICACHE_OK);
    cr_expect_eq(
        aoticache_binding_prepare_bridge(NULL, source, command, environment, path, sizeof path, &artifact, &error),
        AOTICACHE_INVALID);
    end();
}
