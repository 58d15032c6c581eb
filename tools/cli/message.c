/*
 * tools/cli/message: prints to standard error (errors, notes, the library's log), and ends a program early. With --json each
 * message is an object on its own line, so that programs can parse standard error reliably; standard output contains only
 * the result, even if a part of it was printed before a failure.
 */
#include "base/cleanup.h"
#include "tools/cli/cli.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Returns the exit code for a failure of the library. */
static int exit_of_status(aoticache_status status)
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

struct message {
    const char *level;       /* "error", "warning", "note", "debug" */
    const char *prefix;      /* of the human-readable text */
    aoticache_status status; /* OK: not known */
    const char *hint;        /* command that shows help; NULL: none */
};

/* Returns whether --json was given, even after an error in the command line. */
static bool wants_json(const aoticache_cli *cli)
{
    bool is_asked = cli->json;
    for (int i = 1; !is_asked && i < cli->argc && strcmp(cli->argv[i], "--") != 0; i++)
        is_asked = strcmp(cli->argv[i], "--json") == 0;
    return is_asked;
}

static void print_json(const aoticache_cli *cli, const struct message *message, const char *text)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "level", aoticache_cli_json_text(message->level));
    aoticache_cli_json_set(object, "program", aoticache_cli_json_text(cli->program->name));
    aoticache_cli_json_set(object, "message", aoticache_cli_json_text(text));
    if (message->status != AOTICACHE_OK)
        aoticache_cli_json_set(object, "status", aoticache_cli_json_text(aoticache_status_name(message->status)));
    if (message->hint != NULL)
        aoticache_cli_json_set(object, "help", aoticache_cli_json_text(message->hint));
    cleanup_free char *line = json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(object);
    fprintf(stderr, "%s\n", line != NULL ? line : "null");
}

static void print_message(const aoticache_cli *cli, const struct message *message, const char *text)
{
    /* Earlier results must precede the message, even if both streams are the same file. */
    fflush(stdout);
    if (wants_json(cli)) {
        print_json(cli, message, text);
        return;
    }
    cleanup_free char *escaped = aoticache_cli_escape_lines(text);
    size_t length = strlen(escaped);
    while (length > 0 && escaped[length - 1] == '\n')
        escaped[--length] = '\0';
    const bool has_hint = message->hint != NULL;
    fprintf(stderr, "%s: %s%s%s%s%s\n", cli->program->name, message->prefix, escaped, has_hint ? "; see '" : "",
            has_hint ? message->hint : "", has_hint ? "'" : "");
}

__attribute__((format(printf, 3, 0))) static void print_formatted(const aoticache_cli *cli,
                                                                  const struct message *message, const char *format,
                                                                  va_list arguments)
{
    cleanup_free char *text = NULL;
    if (vasprintf(&text, format, arguments) >= 0)
        print_message(cli, message, text);
    else
        text = NULL;
}

int aoticache_cli_usage_error(const aoticache_cli *cli, const char *format, ...)
{
    const struct message message = {.level = "error", .prefix = "", .hint = cli->program->help_hint};
    va_list arguments;
    va_start(arguments, format);
    print_formatted(cli, &message, format, arguments);
    va_end(arguments);
    return AOTICACHE_CLI_EXIT_USAGE;
}

int aoticache_cli_error(const aoticache_cli *cli, const char *format, ...)
{
    static const struct message message = {.level = "error", .prefix = ""};
    va_list arguments;
    va_start(arguments, format);
    print_formatted(cli, &message, format, arguments);
    va_end(arguments);
    return AOTICACHE_CLI_EXIT_FAILURE;
}

int aoticache_cli_fail(const aoticache_cli *cli, aoticache_status status, const aoticache_error *error)
{
    const struct message message = {.level = "error", .prefix = "", .status = status};
    print_message(cli, &message,
                  error != NULL && error->message[0] != '\0' ? error->message : aoticache_status_text(status));
    return exit_of_status(status);
}

void aoticache_cli_note(const aoticache_cli *cli, const char *format, ...)
{
    static const struct message message = {.level = "note", .prefix = ""};
    if (cli->quiet)
        return;
    va_list arguments;
    va_start(arguments, format);
    print_formatted(cli, &message, format, arguments);
    va_end(arguments);
}

static void log_line(void *user, aoticache_log_level level, const char *line)
{
    static const struct message kinds[] = {{.level = "error", .prefix = "error: "},
                                           {.level = "warning", .prefix = "warning: "},
                                           {.level = "note", .prefix = ""},
                                           {.level = "debug", .prefix = "debug: "}};
    const aoticache_cli *cli = user;
    if (cli->quiet || (level > AOTICACHE_LOG_WARNING && !cli->verbose))
        return;
    print_message(cli, &kinds[level <= AOTICACHE_LOG_DEBUG ? level : AOTICACHE_LOG_DEBUG], line);
}

aoticache_logger aoticache_cli_logger(const aoticache_cli *cli)
{
    return (aoticache_logger){.log = log_line, .user = (void *)(uintptr_t)cli};
}

void aoticache_cli_catch_signals(void (*handler)(int), int flags)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction old;
        struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
        sigemptyset(&action.sa_mask);
        /* With nohup and in background jobs of scripts the signal is ignored, and must stay ignored. */
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    }
}
