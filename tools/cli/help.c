/*
 * tools/cli/help: prints --help from the table of options. The short form fits on a screen: a line for each common option,
 * the names of the others. `--help all` has everything.
 */
#include "base/cleanup.h"
#include "tools/cli/cli.h"

#include <stdlib.h>
#include <string.h>

#define HELP_COLUMN 28

/* The maximum width of a line of help: all terminals have it, and many have no more. */
#define HELP_WIDTH 80

/*
 * Prints the words of `text` as lines of at most HELP_WIDTH columns; newlines count as spaces. column: start of the first
 * line; indent: of the others. Leading spaces are kept.
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

/* Prints the text next to a name that takes `width` columns, from `column` on. */
static void print_item(int width, int column, const char *text)
{
    cleanup_free char *padded = aoticache_cli_text("%*s%s", column - width, "", text);
    print_paragraph(padded, strlen(padded), (size_t)width, column);
}

void aoticache_cli_print_item(const char *name, int column, const char *text)
{
    print_item(printf("  %s", name), column, text);
}

/* Prints the details: consecutive lines are one paragraph; an indented or empty line stands alone. */
static void print_details(const char *text)
{
    while (*text != '\0') {
        size_t size = strcspn(text, "\n");
        const bool is_prose = size > 0 && text[0] != ' ';
        while (is_prose && text[size] == '\n' && text[size + 1] != '\n' && text[size + 1] != ' ' &&
               text[size + 1] != '\0')
            size += 1 + strcspn(text + size + 1, "\n");
        if (is_prose)
            print_paragraph(text, size, 0, 0);
        else
            printf("%.*s\n", (int)size, text);
        text += size + (text[size] == '\n');
    }
}

/* Prints "  -n, --limit N"; returns its width. */
static int print_option_name(const aoticache_cli_option *option)
{
    char letter[8] = "    ";
    if (option->letter != 0)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    const char *value = option->value != NULL ? option->value : "";
    return printf("  %s--%s%s%s", letter, option->name, value[0] != '\0' && value[0] != '[' ? " " : "", value);
}

static void print_option(const aoticache_cli_option *option)
{
    int width = print_option_name(option);
    if (width > HELP_COLUMN - 2) {
        putchar('\n');
        width = 0;
    }
    print_item(width, HELP_COLUMN, option->help);
}

static void print_options(const aoticache_cli_option *options)
{
    for (; options->kind != AOTICACHE_CLI_KIND_NONE; options++) {
        if (options->kind == AOTICACHE_CLI_KIND_TABLE)
            print_options(options->table);
        else
            print_option(options);
    }
}

void aoticache_cli_print_exit_codes(void)
{
    printf("\nExit codes:\n");
#define PRINT_EXIT(name, number, text) aoticache_cli_print_item(#number, 5, text);
    AOTICACHE_CLI_EXIT_LIST(PRINT_EXIT)
#undef PRINT_EXIT
}

void aoticache_cli_print_paragraph(const char *text)
{
    print_paragraph(text, strlen(text), 0, 0);
}

static void print_all(const aoticache_cli_program *program, const aoticache_cli_option *common)
{
    if (program->options->kind != AOTICACHE_CLI_KIND_NONE)
        printf("\nOptions:\n");
    print_options(program->options);
    printf("\nCommon options:\n");
    print_options(common);
    if (program->details != NULL) {
        putchar('\n');
        print_details(program->details);
    }
    aoticache_cli_print_exit_codes();
}

/* ---- the short form ---- */

/* A shorter clause that ends with a colon only introduces the rest, as "run, show:", and is useless alone. */
#define LEAST_CLAUSE 25

/* Returns how much of a help text fits into `room` columns: all of it, or up to the end of a clause; the first clause if
 * none fits. */
static size_t short_size(const char *help, size_t room)
{
    const size_t all = strlen(help);
    size_t fitting = 0, first = all, at_colon = 0, depth = 0;
    if (all <= room)
        return all;
    for (size_t i = 0; i + 1 < all; i++) {
        depth += help[i] == '(';
        depth -= help[i] == ')';
        const bool is_end = depth == 0 && (help[i + 1] == ' ' || help[i + 1] == '\n');
        if (is_end && (help[i] == ';' || (help[i] == '.' && help[i - (i > 0)] != '.'))) {
            fitting = i <= room ? i : fitting;
            first = i < first ? i : first;
        } else if (is_end && help[i] == ':' && i >= LEAST_CLAUSE && i <= room && at_colon == 0) {
            at_colon = i;
        }
    }
    return fitting > 0 ? fitting : at_colon > 0 ? at_colon : first;
}

static void print_short_option(const aoticache_cli_option *option)
{
    int width = print_option_name(option);
    const int left = HELP_WIDTH - width - 2;
    size_t size = short_size(option->help, (size_t)(HELP_WIDTH - HELP_COLUMN));
    int column = HELP_COLUMN;
    if (width > HELP_COLUMN - 2 && left > 0 && short_size(option->help, (size_t)left) <= (size_t)left) {
        size = short_size(option->help, (size_t)left);
        column = width + 2;
    } else if (width > HELP_COLUMN - 2) {
        putchar('\n');
        width = 0;
    }
    cleanup_free char *text = aoticache_cli_text("%.*s", (int)size, option->help);
    print_item(width, column, text);
}

static void print_short_options(const aoticache_cli_option *options)
{
    for (; options->kind != AOTICACHE_CLI_KIND_NONE; options++) {
        if (options->kind == AOTICACHE_CLI_KIND_TABLE)
            print_short_options(options->table);
        else if (!options->is_rare)
            print_short_option(options);
    }
}

/* Adds "--name VALUE, " for the options that are (or are not) rare. */
static void add_names(const aoticache_cli_option *options, bool is_rare, char **text)
{
    for (; options->kind != AOTICACHE_CLI_KIND_NONE; options++) {
        if (options->kind == AOTICACHE_CLI_KIND_TABLE) {
            add_names(options->table, is_rare, text);
        } else if (options->is_rare == is_rare) {
            const char *value = options->value != NULL ? options->value : "";
            char *longer = aoticache_cli_text("%s%s--%s%s%s", *text, (*text)[0] != '\0' ? ", " : "", options->name,
                                              value[0] != '\0' && value[0] != '[' ? " " : "", value);
            free(*text);
            *text = longer;
        }
    }
}

static void print_names(const char *title, const aoticache_cli_option *options, bool is_rare)
{
    char *names = aoticache_cli_text("%s", "");
    add_names(options, is_rare, &names);
    cleanup_free char *paragraph = aoticache_cli_text("%s: %s", title, names);
    if (names[0] != '\0')
        print_paragraph(paragraph, strlen(paragraph), 0, 4);
    free(names);
}

/* Prints the actions of a command, if it has some: its details begin with them. */
static void print_actions(const char *details)
{
    while (details[0] == ' ') {
        const size_t size = strcspn(details, "\n");
        printf("%.*s\n", (int)size, details);
        details += size + (details[size] == '\n');
    }
}

static void print_short(const aoticache_cli_program *program, const aoticache_cli_option *common)
{
    if (program->details != NULL && program->details[0] == ' ') {
        putchar('\n');
        print_actions(program->details);
    }
    if (program->options->kind != AOTICACHE_CLI_KIND_NONE)
        printf("\nOptions:\n");
    print_short_options(program->options);
    print_names("More options", program->options, true);
    putchar('\n');
    print_names("Common options", common, false);
    printf("'%s --help all' describes all of them, and the exit codes.\n", program->name);
}

void aoticache_cli_print_help(const aoticache_cli_program *program, const aoticache_cli_option *common, bool is_all)
{
    printf("Usage: %s %s\n\n", program->name, program->usage);
    print_details(program->summary);
    if (is_all)
        print_all(program, common);
    else
        print_short(program, common);
}
