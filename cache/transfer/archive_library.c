/*
 * cache/transfer/archive_library: opens libarchive on first use. It is not linked: a process that moves no caches does not
 * load it, and a machine without it has everything else.
 */
#include "cache/transfer/archive_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/load_gate.h"

aoticache_status aoticache_archive_library_missing(aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                               "archives need libarchive, and this library was built without its header archive.h: "
                               "build it again with libarchive-dev (Fedora: libarchive-devel), or copy the cache "
                               "from directory to directory");
}

#ifdef AOTICACHE_HAS_LIBARCHIVE

/* The soname that the build found. Where it found none, that of libarchive 3 in distributions. */
#ifndef AOTICACHE_ARCHIVE_LIBRARY
#define AOTICACHE_ARCHIVE_LIBRARY ""
#endif

static aoticache_archive_functions functions;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* taken inside the gate: no child of a fork finds it taken */
static atomic_bool is_there;

static bool bind(void *library, void *place, const char *name)
{
    void *function = dlsym(library, name);
    memcpy(place, &function, sizeof function);
    return function != NULL;
}

static bool bind_all(void *library)
{
    bool is_complete = true;
#define BIND(result, name, parameters) is_complete = is_complete && bind(library, &functions.name##_, "archive_" #name);
    AOTICACHE_ARCHIVE_FUNCTION_LIST(BIND)
#undef BIND
    return is_complete;
}

/* Tried again each time until it is there: descriptors or memory may have been short. problem: what was wrong. */
static void load(char problem[256])
{
    static const char *const names[] = {AOTICACHE_ARCHIVE_LIBRARY, "libarchive.so.13"};
    aoticache_load_gate_enter();
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof names / sizeof names[0] && !is_there; i++) {
        void *library = names[i][0] != '\0' ? dlopen(names[i], RTLD_NOW | RTLD_LOCAL) : NULL;
        is_there = library != NULL && bind_all(library);
        if (library != NULL && !is_there) {
            snprintf(problem, 256, "%s lacks functions of libarchive 3.3", names[i]);
            dlclose(library);
        }
    }
    pthread_mutex_unlock(&lock);
    aoticache_load_gate_leave();
}

aoticache_status aoticache_archive_library_open(const aoticache_archive_functions **ret_functions,
                                                aoticache_error *ret_error)
{
    char problem[256] = "libarchive.so.13 cannot be opened";
    if (!is_there)
        load(problem);
    if (!is_there)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "archives are read and written with libarchive, and %s: install it (Debian: "
                                   "libarchive13; Fedora: libarchive), or copy the cache from directory to directory",
                                   problem);
    *ret_functions = &functions;
    return AOTICACHE_OK;
}

#endif
