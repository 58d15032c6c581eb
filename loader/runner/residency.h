/*
 * loader/runner/residency: which runners stay loaded in a long-lived host, within a budget.
 *
 * A residency is a set of residents. A resident knows how to get its runner; it is loaded by the first acquire, and
 * unloaded, least recently used first, when the budget is exceeded. One that is acquired is never unloaded, so an
 * unloading never happens under a running call; the budget may be exceeded as long as more than it holds is acquired.
 *
 * Thread safety: all functions from any thread. Acquire of a loaded resident and release take no lock and no system
 * call: two atomic operations on the resident and a store. Loading and unloading happen outside of all locks but the
 * resident's own: two threads that acquire the same unloaded resident load it once, others go on meanwhile. Only where
 * more than the budget is loaded, since it was acquired, a release unloads what can go.
 * Fork: a child has its own copy of everything and may go on, if at the fork no other thread of the parent was loading,
 * unloading, adding, removing or asking for totals. What other threads had acquired stays acquired in the child.
 */
#ifndef AOTICACHE_LOADER_RUNNER_RESIDENCY_H
#define AOTICACHE_LOADER_RUNNER_RESIDENCY_H

#include "loader/runner/runner.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aoticache_residency aoticache_residency;
typedef struct aoticache_resident aoticache_resident;

typedef struct aoticache_residency_options {
    size_t size;
    size_t max_count;   /* runners loaded at once; 0: any number */
    uint64_t max_bytes; /* of loaded libraries (aoticache_library_bytes) and constants together; 0: any */
} aoticache_residency_options;

#define AOTICACHE_RESIDENCY_OPTIONS_INIT AOTICACHE_SIZED_INIT(aoticache_residency_options)

/* options may be NULL: no budget, nothing is ever unloaded but by remove. Returns: OK, INVALID, NO_MEMORY. */
AOTICACHE_API aoticache_status aoticache_residency_create(const aoticache_residency_options *options,
                                                          aoticache_residency **ret_residency,
                                                          aoticache_error *ret_error);
/* Removes all residents. None may be acquired, removed ones neither, and none used afterwards. NULL is allowed. */
AOTICACHE_API void aoticache_residency_free(aoticache_residency *residency);

/*
 * Gets the runner, with one reference for the residency; called at most once at a time for one resident. It may use
 * other residents, but not this one.
 */
typedef aoticache_status (*aoticache_resident_load_fn)(void *user, aoticache_runner **ret_runner,
                                                       aoticache_error *ret_error);

/*
 * A new resident, not loaded yet. release_user (may be NULL) is called with user when the resident is gone.
 * Returns: OK, INVALID, NO_MEMORY (release_user is not called).
 */
AOTICACHE_API aoticache_status aoticache_residency_add(aoticache_residency *residency, aoticache_resident_load_fn load,
                                                       void *user, void (*release_user)(void *user),
                                                       aoticache_resident **ret_resident, aoticache_error *ret_error);
/* The same for a runner that is loaded already; a reference of the caller's goes over to the residency on OK. */
AOTICACHE_API aoticache_status aoticache_residency_add_loaded(aoticache_residency *residency,
                                                              aoticache_resident_load_fn load, void *user,
                                                              void (*release_user)(void *user),
                                                              aoticache_runner *runner,
                                                              aoticache_resident **ret_resident,
                                                              aoticache_error *ret_error);

/*
 * The runner, loaded if it was not; it stays until as many releases. Others may be unloaded for it.
 * Returns: OK, or what load returned (the next acquire tries again).
 */
AOTICACHE_API aoticache_status aoticache_resident_acquire(aoticache_resident *resident, aoticache_runner **ret_runner,
                                                          aoticache_error *ret_error);
/* The same, but only where it is loaded: NULL else. Never waits, never loads. */
AOTICACHE_API aoticache_runner *aoticache_resident_try_acquire(aoticache_resident *resident);
AOTICACHE_API void aoticache_resident_release(aoticache_resident *resident);

/* Takes it out: unloaded now, or by the last release. Not to be used by the caller afterwards, but for releases due. */
AOTICACHE_API void aoticache_resident_remove(aoticache_resident *resident);

/*
 * Unloads what is not acquired, least recently used first, until the budget given here is kept; 0 in one of them: no
 * limit of that kind; 0, 0: everything.
 */
AOTICACHE_API void aoticache_residency_trim(aoticache_residency *residency, size_t max_count, uint64_t max_bytes);

typedef struct aoticache_residency_totals {
    size_t residents, loaded, acquired;
    uint64_t bytes;                       /* of those loaded */
    uint64_t loads, unloads, failed_loads; /* since the residency was created */
} aoticache_residency_totals;
AOTICACHE_API void aoticache_residency_get_totals(aoticache_residency *residency,
                                                  aoticache_residency_totals *ret_totals);

#ifdef __cplusplus
}
#endif
#endif
