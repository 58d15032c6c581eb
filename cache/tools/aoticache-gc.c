/*
 * aoticache-gc: throws away what nobody uses, least recently used first. Made for cron and systemd timers: it says
 * little, does nothing wrong beside running programs, and finds nothing worth an error in a directory that is not there
 * or that another collector is at work in.
 */
#include "cache/tools/cli.h"

#include <inttypes.h>

enum { OPTION_MAX_SIZE = 1, OPTION_MAX_AGE, OPTION_DRY_RUN };

static const aoticache_cli_option gc_options[] = {
    {OPTION_MAX_SIZE, "max-size", 0, "SIZE", "keep at most so many bytes: 10G, 500MiB, 1.5T, 10GB"},
    {OPTION_MAX_AGE, "max-age", 0, "AGE", "remove what was not used for so long: 30d, 12h, 2w, 90s"},
    {OPTION_DRY_RUN, "dry-run", 'n', NULL, "say what would be removed, remove nothing"},
    {0, NULL, 0, NULL, NULL},
};

static const aoticache_cli_program gc_program = {
    .name = "aoticache-gc",
    .help_hint = "aoticache-gc --help",
    .usage = "[--max-size SIZE] [--max-age AGE] [OPTION]...",
    .summary = "Removes compiled kernels that nobody uses from the cache, least recently used first, and\n"
               "what processes that died left behind. What a live process holds stays.",
    .options = gc_options,
    .details = "Sizes: K, M, G, T and KiB, MiB, ... are powers of 1024; KB, MB, GB, ... powers of 1000.\n"
               "Where another collector is at work, or there is no cache yet, nothing is done: exit code 0.\n"
               "--verbose lists the entries that go.",
};

struct gc {
    aoticache_cli cli;
    aoticache_collect_options options;
    bool has_limit;
    json_t *removed; /* with --json */
};

/* An exit code, or AOTICACHE_CLI_END to go on. */
static int parse(struct gc *gc)
{
    const char *value = NULL;
    for (;;) {
        int id = aoticache_cli_next(&gc->cli, &value);
        switch (id) {
        case OPTION_MAX_SIZE:
            if (!aoticache_cli_parse_size(value, &gc->options.max_bytes))
                return aoticache_cli_usage_error(&gc->cli, "option --max-size: '%s' is not a size such as 10G", value);
            gc->has_limit = true;
            break;
        case OPTION_MAX_AGE:
            if (!aoticache_cli_parse_age(value, &gc->options.max_age_seconds))
                return aoticache_cli_usage_error(&gc->cli, "option --max-age: '%s' is not an age such as 30d", value);
            gc->has_limit = true;
            break;
        case OPTION_DRY_RUN:
            gc->options.dry_run = true;
            break;
        case AOTICACHE_CLI_OPERAND:
            return aoticache_cli_usage_error(&gc->cli, "unexpected argument '%s'", value);
        case AOTICACHE_CLI_STOP:
            return gc->cli.exit_code;
        default:
            return AOTICACHE_CLI_END;
        }
    }
}

static json_t *entry_to_json(const aoticache_entry *entry)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "key", aoticache_cli_json_digest(&entry->key));
    aoticache_cli_json_set(object, "artifact", aoticache_cli_json_digest(&entry->artifact));
    aoticache_cli_json_set(object, "description", aoticache_cli_json_text(entry->description));
    aoticache_cli_json_set(object, "bytes", aoticache_cli_json_count(entry->bytes));
    aoticache_cli_json_set(object, "last_used_ns", aoticache_cli_json_count((uint64_t)entry->last_used_ns));
    return object;
}

static bool entry_goes(void *user, const aoticache_entry *entry)
{
    struct gc *gc = user;
    if (gc->removed != NULL) {
        aoticache_cli_json_append(gc->removed, entry_to_json(entry));
        return true;
    }
    if (!gc->cli.verbose)
        return true;
    char hex[AOTICACHE_DIGEST_HEX_BYTES], bytes[AOTICACHE_CLI_UNIT_BYTES], age[AOTICACHE_CLI_UNIT_BYTES];
    aoticache_digest_to_hex(&entry->key, hex);
    char *description = aoticache_cli_escape(entry->description != NULL ? entry->description : "");
    printf("%s %.12s %s (%s, used %s ago)\n", gc->options.dry_run ? "would remove" : "removed", hex, description,
           aoticache_cli_format_bytes(entry->bytes, bytes), aoticache_cli_format_age(entry->last_used_ns, age));
    free(description);
    return true;
}

static void print_json(struct gc *gc, const char *directory, const char *state, const aoticache_collect_report *report)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(directory));
    aoticache_cli_json_set(object, "state", aoticache_cli_json_text(state));
    aoticache_cli_json_set(object, "dry_run", json_boolean(gc->options.dry_run));
    aoticache_cli_json_set(object, "entries_before", aoticache_cli_json_count(report->entries_before));
    aoticache_cli_json_set(object, "bytes_before", aoticache_cli_json_count(report->bytes_before));
    aoticache_cli_json_set(object, "entries_after", aoticache_cli_json_count(report->entries_after));
    aoticache_cli_json_set(object, "bytes_after", aoticache_cli_json_count(report->bytes_after));
    aoticache_cli_json_set(object, "entries_removed", aoticache_cli_json_count(report->entries_removed));
    aoticache_cli_json_set(object, "objects_removed", aoticache_cli_json_count(report->objects_removed));
    aoticache_cli_json_set(object, "bytes_removed", aoticache_cli_json_count(report->bytes_removed));
    aoticache_cli_json_set(object, "held", aoticache_cli_json_count(report->held));
    aoticache_cli_json_set(object, "leftovers", aoticache_cli_json_count(report->leftovers));
    aoticache_cli_json_set(object, "removed", gc->removed);
    gc->removed = NULL;
    aoticache_cli_json_print(object);
}

static const char *plural(uint64_t count, const char *one, const char *many)
{
    return count == 1 ? one : many;
}

static void print_summary(const struct gc *gc, const aoticache_collect_report *report)
{
    char before[AOTICACHE_CLI_UNIT_BYTES], after[AOTICACHE_CLI_UNIT_BYTES], removed[AOTICACHE_CLI_UNIT_BYTES];
    const char *verb = gc->options.dry_run ? "would remove" : "removed";
    printf("%s %" PRIu64 " of %" PRIu64 " %s (%s of %s)", verb, report->entries_removed, report->entries_before,
           plural(report->entries_before, "entry", "entries"),
           aoticache_cli_format_bytes(report->bytes_removed, removed), aoticache_cli_format_bytes(report->bytes_before, before));
    printf(", %" PRIu64 " %s", report->leftovers, plural(report->leftovers, "leftover", "leftovers"));
    printf("; %" PRIu64 " %s (%s)", report->entries_after, gc->options.dry_run ? "would stay" : "left",
           aoticache_cli_format_bytes(report->bytes_after, after));
    if (report->held > 0)
        printf(", %" PRIu64 " of them due but held by running programs", report->held);
    putchar('\n');
}

/* Nothing to do, for a good reason: exit code 0. */
static int print_idle(struct gc *gc, const char *directory, const char *state)
{
    aoticache_collect_report report = {0};
    if (gc->cli.json)
        print_json(gc, directory, state, &report);
    return AOTICACHE_CLI_EXIT_OK;
}

static int collect(struct gc *gc, aoticache_cache *cache)
{
    aoticache_error error = {.message = ""};
    aoticache_collect_report report = {0};
    aoticache_status status = aoticache_cache_collect(cache, &gc->options, entry_goes, gc, &report, &error);
    if (status == AOTICACHE_LOCKED) {
        aoticache_cli_note(&gc->cli, "another collector is at work in %s: nothing done",
                           aoticache_cache_directory(cache));
        return print_idle(gc, aoticache_cache_directory(cache), "locked");
    }
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(&gc->cli, status, &error);
    if (gc->cli.json)
        print_json(gc, aoticache_cache_directory(cache), "done", &report);
    else if (!gc->cli.quiet)
        print_summary(gc, &report);
    return AOTICACHE_CLI_EXIT_OK;
}

static int run(struct gc *gc)
{
    int result = parse(gc);
    if (result != AOTICACHE_CLI_END)
        return result;
    gc->removed = gc->cli.json ? aoticache_cli_json_array() : NULL;

    char directory[PATH_MAX];
    aoticache_cli_directory(&gc->cli, directory);
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_cli_open_cache(&gc->cli, false, &cache, &error);
    if (status == AOTICACHE_NOT_FOUND) {
        aoticache_cli_note(&gc->cli, "there is no cache at %s: nothing to do", directory);
        return print_idle(gc, directory, "absent");
    }
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(&gc->cli, status, &error);
    if (!gc->has_limit)
        aoticache_cli_note(&gc->cli,
                           "no limit given: only leftovers are removed (--max-size and --max-age set limits)");
    result = collect(gc, cache);
    aoticache_cache_close(cache);
    return result;
}

int main(int argc, char **argv)
{
    struct gc gc = {.options = AOTICACHE_COLLECT_OPTIONS_INIT};
    aoticache_cli_begin(&gc.cli, &gc_program, argc, argv, 1);
    int result = run(&gc);
    json_decref(gc.removed);
    return aoticache_cli_finish(&gc.cli, result);
}
