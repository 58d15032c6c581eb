/*
 * cache/digest_file: the digest of a file outside the cache, which is hashed once.
 */
#include "base/arguments.h"
#include "base/clock.h"
#include "base/names.h"
#include "cache/cache_internal.h"
#include "cache/eager_face.h"
#include "index/query_cache/file_facts.h"

aoticache_status aoticache_cache_digest_file(aoticache_cache *cache, int fd, aoticache_digest *ret_digest,
                                             aoticache_error *ret_error)
{
    struct stat found;
    if (cache == NULL || ret_digest == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, cache, ret_digest);
    aoticache_cache_enter(cache);
    aoticache_index *index = cache->hash_always ? NULL : aoticache_cache_index(cache);
    if (index == NULL || fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) ||
        (uint64_t)found.st_size < AOTICACHE_FILE_FACT_MIN_BYTES)
        return aoticache_digest_of_fd(fd, ret_digest, NULL, ret_error);
    if (aoticache_index_find_file_digest(index, fd, &found, ret_digest))
        return AOTICACHE_OK;
    const int64_t begun_ns = aoticache_wall_ns();
    aoticache_status status = aoticache_digest_of_fd(fd, ret_digest, NULL, ret_error);
    if (status == AOTICACHE_OK)
        aoticache_index_note_file_digest(index, fd, &found, begun_ns, ret_digest);
    return status;
}
