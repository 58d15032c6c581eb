/*
 * aoticache-gc: throws away what nobody uses, least recently used first. Made for cron and systemd timers: it says
 * little, does nothing wrong beside running programs, and finds nothing worth an error in a directory that is not there
 * or that another collector is at work in.
 */
#include "tools/gc/gc.h"

#include "cache/config/config.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    OPTION_MAX_SIZE = 1,
    OPTION_MAX_ENTRIES,
    OPTION_MAX_AGE,
    OPTION_MIN_FREE,
    OPTION_LOW,
    OPTION_KEEP,
    OPTION_POLICY,
    OPTION_QUARANTINE_AGE,
    OPTION_SCAN,
    OPTION_VACUUM,
    OPTION_TIME_LIMIT,
    OPTION_TRUST_CLOCK,
    OPTION_NICE,
    OPTION_DRY_RUN,
    OPTION_PROGRESS,
    OPTION_PROMETHEUS,
};

static const aoticache_cli_option gc_options[] = {
    {OPTION_MAX_SIZE, "max-size", 0, "SIZE", "keep at most so many bytes: 10G, 500MiB, 1.5T, 10GB; 0: no limit"},
    {OPTION_MAX_ENTRIES, "max-entries", 0, "N", "keep at most so many entries; 0: no limit"},
    {OPTION_MAX_AGE, "max-age", 0, "AGE", "remove what was not used for so long: 30d, 12h, 2w, 90s; 0: never"},
    {OPTION_MIN_FREE, "min-free", 0, "SIZE|PERCENT", "remove until the file system has so much free: 5%, 20G; 0: any"},
    {OPTION_LOW, "low", 0, "SIZE|PERCENT",
     "where --max-size or --max-entries is crossed, go on down to\nthis: a size, or a share of both; default 100%"},
    {OPTION_KEEP, "keep", 0, "PATTERN", "operators that stay: 'aten::mm', 'mine::*'; may be repeated"},
    {OPTION_POLICY, "policy", 0, "lru|cost",
     "who goes first: the least recently used (default), or what has\nmost bytes times age for the seconds that a compile takes"},
    {OPTION_QUARANTINE_AGE, "quarantine-age", 0, "AGE", "remove files older than this from quarantine/; default 30d;\n0: never"},
    {OPTION_SCAN, "scan", 0, NULL, "look through the whole store for files that no entry names\n(each run looks through a part)"},
    {OPTION_VACUUM, "vacuum", 0, NULL, "give free pages of the index back to the file system"},
    {OPTION_TIME_LIMIT, "time-limit", 0, "AGE", "stop after so long: 30s, 5m; the next run goes on; 0: no limit"},
    {OPTION_TRUST_CLOCK, "trust-clock", 0, NULL, "remove by --max-age also where the clock seems to have jumped"},
    {OPTION_NICE, "nice", 0, NULL, "with the lowest priority for processor and disk"},
    {OPTION_DRY_RUN, "dry-run", 'n', NULL, "say what would be removed, remove nothing"},
    {OPTION_PROGRESS, "progress", 0, NULL, "say how far it is, on standard error"},
    {OPTION_PROMETHEUS, "prometheus", 0, "FILE", "write figures for Prometheus' textfile collector"},
    {0, NULL, 0, NULL, NULL},
};

static const aoticache_cli_program gc_program = {
    .name = "aoticache-gc",
    .help_hint = "aoticache-gc --help",
    .usage = "[--max-size SIZE] [--max-age AGE] [OPTION]...",
    .summary = "Removes compiled kernels that nobody uses from the cache, least recently used first, and\n"
               "what processes that died left behind. What is pinned or held by a live process stays.",
    .options = gc_options,
    .details = "Sizes: K, M, G, T and KiB, MiB, ... are powers of 1024; KB, MB, GB, ... powers of 1000.\n"
               "Limits that are not given are those of the configuration (aoticache config).\n"
               "0 is no limit, here as there; aoticache rm --all removes everything.\n"
               "Where the clock has jumped by a week or more and nearly everything would be too old for that alone,\n"
               "nothing is removed for its age: exit code 1; --trust-clock says that the clock is right.\n"
               "Where another collector is at work, or there is no cache yet, nothing is done: exit code 0.\n"
               "Run by root, it becomes the user who owns the cache first.\n"
               "SIGINT and SIGTERM end it between two batches; what was removed is removed: exit code 0.\n"
               "--verbose lists the entries that go.",
};

/* ---- signals ---- */

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

bool aoticache_gc_is_interrupted(void)
{
    return interrupted != 0;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* ---- options ---- */

/* "5%" gives a share and leaves the bytes alone, "10G" the other way round. */
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

static void add_keep(aoticache_gc *gc, const char *pattern)
{
    gc->keep = aoticache_cli_resize(gc->keep, gc->keep_count + 2, sizeof *gc->keep);
    gc->keep[gc->keep_count++] = pattern;
    gc->keep[gc->keep_count] = NULL;
}

static int wrong(const aoticache_gc *gc, const char *option, const char *value, const char *wanted)
{
    return aoticache_cli_usage_error(&gc->cli, "option --%s: '%s' is not %s", option, value, wanted);
}

static int take_limit(aoticache_gc *gc, int id, const char *value)
{
    int64_t entries;
    aoticache_collect_options *options = &gc->options;
    switch (id) {
    case OPTION_MAX_SIZE:
        if (!aoticache_cli_parse_size(value, &options->max_bytes))
            return wrong(gc, "max-size", value, "a size such as 10G");
        break;
    case OPTION_MAX_ENTRIES:
        if (!aoticache_cli_parse_int(value, 0, INT64_MAX, &entries))
            return wrong(gc, "max-entries", value, "a number of entries");
        options->max_entries = entries != 0 ? (uint64_t)entries : UINT64_MAX;
        break;
    case OPTION_MAX_AGE:
        if (!aoticache_cli_parse_age(value, &options->max_age_seconds))
            return wrong(gc, "max-age", value, "an age such as 30d");
        break;
    case OPTION_MIN_FREE:
        gc->has_min_free = true;
        if (!parse_share_or_size(value, &options->min_free_share, &options->min_free_bytes) ||
            options->min_free_share >= 1)
            return wrong(gc, "min-free", value, "a size such as 20G or a share such as 5%, less than 100%");
        break;
    default:
        gc->has_low = true;
        gc->low_share = 0;
        options->low_bytes = 0; /* which means that there is none, so it cannot be asked for */
        if (!parse_share_or_size(value, &gc->low_share, &options->low_bytes) ||
            (gc->low_share <= 0 && options->low_bytes == 0))
            return wrong(gc, "low", value, "a size such as 8G or a share such as 90%, more than 0");
    }
    return AOTICACHE_CLI_END;
}

static int take_manner(aoticache_gc *gc, int id, const char *value)
{
    uint64_t seconds;
    switch (id) {
    case OPTION_KEEP:
        add_keep(gc, value);
        return AOTICACHE_CLI_END;
    case OPTION_POLICY:
        if (strcmp(value, "lru") != 0 && strcmp(value, "cost") != 0)
            return wrong(gc, "policy", value, "lru or cost");
        gc->has_policy = true;
        gc->options.policy = strcmp(value, "cost") == 0 ? AOTICACHE_COLLECT_COST : AOTICACHE_COLLECT_LRU;
        return AOTICACHE_CLI_END;
    case OPTION_QUARANTINE_AGE:
        if (!aoticache_cli_parse_age(value, &seconds))
            return wrong(gc, "quarantine-age", value, "an age such as 30d");
        gc->options.quarantine_age_seconds = seconds == 0 ? UINT64_MAX : seconds; /* 0 means the default there */
        return AOTICACHE_CLI_END;
    default:
        if (!aoticache_cli_parse_age(value, &seconds) || seconds > UINT64_MAX / 1000)
            return wrong(gc, "time-limit", value, "a time such as 30s");
        gc->options.time_limit_ms = seconds * 1000;
        return AOTICACHE_CLI_END;
    }
}

/* An exit code, or AOTICACHE_CLI_END to go on. */
static int parse(aoticache_gc *gc)
{
    const char *value = NULL;
    int result = AOTICACHE_CLI_END;
    while (result == AOTICACHE_CLI_END) {
        int id = aoticache_cli_next(&gc->cli, &value);
        switch (id) {
        case OPTION_MAX_SIZE:
        case OPTION_MAX_ENTRIES:
        case OPTION_MAX_AGE:
        case OPTION_MIN_FREE:
        case OPTION_LOW:
            result = take_limit(gc, id, value);
            break;
        case OPTION_KEEP:
        case OPTION_POLICY:
        case OPTION_QUARANTINE_AGE:
        case OPTION_TIME_LIMIT:
            result = take_manner(gc, id, value);
            break;
        case OPTION_SCAN:
            gc->options.scan = true;
            break;
        case OPTION_VACUUM:
            gc->options.vacuum = true;
            break;
        case OPTION_TRUST_CLOCK:
            gc->options.trust_clock = true;
            break;
        case OPTION_NICE:
            gc->is_nice = true;
            break;
        case OPTION_DRY_RUN:
            gc->options.dry_run = true;
            break;
        case OPTION_PROGRESS:
            gc->shows_progress = true;
            break;
        case OPTION_PROMETHEUS:
            gc->prometheus = value;
            if (*value == '\0')
                result = wrong(gc, "prometheus", value, "the name of a file");
            break;
        case AOTICACHE_CLI_OPERAND:
            return aoticache_cli_usage_error(&gc->cli, "unexpected argument '%s'", value);
        case AOTICACHE_CLI_STOP:
            return gc->cli.exit_code;
        default:
            return AOTICACHE_CLI_END;
        }
    }
    return result;
}

/* ---- what the configuration says where the command line says nothing ---- */

/*
 * Values of the configuration were checked when they were read; 0 is no limit. What the command line leaves open is still as
 * the initializer has it; where it says 0, bytes and ages are 0, entries UINT64_MAX. Afterwards there is one form of each.
 */
static void configure(aoticache_gc *gc, const aoticache_config *config)
{
    aoticache_collect_options *options = &gc->options;
    const uint64_t max_bytes = aoticache_config_number(config, AOTICACHE_CONFIG_max_size);
    const uint64_t max_age = aoticache_config_number(config, AOTICACHE_CONFIG_max_age);
    if (options->max_bytes == UINT64_MAX && max_bytes > 0)
        options->max_bytes = max_bytes;
    if (options->max_entries == 0)
        options->max_entries = aoticache_config_number(config, AOTICACHE_CONFIG_max_entries);
    if (options->max_age_seconds == UINT64_MAX && max_age > 0)
        options->max_age_seconds = max_age;
    if (!gc->has_min_free) {
        options->min_free_bytes = aoticache_config_number(config, AOTICACHE_CONFIG_min_free);
        options->min_free_share = aoticache_config_min_free_share(config);
    }
    options->max_bytes = options->max_bytes != 0 ? options->max_bytes : UINT64_MAX;
    options->max_entries = options->max_entries != UINT64_MAX ? options->max_entries : 0;
    options->max_age_seconds = options->max_age_seconds != 0 ? options->max_age_seconds : UINT64_MAX;
    if (!gc->has_policy)
        options->policy = (aoticache_collect_policy)aoticache_config_number(config, AOTICACHE_CONFIG_policy);
    for (const char *const *pattern = aoticache_config_keep(config); *pattern != NULL; pattern++)
        add_keep(gc, *pattern);
    gc->has_limit = options->max_bytes != UINT64_MAX || options->max_entries > 0 ||
                    options->max_age_seconds != UINT64_MAX || options->min_free_bytes > 0 || options->min_free_share > 0;
}

/* 1 at least: 0 would be no low watermark. */
static uint64_t share_of(uint64_t number, double share)
{
    uint64_t part = (uint64_t)((double)number * share);
    return part > 0 ? part : 1;
}

/* The low watermark in bytes and entries, from what was given. */
static int settle_low(aoticache_gc *gc)
{
    aoticache_collect_options *options = &gc->options;
    if (!gc->has_low)
        return AOTICACHE_CLI_END;
    if (options->max_bytes == UINT64_MAX && options->max_entries == 0)
        return aoticache_cli_usage_error(&gc->cli, "option --low needs --max-size or --max-entries");
    if (options->low_bytes > 0 && options->max_bytes == UINT64_MAX)
        return aoticache_cli_usage_error(&gc->cli, "option --low: a size needs --max-size; a share will do without");
    if (options->low_bytes > options->max_bytes)
        return aoticache_cli_usage_error(&gc->cli, "option --low: more than --max-size");
    if (gc->low_share > 0 && options->max_bytes != UINT64_MAX)
        options->low_bytes = share_of(options->max_bytes, gc->low_share);
    if (gc->low_share > 0 && options->max_entries > 0)
        options->low_entries = share_of(options->max_entries, gc->low_share);
    return AOTICACHE_CLI_END;
}

/* ---- running ---- */

#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_CLASS_IDLE (3 << 13)

static void be_nice(const aoticache_gc *gc)
{
    if (setpriority(PRIO_PROCESS, 0, 19) != 0 ||
        syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_CLASS_IDLE) != 0)
        aoticache_cli_note(&gc->cli, "the priority stays as it is: %s", strerror(errno));
}

/* Nothing to do, for a good reason: exit code 0. */
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

static aoticache_gc_state state_of(const aoticache_collect_report *report)
{
    if (report->refused > 0)
        return AOTICACHE_GC_REFUSED;
    return report->is_partial ? AOTICACHE_GC_PARTIAL : AOTICACHE_GC_DONE;
}

static int refuse(const aoticache_gc *gc, const aoticache_collect_report *report)
{
    char previous[AOTICACHE_CLI_UNIT_BYTES], now[AOTICACHE_CLI_UNIT_BYTES];
    return aoticache_cli_error(&gc->cli,
                               "nothing is removed for its age: the clock says %s, the last collection or use was at %s, and "
                               "the machine has not been running for so long; %llu entries would go for that alone; set the "
                               "clock right, or give --trust-clock where it is (the machine was off)",
                               aoticache_cli_format_time(report->clock_ns, now),
                               aoticache_cli_format_time(report->previous_ns, previous),
                               (unsigned long long)report->refused);
}

static int collect(aoticache_gc *gc, aoticache_cache *cache)
{
    aoticache_error error = {.message = ""};
    aoticache_collect_report report = {0};
    const char *directory = aoticache_cache_directory(cache);
    gc->options.progress = aoticache_gc_tell_progress;
    gc->options.keep = gc->keep;
    aoticache_status status =
        aoticache_cache_collect(cache, &gc->options, aoticache_gc_tell_entry, gc, &report, &error);
    aoticache_cli_progress_clear(&gc->progress);
    if (status == AOTICACHE_LOCKED) {
        aoticache_cli_note(&gc->cli, "another collector is at work in %s: nothing done", directory);
        return report_idle(gc, directory, AOTICACHE_GC_LOCKED);
    }
    if (status != AOTICACHE_OK) {
        if (gc->prometheus != NULL)
            aoticache_gc_write_prometheus(gc, directory, NULL);
        return aoticache_cli_fail(&gc->cli, status, &error);
    }
    aoticache_gc_report(gc, directory, state_of(&report), &report);
    int result = gc->prometheus != NULL ? aoticache_gc_write_prometheus(gc, directory, &report) : AOTICACHE_CLI_EXIT_OK;
    return report.refused > 0 ? refuse(gc, &report) : result;
}

static int open_and_collect(aoticache_gc *gc)
{
    char directory[PATH_MAX];
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    aoticache_cli_directory(&gc->cli, directory);
    int result = aoticache_gc_become_owner(gc, directory);
    if (result != AOTICACHE_CLI_END)
        return result;
    aoticache_cache_options options = aoticache_cli_cache_options(&gc->cli);
    options.must_exist = true;
    options.may_use_reserve = !gc->options.dry_run;
    aoticache_status status = aoticache_cache_open(&options, &cache, &error);
    if (status == AOTICACHE_NOT_FOUND) {
        aoticache_cli_note(&gc->cli, "there is no cache at %s: nothing to do", directory);
        return report_idle(gc, directory, AOTICACHE_GC_ABSENT);
    }
    if (status != AOTICACHE_OK) {
        if (gc->prometheus != NULL)
            aoticache_gc_write_prometheus(gc, directory, NULL);
        return aoticache_cli_fail(&gc->cli, status, &error);
    }
    if (!gc->has_limit)
        aoticache_cli_note(&gc->cli,
                           "no limit given: only leftovers are removed (--max-size and --max-age set limits)");
    result = collect(gc, cache);
    aoticache_cache_close(cache);
    return result;
}

static int run(aoticache_gc *gc)
{
    int result = parse(gc);
    if (result != AOTICACHE_CLI_END)
        return result;
    configure(gc, aoticache_cli_config(&gc->cli));
    result = settle_low(gc);
    if (result != AOTICACHE_CLI_END)
        return result;
    gc->removed = gc->cli.json ? aoticache_cli_json_array() : NULL;
    gc->progress = (aoticache_cli_progress){.cli = &gc->cli, .what = "entries removed"};
    gc->begun_ns = aoticache_monotonic_ns();
    if (gc->is_nice)
        be_nice(gc);
    catch_signals();
    return open_and_collect(gc);
}

int main(int argc, char **argv)
{
    aoticache_gc gc = {.options = AOTICACHE_COLLECT_OPTIONS_INIT};
    aoticache_cli_begin(&gc.cli, &gc_program, argc, argv, 1);
    int result = run(&gc);
    if (gc.writer > 0)
        aoticache_gc_tell_writer(&gc, NULL);
    json_decref(gc.removed);
    free(gc.keep);
    return aoticache_cli_finish(&gc.cli, result);
}
