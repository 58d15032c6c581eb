/*
 * cache/entry_list: copies of entries, so that callbacks run without any lock. They are taken by the page: the index is left
 * between two pages, so that nobody waits for a listing and the log can be merged, however long the listing takes.
 *
 * Private to the library.
 */
#ifndef AOTICACHE_CACHE_ENTRY_LIST_H
#define AOTICACHE_CACHE_ENTRY_LIST_H

#include "cache/internal.h"

typedef struct aoticache_listed_entry {
    aoticache_entry entry; /* its strings point into `texts` */
    int64_t entry_id;
    char *texts;
} aoticache_listed_entry;

/* One entry. to->texts is the caller's, by free(). False: out of memory, and nothing was written. */
bool aoticache_entry_list_copy(const aoticache_index_entry *from, aoticache_listed_entry *to);

/* Return false to stop. Texts that it wants to keep it takes, and sets entry->texts to NULL. */
typedef bool (*aoticache_entry_list_fn)(void *user, aoticache_listed_entry *entry);

/*
 * Goes through all entries, by operator and number, without any lock while the callback runs: it may use the cache, and
 * change it. What comes or goes meanwhile is seen or not. op: only this operator, NULL for all. An index that is not
 * there has no entries; one that has to be built again meanwhile may give those of an operator once more.
 * Returns: OK, IO, LOCKED, NO_MEMORY, CORRUPT.
 */
aoticache_status aoticache_entries_walk(aoticache_cache *cache, const char *op, aoticache_entry_list_fn callback,
                                        void *user, aoticache_error *ret_error);

/* Entries that were kept. */
typedef struct aoticache_entry_list {
    aoticache_listed_entry *entries;
    size_t count, capacity;
} aoticache_entry_list;

/* Takes the texts. False: out of memory, and nothing was done. */
bool aoticache_entry_list_add(aoticache_entry_list *list, aoticache_listed_entry *entry);
void aoticache_entry_list_free(aoticache_entry_list *list);

#endif
