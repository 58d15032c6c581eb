/*
 * cache/tools/cli_message: what goes to standard error: errors, notes, the library's log, progress on a terminal.
 */
#include "base/cleanup.h"
#include "cache/tools/cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int aoticache_cli_exit_of_status(aoticache_status status)
{
    switch (status) {
    case AOTICACHE_OK:
        return AOTICACHE_CLI_EXIT_OK;
    case AOTICACHE_NOT_FOUND:
        return AOTICACHE_CLI_EXIT_NOT_FOUND;
    case AOTICACHE_COMPILE_FAILED:
    case AOTICACHE_UNSUPPORTED:
        return AOTICACHE_CLI_EXIT_COMPILE;
    default:
        return AOTICACHE_CLI_EXIT_FAILURE;
    }
}

static void say(const aoticache_cli *cli, const char *kind, const char *message, const char *end)
{
    cleanup_free char *escaped = aoticache_cli_escape_lines(message);
    size_t length = strlen(escaped);
    while (length > 0 && escaped[length - 1] == '\n')
        escaped[--length] = '\0';
    /* Results that were printed before come before, also where both streams are one file. */
    fflush(stdout);
    fprintf(stderr, "%s: %s%s%s\n", cli->program->name, kind, escaped, end);
}

__attribute__((format(printf, 3, 0)))
static void say_formatted(const aoticache_cli *cli, const char *kind, const char *format, va_list arguments)
{
    cleanup_free char *message = NULL;
    if (vasprintf(&message, format, arguments) >= 0)
        say(cli, kind, message, "");
    else
        message = NULL;
}

int aoticache_cli_usage_error(const aoticache_cli *cli, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    cleanup_free char *message = NULL;
    int length = vasprintf(&message, format, arguments);
    va_end(arguments);
    cleanup_free char *hint = aoticache_cli_text("; see '%s'", cli->program->help_hint);
    if (length >= 0)
        say(cli, "", message, hint);
    else
        message = NULL;
    return AOTICACHE_CLI_EXIT_USAGE;
}

int aoticache_cli_error(const aoticache_cli *cli, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_formatted(cli, "", format, arguments);
    va_end(arguments);
    return AOTICACHE_CLI_EXIT_FAILURE;
}

int aoticache_cli_fail(const aoticache_cli *cli, aoticache_status status, const aoticache_error *error)
{
    const char *message = error != NULL && error->message[0] != '\0' ? error->message : aoticache_status_text(status);
    say(cli, "", message, "");
    return aoticache_cli_exit_of_status(status);
}

void aoticache_cli_note(const aoticache_cli *cli, const char *format, ...)
{
    if (cli->quiet)
        return;
    va_list arguments;
    va_start(arguments, format);
    say_formatted(cli, "", format, arguments);
    va_end(arguments);
}

static void log_line(void *user, aoticache_log_level level, const char *line)
{
    static const char *const kinds[] = {"error: ", "warning: ", "", "debug: "};
    const aoticache_cli *cli = user;
    if (cli->quiet || (level > AOTICACHE_LOG_WARNING && !cli->verbose))
        return;
    say(cli, level <= AOTICACHE_LOG_DEBUG ? kinds[level] : "", line, "");
}

aoticache_logger aoticache_cli_logger(const aoticache_cli *cli)
{
    return (aoticache_logger){.log = log_line, .user = (void *)(uintptr_t)cli};
}

static bool is_terminal(const aoticache_cli_progress *progress)
{
    const char *terminal = getenv("TERM");
    return !progress->cli->quiet && isatty(STDERR_FILENO) && (terminal == NULL || strcmp(terminal, "dumb") != 0);
}

void aoticache_cli_progress_show_seconds(aoticache_cli_progress *progress, uint64_t seconds)
{
    if (!is_terminal(progress))
        return;
    progress->visible = true;
    fprintf(stderr, "\r\033[K%s, %llu s", progress->what, (unsigned long long)seconds);
    fflush(stderr);
}

void aoticache_cli_progress_show(aoticache_cli_progress *progress, uint64_t done, uint64_t all)
{
    if (!is_terminal(progress))
        return;
    uint64_t now = aoticache_monotonic_ns();
    if (progress->visible && now - progress->shown_ns < 100000000)
        return;
    progress->shown_ns = now;
    progress->visible = true;
    fprintf(stderr, "\r\033[K%llu/%llu %s", (unsigned long long)done, (unsigned long long)all, progress->what);
    fflush(stderr);
}

void aoticache_cli_progress_clear(aoticache_cli_progress *progress)
{
    if (progress->visible)
        fputs("\r\033[K", stderr);
    progress->visible = false;
}
