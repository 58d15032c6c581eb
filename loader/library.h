/*
 * loader/library: a loaded library as the runner sees it.
 *
 * Private.
 */
#ifndef AOTICACHE_LOADER_LIBRARY_H
#define AOTICACHE_LOADER_LIBRARY_H

#include "loader/loader.h"

#include <stdatomic.h>

/* What it exports; NULL where it does not have a function. */
typedef struct aoticache_library_functions {
#define AOTICACHE_LIBRARY_FIELD(name, parameters) AOTIRuntimeError(*name) parameters;
    AOTICACHE_ABI_BASE_LIST(AOTICACHE_LIBRARY_FIELD)
    AOTICACHE_ABI_NEWER_LIST(AOTICACHE_LIBRARY_FIELD)
#undef AOTICACHE_LIBRARY_FIELD
} aoticache_library_functions;

struct aoticache_library {
    atomic_size_t references;
    void *handle; /* of dlopen */
    /* What the library was loaded from, kept where it may open itself by that path, for every container; else -1. */
    int self_fd;
    const aoticache_torch *torch;
    aoticache_library_functions functions;
    char name[];
};

/*
 * Fills ret_error with what the library says of its last failure on this thread, else with the function and its status.
 * Returns `status`.
 */
aoticache_status aoticache_library_failure(const aoticache_library *library, aoticache_status status,
                                           const char *function, AOTIRuntimeError code, aoticache_error *ret_error);

#endif
