/*
 * cache/stats/recency: see recency.h.
 */
#include "cache/stats/recency.h"

#include <stdlib.h>

#define FIRST_CAPACITY 64

static aoticache_index_tally *find_slot(aoticache_index_tally *slots, size_t capacity, int64_t entry_id)
{
    size_t at = (size_t)(((uint64_t)entry_id * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (capacity - 1);
    while (slots[at].entry_id != 0 && slots[at].entry_id != entry_id)
        at = (at + 1) & (capacity - 1);
    return &slots[at];
}

static bool grow(aoticache_recency *recency)
{
    size_t capacity = recency->capacity != 0 ? recency->capacity * 2 : FIRST_CAPACITY;
    aoticache_index_tally *slots = calloc(capacity, sizeof *slots);
    if (slots == NULL)
        return false;
    for (size_t i = 0; i < recency->capacity; i++)
        if (recency->slots[i].entry_id != 0)
            *find_slot(slots, capacity, recency->slots[i].entry_id) = recency->slots[i];
    free(recency->slots);
    recency->slots = slots;
    recency->capacity = capacity;
    return true;
}

bool aoticache_recency_add(aoticache_recency *recency, const aoticache_index_tally *tally)
{
    if (tally->entry_id == 0 || (recency->count * 2 >= recency->capacity && !grow(recency)))
        return false;
    aoticache_index_tally *slot = find_slot(recency->slots, recency->capacity, tally->entry_id);
    if (slot->entry_id == 0) {
        recency->count++;
        *slot = (aoticache_index_tally){.entry_id = tally->entry_id};
    }
    slot->uses += tally->uses;
    slot->hits += tally->hits;
    slot->misses += tally->misses;
    slot->compiles += tally->compiles;
    slot->compile_ns += tally->compile_ns;
    slot->saved_ns += tally->saved_ns;
    if (tally->last_used_ns > slot->last_used_ns)
        slot->last_used_ns = tally->last_used_ns;
    return true;
}

void aoticache_recency_take(aoticache_recency *recency, aoticache_index_tally **ret_tallies, size_t *ret_count)
{
    size_t count = 0;
    for (size_t i = 0; i < recency->capacity; i++)
        if (recency->slots[i].entry_id != 0)
            recency->slots[count++] = recency->slots[i];
    *ret_tallies = recency->slots;
    *ret_count = count;
    *recency = (aoticache_recency){.slots = NULL};
}

void aoticache_recency_free(aoticache_recency *recency)
{
    free(recency->slots);
    *recency = (aoticache_recency){.slots = NULL};
}
