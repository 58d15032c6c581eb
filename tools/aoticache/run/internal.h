/*
 * tools/aoticache/run: a kernel or a model run with the same inputs again and again, and what is printed of it. What
 * `aoticache run` and `aoticache run-package` share.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_RUN_INTERNAL_H
#define AOTICACHE_TOOLS_AOTICACHE_RUN_INTERNAL_H

#include "aoticache.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/cli/cli.h"

/* The rows of the options --repeat and --all-values, by their ids. */
#define AOTICACHE_TIMED_RUNS_OPTION_ROWS(repeat_id, all_values_id)                \
    {repeat_id, "repeat", 'n', "N", "run N times more; print median and minimum"}, \
    {all_values_id, "all-values", 0, NULL, "with --json: all values, not the first 1000"}

typedef struct aoticache_timed_runs {
    int64_t repeat; /* how often after the first run */
    bool all_values;
    AtenTensorHandle *inputs, *outputs;
    size_t input_count, output_count;
    uint64_t first_ns, median_ns, minimum_ns;
} aoticache_timed_runs;

/* The value of --repeat. These return an exit code and have said what is wrong. */
int aoticache_timed_runs_take_repeat(aoticache_timed_runs *runs, const aoticache_cli *cli, const char *value);
/* data: stays the caller's, and stays there as long as the runs do. At most `most` inputs are added in all. */
int aoticache_timed_runs_add_input(aoticache_timed_runs *runs, const aoticache_cli *cli,
                                   const aoticache_tensor_spec *spec, void *data, size_t most);
int aoticache_timed_runs_execute(aoticache_timed_runs *runs, const aoticache_cli *cli, aoticache_runner *runner);

/* To `array`, or as text where that is NULL. */
int aoticache_timed_runs_print_outputs(const aoticache_timed_runs *runs, const aoticache_cli *cli, json_t *array);
void aoticache_timed_runs_set_times(const aoticache_timed_runs *runs, json_t *object);
void aoticache_timed_runs_print_times(const aoticache_timed_runs *runs, const aoticache_cli *cli);
void aoticache_timed_runs_free(aoticache_timed_runs *runs);

#endif
