/*
 * Runs a model that aoticache.compile(..., id="NAME") stored, without PyTorch: numbers go in as one row, results come out.
 *
 *     cc -std=c11 -O2 stored_model.c -o stored_model $(pkg-config --cflags --libs aoticache)
 *     ./stored_model NAME 1 2 3
 */
#define _POSIX_C_SOURCE 200809L /* for setenv() */

#include <aoticache.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST 256

static aoticache_status run(aoticache_runner *runner, float *numbers, int64_t count, aoticache_error *error)
{
    const int64_t sizes[2] = {1, count};
    AtenTensorHandle input = NULL, outputs[MOST] = {NULL};
    aoticache_tensor_view result;
    const size_t num_outputs = aoticache_runner_num_outputs(runner);
    if (num_outputs > MOST)
        return aoticache_error_set(error, AOTICACHE_UNSUPPORTED, "the model has %zu outputs", num_outputs);
    aoticache_status status =
        aoticache_tensor_from_blob(numbers, AOTICACHE_DTYPE_FLOAT32, 2, sizes, NULL, &input, error);
    if (status == AOTICACHE_OK)
        status = aoticache_runner_run(runner, &input, 1, outputs, num_outputs, error);
    for (size_t i = 0; status == AOTICACHE_OK && i < num_outputs; i++) {
        status = aoticache_tensor_get_view(outputs[i], &result, error);
        for (int64_t k = 0; status == AOTICACHE_OK && k < result.numel; k++)
            printf("%.9g\n", (double)((const float *)result.data)[k]);
    }
    for (size_t i = 0; i < num_outputs; i++)
        aoticache_tensor_free(outputs[i]);
    aoticache_tensor_free(input);
    return status;
}

int main(int argc, char **argv)
{
    float numbers[MOST];
    aoticache_error error;
    aoticache_cache *cache = NULL;
    aoticache_runner *runner = NULL;
    if (argc < 3 || argc - 2 > MOST)
        return fprintf(stderr, "usage: %s NAME NUMBER...\n", argv[0]), 2;
    for (int i = 2; i < argc; i++)
        numbers[i - 2] = strtof(argv[i], NULL);
    aoticache_status status = aoticache_cache_open(NULL, &cache, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_model_open(cache, argv[1], NULL, &runner, NULL, &error);
    if (status == AOTICACHE_OK)
        status = run(runner, numbers, argc - 2, &error);
    if (status != AOTICACHE_OK)
        fprintf(stderr, "%s\n", error.message);
    aoticache_runner_unref(runner);
    aoticache_cache_close(cache);
    return status != AOTICACHE_OK;
}
