/*
 * index/list: reading through the tables with a callback, and the totals.
 */
#include "index/collection.h"
#include "index/connection.h"

#include <string.h>

/* Gives the rows of a statement to a function of the caller's. */
typedef struct row_walk {
    bool (*read)(struct row_walk *walk, sqlite3_stmt *statement); /* false: the row is damaged */
    const char *table;
    void *callback_user;
    union {
        aoticache_index_entry_fn entry;
        aoticache_index_object_fn object;
        aoticache_index_failure_fn failure;
        aoticache_index_count_fn count;
    } callback;
    bool stopped; /* the caller's function had enough */
    size_t count; /* rows that it was given */
} row_walk;

static aoticache_status walk_rows(aoticache_index *index, sqlite3_stmt *statement, row_walk *walk,
                                  aoticache_error *ret_error)
{
    int result = SQLITE_ROW;
    aoticache_status status = AOTICACHE_OK;
    while (status == AOTICACHE_OK && !walk->stopped && (result = sqlite3_step(statement)) == SQLITE_ROW) {
        walk->count++;
        if (!walk->read(walk, statement))
            status = aoticache_index_fail_row(index, walk->table, ret_error);
    }
    if (status == AOTICACHE_OK && result != SQLITE_ROW && result != SQLITE_DONE)
        status = aoticache_index_fail(index, result, "cannot list", ret_error);
    sqlite3_reset(statement);
    return status;
}

static aoticache_status list(aoticache_index *index, aoticache_index_statement which, row_walk *walk,
                             aoticache_error *ret_error)
{
    if (index == NULL || walk->callback.object == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "index list: no index or no function");
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_stmt *statement = NULL;
    status = aoticache_index_prepare(index, which, &statement, ret_error);
    if (status == AOTICACHE_OK)
        status = walk_rows(index, statement, walk, ret_error);
    aoticache_index_leave(index);
    return status;
}

/* The columns of AOTICACHE_INDEX_LIST_COLUMNS. */
static bool read_entry(row_walk *walk, sqlite3_stmt *row)
{
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
    walk->stopped = !walk->callback.entry(walk->callback_user, &entry);
    return true;
}

static aoticache_status list_range(aoticache_index *index, aoticache_index_statement which, const char *op,
                                   int64_t after, size_t limit, row_walk *walk, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, which, &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_index_bind_text(statement, 1, op);
    sqlite3_bind_int64(statement, 2, after);
    sqlite3_bind_int64(statement, 3, limit < INT64_MAX ? (int64_t)limit : -1);
    return walk_rows(index, statement, walk, ret_error);
}

aoticache_status aoticache_index_list(aoticache_index *index, const char *op, const aoticache_index_place *after,
                                      size_t limit, aoticache_index_entry_fn callback, void *user,
                                      aoticache_error *ret_error)
{
    row_walk walk = {.read = read_entry, .table = "entries", .callback_user = user, .callback.entry = callback};
    if (index == NULL || callback == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "index list: no index or no function");
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (op != NULL || after != NULL)
        status = list_range(index, SQL(LIST_OF_OP), op != NULL ? op : after->op,
                            after != NULL ? after->entry_id : INT64_MIN, limit, &walk, ret_error);
    if (status == AOTICACHE_OK && op == NULL && !walk.stopped && walk.count < limit)
        status = list_range(index, SQL(LIST_BEHIND_OP), after != NULL ? after->op : "", 0, limit - walk.count, &walk,
                            ret_error);
    aoticache_index_leave(index);
    return status;
}

aoticache_status aoticache_index_read_entry(aoticache_index *index, int64_t entry_id, aoticache_index_entry_fn callback,
                                            void *user, aoticache_error *ret_error)
{
    row_walk walk = {.read = read_entry, .table = "entries", .callback_user = user, .callback.entry = callback};
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_prepare(index, SQL(LIST_ENTRY), &statement, ret_error);
    if (status == AOTICACHE_OK) {
        sqlite3_bind_int64(statement, 1, entry_id);
        walk.stopped = false;
        status = walk_rows(index, statement, &walk, ret_error);
    }
    aoticache_index_leave(index);
    return status;
}

static bool read_object(row_walk *walk, sqlite3_stmt *row)
{
    aoticache_digest digest;
    uint64_t bytes;
    if (!aoticache_index_read_blob(row, 0, digest.bytes, AOTICACHE_DIGEST_BYTES) ||
        !aoticache_index_read_unsigned(row, 1, &bytes))
        return false;
    walk->stopped = !walk->callback.object(walk->callback_user, &digest, bytes);
    return true;
}

aoticache_status aoticache_index_list_objects(aoticache_index *index, aoticache_index_object_fn callback, void *user,
                                              aoticache_error *ret_error)
{
    row_walk walk = {.read = read_object, .table = "objects", .callback_user = user, .callback.object = callback};
    return list(index, SQL(LIST_OBJECTS), &walk, ret_error);
}

static bool read_failure(row_walk *walk, sqlite3_stmt *row)
{
    aoticache_index_failure failure;
    memset(&failure, 0, sizeof failure);
    if (!aoticache_index_read_blob(row, 0, failure.key.bytes, AOTICACHE_DIGEST_BYTES) ||
        !aoticache_index_read_text(row, 1, &failure.op) || !aoticache_index_read_text(row, 2, &failure.description) ||
        !aoticache_index_read_text(row, 3, &failure.message) ||
        !aoticache_index_read_integer(row, 4, &failure.failed_ns) ||
        !aoticache_index_read_integer(row, 5, &failure.retry_ns) ||
        !aoticache_index_read_count(row, 6, &failure.count))
        return false;
    walk->stopped = !walk->callback.failure(walk->callback_user, &failure);
    return true;
}

aoticache_status aoticache_index_list_failures(aoticache_index *index, aoticache_index_failure_fn callback, void *user,
                                               aoticache_error *ret_error)
{
    row_walk walk = {.read = read_failure, .table = "failures", .callback_user = user, .callback.failure = callback};
    return list(index, SQL(LIST_FAILURES), &walk, ret_error);
}

static bool read_count(row_walk *walk, sqlite3_stmt *row)
{
    const char *name;
    uint64_t value;
    if (!aoticache_index_read_text(row, 0, &name) || !aoticache_index_read_unsigned(row, 1, &value))
        return false;
    walk->stopped = !walk->callback.count(walk->callback_user, name, value);
    return true;
}

aoticache_status aoticache_index_list_counts(aoticache_index *index, aoticache_index_count_fn callback, void *user,
                                             aoticache_error *ret_error)
{
    row_walk walk = {.read = read_count, .table = "counts", .callback_user = user, .callback.count = callback};
    return list(index, SQL(LIST_COUNTS), &walk, ret_error);
}
