/*
 * index/usage: see usage.h.
 */
#include "index/usage.h"
#include "index/connection.h"

static aoticache_status walk(aoticache_index *index, sqlite3_stmt *statement, aoticache_index_usage_fn callback,
                             void *user, aoticache_error *ret_error)
{
    int result;
    while ((result = sqlite3_step(statement)) == SQLITE_ROW) {
        aoticache_index_usage usage = {.name = NULL};
        if (!aoticache_index_read_text(statement, 0, &usage.name) ||
            !aoticache_index_read_unsigned(statement, 1, &usage.entries) ||
            !aoticache_index_read_unsigned(statement, 2, &usage.bytes) ||
            !aoticache_index_read_integer(statement, 3, &usage.last_used_ns))
            return aoticache_index_fail_row(index, "details", ret_error);
        if (!callback(user, &usage))
            return AOTICACHE_OK;
    }
    return result == SQLITE_DONE ? AOTICACHE_OK : aoticache_index_fail(index, result, "cannot add up", ret_error);
}

aoticache_status aoticache_index_list_usage(aoticache_index *index, aoticache_index_usage_group by,
                                            aoticache_index_usage_fn callback, void *user, aoticache_error *ret_error)
{
    static const aoticache_index_statement statements[] = {
        [AOTICACHE_INDEX_USAGE_BY_OP] = SQL(USAGE_BY_OP),
        [AOTICACHE_INDEX_USAGE_BY_DEVICE] = SQL(USAGE_BY_DEVICE),
        [AOTICACHE_INDEX_USAGE_BY_PRODUCER] = SQL(USAGE_BY_PRODUCER),
        [AOTICACHE_INDEX_USAGE_BY_TAG] = SQL(USAGE_BY_TAG),
    };
    if (index == NULL || callback == NULL || (size_t)by >= sizeof statements / sizeof statements[0])
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "index usage: no index, no function or no such group");
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_stmt *statement = NULL;
    status = aoticache_index_prepare(index, statements[by], &statement, ret_error);
    if (status == AOTICACHE_OK) {
        status = walk(index, statement, callback, user, ret_error);
        sqlite3_reset(statement);
    }
    aoticache_index_leave(index);
    return status;
}
