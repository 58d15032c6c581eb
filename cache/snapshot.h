/*
 * cache/snapshot: copies of entries, so that callbacks run without any lock. They are taken by the page: the index is left
 * between two pages, so that nobody waits for a listing and the log can be merged, however long the listing takes.
 *
 * Private to the library.
 */
#ifndef AOTICACHE_CACHE_SNAPSHOT_H
#define AOTICACHE_CACHE_SNAPSHOT_H

#include "cache/internal.h"

typedef struct aoticache_snapshot_entry {
    aoticache_entry entry; /* its strings point into `texts` */
    int64_t entry_id;
    char *texts;
} aoticache_snapshot_entry;

/* One entry. to->texts is the caller's, by free(). False: out of memory, and nothing was written. */
bool aoticache_snapshot_copy(const aoticache_index_entry *from, aoticache_snapshot_entry *to);

/* Return false to stop. Texts that it wants to keep it takes, and sets entry->texts to NULL. */
typedef bool (*aoticache_snapshot_fn)(void *user, aoticache_snapshot_entry *entry);

/*
 * Goes through all entries, by operator and number, without any lock while the callback runs: it may use the cache, and
 * change it. What comes or goes meanwhile is seen or not. op: only this operator, NULL for all. An index that is not
 * there has no entries; one that has to be built anew meanwhile may give those of an operator once more.
 * Returns: OK, IO, LOCKED, NO_MEMORY, CORRUPT.
 */
aoticache_status aoticache_snapshot_walk(aoticache_cache *cache, const char *op, aoticache_snapshot_fn callback,
                                         void *user, aoticache_error *ret_error);

/* Entries that were kept. */
typedef struct aoticache_snapshot {
    aoticache_snapshot_entry *entries;
    size_t count, capacity;
} aoticache_snapshot;

/* Takes the texts. False: out of memory, and nothing was done. */
bool aoticache_snapshot_add(aoticache_snapshot *snapshot, aoticache_snapshot_entry *entry);
void aoticache_snapshot_free(aoticache_snapshot *snapshot);

#endif
