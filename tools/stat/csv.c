/*
 * tools/stat/csv: comma-separated values (RFC 4180, except that line ends are plain newlines): a line of names, then one
 * line for each number, group, entry or slot.
 */
#include "base/names.h"
#include "tools/stat/stat.h"

#include <inttypes.h>
#include <string.h>

/* Prints a text. Some programs treat a field that begins with one of = + - @ as a formula: text from elsewhere must not
 * become one. */
static void print_text(const char *text)
{
    bool is_formula = text[0] != '\0' && strchr("=+-@\t\r", text[0]) != NULL;
    if (!is_formula && strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, stdout);
        return;
    }
    fputs(is_formula ? "\"'" : "\"", stdout);
    for (; *text != '\0'; text++)
        fputs(*text == '"' ? "\"\"" : (char[]){*text, '\0'}, stdout);
    putchar('"');
}

static void print_value(const char *name, uint64_t value)
{
    printf("%s,%" PRIu64 "\n", name, value);
}

static void print_totals(const stat_view *view)
{
    const aoticache_statistics *statistics = &view->statistics;
    const aoticache_counters *counters = &statistics->counters;
    printf("name,value\n");
    print_value("since_ns", (uint64_t)statistics->since_ns);
    print_value("entries", statistics->entries);
    print_value("artifacts", statistics->artifacts);
    print_value("objects", statistics->objects);
    print_value("bytes", statistics->bytes);
    print_value("index_bytes", view->disk.index_bytes);
    print_value("failures_remembered", statistics->failures_remembered);
#define PRINT_COUNTER(name, text) print_value(#name, counters->name);
    AOTICACHE_COUNTER_LIST(PRINT_COUNTER)
#undef PRINT_COUNTER
#define PRINT_DERIVED(name, text) print_value(#name, aoticache_counters_##name(counters));
    AOTICACHE_DERIVED_COUNTER_LIST(PRINT_DERIVED)
#undef PRINT_DERIVED
    for (int i = 0; i < AOTICACHE_LATENCY_COUNT; i++) {
        const aoticache_latency *latency = stat_latency(statistics, i);
        const char *name = aoticache_latency_name(i);
        printf("%s_count,%" PRIu64 "\n%s_p50_ns,%" PRIu64 "\n%s_p90_ns,%" PRIu64 "\n%s_p99_ns,%" PRIu64
               "\n%s_max_ns,%" PRIu64 "\n",
               name, latency->count, name, latency->p50_ns, name, latency->p90_ns, name, latency->p99_ns, name,
               latency->max_ns);
    }
}

static void print_groups(const stat_view *view)
{
    printf("%s", stat_kind_names[view->request->by]);
#define PRINT_TITLE(column, text) printf(",%s", #column);
    AOTICACHE_GROUP_COLUMN_LIST(PRINT_TITLE)
#undef PRINT_TITLE
    putchar('\n');
    for (size_t i = 0; i < view->groups.count && i < view->request->top; i++) {
        print_text(view->groups.items[i].name);
#define PRINT_COLUMN(column, text) printf(",%" PRIu64, view->groups.items[i].sums.column);
        AOTICACHE_GROUP_COLUMN_LIST(PRINT_COLUMN)
#undef PRINT_COLUMN
        putchar('\n');
    }
}

static void print_entries(const char *list, const stat_entries *entries)
{
    for (size_t i = 0; i < entries->count; i++) {
        const stat_entry *entry = &entries->items[i];
        char hex[AOTICACHE_DIGEST_HEX_BYTES];
        aoticache_digest_to_hex(&entry->key, hex);
        printf("%s,%s,", list, hex);
        print_text(entry->description);
        putchar(',');
        print_text(entry->producer);
        printf(",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRId64 "\n", entry->bytes, entry->compile_ns, entry->uses,
               entry->last_used_ns);
    }
}

static void print_history(const stat_view *view)
{
    printf("start_ns");
#define PRINT_TITLE(name, text) printf(",%s", #name);
    AOTICACHE_COUNTER_LIST(PRINT_TITLE)
    AOTICACHE_DERIVED_COUNTER_LIST(PRINT_TITLE)
#undef PRINT_TITLE
    putchar('\n');
    for (size_t i = 0; i < view->history.count; i++) {
        printf("%" PRId64, view->history.items[i].start_ns);
        const aoticache_counters *counters = &view->history.items[i].counters;
#define PRINT_COUNTER(name, text) printf(",%" PRIu64, counters->name);
        AOTICACHE_COUNTER_LIST(PRINT_COUNTER)
#undef PRINT_COUNTER
#define PRINT_DERIVED(name, text) printf(",%" PRIu64, aoticache_counters_##name(counters));
        AOTICACHE_DERIVED_COUNTER_LIST(PRINT_DERIVED)
#undef PRINT_DERIVED
        putchar('\n');
    }
}

void stat_print_csv(const stat_view *view)
{
    if (view->request->by_group) {
        print_groups(view);
    } else if (view->request->with_entries) {
        printf("list,key,description,producer,bytes,compile_ns,uses,last_used_ns\n");
        print_entries("largest", &view->largest);
        print_entries("coldest", &view->coldest);
    } else if (view->request->with_history) {
        print_history(view);
    } else {
        print_totals(view);
    }
}
