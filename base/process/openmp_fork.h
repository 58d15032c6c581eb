/*
 * base/process/openmp_fork: GNU's OpenMP runtime (libgomp) and forks.
 *
 * Private. The runtime keeps its threads for the next parallel region and knows nothing of a fork: the child's first
 * region waits for ever for threads that only its parent has. LLVM's and Intel's runtimes have fork handlers of their own.
 */
#ifndef AOTICACHE_BASE_OPENMP_FORK_H
#define AOTICACHE_BASE_OPENMP_FORK_H

#include <stdbool.h>

/*
 * From now on the threads of whoever forks are ended before each fork, and parent and child make new ones when they need
 * some. Nothing is done where the runtime is none of GNU's.
 *
 * runtime: a handle of dlopen(3) on one that stays in the process. Called inside the load gate.
 * Returns whether a child may use it; false: it is GNU's and older than GCC 9.
 */
bool aoticache_openmp_fork_prepare(void *runtime);

#endif
