/*
 * cache/trust/signature_file: signatures/<digest of the manifest>: the signatures of one entry, one `name:base64` per line
 * (docs/formats/store.md).
 *
 * They are separate files and not objects, because signatures are added to existing entries, and an object never changes.
 * Their name is the manifest's digest, so a rebuilt index needs no information about them.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/files/listing.h"
#include "base/log.h"
#include "base/names.h"
#include "base/syscalls.h"
#include "cache/store/lock.h"
#include "cache/store/object.h"
#include "cache/store/scratch.h"
#include "cache/trust/trust_internal.h"

#define PATH_BYTES (sizeof AOTICACHE_SIGNATURES + 1 + AOTICACHE_DIGEST_HEX_BYTES)

/* ---- reading ---- */

static aoticache_status unusable(const char *path, const char *why, aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT, "%s: %s", path, why);
}

static aoticache_status read_bytes(aoticache_directory *directory, const char *path, char *text, size_t size,
                                   aoticache_error *ret_error)
{
    struct stat found;
    aoticache_error detail = {.message = ""};
    cleanup_fd int fd = aoticache_directory_openat(directory, path, O_RDONLY);
    text[0] = '\0';
    if (fd < 0 && errno == ENOENT)
        return AOTICACHE_OK;
    if (fd < 0 && aoticache_object_errno_is_damage(errno))
        return unusable(path, "it is a link or a directory", ret_error);
    if (fd < 0 || fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open %s", path);
    if (aoticache_directory_trust(directory, &found, S_IFREG, path, &detail) != AOTICACHE_OK)
        return unusable(path, detail.message, ret_error);
    ssize_t got = pread(fd, text, size - 1, 0);
    if (got < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read %s", path);
    text[got] = '\0';
    return strlen(text) == (size_t)got ? AOTICACHE_OK : unusable(path, "it has a zero byte", ret_error);
}

aoticache_status aoticache_signature_file_read(aoticache_directory *directory, const aoticache_digest *artifact,
                                               aoticache_signature_list *ret_list, aoticache_error *ret_error)
{
    char text[AOTICACHE_SIGNATURE_FILE_BYTES + 2], path[PATH_BYTES] = AOTICACHE_SIGNATURES "/";
    aoticache_error detail = {.message = ""};
    aoticache_digest_to_hex(artifact, path + strlen(path));
    aoticache_status status = read_bytes(directory, path, text, sizeof text, ret_error);
    if (status == AOTICACHE_OK && aoticache_signature_list_parse(text, ret_list, &detail) != AOTICACHE_OK)
        status = unusable(path, detail.message, ret_error);
    return status;
}

/* ---- writing ---- */

static aoticache_status write_file(aoticache_directory *directory, int subdirectory, const char *name,
                                   const aoticache_signature_list *list, bool syncs, aoticache_error *ret_error)
{
    char temporary[80];
    cleanup_fd int tmp = -1;
    cleanup_free char *text = aoticache_signature_list_format(list);
    const mode_t mode = aoticache_directory_file_mode(directory);
    if (text == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for signatures");
    aoticache_status status = aoticache_directory_open_subdirectory(directory, AOTICACHE_TMP, true, &tmp, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_scratch_name(directory, temporary, sizeof temporary);
    cleanup_fd int fd = aoticache_syscall_openat(tmp, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode);
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot write the signatures of %s", name);
    aoticache_directory_hand_over(directory, fd, mode);
    if (aoticache_syscall_write(fd, text, strlen(text)) == 0 && (!syncs || aoticache_syscall_fsync(fd) == 0) &&
        aoticache_syscall_renameat(tmp, temporary, subdirectory, name) == 0 &&
        (!syncs || aoticache_syscall_fsync(subdirectory) == 0))
        return AOTICACHE_OK;
    status = aoticache_error_set_errno(ret_error, errno, "cannot write the signatures of %s", name);
    aoticache_syscall_unlinkat(tmp, temporary, 0);
    return status;
}

/* Adds signatures to the existing ones. A file that cannot be used is quarantined: the new signatures were checked, those in
 * the file were not. */
static aoticache_status add(aoticache_directory *directory, int subdirectory, const aoticache_digest *artifact,
                            const aoticache_signature_list *more, bool syncs, aoticache_error *ret_error)
{
    char name[AOTICACHE_DIGEST_HEX_BYTES];
    aoticache_signature_list list = {.count = 0}, before;
    aoticache_error detail = {.message = ""};
    aoticache_digest_to_hex(artifact, name);
    aoticache_status status = aoticache_signature_file_read(directory, artifact, &list, &detail);
    if (status == AOTICACHE_CORRUPT) {
        aoticache_log(&directory->logger, AOTICACHE_LOG_WARNING, "%s; it is moved to " AOTICACHE_QUARANTINE "/",
                      detail.message);
        status = aoticache_directory_quarantine(directory, subdirectory, name, name, &detail);
        list.count = 0;
    }
    if (status != AOTICACHE_OK && status != AOTICACHE_NOT_FOUND)
        return aoticache_error_set(ret_error, status, "%s", detail.message);
    before = list;
    for (size_t i = 0; i < more->count; i++)
        if (!aoticache_signature_list_add(&list, &more->items[i]))
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "entry %.12s already has %d signatures, the maximum", name,
                                       AOTICACHE_MAX_SIGNATURES);
    if (list.count == before.count && memcmp(list.items, before.items, list.count * sizeof list.items[0]) == 0)
        return AOTICACHE_OK;
    return write_file(directory, subdirectory, name, &list, syncs, ret_error);
}

aoticache_status aoticache_signature_file_add(aoticache_directory *directory, const aoticache_digest *artifact,
                                              const aoticache_signature_list *more, bool syncs,
                                              aoticache_error *ret_error)
{
    cleanup_fd int subdirectory = -1;
    if (more->count == 0)
        return AOTICACHE_OK;
    aoticache_status status =
        aoticache_directory_open_subdirectory(directory, AOTICACHE_SIGNATURES, true, &subdirectory, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_lock_acquire(subdirectory, LOCK_EX, directory->lock_timeout_ms, NULL, ret_error);
    if (status == AOTICACHE_LOCKED)
        return aoticache_error_set(ret_error, status,
                                   "%s/" AOTICACHE_SIGNATURES
                                   ": timed out after %u ms: another process is changing signatures",
                                   directory->path, (unsigned)directory->lock_timeout_ms);
    return status == AOTICACHE_OK ? add(directory, subdirectory, artifact, more, syncs, ret_error) : status;
}

/* ---- listing ---- */

aoticache_status aoticache_signature_files_list(aoticache_directory *directory, aoticache_signature_file_fn callback,
                                                void *user, aoticache_error *ret_error)
{
    int fd = -1;
    aoticache_status status =
        aoticache_directory_open_subdirectory(directory, AOTICACHE_SIGNATURES, false, &fd, ret_error);
    if (status != AOTICACHE_OK)
        return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
    cleanup_dir DIR *listing = aoticache_listing_open(fd);
    if (listing == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot list %s/" AOTICACHE_SIGNATURES, directory->path);
    for (struct dirent *item; (item = readdir(listing)) != NULL;) {
        aoticache_digest artifact;
        if (aoticache_digest_from_hex(item->d_name, &artifact) == AOTICACHE_OK && !callback(user, &artifact))
            break;
    }
    return AOTICACHE_OK;
}
