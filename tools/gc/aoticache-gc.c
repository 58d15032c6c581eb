/*
 * aoticache-gc: removes unused entries, least recently used first. Made for cron and systemd timers: it prints little, is
 * safe while programs run, and a directory that is missing or in which another collector is at work is not an error.
 */
#include "tools/gc/gc.h"

#include "base/clock.h"
#include "cache/config/config.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- signals ---- */

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* ---- options ---- */

/* Parses a share or a size: "5%" sets the share and leaves the bytes unchanged, "10G" the other way round. */
static bool parse_share_or_size(const char *text, double *ret_share, uint64_t *ret_bytes)
{
    size_t length = strlen(text);
    if (length == 0 || text[length - 1] != '%')
        return aoticache_cli_parse_size(text, ret_bytes);
    char *number = aoticache_cli_text("%.*s", (int)length - 1, text);
    double percent;
    bool is_number = aoticache_cli_parse_double(number, &percent) && percent >= 0 && percent <= 100;
    free(number);
    if (is_number)
        *ret_share = percent / 100;
    return is_number;
}

/* Reads a number of entries: 0 means no limit, which is UINT64_MAX in the options. */
static int read_entries(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    int64_t entries;
    if (!aoticache_cli_parse_int(value, 0, INT64_MAX, &entries))
        return aoticache_cli_refuse_value(cli, option, value);
    *(uint64_t *)member = entries != 0 ? (uint64_t)entries : UINT64_MAX;
    return AOTICACHE_CLI_EXIT_OK;
}

static int read_min_free(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    aoticache_gc *gc = member;
    gc->has_min_free = true;
    if (!parse_share_or_size(value, &gc->options.min_free_share, &gc->options.min_free_bytes) ||
        gc->options.min_free_share >= 1)
        return aoticache_cli_refuse_value(cli, option, value);
    return AOTICACHE_CLI_EXIT_OK;
}

static int read_low(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    aoticache_gc *gc = member;
    gc->has_low = true;
    gc->low_share = 0;
    gc->options.low_bytes = 0; /* 0 would mean no watermark, so it cannot be requested */
    if (!parse_share_or_size(value, &gc->low_share, &gc->options.low_bytes) ||
        (gc->low_share <= 0 && gc->options.low_bytes == 0))
        return aoticache_cli_refuse_value(cli, option, value);
    return AOTICACHE_CLI_EXIT_OK;
}

static int read_policy(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value, void *member)
{
    aoticache_gc *gc = member;
    if (strcmp(value, "lru") != 0 && strcmp(value, "cost") != 0)
        return aoticache_cli_refuse_value(cli, option, value);
    gc->has_policy = true;
    gc->options.policy = strcmp(value, "cost") == 0 ? AOTICACHE_COLLECT_COST : AOTICACHE_COLLECT_LRU;
    return AOTICACHE_CLI_EXIT_OK;
}

/* Reads an age. 0 means the default in the options, so it is never used here. */
static int read_quarantine_age(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value,
                               void *member)
{
    uint64_t seconds;
    if (!aoticache_cli_parse_age(value, &seconds))
        return aoticache_cli_refuse_value(cli, option, value);
    *(uint64_t *)member = seconds == 0 ? UINT64_MAX : seconds;
    return AOTICACHE_CLI_EXIT_OK;
}

static int read_time_limit(const aoticache_cli *cli, const aoticache_cli_option *option, const char *value,
                           void *member)
{
    uint64_t seconds;
    if (!aoticache_cli_parse_age(value, &seconds) || seconds > UINT64_MAX / 1000)
        return aoticache_cli_refuse_value(cli, option, value);
    *(uint64_t *)member = seconds * 1000;
    return AOTICACHE_CLI_EXIT_OK;
}

static const aoticache_cli_option gc_options[] = {
    {"max-size", 0, "SIZE", "the most bytes that the cache may have: 10G, 500MiB, 1.5T, 10GB;\n0: no limit",
     AOTICACHE_CLI_SIZE(aoticache_gc, options.max_bytes, 0, "a size such as 10G")},
    {"max-entries", 0, "N", "the most entries that the cache may have; 0: no limit",
     AOTICACHE_CLI_FUNCTION(aoticache_gc, options.max_entries, read_entries), .wanted = "a number of entries"},
    {"max-age", 0, "AGE", "remove entries that have not been used for this long: 30d, 12h,\n2w, 90s; 0: never",
     AOTICACHE_CLI_AGE(aoticache_gc, options.max_age_seconds, 0, 0, "an age such as 30d")},
    {"min-free", 0, "SIZE|PERCENT",
     "remove entries until the file system has this much free space:\n5%, 20G; 0: no limit",
     .kind = AOTICACHE_CLI_KIND_FUNCTION, .read = read_min_free,
     .wanted = "a size such as 20G or a share such as 5%, less than 100%"},
    {"low", 0, "SIZE|PERCENT",
     "once --max-size or --max-entries is exceeded, remove entries\nuntil the cache is down to this: a size, or a percentage of\nboth limits; default 100%",
     .kind = AOTICACHE_CLI_KIND_FUNCTION, .read = read_low,
     .wanted = "a size such as 8G or a share such as 90%, more than 0"},
    {"keep", 0, "PATTERN", "never remove entries of these operators: 'aten::mm', 'mine::*';\nmay be repeated",
     AOTICACHE_CLI_LIST(aoticache_gc, keep)},
    {"policy", 0, "lru|cost",
     "which entries are removed first. lru (default): the least\nrecently used. cost: those with the highest bytes x idle\nseconds / compile seconds",
     .kind = AOTICACHE_CLI_KIND_FUNCTION, .read = read_policy, .wanted = "lru or cost"},
    {"quarantine-age", 0, "AGE", "remove files older than this from quarantine/; default 30d;\n0: never",
     AOTICACHE_CLI_FUNCTION(aoticache_gc, options.quarantine_age_seconds, read_quarantine_age),
     .wanted = "an age such as 30d", .is_rare = true},
    {"scan", 0, NULL,
     "search the whole store for files that no entry names; without\nit, each run searches a part of the store",
     AOTICACHE_CLI_SET(aoticache_gc, options.scan), .is_rare = true},
    {"vacuum", 0, NULL, "shrink the index: return its free pages to the file system",
     AOTICACHE_CLI_SET(aoticache_gc, options.vacuum)},
    {"time-limit", 0, "TIME", "stop after this time: 30s, 5m; the next run continues;\n0: no limit",
     AOTICACHE_CLI_FUNCTION(aoticache_gc, options.time_limit_ms, read_time_limit), .wanted = "a time such as 30s"},
    {"trust-clock", 0, NULL, "apply --max-age even if the clock seems to have jumped",
     AOTICACHE_CLI_SET(aoticache_gc, options.trust_clock), .is_rare = true},
    {"nice", 0, NULL, "run with the lowest CPU and disk priority", AOTICACHE_CLI_SET(aoticache_gc, is_nice)},
    {"dry-run", 'n', NULL, "report what would be removed, and remove nothing",
     AOTICACHE_CLI_SET(aoticache_gc, options.dry_run)},
    {"progress", 0, NULL, "show progress on standard error", AOTICACHE_CLI_SET(aoticache_gc, shows_progress),
     .is_rare = true},
    {"prometheus", 0, "FILE", "write metrics for Prometheus' textfile collector",
     AOTICACHE_CLI_NAME(aoticache_gc, prometheus, "the name of a file")},
    {0},
};

static const aoticache_cli_program gc_program = {
    .name = "aoticache-gc",
    .help_hint = "aoticache-gc --help",
    .usage = "[--max-size SIZE] [--max-age AGE] [OPTION]...",
    .summary = "Removes compiled kernels from the cache, least recently used first, until it is within its\n"
               "limits. Also removes what dead processes left behind. Pinned kernels and kernels that a\n"
               "live process uses stay.",
    .options = gc_options,
    .details = "Sizes: K, M, G, T and KiB, MiB, ... are powers of 1024; KB, MB, GB, ... powers of 1000.\n"
               "Limits that are not given come from the configuration (aoticache config). 0 means no limit in\n"
               "both places; 'aoticache rm --all' removes everything.\n"
               "If the clock has jumped by a week or more, and nearly all entries would be too old for that\n"
               "reason alone, nothing is removed for its age and the exit code is 1. --trust-clock asserts that\n"
               "the clock is right. If another collector is running, or the default directory has no cache yet,\n"
               "nothing is done and the exit code is 0. A directory that --cache-dir, AOTICACHE_DIR or the\n"
               "configuration names must exist; otherwise the exit code is 7.\n"
               "Run by root, aoticache-gc first becomes the user who owns the cache.\n"
               "SIGINT and SIGTERM end it between two batches; the entries removed so far stay removed, and the\n"
               "exit code is 0. --verbose lists the removed entries.",
};

/* ---- settings of the configuration that the command line leaves unset ---- */

/*
 * Values of the configuration were checked when they were read; 0 means no limit. Options that the command line leaves unset
 * still have their initial values; if it says 0, bytes and ages are 0, entries UINT64_MAX. Afterwards each has a single
 * form.
 */
static void apply_configuration(aoticache_gc *gc, const aoticache_config *config)
{
    aoticache_collect_options *options = &gc->options;
    const uint64_t max_bytes = aoticache_config_get(config, AOTICACHE_CONFIG_max_size).number;
    const uint64_t max_age = aoticache_config_get(config, AOTICACHE_CONFIG_max_age).number;
    if (options->max_bytes == UINT64_MAX && max_bytes > 0)
        options->max_bytes = max_bytes;
    if (options->max_entries == 0)
        options->max_entries = aoticache_config_get(config, AOTICACHE_CONFIG_max_entries).number;
    if (options->max_age_seconds == UINT64_MAX && max_age > 0)
        options->max_age_seconds = max_age;
    if (!gc->has_min_free) {
        const aoticache_config_setting min_free = aoticache_config_get(config, AOTICACHE_CONFIG_min_free);
        options->min_free_bytes = min_free.number;
        options->min_free_share = min_free.share;
    }
    options->max_bytes = options->max_bytes != 0 ? options->max_bytes : UINT64_MAX;
    options->max_entries = options->max_entries != UINT64_MAX ? options->max_entries : 0;
    options->max_age_seconds = options->max_age_seconds != 0 ? options->max_age_seconds : UINT64_MAX;
    if (!gc->has_policy)
        options->policy = (aoticache_collect_policy)aoticache_config_get(config, AOTICACHE_CONFIG_policy).number;
    for (const char *const *pattern = aoticache_config_get(config, AOTICACHE_CONFIG_keep).list; *pattern != NULL;
         pattern++)
        aoticache_cli_list_add(&gc->keep, *pattern);
    gc->has_limit = options->max_bytes != UINT64_MAX || options->max_entries > 0 ||
                    options->max_age_seconds != UINT64_MAX || options->min_free_bytes > 0 ||
                    options->min_free_share > 0;
}

/* Returns at least 1: 0 would mean no low watermark. */
static uint64_t share_of(uint64_t number, double share)
{
    uint64_t part = (uint64_t)((double)number * share);
    return part > 0 ? part : 1;
}

/* Computes the low watermark in bytes and entries from the options. */
static int settle_low(aoticache_gc *gc)
{
    aoticache_collect_options *options = &gc->options;
    if (!gc->has_low)
        return AOTICACHE_CLI_EXIT_OK;
    if (options->max_bytes == UINT64_MAX && options->max_entries == 0)
        return aoticache_cli_usage_error(&gc->cli, "option --low needs --max-size or --max-entries");
    if (options->low_bytes > 0 && options->max_bytes == UINT64_MAX)
        return aoticache_cli_usage_error(&gc->cli, "option --low: a size needs --max-size; a share does not");
    if (options->low_bytes > options->max_bytes)
        return aoticache_cli_usage_error(&gc->cli, "option --low: larger than --max-size");
    if (gc->low_share > 0 && options->max_bytes != UINT64_MAX)
        options->low_bytes = share_of(options->max_bytes, gc->low_share);
    if (gc->low_share > 0 && options->max_entries > 0)
        options->low_entries = share_of(options->max_entries, gc->low_share);
    return AOTICACHE_CLI_EXIT_OK;
}

/* ---- running ---- */

#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_CLASS_IDLE (3 << 13)

static void lower_priority(const aoticache_gc *gc)
{
    if (setpriority(PRIO_PROCESS, 0, 19) != 0 || syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_CLASS_IDLE) != 0)
        aoticache_cli_note(&gc->cli, "the priority stays unchanged: %s", strerror(errno));
}

/* Reports that there is nothing to do, for a valid reason: exit code 0. */
static int report_idle(aoticache_gc *gc, const char *directory, aoticache_gc_state state)
{
    aoticache_collect_report report = {0};
    if (gc->cli.json)
        aoticache_gc_report(gc, directory, state, &report);
    /* The other collector writes the file when it is done. */
    if (gc->prometheus != NULL && state == AOTICACHE_GC_ABSENT)
        return aoticache_gc_write_prometheus(gc, directory, &report);
    return AOTICACHE_CLI_EXIT_OK;
}

/* Reports a missing directory. A timer or cron job with a wrong directory must not succeed; a user who has no cache yet is
 * not an error. */
static int report_absent(aoticache_gc *gc, const char *directory)
{
    const char *origin = aoticache_cli_directory_origin(&gc->cli);
    if (origin == NULL) {
        aoticache_cli_note(&gc->cli, "no cache at %s: nothing to do", directory);
        return report_idle(gc, directory, AOTICACHE_GC_ABSENT);
    }
    if (gc->cli.json)
        aoticache_gc_report(gc, directory, AOTICACHE_GC_ABSENT, &(aoticache_collect_report){.is_partial = false});
    if (gc->prometheus != NULL)
        aoticache_gc_write_prometheus(gc, directory, NULL);
    return aoticache_cli_report_absent(&gc->cli, directory, origin);
}

static aoticache_gc_state state_of(const aoticache_collect_report *report)
{
    if (report->refused > 0)
        return AOTICACHE_GC_REFUSED;
    return report->is_partial ? AOTICACHE_GC_PARTIAL : AOTICACHE_GC_DONE;
}

static int refuse_jumped_clock(const aoticache_gc *gc, const aoticache_collect_report *report)
{
    char previous[AOTICACHE_CLI_UNIT_BYTES], now[AOTICACHE_CLI_UNIT_BYTES];
    return aoticache_cli_error(&gc->cli,
                               "nothing is removed for its age: the clock says %s, the last collection or use "
                               "was at %s, and the machine has not been running for that long; %llu entries "
                               "would be removed for their age alone; set the clock right, or, if it is right "
                               "(the machine was off), use --trust-clock",
                               aoticache_cli_format_time(report->clock_ns, now),
                               aoticache_cli_format_time(report->previous_ns, previous),
                               (unsigned long long)report->refused);
}

static int collect_and_report(aoticache_gc *gc, aoticache_cache *cache)
{
    aoticache_error error = {.message = ""};
    aoticache_collect_report report = {0};
    const char *directory = aoticache_cache_directory(cache);
    gc->options.progress = aoticache_gc_show_progress;
    gc->options.keep = gc->keep.items;
    aoticache_status status =
        aoticache_cache_collect(cache, &gc->options, aoticache_gc_report_entry, gc, &report, &error);
    aoticache_cli_progress_clear(&gc->progress);
    if (status == AOTICACHE_LOCKED) {
        aoticache_cli_note(&gc->cli, "another collection is running in %s: nothing done", directory);
        return report_idle(gc, directory, AOTICACHE_GC_LOCKED);
    }
    if (status != AOTICACHE_OK) {
        if (gc->prometheus != NULL)
            aoticache_gc_write_prometheus(gc, directory, NULL);
        return aoticache_cli_fail(&gc->cli, status, &error);
    }
    aoticache_gc_report(gc, directory, state_of(&report), &report);
    int result = gc->prometheus != NULL ? aoticache_gc_write_prometheus(gc, directory, &report) : AOTICACHE_CLI_EXIT_OK;
    return report.refused > 0 ? refuse_jumped_clock(gc, &report) : result;
}

static int open_and_collect(aoticache_gc *gc)
{
    char directory[PATH_MAX];
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    aoticache_cli_directory(&gc->cli, directory);
    int result = aoticache_gc_become_owner(gc, directory);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    aoticache_cache_options options = aoticache_cli_cache_options(&gc->cli);
    options.must_exist = true;
    options.may_use_reserve = !gc->options.dry_run;
    aoticache_status status = aoticache_cache_open(&options, &cache, &error);
    if (status == AOTICACHE_NOT_FOUND)
        return report_absent(gc, directory);
    if (status != AOTICACHE_OK) {
        if (gc->prometheus != NULL)
            aoticache_gc_write_prometheus(gc, directory, NULL);
        return aoticache_cli_fail(&gc->cli, status, &error);
    }
    if (!gc->has_limit)
        aoticache_cli_note(&gc->cli,
                           "no limit given: only leftovers are removed (--max-size and --max-age set limits)");
    result = collect_and_report(gc, cache);
    aoticache_cache_close(cache);
    return result;
}

static int parse_and_collect(aoticache_gc *gc)
{
    if (!aoticache_cli_parse(&gc->cli, gc))
        return gc->cli.exit_code;
    apply_configuration(gc, aoticache_cli_config(&gc->cli));
    int result = settle_low(gc);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    gc->removed = gc->cli.json ? aoticache_cli_json_array() : NULL;
    gc->progress = (aoticache_cli_progress){.cli = &gc->cli, .what = "entries removed"};
    gc->begun_ns = aoticache_monotonic_ns();
    if (gc->is_nice)
        lower_priority(gc);
    catch_signals();
    return open_and_collect(gc);
}

int main(int argc, char **argv)
{
    aoticache_gc gc = {.options = AOTICACHE_COLLECT_OPTIONS_INIT, .interrupted = &interrupted};
    aoticache_cli_begin(&gc.cli, &gc_program, argc, argv, 1);
    int result = parse_and_collect(&gc);
    if (gc.writer > 0)
        aoticache_gc_send_to_writer(&gc, NULL);
    json_decref(gc.removed);
    free(gc.keep.items);
    return aoticache_cli_finish(&gc.cli, result);
}
