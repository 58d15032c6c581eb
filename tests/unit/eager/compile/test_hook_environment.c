/*
 * What every kind of hook, and a holder without a hook, adds to a request's environment: the architecture of the GPU
 * that the kernel is for.
 */
#include "tests/unit/fixtures/cuda_fixture.h"

#include "base/names.h"
#include "cache/request/request.h"
#include "eager/compile/compile.h"
#include "eager/holder/holder_internal.h"

TestSuite(hook_environment, .init = fixture_setup, .fini = fixture_teardown);

static aoticache_hook *hook;

/* Makes a request for the device with this text, with a hook that is never called. */
static aoticache_request *request_for(const char *device_text)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_request *request = NULL;
    aoticache_device device;
    aoticache_error error = {0};
    options.program = "/bin/true";
    cr_assert_eq(aoticache_hook_create_command(&options, &hook, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(aoticache_device_parse(device_text, &device), AOTICACHE_OK);
    cr_assert_eq(aoticache_request_create("aten::abs", device, &request, &error), AOTICACHE_OK, "%s", error.message);
    return request;
}

static void sets(aoticache_request *request, const char *expected)
{
    aoticache_error error = {0};
    cr_assert_eq(aoticache_hook_set_environment(hook, request, &error), AOTICACHE_OK, "%s", error.message);
    const char *arch = aoticache_request_get_environment(request, "gpu_arch");
    if (expected == NULL)
        cr_assert_null(arch, "it is %s", arch);
    else
        cr_assert_str_eq(arch, expected);
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}

Test(hook_environment, cuda_request_has_the_architecture_of_its_device)
{
    fixture_driver("");
    sets(request_for("cuda:1"), "sm_75");
    sets(request_for("cuda:0"), "sm_90");
    sets(request_for("cuda"), "sm_90");
}

Test(hook_environment, other_requests_have_none_and_ask_no_driver)
{
    fixture_no_driver();
    sets(request_for("cpu"), NULL);
    sets(request_for("xpu:0"), NULL);
}

Test(hook_environment, architecture_that_is_there_stays)
{
    fixture_no_driver();
    aoticache_request *request = request_for("cuda:3");
    cr_assert_eq(aoticache_request_set_environment(request, "gpu_arch", "sm_120", NULL), AOTICACHE_OK);
    sets(request, "sm_120");
}

Test(hook_environment, cuda_request_without_a_device_is_unsupported)
{
    aoticache_error error = {0};
    fixture_driver("-DINIT=100");
    aoticache_request *request = request_for("cuda");
    cr_assert_eq(aoticache_hook_set_environment(hook, request, &error), AOTICACHE_UNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "request for cuda: there is no CUDA device"), "%s", error.message);
    cr_assert_not_null(strstr(error.message, "set gpu_arch"), "%s", error.message);
    cr_assert_null(aoticache_request_get_environment(request, "gpu_arch"));
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}

Test(hook_environment, keys_differ_by_architecture)
{
    aoticache_key keys[2];
    fixture_no_driver();
    for (int i = 0; i < 2; i++) {
        aoticache_request *request = request_for("cuda");
        cr_assert_eq(aoticache_request_set_environment(request, "gpu_arch", i == 0 ? "sm_80" : "sm_90", NULL),
                     AOTICACHE_OK);
        cr_assert_eq(aoticache_hook_set_environment(hook, request, NULL), AOTICACHE_OK);
        cr_assert_eq(aoticache_request_key(request, &keys[i], NULL), AOTICACHE_OK);
        aoticache_request_free(request);
        aoticache_hook_free(hook);
    }
    cr_assert(memcmp(&keys[0], &keys[1], sizeof keys[0]) != 0);
}

static aoticache_status answers_nothing(void *user, uint64_t key_set, aoticache_stack *stack,
                                        aoticache_error *ret_error)
{
    (void)user, (void)key_set, (void)stack;
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "no fallback");
}

/* A process that never compiles finds what a process with a hook compiled. */
Test(hook_environment, holder_without_a_hook_has_the_architecture_too)
{
    aoticache_error error = {0};
    char subdirectory[FIXTURE_PATH_BYTES];
    aoticache_cache_options cache_options = AOTICACHE_CACHE_OPTIONS_INIT;
    aoticache_cache *cache = NULL;
    fixture_driver("");
    fixture_path("cache", subdirectory);
    cache_options.directory = subdirectory;
    cr_assert_eq(aoticache_cache_open(&cache_options, &cache, &error), AOTICACHE_OK, "%s", error.message);
    static const char *const without[] = {"framework=command", "framework_version=1", NULL};
    static const char *const elsewhere[] = {"framework=command", "framework_version=1", "gpu_arch=sm_120", NULL};
    const char *const *environments[] = {without, elsewhere};
    const char *expected[] = {"sm_75", "sm_120"};
    for (int i = 0; i < 2; i++) {
        aoticache_context_options options = AOTICACHE_CONTEXT_OPTIONS_INIT;
        aoticache_context *context = NULL;
        options.cache = cache;
        options.environment = environments[i];
        cr_assert_eq(aoticache_context_create(&options, &context, &error), AOTICACHE_OK, "%s", error.message);
        aoticache_holder_options holder_options = AOTICACHE_HOLDER_OPTIONS_INIT;
        aoticache_holder *holder = NULL;
        holder_options.schema = "test::f(Tensor self) -> Tensor";
        holder_options.device = (aoticache_device){AOTICACHE_DEVICE_TYPE_CUDA, 1};
        holder_options.fallback = answers_nothing;
        cr_assert_eq(aoticache_holder_create(context, &holder_options, &holder, &error), AOTICACHE_OK, "%s",
                     error.message);
        aoticache_request *request = NULL;
        cr_assert_eq(aoticache_request_create("test::f", holder_options.device, &request, &error), AOTICACHE_OK);
        cr_assert_eq(aoticache_holder_set_environment(holder, context->hook, request, &error), AOTICACHE_OK, "%s",
                     error.message);
        cr_expect_str_eq(aoticache_request_get_environment(request, "gpu_arch"), expected[i]);
        aoticache_request_free(request);
        aoticache_holder_unref(holder);
        aoticache_context_free(context);
    }
    aoticache_cache_close(cache);
}
