/*
 * cache/store/unstored: see unstored.h.
 */
#include "cache/store/unstored.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/syscalls.h"
#include "cache/state.h"

#define COPY_BYTES (64 * 1024)

/* "folder/name" is exactly where the file is. */
static bool is_in_place(const aoticache_file *file, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(file->path, folder, length) == 0 && file->path[length] == '/' &&
           strcmp(file->path + length + 1, file->name) == 0;
}

static bool all_in_place(const aoticache_product *product, const char *folder)
{
    for (size_t i = 0; i < product->file_count; i++)
        if (!is_in_place(&product->files[i], folder))
            return false;
    return folder[0] != '\0';
}

static aoticache_status copy(const aoticache_file *file, int into, aoticache_error *ret_error)
{
    cleanup_fd int from = -1;
    aoticache_status status = aoticache_product_open_file(file, true, &from, NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    cleanup_free char *buffer = malloc(COPY_BYTES);
    cleanup_fd int to = aoticache_syscall_openat(into, file->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (buffer == NULL || to < 0)
        return aoticache_error_set_errno(ret_error, buffer == NULL ? ENOMEM : errno, "cannot copy %s", file->path);
    for (off_t offset = 0;;) {
        ssize_t got = pread(from, buffer, COPY_BYTES, offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0)
            return AOTICACHE_OK;
        if (got < 0 || aoticache_syscall_write(to, buffer, (size_t)got) != 0)
            return aoticache_error_set_errno(ret_error, errno, "cannot copy %s", file->path);
        offset += got;
    }
}

/* The hook may remove its files when it returns, so they are linked, or copied where they are on another file system. */
static aoticache_status gather(const aoticache_product *product, aoticache_scratch *ret_scratch,
                               aoticache_error *ret_error)
{
    aoticache_status status = aoticache_scratch_create_outside(ret_scratch, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    cleanup_fd int folder = open(ret_scratch->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open %s", ret_scratch->path);
    for (size_t i = 0; status == AOTICACHE_OK && i < product->file_count; i++)
        if (aoticache_syscall_linkat(AT_FDCWD, product->files[i].path, folder, product->files[i].name) != 0)
            status = copy(&product->files[i], folder, ret_error);
    return status;
}

static aoticache_status provide_side_files(aoticache_artifact *artifact, const aoticache_product *product,
                                           aoticache_scratch *scratch, aoticache_error *ret_error)
{
    if (all_in_place(product, scratch->path)) {
        artifact->scratch = *scratch;
        *scratch = (aoticache_scratch)AOTICACHE_SCRATCH_INIT;
    } else {
        aoticache_status status = gather(product, &artifact->scratch, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    artifact->directory = strdup(artifact->scratch.path);
    return artifact->directory != NULL ? AOTICACHE_OK
                                       : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
}

aoticache_status aoticache_artifact_create_unstored(const aoticache_product *product, aoticache_scratch *scratch,
                                                    aoticache_artifact **ret_artifact, aoticache_error *ret_error)
{
    static const aoticache_digest no_manifest;
    aoticache_digest digest;
    aoticache_artifact *artifact = NULL;
    int fd = -1;
    aoticache_status status = aoticache_product_open_file(&product->files[0], false, &fd, NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_digest_of_fd(fd, &digest, NULL, ret_error);
    if (status != AOTICACHE_OK) {
        close(fd);
        return status;
    }
    status = aoticache_artifact_create(fd, &no_manifest, &digest, product->compile_ns, false, &artifact, ret_error);
    if (status == AOTICACHE_OK && product->file_count > 1)
        status = provide_side_files(artifact, product, scratch, ret_error);
    if (status != AOTICACHE_OK)
        aoticache_artifact_unref(artifact);
    else
        *ret_artifact = artifact;
    return status;
}
