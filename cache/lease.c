/*
 * cache/lease: see lease.h.
 */
#include "cache/lease.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/seam.h"
#include "cache/lock.h"

/* One try with the file that has the name now. NOT_FOUND: it was unlinked while we waited, so its lock means nothing. */
static aoticache_status acquire_once(const aoticache_directory *directory, aoticache_lease *lease, uint32_t timeout_ms,
                                     bool *ret_contended, aoticache_error *ret_error)
{
    const mode_t mode = aoticache_directory_file_mode(directory);
    cleanup_fd int fd =
        aoticache_seam_openat(lease->folder_fd, lease->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK, mode);
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot create the lease %s", lease->name);
    aoticache_directory_open_to_group(directory, fd, mode);
    aoticache_status status = aoticache_lock_acquire(fd, LOCK_EX, timeout_ms, ret_contended, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (!aoticache_directory_is_same(lease->folder_fd, lease->name, fd))
        return AOTICACHE_NOT_FOUND;
    lease->fd = steal_fd(&fd);
    return AOTICACHE_OK;
}

static uint32_t remaining_ms(uint64_t begun_ns, uint32_t timeout_ms)
{
    if (timeout_ms == 0)
        return AOTICACHE_LOCK_NO_TIMEOUT;
    uint64_t passed = (aoticache_monotonic_ns() - begun_ns) / 1000000u;
    return passed < timeout_ms ? (uint32_t)(timeout_ms - passed) : 0;
}

aoticache_status aoticache_lease_acquire(aoticache_directory *directory, const aoticache_key *key, uint32_t timeout_ms,
                                         aoticache_lease *ret_lease, bool *ret_contended, aoticache_error *ret_error)
{
    aoticache_lease lease = AOTICACHE_LEASE_INIT;
    const uint64_t begun = aoticache_monotonic_ns();
    bool contended = false;
    aoticache_digest_to_hex(key, lease.name);
    aoticache_status status =
        aoticache_directory_open_folder(directory, AOTICACHE_LEASES, true, &lease.folder_fd, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    do
        status = acquire_once(directory, &lease, remaining_ms(begun, timeout_ms), &contended, ret_error);
    while (status == AOTICACHE_NOT_FOUND);
    if (status == AOTICACHE_LOCKED)
        aoticache_error_set(ret_error, status,
                            "another process compiles the same key (%.12s) for more than %u ms; wait longer "
                            "(compile_timeout_ms) or look at what it does",
                            lease.name, (unsigned)timeout_ms);
    if (status != AOTICACHE_OK) {
        close(lease.folder_fd);
        return status;
    }
    *ret_lease = lease;
    *ret_contended = contended;
    return AOTICACHE_OK;
}

void aoticache_lease_release(aoticache_lease *lease)
{
    if (lease->fd < 0)
        return;
    int saved = errno;
    /* Unlinked while still locked: whoever waits for this file sees that the name is another's and starts anew. */
    aoticache_seam_unlinkat(lease->folder_fd, lease->name, 0);
    flock(lease->fd, LOCK_UN);
    close(lease->fd);
    close(lease->folder_fd);
    lease->fd = lease->folder_fd = -1;
    errno = saved;
}
