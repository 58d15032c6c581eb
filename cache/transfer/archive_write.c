/*
 * cache/transfer/archive_write: a tar archive, compressed with zstd, written to a descriptor.
 *
 * The same members give the same bytes on every machine that has the same libarchive and libzstd: the recorded times, owners
 * and modes are fixed, and zstd's output does not depend on the number of threads, if it has at least one.
 */
#include "cache/transfer/archive.h"

#include "cache/transfer/archive_library.h"

#ifdef AOTICACHE_HAS_LIBARCHIVE

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/syscalls.h"

#define MOST_THREADS 4
#define MAX_LEVEL 19
#define MOST_PADDING (16u << 20) /* bytes of an unfinished member that libarchive may pad and compress unnecessarily */

struct aoticache_tar_writer {
    const aoticache_archive_functions *call;
    struct archive *archive;
    struct archive_entry *entry;
    int fd;
    aoticache_tar_poll_fn poll;
    void *user;
    uint64_t left;  /* of the current member */
    uint64_t bytes; /* written to fd */
    int error;      /* of writing to fd; or ECANCELED: stopped */
    bool is_discarding;
    bool is_broken; /* libarchive itself has failed: zstd may crash if it is called again */
};

/*
 * Writes a piece. A piece may be written partly; the rest is then requested again. libarchive (3.6) leaks its buffers if an
 * archive fails, so it does not get the error: everything after it is discarded, and fail() reports it.
 */
static la_ssize_t write_piece(struct archive *archive, void *user, const void *bytes, size_t size)
{
    aoticache_tar_writer *writer = user;
    (void)archive;
    if (writer->is_discarding)
        return (la_ssize_t)size;
    ssize_t written = -1;
    int error = EINTR;
    bool is_stopped = false;
    /* Polls before each write: one that a signal interrupts after it has written something returns a size, not EINTR. */
    while (error == EINTR) {
        is_stopped = writer->poll != NULL && !writer->poll(writer->user);
        if (is_stopped)
            break;
        if (aoticache_syscall_hook_ask("write", NULL) == 0 && aoticache_syscall_ask_limit(writer->fd, size) == 0)
            written = write(writer->fd, bytes, size);
        error = written < 0 ? errno : 0; /* saved, because the poll function may change it */
    }
    if (written < 0) {
        writer->error = is_stopped ? ECANCELED : error;
        writer->is_discarding = true;
        return (la_ssize_t)size;
    }
    writer->bytes += (uint64_t)written;
    return written;
}

static aoticache_status fail(aoticache_tar_writer *writer, aoticache_error *ret_error)
{
    if (writer->error == ECANCELED)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "cannot write the archive: stopped");
    if (writer->error != 0)
        return aoticache_error_set_errno(ret_error, writer->error, "cannot write the archive");
    writer->is_broken = true;
    const char *text = writer->call->error_string_(writer->archive);
    int code = writer->call->errno_(writer->archive);
    if (code == ENOMEM)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to write an archive");
    if (code > 0 && code != EINTR)
        return aoticache_error_set_errno(ret_error, code, "cannot write the archive");
    return aoticache_error_set(ret_error, AOTICACHE_IO, "cannot write the archive: %s",
                               text != NULL ? text : "libarchive gives no details");
}

static int thread_count(void)
{
    cpu_set_t processors;
    int count = sched_getaffinity(0, sizeof processors, &processors) == 0 ? CPU_COUNT(&processors) : 1;
    return count < MOST_THREADS ? count : MOST_THREADS;
}

/* Configures libarchive. If libarchive would run a program to compress, that is refused: a library starts no programs. */
static aoticache_status set_up(aoticache_tar_writer *writer, int level, aoticache_error *ret_error)
{
    const aoticache_archive_functions *call = writer->call;
    char level_text[16], threads[16];
    snprintf(level_text, sizeof level_text, "%d", level);
    snprintf(threads, sizeof threads, "%d", thread_count());
    if (call->write_add_filter_zstd_(writer->archive) != ARCHIVE_OK)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "this libarchive was built without zstd");
    if (call->write_set_format_pax_restricted_(writer->archive) != ARCHIVE_OK ||
        call->write_set_bytes_in_last_block_(writer->archive, 1) != ARCHIVE_OK ||
        call->write_set_filter_option_(writer->archive, "zstd", "compression-level", level_text) != ARCHIVE_OK)
        return fail(writer, ret_error);
    call->write_set_filter_option_(writer->archive, "zstd", "threads", threads); /* since 3.6; otherwise none */
    if (call->write_open_(writer->archive, writer, NULL, write_piece, NULL) != ARCHIVE_OK)
        return fail(writer, ret_error);
    return AOTICACHE_OK;
}

aoticache_status aoticache_tar_writer_open(int fd, int level, aoticache_tar_poll_fn poll, void *user,
                                           aoticache_tar_writer **ret_writer, aoticache_error *ret_error)
{
    const aoticache_archive_functions *call = NULL;
    if (level < 1 || level > MAX_LEVEL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "the compression level is %d; it must be 1 to %d",
                                   level, MAX_LEVEL);
    aoticache_status status = aoticache_archive_library_open(&call, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_tar_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to write an archive");
    *writer = (aoticache_tar_writer){.call = call, .fd = fd, .poll = poll, .user = user};
    writer->archive = call->write_new_();
    writer->entry = call->entry_new_();
    if (writer->archive == NULL || writer->entry == NULL)
        status = aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to write an archive");
    else
        status = set_up(writer, level, ret_error);
    if (status == AOTICACHE_OK)
        *ret_writer = writer;
    else
        aoticache_tar_writer_close(writer);
    return status;
}

aoticache_status aoticache_tar_writer_begin(aoticache_tar_writer *writer, const char *path, uint64_t bytes,
                                            aoticache_error *ret_error)
{
    const aoticache_archive_functions *call = writer->call;
    struct archive_entry *entry = call->entry_clear_(writer->entry);
    if (bytes > INT64_MAX)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s has more than 2^63-1 bytes", path);
    call->entry_set_pathname_(entry, path);
    call->entry_set_size_(entry, (la_int64_t)bytes);
    call->entry_set_filetype_(entry, AE_IFREG);
    call->entry_set_perm_(entry, 0444);
    call->entry_set_mtime_(entry, 0, 0);
    call->entry_set_uid_(entry, 0);
    call->entry_set_gid_(entry, 0);
    if (call->write_header_(writer->archive, entry) != ARCHIVE_OK || writer->error != 0)
        return fail(writer, ret_error);
    writer->left = bytes;
    return AOTICACHE_OK;
}

aoticache_status aoticache_tar_writer_write(aoticache_tar_writer *writer, const void *bytes, size_t size,
                                            aoticache_error *ret_error)
{
    if (size > writer->left)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "a member of an archive has %zu bytes too many",
                                   size - (size_t)writer->left);
    for (const char *rest = bytes; size > 0;) {
        la_ssize_t written = writer->call->write_data_(writer->archive, rest, size);
        if (written <= 0 || writer->error != 0)
            return fail(writer, ret_error);
        rest += written;
        size -= (size_t)written;
        writer->left -= (uint64_t)written;
    }
    return AOTICACHE_OK;
}

aoticache_status aoticache_tar_writer_finish(aoticache_tar_writer *writer, uint64_t *ret_bytes,
                                             aoticache_error *ret_error)
{
    if (writer->call->write_close_(writer->archive) != ARCHIVE_OK || writer->error != 0)
        return fail(writer, ret_error);
    *ret_bytes = writer->bytes;
    return AOTICACHE_OK;
}

void aoticache_tar_writer_close(aoticache_tar_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->archive != NULL) {
        writer->is_discarding = true; /* if the archive was not finished, free writes its end */
        if (writer->left > MOST_PADDING || writer->is_broken)
            writer->call->write_fail_(writer->archive);
        writer->call->write_free_(writer->archive);
    }
    writer->call->entry_free_(writer->entry);
    free(writer);
}

#else

aoticache_status aoticache_tar_writer_open(int fd, int level, aoticache_tar_poll_fn poll, void *user,
                                           aoticache_tar_writer **ret_writer, aoticache_error *ret_error)
{
    (void)fd, (void)level, (void)poll, (void)user, (void)ret_writer;
    return aoticache_archive_library_missing(ret_error);
}

aoticache_status aoticache_tar_writer_begin(aoticache_tar_writer *writer, const char *path, uint64_t bytes,
                                            aoticache_error *ret_error)
{
    (void)writer, (void)path, (void)bytes;
    return aoticache_archive_library_missing(ret_error);
}

aoticache_status aoticache_tar_writer_write(aoticache_tar_writer *writer, const void *bytes, size_t size,
                                            aoticache_error *ret_error)
{
    (void)writer, (void)bytes, (void)size;
    return aoticache_archive_library_missing(ret_error);
}

aoticache_status aoticache_tar_writer_finish(aoticache_tar_writer *writer, uint64_t *ret_bytes,
                                             aoticache_error *ret_error)
{
    (void)writer, (void)ret_bytes;
    return aoticache_archive_library_missing(ret_error);
}

void aoticache_tar_writer_close(aoticache_tar_writer *writer)
{
    (void)writer;
}

#endif
