/*
 * index/entries/objects: objects of artifacts, objects that entries name, totals, and SQLite's own check of the file.
 */
#include "index/connection/connection_internal.h"
#include "index/entries/entries_internal.h"
#include "base/arguments.h"
#include "base/cleanup.h"

#include <stdlib.h>
#include <string.h>

aoticache_status aoticache_index_read_object(aoticache_index *index, const aoticache_digest *digest,
                                             aoticache_index_object_row *ret_row, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(READ_OBJECT), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, digest);
    status = aoticache_index_fetch(index, statement, ret_error);
    if (status == AOTICACHE_OK && (!aoticache_index_read_unsigned(statement, 0, &ret_row->bytes) ||
                                   !aoticache_index_read_unsigned(statement, 1, &ret_row->refs)))
        status = aoticache_index_fail_row(index, "objects", ret_error);
    sqlite3_reset(statement);
    return status;
}

bool aoticache_index_read_parts(sqlite3_stmt *statement, int column, const uint8_t **ret_digests, size_t *ret_count)
{
    if (sqlite3_column_type(statement, column) != SQLITE_BLOB)
        return false;
    *ret_digests = sqlite3_column_blob(statement, column);
    const size_t size = (size_t)sqlite3_column_bytes(statement, column);
    *ret_count = size / AOTICACHE_DIGEST_BYTES;
    return size % AOTICACHE_DIGEST_BYTES == 0 && (*ret_digests != NULL || size == 0);
}

/* Reads the columns of the statement READ_ARTIFACT. *ret_objects has space for all objects; only their digests are set. */
static aoticache_status read_parts(aoticache_index *index, sqlite3_stmt *row, aoticache_index_object **ret_objects,
                                   size_t *ret_count, int64_t *ret_entry, aoticache_error *ret_error)
{
    const uint8_t *digests;
    if (!aoticache_index_read_parts(row, 0, &digests, ret_count) || !aoticache_index_read_integer(row, 1, ret_entry))
        return aoticache_index_fail_row(index, "objects", ret_error);
    aoticache_index_object *objects = calloc(*ret_count + 1, sizeof *objects);
    if (objects == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "index %s: out of memory", index->path);
    for (size_t i = 0; i < *ret_count; i++)
        memcpy(objects[i].digest.bytes, digests + i * AOTICACHE_DIGEST_BYTES, AOTICACHE_DIGEST_BYTES);
    *ret_objects = objects;
    return AOTICACHE_OK;
}

aoticache_status aoticache_index_read_artifact(aoticache_index *index, const aoticache_digest *artifact,
                                               aoticache_index_object **ret_objects, size_t *ret_count,
                                               int64_t *ret_entry, aoticache_error *ret_error)
{
    cleanup_free aoticache_index_object *objects = NULL;
    size_t named = 0, count = 0;
    int64_t entry = 0;
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(READ_ARTIFACT), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, artifact);
    status = aoticache_index_fetch(index, statement, ret_error);
    if (status == AOTICACHE_OK)
        status = read_parts(index, statement, &objects, &named, &entry, ret_error);
    sqlite3_reset(statement);
    for (size_t i = 0; status == AOTICACHE_OK && i < named; i++) {
        aoticache_index_object_row row;
        status = aoticache_index_read_object(index, &objects[i].digest, &row, ret_error);
        if (status == AOTICACHE_OK)
            objects[count++] = (aoticache_index_object){objects[i].digest, row.bytes};
        else if (status == AOTICACHE_NOT_FOUND)
            status = AOTICACHE_OK;
    }
    if (status == AOTICACHE_OK && count == 0)
        status = AOTICACHE_NOT_FOUND;
    if (status != AOTICACHE_OK)
        return status;
    if (ret_entry != NULL)
        *ret_entry = entry;
    *ret_objects = steal_ptr(&objects);
    *ret_count = count;
    return AOTICACHE_OK;
}

aoticache_status aoticache_index_artifact_objects(aoticache_index *index, const aoticache_digest *artifact,
                                                  aoticache_index_object **ret_objects, size_t *ret_count,
                                                  aoticache_error *ret_error)
{
    if (index == NULL || artifact == NULL || ret_objects == NULL || ret_count == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, artifact, ret_objects, ret_count);
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_read_artifact(index, artifact, ret_objects, ret_count, NULL, ret_error);
    aoticache_index_leave(index);
    return status;
}

aoticache_status aoticache_index_has_object(aoticache_index *index, const aoticache_digest *digest,
                                            aoticache_error *ret_error)
{
    if (index == NULL || digest == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, digest);
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_probe_digest(index, SQL(HAS_OBJECT), digest, ret_error);
    aoticache_index_leave(index);
    return status;
}

/* Reads the columns of the statement TOTALS. */
static bool read_totals_row(sqlite3_stmt *row, aoticache_index_totals *ret_totals)
{
    return aoticache_index_read_unsigned(row, 0, &ret_totals->entries) &&
           aoticache_index_read_unsigned(row, 1, &ret_totals->artifacts) &&
           aoticache_index_read_unsigned(row, 2, &ret_totals->objects) &&
           aoticache_index_read_unsigned(row, 3, &ret_totals->bytes) &&
           aoticache_index_read_unsigned(row, 4, &ret_totals->failures) &&
           aoticache_index_read_integer(row, 5, &ret_totals->created_ns);
}

/* Reads the row of a statement without parameters. If there is no row, the index is damaged. */
static aoticache_status read_one_row(aoticache_index *index, aoticache_index_statement which,
                                     aoticache_index_read_fn read, void *result, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_read_row(index, which, 0, read, result, ret_error);
    return status == AOTICACHE_NOT_FOUND ? aoticache_error_set(ret_error, AOTICACHE_CORRUPT,
                                                               "index %s: cannot read: a row is missing", index->path)
                                         : status;
}

static aoticache_status copy_totals(aoticache_index *index, sqlite3_stmt *row, void *result, aoticache_error *ret_error)
{
    aoticache_index_totals totals;
    if (!read_totals_row(row, &totals))
        return aoticache_index_fail_row(index, "meta", ret_error);
    *(aoticache_index_totals *)result = totals;
    return AOTICACHE_OK;
}

aoticache_status aoticache_index_read_totals(aoticache_index *index, aoticache_index_totals *ret_totals,
                                             aoticache_error *ret_error)
{
    if (index == NULL || ret_totals == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, ret_totals);
    return read_one_row(index, SQL(TOTALS), copy_totals, ret_totals, ret_error);
}

bool aoticache_index_give_object(void *reader, sqlite3_stmt *row, bool *ret_continues)
{
    const aoticache_index_object_reader *to = reader;
    aoticache_digest digest;
    uint64_t bytes;
    if (!aoticache_index_read_blob(row, 0, digest.bytes, AOTICACHE_DIGEST_BYTES) ||
        !aoticache_index_read_unsigned(row, 1, &bytes))
        return false;
    *ret_continues = to->callback(to->user, &digest, bytes);
    return true;
}
