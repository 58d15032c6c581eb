/*
 * index/entries/put: makes an entry visible, with its artifact and objects, in one durable transaction.
 */
#include "index/entries/entries_internal.h"
#include "index/stats/statistics.h"

#include <stdlib.h>
#include <string.h>

#include "base/arguments.h"
#include "base/cleanup.h"

#define MAX_TEXT_BYTES (1 << 20)

static bool text_fits(const char *text)
{
    return text != NULL && strnlen(text, MAX_TEXT_BYTES + 1) <= MAX_TEXT_BYTES;
}

/* Returns NULL if it is not among the objects. */
static const aoticache_index_object *find_object(const aoticache_index_entry *entry, const aoticache_digest *digest)
{
    for (size_t i = 0; i < entry->object_count; i++)
        if (aoticache_digest_equal(&entry->objects[i].digest, digest))
            return &entry->objects[i];
    return NULL;
}

/* Returns the library's size. The caller has checked that its object is there, or that the manifest's object has space for
 * it. */
static uint64_t library_bytes_of(const aoticache_index_entry *entry)
{
    return entry->content_offset > 0 ? find_object(entry, &entry->artifact)->bytes - entry->content_offset
                                     : find_object(entry, &entry->library)->bytes;
}

static aoticache_status check(const aoticache_index_entry *entry, aoticache_error *ret_error)
{
    if (entry->objects == NULL || entry->object_count == 0 || entry->object_count > INT32_MAX)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "index put: an entry needs at least one object, not %zu", entry->object_count);
    const aoticache_index_object *manifest = find_object(entry, &entry->artifact);
    if (entry->content_offset == 0 && find_object(entry, &entry->library) == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "index put: the library is not among the %zu objects",
                                   entry->object_count);
    if (manifest == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "index put: the artifact is not among the %zu objects",
                                   entry->object_count);
    if (entry->content_offset > manifest->bytes)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "index put: the library begins at byte %llu of a manifest of %llu bytes",
                                   (unsigned long long)entry->content_offset, (unsigned long long)manifest->bytes);
    if (!text_fits(entry->op) || !text_fits(entry->device) || !text_fits(entry->description) ||
        !text_fits(entry->producer) || (entry->guard != NULL && !text_fits(entry->guard)))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "index put: a text is missing or has more than %d bytes", MAX_TEXT_BYTES);
    if (entry->encoding == NULL && entry->encoding_size > 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "index put: an encoding of %zu bytes is missing",
                                   entry->encoding_size);
    for (size_t i = 0; i < entry->object_count; i++)
        if (entry->objects[i].bytes > INT64_MAX)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                       "index put: object %zu of %zu has %llu bytes; at most 2^63-1 are allowed", i,
                                       entry->object_count, (unsigned long long)entry->objects[i].bytes);
    return AOTICACHE_OK;
}

static const char *guard_of(const aoticache_index_entry *entry)
{
    return entry->guard == NULL ? "" : entry->guard;
}

static int rank_of(const aoticache_index_entry *entry)
{
    int bits = 0;
    for (size_t i = 0; i < sizeof entry->requirements; i++)
        bits += __builtin_popcount(entry->requirements[i]);
    return bits;
}

/* Prepares and binds the statement that finds the entry that `entry` replaces. */
static aoticache_status prepare_find_same(aoticache_index *index, const aoticache_index_entry *entry,
                                          sqlite3_stmt **ret_find, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_prepare(index, SQL(FIND_SAME), ret_find, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(*ret_find, 1, &entry->key);
    sqlite3_bind_blob(*ret_find, 2, entry->requirements, sizeof entry->requirements, SQLITE_STATIC);
    aoticache_index_bind_text(*ret_find, 3, guard_of(entry));
    return AOTICACHE_OK;
}

static aoticache_status remove_same(aoticache_index *index, const aoticache_index_entry *entry,
                                    aoticache_error *ret_error)
{
    sqlite3_stmt *find = NULL;
    aoticache_status status = prepare_find_same(index, entry, &find, ret_error);
    return status == AOTICACHE_OK ? aoticache_index_remove_found(index, find, NULL, ret_error) : status;
}

/* Binds '' if there is no encoding, or one that is too large for a row. */
static void bind_encoding(sqlite3_stmt *statement, int parameter, const aoticache_index_entry *entry)
{
    size_t size = entry->encoding_size <= AOTICACHE_INDEX_MAX_ENCODING_BYTES ? entry->encoding_size : 0;
    if (size > 0)
        sqlite3_bind_blob(statement, parameter, entry->encoding, (int)size, SQLITE_STATIC);
    else
        sqlite3_bind_zeroblob(statement, parameter, 0);
}

static uint64_t bytes_of(const aoticache_index_entry *entry)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < entry->object_count; i++)
        bytes = bytes > UINT64_MAX - entry->objects[i].bytes ? UINT64_MAX : bytes + entry->objects[i].bytes;
    return bytes;
}

static aoticache_status insert_details(aoticache_index *index, const aoticache_index_entry *entry,
                                       aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(INSERT_DETAILS), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, &entry->key);
    aoticache_index_bind_text(statement, 2, guard_of(entry));
    aoticache_index_bind_text(statement, 3, entry->op);
    aoticache_index_bind_text(statement, 4, entry->device);
    aoticache_index_bind_text(statement, 5, entry->description);
    aoticache_index_bind_text(statement, 6, entry->producer);
    sqlite3_bind_int64(statement, 7, entry->created_ns);
    bind_encoding(statement, 8, entry);
    aoticache_index_bind_unsigned(statement, 9, bytes_of(entry));
    aoticache_index_bind_unsigned(statement, 10, entry->compile_ns);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

static aoticache_status insert_entry(aoticache_index *index, const aoticache_index_entry *entry, int64_t id,
                                     aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(INSERT_ENTRY), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, &entry->key);
    sqlite3_bind_int(statement, 2, rank_of(entry));
    sqlite3_bind_int64(statement, 3, entry->created_ns);
    sqlite3_bind_int64(statement, 4, id);
    aoticache_index_bind_digest(statement, 5, &entry->artifact);
    aoticache_index_bind_digest(statement, 6, &entry->library);
    aoticache_index_bind_unsigned(statement, 7, library_bytes_of(entry));
    sqlite3_bind_int64(statement, 8, entry->file_count);
    aoticache_index_bind_unsigned(statement, 9, entry->compile_ns);
    sqlite3_bind_blob(statement, 10, entry->requirements, sizeof entry->requirements, SQLITE_STATIC);
    aoticache_index_bind_unsigned(statement, 11, entry->content_offset);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

/* Adds an object to the totals. */
static aoticache_status count_object(aoticache_index *index, const aoticache_index_object *object,
                                     aoticache_error *ret_error)
{
    aoticache_index_object_row before = {.bytes = 0};
    aoticache_status status = aoticache_index_read_object(index, &object->digest, &before, ret_error);
    if (status == AOTICACHE_NOT_FOUND) {
        index->change.objects++;
        status = AOTICACHE_OK;
    }
    index->change.bytes += (int64_t)object->bytes - (int64_t)before.bytes;
    return status;
}

/* Inserts the row of an object. The row of the artifact's manifest names `parts`; the rows of other objects name none. */
static aoticache_status insert_object(aoticache_index *index, const aoticache_index_entry *entry, size_t position,
                                      int64_t first_entry, const aoticache_digest *parts, aoticache_error *ret_error)
{
    const aoticache_index_object *object = &entry->objects[position];
    const bool is_manifest = aoticache_digest_equal(&object->digest, &entry->artifact);
    sqlite3_stmt *statement = NULL;
    aoticache_status status = count_object(index, object, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_prepare(index, SQL(INSERT_OBJECT), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_digest(statement, 1, &object->digest);
    aoticache_index_bind_unsigned(statement, 2, object->bytes);
    aoticache_index_bind_digest(statement, 3, &entry->artifact);
    sqlite3_bind_int64(statement, 4, is_manifest ? first_entry : 0);
    if (is_manifest)
        sqlite3_bind_blob64(statement, 5, parts, entry->object_count * sizeof *parts, SQLITE_STATIC);
    else
        sqlite3_bind_zeroblob(statement, 5, 0);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

static aoticache_status insert_objects(aoticache_index *index, const aoticache_index_entry *entry, int64_t first_entry,
                                       aoticache_error *ret_error)
{
    cleanup_free aoticache_digest *parts = calloc(entry->object_count, sizeof *parts);
    aoticache_status status = AOTICACHE_OK;
    if (parts == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "index %s: out of memory", index->path);
    for (size_t i = 0; i < entry->object_count; i++)
        parts[i] = entry->objects[i].digest;
    for (size_t i = 0; status == AOTICACHE_OK && i < entry->object_count; i++)
        status = insert_object(index, entry, i, first_entry, parts, ret_error);
    return status;
}

/* Finds an entry that the artifact's row names; NOT_FOUND: there is no such artifact. */
static aoticache_status find_first_entry(aoticache_index *index, const aoticache_digest *artifact, int64_t *ret_id,
                                         aoticache_error *ret_error)
{
    cleanup_free aoticache_index_object *objects = NULL;
    size_t count = 0;
    return aoticache_index_read_artifact(index, artifact, &objects, &count, ret_id, ret_error);
}

/*
 * Records the artifact with its objects for the entry `id`. Another entry may have recorded it before, perhaps with fewer
 * objects.
 */
static aoticache_status put_artifact(aoticache_index *index, const aoticache_index_entry *entry, int64_t id,
                                     aoticache_error *ret_error)
{
    int64_t first = id;
    aoticache_status status = find_first_entry(index, &entry->artifact, &first, ret_error);
    if (status == AOTICACHE_NOT_FOUND) {
        index->change.artifacts++;
        return insert_objects(index, entry, first, ret_error);
    }
    if (status == AOTICACHE_OK)
        status = aoticache_index_add_sharer(index, &entry->artifact, id, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_drop_artifact(index, &entry->artifact, ret_error);
    return status == AOTICACHE_OK ? insert_objects(index, entry, first, ret_error) : status;
}

/* Call this inside a transaction. */
static aoticache_status put_rows(aoticache_index *index, const aoticache_index_entry *entry, int64_t *ret_id,
                                 aoticache_error *ret_error)
{
    aoticache_status status = remove_same(index, entry, ret_error);
    if (status == AOTICACHE_OK)
        status = insert_details(index, entry, ret_error);
    if (status == AOTICACHE_OK) {
        *ret_id = sqlite3_last_insert_rowid(index->db);
        index->change.entries++;
        status = insert_entry(index, entry, *ret_id, ret_error);
    }
    if (status == AOTICACHE_OK)
        status = put_artifact(index, entry, *ret_id, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_count_entry(index, *ret_id, 1, ret_error);
    uint64_t forgotten = 0;
    if (status == AOTICACHE_OK)
        status = aoticache_index_execute_digest(index, SQL(FORGET_FAILURE), &entry->key, &forgotten, ret_error);
    index->change.failures -= (int64_t)forgotten;
    return status;
}

aoticache_status aoticache_index_put(aoticache_index *index, const aoticache_index_entry *entry, int64_t *ret_entry_id,
                                     aoticache_error *ret_error)
{
    if (index == NULL || entry == NULL || ret_entry_id == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, entry, ret_entry_id);
    int64_t id = 0;
    aoticache_status status = check(entry, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_enter_write(index, AOTICACHE_INDEX_DURABLE, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_leave_write(index, put_rows(index, entry, &id, ret_error), ret_error);
    if (status == AOTICACHE_OK)
        *ret_entry_id = id;
    return status;
}

aoticache_status aoticache_index_has_same(aoticache_index *index, const aoticache_index_entry *entry,
                                          aoticache_error *ret_error)
{
    if (index == NULL || entry == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, entry);
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_stmt *find = NULL;
    status = prepare_find_same(index, entry, &find, ret_error);
    if (status == AOTICACHE_OK) {
        int result = sqlite3_step(find);
        if (result == SQLITE_DONE)
            status = AOTICACHE_NOT_FOUND;
        else if (result != SQLITE_ROW)
            status = aoticache_index_fail(index, result, "cannot read", ret_error);
        sqlite3_reset(find);
    }
    aoticache_index_leave(index);
    return status;
}

/* ---- many entries at once ---- */

/* Sets whether commits wait for the disk. The field is DURABLE in both cases, so that a put does not reset it. */
static aoticache_status set_waiting(aoticache_index *index, bool waits, aoticache_error *ret_error)
{
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    const char *sql = waits ? "PRAGMA synchronous=EXTRA" : aoticache_index_relaxed_sql(index);
    int result = sqlite3_exec(index->db, sql, NULL, NULL, NULL);
    if (result != SQLITE_OK)
        status = aoticache_index_fail(index, result, sql, ret_error);
    else
        index->durability = AOTICACHE_INDEX_DURABLE;
    aoticache_index_leave(index);
    return status;
}

static aoticache_status put_all(aoticache_index *index, size_t count, aoticache_index_next_entry_fn next, void *user,
                                int64_t *ret_entry_ids, aoticache_error *ret_error)
{
    aoticache_status status = set_waiting(index, false, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        aoticache_index_entry entry;
        status = next(user, i, &entry, ret_error);
        if (status == AOTICACHE_OK && i + 1 == count)
            status = set_waiting(index, true, ret_error);
        if (status == AOTICACHE_OK)
            status = aoticache_index_put(index, &entry, &ret_entry_ids[i], ret_error);
    }
    return status;
}

aoticache_status aoticache_index_put_batch(const aoticache_index_options *options, size_t count,
                                           aoticache_index_next_entry_fn next, void *user, int64_t *ret_entry_ids,
                                           aoticache_error *ret_error)
{
    aoticache_index *index = NULL;
    if (count == 0)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_open(options, &index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = put_all(index, count, next, user, ret_entry_ids, ret_error);
    aoticache_index_close(index);
    return status;
}
