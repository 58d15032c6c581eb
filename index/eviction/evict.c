/*
 * index/eviction/evict: removes entries in batches.
 *
 * Looking up an entry and removing it are two steps, so that the transaction, for which other writers wait, has little to
 * read. The objects of an entry never change, so they may be read before; whether it is still to be removed, and whether
 * others need its objects, is checked again inside.
 */
#include "base/clock.h"
#include "index/eviction/eviction.h"
#include "index/entries/entries_internal.h"
#include "index/stats/statistics.h"

#include <string.h>

/* ---- before the transaction ---- */

/* Looks up the objects of a victim, except its manifest, which is set already. */
static aoticache_status lookup_objects(aoticache_index *index, aoticache_index_victim *victim, const uint8_t *digests,
                                       size_t count, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        aoticache_index_object *object = &victim->objects[victim->object_count];
        aoticache_index_object_row row;
        memcpy(object->digest.bytes, digests + i * AOTICACHE_DIGEST_BYTES, AOTICACHE_DIGEST_BYTES);
        if (aoticache_digest_equal(&object->digest, &victim->artifact))
            continue;
        status = aoticache_index_read_object(index, &object->digest, &row, ret_error);
        if (status == AOTICACHE_OK) {
            object->bytes = row.bytes;
            victim->object_count++;
        } else if (status == AOTICACHE_NOT_FOUND) {
            status = AOTICACHE_OK; /* objects without a row are left out */
        }
    }
    return status;
}

/* Reads the columns of the statement LOOK_UP_VICTIM. */
static aoticache_status read_victim(aoticache_index *index, sqlite3_stmt *row, aoticache_index_victim *victim,
                                    aoticache_error *ret_error)
{
    const uint8_t *digests;
    size_t count;
    victim->is_there = true;
    if (!aoticache_index_read_blob(row, 0, victim->artifact.bytes, AOTICACHE_DIGEST_BYTES) ||
        !aoticache_index_read_count(row, 1, &victim->file_count) ||
        !aoticache_index_read_unsigned(row, 2, &victim->objects[0].bytes) ||
        !aoticache_index_read_parts(row, 3, &digests, &count))
        return aoticache_index_fail_row(index, "entries", ret_error);
    if (count == 0 || count > AOTICACHE_INDEX_VICTIM_OBJECTS || victim->file_count == 0)
        return AOTICACHE_OK;
    victim->objects[0].digest = victim->artifact;
    victim->object_count = 1;
    return lookup_objects(index, victim, digests, count, ret_error);
}

static aoticache_status lookup_victim(aoticache_index *index, sqlite3_stmt *look_up, aoticache_index_victim *victim,
                                      aoticache_error *ret_error)
{
    aoticache_index_bind_digest(look_up, 1, &victim->key);
    sqlite3_bind_int64(look_up, 2, victim->entry_id);
    aoticache_status status = aoticache_index_fetch(index, look_up, ret_error);
    if (status == AOTICACHE_OK)
        status = read_victim(index, look_up, victim, ret_error);
    sqlite3_reset(look_up);
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

aoticache_status aoticache_index_look_up(aoticache_index *index, aoticache_index_victim *victims, size_t count,
                                         aoticache_error *ret_error)
{
    sqlite3_stmt *begin = NULL, *look_up = NULL;
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_prepare(index, SQL(LOOK_UP_VICTIM), &look_up, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_prepare(index, SQL(BEGIN_READ), &begin, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_execute(index, begin, NULL, ret_error);
    if (status == AOTICACHE_OK) {
        for (size_t i = 0; status == AOTICACHE_OK && i < count; i++)
            status = lookup_victim(index, look_up, &victims[i], ret_error);
        status = aoticache_index_end(index, status, ret_error);
    }
    aoticache_index_leave(index);
    return status;
}

/* ---- in the transaction ---- */

aoticache_status aoticache_index_delete_removals(aoticache_index *index, const int64_t *done, size_t count,
                                                 aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = AOTICACHE_OK;
    if (count > 0)
        status = aoticache_index_prepare(index, SQL(DELETE_REMOVALS), &statement, ret_error);
    for (size_t i = 0, next; status == AOTICACHE_OK && i < count; i = next) {
        for (next = i + 1; next < count && done[next] == done[next - 1] + 1;) /* usually all of them are one range */
            next++;
        sqlite3_bind_int64(statement, 1, done[i]);
        sqlite3_bind_int64(statement, 2, done[next - 1]);
        status = aoticache_index_execute(index, statement, NULL, ret_error);
    }
    return status;
}

/* Evicts an entry with the data read before. It stays if it is in use again, pinned or gone. */
static aoticache_status evict_known(aoticache_index *index, aoticache_index_victim *victim, aoticache_error *ret_error)
{
    const aoticache_index_found found = {
        .key = victim->key, .artifact = victim->artifact, .id = victim->entry_id, .file_count = victim->file_count};
    sqlite3_stmt *group = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(GROUP_OF_VICTIM), &group, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(group, 1, victim->entry_id);
    sqlite3_bind_int64(group, 2, victim->last_used_ns);
    status = aoticache_index_sums_add_found(index, index->sums, group, -1, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        return AOTICACHE_OK;
    if (status == AOTICACHE_OK)
        status = aoticache_index_remove_known(index, &found, victim->objects, victim->object_count, ret_error);
    victim->is_gone = status == AOTICACHE_OK;
    return status;
}

static aoticache_status evict_one(aoticache_index *index, sqlite3_stmt *find, aoticache_index_victim *victim,
                                  aoticache_error *ret_error)
{
    aoticache_index_found found;
    if (victim->object_count > 0)
        return evict_known(index, victim, ret_error);
    sqlite3_bind_int64(find, 1, victim->entry_id);
    sqlite3_bind_int64(find, 2, victim->last_used_ns);
    aoticache_status status = aoticache_index_find(index, find, &found, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        return AOTICACHE_OK;
    if (status == AOTICACHE_OK)
        status = aoticache_index_remove_one(index, &found, ret_error);
    victim->is_gone = status == AOTICACHE_OK;
    return status;
}

static aoticache_status evict_rows(aoticache_index *index, aoticache_index_victim *victims, size_t count,
                                   uint64_t end_ns, size_t *ret_tried, aoticache_error *ret_error)
{
    aoticache_index_sums sums = {.by_name = {.count = 0}};
    sqlite3_stmt *find = NULL;
    size_t tried = 0;
    aoticache_status status = aoticache_index_prepare(index, SQL(FIND_VICTIM), &find, ret_error);
    index->sums = &sums;
    while (status == AOTICACHE_OK && tried < count && (tried == 0 || aoticache_monotonic_ns() < end_ns))
        status = evict_one(index, find, &victims[tried++], ret_error);
    index->sums = NULL;
    if (status == AOTICACHE_OK)
        status = aoticache_index_sums_write(index, &sums, ret_error);
    aoticache_index_sums_free(&sums);
    *ret_tried = tried;
    return status;
}

aoticache_status aoticache_index_evict(aoticache_index *index, aoticache_index_victim *victims, size_t count,
                                       const int64_t *done, size_t done_count, uint64_t budget_ns, bool is_durable,
                                       aoticache_index_eviction *ret_eviction, aoticache_error *ret_error)
{
    aoticache_index_eviction eviction = {.tried = 0};
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    index->is_out_of_space = false;
    status = aoticache_index_begin(index, is_durable ? AOTICACHE_INDEX_DURABLE : AOTICACHE_INDEX_RELAXED, ret_error);
    if (status == AOTICACHE_OK) {
        const uint64_t end_ns = aoticache_monotonic_ns() + budget_ns;
        status = aoticache_index_delete_removals(index, done, done_count, ret_error);
        if (status == AOTICACHE_OK)
            status = evict_rows(index, victims, count, end_ns, &eviction.tried, ret_error);
        eviction.entries = (uint64_t)-index->change.entries;
        eviction.objects = (uint64_t)-index->change.objects;
        eviction.bytes = (uint64_t)-index->change.bytes;
        status = aoticache_index_end(index, status, ret_error);
    }
    aoticache_index_leave(index);
    for (size_t i = 0; status != AOTICACHE_OK && i < count; i++)
        victims[i].is_gone = false;
    if (status == AOTICACHE_OK)
        *ret_eviction = eviction;
    return status;
}
