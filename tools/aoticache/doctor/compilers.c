/*
 * tools/aoticache/doctor/compilers: checks what can compile here (a C compiler, a Python with PyTorch), and the library that
 * provides aoti_torch_* functions to compiled kernels.
 */
#include "base/cleanup.h"
#include "tools/aoticache/doctor/doctor_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>

#define OK AOTICACHE_VERDICT_OK
#define WARN AOTICACHE_VERDICT_WARN
#define FAIL AOTICACHE_VERDICT_FAIL

/* Returns the environment of a child: without the variables of a caller with other rights, as the library does for programs
 * that its hooks start. */
static char *const *child_environment(void)
{
    static char path[] = "PATH=/usr/local/bin:/usr/bin:/bin";
    static char *const clean[] = {path, NULL};
    return getauxval(AT_SECURE) != 0 ? clean : environ;
}

/* Starts `program --version` with its output in a pipe; returns 0, or an errno. */
static int start_version(const char *program, pid_t *ret_pid, int *ret_fd)
{
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) != 0)
        return errno;
    char *arguments[] = {(char *)(uintptr_t)program, (char *)(uintptr_t)"--version", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    int result = posix_spawn(ret_pid, program, &actions, NULL, arguments, child_environment());
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_fds[1]);
    if (result == 0)
        *ret_fd = pipe_fds[0];
    else
        close(pipe_fds[0]);
    return result;
}

/* Reads the first line that `program --version` prints; returns false if it cannot be run or fails. */
static bool read_version(const char *program, char *ret_line, size_t size)
{
    pid_t pid;
    int fd = -1;
    int result = start_version(program, &pid, &fd);
    if (result != 0)
        return false;
    size_t used = 0;
    char rest[512];
    for (;;) {
        bool room = used + 1 < size;
        ssize_t got = read(fd, room ? ret_line + used : rest, room ? size - 1 - used : sizeof rest);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += room ? (size_t)got : 0;
    }
    close(fd);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    ret_line[used] = '\0';
    ret_line[strcspn(ret_line, "\n")] = '\0';
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static const char *compiler_name(const aoticache_doctor *doctor)
{
    const char *variable = secure_getenv("AOTICACHE_CC");
    return doctor->cc != NULL ? doctor->cc : variable != NULL && variable[0] != '\0' ? variable : "cc";
}

static bool check_c(aoticache_doctor *doctor)
{
    static const char advice[] = "install a C compiler (Debian: apt install gcc), or set AOTICACHE_CC";
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_error error = {.message = ""};
    aoticache_hook *hook = NULL;
    char line[256] = "";
    options.program = doctor->cc;
    aoticache_status status = aoticache_hook_create_c(&options, &hook, &error);
    if (status != AOTICACHE_OK) {
        aoticache_doctor_report(doctor, WARN, "C compiler", advice, "%s",
                                error.message[0] != '\0' ? error.message : aoticache_status_text(status));
        return false;
    }
    bool works = read_version(aoticache_hook_get_info(hook).program, line, sizeof line);
    if (works)
        aoticache_doctor_report(doctor, OK, "C compiler", NULL, "%s (%s)", compiler_name(doctor), line);
    else
        aoticache_doctor_report(doctor, WARN, "C compiler", advice, "'%s --version' fails", compiler_name(doctor));
    aoticache_hook_free(hook);
    return works;
}

/* Returns the length of the first line. A program's own message may follow, in many lines: `run` and `compile` show it. */
static int first_line(const char *text)
{
    return (int)strcspn(text, "\n");
}

static bool check_pytorch(aoticache_doctor *doctor)
{
    aoticache_hook_options options = AOTICACHE_HOOK_OPTIONS_INIT;
    aoticache_error error = {.message = ""};
    aoticache_hook *hook = NULL;
    options.program = doctor->python;
    aoticache_status status = aoticache_hook_create_worker(&options, &hook, &error);
    const char *text = error.message[0] != '\0' ? error.message : aoticache_status_text(status);
    if (status == AOTICACHE_OK)
        aoticache_doctor_report(doctor, OK, "PyTorch", NULL, "%s", aoticache_hook_get_info(hook).producer);
    else
        aoticache_doctor_report(doctor, WARN, "PyTorch",
                                "pip install torch, set AOTICACHE_PYTHON to that Python; otherwise only C "
                                "kernels compile",
                                "%.*s", first_line(text), text);
    aoticache_hook_free(hook);
    return status == AOTICACHE_OK;
}

static void check_provider(aoticache_doctor *doctor)
{
    aoticache_error error = {.message = ""};
    const aoticache_torch *torch = NULL;
    aoticache_status status = aoticache_torch_get(&torch, &error);
    if (status != AOTICACHE_OK)
        aoticache_doctor_report(doctor, FAIL, "shim",
                                "install the library completely, or set AOTICACHE_HOME to where it is installed", "%s",
                                error.message[0] != '\0' ? error.message : aoticache_status_text(status));
    else
        aoticache_doctor_report(doctor, OK, torch->kind == AOTICACHE_TORCH_SHIM ? "shim" : "libtorch", NULL, "%s",
                                torch->path);
}

void aoticache_doctor_check_compilers(aoticache_doctor *doctor)
{
    bool c = check_c(doctor);
    bool pytorch = check_pytorch(doctor);
    if (!c && !pytorch)
        aoticache_doctor_report(doctor, FAIL, "compilers", "install one of the two",
                                "neither C nor PyTorch can compile here; only stored kernels can run");
    check_provider(doctor);
}
