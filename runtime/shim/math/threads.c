/*
 * shim/math/threads: finds the process's OpenMP runtime and gives it work. Its functions are found by name: the shim
 * can be loaded without a runtime.
 */
#include "runtime/shim/math/math_internal.h"

#include "base/process/fork_guard.h"
#include "base/process/openmp_fork.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

/* The least work for which waking a thread pays off; OpenBLAS takes a second thread at twice as much. */
#define PART_WORK 131072.0

/* GOMP_parallel is libgomp's entry for "#pragma omp parallel", which LLVM's and Intel's runtimes have too. */
static struct {
    void (*parallel)(void (*run)(void *), void *data, unsigned threads, unsigned flags);
    int (*max_threads)(void);
    int (*in_parallel)(void);
    void (*set_threads)(int threads);
    bool survives_fork;
    pid_t pid;
} openmp;
static pthread_once_t runtime_once = PTHREAD_ONCE_INIT;

static void *open_runtime(void)
{
    static const char *const names[] = {"libgomp.so.1", "libiomp5.so", "libomp.so.5", "libomp.so"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *loaded = dlopen(names[i], RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
        if (loaded != NULL)
            return loaded;
    }
    return dlopen(names[0], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static void bind_runtime(void)
{
    void *runtime = open_runtime();
    if (runtime == NULL)
        return;
    void *const symbols[] = {dlsym(runtime, "GOMP_parallel"), dlsym(runtime, "omp_get_max_threads"),
                             dlsym(runtime, "omp_in_parallel"), dlsym(runtime, "omp_set_num_threads")};
    if (symbols[0] == NULL || symbols[1] == NULL || symbols[2] == NULL || symbols[3] == NULL)
        return;
    memcpy(&openmp.max_threads, &symbols[1], sizeof openmp.max_threads);
    memcpy(&openmp.in_parallel, &symbols[2], sizeof openmp.in_parallel);
    memcpy(&openmp.set_threads, &symbols[3], sizeof openmp.set_threads);
    memcpy(&openmp.parallel, &symbols[0], sizeof openmp.parallel);
    openmp.survives_fork = aoticache_openmp_fork_prepare(runtime);
    openmp.pid = getpid();
}

static void load_runtime(void)
{
    aoticache_fork_guard_enter();
    bind_runtime();
    aoticache_fork_guard_leave();
}

bool aoticache_shim_has_threads(void)
{
    pthread_once(&runtime_once, load_runtime);
    return openmp.parallel != NULL;
}

bool aoticache_shim_is_forked(void)
{
    return aoticache_shim_has_threads() && !openmp.survives_fork && openmp.pid != getpid();
}

int aoticache_shim_threads(void)
{
    if (!aoticache_shim_has_threads() || aoticache_shim_is_forked() || openmp.in_parallel())
        return 1;
    int threads = openmp.max_threads();
    return threads > 1 ? threads : 1;
}

bool aoticache_shim_is_openmp_of(void *library)
{
    void *symbol = dlsym(library, "omp_get_max_threads");
    return symbol != NULL && aoticache_shim_has_threads() && memcmp(&symbol, &openmp.max_threads, sizeof symbol) == 0;
}

int aoticache_shim_set_threads(int threads)
{
    if (!aoticache_shim_has_threads())
        return 1;
    int former = openmp.max_threads();
    if (former != threads)
        openmp.set_threads(threads);
    return former;
}

int aoticache_shim_parts(double work, long long most)
{
    if (work < 2 * PART_WORK || most < 2)
        return 1;
    int threads = aoticache_shim_threads();
    threads = (long long)threads < most ? threads : (int)most;
    return work / PART_WORK < threads ? (int)(work / PART_WORK) : threads;
}

/*
 * The runtime may start fewer threads than requested, so each thread takes parts until none is left. `next` orders all
 * their memory accesses: the runtime's own waiting does too, but ThreadSanitizer does not know that.
 */
struct job {
    void (*run)(void *user, int part);
    void *user;
    int parts;
    atomic_int next;
};

/* Runs parts until none is left. Finding that none is left is a thread's last access to the job. */
static void run_parts(void *data)
{
    struct job *job = data;
    (void)atomic_load_explicit(&job->next, memory_order_acquire);
    void (*run)(void *user, int part) = job->run;
    void *user = job->user;
    const int parts = job->parts;
    for (int part; (part = atomic_fetch_add_explicit(&job->next, 1, memory_order_acq_rel)) < parts;)
        run(user, part);
}

void aoticache_shim_parallel(int parts, void (*run)(void *user, int part), void *user)
{
    struct job job = {.run = run, .user = user, .parts = parts};
    atomic_store_explicit(&job.next, 0, memory_order_release);
    if (parts > 1 && aoticache_shim_threads() > 1)
        openmp.parallel(run_parts, &job, (unsigned)parts, 0);
    else
        run_parts(&job);
    (void)atomic_load_explicit(&job.next, memory_order_acquire);
}
