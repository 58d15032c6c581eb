/*
 * aoticache run-package: loads a model of a .pt2 package from the cache, storing it if it is missing, runs it, and prints
 * its outputs and times.
 */
#include "base/cleanup.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/aoticache_internal.h"
#include "tools/aoticache/run/run_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct run {
    const char *what; /* a file or a key */
    const char *model, *device, *weights;
    bool map_weights, ignore_unknown;
    aoticache_run_inputs inputs;
    aoticache_timed_runs runs;

    aoticache_cache *cache;
    aoticache_runner *runner;
    aoticache_package_report report;
};

static const aoticache_cli_option run_package_options[] = {
    AOTICACHE_CLI_TABLE(struct run, inputs, aoticache_run_inputs_option_table),
    {"model", 'm', "NAME", "the model to run; default: the only one, or \"model\"",
     AOTICACHE_CLI_TEXT(struct run, model)},
    {"device", 0, "DEVICE", "the device to run on; default: the one that the package was\ncompiled for",
     AOTICACHE_CLI_TEXT(struct run, device)},
    {"weights", 'w', "FILE", "a .safetensors file; its tensors replace the package's tensors\nof the same names",
     AOTICACHE_CLI_NAME(struct run, weights, "a file is needed")},
    {"map-weights", 0, NULL, "map that file, so that processes share it; it must not change",
     AOTICACHE_CLI_SET(struct run, map_weights)},
    {"ignore-unknown", 0, NULL, "ignore tensors of that file that the model does not\nhave",
     AOTICACHE_CLI_SET(struct run, ignore_unknown)},
    AOTICACHE_CLI_TABLE(struct run, runs, aoticache_timed_runs_option_table),
    {0},
};

/* ---- loading ---- */

/* Takes it as a file if one of this name exists, otherwise as a prefix of a key. */
static int find_key(const aoticache_cli *cli, struct run *run, bool *ret_is_key, aoticache_key *ret_key)
{
    *ret_is_key = access(run->what, F_OK) != 0 && strspn(run->what, "0123456789abcdefABCDEF") == strlen(run->what);
    if (!*ret_is_key)
        return AOTICACHE_CLI_EXIT_OK;
    aoticache_entry_list list = {0};
    int result = aoticache_entries_find(cli, run->cache, run->what, &list);
    if (result == AOTICACHE_CLI_EXIT_OK)
        *ret_key = list.entries[0].key;
    aoticache_entries_free(&list);
    return result;
}

static int load(const aoticache_cli *cli, struct run *run)
{
    bool is_key;
    aoticache_key key;
    aoticache_error error = {.message = ""};
    int result = find_key(cli, run, &is_key, &key);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    aoticache_package_options options = AOTICACHE_PACKAGE_OPTIONS_INIT;
    options.model = run->model;
    options.device = run->device;
    options.weights = run->weights;
    options.map_weights = run->map_weights;
    options.ignore_unknown_weights = run->ignore_unknown;
    aoticache_status status =
        is_key ? aoticache_package_load_key(run->cache, &key, &options, &run->runner, &run->report, &error)
               : aoticache_package_load(run->cache, run->what, &options, &run->runner, &run->report, &error);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(cli, status, &error);
}

static bool find_inputs(void *user, const char *name, const char *value)
{
    bool *is_described = user;
    (void)value;
    *is_described |= strcmp(name, "aoticache.inputs") == 0;
    return true;
}

/* Enables the code's own check of its inputs, before its first run, if the package has no specification of them. */
static void have_inputs_compared(struct run *run)
{
    bool is_described = false;
    aoticache_package_read_metadata(run->cache, &run->report.key, find_inputs, &is_described, NULL);
    if (!is_described)
        setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", 0);
}

/* ---- printing ---- */

static const char *source_text(const aoticache_package_report *report)
{
    if (!report->stored)
        return "unpacked now, could not be stored";
    return report->added ? "added now" : "found in the cache";
}

static int print_json(const aoticache_cli *cli, const struct run *run)
{
    const aoticache_package_report *report = &run->report;
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "model", aoticache_cli_json_text(report->model));
    aoticache_cli_json_set(object, "device", aoticache_cli_json_text(aoticache_runner_get_info(run->runner)->device));
    aoticache_cli_json_set(object, "key", aoticache_cli_json_digest(&report->key));
    aoticache_cli_json_set(object, "added", json_boolean(report->added));
    aoticache_cli_json_set(object, "stored", json_boolean(report->stored));
    aoticache_cli_json_set(object, "bytes", aoticache_cli_json_count(report->bytes));
    aoticache_cli_json_set(object, "digest_ns", aoticache_cli_json_count(report->digest_ns));
    aoticache_cli_json_set(object, "add_ns", aoticache_cli_json_count(report->add_ns));
    aoticache_cli_json_set(object, "load_ns", aoticache_cli_json_count(report->load_ns));
    return aoticache_timed_runs_print_json(&run->runs, cli, object);
}

static int print_text(const aoticache_cli *cli, const struct run *run)
{
    const aoticache_package_report *report = &run->report;
    char hex[AOTICACHE_DIGEST_HEX_BYTES], time[AOTICACHE_CLI_UNIT_BYTES];
    int result = aoticache_timed_runs_print_outputs(&run->runs, cli, NULL);
    if (result != AOTICACHE_CLI_EXIT_OK || cli->quiet)
        return result;
    aoticache_digest_to_hex(&report->key, hex);
    printf("\n");
    aoticache_cli_print_field(cli, "model", "%s on %s", report->model, aoticache_runner_get_info(run->runner)->device);
    aoticache_cli_print_field(cli, "key", "%.12s", hex);
    aoticache_cli_print_field(cli, "source", "%s", source_text(report));
    aoticache_cli_print_field(cli, "size", "%s", aoticache_cli_format_bytes(report->bytes, time));
    if (report->digest_ns > 0)
        aoticache_cli_print_field(cli, "digest", "%s", aoticache_cli_format_duration(report->digest_ns, time));
    if (report->add_ns > 0)
        aoticache_cli_print_field(cli, "unpacking", "%s", aoticache_cli_format_duration(report->add_ns, time));
    aoticache_cli_print_field(cli, "load", "%s", aoticache_cli_format_duration(report->load_ns, time));
    aoticache_timed_runs_print_times(&run->runs, cli);
    return result;
}

/* ---- the whole command ---- */

static int load_run_and_print(const aoticache_cli *cli, struct run *run)
{
    int result = aoticache_run_inputs_make(&run->inputs, cli);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_cli_open_or_report(cli, true, &run->cache);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = load(cli, run);
    if (result == AOTICACHE_CLI_EXIT_OK)
        have_inputs_compared(run);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_run_inputs_add(&run->inputs, cli, &run->runs);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_timed_runs_execute(&run->runs, cli, run->runner);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    return cli->json ? print_json(cli, run) : print_text(cli, run);
}

static int run_package_command(aoticache_cli *cli)
{
    struct run run = {0};
    int result = aoticache_cli_parse(cli, &run) ? load_run_and_print(cli, &run) : cli->exit_code;
    aoticache_timed_runs_free(&run.runs);
    aoticache_run_inputs_free(&run.inputs);
    aoticache_runner_unref(run.runner);
    aoticache_cache_close(run.cache);
    return result;
}

const aoticache_command aoticache_command_run_package = {
    .word = "run-package",
    .program =
        {
            .name = "aoticache run-package",
            .help_hint = "aoticache help run-package",
            .usage = "FILE.pt2|KEY [--input SPEC]... [OPTION]...",
            .summary = "Runs a model of a .pt2 package and prints the result. Stores the model if the cache lacks it.",
            .details =
                "KEY is a key that 'aoticache add' printed, or its first digits; the package is not needed then.\n"
                "SPEC is DTYPE:SIZExSIZE...[@STRIDExSTRIDE...][=FILL], as 'aoticache help run' explains.",
            .options = run_package_options,
            .operand = {AOTICACHE_CLI_TEXT(struct run, what),
                        .wanted = "a package such as model.pt2, or the key of a package, is needed"},
        },
    .run = run_package_command,
};
