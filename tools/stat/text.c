/*
 * tools/stat/text: the view for people.
 */
#include "tools/stat/stat.h"

#include <inttypes.h>

static void print_count(const char *name, uint64_t count, const char *remark)
{
    printf("%-26s %12" PRIu64 "%s%s\n", name, count, remark[0] != '\0' ? "   " : "", remark);
}

static void print_words(const char *name, const char *text, const char *remark)
{
    printf("%-26s %12s%s%s\n", name, text, remark[0] != '\0' ? "   " : "", remark);
}

static void print_bytes(const char *name, uint64_t bytes, const char *remark)
{
    char text[AOTICACHE_CLI_UNIT_BYTES];
    print_words(name, aoticache_cli_format_bytes(bytes, text), remark);
}

static void print_heading(const aoticache_cli *cli, const char *name)
{
    printf("\n%s%s%s\n", aoticache_cli_style_begin(cli, AOTICACHE_CLI_BOLD), name,
           aoticache_cli_style_begin(cli, AOTICACHE_CLI_PLAIN));
}

static void print_contents(const stat_view *view)
{
    const aoticache_statistics *statistics = &view->statistics;
    char time[AOTICACHE_CLI_UNIT_BYTES], age[AOTICACHE_CLI_UNIT_BYTES], free_bytes[AOTICACHE_CLI_UNIT_BYTES];
    char remark[AOTICACHE_CLI_UNIT_BYTES + 48] = "";
    aoticache_cli_print_field(view->cli, "cache", "%s", view->directory);
    bool is_zeroed = statistics->zeroed_ns != 0 && statistics->since_ns == statistics->zeroed_ns;
    aoticache_cli_print_field(view->cli, "since", "%s (%s%s)", aoticache_cli_format_time(statistics->since_ns, time),
                              is_zeroed ? "zeroed " : "", aoticache_cli_format_age(statistics->since_ns, age));
    print_heading(view->cli, "Contents");
    print_count("  entries", statistics->entries, "");
    print_count("  objects", statistics->objects, "");
    if (view->disk.filesystem_bytes > 0)
        snprintf(remark, sizeof remark, "%s free",
                 aoticache_cli_format_bytes(view->disk.filesystem_free_bytes, free_bytes));
    print_bytes("  size", statistics->bytes, remark);
    print_bytes("  size of the index", view->disk.index_bytes, "");
    if (view->disk.quarantine_files > 0) {
        snprintf(remark, sizeof remark, "%" PRIu64 " files", view->disk.quarantine_files);
        print_bytes("  in quarantine", view->disk.quarantine_bytes, remark);
    }
    print_count("  failures remembered", statistics->failures, statistics->failures > 0 ? "aoticache ls --failed" : "");
}

static void print_lookups(const stat_view *view)
{
    const aoticache_counters *counters = &view->statistics.counters;
    char text[AOTICACHE_CLI_UNIT_BYTES];
    print_heading(view->cli, "Lookups");
    snprintf(text, sizeof text, "%.1f %%", 100 * stat_hit_rate(counters));
    print_count("  hits", counters->hits, counters->hits + counters->misses > 0 ? text : "");
    print_count("    loaded already", counters->hits_loaded, "");
    print_count("    found in the index", aoticache_counters_hits_index(counters), "");
    print_count("    fetched from a remote", counters->hits_remote, "");
    print_count("    for many shapes", counters->hits_dynamic, "");
    print_count("  misses", counters->misses, "");
    print_count("    no entry", aoticache_counters_misses_absent(counters), "");
    print_count("    CPU feature missing", counters->misses_requirement, "");
    print_count("    no guard fits", counters->misses_guard, "");
    print_count("    damaged", counters->misses_damaged, "");
    print_count("    failed before", counters->misses_failed, "");
    print_count("  waited for another", counters->waits, "");
    print_count("  kernels judged", counters->judged, "");
    print_count("    slower than the host's", counters->judged_slower, "");
    print_count("  calls left to the host", counters->calls_lost, "");
}

static void print_compiles(const stat_view *view)
{
    const aoticache_counters *counters = &view->statistics.counters;
    char text[AOTICACHE_CLI_UNIT_BYTES];
    print_heading(view->cli, "Compiles");
    print_count("  succeeded", counters->compiles, "");
    print_count("  built PyTorch's way", counters->compiles_fallback, "");
    print_count("  failed", counters->compile_failures, "");
    print_words("  time spent", aoticache_cli_format_duration(counters->compile_ns, text), "");
    print_words("  time saved by hits", aoticache_cli_format_duration(counters->saved_ns, text), "");
    print_count("  lease waits", counters->lease_waits, "");
    print_count("  could not be stored", counters->not_stored, "");
}

static void print_remotes(const stat_view *view)
{
    const aoticache_counters *counters = &view->statistics.counters;
    if (counters->sent_bytes + counters->fetched_bytes + counters->remote_errors + counters->remote_refused == 0)
        return;
    print_heading(view->cli, "Remotes");
    print_bytes("  fetched", counters->fetched_bytes, "");
    print_bytes("  sent", counters->sent_bytes, "");
    print_count("  refused", counters->remote_refused, "");
    print_count("  failures", counters->remote_errors, "");
    print_count("  left alone after a failure", counters->remote_rests,
                counters->remote_rests > 0 ? "aoticache doctor" : "");
}

static void print_store(const stat_view *view)
{
    const aoticache_counters *counters = &view->statistics.counters;
    print_heading(view->cli, "Store");
    print_bytes("  written", counters->stored_bytes, "");
    print_count("  objects found damaged", counters->damaged, "");
    print_count("  entries refused as untrusted", counters->refused_untrusted, "");
    print_count("  entries collected", counters->evicted, "");
    print_bytes("  bytes collected", counters->evicted_bytes, "");
}

static void print_latencies(const stat_view *view)
{
    static const char *const names[] = {
        "  lookup",          "  load", "  compile", "  wait for a lease", "  age at eviction", "  fetch from a remote",
        "  send to a remote"};
    static const aoticache_cli_column columns[] = {{.title = "Latencies"},           {.title = "count", .right = true},
                                                   {.title = "mean", .right = true}, {.title = "p50", .right = true},
                                                   {.title = "p90", .right = true},  {.title = "p99", .right = true},
                                                   {.title = "max", .right = true}};
    aoticache_cli_table *table = aoticache_cli_table_create(columns, 7);
    for (int i = 0; i < AOTICACHE_LATENCY_COUNT; i++) {
        const aoticache_latency *latency = stat_latency(&view->statistics, i);
        const uint64_t values[] = {stat_mean(latency->sum_ns, latency->count), latency->p50_ns, latency->p90_ns,
                                   latency->p99_ns, latency->max_ns};
        char count[AOTICACHE_CLI_UNIT_BYTES], texts[5][AOTICACHE_CLI_UNIT_BYTES];
        const char *cells[7] = {names[i], count};
        snprintf(count, sizeof count, "%" PRIu64, latency->count);
        for (int k = 0; k < 5; k++)
            cells[k + 2] = latency->count > 0 ? aoticache_cli_format_duration(values[k], texts[k]) : "-";
        aoticache_cli_table_add(table, latency->count > 0 ? AOTICACHE_CLI_PLAIN : AOTICACHE_CLI_DIM, cells);
    }
    putchar('\n');
    aoticache_cli_table_print(table, view->cli);
    aoticache_cli_table_free(table);
}

void stat_print_text(const stat_view *view)
{
    print_contents(view);
    print_lookups(view);
    print_compiles(view);
    print_remotes(view);
    print_store(view);
    print_latencies(view);
}

/* ---- in short ---- */

static void print_brief_lookups(const stat_view *view)
{
    const aoticache_counters *counters = &view->statistics.counters;
    const uint64_t lookups = counters->hits + counters->misses;
    aoticache_cli_print_field(view->cli, "lookups", "%" PRIu64 ": %" PRIu64 " hits (%.1f %%), %" PRIu64 " misses",
                              lookups, counters->hits, 100 * stat_hit_rate(counters), counters->misses);
    aoticache_cli_print_field(
        view->cli, "hits", "%" PRIu64 " loaded, %" PRIu64 " indexed, %" PRIu64 " remote; %" PRIu64 " for many shapes",
        counters->hits_loaded, aoticache_counters_hits_index(counters), counters->hits_remote, counters->hits_dynamic);
    aoticache_cli_print_field(view->cli, "misses",
                              "%" PRIu64 " no entry, %" PRIu64 " CPU, %" PRIu64 " guard, %" PRIu64 " damaged, %" PRIu64
                              " failed before",
                              aoticache_counters_misses_absent(counters), counters->misses_requirement,
                              counters->misses_guard, counters->misses_damaged, counters->misses_failed);
}

static void print_brief_store(const stat_view *view)
{
    const aoticache_counters *counters = &view->statistics.counters;
    char spent[AOTICACHE_CLI_UNIT_BYTES], saved[AOTICACHE_CLI_UNIT_BYTES];
    char written[AOTICACHE_CLI_UNIT_BYTES], collected[AOTICACHE_CLI_UNIT_BYTES];
    aoticache_cli_print_field(view->cli, "compiles", "%" PRIu64 ", %" PRIu64 " failed; %s spent, %s saved by hits",
                              counters->compiles, counters->compile_failures,
                              aoticache_cli_format_duration(counters->compile_ns, spent),
                              aoticache_cli_format_duration(counters->saved_ns, saved));
    aoticache_cli_print_field(view->cli, "store", "%s written, %" PRIu64 " entries (%s) collected, %" PRIu64 " damaged",
                              aoticache_cli_format_bytes(counters->stored_bytes, written), counters->evicted,
                              aoticache_cli_format_bytes(counters->evicted_bytes, collected), counters->damaged);
}

void stat_print_brief(const stat_view *view)
{
    const aoticache_statistics *statistics = &view->statistics;
    char bytes[AOTICACHE_CLI_UNIT_BYTES], room[AOTICACHE_CLI_UNIT_BYTES], age[AOTICACHE_CLI_UNIT_BYTES];
    aoticache_cli_print_field(view->cli, "cache", "%s", view->directory);
    aoticache_cli_print_field(view->cli, "holds", "%" PRIu64 " entries, %" PRIu64 " objects, %s; %s free",
                              statistics->entries, statistics->objects,
                              aoticache_cli_format_bytes(statistics->bytes, bytes),
                              aoticache_cli_format_bytes(view->disk.filesystem_free_bytes, room));
    aoticache_cli_print_field(view->cli, "counted for", "%s; %" PRIu64 " failures remembered",
                              aoticache_cli_format_age(statistics->since_ns, age), statistics->failures);
    print_brief_lookups(view);
    print_brief_store(view);
    print_latencies(view);
}
