/*
 * Measures the overhead of a container in a run: ours and PyTorch's C++ one, around an empty kernel, with 1, 2 and 8
 * threads, and without the pool of models (single-threaded), for which the bare kernel is measured too. PyTorch's
 * container is compiled here from its headers. If they or a C++ compiler are missing, the figures with it are left out.
 *
 * Single-threaded runs are measured in processor time, the others in elapsed time, since waiting threads take no
 * processor time. Prints one JSON object per line (scripts/bench collects them).
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process/home.h"
#include "runtime/kernel.h"
#include "tests/bench/bench.h"

enum { MOST_ROUNDS = 15, RUNS = 300000, MAX_THREADS = 8 };

/* Our container must not cost more than PyTorch's, which takes two locks for a run. */
#define PEER_LIMIT 1
/* Without the pool PyTorch's container takes no lock, so little can be saved: 1.13 was measured on a Zen 5. */
#define ALONE_LIMIT 1.5

static int rounds = MOST_ROUNDS;

typedef struct container_peer {
    void *library;
    __typeof__(&AOTInductorModelContainerRun) run, run_alone;
    AOTInductorModelContainerHandle container;
} container_peer;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "bench_container: %s: %s\n", what, why);
    exit(1);
}

static void *find(void *library, const char *name)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL)
        fail(name, "is not exported");
    return symbol;
}

#define FIND(library, name, ret_function)               \
    do {                                                \
        void *symbol_ = find(library, name);            \
        memcpy(ret_function, &symbol_, sizeof symbol_); \
    } while (0)

/* ---- libraries ---- */

static void find_home(const char *relative, char ret_path[PATH_MAX])
{
    aoticache_error error;
    if (aoticache_home_find(relative, ret_path, &error) != AOTICACHE_OK)
        fail(relative, error.message);
}

static void compile_ours(const char *directory)
{
    char archive[PATH_MAX], header[PATH_MAX], command[4 * PATH_MAX];
    find_home("lib/libaoticache_runtime.a", archive);
    find_home("include/aoticache/runtime/kernel.h", header);
    *strstr(header, "/runtime/kernel.h") = '\0';
    snprintf(command, sizeof command,
             "cc -std=gnu11 -O2 -shared -fPIC -fvisibility=hidden -I%s tests/bench/peers/pass_kernel.c %s "
             "-o %s/ours.so",
             header, archive, directory);
    if (system(command) != 0)
        fail("ours.so", "does not compile");
}

static bool compile_theirs(const char *directory)
{
    const char *venv = getenv("VENV");
    char command[4 * PATH_MAX];
    snprintf(command, sizeof command,
             "torch=$(echo %s/lib/python3*/site-packages/torch) && c++ -std=c++20 -O2 -w -shared -fPIC "
             "-fvisibility=hidden -I\"$torch/include\" tests/bench/peers/pass_model.cpp "
             "\"$torch/_inductor/codegen/aoti_runtime/interface.cpp\" -o %s/theirs.so >/dev/null 2>&1",
             venv != NULL ? venv : "build/venv", directory);
    return system(command) == 0;
}

static container_peer load(const char *directory, const char *name)
{
    char path[PATH_MAX];
    container_peer peer;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    peer.library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (peer.library == NULL)
        fail(name, dlerror());
    FIND(peer.library, "AOTInductorModelContainerRun", &peer.run);
    FIND(peer.library, "AOTInductorModelContainerRunSingleThreaded", &peer.run_alone);
    return peer;
}

static void create(container_peer *peer, size_t num_models)
{
    __typeof__(&AOTInductorModelContainerCreateWithDevice) create_with_device;
    FIND(peer->library, "AOTInductorModelContainerCreateWithDevice", &create_with_device);
    if (create_with_device(&peer->container, num_models, "cpu", NULL) != 0)
        fail("create", "failed");
}

static void delete(container_peer *peer)
{
    __typeof__(&AOTInductorModelContainerDelete) delete_container;
    FIND(peer->library, "AOTInductorModelContainerDelete", &delete_container);
    delete_container(peer->container);
}

/* ---- measuring ---- */

static AtenTensorHandle make_tensor(void)
{
    static float data[1];
    const int64_t one[] = {1};
    __typeof__(&aoti_torch_create_tensor_from_blob) create_tensor;
    AtenTensorHandle tensor;
    FIND(RTLD_DEFAULT, "aoti_torch_create_tensor_from_blob", &create_tensor);
    if (create_tensor(data, 1, one, one, 0, AOTICACHE_DTYPE_FLOAT32, 0, -1, &tensor) != 0)
        fail("tensor", "failed");
    return tensor;
}

static void drop_tensor(AtenTensorHandle tensor)
{
    __typeof__(&aoti_torch_delete_tensor_object) delete_tensor;
    FIND(RTLD_DEFAULT, "aoti_torch_delete_tensor_object", &delete_tensor);
    delete_tensor(tensor);
}

typedef struct thread_job {
    const container_peer *peer;
    pthread_barrier_t *barrier;
    uint64_t begin, end;
} thread_job;

/* Runs many times. The output of one run is the input of the next. */
static void *run_many(void *argument)
{
    thread_job *job = argument;
    AtenTensorHandle tensor = make_tensor();
    pthread_barrier_wait(job->barrier);
    job->begin = aoticache_monotonic_ns();
    for (int i = 0; i < RUNS; i++) {
        AtenTensorHandle output = NULL;
        if (job->peer->run(job->peer->container, &tensor, 1, &output, 1, NULL, NULL) != 0)
            fail("run", "failed");
        tensor = output;
    }
    job->end = aoticache_monotonic_ns();
    drop_tensor(tensor);
    return NULL;
}

/* Returns the nanoseconds per run, all threads together. */
static double measure(container_peer *peer, int num_threads)
{
    pthread_t threads[MAX_THREADS];
    thread_job jobs[MAX_THREADS];
    pthread_barrier_t barrier;
    uint64_t begin = UINT64_MAX, end = 0;
    create(peer, (size_t)num_threads);
    pthread_barrier_init(&barrier, NULL, (unsigned)num_threads);
    for (int i = 0; i < num_threads; i++) {
        jobs[i] = (thread_job){.peer = peer, .barrier = &barrier};
        if (pthread_create(&threads[i], NULL, run_many, &jobs[i]) != 0)
            fail("thread", "failed");
    }
    for (int i = 0; i < num_threads; i++) {
        pthread_join(threads[i], NULL);
        begin = jobs[i].begin < begin ? jobs[i].begin : begin;
        end = jobs[i].end > end ? jobs[i].end : end;
    }
    pthread_barrier_destroy(&barrier);
    delete (peer);
    return (double)(end - begin) / RUNS / num_threads;
}

static double measure_alone(const container_peer *peer)
{
    AtenTensorHandle tensor = make_tensor();
    uint64_t begin = bench_processor_ns();
    for (int i = 0; i < RUNS; i++) {
        AtenTensorHandle output = NULL;
        if (peer->run_alone(peer->container, &tensor, 1, &output, 1, NULL, NULL) != 0)
            fail("run alone", "failed");
        tensor = output;
    }
    uint64_t end = bench_processor_ns();
    drop_tensor(tensor);
    return (double)(end - begin) / RUNS;
}

static double measure_body(aoticache_kernel_run_fn body)
{
    AtenTensorHandle tensor = make_tensor();
    uint64_t begin = bench_processor_ns();
    for (int i = 0; i < RUNS; i++) {
        AtenTensorHandle output = NULL;
        aoticache_kernel_call call = {.inputs = &tensor, .outputs = &output};
        if (body(&call) != 0)
            fail("body", "failed");
        tensor = output;
    }
    uint64_t end = bench_processor_ns();
    drop_tensor(tensor);
    return (double)(end - begin) / RUNS;
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

/* Reports a figure. target: 0 if there is none. */
static void report(const char *name, double value, const char *other, double peer_value, double target)
{
    double ratio = value / peer_value;
    printf("{\"name\":\"%s\",\"value\":%.4g,\"unit\":\"ns\",\"peer\":\"%s\",\"peer_value\":%.4g,\"ratio\":%.3f,"
           "\"target\":%g,\"met\":%s}\n",
           name, value, other, peer_value, ratio, target,
           target <= 0       ? "null"
           : ratio <= target ? "true"
                             : "false");
    fflush(stdout);
}

static void compare_threads(container_peer *ours, container_peer *theirs, int num_threads)
{
    double our_values[MOST_ROUNDS], their_values[MOST_ROUNDS];
    char name[64];
    for (int i = 0; i < rounds; i++) {
        our_values[i] = measure(ours, num_threads);
        their_values[i] = measure(theirs, num_threads);
    }
    snprintf(name, sizeof name, "container's run, %d thread%s", num_threads, num_threads == 1 ? "" : "s");
    report(name, median(our_values), "PyTorch's C++ container", median(their_values), PEER_LIMIT);
}

/* Compares single-threaded runs. theirs: NULL if there is none. */
static void compare_alone(container_peer *ours, container_peer *theirs)
{
    double values[MOST_ROUNDS], bare[MOST_ROUNDS], their_values[MOST_ROUNDS];
    aoticache_kernel_run_fn body;
    FIND(ours->library, "bench_body", &body);
    create(ours, 1);
    if (theirs != NULL)
        create(theirs, 1);
    for (int i = 0; i < rounds; i++) {
        values[i] = measure_alone(ours);
        bare[i] = measure_body(body);
        their_values[i] = theirs != NULL ? measure_alone(theirs) : 0;
    }
    delete (ours);
    if (theirs != NULL)
        delete (theirs);
    double value = median(values);
    if (theirs != NULL)
        report("container's single-threaded run", value, "PyTorch's C++ container", median(their_values), ALONE_LIMIT);
    report("container's single-threaded run, beside the kernel alone", value, "the bare kernel", median(bare), 0);
}

int main(void)
{
    char shim[PATH_MAX], directory[] = "/tmp/bench_container.XXXXXX", command[64];
    find_home("lib/libaoticache_torchshim.so", shim);
    if (dlopen(shim, RTLD_NOW | RTLD_GLOBAL) == NULL)
        fail("shim", dlerror());
    if (mkdtemp(directory) == NULL)
        fail("directory", "cannot be made");
    compile_ours(directory);
    bool compared = compile_theirs(directory);
    container_peer ours = load(directory, "ours.so");
    container_peer theirs = compared ? load(directory, "theirs.so") : ours;
    snprintf(command, sizeof command, "rm -r %s", directory);
    rounds = bench_is_quick() ? 5 : MOST_ROUNDS;
    if (!compared)
        bench_left_out("PyTorch's container beside ours", "there is no C++ compiler or no PyTorch");
    for (int threads = 1; compared && threads <= MAX_THREADS; threads = threads == 1 ? 2 : threads * 4)
        compare_threads(&ours, &theirs, threads);
    compare_alone(&ours, compared ? &theirs : NULL);
    return system(command) == 0 ? 0 : 1;
}
