/*
 * cache/transfer/archive: tar archives (POSIX pax) compressed with zstd, written to and read from a descriptor as a stream.
 *
 * Private. Owns libarchive, which is opened with the first archive and stays open; its functions are found by name. Here a
 * member is a path, a size and bytes; other kinds of members are only recognized. The other files of cache/transfer/ decide
 * which names are used and which members are acceptable.
 *
 * If the library was built without archive.h, or libarchive cannot be opened, opening returns UNSUPPORTED.
 */
#ifndef AOTICACHE_CACHE_TRANSFER_ARCHIVE_H
#define AOTICACHE_CACHE_TRANSFER_ARCHIVE_H

#include "base/base.h"

/* Called often, and whenever a signal interrupts the wait for the descriptor; returns false to give up (IO). May be NULL. */
typedef bool (*aoticache_tar_poll_fn)(void *user);

/* ---- writing ---- */

typedef struct aoticache_tar_writer aoticache_tar_writer;

/* Opens a writer. fd: borrowed until close. Returns: OK, INVALID (the level), NO_MEMORY, UNSUPPORTED. */
aoticache_status aoticache_tar_writer_open(int fd, int level, aoticache_tar_poll_fn poll, void *user,
                                           aoticache_tar_writer **ret_writer, aoticache_error *ret_error);
/* Begins a member: a regular file, mode 0444, without an owner, with the time 1970-01-01. OK, IO, NO_MEMORY. */
aoticache_status aoticache_tar_writer_begin(aoticache_tar_writer *writer, const char *path, uint64_t bytes,
                                            aoticache_error *ret_error);
/* Writes its bytes, in pieces; all of them must be written before the next begin. OK, INVALID (more than announced), IO. */
aoticache_status aoticache_tar_writer_write(aoticache_tar_writer *writer, const void *bytes, size_t size,
                                            aoticache_error *ret_error);
/* Writes the end of the archive. ret_bytes: of the whole archive, compressed. OK, IO. */
aoticache_status aoticache_tar_writer_finish(aoticache_tar_writer *writer, uint64_t *ret_bytes,
                                             aoticache_error *ret_error);
/* Frees the writer and writes nothing: without finish the archive ends early. NULL is allowed. */
void aoticache_tar_writer_close(aoticache_tar_writer *writer);

/* ---- reading ---- */

typedef struct aoticache_tar_reader aoticache_tar_reader;

/* Strings are borrowed until the next call. */
typedef struct aoticache_tar_member {
    const char *path; /* NULL if it has no readable path */
    uint64_t bytes;
    const char *oddity; /* "a symbolic link", "a directory", ...; NULL for a plain regular file */
} aoticache_tar_member;

/*
 * Opens a reader.
 * fd: borrowed until close. Compressed with zstd or not at all.
 * max_bytes: maximum unpacked size, headers included; 0: 1 TiB, and beyond 1 GiB not more than 1000 times the bytes read
 * (for a file with holes: the space it takes on the disk).
 * Returns: OK, NO_MEMORY, UNSUPPORTED, CORRUPT (it is not such an archive), IO.
 */
aoticache_status aoticache_tar_reader_open(int fd, uint64_t max_bytes, aoticache_tar_poll_fn poll, void *user,
                                           aoticache_tar_reader **ret_reader, aoticache_error *ret_error);
/* Sets the unpacked size that the archive announces, headers included: more than that is then CORRUPT. */
void aoticache_tar_reader_expect(aoticache_tar_reader *reader, uint64_t bytes);
/* Returns: OK; NOT_FOUND at the end; CORRUPT (damaged, or it ends early); DENIED (max_bytes); IO; NO_MEMORY. */
aoticache_status aoticache_tar_reader_next(aoticache_tar_reader *reader, aoticache_tar_member *ret_member,
                                           aoticache_error *ret_error);
/* Gives the next piece of the member, borrowed until the next call; *ret_size is 0 at its end. Never more than its size in
 * total, and never a gap. Returns: OK, CORRUPT, DENIED, IO, NO_MEMORY. */
aoticache_status aoticache_tar_reader_read(aoticache_tar_reader *reader, const void **ret_bytes, size_t *ret_size,
                                           aoticache_error *ret_error);
/* Skips the rest of the member, whatever it is. Returns as read. */
aoticache_status aoticache_tar_reader_skip(aoticache_tar_reader *reader, aoticache_error *ret_error);
/* Returns the number of bytes read from the descriptor. */
uint64_t aoticache_tar_reader_bytes(const aoticache_tar_reader *reader);
void aoticache_tar_reader_close(aoticache_tar_reader *reader);

#endif
