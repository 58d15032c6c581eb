/*
 * tools/cli/table: aligned columns.
 *
 * Cells are escaped when they are added. On a narrow terminal columns are shortened or left out, the least important first;
 * in a pipe nothing is shortened.
 */
#include "base/cleanup.h"
#include "tools/cli/cli.h"

#include <stdlib.h>
#include <string.h>

struct aoticache_cli_table {
    const aoticache_cli_column *columns;
    size_t column_count;
    char **cells; /* row_count * column_count */
    aoticache_cli_style *styles;
    size_t row_count, row_capacity;
    size_t *least; /* widths already printed */
    bool has_titles;
};

#define GAP 2
#define SHRUNK_MINIMUM 12
#define SHRUNK_OR_NONE 10 /* a narrower column would be useless: it is left out */

aoticache_cli_table *aoticache_cli_table_create(const aoticache_cli_column *columns, size_t column_count)
{
    aoticache_cli_table *table = aoticache_cli_allocate(1, sizeof *table);
    table->columns = columns;
    table->column_count = column_count;
    table->least = aoticache_cli_allocate(column_count, sizeof *table->least);
    return table;
}

void aoticache_cli_table_add(aoticache_cli_table *table, aoticache_cli_style style, const char *const *cells)
{
    if (table->row_count == table->row_capacity) {
        table->row_capacity = table->row_capacity * 2 + 16;
        table->cells = aoticache_cli_resize(table->cells, table->row_capacity, table->column_count * sizeof(char *));
        table->styles = aoticache_cli_resize(table->styles, table->row_capacity, sizeof *table->styles);
    }
    for (size_t column = 0; column < table->column_count; column++)
        table->cells[table->row_count * table->column_count + column] = aoticache_cli_escape(cells[column]);
    table->styles[table->row_count++] = style;
}

static size_t column_width(const aoticache_cli_table *table, size_t column)
{
    size_t title = aoticache_cli_columns(table->columns[column].title);
    size_t width = table->least[column] > title ? table->least[column] : title;
    for (size_t row = 0; row < table->row_count; row++) {
        size_t columns = aoticache_cli_columns(table->cells[row * table->column_count + column]);
        width = columns > width ? columns : width;
    }
    return width;
}

static size_t sum_of(const aoticache_cli_table *table, const size_t *widths)
{
    size_t sum = 0;
    for (size_t column = 0; column < table->column_count; column++)
        sum += widths[column] + (sum > 0 && widths[column] > 0 ? GAP : 0);
    return sum;
}

/* Returns the next column to shorten after those above `bound`; column_count if none is left. */
static size_t next_to_give_way(const aoticache_cli_table *table, unsigned bound)
{
    size_t found = table->column_count;
    for (size_t column = 0; column < table->column_count; column++) {
        const unsigned rank = table->columns[column].gives_way;
        if (rank > 0 && rank < bound && (found == table->column_count || rank > table->columns[found].gives_way))
            found = column;
    }
    return found;
}

static void shrink(const aoticache_cli_table *table, size_t column, size_t excess, size_t *widths)
{
    const size_t minimum = table->columns[column].gives_way == 1 ? SHRUNK_MINIMUM : SHRUNK_OR_NONE;
    const size_t least = widths[column] < minimum ? widths[column] : minimum;
    if (widths[column] >= excess + least)
        widths[column] -= excess;
    else
        widths[column] = table->columns[column].gives_way == 1 ? least : 0;
}

/* Fits the widths to the terminal. A width of 0: the column is left out. A column left out of a printed block stays left
 * out. */
static void fit_widths(aoticache_cli_table *table, size_t *widths)
{
    const size_t terminal = aoticache_cli_terminal_width();
    unsigned bound = UINT_MAX;
    for (size_t column = 0; column < table->column_count; column++)
        widths[column] = table->least[column] = column_width(table, column);
    for (size_t sum; terminal > 0 && (sum = sum_of(table, widths)) > terminal;) {
        const size_t column = next_to_give_way(table, bound);
        if (column == table->column_count)
            return;
        shrink(table, column, sum - terminal, widths);
        bound = table->columns[column].gives_way;
    }
}

/* Returns the bytes of the first `columns` code points. */
static size_t prefix_bytes(const char *text, size_t columns)
{
    size_t bytes = 0;
    for (; text[bytes] != '\0'; bytes++)
        if (((unsigned char)text[bytes] & 0xc0) != 0x80 && columns-- == 0)
            break;
    return bytes;
}

static void print_padding(size_t count)
{
    printf("%*s", (int)count, "");
}

static void print_cell(const char *cell, size_t width, bool right, bool last)
{
    size_t columns = aoticache_cli_columns(cell);
    if (columns > width) {
        printf("%.*s...", (int)prefix_bytes(cell, width - 3), cell);
        columns = width;
    } else {
        if (right)
            print_padding(width - columns);
        fputs(cell, stdout);
    }
    if (!last)
        print_padding((right ? 0 : width - columns) + GAP);
}

static void print_row(const aoticache_cli_table *table, const aoticache_cli *cli, aoticache_cli_style style,
                      const size_t *widths, size_t row, bool titles)
{
    size_t last = table->column_count;
    while (last > 1 && widths[last - 1] == 0)
        last--;
    if (style != AOTICACHE_CLI_PLAIN)
        fputs(aoticache_cli_style_begin(cli, style), stdout);
    for (size_t column = 0; column < last; column++) {
        const char *cell = titles ? table->columns[column].title : table->cells[row * table->column_count + column];
        if (widths[column] > 0)
            print_cell(cell, widths[column], table->columns[column].right, column + 1 == last);
    }
    if (style != AOTICACHE_CLI_PLAIN)
        fputs(aoticache_cli_style_begin(cli, AOTICACHE_CLI_PLAIN), stdout);
    putchar('\n');
}

static void clear_rows(aoticache_cli_table *table)
{
    for (size_t i = 0; i < table->row_count * table->column_count; i++)
        free(table->cells[i]);
    table->row_count = 0;
}

void aoticache_cli_table_print(aoticache_cli_table *table, const aoticache_cli *cli)
{
    cleanup_free size_t *widths = aoticache_cli_allocate(table->column_count, sizeof *widths);
    fit_widths(table, widths);
    if (!table->has_titles)
        print_row(table, cli, AOTICACHE_CLI_BOLD, widths, 0, true);
    table->has_titles = true;
    for (size_t row = 0; row < table->row_count; row++)
        print_row(table, cli, table->styles[row], widths, row, false);
    clear_rows(table);
}

void aoticache_cli_table_free(aoticache_cli_table *table)
{
    if (table == NULL)
        return;
    clear_rows(table);
    free(table->least);
    free(table->cells);
    free(table->styles);
    free(table);
}
