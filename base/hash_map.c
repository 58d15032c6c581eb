/*
 * base/hash_map: items by key: the array of items, and the table with open addressing that finds them. The table is at most
 * half full and keeps a part of each hash, so that growing it and skipping other keys read no item.
 */
#include "base/hash_map.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#define XXH_NO_STREAM
#include <xxhash.h>

#include "base/array.h"

#define FIRST_SLOTS 64

struct aoticache_hash_slot {
    uint32_t hash;
    uint32_t position; /* position of the item, counted from 1; 0: the slot is free */
};

uint64_t aoticache_hash_bytes(const void *bytes, size_t size)
{
    return XXH3_64bits(bytes, size);
}

static uint32_t hash_key(const aoticache_hash_map_type *type, const void *key)
{
    uint64_t hash = type->key_size > 0 ? aoticache_hash_bytes(key, type->key_size) : type->hash(key);
    return (uint32_t)(hash ^ hash >> 32);
}

static void *item_at(const aoticache_hash_map *map, const aoticache_hash_map_type *type, uint32_t position)
{
    return (char *)map->items + (position - 1) * type->item_size;
}

static bool item_has_key(const aoticache_hash_map_type *type, const void *item, const void *key)
{
    return type->key_size > 0 ? memcmp(item, key, type->key_size) == 0 : type->has_key(item, key);
}

/* Returns the slot of the key, or the free slot where it belongs. The table always has a free slot. */
static struct aoticache_hash_slot *find_slot(const aoticache_hash_map *map, const aoticache_hash_map_type *type,
                                             const void *key, uint32_t hash)
{
    for (size_t at = hash & (map->slot_count - 1);; at = (at + 1) & (map->slot_count - 1)) {
        struct aoticache_hash_slot *slot = &map->slots[at];
        if (slot->position == 0 || (slot->hash == hash && item_has_key(type, item_at(map, type, slot->position), key)))
            return slot;
    }
}

static bool grow_slots(aoticache_hash_map *map)
{
    size_t slot_count = map->slot_count > 0 ? 2 * map->slot_count : FIRST_SLOTS;
    struct aoticache_hash_slot *slots = calloc(slot_count, sizeof *slots);
    if (slots == NULL)
        return false;
    for (size_t i = 0; i < map->slot_count; i++) {
        size_t at = map->slots[i].hash & (slot_count - 1);
        if (map->slots[i].position == 0)
            continue;
        while (slots[at].position != 0)
            at = (at + 1) & (slot_count - 1);
        slots[at] = map->slots[i];
    }
    free(map->slots);
    map->slots = slots;
    map->slot_count = slot_count;
    return true;
}

void *aoticache_hash_map_find(const aoticache_hash_map *map, const aoticache_hash_map_type *type, const void *key)
{
    if (map->slot_count == 0)
        return NULL;
    const struct aoticache_hash_slot *slot = find_slot(map, type, key, hash_key(type, key));
    return slot->position != 0 ? item_at(map, type, slot->position) : NULL;
}

void *aoticache_hash_map_add(aoticache_hash_map *map, const aoticache_hash_map_type *type, const void *key,
                             bool *ret_is_new)
{
    const uint32_t hash = hash_key(type, key);
    if (2 * (map->count + 1) > map->slot_count && !grow_slots(map))
        return NULL;
    struct aoticache_hash_slot *slot = find_slot(map, type, key, hash);
    *ret_is_new = slot->position == 0;
    if (slot->position != 0)
        return item_at(map, type, slot->position);
    if (map->count >= UINT32_MAX ||
        (map->count + 1 > map->capacity &&
         !aoticache_array_reserve(&map->items, &map->capacity, map->count + 1, type->item_size)))
        return NULL;
    *slot = (struct aoticache_hash_slot){.hash = hash, .position = (uint32_t)++map->count};
    void *item = item_at(map, type, slot->position);
    memset(item, 0, type->item_size);
    memcpy(item, key, type->key_size);
    return item;
}

void aoticache_hash_map_free(aoticache_hash_map *map)
{
    free(map->items);
    free(map->slots);
    *map = (aoticache_hash_map){.items = NULL};
}
