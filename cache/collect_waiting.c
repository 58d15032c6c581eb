/*
 * cache/collect_waiting: the files of objects that have left the index. The index keeps a list of them, so that whoever
 * comes after a killed process knows what to remove without looking for it.
 *
 * With the store locked exclusively no put is at work, so an object that has no row now is nobody's; one that a process
 * holds stays on the list until it is let go.
 *
 * Files go folder by folder, which spares opening each folder anew and is what file systems do best; all the manifests
 * of a list before the rest, so that a rebuilt index does not bring an entry back.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache/collection.h"
#include "cache/lock.h"

#define ROWS 64
#define AT_ONCE 4096 /* objects that are put in order: some of each of the 256 folders */
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

static void remove_one(aoticache_collection *collection, const aoticache_index_removal *removal,
                       aoticache_object_folder *folder)
{
    aoticache_cache *cache = collection->cache;
    aoticache_error error = {.message = ""};
    uint64_t bytes = 0;
    aoticache_status status = AOTICACHE_NOT_FOUND;
    if (!removal->is_named) {
        if (removal->kind == AOTICACHE_INDEX_REMOVAL_FOLDER)
            aoticache_cache_remove_side_files(cache, &removal->object);
        status = aoticache_object_remove_next(cache->directory, folder, &removal->object,
                                              removal->kind != AOTICACHE_INDEX_REMOVAL_FILE, &bytes, &error);
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

/* Of a list in order, from *at on: as many as there is time for. With the store locked. */
static aoticache_status remove_some(aoticache_collection *collection, aoticache_index_removal *removals, size_t count,
                                    size_t *at, aoticache_error *ret_error)
{
    const uint64_t end_ns = aoticache_monotonic_ns() + AOTICACHE_COLLECTION_STRETCH_NS;
    aoticache_object_folder folder = AOTICACHE_OBJECT_FOLDER_INIT;
    aoticache_status status = AOTICACHE_OK;
    bool is_over = false;
    while (status == AOTICACHE_OK && !is_over && *at < count) {
        const size_t end = count - *at < ROWS ? count : *at + ROWS;
        status = aoticache_index_check_removals(collection->index, removals + *at, end - *at, ret_error);
        while (status == AOTICACHE_OK && !is_over && *at < end) {
            remove_one(collection, &removals[(*at)++], &folder);
            is_over = aoticache_monotonic_ns() > end_ns;
        }
    }
    if (folder.fd >= 0)
        close(folder.fd);
    return status;
}

/* One stretch with the lock. */
static aoticache_status stretch(aoticache_collection *collection, aoticache_index_removal *removals, size_t count,
                                size_t *at, aoticache_error *ret_error)
{
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    aoticache_status status = aoticache_lock_store(collection->cache->directory, true, &lock, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    /* A new index was built of the manifests that are there: what the old one no longer names may be named again. */
    if (aoticache_cache_index_is_current(collection->cache)) {
        status = remove_some(collection, removals, count, at, ret_error);
    } else {
        collection->is_replaced = collection->is_stopped = collection->report.is_partial = true;
        *at = count;
    }
    aoticache_lock_release(&lock);
    return status;
}

static int by_folder(const void *a, const void *b)
{
    const aoticache_index_removal *x = a, *y = b;
    const bool x_is_file = x->kind == AOTICACHE_INDEX_REMOVAL_FILE, y_is_file = y->kind == AOTICACHE_INDEX_REMOVAL_FILE;
    return x_is_file != y_is_file ? x_is_file - y_is_file : memcmp(&x->object, &y->object, sizeof x->object);
}

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* No file may go before it is on disk that no entry needs it. */
static aoticache_status make_durable(aoticache_collection *collection, aoticache_error *ret_error)
{
    if (collection->is_durable)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_settle(collection->index, ret_error);
    if (status != AOTICACHE_OK && aoticache_index_is_out_of_room(collection->index)) {
        aoticache_index_truncate_log(collection->index); /* has its room for what is to be written */
        status = aoticache_index_settle(collection->index, ret_error);
    }
    collection->is_durable = status == AOTICACHE_OK;
    return status;
}

static aoticache_status remove_list(aoticache_collection *collection, aoticache_index_removal *removals, size_t count,
                                    aoticache_error *ret_error)
{
    aoticache_status status = make_durable(collection, ret_error);
    collection->removal_id = removals[count - 1].id;
    qsort(removals, count, sizeof *removals, by_folder);
    for (size_t at = 0; status == AOTICACHE_OK && at < count;)
        status = stretch(collection, removals, count, &at, ret_error);
    if (collection->done_count > 1)
        qsort(collection->done, collection->done_count, sizeof *collection->done, by_number);
    if (status == AOTICACHE_OK && collection->done_count > MAX_DONE)
        status = aoticache_collection_forget_done(collection, ret_error);
    return status;
}

aoticache_status aoticache_collection_remove_waiting(aoticache_collection *collection, aoticache_error *ret_error)
{
    aoticache_index_removal *removals = malloc(AT_ONCE * sizeof *removals);
    size_t count = removals != NULL ? AT_ONCE : 0;
    aoticache_status status = AOTICACHE_OK;
    if (removals == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    while (status == AOTICACHE_OK && count == AT_ONCE && !collection->is_replaced) {
        status = aoticache_index_list_removals(collection->index, collection->removal_id, removals, AT_ONCE, &count,
                                               ret_error);
        if (status == AOTICACHE_OK && count > 0)
            status = remove_list(collection, removals, count, ret_error);
    }
    free(removals);
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
        if (status == AOTICACHE_OK)
            status = aoticache_index_check_removals(collection->index, rows, count, ret_error);
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
