/*
 * Unit tests of the programs that hooks run (eager/compile/spawn.c, eager/compile/process.c, eager/compile/hook.c): their
 * memory limit, environment, the output of a compiler that succeeds; and their end when the host is killed.
 */
#include "base/clock.h"
#include "eager/compile/process.h"
#include "tests/unit/fixtures/emulator.h"
#include "tests/unit/fixtures/eager_fixture.h"

#include <pthread.h>

TestSuite(hook_processes, .init = fixture_begin, .fini = fixture_end, .timeout = 300);

#define SHELL "#!/bin/sh\nread -r request\n"
#define DIRECTORY "directory=$(echo \"$request\" | sed 's/.*\"directory\":\"\\([^\"]*\\)\".*/\\1/')\n"
#define KERNEL SHELL DIRECTORY FIXTURE_MAKE_KERNEL
#define GOOD \
    "echo '{\"id\":1,\"ok\":true,\"files\":[{\"name\":\"kernel.so\",\"path\":\"kernel.so\"}],\"requirements\":[]}'\n"

static char output[128 * 1024];

static aoticache_status take(void *user, const aoticache_product *product)
{
    (void)user;
    snprintf(output, sizeof output, "%s", product->output != NULL ? product->output : "(none)");
    return AOTICACHE_OK;
}

static aoticache_status compile_with(const char *script, const aoticache_hook_options *limits, aoticache_error *error)
{
    static int round;
    char name[32];
    aoticache_hook_options options = *limits;
    aoticache_hook *hook;
    snprintf(name, sizeof name, "work%d", round++);
    *error = (aoticache_error){.message = ""};
    options.program = write_script("hook", script);
    cr_assert_eq(aoticache_hook_create_command(&options, &hook, error), AOTICACHE_OK, "%s", error->message);
    aoticache_request *request = make_abs_request();
    aoticache_status status = aoticache_hook_compile(hook, request, make_directory(name), take, NULL, error);
    aoticache_request_free(request);
    aoticache_hook_free(hook);
    return status;
}

/* ---- output ---- */

Test(hook_processes, output_of_a_success_is_in_the_product)
{
    const aoticache_hook_options none = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_error error;
    cr_assert_eq(compile_with(KERNEL "echo warning: hot >&2\n" GOOD, &none, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_str_eq(output, "warning: hot\n");
    cr_assert_eq(compile_with(KERNEL GOOD, &none, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_str_eq(output, "(none)");
}

Test(hook_processes, long_output_keeps_its_beginning_and_its_end)
{
    const aoticache_hook_options none = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_error error;
    cr_assert_eq(compile_with(KERNEL "seq 1 40000 >&2\n" GOOD, &none, &error), AOTICACHE_OK, "%s", error.message);
    size_t size = strlen(output);
    cr_assert(size > 60 * 1024 && size <= 64 * 1024, "%zu", size);
    cr_assert_eq(strncmp(output, "1\n2\n3\n", 6), 0);
    cr_assert_str_eq(output + size - 12, "39999\n40000\n");
    unsigned long long missing = 0;
    const char *mark = strstr(output, "\n[... ");
    cr_assert_not_null(mark);
    cr_assert_eq(sscanf(mark, "\n[... %llu bytes are left out ...]\n", &missing), 1);
    const char *rest = strchr(mark + 1, '\n') + 1;
    /* seq writes 228894 bytes. */
    cr_assert_eq((size_t)(mark + 1 - output) + missing + strlen(rest), 228894);
    cr_assert_eq(rest[0] >= '1' && rest[0] <= '9' && rest[5] == '\n', true, "%.20s", rest);
}

/* ---- environment ---- */

Test(hook_processes, environment_is_all_that_the_program_gets)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_error error;
    setenv("OF_THE_HOST", "seen", 1);
    cr_assert_eq(compile_with(KERNEL "env >&2\n" GOOD, &options, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_not_null(strstr(output, "OF_THE_HOST=seen"), "%s", output);
    options.environment = (const char *const[]){"PATH=/usr/bin:/bin", "OWN=1 2", NULL};
    cr_assert_eq(compile_with(KERNEL "env >&2\n" GOOD, &options, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_null(strstr(output, "OF_THE_HOST"), "%s", output);
    cr_assert_not_null(strstr(output, "OWN=1 2\n"), "%s", output);
    options.memory_limit_bytes = 1 << 30; /* another way of starting */
    cr_assert_eq(compile_with(KERNEL "env >&2\n" GOOD, &options, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_null(strstr(output, "OF_THE_HOST"), "%s", output);
    cr_assert_not_null(strstr(output, "OWN=1 2\n"), "%s", output);
}

Test(hook_processes, environment_without_names_is_refused)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *hook = NULL;
    aoticache_error error = {.message = ""};
    options.program = "/bin/true";
    options.environment = (const char *const[]){"GOOD=", "BAD", NULL};
    cr_assert_eq(aoticache_hook_create_command(&options, &hook, &error), AOTICACHE_INVALID);
    cr_assert_not_null(strstr(error.message, "environment[1] is \"BAD\""), "%s", error.message);
    cr_assert_null(hook);
}

/* ---- memory ---- */

Test(hook_processes, memory_limit_is_of_the_program_and_its_children)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_error error;
    options.memory_limit_bytes = UINT64_C(300) << 20;
    cr_assert_eq(compile_with(KERNEL "sh -c 'ulimit -S -d; ulimit -H -d' >&2\n" GOOD, &options, &error), AOTICACHE_OK,
                 "%s", error.message);
    cr_assert_str_eq(output, "307200\n307200\n");
}

/* awk allocates memory until it may not have more. */
#define GREEDY \
    "awk 'BEGIN { s = \"0123456789abcdef\"; for (i = 0; i < 24; i++) s = s s; print length(s) }' >&2 || exit 9\n"

Test(hook_processes, death_of_the_memory_limit_says_so)
{
    SKIP_UNDER_EMULATOR(EMULATOR_KEEPS_LIMITS);
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_error error;
    cr_assert_eq(compile_with(KERNEL GREEDY GOOD, &options, &error), AOTICACHE_OK, "%s", error.message);
    options.memory_limit_bytes = UINT64_C(64) << 20;
    cr_assert_eq(compile_with(KERNEL GREEDY GOOD, &options, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_not_null(strstr(error.message, "memory limit of 64 MiB"), "%s", error.message);
    cr_assert_not_null(strstr(error.message, "status 9"), "%s", error.message);
    /* The message of another failure does not mention it. */
    cr_assert_eq(compile_with(KERNEL "echo syntax error >&2; exit 1\n", &options, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_null(strstr(error.message, "memory limit"), "%s", error.message);
}

Test(hook_processes, program_that_is_not_there_is_told_under_a_limit_too)
{
    aoticache_process process = AOTICACHE_PROCESS_INIT;
    aoticache_error error = {.message = ""};
    const char *const arguments[] = {"none", NULL};
    aoticache_process_options options = {
        .program = in_directory("none"), .arguments = arguments, .memory_limit_bytes = 1 << 28};
    uint64_t deadline_ns = aoticache_monotonic_ns() + UINT64_C(300000000000);
    cr_assert_eq(aoticache_process_run(&options, 1000, deadline_ns, &process, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_not_null(strstr(error.message, options.program), "%s", error.message);
    aoticache_process_free(&process);
}

/* ---- the end of the host ---- */

static bool wait_for(const char *path)
{
    for (int i = 0; i < 6000 && access(path, F_OK) != 0; i++)
        sleep_ms(10);
    sleep_ms(50);
    return access(path, F_OK) == 0;
}

/* Starts a process that compiles with a hook until it is killed. */
static pid_t start_host(aoticache_hook *hook, const char *directory)
{
    pid_t host = fork();
    if (host != 0)
        return host;
    aoticache_error error;
    aoticache_request *request = make_abs_request();
    aoticache_hook_compile(hook, request, directory, take, NULL, &error);
    _exit(1);
}

/* Kills the host while a program of the hook has written its number to `pids`; all numbers there must end. */
static void check_killed_host(aoticache_hook *hook, bool reaped)
{
    pid_t host = start_host(hook, make_directory("work"));
    const char *path = in_directory("pids");
    cr_assert(wait_for(path));
    int first = 0, second = 0;
    cr_assert_eq(sscanf(read_text(path), "%d %d", &first, &second), 2);
    cr_assert(is_running(first) && is_running(second));
    kill(host, SIGKILL);
    if (reaped)
        cr_assert_eq(waitpid(host, NULL, 0), host);
    cr_assert(is_gone_soon(first), "the program outlives its host");
    cr_assert(is_gone_soon(second), "a child of the program outlives its host");
    if (!reaped)
        waitpid(host, NULL, 0);
}

static aoticache_hook *make_endless_command(void)
{
    char script[PATH_MAX + 128];
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *hook;
    aoticache_error error = {.message = ""};
    snprintf(script, sizeof script, SHELL "sleep 300 & echo $$ $! > %s/p; mv %s/p %s/pids; wait\n", test_directory,
             test_directory, test_directory);
    options.program = write_script("hook", script);
    cr_assert_eq(aoticache_hook_create_command(&options, &hook, &error), AOTICACHE_OK, "%s", error.message);
    return hook;
}

Test(hook_processes, command_ends_when_its_host_is_killed)
{
    aoticache_hook *hook = make_endless_command();
    check_killed_host(hook, true);
    aoticache_hook_free(hook);
}

/* No process waits for it: it stays in the process table. */
Test(hook_processes, command_ends_when_its_host_is_killed_and_not_waited_for)
{
    aoticache_hook *hook = make_endless_command();
    check_killed_host(hook, false);
    aoticache_hook_free(hook);
}

/* The compiler is a script that starts another process, as cc starts cc1. */
Test(hook_processes, compiler_of_c_ends_when_its_host_is_killed)
{
    char script[PATH_MAX * 3 + 256];
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_hook *hook;
    aoticache_error error = {.message = ""};
    snprintf(script, sizeof script,
             "#!/bin/sh\ncase \"$*\" in *-dM*) echo '#define __VERSION__ \"1\"'; exit 0 ;; esac\n"
             "sleep 300 & echo $$ $! > %s/p; mv %s/p %s/pids; wait\n",
             test_directory, test_directory, test_directory);
    options.program = write_script("cc", script);
    cr_assert_eq(aoticache_hook_create_c(&options, &hook, &error), AOTICACHE_OK, "%s", error.message);
    check_killed_host(hook, true);
    aoticache_hook_free(hook);
}

/* The watcher has ended when the compile is over, and none is left as a zombie. */
Test(hook_processes, nothing_is_left_of_a_compile)
{
    const aoticache_hook_options none = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_error error;
    for (int i = 0; i < 3; i++)
        cr_assert_eq(compile_with(KERNEL "exit 0\n", &none, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_eq(waitpid(-1, NULL, WNOHANG), -1);
    cr_assert_eq(errno, ECHILD);
}

/* A host that ignores SIGCHLD gets no status; the watcher must end nevertheless. */
Test(hook_processes, host_that_ignores_its_children_is_served)
{
    const aoticache_hook_options none = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_error error;
    signal(SIGCHLD, SIG_IGN);
    cr_assert_eq(compile_with(KERNEL "cut -d' ' -f5 /proc/$$/stat >&2\n" GOOD, &none, &error), AOTICACHE_OK, "%s",
                 error.message);
    pid_t group = (pid_t)atoi(output);
    cr_assert_gt(group, 1, "%s", output);
    for (int i = 0; i < 1500 && kill(-group, 0) == 0; i++)
        sleep_ms(20);
    cr_assert_neq(kill(-group, 0), 0);
    signal(SIGCHLD, SIG_DFL);
}

/* ---- the host ends ---- */

static void *cancel_soon(void *begun_ns)
{
    usleep(300000);
    *(uint64_t *)begun_ns = aoticache_monotonic_ns();
    aoticache_compiles_cancel();
    return NULL;
}

Test(hook_processes, cancelled_compile_ends_at_once_and_no_other_begins)
{
    const aoticache_hook_options none = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_error error;
    pthread_t thread;
    uint64_t begun_ns = 0;
    cr_assert_eq(pthread_create(&thread, NULL, cancel_soon, &begun_ns), 0);
    cr_expect_eq(compile_with(SHELL "exec sleep 200\n", &none, &error), AOTICACHE_IO, "%s", error.message);
    cr_expect_not_null(strstr(error.message, "was killed compiling"), "%s", error.message);
    pthread_join(thread, NULL);
    cr_expect_lt(aoticache_monotonic_ns() - begun_ns, UINT64_C(100000000000), "it was not waited for");
    cr_expect_eq(compile_with(KERNEL GOOD, &none, &error), AOTICACHE_IO);
    cr_expect_not_null(strstr(error.message, "cannot start program"), "%s", error.message);
}
