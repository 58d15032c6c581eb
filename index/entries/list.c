/*
 * index/entries/list: reads the tables and passes each row to a callback. Also adds the encodings that entries of an older
 * version lack.
 */
#include "index/connection/connection_internal.h"
#include "index/entries/entries_internal.h"
#include "index/eviction/eviction.h"

#include <string.h>

#include "base/arguments.h"

struct listing {
    union {
        aoticache_index_entry_fn entry;
        aoticache_index_failure_fn failure;
        aoticache_index_count_fn count;
    } callback;
    void *user;
    size_t entries;  /* passed to the function */
    bool is_stopped; /* the function stopped */
};

/* Forwards all rows of a statement without parameters. */
static aoticache_status list_all(aoticache_index *index, aoticache_index_statement which, const char *table,
                                 aoticache_index_row_fn read, void *user, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, which, &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_index_walk_and_leave(index, statement, table, read, user, ret_error);
}

/* Reads the columns of AOTICACHE_INDEX_LIST_COLUMNS. */
static bool read_entry(void *user, sqlite3_stmt *row, bool *ret_continues)
{
    struct listing *listing = user;
    aoticache_index_entry entry;
    memset(&entry, 0, sizeof entry);
    if (!aoticache_index_read_integer(row, 0, &entry.entry_id) ||
        !aoticache_index_read_blob(row, 1, entry.key.bytes, AOTICACHE_DIGEST_BYTES) ||
        !aoticache_index_read_blob(row, 2, entry.artifact.bytes, AOTICACHE_DIGEST_BYTES) ||
        !aoticache_index_read_blob(row, 3, entry.library.bytes, AOTICACHE_DIGEST_BYTES) ||
        !aoticache_index_read_count(row, 4, &entry.file_count) ||
        !aoticache_index_read_blob(row, 5, entry.requirements, AOTICACHE_INDEX_REQUIREMENT_BYTES) ||
        !aoticache_index_read_text(row, 6, &entry.guard) || !aoticache_index_read_text(row, 7, &entry.op) ||
        !aoticache_index_read_text(row, 8, &entry.device) || !aoticache_index_read_text(row, 9, &entry.description) ||
        !aoticache_index_read_text(row, 10, &entry.producer) ||
        !aoticache_index_read_unsigned(row, 11, &entry.compile_ns) ||
        !aoticache_index_read_integer(row, 12, &entry.created_ns) ||
        !aoticache_index_read_integer(row, 13, &entry.last_used_ns) ||
        !aoticache_index_read_unsigned(row, 14, &entry.uses) || !aoticache_index_read_unsigned(row, 15, &entry.bytes))
        return false;
    listing->entries++;
    listing->is_stopped = !listing->callback.entry(listing->user, &entry);
    *ret_continues = !listing->is_stopped;
    return true;
}

static aoticache_status list_range(aoticache_index *index, aoticache_index_statement which, const char *op,
                                   int64_t after, size_t limit, struct listing *listing, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, which, &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_text(statement, 1, op);
    sqlite3_bind_int64(statement, 2, after);
    sqlite3_bind_int64(statement, 3, limit < INT64_MAX ? (int64_t)limit : -1);
    return aoticache_index_walk(index, statement, "entries", read_entry, listing, ret_error);
}

aoticache_status aoticache_index_list(aoticache_index *index, const char *op, const aoticache_index_place *after,
                                      size_t limit, aoticache_index_entry_fn callback, void *user,
                                      aoticache_error *ret_error)
{
    struct listing listing = {.callback.entry = callback, .user = user};
    if (index == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, callback);
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (op != NULL || after != NULL)
        status = list_range(index, SQL(LIST_OF_OP), op != NULL ? op : after->op,
                            after != NULL ? after->entry_id : INT64_MIN, limit, &listing, ret_error);
    if (status == AOTICACHE_OK && op == NULL && !listing.is_stopped && listing.entries < limit)
        status = list_range(index, SQL(LIST_BEHIND_OP), after != NULL ? after->op : "", 0, limit - listing.entries,
                            &listing, ret_error);
    aoticache_index_leave(index);
    return status;
}

aoticache_status aoticache_index_read_entry(aoticache_index *index, int64_t entry_id, aoticache_index_entry_fn callback,
                                            void *user, aoticache_error *ret_error)
{
    struct listing listing = {.callback.entry = callback, .user = user};
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, SQL(LIST_ENTRY), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, entry_id);
    return aoticache_index_walk_and_leave(index, statement, "entries", read_entry, &listing, ret_error);
}

aoticache_status aoticache_index_list_extreme(aoticache_index *index, aoticache_index_extreme which, size_t limit,
                                              aoticache_index_entry_fn callback, void *user, aoticache_error *ret_error)
{
    if (index == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, callback);
    struct listing listing = {.callback.entry = callback, .user = user};
    sqlite3_stmt *rows = NULL;
    aoticache_status status = aoticache_index_enter_statement(
        index, which == AOTICACHE_INDEX_LARGEST ? SQL(LARGEST) : SQL(COLDEST), &rows, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(rows, 1, limit < INT32_MAX ? (sqlite3_int64)limit : INT32_MAX);
    return aoticache_index_walk_and_leave(index, rows, "entries", read_entry, &listing, ret_error);
}

static bool read_failure(void *user, sqlite3_stmt *row, bool *ret_continues)
{
    const struct listing *listing = user;
    aoticache_index_failure failure;
    memset(&failure, 0, sizeof failure);
    if (!aoticache_index_read_blob(row, 0, failure.key.bytes, AOTICACHE_DIGEST_BYTES) ||
        !aoticache_index_read_text(row, 1, &failure.op) || !aoticache_index_read_text(row, 2, &failure.description) ||
        !aoticache_index_read_text(row, 3, &failure.message) ||
        !aoticache_index_read_integer(row, 4, &failure.failed_ns) ||
        !aoticache_index_read_integer(row, 5, &failure.retry_ns) || !aoticache_index_read_count(row, 6, &failure.count))
        return false;
    *ret_continues = listing->callback.failure(listing->user, &failure);
    return true;
}

aoticache_status aoticache_index_list_failures(aoticache_index *index, aoticache_index_failure_fn callback, void *user,
                                               aoticache_error *ret_error)
{
    struct listing listing = {.callback.failure = callback, .user = user};
    if (index == NULL || callback == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, callback);
    return list_all(index, SQL(LIST_FAILURES), "failures", read_failure, &listing, ret_error);
}
