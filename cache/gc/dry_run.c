/*
 * cache/gc/dry_run: what a collection would remove: the same choice, with objects that several artifacts share counted
 * only when the last of these would go.
 */
#include <stdlib.h>
#include <string.h>

#include "cache/gc/collection.h"
#include "cache/verify/snapshot.h"

#define MAX_OWNED 1026

struct aoticache_collection_shared {
    aoticache_digest digest;
    uint64_t gone; /* 0: a free slot */
};

static struct aoticache_collection_shared *find_slot(struct aoticache_collection_shared *slots, size_t capacity,
                                                     const aoticache_digest *digest)
{
    uint64_t hash;
    memcpy(&hash, digest->bytes, sizeof hash); /* a digest is as good a hash as there is */
    size_t at = (size_t)hash & (capacity - 1);
    while (slots[at].gone != 0 && !aoticache_digest_equal(&slots[at].digest, digest))
        at = (at + 1) & (capacity - 1);
    return &slots[at];
}

static bool grow(aoticache_collection *collection)
{
    size_t capacity = collection->shared_capacity != 0 ? collection->shared_capacity * 2 : 64;
    struct aoticache_collection_shared *slots = calloc(capacity, sizeof *slots);
    if (slots == NULL)
        return false;
    for (size_t i = 0; i < collection->shared_capacity; i++)
        if (collection->shared[i].gone != 0)
            *find_slot(slots, capacity, &collection->shared[i].digest) = collection->shared[i];
    free(collection->shared);
    collection->shared = slots;
    collection->shared_capacity = capacity;
    return true;
}

/* One artifact that names the object would go. *ret_last: none is left. */
static bool release(aoticache_collection *collection, const aoticache_index_owned *owned, bool *ret_last)
{
    *ret_last = owned->refs <= 1;
    if (*ret_last)
        return true;
    if (collection->shared_count * 2 >= collection->shared_capacity && !grow(collection))
        return false;
    struct aoticache_collection_shared *slot = find_slot(collection->shared, collection->shared_capacity, &owned->digest);
    collection->shared_count += slot->gone == 0 ? 1 : 0;
    slot->digest = owned->digest;
    *ret_last = ++slot->gone >= owned->refs;
    return true;
}

static bool tell(void *user, const aoticache_index_entry *entry)
{
    return aoticache_snapshot_copy(entry, user) && false;
}

static aoticache_status pretend_one(aoticache_collection *collection, const aoticache_index_owned *owned, size_t count,
                                    aoticache_error *ret_error)
{
    collection->report.entries_removed++;
    collection->entries -= collection->entries > 0 ? 1 : 0;
    for (size_t i = 0; i < count; i++) {
        bool is_last = false;
        if (!release(collection, &owned[i], &is_last))
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
        if (!is_last)
            continue;
        collection->report.objects_removed++;
        collection->report.bytes_removed += owned[i].bytes;
        collection->bytes -= owned[i].bytes < collection->bytes ? owned[i].bytes : collection->bytes;
    }
    return AOTICACHE_OK;
}

static bool any_is_held(const aoticache_collection *collection, const aoticache_index_owned *owned, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!owned[i].is_manifest && aoticache_object_is_held(collection->cache->directory, &owned[i].digest))
            return true;
    return false;
}

aoticache_status aoticache_collection_pretend(aoticache_collection *collection, const aoticache_collection_item *items,
                                              size_t count, aoticache_error *ret_error)
{
    for (size_t i = 0; i < count && !collection->is_stopped; i++) {
        aoticache_index_owned owned[MAX_OWNED];
        size_t objects = 0;
        aoticache_status status = aoticache_index_entry_objects(collection->index, items[i].entry_id, owned, MAX_OWNED,
                                                                &objects, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        objects = objects < MAX_OWNED ? objects : MAX_OWNED;
        bool is_held = any_is_held(collection, owned, objects);
        collection->report.held += is_held ? 1 : 0;
        if (is_held || objects == 0)
            continue;
        status = pretend_one(collection, owned, objects, ret_error);
        aoticache_snapshot_entry copy = {.texts = NULL};
        if (status == AOTICACHE_OK && collection->callback != NULL)
            status = aoticache_index_read_entry(collection->index, items[i].entry_id, tell, &copy, ret_error);
        if (status == AOTICACHE_OK && copy.texts != NULL && !collection->callback(collection->user, &copy.entry))
            collection->is_stopped = collection->report.is_partial = true;
        free(copy.texts);
        if (status != AOTICACHE_OK)
            return status;
    }
    return AOTICACHE_OK;
}

void aoticache_collection_free_dry(aoticache_collection *collection)
{
    free(collection->shared);
    free(collection->waiting);
}
