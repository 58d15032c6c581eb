/*
 * tools/stat/watch: repeatedly prints the text view, with the changes since the last time, fitted to the window: a short
 * page if the whole one is too high, and lines truncated at the edge. 'q' ends it.
 */
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/text/stream.h"
#include "tools/stat/stat.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

/* The sources of events: signals through a descriptor, and the keyboard, if this program may read it. */
struct listener {
    int signals; /* -1: none */
    bool has_keyboard;
    struct termios before;
};

#define PAGE_BYTES 65536

enum event { NOTHING, REDRAW, QUIT };

/* ---- the terminal ---- */

/* Reads keys one by one and without echo; Ctrl-C and similar keys keep their meaning. */
static void begin_raw_keyboard(struct listener *listener)
{
    struct termios raw;
    listener->has_keyboard =
        isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp() && tcgetattr(STDIN_FILENO, &listener->before) == 0;
    if (!listener->has_keyboard)
        return;
    raw = listener->before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    listener->has_keyboard = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

static void end_raw_keyboard(const struct listener *listener)
{
    if (listener->has_keyboard)
        tcsetattr(STDIN_FILENO, TCSANOW, &listener->before);
}

/* Blocks the signals: they wait until they are read, so that no view is interrupted and the keyboard is always restored. */
static void begin_listening(struct listener *listener)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGTSTP, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sigaddset(&set, numbers[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    /* The signal is ignored if a shell started the program in the background; an ignored signal is not delivered. */
    signal(SIGINT, SIG_DFL);
    signal(SIGWINCH, SIG_DFL);
    listener->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    begin_raw_keyboard(listener);
}

static void end_listening(struct listener *listener)
{
    end_raw_keyboard(listener);
    if (listener->signals >= 0)
        close(listener->signals);
}

/* Handles Ctrl-Z: restores the terminal for the shell. */
static void suspend(struct listener *listener)
{
    end_raw_keyboard(listener);
    raise(SIGSTOP);
    begin_raw_keyboard(listener);
}

static enum event hear_signal(struct listener *listener)
{
    struct signalfd_siginfo heard;
    if (read(listener->signals, &heard, sizeof heard) != (ssize_t)sizeof heard)
        return NOTHING;
    if (heard.ssi_signo == SIGTSTP)
        suspend(listener);
    return heard.ssi_signo == SIGWINCH || heard.ssi_signo == SIGTSTP ? REDRAW : QUIT;
}

/* Reads a key; any other key refreshes the numbers. */
static enum event hear_key(struct listener *listener)
{
    char keys[64];
    const ssize_t count = read(STDIN_FILENO, keys, sizeof keys);
    if (count <= 0)
        listener->has_keyboard = false; /* the terminal is gone */
    for (ssize_t i = 0; i < count; i++)
        if (keys[i] == 'q' || keys[i] == 'Q')
            return QUIT;
    return count > 0 ? REDRAW : NOTHING;
}

static enum event listen_for(struct listener *listener, double seconds)
{
    const uint64_t end = aoticache_monotonic_ns() + (uint64_t)(seconds * 1e9);
    enum event event = NOTHING;
    for (uint64_t now; event == NOTHING && (now = aoticache_monotonic_ns()) < end;) {
        struct pollfd heard[] = {{.fd = listener->signals, .events = POLLIN},
                                 {.fd = listener->has_keyboard ? STDIN_FILENO : -1, .events = POLLIN}};
        if (poll(heard, 2, (int)((end - now + 999999) / 1000000)) <= 0)
            continue;
        if (heard[0].revents != 0)
            event = hear_signal(listener);
        if (event == NOTHING && heard[1].revents != 0)
            event = hear_key(listener);
    }
    return event;
}

/* ---- the page ---- */

/* The changes between two views; the counters are those of the first. */
struct since {
    aoticache_counters counters;
    double seconds; /* 0: this is the first view */
};

static void print_recent(const stat_view *view, const struct since *since)
{
    const aoticache_counters *before = &since->counters, *now = &view->statistics.counters;
    const aoticache_counters recent = {.hits = now->hits - before->hits, .misses = now->misses - before->misses};
    char rate[AOTICACHE_CLI_UNIT_BYTES] = "";
    if (since->seconds <= 0) {
        printf("every %.3g s; q quits\n", view->request->watch_seconds);
        return;
    }
    if (recent.hits + recent.misses > 0)
        snprintf(rate, sizeof rate, ", %.1f %% of them hits", 100 * stat_hit_rate(&recent));
    printf("last %.3g s: %.1f lookups/s%s, %" PRIu64 " compiles, %" PRIu64 " compile failures, %" PRIu64 " evicted\n",
           since->seconds, (double)(recent.hits + recent.misses) / since->seconds, rate,
           now->compiles - before->compiles, now->compile_failures - before->compile_failures,
           now->evicted - before->evicted);
}

/* Returns the output of a print function as text; the caller frees it with free(). NULL if memory is short. */
static char *render_page(const stat_view *view, const struct since *since, void (*print)(const stat_view *view))
{
    char *text = NULL;
    size_t size = 0;
    FILE *output = stdout;
    FILE *page = aoticache_text_stream_open(&text, &size);
    if (page == NULL)
        return NULL;
    stdout = page; /* the print functions write there */
    print(view);
    putchar('\n');
    print_recent(view, since);
    stdout = output;
    if (fclose(page) == 0)
        return text;
    free(text);
    return NULL;
}

static size_t count_lines(const char *text)
{
    size_t count = 0;
    for (; *text != '\0'; text++)
        count += *text == '\n';
    return count;
}

/* Prints one line, truncated to `width` columns (0: not truncated); the terminal's sequences take none. Returns the number
 * of bytes of the line. */
static size_t print_line(const char *line, size_t width)
{
    const size_t length = strcspn(line, "\n");
    size_t columns = 0;
    for (size_t i = 0; i < length; i++) {
        if (line[i] == '\033') {
            const size_t sequence = strcspn(line + i, "m") + 1;
            printf("%.*s", (int)sequence, line + i);
            i += sequence - 1;
            continue;
        }
        columns += ((unsigned char)line[i] & 0xc0) != 0x80;
        if (width == 0 || columns <= width)
            putchar(line[i]);
    }
    return length + (line[length] == '\n');
}

/* Prints over the previous page line by line, so that nothing flickers; each line is cleared before it is written, because a
 * cursor at the window's edge is on its last letter. There is no newline at the end, which would scroll. Lines that do not
 * fit are left out at the end, except the last line. */
static void print_page(const char *text, size_t width, size_t height)
{
    const size_t all = count_lines(text);
    const size_t left_out = height > 0 && all > height ? all - height : 0;
    fputs("\033[H", stdout);
    for (size_t line = 0; line < all; line++) {
        const bool is_left_out = line + 1 < all && line + 1 + left_out >= all;
        if (!is_left_out)
            printf("%s%s", line > 0 ? "\n" : "", line + 1 < all ? "\033[K" : "\033[J");
        text += is_left_out ? strcspn(text, "\n") + 1 : print_line(text, width);
    }
}

static void redraw(const stat_view *view, const struct since *since, bool can_place)
{
    const size_t width = aoticache_cli_terminal_width(), height = aoticache_cli_terminal_height();
    cleanup_free char *text = render_page(view, since, stat_print_all);
    if (can_place && height > 0 && text != NULL && count_lines(text) > height) {
        free(text);
        text = render_page(view, since, stat_print_short);
    }
    if (text != NULL && can_place)
        print_page(text, width, height);
    else if (text != NULL)
        printf("\n%s", text);
    fflush(stdout);
}

int stat_watch(stat_view *view)
{
    const char *terminal = getenv("TERM");
    const bool can_place = terminal != NULL && strcmp(terminal, "dumb") != 0;
    struct listener listener = {.signals = -1};
    struct since since = {.seconds = 0};
    uint64_t read_ns = 0;
    int result;
    begin_listening(&listener);
    setvbuf(stdout, NULL, _IOFBF, PAGE_BYTES); /* buffers a page, not a line */
    if (can_place)
        fputs("\033[H\033[2J", stdout);
    while ((result = stat_read(view)) == AOTICACHE_CLI_EXIT_OK) {
        const uint64_t now = aoticache_monotonic_ns();
        since.seconds = read_ns != 0 ? (double)(now - read_ns) / 1e9 : 0;
        redraw(view, &since, can_place);
        if (aoticache_cli_output_failed() || listen_for(&listener, view->request->watch_seconds) == QUIT)
            break;
        since.counters = view->statistics.counters;
        read_ns = now;
        stat_view_free(view);
    }
    end_listening(&listener);
    putchar('\n');
    return result;
}
