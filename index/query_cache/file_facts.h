/*
 * index/query_cache/file_facts: what is known of files that were read before: the digest of a large file, the checksum of a
 * smaller one, the parsed contents of a manifest. They are stored in the query cache (query_cache.h), not in the index: no
 * process waits for them, and if they are lost they are only computed again. docs/formats/store.md, "What was hashed before", says when
 * they are trusted.
 *
 * Private to the library. Thread and fork safety as index/index.h. Functions that find return false if nothing is recorded that
 * can be trusted; those that record do nothing if it could not be trusted later. index: may be NULL: nothing is recorded.
 */
#ifndef AOTICACHE_INDEX_QUERY_CACHE_FILE_FACTS_H
#define AOTICACHE_INDEX_QUERY_CACHE_FILE_FACTS_H

#include <sys/stat.h>

#include "base/digest.h"
#include "index/index.h"

/* The digest of a file of at least this size is recorded if it is only mapped: then it is not read at all next time. */
#define AOTICACHE_FILE_FACT_MIN_BYTES (UINT64_C(1) << 16)

#define AOTICACHE_FILE_FACT_MAX_BYTES 4096

/* Gives the digest of the file open as `fd`. found: its state. */
bool aoticache_index_find_file_digest(aoticache_index *index, int fd, const struct stat *found,
                                      aoticache_digest *ret_digest);
/* Records it. found: the file's state before it was hashed, from begun_ns (wall clock) on. Writes the query cache at once. */
void aoticache_index_note_file_digest(aoticache_index *index, int fd, const struct stat *found, int64_t begun_ns,
                                      const aoticache_digest *digest);

/* Gives the checksum that the file had in this state when its bytes were hashed to this digest. */
bool aoticache_index_find_file_checksum(aoticache_index *index, const struct stat *found,
                                        const aoticache_digest *digest, aoticache_checksum *ret_checksum);
void aoticache_index_note_file_checksum(aoticache_index *index, int fd, const struct stat *found, int64_t begun_ns,
                                        const aoticache_digest *digest, const aoticache_checksum *checksum);

/* Gives what is recorded of the manifest with this digest (cache/store/manifest_fact.c encodes it): *ret_size bytes. */
bool aoticache_index_find_manifest_fact(aoticache_index *index, const aoticache_digest *manifest,
                                        uint8_t ret_bytes[AOTICACHE_FILE_FACT_MAX_BYTES], size_t *ret_size);
void aoticache_index_note_manifest_fact(aoticache_index *index, const aoticache_digest *manifest, const void *bytes,
                                        size_t size);

#endif
