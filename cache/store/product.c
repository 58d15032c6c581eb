/*
 * cache/store/product: the product that a compile hook delivered: checks it, opens its files, and makes the artifact that
 * runs from these files if they cannot be stored.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/names.h"
#include "base/options.h"
#include "base/syscalls.h"
#include "cache/store/artifact.h"

#define MAX_FILES 1024 /* the limit of a manifest */
#define COPY_BYTES (64 * 1024)

static aoticache_status check_files(const aoticache_product *product, aoticache_error *ret_error)
{
    if (product->files == NULL || product->file_count == 0 || product->file_count > MAX_FILES)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "a product has %zu files; it must have 1 to %d",
                                   product->files != NULL ? product->file_count : 0, MAX_FILES);
    if (product->in_manifest && product->file_count > 1)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "a product has %zu files; in_manifest requires a single file", product->file_count);
    for (size_t i = 0; i < product->file_count; i++) {
        const aoticache_file *file = &product->files[i];
        if (file->path == NULL || file->path[0] == '\0')
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "file %zu of a product: path is NULL or empty", i);
        if (file->name == NULL || !aoticache_manifest_file_name_is_safe(file->name))
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "file %zu of a product is named %.80s; a name must be a single path component",
                                       i, file->name != NULL ? file->name : "(null)");
        for (size_t k = 0; k < i; k++)
            if (strcmp(product->files[k].name, file->name) == 0)
                return aoticache_error_set(ret_error, AOTICACHE_INVALID, "two files of a product are named %.80s",
                                           file->name);
    }
    return AOTICACHE_OK;
}

aoticache_status aoticache_product_read(const aoticache_product *product, aoticache_product *ret_product,
                                        aoticache_error *ret_error)
{
    if (product == NULL)
        return AOTICACHE_REFUSE_NULL_OF("aoticache_cache_put", ret_error, product);
    aoticache_status status =
        AOTICACHE_OPTIONS_READ(aoticache_product, AOTICACHE_PRODUCT_INIT, product, ret_product, ret_error);
    return status == AOTICACHE_OK ? check_files(ret_product, ret_error) : status;
}

aoticache_status aoticache_product_open_file(const aoticache_file *file, bool may_be_empty, int *ret_fd,
                                             uint64_t *ret_bytes, aoticache_error *ret_error)
{
    struct stat found;
    cleanup_fd int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the compiled file %s does not exist", file->path);
    if (fd < 0 || fstat(fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open the compiled file %s", file->path);
    if (!S_ISREG(found.st_mode))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the compiled file %s is not a regular file",
                                   file->path);
    if (found.st_size == 0 && !may_be_empty)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the compiled file %s is empty", file->path);
    *ret_fd = steal_fd(&fd);
    if (ret_bytes != NULL)
        *ret_bytes = (uint64_t)found.st_size;
    return AOTICACHE_OK;
}

/* ---- if it cannot be stored ---- */

/* Returns true if the path of the file is exactly "directory/name". */
static bool is_in_place(const aoticache_file *file, const char *directory)
{
    size_t length = strlen(directory);
    return strncmp(file->path, directory, length) == 0 && file->path[length] == '/' &&
           strcmp(file->path + length + 1, file->name) == 0;
}

static bool all_in_place(const aoticache_product *product, const char *directory)
{
    for (size_t i = 0; i < product->file_count; i++)
        if (!is_in_place(&product->files[i], directory))
            return false;
    return directory[0] != '\0';
}

static aoticache_status copy_file(const aoticache_file *file, int into, aoticache_error *ret_error)
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

/* Links the hook's files, or copies them if they are on another file system, because the hook may remove them when it
 * returns. */
static aoticache_status gather_files(const aoticache_product *product, aoticache_scratch *ret_scratch,
                                     aoticache_error *ret_error)
{
    aoticache_status status = aoticache_scratch_create_outside(ret_scratch, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    cleanup_fd int directory = open(ret_scratch->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open %s", ret_scratch->path);
    for (size_t i = 0; status == AOTICACHE_OK && i < product->file_count; i++)
        if (aoticache_syscall_linkat(AT_FDCWD, product->files[i].path, directory, product->files[i].name) != 0)
            status = copy_file(&product->files[i], directory, ret_error);
    return status;
}

static aoticache_status provide_side_files(aoticache_artifact *artifact, const aoticache_product *product,
                                           aoticache_scratch *scratch, aoticache_error *ret_error)
{
    if (all_in_place(product, scratch->path)) {
        artifact->scratch = *scratch;
        *scratch = (aoticache_scratch)AOTICACHE_SCRATCH_INIT;
    } else {
        aoticache_status status = gather_files(product, &artifact->scratch, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    artifact->info.directory = artifact->directory = strdup(artifact->scratch.path);
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
