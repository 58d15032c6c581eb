/*
 * cache/store/directory: chooses, creates and opens the root of a cache directory, and its format file. subdirectory.c opens
 * and changes its contents.
 */
#include "cache/store/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/files/listing.h"
#include "base/log.h"
#include "base/syscalls.h"
#include "cache/config/config_internal.h"
#include "cache/entries.h"

#define FORMAT_WORD "aoticache "
#define FORMAT_VERSION 1
#define FORMAT_TEMPORARY AOTICACHE_FORMAT_FILE ".new-"

static aoticache_status path_too_long(aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the path of the cache directory is longer than %d bytes",
                               PATH_MAX - 1);
}

aoticache_status aoticache_cache_default_directory(char *ret_path, size_t size, aoticache_error *ret_error)
{
    if (ret_path == NULL || size == 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "aoticache_cache_default_directory: ret_path is NULL, or size is 0");
    const char *explicit_path = secure_getenv("AOTICACHE_DIR");
    const char *xdg = secure_getenv("XDG_CACHE_HOME");
    const char *home = secure_getenv("HOME");
    char path[PATH_MAX];
    int length;
    if (explicit_path != NULL && explicit_path[0] != '\0')
        length = snprintf(path, sizeof path, "%s", explicit_path);
    else if (aoticache_config_find_directory(path, sizeof path))
        length = (int)strlen(path);
    else if (xdg != NULL && xdg[0] == '/') /* the XDG specification says to ignore relative paths */
        length = snprintf(path, sizeof path, "%s/aoticache", xdg);
    else if (home != NULL && home[0] == '/')
        length = snprintf(path, sizeof path, "%s/.cache/aoticache", home);
    else
        return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND,
                                   "no cache directory is chosen: set AOTICACHE_DIR, XDG_CACHE_HOME or HOME");
    if (length < 0 || (size_t)length >= sizeof path || (size_t)length >= size)
        return path_too_long(ret_error);
    memcpy(ret_path, path, (size_t)length + 1);
    return AOTICACHE_OK;
}

/* Sets the chosen directory as an absolute path without slashes at the end. */
static aoticache_status choose_path(const char *chosen, char **ret_path, aoticache_error *ret_error)
{
    char path[PATH_MAX];
    char absolute[PATH_MAX];
    if (chosen == NULL) {
        aoticache_status status = aoticache_cache_default_directory(path, sizeof path, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        chosen = path;
    }
    if (chosen[0] == '\0')
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the path of the cache directory is empty");
    int length;
    if (chosen[0] == '/') {
        length = snprintf(absolute, sizeof absolute, "%s", chosen);
    } else {
        char here[PATH_MAX];
        if (getcwd(here, sizeof here) == NULL)
            return aoticache_error_set_errno(ret_error, errno, "cannot determine the current directory");
        length = snprintf(absolute, sizeof absolute, "%s/%s", strcmp(here, "/") == 0 ? "" : here, chosen);
    }
    if (length < 0 || (size_t)length >= sizeof absolute)
        return path_too_long(ret_error);
    while (length > 1 && absolute[length - 1] == '/')
        absolute[--length] = '\0';
    *ret_path = strdup(absolute);
    return *ret_path != NULL ? AOTICACHE_OK : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
}

/* Creates the directory and its parents, as mkdir -p does, each for the user alone. */
static aoticache_status make_root(const char *path, aoticache_error *ret_error)
{
    char partial[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof partial)
        return path_too_long(ret_error);
    memcpy(partial, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        partial[i] = '\0';
        if (access(partial, F_OK) != 0 && aoticache_syscall_mkdirat(AT_FDCWD, partial, 0700) != 0 && errno != EEXIST)
            return aoticache_error_set_errno(ret_error, errno,
                                             "cannot create %s; choose a directory with AOTICACHE_DIR", partial);
        partial[i] = path[i];
    }
    return AOTICACHE_OK;
}

static aoticache_status open_root(const aoticache_cache_options *options, aoticache_directory *directory,
                                  aoticache_error *ret_error)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    directory->fd = open(directory->path, flags);
    if (directory->fd < 0 && errno == ENOENT) {
        if (options->must_exist || options->read_only)
            return aoticache_error_set(ret_error, AOTICACHE_NOT_FOUND, "%s does not exist", directory->path);
        aoticache_status status = aoticache_directory_trust_place(directory, ret_error);
        if (status == AOTICACHE_OK)
            status = make_root(directory->path, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        directory->fd = open(directory->path, flags);
    }
    if (directory->fd < 0 && errno == EACCES)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                   "cannot open the cache directory %s: Permission denied; 'aoticache doctor' "
                                   "shows who may open it; or choose another with AOTICACHE_DIR",
                                   directory->path);
    if (directory->fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open the cache directory %s", directory->path);
    struct stat found;
    if (fstat(directory->fd, &found) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot examine %s", directory->path);
    directory->is_group_shared = options->allow_shared && (found.st_mode & S_IWGRP) != 0;
    directory->owner = found.st_uid;
    directory->group = found.st_gid;
    aoticache_status status = aoticache_directory_trust(directory, &found, S_IFDIR, directory->path, ret_error);
    return status == AOTICACHE_OK ? aoticache_directory_find_real_path(directory, &found, ret_error) : status;
}

bool aoticache_directory_knows(const char *name, mode_t *ret_type)
{
    static const char *const directories[] = {AOTICACHE_OBJECTS,    AOTICACHE_ARTIFACTS,  AOTICACHE_LEASES,
                                              AOTICACHE_TMP,        AOTICACHE_QUARANTINE, AOTICACHE_PINS,
                                              AOTICACHE_SIGNATURES, AOTICACHE_UNSENT};
    static const char *const files[] = {AOTICACHE_FORMAT_FILE,
                                        AOTICACHE_LOCK_FILE,
                                        AOTICACHE_GATE_FILE,
                                        AOTICACHE_COLLECT_LOCK_FILE,
                                        AOTICACHE_RESERVE_FILE,
                                        AOTICACHE_VERIFY_FILE,
                                        AOTICACHE_INDEX_FILE,
                                        AOTICACHE_INDEX_FILE "-wal",
                                        AOTICACHE_INDEX_FILE "-shm",
                                        AOTICACHE_INDEX_FILE "-journal",
                                        AOTICACHE_INDEX_FILE "-gate",
                                        AOTICACHE_INDEX_FILE "-uses",
                                        AOTICACHE_INDEX_FILE "-answers"};
    for (size_t i = 0; i < sizeof directories / sizeof directories[0]; i++) {
        if (strcmp(name, directories[i]) == 0) {
            *ret_type = S_IFDIR;
            return true;
        }
    }
    *ret_type = S_IFREG;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (strcmp(name, files[i]) == 0)
            return true;
    return strncmp(name, FORMAT_TEMPORARY, strlen(FORMAT_TEMPORARY)) == 0;
}

bool aoticache_directory_leaves_alone(const char *name)
{
    static const char *const names[] = {"lost+found", ".snapshot", ".snapshots", ".zfs", "CACHEDIR.TAG"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return strncmp(name, ".nfs", 4) == 0;
}

/* Checks a directory without a format file: it may become a cache only if it contains nothing
 * foreign. */
static aoticache_status check_is_ours(const aoticache_directory *directory, aoticache_error *ret_error)
{
    cleanup_dir DIR *listing = aoticache_directory_list(directory->fd);
    if (listing == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot list %s", directory->path);
    for (const char *name; (name = aoticache_listing_next(listing)) != NULL;) {
        mode_t type;
        if (!aoticache_directory_knows(name, &type) && !aoticache_directory_leaves_alone(name))
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "%s is not a cache directory: it contains %s but no file `format`; choose an "
                                       "empty or a new directory",
                                       directory->path, name);
    }
    return errno == 0 ? AOTICACHE_OK : aoticache_error_set_errno(ret_error, errno, "cannot list %s", directory->path);
}

/* Writes the format file under another name and renames it, so that it is complete or absent. */
static aoticache_status write_format(aoticache_directory *directory, aoticache_error *ret_error)
{
    char name[64];
    snprintf(name, sizeof name, FORMAT_TEMPORARY "%ld-%llx", (long)getpid(), (unsigned long long)aoticache_wall_ns());
    cleanup_fd int fd = aoticache_syscall_openat(directory->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW,
                                                 aoticache_directory_file_mode(directory));
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot create a file in %s", directory->path);
    aoticache_directory_hand_over(directory, fd, aoticache_directory_file_mode(directory));
    char text[32];
    int length = snprintf(text, sizeof text, FORMAT_WORD "%d\n", FORMAT_VERSION);
    if (aoticache_syscall_write(fd, text, (size_t)length) != 0 || aoticache_syscall_fsync(fd) != 0 ||
        aoticache_syscall_renameat(directory->fd, name, directory->fd, AOTICACHE_FORMAT_FILE) != 0 ||
        aoticache_syscall_fsync(directory->fd) != 0) {
        int saved = errno;
        aoticache_syscall_unlinkat(directory->fd, name, 0);
        return aoticache_error_set_errno(ret_error, saved, "cannot write %s/" AOTICACHE_FORMAT_FILE, directory->path);
    }
    return AOTICACHE_OK;
}

/* Returns OK; NOT_FOUND if there is no format file, UNSUPPORTED for a newer format, CORRUPT for any other content. */
static aoticache_status read_format(aoticache_directory *directory, aoticache_error *ret_error)
{
    cleanup_fd int fd = aoticache_directory_openat(directory, AOTICACHE_FORMAT_FILE, O_RDONLY);
    if (fd < 0 && errno == ENOENT)
        return AOTICACHE_NOT_FOUND;
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot open %s/" AOTICACHE_FORMAT_FILE, directory->path);
    char text[32];
    ssize_t got;
    do
        got = read(fd, text, sizeof text - 1);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot read %s/" AOTICACHE_FORMAT_FILE, directory->path);
    text[got] = '\0';
    size_t word = strlen(FORMAT_WORD);
    char *end = text;
    long version = strncmp(text, FORMAT_WORD, word) == 0 ? strtol(text + word, &end, 10) : 0;
    if (version < 1 || end == text || *end != '\n')
        return aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                   "%s/" AOTICACHE_FORMAT_FILE
                                   " is not a format file of aoticache; choose another directory",
                                   directory->path);
    if (version > FORMAT_VERSION)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "%s has format %ld; this program knows %d; use a newer program or another "
                                   "directory",
                                   directory->path, version, FORMAT_VERSION);
    return AOTICACHE_OK;
}

static aoticache_status open_format(const aoticache_cache_options *options, aoticache_directory *directory,
                                    aoticache_error *ret_error)
{
    aoticache_status status = read_format(directory, ret_error);
    if (status != AOTICACHE_NOT_FOUND)
        return status;
    status = check_is_ours(directory, ret_error);
    if (status != AOTICACHE_OK || directory->read_only)
        return status;
    aoticache_error detail = {.status = AOTICACHE_OK};
    status = write_format(directory, &detail);
    if (status == AOTICACHE_OK)
        return AOTICACHE_OK;
    directory->read_only = true;
    aoticache_log(&options->logger, AOTICACHE_LOG_WARNING, "%s; the cache stores nothing, and does not use remotes",
                  detail.message);
    return AOTICACHE_OK;
}

static void detect_read_only(const aoticache_cache_options *options, aoticache_directory *directory)
{
    directory->read_only = options->read_only;
    if (directory->read_only || faccessat(directory->fd, ".", W_OK | X_OK, AT_EACCESS) == 0)
        return;
    char text[128];
    directory->read_only = true;
    aoticache_log(&options->logger, AOTICACHE_LOG_WARNING,
                  "%s cannot be written (%s); the cache stores nothing, and does not use remotes", directory->path,
                  strerror_r(errno, text, sizeof text));
}

aoticache_status aoticache_directory_open(const aoticache_cache_options *options, aoticache_directory **ret_directory,
                                          aoticache_error *ret_error)
{
    aoticache_directory *directory = calloc(1, sizeof *directory);
    if (directory == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    directory->fd = -1;
    directory->allow_shared = options->allow_shared;
    directory->lock_timeout_ms = options->lock_timeout_ms;
    directory->logger = options->logger;
    aoticache_status status = choose_path(options->directory, &directory->path, ret_error);
    if (status != AOTICACHE_OK)
        goto out;
    status = open_root(options, directory, ret_error);
    if (status != AOTICACHE_OK)
        goto out;
    detect_read_only(options, directory);
    status = open_format(options, directory, ret_error);
out:
    if (status != AOTICACHE_OK)
        aoticache_directory_close(directory);
    else
        *ret_directory = directory;
    return status;
}

void aoticache_directory_close(aoticache_directory *directory)
{
    if (directory == NULL)
        return;
    int saved = errno;
    if (directory->fd >= 0)
        close(directory->fd);
    free(directory->real_path);
    free(directory->path);
    free(directory);
    errno = saved;
}
