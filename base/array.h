/*
 * base/array: an array that grows.
 *
 * The owner keeps the three members that it needs anyway: the items, how many there are, how many there is space for. It
 * begins with NULL, 0, 0 and ends with free().
 */
#ifndef AOTICACHE_BASE_ARRAY_H
#define AOTICACHE_BASE_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Makes space for `needed` items in all, at least twice as many as before where there was too little. The items move.
 * items: the address of a pointer to items of item_size bytes each, from malloc(), or NULL.
 * Returns false if memory is short, or where so many do not fit in a size_t; then all stays as it was.
 */
bool aoticache_array_reserve(void *items, size_t *capacity, size_t needed, size_t item_size);

/* AOTICACHE_ARRAY_RESERVE(list->items, list->capacity, list->count + 1) */
#define AOTICACHE_ARRAY_RESERVE(items, capacity, needed) \
    ((needed) <= (capacity) || aoticache_array_reserve(&(items), &(capacity), (needed), sizeof *(items)))

#endif
