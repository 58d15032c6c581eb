/*
 * cache/entry_list: copies of entries, so that callbacks run without any lock. They are read page by page, and no
 * transaction stays open between two pages, so no other process waits for a listing and the log can be merged, however long
 * the listing takes.
 *
 * Private to the library.
 */
#ifndef AOTICACHE_CACHE_ENTRY_LIST_H
#define AOTICACHE_CACHE_ENTRY_LIST_H

#include "cache/entries.h"
#include "cache/cache_internal.h"

typedef struct aoticache_listed_entry {
    aoticache_entry entry; /* its strings point into `texts` */
    int64_t entry_id;
    char *texts;
} aoticache_listed_entry;

/* Copies one entry. The caller frees to->texts with free(). Returns false, and writes nothing, if memory is short. */
bool aoticache_entry_list_copy(const aoticache_index_entry *from, aoticache_listed_entry *to);

/* Returns false to stop. To keep the texts, it takes them and sets entry->texts to NULL. */
typedef bool (*aoticache_entry_list_fn)(void *user, aoticache_listed_entry *entry);

/*
 * Iterates over all entries, by operator and number, without any lock while the callback runs: it may use the cache, and
 * change it. Entries that are added or removed meanwhile may or may not be seen.
 * op: only this operator, NULL for all.
 * A missing index has no entries; if the index has to be rebuilt meanwhile, the entries of an operator may be given twice.
 * Returns: OK, IO, LOCKED, NO_MEMORY, CORRUPT.
 */
aoticache_status aoticache_entries_walk(aoticache_cache *cache, const char *op, aoticache_entry_list_fn callback,
                                        void *user, aoticache_error *ret_error);

/* Entries that are kept. */
typedef struct aoticache_entry_list {
    aoticache_listed_entry *entries;
    size_t count, capacity;
} aoticache_entry_list;

/* Takes ownership of the texts. Returns false, and changes nothing, if memory is short. */
bool aoticache_entry_list_add(aoticache_entry_list *list, aoticache_listed_entry *entry);
void aoticache_entry_list_free(aoticache_entry_list *list);

#endif
