/*
 * aoticache-stat: why something is slow, or that it is not: counters of all processes that use a cache directory.
 */
#include "cache/tools/cli.h"

#include <inttypes.h>

static const aoticache_cli_option stat_options[] = {{0, NULL, 0, NULL, NULL}};

static const aoticache_cli_program stat_program = {
    .name = "aoticache-stat",
    .help_hint = "aoticache-stat --help",
    .usage = "[OPTION]...",
    .summary = "Prints the statistics of a cache: hits, misses and why, compiles, time spent and saved, bytes.",
    .options = stat_options,
    .details = "Counters are those of all processes since the cache was made. A process adds its own when it\n"
               "misses, stores or ends: what a running one has only hit may not be counted yet.",
};

static double hit_rate(const aoticache_counters *counters)
{
    uint64_t lookups = counters->hits + counters->misses;
    return lookups > 0 ? (double)counters->hits / (double)lookups : 0;
}

static uint64_t mean(uint64_t sum, uint64_t count)
{
    return count > 0 ? sum / count : 0;
}

static uint64_t lookups_that_hit(const aoticache_counters *counters)
{
    return counters->hits > counters->hits_loaded ? counters->hits - counters->hits_loaded : 0;
}

/* Misses with no reason of their own: no entry had the key. */
static uint64_t misses_absent(const aoticache_counters *counters)
{
    uint64_t explained = counters->misses_requirement + counters->misses_damaged + counters->misses_failed;
    return counters->misses > explained ? counters->misses - explained : 0;
}

static void print_json(const char *directory, const aoticache_statistics *statistics)
{
    const aoticache_counters *counters = &statistics->counters;
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(directory));
    aoticache_cli_json_set(object, "created_ns", aoticache_cli_json_count((uint64_t)statistics->created_ns));
    aoticache_cli_json_set(object, "entries", aoticache_cli_json_count(statistics->entries));
    aoticache_cli_json_set(object, "artifacts", aoticache_cli_json_count(statistics->artifacts));
    aoticache_cli_json_set(object, "objects", aoticache_cli_json_count(statistics->objects));
    aoticache_cli_json_set(object, "bytes", aoticache_cli_json_count(statistics->bytes));
    aoticache_cli_json_set(object, "failures", aoticache_cli_json_count(statistics->failures));
    json_t *all = aoticache_cli_json_object();
#define SET_COUNTER(name, text) aoticache_cli_json_set(all, #name, aoticache_cli_json_count(counters->name));
    AOTICACHE_COUNTER_LIST(SET_COUNTER)
#undef SET_COUNTER
    aoticache_cli_json_set(object, "counters", all);
    aoticache_cli_json_set(object, "hit_rate", aoticache_cli_json_number(hit_rate(counters)));
    aoticache_cli_json_set(object, "mean_lookup_ns",
                           aoticache_cli_json_count(mean(counters->lookup_ns, lookups_that_hit(counters))));
    aoticache_cli_json_set(object, "mean_compile_ns",
                           aoticache_cli_json_count(mean(counters->compile_ns, counters->compiles)));
    aoticache_cli_json_print(object);
}

static void print_count(const char *name, uint64_t count, const char *remark)
{
    printf("%-26s %12" PRIu64 "%s%s\n", name, count, remark[0] != '\0' ? "   " : "", remark);
}

static void print_text(const char *name, const char *text, const char *remark)
{
    printf("%-26s %12s%s%s\n", name, text, remark[0] != '\0' ? "   " : "", remark);
}

static void print_bytes(const char *name, uint64_t bytes)
{
    char text[AOTICACHE_CLI_UNIT_BYTES];
    print_text(name, aoticache_cli_format_bytes(bytes, text), "");
}

static void print_heading(const aoticache_cli *cli, const char *name)
{
    printf("\n%s%s%s\n", aoticache_cli_style_begin(cli, AOTICACHE_CLI_BOLD), name,
           aoticache_cli_style_begin(cli, AOTICACHE_CLI_PLAIN));
}

static void print_contents(const aoticache_cli *cli, const char *directory, const aoticache_statistics *statistics)
{
    char time[AOTICACHE_CLI_UNIT_BYTES], age[AOTICACHE_CLI_UNIT_BYTES];
    aoticache_cli_print_field(cli, "cache", "%s", directory);
    aoticache_cli_print_field(cli, "since", "%s (%s)", aoticache_cli_format_time(statistics->created_ns, time),
                              aoticache_cli_format_age(statistics->created_ns, age));
    print_heading(cli, "Contents");
    print_count("  entries", statistics->entries, "");
    print_count("  objects", statistics->objects, "");
    print_bytes("  size", statistics->bytes);
    print_count("  failures remembered", statistics->failures, statistics->failures > 0 ? "aoticache ls --failed" : "");
}

static void print_lookups(const aoticache_cli *cli, const aoticache_counters *counters)
{
    char text[AOTICACHE_CLI_UNIT_BYTES];
    print_heading(cli, "Lookups");
    snprintf(text, sizeof text, "%.1f %%", 100 * hit_rate(counters));
    print_count("  hits", counters->hits, counters->hits + counters->misses > 0 ? text : "");
    print_count("    for many shapes", counters->hits_guarded, "");
    print_count("    loaded already", counters->hits_loaded, "");
    print_count("  misses", counters->misses, "");
    print_count("    no entry", misses_absent(counters), "");
    print_count("    CPU feature missing", counters->misses_requirement, "");
    print_count("    damaged", counters->misses_damaged, "");
    print_count("    failed before", counters->misses_failed, "");
    print_count("  waited for another", counters->waits, "");
    if (lookups_that_hit(counters) > 0)
        print_text("  mean time of a lookup",
                   aoticache_cli_format_duration(mean(counters->lookup_ns, lookups_that_hit(counters)), text), "");
}

static void print_compiles(const aoticache_cli *cli, const aoticache_counters *counters)
{
    char text[AOTICACHE_CLI_UNIT_BYTES];
    print_heading(cli, "Compiles");
    print_count("  succeeded", counters->compiles, "");
    print_count("  failed", counters->compile_failures, "");
    print_text("  time spent", aoticache_cli_format_duration(counters->compile_ns, text), "");
    print_text("  time saved by hits", aoticache_cli_format_duration(counters->saved_ns, text), "");
    print_count("  could not be stored", counters->not_stored, "");
}

static void print_store(const aoticache_cli *cli, const aoticache_counters *counters)
{
    print_heading(cli, "Store");
    print_bytes("  written", counters->stored_bytes);
    print_count("  objects found damaged", counters->damaged, "");
    print_count("  entries collected", counters->evicted, "");
    print_bytes("  bytes collected", counters->evicted_bytes);
}

static int print_statistics(const aoticache_cli *cli, aoticache_cache *cache)
{
    aoticache_error error = {.message = ""};
    aoticache_statistics statistics = {0};
    aoticache_status status = aoticache_cache_statistics(cache, &statistics, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(cli, status, &error);
    const char *directory = aoticache_cache_directory(cache);
    if (cli->json) {
        print_json(directory, &statistics);
        return AOTICACHE_CLI_EXIT_OK;
    }
    print_contents(cli, directory, &statistics);
    print_lookups(cli, &statistics.counters);
    print_compiles(cli, &statistics.counters);
    print_store(cli, &statistics.counters);
    return AOTICACHE_CLI_EXIT_OK;
}

static int run(aoticache_cli *cli)
{
    const char *value = NULL;
    int id = aoticache_cli_next(cli, &value);
    if (id == AOTICACHE_CLI_STOP)
        return cli->exit_code;
    if (id == AOTICACHE_CLI_OPERAND)
        return aoticache_cli_usage_error(cli, "unexpected argument '%s'", value);
    aoticache_cache *cache = NULL;
    int result = aoticache_cli_open_or_say(cli, false, &cache);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    result = print_statistics(cli, cache);
    aoticache_cache_close(cache);
    return result;
}

int main(int argc, char **argv)
{
    aoticache_cli cli;
    aoticache_cli_begin(&cli, &stat_program, argc, argv, 1);
    return aoticache_cli_finish(&cli, run(&cli));
}
