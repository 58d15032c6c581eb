/*
 * base/process/openmp_fork: makes libgomp end its threads before a fork; the header says why.
 */
#include "base/process/openmp_fork.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#define PAUSE_SOFT 1 /* omp_pause_soft (OpenMP 5.0, section 3.2.44) */

typedef int (*pause_fn)(int kind);

static _Atomic(pause_fn) pause_runtime;
static pthread_once_t handler_once = PTHREAD_ONCE_INIT;

/* Does nothing inside a parallel region: a child that is forked there calls no kernel. */
static void before_fork(void)
{
    pause_fn pause = atomic_load_explicit(&pause_runtime, memory_order_acquire);
    (void)pause(PAUSE_SOFT);
}

static void add_handler(void)
{
    pthread_atfork(before_fork, NULL, NULL);
}

bool aoticache_openmp_fork_prepare(void *runtime)
{
    if (dlsym(runtime, "__kmpc_fork_call") != NULL) /* the runtime of LLVM or Intel */
        return true;
    void *symbol = dlsym(runtime, "omp_pause_resource_all");
    if (symbol == NULL)
        return false;
    pause_fn pause;
    memcpy(&pause, &symbol, sizeof pause);
    atomic_store_explicit(&pause_runtime, pause, memory_order_release);
    return pthread_once(&handler_once, add_handler) == 0;
}
