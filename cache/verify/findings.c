/*
 * cache/verify/findings: functions shared by all parts of a verification: counting and reporting findings, listing
 * directories, and checking whether to continue.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/files/listing.h"
#include "cache/verify/verify_internal.h"

void aoticache_verification_report_finding(const aoticache_verification *verification, const char *what,
                                           const char *name, const char *detail)
{
    if (verification->callback != NULL)
        verification->callback(verification->user, what, name, detail);
}

void aoticache_verification_note_unreadable(aoticache_verification *verification, const char *name, const char *detail)
{
    verification->report.unreadable++;
    aoticache_verification_report_finding(verification, "unreadable", name, detail);
}

static aoticache_status refuse_unreadable(int errno_value, const char *what, aoticache_error *ret_error)
{
    aoticache_error_set_errno(ret_error, errno_value, "%s", what);
    return AOTICACHE_DENIED;
}

aoticache_status aoticache_verification_open_listing(aoticache_verification *verification, const char *path,
                                                     DIR **ret_listing, aoticache_error *ret_error)
{
    aoticache_directory *directory = verification->cache->directory;
    struct stat found;
    int fd = -1;
    *ret_listing = NULL;
    if (fstatat(directory->fd, path, &found, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? AOTICACHE_OK : refuse_unreadable(errno, "cannot examine it", ret_error);
    if (aoticache_directory_trust(directory, &found, S_IFDIR, path, NULL) != AOTICACHE_OK)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_directory_open_subdirectory(directory, path, false, &fd, ret_error);
    if (status == AOTICACHE_IO && errno == EIO)
        return refuse_unreadable(errno, "cannot open it", ret_error);
    if (status != AOTICACHE_OK)
        return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
    *ret_listing = aoticache_listing_open(fd);
    if (*ret_listing != NULL)
        return AOTICACHE_OK;
    return errno == ENOMEM ? aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory")
                           : refuse_unreadable(errno, "cannot list it", ret_error);
}

bool aoticache_verification_poll(aoticache_verification *verification, uint64_t done)
{
    if (verification->all < done)
        verification->all = done;
    if (verification->deadline_ns != 0 && aoticache_monotonic_ns() >= verification->deadline_ns)
        verification->is_stopped = true;
    if (verification->progress != NULL && !verification->progress(verification->user, done, verification->all))
        verification->is_stopped = true;
    return !verification->is_stopped;
}

static aoticache_status move_foreign(aoticache_verification *verification, const char *path, aoticache_error *ret_error)
{
    aoticache_directory *directory = verification->cache->directory;
    cleanup_fd int parent = -1;
    char subdirectory[512];
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    snprintf(subdirectory, sizeof subdirectory, "%.*s", slash != NULL ? (int)(slash - path) : 0, path);
    aoticache_status status = AOTICACHE_OK;
    if (slash != NULL)
        status = aoticache_directory_open_subdirectory(directory, subdirectory, false, &parent, ret_error);
    if (status == AOTICACHE_OK)
        status =
            aoticache_directory_quarantine(directory, slash != NULL ? parent : directory->fd, name, name, ret_error);
    if (status == AOTICACHE_OK)
        verification->report.repaired++;
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

aoticache_status aoticache_verification_report_foreign(aoticache_verification *verification, const char *path,
                                                       aoticache_error *ret_error)
{
    verification->report.foreign++;
    aoticache_verification_report_finding(verification, "foreign", path,
                                          "not a file of the cache: a symbolic link, a file of another user, or an "
                                          "unexpected name");
    return verification->options.repair ? move_foreign(verification, path, ret_error) : AOTICACHE_OK;
}
