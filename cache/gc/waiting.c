/*
 * cache/gc/waiting: the files of objects that have left the index. The index keeps a list of them, so that whoever
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

#include "cache/gc/collection.h"
#include "cache/store/lock.h"

#define ROWS 64      /* of a list that is gone through */
#define AT_ONCE 4096 /* objects that are put in order: some of each of the 256 folders */
#define LEAST_CHUNK 16
#define MAX_DONE 8192

static bool is_file(const aoticache_index_removal *removal)
{
    return removal->kind == AOTICACHE_INDEX_REMOVAL_FILE;
}

/* How many may go at the same time: no file beside a manifest, as those go before. */
static size_t next_chunk(const aoticache_collection *collection, const aoticache_index_removal *removals, size_t count)
{
    const size_t likely = collection->chunk > 0 ? collection->chunk : AOTICACHE_COLLECTION_CHUNK;
    const size_t most = count < likely ? count : likely;
    size_t in_chunk = 1;
    while (in_chunk < most && is_file(&removals[0]) == is_file(&removals[in_chunk]))
        in_chunk++;
    return in_chunk;
}

/* A chunk is to be about as much as there is time for: what it does not come to has been looked up in vain. */
static void note_speed(aoticache_collection *collection, size_t count, size_t reached)
{
    const size_t next = reached < count ? reached : count + count / 8 + 1;
    collection->chunk = next < LEAST_CHUNK                  ? LEAST_CHUNK
                        : next < AOTICACHE_COLLECTION_CHUNK ? next
                                                            : AOTICACHE_COLLECTION_CHUNK;
}

/*
 * The files of a list in order, from *at on: as many as there is time for, and what is begun then, up to as long again.
 * With the store locked.
 */
static aoticache_status remove_some(aoticache_collection *collection, aoticache_index_removal *removals, size_t count,
                                    size_t *at, aoticache_error *ret_error)
{
    const uint64_t end_ns = aoticache_monotonic_ns() + AOTICACHE_COLLECTION_STRETCH_NS;
    aoticache_status status = AOTICACHE_OK;
    while (status == AOTICACHE_OK && *at < count && aoticache_monotonic_ns() <= end_ns) {
        const size_t in_chunk = next_chunk(collection, removals + *at, count - *at);
        status = aoticache_index_check_removals(collection->index, removals + *at, in_chunk, ret_error);
        if (status != AOTICACHE_OK)
            break;
        const size_t reached = aoticache_collection_remove_chunk(collection, removals + *at, in_chunk,
                                                                 end_ns + AOTICACHE_COLLECTION_STRETCH_NS);
        note_speed(collection, in_chunk, reached);
        *at += reached;
    }
    return status;
}

/* ---- lists ---- */

/* *ret_lock is held where *ret_is_current is set; else the collection is to end. */
static aoticache_status lock_store(aoticache_collection *collection, aoticache_lock *ret_lock, bool *ret_is_current,
                                   aoticache_error *ret_error)
{
    aoticache_status status = aoticache_lock_store(collection->cache->directory, true, ret_lock, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    /* A new index was built of the manifests that are there: what the old one no longer names may be named again. */
    *ret_is_current = aoticache_cache_index_is_current(collection->cache);
    if (*ret_is_current)
        return AOTICACHE_OK;
    aoticache_lock_release(ret_lock);
    collection->is_replaced = collection->is_stopped = collection->report.is_partial = true;
    return AOTICACHE_OK;
}

/* One stretch with the lock. */
static aoticache_status stretch(aoticache_collection *collection, aoticache_index_removal *removals, size_t count,
                                size_t *at, aoticache_error *ret_error)
{
    aoticache_lock lock = AOTICACHE_LOCK_INIT;
    bool is_current = false;
    aoticache_status status = lock_store(collection, &lock, &is_current, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (is_current)
        status = remove_some(collection, removals, count, at, ret_error);
    else
        *at = count;
    aoticache_lock_release(&lock);
    return status;
}

static int by_folder(const void *a, const void *b)
{
    const aoticache_index_removal *x = a, *y = b;
    const int order = is_file(x) - is_file(y), by_name = memcmp(&x->object, &y->object, sizeof x->object);
    return order != 0 ? order : by_name != 0 ? by_name : (int)x->kind - (int)y->kind;
}

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

aoticache_status aoticache_collection_make_durable(aoticache_collection *collection, aoticache_error *ret_error)
{
    if (collection->is_durable)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_settle(collection->index, ret_error);
    if (status != AOTICACHE_OK && aoticache_index_is_out_of_space(collection->index)) {
        aoticache_index_truncate_log(collection->index); /* has its room for what is to be written */
        status = aoticache_index_settle(collection->index, ret_error);
    }
    collection->is_durable = status == AOTICACHE_OK;
    return status;
}

aoticache_status aoticache_collection_remove_listed(aoticache_collection *collection, aoticache_index_removal *removals,
                                                    size_t count, aoticache_error *ret_error)
{
    size_t at = 0;
    aoticache_status status = AOTICACHE_OK;
    qsort(removals, count, sizeof *removals, by_folder);
    while (status == AOTICACHE_OK && at < count) {
        status = stretch(collection, removals, count, &at, ret_error);
        if (collection->is_backlog && at < count && !aoticache_collection_goes_on(collection))
            break;
    }
    if (collection->done_count > 1)
        qsort(collection->done, collection->done_count, sizeof *collection->done, by_number);
    return status;
}

static aoticache_status remove_list(aoticache_collection *collection, aoticache_index_removal *removals, size_t count,
                                    aoticache_error *ret_error)
{
    aoticache_status status = aoticache_collection_make_durable(collection, ret_error);
    collection->removal_id = removals[count - 1].id;
    if (status == AOTICACHE_OK)
        status = aoticache_collection_remove_listed(collection, removals, count, ret_error);
    /* A backlog is there because collections were killed: this one may be, too, and the next is to go on from here. */
    if (status == AOTICACHE_OK && (collection->is_backlog || collection->done_count > MAX_DONE))
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
    while (status == AOTICACHE_OK && count == AT_ONCE && !collection->is_replaced &&
           !(collection->is_backlog && collection->is_stopped)) {
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
