/*
 * The setting `cpu` (cache/config/value.c) as hooks use it (eager/compile/hook.c): a kernel compiled for a level requires
 * no more than the level, and serves machines that have less than the one that compiled it.
 */
#include "tests/unit/fixtures/eager_fixture.h"

#include "cache/config/config.h"
#include "cache/entries.h"
#include "cache/request/cpu_detect.h"

#define LEVEL "x86-64-v3"

static aoticache_cpu_features level;

static void begin(void)
{
    fixture_begin();
    setenv(AOTICACHE_CONFIG_FILE_VARIABLE, "", 1);
    unsetenv("AOTICACHE_CPU");
    if (strcmp(aoticache_cpu_arch(), "x86_64") != 0)
        cr_skip_test("levels are of x86-64");
    if (system("cc --version >/dev/null 2>&1") != 0)
        cr_skip_test("there is no C compiler");
    cr_assert_eq(aoticache_cpu_features_parse(LEVEL, &level, NULL), AOTICACHE_OK);
    if (!aoticache_cpu_features_include(aoticache_cpu_features_get(), &level))
        cr_skip_test("this machine has less than " LEVEL);
}

TestSuite(cpu_level, .init = begin, .fini = fixture_end);

/* Makes this process act as if its machine had the level and nothing else. */
static void become_lesser_machine(void)
{
    *(aoticache_cpu_features *)(uintptr_t)aoticache_cpu_features_get() = level;
}

static aoticache_cache *open_cache(void)
{
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_cache *cache;
    aoticache_error error = {.message = ""};
    options.directory = in_directory("cache");
    cr_assert_eq(aoticache_cache_open(&options, &cache, &error), AOTICACHE_OK, "%s", error.message);
    return cache;
}

static bool note_requirements(void *user, const aoticache_entry *entry)
{
    *(aoticache_cpu_features *)user = entry->requirements;
    return false;
}

/* Compiles with a hook whose options have the level `said`, as on a fresh machine. Returns the entry's requirements. */
static aoticache_cpu_features compile_in(aoticache_cache *cache, const char *said, aoticache_request *request)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *hook;
    aoticache_artifact *artifact;
    aoticache_error error = {.message = ""};
    options.cpu_features = said;
    cr_assert_eq(aoticache_hook_create_c(&options, &hook, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_hook_set_environment(hook, request, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_cache_get_or_compile(cache, request, NULL, aoticache_hook_compile, hook, &artifact, &error),
                 AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_artifact_get_info(artifact)->source, AOTICACHE_SOURCE_COMPILED);
    aoticache_artifact_unref(artifact);
    aoticache_hook_free(hook);
    aoticache_cpu_features required = aoticache_cpu_features_lacking(&level, &level);
    cr_assert_eq(aoticache_cache_list(cache, NULL, NULL, note_requirements, &required, NULL), AOTICACHE_OK);
    cr_assert_gt(aoticache_cpu_features_count(&required), 0);
    return required;
}

static aoticache_status look_up(aoticache_cache *cache, const aoticache_request *request)
{
    aoticache_artifact *artifact = NULL;
    aoticache_status status = aoticache_cache_lookup(cache, request, NULL, &artifact, NULL);
    aoticache_artifact_unref(artifact);
    return status;
}

/* Tests the result of setting and options: compiles, then looks up on a machine that has only the level. */
static void expect_level(const char *setting, const char *said, bool serves_level)
{
    aoticache_request *request = make_abs_request();
    aoticache_cache *cache = open_cache();
    if (setting != NULL)
        setenv("AOTICACHE_CPU", setting, 1);
    const aoticache_cpu_features required = compile_in(cache, said, request);
    cr_assert_eq(aoticache_cpu_features_include(&level, &required), serves_level);
    cr_assert_eq(look_up(cache, request), AOTICACHE_OK);
    become_lesser_machine();
    cr_assert_eq(look_up(cache, request), serves_level ? AOTICACHE_OK : AOTICACHE_NOT_FOUND);
    aoticache_cache_close(cache);
    aoticache_request_free(request);
}

static void need_more_than_level(void)
{
    if (aoticache_cpu_features_include(&level, aoticache_cpu_features_get()) ||
        system("echo | cc -march=native -dM -E - | grep -q AVX512F") != 0)
        cr_skip_test("this machine has no more than " LEVEL);
}

Test(cpu_level, without_the_setting_code_is_for_this_machine)
{
    need_more_than_level();
    expect_level(NULL, NULL, false);
}

Test(cpu_level, with_the_setting_it_serves_lesser_machines)
{
    expect_level(LEVEL, NULL, true);
}

Test(cpu_level, what_a_program_says_wins)
{
    need_more_than_level();
    expect_level(LEVEL, "native", false);
}

Test(cpu_level, and_may_be_less)
{
    expect_level("native", "x86-64-v2", true);
}

/* Opening the cache reports the warning (test_config). */
Test(cpu_level, a_value_that_cannot_be_compiles_for_this_machine)
{
    need_more_than_level();
    expect_level("x86-64-v9", NULL, false);
}
