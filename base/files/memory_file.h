/*
 * base/files/memory_file: a file in memory with the bytes of another, hashed while they are copied: a process that can
 * write to the original file cannot change what was hashed.
 *
 * Private. Creates, fills and seals such files. The callers decide what is copied, and how much.
 */
#ifndef AOTICACHE_BASE_MEMORY_FILE_H
#define AOTICACHE_BASE_MEMORY_FILE_H

#include "base/base.h"

/* Returns the descriptor, or -1 with errno; ENOSYS if the system has no files in memory. */
int aoticache_memory_file_create(void);
/* Writes everything or nothing; returns false with errno on failure. */
bool aoticache_memory_file_write(int file, const void *bytes, size_t size, uint64_t offset);
/* Seals the file: afterwards no process, including this one, can change it. Returns false with errno on failure. */
bool aoticache_memory_file_seal(int file);

/* The copy that is made of a file while it is read; file -1: none. */
typedef struct aoticache_memory_copy {
    int file;
    uint64_t kept; /* number of bytes to copy, from the beginning */
    int failed;    /* the errno of the first write that failed; nothing is written after it */
} aoticache_memory_copy;

/* Like aoticache_digest_of_fd(). If copying fails, only `copy` says so: the digest is that of all bytes. */
aoticache_status aoticache_digest_of_fd_copying(int fd, aoticache_memory_copy *copy, aoticache_digest *ret_digest,
                                                uint64_t *ret_size, aoticache_error *ret_error);

#endif
