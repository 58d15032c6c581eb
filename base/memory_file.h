/*
 * base/memory_file: a file in memory with the bytes of another, hashed while they are copied: nobody who can write to the
 * file can change what was hashed.
 *
 * Private. Owns how such a file is made, filled and sealed. Leaves to the callers what is copied, and how much.
 */
#ifndef AOTICACHE_BASE_MEMORY_FILE_H
#define AOTICACHE_BASE_MEMORY_FILE_H

#include "base/base.h"

/* -1 with errno; ENOSYS where the system has none. */
int aoticache_memory_file_create(void);
/* All or nothing; false with errno. */
bool aoticache_memory_file_write(int file, const void *bytes, size_t size, uint64_t offset);
/* From now on nobody changes it, this process included. False with errno. */
bool aoticache_memory_file_seal(int file);

/* Where the bytes go that a file is read for; file -1: nowhere. */
typedef struct aoticache_memory_copy {
    int file;
    uint64_t kept; /* so many bytes from the beginning */
    int failed;    /* the errno of the first write that failed; nothing was written after it */
} aoticache_memory_copy;

/* Like aoticache_digest_of_fd(). What cannot be copied is told in `copy` alone: the digest is that of all bytes. */
aoticache_status aoticache_digest_of_fd_copying(int fd, aoticache_memory_copy *copy, aoticache_digest *ret_digest,
                                                uint64_t *ret_size, aoticache_error *ret_error);

#endif
