/*
 * index/entries/remove: removes entries and, in the same transaction, the artifacts and objects that no entry needs any
 * longer. Their files are removed by the collector in cache/.
 */
#include "index/entries/entries_internal.h"
#include "index/stats/statistics.h"

#include "base/arguments.h"
#include "base/cleanup.h"

aoticache_status aoticache_index_find(aoticache_index *index, sqlite3_stmt *find, aoticache_index_found *ret_found,
                                      aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_fetch(index, find, ret_error);
    if (status == AOTICACHE_OK &&
        (!aoticache_index_read_blob(find, 0, ret_found->key.bytes, AOTICACHE_DIGEST_BYTES) ||
         !aoticache_index_read_integer(find, 1, &ret_found->id) ||
         !aoticache_index_read_blob(find, 2, ret_found->artifact.bytes, AOTICACHE_DIGEST_BYTES) ||
         !aoticache_index_read_count(find, 3, &ret_found->file_count)))
        status = aoticache_index_fail_row(index, "entries", ret_error);
    sqlite3_reset(find);
    return status;
}

/* ---- artifacts and objects ---- */

static aoticache_status add_removal(aoticache_index *index, const aoticache_index_object *object, int kind,
                                    aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(ADD_REMOVAL), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, &object->digest);
    aoticache_index_bind_unsigned(statement, 2, object->bytes);
    sqlite3_bind_int(statement, 3, kind);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

/* Subtracts one reference by an artifact from the object. *ret_gone: it was the last one, and the row is deleted. */
static aoticache_status release_object(aoticache_index *index, const aoticache_index_object *object,
                                       const aoticache_digest *artifact, bool *ret_gone, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    uint64_t changes = 0;
    aoticache_status status =
        aoticache_index_execute_digest(index, SQL(DELETE_LAST_OBJECT), &object->digest, &changes, ret_error);
    *ret_gone = changes > 0;
    if (status != AOTICACHE_OK)
        return status;
    if (*ret_gone) {
        index->change.objects--;
        index->change.bytes -= (int64_t)object->bytes;
        return AOTICACHE_OK;
    }
    status = aoticache_index_prepare(index, SQL(RELEASE_OBJECT), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, &object->digest);
    aoticache_index_bind_digest(statement, 2, artifact);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

/* Releases all objects of an artifact. The manifest's row, if it stays, becomes that of a plain object. */
static aoticache_status release_objects(aoticache_index *index, const aoticache_digest *artifact, uint32_t file_count,
                                        const aoticache_index_object *objects, size_t count, aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        bool is_manifest = aoticache_digest_equal(&objects[i].digest, artifact);
        bool is_gone = false;
        status = release_object(index, &objects[i], artifact, &is_gone, ret_error);
        if (status == AOTICACHE_OK && is_gone && file_count > 0)
            status = add_removal(index, &objects[i], is_manifest ? (file_count > 1 ? 2 : 1) : 0, ret_error);
    }
    return status;
}

aoticache_status aoticache_index_drop_artifact(aoticache_index *index, const aoticache_digest *artifact,
                                               aoticache_error *ret_error)
{
    cleanup_free aoticache_index_object *objects = NULL;
    size_t count = 0;
    aoticache_status status = aoticache_index_read_artifact(index, artifact, &objects, &count, NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
    return release_objects(index, artifact, 0, objects, count, ret_error);
}

/* Executes a statement whose parameters are an artifact and an entry's id. ret_changes may be NULL. */
static aoticache_status execute_pair(aoticache_index *index, aoticache_index_statement which,
                                     const aoticache_digest *artifact, int64_t entry_id, uint64_t *ret_changes,
                                     aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, which, &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, artifact);
    sqlite3_bind_int64(statement, 2, entry_id);
    return aoticache_index_execute(index, statement, ret_changes, ret_error);
}

aoticache_status aoticache_index_add_sharer(aoticache_index *index, const aoticache_digest *artifact, int64_t entry_id,
                                            aoticache_error *ret_error)
{
    return execute_pair(index, SQL(ADD_SHARER), artifact, entry_id, NULL, ret_error);
}

/* Makes another entry that shares the artifact the one that its row names. NOT_FOUND: no other entry shares it. */
static aoticache_status hand_artifact_on(aoticache_index *index, const aoticache_digest *artifact,
                                         aoticache_error *ret_error)
{
    sqlite3_stmt *find = NULL;
    int64_t heir = 0;
    aoticache_status status = aoticache_index_prepare(index, SQL(FIND_SHARER), &find, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(find, 1, artifact);
    status = aoticache_index_fetch(index, find, ret_error);
    if (status == AOTICACHE_OK && !aoticache_index_read_integer(find, 0, &heir))
        status = aoticache_index_fail_row(index, "sharers", ret_error);
    sqlite3_reset(find);
    if (status == AOTICACHE_OK)
        status = execute_pair(index, SQL(HAND_ARTIFACT_ON), artifact, heir, NULL, ret_error);
    return status == AOTICACHE_OK ? execute_pair(index, SQL(DELETE_SHARER), artifact, heir, NULL, ret_error) : status;
}

/* Releases the artifact of a removed entry. */
static aoticache_status release_artifact(aoticache_index *index, const aoticache_index_found *found,
                                         aoticache_error *ret_error)
{
    cleanup_free aoticache_index_object *objects = NULL;
    size_t count = 0;
    int64_t entry = 0;
    aoticache_status status =
        aoticache_index_read_artifact(index, &found->artifact, &objects, &count, &entry, ret_error);
    if (status != AOTICACHE_OK)
        return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
    if (entry != found->id)
        return execute_pair(index, SQL(DELETE_SHARER), &found->artifact, found->id, NULL, ret_error);
    status = hand_artifact_on(index, &found->artifact, ret_error);
    if (status != AOTICACHE_NOT_FOUND)
        return status;
    index->change.artifacts--;
    return release_objects(index, &found->artifact, found->file_count > 0 ? found->file_count : 1, objects, count,
                           ret_error);
}

/* Releases an artifact whose objects the caller has read. If another entry has it, everything is read again. */
static aoticache_status release_known(aoticache_index *index, const aoticache_index_found *found,
                                      const aoticache_index_object *objects, size_t count, aoticache_error *ret_error)
{
    uint64_t changes = 0;
    aoticache_status status =
        execute_pair(index, SQL(DELETE_LAST_ARTIFACT), &found->artifact, found->id, &changes, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (changes == 0)
        return release_artifact(index, found, ret_error);
    index->change.artifacts--;
    index->change.objects--;
    index->change.bytes -= (int64_t)objects[0].bytes;
    status = add_removal(index, &objects[0], found->file_count > 1 ? 2 : 1, ret_error);
    return status == AOTICACHE_OK
               ? release_objects(index, &found->artifact, found->file_count, objects + 1, count - 1, ret_error)
               : status;
}

/* ---- entries ---- */

static aoticache_status delete_rows(aoticache_index *index, const aoticache_index_found *found,
                                    aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    uint64_t changes = 0;
    aoticache_status status = aoticache_index_prepare(index, SQL(DELETE_ENTRY), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, &found->key);
    sqlite3_bind_int64(statement, 2, found->id);
    status = aoticache_index_execute(index, statement, &changes, ret_error);
    /* Found through one tree and missing in the other: without this check the loop around it would never end. */
    if (status == AOTICACHE_OK && changes == 0)
        status =
            aoticache_index_fail(index, SQLITE_CORRUPT, "an index of table 'entries' names a missing row", ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_prepare(index, SQL(DELETE_DETAILS), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, found->id);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

aoticache_status aoticache_index_remove_one(aoticache_index *index, const aoticache_index_found *found,
                                            aoticache_error *ret_error)
{
    aoticache_status status = index->sums != NULL
                                  ? aoticache_index_sums_add_entry(index, index->sums, found->id, -1, ret_error)
                                  : aoticache_index_count_entry(index, found->id, -1, ret_error);
    if (status == AOTICACHE_OK)
        status = delete_rows(index, found, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    index->change.entries--;
    return release_artifact(index, found, ret_error);
}

aoticache_status aoticache_index_remove_known(aoticache_index *index, const aoticache_index_found *found,
                                              const aoticache_index_object *objects, size_t count,
                                              aoticache_error *ret_error)
{
    aoticache_status status = delete_rows(index, found, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    index->change.entries--;
    return release_known(index, found, objects, count, ret_error);
}

aoticache_status aoticache_index_remove_found(aoticache_index *index, sqlite3_stmt *find, uint64_t *ret_removed,
                                              aoticache_error *ret_error)
{
    uint64_t removed = 0;
    aoticache_index_found found;
    aoticache_status status;
    while ((status = aoticache_index_find(index, find, &found, ret_error)) == AOTICACHE_OK) {
        status = aoticache_index_remove_one(index, &found, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        removed++;
    }
    if (status != AOTICACHE_NOT_FOUND)
        return status;
    if (ret_removed != NULL)
        *ret_removed += removed;
    return AOTICACHE_OK;
}

/* Removes the entries that the row of an object does not lead to, because several artifacts share it. */
static aoticache_status remove_sharers(aoticache_index *index, const aoticache_digest *object, uint64_t *ret_removed,
                                       aoticache_error *ret_error)
{
    sqlite3_stmt *find = NULL;
    aoticache_status status = aoticache_index_probe_digest(index, SQL(HAS_OBJECT), object, ret_error);
    if (status != AOTICACHE_OK)
        return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
    status = aoticache_index_prepare(index, SQL(SEARCH_OBJECT), &find, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(find, 1, object);
    status = aoticache_index_remove_found(index, find, ret_removed, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_probe_digest(index, SQL(HAS_OBJECT), object, ret_error);
    if (status == AOTICACHE_OK)
        return aoticache_index_fail(index, SQLITE_CORRUPT, "an object has a row, but no entry names it", ret_error);
    return status == AOTICACHE_NOT_FOUND ? AOTICACHE_OK : status;
}

/* Removes the entries that a statement finds by a digest, or by an entry's id if `digest` is NULL. */
static aoticache_status remove_matching(aoticache_index *index, aoticache_index_statement which,
                                        const aoticache_digest *digest, int64_t entry_id, uint64_t *ret_removed,
                                        aoticache_error *ret_error)
{
    uint64_t removed = 0;
    sqlite3_stmt *find = NULL;
    aoticache_status status = aoticache_index_enter_write(index, AOTICACHE_INDEX_DURABLE, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_prepare(index, which, &find, ret_error);
    if (status == AOTICACHE_OK) {
        if (digest != NULL)
            aoticache_index_bind_digest(find, 1, digest);
        else
            sqlite3_bind_int64(find, 1, entry_id);
        status = aoticache_index_remove_found(index, find, &removed, ret_error);
    }
    if (status == AOTICACHE_OK && which == SQL(FIND_OBJECT))
        status = remove_sharers(index, digest, &removed, ret_error);
    status = aoticache_index_leave_write(index, status, ret_error);
    if (status == AOTICACHE_OK && ret_removed != NULL)
        *ret_removed = removed;
    return status;
}

static aoticache_status remove_by_digest(aoticache_index *index, aoticache_index_statement which,
                                         const aoticache_digest *digest, uint64_t *ret_removed,
                                         aoticache_error *ret_error)
{
    if (index == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index);
    if (digest != NULL)
        return remove_matching(index, which, digest, 0, ret_removed, ret_error);
    if (ret_removed != NULL)
        *ret_removed = 0;
    return AOTICACHE_OK;
}

aoticache_status aoticache_index_remove_key(aoticache_index *index, const aoticache_digest *key, uint64_t *ret_removed,
                                            aoticache_error *ret_error)
{
    return remove_by_digest(index, SQL(FIND_KEY), key, ret_removed, ret_error);
}

aoticache_status aoticache_index_remove_object(aoticache_index *index, const aoticache_digest *object,
                                               uint64_t *ret_removed, aoticache_error *ret_error)
{
    return remove_by_digest(index, SQL(FIND_OBJECT), object, ret_removed, ret_error);
}

aoticache_status aoticache_index_remove_entry(aoticache_index *index, int64_t entry_id, uint64_t *ret_removed,
                                              aoticache_error *ret_error)
{
    if (index == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index);
    return remove_matching(index, SQL(FIND_ID), NULL, entry_id, ret_removed, ret_error);
}
