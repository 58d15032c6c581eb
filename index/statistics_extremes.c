/*
 * index/statistics_extremes: the largest and the coldest entries.
 */
#include "index/statistics.h"
#include "index/connection.h"

#include <string.h>

/* The columns of AOTICACHE_INDEX_EXTREME_COLUMNS. */
static bool read_entry(sqlite3_stmt *row, aoticache_index_entry *entry)
{
    return aoticache_index_read_integer(row, 0, &entry->entry_id) &&
           aoticache_index_read_blob(row, 1, entry->key.bytes, AOTICACHE_DIGEST_BYTES) &&
           aoticache_index_read_blob(row, 2, entry->artifact.bytes, AOTICACHE_DIGEST_BYTES) &&
           aoticache_index_read_blob(row, 3, entry->library.bytes, AOTICACHE_DIGEST_BYTES) &&
           aoticache_index_read_count(row, 4, &entry->file_count) &&
           aoticache_index_read_blob(row, 5, entry->requirements, AOTICACHE_INDEX_REQUIREMENT_BYTES) &&
           aoticache_index_read_text(row, 6, &entry->guard) && aoticache_index_read_text(row, 7, &entry->op) &&
           aoticache_index_read_text(row, 8, &entry->device) &&
           aoticache_index_read_text(row, 9, &entry->description) &&
           aoticache_index_read_text(row, 10, &entry->producer) &&
           aoticache_index_read_unsigned(row, 11, &entry->compile_ns) &&
           aoticache_index_read_integer(row, 12, &entry->created_ns) &&
           aoticache_index_read_integer(row, 13, &entry->last_used_ns) &&
           aoticache_index_read_unsigned(row, 14, &entry->uses) &&
           aoticache_index_read_unsigned(row, 15, &entry->bytes);
}

struct listing {
    aoticache_index_entry_fn callback;
    void *user;
};

static bool give_entry(void *user, sqlite3_stmt *row, bool *ret_goes_on)
{
    const struct listing *listing = user;
    aoticache_index_entry entry;
    memset(&entry, 0, sizeof entry);
    if (!read_entry(row, &entry))
        return false;
    *ret_goes_on = listing->callback(listing->user, &entry);
    return true;
}

aoticache_status aoticache_index_list_extreme(aoticache_index *index, aoticache_index_extreme which, size_t limit,
                                              aoticache_index_entry_fn callback, void *user,
                                              aoticache_error *ret_error)
{
    if (index == NULL || callback == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "index list: no index or no function");
    struct listing listing = {.callback = callback, .user = user};
    sqlite3_stmt *rows = NULL;
    aoticache_status status = aoticache_index_enter_statement(
        index, which == AOTICACHE_INDEX_LARGEST ? SQL(LARGEST) : SQL(COLDEST), &rows, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(rows, 1, limit < INT32_MAX ? (sqlite3_int64)limit : INT32_MAX);
    status = aoticache_index_walk(index, rows, "entries", give_entry, &listing, ret_error);
    aoticache_index_leave_statement(index, rows);
    return status;
}
