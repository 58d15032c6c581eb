/*
 * tools/stat/text: the text view: the most important lines, and with --verbose all numbers.
 *
 * A counter is printed under its own name, as written by stat_label(): the macros derive it from the name of the member.
 */
#include "base/cleanup.h"
#include "cache/config/config.h"
#include "tools/stat/stat.h"

#include <inttypes.h>
#include <string.h>

#define REMARK_BYTES 160

/* ---- the most important lines ---- */

static void print_line(const stat_view *view, const char *label, const char *value, const char *remark)
{
    const aoticache_cli *cli = view->cli;
    cleanup_free char *escaped = aoticache_cli_escape(value);
    printf("%s%-20s%s %s%s%s%s\n", aoticache_cli_style_begin(cli, AOTICACHE_CLI_DIM), label,
           aoticache_cli_style_begin(cli, AOTICACHE_CLI_PLAIN), escaped, remark[0] != '\0' ? " (" : "", remark,
           remark[0] != '\0' ? ")" : "");
}

static void print_number(const stat_view *view, const char *name, uint64_t number, const char *remark)
{
    char label[STAT_LABEL_BYTES], text[AOTICACHE_CLI_UNIT_BYTES];
    stat_label(name, label);
    if (strlen(name) > 3 && strcmp(name + strlen(name) - 3, "_ns") == 0)
        aoticache_cli_format_duration(number, text);
    else
        snprintf(text, sizeof text, "%" PRIu64, number);
    print_line(view, label, text, remark);
}

#define PRINT_NUMBER(view, member, remark) print_number(view, #member, (view)->statistics.counters.member, remark)

static void print_since(const stat_view *view)
{
    const aoticache_statistics *statistics = &view->statistics;
    const bool is_zeroed = statistics->zeroed_ns != 0 && statistics->since_ns == statistics->zeroed_ns;
    char time[AOTICACHE_CLI_UNIT_BYTES], age[AOTICACHE_CLI_UNIT_BYTES], remark[AOTICACHE_CLI_UNIT_BYTES + 16];
    snprintf(remark, sizeof remark, "%s%s", is_zeroed ? "zeroed " : "",
             aoticache_cli_format_age(statistics->since_ns, age));
    print_line(view, "cache", view->directory, "");
    print_line(view, "since", aoticache_cli_format_time(statistics->since_ns, time), remark);
}

/* Writes the reason of most misses, unless the reason is that there was no entry. */
static void format_reason(const aoticache_counters *counters, char *ret_text, size_t size)
{
    uint64_t most = aoticache_counters_misses_absent(counters);
    char label[STAT_LABEL_BYTES];
    ret_text[0] = '\0';
#define COMPARE(reason)                                                            \
    if (counters->reason > most) {                                                 \
        most = counters->reason;                                                   \
        snprintf(ret_text, size, "%s %" PRIu64, stat_label(#reason, label), most); \
    }
    COMPARE(misses_requirement)
    COMPARE(misses_guard)
    COMPARE(misses_damaged)
    COMPARE(misses_failed)
#undef COMPARE
}

static void format_compiles(const aoticache_counters *counters, char *ret_text, size_t size)
{
    char failures[REMARK_BYTES] = "", time[AOTICACHE_CLI_UNIT_BYTES];
    if (counters->compile_failures > 0)
        snprintf(failures, sizeof failures, ", compile failures %" PRIu64, counters->compile_failures);
    snprintf(ret_text, size, "compile time %s%s", aoticache_cli_format_duration(counters->compile_ns, time), failures);
    if (counters->compiles + counters->compile_failures == 0)
        ret_text[0] = '\0';
}

static void print_calls(const stat_view *view)
{
    const aoticache_counters *counters = &view->statistics.counters;
    char remark[REMARK_BYTES] = "";
    if (counters->hits + counters->misses > 0)
        snprintf(remark, sizeof remark, "%.1f %%", 100 * stat_hit_rate(counters));
    PRINT_NUMBER(view, hits, remark);
    format_reason(counters, remark, sizeof remark);
    PRINT_NUMBER(view, misses, remark);
    format_compiles(counters, remark, sizeof remark);
    PRINT_NUMBER(view, compiles, remark);
    PRINT_NUMBER(view, saved_ns, "");
}

/* Writes a number with its limit, if there is one, and sets the remark to the share of the limit. */
static void format_with_limit(const char *number, const char *limit, double share, char *ret_text, size_t size,
                              char *ret_remark, size_t remark_size)
{
    snprintf(ret_text, size, "%s of %s", number, limit);
    snprintf(ret_remark, remark_size, "%.1f %%", 100 * share);
}

static void print_room(const stat_view *view)
{
    const aoticache_statistics *statistics = &view->statistics;
    const aoticache_config *config = aoticache_cli_config(view->cli);
    const uint64_t max_size = aoticache_config_get(config, AOTICACHE_CONFIG_max_size).number;
    const uint64_t max_entries = aoticache_config_get(config, AOTICACHE_CONFIG_max_entries).number;
    char number[AOTICACHE_CLI_UNIT_BYTES], limit[AOTICACHE_CLI_UNIT_BYTES];
    char text[REMARK_BYTES], remark[REMARK_BYTES] = "";
    aoticache_cli_format_bytes(statistics->bytes, number);
    snprintf(text, sizeof text, "%s", number);
    if (max_size > 0)
        format_with_limit(number, aoticache_cli_format_bytes(max_size, limit),
                          (double)statistics->bytes / (double)max_size, text, sizeof text, remark, sizeof remark);
    else if (view->disk.filesystem_bytes > 0)
        snprintf(remark, sizeof remark, "no limit, %s free",
                 aoticache_cli_format_bytes(view->disk.filesystem_free_bytes, limit));
    print_line(view, "size", text, remark);
    snprintf(number, sizeof number, "%" PRIu64, statistics->entries);
    snprintf(text, sizeof text, "%s", number);
    snprintf(limit, sizeof limit, "%" PRIu64, max_entries);
    remark[0] = '\0';
    if (max_entries > 0)
        format_with_limit(number, limit, (double)statistics->entries / (double)max_entries, text, sizeof text, remark,
                          sizeof remark);
    print_line(view, "entries", text, remark);
}

/* Prints problems, actual or possible, with advice. */
static void print_attention(const stat_view *view)
{
    if (view->statistics.failures_remembered > 0)
        print_number(view, "failures_remembered", view->statistics.failures_remembered, "see aoticache ls --failed");
#define WARN(member, advice)                  \
    if (view->statistics.counters.member > 0) \
        PRINT_NUMBER(view, member, "see " advice);
    WARN(not_stored, "aoticache doctor")
    WARN(damaged, "aoticache verify")
    WARN(refused_untrusted, "aoticache key list")
    WARN(remote_errors, "aoticache doctor")
    WARN(remote_refused, "aoticache doctor")
    WARN(remote_backoffs, "aoticache doctor")
#undef WARN
}

void stat_print_summary(const stat_view *view)
{
    print_since(view);
    print_calls(view);
    print_room(view);
    print_attention(view);
}

/* ---- all numbers ---- */

/* Prints a line. depth: 1: under a heading; 2: a part of the line above. */
static void print_words(int depth, const char *name, const char *text, const char *remark)
{
    char label[STAT_LABEL_BYTES];
    printf("%*s%-*s %12s%s%s\n", 2 * depth, "", 26 - 2 * depth, stat_label(name, label), text,
           remark[0] != '\0' ? "   " : "", remark);
}

static void print_count(int depth, const char *name, uint64_t count, const char *remark)
{
    char text[AOTICACHE_CLI_UNIT_BYTES];
    snprintf(text, sizeof text, "%" PRIu64, count);
    print_words(depth, name, text, remark);
}

static void print_bytes(int depth, const char *name, uint64_t bytes, const char *remark)
{
    char text[AOTICACHE_CLI_UNIT_BYTES];
    print_words(depth, name, aoticache_cli_format_bytes(bytes, text), remark);
}

static void print_time(int depth, const char *name, uint64_t ns, const char *remark)
{
    char text[AOTICACHE_CLI_UNIT_BYTES];
    print_words(depth, name, aoticache_cli_format_duration(ns, text), remark);
}

#define PRINT_COUNT(depth, counters, member, remark) print_count(depth, #member, (counters)->member, remark)
#define PRINT_BYTES(depth, counters, member, remark) print_bytes(depth, #member, (counters)->member, remark)
#define PRINT_TIME(depth, counters, member, remark) print_time(depth, #member, (counters)->member, remark)
#define PRINT_DERIVED(depth, counters, name, remark) \
    print_count(depth, #name, aoticache_counters_##name(counters), remark)

static void print_heading(const aoticache_cli *cli, const char *name)
{
    printf("\n%s%s%s\n", aoticache_cli_style_begin(cli, AOTICACHE_CLI_BOLD), name,
           aoticache_cli_style_begin(cli, AOTICACHE_CLI_PLAIN));
}

static void print_contents(const stat_view *view)
{
    const aoticache_statistics *statistics = &view->statistics;
    char free_bytes[AOTICACHE_CLI_UNIT_BYTES], remark[AOTICACHE_CLI_UNIT_BYTES + 48] = "";
    print_since(view);
    print_heading(view->cli, "Contents");
    PRINT_COUNT(1, statistics, entries, "");
    PRINT_COUNT(1, statistics, artifacts, "");
    PRINT_COUNT(1, statistics, objects, "");
    if (view->disk.filesystem_bytes > 0)
        snprintf(remark, sizeof remark, "%s free",
                 aoticache_cli_format_bytes(view->disk.filesystem_free_bytes, free_bytes));
    print_bytes(1, "size", statistics->bytes, remark);
    print_bytes(1, "size of the index", view->disk.index_bytes, "");
    if (view->disk.quarantine_files > 0) {
        snprintf(remark, sizeof remark, "%" PRIu64 " files", view->disk.quarantine_files);
        print_bytes(1, "in quarantine", view->disk.quarantine_bytes, remark);
    }
    PRINT_COUNT(1, statistics, failures_remembered, statistics->failures_remembered > 0 ? "aoticache ls --failed" : "");
}

static void print_lookups(const stat_view *view)
{
    const aoticache_counters *counters = &view->statistics.counters;
    char text[AOTICACHE_CLI_UNIT_BYTES];
    print_heading(view->cli, "Lookups");
    snprintf(text, sizeof text, "%.1f %%", 100 * stat_hit_rate(counters));
    PRINT_COUNT(1, counters, hits, counters->hits + counters->misses > 0 ? text : "");
    PRINT_COUNT(2, counters, hits_loaded, "");
    PRINT_DERIVED(2, counters, hits_index, "");
    PRINT_COUNT(2, counters, hits_remote, "");
    PRINT_COUNT(2, counters, hits_dynamic, "");
    PRINT_COUNT(1, counters, misses, "");
    PRINT_DERIVED(2, counters, misses_absent, "");
    PRINT_COUNT(2, counters, misses_requirement, "");
    PRINT_COUNT(2, counters, misses_guard, "");
    PRINT_COUNT(2, counters, misses_damaged, "");
    PRINT_COUNT(2, counters, misses_failed, "");
    PRINT_COUNT(2, counters, waits, "");
    PRINT_TIME(1, counters, lookup_ns, "");
    PRINT_COUNT(1, counters, loads, "");
    PRINT_TIME(1, counters, load_ns, "");
    PRINT_COUNT(1, counters, judged, "");
    PRINT_COUNT(2, counters, judged_slower, "");
    PRINT_COUNT(1, counters, calls_lost, "");
}

static void print_compiles(const stat_view *view)
{
    const aoticache_counters *counters = &view->statistics.counters;
    print_heading(view->cli, "Compiles");
    PRINT_COUNT(1, counters, compiles, "");
    PRINT_COUNT(2, counters, compiles_fallback, "");
    PRINT_COUNT(1, counters, compile_failures, "");
    PRINT_TIME(1, counters, compile_ns, "");
    PRINT_TIME(1, counters, saved_ns, "");
    PRINT_COUNT(1, counters, lease_waits, "");
    PRINT_TIME(1, counters, lease_wait_ns, "");
}

static void print_remotes(const stat_view *view)
{
    const aoticache_counters *counters = &view->statistics.counters;
    if (counters->sent_bytes + counters->fetched_bytes + counters->remote_errors + counters->remote_refused +
            counters->remote_backoffs ==
        0)
        return;
    print_heading(view->cli, "Remotes");
    PRINT_BYTES(1, counters, fetched_bytes, "");
    PRINT_BYTES(1, counters, sent_bytes, "");
    PRINT_COUNT(1, counters, remote_refused, "");
    PRINT_COUNT(1, counters, remote_errors, "");
    PRINT_COUNT(1, counters, remote_backoffs, counters->remote_backoffs > 0 ? "aoticache doctor" : "");
}

static void print_store(const stat_view *view)
{
    const aoticache_counters *counters = &view->statistics.counters;
    print_heading(view->cli, "Store");
    PRINT_BYTES(1, counters, stored_bytes, "");
    PRINT_COUNT(1, counters, not_stored, "");
    PRINT_COUNT(1, counters, damaged, "");
    PRINT_COUNT(1, counters, refused_untrusted, "");
    PRINT_COUNT(1, counters, evicted, "");
    PRINT_BYTES(1, counters, evicted_bytes, "");
}

static void print_latencies(const stat_view *view)
{
    static const aoticache_cli_column columns[] = {{.title = "Latencies"},           {.title = "count", .right = true},
                                                   {.title = "mean", .right = true}, {.title = "p50", .right = true},
                                                   {.title = "p90", .right = true},  {.title = "p99", .right = true},
                                                   {.title = "max", .right = true}};
    aoticache_cli_table *table = aoticache_cli_table_create(columns, 7);
    for (int i = 0; i < AOTICACHE_LATENCY_COUNT; i++) {
        const aoticache_latency *latency = stat_latency(&view->statistics, i);
        const uint64_t values[] = {stat_mean(latency->sum_ns, latency->count), latency->p50_ns, latency->p90_ns,
                                   latency->p99_ns, latency->max_ns};
        char label[STAT_LABEL_BYTES], name[STAT_LABEL_BYTES + 2];
        char count[AOTICACHE_CLI_UNIT_BYTES], texts[5][AOTICACHE_CLI_UNIT_BYTES];
        const char *cells[7] = {name, count};
        snprintf(name, sizeof name, "  %s", stat_label(aoticache_latency_name(i), label));
        snprintf(count, sizeof count, "%" PRIu64, latency->count);
        for (int k = 0; k < 5; k++)
            cells[k + 2] = latency->count > 0 ? aoticache_cli_format_duration(values[k], texts[k]) : "-";
        aoticache_cli_table_add(table, latency->count > 0 ? AOTICACHE_CLI_PLAIN : AOTICACHE_CLI_DIM, cells);
    }
    putchar('\n');
    aoticache_cli_table_print(table, view->cli);
    aoticache_cli_table_free(table);
}

void stat_print_all(const stat_view *view)
{
    print_contents(view);
    print_lookups(view);
    print_compiles(view);
    print_remotes(view);
    print_store(view);
    print_latencies(view);
}

void stat_print_short(const stat_view *view)
{
    stat_print_summary(view);
    print_latencies(view);
}
