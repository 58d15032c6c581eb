/*
 * index/entries/pins: pins and tags of keys. The tables are a copy: the originals are files of the store
 * (cache/pins/pins.h), from which the tables are refilled when the index is rebuilt. A key need not have an entry.
 *
 * Private to the library. Thread and fork safety as index/index.h.
 */
#ifndef AOTICACHE_INDEX_ENTRIES_PINS_H
#define AOTICACHE_INDEX_ENTRIES_PINS_H

#include "index/index.h"

/* Pointers are borrowed. */
typedef struct aoticache_index_pins {
    aoticache_digest key;
    bool is_pinned;
    const char *const *tags;
    size_t tag_count;
} aoticache_index_pins;

/*
 * Replaces the rows of these keys, in one durable transaction; a key that is neither pinned nor tagged has no rows.
 * Returns: OK, INVALID, LOCKED, IO, DENIED, CORRUPT, NO_MEMORY.
 */
aoticache_status aoticache_index_put_pins(aoticache_index *index, const aoticache_index_pins *pins, size_t count,
                                          aoticache_error *ret_error);

/* One row: a key and one of its tags (NULL if it has none), sorted by key, then by tag. Return false to stop. The callback
 * must not use the index. */
typedef bool (*aoticache_index_pins_fn)(void *user, const aoticache_digest *key, bool is_pinned, const char *tag);

/* Lists pins and tags. key: only this key; tag: only keys with this tag (all their tags are listed). Either may be NULL. */
aoticache_status aoticache_index_list_pins(aoticache_index *index, const aoticache_digest *key, const char *tag,
                                           aoticache_index_pins_fn callback, void *user, aoticache_error *ret_error);

#endif
