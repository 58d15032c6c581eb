/*
 * cache/tools/cli_table: aligned columns.
 *
 * Cells are escaped when they are added. On a terminal that is too narrow one column gives way; in a pipe nothing is
 * cut.
 */
#include "base/cleanup.h"
#include "cache/tools/cli.h"

#include <stdlib.h>
#include <string.h>

struct aoticache_cli_table {
    const aoticache_cli_column *columns;
    size_t column_count;
    char **cells; /* row_count * column_count */
    aoticache_cli_style *styles;
    size_t row_count, row_capacity;
    size_t *least; /* widths of what was printed */
    bool has_titles;
};

#define GAP 2
#define SHRUNK_MINIMUM 12

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

static void fit_widths(aoticache_cli_table *table, size_t *widths)
{
    size_t sum = 0;
    size_t terminal = aoticache_cli_terminal_width();
    for (size_t column = 0; column < table->column_count; column++) {
        widths[column] = table->least[column] = column_width(table, column);
        sum += widths[column] + (column > 0 ? GAP : 0);
    }
    for (size_t column = 0; column < table->column_count && terminal > 0 && sum > terminal; column++) {
        if (!table->columns[column].shrinkable)
            continue;
        size_t excess = sum - terminal;
        size_t least = widths[column] < SHRUNK_MINIMUM ? widths[column] : SHRUNK_MINIMUM;
        widths[column] = widths[column] > excess + least ? widths[column] - excess : least;
        break;
    }
}

/* Bytes of the first `columns` code points. */
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
    if (style != AOTICACHE_CLI_PLAIN)
        fputs(aoticache_cli_style_begin(cli, style), stdout);
    for (size_t column = 0; column < table->column_count; column++) {
        const char *cell = titles ? table->columns[column].title : table->cells[row * table->column_count + column];
        print_cell(cell, widths[column], table->columns[column].right, column + 1 == table->column_count);
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
