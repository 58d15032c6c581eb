/*
 * Generates text with a language model that AOTInductor compiled, without PyTorch: the tokens of a prompt go in as numbers, the
 * tokens that follow come out. docs/examples/generate.py compiles two such models; docs/generate.md says more.
 *
 *     cc -std=c11 -O2 generate.c -o generate $(pkg-config --cflags --libs aoticache) -lm
 *     ./generate gpt.pt2 17 4 99                               the most likely token each time
 *     ./generate -n 64 -t 0.8 -k 40 -s 7 gpt.pt2 17 4 99       one of the 40 most likely, by chance
 *
 * The package has two models. "prefill" takes the prompt, "decode" one token with the keys and values of all before it. Both
 * give logits, keys and values. Keys and values of one call are inputs of the next as they are: nothing is copied.
 */
#define _POSIX_C_SOURCE 200809L

#include <aoticache.h>
#include <aoticache/runner.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 512 }; /* tokens of a prompt */

typedef struct sampler {
    double temperature; /* 0: the most likely token */
    int64_t top_k;      /* 0: all */
    uint64_t state;     /* of the random numbers; at first the seed */
    int64_t *order;     /* space for the vocabulary */
} sampler;

/* ---- sampling ---- */

/* A number from 0 to 1: splitmix64, the same on every machine. */
static double random_number(sampler *sampler)
{
    uint64_t bits = sampler->state += 0x9e3779b97f4a7c15;
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
    return (double)((bits ^ (bits >> 31)) >> 11) * 0x1p-53;
}

static int64_t most_likely(const float *logits, int64_t count)
{
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static const float *compared; /* qsort() hands nothing on */

static int more_likely_first(const void *a, const void *b)
{
    const int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    if (compared[one] != compared[other])
        return compared[one] > compared[other] ? -1 : 1;
    return one < other ? -1 : one > other;
}

static int64_t sample(sampler *sampler, const float *logits, int64_t count)
{
    if (sampler->temperature <= 0)
        return most_likely(logits, count);
    for (int64_t i = 0; i < count; i++)
        sampler->order[i] = i;
    compared = logits;
    qsort(sampler->order, (size_t)count, sizeof *sampler->order, more_likely_first);
    const int64_t among = sampler->top_k > 0 && sampler->top_k < count ? sampler->top_k : count;
    const double highest = logits[sampler->order[0]];
    double sum = 0;
    for (int64_t i = 0; i < among; i++)
        sum += exp((logits[sampler->order[i]] - highest) / sampler->temperature);
    double left = random_number(sampler) * sum;
    for (int64_t i = 0; i < among - 1; i++) {
        left -= exp((logits[sampler->order[i]] - highest) / sampler->temperature);
        if (left < 0)
            return sampler->order[i];
    }
    return sampler->order[among - 1];
}

/* ---- the models ---- */

enum { LOGITS, KEYS, VALUES, OUTPUTS };

static aoticache_status load(aoticache_cache *cache, const char *path, const char *model, size_t inputs,
                             aoticache_runner **ret_runner, aoticache_error *error)
{
    aoticache_package_options options = AOTICACHE_PACKAGE_OPTIONS_INIT;
    options.model = model;
    aoticache_status status = aoticache_package_load(cache, path, &options, ret_runner, NULL, error);
    if (status != AOTICACHE_OK)
        return status;
    const size_t found = aoticache_runner_num_inputs(*ret_runner), outputs = aoticache_runner_num_outputs(*ret_runner);
    if (found == inputs && outputs == OUTPUTS)
        return AOTICACHE_OK;
    return aoticache_error_set(error, AOTICACHE_INVALID,
                               "%s: the model %s has %zu inputs and %zu outputs, not %zu and %d", path, model, found,
                               outputs, inputs, OUTPUTS);
}

/* Runs a model on tokens, and replaces the previous outputs. */
static aoticache_status step(aoticache_runner *runner, int64_t *tokens, int64_t count,
                             AtenTensorHandle outputs[OUTPUTS], aoticache_error *error)
{
    AtenTensorHandle inputs[OUTPUTS] = {NULL, outputs[KEYS], outputs[VALUES]}, next[OUTPUTS] = {NULL};
    aoticache_status status =
        aoticache_tensor_from_blob(tokens, AOTICACHE_DTYPE_INT64, 1, &count, NULL, &inputs[0], error);
    if (status == AOTICACHE_OK)
        status = aoticache_runner_run(runner, inputs, aoticache_runner_num_inputs(runner), next, OUTPUTS, error);
    aoticache_tensor_free(inputs[0]);
    for (int i = 0; status == AOTICACHE_OK && i < OUTPUTS; i++) {
        aoticache_tensor_free(outputs[i]);
        outputs[i] = next[i];
    }
    return status;
}

static aoticache_status choose(sampler *sampler, AtenTensorHandle logits, int64_t *ret_token, aoticache_error *error)
{
    aoticache_tensor_view view;
    aoticache_status status = aoticache_tensor_get_view(logits, &view, error);
    if (status != AOTICACHE_OK)
        return status;
    if (view.dtype != AOTICACHE_DTYPE_FLOAT32 || view.ndim != 1 || view.numel == 0)
        return aoticache_error_set(error, AOTICACHE_UNSUPPORTED, "the logits are no float32 tensor of one dimension");
    if (sampler->order == NULL)
        sampler->order = (int64_t *)calloc((size_t)view.numel, sizeof *sampler->order);
    if (sampler->order == NULL)
        return aoticache_error_set(error, AOTICACHE_NO_MEMORY, "no memory");
    *ret_token = sample(sampler, (const float *)view.data, view.numel);
    return AOTICACHE_OK;
}

static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static aoticache_status generate(aoticache_runner *prefill, aoticache_runner *decode, sampler *sampler, int64_t *prompt,
                                 int64_t length, long count, aoticache_error *error)
{
    AtenTensorHandle outputs[OUTPUTS] = {NULL};
    int64_t token = 0;
    double begin = milliseconds(), prompt_ms = 0;
    aoticache_status status = step(prefill, prompt, length, outputs, error);
    for (long i = 0; status == AOTICACHE_OK && i < count; i++) {
        if (i > 0)
            status = step(decode, &token, 1, outputs, error);
        if (status == AOTICACHE_OK)
            status = choose(sampler, outputs[LOGITS], &token, error);
        if (status == AOTICACHE_OK)
            printf("%lld%c", (long long)token, i < count - 1 ? ' ' : '\n');
        if (i == 0) {
            prompt_ms = milliseconds() - begin;
            begin = milliseconds();
        }
    }
    if (status == AOTICACHE_OK && count > 1)
        fprintf(stderr, "prompt %.3f ms, then %.4f ms a token\n", prompt_ms,
                (milliseconds() - begin) / (double)(count - 1));
    for (int i = 0; i < OUTPUTS; i++)
        aoticache_tensor_free(outputs[i]);
    return status;
}

/* ---- the command line ---- */

static int usage(const char *program)
{
    fprintf(stderr,
            "usage: %s [-n COUNT] [-t TEMPERATURE] [-k TOP_K] [-s SEED] PACKAGE TOKEN TOKEN...\n"
            "  -n  how many tokens to generate, 64 by default\n"
            "  -t  0, the default: the most likely token each time; above 0: by chance, the more even the higher\n"
            "  -k  only among so many of the most likely; 0, the default: among all\n"
            "  -s  of the random numbers; the same seed gives the same tokens\n"
            "A prompt has 2 to %d tokens.\n",
            program, MOST);
    return 2;
}

/* Reads an integer from 0 to `most`. */
static int read_number(const char *text, long long most, long long *ret_number)
{
    char *end;
    errno = 0;
    *ret_number = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && *ret_number >= 0 && *ret_number <= most;
}

int main(int argc, char **argv)
{
    sampler sampler = {0, 0, 0, NULL};
    long long count = 64, number = 0;
    int64_t prompt[MOST];
    char *end;
    for (int option; (option = getopt(argc, argv, "n:t:k:s:")) != -1;) {
        int valid = option != '?';
        if (option == 'n')
            valid = read_number(optarg, 1 << 20, &count) && count > 0;
        if (option == 't') {
            sampler.temperature = strtod(optarg, &end);
            valid = end != optarg && *end == '\0' && sampler.temperature >= 0;
        }
        if (option == 'k' && (valid = read_number(optarg, 1 << 30, &number)))
            sampler.top_k = number;
        if (option == 's' && (valid = read_number(optarg, INT64_MAX, &number)))
            sampler.state = (uint64_t)number;
        if (!valid)
            return usage(argv[0]);
    }
    const int length = argc - optind - 1;
    if (length < 2 || length > MOST)
        return usage(argv[0]);
    for (int i = 0; i < length; i++) {
        if (!read_number(argv[optind + 1 + i], INT64_MAX, &number))
            return usage(argv[0]);
        prompt[i] = number;
    }

    aoticache_error error;
    aoticache_cache *cache = NULL;
    aoticache_runner *prefill = NULL, *decode = NULL;
    setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", 0); /* what is longer than the models were compiled for is refused */
    aoticache_status status = aoticache_cache_open(NULL, &cache, &error);
    if (status == AOTICACHE_OK)
        status = load(cache, argv[optind], "prefill", 1, &prefill, &error);
    if (status == AOTICACHE_OK)
        status = load(cache, argv[optind], "decode", 3, &decode, &error);
    if (status == AOTICACHE_OK)
        status = generate(prefill, decode, &sampler, prompt, length, (long)count, &error);
    if (status != AOTICACHE_OK)
        fprintf(stderr, "%s\n", error.message);
    free(sampler.order);
    aoticache_runner_unref(decode);
    aoticache_runner_unref(prefill);
    aoticache_cache_close(cache);
    return status != AOTICACHE_OK;
}
