/*
 * cache/store/object_put: writes an object: a temporary file in tmp/, its bytes verified, mode 0444, fsync, rename to its
 * name, fsync of the directories.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/names.h"
#include "base/syscalls.h"
#include "cache/store/object.h"
#include "cache/store/scratch.h"

#define COPY_BYTES (UINT64_C(1) << 20)

/* The bytes are in memory or in a file. */
struct source {
    const char *name;
    const void *bytes; /* NULL: in fd */
    int fd;
    uint64_t size;
};

static aoticache_status copy_file(const struct source *source, int to, aoticache_error *ret_error)
{
    size_t capacity = (size_t)(source->size < COPY_BYTES ? source->size + 1 : COPY_BYTES);
    cleanup_free char *buffer = malloc(capacity);
    if (buffer == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to copy %s", source->name);
    for (uint64_t offset = 0;;) {
        ssize_t got = pread(source->fd, buffer, capacity, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot read %s", source->name);
        if (got == 0)
            return AOTICACHE_OK;
        if (aoticache_syscall_write(to, buffer, (size_t)got) != 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot store %s", source->name);
        offset += (uint64_t)got;
    }
}

static aoticache_status write_bytes(const struct source *source, int to, aoticache_error *ret_error)
{
    if (source->bytes == NULL)
        return copy_file(source, to, ret_error);
    if (aoticache_syscall_write(to, source->bytes, (size_t)source->size) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot store %s", source->name);
    return AOTICACHE_OK;
}

/* Checks whether a file has exactly these bytes. OK, INVALID, IO, NO_MEMORY. */
static aoticache_status compare_bytes(const struct source *source, int fd, aoticache_error *ret_error)
{
    const char *bytes = source->bytes;
    const size_t capacity = (size_t)(source->size < COPY_BYTES ? source->size + 1 : COPY_BYTES);
    cleanup_free char *buffer = malloc(capacity);
    if (buffer == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to store %s", source->name);
    for (uint64_t offset = 0;;) {
        const ssize_t got = pread(fd, buffer, capacity, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot read the stored copy of %s", source->name);
        if (got == 0 && offset == source->size)
            return AOTICACHE_OK;
        if (got == 0 || (uint64_t)got > source->size - offset || memcmp(buffer, bytes + offset, (size_t)got) != 0)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s changed while it was being stored; try again",
                                       source->name);
        offset += (uint64_t)got;
    }
}

/* Checks whether the file has the bytes that were to be stored. Bytes in memory were hashed there, and are compared, which
 * costs less. */
static aoticache_status verify_written(const struct source *source, const aoticache_digest *digest, int fd,
                                       aoticache_error *ret_error)
{
    aoticache_digest written;
    if (source->bytes != NULL)
        return compare_bytes(source, fd, ret_error);
    aoticache_status status = aoticache_digest_of_fd(fd, &written, NULL, ret_error);
    if (status != AOTICACHE_OK || aoticache_digest_equal(&written, digest))
        return status;
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s changed while it was being stored; try again",
                               source->name);
}

/* Fills the temporary file and leaves it durable, immutable, open for reading and with its in-use lock in *ret_fd. */
static aoticache_status write_temporary(const aoticache_directory *directory, int tmp_fd, const char *temporary,
                                        const struct source *source, const aoticache_digest *digest, int *ret_fd,
                                        aoticache_error *ret_error)
{
    cleanup_fd int writer = aoticache_syscall_openat(tmp_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (writer < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot create a temporary file to store %s", source->name);
    aoticache_directory_hand_over(directory, writer, 0600);
    aoticache_status status = write_bytes(source, writer, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    /* A second, read-only description carries the lock that is returned, so that the file is not kept open for writing. */
    cleanup_fd int reader = openat(tmp_fd, temporary, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (reader < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open the stored copy of %s", source->name);
    status = verify_written(source, digest, reader, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (aoticache_syscall_fchmod(writer, 0444) != 0 || aoticache_syscall_fsync(writer) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot make the stored copy of %s durable", source->name);
    flock(reader, LOCK_SH | LOCK_NB);
    *ret_fd = steal_fd(&reader);
    return AOTICACHE_OK;
}

/* Syncs the directory of the object and objects/ itself; either may just have been created, by this process or by one that
 * is about to die. */
static aoticache_status sync_directories(aoticache_directory *directory, int subdirectory, aoticache_error *ret_error)
{
    cleanup_fd int objects = -1;
    aoticache_status status =
        aoticache_directory_open_subdirectory(directory, AOTICACHE_OBJECTS, false, &objects, ret_error);
    if (status != AOTICACHE_OK)
        return status == AOTICACHE_NOT_FOUND
                   ? aoticache_error_set(ret_error, AOTICACHE_IO, "%s/" AOTICACHE_OBJECTS " vanished", directory->path)
                   : status;
    if (aoticache_syscall_fsync(subdirectory) != 0 || aoticache_syscall_fsync(objects) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot make %s/" AOTICACHE_OBJECTS " durable",
                                         directory->path);
    return AOTICACHE_OK;
}

static aoticache_status write_object(aoticache_directory *directory, const struct source *source,
                                     const aoticache_digest *digest, int subdirectory, const char *name, int *ret_fd,
                                     aoticache_error *ret_error)
{
    int tmp_fd = -1;
    int fd = -1;
    char temporary[80];
    aoticache_status status = aoticache_directory_open_subdirectory(directory, AOTICACHE_TMP, true, &tmp_fd, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_scratch_name(directory, temporary, sizeof temporary);
    status = write_temporary(directory, tmp_fd, temporary, source, digest, &fd, ret_error);
    if (status != AOTICACHE_OK)
        goto out;
    if (aoticache_syscall_renameat(tmp_fd, temporary, subdirectory, name) != 0) {
        status = aoticache_error_set_errno(ret_error, errno, "cannot move object %s to its final path", name);
        goto out;
    }
    *ret_fd = steal_fd(&fd);
out:
    if (status != AOTICACHE_OK) {
        int saved = errno;
        aoticache_syscall_unlinkat(tmp_fd, temporary, 0);
        errno = saved;
    }
    cleanup_fd_release(&fd);
    cleanup_fd_release(&tmp_fd);
    return status;
}

static aoticache_status put_object(aoticache_directory *directory, const struct source *source,
                                   const aoticache_digest *digest, aoticache_object *ret_object,
                                   aoticache_error *ret_error)
{
    char path[AOTICACHE_OBJECT_PATH_BYTES];
    cleanup_fd int subdirectory = -1;
    cleanup_fd int fd = -1;
    aoticache_object_path(digest, path);
    const char *name = strrchr(path, '/') + 1;
    path[name - 1 - path] = '\0';
    aoticache_status status = aoticache_directory_open_subdirectory(directory, path, true, &subdirectory, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_error detail = {.message = ""};
    aoticache_status existing = aoticache_object_open(directory, digest, source->size, &fd, NULL, &detail);
    /* An object that cannot be read is also written again: its bytes will be the same. */
    if (existing == AOTICACHE_CORRUPT || existing == AOTICACHE_DENIED)
        aoticache_log(&directory->logger, AOTICACHE_LOG_WARNING, "%s; it is being replaced", detail.message);
    else if (existing != AOTICACHE_OK && existing != AOTICACHE_NOT_FOUND)
        return aoticache_error_set(ret_error, existing, "%s", detail.message);
    if (existing != AOTICACHE_OK)
        status = write_object(directory, source, digest, subdirectory, name, &fd, ret_error);
    else if (aoticache_syscall_fsync(fd) != 0) /* its writer may not have synced it yet */
        status = aoticache_error_set_errno(ret_error, errno, "cannot make object %s durable", name);
    if (status == AOTICACHE_OK)
        status = sync_directories(directory, subdirectory, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *ret_object = (aoticache_object){
        .digest = *digest, .bytes = source->size, .fd = steal_fd(&fd), .is_new = existing != AOTICACHE_OK};
    return AOTICACHE_OK;
}

aoticache_status aoticache_object_put_fd(aoticache_directory *directory, int source_fd, const char *name,
                                         aoticache_object *ret_object, aoticache_error *ret_error)
{
    struct source source = {.name = name, .fd = source_fd};
    aoticache_digest digest;
    aoticache_error detail = {.message = ""};
    aoticache_status status = aoticache_digest_of_fd(source_fd, &digest, &source.size, &detail);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "%s: %s", name, detail.message);
    return put_object(directory, &source, &digest, ret_object, ret_error);
}

aoticache_status aoticache_object_put_bytes(aoticache_directory *directory, const void *bytes, size_t size,
                                            aoticache_object *ret_object, aoticache_error *ret_error)
{
    struct source source = {.name = "the manifest", .bytes = bytes, .fd = -1, .size = size};
    aoticache_digest digest;
    aoticache_status status = aoticache_digest_of(bytes, size, &digest);
    if (status != AOTICACHE_OK)
        return aoticache_error_set(ret_error, status, "cannot compute the digest of the manifest");
    return put_object(directory, &source, &digest, ret_object, ret_error);
}
