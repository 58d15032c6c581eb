/*
 * tools/aoticache/run: a kernel or a model run with the same inputs again and again, and what is printed of it. What
 * `aoticache run` and `aoticache run-package` share.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_RUN_INTERNAL_H
#define AOTICACHE_TOOLS_AOTICACHE_RUN_INTERNAL_H

#include "aoticache.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/cli/cli.h"

typedef struct aoticache_timed_runs {
    int64_t repeat; /* how often after the first run */
    bool all_values;
    AtenTensorHandle *inputs, *outputs;
    size_t input_count, output_count;
    uint64_t first_ns, median_ns, minimum_ns;
} aoticache_timed_runs;

/* The options --repeat and --all-values, of an aoticache_timed_runs. */
extern const aoticache_cli_option aoticache_timed_runs_option_table[];

/* These return an exit code and have said what is wrong. */
/* data: stays the caller's, and stays there as long as the runs do. At most `most` inputs are added in all. */
int aoticache_timed_runs_add_input(aoticache_timed_runs *runs, const aoticache_cli *cli,
                                   const aoticache_tensor_spec *spec, void *data, size_t most);
int aoticache_timed_runs_execute(aoticache_timed_runs *runs, const aoticache_cli *cli, aoticache_runner *runner);

/* To `array`, or as text where that is NULL. */
int aoticache_timed_runs_print_outputs(const aoticache_timed_runs *runs, const aoticache_cli *cli, json_t *array);
/* The result of the command as JSON: `object`, which is taken, with the times and the outputs added. */
int aoticache_timed_runs_print_json(const aoticache_timed_runs *runs, const aoticache_cli *cli, json_t *object);
void aoticache_timed_runs_print_times(const aoticache_timed_runs *runs, const aoticache_cli *cli);
void aoticache_timed_runs_free(aoticache_timed_runs *runs);

#endif
