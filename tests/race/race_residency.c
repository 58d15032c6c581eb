/*
 * Threads acquire, run and release eight libraries, of which a residency keeps three, while another thread trims it and
 * adds and removes a ninth. Every library adds a number of its own, so a runner that was unloaded under a call, or
 * taken for another, gives a wrong result or a crash. Meant for the thread sanitizer; run without it too.
 *
 * Argument: seconds (default 5).
 */
#include "base/base.h"
#include "loader/runner/residency.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LIBRARIES = 8, THREADS = 6, BUDGET = 3 };

static const char source[] =
    "#include <stddef.h>\n#include <stdint.h>\n#include <stdlib.h>\n"
    "typedef struct tensor *T;\n"
    "int aoti_torch_get_data_ptr(T, void **);\nint aoti_torch_delete_tensor_object(T);\n"
    "int aoti_torch_empty_strided(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, T *);\n"
    "int AOTInductorModelContainerCreateWithDevice(void **ret, size_t n, const char *d, const char *c)\n"
    "{ *ret = malloc(1); return *ret == NULL; }\n"
    "int AOTInductorModelContainerDelete(void *c) { free(c); return 0; }\n"
    "int AOTInductorModelContainerGetNumInputs(void *c, size_t *ret) { *ret = 1; return 0; }\n"
    "int AOTInductorModelContainerGetNumOutputs(void *c, size_t *ret) { *ret = 1; return 0; }\n"
    "int AOTInductorModelContainerGetNumConstants(void *c, size_t *ret) { *ret = 0; return 0; }\n"
    "int AOTInductorModelContainerRun(void *c, T *in, size_t ni, T *out, size_t no, void *stream, void *proxy)\n"
    "{\n    float *from, *to; int64_t one = 1;\n"
    "    aoti_torch_get_data_ptr(in[0], (void **)&from);\n"
    "    aoti_torch_empty_strided(1, &one, &one, 6, 0, 0, &out[0]); aoti_torch_get_data_ptr(out[0], (void **)&to);\n"
    "    *to = *from + ADD;\n    aoti_torch_delete_tensor_object(in[0]); in[0] = NULL;\n    return 0;\n}\n";

#if defined(__SANITIZE_THREAD__)
/* The dynamic linker's own lock is none that the sanitizer sees; what it does under it looks like races in malloc. */
AOTICACHE_API const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    /*
     * The linker maps a library where others had memory a moment ago, unseen by the sanitizer: the library's data then
     * seems to be written by them. What libraries do by themselves is race_container's to look at.
     */
    return "race:ld-linux\n"
           "race:/proc/thread-self/fd/\n";
}
#endif

typedef struct kernel {
    int fd, number;
    aoticache_resident *resident;
    atomic_int loading;
} kernel;

static kernel kernels[LIBRARIES + 1];
static aoticache_residency *residency;
static atomic_bool stop;
static atomic_ulong runs, misses, failures;

static void complain(const char *what, const char *detail)
{
    fprintf(stderr, "not ok - %s: %s\n", what, detail);
    atomic_fetch_add(&failures, 1);
}

static aoticache_status load(void *user, aoticache_runner **ret_runner, aoticache_error *ret_error)
{
    kernel *of = user;
    aoticache_library *library = NULL;
    if (atomic_fetch_add(&of->loading, 1) != 0)
        complain("load", "twice at once for one resident");
    aoticache_status status = aoticache_library_load_fd(of->fd, "kernel", &library, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_runner_create(library, NULL, ret_runner, ret_error);
    aoticache_library_unref(library);
    atomic_fetch_sub(&of->loading, 1);
    return status;
}

static void run_and_check(aoticache_runner *runner, int number)
{
    float x = 0.5f;
    AtenTensorHandle input = NULL, output = NULL;
    aoticache_tensor_view view;
    aoticache_error error = {0};
    if (aoticache_tensor_from_blob(&x, AOTICACHE_DTYPE_FLOAT32, 1, (int64_t[]){1}, NULL, &input, &error) !=
            AOTICACHE_OK ||
        aoticache_runner_run(runner, &input, 1, &output, 1, &error) != AOTICACHE_OK ||
        aoticache_tensor_get_view(output, &view, &error) != AOTICACHE_OK) {
        complain("run", error.message);
        return;
    }
    if (*(float *)view.data != 0.5f + (float)number)
        complain("run", "another library's result");
    aoticache_tensor_free(output);
    aoticache_tensor_free(input);
    atomic_fetch_add(&runs, 1);
}

static void *use_often(void *argument)
{
    unsigned seed = (unsigned)(uintptr_t)argument;
    aoticache_error error = {0};
    while (!stop) {
        kernel *of = &kernels[rand_r(&seed) % LIBRARIES];
        aoticache_runner *runner = aoticache_resident_try_acquire(of->resident);
        if (runner == NULL) {
            atomic_fetch_add(&misses, 1);
            if (aoticache_resident_acquire(of->resident, &runner, &error) != AOTICACHE_OK) {
                complain("acquire", error.message);
                continue;
            }
        }
        for (int i = 0; i < 20; i++)
            run_and_check(runner, of->number);
        aoticache_resident_release(of->resident);
    }
    return NULL;
}

/* The ninth is this thread's alone: a resident may be removed only where nobody else is about to acquire it. */
static void add_use_remove(void)
{
    kernel *of = &kernels[LIBRARIES];
    aoticache_runner *runner = NULL;
    aoticache_error error = {0};
    if (aoticache_residency_add(residency, load, of, NULL, &of->resident, &error) != AOTICACHE_OK ||
        aoticache_resident_acquire(of->resident, &runner, &error) != AOTICACHE_OK) {
        complain("ninth", error.message);
        return;
    }
    aoticache_resident_remove(of->resident);
    run_and_check(runner, of->number);
    aoticache_resident_release(of->resident);
}

static void *trim_often(void *argument)
{
    (void)argument;
    for (unsigned round = 0; !stop; round++) {
        aoticache_residency_totals totals;
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        aoticache_residency_trim(residency, round % 3, round % 2 == 0 ? 0 : 100000);
        aoticache_residency_get_totals(residency, &totals);
        if (totals.residents != LIBRARIES || totals.loaded > LIBRARIES + 1 || totals.loads < totals.unloads)
            complain("totals", "impossible ones");
        add_use_remove();
    }
    return NULL;
}

static bool make_kernel(const char *folder, int number, kernel *ret_kernel)
{
    char path[256], command[1024];
    snprintf(path, sizeof path, "%s/k%d.so", folder, number);
    snprintf(command, sizeof command, "cc -w -O1 -shared -fPIC -DADD=%d '%s/k.c' -o '%s'", number, folder, path);
    if (system(command) != 0)
        return false;
    ret_kernel->number = number;
    ret_kernel->fd = open(path, O_RDONLY | O_CLOEXEC);
    return ret_kernel->fd >= 0;
}

static bool make_kernels(void)
{
    char folder[] = "/tmp/race_residency.XXXXXX", path[64], command[128];
    if (mkdtemp(folder) == NULL)
        return false;
    snprintf(path, sizeof path, "%s/k.c", folder);
    FILE *file = fopen(path, "we");
    bool made = file != NULL && fputs(source, file) >= 0;
    made = file != NULL && fclose(file) == 0 && made;
    for (int i = 0; made && i <= LIBRARIES; i++)
        made = make_kernel(folder, i + 1, &kernels[i]);
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command) == 0 && made;
}

static bool make_residency(void)
{
    aoticache_residency_options options = AOTICACHE_RESIDENCY_OPTIONS_INIT;
    aoticache_error error = {0};
    options.max_count = BUDGET;
    bool made = aoticache_residency_create(&options, &residency, &error) == AOTICACHE_OK;
    for (int i = 0; made && i < LIBRARIES; i++)
        made = aoticache_residency_add(residency, load, &kernels[i], NULL, &kernels[i].resident, &error) ==
               AOTICACHE_OK;
    if (!made)
        complain("residency", error.message);
    return made;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 5;
    pthread_t threads[THREADS + 1];
    aoticache_residency_totals totals;
    if (system("cc --version >/dev/null 2>&1") != 0) {
        puts("there is no C compiler");
        return 77;
    }
    if (!make_kernels() || !make_residency())
        return 1;
    for (uintptr_t i = 0; i <= THREADS; i++)
        if (pthread_create(&threads[i], NULL, i < THREADS ? use_often : trim_often, (void *)(i + 1)) != 0)
            return 1;
    uint64_t end = aoticache_monotonic_ns() + (uint64_t)(seconds * 1e9);
    while (aoticache_monotonic_ns() < end && failures == 0)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    stop = true;
    for (int i = 0; i <= THREADS; i++)
        pthread_join(threads[i], NULL);
    aoticache_residency_get_totals(residency, &totals);
    if (totals.loaded > BUDGET || totals.acquired != 0 || totals.failed_loads != 0)
        complain("at the end", "more than the budget is loaded, or something acquired");
    printf("# %lu runs, %lu misses, %lu loads, %lu unloads\n", runs, misses, (unsigned long)totals.loads,
           (unsigned long)totals.unloads);
    aoticache_residency_free(residency);
    if (failures == 0)
        puts("ok - no runner goes while it is acquired, and each gives its own results");
    return failures == 0 ? 0 : 1;
}
