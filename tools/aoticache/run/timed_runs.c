/*
 * tools/aoticache/run/timed_runs: runs a kernel or a model repeatedly with the same inputs, and prints the outputs.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/aoticache/run/run_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#define VALUES_IN_JSON 1000

const aoticache_cli_option aoticache_timed_runs_option_table[] = {
    {"repeat", 'n', "N", "run N times more; print median and minimum",
     AOTICACHE_CLI_INTEGER(aoticache_timed_runs, repeat, 1, 10000000, "a number from 1 to 10000000")},
    {"all-values", 0, NULL, "with --json: all values, not the first 1000",
     AOTICACHE_CLI_SET(aoticache_timed_runs, all_values)},
    {0},
};

int aoticache_timed_runs_add_input(aoticache_timed_runs *runs, const aoticache_cli *cli,
                                   const aoticache_tensor_spec *spec, void *data, size_t most)
{
    aoticache_error error = {.message = ""};
    if (runs->inputs == NULL)
        runs->inputs = aoticache_cli_allocate(most, sizeof *runs->inputs);
    aoticache_status status = aoticache_tensor_from_blob(data, spec->dtype, spec->ndim, spec->sizes, spec->strides,
                                                         &runs->inputs[runs->input_count], &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(cli, status, &error);
    runs->input_count++;
    return AOTICACHE_CLI_EXIT_OK;
}

/* ---- running ---- */

static void free_tensors(AtenTensorHandle *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        aoticache_tensor_free(tensors[i]);
}

static aoticache_status run_once(const aoticache_timed_runs *runs, aoticache_runner *runner, AtenTensorHandle *outputs,
                                 uint64_t *ret_ns, aoticache_error *error)
{
    uint64_t start = aoticache_monotonic_ns();
    aoticache_status status =
        aoticache_runner_run(runner, runs->inputs, runs->input_count, outputs, runs->output_count, error);
    *ret_ns = aoticache_monotonic_ns() - start;
    return status;
}

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static aoticache_status repeat(aoticache_timed_runs *runs, aoticache_runner *runner, aoticache_error *error)
{
    cleanup_free uint64_t *times = aoticache_cli_allocate((size_t)runs->repeat, sizeof *times);
    cleanup_free AtenTensorHandle *outputs = aoticache_cli_allocate(runs->output_count, sizeof *outputs);
    for (int64_t i = 0; i < runs->repeat; i++) {
        aoticache_status status = run_once(runs, runner, outputs, &times[i], error);
        if (status != AOTICACHE_OK)
            return status;
        free_tensors(outputs, runs->output_count);
    }
    qsort(times, (size_t)runs->repeat, sizeof *times, compare_times);
    runs->minimum_ns = times[0];
    runs->median_ns = times[runs->repeat / 2];
    return AOTICACHE_OK;
}

int aoticache_timed_runs_execute(aoticache_timed_runs *runs, const aoticache_cli *cli, aoticache_runner *runner)
{
    aoticache_error error = {.message = ""};
    runs->output_count = aoticache_runner_num_outputs(runner);
    runs->outputs = aoticache_cli_allocate(runs->output_count, sizeof *runs->outputs);
    aoticache_status status = run_once(runs, runner, runs->outputs, &runs->first_ns, &error);
    if (status != AOTICACHE_OK)
        runs->output_count = 0;
    else if (runs->repeat > 0)
        status = repeat(runs, runner, &error);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(cli, status, &error);
}

/* ---- printing ---- */

int aoticache_timed_runs_print_outputs(const aoticache_timed_runs *runs, const aoticache_cli *cli, json_t *array)
{
    for (size_t i = 0; i < runs->output_count; i++) {
        aoticache_error error = {.message = ""};
        aoticache_tensor_view view;
        if (runs->outputs[i] == NULL) { /* Python's None */
            if (array != NULL)
                aoticache_cli_json_append(array, json_null());
            else
                printf("output %zu: none\n", i);
            continue;
        }
        aoticache_status status = aoticache_tensor_get_view(runs->outputs[i], &view, &error);
        if (status != AOTICACHE_OK)
            return aoticache_cli_fail(cli, status, &error);
        if (array != NULL) {
            aoticache_cli_json_append(array,
                                      aoticache_tensor_to_json(&view, runs->all_values ? UINT64_MAX : VALUES_IN_JSON));
            continue;
        }
        cleanup_free char *name = aoticache_cli_text("output %zu", i);
        aoticache_tensor_print(cli, name, &view);
    }
    return AOTICACHE_CLI_EXIT_OK;
}

static void set_times(const aoticache_timed_runs *runs, json_t *object)
{
    aoticache_cli_json_set(object, "first_run_ns", aoticache_cli_json_count(runs->first_ns));
    if (runs->repeat > 0) {
        aoticache_cli_json_set(object, "repeat", json_integer(runs->repeat));
        aoticache_cli_json_set(object, "run_median_ns", aoticache_cli_json_count(runs->median_ns));
        aoticache_cli_json_set(object, "run_min_ns", aoticache_cli_json_count(runs->minimum_ns));
    }
}

int aoticache_timed_runs_print_json(const aoticache_timed_runs *runs, const aoticache_cli *cli, json_t *object)
{
    json_t *outputs = aoticache_cli_json_array();
    int result = aoticache_timed_runs_print_outputs(runs, cli, outputs);
    set_times(runs, object);
    aoticache_cli_json_set(object, "outputs", outputs);
    if (result == AOTICACHE_CLI_EXIT_OK)
        aoticache_cli_json_print(object);
    else
        json_decref(object);
    return result;
}

void aoticache_timed_runs_print_times(const aoticache_timed_runs *runs, const aoticache_cli *cli)
{
    char time[AOTICACHE_CLI_UNIT_BYTES];
    aoticache_cli_print_field(cli, "first run", "%s", aoticache_cli_format_duration(runs->first_ns, time));
    if (runs->repeat > 0)
        aoticache_cli_print_field(cli, "repeated", "%" PRId64 " runs: median %" PRIu64 " ns, minimum %" PRIu64 " ns",
                                  runs->repeat, runs->median_ns, runs->minimum_ns);
}

void aoticache_timed_runs_free(aoticache_timed_runs *runs)
{
    free_tensors(runs->outputs, runs->output_count);
    free_tensors(runs->inputs, runs->input_count);
    free(runs->outputs);
    free(runs->inputs);
}
