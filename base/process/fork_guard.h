/*
 * base/process/fork_guard: prevents fork() while this library is inside the dynamic linker.
 *
 * Private. The dynamic linker has its own lock (dlopen, dlclose, dlsym, dladdr, dl_iterate_phdr take it) which glibc does
 * not handle at a fork: if another thread of the parent holds it, the child finds it locked forever. So this library calls
 * these functions only between enter and leave, and a fork waits until no thread is between them. Calls by other code
 * (Python's imports, the host) are not covered.
 *
 * Between enter and leave, do not call functions of the host, such as a logger: a thread that forks may hold locks that they
 * need.
 */
#ifndef AOTICACHE_BASE_PROCESS_FORK_GUARD_H
#define AOTICACHE_BASE_PROCESS_FORK_GUARD_H

/* Enters the guarded section. Calls may be nested: a library's constructor may load another library. */
void aoticache_fork_guard_enter(void);
/* Leaves the guarded section. Preserves errno. */
void aoticache_fork_guard_leave(void);

#endif
