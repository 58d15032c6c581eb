/*
 * cache/store/object_array: a growing array of objects (digest and size).
 *
 * Private. Starts as all zero; `items` is released by free().
 */
#ifndef AOTICACHE_CACHE_STORE_OBJECT_ARRAY_H
#define AOTICACHE_CACHE_STORE_OBJECT_ARRAY_H

#include "index/index.h"

typedef struct aoticache_object_array {
    aoticache_index_object *items;
    size_t count, capacity;
} aoticache_object_array;

/* False where memory is out; the array is as it was then. */
bool aoticache_object_array_add(aoticache_object_array *array, const aoticache_digest *digest, uint64_t bytes);

#endif
