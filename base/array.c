/*
 * base/array: an array that grows. Only this file computes the size of an array in bytes.
 */
#include "base/array.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_ITEMS 16

bool aoticache_array_reserve(void *items, size_t *capacity, size_t needed, size_t item_size)
{
    void *old, *grown;
    if (needed <= *capacity)
        return true;
    const size_t twice = *capacity <= SIZE_MAX / 2 ? *capacity * 2 : SIZE_MAX;
    const size_t wanted = twice > needed ? twice : needed > LEAST_ITEMS ? needed : LEAST_ITEMS;
    memcpy(&old, items, sizeof old); /* a pointer to items of any type has the representation of a void * */
    grown = reallocarray(old, wanted, item_size);
    if (grown == NULL)
        return false;
    memcpy(items, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}
