/*
 * tools/cli/options: parses the command line according to a table of options. help.c prints the help from the same table.
 *
 * It does not use getopt_long, which reorders, abbreviates and does not support commands: here options and operands keep the
 * order in which they were given (the order of an operator's arguments), nothing is abbreviated, and messages name the
 * command and where to find its help.
 */
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/text/units.h"
#include "tools/cli/cli.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Options of every program. */
static int print_help(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member);
static int print_version(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member);

static const char *const colors[] = {"auto", "always", "never", NULL};

const aoticache_cli_option aoticache_cli_common_options[] = {
    {"cache-dir", 0, "DIR",
     "the cache directory; default $AOTICACHE_DIR, the configuration\n(aoticache "
     "help config), $XDG_CACHE_HOME/aoticache, ~/.cache/aoticache",
     AOTICACHE_CLI_NAME(aoticache_cli, directory, "a directory")},
    {"allow-shared", 0, NULL, "accept a directory that others own or may write to",
     AOTICACHE_CLI_SET(aoticache_cli, allow_shared)},
    {"json", 0, NULL, "print the result as JSON, and messages as a line of JSON each",
     AOTICACHE_CLI_SET(aoticache_cli, json)},
    {"color", 0, "auto|always|never", "when to color the output; default auto, which respects NO_COLOR",
     AOTICACHE_CLI_WORD(aoticache_cli, color, colors), .wanted = "auto, always or never"},
    {"quiet", 'q', NULL, "print only results and errors", AOTICACHE_CLI_SET(aoticache_cli, quiet)},
    {"verbose", 'v', NULL, "report progress on standard error", AOTICACHE_CLI_SET(aoticache_cli, verbose)},
    {"help", 'h', "[=all]", "print a short help and exit; --help all: this, all of it",
     AOTICACHE_CLI_FUNCTION(aoticache_cli, is_done, print_help)},
    {"version", 0, NULL, "print the version and exit", AOTICACHE_CLI_FUNCTION(aoticache_cli, is_done, print_version)},
    {0},
};

/* ---- "did you mean" ---- */

#define LONGEST_WORD 64

/* Returns how many letters must be inserted, omitted, replaced or swapped with a neighbour; words are truncated to
 * LONGEST_WORD. */
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

static int print_help(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    (void)option;
    const char *next = cli->position < cli->argc ? cli->argv[cli->position] : "";
    if (value != NULL && strcmp(value, "all") != 0)
        return aoticache_cli_usage_error(cli, "option --help: unknown value '%s'; the only value is all", value);
    aoticache_cli_print_help(cli->program, aoticache_cli_common_options, value != NULL || strcmp(next, "all") == 0);
    *(bool *)member = true;
    return AOTICACHE_CLI_EXIT_OK;
}

static int print_version(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    (void)cli, (void)option, (void)value;
    printf("aoticache %s\n", aoticache_version());
    *(bool *)member = true;
    return AOTICACHE_CLI_EXIT_OK;
}

/* An option that was found in a table, and the struct that its offset is in. */
struct found {
    const aoticache_cli_option *option;
    char *target;
};

static struct found find_in_table(const aoticache_cli_option *options, void *target, const char *name, size_t length,
                                  char letter)
{
    for (; options->kind != AOTICACHE_CLI_KIND_NONE; options++) {
        if (options->kind == AOTICACHE_CLI_KIND_TABLE) {
            struct found found = find_in_table(options->table, (char *)target + options->offset, name, length, letter);
            if (found.option != NULL)
                return found;
        } else if (letter != 0 ? options->letter == letter
                               : strlen(options->name) == length && memcmp(options->name, name, length) == 0) {
            return (struct found){options, target};
        }
    }
    return (struct found){NULL, NULL};
}

static struct found find_option(aoticache_cli *cli, void *target, const char *name, size_t length, char letter)
{
    struct found found = find_in_table(cli->program->options, target, name, length, letter);
    return found.option != NULL ? found : find_in_table(aoticache_cli_common_options, cli, name, length, letter);
}

#define MOST_NAMES 64

static size_t collect_names(const aoticache_cli_option *options, const char **names, size_t count)
{
    for (; options->kind != AOTICACHE_CLI_KIND_NONE && count + 1 < MOST_NAMES; options++) {
        if (options->kind == AOTICACHE_CLI_KIND_TABLE)
            count = collect_names(options->table, names, count);
        else
            names[count++] = options->name;
    }
    return count;
}

static int refuse_unknown(const aoticache_cli *cli, const char *word)
{
    const char *names[MOST_NAMES];
    cleanup_free char *name = aoticache_cli_text("%.*s", (int)strcspn(word, "="), word);
    names[collect_names(aoticache_cli_common_options, names, collect_names(cli->program->options, names, 0))] = NULL;
    const char *nearest = strncmp(name, "--", 2) == 0 ? aoticache_cli_nearest(name + 2, names) : NULL;
    if (nearest != NULL)
        return aoticache_cli_usage_error(cli, "unknown option %s (did you mean --%s?)", name, nearest);
    return aoticache_cli_usage_error(cli, "unknown option %s", name);
}

/* ---- values ---- */

void aoticache_cli_list_add(aoticache_cli_list *list, const char *word)
{
    list->items = aoticache_cli_resize(list->items, list->count + 2, sizeof *list->items);
    list->items[list->count++] = word;
    list->items[list->count] = NULL;
}

int aoticache_cli_refuse_value(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value)
{
    static const struct {
        const char *value, *unit;
    } units[] = {{"SIZE", "G"}, {"SIZE|PERCENT", "%"}, {"AGE", "d"}, {"TIME", "s"}};
    char advice[AOTICACHE_UNIT_ADVICE_BYTES];
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (option->value != NULL && strcmp(option->value, units[i].value) == 0 &&
            aoticache_unit_is_missing(value, units[i].unit, advice))
            return aoticache_cli_usage_error(cli, "option --%s: '%s' %s", option->name, value, advice);
    return aoticache_cli_usage_error(cli, "option --%s: '%s' is not %s", option->name, value, option->wanted);
}

static void store_integer(const aoticache_cli_option *option, int64_t value, void *member)
{
    const uint32_t narrow = (uint32_t)value;
    if (option->size == sizeof narrow)
        memcpy(member, &narrow, sizeof narrow);
    else
        memcpy(member, &value, sizeof value);
}

static int read_integer(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    int64_t number;
    if (!aoticache_cli_parse_int(value, option->minimum, option->maximum, &number))
        return aoticache_cli_refuse_value(cli, option, value);
    store_integer(option, number, member);
    return AOTICACHE_CLI_EXIT_OK;
}

static int read_word(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    size_t position = 0;
    if (option->wanted == NULL) {
        if (!aoticache_cli_parse_word(cli, option->name, value, option->words, &position))
            return AOTICACHE_CLI_EXIT_USAGE;
    } else {
        while (option->words[position] != NULL && strcmp(option->words[position], value) != 0)
            position++;
        if (option->words[position] == NULL)
            return aoticache_cli_refuse_value(cli, option, value);
    }
    store_integer(option, (int64_t)position, member);
    return AOTICACHE_CLI_EXIT_OK;
}

/* Reads a size, an age, or a moment given by its age. */
static int read_measure(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    const uint64_t ns_per_second = 1000000000;
    uint64_t number;
    bool is_size = option->kind == AOTICACHE_CLI_KIND_SIZE;
    bool is_number = is_size ? aoticache_cli_parse_size(value, &number) : aoticache_cli_parse_age(value, &number);
    if (!is_number || number < (uint64_t)option->minimum || (option->maximum > 0 && number > (uint64_t)option->maximum))
        return aoticache_cli_refuse_value(cli, option, value);
    if (option->kind == AOTICACHE_CLI_KIND_MOMENT) {
        const uint64_t now = (uint64_t)aoticache_wall_ns();
        number = number < now / ns_per_second ? now - number * ns_per_second : 1;
    }
    memcpy(member, &number, sizeof number);
    return AOTICACHE_CLI_EXIT_OK;
}

static int read_text(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    if (value[0] == '\0' && option->wanted != NULL)
        return aoticache_cli_usage_error(cli, "option --%s needs %s", option->name, option->wanted);
    if (option->kind == AOTICACHE_CLI_KIND_LIST)
        aoticache_cli_list_add(member, value);
    else
        *(const char **)member = value;
    return AOTICACHE_CLI_EXIT_OK;
}

static int read_option(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    switch (option->kind) {
    case AOTICACHE_CLI_KIND_SET:
    case AOTICACHE_CLI_KIND_CLEAR:
        *(bool *)member = option->kind == AOTICACHE_CLI_KIND_SET;
        return AOTICACHE_CLI_EXIT_OK;
    case AOTICACHE_CLI_KIND_INTEGER:
        return read_integer(cli, option, value, member);
    case AOTICACHE_CLI_KIND_WORD:
        return read_word(cli, option, value, member);
    case AOTICACHE_CLI_KIND_SIZE:
    case AOTICACHE_CLI_KIND_AGE:
    case AOTICACHE_CLI_KIND_MOMENT:
        return read_measure(cli, option, value, member);
    case AOTICACHE_CLI_KIND_FUNCTION:
        return option->read(cli, option, value, member);
    default:
        return read_text(cli, option, value, member);
    }
}

/* ---- words of the command line ---- */

/*
 * Returns whether the next word is the value of an option whose value is optional, "--prometheus FILE". If the program has
 * operands, the word could be an operand: such a value must then follow '='.
 */
static bool has_optional_value(const aoticache_cli *cli)
{
    if (cli->program->operand.kind != AOTICACHE_CLI_KIND_NONE || cli->position >= cli->argc)
        return false;
    const char *word = cli->argv[cli->position];
    return word[0] != '-' || word[1] == '\0';
}

/* Finds the value after '=' or in the next word. */
static int find_value(aoticache_cli *cli, const aoticache_cli_option *option, const char *after_equals,
                      const char **ret_value)
{
    *ret_value = after_equals;
    if (option->value == NULL)
        return after_equals == NULL ? AOTICACHE_CLI_EXIT_OK
                                    : aoticache_cli_usage_error(cli, "option --%s takes no value", option->name);
    if (after_equals != NULL || (option->value[0] == '[' && !has_optional_value(cli)))
        return AOTICACHE_CLI_EXIT_OK;
    if (cli->position >= cli->argc || strncmp(cli->argv[cli->position], "--", 2) == 0)
        return aoticache_cli_usage_error(cli, "option --%s needs a value: %s", option->name, option->value);
    *ret_value = cli->argv[cli->position++];
    return AOTICACHE_CLI_EXIT_OK;
}

static int parse_option(aoticache_cli *cli, void *target, const char *word)
{
    struct found found = {NULL, NULL};
    const char *equals = NULL, *value;
    if (word[1] == '-') {
        size_t length = strcspn(word + 2, "=");
        found = find_option(cli, target, word + 2, length, 0);
        equals = word[2 + length] == '=' ? word + 2 + length + 1 : NULL;
    } else if (word[2] == '\0') {
        found = find_option(cli, target, NULL, 0, word[1]);
    }
    if (found.option == NULL)
        return refuse_unknown(cli, word);
    int result = find_value(cli, found.option, equals, &value);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = read_option(cli, found.option, value, found.target + found.option->offset);
    return result;
}

static int parse_operand(aoticache_cli *cli, void *target, const char *word)
{
    const aoticache_cli_option *operand = &cli->program->operand;
    void *member = (char *)target + operand->offset;
    switch (operand->kind) {
    case AOTICACHE_CLI_KIND_FUNCTION:
        return operand->read(cli, operand, word, member);
    case AOTICACHE_CLI_KIND_LIST:
        aoticache_cli_list_add(member, word);
        return AOTICACHE_CLI_EXIT_OK;
    case AOTICACHE_CLI_KIND_REST:
        *(char ***)member = cli->argv + cli->position - 1;
        cli->position = cli->argc;
        return AOTICACHE_CLI_EXIT_OK;
    case AOTICACHE_CLI_KIND_TEXT:
        if (*(const char **)member == NULL) {
            *(const char **)member = word;
            return AOTICACHE_CLI_EXIT_OK;
        }
        break;
    default:
        break;
    }
    return aoticache_cli_usage_error(cli, "unexpected argument '%s'%s", word,
                                     operand->help != NULL ? operand->help : "");
}

/* Returns whether the operand is missing: an operand of any kind is then a NULL pointer. */
static bool lacks_operand(const aoticache_cli_option *operand, const char *target)
{
    const char *first = NULL;
    if (operand->kind != AOTICACHE_CLI_KIND_NONE)
        memcpy(&first, target + operand->offset, sizeof first);
    return operand->wanted != NULL && (first == NULL || (operand->kind == AOTICACHE_CLI_KIND_TEXT && first[0] == '\0'));
}

static void free_list(const aoticache_cli_option *option, char *target)
{
    aoticache_cli_list *list = (aoticache_cli_list *)(void *)(target + option->offset);
    free(list->items);
    *list = (aoticache_cli_list){.items = NULL};
}

static void free_lists(const aoticache_cli_option *options, char *target)
{
    for (; options->kind != AOTICACHE_CLI_KIND_NONE; options++) {
        if (options->kind == AOTICACHE_CLI_KIND_TABLE)
            free_lists(options->table, target + options->offset);
        else if (options->kind == AOTICACHE_CLI_KIND_LIST)
            free_list(options, target);
    }
}

bool aoticache_cli_parse(aoticache_cli *cli, void *target)
{
    cli->exit_code = AOTICACHE_CLI_EXIT_OK;
    while (cli->position < cli->argc && cli->exit_code == AOTICACHE_CLI_EXIT_OK && !cli->is_done) {
        const char *word = cli->argv[cli->position++];
        if (cli->operands_only || word[0] != '-' || word[1] == '\0')
            cli->exit_code = parse_operand(cli, target, word);
        else if (strcmp(word, "--") == 0)
            cli->operands_only = true;
        else
            cli->exit_code = parse_option(cli, target, word);
    }
    if (cli->exit_code == AOTICACHE_CLI_EXIT_OK && !cli->is_done && lacks_operand(&cli->program->operand, target))
        cli->exit_code = aoticache_cli_usage_error(cli, "%s", cli->program->operand.wanted);
    if (cli->exit_code == AOTICACHE_CLI_EXIT_OK && !cli->is_done)
        return true;
    free_lists(cli->program->options, target);
    if (cli->program->operand.kind == AOTICACHE_CLI_KIND_LIST)
        free_list(&cli->program->operand, target);
    return false;
}

bool aoticache_cli_parse_word(const aoticache_cli *cli, const char *option, const char *value, const char *const *words,
                              size_t *ret_position)
{
    char list[512] = "";
    const char *wanted = strcmp(value, "op") == 0 ? "operator" : value;
    for (size_t i = 0; words[i] != NULL; i++) {
        const size_t length = strlen(list);
        if (strcmp(words[i], wanted) == 0) {
            *ret_position = i;
            return true;
        }
        snprintf(list + length, sizeof list - length, "%s%s",
                 i == 0                 ? ""
                 : words[i + 1] == NULL ? " or "
                                        : ", ",
                 words[i]);
    }
    const char *nearest = aoticache_cli_nearest(value, words);
    if (nearest != NULL)
        aoticache_cli_usage_error(cli, "option --%s: '%s' is not one of %s (did you mean %s?)", option, value, list,
                                  nearest);
    else
        aoticache_cli_usage_error(cli, "option --%s: '%s' is not one of %s", option, value, list);
    return false;
}
