/*
 * tools/aoticache/inspect/loaded: starts the process in which a library is loaded (child.c), reads its results, ends it if
 * it takes too long, and describes how it died. Its output is controlled by the library, and therefore untrusted: sizes are
 * limited, and it is parsed before it is used.
 */
#include "base/clock.h"
#include "base/cleanup.h"
#include "tools/aoticache/inspect/inspect_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The results name every constant; the largest models have some ten thousand. */
#define ANSWER_MAX_BYTES ((size_t)64 << 20)
/* The end of its standard error is kept. */
#define MESSAGE_BYTES 512

typedef struct child {
    pid_t pid;
    int result, messages; /* -1: closed */
    char *answer;
    size_t answer_size, answer_room;
    char message[MESSAGE_BYTES + 1];
    size_t message_size;
    bool timed_out, too_long;
    bool lingered; /* closed its end, but kept running */
} child;

/* ---- starting ---- */

/*
 * Does only what is safe between fork and exec. Descriptors are moved out of the way first, because they could have each
 * other's numbers. The child gets its own process group, so that programs it starts end with it. Crashes write no core file,
 * because a crash is an expected result.
 */
_Noreturn static void become_child(char **arguments, int library, int result, int messages)
{
    const struct rlimit no_core = {0, 0};
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setrlimit(RLIMIT_CORE, &no_core);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    library = fcntl(library, F_DUPFD_CLOEXEC, 10);
    result = fcntl(result, F_DUPFD_CLOEXEC, 10);
    messages = fcntl(messages, F_DUPFD_CLOEXEC, 10);
    if (nothing >= 0 && library >= 0 && result >= 0 && messages >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
        dup2(messages, STDOUT_FILENO) >= 0 && dup2(messages, STDERR_FILENO) >= 0 &&
        dup2(library, AOTICACHE_INSPECT_LIBRARY_FD) >= 0 && dup2(result, AOTICACHE_INSPECT_RESULT_FD) >= 0)
        execv("/proc/self/exe", arguments);
    _exit(127);
}

static int start_child(const aoticache_inspected *library, child *ret_child)
{
    int result[2] = {-1, -1}, messages[2] = {-1, -1};
    char *arguments[] = {(char *)(uintptr_t)"aoticache",
                         (char *)(uintptr_t)AOTICACHE_INSPECT_CHILD_WORD,
                         (char *)(uintptr_t)library->name,
                         (char *)(uintptr_t)library->device,
                         (char *)(uintptr_t)(library->directory != NULL ? library->directory : ""),
                         NULL};
    int saved = 0;
    if (pipe2(result, O_CLOEXEC) != 0 || pipe2(messages, O_CLOEXEC) != 0) {
        saved = errno;
    } else {
        fflush(NULL);
        ret_child->pid = fork();
        saved = ret_child->pid < 0 ? errno : 0;
        if (ret_child->pid == 0)
            become_child(arguments, library->fd, result[1], messages[1]);
    }
    for (int i = 0; i < 2; i++) {
        int *ends = i == 0 ? result : messages;
        if (ends[1] >= 0)
            close(ends[1]);
        if (saved != 0 && ends[0] >= 0)
            close(ends[0]);
    }
    if (saved == 0) {
        ret_child->result = result[0];
        ret_child->messages = messages[0];
        setpgid(ret_child->pid, ret_child->pid); /* in both processes, because either may be first */
    }
    return saved;
}

/* ---- listening ---- */

static void close_end(int *fd)
{
    close(*fd);
    *fd = -1;
}

static void read_answer(child *from)
{
    if (from->answer_size == from->answer_room) {
        from->answer_room = from->answer_room > 0 ? from->answer_room * 2 : 65536;
        from->answer = aoticache_cli_resize(from->answer, from->answer_room, 1);
    }
    ssize_t got = read(from->result, from->answer + from->answer_size, from->answer_room - from->answer_size);
    if (got > 0)
        from->answer_size += (size_t)got;
    else if (got == 0 || errno != EINTR)
        close_end(&from->result);
    if (from->answer_size > ANSWER_MAX_BYTES) {
        from->too_long = true;
        close_end(&from->result);
    }
}

static void read_message(child *from)
{
    char bytes[MESSAGE_BYTES];
    ssize_t got = read(from->messages, bytes, sizeof bytes);
    if (got == 0 || (got < 0 && errno != EINTR))
        close_end(&from->messages);
    if (got <= 0)
        return;
    size_t kept = from->message_size, room = MESSAGE_BYTES - (size_t)got;
    if (kept > room) {
        memmove(from->message, from->message + kept - room, room);
        kept = room;
    }
    memcpy(from->message + kept, bytes, (size_t)got);
    from->message_size = kept + (size_t)got;
    from->message[from->message_size] = '\0';
}

/* Reads until the results' pipe is closed, or the time is over. Standard error is read first. */
static void read_until_closed(child *to, uint64_t deadline_ns)
{
    while (to->result >= 0) {
        uint64_t now = aoticache_monotonic_ns();
        if (now >= deadline_ns) {
            to->timed_out = true;
            return;
        }
        uint64_t left_ms = (deadline_ns - now) / 1000000 + 1;
        struct pollfd fds[2] = {{.fd = to->messages, .events = POLLIN}, {.fd = to->result, .events = POLLIN}};
        if (poll(fds, 2, left_ms < 60000 ? (int)left_ms : 60000) <= 0)
            continue;
        if (fds[0].revents != 0)
            read_message(to);
        else if (fds[1].revents != 0)
            read_answer(to);
    }
}

/* Ends the whole group in any case; a process that is already dead keeps the status of its own death. */
static int end_child(child *which)
{
    int status = 0;
    siginfo_t about;
    /* It has closed the pipe, so it is about to end; if it keeps running it gets half a second. */
    which->lingered = !which->timed_out && !which->too_long;
    for (int i = 0; i < 50 && which->lingered; i++) {
        about.si_pid = 0;
        if (waitid(P_PID, (id_t)which->pid, &about, WEXITED | WNOHANG | WNOWAIT) != 0 || about.si_pid != 0)
            which->lingered = false;
        else
            poll(NULL, 0, 10);
    }
    kill(-which->pid, SIGKILL);
    while (waitpid(which->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    for (struct pollfd fd; which->messages >= 0;) {
        fd = (struct pollfd){.fd = which->messages, .events = POLLIN};
        if (poll(&fd, 1, 0) <= 0)
            close_end(&which->messages);
        else
            read_message(which);
    }
    if (which->result >= 0)
        close_end(&which->result);
    return status;
}

/* ---- interpretation ---- */

typedef struct signal_words {
    int number;
    const char *name, *meaning, *hint;
} signal_words;

static const signal_words signals[] = {
    {SIGILL, "SIGILL", "illegal instruction", ": built for another CPU?"},
    {SIGSEGV, "SIGSEGV", "invalid memory access", ""},
    {SIGBUS, "SIGBUS", "access after the end of a file, or misaligned", ": is the file whole?"},
    {SIGFPE, "SIGFPE", "invalid arithmetic", ""},
    {SIGABRT, "SIGABRT", "it aborted", ""},
    {SIGKILL, "SIGKILL", "killed", ": was there too little memory?"},
    {SIGTRAP, "SIGTRAP", "a trap in its code", ""},
    {SIGSYS, "SIGSYS", "a system call that is not permitted", ""},
};

/* Returns the step in progress, according to the last letter before the results. */
static const char *failed_step(const child *from)
{
    const char *end = from->answer_size > 0 ? memchr(from->answer, '\n', from->answer_size) : NULL;
    size_t steps = end != NULL ? (size_t)(end - from->answer) : from->answer_size;
    switch (steps > 0 ? from->answer[steps - 1] : 'L') {
    case 'C':
        return "making a container failed";
    case 'Q':
        return "asking for its tensors failed";
    default:
        return "loading it failed";
    }
}

static char *describe_death(const child *from, int status, uint64_t timeout_ns)
{
    char text[AOTICACHE_CLI_UNIT_BYTES];
    const char *step = failed_step(from);
    if (from->timed_out)
        return aoticache_cli_text("%s: no response within %s; it was ended (--timeout allows more)", step,
                                  aoticache_cli_format_duration(timeout_ns, text));
    if (from->too_long)
        return aoticache_cli_text("%s: its response has more than %s", step,
                                  aoticache_cli_format_bytes(ANSWER_MAX_BYTES, text));
    if (from->lingered)
        return aoticache_cli_text("%s: the process closed its output but kept running; it was killed", step);
    if (WIFEXITED(status))
        return aoticache_cli_text("%s: its process ended with status %d and no response", step, WEXITSTATUS(status));
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (signals[i].number == WTERMSIG(status))
            return aoticache_cli_text("%s: killed by %s (%s)%s", step, signals[i].name, signals[i].meaning,
                                      signals[i].hint);
    return aoticache_cli_text("%s: killed by signal %d", step, WTERMSIG(status));
}

/* Reports the end of its standard error, from the beginning of a line if there are several lines. */
static json_t *death_to_json(child *from, int status, uint64_t timeout_ns)
{
    cleanup_free char *death = describe_death(from, status, timeout_ns);
    char *words = from->message;
    while (from->message_size > 0 && strchr("\r\n", words[from->message_size - 1]) != NULL)
        words[--from->message_size] = '\0';
    char *line = from->message_size == MESSAGE_BYTES ? strchr(words, '\n') : NULL;
    if (line != NULL)
        words = line + 1;
    if (words[0] == '\0' || from->timed_out)
        return aoticache_cli_json_text(death);
    for (char *at = words; *at != '\0'; at++)
        if (*at == '\n')
            *at = ' ';
    cleanup_free char *all = aoticache_cli_text("%s; its output: %s", death, words);
    return aoticache_cli_json_text(all);
}

/* Returns the results, including reported errors; NULL if they cannot be parsed. */
static json_t *parse_answer(const child *from)
{
    const char *begin = from->answer_size > 0 ? memchr(from->answer, '\n', from->answer_size) : NULL;
    if (begin == NULL || from->timed_out || from->too_long)
        return NULL;
    size_t size = from->answer_size - (size_t)(begin - from->answer);
    json_t *answer = json_loadb(begin, size, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(answer) && json_is_boolean(json_object_get(answer, "ok")))
        return answer;
    json_decref(answer);
    return NULL;
}

static json_t *loaded_to_json(child *from, int status, const aoticache_inspected *library, uint64_t timeout_ns)
{
    json_t *answer = parse_answer(from), *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "ok", answer != NULL ? json_incref(json_object_get(answer, "ok")) : json_false());
    aoticache_cli_json_set(object, "problem", answer != NULL ? json_null() : death_to_json(from, status, timeout_ns));
    aoticache_cli_json_set(object, "device", aoticache_cli_json_text(library->device));
    if (answer != NULL && json_object_update(object, answer) != 0)
        aoticache_cli_json_set(object, "problem", aoticache_cli_json_text("out of memory"));
    json_decref(answer);
    return object;
}

json_t *aoticache_inspect_loaded(const aoticache_inspection *inspection, const aoticache_inspected *library)
{
    child process = {.result = -1, .messages = -1};
    int failed = start_child(library, &process);
    if (failed != 0) {
        json_t *object = aoticache_cli_json_object();
        cleanup_free char *text = aoticache_cli_text("cannot start a process to load it: %s", strerror(failed));
        aoticache_cli_json_set(object, "ok", json_false());
        aoticache_cli_json_set(object, "problem", aoticache_cli_json_text(text));
        return object;
    }
    read_until_closed(&process, aoticache_monotonic_ns() + inspection->timeout_ns);
    int status = end_child(&process);
    json_t *object = loaded_to_json(&process, status, library, inspection->timeout_ns);
    free(process.answer);
    return object;
}
