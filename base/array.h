/*
 * base/array: an array that grows.
 *
 * The owner keeps three members: the items, their number and the capacity. They start as NULL, 0 and 0; the owner frees the
 * items with free().
 */
#ifndef AOTICACHE_BASE_ARRAY_H
#define AOTICACHE_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Makes space for at least `needed` items. If the array is too small, its capacity at least doubles, and the items may move.
 * items: the address of a pointer to items of item_size bytes each, allocated with malloc(), or NULL.
 * Returns false if memory is short or the size does not fit in a size_t; the array is then unchanged.
 */
bool aoticache_array_reserve(void *items, size_t *capacity, size_t needed, size_t item_size);

/* Usage: AOTICACHE_ARRAY_RESERVE(list->items, list->capacity, list->count + 1) */
#define AOTICACHE_ARRAY_RESERVE(items, capacity, needed) \
    ((needed) <= (capacity) || aoticache_array_reserve(&(items), &(capacity), (needed), sizeof *(items)))

#endif
