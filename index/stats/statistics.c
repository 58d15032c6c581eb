/*
 * index/stats/statistics: adds the counts of a process in one transaction, reads them back, and stores the numbers at the
 * last zeroing. Adding does not wait for the disk: a power loss may lose the last batches, which only costs a little
 * precision.
 */
#include "index/stats/pending.h"

#include "base/arguments.h"

/* ---- flushing ---- */

static aoticache_status write_deltas(aoticache_index *index, const aoticache_index_deltas *deltas,
                                     aoticache_error *ret_error)
{
    aoticache_pending_stats uses = {.fd = -1};
    aoticache_status status = aoticache_index_begin(index, AOTICACHE_INDEX_RELAXED, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (!deltas->leaves_deferred && !index->is_bulk)
        status = aoticache_pending_stats_merge(index, deltas->now_ns, &uses, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_add_deltas(index, deltas, ret_error);
    status = aoticache_index_end(index, status, ret_error);
    aoticache_pending_stats_end(index, &uses, status == AOTICACHE_OK);
    return status;
}

aoticache_status aoticache_index_flush_deltas(aoticache_index *index, const aoticache_index_deltas *deltas,
                                              bool may_wait, aoticache_error *ret_error)
{
    if (index == NULL || deltas == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, deltas);
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (!may_wait)
        index->wait_ms = 0;
    else if (deltas->max_wait_ms != 0 && deltas->max_wait_ms < index->wait_ms)
        index->wait_ms = deltas->max_wait_ms;
    status = write_deltas(index, deltas, ret_error);
    index->wait_ms = index->lock_timeout_ms;
    aoticache_index_leave(index);
    return status;
}

/* ---- flushing only recency and counters ---- */

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
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s: index, uses, counts or the name of a count is NULL", __func__);
    if (use_count == 0 && count_count == 0)
        return AOTICACHE_OK;
    aoticache_status status = aoticache_index_enter_write(index, AOTICACHE_INDEX_RELAXED, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = add_uses(index, uses, use_count, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_add_counts(index, counts, count_count, ret_error);
    return aoticache_index_leave_write(index, status, ret_error);
}

/* ---- reading ---- */

static aoticache_status read_zero_time(aoticache_index *index, int64_t *ret_zero_ns, aoticache_error *ret_error)
{
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(READ_ZERO_TIME), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    int result = sqlite3_step(statement);
    if (result != SQLITE_ROW)
        status = aoticache_index_fail(index, result, "cannot read", ret_error);
    else if (!aoticache_index_read_integer(statement, 0, ret_zero_ns))
        status = aoticache_index_fail_row(index, "meta", ret_error);
    sqlite3_reset(statement);
    return status;
}

static int64_t last_slot(const aoticache_index_reading *reading)
{
    return reading->until_seconds != 0 ? reading->until_seconds : INT64_MAX;
}

static aoticache_status read_counts(aoticache_index *index, const aoticache_index_reading *reading,
                                    aoticache_error *ret_error)
{
    static const aoticache_index_statement of[] = {[AOTICACHE_INDEX_FROM_START] = SQL(LIST_COUNTS),
                                                   [AOTICACHE_INDEX_FROM_ZERO] = SQL(COUNTS_SINCE_ZERO),
                                                   [AOTICACHE_INDEX_FROM_TIME] = SQL(COUNTS_SINCE)};
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, of[reading->from], &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    if (reading->from == AOTICACHE_INDEX_FROM_TIME) {
        sqlite3_bind_int64(statement, 1, reading->since_seconds);
        sqlite3_bind_int64(statement, 2, last_slot(reading));
    }
    int result = SQLITE_DONE;
    bool continues = true;
    while (status == AOTICACHE_OK && continues && (result = sqlite3_step(statement)) == SQLITE_ROW) {
        const char *name;
        uint64_t value;
        if (aoticache_index_read_text(statement, 0, &name) && aoticache_index_read_unsigned(statement, 1, &value))
            continues = reading->count(reading->user, name, value);
        else
            status = aoticache_index_fail_row(index, "counts", ret_error);
    }
    if (status == AOTICACHE_OK && result != SQLITE_ROW && result != SQLITE_DONE)
        status = aoticache_index_fail(index, result, "cannot list", ret_error);
    sqlite3_reset(statement);
    return status;
}

/* Forwards one row of the statement LATENCIES. */
static aoticache_status forward_histogram(aoticache_index *index, sqlite3_stmt *row,
                                          const aoticache_index_reading *reading, bool *ret_continues,
                                          aoticache_error *ret_error)
{
    uint64_t counts[AOTICACHE_INDEX_BUCKETS] = {0};
    aoticache_index_histogram histogram = {.counts = counts};
    int64_t level;
    if (!aoticache_index_read_integer(row, 0, &level) || !aoticache_index_read_text(row, 1, &histogram.name) ||
        !aoticache_index_read_unsigned(row, 2, &histogram.sum) ||
        !aoticache_index_read_unsigned(row, 3, &histogram.maximum) || sqlite3_column_type(row, 4) != SQLITE_BLOB ||
        !aoticache_index_vector_add(sqlite3_column_blob(row, 4), (size_t)sqlite3_column_bytes(row, 4), counts))
        return aoticache_index_fail_row(index, "latencies", ret_error);
    *ret_continues = reading->histogram(reading->user, &histogram, level == AOTICACHE_LEVEL_ZERO);
    return AOTICACHE_OK;
}

static aoticache_status read_histograms(aoticache_index *index, const aoticache_index_reading *reading,
                                        aoticache_error *ret_error)
{
    const bool by_time = reading->from == AOTICACHE_INDEX_FROM_TIME;
    sqlite3_stmt *statement = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(LATENCIES), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, by_time ? 0 : AOTICACHE_LEVEL_TOTAL);
    sqlite3_bind_int64(statement, 2,
                       by_time                                      ? 2
                       : reading->from == AOTICACHE_INDEX_FROM_ZERO ? AOTICACHE_LEVEL_ZERO
                                                                    : AOTICACHE_LEVEL_TOTAL);
    sqlite3_bind_int64(statement, 3, by_time ? reading->since_seconds : 0);
    sqlite3_bind_int64(statement, 4, last_slot(reading));
    int result = SQLITE_DONE;
    bool continues = true;
    while (status == AOTICACHE_OK && continues && (result = sqlite3_step(statement)) == SQLITE_ROW)
        status = forward_histogram(index, statement, reading, &continues, ret_error);
    if (status == AOTICACHE_OK && result != SQLITE_ROW && result != SQLITE_DONE)
        status = aoticache_index_fail(index, result, "cannot list", ret_error);
    sqlite3_reset(statement);
    return status;
}

/* Reads all in one transaction, so that counters and histograms are of one moment. */
static aoticache_status read_all(aoticache_index *index, const aoticache_index_reading *reading, int64_t *ret_zero_ns,
                                 aoticache_error *ret_error)
{
    sqlite3_stmt *begin = NULL;
    aoticache_status status = aoticache_index_prepare(index, SQL(BEGIN_READ), &begin, ret_error);
    if (status == AOTICACHE_OK)
        status = aoticache_index_execute(index, begin, NULL, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = read_zero_time(index, ret_zero_ns, ret_error);
    if (status == AOTICACHE_OK)
        status = read_counts(index, reading, ret_error);
    if (status == AOTICACHE_OK)
        status = read_histograms(index, reading, ret_error);
    return aoticache_index_end(index, status, ret_error);
}

aoticache_status aoticache_index_read_statistics(aoticache_index *index, const aoticache_index_reading *reading,
                                                 int64_t *ret_zero_ns, aoticache_error *ret_error)
{
    if (index == NULL || reading == NULL || ret_zero_ns == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index, reading, ret_zero_ns);
    if (reading->count == NULL || reading->histogram == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, reading->count, reading->histogram);
    int64_t zero_ns = 0;
    aoticache_status status = aoticache_index_enter(index, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    status = read_all(index, reading, &zero_ns, ret_error);
    aoticache_index_leave(index);
    if (status == AOTICACHE_OK)
        *ret_zero_ns = zero_ns;
    return status;
}

/* ---- counting again ---- */

static aoticache_status write_zero_point(aoticache_index *index, int64_t now_ns, aoticache_error *ret_error)
{
    static const aoticache_index_statement copies[] = {SQL(ZERO_COUNTS), SQL(ZERO_LATENCIES), SQL(ZERO_GROUPS)};
    sqlite3_stmt *statement = NULL;
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < sizeof copies / sizeof copies[0]; i++) {
        status = aoticache_index_prepare(index, copies[i], &statement, ret_error);
        if (status == AOTICACHE_OK)
            status = aoticache_index_execute(index, statement, NULL, ret_error);
    }
    if (status == AOTICACHE_OK)
        status = aoticache_index_prepare(index, SQL(ZERO_TIME), &statement, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    sqlite3_bind_int64(statement, 1, now_ns);
    return aoticache_index_execute(index, statement, NULL, ret_error);
}

aoticache_status aoticache_index_zero_statistics(aoticache_index *index, int64_t now_ns, aoticache_error *ret_error)
{
    if (index == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, index);
    aoticache_status status = aoticache_index_enter_write(index, AOTICACHE_INDEX_DURABLE, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    return aoticache_index_leave_write(index, write_zero_point(index, now_ns, ret_error), ret_error);
}
