/*
 * cache/hashed_files: avoids hashing large files again that have not changed since. docs/formats/store.md, "What was
 * hashed before", says when that is trusted.
 *
 * Private to cache/.
 */
#ifndef AOTICACHE_CACHE_HASHED_FILES_H
#define AOTICACHE_CACHE_HASHED_FILES_H

#include "cache/cache.h"
#include "cache/store/hash_records.h"
#include "index/entries/file_digests.h"

typedef struct aoticache_hashed_files {
    aoticache_hash_records records; /* first: it is passed to the store */
    aoticache_cache *cache;
    int64_t boot;
    aoticache_index_file_digest *found; /* records made by this use, to be written at its end */
    size_t count, capacity;
} aoticache_hashed_files;

void aoticache_hashed_files_begin(aoticache_hashed_files *files, aoticache_cache *cache);
/* Writes the new records without waiting for other processes, and frees. */
void aoticache_hashed_files_end(aoticache_hashed_files *files);

#endif
