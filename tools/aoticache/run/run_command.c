/*
 * aoticache run: gets a kernel (compiling it if it is missing), runs it, and prints its outputs, its source and its times.
 */
#include "base/cleanup.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/aoticache_internal.h"
#include "tools/aoticache/run/run_internal.h"

#include <stdlib.h>
#include <string.h>

struct run {
    aoticache_kernel_options kernel;
    aoticache_timed_runs runs;

    aoticache_cache *cache;
    aoticache_hook *hook;
    aoticache_request *request;
    aoticache_runner *runner;
    aoticache_get_runner_report report;
    aoticache_entry_list entries; /* of the key, to show which library ran */
};

static const aoticache_cli_option run_options[] = {
    AOTICACHE_CLI_TABLE(struct run, kernel, aoticache_kernel_option_table),
    AOTICACHE_CLI_TABLE(struct run, runs, aoticache_timed_runs_option_table),
    {0},
};

static int make_inputs(const aoticache_cli *cli, struct run *run)
{
    const aoticache_kernel_options *kernel = &run->kernel;
    int result = AOTICACHE_CLI_EXIT_OK;
    for (size_t i = 0; result == AOTICACHE_CLI_EXIT_OK && i < kernel->tensor_count; i++) {
        const aoticache_input_tensor *tensor = &kernel->tensors[i];
        if (!tensor->constant)
            result = aoticache_timed_runs_add_input(&run->runs, cli, &tensor->spec, tensor->data, kernel->tensor_count);
    }
    return result;
}

/* ---- printing ---- */

static void read_entries(struct run *run)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(&run->report.key, hex);
    aoticache_entries_read(run->cache, NULL, hex, &run->entries, NULL);
}

static int print_json(const aoticache_cli *cli, const struct run *run)
{
    const aoticache_get_runner_report *report = &run->report;
    const aoticache_entry *entry = aoticache_entries_fitting(&run->entries);
    cleanup_free char *description = aoticache_kernel_describe(run->request);
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "op", aoticache_cli_json_text(run->kernel.op));
    aoticache_cli_json_set(object, "description", aoticache_cli_json_text(description));
    aoticache_cli_json_set(object, "key", aoticache_cli_json_digest(&report->key));
    aoticache_cli_json_set(object, "source", aoticache_cli_json_text(aoticache_source_word(report->source)));
    aoticache_cli_json_set(object, "stored", json_boolean(report->stored));
    if (entry != NULL) {
        aoticache_cli_json_set(object, "producer", aoticache_cli_json_text(entry->producer));
        aoticache_cli_json_set(object, "artifact", aoticache_cli_json_digest(&entry->artifact));
        aoticache_cli_json_set(object, "library", aoticache_cli_json_digest(&entry->library));
        aoticache_cli_json_set(object, "bytes", aoticache_cli_json_count(entry->bytes));
    }
    aoticache_cli_json_set(object, "lookup_ns", aoticache_cli_json_count(report->lookup_ns));
    aoticache_cli_json_set(object, "compile_ns", aoticache_cli_json_count(report->compile_ns));
    aoticache_cli_json_set(object, "load_ns", aoticache_cli_json_count(report->load_ns));
    return aoticache_timed_runs_print_json(&run->runs, cli, object);
}

static int print_text(const aoticache_cli *cli, const struct run *run)
{
    const aoticache_get_runner_report *report = &run->report;
    int result = aoticache_timed_runs_print_outputs(&run->runs, cli, NULL);
    if (result != AOTICACHE_CLI_EXIT_OK || cli->quiet)
        return result;
    const aoticache_entry *entry = aoticache_entries_fitting(&run->entries);
    const char *made_by = run->hook != NULL ? aoticache_hook_get_info(run->hook).producer : NULL;
    const char *producer = entry != NULL ? entry->producer : made_by;
    cleanup_free char *description = aoticache_kernel_describe(run->request);
    cleanup_free char *source = aoticache_source_text(report->source, report->stored, producer);
    char hex[AOTICACHE_DIGEST_HEX_BYTES], time[AOTICACHE_CLI_UNIT_BYTES], other[AOTICACHE_CLI_UNIT_BYTES];
    aoticache_digest_to_hex(&report->key, hex);
    printf("\n");
    aoticache_cli_print_field(cli, "kernel", "%s", description);
    aoticache_cli_print_field(cli, "key", "%.12s", hex);
    aoticache_cli_print_field(cli, "source", "%s", source);
    aoticache_cli_print_field(
        cli, "lookup", "%s%s%s%s", aoticache_cli_format_duration(report->lookup_ns, time),
        report->source == AOTICACHE_SOURCE_INDEX ? "" : ", compile ",
        report->source == AOTICACHE_SOURCE_INDEX ? "" : aoticache_cli_format_duration(report->compile_ns, other), "");
    aoticache_cli_print_field(cli, "load", "%s", aoticache_cli_format_duration(report->load_ns, time));
    aoticache_timed_runs_print_times(&run->runs, cli);
    return result;
}

/* ---- the whole command ---- */

static int get_runner(const aoticache_cli *cli, struct run *run)
{
    aoticache_error error = {.message = ""};
    cleanup_free char *what = aoticache_cli_text("compiling %s", run->kernel.op);
    aoticache_cli_waiting *waiting = aoticache_cli_waiting_begin(cli, what);
    aoticache_status status =
        aoticache_get_runner(run->cache, run->hook, run->request, &run->runner, &run->report, &error);
    aoticache_cli_waiting_end(waiting);
    if (status == AOTICACHE_NOT_FOUND && error.message[0] == '\0') {
        aoticache_cli_error(cli, "the kernel is not stored in a form that this machine can run");
        return AOTICACHE_CLI_EXIT_NOT_FOUND;
    }
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(cli, status, &error);
}

static int get_run_and_print(const aoticache_cli *cli, struct run *run)
{
    if (run->kernel.device.type != AOTICACHE_DEVICE_TYPE_CPU)
        return aoticache_cli_usage_error(
            cli, "kernels run here on cpu only; 'aoticache compile' compiles for other devices");
    int result = aoticache_kernel_prepare(&run->kernel, cli, &run->hook, &run->cache, &run->request);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = get_runner(cli, run);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = make_inputs(cli, run);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = aoticache_timed_runs_execute(&run->runs, cli, run->runner);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    read_entries(run);
    return cli->json ? print_json(cli, run) : print_text(cli, run);
}

static int run_command(aoticache_cli *cli)
{
    struct run run = {0};
    aoticache_kernel_options_begin(&run.kernel, cli);
    int result = aoticache_cli_parse(cli, &run) ? get_run_and_print(cli, &run) : cli->exit_code;
    aoticache_timed_runs_free(&run.runs);
    aoticache_runner_unref(run.runner);
    aoticache_entries_free(&run.entries);
    aoticache_request_free(run.request);
    aoticache_hook_free(run.hook);
    aoticache_cache_close(run.cache);
    aoticache_kernel_options_free(&run.kernel);
    return result;
}

const aoticache_command aoticache_command_run = {
    .word = "run",
    .program =
        {
            .name = "aoticache run",
            .help_hint = "aoticache help run",
            .usage = "OPERATOR [ARGUMENT OPTION]... [OPTION]...",
            .summary =
                "Runs an operator and prints the result and the times. Compiles the kernel if the cache lacks it.",
            .details = AOTICACHE_KERNEL_DETAILS,
            .options = run_options,
            .operand = {AOTICACHE_CLI_FUNCTION(struct run, kernel.op, aoticache_operator_read),
                        .wanted = "an operator is needed, such as aten::abs"},
        },
    .run = run_command,
};
