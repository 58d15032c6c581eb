/*
 * eager/compile/process: communicates with a started program, with deadlines; and ends it. Starting is in
 * spawn.c.
 */
#include "base/clock.h"
#include "eager/compile/process.h"
#include "base/array.h"
#include "base/cleanup.h"
#include "base/threads.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

/*
 * A wait lasts at most this long before the child itself is checked. Normally its end shows immediately, as the end of its
 * output, but not if a grandchild has inherited that.
 */
#define LOOK_MS 100
#define MAX_SIGNALS 1000 /* signals that may interrupt one read */
/* The wait after SIGKILL is limited: a child that is stuck in the kernel (a dead network disk) must not stop the host. */
#define REAP_LIMIT_NS (2 * UINT64_C(1000000000))

/* ---- its end ---- */

/* Checks whether it has exited, but does not reap it: until then no other process can get its or its group's id. */
static bool notice_exit(aoticache_process *process)
{
    if (process->pid == 0 || process->ended)
        return true;
    siginfo_t how = {0};
    int result;
    do
        result = waitid(P_PID, (id_t)process->pid, &how, WEXITED | WNOHANG | WNOWAIT);
    while (result != 0 && errno == EINTR);
    if (result == 0 && how.si_pid == 0)
        return false;
    process->ended = true;
    if (result == 0) {
        process->how_code = how.si_code;
        process->how_status = how.si_status;
    } else {
        /* ECHILD: the host ignores SIGCHLD or has waited for any child. The id may belong to another process by now. */
        process->pid = 0;
    }
    return true;
}

static void pause_ns(long nanoseconds)
{
    struct timespec pause = {.tv_nsec = nanoseconds};
    nanosleep(&pause, NULL);
}

/* Waits for the child to exit; false when the deadline comes first. */
static bool wait_exit(aoticache_process *process, uint64_t deadline_ns)
{
    for (long pause = 50000; !notice_exit(process); pause = pause < 10000000 ? 2 * pause : pause) {
        if (aoticache_monotonic_ns() >= deadline_ns)
            return false;
        pause_ns(pause);
    }
    return true;
}

/* Saves the beginning before the tail drops it for the first time; the tail still starts with it. */
static void save_message_head(aoticache_process *process, const char *bytes, size_t size)
{
    const size_t limit = AOTICACHE_PROCESS_MESSAGE_BYTES, room = AOTICACHE_PROCESS_HEAD_BYTES;
    if (process->head != NULL || process->said > limit || process->said + size <= limit)
        return;
    process->head = malloc(room);
    if (process->head == NULL)
        return;
    size_t from_tail = process->tail_size < room ? process->tail_size : room;
    memcpy(process->head, process->tail, from_tail);
    /* `bytes` has the rest: said + size exceeds the limit, and the limit exceeds the space in `head`. */
    memcpy(process->head + from_tail, bytes, room - from_tail);
}

static void save_message(aoticache_process *process, const char *bytes, size_t size)
{
    const size_t limit = AOTICACHE_PROCESS_MESSAGE_BYTES;
    if (process->tail == NULL) {
        process->tail = malloc(limit + 1);
        if (process->tail == NULL)
            return; /* the output is useful, but nothing depends on it */
    }
    save_message_head(process, bytes, size);
    process->said += size;
    if (size > limit) {
        bytes += size - limit;
        size = limit;
    }
    if (process->tail_size + size > limit) {
        size_t drop = process->tail_size + size - limit;
        memmove(process->tail, process->tail + drop, process->tail_size - drop);
        process->tail_size -= drop;
    }
    memcpy(process->tail + process->tail_size, bytes, size);
    process->tail_size += size;
    process->tail[process->tail_size] = '\0';
}

/* Reads its available standard error; bounded, so that endless output cannot block us. */
static void read_messages(aoticache_process *process)
{
    char buffer[8192];
    for (int round = 0; round < 16 && process->messages >= 0; round++) {
        ssize_t got = read(process->messages, buffer, sizeof buffer);
        if (got > 0) {
            save_message(process, buffer, (size_t)got);
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            cleanup_fd_release(&process->messages);
            process->messages = -1;
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

static void close_channels(aoticache_process *process)
{
    cleanup_fd_release(&process->output);
    cleanup_fd_release(&process->messages);
    process->output = process->messages = -1;
}

/*
 * Waits for the watcher, which is our child and has been sent SIGKILL. ECHILD: the host ignores SIGCHLD, or has waited for any
 * child.
 */
static void reap_watcher(aoticache_process *process)
{
    uint64_t deadline_ns = aoticache_monotonic_ns() + REAP_LIMIT_NS;
    while (process->watcher != 0) {
        pid_t got = waitpid(process->watcher, NULL, WNOHANG);
        if (got > 0 || (got < 0 && errno != EINTR) || aoticache_monotonic_ns() >= deadline_ns)
            process->watcher = 0;
        else
            pause_ns(200000);
    }
}

void aoticache_process_end(aoticache_process *process)
{
    int saved = errno;
    notice_exit(process);
    /* A group's id is not reused as long as its leader exists, even if that is a zombie. */
    pid_t group = process->watcher != 0 ? process->watcher : process->pid;
    if (group != 0)
        kill(-group, SIGKILL);
    if (process->pid != 0 && !process->ended)
        wait_exit(process, aoticache_monotonic_ns() + REAP_LIMIT_NS);
    read_messages(process);
    reap_watcher(process);
    if (process->pid != 0 && process->ended)
        while (waitpid(process->pid, NULL, WNOHANG) < 0 && errno == EINTR)
            ;
    process->pid = 0;
    close_channels(process);
    errno = saved;
}

void aoticache_process_free(aoticache_process *process)
{
    aoticache_process_end(process);
    free(process->bytes);
    free(process->tail);
    free(process->head);
    *process = (aoticache_process)AOTICACHE_PROCESS_INIT;
}

void aoticache_process_forget(aoticache_process *process)
{
    close_channels(process);
    process->pid = process->watcher = 0;
}

/* ---- reading and sending ---- */

/* Reserves space for `more` bytes and a terminator. */
static bool make_room(aoticache_process *process, size_t more)
{
    return AOTICACHE_ARRAY_RESERVE(process->bytes, process->capacity, process->size + more + 1);
}

/* Returns whether the host has cancelled all compiles, and sets errno then. */
static bool is_cancelled(void)
{
    if (!aoticache_compiles_are_cancelled())
        return false;
    errno = ECANCELED;
    return true;
}

/* Waits until the descriptors are ready; 0 when time is up, -1 with errno. */
static int wait_ready(aoticache_process *process, short events, uint64_t deadline_ns)
{
    if (is_cancelled())
        return -1;
    uint64_t now = aoticache_monotonic_ns();
    if (now >= deadline_ns)
        return 0;
    uint64_t left_ms = (deadline_ns - now) / 1000000 + 1;
    struct pollfd fds[2] = {{.fd = process->output, .events = events}, {.fd = process->messages, .events = POLLIN}};
    int result = poll(fds, 2, left_ms < LOOK_MS ? (int)left_ms : LOOK_MS);
    if (result < 0 && errno != EINTR)
        return -1;
    if (result > 0 && fds[1].revents != 0)
        read_messages(process);
    return 1;
}

/* Reads again after a signal: otherwise a signal would look like no more output and, from a dead program, like its end. */
static ssize_t read_uninterrupted(int fd, void *bytes, size_t size)
{
    ssize_t got = -1;
    for (int i = 0; i < MAX_SIGNALS; i++)
        if ((got = read(fd, bytes, size)) >= 0 || errno != EINTR)
            break;
    return got;
}

/* Reads once. DATA: something came or may still come. */
static aoticache_process_event read_some(aoticache_process *process, size_t max_bytes)
{
    const size_t step = 64 * 1024;
    if (process->size > max_bytes)
        return AOTICACHE_PROCESS_OVERFLOW;
    if (!make_room(process, step))
        return AOTICACHE_PROCESS_FAILURE;
    ssize_t got = read_uninterrupted(process->output, process->bytes + process->size, step);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return AOTICACHE_PROCESS_DATA;
    if (got < 0 && errno != ECONNRESET)
        return AOTICACHE_PROCESS_FAILURE;
    if (got <= 0)
        return AOTICACHE_PROCESS_END;
    process->size += (size_t)got;
    process->bytes[process->size] = '\0';
    return process->size > max_bytes ? AOTICACHE_PROCESS_OVERFLOW : AOTICACHE_PROCESS_DATA;
}

/* Reads once or waits. DATA: continue. A dead child whose output another process holds open counts as ended once it is read. */
static aoticache_process_event read_step(aoticache_process *process, size_t max_bytes, uint64_t deadline_ns)
{
    bool dead = notice_exit(process);
    size_t before = process->size;
    aoticache_process_event event = read_some(process, max_bytes);
    if (event != AOTICACHE_PROCESS_DATA || process->size != before)
        return event;
    if (dead)
        return AOTICACHE_PROCESS_END;
    int ready = wait_ready(process, POLLIN, deadline_ns);
    if (ready < 0)
        return AOTICACHE_PROCESS_FAILURE;
    return ready == 0 ? AOTICACHE_PROCESS_TIMEOUT : AOTICACHE_PROCESS_DATA;
}

aoticache_process_event aoticache_process_read_line(aoticache_process *process, size_t max_bytes, uint64_t deadline_ns)
{
    size_t looked = 0;
    for (;;) {
        if (process->size > looked && memchr(process->bytes + looked, '\n', process->size - looked) != NULL)
            return AOTICACHE_PROCESS_DATA;
        looked = process->size;
        aoticache_process_event event = read_step(process, max_bytes, deadline_ns);
        if (event != AOTICACHE_PROCESS_DATA)
            return event;
    }
}

aoticache_process_event aoticache_process_read_all(aoticache_process *process, size_t max_bytes, uint64_t deadline_ns)
{
    aoticache_process_event event;
    do
        event = read_step(process, max_bytes, deadline_ns);
    while (event == AOTICACHE_PROCESS_DATA);
    if (event != AOTICACHE_PROCESS_END)
        return event;
    while (!notice_exit(process)) {
        read_messages(process);
        uint64_t now = aoticache_monotonic_ns();
        uint64_t look = now + (uint64_t)LOOK_MS * 1000000;
        if (is_cancelled())
            return AOTICACHE_PROCESS_FAILURE;
        if (now >= deadline_ns)
            return AOTICACHE_PROCESS_TIMEOUT;
        wait_exit(process, look < deadline_ns ? look : deadline_ns);
    }
    read_messages(process);
    return AOTICACHE_PROCESS_END;
}

aoticache_process_event aoticache_process_send(aoticache_process *process, const void *bytes, size_t size,
                                               uint64_t deadline_ns)
{
    for (size_t sent = 0; sent < size;) {
        ssize_t done = send(process->output, (const char *)bytes + sent, size - sent, MSG_NOSIGNAL);
        if (done >= 0) {
            sent += (size_t)done;
            continue;
        }
        if (errno == EPIPE || errno == ECONNRESET)
            return AOTICACHE_PROCESS_END;
        if (errno != EAGAIN && errno != EINTR)
            return AOTICACHE_PROCESS_FAILURE;
        int ready = wait_ready(process, POLLOUT, deadline_ns);
        if (ready < 0)
            return AOTICACHE_PROCESS_FAILURE;
        if (ready == 0)
            return AOTICACHE_PROCESS_TIMEOUT;
    }
    return AOTICACHE_PROCESS_DATA;
}

bool aoticache_process_is_restless(aoticache_process *process)
{
    if (process->pid == 0 || process->size > 0 || notice_exit(process))
        return true;
    read_messages(process);
    struct pollfd fd = {.fd = process->output, .events = POLLIN};
    return poll(&fd, 1, 0) != 0;
}

void aoticache_process_take(aoticache_process *process, size_t size)
{
    process->size -= size;
    memmove(process->bytes, process->bytes + size, process->size + 1);
}

/* ---- describing the end ---- */

static const char *signal_name(int signal_number)
{
    switch (signal_number) {
    case SIGKILL:
        return "SIGKILL";
    case SIGSEGV:
        return "SIGSEGV";
    case SIGABRT:
        return "SIGABRT";
    case SIGILL:
        return "SIGILL";
    case SIGBUS:
        return "SIGBUS";
    case SIGFPE:
        return "SIGFPE";
    case SIGTERM:
        return "SIGTERM";
    case SIGINT:
        return "SIGINT";
    case SIGHUP:
        return "SIGHUP";
    default:
        return "see kill -l";
    }
}

void aoticache_process_describe_end(const aoticache_process *process, char *ret_text, size_t size)
{
    if (!process->ended || process->how_code == 0)
        snprintf(ret_text, size, "ended");
    else if (process->how_code == CLD_EXITED)
        snprintf(ret_text, size, "exited with status %d", process->how_status);
    else
        snprintf(ret_text, size, "was killed by signal %d (%s)", process->how_status, signal_name(process->how_status));
}

const char *aoticache_process_last_words(aoticache_process *process, size_t room)
{
    while (process->tail_size > 0 && process->tail[process->tail_size - 1] == '\n')
        process->tail[--process->tail_size] = '\0';
    size_t end = process->tail_size;
    if (end == 0 || room == 0)
        return "";
    if (end < room)
        return process->tail;
    const char *start = process->tail + (end - room + 1);
    const char *line = strchr(start, '\n');
    return line != NULL && line[1] != '\0' ? line + 1 : start;
}

/* Finds the cut after the beginning: at the end of a line, if there is one. */
static size_t cut_head(const char *head, size_t size)
{
    const char *line = memrchr(head, '\n', size);
    return line != NULL ? (size_t)(line - head) + 1 : size;
}

static size_t cut_tail(const char *tail, size_t size)
{
    const char *line = memchr(tail, '\n', size);
    return line != NULL && line + 1 < tail + size ? (size_t)(line - tail) + 1 : 0;
}

char *aoticache_process_output(aoticache_process *process)
{
    const size_t limit = AOTICACHE_PROCESS_MESSAGE_BYTES, mark_room = 80;
    char *text = NULL;
    if (process->messages >= 0)
        read_messages(process);
    if (process->tail_size == 0 || (text = malloc(limit + 1)) == NULL)
        return NULL;
    size_t size = process->tail_size;
    if (process->said <= limit || process->head == NULL) {
        memcpy(text, process->tail, size);
    } else {
        const size_t tail_room = limit - AOTICACHE_PROCESS_HEAD_BYTES - mark_room;
        const char *tail = process->tail + (process->tail_size - tail_room);
        size_t skipped = cut_tail(tail, tail_room), head = cut_head(process->head, AOTICACHE_PROCESS_HEAD_BYTES);
        uint64_t missing = process->said - head - (tail_room - skipped);
        memcpy(text, process->head, head);
        int mark = snprintf(text + head, mark_room, "[... %llu bytes are left out ...]\n", (unsigned long long)missing);
        memcpy(text + head + mark, tail + skipped, tail_room - skipped);
        size = head + (size_t)mark + tail_room - skipped;
    }
    for (char *zero = memchr(text, '\0', size); zero != NULL; zero = memchr(text, '\0', size))
        *zero = '?';
    text[size] = '\0';
    return text;
}

void aoticache_process_drop_words(aoticache_process *process)
{
    read_messages(process);
    free(process->head);
    process->head = NULL;
    process->tail_size = 0;
    process->said = 0;
    if (process->tail != NULL)
        process->tail[0] = '\0';
}
