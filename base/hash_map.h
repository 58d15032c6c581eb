/*
 * base/hash_map: items by key. The items are in one array in the order in which they were added, so the owner may iterate
 * over them or take the array; a table with open addressing maps a key to its position. Items are never removed.
 *
 * A zeroed map is empty. No function takes a lock.
 */
#ifndef AOTICACHE_BASE_HASH_MAP_H
#define AOTICACHE_BASE_HASH_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct aoticache_hash_map {
    void *items; /* from malloc(): item_size bytes each */
    size_t count, capacity;
    struct aoticache_hash_slot *slots;
    size_t slot_count; /* a power of two, or 0 */
} aoticache_hash_map;

/* The properties that all calls on one map must agree on. */
typedef struct aoticache_hash_map_type {
    size_t item_size;
    /* number of bytes of the key at the start of an item, which are compared as bytes; 0: the functions are used */
    size_t key_size;
    uint64_t (*hash)(const void *key);
    bool (*has_key)(const void *item, const void *key);
} aoticache_hash_map_type;

/* Returns the item with the key, borrowed until the next add; NULL if there is none. */
void *aoticache_hash_map_find(const aoticache_hash_map *map, const aoticache_hash_map_type *type, const void *key);

/*
 * Returns the item with the key, and adds it if there is none. A new item is zeroed. Its key is set if the type has a
 * key_size; otherwise the caller must write the key immediately. Returns NULL, and adds nothing, if memory is short.
 */
void *aoticache_hash_map_add(aoticache_hash_map *map, const aoticache_hash_map_type *type, const void *key,
                             bool *ret_is_new);

/* Frees the array and the table, but not what the items point to. The map is then empty and can be used again. */
void aoticache_hash_map_free(aoticache_hash_map *map);

uint64_t aoticache_hash_bytes(const void *bytes, size_t size);

#endif
