/*
 * cache/store/hash_records: callbacks that the store calls before it hashes a file, to find out whether the digest is
 * already known, and afterwards, to record the result.
 */
#ifndef AOTICACHE_CACHE_STORE_HASH_RECORDS_H
#define AOTICACHE_CACHE_STORE_HASH_RECORDS_H

#include <sys/stat.h>

#include "base/digest.h"
#include "cache/store/manifest.h"

/* Files of at least this size that are mapped are not read at all if their digest is recorded. For other files a checksum is
 * recorded. */
#define AOTICACHE_HASH_RECORD_MIN_BYTES (UINT64_C(1) << 16)

typedef struct aoticache_hash_records aoticache_hash_records;
struct aoticache_hash_records {
    /* Returns whether the file in this state has this digest. found: state of the open descriptor `fd`. */
    bool (*has)(aoticache_hash_records *records, int fd, const struct stat *found, const aoticache_digest *digest);
    /* Gives the checksum that the file had in this state when its bytes were hashed to this digest. Returns false if none is
     * recorded. */
    bool (*find_checksum)(aoticache_hash_records *records, const struct stat *found, const aoticache_digest *digest,
                          aoticache_checksum *ret_checksum);
    /* Records that the file was hashed, from begun_ns (wall clock) on; `found` is its state from before. checksum: NULL for
     * a file of which only the digest is to be recorded. */
    void (*note)(aoticache_hash_records *records, int fd, const struct stat *found, int64_t begun_ns,
                 const aoticache_digest *digest, const aoticache_checksum *checksum);
    /* Returns the recorded parts of a manifest with this digest: only files, file_count and compile_ns; freed with
     * aoticache_manifest_free(). NULL: not recorded. A manifest that contains its content is never recorded. */
    aoticache_manifest *(*find_manifest)(aoticache_hash_records *records, const aoticache_digest *digest);
    void (*note_manifest)(aoticache_hash_records *records, const aoticache_digest *digest,
                          const aoticache_manifest *manifest);
};

#endif
