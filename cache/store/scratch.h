/*
 * cache/store/scratch: private directories that live as long as one compile, or as one artifact that could not be stored.
 *
 * Private. Inside the cache they are in tmp/ and locked, so that a collector can recognize those of dead processes exactly;
 * outside (if the cache cannot be written) they are under $TMPDIR or /tmp.
 */
#ifndef AOTICACHE_CACHE_STORE_SCRATCH_H
#define AOTICACHE_CACHE_STORE_SCRATCH_H

#include <limits.h>

#include "cache/store/directory.h"

typedef struct aoticache_scratch {
    char path[PATH_MAX]; /* absolute; "" if there is none */
    int fd;              /* inside the cache: locked; outside: -1 */
} aoticache_scratch;

#define AOTICACHE_SCRATCH_INIT {.path = "", .fd = -1}

/* Returns whether the file system of the cache has space for a compiler's files: some megabytes. */
bool aoticache_scratch_has_space(const aoticache_directory *directory);

/* Creates it in tmp/. Returns: OK, IO, DENIED, NO_MEMORY, INVALID (the path is too long). */
aoticache_status aoticache_scratch_create(aoticache_directory *directory, aoticache_scratch *ret_scratch,
                                          aoticache_error *ret_error);
/* Creates it under $TMPDIR or /tmp. */
aoticache_status aoticache_scratch_create_outside(aoticache_scratch *ret_scratch, aoticache_error *ret_error);
/* Removes the directory with its contents; does nothing if there is none. Preserves errno. */
void aoticache_scratch_remove(aoticache_scratch *scratch);

/* Makes a name for a new file or directory in tmp/, unique in this process and among live processes. */
void aoticache_scratch_name(aoticache_directory *directory, char *ret_name, size_t size);

#endif
