/*
 * cache/store/known: who is asked, before a large file is hashed, whether its digest is known, and is told what it was.
 */
#ifndef AOTICACHE_CACHE_STORE_KNOWN_H
#define AOTICACHE_CACHE_STORE_KNOWN_H

#include <sys/stat.h>

#include "base/base.h"

/* Smaller files are hashed each time: asking would take as long. */
#define AOTICACHE_KNOWN_MIN_BYTES (UINT64_C(1) << 16)

typedef struct aoticache_known aoticache_known;
struct aoticache_known {
    /* Whether the file in this state has this digest. found: of the open descriptor `fd`. */
    bool (*has)(aoticache_known *known, int fd, const struct stat *found, const aoticache_digest *digest);
    /* The file was hashed, from begun_ns (wall clock) on, and `found` is its state from before. */
    void (*note)(aoticache_known *known, int fd, const struct stat *found, int64_t begun_ns,
                 const aoticache_digest *digest);
};

#endif
