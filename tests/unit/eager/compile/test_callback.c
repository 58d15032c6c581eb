/* Unit tests of eager/compile/callback.c, and of the checks in eager/compile/hook.c of everything that is delivered. */
#include "cache/request/cpu_detect.h"
#include "eager/compile/eager_face.h"
#include "tests/unit/fixtures/eager_fixture.h"

TestSuite(callback, .init = fixture_begin, .fini = fixture_end, .timeout = 300);

/* What the callback of a test does. */
struct script {
    aoticache_status result;
    int deliveries;
    const char *guard, *producer, *output, *library;
    size_t product_size; /* 0: the real size */
    int compiles;
};

/* The delivered results. */
struct taken {
    int calls;
    char guard[256], producer[256], output[256];
    uint64_t compile_ns;
};

static aoticache_status take(void *user, const aoticache_product *product)
{
    struct taken *taken = user;
    taken->calls++;
    taken->compile_ns = product->compile_ns;
    snprintf(taken->guard, sizeof taken->guard, "%s", product->guard != NULL ? product->guard : "(none)");
    snprintf(taken->producer, sizeof taken->producer, "%s", product->producer);
    snprintf(taken->output, sizeof taken->output, "%s", product->output != NULL ? product->output : "(none)");
    return AOTICACHE_OK;
}

static aoticache_status run_script(void *user, const aoticache_request *request, const char *directory,
                                   aoticache_deliver_fn deliver_fn, void *deliver_user, aoticache_error *ret_error)
{
    struct script *script = user;
    (void)request, (void)directory;
    script->compiles++;
    aoticache_file file = {.name = "kernel.so", .path = script->library != NULL ? script->library : fixture_library()};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    product.guard = script->guard;
    product.producer = script->producer;
    product.output = script->output;
    if (script->product_size != 0)
        product.size = script->product_size;
    aoticache_status status = AOTICACHE_OK;
    for (int i = 0; i < script->deliveries && status == AOTICACHE_OK; i++)
        status = deliver_fn(deliver_user, &product);
    if (status == AOTICACHE_OK && script->result != AOTICACHE_OK)
        return aoticache_error_set(ret_error, script->result, "no such luck");
    return status;
}

static aoticache_hook *make_hook(struct script *script, bool dynamic)
{
    char producer[] = "mycompiler 1.2";
    aoticache_callback callback = AOTICACHE_CALLBACK_INIT;
    aoticache_error error = {.message = ""};
    aoticache_hook *hook;
    callback.user = script;
    callback.compile = run_script;
    callback.producer = producer;
    callback.dynamic = dynamic;
    cr_assert_eq(aoticache_hook_create_callback(&callback, &hook, &error), AOTICACHE_OK, "%s", error.message);
    producer[0] = 'X'; /* it is copied */
    return hook;
}

static aoticache_status compile(struct script *script, bool dynamic_hook, bool dynamic_request, struct taken *taken,
                                aoticache_error *error)
{
    aoticache_hook *hook = make_hook(script, dynamic_hook);
    aoticache_request *request = make_abs_request();
    *taken = (struct taken){0};
    *error = (aoticache_error){.message = ""};
    if (dynamic_request)
        cr_assert_eq(aoticache_request_set_environment(request, AOTICACHE_SHAPES_NAME, AOTICACHE_SHAPES_DYNAMIC, NULL),
                     AOTICACHE_OK);
    aoticache_status status = aoticache_hook_compile(hook, request, test_directory, take, taken, error);
    aoticache_request_free(request);
    aoticache_hook_free(hook);
    return status;
}

Test(callback, product_is_delivered_with_what_it_left_open)
{
    struct script script = {.deliveries = 1};
    struct taken taken;
    aoticache_error error;
    cr_assert_eq(compile(&script, false, false, &taken, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(script.compiles, 1);
    cr_assert_eq(taken.calls, 1);
    cr_assert_str_eq(taken.producer, "mycompiler 1.2");
    cr_assert_gt(taken.compile_ns, 0);
    script = (struct script){.deliveries = 1, .producer = "other 3", .output = "warning: hot"};
    cr_assert_eq(compile(&script, false, false, &taken, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_str_eq(taken.producer, "other 3");
    cr_assert_str_eq(taken.output, "warning: hot");
}

Test(callback, failure_is_the_functions_own)
{
    struct script script = {.result = AOTICACHE_COMPILE_FAILED};
    struct taken taken;
    aoticache_error error;
    cr_assert_eq(compile(&script, false, false, &taken, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_str_eq(error.message, "no such luck");
    script.result = AOTICACHE_UNSUPPORTED;
    cr_assert_eq(compile(&script, false, false, &taken, &error), AOTICACHE_UNSUPPORTED);
    cr_assert_eq(taken.calls, 0);
}

Test(callback, it_delivers_exactly_once)
{
    struct script script = {.deliveries = 0};
    struct taken taken;
    aoticache_error error;
    cr_assert_eq(compile(&script, false, false, &taken, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_not_null(strstr(error.message, "delivered nothing"), "%s", error.message);
    script.deliveries = 2;
    cr_assert_eq(compile(&script, false, false, &taken, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "twice"), "%s", error.message);
    cr_assert_eq(taken.calls, 1);
    script = (struct script){.deliveries = 1, .product_size = 1};
    cr_assert_eq(compile(&script, false, false, &taken, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "AOTICACHE_PRODUCT_INIT"), "%s", error.message);
    cr_assert_eq(taken.calls, 0);
}

/* Fields that an older caller's struct lacks are not read. */
Test(callback, shorter_product_has_no_later_fields)
{
    struct script script = {.deliveries = 1, .output = "not read", .product_size = offsetof(aoticache_product, output)};
    struct taken taken;
    aoticache_error error;
    cr_assert_eq(compile(&script, false, false, &taken, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_str_eq(taken.output, "(none)");
}

/* ---- files that are not kernel libraries ---- */

/* Returns the library of the tests with one byte changed, or cut off. */
static const char *changed_library(const char *name, size_t at, char to, size_t kept)
{
    static char bytes[1 << 20];
    FILE *from = fopen(fixture_library(), "rb"), *file = fopen(in_directory(name), "wb");
    cr_assert(from != NULL && file != NULL);
    size_t size = fread(bytes, 1, sizeof bytes, from);
    cr_assert(size > 4096 && size < sizeof bytes);
    bytes[at] = to;
    cr_assert_eq(fwrite(bytes, 1, kept != 0 ? kept : size, file), kept != 0 ? kept : size);
    fclose(from);
    fclose(file);
    return in_directory(name);
}

Test(callback, product_that_is_no_kernel_library_is_a_failed_compile)
{
    char program[PATH_MAX]; /* of this architecture, which /bin/true is not under an emulator */
    cr_assert_not_null(realpath("/proc/self/exe", program));
    const char *const wrong[][2] = {
        {write_file("text", "these are the bytes of a text, and there are more of them than an ELF header has\n", 0600),
         "ELF"},
        {program, "AOTInductorModelContainerRun"},
        {changed_library("machine", 18, 8, 0), "it is for machine 8, but this process is"},
        {changed_library("class", 4, 1, 0), "32-bit"},
        {changed_library("cut", 0, 127, 3000), "3000 bytes"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct script script = {.deliveries = 1, .library = wrong[i][0]};
        struct taken taken;
        aoticache_error error;
        cr_assert_eq(compile(&script, false, false, &taken, &error), AOTICACHE_COMPILE_FAILED, "%s", wrong[i][0]);
        cr_assert_not_null(strstr(error.message, wrong[i][1]), "%s: %s", wrong[i][0], error.message);
        cr_assert_not_null(strstr(error.message, "hook callback (mycompiler 1.2): its library kernel.so is not stored"),
                           "%s", error.message);
        cr_assert_eq(taken.calls, 0);
    }
}

/* A library that is requested for another architecture is checked for that one. */
Test(callback, product_is_for_the_architecture_that_was_asked_for)
{
    bool is_x86 = strcmp(aoticache_cpu_arch(), "x86_64") == 0;
    const char *other = is_x86 ? "aarch64" : "x86_64";
    struct script script = {.deliveries = 1, .library = changed_library("other", 18, is_x86 ? (char)183 : 62, 0)};
    aoticache_hook *hook = make_hook(&script, false);
    aoticache_request *request = make_abs_request();
    struct taken taken = {0};
    aoticache_error error;
    cr_assert_eq(aoticache_request_set_environment(request, "arch", other, NULL), AOTICACHE_OK);
    cr_assert_eq(aoticache_hook_compile(hook, request, test_directory, take, &taken, &error), AOTICACHE_OK, "%s",
                 error.message);
    script.library = NULL;
    cr_assert_eq(aoticache_hook_compile(hook, request, test_directory, take, &taken, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_not_null(strstr(error.message, "but a library for"), "%s", error.message);
    cr_assert_eq(taken.calls, 1);
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}

/* ---- symbolic shapes ---- */

Test(callback, dynamic_request_needs_a_dynamic_hook)
{
    struct script script = {.deliveries = 1};
    struct taken taken;
    aoticache_error error;
    cr_assert_eq(compile(&script, false, true, &taken, &error), AOTICACHE_UNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "exact shapes only"), "%s", error.message);
    cr_assert_eq(script.compiles, 0);
    aoticache_hook *hook = make_hook(&script, true);
    cr_assert(aoticache_hook_is_dynamic(hook));
    aoticache_hook_free(hook);
    hook = make_hook(&script, false);
    cr_assert_not(aoticache_hook_is_dynamic(hook));
    aoticache_hook_free(hook);
    cr_assert_not(aoticache_hook_is_dynamic(NULL));
}

Test(callback, guard_is_there_exactly_where_it_was_asked_for)
{
    struct script script = {.deliveries = 1, .guard = "float32[s0, s1]; s0=2.., s1=2.."};
    struct taken taken;
    aoticache_error error;
    cr_assert_eq(compile(&script, true, true, &taken, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_str_eq(taken.guard, script.guard);
    cr_assert_eq(compile(&script, true, false, &taken, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_not_null(strstr(error.message, "the library has a guard"), "%s", error.message);
    script.guard = NULL;
    cr_assert_eq(compile(&script, true, true, &taken, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_not_null(strstr(error.message, "the library has no guard"), "%s", error.message);
    cr_assert_eq(taken.calls, 0);
}

Test(callback, guard_must_be_one_of_these_tensors)
{
    static const char *const wrong[][2] = {
        {"float32[s0", "position"}, {"", "0 tensors"}, {"float32[s0], float32[s0]", "2 tensors"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct script script = {.deliveries = 1, .guard = wrong[i][0]};
        struct taken taken;
        aoticache_error error;
        cr_assert_eq(compile(&script, true, true, &taken, &error), AOTICACHE_COMPILE_FAILED);
        cr_assert_not_null(strstr(error.message, wrong[i][1]), "%s", error.message);
        cr_assert_eq(taken.calls, 0);
    }
}

/* ---- creating, and the environment ---- */

static aoticache_status set_flags(void *user, aoticache_request *request, aoticache_error *ret_error)
{
    return aoticache_request_set_environment(request, "flags", user, ret_error);
}

Test(callback, environment_is_the_producer_or_what_the_caller_says)
{
    struct script script = {.deliveries = 1};
    aoticache_hook *hook = make_hook(&script, false);
    aoticache_request *request = make_abs_request();
    cr_assert_eq(aoticache_hook_set_environment(hook, request, NULL), AOTICACHE_OK);
    cr_assert_str_eq(aoticache_request_get_environment(request, "framework"), "mycompiler 1.2");
    cr_assert_str_eq(aoticache_hook_get_info(hook).producer, "mycompiler 1.2");
    aoticache_request_free(request);
    aoticache_hook_free(hook);

    char flags[] = "-fast";
    aoticache_callback callback = AOTICACHE_CALLBACK_INIT;
    callback.user = flags;
    callback.compile = run_script;
    callback.set_environment = set_flags;
    callback.producer = "p";
    cr_assert_eq(aoticache_hook_create_callback(&callback, &hook, NULL), AOTICACHE_OK);
    request = make_abs_request();
    cr_assert_eq(aoticache_hook_set_environment(hook, request, NULL), AOTICACHE_OK);
    cr_assert_str_eq(aoticache_request_get_environment(request, "flags"), "-fast");
    cr_assert_null(aoticache_request_get_environment(request, "framework"));
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}

Test(callback, create_checks_what_it_is_given)
{
    aoticache_hook *hook = NULL;
    aoticache_callback callback = AOTICACHE_CALLBACK_INIT;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_hook_create_callback(NULL, &hook, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_hook_create_callback(&callback, NULL, NULL), AOTICACHE_INVALID);
    callback.producer = "p";
    cr_assert_eq(aoticache_hook_create_callback(&callback, &hook, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "compile is NULL"), "%s", error.message);
    callback.compile = run_script;
    callback.producer = NULL;
    cr_assert_eq(aoticache_hook_create_callback(&callback, &hook, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "producer"), "%s", error.message);
    callback.size = 0;
    cr_assert_eq(aoticache_hook_create_callback(&callback, &hook, &error), AOTICACHE_INVALID);
    cr_assert_null(hook);
}
