/*
 * tools/aoticache/run/inputs: the input tensors of a model, from the command line.
 */
#include "base/cleanup.h"
#include "tools/aoticache/run/run_internal.h"

#include <stdlib.h>

#define MAX_INPUTS 1024

typedef struct aoticache_run_input {
    aoticache_tensor_spec spec;
    void *data;
} aoticache_run_input;

const aoticache_cli_option aoticache_run_inputs_option_table[] = {
    {"input", 'i', "SPEC", "a tensor, in the order of the model's inputs",
     AOTICACHE_CLI_LIST(aoticache_run_inputs, words)},
    {"seed", 0, "N", "the seed of random fills; default 0",
     AOTICACHE_CLI_INTEGER(aoticache_run_inputs, seed, 0, INT64_MAX, "a number of 0 or more")},
    {0},
};

static int make_input(const aoticache_cli *cli, const char *word, uint64_t *random, aoticache_run_input *input)
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

int aoticache_run_inputs_make(aoticache_run_inputs *inputs, const aoticache_cli *cli)
{
    uint64_t random = inputs->seed;
    int result = AOTICACHE_CLI_EXIT_OK;
    if (inputs->words.count > MAX_INPUTS)
        return aoticache_cli_usage_error(cli, "more than %d inputs", MAX_INPUTS);
    inputs->items = aoticache_cli_allocate(inputs->words.count, sizeof *inputs->items);
    for (size_t i = 0; result == AOTICACHE_CLI_EXIT_OK && i < inputs->words.count; i++)
        result = make_input(cli, inputs->words.items[i], &random, &inputs->items[i]);
    return result;
}

int aoticache_run_inputs_add(const aoticache_run_inputs *inputs, const aoticache_cli *cli, aoticache_timed_runs *runs)
{
    int result = AOTICACHE_CLI_EXIT_OK;
    for (size_t i = 0; result == AOTICACHE_CLI_EXIT_OK && i < inputs->words.count; i++)
        result = aoticache_timed_runs_add_input(runs, cli, &inputs->items[i].spec, inputs->items[i].data,
                                                inputs->words.count);
    return result;
}

void aoticache_run_inputs_free(aoticache_run_inputs *inputs)
{
    for (size_t i = 0; inputs->items != NULL && i < inputs->words.count; i++)
        free(inputs->items[i].data);
    free(inputs->items);
    free(inputs->words.items);
}
