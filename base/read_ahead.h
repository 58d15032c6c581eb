/*
 * base/read_ahead: pieces of a file, read and copied into memory by a thread of its own while the caller works on earlier
 * ones. For large files: hashing one takes as long as reading and copying it.
 *
 * Private.
 */
#ifndef AOTICACHE_BASE_READ_AHEAD_H
#define AOTICACHE_BASE_READ_AHEAD_H

#include "base/memory_file.h"

#include <sys/types.h>

typedef struct aoticache_read_ahead aoticache_read_ahead;

/* Writes what `copy` is to have of the `size` bytes at `offset`; NULL and file -1: nothing. */
void aoticache_memory_copy_add(aoticache_memory_copy *copy, const void *bytes, size_t size, uint64_t offset);

/* copy: may be NULL; is the thread's until the end. Returns NULL if memory is short or a thread: the caller then reads
 * itself. */
aoticache_read_ahead *aoticache_read_ahead_begin(int fd, aoticache_memory_copy *copy);
/* The size of the next piece, 0 at the end of the file, -1 with errno. *ret_bytes stays until the next call. */
ssize_t aoticache_read_ahead_next(aoticache_read_ahead *ahead, const uint8_t **ret_bytes);
/* Before the end of the file, too. NULL is allowed. */
void aoticache_read_ahead_end(aoticache_read_ahead *ahead);

#endif
