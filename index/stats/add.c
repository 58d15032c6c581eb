/*
 * index/stats/add: adds the counts of a process to the rows of entries, groups, counters and the history. The callers begin
 * and end the transaction.
 */
#include "index/stats/stats_internal.h"

/* Marks the entry as used, and passes its names to `sums`. */
static aoticache_status add_tally(aoticache_index *index, sqlite3_stmt *statement, const aoticache_index_tally *tally,
                                  int64_t now_ns, aoticache_index_sums *sums, aoticache_error *ret_error)
{
    const aoticache_index_group group = {.hits = (int64_t)tally->hits,
                                         .misses = (int64_t)tally->misses,
                                         .compiles = (int64_t)tally->compiles,
                                         .compile_ns = (int64_t)tally->compile_ns,
                                         .saved_ns = (int64_t)tally->saved_ns};
    const char *op = NULL, *device = NULL, *producer = NULL;
    aoticache_status status = AOTICACHE_OK;
    sqlite3_bind_int64(statement, 1, tally->entry_id);
    sqlite3_bind_int64(statement, 2, tally->last_used_ns < now_ns ? tally->last_used_ns : now_ns);
    aoticache_index_bind_unsigned(statement, 3, tally->uses);
    sqlite3_bind_int64(statement, 4, now_ns);
    int result = sqlite3_step(statement);
    if (result != SQLITE_ROW && result != SQLITE_DONE)
        status = aoticache_index_fail(index, result, "cannot write", ret_error);
    else if (result == SQLITE_ROW &&
             (!aoticache_index_read_text(statement, 0, &op) || !aoticache_index_read_text(statement, 1, &device) ||
              !aoticache_index_read_text(statement, 2, &producer)))
        status = aoticache_index_fail_row(index, "details", ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_sums_add(sums, op, device, producer, &group, ret_error);
    sqlite3_reset(statement);
    return status;
}

static aoticache_status add_groups(aoticache_index *index, const aoticache_index_deltas *deltas,
                                   aoticache_error *ret_error)
{
    aoticache_index_sums sums = {.by_name = {.count = 0}};
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(TALLY), &statement, ret_error);
    for (size_t i = 0; status == AOTICACHE_OK && i < deltas->tally_count; i++)
        status = add_tally(index, statement, &deltas->tallies[i], deltas->now_ns, &sums, ret_error);
    if (status == AOTICACHE_OK && deltas->sums != NULL)
        status = aoticache_index_sums_merge(&sums, deltas->sums, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_sums_write(index, &sums, ret_error);
    aoticache_index_sums_free(&sums);
    return status;
}

aoticache_status aoticache_index_add_counts(aoticache_index *index, const aoticache_index_count *counts, size_t count,
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

aoticache_status aoticache_index_add_deltas(aoticache_index *index, const aoticache_index_deltas *deltas,
                                            aoticache_error *ret_error)
{
    aoticache_status status = add_groups(index, deltas, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_add_counts(index, deltas->counts, deltas->count_count, ret_error);
    return status == AOTICACHE_OK ? aoticache_index_history_add(index, deltas, ret_error) : status;
}
