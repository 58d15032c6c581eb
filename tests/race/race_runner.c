/*
 * Threads run one runner while one thread changes its constants: updates the inactive buffer with one value, folds it
 * or not, swaps; sometimes updates the active one, folds that, lists, frees the inactive one, folds without success.
 * The kernel, tests/unit/kernels/uniform.c, returns all that it read: every run's output must consist of one value, no
 * older than the last change that had ended before the run began. Some runs fail on purpose. Meant for ThreadSanitizer,
 * with which the kernel is then compiled too; also run without it.
 *
 * Argument: seconds (default 5), shared by runners with 1 model, 3 models, and 1 model after long pauses of the
 * changes.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process/home.h"
#include "loader/runner/constants.h"
#include "loader/runner/create.h"
#include "loader/runner/runner.h"

#include <limits.h>

#if defined(__SANITIZE_THREAD__)
#define SANITIZE "-fsanitize=thread"
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZE "-fsanitize=address,undefined"
#else
#define SANITIZE ""
#endif

enum { RUNNERS = 6, SIZE = 2048 };

static aoticache_runner *runner;
static atomic_bool stop;
static atomic_ulong runs, changes, failures;
static atomic_uint oldest_allowed; /* the value that is in the active buffer, or was when the last change ended */

static void complain(const char *what, const aoticache_error *error)
{
    fprintf(stderr, "not ok - %s: %s\n", what, error != NULL ? error->message : "");
    atomic_fetch_add(&failures, 1);
}

static AtenTensorHandle wrap(float *data, int64_t size)
{
    AtenTensorHandle tensor = NULL;
    if (aoticache_tensor_from_blob(data, AOTICACHE_DTYPE_FLOAT32, 1, &size, NULL, &tensor, NULL) != AOTICACHE_OK)
        exit(1);
    return tensor;
}

static void check_output(AtenTensorHandle output, unsigned at_least)
{
    aoticache_tensor_view view;
    if (aoticache_tensor_get_view(output, &view, NULL) != AOTICACHE_OK)
        exit(1);
    const float *y = view.data;
    for (int i = 1; i < 3 * SIZE; i++) {
        if (y[i] == y[0])
            continue;
        fprintf(stderr, "element %d is %g, element 0 is %g\n", i, (double)y[i], (double)y[0]);
        complain("a run saw half of a change", NULL);
        return;
    }
    if (y[0] < (float)at_least)
        complain("a run saw constants that had been replaced before it began", NULL);
}

static void *run_often(void *argument)
{
    unsigned round = (unsigned)(uintptr_t)argument;
    while (!stop) {
        float x = ++round % 64 == 0 ? -1 : 0;
        unsigned at_least = oldest_allowed;
        aoticache_error error = {0};
        AtenTensorHandle input = wrap(&x, 1), output = NULL;
        aoticache_status status = aoticache_runner_run(runner, &input, 1, &output, 1, &error);
        aoticache_tensor_free(input);
        if (status != (x == 0 ? AOTICACHE_OK : AOTICACHE_RUN_FAILED))
            complain("run", &error);
        if (status != AOTICACHE_OK)
            continue;
        check_output(output, at_least);
        aoticache_tensor_free(output);
        atomic_fetch_add(&runs, 1);
        if (round % 1024 == 0)
            nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return NULL;
}

static bool count_constants(void *user, const char *original_fqn, AtenTensorHandle tensor)
{
    (void)original_fqn;
    (void)tensor;
    ++*(int *)user;
    return true;
}

static void expect_ok(aoticache_status status, const char *what, const aoticache_error *error)
{
    if (status != AOTICACHE_OK)
        complain(what, error);
}

static void change_constants(unsigned round, const AOTInductorConstantMapEntry pairs[2])
{
    aoticache_error error = {0};
    int count = 0;
    aoticache_update_options options = AOTICACHE_UPDATE_OPTIONS_INIT;
    options.inactive = round % 7 != 0;
    expect_ok(aoticache_runner_update_constants(runner, &options, pairs, 2, &error), "update", &error);
    if (round % 3 == 0)
        expect_ok(aoticache_runner_fold_constants(runner, options.inactive, NULL, &error), "fold", &error);
    if (options.inactive)
        expect_ok(aoticache_runner_swap_constants(runner, &error), "swap", &error);
    atomic_store(&oldest_allowed, round);
    if (round % 5 == 0)
        expect_ok(aoticache_runner_extract_constants(runner, round % 2 == 0, count_constants, &count, &error),
                  "extract", &error);
    if (round % 11 != 0)
        return;
    expect_ok(aoticache_runner_free_inactive_constants(runner, &error), "free", &error);
    if (aoticache_runner_fold_constants(runner, true, NULL, &error) != AOTICACHE_RUN_FAILED)
        complain("folding a freed buffer", &error);
}

static void *change_often(void *argument)
{
    static const char *const names[] = {"weight", "bias"};
    long pause_ns = (long)(intptr_t)argument;
    float *data = malloc(SIZE * sizeof *data);
    if (data == NULL)
        exit(1);
    AtenTensorHandle tensor = wrap(data, SIZE);
    AOTInductorConstantMapEntry pairs[] = {{names[0], tensor}, {names[1], tensor}};
    for (unsigned round = 1; !stop && round < 1u << 24; round++) {
        for (int i = 0; i < SIZE; i++)
            data[i] = (float)round;
        change_constants(round, pairs);
        atomic_fetch_add(&changes, 1);
        if (pause_ns > 0)
            nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
    }
    aoticache_tensor_free(tensor);
    free(data);
    return NULL;
}

static aoticache_library *load(void)
{
    char archive[PATH_MAX], header[PATH_MAX], directory[] = "/tmp/race_runner.XXXXXX", path[64];
    char command[4 * PATH_MAX];
    aoticache_error error;
    aoticache_library *library = NULL;
    if (aoticache_home_find("lib/libaoticache_runtime.a", archive, &error) != AOTICACHE_OK ||
        aoticache_home_find("include/aoticache/runtime/kernel.h", header, &error) != AOTICACHE_OK) {
        fprintf(stderr, "%s\n", error.message);
        return NULL;
    }
    *strstr(header, "/runtime/kernel.h") = '\0';
    if (mkdtemp(directory) == NULL)
        return NULL;
    snprintf(path, sizeof path, "%s/kernel.so", directory);
    snprintf(command, sizeof command,
             "cc -std=gnu11 -O1 -g -shared -fPIC -fvisibility=hidden " SANITIZE
             " -I%s tests/unit/kernels/uniform.c %s -o %s",
             header, archive, path);
    int fd = system(command) == 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0 && aoticache_library_load_fd(fd, "uniform", NULL, &library, &error) != AOTICACHE_OK)
        fprintf(stderr, "%s\n", error.message);
    close(fd);
    unlink(path);
    rmdir(directory);
    return library;
}

static void race(aoticache_library *library, size_t num_models, long pause_ns, double seconds)
{
    pthread_t threads[RUNNERS + 1];
    aoticache_error error = {0};
    aoticache_runner_options options = AOTICACHE_RUNNER_OPTIONS_INIT;
    options.num_models = num_models;
    stop = false;
    oldest_allowed = 0;
    if (aoticache_runner_create(library, &options, &runner, &error) != AOTICACHE_OK) {
        complain("create", &error);
        return;
    }
    for (intptr_t i = 0; i <= RUNNERS; i++)
        if (pthread_create(&threads[i], NULL, i < RUNNERS ? run_often : change_often,
                           (void *)(i < RUNNERS ? i : (intptr_t)pause_ns)) != 0)
            exit(1);
    uint64_t end = aoticache_monotonic_ns() + (uint64_t)(seconds * 1e9);
    while (aoticache_monotonic_ns() < end)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    stop = true;
    for (int i = 0; i <= RUNNERS; i++)
        pthread_join(threads[i], NULL);
    aoticache_runner_unref(runner);
    if (runs == 0 || changes == 0)
        complain("somebody never had a turn", NULL);
    printf("# %zu models: %lu runs, %lu changes\n", num_models, atomic_exchange(&runs, 0),
           atomic_exchange(&changes, 0));
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 5;
    if (system("cc --version >/dev/null 2>&1") != 0) {
        puts("there is no C compiler");
        return 77;
    }
    aoticache_library *library = load();
    if (library == NULL)
        return 1;
    race(library, 1, 0, seconds / 3);
    race(library, 3, 0, seconds / 3);
    race(library, 1, 2000000, seconds / 3);
    aoticache_library_unref(library);
    if (failures == 0)
        puts("ok - runs see whole buffers, and the newest, while another thread changes them");
    return failures == 0 ? 0 : 1;
}
