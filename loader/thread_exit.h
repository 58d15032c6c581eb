/*
 * loader/thread_exit: what libraries loaded from a copy want done when a thread ends.
 *
 * Private. The destructors of a C++ library's thread_local variables (the last error's text in each of PyTorch's) are
 * registered with __cxa_thread_atexit; the dynamic linker keeps a library with one of them mapped as long as that
 * thread lives, which in a long-lived host is for ever. In a sealed copy that function is this one, and an unloading
 * runs what is left.
 *
 * Fork: a child may unload what the parent loaded, if at the fork no other thread was unloading or ending.
 */
#ifndef AOTICACHE_LOADER_THREAD_EXIT_H
#define AOTICACHE_LOADER_THREAD_EXIT_H

#include "base/base.h"

/*
 * As __cxa_thread_atexit: destructor(object) is called when this thread ends, later ones first, or by
 * aoticache_thread_exit_run(). Returns 0, or -1 without memory (then it is never called).
 */
int aoticache_thread_exit_add(void (*destructor)(void *object), void *object, void *library_address);

/*
 * Runs what libraries between these addresses have registered, of all threads, on this one. Before the library is
 * unloaded, and when nothing of it runs any more.
 */
void aoticache_thread_exit_run(uintptr_t first, uintptr_t end);

#endif
