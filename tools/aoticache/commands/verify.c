/*
 * aoticache verify: reads and hashes everything in the cache, reports problems, and with --repair repairs them.
 *
 * Ctrl-C stops it cleanly: it reports what was done, and records its position for --resume. A second Ctrl-C ends it
 * immediately.
 */
#include "base/clock.h"
#include "base/cleanup.h"
#include "tools/aoticache/aoticache_internal.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>

struct verify {
    const aoticache_cli *cli;
    aoticache_verify_options options;
    uint64_t time_limit_seconds; /* 0: none */
    aoticache_cli_progress progress;
    uint64_t begun_ns;
    json_t *findings; /* with --json */
};

static const aoticache_cli_option verify_options[] = {
    {"repair", 0, NULL,
     "move damaged and foreign files to quarantine/, remove entries that\n"
     "cannot be served, restore entries that the index lost, rebuild a\n"
     "damaged index",
     AOTICACHE_CLI_SET(struct verify, options.repair)},
    {"quick", 0, NULL, "check only names, owners and sizes; read no file",
     AOTICACHE_CLI_SET(struct verify, options.quick)},
    {"jobs", 'j', "N", "read N objects at the same time; default: one for each processor",
     AOTICACHE_CLI_INTEGER(struct verify, options.jobs, 1, 256, "a number from 1 to 256")},
    {"time-limit", 0, "TIME", "stop after this time: 90s, 5min, 1h; --resume continues",
     AOTICACHE_CLI_AGE(struct verify, time_limit_seconds, 1, UINT32_MAX, "a time such as 90s or 5min")},
    {"resume", 0, NULL, "continue where the last run stopped; if it finished, start over",
     AOTICACHE_CLI_SET(struct verify, options.resume)},
    {0},
};

/* ---- stopping ---- */

static volatile sig_atomic_t interrupted; /* the signal */

static void remember_signal(int number)
{
    interrupted = number;
}

static void catch_signals(void)
{
    /* Writing of findings continues after the signal. */
    aoticache_cli_catch_signals(remember_signal, (int)(SA_RESETHAND | SA_RESTART));
}

/* Ends the program with the signal, so that its sender sees that. */
static void end_by_signal(const aoticache_cli *cli, int exit_code)
{
    if (interrupted == 0)
        return;
    aoticache_cli_finish(cli, exit_code);
    signal(interrupted, SIG_DFL);
    raise(interrupted);
}

/* ---- output during the run ---- */

static void report_finding(void *user, const char *what, const char *name, const char *detail)
{
    struct verify *verify = user;
    if (verify->findings != NULL) {
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "what", aoticache_cli_json_text(what));
        aoticache_cli_json_set(object, "name", aoticache_cli_json_text(name));
        aoticache_cli_json_set(object, "detail", aoticache_cli_json_text(detail));
        aoticache_cli_json_append(verify->findings, object);
        return;
    }
    aoticache_cli_progress_clear(&verify->progress);
    cleanup_free char *escaped_name = aoticache_cli_escape(name);
    cleanup_free char *escaped_detail = aoticache_cli_escape(detail);
    printf("%s%-10s%s %s: %s\n", aoticache_cli_style_begin(verify->cli, AOTICACHE_CLI_RED), what,
           aoticache_cli_style_begin(verify->cli, AOTICACHE_CLI_PLAIN), escaped_name, escaped_detail);
}

static bool show_progress(void *user, uint64_t done, uint64_t all)
{
    struct verify *verify = user;
    aoticache_cli_progress_show(&verify->progress, done, all);
    return interrupted == 0;
}

/* ---- results ---- */

static bool is_sound(const struct verify *verify, const aoticache_verify_report *report)
{
    uint64_t problems = aoticache_verify_report_problems(report);
    return problems == 0 || (verify->options.repair && report->repaired >= problems);
}

static void print_json(struct verify *verify, const char *directory, const aoticache_verify_report *report)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(directory));
    aoticache_cli_json_set(object, "repair", json_boolean(verify->options.repair));
    aoticache_cli_json_set(object, "quick", json_boolean(verify->options.quick));
    aoticache_cli_json_set(object, "partial", json_boolean(report->is_partial));
    aoticache_cli_json_set(object, "seconds",
                           aoticache_cli_json_number((double)(aoticache_monotonic_ns() - verify->begun_ns) / 1e9));
    aoticache_cli_json_set(object, "entries", aoticache_cli_json_count(report->entries));
#define SET_COUNT(name, text) aoticache_cli_json_set(object, #name, aoticache_cli_json_count(report->name));
    AOTICACHE_VERIFY_COUNT_LIST(SET_COUNT)
#undef SET_COUNT
    aoticache_cli_json_set(object, "resumed_objects", aoticache_cli_json_count(report->resumed_objects));
    aoticache_cli_json_set(object, "findings", verify->findings);
    verify->findings = NULL;
    aoticache_cli_json_print(object);
}

/* Returns "3.1 s, 412.0 MiB/s": for what this run read, not an earlier one. */
static char *format_speed(const struct verify *verify, const aoticache_verify_report *report)
{
    char time[AOTICACHE_CLI_UNIT_BYTES], rate[AOTICACHE_CLI_UNIT_BYTES];
    uint64_t ns = aoticache_monotonic_ns() - verify->begun_ns;
    double read = (double)(report->bytes - report->resumed_bytes);
    aoticache_cli_format_duration(ns, time);
    if (verify->options.quick || ns == 0)
        return aoticache_cli_text("%s", time);
    aoticache_cli_format_bytes((uint64_t)(read * 1e9 / (double)ns), rate);
    return aoticache_cli_text("%s, %s/s", time, rate);
}

static void print_problems(const aoticache_verify_report *report)
{
    const struct {
        uint64_t count;
        const char *text;
    } kinds[] = {{report->wrong_entries, "entries at odds with their manifest"},
                 {report->wrong_links, "wrong directories of side files"},
                 {report->wrong_marks, "damaged pins and tags"},
                 {report->wrong_signatures, "wrong or revoked signatures"},
                 {report->unreadable, "that cannot be read"}};
    printf("%" PRIu64 " damaged, %" PRIu64 " missing, %" PRIu64 " foreign, %" PRIu64 " not in the index",
           report->damaged, report->missing, report->foreign, report->unindexed);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (kinds[i].count > 0)
            printf(", %" PRIu64 " %s", kinds[i].count, kinds[i].text);
}

static void print_text(const struct verify *verify, const aoticache_verify_report *report)
{
    char bytes[AOTICACHE_CLI_UNIT_BYTES];
    cleanup_free char *speed = format_speed(verify, report);
    printf("%" PRIu64 " %s, %" PRIu64 " objects, %s (%s): ", report->entries,
           report->entries == 1 ? "entry" : "entries", report->objects,
           aoticache_cli_format_bytes(report->bytes, bytes), speed);
    if (aoticache_verify_report_problems(report) > 0)
        print_problems(report);
    else if (report->unreadable > 0)
        printf("%s%" PRIu64 " that cannot be read%s, everything else is well",
               aoticache_cli_style_begin(verify->cli, AOTICACHE_CLI_RED), report->unreadable,
               aoticache_cli_style_begin(verify->cli, AOTICACHE_CLI_PLAIN));
    else
        printf("%s%s%s", aoticache_cli_style_begin(verify->cli, AOTICACHE_CLI_GREEN),
               report->is_partial ? "so far all is well" : "all is well",
               aoticache_cli_style_begin(verify->cli, AOTICACHE_CLI_PLAIN));
    if (verify->options.repair && aoticache_verify_report_problems(report) > 0)
        printf("; %" PRIu64 " repaired", report->repaired);
    printf("\n");
}

static void print_notes(const struct verify *verify, const aoticache_verify_report *report)
{
    if (report->resumed_objects > 0)
        aoticache_cli_note(verify->cli, "%" PRIu64 " of these objects were examined by earlier runs",
                           report->resumed_objects);
    if (report->is_partial)
        aoticache_cli_note(verify->cli,
                           "stopped before everything was examined; 'aoticache verify --resume%s%s' continues",
                           verify->options.quick ? " --quick" : "", verify->options.repair ? " --repair" : "");
    else if (report->unreferenced > 0)
        aoticache_cli_note(verify->cli, "%" PRIu64 " objects that no entry names; aoticache-gc removes them",
                           report->unreferenced);
    if (!verify->options.repair && aoticache_verify_report_problems(report) > 0)
        aoticache_cli_note(verify->cli, "'aoticache verify --repair' repairs it; lost kernels are compiled again");
    if (report->unreadable > 0)
        aoticache_cli_note(verify->cli, "files that cannot be read may be sound or not, and stay: verify as a user who "
                                        "may read them");
}

static int run_verify(struct verify *verify, aoticache_cache *cache)
{
    aoticache_error error = {.message = ""};
    aoticache_verify_report report = {0};
    verify->begun_ns = aoticache_monotonic_ns();
    catch_signals();
    aoticache_status status =
        aoticache_cache_verify(cache, &verify->options, report_finding, show_progress, verify, &report, &error);
    aoticache_cli_progress_clear(&verify->progress);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(verify->cli, status, &error);
    if (verify->cli->json)
        print_json(verify, aoticache_cache_directory(cache), &report);
    else if (!verify->cli->quiet)
        print_text(verify, &report);
    print_notes(verify, &report);
    if (!is_sound(verify, &report))
        return AOTICACHE_CLI_EXIT_DAMAGED;
    return report.unreadable > 0 ? AOTICACHE_CLI_EXIT_UNREADABLE : AOTICACHE_CLI_EXIT_OK;
}

/* Reports that there is no cache, which has been noted. */
static int report_nothing(struct verify *verify)
{
    char directory[PATH_MAX];
    aoticache_cli_directory(verify->cli, directory);
    verify->begun_ns = aoticache_monotonic_ns();
    if (verify->cli->json)
        print_json(verify, directory, &(aoticache_verify_report){0});
    return AOTICACHE_CLI_EXIT_OK;
}

static int verify_command(aoticache_cli *cli)
{
    struct verify verify = {
        .cli = cli, .options = AOTICACHE_VERIFY_OPTIONS_INIT, .progress = {.cli = cli, .what = "objects verified"}};
    aoticache_cache *cache = NULL;
    if (!aoticache_cli_parse(cli, &verify))
        return cli->exit_code;
    if (verify.time_limit_seconds > 0)
        verify.options.time_limit_ms = verify.time_limit_seconds * 1000;
    int result = aoticache_cli_open_if_there(cli, &cache);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    verify.findings = cli->json ? aoticache_cli_json_array() : NULL;
    result = cache != NULL ? run_verify(&verify, cache) : report_nothing(&verify);
    json_decref(verify.findings);
    aoticache_cache_close(cache);
    end_by_signal(cli, result);
    return result;
}

const aoticache_command aoticache_command_verify = {
    .word = "verify",
    .program =
        {
            .name = "aoticache verify",
            .help_hint = "aoticache help verify",
            .usage = "[--repair] [OPTION]...",
            .summary = "Checks every stored byte against its digest and the index against the store.",
            .details = "Findings:\n"
                       "  damaged     the bytes of a file do not hash to its name\n"
                       "  missing     an entry names a file that does not exist\n"
                       "  foreign     a symbolic link, another owner, or an unexpected name\n"
                       "  unindexed   a kernel is stored, but the index does not have it\n"
                       "  entry       an entry differs from its manifest\n"
                       "  link        a directory of side files does not match its artifact\n"
                       "  mark        a file with a pin or tags is damaged\n"
                       "  signature   a signature is damaged, revoked, or for another entry\n"
                       "  unreadable  a file cannot be read (no permission, or the disk fails). It\n"
                       "              stays; the exit code is 6 if nothing else is found",
            .options = verify_options,
        },
    .run = verify_command,
};
