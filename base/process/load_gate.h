/*
 * base/process/load_gate: keeps fork() out of what the dynamic linker does for us.
 *
 * Private. The dynamic linker has a lock of its own (dlopen, dlclose, dlsym, dladdr, dl_iterate_phdr take it) which
 * glibc does not look after at a fork: a child whose parent had another thread in there finds it locked for ever. So who
 * calls these functions for us does it between enter and leave, and a fork waits until nobody is in between. What others
 * do with the dynamic linker (Python's imports, the host) is not seen here.
 *
 * Between the two no function of the host's is called (a logger, say): a fork may hold what that needs.
 */
#ifndef AOTICACHE_BASE_LOAD_GATE_H
#define AOTICACHE_BASE_LOAD_GATE_H

/* May be nested: a library's constructor may load another one. */
void aoticache_load_gate_enter(void);
/* Preserves errno. */
void aoticache_load_gate_leave(void);

#endif
