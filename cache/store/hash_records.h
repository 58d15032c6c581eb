/*
 * cache/store/hash_records: callbacks that the store calls before it hashes a file, to find out whether the digest is already records, and
 * afterwards, to record the result.
 */
#ifndef AOTICACHE_CACHE_STORE_HASH_RECORDS_H
#define AOTICACHE_CACHE_STORE_HASH_RECORDS_H

#include <sys/stat.h>

#include "base/digest.h"
#include "cache/store/manifest.h"

/* Files that are mapped and have so many bytes are not read at all where their digest is records. Of others a checksum is. */
#define AOTICACHE_HASH_RECORD_MIN_BYTES (UINT64_C(1) << 16)

typedef struct aoticache_hash_records aoticache_hash_records;
struct aoticache_hash_records {
    /* Whether the file in this state has this digest. found: of the open descriptor `fd`. */
    bool (*has)(aoticache_hash_records *records, int fd, const struct stat *found, const aoticache_digest *digest);
    /* The checksum that the file had in this state when its bytes were hashed to this digest. False: none is records. */
    bool (*find_checksum)(aoticache_hash_records *records, const struct stat *found, const aoticache_digest *digest,
                          aoticache_checksum *ret_checksum);
    /* The file was hashed, from begun_ns (wall clock) on, and `found` is its state from before. checksum: NULL for a file
     * of which it is only to be known what digest it has. */
    void (*note)(aoticache_hash_records *records, int fd, const struct stat *found, int64_t begun_ns,
                 const aoticache_digest *digest, const aoticache_checksum *checksum);
    /* What a manifest with this digest says: files, file_count and compile_ns alone, by aoticache_manifest_free(). NULL:
     * that is not records. A manifest whose content lies in it is never records. */
    aoticache_manifest *(*find_manifest)(aoticache_hash_records *records, const aoticache_digest *digest);
    void (*note_manifest)(aoticache_hash_records *records, const aoticache_digest *digest,
                          const aoticache_manifest *manifest);
};

#endif
