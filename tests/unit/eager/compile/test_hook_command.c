/* Unit tests of eager/compile/command.c, and of what all hooks share (eager/compile/hook.c). */
#include "base/clock.h"
#include "tests/unit/fixtures/eager_fixture.h"

TestSuite(hook_command, .init = fixture_begin, .fini = fixture_end, .timeout = 300);

static aoticache_hook *make_hook(const char *script, const char *const *arguments, uint32_t timeout_seconds)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *hook;
    aoticache_error error = {.message = ""};
    options.program = write_script("hook", script);
    options.arguments = arguments;
    options.timeout_seconds = timeout_seconds;
    cr_assert_eq(aoticache_hook_create_command(&options, &hook, &error), AOTICACHE_OK, "%s", error.message);
    return hook;
}

/* Runs a script as a hook for aten::abs in a fresh directory. */
static aoticache_status compile_with(const char *script, uint32_t timeout_seconds, struct delivery *delivery,
                                     aoticache_error *error)
{
    static int round;
    char name[32];
    snprintf(name, sizeof name, "work%d", round++);
    const char *directory = make_directory(name);
    aoticache_hook *hook = make_hook(script, NULL, timeout_seconds);
    aoticache_request *request = make_abs_request();
    *delivery = (struct delivery){0};
    *error = (aoticache_error){.message = ""};
    aoticache_status status = aoticache_hook_compile(hook, request, directory, deliver, delivery, error);
    aoticache_request_free(request);
    aoticache_hook_free(hook);
    return status;
}

#define SHELL "#!/bin/sh\nread -r request\n"
#define DIRECTORY "directory=$(echo \"$request\" | sed 's/.*\"directory\":\"\\([^\"]*\\)\".*/\\1/')\n"
#define KERNEL SHELL DIRECTORY FIXTURE_MAKE_KERNEL
#define GOOD "{\"id\":1,\"ok\":true,\"files\":[{\"name\":\"kernel.so\",\"path\":\"kernel.so\"}],\"requirements\":[]}"

Test(hook_command, answer_is_delivered_once)
{
    struct delivery delivery;
    aoticache_error error;
    cr_assert_eq(compile_with(KERNEL "echo compiling >&2\necho '" GOOD "'\n", 0, &delivery, &error), AOTICACHE_OK, "%s",
                 error.message);
    cr_assert_eq(delivery.calls, 1);
    cr_assert_eq(delivery.file_count, 1);
    cr_assert_str_eq(delivery.name, "kernel.so");
    cr_assert_eq(memcmp(read_text(delivery.path), "\177ELF", 4), 0);
    cr_assert_str_eq(delivery.producer, "command hook");
    cr_assert_str_eq(delivery.requirements, "");
    cr_assert_gt(delivery.compile_ns, 0);
}

Test(hook_command, request_is_on_its_standard_input)
{
    struct delivery delivery;
    aoticache_error error;
    char script[PATH_MAX + 256];
    snprintf(script, sizeof script, KERNEL "printf '%%s' \"$request\" > %s/seen\necho '" GOOD "'\n", test_directory);
    cr_assert_eq(compile_with(script, 0, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    const char *seen = read_text(in_directory("seen"));
    cr_assert_not_null(strstr(seen, "\"operator\":\"aten::abs\""), "%s", seen);
    cr_assert_not_null(strstr(seen, "\"sizes\":[2,3]"), "%s", seen);
}

/* Errors of a hook, and a word that the message must have. */
static const char *const wrong_scripts[][2] = {
    {SHELL "exit 0\n", "without a response"},
    {SHELL "echo it broke >&2\nexit 3\n", "exited with status 3"},
    {SHELL "echo it broke >&2\nexit 3\n", "it broke"},
    {SHELL "kill -9 $$\n", "signal 9"},
    {SHELL "echo garbage\n", "not valid JSON"},
    {KERNEL "echo '" GOOD "'; echo '" GOOD "'\n", "more than one line"},
    {KERNEL "echo progress; echo '" GOOD "'\n", "more than one line"},
    {KERNEL "echo '" GOOD "'; exit 1\n", "exited with status 1"},
    {KERNEL "echo '" GOOD "' | sed 's/\"id\":1/\"id\":2/'\n", "expected 1"},
    {KERNEL "ln -s kernel.so \"$directory/l\"; echo '" GOOD "' | sed 's/path\":\"kernel.so/path\":\"l/'\n",
     "symbolic link"},
    {SHELL "while :; do echo 0123456789012345678901234567890123456789; done\n", "more than 1048576 bytes"},
    {SHELL "echo '{\"id\":1,\"ok\":false,\"error\":\"no register\"}'\n", "no register"},
};

Test(hook_command, wrong_behaviour_fails_and_names_the_hook)
{
    for (size_t i = 0; i < sizeof wrong_scripts / sizeof wrong_scripts[0]; i++) {
        struct delivery delivery;
        aoticache_error error;
        cr_assert_eq(compile_with(wrong_scripts[i][0], 0, &delivery, &error), AOTICACHE_COMPILE_FAILED, "%s",
                     wrong_scripts[i][0]);
        cr_assert_eq(error.status, AOTICACHE_COMPILE_FAILED);
        cr_assert_eq(delivery.calls, 0);
        cr_assert_not_null(strstr(error.message, wrong_scripts[i][1]), "%s: %s", wrong_scripts[i][0], error.message);
        cr_assert_not_null(strstr(error.message, "/hook"), "%s", error.message);
    }
}

Test(hook_command, unsupported_is_no_failure)
{
    struct delivery delivery;
    aoticache_error error;
    cr_assert_eq(compile_with(SHELL "echo '{\"id\":1,\"ok\":false,\"unsupported\":true,\"error\":\"not abs\"}'\n", 0,
                              &delivery, &error),
                 AOTICACHE_UNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "not abs"));
}

Test(hook_command, timeout_kills_it_and_its_children)
{
    struct delivery delivery;
    aoticache_error error;
    char script[PATH_MAX + 128];
    snprintf(script, sizeof script, SHELL "sleep 300 &\necho $! > %s/pid\nwait\n", test_directory);
    uint64_t start = aoticache_monotonic_ns();
    cr_assert_eq(compile_with(script, 3, &delivery, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_lt(aoticache_monotonic_ns() - start, UINT64_C(60000000000));
    cr_assert_not_null(strstr(error.message, "longer than 3 s"), "%s", error.message);
    cr_assert(is_gone_soon(atoi(read_text(in_directory("pid")))));
}

static const char *version_of(const char *script, const char *const *arguments)
{
    static char versions[4][128];
    static unsigned next;
    char *version = versions[next++ % 4];
    aoticache_hook *hook = make_hook(script, arguments, 0);
    aoticache_request *request = make_abs_request();
    cr_assert_eq(aoticache_hook_set_environment(hook, request, NULL), AOTICACHE_OK);
    cr_assert_str_eq(aoticache_request_get_environment(request, "framework"), "command");
    snprintf(version, sizeof versions[0], "%s", aoticache_request_get_environment(request, "framework_version"));
    aoticache_request_free(request);
    aoticache_hook_free(hook);
    return version;
}

Test(hook_command, environment_is_of_the_program_and_its_arguments)
{
    const char *const one[] = {"a", "bc", NULL}, *const other[] = {"ab", "c", NULL};
    const char *plain = version_of("#!/bin/sh\n", NULL);
    cr_assert_eq(strlen(plain), 64);
    cr_assert_str_eq(plain, version_of("#!/bin/sh\n", NULL));
    cr_assert_str_neq(plain, version_of("#!/bin/sh\n#\n", NULL));
    cr_assert_str_neq(plain, version_of("#!/bin/sh\n", one));
    cr_assert_str_neq(version_of("#!/bin/sh\n", one), version_of("#!/bin/sh\n", other));
}

Test(hook_command, arguments_are_passed)
{
    const char *const arguments[] = {"one word", "two", NULL};
    char script[PATH_MAX + 128];
    snprintf(script, sizeof script, "#!/bin/sh\nprintf '%%s|' \"$@\" > %s/seen\n", test_directory);
    aoticache_hook *hook = make_hook(script, arguments, 0);
    aoticache_request *request = make_abs_request();
    struct delivery delivery = {0};
    cr_assert_eq(aoticache_hook_compile(hook, request, make_directory("work"), deliver, &delivery, NULL),
                 AOTICACHE_COMPILE_FAILED);
    cr_assert_str_eq(read_text(in_directory("seen")), "one word|two|");
    aoticache_request_free(request);
    aoticache_hook_free(hook);
}

Test(hook_command, bad_options_are_refused)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *hook = NULL;
    aoticache_error error;
    cr_assert_eq(aoticache_hook_create_command(NULL, &hook, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_hook_create_command(&options, &hook, NULL), AOTICACHE_INVALID);
    options.program = in_directory("hook");
    cr_assert_eq(aoticache_hook_create_command(&options, &hook, &error), AOTICACHE_NOT_FOUND);
    cr_assert_not_null(strstr(error.message, options.program));
    options.program = "/bin/sh";
    options.cpu_features = "warp_drive";
    cr_assert_eq(aoticache_hook_create_command(&options, &hook, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "warp_drive"), "%s", error.message);
    options = (aoticache_hook_options){.size = 1, .program = "/bin/sh"};
    cr_assert_eq(aoticache_hook_create_command(&options, &hook, NULL), AOTICACHE_INVALID);
    cr_assert_eq(aoticache_hook_compile(NULL, NULL, NULL, NULL, NULL, NULL), AOTICACHE_INVALID);
    cr_assert_null(hook);
    aoticache_hook_free(NULL);
}

/* Extracts the script (docs/hooks.md command-hook) from its page, which is found relative to the tests. */
static bool read_documented_script(char *ret_script, size_t size)
{
    char path[PATH_MAX];
    const char *sources = getenv("AOTICACHE_SOURCE");
    snprintf(path, sizeof path, "%s/docs/hooks.md", sources != NULL ? sources : ".");
    FILE *file = fopen(path, "r");
    char line[1024];
    size_t used = 0;
    bool inside = false;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strcmp(line, "```\n") == 0)
            inside = false;
        if (inside && used + strlen(line) < size)
            used += (size_t)snprintf(ret_script + used, size - used, "%s", line);
        if (strcmp(line, "<!-- example: command-hook -->\n") == 0)
            inside = fgets(line, sizeof line, file) != NULL; /* the fence */
    }
    if (file != NULL)
        fclose(file);
    return used > 0;
}

Test(hook_command, documented_script_works)
{
    char script[16384];
    if (!read_documented_script(script, sizeof script))
        cr_skip_test("docs/hooks.md is not here: run from the sources' directory, or set AOTICACHE_SOURCE");
    if (system("command -v cc >/dev/null") != 0)
        cr_skip_test("there is no cc");
    struct delivery delivery;
    aoticache_error error;
    cr_assert_eq(compile_with(script, 0, &delivery, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_eq(delivery.calls, 1);
    cr_assert_eq(memcmp(read_text(delivery.path), "\177ELF", 4), 0);
}
