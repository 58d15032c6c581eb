/*
 * base/files/read_ahead: reads pieces of a file, and copies them into memory, in a separate thread while the caller
 * works on earlier pieces. For large files: reading and copying a file takes as long as hashing it.
 *
 * Private.
 */
#ifndef AOTICACHE_BASE_READ_AHEAD_H
#define AOTICACHE_BASE_READ_AHEAD_H

#include "base/files/memory_file.h"

#include <sys/types.h>

typedef struct aoticache_read_ahead aoticache_read_ahead;

/* Writes the part of the `size` bytes at `offset` that `copy` is to have; does nothing if copy is NULL or its file is -1. */
void aoticache_memory_copy_add(aoticache_memory_copy *copy, const void *bytes, size_t size, uint64_t offset);

/* Starts reading. copy: may be NULL; the thread uses it until the end. Returns NULL if memory is short or no thread could be
 * started: the caller then reads by itself. */
aoticache_read_ahead *aoticache_read_ahead_begin(int fd, aoticache_memory_copy *copy);
/* Returns the size of the next piece, 0 at the end of the file, -1 with errno on failure. *ret_bytes is valid until the next
 * call. */
ssize_t aoticache_read_ahead_next(aoticache_read_ahead *ahead, const uint8_t **ret_bytes);
/* Stops the thread and frees everything; allowed before the end of the file. NULL is allowed. */
void aoticache_read_ahead_end(aoticache_read_ahead *ahead);

#endif
