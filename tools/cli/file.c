/*
 * tools/cli/file: replaces a file that other programs may be reading: with a temporary file next to it, and a rename.
 */
#include "base/cleanup.h"
#include "tools/cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int write_all(int fd, const char *text, size_t size)
{
    while (size > 0) {
        ssize_t written = write(fd, text, size);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -1;
        text += written;
        size -= (size_t)written;
    }
    return 0;
}

/* Sets the mode; mkostemp has created the file for its owner only. */
static int set_mode(int fd, bool for_all)
{
    if (for_all)
        return fchmod(fd, 0644);
    mode_t mask = umask(0);
    umask(mask);
    return fchmod(fd, 0666 & ~mask);
}

/* Begins with a dot, so that programs that read a directory of files skip the unfinished one. */
static char *temporary_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    int directory = slash == NULL ? 0 : (int)(slash - path) + 1;
    return aoticache_cli_text("%.*s.%s.XXXXXX", directory, path, path + directory);
}

int aoticache_cli_write_file(const aoticache_cli *cli, const char *path, bool for_all, const char *text, size_t size)
{
    if (path == NULL) {
        fwrite(text, 1, size, stdout);
        return AOTICACHE_CLI_EXIT_OK;
    }
    cleanup_free char *temporary = temporary_name(path);
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return aoticache_cli_error(cli, "cannot write %s: %s", path, strerror(errno));
    bool failed = write_all(fd, text, size) != 0 || set_mode(fd, for_all) != 0 || fsync(fd) != 0;
    int reason = errno;
    if (close(fd) != 0 && !failed) {
        failed = true;
        reason = errno;
    }
    if (!failed && rename(temporary, path) != 0) {
        failed = true;
        reason = errno;
    }
    if (!failed)
        return AOTICACHE_CLI_EXIT_OK;
    unlink(temporary);
    return aoticache_cli_error(cli, "cannot write %s: %s", path, strerror(reason));
}
