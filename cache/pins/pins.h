/*
 * cache/pins/pins: pins and tags that people put on kernels.
 *
 * Both belong to a key: they hold for all its entries, those that come later too, and outlive the index (each marked
 * key has a small file of its own in the store, docs/marks.md). A key can be marked before anything is stored for it.
 * A pinned key's entries are never collected; they can be removed by name, and the mark stays when they are.
 *
 * Thread and fork safety are the cache's. Functions that change a mark take the store's lock shared and the lock of
 * the marks, both for a batch of small files and one transaction of the index; changes of one key by several processes
 * at once are all kept.
 */
#ifndef AOTICACHE_CACHE_PINS_PINS_H
#define AOTICACHE_CACHE_PINS_PINS_H

#include "cache/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AOTICACHE_MAX_TAG_BYTES 64 /* letters, digits, '.', '_', '-', ':', '/'; the NUL included */
#define AOTICACHE_MAX_TAGS 64      /* of one key */

/*
 * Durable when they return OK. Pinning what is pinned, unpinning what is not, adding a tag that is there and removing
 * one that is not change nothing and are OK. A mark whose file is damaged is made anew of what the index knows of it,
 * with one warning in the log.
 * Returns: OK, INVALID (a tag that is none: what is wrong with it; too many), DENIED (read-only), IO, LOCKED,
 * NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_cache_pin(aoticache_cache *cache, const aoticache_key *key,
                                                   aoticache_error *ret_error);
AOTICACHE_API aoticache_status aoticache_cache_unpin(aoticache_cache *cache, const aoticache_key *key,
                                                     aoticache_error *ret_error);
AOTICACHE_API aoticache_status aoticache_cache_tag(aoticache_cache *cache, const aoticache_key *key, const char *tag,
                                                   aoticache_error *ret_error);
AOTICACHE_API aoticache_status aoticache_cache_untag(aoticache_cache *cache, const aoticache_key *key, const char *tag,
                                                     aoticache_error *ret_error);

typedef enum aoticache_pin_action {
    AOTICACHE_PIN = 0,
    AOTICACHE_UNPIN = 1,
    AOTICACHE_TAG = 2,
    AOTICACHE_UNTAG = 3,
} aoticache_pin_action;

/*
 * The same for many keys, each batch of 128 of them made durable together: some hundred times faster than one by one. A
 * batch that fails is not done, or its files are, and its rows follow with the next change of each key.
 *
 * keys:     borrowed for the call; each once.
 * tag:      for TAG and UNTAG; else NULL.
 * ret_done: how many of them, from the first on, are done, on failure too; may be NULL.
 * Returns:  as above.
 */
AOTICACHE_API aoticache_status aoticache_cache_change_pins(aoticache_cache *cache, const aoticache_key *keys,
                                                         size_t count, aoticache_pin_action action, const char *tag,
                                                         size_t *ret_done, aoticache_error *ret_error);

/* Whether a text can be a tag: OK, or INVALID with what is wrong with it. Needs no cache. */
AOTICACHE_API aoticache_status aoticache_tag_check(const char *tag, aoticache_error *ret_error);

/* Pointers are borrowed during the callback. */
typedef struct aoticache_pins {
    aoticache_key key;
    bool is_pinned;
    const char *const *tags; /* sorted by their bytes */
    size_t tag_count;
} aoticache_pins;

/* Return false to stop. */
typedef bool (*aoticache_pins_fn)(void *user, const aoticache_pins *mark);

/*
 * All marked keys, in the order of the keys; tag: only those that have it, NULL for all. Reads the index alone; the
 * callback may use the cache. Returns: OK, INVALID, IO, LOCKED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_cache_list_pins(aoticache_cache *cache, const char *tag,
                                                          aoticache_pins_fn callback, void *user,
                                                          aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
