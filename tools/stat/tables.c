/*
 * tools/stat/tables: groups, entries and history as tables.
 */
#include "base/names.h"
#include "tools/stat/stat.h"

#include <inttypes.h>
#include <string.h>

static const char *format_count(uint64_t count, char ret_text[AOTICACHE_CLI_UNIT_BYTES])
{
    snprintf(ret_text, AOTICACHE_CLI_UNIT_BYTES, "%" PRIu64, count);
    return ret_text;
}

static const char *format_rate(uint64_t hits, uint64_t misses, char ret_text[AOTICACHE_CLI_UNIT_BYTES])
{
    if (hits + misses == 0)
        return "-";
    snprintf(ret_text, AOTICACHE_CLI_UNIT_BYTES, "%.1f %%", 100 * (double)hits / (double)(hits + misses));
    return ret_text;
}

static void add_group(aoticache_cli_table *table, const stat_group *group)
{
    const aoticache_group *sums = &group->sums;
    char texts[9][AOTICACHE_CLI_UNIT_BYTES];
    const char *cells[] = {group->name,
                           format_count(sums->hits, texts[0]),
                           format_count(sums->misses, texts[1]),
                           format_rate(sums->hits, sums->misses, texts[2]),
                           format_count(sums->compiles, texts[3]),
                           format_count(sums->compile_failures, texts[4]),
                           aoticache_cli_format_duration(sums->compile_ns, texts[5]),
                           aoticache_cli_format_duration(sums->saved_ns, texts[6]),
                           format_count(sums->entries, texts[7]),
                           aoticache_cli_format_bytes(sums->bytes, texts[8])};
    aoticache_cli_table_add(table, AOTICACHE_CLI_PLAIN, cells);
}

void stat_print_groups(const stat_view *view)
{
    const aoticache_cli_column columns[] = {{.title = stat_kind_names[view->request->by], .gives_way = 1},
                                            {.title = "hits", .right = true},
                                            {.title = "misses", .right = true},
                                            {.title = "rate", .right = true, .gives_way = 3},
                                            {.title = "compiles", .right = true},
                                            {.title = "compile failures", .right = true, .gives_way = 4},
                                            {.title = "compile time", .right = true},
                                            {.title = "saved time", .right = true},
                                            {.title = "entries", .right = true, .gives_way = 2},
                                            {.title = "bytes", .right = true}};
    aoticache_cli_table *table = aoticache_cli_table_create(columns, sizeof columns / sizeof columns[0]);
    const size_t shown = view->groups.count < view->request->top ? view->groups.count : view->request->top;
    for (size_t i = 0; i < shown; i++)
        add_group(table, &view->groups.items[i]);
    aoticache_cli_table_print(table, view->cli);
    aoticache_cli_table_free(table);
    if (shown < view->groups.count)
        aoticache_cli_note(view->cli, "%zu of %zu shown, by %s; --top %zu shows all", shown, view->groups.count,
                           view->request->sort, view->groups.count);
}

static void print_some(const stat_view *view, const char *title, const stat_entries *entries)
{
    const aoticache_cli_column columns[] = {{.title = title},
                                            {.title = "size", .right = true},
                                            {.title = "last used", .right = true},
                                            {.title = "uses", .right = true},
                                            {.title = "kernel", .gives_way = 1}};
    aoticache_cli_table *table = aoticache_cli_table_create(columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < entries->count; i++) {
        const stat_entry *entry = &entries->items[i];
        char hex[AOTICACHE_DIGEST_HEX_BYTES], texts[3][AOTICACHE_CLI_UNIT_BYTES];
        aoticache_digest_to_hex(&entry->key, hex);
        hex[12] = '\0';
        const char *cells[] = {hex, aoticache_cli_format_bytes(entry->bytes, texts[0]),
                               aoticache_cli_format_age(entry->last_used_ns, texts[1]),
                               format_count(entry->uses, texts[2]), entry->description};
        aoticache_cli_table_add(table, AOTICACHE_CLI_PLAIN, cells);
    }
    aoticache_cli_table_print(table, view->cli);
    aoticache_cli_table_free(table);
}

void stat_print_entries(const stat_view *view)
{
    print_some(view, "largest", &view->largest);
    putchar('\n');
    print_some(view, "coldest", &view->coldest);
}

void stat_print_history(const stat_view *view)
{
    static const aoticache_cli_column columns[] = {{.title = "from"},
                                                   {.title = "hits", .right = true},
                                                   {.title = "misses", .right = true},
                                                   {.title = "rate", .right = true},
                                                   {.title = "compiles", .right = true},
                                                   {.title = "compile time", .right = true},
                                                   {.title = "saved time", .right = true},
                                                   {.title = "evicted", .right = true}};
    aoticache_cli_table *table = aoticache_cli_table_create(columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < view->history.count; i++) {
        const aoticache_counters *counters = &view->history.items[i].counters;
        char texts[8][AOTICACHE_CLI_UNIT_BYTES];
        const char *cells[] = {aoticache_cli_format_time(view->history.items[i].start_ns, texts[0]),
                               format_count(counters->hits, texts[1]),
                               format_count(counters->misses, texts[2]),
                               format_rate(counters->hits, counters->misses, texts[3]),
                               format_count(counters->compiles, texts[4]),
                               aoticache_cli_format_duration(counters->compile_ns, texts[5]),
                               aoticache_cli_format_duration(counters->saved_ns, texts[6]),
                               format_count(counters->evicted, texts[7])};
        aoticache_cli_table_add(table, AOTICACHE_CLI_PLAIN, cells);
    }
    aoticache_cli_table_print(table, view->cli);
    aoticache_cli_table_free(table);
}
