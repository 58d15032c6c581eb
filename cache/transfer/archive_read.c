/*
 * cache/transfer/archive_read: reads the members of an untrusted archive, one after the other.
 *
 * Only tar, and only plain or compressed with zstd: libarchive's other formats and filters are not enabled. Unpacked bytes
 * are counted against a limit before they are returned, so that a small archive that unpacks to a huge one cannot occupy a
 * process.
 */
#include "cache/transfer/archive.h"

#include "cache/transfer/archive_library.h"

#ifdef AOTICACHE_HAS_LIBARCHIVE

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES (256 * 1024)
#define DEFAULT_MAX_BYTES (UINT64_C(1) << 40)
/* Applies if no maximum size was given: machine code is compressed to a third or a tenth, zeros to a thirty-thousandth. */
#define ANY_RATIO_BYTES (UINT64_C(1) << 30)
#define MAX_RATIO 1000
/* A small archive may be larger than its contents. */
#define COMPRESSION_LOSS_BYTES (UINT64_C(1) << 20)

struct aoticache_tar_reader {
    const aoticache_archive_functions *call;
    struct archive *archive;
    int fd;
    int read_errno; /* why reading the descriptor failed; 0: it did not fail */
    bool is_stopped;
    bool has_ratio; /* no maximum unpacked size was given */
    aoticache_tar_poll_fn poll;
    void *user;
    uint64_t max_bytes;
    uint64_t expected;       /* size announced by the archive; UINT64_MAX: not yet */
    uint64_t stored;         /* space of the file on the disk; UINT64_MAX: not known */
    uint64_t bytes;          /* read from fd */
    uint64_t size, position; /* of the member */
    char piece[PIECE_BYTES];
};

static la_ssize_t read_piece(struct archive *archive, void *user, const void **ret_bytes)
{
    aoticache_tar_reader *reader = user;
    ssize_t got = -1;
    int error = EINTR;
    /* Polls before each piece, not only when a signal interrupts: reading a file never blocks. */
    while (error == EINTR && !reader->is_stopped) {
        reader->is_stopped = reader->poll != NULL && !reader->poll(reader->user);
        if (reader->is_stopped)
            break;
        got = read(reader->fd, reader->piece, sizeof reader->piece);
        error = got < 0 ? errno : 0; /* saved, because the poll function may change it */
    }
    if (got < 0 || reader->bytes > reader->max_bytes + COMPRESSION_LOSS_BYTES) {
        reader->read_errno = reader->is_stopped || got >= 0 ? 0 : error;
        reader->call->set_error_(archive, EIO, "cannot read");
        return -1;
    }
    reader->bytes += (uint64_t)got;
    *ret_bytes = reader->piece;
    return got;
}

static aoticache_status too_large(const aoticache_tar_reader *reader, aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_DENIED,
                               "the archive unpacks to more than the allowed %llu bytes; if you know who made "
                               "it, allow more",
                               (unsigned long long)reader->max_bytes);
}

static aoticache_status fail(const aoticache_tar_reader *reader, aoticache_error *ret_error)
{
    const char *text = reader->call->error_string_(reader->archive);
    if (reader->bytes > reader->max_bytes + COMPRESSION_LOSS_BYTES)
        return too_large(reader, ret_error);
    if (reader->is_stopped)
        return aoticache_error_set(ret_error, AOTICACHE_IO, "cannot read the archive: stopped");
    if (reader->read_errno != 0)
        return aoticache_error_set_errno(ret_error, reader->read_errno, "cannot read the archive");
    if (reader->call->errno_(reader->archive) == ENOMEM)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to read an archive");
    return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                               "the archive is damaged or truncated after %llu bytes: %.200s",
                               (unsigned long long)reader->bytes, text != NULL ? text : "libarchive gives no details");
}

/* Checks the limit. to_come: announced bytes of a member, before they are unpacked. */
static aoticache_status check_limit(const aoticache_tar_reader *reader, uint64_t to_come, aoticache_error *ret_error)
{
    const la_int64_t counted = reader->call->filter_bytes_(reader->archive, 0);
    const uint64_t unpacked = counted > 0 ? (uint64_t)counted : 0;
    const uint64_t read = reader->bytes < reader->stored ? reader->bytes : reader->stored;
    if (unpacked > reader->expected || to_come > reader->expected - unpacked)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "the archive is damaged: it unpacks to more than the %llu bytes that it declares",
                                   (unsigned long long)reader->expected);
    if (unpacked > reader->max_bytes || to_come > reader->max_bytes - unpacked)
        return too_large(reader, ret_error);
    if (reader->has_ratio && unpacked > ANY_RATIO_BYTES && (unpacked - ANY_RATIO_BYTES) / MAX_RATIO > read)
        return aoticache_error_set(ret_error, AOTICACHE_DENIED,
                                   "the archive unpacks to more than %d times its own size: %llu bytes so far, of "
                                   "%llu read; if you know who made it, set a limit",
                                   MAX_RATIO, (unsigned long long)unpacked, (unsigned long long)read);
    return AOTICACHE_OK;
}

static aoticache_status set_up(aoticache_tar_reader *reader, aoticache_error *ret_error)
{
    const aoticache_archive_functions *call = reader->call;
    reader->archive = call->read_new_();
    if (reader->archive == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to read an archive");
    /* Any result except OK means that it would run a program. */
    if (call->read_support_filter_zstd_(reader->archive) != ARCHIVE_OK)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "this libarchive was built without zstd");
    if (call->read_support_format_tar_(reader->archive) != ARCHIVE_OK ||
        call->read_open_(reader->archive, reader, NULL, read_piece, NULL) != ARCHIVE_OK)
        return fail(reader, ret_error);
    return AOTICACHE_OK;
}

/* Returns the space of a file on the disk, if it is known. Some file systems report 0 for every file. */
static uint64_t stored_bytes(int fd)
{
    struct stat found;
    if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) || found.st_blocks <= 0)
        return UINT64_MAX;
    return (uint64_t)found.st_blocks * 512;
}

aoticache_status aoticache_tar_reader_open(int fd, uint64_t max_bytes, aoticache_tar_poll_fn poll, void *user,
                                           aoticache_tar_reader **ret_reader, aoticache_error *ret_error)
{
    const aoticache_archive_functions *call = NULL;
    aoticache_status status = aoticache_archive_library_open(&call, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_tar_reader *reader = malloc(sizeof *reader);
    if (reader == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory to read an archive");
    memset(reader, 0, offsetof(aoticache_tar_reader, piece));
    reader->call = call;
    reader->fd = fd;
    reader->poll = poll;
    reader->user = user;
    reader->has_ratio = max_bytes == 0;
    reader->max_bytes = max_bytes != 0 ? max_bytes : DEFAULT_MAX_BYTES;
    reader->expected = UINT64_MAX;
    reader->stored = stored_bytes(fd);
    status = set_up(reader, ret_error);
    if (status == AOTICACHE_OK)
        *ret_reader = reader;
    else
        aoticache_tar_reader_close(reader);
    return status;
}

/* Returns NULL for a member that may be imported. */
static const char *oddity_of(const aoticache_archive_functions *call, struct archive_entry *entry)
{
    if (call->entry_hardlink_(entry) != NULL)
        return "a hard link";
    if (call->entry_symlink_(entry) != NULL)
        return "a symbolic link";
    switch (call->entry_filetype_(entry)) {
    case AE_IFREG:
        break;
    case AE_IFLNK:
        return "a symbolic link";
    case AE_IFDIR:
        return "a directory";
    default:
        return "not a regular file";
    }
    if (call->entry_sparse_count_(entry) > 0)
        return "a sparse file";
    if (!call->entry_size_is_set_(entry) || call->entry_size_(entry) < 0)
        return "a file without a size";
    return NULL;
}

aoticache_status aoticache_tar_reader_next(aoticache_tar_reader *reader, aoticache_tar_member *ret_member,
                                           aoticache_error *ret_error)
{
    const aoticache_archive_functions *call = reader->call;
    struct archive_entry *entry = NULL;
    int result;
    do
        result = call->read_next_header_(reader->archive, &entry);
    while (result == ARCHIVE_RETRY);
    if (result == ARCHIVE_EOF)
        return AOTICACHE_NOT_FOUND;
    /* Warnings concern names and times, which are not trusted anyway. */
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
        return fail(reader, ret_error);
    const char *oddity = oddity_of(call, entry);
    reader->size = call->entry_size_(entry) > 0 ? (uint64_t)call->entry_size_(entry) : 0;
    reader->position = 0;
    aoticache_status status = check_limit(reader, oddity == NULL ? reader->size : 0, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    *ret_member = (aoticache_tar_member){.path = call->entry_pathname_(entry), .bytes = reader->size, .oddity = oddity};
    return AOTICACHE_OK;
}

aoticache_status aoticache_tar_reader_read(aoticache_tar_reader *reader, const void **ret_bytes, size_t *ret_size,
                                           aoticache_error *ret_error)
{
    const void *bytes = NULL;
    size_t size = 0;
    la_int64_t offset = 0;
    int result;
    do
        result = reader->call->read_data_block_(reader->archive, &bytes, &size, &offset);
    while (result == ARCHIVE_RETRY || ((result == ARCHIVE_OK || result == ARCHIVE_WARN) && size == 0));
    *ret_size = 0;
    if (result == ARCHIVE_EOF)
        return AOTICACHE_OK;
    if (result != ARCHIVE_OK && result != ARCHIVE_WARN)
        return fail(reader, ret_error);
    aoticache_status status = check_limit(reader, 0, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (offset < 0 || (uint64_t)offset != reader->position || size > reader->size - reader->position)
        return aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                   "the archive is damaged: a member has %zu bytes at %lld; %llu of %llu were "
                                   "expected",
                                   size, (long long)offset, (unsigned long long)(reader->size - reader->position),
                                   (unsigned long long)reader->size);
    reader->position += size;
    *ret_bytes = bytes;
    *ret_size = size;
    return AOTICACHE_OK;
}

/* Skips here instead of leaving that to the next header, which would check neither the limit nor the poll function while it
 * unpacks. */
aoticache_status aoticache_tar_reader_skip(aoticache_tar_reader *reader, aoticache_error *ret_error)
{
    for (;;) {
        const void *bytes;
        size_t size;
        la_int64_t offset;
        int result = reader->call->read_data_block_(reader->archive, &bytes, &size, &offset);
        if (result == ARCHIVE_EOF)
            return AOTICACHE_OK;
        if (result != ARCHIVE_OK && result != ARCHIVE_WARN && result != ARCHIVE_RETRY)
            return fail(reader, ret_error);
        aoticache_status status = check_limit(reader, 0, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        if (reader->poll != NULL && !reader->poll(reader->user))
            return aoticache_error_set(ret_error, AOTICACHE_IO, "cannot read the archive: stopped");
    }
}

void aoticache_tar_reader_expect(aoticache_tar_reader *reader, uint64_t bytes)
{
    reader->expected = bytes;
}

uint64_t aoticache_tar_reader_bytes(const aoticache_tar_reader *reader)
{
    return reader->bytes;
}

void aoticache_tar_reader_close(aoticache_tar_reader *reader)
{
    if (reader == NULL)
        return;
    if (reader->archive != NULL)
        reader->call->read_free_(reader->archive);
    free(reader);
}

#else

aoticache_status aoticache_tar_reader_open(int fd, uint64_t max_bytes, aoticache_tar_poll_fn poll, void *user,
                                           aoticache_tar_reader **ret_reader, aoticache_error *ret_error)
{
    (void)fd, (void)max_bytes, (void)poll, (void)user, (void)ret_reader;
    return aoticache_archive_library_missing(ret_error);
}

aoticache_status aoticache_tar_reader_next(aoticache_tar_reader *reader, aoticache_tar_member *ret_member,
                                           aoticache_error *ret_error)
{
    (void)reader, (void)ret_member;
    return aoticache_archive_library_missing(ret_error);
}

aoticache_status aoticache_tar_reader_read(aoticache_tar_reader *reader, const void **ret_bytes, size_t *ret_size,
                                           aoticache_error *ret_error)
{
    (void)reader, (void)ret_bytes, (void)ret_size;
    return aoticache_archive_library_missing(ret_error);
}

aoticache_status aoticache_tar_reader_skip(aoticache_tar_reader *reader, aoticache_error *ret_error)
{
    (void)reader;
    return aoticache_archive_library_missing(ret_error);
}

void aoticache_tar_reader_expect(aoticache_tar_reader *reader, uint64_t bytes)
{
    (void)reader, (void)bytes;
}

uint64_t aoticache_tar_reader_bytes(const aoticache_tar_reader *reader)
{
    (void)reader;
    return 0;
}

void aoticache_tar_reader_close(aoticache_tar_reader *reader)
{
    (void)reader;
}

#endif
