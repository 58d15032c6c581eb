/*
 * cache/gc/free_space: collecting where little or nothing is free. Taking entries out needs room itself: the log grows
 * by some pages for each, and the index by what is recorded of the files that wait. So the fewer bytes are free, the
 * fewer entries go at once; their files go before the next ones, and the log is merged and cut. Where a batch still
 * does not fit, smaller ones are tried, and at last whatever can go without the index. Where next to nothing is free,
 * the reserve goes first.
 */
#include <sys/statvfs.h>

#include "cache/gc/collection.h"

/* With this much for each entry of a batch nothing is scarce: far more than an entry takes, as others write too. */
#define ENTRY_BYTES (UINT64_C(256) << 10)
#define LEAST 8

static bool read_free(const aoticache_collection *collection, uint64_t *ret_bytes)
{
    struct statvfs filesystem;
    if (fstatvfs(collection->cache->directory->fd, &filesystem) != 0)
        return false;
    *ret_bytes = (uint64_t)filesystem.f_bavail * filesystem.f_frsize;
    return true;
}

size_t aoticache_collection_room(aoticache_collection *collection)
{
    size_t most = collection->has_failed ? collection->most : AOTICACHE_COLLECTION_BATCH;
    uint64_t bytes;
    if (read_free(collection, &bytes) && bytes / ENTRY_BYTES < most)
        most = bytes / ENTRY_BYTES > LEAST ? bytes / ENTRY_BYTES : most < LEAST ? most : LEAST;
    collection->is_scarce = most < AOTICACHE_COLLECTION_BATCH;
    return most;
}

void aoticache_collection_settle(aoticache_collection *collection)
{
    if (collection->is_scarce)
        aoticache_index_truncate_log(collection->index);
    if (collection->has_failed && collection->most < AOTICACHE_COLLECTION_BATCH)
        collection->most++;
}

/* What fails here fails again, and is told, where it is due. */
void aoticache_collection_clear(aoticache_collection *collection)
{
    if (aoticache_reserve_is_needed(collection->cache))
        aoticache_reserve_give_up(collection->cache);
    aoticache_index_truncate_log(collection->index);
    aoticache_cache_remove_leftovers(collection->cache, false, &collection->report.leftovers, NULL);
    aoticache_collection_remove_quarantine(collection);
}

bool aoticache_collection_retries(aoticache_collection *collection, size_t tried)
{
    if (!aoticache_index_is_out_of_space(collection->index))
        return false;
    collection->has_failed = true;
    collection->most = tried > 1 ? tried / 2 : 1;
    if (tried > 1)
        return true;
    if (collection->done_count > 0) { /* they stay on the list, and the next collection finds them gone */
        collection->done_count = 0;
        return true;
    }
    if (collection->is_step || collection->is_cleared)
        return false;
    collection->is_cleared = true;
    aoticache_reserve_give_up(collection->cache);
    aoticache_collection_clear(collection);
    aoticache_collection_scan(collection, NULL);
    return true;
}
