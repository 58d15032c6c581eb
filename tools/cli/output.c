/*
 * tools/cli/output: prints to standard output: colours, fields, and checks that everything was written.
 */
#include "base/cleanup.h"
#include "tools/cli/cli.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool variable_is_set(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0';
}

static bool use_color(const aoticache_cli *cli)
{
    if (cli->color != AOTICACHE_CLI_COLOR_AUTO)
        return cli->color == AOTICACHE_CLI_COLOR_ALWAYS;
    const char *terminal = getenv("TERM");
    return !variable_is_set("NO_COLOR") && isatty(STDOUT_FILENO) && terminal != NULL && strcmp(terminal, "dumb") != 0;
}

const char *aoticache_cli_style_begin(const aoticache_cli *cli, aoticache_cli_style style)
{
    static const char *const sequences[] = {"\033[0m", "\033[1m", "\033[2m", "\033[32m", "\033[33m", "\033[31m"};
    return use_color(cli) ? sequences[style] : "";
}

/* Returns the number in an environment variable; 0 if it is not one. */
static size_t number_of(const char *name)
{
    const char *text = getenv(name);
    int64_t value;
    return text != NULL && aoticache_cli_parse_int(text, 1, 100000, &value) ? (size_t)value : 0;
}

static struct winsize terminal_size(void)
{
    struct winsize size = {.ws_col = 0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        size = (struct winsize){.ws_col = 0};
    return size;
}

size_t aoticache_cli_terminal_width(void)
{
    const size_t said = number_of("COLUMNS");
    if (!isatty(STDOUT_FILENO))
        return 0;
    return said != 0 ? said : terminal_size().ws_col;
}

size_t aoticache_cli_terminal_height(void)
{
    const size_t said = number_of("LINES");
    if (!isatty(STDOUT_FILENO))
        return 0;
    return said != 0 ? said : terminal_size().ws_row;
}

void aoticache_cli_print_field(const aoticache_cli *cli, const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    cleanup_free char *value = NULL;
    if (vasprintf(&value, format, arguments) < 0)
        value = NULL;
    va_end(arguments);
    cleanup_free char *escaped = aoticache_cli_escape(value != NULL ? value : "");
    printf("%s%-12s%s %s\n", aoticache_cli_style_begin(cli, AOTICACHE_CLI_DIM), name,
           aoticache_cli_style_begin(cli, AOTICACHE_CLI_PLAIN), escaped);
}

/* Returns whether the reader of standard output is gone. An earlier write may have failed for that: its errno is lost, so
 * the descriptor is checked. */
bool aoticache_cli_reader_is_gone(void)
{
    struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

/* Ends like a program that does not ignore the signal: silently. The exit status is for shells that ignore it. */
void aoticache_cli_end_by_broken_pipe(void)
{
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
    _exit(128 + SIGPIPE);
}

bool aoticache_cli_output_failed(void)
{
    return ferror(stdout) != 0;
}

int aoticache_cli_finish(const aoticache_cli *cli, int exit_code)
{
    errno = 0;
    bool failed = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !failed)
        return exit_code;
    const int error = errno;
    if (error == EPIPE || aoticache_cli_reader_is_gone())
        aoticache_cli_end_by_broken_pipe();
    aoticache_cli_error(cli, "cannot write to standard output: %s",
                        error != 0 ? strerror(error) : "an earlier write failed");
    return AOTICACHE_CLI_EXIT_FAILURE;
}
