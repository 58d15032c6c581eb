/*
 * index/stored: the entries of one operator with the requests that they answer, in batches; and the encodings that entries
 * of an older version lack.
 */
#include "index/connection.h"

#include <string.h>

#define MAX_BATCH 100000

/* Borrowed until the next step. An empty one has no address. */
static bool read_encoding(sqlite3_stmt *row, int column, aoticache_index_stored *stored)
{
    if (sqlite3_column_type(row, column) != SQLITE_BLOB)
        return false;
    stored->encoding = sqlite3_column_blob(row, column);
    stored->encoding_size = (size_t)sqlite3_column_bytes(row, column);
    return stored->encoding != NULL || stored->encoding_size == 0;
}

/* The columns of the statement LIST_STORED. */
static bool read_stored(sqlite3_stmt *row, aoticache_index_stored *stored)
{
    return aoticache_index_read_integer(row, 0, &stored->entry_id) &&
           aoticache_index_read_blob(row, 1, stored->key.bytes, AOTICACHE_DIGEST_BYTES) &&
           aoticache_index_read_blob(row, 2, stored->artifact.bytes, AOTICACHE_DIGEST_BYTES) &&
           aoticache_index_read_integer(row, 3, &stored->rank) &&
           aoticache_index_read_integer(row, 4, &stored->created_ns) &&
           aoticache_index_read_unsigned(row, 5, &stored->compile_ns) &&
           aoticache_index_read_blob(row, 6, stored->requirements, AOTICACHE_INDEX_REQUIREMENT_BYTES) &&
           aoticache_index_read_text(row, 7, &stored->guard) && read_encoding(row, 8, stored);
}

struct listing {
    aoticache_index_stored_fn callback;
    void *user;
};

static bool give_stored(void *user, sqlite3_stmt *row, bool *ret_goes_on)
{
    const struct listing *listing = user;
    aoticache_index_stored stored;
    memset(&stored, 0, sizeof stored);
    if (!read_stored(row, &stored))
        return false;
    *ret_goes_on = listing->callback(listing->user, &stored);
    return true;
}

aoticache_status aoticache_index_list_stored(aoticache_index *index, const char *op, int64_t after_entry, size_t limit,
                                             aoticache_index_stored_fn callback, void *user,
                                             aoticache_error *ret_error)
{
    if (index == NULL || op == NULL || callback == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "index list: no index, operator or function");
    struct listing listing = {.callback = callback, .user = user};
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, SQL(LIST_STORED), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_text(statement, 1, op);
    sqlite3_bind_int64(statement, 2, after_entry);
    sqlite3_bind_int64(statement, 3, limit < MAX_BATCH ? (sqlite3_int64)limit : MAX_BATCH);
    status = aoticache_index_walk(index, statement, "details", give_stored, &listing, ret_error);
    aoticache_index_leave_statement(index, statement);
    return status;
}

/* ---- what older entries lack ---- */

static aoticache_status fill_rows(aoticache_index *index, const aoticache_index_encoding *encodings, size_t count,
                                  aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(FILL_ENCODING), &statement, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        if (encodings[i].size > AOTICACHE_INDEX_MAX_ENCODING_BYTES || encodings[i].size == 0)
            continue;
        sqlite3_bind_int64(statement, 1, encodings[i].entry_id);
        sqlite3_bind_blob(statement, 2, encodings[i].bytes, (int)encodings[i].size, SQLITE_STATIC);
        status = aoticache_index_execute(index, statement, NULL, ret_error);
    }
    return status;
}

aoticache_status aoticache_index_fill_encodings(aoticache_index *index, const aoticache_index_encoding *encodings,
                                                size_t count, aoticache_error *ret_error)
{
    if (index == NULL || (encodings == NULL && count > 0))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "index: no index or no encodings");
    if (count == 0)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_enter_write(index, AOTICACHE_INDEX_RELAXED, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_index_leave_write(index, fill_rows(index, encodings, count, ret_error), ret_error);
}
