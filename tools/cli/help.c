/*
 * tools/cli/help: the help text made from the option tables, the table of exit codes, "did you mean", and values
 * that are one of some words.
 */
#include "base/cleanup.h"
#include "tools/cli/cli.h"

#include <string.h>

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
