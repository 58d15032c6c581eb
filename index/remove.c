/*
 * index/remove: entries go, and with them, in the same transaction, the artifacts and objects that no entry needs any
 * longer. Files are the business of the collector in cache/.
 */
#include "index/removal.h"

typedef struct found_entry {
    aoticache_digest key;
    aoticache_digest artifact;
    int64_t id;
} found_entry;

/* One entry that `find` names: OK or NOT_FOUND. Leaves `find` reset, its bindings in place. */
static aoticache_status find_one(aoticache_index *index, sqlite3_stmt *find, found_entry *ret_found,
                                 aoticache_error *ret_error)
{
    aoticache_status status = AOTICACHE_OK;
    int result = sqlite3_step(find);
    if (result == SQLITE_DONE)
        status = AOTICACHE_NOT_FOUND;
    else if (result != SQLITE_ROW)
        status = aoticache_index_fail(index, result, "cannot read entries", ret_error);
    else if (!aoticache_index_read_blob(find, 0, ret_found->key.bytes, AOTICACHE_DIGEST_BYTES) ||
             !aoticache_index_read_integer(find, 1, &ret_found->id) ||
             !aoticache_index_read_blob(find, 2, ret_found->artifact.bytes, AOTICACHE_DIGEST_BYTES))
        status = aoticache_index_fail_row(index, "entries", ret_error);
    sqlite3_reset(find);
    return status;
}

aoticache_status aoticache_index_drop_artifact(aoticache_index *index, const aoticache_digest *artifact,
                                               aoticache_error *ret_error)
{
    aoticache_status status =
        aoticache_index_execute_digest(index, SQL(DELETE_OBJECTS), artifact, NULL, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_execute_digest(index, SQL(DELETE_ARTIFACT), artifact, NULL, ret_error);
    return status;
}

static aoticache_status delete_rows(aoticache_index *index, const found_entry *found, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    uint64_t changes = 0;
    aoticache_status status = aoticache_index_prepare(index, SQL(DELETE_ENTRY), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, &found->key);
    sqlite3_bind_int64(statement, 2, found->id);
    status = aoticache_index_execute(index, statement, &changes, ret_error);
    /* Found through one tree and not there in the other: without this check the loop around would never end. */
    if (status == AOTICACHE_OK && changes == 0)
        status = aoticache_index_fail(index, SQLITE_CORRUPT, "an index of table 'entries' names a row that is not there",
                                      ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_prepare(index, SQL(DELETE_DETAILS), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, found->id);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

static aoticache_status remove_one(aoticache_index *index, const found_entry *found, aoticache_error *ret_error)
{
    aoticache_status status = delete_rows(index, found, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_probe_digest(index, SQL(HAS_ARTIFACT), &found->artifact, ret_error);
    if (status == AOTICACHE_NOT_FOUND)
        status = aoticache_index_drop_artifact(index, &found->artifact, ret_error);
    return status;
}

aoticache_status aoticache_index_remove_found(aoticache_index *index, sqlite3_stmt *find, uint64_t *ret_removed,
                                              aoticache_error *ret_error)
{
    uint64_t removed = 0;
    found_entry found;
    aoticache_status status;
    while ((status = find_one(index, find, &found, ret_error)) == AOTICACHE_OK) {
        status = remove_one(index, &found, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        removed++;
    }
    if (status != AOTICACHE_NOT_FOUND)
        return status;
    if (ret_removed != NULL)
        *ret_removed = removed;
    return AOTICACHE_OK;
}

/* With the statement that finds what to remove: by a digest, or where that is NULL by an entry's id. */
static aoticache_status remove_by(aoticache_index *index, aoticache_index_statement which,
                                  const aoticache_digest *digest, int64_t entry_id, uint64_t *ret_removed,
                                  aoticache_error *ret_error)
{
    uint64_t removed = 0;
    sqlite3_stmt *find = NULL;
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_begin(index, AOTICACHE_INDEX_DURABLE, ret_error);
    if (status != AOTICACHE_OK)
        goto out;
    status = aoticache_index_prepare(index, which, &find, ret_error);
    if (status == AOTICACHE_OK) {
        if (digest != NULL)
            aoticache_index_bind_digest(find, 1, digest);
        else
            sqlite3_bind_int64(find, 1, entry_id);
        status = aoticache_index_remove_found(index, find, &removed, ret_error);
    }
    status = aoticache_index_end(index, status, ret_error);
    if (status == AOTICACHE_OK && ret_removed != NULL)
        *ret_removed = removed;
out:
    aoticache_index_leave(index);
    return status;
}

static aoticache_status remove_by_digest(aoticache_index *index, aoticache_index_statement which,
                                         const aoticache_digest *digest, uint64_t *ret_removed,
                                         aoticache_error *ret_error)
{
    if (index == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "index remove: no index");
    if (digest != NULL)
        return remove_by(index, which, digest, 0, ret_removed, ret_error);
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
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "index remove: no index");
    return remove_by(index, SQL(FIND_ID), NULL, entry_id, ret_removed, ret_error);
}
