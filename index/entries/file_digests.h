/*
 * index/entries/file_digests: the digests of large files that were hashed before, and the files' state at that time. A
 * process that finds a file in the same state need not hash it again (cache/hashed_files.h says when that is trusted). They
 * are written without waiting for the disk, and a rebuilt index has none.
 *
 * Private to the library. Thread and fork safety as index/index.h.
 */
#ifndef AOTICACHE_INDEX_ENTRIES_FILE_DIGESTS_H
#define AOTICACHE_INDEX_ENTRIES_FILE_DIGESTS_H

#include "index/index.h"

typedef struct aoticache_index_file_digest {
    uint64_t device, inode; /* of struct stat */
    int64_t size, modified_ns, changed_ns;
    int64_t boot; /* aoticache_boot_number() */
    aoticache_digest digest;
} aoticache_index_file_digest;

/* Returns: OK; NOT_FOUND: no digest of this file is recorded; and errors of the index. */
aoticache_status aoticache_index_read_file_digest(aoticache_index *index, uint64_t device, uint64_t inode,
                                                  aoticache_index_file_digest *ret_digest, aoticache_error *ret_error);
/* Writes digests; each replaces the record of that file, and records from before this boot are deleted. Waits for the write
 * lock wait_ms at most. */
aoticache_status aoticache_index_put_file_digests(aoticache_index *index, const aoticache_index_file_digest *digests,
                                                  size_t count, uint32_t wait_ms, aoticache_error *ret_error);

#endif
