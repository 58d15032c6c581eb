/*
 * Measures the host's cost of a run: our runner compared with PyTorch's C++ one, in one process, on one library that
 * PyTorch made (abs of a tensor with one element), so that only the runner differs. Both borrow the input and drop the
 * output. PyTorch's is compiled here from its headers; without them, its libtorch or a C++ compiler nothing is
 * measured.
 *
 * Prints one JSON object per line (scripts/bench collects them).
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "loader/runner/create.h"
#include "loader/runner/runner.h"
#include "tests/bench/bench.h"

enum { MOST_ROUNDS = 21, RUNS = 100000 };

/* A run must not cost its host more than with PyTorch's own runner. */
#define PEER_LIMIT 1

static int rounds = MOST_ROUNDS;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_runner: %s: %s\n", what, why);
    exit(1);
}

/* ---- what is measured ---- */

static const char *venv(void)
{
    const char *directory = getenv("VENV");
    return directory != NULL ? directory : "build/venv";
}

/* Makes the library, once per build directory. Returns false without PyTorch. */
static bool make_library(char ret_path[PATH_MAX])
{
    char command[2 * PATH_MAX];
    snprintf(command, sizeof command, "%s/bin/python tests/python/loader/runner_models.py static 2>/dev/null", venv());
    FILE *output = popen(command, "r");
    if (output == NULL)
        fail(command, "does not start");
    *ret_path = '\0';
    while (fgets(ret_path, PATH_MAX, output) != NULL)
        ;
    ret_path[strcspn(ret_path, "\n")] = '\0';
    return pclose(output) == 0;
}

static bool compile_peer(const char *directory)
{
    char command[4 * PATH_MAX];
    snprintf(command, sizeof command,
             "torch=$(realpath %s/lib/python3*/site-packages/torch) && c++ -std=c++20 -O2 -w -shared -fPIC "
             "-fvisibility=hidden -I\"$torch/include\" tests/bench/peers/torch_runner.cpp -o %s/peer.so "
             "-L\"$torch/lib\" -Wl,-rpath,\"$torch/lib\" -ltorch_cpu -lc10 >/dev/null 2>&1",
             venv(), directory);
    return system(command) == 0;
}

typedef struct torch_peer {
    void *(*create)(const char *path, int single_threaded);
    double (*measure)(void *runner, int runs);
} torch_peer;

static void find(void *module, const char *name, void *ret_function)
{
    void *symbol = dlsym(module, name);
    if (symbol == NULL)
        fail(name, dlerror());
    memcpy(ret_function, &symbol, sizeof symbol);
}

/* Loads libtorch into the process: our loader uses its functions from then on. */
static torch_peer load_peer(const char *directory)
{
    char path[PATH_MAX];
    torch_peer peer;
    snprintf(path, sizeof path, "%s/peer.so", directory);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (module == NULL)
        fail(path, dlerror());
    find(module, "torch_runner_create", &peer.create);
    find(module, "torch_runner_measure", &peer.measure);
    return peer;
}

static aoticache_runner *create_ours(const char *path, bool pool_only)
{
    aoticache_error error;
    aoticache_library *library;
    aoticache_runner *runner;
    aoticache_runner_options options = AOTICACHE_RUNNER_OPTIONS_INIT;
    options.pool_only = pool_only;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (aoticache_library_load_fd(fd, path, NULL, &library, &error) != AOTICACHE_OK)
        fail(path, error.message);
    if (aoticache_library_get_info(library)->torch_kind != AOTICACHE_TORCH_LIBTORCH)
        fail(path, "does not use the libtorch of this process");
    if (aoticache_runner_create(library, &options, &runner, &error) != AOTICACHE_OK)
        fail(path, error.message);
    aoticache_library_unref(library);
    close(fd);
    return runner;
}

/* ---- measuring ---- */

static double measure_ours(aoticache_runner *runner)
{
    static float data[1] = {-1};
    const int64_t one[] = {1};
    aoticache_error error;
    AtenTensorHandle input, output;
    if (aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, 1, one, NULL, &input, &error) != AOTICACHE_OK)
        fail("tensor", error.message);
    uint64_t begin = aoticache_monotonic_ns();
    for (int i = 0; i < RUNS; i++) {
        if (aoticache_runner_run(runner, &input, 1, &output, 1, &error) != AOTICACHE_OK)
            fail("run", error.message);
        aoticache_tensor_free(output);
    }
    uint64_t end = aoticache_monotonic_ns();
    aoticache_tensor_free(input);
    return (double)(end - begin) / RUNS;
}

static double measure_theirs(const torch_peer *peer, void *runner)
{
    double ns = peer->measure(runner, RUNS);
    if (ns < 0)
        fail("PyTorch's runner", "throws");
    return ns;
}

static int ascending(const void *a, const void *b)
{
    double difference = *(const double *)a - *(const double *)b;
    return difference < 0 ? -1 : difference > 0;
}

static double median(double *values)
{
    qsort(values, (size_t)rounds, sizeof *values, ascending);
    return values[rounds / 2];
}

static void report(const char *name, double value, const char *peer, double peer_value)
{
    double ratio = value / peer_value;
    printf("{\"name\":\"%s\",\"value\":%.4g,\"unit\":\"ns\",\"peer\":\"%s\",\"peer_value\":%.4g,\"ratio\":%.3f,"
           "\"target\":%d,\"met\":%s}\n",
           name, value, peer, peer_value, ratio, PEER_LIMIT, ratio <= PEER_LIMIT ? "true" : "false");
    fflush(stdout);
}

static void compare(const torch_peer *peer, const char *library)
{
    double fast[MOST_ROUNDS], pool[MOST_ROUNDS], theirs[MOST_ROUNDS], theirs_alone[MOST_ROUNDS];
    aoticache_runner *ours = create_ours(library, false), *pool_only = create_ours(library, true);
    void *torch = peer->create(library, 0), *torch_alone = peer->create(library, 1);
    if (torch == NULL || torch_alone == NULL)
        fail("PyTorch's runner", "is not created");
    for (int i = 0; i < rounds; i++) {
        fast[i] = measure_ours(ours);
        theirs[i] = measure_theirs(peer, torch);
        pool[i] = measure_ours(pool_only);
        theirs_alone[i] = measure_theirs(peer, torch_alone);
    }
    double by_torch = median(theirs);
    report("runner's run", median(fast), "PyTorch's C++ runner", by_torch);
    report("runner's run, pool only", median(pool), "PyTorch's C++ runner", by_torch);
    report("runner's run, any threads", median(fast), "PyTorch's, single-threaded only", median(theirs_alone));
    aoticache_runner_unref(ours);
    aoticache_runner_unref(pool_only);
}

int main(void)
{
    char library[PATH_MAX], directory[] = "/tmp/aoticache-bench-XXXXXX", command[PATH_MAX];
    rounds = bench_is_quick() ? 7 : MOST_ROUNDS;
    if (!make_library(library)) {
        bench_left_out("all runs of the runner", "there is no PyTorch");
        return 0;
    }
    if (mkdtemp(directory) == NULL)
        fail(directory, "cannot be made");
    bool compiled = compile_peer(directory);
    torch_peer peer = {NULL, NULL};
    if (compiled)
        peer = load_peer(directory);
    snprintf(command, sizeof command, "rm -r %s", directory);
    int status = system(command);
    if (!compiled)
        bench_left_out("all runs of the runner", "there is no C++ compiler, or no headers of PyTorch");
    else
        compare(&peer, library);
    fflush(stdout);
    /* Do not use exit(): PyTorch's runners still exist, and libtorch is slow to end the process. */
    _exit(status == 0 ? 0 : 1);
}
