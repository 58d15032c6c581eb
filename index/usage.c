/*
 * index/usage: see usage.h.
 */
#include "index/usage.h"
#include "index/connection.h"

struct listing {
    aoticache_index_usage_fn callback;
    void *user;
};

static bool give_usage(void *user, sqlite3_stmt *row, bool *ret_goes_on)
{
    const struct listing *listing = user;
    aoticache_index_usage usage = {.name = NULL};
    if (!aoticache_index_read_text(row, 0, &usage.name) || !aoticache_index_read_unsigned(row, 1, &usage.entries) ||
        !aoticache_index_read_unsigned(row, 2, &usage.bytes) ||
        !aoticache_index_read_integer(row, 3, &usage.last_used_ns))
        return false;
    *ret_goes_on = listing->callback(listing->user, &usage);
    return true;
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
    struct listing listing = {.callback = callback, .user = user};
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_enter_statement(index, statements[by], &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = aoticache_index_walk(index, statement, "details", give_usage, &listing, ret_error);
    aoticache_index_leave_statement(index, statement);
    return status;
}
