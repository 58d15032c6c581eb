/*
 * cache/pins/pins: pins and tags that users put on kernels.
 *
 * Both belong to a key. They hold for all its entries, including later ones, and outlive the index: each such key has its
 * own small file in the store (docs/pins-and-tags.md). A key can be pinned or tagged before anything is stored for it. A
 * pinned key's entries are never collected. They can still be removed by name; the pin then stays.
 *
 * Thread and fork safety are those of the cache. A change takes the store's lock, shared, and the lock of the pins, both for
 * a batch of small files and one transaction of the index. Concurrent changes of one key by several processes are all kept.
 *
 * Users include <aoticache/admin.h>.
 */
#ifndef AOTICACHE_CACHE_PINS_PINS_H
#define AOTICACHE_CACHE_PINS_PINS_H

#include "cache/cache.h"

#ifdef __cplusplus
extern "C" {
#endif

#define AOTICACHE_MAX_TAG_BYTES 64 /* letters, digits, '.', '_', '-', ':', '/'; the NUL included */
#define AOTICACHE_MAX_TAGS 64      /* of one key */

typedef enum aoticache_pin_action {
    AOTICACHE_PIN = 0,
    AOTICACHE_UNPIN = 1,
    AOTICACHE_TAG = 2,
    AOTICACHE_UNTAG = 3,
} aoticache_pin_action;

/*
 * Pins or tags keys, or undoes that. Durable when it returns OK. It is not an error to pin a pinned key, to unpin one that
 * is not pinned, to add a tag that a key has, or to remove one that it does not have: nothing changes then. If a key's file
 * is damaged, it is rewritten from the index, with one warning in the log.
 *
 * Each batch of 128 keys is made durable together, some hundred times faster than one by one. If a batch fails, either
 * nothing has changed, or only its files have; then the next change of each key also updates its row in the index.
 *
 * keys:     borrowed for the call; no duplicates.
 * tag:      for TAG and UNTAG; otherwise NULL.
 * ret_done: how many keys, counted from the first, are done. Written on failure too. May be NULL.
 * Returns:  OK, INVALID (not a valid tag, with the reason; too many tags), DENIED (read-only), IO, LOCKED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_cache_change_pins(aoticache_cache *cache, const aoticache_key *keys,
                                                           size_t count, aoticache_pin_action action, const char *tag,
                                                           size_t *ret_done, aoticache_error *ret_error);

/* Checks whether a text can be a tag: OK, or INVALID with the reason. Needs no cache. */
AOTICACHE_API aoticache_status aoticache_tag_check(const char *tag, aoticache_error *ret_error);

/* Pointers are borrowed during the callback. */
typedef struct aoticache_pins {
    aoticache_key key;
    bool is_pinned;
    const char *const *tags; /* sorted by their bytes */
    size_t tag_count;
} aoticache_pins;

/* Return false to stop. */
typedef bool (*aoticache_pins_fn)(void *user, const aoticache_pins *pins);

/*
 * Lists all keys that are pinned or tagged, in the order of the keys. tag: only keys with this tag, NULL for all. Reads only
 * the index. The callback may use the cache. Returns: OK, INVALID, IO, LOCKED, NO_MEMORY.
 */
AOTICACHE_API aoticache_status aoticache_cache_list_pins(aoticache_cache *cache, const char *tag,
                                                         aoticache_pins_fn callback, void *user,
                                                         aoticache_error *ret_error);

#ifdef __cplusplus
}
#endif
#endif
