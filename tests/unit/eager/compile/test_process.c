/* Unit tests of eager/compile/process.c and eager/compile/spawn.c. */
#include "base/clock.h"
#include "eager/compile/process.h"
#include "tests/unit/fixtures/emulator.h"
#include "tests/unit/fixtures/eager_fixture.h"

#include <fcntl.h>

TestSuite(process, .init = fixture_begin, .fini = fixture_end, .timeout = 900);

#define SECOND UINT64_C(1000000000)

static uint64_t after(double seconds)
{
    return aoticache_monotonic_ns() + (uint64_t)(seconds * 1e9);
}

static aoticache_process start_shell(const char *script, bool conversation, const char *input)
{
    const char *const arguments[] = {"sh", "-c", script, NULL};
    aoticache_process_options options = {.program = "/bin/sh",
                                         .arguments = arguments,
                                         .conversation = conversation,
                                         .input = input,
                                         .input_size = input != NULL ? strlen(input) : 0};
    aoticache_process process = AOTICACHE_PROCESS_INIT;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_process_start(&options, &process, &error), AOTICACHE_OK, "%s", error.message);
    return process;
}

Test(process, output_and_messages_are_read_to_the_end)
{
    aoticache_process process = start_shell("cat; echo words >&2; exit 3", false, "line one\nline two\n");
    cr_assert_eq(aoticache_process_read_all(&process, 1000, after(300)), AOTICACHE_PROCESS_END);
    aoticache_process_end(&process);
    cr_assert_str_eq(process.bytes, "line one\nline two\n");
    cr_assert_str_eq(aoticache_process_last_words(&process, 100), "words");
    char how[64];
    aoticache_process_describe_end(&process, how, sizeof how);
    cr_assert_str_eq(how, "exited with status 3");
    aoticache_process_free(&process);
}

Test(process, input_can_be_opened_by_name)
{
    aoticache_process process = start_shell("cat /dev/stdin", false, "again");
    cr_assert_eq(aoticache_process_read_all(&process, 1000, after(300)), AOTICACHE_PROCESS_END);
    cr_assert_str_eq(process.bytes, "again");
    aoticache_process_free(&process);
}

Test(process, conversation_goes_line_by_line)
{
    aoticache_process process = start_shell("while read -r line; do echo \"heard $line\"; done", true, NULL);
    for (int round = 0; round < 3; round++) {
        cr_assert_eq(aoticache_process_send(&process, "word\n", 5, after(300)), AOTICACHE_PROCESS_DATA);
        cr_assert_eq(aoticache_process_read_line(&process, 1000, after(300)), AOTICACHE_PROCESS_DATA);
        cr_assert_eq(process.size, strlen("heard word\n"));
        cr_assert_eq(memcmp(process.bytes, "heard word\n", process.size), 0);
        aoticache_process_take(&process, process.size);
        cr_assert_not(aoticache_process_is_restless(&process));
    }
    aoticache_process_free(&process);
}

Test(process, output_of_a_conversation_can_be_dropped)
{
    aoticache_process process = start_shell("echo first >&2; read -r line; echo second >&2; echo done", true, NULL);
    for (int i = 0; i < 6000 && process.tail_size == 0; i++) {
        aoticache_process_is_restless(&process);
        sleep_ms(10);
    }
    char *text = aoticache_process_output(&process);
    cr_assert_str_eq(text, "first\n");
    free(text);
    aoticache_process_drop_words(&process);
    cr_assert_null(aoticache_process_output(&process));
    cr_assert_eq(aoticache_process_send(&process, "go\n", 3, after(300)), AOTICACHE_PROCESS_DATA);
    cr_assert_eq(aoticache_process_read_line(&process, 1000, after(300)), AOTICACHE_PROCESS_DATA);
    text = aoticache_process_output(&process);
    cr_assert_str_eq(text, "second\n");
    free(text);
    aoticache_process_free(&process);
}

Test(process, zero_bytes_in_words_do_not_cut_the_output)
{
    aoticache_process process = start_shell("printf 'a\\0b\\n' >&2", false, NULL);
    cr_assert_eq(aoticache_process_read_all(&process, 1000, after(300)), AOTICACHE_PROCESS_END);
    char *text = aoticache_process_output(&process);
    cr_assert_str_eq(text, "a?b\n");
    free(text);
    aoticache_process_free(&process);
}

Test(process, sending_to_the_dead_raises_no_signal)
{
    aoticache_process process = start_shell("exec <&- >&-; sleep 30", true, NULL);
    static char much[1 << 20];
    aoticache_process_event event = AOTICACHE_PROCESS_DATA;
    for (int i = 0; i < 10 && event == AOTICACHE_PROCESS_DATA; i++)
        event = aoticache_process_send(&process, much, sizeof much, after(300));
    cr_assert_eq(event, AOTICACHE_PROCESS_END);
    aoticache_process_free(&process);
}

Test(process, timeout_kills_the_whole_group)
{
    char script[PATH_MAX + 128];
    snprintf(script, sizeof script, "trap '' TERM; sleep 300 & echo $! $$ > %s/pids; wait", test_directory);
    aoticache_process process = start_shell(script, false, NULL);
    for (int i = 0; i < 6000 && access(in_directory("pids"), F_OK) != 0; i++)
        sleep_ms(10);
    uint64_t start = aoticache_monotonic_ns();
    cr_assert_eq(aoticache_process_read_all(&process, 1000, after(1)), AOTICACHE_PROCESS_TIMEOUT);
    aoticache_process_end(&process);
    cr_assert_lt(aoticache_monotonic_ns() - start, 250 * SECOND);
    int child = 0, shell = 0;
    cr_assert_eq(sscanf(read_text(in_directory("pids")), "%d %d", &child, &shell), 2);
    cr_assert(is_gone_soon(child));
    cr_assert(is_gone_soon(shell));
    aoticache_process_free(&process);
}

Test(process, death_is_noticed_although_a_child_holds_the_output)
{
    aoticache_process process = start_shell("sleep 300 & exit 0", false, NULL);
    uint64_t start = aoticache_monotonic_ns();
    cr_assert_eq(aoticache_process_read_all(&process, 1000, after(300)), AOTICACHE_PROCESS_END);
    cr_assert_lt(aoticache_monotonic_ns() - start, 250 * SECOND);
    aoticache_process_free(&process);
}

Test(process, too_much_output_is_an_overflow)
{
    aoticache_process process = start_shell("while :; do echo 0123456789; done", false, NULL);
    cr_assert_eq(aoticache_process_read_all(&process, 100000, after(300)), AOTICACHE_PROCESS_OVERFLOW);
    aoticache_process_free(&process);
    process = start_shell("while :; do printf 0123456789; done", true, NULL);
    cr_assert_eq(aoticache_process_read_line(&process, 100000, after(300)), AOTICACHE_PROCESS_OVERFLOW);
    aoticache_process_free(&process);
}

Test(process, only_the_last_words_are_kept)
{
    aoticache_process process =
        start_shell("i=0; while [ $i -lt 20000 ]; do echo \"word $i\"; i=$((i+1)); done >&2", false, NULL);
    cr_assert_eq(aoticache_process_read_all(&process, 1000, after(300)), AOTICACHE_PROCESS_END);
    aoticache_process_end(&process);
    cr_assert_leq(process.tail_size, AOTICACHE_PROCESS_MESSAGE_BYTES);
    const char *words = aoticache_process_last_words(&process, 32);
    cr_assert_str_eq(words, "word 19998\nword 19999");
    aoticache_process_free(&process);
}

Test(process, child_gets_three_descriptors_and_none_of_the_hosts_signals)
{
    int inherited = open("/dev/null", O_RDONLY); /* without O_CLOEXEC */
    cr_assert_geq(inherited, 3);
    sigset_t blocked;
    sigfillset(&blocked);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    signal(SIGPIPE, SIG_IGN);
    aoticache_process process =
        start_shell("ls /proc/$$/fd; exec grep -E '^Sig(Blk|Ign)' /proc/self/status", false, NULL);
    cr_assert_eq(aoticache_process_read_all(&process, 10000, after(300)), AOTICACHE_PROCESS_END);
    char open_ones[64] = "";
    sscanf(process.bytes, "%63[0-9\n]", open_ones);
    /* The shell may have its own descriptor 10. */
    char name[16];
    snprintf(name, sizeof name, "\n%d\n", inherited);
    if (inherited < 10)
        cr_assert_null(strstr(open_ones, name), "%s", open_ones);
    cr_assert_not_null(strstr(process.bytes, "SigBlk:\t0000000000000000"), "%s",
                       process.bytes); /* a shell blocks no signals */
    const char *ignored = strstr(process.bytes, "SigIgn:\t");
    cr_assert_not_null(ignored, "%s", process.bytes);
    /* 32 and 33 are glibc's own, which posix_spawn leaves ignored. */
    cr_assert_eq(strtoull(ignored + 8, NULL, 16) & 0x7fffffff, 0, "%s", process.bytes);
    aoticache_process_free(&process);
    close(inherited);
}

/* SIGINT, SIGQUIT and SIGTSTP: until the child has its own group, the host's terminal sends them to it too. */
Test(process, signals_of_a_terminal_are_blocked_in_the_child)
{
    const char *const arguments[] = {"grep", "^SigBlk", "/proc/self/status", NULL};
    aoticache_process_options options = {.program = "/bin/grep", .arguments = arguments};
    aoticache_process process = AOTICACHE_PROCESS_INIT;
    cr_assert_eq(aoticache_process_run(&options, 100, after(300), &process, NULL), AOTICACHE_OK);
    cr_assert_str_eq(process.bytes, "SigBlk:\t0000000000080006\n");
    aoticache_process_free(&process);
}

Test(process, host_without_standard_descriptors_can_start_programs)
{
    pid_t child = fork();
    if (child == 0) {
        close(0);
        close(1);
        close(2);
        const char *const arguments[] = {"sh", "-c", "cat; echo err >&2", NULL};
        aoticache_process_options options = {
            .program = "/bin/sh", .arguments = arguments, .input = "in", .input_size = 2};
        aoticache_process process = AOTICACHE_PROCESS_INIT;
        bool fine = aoticache_process_run(&options, 100, after(300), &process, NULL) == AOTICACHE_OK &&
                    strcmp(process.bytes, "in") == 0 && strcmp(aoticache_process_last_words(&process, 100), "err") == 0;
        aoticache_process_free(&process);
        _exit(fine ? 0 : 1);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

Test(process, host_that_ignores_sigchld_is_served)
{
    signal(SIGCHLD, SIG_IGN);
    const char *const arguments[] = {"sh", "-c", "echo fine", NULL};
    aoticache_process_options options = {.program = "/bin/sh", .arguments = arguments};
    aoticache_process process = AOTICACHE_PROCESS_INIT;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_process_run(&options, 100, after(300), &process, &error), AOTICACHE_OK, "%s", error.message);
    cr_assert_str_eq(process.bytes, "fine\n");
    aoticache_process_free(&process);
    process = start_shell("sleep 300", false, NULL);
    pid_t pid = process.pid;
    cr_assert_eq(aoticache_process_read_all(&process, 100, after(0.2)), AOTICACHE_PROCESS_TIMEOUT);
    aoticache_process_free(&process);
    cr_assert(is_gone_soon(pid));
}

Test(process, children_of_the_host_are_left_alone)
{
    pid_t own = fork();
    if (own == 0)
        _exit(7);
    const char *const arguments[] = {"true", NULL};
    aoticache_process_options options = {.program = "/bin/true", .arguments = arguments};
    aoticache_process process = AOTICACHE_PROCESS_INIT;
    cr_assert_eq(aoticache_process_run(&options, 100, after(300), &process, NULL), AOTICACHE_OK);
    aoticache_process_free(&process);
    int status;
    cr_assert_eq(waitpid(own, &status, 0), own);
    cr_assert_eq(WEXITSTATUS(status), 7);
}

Test(process, run_reports_status_signal_and_words)
{
    aoticache_error error;
    const char *const fails[] = {"sh", "-c", "echo it broke >&2; exit 4", NULL};
    aoticache_process_options options = {.program = "/bin/sh", .arguments = fails};
    aoticache_process process = AOTICACHE_PROCESS_INIT;
    cr_assert_eq(aoticache_process_run(&options, 100, after(300), &process, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_str_eq(error.message, "/bin/sh exited with status 4:\nit broke");
    aoticache_process_free(&process);
    const char *const dies[] = {"sh", "-c", "kill -SEGV $$", NULL};
    options.arguments = dies;
    cr_assert_eq(aoticache_process_run(&options, 100, after(300), &process, &error), AOTICACHE_COMPILE_FAILED);
    cr_assert_str_eq(error.message, "/bin/sh was killed by signal 11 (SIGSEGV)");
    aoticache_process_free(&process);
}

Test(process, missing_program_is_not_started)
{
    SKIP_UNDER_EMULATOR(EMULATOR_HAS_NO_VFORK);
    const char *const arguments[] = {"none", NULL};
    aoticache_process_options options = {.program = in_directory("none"), .arguments = arguments};
    aoticache_process process = AOTICACHE_PROCESS_INIT;
    aoticache_error error;
    cr_assert_eq(aoticache_process_start(&options, &process, &error), AOTICACHE_IO);
    cr_assert_not_null(strstr(error.message, options.program));
    cr_assert_eq(process.pid, 0);
}

Test(program, find_looks_in_path_and_refuses_what_cannot_run, .init = fixture_begin, .fini = fixture_end)
{
    char path[PATH_MAX], *directories;
    aoticache_error error;
    cr_assert_eq(aoticache_program_find("sh", path, NULL), AOTICACHE_OK);
    cr_assert_eq(path[0], '/');
    setenv("PATH", test_directory, 1);
    cr_assert_eq(aoticache_program_find("sh", path, &error), AOTICACHE_NOT_FOUND);
    cr_assert_not_null(strstr(error.message, test_directory));
    write_file("plain", "", 0600);
    cr_assert_eq(aoticache_program_find("plain", path, NULL), AOTICACHE_NOT_FOUND);
    cr_assert_eq(aoticache_program_find(in_directory("plain"), path, NULL), AOTICACHE_DENIED);
    cr_assert_eq(aoticache_program_find(in_directory("none"), path, NULL), AOTICACHE_NOT_FOUND);
    cr_assert_eq(aoticache_program_find("", path, NULL), AOTICACHE_NOT_FOUND);
    write_script("mine", "#!/bin/sh\n");
    setenv("PATH", ":relative:", 1);
    cr_assert_eq(aoticache_program_find("mine", path, NULL), AOTICACHE_NOT_FOUND);
    /* A directory that cannot be searched is reported if the program is in no other. */
    cr_assert_eq(symlink(in_directory("loop"), in_directory("loop")), 0);
    cr_assert_gt(asprintf(&directories, "%s:%s", in_directory("loop"), test_directory), 0);
    setenv("PATH", directories, 1);
    cr_assert_eq(aoticache_program_find("mine", path, &error), AOTICACHE_OK);
    cr_assert_eq(aoticache_program_find("none", path, &error), AOTICACHE_DENIED, "%s", error.message);
    cr_assert_not_null(strstr(error.message, "every directory of PATH"), "%s", error.message);
    free(directories);
}

/* ---- where it runs ---- */

static void runs_in(const char *directory, uint64_t memory_limit_bytes, const char *expected)
{
    const char *const arguments[] = {"sh", "-c", "pwd -P", NULL};
    aoticache_process_options options = {
        .program = "/bin/sh", .arguments = arguments, .directory = directory, .memory_limit_bytes = memory_limit_bytes};
    aoticache_process process = AOTICACHE_PROCESS_INIT;
    aoticache_error error = {.message = ""};
    cr_assert_eq(aoticache_process_run(&options, 4096, after(300), &process, &error), AOTICACHE_OK, "%s",
                 error.message);
    process.bytes[strcspn(process.bytes, "\n")] = '\0';
    cr_assert_str_eq(process.bytes, expected);
    aoticache_process_free(&process);
}

Test(process, runs_in_the_directory_that_is_named_else_in_the_hosts)
{
    char own[PATH_MAX];
    cr_assert_not_null(realpath(test_directory, own));
    cr_assert_eq(chdir(test_directory), 0);
    for (int limited = 0; limited < 2; limited++) {
        runs_in(NULL, limited ? UINT64_C(1) << 30 : 0, own);
        runs_in(AOTICACHE_PROCESS_NEUTRAL_DIRECTORY, limited ? UINT64_C(1) << 30 : 0, "/");
    }
    cr_assert_eq(chdir("/"), 0);
}

Test(process, program_by_a_relative_path_is_found_as_an_absolute_one)
{
    char own[PATH_MAX], path[PATH_MAX], expected[PATH_MAX + 16];
    aoticache_error error = {.message = ""};
    write_script("tool", "#!/bin/sh\n");
    cr_assert_not_null(realpath(test_directory, own));
    cr_assert_eq(chdir(test_directory), 0);
    cr_assert_eq(aoticache_program_find("./tool", path, &error), AOTICACHE_OK, "%s", error.message);
    snprintf(expected, sizeof expected, "%s/./tool", own);
    cr_assert_str_eq(path, expected);
    snprintf(expected, sizeof expected, ":.:%s", in_directory("none"));
    setenv("PATH", expected, 1);
    cr_assert_eq(aoticache_program_find("tool", path, &error), AOTICACHE_NOT_FOUND);
    cr_assert_eq(chdir("/"), 0);
}
