/*
 * aoticache: the tool. Runs the command that the first word names; every command is in its
 * own.
 */
#include "base/cleanup.h"
#include "tools/aoticache/inspect/inspect_internal.h"
#include "tools/aoticache/aoticache_internal.h"

#include <stdlib.h>
#include <string.h>

/* The short help describes the first MAIN_COUNT commands. */
static const aoticache_command *const commands[] = {
    &aoticache_command_run,    &aoticache_command_compile, &aoticache_command_ls,          &aoticache_command_show,
    &aoticache_command_why,    &aoticache_command_du,      &aoticache_command_verify,      &aoticache_command_rm,
    &aoticache_command_doctor, &aoticache_command_config,  &aoticache_command_warm,        &aoticache_command_pin,
    &aoticache_command_export, &aoticache_command_import,  &aoticache_command_inspect,     &aoticache_command_add,
    &aoticache_command_record, &aoticache_command_unpin,   &aoticache_command_run_package, &aoticache_command_model,
    &aoticache_command_tag,    &aoticache_command_merge,   &aoticache_command_copy,        &aoticache_command_key,
    &aoticache_command_push,   &aoticache_command_pull,    &aoticache_command_prefetch,
};

#define MAIN_COUNT 14
#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static const aoticache_cli_option no_options[] = {{0}};

static const aoticache_cli_program top_program = {
    .name = "aoticache",
    .help_hint = "aoticache help",
    .usage = "COMMAND [ARGUMENT]...",
    .summary = "Compiles operators ahead of time, once, and keeps the compiled kernels.",
    .options = no_options,
    .details = NULL,
};

#define OVERVIEW_COLUMN 14

/* Prints everything: all commands, topics and exit codes. */
static void print_overview(void)
{
    printf("\nCommands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        aoticache_cli_print_item(commands[i]->word, OVERVIEW_COLUMN, commands[i]->program.summary);
    }
    aoticache_cli_print_item("help", OVERVIEW_COLUMN, "Prints the help of a command or a topic: aoticache help run");
    printf("\nTopics:\n");
    for (size_t i = 0; aoticache_topic_at(i) != NULL; i++)
        aoticache_cli_print_item(aoticache_topic_at(i)->word, OVERVIEW_COLUMN, aoticache_topic_at(i)->summary);
    printf("\naoticache --version prints the version.\nStatistics: aoticache-stat. Removal of unused kernels: "
           "aoticache-gc.\n");
    aoticache_cli_print_exit_codes();
}

static void print_words(const char *title, const char *const *words, size_t count)
{
    char *text = aoticache_cli_text("%s:", title);
    for (size_t i = 0; i < count; i++) {
        char *longer = aoticache_cli_text("%s%s %s", text, i > 0 ? "," : "", words[i]);
        free(text);
        text = longer;
    }
    aoticache_cli_print_paragraph(text);
    free(text);
}

/* Prints what a command does, up to the end of the first clause, or to the last comma that fits on a line. */
static void print_first_clause(const aoticache_command *command)
{
    cleanup_free char *text = aoticache_cli_text("%s", command->program.summary);
    text[strcspn(text, ".:;")] = '\0';
    for (char *comma; strlen(text) > 80 - OVERVIEW_COLUMN && (comma = strrchr(text, ',')) != NULL;)
        *comma = '\0';
    aoticache_cli_print_item(command->word, OVERVIEW_COLUMN, text);
}

/* Prints an overview that fits on one screen. */
static void print_short_overview(void)
{
    const char *words[COMMAND_COUNT];
    size_t count = 0;
    printf("\nCommands:\n");
    for (size_t i = 0; i < MAIN_COUNT; i++)
        print_first_clause(commands[i]);
    for (size_t i = MAIN_COUNT; i < COMMAND_COUNT; i++)
        words[count++] = commands[i]->word;
    print_words("More commands", words, count);
    putchar('\n');
    for (count = 0; count < COMMAND_COUNT && aoticache_topic_at(count) != NULL; count++)
        words[count] = aoticache_topic_at(count)->word;
    print_words("'aoticache help WORD' describes a command, or one of these topics", words, count);
    printf("'aoticache help all' describes all commands and exit codes.\n"
           "Statistics: aoticache-stat. Removal of unused kernels: aoticache-gc.\n");
}

static int print_top(bool is_all)
{
    printf("Usage: aoticache COMMAND [ARGUMENT]...\n\n%s\n", top_program.summary);
    if (is_all)
        print_overview();
    else
        print_short_overview();
    return AOTICACHE_CLI_EXIT_OK;
}

static const aoticache_command *find_command(const char *word)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i]->word, word) == 0)
            return commands[i];
    return NULL;
}

static int unknown_command(const aoticache_cli *cli, const char *word, bool is_help)
{
    const char *words[COMMAND_COUNT + 16] = {NULL};
    size_t count = COMMAND_COUNT;
    if (strcmp(word, "stat") == 0 || strcmp(word, "stats") == 0 || strcmp(word, "gc") == 0)
        return aoticache_cli_usage_error(cli, "unknown command '%s' (did you mean the program aoticache-%.4s?)", word,
                                         word);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        words[i] = commands[i]->word;
    words[count++] = "help";
    for (size_t i = 0; is_help && aoticache_topic_at(i) != NULL && count + 1 < sizeof words / sizeof words[0]; i++)
        words[count++] = aoticache_topic_at(i)->word;
    const char *nearest = aoticache_cli_nearest(word, words);
    if (nearest != NULL)
        return aoticache_cli_usage_error(cli, "unknown command '%s' (did you mean %s?)", word, nearest);
    return aoticache_cli_usage_error(cli, "unknown command '%s'", word);
}

/* Handles "aoticache help [WORD] [all]". */
static int help(const aoticache_cli *cli, int argc, char **argv)
{
    const bool is_all = argc > 2 && strcmp(argv[argc - 1], "all") == 0;
    const int words = argc - is_all;
    if (words <= 2)
        return print_top(is_all);
    const aoticache_command *command = find_command(argv[2]);
    if (command == NULL && aoticache_topic_print(argv[2]))
        return AOTICACHE_CLI_EXIT_OK;
    if (command == NULL && strcmp(argv[2], "help") != 0)
        return unknown_command(cli, argv[2], true);
    if (command == NULL)
        return print_top(is_all);
    aoticache_cli_print_help(&command->program, aoticache_cli_common_options, is_all);
    return AOTICACHE_CLI_EXIT_OK;
}

/* Returns whether "--help", "--help all" or "--help=all" is given instead of a command. */
static bool is_help(int argc, char **argv, bool *ret_is_all)
{
    const char *word = argv[1];
    *ret_is_all = strcmp(word, "--help=all") == 0 || (argc > 2 && strcmp(argv[2], "all") == 0);
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "--help=all") == 0;
}

static int dispatch(aoticache_cli *cli, int argc, char **argv)
{
    aoticache_cli_begin(cli, &top_program, argc, argv, 1);
    if (argc < 2)
        return aoticache_cli_usage_error(cli, "a command is needed, such as run, ls or doctor");
    const char *word = argv[1];
    bool is_all;
    if (is_help(argc, argv, &is_all))
        return print_top(is_all);
    if (strcmp(word, "help") == 0)
        return help(cli, argc, argv);
    if (strcmp(word, "--version") == 0) {
        printf("aoticache %s\n", aoticache_version());
        return AOTICACHE_CLI_EXIT_OK;
    }
    if (strcmp(word, AOTICACHE_INSPECT_CHILD_WORD) == 0) /* `inspect` starts itself with this command; not for users */
        aoticache_inspect_child(argc, argv);
    if (word[0] == '-')
        return aoticache_cli_usage_error(cli, "option %s before the command; options come after it", word);
    const aoticache_command *command = find_command(word);
    if (command == NULL)
        return unknown_command(cli, word, false);
    aoticache_cli_begin(cli, &command->program, argc, argv, 2);
    return command->run(cli);
}

int main(int argc, char **argv)
{
    aoticache_cli cli;
    int result = dispatch(&cli, argc, argv);
    return aoticache_cli_finish(&cli, result);
}
