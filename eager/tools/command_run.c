/*
 * aoticache run: get a kernel (compiling it where it is absent), run it, print what came out, where it came from and
 * how long it took.
 */
#include "base/cleanup.h"
#include "eager/tools/commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_REPEAT = AOTICACHE_KERNEL_FIRST_FREE, OPTION_ALL_VALUES };

#define MAX_REPEAT 10000000
#define VALUES_IN_JSON 1000

static const aoticache_cli_option run_options[] = {
    AOTICACHE_KERNEL_OPTION_ROWS,
    {OPTION_REPEAT, "repeat", 'n', "N", "run N times more; print median and minimum"},
    {OPTION_ALL_VALUES, "all-values", 0, NULL, "with --json: all values, not the first 1000"},
    {0, NULL, 0, NULL, NULL},
};

struct run {
    aoticache_kernel_options kernel;
    int64_t repeat;
    bool all_values;

    aoticache_cache *cache;
    aoticache_hook *hook;
    aoticache_request *request;
    aoticache_runner *runner;
    aoticache_eager_report report;
    aoticache_entry_list entries; /* of the key, to say which library ran */
    AtenTensorHandle *inputs, *outputs;
    size_t input_count, output_count;
    uint64_t first_ns, median_ns, minimum_ns;
};

static int parse(aoticache_cli *cli, struct run *run)
{
    for (;;) {
        const char *value = NULL;
        int result = AOTICACHE_CLI_EXIT_OK;
        int id = aoticache_cli_next(cli, &value);
        if (id == AOTICACHE_CLI_STOP)
            return cli->exit_code;
        if (id == AOTICACHE_CLI_END)
            break;
        if (id == OPTION_REPEAT) {
            if (!aoticache_cli_parse_int(value, 1, MAX_REPEAT, &run->repeat))
                return aoticache_cli_usage_error(cli, "option --repeat: '%s' is not a number from 1 to %d", value,
                                                 MAX_REPEAT);
        } else if (id == OPTION_ALL_VALUES) {
            run->all_values = true;
        } else {
            result = aoticache_kernel_options_take(&run->kernel, cli, id, value);
        }
        if (result != AOTICACHE_CLI_EXIT_OK)
            return result;
    }
    if (run->kernel.op == NULL)
        return aoticache_cli_usage_error(cli, "an operator is needed, such as aten::abs");
    if (run->kernel.device.type != AOTICACHE_DEVICE_TYPE_CPU)
        return aoticache_cli_usage_error(cli, "kernels run here on cpu only; 'aoticache compile' compiles for others");
    return AOTICACHE_CLI_END;
}

static int make_inputs(const aoticache_cli *cli, struct run *run)
{
    const aoticache_kernel_options *kernel = &run->kernel;
    run->inputs = aoticache_cli_allocate(kernel->tensor_count, sizeof *run->inputs);
    for (size_t i = 0; i < kernel->tensor_count; i++) {
        const aoticache_kernel_tensor *tensor = &kernel->tensors[i];
        aoticache_error error = {.message = ""};
        if (tensor->constant)
            continue;
        aoticache_status status =
            aoticache_tensor_from_blob(tensor->data, tensor->spec.dtype, tensor->spec.ndim, tensor->spec.sizes,
                                       tensor->spec.strides, &run->inputs[run->input_count], &error);
        if (status != AOTICACHE_OK)
            return aoticache_cli_fail(cli, status, &error);
        run->input_count++;
    }
    return AOTICACHE_CLI_EXIT_OK;
}

static void free_tensors(AtenTensorHandle *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        aoticache_tensor_free(tensors[i]);
}

static aoticache_status run_once(struct run *run, AtenTensorHandle *outputs, uint64_t *ret_ns, aoticache_error *error)
{
    uint64_t start = aoticache_monotonic_ns();
    aoticache_status status =
        aoticache_runner_run(run->runner, run->inputs, run->input_count, outputs, run->output_count, error);
    *ret_ns = aoticache_monotonic_ns() - start;
    return status;
}

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static aoticache_status repeat(struct run *run, aoticache_error *error)
{
    cleanup_free uint64_t *times = aoticache_cli_allocate((size_t)run->repeat, sizeof *times);
    cleanup_free AtenTensorHandle *outputs = aoticache_cli_allocate(run->output_count, sizeof *outputs);
    for (int64_t i = 0; i < run->repeat; i++) {
        aoticache_status status = run_once(run, outputs, &times[i], error);
        if (status != AOTICACHE_OK)
            return status;
        free_tensors(outputs, run->output_count);
    }
    qsort(times, (size_t)run->repeat, sizeof *times, compare_times);
    run->minimum_ns = times[0];
    run->median_ns = times[run->repeat / 2];
    return AOTICACHE_OK;
}

static int execute(const aoticache_cli *cli, struct run *run)
{
    aoticache_error error = {.message = ""};
    size_t count = aoticache_runner_num_outputs(run->runner);
    run->outputs = aoticache_cli_allocate(count, sizeof *run->outputs);
    run->output_count = count;
    aoticache_status status = run_once(run, run->outputs, &run->first_ns, &error);
    if (status != AOTICACHE_OK)
        run->output_count = 0;
    else if (run->repeat > 0)
        status = repeat(run, &error);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(cli, status, &error);
}

/* ---- printing ---- */

static void read_entries(struct run *run)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_digest_to_hex(&run->report.key, hex);
    aoticache_entries_read(run->cache, NULL, hex, &run->entries, NULL);
}

static int print_outputs(const aoticache_cli *cli, const struct run *run, json_t *array)
{
    for (size_t i = 0; i < run->output_count; i++) {
        aoticache_error error = {.message = ""};
        aoticache_tensor_view view;
        aoticache_status status = aoticache_tensor_get_view(run->outputs[i], &view, &error);
        if (status != AOTICACHE_OK)
            return aoticache_cli_fail(cli, status, &error);
        if (array != NULL) {
            aoticache_cli_json_append(array,
                                      aoticache_tensor_to_json(&view, run->all_values ? UINT64_MAX : VALUES_IN_JSON));
            continue;
        }
        cleanup_free char *name = aoticache_cli_text("output %zu", i);
        aoticache_tensor_print(cli, name, &view);
    }
    return AOTICACHE_CLI_EXIT_OK;
}

static int print_json(const aoticache_cli *cli, const struct run *run)
{
    const aoticache_eager_report *report = &run->report;
    const aoticache_entry *entry = aoticache_entries_fitting(&run->entries);
    cleanup_free char *description = aoticache_kernel_describe(run->request);
    json_t *object = aoticache_cli_json_object();
    json_t *outputs = aoticache_cli_json_array();
    int result = print_outputs(cli, run, outputs);
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
    aoticache_cli_json_set(object, "first_run_ns", aoticache_cli_json_count(run->first_ns));
    if (run->repeat > 0) {
        aoticache_cli_json_set(object, "repeat", json_integer(run->repeat));
        aoticache_cli_json_set(object, "run_median_ns", aoticache_cli_json_count(run->median_ns));
        aoticache_cli_json_set(object, "run_min_ns", aoticache_cli_json_count(run->minimum_ns));
    }
    aoticache_cli_json_set(object, "outputs", outputs);
    if (result == AOTICACHE_CLI_EXIT_OK)
        aoticache_cli_json_print(object);
    else
        json_decref(object);
    return result;
}

static int print_text(const aoticache_cli *cli, const struct run *run)
{
    const aoticache_eager_report *report = &run->report;
    int result = print_outputs(cli, run, NULL);
    if (result != AOTICACHE_CLI_EXIT_OK || cli->quiet)
        return result;
    const aoticache_entry *entry = aoticache_entries_fitting(&run->entries);
    const char *made_by = run->hook != NULL ? aoticache_hook_producer(run->hook) : NULL;
    const char *producer = entry != NULL ? entry->producer : made_by;
    cleanup_free char *description = aoticache_kernel_describe(run->request);
    cleanup_free char *source = aoticache_source_text(report->source, report->stored, producer);
    char hex[AOTICACHE_DIGEST_HEX_BYTES], time[AOTICACHE_CLI_UNIT_BYTES], other[AOTICACHE_CLI_UNIT_BYTES];
    aoticache_digest_to_hex(&report->key, hex);
    printf("\n");
    aoticache_cli_print_field(cli, "kernel", "%s", description);
    aoticache_cli_print_field(cli, "key", "%.12s", hex);
    aoticache_cli_print_field(cli, "source", "%s", source);
    aoticache_cli_print_field(cli, "lookup", "%s%s%s%s", aoticache_cli_format_duration(report->lookup_ns, time),
                              report->source == AOTICACHE_SOURCE_INDEX ? "" : ", compile ",
                              report->source == AOTICACHE_SOURCE_INDEX
                                  ? ""
                                  : aoticache_cli_format_duration(report->compile_ns, other),
                              "");
    aoticache_cli_print_field(cli, "load", "%s", aoticache_cli_format_duration(report->load_ns, time));
    aoticache_cli_print_field(cli, "first run", "%s", aoticache_cli_format_duration(run->first_ns, time));
    if (run->repeat > 0)
        aoticache_cli_print_field(cli, "repeated", "%" PRId64 " runs: median %" PRIu64 " ns, minimum %" PRIu64 " ns",
                                  run->repeat, run->median_ns, run->minimum_ns);
    return result;
}

/* ---- the whole ---- */

static int get_runner(const aoticache_cli *cli, struct run *run)
{
    aoticache_error error = {.message = ""};
    cleanup_free char *what = aoticache_cli_text("compiling %s", run->kernel.op);
    aoticache_cli_waiting *waiting = aoticache_cli_waiting_begin(cli, what);
    aoticache_status status = aoticache_eager_get_runner(run->cache, run->hook, run->request, &run->runner,
                                                         &run->report, &error);
    aoticache_cli_waiting_end(waiting);
    if (status == AOTICACHE_NOT_FOUND && error.message[0] == '\0') {
        aoticache_cli_error(cli, "the kernel is not stored in a form that this machine can run");
        return AOTICACHE_CLI_EXIT_NOT_FOUND;
    }
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(cli, status, &error);
}

static int steps(const aoticache_cli *cli, struct run *run)
{
    int result = aoticache_kernel_prepare(&run->kernel, cli, &run->hook, &run->cache, &run->request);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = get_runner(cli, run);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = make_inputs(cli, run);
    if (result == AOTICACHE_CLI_EXIT_OK)
        result = execute(cli, run);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    read_entries(run);
    return cli->json ? print_json(cli, run) : print_text(cli, run);
}

static int run_command(aoticache_cli *cli)
{
    struct run run = {0};
    aoticache_kernel_options_begin(&run.kernel, cli);
    int result = parse(cli, &run);
    if (result == AOTICACHE_CLI_END)
        result = steps(cli, &run);
    free_tensors(run.outputs, run.output_count);
    free_tensors(run.inputs, run.input_count);
    free(run.outputs);
    free(run.inputs);
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
            .summary = "Runs an operator, compiling it where it is not in the cache; prints the result and the times.",
            .details = AOTICACHE_KERNEL_DETAILS,
            .options = run_options,
        },
    .run = run_command,
};
