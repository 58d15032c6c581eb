/*
 * tools/stat/prometheus: the statistics as metrics. All counts start with the creation of the cache, even if they were
 * zeroed: counters must not decrease.
 */
#include "base/cleanup.h"
#include "cache/config/config.h"
#include "tools/stat/stat.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define BUCKETS 14

/* The output and its source. */
typedef struct metrics {
    aoticache_cli_exposition *to;
    const stat_view *view;
} metrics;

static double seconds_of(uint64_t ns)
{
    return (double)ns / 1e9;
}

/* Returns whether a histogram has this time as its sum, aoticache_NAME_seconds_sum. */
static bool has_histogram(const char *name)
{
    for (int i = 0; i < AOTICACHE_LATENCY_COUNT; i++) {
        const char *latency = aoticache_latency_name(i);
        const size_t length = strlen(latency);
        if (strncmp(name, latency, length) == 0 && strcmp(name + length, "_ns") == 0)
            return true;
    }
    return false;
}

static void expose_counter(const metrics *of, const char *name, uint64_t value, const char *help)
{
    const size_t length = strlen(name);
    const bool is_time = length > 3 && strcmp(name + length - 3, "_ns") == 0;
    char full[96], text[160];
    if (has_histogram(name))
        return;
    snprintf(full, sizeof full, "%.*s%s_total", (int)(is_time ? length - 3 : length), name, is_time ? "_seconds" : "");
    snprintf(text, sizeof text, "%c%s.", toupper((unsigned char)help[0]), help + 1);
    aoticache_cli_exposition_single(of->to, full, "counter", text, is_time ? seconds_of(value) : (double)value);
}

static void expose_counters(const metrics *of)
{
    const aoticache_counters *counters = &of->view->statistics.counters;
#define EXPOSE_COUNTER(name, text) expose_counter(of, #name, counters->name, text);
    AOTICACHE_COUNTER_LIST(EXPOSE_COUNTER)
#undef EXPOSE_COUNTER
#define EXPOSE_DERIVED(name, text) expose_counter(of, #name, aoticache_counters_##name(counters), text);
    AOTICACHE_DERIVED_COUNTER_LIST(EXPOSE_DERIVED)
#undef EXPOSE_DERIVED
}

static void expose_contents(const metrics *of)
{
    const aoticache_statistics *statistics = &of->view->statistics;
    const stat_disk *disk = &of->view->disk;
    aoticache_cli_exposition_single(of->to, "entries", "gauge", "Entries in the index.", (double)statistics->entries);
    aoticache_cli_exposition_single(of->to, "artifacts", "gauge", "Artifacts that entries name.",
                                    (double)statistics->artifacts);
    aoticache_cli_exposition_single(of->to, "objects", "gauge", "Objects that entries name.",
                                    (double)statistics->objects);
    aoticache_cli_exposition_single(of->to, "objects_bytes", "gauge", "Bytes of these objects.",
                                    (double)statistics->bytes);
    aoticache_cli_exposition_single(of->to, "index_bytes", "gauge", "Bytes of the index and its log.",
                                    (double)disk->index_bytes);
    aoticache_cli_exposition_single(of->to, "quarantine_files", "gauge", "Damaged files in quarantine.",
                                    (double)disk->quarantine_files);
    aoticache_cli_exposition_single(of->to, "quarantine_bytes", "gauge", "Bytes of these files.",
                                    (double)disk->quarantine_bytes);
    aoticache_cli_exposition_single(of->to, "failures_remembered", "gauge", "Failed compiles that are remembered.",
                                    (double)statistics->failures_remembered);
    aoticache_cli_exposition_single(of->to, "filesystem_size_bytes", "gauge",
                                    "Size of the file system that holds the cache.", (double)disk->filesystem_bytes);
    aoticache_cli_exposition_single(of->to, "filesystem_free_bytes", "gauge", "Bytes of it that are free to this user.",
                                    (double)disk->filesystem_free_bytes);
    aoticache_cli_exposition_single(of->to, "created_timestamp_seconds", "gauge",
                                    "When the cache's index was made, in seconds since 1970.",
                                    (double)statistics->created_ns / 1e9);
}

/* Writes the limits of the configuration, which programs and aoticache-gc use by default. No limit: no sample. */
static void expose_limits(const metrics *of)
{
    const aoticache_config *config = aoticache_cli_config(of->view->cli);
    const uint64_t bytes = aoticache_config_get(config, AOTICACHE_CONFIG_max_size).number;
    const uint64_t entries = aoticache_config_get(config, AOTICACHE_CONFIG_max_entries).number;
    const uint64_t age = aoticache_config_get(config, AOTICACHE_CONFIG_max_age).number;
    const aoticache_config_setting min_free = aoticache_config_get(config, AOTICACHE_CONFIG_min_free);
    const double share = min_free.share * (double)of->view->disk.filesystem_bytes;
    const double least = (double)min_free.number;
    if (bytes > 0)
        aoticache_cli_exposition_single(of->to, "limit_bytes", "gauge", "Limit of the cache's size, in bytes.",
                                        (double)bytes);
    if (entries > 0)
        aoticache_cli_exposition_single(of->to, "limit_entries", "gauge", "Limit of the cache's entries.",
                                        (double)entries);
    if (age > 0)
        aoticache_cli_exposition_single(of->to, "limit_age_seconds", "gauge",
                                        "Age at which aoticache-gc removes entries.", (double)age);
    if (share > 0 || least > 0)
        aoticache_cli_exposition_single(of->to, "limit_free_bytes", "gauge",
                                        "Free bytes that aoticache-gc keeps in the file system.",
                                        floor(share > least ? share : least));
}

/* ---- histograms ---- */

/* Every fourth power of two nanoseconds: bounds of the library's own buckets, so that counts are exact. */
typedef struct cumulation {
    unsigned first_power;
    uint64_t counts[BUCKETS];
    uint64_t all;
} cumulation;

static bool add_to_buckets(void *user, uint64_t lower_ns, uint64_t upper_ns, uint64_t count)
{
    cumulation *counted = user;
    (void)lower_ns;
    for (unsigned i = 0; i < BUCKETS; i++)
        if (upper_ns < UINT64_C(1) << (counted->first_power + 2 * i))
            counted->counts[i] += count;
    counted->all += count;
    return true;
}

static void print_bucket(const metrics *of, const char *name, const char *bound, uint64_t count)
{
    char full[96];
    snprintf(full, sizeof full, "%s_seconds_bucket", name);
    aoticache_cli_exposition_sample(of->to, full, "le", bound, (double)count);
}

static int expose_latency(const metrics *of, aoticache_latency_kind kind, const char *help)
{
    aoticache_error error = {.message = ""};
    cumulation counted = {.first_power = kind == AOTICACHE_LATENCY_eviction_age ? 32 : 12};
    const aoticache_latency *latency = stat_latency(&of->view->statistics, kind);
    const char *name = aoticache_latency_name(kind);
    char full[96], bound[32];
    aoticache_status status = AOTICACHE_OK;
    if (of->view->cache != NULL)
        status = aoticache_cache_list_latency(of->view->cache, kind, &of->view->request->since, add_to_buckets,
                                              &counted, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(of->view->cli, status, &error);
    snprintf(full, sizeof full, "%s_seconds", name);
    aoticache_cli_exposition_describe(of->to, full, "histogram", help);
    for (unsigned i = 0; i < BUCKETS; i++) {
        snprintf(bound, sizeof bound, "%.9g", (double)(UINT64_C(1) << (counted.first_power + 2 * i)) / 1e9);
        print_bucket(of, name, bound, counted.counts[i]);
    }
    print_bucket(of, name, "+Inf", counted.all);
    snprintf(full, sizeof full, "%s_seconds_sum", name);
    aoticache_cli_exposition_sample(of->to, full, NULL, NULL, seconds_of(latency->sum_ns));
    snprintf(full, sizeof full, "%s_seconds_count", name);
    aoticache_cli_exposition_sample(of->to, full, NULL, NULL, (double)counted.all);
    return AOTICACHE_CLI_EXIT_OK;
}

static int expose_latencies(const metrics *of)
{
    int result = AOTICACHE_CLI_EXIT_OK;
#define EXPOSE(name, text)               \
    if (result == AOTICACHE_CLI_EXIT_OK) \
        result = expose_latency(of, AOTICACHE_LATENCY_##name, "Seconds of " #name ": " text ".");
    AOTICACHE_LATENCY_LIST(EXPOSE)
#undef EXPOSE
    return result;
}

/* ---- groups ---- */

static void expose_group_column(const metrics *of, const char *column, const char *help)
{
    const stat_request *request = of->view->request;
    const char *kind = stat_kind_names[request->by];
    const size_t length = strlen(column);
    bool is_time = length > 3 && strcmp(column + length - 3, "_ns") == 0;
    bool is_content = strcmp(column, "entries") == 0 || strcmp(column, "bytes") == 0;
    char name[96], text[160];
    snprintf(name, sizeof name, "%s_%.*s%s%s", kind, (int)(is_time ? length - 3 : length), column,
             is_time ? "_seconds" : "", is_content ? "" : "_total");
    snprintf(text, sizeof text, "By %s: %s.", kind, help);
    aoticache_cli_exposition_describe(of->to, name, is_content ? "gauge" : "counter", text);
    for (size_t i = 0; i < of->view->groups.count && i < request->top; i++) {
        uint64_t value = stat_group_value(&of->view->groups.items[i], column);
        aoticache_cli_exposition_sample(of->to, name, kind, of->view->groups.items[i].name,
                                        is_time ? seconds_of(value) : (double)value);
    }
}

static void expose_groups(const metrics *of)
{
#define EXPOSE_COLUMN(column, text) expose_group_column(of, #column, text);
    AOTICACHE_GROUP_COLUMN_LIST(EXPOSE_COLUMN)
#undef EXPOSE_COLUMN
}

int stat_write_prometheus(stat_view *view)
{
    aoticache_cli_exposition exposition;
    const metrics of = {.to = &exposition, .view = view};
    aoticache_cli_exposition_begin(&exposition, view->directory);
    expose_counters(&of);
    expose_contents(&of);
    expose_limits(&of);
    aoticache_cli_exposition_build_info(&exposition, "aoticache-stat");
    int result = expose_latencies(&of);
    if (view->request->by_group)
        expose_groups(&of);
    cleanup_free char *text = aoticache_cli_exposition_end(&exposition);
    return result == AOTICACHE_CLI_EXIT_OK
               ? aoticache_cli_write_file(view->cli, view->request->file, false, text, exposition.size)
               : result;
}
