/*
 * tools/stat/prometheus: Prometheus' text exposition format, version 0.0.4. Everything is since the cache was
 * made, whatever was zeroed: counters must not go back. Every sample names the directory, so that a machine can have
 * several.
 */
#include "cache/config/config.h"
#include "tools/stat/stat.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 14

typedef struct exposition {
    FILE *out;
    const stat_view *view;
} exposition;

/* The value of a label: backslash, quotation mark and newline have to be escaped, and nothing else. */
static void print_label(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\n')
            fputs("\\n", out);
        else if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

static void describe(const exposition *to, const char *name, const char *type, const char *help)
{
    fprintf(to->out, "# HELP aoticache_%s %s\n# TYPE aoticache_%s %s\n", name, help, name, type);
}

/* label NULL: none but the directory. */
static void sample(const exposition *to, const char *name, const char *label, const char *label_value, double value)
{
    fprintf(to->out, "aoticache_%s{directory=\"", name);
    print_label(to->out, to->view->directory);
    fputc('"', to->out);
    if (label != NULL) {
        fprintf(to->out, ",%s=\"", label);
        print_label(to->out, label_value);
        fputc('"', to->out);
    }
    fprintf(to->out, "} %.15g\n", value);
}

static void single(const exposition *to, const char *name, const char *type, const char *help, double value)
{
    describe(to, name, type, help);
    sample(to, name, NULL, NULL, value);
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static void expose_lookups(const exposition *to)
{
    const aoticache_counters *counters = &to->view->statistics.counters;
    describe(to, "hits_total", "counter", "Lookups and calls that were answered, by what answered them.");
    sample(to, "hits_total", "tier", "table", (double)counters->hits_loaded);
    sample(to, "hits_total", "tier", "index", (double)aoticache_counters_hits_index(counters));
    sample(to, "hits_total", "tier", "remote", (double)counters->hits_remote);
    single(to, "guarded_hits_total", "counter", "Hits of entries for symbolic shapes.", (double)counters->hits_dynamic);
    describe(to, "misses_total", "counter", "Lookups that found no entry, by reason.");
    sample(to, "misses_total", "reason", "absent", (double)aoticache_counters_misses_absent(counters));
    sample(to, "misses_total", "reason", "requirement", (double)counters->misses_requirement);
    sample(to, "misses_total", "reason", "guard", (double)counters->misses_guard);
    sample(to, "misses_total", "reason", "damaged", (double)counters->misses_damaged);
    sample(to, "misses_total", "reason", "failed", (double)counters->misses_failed);
    single(to, "waits_total", "counter", "Requests that another's compile answered.", (double)counters->waits);
}

static void expose_compiles(const exposition *to)
{
    const aoticache_counters *counters = &to->view->statistics.counters;
    describe(to, "compiles_total", "counter", "Compiles, by result.");
    sample(to, "compiles_total", "result", "success", (double)counters->compiles);
    sample(to, "compiles_total", "result", "failure", (double)counters->compile_failures);
    single(to, "saved_seconds_total", "counter", "Seconds of compiling that hits made unnecessary.",
           seconds(counters->saved_ns));
    single(to, "not_stored_total", "counter", "Artifacts that could not be stored.", (double)counters->not_stored);
    single(to, "stored_bytes_total", "counter", "Bytes written as objects.", (double)counters->stored_bytes);
    single(to, "damaged_objects_total", "counter", "Objects found damaged.", (double)counters->damaged);
    single(to, "evicted_entries_total", "counter", "Entries removed by collections.", (double)counters->evicted);
    single(to, "evicted_bytes_total", "counter", "Bytes removed by collections.", (double)counters->evicted_bytes);
}

static void expose_contents(const exposition *to)
{
    const aoticache_statistics *statistics = &to->view->statistics;
    const stat_disk *disk = &to->view->disk;
    single(to, "entries", "gauge", "Entries in the index.", (double)statistics->entries);
    single(to, "artifacts", "gauge", "Artifacts that entries name.", (double)statistics->artifacts);
    single(to, "objects", "gauge", "Objects that entries name.", (double)statistics->objects);
    single(to, "objects_bytes", "gauge", "Bytes of these objects.", (double)statistics->bytes);
    single(to, "index_bytes", "gauge", "Bytes of the index and its log.", (double)disk->index_bytes);
    single(to, "quarantine_files", "gauge", "Damaged files that were set aside.", (double)disk->quarantine_files);
    single(to, "quarantine_bytes", "gauge", "Bytes of these files.", (double)disk->quarantine_bytes);
    single(to, "remembered_failures", "gauge", "Failed compiles that are remembered.", (double)statistics->failures);
    single(to, "filesystem_size_bytes", "gauge", "Size of the file system that holds the cache.",
           (double)disk->filesystem_bytes);
    single(to, "filesystem_free_bytes", "gauge", "Bytes of it that are free to this user.",
           (double)disk->filesystem_free_bytes);
    single(to, "created_timestamp_seconds", "gauge", "When the cache's index was made, in seconds since 1970.",
           (double)statistics->created_ns / 1e9);
}

/* Of the configuration, as programs and aoticache-gc have them where they are told nothing else. No limit: no sample. */
static void expose_limits(const exposition *to)
{
    const aoticache_config *config = aoticache_cli_config(to->view->cli);
    const uint64_t bytes = aoticache_config_number(config, AOTICACHE_CONFIG_max_size);
    const uint64_t entries = aoticache_config_number(config, AOTICACHE_CONFIG_max_entries);
    const uint64_t age = aoticache_config_number(config, AOTICACHE_CONFIG_max_age);
    const double share = aoticache_config_min_free_share(config) * (double)to->view->disk.filesystem_bytes;
    const double least = (double)aoticache_config_number(config, AOTICACHE_CONFIG_min_free);
    if (bytes > 0)
        single(to, "limit_bytes", "gauge", "Bytes that the cache keeps itself below.", (double)bytes);
    if (entries > 0)
        single(to, "limit_entries", "gauge", "Entries that the cache keeps itself below.", (double)entries);
    if (age > 0)
        single(to, "limit_age_seconds", "gauge", "Age at which aoticache-gc removes entries.", (double)age);
    if (share > 0 || least > 0)
        single(to, "limit_free_bytes", "gauge", "Free bytes that aoticache-gc keeps in the file system.",
               floor(share > least ? share : least));
}

static void expose_build(const exposition *to)
{
    describe(to, "build_info", "gauge", AOTICACHE_CLI_BUILD_INFO_HELP);
    fputs("aoticache_build_info{directory=\"", to->out);
    print_label(to->out, to->view->directory);
    fputs("\",program=\"aoticache-stat\",version=\"" AOTICACHE_VERSION "\"} 1\n", to->out);
}

/* ---- histograms ---- */

/* Every fourth power of two nanoseconds: bounds of the library's own buckets, so that counts are exact. */
typedef struct cumulation {
    unsigned first_power;
    uint64_t counts[BUCKETS];
    uint64_t all;
} cumulation;

static bool cumulate(void *user, uint64_t lower_ns, uint64_t upper_ns, uint64_t count)
{
    cumulation *counted = user;
    (void)lower_ns;
    for (unsigned i = 0; i < BUCKETS; i++)
        if (upper_ns < UINT64_C(1) << (counted->first_power + 2 * i))
            counted->counts[i] += count;
    counted->all += count;
    return true;
}

static void print_bucket(const exposition *to, const char *name, const char *bound, uint64_t count)
{
    char full[96];
    snprintf(full, sizeof full, "%s_seconds_bucket", name);
    sample(to, full, "le", bound, (double)count);
}

static int expose_latency(const exposition *to, aoticache_latency_kind kind, const char *help)
{
    aoticache_error error = {.message = ""};
    cumulation counted = {.first_power = kind == AOTICACHE_LATENCY_eviction_age ? 32 : 12};
    const aoticache_latency *latency = stat_latency(&to->view->statistics, kind);
    const char *name = aoticache_latency_name(kind);
    char full[96], bound[32];
    aoticache_status status = aoticache_cache_list_latency(to->view->cache, kind, &to->view->request->since, cumulate,
                                                           &counted, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(to->view->cli, status, &error);
    snprintf(full, sizeof full, "%s_seconds", name);
    describe(to, full, "histogram", help);
    for (unsigned i = 0; i < BUCKETS; i++) {
        snprintf(bound, sizeof bound, "%.9g", (double)(UINT64_C(1) << (counted.first_power + 2 * i)) / 1e9);
        print_bucket(to, name, bound, counted.counts[i]);
    }
    print_bucket(to, name, "+Inf", counted.all);
    snprintf(full, sizeof full, "%s_seconds_sum", name);
    sample(to, full, NULL, NULL, seconds(latency->sum_ns));
    snprintf(full, sizeof full, "%s_seconds_count", name);
    sample(to, full, NULL, NULL, (double)counted.all);
    return AOTICACHE_CLI_EXIT_OK;
}

static int expose_latencies(const exposition *to)
{
    int result = AOTICACHE_CLI_EXIT_OK;
#define EXPOSE(name, text)                                                                     \
    if (result == AOTICACHE_CLI_EXIT_OK)                                                       \
        result = expose_latency(to, AOTICACHE_LATENCY_##name, "Seconds of " #name ": " text ".");
    AOTICACHE_LATENCY_LIST(EXPOSE)
#undef EXPOSE
    return result;
}

/* ---- groups ---- */

static void expose_group_column(const exposition *to, const char *column, const char *help)
{
    const stat_request *request = to->view->request;
    const char *kind = stat_kind_names[request->by];
    const size_t length = strlen(column);
    bool is_time = length > 3 && strcmp(column + length - 3, "_ns") == 0;
    bool is_content = strcmp(column, "entries") == 0 || strcmp(column, "bytes") == 0;
    char name[96], text[160];
    snprintf(name, sizeof name, "%s_%.*s%s%s", kind, (int)(is_time ? length - 3 : length), column,
             is_time ? "_seconds" : "", is_content ? "" : "_total");
    snprintf(text, sizeof text, "By %s: %s.", kind, is_time ? strchr(help, ' ') + 1 : help);
    describe(to, name, is_content ? "gauge" : "counter", text);
    for (size_t i = 0; i < to->view->groups.count && i < request->top; i++) {
        uint64_t value = stat_group_value(&to->view->groups.items[i], column);
        sample(to, name, kind, to->view->groups.items[i].name, is_time ? seconds(value) : (double)value);
    }
}

static void expose_groups(const exposition *to)
{
#define EXPOSE_COLUMN(column, text) expose_group_column(to, #column, text);
    AOTICACHE_GROUP_COLUMN_LIST(EXPOSE_COLUMN)
#undef EXPOSE_COLUMN
}

int stat_write_prometheus(stat_view *view)
{
    char *text = NULL;
    size_t size = 0;
    exposition to = {.out = open_memstream(&text, &size), .view = view};
    if (to.out == NULL)
        return aoticache_cli_error(view->cli, "out of memory");
    expose_lookups(&to);
    expose_compiles(&to);
    expose_contents(&to);
    expose_limits(&to);
    expose_build(&to);
    int result = expose_latencies(&to);
    if (view->request->by_group)
        expose_groups(&to);
    bool failed = ferror(to.out) != 0;
    if (fclose(to.out) != 0 || failed)
        result = aoticache_cli_error(view->cli, "out of memory");
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = stat_write_file(view->cli, view->request->file, text, size);
    free(text);
    return result;
}
