/*
 * base/hash_map: items by key. The items lie in one array in the order in which they were added, so the owner may walk them
 * or take the array away; a table with open addressing finds the position of a key. Items are never removed.
 *
 * A map begins zeroed. It takes no locks.
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

/* What all calls on one map agree on. */
typedef struct aoticache_hash_map_type {
    size_t item_size;
    /* an item begins with its key: so many bytes, which are compared as they are; 0: the functions do */
    size_t key_size;
    uint64_t (*hash)(const void *key);
    bool (*has_key)(const void *item, const void *key);
} aoticache_hash_map_type;

/* The item of the key, borrowed until the next add; NULL if it is not there. */
void *aoticache_hash_map_find(const aoticache_hash_map *map, const aoticache_hash_map_type *type, const void *key);

/*
 * The item of the key, added where it is not there. A new item is zeroed. It has its key if the type says key_size;
 * otherwise the caller writes the key at once. Returns NULL if memory is short: nothing is added.
 */
void *aoticache_hash_map_add(aoticache_hash_map *map, const aoticache_hash_map_type *type, const void *key,
                             bool *ret_is_new);

/* Frees the array and the table; what items point to is the owner's. The map is empty and can be used again. */
void aoticache_hash_map_free(aoticache_hash_map *map);

uint64_t aoticache_hash_bytes(const void *bytes, size_t size);

#endif
