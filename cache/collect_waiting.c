/*
 * cache/collect_waiting: the files of objects that have left the index. The index keeps a list of them, so that whoever
 * comes after a killed process knows what to remove without looking for it.
 *
 * With the store locked exclusively no put is at work, so an object that has no row now is nobody's; one that a process
 * holds stays on the list until it is let go.
 */
#include <stdlib.h>
#include <string.h>

#include "cache/collection.h"
#include "cache/lock.h"

#define ROWS 64
#define MAX_DONE 8192

static bool note_done(aoticache_collection *collection, int64_t id)
{
    if (collection->done_count == collection->done_capacity) {
        size_t capacity = collection->done_capacity != 0 ? collection->done_capacity * 2 : 256;
        int64_t *done = reallocarray(collection->done, capacity, sizeof *done);
        if (done == NULL)
            return false; /* it stays on the list, and is found gone by the next collection */
        collection->done = done;
        collection->done_capacity = capacity;
    }
    collection->done[collection->done_count++] = id;
    return true;
}

static void remove_one(aoticache_collection *collection, const aoticache_index_removal *removal)
{
    aoticache_cache *cache = collection->cache;
    aoticache_error error = {.message = ""};
    uint64_t bytes = 0;
    aoticache_status status = AOTICACHE_NOT_FOUND;
    if (!removal->is_named) {
        if (removal->kind == AOTICACHE_INDEX_REMOVAL_FOLDER)
            aoticache_cache_remove_side_files(cache, &removal->object);
        status = aoticache_object_remove(cache->directory, &removal->object, &bytes, &error);
    }
    if (status == AOTICACHE_OK) {
        collection->report.objects_removed++;
        collection->report.bytes_removed += bytes;
    }
    if (status == AOTICACHE_OK || status == AOTICACHE_NOT_FOUND)
        note_done(collection, removal->id);
    else if (status != AOTICACHE_LOCKED && collection->late_status == AOTICACHE_OK) {
        collection->late_status = status;
        collection->late_error = error;
    }
}

/* One stretch with the lock. *ret_goes_on: there may be more. */
static aoticache_status stretch(aoticache_collection *collection, bool *ret_goes_on, aoticache_error *ret_error)
{
    aoticache_index_removal rows[ROWS];
    size_t count = 0, at = 0;
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    aoticache_status status = aoticache_lock_store(collection->cache->directory, true, &lock, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const uint64_t begun = aoticache_monotonic_ns();
    /* A new index was built of the manifests that are there: what the old one no longer names may be named again. */
    if (!aoticache_cache_index_is_current(collection->cache)) {
        collection->is_stopped = collection->report.is_partial = true;
        aoticache_lock_release(&lock);
        *ret_goes_on = false;
        return AOTICACHE_OK;
    }
    do {
        status = aoticache_index_list_removals(collection->index, collection->removal_id, rows, ROWS, &count, ret_error);
        for (at = 0; status == AOTICACHE_OK && at < count; at++) {
            remove_one(collection, &rows[at]);
            collection->removal_id = rows[at].id;
            if (aoticache_monotonic_ns() - begun > AOTICACHE_COLLECTION_STRETCH_NS)
                break;
        }
    } while (status == AOTICACHE_OK && count == ROWS && at == count);
    aoticache_lock_release(&lock);
    *ret_goes_on = at < count;
    return status;
}

aoticache_status aoticache_collection_remove_waiting(aoticache_collection *collection, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (bool goes_on = true; status == AOTICACHE_OK && goes_on;) {
        status = stretch(collection, &goes_on, ret_error);
        if (status == AOTICACHE_OK && collection->done_count > MAX_DONE)
            status = aoticache_collection_forget_done(collection, ret_error);
    }
    return status;
}

aoticache_status aoticache_collection_forget_done(aoticache_collection *collection, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_forget_removals(collection->index, collection->done, collection->done_count,
                                                              ret_error);
    collection->done_count = 0;
    return status;
}

/* ---- before anything is done ---- */

static bool add_waiting(aoticache_collection *collection, const aoticache_digest *digest)
{
    if ((collection->waiting_count & (collection->waiting_count - 1)) == 0) {
        size_t capacity = collection->waiting_count == 0 ? 1 : collection->waiting_count * 2;
        aoticache_digest *waiting = reallocarray(collection->waiting, capacity, sizeof *waiting);
        if (waiting == NULL)
            return false;
        collection->waiting = waiting;
    }
    collection->waiting[collection->waiting_count++] = *digest;
    return true;
}

static int by_digest(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(aoticache_digest));
}

aoticache_status aoticache_collection_count_waiting(aoticache_collection *collection, aoticache_error *ret_error)
{
    aoticache_index_removal rows[ROWS];
    size_t count = ROWS;
    aoticache_status status = AOTICACHE_OK;
    for (int64_t after = INT64_MIN; status == AOTICACHE_OK && count == ROWS; after = rows[count - 1].id) {
        status = aoticache_index_list_removals(collection->index, after, rows, ROWS, &count, ret_error);
        for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
            const aoticache_digest *object = &rows[i].object;
            if (rows[i].is_named)
                continue;
            collection->report.bytes_before += rows[i].bytes;
            if (!collection->options->dry_run)
                continue;
            if (!add_waiting(collection, object))
                return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
            if (aoticache_object_is_held(collection->cache->directory, object))
                continue;
            collection->report.objects_removed++;
            collection->report.bytes_removed += rows[i].bytes;
        }
        if (count == 0)
            break;
    }
    if (collection->waiting_count > 1)
        qsort(collection->waiting, collection->waiting_count, sizeof *collection->waiting, by_digest);
    return status;
}
