/*
 * cache/store/scratch: private directories that live as long as one compile, or as one artifact that could not be stored.
 *
 * Private. Inside the cache they lie in tmp/ and are held by a lock, so that a collector can tell those of dead processes
 * exactly; outside (the cache cannot be written) they lie under $TMPDIR or /tmp.
 */
#ifndef AOTICACHE_CACHE_STORE_SCRATCH_H
#define AOTICACHE_CACHE_STORE_SCRATCH_H

#include <limits.h>

#include "cache/store/directory.h"

typedef struct aoticache_scratch {
    char path[PATH_MAX]; /* absolute; "" where there is none */
    int fd;              /* inside the cache: locked; outside: -1 */
} aoticache_scratch;

#define AOTICACHE_SCRATCH_INIT {.path = "", .fd = -1}

/* Returns whether the file system of the cache has free space for what a compiler writes: some megabytes. */
bool aoticache_scratch_has_space(const aoticache_directory *directory);

/* In tmp/. Returns: OK, IO, DENIED, NO_MEMORY, INVALID (the path is too long). */
aoticache_status aoticache_scratch_create(aoticache_directory *directory, aoticache_scratch *ret_scratch,
                                          aoticache_error *ret_error);
/* Under $TMPDIR or /tmp. */
aoticache_status aoticache_scratch_create_outside(aoticache_scratch *ret_scratch, aoticache_error *ret_error);
/* Removes the directory and all that is in it; does nothing where there is none. Preserves errno. */
void aoticache_scratch_remove(aoticache_scratch *scratch);

/* The name for something new in tmp/, unique in this process and among those that live. */
void aoticache_scratch_name(aoticache_directory *directory, char *ret_name, size_t size);

#endif
