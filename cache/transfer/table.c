/*
 * cache/transfer/table: see table.h. Digests are as good as random, so a part of one serves as hash.
 */
#include "cache/transfer/table.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 1024

/* Where the digest is, or the free slot where it belongs. */
static aoticache_transfer_object *slot_of(const aoticache_transfer_table *table, const aoticache_digest *digest)
{
    uint64_t hash;
    memcpy(&hash, digest->bytes, sizeof hash);
    for (size_t i = (size_t)hash & (table->capacity - 1);; i = (i + 1) & (table->capacity - 1)) {
        aoticache_transfer_object *slot = &table->slots[i];
        if (slot->state == 0 || aoticache_digest_equal(&slot->digest, digest))
            return slot;
    }
}

aoticache_transfer_object *aoticache_transfer_table_find(const aoticache_transfer_table *table,
                                                         const aoticache_digest *digest)
{
    if (table->capacity == 0)
        return NULL;
    aoticache_transfer_object *slot = slot_of(table, digest);
    return slot->state != 0 ? slot : NULL;
}

static bool grow(aoticache_transfer_table *table)
{
    aoticache_transfer_table larger = {.capacity = table->capacity != 0 ? table->capacity * 2 : FIRST_CAPACITY,
                                       .count = table->count};
    larger.slots = calloc(larger.capacity, sizeof *larger.slots);
    if (larger.slots == NULL)
        return false;
    for (size_t i = 0; i < table->capacity; i++)
        if (table->slots[i].state != 0)
            *slot_of(&larger, &table->slots[i].digest) = table->slots[i];
    free(table->slots);
    *table = larger;
    return true;
}

aoticache_transfer_object *aoticache_transfer_table_add(aoticache_transfer_table *table,
                                                        const aoticache_digest *digest)
{
    if (table->count >= table->capacity / 4 * 3 && !grow(table))
        return NULL;
    aoticache_transfer_object *slot = slot_of(table, digest);
    if (slot->state == 0) {
        *slot = (aoticache_transfer_object){.digest = *digest, .state = AOTICACHE_TRANSFER_PENDING};
        table->count++;
    }
    return slot;
}

void aoticache_transfer_table_free(aoticache_transfer_table *table)
{
    free(table->slots);
    *table = (aoticache_transfer_table){.slots = NULL};
}
