/*
 * cache/store/side_files: the directory in which a library finds its side files next to it under their own names. Normally
 * that is artifacts/<digest>/, with hard links to the objects.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/names.h"
#include "base/syscalls.h"
#include "cache/store/artifact.h"
#include "cache/store/object.h"

#define DIRECTORY_PATH_BYTES 96
#define MAX_TRIES 8

/* Returns true if the directory has every file, and each is the very file that was verified. */
static bool is_complete(aoticache_directory *directory, const char *subdirectory, const aoticache_manifest_file *files,
                        const int *fds, size_t count)
{
    cleanup_fd int fd = -1;
    if (aoticache_directory_open_subdirectory(directory, subdirectory, false, &fd, NULL) != AOTICACHE_OK)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!aoticache_directory_is_same(fd, files[i].name, fds[i]))
            return false;
    return true;
}

static aoticache_status link_files(aoticache_directory *directory, int into, const aoticache_manifest_file *files,
                                   size_t count, aoticache_error *ret_error)
{
    for (size_t i = 0; i < count; i++) {
        char path[AOTICACHE_OBJECT_PATH_BYTES];
        aoticache_object_path(&files[i].digest, path);
        if (aoticache_syscall_linkat(directory->fd, path, into, files[i].name) != 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot link %s to the object of %s", files[i].name,
                                             path);
    }
    return AOTICACHE_OK;
}

/* Renames the finished directory to its final name. An existing one is unfinished or stale. */
static aoticache_status place_directory(aoticache_directory *directory, const aoticache_scratch *scratch,
                                        const char *name, aoticache_error *ret_error)
{
    cleanup_fd int artifacts = -1;
    cleanup_fd int tmp = -1;
    aoticache_status status =
        aoticache_directory_open_subdirectory(directory, AOTICACHE_ARTIFACTS, true, &artifacts, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_directory_open_subdirectory(directory, AOTICACHE_TMP, true, &tmp, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const char *temporary = strrchr(scratch->path, '/') + 1;
    if (aoticache_syscall_renameat(tmp, temporary, artifacts, name) == 0)
        return aoticache_syscall_fsync(artifacts) == 0
                   ? AOTICACHE_OK
                   : aoticache_error_set_errno(ret_error, errno, "cannot make " AOTICACHE_ARTIFACTS " durable");
    if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR)
        return aoticache_error_set_errno(ret_error, errno, "cannot create " AOTICACHE_ARTIFACTS "/%s", name);
    char aside[80];
    aoticache_scratch_name(directory, aside, sizeof aside);
    if (aoticache_syscall_renameat(artifacts, name, tmp, aside) == 0)
        aoticache_directory_remove_tree(tmp, aside);
    else if (errno == EXDEV) /* overlayfs: a directory of a lower layer cannot be renamed */
        aoticache_directory_remove_tree(artifacts, name);
    return AOTICACHE_NOT_FOUND;
}

static aoticache_status make_directory(aoticache_directory *directory, const char *name,
                                       const aoticache_manifest_file *files, size_t count, aoticache_error *ret_error)
{
    aoticache_scratch scratch = AOTICACHE_SCRATCH_INIT;
    aoticache_status status = aoticache_scratch_create(directory, &scratch, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = link_files(directory, scratch.fd, files, count, ret_error);
    if (status == AOTICACHE_OK && aoticache_syscall_fsync(scratch.fd) != 0)
        status = aoticache_error_set_errno(ret_error, errno, "cannot make the directory of side files durable");
    if (status == AOTICACHE_OK)
        status = place_directory(directory, &scratch, name, ret_error);
    aoticache_scratch_remove(&scratch); /* after the rename there is nothing left under this path */
    return status;
}

/* For a read-only cache and a file system without hard links: makes symbolic links, in a separate temporary directory. */
static aoticache_status make_temporary_directory(aoticache_directory *directory, aoticache_artifact *artifact,
                                                 const aoticache_manifest_file *files, size_t count,
                                                 aoticache_error *ret_error)
{
    aoticache_status status = aoticache_scratch_create_outside(&artifact->scratch, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        char object[AOTICACHE_OBJECT_PATH_BYTES];
        char target[PATH_MAX + AOTICACHE_OBJECT_PATH_BYTES];
        char link[PATH_MAX + 256];
        aoticache_object_path(&files[i].digest, object);
        snprintf(target, sizeof target, "%s/%s", directory->real_path, object);
        snprintf(link, sizeof link, "%s/%s", artifact->scratch.path, files[i].name);
        if (aoticache_syscall_hook_ask("symlink", link) != 0 || symlink(target, link) != 0)
            status = aoticache_error_set_errno(ret_error, errno, "cannot create %s", link);
    }
    return status;
}

static aoticache_status set_directory(aoticache_artifact *artifact, const char *parent, const char *name,
                                      aoticache_error *ret_error)
{
    size_t size = strlen(parent) + strlen(name) + 2;
    artifact->directory = malloc(size);
    if (artifact->directory == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    snprintf(artifact->directory, size, "%s%s%s", parent, name[0] != '\0' ? "/" : "", name);
    artifact->info.directory = artifact->directory;
    return AOTICACHE_OK;
}

aoticache_status aoticache_artifact_provide_directory(aoticache_directory *directory, aoticache_artifact *artifact,
                                                      const aoticache_manifest_file *files, const int *fds,
                                                      size_t count, aoticache_error *ret_error)
{
    char hex[AOTICACHE_DIGEST_HEX_BYTES];
    char subdirectory[DIRECTORY_PATH_BYTES];
    aoticache_digest_to_hex(&artifact->info.digest, hex);
    snprintf(subdirectory, sizeof subdirectory, AOTICACHE_ARTIFACTS "/%s", hex);
    aoticache_status made = AOTICACHE_OK;
    for (int i = 0; i < MAX_TRIES && (made == AOTICACHE_OK || made == AOTICACHE_NOT_FOUND); i++) {
        if (is_complete(directory, subdirectory, files, fds, count))
            return set_directory(artifact, directory->real_path, subdirectory, ret_error);
        made = directory->read_only ? AOTICACHE_DENIED : make_directory(directory, hex, files, count, NULL);
    }
    aoticache_status status = make_temporary_directory(directory, artifact, files, count, ret_error);
    return status == AOTICACHE_OK ? set_directory(artifact, artifact->scratch.path, "", ret_error) : status;
}
