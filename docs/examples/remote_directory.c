/*
 * A module for a remote that is a directory: one on a network file system, say, or a stick. It is small, complete, and
 * meant to be changed; docs/remotes.md says what a module has to do.
 *
 *     cc -std=c11 -O2 -fPIC -shared -Wl,-z,now remote_directory.c -o libaoticache_remote_dir.so -I.../include/aoticache
 *     aoticache push --all --remote 'dir:/mnt/kernels module=/.../libaoticache_remote_dir.so'
 */
#ifndef _GNU_SOURCE /* C++ compilers define it */
#define _GNU_SOURCE
#endif
#include "cache/remote/module.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct directory {
    char path[2048];
} directory;

static aoticache_status fail(aoticache_error *ret_error, aoticache_status status, const char *what)
{
    if (ret_error != NULL) {
        ret_error->status = status;
        snprintf(ret_error->message, sizeof ret_error->message, "%s: %s", what, strerror(errno));
    }
    return status;
}

static aoticache_status open_directory(const aoticache_remote_settings *settings, void **ret_connection,
                                       aoticache_error *ret_error)
{
    const char *path = strchr(settings->url, ':') + 1; /* "dir:/mnt/kernels" */
    directory *opened = (directory *)calloc(1, sizeof *opened);
    if (opened == NULL)
        return fail(ret_error, AOTICACHE_NO_MEMORY, "the remote");
    if (path[0] != '/' || strlen(path) >= sizeof opened->path) {
        free(opened);
        errno = EINVAL;
        return fail(ret_error, AOTICACHE_INVALID, "a directory of the form dir:/PATH");
    }
    strcpy(opened->path, path);
    *ret_connection = opened;
    return AOTICACHE_OK;
}

static int path_of(const void *connection, const char *name, const char *ending, char *ret_path, size_t size)
{
    const directory *opened = (const directory *)connection;
    int length = snprintf(ret_path, size, "%s/%s%s", opened->path, name, ending);
    return length > 0 && (size_t)length < size ? 0 : -1;
}

static aoticache_status get(void *connection, const char *name, uint64_t max_bytes, uint32_t timeout_ms,
                            aoticache_remote_sink_fn sink, void *user, char *ret_version, aoticache_error *ret_error)
{
    char path[4096], piece[65536];
    uint64_t have = 0;
    aoticache_status status = AOTICACHE_OK;
    (void)timeout_ms; /* a file system has none */
    if (ret_version != NULL)
        ret_version[0] = '\0'; /* and no versions */
    FILE *file = path_of(connection, name, "", path, sizeof path) == 0 ? fopen(path, "rbe") : NULL;
    if (file == NULL)
        return errno == ENOENT ? AOTICACHE_NOT_FOUND : fail(ret_error, AOTICACHE_IO, "cannot read");
    for (size_t got; status == AOTICACHE_OK && (got = fread(piece, 1, sizeof piece, file)) > 0;) {
        have += got;
        errno = EFBIG;
        if (have > max_bytes || !sink(user, piece, got))
            status = fail(ret_error, AOTICACHE_IO, "not wanted to its end");
    }
    if (status == AOTICACHE_OK && ferror(file))
        status = fail(ret_error, AOTICACHE_IO, "cannot read");
    fclose(file);
    return status;
}

static void make_directories(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
}

/* Readers see the old file or the new one, because it is renamed. The condition "" is kept by link(2); others are not. */
static aoticache_status put(void *connection, const char *name, const void *bytes, size_t size, const char *condition,
                            uint32_t timeout_ms, aoticache_error *ret_error)
{
    char path[4096], temporary[4096], ending[32];
    (void)timeout_ms;
    snprintf(ending, sizeof ending, ".new-%ld", (long)getpid());
    if (path_of(connection, name, "", path, sizeof path) != 0 ||
        path_of(connection, name, ending, temporary, sizeof temporary) != 0)
        return fail(ret_error, AOTICACHE_IO, "the name is too long");
    make_directories(temporary);
    FILE *file = fopen(temporary, "wbe");
    if (file == NULL)
        return fail(ret_error, AOTICACHE_IO, "cannot write");
    int is_written = fwrite(bytes, 1, size, file) == size;
    is_written = fclose(file) == 0 && is_written;
    int is_named = is_written && (condition != NULL && condition[0] == '\0' ? link(temporary, path) == 0
                                                                            : rename(temporary, path) == 0);
    int saved = errno;
    unlink(temporary);
    errno = saved;
    if (is_named)
        return AOTICACHE_OK;
    return fail(ret_error, is_written && errno == EEXIST ? AOTICACHE_LOCKED : AOTICACHE_IO, "cannot write");
}

static aoticache_status exists(void *connection, const char *name, uint32_t timeout_ms, aoticache_error *ret_error)
{
    char path[4096];
    (void)timeout_ms;
    if (path_of(connection, name, "", path, sizeof path) == 0 && access(path, F_OK) == 0)
        return AOTICACHE_OK;
    return errno == ENOENT ? AOTICACHE_NOT_FOUND : fail(ret_error, AOTICACHE_IO, "cannot look");
}

static aoticache_status remove_file(void *connection, const char *name, uint32_t timeout_ms, aoticache_error *ret_error)
{
    char path[4096];
    (void)timeout_ms;
    if (path_of(connection, name, "", path, sizeof path) == 0 && unlink(path) == 0)
        return AOTICACHE_OK;
    return errno == ENOENT ? AOTICACHE_NOT_FOUND : fail(ret_error, AOTICACHE_IO, "cannot remove");
}

const aoticache_remote_module *aoticache_remote_module_1(void)
{
    static const aoticache_remote_module module = {
        sizeof module,
        AOTICACHE_REMOTE_MODULE_ABI,
        false, /* is_conditional: rename(2) takes no condition */
        open_directory,
        free,
        get,
        put,
        exists,
        NULL,
        NULL,
        NULL,
        NULL, /* acquire, release, wait, time: a directory has no leases */
        remove_file,
    };
    return &module;
}
