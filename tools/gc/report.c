/*
 * tools/gc/report: reports a run of aoticache-gc: a line, JSON, progress, and a file for Prometheus.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/names.h"
#include "cache/entries.h"
#include "tools/gc/gc.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define LINE_EVERY_NS 5000000000u

static const char *state_word(aoticache_gc_state state)
{
    switch (state) {
    case AOTICACHE_GC_PARTIAL:
        return "partial";
    case AOTICACHE_GC_LOCKED:
        return "locked";
    case AOTICACHE_GC_ABSENT:
        return "absent";
    case AOTICACHE_GC_REFUSED:
        return "refused";
    default:
        return "done";
    }
}

/* ---- while it runs ---- */

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

/* Reports a removed entry. A signal stops the run in aoticache_gc_show_progress(): removed entries are always listed
 * completely. */
bool aoticache_gc_report_entry(void *user, const aoticache_entry *entry)
{
    aoticache_gc *gc = user;
    if (gc->removed != NULL) {
        aoticache_cli_json_append(gc->removed, entry_to_json(entry));
        return true;
    }
    if (!gc->cli.verbose)
        return true;
    char hex[AOTICACHE_DIGEST_HEX_BYTES], bytes[AOTICACHE_CLI_UNIT_BYTES], age[AOTICACHE_CLI_UNIT_BYTES];
    aoticache_digest_to_hex(&entry->key, hex);
    char *description = aoticache_cli_escape(entry->description != NULL ? entry->description : "");
    aoticache_cli_progress_clear(&gc->progress);
    printf("%s %.12s %s (%s, used %s ago)\n", gc->options.dry_run ? "would remove" : "removed", hex, description,
           aoticache_cli_format_bytes(entry->bytes, bytes), aoticache_cli_format_age(entry->last_used_ns, age));
    free(description);
    return true;
}

bool aoticache_gc_show_progress(void *user, uint64_t done, uint64_t all)
{
    aoticache_gc *gc = user;
    uint64_t now = aoticache_monotonic_ns();
    if (isatty(STDERR_FILENO)) {
        aoticache_cli_progress_show(&gc->progress, done, all);
    } else if (gc->shows_progress && now - gc->told_ns > LINE_EVERY_NS) {
        if (gc->told_ns != 0)
            aoticache_cli_note(&gc->cli, "%" PRIu64 "/%" PRIu64 " entries removed", done, all);
        gc->told_ns = now;
    }
    return *gc->interrupted == 0;
}

/* ---- at the end ---- */

/* name in JSON and Prometheus, field, description */
#define REPORT_LIST(X)                                                             \
    X(entries_before, "entries when the run began")                                \
    X(bytes_before, "bytes that the store held when the run began")                \
    X(entries_after, "entries when the run ended")                                 \
    X(bytes_after, "bytes that the store held when the run ended")                 \
    X(entries_removed, "entries that the run removed")                             \
    X(objects_removed, "objects that the run removed")                             \
    X(bytes_removed, "bytes that the run removed")                                 \
    X(held, "entries that were due but held by running programs")                  \
    X(pinned, "entries that were due but pinned")                                  \
    X(kept, "entries that were due but of an operator to keep")                    \
    X(leftovers, "files of dead processes that were removed")                      \
    X(failures_removed, "remembered failures that had expired and were forgotten") \
    X(quarantine_removed, "old files of quarantine/ that were removed")            \
    X(refused, "entries that stayed because the clock has jumped")                 \
    X(vacuumed_bytes, "bytes of the index that were returned")

static void print_json(aoticache_gc *gc, const char *directory, aoticache_gc_state state,
                       const aoticache_collect_report *report)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(directory));
    aoticache_cli_json_set(object, "state", aoticache_cli_json_text(state_word(state)));
    aoticache_cli_json_set(object, "dry_run", json_boolean(gc->options.dry_run));
#define REPORT_JSON(name, text) aoticache_cli_json_set(object, #name, aoticache_cli_json_count(report->name));
    REPORT_LIST(REPORT_JSON)
#undef REPORT_JSON
    aoticache_cli_json_set(object, "duration_ns", aoticache_cli_json_count(aoticache_monotonic_ns() - gc->begun_ns));
    aoticache_cli_json_set(object, "removed", gc->removed);
    gc->removed = NULL;
    aoticache_cli_json_print(object);
}

static const char *choose_plural(uint64_t count, const char *one, const char *many)
{
    return count == 1 ? one : many;
}

static void print_count(uint64_t count, const char *text)
{
    if (count > 0)
        printf(", %" PRIu64 " %s", count, text);
}

static void print_summary(const aoticache_gc *gc, aoticache_gc_state state, const aoticache_collect_report *report)
{
    char before[AOTICACHE_CLI_UNIT_BYTES], after[AOTICACHE_CLI_UNIT_BYTES], removed[AOTICACHE_CLI_UNIT_BYTES];
    const char *verb = gc->options.dry_run ? "would remove" : "removed";
    printf("%s %" PRIu64 " of %" PRIu64 " %s (%s of %s)", verb, report->entries_removed, report->entries_before,
           choose_plural(report->entries_before, "entry", "entries"),
           aoticache_cli_format_bytes(report->bytes_removed, removed),
           aoticache_cli_format_bytes(report->bytes_before, before));
    printf(", %" PRIu64 " %s", report->leftovers, choose_plural(report->leftovers, "leftover", "leftovers"));
    print_count(report->failures_removed, "expired failures");
    print_count(report->quarantine_removed, "old files of quarantine/");
    printf("; %" PRIu64 " %s (%s)", report->entries_after, gc->options.dry_run ? "would stay" : "left",
           aoticache_cli_format_bytes(report->bytes_after, after));
    print_count(report->held, "of them due but held by running programs");
    print_count(report->pinned, "due but pinned");
    print_count(report->kept, "due but to be kept");
    puts(state == AOTICACHE_GC_PARTIAL ? "; stopped before everything was done, the next run continues" : "");
}

void aoticache_gc_report(aoticache_gc *gc, const char *directory, aoticache_gc_state state,
                         const aoticache_collect_report *report)
{
    if (gc->cli.json)
        print_json(gc, directory, state, report);
    else if (!gc->cli.quiet)
        print_summary(gc, state, report);
}

/* ---- Prometheus ---- */

static void expose_gauge(aoticache_cli_exposition *to, const char *name, const char *help, double value)
{
    aoticache_cli_exposition_single(to, name, "gauge", help, value);
}

/* Writes the limits of this run; without a limit there is no sample. The free space is the larger of the two ways to specify
 * it. */
static void expose_limits(aoticache_cli_exposition *to, const aoticache_collect_options *options)
{
    struct statvfs filesystem;
    double least = (double)options->min_free_bytes, share = options->min_free_share;
    if (options->max_bytes != UINT64_MAX)
        expose_gauge(to, "gc_limit_bytes", "Bytes that the store may have by the run's limit.",
                     (double)options->max_bytes);
    if (options->max_entries != 0)
        expose_gauge(to, "gc_limit_entries", "Entries that the store may have by the run's limit.",
                     (double)options->max_entries);
    if (options->max_age_seconds != UINT64_MAX)
        expose_gauge(to, "gc_limit_age_seconds", "Age at which the run removed entries.",
                     (double)options->max_age_seconds);
    if (share > 0 && statvfs(to->directory, &filesystem) == 0 &&
        share * (double)filesystem.f_blocks * (double)filesystem.f_frsize > least)
        least = share * (double)filesystem.f_blocks * (double)filesystem.f_frsize;
    if (least > 0)
        expose_gauge(to, "gc_limit_free_bytes", "Free bytes that the run was to leave in the file system.",
                     floor(least));
}

int aoticache_gc_write_prometheus(aoticache_gc *gc, const char *directory, const aoticache_collect_report *report)
{
    aoticache_cli_exposition to;
    aoticache_cli_exposition_begin(&to, directory);
    expose_gauge(&to, "gc_success", "1 if the last run ended well, otherwise 0.", report != NULL);
    expose_gauge(&to, "gc_last_run_timestamp_seconds", "When the last run ended, in seconds since 1970.",
                 (double)aoticache_wall_ns() / 1e9);
    expose_gauge(&to, "gc_duration_seconds", "How long the last run took.",
                 (double)(aoticache_monotonic_ns() - gc->begun_ns) / 1e9);
    expose_limits(&to, &gc->options);
    aoticache_cli_exposition_build_info(&to, "aoticache-gc");
    if (report != NULL) {
        expose_gauge(&to, "gc_partial", "1 if the last run stopped before everything was done.", report->is_partial);
#define REPORT_GAUGE(name, help) expose_gauge(&to, "gc_" #name, "Last run: " help ".", (double)report->name);
        REPORT_LIST(REPORT_GAUGE)
#undef REPORT_GAUGE
    }
    cleanup_free char *text = aoticache_cli_exposition_end(&to);
    return gc->writer > 0 ? aoticache_gc_send_to_writer(gc, text)
                          : aoticache_cli_write_file(&gc->cli, gc->prometheus, true, text, to.size);
}
