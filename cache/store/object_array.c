/*
 * cache/store/object_array: see object_array.h.
 */
#include "cache/store/object_array.h"

#include <stdlib.h>

bool aoticache_object_array_add(aoticache_object_array *array, const aoticache_digest *digest, uint64_t bytes)
{
    if (array->count == array->capacity) {
        size_t capacity = array->capacity != 0 ? array->capacity * 2 : 64;
        aoticache_index_object *items = realloc(array->items, capacity * sizeof *items);
        if (items == NULL)
            return false;
        array->items = items;
        array->capacity = capacity;
    }
    array->items[array->count++] = (aoticache_index_object){.digest = *digest, .bytes = bytes};
    return true;
}
