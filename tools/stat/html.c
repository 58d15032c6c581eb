/*
 * tools/stat/html: the page of --html: tools/stat/report.html, which is compiled in, with the JSON of --json in it.
 *
 * The JSON has the history and an additional member, `report`, with data that only the page shows: when it was made, the
 * three kinds of groups, the latencies by powers of two, and the descriptions of counters and latencies.
 */
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/text/stream.h"
#include "tools/stat/stat.h"

#include <stdlib.h>
#include <string.h>

#define NS_PER_SECOND INT64_C(1000000000)
#define OCTAVES 64

/* The Makefile has the dependency of this file on that one. */
__asm__(".pushsection .rodata\n"
        ".globl stat_report_page\n"
        ".hidden stat_report_page\n"
        "stat_report_page:\n"
        ".incbin \"tools/stat/report.html\"\n"
        ".byte 0\n"
        ".popsection");
extern const char stat_report_page[];

static const char place_of_json[] = "@STATISTICS@";

/* ---- data that only the page shows ---- */

static bool add_octave(void *user, uint64_t lower_ns, uint64_t upper_ns, uint64_t count)
{
    uint64_t *counts = user;
    (void)upper_ns;
    counts[lower_ns > 1 ? 63 - __builtin_clzll(lower_ns) : 0] += count;
    return true;
}

/* Adds a histogram. name: pairs of a power of two nanoseconds and the count from it to the next power. */
static int set_octaves(const stat_view *view, json_t *report)
{
    json_t *octaves = aoticache_cli_json_object();
    aoticache_cli_json_set(report, "octaves", octaves);
    for (int kind = 0; kind < AOTICACHE_LATENCY_COUNT; kind++) {
        uint64_t counts[OCTAVES] = {0};
        aoticache_error error = {.message = ""};
        aoticache_status status =
            aoticache_cache_list_latency(view->cache, kind, &view->request->since, add_octave, counts, &error);
        if (status != AOTICACHE_OK)
            return aoticache_cli_fail(view->cli, status, &error);
        json_t *pairs = aoticache_cli_json_array();
        for (uint64_t i = 0; i < OCTAVES; i++) {
            if (counts[i] == 0)
                continue;
            json_t *pair = aoticache_cli_json_array();
            aoticache_cli_json_append(pair, aoticache_cli_json_count(i));
            aoticache_cli_json_append(pair, aoticache_cli_json_count(counts[i]));
            aoticache_cli_json_append(pairs, pair);
        }
        aoticache_cli_json_set(octaves, aoticache_latency_name(kind), pairs);
    }
    return AOTICACHE_CLI_EXIT_OK;
}

static int set_groups(stat_view *view, json_t *report)
{
    static const aoticache_group_kind kinds[] = {AOTICACHE_GROUP_OPERATOR, AOTICACHE_GROUP_ENVIRONMENT,
                                                 AOTICACHE_GROUP_DEVICE};
    const size_t top = view->request->top;
    json_t *all = aoticache_cli_json_array();
    aoticache_cli_json_set(report, "groups", all);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        stat_groups groups = {.items = NULL};
        int result = stat_read_groups(view, kinds[i], "bytes", &groups);
        if (result == AOTICACHE_CLI_EXIT_OK) {
            json_t *object = stat_json_of_groups(&groups, kinds[i], "bytes", top);
            aoticache_cli_json_set(object, "rest", stat_json_of_rest(&groups, top));
            aoticache_cli_json_append(all, object);
        }
        stat_free_groups(&groups);
        if (result != AOTICACHE_CLI_EXIT_OK)
            return result;
    }
    return AOTICACHE_CLI_EXIT_OK;
}

static void set_meanings(json_t *report)
{
    json_t *meanings = aoticache_cli_json_object();
    json_t *counters = aoticache_cli_json_object(), *latencies = aoticache_cli_json_object();
#define SET_COUNTER_MEANING(name, text) aoticache_cli_json_set(counters, #name, aoticache_cli_json_text(text));
    AOTICACHE_COUNTER_LIST(SET_COUNTER_MEANING)
    AOTICACHE_DERIVED_COUNTER_LIST(SET_COUNTER_MEANING)
#undef SET_COUNTER_MEANING
#define SET_LATENCY_MEANING(name, text) aoticache_cli_json_set(latencies, #name, aoticache_cli_json_text(text));
    AOTICACHE_LATENCY_LIST(SET_LATENCY_MEANING)
#undef SET_LATENCY_MEANING
    aoticache_cli_json_set(meanings, "counters", counters);
    aoticache_cli_json_set(meanings, "latencies", latencies);
    aoticache_cli_json_set(report, "meanings", meanings);
}

/* ---- the page ---- */

/* Chooses the shortest slots that reach back as far as there is data. */
static int64_t choose_step(const stat_view *view)
{
    const int64_t hours = (aoticache_wall_ns() - view->statistics.since_ns) / NS_PER_SECOND / 3600;
    if (view->request->since.since == AOTICACHE_STATISTICS_SINCE_TIME && hours > 31 * 24)
        return AOTICACHE_SLOT_DAY_SECONDS;
    return hours > 25 ? AOTICACHE_SLOT_HOUR_SECONDS : AOTICACHE_SLOT_FINE_SECONDS;
}

/* Writes the page. '<' occurs only in strings, and would end the script element there ("</script>"): it is escaped. */
static void write_page(FILE *out, const char *json)
{
    const char *place = strstr(stat_report_page, place_of_json);
    fwrite(stat_report_page, 1, (size_t)(place - stat_report_page), out);
    for (; *json != '\0'; json++) {
        if (*json == '<')
            fputs("\\u003c", out);
        else
            fputc(*json, out);
    }
    fputs(place + sizeof place_of_json - 1, out);
}

int stat_write_html(stat_view *view)
{
    json_t *report = aoticache_cli_json_object();
    aoticache_cli_json_set(report, "made_ns", aoticache_cli_json_count((uint64_t)aoticache_wall_ns()));
    aoticache_cli_json_set(report, "version", aoticache_cli_json_text(aoticache_version()));
    set_meanings(report);
    int result = set_octaves(view, report);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = set_groups(view, report);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = stat_read_history(view, view->statistics.since_ns, choose_step(view));
    json_t *object = stat_json(view);
    aoticache_cli_json_set(object, "report", report);
    cleanup_free char *json = json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII);
    cleanup_free char *page = NULL;
    size_t size = 0;
    json_decref(object);
    FILE *out = json != NULL ? aoticache_text_stream_open(&page, &size) : NULL;
    if (out != NULL)
        write_page(out, json);
    if (out == NULL || fclose(out) != 0)
        return aoticache_cli_error(view->cli, "out of memory");
    return result == AOTICACHE_CLI_EXIT_OK ? aoticache_cli_write_file(view->cli, view->request->file, false, page, size)
                                           : result;
}
