/*
 * cache/gc/evict: a batch of entries goes: those that a process holds stay, the others leave the index, then their
 * files go.
 */
#include <stdlib.h>
#include <string.h>

#include "cache/gc/collection.h"
#include "cache/verify/snapshot.h"

#define MAX_OWNED 1026 /* what a manifest may list, and itself */
#define LOG_PAGES 16000 /* 64 MB: merging takes a fifth of a second, and nobody else does it */
#define AT_ONCE 64     /* looked up before others of this process may use the index again */

static bool is_held(const aoticache_collection *collection, const aoticache_digest *object)
{
    return aoticache_object_is_held(collection->cache->directory, object);
}

/* Of one with many objects. */
static aoticache_status look_at_all(const aoticache_collection *collection, int64_t entry_id, bool *ret_is_held,
                                    aoticache_error *ret_error)
{
    aoticache_index_owned owned[MAX_OWNED];
    size_t count = 0;
    aoticache_status status =
        aoticache_index_entry_objects(collection->index, entry_id, owned, MAX_OWNED, &count, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count && i < MAX_OWNED && !*ret_is_held; i++)
        *ret_is_held = !owned[i].is_manifest && is_held(collection, &owned[i].digest);
    return status;
}

/* Whether a process has an object of the entry in use; nobody needs its manifest once the artifact is open. */
static aoticache_status look_at(const aoticache_collection *collection, const aoticache_index_victim *victim,
                                bool *ret_is_held, aoticache_error *ret_error)
{
    *ret_is_held = false;
    if (victim->object_count == 0)
        return look_at_all(collection, victim->entry_id, ret_is_held, ret_error);
    for (size_t i = 1; i < victim->object_count && !*ret_is_held; i++)
        *ret_is_held = is_held(collection, &victim->objects[i].digest);
    return AOTICACHE_OK;
}

struct batch {
    aoticache_index_victim victims[AOTICACHE_COLLECTION_BATCH];
    aoticache_snapshot_entry copies[AOTICACHE_COLLECTION_BATCH]; /* for the callback */
    size_t count;
};

static bool copy_entry(void *user, const aoticache_index_entry *entry)
{
    aoticache_snapshot_copy(entry, user);
    return false;
}

/* The entries of items that nobody holds, looked up behind those of the batch. */
static aoticache_status prepare_some(aoticache_collection *collection, const aoticache_collection_item *items,
                                     size_t count, struct batch *batch, aoticache_error *ret_error)
{
    aoticache_index_victim *victims = &batch->victims[batch->count];
    for (size_t i = 0; i < count; i++)
        victims[i] = (aoticache_index_victim){
            .entry_id = items[i].entry_id, .last_used_ns = items[i].last_used_ns, .key = items[i].key};
    aoticache_status status = aoticache_index_look_up(collection->index, victims, count, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        bool is_held = false;
        if (!victims[i].is_there)
            continue;
        status = look_at(collection, &victims[i], &is_held, ret_error);
        collection->report.held += is_held ? 1 : 0;
        if (status != AOTICACHE_OK || is_held)
            continue;
        if (collection->callback != NULL)
            status = aoticache_index_read_entry(collection->index, items[i].entry_id, copy_entry,
                                                &batch->copies[batch->count], ret_error);
        if (status == AOTICACHE_OK)
            batch->victims[batch->count++] = victims[i];
    }
    return status;
}

static aoticache_status prepare_batch(aoticache_collection *collection, const aoticache_collection_item *items,
                                      size_t count, struct batch *batch, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (size_t at = 0, some; status == AOTICACHE_OK && at < count; at += some) {
        some = count - at < AT_ONCE ? count - at : AT_ONCE;
        status = prepare_some(collection, items + at, some, batch, ret_error);
    }
    return status;
}

/* Bytes are counted when their files have gone. */
static void count(aoticache_collection *collection, const struct batch *batch, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        int64_t age = collection->now_ns - batch->victims[i].last_used_ns;
        if (batch->victims[i].is_gone)
            aoticache_cache_note_eviction(collection->cache, age > 0 ? (uint64_t)age : 0, 0);
    }
}

/* Without any lock. */
static void tell(aoticache_collection *collection, const struct batch *batch, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (batch->victims[i].is_gone && batch->copies[i].texts != NULL && !collection->is_stopped &&
            !collection->callback(collection->user, &batch->copies[i].entry))
            collection->is_stopped = collection->report.is_partial = true;
}

static size_t round_of(const aoticache_collection *collection)
{
    return collection->cache->round != 0 ? collection->cache->round : AOTICACHE_COLLECTION_ROUND;
}

/* Each transaction is a round: what it frees is needed at once, or there is no time for more. */
static bool is_hurried(const aoticache_collection *collection)
{
    return collection->is_scarce || collection->deadline_ns != UINT64_MAX;
}

aoticache_status aoticache_collection_end_round(aoticache_collection *collection, bool is_last, aoticache_error *ret_error)
{
    const bool is_alone = is_hurried(collection) || collection->is_step, is_empty = collection->round == 0;
    aoticache_status status = AOTICACHE_OK;
    collection->round = 0;
    if (!is_empty && !is_alone)
        status = aoticache_collection_take_off(collection, ret_error);
    if (is_last && !is_empty && !is_alone)
        aoticache_index_checkpoint_if_due(collection->index, AOTICACHE_INDEX_LOG_PAGES); /* beside the files, not after them */
    if (status == AOTICACHE_OK && (is_last || is_alone))
        status = aoticache_collection_land(collection, ret_error);
    if (status == AOTICACHE_OK && !is_empty && is_alone)
        status = aoticache_collection_remove_waiting(collection, ret_error);
    if (is_alone)
        aoticache_index_checkpoint_if_due(collection->index, LOG_PAGES);
    if (status == AOTICACHE_OK && !is_empty)
        aoticache_collection_settle(collection);
    return status;
}

static aoticache_status carry_out(aoticache_collection *collection, struct batch *batch, aoticache_error *ret_error)
{
    for (size_t at = 0; at < batch->count && (at == 0 || aoticache_collection_goes_on(collection));) {
        aoticache_index_eviction eviction;
        const size_t room = aoticache_collection_room(collection);
        const size_t tried = batch->count - at < room ? batch->count - at : room;
        const bool is_round = is_hurried(collection);
        aoticache_status status = is_round ? aoticache_collection_end_round(collection, false, ret_error) : AOTICACHE_OK;
        if (status != AOTICACHE_OK)
            return status;
        status = aoticache_index_evict(collection->index, batch->victims + at, tried, collection->done,
                                       collection->done_count, AOTICACHE_COLLECTION_STRETCH_NS, is_round, &eviction,
                                       ret_error);
        if (status != AOTICACHE_OK && aoticache_collection_retries(collection, tried))
            continue;
        if (status != AOTICACHE_OK)
            return status;
        collection->done_count = 0;
        collection->is_durable = is_round;
        collection->round += eviction.tried;
        collection->report.entries_removed += eviction.entries;
        collection->entries -= eviction.entries < collection->entries ? eviction.entries : collection->entries;
        collection->bytes -= eviction.bytes < collection->bytes ? eviction.bytes : collection->bytes;
        count(collection, batch, at, at + eviction.tried);
        tell(collection, batch, at, at + eviction.tried);
        at += eviction.tried;
        if (is_round || collection->round >= round_of(collection))
            status = aoticache_collection_end_round(collection, false, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    return AOTICACHE_OK;
}

static int by_op(const void *a, const void *b)
{
    const aoticache_collection_item *x = a, *y = b;
    if (x->op != y->op)
        return x->op < y->op ? -1 : 1;
    return (x->entry_id > y->entry_id) - (x->entry_id < y->entry_id);
}

/* All of them are due, so the order matters to nobody, unless it may end in between, or somebody is told of each. */
static bool has_free_order(const aoticache_collection *collection)
{
    return !collection->is_step && !is_hurried(collection) && collection->callback == NULL;
}

static aoticache_status evict_batch(aoticache_collection *collection, const aoticache_collection_item *items,
                                    size_t count, aoticache_error *ret_error)
{
    struct batch *batch = calloc(1, sizeof *batch);
    if (batch == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    aoticache_status status = prepare_batch(collection, items, count, batch, ret_error);
    if (status == AOTICACHE_OK)
        status = carry_out(collection, batch, ret_error);
    for (size_t i = 0; i < AOTICACHE_COLLECTION_BATCH; i++)
        free(batch->copies[i].texts);
    free(batch);
    return status;
}

aoticache_status aoticache_collection_evict(aoticache_collection *collection, aoticache_collection_item *items,
                                            size_t count, aoticache_error *ret_error)
{
    const size_t round = round_of(collection);
    const size_t most = round < AOTICACHE_COLLECTION_BATCH ? round : AOTICACHE_COLLECTION_BATCH;
    aoticache_status status = AOTICACHE_OK;
    if (has_free_order(collection)) /* a transaction of a few operators changes few pages of what is kept by operator */
        qsort(items, count, sizeof *items, by_op);
    for (size_t at = 0, some; status == AOTICACHE_OK && at < count; at += some) {
        some = count - at < most ? count - at : most;
        if (at > 0 && !aoticache_collection_goes_on(collection))
            break;
        status = evict_batch(collection, items + at, some, ret_error);
    }
    return status;
}
