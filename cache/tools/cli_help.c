/*
 * cache/tools/cli_help: the help text made from the option tables, the table of exit codes, and "did you mean".
 */
#include "base/cleanup.h"
#include "cache/tools/cli.h"

#include <string.h>

#define HELP_COLUMN 28

static void print_option(const aoticache_cli_option *option)
{
    char left[64];
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
    const char *line = option->help;
    for (;;) {
        size_t length = strcspn(line, "\n");
        printf("%*s%.*s\n", HELP_COLUMN - width, "", (int)length, line);
        if (line[length] == '\0')
            return;
        line += length + 1;
        width = 0;
    }
}

void aoticache_cli_print_exit_codes(void)
{
    printf("\nExit codes:\n");
#define PRINT_EXIT(name, number, text) printf("  %d  %s\n", number, text);
    AOTICACHE_CLI_EXIT_LIST(PRINT_EXIT)
#undef PRINT_EXIT
}

void aoticache_cli_print_help(const aoticache_cli_program *program)
{
    printf("Usage: %s %s\n\n%s\n", program->name, program->usage, program->summary);
    if (program->options->name != NULL)
        printf("\nOptions:\n");
    for (const aoticache_cli_option *option = program->options; option->name != NULL; option++)
        print_option(option);
    printf("\nCommon options:\n");
    for (const aoticache_cli_option *option = aoticache_cli_common_options; option->name != NULL; option++)
        print_option(option);
    if (program->details != NULL)
        printf("\n%s\n", program->details);
    aoticache_cli_print_exit_codes();
}

#define LONGEST_WORD 32

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
