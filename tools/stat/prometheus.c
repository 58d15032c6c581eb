/*
 * tools/stat/prometheus: the statistics as metrics. Everything is since the cache was made, whatever was zeroed: counters
 * must not go back.
 */
#include "base/cleanup.h"
#include "cache/config/config.h"
#include "tools/stat/stat.h"

#include <math.h>
#include <string.h>

#define BUCKETS 14

/* What is being written, and of what. */
typedef struct metrics {
    aoticache_cli_exposition *to;
    const stat_view *view;
} metrics;

static double seconds_of(uint64_t ns)
{
    return (double)ns / 1e9;
}

static void expose_lookups(const metrics *of)
{
    const aoticache_counters *counters = &of->view->statistics.counters;
    aoticache_cli_exposition_describe(of->to, "hits_total", "counter",
                                      "Lookups and calls that were answered, by what answered them.");
    aoticache_cli_exposition_sample(of->to, "hits_total", "tier", "table", (double)counters->hits_loaded);
    aoticache_cli_exposition_sample(of->to, "hits_total", "tier", "index",
                                    (double)aoticache_counters_hits_index(counters));
    aoticache_cli_exposition_sample(of->to, "hits_total", "tier", "remote", (double)counters->hits_remote);
    aoticache_cli_exposition_single(of->to, "guarded_hits_total", "counter", "Hits of entries for symbolic shapes.",
                                    (double)counters->hits_dynamic);
    aoticache_cli_exposition_describe(of->to, "misses_total", "counter", "Lookups that found no entry, by reason.");
    aoticache_cli_exposition_sample(of->to, "misses_total", "reason", "absent",
                                    (double)aoticache_counters_misses_absent(counters));
    aoticache_cli_exposition_sample(of->to, "misses_total", "reason", "requirement",
                                    (double)counters->misses_requirement);
    aoticache_cli_exposition_sample(of->to, "misses_total", "reason", "guard", (double)counters->misses_guard);
    aoticache_cli_exposition_sample(of->to, "misses_total", "reason", "damaged", (double)counters->misses_damaged);
    aoticache_cli_exposition_sample(of->to, "misses_total", "reason", "failed", (double)counters->misses_failed);
    aoticache_cli_exposition_single(of->to, "waits_total", "counter", "Requests that another's compile answered.",
                                    (double)counters->waits);
}

static void expose_compiles(const metrics *of)
{
    const aoticache_counters *counters = &of->view->statistics.counters;
    aoticache_cli_exposition_describe(of->to, "compiles_total", "counter", "Compiles, by result.");
    aoticache_cli_exposition_sample(of->to, "compiles_total", "result", "success", (double)counters->compiles);
    aoticache_cli_exposition_sample(of->to, "compiles_total", "result", "failure", (double)counters->compile_failures);
    aoticache_cli_exposition_single(of->to, "compiles_fallback_total", "counter",
                                    "Compiles built PyTorch's way, as our build could not.",
                                    (double)counters->compiles_fallback);
    aoticache_cli_exposition_single(of->to, "saved_seconds_total", "counter",
                                    "Seconds of compiling that hits made unnecessary.", seconds_of(counters->saved_ns));
    aoticache_cli_exposition_single(of->to, "not_stored_total", "counter", "Artifacts that could not be stored.",
                                    (double)counters->not_stored);
    aoticache_cli_exposition_single(of->to, "stored_bytes_total", "counter", "Bytes written as objects.",
                                    (double)counters->stored_bytes);
    aoticache_cli_exposition_single(of->to, "damaged_objects_total", "counter", "Objects found damaged.",
                                    (double)counters->damaged);
    aoticache_cli_exposition_single(of->to, "refused_untrusted_total", "counter",
                                    "Entries from elsewhere that were refused for want of a trusted signature.",
                                    (double)counters->refused_untrusted);
    aoticache_cli_exposition_single(of->to, "judged_total", "counter", "Kernels compared with the host's own.",
                                    (double)counters->judged);
    aoticache_cli_exposition_single(of->to, "judged_slower_total", "counter",
                                    "Of these: the host's own was faster, or as fast.",
                                    (double)counters->judged_slower);
    aoticache_cli_exposition_single(of->to, "fetched_bytes_total", "counter", "Bytes of objects fetched from remotes.",
                                    (double)counters->fetched_bytes);
    aoticache_cli_exposition_single(of->to, "sent_bytes_total", "counter", "Bytes sent to remotes, compressed.",
                                    (double)counters->sent_bytes);
    aoticache_cli_exposition_single(of->to, "remote_errors_total", "counter",
                                    "Misses or compiles for which a remote failed.", (double)counters->remote_errors);
    aoticache_cli_exposition_single(of->to, "remote_refused_total", "counter",
                                    "Objects and entries from remotes that were refused.",
                                    (double)counters->remote_refused);
    aoticache_cli_exposition_single(of->to, "remote_rests_total", "counter",
                                    "Times that a remote failed and was left alone from then on.",
                                    (double)counters->remote_rests);
    aoticache_cli_exposition_single(of->to, "calls_lost_total", "counter",
                                    "Calls left to the host's own kernel because it is faster.",
                                    (double)counters->calls_lost);
    aoticache_cli_exposition_single(of->to, "evicted_entries_total", "counter", "Entries removed by collections.",
                                    (double)counters->evicted);
    aoticache_cli_exposition_single(of->to, "evicted_bytes_total", "counter", "Bytes removed by collections.",
                                    (double)counters->evicted_bytes);
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
    aoticache_cli_exposition_single(of->to, "quarantine_files", "gauge", "Damaged files that were set aside.",
                                    (double)disk->quarantine_files);
    aoticache_cli_exposition_single(of->to, "quarantine_bytes", "gauge", "Bytes of these files.",
                                    (double)disk->quarantine_bytes);
    aoticache_cli_exposition_single(of->to, "remembered_failures", "gauge", "Failed compiles that are remembered.",
                                    (double)statistics->failures);
    aoticache_cli_exposition_single(of->to, "filesystem_size_bytes", "gauge",
                                    "Size of the file system that holds the cache.", (double)disk->filesystem_bytes);
    aoticache_cli_exposition_single(of->to, "filesystem_free_bytes", "gauge", "Bytes of it that are free to this user.",
                                    (double)disk->filesystem_free_bytes);
    aoticache_cli_exposition_single(of->to, "created_timestamp_seconds", "gauge",
                                    "When the cache's index was made, in seconds since 1970.",
                                    (double)statistics->created_ns / 1e9);
}

/* Of the configuration, as programs and aoticache-gc have them where they are told nothing else. No limit: no sample. */
static void expose_limits(const metrics *of)
{
    const aoticache_config *config = aoticache_cli_config(of->view->cli);
    const uint64_t bytes = aoticache_config_number(config, AOTICACHE_CONFIG_max_size);
    const uint64_t entries = aoticache_config_number(config, AOTICACHE_CONFIG_max_entries);
    const uint64_t age = aoticache_config_number(config, AOTICACHE_CONFIG_max_age);
    const double share = aoticache_config_min_free_share(config) * (double)of->view->disk.filesystem_bytes;
    const double least = (double)aoticache_config_number(config, AOTICACHE_CONFIG_min_free);
    if (bytes > 0)
        aoticache_cli_exposition_single(of->to, "limit_bytes", "gauge", "Bytes that the cache keeps itself below.",
                                        (double)bytes);
    if (entries > 0)
        aoticache_cli_exposition_single(of->to, "limit_entries", "gauge", "Entries that the cache keeps itself below.",
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
    aoticache_status status = aoticache_cache_list_latency(of->view->cache, kind, &of->view->request->since,
                                                           add_to_buckets, &counted, &error);
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
    snprintf(text, sizeof text, "By %s: %s.", kind, is_time ? strchr(help, ' ') + 1 : help);
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
    expose_lookups(&of);
    expose_compiles(&of);
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
