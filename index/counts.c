/*
 * index/counts: recency and counters, added in batches and without waiting for the disk: power loss may take the last
 * batches, which costs a little precision and nothing else. Listed by list.c.
 */
#include "index/connection.h"

static aoticache_status add_uses(aoticache_index *index, const aoticache_index_use *uses, size_t count,
                                 aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = AOTICACHE_OK;
    if (count > 0)
        status = aoticache_index_prepare(index, SQL(ADD_USE), &statement, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        sqlite3_bind_int64(statement, 1, uses[i].entry_id);
        sqlite3_bind_int64(statement, 2, uses[i].last_used_ns);
        aoticache_index_bind_unsigned(statement, 3, uses[i].uses);
        status = aoticache_index_execute(index, statement, NULL, ret_error);
    }
    return status;
}

static aoticache_status add_counts(aoticache_index *index, const aoticache_index_count *counts, size_t count,
                                   aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = AOTICACHE_OK;
    if (count > 0)
        status = aoticache_index_prepare(index, SQL(ADD_COUNT), &statement, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count; i++) {
        aoticache_index_bind_text(statement, 1, counts[i].name);
        aoticache_index_bind_unsigned(statement, 2, counts[i].value);
        status = aoticache_index_execute(index, statement, NULL, ret_error);
    }
    return status;
}

static bool arguments_are_valid(const aoticache_index *index, const aoticache_index_use *uses, size_t use_count,
                                const aoticache_index_count *counts, size_t count_count)
{
    if (index == NULL || (uses == NULL && use_count > 0) || (counts == NULL && count_count > 0))
        return false;
    for (size_t i = 0; i < count_count; i++)
        if (counts[i].name == NULL)
            return false;
    return true;
}

aoticache_status aoticache_index_flush(aoticache_index *index, const aoticache_index_use *uses, size_t use_count,
                                       const aoticache_index_count *counts, size_t count_count,
                                       aoticache_error *ret_error)
{
    if (!arguments_are_valid(index, uses, use_count, counts, count_count))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "index flush: no index, or a use or name is missing");
    if (use_count == 0 && count_count == 0)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_enter_write(index, AOTICACHE_INDEX_RELAXED, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = add_uses(index, uses, use_count, ret_error);
    if (status == AOTICACHE_OK)
        status = add_counts(index, counts, count_count, ret_error);
    return aoticache_index_leave_write(index, status, ret_error);
}
