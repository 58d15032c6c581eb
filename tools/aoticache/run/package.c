/*
 * aoticache run-package: loads a model of a .pt2 package from the cache, storing it where it is not there, runs it,
 * prints what came out and how long it took.
 */
#include "base/cleanup.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/internal.h"
#include "tools/aoticache/run/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_INPUTS 1024

struct input {
    aoticache_tensor_spec spec;
    void *data;
};

struct run {
    const char *what; /* a file or a key */
    const char *model, *device;
    aoticache_cli_list words; /* of --input */
    struct input *inputs;
    uint64_t seed;
    aoticache_timed_runs runs;

    aoticache_cache *cache;
    aoticache_runner *runner;
    aoticache_package_report report;
};

static const aoticache_cli_option run_package_options[] = {
    {"input", 'i', "SPEC", "a tensor, in the order of the model's inputs", AOTICACHE_CLI_LIST(struct run, words)},
    {"model", 'm', "NAME", "the model to run; default: the only one, or \"model\"",
     AOTICACHE_CLI_TEXT(struct run, model)},
    {"device", 0, "DEVICE", "the device to run on; default: the one that the package was\ncompiled for",
     AOTICACHE_CLI_TEXT(struct run, device)},
    {"seed", 0, "N", "the seed of random fills; default 0",
     AOTICACHE_CLI_INTEGER(struct run, seed, 0, INT64_MAX, "a number of 0 or more")},
    AOTICACHE_CLI_TABLE(struct run, runs, aoticache_timed_runs_option_table),
    {0},
};

/* ---- inputs ---- */

static int make_input(const aoticache_cli *cli, const char *word, uint64_t *random, struct input *input)
{
    aoticache_error error = {.message = ""};
    cleanup_free void *row_major = NULL;
    aoticache_status status = aoticache_tensor_spec_parse(word, &input->spec, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_tensor_fill(&input->spec, random, &row_major, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_tensor_lay_out(&input->spec, row_major, &input->data, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_usage_error(cli, "option --input: %s", error.message);
    return AOTICACHE_CLI_EXIT_OK;
}

static int make_inputs(const aoticache_cli *cli, struct run *run)
{
    uint64_t random = run->seed;
    run->inputs = aoticache_cli_allocate(run->words.count, sizeof *run->inputs);
    int result = AOTICACHE_CLI_EXIT_OK;
    for (size_t i = 0; result == AOTICACHE_CLI_EXIT_OK && i < run->words.count; i++)
        result = make_input(cli, run->words.items[i], &random, &run->inputs[i]);
    return result;
}

/* After the loading, which decides where tensors come from. */
static int make_tensors(const aoticache_cli *cli, struct run *run)
{
    int result = AOTICACHE_CLI_EXIT_OK;
    for (size_t i = 0; result == AOTICACHE_CLI_EXIT_OK && i < run->words.count; i++)
        result = aoticache_timed_runs_add_input(&run->runs, cli, &run->inputs[i].spec, run->inputs[i].data,
                                                run->words.count);
    return result;
}

/* ---- loading ---- */

/* A file where there is one of this name, else the beginning of a key. */
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
    aoticache_status status =
        is_key ? aoticache_package_load_key(run->cache, &key, &options, &run->runner, &run->report, &error)
               : aoticache_package_load(run->cache, run->what, &options, &run->runner, &run->report, &error);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(cli, status, &error);
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
    aoticache_cli_json_set(object, "device", aoticache_cli_json_text(aoticache_runner_device(run->runner)));
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
    aoticache_cli_print_field(cli, "model", "%s on %s", report->model, aoticache_runner_device(run->runner));
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

/* ---- the whole ---- */

static int load_run_and_print(const aoticache_cli *cli, struct run *run)
{
    if (run->words.count > MAX_INPUTS)
        return aoticache_cli_usage_error(cli, "more than %d inputs", MAX_INPUTS);
    int result = make_inputs(cli, run);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_cli_open_or_report(cli, true, &run->cache);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = load(cli, run);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = make_tensors(cli, run);
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
    for (size_t i = 0; run.inputs != NULL && i < run.words.count; i++)
        free(run.inputs[i].data);
    free(run.inputs);
    free(run.words.items);
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
            .details = "KEY is a key that 'aoticache add' printed, or its first digits; the package is not needed then.\n"
                       "SPEC is DTYPE:SIZExSIZE...[@STRIDExSTRIDE...][=FILL], as 'aoticache help run' explains.",
            .options = run_package_options,
            .operand = {AOTICACHE_CLI_TEXT(struct run, what),
                        .wanted = "a package, such as model.pt2, or the key of one is needed"},
        },
    .run = run_package_command,
};
