/*
 * tools/aoticache/run: runs a kernel or a model repeatedly with the same inputs, and prints the results. Shared by
 * `aoticache run` and `aoticache run-package`.
 */
#ifndef AOTICACHE_TOOLS_AOTICACHE_RUN_INTERNAL_H
#define AOTICACHE_TOOLS_AOTICACHE_RUN_INTERNAL_H

#include "aoticache/admin.h"
#include "aoticache/runner.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/cli/cli.h"

/* The input tensors of a model. */
typedef struct aoticache_run_inputs {
    aoticache_cli_list words; /* of --input */
    uint64_t seed;
    struct aoticache_run_input *items;
} aoticache_run_inputs;

/* The options --input and --seed, for an aoticache_run_inputs. */
extern const aoticache_cli_option aoticache_run_inputs_option_table[];

typedef struct aoticache_timed_runs {
    int64_t repeat; /* number of runs after the first one */
    bool all_values;
    AtenTensorHandle *inputs, *outputs;
    size_t input_count, output_count;
    uint64_t first_ns, median_ns, minimum_ns;
} aoticache_timed_runs;

/* The options --repeat and --all-values, for an aoticache_timed_runs. */
extern const aoticache_cli_option aoticache_timed_runs_option_table[];

/* These print errors and return an exit code. */
/* Adds an input. data: borrowed until the runs are freed. At most `most` inputs are added in total. */
int aoticache_timed_runs_add_input(aoticache_timed_runs *runs, const aoticache_cli *cli,
                                   const aoticache_tensor_spec *spec, void *data, size_t most);
/* Reads the words and makes the data. */
int aoticache_run_inputs_make(aoticache_run_inputs *inputs, const aoticache_cli *cli);
/* Adds the tensors to the runs. Call it after the model is loaded, because the model decides how tensors are created. */
int aoticache_run_inputs_add(const aoticache_run_inputs *inputs, const aoticache_cli *cli, aoticache_timed_runs *runs);
void aoticache_run_inputs_free(aoticache_run_inputs *inputs);
int aoticache_timed_runs_execute(aoticache_timed_runs *runs, const aoticache_cli *cli, aoticache_runner *runner);

/* Adds the outputs to `array`, or prints them as text if it is NULL. */
int aoticache_timed_runs_print_outputs(const aoticache_timed_runs *runs, const aoticache_cli *cli, json_t *array);
/* Prints the result of the command as JSON: `object`, of which it takes ownership, with the times and the outputs added. */
int aoticache_timed_runs_print_json(const aoticache_timed_runs *runs, const aoticache_cli *cli, json_t *object);
void aoticache_timed_runs_print_times(const aoticache_timed_runs *runs, const aoticache_cli *cli);
void aoticache_timed_runs_free(aoticache_timed_runs *runs);

/* Prints the first difference between two stored programs (model_graphs.c). Returns 0 if they are the same, 3 if they
 * differ. */
int aoticache_model_compare_graphs(const aoticache_cli *cli, aoticache_cache *cache, const char *first,
                                   const char *second);

#endif
