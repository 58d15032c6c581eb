/*
 * cache/gc/evict: removes entries from the index, a batch at a time; those that a process holds stay. Also handles a lack of
 * free space, and the counts of a dry run.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "cache/gc/gc_internal.h"
#include "base/array.h"
#include "cache/entry_list.h"

#define MAX_OWNED 1026      /* the limit for a manifest's files, plus the manifest itself */
#define LOG_PAGES 16000     /* 64 MB: merging takes a fifth of a second, and no other process does it */
#define RESOLVED_AT_ONCE 64 /* entries, before other threads of this process may use the index again */

/*
 * ---- free space ----
 *
 * Removing entries needs space itself: the log grows by some pages for each, and the index by the records of waiting files.
 * So the fewer bytes are free, the fewer entries are removed in one batch; their files are removed before the next batch,
 * and the log is merged and truncated. If a batch still does not fit, smaller ones are tried, and finally everything that
 * can be removed without the index. If almost nothing is free, the reserve is released first.
 */

/* Space is not short if this much is free for each entry of a batch: far more than an entry takes, because other processes
 * write too. */
#define ENTRY_BYTES (UINT64_C(256) << 10)
#define LEAST_BATCH 8

static bool read_free_space(const aoticache_collection *collection, uint64_t *ret_bytes)
{
    struct statvfs filesystem;
    if (fstatvfs(collection->cache->directory->fd, &filesystem) != 0)
        return false;
    *ret_bytes = (uint64_t)filesystem.f_bavail * filesystem.f_frsize;
    return true;
}

size_t aoticache_collection_measure_space(aoticache_collection *collection)
{
    size_t limit = collection->has_run_out ? collection->batch_limit : AOTICACHE_COLLECTION_BATCH;
    uint64_t bytes;
    if (read_free_space(collection, &bytes) && bytes / ENTRY_BYTES < limit)
        limit = bytes / ENTRY_BYTES > LEAST_BATCH ? bytes / ENTRY_BYTES : limit < LEAST_BATCH ? limit : LEAST_BATCH;
    collection->is_short_of_space = limit < AOTICACHE_COLLECTION_BATCH;
    return limit;
}

/* Call this after a batch whose files are removed: truncates the log if space is short, and allows a larger next batch. */
static void recover_space(aoticache_collection *collection)
{
    if (collection->is_short_of_space)
        aoticache_index_truncate_log(collection->index);
    if (collection->has_run_out && collection->batch_limit < AOTICACHE_COLLECTION_BATCH)
        collection->batch_limit++;
}

/* Ignores failures: they will recur where the step is due, and be reported there. */
void aoticache_collection_clear(aoticache_collection *collection)
{
    if (aoticache_reserve_is_needed(collection->cache))
        aoticache_reserve_give_up(collection->cache);
    aoticache_index_truncate_log(collection->index);
    aoticache_cache_remove_leftovers(collection->cache, false, &collection->report.leftovers, NULL);
    aoticache_collection_remove_quarantine(collection, false);
}

/*
 * Called after a batch of `tried` entries has failed: makes the next one smaller, or otherwise frees space in another way.
 * Returns false if the failure was of another kind, or there is nothing left to try.
 */
static bool make_space(aoticache_collection *collection, size_t tried)
{
    if (!aoticache_index_is_out_of_space(collection->index))
        return false;
    collection->has_run_out = true;
    collection->batch_limit = tried > 1 ? tried / 2 : 1;
    if (tried > 1)
        return true;
    if (collection->done_count > 0) { /* their records stay, and the next collection finds the files gone */
        collection->done_count = 0;
        return true;
    }
    if (collection->is_step || collection->has_cleared)
        return false;
    collection->has_cleared = true;
    aoticache_reserve_give_up(collection->cache);
    aoticache_collection_clear(collection);
    aoticache_collection_scan(collection, NULL);
    return true;
}

/* ---- before the transaction: the objects of entries, and whether a process holds them ---- */

static bool object_is_in_use(const aoticache_collection *collection, const aoticache_digest *object)
{
    return aoticache_object_is_held(collection->cache->directory, object);
}

/* Ignores the manifest, which is not needed after the artifact is open. */
static bool any_is_in_use(const aoticache_collection *collection, const aoticache_index_owned *owned, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!owned[i].is_manifest && object_is_in_use(collection, &owned[i].digest))
            return true;
    return false;
}

/* Handles an entry with more objects than a victim has space for. */
static aoticache_status large_entry_is_in_use(const aoticache_collection *collection, int64_t entry_id,
                                              bool *ret_is_in_use, aoticache_error *ret_error)
{
    aoticache_index_owned owned[MAX_OWNED];
    size_t count = 0;
    aoticache_status status =
        aoticache_index_entry_objects(collection->index, entry_id, owned, MAX_OWNED, &count, ret_error);
    if (status == AOTICACHE_OK)
        *ret_is_in_use = any_is_in_use(collection, owned, count < MAX_OWNED ? count : MAX_OWNED);
    return status;
}

/* Checks whether a process holds the entry. The first object of a victim is its manifest. */
static aoticache_status entry_is_in_use(const aoticache_collection *collection, const aoticache_index_victim *victim,
                                        bool *ret_is_in_use, aoticache_error *ret_error)
{
    *ret_is_in_use = false;
    if (victim->object_count == 0)
        return large_entry_is_in_use(collection, victim->entry_id, ret_is_in_use, ret_error);
    for (size_t i = 1; i < victim->object_count && !*ret_is_in_use; i++)
        *ret_is_in_use = object_is_in_use(collection, &victim->objects[i].digest);
    return AOTICACHE_OK;
}

struct batch {
    aoticache_index_victim victims[AOTICACHE_COLLECTION_BATCH];
    aoticache_listed_entry copies[AOTICACHE_COLLECTION_BATCH]; /* for the callback */
    size_t count;
};

static bool copy_entry(void *user, const aoticache_index_entry *entry)
{
    aoticache_entry_list_copy(entry, user);
    return false;
}

/* Adds the entries of `items` that no process holds to the batch, with their objects. */
static aoticache_status resolve_victims(aoticache_collection *collection, const aoticache_collection_item *items,
                                        size_t count, struct batch *batch, aoticache_error *ret_error)
{
    aoticache_index_victim *victims = &batch->victims[batch->count];
    for (size_t i = 0; i < count; i++)
        victims[i] = (aoticache_index_victim){
            .entry_id = items[i].entry_id, .last_used_ns = items[i].last_used_ns, .key = items[i].key};
    aoticache_status status = aoticache_index_look_up(collection->index, victims, count, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        bool is_in_use = false;
        if (!victims[i].is_there)
            continue;
        status = entry_is_in_use(collection, &victims[i], &is_in_use, ret_error);
        collection->report.held += is_in_use ? 1 : 0;
        if (status != AOTICACHE_OK || is_in_use)
            continue;
        if (collection->callback != NULL)
            status = aoticache_index_read_entry(collection->index, items[i].entry_id, copy_entry,
                                                &batch->copies[batch->count], ret_error);
        if (status == AOTICACHE_OK)
            batch->victims[batch->count++] = victims[i];
    }
    return status;
}

static aoticache_status resolve_batch(aoticache_collection *collection, const aoticache_collection_item *items,
                                      size_t count, struct batch *batch, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (size_t at = 0, some; status == AOTICACHE_OK && at < count; at += some) {
        some = count - at < RESOLVED_AT_ONCE ? count - at : RESOLVED_AT_ONCE;
        status = resolve_victims(collection, items + at, some, batch, ret_error);
    }
    return status;
}

/* ---- rounds ---- */

static size_t round_size(const aoticache_collection *collection)
{
    return collection->cache->round != 0 ? collection->cache->round : AOTICACHE_COLLECTION_ROUND;
}

/* Returns whether each transaction is a round: the freed space is needed immediately, or time is short. */
static bool rounds_are_short(const aoticache_collection *collection)
{
    return collection->is_short_of_space || collection->deadline_ns != UINT64_MAX;
}

aoticache_status aoticache_collection_end_round(aoticache_collection *collection, bool is_last,
                                                aoticache_error *ret_error)
{
    const bool in_foreground = rounds_are_short(collection) || collection->is_step, is_empty = collection->round == 0;
    aoticache_status status = AOTICACHE_OK;
    collection->round = 0;
    if (!is_empty && !in_foreground)
        status = aoticache_collection_start_removal(collection, ret_error);
    if (is_last && !is_empty && !in_foreground) /* during the background removal, not after it */
        aoticache_index_checkpoint_if_due(collection->index, AOTICACHE_INDEX_LOG_PAGES);
    if (status == AOTICACHE_OK && (is_last || in_foreground))
        status = aoticache_collection_finish_removal(collection, ret_error);
    if (status == AOTICACHE_OK && !is_empty && in_foreground)
        status = aoticache_collection_remove_files(collection, false, ret_error);
    if (in_foreground)
        aoticache_index_checkpoint_if_due(collection->index, LOG_PAGES);
    if (status == AOTICACHE_OK && !is_empty)
        recover_space(collection);
    return status;
}

/* Counts evictions; bytes are counted when the files are removed. */
static void count_evictions(aoticache_collection *collection, const struct batch *batch, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        int64_t age = collection->now_ns - batch->victims[i].last_used_ns;
        if (batch->victims[i].is_gone)
            aoticache_cache_note_eviction(collection->cache, age > 0 ? (uint64_t)age : 0, 0);
    }
}

/* Calls the caller's function without any lock. */
static void report_evictions(aoticache_collection *collection, const struct batch *batch, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (batch->victims[i].is_gone && batch->copies[i].texts != NULL && !collection->is_stopped &&
            !collection->callback(collection->user, &batch->copies[i].entry))
            collection->is_stopped = collection->report.is_partial = true;
}

static aoticache_status evict_victims(aoticache_collection *collection, struct batch *batch, aoticache_error *ret_error)
{
    for (size_t at = 0; at < batch->count && (at == 0 || aoticache_collection_poll(collection));) {
        aoticache_index_eviction eviction;
        const size_t limit = aoticache_collection_measure_space(collection);
        const size_t tried = batch->count - at < limit ? batch->count - at : limit;
        const bool is_round = rounds_are_short(collection);
        aoticache_status status =
            is_round ? aoticache_collection_end_round(collection, false, ret_error) : AOTICACHE_OK;
        if (status != AOTICACHE_OK)
            return status;
        status = aoticache_index_evict(collection->index, batch->victims + at, tried, collection->done,
                                       collection->done_count, AOTICACHE_COLLECTION_STRETCH_NS, is_round, &eviction,
                                       ret_error);
        if (status != AOTICACHE_OK && make_space(collection, tried))
            continue;
        if (status != AOTICACHE_OK)
            return status;
        collection->done_count = 0;
        collection->is_durable = is_round;
        collection->round += eviction.tried;
        collection->report.entries_removed += eviction.entries;
        collection->entries -= eviction.entries < collection->entries ? eviction.entries : collection->entries;
        collection->bytes -= eviction.bytes < collection->bytes ? eviction.bytes : collection->bytes;
        count_evictions(collection, batch, at, at + eviction.tried);
        report_evictions(collection, batch, at, at + eviction.tried);
        at += eviction.tried;
        if (is_round || collection->round >= round_size(collection))
            status = aoticache_collection_end_round(collection, false, ret_error);
        if (status != AOTICACHE_OK)
            return status;
    }
    return AOTICACHE_OK;
}

static aoticache_status evict_batch(aoticache_collection *collection, const aoticache_collection_item *items,
                                    size_t count, aoticache_error *ret_error)
{
    struct batch *batch = calloc(1, sizeof *batch);
    if (batch == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
    aoticache_status status = resolve_batch(collection, items, count, batch, ret_error);
    if (status == AOTICACHE_OK)
        status = evict_victims(collection, batch, ret_error);
    for (size_t i = 0; i < AOTICACHE_COLLECTION_BATCH; i++)
        free(batch->copies[i].texts);
    free(batch);
    return status;
}

static int by_op(const void *a, const void *b)
{
    const aoticache_collection_item *x = a, *y = b;
    if (x->op != y->op)
        return x->op < y->op ? -1 : 1;
    return (x->entry_id > y->entry_id) - (x->entry_id < y->entry_id);
}

/* Returns whether the order of eviction is arbitrary: all items are due, so it matters only if the collection may stop
 * early, or the caller receives each entry. */
static bool order_is_free(const aoticache_collection *collection)
{
    return !collection->is_step && !rounds_are_short(collection) && collection->callback == NULL;
}

aoticache_status aoticache_collection_evict(aoticache_collection *collection, aoticache_collection_item *items,
                                            size_t count, aoticache_error *ret_error)
{
    const size_t round = round_size(collection);
    const size_t most = round < AOTICACHE_COLLECTION_BATCH ? round : AOTICACHE_COLLECTION_BATCH;
    aoticache_status status = AOTICACHE_OK;
    if (order_is_free(collection)) /* a transaction for few operators changes few pages of the indexes by operator */
        qsort(items, count, sizeof *items, by_op);
    for (size_t at = 0, some; status == AOTICACHE_OK && at < count; at += some) {
        some = count - at < most ? count - at : most;
        if (at > 0 && !aoticache_collection_poll(collection))
            break;
        status = evict_batch(collection, items + at, some, ret_error);
    }
    return status;
}

/*
 * ---- dry run ----
 *
 * The choice is the same. An object that several artifacts share is counted only when the last of them would be removed.
 */

struct shared_object {
    aoticache_digest digest;
    uint64_t gone;
};

static const aoticache_hash_map_type shared_type = {.item_size = sizeof(struct shared_object),
                                                    .key_size = sizeof(aoticache_digest)};

/* Notes that one artifact that names the object would be removed. *ret_last: it is the last. */
static bool release_object(aoticache_collection *collection, const aoticache_index_owned *owned, bool *ret_last)
{
    *ret_last = owned->refs <= 1;
    if (*ret_last)
        return true;
    bool is_new;
    struct shared_object *object = aoticache_hash_map_add(&collection->shared, &shared_type, &owned->digest, &is_new);
    if (object == NULL)
        return false;
    *ret_last = ++object->gone >= owned->refs;
    return true;
}

static aoticache_status count_as_evicted(aoticache_collection *collection, const aoticache_index_owned *owned,
                                         size_t count, aoticache_error *ret_error)
{
    collection->report.entries_removed++;
    collection->entries -= collection->entries > 0 ? 1 : 0;
    for (size_t i = 0; i < count; i++) {
        bool is_last = false;
        if (!release_object(collection, &owned[i], &is_last))
            return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
        if (!is_last)
            continue;
        collection->report.objects_removed++;
        collection->report.bytes_removed += owned[i].bytes;
        collection->bytes -= owned[i].bytes < collection->bytes ? owned[i].bytes : collection->bytes;
    }
    return AOTICACHE_OK;
}

aoticache_status aoticache_collection_pretend(aoticache_collection *collection, const aoticache_collection_item *items,
                                              size_t count, aoticache_error *ret_error)
{
    for (size_t i = 0; i < count && !collection->is_stopped; i++) {
        aoticache_index_owned owned[MAX_OWNED];
        size_t objects = 0;
        aoticache_status status =
            aoticache_index_entry_objects(collection->index, items[i].entry_id, owned, MAX_OWNED, &objects, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        objects = objects < MAX_OWNED ? objects : MAX_OWNED;
        bool is_in_use = any_is_in_use(collection, owned, objects);
        collection->report.held += is_in_use ? 1 : 0;
        if (is_in_use || objects == 0)
            continue;
        status = count_as_evicted(collection, owned, objects, ret_error);
        aoticache_listed_entry copy = {.texts = NULL};
        if (status == AOTICACHE_OK && collection->callback != NULL)
            status = aoticache_index_read_entry(collection->index, items[i].entry_id, copy_entry, &copy, ret_error);
        if (status == AOTICACHE_OK && copy.texts != NULL && !collection->callback(collection->user, &copy.entry))
            collection->is_stopped = collection->report.is_partial = true;
        free(copy.texts);
        if (status != AOTICACHE_OK)
            return status;
    }
    return AOTICACHE_OK;
}

#define LISTED 64 /* waiting objects */

static bool add_waiting(aoticache_collection *collection, const aoticache_digest *digest)
{
    if (!AOTICACHE_ARRAY_RESERVE(collection->waiting, collection->waiting_capacity, collection->waiting_count + 1))
        return false;
    collection->waiting[collection->waiting_count++] = *digest;
    return true;
}

static int by_digest(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(aoticache_digest));
}

aoticache_status aoticache_collection_count_waiting(aoticache_collection *collection, aoticache_error *ret_error)
{
    aoticache_index_removal rows[LISTED];
    size_t count = LISTED;
    aoticache_status status = AOTICACHE_OK;
    for (int64_t after = INT64_MIN; status == AOTICACHE_OK && count == LISTED; after = rows[count - 1].id) {
        status = aoticache_index_list_removals(collection->index, after, rows, LISTED, &count, ret_error);
        if (status == AOTICACHE_OK)
            status = aoticache_index_check_removals(collection->index, rows, count, ret_error);
        for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
            const aoticache_digest *object = &rows[i].object;
            if (rows[i].is_named)
                continue;
            collection->report.bytes_before += rows[i].bytes;
            if (!add_waiting(collection, object))
                return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory");
            if (object_is_in_use(collection, object))
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

void aoticache_collection_free_dry(aoticache_collection *collection)
{
    aoticache_hash_map_free(&collection->shared);
    free(collection->waiting);
}
