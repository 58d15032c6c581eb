/*
 * base/process/openmp_fork: GNU's OpenMP runtime (libgomp) and forks.
 *
 * Private. The runtime keeps its threads for the next parallel region and knows nothing of a fork: the child's first region
 * waits forever for threads that only the parent has. The runtimes of LLVM and Intel have their own fork handlers.
 */
#ifndef AOTICACHE_BASE_OPENMP_FORK_H
#define AOTICACHE_BASE_OPENMP_FORK_H

#include <stdbool.h>

/*
 * Installs a fork handler that ends the runtime's threads before each fork; parent and child create new ones when they need
 * them. Does nothing if the runtime is not GNU's.
 *
 * runtime: a handle from dlopen(3) of a runtime that stays loaded. Call this inside the fork guard.
 * Returns whether a child may use the runtime; false: it is GNU's and older than GCC 9.
 */
bool aoticache_openmp_fork_prepare(void *runtime);

#endif
