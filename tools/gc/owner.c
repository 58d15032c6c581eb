/*
 * tools/gc/owner: a collector started by root runs as the owner of the directory (tools/cli/owner.c).
 *
 * The file for Prometheus is an exception: root has requested it, and the owner may not be allowed to write it. So a child
 * keeps running as root, and writes the text that it receives through a pipe.
 */
#include "tools/gc/gc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the writer ---- */

/* Reads everything until the end; NULL: nothing was received. */
static char *read_all(int fd)
{
    char *text = NULL;
    size_t size = 0, room = 0;
    for (;;) {
        if (size + 1 >= room) {
            room = 2 * room + 4096;
            text = aoticache_cli_resize(text, room, 1);
        }
        ssize_t got = read(fd, text + size, room - size - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        size += (size_t)got;
    }
    text[size] = '\0';
    if (size > 0)
        return text;
    free(text);
    return NULL;
}

static void write_metrics(const aoticache_gc *gc, int fd)
{
    char *text = read_all(fd);
    int result = text == NULL ? AOTICACHE_CLI_EXIT_OK
                              : aoticache_cli_write_file(&gc->cli, gc->prometheus, true, text, strlen(text));
    fflush(NULL);
    _exit(result);
}

static bool start_writer(aoticache_gc *gc)
{
    int ends[2];
    if (gc->prometheus == NULL)
        return true;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    fflush(NULL);
    gc->writer = fork();
    if (gc->writer == 0) {
        /* Signals are for the collector: it ends, and reports what it has done. */
        signal(SIGINT, SIG_IGN);
        signal(SIGTERM, SIG_IGN);
        close(ends[1]);
        write_metrics(gc, ends[0]);
    }
    close(ends[0]);
    gc->writer_fd = ends[1];
    return gc->writer > 0;
}

int aoticache_gc_send_to_writer(aoticache_gc *gc, const char *text)
{
    int how = 0;
    size_t size = text != NULL ? strlen(text) : 0;
    for (ssize_t put; size > 0; text += put, size -= (size_t)put) {
        put = write(gc->writer_fd, text, size);
        if (put < 0 && errno != EINTR)
            break; /* the child has ended, and has printed the reason */
        put = put < 0 ? 0 : put;
    }
    close(gc->writer_fd);
    pid_t ended;
    do
        ended = waitpid(gc->writer, &how, 0);
    while (ended < 0 && errno == EINTR);
    gc->writer = 0;
    return ended > 0 && WIFEXITED(how) ? WEXITSTATUS(how) : AOTICACHE_CLI_EXIT_FAILURE;
}

/* ---- the owner ---- */

int aoticache_gc_become_owner(aoticache_gc *gc, const char *directory)
{
    struct stat found;
    if (geteuid() != 0 || stat(directory, &found) != 0 || !S_ISDIR(found.st_mode))
        return AOTICACHE_CLI_EXIT_OK;
    if (found.st_uid == 0) {
        if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
            aoticache_cli_note(&gc->cli,
                               "%s belongs to root, but others may write to it: change its owner (chown) to a "
                               "user that owns nothing else, so that root does not read files that others wrote",
                               directory);
        return AOTICACHE_CLI_EXIT_OK;
    }
    if (!start_writer(gc))
        return aoticache_cli_error(&gc->cli, "cannot start the process that writes %s: %s", gc->prometheus,
                                   strerror(errno));
    return aoticache_cli_become_owner(&gc->cli, directory, &found);
}
