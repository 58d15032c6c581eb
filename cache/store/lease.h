/*
 * cache/store/lease: the right to compile one key, held by one thread of one process at a time.
 *
 * Private. A lease is a locked file leases/<key in hexadecimal>; the kernel frees it when its holder dies. The child of
 * a fork holds none of its parent's leases; releasing one there does nothing to it.
 */
#ifndef AOTICACHE_CACHE_STORE_LEASE_H
#define AOTICACHE_CACHE_STORE_LEASE_H

#include "cache/store/directory.h"

typedef struct aoticache_lease {
    int fd;        /* -1: not held */
    int folder_fd; /* leases/ */
    char name[AOTICACHE_DIGEST_HEX_BYTES];
} aoticache_lease;

#define AOTICACHE_LEASE_INIT {.fd = -1, .folder_fd = -1}

/*
 * timeout_ms: 0 waits without limit. ret_contended: true as soon as it has to wait for somebody else, whatever comes of it.
 * Returns: OK, LOCKED, and what makes leases impossible here: IO, DENIED, NO_MEMORY.
 */
aoticache_status aoticache_lease_acquire(aoticache_directory *directory, const aoticache_key *key, uint32_t timeout_ms,
                                         aoticache_lease *ret_lease, bool *ret_contended, aoticache_error *ret_error);
/* Does nothing where it is not held. Preserves errno. */
void aoticache_lease_release(aoticache_lease *lease);

#endif
