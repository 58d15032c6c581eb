/*
 * cache/transfer/archive: tar archives (POSIX pax) compressed with zstd, written to and read from a descriptor as a stream.
 *
 * Private. Owns libarchive, which is opened with the first archive and stays; its functions are found by name. A member is
 * a path, a size and bytes here, and everything else that an archive can say is only told apart: what members are called,
 * and which are acceptable, is decided by the other files of cache/transfer/.
 *
 * Where the library was built without archive.h, or libarchive cannot be opened, opening gives UNSUPPORTED.
 */
#ifndef AOTICACHE_CACHE_TRANSFER_ARCHIVE_H
#define AOTICACHE_CACHE_TRANSFER_ARCHIVE_H

#include "base/base.h"

/* Called often, and whenever a signal interrupts the wait for the descriptor; false: give up (IO). May be NULL. */
typedef bool (*aoticache_tar_poll_fn)(void *user);

/* ---- writing ---- */

typedef struct aoticache_tar_writer aoticache_tar_writer;

/* fd: borrowed until close. Returns: OK, INVALID (the level), NO_MEMORY, UNSUPPORTED. */
aoticache_status aoticache_tar_writer_open(int fd, int level, aoticache_tar_poll_fn poll, void *user,
                                           aoticache_tar_writer **ret_writer, aoticache_error *ret_error);
/* Begins a member: a regular file, mode 0444, of nobody, of the beginning of 1970. OK, IO, NO_MEMORY. */
aoticache_status aoticache_tar_writer_begin(aoticache_tar_writer *writer, const char *path, uint64_t bytes,
                                            aoticache_error *ret_error);
/* Its bytes, in pieces; all of them are due before the next begin. OK, INVALID (more than announced), IO. */
aoticache_status aoticache_tar_writer_write(aoticache_tar_writer *writer, const void *bytes, size_t size,
                                            aoticache_error *ret_error);
/* Writes the end of the archive. ret_bytes: of the whole archive, compressed. OK, IO. */
aoticache_status aoticache_tar_writer_finish(aoticache_tar_writer *writer, uint64_t *ret_bytes,
                                             aoticache_error *ret_error);
/* Writes nothing: without finish the archive ends early. NULL is allowed. */
void aoticache_tar_writer_close(aoticache_tar_writer *writer);

/* ---- reading ---- */

typedef struct aoticache_tar_reader aoticache_tar_reader;

/* Strings are borrowed until the next call. */
typedef struct aoticache_tar_member {
    const char *path; /* NULL if it has none that can be read */
    uint64_t bytes;
    const char *oddity; /* "a symbolic link", "a directory", ...; NULL for a plain regular file */
} aoticache_tar_member;

/*
 * fd: borrowed until close. Compressed with zstd or not at all. max_bytes: what it may unpack to, headers included; 0:
 * 1 TiB, and beyond 1 GiB not more than 1000 times what was read (of a file with holes: what it takes on the disk).
 * Returns: OK, NO_MEMORY, UNSUPPORTED, CORRUPT (it is no such archive), IO.
 */
aoticache_status aoticache_tar_reader_open(int fd, uint64_t max_bytes, aoticache_tar_poll_fn poll, void *user,
                                           aoticache_tar_reader **ret_reader, aoticache_error *ret_error);
/* What it says of itself that it unpacks to, headers included: from now on more is CORRUPT. */
void aoticache_tar_reader_expect(aoticache_tar_reader *reader, uint64_t bytes);
/* Returns: OK; NOT_FOUND at the end; CORRUPT (damaged, or it ends early); DENIED (max_bytes); IO; NO_MEMORY. */
aoticache_status aoticache_tar_reader_next(aoticache_tar_reader *reader, aoticache_tar_member *ret_member,
                                           aoticache_error *ret_error);
/* The next piece of the member, borrowed until the next call; *ret_size is 0 at its end. Never more than its size in
 * all, and never a gap. Returns: OK, CORRUPT, DENIED, IO, NO_MEMORY. */
aoticache_status aoticache_tar_reader_read(aoticache_tar_reader *reader, const void **ret_bytes, size_t *ret_size,
                                           aoticache_error *ret_error);
/* Passes over what is left of the member, whatever it is. Returns as read. */
aoticache_status aoticache_tar_reader_skip(aoticache_tar_reader *reader, aoticache_error *ret_error);
/* Read from the descriptor so far. */
uint64_t aoticache_tar_reader_bytes(const aoticache_tar_reader *reader);
void aoticache_tar_reader_close(aoticache_tar_reader *reader);

#endif
