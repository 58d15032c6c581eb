/*
 * aoticache verify: reads and hashes everything in the cache, says what is wrong, and with --repair sets it right.
 */
#include "base/cleanup.h"
#include "eager/tools/commands.h"

#include <inttypes.h>

enum { OPTION_REPAIR = 1 };

static const aoticache_cli_option verify_options[] = {
    {OPTION_REPAIR, "repair", 0, NULL,
     "move damaged and foreign files to quarantine/, remove entries that\n"
     "cannot be served, put back entries that the index lost"},
    {0, NULL, 0, NULL, NULL},
};

struct verify {
    const aoticache_cli *cli;
    bool repair;
    aoticache_cli_progress progress;
    json_t *findings; /* with --json */
};

static void finding(void *user, const char *what, const char *name, const char *detail)
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

static void progress(void *user, uint64_t done, uint64_t all)
{
    struct verify *verify = user;
    aoticache_cli_progress_show(&verify->progress, done, all);
}

static uint64_t problems(const aoticache_verify_report *report)
{
    return report->damaged + report->missing + report->foreign + report->unindexed;
}

static void print_json(struct verify *verify, const char *directory, const aoticache_verify_report *report)
{
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(directory));
    aoticache_cli_json_set(object, "repair", json_boolean(verify->repair));
    aoticache_cli_json_set(object, "entries", aoticache_cli_json_count(report->entries));
    aoticache_cli_json_set(object, "objects", aoticache_cli_json_count(report->objects));
    aoticache_cli_json_set(object, "bytes", aoticache_cli_json_count(report->bytes));
    aoticache_cli_json_set(object, "damaged", aoticache_cli_json_count(report->damaged));
    aoticache_cli_json_set(object, "missing", aoticache_cli_json_count(report->missing));
    aoticache_cli_json_set(object, "foreign", aoticache_cli_json_count(report->foreign));
    aoticache_cli_json_set(object, "unindexed", aoticache_cli_json_count(report->unindexed));
    aoticache_cli_json_set(object, "unreferenced", aoticache_cli_json_count(report->unreferenced));
    aoticache_cli_json_set(object, "repaired", aoticache_cli_json_count(report->repaired));
    aoticache_cli_json_set(object, "findings", verify->findings);
    verify->findings = NULL;
    aoticache_cli_json_print(object);
}

static void print_text(const struct verify *verify, const aoticache_verify_report *report)
{
    char bytes[AOTICACHE_CLI_UNIT_BYTES];
    printf("%" PRIu64 " %s, %" PRIu64 " objects, %s: ", report->entries, report->entries == 1 ? "entry" : "entries",
           report->objects,
           aoticache_cli_format_bytes(report->bytes, bytes));
    if (problems(report) == 0) {
        printf("%sall is well%s\n", aoticache_cli_style_begin(verify->cli, AOTICACHE_CLI_GREEN),
               aoticache_cli_style_begin(verify->cli, AOTICACHE_CLI_PLAIN));
    } else {
        printf("%" PRIu64 " damaged, %" PRIu64 " missing, %" PRIu64 " foreign, %" PRIu64 " not in the index",
               report->damaged, report->missing, report->foreign, report->unindexed);
        if (verify->repair)
            printf("; %" PRIu64 " repaired", report->repaired);
        printf("\n");
    }
    if (report->unreferenced > 0)
        aoticache_cli_note(verify->cli, "%" PRIu64 " objects that no entry names; aoticache-gc removes them",
                           report->unreferenced);
}

static int run_verify(struct verify *verify, aoticache_cache *cache)
{
    aoticache_error error = {.message = ""};
    aoticache_verify_report report = {0};
    aoticache_status status =
        aoticache_cache_verify(cache, verify->repair, finding, progress, verify, &report, &error);
    aoticache_cli_progress_clear(&verify->progress);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(verify->cli, status, &error);
    if (verify->cli->json)
        print_json(verify, aoticache_cache_directory(cache), &report);
    else if (!verify->cli->quiet)
        print_text(verify, &report);
    if (problems(&report) == 0 || (verify->repair && report.repaired >= problems(&report)))
        return AOTICACHE_CLI_EXIT_OK;
    if (!verify->repair)
        aoticache_cli_note(verify->cli, "'aoticache verify --repair' sets it right; what was lost is compiled again");
    return AOTICACHE_CLI_EXIT_DAMAGED;
}

static int verify_command(aoticache_cli *cli)
{
    struct verify verify = {.cli = cli, .progress = {.cli = cli, .what = "objects verified"}};
    for (;;) {
        const char *value = NULL;
        int id = aoticache_cli_next(cli, &value);
        if (id == AOTICACHE_CLI_STOP)
            return cli->exit_code;
        if (id == AOTICACHE_CLI_END)
            break;
        if (id == AOTICACHE_CLI_OPERAND)
            return aoticache_cli_usage_error(cli, "unexpected argument '%s'", value);
        verify.repair = true;
    }
    aoticache_cache *cache = NULL;
    int result = aoticache_cli_open_or_say(cli, false, &cache);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    verify.findings = cli->json ? aoticache_cli_json_array() : NULL;
    result = run_verify(&verify, cache);
    json_decref(verify.findings);
    aoticache_cache_close(cache);
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
            .details = "Findings: damaged (bytes do not hash to their name), missing (an entry names what is not\n"
                       "there), foreign (symbolic links, other owners, odd names), unindexed (stored, but not in the index).",
            .options = verify_options,
        },
    .run = verify_command,
};
