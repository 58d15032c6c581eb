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

/* ---- help, made from the tables of options ---- */

#define HELP_COLUMN 28

/* What a line of help may have at most: all terminals have this much, and many no more. */
#define HELP_WIDTH 80

/*
 * Words of `text` as lines of at most HELP_WIDTH columns; newlines are spaces. column: where the first begins; indent: where
 * the others do. Spaces at the beginning stay.
 */
static void print_paragraph(const char *text, size_t size, size_t column, int indent)
{

    const char *end = text + size;
    bool is_first = true;
    while (text < end) {
        const size_t spaces = strspn(text, " \n");
        const size_t length = strcspn(text + spaces, " \n");
        const size_t gap = is_first ? spaces : 1;
        if (text + spaces >= end)
            break;
        if (!is_first && column + gap + length > HELP_WIDTH) {
            printf("\n%*s%.*s", indent, "", (int)length, text + spaces);
            column = (size_t)indent + length;
        } else {
            printf("%*s%.*s", (int)gap, "", (int)length, text + spaces);
            column += gap + length;
        }
        is_first = false;
        text += spaces + length;
    }
    putchar('\n');
}

/* What stands beside a name that takes `width` columns, from `column` on. */
static void print_item(int width, int column, const char *text)
{
    cleanup_free char *padded = aoticache_cli_text("%*s%s", column - width, "", text);
    print_paragraph(padded, strlen(padded), (size_t)width, column);
}

void aoticache_cli_print_item(const char *name, int column, const char *text)
{
    print_item(printf("  %s", name), column, text);
}

/* Lines that belong together are one paragraph; one that is indented or empty stands for itself. */
static void print_details(const char *text)
{
    while (*text != '\0') {
        size_t size = strcspn(text, "\n");
        const bool is_prose = size > 0 && text[0] != ' ';
        while (is_prose && text[size] == '\n' && text[size + 1] != '\n' && text[size + 1] != ' ' && text[size + 1] != '\0')
            size += 1 + strcspn(text + size + 1, "\n");
        if (is_prose)
            print_paragraph(text, size, 0, 0);
        else
            printf("%.*s\n", (int)size, text);
        text += size + (text[size] == '\n');
    }
}

static void print_option(const aoticache_cli_option *option)
{
    char left[96];
    char letter[8] = "    ";
    if (option->letter != 0)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    const char *value = option->value != NULL ? option->value : "";
    snprintf(left, sizeof left, "  %s--%s%s%s", letter, option->name, value[0] != '\0' && value[0] != '[' ? " " : "",
             value);
    int width = (int)strlen(left);
    printf("%s", left);
    if (width > HELP_COLUMN - 2) {
        putchar('\n');
        width = 0;
    }
    print_item(width, HELP_COLUMN, option->help);
}

void aoticache_cli_print_exit_codes(void)
{
    printf("\nExit codes:\n");
#define PRINT_EXIT(name, number, text) \
    aoticache_cli_print_item(#number, 5, text);
    AOTICACHE_CLI_EXIT_LIST(PRINT_EXIT)
#undef PRINT_EXIT
}

void aoticache_cli_print_help(const aoticache_cli_program *program)
{
    printf("Usage: %s %s\n\n", program->name, program->usage);
    print_details(program->summary);
    if (program->options->name != NULL)
        printf("\nOptions:\n");
    for (const aoticache_cli_option *option = program->options; option->name != NULL; option++)
        print_option(option);
    printf("\nCommon options:\n");
    for (const aoticache_cli_option *option = aoticache_cli_common_options; option->name != NULL; option++)
        print_option(option);
    if (program->details != NULL) {
        putchar('\n');
        print_details(program->details);
    }
    aoticache_cli_print_exit_codes();
}

/* ---- "did you mean" ---- */

#define LONGEST_WORD 64

/* How many letters must be put in, left out, replaced or swapped with their neighbour; words cut to LONGEST_WORD. */
static size_t distance(const char *a, const char *b)
{
    size_t table[LONGEST_WORD + 1][LONGEST_WORD + 1];
    size_t a_length = strnlen(a, LONGEST_WORD);
    size_t b_length = strnlen(b, LONGEST_WORD);
    for (size_t i = 0; i <= a_length; i++) {
        for (size_t j = 0; j <= b_length; j++) {
            if (i == 0 || j == 0) {
                table[i][j] = i + j;
                continue;
            }
            size_t best = table[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            best = table[i - 1][j] + 1 < best ? table[i - 1][j] + 1 : best;
            best = table[i][j - 1] + 1 < best ? table[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && table[i - 2][j - 2] + 1 < best)
                best = table[i - 2][j - 2] + 1;
            table[i][j] = best;
        }
    }
    return table[a_length][b_length];
}

const char *aoticache_cli_nearest(const char *word, const char *const *words)
{
    const char *nearest = NULL;
    size_t length = strnlen(word, LONGEST_WORD);
    size_t least = length < 6 ? 1 : length / 3;
    for (; *words != NULL; words++) {
        size_t d = distance(word, *words);
        if (d <= least && (nearest == NULL || d < least)) {
            nearest = *words;
            least = d;
        }
    }
    return nearest;
}

/* ---- the command line ---- */

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

bool aoticache_cli_parse_word(const aoticache_cli *cli, const char *option, const char *value, const char *const *words,
                              size_t *ret_position)
{
    char list[160] = "";
    const char *wanted = strcmp(value, "op") == 0 ? "operator" : value;
    for (size_t i = 0; words[i] != NULL; i++) {
        const size_t length = strlen(list);
        if (strcmp(words[i], wanted) == 0) {
            *ret_position = i;
            return true;
        }
        snprintf(list + length, sizeof list - length, "%s%s", i == 0 ? "" : words[i + 1] == NULL ? " or " : ", ",
                 words[i]);
    }
    const char *nearest = aoticache_cli_nearest(value, words);
    if (nearest != NULL)
        aoticache_cli_usage_error(cli, "option --%s: '%s' is none of %s (did you mean %s?)", option, value, list,
                                  nearest);
    else
        aoticache_cli_usage_error(cli, "option --%s: '%s' is none of %s", option, value, list);
    return false;
}
