/*
 * Threads run a container of a kernel library written in C (tests/unit/kernels/uniform.c) while others change its
 * constants: update the inactive buffer with one value, fold it or not, swap; sometimes update the active one, fold
 * again, list, free the inactive one. Every run's output must consist of one value, whatever it is. Meant for
 * ThreadSanitizer, with which the library is then compiled too; also run without it.
 *
 * Argument: seconds (default 5), shared by containers with 1, 3 and 8 models.
 */
#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/process/home.h"
#include "runtime/abi.h"

#if defined(__SANITIZE_THREAD__)
#define SANITIZE "-fsanitize=thread"
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZE "-fsanitize=address,undefined"
#else
#define SANITIZE ""
#endif

enum { RUNNERS = 8, WRITERS = 2, SIZE = 2048 };

#define FUNCTIONS(X)                                       \
    X(AOTInductorModelContainerCreateWithDevice)           \
    X(AOTInductorModelContainerDelete)                     \
    X(AOTInductorModelContainerRun)                        \
    X(AOTInductorModelContainerUpdateConstantBufferPairs)  \
    X(AOTInductorModelContainerRunConstantFolding)         \
    X(AOTInductorModelContainerSwapConstantBuffer)         \
    X(AOTInductorModelContainerExtractConstantsMapEntries) \
    X(AOTInductorModelContainerFreeInactiveConstantBuffer) \
    X(AOTInductorGetLastError)
#define TORCH_FUNCTIONS(X)                \
    X(aoti_torch_create_tensor_from_blob) \
    X(aoti_torch_get_data_ptr)            \
    X(aoti_torch_delete_tensor_object)

#define FIELD(name) __typeof__(&name) name;
static struct {
    FUNCTIONS(FIELD)
    TORCH_FUNCTIONS(FIELD)
} f;

static AOTInductorModelContainerHandle container;
static atomic_bool stop;
static atomic_ulong runs, swaps, failures;

static void complain(const char *what)
{
    const char *message = "";
    f.AOTInductorGetLastError(&message);
    fprintf(stderr, "not ok - %s: %s\n", what, message);
    atomic_fetch_add(&failures, 1);
}

static AtenTensorHandle wrap(float *data, int64_t size)
{
    const int64_t stride = 1;
    AtenTensorHandle tensor = NULL;
    if (f.aoti_torch_create_tensor_from_blob(data, 1, &size, &stride, 0, AOTICACHE_DTYPE_FLOAT32, 0, -1, &tensor) != 0)
        complain("wrap");
    return tensor;
}

static void check_uniform(AtenTensorHandle output)
{
    void *data = NULL;
    f.aoti_torch_get_data_ptr(output, &data);
    const float *y = data;
    for (int i = 1; i < 3 * SIZE; i++) {
        if (y[i] == y[0])
            continue;
        fprintf(stderr, "element %d is %g, element 0 is %g\n", i, (double)y[i], (double)y[0]);
        complain("a run saw half of a change");
        return;
    }
}

static void *run_often(void *argument)
{
    unsigned round = (unsigned)(uintptr_t)argument;
    while (!stop) {
        float x = ++round % 64 == 0 ? -1 : 0;
        AtenTensorHandle input = wrap(&x, 1), output = NULL;
        AOTIRuntimeError status = f.AOTInductorModelContainerRun(container, &input, 1, &output, 1, NULL, NULL);
        if ((status == 0) != (x == 0))
            complain("run");
        if (status != 0)
            continue;
        check_uniform(output);
        f.aoti_torch_delete_tensor_object(output);
        atomic_fetch_add(&runs, 1);
    }
    return NULL;
}

/* Changes the constants as one step: no other writer may intervene between an update and its swap. */
static void change_constants(unsigned round, AOTInductorConstantMapEntry pairs[2])
{
    static pthread_mutex_t one_after_the_other = PTHREAD_MUTEX_INITIALIZER;
    bool active = round % 7 == 0;
    pthread_mutex_lock(&one_after_the_other);
    if (f.AOTInductorModelContainerUpdateConstantBufferPairs(container, pairs, 2, !active, true) != 0)
        complain("update");
    if (round % 3 == 0 && f.AOTInductorModelContainerRunConstantFolding(container, !active, NULL, NULL) != 0)
        complain("fold");
    if (!active && f.AOTInductorModelContainerSwapConstantBuffer(container) != 0)
        complain("swap");
    if (round % 11 == 0 && f.AOTInductorModelContainerFreeInactiveConstantBuffer(container) != 0)
        complain("free");
    pthread_mutex_unlock(&one_after_the_other);
    atomic_fetch_add(&swaps, 1);
}

static void *change_often(void *argument)
{
    static const char *const names[] = {"weight", "bias"};
    unsigned round = (unsigned)(uintptr_t)argument;
    const AOTInductorConstantMapEntry *entries;
    size_t count;
    float *data = malloc(SIZE * sizeof *data);
    if (data == NULL)
        exit(1);
    AtenTensorHandle tensor = wrap(data, SIZE);
    AOTInductorConstantMapEntry pairs[] = {{names[0], tensor}, {names[1], tensor}};
    while (!stop) {
        round += WRITERS;
        for (int i = 0; i < SIZE; i++)
            data[i] = (float)(round % 100000);
        change_constants(round, pairs);
        /* One thread reads, and ignores the results: reading must not disturb. */
        if (argument == NULL)
            f.AOTInductorModelContainerExtractConstantsMapEntries(container, &entries, &count, round % 2 == 0);
    }
    f.aoti_torch_delete_tensor_object(tensor);
    free(data);
    return NULL;
}

static bool find(void *library, const char *name, void *ret_function)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL)
        fprintf(stderr, "no %s\n", name);
    else
        memcpy(ret_function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool load(void)
{
    char shim_path[PATH_MAX], archive[PATH_MAX], header[PATH_MAX], directory[] = "/tmp/race_container.XXXXXX";
    char command[4 * PATH_MAX], path[PATH_MAX];
    aoticache_error error;
    if (aoticache_home_find("lib/libaoticache_torchshim.so", shim_path, &error) != AOTICACHE_OK ||
        aoticache_home_find("lib/libaoticache_runtime.a", archive, &error) != AOTICACHE_OK ||
        aoticache_home_find("include/aoticache/runtime/kernel.h", header, &error) != AOTICACHE_OK) {
        fprintf(stderr, "%s\n", error.message);
        return false;
    }
    *strstr(header, "/runtime/kernel.h") = '\0';
    if (mkdtemp(directory) == NULL)
        return false;
    snprintf(path, sizeof path, "%s/kernel.so", directory);
    snprintf(command, sizeof command,
             "cc -std=gnu11 -O1 -g -shared -fPIC -fvisibility=hidden " SANITIZE
             " -I%s tests/unit/kernels/uniform.c %s -o %s",
             header, archive, path);
    if (system(command) != 0)
        return false;
    void *shim = dlopen(shim_path, RTLD_NOW | RTLD_GLOBAL);
    void *library = shim != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL)
        fprintf(stderr, "%s\n", dlerror());
    snprintf(command, sizeof command, "rm -r %s", directory);
    bool found = system(command) == 0 && library != NULL;
#define FIND_IN_LIBRARY(name) found = found && find(library, #name, &f.name);
#define FIND_IN_SHIM(name) found = found && find(shim, #name, &f.name);
    FUNCTIONS(FIND_IN_LIBRARY)
    TORCH_FUNCTIONS(FIND_IN_SHIM)
    return found;
}

static void race(size_t num_models, double seconds)
{
    pthread_t threads[RUNNERS + WRITERS];
    stop = false;
    if (f.AOTInductorModelContainerCreateWithDevice(&container, num_models, "cpu", NULL) != 0) {
        complain("create");
        return;
    }
    for (uintptr_t i = 0; i < RUNNERS + WRITERS; i++)
        if (pthread_create(&threads[i], NULL, i < RUNNERS ? run_often : change_often,
                           (void *)(i < RUNNERS ? i : i - RUNNERS)) != 0)
            exit(1);
    uint64_t end = aoticache_monotonic_ns() + (uint64_t)(seconds * 1e9);
    while (aoticache_monotonic_ns() < end)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    stop = true;
    for (int i = 0; i < RUNNERS + WRITERS; i++)
        pthread_join(threads[i], NULL);
    f.AOTInductorModelContainerDelete(container);
    printf("# %zu models: %lu runs, %lu changes\n", num_models, atomic_exchange(&runs, 0), atomic_exchange(&swaps, 0));
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 5;
    if (system("cc --version >/dev/null 2>&1") != 0) {
        puts("there is no C compiler");
        return 77;
    }
    if (!load())
        return 1;
    const size_t models[] = {1, 3, 8};
    for (int i = 0; i < 3; i++)
        race(models[i], seconds / 3);
    if (failures == 0)
        puts("ok - runs see whole buffers while others change them");
    return failures == 0 ? 0 : 1;
}
