/*
 * tools/cli/options: the command line, word by word, and the help made from the same tables.
 *
 * An own parser rather than getopt_long: options and operands keep the order in which they were given (it is the order
 * of an operator's arguments), nothing is abbreviated, and messages name the command and where its help is.
 */
#include "base/cleanup.h"
#include "tools/cli/cli.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum common_id {
    COMMON_CACHE_DIR = -100,
    COMMON_JSON,
    COMMON_ALLOW_SHARED,
    COMMON_COLOR,
    COMMON_QUIET,
    COMMON_VERBOSE,
    COMMON_HELP,
    COMMON_VERSION,
};

const aoticache_cli_option aoticache_cli_common_options[] = {
    {COMMON_CACHE_DIR, "cache-dir", 0, "DIR",
     "the cache directory; default $AOTICACHE_DIR, the configuration\n(aoticache help config), $XDG_CACHE_HOME/aoticache, ~/.cache/aoticache"},
    {COMMON_ALLOW_SHARED, "allow-shared", 0, NULL, "accept a directory that others own or may write to"},
    {COMMON_JSON, "json", 0, NULL, "print the result as JSON, and messages as a line of JSON each"},
    {COMMON_COLOR, "color", 0, "auto|always|never", "default auto; NO_COLOR is respected"},
    {COMMON_QUIET, "quiet", 'q', NULL, "results and errors only"},
    {COMMON_VERBOSE, "verbose", 'v', NULL, "say on standard error what is done"},
    {COMMON_HELP, "help", 'h', NULL, "print this and exit"},
    {COMMON_VERSION, "version", 0, NULL, "print the version and exit"},
    {0, NULL, 0, NULL, NULL},
};

void aoticache_cli_begin(aoticache_cli *cli, const aoticache_cli_program *program, int argc, char **argv, int first)
{
    *cli = (aoticache_cli){.program = program, .argv = argv, .argc = argc, .position = first};
    signal(SIGPIPE, SIG_IGN);
}

static const aoticache_cli_option *find_in(const aoticache_cli_option *options, const char *name, size_t length,
                                           char letter)
{
    for (; options->name != NULL; options++) {
        if (letter != 0 && options->letter == letter)
            return options;
        if (letter == 0 && strlen(options->name) == length && memcmp(options->name, name, length) == 0)
            return options;
    }
    return NULL;
}

static const aoticache_cli_option *find(const aoticache_cli *cli, const char *name, size_t length, char letter)
{
    const aoticache_cli_option *found = find_in(cli->program->options, name, length, letter);
    return found != NULL ? found : find_in(aoticache_cli_common_options, name, length, letter);
}

static int stop(aoticache_cli *cli, int exit_code)
{
    cli->exit_code = exit_code;
    return AOTICACHE_CLI_STOP;
}

static const char *nearest_option(const aoticache_cli *cli, const char *name)
{
    const char *names[64];
    size_t count = 0;
    const aoticache_cli_option *const tables[] = {cli->program->options, aoticache_cli_common_options};
    for (size_t table = 0; table < 2; table++)
        for (const aoticache_cli_option *option = tables[table]; option->name != NULL && count < 63; option++)
            names[count++] = option->name;
    names[count] = NULL;
    return aoticache_cli_nearest(name, names);
}

static int unknown_option(aoticache_cli *cli, const char *word)
{
    cleanup_free char *name = aoticache_cli_text("%.*s", (int)strcspn(word, "="), word);
    const char *nearest = strncmp(name, "--", 2) == 0 ? nearest_option(cli, name + 2) : NULL;
    if (nearest != NULL)
        return stop(cli, aoticache_cli_usage_error(cli, "unknown option %s (did you mean --%s?)", name, nearest));
    return stop(cli, aoticache_cli_usage_error(cli, "unknown option %s", name));
}

static int set_color(aoticache_cli *cli, const char *value)
{
    static const char *const names[] = {"auto", "always", "never"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(value, names[i]) == 0) {
            cli->color = (aoticache_cli_color)i;
            return 0;
        }
    }
    return stop(cli, aoticache_cli_usage_error(cli, "option --color: '%s' is not auto, always or never", value));
}

static int set_directory(aoticache_cli *cli, const char *value)
{
    if (value[0] == '\0')
        return stop(cli, aoticache_cli_usage_error(cli, "option --cache-dir needs a directory"));
    cli->directory = value;
    return 0;
}

/* 0 to go on, or AOTICACHE_CLI_STOP. */
static int apply_common(aoticache_cli *cli, int id, const char *value)
{
    switch (id) {
    case COMMON_CACHE_DIR:
        return set_directory(cli, value);
    case COMMON_COLOR:
        return set_color(cli, value);
    case COMMON_HELP:
        aoticache_cli_print_help(cli->program);
        return stop(cli, AOTICACHE_CLI_EXIT_OK);
    case COMMON_VERSION:
        printf("aoticache %s\n", aoticache_version());
        return stop(cli, AOTICACHE_CLI_EXIT_OK);
    default:
        cli->json |= id == COMMON_JSON;
        cli->allow_shared |= id == COMMON_ALLOW_SHARED;
        cli->quiet |= id == COMMON_QUIET;
        cli->verbose |= id == COMMON_VERBOSE;
        return 0;
    }
}

/* The value after '=' or in the next word. 0, or AOTICACHE_CLI_STOP. */
static int take_value(aoticache_cli *cli, const aoticache_cli_option *option, const char *after_equals,
                      const char **ret_value)
{
    *ret_value = after_equals;
    bool optional = option->value != NULL && option->value[0] == '[';
    if (optional)
        return 0;
    if (option->value == NULL)
        return after_equals == NULL
                   ? 0
                   : stop(cli, aoticache_cli_usage_error(cli, "option --%s takes no value", option->name));
    if (after_equals != NULL)
        return 0;
    if (cli->position >= cli->argc || strncmp(cli->argv[cli->position], "--", 2) == 0)
        return stop(cli, aoticache_cli_usage_error(cli, "option --%s needs a value: %s", option->name, option->value));
    *ret_value = cli->argv[cli->position++];
    return 0;
}

static bool is_option(const aoticache_cli *cli, const char *word)
{
    return !cli->operands_only && word[0] == '-' && word[1] != '\0';
}

static int parse_option(aoticache_cli *cli, const char *word, const char **ret_value)
{
    const aoticache_cli_option *option = NULL;
    const char *equals = NULL;
    if (word[1] == '-') {
        size_t length = strcspn(word + 2, "=");
        option = find(cli, word + 2, length, 0);
        equals = word[2 + length] == '=' ? word + 2 + length + 1 : NULL;
    } else if (word[2] == '\0') {
        option = find(cli, NULL, 0, word[1]);
    }
    if (option == NULL)
        return unknown_option(cli, word);
    int result = take_value(cli, option, equals, ret_value);
    if (result == 0 && option->id < 0)
        result = apply_common(cli, option->id, *ret_value);
    return result == 0 && option->id > 0 ? option->id : result;
}

int aoticache_cli_next(aoticache_cli *cli, const char **ret_value)
{
    while (cli->position < cli->argc) {
        const char *word = cli->argv[cli->position++];
        if (!is_option(cli, word)) {
            *ret_value = word;
            return AOTICACHE_CLI_OPERAND;
        }
        if (strcmp(word, "--") == 0) {
            cli->operands_only = true;
            continue;
        }
        int result = parse_option(cli, word, ret_value);
        if (result != 0)
            return result;
    }
    return AOTICACHE_CLI_END;
}
