/*
 * shim/threads: work for the threads of the process's OpenMP runtime.
 *
 * Kernels that PyTorch compiles use OpenMP. Threads of anybody else beside its threads would wait for the same processors
 * (both kinds spin before they sleep): so the shim has none of its own, and who says how many there may be
 * (OMP_NUM_THREADS, omp_set_num_threads()) says it for everything.
 *
 * The runtime is the one that is loaded, else libgomp where it is there; it stays loaded. Without one all work is done by
 * the calling thread.
 */
#ifndef AOTICACHE_RUNTIME_SHIM_MATH_THREADS_H
#define AOTICACHE_RUNTIME_SHIM_MATH_THREADS_H

#include <stdbool.h>

/* Whether there is an OpenMP runtime in this process; loads one. */
bool aoticache_shim_has_pool(void);

/*
 * How many parts may run at once here: 1 inside of a parallel region, where others are at work already, and in the child
 * of a fork that the runtime's threads do not survive (base/openmp_fork.h).
 */
int aoticache_shim_threads(void);

/* Whether this is such a child. */
bool aoticache_shim_is_forked(void);

/* As many of them, at most `most`, as have some 5 microseconds of work each: so many multiplications and additions. */
int aoticache_shim_parts(double work, long long most);

/* Runs each part 0 .. parts - 1 once, on any of the threads, and returns when all are done. */
void aoticache_shim_parallel(int parts, void (*run)(void *user, int part), void *user);

#endif
