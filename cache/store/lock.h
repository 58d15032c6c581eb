/*
 * cache/store/lock: advisory locks between processes and threads (flock), with time-outs, and the leases of compiles.
 *
 * Private. Every lock has its own open file description, so threads of one process exclude each other as processes do, and
 * the kernel releases it when its process dies. docs/formats/store.md says which locks there are and in which order
 * they are taken.
 */
#ifndef AOTICACHE_CACHE_STORE_LOCK_H
#define AOTICACHE_CACHE_STORE_LOCK_H

#include "cache/store/directory.h"

#define AOTICACHE_LOCK_NO_TIMEOUT UINT32_MAX

/*
 * Polls flock(fd, operation) with a growing pause until timeout_ms have passed; 0 tries once.
 * ret_waited: may be NULL; set to true if the lock was not free immediately.
 * Returns: OK, LOCKED (ret_error untouched), IO (the file system has no such locks).
 */
aoticache_status aoticache_lock_acquire(int fd, int operation, uint32_t timeout_ms, bool *ret_waited,
                                        aoticache_error *ret_error);

typedef struct aoticache_lock {
    int fd; /* -1: not held */
} aoticache_lock;

#define AOTICACHE_LOCK_INIT {.fd = -1}

/*
 * Takes the store's lock: shared while something is being stored, exclusive while something is being removed. A stream of
 * puts does not starve a process that wants it exclusively. Returns: OK, LOCKED, IO, DENIED, NO_MEMORY.
 */
aoticache_status aoticache_lock_store(aoticache_directory *directory, bool exclusive, aoticache_lock *ret_lock,
                                      aoticache_error *ret_error);
/* Takes the collector's lock: returns LOCKED immediately if another collector is at work. */
aoticache_status aoticache_lock_collector(aoticache_directory *directory, aoticache_lock *ret_lock,
                                          aoticache_error *ret_error);
/* Does nothing if it is not held. Preserves errno. */
void aoticache_lock_release(aoticache_lock *lock);

/*
 * A lease: the right to compile one key, held by one thread of one process at a time. It is a locked file leases/<key in
 * hexadecimal>; the kernel frees it when its holder dies. The child of a fork holds none of its parent's leases, and
 * releasing one there does nothing to it.
 */
typedef struct aoticache_lease {
    int fd;           /* -1: not held */
    int directory_fd; /* leases/ */
    char name[AOTICACHE_DIGEST_HEX_BYTES];
} aoticache_lease;

#define AOTICACHE_LEASE_INIT {.fd = -1, .directory_fd = -1}

/*
 * Acquires a lease.
 * timeout_ms: 0 waits without limit. ret_contended: set to true as soon as it has to wait for another holder, whatever the
 * result is.
 * Returns: OK, LOCKED, and errors that make leases impossible here: IO, DENIED, NO_MEMORY.
 */
aoticache_status aoticache_lease_acquire(aoticache_directory *directory, const aoticache_key *key, uint32_t timeout_ms,
                                         aoticache_lease *ret_lease, bool *ret_contended, aoticache_error *ret_error);
/* Does nothing if it is not held. Preserves errno. */
void aoticache_lease_release(aoticache_lease *lease);

#endif
